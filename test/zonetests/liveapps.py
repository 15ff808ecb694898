#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
liveapps: live dumps of Redis, PostgreSQL, JVMs and Node.js under load, one after the other, each based on the one
before. In each freeze every page of the dump is compared with the task's (ZNS_LIVE_VERIFY=1). Each fourth dump ends
the program after the freeze; it is restored, checks its data by its own rules, and works on.

  liveapps.py list | run NAME... | run -a          LIVE_APP_DUMPS=20: dumps of each
"""
import os
import re
import sys
import time

import ztapps
from ztlib import Failed, Skipped, alive, controlled, tree, wait_until
from ztscene import suite_main

CASES = {}
DUMPS = int(os.environ.get('LIVE_APP_DUMPS', 20))
EVERY = 4           # a restore after this many dumps
BETWEEN_S = 0.5
ROOM = ['--channels', '4', '--ways', '2', '--zones', '128', '--zone-size', '64M', '--timing', 'off', '--sparse']


class Series:
    def __init__(self, scene, app):
        self.scene, self.app = scene, app
        self.parent = None
        self.restored = self.pages = self.left_to_parent = self.running = 0
        self.frozen = {}            # reason: bytes

    def compared(self, log):
        """Pages of each task, all of which were compared."""
        text = '\n'.join(log)
        tasks = re.findall(r'live: task (\d+) has (\d+) pages in \d+ runs, and (\d+) in the parent(.*)', text)
        if not tasks:
            if 'all memory is copied in the freeze' in text:
                raise Skipped('this kernel tracks no written pages')
            raise Failed('a live dump that tracked nobody')
        for pid, pages, parent, end in tasks:
            if 'verified' not in end:
                raise Failed(f'task {pid} was not verified')
            self.pages += int(pages)
            self.left_to_parent += int(parent)

    def look(self, images):
        shown = self.scene.device.json('show', str(images))
        self.parent = shown['id']
        self.running += sum(r['bytes'] for r in shown['live']['rounds'])
        for rest in shown['live']['rests']:
            self.frozen[rest['why']] = self.frozen.get(rest['why'], 0) + rest['bytes']

    def dump(self, n, end):
        app, scene = self.app, self.scene
        images = scene.dir / f'images-{n}'
        images.mkdir()
        extra = ['--zns-live', '--track-mem', *([] if end else ['--leave-running']),
                 *(['--zns-parent', self.parent] if self.parent else [])]
        pids, before = tree(app.pid), app.work()
        done = scene.dump(extra=extra, images=images, task=app, env=controlled(scene.device.env, ZNS_LIVE_VERIFY='1'))
        if done.code:
            raise Failed(f'dump {n}: exit {done.code}: {" | ".join(done.errors()[-4:])}')
        self.compared(done.log)
        self.look(images)
        if not end:
            if not wait_until(lambda: app.work() > before, 20, 0.2):
                raise Failed(f'dump {n}: it does not work on')
            return images
        app.unload()
        if not wait_until(lambda: not any(map(alive, pids)), 20):
            raise Failed(f'dump {n}: a process is left after a dump that ends them')
        return images

    def restore(self, images):
        done = self.scene.restore(images=images, task=self.app)
        if done.code:
            raise Failed(f'restore: exit {done.code}: {" | ".join(done.errors()[-4:])}')
        self.app.check()
        self.restored += 1
        self.parent = None
        self.scene.device.remove(*self.scene.ids())

    def run(self):
        self.app.load()
        for n in range(DUMPS):
            time.sleep(BETWEEN_S)
            end = (n + 1) % EVERY == 0
            images = self.dump(n, end)
            if end:
                self.restore(images)
                self.app.load()
        frozen = ', '.join(f'{b >> 20} MiB {why}' for why, b in sorted(self.frozen.items(), key=lambda r: -r[1]) if b >> 20)
        print(f'     {self.app.name}: {DUMPS} live dumps, {self.restored} of them restored and right; {self.pages} pages compared, '
              f'{self.left_to_parent} of them in the parent; {self.running >> 20} MiB copied while it ran, in the freeze {frozen}',
              flush=True)


def case_of(kind):
    def run(scene):
        scene = scene(ROOM, size=1)
        scene.task.end()
        directory = scene.dir / kind.name
        directory.mkdir()
        app = kind(directory)
        scene.tasks.append(app)
        Series(scene, app.start()).run()
    run.__doc__ = f'{kind.name} under load: dumps, verified; each {EVERY}th restored and checked.'
    return run


for kind in ztapps.ALL:
    CASES[kind.name] = case_of(kind)

if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'liveapps', CASES))
