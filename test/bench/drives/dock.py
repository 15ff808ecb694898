# SPDX-License-Identifier: GPL-2.0-only
"""
In a guest: `docker checkpoint create` of one container while another one runs fio on the same drive. On zones by our runtime; on
ext4 by stock Docker, runc and stock CRIU, with all that Docker keeps on that drive, as on a host that has one.
"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import load
import scene
from scene import CGROUPS, MIB, REPO, STOCK, WORK, Failed, Group

sys.path[:0] = [str(REPO / 'test/vm'), str(REPO / 'test/docker')]
import dkdaemon  # noqa: E402
import workloads  # noqa: E402

SEES = ['--network', 'none', '-v', '/usr:/usr:ro', '-v', f'{REPO}:{REPO}:ro', '-v', f'{WORK}:{WORK}']
STEP_S = 0.2


class Zoned(workloads.Guest):
    """Docker with checkpoints in zones. The administrator's files set a cap for every dump."""
    at = None

    def __init__(self, device, zone_rate, cap):
        super().__init__(['--force', '--map', 'i % 32', '--zone-write-bw', zone_rate, '--zone-read-bw', 4 * zone_rate], device=device)
        Path('/etc/criu').mkdir(exist_ok=True)
        Path('/etc/criu/default.conf').write_text(f'zns-qos-max {cap}\nzns-stripe {scene.Zones.stripe}\n')
        self.runtime, self.labels = 'zns', ['--label', f'zns.qos={cap}', '--label', 'zns.live=no']

    def ctl(self, *args):
        return self.zjson(*args)

    def places(self, nr):
        return load.on_zones(self, nr)

    def settled(self):
        pass

    def clear(self):
        for c in self.checkpoints():
            self.zctl('rm', c['id'])


class Stock(workloads.Guest):
    """Docker has no option for a rate: the kernel caps the daemon, with criu below it, and not the containers."""
    runtime, labels = 'runc', []

    def __init__(self, way):
        super().__init__(device=way.device)
        self.way, self.at = way, way.at
        shutil.copy(STOCK, '/usr/local/sbin/criu')
        os.environ['TMPDIR'] = str(way.at)

    def install(self):
        self.config.write_text(json.dumps({'log-level': 'warn', 'experimental': True}))

    def start(self):
        group = Group('dockerd')
        group.set('io.max', f'{self.way.number} wbps={self.way.cap * MIB}')
        group.set('cgroup.procs', str(os.getpid()))     # its child processes are in the group, too
        try:
            super().start()
        finally:
            Group('.').set('cgroup.procs', str(os.getpid()))

    def places(self, nr):
        return load.in_files(self.way, nr, 16)

    def settled(self):
        """Waits until everything is on the drive: Docker returns earlier."""
        scene.run('sync', '-f', self.at)

    def clear(self):
        self.settled()


class Fio(load.Fio):
    """fio in a container. `docker run` passes our signal on to it."""

    def launch(self, command):
        name, d = f'fio{load.Fio.serial}', self.daemon
        # the container opens and resets zones
        given = ['-v', f'{d.at}:{d.at}'] if d.at else ['--device', d.device, '--cap-add', 'SYS_ADMIN']
        words = [dkdaemon.DOCKER, 'run', '--rm', '--name', name, *SEES, *given, '-w', WORK, 'work', *command]
        proc = subprocess.Popen([str(w) for w in words], env=d.env, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out,
                                start_new_session=True)

        def group():
            found = d.docker('inspect', '-f', '{{.Id}} {{.State.Running}}', name, check=False).stdout.split()
            return found[1:] == ['true'] and next(CGROUPS.glob(f'**/*{found[0]}*/io.stat'), None)
        self.group = Group(str(dkdaemon.until('fio in a container', group).parent.relative_to(CGROUPS)))
        if CGROUPS / 'dockerd' in self.group.path.parents:
            raise Failed('fio is held to the rate of the daemon')
        return proc


