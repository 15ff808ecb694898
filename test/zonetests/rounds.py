#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
rounds: migration in rounds to a page server into zones. The sender's helper tracks memory, so no soft-dirty bits are
needed (Documentation/inside/migration.md, "In rounds"). The sender has no device, and its own directories for
configuration and run time.

  rounds.py list | run NAME... | run -a
"""
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from incremental import processes, room
from migration import Daemon, HERE, Net, certificates, copy_images, free_port, joined
from ztchain import Chain
from ztfuse import SlowFile, UNANSWERED
from ztlib import Failed, HANDLE, wait_until
from ztscene import Outcome, case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
ROOM = room(48)
WIDE = room(256)
ON = ['--track-mem', '--leave-running']
LAST = ['--track-mem']
# memory that changes all the time; process trees; threads; memory that the helper cannot track
PROGRAMS = ('busy', 'churn', 'cowtree', 'forkchain', 'threads', 'thp', 'guards', 'scattered', 'twowriters', 'shmanon',
            'sysvipc')


class Rounds(Chain):
    """A task that is sent again and again, each time to a new page server."""

    address, prefix, sender_tls, server_tls = HERE, (), (), ()

    def __init__(self, scene, program='dirty', flavour='h'):
        super().__init__(scene, program, flavour, stock=True, container='migrated')
        home = self.dir / 'sender'
        self.env = dict(scene.device.env, ZNS_CONFIG=str(home / 'etc'), ZNS_RUN=str(home / 'run'))
        self.env.pop('ZNS_DEV', None)
        home.mkdir()

    def received(self, n):
        return self.dir / f'received-{n}'

    def serve(self, parent=None, qos='500', zones=True):
        """Starts a page server for the next round."""
        images, self.port = self.received(self.nr), free_port()
        images.mkdir()
        args = ['page-server', '-D', images, '--address', self.address, '--port', self.port, *self.server_tls]
        if zones:
            args += ['--zns-qos', qos, '--zns-qos-max', qos, '--zns-container', self.container]
        if parent is not None:
            args += ['--prev-images-dir', f'../{self.received(parent).name}']
        return Daemon(self.scene, args, prefix=self.prefix)

    def start(self, kind='pre-dump', parent=None, extra=()):
        """Starts the sender of the next round; returns (Popen, log)."""
        images, log = self.images(self.nr), self.dir / f'{kind}-{self.nr}.log'
        images.mkdir()
        log.unlink(missing_ok=True)
        args = [*self.command(kind, images, log, parent, extra), '--page-server', '--address', self.address, '--port',
                str(self.port), *self.sender_tls]
        with open(str(log) + '.stderr', 'ab') as err:
            return subprocess.Popen([self.cfg.criu, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=err, stderr=err), log

    def round(self, kind='pre-dump', parent=None, server_parent='the same', extra=()):
        """Makes a round that must succeed; returns what the helper printed about its trackers."""
        server = self.serve(parent if server_parent == 'the same' else server_parent)
        try:
            criu, log = self.start(kind, parent, extra)
            sent, got = self.scene.end_of((criu, log)), server.end()
        finally:
            server.stop()
        if sent.code or got.code:
            raise Failed(f'{kind} {self.nr}: exit {sent.code}, page server {got.code}: '
                         f'{" | ".join((sent.errors() + got.errors())[-4:])}')
        self.ids.append(self.newest())
        self.nr += 1
        said = sent.lines('send: .* tasks tracked')
        return said[0] if said else ''

    def failed(self):
        """Checks that the failed round left no files, and that the task runs on."""
        if (self.received(self.nr) / HANDLE).exists():
            raise Failed('a handle is there of what never came')
        for directory in (self.received(self.nr), self.images(self.nr)):
            shutil.rmtree(directory)
        self.task.verify(signal.SIGUSR1)

    def arrive(self, join=False):
        """Ends the task here and restores it from the last round alone."""
        self.gone()
        last = self.nr - 1
        copy_images(self.images(last), self.received(last))
        if join:
            joined(self.scene, self.received(last))
        for n in range(self.nr):
            shutil.rmtree(self.images(n))
            if n < last:
                shutil.rmtree(self.received(n))
        self.restore(self.received(last))

    def bytes(self, n):
        return self.record(self.ids[n])['page_bytes']

    def keepers(self):
        """The keepers of trackers at the sender."""
        return processes(self.env, b'zns-helper', b'--keep')

    def small(self, n):
        if self.bytes(n) > self.bytes(0) / 4:
            raise Failed(f'round {n} has {self.bytes(n)} bytes of pages, the full one {self.bytes(0)}')

    def full(self, n):
        if self.bytes(n) < self.bytes(0) * 0.9:
            raise Failed(f'round {n} has {self.bytes(n)} bytes of pages although nothing was known, the full one {self.bytes(0)}')

    def no_device(self):
        """Checks that the sender needed neither a device nor a broker."""
        home = self.dir / 'sender'
        left = [str(p.relative_to(home)) for p in home.rglob('*') if p.relative_to(home).parts[:2] != ('run', 'keep')]
        expect('what is in the directories of the sender', sorted(left), ['run'] if (home / 'run').exists() else [])


def begun(scene, program='dirty', flavour='h', rounds=1, options=ROOM):
    """Starts a task and makes @rounds pre-dumps of it."""
    if not ztlib.helper_tracks():
        return None
    r = Rounds(scene(options, 1), program, flavour)
    for n in range(rounds):
        r.round(parent=n - 1 if n else None)
        if program == 'dirty':
            r.task.digest = '0'
            r.step()
    return r


@case
def dirty(scene):
    """three pre-dumps and a dump send what was written; there is one keeper at a time; the result is joined, flattened, and restored by id."""
    r = begun(scene, rounds=3)
    if not r:
        return
    expect('keepers', len(r.keepers()), 1)
    said = r.round('dump', 2, extra=LAST)
    if '1 since the parent' not in said:
        raise Failed(f'the dump says: {said}')
    for n in (1, 2, 3):
        r.small(n)
        expect('parent', r.record(r.ids[n])['parent'], r.ids[n - 1])
    r.no_device()
    r.arrive(join=True)
    r.end_task()
    if not wait_until(lambda: not r.keepers(), 20):
        raise Failed('a keeper is left')
    r.by_id(r.ids[3])
    r.end_task()
    r.scene.device.json('flatten', r.ids[3])
    r.scene.device.remove(*r.ids[2::-1])
    r.by_id(r.ids[3])


def program_case(program):
    def run(scene):
        r = begun(scene, program, 'ns' if program == 'sysvipc' else 'h', 3, WIDE)
        if not r:
            return
        r.round('dump', 2, extra=LAST)
        r.arrive()
    run.__doc__ = f'{program}: three pre-dumps and a dump, restored'
    CASES[f'program-{program}'] = run


for _program in PROGRAMS:
    program_case(_program)


@case
def namespaces(scene):
    """a task that is init of its own namespaces."""
    r = begun(scene, flavour='ns', rounds=2)
    if r:
        r.round('dump', 1, extra=LAST)
        r.small(2)
        r.arrive()


@case
def dumps(scene):
    """a chain of dumps that leave the task running, without any pre-dump."""
    r = begun(scene, rounds=0)
    if not r:
        return
    r.round('dump', extra=ON)
    for n in (1, 2):
        r.step()
        r.round('dump', n - 1, extra=ON if n == 1 else LAST)
        r.small(n)
    r.arrive()


@case
def secure(scene):
    """from one host to another (network namespaces), through TLS, with pre-dumps that read memory."""
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    with Net(scene) as net:
        r = Rounds(scene)
        r.sender_tls, r.server_tls = certificates(r.scene.dir / 'tls')
        r.address, r.prefix = net.ADDRESS[1], net.other
        for n in range(3):
            r.round('dump' if n == 2 else 'pre-dump', n - 1 if n else None, extra=LAST if n == 2 else ['--pre-dump-mode', 'read'])
            if n < 2:
                r.step()
        r.small(1)
        r.small(2)
        r.arrive()


@case
def keeper_killed(scene):
    """kill -9 of the keeper: the next round is a full one, the one after it is not."""
    r = begun(scene)
    if not r:
        return
    for pid in r.keepers():
        os.kill(pid, signal.SIGKILL)
    said = r.round(parent=0)
    r.full(1)
    if 'in full (nobody has tracked' not in said:
        raise Failed(f'the sender says: {said}')
    r.step()
    r.round('dump', 1, extra=LAST)
    r.small(2)
    r.arrive()


def foreign(scene, choose):
    """Makes two rounds, then a dump to a page server whose parent is not the tracker's checkpoint: it must be full."""
    r = begun(scene, rounds=2)
    if not r:
        return
    r.round('dump', 1, choose(r), extra=LAST)
    r.full(2)
    r.arrive()


