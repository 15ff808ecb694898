#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memoryrestore: `criu restore --zns-memory`: programs that are restored under a budget of DRAM, with the rest of their
memory in the checkpoint.

  memoryrestore.py list | run NAME... | run -a     [--build DIR]

Programs check every page of their own, before and after (memory/keeper_of_pages.c), or are asked for their data
(Redis).
"""
import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import memory
from memory import Failed, wait_until

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Restored:
    """A program that was dumped and is restored, and that checks its own pages."""
    def __init__(self, stage, words, ready, zones=96):
        self.stage, self.args = stage, stage.args
        self.images, self.log = stage.dir / 'images', stage.dir / 'program.out'
        self.images.mkdir()
        (self.images / 'work').mkdir()
        stage.env['ZNS_LIBEXEC'] = str(self.args.bin)
        with open(self.log, 'w', encoding='ascii') as out:
            self.program = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=stage.dir,
                                            env=stage.env, start_new_session=True)
        self.pid = self.program.pid
        stage.programs.append(self.program)
        wait_until(lambda: ready(self), 'the program')

    def criu(self, *words, ok=True, **kw):
        done = subprocess.run([self.args.criu, *map(str, words)], env=self.stage.env, capture_output=True, text=True, check=False, **kw)
        if ok and done.returncode:
            logs = [x[-200:] for log in self.images.glob('work/*.log') for x in log.read_text().splitlines() if 'Error' in x][-4:]
            raise Failed(f'criu {words[0]}: {done.stderr.strip()[-300:]} {logs}')
        return done

    def dump(self, *more):
        self.criu('dump', '-t', self.pid, '-D', self.images, '-W', self.images / 'work', '-o', 'dump.log', '-v4', *more,
                  '--zns-dev', f'emu:{self.stage.dir}/dev')
        self.program.wait()
        self.reap()
        self.size = self.log.stat().st_size
        return self.stage.checkpoints()[-1]

    def reap(self):
        """Waits until the PID is free, which also needs that no process is left in its session; orphans become our children (subreaper)."""
        def gone():
            for proc in Path('/proc').glob('[0-9]*'):
                try:
                    if (proc / 'stat').read_text().rsplit(')', 1)[1].split()[3] != str(self.pid):
                        continue
                    os.waitpid(int(proc.name), os.WNOHANG)
                    return False
                except OSError:
                    pass
            return True
        wait_until(gone, 'the end of its session', 20)

    def again(self):
        """Cuts its output back to the size at the dump, which criu compares."""
        self.reap()
        os.truncate(self.log, self.size)

    def restore(self, dram, *more, ok=True):
        return self.criu('restore', '-d', '-D', self.images, '-W', self.images / 'work', '-o', 'restore.log', '-v4',
                         '--zns-memory', dram, *more, ok=ok)

    def text(self):
        return self.log.read_text()

    def alive(self):
        """Does any process have the PID that the next restore needs? A zombie counts if it is our child, or the child
        of a criu that is about to end."""
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except OSError:
            pass
        try:
            state, parent = Path(f'/proc/{self.pid}/stat').read_text().rsplit(')', 1)[1].split()[:2]
            return state != 'Z' or int(parent) == os.getpid() or Path(f'/proc/{parent}/comm').read_text() == 'criu\n'
        except OSError:
            return False

    def resident(self):
        found = re.search(r'VmRSS:\s+(\d+) kB', Path(f'/proc/{self.pid}/status').read_text())
        return int(found.group(1)) * 1024 if found else 0


class Stage(memory.Stage):
    def contexts(self):
        """The number of contexts; one more if a pager is dying."""
        done = self.ctl('memory', 'status', '--json', ok=False)
        return len(json.loads(done.stdout)['contexts']) + bool(done.returncode)

    def kill_words(self, word):
        """kill -9 of one of our processes that has this word in its command line."""
        for proc in Path('/proc').glob('[0-9]*'):
            try:
                words = (proc / 'cmdline').read_bytes().decode(errors='replace').split('\0')
                if any(w == word or w.endswith('/' + word) for w in words[:2]) and self.ours(proc):
                    os.kill(int(proc.name), signal.SIGKILL)
                    return
            except OSError:
                pass

    def checkpoints(self):
        return [c['id'] for c in json.loads(self.ctl('ls', '--json').stdout)['checkpoints']]


def pages_ready(r):
    return r.text().count('\n') > 1


def ended_well(r, killed=False):
    """Sends SIGTERM, at which the program reads all of its pages; checks its answer."""
    os.kill(r.pid, signal.SIGTERM)
    wait_until(lambda: not r.alive(), 'the end of the program', 300)
    r.reap()
    last = r.text().splitlines()[-1]
    wrong = re.fullmatch(r'end (?:\d+ )?(\d+)', last)
    # a child that is forked at the moment when the pager dies is lost (memory.md)
    lost = len(re.findall(r'^child \d+: status', r.text(), re.M)) if killed else 0
    if not wrong or int(wrong.group(1)) > lost or f'pid {r.pid}: page ' in r.text():
        said = [line for line in r.text().splitlines() if re.match(r'pid|child', line)]
        raise Failed(f'the program says {last!r}: {len(said)} lines, the first {said[:20]}')
    return last


def refused(stage, ident):
    """Checks that rm names in one line the context that needs the checkpoint."""
    done = stage.ctl('rm', ident, ok=False)
    if not done.returncode or len(done.stderr.strip().splitlines()) != 1 or 'znsctl memory detach' not in done.stderr:
        raise Failed(f'rm: exit {done.returncode}: {done.stdout} {done.stderr}')


def removed(stage, ident):
    """Waits until rm succeeds: within a second or two after the last unit has left the checkpoint."""
    wait_until(lambda: not stage.ctl('rm', ident, ok=False).returncode, 'rm', 20)


def status(r):
    found = r.stage.ctl('memory', 'status', r.pid, '--json', ok=False)
    return json.loads(found.stdout) if not found.returncode else None


def unread(r):
    found = status(r)
    return found['unread'] if found else -1


@case
def pages(stage, args):
    """A program that checks every page: it has at most a fifth of its memory from its first moment on, rm is refused; then it is detached"""
    r = Restored(stage(zones=160), [args.program, 64], pages_ready)
    ident = r.dump()
    r.restore('13M')
    begin, found = r.resident(), status(r)
    if begin > 13 << 20 or found['checkpoint'] != ident or found['unread'] < 16 << 20:
        raise Failed(f'it began with {begin >> 20} MiB, {found["unread"] >> 20} still in {found["checkpoint"]}')
    refused(r.stage, ident)
    other = r.images.parent / 'other'
    other.mkdir()
    done = r.criu('dump', '-t', r.pid, '-D', other, '-W', other, '-o', 'dump.log', '--zns-dev', f'emu:{r.stage.dir}/dev', ok=False)
    if not done.returncode or 'restored from' not in (other / 'dump.log').read_text():
        raise Failed(f'a dump of it: exit {done.returncode}: {(other / "dump.log").read_text()[-300:]}')
    wait_until(lambda: status(r)['evicted_units'] > 500, '500 units out')

    def is_kept():
        return sorted(r.resident() for _ in range(50) if not time.sleep(0.02))[25] <= 14 << 20
    wait_until(is_kept, 'the budget of 13 MiB is kept')
    refused(r.stage, ident)
    found = status(r)
    r.stage.ctl('memory', 'detach', r.pid)
    removed(r.stage, ident)
    print(f'    began with {begin >> 20} MiB; {found["evicted_units"]} units out, {found["read_units"]} back; {ended_well(r)}')


@case
def first_touch(stage, args):
    """Restored again and again: the pager must answer the first faults, not the daemon that has handed everything over (6 of 65 had read zeroes)"""
    r = Restored(stage(zones=160), [args.program, 24], pages_ready)
    r.dump()
    for n in range(args.kills):
        r.again()
        r.restore('5M', '--zns-container', f'turn{n}')
        time.sleep(0.5)
        ended_well(r)
        wait_until(lambda: not r.stage.contexts(), 'the end of the context', 30)
    print(f'    {args.kills} restores')


@case
def deaths(stage, args):
    """kill -9 of pager, keeper and broker while its memory is in the checkpoint: a successor reads on, and rm stays refused"""
    r = Restored(stage(zones=160), [args.program, 64], pages_ready)
    ident = r.dump()
    r.restore('13M')
    for name in ('zns-mem', 'znsd', 'zns-mem', 'zns-memkeep', 'znsd', 'zns-mem'):
        wait_until(lambda: unread(r) >= 0, 'a pager')
        if name != 'zns-memkeep' or not time.sleep(0.5):
            r.stage.kill_one(name)
        refused(r.stage, ident)
        time.sleep(0.5)
    wait_until(lambda: unread(r) >= 0, 'a pager')
    found = status(r)
    if found['takeovers'] != 3 or not found['unread']:
        raise Failed(f'{found["takeovers"]} take-overs, {found["unread"]} bytes unread')
    print(f'    {found["unread"] >> 20} MiB were still in the checkpoint; {ended_well(r, True)}')
    removed(r.stage, ident)


@case
def kills(stage, args):
    """kill -9 of any process that takes part, at any moment of the restore: it fails and leaves nothing, or the program has everything"""
    r = Restored(stage(zones=160), [args.program, 24], pages_ready)
    r.dump()
    rng, whole, failed = random.Random(5), 0, 0
    for n in range(args.kills):
        name = ('zns-mem', 'lazy-pages', 'zns-helper', 'restore', 'zns-memkeep', 'znsd')[n % 6]
        begin = r.text().count('\n')
        r.again()
        words = [args.criu, 'restore', '-d', '-D', r.images, '-W', r.images / 'work', '-o', 'restore.log', '--zns-memory', '5M']
        one = subprocess.Popen(words, env=r.stage.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.5)
        r.stage.kill_words(name)
        code = one.wait(timeout=60)
        if r.alive() and code and name != 'restore':
            wait_until(lambda: not r.alive(), f'the end of a failed restore ({name})', 20)
        if r.alive():
            def seen():
                return r.text().count('\n') > begin + 1 or not r.alive()
            try:
                wait_until(seen, f'the program goes on ({name} killed)', 30 if name != 'restore' else 5)
            except Failed:
                if name != 'restore':      # after criu's death tasks would stay half restored
                    raise
                os.kill(r.pid, signal.SIGKILL)
                wait_until(lambda: not r.alive(), 'its end')
        if r.alive():
            try:
                ended_well(r, True)
            except Failed as wrong:
                raise Failed(f'{name} killed, criu {code}: {wrong}') from None
            whole += 1
        elif re.search(r' [1-9]\d*$', r.text().splitlines()[-1]):
            raise Failed(f'{name}: {r.text().splitlines()[-1]}')
        else:
            failed += 1
        wait_until(lambda: not r.stage.contexts(), f'the end of the context ({name})', 30)
    print(f'    {whole} programs ran, {failed} restores failed')
    if not whole or not failed:
        raise Failed('the moments were all of one kind')
    r.again()
    r.restore('5M')
    ended_well(r)


@case
def tree(stage, args):
    """A tree of processes with threads, some of which end and begin after the restore"""
    r = Restored(stage(zones=160), [args.program.parent / 'tree', 16], lambda r: 'ready' in r.text())
    ident = r.dump()
    r.restore('12M')
    for n in range(3):
        os.kill(r.pid, signal.SIGUSR1)
        wait_until(lambda n=n: r.text().count('swapped') > n, 'a thread has ended')
    refused(r.stage, ident)
    found = status(r)
    if len(found['processes']) != 4:
        raise Failed(f'{len(found["processes"])} processes')
    wait_until(lambda: all(p['evicts'] for p in status(r)['processes']), 'all evict')
    print(f'    {found["resident"] >> 20} MiB of 12 for four processes; {ended_well(r)}')


GUARDED = """
import ctypes, mmap, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
SIZE, PAGE, call = 8 << 20, 4096, ctypes.CDLL(None).madvise
call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
m = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[:] = b'x' * SIZE
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
none = 0
for page in range(1, SIZE // PAGE, 16):
    none |= call(at + page * PAGE, PAGE, 102)        # MADV_GUARD_INSTALL, and _REMOVE
    none |= call(at + page * PAGE, PAGE, 103)
wrong = sum(m[page * PAGE] != (0 if page % 16 == 1 else 120) for page in range(SIZE // PAGE))
print('no guards' if none else f'wrong {wrong}', flush=True)
signal.pause()
"""


@case
def guarded(stage, args):
    """Guard pages that come and go while a page is in the checkpoint: it is zeroes afterwards"""
    r = Restored(stage(zones=160), [sys.executable, '-c', GUARDED], lambda r: 'ready' in r.text())
    r.dump()
    r.restore('32M')
    if unread(r) < 7 << 20:
        raise Failed(f'{unread(r) >> 20} MiB are in the checkpoint')
    os.kill(r.pid, signal.SIGUSR1)
    wait_until(lambda: r.text().count('\n') > 1, 'its answer')
    said = r.text().splitlines()[-1]
    if said == 'no guards':
        raise memory.Skipped('this kernel has no guard pages')
    if said != 'wrong 0':
        raise Failed(said)
    os.kill(r.pid, signal.SIGKILL)
    wait_until(lambda: not r.alive(), 'its end')


def redis_of(stage, *options):
    """Sends a Redis the words of a command, or a text with a command in each line; returns its answer."""
    if not shutil.which('redis-server'):
        raise memory.Skipped('no redis-server')
    sock = stage.dir / 'redis.sock'

    def cli(*words, text=None):
        return subprocess.run(['redis-cli', '-s', sock, *words], input=text, capture_output=True, text=True, check=True).stdout
    words = ['redis-server', '--port', '0', '--unixsocket', sock, '--save', '', '--appendonly', 'no', *options]
    return Restored(stage, words, lambda r: sock.exists()), cli


@case
def redis(stage, args):
    """Redis has every value, from zones, before and after a kill of the pager and a detach"""
    one = stage(zones=160)
    r, ask = redis_of(one)

    def cli(text):
        return ask(text=text).split('\n')
    value = {n: f'{n:08d}' * 250 for n in range(20000)}
    cli('\n'.join(f'SET k{n} {v}' for n, v in value.items()))
    before = r.resident()
    ident = r.dump('--ext-unix-sk')
    r.restore('14M', '--ext-unix-sk')
    if cli('GET k77')[0] != value[77]:
        raise Failed('the first answer is wrong')
    early = unread(r)
    rng = random.Random(7)
    for turn in range(20):
        some = [rng.randrange(len(value)) for _ in range(400)]
        got = cli('\n'.join(f'GET k{n}' for n in some))
        if [n for n, v in zip(some, got) if v != value[n]]:
            raise Failed('a value is wrong')
        value.update({n: f'{n + 1:08d}' * 250 for n in some[:50]})
        cli('\n'.join(f'SET k{n} {value[n]}' for n in some[:50]))
        if turn == 10:
            one.kill_one('zns-mem')
    wait_until(lambda: r.resident() <= 14 << 20, 'the budget')
    late = unread(r)
    one.ctl('memory', 'detach', r.pid)
    got = cli('\n'.join(f'GET k{n}' for n in value))
    if [n for n in value if got[n] != value[n]]:
        raise Failed('a value is wrong after the detach')
    os.kill(r.pid, signal.SIGKILL)     # it has no environment variable by which we could find it
    print(f'    of {before >> 20} MiB {early >> 20} were in the checkpoint at the first answer, {late >> 20} after 8000')
    removed(one, ident)


@case
def redis_again(stage, args):
    """A Redis of some 400 MB is restored again and again: its first answers are right, it stays under its budget, and
    has everything (its own digest)"""
    one = stage(zones=260)
    r, cli = redis_of(one, '--enable-debug-command', 'yes')
    cli('DEBUG', 'POPULATE', '1000000', 'key', '300')
    digest, rng = cli('DEBUG', 'DIGEST'), random.Random(7)
    some = [rng.randrange(1000000) for _ in range(1000)]
    asked = '\n'.join(f'GET key:{n}' for n in some)
    want = cli(text=asked)
    r.dump('--ext-unix-sk')
    # the digest reads all memory under the budget, which takes more than a minute for each
    turns = max(args.kills // 4, 1)
    for turn in range(turns):
        r.again()
        r.restore('100M', '--ext-unix-sk', '--zns-container', f'turn{turn}')
        if cli(text=asked) != want:
            raise Failed(f'a first answer is wrong after restore {turn}')
        time.sleep(2)
        if not r.alive():
            raise Failed(f'it has ended after restore {turn}: {r.text()[-300:]}')
        if cli('DEBUG', 'DIGEST') != digest:
            raise Failed(f'its digest is another one after restore {turn}')
        os.kill(r.pid, signal.SIGKILL)
        wait_until(lambda: not r.alive(), 'its end')
        wait_until(lambda: not one.contexts(), 'the end of the context', 30)
    print(f'    {turns} restores, {1000 * turns} first answers')


@case
def chain(stage, args):
    """An incremental checkpoint: memory that comes from its parent is not lazy for CRIU; everything is there, and the budget is kept"""
    r = Restored(stage(zones=200), [args.program, 48], pages_ready)
    first, dev = r.images.parent / 'first', f'emu:{r.stage.dir}/dev'
    first.mkdir()
    done = r.criu('pre-dump', '-t', r.pid, '-D', first, '-W', first, '--track-mem', '--zns-dev', dev, ok=False)
    if done.returncode:
        raise memory.Skipped(f'no pre-dump here: {done.stderr.strip()[-100:]}')
    time.sleep(1)
    r.dump('--prev-images-dir', '../first', '--track-mem')
    r.restore('10M')
    wait_until(lambda: r.resident() <= 10 << 20, 'the budget')
    print(f'    {ended_well(r)}')


@case
def refusals(stage, args):
    """What cannot be done is refused in one line, nothing is left, and a full restore works afterwards"""
    one = stage(zones=160)
    r = Restored(one, [args.program, 16], pages_ready)
    r.dump()

    def no(what, *words, begin=None):
        done = begin() if begin else r.restore(*words, ok=False)
        said = [line for line in done.stderr.splitlines() if 'Error' in line]
        log = r.images / 'work/restore.log'
        log = log.read_text() if log.exists() else ''
        if not done.returncode or what not in done.stderr + log or r.alive() or one.contexts():
            raise Failed(f'{words}: exit {done.returncode}: {said or log[-400:]}')
    no('takes a size', '10')
    no('leave out --lazy-pages', '8M', '--lazy-pages')
    no('is for criu restore', begin=lambda: r.criu('lazy-pages', '-D', r.images, '-W', r.images / 'work', '-o', 'restore.log',
                                                   '--zns-memory', '8M', ok=False))
    # another context has that name
    other = one.pages(16)
    name = json.loads(one.ctl('ls', '--json').stdout)['checkpoints'][0]['container']
    one.ctl('memory', 'attach', other.pid, '--dram', '8M', '--name', name)
    done = r.restore('8M', ok=False)
    log = (r.images / 'work/restore.log').read_text()
    wait_until(lambda: not r.alive(), 'the end of what was not restored')
    if not done.returncode or 'is here already' not in log:
        raise Failed(f'a second context of one name: {done.returncode} {log[-300:]}')
    r.restore('8M', '--zns-container', 'second')
    wait_until(lambda: 'second' in one.ctl('memory', 'status').stdout, 'the context')
    os.kill(r.pid, signal.SIGKILL)
    wait_until(lambda: not r.alive(), 'its end')
    r.again()
    one.ctl('memory', 'detach', name)
    other.kill()
    r.criu('restore', '-d', '-D', r.images, '-W', r.images / 'work', '-o', 'restore.log')
    ended_well(r)


def main():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)     # PR_SET_CHILD_SUBREAPER
    memory.CASES.clear()
    memory.CASES.update(CASES)
    return memory.main(Stage, ('tree',))


if __name__ == '__main__':
    sys.exit(main())
