#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
Replays recorded traces (record.py) of several containers in one DRAM that is too small, and compares policies (cache.py).

  policy.py [--traces DIR] [--seeds N] [--report DIR]
  policy.py ages        what ages are worth: each program alone, with a part of its memory
  policy.py bound       what any prediction from history can reach (history.py)
  policy.py selftest

One container is critical: it gets a request in each step. The others are noise, in one of two schedules: `activations` (two of
them are active at a time, for 20 requests, then others), `touches` (one at random gets one request in each step). A trace does
not say in which order a request touches its blocks. So each run is made twice: in the order of addresses, which is the best case
for whatever predicts, and in a random one, the worst case. A miss is a block that has to be read while its container waits;
what is new is none. The first quarter of the steps is not counted.
"""
import argparse
import ctypes
import heapq
import json
import lzma
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import accumulate
from pathlib import Path

import history
from cache import CHAIN, POLICIES, Auto, Copies, GlobalLru, GlobalMarkov, GlobalStreams, Markov, PerContainer, Record

HERE = Path(__file__).resolve().parent
CRITICAL = 'node'
NOISE = ('cached', 'redis', 'java', 'postgres') * 2 + ('scan',)
STEPS = 320
ACTIVE = 2          # noise containers at a time
SCHEDULES = ('activations', 'touches')
ORDERS = ('address', 'random')
SHARES = (4, 8)     # of the footprint that is in DRAM: one quarter, one eighth


class Trace:
    def __init__(self, path):
        t = json.loads(lzma.decompress(path.read_bytes()))
        self.name, self.version, self.blocks = t['program'], t['version'], t['blocks']
        self.resident = list(accumulate(t['resident']))
        self.ticks = [(kind, list(accumulate(touched)), set(accumulate(written))) for kind, touched, written in t['ticks']]
        self.activations, now = [], []
        for tick in self.ticks:
            if tick[0] == 'a' and now:
                self.activations.append(now)
                now = []
            now.append(tick)
        self.activations.append(now)


class Container:
    """A trace from some activation on, again and again, its blocks numbered from @base."""

    def __init__(self, trace, base, first):
        self.trace, self.base = trace, base
        turned = trace.activations[first:] + trace.activations[:first]
        self.activations = [[(touched, written) for kind, touched, written in a] for a in turned]
        self.flat = [tick for a in self.activations for tick in a]
        self.at = 0

    def tick(self):
        tick = self.flat[self.at % len(self.flat)]
        self.at += 1
        return tick


def stage(traces, schedule, order, seed):
    """Owners of blocks, blocks that are there at first, and [(step, container, [(block, written)])]; container 0 is critical."""
    rnd, orders = random.Random(f'{schedule} {seed}'), random.Random(seed)
    owner, resident, containers, base = {}, set(), [], 0
    for c, name in enumerate((CRITICAL,) + NOISE):
        trace = traces[name]
        containers.append(Container(trace, base, rnd.randrange(len(trace.activations))))
        resident.update(base + b for b in trace.resident)
        owner.update((base + b, c) for b in range(trace.blocks))
        base += trace.blocks + 1000     # blocks of different containers are never adjacent
    events = []
    active = {}     # requests left, by noise container
    for step in range(STEPS):
        if schedule == 'activations':
            while len(active) < ACTIVE:
                active[rnd.choice([c for c in range(1, len(containers)) if c not in active])] = 20
            turn = list(active)
            active = {c: left - 1 for c, left in active.items() if left > 1}
        else:
            turn = [rnd.randrange(1, len(containers))]
        for c in [0] + turn:
            touched, written = containers[c].tick()
            blocks = [(containers[c].base + b, b in written) for b in touched]
            if order == 'random':
                orders.shuffle(blocks)
            events.append((step, c, blocks))
    return owner, resident, events


class Count:
    """By container: blocks used, misses, requests."""

    def __init__(self):
        self.uses, self.misses, self.requests = Counter(), Counter(), Counter()

    def mean(self, noise, of):
        """Misses for each of these, the mean of the critical container or of all others: a large request counts like a small one."""
        return statistics.mean(self.misses[c] / of[c] for c in of if of[c] and (c != 0) == noise)

    def figures(self, accuracy):
        return (self.mean(True, self.uses), self.mean(False, self.uses), self.mean(True, self.requests),
                self.mean(False, self.requests), accuracy)


def replay(policy, resident, events):
    """@resident: exists, on zones. Returns what was counted."""
    exists, count = set(resident), Count()
    for step, container, blocks in events:
        policy.begin(container, step)
        counted = step >= STEPS // 4
        count.requests[container] += counted
        for block, written in blocks:
            count.uses[container] += counted
            if policy.has(block):
                policy.hit(block, written)
                continue
            fault = block in exists
            count.misses[container] += counted and fault
            exists.add(block)
            policy.load(block, fault)
    return count


def optimum(capacity, resident, events):
    """Belady's algorithm: evicts the block that is used again last. It knows the future and prefetches nothing."""
    uses = [(step, c, block) for step, c, blocks in events for block, _ in blocks]
    after, last = [0] * len(uses), {}
    for n in range(len(uses) - 1, -1, -1):
        after[n] = last.get(uses[n][2], len(uses))
        last[uses[n][2]] = n
    exists, here, heap, count = set(resident), {}, [], Count()
    for n, (step, c, block) in enumerate(uses):
        counted = step >= STEPS // 4
        count.uses[c] += counted
        if block not in here:
            count.misses[c] += counted and block in exists
            exists.add(block)
            while len(here) >= capacity:
                far, old = heapq.heappop(heap)
                if here.get(old) == -far:
                    del here[old]
        here[block] = after[n]
        heapq.heappush(heap, (-after[n], block))
    for step, c, _ in events:
        count.requests[c] += step >= STEPS // 4
    return count


