# SPDX-License-Identifier: GPL-2.0-only
"""Cases of disk.py: the file systems and block devices that a store lies on."""
import errno
import os
import re
import shutil
import subprocess

from tools import many_dumps, run_ctl
from ztlib import Failed, Skipped, wait_until
from ztscene import case_of, expect

CASES = {}
case = case_of(CASES)


def on_disk(scene, size='96M', name='store', *options):
    """The scene's device is such a store from now on."""
    scene.device.needs_emulator('makes a store of its own')
    scene.device.json('unregister', scene.device.spec)
    scene.device.spec = f'file:{scene.dir}/{name}'
    scene.device.json('create', scene.device.spec, '--size', size, '--rate', '500', *options)
    scene.remember()
    return scene


def need_loop_devices():
    try:
        os.close(os.open('/dev/loop-control', os.O_RDWR))
    except OSError:
        raise Skipped('no loop devices here')


class Mounted:
    """A file system in a file of the scene's directory, until the `with` block ends."""

    def __init__(self, scene, kind, size, *options):
        self.scene, self.at, self.image = scene, scene.dir / 'mnt', scene.dir / 'disk'
        self.kind = kind
        need_loop_devices()
        if not shutil.which(f'mkfs.{kind}'):
            raise Skipped(f'no mkfs.{kind} here')
        self.image.touch()
        os.truncate(self.image, size)
        self.run(f'mkfs.{kind}', '-q', *options, self.image)

    def run(self, *args):
        done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if 'unknown filesystem type' in done.stderr:
            raise Skipped(f'no {self.kind} here')
        if done.returncode:
            raise Failed(f'{args[0]}: {done.stderr.strip()}')
        return done.stdout

    def __enter__(self):
        self.at.mkdir()
        self.run('mount', '-o', 'loop', self.image, self.at)
        return self

    def __exit__(self, *_):
        try:
            self.scene.end_broker()
        finally:
            self.run('umount', '-l', self.at)

    def free(self):
        self.run('sync', '-f', self.at)     # btrfs gives blocks back with its next transaction
        fs = os.statvfs(self.at)
        return fs.f_bavail * fs.f_frsize

    def fill(self):
        """Somebody else takes all that is left."""
        with open(self.at / 'ballast', 'wb') as f:
            step = 64 << 20
            while step >= 4096:
                try:
                    os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, step)
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise
                    step //= 16
            os.fsync(f.fileno())


def blocks(scene):
    return os.stat(scene.device.spec[5:]).st_blocks * 512


def sound(scene, ids):
    """A new broker lists these checkpoints, and all of their data are right."""
    scene.end_broker()
    expect('listed', scene.ids(), sorted(ids))
    run_ctl(scene, 0, 'verify', '--all')
    expect('problems', scene.device.json('fsck')['problems'], [])


def filled(scene, kind, size, *options):
    """On a full file system a dump fails with one line and loses nothing; rm gives room, which the next dump takes."""
    scene = scene(size=4)
    with Mounted(scene, kind, size, *options) as fs:
        large = f'file:{fs.at}/large'
        said = run_ctl(scene, 0, 'create', large, '--size', '1G', '--rate', '500')
        if 'LIMITED: the file system below has room for' not in said:
            raise Failed(f'create: {said}')
        run_ctl(scene, 0, 'unregister', large)
        (fs.at / 'large').unlink()
        on_disk(scene, '96M', 'mnt/store')
        if kind == 'btrfs' and 'C' not in fs.run('lsattr', fs.at / 'store').split()[0]:
            raise Failed('it is not marked nodatacow')
        said = run_ctl(scene, 0, 'resize', '1T', '--dry-run')
        if 'LIMITED: the file system below has room for' not in said:
            raise Failed(f'resize --dry-run: {said}')
        kept, images = scene.new_task(4), scene.dir / 'kept'
        images.mkdir()
        ids = [scene.good_dump(task=kept, images=images), *many_dumps(scene, 1)]
        fs.fill()
        scene.remember()
        scene.failed_dump('no space left on the file system below')
        sound(scene, ids)
        said = run_ctl(scene, 0, 'status')
        if 'LIMITED       the file system below has room for' not in said:
            raise Failed(f'status: {said}')
        said = run_ctl(scene, 0, 'resize', '128M')
        if 'LIMITED: the file system below has room for' not in said:
            raise Failed(f'resize: {said}')
        run_ctl(scene, 0, 'rm', ids.pop())
        if not wait_until(lambda: fs.free() >= 4 << 20, 20):
            raise Failed(f'rm gave back no blocks: {fs.free()} bytes are free')
        ids += many_dumps(scene, 1)
        sound(scene, ids)
        scene.good_restore(task=kept, images=images)


@case
def on_ext4(scene):
    """A store in a sparse file on ext4 that somebody else fills."""
    filled(scene, 'ext4', 128 << 20, '-F', '-m', '0')


