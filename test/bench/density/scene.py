# SPDX-License-Identifier: GPL-2.0-only
"""The processes: the critical workload, noise containers, and the clients of both, which run outside the small machine."""
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from groups import dies_with_us
from samples import Samples

HERE = Path(__file__).resolve().parent
TICK = os.sysconf('SC_CLK_TCK')
WARM_S = 10


class Failed(Exception):
    pass


class Wrong(Exception):
    """A container answered with wrong content, so there are no figures."""


def wait_until(true, what, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Failed(f'{what}: not within {seconds} s')
        time.sleep(0.02)


def cpu_s(pids, thread=None):
    """CPU time so far of processes, or of their threads with that name."""
    ticks = 0
    for pid in pids:
        tasks = Path(f'/proc/{pid}/task').glob('*') if thread else [Path(f'/proc/{pid}')]
        for task in tasks:
            try:
                head, tail = (task / 'stat').read_text().rsplit(')', 1)
            except OSError:
                continue
            if not thread or head.split('(', 1)[1].startswith(thread):
                ticks += sum(map(int, tail.split()[11:13]))
    return ticks / TICK


def own_copy(path, place):
    """A copy of a file that is in no cache, so that its pages are charged to the container that reads it."""
    copy = place / Path(path).name
    shutil.copy(path, copy)
    with open(copy, 'rb') as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return copy


class Scene:
    """All processes of one ladder."""

    def __init__(self, args, place, groups):
        self.args, self.place, self.groups = args, place, groups
        self.processes, self.noise = [], []
        self.load = self.toucher = self.saw = None

    # ---- processes ----
    def start(self, group, *words, **kw):
        join = self.groups.joins(self.groups.make(group)) if group else dies_with_us
        log = open(self.place / 'programs.log', 'ab')       # noqa: SIM115
        with log:
            one = subprocess.Popen([str(w) for w in words], preexec_fn=join, stderr=log, cwd=self.place, start_new_session=True,
                                   **{'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'text': True, **kw})
        self.processes.append(one)
        return one

    def said(self, process, word, what):
        for line in process.stdout:
            if line.strip() == word:
                return
        raise Failed(f'{what}: ended with {process.wait()}: {self.log_end()}')

    def log_end(self):
        log = self.place / 'programs.log'
        return ' | '.join(log.read_text(errors='replace').splitlines()[-3:]) if log.exists() else ''

    # ---- the critical workload ----
    def start_critical(self):
        env = {**os.environ, 'UV_USE_IO_URING': '0'}        # a process with an io_uring cannot be attached
        node, redis = (own_copy(shutil.which(p), self.place) for p in ('node', 'redis-server'))
        db, auth, webs = self.place / 'redis.sock', self.place / 'auth.sock', [self.place / f'web-{i}.sock' for i in range(2)]
        for path in (db, auth, *webs):
            path.unlink(missing_ok=True)
        self.start('critical', redis, '--port', 0, '--unixsocket', db, '--save', '', '--appendonly', 'no', stdout=subprocess.DEVNULL)
        wait_until(db.exists, 'redis')
        site = HERE / 'site.js'
        self.said(self.start('critical', node, site, 'seed', db, self.args.users, env=env), 'seeded', 'the seed')
        for words in (('auth', auth, db), *(('web', web, db, auth) for web in webs)):
            self.said(self.start('critical', node, site, *words, env=env), 'ready', words[0])
        self.webs = webs

    def start_load(self, rate, seed):
        self.saw = Samples(self.place / 'load.samples')
        self.saw.path.unlink(missing_ok=True)
        self.load = self.start(None, self.args.bin / 'load', self.saw.path, self.args.connections, rate, seed, self.args.users, *self.webs,
                               stdout=subprocess.DEVNULL)
        wait_until(lambda: self.load.poll() is not None or self.saw.path.exists() and self.saw.path.stat().st_size and self.saw.head()[1],
                   'the load')

    def stop_load(self):
        self.end(self.load)

    def most(self, seconds, seed):
        """Requests per second when each is sent after the answer to the one before. node compiles code in the first
        seconds, which are not counted."""
        self.start_load(0, seed)
        time.sleep(WARM_S + seconds)
        end = time.monotonic_ns()
        found = self.saw.window(end - int(seconds * 1e9), end)
        self.stop_load()
        return found['per_s']

    # ---- noise ----
    def add_noise(self, prepare):
        """@prepare: called with the empty container."""
        number = len(self.noise)
        sock = self.place / f'n{number}.sock'
        one = self.start(f'noise-{number}', self.args.bin / 'noise', sock, number, self.args.divide, self.args.fill_mibps,
                         stdin=subprocess.PIPE)
        one.number, one.group, one.sock = number, f'noise-{number}', sock
        self.said(one, 'empty', one.group)
        self.noise.append(one)
        prepare(one)
        one.stdin.write('\n')
        one.stdin.flush()
        self.said(one, 'ready', one.group)
        for _ in range(self.args.laps):
            lap = self.start(None, self.args.bin / 'touch', self.place / 'lap.samples', 0, 0, 1, self.args.divide, *(n.sock for n in self.noise))
            if lap.wait():
                raise Wrong(f'touch ended with {lap.returncode}: {self.log_end()}')

    def start_touch(self, seed):
        self.touched = Samples(self.place / 'touch.samples')
        self.touched.path.unlink(missing_ok=True)
        self.toucher = self.start(None, self.args.bin / 'touch', self.touched.path, self.args.clients, self.args.wait_ms, seed,
                                  self.args.divide, *(n.sock for n in self.noise), stdout=subprocess.DEVNULL)
        wait_until(lambda: self.toucher.poll() is not None or self.touched.path.exists() and self.touched.path.stat().st_size,
                   "the noise's client")

    def check(self):
        """Checks that everything that was started still runs."""
        for one in self.noise:
            if one.poll() is not None:
                raise Failed(f'{one.group} ended with {one.returncode}')
        for one in (self.load, self.toucher):
            if one and one.poll() not in (None, -signal.SIGTERM):
                raise (Wrong if one is self.toucher else Failed)(f'{Path(one.args[0]).name} ended with {one.returncode}: {self.log_end()}')

    def end(self, one):
        if one and one.poll() is None:
            one.send_signal(signal.SIGTERM)
            try:
                one.wait(5)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

    def close(self):
        for one in self.processes:
            if one.poll() is None:
                one.kill()
        for one in self.processes:
            one.wait()
            for pipe in (one.stdin, one.stdout):
                if pipe:
                    pipe.close()
