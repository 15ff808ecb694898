#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
What kept places and what reading ahead are worth to real programs: cached, redis, node and java of test/sim/record.py, with half
of their memory in DRAM, asked as there. Each kind of pager takes its turn in each round; figures are medians of the rounds, samples of the
record means.

  memory_policy.py [--build DIR] [--rounds N] [PROGRAM...]
  memory_policy.py --idle ...     activations of programs that idle in between, with reading ahead and without
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'zonetests'), str(HERE.parent / 'sim')]
import memory                                                                    # noqa: E402
import record                                                                    # noqa: E402

PAGERS = {      # what is switched off in the test build's pager, and the pager's options
    'none': None,
    'all': ('99', ()),
    'kept places off': ('10', ()),
    'ahead off': ('99', ('--no-predict',)),
}
ACTIVATIONS, REQUESTS, REST_S, IDLE_S = 24, 20, 0.2, 2
NAMES = ('cached', 'redis', 'node', 'java')


def asked(seed, nr):
    """Chooses objects by Zipf's law, as when the traces were recorded."""
    rnd = random.Random(seed)
    objects = list(range(record.OBJECTS))
    rnd.shuffle(objects)
    return rnd.choices(objects, [1 / (rank + 1) for rank in range(record.OBJECTS)], k=nr)


