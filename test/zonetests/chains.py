#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
chains: what can be done with checkpoints that have parents. The dirty tracking that makes them belongs to the kernel
and is tested in guests (incremental.py). Here a plain dump is taken apart into a chain as CRIU would have written it,
and imported.

  chains.py list | run NAME... | run -a
"""
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import ztlib
import ztproto
from ztchain import Chain
from ztlib import Failed
from ztmedia import Media
from ztscene import case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)
ROOM = ['--channels', '4', '--ways', '1', '--die-write-bw', '200', '--zones', '48', '--zone-size', '16M',
        '--timing', 'off']
LEVELS = 4
CAP = 20        # MiB/s; a cap that is never exceeded, however slow the machine is
PAGE = 4096
PARENT, LAZY, PRESENT = 1, 2, 4
STOCK = ztlib.REPO / 'build' / 'zdtm' / 'stock' / 'criu' / 'criu'


# ---- taking a dump apart -------------------------------------------------------------------------------

def entry(vaddr, pages, flags):
    return ztproto.entry({1: vaddr, 2: 0, 4: flags, 5: pages})


def owner(vaddr):
    """The level of the chain that has the page at this address. Some pages in a row share a level, so that entries meet in many ways."""
    return (vaddr // PAGE // 7 * 2654435761 >> 4) % LEVELS


def split_pages(raw, pages, level):
    """
    Pagemap and pages image of one level. The oldest level has all pages; those that belong to a newer level have other bytes
    there, so that a restore from the wrong level is noticed.
    """
    head_end = 12 + struct.unpack_from('<I', raw, 8)[0]
    out, content, at = bytearray(raw[:head_end]), bytearray(), 0
    for fields in ztproto.image(raw)[1:]:
        nr = fields.get(5, fields.get(2))
        expect('flags of a full dump', fields.get(4, PRESENT) & ~2, PRESENT)
        run = None
        for n in range(nr):
            vaddr = fields[1] + n * PAGE
            here = owner(vaddr) == level or level == LEVELS - 1
            if here:
                good = pages[at:at + PAGE] if owner(vaddr) == level else bytes([0xee]) * PAGE
                content += good
            flags = (PRESENT if here else PARENT) | fields.get(4, PRESENT) & LAZY
            if run and run[2] == flags:
                run[1] += 1
            else:
                if run:
                    out += entry(*run)
                run = [vaddr, 1, flags]
            at += PAGE
        if run:
            out += entry(*run)
    return bytes(out), bytes(content)


def take_apart(images, directory):
    """The directories of a chain of pre-dumps and a dump, [newest, …, oldest]."""
    found = []
    for level in range(LEVELS):
        to = directory / f'level-{level}'
        to.mkdir()
        for path in images.glob('*.img'):
            if level and not path.name.startswith(('pagemap-', 'pages-', 'inventory')):
                continue
            shutil.copy(path, to)
        for path in to.glob('pagemap-*.img'):
            raw = path.read_bytes()
            name = f'pages-{ztproto.image(raw)[0][1]}.img'
            raw, pages = split_pages(raw, (images / name).read_bytes(), level)
            path.write_bytes(raw)
            (to / name).write_bytes(pages)
        if level < LEVELS - 1:
            (to / 'parent').symlink_to(f'../level-{level + 1}')
        found.append(to)
    return found


class Parts:
    """A task that has ended, and its dump as a chain, in plain directories and on zones."""

    def __init__(self, scene, imported=True, program='dirty', size=None):
        self.scene, self.device = scene, scene.device
        self.chain = Chain(scene, program, size=size, stock=True)
        self.chain.dump()
        self.chain.gone()
        self.dirs = take_apart(self.chain.images(0), self.chain.dir)
        self.ids = []       # newest first, as the directories
        if imported:
            self.import_all()

    def import_all(self):
        for n in reversed(range(LEVELS)):
            args = ['--container', 'chain']
            if self.ids:
                args += ['--parent', self.ids[0]]
            if not n:
                self.handle = self.chain.dir / 'handle'
                args += ['--handle', str(self.handle)]
            self.ids.insert(0, self.device.json('import', str(self.dirs[n]), *args)['id'])

    def restore(self, images=None, extra=(), cfg=None):
        self.chain.restore(images or self.handle, extra, cfg)
        self.chain.end_task()

    def ctl(self, code, *args):
        return run_ctl(self.scene, code, *args)

    def left(self):
        return sorted(c['id'] for c in self.device.checkpoints())


def plain_criu(cfg):
    """Stock CRIU if it is built (scripts/zdtm-sample --stock-only); else ours, which is the same without zones."""
    import copy
    other = copy.copy(cfg)
    other.stock = True
    if STOCK.exists():
        other.criu = str(STOCK)
    return other


# ---- the cases -----------------------------------------------------------------------------------------

@case
def restored(scene):
    """pages from all levels come back, by the handle, by the id, and the chain itself as plain files."""
    parts = Parts(scene(ROOM, 1))
    parts.restore(parts.dirs[0], cfg=plain_criu(parts.chain.cfg))    # the control: CRIU takes it for a chain
    parts.restore()
    parts.chain.by_id(parts.ids[0])
    parts.chain.end_task()
    parts.chain.try_restore(parts.handle, ['--zns-checkpoint', parts.ids[1]]).must_fail('pre-dump')


def restored_of(program, scene):
    parts = Parts(scene(ROOM, 1), program=program)
    parts.restore(parts.dirs[0], cfg=plain_criu(parts.chain.cfg))
    parts.restore()


@case
def restored_tree(scene):
    """forked processes in a chain: criu compares their pages with their parent's one by one."""
    restored_of('cowtree', scene)


