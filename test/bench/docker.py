#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
docker.py [--rounds N] [--mib N] [--no-loop] [--report DIR]: docker checkpoint create and docker start --checkpoint, with
a stock runtime (runc and criu without zones) and with runtime zns, in changing order under one daemon.

All files are on a file system of their own on a loop device, so that its counters tell exactly what was written. Each
operation begins after a sync, and what it leaves unwritten is synced after the clock has stopped and then counted.
"""
import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'docker'))
import kept  # noqa: E402
from dkdaemon import BIN, Daemon, Failed, rootfs, sh  # noqa: E402
from dkwork import Work  # noqa: E402

OPS = ('leave-running', 'create', 'start')
WHAT = ('wall_s', 'frozen_s', 'written_mb', 'dockerd_cpu_s', 'containerd_cpu_s')


class Subject(Work):
    """A program with private memory that no process shares, a hash of it on request, and the longest time for which it did not run."""
    name = 'subject'
    SCRIPT = '''
import hashlib, os, signal, threading, time
m = bytearray(os.urandom({mib} << 20)); gap = 0.0
def tell(*a):
    global gap
    h = hashlib.sha256(m).hexdigest() if a[0] == signal.SIGUSR1 else '-'
    open('/data/new', 'w').write(h + ' ' + str(gap)); os.rename('/data/new', '/data/told'); gap = 0.0
    global last; last = time.monotonic()
signal.signal(signal.SIGUSR1, tell); signal.signal(signal.SIGUSR2, tell)
open('/data/up', 'w'); last = time.monotonic()
while True:
    time.sleep(0.001); now = time.monotonic(); gap = max(gap, now - last); last = now
'''

    def __init__(self, d, container, mib, runtime, *options):
        self.d, self.container = d, container
        d.run(container, 'python3', '-c', self.SCRIPT.format(mib=mib), runtime=runtime, options=['--label', 'zns.qos=500', *options])
        self.wait('test -e /data/up', 'process')

    def ask(self, signal):
        self.exec('rm', '-f', '/data/told')
        self.d.docker('kill', '-s', signal, self.container)
        told = self.wait('cat /data/told', 'answer').split(' ')
        return told[0], float(told[1])


class Disk:
    """A file system of our own, whose sectors are counted."""

    def __init__(self, loop):
        self.loop = loop
        self.base = Path(tempfile.mkdtemp(prefix='zns-bench-docker-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        self.dev = None

    def __enter__(self):
        if not self.loop:
            return self
        image = self.base / 'disk.img'
        sh('fallocate', '-l', '16G', image)
        self.dev = sh('losetup', '--show', '--direct-io=on', '-f', image).stdout.strip()
        sh('mkfs.ext4', '-q', '-F', '-E', 'lazy_itable_init=0,lazy_journal_init=0', self.dev)
        (self.base / 'mnt').mkdir()
        sh('mount', self.dev, self.base / 'mnt')
        return self

    @property
    def dir(self):
        return self.base / 'mnt' if self.loop else self.base

    def __exit__(self, *exc):
        if self.dev:
            for _ in range(50):
                if not sh('umount', self.base / 'mnt', check=False).returncode:
                    break
                time.sleep(0.2)
            sh('losetup', '-d', self.dev, check=False)
        shutil.rmtree(self.base, ignore_errors=True)

    def sync(self):
        sh('sync', '-f', self.dir)

    def written_mb(self):
        if not self.dev:
            return float('nan')
        for line in open('/proc/diskstats'):
            f = line.split()
            if f[2] == Path(self.dev).name:
                return int(f[9]) * 512 / 1e6
        raise Failed(f'{self.dev} is not in /proc/diskstats')


def cpu(pids):
    total = 0
    for pid in pids:
        f = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        total += int(f[11]) + int(f[12])
    return total / os.sysconf('SC_CLK_TCK')


class Bench:
    def __init__(self, d, disk, mib):
        self.d, self.disk, self.mib, self.images = d, disk, mib, []
        self.find_daemons()
        self.live = {w: [] for w in ('wall_s', 'frozen_s')}
        self.values = {(r, o): {w: [] for w in WHAT} for r in ('stock', 'zns') for o in OPS}

    def find_daemons(self):
        self.dockerd = [self.d.proc.pid]
        self.containerd = [int((self.d.dir / 'exec/containerd/containerd.pid').read_text())]

    def measure(self, runtime, op, fn, frozen=None):
        self.disk.sync()
        w, a, b = self.disk.written_mb(), cpu(self.dockerd), cpu(self.containerd)
        start = time.monotonic()
        fn()
        wall = time.monotonic() - start
        v = self.values[runtime, op]
        v['wall_s'].append(wall)
        v['dockerd_cpu_s'].append(cpu(self.dockerd) - a)
        v['containerd_cpu_s'].append(cpu(self.containerd) - b)
        if frozen:
            v['frozen_s'].append(frozen())
        self.disk.sync()
        v['written_mb'].append(self.disk.written_mb() - w)

    def try_round(self, runtime):
        """The stock runtime sometimes meets containerd's "already exists" (moby#42900): such a round is repeated."""
        had = {k: {w: len(x) for w, x in v.items()} for k, v in self.values.items()}
        for attempt in range(3):
            try:
                return self.round(runtime)
            except Failed as e:
                if runtime != 'stock' or 'already exists' not in str(e) or attempt == 2:
                    raise
                print(f'stock runtime: {str(e)[-90:]}; the round is done again', flush=True)
                for k, v in self.values.items():
                    for w, x in v.items():
                        del x[had[k][w]:]
                self.clean('bench-stock')

    def clean(self, name):
        d = self.d
        d.docker('rm', '-f', name)
        d.zctl('rm', '--all')
        for left in d.tmp.glob('*checkpoint*'):
            shutil.rmtree(left)
        # containerd frees at its next start what it had held
        d.stop()
        d.start()
        self.find_daemons()
        self.disk.sync()

    def round(self, runtime):
        d, name = self.d, f'bench-{runtime}'
        s = Subject(d, name, self.mib, runtime, '--label', 'zns.live=no')
        before, _ = s.ask('USR1')
        s.ask('USR2')
        self.measure(runtime, 'leave-running', lambda: d.docker('checkpoint', 'create', '--leave-running', name, 'live'),
                     lambda: s.ask('USR2')[1])
        time.sleep(1)
        self.measure(runtime, 'create', lambda: d.docker('checkpoint', 'create', name, 'last'))
        # stock: the archive that containerd keeps by its hash must be gone, or the start fails (moby#42900)
        for attempt in range(120):
            try:
                self.measure(runtime, 'start', lambda: d.docker('start', '--checkpoint', 'last', name))
                break
            except Failed as e:
                if 'already exists' not in str(e) or runtime != 'stock' or attempt == 119:
                    raise
                time.sleep(0.5)
        if runtime == 'zns':
            self.images.append(d.checkpoints(name)[-1]['bytes'])
        if s.ask('USR1')[0] != before:
            raise Failed(f'{runtime}: memory differs after the restore')
        self.clean(name)


    def live_round(self):
        """Label zns.live with --leave-running: how long the process stands still. Docker itself has nothing like it."""
        d, name = self.d, 'bench-live'
        s = Subject(d, name, self.mib, 'zns', '--label', 'zns.live=yes')
        s.ask('USR2')
        self.disk.sync()
        start = time.monotonic()
        d.docker('checkpoint', 'create', '--leave-running', name, 'live')
        self.live['wall_s'].append(time.monotonic() - start)
        self.live['frozen_s'].append(s.ask('USR2')[1])
        if not d.checkpoints(name)[-1].get('live'):
            raise Failed('the checkpoint is no live one')
        self.clean(name)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--mib', type=int, default=447)
    p.add_argument('--no-loop', action='store_true')
    p.add_argument('--report', type=Path)
    args = p.parse_args()
    rootfs()
    with Disk(not args.no_loop) as disk:
        os.environ['TMPDIR'] = str(disk.dir)
        stock = disk.dir / 'stock-runc'
        stock.write_text(f'#!/bin/sh\nPATH={BIN}:$PATH exec runc "$@"\n')
        stock.chmod(0o755)
        with Daemon(device_args=('--zones', '64', '--zone-size', '64M', '--prealloc', 'written'),
                    runtimes={'stock': {'path': str(stock)}}) as d:
            d.make_image()
            b = Bench(d, disk, args.mib)
            for i in range(args.rounds):
                for runtime in (('stock', 'zns'), ('zns', 'stock'))[i % 2]:
                    b.try_round(runtime)
                    print(f'round {i + 1} {runtime}: ' + ', '.join(
                        f'{o} {b.values[runtime, o]["wall_s"][-1]:.2f} s' for o in OPS), flush=True)
                b.live_round()
    print(f'\n{args.mib} MiB container, {args.rounds} alternating rounds, medians; kernel {kept.kernel()}, '
          f'load {os.getloadavg()[0]:.1f}')
    print(f'{"":16}{"":10}' + ''.join(f'{w:>18}' for w in WHAT))
    out = {}
    for op in OPS:
        med = {}
        for runtime in ('stock', 'zns'):
            v = b.values[runtime, op]
            med[runtime] = {w: statistics.median(v[w]) if v[w] else None for w in WHAT}
            print(f'{op:16}{runtime:10}' + ''.join(f'{"-" if med[runtime][w] is None else f"{med[runtime][w]:.3f}":>18}' for w in WHAT))
        ratio = {w: med['stock'][w] / med['zns'][w] if med['zns'][w] else None for w in WHAT}
        print(f'{"":16}{"ratio":10}' + ''.join(f'{"-" if ratio[w] is None else f"{ratio[w]:.1f} x":>18}' for w in WHAT))
        out[op] = {**med, 'ratio': ratio}
    live = {w: statistics.median(v) for w, v in b.live.items()}
    print(f'{"live":16}{"zns":10}{live["wall_s"]:>18.3f}{live["frozen_s"]:>18.3f}   (leave-running with label zns.live=yes)')
    image = statistics.median(b.images) / 1e6
    w = statistics.median(b.values['zns', 'create']['written_mb'])
    print(f'bytes written by a zns create: {w:.0f} MB for a checkpoint of {image:.0f} MB, {w / image:.3f} x')
    if args.report:
        figures = {kept.name_of(op, runtime, what): value for op in OPS for runtime in ('stock', 'zns') for what, value in out[op][runtime].items()}
        figures |= {'live_wall_s': live['wall_s'], 'live_frozen_s': live['frozen_s'], 'image_mb': image}
        kept.keep(args.report, 'make bench-docker', figures, {'medians': out, 'live': live, 'live_values': b.live, 'mib': args.mib, 'image_mb': image,
                                                              'values': {f'{r}/{o}': v for (r, o), v in b.values.items()}},
                  f'# Docker, a container of {args.mib} MiB, medians of {args.rounds} alternating rounds\n\n' + '\n'.join(
                      f'- {name}: {value:.3f}' for name, value in figures.items() if value is not None) + '\n')
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except Failed as e:
        print(f'bench-docker: {e}', file=sys.stderr)
        sys.exit(1)
