#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
compare: dump and restore through zones beside stock CRIU, same process, same machine, alternating.

Every round dumps and restores the same process (447 MiB of private memory) with stock CRIU into a directory and with
ours into zones, in changing order, with everything synced before each measurement. What a command took is counted
exactly: this program is the subreaper, so the orphaned zns-helper and znsd end as its children and wait4() tells their
CPU time and peak memory. It never judges times; it fails if a command fails or a digest is wrong.
"""
import argparse
import ctypes
import json
import mmap
import os
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.insert(0, str(REPO / 'test' / 'zonetests'))
import kept     # noqa: E402
import ztproto     # noqa: E402
from ztlib import Failed, drop_caches       # noqa: E402

BUILD = REPO / 'build' / 'bench'
QOS = '500'
DEVICE_TIMES = 4            # size of the device, as a multiple of the process
ZONE_MIB = 64
RAW_REQUEST = 1 << 20

libc = ctypes.CDLL(None, use_errno=True)


# ---- what things cost ----------------------------------------------------------------------------------

class Use:
    """CPU seconds and peak memory of each: criu, zns-helper, znsd, task (the process dumped or restored)."""

    def __init__(self):
        self.wall = 0.0
        self.cpu, self.peak_kib = {}, {}

    def add(self, who, seconds, peak_kib=0):
        self.cpu[who] = self.cpu.get(who, 0) + seconds
        self.peak_kib[who] = max(self.peak_kib.get(who, 0), peak_kib)

    def add_child(self, who, pid, peak_kib=None):
        """Wait for a child's end."""
        use = wait_for_end(pid)
        self.add(who, use.ru_utime + use.ru_stime, use.ru_maxrss if peak_kib is None else peak_kib)

    def values(self, prefix):
        """The values as flat numbers."""
        found = {f'{prefix}_wall_s': self.wall, f'{prefix}_cpu_s': sum(self.cpu.values()),
                 f'{prefix}_peak_mib': sum(k for who, k in self.peak_kib.items() if who != 'task') / 1024}
        for who in self.cpu:
            found[f'{prefix}_cpu_{who}_s'] = self.cpu[who]
            found[f'{prefix}_peak_{who}_mib'] = self.peak_kib[who] / 1024
        return found


def own_cpu():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def machine_cpu():
    """CPU seconds that the whole machine has used so far, including kernel threads."""
    user, nice, system, _, _, irq, softirq = map(int, Path('/proc/stat').read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf('SC_CLK_TCK')


def task_cpu(pid):
    """CPU seconds of a running process with one thread."""
    return int(Path(f'/proc/{pid}/schedstat').read_text().split()[0]) / 1e9


def become_subreaper():
    pr_set_child_subreaper = 36
    if libc.prctl(pr_set_child_subreaper, 1, 0, 0, 0):
        raise Failed('this kernel has no subreapers')


def wait_for_end(pid, seconds=60):
    """The complete rusage of a child."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, _, use = os.wait4(pid, os.WNOHANG)
        if ended:
            return use
        time.sleep(0.001)
    raise Failed(f'process {pid} ({children().get(pid)}) does not end')


def children():
    """{pid: program} of our children, including adopted and ended ones."""
    found = {}
    for pid in map(int, Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()):
        found[pid] = Path(f'/proc/{pid}/comm').read_text().strip()
    return found


def end_children():
    """Ends all processes that this program has started."""
    for pid in children():
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)


def peak_kib(pid):
    """A running process's own peak memory: that of wait4() would begin with the peak of the process that started it."""
    found = re.search(r'VmHWM:\s+(\d+)', Path(f'/proc/{pid}/status').read_text())
    return int(found.group(1)) if found else None


def collect_orphans(use, leave):
    """Ends the processes that a command left behind, and counts what they used; the broker would exit by itself, but later."""
    for pid, program in children().items():
        if pid in leave:
            continue
        peak = None
        if program == 'znsd':
            peak = peak_kib(pid)
            os.kill(pid, signal.SIGTERM)
        use.add_child(program, pid, peak)


def run(bench, command, leave=(), pidfile=None):
    """Runs a command; returns what it and all that it started used, except processes in @leave and the one in @pidfile."""
    result, stderr = bench.dir / 'launch', bench.dir / 'stderr'
    with open(stderr, 'wb') as err:
        subprocess.run([BUILD / 'launch', result, *map(str, command)], env=bench.env, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=err, check=True)
    wall, status, user, system, peak = map(int, result.read_text().split())
    use = Use()
    use.wall = wall / 1e9
    use.add(Path(command[0]).name, (user + system) / 1e6, peak)
    if status:
        log = bench.dir / 'criu.log'
        lines = [l for l in log.read_text(errors='replace').splitlines() if 'Error' in l] if log.exists() else []
        raise Failed(f'{" ".join(map(str, command))}: exit {status}: {" | ".join(lines[-4:])} '
                     f'{stderr.read_text(errors="replace").strip()[-500:]}')
    collect_orphans(use, [*leave, int(pidfile.read_text())] if pidfile else leave)
    return use


# ---- files ---------------------------------------------------------------------------------------------

def syncfs(path):
    """Returns the wall time and the CPU seconds that it took."""
    fd = os.open(path, os.O_RDONLY)
    start, cpu = time.monotonic(), own_cpu()
    ret = libc.syncfs(fd)
    took = time.monotonic() - start, own_cpu() - cpu
    os.close(fd)
    if ret:
        raise Failed(f'syncfs {path}: {os.strerror(ctypes.get_errno())}')
    return took


def directory_bytes(path):
    return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))


