#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
together: encryption, chains, compaction, flatten, erasure, rotation, retention and export on one device, one after the
other, also with accidents in between.

  together.py list | run NAME... | run -a        TOGETHER_ROUNDS=N: accidents per case, default 8
"""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import ztlib
from chains import LEVELS, Parts
from compact import compact
from crypt import new_key, on_device, wrapped_keys
from migration import comes_back, copy_images, fresh, joined, transfer
from tools import expect, many_dumps, run_ctl, stop_broker
from ztmedia import Media
from ztlib import Failed, wait_until
from ztscene import case_of, suite_main

CASES = {}
case = case_of(CASES)
# Few dies and small zones, so that data of different age share zones.
ROOM = ['--channels', '1', '--ways', '2', '--die-write-bw', '600', '--zones', '64', '--zone-size', '4M', '--timing', 'off']
ROUNDS = int(os.environ.get('TOGETHER_ROUNDS', '8'))


def flat(scene, ident):
    """A hash of the checkpoint's flat export, which does not depend on its parents."""
    done = subprocess.run([scene.cfg.znsctl, 'export', ident, '-', '--flatten'], env=scene.device.env, capture_output=True,
                          timeout=60)
    expect(f'export {ident}: {done.stderr.decode()[:200]}', done.returncode, 0)
    return hashlib.sha256(done.stdout).hexdigest()


def zones_back(scene):
    expect('checkpoints', scene.ids(), [])
    if not wait_until(lambda: scene.device.free_zones() == scene.free_before, 10, 0.1):
        raise Failed(f'{scene.device.free_zones()} zones are free, {scene.free_before} were')


class Stage(Parts):
    """An encrypted device with a chain whose checkpoints share their zones with removed ones."""

    def __init__(self, scene, between=2):
        self.between = between
        self.spec, self.key_id = new_key(scene)
        run_ctl(scene, 0, 'key', 'use', self.spec)
        super().__init__(scene, imported=False)
        self.import_all()
        self.content = {i: flat(scene, i) for i in self.ids}

    def import_all(self):
        fillers = []
        for n in reversed(range(LEVELS)):
            fillers += many_dumps(self.scene, self.between, 'chain')
            args = ['--container', 'chain', *(['--parent', self.ids[0]] if self.ids else [])]
            if not n:
                self.handle = self.chain.dir / 'handle'
                args += ['--handle', str(self.handle)]
            self.ids.insert(0, self.device.json('import', str(self.dirs[n]), *args)['id'])
        fillers += many_dumps(self.scene, self.between, 'chain')
        self.device.remove(*fillers)
        expect('encrypted', {c['encrypted'] for c in self.device.checkpoints()}, {True})

    def same(self, *ids):
        """Checks that these checkpoints, and no others, are listed, authentic and unchanged, and that fsck finds nothing."""
        expect('checkpoints', self.scene.ids(), sorted(ids))
        done = self.device.json('verify', '--all')['checkpoints']
        expect('authentic', {c['authentic'] for c in done}, {True} if ids else set())
        expect('content', {i: flat(self.scene, i) for i in ids}, {i: self.content[i] for i in ids})
        expect('fsck', json.loads(run_ctl(self.scene, 0, 'fsck', '--json'))['problems'], [])

    def parents(self):
        return [self.device.json('show', i)['parent'] for i in self.ids]


