#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
migration: page servers that keep what they receive on zones, lazy pages from zones, two hosts (Documentation/inside/migration.md).

A host is a device with a configuration and a runtime directory of its own; in the case two-hosts also a network
namespace.

  migration.py list | run NAME... | run -a
"""
import copy
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import ztlib
import ztproto
from ztlib import Device, Failed, HANDLE, Task, alive, wait_until
from ztredis import RedisTask
from ztscene import FAST, TINY, Outcome, case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
HERE = '127.0.0.1'


def free_port():
    with socket.socket() as s:
        s.bind((HERE, 0))
        return s.getsockname()[1]


class Daemon:
    """A criu that serves: it has started when it says so on its status descriptor."""

    def __init__(self, scene, args, env=None, prefix=(), refused=False):
        self.scene, self.log = scene, scene.log()
        ready, status = os.pipe()
        command = [*prefix, scene.cfg.criu, *map(str, args), '-W', str(self.log.parent), '-o', self.log.name, '-v4',
                   '--status-fd', str(status)]
        with open(str(self.log) + '.stderr', 'ab') as err:
            self.proc = subprocess.Popen(command, env=env or scene.device.env, stdin=subprocess.DEVNULL, stdout=err,
                                         stderr=err, pass_fds=[status])
        os.close(status)
        os.set_blocking(ready, False)
        try:
            self.ready = wait_until(lambda: self._byte(ready) or self.proc.poll() is not None, scene.cfg.timeout)
        finally:
            os.close(ready)
        if not refused and self.proc.poll() not in (None, 0):
            raise Failed(f'criu {args[0]} did not start: {" | ".join(Outcome(1, self.log).errors()[-3:])}')

    @staticmethod
    def _byte(fd):
        try:
            return os.read(fd, 1)
        except BlockingIOError:
            return b''

    def end(self):
        """Waits until it ends by itself, and returns its outcome."""
        try:
            return Outcome(self.proc.wait(self.scene.cfg.timeout), self.log)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Failed(f'criu {self.proc.args[1]} did not end within {self.scene.cfg.timeout} s')

    def stop(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()


def fresh(scene, name):
    directory = next(d for d in (scene.dir / f'{name}-{n}' for n in itertools.count()) if not d.exists())
    directory.mkdir()
    return directory


def page_server(scene, images, port, extra=(), **args):
    return Daemon(scene, ['page-server', '-D', images, '--address', HERE, '--port', port, '--zns-qos', '500',
                          '--zns-container', 'migrated', *extra], **args)


def send(scene, task, images, port, extra=(), env=None, prefix=(), address=HERE):
    """The sender's dump: no zones of its own, pages to the server."""
    log = scene.log()
    cfg = copy.copy(scene.cfg)
    cfg.stock = True
    args = [*ztlib.dump_args(cfg, task, images, log, ''), '--page-server', '--address', address, '--port', str(port), *extra]
    command = [*prefix, cfg.criu, *args]
    with open(str(log) + '.stderr', 'ab') as err:
        code = subprocess.run(command, env=env or scene.device.env, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                              timeout=cfg.timeout).returncode
    return Outcome(code, log)


def copy_images(source, target):
    """Copies all images of the sender into the receiver's directory, as scp or rsync would."""
    names = [p.name for p in source.iterdir() if p.suffix == '.img']
    for name in names:
        shutil.copy(source / name, target)
    return names


def transfer(scene, task, extra=(), dump_extra=()):
    """Sends a dump to a page server and copies the other images. Returns (sender's directory, receiver's directory, id of the pages)."""
    sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
    before = set(scene.ids())
    server = page_server(scene, received, port, extra)
    done = send(scene, task, sent, port, dump_extra)
    outcome = server.end()
    if done.code or outcome.code:
        raise Failed(f'migration: dump {done.code}, page server {outcome.code}: '
                     f'{" | ".join((done.errors() + outcome.errors())[-4:])}')
    wait_until(lambda: not any(map(alive, task.pids())), 5)
    if any(p.name.startswith('pages-') for d in (sent, received) for p in d.iterdir()):
        raise Failed('there are pages images in a directory')
    if not (received / HANDLE).exists():
        raise Failed('the page server left no handle')
    new = set(scene.ids()) - before
    expect('number of new checkpoints', len(new), 1)
    return sent, received, new.pop()


