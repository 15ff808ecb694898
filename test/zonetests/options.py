#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
options: what the options of criu dump and restore do on zones, other than those that say where data go.

--timeout, --freeze-cgroup, action scripts, --leave-running and -stopped, files of plugins, --cpu-cap, --ghost-limit …;
the table is in criu-zns-options(8).

  options.py list | run NAME... | run -a
"""
import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import ztlib
from ztlib import Failed, REPO, Skipped, Task, alive, wait_until
from ztscene import SLOW, Outcome, case_of, expect, suite_main

CASES = {}
case = case_of(CASES)


def script(scene, name, *lines):
    path = scene.dir / name
    path.write_text('#!/bin/bash\n' + '\n'.join(lines) + '\n')
    path.chmod(0o755)
    return path


# ---- --timeout -----------------------------------------------------------------------------------------

@case
def timeout_data(scene):
    """The data phase takes longer than --timeout: the dump fails for that reason, the task runs on."""
    scene = scene(SLOW, size=300)
    scene.dump(extra=['--timeout', '1'], qos='100').must_fail('longer than --timeout 1 s')
    scene.unharmed()
    scene.works(size=32)


@case
def timeout_enough(scene):
    """A --timeout that is long enough changes nothing; without it there is no limit, though criu has a default of 10 s."""
    scene = scene(size=32)
    # The cap makes the dump take 10.7 s on any machine; the duration in the record confirms it.
    checkpoint = scene.good_dump(extra=['--zns-qos-max', '3'], qos='1')
    if scene.device.json('show', checkpoint)['data_phase_us'] < 10e6:
        raise Failed("the dump was shorter than criu's default: the test says nothing")
    scene.good_restore()
    shutil.rmtree(scene.images)
    scene.images.mkdir()
    scene.good_dump(extra=['--timeout', '60'])
    scene.good_restore()


@case
def timeout_admission(scene):
    """Waiting for admission counts."""
    scene = scene(['--channels', '1', '--ways', '1', '--zones', '32', '--zone-size', '16M', '--die-write-bw', '100',
                   '--timing', 'off'], size=64)
    other = scene.new_task(96)
    images = scene.dir / 'other'
    images.mkdir()
    started = scene.start_dump(extra=['--zns-container', 'other', '--zns-qos-max', '8', '--zns-admission', 'wait'],
                               images=images, task=other, qos='8')
    if not wait_until(lambda: scene.device.status()['leases'], 20, 0.1):
        raise Failed('the other dump never began')
    done = scene.dump(extra=['--timeout', '2', '--zns-admission', 'wait=60'], qos='100')
    done.must_fail('no admission within --timeout 2 s')
    if done.lines('Seized'):
        raise Failed('a task was stopped')
    scene.task.verify(signal.SIGUSR1)
    expect('the other dump', scene.end_of(started).code, 0)


def stopped(scene, who, *patterns):
    """Stops @who in the middle of a dump: the dump ends by its --timeout, and nothing is committed when @who continues."""
    started = scene.start_dump(extra=['--timeout', '10'], qos='100', stop_after=20)
    scene.until_writing()
    pids = who()
    if not pids:
        raise Failed('there is nobody to stop')
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    if not set(pids) & set(scene.helpers()):
        scene.go_on()
    try:
        done = scene.end_of(started)
    finally:
        for pid in pids:
            ztlib.kill(pid, signal.SIGCONT)
    done.must_fail(*patterns)
    scene.unharmed()
    scene.works(size=32)


@case
def timeout_broker(scene):
    """The broker hangs in the middle of a dump."""
    scene = scene(size=64)
    stopped(scene, lambda: [scene.device.status()['broker_pid']], '--timeout 10 s')


@case
def timeout_helper(scene):
    """The helper hangs in the middle of a dump: criu kills it."""
    scene = scene(size=64)
    stopped(scene, scene.helpers, 'within --timeout 10 s and was killed')


# ---- --freeze-cgroup -----------------------------------------------------------------------------------

class Cgroup:
    """A freezer cgroup of one version with the task in it."""

    def __init__(self, version, task):
        root = self.mounted(version)
        self.version = version
        self.path = root / f'zns-options-{os.getpid()}'
        self.path.mkdir()
        (self.path / 'cgroup.procs').write_text(str(task.pid))

    @staticmethod
    def mounted(version):
        for line in Path('/proc/self/mountinfo').read_text().splitlines():
            head, _, tail = line.partition(' - ')
            kind, _, options = tail.split()[:3]
            if (version == 1 and kind == 'cgroup' and 'freezer' in options.split(',')) or (version == 2 and kind == 'cgroup2'):
                return Path(head.split()[4])
        raise Skipped(f'no freezer of cgroup v{version} is mounted here')

    def freeze(self, frozen):
        if self.version == 1:
            (self.path / 'freezer.state').write_text('FROZEN' if frozen else 'THAWED')
        else:
            (self.path / 'cgroup.freeze').write_text('1' if frozen else '0')
        if not wait_until(lambda: self.frozen() == frozen, 5):
            raise Failed('the test could not set the state of its cgroup')

    def frozen(self):
        if self.version == 1:
            return (self.path / 'freezer.state').read_text().strip() == 'FROZEN'
        return 'frozen 1' in (self.path / 'cgroup.events').read_text()

    def close(self):
        self.freeze(False)
        for pid in (self.path / 'cgroup.procs').read_text().split():
            (self.path.parent / 'cgroup.procs').write_text(pid)
        wait_until(lambda: not (self.path / 'cgroup.procs').read_text(), 5)
        os.rmdir(self.path)


def freezer(scene, version):
    Cgroup.mounted(version)
    scene = scene(size=64)
    group = Cgroup(version, scene.task)
    beside = subprocess.Popen(['sleep', '1000'])
    (group.path / 'cgroup.procs').write_text(str(beside.pid))
    beside.send_signal(signal.SIGSTOP)
    option = ['--freeze-cgroup', group.path, '--manage-cgroups=ignore']
    try:
        for before in (False, True):
            group.freeze(before)
            scene.dump(extra=option, fault='write-after=40x*').must_fail('zones failed|media error')
            expect(f'frozen after a failed dump, was {before}', group.frozen(), before)
            group.freeze(False)
            scene.unharmed()
            group.freeze(before)
            done = scene.dump(extra=[*option, '--leave-running'])
            expect('exit', done.code, 0)
            expect(f'frozen after a dump, was {before}', group.frozen(), before)
            group.freeze(False)
            scene.task.verify(signal.SIGUSR1)
            shutil.rmtree(scene.images)
            scene.images.mkdir()
            scene.device.remove(*scene.ids())
            scene.store_as_before()
        scene.good_dump(extra=option)
        scene.good_restore()
        expect('state of the stopped process', Path(f'/proc/{beside.pid}/stat').read_text().rpartition(') ')[2][0], 'T')
    finally:
        group.freeze(False)
        beside.kill()
        beside.wait()
        group.close()


@case
def freeze_cgroup_v1(scene):
    """--freeze-cgroup with a freezer of version 1, and a stopped process in it: its state is as before, after dumps that fail too."""
    freezer(scene, 1)


@case
def freeze_cgroup_v2(scene):
    """Like freeze_cgroup, with version 2."""
    freezer(scene, 2)


# ---- the network's lock ---------------------------------------------------------------------------------

def netfilter(task, env):
    """All netfilter rules of the task's network namespace: iptables of IPv4 and IPv6, and nftables."""
    def said(*command):
        return subprocess.run(['nsenter', '-t', str(task.pid), '-n', *command], env=env, capture_output=True, text=True,
                              check=True).stdout
    return said('iptables-save') + said('ip6tables-save') + said('nft', 'list', 'ruleset')


