#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
paging.py list | run NAME... | run -a [--keep]: containers of Docker's own runtime and seccomp profile, with connected clients, whose
memory is put on zones while they run (znsctl memory attach NAME --dram 30%), as docker.py; and one of Podman's with a user namespace.
"""
import re
import sys
import time
from pathlib import Path

import dkdaemon
from dkcase import case, contexts, main, remove
from dkdaemon import Skipped, until, want
from dkwork import Ferret, Maria, Nginx, Redis, Shell
from podman import Podman


def paged(d, kind, units, share='30%', **kw):
    """A program under its budget answers as before, also to `docker exec`, and so after the detach; and it stops at
    once."""
    name = f'p-{kind.name}'
    w = kind(d, name, runtime='runc', **kw)
    pid = d.docker('inspect', '-f', '{{.State.Pid}}', name).stdout.strip()
    seccomp = re.search(r'^Seccomp:\s+(\d)', Path(f'/proc/{pid}/status').read_text(), re.M).group(1)
    want('Docker\'s seccomp filter', seccomp == '2', seccomp)
    w.remember()
    d.zctl('memory', 'attach', name, '--dram', share)
    before = contexts(d)[name]
    until(f'{units} units out', lambda: contexts(d)[name]['evicted_units'] >= units)
    for _ in range(5):
        w.verify()
        w.remember()
    want('who enters it', w.exec('bash', '-c', 'echo $((6 * 7))').stdout.strip() == '42')
    now = contexts(d)[name]
    print(f'    {kind.name}: {len(now["processes"])} processes, {before["resident"] >> 20} MiB, now {now["resident"] >> 20} of {now["dram"] >> 20}; '
          f'{now["evicted"] >> 20} MiB out, {now["evicted_units"]} units went, {now["read_units"]} came back, {now["lost_units"]} lost; '
          f'longest stop {now["attach_stop_ns"] / 1e6:.1f} ms', flush=True)
    want('nothing lost', now['lost_units'] == 0)
    d.zctl('memory', 'detach', name)
    w.verify()
    d.zctl('memory', 'attach', name, '--dram', share)
    until('units out again', lambda: contexts(d)[name]['evicted_units'] >= min(units, 10))
    d.docker('stop', '-t', '5', name)
    until('the context\'s end', lambda: name not in contexts(d))
    remove(d, name)


@case
def redis(d):
    paged(d, Redis, 200)


@case
def nginx(d):
    paged(d, Nginx, 10)


@case
def mariadb(d):
    paged(d, Maria, 200)


@case
def ferretdb(d):
    if dkdaemon.ferretdb_missing:
        raise Skipped(dkdaemon.ferretdb_missing)
    paged(d, Ferret, 200)


@case
def shell(d):
    """A program that has hardly any memory."""
    paged(d, Shell, 1, share='1M')


@case
def paused(d):
    """docker pause while units are being evicted: a detach is refused in one line, and works after unpause."""
    w = Redis(d, 'pausing', runtime='runc')
    w.remember()
    d.zctl('memory', 'attach', 'pausing', '--dram', '1M')
    until('units out', lambda: contexts(d)['pausing']['evicted_units'] >= 20)
    d.docker('pause', 'pausing')
    time.sleep(2)
    until('an answer', lambda: contexts(d).get('pausing'))
    r = d.zctl('memory', 'detach', 'pausing', check=False)
    print(f'    detach while it is paused: {r.returncode} {r.stderr.strip()}', flush=True)
    want('one line', len(r.stderr.strip().splitlines()) <= 1, r.stderr)
    d.docker('unpause', 'pausing')
    w.verify()
    if r.returncode:
        d.zctl('memory', 'detach', 'pausing')
    w.verify()
    remove(d, 'pausing')


@case
def podman(d):
    """Podman with a user namespace: the container's root is an unprivileged user outside."""
    with Podman() as p:
        p.p('run', '-d', '--network', 'none', '--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=1000:1000', '--name', 'inner',
            '--uidmap', '0:100000:65536', '--gidmap', '0:100000:65536', '--runtime', 'runc', 'work', 'bash', '-c',
            'python3 -c "import time; a = [str(i) * 20 for i in range(200000)]; open(\'/tmp/up\', \'w\'); '
            'exec(\'while True:\\n time.sleep(0.2)\\n if all(a[i] == str(i) * 20 for i in range(0, 200000, 7)):'
            ' open(\\\"/tmp/n\\\", \\\"a\\\").write(\\\"x\\\")\')" & wait')
        until('it works', lambda: p.p('exec', 'inner', 'test', '-s', '/tmp/n', check=False).returncode == 0)
        pid = p.p('inspect', '-f', '{{.State.Pid}}', 'inner').stdout.strip()
        uid = re.search(r'^Uid:\s+(\d+)', Path(f'/proc/{pid}/status').read_text(), re.M).group(1)
        want('a user of its own', uid == '100000', uid)
        p.z('memory', 'attach', 'inner', '--dram', '30%')
        until('units out', lambda: contexts(P(p))['inner']['evicted_units'] >= 100)
        had = int(p.exec('inner', 'wc -c </tmp/n'))
        until('it goes on', lambda: int(p.exec('inner', 'wc -c </tmp/n')) > had + 5)
        now = contexts(P(p))['inner']
        print(f'    {now["evicted_units"]} units out, {now["read_units"]} back, {now["resident"] >> 20} MiB of {now["dram"] >> 20}', flush=True)
        p.z('memory', 'detach', 'inner')
        had = int(p.exec('inner', 'wc -c </tmp/n'))
        until('it goes on', lambda: int(p.exec('inner', 'wc -c </tmp/n')) > had + 2)
        p.p('rm', '-f', '-t', '0', 'inner')


class P:
    """What contexts() needs of a daemon."""
    def __init__(self, podman_):
        self.p = podman_

    def zjson(self, *args):
        import json
        return json.loads(self.p.z(*args, '--json').stdout)


if __name__ == '__main__':
    sys.exit(main(__doc__))
