#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
docker_five.py [--rounds N] [--small] [--report DIR]: the papers' five containers (shell, Redis, nginx, FerretDB,
MariaDB; each with data and a connected client), checkpointed alone and all at once, by `docker checkpoint create`.

Three stages, one after the other, under one daemon:
  disk    stock runtime (runc and the same criu without zones) and runtime zns with QoS 500 on a device without timing,
          both on the same disk, in changing order; then stopped and started from the checkpoint, alone and at once
  zns     zns on the timing model of 32 dies, all rates divided by 10: QoS 50, so that two cores can carry it
  shared  the control: the same rates, but every zone over all dies
Each container checks its data and its connected client at the end of a stage. It judges no times: it fails only when
a container is not what it was.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'docker'))
from dkdaemon import BIN, Daemon, Failed, rootfs  # noqa: E402
from dkwork import WORKS  # noqa: E402

MIB = 1 << 20
SCALE = 10
BIG = {'redis': {'keys': 200000}, 'ferretdb': {'docs': 50000}, 'mariadb': {'pool': 192, 'rows': 300000}}
# 32 dies of 10 MiB/s; and one domain with a tenth of the conventional profile's rate.
MODELS = {'zns': ['--profile', 'paper-conf', '--die-write-bw', '10', '--die-read-bw', '40', '--channel-bw', '80'],
          'shared': ['--profile', 'conventional', '--die-write-bw', '3', '--die-read-bw', '3', '--channel-bw', '80']}
PLAIN = ['--label', 'zns.live=no']     # as the papers do: the containers are frozen while memory is written
BUSY = 'already exists'     # moby#42900: containerd still holds something of the last checkpoint