def started(scene, program, flavour='h', args=()):
    directory = scene.dir / f'{program}-{len(scene.tasks)}'
    directory.mkdir()
    if program == 'redis':
        task = RedisTask(directory, flavour)
    else:
        desc = ztlib.description(ztlib.HERE / f'{program}.c')
        task = Task(directory, program, flavour, args, desc.get('opts', '').split(), wait=max(60, scene.cfg.timeout))
    scene.tasks.append(task)
    return task.start().wait_ready()


def comes_back(scene, task, images, before=None, extra=()):
    done = scene.restore(images=images, task=task, extra=extra)
    if done.code:
        raise Failed(f'restore: exit {done.code}: {" | ".join(done.lines("Error")[-4:])}')
    if before:
        ztlib.check_footprint(before, ztlib.footprint(task.pid))
    task.verify(signal.SIGUSR1)
    return done


def migrate(scene, program, flavour):
    scene = scene(size=1)
    task = started(scene, program, flavour)
    before = ztlib.footprint(task.pid)
    sent, received, pages = transfer(scene, task)
    copy_images(sent, received)
    shutil.rmtree(sent)
    comes_back(scene, task, received, before)
    scene.device.remove(pages)
    scene.store_as_before()


for _program, _flavour in (('redis', 'h'), ('bigmem', 'h'), ('cowtree', 'h'), ('shmanon', 'h'), ('sysvipc', 'ns'),
                           ('memfd', 'h'), ('tmpfs', 'ns'), ('threads', 'h')):
    def _case(scene, p=_program, f=_flavour):
        migrate(scene, p, f)
    _case.__doc__ = f'{_program} ({_flavour}): pages to a page server on zones, the other images by copy, restore there'
    CASES[f'migrate-{_program}'] = _case


# ---- failures ----

def sender_goes_on(scene, task):
    if not wait_until(lambda: ztlib.proc_state(task.pid) in ('R', 'S') and not ztlib.traced(task.pid), 10):
        raise Failed(f'the task is not running at the sender: state "{ztlib.proc_state(task.pid)}"')
    task.verify(signal.SIGUSR1)


def nothing_received(scene, received):
    if (received / HANDLE).exists():
        raise Failed('a handle is there of what never came')
    scene.no_helpers()
    scene.store_as_before()


@case
def wrong_port(scene):
    """No server listens: the dump fails, the task runs on; the server waits for the next client."""
    scene = scene(size=8)
    sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
    server = page_server(scene, received, port)
    try:
        done = send(scene, scene.task, sent, free_port())
        if done.code <= 0:
            raise Failed(f'a dump to nobody: exit {done.code}')
        if not done.lines(r"Can't connect to server .*:\d+|connect"):
            raise Failed(f'no line about the connection: {" | ".join(done.errors()[-3:])}')
        sender_goes_on(scene, scene.task)
        done = send(scene, scene.task, fresh(scene, 'sent'), port)
        expect('exit code of the dump to the right port', done.code, 0)
        expect('exit code of the page server', server.end().code, 0)
    finally:
        server.stop()


