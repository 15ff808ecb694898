#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
live: iterative live migration. While the task runs, rounds of `pre-dump --page-server` bring its memory into the
receiver's zones; the last dump brings what changed since, and the task is restored from those zones. Memory is tracked
by soft-dirty bits (test/vm/65-live.test.sh in a guest, live-bench.sh the comparison) or, from Linux 6.7 on, by the
helper; cases of the helper's trackers are in rounds.py.

  live.py list | run NAME... | run -a
  live.py bench [--size MB] [--rounds N] [--runs N] [--format DEV]     downtime beside a plain migration, stock's and
ours
"""
import argparse
import shutil
import signal
import statistics
import sys
import time

import ztlib
from incremental import ROOM, bench_scene, tracked
from migration import HERE, Daemon, copy_images, free_port
from ztchain import Chain, plain_images, stat_of
from ztlib import Failed, HANDLE
from ztscene import case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
ROUNDS = 3


class Live:
    """A task that is sent in rounds. The receiver has zones, or files if @stock."""

    def __init__(self, scene, program='dirty', flavour='h', size=None, stock=False):
        self.scene, self.stock = scene, stock
        self.chain = Chain(scene, program, flavour, size=size, stock=True, name='stock' if stock else 'live')
        self.task, self.dir, self.nr, self.ids = self.chain.task, self.chain.dir, 0, []

    def received(self, n):
        return self.dir / f'received-{n}'

    def server(self, parent=None, extra=()):
        received, port = self.received(self.nr), free_port()
        received.mkdir(exist_ok=True)
        args = ['page-server', '-D', received, '--address', HERE, '--port', port, *extra]
        if not self.stock:
            args += ['--zns-qos', '500', '--zns-container', 'live']
        if isinstance(parent, int):
            args += ['--prev-images-dir', f'../{self.received(parent).name}']
        elif parent:
            args += ['--zns-parent', parent]
        return port, args

    def try_round(self, kind, parent=None, sent_parent=None, extra=()):
        """One round: the outcomes of sender and receiver."""
        port, args = self.server(parent)
        server = Daemon(self.scene, args)
        sent_parent = self.nr - 1 if sent_parent is None and self.nr else sent_parent
        options = ['--track-mem', '--page-server', '--address', HERE, '--port', str(port), *extra]
        done = self.chain.try_dump(kind, sent_parent, options)
        return done, server.end()

    def round(self, kind='pre-dump', by_id=False, extra=()):
        parent = None if not self.nr else self.ids[-1] if by_id else self.nr - 1
        done, outcome = self.try_round(kind, parent, extra=extra)
        if done.code or outcome.code:
            raise Failed(f'round {self.nr}: {kind} {done.code}, page server {outcome.code}: '
                         f'{" | ".join((done.lines("Error") + outcome.lines("Error"))[-4:])}')
        if not self.stock:
            for directory in (self.received(self.nr), self.chain.images(self.nr)):
                expect('pages images', plain_images(directory), [])
            new = [c['id'] for c in self.scene.device.checkpoints() if c['id'] not in self.ids]
            expect('checkpoints of a round', len(new), 1)
            self.ids += new
        self.nr += 1
        self.chain.nr = self.nr
        return self.nr - 1

    def record(self, n):
        return self.chain.record(self.ids[n])

    def send(self, by_id=False, extra=(), rounds=ROUNDS):
        """Sends everything; returns the last round's number. The task is gone, and its other images are at the receiver."""
        for _ in range(rounds):
            self.round(by_id=by_id, extra=extra)
            self.chain.step()
        last = self.round('dump', by_id)
        self.chain.gone()
        copy_images(self.chain.images(last), self.received(last))
        return last

    def check_rounds(self, last):
        for n in range(1, last + 1):
            expect('parent', self.record(n)['parent'], self.ids[n - 1])
            if self.record(n)['page_bytes'] > self.record(0)['page_bytes'] / 4:
                raise Failed(f'round {n} has {self.record(n)["page_bytes"]} bytes, the first one {self.record(0)["page_bytes"]}')

    def forget(self, last):
        """Removes what a receiver does not need: everything of the sender's, and the directories of earlier rounds."""
        for n in range(last + 1):
            shutil.rmtree(self.chain.images(n))
        for n in range(last):
            shutil.rmtree(self.received(n))


def migrated(scene, by_id=False, extra=(), flavour='h'):
    live = Live(scene(ROOM, 1), flavour=flavour)
    last = live.send(by_id, extra)
    live.check_rounds(last)
    live.forget(last)
    live.chain.restore(live.received(last))
    return live, last


@case
def by_directories(scene):
    """three rounds and a dump, each based on the receiver's directory of the round before; restored without those directories."""
    migrated(scene)


@case
def by_ids(scene):
    """three rounds and a dump, with --zns-parent at the receiver."""
    migrated(scene, by_id=True)


@case
def reading(scene):
    """the rounds read the running task's memory (--pre-dump-mode read)."""
    migrated(scene, extra=['--pre-dump-mode', 'read'])


