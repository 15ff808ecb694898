#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
livedump: dumps of tasks that run on (criu dump --zns-live): what they print, what they refuse, and what is left when a
process dies in the middle. `zonetests.py run -a --live` shows that the memory is right: there each page is compared in
the freeze.

  livedump.py list | run NAME... | run -a
  livedump.py soak [--dumps N]         N live dumps of a program that never stops writing, each restored and checked
"""
import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import ztlib
from ztfuse import SlowFile, UNANSWERED
from ztlib import Failed, Skipped, wait_until
from ztscene import BY_DEFAULT, DIES, SLOW, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)
LIVE = ['--zns-live', '--leave-running']


def live_dump(scene, *extra, **more):
    """Makes a live dump that must succeed; returns what `show --json` prints."""
    images = scene.dir / f'live-{scene.calls}'
    images.mkdir()
    scene.good_dump(extra=[*LIVE, *extra], images=images, **more)
    shown = scene.device.json('show', str(images))['live']
    if shown['tracker'] == 'none':
        raise Skipped('this kernel tracks no written pages')
    return images, shown


def rests(shown):
    """{reason: bytes} of what was copied in the freeze."""
    return {r['why']: r['bytes'] for r in shown['rests']}


def end_tree(task):
    pids = ztlib.tree(task.pid)
    for pid in pids:
        ztlib.kill(pid)
    if not wait_until(lambda: not any(map(ztlib.alive, pids)), 10):
        raise Failed('a killed process does not end')


def no_protection(scene):
    if re.search(r'^VmFlags:.* u[wm]\b', ztlib.smaps(scene.task.pid), re.M):
        raise Failed('the task still has write protection')


def unharmed(scene):
    if not wait_until(lambda: not scene.helpers(), 15):
        raise Failed('a zns-helper is left')
    no_protection(scene)
    scene.unharmed()


# ---- output ----

@case
def idle(scene):
    """A task that does nothing: all but a few pages are copied while it runs, and it is restored from there."""
    scene = scene(size=64)
    images, shown = live_dump(scene)
    running = sum(r['bytes'] for r in shown['rounds'])
    frozen = sum(rests(shown).values())
    if running < 64 << 20 or frozen > 4 << 20:
        raise Failed(f'{running} bytes were copied while it ran, {frozen} in the freeze')
    no_protection(scene)
    scene.task.verify(signal.SIGUSR1)
    scene.task.end()
    scene.good_restore(images=images)
    text = scene.device.ctl('show', str(images)).stdout
    if not re.search(r'^live +tracker (uffd|soft-dirty), ', text, re.M):
        raise Failed('znsctl show does not say that it was live')


@case
def durable(scene):
    """=durable commits before the task runs on; without --leave-running it does so too."""
    scene = scene(size=32)
    for extra, ends in (['--zns-live=durable', '--leave-running'], False), (['--zns-live'], True):
        images = scene.dir / f'images-{ends}'
        images.mkdir()
        done = scene.dump(extra=extra, images=images)
        if done.code:
            raise Failed(f'exit {done.code}: {" | ".join(done.errors()[-3:])}')
        log = '\n'.join(done.log)
        if log.index('zns: checkpoint', log.index('zns: live:')) > log.index('Unfreezing tasks'):
            raise Failed('the commit came after the thaw')
        if ends:
            wait_until(lambda: not ztlib.alive(scene.task.pid), 5)
            scene.good_restore(images=images)
    scene.task.verify(signal.SIGUSR1)


def how(scene, n, *extra, leave='--leave-running'):
    """Makes a dump without other options; returns live, durable or ordinary, by its record and its log."""
    images = scene.dir / f'how-{n}'
    images.mkdir()
    done = scene.dump(extra=[BY_DEFAULT, *extra, *([leave] if leave else [])], images=images)
    if done.code:
        raise Failed(f'exit {done.code}: {" | ".join(done.errors()[-3:])}')
    if not scene.device.json('show', str(images)).get('live'):
        return 'plain'
    log = '\n'.join(done.log)
    late = log.rindex('zns: checkpoint') > log.index('Unfreezing tasks')
    return 'live' if late else 'durable'


@case
def by_default(scene):
    """
    A dump that leaves its tasks running is live, unless an option, zns.conf or a frozen control group says otherwise.
    With a script after the dump it commits before the tasks run. A dump that ends or stops its tasks is not live.
    """
    scene = scene(size=8)
    live_dump(scene)            # skips if the kernel cannot make live dumps
    conf = Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf'
    was = conf.read_text() if conf.exists() else ''
    script = scene.dir / 'script'
    script.write_text('#!/bin/sh\n')
    script.chmod(0o755)
    for n, (live, extra, wanted) in enumerate((
            ('', [], 'live'), ('', ['--zns-live=no'], 'plain'), ('', ['--zns-live=yes', '--zns-live=no'], 'plain'),
            ('', ['--zns-live=auto'], 'live'), ('', ['--action-script', script], 'durable'),
            ('', ['--zns-live', '--action-script', script], 'live'), ('', ['--zns-live=no', '--zns-live'], 'live'),
            ('no', [], 'plain'), ('no', ['--zns-live'], 'live'), ('no', ['--zns-live=auto'], 'live'), ('durable', [], 'durable'),
            ('yes', [], 'live'), ('yes', ['--zns-live=no'], 'plain'), ('auto', [], 'live'),
            ('', ['--zns-cgroup', 'leave'], 'live'))):
        conf.write_text(was + (f'live = {live}\n' if live else ''))
        expect(f'"live = {live}" and {extra}', how(scene, n, *extra), wanted)
    conf.write_text(was + 'live = soon\n')
    scene.dump(extra=[BY_DEFAULT, '--leave-running']).must_fail('live in zns.conf: auto, yes, no or durable')
    conf.write_text(was)
    with frozen(scene.task.pid) as group:
        expect('of a frozen group', how(scene, 'frozen', '--freeze-cgroup', group), 'plain')
    expect('the default of one that stops them', how(scene, 'stops', leave='--leave-stopped'), 'plain')
    os.kill(scene.task.pid, signal.SIGCONT)
    scene.task.verify(signal.SIGUSR1)
    expect('the default of one that ends them', how(scene, 'ends', leave=None), 'plain')
    wait_until(lambda: not ztlib.alive(scene.task.pid), 5)
    scene.good_restore(images=scene.dir / 'how-ends')


@contextlib.contextmanager
def frozen(pid):
    """A control group of its own that is frozen, of either version."""
    for top, state, word, events in ('/sys/fs/cgroup/freezer', 'freezer.state', 'FROZEN', 'freezer.state'), \
            ('/sys/fs/cgroup/unified', 'cgroup.freeze', '1', 'cgroup.events'), ('/sys/fs/cgroup', 'cgroup.freeze', '1', 'cgroup.events'):
        group = Path(top) / f'zt-frozen-{pid}'
        if (Path(top) / 'cgroup.procs').exists():
            try:
                group.mkdir()
                (group / state).stat()
                break
            except OSError:
                if group.exists():
                    group.rmdir()
    else:
        raise Skipped('no control groups that can be frozen')
    try:
        (group / 'cgroup.procs').write_text(str(pid))
        (group / state).write_text(word)
        if not wait_until(lambda: re.search('FROZEN|frozen 1', (group / events).read_text()), 10):
            raise Failed('the group does not freeze')
        yield group
    finally:
        (group / state).write_text('THAWED' if word == 'FROZEN' else '0')
        (Path(top) / 'cgroup.procs').write_text(str(pid))
        wait_until(lambda: not (group / 'cgroup.procs').read_text(), 5)
        group.rmdir()


@case
def late_commit(scene):
    """Without =durable the task runs first, and the checkpoint is committed afterwards."""
    scene = scene(size=32)
    done = scene.dump(extra=LIVE)
    expect('the exit code', done.code, 0)
    log = '\n'.join(done.log)
    if log.rindex('zns: checkpoint') < log.index('Unfreezing tasks'):
        raise Failed('the commit came before the thaw')


@case
def shared_memory(scene):
    """Shared memory is copied in the freeze, and the dump prints its bytes."""
    scene = scene(size=8)
    task = scene.new_task(program='shmanon')
    scene.task.end()
    scene.task = task
    images, shown = live_dump(scene, task=task)
    if not rests(shown).get('shared memory'):
        raise Failed(f'no shared memory is told: {shown["rests"]}')
    end_tree(task)
    scene.good_restore(images=images, task=task)


AIO = """
import ctypes, sys, time
libc, context = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0)
if libc.syscall(206, 8, ctypes.byref(context)) < 0:     # io_setup
    sys.exit('no io_setup')
