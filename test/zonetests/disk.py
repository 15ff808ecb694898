#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
disk: what a store on an ordinary disk (file:PATH) does, with real programs, and what lies below it (ondisk.py).

  disk.py list | run NAME... | run -a
"""
import contextlib
import json
import re
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ondisk
import ztlib
from ondisk import on_disk
from tools import many_dumps, run_ctl
from ztlib import Failed, wait_until, znsctl_of
from ztscene import case_of, expect, suite_main

CASES = {}
case = case_of(CASES)


@case
def resize(scene):
    """The store grows, then shrinks as far as its checkpoints allow: they are moved intact, and an earlier handle still restores."""
    scene = on_disk(scene(size=6))
    ids = many_dumps(scene, 3)
    scene.good_dump()
    large = json.loads(run_ctl(scene, 0, 'resize', '256M', '--json'))
    if large['bytes'] < 230 << 20 or large['moved_bytes']:
        raise Failed(f'resize says: {large}')
    would = json.loads(run_ctl(scene, 0, 'resize', '64M', '--dry-run', '--json'))
    expect('a dry run leaves the size', len(scene.device.zones()), large['zones'])
    small = json.loads(run_ctl(scene, 0, 'resize', '64M', '--json'))
    expect('zones', (small['zones'], len(scene.device.zones())), (would['zones'], would['zones']))
    if max(z for c in scene.device.checkpoints() for z in c['zones']) >= small['zones']:
        raise Failed('a checkpoint names a zone that is gone')
    run_ctl(scene, 0, 'verify', '--all')
    expect('fsck', json.loads(run_ctl(scene, 0, 'fsck', '--json'))['problems'], [])
    scene.good_restore()
    said = run_ctl(scene, 1, 'resize', '63M')
    if 'a store of 63.0 MiB is too small: 64 MiB at least' not in said:
        raise Failed(f'too small: {said}')
    run_ctl(scene, 0, 'resize', '96M')
    scene.task = scene.new_task(48)
    run_ctl(scene, 0, 'rm', *ids)
    many_dumps(scene, 1)
    said = run_ctl(scene, 1, 'resize', '64M')
    if 'there is no room to move' not in said or 'zone' in said.replace('zonetests', ''):
        raise Failed(f'too small for its checkpoints: {said}')
    run_ctl(scene, 2, 'resize', 'large')


@contextlib.contextmanager
def dump_under_way(scene, mib, stop_after):
    """A dump of another task stands at its barrier inside, and goes on to its end afterwards: (task, image directory)."""
    other, images = scene.new_task(mib), scene.dir / 'other'
    images.mkdir()
    dump = scene.start_dump(images=images, task=other, stop_after=stop_after)
    try:
        scene.at_barrier()
        yield other, images
    finally:
        scene.go_on()
    expect('the dump', scene.end_of(dump).code, 0)


@case
def resize_beside(scene):
    """The store grows and shrinks while a dump writes in its middle: resize names the dump that is in the way, then
    waits for it; all handles restore."""
    scene = on_disk(scene(size=6), '128M')
    for _ in range(20):     # until the next zones have room for the whole dump before them
        last = max(scene.device.json('show', *many_dumps(scene, 1))['zones'])
        if 54 <= last <= 100:
            break
    run_ctl(scene, 0, 'rm', '--all')
    scene.good_dump()
    with dump_under_way(scene, 24, stop_after=4) as (other, images):
        large = json.loads(run_ctl(scene, 0, 'resize', '256M', '--json'))
        expect('zones', len(scene.device.zones()), large['zones'])
        mine = max(z['index'] for z in scene.device.zones() if str(z['owner']).startswith('(writing)'))
        # the tables and the log take 13 MiB, as three zones; so the dump's last zone is the first one behind the new
        # end
        size = f'{mine + 10}M'
        said = run_ctl(scene, 1, 'resize', size, '--wait', '0')
        if 'a dump of errors (PID ' not in said or 'behind the new end' not in said:
            raise Failed(f'in the way is a dump: {said}')
        small = subprocess.Popen([scene.cfg.znsctl, 'resize', scene.device.spec, size, '--json'], env=scene.device.env, stdout=subprocess.PIPE, text=True)
    small = json.loads(small.communicate(timeout=60)[0])
    expect('zones', (small['zones'], len(scene.device.zones())), (mine, mine))
    if max(z for c in scene.device.checkpoints() for z in c['zones']) >= mine:
        raise Failed('a checkpoint names a zone that is gone')
    run_ctl(scene, 0, 'verify', '--all')
    expect('fsck', json.loads(run_ctl(scene, 0, 'fsck', '--json'))['problems'], [])
    scene.good_restore()
    scene.good_restore(images=images, task=other)


@case
def full(scene):
    """A dump that finds no room says which removals would give room, and how much; what a rule allows to remove is removed in the same call."""
    scene = on_disk(scene(size=6), '64M')
    ids = many_dumps(scene, 4)
    done = scene.dump(['--leave-running'])
    while not done.code:
        done = scene.dump(['--leave-running'])
    said = ' '.join(done.lines('is full'))
    for want in (f'`znsctl rm {ids[0][:8]}` (the oldest, of errors)', 'MiB, `znsctl resize file:', ' SIZE`'):
        if want not in said:
            raise Failed(f'"{want}" is not in: {said}')
    held = scene.ids()
    run_ctl(scene, 0, 'retain', 'errors', '--ttl', '1d', '--keep', '2')
    expect('nothing is removed yet', scene.ids(), held)
    args = scene.dump_command(scene.log(), ['--leave-running'], None, None, None)
    args[args.index('--zns-container') + 1] = 'other'
    good = ztlib.run_criu(scene.cfg, args, scene.dir / 'other.log', scene.device.env)
    expect('a dump of another container', good.returncode, 0)
    left = [c['container'] for c in scene.device.checkpoints()]
    expect('left', sorted(left), ['errors', 'errors', 'other'])


@case
def twin(scene):
    """A copy of a registered store is refused, with both names. A store that was moved is registered again while its
    broker lives, and dumps go on."""
    scene = on_disk(scene(size=1), '64M')
    ids = many_dumps(scene, 1)
    old, copy, new = (f'{scene.dir}/{name}' for name in ('store', 'copy', 'new'))
    shutil.copyfile(old, copy)
    said = scene.device.ctl('register', f'file:{copy}')
    if said.returncode != 1 or f'file:{copy} is a copy of file:{old}' not in said.stderr or f'`znsctl unregister file:{old}`' not in said.stderr:
        raise Failed(f'a copy: {said}')
    many_dumps(scene, 1)
    Path(old).rename(new)
    said = run_ctl(scene, 0, 'register', f'file:{new}')
    if f'was registered as file:{old}' not in said:
        raise Failed(f'a moved one: {said}')
    scene.device.spec = f'file:{new}'
    ids += many_dumps(scene, 1)
    expect('checkpoints', len(scene.ids()), 3)
    run_ctl(scene, 0, 'unregister', f'file:{new}')
    Path(new).unlink()
    run_ctl(scene, 0, 'register', f'file:{copy}')
    expect('of the copy', scene.ids(), [ids[0]])


@case
def several(scene):
    """With two devices, a dump without --zns-dev goes to the one with more free space, or to the default; a restore follows the handle."""
    scene = on_disk(scene(size=1), '64M')
    large = f'file:{scene.dir}/large'
    scene.device.json('create', large, '--size', '128M', '--rate', '500')
    for more in (), ('--size', '64M'):
        said = run_ctl(scene, 1, 'create', large, *more)
        if '`znsctl register' not in said or '--force' not in said:
            raise Failed(f'create where a store is: {said}')
    other = scene.dir / 'other'
    other.write_bytes(b'no store' * 1024)
    said = run_ctl(scene, 1, 'create', f'file:{other}')
    if 'how large shall' not in said:
        raise Failed(f'create where another file is: {said}')
    env = {k: v for k, v in scene.device.env.items() if k != 'ZNS_DEV'}

    def in_large():
        return len(json.loads(run_ctl(scene, 0, 'ls', large, '--json'))['checkpoints'])

    def dump(name):
        images = scene.dir / name
        images.mkdir()
        done = scene.dump(['--leave-running'] if name != 'three' else [], images=images, env=env)
        expect(f'dump {name}', done.code, 0)

    dump('one')
    expect('in the one with most room', in_large(), 1)
    run_ctl(scene, 0, 'register', '--default', scene.device.spec)
    dump('two')
    expect('in the default', in_large(), 1)
    run_ctl(scene, 0, 'register', '--default', large)
    dump('three')
    expect('in the other default', in_large(), 2)
    scene.good_restore(images=scene.dir / 'three')


class CutCopy:
    """Copies of one store to fresh drives, each interrupted by an accident."""

    def __init__(self, scene):
        self.scene = on_disk(scene(size=1))
        self.ids = many_dumps(self.scene, 1)
        self.scene.task = self.scene.new_task(4)    # a larger task, so that some faults hit only its checkpoint
        self.ids = sorted(self.ids + many_dumps(self.scene, 1))
        self.source, self.nr = self.scene.device.spec, 0

    def begin(self, **fault):
        """Begins a copy with the test build. The faults hit the copy and the drive's broker, not the source's broker, which runs already."""
        self.nr += 1
        self.drive = f'emu:{self.scene.dir}/drive-{self.nr}'
        self.scene.device.json('create', self.drive, '--zones', '16', '--zone-size', '4M', '--sparse')
        self.scene.end_broker()
        run_ctl(self.scene, 0, 'ls', self.source)
        env = ztlib.controlled(self.scene.device.env, ZNS_EMU_FAULT=','.join(f'{k}={v}' for k, v in fault.items()))
        return subprocess.Popen([Path(env['ZNS_LIBEXEC']) / 'znsctl', 'copy', self.source, self.drive], env=env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def look(self, what):
        """Checks that what the drive lists is complete, and that the next copy brings the rest. Returns how many checkpoints were there."""
        self.scene.end_broker()
        held = [c['id'] for c in json.loads(run_ctl(self.scene, 0, 'ls', self.drive, '--json'))['checkpoints']]
        if held:
            run_ctl(self.scene, 0, 'verify', '--dev', self.drive, '--all')
        said = json.loads(run_ctl(self.scene, 0, 'copy', self.source, self.drive, '--json'))
        expect(f'{what}: copied, there, refused', (said['copied'], said['there'], said['refused']), (2 - len(held), len(held), 0))
        expect(f'{what}: listed', sorted(c['id'] for c in json.loads(run_ctl(self.scene, 0, 'ls', self.drive, '--json'))['checkpoints']), self.ids)
        run_ctl(self.scene, 0, 'verify', '--dev', self.drive, '--all')
        expect(f'{what}: fsck', json.loads(run_ctl(self.scene, 0, 'fsck', '--dev', self.drive, '--json'))['problems'], [])
        run_ctl(self.scene, 0, 'unregister', self.drive)
        Path(self.drive[4:]).unlink()
        return len(held)

    def power_cut(self, n, loss):
        copy = self.begin(**{'cut-after': n, 'loss': loss})
        code = copy.wait(60)
        return self.look(f'a cut after {n} writes, loss={loss}, exit {code}')

    def killed(self, n, whom):
        """The copy or the drive's broker stops after that many writes, and is not continued."""
        copy = self.begin(**{'stop-after': n})
        stopped = []

        def stands():
            stopped[:] = [p for p in (copy.pid, *self.scene._ours('znsd')) if ztlib.proc_state(p) == 'T']
            return stopped or copy.poll() is not None

        while wait_until(stands, 60) and stopped:
            victim = copy.pid if whom == 'copy' else stopped[0]
            for pid in (victim, *(p for p in stopped if p != victim)):
                ztlib.kill(pid, signal.SIGKILL)
            if victim == copy.pid:
                break
            copy.kill()
        copy.kill()
        copy.wait()
        return self.look(f'killed after {n} writes')


