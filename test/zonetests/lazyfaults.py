#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
lazyfaults: during a lazy restore, the processes that bring its pages die, or the pages are lost. No task may read a
wrong byte: it is dead, or it has all of its memory (Documentation/inside/migration.md, "When it goes wrong").

  lazyfaults.py list | run NAME... | run -a

Every test program checks its own memory. With --zns-record=3600 the daemon fetches only what is touched, and one piece
each half second, so accidents find most of the memory missing, however busy the machine is. Accidents at random
moments: lazysoak.py.
"""
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from errors import flip_on_device, page_of_task
from migration import Daemon, HERE, copy_images, free_port, fresh, lazy_daemon, transfer, wipe_lazy
from ztfds import descriptors
from ztlib import Failed, Skipped, alive, wait_until
from ztscene import Outcome, case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
STILL = ['--zns-record=3600']
LOST = r'ended before all pages were in place: \d+ restored tasks were killed'
FOR_S = 60      # limit in seconds for all waits, far more than any step here needs


def until(true, what):
    if not wait_until(true, FOR_S):
        raise Failed(f'{what}: not within {FOR_S} s')


def no_holder(scene):
    until(lambda: not any(map(alive, scene._ours('zns-holder'))), 'the end of the holder')


def lazily(scene, daemon):
    done = scene.restore(extra=['--lazy-pages'])
    if done.code:
        raise Failed(f'restore --lazy-pages: exit {done.code}: {" | ".join(done.errors()[-3:])}; daemon: '
                     f'{" | ".join(Outcome(0, daemon.log).errors()[-3:])}')


def begin(scene, task, images):
    """Begins a restore in the background; wait for it with scene.end_of()."""
    log = scene.log()
    args = [*ztlib.restore_args(task, images, log), '--lazy-pages']
    with open(str(log) + '.stderr', 'ab') as err:
        return subprocess.Popen([scene.cfg.criu, *map(str, args)], env=scene.device.env, stdin=subprocess.DEVNULL, stdout=err,
                                stderr=err), log


def dumped(scene, program='bigmem', size=64, damaged=False):
    """A scene with a checkpoint of that program, which has ended. damaged: one byte of its memory is changed on the device."""
    scene = scene(size=size)
    if program != 'bigmem':
        scene.task.end()
        scene.task = scene.new_task(program=program)
    content = page_of_task(scene)
    scene.good_dump()
    if damaged:
        flip_on_device(scene, content)
    return scene


def is_dead(task, pids=()):
    """Asks the task to check its memory: it must end without an answer."""
    for pid in (task.pid, *pids):
        ztlib.kill(pid, signal.SIGUSR1)
    until(lambda: task._out() or not any(map(alive, (task.pid, *pids))), 'the end of a task that has lost pages')
    if task._out():
        raise Failed(f'the task says: {" | ".join(task._out())}')


def lost(scene, daemon, code, *lines):
    """Checks the state after the accident: the task is gone, the daemon has this exit code and these lines in its log, and no process is left."""
    ztlib.kill(scene.task.pid, signal.SIGUSR1)      # at this signal the task touches all of its memory
    expect('exit code of the daemon', daemon.end().code, code)
    is_dead(scene.task)
    no_holder(scene)
    ended = Outcome(code, daemon.log)     # also has what the holder prints
    for line in (LOST, *lines):
        if not ended.lines(line):
            raise Failed(f'no line says /{line}/: {" | ".join(ended.errors()[-3:])}')
    scene.no_helpers()


@case
def whole(scene):
    """The control without an accident: the task has its memory, and no process is left or killed."""
    scene = dumped(scene)
    daemon = lazy_daemon(scene, scene.images)
    lazily(scene, daemon)
    expect('exit code of the daemon', daemon.end().code, 0)
    scene.task.verify(signal.SIGUSR1)
    no_holder(scene)
    if Outcome(0, daemon.log).lines(LOST):
        raise Failed('the log speaks of killed tasks')


@case
def damaged_unit(scene):
    """A byte is changed on the device: the task is killed when it touches it."""
    scene = dumped(scene, damaged=True)
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    lost(scene, daemon, 1, 'is damaged')


@case
def live_checkpoint(scene):
    """The same for a live checkpoint, whose memory also comes when it is touched."""
    scene = scene(size=64)
    scene.good_dump(extra=['--zns-live'])
    lost(scene, killed(scene, its_helper), 1, 'zns-helper died')


@case
def awake(scene):
    """CPUs are kept awake from the moment in which the tasks run, but not for long: the daemon stops doing so while most pages are still missing."""
    if not os.access('/dev/cpu_dma_latency', os.W_OK):
        raise Skipped('no /dev/cpu_dma_latency')
    scene = dumped(scene)
    daemon = lazy_daemon(scene, scene.images, STILL)

    def asks():
        return any(link == '/dev/cpu_dma_latency' for _, link in descriptors(daemon.proc.pid))

    expect('CPUs are kept awake before the restore', asks(), False)
    restore = begin(scene, scene.task, scene.images)
    until(asks, 'CPUs that are kept awake')
    expect('exit code of the restore', scene.end_of(restore).code, 0)
    until(lambda: not asks(), 'CPUs that may sleep')
    expect('the daemon has ended', daemon.proc.poll(), None)
    daemon.stop()
    no_holder(scene)


@case
def nothing_lazy(scene):
    """No page that a page server received from a tracked task is lazy. A daemon that has nothing to do does not fail."""
    scene = scene(size=8)
    sent, received, _ = transfer(scene, scene.task, dump_extra=["--track-mem"])
    copy_images(sent, received)
    daemon = lazy_daemon(scene, received)
    done = scene.restore(images=received, extra=['--lazy-pages'])
    expect('exit code of the restore', done.code, 0)
    ended = daemon.end()
    expect('exit code of the daemon', ended.code, 0)
    if not ended.lines('Found 0 pages to be handled'):
        raise Failed('there are lazy pages')
    scene.task.verify(signal.SIGUSR1)
    no_holder(scene)


@case
def stack_at_an_edge(scene):
    """A task whose stack pointer is a multiple of the page size is restored as lazily as any other: the damage is found by the daemon."""
    scene = dumped(scene, 'stackedge', damaged=True)
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    lost(scene, daemon, 1, 'is damaged')


@case
def read_error(scene):
    """The device cannot read from some page on."""
    scene = dumped(scene)
    for n in (60, 100, 200):
        daemon = lazy_daemon(scene, scene.images, STILL, env=scene.faulty(None, f'read-after={n}x*'))
        lazily(scene, daemon)
        lost(scene, daemon, 1, 'media error')


def killed(scene, who):
    """Begins a lazy restore and kills the given processes when it has brought few pages; returns the daemon."""
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    for pid in who(scene, daemon):
        ztlib.kill(pid)
    return daemon


def the_daemon(scene, daemon):
    return [daemon.proc.pid]


def its_helper(scene, daemon):
    return scene.helpers()


@case
def helper_killed(scene):
    """kill -9 of zns-helper."""
    scene = dumped(scene)
    lost(scene, killed(scene, its_helper), 1, 'zns-helper died')


@case
def daemon_killed(scene):
    """kill -9 of the lazy-pages daemon."""
    scene = dumped(scene)
    lost(scene, killed(scene, the_daemon), -signal.SIGKILL)


@case
def both_killed(scene):
    """kill -9 of daemon and helper, in this order: the other way round, the daemon might see its helper end and exit with 1."""
    scene = dumped(scene)
    lost(scene, killed(scene, lambda *a: the_daemon(*a) + its_helper(*a)), -signal.SIGKILL)


@case
def asked_to_end(scene):
    """SIGTERM to the daemon's whole process group, as a terminal or a service manager sends it."""
    scene = dumped(scene)
    daemon = lazy_daemon(scene, scene.images, STILL, prefix=['setsid'])
    lazily(scene, daemon)
    os.killpg(daemon.proc.pid, signal.SIGTERM)
    lost(scene, daemon, -signal.SIGTERM)


