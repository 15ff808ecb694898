#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
hostcalls: the files of the host that our programs write and read. A run notes each call on them; then each call is
made to fail once, in a run of its own. From the notes the test derives what a power cut would lose.

  hostcalls.py list | run NAME... | run -a
"""
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from tools import many_dumps
from ztlib import Failed
from ztscene import case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
CALLS_MOST = 400        # most calls of one operation; with more the scene is too large for this test


class Calls:
    """Runs a command and notes its calls below @root; one of them fails."""

    def __init__(self, scene, root):
        self.scene, self.root, self.log = scene, root, scene.dir / 'calls'
        self.lib = scene.dir / 'hostcalls.so'
        subprocess.run(['gcc', '-shared', '-fPIC', '-O1', '-o', self.lib, Path(__file__).with_name('preload') / 'hostcalls.c', '-ldl'],
                       check=True)

    def run(self, command, fail=None):
        """Runs it with @fail: (number of the call, errno or 0 for a short transfer). Returns (process, its calls as (call, path))."""
        self.log.unlink(missing_ok=True)
        env = dict(self.scene.device.env, LD_PRELOAD=str(self.lib), HOSTCALLS_ROOT=str(self.root), HOSTCALLS_LOG=str(self.log))
        if fail:
            env['HOSTCALLS_FAIL'] = f'{fail[0]} {fail[1]}'
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=self.scene.cfg.timeout)
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return done, [tuple(line.split(' ', 1)) for line in lines]


def tree(root):
    """Names below a directory, with contents."""
    found = {}
    for path in sorted(root.rglob('*')):
        name = str(path.relative_to(root))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def must_be_durable(calls, root):
    """Checks that each file was flushed after its last write, and each folder after the last name in it that stayed."""
    left = {str(root / n) for n in tree(root)}
    for path in {p for c, p in calls if c == 'write'}:
        later = calls[max(n for n, (c, p) in enumerate(calls) if (c, p) == ('write', path)):]
        if ('sync', path) not in later:
            raise Failed(f'{path} is not flushed after its last write')
    for folder in {os.path.dirname(p) for c, p in calls if c == 'name' and p in left}:
        later = calls[max(n for n, (c, p) in enumerate(calls) if c == 'name' and os.path.dirname(p) == folder):]
        if folder.startswith(str(root)) and ('sync', folder) not in later:
            raise Failed(f'{folder} is not flushed after the last name in it')


def fails_well(done, what):
    """Checks that the command ended with one error line and not by a signal."""
    said = done.stderr.strip()
    if done.returncode < 0 or done.returncode > 2:
        raise Failed(f'{what}: exit {done.returncode}: {said[:300]}')
    if not done.args[0].endswith('criu') and ('\n' in said or not said):
        raise Failed(f'{what}: not one line: {said[:300]}')


def each_failure(calls, command, clean, check):
    """
    Runs the command again and again, each time with another call failing. @clean prepares a run, @check looks at what
    a run with exit 0 left (True) or a failed one (False). Returns (runs that failed, runs that succeeded all the
    same).
    """
    clean()
    done, noted = calls.run(command)
    expect(f'{command[1]}: exit ({done.stderr.strip()})', done.returncode, 0)
    if not noted or len(noted) > CALLS_MOST:
        raise Failed(f'{command[1]}: {len(noted)} calls were noted')
    check(True, 'nothing failed')
    count = [0, 0]
    for nth, (call, path) in enumerate(noted, 1):
        for code in (errno.EIO, 0) if call in ('write', 'read') else (errno.EIO,):
            what = f'{command[1]}, call {nth} of {len(noted)}: {call} {path}: {errno.errorcode.get(code, "short")}'
            clean()
            done, _ = calls.run(command, (nth, code))
            if done.returncode:
                fails_well(done, what)
            check(not done.returncode, what)
            count[not done.returncode] += 1
    print(f'     {command[1]}: {len(noted)} calls, {count[0]} failures refused, {count[1]} got over', flush=True)
    if not count[0]:
        raise Failed(f'{command[1]}: no failure was noticed')
    return count


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def writes(scene, command, leaves=(), same=True):
    """
    A command of znsctl that writes below scene.dir/'made': its files are durable, and after a failure only the names
    in @leaves are left. @same: it writes the same bytes each time.
    """
    out = scene.dir / 'made'
    calls = Calls(scene, out)
    command = [scene.cfg.znsctl, *command]
    empty(out)
    done, noted = calls.run(command)
    expect(f'{command[1]}: exit ({done.stderr.strip()})', done.returncode, 0)
    must_be_durable(noted, out)
    want = tree(out)

    def check(good, what):
        left = tree(out)
        if good and list(left) != list(want):
            raise Failed(f'{what}: exit 0, and there is {list(left)}, not {list(want)}')
        if good and same and left != want:
            raise Failed(f'{what}: exit 0, and the content differs')
        if not good and set(left) - set(leaves):
            raise Failed(f'{what}: {sorted(set(left) - set(leaves))} is left')
    each_failure(calls, command, lambda: empty(out), check)


@case
def export_directory(scene):
    """export to a folder, which stays."""
    scene = scene(size=1)
    writes(scene, ['export', *many_dumps(scene, 1), str(scene.dir / 'made' / 'plain')], leaves=['plain'])


@case
def export_archive(scene):
    """export to an archive."""
    scene = scene(size=1)
    writes(scene, ['export', *many_dumps(scene, 1), str(scene.dir / 'made' / 'one.tar')])


@case
def export_oci(scene):
    """export --oci to a folder."""
    scene = scene(size=1)
    writes(scene, ['export', '--oci', *many_dumps(scene, 1), str(scene.dir / 'made' / 'oci')])


@case
def create(scene):
    """create of a store on a disk."""
    scene = scene(size=1)
    scene.device.json('unregister', scene.device.spec)
    writes(scene, ['create', f'file:{scene.dir}/made/store', '--size', '64M', '--rate', '100', '--force'], same=False)


@case
def dump(scene):
    """A dump's image directory: a failure leaves no handle and no checkpoint, and the task runs on."""
    scene = scene(size=1)
    images = scene.dir / 'made'
    args = ztlib.dump_args(scene.cfg, scene.task, images, scene.dir / 'criu.log', 'errors', ['--leave-running'])

    def clean():
        empty(images)
        scene.device.forget('errors')

    def check(good, what):
        expect(f'{what}: checkpoints, handle', (len(scene.ids()), (images / ztlib.HANDLE).exists()), (int(good), good))
        scene.task.verify(signal.SIGUSR1)
    each_failure(Calls(scene, images), [scene.cfg.criu, *args], clean, check)


@case
def key_create(scene):
    """key create FILE."""
    scene = scene(size=1)
    writes(scene, ['key', 'create', f'{scene.dir}/made/key'], same=False)


@case
def import_directory(scene):
    """import of a folder: if a read fails or is short, the import adds nothing, or everything."""
    scene = scene(size=1)
    first, = many_dumps(scene, 1)
    out = scene.dir / 'made'
    ctl = scene.cfg.znsctl
    subprocess.run([ctl, 'export', first, str(out)], env=scene.device.env, check=True, capture_output=True)
    want = tree(out)

    def clean():
        for c in set(scene.ids()) - {first}:
            scene.device.remove(c)

    def check(good, what):
        new = [c for c in scene.ids() if c != first]
        expect(f'{what}: new checkpoints', len(new), int(good))
        if good:
            back = scene.dir / 'back'
            shutil.rmtree(back, ignore_errors=True)
            subprocess.run([ctl, 'export', *new, str(back)], env=scene.device.env, check=True, capture_output=True)
            expect(f'{what}: the content is the same', tree(back) == want, True)
    each_failure(Calls(scene, out), [ctl, 'import', str(out)], clean, check)
    clean()


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'hostcalls', CASES))
