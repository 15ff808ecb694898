# SPDX-License-Identifier: GPL-2.0-only
"""
A device and what runs on it together: fio through our engine, checkpoints through zns-helper and znsd.

In model time (the default) all of them share one virtual clock (test/bench/vtime): computing takes no time, the device
takes what the emulator's timing model says. In wall time they run as they are.
"""
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

MIB = 1 << 20
LEAD_NS = 100_000_000           # delay before jobs that start together


class Failed(Exception):
    """The experiment cannot continue."""


class Clock:
    """The virtual clock's conductor."""

    def __init__(self, bench, path):
        self.path = path
        self.proc = subprocess.Popen([bench / 'vtime', path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.proc.stdout.readline() != 'ready\n':
            raise Failed('the virtual clock does not start')

    def ask(self, line):
        self.proc.stdin.write(line + '\n')
        self.proc.stdin.flush()
        answer = self.proc.stdout.readline()
        if not answer:
            raise Failed('the virtual clock died')
        return answer.split()

    def close(self):
        self.proc.stdin.close()
        self.proc.wait()


class Job:
    """One fio, dump or restore: a command that begins at a given time."""

    def __init__(self, name, command, start_s=0.0, env=None):
        self.name, self.command, self.start_s, self.env = name, command, start_s, env or {}
        self.log = self.out = None
        self.plain = False      # its output is not one of a checkpoint
        self.program = None     # set if the program runs already: it is told when to begin
        self.sleepers = 1       # threads that wait for the beginning


class Stage:
    def __init__(self, args, profile, options=(), wall=False, vendor_map=None, env=None, broker=None):
        build = Path(args.build).resolve()
        # of the test build, for loads that store nothing and flushes as NVMe has them
        self.bin, self.bench, self.fio_bin = build / 'test' / 'bin', build / 'bench', build / 'fio-src' / 'fio'
        self.criu = build / 'bin' / 'criu'
        self.dir = Path(args.work) / f'stage{Stage.count}'
        Stage.count += 1
        self.dir.mkdir()
        self.device = f'emu:{self.dir}/device'
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ZNS')}
        self.env.update(ZNS_CONFIG=str(self.dir / 'etc'), ZNS_RUN=str(self.dir / 'run'), ZNS_LIBEXEC=str(self.bin),
                        ZNSD_IDLE_S='0', ZNS_DEV=self.device,
                        ZNSD_KEEP_ENV='LD_PRELOAD,ZNS_VTIME,ZNS_EMU_FLUSH')
        self.env.update(env or {})
        if broker:
            self.env.update(ZNS_LIBEXEC=str(self.programs_with(broker)))
        self.clock, self.serial, self.programs = None, 0, []
        if not wall:
            self.clock = Clock(self.bench, self.dir / 'clock')
            self.env.update(LD_PRELOAD=str(self.bench / 'vtime.so'), ZNS_VTIME=str(self.dir / 'clock'))
        self.wall_s = time.monotonic()
        try:
            made = self.ctl('create', self.device, '--profile', profile, *([] if wall else ['--sparse']), *options)
            self.die_of = made['zone_die']
            if vendor_map is not None:
                (self.dir / 'map').write_text(' '.join(map(str, vendor_map)))
                self.ctl('format', self.device, '--map', str(self.dir / 'map'), '--force')
        except Exception:
            self.close()
            raise

    count = 0

    def programs_with(self, broker):
        """A directory with the programs of the build, but another znsd: bench/NAME/znsd."""
        here = self.dir / 'libexec'
        here.mkdir()
        for program in self.bin.iterdir():
            (here / program.name).symlink_to(program)
        (here / 'znsd').unlink()
        (here / 'znsd').symlink_to(self.bench / broker / 'znsd')
        return here

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for program in self.programs:
            program.close()
        try:
            pid = self.ctl('status')['broker_pid']
            os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + 10
            while Path(f'/proc/{pid}').exists() and time.monotonic() < end:
                time.sleep(0.01)
        except (Failed, OSError):
            pass        # it was never started, or the device was never made
        if self.clock:
            self.clock.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def ctl(self, *args):
        done = subprocess.run([self.bin / 'znsctl', *map(str, args), '--json'], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Failed(f'znsctl {" ".join(map(str, args))}: exit {done.returncode}: {done.stderr.strip()}')
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def program(self, name, *args):
        """One of the bench's own, until it ends."""
        done = subprocess.run([self.bench / name, *map(str, args)], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        if done.returncode:
            raise Failed(f'{name}: exit {done.returncode}: {done.stderr.strip()}')

    def now(self):
        return int(self.clock.ask('now')[0]) if self.clock else time.monotonic_ns()

    def zones_of(self, groups, rows):
        """The first `rows` data zones of each group, turn and turn about, as fio's engine stripes over them."""
        table = {g['id']: g['zones'] for g in self.ctl('groups')['groups']}
        meta = self.ctl('status')['geometry']['metadata_zones']
        lanes = [[z for z in table[g] if z >= meta][:rows] for g in groups]
        return [lane[r] for r in range(rows) for lane in lanes]

    def reserve(self, name, nr, what='groups'):
        return self.ctl('reserve', name, f'--{what}', nr)['groups']

    # ---- jobs ----

    def fio(self, name, zones, width=1, rw='write', bs='256k', depth=4, rate=None, seconds=3.0, start_s=0.0, **more):
        self.serial += 1
        log = self.dir / f'fio{self.serial}.log'
        options = {'name': name, 'ioengine': f'external:{self.bench}/zns-fio.so', 'zns_device': self.device,
                   'zns_zones': ','.join(map(str, zones)), 'zns_width': width, 'zns_log': log, 'rw': rw, 'bs': bs,
                   'iodepth': depth, 'time_based': 1, 'runtime': f'{round(seconds * 1000)}ms', 'thread': 0,
                   'clocksource': 'clock_gettime', 'randrepeat': 1, 'group_reporting': 1}
        if rate:
            options['rate'] = f'{rate}m'
        options.update(more)
        command = [self.fio_bin, '--eta=never', '--output-format=json', *(f'--{k}={v}' for k, v in options.items())]
        job = Job(name, command, start_s, {'ZNS_EMU_DATA': 'none'})
        job.log = log
        return job

    def dump(self, container, mib, qos, start_s=0.0, to=None, seed=1, **options):
        where = self.dir / (to or container)
        command = [self.bench / 'ckptload', 'dump', container, mib, qos, where, '--seed', seed]
        for key, value in options.items():
            command += [f'--{key}', value]
        return Job(container, command, start_s)

    def restore(self, container, start_s=0.0, seed=1, **options):
        command = [self.bench / 'ckptload', 'restore', self.dir / container, '--seed', seed]
        for key, value in options.items():
            command += [f'--{key}', value]
        return Job(container, command, start_s)

    def compact(self, *options, start_s=0.0):
        """znsctl compact; its result is what it prints, and when it ran: start_s, end_s."""
        job = Job('compaction', [self.bench / 'ckptload', 'exec', self.bin / 'znsctl', 'compact', '--json', *options], start_s)
        job.plain = True
        return job

    def run(self, jobs):
        """All of them, each at its time from a common beginning; their results in order, times in s from there."""
        wall = time.monotonic()
        if self.clock:
            self.clock.ask('hold')
        begin = self.now() + (LEAD_NS if self.clock else 20 * LEAD_NS)
        starts = {begin + round(job.start_s * 1e9) for job in jobs}
        procs, done = [], []
        for job in jobs:
            at = begin + round(job.start_s * 1e9)
            fio = job.log is not None
            if job.program:
                procs.append(job.program.begin(at))
                continue
            command = [*map(str, job.command), *([f'--zns_start={at}'] if fio else ['--at', str(at)])]
            procs.append(subprocess.Popen(command, env={**self.env, **job.env}, cwd=self.dir, stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        if self.clock:
            self.clock.ask(f'go {sum(job.sleepers for job in jobs)} {" ".join(map(str, starts))}')
        for job, proc in zip(jobs, procs):
            if job.program:
                done.append(job.program.end(begin))
                continue
            try:
                out, err = proc.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                for other in procs:
                    other.kill()
                raise Failed(f'{job.name} does not end') from None
            if proc.returncode:
                for other in procs:
                    other.kill()
                raise Failed(f'{job.name}: exit {proc.returncode}: {err.strip()[-400:]}')
            done.append(Fio(job, out, begin) if job.log else printed(out, begin) if job.plain else Checkpoint(job, out, begin))
        self.last_wall_s = time.monotonic() - wall
        return done


def printed(out, begin):
    """Of `ckptload exec`: what the program printed, with its times in s from the common beginning."""
    found, times = out.rstrip().rsplit('\n', 1)
    times = json.loads(times)
    return {**json.loads(found), 'start_s': (times['start_ns'] - begin) / 1e9, 'end_s': (times['end_ns'] - begin) / 1e9}


class Checkpoint:
    """A dump or a restore: its times in s from the common beginning."""

    def __init__(self, job, out, begin):
        found = json.loads(out)
        self.name, self.bytes = job.name, found['bytes']
        self.start = (found['start_ns'] - begin) / 1e9
        self.admitted = (found['admitted_ns'] - begin) / 1e9
        self.end = (found['end_ns'] - begin) / 1e9
        self.said = found.get('admitted', ''), found.get('committed', '')
        self.samples = [((ns - begin) / 1e9, done) for ns, done in found.get('samples', [])]
        self.rate = self.mibps      # of a dump, its data phase alone, where somebody asks for it

    @property
    def latency(self):
        return self.end - self.start

    @property
    def mibps(self):
        return self.bytes / MIB / (self.end - self.admitted)

    def done_at(self, when):
        """Bytes that a restore had brought by then, by its samples."""
        before = [(0, 0), *[x for x in self.samples if x[0] <= when]][-1]
        after = next((x for x in self.samples if x[0] > when), (self.end, self.bytes))
        if after[0] <= before[0]:
            return after[1]
        return before[1] + (after[1] - before[1]) * min(1, (when - before[0]) / (after[0] - before[0]))

    def within(self, start, end):
        """MiB/s of a restore in this time."""
        return (self.done_at(end) - self.done_at(start)) / MIB / (end - start)


class Fio:
    """A fio job: every I/O as (issued, done, bytes), in s from the common beginning."""

    def __init__(self, job, out, begin):
        self.name = job.name
        self.json = json.loads(out[out.index('{'):])['jobs'][0]
        rows = [line.split() for line in job.log.read_text().splitlines()]
        if not rows:
            raise Failed(f'{job.name} did nothing')
        self.ios = [((int(r[0]) - begin) / 1e9, (int(r[1]) - begin) / 1e9, int(r[3])) for r in rows]
        job.log.unlink()

    def within(self, start, end):
        return [io for io in self.ios if start <= io[1] < end]

    def mibps(self, start, end):
        return sum(io[2] for io in self.within(start, end)) / MIB / (end - start)

    def latency_ms(self, start, end, *percent):
        """Latencies of the I/Os issued in this time."""
        found = sorted((io[1] - io[0]) * 1e3 for io in self.ios if start <= io[0] < end)
        if not found:
            raise Failed(f'{self.name}: no I/O from {start} to {end} s')
        return [found[min(len(found) - 1, int(len(found) * p / 100))] for p in percent]

    def series(self, step, end):
        """(time, MiB/s) per step."""
        sums = [0] * (int(end / step) + 1)
        for _, done, size in self.ios:
            if 0 <= done < end:
                sums[int(done / step)] += size
        return [((i + 0.5) * step, s / MIB / step) for i, s in enumerate(sums[:int(end / step)])]