@case
def one_after_the_other(scene):
    """Compact, restore, flatten, erase, rotate, retain, export, import: content, keys and zones are right each time."""
    scene = scene(ROOM, 1)
    s = Stage(scene)
    a, b, c, d = s.ids
    keys = {i: wrapped_keys(scene, i) for i in s.ids}
    expect('wrapped keys', {len(k) for k in keys.values()}, {1})
    compact(scene)
    s.same(a, b, c, d)
    s.restore()
    s.chain.by_id(a)
    s.chain.end_task()

    s.device.json('flatten', b)
    expect('parents', s.parents(), [b, None, d, None])
    s.same(a, b, c, d)
    later = wrapped_keys(scene, b) - keys[b]
    expect('a new key of what was flattened', len(later), 1)
    if d not in run_ctl(scene, 1, 'rm', '--secure', d):
        raise Failed('rm --secure of a parent does not name it')
    run_ctl(scene, 0, 'rm', '--secure', c, d)
    expect('keys of what was erased', sum(on_device(scene, k) for k in keys[c] | keys[d]), 0)
    compact(scene)
    s.same(a, b)
    s.restore()

    other, other_id = new_key(scene, 'other')
    said = json.loads(run_ctl(scene, 0, 'key', 'rotate', other, '--json'))
    expect('rotate', (said['key_id'], said['rewrapped']), (other_id, 2))
    expect('old wrappings', sum(on_device(scene, k) for k in keys[a] | keys[b] | later), 0)
    os.unlink(s.spec[5:])
    s.same(a, b)
    s.restore()

    plain, tar = s.chain.dir / 'plain', s.chain.dir / 'plain.tar'
    s.device.json('export', a, str(plain), '--flatten')
    again = s.device.json('import', str(plain), '--container', 'chain')['id']
    s.device.json('export', again, str(tar))
    s.content[again] = flat(scene, again)
    s.same(a, b, again)
    run_ctl(scene, 0, 'retain', 'chain', '--keep', '1')
    run_ctl(scene, 0, 'gc')
    s.same(again)
    s.chain.by_id(again)
    s.chain.end_task()
    keys = wrapped_keys(scene, again)
    run_ctl(scene, 0, 'rm', '--secure', again)
    expect('its key', sum(on_device(scene, k) for k in keys), 0)
    zones_back(scene)


@case
def compaction_gives_way(scene):
    """A flattening is stopped: compaction leaves its checkpoint alone, and says why."""
    scene = scene(ROOM, 1)
    s = Stage(scene, between=5)
    victims = {z['zone'] for z in compact(scene, '--dry-run')['zones']}
    ident = next((i for i in s.ids[:-1] if victims & set(scene.device.json('show', i)['zones'])), None)
    if ident is None:
        raise Failed('nothing that has a parent stands in a zone that would be emptied')
    env = scene.faulty(None, 'stop-after=1')
    flatten = subprocess.Popen([ztlib.znsctl_of(scene.cfg, env), 'flatten', ident], env=env, stdout=subprocess.DEVNULL)
    try:
        if not wait_until(lambda: ztlib.proc_state(flatten.pid) == 'T'):
            raise Failed('flatten never wrote')
        said = json.loads(run_ctl(scene, 0, 'compact', '--below', '80', '--no-wait', '--json'))
        expect('given up', said['given_up'], 1)
        if f'{ident} is being flattened by PID {flatten.pid}' not in said['why']:
            raise Failed(f'compaction says: {said["why"]}')
        print(f'     says: {said["why"]}', flush=True)
    finally:
        flatten.send_signal(signal.SIGCONT)
        code = flatten.wait(60)
    expect('exit code of flatten', code, 0)
    expect('parent', scene.device.json('show', ident)['parent'], None)
    s.same(*s.ids)
    run_ctl(scene, 0, 'compact', '--below', '80')
    s.same(*s.ids)
    s.restore()


# ---- accidents -----------------------------------------------------------------------------------------

