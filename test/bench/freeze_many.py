#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
freeze_many: how long tasks are frozen by a dump of many objects of one kind, beside stock CRIU.

The subject (many.c) makes them and waits. Systems take turns on the same subject, as in freeze.py: stock CRIU into a
directory, ours into zones, ours live. The time is criu's own, from its first look at the tasks to the thaw. A kind that
cannot be made here, or that a system does not dump, is left out with one line. It never judges times.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare
import freeze
import ztproto
from compare import BUILD, REPO, Failed, syncfs

HERE = Path(__file__).resolve().parent
PRIORITY = 5
READY_S = 120
LOCKS = ['--file-locks']
# kind of object, how many, options of criu
KINDS = [('processes', 20, []), ('processes', 100, []), ('processes', 400, []), ('threads', 500, []), ('shared-areas', 1000, []),
         ('memfds', 500, []), ('areas', 10000, []), ('deleted', 1000, []), ('epolls', 1000, []), ('files', 1000, []),
         ('eventfds', 1000, []), ('pipes', 1000, []), ('sockets', 1000, []), ('flocks', 1000, LOCKS), ('posix-locks', 1000, LOCKS),
         ('ofd-locks', 1000, LOCKS), ('leases', 1000, LOCKS), ('inotifies', 1000, []), ('mounts', 500, []),
         ('tcp', 300, ['--tcp-established']), ('udp', 1000, []), ('tmpfs-mib', 300, []), ('sysv', 1000, []), ('tuns', 100, []),
         ('cgroups', 100, [])]


def cgroup_root():
    """A folder in cgroup v2 in which we can make groups, or None."""
    for root in ('/sys/fs/cgroup/unified', '/sys/fs/cgroup'):
        if os.path.exists(f'{root}/cgroup.procs') and os.access(f'{root}/cgroup.procs', os.W_OK):
            return Path(tempfile.mkdtemp(prefix='zns-bench-many-', dir=root))
    return None


class Many:
    def __init__(self, bench, kind, number):
        self.dir = bench.dir / 'many'
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir()
        self.cgroup = cgroup_root() if kind == 'cgroups' else None
        said = self.dir / 'said'
        with open(said, 'w') as err:
            self.process = subprocess.Popen([BUILD / 'many', kind, str(number), self.dir], env={'MANY_CGROUP': str(self.cgroup)},
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
        end = time.monotonic() + READY_S
        while not (self.dir / 'ready').exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.end()
                raise Failed(f'cannot be made here: {said.read_text().strip()[-200:]}')
            time.sleep(0.05)

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        compare.end_children()
        for group in [*self.cgroup.glob('many-*'), self.cgroup] if self.cgroup else []:
            for _ in range(100):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def one(bench, subject, system, options):
    """Milliseconds of one dump."""
    for name in ('dump.log', 'stats-dump'):
        (bench.dir / name).unlink(missing_ok=True)
    system.images.mkdir()
    syncfs(bench.dir)
    command = [system.criu, 'dump', '--no-default-config', '--leave-running', '-D', system.images, '-W', bench.dir, '-o', 'dump.log',
               '-v2', '-t', subject.process.pid, *options]
    for name, *value in system.options:
        command += [f'--{name}', *value]
    done = subprocess.run(list(map(str, command)), env=bench.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    log = bench.dir / 'dump.log'
    try:
        if done.returncode:
            lines = [l for l in log.read_text(errors='replace').splitlines() if 'Error' in l] if log.exists() else []
            raise Failed(f'{system.name}: exit {done.returncode}: {" | ".join(lines[-3:])}')
        stats = ztproto.dump_stats(bench.dir / 'stats-dump')
        return (stats[1] + stats[2]) / 1000
    finally:
        system.remove()


def case(bench, kind, number, options, rounds):
    """{system: [ms]}"""
    found = {system.name: [] for system in bench.systems}
    subject = Many(bench, kind, number)
    try:
        for turn in range(rounds):
            at = turn % len(bench.systems)
            for system in bench.systems[at:] + bench.systems[:at]:
                try:
                    found[system.name].append(one(bench, subject, system, options))
                except Failed as e:
                    print(f'{number} {kind}: {e}', flush=True)
    finally:
        subject.end()
    return found


def cell(values):
    return f'{statistics.median(values):.0f} ({min(values):.0f})' if values else '-'


def table(cases, names, rounds):
    yield f'| frozen, ms | {" | ".join(names)} | live, each |'
    yield '| --- |' + ' --- |' * (len(names) + 1)
    for (kind, number), found in cases.items():
        live = found.get('live')
        each = f'{statistics.median(live) / number:.3f}' if live else '-'
        yield f'| {number:,} {kind} | ' + ' | '.join(cell(found[name]) for name in names) + f' | {each} |'
    yield ''
    yield f'Medians of {rounds} dumps, in parentheses the shortest; the systems take turns on the same subject.'


def main():
    parser = argparse.ArgumentParser(description='How long tasks are frozen by a dump of many objects of one kind.')
    parser.add_argument('-n', type=int, default=3, metavar='N', help='rounds (default 3)')
    parser.add_argument('--kinds', metavar='KIND,…', type=lambda s: s.split(','), help='of many.c (default: all)')
    parser.add_argument('--realtime', action='store_true', help='dump at a real-time priority: other work on the machine shows less')
    parser.add_argument('--also', action='append', default=[], metavar='NAME=DIR', help='one more system: programs of another build')
    parser.add_argument('--no-stock', action='store_true', help='without stock CRIU')
    parser.add_argument('--report', metavar='DIR', help='write a table and JSON there')
    parser.add_argument('--dir', metavar='DIR', default=BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--bin', metavar='DIR', default=REPO / 'build' / 'bin', help='our programs (default build/bin)')
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('freeze_many.py: this needs root')
    args.sizes = [1024]
    compare.become_subreaper()
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run(['gcc', '-O2', '-Wall', '-static', '-D_GNU_SOURCE', '-o', BUILD / 'many', HERE / 'many.c', '-lpthread'], check=True)
    directory = Path(tempfile.mkdtemp(prefix='many-', dir=args.dir))
    cases = {}
    try:
        bench = freeze.Bench(args, directory)
        if args.realtime:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
        for kind, number, options in KINDS:
            if args.kinds and kind not in args.kinds:
                continue
            try:
                cases[kind, number] = case(bench, kind, number, options, args.n)
            except Failed as e:
                print(f'{number} {kind}: {e}', flush=True)
                continue
            print(f'{number} {kind}: ' + ', '.join(f'{name} {cell(v)}' for name, v in cases[kind, number].items()), file=sys.stderr,
                  flush=True)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        sys.exit(f'freeze_many.py: {e}')
    finally:
        compare.end_children()
        shutil.rmtree(directory, ignore_errors=True)
    facts = compare.machine_facts(args.dir)
    text = '\n'.join(['# How long many objects are frozen', '', *table(cases, [system.name for system in bench.systems], args.n),
                      f'{facts["cores"]} cores, kernel {facts["kernel"]}, load {facts["load_at_start"]:.1f} at the end.', ''])
    print(text)
    if args.report:
        target = Path(args.report)
        target.mkdir(parents=True, exist_ok=True)
        target.joinpath('many' + '.md').write_text(text)
        target.joinpath('many' + '.json').write_text(json.dumps({'machine': facts, 'rounds': args.n, 'cases': [
            {'kind': kind, 'number': number, 'ms': found} for (kind, number), found in cases.items()]}, indent=1) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
