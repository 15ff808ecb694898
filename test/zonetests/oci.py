#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
oci: checkpoints as OCI images, in a layout, and through a registry (cases whose names begin with registry; `make oci`).

  oci.py list | run NAME... | run -a
"""
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from chains import LEVELS, ROOM, Parts, plain_criu
from ztlib import Failed, wait_until
from ztoci import OF, TAR, Layout, tar_of
from ztscene import case_of, expect, run_ctl, suite_main
from ztsealed import SEALED

CASES = {}
case = case_of(CASES)


def images_of(directory):
    return {p.name: p.read_bytes() for p in Path(directory).glob('*.img')}


def depth(device, ident):
    """The number of checkpoints in its chain."""
    n = 0
    while ident:
        ident, n = device.json('show', ident)['parent'], n + 1
    return n


@case
def whole(scene):
    """one checkpoint: every digest is right, stock CRIU restores the unpacked image, the same export gives the same digests."""
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
def claimed(scene):
    """an image that claims to be of a container removes none of that container's checkpoints; one that the user assigns to it counts."""
    parts = Parts(scene(ROOM, 1), imported=False)
    source = str(parts.chain.images(0))
    layout = Layout(parts.chain.dir / 'layout')
    ident = parts.device.json('import', source, '--container', 'prod-db')['id']
    parts.device.json('export', '--oci', ident, str(layout.path))
    run_ctl(parts.scene, 0, 'retain', 'prod-db', '--keep', '1')
    for _ in range(2):
        strange = parts.device.json('import', '--oci', str(layout.path))
        expect('its name', (strange['container'], strange['claimed']), ('prod-db', True))
        parts.device.json('rm', strange['id'])
    run_ctl(parts.scene, 0, 'gc')
    expect('left', [c['id'] for c in parts.device.checkpoints()], [ident])
    strange = parts.device.json('import', '--oci', str(layout.path))['id']
    given = parts.device.json('import', '--oci', str(layout.path), '--as', 'prod-db')
    expect('given a name', given['claimed'], False)
    run_ctl(parts.scene, 0, 'gc')
    expect('left', {c['id'] for c in parts.device.checkpoints()}, {strange, given['id']})


@case
def chain(scene):
    """a chain: one layer for each checkpoint, a parent's layer is the same in every image; imported, it is a chain under other ids."""
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
    """several images in one layout; an image with an existing tag replaces the old one; all of ten concurrent exports stay."""
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
    """an image as Podman and checkpointctl make them: a plain checkpoint in a compressed layer, with other files beside it."""
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
    """what is no such image, is cut off, or is malicious: one error line, and the device is unchanged."""
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
        """The first checkpoint is good, and on the device when the second one turns out to be bad."""
        other = '11234567-0123-4123-8123-0123456789ab'
        layout.tell([level(layout, small), level(layout, {'inventory.img': b'nothing'}, other)])

    says('no OCI layout', 'nothing', lambda lay: None)
    says('no image with the tag', 'another-tag', exported, ':y')
    says('does not match its digest', 'flipped', lambda lay: hurt(lay, 0, flip))
    says('does not match its digest', 'flipped-newest', lambda lay: hurt(lay, LEVELS - 1, flip))
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
    layout = parts.chain.dir / 'list'
    parts.ctl(0, 'export', '--oci', parts.ids[0], str(layout))
    for index in '[]', '3', 'null':
        (layout / 'index.json').write_text(index)
        if 'no index of images' not in parts.ctl(1, 'export', '--oci', parts.ids[0], str(layout)):
            raise Failed(f'an index that is {index} was taken')
        expect('the index', (layout / 'index.json').read_text(), index)
    run_ctl(parts.scene, 2, 'import', '--oci', str(full), '--parent', parts.ids[0])
    run_ctl(parts.scene, 2, 'export', '--oci', parts.ids[0], str(full / 'x'), '--metadata-only')


@case
def broken_off(scene):
    """a full disk or a signal in the middle of an export: images that were there before stay, and nothing new is left."""
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


# A stand-in for skopeo that reads an OCI layout, and stops in the middle of its largest blob, as a registry may. STOPS
# says where.
STALLED = r"""#!/usr/bin/python3
import array, json, os, socket, sys, time
layout, stops = os.environ['LAYOUT'], os.environ['STOPS']
def blob(digest):
    return open(layout + '/blobs/sha256/' + digest.split(':')[1], 'rb').read()
if sys.argv[1] == 'copy':
    time.sleep(1000)
manifest = json.load(open(layout + '/index.json'))['manifests'][0]['digest']
largest = max((l['size'], l['digest']) for l in json.loads(blob(manifest))['layers'])[1]
sock, held = socket.socket(fileno=3), []
while True:
    ask = json.loads(sock.recv(65536) or b'{"method":"Shutdown"}')
    answer, data, fd = {'success': True, 'value': 1, 'pipeid': 0, 'error': ''}, None, []
    if ask['method'] == 'Shutdown' or (ask['method'] == 'OpenImage' and stops == 'open' and not time.sleep(1000)):
        break
    if ask['method'] == 'Initialize':
        answer['value'] = '0.2.3'
    elif ask['method'] == 'GetManifest':
        data = blob(manifest)
    elif ask['method'] == 'GetBlob':
        data = blob(ask['args'][1])
    if data:
        out, into = os.pipe()
        fd, answer['pipeid'] = [out], into
    sock.sendmsg([json.dumps(answer).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fd))] if fd else [])
    if data:
        os.close(out)
        stop = stops == 'blob' and ask['method'] == 'GetBlob' and ask['args'][1] == largest
        for at in range(0, len(data) // 2 if stop else len(data), 65536):
            os.write(into, data[at:at + 65536])
        if stop:
            time.sleep(1000)
        os.close(into)
"""


@case
def stalled(scene):
    """a registry that stops before a layer or in it is given up, also by skopeo copy: one error line, and all zones are freed."""
    parts = Parts(scene(ROOM, 1), imported=False)
    ident = parts.device.json('import', str(parts.chain.images(0)), '--container', 'web')['id']
    layout, programs = parts.chain.dir / 'layout', parts.chain.dir / 'programs'
    parts.device.json('export', '--oci', ident, str(layout))
    programs.mkdir()
    (programs / 'skopeo').write_text(STALLED)
    (programs / 'skopeo').chmod(0o755)
    parts.device.json('rm', ident)
    free = parts.device.free_zones()
    ident = parts.device.json('import', str(parts.chain.images(0)), '--container', 'web')['id']
    for stops, args in (('no', ['pull']), ('open', ['pull']), ('blob', ['pull']), ('copy', ['push', ident])):
        env = {**parts.device.env, 'LAYOUT': str(layout), 'STOPS': stops, 'PATH': f'{programs}:{os.environ["PATH"]}'}
        done = subprocess.run([parts.chain.cfg.znsctl, *args, 'docker://nowhere/x:y', '--timeout', '60' if stops == 'no' else '1'], env=env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
        expect(f'{stops}: exit code ({done.stderr.strip()})', done.returncode, 0 if stops == 'no' else 1)
        if stops != 'no' and ('--timeout' not in done.stderr or done.stderr.count('\n') != 1):
            raise Failed(f'{stops}: it says: {done.stderr}')
    for c in parts.device.checkpoints():
        parts.device.json('rm', c['id'])
    if not wait_until(lambda: parts.device.free_zones() == free, 60, 0.2):
        raise Failed(f'{parts.device.free_zones()} free zones, {free} before')


for sealed in SEALED:
    case(sealed)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'oci', CASES))
