#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
crypt: encryption at rest with real processes: what is on the device, which key is needed, errors before any task is
frozen, rotation, erasure, and the tools.

  crypt.py list | run NAME... | run -a
"""
import json
import mmap
import os
import re
import signal
import struct
import sys
from pathlib import Path

from errors import page_of_task
from tools import expect, frames, log_zone, run_ctl, stop_broker
from ztmedia import Media
from ztlib import Failed, HANDLE
from ztredis import RedisTask
from ztscene import case_of, suite_main

CASES = {}
case = case_of(CASES)


# ---- help ----------------------------------------------------------------------------------------------

def new_key(scene, name='key'):
    """Makes a key file; returns its KEYSPEC and fingerprint."""
    path = scene.dir / name
    made = json.loads(run_ctl(scene, 0, 'key', 'create', str(path), '--json'))
    expect('mode', oct(path.stat().st_mode & 0o7777), '0o600')
    return f'file:{path}', made['key_id']


def encrypted(scene, **options):
    """A scene whose device takes encrypted checkpoints only; returns it with the KEYSPEC and the fingerprint."""
    scene = scene(**options)
    spec, key_id = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    return scene, spec, key_id


def on_device(scene, content):
    """How often these bytes are in the device's file."""
    with open(scene.device.path, 'rb') as dev, mmap.mmap(dev.fileno(), 0, access=mmap.ACCESS_READ) as view:
        found, at = 0, view.find(content)
        while at >= 0:
            found, at = found + 1, view.find(content, at + 1)
        return found


def wrapped_keys(scene, ident):
    """
    The wrapped keys of a checkpoint that are in any metadata zone. By the format: a cipher, a fingerprint of 8 bytes
    and field 3 of 60 bytes, in a frame whose message begins with the id. A child's record has the id too, but elsewhere.
    """
    media = Media(scene)
    found, head = set(), b'\x0a\x10' + bytes.fromhex(ident.replace('-', ''))
    for zone in range(3):
        for offset, *_ in frames(media, zone):
            length, = struct.unpack_from('<I', media.read(zone, offset, 48), 12)
            text = media.read(zone, offset + 48, length)
            key = re.search(rb'\x08\x01\x12\x08.{8}\x1a\x3c(.{60})', text, re.DOTALL) if text.startswith(head) else None
            if key:
                found.add(key.group(1))
    return found


def second(scene):
    images = scene.dir / f'images-{scene.calls}'
    images.mkdir()
    return images


def registry(scene):
    return next((Path(scene.device.env['ZNS_CONFIG']) / 'devices.d').iterdir())


def set_key(scene, line):
    """Sets the key line of the device's entry in devices.d, without znsctl."""
    kept = [l for l in registry(scene).read_text().splitlines() if not l.startswith('key')]
    registry(scene).write_text('\n'.join(kept + ([line] if line else [])) + '\n')


# ---- dump and restore ----------------------------------------------------------------------------------

@case
def there_and_back(scene):
    """The task's memory is not on the device, nor are its images in the directory; the restore has all of it."""
    scene = scene()
    content = page_of_task(scene)
    plain = scene.good_dump(extra=['--leave-running'])
    expect('on a plain device', on_device(scene, content) > 0, True)
    scene.device.remove(plain)
    scene.device.ctl('reset', '--all-garbage')
    spec, key_id = new_key(scene)
    run_ctl(scene, 0, 'format', scene.device.spec, '--encrypt', spec, '--map', 'i % 8', '--zone-write-bw', '100')
    # what an earlier, unencrypted checkpoint left behind the write pointers
    with open(scene.device.path, 'r+b') as dev:
        media = Media(scene)
        stop_broker(scene)
        dev.seek(media.at(3, 0))
        for _ in range(3, media.zones):
            dev.write(bytes(media.stride))
    images = second(scene)
    ident = scene.good_dump(images=images)
    expect('on the device', on_device(scene, content), 0)
    left = set(os.listdir(images)) - {'stats-dump', HANDLE}
    expect('plain copies', left, {'inventory.img'})
    shown = scene.device.json('show', ident)
    expect('show', (shown['encrypted'], shown['key_id']), (True, key_id))
    expect('status', (scene.device.status()['encrypted'], scene.device.status()['key_id']), (True, key_id))
    expect('ls', [c['encrypted'] for c in scene.device.checkpoints()], [True])
    for text in ('status', 'show ' + ident):
        if key_id not in run_ctl(scene, 0, *text.split()):
            raise Failed(f'{text} does not name the key')
    scene.good_restore(images=images)
    expect('memory', page_of_task(scene), content)


