# SPDX-License-Identifier: GPL-2.0-only
"""Servers and runtimes that work while they are dumped (Redis, PostgreSQL, JVMs, Node.js, Python, Go), and how each shows that its data are right."""
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import ztlib
from ztlib import Failed, HERE, REPO, Skipped, Task, alive, wait_until
from ztredis import encode

APPS = HERE / 'apps'
BUILT = REPO / 'build' / 'zonetests' / 'apps'
HOST = '127.0.0.1'
CAP_SYS_RESOURCE = 24
PG = Path('/usr/lib/postgresql')


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f'no {program} here')


class App(Task):
    """A program under load. The clients' connections are not in the checkpoint."""

    forks = False
    state = None

    def __init__(self, directory):
        super().__init__(directory, self.name)
        self.dump_opts = self.restore_opts = ['--tcp-close']
        self.clients = []

    def launch(self, command, env=None, cwd=None):
        self.pid = subprocess.Popen(list(map(str, command)), cwd=cwd or self.dir, stdin=subprocess.DEVNULL, env=env,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True).pid

    def ready(self, what, seconds=60):
        if not wait_until(lambda: what() or not alive(self.pid), seconds, 0.05) or not alive(self.pid):
            raise Failed(f'{self.name} does not come up')

    def client(self, *command):
        self.clients.append(subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL))

    def load(self):
        """Starts the clients."""

    def unload(self):
        for c in self.clients:
            c.kill()
            c.wait()
        self.clients = []

    def work(self):
        """A number that grows while the program works."""
        raise NotImplementedError

    def check(self):
        """Checks the application's data; raises Failed with the difference."""
        raise NotImplementedError

    def end(self):
        self.unload()
        pids = ztlib.tree(self.pid) if self.pid else []
        for pid in pids:
            ztlib.kill(pid)
        wait_until(lambda: not any(map(alive, pids)), 10)


# ---- Redis ----------------------------------------------------------------------------------------------

# Each value has the number of writes to its key. A script of Redis changes both in one step.
WRITE = """
math.randomseed(ARGV[1])
for i = 1, ARGV[2] do
  local k = math.random(0, 19999)
  local n = redis.call('INCR', 'n:' .. k)
  redis.call('SET', 'v:' .. k, string.rep(n .. ':' .. k .. ';', 40))
  redis.call('HINCRBY', 'sums', k % 100, 1)
end
return redis.call('INCRBY', 'total', ARGV[2])
"""
CHECK = """
local all, parts = 0, 0
for k = 0, 19999 do
  local n = redis.call('GET', 'n:' .. k)
  if n then
    all = all + n
    if redis.call('GET', 'v:' .. k) ~= string.rep(n .. ':' .. k .. ';', 40) then return 'value ' .. k .. ' is not of write ' .. n end
  end
end
for _, n in ipairs(redis.call('HVALS', 'sums')) do parts = parts + n end
local total = tonumber(redis.call('GET', 'total'))
if all ~= total or parts ~= total then return all .. ' writes in the keys, ' .. parts .. ' in the hash, ' .. total .. ' in all' end
return 'right'
"""


