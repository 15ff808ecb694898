#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memcheckpoint: checkpoints of programs whose memory is on zones (Documentation/inside/memory.md), on emulated devices.

  memcheckpoint.py list | run NAME... | run -a     [--rounds N] [--build DIR]

memory/answerer.c knows each of its pages and looks at all of them when it is asked, before and after the restore.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import memory
import ztlib
from memory import DEADLINE_S, Failed, Skipped, resident, wait_until

CASES = memory.CASES
CASES.clear()
case = memory.case


class Scene(memory.Stage):
    """A stage with criu, and processes that answer requests."""
    def __init__(self, args, zones=256):
        super().__init__(args, zones=zones)
        self.env['ZNS_LIBEXEC'] = str(args.bin)
        self.criu_bin = args.bin.parent.parent / 'bin/criu'
        self.said = self.dir / 'said'
        self.said.mkdir()
        self.roots = []

    def answerer(self, mib, threads=1, children=0, active=5):
        with open(self.dir / 'program.err', 'a', encoding='ascii') as err:
            one = subprocess.Popen([self.args.program.parent / 'answerer', str(mib), str(threads), str(children), self.said, str(active)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, cwd=self.dir, start_new_session=True)
        self.programs.append(one)
        self.roots.append(one.pid)
        wait_until(lambda: resident(one.pid) >= mib << 20 and len(ztlib.tree(one.pid)) == children + 1, 'the program')
        return one

    def ask(self, pid):
        """Makes all processes check all of their pages; returns how many rounds they have done."""
        pids, rounds = ztlib.tree(pid), 0
        for one in pids:
            (self.said / str(one)).unlink(missing_ok=True)
            os.kill(one, signal.SIGUSR1)
        for one in pids:
            wait_until((self.said / str(one)).exists, f'an answer of process {one}')
            wrong, done = map(int, (self.said / str(one)).read_text().split())
            if wrong:
                raise Failed(f'process {one}: {wrong} pages are wrong')
            rounds += done
        return rounds

    def shrink(self, pid, share=0.12):
        """Waits until at most this share of the memory is present."""
        pids = ztlib.tree(pid)
        total = sum(resident(p) for p in pids)
        self.attach(pid, f'{max(int(total * share * 0.8) >> 20, 2)}M')
        wait_until(lambda: sum(resident(p) for p in pids) <= total * share, 'the budget')
        return total

    def criu(self, verb, name, *words, ok=True, wait=True):
        there = self.dir / name
        there.mkdir(exist_ok=True)
        call = [self.criu_bin, verb, '-D', there, '-v4', '-o', f'{verb}.log', *map(str, words)]
        if not wait:
            return subprocess.Popen(call, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done = subprocess.run(call, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if ok and done.returncode:
            raise Failed(f'criu {verb} {name}: {self.errors(name, verb)}')
        return done

    def errors(self, name, verb='dump'):
        log = self.dir / name / f'{verb}.log'
        return ' | '.join(line.split(': ', 1)[-1] for line in log.read_text(errors='replace').splitlines() if 'Error' in line and 'rlimit' not in line)

    def dump(self, pid, name, *words, ok=True, wait=True):
        self.pids = ztlib.tree(pid)
        return self.criu('dump', name, '-t', pid, '--zns-dev', f'emu:{self.dir}/dev', *words, ok=ok, wait=wait)

    def restore(self, name, pid, *words):
        for program in self.programs:
            if program.pid == pid:
                program.wait(DEADLINE_S)
        wait_until(lambda: not any(Path(f'/proc/{p}').exists() for p in self.pids), 'the end of those that were dumped')
        self.criu('restore', name, '-d', *words)
        if pid not in self.roots:
            self.roots.append(pid)

    def end(self, pid):
        """Ends the whole tree, so that criu can use its PIDs again."""
        pids = ztlib.tree(pid) if Path(f'/proc/{pid}').exists() else []
        for one in reversed(pids):
            os.kill(one, signal.SIGKILL)
        for program in self.programs:
            if program.pid == pid:
                program.wait()
        wait_until(lambda: not any(Path(f'/proc/{p}').exists() for p in pids), 'the end of the program')

    def shown(self, name):
        return json.loads(self.ctl('show', self.dir / name, '--json').stdout)

    def ls(self):
        return json.loads(self.ctl('ls', '--json').stdout)['checkpoints']

    def whole(self, expect=None):
        """Checks that the catalogue has no incomplete checkpoint, and that those in it can be read."""
        if expect is not None and len(self.ls()) != expect:
            raise Failed(f'{len(self.ls())} checkpoints, not {expect}')
        if expect != 0:
            self.ctl('verify', '--all')
        done = self.ctl('fsck', f'emu:{self.dir}/dev', ok=False)
        if done.returncode and 'is in use by memory:' not in done.stderr:      # not possible while a context lives
            raise Failed(done.stderr.strip() or done.stdout.strip())

    def empty(self):
        """Checks that every data zone is empty, so all leases have ended."""
        def used():
            return [z for z in json.loads(self.ctl('zones', '--json').stdout)['zones'] if z['state'] != 'empty' and z.get('owner') != '(metadata)']
        wait_until(lambda: not used(), 'empty zones', 30)

    def evicts_again(self, pid):
        """Checks that all memory comes back, and that it is evicted again."""
        self.await_pager(pid)
        before = self.out(pid)
        self.ask(pid)
        wait_until(lambda: self.out(pid) > before, 'an eviction')

    def await_pager(self, pid):
        wait_until(lambda: all((p.get('why') or '') == '' for p in (self.status(pid) or {'processes': [{'why': 'none'}]})['processes']), 'a pager that evicts')

    def host_ends(self, pid):
        """Kills everything, and removes what is in the runtime directory."""
        for name in ('zns-mem', 'zns-memkeep', 'znsd'):
            self.kill_one(name, signal.SIGSTOP)
        for name in ('zns-memkeep', 'zns-mem', 'znsd'):
            self.kill_one(name)
        self.end(pid)
        shutil.rmtree(self.dir / 'run')
        (self.dir / 'run').mkdir(mode=0o700)

    def close(self):
        for pid in self.roots:
            try:
                self.end(pid)
            except (ProcessLookupError, FileNotFoundError, Failed):
                pass
        super().close()


def alive(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


def unregistered(pid):
    if re.search(r'VmFlags:.* u[mwi]( |$)', Path(f'/proc/{pid}/smaps').read_text(), re.M):
        raise Failed('areas of the restored process have a userfaultfd')


def dump_and_restore(scene, pid, *words, more=()):
    rounds = scene.ask(pid)
    total = scene.shrink(pid)
    scene.dump(pid, 'img', *words)
    scene.whole(1)
    found = scene.shown('img')
    wait_until(lambda: not scene.ctl('memory', 'status', '--json').stdout.count('pid-'), 'the end of the context')
    scene.restore('img', pid, *more)
    if scene.ask(pid) < rounds:
        raise Failed('it is not where it was')
    for one in ztlib.tree(pid):
        unregistered(one)
    print(f'    {total >> 20} MiB, {found["bytes"] >> 20} in the checkpoint, {found["memory_bytes"] >> 20} of them on zones already')
    return found, total


@case
def volume(scene, args):
    """With 90 % on zones: how much the dump writes, how much it reads, and every page afterwards."""
    scene = scene()
    program = scene.answerer(256, active=2)
    found, total = dump_and_restore(scene, program.pid)
    written = found['bytes'] - found['memory_bytes']
    print(f'    written {100 * written / total:.1f} % of its memory')
    if written > 0.15 * total:
        raise Failed('more than 15 %')
    scene.end(program.pid)
    scene.ctl('rm', '--all')
    scene.empty()


@case
def threads(scene, args):
    """Eight threads, all of which write."""
    scene = scene()
    dump_and_restore(scene, scene.answerer(96, threads=8, active=10).pid)


@case
def tree(scene, args):
    """Five processes that share pages; the checkpoint names a unit that several have only once."""
    scene = scene()
    program = scene.answerer(48, threads=2, children=4)
    dump_and_restore(scene, program.pid)


@case
def churn(scene, args):
    """A program that forks, discards and writes all the time: the checkpoint has the pages of the freeze."""
    # each checkpoint also keeps what is dead in the context's zones, here several times its memory
    scene = scene(zones=768)
    with open(scene.dir / 'out', 'w', encoding='ascii') as out, open(scene.dir / 'program.err', 'w', encoding='ascii') as err:
        program = subprocess.Popen([args.program, '64'], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=scene.dir, start_new_session=True)
    scene.programs.append(program)
    scene.roots.append(program.pid)
    time.sleep(1)
    scene.attach(program.pid, '16M')
    for n in range(3):
        time.sleep(3)
        scene.dump(program.pid, f'img{n}')
        program.wait()
        scene.whole(n + 1)
        scene.restore(f'img{n}', program.pid)
        if n < 2:
            scene.attach(program.pid, '16M')
    os.kill(program.pid, signal.SIGTERM)
    wait_until(lambda: not alive(program.pid), 'its end')
    last = (scene.dir / 'out').read_text().splitlines()[-1]
    print(f'    {last}')
    if not re.fullmatch(r'end \d+ 0', last):
        raise Failed(last)


@case
def redis(scene, args):
    """Redis: every value after the restore."""
    if not shutil.which('redis-server'):
        raise Skipped('no redis-server')
    scene = scene()
    sock = scene.dir / 'redis.sock'
    program = subprocess.Popen(['redis-server', '--port', '0', '--unixsocket', sock, '--save', '', '--appendonly', 'no', '--logfile', '/dev/null'],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=scene.dir, start_new_session=True)
    scene.programs.append(program)
    scene.roots.append(program.pid)

    def cli(text):
        return subprocess.run(['redis-cli', '-s', sock], input=text, capture_output=True, text=True, check=True).stdout.split('\n')
    wait_until(sock.exists, 'its socket')
    keys = 20000
    cli('\n'.join(f'SET k{n} {f"{n:08d}" * 250}' for n in range(keys)))
    scene.shrink(program.pid, 0.3)
    scene.dump(program.pid, 'img')
    program.wait()
    scene.whole(1)
    scene.restore('img', program.pid)
    got = cli('\n'.join(f'GET k{n}' for n in range(keys)))
    wrong = [n for n in range(keys) if got[n] != f'{n:08d}' * 250]
    found = scene.shown('img')
    print(f'    {found["bytes"] >> 20} MiB, {found["memory_bytes"] >> 20} of them on zones already')
    if wrong:
        raise Failed(f'{len(wrong)} values are wrong')


@case
def running(scene, args):
    """--leave-running, twice, also live: the context goes on using its units; both checkpoints stay unchanged;
    checkpoints and context end in all orders."""
    for order in ('context first', 'checkpoints first', 'one, context, other'):
        scene_ = scene()
        program = scene_.answerer(64, threads=2, children=1)
        pid = program.pid
        scene_.shrink(pid, 0.3)
        for n, words in enumerate(([], ['--zns-live'])):
            before = scene_.status(pid)['evicted']
            scene_.dump(pid, f'img{n}', '--leave-running', *words)
            if scene_.status(pid)['evicted'] < before / 2:
                raise Failed('the context has lost its units')
            scene_.ask(pid)
            scene_.evicts_again(pid)
            scene_.whole(n + 1)
        ids = [scene_.shown(f'img{n}')['id'] for n in range(2)]
        if order == 'context first':
            scene_.end(pid)
            time.sleep(1)
            scene_.whole(2)
            for n in range(2):
                scene_.restore(f'img{n}', pid)
                scene_.ask(pid)
                scene_.end(pid)
            scene_.ctl('rm', *ids)
        elif order == 'checkpoints first':
            scene_.ctl('rm', *ids)
            scene_.evicts_again(pid)
            scene_.ask(pid)
            scene_.end(pid)
        else:
            scene_.ctl('rm', ids[0])
            scene_.ask(pid)
            scene_.end(pid)
            scene_.whole(1)
            scene_.restore('img1', pid)
            scene_.ask(pid)
            scene_.end(pid)
            scene_.ctl('gc', '--keep', '0', ok=False)
            scene_.ctl('rm', '--all', ok=False)
        scene_.empty()
        scene_.close()
        print(f'    {order}')


@case
def deaths(scene, args):
    """kill -9 of criu, helper, pager, keeper or broker at any moment of a dump: there is a complete checkpoint or none, and the program runs on."""
    scene = scene(zones=512)
    program = scene.answerer(64, threads=2, children=1)
    pid, rng, tally = program.pid, random.Random(11), {}
    scene.shrink(pid, 0.3)
    begin = time.monotonic()
    scene.dump(pid, 'first', '--leave-running')
    takes = time.monotonic() - begin
    for n in range(args.kills):
        who = ('criu', 'zns-helper', 'zns-mem', 'zns-memkeep', 'znsd')[n % 5]
        scene.await_pager(pid)
        had = len(scene.ls())
        words = ['--zns-live'] if n % 3 == 2 else []
        dump = scene.dump(pid, f'img{n}', '--leave-running', *words, wait=False)
        time.sleep(rng.random() * takes)
        dump.kill() if who == 'criu' else scene.kill_one(who)
        code = dump.wait()
        wait_until(lambda: scene.status(pid), 'a pager')
        wait_until(lambda: not any(scene.comm(p) == 'zns-helper' for p in scene.ours_all()), 'the end of the helper')
        has = len(scene.ls())
        if has not in (had, had + 1) or (not code and has != had + 1):
            raise Failed(f'{who}: exit {code}, {has - had} checkpoints more')
        scene.ask(pid)
        scene.evicts_again(pid)
        scene.whole(has)
        done = tally.setdefault(who, [0, 0])
        done[0] += 1
        done[1] += has - had
        if has > had:
            scene.ctl('rm', next(c['id'] for c in reversed(scene.ls())))
    print('    ' + ', '.join(f'{w}: {k} killed, {c} checkpoints' for w, (k, c) in tally.items()))
    scene.end(pid)
    scene.restore('first', pid)
    scene.ask(pid)
    scene.end(pid)
    scene.ctl('rm', '--all', ok=False)
    for one in scene.ls():
        scene.ctl('rm', one['id'])
    scene.empty()


@case
def host_dies(scene, args):
    """Program, pager, keeper and broker all die: the checkpoint is complete, and zones that only the context had are reset."""
    scene = scene()
    program = scene.answerer(64)
    scene.shrink(program.pid, 0.3)
    scene.dump(program.pid, 'img', '--leave-running')
    scene.evicts_again(program.pid)
    scene.host_ends(program.pid)
    scene.whole(1)
    scene.restore('img', program.pid)
    scene.ask(program.pid)
    scene.end(program.pid)
    scene.ctl('rm', scene.ls()[0]['id'])
    scene.empty()


@case
def cuts(scene, args):
    """Power is cut at a write of the helper's or the broker's, with a loss: a complete checkpoint or none, including units of the context."""
    rng, tally = random.Random(5), [0, 0]
    for n in range(args.kills // 2):
        one = scene(zones=96)
        program = one.answerer(32)
        one.shrink(program.pid, 0.4)
        who = 'broker' if n % 2 else 'helper'
        fault = f'cut-after={rng.randrange(3 if who == "broker" else 32)},loss={rng.randrange(1, 1 << 30)}'
        if who == 'broker':      # the next broker dies, unless the pager starts another one first
            one.kill_one('znsd')
            one.env.update(ZNS_EMU_FAULT=fault, ZNSD_KEEP_ENV='ZNS_EMU_FAULT')
            one.ctl('status', ok=False)
            del one.env['ZNS_EMU_FAULT']
        else:
            one.ls()
            one.env['ZNS_EMU_FAULT'] = fault
        code = one.dump(program.pid, 'img', '--leave-running', ok=False).returncode
        one.env.pop('ZNS_EMU_FAULT', None)
        one.host_ends(program.pid)
        has = len(one.ls())
        if not code and not has:
            raise Failed(f'{who}, {fault}: an acknowledged checkpoint is gone')
        one.whole(has)
        if has:
            one.restore('img', program.pid, '--zns-checkpoint', one.ls()[0]['id'])
            one.ask(program.pid)
        tally[has] += 1
        one.close()
    print(f'    {tally[0]} cuts before the commit, {tally[1]} after it')


@case
def tools(scene, args):
    """Export, compaction, a lost catalogue, flatten, an incremental dump on it: all work with such a checkpoint."""
    scene = scene()
    program = scene.answerer(48, children=1)
    pid = program.pid
    scene.shrink(pid, 0.3)
    scene.dump(pid, 'img', '--leave-running')
    one = scene.shown('img')['id']
    scene.ctl('gc', '--compact')
    scene.whole(1)
    scene.ctl('export', one, scene.dir / 'plain')
    scene.dump(pid, 'next', '--track-mem', '--zns-parent', one, '--leave-running')
    two = scene.shown('next')['id']
    scene.ctl('flatten', two)
    scene.whole(2)
    if scene.shown('next').get('memory_bytes'):
        raise Failed('what was flattened still names units of the context')
    scene.end(pid)
    scene.criu('restore', 'plain', '-d')
    scene.ask(pid)
    scene.end(pid)
    scene.restore('next', pid)
    scene.ask(pid)
    scene.end(pid)
    scene.ctl('rm', two)
    wait_until(lambda: scene.ctl('fsck', f'emu:{scene.dir}/dev', '--rebuild', '--force', ok=False).returncode == 0, 'a rebuilt catalogue', 30)
    scene.whole(1)
    scene.restore('img', pid)
    scene.ask(pid)


@case
def refused(scene, args):
    """Impossible requests are refused in one line, and the program runs on under its budget."""
    scene = scene()
    program = scene.answerer(32)
    pid = program.pid
    scene.shrink(pid, 0.5)
    scene.env['ZNS_DEV'] = f'emu:{scene.dir}/dev'
    scene.ctl('create', f'emu:{scene.dir}/other', '--zones', '32', '--zone-size', '4M', '--sparse')
    tries = {'another device': ('dump', '--zns-dev', f'emu:{scene.dir}/other'), 'pre-dump': ('pre-dump', '--zns-dev', f'emu:{scene.dir}/dev'),
             'plain files': ('dump',)}
    for what, (verb, *words) in tries.items():
        name = what.replace(' ', '-')
        done = scene.criu(verb, name, '-t', pid, '--leave-running', *words, ok=False)
        lines = scene.errors(name, verb)
        print(f'    {what}: {lines.split(" | ")[0]}')
        if not done.returncode or not re.search(r'memory|userfaultfd|io_uring', lines.split(' | ')[0]):
            raise Failed(f'{what} was not refused: {lines}')
        scene.ask(pid)
    scene.whole(0)
    scene.evicts_again(pid)


if __name__ == '__main__':
    sys.exit(memory.main(Scene, ('answerer',)))
