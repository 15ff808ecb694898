# SPDX-License-Identifier: GPL-2.0-only
"""Encrypted checkpoints on a device that an attacker can write. Without the key the attacker can neither read nor change them, but can put
other checkpoints in their place.
"""
import json

from crypt import new_key, second
from forge import (CHECKPOINT, ENCRYPTION, HANDLE, KEY_LINE, RETENTION, Fixed, Found, frame, get, having, log, pack,
                   put_manifest, unpack)
from tally import tried
from tools import Media, manifest_of, stop_broker
from ztlib import Failed, HANDLE as HANDLE_NAME
from ztscene import TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)


def raw(ident):
    return bytes.fromhex(ident.replace('-', ''))


def record_of(media, ident):
    return [f for f in log(media) if f.kind == CHECKPOINT and get(f.fields, 1) == raw(ident)][-1]


class Forgery:
    """An encrypted checkpoint, and a plain one of the same task that an attacker puts in its place under the same id."""

    def __init__(self, scene):
        self.scene = scene
        self.spec, self.key_id = new_key(scene)
        run_ctl(scene, 0, 'key', 'use', self.spec)
        self.ident = scene.good_dump(extra=['--leave-running'])
        run_ctl(scene, 0, 'key', 'off')
        self.plain_images = second(scene)
        self.plain = scene.good_dump(images=self.plain_images)
        self.media = Media(scene)
        self.place = manifest_of(scene, self.media, self.plain)
        stop_broker(scene)
        self.before = self.media.copy_of_metadata()
        self.manifest = self.media.read(*self.place, 64 * 1024)

    def put(self, forget=False):
        media, mine, other = self.media, record_of(self.media, self.ident), record_of(self.media, self.plain)
        inner = Found(media, *self.place)
        said = [(n, v) for n, v in unpack(get(inner.fields, 2)) if n not in (1, 2, 3)]
        alias = [(n, v) for n, v in mine.fields if n in (1, 2, 3)]      # id, container, time
        ref = put_manifest(media, *self.place, having(inner.fields, 2, pack(alias + said)))
        places = [(n, v) for n, v in other.fields if n not in (1, 2, 3, 14)] + [(14, pack(ref))]
        theirs = [(n, v) for n, v in mine.fields if n not in (1, 2, 3, 70)]
        mine.put(alias + places)
        other.put([(n, v) for n, v in other.fields if n in (1, 2, 3)] + theirs)
        for f in log(media):
            if f.kind == KEY_LINE:      # its absence would show that there was a key
                f.put([(1, b'nobody'), (2, 3)], kind=RETENTION)
            if f.kind == ENCRYPTION and forget:
                f.put(having(f.fields, 1))

    def undo(self):
        stop_broker(self.scene)
        self.media.put_back(self.before)
        self.media.write(*self.place, self.manifest)

    def refused(self, what, *patterns, by_id=False):
        extra = ['--zns-checkpoint', self.ident] if by_id else []
        images = second(self.scene) if by_id else self.scene.images
        self.scene.restore_must_fail(*patterns, extra=extra, images=images)
        run_ctl(self.scene, 1, 'verify', self.ident if by_id else str(self.scene.images))
        tried(what)