class Accidents:
    """Runs commands on the chain, each interrupted by an accident. Afterwards everything is as before or as the command should make it."""

    def __init__(self, scene, seed):
        self.scene, self.rng = scene, random.Random(seed)
        self.s = Stage(scene, between=1)
        self.keys = ['key', 'other']
        new_key(scene, 'other')
        self.undone = 0

    def filler(self):
        """Makes checkpoints that can be erased, and garbage in the zones."""
        made = many_dumps(self.scene, 2, 'chain')
        self.scene.device.remove(made[0])
        self.s.content[made[1]] = flat(self.scene, made[1])
        return made[1]

    def use_right_key(self):
        """After an interrupted rotation: finds out which key the device has now."""
        wanted = self.scene.device.status()['key_id']
        for name in self.keys:
            shown = self.scene.device.ctl('key', 'use', f'file:{self.scene.dir / name}')
            if not shown.returncode:
                expect('key', self.scene.device.status()['key_id'], wanted)
                return name
        raise Failed(f'no key is that of the device, {wanted}')

    def command(self, extra):
        """Chooses the next command: (kind, its words, the checkpoints that are left if it succeeds)."""
        s, rng = self.s, self.rng
        ids = self.scene.ids()
        kind = rng.choice(['compact', 'compact', 'flatten', 'flatten', 'rotate', 'erase'])
        parents = s.parents()
        if kind == 'flatten' and any(parents):
            return kind, ['flatten', rng.choice([i for i, p in zip(s.ids, parents) if p])], ids
        if kind == 'rotate':
            now = self.use_right_key()
            return kind, ['key', 'rotate', f'file:{self.scene.dir / [k for k in self.keys if k != now][0]}'], ids
        if kind == 'erase':
            return kind, ['rm', '--secure', extra], [i for i in ids if i != extra]
        return 'compact', ['compact', '--below', '80'], ids

    def check(self, what, wanted, both):
        ids = self.scene.ids()
        if sorted(ids) not in (sorted(wanted), sorted(both)):
            raise Failed(f'after {what}: the checkpoints are {ids}')
        try:
            self.use_right_key()
            self.s.same(*ids)
        except Failed as e:
            raise Failed(f'after {what}: {e}')

    def round(self, number, hit):
        if not any(self.s.parents()):
            self.again()
        extra = self.filler()
        keys = wrapped_keys(self.scene, extra)
        kind, words, wanted = self.command(extra)
        before = self.scene.ids()
        code, how = hit(words)
        what = f'round {number}, {" ".join(words)}, {how}'
        self.scene.end_broker()
        self.check(what, wanted, before)
        self.undone += bool(code)
        done = self.scene.device.ctl(*words)    # now to its end
        if done.returncode and not ('no parent' in done.stderr and kind == 'flatten'):
            raise Failed(f'after {what}: again: {done.stderr.strip()}')
        self.check(f'{what}, and again', wanted, wanted)
        if kind == 'erase' and any(on_device(self.scene, k) for k in keys):
            raise Failed(f'after {what}: the erased key is still there')
        if extra in self.scene.ids():
            run_ctl(self.scene, 0, 'rm', extra)

    def again(self):
        """Makes a new chain, since no checkpoint of the last one has a parent any more."""
        self.scene.device.remove(*self.s.ids)
        self.s.ids = []
        shutil.rmtree(self.s.handle)
        self.s.between = 1
        self.s.import_all()
        self.s.content = {i: flat(self.scene, i) for i in self.s.ids}

    def end(self):
        print(f'     {self.undone} of {ROUNDS} were ended early', flush=True)
        expect('some rounds were ended early', self.undone > 0, True)
        self.s.restore()
        run_ctl(self.scene, 0, 'rm', '--all')
        zones_back(self.scene)