def run_stage(traces, schedule, order, seed):
    """All policies on one stage: [((schedule, share, order, policy), figures)]."""
    owner, resident, events = stage(traces, schedule, order, seed)
    found = []
    for share in SHARES:
        capacity = len(resident) // share
        for name, policy, named in (('OPT', None, {}),) + POLICIES:
            accuracy = None
            if policy:
                p = policy(capacity, owner, **named)
                count = replay(p, resident, events)
                accuracy = p.used / p.fetched if p.fetched else None
            else:
                count = optimum(capacity, resident, events)
            found.append(((schedule, share, order, name), count.figures(accuracy)))
    return found


def rows(traces, seeds):
    """[{schedule, share, order, policy, noise, critical, faults, accuracy}], means over the seeds."""
    stages = [(traces, schedule, order, seed) for seed in range(seeds) for schedule in SCHEDULES for order in ORDERS]
    found = {}
    with multiprocessing.Pool() as pool:
        for runs in pool.starmap(run_stage, stages, chunksize=1):
            for key, figures in runs:
                found.setdefault(key, []).append(figures)
    out = []
    for (schedule, share, order, name), runs in found.items():
        noise, critical, faults, critical_faults = (statistics.mean(r[i] for r in runs) for i in range(4))
        right = [r[4] for r in runs if r[4] is not None]
        out.append(dict(schedule=schedule, share=share, order=order, policy=name, noise=noise, critical=critical, faults=faults,
                        critical_faults=critical_faults, accuracy=statistics.mean(right) if right else None))
    return out


def judge(table):
    """For each policy its misses for each use, those of noise and the critical container's, averaged over all conditions; the least."""
    cost = {}
    for r in table:
        if r['policy'] != 'OPT':
            cost.setdefault(r['policy'], []).append(r['noise'] + r['critical'])
    means = {name: statistics.mean(values) for name, values in cost.items()}
    return means, min(means.values())


def about(traces):
    """What the traces are like; all figures are means."""
    lines = ['| trace | MiB at first | blocks touched by a request | written | again | new '
             '| touched when left alone |', '| --- |' + ' --- |' * 6]
    for t in sorted(traces.values(), key=lambda t: t.name):
        asked = [x for x in t.ticks if x[0] != 'i']
        sets = [set().union(*(touched for _, touched, _ in a)) for a in t.activations]
        again = statistics.mean(len(a & b) / len(a) for a, b in zip(sets, sets[1:]))
        lines.append(f'| {t.name}: {t.version} | {len(t.resident) / 16:.0f} | {statistics.mean(len(x[1]) for x in asked):.0f} '
                     f'| {statistics.mean(len(x[2]) for x in asked):.0f} | {again:.2f} '
                     f'| {(t.blocks - len(t.resident)) / len(asked):.1f} '
                     f'| {statistics.mean(len(x[1]) for x in t.ticks if x[0] == "i"):.0f} |')
    return '\n'.join(lines) + '\n\n'


