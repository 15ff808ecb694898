#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
migration: live migration and lazy restores, zones beside stock CRIU with a file system, alternating.

migrate: page server, dump --page-server, copy of the other images, restore, on one machine over loopback. Total is from
the start of the dump to the end of the restore; downtime from the freeze (criu's stats-dump) to the end of the restore.
"stock, synced" is stock with its images made durable before the restore, as zones always are.
rounds: one full dump to a page server into zones beside pre-dumps before a dump, of a process that writes: 1 % of its pages
before the dump, or 50,000 times a second to random pages all the time. Needs Linux 6.7, or soft-dirty bits.
lazy: restore --lazy-pages; the first touch of random pages, timed by the process itself while the daemon also brings
the rest, the time until all of it is there, and the CPU time of everybody but the broker. Local, and from a page server
with --lazy-pages. --also NAME=DIR: another build of ours as well.
faults: the same without the rest: of ours the background stands still for a second (--zns-record), so each touch is a fault.
Never judges times; fails if a command fails or memory differs.
"""
import argparse
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'test' / 'zonetests'))
import kept     # noqa: E402
import ztproto     # noqa: E402
from ztlib import Failed, drop_caches, wait_until       # noqa: E402

QOS = '500'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def wait_for(true, seconds, what):
    if not wait_until(true, seconds, 0.002):
        raise Failed(f'{what}: not within {seconds} s')


class Process:
    def __init__(self, bench, directory, command=None):
        self.answers = directory / 'answers'
        self.bench = bench
        self.child = subprocess.Popen([*(command or [bench.program, str(bench.args.size), '7']), str(self.answers)], cwd='/',
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      start_new_session=True)
        self.pid = self.child.pid
        self.lines(1)

    def lines(self, number):
        wait_for(lambda: self.answers.exists() and len(self.answers.read_text().splitlines()) >= number, 120,
                   'an answer of the process')
        return self.answers.read_text().splitlines()

    def ask(self, sig):
        have = len(self.lines(1))
        os.kill(self.pid, sig)
        return self.lines(have + 1)[-1].split()

    def dumped(self):
        self.child.wait(60)

    def end(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        wait_for(lambda: not Path(f'/proc/{self.pid}').exists() or self.child.poll() is not None and
                   not Path(f'/proc/{self.pid}/exe').exists(), 20, 'the end of the process')


class Contestant:
    def __init__(self, bench, name, criu, zones=False, synced=False, pre_dumps=0):
        self.bench, self.name, self.criu, self.zones, self.synced = bench, name, criu, zones, synced
        self.pre_dumps = pre_dumps

    def options(self):
        return ['--zns-qos', QOS, '--zns-container', 'bench'] if self.zones else []

    def command(self, verb, work, *args):
        prefix = ['chrt', '-r', '1'] if self.bench.args.realtime else []
        return [*prefix, str(self.criu), verb, '-D', str(work), '-W', str(work), '-o', f'{verb}.log', '-v1', *map(str, args)]

    def run(self, verb, work, *args):
        done = subprocess.run(self.command(verb, work, *args), env=self.bench.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        if done.returncode:
            raise Failed(f'{self.name}: criu {verb}: exit {done.returncode}: {(work / (verb + ".log")).read_text()[-400:]}')

    def start(self, verb, work, *args):
        """Starts a server, and waits until it reports that it is ready."""
        ready, status = os.pipe()
        server = subprocess.Popen([*self.command(verb, work, *args), '--status-fd', str(status)], env=self.bench.env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  pass_fds=[status])
        os.close(status)
        if not os.read(ready, 1):
            raise Failed(f'{self.name}: criu {verb}: {(work / (verb + ".log")).read_text()[-400:]}')
        os.close(ready)
        return server

    def finish(self, server, verb, work):
        if server.wait(300):
            raise Failed(f'{self.name}: criu {verb}: exit {server.returncode}: {(work / (verb + ".log")).read_text()[-400:]}')

    def restore(self, process, work, *args):
        self.run('restore', work, '-d', '--pidfile', 'pid', *args)
        process.pid = int((work / 'pid').read_text())


def cpu_s(process=None):
    """CPU time of our ended children, adopted ones included, and of @process, when all of them except it and the broker have ended."""
    def busy():
        for pid in map(int, Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()):
            stat = Path(f'/proc/{pid}/stat').read_text()
            if stat.rpartition(')')[2].split()[0] == 'Z':
                os.waitpid(pid, 0)
            elif not (process and pid == process.pid) and '(znsd)' not in stat:
                return True
        return False
    wait_for(lambda: not busy(), 60, 'the end of all helpers')
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = Path(f'/proc/{process.pid}/stat').read_text().rpartition(')')[2].split()[11:13] if process else []
    return used.ru_utime + used.ru_stime + sum(map(int, own)) / os.sysconf('SC_CLK_TCK')


def settle(bench):
    """Waits until nothing of the round before is being written to the disk."""
    os.sync()


def migrate(who, work):
    bench = who.bench
    sent, received, port = work / 'sent', work / 'received', free_port()
    sent.mkdir()
    received.mkdir()
    process = Process(bench, work)
    try:
        settle(bench)
        server = who.start('page-server', received, '--address', '127.0.0.1', '--port', port, *who.options())
        begin = time.monotonic()
        who.run('dump', sent, '-t', process.pid, '--page-server', '--address', '127.0.0.1', '--port', port)
        dumped = time.monotonic()
        process.dumped()
        who.finish(server, 'page-server', received)
        for p in sent.glob('*.img'):
            shutil.copy(p, received)
        if who.synced:
            for p in received.iterdir():
                with open(p, 'rb') as f:
                    os.fsync(f.fileno())
        (received / 'pid').unlink(missing_ok=True)
        who.restore(process, received)
        end = time.monotonic()
        if process.ask(signal.SIGUSR1)[0] != 'same':
            raise Failed(f'{who.name}: the memory differs')
        return {'dump_s': dumped - begin, 'total_s': end - begin,
                'downtime_s': end - dumped + ztproto.dump_stats(sent / 'stats-dump')[2] / 1e6}
    finally:
        process.end()


def send(who, work, process, verb, n, args=()):
    """One round to a page server of its own; returns (the sender's directory, seconds)."""
    sent, received, port = work / f'sent-{n}', work / f'received-{n}', free_port()
    sent.mkdir()
    received.mkdir()
    before = ['--prev-images-dir', f'../received-{n - 1}'] if n else []
    server = who.start('page-server', received, '--address', '127.0.0.1', '--port', port, *who.options(), *before)
    begin = time.monotonic()
    before = ['--prev-images-dir', f'../sent-{n - 1}'] if n else []
    who.run(verb, sent, '-t', process.pid, '--page-server', '--address', '127.0.0.1', '--port', port, *before, *args)
    seconds = time.monotonic() - begin
    who.finish(server, 'page-server', received)
    return sent, received, seconds


def rounds(who, work, rate):
    """Makes @who.pre_dumps pre-dumps, then a dump."""
    process = Process(who.bench, work, [who.bench.writer, str(who.bench.args.size), str(rate)])
    found = {'pre_dumps_s': 0.0, 'pre_dumps_frozen_ms': 0.0}
    try:
        settle(who.bench)
        for n in range(who.pre_dumps):
            sent, _, seconds = send(who, work, process, 'pre-dump', n)
            found['pre_dumps_s'] += seconds
            found['pre_dumps_frozen_ms'] = max(found['pre_dumps_frozen_ms'], ztproto.dump_stats(sent / 'stats-dump')[2] / 1e3)
        if not rate:
            process.ask(signal.SIGUSR2)
        sent, received, seconds = send(who, work, process, 'dump', who.pre_dumps, args=['--track-mem'] * (who.pre_dumps > 0))
        dumped = time.monotonic()
        process.dumped()
        for p in sent.glob('*.img'):
            shutil.copy(p, received)
        who.restore(process, received)
        end = time.monotonic()
        frozen = ztproto.dump_stats(sent / 'stats-dump')[2] / 1e6
        last = json.loads(who.bench.ctl('ls', '--json'))['checkpoints'][-1]
        if process.ask(signal.SIGUSR1)[0] != 'same':
            raise Failed(f'{who.name}: the memory differs')
        return {**found, 'dump_s': seconds, 'dump_frozen_ms': frozen * 1e3, 'dump_mib': last['page_bytes'] / 2**20,
                'restore_s': end - dumped, 'downtime_s': end - dumped + frozen}
    finally:
        process.end()


def lazy(who, work, remote, cold, alone=False):
    images = work / 'images'
    images.mkdir()
    process = Process(who.bench, work)
    try:
        begin = time.monotonic()
        who.run('dump', images, '-t', process.pid, *who.options())
        process.dumped()
        settle(who.bench)
        if cold:
            drop_caches()
        cpu = cpu_s()
        extra, source = ['--zns-record=1'] if alone and who.zones else [], None
        if remote:
            port = free_port()
            where = ['--address', '127.0.0.1', '--port', port]
            extra += ['--page-server', *where]
            begin = time.monotonic()
            source = who.start('page-server', images, '--lazy-pages', *where)
        else:
            begin = time.monotonic()
        daemon = who.start('lazy-pages', images, *extra)
        who.restore(process, images, '--lazy-pages')
        running = time.monotonic()
        faults, median, p99, longest = map(int, process.ask(signal.SIGUSR2)[1:])
        who.finish(daemon, 'lazy-pages', images)
        done = time.monotonic()
        if source:
            who.finish(source, 'page-server', images)
        cpu = cpu_s(process) - cpu
        if process.ask(signal.SIGUSR1)[0] != 'same':
            raise Failed(f'{who.name}: the memory differs')
        return {'running_s': running - begin, 'faults_of_1000': faults, 'fault_median_us': median / 1e3,
                'touch_p99_us': p99 / 1e3, 'touch_max_us': longest / 1e3, 'all_there_s': done - running, 'cpu_s': cpu}
    finally:
        process.end()


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = Path(tempfile.mkdtemp(prefix='bench-migration-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        self.program = REPO / 'build' / 'bench' / 'faults'
        self.writer = REPO / 'build' / 'bench' / 'writes'
        self.env = dict(os.environ, ZNS_CONFIG=str(self.dir / 'etc'), ZNS_RUN=str(self.dir / 'run'))
        self.env.pop('ZNS_DEV', None)
        self.ctl('create', f'emu:{self.dir}/dev.emu', '--zones', str(max(32, args.size // 64 * 6)), '--zone-size', '64M',
                 '--timing', 'off')
        ours = REPO / 'build' / 'bin' / 'criu'
        self.rounders = [Contestant(self, 'one full dump', ours, zones=True)]
        self.rounders += [Contestant(self, f'{n} rounds before it', ours, zones=True, pre_dumps=n) for n in args.pre_dumps]
        if args.only == 'rounds':
            return
        stock = args.stock or self.build_stock()
        self.migrants = [Contestant(self, 'stock', stock), Contestant(self, 'stock, synced', stock, synced=True),
                         Contestant(self, 'zones', ours, zones=True)]
        also = [Contestant(self, name, Path(where).resolve() / 'criu', zones=True)
                for name, _, where in (a.partition('=') for a in args.also)]
        self.lazies = [self.migrants[0], *also, self.migrants[2]]

    @staticmethod
    def build_stock():
        done = subprocess.run([REPO / 'scripts' / 'zdtm-sample', '--stock-only'], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise Failed('stock CRIU could not be built')
        return done.stdout.split()[-1]

    def ctl(self, *args):
        done = subprocess.run([REPO / 'build' / 'bin' / 'znsctl', *args], env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f'znsctl {args[0]}: {done.stderr.strip()}')
        return done.stdout

    def one(self, who, func, *args):
        work = self.dir / 'work'
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        result = func(who, work, *args)
        if who.zones:
            ids = [c['id'] for c in json.loads(self.ctl('ls', '--json'))['checkpoints']]
            if ids:
                self.ctl('rm', *reversed(ids))
        if who.zones and self.args.also:
            self.end_broker()       # a broker is of one build, and runs on for a while
        shutil.rmtree(work)
        return result

    def rounds(self, title, contestants, func, *args):
        """Medians, and the ratio to the first contestant in each round."""
        found = {c.name: [] for c in contestants}
        for n in range(self.args.rounds):
            order = contestants if n % 2 == 0 else contestants[::-1]
            for who in order:
                found[who.name].append(self.one(who, func, *args))
                print(f'{title}, round {n + 1}, {who.name}: ' +
                      ', '.join(f'{k} {v:.3f}' for k, v in found[who.name][-1].items()), flush=True)
        return found

    def end_broker(self):
        pid = json.loads(self.ctl('status', '--json')).get('broker_pid')
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not Path(f'/proc/{pid}/exe').exists(), 60, 'the end of the broker')

    def close(self):
        try:
            self.end_broker()
        except (Failed, ProcessLookupError, ValueError):
            pass
        shutil.rmtree(self.dir, ignore_errors=True)


def may_enlarge_pipes():
    """Do we have CAP_SYS_RESOURCE? Without it stock's page server for lazy pages does not work."""
    line = next(l for l in Path('/proc/self/status').read_text().splitlines() if l.startswith('CapEff'))
    return bool(int(line.split()[1], 16) >> 24 & 1)


def table(found):
    names = list(found)
    if len(names) == 1:
        return ['| | zones |', '| --- | --- |'] + [f'| {key} | {statistics.median(r[key] for r in found[names[0]]):.3f} |'
                                                    for key in found[names[0]][0]] + \
            ['', 'Stock cannot do this on a machine without CAP_SYS_RESOURCE.']
    lines = [f'| | {" | ".join(names)} | {names[-1]} / {names[0]} |', '| --- ' * (len(names) + 2) + '|']
    for key in found[names[0]][0]:
        medians = [statistics.median(r[key] for r in found[n]) for n in names]
        ratios = [a[key] / b[key] for a, b in zip(found[names[-1]], found[names[0]]) if b[key]]
        ratio = f'{statistics.median(ratios):.2f}' if ratios else ''
        lines.append(f'| {key} | {" | ".join(f"{m:.3f}" for m in medians)} | {ratio} |')
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--size', type=int, default=447, metavar='MIB')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    parser.add_argument('--also', metavar='NAME=DIR', action='append', default=[], help='lazy: another build of ours')
    parser.add_argument('--report', metavar='DIR')
    parser.add_argument('--only', choices=['migrate', 'lazy', 'rounds', 'faults'], help='a part of it')
    parser.add_argument('--realtime', action='store_true', help='at real-time priorities: other work on the machine shows less')
    parser.add_argument('--pre-dumps', type=int, nargs='+', default=[1, 3], metavar='N', help='of rounds')
    args = parser.parse_args()
    ctypes_subreaper()
    bench = Bench(args)
    if args.realtime:   # above the commands
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    results = {}
    try:
        if args.only in (None, 'rounds'):
            for title, rate in (('rounds, 1 % written before the dump', 0), ('rounds, 50,000 writes a second', 50000)):
                results[title] = bench.rounds(title, bench.rounders, rounds, rate)
        if args.only in (None, 'migrate'):
            results['migration over loopback'] = bench.rounds('migration', bench.migrants, migrate)
        if args.only in (None, 'faults'):
            results['faults, page cache warm'] = bench.rounds('faults', bench.lazies, lazy, False, False, True)
        if args.only in (None, 'lazy'):
            for title, remote, cold in (('lazy, local, page cache warm', False, False), ('lazy, local, page cache cold', False, True),
                                        ('lazy, from a page server', True, False)):
                who = bench.lazies if not remote or may_enlarge_pipes() else bench.lazies[1:]
                results[title] = bench.rounds(title, who, lazy, remote, cold)
    except Failed as e:
        print(f'migration: {e}', file=sys.stderr)
        return 1
    finally:
        bench.close()
    text = [f'# Migration and lazy restores of a process of {args.size} MiB', '',
            f'Medians of {args.rounds} alternating rounds; the ratio is the median of the rounds\' own ratios. What zones hold is '
            'read past the page cache, what files hold is in it unless it says cold.', '']
    for title, found in results.items():
        text += [f'## {title}', '', *table(found), '']
    print('\n'.join(text))
    if args.report:
        kept.keep(Path(args.report), 'make bench-migration', {
            kept.name_of(title, who, key): statistics.median(r[key] for r in some)
            for title, found in results.items() for who, some in found.items() for key in some[0]}, results, '\n'.join(text))
    return 0


def ctypes_subreaper():
    import ctypes
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0, 0)      # PR_SET_CHILD_SUBREAPER: restored processes end as our children


if __name__ == '__main__':
    sys.exit(main())