@case
def killed(scene):
    """kill -9 of znsctl or of the broker in compact, flatten, rotation or erasure: the state is as before or as after, and a second try succeeds."""
    scene = scene(ROOM, 1)
    a = Accidents(scene, 20261121)
    # seconds by command; halved if the command had ended before the kill, so that a fast machine is hit, too
    within = {}

    def hit(words):
        scene.device.status()   # makes sure that a broker runs
        started = subprocess.Popen([scene.cfg.znsctl, *words], env=scene.device.env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        delay, broker = a.rng.random() * within.setdefault(words[0], 0.25), a.rng.random() < 0.5
        time.sleep(delay)
        if started.poll() is not None:
            within[words[0]] /= 2
        if broker:
            pid = scene.broker_pid()
            if pid:
                ztlib.kill(pid)
        else:
            started.kill()
        return started.wait(60), f'{"broker" if broker else "znsctl"} killed after {delay * 1000:.0f} ms'

    for n in range(ROUNDS):
        a.round(n, hit)
    a.end()


@case
def cut(scene):
    """The power goes at some write of znsctl or of the broker meanwhile, with a random loss."""
    scene = scene(ROOM, 1)
    scene.device.needs_emulator('needs power cuts of the emulator')
    scene.end_broker()
    scene.device.env.update(ztlib.controls())   # both open the device, so the power is cut for both
    a = Accidents(scene, 1121)

    def hit(words):
        loss = a.rng.choice(['drop', 'keep', str(a.rng.randrange(1, 1 << 30))])
        broker = a.rng.random() < 0.5
        fault = f'cut-after={a.rng.randrange(4 if broker else 12)},loss={loss}'
        faulty = dict(scene.device.env, ZNS_EMU_FAULT=fault, ZNSD_KEEP_ENV='ZNS_EMU_FAULT')
        znsctl = ztlib.znsctl_of(scene.cfg, faulty)
        scene.end_broker()
        subprocess.run([znsctl, 'status'], env=faulty if broker else scene.device.env, capture_output=True,
                       timeout=60)
        done = subprocess.run([znsctl, *words], env=scene.device.env if broker else faulty,
                              capture_output=True, timeout=60)
        if done.returncode < 0:
            raise Failed(f'znsctl died of signal {-done.returncode}')
        return done.returncode, f'{"broker" if broker else "znsctl"} {fault}'

    for n in range(ROUNDS):
        a.round(n, hit)
    a.end()


# ---- pages of a page server ----------------------------------------------------------------------------

def received(scene):
    """Pages of a page server between garbage, and two checkpoints that stay: all of them fit into fewer zones than they use."""
    fillers = many_dumps(scene, 4, 'migrated')
    sent, images, pages = transfer(scene, scene.task)
    scene.task = scene.new_task(1)
    fillers += many_dumps(scene, 5, 'migrated')
    others = [fillers.pop(0), fillers.pop()]
    scene.device.remove(*fillers)
    return sent, images, pages, others


def holes(scene, others):
    """Makes the same garbage again."""
    made = many_dumps(scene, 8, 'migrated')
    others.append(made.pop())
    scene.device.remove(*made)


def comes_whole(scene, task, images, pages):
    """Restores by the handle, and by the id alone."""
    for where, extra in ((images, []), (fresh(scene, 'empty'), ['--zns-checkpoint', pages])):
        comes_back(scene, task, where, extra=extra)
        ztlib.kill(task.pid)
        wait_until(lambda: not ztlib.alive(task.pid), 5)


@case
def pages_only(scene):
    """Pages that a page server received are moved, survive a lost log and a rotation, are refused by flatten; then they are joined and complete."""
    scene = scene(ROOM, 1)
    spec, _ = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    task = scene.task
    sent, images, pages, others = received(scene)
    copy_images(sent, images)
    stands = scene.device.json('show', pages)['zones']
    compact(scene)
    moved = scene.device.json('show', pages)['zones']
    if moved == stands:
        raise Failed('the pages were not moved')
    expect('state', {c['id']: c['state'] for c in scene.device.checkpoints()}[pages], 'pages-only')
    run_ctl(scene, 0, 'verify', '--all')
    expect('fsck', json.loads(run_ctl(scene, 0, 'fsck', '--json'))['problems'], [])
    said = run_ctl(scene, 1, 'flatten', pages)
    if 'import --join' not in said:
        raise Failed(f'flatten of pages only says: {said}')
    comes_back(scene, task, images)         # the sender's images are beside the handle
    ztlib.kill(task.pid)
    wait_until(lambda: not ztlib.alive(task.pid), 5)
    other, _ = new_key(scene, 'other')
    run_ctl(scene, 0, 'key', 'rotate', other)
    expect('id', joined(scene, images)['id'], pages)
    holes(scene, others)
    compact(scene)
    run_ctl(scene, 0, 'verify', '--all')
    comes_whole(scene, task, images, pages)
    keys = wrapped_keys(scene, pages)
    run_ctl(scene, 0, 'rm', '--secure', pages, *others)
    expect('its key', sum(on_device(scene, k) for k in keys), 0)
    zones_back(scene)


@case
def pages_only_log_lost(scene):
    """Received pages are moved, and then the log is lost: they are found in their new place, joined, moved again, and the log is lost again."""
    scene = scene(ROOM, 1)
    task = scene.task
    sent, images, pages, others = received(scene)
    copy_images(sent, images)
    compact(scene)

    def catalogue():
        return [(c['id'], c['state'], sorted(c['zones'])) for c in scene.device.checkpoints()]

    def lose_log():
        listed = catalogue()
        media = Media(scene)
        stop_broker(scene)
        for zone in range(3):
            media.write(zone, 0, bytes(1 << 20))
        said = json.loads(run_ctl(scene, 0, 'fsck', '--rebuild', '--json'))
        expect('rebuilt', (said['rebuilt'], said['checkpoints'], said['problems']), (True, len(listed), []))
        expect('catalogue', catalogue(), listed)

    lose_log()
    joined(scene, images)
    holes(scene, others)
    compact(scene)
    lose_log()
    comes_whole(scene, task, images, pages)
    run_ctl(scene, 0, 'rm', pages, *others)
    zones_back(scene)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'together', CASES))