print('ready', flush=True)
time.sleep(1000)
"""


@case
def asynchronous_io(scene):
    """A process with an AIO context is copied in the freeze as a whole, and the dump prints the reason."""
    scene = scene(size=8)
    with open(scene.dir / 'out', 'wb') as out:
        child = subprocess.Popen([sys.executable, '-c', AIO], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 start_new_session=True)
    try:
        if not wait_until(lambda: (scene.dir / 'out').read_text() == 'ready\n', 10):
            raise Failed('no process with asynchronous I/O')
        args = ['dump', '-t', str(child.pid), '-D', scene.images, '-o', scene.dir / 'aio.log', '-v4', *LIVE,
                '--zns-container', 'aio']
        done = ztlib.run_criu(scene.cfg, args, scene.dir / 'aio.log', scene.device.env)
        expect('the exit code', done.returncode, 0)
        shown = scene.device.json('show', str(scene.images))['live']
        found = [r for r in shown['rests'] if 'asynchronous I/O' in r['why'] and r['bytes'] > 1 << 20]
        if not found or found[0].get('pid') != child.pid:
            raise Failed(f'the reason is not told: {shown["rests"]}')
    finally:
        child.kill()
        child.wait()


@case
def unanswered_file(scene):
    """
    While memory is being copied, a file of a FUSE file system that does not answer is mapped over it: the task is left
    to the freeze. A file of such a file system that was mapped before is not tracked at all.
    """
    scene = scene(size=8)
    quick, slow = SlowFile(scene.dir / 'quick', 1), SlowFile(scene.dir / 'slow', 2)
    quick.release()
    out = scene.dir / 'out'
    with open(out, 'wb') as f:
        child = subprocess.Popen([sys.executable, '-c', UNANSWERED, quick.directory / 'data', slow.directory / 'data'],
                                 stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True)
    task, scene.task.pid = scene.task.pid, child.pid
    try:
        if not wait_until(lambda: out.read_text() == 'ready\n', 20):
            raise Failed(f'the program says {out.read_text()}')
        started = in_rounds(scene)
        if re.search(r' /\S*quick/data\n(?:[A-Z].*\n)*VmFlags:.* u[wm]\b', ztlib.smaps(child.pid)):
            raise Failed('a file that may not answer is tracked')
        os.kill(child.pid, signal.SIGUSR1)
        if not wait_until(lambda: 'put' in out.read_text(), 20):
            raise Failed('the program did not get the file')
        scene.go_on()
        log = Path(started[1])
        if not wait_until(lambda: 'live: 0 of 1 tasks tracked' in log.read_text(errors='replace'), 60):
            raise Failed('the helper waits for a file that nobody brings')
        if not slow.reading.is_set():
            raise Failed('the rounds did not come to the file')
        slow.release()
        expect('the exit code', scene.end_of(started).code, 0)
        if not any('did not answer' in r['why'] and r['bytes'] > 64 << 20 for r in scene.device.json('show', str(scene.images))['live']['rests']):
            raise Failed('the reason is not told')
    finally:
        child.kill()
        child.wait()
        scene.task.pid = task
        quick.close()
        slow.close()


# ---- refused ----

@case
def registers(scene):
    """Each thread's registers, signal stack and signal mask are the same after a dump, and after a criu that SIGKILL ended in the freeze."""
    scene = scene(size=1)
    scene.task.end()
    task = scene.new_task(program='registers')
    for n, (extra, env) in enumerate(((['--zns-live'], {}), (['--zns-live=no'], {}), (['--zns-live=no'], {'CRIU_FAULT': '1'}))):
        images = scene.dir / f'registers-{n}'
        images.mkdir()
        done = scene.dump(task=task, images=images, extra=[BY_DEFAULT, '--leave-running', *extra], env={**scene.device.env, **env})
        expect('the exit code', done.code, -signal.SIGKILL if env else 0)
        task.verify(signal.SIGUSR1)
    task.end()
    scene.good_restore(task=task, images=scene.dir / 'registers-0')


