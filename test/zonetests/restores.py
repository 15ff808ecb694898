#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
restores: many real restores of one checkpoint at once, through memory that they share: each gets the right memory,
whichever process dies, and the device is read once.

  restores.py list | run NAME... | run -a
"""
import signal
import sys
import time
from pathlib import Path

from crypt import new_key
from ztclones import Clones
from ztfds import hot_bytes
from ztlib import Failed, kill, wait_until
from ztscene import case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)
SIZE = 48           # MiB of memory of the process
CAP = 6             # MiB/s: restores without a cap have ended long before, also on a busy machine
ALLOWED = 1.2       # limit: device reads of all restores together, as a multiple of those of one


# ---- help ----------------------------------------------------------------------------------------------

def criu_command(scene, images=None, options=()):
    def command(clone):
        return [scene.cfg.criu, 'restore', '--no-default-config', '-D', images or scene.images, '-W', clone.own, '-o', 'criu.log',
                '-v4', '-d', *options]
    return command


def clones(scene, number, **more):
    scene.calls += 1
    return Clones(number, scene.dir / f'clones-{scene.calls}', scene.task, criu_command(scene, **more), scene.device.env,
                  scene.cfg.timeout)


def dumped(scene, **options):
    """A scene with a checkpoint of its task, and a broker that runs outside the clones' namespaces and does not exit."""
    scene = scene(size=SIZE, **options)
    scene.device.env['ZNSD_IDLE_S'] = '600'
    scene.end_broker(signal.SIGTERM)
    scene.good_dump()
    return scene


def all_right(scene, number, **more):
    """Restores @number clones at once; all must have the right memory. Returns the bytes that they read from the device."""
    group = clones(scene, number, **more)
    try:
        group.start()
        group.all_end_well()
        expect('number of clones whose memory is right', group.verify(), number)
        return group.bytes_read()
    finally:
        group.end()


def quiet(scene):
    """Waits until the broker has forgotten earlier restores, so that the next restore is alone again."""
    if not wait_until(lambda: shared(scene) is None, 15, 0.1):
        raise Failed('the broker keeps the memory of restores that have ended')


def shared(scene):
    """Bytes of the shared memory that znsd holds now; None: it has none."""
    return hot_bytes(scene.broker_pid())


