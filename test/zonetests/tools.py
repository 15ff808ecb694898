#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
tools: znsctl's commands on real checkpoints: verify, export, import.

  tools.py list | run NAME... | run -a
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tarfile

import ztlib
from ztlib import Failed, wait_until
from ztscene import TINY, suite_main

CASES = {}


def case(func):
    CASES[func.__name__.replace('_', '-')] = func
    return func


# ---- help ----------------------------------------------------------------------------------------------

def expect(what, got, want):
    if got != want:
        raise Failed(f'{what} is {got}, not {want}')


def run_ctl(scene, code, *args):
    """znsctl that must end with this exit code; its output."""
    done = scene.device.ctl(*args)
    said = (done.stderr.strip() or done.stdout.strip())[:300]
    if done.returncode != code:
        raise Failed(f'znsctl {" ".join(args)}: exit {done.returncode}, not {code}: {said}')
    if code and done.stderr.count('\n') > 1:
        raise Failed(f'znsctl {" ".join(args)}: more than one line: {said}')
    return done.stdout if code == 0 else done.stdout + done.stderr


class Media:
    """The bytes behind the emulator, by zone and offset."""

    def __init__(self, scene):
        self.path = scene.device.path
        geometry = scene.device.status()['geometry']
        self.zones, self.capacity = geometry['zones'], geometry['zone_capacity']
        self.stride = (self.capacity + 4095) // 4096 * 4096
        self.data = os.path.getsize(self.path) - self.zones * self.stride     # the zones are the file's end

    def at(self, zone, offset):
        return self.data + zone * self.stride + offset

    def read(self, zone, offset, n):
        with open(self.path, 'rb') as dev:
            dev.seek(self.at(zone, offset))
            return dev.read(n)

    def write(self, zone, offset, content):
        with open(self.path, 'r+b') as dev:
            os.pwrite(dev.fileno(), content, self.at(zone, offset))
            os.fsync(dev.fileno())

    def flip(self, zone, offset, bit=1):
        self.write(zone, offset, bytes([self.read(zone, offset, 1)[0] ^ bit]))


def footer_of(media, manifest):
    """Offset of the footer's block behind a frame at (zone, offset)."""
    zone, offset = manifest
    length, = struct.unpack_from('<I', media.read(zone, offset, 48), 12)
    return offset + (48 + length + 4095) // 4096 * 4096


def manifest_of(scene, media, ident):
    """(zone, offset): the frame of type 8 behind the last unit, found in the zones of the checkpoint."""
    wanted = bytes.fromhex(ident.replace('-', ''))
    shown = scene.device.json('show', ident)
    for zone in shown['zones']:
        for offset in range(0, media.capacity, 4096):
            head = media.read(zone, offset, 4096)
            if head[:10] == b'ZNSCRIU1\x08\0' and wanted in head:
                return zone, offset
    raise Failed(f'no manifest of {ident} in its zones')


# ---- verify --------------------------------------------------------------------------------------------

def verdict(scene, code, *args):
    done = scene.device.ctl('verify', '--json', *args)
    expect(f'exit of verify {" ".join(args)} ({done.stderr.strip()})', done.returncode, code)
    return json.loads(done.stdout)


