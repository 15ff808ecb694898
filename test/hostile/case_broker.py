# SPDX-License-Identifier: GPL-2.0-only
"""Peers of the broker, and what it inherits of who starts it.

One broker serves everybody: whatever one peer sends or leaves out, the others are served; whatever its first user's
session is like, the next user's dump works.
"""
import ctypes
import errno
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import ztlib
from tally import tried
from ztlib import Failed, alive, wait_until
from ztproto import fields, message
from ztscene import FAST, SLOW, TINY, case_of

CASES = {}
case = case_of(CASES)

VERSION = 1
LARGEST = 8 << 20       # of a request
PATIENCE = 40           # seconds; the broker's own deadline is 10
ZERO = b'\0' * 16


class Peer:
    """A connection that says what it likes."""

    def __init__(self, scene):
        path = scene.device.env['ZNS_RUN'] + f'/{scene.device.info["uuid"]}.sock'
        self.sk = socket.socket(socket.AF_UNIX)
        self.sk.connect(path)       # waits while the queue is full
        self.sk.settimeout(PATIENCE)

    def send(self, raw):
        self.sk.sendall(raw)

    def frame(self, body):
        self.send(struct.pack('<I', len(body)) + body)

    def _exactly(self, n):
        got = b''
        while len(got) < n:
            more = self.sk.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def answer(self):
        """(code, text) of the next answer; None: the connection is closed."""
        try:
            body = self._exactly(struct.unpack('<I', self._exactly(4))[0])
        except (EOFError, ConnectionResetError):
            return None
        except TimeoutError:
            raise Failed(f'no answer in {PATIENCE} s')
        got = fields(body)
        code = got.get(1, 0)
        code = -((code >> 1) + 1) if code & 1 else code >> 1
        return code, got.get(2, b'').decode()

    def ask(self, request):
        """A request as fields; its answer."""
        self.frame(message({1: VERSION, **request}))
        return self.answer()

    def closed(self):
        """Whatever comes before: in the end it is closed."""
        while self.answer() is not None:
            pass

    def close(self):
        self.sk.close()


def expect_error(peer, what, *codes):
    got = peer.answer()
    if got is None or not got[0] or not got[1] or '\n' in got[1]:
        raise Failed(f'{what}: the answer is {got}')
    if codes and -got[0] not in codes:
        raise Failed(f'{what}: the code is {got[0]}: {got[1]}')


def started(scene):
    """A broker that runs; its PID."""
    return scene.device.status()['broker_pid']


def still_serves(scene, pid):
    if started(scene) != pid:
        raise Failed('it is another broker now')
    scene.ids()


def memory(pid):
    """The most that it ever had in memory, MiB."""
    return int(re.search(r'VmHWM:\s+(\d+)', Path(f'/proc/{pid}/status').read_text()).group(1)) >> 10


# ---- messages ------------------------------------------------------------------------------------------

def pour(peers, data):
    """Send to all as long as anybody takes anything; bytes taken."""
    left = {p.sk: memoryview(data) for p in peers}
    total, quiet = 0, time.monotonic()
    for p in peers:
        p.sk.setblocking(False)
    while left and time.monotonic() < quiet + 1:
        for sk in select.select([], list(left), [], 0.1)[1]:
            try:
                n = sk.send(left[sk][:1 << 20])
            except BlockingIOError:
                continue
            except OSError:
                left.pop(sk)
                continue
            total, quiet = total + n, time.monotonic()
            left[sk] = left[sk][n:]
            if not left[sk]:
                left.pop(sk)
    for p in peers:
        p.sk.settimeout(PATIENCE)
    return total


@case
def unfinished_requests(scene):
    """200 peers send all but the last byte of 8 MiB: memory stays small, others are served, and they are sent away."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    before = memory(pid)
    kinds = {'8 MiB': (LARGEST, LARGEST - 1, 200), '64 KiB': (1 << 16, (1 << 16) - 1, 200),
             'a length alone': (LARGEST, 0, 300), 'half a length': (None, 0, 300)}
    peers = {}
    for what, (announced, sent, nr) in kinds.items():
        peers[what] = [Peer(scene) for _ in range(nr)]
        pour(peers[what], (struct.pack('<I', announced) if announced else b'\1\0') + b'\x0a' * sent)
        still_serves(scene, pid)
        if memory(pid) > before + 100:
            raise Failed(f'{nr} peers with {what} unfinished: the broker grew from {before} to {memory(pid)} MiB')
    for what, those in peers.items():
        for p in those[:3]:
            expect_error(p, what, errno.ETIMEDOUT)
            p.closed()
        for p in those:
            p.close()
        tried(f'{len(those)} times {what}')
    scene.good_dump()


@case
def drop_by_drop(scene):
    """A request that comes byte by byte is answered if it is in time, and sent away if it is not."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    peer = Peer(scene)
    body = message({1: VERSION, 7: 1})
    for b in struct.pack('<I', len(body)) + body:
        peer.send(bytes([b]))
    if peer.answer() != (0, ''):
        raise Failed('a request in single bytes is refused')
    tried('byte by byte')
    slow, begin = Peer(scene), time.monotonic()
    slow.send(struct.pack('<I', 4096))
    slow.sk.settimeout(0.2)
    while time.monotonic() < begin + PATIENCE:
        try:
            slow.send(b'\x0a')
            if slow.sk.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        raise Failed('a request that never ends is still waited for')
    tried('one byte in 0.2 s')
    still_serves(scene, pid)


