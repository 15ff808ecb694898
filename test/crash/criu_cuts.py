#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
criu_cuts: the power goes at a random write of a real dump, with a random loss; then a real restore.

The cut comes from the emulator: in the helper's writes, or in the broker's (the log). Everything then dies, and the
next user finds the device as the cut left it. Each round must find every acknowledged checkpoint in the list, no
stranger but the one being committed at that moment, and restores one of them, which checks its own memory. Dumps are plain
and live: with the commit after the thaw, or before it (`=durable`, and where the dump ends the task), of a task that does
nothing and of one that does not stop to write. Every write of helper and broker has its turn in each of these.

  criu_cuts.py [--cuts N] [--seed N]
"""
import argparse
import random
import re
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'zonetests'))
import ztlib  # noqa: E402
from ztlib import Failed, HANDLE, alive, wait_until  # noqa: E402
from ztscene import FAST, Scene  # noqa: E402

KEEP = 4        # checkpoints held; older ones are removed
MAX_WRITES = {'helper': 24, 'broker': 5}        # a cut after the last one never comes, and the dump succeeds
BUSY_WRITES = {'helper': 40, 'broker': 5}
MODES = {'plain': [], 'live': ['--zns-live', '--leave-running'], 'durable': ['--zns-live=durable', '--leave-running'],
         'live-end': ['--zns-live']}


class Rounds:
    def __init__(self, scene, rng):
        self.scene, self.rng = scene, rng
        self.kept = []          # (id, image directory, task), all acknowledged
        self.decks = {'helper': [], 'broker': []}
        self.modes = {mode: {'cut': 0, 'committed': 0} for mode in MODES}
        self.stats = {'cut before the commit': 0, 'committed': 0, 'committed, not acknowledged': 0, 'removal cut': 0}

    def fault(self, who, after=None):
        loss = self.rng.choice(['drop', 'keep', str(self.rng.randrange(1, 1 << 30)), str(self.rng.randrange(1, 1 << 30))])
        return f'cut-after={self.rng.randrange(MAX_WRITES[who]) if after is None else after},loss={loss}'

    def next_cut(self):
        """(mode, program, whose write, which one), each once before any comes again."""
        who = 'broker' if self.rng.random() < 0.4 else 'helper'
        deck = self.decks[who]
        if not deck:
            deck += [(mode, program, who, k) for mode in MODES for program in (['bigmem'] if mode == 'plain' else ['bigmem', 'busy'])
                     for k in range((BUSY_WRITES if program == 'busy' else MAX_WRITES)[who])]
            self.rng.shuffle(deck)
        return deck.pop()

    def warm_broker(self):
        """A broker without faults; one that the dump starts would inherit its environment."""
        self.scene.device.status()

    def dump(self, number):
        scene = self.scene
        mode, program, who, after = self.next_cut()
        fault = self.fault(who, after)
        task = scene.new_task(4, program)
        images = scene.dir / f'images-{number}'
        images.mkdir()
        self.scene.end_broker()
        env = dict(scene.device.env, ZNS_EMU_FAULT=fault, ZNSD_KEEP_ENV='ZNS_EMU_FAULT')
        if who == 'broker':     # the broker starts with the fault; the helper's handle counts its own writes
            scene.cfg.device.env, plain = env, scene.device.env
            try:
                scene.device.ctl('status')
            finally:
                scene.cfg.device.env = plain
            env = plain
        else:
            self.warm_broker()
        done = scene.dump(images=images, task=task, env=env, extra=MODES[mode])
        self.scene.end_broker()
        self.modes[mode]['committed' if done.code == 0 else 'cut'] += 1
        if mode != 'plain' and re.search(r'^VmFlags:.* u[wm]\b', ztlib.smaps(task.pid), re.M):
            raise Failed(f'{mode}, {who} {fault}: the task still has write protection')
        return task, images, done, f'{mode}, {who} {fault}', '--leave-running' in MODES[mode]

    def look(self, task, images, done, what, runs_on):
        """What is in the list after the cut."""
        scene = self.scene
        ids = set(scene.ids())
        lost = [i for i, _, _ in self.kept if i not in ids]
        if lost:
            raise Failed(f'{what}: acknowledged checkpoints are gone: {lost}')
        new = ids - {i for i, _, _ in self.kept}
        if done.code == 0:
            if len(new) != 1:
                raise Failed(f'{what}: the dump said it succeeded, and the list has {len(new)} new checkpoints')
            if runs_on:
                task.verify(signal.SIGUSR1)
                self.end_task(task)
            elif not wait_until(lambda: not alive(task.pid), 5):
                raise Failed(f'{what}: the task runs on after a dump that ends it')
            self.kept.append((new.pop(), images, task))
            self.stats['committed'] += 1
            return
        if done.code < 0:
            raise Failed(f'{what}: criu died of signal {-done.code}')
        if (images / HANDLE).exists():
            raise Failed(f'{what}: a handle after a dump that failed')
        if len(new) > 1:
            raise Failed(f'{what}: {len(new)} strangers in the list')
        if not wait_until(lambda: ztlib.proc_state(task.pid) in ('R', 'S') and not ztlib.traced(task.pid), 5):
            raise Failed(f'{what}: the task does not run on: "{ztlib.proc_state(task.pid)}"')
        task.verify(signal.SIGUSR1)
        self.stats['committed, not acknowledged' if new else 'cut before the commit'] += 1
        if new:         # the record was durable, its answer was not: it must be whole
            self.by_id(task, new.pop())
        self.end_task(task)

    def end_task(self, task):
        pids = ztlib.tree(task.pid)
        for pid in pids:
            ztlib.kill(pid)
        wait_until(lambda: not any(map(alive, pids)), 5)

    def by_id(self, task, checkpoint):
        self.end_task(task)
        empty = self.scene.dir / f'by-id-{checkpoint}'
        empty.mkdir()
        self.scene.good_restore(task=task, images=empty, extra=['--zns-checkpoint', checkpoint])
        self.end_task(task)
        self.scene.device.remove(checkpoint)

    def restore_one(self):
        if not self.kept:
            return 0
        _, images, task = self.rng.choice(self.kept)
        self.scene.good_restore(task=task, images=images)
        self.end_task(task)
        return 1

    def trim(self):
        """Removes the oldest; sometimes the power fails in the middle of that too."""
        if len(self.kept) <= KEEP:
            return
        checkpoint, _, _ = self.kept[0]
        scene = self.scene
        if self.rng.random() < 0.5:
            self.scene.end_broker()
            env, scene.device.env = scene.device.env, dict(scene.device.env, ZNSD_KEEP_ENV='ZNS_EMU_FAULT',
                                                              ZNS_EMU_FAULT=self.fault('broker'))
            try:
                done = scene.device.ctl('rm', checkpoint, '--json')
            finally:
                scene.device.env = env
            self.scene.end_broker()
            self.stats['removal cut'] += 1
            if done.returncode == 0 and checkpoint in scene.ids():
                raise Failed('a removed checkpoint is back')
        if checkpoint in scene.ids():
            scene.device.remove(checkpoint)
        self.kept.pop(0)


def run(cfg, cuts, seed):
    rng = random.Random(seed)
    directory = cfg.base / 'scene'
    directory.mkdir()
    scene = Scene(cfg, directory, options=FAST, size=4)
    scene.end_broker()
    scene.device.env.update(ztlib.controls())   # all that open the device: power is cut for every one of them
    rounds, restored = Rounds(scene, rng), 0
    try:
        for number in range(cuts * 10):
            rounds.look(*rounds.dump(number))
            restored += rounds.restore_one()
            rounds.trim()
            if restored >= cuts:
                break
        # All remaining space comes back, and no zone is lost.
        scene.device.remove(*[i for i, _, _ in rounds.kept])
        scene.store_as_before()
    finally:
        scene.close()
    print(f'{number + 1} cuts: ' + ', '.join(f'{n} {what}' for what, n in rounds.stats.items()))
    print('of each kind: ' + ', '.join(f'{mode} {n["cut"]} cut, {n["committed"]} committed' for mode, n in rounds.modes.items()))
    # A short run may miss the rarer kinds.
    wanted = rounds.stats.values() if cuts >= 50 else [rounds.stats['cut before the commit'], rounds.stats['committed']]
    if not all(wanted):
        raise Failed('some kind of cut never happened: too few rounds, or the faults do not reach their targets')
    return restored


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--cuts', type=int, default=200, help='so many states restored by criu (default 200)')
    parser.add_argument('--seed', type=int, default=1)
    ztlib.common_options(parser)
    args = parser.parse_args()
    ztlib.build_programs()
    ztlib.private_mounts()
    ztlib.become_subreaper()
    cfg = ztlib.Config(args)
    restored, reason = 0, ''
    try:
        restored = run(cfg, args.cuts, args.seed)
    except Failed as e:
        reason = str(e)
        print(f'FAIL seed {args.seed}: {reason}')
    finally:
        cfg.close()
    print(f'{restored} passed, {1 if reason else 0} failed, 0 skipped')
    return 1 if reason else 0


if __name__ == '__main__':
    sys.exit(main())
