#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
compact: zones with little live data are emptied, and no owner of that data notices.

  compact.py list | run NAME... | run -a
"""
import hashlib
import json
import signal
import subprocess
import sys
import time

import tools
import ztlib
from tools import expect, many_dumps, run_ctl, stop_broker
from ztmedia import Media
from ztlib import Failed, wait_until
from ztscene import case_of, suite_main

CASES = {}
case = case_of(CASES)
# One die: all checkpoints of a container compete for the same zones.
ONE_DIE = ['--channels', '1', '--ways', '2', '--die-write-bw', '600', '--zones', '24', '--zone-size', '4M', '--timing', 'off']


def fragmented(scene, dumps=9, keep=4):
    """Makes dumps and removes all but every fourth. Returns the ids that are left, and each one's bytes as an archive."""
    ids = many_dumps(scene, dumps)
    scene.device.remove(*[i for n, i in enumerate(ids) if n % keep])
    left = ids[::keep]
    return left, {i: archive(scene, i) for i in left}


def archive(scene, ident):
    done = subprocess.run([scene.cfg.znsctl, 'export', ident, '-'], env=scene.device.env, capture_output=True, timeout=60)
    expect(f'export {ident}: {done.stderr.decode()[:200]}', done.returncode, 0)
    return hashlib.sha256(done.stdout).hexdigest()


def empty(scene):
    """Number of free data zones."""
    return sum(1 for z in scene.device.zones() if z['state'] == 'empty' and z['owner'] != '(metadata)')


def compact(scene, *options):
    said = json.loads(run_ctl(scene, 0, 'compact', '--below', '80', '--json', *options))
    if not said['moved_checkpoints'] and not said['dry_run']:
        raise Failed(f'nothing was moved: {said}')
    return said


def same(scene, left, before):
    expect('checkpoints', scene.ids(), sorted(left))
    expect('bytes', {i: archive(scene, i) for i in left}, before)
    run_ctl(scene, 0, 'verify', '--all')
    said = json.loads(run_ctl(scene, 0, 'fsck', '--json'))
    expect('fsck', said['problems'], [])


def restores(scene, ident):
    """Restores a checkpoint by id into an empty directory, and checks the task's memory."""
    empty = scene.dir / f'empty-{ident}'
    empty.mkdir()
    scene.task.end()
    scene.good_restore(images=empty, extra=['--zns-checkpoint', ident])


def all_comes_back(scene):
    run_ctl(scene, 0, 'unpin', *scene.ids())
    run_ctl(scene, 0, 'rm', '--all')
    if not wait_until(lambda: scene.device.free_zones() == scene.free_before, 10, 0.1):
        raise Failed(f'{scene.device.free_zones()} zones are free, {scene.free_before} were')


@case
def nothing_scattered(scene):
    """--defrag where no two lanes share a die: nothing is moved, and the command says so; unknown containers are refused; --layout shows
    each checkpoint.
    """
    scene = scene(ONE_DIE, size=1)
    ids = many_dumps(scene, 2)
    before = {i: archive(scene, i) for i in ids}
    said = json.loads(run_ctl(scene, 0, 'compact', '--defrag', '--json'))
    expect('moved', (said['moved_checkpoints'], [c['moves'] for c in said['checkpoints']]), (0, [[]] * len(ids)))
    expect('says', run_ctl(scene, 0, 'compact', '--defrag', '--dry-run').strip(), 'no move would pay')
    shown = json.loads(run_ctl(scene, 0, 'show', '--layout', '--all', '--json'))['checkpoints']
    expect('layouts', sorted(c['id'] for c in shown), sorted(ids))
    if not all(0 < c['of_best'] <= 1 and c['predicted_mibps'] <= c['best_mibps'] for c in shown):
        raise Failed(f'layouts: {shown}')
    # on one die no rate is lost, except for flash pages that small images fill only in part
    if not all(c['short_units'] and c['page_bytes'] > c['read_bytes'] and abs(c['of_best'] * c['page_bytes'] / c['read_bytes'] - 1) < 0.001
               for c in shown):
        raise Failed(f'what small images cost is not in it: {shown}')
    if 'nobody' not in run_ctl(scene, 1, 'compact', '--defrag', '--of', 'nobody'):
        raise Failed('compact --defrag does not say that nobody has no checkpoint')
    run_ctl(scene, 2, 'compact', '--of', ids[0])
    run_ctl(scene, 2, 'compact', '--weight', '99')
    run_ctl(scene, 2, 'gc', '--compact', '--weight', '99')
    run_ctl(scene, 2, 'gc', '--weight', 'owner')
    run_ctl(scene, 0, 'gc', '--compact', '--weight', 'owner')
    same(scene, ids, before)