@case
def older_parent(scene):
    """the page server's parent is an older round than the last one: the dump is full, and no page is wrong."""
    foreign(scene, lambda r: 0)


@case
def foreign_parent(scene):
    """the page server's parent is a round of another task whose pages images have the same names: the dump is full, and no page is wrong."""
    def other(r):
        them = Rounds(r.scene)
        them.round()
        them.end_task()
        shutil.copytree(them.received(0), r.received('other'))
        # as if they belonged to this task: only the id differs
        r.ids.append(them.ids[0])
        return 'other'
    r = begun(scene, rounds=2)
    if not r:
        return
    chosen = other(r)
    r.round('dump', 1, chosen, extra=LAST)
    pages, full = r.record(r.ids[-1])['page_bytes'], r.bytes(0)
    if pages < full * 0.9:
        raise Failed(f'{pages} bytes of pages on a foreign parent, {full} in the full round')
    r.arrive()


@case
def no_parent(scene):
    """the sender names a parent, but the page server has none: the dump is full."""
    foreign(scene, lambda r: None)


def begin_slowly(r, kind='pre-dump', extra=()):
    """A full round that is under way: full because the keeper was killed. Returns (server, criu, log)."""
    for pid in r.keepers():
        os.kill(pid, signal.SIGKILL)
    server = r.serve(0, '8')
    criu, log = r.start(kind, 0, extra)
    if not wait_until(lambda: log.exists() and b'send: task' in log.read_bytes(), 20, 0.001):
        raise Failed('the sender does not begin')
    return server, criu, log


