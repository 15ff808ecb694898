# SPDX-License-Identifier: GPL-2.0-only
"""What the broker inherits from the process that starts it. || Whatever the first user's session is like, the next user's dump works."""
import ctypes
import os
import re
import resource
import select
import signal
import struct
import subprocess
from pathlib import Path

import ztlib
from brokers import PATIENCE, proc, started
from tally import tried
from ztlib import Failed, alive, wait_until
from ztscene import case_of

CASES = {}
case = case_of(CASES)


def served(scene):
    """How often a broker of the device has begun to serve."""
    return sum(log.read_text(errors='replace').count(': serving ') for log in Path(scene.device.env['ZNS_RUN']).glob('*.log'))


def of_session(scene, prepare, shell='', env=None, **popen):
    """The first user: `znsctl status` starts the broker in a session with these settings. Returns (the broker's PID or None, the output)."""
    scene.end_broker()
    before = served(scene)
    done = subprocess.run(['/bin/bash', '-c', f'{shell} exec "$0" status --json', scene.cfg.znsctl],
                          env=env or scene.device.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          preexec_fn=prepare, timeout=PATIENCE, **popen)
    if done.returncode:     # a broker that refused may still be exiting; one that serves stays
        wait_until(lambda: served(scene) > before or not scene.broker_pid())
    return scene.broker_pid(), done


def status_of(pid, key):
    return re.search(rf'^{key}:\s*(\S+)', proc(pid, 'status'), re.M).group(1)


def limits_of(pid):
    """{name: (soft, hard)} as text."""
    rows = re.findall(r'^(Max .*?)  +(\S+) +(\S+)', proc(pid, 'limits'), re.M)
    return {name: (soft, hard) for name, soft, hard in rows}


@case
def soft_limits(scene):
    """The first user's ulimit -S: the broker does not keep these limits, and the next user's dump works."""
    scene = scene(size=8)
    for flag, value, name in (('f', 64, 'Max file size'), ('n', 64, 'Max open files'), ('v', 3000000, 'Max address space'),
                              ('d', 500000, 'Max data size'), ('t', 2, 'Max cpu time'), ('u', 50, 'Max processes'),
                              ('l', 16, 'Max locked memory')):
        pid, done = of_session(scene, None, f'ulimit -S -{flag} {value};')
        if not pid:
            raise Failed(f'ulimit -S -{flag}: no broker: {done.stderr.strip()}')
        soft, hard = limits_of(pid)[name]
        if soft != hard:
            raise Failed(f'the broker has the first user\'s ulimit -{flag}: {soft} of {hard}')
        tried(f'ulimit -S -{flag} {value}')
    of_session(scene, None, 'ulimit -S -f 64;')
    scene.good_dump()


@case
def hard_limits(scene):
    """The first user's ulimit -H: the broker raises it where allowed, else refuses in one line; the next user's dump works."""
    scene = scene(size=8)
    for flag, value, name in (('f', 64, 'Max file size'), ('t', 5, 'Max cpu time'), ('v', 3000000, 'Max address space'),
                              ('d', 500000, 'Max data size'), ('n', 100, 'Max open files')):
        pid, done = of_session(scene, None, f'ulimit -{flag} {value};')
        if pid:
            soft, hard = limits_of(pid)[name]
            if soft != hard or (hard != 'unlimited' and flag != 'n') or (flag == 'n' and int(hard) < 256):
                raise Failed(f'the broker has the first user\'s ulimit -{flag}: {soft} of {hard}')
        elif done.returncode == 0 or f'ulimit -{flag}' not in done.stderr or done.stderr.count('\n') != 1:
            raise Failed(f'ulimit -{flag}: exit {done.returncode}, no one line about it: {done.stderr.strip()}')
        else:
            print(f'     says: {done.stderr.strip()}', flush=True)
        images = scene.dir / f'next-{flag}'
        images.mkdir()
        scene.good_dump(images=images, extra=['--leave-running'])
        tried(f'ulimit -{flag} {value}')


