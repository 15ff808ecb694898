# SPDX-License-Identifier: GPL-2.0-only
"""
Image directories whose owner changes them during a dump or a restore.

The owner is a user without privileges; criu runs as root. Whatever he puts there: the task runs on or the restore
ends, within a deadline, and no file of root's is read, written or removed for him.
"""
import fcntl
import os
import shutil
import socket
import subprocess
import threading
import time

import mallory
import ztlib
from mallory import UID, Vault
from tally import tried
from ztlib import Failed, HANDLE, alive, wait_until
from ztscene import FAST, case_of

CASES = {}
case = case_of(CASES)
DEADLINE = 40       # a generous deadline: what must not happen takes 45 s (a lease), or for ever
BESIDE = 'notes.txt'


def user_scene(scene, size=4):
    scene = scene(FAST, size=size)
    mallory.own(scene.images)
    scene.vault = Vault(scene.dir / 'vault')
    return scene


def fresh(scene):
    """An empty image directory that belongs to him."""
    shutil.rmtree(scene.images)
    mallory.own(scene.images)


def script(scene, name, *lines):
    path = scene.dir / name
    path.write_text('#!/bin/bash\n' + '\n'.join(lines) + '\n')
    path.chmod(0o755)
    return path


def act(scene, *lines, user='exec setpriv --reuid {0} --regid {0} --clear-groups'.format(UID)):
    """criu's options that run this command, as that user in the image directory, at the moment before tasks are frozen."""
    his = script(scene, 'his.sh', *lines)
    return ['--action-script', str(script(scene, 'act.sh', '[ "$CRTOOLS_SCRIPT_ACTION" = pre-dump ] || exit 0',
                                          'cd "$CRTOOLS_IMAGE_DIR" || exit 1', f'{user} {his}'))]


def act_as_root(scene, *lines):
    """The same with more rights, for what a kernel without protected_hardlinks would let him do."""
    return act(scene, *lines, user='exec')


def in_time(what, func, *args, **named):
    start = time.monotonic()
    done = func(*args, **named)
    if time.monotonic() - start > DEADLINE:
        raise Failed(f'{what}: it took {time.monotonic() - start:.0f} s')
    return done


def back_again(scene, checkpoint):
    """Makes the dumped task run again, for the next input."""
    scene.good_restore()
    scene.device.remove(checkpoint)
    fresh(scene)
    scene.store_as_before()


# ---- dump ----------------------------------------------------------------------------------------------

REFUSED = {
    'a sparse file of 64 GiB': ('truncate -s 64G big.img', 'MiB in all'),
    'one of a little more than is allowed': ('truncate -s 67108865 big.img', 'MiB in all'),
    'many that are too much together': ('for i in 1 2 3 4 5; do truncate -s 15M f$i.img; done', 'MiB in all'),
    'sizes whose sum overflows': ('for i in 1 2 3; do truncate -s 15T f$i.img 2>/dev/null || truncate -s 1T f$i.img; done', 'MiB in all'),
    '5000 files': ('touch $(seq 1 5000)', 'More than 4096 files'),
    'a name with a newline': ("touch $'a\\nError (zns): forged line.img'", 'plain ASCII'),
    'a name with an escape': ("touch $'\\e[2Jx.img'", 'plain ASCII'),
    'a name that is no UTF-8': ("touch $'\\xff\\xfe.img'", 'plain ASCII'),
    'a name with a carriage return': ("touch $'x\\r.img'", 'plain ASCII'),
    'a name with DEL': ("touch $'x\\x7f.img'", 'plain ASCII'),
    'a name of 64 characters': ('touch ' + 'n' * 64, 'too long a name'),
    'a name of 255 characters': ('touch ' + 'n' * 255, 'too long a name'),
}

AS_ROOT_REFUSED = {
    'a hard link to a file of root\'s': ('ln ../vault/secret.img x.img', 'hard link'),
    'a hard link named as an image': ('ln ../vault/secret.img zz-99.img', 'hard link'),
}