def redis(scene, flavour):
    scene, _, _ = encrypted(scene, size=1)
    directory = scene.dir / 'redis'
    directory.mkdir()
    task = RedisTask(directory, flavour)
    scene.tasks.append(task)
    task.start().wait_ready()
    ident = scene.good_dump(task=task)
    expect('encrypted', scene.device.json('show', ident)['encrypted'], True)
    done = scene.restore(task=task)
    if done.code:
        raise Failed(f'restore: exit {done.code}: {" | ".join(done.lines("Error")[-4:])}')
    task.verify(signal.SIGUSR1)


@case
def redis_host(scene):
    """Redis: its digest before and after."""
    redis(scene, 'h')


@case
def redis_ns(scene):
    """Redis in its own namespaces, which has more kinds of images than pages."""
    redis(scene, 'ns')


@case
def beside_plain(scene):
    """Earlier plain checkpoints stay readable, and new ones are plain again after `key off`."""
    scene = scene()
    plain_dir, cipher_dir, later_dir = second(scene), scene.dir / 'c', scene.dir / 'l'
    cipher_dir.mkdir(), later_dir.mkdir()
    plain = scene.good_dump(images=plain_dir, extra=['--leave-running'])
    spec, key_id = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    cipher = scene.good_dump(images=cipher_dir, extra=['--leave-running'])
    run_ctl(scene, 0, 'key', 'off')
    later = scene.good_dump(images=later_dir)
    kinds = {c['id']: c['encrypted'] for c in scene.device.checkpoints()}
    expect('encrypted', (kinds[plain], kinds[cipher], kinds[later]), (False, True, False))
    expect('verify', [c['authentic'] for c in scene.device.json('verify', '--all')['checkpoints']], [None, True, None])
    for images in (plain_dir, cipher_dir, later_dir):
        scene.good_restore(images=images)
        scene.task.end()
    said = json.loads(run_ctl(scene, 0, 'key', 'show', '--json'))
    expect('key show', (said['wanted_key_id'], said['key_id'], said['encrypted_checkpoints']), (None, key_id, 1))


@case
def key_of_the_machine(scene):
    """encrypt-key in zns.conf encrypts on a device that does not ask for it; so does a key from a keyring."""
    scene = scene()
    spec, key_id = new_key(scene)
    conf = Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf'
    conf.write_text(f'# all of them\nencrypt-key = {spec}\n')
    ident = scene.good_dump(extra=['--leave-running'])
    expect('key', scene.device.json('show', ident)['key_id'], key_id)
    scene.task.end()
    scene.good_restore()
    conf.write_text('encrypt-key = nonsense\n')
    scene.remember()
    scene.failed_dump('"nonsense" names no key', images=second(scene))
    conf.write_text('encrypt-key = keyring:zns-test-not-there\n')
    scene.failed_dump('no key "zns-test-not-there"', images=second(scene))


# ---- errors: one line, before a task is frozen ---------------------------------------------------------

@case
def missing_and_wrong_keys(scene):
    """A missing key, a wrong one, one that other users can read: dump and restore report it in one line."""
    scene, spec, key_id = encrypted(scene)
    other, other_id = new_key(scene, 'other')
    path = Path(spec[5:])
    ident = scene.good_dump(extra=['--leave-running'])
    scene.remember()
    gone = path.with_name('elsewhere')

    def both(said):
        images = second(scene)
        done = scene.dump(images=images)
        done.must_fail(said)
        if done.lines('Seized task') or done.lines('Putting tsock'):
            raise Failed('a task was frozen before the key was looked for')
        scene.unharmed(images)
        scene.restore().must_fail(said)
        scene.unharmed(images)

    set_key(scene, f'key = {other}')
    both(f'{key_id}.*{other_id}')
    set_key(scene, None)
    both('no key is named for')
    set_key(scene, f'key = {spec}')
    path.chmod(0o644)
    both('others could read it')
    path.chmod(0o600)
    path.rename(gone)
    both('No such file')
    path.write_text('not a key\n')
    path.chmod(0o600)
    both('is no key')
    gone.rename(path)
    scene.task.end()
    scene.good_restore(extra=['--zns-checkpoint', ident])


