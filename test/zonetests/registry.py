#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
registry: znsctl push and pull, by skopeo, with Debian's docker-registry on this machine. `make registry` installs both.

  registry.py list | run NAME... | run -a
"""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from chains import LEVELS, ROOM, Parts, plain_criu
from oci import Layout, depth
from ztlib import Failed, Skipped, wait_until
from ztscene import case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
PLAIN_PUSH, PLAIN_PULL = ['--', '--dest-tls-verify=false'], ['--', '--src-tls-verify=false']


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Registry:
    """Of this machine, without TLS."""

    def __init__(self, directory):
        for program in ('skopeo', 'docker-registry'):
            if not shutil.which(program):
                raise Skipped(f'no {program} here: make registry installs it')
        self.store, self.port = Path(directory) / 'store', free_port()
        config = Path(directory) / 'registry.yml'
        config.write_text(f'version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.store}}}}}\n'
                          f'http: {{addr: "127.0.0.1:{self.port}"}}\n')
        self.log = open(Path(directory) / 'registry.log', 'wb')
        self.proc = subprocess.Popen(['docker-registry', 'serve', config], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not wait_until(self.answers, 20):
            raise Failed('the registry does not answer')

    def answers(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(f'http://127.0.0.1:{self.port}/v2/', timeout=2) as got:
            return got.status == 200
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.kill()
        self.proc.wait()
        self.log.close()

    def name(self, what):
        return f'docker://127.0.0.1:{self.port}/{what}'

    def bytes(self):
        return sum(p.stat().st_size for p in self.store.rglob('data') if p.is_file())


def scene_with(scene):
    parts = Parts(scene(ROOM, 1))
    tmp = parts.chain.dir / 'tmp'
    tmp.mkdir()
    return parts, tmp, ['--tmp', str(tmp)]


def fetched(parts, tmp, registry, what):
    """By skopeo alone, unpacked, restored by stock CRIU."""
    layout = Layout(parts.chain.dir / f'fetched-{what.replace(":", "-").replace("/", "-")}')
    subprocess.run(['skopeo', 'copy', '--quiet', '--src-tls-verify=false', registry.name(what), f'oci:{layout.path}:x'], check=True)
    parts.restore(layout.unpack('x', layout.path.with_suffix('.unpacked')), cfg=plain_criu(parts.chain.cfg))


@case
def chain(scene):
    """a chain, oldest first: each push sends what is new; pulled, it is a chain again and restores; so does what skopeo fetches."""
    parts, tmp, room = scene_with(scene)
    with Registry(parts.chain.dir) as registry:
        sizes = []
        for n in reversed(range(LEVELS)):
            before = registry.bytes()
            parts.ctl(0, 'push', parts.ids[n], registry.name(f'lab/web:v{LEVELS - n}'), *room, *PLAIN_PUSH)
            sizes.append(registry.bytes() - before)
        live = [sum(i.stat().st_size for i in d.glob('*.img')) for d in reversed(parts.dirs)]
        print(f'     bytes of each: {live}, sent: {sizes}', flush=True)
        for have, sent in zip(live, sizes):
            if sent > 1.02 * have + (64 << 10):     # tar's blocks and the manifest
                raise Failed(f'{sent} bytes for {have}')
        fetched(parts, tmp, registry, f'lab/web:v{LEVELS}')
        handle = parts.chain.dir / 'pulled'
        parts.ctl(0, 'pull', registry.name(f'lab/web:v{LEVELS}'), '--container', 'pulled', '--qos', '100', '--handle', str(handle), *room, *PLAIN_PULL)
        newest = parts.left()
        again, = [c['id'] for c in parts.device.checkpoints() if c['container'] == 'pulled' and not c['pre_dump']]
        expect('levels', depth(parts.device, again), LEVELS)
        expect('checkpoints', len(newest), 2 * LEVELS)
        parts.device.remove(*parts.ids)
        parts.restore(handle)
        expect('nothing is left on the way', os.listdir(tmp), [])


@case
def refused(scene):
    """nobody listens, no such image, no image of a checkpoint, no such checkpoint: one line of ours, nothing left."""
    parts, tmp, room = scene_with(scene)
    before = parts.left()
    with Registry(parts.chain.dir) as registry:
        nobody = f'docker://127.0.0.1:{free_port()}/x:y'
        for args in (['push', parts.ids[0], nobody, *room, *PLAIN_PUSH], ['pull', nobody, *room, *PLAIN_PULL],
                     ['pull', registry.name('no/such:image'), *room, *PLAIN_PULL]):
            if 'skopeo failed' not in parts.ctl(1, *args):
                raise Failed(f'{args[0]} says nothing of skopeo')
        parts.ctl(1, 'push', '01234567-0123', registry.name('a:b'), *room, *PLAIN_PUSH)
        parts.ctl(2, 'push', parts.ids[0], 'nowhere', *room)
        parts.ctl(2, 'pull', registry.name('a:b'), 'word', *room)
        layout = Layout(parts.chain.dir / 'program')
        layout.path.mkdir()
        layout.blobs.mkdir(parents=True)
        config = layout.put(b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}', 'application/vnd.oci.image.config.v1+json')
        layout.tell([layout.put(b'\0' * 10240)], mediaType='application/vnd.oci.image.manifest.v1+json', config=config)
        subprocess.run(['skopeo', 'copy', '--quiet', '--preserve-digests', '--dest-tls-verify=false', f'oci:{layout.path}:latest', registry.name('a:program')], check=True)
        if 'no image of a checkpoint' not in parts.ctl(1, 'pull', registry.name('a:program'), *room, *PLAIN_PULL):
            raise Failed('an image of a program is taken')
    expect('checkpoints', parts.left(), before)
    expect('nothing is left on the way', os.listdir(tmp), [])


@case
def broken_off(scene):
    """a signal, or the registry's death, in the middle: nothing is left on the way, and the next push is whole."""
    parts, tmp, room = scene_with(scene)
    with Registry(parts.chain.dir) as registry:
        for ms in (20, 60, 120, 240):
            run = subprocess.Popen([parts.chain.cfg.znsctl, 'push', parts.ids[0], registry.name('web:x'), *room, *PLAIN_PUSH], env=parts.device.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(ms / 1000)
            run.send_signal(signal.SIGTERM)
            print(f'     exit {run.wait(60)} after {ms} ms', flush=True)
            expect('nothing is left on the way', os.listdir(tmp), [])
        parts.ctl(0, 'push', parts.ids[0], registry.name('web:x'), *room, *PLAIN_PUSH)
        fetched(parts, tmp, registry, 'web:x')
        registry.proc.kill()
        parts.ctl(1, 'push', parts.ids[0], registry.name('web:y'), *room, *PLAIN_PUSH)
    expect('nothing is left on the way', os.listdir(tmp), [])


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'registry', CASES))
