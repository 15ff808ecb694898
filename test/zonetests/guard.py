#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
guard: refuses in one line, on zones and in a directory, what CRIU would dump without its memory; dump though it cannot
be restored; wait for without end; or find undumpable after copying memory. Processes that only look like one of these
are dumped (held.c, refused.c).

  guard.py list | run NAME... | run -a
"""
import copy
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from migration import lazy_daemon
from ztlib import Failed, Skipped, Task, alive, wait_until
from ztscene import Outcome, case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
# name, criu's command, options, on zones?
KINDS = (('dump', 'dump', (), True), ('live', 'dump', ('--zns-live', '--leave-running'), True), ('pre-dump', 'pre-dump', (), True),
         ('plain', 'dump', ('--leave-running',), False))


def new_task(scene, program, mode):
    """Makes this program in that mode the scene's task."""
    directory = scene.dir / f'{program}-{len(scene.tasks)}'
    directory.mkdir()
    (directory / 'mode').write_text(mode)
    task = Task(directory, program)
    scene.tasks.append(task)
    scene.task = task.start().wait_ready()
    scene.remember()
    return scene


def held(scene, mode):
    """A scene whose task is held.c in that mode."""
    return new_task(scene(size=1), 'held', mode)


def refused(scene, *patterns, early=True, kinds=KINDS, runs=True):
    """Checks that each kind of dump refuses in one line, and that the task runs on. early: the task is not stopped
    for it. runs: no other process holds the task stopped."""
    for name, command, options, zones in kinds:
        cfg = copy.copy(scene.cfg)
        cfg.stock = not zones
        images = scene.dir / f'images-{name}-{scene.calls}'
        images.mkdir()
        log = scene.log()
        args = ztlib.dump_args(cfg, scene.task, images, log, 'guard', options)
        if command == 'pre-dump':
            args[0] = command
        done = Outcome(ztlib.run_criu(cfg, args, log).returncode, log)
        done.must_fail(*patterns)
        said = done.lines('Error.*zns: ')
        if len(said) != 1:
            raise Failed(f'{name}: {len(said)} lines of ours: {" | ".join(said)}')
        if early and done.lines(r'\) Seized task|\tSeizing'):
            raise Failed(f'{name}: the task was stopped before that was said')
        more = [line for line in done.lines(r'Error \(') if not re.search('zns: |FAILED', line)]
        if early and zones and more:
            raise Failed(f'{name}: an error beside ours: {" | ".join(more)}')
        left = sorted(p.name for p in images.glob('pages-*.img'))
        if left:
            raise Failed(f'{name} has written {left}')
        if runs:
            scene.unharmed(images)


def dumped(scene):
    """A tree that was refused is dumped once the obstacle is gone; one without an obstacle at once."""
    scene.works()


def released(scene):
    (scene.task.dir / 'release').touch()
    scene.task.verify(signal.SIGUSR1)
    dumped(scene)


def areas(pid, flag):
    """The areas of the process that have this flag in smaps."""
    found, area = [], ''
    with open(f'/proc/{pid}/smaps', encoding='ascii', errors='replace') as smaps:
        for line in smaps:
            area = line.split()[0] if re.match(r'[0-9a-f]+-', line) else area
            if line.startswith('VmFlags:') and flag in line.split():
                found.append(area)
    return found


