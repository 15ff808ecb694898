#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memory: running programs under a budget of DRAM, with zns-mem, its keeper and a broker, on emulated devices.

  memory.py list | run NAME... | run -a     [--rounds N] [--build DIR]

Programs check every page of theirs (memory/keeper_of_pages.c), or are asked what they were given (Redis, node, java, Go).
"""
import argparse
import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = {}
HERE = Path(__file__).resolve().parent
DEADLINE_S = 120


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def case(function):
    CASES[function.__name__] = function
    return function


def wait_until(true, what, seconds=DEADLINE_S):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Failed(f'{what}: not within {seconds} s')
        time.sleep(0.02)


class Stage:
    """A directory with a device and the programs that run on it."""
    def __init__(self, args, zones=64):
        self.args, self.dir = args, Path(tempfile.mkdtemp(prefix='zns-memory-'))
        self.env = {**os.environ, 'ZNS_RUN': str(self.dir / 'run'), 'ZNS_CONFIG': str(self.dir / 'conf'), 'ZNSD_IDLE_S': '1'}
        for name in ('run', 'conf'):
            (self.dir / name).mkdir(mode=0o700)
        self.programs, self.pagers = [], []
        self.ctl('create', f'emu:{self.dir}/dev', '--zones', str(zones), '--zone-size', '4M', '--sparse')

    def ctl(self, *words, ok=True):
        done = subprocess.run([self.args.bin / 'znsctl', *map(str, words)], env=self.env, capture_output=True, text=True, check=False)
        if ok and done.returncode:
            raise Failed(f'znsctl {" ".join(map(str, words))}: {done.stderr.strip()}')
        return done

    def attach(self, pid, dram):
        return self.ctl('memory', 'attach', pid, '--dram', dram)

    def pager_by_hand(self, program, dram, **variables):
        """Starts a pager with extra variables: its device fails, or it stops at some point. Its successors do not get them."""
        log = self.dir / 'pager.log'
        with open(log, 'w', encoding='ascii') as out:
            one = subprocess.Popen([self.args.bin / 'zns-mem', '--name', f'pid-{program.pid}', '--dram', dram, str(program.pid)],
                                   env={**self.env, **variables}, stdout=out, stderr=out)
        self.programs.append(one)
        return one

    def pager(self, program, dram, **variables):
        """Like pager_by_hand, and waits until the pager works."""
        one = self.pager_by_hand(program, dram, **variables)
        wait_until(lambda: one.poll() is not None or self.status(program.pid), 'the pager')
        if one.poll() is not None:
            raise Failed(f'the pager: {(self.dir / "pager.log").read_text().strip()}')

    def status(self, pid):
        done = self.ctl('memory', 'status', f'pid-{pid}', '--json', ok=False)
        if done.returncode:
            return None          # while there is no pager
        found = json.loads(done.stdout)
        pager = re.search(r'pager PID (\d+)', self.ctl('memory', 'status', f'pid-{pid}', ok=False).stdout)
        found['pager'] = int(pager.group(1)) if pager else 0
        return found

    def start(self, *words, **kw):
        with open(self.dir / 'program.err', 'a', encoding='ascii') as err:
            program = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=err, text=True, cwd=self.dir, **kw)
        self.programs.append(program)
        return program

    def pages(self, mib):
        """Starts keeper_of_pages, with all of its memory present."""
        program = self.start(self.args.program, mib)
        program.stdout.readline()
        return program

    def out(self, pid):
        found = self.status(pid)
        return found['evicted_units'] if found else 0

    def await_units(self, program, units, each=None):
        """Waits until this many more units were evicted."""
        begin = self.out(program.pid)

        def reached():
            if program.poll() is not None:
                raise Failed(f'the program ended with {program.returncode}')
            if each:
                each()
            return self.out(program.pid) >= begin + units
        wait_until(reached, f'{units} units out', 600)

    def there_and_back(self, program):
        """Units that were evicted or that came back, the smaller number of the two."""
        found = self.status(program.pid)
        return min(found['evicted_units'], found['read_units']) if found else 0

    def await_units_asked(self, program, units, ask):
        """Waits until this many more units were evicted; with --units, until that many came back, too. Checks each answer."""
        self.await_units(program, units, each=ask)
        end, last = time.monotonic() + DEADLINE_S, 0
        while last < self.args.units:
            if time.monotonic() > end:
                raise Failed(f'no unit in {DEADLINE_S} s: {last} of {self.args.units}')
            ask()
            now = self.there_and_back(program)
            end, last = time.monotonic() + DEADLINE_S if now > last else end, now

    def end_pages(self, program, detach=True):
        if detach:
            self.ctl('memory', 'detach', program.pid)
            smaps = Path(f'/proc/{program.pid}/smaps').read_text()
            if re.search(r'VmFlags:.* u[mw]( |$)', smaps, re.M):
                raise Failed('areas are registered after the detach')
        program.send_signal(signal.SIGTERM)
        last = program.communicate(timeout=DEADLINE_S)[0].splitlines()[-1]
        if program.returncode or not re.fullmatch(r'end \d+ 0', last):
            raise Failed(f'exit {program.returncode}: {last}')
        return last

    def close(self):
        for program in self.programs:
            if program.poll() is None:
                program.kill()
                program.wait()
        pids = [p for p in Path('/proc').glob('[0-9]*') if self.ours(p)]
        for pid in pids:
            try:
                os.kill(int(pid.name), signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)

    def ours(self, proc):
        try:
            return f'ZNS_RUN={self.dir}/run'.encode() in (proc / 'environ').read_bytes().split(b'\0')
        except OSError:
            return False

    def ours_all(self):
        return [p for p in Path('/proc').glob('[0-9]*') if self.ours(p)]

    def comm(self, proc):
        try:
            return (proc / 'comm').read_text().strip()
        except OSError:
            return ''

    def all_of(self, name):
        """PIDs of our daemons of this name, the oldest first: a pager's holder has the pager's name."""
        found = [p for p in self.ours_all() if self.comm(p) == name]
        return [int(p.name) for p in sorted(found, key=started)]

    def kill_one(self, name, sig=signal.SIGKILL):
        """Sends a signal to one of our daemons."""
        for pid in self.all_of(name)[:1]:
            try:
                os.kill(pid, sig)
                return True
            except ProcessLookupError:
                pass
        return False

    def kill_both(self):
        """Kills pager and keeper at once, so that neither can replace the other."""
        self.kill_one('zns-mem', signal.SIGSTOP)
        self.kill_one('zns-memkeep')
        self.kill_one('zns-mem')

    def killed_right(self, program, seconds=DEADLINE_S):
        """Waits for its end, and checks that no page that it had read was wrong."""
        program.wait(seconds)
        wrong = (self.dir / 'program.err').read_text()
        if program.returncode not in (-signal.SIGKILL, -signal.SIGBUS) or ': page ' in wrong:
            raise Failed(f'exit {program.returncode}: {wrong[:200]}')


def started(proc):
    """Key for sorting by age: the start time in ticks, then the PID for processes of the same tick."""
    try:
        return int((proc / 'stat').read_text().rpartition(')')[2].split()[19]), int(proc.name)
    except OSError:
        return sys.maxsize, 0


def resident(pid):
    return int(Path(f'/proc/{pid}/statm').read_text().split()[1]) * 4096


@case
def budget(stage, args):
    """The program returns to its budget while it works; the rest of its memory is on zones; a detach brings all of it back."""
    stage = stage()
    program = stage.pages(96)
    stage.attach(program.pid, '48M')
    wait_until(lambda: resident(program.pid) <= 48 << 20, 'the budget')
    stage.await_units(program, 500)
    wait_until(lambda: resident(program.pid) <= 48 << 20, 'the budget while it works')
    found = stage.status(program.pid)
    print(f'    {found["evicted_units"]} units out, {found["read_units"]} back')
    stage.ctl('memory', 'limit', f'pid-{program.pid}', '--dram', '24M')
    wait_until(lambda: resident(program.pid) <= 24 << 20, 'the smaller budget')
    stage.end_pages(program)
    if resident(program.pid) if program.poll() is None else 0:
        raise Failed('it has not ended')


@case
def soak(stage, args):
    """Under continuous eviction for --rounds units, and no page is wrong."""
    stage = stage()
    program = stage.pages(64)
    stage.attach(program.pid, '8M')
    stage.await_units(program, args.rounds)
    found = stage.status(program.pid)
    print(f'    {found["evicted_units"]} units out, {found["read_units"]} back; {stage.end_pages(program)}')


@case
def deaths(stage, args):
    """kill -9 of pager, keeper and broker, one after the other, under load: each is replaced, and the program is served."""
    stage, killed, names = stage(), [], ['zns-mem', 'znsd', 'zns-memkeep']
    program = stage.pages(48)
    stage.attach(program.pid, '8M')
    rng = random.Random(4)

    def one():
        name = rng.choice(names)
        wait_until(lambda: stage.status(program.pid), 'a pager')
        time.sleep(rng.random())
        if stage.kill_one(name):
            killed.append(name)
        time.sleep(1)
    for _ in range(12):
        one()
        stage.await_units(program, 20)
    found = stage.status(program.pid)
    print(f'    killed: {", ".join(f"{killed.count(n)} {n}" for n in names)}; {found["evicted_units"]} units out; {stage.end_pages(program)}')
    if found['takeovers'] != killed.count('zns-mem'):
        raise Failed(f'{found["takeovers"]} take-overs')


CHILDREN = 400
FAMILY = f'''import os, sys, time
have = [bytearray(str(n).zfill(64).encode() * 1024) for n in range(32)]
def right(): return all(h == str(n).zfill(64).encode() * 1024 for n, h in enumerate(have))
def kid():
    for turn in range(2):
        os.write(wout, b'y' if right() else b'n'); os.read(gin if turn == 0 else lin, 1)
    os._exit(0)
win, wout = os.pipe(); gin, gout = os.pipe(); lin, lout = os.pipe()
print('ready', flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        if not os.fork(): kid()
        time.sleep(.001)
    print('forked', flush=True)
    if line.strip() == '0': break
def answers(n):
    said = b''
    while len(said) < n: said += os.read(win, n - len(said))
    return said.count(b'y')
print(answers({CHILDREN}), flush=True)
sys.stdin.readline(); os.write(gout, b'x' * {CHILDREN}); print(answers({CHILDREN}), right(), flush=True)
sys.stdin.readline()'''


@case
def many(stage, args):
    """400 children live at once, and the pager is killed meanwhile: all run on, and each has all that its parent had."""
    stage = stage()
    program = stage.start('/usr/bin/python3', '-c', FAMILY, stdin=subprocess.PIPE)

    def told(text):
        program.stdin.write(text + '\n')
        program.stdin.flush()
    program.stdout.readline()
    stage.attach(program.pid, '2M')
    wait_until(lambda: stage.out(program.pid) >= 16, 'units that are out')
    for n in (CHILDREN // 2, CHILDREN // 2):
        told(str(n))
        program.stdout.readline()
        stage.kill_one('zns-mem')
    told('0')
    program.stdout.readline()
    first = program.stdout.readline().strip()
    wait_until(lambda: (stage.status(program.pid) or {}).get('takeovers', 0) >= 2, 'the next pager')
    found = stage.status(program.pid)
    told('')
    second = program.stdout.readline().strip()
    print(f'    {len(found["processes"])} processes, {found["left_processes"]} left; {first}, then {second} children are right; '
          f'{found["evicted_units"]} units out, {found["lost_units"]} lost')
    if (first, second) != (str(CHILDREN), f'{CHILDREN} True'):
        raise Failed('a child is wrong')
    stage.ctl('memory', 'detach', program.pid)


@case
def both(stage, args):
    """Pager and keeper die together: the program is killed, and has read nothing wrong."""
    stage = stage()
    program = stage.pages(48)
    stage.attach(program.pid, '8M')
    stage.await_units(program, 100)
    stage.kill_both()
    stage.killed_right(program)


@case
def unkept(stage, args):
    """The control: pager, keeper and the pager's holder die together, and evicted memory is gone, which the program notices."""
    stage = stage()
    program = stage.pages(48)
    stage.attach(program.pid, '8M')
    stage.await_units(program, 100)
    stage.kill_one('zns-mem', signal.SIGSTOP)     # otherwise the pager would start another keeper at once
    stage.kill_one('zns-memkeep')
    for pid in stage.all_of('zns-mem'):
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    program.send_signal(signal.SIGTERM)
    said = program.communicate(timeout=DEADLINE_S)[0]
    wrong = (stage.dir / 'program.err').read_text()
    print(f'    exit {program.returncode}; {wrong.partition(chr(10))[0]}')
    if program.returncode in (0, -signal.SIGKILL) or re.search(r'^end \d+ 0$', said, re.M):
        raise Failed('this control sees nothing')


