#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
lazysoak: lazy restores, one after the other, each with an accident at a random moment. No task may read a wrong byte.

  lazysoak.py --runs N --seed S [--only KIND]

Checkpoints of small programs, a live one and a chain among them, are restored again and again. The moment lies within
the time that the same restore takes when nothing happens to it. Each program checks all of its memory: it says so, or
it is dead. The outcomes are printed as JSON. KIND `control` kills every process that could notice, before the task
touches its memory: then wrong bytes, crashes and tasks that do nothing any more must be seen, except for the chain, of
which nothing is lazy.
"""
import argparse
import collections
import json
import os
import random
import re
import signal
import sys
import time

import ztlib
from errors import flip_on_device, spans_of_task
from lazyfaults import FOR_S, STILL, begin, holder_of, no_holder, until
from migration import lazy_daemon
from ztlib import Failed, alive, wait_until
from ztscene import Outcome, expect, run_case

KINDS = ('damage', 'helper', 'daemon', 'broker', 'eio', 'eio-once', 'holder', 'both')
CONTROL = 'control'
PIECES = 16         # number of pieces of each task's memory, of which one is damaged
# Without a record: pages that an earlier run has recorded would be in memory before the tasks run.
OFF = '--zns-record=off'
DAEMONS = ([OFF], STILL, [OFF, '--zns-qos-max', '40'])
# program, MiB, options of its dumps
PROGRAMS = (('bigmem', 12, [[]]), ('lazyfork', 8, [[]]), ('cowtree', 24, [[]]), ('bigmem', 8, [['--zns-live']]),
            ('bigmem', 8, [['--zns-live', '--track-mem', '--leave-running'], ['--track-mem']]))
# What a parent prints whose child was killed, or whose child printed this itself. A wrong byte has another line.
ORPHANED = re.compile(r'(FAIL|ERROR): child \d+ (is gone|ended with status 0x([79]|100|200)$)')


_ended = {}         # pid: exit status of our child processes


def _reap():
    """Like ztlib.reap, but remembers the statuses of the processes that it has reaped."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _ended[pid] = status
    except ChildProcessError:
        pass


def not_by_itself(pid):
    """Checks that a task that ended was killed by the holder, or touched a page that is known to be lost. A task that
    reads zeroes may crash in other ways."""
    status = _ended.get(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) not in (signal.SIGKILL, signal.SIGBUS):
        raise Failed(f'a task ended of {signal.Signals(os.WTERMSIG(status)).name}')


