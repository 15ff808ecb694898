# SPDX-License-Identifier: GPL-2.0-only
"""
Runs in a guest: processes that are dumped, control groups, and the two ways to dump: into zones, or by stock CRIU into
files.

Rates are MiB/s and times are seconds of the guest's clock, not scaled; the host multiplies them by the drive's scale.
"""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / 'zonetests'), str(HERE.parent / 'papers')]
import ztproto  # noqa: E402
from subject import Process  # noqa: E402

MIB = 1 << 20
REPO, RESULTS = Path('/repo'), Path('/results')
BIN = REPO / 'build/bin'
STOCK = REPO / 'build/zdtm/stock/criu/criu'
FIO = REPO / 'build/fio-src/fio'
CGROUPS = Path('/sys/fs/cgroup')
WORK = Path('/run/bench')
SAMPLE_S = 0.1
LIMIT_S = 900


class Failed(Exception):
    """The cell cannot continue."""


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False, **more)
    if done.returncode:
        raise Failed(f'{" ".join(map(str, command))[:200]}: exit {done.returncode}: {(done.stdout + done.stderr).strip()[-600:]}')
    return done.stdout


def processor():
    """(idle, total) time of the guest's processor so far. There is one processor, so its idle time is the guest's."""
    found = [int(n) for n in Path('/proc/stat').read_text().split('\n', 1)[0].split()[1:9]]
    return found[3] + found[4], sum(found)


def idle_since(before):
    idle, total = processor()
    return (idle - before[0]) / max(1, total - before[1])


def drive_stats(name):
    """The model's counters, which it writes twice a second."""
    time.sleep(1.2)
    return json.loads((RESULTS / f'drive-{name}.json').read_text())


class Requests:
    """How long each request took in the drive by the model, without this processor (for a drive with requests=1)."""

    def __init__(self, name, slow):
        self.path, self.slow = RESULTS / f'drive-{name}.json.requests', slow
        self.at, self.ns = time.monotonic(), drive_stats(name)['ns']

    def took(self, places, parts):
        """Seconds of each write that came within one of these spans of the monotonic clock, to one of these [first, end) of the drive."""
        ns = [[self.ns + (t - self.at) * 1e9 / self.slow for t in part] for part in parts]
        found = []
        for line in self.path.read_text().splitlines():
            words = line.split()
            if len(words) != 5 or words[0] != 'w':
                continue
            off, came, done = int(words[1]), int(words[3]), int(words[4])
            if any(a <= came < b for a, b in ns) and any(a <= off < b for a, b in places):
                found.append(round((done - came) * self.slow / 1e9, 6))
        return sorted(found)


class Group:
    """A control group of version 2."""

    def __init__(self, name):
        self.path = CGROUPS / name
        self.path.mkdir(exist_ok=True)

    def set(self, file, value):
        try:
            (self.path / file).write_text(value)
        except OSError as why:
            raise Failed(f'{self.path.name}/{file} does not take "{value}": {why}') from why

    def counted(self, device, what):
        """This device's counters of the group's members, in io.stat."""
        for line in (self.path / 'io.stat').read_text().splitlines():
            words = line.split()
            if words and words[0] == device:
                return int(dict(w.split('=') for w in words[1:] if '=' in w).get(what, 0))
        return 0

    def written(self, device):
        """Bytes that its members have sent to this device."""
        return self.counted(device, 'wbytes')

    def popen(self, command, **more):
        def enter():
            (self.path / 'cgroup.procs').write_text(str(os.getpid()))
        return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, preexec_fn=enter,
                                start_new_session=True, **more)


class Subject(Process):
    failed = Failed

    def __init__(self, name, mib, seed):
        WORK.mkdir(exist_ok=True)
        self.mib = mib
        super().__init__(REPO / 'build/bench/subject', WORK, name, mib, seed)