def locked_and_unlocked(scene, env, name, sign, extra):
    """Dumps a task and checks that @sign is among the rules while the network is locked, and not afterwards."""
    directory = scene.dir / name
    directory.mkdir()
    task = Task(directory, 'netlo', 'ns')
    scene.tasks.append(task)
    task.start().wait_ready()
    # A script looks while the network is locked: it runs inside the freeze, before criu unlocks. criu closes a
    # script's input, so a pidfd would get number 0, which nsenter 2.41 does not accept: it then enters no namespace.
    seen = scene.dir / 'seen'
    look = script(scene, 'look', '[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0',
                  f'nsenter -t $CRTOOLS_INIT_PID -n sh -c "iptables-save; nft list ruleset" </dev/null >{seen}')
    images = scene.dir / f'{name}-images'
    for end in ('--leave-running', None):
        images.mkdir()
        done = scene.dump(task=task, images=images, env=env, extra=['--action-script', look, *extra, *([end] if end else [])])
        expect('exit', done.code, 0)
        if sign not in seen.read_text():
            raise Failed(f'the network was not locked: {seen.read_text()!r}')
        if end:
            if 'CRIU' in netfilter(task, env):
                raise Failed(f'after the thaw the lock is still there: {netfilter(task, env)!r}')
            task.verify(signal.SIGUSR1)
            shutil.rmtree(images)
    expect('exit of restore', scene.restore(task=task, images=images, env=env).code, 0)
    if 'CRIU' in netfilter(task, env):
        raise Failed(f'after the restore the lock is there: {netfilter(task, env)!r}')
    task.verify(signal.SIGUSR1)


