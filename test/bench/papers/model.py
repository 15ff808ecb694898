# SPDX-License-Identifier: GPL-2.0-only
"""What the timing model's parameters say would be ideal: nothing here is measured."""

PAPER = {'dies': 32, 'channels': 8, 'die_write': 100, 'die_read': 400, 'channel': 800}


def conventional_write(controller=1000, gc_every=1024, gc_stall_s=0.1):
    """MiB/s through one queue that stops for garbage collection."""
    return gc_every / (gc_every / controller + gc_stall_s)


def max_min(demands, capacity):
    """Shares of one resource: nobody gets more than asked, nobody could get more without taking from a poorer one."""
    share, left, n = {}, capacity, len(demands)
    for who, want in sorted(demands.items(), key=lambda d: d[1]):
        share[who] = min(want, left / n)
        left -= share[who]
        n -= 1
    return share


def max_min_ends(jobs, capacity):
    """
    jobs: [(start s, MiB, MiB/s asked)]: when each is ready if at every moment all that run have their max-min fair
    shares of one resource.
    """
    now, left, end = 0.0, {i: mib for i, (_, mib, _) in enumerate(jobs)}, {}
    while left:
        rate = max_min({i: jobs[i][2] for i in left if jobs[i][0] <= now}, capacity)
        step = min([left[i] / r for i, r in rate.items()] + [jobs[i][0] - now for i in left if jobs[i][0] > now])
        now += step
        for i, r in rate.items():
            left[i] -= r * step
            if left[i] < 1e-6:
                end[i] = now
                del left[i]
    return [end[i] for i in range(len(jobs))]


def max_min_network(flows, capacity):
    """
    flows: {who: (demand, {resource: part of the flow that crosses it})}; capacity: {resource: MiB/s}. All rates grow
    together until a resource is full or a demand met; those concerned stop, the others go on.
    """
    rate = {who: 0.0 for who in flows}
    growing, left = set(flows), dict(capacity)
    while growing:
        load = {r: sum(flows[w][1].get(r, 0) for w in growing) for r in left}
        step = min([left[r] / load[r] for r in left if load[r] > 1e-12] + [flows[w][0] - rate[w] for w in growing])
        for w in growing:
            rate[w] += step
        for r in left:
            left[r] -= step * load[r]
        full = {r for r in left if load[r] > 1e-12 and left[r] < 1e-6}
        growing = {w for w in growing if rate[w] < flows[w][0] - 1e-9 and not any(r in full for r in flows[w][1])}
    return rate
