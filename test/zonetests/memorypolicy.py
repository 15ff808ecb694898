#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memorypolicy: what is read ahead, and how contexts divide the machine's DRAM.

  memorypolicy.py list | run NAME... | run -a     [--build DIR]
"""
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import memory
from memory import Failed, case, wait_until
from hibernate import Idler

memory.CASES.clear()
SIM = Path(__file__).resolve().parent.parent / 'sim'
OBJECT = 640 << 10


class Cached:
    """test/sim/cached.c: objects in memory; a request copies one out."""
    def __init__(self, stage, objects, length=OBJECT):
        binary = stage.dir / 'cached'
        if not binary.exists():
            subprocess.run(['gcc', '-O2', '-o', binary, SIM / 'cached.c'], check=True)
        self.process = stage.start(binary, objects, length >> 10, stdin=subprocess.PIPE)
        self.pid, self.length = self.process.pid, length
        self.ask(range(objects))

    def ask(self, numbers, pause_s=0):
        for n in numbers:
            time.sleep(pause_s)
            self.process.stdin.write(f'{n}\n')
            self.process.stdin.flush()
            left = self.length
            while left:
                got = os.read(self.process.stdout.fileno(), min(left, 1 << 16))
                if not got or got != bytes([n]) * len(got):
                    raise Failed(f'object {n} is wrong')
                left -= len(got)


def all_out(stage, pid, room):
    """Waits until all memory that can be evicted is on zones; then sets the budget to @room."""
    stage.ctl('memory', 'limit', pid, '--dram', '1M')
    seen = []

    def quiet():
        seen.append(stage.status(pid)['evicted'])
        time.sleep(0.2)
        return len(seen) > 3 and seen[-1] and seen[-4] == seen[-1]
    wait_until(quiet, 'that all is on zones')
    stage.ctl('memory', 'limit', pid, '--dram', room)


def second_time(stage, option):
    """Number of faults in the second activation, which asks for the same objects in the same order as the first."""
    program = Cached(stage, 60)
    stage.ctl('memory', 'attach', program.pid, '--dram', '128M', *option)
    objects = list(range(60))
    random.Random(2).shuffle(objects)
    for _ in range(2):
        all_out(stage, program.pid, '128M')
        before = stage.status(program.pid)
        program.ask(objects)
        after = stage.status(program.pid)
    stage.ctl('memory', 'detach', program.pid)
    program.ask(objects)
    program.process.kill()
    known = after['prefetch_used'] + after['prefetch_unused']
    return after['read_units'] - before['read_units'], after['prefetched'], after['prefetch_used'] / known if known else None


@case
def recurring(stage, args):
    """A working set that comes back: the second activation has less than half of the faults that it has without reading ahead."""
    stage = stage()
    off, fetched, _ = second_time(stage, ['--no-predict'])
    if fetched:
        raise Failed(f'--no-predict, and {fetched} units were read ahead')
    on, fetched, accuracy = second_time(stage, [])
    print(f'    {on} faults instead of {off}; {fetched} units read ahead, accuracy {accuracy:.2f}')
    if not on * 2 < off:
        raise Failed('reading ahead does not help')


@case
def activated(stage, args):
    """A program that idles, and then uses the same objects in another order each time: the second activation has less
    than half of the first one's faults. So has the third, whose pager is a successor. The objects are one or two
    units long and lie apart, so they are no streams."""
    stage = stage()
    program = Cached(stage, 250, 64 << 10)
    stage.ctl('memory', 'attach', program.pid, '--dram', '96M')
    objects, faults = list(range(0, 250, 5)), []
    for k in range(3):
        all_out(stage, program.pid, '96M')
        if k == 2:
            os.kill(stage.status(program.pid)['pager'], signal.SIGKILL)
            wait_until(lambda: (stage.status(program.pid) or {}).get('takeovers') == 1, 'the next pager')
        time.sleep(1.1)
        before = stage.status(program.pid)
        random.Random(k).shuffle(objects)
        program.ask(objects, 0.002)
        after = stage.status(program.pid)
        faults.append(after['read_units'] - before['read_units'])
        if after['activations'] != before['activations'] + 1 or after['wakes']:
            raise Failed(f'{after["activations"]} activations, {after["wakes"]} wakes')
    print(f'    {", ".join(map(str, faults))} faults')
    if not max(faults[1:]) * 2 < faults[0]:
        raise Failed('the record does not help')


def configure(stage, text):
    (stage.dir / 'conf' / 'zns.conf').write_text(text)


@case
def divided(stage, args):
    """Two contexts, and room for one: the one that works gets most of it, the idle one shrinks, but not below its minimum; also after a kill -9."""
    stage = stage()
    old = (stage.dir / 'conf' / 'zns.conf').read_text() if (stage.dir / 'conf' / 'zns.conf').exists() else ''
    configure(stage, old + 'memory-dram = 72M\n')
    programs = [Idler(stage, 48), Idler(stage, 48)]
    for p in programs:
        stage.ctl('memory', 'attach', p.pid, '--dram', 'auto', '--min', '8M')

    def budgets():
        found = [stage.status(p.pid) for p in programs]
        return [f['dram'] for f in found] if all(found) else None

    def favours(one):
        def true():
            programs[one].ask(100)
            now = budgets()
            return now and now[one] > now[1 - one] * 3 // 2 and sum(now) <= 76 << 20 and min(now) >= 7 << 20
        wait_until(true, f'a division in favour of number {one}')
        print(f'    {one} works: {", ".join(str(n >> 20) for n in budgets())} MiB')
    favours(0)
    favours(1)
    os.kill(stage.status(programs[0].pid)['pager'], signal.SIGKILL)
    favours(0)
    stage.ctl('memory', 'detach', programs[1].pid)

    def alone():
        programs[0].ask(100)
        return stage.status(programs[0].pid)['dram'] > 60 << 20
    wait_until(alone, 'that the other one has all')
    stage.ctl('memory', 'limit', programs[0].pid, '--dram', '20M')
    time.sleep(2.5)
    if stage.status(programs[0].pid)['dram'] != 20 << 20:
        raise Failed('a budget that was given is divided all the same')


@case
def said_badly(stage, args):
    """Invalid settings: one error line each, and nothing is attached."""
    stage = stage()
    conf = stage.dir / 'conf' / 'zns.conf'
    old = conf.read_text() if conf.exists() else ''
    program = Idler(stage, 8)
    for text, want in (('', 'memory-dram'), ('memory-dram = much\n', 'memory-dram'), ('memory-dram = 200%\n', '100%'),
                       ('memory-dram = 1M\n', '16M')):
        configure(stage, old + text)
        done = stage.ctl('memory', 'attach', program.pid, '--dram', 'auto', ok=False)
        if not done.returncode or want not in done.stderr or len(done.stderr.strip().splitlines()) != 1:
            raise Failed(f'{text!r}: exit {done.returncode}: {done.stderr}')
    done = stage.ctl('memory', 'attach', program.pid, '--dram', '16M', '--min', '4M', ok=False)
    if not done.returncode or '--min' not in done.stderr:
        raise Failed(f'--min without auto: {done.stderr}')
    configure(stage, old + 'memory-dram = 64M\n')
    table = stage.dir / 'run' / 'memory' / 'dram.table'
    table.parent.mkdir(mode=0o700, exist_ok=True)
    table.symlink_to('/etc/passwd')
    done = stage.ctl('memory', 'attach', program.pid, '--dram', 'auto', ok=False)
    print(f'    {done.stderr.strip()}')
    if not done.returncode or 'dram.table' not in done.stderr:
        raise Failed('a table that is a link to something else is used')
    program.ask(100)


if __name__ == '__main__':
    sys.exit(memory.main())