@case
def full(stage, args):
    """No zone is left: eviction stops with a warning, and the program runs on."""
    stage = stage(zones=10)
    program = stage.pages(96)
    stage.attach(program.pid, '16M')
    wait_until(lambda: (stage.status(program.pid) or {}).get('warning'), 'a warning')
    warning = stage.status(program.pid)['warning']
    line = program.stdout.readline()
    print(f'    {warning}; {line.strip()}')
    stage.end_pages(program)


@case
def write_errors(stage, args):
    """Writes fail: zones are replaced, units stay in memory until then, nothing is lost."""
    stage = stage()
    program = stage.pages(64)
    stage.pager(program, '16M', ZNS_EMU_FAULT='write-after=40x5')
    stage.await_units(program, 300)
    stage.end_pages(program)


@case
def read_errors(stage, args):
    """A unit cannot be read: the program gets SIGBUS or is killed, and never reads zeroes."""
    stage = stage()
    program = stage.pages(64)
    stage.pager(program, '16M', ZNS_EMU_FAULT='read-after=200x*')
    said = ['0 0', *program.communicate(timeout=DEADLINE_S)[0].splitlines()]
    if program.returncode not in (-signal.SIGBUS, -signal.SIGKILL) or ': page ' in (stage.dir / 'program.err').read_text():
        raise Failed(f'exit {program.returncode}: {said[-1]}')