@case
def in_namespaces(scene):
    """a task in namespaces of its own."""
    migrated(scene, flavour='ns')


@case
def joined(scene):
    """after `import --join`: restored from the handle alone and by id, verified, flattened; then the rounds can be removed."""
    live, last = migrated(scene)
    live.chain.end_task()
    device = live.scene.device
    device.json('import', '--join', live.received(last))
    for p in live.received(last).iterdir():
        if p.name != HANDLE:
            p.unlink()
    live.chain.restore(live.received(last))
    live.chain.end_task()
    live.chain.by_id(live.ids[last])
    live.chain.end_task()
    device.json('verify', '--all')
    if device.ctl('rm', live.ids[0]).returncode == 0:
        raise Failed('a round that others are built on was removed')
    device.json('flatten', live.ids[last])
    device.remove(*live.ids[:last])
    live.chain.by_id(live.ids[last])


@case
def goes_wrong(scene):
    """a round's pages alone cannot be restored; if the receiver dies the task runs on, and the next round succeeds."""
    live = Live(scene(ROOM, 1))
    live.round()
    live.chain.try_restore(live.received(0)).must_fail('only the pages of this checkpoint have come')
    live.chain.step()
    before = live.scene.ids()
    port, args = live.server(0)
    server = Daemon(live.scene, args)
    server.stop()
    options = ['--track-mem', '--page-server', '--address', HERE, '--port', str(port)]
    done = live.chain.try_dump('pre-dump', 0, options)
    if done.code == 0:
        raise Failed('a pre-dump succeeded without its page server')
    expect('checkpoints', live.scene.ids(), before)
    live.task.verify(signal.SIGUSR1)
    # Pages that this round has marked clean were sent nowhere, so the next round must begin anew.
    shutil.rmtree(live.chain.images(live.nr))
    shutil.rmtree(live.received(live.nr))
    live.nr, live.ids = live.nr + 1, live.ids + ['-']
    live.chain.nr = live.nr
    port, args = live.server()
    server = Daemon(live.scene, args)
    done = live.chain.try_dump('dump', None, ['--page-server', '--address', HERE, '--port', str(port)])
    expect('exit codes of dump and page server', (done.code, server.end().code), (0, 0))
    live.chain.gone()
    copy_images(live.chain.images(live.nr), live.received(live.nr))
    live.chain.restore(live.received(live.nr))


# ---- downtime ------------------------------------------------------------------------------------------

def one_run(scene, size, rounds, stock):
    """Returns (seconds from the freeze to the end of the restore, seconds in all); copying the images is included."""
    live = Live(scene, size=size, stock=stock)
    begin = time.monotonic()
    for _ in range(rounds):
        live.round()
    paused = time.monotonic()
    live.chain.step()           # writes one page in a hundred; its duration is not measured
    paused = time.monotonic() - paused
    sending = time.monotonic()
    last = live.round('dump')
    sent = time.monotonic()
    live.chain.gone()
    copy_images(live.chain.images(last), live.received(last))
    frozen = stat_of(live.dir)['frozen'] / 1e6
    done = live.chain.try_restore(live.received(last))
    if done.code:
        raise Failed(f'restore: {" | ".join(done.lines("Error")[-3:])}')
    end = time.monotonic()
    live.task.verify(signal.SIGUSR1)
    live.chain.end_task()
    if not stock:
        live.scene.device.remove(*reversed(live.ids))
    shutil.rmtree(live.dir)
    return {'last round': sent - sending, 'downtime': end - sent + frozen, 'total': end - begin - paused}


def bench():
    parser = argparse.ArgumentParser()
    parser.add_argument('command')
    parser.add_argument('--size', type=int, default=64, metavar='MB')
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--qos', default='500')
    ztlib.common_options(parser)
    args = parser.parse_args()
    scene = bench_scene(args)
    ways = {'plain, files': (0, True), 'rounds, files': (args.rounds, True), 'plain, zones': (0, False),
            'rounds, zones': (args.rounds, False)}
    found = {way: [] for way in ways}
    try:
        for n in range(args.runs):
            for way in (ways if n % 2 == 0 else reversed(ways)):
                found[way].append(one_run(scene, args.size, *ways[way]))
    finally:
        scene.close()
        scene.cfg.close()
    print(f'{args.size} MiB, {args.rounds} rounds before the dump, 1 % of the pages written before it; medians of {args.runs}, s')
    for way, runs in found.items():
        print(f'{way:16}' + ''.join(f'{k} {statistics.median(r[k] for r in runs):8.3f}   ' for k in runs[0]))
    return 0


if __name__ == '__main__':
    if sys.argv[1:2] != ['list'] and not tracked() and (not ztlib.helper_tracks() or sys.argv[1:2] == ['bench']):
        sys.exit('live: this kernel does not track dirty memory (CONFIG_MEM_SOFT_DIRTY); run it in a guest: make test-vm')
    sys.exit(bench() if sys.argv[1:2] == ['bench'] else suite_main(__doc__, 'live', CASES))