def markdown(table):
    keys = sorted({(r['schedule'], r['share'], r['order']) for r in table})
    cell = {(r['policy'], r['schedule'], r['share'], r['order']): r for r in table}
    names = ['OPT'] + [name for name, _, _ in POLICIES]
    means, best = judge(table)
    lines = []
    for schedule in SCHEDULES:
        mine = [k for k in keys if k[0] == schedule]
        lines += ['', f'Schedule `{schedule}`: noise misses / critical misses (accuracy of prefetch: the part of it that was used)', '',
                  '| policy | ' + ' | '.join(f'1/{share}, {order} order' for _, share, order in mine) + ' |',
                  '| --- |' + ' --- |' * len(mine)]
        for name in names:
            cells = []
            for k in mine:
                r = cell[(name, *k)]
                accuracy = '' if r['accuracy'] is None else f' ({r["accuracy"]:.2f})'
                cells.append(f'{r["noise"]:.3f}/{r["critical"]:.3f}{accuracy}')
            lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
    lines += ['', 'Noise misses plus critical misses, mean of all eight columns:', '', '| policy | misses | relative to the best |', '| --- | --- | --- |']
    lines += [f'| {name} | {means[name]:.3f} | {means[name] / best:.2f} |' for name, _, _ in POLICIES]
    return '\n'.join(lines[1:]) + '\n'


# ---- the simulator itself ------------------------------------------------------------------------------

def alone(trace, capacity, policy, **named):
    """Blocks that one program reads from the device, with room for @capacity; and those of which there was a copy."""
    container, orders = Container(trace, 0, 0), random.Random(1)
    events = []
    for step, (touched, written) in enumerate(container.flat):
        blocks = [(b, b in written) for b in touched]
        orders.shuffle(blocks)
        events.append((STEPS + step, 1, blocks))
    p = policy(capacity, {b: 1 for b in range(trace.blocks)}, **named)
    misses = replay(p, set(trace.resident), events).misses[1]
    return misses - p.used, p.used


