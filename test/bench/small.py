#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
small: dump and restore of small things, and of many of them, beside stock CRIU: what a dump costs before its first byte.

An empty process, a tree of 100 processes, one process of 20,000 areas. Alternating rounds as in compare.py, with medians
and ratios. Cold: no broker runs, and neither images nor the device are in the page cache. Warm: a broker runs (it stays
for 10 s after each command) and the images are cached; the device never is, we read it past the page cache. /run is a
tmpfs of the benchmark's own: only there does criu keep what it found out about the kernel, and on ordinary hosts it is one.
It never judges times; it fails if a command fails or what was restored is wrong. A dump of ours is durable on return: the row
"synced" adds what stock's needs to be so (syncfs).
"""
import argparse
import ctypes
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
import kept
from compare import BUILD, HERE, REPO, Failed, Stock, Zones, children, run, syncfs, wait_for_end

PROCESSES, AREAS = 100, 20000
# name, processes, areas; the measurements
SUBJECTS = [('an empty process', 0, 0), (f'{PROCESSES} processes', PROCESSES, 0), (f'{AREAS:,} areas', 0, AREAS)]
GOALS = [('dump', 0), ('restore', 0), ('restore', 1), ('restore', 2)]


def evict(path):
    """Out of the page cache, this file alone: others work on this machine."""
    fd = os.open(path, os.O_RDONLY)
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def own_run():
    """A tmpfs at /run, for us and our children."""
    os.closerange(3, 65536)     # of mounts that criu would not find
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000):      # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), 'no mount namespace')
    subprocess.run(['mount', '--make-rprivate', '/'], check=True)
    subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', '/run'], check=True)


class Small(compare.Subject):
    def __init__(self, bench, nr_children, areas):
        self.answers = bench.dir / 'answers'
        self.answers.unlink(missing_ok=True)
        program = str(BUILD / 'small')
        null = [(os.POSIX_SPAWN_OPEN, fd, '/dev/null', os.O_RDWR, 0) for fd in (0, 1, 2)]
        self.pid = os.posix_spawn(program, [program, str(nr_children), str(areas), str(self.answers)], os.environ,
                                  file_actions=null, setsid=True)
        self.digest = self.next_answer('ready')
        self.used = self.settled_cpu()

    def kill(self):
        """With its children: they end with it, as ours."""
        os.killpg(self.pid, signal.SIGKILL)
        self.reap()

    def reap(self):
        wait_for_end(self.pid)
        for pid, program in children().items():
            if program == 'small':
                wait_for_end(pid)


class Bench(compare.Bench):
    """The commands of compare.Bench, without CPU time and memory."""

    def __init__(self, args, directory):
        self.dir, self.mib = directory, 64
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ZNS') and k != 'CRIU_CONFIG_FILE'}
        self.env.update(ZNS_CONFIG=str(directory / 'etc'), ZNS_RUN=str(directory / 'run'))
        ours = Path(args.bin).resolve() / 'criu'
        self.zones = Zones(self, ours)
        self.contestants = [Stock(self, compare.stock_criu(args)), self.zones]

    def launch(self, who, command, warm, leave, pidfile=None):
        """Wall seconds of a command; warm: the broker is there before it, and may stay."""
        if warm and who is self.zones:
            self.zones.ctl('status')
        brokers = [pid for pid, program in children().items() if program == 'znsd']
        return run(self, command, [*leave, *brokers], pidfile).wall

    def cold(self, who):
        for pid, program in children().items():
            if program == 'znsd':
                os.kill(pid, signal.SIGTERM)
                wait_for_end(pid)
        if who is self.zones:
            evict(self.dir / 'device')
        if who.images.exists():
            for entry in os.scandir(who.images):
                evict(entry.path)

    def one(self, who, subject, warm):
        """{'dump': seconds, 'restore': seconds} of a new process."""
        found, task = {}, Small(self, *subject)
        who.images.mkdir()
        syncfs(self.dir)
        if not warm:
            self.cold(who)
        command = self.criu(who, 'dump', who.images, '-t', task.pid, *who.options())
        found['dump'] = self.launch(who, command, warm, [task.pid, *self.tree()])
        sync_wall, _ = syncfs(self.dir) if who.name == 'stock' else (0, 0)
        found['synced dump'] = found['dump'] + sync_wall
        task.reap()
        syncfs(self.dir)
        if not warm:
            self.cold(who)
        pidfile = self.dir / 'pid'
        pidfile.unlink(missing_ok=True)
        command = self.criu(who, 'restore', who.images, '-d', '--pidfile', pidfile)
        found['restore'] = self.launch(who, command, warm, [], pidfile)
        task.pid = int(pidfile.read_text())
        task.verify()
        task.kill()
        self.cold(who)
        who.remove()
        return found

    @staticmethod
    def tree():
        return [pid for pid, program in children().items() if program == 'small']


def measure(bench, rounds):
    """{(warm, subject, 'stock' | 'ours', action): [seconds]}"""
    found = {}
    for number in range(rounds + 1):
        for warm in (False, True):
            for s, (_, *subject) in enumerate(SUBJECTS):
                for who in bench.contestants if number % 2 else bench.contestants[::-1]:
                    for action, seconds in bench.one(who, subject, warm).items():
                        if number:          # the first round is not counted
                            found.setdefault((warm, s, who.name, action), []).append(seconds)
        print(f'round {number} of {rounds}' + ('' if number else ' (not counted)'), file=sys.stderr, flush=True)
    return found


def rows(found):
    """[(goal?, title, cold or warm, stock s, ours s, ratio of medians, median of ratios)], the goals first"""
    every = [(action, s, warm) for warm in (False, True) for s in range(len(SUBJECTS))
             for action in ('dump', 'synced dump', 'restore')]
    for action, s, warm in sorted(every, key=lambda e: (e[2], (e[0], e[1]) not in GOALS)):
        stock, ours = (found[warm, s, who, action] for who in ('stock', 'ours'))
        yield ((action, s) in GOALS, f'{action} of {SUBJECTS[s][0]}', 'warm' if warm else 'cold', statistics.median(stock),
               statistics.median(ours), statistics.median(ours) / statistics.median(stock),
               statistics.median(o / s for o, s in zip(ours, stock)))


def main():
    parser = argparse.ArgumentParser(description='Dump and restore of small things beside stock CRIU.')
    parser.add_argument('-n', type=int, default=15, metavar='N', help='rounds (default 15)')
    parser.add_argument('--report', metavar='DIR', help='write report.md, results.json and the values of all rounds there')
    parser.add_argument('--dir', metavar='DIR', default=BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--bin', metavar='DIR', default=REPO / 'build' / 'bin', help='our programs (default build/bin)')
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('small.py: this needs root')
    compare.become_subreaper()
    compare.build_programs()
    subprocess.run(['gcc', '-O2', '-Wall', '-D_GNU_SOURCE', '-o', BUILD / 'small', HERE / 'small.c'], check=True)
    own_run()
    directory = Path(tempfile.mkdtemp(prefix='small-', dir=args.dir))
    try:
        bench = Bench(args, directory)
        found = measure(bench, args.n)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        sys.exit(f'small.py: {e}')
    finally:
        compare.end_children()
        shutil.rmtree(directory, ignore_errors=True)
    lines = ['| | | stock, s | ours, s | ours/stock | median of the rounds\' ratios |', '| --- | --- | --- | --- | --- | --- |']
    for goal, title, warm, stock, ours, ratio, paired in rows(found):
        lines.append(f'| {"**" * goal}{title}{"**" * goal} | {warm} | {stock:.3f} | {ours:.3f} | {ratio:.2f} | {paired:.2f} |')
    text = '\n'.join([*lines, '', f'Medians of {args.n} alternating rounds, wall time; load {os.getloadavg()[0]:.1f} at the end. '
                      'A dump of ours is durable on return, stock\'s is in the page cache. /run is a tmpfs, and keeps criu\'s '
                      'knowledge of the kernel.']) + '\n'
    print(text)
    if args.report:
        kept.keep(Path(args.report), 'make bench-small', {
            kept.name_of(action, SUBJECTS[subject][0], 'warm' if warm else 'cold', who, 's'): statistics.median(seconds)
            for (warm, subject, who, action), seconds in found.items()}, [
            dict(warm=k[0], subject=SUBJECTS[k[1]][0], who=k[2], action=k[3], seconds=v) for k, v in found.items()], text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
