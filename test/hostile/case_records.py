# SPDX-License-Identifier: GPL-2.0-only
"""
Records on a device that were forged with right checksums.

Somebody has changed the device (or its emulator's file): every checksum fits, but the records lie.
"""
import json

from forge import (BLOCK, CHECKPOINT, ENCRYPTION, FIRST, KEY_LINE, MARK, MOUNT, PROFILE, RELEASE, RESERVATION, RETENTION,
                   SNAPSHOT_END, SUPERBLOCK, TOMBSTONE, Fixed, Found, double, get, having, log, pack, put_manifest,
                   unpack, varint, zigzag)
from tally import tried
from tools import Media, footer_of, manifest_of, stop_broker
from ztlib import Failed
from ztscene import TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)

HUGE = (1 << 64) - 1


def uses(fields, *zones):
    """A checkpoint's zone uses: (zone, start, length) each."""
    return having(fields, 7, *(pack([(1, z), (2, s), (3, n)]) for z, s, n in zones))


def place(fields, zone, start, length=200):
    """The fields for a manifest at this place."""
    return having(fields, 14, pack([(1, zone), (2, start), (3, length), (4, Fixed(bytes(8)))]))


def packed(*values):
    return b''.join(varint(v) for v in values)


def checkpoints(f, capacity):
    """{what: fields} of forged checkpoint records."""
    there = [unpack(v) for n, v in f if n == 7]
    zone, start, length = (get(there[0], n) for n in (1, 2, 3))
    return {
        'id of no bytes': having(f, 1, b''), 'id of 15 bytes': having(f, 1, bytes(15)), 'id of 17 bytes': having(f, 1, bytes(17)),
        'no container': having(f, 2, b''), 'container of 256 bytes': having(f, 2, b'x' * 256),
        'time before 1970': having(f, 3, zigzag(-1)), 'end of time': having(f, 3, zigzag((1 << 63) - 1)),
        'use begins inside a block': place(uses(f, (zone, start + 1, length - 1)), zone, start + 1),
        'use of 100 bytes': place(uses(f, (zone, start, 300)), zone, start),
        'use of nothing': uses(f, (zone, start, 0), *[(zone, start, length)]),
        'use behind the zone': uses(f, (zone, capacity, BLOCK)),
        'use longer than the zone': uses(f, (zone, BLOCK, capacity)),
        'use that wraps': uses(f, (zone, HUGE - BLOCK + 1, 2 * BLOCK)),
        'use of 2^64 - 1': uses(f, (zone, 0, HUGE)),
        'use of a metadata zone': uses(f, (0, 0, BLOCK)), 'use of zone 2^32 - 1': uses(f, ((1 << 32) - 1, 0, BLOCK)),
        'one use twice': uses(f, *[(zone, start, length)] * 2),
        'uses that overlap': uses(f, (zone, start, length), (zone, start + BLOCK, length - BLOCK)),
        'group 2^31': having(f, 8, packed(1 << 31)), 'metadata group 2^31': having(f, 21, packed(1 << 31)),
        'more groups than zones': having(f, 8, packed(*[0] * 64)),
        'no manifest': having(f, 14), 'manifest in another zone': place(f, zone + 1, 0),
        'manifest of 10 bytes': place(f, zone, start, 10), 'manifest inside a block': place(f, zone, start + 8),
        'manifest behind the zone': place(f, zone, HUGE - 100), 'manifest of 2^63 bytes': place(f, zone, start, 1 << 63),
        'rate that is no number': having(f, 10, double(float('nan'))), 'endless rate': having(f, 10, double(float('inf'))),
        'negative rate': having(f, 10, double(-1.0)),
        'its own parent': having(f, 16, get(f, 1)), 'parent of 3 bytes': having(f, 16, b'abc'),
        'moved at the end of time': having(f, 82, zigzag((1 << 63) - 1)),
        'old manifest in zone 2^31': having(f, 81, packed(1 << 31)),
        'wrapped key of 3 bytes': having(f, 70, pack([(1, 1), (2, bytes(8)), (3, b'abc')])),
        'fingerprint of 3 bytes': having(f, 70, pack([(1, 1), (2, b'abc'), (3, bytes(60))])),
        'host of 4 KiB': None, 'bytes that are no message': b'\x0a\xff\xff\xff\xff\x0f', 'nothing': b'',
    }