# names that criu does not read, so it need not refuse them
IGNORED = {
    'a FIFO': 'mkfifo x.img',
    'a FIFO that somebody waits at': 'mkfifo x.img; cat x.img >/dev/null & disown',
    'a link to a file of root\'s': 'ln -s ../vault/secret.img x.img',
    'a link to /etc/shadow': 'ln -s /etc/shadow x.img',
    'a dangling link': 'ln -s /none x.img',
    'a link to itself': 'ln -s x.img x.img',
    'a link to a FIFO': 'mkfifo f; ln -s f x.img',
    'a link to /dev/zero': 'ln -s /dev/zero x.img',
    'a directory': 'mkdir x.img',
    'a directory of 200 levels': 'mkdir -p $(printf "d/%.0s" {1..200}); true',
    'a handle that is a FIFO': 'mkfifo zns-handle.img',
    'a handle that is a link to root\'s file': 'ln -s ../vault/secret.img zns-handle.img',
    'a handle that is a dangling link into root\'s directory': 'ln -s ../vault/new zns-handle.img',
    'a handle that is a file': 'echo x >zns-handle.img',
    'a handle that is sparse and huge': 'truncate -s 1T zns-handle.img',
    'a copy that is a FIFO': 'mkfifo inventory.img pstree.img',
    'a copy that is a link to root\'s file': 'for i in inventory pstree ids-$CRTOOLS_INIT_PID core-$CRTOOLS_INIT_PID; do '
                                              'ln -s ../vault/secret.img $i.img; done',
    'a copy that is a dangling link': 'ln -s ../vault/new inventory.img',
    'every copy is a link': 'for i in fs files fdinfo-2 mm-$CRTOOLS_INIT_PID; do ln -s ../vault/x-$i $i.img; done',
    'a name with blanks, quotes and a backslash': 'touch "a b\\"c\'d\\\\ .img"',
    'a name that looks like an option': 'touch -- --zns-dev',
    'a hidden name': 'touch ...img .x',
    'a name of 63 characters': 'touch ' + 'n' * 63,
    'a small file': 'echo hello >x.img',
    'a stats-dump that is a link': 'ln -s ../vault/secret.img stats-dump',
}


@case
def dump_planted(scene):
    """Files of all kinds that appear during a dump are refused in one line, or ignored; the task is never kept."""
    scene = user_scene(scene)
    for how, table in ((act, REFUSED), (act_as_root, AS_ROOT_REFUSED)):
        for what, (does, pattern) in table.items():
            done = in_time(what, scene.dump, extra=how(scene, does))
            done.must_fail(pattern)
            scene.unharmed()
            scene.vault.untouched(what)
            fresh(scene)
            tried(f'dump refused: {what}')
    done = in_time('device node', scene.dump, extra=act_as_root(scene, 'mknod x.img c 1 5', 'mknod y.img b 7 99', 'chown 64222 *.img'))
    if done.code:
        raise Failed(f'device nodes in the image directory: {done.errors()[-3:]}')
    ids = scene.ids()
    back_again(scene, ids[-1])
    tried('dump: device nodes')


def _ignored(scene, names):
    scene = user_scene(scene)
    for what in names:
        # criu's work directory is his too, as it is without -W
        extra = [*act(scene, IGNORED[what]), *(['-W', str(scene.images)] if 'stats' in what else [])]
        made = in_time(what, scene.good_dump, extra=extra)
        scene.vault.untouched(what)
        handle = (scene.images / HANDLE).lstat()
        if handle.st_mode != 0o100600 or handle.st_uid:
            raise Failed(f'{what}: the handle has mode {handle.st_mode:o}')
        for p in scene.images.glob('*.img'):
            st = p.lstat()
            if st.st_uid == 0 and st.st_mode != 0o100600:
                raise Failed(f'{what}: {p.name} has mode {st.st_mode:o}')
        back_again(scene, made)
        scene.vault.untouched(what)
        tried(f'dump: {what}')


@case
def dump_ignored(scene):
    """Links, FIFOs and the like that appear during a dump: neither read nor written through, and not in the way."""
    _ignored(scene, [n for n in IGNORED if not n.startswith(('a handle', 'a copy', 'every copy'))])


@case
def dump_own_names(scene):
    """Links, FIFOs and files at the names of handle and copies: replaced, never written through."""
    _ignored(scene, [n for n in IGNORED if n.startswith(('a handle', 'a copy', 'every copy'))])


