# SPDX-License-Identifier: GPL-2.0-only
"""Handles that name another checkpoint.

A handle is a file in a directory that a user may own; what it leads to is on a device that only root can read.
"""
import json

from forge import HANDLE, frame, get, having, pack, unpack, zigzag
from tally import tried
from ztlib import Failed, HANDLE as NAME
from ztscene import TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)


def handle_of(images):
    return unpack((images / NAME).read_bytes()[48:])


def write(images, fields):
    (images / NAME).write_bytes(frame(HANDLE, pack(fields)))


@case
def swapped_ids(scene):
    """Another user's checkpoint, named by its id in a user's own handle: refused in one line that names both."""
    scene = scene(TINY, size=1)
    theirs = scene.dir / 'theirs'
    theirs.mkdir()
    victim = scene.good_dump(extra=['--leave-running', '--zns-container', 'victim'], images=theirs)
    later = scene.dir / 'later'
    later.mkdir()
    newer = scene.good_dump(extra=['--leave-running'], images=later)
    mine = scene.good_dump()
    good, other, same = handle_of(scene.images), handle_of(theirs), handle_of(later)
    expect('container in the handle', get(other, 3), b'victim')
    forged = {
        "another container's id": having(good, 2, get(other, 2)),
        "another container's id and name": having(having(good, 2, get(other, 2)), 3, b'victim'),
        "another container's id and time": having(having(good, 2, get(other, 2)), 4, get(other, 4)),
        "an earlier one's id": having(good, 2, get(same, 2)),
        'another name': having(good, 3, b'victim'), 'a longer name': having(good, 3, get(good, 3) + b'x'),
        'a shorter name': having(good, 3, get(good, 3)[:-1]),
        'a nanosecond later': having(good, 4, get(good, 4) + 2), 'time 0': having(good, 4, 0),
        'the end of time': having(good, 4, zigzag((1 << 63) - 1)), 'before 1970': having(good, 4, zigzag(-1)),
    }
    for what, fields in forged.items():
        write(scene.images, fields)
        scene.restore_must_fail('the handle was changed')
        for command in (['verify'], ['show'], ['export']):
            done = scene.device.ctl(*command, str(scene.images), *([str(scene.dir / 'out')] if command == ['export'] else []))
            if done.returncode != 1 or 'the handle was changed' not in done.stderr + done.stdout:
                raise Failed(f'{what}: {command[0]} ends with {done.returncode}: {done.stderr or done.stdout}')
        tried(what)
    for what, fields in {'no such id': having(good, 2, bytes(16)), 'no such device': having(good, 1, bytes(16))}.items():
        write(scene.images, fields)
        scene.restore_must_fail('no checkpoint|not registered')
        tried(what)
    write(scene.images, good)
    scene.good_restore()
    expect('checkpoints', sorted(scene.ids()), sorted([victim, newer, mine]))


@case
def honest_handles(scene):
    """Renamed directories, copied handles and ids on the command line still work."""
    scene = scene(TINY, size=1)
    ident = scene.good_dump()
    renamed = scene.images.rename(scene.dir / 'renamed')
    copied = scene.dir / 'copied'
    copied.mkdir()
    (copied / NAME).write_bytes((renamed / NAME).read_bytes())
    empty = scene.dir / 'empty'
    empty.mkdir()
    for what, images, extra in (('renamed', renamed, []), ('the handle alone, copied', copied, []),
                                ('by id', empty, ['--zns-checkpoint', ident]),
                                ("by id, in another's directory", renamed, ['--zns-checkpoint', ident])):
        scene.good_restore(images=images, extra=extra)
        scene.task.end()
        tried(what)
    expect('verify', json.loads(run_ctl(scene, 0, 'verify', '--json', str(copied)))['damaged'], 0)