@case
def huge_lengths(scene):
    """A length beyond the largest request is refused at once, whatever follows."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    for n in (LARGEST + 1, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 8, (1 << 32) - 4, (1 << 32) - 1):
        for more in (b'', b'x' * 4096):
            peer = Peer(scene)
            peer.send(struct.pack('<I', n) + more)
            expect_error(peer, f'length {n}', errno.EBADMSG)
            peer.closed()
            tried((n, len(more)))
    still_serves(scene, pid)


@case
def wrong_types(scene):
    """Messages of another form: every field with another type, cut anywhere, nested without end, several at once."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    asks = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 30, 40, 41, 70, 71, 80, 81, 82, 83]
    version = message({1: VERSION})
    bodies = {}
    for f in asks:
        for wire, value in ((0, b'\1'), (1, b'\0' * 8), (2, b'\3abc'), (2, b'\xff\xff\xff\xff\x0f'), (5, b'\0' * 4), (3, b''),
                            (7, b'')):
            key = f << 3 | wire
            bodies[f, wire, value[:2]] = version + (bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])) + value
    commit = message({4: {1: b'\1' * 16, 2: 'x', 3: 1}})
    for cut in range(1, len(commit), 3):
        bodies['commit', cut] = version + commit[:cut]
    deep = b''
    for _ in range(3000):
        deep = b'\x22' + bytes([len(deep) & 127 | 128, len(deep) >> 7 & 127 | 128, len(deep) >> 14]) + deep
    bodies['deep'] = version + deep
    bodies['no version'] = message({7: 1})
    bodies['another version'] = message({1: 77, 7: 1})
    bodies['two at once'] = version + message({7: 1, 9: 1})
    bodies['all at once'] = version + message({f: 1 for f in (5, 7, 9, 10, 11)})
    for what, body in bodies.items():
        if what[:2] in ((f, 0) for f in (5, 7, 8, 9, 10, 11)) or what[:2] in ((15, 0), (13, 2)):
            continue        # these are right
        peer = Peer(scene)
        peer.frame(body)
        peer.sk.settimeout(PATIENCE)
        if peer.answer() is None:
            raise Failed(f'{what}: closed without an answer')
        peer.close()
        tried(what)
    still_serves(scene, pid)
    scene.good_dump()


@case
def out_of_order(scene):
    """Requests that need a dump, a restore or a compaction, without one; and twice what is possible once."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    record = {1: '\0' * 16, 2: 'web', 3: 1, 4: 0, 5: 0}
    for what, ask in (('zone', {3: {1: 0}}), ('commit', {4: record}), ('abort', {5: 1}), ('progress', {30: {1: 1}}),
                      ('compact zone', {81: {1: 0, 2: 4096}}), ('compact step', {82: {1: 0}}), ('compact commit', {83: record}),
                      ('restore of nothing', {6: {1: '\0' * 16}}), ('compaction of nothing', {80: {1: '\0' * 16}}),
                      ('zone of no group', {3: {1: 0xffffffff}}), ('an id of one byte', {6: {1: 'x'}}),
                      ('rm of no id', {12: {}}), ('a name with a newline', {2: {1: 'a\nb', 2: 0}}), ('no name', {2: {1: '', 2: 0}})):
        peer = Peer(scene)
        got = peer.ask(ask)
        if got is None or (not got[0] and what not in ('abort', 'progress')):
            raise Failed(f'{what}: the answer is {got}')
        peer.close()
        tried(what)
    peer = Peer(scene)
    if peer.ask({2: {1: 'web', 2: 0}})[0]:
        raise Failed('no admission for a first dump')
    if not peer.ask({2: {1: 'web', 2: 0}})[0]:
        raise Failed('two dumps of one connection')
    tried('two dumps')
    for zone in (0, 1, 0xffffffff):
        peer.ask({3: {1: 0, 2: zone}})
        peer.ask({3: {1: 0, 3: zone}})
        tried(f'zone {zone} given back')
    peer.close()
    still_serves(scene, pid)
    wait_until(lambda: not scene.device.status()['leases'], 10)
    scene.good_dump()


@case
def many_peers(scene):
    """More connections than there are places, all silent: whoever comes later is served."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    peers = []
    for _ in range(4300):
        peers.append(Peer(scene))
    deadline = time.monotonic() + PATIENCE
    while True:
        done = scene.device.ctl('ls', '--json')
        if not done.returncode:
            break
        if time.monotonic() > deadline:
            raise Failed(f'nobody else is served: {done.stderr.strip()}')
        time.sleep(0.5)
    tried(f'{len(peers)} silent peers')
    still_serves(scene, pid)
    for p in peers:
        p.close()