@case
def on_xfs(scene):
    """A store in a sparse file on xfs that somebody else fills."""
    filled(scene, 'xfs', 320 << 20)


@case
def on_btrfs(scene):
    """A store in a sparse file on btrfs that somebody else fills; it is nodatacow there."""
    filled(scene, 'btrfs', 256 << 20, '-m', 'single')


def preallocated(scene, kind, size, *options):
    """With --preallocate dumps do not notice that the file system is full, and removals keep the store's blocks."""
    scene = scene(size=4)
    with Mounted(scene, kind, size, *options) as fs:
        on_disk(scene, '64M', 'mnt/store', '--preallocate')
        fs.fill()
        had = blocks(scene)
        for _ in range(2):
            run_ctl(scene, 0, 'rm', *many_dumps(scene, 2))
        tree = 64 << 10     # of ext4's extents: its blocks count as the file's
        if not had <= blocks(scene) <= had + tree:
            raise Failed(f'it has {blocks(scene)} bytes of blocks, not {had}')
        if 'LIMITED' in run_ctl(scene, 0, 'status'):
            raise Failed('it says LIMITED')
        many_dumps(scene, 1)
        sound(scene, scene.ids())


@case
def preallocated_ext4(scene):
    """--preallocate on ext4."""
    preallocated(scene, 'ext4', 128 << 20, '-F', '-m', '0')


@case.soak('deterministic, but ext4 shows the same')
def preallocated_xfs(scene):
    """--preallocate on xfs."""
    preallocated(scene, 'xfs', 320 << 20)


@case.soak('deterministic, but ext4 shows the same')
def preallocated_btrfs(scene):
    """--preallocate on btrfs."""
    preallocated(scene, 'btrfs', 256 << 20, '-m', 'single')


def shared_blocks(scene, kind, size, options, share):
    """Each block of the store wants a new one at its next write: full, all fails with one line; with some room all goes on."""
    scene = scene(size=4)
    with Mounted(scene, kind, size, *options) as fs:
        on_disk(scene, '64M', 'mnt/store')
        kept, images = scene.new_task(4), scene.dir / 'kept'
        images.mkdir()
        ids = [scene.good_dump(task=kept, images=images)]
        scene.end_broker()
        fs.run(*share(fs.at))
        fs.fill()
        for args in (('ls',), ('rm', *ids), ('fsck',), ('resize', '80M'), ('register', scene.device.spec)):
            said = run_ctl(scene, 1, *args)
            if not re.search('no space left on the file system below .* snapshot', said):
                raise Failed(f'{args[0]}: {said}')
        scene.dump().must_fail('no space left on the file system below')
        (fs.at / 'ballast').unlink()
        fs.free()
        sound(scene, ids)
        scene.good_restore(task=kept, images=images)


@case
def reflink(scene):
    """A store on xfs that was copied by reflink."""
    shared_blocks(scene, 'xfs', 320 << 20, (), lambda at: ('cp', '--reflink=always', at / 'store', at / 'copy'))


@case
def snapshot(scene):
    """A store on btrfs that has a snapshot."""
    shared_blocks(scene, 'btrfs', 256 << 20, ('-m', 'single'), lambda at: ('btrfs', '-q', 'subvolume', 'snapshot', at, at / 'copy'))


@case
def block_device(scene):
    """A store takes a block device whole, grows with it, and nobody else can open it while a broker lives."""
    scene = scene(size=4)
    need_loop_devices()
    image = scene.dir / 'disk'
    image.touch()
    os.truncate(image, 80 << 20)
    node = subprocess.run(['losetup', '--show', '-f', image], capture_output=True, text=True, check=True).stdout.strip()
    try:
        on_node(scene, image, node)
    finally:
        try:
            scene.end_broker()
        finally:
            subprocess.run(['losetup', '-d', node], check=True)


def is_free(node):
    """Can somebody else open it for himself alone, as mkfs and mount do?"""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_EXCL))
        return True
    except OSError as e:
        expect('error', e.errno, errno.EBUSY)
        return False


def on_node(scene, image, node):
    scene.device.json('unregister', scene.device.spec)
    scene.device.spec = f'file:{node}'
    scene.device.json('create', scene.device.spec, '--rate', '500')
    scene.remember()
    kept = scene.good_dump()
    expect('free for others', is_free(node), False)
    before = scene.device.status()['geometry']['zones']
    os.truncate(image, 96 << 20)
    subprocess.run(['losetup', '-c', node], check=True)
    expect('zones gained', scene.device.json('resize')['zones'] - before, 16)
    said = run_ctl(scene, 1, 'resize', '128M')
    if 'needs 128' not in said:
        raise Failed(f'larger than the device: {said}')
    sound(scene, [kept])
    scene.good_restore()
    scene.end_broker()
    expect('free for others without a broker', is_free(node), True)
    said = run_ctl(scene, 1, 'create', scene.device.spec)
    if 'holds a store already' not in said:
        raise Failed(f'a second one: {said}')
