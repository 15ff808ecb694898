# SPDX-License-Identifier: GPL-2.0-only
"""Encrypted checkpoints in OCI images, transferred without decrypting them: cases of oci.py, and helpers for registry.py."""
import io
import json
import shutil
import struct
import sys
import tarfile
from pathlib import Path

from chains import LEVELS, ROOM, Parts, plain_criu
from ztlib import Device, Failed
from ztoci import Layout, files_of
from ztscene import expect, run_ctl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'hostile'))
import forge  # noqa: E402

KEY, SEAL = 'org.zns-criu.key', 'org.zns-criu.seal'
SEALED_FRAME = 220


class Encrypted(Parts):
    """A chain on a device that encrypts, and a second machine (device and configuration) that does not have the key."""

    def __init__(self, scene, **more):
        scene = scene(ROOM, 1)
        self.key = scene.dir / 'key'
        self.key_id = json.loads(run_ctl(scene, 0, 'key', 'create', str(self.key), '--json'))['key_id']
        run_ctl(scene, 0, 'key', 'use', f'file:{self.key}')
        super().__init__(scene, **more)
        self.near = scene.device
        self.far = Device(scene.cfg, directory=scene.dir / 'far')
        self.far.create(*ROOM)

    def at(self, device):
        """From here on everything is done on @device."""
        self.device = self.scene.device = device

    def lose_key(self):
        """Removes the key from this machine, wherever the configuration names it."""
        self.key.rename(self.key.with_suffix('.away'))

    def find_key(self):
        self.key.with_suffix('.away').rename(self.key)

    def far_key(self):
        """Gives the second machine the key; its device does not require encryption."""
        self.far.json('key', 'use', f'file:{self.key}', self.far.spec)
        self.far.json('key', 'off', self.far.spec)

    def export(self, n, where, *more):
        layout = Layout(self.chain.dir / where.partition(':')[0])
        self.near.json('export', '--oci', self.ids[n], f'{self.chain.dir}/{where}', *more)
        return layout

    def verified(self, device):
        return [(c['intact'], c['authentic']) for c in device.json('verify', '--all')['checkpoints']]

    def close(self):
        self.far.close()


def with_far(case):
    """Ends the second machine's broker."""
    def run(scene):
        parts = None
        try:
            parts = Encrypted(scene)
            case(parts)
        finally:
            if parts:
                parts.at(parts.near)
                parts.close()
    run.__name__, run.__doc__ = case.__name__, case.__doc__
    return run


