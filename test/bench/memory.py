#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memory: what a memory context costs. Faults from zones beside major faults of a mapped file on the same disk, alternating
in one process; and so in turns with it faults that another process answers by the fewest calls there can be; eviction and
reading back, MiB/s; the CPU of pagers whose programs are idle; how long a thread stands still beside so many MiB/s that go out; Redis
under a budget of half of its memory. It never judges times; it fails if a command fails or a page is wrong.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
REDIS_KEYS, REDIS_RATE = 100000, 800


class Failed(Exception):
    pass


def quantile(values, q):
    values = sorted(values)
    return values[min(int(len(values) * q), len(values) - 1)] if values else 0


class Bench:
    def __init__(self, args, directory):
        self.args, self.dir, self.children = args, directory, []
        self.stood, self.latencies = [], {}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ZNS')}
        self.env.update(ZNS_CONFIG=str(directory / 'etc'), ZNS_RUN=str(directory / 'run'))
        # contexts have at most half of the zones, and each idle context writes up to four
        self.ctl('create', f'emu:{directory}/dev.emu', '--zones', '256', '--zone-size', '32M')

    def ctl(self, *words, ok=True):
        done = subprocess.run([self.args.bin / 'znsctl', *map(str, words)], env=self.env, capture_output=True, text=True, check=False)
        if ok and done.returncode:
            raise Failed(f'znsctl {" ".join(map(str, words))}: {done.stderr.strip()}')
        return done.stdout

    def status(self, pid):
        return json.loads(self.ctl('memory', 'status', f'pid-{pid}', '--json'))

    def start(self, *words):
        child = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.dir)
        self.children.append(child)
        return child

    @staticmethod
    def ask(child, text):
        child.stdin.write(text + '\n')
        child.stdin.flush()
        answer = child.stdout.readline().split()
        if not answer or answer[0] not in (text.split()[0], 'touch'):
            raise Failed(f'{text}: {" ".join(answer) or "the program ended"}')
        return answer[1:]

    def all_out(self, child):
        """Evicts all of the program's memory, and stops eviction then. Returns seconds and MiB."""
        begin, before = time.monotonic(), self.status(child.pid)['evicted_units']
        self.ctl('memory', 'limit', f'pid-{child.pid}', '--dram', '2M')
        while self.status(child.pid)['evicted'] < (self.args.mib - 2) << 20:
            time.sleep(0.05)
            if time.monotonic() - begin > 300:
                raise Failed('its memory does not go out')
        took, units = time.monotonic() - begin, self.status(child.pid)['evicted_units'] - before
        self.ctl('memory', 'limit', f'pid-{child.pid}', '--dram', '64G')
        time.sleep(0.5)
        return took, units / 16

    def faults(self):
        """One round: alternating touches, a walk, several threads."""
        child, found = self.program, {}
        took, mib = self.all_out(child)
        found['evict_mibps'] = mib / took
        before = self.reads()
        found['anon_us'], found['file_us'] = self.touch(child)
        time.sleep(1.2)
        found['read_kib_per_fault'] = (self.reads() - before) / 1024 / self.args.touches
        found['pager_us'] = self.status(child.pid).get('fault_ns_p50', 0) / 1e3
        self.all_out(child)
        before = self.reads()
        units, ns = map(int, self.ask(child, f'walk {self.args.mib * 8}'))
        time.sleep(1.2)
        found['walk_mibps'] = units / 16 / (ns / 1e9)
        found['read_kib_per_unit'] = (self.reads() - before) / 1024 / units
        units, ns = map(int, self.ask(child, f'race {self.args.touches} 8'))
        found['race_per_s'] = units / (ns / 1e9)
        found['bare_us'], found['bare_file_us'] = self.touch(self.bare)
        return found

    def touch(self, child):
        """Microseconds of its faults, and of the major faults between them."""
        both = ' '.join(self.ask(child, f'touch {self.args.touches} {time.monotonic_ns() % 100000}')).split('/')
        return [[int(ns) / 1e3 for ns in times.split()] for times in both]

    def reads(self):
        """Bytes that the context's pager has read from the device."""
        leases = json.loads(self.ctl('status', '--json'))
        found = [n['read'] for n in walk_json(leases) if isinstance(n, dict) and 'dead' in n and 'read' in n]
        if len(found) != 1:
            raise Failed('znsctl status shows no memory context')
        return found[0]

    def idle(self):
        """CPU of all our processes beside programs that sleep, as parts of a core."""
        sleepers = [self.start(self.args.bin.parent / 'bench' / 'memfault', 4, self.dir / f'idle-{i}') for i in range(self.args.contexts)]
        for child in sleepers:
            child.stdout.readline()
            self.ctl('memory', 'attach', child.pid, '--dram', '2M')
        begin = time.monotonic()
        for child in sleepers:      # the zones that may be open are passed around: some contexts wait for half a minute
            while self.status(child.pid)['resident'] > 2 << 20:
                time.sleep(0.1)
                if time.monotonic() - begin > 300:
                    raise Failed('an idle program keeps more than its budget')
        time.sleep(self.args.settle)
        before, begin = self.cpu(), time.monotonic()
        time.sleep(self.args.idle)
        took, after = time.monotonic() - begin, self.cpu()
        found = {name: (after.get(name, 0) - before.get(name, 0)) / took / 1e9 for name in after}
        for child in sleepers:
            self.ctl('memory', 'detach', child.pid)
            self.stop(child)
        return found

    def stand(self):
        """Under a budget of half of its memory, for each rate of writes in MiB/s: how much of the time a thread was
        interrupted (per cent), and longest (ms)."""
        child = self.program
        self.ctl('memory', 'limit', f'pid-{child.pid}', '--dram', f'{self.args.mib // 2}M')
        found = {}
        for rate in self.args.stand:
            self.ask(child, f'stand {rate} 2')      # a first run, until it writes at this rate
            before = self.status(child.pid)
            away, of, longest, _ = map(int, self.ask(child, f'stand {rate} {self.args.seconds}'))
            now = self.status(child.pid)
            stops, stopped = (now[key] - before[key] for key in ('stops', 'stopped_ns'))
            found[rate] = {'away_pct': away / of * 100, 'longest_ms': longest / 1e6, 'stopped_pct': stopped / of * 100,
                           'stop_ms': stopped / 1e6 / max(stops, 1),
                           'evicted_mibps': (now['evicted_units'] - before['evicted_units']) / 16 / (of / 1e9)}
        self.ctl('memory', 'limit', f'pid-{child.pid}', '--dram', '64G')
        return found

    def redis(self):
        """Latencies in ms of half GET, half SET at a constant rate: without a context, then with half of its memory."""
        port, file = 20000 + os.getpid() % 10000, self.dir / 'latencies'
        server = subprocess.Popen(['redis-server', '--port', str(port), '--save', '', '--dir', self.dir], stdout=subprocess.DEVNULL)
        self.children.append(server)
        cli = ['redis-cli', '-p', str(port)]
        while subprocess.run([*cli, 'PING'], capture_output=True, check=False).returncode:
            time.sleep(0.1)
        subprocess.run([*cli, 'DEBUG', 'POPULATE', str(REDIS_KEYS), 'key', '512'], check=True, stdout=subprocess.DEVNULL)

        def load():
            client = subprocess.Popen([self.args.bin.parent / 'bench' / 'redisload', str(port), '4', str(REDIS_RATE), str(REDIS_KEYS), '512', file])
            time.sleep(self.args.seconds)
            client.terminate()
            client.wait()
            data = file.read_bytes()
            nr = struct.unpack_from('Q', data)[0]
            return [(done - due) / 1e6 for due, done in struct.iter_unpack('QQ', data[8:8 + 16 * nr])]
        alone = load()
        resident = int(re.search(r'VmRSS:\s+(\d+)', Path(f'/proc/{server.pid}/status').read_text()).group(1)) << 10
        self.ctl('memory', 'attach', server.pid, '--dram', resident // 2)
        load()      # until its memory has been evicted once
        before = self.status(server.pid)['evicted_units']
        under = load()
        mib = (self.status(server.pid)['evicted_units'] - before) / 16 / self.args.seconds
        self.ctl('memory', 'detach', server.pid)
        server.terminate()
        server.wait()
        self.children.remove(server)
        return {'alone': alone, 'under': under, 'evicted_mibps': mib}

    def cpu(self):
        """CPU nanoseconds so far, by program name."""
        found = {}
        for proc in Path('/proc').glob('[0-9]*'):
            try:
                mine = f'ZNS_RUN={self.dir}/run'.encode() in (proc / 'environ').read_bytes().split(b'\0')
                name = (proc / 'comm').read_text().strip()
                if not mine and name != 'memfault':
                    continue
                for task in (proc / 'task').iterdir():
                    found[name] = found.get(name, 0) + int((task / 'schedstat').read_text().split()[0])
            except OSError:
                pass
        return found

    def stop(self, child):
        child.stdin.close()
        child.wait()
        self.children.remove(child)

    def run(self):
        rounds = []
        if self.args.rounds:
            self.program = self.start(self.args.bin.parent / 'bench' / 'memfault', self.args.mib, self.dir / 'mapped')
            self.bare = self.start(self.args.bin.parent / 'bench' / 'memfault', self.args.mib, self.dir / 'bare', 'bare')
            for child in (self.program, self.bare):
                if child.stdout.readline() != 'ready\n':
                    raise Failed('memfault did not begin')
            self.ctl('memory', 'attach', self.program.pid, '--dram', '64G', '--no-predict',    # faults one at a time
                     *(['--encrypt'] if self.args.encrypt else []))
            rounds = [self.faults() for _ in range(self.args.rounds)]
            self.stood = [self.stand() for _ in range(self.args.rounds)]
            if self.ask(self.program, 'check') != ['0']:
                raise Failed('a page is wrong')
            self.status_at_end = self.status(self.program.pid)
            self.ctl('memory', 'detach', self.program.pid)
            self.stop(self.program)
            self.stop(self.bare)
        self.latencies = self.redis() if self.args.redis else {}
        return rounds, self.idle() if self.args.contexts else {}

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()
        time.sleep(0.5)
        for proc in Path('/proc').glob('[0-9]*'):
            try:
                if f'ZNS_RUN={self.dir}/run'.encode() in (proc / 'environ').read_bytes().split(b'\0'):
                    os.kill(int(proc.name), signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)


def walk_json(node):
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk_json(child)


def table(rounds, idle, args, bench):
    lines = ['| | |', '| --- | --- |']
    found = {}

    def row(key, title, value, digits):
        found[key] = value
        lines.append(f'| {title} | {value:.{digits}f} |')
    if rounds:
        anon, file = [t for r in rounds for t in r['anon_us']], [t for r in rounds for t in r['file_us']]
        row('fault_p50_us', 'fault from zones, p50, µs', quantile(anon, .5), 0)
        row('major_p50_us', 'major fault of a mapped file, p50, µs', quantile(file, .5), 0)
        row('bare_p50_us', 'the same page from that file, by another process and three calls, p50, µs',
            quantile([t for r in rounds for t in r['bare_us']], .5), 0)

        def ratio(key, title, a, b):
            row(key, f'{title}, p50, median of {len(rounds)} rounds',
                statistics.median(quantile(r[a], .5) / quantile(r[b], .5) for r in rounds), 2)
        ratio('ratio', 'fault from zones / major fault', 'anon_us', 'file_us')
        ratio('bare_ratio', 'three calls / major fault', 'bare_us', 'bare_file_us')
        row('fault_p99_us', 'fault from zones, p99, µs', quantile(anon, .99), 0)
        row('major_p99_us', 'major fault, p99, µs', quantile(file, .99), 0)
        for key, title, digits in (('pager_us', 'from the message to the wake, p50, µs', 0),
                                   ('read_kib_per_fault', 'read from the device for a single fault, KiB', 0),
                                   ('walk_mibps', 'all pages of neighbouring units touched in order, MiB/s', 0),
                                   ('read_kib_per_unit', 'read from the device for such a unit, KiB', 0),
                                   ('race_per_s', 'units a second, 8 threads that fault', 0),
                                   ('evict_mibps', 'eviction, MiB/s', 0)):
            row(key, title, statistics.median(r[key] for r in rounds), digits)
    for rate in args.stand if bench.stood else ():
        for key, title, digits in (('stopped_pct', 'the pager has all threads stand still, % of the time', 2), ('stop_ms', 'one such stop, ms', 2),
                                   ('away_pct', 'a thread that only looks at the clock does not run, % of the time', 2),
                                   ('longest_ms', 'its longest time, ms', 2), ('evicted_mibps', 'went out, MiB/s', 1)):
            row(f'stand_{rate}_{key}', f'{rate} MiB/s written: {title}, median of {len(bench.stood)} rounds',
                statistics.median(r[rate][key] for r in bench.stood), digits)
    for key, title in (('alone', 'no context'), ('under', 'budget of half of its memory')) if bench.latencies else ():
        for q in (50, 99):
            row(f'redis_{key}_p{q}_ms', f'Redis, {REDIS_RATE} requests a second, {title}, p{q}, ms', quantile(bench.latencies[key], q / 100), 2)
    if bench.latencies:
        row('redis_evicted_mibps', 'went out meanwhile, MiB/s', bench.latencies['evicted_mibps'], 1)
    for name, part in sorted(idle.items()):
        row(f'idle_{name}', f'{name}, {args.contexts} idle contexts, % of a core', part * 100, 2)
    return '\n'.join(lines) + '\n', found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--encrypt', action='store_true', help='what goes to zones')
    parser.add_argument('--rounds', type=int, default=5, metavar='N', help='of faults (default 5; 0: none)')
    parser.add_argument('--mib', type=int, default=128, help='memory of the program (default 128)')
    parser.add_argument('--touches', type=int, default=400, metavar='N', help='faults of a round (default 400)')
    parser.add_argument('--contexts', type=int, default=25, metavar='N', help='idle ones (default 25; 0: none)')
    parser.add_argument('--idle', type=int, default=20, metavar='S', help='seconds that they are watched (default 20)')
    parser.add_argument('--settle', type=int, default=10, metavar='S', help='seconds before that (default 10)')
    parser.add_argument('--stand', type=lambda text: [int(n) for n in text.split(',')], default=[0, 10, 50, 100], metavar='RATES',
                        help='MiB/s beside which a thread may stand still (default 0,10,50,100)')
    parser.add_argument('--seconds', type=int, default=5, metavar='S', help='for each of these, and for each load of Redis (default 5)')
    parser.add_argument('--no-redis', dest='redis', action='store_false', help='no Redis')
    parser.add_argument('--report', metavar='DIR', help='write memory.md and memory.json there')
    parser.add_argument('--dir', metavar='DIR', default=os.environ.get('TMPDIR', '/var/tmp'), help='where the device and the file go')
    parser.add_argument('--bin', metavar='DIR', type=Path, default=REPO / 'build' / 'bin', help='our programs (default build/bin)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('memory.py: this needs root')
    bench = Bench(args, Path(tempfile.mkdtemp(prefix='bench-memory-', dir=args.dir)))
    try:
        rounds, idle = bench.run()
    except Failed as error:
        sys.exit(f'memory.py: {error}')
    finally:
        bench.close()
    text, found = table(rounds, idle, args, bench)
    print(text, end='')
    if args.report:
        report = Path(args.report)
        report.mkdir(parents=True, exist_ok=True)
        (report / 'memory.md').write_text(text)
        (report / 'memory.json').write_text(json.dumps({'table': found, 'rounds': rounds, 'idle': idle}, indent=1))


if __name__ == '__main__':
    main()
