# SPDX-License-Identifier: GPL-2.0-only
"""
What stays when everything dies, when Docker loses a checkpoint or drops it, and what the sweep removes: cases of
docker.py.
"""
import json
import os
import threading
import time
from pathlib import Path

import dkdaemon
from dkcase import case, remove
from dkdaemon import want
from dkwork import Redis, Shell


def life(d, c):
    """What `gc` would decide about a checkpoint: needed, gone or unknown."""
    return d.zctl('docker', 'live', c['id']).stdout.split(':')[0].strip()


@case
def host_crash(d):
    """dockerd, containerd, all processes of the container and znsd die at once; `docker recover` brings the container
    back."""
    w = Redis(d, 'crash')
    w.remember()
    d.zctl('docker', 'checkpoint', 'crash', '--leave-running')
    pid = int(d.docker('inspect', '-f', '{{.State.Pid}}', 'crash').stdout)
    d.stop(crash=True)
    for name in ('znsd', 'containerd-shim', 'containerd'):
        for p in d.pids_of(name):
            os.kill(p, 9)
    # containerd and its shims do not have our environment
    for p in (p / 'cmdline' for p in Path('/proc').glob('[0-9]*')):
        try:
            if str(d.dir).encode() in p.read_bytes() and int(p.parent.name) != os.getpid():
                os.kill(int(p.parent.name), 9)
        except OSError:
            pass
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
    time.sleep(1)
    (d.dir / 'd.pid').unlink(missing_ok=True)
    (d.dir / 'exec/containerd/containerd.pid').unlink(missing_ok=True)
    d.start()
    if d.running('crash'):
        d.docker('kill', 'crash')
    d.zctl('docker', 'recover', 'crash')
    w.verify()
    remove(d, 'crash')


def lost(d):
    """Makes Docker lose a checkpoint: its disk is full after the dump. Returns the workload, the checkpoint, and the
    directory where Docker would have it."""
    w = Redis(d, 'lost')
    w.remember()
    ingest = d.root / 'containerd/daemon/io.containerd.content.v1.content/ingest'
    # containerd 1.7 creates this directory when it writes the first content
    ingest.mkdir(parents=True, exist_ok=True)
    dkdaemon.sh('mount', '-t', 'tmpfs', '-o', 'size=4k', 'full', ingest)
    try:
        d.refused(d.docker, 'checkpoint', 'create', 'lost', 'one', line='')
    finally:
        dkdaemon.sh('umount', '-l', ingest)
    where = d.root / 'containers' / d.id('lost') / 'checkpoints'
    want('Docker has lost both', not d.running('lost') and not list(where.iterdir()))
    (c,) = d.checkpoints('lost')
    return w, c, where


def recovered(d, w):
    said = d.zctl('docker', 'recover', 'lost').stdout
    want('recovered', 'which Docker had lost' in said, said)
    w.verify()


@case
def lost_by_docker(d):
    """Docker fails after the dump: the container has ended, Docker has no checkpoint; gc keeps it, recover has it."""
    w, c, where = lost(d)
    for _ in range(2):
        d.zctl('gc', '--grace', '0')
    want('gc keeps it', len(d.checkpoints('lost')) == 1)
    want('needed', life(d, c) == 'needed' and c['origin']['ended'] is True, c['origin'])
    time.sleep(1.1)         # a start in the second of the dump would be taken for the one before it
    recovered(d, w)
    want('Docker has it now', [p.name for p in where.iterdir()] == ['one'])
    d.docker('checkpoint', 'rm', 'lost', 'one')
    want('it ran since', life(d, c) == 'gone')
    remove(d, 'lost')


@case
def lost_encrypted(d):
    """Like lost, with an encrypted checkpoint."""
    conf, key = d.dir / 'conf' / 'zns.conf', d.dir / 'key'
    kept = conf.read_text() if conf.exists() else ''
    d.zctl('key', 'create', key)
    conf.write_text(kept + f'encrypt-key = file:{key}\n')
    try:
        w, c, _ = lost(d)
        want('encrypted', c['encrypted'], c)
        recovered(d, w)
        remove(d, 'lost')
    finally:
        conf.write_text(kept)


