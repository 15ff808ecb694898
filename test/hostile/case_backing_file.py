# SPDX-License-Identifier: GPL-2.0-only
"""The emulator's file, deleted, replaced, cut short or out of room under a dump.

A sync of such a file succeeds. A dump must not: one line that says what happened, and the task runs on.
"""
import os
import shutil
import signal
from pathlib import Path

import ztlib
from tally import tried
from ztlib import Failed, HANDLE, wait_until
from ztscene import FAST, case_of

CASES = {}
case = case_of(CASES)


def task_runs_on(scene):
    pid = scene.task.pid
    if not wait_until(lambda: ztlib.proc_state(pid) in ('R', 'S') and not ztlib.traced(pid), 15):
        raise Failed(f'the task is not running: state "{ztlib.proc_state(pid)}"')
    scene.task.verify(signal.SIGUSR1)
    if (scene.images / HANDLE).exists():
        raise Failed('a handle is there after a failed dump')
    scene.no_helpers()
    left = [p.name for p in scene.images.iterdir()]
    if left:
        raise Failed(f'left in the image directory: {left}')


def between(scene, command):
    """criu's options for a shell command after admission, before any task is frozen."""
    path = scene.dir / f'between-{scene.calls}'
    path.write_text(f'#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" = pre-dump ] || exit 0\n{command}\n')
    path.chmod(0o755)
    return ['--action-script', str(path)]


@case
def file_under_dump(scene):
    """The file is deleted, moved, replaced or cut after the dump was admitted: the dump fails and says why."""
    scene = scene(size=8)
    scene.device.needs_emulator('needs the file of the emulator')
    dev = scene.device.path
    data = os.stat(dev).st_size
    for what, command, says in (
            ('deleted', f'rm {dev}', 'was deleted'),
            ('moved away', f'mv {dev} {dev}.old', 'moved away or replaced'),
            ('replaced by a copy', f'cp {dev} {dev}.new && mv {dev}.new {dev}', 'was deleted'),
            ('replaced, the old one kept', f'ln {dev} {dev}.old2 && cp {dev} {dev}.new && mv {dev}.new {dev}',
             'moved away or replaced'),
            ('a directory in its place', f'mv {dev} {dev}.old3 && mkdir {dev}', 'moved away or replaced'),
            ('cut by a byte', f'truncate -s -1 {dev}', 'cut short'),
            ('halved', f'truncate -s {data // 2} {dev}', 'cut short'),
            ('without its last zone', f'truncate -s -16M {dev}', 'cut short'),
            ('without any zone', f'truncate -s 1M {dev}', 'cut short|died'),
            ('emptied', f'truncate -s 0 {dev}', 'cut short|died')):     # the table of zones is mapped
        done = scene.dump(extra=between(scene, command))
        done.must_fail(says)
        task_runs_on(scene)
        tried(what)
        scene.end_broker()
        if dev.is_dir():
            dev.rmdir()
        for old in dev.parent.glob('dev.emu*'):
            old.unlink()
        scene.device.create(*FAST)
    scene.remember()
    scene.works()


@case
def file_cut_while_writing(scene):
    """The emulator's file is halved, or deleted, in the middle of a dump: the dump fails and the task runs on."""
    scene = scene(size=64)
    scene.device.needs_emulator('needs the file of the emulator')
    dev = scene.device.path
    for what, act, says in (('halved', lambda: os.truncate(dev, os.stat(dev).st_size // 2), 'cut short'),
                            ('deleted', dev.unlink, 'was deleted')):
        started = scene.start_dump(qos='100', stop_after=20)
        scene.until_writing()
        act()
        scene.go_on()
        scene.end_of(started).must_fail(says)
        task_runs_on(scene)
        tried(what)
        scene.end_broker()
        dev.unlink(missing_ok=True)
        scene.device.create(*FAST)
        scene.remember()


def blocks(path):
    return os.stat(path).st_blocks * 512


def small_disk(scene, mib):
    """A new sparse device on a file system that is smaller than it."""
    disk = scene.dir / 'disk'
    disk.mkdir()
    ztlib.mount('none', disk, 'tmpfs', 0, f'size={mib}M')
    scene.end_broker()
    scene.device.spec = f'emu:{disk}/dev.emu'
    scene.device.create('--default', '--sparse', *FAST)
    scene.remember()
    return disk


@case
def disk_below_is_full(scene):
    """The file system is full: one line says so, no zone is called bad, and with free space the next dump works."""
    scene = scene(size=64)
    scene.device.needs_emulator('needs the file of the emulator')
    disk = small_disk(scene, 96)
    scene.free_before -= 2              # the catalogue may continue in another of its zones
    try:
        for filled, what in ((50, 'in the middle of the pages'), (88, 'at the first write')):
            filler = disk / 'filler'
            filler.write_bytes(bytes(filled << 20))
            done = scene.dump()
            done.must_fail('no space left on the file system below')
            if done.lines('zones? failed'):
                raise Failed(f'zones are blamed: {done.lines("zones? failed")[0]}')
            filler.unlink()
            task_runs_on(scene)
            scene.works()
            if any(z['suspect'] or z['state'] in ('read-only', 'offline') for z in scene.device.zones()):
                raise Failed('a zone is taken for one that fails')
            tried(what)
    finally:
        for pid in scene._ours('znsd'):
            ztlib.kill(pid)
        ztlib.unmount(disk)


@case
def removed_blocks(scene):
    """Removed data of a sparse file become free space; a file that was allocated stays as large as it was."""
    scene = scene(size=64)
    scene.device.needs_emulator('needs the file of the emulator')
    dev = Path(scene.device.path)
    for options, what in ((['--sparse'], 'sparse'), ([], 'allocated')):
        scene.end_broker()
        dev.unlink()
        scene.device.create(*options, *FAST)
        scene.remember()
        before = blocks(dev)
        checkpoint = scene.good_dump()
        used = blocks(dev)
        if (used - before >= 64 << 20) != bool(options):
            raise Failed(f'{what}: the dump took {used - before} bytes of the file system')
        scene.good_restore()
        scene.device.remove(checkpoint)
        scene.store_as_before()
        if options and not wait_until(lambda: blocks(dev) < before + (4 << 20), 10):
            raise Failed(f'{what}: {blocks(dev) - before} bytes more than before the dump are taken')
        if not options and blocks(dev) < before:
            raise Failed(f'{what}: {before - blocks(dev)} bytes are no longer reserved')
        shutil.rmtree(scene.images)
        scene.images.mkdir()
        tried(what)
    scene.works()