@case
def dump_directories(scene):
    """A directory where handle or copy must go: the dump fails, nothing of it stays, the task runs on."""
    scene = user_scene(scene)
    for name in (HANDLE, 'inventory.img', 'pstree.img'):
        for content in ('', f'touch {name}/x'):
            in_time(name, scene.dump, extra=act(scene, f'mkdir {name}', content)).must_fail(name)
            shutil.rmtree(scene.images / name)
            scene.unharmed()
            fresh(scene)
            tried(f'dump: {name} is a directory{" with something in it" if content else ""}')


@case
def dump_growing(scene):
    """A lease on a new file, and files that grow while they are read: no dump waits for them."""
    scene = user_scene(scene)
    ready, go = scene.images / 'ready', scene.images / 'x.img'
    extra = act(scene, 'echo data >x.img', 'touch ready', 'while [ -e ready ]; do sleep 0.01; done')
    started = scene.start_dump(extra=extra)
    if not wait_until(ready.exists, 20):
        raise Failed('the script did not run')
    with mallory.holds(lambda: mallory.leased(go)):
        ready.unlink()
        in_time('lease', scene.end_of, started).must_fail('x.img')
    scene.unharmed()
    fresh(scene)
    tried('dump: a file with a write lease')
    for what, step in (('slowly', 4096), ('fast', 1 << 20), ('huge steps', 1 << 32)):
        name = scene.images / 'grows.img'

        def grow():
            fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            size = os.fstat(fd).st_size
            while True:
                size = size + step if size < 1 << 42 else 0
                os.ftruncate(fd, size)
        started = scene.start_dump(extra=act(scene, 'touch ready', 'while [ -e ready ]; do sleep 0.01; done'))
        if not wait_until(ready.exists, 20):
            raise Failed('the script did not run')
        with mallory.keeps(grow):
            wait_until(name.exists, 5)
            ready.unlink()
            done = in_time(what, scene.end_of, started)
        if done.code:
            done.must_fail('grows.img')
            scene.unharmed()
        else:
            if scene.free_before - scene.device.free_zones() > 8:
                raise Failed(f'a file that grew {what} took {scene.free_before - scene.device.free_zones()} zones')
            scene.good_restore()
            scene.device.remove(*scene.ids())
            scene.store_as_before()
        fresh(scene)
        tried(f'dump: a file that grows {what}')


SWAPS = ('FIFO', 'link', 'link to a FIFO', '/dev/zero', 'directory', 'socket', 'file')


def make_swap(scene, kind, at):
    """What he will put in place of his file; made by him."""
    if kind == 'FIFO':
        mallory.does(lambda: os.mkfifo(at))
    elif kind == 'link to a FIFO':
        mallory.does(lambda: (os.mkfifo(f'{at}-fifo'), os.symlink(f'{at}-fifo', at)))
    elif kind == 'directory':
        mallory.does(lambda: os.mkdir(at))
    elif kind == 'socket':
        mallory.does(lambda: os.mknod(at, 0o140600))
    elif kind == 'file':
        mallory.does(lambda: at.write_bytes(b'another one'))
    else:
        mallory.does(lambda: os.symlink(scene.vault.file if kind == 'link' else kind, at))


def after_swapped(scene, what, done):
    """After the dump, successful or not: the task is unchanged, and the checkpoint has no file of another user."""
    wait_until(lambda: not ztlib.traced(scene.task.pid), 5)
    if done.code:
        done.must_fail('image directory')
    scene.task.verify(ztlib.signal.SIGUSR1)
    scene.no_helpers()
    new = [i for i in scene.ids() if i not in scene.ids_before]
    for i in new:
        sizes = {f['size'] for f in scene.device.json('show', i)['images'] if f['name'] == 'swapped'}
        if sizes - {100}:
            raise Failed(f'{what}: the checkpoint holds a file of {sizes} bytes')
    scene.device.remove(*new)
    scene.vault.untouched(what)
    fresh(scene)


@case
def dump_at_the_worst(scene):
    """A file that becomes something else between criu's look at it and its opening: the dump is refused in one line."""
    scene = user_scene(scene, size=1)
    his = mallory.own(scene.dir / 'his')
    for kind in SWAPS:
        make_swap(scene, kind, his / 'swap')
        env = mallory.worst(scene.dir, scene.device.env, 'swapped', 1, scene.images / 'swapped', his / 'swap')
        done = in_time(kind, scene.dump, extra=['--leave-running', *act(scene, 'head -c 100 /dev/zero >swapped')], env=env)
        if not (his / 'swap').is_file() or (his / 'swap').stat().st_size != 100:
            raise Failed(f'{kind}: nothing was exchanged')
        done.must_fail('image directory')
        after_swapped(scene, kind, done)
        for p in his.iterdir():
            p.unlink()
        tried(f'dump, at the worst moment: {kind}')
    scene.store_as_before()


