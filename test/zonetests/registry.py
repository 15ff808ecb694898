#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
registry: znsctl push and pull, by skopeo, with Debian's docker-registry on this machine. `make registry` installs both.

  registry.py list | run NAME... | run -a
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import registryagain    # noqa: F401, its cases
from chains import LEVELS
from oci import depth
from ztlib import Failed, wait_until
from ztoci import Layout
from ztpush import CASES, PLAIN_PULL, PLAIN_PUSH, case, fetched, scene_with
from ztregistry import Registry, free_port
from ztscene import expect, suite_main
from ztsealed import Encrypted


def digest_of(registry, what):
    return subprocess.run(['skopeo', 'inspect', '--tls-verify=false', '--format', '{{.Digest}}', registry.name(what)],
                          check=True, capture_output=True, text=True).stdout.strip()


@case
def chain(scene):
    """a chain, oldest first: each push sends what is new; pulled, it is a chain again and restores; so does what skopeo fetches."""
    parts, tmp, room = scene_with(scene)
    with Registry(parts.chain.dir) as registry:
        sizes = []
        for n in reversed(range(LEVELS)):
            before = registry.bytes()
            parts.ctl(0, 'push', parts.ids[n], registry.name(f'lab/web:v{LEVELS - n}'), *room, *PLAIN_PUSH)
            sizes.append(registry.bytes() - before)
        live = [sum(i.stat().st_size for i in d.glob('*.img')) for d in reversed(parts.dirs)]
        print(f'     bytes of each: {live}, sent: {sizes}', flush=True)
        for have, sent in zip(live, sizes):
            if sent > 1.02 * have + (64 << 10):     # tar's blocks and the manifest
                raise Failed(f'{sent} bytes for {have}')
        fetched(parts, tmp, registry, f'lab/web:v{LEVELS}')
        handle = parts.chain.dir / 'pulled'
        parts.ctl(0, 'pull', registry.name(f'lab/web:v{LEVELS}'), '--container', 'pulled', '--qos', '100', '--handle', str(handle), *room, *PLAIN_PULL)
        newest = parts.left()
        again, = [c['id'] for c in parts.device.checkpoints() if c['container'] == 'pulled' and not c['pre_dump']]
        expect('levels', depth(parts.device, again), LEVELS)
        expect('checkpoints', len(newest), 2 * LEVELS)
        parts.device.remove(*parts.ids)
        parts.restore(handle)
        expect('nothing is left on the way', os.listdir(tmp), [])


def pushed(parts, registry, n, room):
    """Pushes checkpoint @n; returns by how many bytes the registry has grown."""
    before = registry.bytes()
    parts.ctl(0, 'push', parts.ids[n], registry.name(f'lab/web:v{LEVELS - n}'), *room, *PLAIN_PUSH)
    return registry.bytes() - before


@case
def sealed(scene):
    """an encrypted chain, pushed and pulled without the key: each push sends what is new; on another device it verifies and restores with the key."""
    parts = Encrypted(scene)
    tmp = parts.chain.dir / 'tmp'
    tmp.mkdir()
    room = ['--tmp', str(tmp)]
    parts.lose_key()
    try:
        with Registry(parts.chain.dir) as registry:
            sizes = [pushed(parts, registry, n, room) for n in reversed(range(LEVELS))]
            live = [c['bytes'] for c in parts.near.checkpoints()]
            print(f'     bytes of each: {live}, sent: {sizes}', flush=True)
            for have, sent in zip(live, sizes):
                if sent > 1.02 * have + (64 << 10):
                    raise Failed(f'{sent} bytes for {have}')
            expect('again', pushed(parts, registry, 0, room) < 4096, True)
            handle = parts.chain.dir / 'pulled'
            parts.at(parts.far)
            parts.ctl(0, 'pull', registry.name('lab/web:v2'), '--qos', '100', *room, *PLAIN_PULL)
            parts.ctl(0, 'pull', registry.name(f'lab/web:v{LEVELS}'), '--qos', '100', '--handle', str(handle), *room, *PLAIN_PULL)
            expect('ids', parts.left(), sorted(parts.ids))
            expect('verified', parts.verified(parts.far), [(True, None)] * LEVELS)
            parts.chain.try_restore(handle).must_fail(parts.key_id)
            parts.find_key()
            parts.far_key()
            expect('verified', parts.verified(parts.far), [(True, True)] * LEVELS)
            parts.restore(handle)
            layers_damaged(parts, registry, room)
            parts.at(parts.near)
            parts.ctl(0, 'push', parts.ids[0], registry.name('lab/plain:x'), '--decrypt', *room, *PLAIN_PUSH)
            fetched(parts, tmp, registry, 'lab/plain:x')
        expect('nothing is left on the way', os.listdir(tmp), [])
    finally:
        parts.close()


