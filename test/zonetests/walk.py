#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
walk: a random walk over everything that can be done with checkpoints, beside a model of what must exist then.

  walk.py run [--soak] [random]      SOAK_SEED: the seed, WALK_STEPS: how many (60)

After each step the store lists what the model has. Restored tasks check their memory; the flat export of a checkpoint
always has the bytes that it had right after the dump; a checkpoint with children or a pin is not removed; when
everything is removed, all zones are free again.
"""
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys

import ztlib
from ztlib import Failed, alive, wait_until
from ztscene import FAST, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)


class Walk:
    def __init__(self, scene, rng):
        self.scene, self.rng, self.did = scene, rng, []
        self.tasks = {'still': scene.task, 'changing': scene.new_task(program='dirty')}
        self.there = {}         # id: {container, parent, pinned, flat, digest}

    def flat(self, ident):
        done = subprocess.run([self.scene.cfg.znsctl, 'export', ident, '-', '--flatten'], env=self.scene.device.env, capture_output=True)
        expect(f'export of {ident}: {done.stderr.decode()}', done.returncode, 0)
        return hashlib.sha256(done.stdout).hexdigest()

    def children(self, ident):
        return [i for i, c in self.there.items() if c['parent'] == ident]

    def any(self, fits=lambda c: True):
        found = sorted(i for i, c in self.there.items() if fits(c))
        return self.rng.choice(found) if found else None

    def images(self):
        self.scene.calls += 1
        images = self.scene.dir / f'walk-{self.scene.calls}'
        images.mkdir()
        return images

    def add(self, ident, container, parent=None):
        self.there[ident] = {'container': container, 'parent': parent, 'pinned': False, 'flat': self.flat(ident),
                             'digest': self.tasks[container].digest if container in self.tasks else None}

    # ---- the steps -------------------------------------------------------------------------------------

    def change(self):
        task = self.tasks['changing']
        (task.state / 'step').touch()
        task.digest = '0'      # any other value: the program prints its new digest
        task.verify(signal.SIGUSR1)
        task.digest = task._out()[-1].split()[1]

    def dump(self):
        name = self.rng.choice(sorted(self.tasks))
        parent = self.any(lambda c: c['container'] == name) if self.rng.random() < .5 else None
        extra = ['--leave-running', '--zns-container', name, *self.rng.choice(([], ['--zns-live'], ['--track-mem']))]
        extra += ['--zns-parent', parent, *(['--track-mem'] if '--track-mem' not in extra else [])] if parent else []
        ident = self.scene.good_dump(images=self.images(), task=self.tasks[name], extra=extra)
        listed = next(c for c in self.scene.device.checkpoints() if c['id'] == ident)
        expect(f'parent of {ident}', listed['parent'] or None, parent)
        self.add(ident, name, parent)

    def killed_dump(self):
        name = self.rng.choice(sorted(self.tasks))
        started = self.scene.start_dump(['--leave-running', '--zns-container', name], self.images(), self.tasks[name], stop_after=1)
        self.scene.at_barrier()
        started[0].kill()
        started[0].wait()
        self.scene.go_on()
        self.scene.no_helpers()
        self.tasks[name].verify(signal.SIGUSR1)

    def restore(self):
        ident = self.any(lambda c: c['container'] in self.tasks)
        if not ident:
            return
        task = self.tasks[self.there[ident]['container']]
        ztlib.kill(task.pid)
        wait_until(lambda: not alive(task.pid), 10)
        task.digest = self.there[ident]['digest']
        self.scene.good_restore(images=self.images(), task=task, extra=['--zns-checkpoint', ident])

    def rm(self):
        ident = self.any()
        if not ident:
            return
        stays = bool(self.children(ident)) or self.there[ident]['pinned']
        for dry in (['--dry-run'], []):
            run_ctl(self.scene, int(stays), 'rm', ident, *dry)
        if not stays:
            del self.there[ident]

    def pin(self):
        ident = self.any()
        if ident:
            self.there[ident]['pinned'] = self.rng.random() < .4
            run_ctl(self.scene, 0, 'pin' if self.there[ident]['pinned'] else 'unpin', ident)

    def flatten(self):
        ident = self.any(lambda c: c['parent'])
        if ident:
            run_ctl(self.scene, 0, 'flatten', ident)
            self.there[ident].update(parent=None, flat=self.flat(ident))

    def copy(self):
        ident = self.any()
        if ident:
            out = self.images() / 'out'
            run_ctl(self.scene, 0, 'export', ident, str(out), '--flatten')
            before = set(self.scene.ids())
            run_ctl(self.scene, 0, 'import', str(out), '--as', 'copies')
            self.add((set(self.scene.ids()) - before).pop(), 'copies')
            shutil.rmtree(out)

    def look(self):
        run_ctl(self.scene, 0, *self.rng.choice((['verify', '--all'], ['gc'], ['compact'], ['fsck'], ['gc', '--compact'])))

    def lose_broker(self):
        self.scene.end_broker()

    # ---- the walk --------------------------------------------------------------------------------------

    def check(self):
        expect('checkpoints', self.scene.ids(), sorted(self.there))
        ident = self.any()
        if ident:
            expect(f'bytes of {ident}', self.flat(ident), self.there[ident]['flat'])

    def go(self, steps):
        weighted = [self.dump] * 5 + [self.change] * 4 + [self.restore] * 5 + [self.rm] * 4 + [self.pin, self.flatten, self.copy, self.look, self.look,
                                                                         self.killed_dump, self.lose_broker]
        for _ in range(steps):
            step = self.rng.choice(weighted) if len(self.there) < 12 else self.rm
            self.did.append(step.__name__)
            step()
            self.check()
        for ident in [i for i, c in self.there.items() if c['pinned']]:
            run_ctl(self.scene, 0, 'unpin', ident)
        run_ctl(self.scene, 0, 'rm', '--all')
        self.there.clear()
        self.scene.store_as_before()


@case.soak('which steps follow each other is drawn')
def drawn(scene):
    """Dumps of every kind, kills, restores, rm, pins, flatten, copies, compact, gc, fsck: the store always has what the model has."""
    seed = int(os.environ.get('SOAK_SEED') or random.randrange(1 << 30))
    walk = Walk(scene(FAST, size=8), random.Random(seed))
    try:
        walk.go(int(os.environ.get('WALK_STEPS', '60')))
    except Failed as e:
        raise Failed(f'SOAK_SEED={seed}, after {" ".join(walk.did)}: {e}')
    print(f'     seed {seed}: {len(walk.did)} steps', flush=True)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'walk', CASES))