@case
def restored_shared(scene):
    """a chain of a program with shared memory is restored."""
    restored_of('shmanon', scene)


@case
def shown(scene):
    """ls, show and verify know the chain; verify reads all of it and finds a flipped bit in a parent."""
    parts = Parts(scene(ROOM, 1))
    listed = {c['id']: c for c in parts.device.checkpoints()}
    expect('parents', [listed[i]['parent'] for i in parts.ids], [*parts.ids[1:], None])
    expect('pre-dumps', [listed[i]['pre_dump'] for i in parts.ids], [False] + [True] * (LEVELS - 1))
    text = parts.ctl(0, 'show', parts.ids[1])
    if f'parent      {parts.ids[2]}' not in text or f'child       {parts.ids[0]}' not in text:
        raise Failed(f'show says neither parent nor child: {text[:400]}')
    checked = parts.device.json('verify', parts.ids[0])
    expect('verified', [c['id'] for c in checked['checkpoints']], parts.ids)
    done = parts.device.ctl('verify', parts.ids[1], '--json')
    expect('verified from the middle', [c['id'] for c in json.loads(done.stdout)['checkpoints']], parts.ids[1:])

    oldest = parts.device.json('show', parts.ids[-1])
    pages = max((i for i in oldest['images'] if i['name'].startswith('pages-')), key=lambda i: i['size'])
    place = pages['segments'][0]['extents'][0]
    Media(parts.scene).flip(place['zone'], place['start'] + 99)
    done = parts.device.ctl('verify', parts.ids[0], '--json')
    found = json.loads(done.stdout)['checkpoints']
    expect('exit, damaged', (done.returncode, [c['id'] for c in found if not c['intact']]), (1, parts.ids))
    alone = json.loads(parts.device.ctl('verify', '--container', parts.chain.container, '--json').stdout)['checkpoints']
    expect('damaged, of all', {c['id'] for c in alone if not c['intact']}, set(parts.ids))
    parts.chain.try_restore(parts.handle).must_fail('damaged')
    Media(parts.scene).flip(place['zone'], place['start'] + 99)
    other = next(i for i in oldest['images'] if i['name'] == 'inventory.img')['segments'][0]['extents'][0]
    Media(parts.scene).flip(other['zone'], other['start'])
    done = parts.device.ctl('verify', parts.ids[0], '--json')
    found = json.loads(done.stdout)['checkpoints']
    expect('damaged, and no child needs it', (done.returncode, [c['id'] for c in found if not c['intact']]), (1, parts.ids[-1:]))
    parts.chain.gone()
    parts.restore()


