# SPDX-License-Identifier: GPL-2.0-only
"""
A user's directories that znsctl, run by root, imports from or exports to.

Whatever the user puts there, root's files must not be read for him, written, removed or covered.
"""
import contextlib
import os
import shutil
import subprocess

import mallory
import ztlib
from mallory import SECRET, UID, Vault, no_secret
from tally import tried
from ztlib import Failed
from ztscene import FAST, case_of

CASES = {}
case = case_of(CASES)
INVENTORY = (0x58313116).to_bytes(4, 'little') + bytes(60)
IMAGE = (0x54564319).to_bytes(4, 'little')


def plain(directory, big=1 << 20):
    """An image directory that import accepts; it belongs to him."""
    mallory.own(directory)
    for name, data in (('inventory.img', INVENTORY), ('pstree.img', IMAGE + bytes(100)), ('small.img', IMAGE + bytes(1000)),
                       ('core-1.img', IMAGE + bytes(3000)), ('pages-1.img', bytes(big))):
        (directory / name).write_bytes(data)
        os.chown(directory / name, UID, UID)
    return directory


def user_scene(scene):
    scene = scene(FAST, size=1)
    scene.home = mallory.own(scene.dir / 'home')
    scene.vault = Vault(scene.dir / 'vault')
    scene.images = plain(scene.home / 'images')
    return scene


def ctl(scene, *args, env=None):
    """znsctl as root; it must end."""
    return subprocess.run([scene.cfg.znsctl, *map(str, args)], env=env or scene.device.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors='replace', timeout=scene.cfg.timeout)


def refused(scene, what, pattern, *args):
    """Checks that the command fails with one line that says why, and changes nothing."""
    before = scene.ids()
    done = ctl(scene, *args)
    said = done.stderr.strip()
    if done.returncode != 1:
        raise Failed(f'{what}: exit {done.returncode}: {said[:200]}')
    if said.count('\n') or pattern not in said or any(c < ' ' for c in said):
        raise Failed(f'{what}: it says: {said[:300]!r}')
    if scene.ids() != before:
        raise Failed(f'{what}: a checkpoint was made')
    scene.vault.untouched(what)
    no_secret(scene.home, what)


