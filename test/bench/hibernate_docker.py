#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
hibernate_docker.py [--rounds N] [--keys N]: how long a Redis in a container of Docker takes to its first answer.

In each round, in a new order:

  wake      the container hibernates on zones; `znsctl memory wake NAME` and the question at the same moment
  zones     docker start --checkpoint, from zones
  files     the same by runc and criu without zones, from files that are in no cache

Reported: from the command to the first answer, one GET, and to the last of an MGET of 1,000 keys; medians. Each answer is looked at.
"""
import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'docker'))
from dkcase import contexts                             # noqa: E402
from dkdaemon import BIN, Daemon, Failed, rootfs, until         # noqa: E402

VALUE, ASK = 1000, 1000
SCRIPT = '''redis-server --enable-debug-command yes --unixsocket /data/r.sock --port 0 --save "" --appendonly no --daemonize no &
    until redis-cli -s /data/r.sock ping; do sleep 0.1; done
    redis-cli -s /data/r.sock debug populate {keys} key {value}; touch /data/up; wait'''


def ask(pid, keys, begin):
    """Seconds since @begin, at the first answer and at the last, of the Redis in the container whose first process is @pid."""
    words = ['MGET', *(f'key:{n * (keys // ASK)}' for n in range(ASK))]
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f'/proc/{pid}/root/data/r.sock')
        f = s.makefile('rb')
        s.sendall(f'GET {words[1]}\r\n'.encode())
        if f.readline() != b'$%d\r\n' % VALUE or not f.readline().startswith(b'value:0'):
            raise Failed('a wrong answer')
        first = time.monotonic() - begin
        s.sendall((f'*{len(words)}\r\n' + ''.join(f'${len(w)}\r\n{w}\r\n' for w in words)).encode())
        if f.readline() != b'*%d\r\n' % ASK:
            raise Failed('a wrong answer to MGET')
        for w in words[1:]:
            if f.readline() != b'$%d\r\n' % VALUE or not f.readline().rstrip(b'\0\r\n').startswith(b'value:' + w[4:].encode()):
                raise Failed(f'a wrong answer for {w}')
        return first, time.monotonic() - begin


class Bench:
    def __init__(self, d, args):
        self.d, self.args = d, args
        self.arms = {'wake': self.wake, 'zones': self.restored, 'files': self.restored}
        self.figures = {arm: [] for arm in self.arms}
        self.resident = []

    def begin(self):
        for arm in self.arms:
            options = ['--label', 'zns.qos=800'] if arm == 'zones' else ['--label', 'zns.memory=4G'] if arm == 'wake' else []
            self.d.run(arm, 'bash', '-c', SCRIPT.format(keys=self.args.keys, value=VALUE), options=options,
                       runtime='files' if arm == 'files' else 'zns')
        for arm in self.arms:
            until(f'{arm} is filled', lambda a=arm: not self.d.docker('exec', a, 'test', '-e', '/data/up', check=False).returncode, 300)
            if arm != 'wake':
                self.d.docker('checkpoint', 'create', arm, 'one', timeout=300)
        until('a context', lambda: contexts(self.d).get('wake'))

    def pid(self, name):
        return int(self.d.docker('inspect', '-f', '{{.State.Pid}}', name).stdout)

    def wake(self, name):
        self.d.zctl('memory', 'wake', name)
        pid = self.pid(name)
        ask(pid, self.args.keys, time.monotonic())      # this activation is the one that is recorded
        self.d.zctl('memory', 'hibernate', name, timeout=300)
        self.resident.append(contexts(self.d)[name]['resident'])
        begin = time.monotonic()
        with subprocess.Popen([BIN / 'znsctl', 'memory', 'wake', name], env=self.d.env, stdout=subprocess.DEVNULL) as woken:
            figures = ask(pid, self.args.keys, begin)
        if woken.returncode:
            raise Failed('it does not wake')
        return figures

    def restored(self, name):
        os.sync()
        for f in (self.d.root / 'containers' / self.d.id(name) / 'checkpoints').rglob('*'):
            if f.is_file():
                with f.open('rb') as images:
                    os.posix_fadvise(images.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(60):
            begin = time.monotonic()
            started = self.d.docker('start', '--checkpoint', 'one', name, check=False, timeout=300)
            if not started.returncode:
                break
            if 'already exists' not in started.stderr:          # moby#42900: until containerd has let it go
                raise Failed(f'docker start --checkpoint one {name}: {started.stderr.strip()}')
            time.sleep(1)
        else:
            raise Failed('containerd never let go of the last start')
        figures = ask(self.pid(name), self.args.keys, begin)
        self.d.docker('kill', name)
        until('it has ended', lambda: not self.d.running(name))
        return figures

    def run(self):
        self.begin()
        for n in range(self.args.rounds):
            for arm in random.sample(list(self.arms), len(self.arms)):
                self.figures[arm].append(self.arms[arm](arm))
                print(f'round {n + 1} {arm}: first answer {self.figures[arm][-1][0] * 1e3:.1f} ms', flush=True)
        if self.d.docker('exec', 'wake', 'redis-cli', '-s', '/data/r.sock', 'dbsize').stdout.split()[-1] != str(self.args.keys):
            raise Failed('keys are missing')

    def report(self):
        status = contexts(self.d)['wake']
        print(f'\n{self.args.keys} keys of {VALUE} bytes, {(status["resident"] + status["evicted"]) >> 20} MiB; hibernated '
              f'{statistics.median(self.resident) / 2**20:.1f} MiB stay; {self.args.rounds} rounds, medians; load {os.getloadavg()[0]:.1f}')
        for arm, rows in self.figures.items():
            first, last = (statistics.median(column) * 1e3 for column in zip(*rows))
            print(f'{arm:8} first answer {first:8.1f} ms, all {last:8.1f} ms')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--keys', type=int, default=900000)
    args = parser.parse_args()
    rootfs()
    with tempfile.TemporaryDirectory() as tmp:
        files = Path(tmp) / 'files-runc'
        files.write_text(f'#!/bin/sh\nPATH={BIN}:$PATH exec runc "$@"\n')
        files.chmod(0o755)
        with Daemon(device_args=('--zones', '96', '--zone-size', '64M'), runtimes={'files': {'path': str(files)}}) as d:
            d.make_image()
            bench = Bench(d, args)
            bench.run()
            bench.report()
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f'bench-hibernate-docker: {failure}')
