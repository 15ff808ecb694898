#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
hibernate: programs all of whose memory is on zones, while any of our processes dies, and commands come at any time.

  hibernate.py list | run NAME... | run -a     [--build DIR]

The program is memory/idler.c, which looks at every page of its own when it is told to, or Redis, which is asked for
its values.
"""
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import memory
from memory import Failed, Skipped, case, resident, wait_until
from ztcgroup import Cgroup

memory.CASES.clear()
HERE = Path(__file__).resolve().parent
SPARE = 4 << 20          # bytes that may stay in memory: text, stacks, small areas, what timers need


class Idler:
    """A program that does nothing until it is asked."""
    def __init__(self, stage, mib, threads=0, children=0, **kw):
        self.stage, binary = stage, stage.dir / 'idler'
        if not binary.exists():
            subprocess.run(['gcc', '-O2', '-static', '-o', binary, HERE / 'memory/idler.c', '-lpthread'], check=True)
        self.process = stage.start(binary, mib, threads, children, stdin=subprocess.PIPE, **kw)
        self.pid, self.name = self.process.pid, f'pid-{self.process.pid}'
        self.process.stdout.readline()

    def ask(self, percent):
        """Asks the program to read that much of its memory, and to write some of it."""
        self.process.stdin.write(f'{percent}\n')
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        if said != 'ok':
            raise Failed(f'the program says {said!r}: {(self.stage.dir / "program.err").read_text()[-300:]}')

    def state(self):
        return (self.stage.status(self.pid) or {}).get('state')

    def tell(self, what, *more, ok=True):
        return self.stage.ctl('memory', what, self.pid, *more, ok=ok)

    def await_state(self, state):
        wait_until(lambda: self.state() == state, state)


def family(pid):
    """The PIDs of the process and its descendants."""
    below = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
    return [pid, *(p for child in below for p in family(int(child)))]


def anonymous(pid):
    for line in Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines():
        if line.startswith('Anonymous:'):
            return int(line.split()[1]) << 10
    return 0


def out(pid):
    for p in family(pid):
        if anonymous(p) > SPARE:
            raise Failed(f'PID {p} has {anonymous(p) >> 10} KiB of its own memory')


@case
def threads(stage, args):
    """Threads: all memory goes out; only touched pages come back."""
    stage = stage()
    program = Idler(stage, 96, threads=3)
    before = resident(program.pid)
    program.tell('hibernate')
    out(program.pid)
    after = resident(program.pid)
    program.ask(1)
    touched = resident(program.pid)
    if touched > after + (3 << 20):
        raise Failed(f'{touched - after >> 10} KiB came back for 1 % of 96 MiB')
    print(f'    {before >> 10} KiB, hibernated {after >> 10}, one percent touched {touched >> 10}')
    program.tell('wake')
    stage.ctl('memory', 'limit', program.name, '--dram', '16M')
    program.ask(100)
    program.tell('hibernate')
    out(program.pid)
    program.ask(100)
    program.tell('detach')
    program.ask(100)


@case
def tree(stage, args):
    """A tree of processes that share pages since fork."""
    stage = stage(zones=128)
    program = Idler(stage, 24, threads=1, children=3)
    all_pids = family(program.pid)
    before = sum(map(resident, all_pids))
    for _ in range(3):
        program.tell('hibernate')
        for pid in all_pids:
            out(pid)
        program.ask(100)
    print(f'    {len(all_pids)} processes, {before >> 20} MiB')
    program.tell('detach')
    program.ask(100)


@case
def killed(stage, args):
    """kill -9 of pager, keeper and broker while it hibernates: it stays hibernated, and its memory is complete."""
    stage = stage()
    program = Idler(stage, 48, threads=2)
    program.tell('hibernate')
    for name in ('zns-mem', 'znsd', 'zns-memkeep', 'zns-mem'):
        before = stage.status(program.pid)
        stage.kill_one(name)
        time.sleep(0.5)
        wait_until(lambda: stage.status(program.pid), 'a pager')
        found = stage.status(program.pid)
        if (found['state'], found['since']) != ('hibernated', before['since']):
            raise Failed(f'after the end of {name} it is {found["state"]} since {found["since"]}')
        out(program.pid)
    program.ask(3)
    before = stage.status(program.pid)['record_units']
    stage.kill_one('zns-mem')
    wait_until(lambda: (stage.status(program.pid) or {}).get('takeovers') == 3, 'the third pager after the first')
    if stage.status(program.pid)['record_units'] < before:
        raise Failed('the record is gone')
    program.tell('wake')
    program.ask(100)
    program.tell('detach')
    program.ask(100)


@case
def races(stage, args):
    """hibernate and wake, each while the other is under way, with pagers that die, for a program that works."""
    stage, rng, deaths = stage(), random.Random(15), 0
    program = stage.pages(64)
    stage.attach(program.pid, '48M')
    for n in range(30):
        one = [str(args.bin / 'znsctl'), 'memory', rng.choice(('hibernate', 'wake')), str(program.pid)]
        told = subprocess.Popen(one, env=stage.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() / 4)
        if n % 5 == 4:
            deaths += stage.kill_one('zns-mem')
            wait_until(lambda: stage.status(program.pid), 'a pager')
        if n % 2:
            told.wait(timeout=memory.DEADLINE_S)
        else:
            stage.programs.append(told)
    wait_until(lambda: stage.status(program.pid), 'a pager')
    found = stage.status(program.pid)
    print(f'    {found["wakes"]} wakes, {deaths} dead pagers, {found["evicted_units"]} units out, {found["read_units"]} back; '
          f'{stage.end_pages(program)}')
    if not found['wakes']:
        raise Failed('it never woke')


@case
def record(stage, args):
    """The second wake reads ahead what the first activation touched, except for a sample; the following activation
    has few faults. The touched memory is contiguous, so even without a record streams leave few faults: what
    counts is what the wake itself brings back."""
    stage = stage()
    program = Idler(stage, 64)
    touched = 64 * 16 * 30 // 100   # in units: 30 % of the memory

    def activation():
        """Returns (units that the wake brought back, faults after it)."""
        program.tell('hibernate')
        gone = stage.status(program.pid)['evicted']
        program.tell('wake')
        awake = stage.status(program.pid)
        program.ask(30)
        return (gone - awake['evicted']) >> 16, stage.status(program.pid)['read_units'] - awake['read_units']
    program.tell('hibernate')
    program.tell('wake')         # there is no record yet: from now on touched pages are recorded
    first, second = activation(), activation()
    print(f'    {touched} units touched; of these read ahead by the wake, and faults: first {first}, second {second}')
    if first[0] > touched / 5 or second[0] < touched * 0.8 or second[1] > touched / 5:
        raise Failed('the record does not help')
    # pages that are not needed any more leave the record
    whole = stage.status(program.pid)['record_units']
    for _ in range(20):
        program.tell('hibernate')
        program.tell('wake')
        program.ask(10)
    program.tell('hibernate')
    left = stage.status(program.pid)['record_units']
    print(f'    the record: {whole} units, {left} after 20 wakes that used a third of them')
    if left > whole / 2:
        raise Failed('the record keeps what nobody uses')


@case
def paused(stage, args):
    """A cgroup that another program froze: the command reports it and returns; afterwards all memory is intact, and it can hibernate, and be paused then."""
    group, stage = Cgroup.make(), stage()
    try:
        program = Idler(stage, 16, threads=1)
        stage.attach(program.pid, '64M')
        group.add(program.pid)
        group.freeze(True)
        done = program.tell('hibernate', ok=False)
        print(f'    {done.stderr.strip()}')
        if not done.returncode or 'not all of it is on zones' not in done.stderr:
            raise Failed(f'exit {done.returncode}: {done.stderr}')
        group.freeze(False)
        program.ask(100)
        program.tell('hibernate')
        out(program.pid)
        group.freeze(True)
        program.tell('wake')                 # its memory comes back while it is paused
        group.freeze(False)
        program.ask(100)
    finally:
        group.close()


@case
def idle(stage, args):
    """--idle: an idle program hibernates by itself, a touch of much memory wakes it, and it hibernates again; a busy one never does."""
    stage = stage()
    program, busy = Idler(stage, 32), stage.pages(16)
    stage.ctl('memory', 'attach', program.pid, '--dram', '64M', '--idle', '2s')
    stage.ctl('memory', 'attach', busy.pid, '--dram', '64M', '--idle', '2s')
    program.await_state('hibernated')
    out(program.pid)
    program.ask(100)
    wait_until(lambda: stage.status(program.pid)['wakes'] == 1, 'a wake')
    program.await_state('hibernated')
    out(program.pid)
    if stage.status(busy.pid)['state'] != 'active':
        raise Failed('a program at work hibernates')
    program.ask(100)
    stage.end_pages(busy)


@case
def redis(stage, args):
    """Redis with a client that stays connected: hibernated in spite of its timers, by itself, and its values are all there."""
    if not shutil.which('redis-server'):
        raise Skipped('no redis-server')
    stage = stage()
    path = stage.dir / 'redis.sock'
    program = stage.start('redis-server', '--port', '0', '--unixsocket', path, '--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction')
    wait_until(path.exists, 'its socket')
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    answers = client.makefile('r', newline='\r\n')

    def ask(*words):
        client.sendall((' '.join(words) + '\r\n').encode())
        said = answers.readline().strip()
        return answers.readline().strip() if said.startswith('$') else said
    keys = 12000
    for n in range(0, keys, 100):
        client.sendall(b''.join(b'SET k%d %s\r\n' % (i, b'%08d' % i * 500) for i in range(n, n + 100)))
        for _ in range(100):
            answers.readline()
    before = resident(program.pid)
    stage.ctl('memory', 'attach', program.pid, '--dram', '256M', '--idle', '3s')
    wait_until(lambda: (stage.status(program.pid) or {}).get('state') == 'hibernated', 'its hibernation')
    after = resident(program.pid)
    own = anonymous(program.pid)
    if ask('GET', 'k77') != '00000077' * 500:
        raise Failed('k77 is wrong')
    time.sleep(2)                 # only timers run
    found = stage.status(program.pid)
    print(f'    {before >> 20} MiB, hibernated {after >> 10} KiB ({own >> 10} its own), answered, {resident(program.pid) >> 10} KiB; {found["state"]}')
    if own > SPARE or anonymous(program.pid) > 2 * SPARE:
        raise Failed(f'{own >> 10} KiB stay, {anonymous(program.pid) >> 10} after a look')
    stage.kill_one('zns-mem')
    bad = [n for n in range(keys) if ask('GET', f'k{n}') != f'{n:08d}' * 500]
    if bad:
        raise Failed(f'{len(bad)} values are wrong')


@case
def told(stage, args):
    """Wrong or repeated commands get the right answers."""
    stage = stage()
    program = Idler(stage, 16)
    for words, part in ((('hibernate',), 'one context, PID or container'), (('wake', 'nobody'), 'nobody is in no memory context'),
                        (('hibernate', 'no.such'), 'no container no.such runs here'), (('wake', program.pid), 'is in no memory context'),
                        (('attach', program.pid, '--idle', '0'), 'is no time')):
        done = stage.ctl('memory', *words, ok=False)
        if not done.returncode or part not in done.stderr:
            raise Failed(f'{words}: {done.stderr}')
    for what in ('hibernate', 'hibernate', 'wake', 'wake', 'hibernate'):
        program.tell(what)
    found = json.loads(program.tell('status', '--json').stdout)
    if found['state'] != 'hibernated' or found['wakes'] != 1:
        raise Failed(f'{found}')
    program.ask(5)
    program.tell('hibernate')            # pages that came back go out again
    out(program.pid)
    program.ask(100)


@case
def full(stage, args):
    """Zones for only a part of the memory: the command says so, that part is out, and the program runs."""
    stage = stage(zones=10)
    program = Idler(stage, 64)
    done = program.tell('hibernate', ok=False)
    print(f'    {done.stderr.strip()}')
    if not done.returncode or 'not all of it is on zones' not in done.stderr or len(done.stderr.strip().splitlines()) != 1:
        raise Failed(f'exit {done.returncode}')
    found = stage.status(program.pid)
    if not found['evicted']:
        raise Failed(f'{found}')
    program.ask(100)


@case
def ceiling(stage, args):
    """Ceilings of tenants.conf: for one context, for all of a tenant, for the rate, and with an error in the file; afterwards everything works."""
    stage = stage()
    conf = stage.dir / 'conf/tenants.conf'
    one, two = Idler(stage, 32), Idler(stage, 32)

    def refused(program, part, most):
        done = program.tell('hibernate', ok=False)
        if not done.returncode or part not in done.stderr or len(done.stderr.strip().splitlines()) != 1:
            raise Failed(f'exit {done.returncode}: {done.stderr}')
        found = stage.status(program.pid)['evicted']
        print(f'    {found >> 20} MiB: {done.stderr.strip()}')
        if found > most:
            raise Failed(f'{found} bytes are on zones')
        program.ask(100)
        program.tell('wake')
    conf.write_text('name pid-* max-memory=8M\n')
    refused(one, 'the ceiling of `name pid-*` is 8 MiB', 12 << 20)
    conf.write_text(f'name {one.name} max-memory=1G\nname pid-* max-memory=wrong\n')
    time.sleep(1.2)              # the broker checks contexts once a second
    refused(one, 'tenants.conf:2: a size reads like', 12 << 20)
    conf.write_text('name pid-* total-memory=40M\n')
    time.sleep(1.2)
    one.tell('hibernate')
    time.sleep(1.2)              # a context reports its bytes a few times a second
    refused(two, 'the ceiling of `name pid-*` is 40 MiB', 12 << 20)
    conf.write_text(f'name {two.name} memory-rate=4\n')
    time.sleep(1.2)
    two.ask(100)                 # changes all memory, so that all of it must be written again
    begin = time.monotonic()
    two.tell('hibernate')
    took = time.monotonic() - begin
    if took < 2:
        raise Failed(f'it was written in {took:.1f} s')
    for program in (one, two):
        program.ask(100)
        program.tell('hibernate')
        program.ask(100)
    print(f'    at 4 MiB/s: {took:.1f} s')


if __name__ == '__main__':
    sys.exit(memory.main())
