# SPDX-License-Identifier: GPL-2.0-only
"""
Policies that divide DRAM between the blocks of several containers, for policy.py: who is dropped when there is no room, and what
is read before it is asked for.

A policy sees what a pager sees: faults, and that a block was used if its ages show that. With `ages='all'` they show every use
within a request's time (sampling by eviction, DAMON); with 'writes' only writes (the kernel's write scan) and faults. Time is
counted in steps of the simulation.
"""
from collections import OrderedDict, defaultdict

IDLE = 10           # steps without a request after which a container is idle
CHAIN = 8           # blocks that Markov or read-ahead fetch at a fault
GATE = 0.5          # least accuracy of a record that is used
KEEP = 3            # activations that a block stays in the record without being seen (ages of writes only)


class GlobalLru:
    """One list of all blocks."""

    def __init__(self, capacity, owner, ages='all'):
        self.capacity, self.owner, self.ages = capacity, owner, ages
        self.list = OrderedDict()
        self.now = 0
        self.ahead = set()      # fetched and not used yet
        self.fetched = self.used = 0

    # what policy.py calls

    def has(self, block):
        return block in self.list

    def begin(self, container, now):
        """A container gets a request."""
        self.now = now

    def hit(self, block, written):
        if block in self.ahead:
            self.ahead.discard(block)
            self.used += 1
        if written or self.ages == 'all':
            self.refresh(block)

    def load(self, block, fault):
        """A fault, or a block that is new."""
        self.make_room(self.owner[block])
        self.insert(block)

    # what others change

    def refresh(self, block):
        self.list.move_to_end(block)

    def insert(self, block):
        self.list[block] = self.now

    def victim(self, container, prefetch):
        return next(iter(self.list))

    def remove(self, block):
        del self.list[block]

    def make_room(self, container, prefetch=False):
        """False: there is no room for a prefetch."""
        while self.size() >= self.capacity:
            block = self.victim(container, prefetch)
            if block is None:
                return False
            self.remove(block)
            if block in self.ahead:
                self.ahead.discard(block)
                self.dropped_unused(block)
        return True

    def size(self):
        return len(self.list)

    def dropped_unused(self, block):
        pass

    def fetch(self, block):
        """Prefetches a block; False: there is no room."""
        if self.has(block):
            return True
        if not self.make_room(self.owner[block], prefetch=True):
            return False
        self.insert(block)
        self.ahead.add(block)
        self.fetched += 1
        return True