@case
def copy_cut(scene):
    """A copy is killed, or its drive loses power, at some of its writes: what is listed is complete, and the next copy brings the rest."""
    s = CutCopy(scene)
    expect('checkpoints there after cuts', [s.power_cut(n, loss) for n, loss in ((1, 'drop'), (9, 'keep'), (36, 'drop'), (1000, 'keep'))], [0, 0, 1, 2])
    expect('after kills', [s.killed(n, 'copy') for n in (2, 36)], [0, 1])


@case.soak('each write of a copy is cut: some minutes')
def copy_cut_all(scene):
    """A copy is killed, or its drive loses power, at each write until a copy is complete."""
    s, n = CutCopy(scene), 1
    while not all([s.power_cut(n, loss) == 2 for loss in ('drop', 'keep', str(n))]):
        n += 1
    print(f'     {n} writes', flush=True)
    for k in range(1, n + 1):
        s.killed(k, 'copy' if k % 2 else 'broker')


@case
def copy_beside(scene):
    """A copy beside a dump takes what is committed; after a second one with --switch both old handles restore from the target alone."""
    scene = on_disk(scene(size=1), '64M')
    source = scene.device.spec
    target = another(scene, 'target', '64M')
    run_ctl(scene, 0, 'register', '--default', source)
    scene.good_dump()
    with dump_under_way(scene, 8, stop_after=2) as (other, images):
        said = json.loads(run_ctl(scene, 0, 'copy', source, target, '--json'))
        expect('copied, there, refused', (said['copied'], said['there'], said['refused']), (1, 0, 0))
        expect('the dump goes on', [w['kind'] for w in json.loads(run_ctl(scene, 0, 'status', source, '--json'))['leases']], ['dump'])
    said = json.loads(run_ctl(scene, 0, 'copy', source, target, '--switch', '--json'))
    expect('copied, there, refused at last', (said['copied'], said['there'], said['refused']), (1, 1, 0))
    scene.end_broker()
    Path(source[5:]).unlink()
    scene.device.spec = target
    run_ctl(scene, 0, 'verify', '--dev', target, '--all')
    scene.good_restore()
    scene.good_restore(images=images, task=other)