def clear_text(parts):
    """Samples of the task's memory and of criu's images, which must not be found unencrypted."""
    found = []
    for path in (*parts.dirs[0].glob('pages-*.img'), *parts.dirs[0].glob('core-*.img'), *parts.dirs[0].glob('mm-*.img')):
        raw = path.read_bytes()
        found += [raw[at:at + 64] for at in range(0, len(raw) - 64, max(64, len(raw) // 16)) if len(set(raw[at:at + 64])) > 16]
    if not found:
        raise Failed('nothing to look for')
    return found


@with_far
def sealed(parts):
    """an encrypted chain goes without the key into an OCI layout and onto another device, nothing of it unencrypted;
    with the key it is authentic and restores."""
    expect('encrypted', [c['encrypted'] for c in parts.near.checkpoints()], [True] * LEVELS)
    text, raw_key = clear_text(parts), bytes.fromhex(parts.key.read_text().strip())
    parts.lose_key()
    layout = parts.export(0, 'layout:newest')
    parts.export(1, 'layout:older')
    newest, older = layout.layers('newest'), layout.layers('older')
    expect('layers', (len(newest), newest[:LEVELS - 1]), (LEVELS, older))
    notes = [d['annotations'] for d in layout.manifest('newest')['layers']]
    expect('keys', [(len(n[KEY]), n[KEY][:16], len(n[SEAL])) for n in notes], [(136, parts.key_id, 32)] * LEVELS)
    for blob in layout.blobs.iterdir():
        raw = blob.read_bytes()
        for what in (raw_key, parts.key_id.encode() + b'/', *text):
            if what in raw:
                raise Failed(f'{blob.name} has something in clear: {what[:16].hex()}')
    got = parts.far.json('import', '--oci', f'{layout.path}:newest', '--container', 'there', '--handle', str(parts.chain.dir / 'handle-far'))
    expect('its id, its key', (got['id'], got['encrypted'], got['authentic']), (parts.ids[0], True, None))
    listed = parts.far.checkpoints()
    expect('ids', [c['id'] for c in listed], [*reversed(parts.ids)])
    expect('parents', [c['parent'] for c in reversed(listed)], [*parts.ids[1:], None])
    expect('keys', {c['key_id'] for c in listed}, {parts.key_id})
    expect('verified without the key', parts.verified(parts.far), [(True, None)] * LEVELS)
    parts.at(parts.far)
    parts.chain.try_restore(parts.chain.dir / 'handle-far').must_fail(f'encrypted with key {parts.key_id}.*no key is named')
    parts.find_key()
    parts.far_key()
    expect('verified with it', parts.verified(parts.far), [(True, True)] * LEVELS)
    parts.restore(parts.chain.dir / 'handle-far')
    parts.chain.by_id(parts.ids[0])
    parts.chain.end_task()
    again = Layout(parts.chain.dir / 'again')
    parts.far.json('export', '--oci', parts.ids[0], str(again.path))
    expect('layers from the other device', again.layers('latest'), newest)
    plain = Layout(parts.chain.dir / 'plain')
    parts.far.json('export', '--oci', parts.ids[0], str(plain.path), '--decrypt')
    parts.restore(plain.unpack('latest', parts.chain.dir / 'unpacked'), cfg=plain_criu(parts.chain.cfg))
    parts.far.json('flatten', parts.ids[0])
    parts.restore(parts.chain.dir / 'handle-far')
    expect('fsck', parts.far.ctl('fsck').returncode, 0)


@with_far
def sealed_again(parts):
    """parents that exist are not fetched; another version is refused; after a removal the checkpoint comes back under
    its id, and a rebuilt catalogue has it."""
    parts.far_key()
    layout = parts.export(1, 'layout:older')
    parts.export(0, 'layout:newest')
    parts.far.json('import', '--oci', f'{layout.path}:older')
    for digest in layout.layers('older'):
        (layout.blobs / digest.split(':')[1]).rename(layout.blobs / 'away')
        (layout.blobs / 'away').unlink()
    got = parts.far.json('import', '--oci', f'{layout.path}:newest')
    expect('authentic', got['authentic'], True)
    said = parts.far.ctl('import', '--oci', f'{layout.path}:newest')
    if said.returncode != 1 or 'is there already' not in said.stderr or said.stderr.count('\n') != 1:
        raise Failed(f'imported twice: {said.stderr}')
    whole = parts.export(0, 'whole')
    parts.far.json('flatten', parts.ids[1])
    parts.far.json('rm', parts.ids[0])
    said = parts.far.ctl('import', '--oci', str(whole.path))
    if said.returncode != 1 or 'another version' not in said.stderr:
        raise Failed(f'on a flattened parent: {said.stderr}')
    parts.far.json('rm', '--all')
    for n in range(2):
        parts.far.json('import', '--oci', str(whole.path), '--handle', str(parts.chain.dir / f'handle-{n}'))
        expect('verified', parts.verified(parts.far), [(True, True)] * LEVELS)
        if not n:
            parts.far.json('rm', '--all')
    parts.at(parts.far)
    parts.scene.end_broker()
    run_ctl(parts.scene, 0, 'fsck', '--rebuild', '--force', '--map', 'i % 4', '--zone-write-bw', '200')
    expect('after a rebuild', sorted(c['id'] for c in parts.far.checkpoints()), sorted(parts.ids))
    parts.restore(parts.chain.dir / 'handle-1')


@with_far
def sealed_rotated(parts):
    """after a rotation of the master key the layers are the same, only the wrapped keys differ; a device that
    requires another key refuses them, and a chain that is encrypted only in part is not sent."""
    layout = parts.export(0, 'layout:before')
    other = parts.scene.dir / 'other'
    parts.near.json('key', 'create', str(other))
    parts.near.json('key', 'rotate', f'file:{other}')
    parts.export(0, 'layout:after')
    expect('layers', layout.layers('after'), layout.layers('before'))
    before, after = ([d['annotations'][KEY] for d in layout.manifest(t)['layers']] for t in ('before', 'after'))
    expect('keys that stayed', set(before) & set(after), set())
    parts.far.json('key', 'use', f'file:{parts.key}', parts.far.spec)
    said = parts.far.ctl('import', '--oci', f'{layout.path}:after')
    if said.returncode != 1 or said.stderr.count('\n') != 1 or parts.key_id not in said.stderr:
        raise Failed(f'another key is wanted: {said.stderr}')
    parts.far.json('import', '--oci', f'{layout.path}:before')
    expect('verified', parts.verified(parts.far), [(True, True)] * LEVELS)
    for args, why in ((['--flatten'], 'add --decrypt'), ([], None)):
        said = parts.near.ctl('export', '--oci', parts.ids[0], str(parts.chain.dir / f'no{len(args)}'), *args)
        expect(f'exit with {args}', said.returncode, 1 if why else 0)
        if why and why not in said.stderr:
            raise Failed(f'{args}: {said.stderr}')
    parts.near.json('key', 'off')
    plain = parts.near.json('import', str(parts.dirs[0]), '--container', 'chain', '--parent', parts.ids[1])['id']
    said = parts.near.ctl('export', '--oci', plain, str(parts.chain.dir / 'mixed'))
    expect('a plain one on encrypted parents: exit', said.returncode, 0)    # not encrypted, and its image is not either


def sealed_live(scene):
    """a live dump, whose pages are composed of parts: it arrives unchanged, is authentic there, and restores by id."""
    scene = scene()
    key = scene.dir / 'key'
    scene.device.json('key', 'create', str(key))
    scene.device.json('key', 'use', f'file:{key}')
    ident = scene.good_dump(extra=['--zns-live'])
    far = Device(scene.cfg, directory=scene.dir / 'far')
    far.create(*ROOM)
    near, scene.device = scene.device, far
    try:
        near.json('export', '--oci', ident, str(scene.dir / 'layout'))
        far.json('key', 'use', f'file:{key}', far.spec)
        expect('authentic', far.json('import', '--oci', str(scene.dir / 'layout'))['authentic'], True)
        images = [forge.unpack(v) for k, v in record_of(scene.dir / 'layout') if k == 3]
        if not any(forge.get(i, 171) for i in images) or not any(forge.get(i, 170) for i in images):
            raise Failed('nothing is composed in it')
        empty = scene.dir / 'empty'
        empty.mkdir()
        scene.good_restore(images=empty, extra=['--zns-checkpoint', ident])
        expect('verify', far.json('verify', ident)['damaged'], 0)
    finally:
        scene.device = near
        far.close()


def record_of(path):
    """Fields of the record in the first layer."""
    layout = Layout(path)
    files = files_of(layout.blob(layout.manifest('latest')['layers'][0]))
    return forge.unpack(files[next(iter(files))][forge.HEADER:])


def forged_record(raw, change):
    """The layer with its record's manifest fields changed by @change; the rest unchanged."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(raw)) as old, tarfile.open(fileobj=out, mode='w', format=tarfile.USTAR_FORMAT) as new:
        for m in old:
            body = old.extractfile(m).read() if m.isfile() else b''
            if m.name.endswith('/record') and change:
                body = forge.frame(SEALED_FRAME, forge.pack(change(forge.unpack(body[forge.HEADER:]))))
                change, m.size = None, len(body)
            new.addfile(m, io.BytesIO(body))
    return out.getvalue()


def patched(raw, name, at, mask=1):
    """Flips one bit of a file in a tar."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        where = tar.getmember(name).offset_data + at
    out = bytearray(raw)
    out[where] ^= mask
    return bytes(out)


@with_far
def sealed_refused(parts):
    """manipulated layers with right digests (flipped bits, swapped files, cut short, foreign keys, other parents,
    forged records): one error line each, and nothing is left."""
    parts.far_key()
    source = parts.export(0, 'source')
    manifest = source.manifest('latest')
    layers = [(d, source.blob(d)) for d in manifest['layers']]
    pages = max((n for n in files_of(layers[-1][1]) if '/pages-' in n), key=lambda n: len(files_of(layers[-1][1])[n]))
    other = Layout(parts.chain.dir / 'strange')
    twin = json.loads(run_ctl(parts.scene, 0, 'import', str(parts.dirs[LEVELS - 1]), '--container', 'twin', '--json'))['id']
    parts.near.json('export', '--oci', twin, str(other.path))
    (twin_layer,) = [(d, other.blob(d)) for d in other.manifest('latest')['layers']]
    count = iter(range(1000))

    def says(pattern, change, keyed=True):
        """Changes all layers by @change([(annotations, bytes)]). The import must be refused with the key, and without
        the key unless only the key shows it."""
        layout = Layout(parts.chain.dir / f'bad-{next(count)}')
        layout.path.mkdir()
        layout.tell([layout.put(raw, d['mediaType'], annotations=notes) for d, (notes, raw) in
                     zip([layers[0][0]] * 100, change([(dict(d['annotations']), raw) for d, raw in layers]))])
        for with_key in (True,) if keyed else (True, False):
            if not with_key:
                parts.lose_key()
            try:
                done = parts.far.ctl('import', '--oci', str(layout.path), '--container', 'bad')
            finally:
                if not with_key:
                    parts.find_key()
            lines = [l for l in done.stderr.splitlines() if ' note: ' not in l]
            if done.returncode != 1 or len(lines) != 1 or pattern not in lines[0]:
                raise Failed(f'not /{pattern}/, exit {done.returncode}: {done.stderr.strip()[:400]}')
            expect(f'{pattern}: checkpoints', parts.far.checkpoints(), [])
        shutil.rmtree(layout.path)
        print(f'     {lines[0][:170]}', flush=True)

    def last(change):
        return lambda all_: [*all_[:-1], change(*all_[-1])]

    def record(change):
        return last(lambda notes, raw: (notes, forged_record(raw, change)))

    def image_of(fields, do):
        """Changes the largest image in a manifest's fields by do(image's fields)."""
        at = max((n for n, (k, v) in enumerate(fields) if k == 3), key=lambda n: forge.get(forge.unpack(fields[n][1]), 2))
        return [(k, do(forge.unpack(v)) if n == at else v) for n, (k, v) in enumerate(fields)]

    def mended(notes, raw):
        """A flipped bit whose checksum was made right: only the tag shows it."""
        bad = patched(raw, pages, 5)
        body = files_of(bad)[pages]

        def put(image):
            unit, sums = forge.get(image, 3), bytearray(forge.get(image, 5))
            sums[0:8] = struct.pack('<Q', forge.xxh3(body[:unit]))
            return [(k, bytes(sums) if k == 5 else v) for k, v in image]
        return notes, forged_record(bad, lambda m: image_of(m, put))

    def swapped(all_):
        """The files of one checkpoint under the record of another."""
        mine, theirs = files_of(all_[0][1]), files_of(all_[1][1])
        a, b = ([n for n in f if '/pages-' in n][0] for f in (mine, theirs))
        out = io.BytesIO()
        with tarfile.open(fileobj=io.BytesIO(all_[0][1])) as old, tarfile.open(fileobj=out, mode='w') as new:
            for m in old:
                body = old.extractfile(m).read() if m.isfile() else b''
                if m.name == a:
                    body = (theirs[b] * 2 + bytes(m.size))[:m.size]
                new.addfile(m, io.BytesIO(body))
        return [(all_[0][0], out.getvalue()), *all_[1:]]

    bit = last(lambda notes, raw: (notes, patched(raw, pages, 5)))
    says("does not match the checkpoint's record", bit, keyed=False)
    says("does not match the checkpoint's record", swapped, keyed=False)
    says('is not what was encrypted', last(mended))
    says('is not the one that was encrypted', record(lambda m: image_of(m, lambda i: [(k, bytes(len(v)) if k == 70 else v) for k, v in i])))
    says('Truncated', last(lambda notes, raw: (notes, raw[:len(raw) // 2])), keyed=False)
    says('does not begin with its record', lambda all_: [*all_[:-1], (all_[-1][0], all_[0][1])], keyed=False)
    # a layer without files
    says('does not begin with its record', last(lambda notes, raw: (notes, bytes(10240))), keyed=False)
    says('of another checkpoint', lambda all_: [*all_[:-1], (all_[-1][0], forged_record(all_[-1][1], lambda m: [
        (k, forge.pack(forge.having(forge.unpack(v), 1, b'x' * 16)) if k == 2 else v) for k, v in m]))], keyed=False)
    # the oldest layer is missing
    says('is not the layer of its parent', lambda all_: all_[1:], keyed=False)
    # one in the middle is missing
    says('is not the layer of its parent', lambda all_: [all_[0], *all_[2:]], keyed=False)
    says('is not the layer of its parent', lambda all_: [(dict(twin_layer[0]['annotations']), twin_layer[1]), *all_[1:]], keyed=False)
    says('of another version', last(lambda notes, raw: ({**notes, SEAL: '00' * 16}, raw)), keyed=False)
    says('wrapped key', last(lambda notes, raw: ({**notes, KEY: twin_layer[0]['annotations'][KEY]}, raw)))
    says('wrapped key', last(lambda notes, raw: ({**notes, KEY: notes[KEY][:-1] + ('0' if notes[KEY][-1] != '0' else '1')}, raw)))
    says('not with key', last(lambda notes, raw: ({**notes, KEY: '00' * 8 + notes[KEY][16:]}, raw)))
    for bad in ('', 'zz' * 68, notes_cut(layers), '00' * 69):
        says('but not how', last(lambda notes, raw, bad=bad: ({**notes, KEY: bad}, raw)), keyed=False)
    says('but not how', last(lambda notes, raw: ({k: v for k, v in notes.items() if k != SEAL}, raw)), keyed=False)
    says('inventory.img', last(lambda notes, raw: ({k: v for k, v in notes.items() if k not in (KEY, SEAL)}, raw)), keyed=False)
    # records that no program has written
    says('no seal', record(lambda m: [(k, v) for k, v in m if k != 70]), keyed=False)
    says('stripe unit', record(lambda m: [(k, forge.pack(forge.having(forge.unpack(v), 17, 12345)) if k == 2 else v) for k, v in m]), keyed=False)
    says('valid only on the device', record(lambda m: [(k, forge.pack(forge.having(forge.unpack(v), 2, b'web')) if k == 2 else v) for k, v in m]), keyed=False)
    says('not of an encrypted checkpoint', record(lambda m: [(k, forge.pack(forge.having(forge.unpack(v), 70)) if k == 2 else v) for k, v in m]), keyed=False)
    says('is too long', record(lambda m: [*m, (999, bytes(40 << 20))]), keyed=False)
    says('a newer one wrote it', record(lambda m: image_of(m, lambda i: [*i, (999, 1)])), keyed=False)
    says('has a place', record(lambda m: image_of(m, lambda i: [*i, (4, [(1, 0), (2, 4096), (3, [(1, 5), (2, 0)])])])), keyed=False)
    says('checksums for', record(lambda m: image_of(m, lambda i: [(k, v + (1 << 20) if k == 2 else v) for k, v in i])), keyed=False)
    says('more than the device has', record(lambda m: image_of(m, lambda i: [(k, v << 20 if k == 2 else v) for k, v in i])), keyed=False)
    says('two images are named', record(lambda m: [*m, *[(k, v) for k, v in m if k == 3][:1]]), keyed=False)
    says('no record of an encrypted checkpoint', last(lambda notes, raw: (notes, patched(raw, f'sealed/{parts.ids[0]}/record', 60))), keyed=False)
    got = parts.far.json('import', '--oci', str(source.path))
    expect('what was not touched', (got['id'], got['authentic']), (parts.ids[0], True))


def notes_cut(layers):
    return layers[-1][0]['annotations'][KEY][:-2]


SEALED = (sealed, sealed_live, sealed_again, sealed_rotated, sealed_refused)
