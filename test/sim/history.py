# SPDX-License-Identifier: GPL-2.0-only
"""
What history can say of an activation, for policy.py: each program alone, activations of 20 requests. All that a predictor from
history may know of is what earlier activations used. So no order and no time is in it: what is fetched is there at once.
"""
from collections import OrderedDict

FROM = 4            # the first activation that is counted: those before it are history
NEED = 0.7          # least accuracy
LAST = 8            # activations of which a rule may ask how many used a block


def activations(trace):
    """Blocks that each one's requests used, and those that were there before it."""
    here, found = set(trace.resident), []
    for ticks in trace.activations:
        used = set().union(*(touched for kind, touched, _ in ticks if kind != 'i'))
        every = set().union(*(touched for _, touched, _ in ticks))
        found.append((used, set(here)))
        here |= every
    return found


def in_memory(trace, room):
    """What LRU with room for so many blocks has before each activation."""
    blocks, found = OrderedDict(), []
    for ticks in trace.activations:
        found.append(set(blocks))
        for _, touched, _ in ticks:
            for b in touched:
                blocks[b] = True
                blocks.move_to_end(b)
                if len(blocks) > room:
                    blocks.popitem(last=False)
    return found


def by_rule(n, of):
    """What at least @n of the last @of activations used; of=0: of all."""
    def predict(past):
        count = {}
        for used in past[-of:]:
            for b in used:
                count[b] = count.get(b, 0) + 1
        return {b for b, c in count.items() if c >= n}
    return predict


class Sum:
    def __init__(self):
        self.faults = self.known = self.fetched = self.right = 0

    def reduction(self):
        return self.known / self.faults if self.faults else 0

    def accuracy(self):
        return self.right / self.fetched if self.fetched else 0


def reach(acts, memory, predict):
    """Faults of all activations that a prediction takes away, and how much of what it fetches is used."""
    s, past = Sum(), []
    for (used, there), kept in zip(acts, memory):
        if len(past) >= FROM:
            faults = (used & there) - kept
            fetched = (predict(past) & there) - kept
            s.faults += len(faults)
            s.known += len(faults & fetched)
            s.fetched += len(fetched)
            s.right += len(fetched & used)
        past.append(used)
    return s


def best(acts, memory):
    """The rule that avoids most faults with sufficient accuracy, chosen in hindsight: (sum, n, of); None: there is none."""
    rules = [(n, of) for of in range(1, LAST + 1) for n in range(1, of + 1)]
    sums = [(reach(acts, memory, by_rule(n, of)), n, of) for n, of in rules]
    return max((s for s in sums if s[0].fetched and s[0].accuracy() >= NEED), key=lambda s: s[0].known, default=None)


class Record:
    """
    What a pager can record. It hears only of faults, so it cannot tell whether a unit that it fetched was used. Therefore it
    leaves out a sample, 1 / @each of what it would fetch, each time a different one. A unit that was left out and not missed is
    removed from the record. The share of the sample that was missed decides what is fetched: units with a fault in one activation
    if the share is at least @gates[0], units with faults in more than one if it is at least @gates[1].
    """

    def __init__(self, gates=(0, 0), each=16):
        self.gates, self.each, self.turns = gates, each, 0
        self.heard = {}             # block: 0, or 1: more than once
        self.right = [1.0, 1.0]     # what is not measured is trusted
        self.seen = [[0, 0], [0, 0]]    # of the sample: how many were left out, and how many of these missed

    def predict(self, out):
        """What of @out is fetched."""
        self.turns += 1
        self.sample = {b for b in self.heard.keys() & out if (spread(b) + self.turns) % self.each == 0}
        self.left = self.sample | {b for b in self.heard.keys() & out if self.right[self.heard[b]] < self.gates[self.heard[b]]}
        return self.heard.keys() & out - self.left

    def ended(self, faults):
        for b in self.sample:
            self.seen[self.heard[b]][0] += 1
            self.seen[self.heard[b]][1] += b in faults
        for kind, (left, missed) in enumerate(self.seen):
            if left >= 4:
                self.right[kind] = (self.right[kind] + missed / left) / 2
                self.seen[kind] = [0, 0]
        for b in self.left - faults:
            del self.heard[b]
        for b in faults:
            self.heard[b] = int(b in self.heard)


def spread(block):
    return (block * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 40


def kept(acts, memory, record):
    s = Sum()
    for n, ((used, there), here) in enumerate(zip(acts, memory)):
        out = there - here
        fetched = record.predict(out)
        record.ended((used & out) - fetched)
        if n >= FROM:
            s.faults += len(used & out)
            s.known += len(used & fetched)
            s.fetched += len(fetched)
            s.right += len(used & fetched)
    return s


RULES = (('in the last one', 1, 1), ('in 2 of the last 3', 2, 3), ('in any before', 1, 0))
RECORDS = (('all seen', (0, 0)), ('seen twice', (2, 0)), ('seen twice, gate 0.5', (2, 0.5)),
           ('all seen, gate 0.7', (0.7, 0.7)), ('two gates, 0.7 and 0.5', (0.7, 0.5)))


def table(traces):
    """Two tables: rules that see every use, and records of which a pager is able."""
    names = sorted(traces)
    lines = [['| program | in memory before | faults | ' + ' | '.join('used ' + name for name, _, _ in RULES)
              + f' | best rule of accuracy ≥ {NEED} |', '| --- |' + ' --- |' * 6],
             ['| program | in memory before | ' + ' | '.join(name for name, _ in RECORDS) + ' |', '| --- |' + ' --- |' * 6]]
    for name in names:
        trace = traces[name]
        acts = activations(trace)
        for part in (0, 4, 2):
            memory = in_memory(trace, len(trace.resident) // part) if part else [set()] * len(acts)
            begin = f'| {name} | {f"1/{part}" if part else "nothing"} | '
            sums = [reach(acts, memory, by_rule(n, of)) for _, n, of in RULES]
            top = best(acts, memory)
            lines[0].append(begin + f'{sums[0].faults / (len(acts) - FROM):.0f} | ' + ' | '.join(map(cell, sums)) + ' | '
                            + (f'{cell(top[0])}: {top[1]} of {top[2]}' if top else 'none') + ' |')
            lines[1].append(begin + ' | '.join(cell(kept(acts, memory, Record(gates))) for _, gates in RECORDS) + ' |')
    return '\n'.join(lines[0] + [''] + lines[1])


def cell(s):
    return f'−{100 * s.reduction():.0f} %, {s.accuracy():.2f}' if s.fetched else '0'