class Others:
    """What was written to the drive, but not by fio: (s, bytes), in a thread of its own."""

    def __init__(self, daemon, fio):
        node = Path('/sys/block') / Path(daemon.device).name
        self.stat, self.number, self.fio = node / 'stat', (node / 'dev').read_text().strip(), fio
        self.zero, self.series, self.over = self.bytes(), [], False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def bytes(self):
        return int(self.stat.read_text().split()[6]) * 512 - (self.fio.group.written(self.number) if self.fio else 0)

    def run(self):
        while not self.over:
            self.series.append((time.monotonic(), self.bytes() - self.zero))
            time.sleep(STEP_S)

    def stop(self):
        self.over = True
        self.thread.join()
        total = self.series[-1][1]
        first, last = (next(t for t, b in self.series if b >= part * total) for part in (0.02, 0.98))
        return first, max(last, first + STEP_S), total


def attempt(daemon, fio, name):
    """Makes a checkpoint. None: containerd still held the configuration of the last one (moby#42900)."""
    others, begin = Others(daemon, fio), time.monotonic()
    try:
        done = daemon.docker('checkpoint', 'create', '--leave-running', 'subject', name, check=False, timeout=scene.LIMIT_S)
        returned = time.monotonic()
        daemon.settled()
    finally:
        first, last, total = others.stop()
    if done.returncode and 'already exists' in done.stderr:
        return None
    if done.returncode:
        raise Failed(f'docker checkpoint create: {done.stderr.strip()[-400:]}')
    return {'start': begin, 'first': first, 'end': last, 'latency_s': returned - begin, 'wrote': total,
            'rate': 0.96 * total / MIB / (last - first)}


def checkpoint(daemon, fio, mib, name):
    """The checkpoint is written between `first` and `end`; `latency_s` is how long the command took."""
    for i in range(5):
        got = attempt(daemon, fio, f'{name}-{i}')
        daemon.clear()
        if got:
            break
        time.sleep(2)
    else:
        raise Failed('docker checkpoint create: containerd never let go of the last one')
    if got['wrote'] < 0.9 * mib * MIB:
        raise Failed(f'a checkpoint of {mib} MiB wrote {got["wrote"] / MIB:.0f}')
    daemon.docker('checkpoint', 'rm', 'subject', f'{name}-{i}')
    return got


def beside(daemon, p, pause):
    """fio in a container with and without checkpoints of another one beside it."""
    with daemon as d:
        d.make_image()
        answers = WORK / 'subject.answers'
        d.run('subject', REPO / 'build/bench/subject', p['mib'], 1, answers, runtime=d.runtime, options=[*SEES[2:], *d.labels])
        dkdaemon.until('the container', lambda: answers.exists() and answers.read_text().startswith('ready'), 300)
        Fio.daemon = d
        places = d.places(5)
        fio = Fio(places, 'write', p['bs_kib'], p['rate'] * MIB // 5 // p['slow'])
        pause(4, p)
        begin, before = time.monotonic(), scene.processor()
        pause(p['alone_s'], p)
        quiet, idle = time.monotonic(), scene.idle_since(before)
        before, dumps = scene.processor(), [checkpoint(d, fio, p['mib'], f'c{i}') for i in range(p['dumps'])]
        busy, jobs = scene.idle_since(before), fio.stop_jobs()
        load.not_filled(jobs, fio.bs, places[0])
        ios = sorted(io for job in jobs for io in job)
        alone = checkpoint(d, None, p['mib'], 'alone')
        first = sorted(took for at, took in ios if begin <= at < quiet)
        return {'alone': [begin, quiet], 'dumps': dumps, 'latency_alone': alone['latency_s'], 'begin': begin,
                'ios': [(round(at - begin, 3), round(took, 6)) for at, took in ios], 'p95_s': first[int(len(first) * 0.95)], 'set': {},
                'idle_alone': idle, 'idle_beside': busy, 'bs': fio.bs}