@case
def pinned(stage, args):
    """A process with an io_uring of its own is refused in one line, and runs on."""
    stage = stage()
    code = ('import ctypes, time; p = (ctypes.c_uint32 * 30)(); libc = ctypes.CDLL(None); fd = libc.syscall(425, 8, p); '
            'import mmap; m = mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE); print(fd, flush=True); time.sleep(600)')
    program = stage.start('/usr/bin/python3', '-c', code)
    if int(program.stdout.readline()) < 0:
        raise Skipped('no io_uring')
    done = stage.ctl('memory', 'attach', program.pid, '--dram', '4M', ok=False)
    print(f'    {done.stderr.strip()}')
    if not done.returncode or 'io_uring' not in done.stderr or len(done.stderr.strip().splitlines()) != 1:
        raise Failed('not refused')
    if program.poll() is not None:
        raise Failed('it has ended')


# security.md's table: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_KILL, CAP_NET_ADMIN, CAP_IPC_LOCK, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_RESOURCE
RIGHTS = sum(1 << n for n in (1, 2, 5, 12, 14, 19, 21, 23, 24))


@case
def rights(stage, args):
    """Pager, holder, keeper, and the broker that a pager starts, have only these few capabilities, and so have their
    successors. They suffice for a program of another user."""
    stage = stage()
    for folder in (stage.dir, args.program.parent):
        folder.chmod(0o711)
    program = stage.start(args.program, 16, user=65534, group=65534)
    program.stdout.readline()
    stage.attach(program.pid, '4M')
    stage.await_units(program, 20)

    def look(*names):
        for name in names:
            for pid in stage.all_of(name):
                text = Path(f'/proc/{pid}/status').read_text()
                has = {key: int(re.search(rf'^{key}:\s*(\S+)', text, re.M).group(1), 16) for key in ('CapEff', 'CapPrm', 'CapBnd')}
                if any(bits & ~RIGHTS for bits in has.values()):
                    raise Failed(f'{name} has capabilities {has}')
                if 'NoNewPrivs:\t1' not in text:
                    raise Failed(f'{name} may gain privileges')
    look('zns-mem', 'zns-memkeep')
    for name in ('znsd', 'zns-mem', 'zns-memkeep'):
        stage.kill_one(name)
        stage.await_units(program, 20)
        wait_until(lambda name=name: stage.all_of(name), name)
        look('zns-mem', 'zns-memkeep', 'znsd')
    stage.end_pages(program)


