#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memorykills: kill -9 of pager, keeper and broker, alone and together, while a unit is in each of its states.

  memorykills.py list | run STATE... | run -a     [--build DIR]

A test build's pager stops itself where a unit enters the state (ZNS_MEM_HALT); then the processes are killed. The
others and the successors must continue, and every page of the program is checked. Afterwards the survivors are killed,
too: their successors must have everything. If pager and keeper die together, nobody can continue: the program must be
killed, and have read nothing wrong. If nothing of it was on zones yet, it runs on with all its memory.
"""
import collections
import os
import signal
import subprocess
import sys
from pathlib import Path

import memory
from memory import Failed, wait_until

memory.CASES.clear()
STATES = ('RES', 'BUSY', 'WPING', 'COPY', 'WRITE', 'DROP', 'ZONE', 'LOADING', 'CLEAN')
NAMES = {'P': 'zns-mem', 'K': 'zns-memkeep', 'B': 'znsd'}
DEAD = tuple(os.environ.get('ZNS_TEST_DEAD', 'P K B PB KB PK PKB').split())
GRACE_S = 25        # the holder waits for ten seconds
MOMENTS = (2, 15, 40)


def stands_still(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] == 'T'
    except OSError as gone:
        raise Failed('the pager has ended') from gone


def kill(stage, name):
    pids = stage.all_of(name)
    if not pids:
        raise Failed(f'there is no {name}')
    os.kill(pids[0], signal.SIGKILL)
    return pids[0]


def goes_on(stage, program, dead):
    """Waits until each killed process has a successor and units are evicted."""
    wait_until(lambda: (stage.status(program.pid) or {}).get('pager') not in (None, 0, *dead), 'a pager')
    wait_until(lambda: set(stage.all_of('zns-memkeep')) - dead, 'a keeper')
    stage.await_units(program, 30)


def scene(stage, state, nr, who):
    program = stage.pages(24)
    pager = stage.pager_by_hand(program, '6M', ZNS_MEM_HALT=f'{STATES.index(state)}@{nr}').pid
    wait_until(lambda: stands_still(pager), f'a unit that is {state}')
    dead = {kill(stage, NAMES[c]) for c in who[::-1]}     # the keeper first: a pager would start another keeper
    if {'P', 'K'} <= set(who):
        return ends(stage, program)
    if 'P' not in who:
        os.kill(pager, signal.SIGCONT)
    goes_on(stage, program, dead)
    dead.add(kill(stage, 'zns-mem'))
    goes_on(stage, program, dead)
    stage.end_pages(program)
    return 'went on'


def ends(stage, program):
    try:
        stage.killed_right(program, GRACE_S)
        return 'killed'
    except subprocess.TimeoutExpired:
        stage.end_pages(program, detach=False)
        return 'nothing on zones'


def of(state):
    def each(stage, args):
        verdicts = collections.Counter()
        for nr in MOMENTS:
            for who in DEAD:
                one = stage()
                try:
                    verdicts[scene(one, state, nr, who)] += 1
                except Failed as reason:
                    raise Failed(f'{who}, {nr}: {reason}') from reason
                one.close()
        print(f'    {", ".join(f"{n} {what}" for what, n in verdicts.items())}')
    each.__name__ = state
    each.__doc__ = f'While a unit is {state}.'
    memory.case(each)


for name in STATES:
    of(name)

if __name__ == '__main__':
    sys.exit(memory.main())