IPTABLES = ('iptables', 'iptables-restore', 'iptables-save', 'ip6tables', 'ip6tables-restore', 'ip6tables-save')


@case
def network_lock(scene):
    """A dump locks the network of a namespace, and nothing of the lock is left for a task that runs on or is restored."""
    if missing := [tool for tool in IPTABLES if not shutil.which(tool)]:
        raise Skipped(f'there is no {missing[0]}')
    scene = scene()
    for name, sign, extra in (('nftables', 'table inet CRIU-', ()), ('iptables', '-j CRIU', ('--network-lock', 'iptables'))):
        locked_and_unlocked(scene, scene.device.env, name, sign, extra)


@case
def network_lock_legacy(scene):
    """Like network_lock, with the iptables that does not use nftables."""
    legacy = {tool: shutil.which(tool.replace('tables', 'tables-legacy', 1)) for tool in IPTABLES}
    if not all(legacy.values()):
        raise Skipped('there is no iptables-legacy')
    if subprocess.run(['unshare', '-n', legacy['iptables'], '-L'], capture_output=True).returncode:
        raise Skipped('this kernel has no ip_tables')
    scene = scene()
    programs = scene.dir / 'programs'
    programs.mkdir()
    for tool, path in legacy.items():
        # a script and not a link, since the program looks at the name by which it was called
        program = programs / tool
        program.write_text(f'#!/bin/sh\nexec {path} "$@"\n')
        program.chmod(0o755)
    locked_and_unlocked(scene, dict(scene.device.env, PATH=f'{programs}:{os.environ["PATH"]}'), 'legacy', '-j CRIU',
                        ('--network-lock', 'iptables'))


@case
def joined_namespaces(scene):
    """--join-ns: the namespace's owner keeps host name and limits, and finds the System V objects of the restored task there."""
    scene = scene()
    scene.task = scene.new_task(program='sysvipc', flavour='ns')
    inside = ('sh', '-c', 'hostname dumped; echo 7777 >/proc/sys/kernel/msgmax')
    subprocess.run(['nsenter', '-t', str(scene.task.pid), '-u', '-i', *inside], check=True)
    scene.good_dump()
    with subprocess.Popen(['unshare', '-u', '-i', 'sh', '-c', 'hostname owner; echo; exec sleep infinity'], stdout=subprocess.PIPE) as owner:
        try:
            owner.stdout.readline()
            scene.good_restore(extra=[w for ns in ('uts', 'ipc') for w in ('--join-ns', f'{ns}:/proc/{owner.pid}/ns/{ns}')])
            for ns in ('uts', 'ipc'):
                expect(f'the namespace {ns}', os.readlink(f'/proc/{scene.task.pid}/ns/{ns}'), os.readlink(f'/proc/{owner.pid}/ns/{ns}'))
            has = subprocess.run(['nsenter', '-t', str(owner.pid), '-u', '-i', 'cat', '/proc/sys/kernel/hostname', '/proc/sys/kernel/msgmax'],
                                 check=True, capture_output=True, text=True).stdout.split()
            expect('host name and limit', has, ['owner', '8192'])
        finally:
            owner.kill()


