#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
Records which 64 KiB blocks real, unmodified programs touch, request by request: the traces that policy.py replays.

  record.py [--build DIR] [--out DIR] [NAME...]      names: cached redis node java postgres scan; default: all
  record.py [--build DIR] check                      what touched.c says of a program of which it is known

Each program has some 64 MiB in memory and is asked for objects, of which some are asked for more often (Zipf). Requests come in
activations of 20; between them the program is left alone for a while. After each request touched.c says what it has touched,
so a trace does not depend on how fast the machine is. What a trace does not have: touched.c says that.

A trace is JSON, compressed by xz: program, versions, the blocks that were resident when the first request came, and ticks
[kind, touched, written]; kind: "a" first request of an activation, "r" request, "i" left alone. Blocks are numbers by first
appearance, each list is sorted and written as differences.
"""
import argparse
import ctypes
import http.client
import json
import lzma
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
ACTIVATIONS, REQUESTS, REST_S = 24, 20, 0.4
OBJECTS = 100
PG_BIN = sorted(Path('/usr/lib/postgresql').glob('*/bin'))


def small_pages():
    """A huge page has one bit for 32 blocks: none, here and in what is executed."""
    pr_set_thp_disable = 41
    ctypes.CDLL(None).prctl(pr_set_thp_disable, 1, 0, 0, 0)


def start(command, **options):
    return subprocess.Popen(list(map(str, command)), preexec_fn=small_pages, **options)


class Lines:
    """A program that answers lines on its standard output."""

    def __init__(self, command, **options):
        self.proc = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.pid = self.proc.pid

    def write(self, text):
        self.proc.stdin.write(text.encode())
        self.proc.stdin.flush()

    def line(self):
        line = self.proc.stdout.readline().decode()
        if not line:
            sys.exit(f'{self.proc.args[0]} has ended')
        return line.strip()

    def end(self):
        self.proc.kill()
        self.proc.wait()


class Cached(Lines):
    """An HTTP cache's memory: 100 objects of 640 KiB; a request copies one out."""

    LEN = 640 << 10

    def __init__(self, work, build, objects=OBJECTS):
        super().__init__([build / 'sim' / 'cached', objects, self.LEN >> 10])
        self.version = 'test/sim/cached.c'

    def request(self, n):
        self.write(f'{n}\n')
        left = self.LEN
        while left:
            left -= len(self.proc.stdout.read1(left))


class Redis:
    """100 objects of 40 hashes each; a request reads 20 of them and changes one."""

    def __init__(self, work, build):
        path = work / 'redis.sock'
        self.proc = start(['redis-server', '--port', 0, '--unixsocket', path, '--save', '', '--appendonly', 'no', '--dir', work],
                          stdout=subprocess.DEVNULL)
        self.pid = self.proc.pid
        self.version = subprocess.run(['redis-server', '--version'], capture_output=True, text=True).stdout.strip()
        self.sock = socket.socket(socket.AF_UNIX)
        while self.sock.connect_ex(str(path)):
            time.sleep(0.05)
        self.answers = self.sock.makefile('rb')
        self.random = random.Random(3)
        order = [(n, k) for n in range(OBJECTS) for k in range(40)]
        self.random.shuffle(order)      # written by many users, over time
        for n, k in order:
            for field in range(16):
                self.ask('HSET', f'o{n}:{k}', f'f{field}', 'v' * self.random.randrange(300, 1500))

    def ask(self, *words):
        parts = [b'*%d\r\n' % len(words)]
        for word in words:
            parts.append(b'$%d\r\n%s\r\n' % (len(word), word.encode()))
        self.sock.sendall(b''.join(parts))
        self.answer()

    def answer(self):
        line = self.answers.readline()
        if line[:1] == b'$' and int(line[1:]) >= 0:
            self.answers.read(int(line[1:]) + 2)
        elif line[:1] == b'*':
            for _ in range(int(line[1:])):
                self.answer()
        elif line[:1] == b'-':
            sys.exit(f'Redis says {line}')

    def request(self, n):
        for k in range(0, 40, 2):
            self.ask('HGETALL', f'o{n}:{k}')
        self.ask('HSET', f'o{n}:{self.random.randrange(40)}', 'f1', 'w' * self.random.randrange(300, 1500))

    def end(self):
        self.proc.kill()
        self.proc.wait()


