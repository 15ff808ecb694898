# SPDX-License-Identifier: GPL-2.0-only
"""Somebody without any rights who owns a directory that root works in: acts of his, once or again and again."""
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from ztlib import Failed

UID = 64222
SECRET = b'root:$y$this-is-for-root-alone:1::::::\n'
libc = ctypes.CDLL(None, use_errno=True)
RENAME_EXCHANGE = 2
F_SETLEASE = 1024


def own(directory):
    """Make it, or take it: his directory."""
    directory.mkdir(exist_ok=True)
    os.chown(directory, UID, UID)
    directory.chmod(0o755)
    for parent in directory.parents:        # the runner's directory lets only root in
        if str(parent) == '/tmp' or not str(parent).startswith('/tmp/'):
            break
        parent.chmod(0o755)
    return directory


def _child(func):
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
        func()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def does(func):
    """The attacker acts once."""
    if os.waitstatus_to_exitcode(os.waitpid(_child(func), 0)[1]):
        raise Failed(f'the attacker could not do what he wanted: {func}')


@contextlib.contextmanager
def keeps(func):
    """Meanwhile he does it again and again, as fast as he can; what does not work this time he tries the next."""
    def loop():
        while True:
            try:
                func()
            except OSError:
                pass
    pid = _child(loop)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def holds(func):
    """Meanwhile he has done it and goes on holding what he has got: a lock, a lease."""
    r, w = os.pipe()

    def hold():
        kept = func()
        os.write(w, b'.')
        while True:
            signal.pause()
        return kept
    pid = _child(hold)
    os.close(w)
    try:
        if os.read(r, 1) != b'.':
            raise Failed(f'the attacker could not do what he wanted: {func}')
        yield pid
    finally:
        os.close(r)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def exchange(a, b):
    """Both names change places at once."""
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), RENAME_EXCHANGE):
        err = ctypes.get_errno()
        raise OSError(err, os.strerror(err))


def worst(directory, env, name, nth, a, b):
    """The environment of a program in which he exchanges a and b right before the nth opening of a file of that name."""
    lib = directory / 'worst.so'
    if not lib.exists():
        subprocess.run(['gcc', '-shared', '-fPIC', '-O1', '-o', lib, Path(__file__).with_name('worst.c'), '-ldl'], check=True)
    return dict(env, LD_PRELOAD=str(lib), WORST=f'{name} {nth} {a} {b} {UID}')


def locked(path, how=fcntl.LOCK_EX):
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, how)
    return fd


def leased(path):
    """A write lease: who opens the file waits for 45 s, unless he says O_NONBLOCK."""
    fd = os.open(path, os.O_RDWR)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, F_SETLEASE, fcntl.F_WRLCK)
    return fd


class Vault:
    """A directory that belongs to root, and a file in it: nothing in it may be created, removed, changed or read."""

    def __init__(self, directory, mode=0o755):
        self.dir = directory
        directory.mkdir()
        directory.chmod(mode)
        self.file = directory / 'secret.img'
        self.refill()

    def refill(self):
        self.file.write_bytes(SECRET)
        self.file.chmod(0o600)
        self.before = self._look()

    def _look(self):
        return {str(p.relative_to(self.dir)): (p.lstat().st_ino, p.lstat().st_mode, p.lstat().st_uid,
                                               p.read_bytes() if p.is_file() and not p.is_symlink() else b'')
                for p in self.dir.rglob('*')}

    def untouched(self, what):
        if self._look() != self.before:
            raise Failed(f'{what}: a directory of root\'s holds {sorted(self._look())}, it held {sorted(self.before)}')


def no_secret(directory, what):
    """Nothing that he may read holds root's file, and what root has made there is root's alone."""
    for p in directory.rglob('*'):
        if p.is_symlink() or not p.is_file():
            continue
        try:
            fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)    # the file may have a lease
        except BlockingIOError:
            continue
        with open(fd, 'rb') as f:
            st, data = os.fstat(fd), f.read(1 << 22)
        if SECRET in data and (st.st_uid == UID or st.st_mode & 0o044):
            raise Failed(f'{what}: {p.name} gives root\'s file away (mode {st.st_mode & 0o777:o})')