class Run:
    def __init__(self, args, name, pager):
        self.stage = memory.Stage(args, zones=128)
        self.program = record.PROGRAMS[name](self.stage.dir, args.build.resolve())
        self.stage.programs.append(self.program.proc)
        for n in range(record.OBJECTS):
            self.program.request(n)
        self.size = memory.resident(self.program.pid)
        if not PAGERS[pager]:
            return
        without, options = PAGERS[pager]
        out = open(self.stage.dir / 'pager.log', 'w', encoding='ascii')
        self.stage.programs.append(subprocess.Popen(
            [args.bin / 'zns-mem', '--name', f'pid-{self.program.pid}', '--dram', str(self.size // 2), *options, str(self.program.pid)],
            env={**self.stage.env, 'ZNS_MEM_WITHOUT': without}, stdout=out, stderr=out))
        memory.wait_until(self.status, 'the pager')
        memory.wait_until(lambda: memory.resident(self.program.pid) <= self.size // 2, 'the budget')

    def status(self):
        return self.stage.status(self.program.pid)

    def limit(self, size):
        self.stage.ctl('memory', 'limit', f'pid-{self.program.pid}', '--dram', size)

    def requests(self, objects):
        begin = time.monotonic()
        for n in objects:
            self.program.request(n)
        return time.monotonic() - begin

    def all_out(self):
        """Evicts all memory that can be evicted; afterwards sets a budget for all of it."""
        self.limit(1 << 20)
        last, same = 0, 0
        while same < 5:
            time.sleep(0.2)
            now = self.status()['evicted']
            last, same = now, same + 1 if now <= last * 1.01 else 0
        self.limit(self.size * 2)
        time.sleep(0.5)

    def work(self, pager):
        """24 activations with half of its memory."""
        objects, seconds = asked(5, ACTIVATIONS * REQUESTS), 0
        first = self.status() if PAGERS[pager] else None
        for k in range(ACTIVATIONS):
            seconds += self.requests(objects[k * REQUESTS:(k + 1) * REQUESTS])
            time.sleep(REST_S)
        found = {'seconds': seconds}
        if first:
            last = self.status()
            for key in ('evicted_units', 'clean_units', 'read_units', 'spare_units', 'prefetched', 'prefetch_used', 'prefetch_unused'):
                found[key] = last[key] - first[key]
            found['written'] = found['evicted_units'] - found['clean_units']
        return found

    def again(self):
        """The same 20 requests twice, beginning with nothing in memory: faults of the second time, and those without a copy."""
        objects = asked(7, REQUESTS)
        for _ in range(2):
            self.all_out()
            before = self.status()
            self.requests(objects)
            after = self.status()
        faults = after['read_units'] - before['read_units']
        return {'again': faults, 'again_device': faults - (after['spare_units'] - before['spare_units'])}

    def active(self):
        """
        Activations of 20 requests, with nothing in memory at first, by a program that idles for two seconds before: faults of the first
        one, of the same requests again, then of others that are picked anew each time, two to learn from and four that count. And of a
        sample of what the record said, how many units there were, and how many of them were used. The program's timers may begin an
        activation before it is asked: that counts as a part of the one that follows, but not its faults.
        """
        found, last = Counter(), self.status()
        for kind, seed in zip(('first', 'same', 'learn', 'learn') + ('other',) * 4, (21, 21, 22, 23, 24, 25, 26, 27)):
            self.all_out()
            time.sleep(IDLE_S)
            before = self.status()
            self.requests(asked(seed, REQUESTS))
            time.sleep(REST_S)
            after = self.status()
            faults = after['read_units'] - before['read_units']
            found[f'{kind}_read_units'] += faults
            found[f'{kind}_device_units'] += faults - (after['spare_units'] - before['spare_units'])
            for key in ('record_left_out', 'record_missed', 'activations'):
                found[f'{kind}_{key}'] += after[key] - last[key]
            last = after
        return found

    def hibernated(self):
        """
        Activations of 20 requests, each after a hibernation: one to begin with, then faults of the same requests again, and of
        others; and what part of what the record said was right.
        """
        found = {}
        self.limit(self.size * 2)
        first = None
        for key, seed in (('begin', 11), ('awake_same', 11), ('awake_other', 12)):
            self.stage.ctl('memory', 'hibernate', f'pid-{self.program.pid}')
            before = self.status()
            first = first or before
            self.requests(asked(seed, REQUESTS))
            found[key] = self.status()['read_units'] - before['read_units']
            time.sleep(REST_S)
        last = self.status()
        for key in ('record_left_out', 'record_missed'):
            found[key] = last.get(key, 0) - first.get(key, 0)
        return found

    def end(self):
        self.program.end()
        self.stage.close()


def one(args, name, pager):
    run = Run(args, name, pager)
    try:
        found = {} if args.idle else run.work(pager)
        if args.idle:
            found.update(run.active())
        elif pager in ('all', 'ahead off'):
            found.update(run.again())
            found.update(run.hibernated())
        found['size'] = run.size
        return found
    finally:
        run.end()


def middle(key):
    """A sample is summed over all rounds, since some rounds have only a few units."""
    return statistics.mean if key.endswith(('_left_out', '_missed')) else statistics.median


def medians(args, name, pagers):
    runs = {pager: [] for pager in pagers}
    for _ in range(args.rounds):
        for pager in pagers:
            runs[pager].append(one(args, name, pager))
            print(name, pager, runs[pager][-1], file=sys.stderr, flush=True)
    return [(pager, {key: middle(key)(f[key] for f in found) for key in found[0]}) for pager, found in runs.items()]


def idle(args):
    print('| program | MiB | first activation: faults (from the device), without | same requests again: faults (from the device), without | '
          '| record right | four others: faults (from the device), without | | record right |')
    print('| --- |' + ' --- |' * 8, flush=True)
    for name in args.names or NAMES:
        (_, on), (_, off) = medians(args, name, ('all', 'ahead off'))
        cells = [f'{on["first_read_units"]:.0f} ({on["first_device_units"]:.0f}), {off["first_read_units"]:.0f}']
        for key in ('same', 'other'):
            had, without, left = on[f'{key}_read_units'], off[f'{key}_read_units'], on[f'{key}_record_left_out']
            device = on[f'{key}_device_units']
            cells += [f'{had:.0f} ({device:.0f}), {without:.0f}',
                      f'{100 * (had / without - 1):+.0f} % ({100 * (device / without - 1):+.0f} %)'.replace('-', '−'),
                      f'{on[f"{key}_record_missed"] / left:.2f} of {left:.0f}' if left else '']
        print(f'| {name} | {on["size"] / 2 ** 20:.0f} | ' + ' | '.join(cells) + ' |', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='PROGRAM')
    parser.add_argument('--build', type=Path, default=Path('build'))
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--idle', action='store_true')
    args = parser.parse_args()
    args.bin = (args.build / 'test/bin').resolve()
    os.environ['UV_USE_IO_URING'] = '0'      # newer versions of node have an io_uring, and are refused
    if args.idle:
        return idle(args)
    print('| program | pager | MiB | seconds | written units | faults | of these, copies | read ahead | used | second activation: faults | from the device '
          '| after hibernation, same requests: faults | other requests | record right |')
    print('| --- |' + ' --- |' * 13, flush=True)
    for name in args.names or NAMES:
        for pager, mid in medians(args, name, PAGERS):
            known = mid.get('prefetch_used', 0) + mid.get('prefetch_unused', 0)
            used = f'{mid["prefetch_used"] / known:.2f} of {known:.0f}' if known else ''
            print(f'| {name} | {pager} | {mid["size"] / 2 ** 20:.0f} | {mid["seconds"]:.2f} | '
                  + ' | '.join(f'{mid[key]:.0f}' if key in mid else '' for key in ('written', 'read_units', 'spare_units', 'prefetched'))
                  + f' | {used} | ' + ' | '.join(f'{mid[key]:.0f}' if key in mid else '' for key in ('again', 'again_device', 'awake_same', 'awake_other'))
                  + ' | ' + (f'{mid["record_missed"] / mid["record_left_out"]:.2f} of {mid["record_left_out"]:.0f}' if mid.get('record_left_out') else '')
                  + ' |', flush=True)


if __name__ == '__main__':
    main()