def take_out(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


# ---- import --------------------------------------------------------------------------------------------

def put(scene, kind, at):
    take_out(at)
    if kind == 'FIFO':
        mallory.does(lambda: os.mkfifo(at))
    elif kind == 'directory':
        mallory.does(lambda: os.mkdir(at))
    elif kind == 'socket':
        mallory.does(lambda: os.mknod(at, 0o140600))
    elif kind == 'device':
        os.mknod(at, 0o20666, os.makedev(1, 5))
    elif kind == 'hard link':
        os.link(scene.vault.file, at)
    elif kind == 'huge':
        mallory.does(lambda: (at.touch(), os.truncate(at, 1 << 40)))
    else:
        mallory.does(lambda: os.symlink({'link': scene.vault.file, 'itself': at.name}.get(kind, kind), at))


WRONG = {'FIFO': 'no regular file', 'directory': 'is a directory', 'socket': 'no regular file', 'device': 'no regular file',
         'hard link': 'hard link', 'link': 'is a link', 'itself': 'is a link', '/none': 'is a link', '/dev/zero': 'is a link'}


@case
def import_wrong_kinds(scene):
    """An image that is a link, a FIFO, a device, a hard link to root's, huge or leased: import refuses it in one line."""
    scene = user_scene(scene)
    out = scene.home / 'handle'
    for name in ('inventory.img', 'small.img', 'pages-1.img'):
        good = (scene.images / name).read_bytes()
        for kind, pattern in {**WRONG, 'huge': 'no space'}.items():
            put(scene, kind, scene.images / name)
            if kind == 'huge' and name == 'inventory.img':
                pattern = 'no CRIU image'
            refused(scene, f'{name} is {kind}', pattern, 'import', scene.images, '--handle', out)
            if out.exists():
                raise Failed(f'{name} is {kind}: the handle\'s directory stays')
            take_out(scene.images / name)
            tried(f'import: {name} is {kind}')
        (scene.images / name).write_bytes(good)
        os.chown(scene.images / name, UID, UID)
        with mallory.holds(lambda n=name: mallory.leased(scene.images / n)):
            refused(scene, f'{name} is leased', 'lease', 'import', scene.images)
        tried(f'import: {name} is leased')
    for kind in ('FIFO', '/none', 'itself', 'socket', '/dev/zero'):
        put(scene, kind, scene.images / 'parent')
        refused(scene, f'parent is {kind}', 'incremental', 'import', scene.images)
        take_out(scene.images / 'parent')
        tried(f'import: parent is {kind}')


@case
def import_names(scene):
    """Images with odd names, or too many bytes in all."""
    scene = user_scene(scene)
    for name in (b'a\nb.img', b'\x1b[2J.img', b'\xff\xfe.img', b'x\r.img', b'x\x7f.img', b'\xc3\xa9.img'):
        at = os.path.join(os.fsencode(scene.images), name)
        with open(at, 'wb') as f:
            f.write(IMAGE)
        refused(scene, name, 'plain ASCII', 'import', scene.images)
        os.unlink(at)
        tried(f'import: a name {name!r}')
    for name in ('a b"c\'d\\.img', '--handle.img', '...img', '%s%n.img', '$(reboot).img', 'n' * 200 + '.img'):
        (scene.images / name).write_bytes(IMAGE)
        os.chown(scene.images / name, UID, UID)
        ident = scene.device.json('import', str(scene.images))['id']
        if name not in {i['name'] for i in scene.device.json('show', ident)['images']}:
            raise Failed(f'{name} is not in the checkpoint')
        scene.device.remove(ident)
        (scene.images / name).unlink()
        tried(f'import: a name {name!r}')
    for n in range(3):
        with open(scene.images / f'f{n}.img', 'wb') as f:
            f.truncate(1 << 40)
        os.chown(scene.images / f'f{n}.img', UID, UID)
    refused(scene, 'together too much', 'no space', 'import', scene.images)
    tried('import: images of 3 TiB')


@case
def paths(scene):
    """A path that leads over one of his links, in the middle or at the end, is not followed by import, export, --handle or mount."""
    scene = user_scene(scene)
    ident = scene.device.json('import', str(scene.images))['id']
    root_images = plain(scene.dir / 'of-root')
    os.chown(root_images, 0, 0)
    empty = scene.dir / 'empty'
    empty.mkdir()
    scene.vault.before = scene.vault._look()
    mallory.does(lambda: (os.symlink(root_images, scene.home / 'to-images'), os.symlink(scene.dir, scene.home / 'to-dir'),
                          os.symlink(scene.vault.dir, scene.home / 'to-vault'), os.symlink('/none', scene.home / 'dangling'),
                          os.symlink(empty, scene.home / 'to-empty'), os.mkfifo(scene.home / 'fifo'),
                          (scene.home / 'file').write_bytes(b'x'), os.symlink('loop', scene.home / 'loop'),
                          os.symlink(scene.vault.dir / 'new', scene.home / 'to-new')))
    h = scene.home
    for source in ('to-images', 'to-dir/of-root', 'loop'):
        refused(scene, source, 'is a link of user', 'import', h / source)
        tried(f'import from {source}')
    for source in ('fifo', 'file', 'dangling'):
        refused(scene, source, '', 'import', h / source)
        tried(f'import from {source}')
    for target, pattern in (('to-vault', 'link or no directory'), ('to-empty', 'link or no directory'), ('to-vault/new', 'is a link of user'),
                            ('to-dir/new', 'is a link of user'), ('dangling', 'link or no directory'), ('to-new', 'link or no directory'),
                            ('fifo', 'link or no directory'), ('file', 'link or no directory'), ('loop', 'link or no directory'),
                            ('loop/x', 'is a link of user')):
        refused(scene, target, pattern, 'export', ident, h / target)
        refused(scene, target, pattern, 'import', scene.images, '--handle', h / target)
        if any(empty.iterdir()):
            raise Failed(f'{target}: something was written into a directory of root\'s')
        tried(f'export to {target}')
        tried(f'import --handle {target}')
    for target in ('t.tar', 't.tgz', 't.tar.gz'):
        for kind in ('link', 'FIFO', 'directory', 'socket', '/none', str(scene.vault.dir / 'new'), 'itself'):
            for at in (h / target, h / f'{target}.part'):
                put(scene, kind, at)
                refused(scene, f'{at.name} is {kind}', 'exists' if at.name == target else 'is there', 'export', ident, at.with_name(target))
                take_out(at)
                tried(f'export to {at.name}, {kind if "/" not in kind[1:] else "a link into root"}')
        refused(scene, target, 'is a link of user', 'export', ident, h / 'to-vault' / target)
        tried(f'export to to-vault/{target}')


@case
def import_raced(scene):
    """Images exchanged for links to root's file while they are imported, at the worst moments and in a race: that file is never copied."""
    scene = user_scene(scene)
    out = scene.home / 'out'
    mallory.does(lambda: os.symlink(scene.vault.file, scene.home / 'swap'))
    for name in ('inventory.img', 'small.img', 'core-1.img'):
        for nth in (1, 2, 3, 4):
            env = mallory.worst(scene.dir, scene.device.env, name, nth, scene.images / name, scene.home / 'swap')
            done = ctl(scene, 'import', scene.images, '--handle', out, env=env)
            after_import(scene, f'{name} at opening {nth}', done, out)
            if (scene.images / name).is_symlink():
                mallory.does(lambda n=name: mallory.exchange(scene.images / n, scene.home / 'swap'))
            tried(f'import, at the worst moment: {name}, opening {nth}')
    swapped = ('inventory.img', 'small.img')
    mallory.does(lambda: os.symlink(scene.vault.file, scene.home / 'swap1'))
    for n in range(12):
        with contextlib.ExitStack() as stack:
            for name, tmp in zip(swapped, ('swap', 'swap1')):
                stack.enter_context(mallory.keeps(lambda a=scene.images / name, b=scene.home / tmp: mallory.exchange(a, b)))
            done = ctl(scene, 'import', scene.images, '--handle', out)
        after_import(scene, f'round {n}', done, out)
        tried(f'import, raced: round {n}')


def after_import(scene, what, done, out):
    if done.returncode not in (0, 1) or done.stderr.count('\n') > 1:
        raise Failed(f'{what}: exit {done.returncode}: {done.stderr[:300]}')
    scene.vault.untouched(what)
    no_secret(scene.home, what)
    if out.exists():
        for p in out.iterdir():
            if SECRET in p.read_bytes() or p.lstat().st_mode != 0o100600:
                raise Failed(f'{what}: {p.name} has root\'s file, or mode {p.lstat().st_mode:o}')
        shutil.rmtree(out)
    scene.device.remove(*scene.ids())


@case
def import_changes(scene):
    """Images that grow, shrink or are written while they are imported: refused, or imported with their listed size."""
    scene = user_scene(scene)
    at = scene.images / 'pages-1.img'

    def write(size):
        def again():
            with open(at, 'r+b') as f:
                f.truncate(size)
                f.write(os.urandom(1000))
                f.truncate(1 << 20)
        return again
    for what, func in (('grows', write(8 << 20)), ('shrinks', write(100)), ('is written', write(1 << 20))):
        for n in range(3):
            with mallory.keeps(func):
                done = ctl(scene, 'import', scene.images)
            after_import(scene, what, done, scene.home / 'none')
            tried(f'import: an image {what}, round {n}')
            write(1 << 20)()


# ---- export --------------------------------------------------------------------------------------------

def chain(scene, levels=4):
    """A checkpoint with parents; the newest one's id, and all."""
    ids = [scene.device.json('import', str(scene.images))['id']]
    for _ in range(levels - 1):
        ids.append(scene.device.json('import', str(scene.images), '--parent', ids[-1])['id'])
    return ids[-1], ids


def after_export(scene, what, done, target):
    if done.returncode not in (0, 1) or done.stderr.count('\n') > 1:
        raise Failed(f'{what}: exit {done.returncode}: {done.stderr[:300]}')
    scene.vault.untouched(what)
    shutil.rmtree(target)
    mallory.own(target)


@case
def export_raced(scene):
    """parents/ and its contents are exchanged for links to root's directory while a chain is exported: nothing is written there."""
    scene = user_scene(scene)
    newest, ids = chain(scene)
    target = mallory.own(scene.home / 'target')
    # files with the same names in root's directory must not be removed when the export fails
    for ident in ids:
        (scene.vault.dir / ident).mkdir()
        (scene.vault.dir / ident / 'inventory.img').write_bytes(b'root')
    scene.vault.before = scene.vault._look()

    def link_parents():
        os.rename(target / 'parents', target / 'old')
        os.symlink(scene.vault.dir, target / 'parents')
    for n in range(12):
        with mallory.keeps(link_parents):
            done = ctl(scene, 'export', newest, target)
        after_export(scene, f'parents swapped, round {n}', done, target)
        tried(f'export, raced: parents/ is a link, round {n}')
    for ident in ids[:-1]:
        def link_level(i=ident):
            os.rename(target / 'parents' / i, target / 'old')
            os.symlink(scene.vault.dir / i, target / 'parents' / i)
        with mallory.keeps(link_level):     # parents/ belongs to root, so he cannot do that
            done = ctl(scene, 'export', newest, target)
        after_export(scene, 'a level swapped', done, target)
        tried('export, raced: a level is a link')
    mallory.does(lambda: os.symlink(scene.vault.dir, scene.home / 'swap'))
    for nth in (1, 2, 3):       # the target itself
        env = mallory.worst(scene.dir, scene.device.env, 'target', nth, target, scene.home / 'swap')
        done = ctl(scene, 'export', newest, target, env=env)
        if target.is_symlink():
            mallory.does(lambda: mallory.exchange(target, scene.home / 'swap'))
        after_export(scene, f'target swapped at opening {nth}', done, target)
        tried(f'export, at the worst moment: the target is a link, opening {nth}')


@case
def export_planted(scene):
    """He creates files with the names of images and parents/ first: the export is refused, and nothing of root's is written or removed."""
    scene = user_scene(scene)
    newest, ids = chain(scene, 2)
    target = mallory.own(scene.home / 'target')
    for name in ('inventory.img', 'pstree.img', 'pages-1.img', 'parents', 'parent'):
        for kind in ('link', 'FIFO', 'directory', str(scene.vault.dir), str(scene.vault.dir / 'new')):
            put(scene, kind, target / name)
            refused(scene, f'{name} is {kind}', 'not empty', 'export', newest, target)
            take_out(target / name)

            def plant(n=name, k=kind):
                at = target / n
                if k == 'FIFO':
                    os.mkfifo(at)
                elif k == 'directory':
                    os.mkdir(at)
                else:
                    os.symlink(scene.vault.file if k == 'link' else k, at)
            with mallory.keeps(plant):
                done = ctl(scene, 'export', newest, target)
            after_export(scene, f'{name} is {kind}', done, target)
            tried(f'export: {name} is {"a link into root" if "/" in kind else kind}{" to a directory" if kind.endswith("vault") else ""}')