def profiles(f):
    zones = get(f, 6)
    group = pack([(1, 0), (2, 1 << 31)])
    return {
        'no source': having(f, 1, b''), 'source of 300 bytes': having(f, 1, b'x' * 300),
        'confidence that is no number': having(f, 4, double(float('nan'))),
        'no group': having(f, 5), 'more groups than zones': having(f, 5, *[pack([(1, n)]) for n in range(50)]),
        'group on channel 2^31': having(f, 5, group, *[v for n, v in f if n == 5][1:]),
        'one zone too few': having(f, 6, zones[:-1]), 'one zone too many': having(f, 6, zones + b'\0'),
        'zone in group 2^31': having(f, 6, zones[:-1] + varint(1 << 31)),
        'unknown group 77': having(f, 11, 77), 'confidence of one group': having(f, 10, Fixed(bytes(4))) + [(10, Fixed(bytes(4)))] * 70,
        'scaling that is no number': having(f, 13, double(float('nan'))),
        'load that is no number': having(f, 63, double(float('nan'))), 'reads of 99 groups': having(f, 62, packed(*[0] * 99)),
    }


def others(kind, f):
    return {
        TOMBSTONE: {'id of 3 bytes': having(f, 1, b'abc'), 'unknown id': having(f, 1, bytes(16)), 'nobody': having(f, 3, b''),
                    'time before 1970': having(f, 2, zigzag(-5))},
        RESERVATION: {'no container': having(f, 1, b''), 'group 2^31': having(f, 2, packed(1 << 31)),
                      'more groups than there are': having(f, 2, packed(*[0] * 99))},
        RELEASE: {'of what is not reserved': having(f, 1, b'nosuch'), 'no container': having(f, 1, b'')},
        SNAPSHOT_END: {'of 2^32 - 1 records': having(f, 1, (1 << 32) - 1), 'of none': having(f, 1, 0)},
        RETENTION: {'no container': having(f, 1, b''), 'container of 300 bytes': having(f, 1, b'x' * 300)},
        MARK: {'unknown id': having(f, 1, bytes(16)), 'id of 99 bytes': having(f, 1, bytes(99)),
               'end of time': having(f, 3, zigzag((1 << 63) - 1))},
        MOUNT: {'no machine': having(f, 1, b''), 'boot of 300 bytes': having(f, 2, b'x' * 300), 'no host': having(f, 3, b''),
                'time before 1970': having(f, 4, zigzag(-1))},
        ENCRYPTION: {'fingerprint of 3 bytes': having(f, 1, b'abc')},
        KEY_LINE: {'unknown id': having(f, 1, bytes(16)), 'no key': having(f, 2, pack([(1, 1)])),
                   'key of 3 bytes': having(f, 2, pack([(1, 1), (2, bytes(8)), (3, b'abc')]))},
        SUPERBLOCK: {'format 0': having(f, 1, 0), 'format 2': having(f, 1, 2), 'UUID of 3 bytes': having(f, 2, b'abc'),
                     'generation 0': having(f, 3, 0), 'another generation': having(f, 3, 99), 'blocks of 1 byte': having(f, 4, 1),
                     'zones of 2^63 bytes': having(f, 5, 1 << 63), 'capacity 0': having(f, 6, 0),
                     'more zones': having(f, 7, (1 << 32) - 1), 'more metadata zones': having(f, 8, 1 << 20)},
    }.get(kind, {})


def refused(scene, what):
    """ls and fsck of a forged device: an error in one line that names the damage, and the program ends."""
    for command in (['fsck', '--json'], ['ls']):
        done = scene.device.ctl(*command)
        if done.returncode != 1:
            raise Failed(f'{what}: znsctl {command[0]} ends with {done.returncode}: {(done.stderr or done.stdout)[-200:]}')
    if done.stderr.count('\n') != 1 or not any(w in done.stderr for w in ('damaged', 'newer', 'has format')):
        raise Failed(f'{what}: znsctl ls says: {done.stderr[-300:]}')