# Four dies, and zones so small that a checkpoint has several on each.
LANES = ['--channels', '2', '--ways', '2', '--die-write-bw', '100', '--zones', '160', '--zone-size', '4M', '--timing', 'off']
SCATTER = ztlib.REPO / 'build' / 'bench' / 'scatter'


def layout(scene, ident):
    return json.loads(run_ctl(scene, 0, 'show', '--layout', ident, '--json'))['checkpoints'][0]


def collide(scene, ident, lanes=2):
    """
    Moves what a checkpoint has on one or more dies to another of its dies, as if those had been full: two or more of
    its lanes then share a die. The longest lanes are taken, since a real dump's lanes differ in length: at least half
    of its bytes.
    """
    of = {z['index']: z['group'] for z in scene.device.zones()}
    to, *off = [g['group'] for g in sorted(layout(scene, ident)['groups'], key=lambda g: -g['bytes'])[:lanes]]
    moved = [f'{z}:{to}' for z in scene.device.json('show', ident)['zones'] if of[z] in off]
    done = subprocess.run([SCATTER, scene.device.spec, ident, *moved], env=ztlib.not_installed(scene.device.env), capture_output=True, text=True, timeout=60)
    expect(f'scatter ({done.stderr.strip()})', done.returncode, 0)
    found = layout(scene, ident)
    if found['of_best'] > 0.55 or found['width'] != 4:
        raise Failed(f'it is not scattered: {found}')
    return found


def defragmented(scene):
    """A checkpoint of four lanes, two of which share a die: status names it, --defrag moves it, a restore is faster, and its bytes are the same."""
    ident = scene.good_dump(qos='400', extra=['--leave-running'])
    before = {ident: archive(scene, ident)}
    handle = (scene.images / ztlib.HANDLE).read_bytes()
    bad = collide(scene, ident)
    same(scene, [ident], before)
    named, = scene.device.status()['scattered']
    expect('named', (named['checkpoint'], named['measured_mibps']), (ident, None))
    if not bad['of_best'] - 0.02 <= named['of_best'] <= 0.55:
        raise Failed(f'status says {named}, the layout is {bad}')
    scene.task.end()
    scene.good_restore(extra=['--zns-qos-max', '40'])       # long enough that its rate can be measured
    rate = scene.device.status()['scattered'][0]['measured_mibps']
    if rate is None or rate != layout(scene, ident)['measured_mibps']:
        raise Failed(f'a restore at 40 MiB/s at most, and status has {rate}')

    zones = scene.device.json('show', ident)['zones']
    dry = json.loads(run_ctl(scene, 0, 'compact', '--defrag', '--dry-run', '--json'))
    expect('a dry run', (dry['moved_bytes'], scene.device.json('show', ident)['zones']), (0, zones))
    said = json.loads(run_ctl(scene, 0, 'compact', '--defrag', '--of', ident, '--json'))
    one, = said['checkpoints']
    expect('moved', (said['moved_checkpoints'], one['moved'], said['given_up']), (1, True, 0))
    if not 0 < one['move_bytes'] <= said['moved_bytes'] or one['move_bytes'] > 0.3 * one['bytes'] or not one['moves']:
        raise Failed(f'moved: {said}')
    after = layout(scene, ident)
    if abs(after['of_best'] - one['of_best_after']) > 0.03:
        raise Failed(f'the layout is {after}, after {one}')
    if after['predicted_mibps'] < 1.2 * bad['predicted_mibps']:
        raise Failed(f'nothing was won: {bad} before, {after} after')
    if any(s['of_best'] <= named['of_best'] for s in scene.device.status()['scattered']):
        raise Failed(f'status says {scene.device.status()["scattered"]}, it said {named}')
    same(scene, [ident], before)
    stop_broker(scene)
    same(scene, [ident], before)
    expect('the handle', (scene.images / ztlib.HANDLE).read_bytes() == handle, True)
    scene.task.end()
    scene.good_restore()
    restores(scene, ident)
    return ident