@case
def plain_in_its_place(scene):
    """A plain checkpoint forged under the id of an encrypted one: restore and verify notice it, by handle and by id."""
    scene = scene(TINY, size=1)
    f = Forgery(scene)
    f.put()
    # Encryption is not requested any more, but the handle says that the checkpoint is encrypted.
    f.refused('handle, encryption off', 'in its place', 'was encrypted')
    run_ctl(scene, 1, 'export', str(scene.images), str(scene.dir / 'out'))
    tried('export by handle')
    run_ctl(scene, 1, 'show', str(scene.images))
    tried('show by handle')
    # The device requires encryption.
    run_ctl(scene, 0, 'key', 'use', f.spec)
    f.refused('by id, device asks', 'encrypted ones only', by_id=True)
    f.refused('handle, device asks', 'encrypted ones only|in its place')
    run_ctl(scene, 1, 'export', f.ident, str(scene.dir / 'out'))
    tried('export by id')
    bad = scene.device.ctl('verify', '--all', '--json')
    expect('intact', [c['id'] for c in json.loads(bad.stdout)['checkpoints'] if c['intact']], [])
    tried('verify --all')
    # zns.conf of this machine requires encryption.
    run_ctl(scene, 0, 'key', 'off')
    conf = scene.device.directory / 'etc' / 'zns.conf'
    old = conf.read_text() if conf.exists() else ''
    conf.write_text(old + f'encrypt-key = {f.spec}\n')
    f.refused('by id, zns.conf asks', 'zns.conf', 'encrypted ones only', by_id=True)
    conf.write_text(old)
    f.undo()
    run_ctl(scene, 0, 'verify', '--all')
    scene.good_restore()


@case
def wish_removed(scene):
    """The device's own setting to require encryption is forged away: this machine has noted it, so restores and dumps still require it."""
    scene = scene(TINY, size=1)
    f = Forgery(scene)
    run_ctl(scene, 0, 'key', 'use', f.spec)
    stop_broker(scene)
    f.put(forget=True)
    expect('the device asks', scene.device.status()['encrypted'], False)
    f.refused('by id', 'noted', 'encrypted ones only', by_id=True)
    task = scene.new_task(1)
    images = second(scene)
    ident = scene.good_dump(task=task, images=images)
    expect('the next dump is encrypted', scene.device.json('show', ident)['encrypted'], True)
    tried('the next dump')


@case
def plain_accepted(scene):
    """The administrator accepts earlier plain checkpoints: they restore; a handle of an encrypted checkpoint is still refused."""
    scene = scene(TINY, size=1)
    f = Forgery(scene)
    run_ctl(scene, 0, 'key', 'use', f.spec)
    scene.restore_must_fail('encrypted ones only', 'key plain accept', images=f.plain_images)
    tried('an honest plain one, not accepted')
    run_ctl(scene, 0, 'key', 'plain', 'accept')
    expect('key show', scene.device.json('key', 'show')['plain_accepted'], True)
    run_ctl(scene, 0, 'verify', '--all')
    scene.good_restore(images=f.plain_images)
    scene.task.end()
    tried('an honest plain one, accepted')
    stop_broker(scene)
    f.put()
    f.refused('a forged one by handle, accepted', 'in its place')
    f.undo()
    run_ctl(scene, 0, 'key', 'plain', 'refuse')
    scene.restore_must_fail('encrypted ones only', images=f.plain_images)
    tried('refused again')
    run_ctl(scene, 2, 'key', 'plain')
    run_ctl(scene, 2, 'key', 'plain', 'maybe')


def handle_of(images):
    """Returns (the handle's fields, a function that writes other fields)."""
    path = images / HANDLE_NAME
    data = path.read_bytes()
    return unpack(data[48:]), lambda fields: path.write_bytes(frame(HANDLE, pack(fields)))


@case
def sealed_handles(scene):
    """What a handle says about an encrypted checkpoint cannot be changed, only left out."""
    scene = scene(TINY, size=1)
    spec, _ = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    scene.good_dump(extra=['--leave-running'])
    other = second(scene)
    scene.good_dump(images=other)
    fields, write = handle_of(scene.images)
    seal = unpack(get(fields, 70))
    theirs = get(handle_of(other)[0], 70)
    mac = bytearray(get(seal, 2))
    for what, value in {
            'a flipped bit': pack(having(seal, 2, bytes([mac[0] ^ 1]) + bytes(mac[1:]))),
            'zeroes': pack(having(seal, 2, bytes(32))), 'that of another handle': theirs}.items():
        write(having(fields, 70, value))
        scene.restore_must_fail('not the one that the handle was written for')
        run_ctl(scene, 1, 'verify', str(scene.images))
        tried(what)
    for what, value in {
            '31 bytes': pack(having(seal, 2, bytes(mac[:31]))), '33 bytes': pack(having(seal, 2, bytes(mac) + b'x')),
            'no MAC': pack(having(seal, 2)), 'fingerprint of 3 bytes': pack(having(seal, 1, b'abc'))}.items():
        write(having(fields, 70, value))
        scene.restore_must_fail('damaged or foreign')
        tried(what)
    write(having(fields, 70))       # as handles were before there were seals: the checkpoint is authentic by its key
    scene.good_restore()
    tried('no seal')
    write(fields)
    run_ctl(scene, 0, 'verify', str(scene.images))
    scene.task.end()
    scene.good_restore()


