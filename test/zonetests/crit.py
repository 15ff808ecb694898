#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
crit: CRIU's image tool on checkpoints that are on zones.

Stock crit, from the pinned tarball, on the directory of a handle (plain copies of small images) and on `znsctl export
--metadata-only`. `make rpc-clients` builds it.

  crit.py list | run NAME... | run -a
"""
import json
import os
import subprocess
import sys

from ztlib import Failed, REPO
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