@case
def other_user(scene):
    """A task of another user, and no CAP_SYS_RESOURCE: refused before it is stopped, with the capability's name."""
    scene = scene(size=1)
    other = subprocess.Popen(['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', 'sleep', '600'], start_new_session=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not wait_until(lambda: Path(f'/proc/{other.pid}/comm').read_text() == 'sleep\n', 60):
            raise Failed('no other task')
        log = scene.log()
        done = subprocess.run(['setpriv', '--bounding-set=-sys_resource', scene.cfg.criu, 'dump', '-t', str(other.pid), '-D', scene.images, '-o', log,
                               *ztlib.zns_options(scene.cfg, 'other')], env=scene.device.env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        Outcome(done.returncode, log).must_fail(rf'Process {other.pid} \(sleep\).*CAP_SYS_RESOURCE is missing')
    finally:
        other.kill()
        other.wait()
    scene.no_helpers()


@case
def missing(scene):
    """Half of the process's pages are with another process, behind a userfaultfd: refused; after that process has
    released the range, the dump has all pages."""
    scene = held(scene, 'missing')
    area, = areas(scene.task.pid, 'um')
    refused(scene, rf'Process {scene.task.pid} \(held\) has memory at {area} behind a userfaultfd', 'end the program that holds it',
            early=False)
    released(scene)


@case
def own(scene):
    """A process with a userfaultfd of its own is refused before it is stopped, and dumped once that is closed."""
    scene = held(scene, 'own')
    refused(scene, rf'Process {scene.task.pid} \(held\) .*behind a userfaultfd', 'holds it itself')
    released(scene)


@case
def own_child(scene):
    """Like own, in a child: no process of the tree is stopped."""
    scene = held(scene, 'child own')
    child = next(p for p in ztlib.tree(scene.task.pid) if p != scene.task.pid)
    refused(scene, rf'Process {child} \(held\) .*behind a userfaultfd', 'holds it itself')


@case
def write_protected(scene):
    """An area that another process only write-protects lacks no page, and is dumped."""
    scene = held(scene, 'protected')
    if not areas(scene.task.pid, 'uw'):
        raise Failed('nothing is write-protected')
    dumped(scene)


def ring_case(mode):
    def ring(scene):
        scene = held(scene, mode)
        refused(scene, rf'Process {scene.task.pid} \(held\) uses io_uring: its thread \d+ ')
        (scene.task.dir / 'release').touch()
        scene.task.verify(signal.SIGUSR1)
        wait_until(lambda: len(os.listdir(f'/proc/{scene.task.pid}/task')) == 1, 10)
        dumped(scene)
    return ring


CASES['sqpoll'] = ring_case('sqpoll')
CASES['sqpoll'].__doc__ = 'A ring whose submissions a kernel thread takes (SQPOLL); dumped once it is closed.'
CASES['sqpoll-away'] = ring_case('sqpoll-away')
CASES['sqpoll-away'].__doc__ = 'The same where another process has the ring: nothing but the thread is left.'


@case
def sqpoll_child(scene):
    """Like sqpoll, in a child."""
    scene = held(scene, 'child sqpoll')
    child = next(p for p in ztlib.tree(scene.task.pid) if p != scene.task.pid)
    refused(scene, rf'Process {child} \(held\) uses io_uring')


@case
def worker(scene):
    """A worker of io_uring that waits in a read is refused."""
    scene = held(scene, 'worker')
    refused(scene, rf'Process {scene.task.pid} \(held\) uses io_uring')


@case
def named(scene):
    """A thread that the program has given the name of an io_uring thread is dumped like any other."""
    dumped(held(scene, 'named'))


@case
def lazy(scene):
    """A process whose memory a lazy restore is still filling is refused, with the daemon's PID; it is dumped when the daemon has ended."""
    scene = scene(size=24)
    scene.good_dump()
    daemon = lazy_daemon(scene, scene.images, ['--zns-record=3600'])    # brings what is touched, and hardly anything else
    try:
        done = scene.restore(extra=['--lazy-pages'])
        if done.code:
            raise Failed(f'restore --lazy-pages: exit {done.code}: {" | ".join(done.lines("Error")[-3:])}')
        stopped = scene.helpers()     # stopping the daemon would end its epoll_wait with EINTR
        for pid in stopped:
            ztlib.kill(pid, signal.SIGSTOP)
        if not areas(scene.task.pid, 'um'):
            raise Failed('the memory was filled too soon for this test')
        images = scene.dir / 'images-lazy'
        images.mkdir()
        refusal = scene.dump(images=images)
        for pid in stopped:
            ztlib.kill(pid, signal.SIGCONT)
        refusal.must_fail(rf'Process {scene.task.pid} \(bigmem\)', 'a lazy restore still fills it',
                          rf'lazy-pages daemon \((process|one of processes) .*\b{daemon.proc.pid}\b')
        scene.task.verify(signal.SIGUSR1)
        expect('exit of the daemon', daemon.end().code, 0)
    finally:
        daemon.stop()
    expect('areas behind a userfaultfd', areas(scene.task.pid, 'um'), [])
    scene.remember()
    if not alive(scene.task.pid):
        raise Failed('the task has gone')
    scene.works()


def refuse_each(scene, modes, kinds):
    """For each mode of refused.c: the dump says the text in @modes ({pid}: the process's PID), and works when the obstacle has ended."""
    scene = scene(size=1)
    for mode, said in modes.items():
        try:
            new_task(scene, 'refused', mode)
        except Skipped as e:
            print(f'     {mode}: {e}')
            continue
        refused(scene, said.format(pid=scene.task.pid), kinds=kinds)
        released(scene)
        scene.task.end()


@case
def spaces(scene):
    """A child in another namespace than its parent, the host's or a new one: stock CRIU would dump it and refuse to restore it."""
    refuse_each(scene, {f'{where}-{name}': f'in another {name} namespace than its parent {{pid}} \\(refused\\)'
                        for where, name in (('outside', 'time'), ('outside', 'uts'), ('outside', 'ipc'), ('inside', 'net'),
                                            ('inside', 'mnt'))}, KINDS[1:4:2])


@case
def spaces_own(scene):
    """A tree in a network namespace of its own with a child in another new one is dumped, since a restore can make both."""
    scene = scene(size=1)
    directory = scene.dir / 'ns'
    directory.mkdir()
    task = Task(directory, 'refused', flavour='ns')
    scene.tasks.append(task)
    root = task.make_root()
    (root / 'zt' / 'mode').write_text('inside-net')
    shutil.copy(ztlib.PROGS / 'refused', root / 'prog')
    task.launch_in(root, ['/prog', '--dir', '/zt'])
    scene.task = task.wait_ready()
    dumped(scene)


@case
def traced(scene):
    """A process under a debugger is refused, with the debugger's name."""
    scene = new_task(scene(size=1), 'refused', 'traced')
    refused(scene, rf'Process {scene.task.pid} \(refused\) is traced by process \d+ \(refused\)', runs=False)
    released(scene)


@case
def traced_by_a_pager(scene):
    """The guard does not refuse a program traced by its pager, since a pager lets go by itself. This pager never does, and criu finds that out."""
    scene = new_task(scene(size=1), 'refused', 'paged')
    done = scene.dump()
    expect('the guard', (done.code, done.lines('is traced by process')), (1, []))
    released(scene)


@case
def waits_in_vfork(scene):
    """A process in vfork(), which no signal can stop, is refused after a wait of some seconds; no process is kept waiting."""
    refuse_each(scene, {'vfork': r'\(refused\) waits in vfork\(\)'}, KINDS[3:])


@case
def files(scene):
    """Open files that CRIU cannot dump are refused."""
    refuse_each(scene, {mode: rf'Process {{pid}} \(refused\) has {what} open \(descriptor \d+\)' for mode, what in (
        ('ring', r'anon_inode:\[io_uring\]'), ('perf', r'anon_inode:\[perf_event\]'), ('bpf', 'anon_inode:bpf-map'),
        ('ruleset', r'anon_inode:\[landlock-ruleset\]'), ('uffd', 'a userfaultfd'), ('secret', r'secret memory \(memfd_secret\)'),
        ('fuse', r'device /dev/fuse \(10:229\)'), ('queue', r'POSIX message queue /zns-refused \(deleted\)'))}, KINDS[3:])


@case
def deleted(scene):
    """A deleted file above --ghost-limit: the error has its size, and the option that allows it."""
    scene = new_task(scene(size=1), 'refused', 'deleted')
    kinds = [k for k in KINDS if k[1] == 'dump']
    refused(scene, r'has a deleted file of 4096 KiB open \(descriptor \d+, \S*/deleted.*--ghost-limit 5M.*zns.ghost-limit=5M',
            kinds=kinds)
    scene.task.dump_opts += ['--ghost-limit', '5M']
    dumped(scene)


def restored_plainly(scene):
    """Like restored, without zones."""
    cfg = copy.copy(scene.cfg)
    cfg.stock = True
    images = scene.dir / 'images-plain'
    ztlib.dump(cfg, scene.task, images, scene.log(), 'guard')
    log = scene.log()
    done = Outcome(ztlib.run_criu(cfg, ztlib.restore_args(scene.task, images, log), log).returncode, log)
    expect('exit of a restore without zones', done.code, 0)
    scene.task.restored(int(log.with_name(log.name + '.pid').read_text()))
    scene.task.verify(signal.SIGUSR1)


@case
def settings(scene):
    """Each thread's CPUs, MLOCK_ONFAULT, PR_SET_MDWE and PR_SET_MEMORY_MERGE are the same after a restore (settings.c)."""
    scene = new_task(scene(size=1), 'settings', '-')
    dumped(scene)
    restored_plainly(scene)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'guard', CASES))