class Dump:
    """A dump that runs in a group of its own; times are of CLOCK_MONOTONIC."""

    def __init__(self, way, subject, command, images):
        self.way, self.subject, self.images = way, subject, images
        self.group = way.group(subject.name)
        self.log = open(images / 'out', 'wb')
        self.first, self.end, self.series = None, None, []
        self.before = self.group.written(way.number)
        self.start = time.monotonic()
        self.proc = self.group.popen(command, stdout=self.log, stderr=self.log, env=way.env)

    def sample(self):
        now, wrote = time.monotonic(), self.group.written(self.way.number) - self.before
        self.series.append((now, wrote))
        if self.first is None and wrote >= 256 << 10:
            self.first = now

    def flow(self):
        """MiB/s of the middle 80 % of what was written: criu-zns hardly ever has more in flight than its zones hold."""
        total, times = self.series[-1][1], []
        for part in (0.1, 0.9):
            i = next(i for i, (_, done) in enumerate(self.series) if done >= part * total)
            (t0, d0), (t1, d1) = self.series[max(0, i - 1)], self.series[i]
            times.append(t1 if d1 == d0 else t0 + (t1 - t0) * (part * total - d0) / (d1 - d0))
        return 0.8 * total / MIB / max(1e-3, times[1] - times[0])

    def poll(self):
        if self.end is None and self.proc.poll() is not None:
            self.sample()
            self.end = time.monotonic()
            self.log.close()
            if self.proc.returncode:
                log = self.images / 'criu.log'
                text = log.read_text(errors='replace') if log.exists() else ''
                errors = [line for line in text.splitlines() if 'Error' in line][-3:]
                out = (self.images / 'out').read_text(errors='replace')[-300:]
                raise Failed(f'a dump of {self.subject.name}: exit {self.proc.returncode}: {errors} {out}')
        return self.end is not None


def watch(dumps):
    """Waits until all have ended; returns their results."""
    end = time.monotonic() + LIMIT_S
    while not all([d.poll() for d in dumps]):
        for d in dumps:
            if d.end is None:
                d.sample()
        if time.monotonic() > end:
            for d in dumps:
                d.proc.kill()
            raise Failed('a dump does not end')
        time.sleep(SAMPLE_S)
    return [d.way.result(d) for d in dumps]


def restore(dump):
    """Restores a subject that was killed; returns the duration in seconds."""
    command = dump.way.restoring(dump)
    begin = time.monotonic()
    with open(dump.images / 'restore.out', 'wb') as out:
        proc = dump.group.popen(command, stdout=out, stderr=out, env=dump.way.env)
        proc.wait(LIMIT_S)
    took = time.monotonic() - begin
    if proc.returncode:
        log = (dump.images / 'restore.log').read_text(errors='replace').splitlines()
        raise Failed(f'a restore of {dump.subject.name}: exit {proc.returncode}: {[x for x in log if "Error" in x][-3:]}')
    return took


class Way:
    """A destination of dumps. number: the device's, as in io.stat."""
    env = None
    io_max = None       # cap in bytes/s, for use in place of `cap` if that is no whole number of MiB/s

    def __init__(self, name, device, cap):
        self.name, self.device, self.cap, self.groups, self.serial = name, device, cap, {}, 0
        self.number = Path(f'/sys/class/block/{Path(device).name}/dev').read_text().strip()

    def group(self, name):
        if name not in self.groups:
            self.groups[name] = Group(f'{self.name}-{name}')
            self.hold(self.groups[name])
        return self.groups[name]

    def hold(self, group, more=''):
        if self.limit():
            group.set('io.max', f'{self.number} wbps={self.limit()}{more}')

    def limit(self):
        """Bytes/s to which the kernel caps a dump; None: it does not."""
        return self.io_max

    def directory(self, name):
        self.serial += 1
        images = WORK / f'{self.name}-{name}-{self.serial}'
        images.mkdir(parents=True)
        return images

    @staticmethod
    def finish(dump, first, size):
        return {'name': dump.subject.name, 'bytes': size, 'start': dump.start, 'first': first, 'end': dump.end,
                'latency_s': dump.end - dump.start, 'frozen_s': ztproto.dump_stats(dump.images / 'stats-dump')[2] / 1e6, 'rate': size / MIB / (dump.end - first),
                'series': [(round(t, 2), b) for t, b in dump.series]}


