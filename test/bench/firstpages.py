#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
firstpages: what --zns-record saves after a lazy restore, with a record and without, alternating.

A program is dumped, restored once with --zns-record, and then again and again. Each time it is asked for the same at
once: Redis for 1,000 of its keys, the others for one object in 600 or 800. Reported: faults that the daemon saw and reads
for them, the time of `criu restore`, from its end to the answer, and both together.

--memory SIZE: two more arms, a full restore and one into a memory context (--zns-memory SIZE, which starts its daemon within
the restore; for the lazy ones the daemon is up already); and resident memory ten seconds after the answer.
"""
import argparse
import os
import re
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
from ztlib import Failed, wait_until       # noqa: E402

KEYS, VALUE, ASK = 1000000, 250, 1000    # Redis: about 350 MiB
PYTHON = '''
import socket, sys
data = {i: bytes([i % 251]) * 300 + str(i).encode() for i in range(800000)}
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(5)
while True:
    c, _ = s.accept(); c.recv(10)
    c.sendall(b'%d' % sum(len(data[i]) for i in range(0, 800000, 800))); c.close()
'''
NODE = '''
const data = new Map(); for (let i = 0; i < 600000; i++) data.set(i, { n: i, text: ('v' + i).repeat(20) });
require('net').createServer(c => c.on('data', () => {
  let n = 0; for (let i = 0; i < 600000; i += 600) n += data.get(i).text.length; c.end(String(n)); })).listen(process.argv[1]);
'''
JAVA = '''
import java.net.*; import java.nio.*; import java.nio.channels.*; import java.util.*;
class Server {
    public static void main(String[] args) throws Exception {
        Map<Integer, byte[]> data = new HashMap<>();
        for (int i = 0; i < 800000; i++) { data.put(i, new byte[300]); data.get(i)[7] = (byte) i; }
        ServerSocketChannel s = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        s.bind(UnixDomainSocketAddress.of(args[0]));
        while (true) {
            SocketChannel c = s.accept(); c.read(ByteBuffer.allocate(10));
            long n = 0; for (int i = 0; i < 800000; i += 800) n += data.get(i)[7];
            c.write(ByteBuffer.wrap(Long.toString(n).getBytes())); c.close();
        }
    }
}
'''


class Program:
    def __init__(self, name, work):
        self.name, self.sock, self.pid = name, work / 'sock', 0
        command = {'redis': ['redis-server', '--port', '0', '--save', '', '--appendonly', 'no', '--enable-debug-command', 'yes',
                             '--unixsocket', str(self.sock)],
                   'python': ['/usr/bin/python3', '-c', PYTHON, str(self.sock)],
                   'node': ['node', '-e', NODE, str(self.sock)],
                   'java': ['java', '-XX:+UseSerialGC', '-Xmx1g', '-XX:-UsePerfData', str(work / 'Server.java'), str(self.sock)]}[name]
        (work / 'Server.java').write_text(JAVA)
        self.child = subprocess.Popen(command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.child.pid
        if not wait_until(self.answers, 120):
            raise Failed(f'{name} does not start')
        if name == 'redis':
            subprocess.run(['redis-cli', '-s', self.sock, 'DEBUG', 'POPULATE', str(KEYS), 'key', str(VALUE)], check=True,
                           stdout=subprocess.DEVNULL)
        self.right = self.ask()

    def answers(self):
        try:
            return bool(self.ask())
        except OSError:
            return False

    def ask(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.sock))
            if self.name != 'redis':
                s.sendall(b'?')
                return s.recv(100)
            words = ['MGET', *(f'key:{n}' for n in range(0, KEYS, KEYS // ASK))]
            s.sendall((f'*{len(words)}\r\n' + ''.join(f'${len(w)}\r\n{w}\r\n' for w in words)).encode())
            got = b''
            while got.count(b'\r\n') < 2 * len(words) - 1 and got.count(b'$-1') < ASK:
                got += s.recv(1 << 20)
            return got

    def end(self):
        try:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        wait_until(lambda: not Path(f'/proc/{self.pid}').exists(), 20)


class Bench:
    def __init__(self, args):
        self.dir = Path(tempfile.mkdtemp(prefix='bench-firstpages-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        self.args = args
        self.env = dict(os.environ, ZNS_CONFIG=str(self.dir / 'etc'), ZNS_RUN=str(self.dir / 'run'))
        self.env.pop('ZNS_DEV', None)
        self.ctl('create', f'emu:{self.dir}/dev.emu', '--zones', '64', '--zone-size', '64M', '--timing', args.timing)

    def ctl(self, *args):
        subprocess.run([REPO / 'build' / 'bin' / 'znsctl', *args], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def criu(self, verb, *args, **popen):
        command = [REPO / 'build' / 'bin' / 'criu', verb, '-D', self.images, '-W', self.work, '-o', f'{verb}.log', '-v4', *args]
        return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, **popen)

    def run(self, verb, *args):
        if self.criu(verb, *args).wait(300):
            raise Failed(f'criu {verb}: {(self.work / (verb + ".log")).read_text()[-600:]}')

    def lazily(self, program, *option):
        os.sync()
        ready, status = os.pipe()
        daemon = self.criu('lazy-pages', *option, '--status-fd', str(status), pass_fds=[status])
        os.close(status)
        os.read(ready, 1)
        os.close(ready)
        begin = time.monotonic()
        self.run('restore', '-d', '--lazy-pages', '--pidfile', str(self.work / 'pid'))
        running = time.monotonic()
        program.pid = int((self.work / 'pid').read_text())
        if program.ask() != program.right:
            raise Failed(f'{program.name} answers wrongly')
        answered = time.monotonic()
        (self.work / 'pid').unlink()
        if '--zns-record=600' in option:
            program.end()
        rss = self.later(program)
        if daemon.wait(700):
            raise Failed(f'lazy-pages: {(self.work / "lazy-pages.log").read_text()[-600:]}')
        program.end()
        log = (self.work / 'lazy-pages.log').read_text()
        return {'faults': log.count('#PF at'), 'reads': int(re.search(r'zns: (\d+) reads for faults', log)[1]),
                'restore_ms': (running - begin) * 1e3, 'answer_ms': (answered - running) * 1e3, 'both_ms': (answered - begin) * 1e3, **rss}

    def later(self, program):
        """Resident memory ten seconds after the answer."""
        status = Path(f'/proc/{program.pid}/status')
        if not self.args.memory or not status.exists():
            return {}
        time.sleep(10)
        return {'rss_mib': int(re.search(r'VmRSS:\s+(\d+)', status.read_text())[1]) / 1024}

    def at_once(self, program, *option):
        os.sync()
        begin = time.monotonic()
        self.run('restore', '-d', '--pidfile', str(self.work / 'pid'), *option)
        running = time.monotonic()
        program.pid = int((self.work / 'pid').read_text())
        if program.ask() != program.right:
            raise Failed(f'{program.name} answers wrongly')
        answered = time.monotonic()
        (self.work / 'pid').unlink()
        rss = self.later(program)
        program.end()
        time.sleep(2)      # waits until its context has ended
        return {'restore_ms': (running - begin) * 1e3, 'answer_ms': (answered - running) * 1e3, 'both_ms': (answered - begin) * 1e3, **rss}

    def one(self, program, how):
        if how == 'full':
            return self.at_once(program)
        if how.startswith('extended'):
            return self.at_once(program, '--zns-memory', self.args.memory, *(['--zns-record=off'] if how.endswith('without') else []))
        return self.lazily(program, *(['--zns-record=off'] if how == 'without' else []))

    def program(self, name):
        self.work, self.images = self.dir / name, self.dir / name / 'images'
        self.images.mkdir(parents=True)
        program = Program(name, self.work)
        self.run('dump', '-t', str(program.pid), '--zns-qos', '500', '--zns-container', name)
        program.child.wait()
        arms = ['without', 'with', *(['full', 'extended, without', 'extended, with'] if self.args.memory else [])]
        found = {'recording': [self.lazily(program, '--zns-record=600')], **{how: [] for how in arms}}
        for n in range(self.args.rounds):
            for how in arms if n % 2 else reversed(arms):
                found[how].append(self.one(program, how))
        for how, rows in found.items():
            print(f'{name}, {how}: ' + ', '.join(f'{k} {statistics.median(r[k] for r in rows):.1f}' for k in rows[0]), flush=True)

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('programs', nargs='*', metavar='PROGRAM', default=['redis', 'python', 'node', 'java'])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--timing', default='off')
    parser.add_argument('--keys', type=int, default=KEYS, help='of Redis: some 350 bytes each')
    parser.add_argument('--memory', help='budget of the memory context, e.g. 200M')
    args = parser.parse_args()
    globals()['KEYS'] = args.keys
    import ctypes
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)     # what is restored becomes a child of ours
    bench = Bench(args)
    try:
        for name in args.programs:
            bench.program(name)
    except Failed as e:
        print(f'firstpages: {e}', file=sys.stderr)
        return 1
    finally:
        bench.close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