@case
def switches(scene):
    """criu wakes a task few times: it asks all its questions at once."""
    scene = scene(size=1)

    def count():
        text = Path(f'/proc/{scene.task.pid}/status').read_text()
        return int(re.search(r'^voluntary_ctxt_switches:\s+(\d+)', text, re.M)[1])

    before = count()
    scene.good_dump(extra=[BY_DEFAULT, '--leave-running', '--zns-live=no'])
    if count() - before > 16:       # usually 13; with one question for each kind of state 24
        raise Failed(f'the task was woken {count() - before} times')


@case
def awake(scene):
    """CPUs are kept awake while the tasks of a live dump are frozen; an ordinary dump, which takes longer, does not ask for that."""
    if not os.access('/dev/cpu_dma_latency', os.W_OK):
        raise Skipped('no /dev/cpu_dma_latency')
    scene = scene(size=1)
    look = scene.dir / 'look'
    look.write_text('#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" != post-dump ] || '
                    f'ls -l /proc/$PPID/fd | grep -c cpu_dma_latency >{scene.dir}/held\nexit 0\n')
    look.chmod(0o755)
    for live, held in ('--zns-live=yes', '1'), ('--zns-live=no', '0'):
        images = scene.dir / f'images{live}'
        images.mkdir()
        scene.good_dump(extra=[live, '--leave-running', '--action-script', look], images=images)
        expect(f'{live}: requests', (scene.dir / 'held').read_text().strip(), held)