class Zones(Way):
    """Our criu. mapped: the zones that share a die, as znsctl format takes it."""

    stripe = '512K'

    def __init__(self, name, device, cap, zone_rate, mapped, spec=None):
        super().__init__(name, device, cap)
        self.spec = str(spec or device)
        # a run directory for each: there may be several devices
        self.env = {**os.environ, 'ZNS_DEV': self.spec, 'ZNSD_IDLE_S': '0', 'ZNS_CONFIG': f'/run/{name}-etc', 'ZNS_RUN': f'/run/{name}-run'}
        self.ctl('format', self.spec, '--force', '--map', mapped, '--zone-write-bw', zone_rate, '--zone-read-bw', 4 * zone_rate)

    def ctl(self, *args):
        out = run(BIN / 'znsctl', *args, '--json', env=self.env)
        return json.loads(out) if out.strip() else {}

    def start(self, subject, qos, cap=True, more=()):
        images = self.directory(subject.name)
        caps = ['--zns-qos-max', self.cap] if cap and self.cap else []
        return Dump(self, subject, [BIN / 'criu', 'dump', '--no-default-config', '-D', images, '-W', images, '-o', 'criu.log',
                                    '-t', subject.pid, '--leave-running', '--zns-live=no', '--manage-cgroups=ignore', '--zns-qos', qos, *caps,
                                    '--zns-stripe', self.stripe, '--zns-container', subject.name, *more], images)

    def restoring(self, dump):
        caps = ['--zns-qos-max', self.cap] if self.cap else []
        self.hold(dump.group, f' rbps={self.limit()}')
        return [BIN / 'criu', 'restore', '--no-default-config', '-d', '-D', dump.images, '-W', dump.images, '-o', 'restore.log',
                '--manage-cgroups=ignore', *caps]

    def result(self, dump):
        newest = max((c for c in self.ctl('ls')['checkpoints'] if c['container'] == dump.subject.name),
                     key=lambda c: c['created_ns'])
        took = self.ctl('show', newest['id'])['data_phase_us'] / 1e6
        found = self.finish(dump, dump.first or dump.start, newest['bytes'])
        # The record's own rate covers the time from the first write to the last completion, in which criu's own
        # computing is not scaled.
        found.update(rate=dump.flow(), record=newest['bytes'] / MIB / took, groups=newest['groups'])
        return found

    def clear(self):
        used = set()
        for c in self.ctl('ls')['checkpoints']:
            used |= set(c['zones'])
            self.ctl('rm', c['id'])
        end = time.monotonic() + LIMIT_S
        while any(z['index'] in used and z['state'] != 'empty' for z in self.ctl('zones')['zones']):
            if time.monotonic() > end:
                raise Failed('a removed checkpoint still has zones')
            time.sleep(0.3)


class Files(Way):
    """Stock CRIU into a mounted file system; a dump ends when its files are on the drive."""

    def __init__(self, name, device, cap, directory):
        super().__init__(name, device, cap)
        self.at = Path(directory)

    def limit(self):
        return self.io_max or (self.cap * MIB if self.cap else None)

    def directory(self, name):
        self.serial += 1
        images = self.at / f'{name}-{self.serial}'
        images.mkdir(parents=True)
        return images

    def start(self, subject, qos=None, cap=True, more=()):
        images = self.directory(subject.name)
        script = f'"$@" && cut -d" " -f1 /proc/uptime >{images}/synced && sync {images}/*'
        return Dump(self, subject, ['bash', '-c', script, 'dump', STOCK, 'dump', '--no-default-config', '-D', images, '-W', images,
                                    '-o', 'criu.log', '-t', subject.pid, '--leave-running', '--manage-cgroups=ignore', *more], images)

    def restoring(self, dump):
        """Restores from the drive, since the images are dropped from the page cache. Reads have the same cap as writes."""
        self.hold(dump.group, f' rbps={self.limit()}')
        Path('/proc/sys/vm/drop_caches').write_text('3')
        return [STOCK, 'restore', '--no-default-config', '-d', '-D', dump.images, '-W', dump.images, '-o', 'restore.log',
                '--manage-cgroups=ignore']

    def result(self, dump):
        size = sum(f.stat().st_size for f in dump.images.glob('pages-*'))
        # Usually no data are written back before the sync, so writes are counted from the sync on.
        synced = float((dump.images / 'synced').read_text())
        first = min(dump.first or synced, synced)
        return self.finish(dump, first, size)

    def clear(self):
        for d in self.at.glob('*-[0-9]*'):
            shutil.rmtree(d)
        run('sync', '-f', self.at)
