#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
rates: caps, progress, and the rates that are reported, on real dumps and restores.

  rates.py list | run NAME... | run -a
"""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import ztlib
from ztlib import Failed, alive, wait_until
from ztscene import case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
CAP = 40        # MiB/s; a cap that is never exceeded, however slow the machine is
# Dies so slow that even a busy machine can keep all of them working, with writes and reads.
LAZY = ['--channels', '4', '--ways', '2', '--die-write-bw', '4', '--die-read-bw', '4', '--zones', '64', '--zone-size', '16M', '--timing', 'on']
ALL = 8 * 4     # MiB/s of all eight dies


def lines_of(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    if not found:
        raise Failed(f'nothing in {path}')
    return found


def check_lines(lines, op, container):
    """Checks the JSON lines: begin, some progress, done; the bytes never fall, and end at the last line's value."""
    expect('events', (lines[0]['event'], lines[-1]['event']), ('begin', 'done'))
    expect('events in between', {x['event'] for x in lines[1:-1]}, {'progress'})
    expect('what they are of', {(x['op'], x['container'], x['checkpoint']) for x in lines},
           {(op, container, lines[0]['checkpoint'])})
    done = [x['bytes'] for x in lines]
    if done != sorted(done) or not any(0 < n < done[-1] for n in done):
        raise Failed(f'bytes go {done}')
    expect('limits', {x['limit_mibps'] for x in lines}, {CAP})