class Copies(GlobalLru):
    """What a pager without any source of ages sees: faults alone. 1 / @part of the room holds copies of what went out last; a fault
    on one of these reads nothing. Without @part it is first in, first out."""

    def __init__(self, capacity, owner, part=None):
        self.kept = max(8, capacity // part) if part else 0
        super().__init__(capacity - self.kept, owner, ages='faults')
        self.copies = OrderedDict()

    def hit(self, block, written):
        pass

    def remove(self, block):
        super().remove(block)
        self.copies[block] = True
        while len(self.copies) > self.kept:
            self.copies.popitem(last=False)

    def load(self, block, fault):
        if self.copies.pop(block, False):
            self.used += 1
        super().load(block, fault)


class Mq(GlobalLru):
    """Multi-Queue: eight lists by how often a block was used; who is not used for a lifetime goes down one."""

    LIFETIME = 200      # steps

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.queue = [OrderedDict() for _ in range(8)]
        self.count, self.ghost = {}, OrderedDict()
        self.level, self.expires = {}, {}

    def has(self, block):
        return block in self.level

    def size(self):
        return len(self.level)

    def place(self, block, level):
        self.queue[level][block] = True
        self.level[block] = level
        self.expires[block] = self.now + self.LIFETIME

    def begin(self, container, now):
        self.now = now
        for level in range(1, 8):
            while self.queue[level]:
                block = next(iter(self.queue[level]))
                if self.expires[block] >= now:
                    break
                del self.queue[level][block]
                self.place(block, level - 1)

    def refresh(self, block):
        del self.queue[self.level[block]][block]
        self.count[block] += 1
        self.place(block, min(7, self.count[block].bit_length() - 1))

    def insert(self, block):
        self.count[block] = self.ghost.pop(block, 0) + 1
        self.place(block, min(7, self.count[block].bit_length() - 1))

    def victim(self, container, prefetch):
        return next(iter(next(q for q in self.queue if q)))

    def remove(self, block):
        del self.queue[self.level.pop(block)][block]
        self.ghost[block] = self.count.pop(block)
        if len(self.ghost) > 2 * self.capacity:
            self.ghost.popitem(last=False)


class PerContainer(GlobalLru):
    """A list for each container. Idle containers shrink first, the longest idle one before others; then the oldest block goes."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.lists = defaultdict(OrderedDict)
        self.last = {}          # container: step of its last request
        self.resident = 0

    def has(self, block):
        return block in self.lists[self.owner[block]]

    def size(self):
        return self.resident

    def begin(self, container, now):
        self.now = now
        self.last[container] = now

    def refresh(self, block):
        blocks = self.lists[self.owner[block]]
        blocks[block] = self.now
        blocks.move_to_end(block)

    def insert(self, block):
        self.lists[self.owner[block]][block] = self.now
        self.resident += 1

    def remove(self, block):
        del self.lists[self.owner[block]][block]
        self.resident -= 1

    def victim(self, container, prefetch):
        full = [c for c, blocks in self.lists.items() if blocks]
        idle = [c for c in full if c != container and self.now - self.last.get(c, -IDLE - 1) > IDLE]
        if idle:
            return next(iter(self.lists[min(idle, key=lambda c: self.last.get(c, -1))]))
        if not prefetch:
            return next(iter(self.lists[min(full, key=lambda c: next(iter(self.lists[c].values())))]))
        # out of the container's own share, which may have to come back from the largest one, and not what has just been used
        active = {c for c in full if c != container} | {container}
        largest = max(full, key=lambda c: len(self.lists[c]))
        share = self.capacity // len(active)
        if len(self.lists[container]) < share < len(self.lists[largest]):
            container = largest
        block = next(iter(self.lists[container]), None)
        return None if block is None or self.lists[container][block] == self.now else block


class Sequential(PerContainer):
    """The next blocks behind a fault."""

    def load(self, block, fault):
        super().load(block, fault)
        for n in range(block + 1, block + 1 + CHAIN):
            if not fault or self.owner.get(n) != self.owner[block] or not self.fetch(n):
                break


class Chains:
    """After each fault, the blocks that followed it last time. In front of a class that decides who is dropped."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.next, self.before, self.tail = {}, {}, {}

    def load(self, block, fault):
        super().load(block, fault)
        self.known = bool(fault and self.chain(block))

    def chain(self, block):
        """How many it fetched."""
        container, before = self.owner[block], self.fetched
        tail = self.tail.get(container)
        if tail is not None and tail != block:
            self.next[tail] = block
            self.before[block] = tail
        for _ in range(CHAIN):
            after = self.next.get(block)
            if after is None or not self.fetch(after):
                break
            block = after
        self.tail[container] = block
        return self.fetched - before

    def dropped_unused(self, block):
        before = self.before.pop(block, None)
        if before is not None and self.next.get(before) == block:
            del self.next[before]


class Streams:
    """Prefetches as many blocks above a fault as were used in this step right below it; used for faults that chains do not predict, if
    there are chains. The last prefetched block triggers the next prefetch; fewer are fetched while less than half of them are used.
    """

    LONGEST, BEGIN, STEP = 32, 8, 0.5

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.came, self.ends, self.longest = {}, set(), self.BEGIN
        self.known = False

    def insert(self, block):
        super().insert(block)
        self.came[block] = self.now

    def hit(self, block, written):
        super().hit(block, written)
        if block in self.ends:
            self.ends.discard(block)
            self.longest = min(self.longest + self.STEP, self.LONGEST)
            self.stream(block)

    def load(self, block, fault):
        super().load(block, fault)
        if fault and not self.known:
            self.stream(block)

    def stream(self, block):
        run, owner, end = 0, self.owner[block], None
        while run < self.LONGEST and self.came.get(block - run - 1) == self.now and self.owner.get(block - run - 1) == owner:
            run += 1
        for n in range(block + 1, block + 1 + min(run, int(self.longest))):
            if self.owner.get(n) != owner or self.has(n) or not self.fetch(n):
                break
            end = n
        if end is not None:
            self.ends.add(end)

    def dropped_unused(self, block):
        super().dropped_unused(block)
        if block in self.ends:
            self.ends.discard(block)
            self.longest = max(self.longest - self.STEP, 1)


class GlobalMarkov(Chains, GlobalLru):
    pass


class GlobalStreams(Streams, GlobalLru):
    pass


class GlobalMarkovStreams(Streams, Chains, GlobalLru):
    pass


class MqMarkov(Chains, Mq):
    """What is fetched ahead enters one list higher, or it is the first to be dropped."""

    def fetch(self, block):
        if not self.has(block) and block not in self.ghost:
            self.ghost[block] = 1
        return super().fetch(block)


class Markov(Chains, PerContainer):
    pass


class Record(PerContainer):
    """When an idle container faults, the blocks of its last activation are prefetched, if such records were right before."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.record = defaultdict(set)      # blocks of the last activation
        self.seen = defaultdict(set)        # blocks of this activation
        self.age = {}
        self.accuracy = {}
        self.waiting = {}                   # containers without a fault in this activation so far

    def begin(self, container, now):
        if now - self.last.get(container, -IDLE - 1) > IDLE:
            self.turn(container)
        super().begin(container, now)

    def turn(self, container):
        """An activation has ended; the next one begins."""
        seen, record = self.seen[container], self.record[container]
        if record:
            right = len(record & seen) / len(record)
            self.accuracy[container] = (self.accuracy.get(container, right) + right) / 2
        if self.ages == 'all':
            self.record[container] = seen
        else:
            for block in seen:
                self.age[block] = 0
            for block in record - seen:
                self.age[block] = self.age.get(block, 0) + 1
            self.record[container] = {b for b in record | seen if self.age.get(b, 0) < KEEP}
        self.seen[container] = set()
        self.waiting[container] = True

    def gate(self, container):
        # ages of writes do not tell whether a record was right
        return self.ages != 'all' or self.accuracy.get(container, 0) >= GATE

    def hit(self, block, written):
        super().hit(block, written)
        if written or self.ages == 'all':
            self.seen[self.owner[block]].add(block)

    def load(self, block, fault):
        super().load(block, fault)
        container = self.owner[block]
        self.seen[container].add(block)
        if fault and self.waiting.pop(container, False) and self.gate(container):
            for n in sorted(self.record[container]):
                if not self.fetch(n):
                    break


class Auto(Record, Markov):
    """The record when an activation begins, Markov at the faults that are left."""

    def load(self, block, fault):
        Record.load(self, block, fault)     # Markov's is the next one there


POLICIES = (        # from the simplest to the one with most parts
    ('global LRU', GlobalLru, {}),
    ('global LRU + Markov', GlobalMarkov, {}),
    ('global LRU + streams', GlobalStreams, {}),
    ('global LRU + Markov + streams', GlobalMarkovStreams, {}),
    ('MQ', Mq, {}),
    ('MQ + Markov', MqMarkov, {}),
    ('per-container LRU, idle first', PerContainer, {}),
    ('+ sequential, next 8', Sequential, {}),
    ('+ Markov, chain of 8', Markov, {}),
    ('+ record of last activation, gated', Record, {}),
    ('+ record and Markov (auto)', Auto, {}),
    ('ages of writes: global LRU', GlobalLru, {'ages': 'writes'}),
    ('ages of writes: global LRU + Markov', GlobalMarkov, {'ages': 'writes'}),
    ('ages of writes: global LRU + Markov + streams', GlobalMarkovStreams, {'ages': 'writes'}),
    ('ages of writes: MQ', Mq, {'ages': 'writes'}),
    ('ages of writes: MQ + Markov', MqMarkov, {'ages': 'writes'}),
    ('ages of writes: per-container LRU', PerContainer, {'ages': 'writes'}),
    ('ages of writes: + Markov', Markov, {'ages': 'writes'}),
    ('ages of writes: + record', Record, {'ages': 'writes'}),
    ('ages of writes: auto', Auto, {'ages': 'writes'}),
)