@case
def dump_swapped(scene):
    """The same as a real race, again and again while dumps run."""
    scene = user_scene(scene, size=1)
    his = mallory.own(scene.dir / 'his')
    at, tmp = str(scene.images / 'swapped'), str(his / 't0')

    def swap_of(make):
        def swap():
            fd = os.open(tmp, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(fd, b'x' * 100)
            os.close(fd)
            os.rename(tmp, at)
            make(tmp)
            os.rename(tmp, at)
        return swap
    mallory.does(lambda: os.mkfifo(his / 'fifo'))
    for what, make in {'FIFO': os.mkfifo, 'link to root\'s file': lambda p: os.symlink(scene.vault.file, p),
                       'link to a FIFO': lambda p: os.symlink(his / 'fifo', p)}.items():
        for n in range(6):
            for old in range(300):      # these entries make reading the directory take longer
                (scene.images / f'old-{old}').touch()
            with mallory.keeps(swap_of(make)):
                done = in_time(f'{what}, round {n}', scene.dump, extra=['--leave-running'])
            after_swapped(scene, what, done)
            (his / 't0').unlink(missing_ok=True)
            tried(f'dump, swapped: {what}, round {n}')
    scene.store_as_before()


# ---- restore -------------------------------------------------------------------------------------------

def special(kind, at, scene):
    """Put something of the kind there."""
    if at.is_symlink() or at.exists():
        at.unlink()
    if kind == 'FIFO':
        os.mkfifo(at)
    elif kind == 'directory':
        at.mkdir()
    elif kind == 'socket':
        s = socket.socket(socket.AF_UNIX)
        s.bind(os.path.relpath(at))
        s.close()
    elif kind == 'device':
        os.mknod(at, 0o20666, os.makedev(1, 5))
    elif kind == 'sparse':
        with open(at, 'wb') as f:
            f.truncate(1 << 40)
    elif kind == 'empty':
        at.touch()
    elif kind == 'hard link':
        os.link(scene.vault.file, at)
    else:
        os.symlink(kind, at)


def put_away(at):
    if at.is_dir() and not at.is_symlink():
        at.rmdir()
    elif at.is_symlink() or at.exists():
        at.unlink()


KINDS = ('FIFO', 'directory', 'socket', 'device', 'sparse', 'empty', 'hard link', '/none', '/dev/zero', '/etc/shadow', 'self')


def end_task(scene):
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not alive(scene.task.pid), 5)


@case
def restore_handles(scene):
    """A handle that is anything but a file of a handle's size: refused in one line; copies are not believed."""
    scene = user_scene(scene)
    scene.good_dump()
    handle, copy = scene.images / HANDLE, scene.images / 'inventory.img'
    good, inventory = handle.read_bytes(), copy.read_bytes()
    elsewhere = scene.dir / 'elsewhere.img'
    elsewhere.write_bytes(good)
    for kind in (*KINDS, str(elsewhere)):
        special(HANDLE if kind == 'self' else kind, handle, scene)
        if kind.startswith('/none'):    # such a file looks like a missing one, but the restore must end
            in_time(kind, scene.restore).must_fail()
        else:
            in_time(kind, scene.restore_must_fail, 'handle')
        put_away(handle)
        tried(f'restore: the handle is {kind if kind != str(elsewhere) else "a link to a good one"}')
    handle.write_bytes(good)
    os.chown(handle, UID, UID)
    with mallory.holds(lambda: mallory.leased(handle)):
        in_time('lease', scene.restore_must_fail, 'handle.*lease')
    tried('restore: the handle is leased')
    for kind in KINDS:
        special('inventory.img' if kind == 'self' else kind, copy, scene)
        done = in_time(kind, scene.good_restore)
        if not done.lines('plain copies differ'):
            raise Failed(f'{kind}: nothing is said of a copy that differs')
        put_away(copy)
        end_task(scene)
        tried(f'restore: a copy is {kind}')
    copy.write_bytes(inventory)
    os.chown(copy, UID, UID)
    with mallory.holds(lambda: mallory.leased(copy)):
        in_time('leased copy', scene.good_restore)
    end_task(scene)
    tried('restore: a copy is leased')
    scene.vault.untouched('restores')


