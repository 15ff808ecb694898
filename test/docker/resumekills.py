#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
resumekills.py [--rounds N] [--seed N] [--kinds KIND,...] [--json FILE]: `docker stop` that suspends and `docker start`
that resumes, with kill -9 in the middle.

Redis, nginx and MariaDB run, each with a client that stays connected. In each round a criu, helper, runc, supervisor
of a restore, containerd shim or dockerd is killed at a random moment of the stop or the start. KIND dockerd-early
kills dockerd while the shim of a start is stopped before its first call. Afterwards either memory and client go on, or
the start was a cold one and zns-note says so. No checkpoint is restored twice. No process, file or lease is left, and
when the container is removed, no mount or cgroup. Needs what docker.py needs. The last line is the counts, as JSON.
"""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import dkdaemon
from dkcase import remove
from dkdaemon import Daemon, Failed, until, want
from dkresume import SUSPEND, directory, note, waits
from dkwork import Maria, Nginx, Redis

KINDS = ('none', 'criu', 'zns-helper', 'runc', 'supervisor', 'shim', 'dockerd', 'dockerd-early')
COLD = ('started cold: ', 'not resumed: ', 'stopped without a checkpoint: ')
FILES = ('hold', 'stop', 'conf')     # files that are in the run directory only during a call


def with_lives(work):
    """The workload, changed so that it writes a line at each cold start."""
    return type(work.__name__, (work,), {'script': 'mkdir -p /data; echo >> /data/lives\n' + work.script})


WORKS = [with_lives(w) for w in (Redis, Nginx, Maria)]


class Killer(threading.Thread):
    """Kills a process of one kind, at a random moment after it has begun."""

    def __init__(self, d, ident, kind, rng, span):
        super().__init__()
        self.d, self.id, self.kind, self.delay = d, ident, kind, span * rng.random() ** 3
        self.over, self.killed = threading.Event(), False

    def victims(self):
        if self.kind == 'dockerd' or (self.kind == 'dockerd-early' and list(self.d.dir.glob('early.[0-9]*'))):
            return [self.d.proc.pid]
        if self.kind == 'dockerd-early':
            return []
        if self.kind == 'shim':
            return shims(self.id)
        return supervisors(self.id) if self.kind == 'supervisor' else self.d.pids_of(self.kind)

    def run(self):
        if self.kind == 'none':
            return
        while not self.victims():
            if self.over.wait(0.01):
                return
        if self.over.wait(self.delay):
            return
        for pid in self.victims()[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
                self.killed = True
            except ProcessLookupError:
                pass


def shims(ident):
    return [int(p.name) for p in Path('/proc').glob('[0-9]*') if 'containerd-shim' in (w := command(p)) and f'-id {ident} ' in w]


def has_called(shim):
    """Has this shim called a runtime? Then it has a child, or page faults of a child that has ended."""
    p = Path(f'/proc/{shim}')
    return any(t.read_text() for t in p.glob('task/*/children')) or (p / 'stat').read_text().rpartition(')')[2].split()[8] != '0'


def stopping_shims(d):
    """While the file d.dir/early exists, each new shim is stopped before its first call, and its PID becomes a file
    early.PID in d.dir."""
    script = d.dir / 'shim/containerd-shim-runc-v2'
    script.parent.mkdir()
    real, early = shutil.which(script.name, path=d.env['PATH']), d.dir / 'early'
    script.write_text(f'#!/bin/bash\n[[ "${{!#}}" = start && -e {early} ]] || exec {real} "$@"\n[[ $* =~ -id\\ ([0-9a-f]+) ]]\naddress=$({real} "$@") || exit\n'
                      f'pid=$(pgrep -f "^{real} .*-id ${{BASH_REMATCH[1]}} ")\nkill -STOP $pid && touch {early}.$pid\necho -n "$address"\n')
    script.chmod(0o755)
    d.env['PATH'] = f'{script.parent}:{d.env["PATH"]}'
    d.stop()
    d.start()


def command(p):
    try:
        return (p / 'cmdline').read_bytes().replace(b'\0', b' ').decode(errors='replace')
    except OSError:
        return ''


def supervisors(ident):
    found = []
    for p in Path('/proc').glob('[0-9]*'):
        try:
            words = (p / 'cmdline').read_bytes().split(b'\0')
            if b'create' in words and ident.encode() in words and os.getsid(int(p.name)) == int(p.name):
                found.append(int(p.name))
        except OSError:
            pass
    return found


class Soak:
    def __init__(self, d, seed, kinds):
        self.d, self.rng, self.kinds = d, random.Random(seed), kinds
        self.counts, self.wrong, self.used, self.work, self.what = collections.Counter(), [], set(), None, ''
        self.span = {'stop': 1.0, 'start': 1.0}

    def lives(self):
        return len(self.work.exec('cat', '/data/lives').stdout.splitlines())

    def disturbed(self, phase, kind, *command):
        """Runs a docker command and kills a process in the middle of it."""
        early = self.d.dir / 'early'
        if kind == 'dockerd-early':
            early.touch()
        killer = Killer(self.d, self.ident, kind, self.rng, self.span[phase])
        began = time.monotonic()
        killer.start()
        r = self.d.docker(*command, self.work.container, check=False)
        killer.over.set()
        killer.join()
        if kind != 'none':
            self.counts[f'{phase} {kind} {"killed" if killer.killed else "missed"}'] += 1
        elif not r.returncode:
            self.span[phase] = time.monotonic() - began
        early.unlink(missing_ok=True)
        if kind.startswith('dockerd') and killer.killed:
            self.d.stop(crash=True)
        for stopped in self.d.dir.glob('early.[0-9]*'):
            os.kill(int(stopped.suffix[1:]), signal.SIGCONT)
            stopped.unlink()
        if kind.startswith('dockerd') and killer.killed:
            self.start_dockerd()

    def start_dockerd(self):
        """Starts dockerd, again if need be: it gives containerd 15 s, which may be too little on a busy machine."""
        for last in (False, False, True):
            try:
                return self.d.start()
            except Failed:
                if last:
                    raise
                self.counts['dockerd started once more'] += 1
                self.d.stop(crash=True)

    def stop(self, kind):
        name = self.work.container
        self.disturbed('stop', kind, 'stop', '-t', '60')
        if self.d.running(name):
            self.counts['stopped once more'] += 1
            self.d.docker('stop', '-t', '60', name)
        until('it is stopped', lambda: not self.d.running(name))
        ended = directory(self.d, name) / 'zns-ended'
        return ended.read_text().split()[0] if ended.exists() else None

    def start(self, kind):
        name, self.idle = self.work.container, False
        self.disturbed('start', kind, 'start')
        # killed in its start: each start says "id already in use" until the runtime has stopped the container
        if kind.startswith('dockerd'):
            until('its shim is gone', lambda: self.d.running(name) or not shims(self.ident) or self.ended_idle())
        for _ in range(3):
            if self.d.running(name):
                return
            self.counts['started once more'] += 1
            r = self.d.docker('start', name, check=False)
            # containerd does not remove the bundle that it had begun to write for such a shim
            if 'mkdir' in r.stderr and 'file exists' in r.stderr and self.idle:
                self.counts['removed a bundle of such a shim'] += 1
                for bundle in self.d.dir.glob(f'exec/containerd/daemon/*/moby/{self.ident}'):
                    shutil.rmtree(bundle)
        raise Failed(f'it does not start: {r.stderr.strip()[-300:]}; note: {note(self.d, name)}')

    def ended_idle(self):
        """
        Ends a shim that was left before its first call when dockerd died: "task already exists", with stock runc, too.
        No runtime was called that could end it, so a person must do it (suspend.md).
        """
        for shim in shims(self.ident):
            if not has_called(shim):
                self.idle = True
                self.counts['ended a shim that had called nothing'] += 1
                os.kill(shim, signal.SIGKILL)
        return False

    def round(self, number):
        if not self.work:
            self.work = self.rng.choice(WORKS)(self.d, f'kills-{number}', SUSPEND)
            self.ident = self.d.id(self.work.container)
        phase, kind = self.rng.choice(('stop', 'start')), self.rng.choice(self.kinds)
        phase = 'start' if kind == 'dockerd-early' else phase
        self.what = what = f'{self.work.name}, {phase}, {kind}'
        self.work.remember()
        lives = self.lives()
        ended = self.stop(kind if phase == 'stop' else 'none')
        if ended and phase == 'start':
            kept = [p.name for p in (directory(self.d, self.work.container) / 'checkpoints').iterdir()]
            want('one checkpoint stays', kept == [ended], kept)
        self.start(kind if phase == 'start' else 'none')
        said = note(self.d, self.work.container)
        cold = until('an answer', lambda: not self.work.exec('true', check=False).returncode) and self.lives() > lives
        if cold:
            self.counts['cold'] += 1
            want('a cold start is said', said.startswith(COLD), said)
        else:
            self.counts['resumed'] += 1
            served = said.removeprefix('resumed from checkpoint ')
            # if dockerd was killed in its start, the container was stopped, by checkpoint, once more
            want('a resume is said', served == ended or (kind.startswith('dockerd') and phase == 'start' and served.startswith('zns-stop-')), said)
            want('served once', served not in self.used, served)
            self.used.add(served)
            want('not back in time', self.work.ticks() >= self.work.tick)
            self.work.verify()
        self.nothing_left()
        print(f'     {number}: {what}: {said[:110]}', flush=True)
        if cold or self.rng.random() < 0.15:
            self.remove()

    def nothing_left(self):
        d = self.d

        def left():
            files = [p.name for p in (d.dir / 'run/docker').glob(f'{self.ident}.*') if p.name.split('.')[1] in FILES]
            pids = [(n, p) for n in ('criu', 'zns-helper') for p in d.pids_of(n)] + [p.name for p in Path('/proc').glob('[0-9]*') if waits(d, p)]
            return [*files, *pids, *supervisors(self.ident), *d.zjson('status').get('leases', []), *d.leftovers()]
        gone(left)

    def remove(self):
        work, self.work = self.work, None
        remove(self.d, work.container)

        def left():
            mounts = [m.split()[4] for m in open('/proc/self/mountinfo') if self.ident in m]
            groups = [str(p) for top in ('', '*/') for p in Path('/sys/fs/cgroup').glob(f'{top}docker/{self.ident}')]
            return [*mounts, *groups, *self.d.dir.glob(f'exec/*/*/*/{self.ident}'), *self.d.dir.glob(f'exec/runtime-*/*/{self.ident}'),
                    *(c['id'] for c in self.d.checkpoints(work.container)),
                    *(p for p in (self.d.dir / 'run/docker').glob(f'{self.ident}.*') if p.name.split('.')[1] != 'restore')]
        gone(left)

    def run(self, rounds):
        for number in range(rounds):
            try:
                self.round(number)
                self.counts['rounds'] += 1
            except Exception as e:      # one finding must not hide the others
                self.wrong.append(f'round {number}: {self.what}: {str(e)[-300:]}')
                print(f'WRONG {self.wrong[-1]}', flush=True)
                if self.d.proc is None or self.d.proc.poll() is not None:
                    break
                if self.work:
                    print(f'     {note_of(self.d, self.work)}', flush=True)
                    self.d.docker('rm', '-f', self.work.container, check=False)
                    self.work = None
        if self.work and not self.wrong:
            self.remove()


def note_of(d, work):
    try:
        return note(d, work.container)
    except (OSError, Failed) as e:
        return str(e)


def gone(left):
    try:
        until('', lambda: not left(), 60)
    except Failed:
        raise Failed(f'left over: {left()}') from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=40, metavar='N')
    parser.add_argument('--seed', type=int, default=1, metavar='N')
    parser.add_argument('--kinds', default=','.join(KINDS), metavar='KIND,...', help='what dies (default: %(default)s)')
    parser.add_argument('--json', type=Path, metavar='FILE')
    args = parser.parse_args()
    dkdaemon.ferretdb_missing = 'FerretDB is not needed'
    with Daemon() as d:
        d.make_image()
        stopping_shims(d)
        soak = Soak(d, args.seed, args.kinds.split(','))
        soak.run(args.rounds)
    result = json.dumps({'seed': args.seed, 'counts': dict(sorted(soak.counts.items())), 'wrong': soak.wrong})
    if args.json:
        args.json.write_text(result + '\n')
    print(result)
    return bool(soak.wrong)


if __name__ == '__main__':
    sys.exit(main())
