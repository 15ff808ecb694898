# SPDX-License-Identifier: GPL-2.0-only
"""
Open TCP connections in a network that another container holds: cases of docker.py.
"""
import subprocess

import dkdaemon
from dkcase import case, remove
from dkdaemon import want

# One process with both ends of a connection, which it uses again and again.
BOTH_ENDS = """
import os, socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', 7000)); s.listen()
k = socket.create_connection(('127.0.0.1', 7000)); a, _ = s.accept()
n = 0
while True:
    k.sendall(b'go'); a.recv(2); n += 1
    open('/data/new', 'w').write(str(n)); os.rename('/data/new', '/data/turns')
    time.sleep(0.01)
"""
# An UDP packet to itself: a chain that drops packets going out makes the system call fail.
REACH = "import socket; s = socket.socket(2, 2); s.bind(('127.0.0.1', 0)); s.settimeout(60); s.sendto(b'x', s.getsockname()); s.recv(1)"


@case
def holder_lock(d):
    """A checkpoint with open connections blocks no other user of the network. No lock is left after a fresh start,
    nor after one from the checkpoint."""
    d.run('keeps', 'sleep', '1000', runtime='runc')
    net = ['nsenter', '-t', d.docker('inspect', '-f', '{{.State.Pid}}', 'keeps').stdout.strip(), '-n']
    dkdaemon.sh(*net, 'ip', 'link', 'set', 'lo', 'up')

    def locks():
        return subprocess.run([*net, 'nft', 'list', 'tables'], capture_output=True, text=True).stdout.count('CRIU')

    def runs():
        """Checks that the connection is in use now."""
        def turns():
            return d.docker('exec', 'talks', 'cat', '/data/turns', check=False).stdout
        before = turns()
        dkdaemon.until('turns go on', lambda: turns() not in ('', before))

    note = d.dir / 'run/docker'
    for live in ((), ('--label', 'zns.live=yes')):
        d.run('talks', 'python3', '-c', BOTH_ENDS, options=('--label', 'zns.criu=tcp-established', *live), network='container:keeps')
        runs()
        d.docker('checkpoint', 'create', 'talks', 'one')
        want('its connection is locked', locks() == 1 and len(list(note.glob('*.netlock'))) == 1, locks())
        dkdaemon.sh(*net, 'python3', '-c', REACH)
        d.docker('start', 'talks')
        want('started afresh: no lock', not locks() and not list(note.glob('*.netlock')), locks())
        runs()
        d.docker('checkpoint', 'create', '--leave-running', 'talks', 'two')
        want('it ran on: no lock', not locks(), locks())
        d.docker('checkpoint', 'create', 'talks', 'three')
        d.docker('start', '--checkpoint', 'three', 'talks')
        want('restored: no lock', not locks() and not list(note.glob('*.netlock')), locks())
        runs()
        remove(d, 'talks')
    remove(d, 'keeps')
