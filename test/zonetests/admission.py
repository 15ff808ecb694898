#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
admission: which dump gets which zones, on real dumps: ceilings, queues, separate groups, small checkpoints.

  admission.py list | run NAME... | run -a
"""
import os
import signal
import sys
import time
from pathlib import Path

import ztlib
from ztfds import descriptors
from ztlib import Failed, alive, wait_until
from ztscene import SLOW, case_of, expect, suite_main

SYS_PIDFD_GETFD = 438

CASES = {}
case = case_of(CASES)


def shown(scene, checkpoint):
    return scene.device.json('show', checkpoint)


def tenants(scene, text):
    (Path(scene.device.env['ZNS_CONFIG']) / 'tenants.conf').write_text(text)


def dump_as(scene, task, container, name, **args):
    """Dumps this task as a container of this name; returns (checkpoint, image directory)."""
    images = scene.dir / f'images-{name}'
    images.mkdir()
    extra = ['--zns-container', container, *args.pop('extra', [])]
    return scene.good_dump(images=images, task=task, extra=extra, **args), images


@case
def metadata_apart(scene):
    """--zns-separate-metadata: pages on one set of channels, all other images on another; with static allocation the sets stay the same
    over several dumps.
    """
    scene = scene(size=32)
    channel = {g['id']: g['channel'] for g in scene.device.json('groups')['groups']}
    zone_group = {z: g['id'] for g in scene.device.json('groups')['groups'] for z in g['zones']}
    before = None
    for n in range(3):
        made = scene.good_dump(qos='300', extra=['--zns-separate-metadata'])
        info = shown(scene, made)
        meta = info['metadata_groups']
        expect('number of metadata groups', len(meta), 1)
        for image in info['images']:
            for segment in image['segments']:
                groups = {zone_group[e['zone']] for e in segment['extents']}
                if image['name'].startswith('pages-'):
                    if {channel[g] for g in groups} & {channel[meta[0]]}:
                        raise Failed(f'{image["name"]} is on the channel of the metadata')
                else:
                    expect(f'groups of {image["name"]}', groups, set(meta))
        if before is not None:
            expect('metadata group of the next dump', meta, before)
        before = meta
        scene.good_restore()
        scene.no_helpers()      # whose leases would count in the next choice of groups


@case
def small_ones_share(scene):
    """Dumps of a few pages by several containers share one zone, which is freed when all of them are removed."""
    scene = scene(size=1)
    free = scene.device.free_zones()
    made, where = [], []
    for n in range(4):
        task = scene.task if n == 0 else scene.new_task(1)
        checkpoint, images = dump_as(scene, task, f'box{n}', n)
        made.append(checkpoint)
        where.append((images, task))
    infos = [shown(scene, m) for m in made]
    zones = {z for i in infos for z in i['zones']}
    expect('packed', [i['packed'] for i in infos], [True] * 4)
    if len(zones) != 1:
        raise Failed(f'four small checkpoints are on zones {sorted(zones)}')
    status = scene.device.status()
    expect('reservations', status['reservations'], [])
    expect('pack zones', status['pack_zones'], 1)
    owner = scene.device.json('zones')['zones'][zones.pop()]['owner']
    expect('owner of the zone', owner, '(pack)')
    for images, task in where:
        scene.good_restore(images=images, task=task)
    for m in made:
        scene.device.remove(m)
    if not wait_until(lambda: scene.device.free_zones() == free, 10, 0.1):
        raise Failed('the pack zone does not come back')


@case
def larger_ones_do_not(scene):
    """Three containers: large, small, and small with much memory in a memfd that it has not mapped. The first and last get zones of their own."""
    scene = scene(size=64)
    big, _ = dump_as(scene, scene.task, 'big', 'big')
    little, _ = dump_as(scene, scene.new_task(1), 'little', 'little')
    big, little = shown(scene, big), shown(scene, little)
    expect('packed', (big['packed'], little['packed']), (False, True))
    if set(big['zones']) & set(little['zones']):
        raise Failed('they share a zone')
    expect('reservations', [r['container'] for r in scene.device.status()['reservations']], ['big'])
    hidden, images = dump_as(scene, scene.new_task(program='unmapped'), 'hidden', 'hidden')
    expect('packed', shown(scene, hidden)['packed'], False)
    scene.good_restore(images=images, task=scene.tasks[-1])


@case
def ceilings(scene):
    """tenants.conf: rates above the ceiling are refused, below it admitted, by name and by user; a bad file is one clear error line."""
    scene = scene()
    tenants(scene, 'uid 4711 max-groups=1\nname web-* max-qos=200\n')
    scene.failed_dump(r'exceeds the ceiling of 200 MiB/s', r'tenants\.conf:2', qos='300', extra=['--zns-container', 'web-1'])
    dump_as(scene, scene.task, 'web-1', 'below', qos='200', extra=['--leave-running'])
    dump_as(scene, scene.task, 'other', 'other', qos='300', extra=['--leave-running'])
    scene.remember()
    tenants(scene, 'name web-* max-qos=many\n')
    scene.failed_dump(r'tenants\.conf:1: a rate reads like')
    tenants(scene, f'uid {os.getuid()} max-groups=2\n')
    scene.failed_dump(rf'`uid {os.getuid()}` is 2, 200 MiB/s', qos='300')
    scene.good_dump(qos='200')


def waiting(scene):
    return scene.device.status()['waiting']


@case
def waiter_dies(scene):
    """criu is killed while it waits for admission: it leaves the queue, and the next in the queue is admitted."""
    scene = scene()
    scene.device.json('reserve', 'io', '--groups', '7')
    blocker = scene.new_task(32)
    images = scene.dir / 'images-blocker'
    images.mkdir()
    # all groups but one are reserved, so a dump that needs two must wait
    first = scene.start_dump(qos='200', extra=['--zns-admission', 'wait=120'])
    if not wait_until(lambda: waiting(scene) == 1, 10):
        raise Failed('the dump does not wait')
    second = scene.start_dump(qos='100', extra=['--zns-admission', 'wait=120'], images=images, task=blocker)
    if not wait_until(lambda: waiting(scene) == 2, 10):
        raise Failed('the second dump does not wait')
    first[0].kill()
    first[0].wait()
    done = scene.end_of(second)
    if done.code:
        raise Failed(f'the second is not admitted: {" | ".join(done.lines("Error")[-3:])}')
    expect('waiting', waiting(scene), 0)
    if not alive(scene.task.pid) or ztlib.traced(scene.task.pid):
        raise Failed('the task of the killed dump does not run')
    scene.task.verify(signal.SIGUSR1)
    scene.no_helpers()
    expect('leases', scene.device.status()['leases'], [])


def sockets_of(pid):
    """Copies of all sockets of a process, as a child of it would have them."""
    found, pidfd = [], os.pidfd_open(pid)
    for fd, link in descriptors(pid):
        if link.startswith('socket:'):
            found.append(ztlib.libc.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0))
    os.close(pidfd)
    found = [fd for fd in found if fd >= 0]
    if not found:
        raise Failed('criu has no socket that can be copied')
    return found


@case
def orphan_holds(scene):
    """criu is killed while it waits for admission, and another process still has its sockets: it leaves the queue all the same."""
    scene = scene()
    scene.device.json('reserve', 'io', '--groups', '7')
    first = scene.start_dump(qos='200', extra=['--zns-admission', 'wait=120'])
    if not wait_until(lambda: waiting(scene) == 1, 10):
        raise Failed('the dump does not wait')
    held = sockets_of(first[0].pid)
    first[0].kill()
    first[0].wait()
    if not wait_until(lambda: waiting(scene) == 0, 10):
        raise Failed('a dump whose criu was killed waits still')
    for fd in held:
        os.close(fd)
    scene.no_helpers()
    scene.task.verify(signal.SIGUSR1)


@case
def promised(scene):
    """A dump admitted with `reject` has its groups for itself, while other dumps share the others."""
    scene = scene(SLOW, size=300)
    other = scene.new_task(64)
    images = scene.dir / 'images-other'
    images.mkdir()
    first = scene.start_dump(qos='600', extra=['--zns-admission', 'reject', '--zns-container', 'first'], stop_after=20)
    scene.until_writing()
    lease = [l for l in scene.device.status()['leases'] if l['container'] == 'first'][0]
    expect('promised', lease['promised'], True)
    second = scene.start_dump(qos='600', extra=['--zns-container', 'second'], images=images, task=other)
    wait_until(lambda: len(scene.device.status()['leases']) == 2 or second[0].poll() is not None)
    scene.go_on()
    while first[0].poll() is None:
        by = {l['container']: l['groups'] for l in scene.device.status()['leases']}
        if set(by.get('first', [])) & set(by.get('second', [])):
            raise Failed(f'both write groups {sorted(set(by["first"]) & set(by["second"]))}')
        time.sleep(0.05)
    for done in (scene.end_of(first), scene.end_of(second)):
        if done.code:
            raise Failed(f'a dump fails: {" | ".join(done.lines("Error")[-3:])}')
    by = {c['container']: c for c in scene.device.checkpoints()}
    expect('shared groups of the promised one', by['first']['shared_groups'], 0)


@case
def gained(scene):
    """A dump that found two free groups of the six it needs gets the others when they become free; it can be restored."""
    scene = scene(SLOW, size=300)
    scene.device.ctl('reserve', 'io', '--groups', '6')
    made = scene.start_dump(qos='600', extra=['--zns-container', 'second'], stop_after=20)
    scene.until_writing()

    lease, = (l for l in scene.device.status()['leases'] if l['container'] == 'second')
    expect('groups to begin with, and those gained', (len(lease['groups']), lease['gained_groups']), (2, 0))
    scene.device.ctl('release', 'io')
    scene.go_on()
    done = scene.end_of(made)
    if done.code:
        raise Failed(f'a dump fails: {" | ".join(done.lines("Error")[-3:])}')
    made = next(c for c in scene.device.checkpoints() if c['container'] == 'second')
    expect('groups with bytes of it', len(made['groups']), 6)
    reserved = next(r for r in scene.device.status()['reservations'] if r['container'] == 'second')
    expect('groups reserved', len(reserved['groups']), 2)
    expect('leases left', scene.device.status()['leases'], [])
    scene.device.ctl('verify', made['id'])
    wait_until(lambda: not alive(scene.task.pid), 5)
    scene.good_restore()


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'admission', CASES))