def half_sent(scene):
    """Begins to send a dump and stops in the middle. Returns (page server, dump, its log, the receiver's directory)."""
    sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
    server = page_server(scene, received, port, ['--zns-qos', '40', '--zns-qos-max', '40'])
    log = scene.log()
    cfg = copy.copy(scene.cfg)
    cfg.stock = True
    args = [*ztlib.dump_args(cfg, scene.task, sent, log, ''), '--page-server', '--address', HERE, '--port', str(port)]
    with open(str(log) + '.stderr', 'ab') as err:
        dump = subprocess.Popen([cfg.criu, *args], env=scene.device.env, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    scene.until_writing()
    return server, dump, log, received


@case
def sender_dies(scene):
    """The sender is killed in the middle: its task runs on, the server says that it did not get everything, its zones are freed."""
    scene = scene(size=400)
    server, dump, _, received = half_sent(scene)
    dump.kill()
    dump.wait()
    done = server.end()
    if done.code == 0 or not done.lines('Error.*(socket was closed|not flushed|pagemap from socket)'):
        raise Failed(f'page server: exit {done.code}: {" | ".join(done.errors()[-3:])}')
    sender_goes_on(scene, scene.task)
    nothing_received(scene, received)


@case
def receiver_dies(scene):
    """The page server is killed in the middle: the dump fails with a line about the server, and the task runs on."""
    scene = scene(size=400)
    server, dump, log, received = half_sent(scene)
    server.stop()
    done = scene.end_of((dump, log))
    if done.code <= 0 or not done.lines('page server|pages to socket'):
        raise Failed(f'dump: exit {done.code}: {" | ".join(done.errors()[-3:])}')
    sender_goes_on(scene, scene.task)
    nothing_received(scene, received)


@case
def receiver_full(scene):
    """The receiver's device is too small: one line there, the dump fails, the task runs on, the zones are freed."""
    scene = scene(options=TINY, size=100)
    sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
    server = page_server(scene, received, port)
    done = send(scene, scene.task, sent, port)
    outcome = server.end()
    outcome.must_fail('is full', 'znsctl rm')
    if done.code <= 0:
        raise Failed(f'dump: exit {done.code}')
    sender_goes_on(scene, scene.task)
    nothing_received(scene, received)


@case
def receiver_bad_write(scene):
    """All writes of the receiver from the nth on fail, for each n up to the commit's write: the sender notices, and keeps its task."""
    scene = scene(size=1)
    at_commit = 0
    for n in range(100):
        sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
        server = page_server(scene, received, port, env=scene.faulty(None, f'write-after={n}x*'), refused=True)
        done = send(scene, scene.task, sent, port)
        outcome = server.end()
        if not done.code:
            expect('exit code of the page server', outcome.code, 0)
            break
        outcome.must_fail('zones failed|media error')
        at_commit += bool(done.lines('page server could not keep'))
        sender_goes_on(scene, scene.task)
        nothing_received(scene, received)
    if n < 3 or not at_commit:
        raise Failed(f'{n} writes, {at_commit} of them failed at the commit')
    copy_images(sent, received)
    comes_back(scene, scene.task, received)


@case
def refused_server(scene):
    """A rate that the device cannot promise, or a directory with another dump's images, is refused before a sender can connect."""
    scene = scene(size=1)
    server = page_server(scene, fresh(scene, 'received'), free_port(), ['--zns-qos', '99999'], refused=True)
    server.end().must_fail('QoS of 99999')
    used = fresh(scene, 'received')
    (used / 'inventory.img').write_bytes(b'x')
    server = page_server(scene, used, free_port(), refused=True)
    server.end().must_fail('images of another dump')
    scene.store_as_before()


@case
def without_the_rest(scene):
    """A restore before the other images have arrived, or with those of another dump, fails with one line; the right images work."""
    scene = scene(size=8)
    other = scene.new_task(1)
    sent, received, pages = transfer(scene, scene.task)
    scene.restore_must_fail('only the pages of this checkpoint', images=received)
    wrong = fresh(scene, 'wrong')
    shutil.copytree(received, wrong, dirs_exist_ok=True)
    foreign, foreign_received, foreign_pages = transfer(scene, other)
    copy_images(foreign, wrong)
    scene.restore_must_fail('of another dump', images=wrong)
    copy_images(sent, wrong)        # some images are replaced, others of the foreign dump stay
    scene.restore_must_fail('of another dump', images=wrong)
    copy_images(sent, received)
    comes_back(scene, scene.task, received)


@case
def sender_options(scene):
    """A sender with zns options (in a configuration file, say) is told that they have no effect there."""
    scene = scene(size=8)
    sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
    server = page_server(scene, received, port)
    done = send(scene, scene.task, sent, port, ['--zns-qos', '100'])
    expect('exit code of the page server', server.end().code, 0)
    expect('exit code of the dump', done.code, 0)
    if not done.lines('Warn.*zns options have no effect'):
        raise Failed('no warning')
    copy_images(sent, received)
    comes_back(scene, scene.task, received)


# ---- two hosts -----------------------------------------------------------------------------------------

class Net:
    """Two network namespaces with a cable between them; the caller moves into the first one."""

    ADDRESS = ('10.77.0.1', '10.77.0.2')

    def __init__(self, scene):
        self.names = [f'zt{os.getpid()}{x}' for x in 'ab']
        self.scene = scene
        self._home = os.open('/proc/self/ns/net', os.O_RDONLY)

    @staticmethod
    def _ip(*args):
        done = subprocess.run(['ip', *args], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f'ip {" ".join(args)}: {done.stderr.strip()}')

    @staticmethod
    def _setns(fd):
        if ztlib.libc.setns(fd, 0x40000000):
            raise Failed('cannot enter a network namespace')

    def __enter__(self):
        for name in self.names:
            self._ip('netns', 'add', name)
        self._ip('-n', self.names[0], 'link', 'add', 'cable', 'type', 'veth', 'peer', 'name', 'cable', 'netns', self.names[1])
        for name, address in zip(self.names, self.ADDRESS):
            self._ip('-n', name, 'addr', 'add', f'{address}/24', 'dev', 'cable')
            for link in ('lo', 'cable'):
                self._ip('-n', name, 'link', 'set', link, 'up')
        fd = os.open(f'/run/netns/{self.names[0]}', os.O_RDONLY)
        self._setns(fd)
        os.close(fd)
        return self

    @property
    def other(self):
        """The words before a command that make it run on the other host."""
        return ['nsenter', f'--net=/run/netns/{self.names[1]}']

    def __exit__(self, *_):
        self._setns(self._home)
        os.close(self._home)
        for name in self.names:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True)