@case
def copy(scene):
    """Checkpoints are copied to another device unchanged, here a drive: a second run copies nothing; they can be restored from there
    alone.
    """
    scene = on_disk(scene(size=6))
    first = many_dumps(scene, 2)
    run_ctl(scene, 0, 'pin', first[0])
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '4')
    newest = scene.good_dump()
    source = scene.device.spec
    drive = f'emu:{scene.dir}/drive'
    scene.device.json('create', drive, '--zones', '8', '--zone-size', '32M')
    would = json.loads(run_ctl(scene, 0, 'copy', source, drive, '--dry-run', '--json'))
    said = json.loads(run_ctl(scene, 0, 'copy', source, drive, '--json'))
    expect('copied', (would['copied'], would['bytes'], said['copied'], said['bytes'], said['refused']),
           (3, said['bytes'], 3, said['bytes'], 0))
    keys = ('id', 'container', 'created', 'bytes', 'images', 'origin', 'pinned')

    def listed(spec):
        return [[c.get(k) for k in keys] for c in json.loads(run_ctl(scene, 0, 'ls', spec, '--json'))['checkpoints']]

    expect('what is listed', listed(drive), listed(source))
    (rule,) = json.loads(run_ctl(scene, 0, 'retain', drive, '--json'))['retentions']
    expect('rule', (rule['container'], rule['keep']), ('errors', 4))
    again = json.loads(run_ctl(scene, 0, 'copy', source, drive, '--json'))
    expect('again', (again['copied'], again['there']), (0, 3))
    run_ctl(scene, 0, 'rm', '--dev', drive, first[1])
    once_more = json.loads(run_ctl(scene, 0, 'copy', source, drive, '--json'))
    expect('what was removed comes again', (once_more['copied'], once_more['there']), (1, 2))
    rebuilt = json.loads(run_ctl(scene, 0, 'fsck', '--rebuild', '--force', '--dry-run', drive, '--json'))
    expect('a rebuild finds', {c['id'] for c in rebuilt['found'] if c['taken']}, {*first, newest})
    run_ctl(scene, 0, 'verify', '--dev', drive, '--all')
    scene.device.json('unregister', source)
    images = scene.dir / 'from-drive'
    images.mkdir()
    scene.good_restore(images=images, extra=['--zns-checkpoint', newest])
    run_ctl(scene, 1, 'copy', drive, drive)