@case
def upgraded(stage, args):
    """The pager's file is replaced by one of another version, which cannot take over from the old pager: its successors are still the old build."""
    stage = stage()
    stage.args = copy.copy(args)
    stage.args.bin = stage.dir / 'bin'
    shutil.copytree(args.bin, stage.args.bin)
    program = stage.pages(16)
    stage.attach(program.pid, '4M')
    stage.await_units(program, 20)
    shutil.copy('/bin/false', stage.args.bin / 'new')
    os.rename(stage.args.bin / 'new', stage.args.bin / 'zns-mem')
    for _ in range(2):
        before = stage.status(program.pid)['pager']
        os.kill(before, signal.SIGKILL)
        wait_until(lambda before=before: (stage.status(program.pid) or {}).get('pager', before) != before, 'a successor')
        stage.await_units(program, 20)
    if not stage.all_of('zns-mem'):
        raise Failed('it has another name')
    stage.end_pages(program)


@case
def names(stage, args):
    """Contexts named like the keeper's files, and with the longest possible name: each is found, and continues after its pager's death."""
    stage = stage()
    for name in ('keeper', 'keeper.lock', 'n' * 200):
        program = stage.pages(8)
        stage.ctl('memory', 'attach', program.pid, '--dram', '3M', '--name', name)

        def pager(name=name):
            found = re.search(r'pager PID (\d+)', stage.ctl('memory', 'status', name, ok=False).stdout)
            return found and int(found.group(1))
        first = pager()
        if not first:
            raise Failed(f'{name}: it is not found')
        os.kill(first, signal.SIGKILL)
        wait_until(lambda first=first, pager=pager: pager() not in (None, first), f'{name}: a successor')
        stage.ctl('memory', 'detach', name)
        stage.end_pages(program, detach=False)
    done = stage.ctl('memory', 'attach', os.getpid(), '--dram', '3M', '--name', 'a/b', ok=False)
    if not done.returncode or len(done.stderr.strip().splitlines()) != 1:
        raise Failed(f'{done.stderr}')