def certificates(directory):
    """A certificate authority, and a certificate for each host; returns criu's options for both."""
    def openssl(*args):
        done = subprocess.run(['openssl', *args], cwd=directory, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f'openssl {args[0]}: {done.stderr.strip()[-300:]}')
    directory.mkdir()
    openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=authority', '-keyout', 'ca.key', '-out', 'ca.crt')
    options = []
    for name, address in zip('ab', Net.ADDRESS):
        (directory / f'{name}.ext').write_text(f'subjectAltName=IP:{address},DNS:{address}\n')
        openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', f'/CN={address}', '-keyout', f'{name}.key', '-out', f'{name}.csr')
        openssl('x509', '-req', '-in', f'{name}.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2',
                '-extfile', f'{name}.ext', '-out', f'{name}.crt')
        options.append(['--tls', '--tls-cacert', str(directory / 'ca.crt'), '--tls-cert', str(directory / f'{name}.crt'),
                        '--tls-key', str(directory / f'{name}.key')])
    # otherwise criu expects the client's certificate to be for the server's own address
    options[1].append('--tls-no-cn-verify')
    return options


def move(scene, secure):
    """Follows Documentation/inside/migration.md, from a host with a device to another one with a device of its own."""
    scene = scene(size=1)
    far = Device(scene.cfg, directory=scene.dir / 'far')
    far.create(*FAST)
    try:
        with Net(scene) as net:
            tls = certificates(scene.dir / 'tls') if secure else [[], []]
            task = started(scene, 'redis')
            before = ztlib.footprint(task.pid)
            sent, received, port = fresh(scene, 'sent'), fresh(scene, 'received'), free_port()
            server = Daemon(scene, ['page-server', '-D', received, '--address', net.ADDRESS[1], '--port', port, '--zns-qos', '400',
                                    '--zns-container', 'shop', *tls[1]], env=far.env, prefix=net.other)
            done = send(scene, task, sent, port, tls[0], address=net.ADDRESS[1])
            ended = server.end()
            if done.code or ended.code:
                raise Failed(f'dump {done.code}, page server {ended.code}: {" | ".join((done.errors() + ended.errors())[-4:])}')
            copy_images(sent, received)
            shutil.rmtree(sent)
            log = scene.log()
            args = ztlib.restore_args(task, received, log)
            done = subprocess.run([*net.other, scene.cfg.criu, *map(str, args)], env=far.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=scene.cfg.timeout)
            if done.returncode:
                raise Failed(f'restore: exit {done.returncode}: {" | ".join(Outcome(0, log).errors()[-3:])}')
            task.restored(int(Path(str(log) + '.pid').read_text()))
            expect('network namespace of the task', os.stat(f'/proc/{task.pid}/ns/net').st_ino,
                   os.stat(f'/run/netns/{net.names[1]}').st_ino)
            ztlib.check_footprint(before, ztlib.footprint(task.pid))
            task.verify()
            expect('exit code of the join', far.ctl('import', '--join', str(received)).returncode, 0)
            expect('checkpoints on the far host', [c['state'] for c in far.checkpoints()], ['committed'])
            expect('checkpoints on the near host', scene.ids(), [])
            expect('exit code of verify', far.ctl('verify', '--all').returncode, 0)
    finally:
        far.close()


@case
def two_hosts(scene):
    """From one host to another: each has its network namespace, device and configuration; then joined and verified."""
    move(scene, False)


@case
def two_hosts_tls(scene):
    """Like two_hosts, with TLS."""
    move(scene, True)


# ---- one checkpoint, one handle ------------------------------------------------------------------------