def layers_damaged(parts, registry, room):
    """A changed byte in any layer: nothing is imported. When it is repaired, the image can be imported by its digest; another digest is refused."""
    again = ['pull', registry.name(f'lab/web:v{LEVELS}'), *room, *PLAIN_PULL]
    parts.ctl(0, 'rm', '--all')
    for layer in sorted(p for p in registry.store.rglob('data') if p.stat().st_size > 1 << 20):
        raw = layer.read_bytes()
        layer.write_bytes(raw[:len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1:])
        print(f'     {parts.ctl(1, *again).strip()[:150]}', flush=True)
        expect('checkpoints', parts.left(), [])
        layer.write_bytes(raw)
    named = digest_of(registry, f'lab/web:v{LEVELS}')
    parts.ctl(1, 'pull', registry.name(f'lab/web@{named[:-4]}0000'), *room, *PLAIN_PULL)
    parts.ctl(0, 'pull', registry.name(f'lab/web@{named}'), *room, *PLAIN_PULL)
    expect('ids', parts.left(), sorted(parts.ids))


@case
def damaged(scene):
    """layers change in the registry: a pull ends in the middle, nothing of it becomes durable, and older layers it
    had imported are gone again; --tmp has nothing."""
    parts, tmp, room = scene_with(scene)
    before = parts.left()
    with Registry(parts.chain.dir) as registry:
        parts.ctl(0, 'push', parts.ids[0], registry.name('web:x'), *room, *PLAIN_PUSH)
        os.rmdir(tmp)           # our own images need no temporary file
        again = ['pull', registry.name('web:x'), '--container', 'again', *room, *PLAIN_PULL]
        parts.ctl(0, *again)
        expect('levels', len(parts.left()), 2 * LEVELS)
        for ident in [i for i in parts.left() if i not in before]:
            parts.ctl(0, 'unpin', ident)
        parts.ctl(0, 'rm', '--container', 'again')
        layers = sorted((p for p in registry.store.rglob('data') if p.stat().st_size > 1 << 20), key=lambda p: p.stat().st_mtime_ns)
        expect('layers', len(layers), LEVELS)
        for layer in layers:
            with open(layer, 'r+b') as data:
                data.seek(layer.stat().st_size // 2)
                byte = data.read(1)[0]
                data.seek(-1, os.SEEK_CUR)
                data.write(bytes([byte ^ 1]))
            said = parts.ctl(1, *again)
            if 'does not match its digest' not in said and 'skopeo failed' not in said:
                raise Failed(f'a damaged layer: {said}')
            expect('checkpoints', parts.left(), before)
            with open(layer, 'r+b') as data:
                data.seek(layer.stat().st_size // 2)
                data.write(bytes([byte]))
        parts.ctl(0, *again)
        expect('levels', len(parts.left()), 2 * LEVELS)


@case
def no_room(scene):
    """a push has no room for its image in --tmp and needs none; where it may not mount it needs room, and says so."""
    parts, tmp, room = scene_with(scene)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256K', 'none', tmp], check=True)
    unprivileged = ['setpriv', '--bounding-set', '-sys_admin', parts.chain.cfg.znsctl]
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, ['umount', '-l', tmp], check=True)
        registry = stack.enter_context(Registry(parts.chain.dir))
        parts.ctl(0, 'push', parts.ids[0], registry.name('web:x'), *room, *PLAIN_PUSH)
        expect('nothing is left on the way', os.listdir(tmp), [])
        fetched(parts, tmp, registry, 'web:x')
        big = parts.chain.dir / 'big'
        big.mkdir()
        for where, code, says in ((tmp, 1, 'No space left'), (big, 0, 'is written to')):
            done = subprocess.run([*unprivileged, 'push', parts.ids[0], registry.name('web:y'), '--tmp', where, *PLAIN_PUSH], env=parts.device.env,
                                  capture_output=True, text=True, check=False, timeout=300)
            expect(f'exit code: {done.stderr}', done.returncode, code)
            if says not in done.stderr:
                raise Failed(f'it says: {done.stderr}')
            expect('nothing is left on the way', os.listdir(where), [])
        fetched(parts, tmp, registry, 'web:y')
        expect('the same image', digest_of(registry, 'web:x'), digest_of(registry, 'web:y'))
        flat = parts.ctl(0, 'push', parts.ids[0], registry.name('web:flat'), '--flatten', *room, *PLAIN_PUSH)
        expect('what it says', 'is written to' in flat, False)
        fetched(parts, tmp, registry, 'web:flat')


# Stands in for skopeo and sends nothing: it reads layers in several ways and reports what it found.
READER = r"""#!/usr/bin/python3
import concurrent.futures, errno, hashlib, json, os, sys
layout = sys.argv[-2].split(':')[1]
blobs, found = layout + '/blobs/sha256/', {}
def whole(name, part):
    with open(blobs + name, 'rb', buffering=0) as f:
        size, back = os.fstat(f.fileno()).st_size, hashlib.sha256()
        f.seek(size // 2)
        tail = b''.join(iter(lambda: f.read(part), b''))
        f.seek(0)
        while f.tell() < size // 2:
            back.update(f.read(min(part, size // 2 - f.tell())))
        f.seek(size // 2 + 5)
        again = f.read(100)
        back.update(tail)
        return back.hexdigest() == name and again == tail[5:105]
links = [n for n in os.listdir(blobs) if os.path.islink(blobs + n)]
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    jobs = [pool.submit(whole, n, part) for n in links for part in (1 << 20, 4099)]
    found['right'] = [j.result() for j in jobs]
def code(name, flags):
    try:
        os.close(os.open(name, flags))
    except OSError as e:
        return errno.errorcode[e.errno]
    return 'opened'
at = os.path.realpath(blobs + links[0])
found['codes'] = [code(at, os.O_RDWR), code(at[:-1] + 'x', os.O_RDONLY), code(os.path.dirname(at) + '/new', os.O_CREAT | os.O_WRONLY)]
found['kinds'] = [l.split(' - ')[1].split()[0] for l in open('/proc/self/mountinfo') if os.path.dirname(at) in l]
open(at, 'rb').read(1)
left = open(at, 'rb')    # open, and read in part, when this ends
left.read(1)
json.dump(found, open(os.environ['FOUND'], 'w'))
"""


@case
def served(scene):
    """layers that are made on the fly are what their digests say: read forwards, backwards, in odd pieces and by
    several at once; other processes cannot see them."""
    parts, tmp, room = scene_with(scene)
    programs, found = parts.chain.dir / 'programs', parts.chain.dir / 'found'
    programs.mkdir()
    (programs / 'skopeo').write_text(READER)
    (programs / 'skopeo').chmod(0o755)
    env = {**parts.device.env, 'FOUND': str(found), 'PATH': f'{programs}:{os.environ["PATH"]}'}
    push = [parts.chain.cfg.znsctl, 'push', parts.ids[0], 'docker://127.0.0.1:1/x:y', *room]
    for more, layers in (([], LEVELS + 1), (['--flatten'], 2)):
        subprocess.run([*push, *more], env=env, check=True, stdout=subprocess.DEVNULL, timeout=300)
        said = json.loads(found.read_text())
        expect('layers', said, {'right': [True] * 2 * layers, 'codes': ['EROFS', 'ENOENT', 'EROFS'], 'kinds': ['fuse.znsctl']})
    found.write_text('')
    (programs / 'skopeo').write_text('#!/bin/sh\ncat /proc/self/mountinfo > $FOUND; exec sleep 60\n')
    with subprocess.Popen(push, env=env, stdout=subprocess.DEVNULL) as run:
        try:
            if not wait_until(lambda: 'znsctl' in found.read_text(), 30):
                raise Failed('the child sees no mount')
            if str(tmp) in Path('/proc/self/mountinfo').read_text():
                raise Failed('everybody sees the mount')
        finally:
            run.terminate()
        expect('exit code', run.wait(120), 1)
    expect('nothing is left on the way', os.listdir(tmp), [])


@case
def refused(scene):
    """no registry listens, no such image, an image without a checkpoint, no such checkpoint: one line of ours, and no files are left."""
    parts, tmp, room = scene_with(scene)
    before = parts.left()
    with Registry(parts.chain.dir) as registry:
        nobody = f'docker://127.0.0.1:{free_port()}/x:y'
        for args in (['push', parts.ids[0], nobody, *room, *PLAIN_PUSH], ['pull', nobody, *room, *PLAIN_PULL],
                     ['pull', registry.name('no/such:image'), *room, *PLAIN_PULL]):
            if 'skopeo failed' not in parts.ctl(1, *args):
                raise Failed(f'{args[0]} says nothing of skopeo')
        parts.ctl(1, 'push', '01234567-0123', registry.name('a:b'), *room, *PLAIN_PUSH)
        parts.ctl(2, 'push', parts.ids[0], 'nowhere', *room)
        parts.ctl(2, 'pull', registry.name('a:b'), 'word', *room)
        layout = Layout(parts.chain.dir / 'program')
        layout.path.mkdir()
        layout.blobs.mkdir(parents=True)
        config = layout.put(b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}', 'application/vnd.oci.image.config.v1+json')
        layout.tell([layout.put(b'\0' * 10240)], mediaType='application/vnd.oci.image.manifest.v1+json', config=config)
        subprocess.run(['skopeo', 'copy', '--quiet', '--preserve-digests', '--dest-tls-verify=false', f'oci:{layout.path}:latest', registry.name('a:program')], check=True)
        if 'no image of a checkpoint' not in parts.ctl(1, 'pull', registry.name('a:program'), *room, *PLAIN_PULL):
            raise Failed('an image of a program is taken')
    expect('checkpoints', parts.left(), before)
    expect('nothing is left on the way', os.listdir(tmp), [])


@case
def broken_off(scene):
    """a signal, or the registry's death, in the middle: no temporary file is left, and the next push is complete."""
    parts, tmp, room = scene_with(scene)
    with Registry(parts.chain.dir) as registry:
        for ms in (20, 60, 120, 240):
            run = subprocess.Popen([parts.chain.cfg.znsctl, 'push', parts.ids[0], registry.name('web:x'), *room, *PLAIN_PUSH], env=parts.device.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(ms / 1000)
            run.send_signal(signal.SIGTERM)
            print(f'     exit {run.wait(60)} after {ms} ms', flush=True)
            expect('nothing is left on the way', os.listdir(tmp), [])
        parts.ctl(0, 'push', parts.ids[0], registry.name('web:x'), *room, *PLAIN_PUSH)
        fetched(parts, tmp, registry, 'web:x')
        registry.kill()
        parts.ctl(1, 'push', parts.ids[0], registry.name('web:y'), *room, *PLAIN_PUSH)
    expect('nothing is left on the way', os.listdir(tmp), [])


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'registry', CASES))