@case
def refused(scene):
    """Bad values and impossible combinations: one line, and the task is not touched."""
    scene = scene(size=8)
    for extra, says in (['--zns-live=soon'], 'it takes auto, yes, no or durable'), \
            (['--zns-live', '--zns-live-slow', 'wait'], 'it takes freeze or fail'), \
            (['--zns-live', '--lazy-pages', '--address', '127.0.0.1', '--port', '9'], 'does not work with --lazy-pages'):
        done = scene.dump(extra=extra)
        if not done.code or not done.lines(re.escape(says)):
            raise Failed(f'{extra}: exit {done.code}: {" | ".join(done.errors()[-3:])}')
        scene.unharmed()


@case
def too_fast(scene):
    """A task that writes faster than the dump copies is frozen for longer, or the dump is refused; the dump says which."""
    scene = scene(SLOW, size=8)
    slow = ['--zns-qos-max', '30']
    scene.task = scene.new_task(program='busy')
    scene.dump(extra=[*LIVE, '--zns-live-slow', 'fail', *slow], qos='10').must_fail('write faster than they are copied')
    unharmed(scene)         # ends the task
    scene.task = scene.new_task(program='busy')
    images, shown = live_dump(scene, *slow, qos='10')
    if not shown['not_converging']:
        raise Failed('nothing says that the rounds came to no end')
    rounds = [r['bytes'] for r in shown['rounds']]
    if len(rounds) != 1:
        raise Failed(f'rounds that do not shrink are copied: {rounds}')
    end_tree(scene.task)
    scene.good_restore(images=images)


def narrow(data_zones):
    """A device with that many zones of 8 MiB for data, on two dies."""
    return ['--channels', '2', '--ways', '1', '--die-write-bw', '100', '--zones', str(data_zones + 3), '--zone-size', '8M',
            '--timing', 'off']