def state_of(scene, ident):
    return next(c['state'] for c in scene.device.checkpoints() if c['id'] == ident)


def joined(scene, received, code=0, env=None):
    done = subprocess.run([scene.cfg.znsctl, 'import', '--join', str(received), '--json'], env=env or scene.device.env,
                          capture_output=True, text=True, timeout=scene.cfg.timeout)
    if bool(done.returncode) != bool(code) or done.returncode < 0:
        raise Failed(f'import --join: exit {done.returncode}: {done.stderr.strip()}')
    return done.stderr.strip() if code else json.loads(done.stdout)


def whole(scene, task, received, pages):
    """After a join the id alone restores, and every command treats the checkpoint as any other."""
    expect('state', state_of(scene, pages), 'committed')
    expect('number of checkpoints', len(scene.ids()), 1)
    for command in (['verify', pages], ['show', str(received)], ['fsck']):
        done = scene.device.ctl(*command)
        if done.returncode:
            raise Failed(f'znsctl {command[0]}: exit {done.returncode}: {done.stdout.strip()} {done.stderr.strip()}')
    if scene.device.json('show', str(received))['handle']['differ']:
        raise Failed('the handle says that copies differ')
    exported, empty = fresh(scene, 'exported'), fresh(scene, 'empty')
    done = scene.device.ctl('export', pages, str(exported))
    expect('exit code of export', done.returncode, 0)
    plain = copy.copy(scene.cfg)
    plain.stock = True
    ztlib.restore(plain, task, exported, scene.log())
    task.verify(signal.SIGUSR1)
    ztlib.kill(task.pid)
    wait_until(lambda: not alive(task.pid), 5)
    comes_back(scene, task, empty, extra=['--zns-checkpoint', pages])


@case
def join(scene):
    """import --join: the checkpoint keeps id and handle, and is complete; it can be used by id, exported and
    verified; a second join changes nothing."""
    scene = scene(size=24)
    sent, received, pages = transfer(scene, scene.task)
    expect('state', state_of(scene, pages), 'pages-only')
    if 'only the pages' not in joined(scene, received, code=1):
        raise Failed('a join with nothing gives no reason')
    done = scene.device.ctl('export', pages, str(fresh(scene, 'exported')))
    if not done.returncode or 'pages only' not in done.stderr:
        raise Failed(f'export of pages only: exit {done.returncode}: {done.stderr.strip()}')
    copy_images(sent, received)
    said = joined(scene, received)
    expect('id of the join', said['id'], pages)
    if 'nothing to join' not in joined(scene, received, code=1):
        raise Failed('a second join gives no reason')
    whole(scene, scene.task, received, pages)
    for p in received.iterdir():    # from here on the handle alone is enough
        if p.name != HANDLE:
            p.unlink()
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not alive(scene.task.pid), 5)
    comes_back(scene, scene.task, received)
    scene.device.remove(pages)
    scene.store_as_before()


@case
def join_bad_write(scene):
    """All writes of a join from the nth on fail, for each n: the pages stay unjoined, and the directory restores all the time."""
    scene = scene(size=8)
    sent, received, pages = transfer(scene, scene.task)
    copy_images(sent, received)
    for n in range(50):
        env = scene.faulty(None, f'write-after={n}x*')
        done = subprocess.run([ztlib.znsctl_of(scene.cfg, env), 'import', '--join', str(received)], env=env, capture_output=True, text=True, timeout=60)
        if not done.returncode:
            break
        if not re.search('zones failed|media error|injected', done.stderr):
            raise Failed(f'join: {done.stderr.strip()}')
        expect('state', state_of(scene, pages), 'pages-only')
    if not n:
        raise Failed('no write failed')
    whole(scene, scene.task, received, pages)


