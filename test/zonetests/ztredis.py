# SPDX-License-Identifier: GPL-2.0-only
"""Redis as a test program: its own digest over all keys shows whether its memory is unchanged."""
import re
import shutil
import subprocess

from ztlib import Failed, Task, alive, wait_until

POPULATE = 150000       # number of keys that DEBUG POPULATE makes, each about 200 bytes in memory
SERVER = ['--port', '0', '--save', '', '--appendonly', 'no', '--enable-debug-command', 'yes', '--logfile', '']


def varied_commands():
    """Commands that fill values of every type, in small and large encodings."""
    for i in range(3000):
        yield 'SET', f'str:{i}', f'value-{i * 7919}-' + 'x' * (i % 500)
        yield 'HSET', f'hash:{i % 50}', f'field{i}', i * i
        yield 'RPUSH', f'list:{i % 40}', f'item-{i}-' + 'y' * (i % 90)
        yield 'ZADD', f'zset:{i % 30}', i * 1.5, f'member-{i}'
        yield 'SADD', f'set:{i % 20}', i * 3 if i % 2 else f'm{i}'
        yield 'XADD', f'stream:{i % 10}', f'{i + 1}-1', 'a', i, 'b', 'z' * (i % 60)
    for i in range(4):
        yield 'SET', f'big:{i}', chr(97 + i) * 2000000
    yield 'SETBIT', 'bits', 8000000, 1
    yield 'PFADD', 'hll', 'a', 'b', 'c'
    yield 'SET', 'expiring', 'soon', 'EX', 100000
    yield 'XGROUP', 'CREATE', 'stream:3', 'group', 0
    yield 'EVAL', "redis.call('set', 'by-script', '1')", 0


def encode(command):
    """A command in Redis's protocol."""
    words = [str(w) for w in command]
    return f'*{len(words)}\r\n' + ''.join(f'${len(w)}\r\n{w}\r\n' for w in words)


class RedisTask(Task):
    """A redis-server in its own session (h) or as init of its namespaces (ns)."""

    desc = {'flavour': 'h ns', 'feature': 'redis'}

    def __init__(self, directory, flavour='h', args=(), wait=60, keys=POPULATE, varied=True, size=100):
        super().__init__(directory, 'redis-server', flavour, args, wait=wait)
        self.keys, self.varied, self.size = keys, varied, size
        self.selftest = '--selftest' in args
        self.before = None

    def _start_plain(self):
        command = [shutil.which('redis-server'), *SERVER, '--unixsocket', str(self.dir / 'redis.sock')]
        with open(self.dir / 'stdio', 'ab') as out:
            self.pid = subprocess.Popen(command, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                        start_new_session=True).pid

    def _start_ns(self):
        root = self.make_root()
        binary = shutil.which('redis-server')
        shutil.copy(binary, root / 'redis-server')
        listed = subprocess.run(['ldd', binary], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r'(/\S+)', listed):
            target = root / library.lstrip('/')
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
        self.launch_in(root, ['/redis-server', *SERVER, '--unixsocket', '/zt/redis.sock'])

    def cli(self, *args, stdin=None):
        done = subprocess.run(['redis-cli', '-s', str(self.state / 'redis.sock'), *args], input=stdin or '',
                              capture_output=True, text=True, timeout=self.wait)
        if done.returncode:
            raise Failed(f'redis-cli {args[0]}: {done.stdout.strip()} {done.stderr.strip()}')
        return done.stdout.strip()

    def _answers(self):
        try:
            return self.cli('PING') == 'PONG'
        except Failed:
            return False

    def _contents(self):
        return self.cli('DBSIZE'), self.cli('DEBUG', 'DIGEST')

    def wait_ready(self):
        wait_until(lambda: self._answers() or not alive(self.pid), self.wait)
        self.cli('DEBUG', 'POPULATE', str(self.keys), 'key', str(self.size))
        if self.varied:
            self.cli('--pipe', stdin=''.join(map(encode, varied_commands())))
        self.before = self._contents()
        if int(self.before[0]) < self.keys:
            raise Failed(f'redis took only {self.before[0]} keys')
        if self.selftest:
            self.cli('SETRANGE', 'big:2', '1999999', 'X')
        return self

    def verify(self, sig=None):
        if not wait_until(self._answers, self.wait):
            raise Failed('FAIL: redis does not answer')
        now = self._contents()
        if now != self.before:
            raise Failed(f'FAIL: keys and digest are {now}, were {self.before}')
        self.cli('SET', 'after-restore', 'yes')
        if self.cli('GET', 'after-restore') != 'yes' or self.cli('INCR', 'counter') != '1':
            raise Failed('FAIL: redis takes no writes')