@case
def own_limit(scene):
    """A dump in a session whose file size limit is below the device's size: one line, and no zone is called bad."""
    scene = scene(size=32)
    started(scene)
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    hard_before = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    pid = os.fork()     # the limit cannot be raised again
    if not pid:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            done = scene.dump()
            os._exit(0 if done.code and any('ulimit -f' in line for line in done.log) else 1)
        except BaseException:
            os._exit(2)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    scene.calls += 1
    if (soft, hard_before) != resource.getrlimit(resource.RLIMIT_FSIZE):
        raise Failed('the limit is ours now')
    if ended:
        raise Failed(f'the dump does not say ulimit -f (verdict {ended})')
    if any(z['suspect'] for z in scene.device.zones()):
        raise Failed('a zone is taken for one that fails')
    scene.unharmed()
    tried('ulimit -f 1024')
    scene.works()


@case
def surroundings(scene):
    """nice, oom_score_adj, signals, umask, directory, processors, standard streams and environment of the first user."""
    scene = scene(size=8)
    nobody = [s for s in range(1, 65) if s not in (9, 19, 32, 33)]
    hidden = 32         # the C library's: Python cannot ignore it, a parent can have

    def check(what, pid, right, got):
        if not pid:
            raise Failed(f'{what}: no broker')
        if not right:
            raise Failed(f'the broker has the first user\'s {what}: {got}')
        tried(what)

    pid, _ = of_session(scene, lambda: os.nice(19))
    nice = os.getpriority(os.PRIO_PROCESS, pid) if pid else None
    check('nice', pid, nice == 0, nice)
    pid, _ = of_session(scene, lambda: Path('/proc/self/oom_score_adj').write_text('700'))
    check('oom_score_adj', pid, pid and proc(pid, 'oom_score_adj').strip() == '0', proc(pid, 'oom_score_adj'))
    pid, _ = of_session(scene, lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)))
    check('scheduling class', pid, pid and os.sched_getscheduler(pid) == os.SCHED_OTHER, 'SCHED_IDLE')
    pid, _ = of_session(scene, lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
    check('processors', pid, pid and os.sched_getaffinity(pid) == os.sched_getaffinity(0), os.sched_getaffinity(pid))

    def ignore():
        for s in nobody:
            signal.signal(s, signal.SIG_IGN)
        # rt_sigaction with SIG_IGN in the kernel's struct
        action = struct.pack('=QQQQ', 1, 0, 0, 0)
        rt_sigaction = 13
        ctypes.CDLL(None).syscall(rt_sigaction, hidden, action, None, 8)
    pid, _ = of_session(scene, ignore)
    ignored = int(status_of(pid, 'SigIgn'), 16) if pid else 0
    ours = sum(1 << s - 1 for s in (signal.SIGPIPE, signal.SIGHUP, signal.SIGXFSZ))
    check('ignored signals', pid, ignored == ours, f'{ignored:x}')
    pid, _ = of_session(scene, lambda: signal.pthread_sigmask(signal.SIG_BLOCK, nobody))
    blocked = int(status_of(pid, 'SigBlk'), 16) if pid else 0
    check('blocked signals', pid, blocked & ~(1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1) == 0, f'{blocked:x}')
    pid, _ = of_session(scene, lambda: os.umask(0))
    check('umask', pid, pid and status_of(pid, 'Umask') == '0077', status_of(pid, 'Umask'))
    lost = scene.dir / 'lost'
    lost.mkdir()
    pid, _ = of_session(scene, lambda: os.chdir(lost) or os.rmdir(lost))
    check('directory', pid, pid and os.readlink(f'/proc/{pid}/cwd') == '/', os.readlink(f'/proc/{pid}/cwd'))
    pid, _ = of_session(scene, lambda: [os.close(n) for n in range(3)])
    check('closed streams', pid, pid and all(os.path.exists(f'/proc/{pid}/fd/{n}') for n in range(3)), 'closed')
    r, w = os.pipe()
    os.set_inheritable(w, True)
    pid, _ = of_session(scene, None, pass_fds=[w])
    os.close(w)
    check('descriptors', pid, bool(select.select([r], [], [], 5)[0]), 'an open pipe')
    os.close(r)
    odd = dict(LD_PRELOAD='libc.so.6', LD_LIBRARY_PATH='/tmp', LD_BIND_NOW='1', MALLOC_PERTURB_='1', ZNS_EMU_FAULT='write-after=0x*',
               ZNS_EMU_DATA='none', ZNS_LIBEXEC=str(ztlib.REPO / 'build' / 'bin'), SECRET='hush')
    pid, _ = of_session(scene, None, env=dict(scene.device.env, **odd))
    names = {v.split('=')[0] for v in proc(pid, 'environ').split('\0') if v} if pid else set()
    for name in odd:
        check(f'environment: {name}', pid, name not in names, name)
    scene.good_dump()


@case
def by_hand(scene):
    """znsd started from a shell: it keeps no descriptor, limit or signal setting of the shell."""
    scene = scene(size=8)
    scene.end_broker()
    lock = scene.dir / 'lock'
    znsd = ztlib.REPO / 'build' / 'bin' / 'znsd'
    done = subprocess.run(['/bin/bash', '-c', f'exec 9>{lock}; flock 9; trap "" TERM; ulimit -S -f 64; umask 0; nice -n 9 "$0" '
                           f'{scene.device.spec}', znsd], env=scene.device.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    pid = scene.broker_pid()
    if done.returncode or not pid:
        raise Failed(f'it does not start: {done.stderr.strip()}')
    if subprocess.run(['flock', '-n', lock, 'true']).returncode:
        raise Failed('it holds the lock of the shell that started it')
    tried('a lock')
    if len(set(limits_of(pid)['Max file size'])) > 1 or os.getpriority(os.PRIO_PROCESS, pid):
        raise Failed('it has limits or nice of the shell')
    tried('limits, nice')
    os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: not alive(pid), 10):
        raise Failed('it does not leave')
    tried('SIGTERM ignored')


# ---- cgroups -------------------------------------------------------------------------------------------

def cgroup_roots():
    """Mount points of all cgroup hierarchies that show their root."""
    found = []
    for line in Path('/proc/self/mountinfo').read_text().splitlines():
        left, _, right = line.partition(' - ')
        if right.split()[0] in ('cgroup', 'cgroup2') and left.split()[3] == '/':
            found.append(Path(left.split()[4]))
    return found


class Groups:
    """Makes a group in every hierarchy, as systemd makes for a unit."""

    def __init__(self, name):
        self.paths = []
        for root in cgroup_roots():
            path = root / name
            try:
                path.mkdir()
            except OSError:
                continue
            self.paths.append(path)
            if (path / 'cpuset.cpus').exists():
                for f in ('cpuset.cpus', 'cpuset.mems'):
                    (path / f).write_text((root / f).read_text())
        if not self.paths:
            raise Failed('no cgroup can be made here')

    def enter(self):
        for path in self.paths:
            (path / 'cgroup.procs').write_text('0')

    def pids(self):
        return {int(p) for path in self.paths for p in (path / 'cgroup.procs').read_text().split()}

    def end(self):
        """Kills all processes in the groups, as at the end of a unit."""
        for path in self.paths:
            if (path / 'cgroup.kill').exists():
                (path / 'cgroup.kill').write_text('1')
        for pid in self.pids():
            ztlib.kill(pid)

    def remove(self):
        wait_until(lambda: not self.pids(), 5)
        for path in self.paths:
            path.rmdir()


@case
def end_of_unit(scene):
    """A oneshot unit starts the broker and ends while another user's dump runs: the dump goes on."""
    scene = scene(size=64)
    groups = Groups(f'zns-hostile-{os.getpid()}')
    try:
        pid, done = of_session(scene, groups.enter)
        if not pid:
            raise Failed(f'no broker: {done.stderr.strip()}')
        dump = scene.start_dump(qos='100', stop_after=20)
        scene.until_writing()
        groups.end()
        wait_until(lambda: not groups.pids(), 5)
        scene.go_on()
        done = scene.end_of(dump)
        if done.code:
            raise Failed(f'the dump ended with the unit: {" | ".join(done.lines("Error")[-2:])}')
        if scene.broker_pid() != pid:
            raise Failed('the broker ended with the unit')
    finally:
        groups.end()
        groups.remove()
    wait_until(lambda: not alive(scene.task.pid), 5)
    scene.good_restore()
    tried(f'{len(groups.paths)} hierarchies')
