#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
composed: checkpoints whose pages are put together from the copies of a live dump's rounds (format.md, "Composed images").
A plain dump is written as such a dump would write it (test/load/composer.c), so what must come back is known.

  composed.py list | run NAME... | run -a
"""
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import ztlib
from chains import LEVELS, plain_criu, take_apart
from compact import compact
from migration import lazy_daemon
from tools import catalogue
from ztmedia import Media
from ztchain import Chain
from ztlib import Failed
from ztscene import Outcome, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)
ROOM = ['--channels', '4', '--ways', '1', '--die-write-bw', '200', '--zones', '48', '--zone-size', '16M', '--timing', 'off']
COMPOSER = ztlib.REPO / 'build' / 'load' / 'composer'


def content(directory):
    return {p.name: p.read_bytes() for p in Path(directory).iterdir() if p.suffix == '.img'}


class Live:
    """A task that has ended, its checkpoint with composed images, and its plain images beside it."""

    def __init__(self, scene, program='dirty', flavour='h', size=8, written=True):
        self.scene, self.device = scene, scene.device
        self.chain = Chain(scene, program, flavour, size=size, stock=True)
        self.chain.dump()
        self.chain.gone()
        self.plain, self.handle = self.chain.images(0), self.chain.dir / 'handle'
        if written:
            self.said = self.write(self.plain, handle=self.handle)
            self.id = self.said['id']

    def write(self, directory, handle=None, parent=None, container='live', **options):
        args = [COMPOSER, directory, '--container', container]
        args += ['--handle', handle] if handle else []
        args += ['--parent', parent] if parent else []
        for name, value in options.items():
            args += [f'--{name}', value]
        done = subprocess.run([*map(str, args)], env=ztlib.not_installed(self.device.env), capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Failed(f'composer: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def ctl(self, code, *args):
        return run_ctl(self.scene, code, *args)

    def restore(self, images=None, extra=(), cfg=None):
        done = self.chain.restore(images or self.handle, extra, cfg)
        self.chain.end_task()
        return done

    def same(self, images=None, ident=None):
        """Checks that everything that reads the checkpoint finds the same as in the plain dump."""
        target = self.chain.dir / f'export-{self.chain.restores}-{len(list(self.chain.dir.iterdir()))}'
        self.ctl(0, 'export', ident or self.id, str(target))
        if content(target) != content(images or self.plain):
            raise Failed('the export differs from the plain dump')
        expect('a clean verify', self.device.json('verify', ident or self.id)['damaged'], 0)
        return target


@case
def restored(scene):
    """Restores by handle and by id; checks what show prints; its bytes count once."""
    live = Live(scene(ROOM, 1))
    if live.said['runs'] < 1000:
        raise Failed(f'only {live.said["runs"]} runs')
    live.restore()
    live.chain.by_id(live.id)
    live.chain.end_task()
    live.same()
    shown = live.device.json('show', live.id)
    images = {i['name']: i for i in shown['images']}
    parts = [i for i in images.values() if i['part']]
    pages = [i for n, i in images.items() if n.startswith('pages-')]
    expect('parts', sorted(i['name'] for i in parts), ['live-0.img', 'live-1.img', 'live-2.img'])
    expect('composed of', {tuple(i['composed_of']) for i in pages}, {('live-0.img', 'live-1.img', 'live-2.img')})
    expect('runs', sum(i['runs'] for i in pages), live.said['runs'])
    expect('places of it', [s for i in pages for s in i['segments']], [])
    expect('sizes', {n: images[n]['size'] for n in content(live.plain)}, {n: len(b) for n, b in content(live.plain).items()})
    expect('bytes', (shown['bytes'], shown['page_bytes']),
           (sum(i['size'] for i in images.values() if 'composed_of' not in i), sum(i['size'] for i in parts)))
    text = live.ctl(0, 'show', live.id)
    if f'composed of {max(i["runs"] for i in pages)} runs of live-0.img live-1.img live-2.img' not in text or \
            'part of others' not in text:
        raise Failed(f'show says: {text}')
    tree = live.ctl(0, 'show', '--container', 'live')
    if f'{len(pages)} images of memory pages' not in tree or '3 parts that they are composed of' not in tree:
        raise Failed(f'the tree says: {tree}')
    tree = live.ctl(0, 'show', '--container', 'live', '-v')
    if ', composed\n' not in tree or ', part of others\n' not in tree:
        raise Failed(f'the long tree says: {tree}')
    expect('fsck', json.loads(live.ctl(0, 'fsck', '--json'))['problems'], [])


@case
def flattened(scene):
    """A checkpoint without parents: flatten writes it anew with plain images, and copies that were replaced in later rounds take no room any more."""
    live = Live(scene(ROOM, 1))
    before = live.device.json('show', live.id)
    size = sum(len(b) for b in content(live.plain).values())
    if before['bytes'] < size * 1.1:
        raise Failed(f'{before["bytes"]} bytes for {size}: nothing is superseded')
    done = live.device.json('flatten', live.id)
    expect('bytes', (done['bytes'], done['checkpoints_read']), (size, 1))
    shown = live.device.json('show', live.id)
    expect('parts and composed images', [i['name'] for i in shown['images'] if i['part'] or 'runs' in i], [])
    used = sum(z['len'] for z in before['zone_uses']) - sum(z['len'] for z in shown['zone_uses'])
    if used < (before['bytes'] - size) * 0.9:
        raise Failed(f'only {used} bytes were won of {before["bytes"] - size}')
    live.same()
    live.restore()
    live.chain.by_id(live.id)
    live.chain.end_task()
    if 'whole already' not in live.ctl(1, 'flatten', live.id):
        raise Failed('flatten says something else')
    expect('fsck', json.loads(live.ctl(0, 'fsck', '--json'))['problems'], [])


@case
def restored_tree(scene):
    """composed images of forked processes: criu compares their pages with their parent's one by one."""
    live = Live(scene(ROOM, 1), program='cowtree', size=None)
    live.restore()
    live.same()