@case
def redis(stage, args):
    """Redis under load has every value, before and after the detach."""
    if not shutil.which('redis-server'):
        raise Skipped('no redis-server')
    stage = stage()
    sock = stage.dir / 'redis.sock'
    program = stage.start('redis-server', '--port', '0', '--unixsocket', sock, '--save', '', '--appendonly', 'no')

    def cli(text):
        return subprocess.run(['redis-cli', '-s', sock], input=text, capture_output=True, text=True, check=True).stdout.split('\n')
    wait_until(sock.exists, 'its socket')
    keys = 20000
    value = {n: f'{n:08d}' * 250 for n in range(keys)}
    cli('\n'.join(f'SET k{n} {v}' for n, v in value.items()))
    before = resident(program.pid)
    stage.attach(program.pid, '20M')
    rng, looks = random.Random(7), 0
    while looks < 20 or stage.there_and_back(program) < args.units:
        looks += 1
        some = [rng.randrange(keys) for _ in range(400)]
        for n, got in zip(some, cli('\n'.join(f'GET k{n}' for n in some))):
            if got != value[n]:
                raise Failed(f'k{n} is wrong')
        value.update({n: f'{n + 1:08d}' * 250 for n in some[:50]})
        cli('\n'.join(f'SET k{n} {value[n]}' for n in some[:50]))
    wait_until(lambda: resident(program.pid) <= 20 << 20, 'the budget')
    found = stage.status(program.pid)
    print(f'    {before >> 20} MiB, now {resident(program.pid) >> 20}; {found["evicted_units"]} units out, {found["read_units"]} back; '
          f'{400 * looks} values looked at')
    stage.ctl('memory', 'detach', program.pid)
    got = cli('\n'.join(f'GET k{n}' for n in range(keys)))
    wrong = [n for n in range(keys) if got[n] != value[n]]
    if wrong:
        raise Failed(f'{len(wrong)} values are wrong')


