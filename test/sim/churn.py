#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""How full a store on an ordinary disk gets, by the size of its zones and by who shares them.

Checkpoints come and go at random. Each goes to zones of one size, by one or several streams. With `tails` the last
zone of a stream may continue one that others began; else a zone belongs to one checkpoint. A zone is free when all of
its checkpoints are gone, and nothing is ever moved, so the write amplification is 1. Printed is the part of the space that is live whenever a
checkpoint does not fit.

With --reuse a checkpoint, in units of so many KiB and a manifest of 8 KiB, goes where others were removed, as znsd's
small ones do on a disk: to the smallest place that takes what is left of it, else to an empty zone, else to the largest.

    churn.py [--size MIB] [--times N] [--zones MIB,…] [--streams N,…] [--reuse KIB,…] [MIX …]
"""
import argparse
import math
import random

MIB = 1 << 20
MIXES = {'one': (44 * MIB, 44 * MIB), 'all': (100 << 10, 1 << 30), 'medium': (MIB, 32 * MIB),
         'gate': (4 * MIB, 10 * MIB), 'small': (100 << 10, MIB)}


class Store:
    def __init__(self, size, zone, streams, tails):
        self.zone, self.streams, self.tails = zone, streams, tails
        self.free = list(range(size // zone))
        self.users, self.fill, self.begun = {}, {}, []

    def take(self, left):
        """Finds the zone for the rest of a stream: of other streams' zones the fullest one with room for all of it."""
        if self.tails and left < self.zone:
            fits = [z for z in self.begun[-64:] if self.zone - self.fill[z] >= left]
            if fits:
                best = max(fits, key=self.fill.get)
                self.begun.remove(best)
                return best
        if self.free:
            z = self.free.pop()
            self.users[z] = self.fill[z] = 0
            return z
        if self.tails and self.begun:
            best = min(self.begun, key=self.fill.get)
            self.begun.remove(best)
            return best
        return None

    def put(self, size):
        """Returns the zones of a checkpoint; None: it does not fit."""
        uses, n = [], max(1, min(self.streams, size // self.zone))
        for part in (size // n + (i < size % n) for i in range(n)):
            while part:
                z = self.take(part)
                if z is None:
                    self.drop(uses)
                    return None
                b = min(part, self.zone - self.fill[z])
                self.fill[z] += b
                self.users[z] += 1
                uses.append(z)
                part -= b
        self.begun += [z for z in dict.fromkeys(uses) if self.tails and self.fill[z] < self.zone]
        return uses

    def drop(self, uses):
        for z in uses:
            self.users[z] -= 1
            if not self.users[z]:
                del self.users[z], self.fill[z]
                self.free.append(z)
                if z in self.begun:
                    self.begun.remove(z)


class Places:
    """Zones with places: (start, end) of what is free in them."""
    def __init__(self, size, zone, unit):
        self.zone, self.unit = zone, unit
        self.empty = list(range(size // zone))
        self.places = {}

    def find(self, taken, run, rest):
        fits = most = None
        for z, free in self.places.items():
            for a, b in free if z not in taken else ():
                if b - a >= rest and (not fits or b - a < fits[2] - fits[1]):
                    fits = z, a, b
                if b - a >= run and (not most or b - a > most[2] - most[1]):
                    most = z, a, b
        if not fits and self.empty:
            z = self.empty.pop()
            self.places[z] = [(0, self.zone)]
            return z, 0, self.zone
        return fits or most

    def put(self, size):
        tail = size % self.unit
        runs = [self.unit] * (size // self.unit) + [-(-tail // 4096) * 4096] * bool(tail) + [8192]
        uses, at = [], None
        while runs:
            if at and at[2] - at[1] >= runs[0]:
                at[1] += runs.pop(0)
                continue
            found = self.find({u[0] for u in uses}, runs[0], sum(runs))
            if not found:
                self.drop([(z, a, p) for z, p, _, a in uses if p > a], taken=uses)
                return None
            at = [found[0], found[1], found[2], found[1]]
            uses.append(at)
            self.places[at[0]].remove(found[1:])
        self.drop([], taken=[[z, p, b, p] for z, p, b, _ in uses])
        return [(z, a, p) for z, p, _, a in uses if p > a]

    def drop(self, uses, taken=()):
        """Releases uses, and zones taken beyond them."""
        for z, a, b in [*uses, *((z, p, b) for z, p, b, _ in taken)]:
            free = self.places[z]
            for c, d in [f for f in free if f[1] == a or f[0] == b]:
                free.remove((c, d))
                a, b = min(a, c), max(b, d)
            if (a, b) == (0, self.zone):
                del self.places[z]
                self.empty.append(z)
            elif a < b:
                free.append((a, b))


def churn(mix, size, times, store):
    rnd = random.Random(1)
    low, high = MIXES[mix]
    high = max(low, min(high, size // 50))
    live, written, held, full = [], 0, 0, []
    while written < times * size:
        want = int(math.exp(rnd.uniform(math.log(low), math.log(high))))
        uses = store.put(want)
        if uses is None:
            full.append(held / size)
        while uses is None:
            i = rnd.randrange(len(live))
            live[i], live[-1] = live[-1], live[i]
            gone, zones = live.pop()
            held -= gone
            store.drop(zones)
            uses = store.put(want)
        live.append((want, uses))
        held += want
        written += want
    return full


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--size', type=int, default=4096)
    ap.add_argument('--times', type=float, default=5)
    ap.add_argument('--zones', default='1,2,4')
    ap.add_argument('--streams', default='1,2,4')
    ap.add_argument('--reuse', default='')
    ap.add_argument('mix', nargs='*', default=['one', 'all', 'medium', 'gate'])
    a = ap.parse_args()
    for unit in map(int, filter(None, a.reuse.split(','))):
        for mix in a.mix:
            for zone in map(float, a.zones.split(',')):
                f = churn(mix, a.size * MIB, a.times, Places(a.size * MIB, int(zone * MIB), unit << 10))
                print(f'{mix:8}{zone:6g}  units of {unit} KiB  {100 * sum(f) / len(f):5.1f} {100 * min(f):5.1f}')
    if a.reuse:
        return
    print('mix     zone  streams  zones of one  last zone shared   (live when full: mean, least)')
    for mix in a.mix:
        for zone in map(float, a.zones.split(',')):
            for streams in map(int, a.streams.split(',')):
                cell = []
                for tails in False, True:
                    f = churn(mix, a.size * MIB, a.times, Store(a.size * MIB, int(zone * MIB), streams, tails))
                    cell.append(f'{100 * sum(f) / len(f):5.1f} {100 * min(f):5.1f}' if f else '    -     -')
                print(f'{mix:8}{zone:6g}{streams:7}  {cell[0]:>13}{cell[1]:>18}')


if __name__ == '__main__':
    main()