@case
def tampered(scene):
    """Units exchanged on the device, with their checksums made right: nothing is restored."""
    scene, _, _ = encrypted(scene)
    ident = scene.good_dump()
    shown = scene.device.json('show', ident)
    pages = max(shown['images'], key=lambda i: i['size'])
    extent, unit = pages['segments'][0]['extents'][0], pages['unit']
    media = Media(scene)
    a, b = extent['start'], extent['start'] + unit
    first, then = media.read(extent['zone'], a, unit), media.read(extent['zone'], b, unit)
    media.write(extent['zone'], a, then)
    media.write(extent['zone'], b, first)
    scene.restore_must_fail('is damaged')
    said = scene.device.ctl('verify', '--json', ident)
    expect('verify', (said.returncode, json.loads(said.stdout)['checkpoints'][0]['bad_units']), (1, 2))
    media.write(extent['zone'], a, first)
    media.write(extent['zone'], b, then)
    scene.good_restore()


# ---- tools ---------------------------------------------------------------------------------------------

@case
def tools_with_the_key(scene):
    """verify, export, import: authentic with the key, checksums only without; the export is what was dumped."""
    scene, spec, _ = encrypted(scene)
    images, out, again = scene.images, scene.dir / 'out', scene.dir / 'again'
    ident = scene.good_dump()
    done = json.loads(run_ctl(scene, 0, 'verify', '--json', ident))['checkpoints'][0]
    expect('verify', (done['intact'], done['encrypted'], done['authentic']), (True, True, True))
    run_ctl(scene, 0, 'export', ident, str(out))
    joined = json.loads(run_ctl(scene, 0, 'import', str(out), '--container', 'again', '--handle', str(again), '--json'))
    expect('imported', scene.device.json('show', joined['id'])['encrypted'], True)
    expect('plain copies', set(os.listdir(again)), {'inventory.img', HANDLE})
    run_ctl(scene, 0, 'export', joined['id'], str(scene.dir / 'out2'))
    for path in out.iterdir():
        expect(path.name, (scene.dir / 'out2' / path.name).read_bytes() == path.read_bytes(), True)
    set_key(scene, None)
    done = json.loads(run_ctl(scene, 0, 'verify', '--json', ident))['checkpoints'][0]
    expect('verify without the key', (done['intact'], done['encrypted'], done['authentic']), (True, True, None))
    if 'authenticity not checked' not in run_ctl(scene, 0, 'verify', ident):
        raise Failed('verify without the key does not say what it could not check')
    if 'no key is named' not in run_ctl(scene, 1, 'export', ident, str(scene.dir / 'out3')):
        raise Failed('export without the key does not say so')
    run_ctl(scene, 1, 'import', str(out), '--container', 'third')
    run_ctl(scene, 0, 'fsck')
    set_key(scene, f'key = {spec}')
    scene.good_restore(images=images)
    scene.task.end()
    scene.good_restore(images=again)
    scene.task.end()
    scene.good_restore(images=out)      # made plain, without zones


@case
def rotate(scene):
    """All keys are wrapped with another master key: the old one decrypts nothing any more, and no key wrapped by it is left."""
    scene, spec, key_id = encrypted(scene)
    ids = [scene.good_dump(extra=['--leave-running']), scene.good_dump(images=second(scene))]
    old = set().union(*(wrapped_keys(scene, i) for i in ids))
    expect('wrapped keys', len(old), 2)
    other, other_id = new_key(scene, 'other')
    if 'rotate' not in run_ctl(scene, 1, 'key', 'use', other):
        raise Failed('key use with another key does not point to rotate')
    said = json.loads(run_ctl(scene, 0, 'key', 'rotate', other, '--json'))
    expect('rotate', (said['key_id'], said['rewrapped']), (other_id, 2))
    for wrapped in old:
        expect('old wrapping on the device', on_device(scene, wrapped), 0)
    Path(spec[5:]).unlink()
    expect('verify', [c['authentic'] for c in scene.device.json('verify', '--all')['checkpoints']], [True, True])
    expect('keys', {c['key_id'] for c in scene.device.checkpoints()}, {other_id})
    scene.good_restore()


@case
def rotate_beside_a_dump(scene):
    """A rotation is refused while a dump runs, since the dump's record would bring a key wrapped with the old master key."""
    scene, _, _ = encrypted(scene)
    started = scene.start_dump(['--leave-running'], stop_after=1)
    scene.at_barrier()
    other, other_id = new_key(scene, 'other')
    said = run_ctl(scene, 1, 'key', 'rotate', other)
    if 'an encrypted dump of errors is running' not in said:
        raise Failed(f'it says: {said}')
    scene.go_on()
    expect('dump', scene.end_of(started).code, 0)
    run_ctl(scene, 0, 'key', 'rotate', other)
    expect('keys', {c['key_id'] for c in scene.device.checkpoints()}, {other_id})
    scene.task.end()
    scene.good_restore()