@case
def kept(scene):
    """rm, retention and gc never remove a parent of a checkpoint that stays; a chain is removed as a whole."""
    parts = Parts(scene(ROOM, 1))
    ids = parts.ids
    said = parts.ctl(1, 'rm', ids[2])
    if ids[2] not in said or ids[1] not in said or 'flatten' not in said:
        raise Failed(f'rm of a parent says: {said}')
    parts.ctl(1, 'rm', ids[3], ids[2])
    expect('checkpoints', parts.left(), sorted(ids))
    parts.ctl(0, 'pin', ids[1])
    gone = parts.device.json('rm', '--container', 'chain')
    expect('removed by rm --container', [r['id'] for r in gone['removed']], [ids[0]])
    expect('kept', (gone['pinned'], gone['parents']), (1, 2))
    parts.ctl(0, 'unpin', ids[1])
    parts.ctl(0, 'retain', 'chain', '--keep', '1')
    parts.ctl(0, 'gc')
    expect('checkpoints after gc', parts.left(), sorted(ids[1:]))
    parts.restore_fails = parts.chain.try_restore(parts.handle)
    parts.restore_fails.must_fail('deleted', 'znsctl rm')
    gone = parts.device.json('rm', ids[3], ids[1], ids[2])
    expect('removed, children first', [r['id'] for r in gone['removed']], ids[1:])


@case
def retained(scene):
    """retention keeps the parents of the newest dump, and takes the older chain as a whole."""
    parts = Parts(scene(ROOM, 1))
    first = list(parts.ids)
    parts.ctl(0, 'retain', 'chain', '--keep', '1')
    parts.ids = []
    shutil.rmtree(parts.handle)
    parts.import_all()
    expect('checkpoints', parts.left(), sorted(parts.ids))
    if set(first) & set(parts.left()):
        raise Failed('a part of the older chain is left')
    parts.restore()


@case
def flattened(scene):
    """flatten: the checkpoint keeps its id and has no parent; its handle and its children stay valid; then its parents can be removed."""
    parts = Parts(scene(ROOM, 1))
    ids = parts.ids
    said = parts.ctl(1, 'flatten', ids[3])
    if 'whole already' not in said:
        raise Failed(f'flatten of a full one says: {said}')
    parts.device.json('flatten', ids[1])
    expect('parents', [parts.device.json('show', i)['parent'] for i in ids], [ids[1], None, ids[3], None])
    parts.ctl(0, 'rm', ids[2], ids[3])
    parts.restore()
    parts.device.json('flatten', str(parts.handle))
    parts.ctl(0, 'rm', ids[1])
    parts.restore()
    parts.device.json('verify', '--all')
    expect('fsck', parts.device.ctl('fsck').returncode, 0)