def without_rounds(scene, size, program='rewrite', encrypt=False):
    """A live dump with room for one copy but not for two: the rounds' copies are given up, and it can be restored."""
    scene.task.end()
    if encrypt:
        key = f'{scene.dir}/key'
        run_ctl(scene, 0, 'key', 'create', key)
        run_ctl(scene, 0, 'key', 'use', f'file:{key}')
    scene.task = scene.new_task(size, program)
    scene.remember()
    plain = scene.dir / 'plain'
    plain.mkdir()
    scene.device.remove(scene.good_dump(extra=['--leave-running'], images=plain, qos='100'))
    wait_until(lambda: scene.device.free_zones() == scene.free_before, 10)
    images = scene.dir / 'without-rounds'
    images.mkdir()
    env = ztlib.controlled(scene.device.env, ZNS_LIVE_VERIFY='1')
    seals = scene.dir / 'seals'
    if encrypt:
        env.update(ztlib.controls(ZNS_NONCES=str(seals)))
    done = scene.dump(extra=LIVE, images=images, qos='100', env=env)
    expect('the exit code', done.code, 0)
    if encrypt and len(ztlib.nonces_once(seals, 100)) < 2:
        raise Failed('the second writer has the key of the first one')
    said = done.lines('zns: live: .*has no room for copies of rounds, .* were given up')
    if not said:
        raise Failed(f'nothing says that rounds were given up: {done.lines("zns: live:")}')
    shown = scene.device.json('show', str(images))['live']
    if shown['not_converging'] or shown['rounds'] or 'the device has no room for copies of rounds' not in rests(shown):
        raise Failed(f'show says {shown}')
    if scene.device.ctl('verify', scene.ids()[-1]).returncode:
        raise Failed('what was committed is not right')
    end_tree(scene.task)
    scene.good_restore(images=images)


@case
def no_room_for_the_rest(scene):
    """A device with room for one copy, but not for two, of a task that writes without a pause: it is frozen for all of its memory."""
    without_rounds(scene(narrow(12), size=1), None, 'busy')


@case
def no_room_in_a_round(scene):
    """The same, when a round finds it out by failing; encrypted, so the second writer has another key."""
    without_rounds(scene(narrow(13), size=1), 64, encrypt=True)


@case
def zone_lost_in_a_round(scene):
    """A zone with copies of a round goes offline: the rounds are given up, the freeze copies everything, and the dump can be restored."""
    scene = scene(size=64)
    images = scene.dir / 'lost'
    images.mkdir()
    # one group only: with more, the zone of the failing write might have no copy yet
    done = scene.dump(extra=[*LIVE, '--zns-live-slow', 'fail'], qos='10', fault='offline-after=20')
    done.must_fail('a zone failed and lost copies of rounds .--zns-live-slow fail.')
    expect('the checkpoints', scene.ids(), [])
    done = scene.dump(extra=LIVE, images=images, qos='10', fault='offline-after=20')
    expect('the exit code', done.code, 0)
    if not done.lines('zns: live: .*a zone failed and lost copies of rounds, .* were given up'):
        raise Failed(f'nothing says that rounds were given up: {done.lines("zns: live:")}')
    if 'a zone failed and lost copies of rounds' not in rests(scene.device.json('show', str(images))['live']):
        raise Failed('show does not say why the freeze copied everything')
    if scene.device.ctl('verify', scene.ids()[-1]).returncode:
        raise Failed('what was committed is not right')
    scene.task.verify(signal.SIGUSR1)
    end_tree(scene.task)
    scene.good_restore(images=images)


@case
def no_room_at_all(scene):
    """No room even for one copy: the error says how much is needed and how much is free. And =fail of --zns-live-slow without room for rounds."""
    scene = scene(narrow(12), size=1)
    scene.task.end()
    scene.task = scene.new_task(96, 'rewrite')
    scene.dump(extra=LIVE, qos='100').must_fail('has no room for this checkpoint: about .* are needed, and .* are free')
    unharmed(scene)
    scene.task = scene.new_task(64, 'rewrite')
    scene.dump(extra=[*LIVE, '--zns-live-slow', 'fail'], qos='100').must_fail('no room for the rounds of a live dump|write faster')
    unharmed(scene)


# ---- a process dies ----

def in_rounds(scene):
    """A live dump that is copying, its helper stopped at a barrier."""
    started = scene.start_dump(extra=LIVE, qos='10', stop_after=8)
    scene.at_barrier()
    if not re.search(r'^VmFlags:.* u[wm]\b', ztlib.smaps(scene.task.pid), re.M):
        raise Skipped('the task is not protected: this kernel tracks no written pages')
    if ztlib.traced(scene.task.pid):
        raise Failed('the task is frozen already')
    return started