@case
def verify(scene):
    """verify finds a flipped bit in a unit, in the manifest, in the footer, and where it is; and nothing else."""
    scene = scene()
    first = scene.good_dump(extra=['--leave-running'])
    second = scene.good_dump(images=scene.images.with_name('images-2').mkdir() or scene.images.with_name('images-2'))
    media = Media(scene)
    good = verdict(scene, 0, '--all')
    expect('damaged', (good['damaged'], len(good['checkpoints'])), (0, 2))
    shown = scene.device.json('show', second)
    expect('bytes read', good['checkpoints'][1]['bytes'], sum(i['size'] for i in shown['images']))
    expect('units', good['checkpoints'][1]['units'], sum(-(-i['size'] // i['unit']) for i in shown['images']))
    run_ctl(scene, 0, 'verify', first[:8])
    run_ctl(scene, 0, 'verify', str(scene.images))
    run_ctl(scene, 0, 'verify', '--container', 'errors')

    image = max(shown['images'], key=lambda i: i['size'])
    extent = image['segments'][0]['extents'][-1]
    media.flip(extent['zone'], extent['start'] + 1234)
    bad = verdict(scene, 1, '--all')
    expect('damaged', bad['damaged'], 1)
    damage = [c for c in bad['checkpoints'] if not c['intact']][0]['damage']
    expect('damage', [(d['image'], d['zone'], d['offset'], d['units']) for d in damage],
           [(image['name'], extent['zone'], extent['start'], 1)])
    run_ctl(scene, 0, 'verify', first)
    line = scene.device.ctl('verify', second).stdout
    if f'zone {extent["zone"]}, offset {extent["start"]}' not in line or line.count('\n') != 1:
        raise Failed(f'verify says: {line}')
    media.flip(extent['zone'], extent['start'] + 1234)
    verdict(scene, 0, second)

    zone, offset = manifest_of(scene, media, second)
    for at, what in ((offset + 60, 'manifest'), (footer_of(media, (zone, offset)) + 50, 'footer')):
        media.flip(zone, at)
        bad = verdict(scene, 1, second)
        if not any(what in d['error'] and d['zone'] == zone for d in bad['checkpoints'][0]['damage']):
            raise Failed(f'flipped {what}: {bad["checkpoints"][0]["damage"]}')
        media.flip(zone, at)
    verdict(scene, 0, '--all')
    run_ctl(scene, 1, 'verify', 'nosuch')
    run_ctl(scene, 2, 'verify')


# ---- export --------------------------------------------------------------------------------------------

def digests(directory):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}


@case
def export(scene):
    """export to a directory, a file and a pipe gives the same images; ours restores them; nothing is overwritten."""
    scene = scene()
    ident = scene.good_dump()
    out, archive = scene.dir / 'out', scene.dir / 'out.tar'
    said = json.loads(run_ctl(scene, 0, 'export', str(scene.images), str(out), '--json'))
    images = {i['name']: i['size'] for i in scene.device.json('show', ident)['images']}
    expect('sizes', {p.name: p.stat().st_size for p in out.iterdir()}, images)
    expect('images', (said['id'], said['images'], said['bytes']), (ident, len(images), sum(images.values())))
    run_ctl(scene, 0, 'export', ident[:8], str(archive))
    piped = subprocess.run([scene.cfg.znsctl, 'export', ident, '-'], env=scene.device.env, capture_output=True, check=True)
    expect('the piped archive', hashlib.sha256(piped.stdout).digest(), hashlib.sha256(archive.read_bytes()).digest())
    with tarfile.open(archive) as tar:
        tar.extractall(scene.dir / 'untarred')
    expect('the archive', digests(scene.dir / 'untarred'), digests(out))
    for target in (out, archive):
        before = digests(out), archive.read_bytes()
        run_ctl(scene, 1, 'export', ident, str(target))
        expect('what was there', (digests(out), archive.read_bytes()) == before, True)
    run_ctl(scene, 1, 'export', 'nosuch', str(scene.dir / 'never'))
    expect('a target of a failed export', (scene.dir / 'never').exists(), False)

    media = Media(scene)
    biggest = max(scene.device.json('show', ident)['images'], key=lambda i: i['size'])
    extent = biggest['segments'][0]['extents'][0]
    media.flip(extent['zone'], extent['start'])
    for target in ('bad', 'bad.tar'):
        if 'checksum' not in run_ctl(scene, 1, 'export', ident, str(scene.dir / target)):
            raise Failed('export of a damaged checkpoint does not say so')
        expect('damaged export', [(scene.dir / n).exists() for n in ('bad', 'bad.tar', 'bad.tar.part')], [False] * 3)
    media.flip(extent['zone'], extent['start'])

    run_ctl(scene, 0, 'rm', ident)
    scene.good_restore(images=out)


# ---- import --------------------------------------------------------------------------------------------

def plain_dump(scene, name):
    """The scene's task, dumped without zones; it stays alive."""
    images = scene.dir / name
    images.mkdir()
    log = scene.log()
    done = ztlib.run_criu(scene.cfg, ['dump', '-t', scene.task.pid, '-D', images, '-W', log.parent, '-o', log.name, '-v4',
                                      '--leave-running'], log)
    expect(f'plain dump ({ztlib.log_errors(log)})', done.returncode, 0)
    return images


@case
def import_plain(scene):
    """import of a plain directory: same bytes back, restored by handle and by id; what is no whole dump is refused."""
    scene = scene()
    plain, handle = plain_dump(scene, 'plain'), scene.dir / 'handle'
    said = json.loads(run_ctl(scene, 0, 'import', str(plain), '--handle', str(handle), '--qos', '200', '--json'))
    other = json.loads(run_ctl(scene, 0, 'import', str(plain), '--container', 'other', '--json'))
    images = {p.name: p.stat().st_size for p in plain.iterdir() if p.suffix == '.img'}
    expect('import', (said['container'], said['images'], said['bytes']), ('plain', len(images), sum(images.values())))
    shown = scene.device.json('show', said['id'])
    expect('origin', shown['origin']['kind'], 'import')
    expect('qos', shown['qos_requested_mibps'], 200)
    expect('containers', sorted(c['container'] for c in scene.device.checkpoints()), ['other', 'plain'])
    expect('handle', scene.device.json('show', str(handle))['handle']['differ'], 0)
    run_ctl(scene, 0, 'verify', '--all')
    run_ctl(scene, 0, 'export', other['id'], str(scene.dir / 'again'))
    expect('bytes', digests(scene.dir / 'again'), {n: d for n, d in digests(plain).items() if n in images})

    refused = (('handle', handle), ('incremental', plain), ('inventory', scene.dir / 'none'), ('no CRIU image', plain))
    (scene.dir / 'none').mkdir()
    free = scene.device.free_zones()
    for n, (what, directory) in enumerate(refused):
        if n == 1:
            os.symlink('.', plain / 'parent')
        if n == 3:
            os.unlink(plain / 'parent')
            good = (plain / 'inventory.img').read_bytes()
            (plain / 'inventory.img').write_bytes(b'x' + good[1:])
        if what not in run_ctl(scene, 1, 'import', str(directory), '--handle', str(scene.dir / 'never')):
            raise Failed(f'import of a directory with {what} is refused with another reason')
    (plain / 'inventory.img').write_bytes(good)
    expect('left behind', (scene.dir / 'never').exists(), False)
    expect('checkpoints', len(scene.device.checkpoints()), 2)
    expect('free zones', scene.device.free_zones(), free)

    scene.task.end()
    scene.good_restore(images=handle)
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not ztlib.alive(scene.task.pid), 5)
    empty = scene.dir / 'empty'
    empty.mkdir()
    scene.good_restore(images=empty, extra=['--zns-checkpoint', other['id']])


@case
def import_full(scene):
    """import into a device without room leaves nothing behind."""
    scene = scene(TINY, size=96)
    plain = plain_dump(scene, 'plain')
    if not re.search('full|space', run_ctl(scene, 1, 'import', str(plain))):
        raise Failed('import into a full device does not say so')
    expect('checkpoints', scene.device.checkpoints(), [])
    if not wait_until(lambda: scene.device.free_zones() == scene.free_before, 10, 0.1):
        raise Failed('zones of a failed import are not free again')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'tools', CASES))