def with_beside(scene):
    """A checkpoint that includes a file from beside its images, which is then removed from the directory."""
    made = scene.good_dump(extra=act_as_root(scene, f'head -c 300000 /dev/zero | tr "\\0" n >{BESIDE}'))
    if (scene.images / BESIDE).exists():
        (scene.images / BESIDE).unlink()
    return made


@case
def restore_beside(scene):
    """What he puts at the place of a plugin's file is replaced, never written through, and removed afterwards."""
    scene = user_scene(scene)
    with_beside(scene)
    at = scene.images / BESIDE
    for kind in (*KINDS, str(scene.vault.file), str(scene.vault.dir / 'new')):
        special(BESIDE if kind == 'self' else kind, at, scene)
        if kind == 'directory':
            in_time(kind, scene.restore_must_fail, BESIDE)
        else:
            in_time(kind, scene.good_restore)
            if at.is_symlink() or at.read_bytes() != b'n' * 300000:
                raise Failed(f'{kind}: the file beside is not what was dumped')
            end_task(scene)
        put_away(at)
        scene.no_helpers()
        scene.vault.untouched(kind)
        tried(f'restore: the file beside is {"a link to root" if kind.startswith(str(scene.dir)) else kind} {kind[-6:]}')
    part = scene.images / f'{BESIDE}.zns-part'
    for kind in ('directory', 'FIFO', str(scene.vault.file)):
        special(kind, part, scene)
        in_time(kind, scene.good_restore)
        end_task(scene)
        scene.no_helpers()
        put_away(part)
        scene.vault.untouched(kind)
        tried(f'restore: {part.name} is {kind[-6:]}')


@case
def restore_locks(scene):
    """Another user holds a lock on the image directory: the restore waits a moment, then reports it; shared locks do no harm."""
    scene = user_scene(scene)
    made = with_beside(scene)
    with mallory.holds(lambda: mallory.locked(scene.images)):
        in_time('lock', scene.restore_must_fail, 'locked')
        tried('restore: an exclusive lock for ever')
        other = scene.dir / 'other'
        other.mkdir()
        in_time('lock', scene.good_restore, images=other, extra=['--zns-checkpoint', made])
        end_task(scene)
        tried('restore: by id, elsewhere, while it is locked')
    with mallory.holds(lambda: mallory.locked(scene.images, fcntl.LOCK_SH)):
        in_time('shared', scene.good_restore)
        end_task(scene)
    scene.no_helpers()
    put_away(scene.images / BESIDE)
    tried('restore: a shared lock')
    with mallory.holds(lambda: mallory.locked(scene.images)) as pid:
        threading.Timer(0.5, ztlib.kill, [pid, ztlib.signal.SIGSTOP]).start()
        in_time('stopped', scene.restore_must_fail, 'locked')
        tried('restore: a lock of a process that is stopped')
    os.chown(scene.images / HANDLE, UID, UID)
    with mallory.holds(lambda: mallory.locked(scene.images / HANDLE)):
        in_time('handle', scene.good_restore)
        end_task(scene)
        tried('restore: the handle is locked')

    def now_and_then():
        fd = mallory.locked(scene.images)
        time.sleep(0.01)
        os.close(fd)
        time.sleep(0.03)
    with mallory.keeps(now_and_then):
        in_time('now and then', scene.good_restore)
        end_task(scene)
        tried('restore: a lock that comes and goes')
    in_time('none', scene.good_restore)


