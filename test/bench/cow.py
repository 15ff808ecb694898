#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
Restore of a tree of forked processes (copy-on-write memory, which CRIU reads page by page) from zones beside the same
from a plain directory, in the page cache and (cold) on the disk: alternating runs, medians, ratios. The timing model is
off; what is on zones is never in the page cache.

  cow.py [-n ROUNDS] [--size MIB] [--children N] [--bin DIR] [--dir DIR]
"""
import argparse
import mmap
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path


def subject(size, children, ready):
    """A process with memory of its own, then children that each change one page in sixteen."""
    mem = mmap.mmap(-1, size << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(size):
        mem[i << 20:(i + 1) << 20] = os.urandom(1 << 20)
    for n in range(children):
        if os.fork() == 0:
            for page in range(n, size * 256, 16):
                mem[page * 4096] = n
            Path(f'{ready}.{n}').touch()
            while True:
                time.sleep(60)
    Path(ready).touch()
    while True:
        time.sleep(60)


def run(args, **kw):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=300, **kw)
    if done.returncode:
        sys.exit(f'{" ".join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}')


def kill_tree(pid):
    kids = []
    for task in Path(f'/proc/{pid}/task').glob('*/children'):
        kids += [int(k) for k in task.read_text().split()]
    for k in [pid] + kids:
        os.kill(k, signal.SIGKILL)
    while any(Path(f'/proc/{k}').exists() for k in [pid] + kids):
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        time.sleep(0.01)


def forget(directory):
    """Drops its files from the page cache."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    p.add_argument('-n', type=int, default=9)
    p.add_argument('--size', type=int, default=96, metavar='MIB')
    p.add_argument('--children', type=int, default=3)
    p.add_argument('--bin', default='build/bin')
    p.add_argument('--dir', default='build/bench-cow')
    p.add_argument('--subject', nargs=3, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.subject:
        subject(int(a.subject[0]), int(a.subject[1]), a.subject[2])
    home, top = Path(a.bin).resolve(), Path(a.dir).resolve()
    shutil.rmtree(top, ignore_errors=True)
    for d in ('plain', 'zones'):
        (top / d).mkdir(parents=True)
    os.environ.update(ZNS_CONFIG=str(top / 'etc'), ZNS_RUN=str(top / 'run'), ZNSD_IDLE_S='1')
    # The restored tree becomes our child, since it is restored in the background: reap it.
    import ctypes
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    run([home / 'znsctl', 'create', f'emu:{top}/dev', '--zones', 96, '--sparse', '--default'])
    ready = top / 'ready'
    proc = subprocess.Popen([sys.executable, __file__, '--subject', str(a.size), str(a.children), str(ready)],
                            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, cwd='/')
    while not all(Path(f'{ready}{s}').exists() for s in [''] + [f'.{n}' for n in range(a.children)]):
        time.sleep(0.05)
    run([home / 'criu', 'dump', '-t', proc.pid, '-D', top / 'plain', '--leave-running'])
    run([home / 'criu', 'dump', '-t', proc.pid, '-D', top / 'zones', '--leave-running', '--zns-live=no', '--zns-qos', 500])
    kill_tree(proc.pid)
    os.sync()
    took = {'plain': [], 'cold': [], 'zones': []}
    for n in range(a.n + 1):
        for kind in (list(took) if n % 2 else list(took)[::-1]):
            images = top / ('zones' if kind == 'zones' else 'plain')
            if kind == 'cold':
                forget(images)
            start = time.monotonic()
            run([home / 'criu', 'restore', '-d', '-D', images, '--pidfile', top / 'pid'])
            if n:       # the first round is not counted
                took[kind].append(time.monotonic() - start)
            kill_tree(int((top / 'pid').read_text()))
            (top / 'pid').unlink()
    mib = a.size * (a.children + 1)
    for kind, t in took.items():
        print(f'{kind}: {statistics.median(t):.3f} s median of {a.n} ({min(t):.3f} to {max(t):.3f}), {mib} MiB of pages')
    for kind in ('plain', 'cold'):
        print(f'zones / {kind}: {statistics.median(took["zones"]) / statistics.median(took[kind]):.2f}')
    shutil.rmtree(top)


main()