@case
def tables_of_iptables(scene):
    """iptables-legacy-save is not run for a namespace without tables, since it would take milliseconds of the freeze."""
    if not (legacy := shutil.which('iptables-legacy-save')):
        raise Skipped('there is no iptables-legacy')
    scene = scene(size=1)
    calls, program = scene.dir / 'calls', scene.dir / 'programs' / 'iptables-legacy-save'
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@," >>{calls}\nexec {legacy} "$@"\n')
    program.chmod(0o755)
    for tool in ('iptables-save', 'ip6tables-save'):    # rules of nftables, which criu lists by itself
        (program.parent / tool).symlink_to(shutil.which(tool.replace('tables', 'tables-nft', 1)) or '/bin/false')
    env = dict(scene.device.env, PATH=f'{program.parent}:{os.environ["PATH"]}')
    directory = scene.dir / 'ns'
    directory.mkdir()
    task = Task(directory, 'netlo', 'ns')
    scene.tasks.append(task)
    task.start().wait_ready()
    done = scene.dump(task=task, extra=['--leave-running'], env=env)
    expect('the exit code', done.code, 0)
    if calls.read_text().split(',')[1:] != ['\n']:
        raise Failed(f'iptables-legacy-save was called with {calls.read_text().split(",")}')


# ---- a tmpfs ----------------------------------------------------------------------------------------------

@case
def tmpfs_stored(scene):
    """The archive of a tmpfs is a gzip file that gunzip reads, but is not compressed: that would take seconds in the freeze."""
    scene = scene()
    directory, images, out = scene.dir / 'tmpfs', scene.dir / 'tmpfs-images', scene.dir / 'exported'
    directory.mkdir()
    images.mkdir()
    task = Task(directory, 'tmpfs', 'ns')
    scene.tasks.append(task)
    task.start().wait_ready()
    expect('exit', scene.dump(task=task, images=images).code, 0)
    expect('exit of export', scene.device.ctl('export', str(images), str(out)).returncode, 0)
    large = 0
    for image in out.glob('tmpfs-dev-*'):
        packed = image.read_bytes()
        plain = gzip.decompress(packed)
        # RFC 1951: bits 1 and 2 of a block are 0 if it is stored
        expect(f'{image.name}: type of the first block', packed[10] & 6, 0)
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            large += sum(m.size > 20 << 20 for m in tar)
    expect('large files', large, 2)
    expect('exit of restore', scene.restore(task=task, images=images).code, 0)
    task.verify(signal.SIGUSR1)


# ---- action scripts ------------------------------------------------------------------------------------

@case
def post_dump_script(scene):
    """The post-dump script sees a committed checkpoint; if it fails, the task runs on and the checkpoint stays."""
    scene = scene()
    look = script(scene, 'look', '[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0',
                  f'{scene.cfg.znsctl} show $CRTOOLS_IMAGE_DIR >{scene.dir}/shown 2>&1 || exit 9',
                  f'{scene.cfg.znsctl} verify $CRTOOLS_IMAGE_DIR >>{scene.dir}/shown 2>&1 || exit 8',
                  'exit $(cat $0.exit 2>/dev/null || echo 0)')
    Path(f'{look}.exit').write_text('7')
    done = scene.dump(extra=['--action-script', look])
    expect('exit', done.code, 255)      # the same status as stock CRIU's, whatever the script returns
    if not done.lines('exited, status=7'):
        raise Failed("the log does not have the script's exit code")
    made = scene.device.checkpoint_of('errors')
    if made not in (scene.dir / 'shown').read_text():
        raise Failed(f'the script saw: {(scene.dir / "shown").read_text()[:300]}')
    wait_until(lambda: not ztlib.traced(scene.task.pid), 5)
    scene.task.verify(signal.SIGUSR1)
    scene.no_helpers()
    ztlib.check_image_dir(scene.images)
    expect('checkpoints', scene.ids(), [made])
    Path(f'{look}.exit').unlink()
    scene.good_dump(extra=['--action-script', look])
    scene.good_restore()