@case
def flattened_as_told(scene):
    """flatten reports its progress and keeps to the broker's rate; its weight is the owner's, or one of its own."""
    parts = Parts(scene(ROOM, 48), size=48)
    conf = Path(parts.device.env['ZNS_CONFIG']) / 'tenants.conf'
    conf.write_text(f'name * weight=400 max-weight=500 max-qos={CAP}\n')
    said = parts.ctl(2, 'flatten', parts.ids[0], '--weight', '99')
    if 'must be owner, or a number from 100 to 10000' not in said:
        raise Failed(f'a weight of 99 says: {said}')
    for ident, args, weight in ((parts.ids[1], [], 400), (parts.ids[0], ['--weight', '900'], 900)):
        seen, begun = [], time.monotonic()
        work = subprocess.Popen([ztlib.znsctl_of(parts.device.cfg, parts.device.env), 'flatten', '--dev', parts.device.spec, ident, *args],
                                env=parts.device.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while work.poll() is None:
            seen += [x for x in parts.device.status()['leases'] if x['kind'] == 'dump']
            time.sleep(0.05)
        took = time.monotonic() - begun
        expect('exit', work.returncode, 0)
        expect('weight and limit in status', {(x['weight'], x['limit_mibps']) for x in seen}, {(weight, CAP)})
        if not any(x['total'] and 0 < x['bytes'] < x['total'] for x in seen):
            raise Failed(f'status showed no progress: {seen[-1:]}')
        written = parts.device.json('show', ident)['bytes']
        if took < 0.98 * written / (CAP << 20):
            raise Failed(f'{written} bytes in {took:.2f} s, with {CAP} MiB/s at most')
    conf.unlink()
    parts.restore()


@case
def rebuilt(scene):
    """a catalogue that is lost after a flatten: the rebuilt one has the flattened checkpoint without parents, and the others as a chain."""
    scene = scene(ROOM, 1)
    parts = Parts(scene)
    parts.device.json('flatten', parts.ids[1])
    scene.end_broker()
    parts.ctl(0, 'fsck', '--rebuild', '--force', '--map', 'i % 4', '--zone-write-bw', '200')
    listed = {c['id']: c['parent'] for c in parts.device.checkpoints()}
    expect('parents', [listed[i] for i in parts.ids], [parts.ids[1], None, parts.ids[3], None])
    parts.restore()


def use_key(scene):
    """Makes the device encrypt from now on; returns the new key's file."""
    key = scene.dir / 'key'
    scene.device.json('key', 'create', str(key))
    scene.device.json('key', 'use', f'file:{key}', scene.device.spec)
    return key


@case
def encrypted(scene):
    """every checkpoint of a chain has a key of its own; a flattened one gets a new one."""
    scene = scene(ROOM, 1)
    use_key(scene)
    parts = Parts(scene)
    expect('encrypted', [c['encrypted'] for c in parts.device.checkpoints()], [True] * LEVELS)
    parts.restore()
    parts.device.json('flatten', parts.ids[1])
    parts.ctl(0, 'verify', parts.ids[0])
    parts.restore()
    parts.device.json('flatten', parts.ids[0])
    parts.device.remove(*parts.ids[1:])
    parts.restore()
    parts.ctl(0, 'verify', parts.ids[0])


def copy_chain(scene, key=None):
    """A chain is copied to a store on a disk, with its handles; then the drive is unregistered."""
    parts = Parts(scene)
    store = f'file:{scene.dir}/store'
    scene.device.json('create', store, '--size', '256M', '--rate', '500', *(['--encrypt', f'file:{key}'] if key else []))
    expect('copied', json.loads(parts.ctl(0, 'copy', '--switch', scene.device.spec, store, '--json'))['copied'], LEVELS)
    expect('devices', [d['path'] for d in scene.device.json('status', '--all')['devices']], [store])
    scene.device.spec = store
    expect('parents', [c['parent'] for c in scene.device.checkpoints()], [None, *reversed(parts.ids[1:])])
    parts.ctl(0, 'verify', parts.ids[0])
    parts.restore()


@case
def copied(scene):
    """copy: a chain comes to another device under its ids, and restores from there."""
    copy_chain(scene(ROOM, 1))


@case
def copied_encrypted(scene):
    """copy: an encrypted chain stays encrypted."""
    scene = scene(ROOM, 1)
    copy_chain(scene, use_key(scene))


@case
def received(scene):
    """receive: a checkpoint from a stranger's stream builds on checkpoints from such streams only. On one that rules
    count it would keep that one for ever."""
    parts = Parts(scene(ROOM, 1))
    scene = parts.scene

    def receive(code, store, ids, *args):
        whole = subprocess.run([scene.cfg.znsctl, 'send', scene.device.spec, *ids], env=scene.device.env, capture_output=True, check=True)
        done = subprocess.run([scene.cfg.znsctl, 'receive', store, *args, '--json'], env=scene.device.env, input=whole.stdout,
                              capture_output=True)
        said = json.loads(done.stdout)
        expect(f'receive {args}: {done.stderr.decode()} {said}', done.returncode, code)
        return said

    own, strange = (f'file:{scene.dir}/{name}' for name in ('own', 'strange'))
    for store in own, strange:
        scene.device.json('create', store, '--size', '256M', '--rate', '500')
    first = parts.ids[-1]
    for store, args, code in (own, ['--trusted'], 1), (strange, [], 0):
        expect('the full one', receive(0, store, [first], *args)['received'], 1)
        said = receive(code, store, [])
        expect('the others', (said['received'], said['refused']), (0, LEVELS - 1) if code else (LEVELS - 1, 0))
        if code and f'built on checkpoint {first}, which no rule could remove' not in said['why']:
            raise Failed(said['why'])
    expect('as it is trusted', receive(0, own, [], '--trusted')['received'], LEVELS - 1)


@case
def exported(scene):
    """export as a chain of plain directories, as one flat one, and both as archives; plain CRIU restores each."""
    parts = Parts(scene(ROOM, 1))
    plain = plain_criu(parts.chain.cfg)
    for flat in ([], ['--flatten']):
        for suffix in ('', '.tar'):
            target = parts.chain.dir / f'target{"-flat" if flat else ""}{suffix}'
            parts.device.json('export', parts.ids[0], str(target), *flat)
            if suffix:
                with tarfile.open(target) as tar:
                    target = Path(str(target)[:-4] + '-unpacked')
                    tar.extractall(target)
            expect('a link to the parent', (target / 'parent').is_symlink(), not flat)
            parts.restore(target, cfg=plain)
    print(f'     restored with {plain.criu}', flush=True)
    again = parts.device.json('import', str(parts.chain.dir / 'target-flat'), '--container', 'again')
    expect('parent', parts.device.json('show', again['id'])['parent'], None)


@case
def refused(scene):
    """parts that make no chain: each is refused in one line, and nothing changes."""
    scene = scene(ROOM, 1)
    parts = Parts(scene, imported=False)
    before = scene.ids()
    said = parts.ctl(1, 'import', str(parts.dirs[0]))
    if 'import its parent first' not in said:
        raise Failed(f'import of an incremental dump says: {said}')
    parts.ctl(1, 'import', str(parts.dirs[0]), '--parent', '01234567-0123-4123-8123-0123456789ab')
    parts.ctl(1, 'import', str(parts.dirs[0]), '--parent', 'nonsense')
    scene.dump(['--zns-parent', 'nonsense']).must_fail('--zns-parent.*no checkpoint nonsense')
    scene.dump(['--zns-parent', '01234567-0123-4123-8123-0123456789ab']).must_fail('no such parent')
    scene.dump(['--prev-images-dir', str(parts.dirs[0])]).must_fail('plain image directory')
    scene.unharmed()
    expect('checkpoints', scene.ids(), before)
    parts.import_all()
    other = scene.dir / 'plain'
    other.mkdir()
    done = parts.chain.cfg
    args = ['dump', '-t', str(scene.task.pid), '-D', str(other), '--prev-images-dir', str(parts.handle), '-o', 'log',
            '-v4']
    code = ztlib.run_criu(done, args, scene.dir / 'plain.log', scene.device.env).returncode
    if not code or 'plain one cannot follow' not in (scene.dir / 'plain.log.stderr').read_text() + \
            ((other / 'log').read_text() if (other / 'log').exists() else ''):
        raise Failed(f'a plain dump on a parent on zones: exit {code}')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'chains', CASES))