# ---- the process that is dumped ------------------------------------------------------------------------

class Subject:
    def __init__(self, bench, seed):
        self.answers = bench.dir / 'answers'
        self.answers.unlink(missing_ok=True)
        program = str(BUILD / 'subject')
        null = [(os.POSIX_SPAWN_OPEN, fd, '/dev/null', os.O_RDWR, 0) for fd in (0, 1, 2)]
        self.pid = os.posix_spawn(program, [program, str(bench.mib), str(seed), str(self.answers)], os.environ,
                                  file_actions=null, setsid=True)
        self.digest = self.next_answer('ready')
        self.used = self.settled_cpu()

    def next_answer(self, expected):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.state() != 'Z':
            if self.answers.exists() and self.answers.read_text().endswith('\n'):
                word, digest = self.answers.read_text().split()
                self.answers.unlink()
                if word != expected:
                    raise Failed(f'the process says "{word}" instead of "{expected}"')
                return digest
            time.sleep(0.005)
        raise Failed(f'the process does not say "{expected}"')

    def state(self):
        return Path(f'/proc/{self.pid}/stat').read_text().rpartition(')')[2].split()[0]

    def settled_cpu(self):
        """Its CPU seconds so far, once it sleeps."""
        while self.state() == 'R':
            time.sleep(0.001)
        return task_cpu(self.pid)

    def died(self, use):
        """The dump killed the process: counts what that cost, criu's parasite and the exit included."""
        own = wait_for_end(self.pid)
        use.add('task', own.ru_utime + own.ru_stime - self.used)

    def restored(self, pid, use):
        self.pid = pid
        use.add('task', self.settled_cpu())

    def verify(self):
        os.kill(self.pid, signal.SIGUSR1)
        if self.next_answer('same') != self.digest:
            raise Failed('the digest after the restore is another one than before')

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        wait_for_end(self.pid)


# ---- the two contestants -------------------------------------------------------------------------------

class Stock:
    name = 'stock'

    def __init__(self, bench, criu):
        self.bench, self.criu = bench, criu
        self.images = bench.dir / 'stock'

    def options(self):
        return []

    def describe(self):
        return {}

    def remove(self):
        start, cpu = time.monotonic(), own_cpu()
        shutil.rmtree(self.images)
        return {'remove_wall_s': time.monotonic() - start, 'remove_cpu_s': own_cpu() - cpu}