def after_thaw(scene):
    """A live dump whose task runs again, and whose commit waits for a stopped broker."""
    started = in_rounds(scene)
    os.kill(scene.device.status()['broker_pid'], signal.SIGSTOP)
    scene.go_on()
    log = Path(started[1])
    if not wait_until(lambda: 'Unseizing' in log.read_text(errors='replace'), 30, 0.002):
        raise Failed('the task was never thawed')
    return started


def victims(scene, who):
    if who == 'helper':
        return scene.helpers()
    return [scene.broker_pid()]


def asked_already(scene):
    """criu dies after it has asked for the commit: the commit goes on, and the checkpoint is complete."""
    if not wait_until(lambda: not scene.helpers(), 30):
        raise Failed('a zns-helper is left')
    new = sorted(set(scene.ids()) - set(scene.ids_before))
    if not new:
        return
    scene.task.end()
    scene.good_restore()
    scene.device.remove(*new)
    (scene.images / ztlib.HANDLE).unlink()


def kill_in(when, who):
    def run(scene):
        # One zone takes everything, so the rounds need not ask the stopped broker for another.
        scene = scene([*DIES, '--zones', '64', '--zone-size', '64M', '--timing', 'off'], size=48)
        started = when(scene)
        broker = scene.broker_pid()
        if who == 'criu':
            started[0].kill()
            started[0].wait()
        else:
            for pid in victims(scene, who):
                ztlib.kill(pid)
        os.kill(broker, signal.SIGCONT) if who != 'broker' else None
        scene.go_on()
        if who != 'criu':
            scene.end_of(started).must_fail({'helper': 'helper', 'broker': 'died'}[who])
        if who == 'criu' and when is after_thaw:
            asked_already(scene)
        unharmed(scene)
        scene.works()
    return run


for when, where in (in_rounds, 'rounds'), (after_thaw, 'late'):
    for who in 'criu', 'helper', 'broker':
        CASES[f'kill-{who}-{where}'] = kill_in(when, who)
        CASES[f'kill-{who}-{where}'].__doc__ = f'kill -9 of the {who}, {where}: the task runs, nothing is left, no record.'


# ---- soak -----------------------------------------------------------------------------------------------

def soak_one(cfg, n):
    """Makes one live dump of a program that never stops writing, with comparison; restores it, and the program checks itself."""
    directory = cfg.base / f'soak-{n}'
    directory.mkdir()
    task = ztlib.Task(directory, ('busy', 'churn', 'cowtree')[n % 3], 'h', (), [])
    try:
        task.start().wait_ready()
        time.sleep(0.2)
        ztlib.dump(cfg, task, directory / 'images', directory / 'dump.log', f'soak-{n}')
        pages = [int(k) for k in re.findall(r'live: task \d+ has (\d+) pages.* verified', (directory / 'dump.log').read_text())]
        ztlib.restore(cfg, task, directory / 'images', directory / 'restore.log', [])
        task.verify()
    finally:
        task.end()
        cfg.device.forget(f'soak-{n}')
    shutil.rmtree(directory)
    return sum(pages)


def soak(args):
    """Live dumps of running programs in which each step depends on all earlier ones: each is restored, and replays its steps."""
    cfg = ztlib.Config(args)
    cfg.live = 'must'
    cfg.open_device()
    done, failed, pages = 0, 0, 0
    try:
        for n in range(args.dumps):
            try:
                pages += soak_one(cfg, n)
                done += 1
            except Failed as e:
                failed += 1
                cfg.keep = True     # removes its logs
                print(f'FAIL dump {n}: {e}', flush=True)
            if (n + 1) % 50 == 0:
                print(f'{n + 1} dumps: {done} restored and right, {failed} failed, {pages} pages compared', flush=True)
    finally:
        cfg.close()
    print(f'{pages} pages compared in the freeze')
    print(f'{done} passed, {failed} failed, 0 skipped')
    return done != args.dumps


def main():
    if len(sys.argv) > 1 and sys.argv[1] == 'soak':
        parser = argparse.ArgumentParser(prog='livedump.py soak')
        parser.add_argument('--dumps', type=int, default=1000)
        ztlib.common_options(parser)
        ztlib.become_subreaper()
        ztlib.build_programs()
        return soak(parser.parse_args(sys.argv[2:]))
    return suite_main(__doc__, 'livedump', CASES)


if __name__ == '__main__':
    sys.exit(main())