@case
def restored_shared(scene):
    """composed images of a program with shared memory are restored."""
    live = Live(scene(ROOM, 1), program='shmanon', size=None)
    live.restore()
    live.same()


@case
def small(scene):
    """One round of a single page, and many rounds of very few pages: such images are packed with others."""
    live = Live(scene(ROOM, 1), written=False)
    for n, options in enumerate(({'rounds': 1}, {'rounds': 16, 'again': 200}, {'rounds': 2, 'again': 1})):
        live.id = live.write(live.plain, handle=live.chain.dir / f'handle-{n}', **options)['id']
        live.same()
        live.restore(live.chain.dir / f'handle-{n}')


@case
def lazily(scene):
    """restore --lazy-pages: a fault is answered from the round that has the page."""
    live = Live(scene(ROOM, 1), program='bigmem')
    daemon = lazy_daemon(live.scene, live.handle)
    try:
        done = live.chain.try_restore(live.handle, ['--lazy-pages', '-W', str(daemon.log.parent)])
        if done.code:
            daemon.stop()
            raise Failed(f'restore --lazy-pages: {done.errors()[-2:]}; daemon: {Outcome(0, daemon.log).errors()[-2:]}')
        live.chain.task.verify()
        ended = daemon.end()
        expect(f'the daemon ({ended.errors()[-2:]})', ended.code, 0)
    finally:
        daemon.stop()
    live.chain.end_task()


@case
def views(scene):
    """A directory, an archive, one without pages: always the plain images and no parts; it can be imported again."""
    live = Live(scene(ROOM, 1))
    plain = content(live.plain)
    target = live.same()
    live.restore(target, cfg=plain_criu(live.chain.cfg))
    archive = live.chain.dir / 'all.tar'
    live.ctl(0, 'export', live.id, str(archive))
    with tarfile.open(archive) as tar:
        expect('an archive', {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}, plain)
    live.ctl(0, 'export', live.id, str(live.chain.dir / 'metadata'), '--metadata-only')
    expect('metadata', content(live.chain.dir / 'metadata'), {n: b for n, b in plain.items() if not n.startswith('pages-')})
    again = live.device.json('import', str(target), '--container', 'again')
    live.same(ident=again['id'])


@case
def moved(scene):
    """Compaction moves what its pages are composed of; handle, bytes and restores stay."""
    live = Live(scene(['--channels', '1', '--ways', '2', '--die-write-bw', '600', '--zones', '24', '--zone-size', '4M',
                       '--timing', 'off'], 1), size=1, written=False)
    ids = [live.write(live.plain, handle=live.chain.dir / f'handle-{n}', again=20)['id'] for n in range(12)]
    left = ids[::3]
    live.device.remove(*[i for i in ids if i not in left])
    zones = {i: live.device.json('show', i)['zones'] for i in left}
    said = compact(live.scene)
    if not said['freed_zones'] or all(live.device.json('show', i)['zones'] == zones[i] for i in left):
        raise Failed(f'nothing stands elsewhere: {said}')
    for n, ident in enumerate(left):
        live.same(ident=ident)
        live.restore(live.chain.dir / f'handle-{3 * n}')
    expect('fsck', json.loads(live.ctl(0, 'fsck', '--json'))['problems'], [])