def asked(stage, program, budget, units=300):
    """A program that answers each line with "ok" after it has checked all its memory."""
    answers = 0

    def ask():
        nonlocal answers
        program.stdin.write('\n')
        program.stdin.flush()
        said = program.stdout.readline().strip()
        if said != 'ok':
            raise Failed(f'the program says {said!r}')
        answers += 1
    ask()
    before = resident(program.pid)
    stage.attach(program.pid, budget)
    stage.await_units_asked(program, units, ask)
    found = stage.status(program.pid)
    print(f'    {before >> 20} MiB, now {resident(program.pid) >> 20}; {found["evicted_units"]} units out, {found["read_units"]} back; '
          f'{answers} times all that it has was right')
    stage.ctl('memory', 'detach', program.pid)
    ask()


@case
def node(stage, args):
    """node: a heap of objects, some of which are made anew at each check."""
    if not shutil.which('node'):
        raise Skipped('no node')
    code = '''const a = []; for (let i = 0; i < 300000; i++) a.push({n: i, s: 'x' + i, l: [i, i + 1, i + 2]});
    const b = Buffer.alloc(32 << 20); for (let i = 0; i < b.length; i += 4) b.writeUInt32LE(i, i); let t = 0;
    require('readline').createInterface({input: process.stdin}).on('line', () => { let bad = 0; t++;
      for (let i = 0; i < a.length; i++) if (a[i].n !== i || a[i].s !== 'x' + i || a[i].l[2] !== i + 2) bad++;
      for (let i = 0; i < b.length; i += 4) if (b.readUInt32LE(i) !== i) bad++;
      for (let i = t % 7; i < a.length; i += 7) a[i] = {n: i, s: 'x' + i, l: [i, i + 1, i + 2]};
      console.log(bad ? 'bad ' + bad : 'ok'); });'''
    stage = stage()
    # UV_USE_IO_URING=0: newer versions have an io_uring of their own and would be refused
    program = stage.start('node', '-e', code, stdin=subprocess.PIPE, env={**os.environ, 'UV_USE_IO_URING': '0'})
    asked(stage, program, '64M')


@case
def java(stage, args):
    """A JVM: a heap of arrays, checked and renewed."""
    if not shutil.which('java'):
        raise Skipped('no java')
    stage = stage()
    (stage.dir / 'Heap.java').write_text('''import java.util.*; public class Heap { public static void main(String[] x) throws Exception {
      int[][] a = new int[4000][]; for (int i = 0; i < a.length; i++) a[i] = fill(i); Scanner in = new Scanner(System.in); int t = 0;
      while (in.hasNextLine()) { in.nextLine(); int bad = 0; t++; for (int i = 0; i < a.length; i++) if (!Arrays.equals(a[i], fill(i))) bad++;
      for (int i = t % 5; i < a.length; i += 5) a[i] = fill(i); System.out.println(bad == 0 ? "ok" : "bad " + bad); } }
      static int[] fill(int n) { int[] r = new int[4096]; for (int i = 0; i < r.length; i++) r[i] = n * 31 + i; return r; } }''')
    program = stage.start('java', '-Xmx256m', '-XX:+UseSerialGC', stage.dir / 'Heap.java', stdin=subprocess.PIPE)
    asked(stage, program, '96M')


