# SPDX-License-Identifier: GPL-2.0-only
"""
Our programs when they are stopped, and the privileges that they keep.

A stopped broker or helper does not keep any user's tasks frozen; an attacker who took over a helper could do little
with it.
"""
import contextlib
import os
import re
import signal
import time
from pathlib import Path

import ztlib
from brokers import proc, started
from tally import tried
from ztlib import Failed, alive, wait_until
from ztscene import SLOW, TINY, case_of

READS_WITH_TASKS = 40   # of 64 units of memory: the restorer has begun, and criu's memory is gone

CASES = {}
case = case_of(CASES)


@contextlib.contextmanager
def configured(scene, line):
    """This line is in zns.conf for a while. Brokers read it when they begin."""
    conf = Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf'
    was = conf.read_text() if conf.exists() else ''
    conf.write_text(f'{was}{line}\n')
    try:
        yield
    finally:
        conf.write_text(was)


class Stopped:
    """Processes that are stopped for a while, and go on whatever happens."""

    def __init__(self, *pids):
        self.pids = pids

    def __enter__(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_):
        for pid in self.pids:
            ztlib.kill(pid, signal.SIGCONT)


def gives_up(scene, started, seconds):
    """The dump fails in one line, and the task goes on, though somebody is still stopped."""
    scene.end_of(started).must_fail(f'no sign of life for {seconds} s')
    if not wait_until(lambda: not ztlib.traced(scene.task.pid), 5):
        raise Failed('the task is still frozen')


@case
def stopped_broker(scene):
    """The broker is stopped in the middle of a dump: ten seconds, then the task runs on."""
    scene = scene(size=64)
    started = scene.start_dump(qos='100', stop_after=20, patient=False)
    scene.until_writing()
    with Stopped(scene.broker_pid()):
        scene.go_on()
        gives_up(scene, started, 10)
    scene.unharmed()
    scene.works(size=32)
    tried('SIGSTOP')


def stopped_helper_in_dump(scene, seconds):
    """Its helper stops itself in the middle of a dump: nothing is lost."""
    gives_up(scene, scene.start_dump(qos='100', stop_after=20, patient=False), seconds)
    scene.unharmed()


@case
def stopped_helper(scene):
    """zns-helper is stopped in the middle of a dump: ten seconds, then the task runs on."""
    scene = scene(size=64)
    stopped_helper_in_dump(scene, 10)
    scene.works(size=32)
    tried('SIGSTOP')


@case
def stopped_soon(scene):
    """The same with another deadline in zns.conf."""
    scene = scene(size=64)
    with configured(scene, 'deadline = 2'):
        scene.end_broker()
        stopped_helper_in_dump(scene, 2)
    scene.works(size=32)
    tried('helper')


@case
def stopped_in_restore(scene):
    """Helper or broker stopped when a restore begins: it fails in one line, no process is left."""
    scene = scene(SLOW, size=64)
    scene.good_dump()
    with configured(scene, 'deadline = 3'):
        with Stopped(scene.broker_pid() or started(scene)):
            scene.restore_must_fail('no sign of life for 3 s')
        tried('broker')
        scene.restore_must_fail('no sign of life for 3 s', fault=f'stop-read-after={READS_WITH_TASKS}')
        tried('helper')
    scene.good_restore()


@case
def long_is_not_dead(scene):
    """Waiting for an admission or for a slow device much longer than the deadline is no reason to give up."""
    scene = scene(SLOW, size=200)
    other = scene.new_task(32)
    images = scene.dir / 'waits'
    images.mkdir()
    with configured(scene, 'deadline = 2'):
        scene.end_broker()
        first = scene.start_dump(qos='20', extra=['--zns-admission', 'wait=1', '--zns-qos-max', '25'])
        if not wait_until(lambda: scene.device.status()['leases']):
            raise Failed('the first dump never began')
        second = scene.start_dump(task=other, images=images, qos='800', extra=['--zns-admission', 'wait=50'])
        for what, dump in (('slow device', first), ('admission', second)):
            done = scene.end_of(dump)
            if done.code:
                raise Failed(f'{what}: {" | ".join(done.lines("Error")[-2:])}')
            tried(what)