@case
def broker_killed(scene):
    """kill -9 of the broker: pages still arrive."""
    scene = dumped(scene)
    daemon = killed(scene, lambda scene, daemon: [scene.broker_pid()])
    scene.task.verify(signal.SIGUSR1)
    expect('exit code of the daemon', daemon.end().code, 0)
    scene.task.verify(signal.SIGUSR1)
    no_holder(scene)


def holder_of(scene):
    return next(filter(alive, scene._ours('zns-holder')), None)


@case
def stopped(scene):
    """All processes that bring pages are stopped and continued, as by a debugger or a freezer: the pages still arrive."""
    scene = dumped(scene)
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    for pid in (*the_daemon(scene, daemon), *its_helper(scene, daemon), holder_of(scene), scene.broker_pid()):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2][0] == 'T', 'a stop')
        os.kill(pid, signal.SIGCONT)
        until(lambda: Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2][0] != 'T', 'the end of a stop')
    scene.task.verify(signal.SIGUSR1)
    expect('exit code of the daemon', daemon.end().code, 0)
    no_holder(scene)


@case
def moved(scene):
    """Memory is moved while several faults on it wait for the helper: each page arrives where it is by then."""
    scene = dumped(scene, program='moves', size=1)
    scene.patient()
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)

    def seen(lines, what):
        until(lambda: len(Outcome(0, daemon.log).lines(what)) >= lines, f'{lines} lines of {what}')

    for pid in its_helper(scene, daemon):
        os.kill(pid, signal.SIGSTOP)
    scene.task.verify(signal.SIGUSR1)
    seen(4, '#PF at')       # of 8 blocks; the background has brought parts of some
    os.kill(scene.task.pid, signal.SIGUSR1)
    seen(8, 'REMAP: ')
    for pid in its_helper(scene, daemon):
        os.kill(pid, signal.SIGCONT)
    scene.task.verify(signal.SIGUSR1)
    expect('exit code of the daemon', daemon.end().code, 0)
    no_holder(scene)