def with_all_kinds(scene):
    """A device whose log has every kind of record. Returns the log's frames; the broker has ended."""
    spec = f'file:{scene.dir}/key'
    run_ctl(scene, 0, 'key', 'create', f'{scene.dir}/key')
    first = scene.good_dump(extra=['--leave-running'])
    run_ctl(scene, 0, 'key', 'use', spec)
    for n in range(2):
        images = scene.dir / f'more-{n}'
        images.mkdir()
        last = scene.good_dump(extra=['--leave-running'], images=images)
    run_ctl(scene, 0, 'pin', last)
    run_ctl(scene, 0, 'retain', 'other', '--keep', '3')
    run_ctl(scene, 0, 'reserve', 'io', '--groups', '1')
    run_ctl(scene, 0, 'release', 'io')
    run_ctl(scene, 0, 'rm', first)
    media = Media(scene)
    stop_broker(scene)
    return media, log(media)


@case
def log_records(scene):
    """Every field of every record of the log that can lie: refused as damage; with the right bytes the device works again."""
    scene = scene(TINY, size=1)
    media, frames = with_all_kinds(scene)
    before = media.copy_of_metadata()
    seen = {}
    for f in frames:
        seen.setdefault(f.kind, f)
    for kind in (SUPERBLOCK, PROFILE, CHECKPOINT, TOMBSTONE, RESERVATION, RELEASE, SNAPSHOT_END, RETENTION, MARK, MOUNT,
                 ENCRYPTION, KEY_LINE):
        if kind not in seen:
            raise Failed(f'the log has no record of type {kind}')
        f = seen[kind]
        forged = checkpoints(f.fields, media.capacity) if kind == CHECKPOINT else \
            profiles(f.fields) if kind == PROFILE else others(kind, f.fields)
        for what, fields in forged.items():
            if fields is None:
                continue
            f.put(**({'payload': fields} if isinstance(fields, bytes) else {'fields': fields}))
            refused(scene, f'record of type {kind}, {what}')
            tried(f'type {kind}: {what}')
            media.put_back(before)
    good = [(1, get(seen[MARK].fields, 1)), (2, zigzag(1)), (3, b'')]
    for what, fields in {'unknown id': having(good, 1, bytes(16)), 'id of 3 bytes': having(good, 1, b'abc'),
                         'end of time': having(good, 2, zigzag((1 << 63) - 1)), 'no list': having(good, 3)}.items():
        seen[MARK].put(fields, kind=FIRST)
        refused(scene, f'first pages, {what}')
        tried(f'first pages: {what}')
        media.put_back(before)
    expect('checkpoints', len(scene.ids()), 2)
    run_ctl(scene, 0, 'fsck')


@case
def frame_headers(scene):
    """A record with an impossible type, version, length, number or generation."""
    scene = scene(TINY, size=1)
    media, frames = with_all_kinds(scene)
    before = media.copy_of_metadata()
    victim = [f for f in frames if f.kind == RETENTION][-1]
    for what, header in {
            'type 0': {'kind': 0}, 'type 99': {'kind': 99}, 'type 65535': {'kind': 65535}, 'version 0': {'version': 0},
            'version 2': {'version': 2}, 'length 2^32 - 1': {'length': (1 << 32) - 1}, 'length 16 MiB': {'length': 16 << 20},
            'seq 0': {'seq': 0}, 'seq 2^64 - 1': {'seq': HUGE}, 'a manifest in the log': {'kind': 8},
            'a second superblock': {'kind': 1}, 'a handle in the log': {'kind': 10},
            'generation 0': {'generation': 0}, 'generation 2^64 - 1': {'generation': HUGE}}.items():
        victim.put(victim.fields, **header)
        refused(scene, what)
        tried(what)
        media.put_back(before)
    expect('checkpoints', len(scene.ids()), 2)