@case
def sealed_manifests(scene):
    """In the manifest of an encrypted checkpoint nothing that matters can be changed, including what it says about earlier versions."""
    scene = scene(TINY, size=1)
    spec, _ = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    ident = scene.good_dump()
    media = Media(scene)
    zone, offset = manifest_of(scene, media, ident)
    stop_broker(scene)
    record, there = record_of(media, ident), Found(media, zone, offset)
    before, good = media.copy_of_metadata(), media.read(zone, offset, there.room + 4096)
    mac = get(unpack(get(handle_of(scene.images)[0], 70)), 2)
    images = [v for n, v in there.fields if n == 3]
    big = max(range(len(images)), key=lambda i: get(unpack(images[i]), 2))

    def image(change):
        return having(there.fields, 3, *(pack(change(unpack(v))) if i == big else v for i, v in enumerate(images)))
    for what, forged in {
            'an earlier version': having(there.fields, 71, mac), 'two of them': having(there.fields, 71, mac, bytes(32)),
            'an earlier version of 3 bytes': having(there.fields, 71, b'abc'), 'no seal': having(there.fields, 70),
            'another seal': having(there.fields, 70, bytes(16)), 'seal of 15 bytes': having(there.fields, 70, bytes(15)),
            'another parent': having(there.fields, 2, pack(having(unpack(get(there.fields, 2)), 16, bytes(16)))),
            'no key': having(there.fields, 2, pack(having(unpack(get(there.fields, 2)), 70))),
            'another cipher': having(there.fields, 2, pack(having(unpack(get(there.fields, 2)), 70, pack([(1, 2)])))),
            'an image less': having(there.fields, 3, *images[:-1]), 'images in another order': having(there.fields, 3, *images[::-1]),
            'another tag': image(lambda v: having(v, 70, bytes(len(get(v, 70))))),
            'a tag too few': image(lambda v: having(v, 70, get(v, 70)[:-16])),
            'checksums of pieces': image(lambda v: having(v, 160, bytes(8))), 'pieces': image(lambda v: having(v, 161, 4096)),
            'a base that wraps': image(lambda v: having(v, 100, Fixed(b'\xff' * 8)))}.items():
        ref = put_manifest(media, zone, offset, forged)
        record.put(having(record.fields, 14, pack(ref)))
        scene.restore_must_fail('manifest|image|seal|encrypted|version')
        run_ctl(scene, 1, 'verify', ident)
        tried(what)
        stop_broker(scene)
        media.put_back(before)
        media.write(zone, offset, good)
    scene.good_restore()


@case
def handles_that_stay_good(scene):
    """After a rotation of the master key, a move, a copied directory, a renaming: the handle is still valid."""
    scene = scene(TINY, size=1)
    spec, _ = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    scene.good_dump()
    rotated, _ = new_key(scene, 'rotated')
    run_ctl(scene, 0, 'key', 'rotate', rotated)
    copied = scene.dir / 'copied and renamed'
    copied.mkdir()
    for path in scene.images.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    for what, images in {'rotated': scene.images, 'copied and renamed': copied}.items():
        run_ctl(scene, 0, 'verify', str(images))
        scene.good_restore(images=images)
        scene.task.end()
        tried(what)
    if not get(handle_of(scene.images)[0], 70):
        raise Failed('the handle has no seal')