@case
def all_stopped(scene):
    """criu, helper, guard and broker stopped together, as a machine may be: nobody is to blame, the dump goes on."""
    scene = scene(size=64)
    with configured(scene, 'deadline = 4'):
        scene.end_broker()
        dump = scene.start_dump(qos='100', stop_after=20)
        scene.until_writing()
        guards = [pid for pid in scene._ours('zns-guard')]
        with Stopped(scene.broker_pid(), dump[0].pid, *scene.helpers(), *guards):
            time.sleep(5)
        done = scene.end_of(dump)
    if done.code:
        raise Failed(f'the dump fails: {" | ".join(done.lines("Error")[-2:])}')
    tried('5 s with a deadline of 4')


@case
def bad_deadlines(scene):
    """A deadline that is none: one line, before any task is frozen."""
    scene = scene(TINY, size=1)
    for text in ('x', '-1', '10s', '3601', '99999999999999999999', '0x10', '1.5'):
        with configured(scene, f'deadline = {text}'):
            done = scene.dump()
        done.must_fail('deadline = ')
        scene.unharmed()
        tried(text)
    with configured(scene, 'deadline = 0'):
        scene.good_dump()


# ---- a successor takes over ----

def rights(pid, thread=None):
    """({effective and permitted capabilities}, no_new_privs) of a process or one of its threads."""
    text = proc(pid, f'task/{thread or pid}/status')
    caps = 0
    for key in ('CapPrm', 'CapEff', 'CapInh', 'CapAmb', 'CapBnd'):
        caps |= int(re.search(rf'^{key}:\s*(\S+)', text, re.M).group(1), 16)
    return {n for n in range(64) if caps >> n & 1}, 'NoNewPrivs:\t1' in text


DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, IPC_LOCK, SYS_PTRACE, SYS_NICE, SYS_RESOURCE = 1, 2, 3, 14, 19, 23, 24


@case
def few_rights(scene):
    """Broker and helper at work have the capabilities of security.md and no others, in every thread, and no network."""
    scene = scene(size=64)
    started(scene)
    dump = scene.start_dump(qos='100', stop_after=20)
    scene.until_writing()
    for pid, most in ((scene.broker_pid(), {DAC_READ_SEARCH}),
                      (scene.helpers()[0], {SYS_PTRACE, DAC_OVERRIDE, FOWNER, IPC_LOCK, SYS_NICE, SYS_RESOURCE})):
        for thread in os.listdir(f'/proc/{pid}/task'):
            try:
                has, no_new = rights(pid, thread)
            except (FileNotFoundError, ProcessLookupError):
                continue        # a thread that has just ended
            if has - most:
                raise Failed(f'{proc(pid, "comm").strip()} has capabilities {sorted(has - most)}')
            if not no_new:
                raise Failed(f'{proc(pid, "comm").strip()} may gain privileges')
        if os.readlink(f'/proc/{pid}/ns/net') == os.readlink('/proc/self/ns/net'):
            raise Failed(f'{proc(pid, "comm").strip()} has the network')
        tried(proc(pid, 'comm').strip())
    scene.go_on()
    if scene.end_of(dump).code:
        raise Failed('the dump fails')
    wait_until(lambda: not alive(scene.task.pid), 5)
    scene.good_restore()


@case
def anybodys_directory(scene):
    """With few rights still possible: an image directory and a device file in places that only another user may enter."""
    scene = scene(size=8)
    home = scene.dir / 'home'
    images = home / 'images'
    images.mkdir(parents=True)
    os.chown(images, 65534, 65534)
    os.chown(home, 65534, 65534)
    images.chmod(0o700)
    home.chmod(0o700)
    scene.good_dump(images=images, extra=['--leave-running'])
    tried('images')
    spec = f'emu:{home}/dev'
    scene.device.json('create', spec, *TINY)
    os.chown(home / 'dev', 65534, 65534)
    more = scene.dir / 'more'
    more.mkdir()
    log = scene.log()
    done = ztlib.run_criu(scene.cfg, [*scene.dump_command(log, ['--leave-running', '--zns-dev', spec], more, None, None)], log)
    if done.returncode:
        raise Failed(f'a dump to a device in the home of another user: {ztlib.log_errors(log)}')
    tried('device')
    out = home / 'metrics.prom'
    run = scene.device.ctl('metrics', '--output', str(out))
    if run.returncode or 'zns_up' not in out.read_text():
        raise Failed(f'metrics into another user\'s directory: {run.stderr.strip()}')
    tried('metrics')