def at_once(works, fn):
    """Calls fn(work) for all in parallel; returns the results by name."""
    got, errors = {}, []

    def one(w):
        try:
            got[w.name] = fn(w)
        except Exception as e:      # reported by the caller's thread
            errors.append(e)

    threads = [threading.Thread(target=one, args=(w,)) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return got


class Stage:
    def __init__(self, d, runtime, options, sizes):
        self.d, self.runtime, self.serial, self.retries = d, runtime, 0, 0
        # one after another: their starts are not measured, and five databases at once would take long on two cores
        self.works = [w(d, f'{runtime}-{w.name}', options, runtime, sizes.get(w.name)) for w in WORKS]
        self.wall = {k: {w.name: [] for w in self.works} for k in ('alone', 'at once', 'start alone', 'start at once')}
        self.rate = {k: {w.name: [] for w in self.works} for k in ('alone', 'at once')}
        self.last = {}

    def create(self, w, kind, leave=True):
        """Makes one checkpoint. If containerd's race makes it fail it is tried again, and only the successful try counts."""
        d = self.d
        for attempt in range(60):
            self.serial += 1
            name = f'c{self.serial}'
            start = time.monotonic()
            r = d.docker('checkpoint', 'create', *(['--leave-running'] if leave else []), w.container, name, check=False)
            took = time.monotonic() - start
            if not r.returncode:
                break
            if BUSY not in r.stderr or not leave:
                raise Failed(f'{w.container}: {r.stderr.strip()[-300:]}')
            self.retries += 1
            time.sleep(1)
        else:
            raise Failed(f'{w.container}: containerd never let go of the last checkpoint')
        if self.runtime == 'zns':
            c = max(d.checkpoints(w.container), key=lambda c: c['created_ns'])
            self.last[w.name] = c
            if leave and c['data_phase_us']:
                self.rate[kind][w.name].append(c['page_bytes'] / MIB / (c['data_phase_us'] / 1e6))
        if leave:
            self.wall[kind][w.name].append(took)
            d.docker('checkpoint', 'rm', w.container, name)
        return name

    def forget(self):
        """Removes old checkpoints from the device, and written data from the page cache, before the next are measured."""
        if self.runtime == 'zns':
            for w in self.works:
                for c in sorted(self.d.checkpoints(w.container), key=lambda c: c['created_ns'])[:-1]:
                    self.d.zctl('rm', c['id'])
        subprocess.run(['sync', '-f', self.d.dir], check=True)

    def round(self):
        for w in self.works:
            self.forget()
            self.create(w, 'alone')
        self.forget()
        at_once(self.works, lambda w: self.create(w, 'at once'))
        self.forget()

    def start(self, w, name, kind):
        for attempt in range(120):
            begin = time.monotonic()
            r = self.d.docker('start', '--checkpoint', name, w.container, check=False)
            if not r.returncode:
                self.wall[kind][w.name].append(time.monotonic() - begin)
                return
            if BUSY not in r.stderr:
                raise Failed(f'start of {w.container}: {r.stderr.strip()[-300:]}')
            self.retries += 1
            time.sleep(0.5)
        raise Failed(f'start of {w.container}: containerd never let go of the checkpoint')

    def restores(self):
        """Each is ended by a checkpoint and started from it, alone and then all at once; data and clients are checked."""
        time.sleep(2)       # containerd's copy of the last round's configuration (moby#42900)
        for w in self.works:
            w.remember()
            name = self.create(w, 'alone', leave=False)
            self.start(w, name, 'start alone')
            w.verify()
        time.sleep(2)
        for w in self.works:
            w.remember()
        names = at_once(self.works, lambda w: self.create(w, 'at once', leave=False))
        at_once(self.works, lambda w: self.start(w, names[w.name], 'start at once'))
        for w in self.works:
            w.verify()

    def remove(self):
        self.d.docker('rm', '-f', *[w.container for w in self.works])
        if self.runtime == 'zns':
            for w in self.works:
                self.d.zctl('rm', '--container', w.container, check=False)

    def median(self, kind, name, what='wall'):
        v = getattr(self, what)[kind][name]
        return statistics.median(v) if v else None


def table(head, rows):
    return ['| ' + ' | '.join(r) + ' |' for r in [head, ['---'] * len(head), *rows]] + ['']


def num(v, digits=2):
    return '–' if v is None else f'{v:.{digits}f}'


def over(a, b):
    return '–' if not a or not b else f'{a / b:.2f}'


def disk_tables(stock, zns):
    out = ['## Disk speed: stock runtime and `zns` (QoS 500, no timing model), wall time', '',
           '`docker checkpoint create --leave-running`, s:', '']
    rows = []
    for w in zns.works:
        n = w.name
        a, b = [(s.median('alone', n), s.median('at once', n)) for s in (stock, zns)]
        rows.append([n, num(zns.last[n]['page_bytes'] / MIB, 1), num(a[0]), num(a[1]), over(a[1], a[0]), num(b[0]), num(b[1]),
                     over(b[1], b[0]), over(a[0], b[0]), over(a[1], b[1])])
    out += table(['container', 'pages, MiB', 'stock alone', 'stock at once', 'x', 'zns alone', 'zns at once', 'x',
                  'stock / zns alone', 'stock / zns at once'], rows)
    out += ['`docker start --checkpoint`, s:', '']
    rows = []
    for w in zns.works:
        n = w.name
        a, b = [(s.median('start alone', n), s.median('start at once', n)) for s in (stock, zns)]
        rows.append([n, num(a[0]), num(a[1]), num(b[0]), num(b[1]), over(a[0], b[0]), over(a[1], b[1])])
    out += table(['container', 'stock alone', 'stock at once', 'zns alone', 'zns at once', 'stock / zns alone',
                  'stock / zns at once'], rows)
    return out


def model_table(title, s, qos):
    out = [f'## {title}', '', f'QoS {qos}, the device\'s timing model in real time. Rate: pages over the data phase, as the checkpoint\'s '
           'record has it; a data phase under a second is not rated.', '']
    rows = []
    for w in s.works:
        n, c = w.name, s.last[w.name]
        a, b = s.median('alone', n, 'rate'), s.median('at once', n, 'rate')
        if (c['data_phase_us'] or 0) < 1000000:
            a = b = None        # too short to compute a rate
        rows.append([n, num(c['page_bytes'] / MIB, 1), num(c['data_phase_us'] / 1e6 if c['data_phase_us'] else None), num(a, 1), num(b, 1),
                     over(b, a), num(s.median('alone', n)), num(s.median('at once', n))])
    return out + table(['container', 'pages, MiB', 'data phase at once, s', 'alone, MiB/s', 'at once, MiB/s', 'at once / alone',
                        'docker alone, s', 'docker at once, s'], rows)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--small', action='store_true', help='the sizes of the test suite')
    p.add_argument('--report', type=Path, default=BIN.parent / 'report' / 'bench-docker-five')
    args = p.parse_args()
    sizes = {} if args.small else BIG
    rootfs()
    began = time.monotonic()
    stages = {}
    with Daemon(device_args=('--zones', '96', '--zone-size', '64M', '--prealloc', 'written')) as d:
        stock = d.dir / 'stock-runc'
        # Docker cannot ask for file locks, which two of the five hold; without them there would be nothing to compare.
        stock.write_text('#!/bin/sh\nfor a; do shift; set -- "$@" "$a"; [ "$a" != checkpoint ] || set -- "$@" --file-locks; done\n'
                         f'PATH={BIN}:$PATH exec runc "$@"\n')
        stock.chmod(0o755)
        j = json.loads(d.config.read_text())
        j['runtimes']['stock'] = {'path': str(stock)}
        d.config.write_text(json.dumps(j))
        d.stop()
        d.start()
        d.make_image()
        pair = [Stage(d, 'stock', [], sizes), Stage(d, 'zns', ['--label', 'zns.qos=500', *PLAIN], sizes)]
        for i in range(args.rounds):
            for s in (pair, pair[::-1])[i % 2]:
                s.round()
            print(f'disk, round {i + 1} of {args.rounds}', flush=True)
        for s in pair:
            s.restores()
            print(f'disk, {s.runtime}: all data and clients are there after restores, alone and at once', flush=True)
        for s in pair:
            s.remove()
        stages['stock'], stages['disk'] = pair
        for kind, model in MODELS.items():
            dev = f'emu:{d.dir}/model-{kind}.img'
            d.zctl('create', dev, '--zones', '128', '--sparse', *model)
            s = Stage(d, 'zns', ['--label', f'zns.qos={500 // SCALE}', '--label', f'zns.dev={dev}', *PLAIN], sizes)
            s.d = Device(d, dev)
            for i in range(args.rounds):
                s.round()
                print(f'{kind}, round {i + 1} of {args.rounds}', flush=True)
            s.restores()
            s.remove()
            stages[kind] = s
    rows = disk_tables(stages['stock'], stages['disk'])
    rows += model_table('32 dies (`paper-conf`), rates divided by 10', stages['zns'], 500 // SCALE)
    rows += model_table('Control: one domain (`conventional`), rates divided by 10', stages['shared'], 500 // SCALE)
    text = '\n'.join(['# The five containers, alone and at once', '',
                      f'{args.rounds} round{"s, medians" if args.rounds > 1 else ""}; {os.cpu_count()} CPUs, kernel {platform.release()}, load {os.getloadavg()[0]:.1f} '
                      f'at the end, {time.monotonic() - began:.0f} s in all. Retries for moby#42900: '
                      f'{", ".join(f"{k} {s.retries}" for k, s in stages.items())}. '
                      'Data and connected client of every container were checked after its restores.', '', *rows])
    args.report.mkdir(parents=True, exist_ok=True)
    (args.report / 'report.md').write_text(text)
    (args.report / 'results.json').write_text(json.dumps({k: {'wall_s': s.wall, 'rate_mibps': s.rate} for k, s in stages.items()}, indent=1))
    print('\n' + text)
    return 0


class Device:
    """The daemon, with znsctl for another device."""

    def __init__(self, d, dev):
        self.d, self.dev = d, dev

    def __getattr__(self, name):
        return getattr(self.d, name)

    def zctl(self, command, *args, **more):
        return self.d.zctl(command, *args, '--dev', self.dev, **more)

    def checkpoints(self, container):
        found = json.loads(self.zctl('ls', '--json').stdout)['checkpoints']
        return [c for c in found if c['container'] == container]


if __name__ == '__main__':
    try:
        sys.exit(main())
    except Failed as e:
        print(f'bench-docker-five: {e}', file=sys.stderr)
        sys.exit(1)
