#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
freeze: how long the tasks stand still in a dump that leaves them running, by size, beside stock CRIU.

The subject (gap.c) has private memory, a thread that writes to random pages, and a thread that keeps its own longest
gap. Shapes: one process, a tree of 20, a container under runc. Systems take turns on the same subject: stock CRIU into
a directory, ours into zones, ours live. A system that this criu does not have is left out, in one line. It never judges
times; it fails if a dump fails.
"""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / 'papers'), str(HERE.parents[1] / 'test' / 'zonetests')]
import svg                  # noqa: E402
import compare              # noqa: E402
import freeze_steps         # noqa: E402
import kept                 # noqa: E402
import ztproto              # noqa: E402
from compare import BUILD, QOS, REPO, ZONE_MIB, Failed, syncfs        # noqa: E402

TREE = 20
SHAPES = {'process': 1, 'tree': TREE, 'container': 1}
SIZES_MIB = [16, 256, 1024, 4096]
RATES = [0, 50000]
MAX_PROCESSES = 64          # of gap.c
SETTLE_S = 0.3              # by then the thaw is over; a gap that has not ended would not count
RT_PERIOD_US, RT_RUNTIME_US = 1000000, 400000       # with less, a slow machine throttles the thread of the clock
RT_FILE = Path('/sys/fs/cgroup/cpu/cpu.rt_runtime_us')
KEYS = [('gap_ms', 'gap inside, ms', 1), ('frozen_ms', "criu's frozen time, ms", 1), ('wall_s', 'dump, s', 2)]


# ---- subjects of the dumps ----

class Gaps:
    """The figures that gap.c writes into its file."""

    def __init__(self, path, processes):
        self.path, self.processes = path, processes

    def words(self):
        data = self.path.read_bytes() if self.path.exists() else b''
        return struct.unpack_from(f'{3 + MAX_PROCESSES}Q', data) if len(data) >= 8 * (3 + MAX_PROCESSES) else None

    def wait_ready(self):
        end = time.monotonic() + 300
        while time.monotonic() < end:
            words = self.words()
            if words and words[0] == self.processes:
                return
            time.sleep(0.05)
        raise Failed('the subject does not come up')

    def reset(self):
        with open(self.path, 'r+b') as f:
            f.seek(24)
            f.write(bytes(8 * MAX_PROCESSES))

    def longest_ms(self):
        return max(self.words()[3:]) / 1e6

    def written(self):
        return self.words()[1]

    def realtime(self):
        return self.words()[2]


class Process:
    """gap.c on the host."""

    def __init__(self, bench, mib, rate, processes):
        self.bench = bench
        path = bench.dir / 'gaps'
        path.unlink(missing_ok=True)
        program = str(BUILD / 'gap')
        null = [(os.POSIX_SPAWN_OPEN, fd, '/dev/null', os.O_RDWR, 0) for fd in (0, 1, 2)]
        self.pid = os.posix_spawn(program, [program, str(mib), str(rate), str(processes), str(path)], {},
                                  file_actions=null, setsid=True)
        self.gaps = Gaps(path, processes)
        self.gaps.wait_ready()

    def dump(self, system):
        command = [system.criu, 'dump', '--no-default-config', '--leave-running', '-D', system.images, '-W', self.bench.dir,
                   '-o', 'dump.log', '-v4', '-t', self.pid]
        for name, *value in system.options:
            command += [f'--{name}', *value]
        return command, self.bench.env

    def end(self):
        compare.end_children()


class Container:
    """gap.c as the first process of a container of runc's, with what `runc spec` gives one."""
    ID = 'zns-bench-freeze'

    def __init__(self, bench, mib, rate, processes):
        self.bench, self.bundle = bench, bench.dir / 'bundle'
        shutil.rmtree(self.bundle, ignore_errors=True)
        root = self.bundle / 'rootfs'
        for name in ('proc', 'sys', 'dev', 'tmp'):
            (root / name).mkdir(parents=True)
        shutil.copy(BUILD / 'gap', root / 'gap')
        self.runc('spec', cwd=self.bundle)
        spec = json.loads((self.bundle / 'config.json').read_text())
        spec['process']['terminal'] = False
        spec['process']['args'] = ['/gap', str(mib), str(rate), str(processes), '/gaps']
        spec['root']['readonly'] = False
        for caps in spec['process']['capabilities'].values():
            caps.append('CAP_SYS_NICE')
        if RT_FILE.exists():        # else a container's threads get no real-time priority with CONFIG_RT_GROUP_SCHED
            spec['linux']['resources']['cpu'] = {'realtimePeriod': RT_PERIOD_US, 'realtimeRuntime': RT_RUNTIME_US}
        (self.bundle / 'config.json').write_text(json.dumps(spec))
        self.runc('run', '--detach', '--bundle', self.bundle, self.ID)
        self.gaps = Gaps(root / 'gaps', processes)
        try:
            self.gaps.wait_ready()
        except Failed:
            self.end()
            raise

    def runc(self, *args, cwd=None, check=True):
        said = self.bench.dir / 'runc.log'      # not its standard error, which the container inherits
        said.write_text('')
        done = subprocess.run(['runc', '--root', str(self.bench.dir / 'runc'), '--log', str(said), *map(str, args)], cwd=cwd,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if check and done.returncode:
            raise Failed(f'runc {" ".join(map(str, args))}: exit {done.returncode}: {said.read_text(errors="replace")[-500:]}')

    def dump(self, system):
        env = dict(self.bench.env, PATH=f'{system.criu.parent}:{self.bench.env["PATH"]}')
        if system.options:
            conf = self.bench.dir / 'criu.conf'
            conf.write_text(''.join(' '.join(option) + '\n' for option in system.options))
            env['CRIU_CONFIG_FILE'] = str(conf)
        return ['runc', '--root', self.bench.dir / 'runc', 'checkpoint', '--leave-running', '--image-path', system.images,
                '--work-path', self.bench.dir, self.ID], env

    def end(self):
        self.runc('kill', self.ID, 'KILL', check=False)
        share = RT_FILE.parent / self.ID / RT_FILE.name
        for _ in range(100):
            try:        # a removed group keeps its share of the real time for a while, and the next container finds none left
                share.write_text('0')
            except FileNotFoundError:
                pass
            except OSError:
                time.sleep(0.05)
                continue
            self.runc('delete', '--force', self.ID, check=False)
            if not (self.bench.dir / 'runc' / self.ID).exists():
                return
            time.sleep(0.05)
        raise Failed(f'runc cannot delete the container {self.ID}')


# ---- dump programs ----

class System:
    """@options: [(name, value…)] for criu."""

    def __init__(self, bench, name, criu, options):
        self.bench, self.name, self.criu, self.options = bench, name, criu, options
        self.images = bench.dir / f'images-{name}'

    def remove(self):
        shutil.rmtree(self.images)
        if self.options:
            bench = self.bench
            done = subprocess.run([bench.znsctl, 'rm', '--all', '--dev', bench.device], env=bench.env, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True)
            if done.returncode:
                raise Failed(f'znsctl rm --all: {done.stderr.strip()}')


class Bench:
    def __init__(self, args, directory):
        self.dir = directory
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ZNS') and k != 'CRIU_CONFIG_FILE'}
        self.env.update(ZNS_CONFIG=str(directory / 'etc'), ZNS_RUN=str(directory / 'run'))
        bins = Path(args.bin).resolve()
        self.znsctl, self.device = bins / 'znsctl', f'emu:{directory}/device'
        zones = max(32, 3 * max(args.sizes) // ZONE_MIB + 16)
        subprocess.run([self.znsctl, 'create', self.device, '--channels', '4', '--ways', '2', '--zone-size', f'{ZONE_MIB}M',
                        '--zones', str(zones), '--timing', 'off'], env=self.env, check=True, stdout=subprocess.DEVNULL)
        into = [('zns-dev', self.device), ('zns-qos', QOS), ('zns-container', 'bench')]
        self.systems = [System(self, 'plain', bins / 'criu', [*into, ('zns-live=no',)])]
        if not args.no_stock:
            self.systems.insert(0, System(self, 'stock', compare.stock_criu(args), []))
        for name, path in (also.split('=', 1) for also in args.also):
            self.systems.append(System(self, name, Path(path).resolve() / 'criu', into))
        if self.knows_live(bins / 'criu'):
            self.systems.append(System(self, 'live', bins / 'criu', [*into, ('zns-live',)]))
        else:
            print('live: skipped, this criu does not know --zns-live', flush=True)

    def knows_live(self, criu):
        """Does criu know this option? An unknown one ends criu before it does anything."""
        done = subprocess.run([criu, 'dump', '--no-default-config', '--zns-live', '-t', '0', '-D', self.dir / 'nothing'],
                              env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return 'unrecognized option' not in done.stderr

    def one(self, subject, system):
        """{key: figure} of one dump."""
        for name in ('dump.log', 'stats-dump'):
            (self.dir / name).unlink(missing_ok=True)
        system.images.mkdir()
        syncfs(self.dir)
        command, env = subject.dump(system)
        subject.gaps.reset()
        time.sleep(SETTLE_S)
        before = subject.gaps.longest_ms()
        subject.gaps.reset()
        written, start = subject.gaps.written(), time.monotonic()
        done = subprocess.run(list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        wall = time.monotonic() - start
        if done.returncode:
            log = self.dir / 'dump.log'
            lines = [l for l in log.read_text(errors='replace').splitlines() if 'Error' in l] if log.exists() else []
            raise Failed(f'{system.name}: {" ".join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()[-300:]} '
                         f'{" | ".join(lines[-4:])}')
        time.sleep(SETTLE_S)
        stats = ztproto.dump_stats(self.dir / 'stats-dump')
        steps = freeze_steps.of_log((self.dir / 'dump.log').read_text(errors='replace'))
        found = {'steps_ms': steps, 'gap_ms': subject.gaps.longest_ms(), 'gap_before_ms': before, 'freezing_ms': stats[1] / 1000,
                 'frozen_ms': stats[2] / 1000, 'wall_s': wall, 'pages_written': subject.gaps.written() - written}
        system.remove()
        return found

    def case(self, shape, mib, rate, rounds):
        """{system: [figures of each round]}"""
        found = {system.name: [] for system in self.systems}
        subject = (Container if shape == 'container' else Process)(self, mib, rate, SHAPES[shape])
        try:
            if subject.gaps.realtime() < SHAPES[shape]:
                print(f'{shape}: its clocks have no real-time priority here, other work on the machine shows as gaps', flush=True)
            for number in range(rounds + 1):
                turn = number % len(self.systems)
                for system in self.systems[turn:] + self.systems[:turn]:
                    figures = self.one(subject, system)
                    if number:              # the first round is not counted
                        found[system.name].append(figures)
        finally:
            subject.end()
        return found


# ---- the report ---------------------------------------------------------------------------------------

def median(figures, key):
    return statistics.median(f[key] for f in figures)


def size_name(mib):
    return f'{mib} MiB' if mib < 1024 else f'{mib / 1024:g} GiB'


def table(cases, names):
    head = ['', 'size', 'writes/s', *(f'{title}: {name}' for _, title, _ in KEYS for name in names)]
    yield '| ' + ' | '.join(head) + ' |'
    yield '| ' + ' | '.join(['---'] * len(head)) + ' |'
    for (shape, mib, rate), found in cases.items():
        cells = [f'{median(found[name], key):.{digits}f} ({min(f[key] for f in found[name]):.{digits}f})'
                 for key, _, digits in KEYS for name in names]
        yield '| ' + ' | '.join([shape, size_name(mib), f'{rate:,}', *cells]) + ' |'


def steps(cases, names):
    for (shape, mib, rate), found in cases.items():
        yield from ['', f'## {shape}, {size_name(mib)}, {rate:,} writes/s', '']
        yield from freeze_steps.table({name: [f['steps_ms'] for f in found[name]] for name in names}, names)


def plots(cases, names, target):
    for shape in dict.fromkeys(shape for shape, _, _ in cases):
        series = {}
        for (of, mib, rate), found in cases.items():
            if of == shape:
                for name in names:
                    label = f'{name}, {rate // 1000}k/s' if rate else f'{name}, idle'
                    series.setdefault(label, []).append((mib / 1024, median(found[name], 'gap_ms')))
        series = {label: sorted(points) for label, points in sorted(series.items())}
        svg.lines(target / f'freeze-{shape}.svg', f'Longest gap in a dump: {shape}', 'memory, GiB', 'gap, ms', series)


def size_mib(text):
    scale = {'M': 1, 'G': 1024}.get(text[-1:].upper())
    return int(text[:-1]) * scale if scale else int(text)


def main():
    parser = argparse.ArgumentParser(description='How long tasks stand still in a dump, by size, beside stock CRIU.')
    parser.add_argument('-n', type=int, default=5, metavar='N', help='rounds (default 5), after one that is not counted')
    parser.add_argument('--sizes', default=SIZES_MIB, metavar='SIZE,…', type=lambda s: [size_mib(p) for p in s.split(',')],
                        help='memory of the subject, as 16M,8G (default 16M,256M,1G,4G)')
    parser.add_argument('--rates', default=RATES, metavar='N,…', type=lambda s: [int(p) for p in s.split(',')],
                        help='pages written per second (default 0,50000)')
    parser.add_argument('--shapes', default=list(SHAPES), metavar='SHAPE,…', type=lambda s: s.split(','),
                        help='of process, tree, container (default: all)')
    parser.add_argument('--also', action='append', default=[], metavar='NAME=DIR', help='one more system: programs of another build')
    parser.add_argument('--no-stock', action='store_true', help='without stock CRIU')
    parser.add_argument('--report', metavar='DIR', help='write report.md, results.json, the values of all rounds and plots there')
    parser.add_argument('--dir', metavar='DIR', default=BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--bin', metavar='DIR', default=REPO / 'build' / 'bin', help='our programs (default build/bin)')
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('freeze.py: this needs root')
    if set(args.shapes) - set(SHAPES):
        parser.error(f'--shapes are of {", ".join(SHAPES)}')
    if 'container' in args.shapes and not shutil.which('runc'):
        print('container: skipped, there is no runc', flush=True)
        args.shapes.remove('container')
    compare.become_subreaper()
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run(['gcc', '-O2', '-Wall', '-static', '-D_GNU_SOURCE', '-o', BUILD / 'gap', HERE / 'gap.c', '-lpthread'], check=True)
    directory = Path(tempfile.mkdtemp(prefix='freeze-', dir=args.dir))
    cases = {}
    try:
        bench = Bench(args, directory)
        for shape in args.shapes:
            for mib in args.sizes:
                for rate in args.rates:
                    found = cases[shape, mib, rate] = bench.case(shape, mib, rate, args.n)
                    print(f'{shape}, {size_name(mib)}, {rate:,} writes/s: gap ' + ', '.join(
                        f'{name} {median(f, "gap_ms"):.1f} ms' for name, f in found.items()), file=sys.stderr, flush=True)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        sys.exit(f'freeze.py: {e}')
    finally:
        compare.end_children()
        shutil.rmtree(directory, ignore_errors=True)
    names = [system.name for system in bench.systems]
    facts = compare.machine_facts(args.dir)
    text = '\n'.join([
        '# How long tasks stand still in a dump', '', *table(cases, names), '',
        f'Medians of {args.n} rounds, in parentheses the shortest; the systems take turns on the same subject, which runs on. {facts["cores"]} cores, kernel '
        f'{facts["kernel"]}, load {facts["load_at_start"]:.1f} at the end. The gap is the longest time that a thread of the subject did '
        f'not run, too long by at most 0.1 ms (tree of {TREE}: 1 ms). Stock dumps into files in the page cache; ours is durable on '
        'return.', *steps(cases, names), ''])
    print(text)
    if args.report:
        target = Path(args.report)
        target.mkdir(parents=True, exist_ok=True)
        kept.keep(target, 'make bench-freeze', {
            kept.name_of(shape, f'{mib}_mib', rate, who, 'gap_ms'): median(some, 'gap_ms')
            for (shape, mib, rate), found in cases.items() for who, some in found.items()}, {'machine': facts, 'rounds': args.n, 'cases': [
                {'shape': shape, 'mib': mib, 'writes_per_s': rate, 'systems': found} for (shape, mib, rate), found in cases.items()]}, text)
        plots(cases, names, target)
    return 0


if __name__ == '__main__':
    sys.exit(main())