@case
def never_reading(scene):
    """Peers that ask and do not take the answers: memory stays small, others are served, they are sent away."""
    scene = scene([*TINY[:6], '--zones', '9000', '--zone-size', '4M', '--timing', 'off', '--sparse'], size=1)
    pid = started(scene)
    before = memory(pid)
    peers = [Peer(scene) for _ in range(300)]
    ask = message({1: VERSION, 10: 1})
    for p in peers:
        p.send((struct.pack('<I', len(ask)) + ask) * 50)
    still_serves(scene, pid)
    if memory(pid) > before + 200:
        raise Failed(f'the broker grew from {before} to {memory(pid)} MiB')

    def gone(p):
        """The broker has closed it: its end shows behind what is in the socket."""
        poll = select.poll()
        poll.register(p.sk, select.POLLRDHUP)
        return bool(poll.poll(0))
    if not wait_until(lambda: all(map(gone, peers[:20])), PATIENCE):
        raise Failed('peers that do not read keep their places')
    tried('300 times 50 questions')
    still_serves(scene, pid)


# ---- what it inherits ----------------------------------------------------------------------------------

def of_session(scene, prepare, shell='', env=None, **popen):
    """The first user: `znsctl status` starts the broker in a session like that. (its PID or None, what it says)"""
    scene.end_broker()
    done = subprocess.run(['/bin/bash', '-c', f'{shell} exec "$0" status --json', scene.cfg.znsctl],
                          env=env or scene.device.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          preexec_fn=prepare, timeout=PATIENCE, **popen)
    return scene.broker_pid(), done


def proc(pid, name):
    return Path(f'/proc/{pid}/{name}').read_text()


def status_of(pid, key):
    return re.search(rf'^{key}:\s*(\S+)', proc(pid, 'status'), re.M).group(1)


def limits_of(pid):
    """{name: (soft, hard)} as text."""
    rows = re.findall(r'^(Max .*?)  +(\S+) +(\S+)', proc(pid, 'limits'), re.M)
    return {name: (soft, hard) for name, soft, hard in rows}


@case
def soft_limits(scene):
    """ulimit -S of the first user: the broker has none of them, and the next user's dump works."""
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
    """ulimit -H of the first user: raised where that is allowed, else refused in one line; the next user's dump works."""
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
    """A dump of a session whose files may not be as large as the device: one line, no zone is blamed."""
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
    """znsd from a shell: no descriptor, limit or signal of the shell's stays in it."""
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
    """Mount points of all hierarchies that show their root."""
    found = []
    for line in Path('/proc/self/mountinfo').read_text().splitlines():
        left, _, right = line.partition(' - ')
        if right.split()[0] in ('cgroup', 'cgroup2') and left.split()[3] == '/':
            found.append(Path(left.split()[4]))
    return found


class Groups:
    """A group of its own in every hierarchy, as a unit of systemd has one."""

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
        """All that is in there, as at the end of a unit."""
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
    """A oneshot unit starts the broker and ends while another one's dump runs: the dump goes on."""
    scene = scene(SLOW, size=200)
    groups = Groups(f'zns-hostile-{os.getpid()}')
    try:
        pid, done = of_session(scene, groups.enter)
        if not pid:
            raise Failed(f'no broker: {done.stderr.strip()}')
        dump = scene.start_dump(qos='100')
        scene.until_writing()
        groups.end()
        wait_until(lambda: not groups.pids(), 5)
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


# ---- stopped peers -------------------------------------------------------------------------------------

