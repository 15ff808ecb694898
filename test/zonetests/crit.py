#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
crit: CRIU's image tool on checkpoints that are on zones.

Stock crit, from the pinned tarball, on the directory of a handle (plain copies of small images), on `znsctl mount` (all
images, read-only) and on `znsctl export --metadata-only`. `make rpc-clients` builds it.

  crit.py list | run NAME... | run -a
"""
import filecmp
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from ztlib import Failed, HANDLE, REPO, Skipped, alive, wait_until
from ztscene import case_of, expect, suite_main

STOCK = REPO / 'build' / 'stock-lib'
CASES = {}
case = case_of(CASES)


def crit(scene, *args, code=0):
    done = subprocess.run(['/usr/bin/python3', '-m', 'crit', *map(str, args)], capture_output=True, text=True,
                          timeout=scene.cfg.timeout, cwd=scene.dir,
                          env=dict(os.environ, PYTHONPATH=f'{STOCK / "lib"}:{STOCK / "crit"}'))
    if done.returncode != code:
        raise Failed(f'crit {" ".join(map(str, args))}: exit {done.returncode}: {done.stderr.strip()[-300:]}')
    return done.stdout


def entries(scene, path):
    return json.loads(crit(scene, 'decode', '-i', path))['entries']


class Mounted:
    """znsctl mount of a checkpoint."""

    def __init__(self, scene, what):
        if not os.path.exists('/dev/fuse'):
            raise Skipped('there is no /dev/fuse')
        self.scene, self.at = scene, scene.dir / 'view'
        self.at.mkdir(exist_ok=True)
        done = scene.device.ctl('mount', str(what), str(self.at))
        if done.returncode:
            raise Failed(f'mount: {done.stderr.strip()}')

    def __enter__(self):
        return self.at

    def __exit__(self, *_):
        ztlib.unmount(self.at)
        if not wait_until(lambda: not self.server(), 5):
            raise Failed('the server of the mount is left')

    def server(self):
        """PIDs of znsctl mount on our directory."""
        found = []
        for path in (p / 'cmdline' for p in Path('/proc').glob('[0-9]*')):
            try:
                words = path.read_bytes().split(b'\0')
            except OSError:
                continue
            if b'znsctl mount' in b' '.join(words) and str(self.at).encode() in words and alive(int(path.parent.name)):
                found.append(int(path.parent.name))
        return found


def looks_at(scene, images, pid):
    """Runs the commands that a user would run on a dump."""
    expect('pstree', [e['pid'] for e in entries(scene, images / 'pstree.img')], [pid])
    expect('core', entries(scene, images / f'core-{pid}.img')[0]['tc']['comm'], 'bigmem')
    if str(pid) not in crit(scene, 'x', images, 'ps'):
        raise Failed('crit x ps does not show the process')
    if 'bigmem' not in crit(scene, 'x', images, 'mems'):
        raise Failed('crit x mems does not show the program')
    if 'stdio' not in crit(scene, 'x', images, 'fds'):
        raise Failed('crit x fds does not show its files')
    if str(pid) not in crit(scene, 'x', images, 'rss'):
        raise Failed('crit x rss does not show the process')
    expect('info', json.loads(crit(scene, 'info', images / 'inventory.img'))['magic'], 'INVENTORY')
    if '"entries"' not in crit(scene, 'show', images / f'mm-{pid}.img').replace(' ', '').replace("'", '"'):
        raise Failed('crit show has no entries')
    return sum(e.get('nr_pages', 0) for e in entries(scene, images / f'pagemap-{pid}.img')[1:])


@case
def handle_directory(scene):
    """crit show, decode, info and x on the directory of a handle, as it is."""
    scene = scene()
    pid = scene.task.pid
    scene.good_dump()
    looks_at(scene, scene.images, pid)


@case
def mounted(scene):
    """On znsctl mount, by directory and by id: every file as export writes it, crit reads all; nothing can be written."""
    scene = scene()
    pid = scene.task.pid
    made = scene.good_dump()
    exported = scene.dir / 'exported'
    expect('export', scene.device.ctl('export', made, str(exported)).returncode, 0)
    for what in (scene.images, made):
        with Mounted(scene, what) as view:
            expect('names', sorted(os.listdir(view)), sorted(os.listdir(exported)))
            for name in os.listdir(exported):
                if not filecmp.cmp(view / name, exported / name, shallow=False):
                    raise Failed(f'{name} differs')
            pages = looks_at(scene, view, pid)
            expect('pages', (view / 'pages-1.img').stat().st_size, 4096 * pages)
            for wrong in (lambda: (view / 'pstree.img').write_text('x'), lambda: (view / 'new').touch(),
                          lambda: (view / 'pstree.img').unlink()):
                try:
                    wrong()
                except OSError:
                    continue
                raise Failed('the view can be written to')
    if scene.device.status()['leases']:
        raise Failed('a lease is left')


@case
def restored_from_view(scene):
    """The mounted view is an ordinary image directory: criu restores from it without a helper."""
    scene = scene()
    with Mounted(scene, scene.good_dump()) as view:
        scene.good_restore(images=view)
        expect('helpers', scene.helpers(), [])


@case
def mount_errors(scene):
    """Errors in one line: no such checkpoint, no directory. A damaged unit is an I/O error; a killed server leaves no mount."""
    scene = scene()
    scene.device.needs_emulator('writes into the emulator\'s file')
    made = scene.good_dump()
    view = scene.dir / 'view'
    view.mkdir()
    for args, pattern in ((['12345678', view], 'no checkpoint'), ([made, scene.dir / 'none'], 'is no directory'),
                          ([scene.dir, view], HANDLE)):
        done = scene.device.ctl('mount', *map(str, args))
        if done.returncode != 1 or pattern not in done.stderr or done.stderr.count('\n') != 1:
            raise Failed(f'mount {args}: exit {done.returncode}: {done.stderr}')
        print(f'     says: {done.stderr.strip()}', flush=True)
    pages = next(i for i in scene.device.json('show', made)['images'] if i['name'] == 'pages-1.img')
    extent = pages['segments'][0]['extents'][0]
    zones = scene.device.info['zones']
    path = scene.device.path
    stride = 16 << 20
    with open(path, 'r+b') as dev:
        at = os.path.getsize(path) - zones * stride + extent['zone'] * stride + extent['start'] + 99
        byte = os.pread(dev.fileno(), 1, at)
        os.pwrite(dev.fileno(), bytes([byte[0] ^ 1]), at)
    mount = Mounted(scene, made)
    with mount:
        try:
            (view / 'pages-1.img').read_bytes()
        except OSError:
            pass
        else:
            raise Failed('a damaged image was read')
        expect('others are read', len((view / 'inventory.img').read_bytes()) > 0, True)
    with Mounted(scene, made) as view:
        for pid in mount.server():
            ztlib.kill(pid, signal.SIGKILL)
        wait_until(lambda: not mount.server(), 5)
    if not wait_until(lambda: not scene.device.status()['leases'], 5, 0.1):
        raise Failed('a lease is left')


@case
def metadata_only(scene):
    """znsctl export --metadata-only: all images but the pages, to a directory and to an archive; crit reads them."""
    scene = scene()
    pid = scene.task.pid
    made = scene.good_dump()
    target = scene.dir / 'metadata'
    done = scene.device.json('export', '--metadata-only', made, str(target))
    names = {i['name'] for i in scene.device.json('show', made)['images']}
    expect('names', set(os.listdir(target)), {n for n in names if not n.startswith('pages-')})
    expect('bytes', done['bytes'], sum(p.stat().st_size for p in target.iterdir()))
    looks_at(scene, target, pid)
    archive = scene.dir / 'metadata.tar'
    expect('exit', scene.device.ctl('export', '--metadata-only', made, str(archive)).returncode, 0)
    listed = subprocess.run(['tar', 'tf', archive], capture_output=True, text=True).stdout.split()
    expect('archive', set(listed), set(os.listdir(target)))


if __name__ == '__main__':
    if 'list' not in sys.argv and not (STOCK / 'lib' / 'pycriu' / 'images' / 'core_pb2.py').exists():
        sys.exit(f'{STOCK} is missing: make rpc-clients')
    sys.exit(suite_main(__doc__, 'crit', CASES))
