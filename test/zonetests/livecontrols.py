#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
livecontrols: the rules that make a live dump right (Documentation/inside/live.md), each switched off in turn
(ZNS_TRACK_BREAK, which only test builds have), under a program that needs the rule. The comparison in the freeze
(ZNS_LIVE_VERIFY=1) must then find wrong or missing pages. Before that, the same program is dumped with all rules,
compared and restored, and checks itself.

  livecontrols.py list | run NAME... | run -a
"""
import os
import re
import signal
import sys
import time

import ztlib
from ztfuse import SlowFile
from ztlib import Failed, Skipped, wait_until
from ztscene import FAST, SLOW, case_of, suite_main

CASES = {}
case = case_of(CASES)
TRIES = 3           # number of dumps without the rule; the case fails if none of them is caught
LIVE = ['--zns-live', '--leave-running', '--zns-qos-max', '60']
CONTENT = 0x5a      # the content of pinned.c's file
BALLAST = 32        # MiB that a round copies after the memory in question


class Trap:
    """A program that needs a rule, and what happens to it while the rounds copy."""

    def __init__(self, program, size=1, device=FAST, slow=None, act=None):
        self.program, self.size, self.device, self.slow, self.act = program, size, device, slow, act


def tracked(pid):
    return any(re.search(r'^VmFlags:.* u[wm]\b', ztlib.smaps(p), re.M) for p in ztlib.tree(pid))


class Run:
    """A task that needs the rule, and one dump of it."""

    def __init__(self, scene, trap, name):
        self.scene, self.trap, self.file = scene, trap, None
        directory = scene.dir / name
        directory.mkdir()
        if trap.slow:
            self.file = SlowFile(directory / 'slow', CONTENT)
            if trap.slow == 'aio':
                (directory / 'aio').touch()
        self.task = ztlib.Task(directory, trap.program, args=['--size', str(trap.size)])
        scene.tasks.append(self.task)
        self.images = directory / 'images'
        self.images.mkdir()
        self.task.start().wait_ready()
        if self.file and not self.file.reading.wait(10):
            raise Failed('the program does not read')

    def dump(self, env):
        started = self.scene.start_dump(extra=LIVE, images=self.images, task=self.task, qos='10',
                                        env=dict(ztlib.controlled(self.scene.device.env, ZNS_LIVE_VERIFY='1'), **env))
        if self.trap.act:
            pid = self.task.pid
            wait_until(lambda: tracked(pid) or started[0].poll() is not None, 20, 0.005)
            time.sleep(0.2)         # the memory at lower addresses is copied by then
            self.trap.act(self)
        return self.scene.end_of(started)

    def end(self):
        pids = ztlib.tree(self.task.pid)
        for pid in pids:
            ztlib.kill(pid)
        if self.file:
            self.file.release()
        if not wait_until(lambda: not any(map(ztlib.alive, pids)), 10):
            raise Failed('a killed process does not end')

    def restored_is_right(self):
        self.end()
        done = self.scene.restore(images=self.images, task=self.task)
        if done.code:
            raise Failed(f'a restore fails: exit {done.code}: {" | ".join(done.errors()[-3:])}')
        self.task.verify()

    def close(self):
        self.end()
        if self.file:
            self.file.close()


def right(scene, trap, name, env):
    run = Run(scene, trap, name)
    try:
        done = run.dump(env)
        text = '\n'.join(done.log)
        if 'all memory is copied in the freeze' in text:
            raise Skipped('this kernel tracks no written pages')
        if done.code:
            raise Failed(f'{name}: exit {done.code}: {" | ".join(done.errors()[-3:])}')
        if not re.search('live: task .* (verified|is copied now: )', text):
            raise Failed(f'{name}: no task was compared')
        run.restored_is_right()
    finally:
        run.close()


def caught(scene, trap, rules, says):
    """The comparison finds a wrong page, and the dump fails."""
    for n in range(1, TRIES + 1):
        run = Run(scene, trap, f'without-{n}')
        try:
            done = run.dump(ztlib.controls(ZNS_TRACK_BREAK=rules))
        finally:
            run.close()
        if done.code:
            done.must_fail(f'verification of task .*{says}')
            print(f'     {rules}: caught in try {n} of {TRIES}', flush=True)
            return
    raise Failed(f'{TRIES} dumps without {rules}, and no wrong page was found')


def control(name, rules, says, what, trap):
    def run(scene):
        scene = scene(trap.device, size=1)
        right(scene, trap, 'with', {})
        caught(scene, trap, rules, says)
    run.__doc__ = what
    CASES[name] = run


def reply(run):
    run.file.release()


def discard(run):
    os.kill(run.task.pid, signal.SIGUSR2)


WRONG, MISSING = '[1-9][0-9]* pages wrong', '[1-9][0-9]* missing'

control('barrier', 'barrier', WRONG, 'copied while a system call still writes to pages that it has pinned',
        Trap('pinned', slow='read', act=reply))
control('aio', 'aio', WRONG, 'the same with asynchronous I/O, which no barrier waits for',
        Trap('pinned', BALLAST, SLOW, slow='aio', act=reply))
control('shared', 'shared', WRONG, 'shared memory is tracked by what one process writes; another one writes as well',
        Trap('twowriters'))
control('vector', 'vector', MISSING, 'a scan that goes on forgets what it has found before', Trap('scattered'))
HOLES = Trap('discard', BALLAST, SLOW, act=discard)
control('holes', 'kernel-holes,holes', WRONG,
        'a kernel that does not report discarded memory (imitated), and a self-test that says it does', HOLES)


@case
def holes_found_out(scene):
    """only the simulated fault of the kernel: the self-test notices it, and the dump is right."""
    right(scene(SLOW, size=1), HOLES, 'with', ztlib.controls(ZNS_TRACK_BREAK='kernel-holes'))


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'controls', CASES))