@case
def join_encrypted(scene):
    """A join of pages that were received encrypted uses the same key, also at a second attempt after a failed one."""
    scene = scene(size=8)
    key = scene.dir / 'key'
    for command in (['key', 'create', str(key)], ['key', 'use', f'file:{key}']):
        done = scene.device.ctl(*command)
        if done.returncode:
            raise Failed(f'znsctl {" ".join(command)}: {done.stderr.strip()}')
    sent, received, pages = transfer(scene, scene.task)
    copy_images(sent, received)
    seals = scene.dir / 'seals'
    env = dict(scene.faulty(None, 'write-after=1x*'), ZNS_NONCES=str(seals))
    done = subprocess.run([ztlib.znsctl_of(scene.cfg, env), 'import', '--join', str(received)], env=env, capture_output=True, text=True, timeout=60)
    if not done.returncode:
        raise Failed('a join with a failing write succeeded')
    expect('state', state_of(scene, pages), 'pages-only')
    env = ztlib.controlled(scene.device.env, ZNS_NONCES=str(seals))
    done = subprocess.run([ztlib.znsctl_of(scene.cfg, env), 'import', '--join', str(received)], env=env, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Failed(f'join: {done.stderr.strip()}')
    ztlib.nonces_once(seals, 4)
    whole(scene, scene.task, received, pages)
    key.rename(scene.dir / 'elsewhere')
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not alive(scene.task.pid), 5)
    scene.restore_must_fail('key', images=received)


@case
def join_lost_log(scene):
    """fsck --rebuild finds the footers from before and after a join: the later one counts."""
    scene = scene(size=8)
    scene.device.needs_emulator('needs a catalogue that can be lost')
    sent, received, pages = transfer(scene, scene.task)
    copy_images(sent, received)
    joined(scene, received)
    scene.end_broker(signal.SIGTERM)
    done = scene.device.ctl('fsck', '--rebuild', '--force')
    if done.returncode:
        raise Failed(f'fsck --rebuild: {done.stdout.strip()} {done.stderr.strip()}')
    whole(scene, scene.task, received, pages)


@case
def join_gone(scene):
    """Pages that were removed, or that gc --unjoined removes, are reported as removed; retention does not count pages that are not joined."""
    scene = scene(size=8)
    scene.device.json('retain', 'migrated', '--keep', '1')
    sent, received, pages = transfer(scene, scene.task)
    copy_images(sent, received)
    joined(scene, received)
    comes_back(scene, scene.task, received)
    again, late, more = transfer(scene, scene.task)
    copy_images(again, late)
    comes_back(scene, scene.task, late)
    expect('checkpoints beside pages that are not joined', scene.ids(), sorted([pages, more]))
    swept = scene.device.json('gc')
    expect('removed without being asked to', swept['removed'], 0)
    expect('what gc tells of', [c['id'] for c in swept['checkpoints']], [more])
    expect('removed', scene.device.json('gc', '--unjoined', '0')['removed'], 1)
    if 'znsctl gc' not in joined(scene, late, code=1):
        raise Failed('a join with removed pages does not say by what')
    expect('checkpoints', scene.ids(), [pages])


# ---- lazy pages ----------------------------------------------------------------------------------------

def lazy_daemon(scene, images, extra=(), **args):
    return Daemon(scene, ['lazy-pages', '-D', images, *extra], **args)


def lazily_back(scene, task, images, daemon_extra=(), before=None):
    """Restores with a daemon that fills memory on demand; returns when all pages are there."""
    daemon = lazy_daemon(scene, images, daemon_extra)
    try:
        # The daemon's socket is in its working directory.
        done = scene.restore(images=images, task=task, extra=['--lazy-pages'])
        if done.code:
            daemon.stop()
            raise Failed(f'restore --lazy-pages: exit {done.code}: {" | ".join(done.lines("Error")[-3:])}; daemon: '
                         f'{" | ".join(Outcome(0, daemon.log).errors()[-3:])}')
        if before:
            ztlib.check_footprint(before, ztlib.footprint(task.pid), task.forks)
        task.verify(signal.SIGUSR1)
        ended = daemon.end()
        if ended.code:
            raise Failed(f'lazy-pages: exit {ended.code}: {" | ".join(ended.lines("Error")[-3:])}')
    finally:
        daemon.stop()
    if task.program == 'bigmem':    # other programs check themselves only once
        task.verify(signal.SIGUSR1)
    scene.no_helpers()
    return done


def lazy_local(scene, program, flavour):
    scene = scene(size=1)
    task = started(scene, program, flavour)
    before = ztlib.footprint(task.pid)
    scene.good_dump(task=task)
    done = lazily_back(scene, task, scene.images, before=before)
    if not any(int(n) for l in done.lines('nr_lazy:') for n in re.findall(r'nr_lazy: *(\d+)', l)):
        raise Failed('no page was left to the daemon')


for _program, _flavour in (('redis', 'h'), ('bigmem', 'h'), ('cowtree', 'h'), ('threads', 'h'), ('anon', 'ns'),
                           ('shmanon', 'h'), ('churn', 'h')):
    def _case(scene, p=_program, f=_flavour):
        lazy_local(scene, p, f)
    _case.__doc__ = f'{_program} ({_flavour}): restore --lazy-pages, the daemon reads from zones'
    CASES[f'lazy-{_program}'] = _case