class Redis(App):
    name = 'redis'

    def start(self, *options):
        needs('redis-server', 'redis-benchmark', 'redis-cli')
        self.port = free_port()
        self.stop = None
        self.launch(['redis-server', '--port', self.port, '--bind', HOST, '--save', '', '--appendonly', 'no',
                     '--enable-debug-command', 'yes', *options])
        self.ready(lambda: self.cli('PING') == 'PONG')
        return self

    def cli(self, *args):
        done = subprocess.run(['redis-cli', '-h', HOST, '-p', str(self.port), *map(str, args)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    def write(self, stop):
        seed = 1
        try:
            with socket.create_connection((HOST, self.port), 60) as s:
                s.settimeout(60)
                while not stop.is_set():
                    seed += 1
                    s.sendall(encode(['EVAL', WRITE, 0, seed, 20]).encode())
                    if not s.recv(100).startswith(b':'):
                        break
        except OSError:
            pass        # the server was ended by a dump

    def load(self):
        self.client('redis-benchmark', '-h', HOST, '-p', self.port, '-c', 8, '-r', 50000, '-d', 300, '-l', '-q', '-t',
                    'set,get,lpush,lpop,sadd,spop,hset,zadd,zpopmin')
        self.stop = threading.Event()
        self.writer = threading.Thread(target=self.write, args=(self.stop,), daemon=True)
        self.writer.start()

    def unload(self):
        if self.stop:
            self.stop.set()
        super().unload()

    def work(self):
        return int(self.cli('GET', 'total') or 0)

    def check(self):
        self.ready(lambda: self.cli('PING') == 'PONG')
        said = self.cli('EVAL', CHECK, 0)
        if said != 'right' or not self.work():
            raise Failed(f'Redis: {said}')
        return self.work()


# ---- PostgreSQL -----------------------------------------------------------------------------------------

# Without CAP_SYS_RESOURCE criu cannot dump another user's processes, and PostgreSQL refuses to run as root.
UID_PRELOAD = 'unsigned geteuid(void) { return %d; }\nunsigned getuid(void) { return %d; }\n'


def may_dump_users():
    status = Path('/proc/self/status').read_text()
    return int(status.partition('CapEff:')[2].split()[0], 16) >> CAP_SYS_RESOURCE & 1


class Postgres(App):
    """pgbench's own rule: the balances of accounts, tellers and branches and the history have the same sum."""
    name, buffers_mib, scale, clients_nr = 'postgres', 16, 5, 4

    def user(self):
        done = subprocess.run(['id', '-u', 'postgres'], capture_output=True, text=True)
        if done.returncode:
            raise Skipped('no user postgres here')
        return int(done.stdout)

    def start(self, *options):
        needs('pgbench', 'psql', 'unshare', 'setpriv')
        if not list(PG.glob('*/bin/postgres')):
            raise Skipped('no PostgreSQL here')
        self.bin, self.port, uid = max(PG.glob('*/bin')), free_port(), self.user()
        self.to = ['-h', HOST, '-p', self.port, '-U', 'postgres']
        self.place = Path('/dev/shm') / f'zns-apps-{os.getpid()}-{self.port}'    # not on the device's disk
        self.place.mkdir()
        os.chown(self.place, uid, uid)
        become = ['setpriv', f'--reuid={uid}', '--regid=postgres', '--clear-groups', 'env', 'LC_ALL=C']
        done = subprocess.run([*become, self.bin / 'initdb', '-A', 'trust', '-U', 'postgres', '-D', self.place / 'db'],
                              cwd=self.place, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f'initdb: {done.stderr.strip()}')
        if not may_dump_users():
            become = ['env', 'LC_ALL=C', f'LD_PRELOAD={self.preload(uid)}']
        # System V shared memory needs an IPC namespace of its own.
        self.launch(['unshare', '--ipc', *become, self.bin / 'postgres', '-D', self.place / 'db', '-k', self.place, '-p', self.port,
                     '-c', f'listen_addresses={HOST}', '-c', f'shared_buffers={self.buffers_mib}MB', '-c', 'huge_pages=off',
                     *options], cwd='/')
        self.ready(lambda: self.sql('select 1') == '1')
        self.run('createdb', 'bench')
        self.run('pgbench', '-i', '-q', '-s', self.scale, 'bench')
        return self

    def preload(self, uid):
        source = self.dir / 'uid.c'
        source.write_text(UID_PRELOAD % (uid, uid))
        subprocess.run(['gcc', '-shared', '-fPIC', '-o', self.dir / 'uid.so', source], check=True)
        return self.dir / 'uid.so'

    def run(self, program, *args):
        done = subprocess.run(list(map(str, [program, *self.to, *args])), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120)
        if done.returncode:
            raise Failed(f'{program}: {done.stderr.strip()}')
        return done.stdout.strip()

    def sql(self, text, database='postgres'):
        try:
            return self.run('psql', '-Atqc', text, database)
        except Failed as e:
            return str(e)

    def load(self):
        self.client('pgbench', *self.to, '-n', '-c', self.clients_nr, '-T', 100000, 'bench')

    def work(self):
        return int(self.sql('select count(*) from pgbench_history', 'bench'))

    def check(self):
        self.ready(lambda: self.sql('select 1') == '1')
        sums = self.sql('select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), '
                        '(select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history), '
                        '(select count(*) from pgbench_accounts)', 'bench').split('|')
        if len(sums) != 5 or len(set(sums[:4])) != 1 or sums[4] != str(self.scale * 100000) or not self.work():
            raise Failed(f'PostgreSQL: sums of accounts, branches, tellers, history, and accounts: {sums}')
        # Reads and checks every heap and index page; a checkpoint of PostgreSQL writes all dirty pages first.
        self.run('psql', '-Atqc', 'create extension if not exists amcheck', 'bench')
        self.run('psql', '-Atqc', "select bt_index_check(c.oid, true) from pg_class c join pg_am a on a.oid = c.relam "
                 "where a.amname = 'btree' and c.relname like 'pgbench%'; checkpoint", 'bench')
        return self.work()

    def end(self):
        super().end()
        shutil.rmtree(getattr(self, 'place', self.dir / 'none'), ignore_errors=True)


class PostgresLarge(Postgres):
    name, buffers_mib, scale = 'postgres-large', 256, 10


# ---- runtimes -------------------------------------------------------------------------------------------

class Mutator(App):
    """A heap that changes all the time, and checks itself when asked (test/zonetests/apps)."""

    def go(self, *command, env=None):
        self.launch([*command, self.dir], env=env)
        self.ready((self.dir / 'ready').exists)
        return self

    def work(self):
        """CPU time that the program has used, in ticks."""
        words = Path(f'/proc/{self.pid}/stat').read_text().rpartition(')')[2].split()
        return int(words[11]) + int(words[12])

    def check(self):
        verdict = self.dir / 'verdict'
        verdict.unlink(missing_ok=True)
        (self.dir / 'ask').touch()
        if not wait_until(lambda: verdict.exists() or not alive(self.pid), 240, 0.05) or not verdict.exists():
            raise Failed(f'{self.name}: no verdict' + ('' if alive(self.pid) else ', it is gone'))
        word, number, *_ = verdict.read_text().split()
        if word != 'PASS' or not int(number):
            raise Failed(f'{self.name}: {verdict.read_text().strip()}')
        return int(number)


class Jvm(Mutator):
    options = ()

    def start(self):
        needs('java', 'javac')
        BUILT.mkdir(parents=True, exist_ok=True)
        subprocess.run(['javac', '-d', BUILT, APPS / 'Mutator.java'], check=True)
        return self.go('java', '-Xmx256m', '-XX:-UsePerfData', *self.options, '-cp', BUILT, 'Mutator')


class JvmSerial(Jvm):
    name, options = 'jvm-serial', ('-XX:+UseSerialGC',)


class JvmG1(Jvm):
    name, options = 'jvm-g1', ('-XX:+UseG1GC',)


class JvmZ(Jvm):
    """A program whose heap is shared memory that is mapped several times."""
    name, options = 'jvm-zgc', ('-XX:+UseZGC',)


class Node(Mutator):
    name = 'node'

    def start(self):
        needs('node')
        return self.go('node', APPS / 'mutator.js', env=dict(os.environ, UV_USE_IO_URING='0'))


class Python(Mutator):
    name = 'python'

    def start(self):
        return self.go('/usr/bin/python3', APPS / 'mutator.py')


class Go(Mutator):
    name = 'go'

    def start(self):
        needs('go')
        BUILT.mkdir(parents=True, exist_ok=True)
        subprocess.run(['go', 'build', '-o', BUILT / 'mutator', APPS / 'mutator.go'], env=dict(os.environ, GO111MODULE='off'), check=True)
        return self.go(BUILT / 'mutator')


ALL = [Redis, Postgres, PostgresLarge, JvmSerial, JvmG1, JvmZ, Node, Python, Go]
