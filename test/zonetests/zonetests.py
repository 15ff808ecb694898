#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
zonetests: real programs that are dumped into zones, restored, and then check their own memory.

  zonetests.py list                    what there is
  zonetests.py run anon pipes -f h     some of it
  zonetests.py run -a -j2 --report DIR all of it
  zonetests.py run -a --format DEV     on a real zoned device, which is formatted for it
  zonetests.py selftest                every program must notice one spoiled byte

A C file here is a test if its head has a line  zonetest: {'flavour': 'h ns', 'opts': '--ghost-limit 16M',
'feature': 'hugetlb'}.  flavour: h, a plain process; ns, init of new pid, mount, network, ipc and uts
namespaces on a root of its own. opts: for criu dump and restore. feature: what the machine must have. forks: True,
children come and go.
"""
import argparse
import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ztareas
import ztlib
from ztlib import Failed, Skipped, Task
from ztredis import RedisTask


class Test:
    """One name in the list: a C program with its description, or Redis."""

    def __init__(self, name, desc):
        self.name = name
        self.flavours = desc.get('flavour', 'h ns').split()
        self.opts = desc.get('opts', '').split()
        self.feature = desc.get('feature')

    def task(self, directory, flavour, args=()):
        if self.name == 'redis':
            return RedisTask(directory, flavour, args)
        return Task(directory, self.name, flavour, args, self.opts)


def all_tests():
    tests = [Test('redis', RedisTask.desc)]
    for source in sorted(ztlib.HERE.glob('*.c')):
        desc = ztlib.description(source)
        if desc is not None:
            tests.append(Test(source.stem, desc))
    return {t.name: t for t in tests}


# ---- features ------------------------------------------------------------------------------------------

def redis_feature():
    missing = [p for p in ('redis-server', 'redis-cli') if not shutil.which(p)]
    return f'{missing[0]} is not installed' if missing else ''


def missing_feature(test):
    """
    Why a test cannot run, or ''. Asked before each test: the pool of huge pages belongs to the machine, and another
    run may have changed it back.
    """
    probes = {'hugetlb': ztlib.huge_pages, 'redis': redis_feature}
    return probes[test.feature]() if test.feature else ''


# ---- one test ----------------------------------------------------------------------------------------

def cycle(cfg, task, directory, container, n):
    """One dump and restore of a program."""
    images = directory / f'images-{n}'
    before = ztlib.footprint(task.pid)
    ztlib.dump(cfg, task, images, directory / f'dump-{n}.log', container)
    extra = []
    if cfg.by_id and not cfg.stock:
        images = directory / f'empty-{n}'
        images.mkdir()
        extra = ['--zns-checkpoint', cfg.device.checkpoint_of(container)]
        if not cfg.device.private:
            extra += ['--zns-dev', cfg.device.spec]
    ztlib.restore(cfg, task, images, directory / f'restore-{n}.log', extra)
    ztlib.check_footprint(before, ztlib.footprint(task.pid), task.forks)


def of_way(cfg, way):
    """The configuration for one of --ways. How a task was dumped and how its checkpoint is named are independent."""
    cfg = copy.copy(cfg)
    if way == 'live-by-id':
        cfg.live, cfg.by_id = 'must', True
    return cfg


def clean_up(cfg, task, directory, container, ok):
    task.end()
    if cfg.device:
        cfg.device.forget(container)
    if ok and not cfg.keep:
        shutil.rmtree(directory, ignore_errors=True)


def run_test(cfg, test, flavour):
    if missing := missing_feature(test):
        raise Skipped(missing)
    directory = cfg.base / f'{test.name}-{flavour}'
    directory.mkdir()
    container = f'zonetest-{test.name}-{flavour}-{os.getpid()}'
    task, ok = test.task(directory, flavour), False
    task.wait = max(task.wait, cfg.timeout)
    try:
        task.start().wait_ready()
        for n, way in enumerate(cfg.ways * cfg.iterations):
            cycle(of_way(cfg, way), task, directory, container, n)
            if cfg.device:
                cfg.device.forget(container)
        task.verify()
        ok = True
    finally:
        clean_up(cfg, task, directory, container, ok)


def run_selftest(cfg, test, flavour):
    """Without a dump: one byte of memory is changed, and the program must say FAIL."""
    if missing := missing_feature(test):
        raise Skipped(missing)
    directory = cfg.base / f'{test.name}-{flavour}'
    directory.mkdir()
    task = test.task(directory, flavour, ['--selftest'])
    try:
        task.start().wait_ready()
        task.verify()
    except Failed as e:
        if not str(e).startswith('FAIL: '):
            raise
        print(f'     {test.name}/{flavour} noticed: {str(e)[6:]}', flush=True)
        return
    finally:
        task.end()
    raise Failed('one byte was spoiled and the program did not notice')


FOREIGN = """
import mmap, os, sys
def step():
    print('', flush=True)
    sys.stdin.readline()
here = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)
step()
fd = os.memfd_create('zns-image')
os.truncate(fd, 4096)
step()
left = mmap.mmap(fd, 4096)
os.close(fd)
step()
"""


def run_footprint(cfg):
    """The test must notice a descriptor or a mapping too many, whatever the names of files that were mapped before."""
    directory = cfg.base / 'footprint-zns-criu'
    directory.mkdir()
    mapped = directory / 'libzns.so'
    mapped.write_bytes(bytes(4096))
    child = subprocess.Popen([sys.executable, '-c', FOREIGN, mapped], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    prints = []
    for _ in range(3):
        child.stdout.readline()
        prints.append(ztlib.footprint(child.pid))
        child.stdin.write(b'\n')
        child.stdin.flush()
    child.wait()
    before, with_fd, with_map = prints
    ztlib.check_footprint(before, before)
    for what, after in ('descriptor', with_fd), ('mapping', with_map):
        try:
            ztlib.check_footprint(before, after)
        except Failed as e:
            print(f'     footprint noticed: {e}', flush=True)
        else:
            raise Failed(f'a {what} too many was not noticed')


def run_areas(_):
    """The test must notice an area that came back in pieces, and one that is missing. Two areas that touched may come
    back as one, as criu maps them."""
    def areas(*borders):
        return {1: [(a, b, 'rw-p', '', 'rd wr', 0) for a, b in zip(borders, borders[1:])]}

    whole, pieces = areas(0x1000, 0x4000), areas(0x1000, 0x2000, 0x4000)
    for what, after in ('area in two pieces', pieces), ('missing area', {1: []}), ('longer area', areas(0x1000, 0x5000)):
        if not ztareas.differences(whole, after):
            raise Failed(f'no difference: {what}')
    if said := ztareas.differences(pieces, whole) or ztareas.differences(pieces, pieces):
        raise Failed(f'a difference: {said}')


def run_pids(_):
    """A dead process must have freed its PID: a restore would say "Can't fork for PID: File exists"."""
    taken = 0
    for _ in range(200):
        child = subprocess.Popen(['sleep', '1000'])
        child.returncode = 0        # alive() reaps the child, not this object
        ztlib.kill(child.pid)
        if not ztlib.wait_until(lambda: not ztlib.alive(child.pid), 60):
            raise Failed('a killed process does not end')
        taken += ztlib.proc_state(child.pid) != ''
    if taken:
        raise Failed(f'{taken} of 200 processes that are said to be dead still have their PID')


# ---- command line --------------------------------------------------------------------------------------

def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest='command', required=True)
    sub.add_parser('list', help='names and flavours')
    for name in ('run', 'selftest'):
        p = sub.add_parser(name)
        p.add_argument('names', nargs='*', metavar='NAME')
        p.add_argument('-a', '--all', action='store_true', help='all tests')
        p.add_argument('-f', '--flavour', choices=['h', 'ns'], action='append', help='only this flavour')
        ztlib.common_options(p)
        if name == 'run':
            p.add_argument('--stock', action='store_true', help='plain image directories, no zones: the control')
            p.add_argument('--device', metavar='DEV', help='an existing device (default: a temporary emulated one)')
            p.add_argument('--qos', default='500', metavar='MIBPS', help='--zns-qos for every dump (default 500)')
            p.add_argument('--iterations', type=int, default=1, metavar='N', help='dump and restore N times in a row')
            p.add_argument('--live', nargs='?', const='yes', choices=['yes', 'must'],
                           help='dump with --zns-live, verified in the freeze; must: a kernel that cannot track is a failure')
            p.add_argument('--by-id', action='store_true', help='restore from an empty directory by checkpoint id')
            p.add_argument('--ways', nargs='+', choices=['plain', 'live-by-id'], default=['plain'],
                           help='one dump and restore after the other of the same task, in each of these ways')
    args = parser.parse_args()
    if args.command == 'selftest':
        args.criu, args.stock = '/bin/true', True
    return args


def chosen(args, tests):
    unknown = [n for n in args.names if n not in tests]
    if unknown:
        sys.exit(f'no such test: {unknown[0]}')
    if not args.names and not args.all and args.command == 'run':
        sys.exit('name some tests, or -a for all of them')
    return [tests[n] for n in args.names] or list(tests.values())


def make_jobs(args, cfg, tests):
    func = run_test if args.command == 'run' else run_selftest
    jobs = []
    for test in tests:
        for flavour in [f for f in test.flavours if f in (args.flavour or test.flavours)]:
            jobs.append((test.name, flavour, lambda t=test, f=flavour: func(cfg, t, f)))
    if args.command == 'selftest' and not args.names:
        jobs += [(f.__name__[4:], 'h', lambda f=f: f(cfg)) for f in (run_footprint, run_areas, run_pids)]
    return jobs


def run(args, tests):
    hugepages_before = ztlib.HUGEPAGES.read_text()
    ztlib.private_mounts()
    ztlib.build_programs()
    cfg = ztlib.Config(args)
    try:
        if args.command == 'run':
            cfg.open_device()
        jobs = make_jobs(args, cfg, tests)
        results = ztlib.run_jobs(jobs, args.jobs, cfg.base)
        ztlib.save_failed(args.report, cfg, results)
    finally:
        cfg.close()
        if ztlib.HUGEPAGES.read_text() != hugepages_before:
            ztlib.HUGEPAGES.write_text(hugepages_before)
    if args.report:
        ztlib.write_reports(args.report, args.command, results)
    return ztlib.finish(results)


def main():
    args = parse_args()
    tests = all_tests()
    if args.command == 'list':
        for t in tests.values():
            print(f'{t.name:12} {" ".join(t.flavours)}')
        return 0
    if os.geteuid():
        sys.exit('zonetests must run as root')
    return run(args, chosen(args, tests))


if __name__ == '__main__':
    sys.exit(main())