@case
def damaged(scene):
    """A flipped bit in a part: verify names part and place, restore and export fail and leave nothing."""
    live = Live(scene(ROOM, 1))
    part = next(i for i in live.device.json('show', live.id)['images'] if i['name'] == 'live-1.img')
    place = part['segments'][0]['extents'][0]
    Media(live.scene).flip(place['zone'], place['start'] + 4711)
    done = live.device.ctl('verify', live.id, '--json')
    found = json.loads(done.stdout)['checkpoints'][0]['damage']
    expect('damage', (done.returncode, [(d['image'], d['zone'], d['offset']) for d in found]),
           (1, [('live-1.img', place['zone'], place['start'])]))
    live.chain.try_restore(live.handle).must_fail('live-1.img is damaged')
    if 'live-1.img is damaged' not in live.ctl(1, 'export', live.id, str(live.chain.dir / 'never')):
        raise Failed('export says something else')
    expect('left behind', (live.chain.dir / 'never').exists(), False)


@case
def rebuilt(scene):
    """A lost catalogue: the rebuilt one has it, and it restores."""
    scene = scene(ROOM, 1)
    live = Live(scene)
    before = catalogue(scene)
    scene.end_broker()
    live.ctl(0, 'fsck', '--rebuild', '--force', '--map', 'i % 4', '--zone-write-bw', '200')
    expect('catalogue', catalogue(scene), before)
    live.same()
    live.restore()


@case
def chain(scene):
    """A chain of composed checkpoints: restore, verify, export with parents and without, flatten of the middle and the newest."""
    live = Live(scene(ROOM, 1), written=False)
    dirs, ids = take_apart(live.plain, live.chain.dir), []
    for n in reversed(range(LEVELS)):
        ids.insert(0, live.write(dirs[n], handle=None if n else live.handle, parent=ids[0] if ids else None, seed=n + 7)['id'])
    live.restore()
    live.chain.by_id(ids[0])
    live.chain.end_task()
    expect('verified', [c['intact'] for c in live.device.json('verify', ids[0])['checkpoints']], [True] * LEVELS)
    live.ctl(0, 'export', ids[0], str(live.chain.dir / 'whole'))
    expect('levels', [content(live.chain.dir / 'whole')] +
           [content(live.chain.dir / 'whole' / 'parents' / i) for i in ids[1:]], [content(d) for d in dirs])
    live.restore(live.chain.dir / 'whole', cfg=plain_criu(live.chain.cfg))
    live.ctl(0, 'export', ids[0], str(live.chain.dir / 'flat'), '--flatten')
    flat = content(live.chain.dir / 'flat')
    expect('the flat pages', {n: b for n, b in flat.items() if n.startswith('pages-')},
           {n: b for n, b in content(live.plain).items() if n.startswith('pages-')})
    expect('names', sorted(flat), sorted(content(live.plain)))
    live.device.json('flatten', ids[1])
    live.restore()
    live.device.json('flatten', ids[0])
    shown = live.device.json('show', ids[0])
    expect('what a flattened one has', [i['name'] for i in shown['images'] if i['part'] or 'runs' in i], [])
    live.device.remove(*ids[1:])
    live.restore()
    live.id = ids[0]
    expect('bytes', content(live.same(live.chain.dir / 'flat')), flat)


@case
def encrypted(scene):
    """An encrypted composed checkpoint: it restores and is authenticated, also in a chain; without the key nothing
    can be read; its runs cannot be exchanged."""
    scene = scene(ROOM, 1)
    key = scene.dir / 'key'
    scene.device.json('key', 'create', str(key))
    scene.device.json('key', 'use', f'file:{key}', scene.device.spec)
    live = Live(scene)
    live.restore()
    live.same()
    expect('authentic', live.device.json('verify', live.id)['checkpoints'][0]['authentic'], True)
    dirs, ids = take_apart(live.plain, live.chain.dir), []
    for n in reversed(range(LEVELS)):
        ids.insert(0, live.write(dirs[n], parent=ids[0] if ids else None)['id'])
    live.chain.by_id(ids[0])
    live.chain.end_task()
    shutil.move(key, scene.dir / 'elsewhere')
    live.chain.try_restore(live.handle).must_fail('key')
    live.ctl(0, 'verify', live.id)
    live.ctl(1, 'export', live.id, str(live.chain.dir / 'never'))


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'composed', CASES))
