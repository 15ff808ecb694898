#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
migration: page servers that keep what they receive on zones, lazy pages from zones, two hosts (Documentation/migration.md).

A host is a device with a configuration and a runtime directory of its own; in the case two-hosts also a network
namespace.

  migration.py list | run NAME... | run -a
"""
import copy
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import ztlib
from ztlib import Device, Failed, HANDLE, Task, alive, wait_until
from ztredis import RedisTask
from ztscene import DIES, FAST, Outcome, TINY, suite_main

CASES = {}
HERE = '127.0.0.1'


def case(func):
    CASES[func.__name__.replace('_', '-')] = func
    return func


def expect(what, got, want):
    if got != want:
        raise Failed(f'{what} is {got}, not {want}')


def free_port():
    with socket.socket() as s:
        s.bind((HERE, 0))
        return s.getsockname()[1]


class Daemon:
    """criu as a server: it is there when it says so on its status descriptor."""

    def __init__(self, scene, args, env=None, prefix=()):
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

    @staticmethod
    def _byte(fd):
        try:
            return os.read(fd, 1)
        except BlockingIOError:
            return b''

    def end(self):
        """Its outcome, when it ends by itself."""
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
    directory = scene.dir / f'{name}-{scene.calls}'
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
    """What scp or rsync would do: all images of the sender into the receiver's directory."""
    names = [p.name for p in source.iterdir() if p.suffix == '.img']
    for name in names:
        shutil.copy(source / name, target)
    return names


def transfer(scene, task, extra=(), dump_extra=()):
    """Page server, dump, copy: (sender's directory, receiver's directory, id of the pages)."""
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


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'migration', CASES))
