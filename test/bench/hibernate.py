#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
hibernate: from a hibernated Redis to its first answer, beside restores.

Two Redis servers of the same size: one hibernates, the other one was dumped, by stock criu into files (--stock) and by ours to zones. In
each round, in a new order:

  touch     hibernated without a record; it is asked, and faults
  record    hibernated with a record of the last activation; `znsctl memory wake` and the question at the same moment
  files     criu restore by stock criu; the images are in no cache
  zones     criu restore from zones
  lazy      criu restore --lazy-pages from zones

Reported: from the command (touch: the question) to the first answer, one GET, and to the last one, an MGET of 1,000 keys; medians.
The keys are anywhere (all), or in the tenth that was filled first (tenth), so that nine tenths are never used again.
"""
import argparse
import ctypes
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'test' / 'zonetests'))
import kept                         # noqa: E402
from ztlib import Failed, wait_until       # noqa: E402

VALUE, ASK = 850, 1000


class Redis:
    def __init__(self, work, keys):
        self.sock, self.keys = work / 'sock', keys
        self.child = subprocess.Popen(['redis-server', '--port', '0', '--save', '', '--appendonly', 'no', '--enable-debug-command', 'yes',
                                       '--unixsocket', str(self.sock)], cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.child.pid
        if not wait_until(self.sock.exists, 60):
            raise Failed('redis-server does not start')
        subprocess.run(['redis-cli', '-s', self.sock, 'DEBUG', 'POPULATE', str(keys), 'key', str(VALUE)], check=True, stdout=subprocess.DEVNULL)

    def asked(self, which):
        step = self.keys // ASK if which == 'all' else self.keys // ASK // 10
        return [f'key:{n * step}' for n in range(ASK)]

    def ask(self, which, begin):
        """Seconds from @begin to the first answer and to the last."""
        words = ['MGET', *self.asked(which)]
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.sock))
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

    def resident(self):
        return int(Path(f'/proc/{self.pid}/statm').read_text().split()[1]) * 4096

    def end(self):
        try:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        wait_until(lambda: not Path(f'/proc/{self.pid}').exists(), 20)


class Bench:
    def __init__(self, args):
        self.dir = Path(tempfile.mkdtemp(prefix='bench-hibernate-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        self.args, self.figures = args, {}
        self.env = dict(os.environ, ZNS_CONFIG=str(self.dir / 'etc'), ZNS_RUN=str(self.dir / 'run'))
        self.env.pop('ZNS_DEV', None)
        for name in ('one', 'two', 'files', 'handle'):
            (self.dir / name).mkdir()
        self.ctl('create', f'emu:{self.dir}/dev.emu', '--zones', '128', '--zone-size', '64M', '--sparse')
        self.one, self.two = Redis(self.dir / 'one', args.keys), Redis(self.dir / 'two', args.keys)
        print(f'{self.one.resident() >> 20} MiB each')

    def ctl(self, *words):
        done = subprocess.run([self.args.build / 'bin/znsctl', *map(str, words)], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f'znsctl {" ".join(map(str, words))}: {done.stderr.strip()}')
        return done.stdout

    def criu(self, program, verb, images, *more, wait=True, **popen):
        begun = subprocess.Popen([program, verb, '-D', images, '-W', images, '-o', f'{verb}.log', '-v4', *more], env=self.env,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **popen)
        if wait and begun.wait(300):
            raise Failed(f'criu {verb}: {(images / (verb + ".log")).read_text()[-500:]}')
        return begun

    def dump(self):
        ours = self.args.build / 'bin/criu'
        self.two.images = {'zones': (ours, self.dir / 'handle'), 'lazy': (ours, self.dir / 'handle')}
        if self.args.stock:
            self.two.images['files'] = (self.args.stock, self.dir / 'files')
            self.criu(self.args.stock, 'dump', self.dir / 'files', '-t', str(self.two.pid), '--leave-running', '--file-locks')
        self.criu(ours, 'dump', self.dir / 'handle', '-t', str(self.two.pid), '--file-locks', '--zns-container', 'two')
        self.two.end()

    def restored(self, which, arm):
        program, images = self.two.images[arm]
        os.sync()
        for f in images.iterdir():
            fd = os.open(f, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        self.two.sock.unlink(missing_ok=True)
        daemon, begin, more = None, time.monotonic(), []
        if arm == 'lazy':
            ready, status = os.pipe()
            daemon, more = self.criu(program, 'lazy-pages', images, '--status-fd', str(status), wait=False, pass_fds=[status]), ['--lazy-pages']
            os.close(status)
            os.read(ready, 1)
            os.close(ready)
        self.criu(program, 'restore', images, '-d', '--pidfile', str(images / 'pid'), *more)
        self.two.pid = int((images / 'pid').read_text())
        figures = self.two.ask(which, begin)
        (images / 'pid').unlink()
        self.two.end()
        if daemon:
            daemon.kill()
            daemon.wait()
        return figures

    def down(self):
        begin = time.monotonic()
        self.ctl('memory', 'hibernate', self.one.pid)
        self.note('hibernate', time.monotonic() - begin, self.one.resident())

    def note(self, arm, *figures):
        self.figures.setdefault(arm, []).append(figures)

    def hibernated(self, which, arm):
        if arm == 'touch':           # a new context has no record
            if json.loads(self.ctl('memory', 'status', '--json'))['contexts']:
                self.ctl('memory', 'detach', self.one.pid)
            self.down()
            return self.one.ask(which, time.monotonic())
        self.down()                  # wakes it, whatever it did before: this activation is the one that is recorded
        self.ctl('memory', 'wake', self.one.pid)
        self.one.ask(which, time.monotonic())
        self.down()
        begin = time.monotonic()
        wake = subprocess.Popen([self.args.build / 'bin/znsctl', 'memory', 'wake', str(self.one.pid)], env=self.env, stdout=subprocess.DEVNULL)
        figures = self.one.ask(which, begin)
        if wake.wait(60):
            raise Failed('it does not wake')
        return figures

    def run(self):
        self.dump()
        arms = ['touch', 'record', *self.two.images]
        for which in self.args.keys_of:
            for n in range(self.args.rounds):
                order = random.sample(arms, len(arms))
                for arm in order:
                    try:
                        figures = (self.restored if arm in self.two.images else self.hibernated)(which, arm)
                    except Failed as reason:
                        if 'File exists' not in str(reason):       # another process has its PID at the moment
                            raise Failed(f'{which}, round {n}, {arm}: {reason}') from reason
                        print(f'{which}, round {n}, {arm}: its PID is in use, left out')
                        continue
                    self.note(f'{which} {arm}', *figures)

    def report(self):
        lines, figures = [], {}
        for arm, rows in sorted(self.figures.items()):
            a, b = (statistics.median(column) for column in zip(*rows))
            if arm == 'hibernate':
                lines.append(f'hibernate       {a:6.2f} s, {b / 2**20:.1f} MiB stay; {len(rows)} times')
            else:
                lines.append(f'{arm:15} first answer {a * 1e3:8.1f} ms, all {b * 1e3:8.1f} ms; {len(rows)} rounds')
                figures |= {kept.name_of(arm, 'first_s'): a, kept.name_of(arm, 'all_s'): b}
        print('\n'.join(lines))
        if self.args.report:
            kept.keep(self.args.report, 'make bench-hibernate', figures, self.figures, '\n'.join(['# A hibernated Redis', '', *(f'- {line}' for line in lines), '']))

    def close(self):
        self.one.end()
        self.two.end()
        for pid in Path('/proc').glob('[0-9]*'):
            try:
                if f'ZNS_RUN={self.dir}/run'.encode() in (pid / 'environ').read_bytes() and (pid / 'comm').read_text().startswith('zns'):
                    os.kill(int(pid.name), 15)
            except OSError:
                pass
        time.sleep(1)
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('keys_of', nargs='*', default=['all', 'tenth'], metavar='all|tenth')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--keys', type=int, default=900000, help='of 850 bytes')
    parser.add_argument('--build', type=Path, default=REPO / 'build')
    parser.add_argument('--stock', help='the binary of stock criu; without it no arm `files`')
    parser.add_argument('--report', type=Path, metavar='DIR')
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)     # what is restored becomes a child of ours
    bench = Bench(parser.parse_args())
    try:
        bench.run()
        bench.report()
    except Failed as reason:
        print(f'hibernate: {reason}', file=sys.stderr)
        bench.report()
        return 1
    finally:
        bench.close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