@case
def other_scripts(scene):
    """If any other script of a dump fails there is no checkpoint, no handle, and the task runs on; of a restore: no process is left."""
    scene = scene()
    fail = script(scene, 'fail-pre-dump', '[ "$CRTOOLS_SCRIPT_ACTION" != pre-dump ]')
    done = scene.dump(extra=['--action-script', fail])
    expect('a failing pre-dump script', done.code != 0, True)
    scene.unharmed()
    scene.good_dump()
    for action in ('pre-restore', 'post-restore'):
        fail = script(scene, f'fail-{action}', f'[ "$CRTOOLS_SCRIPT_ACTION" != {action} ]')
        done = scene.restore(extra=['--action-script', fail])
        expect(f'a failing {action} script', done.code != 0, True)
        if not wait_until(lambda: not alive(scene.task.pid), 5):
            raise Failed('a process is left of a restore that failed')
        scene.no_helpers()
    scene.good_restore()


@case
def killed_at_the_end(scene):
    """A task that is killed when its restore is nearly done: the restore fails, and does not wait for it."""
    scene = scene()
    scene.good_dump()
    pid = scene.task.pid
    end = script(scene, 'kill', f'[ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || kill -9 {pid}')
    scene.restore_must_fail(f'Task {pid} was killed while it was restored', extra=['--action-script', end])
    scene.good_restore()


@case
def restore_awake(scene):
    """The helper keeps CPUs awake while tasks are restored, and stops when they run."""
    if not os.access('/dev/cpu_dma_latency', os.W_OK):
        raise Skipped('no /dev/cpu_dma_latency')
    scene = scene()
    scene.good_dump()
    look = script(scene, 'look', '[ "$CRTOOLS_SCRIPT_ACTION" = post-restore ] || exit 0',
                  f'for p in $(grep -lzxF "ZNS_RUN={scene.device.env["ZNS_RUN"]}" /proc/[0-9]*/environ 2>/dev/null); do',
                  f'ls -l ${{p%environ}}fd; done | grep -c cpu_dma_latency >{scene.dir}/held; exit 0')
    scene.good_restore(extra=['--action-script', look])
    expect('requests while tasks are restored', (scene.dir / 'held').read_text().strip(), '1')
    scene.no_helpers()
    for fd in Path(f'/proc/{scene.task.pid}/fd').iterdir():
        if os.readlink(fd) == '/dev/cpu_dma_latency':
            raise Failed('the restored task keeps CPUs awake')


# ---- what becomes of the tasks -------------------------------------------------------------------------

@case
def leave_running(scene):
    """--leave-running: the task goes on, ten dumps one after another, the last one restores."""
    scene = scene(size=16)
    for n in range(10):
        images = scene.dir / f'images-{n}'
        images.mkdir()
        scene.good_dump(extra=['--leave-running'], images=images)
        scene.task.verify(signal.SIGUSR1)
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not alive(scene.task.pid), 5)
    scene.good_restore(images=images)


@case
def no_error_said(scene):
    """Successful dumps and restores print no error, also without -o, and without CAP_SYS_RESOURCE."""
    scene = scene()
    without = ['setpriv', '--bounding-set', '-sys_resource', '--inh-caps', '-sys_resource', scene.cfg.criu]
    zones = ztlib.zns_options(scene.cfg, 'silent')
    for what, args in (('live', ['dump', '-t', scene.task.pid, '--leave-running', *zones]), ('dump', ['dump', '-t', scene.task.pid, *zones]),
                       ('restore', ['restore', '-d', '--pidfile', scene.dir / 'pid'])):
        images = scene.dir / ('live' if what == 'live' else 'images')
        images.mkdir(exist_ok=True)
        done = subprocess.run([*map(str, [*without, *args, '-D', images])], env=scene.device.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        expect(f'{what}: exit', done.returncode, 0)
        expect(f'{what}: errors', done.stderr, '')
        if what == 'dump':
            wait_until(lambda: not alive(scene.task.pid), 5)
    scene.task.restored(int((scene.dir / 'pid').read_text()))
    scene.task.verify(signal.SIGUSR1)


@case
def leave_stopped(scene):
    """--leave-stopped: stopped after a dump, running after a failed one; the same for restore --leave-stopped."""
    scene = scene(size=64)
    scene.dump(extra=['--leave-stopped'], fault='write-after=40x*').must_fail('zones failed|media error')
    scene.unharmed()
    done = scene.dump(extra=['--leave-stopped'])
    expect('exit', done.code, 0)
    if not wait_until(lambda: ztlib.proc_state(scene.task.pid) == 'T', 5):
        raise Failed(f'the task is in state {ztlib.proc_state(scene.task.pid)}')
    os.kill(scene.task.pid, signal.SIGCONT)
    scene.task.verify(signal.SIGUSR1)
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not alive(scene.task.pid), 5)
    expect('restore', scene.restore(extra=['--leave-stopped']).code, 0)
    if not wait_until(lambda: ztlib.proc_state(scene.task.pid) == 'T', 5):
        raise Failed(f'the restored task is in state {ztlib.proc_state(scene.task.pid)}')
    os.kill(scene.task.pid, signal.SIGCONT)
    scene.task.verify(signal.SIGUSR1)