def send(scene, *args, to=subprocess.PIPE, given=b''):
    """Runs `znsctl send`; returns what it wrote, its exit code and its errors."""
    done = subprocess.run([znsctl_of(scene.cfg, scene.device.env), 'send', *args], env=scene.device.env, input=given, stdout=to,
                          stderr=subprocess.PIPE, timeout=scene.cfg.timeout)
    return done.stdout, done.returncode, done.stderr.decode()


def receive(scene, stream, code, *args):
    """Runs `znsctl receive`, which must end with this code; returns its JSON and its errors, of at most one line."""
    done = subprocess.run([znsctl_of(scene.cfg, scene.device.env), 'receive', *args, '--json'], env=scene.device.env, input=stream,
                          capture_output=True, timeout=scene.cfg.timeout)
    errors = done.stderr.decode()
    expect(f'exit code of receive {args} ({errors})', done.returncode, code)
    if errors.count('\n') > 1:
        raise Failed(f'receive: more than one line: {errors}')
    return json.loads(done.stdout or '{}'), errors


def another(scene, name, size='96M'):
    """Makes another store on a disk."""
    spec = f'file:{scene.dir}/{name}'
    scene.device.json('create', spec, '--size', size, '--rate', '500')
    return spec


KEPT = ('id', 'container', 'created', 'bytes', 'images', 'origin', 'pinned', 'encrypted', 'parent')


