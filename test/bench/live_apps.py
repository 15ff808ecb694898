#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
live_apps: what a dump that leaves them running costs Redis and PostgreSQL: throughput, latencies and the longest time without
an answer, in a live dump, a plain one, one of stock CRIU, and without a dump. These take turns on the same server under the
same load. Each latency is kept (redisload.c; pgbench -l).

Loads: `full` sends the next request when the last one is answered; that tells the throughput. `rate` sends so many a
second as are half of that; a latency counts from when the request was due, so a freeze is in all that had to wait.
It never judges times; it fails if a dump fails.
"""
import argparse
import array
import bisect
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import freeze               # noqa: E402
import freeze_steps         # noqa: E402
from freeze import compare, syncfs, ztproto         # noqa: E402
import ztapps               # noqa: E402
import ztlib                # noqa: E402
from ztlib import Failed, Skipped       # noqa: E402

CONNECTIONS = 16
VALUE_BYTES = 1000
KEY_BYTES = 1350            # memory of a key with all overhead
BEFORE_S, AFTER_S = 1.0, 0.3
NONE_S = 2.0                # a turn without a dump
KEYS = [('per_s', 'per second', 0), ('p50_ms', 'p50, ms', 2), ('p99_ms', 'p99, ms', 2), ('p999_ms', 'p99.9, ms', 1), ('max_ms', 'longest, ms', 1),
        ('gap_ms', 'no answer for, ms', 1), ('frozen_ms', "criu's frozen time, ms", 1), ('wall_s', 'turn, s', 2)]


class RedisLoad:
    """A Redis of that many MiB."""
    unit = 'requests'

    def __init__(self, mib, place):
        self.name, self.mib, self.place = f'redis, {mib} MiB', mib, place
        self.app = ztapps.Redis(place)
        self.keys = mib * 2**20 // KEY_BYTES

    def start(self):
        self.app.start()
        self.app.cli('DEBUG', 'POPULATE', self.keys, 'key', VALUE_BYTES)

    def begin(self, rate, seconds):
        self.file = Path('/dev/shm') / f'redisload-{os.getpid()}'
        command = [compare.BUILD / 'redisload', self.app.port, CONNECTIONS, rate, self.keys, VALUE_BYTES, self.file]
        self.client = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL)

    def end(self):
        """[(when due, when answered)] of all requests, in ns of the monotonic clock, in the order of answers."""
        if self.client.poll() is not None:
            raise Failed('the client of Redis ended early')
        self.client.send_signal(signal.SIGTERM)
        if self.client.wait():
            raise Failed('the client of Redis failed')
        words = array.array('Q')
        with open(self.file, 'rb') as f:
            words.fromfile(f, 1)
            nr = words.pop()
            words.fromfile(f, 2 * nr)
        self.file.unlink()
        return list(zip(words[::2], words[1::2]))


class PostgresLoad:
    """A PostgreSQL with pgbench's tables; pgbench is the load."""
    unit = 'transactions'

    def __init__(self, buffers_mib, scale, place):
        self.name, self.place = f'postgres, {buffers_mib} MiB of shared buffers', place
        self.app = ztapps.Postgres(place)
        self.app.buffers_mib, self.app.scale = buffers_mib, scale
        self.mib = 600 + buffers_mib

    def start(self):
        self.app.start()
        # reads the tables into the buffers
        self.app.sql('select sum(abalance), min(filler) from pgbench_accounts', 'bench')

    def begin(self, rate, seconds):
        for old in self.place.glob('pgbench_log*'):
            old.unlink()
        command = ['pgbench', *self.app.to, '-n', '-c', self.app.clients_nr, '-T', seconds, '-l', *(['-R', rate] if rate else []), 'bench']
        self.client = subprocess.Popen(list(map(str, command)), cwd=self.place, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        if self.client.poll() is not None:
            raise Failed('the dump took longer than the load: --seconds')
        if self.client.wait():
            raise Failed('pgbench failed')
        log = next(self.place.glob('pgbench_log*')).read_text()
        offset_ns = time.monotonic_ns() - time.time_ns()
        found = []
        for line in log.splitlines():
            words = line.split()
            done_ns = (int(words[4]) * 1000000 + int(words[5])) * 1000 + offset_ns
            found.append((done_ns - int(words[2]) * 1000, done_ns))
        return sorted(found, key=lambda r: r[1])


def figures(samples, begin_ns, end_ns):
    """Figures of the requests in the window; @samples are in the order of answers. A request that was waiting at the
    window's end counts with all of its latency."""
    times = [done for _, done in samples]
    first, last = bisect.bisect_left(times, begin_ns), bisect.bisect_left(times, end_ns)
    if last - first < 20 or not first or last == len(times):
        raise Failed(f'{last - first} answers in a whole turn')
    latency = sorted(done - due for due, done in samples[first:] if due < end_ns)
    times = times[first - 1:last + 1]
    of = lambda share: latency[min(len(latency) - 1, int(len(latency) * share))] / 1e6      # noqa: E731
    return {'per_s': (last - first) / ((end_ns - begin_ns) / 1e9), 'p50_ms': of(0.5), 'p99_ms': of(0.99), 'p999_ms': of(0.999),
            'max_ms': latency[-1] / 1e6, 'gap_ms': max(b - a for a, b in zip(times, times[1:])) / 1e6, 'answers': last - first}


def dump(bench, system, pid):
    """criu's frozen time, ms."""
    for name in ('dump.log', 'stats-dump'):
        (bench.dir / name).unlink(missing_ok=True)
    command = [system.criu, 'dump', '--no-default-config', '--leave-running', '--tcp-close', '-D', system.images, '-W', bench.dir,
               '-o', 'dump.log', '-v4', '-t', pid]
    for name, *value in system.options:
        command += [f'--{name}', *value]
    done = subprocess.run(list(map(str, command)), env=bench.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failed(f'{system.name}: exit {done.returncode}: {ztlib.log_errors(bench.dir / "dump.log")} {done.stderr.strip()[-300:]}')


def turn(bench, load, arm, rate, seconds):
    system = next((s for s in bench.systems if s.name == arm), None)
    if system:
        system.images.mkdir()
    syncfs(bench.dir)
    load.begin(rate, seconds)
    time.sleep(BEFORE_S)
    begin = time.monotonic_ns()
    if system:
        dump(bench, system, load.app.pid)
    else:
        time.sleep(NONE_S)
    end = time.monotonic_ns()
    time.sleep(AFTER_S)
    found = figures(load.end(), begin, end)
    found['wall_s'] = (end - begin) / 1e9
    if system:
        found['steps_ms'] = freeze_steps.of_log((bench.dir / 'dump.log').read_text(errors='replace'))
        found['frozen_ms'] = ztproto.dump_stats(bench.dir / 'stats-dump')[2] / 1000
        system.remove()
    return found


def case(bench, load, args):
    """{(mode, arm): [figures of each round]}"""
    arms = ['none', *(s.name for s in bench.systems)]
    found = {}
    rate = 0
    for mode in args.modes:
        if mode == 'rate':
            known = found.get(('full', 'none')) or [turn(bench, load, 'none', 0, args.seconds)]
            rate = args.rate or int(statistics.median(f['per_s'] for f in known) / 2)
        for number in range(args.n + 1):
            for arm in arms[number % len(arms):] + arms[:number % len(arms)]:
                figure = turn(bench, load, arm, rate if mode == 'rate' else 0, args.seconds)
                if number:          # the first round is not counted
                    found.setdefault((mode, arm), []).append({**figure, 'rate': rate if mode == 'rate' else 0})
    return found


def table(name, unit, found):
    yield f'## {name}'
    for mode in dict.fromkeys(m for m, _ in found):
        arms = [a for m, a in found if m == mode]
        base = statistics.median(f['per_s'] for f in found[mode, 'none'])
        head = f'{found[mode, "none"][0]["rate"]} {unit} a second fall due' if mode == 'rate' else f'{unit}, each after the answer to the last'
        yield from ['', f'`{mode}`: {head}', '', '| | of none | ' + ' | '.join(title for _, title, _ in KEYS) + ' |',
                    '| ' + ' | '.join(['---'] * (len(KEYS) + 2)) + ' |']
        for arm in arms:
            rounds = found[mode, arm]
            cells = []
            for key, _, digits in KEYS:
                had = [f[key] for f in rounds if key in f]
                worst = f' ({max(had):,.{digits}f})' if had and key in ('gap_ms', 'max_ms') else ''
                cells.append(f'{statistics.median(had):,.{digits}f}{worst}' if had else '')
            share = statistics.median(f['per_s'] for f in rounds) / base
            yield f'| {arm} | {100 * share:.0f} % | ' + ' | '.join(cells) + ' |'
    yield ''


def at_most(options, mibps):
    return [*((name, *value) for name, *value in options if name != 'zns-qos'), ('zns-qos', str(mibps)), ('zns-qos-max', str(mibps))]


def steps(cases):
    """Durations of the steps of a freeze, from criu's log."""
    for name, found in cases:
        names = [a for m, a in found if m == 'full' and a != 'none']
        yield from ['', f'## Freeze: {name}', '']
        yield from freeze_steps.table({a: [f['steps_ms'] for f in found['full', a]] for a in names}, names)


def loads(args, directory):
    for mib in args.redis:
        yield lambda place, mib=mib: RedisLoad(mib, place)
    for buffers_mib in args.postgres:
        yield lambda place, b=buffers_mib: PostgresLoad(b, args.scale, place)


def main():
    numbers = lambda s: [int(p) for p in s.split(',') if p and int(p)]      # noqa: E731
    parser = argparse.ArgumentParser(description='What dumps cost Redis and PostgreSQL that run on.')
    parser.add_argument('-n', type=int, default=5, metavar='N', help='rounds (default 5), after one that is not counted')
    parser.add_argument('--redis', type=numbers, default=[400], metavar='MIB,…', help="Redis's memory (default 400; 0: none)")
    parser.add_argument('--postgres', type=numbers, default=[16, 256], metavar='MIB,…', help='shared_buffers (default 16,256; 0: none)')
    parser.add_argument('--scale', type=int, default=15, metavar='N', help="pgbench's scale (default 15, some 220 MiB)")
    parser.add_argument('--modes', type=lambda s: s.split(','), default=['full', 'rate'], metavar='MODE,…', help='full, rate (default both)')
    parser.add_argument('--rate', type=int, default=0, metavar='N', help='so many a second for `rate` (default: half of `full`)')
    parser.add_argument('--paced', type=numbers, default=[], metavar='MIBPS,…', help='one more arm each: live, with --zns-qos-max')
    parser.add_argument('--seconds', type=int, default=8, metavar='S', help='of load in one turn of PostgreSQL (default 8)')
    parser.add_argument('--no-stock', action='store_true', help='without stock CRIU')
    parser.add_argument('--report', metavar='DIR', help='write live-apps.md and live-apps.json there')
    parser.add_argument('--dir', metavar='DIR', default=compare.BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--bin', metavar='DIR', default=compare.REPO / 'build' / 'bin', help='our programs (default build/bin)')
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('live_apps.py: this needs root')
    args.also = []
    compare.become_subreaper()
    compare.BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run(['gcc', '-O2', '-Wall', '-Wextra', '-D_GNU_SOURCE', '-o', compare.BUILD / 'redisload', HERE / 'redisload.c'], check=True)
    done, cases, text, facts = [], [], ['# What dumps cost programs that run on', ''], compare.machine_facts(args.dir)
    for make in loads(args, args.dir):
        directory = Path(tempfile.mkdtemp(prefix='live-apps-', dir=args.dir))
        place = directory / 'app'
        place.mkdir(mode=0o755)
        load = make(place)
        try:
            args.sizes = [load.mib]
            bench = freeze.Bench(args, directory)
            for mibps in args.paced:
                plain = next(s for s in bench.systems if s.name == 'plain')
                bench.systems.append(freeze.System(bench, f'live-{mibps}', plain.criu, [*at_most(plain.options, mibps), ('zns-live',)]))
            load.start()
            found = case(bench, load, args)
            done.append((load.name, found))
            cases.append({'name': load.name, 'figures': {f'{m}/{a}': f for (m, a), f in found.items()}})
            text += table(load.name, load.unit, found)
            print('\n'.join(table(load.name, load.unit, found)), file=sys.stderr, flush=True)
        except Skipped as e:
            text.append(f'{load.name}: skipped, {e}')
        except (Failed, OSError, subprocess.SubprocessError) as e:
            sys.exit(f'live_apps.py: {load.name}: {e}')
        finally:
            load.app.end()
            compare.end_children()
            shutil.rmtree(directory, ignore_errors=True)
    text += [f'Medians of {args.n} rounds, in parentheses the worst; the arms take turns on the same server, which runs on, as do its '
             f'clients. {facts["cores"]} cores, which server, clients and dump share; kernel {facts["kernel"]}, load '
             f'{facts["load_at_start"]:.1f} at the start. PostgreSQL\'s files are in RAM. Stock dumps into files in the page cache; ours is '
             'durable on return.', *steps([d for d in done if ('full', 'none') in d[1]]), '']
    print('\n'.join(text))
    if args.report:
        target = Path(args.report)
        target.mkdir(parents=True, exist_ok=True)
        (target / 'live-apps.md').write_text('\n'.join(text))
        (target / 'live-apps.json').write_text(json.dumps({'machine': facts, 'rounds': args.n, 'cases': cases}, indent=1) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
