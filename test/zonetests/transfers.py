#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
transfers: reads and writes of tasks' memory, and messages on local sockets. In each run one transfer of a dump or
restore fails or is short. Then the run fails as it must, or its result is right: the task is restored and checks its
memory.

  transfers.py list | run NAME... | run -a
"""
import errno
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import ztlib
from ztlib import Failed, alive, wait_until
from ztscene import case_of, suite_main

CASES = {}
case = case_of(CASES)
SHORT = 0
FAILURES = {'task': (SHORT, errno.EIO, errno.EAGAIN, errno.ENOMEM), 'socket': (SHORT, errno.EIO, errno.EAGAIN, errno.ENOMEM, errno.EINTR)}
MOST = 400      # most transfers of one operation; with more the scene is too large for this test


class Transfers:
    """Runs criu so that a transfer of a program fails."""

    def __init__(self, scene, program, kind):
        self.scene, self.kind, self.count = scene, kind, scene.dir / 'transfers'
        lib = scene.dir / 'transfers.so'
        if not lib.exists():
            subprocess.run(['gcc', '-shared', '-fPIC', '-O1', '-o', lib, Path(__file__).with_name('preload') / 'transfers.c', '-ldl'],
                           check=True)
        self.env = dict(scene.device.env, LD_PRELOAD=str(lib), TRANSFERS_PROGRAM=program, TRANSFERS_KIND=kind,
                        TRANSFERS_COUNT=str(self.count))

    def failing(self, nth=0, code=0):
        """Environment that makes the @nth transfer fail; 0: none."""
        self.count.write_bytes(bytes(4))
        return dict(self.env, TRANSFERS_FAIL=f'{nth} {code}') if nth else self.env

    def seen(self):
        return struct.unpack('I', self.count.read_bytes())[0]

    def each(self, operation, once, every):
        """Calls once(env, what) for each transfer that can fail; it runs the operation, checks the result, and
        returns True if that succeeded. @every: with all kinds of failure at each transfer, else with one of them."""
        if not once(self.failing(), 'nothing fails'):
            raise Failed(f'{operation}: fails when nothing does')
        last, codes = self.seen(), FAILURES[self.kind]
        if not 0 < last <= MOST:
            raise Failed(f'{operation}: {last} transfers')
        count = [0, 0]
        for nth in range(1, last + 1):
            for code in codes if every else (codes[nth % len(codes)],):
                what = f'{operation}, {self.kind} transfer {nth} of {last}: {errno.errorcode.get(code, "short")}'
                count[once(self.failing(nth, code), what)] += 1
        print(f'     {operation}: {last} transfers ({self.kind}), {count[0]} failures refused, {count[1]} got over', flush=True)


def said(done, program):
    """Checks that the program was not killed and printed an error line: one of ours, unless it is criu's own transfer that failed."""
    if done.code < 0 or not any(program == 'criu' or 'zns: ' in line for line in done.errors()):
        raise Failed(f'no line of ours: {" | ".join(done.errors()[-3:])}')


def dumps(scene, program, kind, every=False, extra=()):
    """Dumps with failures: each dump can be restored, or its task runs on and there is no checkpoint. criu may not
    know which of the two, and must say so."""
    transfers = Transfers(scene, program, kind)

    def once(env, what):
        shutil.rmtree(scene.images)
        scene.images.mkdir()
        done = scene.dump(extra=extra, env=env)
        try:
            if done.code:
                said(done, program)
            if done.code and scene.ids() and done.lines('znsctl ls. tells whether the checkpoint exists'):
                scene.task.verify(signal.SIGUSR1)
                if (scene.images / ztlib.HANDLE).exists():      # there is a checkpoint, so it must be complete
                    ztlib.kill(scene.task.pid)
                    ztlib.reap()
                else:
                    scene.device.remove(*scene.ids())
            if done.code and not scene.ids():
                scene.unharmed()
            else:
                wait_until(lambda: not alive(scene.task.pid), 5)
                scene.good_restore()
                scene.device.remove(*scene.ids())
        except Failed as e:
            raise Failed(f'{what}: exit {done.code}: {e}') from e
        return not done.code
    transfers.each('dump', once, every)


def restores(scene, program, kind, every=False):
    """Restores with failures: each has the task's memory, or leaves no process."""
    transfers = Transfers(scene, program, kind)
    scene.good_dump()

    def once(env, what):
        done = scene.restore(env=env)
        try:
            if done.code:
                said(done, program)
                if not wait_until(lambda: not alive(scene.task.pid), 5):
                    raise Failed('a process is left')
                scene.no_helpers()
            else:
                scene.task.verify(signal.SIGUSR1)
                ztlib.kill(scene.task.pid)
                wait_until(lambda: not alive(scene.task.pid), 5)
                ztlib.reap()
        except Failed as e:
            raise Failed(f'{what}: exit {done.code}: {e}') from e
        return not done.code
    transfers.each('restore', once, every)


@case
def dump_memory(scene):
    """Transfers: the helper reads the memory of a frozen task."""
    dumps(scene(size=4), 'zns-helper', 'task')


@case
def live_memory(scene):
    """Transfers: the helper reads the memory of a running task."""
    dumps(scene(size=4), 'zns-helper', 'task', extra=['--zns-live'])


@case
def restore_memory(scene):
    """Transfers: the helper writes the memory of a task."""
    restores(scene(size=4), 'zns-helper', 'task')


@case
def dump_helper(scene):
    """Transfers: messages on the helper's sockets in a dump."""
    dumps(scene(size=4), 'zns-helper', 'socket')


@case
def restore_helper(scene):
    """Transfers: messages on the helper's sockets in a restore."""
    restores(scene(size=4), 'zns-helper', 'socket')


@case
def dump_criu(scene):
    """Transfers: criu's messages to helper and broker in a dump."""
    dumps(scene(size=4), 'criu', 'socket')


@case
def restore_criu(scene):
    """Transfers: criu's messages to helper and broker in a restore."""
    restores(scene(size=4), 'criu', 'socket')


@case.soak('some 700 dumps and restores')
def every_failure(scene):
    """All kinds of failure at each transfer."""
    scene = scene(size=4)
    for program, kind in (('zns-helper', 'task'), ('zns-helper', 'socket'), ('criu', 'socket')):
        dumps(scene, program, kind, every=True)
        restores(scene, program, kind, every=True)
        scene.task = scene.new_task(4)
        scene.device.remove(*scene.ids())
        scene.remember()
        shutil.rmtree(scene.images)
        scene.images.mkdir()


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'transfers', CASES))