@case
def caps_and_progress(scene):
    """A dump and a restore with a cap: their JSON lines, the leases meanwhile, the record, and the restore's figures agree."""
    scene = scene(size=96)
    env = dict(scene.device.env, ZNS_PROGRESS=str(scene.dir / 'dump.json'))
    seen = []
    log = scene.log()
    command = scene.dump_command(log, ['--zns-qos-max', str(CAP)], None, None, '30')
    with open(f'{log}.stderr', 'wb') as err:
        criu = subprocess.Popen([scene.cfg.criu, *command], env=env, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        while criu.poll() is None:
            seen += scene.device.status()['leases']
            time.sleep(0.1)
    expect('exit of the dump', criu.returncode, 0)
    live = [x for x in seen if x['bytes'] and x['total'] and x['bytes'] < x['total']]
    if not live:
        raise Failed(f'status showed no progress: {seen[-1:]}')
    expect('limit and cap in status', {(x['limit_mibps'], x['qos_max_mibps']) for x in live}, {(CAP, CAP)})

    ident, = scene.ids()
    shown = scene.device.json('show', ident)
    expect('cap in the record', shown['qos_max_mibps'], CAP)
    if not shown['qos_achieved_mibps'] or shown['qos_achieved_mibps'] > 1.02 * CAP:
        raise Failed(f'a cap of {CAP} MiB/s gave {shown["qos_achieved_mibps"]}')
    expect('last restore before any', shown['last_restore'], None)
    lines = lines_of(scene.dir / 'dump.json')
    check_lines(lines, 'dump', 'errors')
    expect('bytes at the end', lines[-1]['bytes'], shown['bytes'])
    expect('groups at the end', lines[-1]['groups'], len(shown['groups']))

    env['ZNS_PROGRESS'] = str(scene.dir / 'restore.json')
    done = scene.restore(extra=['--zns-qos-max', str(CAP)], env=env)
    expect('exit of the restore', done.code, 0)
    if not done.lines('restored: .* read and verified from'):
        raise Failed('the restore did not log its figures')
    scene.task.verify(10)
    check_lines(lines_of(scene.dir / 'restore.json'), 'restore', 'errors')
    last = scene.device.json('show', ident)['last_restore']
    expect('checkpoint of the last restore', last['checkpoint'], ident)
    if not 1 < last['achieved_mibps'] <= 1.02 * CAP or last['bytes'] < shown['page_bytes']:
        raise Failed(f'the last restore is kept as {last}')
    expect('restores in status', scene.device.status()['restores'], [last])


@case
def cap_in_a_config_file(scene):
    """zns-qos-max works in CRIU's configuration file, and so over RPC."""
    scene = scene(size=64)
    config = scene.dir / 'criu.conf'
    config.write_text(f'zns-qos-max {CAP}MiB/s\n')
    ident = scene.good_dump(extra=['--config', str(config)], qos='20')
    expect('cap in the record', scene.device.json('show', ident)['qos_max_mibps'], CAP)
    scene.good_restore()


@case
def progress_pipe(scene):
    """ZNS_PROGRESS=FD: a pipe without a reader does not delay the dump; with a reader every line arrives whole."""
    scene = scene(size=64)
    r, w = os.pipe()
    env = dict(scene.device.env, ZNS_PROGRESS=str(w))
    log = scene.log()
    command = scene.dump_command(log, ['--leave-running', '--zns-qos-max', str(CAP)], None, None, '30')
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b'x' * 4096)
    except BlockingIOError:
        os.set_blocking(w, True)
    subprocess.run([scene.cfg.criu, *command], env=env, pass_fds=[w], check=True, timeout=scene.cfg.timeout,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    left = b''
    os.set_blocking(r, False)
    try:
        while True:
            left += os.read(r, 65536)
    except BlockingIOError:
        pass
    if left.strip(b'x'):
        raise Failed('lines went into a full pipe')
    os.close(r)
    os.close(w)


@case
def terminal_line(scene):
    """On a terminal: one line that is overwritten, and one that stays."""
    scene = scene(size=96)
    log = scene.log()
    command = scene.dump_command(log, ['--zns-qos-max', str(CAP)], None, None, '30')
    ours, theirs = pty.openpty()
    criu = subprocess.Popen([scene.cfg.criu, *command], env=scene.device.env, stdin=subprocess.DEVNULL, stdout=theirs,
                            stderr=theirs)
    os.close(theirs)
    text = b''
    while True:
        ready, _, _ = select.select([ours], [], [], 60)
        try:
            got = os.read(ours, 4096) if ready else b''
        except OSError:
            got = b''
        if not got:
            break
        text += got
    os.close(ours)
    expect('exit of the dump', criu.wait(), 0)
    text = text.decode()
    if ' MiB/s, ' not in text or 'left\x1b[K' not in text or '\rzns: dump of errors: ' not in text:
        raise Failed(f'no progress on the terminal: {text!r}')
    last = text.rstrip().split('\r')[-1]
    if 'zns: dump of errors: ' not in last or 'asked)' not in last or 'frozen' not in last:
        raise Failed(f'the last line is {last!r}')


@case
def no_terminal(scene):
    """Standard error that is no terminal stays clean; standard output gets one line with the id."""
    scene = scene(size=64)
    scene.good_dump(extra=['--zns-qos-max', str(CAP)], qos='20')
    said = (scene.dir / f'criu-{scene.calls}.log.stderr')
    expect('what is printed', said.read_text(), f'checkpoint {scene.ids()[-1]} of errors\n')


@case
def promise_of_a_restore(scene):
    """Two restores of one checkpoint are not both promised all of its dies: the second waits, is refused, or gets what is left."""
    scene = scene(LAZY, size=48)
    scene.good_dump(qos=str(ALL))
    scene.restore_must_fail('--zns-qos nonsense is no bandwidth', extra=['--zns-qos', 'nonsense'])
    scene.restore_must_fail('--zns-admission perhaps is not known', extra=['--zns-admission', 'perhaps'])
    # more than the checkpoint's dies can give, so the first restore gets all of them
    promise = ['--zns-qos', str(100 * ALL), '--zns-admission']
    scene.patient()
    log = scene.log()
    args = [scene.cfg.criu, *map(str, ztlib.restore_args(scene.task, scene.images, log)), *promise, 'reject']
    with open(f'{log}.stderr', 'wb') as err:
        first = subprocess.Popen(args, env=scene.faulty(None, 'stop-read-after=8'), stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    scene.at_barrier()      # its stopped helper keeps the lease
    for how, line in (('reject', 'has promised its time to others'), ('wait=1', 'not admitted in 1 s: .*has promised its time')):
        scene.restore(extra=[*promise, how]).must_fail(line)
    scene.go_on()
    expect('exit of the first', first.wait(120), 0)
    scene.task.restored(int(Path(f'{log}.pid').read_text()))
    scene.task.verify(10)


@case
def refusals(scene):
    """A rate that cannot be kept or reached is refused in one line, and nothing is harmed."""
    scene = scene()
    scene.failed_dump('zns: a QoS of 300 MiB/s cannot be kept with a cap of 299 MiB/s: lower --zns-qos or raise',
                      extra=['--zns-qos-max', '299'], qos='300')
    scene.failed_dump('--zns-weight 99 is no weight: 100 to 10000', extra=['--zns-weight', '99'])
    scene.failed_dump('--zns-qos-max fast is no bandwidth; write 500', extra=['--zns-qos-max', 'fast'])
    for where, words in (('relative/path', 'neither an absolute path nor the number of an open descriptor'),
                         ('77', 'neither an absolute path nor the number of an open descriptor'),
                         ('/nonexistent/dir/file', "ZNS_PROGRESS: can't open /nonexistent/dir/file")):
        scene.failed_dump(words, env=dict(scene.device.env, ZNS_PROGRESS=where))
    scene.works()


def io_tree():
    """The directory of the I/O controller, and the name of its line in /proc/PID/cgroup."""
    for at, names in (('/sys/fs/cgroup/blkio', 'blkio'), ('/sys/fs/cgroup', '')):
        at = Path(at)
        if (at / 'cgroup.procs').exists() and (names or 'io' in (at / 'cgroup.controllers').read_text().split()):
            return at, names
    return None


def group_of(pid, names):
    """The cgroup of a process in that hierarchy. None: the process has ended."""
    try:
        lines = [l.split(':', 2) for l in Path(f'/proc/{pid}/cgroup').read_text().splitlines()]
    except OSError:
        return None
    return next((l[2] for l in lines if names in l[1].split(',')), None)


@case
def cgroups(scene):
    """--zns-cgroup: the helper's writes are charged to the cgroup that it names; one that is not root's is refused, and no process stays in one."""
    tree = io_tree()
    if not tree:
        scene().works()
        return
    scene, (at, names) = scene(size=64), tree
    group, home = at / f'zns-rates-{os.getpid()}', group_of('self', names)
    group.mkdir()
    try:
        (group / 'cgroup.procs').write_text(str(scene.task.pid))
        for who, where in (('container', f'/{group.name}'), ('own', '/zns-criu'), ('leave', home)):
            made = scene.start_dump(qos='20', extra=['--leave-running', '--zns-cgroup', who], stop_after=20)
            scene.until_writing()
            expect(f'{who}: where the helper is', {group_of(pid, names) for pid in scene.helpers()}, {where})
            scene.go_on()
            expect('exit of the dump', scene.end_of(made).code, 0)
            scene.no_helpers()
        expect('members', (group / 'cgroup.procs').read_text().split(), [str(scene.task.pid)])
        os.chown(group, 1000, 1000)
        for words, who in (('belongs to user 1000', 'container'), ('--zns-cgroup all is not known: leave, own or container', 'all')):
            before = scene.ids()
            scene.dump(extra=['--leave-running', '--zns-cgroup', who]).must_fail(words)
            expect('checkpoints', scene.ids(), before)
    finally:
        if alive(scene.task.pid):
            (at / home.lstrip('/') / 'cgroup.procs').write_text(str(scene.task.pid))
        wait_until(lambda: not (group / 'cgroup.procs').read_text(), 5)
        group.rmdir()


@case
def failure_is_told(scene):
    """A dump that fails half-way ends its JSON lines with the reason."""
    scene = scene(size=64)
    env = dict(scene.device.env, ZNS_PROGRESS=str(scene.dir / 'dump.json'))
    done = scene.dump(fault='write-after=30x*', env=env)
    if not done.code:
        raise Failed('a dump that no zone takes succeeded')
    wait_until(lambda: lines_of(scene.dir / 'dump.json')[-1]['event'] == 'failed', 5)
    last = lines_of(scene.dir / 'dump.json')[-1]
    expect('last event', last['event'], 'failed')
    if 'write' not in last['error']:
        raise Failed(f'the reason is given as {last["error"]!r}')


def start_restore(scene, task, images):
    log = scene.log()
    args = [scene.cfg.criu, *map(str, ztlib.restore_args(task, images, log))]
    with open(f'{log}.stderr', 'wb') as err:
        return subprocess.Popen(args, env=scene.device.env, stdin=subprocess.DEVNULL, stdout=err, stderr=err), log


def told(scene, started):
    """What status prints of containers `heavy` and `light` until both have ended: [{container: (weight, limit)}]."""
    seen = []
    while any(criu.poll() is None for criu, _ in started):
        seen.append({x['container']: (x['weight'], x['limit_mibps']) for x in scene.device.status()['leases']})
        time.sleep(0.02)
    for end in map(scene.end_of, started):
        if end.code:
            raise Failed(f'criu fails beside another one: {" | ".join(end.lines("Error")[-3:])}')
    return seen


def check_told(what, seen, rates):
    """Checks the limits in @seen. While both work, each gets at least its share of @rates, and exactly that while
    both use all of it. Alone a container has no limit."""
    parts = {'light': 0.25, 'heavy': 0.75}
    both = [x for x in seen if set(x) == set(parts) and all(limit for _, limit in x.values())]
    if not both:
        raise Failed(f'{what}: never held beside each other: {seen[:5]} ... {seen[-5:]}')
    expect(f'{what}: weights', {k: {x[k][0] for x in both} for k in parts}, {'heavy': {300}, 'light': {100}})
    # A limit is a whole number of MiB/s. The broker gives away 99 % of a group's rate, and 90 % just after a dump or
    # restore has begun.
    want = {k: rates[k] * 0.99 * part for k, part in parts.items()}
    least = {k: rates[k] * 0.9 * part for k, part in parts.items()}
    few = [x for x in both if any(x[k][1] < least[k] - 1 for k in parts)]
    if few:
        raise Failed(f'{what}: told less than {least}: {few[:3]}')
    just = [x for x in both if all(abs(x[k][1] - want[k]) <= max(1, 0.05 * want[k]) for k in parts)]
    if not just:
        raise Failed(f'{what}: never told {want}: {both[:3]} ... {both[-3:]}')
    # limits computed with the other dump are valid for 20 ms, so the first ones are skipped
    alone = {limit for before, x in zip(seen, seen[1:]) if len(before) == 1 and set(x) == set(before) for _, limit in x.values()}
    expect(f'{what}: limits of one that is alone', alone - {None}, set())


@case.soak('what is told follows the machine: at each look it is the rate of the last 20 ms')
def weights(scene):
    """Two dumps, then two restores, of weights 300 and 100 on the same dies: each gets its share; the weights come
    from the option, the record and tenants.conf."""
    scene = scene(LAZY, size=96)
    (Path(scene.device.env['ZNS_CONFIG']) / 'tenants.conf').write_text('name light weight=100\n')
    jobs = [(scene.task, scene.images, ['--zns-container', 'light']),
            (scene.new_task(96), scene.dir / 'images-heavy', ['--zns-container', 'heavy', '--zns-weight', '300'])]
    jobs[1][1].mkdir()
    check_told('dumps', told(scene, [scene.start_dump(qos=str(ALL), task=t, images=i, extra=e) for t, i, e in jobs]),
               {'light': ALL, 'heavy': ALL})
    made = {c['container']: c for c in scene.device.checkpoints()}
    expect('weights in the records', {k: scene.device.json('show', c['id'])['weight'] for k, c in made.items()},
           {'light': None, 'heavy': 300})
    # A stripe follows the speed of its dies, so one die may have more of the bytes, and that die limits a restore.
    layouts = {c['container']: c for c in scene.device.json('show', '--layout', '--all')['checkpoints']}
    if not wait_until(lambda: not any(alive(t.pid) for t, _, _ in jobs), 5):
        raise Failed('a dumped task is still there')
    started = [start_restore(scene, t, i) for t, i, _ in jobs]
    check_told('restores', told(scene, started), {k: layout['predicted_mibps'] for k, layout in layouts.items()})
    for (task, _, _), (_, log) in zip(jobs, started):
        task.restored(int(Path(f'{log}.pid').read_text()))
        task.verify(10)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'rates', CASES))