def configure(scene, key, value):
    with open(Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf', 'a', encoding='ascii') as f:
        f.write(f'{key} = {value}\n')


# ---- cases ---------------------------------------------------------------------------------------------

def stops_itself(scene, group):
    """The helpers of these clones will stop at their third read, and nothing kills them for that."""
    scene.patient()
    for clone in group.all:
        clone.env = scene.faulty(None, 'stop-read-after=2')
    return group


def look_at_cache(scene):
    cache = scene.device.status()['restore_cache']
    expect('wrong units', cache['wrong'], 0)
    if cache['given'] < 8 * cache['read'] or not SIZE << 19 < cache['used'] <= cache['limit'] + (1 << 20):
        raise Failed(f'znsctl status says {cache}')
    expect('a line of znsctl status', 'restore cache' in run_ctl(scene, 0, 'status'), True)


@case
def at_once(scene):
    """twelve restores at once: each has its own name and address and the right memory; the device is read once; a single restore shares
    nothing
    """
    scene = dumped(scene)
    alone = all_right(scene, 1)
    if shared(scene) > 64 << 10:        # the shared memory's header
        raise Failed(f'a single restore filled {shared(scene)} bytes of shared memory')
    one_more = stops_itself(scene, clones(scene, 1))        # while it lasts the broker keeps the shared memory
    try:
        one_more.start()
        scene.at_barrier()
        together = all_right(scene, 12)
        look_at_cache(scene)
    finally:
        scene.go_on()
        one_more.wait()
        one_more.end()
    if not any('read by other restores' in p.read_text() for p in scene.dir.glob('clones-*/clone-*/criu.log')):
        raise Failed('no restore says what came from others')
    print(f'     one reads {alone >> 10} KiB, twelve {together >> 10} KiB: {together / alone:.2f}', flush=True)
    if together > ALLOWED * alone:
        raise Failed(f'twelve restores read {together / alone:.2f} times what one reads')


@case
def switched_off(scene):
    """the broker frees shared memory some seconds after the last restore; with restore-cache = 0 each restore reads the device itself"""
    scene = dumped(scene)
    alone = all_right(scene, 1)
    quiet(scene)
    configure(scene, 'restore-cache', '0')
    several = all_right(scene, 4)
    expect('shared memory', shared(scene), None)
    if several < 3.5 * alone:
        raise Failed(f'four restores without shared memory read only {several / alone:.2f} times what one reads')


@case
def small_memory(scene):
    """shared memory for a quarter of the checkpoint: the limit is kept, and all memory is right"""
    scene = dumped(scene)
    configure(scene, 'restore-cache', f'{SIZE // 4}M')
    group = clones(scene, 8)
    try:
        group.start()
        most = 0
        while not all(c.settled() for c in group.all):
            most = max(most, shared(scene) or 0)
            time.sleep(0.01)
        group.all_end_well()
        expect('number of clones whose memory is right', group.verify(), 8)
    finally:
        group.end()
    print(f'     at most {most >> 20} MiB of {SIZE // 4}', flush=True)
    if most > (SIZE // 4 + 1) << 20:
        raise Failed(f'{most} bytes are shared, {SIZE // 4} MiB are allowed')
    if not most:
        raise Failed('nothing was shared at all')


@case
def encrypted(scene):
    """an encrypted checkpoint: it is shared as encrypted on the device, and each restore decrypts for itself"""
    scene = scene(size=SIZE)
    scene.device.env['ZNSD_IDLE_S'] = '600'
    scene.end_broker(signal.SIGTERM)
    spec, _ = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    scene.good_dump()
    alone = all_right(scene, 1)
    together = all_right(scene, 8)
    if together > ALLOWED * alone:
        raise Failed(f'eight restores read {together / alone:.2f} times what one reads')


@case
def dead_helpers(scene):
    """kill -9 of helpers half-way: their restores fail, all others are right, and none hangs"""
    scene = dumped(scene)
    for delay in (0.05, 0.15, 0.3, 0.5):
        group = clones(scene, 10)
        try:
            group.start()
            time.sleep(delay)
            killed = [pid for pid in scene.helpers()[:4] if kill(pid)]
            failed = group.wait()
            if failed > len(killed):
                raise Failed(f'{failed} restores failed, {len(killed)} helpers were killed')
            right = group.verify()
            print(f'     after {delay} s: {len(killed)} helpers killed, {failed} restores failed, {right} right', flush=True)
            expect('right and failed ones', right + failed, 10)
        finally:
            group.end()
        scene.no_helpers()


@case
def stopped_helpers(scene):
    """helpers are stopped while they read units for all: the others go on without them"""
    scene = dumped(scene)
    configure(scene, 'deadline', '120')     # otherwise guards would kill stopped helpers on a busy machine
    group = clones(scene, 8)
    try:
        group.start()
        if not wait_until(lambda: scene.helpers(), 20, 0.002):
            raise Failed('no helper came')
        time.sleep(0.1)
        stopped = scene.helpers()[:2]
        for pid in stopped:
            kill(pid, signal.SIGSTOP)
        wait_until(lambda: sum(c.settled() for c in group.all) >= 6, 30)
        expect('restores that ended without those', sum(c.settled() for c in group.all) >= 6, True)
        for pid in stopped:
            kill(pid, signal.SIGCONT)
        group.all_end_well()
        expect('number of clones whose memory is right', group.verify(), 8)
    finally:
        group.end()


@case
def dead_broker(scene):
    """kill -9 of the broker in the middle: restores read on; the next ones share memory of a new broker"""
    scene = dumped(scene)
    group = stops_itself(scene, clones(scene, 8))
    try:
        group.start()
        # until all have begun, since a restore that begins without a broker may fail
        if not wait_until(lambda: len(scene.stopped_helpers()) == 8):
            raise Failed(f'of eight helpers {len(scene.stopped_helpers())} came to their barrier')
        expect('restores', sum(l['kind'] == 'restore' for l in scene.device.status()['leases']), 8)
        kill(scene.broker_pid())
        scene.go_on()
        group.all_end_well()
        expect('number of clones whose memory is right', group.verify(), 8)
    finally:
        group.end()
    scene.device.status()
    all_right(scene, 4)


@case
def next_checkpoint(scene):
    """checkpoints that take turns in the same zones: a restore never gets shared memory of the checkpoint before"""
    scene = dumped(scene)
    for _ in range(3):
        all_right(scene, 3)
        old = scene.device.checkpoints()[-1]['id']
        scene.device.remove(old)
        run_ctl(scene, 0, 'gc')
        task = scene.new_task(SIZE)
        scene.task = task
        scene.images = scene.dir / f'images-{scene.calls}'
        scene.images.mkdir()
        scene.good_dump()
    all_right(scene, 3)


@case
def capped(scene):
    """a cap counts all bytes that a restore gets, and slows down no other restore"""
    scene = dumped(scene)
    group = clones(scene, 4)
    slow = group.all[0]
    slow.command += ['--zns-qos-max', str(CAP)]
    try:
        group.start()
        group.all_end_well()
        expect('number of clones whose memory is right', group.verify(), 4)
        took = (slow.ended_ns - slow.started_ns) / 1e9
        if took < SIZE / CAP * 0.9:     # a busy machine only makes it take longer
            raise Failed(f'{SIZE} MiB at {CAP} MiB/s came in {took:.2f} s')
        expect('restores that ended before the capped one', sum(c.ended_ns < slow.ended_ns for c in group.all[1:]), 3)
    finally:
        group.end()


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'restores', CASES))