@case
def last_generation(scene):
    """A record of the highest generation in another metadata zone must not make the next catalogue unreadable."""
    scene = scene(TINY, size=1)
    media, frames = with_all_kinds(scene)
    before = media.copy_of_metadata()
    for generation in (1 << 56, (1 << 63) - 1, HUGE - 1, HUGE):
        frames[0].put(having(frames[0].fields, 3, generation), generation=generation)
        refused(scene, f'generation {generation}')
        done = scene.device.ctl('fsck', '--repair')
        if done.returncode not in (0, 1) or done.returncode and done.stderr.count('\n') != 1:
            raise Failed(f'generation {generation}: fsck --repair ends with {done.returncode}: {done.stderr[-300:]}')
        if done.returncode == 0:
            expect(f'checkpoints after generation {generation}', len(scene.ids()), 2)
            stop_broker(scene)
        tried(generation)
        media.put_back(before)
    expect('checkpoints', len(scene.ids()), 2)


@case
def claims_of_empty_zones(scene):
    """A record that claims empty zones, or more than was written: dumps still work, and rm removes it."""
    scene = scene(TINY, size=1)
    ident = scene.good_dump(extra=['--leave-running'])
    media = Media(scene)
    there = scene.device.json('show', ident)['zones']
    empty = [z['index'] for z in scene.device.zones() if z['state'] == 'empty' and z['index'] >= 3]
    stop_broker(scene)
    record = [f for f in log(media) if f.kind == CHECKPOINT][-1]
    before = media.copy_of_metadata()
    for what, claimed in {
            'one empty zone': [(empty[0], 0, media.capacity)],
            'half of the empty zones': [(z, 0, media.capacity) for z in empty[:len(empty) // 2]],
            'all empty zones but two': [(z, 0, media.capacity) for z in empty[:-2]],
            'one block of each empty zone': [(z, 0, BLOCK) for z in empty[:-2]],
            'the rest of its own zones': [(z, 0, media.capacity) for z in there]}.items():
        record.put(place(uses(record.fields, *claimed), claimed[0][0], 0))
        for n in range(4):
            images = scene.dir / f'{what.replace(" ", "-")}-{n}'
            images.mkdir()
            scene.good_dump(extra=['--leave-running'], images=images)
        run_ctl(scene, 1, 'verify', ident)
        for other in set(scene.ids()) - {ident}:
            run_ctl(scene, 0, 'verify', other)
        run_ctl(scene, 0, 'rm', *scene.ids())
        run_ctl(scene, 0, 'reset', '--all-garbage')
        tried(what)
        stop_broker(scene)
        media.put_back(before)
    for n in range(3):
        images = scene.dir / f'after-{n}'
        images.mkdir()
        scene.good_dump(extra=['--leave-running'], images=images)


def forge_manifest(media, zone, offset, change):
    """Applies @change to the checkpoint in the manifest at this place, and writes its footer."""
    fields = Found(media, zone, offset).fields
    put_manifest(media, zone, offset, having([f for f in fields if f[0] != 2], 2, pack(change(unpack(get(fields, 2))))))


@case
def rebuild(scene):
    """fsck --rebuild on manifests and footers with right checksums and impossible contents: it ends, and believes none of them."""
    scene = scene(TINY, size=1)
    lying = scene.good_dump(extra=['--leave-running'])
    images = scene.dir / 'honest'
    images.mkdir()
    honest = scene.good_dump(extra=['--leave-running'], images=images)
    media = Media(scene)
    zone, offset = manifest_of(scene, media, lying)
    stop_broker(scene)
    for n in range(3):
        media.write(n, 0, bytes(1 << 20))
    old = unpack(get(Found(media, zone, offset).fields, 2))
    mine = [tuple(get(unpack(v), n) for n in (1, 2, 3)) for k, v in old if k == 7]
    first = mine[0]
    size = footer_of(media, (zone, offset)) + BLOCK - offset
    good = media.read(zone, offset, size)
    for what, change in {
            'start 1': lambda c: uses(c, (first[0], 1, first[2])),
            'start at 8': lambda c: uses(c, (zone, 8, BLOCK)),
            'start just below a block': lambda c: uses(c, (first[0], BLOCK - 1, first[2])),
            'length 1': lambda c: uses(c, (first[0], first[1], 1)),
            'length of a block and 1': lambda c: uses(c, *[(z, s, n + 1) for z, s, n in mine]),
            'unaligned in every zone': lambda c: uses(c, *[(z, 1, 100) for z in range(3, media.zones)]),
            'all of every zone': lambda c: uses(c, *[(z, 0, media.capacity) for z in range(3, media.zones)]),
            'start 2^52': lambda c: uses(c, (first[0], 1 << 52, BLOCK)),
            'length 2^64 - 1': lambda c: uses(c, (first[0], 0, HUGE)),
            'two hundred times the same': lambda c: uses(c, *[(first[0], first[1], BLOCK)] * 200),
            'another time': lambda c: having(c, 3, zigzag((1 << 63) - 1)),
            'moved at the end of time': lambda c: having(c, 82, zigzag((1 << 63) - 1)),
            'its own place': lambda c: place(c, zone, offset),
            'its own parent': lambda c: having(c, 16, get(c, 1)),
            'no id': lambda c: having(c, 1, b''),
            'old manifest in zone 2^32 - 1': lambda c: having(c, 81, packed((1 << 32) - 1)),
            'rate that is no number': lambda c: having(c, 10, double(float('nan')))}.items():
        forge_manifest(media, zone, offset, change)
        done = scene.device.ctl('fsck', '--rebuild', '--dry-run', '--json')
        if done.returncode not in (0, 1):
            raise Failed(f'{what}: fsck --rebuild ends with {done.returncode}: {done.stderr[-300:]}')
        taken = {f['id'] for f in json.loads(done.stdout)['found'] if f['taken']}
        expect(f'what fsck takes, {what}', taken, {honest})
        tried(what)
        media.write(zone, offset, good)
    foot = footer_of(media, (zone, offset))
    for what, change in {
            'manifest behind the footer': lambda f: having(f, 3, foot + BLOCK), 'manifest at 2^63': lambda f: having(f, 3, 1 << 63),
            'manifest of 2^64 - 1 bytes': lambda f: having(f, 4, HUGE), 'manifest of 0 bytes': lambda f: having(f, 4, 0),
            'manifest inside a block': lambda f: having(f, 3, offset + 8), 'another zone': lambda f: having(f, 2, zone + 1),
            'zone 2^32 - 1': lambda f: having(f, 2, (1 << 32) - 1), 'id of 3 bytes': lambda f: having(f, 1, b'abc')}.items():
        there = Found(media, zone, foot)
        there.put(change(there.fields))
        done = scene.device.ctl('fsck', '--rebuild', '--dry-run', '--json')
        taken = {f['id'] for f in json.loads(done.stdout)['found'] if f['taken']}
        expect(f'what fsck takes, footer with {what}', taken, {honest})
        tried(f'footer: {what}')
        media.write(zone, offset, good)
    run_ctl(scene, 0, 'fsck', '--rebuild')
    expect('checkpoints', sorted(scene.ids()), sorted([lying, honest]))
    run_ctl(scene, 0, 'verify', '--all')


@case
def manifests(scene):
    """Manifests with right checksums and impossible contents: restore and verify refuse in one line, and end."""
    scene = scene(TINY, size=1)
    ident = scene.good_dump()
    media = Media(scene)
    zone, offset = manifest_of(scene, media, ident)
    good = media.read(zone, offset, footer_of(media, (zone, offset)) + BLOCK - offset)
    stop_broker(scene)
    record = [f for f in log(media) if f.kind == CHECKPOINT and get(f.fields, 1) == bytes.fromhex(ident.replace('-', ''))][-1]
    before = media.copy_of_metadata()
    fields = Found(media, zone, offset).fields
    images = [unpack(v) for n, v in fields if n == 3]
    big = max(range(len(images)), key=lambda i: get(images[i], 2))
    extents = [unpack(e) for i in images for n, s in i if n == 4 for m, e in unpack(s) if m == 3]
    nobody = max(set(range(media.zones)) - {get(e, 1) for e in extents} - {zone})

    def image(change):
        """Changes the largest image in a manifest."""
        made = [change(v) if i == big else v for i, v in enumerate(images)]
        return having(fields, 3, *(pack(v) for v in made))

    def segment(change):
        def changed(v):
            first, *rest = [unpack(s) for n, s in v if n == 4]
            return having(v, 4, pack(change(first)), *(pack(s) for s in rest))
        return image(changed)

    def extent(number, value):
        def changed(s):
            first, *rest = [unpack(e) for n, e in s if n == 3]
            return having(s, 3, pack(having(first, number, value)), *(pack(e) for e in rest))
        return segment(changed)
    for what, forged in {
            'device of 3 bytes': having(fields, 1, b'abc'), 'another device': having(fields, 1, bytes(16)),
            'no image': having(fields, 3), 'an image twice': having(fields, 3, *[pack(images[0])] * 2),
            'a path as name': image(lambda v: having(v, 1, b'../../etc/x')), 'no name': image(lambda v: having(v, 1, b'')),
            'name ..': image(lambda v: having(v, 1, b'..')), 'size 0': image(lambda v: having(v, 2, 0)),
            'size 2^64 - 1': image(lambda v: having(v, 2, HUGE)), 'size and 1': image(lambda v: having(v, 2, get(v, 2) + 1)),
            'unit 0': image(lambda v: having(v, 3, 0)), 'unit 1': image(lambda v: having(v, 3, 1)),
            'unit 4 GiB': image(lambda v: having(v, 3, (1 << 32) - 4096)), 'no checksums': image(lambda v: having(v, 5)),
            'a checksum too many': image(lambda v: having(v, 5, get(v, 5) + bytes(8))),
            'checksums of pieces of two versions': image(lambda v: having(v, 160, bytes(8))),
            'too many checksums of pieces': image(lambda v: having(v, 162, bytes(4 * 400))),
            'part of a checksum': image(lambda v: having(v, 162, bytes(3))), 'pieces of 0 bytes': image(lambda v: having(v, 161, 0)),
            'pieces of 4 GiB': image(lambda v: having(v, 161, (1 << 32) - 1)), 'pieces of 12 KiB': image(lambda v: having(v, 161, 12288)),
            'checksums of no pieces': image(lambda v: having(v, 161)),
            'tags without a key': image(lambda v: having(v, 70, bytes(16))), 'a base without a key': image(lambda v: having(v, 100, Fixed(bytes(8)))),
            'a seal without a key': having(fields, 70, bytes(16)),
            'no segments': image(lambda v: having(v, 4)), 'segment that begins later': segment(lambda s: having(s, 1, 4096)),
            'segment of 0 bytes': segment(lambda s: having(s, 2, 0)), 'segment of 2^64 - 1 bytes': segment(lambda s: having(s, 2, HUGE)),
            'no extent': segment(lambda s: having(s, 3)),
            'more extents than may be': segment(lambda s: having(s, 3, *[pack([(1, 3), (2, 0)])] * 257)),
            'weight 0': extent(3, 0), 'weight 2^31': extent(3, 1 << 31), 'extent in a metadata zone': extent(1, 0),
            'extent in zone 2^32 - 1': extent(1, (1 << 32) - 1), 'extent behind the zone': extent(2, media.capacity),
            'extent that wraps': extent(2, HUGE - 4095), 'extent inside a block': extent(2, 12345),
            'extent in a zone of nobody': extent(1, nobody)}.items():
        ref = put_manifest(media, zone, offset, forged)
        record.put(having(record.fields, 14, pack(ref)))
        scene.restore_must_fail('checkpoint|image|manifest|segment|extent|seal|zone')
        done = scene.device.ctl('verify', '--json', ident)
        expect(f'exit of verify, {what}', done.returncode, 1)
        expect(f'intact, {what}', json.loads(done.stdout)['damaged'], 1)
        tried(what)
        stop_broker(scene)
        media.put_back(before)
        media.write(zone, offset, good)
    run_ctl(scene, 0, 'verify', '--all')
    scene.good_restore()
