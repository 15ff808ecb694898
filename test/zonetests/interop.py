#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
interop: checkpoints leave the device for stock CRIU, and come from it.

Every case dumps a real program into zones with a criu that writes its images a second time (make criu-tee:
test/tee/zns-tee.h), exports the checkpoint, compares both byte for byte, reads every image with stock's crit, and
restores the export with stock CRIU of the same version, built from the same tarball. The program then checks its own
memory.

  interop.py list | run NAME... | run -a
"""
import copy
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import ztlib
from ztlib import Failed, REPO, Task
from ztredis import RedisTask
from ztscene import case_of, suite_main

TEE = REPO / 'build' / 'tee' / 'criu' / 'criu' / 'criu'
STOCK = REPO / 'build' / 'zdtm' / 'stock'
STOCK_CRIU = STOCK / 'criu' / 'criu'
ROOMY = ['--channels', '4', '--ways', '2', '--zones', '64', '--zone-size', '16M', '--timing', 'off']

CASES = {}


def start(scene, program, flavour):
    """
    A task that stays on one processor. The kernel writes the processor's number into a task's memory (rseq) whenever
    the task runs, and criu's parasite runs in the task between the two reads that are compared.
    """
    directory = scene.dir / f'{program}-{flavour}'
    directory.mkdir()
    if program == 'redis':
        task = RedisTask(directory, flavour)
    else:
        desc = ztlib.description(ztlib.HERE / f'{program}.c')
        task = Task(directory, program, flavour, (), desc.get('opts', '').split())
    scene.tasks.append(task)
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(ours)})        # processes that we start inherit it
    try:
        task.start()
    finally:
        os.sched_setaffinity(0, ours)
    return task.wait_ready()


def with_criu(cfg, binary, stock):
    other = copy.copy(cfg)
    other.criu, other.stock = str(binary), stock
    return other


def same_files(have, want):
    """Both directories hold the same names and bytes."""
    names = [sorted(os.listdir(d)) for d in (have, want)]
    if names[0] != names[1]:
        raise Failed(f'names differ: {sorted(set(names[0]) ^ set(names[1]))}')
    for name in names[0]:
        if not filecmp.cmp(have / name, want / name, shallow=False):
            raise Failed(f'{name} differs: {(have / name).stat().st_size} and {(want / name).stat().st_size} bytes')
    return len(names[0]), sum((have / n).stat().st_size for n in names[0])


def crit_reads(images):
    """Every image that crit knows is decoded; images without a format in crit are raw data."""
    script = ('import sys, pycriu.images as i\n'
              'for p in sys.argv[1:]:\n'
              '    try: i.load(open(p, "rb"), False)\n'
              '    except i.MagicException as e: sys.exit(f"{p}: no image, magic {e.magic:x}")\n')
    raw = ('pages-', 'tmpfs-', 'iptables-', 'ip6tables-', 'nftables-', 'ifaddr-', 'route-', 'route6-', 'rule-')
    paths = [str(images / n) for n in sorted(os.listdir(images)) if not n.startswith(raw)]
    done = subprocess.run(['python3', '-c', script, *paths], env=dict(os.environ, PYTHONPATH=str(STOCK / 'lib')),
                          capture_output=True, text=True)
    if done.returncode:
        raise Failed(f'crit: {done.stderr.strip()[-300:]}')
    return len(paths)


def export(scene, ident, target):
    done = scene.device.ctl('export', ident, str(target))
    if done.returncode:
        raise Failed(f'export: {done.stderr.strip()}')


def leave(scene, program, flavour):
    """Dump, export, compare, restore with stock."""
    scene = scene(ROOMY, size=1)
    task = start(scene, program, flavour)
    tee, exported, log = scene.dir / 'tee', scene.dir / 'exported', scene.dir / 'dump.log'
    tee.mkdir()
    scene.device.env.update(ZNS_TEE=str(tee), ZNS_LIBEXEC=str(REPO / 'build' / 'bin'))
    before = ztlib.footprint(task.pid)
    ztlib.dump(with_criu(scene.cfg, TEE, False), task, scene.dir / 'handle', log, 'interop')
    del scene.device.env['ZNS_TEE']
    ident = scene.device.checkpoint_of('interop')
    export(scene, ident, exported)
    files, size = same_files(exported, tee)
    decoded = crit_reads(exported)
    archive = scene.dir / 'exported.tar'
    export(scene, ident, archive)
    from_tar = scene.dir / 'from-tar'
    with tarfile.open(archive) as tar:
        tar.extractall(from_tar)
    same_files(from_tar, exported)
    ztlib.restore(with_criu(scene.cfg, STOCK_CRIU, True), task, exported, scene.dir / 'restore.log')
    ztlib.check_footprint(before, ztlib.footprint(task.pid))
    task.verify()
    print(f'     {program}/{flavour}: {files} images, {size} bytes identical, {decoded} decoded by crit', flush=True)


LEAVE = [('redis', 'h'), ('redis', 'ns'), ('tmpfs', 'ns'), ('ghost', 'h'), ('cowtree', 'ns'), ('shmanon', 'ns'),
         ('sysvipc', 'ns'), ('shmclash', 'ns'), ('netlo', 'ns'), ('memfd', 'h'), ('threads', 'h'), ('pipes', 'ns')]
for _program, _flavour in LEAVE:
    CASES[f'export-{_program}-{_flavour}'] = lambda scene, p=_program, f=_flavour: leave(scene, p, f)
    CASES[f'export-{_program}-{_flavour}'].__doc__ = leave.__doc__


def come(scene, program, flavour):
    """Stock CRIU dumps into a directory, which is imported; our criu restores."""
    scene = scene(ROOMY, size=1)
    task = start(scene, program, flavour)
    plain, handle = scene.dir / 'plain', scene.dir / 'handle'
    before = ztlib.footprint(task.pid)
    ztlib.dump(with_criu(scene.cfg, STOCK_CRIU, True), task, plain, scene.dir / 'dump.log', 'interop')
    done = scene.device.ctl('import', str(plain), '--handle', str(handle), '--qos', '300')
    if done.returncode:
        raise Failed(f'import: {done.stderr.strip()}')
    shutil.rmtree(plain)
    ztlib.restore(scene.cfg, task, handle, scene.dir / 'restore.log')
    ztlib.check_footprint(before, ztlib.footprint(task.pid))
    task.verify()


def differing(one, other):
    """Names of images that are not the same in two directories."""
    names = [{p.name for p in d.iterdir() if p.suffix == '.img'} for d in (one, other)]
    if names[0] != names[1]:
        raise Failed(f'names differ: {sorted(names[0] ^ names[1])}')
    return {n for n in names[0] if not filecmp.cmp(one / n, other / n, shallow=False)}


def same_as_stock(scene, program):
    """A stopped process is dumped by stock, through zones, and by stock again: our images differ from stock's only where stock's two differ."""
    scene = scene(ROOMY, size=1)
    task = start(scene, program, 'h')
    os.kill(task.pid, signal.SIGSTOP)
    ztlib.wait_until(lambda: ztlib.proc_state(task.pid) == 'T', 5)
    out = {}
    stock = with_criu(scene.cfg, STOCK_CRIU, True)
    for name, cfg in (('before', stock), ('zones', scene.cfg), ('after', stock)):
        images, log = scene.dir / name, scene.dir / f'{name}.log'
        images.mkdir()
        done = ztlib.run_criu(cfg, ztlib.dump_args(cfg, task, images, log, 'interop', ['--leave-running']), log)
        if done.returncode:
            raise Failed(f'dump with {name}: {ztlib.log_errors(log)}')
        out[name] = images
    exported = scene.dir / 'exported'
    export(scene, scene.device.checkpoint_of('interop'), exported)
    os.kill(task.pid, signal.SIGCONT)
    # these have times and ids of the dump itself
    passing = differing(out['before'], out['after'])
    if not passing <= {n for n in passing if re.match(r'inventory|timens|core-', n)}:
        raise Failed(f'stock differs from itself: {sorted(passing)}')
    ours = differing(exported, out['before'])
    if not ours <= passing:
        raise Failed(f'differ from stock: {sorted(ours - passing)}')
    task.verify()
    print(f'     {program}: all but {" ".join(sorted(passing))} are as stock writes them', flush=True)


@case_of(CASES)
def control_shmclash_ns(scene):
    """The control of export-shmclash-ns: in stock's dump, shared memory objects with the same number overwrite each other."""
    scene = scene(ROOMY, size=1)
    task, stock = start(scene, 'shmclash', 'ns'), with_criu(scene.cfg, STOCK_CRIU, True)
    ztlib.dump(stock, task, scene.dir / 'plain', scene.dir / 'dump.log', 'interop')
    try:
        ztlib.restore(stock, task, scene.dir / 'plain', scene.dir / 'restore.log')
        task.verify()
    except Failed as e:
        print(f'     {e}', flush=True)
    else:
        raise Failed('stock keeps such objects apart')


IMPORT = [('redis', 'h'), ('redis', 'ns'), ('tmpfs', 'ns'), ('cowtree', 'h')]
for _program, _flavour in IMPORT:
    CASES[f'import-{_program}-{_flavour}'] = lambda scene, p=_program, f=_flavour: come(scene, p, f)
    CASES[f'import-{_program}-{_flavour}'].__doc__ = come.__doc__
for _program in ('anon', 'bigmem'):
    CASES[f'stock-{_program}'] = lambda scene, p=_program: same_as_stock(scene, p)
    CASES[f'stock-{_program}'].__doc__ = same_as_stock.__doc__


def prepared():
    for path, make in ((TEE, 'make criu-tee'), (STOCK_CRIU, 'scripts/zdtm-sample --stock-only'),
                       (STOCK / 'lib' / 'pycriu' / 'images' / 'core_pb2.py', 'make interop')):
        if not Path(path).exists():
            sys.exit(f'{path} is missing: {make}')


if __name__ == '__main__':
    if 'list' not in sys.argv:
        prepared()
    sys.exit(suite_main(__doc__, 'interop', CASES))