@case
def go(stage, args):
    """A Go program: goroutines, a heap that is collected."""
    if not shutil.which('go'):
        raise Skipped('no go')
    stage = stage()
    (stage.dir / 'heap.go').write_text('''package main
import ("bufio"; "fmt"; "os"; "sync")
func fill(n int) []uint64 { r := make([]uint64, 2048); for i := range r { r[i] = uint64(n)*31 + uint64(i) }; return r }
func main() { a := make([][]uint64, 4000); for i := range a { a[i] = fill(i) }; in := bufio.NewScanner(os.Stdin); t := 0
 for in.Scan() { bad := make([]int, 4); t++; var w sync.WaitGroup
  for g := 0; g < 4; g++ { w.Add(1); go func(g int) { defer w.Done(); for i := g; i < len(a); i += 4 { want := fill(i)
   for k := range want { if a[i][k] != want[k] { bad[g]++ } }; if (i+t)%5 == 0 { a[i] = want } } }(g) }
  w.Wait(); if bad[0]+bad[1]+bad[2]+bad[3] == 0 { fmt.Println("ok") } else { fmt.Println("bad", bad) } } }
''')
    subprocess.run(['go', 'build', '-o', 'heap', 'heap.go'], cwd=stage.dir, check=True,
                   env={**os.environ, 'GOCACHE': str(stage.dir / 'cache'), 'GOFLAGS': '-mod=mod', 'CGO_ENABLED': '0'})
    asked(stage, stage.start('./heap', stdin=subprocess.PIPE), '32M')


def run(name, args, kind=Stage):
    made = []

    def stage(**kw):
        made.append(kind(args, **kw))
        return made[-1]
    verdict, said = 'PASS', ''
    try:
        CASES[name](stage, args)
    except Skipped as reason:
        verdict, said = 'SKIP', f': {reason}'
    except (Failed, OSError, ValueError, subprocess.SubprocessError) as reason:
        verdict, said = 'FAIL', f': {reason}'
        for log in [*made[-1].dir.glob('run/memory/*.log'), *made[-1].dir.glob('program.err')] if made else ():
            said += f'\n    {log.name}: {" | ".join(log.read_text().splitlines()[-3:])}'
    for one in made:
        one.close()
    print(f'{verdict} {name}{said}', flush=True)
    return verdict


def main(kind=Stage, programs=()):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=('list', 'run'))
    parser.add_argument('names', nargs='*')
    parser.add_argument('-a', '--all', action='store_true')
    parser.add_argument('--rounds', type=int, default=2000)
    parser.add_argument('--units', type=int, default=0, help='programs that people run: until so many units went out and came back')
    parser.add_argument('--kills', type=int, default=20, help='memcheckpoint.py, memoryrestore.py: dumps or restores in which somebody dies')
    parser.add_argument('--build', default='build', type=Path)
    args = parser.parse_args()
    if args.what == 'list':
        for name, function in CASES.items():
            print(f'{name:14}{function.__doc__.strip().splitlines()[0]}')
        return 0
    unknown = set(args.names) - set(CASES)
    if unknown:
        sys.exit(f'memory.py: no case {unknown.pop()}')
    args.bin, args.criu = (args.build / 'test/bin').resolve(), (args.build / 'bin/criu').resolve()
    with tempfile.TemporaryDirectory(prefix='zns-memory-') as there:
        args.program = Path(there) / 'keeper_of_pages'
        for name in ('keeper_of_pages', *programs):
            subprocess.run(['gcc', '-O2', '-static', '-pthread', '-o', args.program.parent / name, HERE / f'memory/{name}.c'], check=True)
        verdicts = [run(name, args, kind) for name in (CASES if args.all else args.names)]
    print(f'{verdicts.count("PASS")} passed, {verdicts.count("FAIL")} failed, {verdicts.count("SKIP")} skipped')
    return 1 if 'FAIL' in verdicts else 0


if __name__ == '__main__':
    sys.exit(main())