@case
def scattered(scene):
    """--defrag of a real checkpoint whose lanes share a die: named by status, moved, read faster, restored by handle and by id."""
    scene = scene(LANES, size=72)
    defragmented(scene)
    all_comes_back(scene)


@case
def scattered_encrypted(scene):
    """--defrag of an encrypted checkpoint."""
    scene = scene(LANES, size=72)
    key = scene.dir / 'key'
    run_ctl(scene, 0, 'key', 'create', str(key))
    run_ctl(scene, 0, 'key', 'use', f'file:{key}')
    ident = defragmented(scene)
    expect('encrypted', scene.device.json('ls')['checkpoints'][0]['encrypted'], True)
    run_ctl(scene, 0, 'rm', '--secure', ident)


def dump_as(scene, container):
    """A checkpoint of another container, of the same task, on four lanes. No die is reserved, so data of any container may go there."""
    images = scene.dir / f'images-{container}'
    images.mkdir()
    return scene.good_dump(images=images, qos='400', extra=['--leave-running', '--zns-alloc', 'dynamic', '--zns-container', container])


@case
def removed_meanwhile(scene):
    """A checkpoint that is removed while --defrag runs is skipped, which the command says; the others are moved."""
    scene = scene(LANES, size=72)
    ids = [dump_as(scene, name) for name in ('one', 'two', 'three')]
    bad = {i: collide(scene, i)['of_best'] for i in ids}
    before = {i: archive(scene, i) for i in ids}
    dry = json.loads(run_ctl(scene, 0, 'compact', '--defrag', '--dry-run', '--json'))['checkpoints']
    expect('to be moved', sorted(c['checkpoint'] for c in dry if c['moves']), sorted(ids))
    first, second, third = dry
    zones = set(scene.device.json('show', second['checkpoint'])['zones'])
    env = scene.faulty(None, 'stop-after=1')    # in its first move
    defrag = subprocess.Popen([ztlib.znsctl_of(scene.cfg, env), 'compact', '--defrag', '--json'], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if not wait_until(lambda: ztlib.proc_state(defrag.pid) == 'T'):
            raise Failed('the first move never wrote')
        expect('what is moved', [l['container'] for l in scene.device.status()['leases'] if l['kind'] == 'compact'], [first['container']])
        scene.device.remove(second['checkpoint'])
        if not wait_until(lambda: not zones & {z['index'] for z in scene.device.zones() if z['wp']}, 10, 0.1):
            raise Failed('the zones of what was removed were not reset')
    finally:
        defrag.send_signal(signal.SIGCONT)
        out, err = defrag.communicate(timeout=120)
    expect(f'exit code ({err.strip()})', defrag.returncode, 0)
    said = json.loads(out)
    expect('moved', {c['checkpoint']: c['moved'] for c in said['checkpoints']},
           {first['checkpoint']: True, second['checkpoint']: False, third['checkpoint']: True})
    expect('given up', said['given_up'], 1)
    if second['checkpoint'] not in said['why'] or 'removed' not in said['why']:
        raise Failed(f'it says {said["why"]}')
    left = [c['checkpoint'] for c in (first, third)]
    for ident in left:
        if layout(scene, ident)['of_best'] < 1.2 * bad[ident]:
            raise Failed(f'still scattered: {layout(scene, ident)}')
    same(scene, left, {i: before[i] for i in left})


@case
def moves(scene):
    """Zones are gained; ids, bytes, pins, rules and handles stay; restores work by handle and by id; a second run moves nothing; all zones
    come back at the end.
    """
    scene = scene(ONE_DIE, size=1)
    ids = many_dumps(scene, 8)
    last = scene.good_dump(extra=['--leave-running'])       # @scene.images has the handle of this checkpoint.
    scene.device.remove(*[i for n, i in enumerate(ids) if n % 4])
    left = ids[::4] + [last]
    scene.device.json('pin', left[0])
    scene.device.json('retain', 'errors', '--keep', '7')
    before = {i: archive(scene, i) for i in left}
    handle = (scene.images / ztlib.HANDLE).read_bytes()
    zones = {i: scene.device.json('show', i)['zones'] for i in left}
    free = scene.device.free_zones()

    dry = compact(scene, '--dry-run')
    expect('a dry run', (dry['dry_run'], dry['freed_zones'], dry['would_free_zones'] > 0), (True, 0, True))
    expect('zones after a dry run', {i: scene.device.json('show', i)['zones'] for i in left}, zones)
    said = compact(scene)
    expect('zones won', said['freed_zones'], dry['would_free_zones'])
    expect('free zones', scene.device.free_zones(), free + said['freed_zones'])
    if all(scene.device.json('show', i)['zones'] == zones[i] for i in left):
        raise Failed('no checkpoint stands elsewhere')
    same(scene, left, before)
    stop_broker(scene)
    same(scene, left, before)
    expect('the handle', (scene.images / ztlib.HANDLE).read_bytes() == handle, True)
    expect('pinned', [c['id'] for c in scene.device.checkpoints() if c.get('pinned')], left[:1])
    if left[0] not in run_ctl(scene, 1, 'rm', left[0]):
        raise Failed('a moved checkpoint is not pinned any more')
    again = json.loads(run_ctl(scene, 0, 'compact', '--below', '80', '--json'))
    expect('nothing is left to do', (again['zones'], again['moved_checkpoints']), ([], 0))
    scene.task.end()
    scene.good_restore()
    restores(scene, left[0])
    all_comes_back(scene)


@case
def log_lost(scene):
    """After compaction the catalogue is lost: what comes back from the zones is the moved state, and nothing removed."""
    scene = scene(ONE_DIE, size=1)
    left, before = fragmented(scene)
    compact(scene)
    catalogue = tools.catalogue(scene)
    media = Media(scene)
    stop_broker(scene)
    for zone in range(3):
        media.write(zone, 0, bytes(1 << 20))
    run_ctl(scene, 1, 'ls')
    said = json.loads(run_ctl(scene, 0, 'fsck', '--rebuild', '--json'))
    expect('rebuilt', (said['rebuilt'], said['checkpoints'], said['problems']), (True, len(left), []))
    expect('catalogue', tools.catalogue(scene), catalogue)
    same(scene, left, before)
    restores(scene, left[1])
    all_comes_back(scene)


@case
def reader(scene):
    """A reader that began before the compaction keeps the old zones until it ends, and reads unchanged bytes."""
    scene = scene(ONE_DIE, size=1)
    left, before = fragmented(scene)
    plan = compact(scene, '--dry-run')
    victims = {z['zone'] for z in plan['zones']}
    stands = {c['id']: set(c['zones']) for c in scene.device.checkpoints()}
    ident = next((i for i in left if victims & stands[i]), None)
    if ident is None:
        raise Failed('no checkpoint stands in a zone that would be emptied')
    old = victims & stands[ident]
    # nobody reads the pipe, so the export holds its lease with its first bytes written
    export = subprocess.Popen([scene.cfg.znsctl, 'export', ident, '-'], env=scene.device.env, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: scene.device.status()['leases'], 5)
        begun = time.monotonic()
        said = compact(scene, '--no-wait')
        expect('moved', said['moved_checkpoints'] > 0, True)
        written = {z['index'] for z in scene.device.zones() if z['wp']}
        expect('old zones that are still there', old & written, old)
        out, _ = export.communicate(timeout=120)
        expect('what the reader got', hashlib.sha256(out).hexdigest(), before[ident])
    finally:
        export.kill()
        export.wait()
    if not wait_until(lambda: not old & {z['index'] for z in scene.device.zones() if z['wp']}, 10, 0.1):
        raise Failed(f'zones {sorted(old)} were not reset after their reader had ended ({time.monotonic() - begun:.0f} s)')
    same(scene, left, before)


@case
def full_device(scene):
    """No empty zone and no room: refused in one line, nothing changed; with one zone it is enough."""
    scene = scene(ONE_DIE, size=1)
    left, before = fragmented(scene)
    filler = 0
    while empty(scene):
        # one container for each, so that none continues another's zone
        filler += 1
        log = scene.log()
        images = scene.dir / f'filler-{filler}'
        images.mkdir()
        args = ztlib.dump_args(scene.cfg, scene.task, images, log, f'filler-{filler}', ['--leave-running'])
        if ztlib.run_criu(scene.cfg, args, log, scene.device.env).returncode:
            break
        wait_until(lambda: not scene.device.status()['leases'], 5)
    expect('free zones', empty(scene), 0)
    fillers = [c['id'] for c in scene.device.checkpoints() if c['container'].startswith('filler')]
    zones = {i: scene.device.json('show', i)['zones'] for i in left}
    done = scene.device.ctl('compact', '--below', '80')
    said = done.stderr.strip()
    if done.returncode == 0:        # a zone that is partly filled has room for some of it
        expect('then something was won', 'free' in done.stdout, True)
    elif 'empty zone' not in said and 'nothing was moved' not in said or '\n' in said:
        raise Failed(f'a full device is refused with: {said}')
    else:
        expect('zones', {i: scene.device.json('show', i)['zones'] for i in left}, zones)
    scene.device.remove(*fillers[-2:])
    wait_until(lambda: empty(scene), 10)
    free = empty(scene)
    if done.returncode:
        compact(scene)
        expect('more zones are free', empty(scene) > free, True)
    for i in left:
        expect('bytes', archive(scene, i), before[i])


@case
def encrypted(scene):
    """Encrypted units are moved without the key; afterwards they are read with it, and erased like any other."""
    scene = scene(ONE_DIE, size=1)
    key = scene.dir / 'key'
    run_ctl(scene, 0, 'key', 'create', str(key))
    run_ctl(scene, 0, 'key', 'use', f'file:{key}')
    left, before = fragmented(scene)
    key.rename(scene.dir / 'away')
    compact(scene)
    (scene.dir / 'away').rename(key)
    same(scene, left, before)
    expect('encrypted', all(scene.device.json('show', i).get('encrypted', True) for i in left), True)
    restores(scene, left[0])
    run_ctl(scene, 0, 'rm', '--secure', left[0])
    run_ctl(scene, 1, 'verify', left[0])
    expect('the others', {i: archive(scene, i) for i in left[1:]}, {i: before[i] for i in left[1:]})


@case
def damaged(scene):
    """A zone to be emptied has a damaged unit: it is named, the exit code is 1, and nothing of that checkpoint is moved or lost."""
    scene = scene(ONE_DIE, size=1)
    left, before = fragmented(scene)
    victims = {z['zone'] for z in compact(scene, '--dry-run')['zones']}
    media = Media(scene)
    for i in left:
        shown = scene.device.json('show', i)
        hit = [(e['zone'], e['start']) for img in shown['images'] for s in img['segments'] for e in s['extents']
               if e['zone'] in victims and img['size'] > 100000]
        if hit:
            break
    else:
        raise Failed('no image stands in a zone that would be emptied')
    zones = shown['zones']
    media.flip(hit[0][0], hit[0][1] + 777)
    if 'damaged' not in run_ctl(scene, 1, 'compact', '--below', '80'):
        raise Failed('a damaged unit is not named')
    expect('zones of the damaged one', scene.device.json('show', i)['zones'], zones)
    media.flip(hit[0][0], hit[0][1] + 777)
    same(scene, left, before)
    compact(scene)
    same(scene, left, before)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'compact', CASES))