def ages(traces):
    kinds = [('all uses', GlobalLru, {}), ('writes', GlobalLru, {'ages': 'writes'}), ('faults', Copies, {})]
    kinds += [(f'faults, copies 1/{n}', Copies, {'part': n}) for n in (64, 16, 8)]
    lines = ['| program | room | ' + ' | '.join(name for name, _, _ in kinds) + ' |', '| --- |' + ' --- |' * (len(kinds) + 1)]
    for name in ('cached', 'java', 'node', 'redis'):
        for share in (2, 4):
            found = [alone(traces[name], len(traces[name].resident) // share, policy, **named) for _, policy, named in kinds]
            lines.append(f'| {name} | 1/{share} | ' + ' | '.join(f'{read} + {copies}' if copies else str(read) for read, copies in found) + ' |')
    return '\n'.join(lines)


class PagersChain(GlobalLru):
    """GlobalMarkov by the pager's own code."""

    def __init__(self, capacity, owner, library):
        super().__init__(capacity, owner)
        self.library, self.state, self.next = library, (ctypes.c_uint64 * 8)(), (ctypes.c_uint32 * CHAIN)()

    def load(self, block, fault):
        super().load(block, fault)
        for n in range(self.library.predict_fault(self.state, block, True, CHAIN, self.next) if fault else 0):
            self.fetch(self.next[n])

    def dropped_unused(self, block):
        self.library.predict_unused(self.state, block)


class ChainFirst(GlobalMarkov):
    """All of a chain is known before any of it is fetched, as in the pager: what is dropped for it meanwhile changes nothing."""

    def chain(self, block):
        known, fetch = self.fetch, []
        self.fetch = lambda n: fetch.append(n) or True
        super().chain(block)
        self.fetch = known
        for n in fetch:
            self.fetch(n)


def same_chain():
    """The chain of zns/memory/policy/predict.c and the simulator's have the same misses."""
    with tempfile.TemporaryDirectory() as there:
        subprocess.run(['gcc', '-shared', '-fPIC', '-O1', '-o', f'{there}/predict.so', HERE.parent.parent / 'zns/memory/policy/predict.c'], check=True)
        library = ctypes.CDLL(f'{there}/predict.so')
        trace = Trace(HERE / 'traces' / 'redis.json.xz')
        room = len(trace.resident) // 2
        one, two = ChainFirst(room, {b: 1 for b in range(trace.blocks)}), PagersChain(room, {b: 1 for b in range(trace.blocks)}, library)
        events = [(STEPS + n, 1, [(b, False) for b in touched]) for n, (touched, _) in enumerate(Container(trace, 0, 0).flat)]
        check('misses by the chain of the pager', replay(two, set(trace.resident), events).misses[1],
              replay(one, set(trace.resident), events).misses[1])
        check('blocks that it fetched and that were used', (two.fetched, two.used), (one.fetched, one.used))


def history_selftest():
    """Activations of which it is known what history says: one half comes back each time, the other one never."""
    acts = [(set(range(10)) | set(range(100 * n, 100 * n + 10)), set(range(3000))) for n in range(1, 11)]
    none = [set()] * len(acts)
    for rule, reduction, accuracy in (((1, 1), 0.5, 0.5), ((2, 3), 0.5, 1.0), ((3, 2), 0.0, 0.0)):
        s = history.reach(acts, none, history.by_rule(*rule))
        check(f'what {rule} takes away', (s.reduction(), s.accuracy()), (reduction, accuracy))
    check('the best rule', history.best(acts, none)[0].reduction(), 0.5)
    s = history.reach(acts, [set(range(5))] * len(acts), history.by_rule(2, 3))
    check('faults beside what is in memory', (s.faults, s.known), (6 * 15, 6 * 5))
    check('new memory', history.reach([(used, set()) for used, _ in acts], none, history.by_rule(1, 1)).faults, 0)
    s = history.kept(acts, none, history.Record((2, 0), each=1 << 60))
    check('a record of what was seen twice', (s.reduction(), s.accuracy()), (0.5, 1.0))
    s = history.kept(acts, none, history.Record(each=1))
    check('a record that leaves out all', (s.known, s.fetched), (0, 0))
    different = [({n}, set(range(3000))) for n in range(100)]
    s = history.kept([(set(range(50 * n, 50 * n + 50)), there) for n, (_, there) in enumerate(different)], [set()] * 100,
                     history.Record((0.7, 0.5)))
    check('a record that is never right is not fetched for long', s.fetched < 2 * 50, True)


def check(what, got, want):
    if got != want:
        sys.exit(f'selftest: {what} is {got}, not {want}')


def selftest():
    """Sequences with known results."""
    global STEPS
    STEPS = 4

    def events(*blocks, c=1):
        return [(STEPS + n, c, [(b, False)]) for n, b in enumerate(blocks)]

    owner = {b: 1 for b in range(100)} | {b: 0 for b in range(100, 200)}
    every = set(owner)
    cyclic = [b for _ in range(5) for b in range(4)]
    check('LRU on a loop that is too long', replay(GlobalLru(3, owner), every, events(*cyclic)).misses[1], 20)
    check('OPT on it', optimum(3, every, events(*cyclic)).misses[1], 4 + 5)
    check('LRU on a loop that fits', replay(GlobalLru(4, owner), every, events(*cyclic)).misses[1], 4)
    check('misses of blocks that are new', replay(GlobalLru(4, owner), set(), events(*cyclic)).misses[1], 0)
    # after the second block of a stream no access waits: the last prefetched block triggers the next prefetch
    check('misses of a stream', replay(GlobalStreams(100, owner), every, [(STEPS, 1, [(b, False) for b in range(90)])]).misses[1], 2)
    check('misses of every other block', replay(GlobalStreams(100, owner), every, events(*range(0, 90, 2))).misses[1], 45)
    # two containers of 30 blocks with room for 40 take turns
    turns = [(STEPS + 100 * n, 1, [(b + 40 * (n % 2), False) for b in range(30)]) for n in range(8)]
    owner = {b: b // 40 for b in range(80)}
    turns = [(step, owner[blocks[0][0]], blocks) for step, c, blocks in turns]
    misses = {p: sum(replay(p(40, owner), set(owner), turns).misses.values()) for p in (PerContainer, Record, Markov, Auto)}
    check('misses without a record', misses[PerContainer], 240 - 6 * 10)
    # nothing is known in the first activation, and the record of the second one is not trusted yet
    check('misses with one', misses[Record], 2 * (30 + 20 + 2))
    check('misses with Markov', misses[Markov] < misses[PerContainer] / 2, True)
    check('misses with both', misses[Auto] <= misses[Record], True)
    owner = {b: 1 for b in range(100)} | {b: 0 for b in range(100, 200)}
    lists = PerContainer(10, owner)
    for step in range(40):
        lists.begin(0, step)
        if step == 0:
            lists.begin(1, step)
            for b in range(8):
                lists.load(b, True)
    for b in range(100, 110):
        lists.load(b, True)
    check('blocks of an idle container beside an active one', len(lists.lists[1]), 0)
    history_selftest()
    same_chain()
    print('selftest: passed')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', nargs='?', choices=['selftest', 'ages', 'bound'])
    parser.add_argument('--traces', type=Path, default=HERE / 'traces')
    parser.add_argument('--seeds', type=int, default=2)
    parser.add_argument('--report', type=Path, help='a directory, for report.md and report.json')
    args = parser.parse_args()
    if args.command == 'selftest':
        return selftest()
    traces = {name: Trace(args.traces / f'{name}.json.xz') for name in {CRITICAL, *NOISE}}
    if args.command:
        return print({'ages': ages, 'bound': history.table}[args.command](traces))
    table = rows(traces, args.seeds)
    text = about(traces) + markdown(table)
    if args.report:
        args.report.mkdir(parents=True, exist_ok=True)
        (args.report / 'report.md').write_text(text)
        (args.report / 'report.json').write_text(json.dumps(table, indent=1))
    print(text)


if __name__ == '__main__':
    main()