@case
def holder_killed(scene):
    """kill -9 of the holder: the daemon starts another one, which acts as the first would have."""
    scene = dumped(scene)
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    first = holder_of(scene)
    ztlib.kill(first)
    until(lambda: holder_of(scene) not in (None, first), 'another holder')
    ztlib.kill(daemon.proc.pid)
    lost(scene, daemon, -signal.SIGKILL, 'another one is started')


@case
def before_it_listens(scene):
    """The daemon dies before it has received a userfaultfd: the restore waits for the daemon without a limit, sees its end, and fails."""
    os.environ['GLIBC_TUNABLES'] = 'glibc.pthread.rseq=0'   # otherwise the restore itself would have a page fault
    scene = dumped(scene)
    daemon = lazy_daemon(scene, scene.images)
    os.kill(daemon.proc.pid, signal.SIGSTOP)
    restore = begin(scene, scene.task, scene.images)
    until(lambda: Outcome(0, restore[1]).lines('Waiting for the lazy-pages daemon'), 'a restore that is ready')
    ztlib.kill(daemon.proc.pid)
    done = scene.end_of(restore)
    if done.code <= 0 or not done.lines('The lazy-pages daemon died'):
        raise Failed(f'restore: exit {done.code}: {" | ".join(done.errors()[-3:])}')
    until(lambda: not alive(scene.task.pid), 'the end of a restore that failed')
    expect('what the task says', scene.task._out(), [])
    no_holder(scene)


@case
def tree(scene):
    """The daemon of a tree of processes is killed, after one of them has ended."""
    scene = dumped(scene, 'cowtree')
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    pids = ztlib.tree(scene.task.pid)
    expect('processes', len(pids), 7)
    ztlib.kill(pids[-1])
    ztlib.kill(daemon.proc.pid)
    is_dead(scene.task, pids[1:-1])
    no_holder(scene)
    if not Outcome(0, daemon.log).lines(LOST):
        raise Failed('the log does not speak of killed tasks')


@case
def namespaces(scene):
    """Tasks in namespaces of their own, where they have other PIDs."""
    scene = scene(size=8)
    directory = scene.dir / 'task-ns'
    directory.mkdir()
    scene.task.end()
    scene.task = ztlib.Task(directory, 'cowtree', 'ns')
    scene.tasks.append(scene.task)
    scene.task.start().wait_ready()
    scene.good_dump()
    daemon = killed(scene, the_daemon)
    lost(scene, daemon, -signal.SIGKILL)


@case
def forked_child(scene):
    """A child forked after the restore: the holder does not know its PID, so it gets SIGBUS for missing pages."""
    if tuple(map(int, os.uname().release.split('.')[:2])) < (6, 6):
        raise Skipped('needs UFFDIO_POISON (Linux 6.6)')
    scene = dumped(scene, 'lazyfork')
    daemon = lazy_daemon(scene, scene.images, STILL)
    lazily(scene, daemon)
    os.kill(scene.task.pid, signal.SIGUSR1)
    path = scene.task.dir / 'child'
    until(path.exists, 'a child')
    child = int(path.read_text())
    ztlib.kill(daemon.proc.pid)
    until(lambda: not alive(scene.task.pid), 'the end of the restored task')
    os.kill(child, signal.SIGUSR1)
    until(lambda: not alive(child), 'the end of its child')
    expect('what the child says', scene.task._out(), [])
    no_holder(scene)
    if not Outcome(0, daemon.log).lines('A child of a restored task gets SIGBUS'):
        raise Failed('the log does not speak of the child')


@case
def source_killed(scene):
    """The page server dies before it has sent a page."""
    scene = dumped(scene)
    copied, port = fresh(scene, 'copied'), free_port()
    exported = scene.dir / 'exported'
    expect('exit code of export', scene.device.ctl('export', str(scene.images), str(exported)).returncode, 0)
    shutil.copytree(exported, copied, dirs_exist_ok=True)
    if wipe_lazy(copied) < 8 << 20:
        raise Failed('hardly any page is lazy')
    source = Daemon(scene, ['page-server', '--lazy-pages', '-D', scene.images, '--address', HERE, '--port', port,
                            '--zns-qos-max', '1'])
    try:
        daemon = lazy_daemon(scene, copied, ['--page-server', '--address', HERE, '--port', port])
        done = scene.restore(images=copied, extra=['--lazy-pages'])
        expect('exit code of the restore', done.code, 0)
        source.stop()
        lost(scene, daemon, 1, 'Remote side closed connection|page server')
    finally:
        source.stop()


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'lazyfaults', CASES))