@case
def server_killed(scene):
    """kill -9 of the page server in a round: the sender says so, the task runs on; the next round is full, later ones are small."""
    r = begun(scene)
    if not r:
        return
    for kind, extra in (('pre-dump', ()), ('dump', LAST)):
        server, criu, log = begin_slowly(r, kind, extra)
        server.stop()
        done = r.scene.end_of((criu, log))
        if done.code <= 0 or not done.lines('page server|to socket|to server'):
            raise Failed(f'{kind}: exit {done.code}: {" | ".join(done.errors()[-3:])}')
        if not wait_until(lambda: not r.keepers(), 20):
            raise Failed('a keeper goes on after a round that failed')
        r.failed()
    r.round(parent=0)
    r.full(1)
    r.step()
    r.round('dump', 1, extra=LAST)
    r.small(2)
    r.arrive()


@case
def sender_killed(scene):
    """kill -9 of criu or its helper in a round: the page server keeps nothing, the task runs on; the next round is full."""
    r = begun(scene)
    if not r:
        return
    for victim in ('criu', 'helper'):
        server, criu, log = begin_slowly(r)
        if victim == 'criu':
            criu.kill()
        else:
            for pid in processes(r.env, b'zns-helper'):
                ztlib.kill(pid)
        done, got = r.scene.end_of((criu, log)), server.end()
        if not done.code or not got.code:
            raise Failed(f'{victim} killed: criu {done.code}, page server {got.code}')
        if victim == 'helper' and not done.lines('zns-helper died'):
            raise Failed(f'no line about the helper: {" | ".join(done.errors()[-3:])}')
        r.failed()
    r.round(parent=0)
    r.full(1)
    r.round('dump', 1, extra=LAST)
    r.small(2)
    r.arrive()


