# SPDX-License-Identifier: GPL-2.0-only
"""A task that is dumped again and again, each dump on the one before it."""
import os
import re
import shutil
import signal
from pathlib import Path

import ztlib
import ztproto
from ztlib import Failed, Task, alive, wait_until
from ztscene import Outcome


class Chain:
    """Dumps of one task into directories 0, 1, …; on zones unless @stock."""

    def __init__(self, scene, program='dirty', flavour='h', size=None, stock=False, container='chain', name=''):
        self.scene, self.cfg, self.stock, self.container = scene, scene.cfg, stock, container
        self.dir = scene.dir / f'{name or program}-{len(scene.tasks)}'
        self.dir.mkdir()
        args = ['--size', str(size)] if size else []
        self.task = Task(self.dir, program, flavour, args, wait=max(60, scene.cfg.timeout))
        scene.tasks.append(self.task)
        self.task.start().wait_ready()
        self.nr, self.restores = 0, 0
        self.ids = []

    def images(self, n):
        return self.dir / f'images-{n}'

    def step(self):
        """Lets the program change a part of its memory: from now on a restore must bring back the new content."""
        (self.task.state / 'step').touch()
        self.task.digest = '0'      # any other value: the program prints its new digest
        self.task.verify(signal.SIGUSR1)
        self.task.digest = self.task._out()[-1].split()[1]

    def command(self, kind, images, log, parent, extra):
        args = [kind, '-t', self.task.pid, '-D', images, '-W', self.dir, '-o', log.name, '-v4', *self.task.dump_opts]
        if not self.stock:
            args += ztlib.zns_options(self.cfg, self.container)
        if isinstance(parent, int):
            args += ['--prev-images-dir', f'../{self.images(parent).name}']
        elif parent:
            args += ['--zns-parent', parent]
        return [*map(str, args), *extra]

    def try_dump(self, kind='dump', parent=None, extra=()):
        """Makes a dump or pre-dump; returns its Outcome."""
        images, log = self.images(self.nr), self.dir / f'{kind}-{self.nr}.log'
        images.mkdir(exist_ok=True)
        done = ztlib.run_criu(self.cfg, self.command(kind, images, log, parent, extra), log, self.scene.device.env)
        return Outcome(done.returncode, log)

    def dump(self, kind='dump', parent=None, extra=()):
        """Like try_dump, but it must succeed. Returns its number; self.ids has its checkpoint."""
        done = self.try_dump(kind, parent, extra)
        if done.code:
            raise Failed(f'{kind} {self.nr}: exit {done.code}: {" | ".join(done.lines("Error")[-4:])}')
        if not self.stock:
            self.ids.append(self.newest())
        self.nr += 1
        return self.nr - 1

    def record(self, ident):
        return next(c for c in self.scene.device.checkpoints() if c['id'] == ident)

    def newest(self):
        found = [c['id'] for c in self.scene.device.checkpoints() if c['container'] == self.container]
        if not found or found[-1] in self.ids:
            raise Failed('the dump made no checkpoint')
        return found[-1]

    def gone(self):
        if not wait_until(lambda: not any(map(alive, self.task.pids())), 10):
            raise Failed('the process is still there after a dump')

    def try_restore(self, images, extra=(), cfg=None):
        self.restores += 1
        log = self.dir / f'restore-{self.restores}.log'
        if isinstance(images, int):
            images = self.images(images)
        env = self.scene.device.env
        done = Outcome(ztlib.run_criu(cfg or self.cfg, [*ztlib.restore_args(self.task, images, log), *extra], log, env).returncode,
                       log)
        if done.code == 0:
            self.task.restored(int(Path(str(log) + '.pid').read_text()))
        return done

    def restore(self, images, extra=(), cfg=None):
        """Restores a dump, which must succeed; the program must find its memory unchanged."""
        done = self.try_restore(images, extra, cfg)
        if done.code:
            raise Failed(f'restore: exit {done.code}: {" | ".join(done.lines("Error")[-4:])}')
        self.task.verify(signal.SIGUSR1)
        return done

    def by_id(self, ident):
        """Restores from an empty directory."""
        empty = self.dir / f'empty-{self.restores}'
        empty.mkdir()
        return self.restore(empty, ['--zns-checkpoint', ident])

    def end_task(self):
        """Kills the task so that it can be restored again: no zombie may be left that still has its PID."""
        pids = self.task.pids()
        for pid in pids:
            ztlib.kill(pid)
        if not wait_until(lambda: ztlib.reap() or not any(map(ztlib.proc_state, pids)), 10):
            raise Failed('the process does not end')

    def forget_directories(self, *numbers):
        for n in numbers:
            shutil.rmtree(self.images(n))


def stat_of(directory):
    """Microseconds and counts of criu's stats-dump, as {name: number}. It is a flat message, so crit is not needed."""
    names = {1: 'freezing', 2: 'frozen', 3: 'memdump', 4: 'memwrite', 5: 'scanned', 6: 'skipped', 7: 'written'}
    return {names.get(k, str(k)): v for k, v in ztproto.dump_stats(Path(directory) / 'stats-dump').items()}


def bytes_in(directory):
    return sum(p.lstat().st_size for p in Path(directory).iterdir() if p.is_file())


def plain_images(directory):
    return [n for n in os.listdir(directory) if re.match(r'pages-.*\.img$', n)]