def configure(scene, line):
    with open(Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf', 'a', encoding='utf-8') as conf:
        conf.write(line + '\n')


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


def stopped_in_dump(scene, who, deadline=None):
    """The dump fails in one line while @who is still stopped; the task runs on, nothing is lost."""
    scene = scene(SLOW, size=300)
    if deadline:
        configure(scene, f'deadline = {deadline}')
        scene.end_broker()
    started = scene.start_dump(qos='100')
    scene.until_writing()
    with Stopped(*who(scene)):
        done = scene.end_of(started)
        done.must_fail(f'no sign of life for {deadline or 10} s')
        if not wait_until(lambda: not ztlib.traced(scene.task.pid), 5):
            raise Failed('the task is still frozen')
    scene.unharmed()
    scene.works(size=32)


@case
def stopped_broker(scene):
    """The broker is stopped in the middle of a dump: ten seconds, then the task runs on."""
    stopped_in_dump(scene, lambda s: [s.broker_pid()])
    tried('SIGSTOP')


@case
def stopped_helper(scene):
    """zns-helper is stopped in the middle of a dump: ten seconds, then the task runs on."""
    stopped_in_dump(scene, lambda s: s.helpers())
    tried('SIGSTOP')


@case
def stopped_soon(scene):
    """With another deadline in zns.conf."""
    stopped_in_dump(scene, lambda s: s.helpers(), deadline=2)
    tried('helper')


@case
def stopped_in_restore(scene):
    """Helper or broker stopped when a restore begins: it fails in one line, no process is left."""
    scene = scene(SLOW, size=64)
    configure(scene, 'deadline = 3')
    scene.good_dump()
    with Stopped(scene.broker_pid() or started(scene)):
        scene.restore_must_fail('no sign of life for 3 s')
    tried('broker')
    log = scene.log()
    args = ztlib.restore_args(scene.task, scene.images, log)
    with open(str(log) + '.stderr', 'ab') as err:
        criu = subprocess.Popen([scene.cfg.criu, *map(str, args)], env=scene.device.env, stdin=subprocess.DEVNULL, stdout=err,
                                stderr=err)
    if not wait_until(scene.helpers, 10, 0.001):
        raise Failed('no helper came')
    with Stopped(*scene.helpers()):
        done = scene.end_of((criu, log))
    done.must_fail('no sign of life for')       # 10 s if it was stopped before it could say 3
    if not wait_until(lambda: not alive(scene.task.pid), 3):
        raise Failed('a process is left of a restore that failed')
    scene.no_helpers()
    tried('helper')
    scene.good_restore()


@case
def long_is_not_dead(scene):
    """Waiting for an admission or for a slow device much longer than the deadline is no reason to give up."""
    scene = scene(SLOW, size=200)
    configure(scene, 'deadline = 1')
    scene.end_broker()
    other = scene.new_task(32)
    images = scene.dir / 'waits'
    images.mkdir()
    first = scene.start_dump(qos='50', extra=['--zns-admission', 'wait=1'])
    scene.until_writing()
    second = scene.start_dump(task=other, images=images, qos='800', extra=['--zns-admission', 'wait=50'])
    for what, dump in (('slow device', first), ('admission', second)):
        done = scene.end_of(dump)
        if done.code:
            raise Failed(f'{what}: {" | ".join(done.lines("Error")[-2:])}')
        tried(what)


@case
def all_stopped(scene):
    """criu, helper, guard and broker stopped together, as a machine may be: nobody is to blame, the dump goes on."""
    scene = scene(SLOW, size=200)
    configure(scene, 'deadline = 2')
    scene.end_broker()
    dump = scene.start_dump(qos='100')
    scene.until_writing()
    guards = [pid for pid in scene._ours('zns-guard')]
    with Stopped(scene.broker_pid(), dump[0].pid, *scene.helpers(), *guards):
        time.sleep(5)
    done = scene.end_of(dump)
    if done.code:
        raise Failed(f'the dump fails: {" | ".join(done.lines("Error")[-2:])}')
    tried('5 s with a deadline of 2')


@case
def bad_deadlines(scene):
    """A deadline that is none: one line, before any task is frozen."""
    scene = scene(TINY, size=1)
    conf = Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf'
    good = conf.read_text() if conf.exists() else ''
    for text in ('x', '-1', '10s', '3601', '99999999999999999999', '0x10', '1.5'):
        configure(scene, f'deadline = {text}')
        done = scene.dump()
        conf.write_text(good)
        done.must_fail('deadline = ')
        scene.unharmed()
        tried(text)
    configure(scene, 'deadline = 0')
    scene.good_dump()


# ---- what is left to who takes one over ----------------------------------------------------------------

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
    scene = scene(SLOW, size=200)
    started(scene)
    dump = scene.start_dump(qos='100')
    scene.until_writing()
    for pid, most in ((scene.broker_pid(), {DAC_READ_SEARCH}),
                      (scene.helpers()[0], {SYS_PTRACE, DAC_OVERRIDE, FOWNER, IPC_LOCK, SYS_NICE, SYS_RESOURCE})):
        for thread in os.listdir(f'/proc/{pid}/task'):
            has, no_new = rights(pid, thread)
            if has - most:
                raise Failed(f'{proc(pid, "comm").strip()} has capabilities {sorted(has - most)}')
            if not no_new:
                raise Failed(f'{proc(pid, "comm").strip()} may gain privileges')
        if os.readlink(f'/proc/{pid}/ns/net') == os.readlink('/proc/self/ns/net'):
            raise Failed(f'{proc(pid, "comm").strip()} has the network')
        tried(proc(pid, 'comm').strip())
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