# ---- refused -------------------------------------------------------------------------------------------

@case
def refused(scene):
    """--stream and --auto-dedup are refused in one line, on dump and on restore, and touch nothing."""
    scene = scene()
    for option in ('--stream', '--auto-dedup'):
        scene.failed_dump(f'{option} does not work with zones', extra=[option])
    scene.good_dump()
    for option in ('--stream', '--auto-dedup'):
        scene.restore_must_fail(f'{option} does not work with zones', extra=[option])
    scene.good_restore()


# ---- files that others write into the image directory --------------------------------------------------

PLUGIN = REPO / 'build' / 'clients' / 'plugin'
SMALL, LARGE = 'testplugin.img', 'testplugin-memory.img'


@case
def pre_dump_untracked(scene):
    """pre-dump and --track-mem where memory cannot be tracked: one error line, before any task is stopped; with zones and without."""
    scene = scene()
    can = ztlib.run_criu(scene.cfg, ['check', '--feature', 'mem_dirty_track'], scene.log(), scene.device.env).returncode == 0
    # The helper tracks it itself on newer kernels: incremental.py.
    for zones in ((False,) if ztlib.helper_tracks() else (True, False)):
        for action, extra, says in (('pre-dump', [], 'pre-dump needs a kernel that tracks changed memory'),
                                    ('pre-dump', ['--track-mem'], '--track-mem'),
                                    ('dump', ['--leave-running', '--track-mem'], '--track-mem')):
            log = scene.log()
            images = scene.dir / f'images-{scene.calls}'
            images.mkdir()
            plain = ['dump', '-t', str(scene.task.pid), '-D', str(images), '-o', str(log), '-v4']
            command = scene.dump_command(log, extra, images, None, None) if zones else [*plain, *extra]
            done = ztlib.run_criu(scene.cfg, [action if c == 'dump' else c for c in command], log, scene.device.env)
            done = Outcome(done.returncode, log)
            what = f'{action} {" ".join(extra)}, {"with" if zones else "without"} zones'
            if can:
                expect(f'{what}: exit', done.code, 0)
                continue
            expect(f'{what}: exit', done.code, 1)
            expect(f'{what}: error lines', len(done.lines('Error')), 1)
            if not done.lines(says) or done.lines('Seized task'):     # "Seized task": the refusal came too late
                raise Failed(f'{what}: {" | ".join(done.lines("Error"))}')
            scene.unharmed(images)