@case
def plain_refused(scene):
    """On a device that refuses plain checkpoints, verify calls a plain one damaged; elsewhere it does not."""
    scene = scene(size=1)
    ident = scene.good_dump()
    spec, _ = new_key(scene)
    if 'is not encrypted, and will not be restored' not in scene.device.ctl('key', 'use', spec).stderr:
        raise Failed('key use does not say that a plain checkpoint will not be restored')
    run_ctl(scene, 0, 'key', 'plain', 'accept')
    expect('nothing to note', scene.device.ctl('key', 'use', spec).stderr, '')
    run_ctl(scene, 0, 'verify', ident)
    run_ctl(scene, 0, 'key', 'plain', 'refuse')
    said = run_ctl(scene, 1, 'verify', ident)
    if 'plain' not in said:
        raise Failed(f'it says: {said}')


@case
def rm_secure(scene):
    """rm --secure leaves no copy of the wrapped key in the device's file. Plain checkpoints are refused; all of the
    named ones are removed, or none."""
    scene = scene(size=8)
    plain = scene.good_dump(extra=['--leave-running'])
    spec, _ = new_key(scene)
    run_ctl(scene, 0, 'key', 'use', spec)
    first = scene.good_dump(images=second(scene), extra=['--leave-running'])
    kept_dir = second(scene)
    kept = scene.good_dump(images=kept_dir)
    keys, other = wrapped_keys(scene, first), wrapped_keys(scene, kept)
    expect('wrapped keys', (len(keys), len(other)), (1, 1))
    if on_device(scene, *keys) < 2:
        raise Failed('the wrapped key is not twice in the log: the test looks in the wrong place')
    said = run_ctl(scene, 1, 'rm', '--secure', first, plain)
    if 'is not encrypted' not in said:
        raise Failed(f'rm --secure of a plain checkpoint says: {said}')
    expect('checkpoints', set(scene.ids()), {plain, first, kept})
    run_ctl(scene, 0, 'rm', '--secure', '--dry-run', first)
    expect('checkpoints', set(scene.ids()), {plain, first, kept})
    run_ctl(scene, 0, 'rm', first)
    expect('after a plain rm', on_device(scene, *keys) > 0, True)
    run_ctl(scene, 0, 'rm', '--secure', first)      # now with --secure
    expect('wrapped key on the device', on_device(scene, *keys), 0)
    expect('the other one is there', on_device(scene, *other) > 0, True)
    stop_broker(scene)
    expect('checkpoints', set(scene.ids()), {plain, kept})
    run_ctl(scene, 1, 'rm', '--secure', plain)
    run_ctl(scene, 0, 'fsck')
    scene.good_restore(images=kept_dir)
    run_ctl(scene, 0, 'rm', '--secure', kept)
    expect('wrapped key on the device', on_device(scene, *other), 0)


@case
def fsck_keeps_keys(scene):
    """Damaging any one record of the log loses no key. Without the log the keys are gone, and every command says so."""
    scene, _, _ = encrypted(scene, size=8)
    ids = [scene.good_dump(extra=['--leave-running']), scene.good_dump(images=second(scene))]
    media = Media(scene)
    stop_broker(scene)
    zone, log = log_zone(media)
    kinds = set()
    for offset, kind, _, _ in log:
        if kind not in (3, 70, 71):
            continue
        kinds.add(kind)
        media.flip(zone, offset + 48)
        copy = media.copy_of_metadata()
        run_ctl(scene, 1, 'ls')
        run_ctl(scene, 0, 'fsck', '--repair')
        done = scene.device.json('verify', '--all')['checkpoints']
        expect(f'authentic with record {kind} at {offset} damaged', [c['authentic'] for c in done], [True, True])
        stop_broker(scene)
        media.put_back(copy)
        media.flip(zone, offset + 48)
    expect('kinds of records', kinds, {3, 70, 71})
    for meta in range(3):
        media.write(meta, 0, bytes(1 << 20))
    said = json.loads(run_ctl(scene, 0, 'fsck', '--rebuild', '--json'))
    expect('rebuilt', said['checkpoints'], 2)
    done = scene.device.json('verify', '--all')['checkpoints']
    expect('intact, not authentic', [(c['intact'], c['authentic']) for c in done], [(True, None)] * 2)
    scene.restore_must_fail('is gone')
    if 'its key is gone' not in run_ctl(scene, 0, 'show', ids[0]):
        raise Failed('show does not say that the key is gone')
    run_ctl(scene, 0, 'rm', '--all')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'crypt', CASES))