class Part:
    """A checkpoint: its task, its images, bytes of it that can be found on the device, and how long an undisturbed restore takes."""

    def __init__(self, scene, number, program, size, dumps):
        task = scene.task = scene.new_task(size, program)
        start, end = max(spans_of_task(scene), key=lambda s: s[1] - s[0])
        step = (end - start) // PIECES
        with open(f'/proc/{task.pid}/mem', 'rb', 0) as mem:
            self.content = []
            for n in range(PIECES):
                mem.seek(start + (n * step + step // 2) // 4096 * 4096)
                self.content.append(mem.read(256))
        parent = []
        for n, options in enumerate(dumps):
            images = scene.dir / f'images-{number}-{n}'
            images.mkdir()
            parent = ['--zns-parent', scene.good_dump(images=images, task=task, extra=[*options, *parent])]
        self.task, self.images, self.took = task, images, {}


class Soak:
    def __init__(self, scene, rng):
        self.scene, self.rng, self.counts = scene(size=1), rng, collections.Counter()
        self.parts = [Part(self.scene, n, *of) for n, of in enumerate(PROGRAMS)]
        for part in self.parts:
            expect(f'a restore of {part.images.name} without an accident', self.one(None, part, []), 'all right')

    def accident(self, kind, daemon, content):
        """Makes the accident; returns a function that undoes it."""
        scene = self.scene
        pids = {'helper': scene.helpers, 'daemon': lambda: [daemon.proc.pid], 'broker': lambda: [scene.broker_pid()],
                'holder': lambda: [holder_of(scene)], 'both': lambda: [*scene.helpers(), daemon.proc.pid],
                CONTROL: lambda: [*filter(alive, scene._ours('zns-holder')), daemon.proc.pid, *scene.helpers()]}.get(kind, lambda: [])()
        if kind == CONTROL:
            ztlib.kill(daemon.proc.pid, signal.SIGSTOP)     # otherwise the daemon would start another holder
        for pid in filter(None, pids):
            ztlib.kill(pid)
        if kind != 'damage':
            return lambda: None
        at, byte = flip_on_device(scene, content)

        def mend():
            with open(scene.device.path, 'r+b', 0) as dev:
                dev.seek(at)
                dev.write(bytes([byte]))
        return mend

    def moment(self, part, what, since, before):
        """The first time measures how long @before takes to become true; later waits for a random moment in that time, or until it is true."""
        if what in part.took:
            end = since + self.rng.random() * part.took[what]
            while time.monotonic() < end and not before():
                time.sleep(0.002)
        else:
            wait_until(before, FOR_S, 0.002)
            part.took[what] = time.monotonic() - since

    def one(self, kind, part, options):
        """Makes a restore with an accident; returns the outcome."""
        scene, rng, task = self.scene, self.rng, part.task
        scene.task = task
        for name in ('out', 'child'):
            (task.dir / name).unlink(missing_ok=True)
        fault = {'eio': '*', 'eio-once': '1'}.get(kind)
        env = scene.faulty(None, f'read-after={rng.randrange(150)}x{fault}') if fault else None
        content, early, mend = rng.choice(part.content), rng.random() < 0.5, None
        if kind == CONTROL:
            early, options = False, STILL
        daemon = lazy_daemon(scene, part.images, options, env=env, refused=True)
        if daemon.proc.poll() is not None:
            return 'the daemon did not start'
        start = time.monotonic()
        restore = begin(scene, task, part.images)
        if early or not kind:
            self.moment(part, 'restore', start, lambda: restore[0].poll() is not None)
            mend = self.accident(kind, daemon, content)
        code = scene.end_of(restore).code
        start = time.monotonic()
        if kind == CONTROL:
            mend = self.accident(kind, daemon, content)     # before the task has touched its memory
        if code == 0:
            ztlib.kill(task.pid, signal.SIGUSR1)    # at this signal the task checks its memory, or forks a child
        if not mend or not kind:
            self.moment(part, 'rest', start, lambda: daemon.proc.poll() is not None)
            mend = self.accident(kind, daemon, content)
        try:
            return self.verdict(task, daemon, code)
        finally:
            self.clear(task, daemon)
            _ended.clear()
            mend()

    def clear(self, task, daemon):
        scene = self.scene
        daemon.stop()
        for pid in filter(None, (task.pid, self.child(task))):
            for each in ztlib.tree(pid):
                ztlib.kill(each)
        until(lambda: not alive(task.pid), 'the end of the task')
        no_holder(scene)
        until(lambda: not scene.helpers(), 'the end of the helpers')
        for path in scene.dir.glob('criu-*.log*'):
            path.unlink()

    @staticmethod
    def child(task):
        path = task.dir / 'child'
        return int(path.read_text()) if path.exists() else None

    def verdict(self, task, daemon, code):
        if code:
            until(lambda: not alive(task.pid), 'the end of a restore that failed')
            if task._out():
                raise Failed(f'the restore failed, and the task says {task._out()}')
            return 'the restore failed'
        if task.program == 'lazyfork':
            until(lambda: self.child(task) or not alive(task.pid), "a task's child, or its end")
            ztlib.kill(task.pid, signal.SIGTERM)    # each process checks its own memory
            if self.child(task):
                ztlib.kill(self.child(task), signal.SIGTERM)
                until(lambda: not alive(self.child(task)), 'the end of the child')
            until(lambda: not alive(task.pid), 'the end of the task')
        else:
            until(lambda: task._out() or not alive(task.pid), "a task's verdict, or its end")
        for pid in filter(None, (task.pid, self.child(task))):
            not_by_itself(pid)
        said = [line for line in task._out() if not ORPHANED.match(line)]
        if [line for line in said if not line.startswith('PASS')]:
            raise Failed(f'the task says {said}; daemon: {" | ".join(Outcome(0, daemon.log).errors()[-3:])}')
        return 'all right' if len(said) == 1 + bool(self.child(task)) else 'one of two killed' if said else 'killed'


def soak_of(args):
    def soak(scene):
        rng = random.Random(args.seed)
        ztlib.reap = _reap
        run, wrong, start = Soak(scene, rng), [], time.monotonic()
        for n in range(args.runs):
            kind = args.only or rng.choice(KINDS)
            part, options = rng.choice(run.parts), rng.choice(DAEMONS)
            try:
                run.counts[f'{kind}: {run.one(kind, part, options)}'] += 1
            except Failed as reason:
                wrong.append(f'run {n}, {kind}, {part.images.name}: {reason}')
                print(f'    {wrong[-1]}', flush=True)
        print(json.dumps({'runs': args.runs, 'seed': args.seed, 'wrong': len(wrong), 'seconds': round(time.monotonic() - start),
                          'outcomes': dict(sorted(run.counts.items()))}), flush=True)
        if wrong:
            raise Failed(f'{len(wrong)} of {args.runs} runs were wrong; the first: {wrong[0]}')
    return soak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=50)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--only', choices=[*KINDS, CONTROL], metavar='KIND', help=f'this accident alone: {", ".join([*KINDS, CONTROL])}')
    ztlib.common_options(parser)
    args = parser.parse_args()
    ztlib.private_mounts()
    ztlib.build_programs()
    cfg = ztlib.Config(args)
    try:
        results = ztlib.run_jobs([('lazysoak', 'soak', lambda: run_case(cfg, 'soak', 'lazysoak', soak_of(args)))], 1, cfg.base)
    finally:
        cfg.close()
    return ztlib.finish(results)


if __name__ == '__main__':
    sys.exit(main())