@case
def plugin(scene):
    """A plugin's files are part of the checkpoint: restored by handle and by id, exported, verified; a failed dump has none."""
    if not (PLUGIN / 'testplugin.so').exists():
        raise Failed('there is no plugin: make rpc-clients')
    scene = scene(size=16)
    extra = ['--libdir', PLUGIN]
    (scene.images / 'descriptors.json').write_text('[]')      # runc does this before criu runs
    made = scene.good_dump(extra=extra)
    names = os.listdir(scene.images)
    expect('files in the directory', [n in names for n in (SMALL, LARGE, 'descriptors.json')], [True, False, True])
    shown = {i['name']: i for i in scene.device.json('show', made)['images']}
    expect('on the device', [n in shown for n in (SMALL, LARGE, 'descriptors.json')], [True, True, False])
    expect('size', shown[LARGE]['size'], 3 << 20)
    expect('verify', scene.device.ctl('verify', made).returncode, 0)
    for stage in ('handle', 'small one gone', 'small one edited', 'id', 'large one there'):
        if stage == 'small one gone':
            (scene.images / SMALL).unlink()
        if stage == 'small one edited':
            (scene.images / SMALL).write_text('edited')
        if stage == 'id':
            scene.images = scene.dir / 'by-id'
            scene.images.mkdir()
            extra += ['--zns-checkpoint', made]
        if stage == 'large one there':
            (scene.images / LARGE).write_text('of somebody else')
        scene.good_restore(extra=extra)
        scene.no_helpers()
        names = os.listdir(scene.images)
        if stage != 'large one there' and LARGE in names:
            raise Failed(f'{stage}: {LARGE} stayed in the image directory')
        ztlib.kill(scene.task.pid)
        wait_until(lambda: not alive(scene.task.pid), 5)
    target = scene.dir / 'exported'
    expect('export', scene.device.ctl('export', made, str(target)).returncode, 0)
    expect('exported', (target / LARGE).stat().st_size, 3 << 20)
    expect('import', scene.device.ctl('import', str(target), '--handle', str(scene.dir / 'imported')).returncode, 0)
    shown = scene.device.json('show', str(scene.dir / 'imported'))
    expect('imported beside', sorted(i['name'] for i in shown['images'] if i['beside']), sorted([LARGE, SMALL]))
    scene.good_restore(extra=['--libdir', PLUGIN], images=scene.dir / 'imported')
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not alive(scene.task.pid), 5)
    # The plugin is real: without its files the restore fails.
    (target / LARGE).unlink()
    scene.images = target
    done = scene.restore(extra=['--libdir', PLUGIN])
    expect('restore without a file fails', done.code != 0, True)


@case
def plugin_fails(scene):
    """A dump with a plugin fails after the plugin has written files: the store is unchanged, and the files stay the plugin's."""
    scene = scene(size=64)
    scene.failed_dump('zones failed|media error', extra=['--libdir', PLUGIN], fault='write-after=40x*')
    scene.good_dump(extra=['--libdir', PLUGIN])
    scene.good_restore(extra=['--libdir', PLUGIN])


@case
def names_beside(scene):
    """A file with too long a name, or with the name of an image, fails the dump in one line."""
    scene = scene(size=16)
    for name, pattern in (('x' * 64 + '.img', 'too long a name'), ('mm-$CRTOOLS_INIT_PID.img', 'criu has an image of this name')):
        make = script(scene, 'make', f'[ "$CRTOOLS_SCRIPT_ACTION" != pre-dump ] || echo 1 >"$CRTOOLS_IMAGE_DIR/{name}"')
        scene.dump(extra=['--action-script', make]).must_fail(pattern)
        scene.unharmed()
        shutil.rmtree(scene.images)
        scene.images.mkdir()
    make = script(scene, 'make', '[ "$CRTOOLS_SCRIPT_ACTION" != pre-dump ] || mkdir "$CRTOOLS_IMAGE_DIR/sub"')
    done = scene.dump(extra=['--action-script', make])
    expect('exit', done.code, 0)
    if not done.lines('directory sub, made .* is not on the device'):
        raise Failed('nothing is said of the directory')
    scene.good_restore()


# ---- other images --------------------------------------------------------------------------------------

@case
def cpu_cap(scene):
    """--cpu-cap: the image of the CPU goes into zones and is compared on restore; criu cpuinfo stays as it is."""
    scene = scene()
    made = scene.good_dump(extra=['--cpu-cap=cpu'])
    if 'cpuinfo.img' not in {i['name'] for i in scene.device.json('show', made)['images']}:
        raise Failed('cpuinfo.img is not on the device')
    scene.images = scene.dir / 'by-id'
    scene.images.mkdir()
    done = scene.restore(extra=['--cpu-cap=cpu', '--zns-checkpoint', made])
    expect('restore', done.code, 0)
    if not done.lines('cpuinfo|cpu:'):
        raise Failed('the log says nothing of the CPU')
    scene.task.verify(signal.SIGUSR1)
    plain = scene.dir / 'cpu'
    plain.mkdir()
    for action in ('dump', 'check'):
        for extra in ([], ['--zns-qos', '100']):
            done = subprocess.run([scene.cfg.criu, 'cpuinfo', action, '-D', plain, *extra], env=scene.device.env,
                                  capture_output=True, text=True, timeout=scene.cfg.timeout)
            expect(f'cpuinfo {action} {extra}: {done.stderr[-200:]}', done.returncode, 0)
    expect('files', os.listdir(plain), ['cpuinfo.img'])


