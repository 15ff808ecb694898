#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
oci: checkpoints as OCI images, in a layout, and through a registry (cases whose names begin with registry; `make oci`).

  oci.py list | run NAME... | run -a
"""
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from chains import LEVELS, ROOM, Parts, plain_criu
from ztlib import Failed
from ztscene import case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)
TAR = 'application/vnd.oci.image.layer.v1.tar'
OF = 'org.zns-criu.checkpoint'


class Layout:
    """An OCI layout, read and written by other code than the one that is tested."""

    def __init__(self, path):
        self.path = Path(path)
        self.blobs = self.path / 'blobs/sha256'

    def index(self):
        return json.loads((self.path / 'index.json').read_text())

    def tags(self):
        return sorted(m['annotations']['org.opencontainers.image.ref.name'] for m in self.index()['manifests'])

    def blob(self, descriptor):
        """Its bytes, if they are what the descriptor says."""
        kind, digits = descriptor['digest'].split(':')
        raw = (self.blobs / digits).read_bytes()
        expect(f'{digits}: size and digest', (len(raw), kind, hashlib.sha256(raw).hexdigest()), (descriptor['size'], 'sha256', digits))
        return raw

    def manifest(self, tag):
        found, = [m for m in self.index()['manifests'] if m['annotations']['org.opencontainers.image.ref.name'] == tag]
        return json.loads(self.blob(found))

    def layers(self, tag):
        return [d['digest'] for d in self.manifest(tag)['layers']]

    def unpack(self, tag, to):
        """As a container engine would. Returns the directory that criu takes."""
        to.mkdir()
        for d in self.manifest(tag)['layers']:
            with tarfile.open(fileobj=io.BytesIO(self.blob(d))) as tar:
                tar.extractall(to)
        return to / 'checkpoint'

    def put(self, raw, media=TAR, **more):
        digits = hashlib.sha256(raw).hexdigest()
        self.blobs.mkdir(parents=True, exist_ok=True)
        (self.blobs / digits).write_bytes(raw)
        return {'mediaType': media, 'digest': f'sha256:{digits}', 'size': len(raw), **more}

    def tell(self, layers, tag='latest', **more):
        """A new image of these layers, beside those that are there."""
        manifest = json.dumps({'schemaVersion': 2, 'layers': layers, **more}).encode()
        found = self.put(manifest, 'application/vnd.oci.image.manifest.v1+json',
                         annotations={'org.opencontainers.image.ref.name': tag})
        old = self.index()['manifests'] if (self.path / 'index.json').exists() else []
        (self.path / 'index.json').write_text(json.dumps({'schemaVersion': 2, 'manifests': [*old, found]}))
        (self.path / 'oci-layout').write_text('{"imageLayoutVersion":"1.0.0"}')


def tar_of(files, where='checkpoint/'):
    """files: {name: bytes, or a link's target}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as tar:
        for name, what in files.items():
            info = tarfile.TarInfo(where + name)
            if isinstance(what, bytes):
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, what
                tar.addfile(info)
    return out.getvalue()


def images_of(directory):
    return {p.name: p.read_bytes() for p in Path(directory).glob('*.img')}


def depth(device, ident):
    """How many checkpoints it consists of."""
    n = 0
    while ident:
        ident, n = device.json('show', ident)['parent'], n + 1
    return n


@case
def whole(scene):
    """one checkpoint: every digest is right, stock CRIU restores what was unpacked, the same export gives the same digests."""
    parts = Parts(scene(ROOM, 1), imported=False)
    ident = parts.device.json('import', str(parts.chain.images(0)), '--container', 'web')['id']
    layout = Layout(parts.chain.dir / 'layout')
    got = parts.device.json('export', '--oci', ident, f'{layout.path}:v1')
    manifest = layout.manifest('v1')
    expect('digest', got['digest'], layout.index()['manifests'][0]['digest'])
    expect('container', manifest['annotations']['org.criu.checkpoint.container.name'], 'web')
    config = json.loads(layout.blob(manifest['config']))
    expect('diff_ids', config['rootfs']['diff_ids'], layout.layers('v1'))
    parts.restore(layout.unpack('v1', parts.chain.dir / 'unpacked'), cfg=plain_criu(parts.chain.cfg))
    for path in (layout.path, layout.blobs, layout.path / 'index.json', *layout.blobs.iterdir()):
        expect(f'{path.name} is for its owner alone', path.stat().st_mode & 0o077, 0)
    second = Layout(parts.chain.dir / 'second')
    parts.device.json('export', '--oci', ident, str(second.path))
    expect('tag', second.tags(), ['latest'])
    expect('the same layers', second.layers('latest'), layout.layers('v1'))


@case
def chain(scene):
    """a chain: a layer each, a parent's is the same in each image; it comes back as a chain, under other ids."""
    parts = Parts(scene(ROOM, 1))
    layout = Layout(parts.chain.dir / 'layout')
    for n, tag in enumerate(('newest', 'older')):
        parts.device.json('export', '--oci', parts.ids[n], f'{layout.path}:{tag}')
    newest, older = layout.layers('newest'), layout.layers('older')
    expect('layers', (len(newest), len(older)), (LEVELS + 1, LEVELS))
    expect('layers that both have', newest[:LEVELS - 1], older[:LEVELS - 1])
    expect('whose they are', [d.get('annotations', {}).get(OF) for d in layout.manifest('newest')['layers']], [*reversed(parts.ids), None])
    plain = plain_criu(parts.chain.cfg)
    parts.restore(layout.unpack('newest', parts.chain.dir / 'unpacked'), cfg=plain)
    handle = parts.chain.dir / 'again'
    again = parts.device.json('import', '--oci', f'{layout.path}:newest', '--container', 'again', '--handle', str(handle))['id']
    expect('levels', depth(parts.device, again), LEVELS)
    expect('all of one container', sorted(c['container'] for c in parts.device.checkpoints()), ['again'] * LEVELS + ['chain'] * LEVELS)
    parts.ctl(0, 'verify', again)
    parts.device.remove(*parts.ids)
    parts.restore(handle)
    flat = Layout(parts.chain.dir / 'flat')
    parts.device.json('export', '--oci', again, str(flat.path), '--flatten')
    expect('layers of a flat one', len(flat.layers('latest')), 2)
    parts.restore(flat.unpack('latest', parts.chain.dir / 'flattened'), cfg=plain)


@case
def together(scene):
    """several images in one layout; the same tag again is replaced; ten exports at once all stay."""
    parts = Parts(scene(ROOM, 1))
    layout = Layout(parts.chain.dir / 'layout')
    for n, tag in ((0, 'a'), (1, 'b'), (1, 'a')):
        parts.device.json('export', '--oci', parts.ids[n], f'{layout.path}:{tag}')
    expect('tags', layout.tags(), ['a', 'b'])
    expect('the second one', layout.layers('a'), layout.layers('b'))
    run = [subprocess.Popen([parts.chain.cfg.znsctl, 'export', '--oci', parts.ids[k % LEVELS], f'{layout.path}:n{k}'], env=parts.device.env,
                            stdout=subprocess.DEVNULL) for k in range(10)]
    expect('exit codes', [r.wait(120) for r in run], [0] * 10)
    expect('tags', layout.tags(), sorted(['a', 'b', *(f'n{k}' for k in range(10))]))
    for k in range(10):
        layout.unpack(f'n{k}', parts.chain.dir / f'unpacked-{k}')
    expect('nothing else', [p.name for p in layout.blobs.iterdir() if len(p.name) != 64], [])


@case
def strangers(scene):
    """an image as Podman and checkpointctl make them: a directory checkpoint in a compressed layer, other files beside."""
    parts = Parts(scene(ROOM, 1), imported=False)
    layout = Layout(parts.chain.dir / 'layout')
    files = images_of(parts.chain.images(0))
    layout.tell([layout.put(tar_of({'config.dump': b'{}'}, '')),
                 layout.put(gzip.compress(tar_of({**files, 'extra.txt': b'hello'}), mtime=0), TAR + '+gzip')],
                annotations={'org.criu.checkpoint.container.name': 'theirs'})
    handle = parts.chain.dir / 'again'
    parts.device.json('import', '--oci', str(layout.path), '--handle', str(handle))
    expect('container', [c['container'] for c in parts.device.checkpoints()], ['theirs'])
    parts.restore(handle)


@case
def refused(scene):
    """what is no such image, or torn, or a trap: one line, and the device has what it had."""
    parts = Parts(scene(ROOM, 1))
    before, files = parts.left(), images_of(parts.dirs[LEVELS - 1])
    small = {'inventory.img': files['inventory.img']}

    def says(pattern, name, build, tag=''):
        layout = Layout(parts.chain.dir / name)
        layout.path.mkdir()
        build(layout)
        said = parts.ctl(1, 'import', '--oci', f'{layout.path}{tag}', '--container', 'bad')
        if pattern not in said:
            raise Failed(f'{name}: it says: {said}')
        expect(f'{name}: checkpoints', parts.left(), before)
        print(f'     {name}: {said.strip()[:150]}', flush=True)

    def exported(layout):
        parts.device.json('export', '--oci', parts.ids[0], f'{layout.path}:x')

    def hurt(layout, which, how):
        exported(layout)
        path = layout.blobs / layout.layers('x')[which].split(':')[1]
        how(path)

    def flip(path):
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)

    def link(path):
        path.rename(path.with_suffix('.away'))
        path.symlink_to(path.with_suffix('.away').name)

    def level(layout, files, ident='01234567-0123-4123-8123-0123456789ab', where=None):
        return layout.put(tar_of(files, f'checkpoints/{ident}/' if where is None else where), annotations={OF: ident})

    def second_bad(layout):
        """The first level is good and on the device when the second one turns out bad."""
        other = '11234567-0123-4123-8123-0123456789ab'
        layout.tell([level(layout, small), level(layout, {'inventory.img': b'nothing'}, other)])

    says('no OCI layout', 'nothing', lambda lay: None)
    says('no image with the tag', 'another-tag', exported, ':y')
    says('are not its own', 'flipped', lambda lay: hurt(lay, 0, flip))
    says('are not its own', 'flipped-newest', lambda lay: hurt(lay, LEVELS - 1, flip))
    says('bytes instead of', 'short', lambda lay: hurt(lay, 1, lambda p: os.truncate(p, 1000)))
    says('link', 'a-link', lambda lay: hurt(lay, 0, link))
    says('sha256', 'leads-out', lambda lay: lay.tell([{'mediaType': TAR, 'digest': 'sha256:../../../etc/passwd', 'size': 1}]))
    says('said to be of a checkpoint', 'no-uuid', lambda lay: lay.tell([lay.put(tar_of(small), annotations={OF: '../../x'})]))
    says('no layers', 'empty', lambda lay: lay.tell([]))
    says('no image of a checkpoint', 'a-program', lambda lay: lay.tell([lay.put(tar_of({'bin/sh': b'x'}, ''))]))
    says('leads out', 'dots', lambda lay: lay.tell([level(lay, {'../../../x.img': b'x', **small})]))
    says('no CRIU image', 'second-bad', second_bad)
    says('not valid JSON', 'no-json', lambda lay: (lay.blobs.mkdir(parents=True), (lay.path / 'index.json').write_text('[' * 100000)))
    says('index.json', 'long', lambda lay: (lay.blobs.mkdir(parents=True), (lay.path / 'index.json').write_text(' ' * (2 << 20))))
    says('no image with the tag', 'numbers', lambda lay: (lay.blobs.mkdir(parents=True), (lay.path / 'index.json').write_text('{"manifests": [1, {}, null]}')))
    for bad in ('a:b:c', 'x:', ':tag', f'x:{"t" * 200}', 'x:.t'):
        if 'is not DIR or DIR:TAG' not in parts.ctl(1, 'export', '--oci', parts.ids[0], bad):
            raise Failed(f'"{bad}" was taken')
    full = parts.chain.dir / 'full'
    full.mkdir()
    (full / 'mine').write_text('stays')
    if 'not empty and no OCI layout' not in parts.ctl(1, 'export', '--oci', parts.ids[0], str(full)):
        raise Failed('a directory with other files was taken')
    expect('its files', os.listdir(full), ['mine'])
    run_ctl(parts.scene, 2, 'import', '--oci', str(full), '--parent', parts.ids[0])
    run_ctl(parts.scene, 2, 'export', '--oci', parts.ids[0], str(full / 'x'), '--metadata-only')