@case
def liveness(d):
    """After checkpoint rm, rm, clones, --checkpoint-dir, and while the data root is away, checkpoints are kept or
    freed as they should be."""
    Shell(d, 'life')
    d.docker('checkpoint', 'create', '--leave-running', 'life', 'aa')
    d.docker('checkpoint', 'create', '--leave-running', 'life', 'bb')
    elsewhere = d.dir / 'elsewhere'
    elsewhere.mkdir()
    d.docker('checkpoint', 'create', '--leave-running', '--checkpoint-dir', elsewhere, 'life', 'cc')
    a, b, c = d.checkpoints('life')
    want('all needed', [life(d, x) for x in (a, b)] == ['needed', 'needed'])
    want('elsewhere is not known', life(d, c) == 'unknown', life(d, c))
    d.docker('checkpoint', 'rm', 'life', 'aa')
    want('removed', life(d, a) == 'gone' and life(d, b) == 'needed')
    d.zctl('docker', 'clone', 'life', 'bb', 'heir')
    d.docker('rm', '-f', 'life')
    want('the clone needs it', life(d, b) == 'needed')
    d.docker('rm', '-f', 'heir')
    want('nobody needs it', life(d, b) == 'gone')
    away = d.root / 'containers-away'
    (d.root / 'containers').rename(away)
    try:
        want('no data root, no judgement', life(d, b) == 'unknown')
    finally:
        away.rename(d.root / 'containers')
    d.zctl('rm', '--container', 'life', check=False)
    d.zctl('rm', '--container', 'heir', check=False)


@case
def resized(d):
    """A store on a disk grows and shrinks while a container is checkpointed again and again; docker start works with
    handles from before."""
    store = f'file:{d.dir}/disk.store'
    d.zctl('create', store, '--size', '384M', '--rate', '500')
    d.zctl('register', '--default', store)
    shells = [Shell(d, name) for name in ('resized', 'beside')]
    secrets = [s.ask() for s in shells]
    d.docker('checkpoint', 'create', 'resized', 'old')
    n, sizes = 0, iter(('512M', '128M', '256M', '96M'))
    beside = threading.Thread(target=lambda: [json.loads(d.zctl('resize', store, s, '--json').stdout) for s in sizes])
    beside.start()
    while beside.is_alive() or not n:
        d.docker('checkpoint', 'create', '--leave-running', 'beside', f'c{n}')
        d.docker('checkpoint', 'rm', 'beside', f'c{n}')
        n += 1
    beside.join()
    want('all four', next(sizes, None) is None)
    want('there', {c['container'] for c in d.zjson('ls', store)['checkpoints']} >= {'resized'}, d.zjson('ls', store))
    d.docker('checkpoint', 'create', 'beside', 'new')
    for s, name, secret in zip(shells, ('old', 'new'), secrets):
        d.docker('start', '--checkpoint', name, s.container)
        want('it goes on', s.ask() == secret)
    remove(d, 'resized', 'beside')
    d.zctl('rm', '--all', store)
    d.zctl('unregister', store)


@case
def sweep(d):
    """znsctl gc removes what Docker dropped, after its grace period, and nothing else."""
    Shell(d, 'gc')
    for name in ('aa', 'bb'):
        d.docker('checkpoint', 'create', '--leave-running', 'gc', name)
    a, b = d.checkpoints('gc')
    d.docker('checkpoint', 'rm', 'gc', 'aa')
    d.zctl('gc')                                   # too young for the default grace period
    want('grace', len(d.checkpoints('gc')) == 2)
    d.zctl('gc', '--dry-run', '--grace', '0')
    want('dry run', len(d.checkpoints('gc')) == 2)
    d.zctl('gc', '--grace', '0')
    want('one is swept', [c['id'] for c in d.checkpoints('gc')] == [b['id']])
    d.docker('kill', 'gc')
    d.docker('start', '--checkpoint', 'bb', 'gc')
    d.docker('rm', '-f', 'gc')
    d.zctl('gc', '--grace', '0')
    want('the other one too', not d.checkpoints('gc'))
    d.settle(0, d.zones_used)


SECRET = '''
import os, socket
secret, s = os.urandom(16).hex(), socket.create_server(('127.0.0.1', 7000))
while True:
    c, _ = s.accept()
    c.sendall(secret.encode())
    c.close()
'''


@case
def holder(d):
    """A container shares the network namespace of another one that is not checkpointed: it is started, and recovered,
    in that namespace. Works with Docker 28, too."""
    def ask():
        return d.docker('exec', 'holder', 'python3', '-c', 'import socket; print(socket.create_connection(("127.0.0.1", 7000), 3).recv(64).decode())',
                        check=False).stdout.strip()

    d.docker('run', '-d', '--network=none', '--name', 'holder', 'work', 'sleep', 'infinity')
    d.run('held', 'python3', '-c', SECRET, network='container:holder')
    secret = dkdaemon.until('an answer', ask)
    d.docker('checkpoint', 'create', 'held', 'one')
    want('nobody answers', ask() == '')
    d.docker('start', '--checkpoint', 'one', 'held')
    want('the same one, in the same network', dkdaemon.until('an answer', ask) == secret)
    d.docker('kill', 'held')
    d.zctl('docker', 'recover', 'held')
    want('the same one', dkdaemon.until('an answer', ask) == secret)
    d.docker('rm', '-f', 'held', 'holder')
    d.zctl('rm', '--all')
