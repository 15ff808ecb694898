#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
disk: what a store on an ordinary disk (file:PATH) does, with real programs.

  disk.py list | run NAME... | run -a
"""
import json
import re
import shutil
import sys
from pathlib import Path

import ztlib
from tools import many_dumps, run_ctl
from ztlib import Failed
from ztscene import case_of, expect, suite_main

CASES = {}
case = case_of(CASES)


def on_disk(scene, size='96M', name='store'):
    """The scene's device is such a store from now on."""
    scene.device.needs_emulator('makes a store of its own')
    scene.device.json('unregister', scene.device.spec)
    scene.device.spec = f'file:{scene.dir}/{name}'
    scene.device.json('create', scene.device.spec, '--size', size, '--rate', '500')
    scene.remember()
    return scene


@case
def resize(scene):
    """Larger, then as small as its checkpoints allow: they are moved, intact, and an old handle restores from it."""
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
    run_ctl(scene, 0, 'rm', *ids)
    many_dumps(scene, 1)
    run_ctl(scene, 2, 'resize', 'large')
    run_ctl(scene, 1, 'resize', '8M')


@case
def full(scene):
    """A dump that finds no room says what gives some, and how much; what a rule makes due is removed for it, in the same call."""
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
    """A copy of a registered store is refused, with both names; one that was moved is registered while its broker lives, and dumps go on."""
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
    """Of two devices a dump that names none takes the one with most free space, or the default; a restore follows the handle."""
    scene = on_disk(scene(size=1), '64M')
    large = f'file:{scene.dir}/large'
    scene.device.json('create', large, '--size', '128M', '--rate', '500')
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


@case
def copy(scene):
    """Checkpoints go to another device as they are, a drive here: a second run has nothing to do; they restore from there alone."""
    scene = on_disk(scene(size=6))
    first = many_dumps(scene, 2)
    run_ctl(scene, 0, 'pin', first[0])
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '4')
    newest = scene.good_dump()
    source = scene.device.spec
    drive = f'emu:{scene.dir}/drive'
    scene.device.json('create', drive, '--zones', '16', '--zone-size', '8M')
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
    run_ctl(scene, 0, 'verify', '--dev', drive, '--all')
    scene.device.json('unregister', source)
    images = scene.dir / 'from-drive'
    images.mkdir()
    scene.good_restore(images=images, extra=['--zns-checkpoint', newest])
    run_ctl(scene, 1, 'copy', drive, drive)


@case
def keyed(scene):
    """A key and a store are both called file:PATH: key tells them apart, in either order."""
    scene = on_disk(scene(size=6))
    key, store = f'file:{scene.dir}/key', scene.device.spec
    run_ctl(scene, 0, 'key', 'create', key[5:])
    for args in (['use', key, store], ['show', store], ['rotate', store, key], ['off', store]):
        run_ctl(scene, 0, 'key', *args)
    run_ctl(scene, 1, 'key', 'use', f'file:{scene.dir}/none', store)


@case
def words(scene):
    """What is printed of a disk speaks of neither zones nor groups."""
    scene = on_disk(scene(size=1), '64M')
    ident, = many_dumps(scene, 1, 'web')
    run_ctl(scene, 0, 'report', '--output', f'{scene.dir}/page.html')
    page = re.sub('<[^>]*>', ' ', Path(f'{scene.dir}/page.html').read_text().partition('<body>')[2])
    commands = ('status',), ('ls', '-v'), ('top', '--once'), ('show', ident), ('show', 'web'), ('gc',), ('compact', '--dry-run')
    for what in [run_ctl(scene, 0, *command) for command in commands] + [page]:
        if re.search(r'zone(s|d)?\b|groups?\b', what.replace('zonetests', '')):
            raise Failed(f'it says: {what}')
    expect('rates', [json.loads(run_ctl(scene, 0, 'groups', '--json'))[f'zone_{k}_mibps'] for k in ('write', 'read')], [500, 500])


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'disk', CASES))