@case
def broken_off(scene):
    """a full disk, or a signal, in the middle of an export: the images that were there stay, nothing else does."""
    parts = Parts(scene(ROOM, 1), size=24)
    layout = Layout(parts.chain.dir / 'layout')
    parts.device.json('export', '--oci', parts.ids[1], f'{layout.path}:good')
    before = sorted(p.name for p in layout.blobs.iterdir())
    bad = 0
    for ms in (5, 10, 20, 40, 80):
        run = subprocess.Popen([parts.chain.cfg.znsctl, 'export', '--oci', parts.ids[0], f'{layout.path}:late'], env=parts.device.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(ms / 1000)
        run.send_signal(signal.SIGTERM)
        if run.wait(60) == 0:
            shutil.rmtree(layout.path)
            parts.device.json('export', '--oci', parts.ids[1], f'{layout.path}:good')
            continue
        bad += 1
        expect('blobs', sorted(p.name for p in layout.blobs.iterdir()), before)
        expect('tags', layout.tags(), ['good'])
    print(f'     {bad} of 5 exports were ended in their middle', flush=True)
    layout.unpack('good', parts.chain.dir / 'unpacked')
    small = parts.chain.dir / 'small'
    small.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8M', 'none', small], check=True)
    try:
        said = parts.ctl(1, 'export', '--oci', parts.ids[0], str(small / 'layout'))
        if 'No space left' not in said:
            raise Failed(f'a full disk: it says: {said}')
        expect('what a full disk has', os.listdir(small), [])
    finally:
        subprocess.run(['umount', small], check=True)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'oci', CASES))