def listed(scene, spec):
    return [[c.get(k) for k in KEPT] for c in json.loads(run_ctl(scene, 0, 'ls', spec, '--json'))['checkpoints']]


@case
def stream(scene):
    """An encrypted backup through a pipe: all is kept, a second one brings only what is new; a task is restored from the backup alone."""
    scene = on_disk(scene(size=6))
    source = scene.device.spec
    run_ctl(scene, 0, 'key', 'create', f'{scene.dir}/key')
    run_ctl(scene, 0, 'key', 'use', f'file:{scene.dir}/key', source)
    first = many_dumps(scene, 2)
    run_ctl(scene, 0, 'pin', first[0])
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '4')
    drive = f'emu:{scene.dir}/drive'
    scene.device.json('create', drive, '--zones', '16', '--zone-size', '8M')
    said, _ = receive(scene, send(scene, source)[0], 0, drive, '--trusted')
    expect('first', (said['received'], said['there'], said['refused'], said['rules'], said['claimed'], said['whole']), (2, 0, 0, 1, 0, True))
    run_ctl(scene, 0, 'register', '--default', source)
    newest = scene.good_dump()
    held = run_ctl(scene, 0, 'ls', '-v', drive).encode()
    whole, few = send(scene, source)[0], send(scene, source, '--have', '-', given=held)[0]
    if not len(few) < len(whole) / 2:
        raise Failed(f'--have: {len(few)} bytes of {len(whole)}')
    said, _ = receive(scene, few, 0, drive, '--trusted')
    expect('second', (said['received'], said['there'], said['rules']), (1, 0, 1))
    said, _ = receive(scene, whole, 0, drive)
    expect('all again', (said['received'], said['there'], said['rules_left']), (0, 3, 1))
    expect('what is listed', listed(scene, drive), listed(scene, source))
    (rule,) = json.loads(run_ctl(scene, 0, 'retain', drive, '--json'))['retentions']
    expect('rule', (rule['container'], rule['keep']), ('errors', 4))
    run_ctl(scene, 0, 'verify', '--dev', drive, '--all')
    run_ctl(scene, 0, 'key', 'use', f'file:{scene.dir}/key', drive)
    scene.device.json('unregister', source)
    images = scene.dir / 'from-drive'
    images.mkdir()
    scene.good_restore(images=images, extra=['--zns-checkpoint', newest])