class Node(Lines):
    """An HTTP server in node: JSON of the records of a page, and sessions."""

    def __init__(self, work, build):
        super().__init__(['node', HERE / 'programs' / 'server.js', OBJECTS, 1200])
        self.version = 'node ' + subprocess.run(['node', '--version'], capture_output=True, text=True).stdout.strip()
        self.http = http.client.HTTPConnection('127.0.0.1', int(self.line()))

    def request(self, n):
        self.http.request('GET', f'/{n}')
        self.http.getresponse().read()


class Java(Lines):
    """A JVM with records in a map."""

    def __init__(self, work, build):
        subprocess.run(['javac', '-d', work, HERE / 'programs' / 'Server.java'], check=True)
        super().__init__(['java', '-Xms128m', '-Xmx128m', '-XX:+UseSerialGC', '-cp', work, 'Server', OBJECTS, 2500])
        self.version = subprocess.run(['java', '-version'], capture_output=True, text=True).stderr.splitlines()[0]
        self.line()

    def request(self, n):
        self.write(f'{n}\n')
        self.line()


class Postgres:
    """PostgreSQL with two sessions: a request reads rows of one customer and changes some, which are found by an index."""

    SESSIONS, INDEX = 2, 'create index on t (id);'

    def __init__(self, work, build):
        user = pwd.getpwnam('postgres')
        os.chown(work, user.pw_uid, user.pw_gid)
        self.as_user = dict(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
        bin_dir = PG_BIN[-1]
        data = work / 'data'
        subprocess.run([bin_dir / 'initdb', '-D', data, '-A', 'trust', '--no-sync'], check=True, stdout=subprocess.DEVNULL, cwd='/',
                       **self.as_user)
        self.proc = start([bin_dir / 'postgres', '-D', data, '-k', work, '-c', 'listen_addresses=', '-c', 'shared_buffers=64MB',
                           '-c', 'fsync=off'], cwd='/', stderr=subprocess.DEVNULL, **self.as_user)
        self.pid = self.proc.pid
        self.version = subprocess.run([bin_dir / 'postgres', '--version'], capture_output=True, text=True).stdout.strip()
        while subprocess.run([bin_dir / 'pg_isready', '-q', '-h', work]).returncode:
            time.sleep(0.1)
        self.sessions = [Lines([bin_dir / 'psql', '-h', work, '-U', 'postgres', '-Atq'], cwd='/') for _ in range(self.SESSIONS)]
        self.next = 0
        self.sql(f'create table t as select i as id, (i * 7919) % {OBJECTS} as customer, repeat(md5(i::text), 5) as v, 0 as n '
                 f"from generate_series(1, 200000) i; create index on t (customer); {self.INDEX} vacuum analyze t; select count(v) from t")

    def sql(self, text):
        session = self.sessions[self.next % self.SESSIONS]
        self.next += 1
        session.write(f"{text};\nselect 'done';\n")
        while session.line() != 'done':
            pass

    def request(self, n):
        self.sql(f'select sum(length(v)) from (select v from t where customer = {n} limit 200) s')
        self.sql(f'update t set n = n + 1 where id in (select id from t where customer = {n} limit 5)')

    def end(self):
        self.proc.send_signal(signal.SIGINT)
        self.proc.wait()
        for s in self.sessions:
            s.end()


class Scan(Postgres):
    """The same with four sessions and without that index: each request scans the table."""

    SESSIONS, INDEX = 4, ''


PROGRAMS = {'cached': Cached, 'redis': Redis, 'node': Node, 'java': Java, 'postgres': Postgres, 'scan': Scan}


class Trace:
    """Questions to touched, and the numbers of blocks."""

    def __init__(self, build, pid):
        self.touched = Lines([build / 'sim' / 'touched', pid])
        self.numbers, self.ticks = {}, []

    def ask(self):
        """(resident, touched, written), sorted."""
        self.touched.write('\n')
        found = ([], [], [])
        while line := self.touched.line_or_empty():
            key, flags = line.split()
            number = self.numbers.setdefault(key, len(self.numbers))
            for flag, numbers in zip('rtw', found):
                if flag in flags:
                    numbers.append(number)
        return [sorted(set(f)) for f in found]

    def tick(self, kind):
        _, touched, written = self.ask()
        self.ticks.append([kind, differences(touched), differences(written)])
        return len(touched)


def differences(numbers):
    return [n - before for before, n in zip([0] + numbers, numbers)]


def line_or_empty(self):
    line = self.proc.stdout.readline().decode()
    if not line:
        sys.exit('touched has ended')
    return line.strip()


Lines.line_or_empty = line_or_empty


def check(build):
    """A request of `cached` reads one object: all of its blocks, the same ones each time, no other object's, and writes none."""
    objects = 12
    program = Cached(None, build, objects)
    try:
        for n in range(objects):
            program.request(n)
        trace = Trace(build, program.pid)
        trace.ask()
        program.request(0)
        time.sleep(REST_S)      # the program answers before it waits for the next request
        trace.ask()
        time.sleep(REST_S)
        rest = trace.ask()
        if rest[1] or rest[2]:
            sys.exit(f'check: a program that sleeps has touched {rest[1:]}')
        touched, written = {}, {}
        for n in list(range(objects)) * 3:
            program.request(n)
            _, now, wrote = trace.ask()
            if touched.setdefault(n, now) != now:
                sys.exit(f'check: object {n} was {touched[n]}, now {now}')
            written[n] = set(wrote)
        trace.touched.end()
    finally:
        program.end()
    common = set.intersection(*map(set, touched.values()))
    own = {n: set(t) - common for n, t in touched.items()}
    least, most = Cached.LEN >> 16, (Cached.LEN >> 16) + 1     # a prediction may begin inside a block
    for n in range(objects):
        if not least - 1 <= len(own[n]) <= most:
            sys.exit(f'check: object {n} of {least} blocks has {len(own[n])} of its own')
        if own[n] & written[n]:
            sys.exit(f'check: object {n} was only read, and {sorted(own[n] & written[n])} are called written')
        if any(len(own[n] & own[m]) > 1 for m in range(n)):
            sys.exit(f'check: object {n} shares blocks with others')
    print(f'check: passed; {objects} objects, {len(common)} blocks in common')


def record(name, build, out):
    work = Path(tempfile.mkdtemp(prefix='sim-'))
    program = PROGRAMS[name](work, build)
    rnd = random.Random(name)
    objects = list(range(OBJECTS))
    rnd.shuffle(objects)
    weights = [1 / (rank + 1) for rank in range(OBJECTS)]
    try:
        for n in range(OBJECTS):
            program.request(n)      # all has been in memory once
        trace = Trace(build, program.pid)
        trace.ask()
        program.request(0)
        resident = trace.ask()[0]
        sizes = []
        for _ in range(ACTIVATIONS):
            for k in range(REQUESTS):
                program.request(rnd.choices(objects, weights)[0])
                sizes.append(trace.tick('r' if k else 'a'))
            for _ in range(2):
                time.sleep(REST_S)
                trace.tick('i')
        trace.touched.end()
    finally:
        program.end()
        shutil.rmtree(work, ignore_errors=True)
    text = json.dumps({'program': name, 'version': program.version, 'block_kib': 64, 'blocks': len(trace.numbers),
                       'resident': differences(resident), 'ticks': trace.ticks}, separators=(',', ':'))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f'{name}.json.xz'
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f'{name:9} {len(resident):5} blocks resident, {sum(sizes) / len(sizes):6.1f} touched by a request, '
          f'{path.stat().st_size >> 10:4} KiB', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='NAME')
    parser.add_argument('--build', type=Path, default=REPO / 'build')
    parser.add_argument('--out', type=Path, default=HERE / 'traces')
    args = parser.parse_args()
    if args.names == ['check']:
        return check(args.build.resolve())
    for name in args.names or PROGRAMS:
        if name not in PROGRAMS:
            sys.exit(f'no such program: {name}')
        record(name, args.build.resolve(), args.out)


if __name__ == '__main__':
    main()