def while_it_is_read(r, quick, slow, out):
    """A pre-dump during which the program maps the slow file, after the freeze: (its outcome, the server's)."""
    out.unlink(missing_ok=True)
    with open(out, 'wb') as f:
        child = subprocess.Popen([sys.executable, '-c', UNANSWERED, quick.directory / 'data', slow.directory / 'data'],
                                 stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True)
    r.task.pid = child.pid
    if not wait_until(lambda: out.read_text() == 'ready\n', 60):
        raise Failed(f'the program says {out.read_text()}')
    server = r.serve(qos='50')
    criu, log = r.start()
    status = Path(f'/proc/{child.pid}/status')
    if not wait_until(lambda: log.exists() and b'send: task' in log.read_bytes() and 'TracerPid:\t0\n' in status.read_text(), 60, 0.001):
        raise Failed('the sender does not begin')
    os.kill(server.proc.pid, signal.SIGSTOP)        # a stopped server holds up the sender
    os.kill(child.pid, signal.SIGUSR1)
    got = wait_until(lambda: 'put' in out.read_text(), 60)
    os.kill(server.proc.pid, signal.SIGCONT)
    if not got:
        raise Failed('the program did not get the file')
    return r.scene.end_of((criu, log)), server.end()


@case.soak('a page is given up after five seconds')
def unanswered_file(scene):
    """While a page is sent in a pre-dump, a file that is never answered is mapped over it: the pre-dump succeeds, and the next round is full."""
    r = begun(scene, rounds=0)
    if not r:
        return
    quick, slow, task = SlowFile(r.dir / 'quick', 1), SlowFile(r.dir / 'slow', 2), r.task.pid
    quick.release()
    try:
        for _ in range(20):
            sent, got = while_it_is_read(r, quick, slow, r.dir / 'out')
            if sent.code or got.code:
                raise Failed(f'exit {sent.code}, page server {got.code}: {" | ".join((sent.errors() + got.errors())[-4:])}')
            r.ids.append(r.newest())
            r.nr += 1
            if slow.reading.is_set():
                break
            ztlib.kill(r.task.pid)      # everything was sent before the file was mapped
        else:
            raise Failed('the sender never came to the file')
        slow.release()
        r.round(parent=r.nr - 1)
        if r.bytes(r.nr - 1) < 95 << 20:
            raise Failed(f'the next round has {r.bytes(r.nr - 1)} bytes of pages, although not all were sent before')
    finally:
        if r.task.pid != task:
            ztlib.kill(r.task.pid)
        r.task.pid = task
        quick.close()
        slow.close()
        r.end_task()


def tracks_itself(r):
    """Does the kernel have soft-dirty bits?"""
    return subprocess.run([r.cfg.criu, 'check', '--feature', 'mem_dirty_track'], capture_output=True).returncode == 0


@case
def gone_silent(scene):
    """the receiver's host vanishes without a word in the last round: the dump fails, the task runs on."""
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    with Net(scene) as net:
        r = Rounds(scene)
        r.address, r.prefix = net.ADDRESS[1], net.other
        r.round()
        server, criu, log = begin_slowly(r, 'dump', LAST)
        try:
            subprocess.run(['ip', '-n', net.names[1], 'link', 'set', 'cable', 'down'], check=True)
            done = scene.end_of((criu, log))
        finally:
            server.stop()
        if done.code <= 0 or not done.lines('Connection timed out|No route to host'):
            raise Failed(f'dump: exit {done.code}: {" | ".join(done.errors()[-3:])}')
        r.failed()


@case
def plain_server(scene):
    """a page server into files does not say which pages it has: without soft-dirty bits a pre-dump is refused, and dumps are full."""
    r = Rounds(scene(ROOM, 1))
    if tracks_itself(r):
        return
    server = r.serve(zones=False)
    criu, log = r.start()
    done = r.scene.end_of((criu, log))
    server.end()
    if not done.lines('Error.*pre-dump needs a kernel.*no page server into zones'):
        raise Failed(f'pre-dump: exit {done.code}: {" | ".join(done.errors()[-3:])}')
    r.failed()
    server = r.serve(zones=False)
    criu, log = r.start('dump', extra=LAST)
    done, got = r.scene.end_of((criu, log)), server.end()
    expect('exit codes', (done.code, got.code), (0, 0))
    r.gone()
    copy_images(r.images(0), r.received(0))
    r.restore(r.received(0))


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'rounds', CASES))
