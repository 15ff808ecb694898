#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
netlock: the lock of the network in a dump with established TCP connections: what it blocks, when it ends, and by which
means.

  netlock.py list | run NAME... | run -a

A server runs in a network namespace that another process holds, as with Docker's --network container:X. A peer in that
namespace has a connection to it.
"""
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from ztlib import Failed, alive, wait_until
from ztscene import Outcome, case_of, suite_main

CASES = {}
case = case_of(CASES)

SERVER = """
import select, socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', 7000))
s.listen()
open(sys.argv[1], 'w').close()
all = [s]
while True:
    for r in select.select(all, [], [])[0]:
        if r is s:
            all.append(s.accept()[0])
        else:
            r.sendall(r.recv(100).upper() or b'.')
"""
PEER = """
import socket, sys
k = socket.create_connection(('127.0.0.1', 7000))
for line in sys.stdin:
    k.sendall(line.encode())
    print(k.recv(100).decode().strip(), flush=True)
"""
# An UDP packet to itself: a chain that drops packets going out makes the system call fail.
REACH = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
s.settimeout(60)
s.sendto(b'x', s.getsockname())
s.recv(1)
"""
# A script that runs in the freeze, while the network is locked: it reports that, and waits until it may go on.
BARRIER = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
echo here >{0}/here
read word <{0}/on
"""


class Net:
    """The namespace, with the server and the peer in it."""

    def __init__(self, scene):
        self.scene, self.procs, self.peer = scene, [], None
        # criu is in the same namespace, so it locks each connection, as it does in the host's network
        self.within = False
        self.holder = self.popen('unshare', '--net', 'sh', '-c', 'ip link set lo up; echo up; exec sleep infinity', stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != 'up\n':
            raise Failed('no network namespace')
        self.ns = f'/proc/{self.holder.pid}/ns/net'
        self.ino = os.stat(self.ns).st_ino
        self.fifo = {}
        for name in ('here', 'on'):
            os.mkfifo(scene.dir / name)
            self.fifo[name] = os.open(scene.dir / name, os.O_RDWR)
        self.script = scene.dir / 'barrier'
        self.script.write_text(BARRIER.format(scene.dir))
        self.script.chmod(0o755)

    def popen(self, *command, **more):
        p = subprocess.Popen(list(map(str, command)), **{'stdin': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, 'text': True, **more})
        self.procs.append(p)
        return p

    def inside(self, *command, **more):
        return self.popen('nsenter', f'--net={self.ns}', *command, **more)

    def output(self, *command):
        return subprocess.run(['nsenter', f'--net={self.ns}', *command], stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def serve(self):
        ready = self.scene.dir / 'ready'
        ready.unlink(missing_ok=True)
        # no wrapper stays in between: nsenter becomes the program
        self.server = self.inside(sys.executable, '-c', SERVER, ready, start_new_session=True, stdout=subprocess.DEVNULL,
                                  stderr=open(self.scene.dir / 'server', 'w'))
        if not wait_until(ready.exists, 60):
            raise Failed('the server does not start')
        self.peer = self.inside(sys.executable, '-c', PEER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.say('one')
        self.hear('ONE')
        self.pid = self.server.pid

    def say(self, word):
        self.peer.stdin.write(word + '\n')
        self.peer.stdin.flush()

    def hear(self, word):
        if (got := self.peer.stdout.readline().strip()) != word:
            raise Failed(f'the peer hears {got!r} instead of {word!r}')

    def reaches(self):
        return not self.output(sys.executable, '-c', REACH).returncode

    def rules(self):
        """Everything of ours in netfilter: tables of nftables, and rules of iptables."""
        said = [self.output('nft', 'list', 'tables').stdout]
        said += [self.output(t, '-S').stdout for t in ('iptables', 'ip6tables')]
        return [l for l in '\n'.join(said).splitlines() if 'CRIU' in l]

    def free(self, what):
        if not wait_until(lambda: not self.rules(), 60):
            raise Failed(f'{what}: {self.rules()} are left')
        if not self.reaches():
            raise Failed(f'{what}: the namespace is still blocked')

    def dump(self, images, *extra):
        images.mkdir()
        task = ztlib.Task(self.scene.dir, 'none')
        task.pid = self.pid
        log = self.scene.log()
        there = () if self.within else ('--external', f'net[{self.ino}]:held')
        args = ztlib.dump_args(self.scene.cfg, task, images, log, 'net', ('--tcp-established', *there, *extra))
        # no wrapper in between, so killing this process kills criu
        return (self.inside if self.within else self.popen)(self.scene.cfg.criu, *args, env=self.scene.device.env), log

    def dumped(self, *args):
        criu, log = self.dump(*args)
        done = Outcome(criu.wait(self.scene.cfg.timeout), log)
        if done.code:
            raise Failed(f'the dump fails: {" | ".join(done.errors()[-3:])}')
        self.server.wait(60)
        return done

    def until_locked(self):
        if not select.select([self.fifo['here']], [], [], 60)[0]:
            raise Failed('the dump never came to its post-dump script')
        os.read(self.fifo['here'], 100)

    def go_on(self):
        os.write(self.fifo['on'], b'go\n')

    def restore(self, images):
        log = self.scene.log()
        ns = os.open(self.ns, os.O_RDONLY)
        pidfile = Path(f'{log}.pid')
        there = () if self.within else ('--inherit-fd', f'fd[{ns}]:held')
        r = (self.inside if self.within else self.popen)(
            self.scene.cfg.criu, 'restore', '-D', images, '-W', log.parent, '-o', log.name, '-v4', '-d', '--pidfile', pidfile,
            '--tcp-established', *there, env=self.scene.device.env, pass_fds=[ns])
        done = Outcome(r.wait(self.scene.cfg.timeout), log)
        os.close(ns)
        if not done.code:
            self.pid = int(pidfile.read_text())
        return done

    def reap(self):
        """Waits until the restored process is gone; if it became our child it must be reaped, since its PID is taken until then."""
        def gone():
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pass
            return not Path(f'/proc/{self.pid}').exists()
        if not wait_until(gone, 60):
            raise Failed('the PID is still taken')

    def close(self):
        self.go_on()    # the script waits in its barrier
        for p in self.procs:
            p.kill()
            p.wait()
        if self.peer and alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)


def with_net(func):
    """Makes a case of @func(scene, net)."""
    def run(scene):
        scene = scene(size=1)
        net = Net(scene)
        try:
            func(scene, net)
        finally:
            net.close()
    run.__name__, run.__doc__ = func.__name__, func.__doc__
    return case(run)


@with_net
def kept(scene, net):
    """After the tasks have ended, other users of the namespace are not blocked; the connection is silent, and continues after the restore."""
    for name, extra in (('plain', ()), ('live', ('--zns-live',))):
        net.serve()
        net.dumped(scene.dir / name, *extra)
        if not net.reaches():
            raise Failed(f'{name}: the namespace is blocked')
        if len(net.rules()) != 1:
            raise Failed(f'{name}: rules are {net.rules()}')
        net.say('two')      # TCP sends the packet again until the peer answers
        done = net.restore(scene.dir / name)
        if done.code:
            raise Failed(f'{name}: the restore fails: {" | ".join(done.errors()[-3:])}')
        net.hear('TWO')
        net.free(name)
        os.kill(net.pid, signal.SIGKILL)
        net.reap()


@with_net
def given_up(scene, net):
    """A restore that fails does not block the namespace either, and the next one has the connection."""
    net.serve()
    net.dumped(scene.dir / 'net')
    moved = scene.dir / 'moved'
    # another process has the port, so criu cannot bind it
    other = net.inside(sys.executable, '-c', SERVER, moved, stdout=subprocess.DEVNULL)
    if not wait_until(moved.exists, 60):
        raise Failed('the other server does not start')
    if not net.restore(scene.dir / 'net').code:
        raise Failed('the restore succeeds')
    if not net.reaches():
        raise Failed('the namespace is blocked after the restore')
    other.kill()
    other.wait()
    net.reap()
    net.say('two')
    if net.restore(scene.dir / 'net').code:
        raise Failed('the second restore fails')
    net.hear('TWO')
    net.free('restored')


@with_net
def connections(scene, net):
    """criu runs in the tasks' own namespace: all their connections are locked, and nothing else; after the restore nothing is locked."""
    net.within = True
    net.serve()
    more = [net.inside(sys.executable, '-c', PEER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    for p in (net.peer, *more):
        p.stdin.write('one\n')
        p.stdin.flush()
        p.stdout.readline()
    criu, log = net.dump(scene.dir / 'runs', '--action-script', net.script, '--leave-running')
    net.until_locked()
    listed = net.output('nft', 'list', 'ruleset').stdout
    net.go_on()
    done = Outcome(criu.wait(60), log)
    if done.code or done.lines('Running iptables'):
        raise Failed(f'the dump: {done.code}, {done.lines("iptables")[:2]}')
    if listed.count('. 7000 .') + listed.count('. 7000,') + listed.count('. 7000 }') < 8:
        raise Failed(f'not all connections are locked: {listed}')
    net.free('left running')
    net.say('two')
    net.hear('TWO')
    net.dumped(scene.dir / 'ends')
    if not net.reaches() or len(net.rules()) != 1:
        raise Failed(f'rules are {net.rules()}')
    net.say('three')
    if net.restore(scene.dir / 'ends').code:
        raise Failed('the restore fails')
    net.hear('THREE')
    net.free('restored')


@with_net
def killed(scene, net):
    """criu is killed while the network is locked: the lock is lifted, and the next dump works as usual."""
    net.serve()
    for n, extra in enumerate((('--leave-running',), ('--leave-running', '--zns-live'), ('--leave-running', '--network-lock', 'iptables'))):
        criu, log = net.dump(scene.dir / f'images-{n}', '--action-script', net.script, *extra)
        net.until_locked()
        if net.reaches() or not net.rules():
            raise Failed(f'{extra}: the network is not locked in the freeze')
        if any(l.startswith('-A') for l in net.rules()) != ('iptables' in extra):
            raise Failed(f'{extra}: it is locked by {net.rules()}')
        criu.kill()
        criu.wait()
        net.go_on()     # the script of the killed dump still waits
        net.free(f'criu was killed, {extra}')
        if net.server.poll() is not None:
            raise Failed(f'{extra}: the server has ended: {net.server.returncode}')
        net.say('two')
        net.hear('TWO')
    net.dumped(scene.dir / 'next')
    if net.restore(scene.dir / 'next').code:
        raise Failed('the restore fails')
    net.say('three')
    net.hear('THREE')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'netlock', CASES))