def wipe_lazy(images):
    """Damages all pages that a lazy-pages daemon fetches; returns how many bytes."""
    page, pe_lazy, pe_present, wiped = 4096, 2, 4, 0
    for pagemap in images.glob('pagemap-*.img'):
        head, *entries = ztproto.image(pagemap.read_bytes())
        with open(images / f'pages-{head[1]}.img', 'r+b') as pages:
            off = 0
            for e in entries:
                size = e.get(5, e.get(2)) * page
                if e[4] & pe_lazy:
                    pages.seek(off)
                    pages.write(b'\xee' * size)
                    wiped += size
                off += size if e[4] & pe_present else 0
    return wiped


@case
def lazy_remote(scene):
    """Lazy pages from another host's zones: page-server --lazy-pages there, lazy-pages --page-server here."""
    scene = scene(size=64)
    scene.good_dump()
    copied, port = fresh(scene, 'copied'), free_port()
    exported = fresh(scene, 'exported')
    exported.rmdir()
    done = scene.device.ctl('export', str(scene.images), str(exported))
    expect('exit code of export', done.returncode, 0)
    shutil.copytree(exported, copied, dirs_exist_ok=True)
    if wipe_lazy(copied) < 8 << 20:
        raise Failed('hardly any page is lazy')
    shutil.rmtree(exported)
    source = Daemon(scene, ['page-server', '--lazy-pages', '-D', scene.images, '--address', HERE, '--port', port])
    try:
        lazily_back(scene, scene.task, copied, ['--page-server', '--address', HERE, '--port', port])
        expect('exit code of the source', source.end().code, 0)
    finally:
        source.stop()


@case
def post_copy(scene):
    """dump --lazy-pages into zones: the process's private pages follow over the network when they are needed."""
    scene = scene(size=64)
    port, log = free_port(), scene.log()
    images = fresh(scene, 'images')
    args = ztlib.dump_args(scene.cfg, scene.task, images, log, 'errors',
                           ['--lazy-pages', '--address', HERE, '--port', str(port), '--status-fd'])
    ready, status = os.pipe()
    with open(str(log) + '.stderr', 'ab') as err:
        dump = subprocess.Popen([scene.cfg.criu, *args, str(status)], env=scene.device.env, stdin=subprocess.DEVNULL,
                                stdout=err, stderr=err, pass_fds=[status])
    os.close(status)
    if not os.read(ready, 1):
        raise Failed(f'dump --lazy-pages: {" | ".join(Outcome(0, log).errors()[-3:])}')
    os.close(ready)
    # Without the daemon the pages are missing, and the error says so.
    plain = scene.restore(images=images)
    plain.must_fail('dumped with --lazy-pages')
    # On one machine the PIDs are taken while the source lives, so the receiver has a PID namespace of its own.
    inner = scene.log()
    daemon = lazy_daemon(scene, images, ['--page-server', '--address', HERE, '--port', port])
    args = ztlib.restore_args(scene.task, images, inner)
    pidfile = args[args.index('--pidfile') + 1]
    try:
        done = subprocess.run(['unshare', '--pid', '--fork', '--mount-proc', 'sh', '-c',
                               '"$@" && kill -USR1 $(cat "$0") && for i in $(seq 600); do '
                               'kill -0 $(cat "$0") && [ ! -s "$ZT_OUT" ] || break; sleep 0.1; done',
                               str(pidfile), scene.cfg.criu, *map(str, args), '--lazy-pages'],
                              env=dict(scene.device.env, ZT_OUT=str(scene.task.dir / 'out')),
                              capture_output=True, text=True, timeout=scene.cfg.timeout)
        if done.returncode:
            raise Failed(f'restore: exit {done.returncode}: {" | ".join(Outcome(0, inner).errors()[-3:])} {done.stderr}')
    finally:
        daemon.stop()
        dump.kill()
        dump.wait()
    verdict = scene.task._out()
    if not verdict or not verdict[-1].startswith('PASS '):
        raise Failed(f'the program says {verdict}')
    if verdict[-1].split()[1] != scene.task.digest:
        raise Failed(f'digest is {verdict[-1].split()[1]}, was {scene.task.digest}')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'migration', CASES))