@case
def torn(scene):
    """From a stream that is cut off, damaged, or does not fit, each checkpoint arrives completely or not at all; one line says why."""
    scene = on_disk(scene(size=6))
    ids = many_dumps(scene, 3)
    source = scene.device.spec
    whole = send(scene)[0]
    ends = [m.end() + 38 for m in re.finditer(rb'ZNSCRIU1\xea\0', whole)]
    expect('checkpoints in the stream', len(ends), 3)
    flipped = bytearray(whole)
    flipped[(ends[0] + ends[1]) // 2] ^= 1
    target = another(scene, 'target')
    for what, input, there, says in (
            ('nothing', b'', 0, 'nothing came'), ('another kind', b'PK\3\4' * 100, 0, 'no stream'),
            ('in the second', whole[:(ends[0] + ends[1]) // 2], 1, 'cut off'), ('a bit', bytes(flipped), 1, 'checksum'),
            ('a part is missing', whole[:ends[0]] + whole[ends[1]:], 1, 'missing'), ('before the end', whole[:ends[2]], 3, 'cut off')):
        _, errors = receive(scene, input, 1, target)
        if says not in errors:
            raise Failed(f'{what}: {errors}')
        expect(f'{what}: whole', [c[0] for c in listed(scene, target)], ids[:there])
    run_ctl(scene, 0, 'verify', '--dev', target, '--all')
    expect('leases', json.loads(run_ctl(scene, 0, 'status', target, '--json'))['leases'], [])
    expect('problems', json.loads(run_ctl(scene, 0, 'fsck', target, '--json'))['problems'], [])
    small = f'emu:{scene.dir}/small'
    scene.device.json('create', small, '--zones', '8', '--zone-size', '2M')
    _, errors = receive(scene, whole, 1, small)
    if 'space' not in errors and 'full' not in errors:
        raise Failed(f'a full device: {errors}')
    if not set(c[0] for c in listed(scene, small)) < set(ids):
        raise Failed('the small one has all')
    with open('/dev/full', 'wb') as full:
        expect('to a full disk', send(scene, source, to=full)[1:], (1, 'znsctl send: cannot write the stream: No space left on device\n'))
    reading, writing = os.pipe()
    os.close(reading)
    expect('to nobody', send(scene, source, to=writing)[1:], (1, 'znsctl send: the receiver ended before the stream did, and says why itself\n'))
    os.close(writing)


@case
def unread(scene):
    """A receiver that stops reading is given up with one line, and its lease is returned; so is one that a signal ends."""
    scene = on_disk(scene(size=6))
    many_dumps(scene, 1)
    znsctl = znsctl_of(scene.cfg, scene.device.env)
    for how, says in (('time', 'the receiver took nothing for 1 s'), ('signal', 'interrupted by signal 15')):
        reading, writing = os.pipe()
        args = [znsctl, 'send', scene.device.spec, '--timeout', '1' if how == 'time' else '0']
        with subprocess.Popen(args, env=scene.device.env, stdout=writing, stderr=subprocess.PIPE) as sender:
            os.close(writing)
            if how == 'signal':
                if not wait_until(lambda: scene.device.status()['leases'], 20):
                    raise Failed('it has no lease')
                sender.terminate()
            try:
                errors = sender.communicate(timeout=60)[1].decode()
            finally:
                sender.kill()
        os.close(reading)
        expect(f'exit code by {how}', (sender.returncode, errors.count('\n')), (1, 1))
        if says not in errors:
            raise Failed(f'by {how}: {errors}')
        expect('leases', scene.device.status()['leases'], [])


def shown_on(terminal):
    """What is on this terminal by now."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:     # nothing, or the other side is closed
        return b''


@case
def slowly_read(scene):
    """A receiver that takes its time: the terminal says how far the sender is, and nothing of that stays."""
    scene = on_disk(scene(size=6))
    many_dumps(scene, 1)
    terminal, its = pty.openpty()
    os.set_blocking(terminal, False)
    shown = b''

    def is_shown():
        nonlocal shown
        sender.stdout.read(1 << 16)
        shown += shown_on(terminal)
        return b'sending: ' in shown

    with subprocess.Popen([znsctl_of(scene.cfg, scene.device.env), 'send', scene.device.spec], env=scene.device.env, stdout=subprocess.PIPE,
                          stderr=its) as sender:
        os.close(its)
        try:
            told = wait_until(is_shown, 60, 0.05)
            while sender.stdout.read(1 << 20):
                pass
            expect('exit code', sender.wait(60), 0)
        finally:
            sender.kill()
    while more := shown_on(terminal):
        shown += more
    os.close(terminal)
    expect('it is told', told, True)
    expect('the last thing on the terminal', shown[-4:], b'\r\x1b[K')


@case
def orphan(scene):
    """A backup whose container is gone comes back, by a stream or as a copy: no sweep removes it again. A checkpoint
    that is still needed gets no pin."""
    scene = on_disk(scene(size=1), '64M')
    made = scene.dir / 'docker/containers' / ('c0ffee00' * 8) / 'checkpoints'
    made.mkdir(parents=True)
    origin = {'ZNS_ORIGIN_KIND': 'docker', 'ZNS_ORIGIN_ID': made.parent.name, 'ZNS_ORIGIN_ROOT': str(scene.dir / 'docker'),
              'ZNS_ORIGIN_CHECKPOINT': 'cp1'}
    lost, = many_dumps(scene, 1, 'lost', origin)
    needed, = many_dumps(scene, 1, 'needed', origin)
    shutil.copytree(scene.dir / f'many-{scene.calls - 1}', made / 'cp1')
    whole = send(scene, scene.device.spec)[0]
    stream, copied = another(scene, 'stream', '64M'), another(scene, 'copied', '64M')
    said, _ = receive(scene, whole, 0, stream, '--trusted')
    expect('received', (said['received'], said.get('orphans')), (2, 1))
    said = json.loads(run_ctl(scene, 0, 'copy', scene.device.spec, copied, '--json'))
    expect('copied', (said['copied'], said['orphans']), (2, 1))
    for spec in (stream, copied):
        run_ctl(scene, 0, 'gc', '--grace', '0', spec)
        expect('after a sweep', {c['id']: bool(c.get('pinned')) for c in json.loads(run_ctl(scene, 0, 'ls', spec, '--json'))['checkpoints']},
               {lost: True, needed: False})


@case
def silent_judge(scene):
    """The administrator's program that says whether a container is gone does not answer: copy does not wait for it."""
    scene = on_disk(scene(size=1), '64M')
    many_dumps(scene, 1, 'web', {'ZNS_ORIGIN_KIND': 'cri', 'ZNS_ORIGIN_ID': 'c0ffee00'})
    program = Path(scene.device.env['ZNS_CONFIG']) / 'gc.d' / 'cri'
    program.parent.mkdir()
    # It has 5 s: a shell notes that it was asked before anything large is loaded.
    program.write_text(f'#!/bin/sh\n: >"$0.asked"\nexec {sys.executable} -c "import time; time.sleep(30); raise SystemExit(1)"\n')
    program.chmod(0o755)
    said = json.loads(run_ctl(scene, 0, 'copy', scene.device.spec, another(scene, 'copied', '64M'), '--json'))
    expect('copied', (said['copied'], said['orphans'], Path(f'{program}.asked').exists()), (1, 0, True))


@case
def stranger(scene):
    """A stream cannot change rules: its rules are ignored, and its checkpoints do not count for any rule, whether the
    container is known or not. Checkpoints chosen by name arrive with theirs."""
    scene = on_disk(scene(size=1), '64M')
    many_dumps(scene, 2)
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '1')
    source, target = scene.device.spec, another(scene, 'target', '64M')
    scene.device.spec = target
    run_ctl(scene, 0, 'register', '--default', target)
    mine = many_dumps(scene, 2)
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '2')
    whole = send(scene, source)[0]
    theirs = [c[0] for c in listed(scene, source)]
    said, _ = receive(scene, whole, 0, target)
    expect('said', (said['received'], said['claimed'], said['rules'], said['rules_left']), (len(theirs), len(theirs), 0, 1))
    run_ctl(scene, 0, 'gc', target)
    expect('rule', json.loads(run_ctl(scene, 0, 'retain', target, '--json'))['retentions'][0]['keep'], 2)
    expect('all are there', {c[0] for c in listed(scene, target)}, {*mine, *theirs})
    new = another(scene, 'new', '64M')
    said, _ = receive(scene, whole, 0, new)
    expect('said of a new container', (said['claimed'], said['rules'], said['rules_left']), (len(theirs), 0, 1))
    one = another(scene, 'one', '64M')
    receive(scene, send(scene, target, mine[1])[0], 0, one)
    expect('the chosen one', [c[0] for c in listed(scene, one)], [mine[1]])
    run_ctl(scene, 1, 'send', target, '01234567-89ab-cdef-0123-456789abcdef')
    run_ctl(scene, 2, 'send', target, '--json')
    run_ctl(scene, 2, 'receive', target, 'more')


@case
def keyed(scene):
    """Both a key and a store may be written file:PATH: the command key tells them apart, in either order."""
    scene = on_disk(scene(size=6))
    key, store = f'file:{scene.dir}/key', scene.device.spec
    run_ctl(scene, 0, 'key', 'create', key[5:])
    for args in (['use', key, store], ['show', store], ['rotate', store, key], ['off', store]):
        run_ctl(scene, 0, 'key', *args)
    run_ctl(scene, 1, 'key', 'use', f'file:{scene.dir}/none', store)


@case
def words(scene):
    """For a store on a disk no output mentions zones or groups."""
    scene = on_disk(scene(size=1), '64M')
    ident, = many_dumps(scene, 1, 'web')
    run_ctl(scene, 0, 'report', '--output', f'{scene.dir}/page.html')
    page = re.sub('<[^>]*>', ' ', Path(f'{scene.dir}/page.html').read_text().partition('<body>')[2])
    commands = ('status',), ('ls', '-v'), ('top', '--once'), ('show', ident), ('show', 'web'), ('gc',), ('compact', '--dry-run')
    for what in [run_ctl(scene, 0, *command) for command in commands] + [page]:
        if re.search(r'zone(s|d)?\b|groups?\b', what.replace('zonetests', '')):
            raise Failed(f'it says: {what}')
    expect('rates', [json.loads(run_ctl(scene, 0, 'groups', '--json'))[f'zone_{k}_mibps'] for k in ('write', 'read')], [500, 500])


CASES.update(ondisk.CASES)

if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'disk', CASES))