class Zones(Stock):
    name = 'ours'

    def __init__(self, bench, criu, file=None):
        super().__init__(bench, criu)
        self.images = bench.dir / 'zones'
        self.znsctl = criu.with_name('znsctl')
        if file:
            self.device = [f'file:{bench.dir}/device', '--size', f'{max(DEVICE_TIMES * bench.mib, 1024)}M',
                           *(['--preallocate'] if file == 'preallocated' else [])]
        else:
            zones = max(32, -(-DEVICE_TIMES * bench.mib // ZONE_MIB) + 4)
            self.device = [f'emu:{bench.dir}/device', '--channels', '4', '--ways', '2', '--zone-size', f'{ZONE_MIB}M',
                           '--zones', str(zones), '--timing', 'off']
        self.ctl('create', *self.device)
        self.empty = self.empty_zones()
        collect_orphans(Use(), ())

    def ctl(self, *args):
        done = subprocess.run([self.znsctl, *args, '--json'], env=self.bench.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise Failed(f'znsctl {" ".join(args)}: exit {done.returncode}: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def empty_zones(self):
        return sum(z['state'] == 'empty' for z in self.ctl('zones')['zones'])

    def options(self):
        return ['--zns-qos', QOS, '--zns-container', 'bench']

    def checkpoint(self):
        found = self.ctl('ls')['checkpoints']
        if len(found) != 1:
            raise Failed(f'{len(found)} checkpoints are on the device instead of one')
        return found[0]

    def describe(self):
        """Asks znsctl about the checkpoint; this is not part of any measurement."""
        found = self.checkpoint()
        shown = self.ctl('show', found['id'])
        collect_orphans(Use(), ())
        return {'zones': len(found['zones']), 'groups': len(found['groups']),
                'data_phase_s': shown.get('data_phase_us', 0) / 1e6}

    def remove(self):
        """The command, and the broker until it has reset the zones."""
        found = self.checkpoint()['id']
        brokers = [pid for pid, program in children().items() if program == 'znsd']
        use = run(self.bench, [self.znsctl, 'rm', found], leave=brokers)
        end = time.monotonic() + 60
        while self.empty_zones() < self.empty:
            if time.monotonic() > end:
                raise Failed('a removed checkpoint still has zones')
            time.sleep(0.02)
        collect_orphans(use, ())
        shutil.rmtree(self.images)
        return {'remove_wall_s': use.wall, 'remove_cpu_s': sum(use.cpu.values())}


class Bench:
    def __init__(self, args, directory):
        self.dir, self.mib = directory, args.size
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ZNS') and k != 'CRIU_CONFIG_FILE'}
        self.env.update(ZNS_CONFIG=str(directory / 'etc'), ZNS_RUN=str(directory / 'run'))
        self.may_drop = drop_caches()
        ours = Path(args.bin).resolve() / 'criu'
        self.contestants = [Stock(self, stock_criu(args)), Zones(self, ours, getattr(args, 'file', None))]
        self.raw = directory / 'raw'
        self.block = mmap.mmap(-1, RAW_REQUEST)
        self.block.write(os.urandom(RAW_REQUEST))
        self.raw_write(os.O_CREAT)

    def criu(self, who, action, images, *options):
        (self.dir / 'criu.log').unlink(missing_ok=True)
        return [who.criu, action, '--no-default-config', '-D', images, '-W', self.dir, '-o', 'criu.log', *options]

    def dump(self, who, subject):
        who.images.mkdir()
        syncfs(self.dir)
        machine = machine_cpu()
        command = self.criu(who, 'dump', who.images, '-t', subject.pid, *who.options())
        use = run(self, command, leave=[subject.pid])
        sync_wall, sync_cpu = syncfs(self.dir) if who.name == 'stock' else (0, 0)
        subject.died(use)
        found = use.values('dump')
        found['dump_machine_cpu_s'] = machine_cpu() - machine
        found['dump_sync_wall_s'] = use.wall + sync_wall
        found['dump_sync_cpu_s'] = found['dump_cpu_s'] + sync_cpu
        stats = ztproto.dump_stats(self.dir / 'stats-dump')
        found['frozen_s'], found['memdump_s'] = stats[2] / 1e6, stats[3] / 1e6
        found['image_dir_bytes'] = directory_bytes(who.images)
        return found

    def restore(self, who, subject, prefix):
        syncfs(self.dir)
        pidfile = self.dir / 'pid'
        pidfile.unlink(missing_ok=True)
        machine = machine_cpu()
        use = run(self, self.criu(who, 'restore', who.images, '-d', '--pidfile', pidfile), pidfile=pidfile)
        subject.restored(int(pidfile.read_text()), use)
        found = use.values(prefix)
        found[f'{prefix}_machine_cpu_s'] = machine_cpu() - machine
        subject.verify()
        subject.kill()
        return found

    def one(self, who, seed):
        """Dump, restore, restore with nothing in the page cache, remove."""
        subject = Subject(self, seed)
        found = self.dump(who, subject)
        found.update(who.describe())
        found.update(self.restore(who, subject, 'restore'))
        if self.may_drop:
            drop_caches()
            found.update(self.restore(who, subject, 'cold_restore'))
        found.update(who.remove())
        return found

    def raw_write(self, flags=0):
        """The simplest way to write to the same disk: one request after the other, past the page cache, into old blocks."""
        fd = os.open(self.raw, os.O_WRONLY | os.O_DIRECT | flags, 0o600)
        if flags:
            os.posix_fallocate(fd, 0, self.mib << 20)
        os.fsync(fd)
        start, cpu = time.monotonic(), own_cpu()
        for at in range(0, self.mib << 20, RAW_REQUEST):
            if os.pwrite(fd, self.block, at) != RAW_REQUEST:
                raise Failed('a short write')
        os.fdatasync(fd)
        took = time.monotonic() - start
        os.close(fd)
        return {'raw_write_wall_s': took, 'raw_write_cpu_s': own_cpu() - cpu}

    def round(self, number):
        found = {}
        for who in self.contestants if number % 2 else self.contestants[::-1]:
            found[who.name] = self.one(who, number)
        syncfs(self.dir)
        found['disk'] = self.raw_write()
        return found


# ---- the report ----------------------------------------------------------------------------------------

# title, key, what to multiply with ('gib': seconds per GiB of the process), digits
ROWS = [
    ('dump, wall, s', 'dump_wall_s', 1, 3),
    ('dump + syncfs, wall, s (ours is durable on return)', 'dump_sync_wall_s', 1, 3),
    ('time frozen, ms', 'frozen_s', 1000, 0),
    ('dump, CPU s per GiB, everything', 'dump_cpu_s', 'gib', 3),
    ('- criu', 'dump_cpu_criu_s', 'gib', 3),
    ('- zns-helper', 'dump_cpu_zns-helper_s', 'gib', 3),
    ('- znsd, its start too', 'dump_cpu_znsd_s', 'gib', 3),
    ("- in the dumped process: criu's parasite, its end", 'dump_cpu_task_s', 'gib', 3),
    ('dump + syncfs, CPU s per GiB, all of the above', 'dump_sync_cpu_s', 'gib', 3),
    ('whole machine during dump + syncfs, CPU s per GiB (kernel threads too)', 'dump_machine_cpu_s', 'gib', 3),
    ('dump, peak memory, MiB, sum of all', 'dump_peak_mib', 1, 1),
    ('- criu', 'dump_peak_criu_mib', 1, 1),
    ('- zns-helper', 'dump_peak_zns-helper_mib', 1, 1),
    ('- znsd', 'dump_peak_znsd_mib', 1, 1),
    ('image directory, KiB', 'image_dir_bytes', 1 / 1024, 0),
    ('restore, wall, s (page cache as it is)', 'restore_wall_s', 1, 3),
    ('restore, CPU s per GiB, everything', 'restore_cpu_s', 'gib', 3),
    ('- criu', 'restore_cpu_criu_s', 'gib', 3),
    ('- zns-helper', 'restore_cpu_zns-helper_s', 'gib', 3),
    ('- znsd, its start too', 'restore_cpu_znsd_s', 'gib', 3),
    ('- in the restored process', 'restore_cpu_task_s', 'gib', 3),
    ('whole machine during the restore, CPU s per GiB', 'restore_machine_cpu_s', 'gib', 3),
    ('restore, peak memory, MiB, sum without the process', 'restore_peak_mib', 1, 1),
    ('restore, wall, s (page cache dropped)', 'cold_restore_wall_s', 1, 3),
    ('restore, CPU s per GiB, everything (page cache dropped)', 'cold_restore_cpu_s', 'gib', 3),
    ('whole machine during it, CPU s per GiB', 'cold_restore_machine_cpu_s', 'gib', 3),
    ('removing the checkpoint, wall, s', 'remove_wall_s', 1, 3),
    ('removing the checkpoint, CPU s, resets of zones too', 'remove_cpu_s', 1, 3),
]
RAW_ROWS = [
    ('O_DIRECT write + fdatasync, wall, s', 'raw_write_wall_s', 1, 3),
    ('O_DIRECT write + fdatasync, CPU s per GiB', 'raw_write_cpu_s', 'gib', 3),
]


def summary(values):
    return {'median': statistics.median(values), 'min': min(values), 'max': max(values)}


def summarise(rounds):
    """{who: {key: {median, min, max}}} of the values of all rounds."""
    found = {}
    for who in rounds[0]:
        keys = set().union(*(r[who] for r in rounds))
        found[who] = {k: summary([r[who].get(k, 0) for r in rounds]) for k in sorted(keys)}
    return found


def cell(value, factor, digits):
    if value is None:
        return '-'
    median, low, high = (f'{value[k] * factor:.{digits}f}' for k in ('median', 'min', 'max'))
    return f'{median} ({low}-{high})'


def table(summaries, mib):
    lines = ['| | stock | ours | ours/stock |', '| --- | --- | --- | --- |']
    for title, key, factor, digits in ROWS:
        stock, ours = (summaries[who].get(key) for who in ('stock', 'ours'))
        if not stock and not ours:
            continue
        factor = 1024 / mib if factor == 'gib' else factor
        ratio = ours['median'] / stock['median'] if stock and ours and stock['median'] else None
        ratio = '-' if ratio is None else f'{ratio:.2f}' if ratio >= 0.01 else f'{ratio:.1g}'
        lines.append(f'| {title} | {cell(stock, factor, digits)} | {cell(ours, factor, digits)} | {ratio} |')
    lines += ['', f'| the same disk, {mib} MiB, for scale | |', '| --- | --- |']
    for title, key, factor, digits in RAW_ROWS:
        factor = 1024 / mib if factor == 'gib' else factor
        lines.append(f'| {title} | {cell(summaries["disk"][key], factor, digits)} |')
    return lines


def first_line(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return (done.stdout + done.stderr).strip().partition('\n')[0]


def machine_facts(directory):
    cpu = re.search(r'model name\s*: (.*)', Path('/proc/cpuinfo').read_text())
    memory = re.search(r'MemTotal:\s+(\d+)', Path('/proc/meminfo').read_text())
    return {
        'cores': os.cpu_count(),
        'cpu': cpu.group(1) if cpu else platform.machine(),
        'memory_gib': round(int(memory.group(1)) / 2**20, 1),
        'kernel': kept.kernel(),
        'file_system': ' '.join(first_line(['findmnt', '-n', '-o', 'FSTYPE,OPTIONS', '-T', directory]).split()),
        'load_at_start': os.getloadavg()[0],
    }


def report(facts, summaries, args):
    disk = summaries['disk']['raw_write_wall_s']['median']
    ours = summaries['ours']
    lines = [
        f'# Dump and restore of a process of {args.size} MiB beside stock CRIU', '',
        f'{facts["cores"]} cores ({facts["cpu"]}), {facts["memory_gib"]} GiB, kernel {facts["kernel"]}, '
        f'{facts["file_system"]}; load before the start {facts["load_at_start"]:.2f}.', '',
        *table(summaries, args.size), '',
        f'The disk took {args.size / disk:.0f} MiB/s. Ours wrote {ours["zones"]["median"]:.0f} zones of '
        f'{ours["groups"]["median"]:.0f} groups; from the first write to the last it took '
        f'{ours["data_phase_s"]["median"]:.3f} s.', '',
        f'Every figure is the median of {args.n} round{"s" * (args.n > 1)}, with the smallest and the largest in '
        f'parentheses; each round dumps, restores and checks the process once with {facts["stock"]} and once with ours, '
        'in changing order, after one round that is not counted. Files and our device (timing off, '
        f'`{facts["device"]}`, asked for {QOS} MiB/s) are on the same file system, which is synced before each '
        'measurement; checkpoints are removed after each round. No broker runs beforehand: each dump and each restore '
        'starts one and its whole life is counted. CPU time and peak memory are from wait4() of criu, of zns-helper and '
        'of znsd, which end as children of this program, plus what the dumped process uses from the beginning of the '
        'dump to its end and the restored one until criu returns. Peak memory is resident memory without the page '
        'cache, which stock fills and ours does not. "Whole machine" is /proc/stat: it has the kernel\'s '
        'write-back threads too, and whatever else runs.',
    ]
    return '\n'.join(lines) + '\n'


# ---- main ----------------------------------------------------------------------------------------------

def stock_criu(args):
    if args.stock:
        return Path(args.stock).resolve()
    done = subprocess.run([REPO / 'scripts' / 'zdtm-sample', '--stock-only'], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failed('stock CRIU could not be built')
    return Path(done.stdout.strip())


def build_programs():
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ('launch', 'subject'):
        subprocess.run(['gcc', '-O2', '-Wall', '-D_GNU_SOURCE', '-o', BUILD / name, HERE / f'{name}.c'], check=True)


def compare(args, directory):
    bench = Bench(args, directory)
    facts = machine_facts(directory)
    facts['stock'] = 'stock CRIU ' + first_line([bench.contestants[0].criu, '--version']).rpartition(' ')[2]
    facts['device'] = 'znsctl create ' + ' '.join(bench.contestants[1].device).replace(str(bench.dir / 'device'), 'PATH')
    if not bench.may_drop:
        print('the page cache cannot be dropped here: no rows without it', file=sys.stderr)
    rounds = []
    for number in range(args.n + 1):
        rounds.append(bench.round(number))
        stock, ours = rounds[-1]['stock'], rounds[-1]['ours']
        print(f'round {number} of {args.n}' + ('' if number else ' (not counted)') +
              f': dump {stock["dump_wall_s"]:.2f} s, with syncfs {stock["dump_sync_wall_s"]:.2f} s; '
              f'ours {ours["dump_wall_s"]:.2f} s', file=sys.stderr, flush=True)
    summaries = summarise(rounds[1:])
    return report(facts, summaries, args), {'machine': facts, 'summary': summaries, 'rounds': rounds[1:],
                                            'not_counted': rounds[0]}


def main():
    parser = argparse.ArgumentParser(description='Dump and restore through zones beside stock CRIU.')
    parser.add_argument('-n', type=int, default=9, metavar='N', help='rounds (default 9)')
    parser.add_argument('--size', type=int, default=447, metavar='MIB', help='memory of the process (default 447)')
    parser.add_argument('--file', choices=('sparse', 'preallocated'), help='a store in a file, in place of the emulated device')
    parser.add_argument('--report', metavar='DIR', help='write report.md, results.json and the values of all rounds there')
    parser.add_argument('--dir', metavar='DIR', default=BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--bin', metavar='DIR', default=REPO / 'build' / 'bin', help='our programs (default build/bin)')
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('compare.py: this needs root')
    if args.n < 1 or args.size < 1:
        parser.error('-n and --size begin at 1')

    become_subreaper()
    build_programs()
    directory = Path(tempfile.mkdtemp(prefix='compare-', dir=args.dir))
    try:
        text, data = compare(args, directory)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        sys.exit(f'compare.py: {e}')
    finally:
        end_children()
        shutil.rmtree(directory, ignore_errors=True)
    print(text)
    if args.report:
        kept.keep(Path(args.report), 'make bench-stock', {kept.name_of(who, key): value['median'] for who in ('stock', 'ours')
                                                           for key, value in data['summary'][who].items()}, data, text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
