# SPDX-License-Identifier: GPL-2.0-only
"""
Several containers from one checkpoint: cases of docker.py.
"""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import dkdaemon
from dkcase import case, remove
from dkdaemon import BIN, want
from dkwork import Memory, Shell

sys.path.append(str(Path(__file__).resolve().parents[1] / 'zonetests'))
from ztfds import hot_bytes  # noqa: E402


@case
def clone(d):
    """Two restores into another container, with the files that the first one had changed; the original runs on."""
    w = Shell(d, 'orig')
    w.remember()
    d.docker('checkpoint', 'create', '--leave-running', 'orig', 'base')
    for name in ('copy1', 'copy2'):
        d.zctl('docker', 'clone', 'orig', 'base', name)
        c = Shell.__new__(Shell)
        c.d, c.container, c.before, c.tick = d, name, w.before, w.tick
        c.verify()
    w.verify()
    d.refused(d.zctl, 'docker', 'clone', 'orig', 'none', 'copy3', line='has no checkpoint none')
    def images():
        return sorted(d.docker('images', '--format', '{{.Tag}}={{.ID}}', 'zns-clone').stdout.split())

    want('an image each', len(images()) == 2, images())
    tags = images()
    d.refused(d.zctl, 'docker', 'clone', 'orig', 'base', 'copy1', line='in use')
    want('no tag was moved', images() == tags)
    # started once more from its own copy, and by a container that was not made for this checkpoint
    d.docker('kill', 'copy1')
    d.docker('start', '--checkpoint', 'base', 'copy1')
    where = d.root / 'containers'
    d.run('thief', 'sleep', '1000')
    d.docker('kill', 'thief')
    shutil.copytree(where / d.id('orig') / 'checkpoints/base', where / d.id('thief') / 'checkpoints/base')
    d.refused(d.docker, 'start', '--checkpoint', 'base', 'thief', line='not of thief')
    remove(d, 'copy1', 'copy2', 'thief')
    d.zctl('docker', 'clone', 'orig', 'base', 'copy4')
    want('images of clones that are gone are gone', len(images()) == 1, images())
    remove(d, 'orig', 'copy4')


@case
def clones_at_once(d):
    """Six containers (or ZNS_TEST_CLONES) start from one checkpoint at the same time, through shared memory; each has
    the right memory and its own name."""
    number, mib = int(os.environ.get('ZNS_TEST_CLONES', 6)), 100 if 'ZNS_TEST_CLONES' in os.environ else 32
    w = Memory(d, 'many', mib, options=['--tmpfs', '/data'])
    w.remember()
    d.docker('checkpoint', 'create', 'many', 'base')
    names = [f'many-{n}' for n in range(number)]
    start = time.monotonic()
    started = [subprocess.Popen([BIN / 'znsctl', 'docker', 'clone', 'many', 'base', name], env=d.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for name in names]
    said = [p.communicate(timeout=300)[1] for p in started]
    took = time.monotonic() - start
    want('every clone', not any(p.returncode for p in started), *said)
    shared = hot_bytes(d.zjson('status')['broker_pid'])
    want('shared memory', (shared or 0) > mib << 19, shared)
    for name in names:
        c = Memory.__new__(Memory)
        c.d, c.container, c.before = d, name, w.before
        c.verify()
    print(f'     {number} containers of {mib} MiB in {took:.2f} s', flush=True)
    remove(d, 'many', *names)


@case
def own_addresses(d):
    """runc without Docker: four containers from one checkpoint at once, in network namespaces of their own, each with
    its address."""
    base = d.dir / 'bundles'
    env = {k: v for k, v in d.env.items() if k != 'CRIU_CONFIG_FILE'} | {'PATH': f'{BIN}:{dkdaemon.SYS_PATH}', 'CRIU_CONFIG_FILE': str(base / 'criu.conf')}

    def runc(*args):
        # The script's output may become the container's standard output, which criu could not dump if it were a file of ours.
        done = subprocess.run(['runc', '--root', str(base / 'state'), '--log', str(base / 'said'), *map(str, args)], env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
        want(f'runc {args[0]}', not done.returncode, (base / 'said').read_text()[-300:] if done.returncode else '')

    def bundle(name, number):
        """The bundle of a container in the namespace with that number."""
        path = base / name
        path.mkdir()
        dkdaemon.sh('runc', 'spec', cwd=path)
        spec = json.loads((path / 'config.json').read_text())
        spec['process'].update(terminal=False, args=['python3', '-c', 'import os, time\nm = os.urandom(24 << 20)\nwhile 1: time.sleep(1)'])
        spec['root'] = {'path': str(dkdaemon.rootfs()), 'readonly': True}
        net = f'zns-{os.getpid()}-{number}'
        next(n for n in spec['linux']['namespaces'] if n['type'] == 'network')['path'] = f'/run/netns/{net}'
        (path / 'config.json').write_text(json.dumps(spec))
        dkdaemon.sh('ip', 'netns', 'add', net)
        nets.append(net)
        dkdaemon.sh('ip', '-n', net, 'link', 'set', 'lo', 'up')
        dkdaemon.sh('ip', '-n', net, 'addr', 'add', f'10.78.0.{number}/32', 'dev', 'lo')
        return path

    base.mkdir()
    nets, names = [], [f'address-{n}' for n in range(1, 5)]
    (base / 'criu.conf').write_text('zns-qos 500\nzns-container address\n')
    try:
        runc('run', '-d', '--bundle', bundle('address', 100), 'address')
        time.sleep(1)
        runc('checkpoint', '--image-path', base / 'images', '--work-path', base / 'dump', 'address')
        (base / 'criu.conf').write_text('')
        bundles = [bundle(name, n) for n, name in enumerate(names, 1)]
        started = [subprocess.Popen(['runc', '--root', base / 'state', 'restore', '-d', '--bundle', b, '--image-path', base / 'images',
                                     '--work-path', base / f'restore-{b.name}', b.name], env=env, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for b in bundles]
        want('every restore', not any(p.wait(120) for p in started), [p.returncode for p in started])
        for n, name in enumerate(names, 1):
            pid = json.loads((base / 'state' / name / 'state.json').read_text())['init_process_pid']
            have = dkdaemon.sh('nsenter', '-t', pid, '-n', 'ip', '-o', '-4', 'addr').stdout
            want(f'the address of {name}', f'10.78.0.{n}/32' in have and have.count('10.78.0.') == 1, have)
    finally:
        for name in ['address', *names]:
            subprocess.run(['runc', '--root', base / 'state', 'delete', '-f', name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for net in nets:
            dkdaemon.sh('ip', 'netns', 'del', net, check=False)
        d.zctl('rm', '--container', 'address', check=False)
        shutil.rmtree(base, ignore_errors=True)