def with_program(scene, program, dump_extra=(), restore_extra=(), flavour='h', env=None):
    """Dumps and restores another program with options; returns what was on the device."""
    desc = ztlib.description(ztlib.HERE / f'{program}.c')
    directory = scene.dir / f'{program}-{flavour}'
    directory.mkdir()
    task = Task(directory, program, flavour, (), desc.get('opts', '').split())
    scene.tasks.append(task)
    task.start().wait_ready()
    images = scene.dir / f'images-{program}'
    images.mkdir()
    done = scene.dump(extra=dump_extra, images=images, task=task, env=env)
    if done.code:
        return None, done
    wait_until(lambda: not any(map(alive, task.pids())), 5)
    made = scene.device.checkpoint_of('errors')
    back = scene.restore(extra=restore_extra, images=images, task=task)
    expect(f'restore of {program}: {back.lines("Error")[-2:]}', back.code, 0)
    task.verify(signal.SIGUSR1)
    return {i['name']: i['size'] for i in scene.device.json('show', made)['images']}, done


@case
def page_map_windows(scene):
    """Without PAGEMAP_SCAN (fault 135: Linux before 6.7) the page map of a large area is read 8 MiB at a time."""
    scene = scene(size=8)
    images, done = with_program(scene, 'sparse', env=dict(scene.device.env, CRIU_FAULT='135'))
    expect('the dump', done.code, 0)
    expect('buffers', len(done.lines(r'created for pid \d+ \(takes 8388608 bytes\)')), 1)
    expect('pages', images['pages-1.img'] < 16 << 20, True)


@case
def ghost_limit(scene):
    """--ghost-limit: a ghost file above the limit fails the dump and nothing is left, one below it goes into zones."""
    scene = scene(size=8)
    images, done = with_program(scene, 'ghost', ['--ghost-limit', '1K'])
    if images is not None or not done.lines('ghost-limit|ghost file'):
        raise Failed('the limit was not kept')
    scene.no_helpers()
    scene.store_as_before()
    for task in scene.tasks[1:]:
        task.end()
    shutil.rmtree(scene.dir / 'ghost-h')
    shutil.rmtree(scene.dir / 'images-ghost')
    images, _ = with_program(scene, 'ghost', ['--ghost-limit', '64M'])
    ghosts = {n: s for n, s in images.items() if n.startswith('ghost-file-')}
    if not ghosts:
        raise Failed('no ghost file is on the device')
    print(f'     {len(ghosts)} ghost files, {sum(ghosts.values())} bytes', flush=True)


@case
def deep_directory(scene):
    """Without --zns-container the directory names the container, also at the end of a path of more than a KiB."""
    scene = scene(size=8)
    images = scene.images / '/'.join(['d' * 200] * 6) / 'webshop'
    images.mkdir(parents=True)
    log = scene.log()
    args = scene.dump_command(log, (), images, None, None)
    at = args.index('--zns-container')
    del args[at:at + 2]
    expect('the dump', ztlib.run_criu(scene.cfg, args, log, scene.device.env).returncode, 0)
    [made] = scene.device.json('ls')['checkpoints']
    expect('its container and its directory', (made['container'], made['origin']['image_dir']), ('webshop', str(images)))


@case
def locks_and_remaps(scene):
    """--file-locks, --link-remap, --skip-in-flight, --tcp-established: accepted, images as with files."""
    scene = scene(size=8)
    images, _ = with_program(scene, 'files', ['--file-locks', '--link-remap', '--skip-in-flight', '--tcp-established'],
                             ['--file-locks', '--tcp-established'])
    expect('reg-files are there', bool({'files.img', 'fdinfo-2.img'} & set(images)), True)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'options', CASES))