@case
def restore_swapped(scene):
    """Handle, copies and files beside them are exchanged for links, FIFOs and more all the time: each of 30 restores
    ends, with the right result or an error line."""
    scene = user_scene(scene, size=1)
    with_beside(scene)
    his = mallory.own(scene.dir / 'his')
    keep = scene.dir / 'keep'
    shutil.copytree(scene.images, keep)
    kinds = {'FIFO': os.mkfifo, 'link': lambda p: os.symlink(scene.vault.file, p), 'directory': os.mkdir}
    for name in (HANDLE, 'inventory.img', BESIDE):
        for what, make in kinds.items():
            at, tmp = scene.images / name, his / 'tmp'
            if name != BESIDE:
                at.unlink()
                shutil.copy(keep / name, at)
                os.chown(at, UID, UID)
            else:
                mallory.does(lambda p=at: p.write_bytes(b'n'))
            mallory.does(lambda m=make, p=tmp: m(p))
            for n in range(4):
                with mallory.keeps(lambda a=at, t=tmp: mallory.exchange(a, t)):
                    done = in_time(f'{name} and {what}', scene.restore)
                if done.code:
                    done.must_fail()
                else:
                    scene.task.verify(ztlib.signal.SIGUSR1)
                    end_task(scene)
                scene.no_helpers()
                scene.vault.untouched(f'{name} and {what}')
                tried(f'restore, swapped: {name} and a {what}, round {n}')
            put_away(tmp)
            put_away(at)
            if name != BESIDE:
                shutil.copy(keep / name, at)
    in_time('at the end', scene.good_restore)


# ---- restore into a memory context, and lazy restores ---------------------------------------------------

LOG = 'zns-memory.log'


def work_in_his(scene):
    """criu's options: the work directory is his too, as it is without -W; the next call's log stays where a scene reads it."""
    return ['-W', str(scene.images), '-o', str(scene.dir / f'criu-{scene.calls + 1}.log')]


@case
def restore_into_memory(scene):
    """The lazy-pages daemon makes no named socket in the directory, and writes its log to a new file, whatever exists there."""
    scene = user_scene(scene, size=1)
    scene.good_dump()
    at = scene.images / LOG
    (scene.images / 'lazy-pages.socket').mkdir()        # a daemon that wants this name fails
    for kind in ('FIFO', 'socket', 'hard link', 'empty', '/none', str(scene.vault.file), str(scene.vault.dir / 'new')):
        special(LOG if kind == 'self' else kind, at, scene)
        in_time(kind, scene.good_restore, extra=[*work_in_his(scene), '--zns-memory', '16M', '--zns-container', f'after-{scene.calls}'])
        end_task(scene)
        st = at.lstat()
        if st.st_mode != 0o100600 or st.st_uid or st.st_nlink != 1:
            raise Failed(f'{kind}: the log has mode {st.st_mode:o}, owner {st.st_uid}')
        scene.vault.untouched(kind)
        at.unlink()
        tried(f'restore into memory: the log is {kind}')
    at.mkdir()
    in_time('directory', scene.restore_must_fail, LOG, extra=[*work_in_his(scene), '--zns-memory', '16M'])
    tried('restore into memory: the log is a directory')


@case
def restore_lazy_peer(scene):
    """An attacker listens at the socket name of root's lazy-pages daemon, or connects to root's daemon: it neither gets nor gives a userfaultfd."""
    scene = user_scene(scene, size=1)
    scene.good_dump()
    name = scene.images / 'lazy-pages.socket'

    def listens():
        os.chdir(scene.images)
        s = socket.socket(socket.AF_UNIX)
        s.bind(name.name)
        s.listen(4)
        return s
    with mallory.holds(listens):
        in_time('his daemon', scene.restore_must_fail, f'user {UID}', extra=[*work_in_his(scene), '--lazy-pages'])
    name.unlink()
    tried('lazy restore: the daemon is his')
    log = scene.log()
    daemon = subprocess.Popen([scene.cfg.criu, 'lazy-pages', '-D', scene.images, '-W', scene.images, '-o', log, '-v4'],
                              env=scene.device.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not wait_until(name.exists, 20):
        raise Failed('the daemon does not listen')
    name.chmod(0o666)                                   # as with a umask of 0

    def asks():
        os.chdir(scene.images)
        s = socket.socket(socket.AF_UNIX)
        while s.connect_ex(name.name):                  # until it listens
            time.sleep(0.01)
        return s
    with mallory.holds(asks):
        try:
            if daemon.wait(DEADLINE) == 0 or f'user {UID}' not in log.read_text():
                raise Failed(f'the daemon ended with {daemon.returncode} and does not say who asked')
        except subprocess.TimeoutExpired:
            daemon.kill()
            raise Failed('the daemon serves him') from None
    tried('lazy restore: the restore is his')
