# SPDX-License-Identifier: GPL-2.0-only
"""Many checkpoints and restores at once: alone against together, too many for the device, again and again."""
import statistics

import model
import svg
from exp_isolation import CONTROL, NAMES, ZNS, ZONES
from stage import MIB, Stage

PAPER_MB = {'Ubuntu': 63, 'Redis': 105, 'Nginx': 133, 'MongoDB': 303, 'MySQL': 447}
PROFILE = {ZNS: 'paper-conf', CONTROL: 'conventional'}
QOS = 500


def sizes():
    """MiB; the papers' figures are MB of 10^6 bytes."""
    return {name: round(mb * 1e6 / MIB) for name, mb in PAPER_MB.items()}


def rated(st, checkpoints):
    """Each dump's bandwidth as the product's record has it: bytes over the time from first write to last completion."""
    listed = st.ctl('ls')['checkpoints']
    for d in checkpoints:
        newest = max((c for c in listed if c['container'] == d.name), key=lambda c: c['created_ns'])
        d.rate = d.bytes / MIB / (st.ctl('show', newest['id'])['data_phase_us'] / 1e6)
    return checkpoints


def alone_and_together(st, jobs, rate=lambda st, found: found):
    alone = [rate(st, st.run([job]))[0] for job in jobs('alone')]
    return alone, rate(st, st.run(jobs('together')))


def compare_rows(alone, together, ideal=None):
    rows, bw, lat = [], [], []
    for i, (a, t) in enumerate(zip(alone, together)):
        bw.append(t.rate / a.rate)
        lat.append(t.latency / a.latency)
        rows.append([a.name, f'{a.bytes / MIB:.0f}', f'{a.rate:.1f}', f'{t.rate:.1f}', f'{bw[-1] * 100:.1f} %',
                     f'{a.latency * 1e3:.1f}', f'{t.latency * 1e3:.1f}', f'{lat[-1]:.3f}',
                     *([f'{ideal[i]:.0f}'] if ideal else [])])
    return rows, bw, lat


HEAD = ['', 'MiB', 'alone, MiB/s', 'together, MiB/s', 'of alone', 'alone, ms', 'together, ms', 'latency ratio']


def five(args, rep):
    """Papers, figures 6 and 7: dumps of five containers, 500 MiB/s each, alone and at once; also no faster than that."""
    series = {}
    capped = {'qos-max': QOS}
    for kind, flush, cap in ((ZNS, 'zones', {}), (ZNS, 'device', {}), (CONTROL, 'zones', {}), (ZNS, 'zones', capped),
                             (CONTROL, 'zones', capped)):
        with Stage(args, PROFILE[kind], ZONES, env={'ZNS_EMU_FLUSH': flush}) as st:
            def jobs(to):
                return [st.dump(name, mib, QOS, to=f'{to}-{name}', seed=i + 1, **cap)
                        for i, (name, mib) in enumerate(sizes().items())]

            alone, together = alone_and_together(st, jobs, rated)
            wall = st.last_wall_s
        rows, bw, lat = compare_rows(alone, together)
        if flush == 'device':
            rep.heading(f'Dump, {NAMES[kind]}, on a device with a single flush for all zones')
            rep.table(HEAD, rows)
            rep.text('The same with what NVMe has (`ZNS_EMU_FLUSH=device`), on a drive whose write cache is volatile: the '
                     'flush of each commit programs every zone\'s incomplete unit, a whole unit\'s time each, and again '
                     'when it is full, and waits for all buffers. The worst latency is '
                     f'{max(lat):.3f} of alone. A drive with protection against loss of power has nothing to flush.')
            continue
        rep.heading(f'Dump, {NAMES[kind]}' + (f', each no faster than {QOS} MiB/s' if cap else ''))
        rep.table(HEAD, rows)
        if cap:
            rep.text('As in the papers, where one dump alone does not get all that the drive can do (`--zns-qos-max`).')
            if kind == ZNS:
                rep.aim(f'five dumps at once, capped at {QOS} MiB/s: bandwidth of alone, the worst', min(bw), '>=', 0.97)
            else:
                rep.control(f'five dumps at once, conventional, capped at {QOS} MiB/s: bandwidth of alone, the worst', min(bw), '<', 0.7)
            continue
        rep.text('Bandwidth: page bytes over the data phase, as the checkpoint\'s record has it; latency: from the '
                 'request to the '
                 f'durable commit. All five at once took {wall:.1f} s of wall time.')
        series[f'alone, {kind}'] = [a.latency for a in alone]
        series[f'together, {kind}'] = [t.latency for t in together]
        if kind == ZNS:
            rep.aim('five dumps at once: bandwidth of alone, the worst', min(bw), '>=', 0.97)
            rep.aim('five dumps at once: latency over alone, the worst', max(lat), '<=', 1.03, 1.12)
            rep.aim('five dumps at once: latency over alone, the largest', lat[-1], '<=', 1.03)
        else:
            rep.control('five dumps at once, conventional: bandwidth of alone, the worst', min(bw), '<', 0.7)
    rep.text('At its commit a dump makes only the zones that it wrote durable (the emulator can do that), and the record in '
             'the log by a durable write: both cost its own dies and one of the log.')
    svg.bars(rep.file('five-dumps.svg'), 'checkpoint latency', 's of model time', list(sizes()), series)
    rep.plot('five-dumps.svg')


def restore_ideal(st, containers, names):
    """Max-min fair rates of restores at once: a restore reads all of its groups alike, a channel carries 800 MiB/s."""
    groups = {c['container']: c['groups'] for c in st.ctl('ls')['checkpoints'] if c['container'] in containers}
    table = {g['id']: g['channel'] for g in st.ctl('groups')['groups']}
    flows, capacity = {}, {}
    for name in names:
        mine, parts = groups[name], {}
        for g in mine:
            for r in (('die', g), ('channel', table[g])):
                parts[r] = parts.get(r, 0) + 1 / len(mine)
                capacity[r] = 400 if r[0] == 'die' else 800
        flows[name] = (1e9, parts)
    return model.max_min_network(flows, capacity)


def restores(args, rep):
    """The same five, restored alone and at once; after static and after dynamic allocation; beside dumps."""
    found = {}
    for kind, alloc in ((ZNS, 'static'), (ZNS, 'dynamic'), (CONTROL, 'static')):
        with Stage(args, PROFILE[kind], ZONES) as st:
            mib = sizes()
            for i, (name, m) in enumerate(mib.items()):     # one after another: dynamic finds all groups idle
                st.run([st.dump(name, m, QOS, seed=i + 1, alloc=alloc)])
            alone, together = alone_and_together(
                st, lambda _: [st.restore(name, seed=i + 1) for i, name in enumerate(mib)])
            ideal = restore_ideal(st, mib, mib) if kind == ZNS else None
            groups = {c['container']: c['groups'] for c in st.ctl('ls')['checkpoints']}
            beside = st.run([st.restore('MySQL', seed=5)] + [st.dump(n, m, QOS, to=f'{n}-again', seed=9)
                                                            for n, m in mib.items() if n != 'MySQL'])[0]
        rows, bw, lat = compare_rows(alone, together, [ideal[n] for n in mib] if ideal else None)
        rep.heading(f'Restore, {NAMES[kind]}, {alloc} allocation' if kind == ZNS else f'Restore, {NAMES[kind]}')
        rep.table(HEAD + (['fair share while all run, MiB/s'] if ideal else []), rows)
        shared = len([g for g in set(sum(groups.values(), [])) if sum(g in v for v in groups.values()) > 1])
        rep.text(f'Groups that hold more than one of the five: {shared}. MySQL restored beside dumps of the other '
                 'four: '
                 f'{beside.latency * 1e3:.0f} ms, {beside.latency / alone[-1].latency:.2f} of alone.')
        found[kind, alloc] = statistics.mean(lat), beside.latency / alone[-1].latency, [t.latency for t in together]
    rep.aim('a restore beside dumps on other groups: latency over alone', found[ZNS, 'static'][1], '<=', 1.1)
    rep.control('a restore beside dumps, conventional: latency over alone', found[CONTROL, 'static'][1], '>', 1.3)
    rep.aim('restores at once: mean latency ratio, static over dynamic',
            found[ZNS, 'static'][0] / found[ZNS, 'dynamic'][0], '<', 1.0)
    svg.bars(rep.file('five-restores.svg'), 'restore latency, five at once', 's of model time', list(sizes()),
             {f'{kind}, {alloc}': v[2] for (kind, alloc), v in found.items()})
    rep.plot('five-restores.svg')
    rep.text('A restore of 5 groups reads 2,000 MiB/s alone. Five of them ask for more than the channels carry (8 x '
             '800 MiB/s): '
             'the fair share says what is left to each while all run; the larger ones gain when the small ones are '
             'done.')


# ---- more demand than groups ---------------------------------------------------------------------------

def mixes(full):
    """(what, profile, groups, [(start s, MiB, MiB/s asked)])"""
    mib = 256 if full else 64
    together = [(i * 0.0005, mib, QOS) for i in range(7)]
    return [
        ('32 groups for 35', 'paper-conf', 32, together),
        ('18 groups for 25', 'paper-draft-18', 18, together[:5]),
        ('32 groups for 50', 'paper-conf', 32, [(i * 0.0005, mib, QOS) for i in range(10)]),
        ('18 groups for 28, one after another, of several sizes', 'paper-draft-18', 18,
         [(i * 0.1, mib * f / 2, qos) for i, (f, qos) in enumerate(
             ((4, 500), (3, 800), (1, 500), (4, 500), (2, 200), (1, 300)))]),
        ('32 groups for 50, some of which soon end', 'paper-conf', 32,
         [(i * 0.03, mib * f / 2, QOS) for i, f in enumerate((6, 1, 6, 1, 6, 1, 6, 1, 6, 1))]),
        ('32 groups, all of which two want, beside smaller ones', 'paper-conf', 32,
         [(i * 0.05, mib * f / 4, qos) for i, (f, qos) in enumerate(
             ((16, 3200), (3, 200), (6, 500), (10, 1600), (3, 300), (12, 3200)))]),
        ('18 groups, all of which two want, beside smaller ones', 'paper-draft-18', 18,
         [(i * 0.05, mib * f / 4, qos) for i, (f, qos) in enumerate(
             ((16, 1800), (3, 200), (6, 500), (6, 1000), (3, 300), (8, 1800)))]),
    ]


# A broker each, linked with other rules (bench.mk, plain_share.c): the controls of the shipped ones.
RULES = {
    'shipped': None,
    'equal parts': 'plain',
    'equal parts until they sum to the rate': 'parts',
    'shipped choice, nothing gained later': 'choice',
    'equal parts, groups gained later': 'gain',
}


class Shared:
    """What dumps got that were run together: (dump, rate asked, fair rate) each, and how they did."""

    def __init__(self, args, profile, groups, jobs, rule=None):
        ends = model.max_min_ends(jobs, groups * 100)
        with Stage(args, profile, ZONES, broker=rule and f'share-{rule}') as st:
            self.alone = st.run([st.dump('alone', round(jobs[0][1]), QOS)])[0]
            st.ctl('rm', '--container', 'alone')
            found = st.run([st.dump(f'c{i}', round(mib), qos, seed=i + 1, start_s=start)
                            for i, (start, mib, qos) in enumerate(jobs)])
            self.held = {c['container']: c['groups'] for c in st.ctl('ls')['checkpoints']}
            rated(st, found)
        self.dumps = [(d, mib / (end - start)) for d, end, (start, mib, _) in zip(found, ends, jobs)]
        self.least = min(d.mibps / fair for d, fair in self.dumps)
        self.least_data = min(d.rate / fair for d, fair in self.dumps)
        self.mean = statistics.mean(d.rate / fair for d, fair in self.dumps)
        self.total = max(ends) / max(d.end for d in found)

    def shared_groups(self, dump):
        return [g for g in self.held[dump.name] if sum(g in v for v in self.held.values()) > 1]


def demand(args, rep):
    """Dumps ask for more than the device gives: what part of its max-min fair share does each get at any time, and what would it get by
    simpler rules?"""
    rows, summary, beside = [], [], []
    for what, profile, groups, jobs in mixes(args.full):
        found = {name: Shared(args, profile, groups, jobs, rule) for name, rule in RULES.items()}
        shipped = found['shipped']
        for (d, fair), (start, mib, qos) in zip(shipped.dumps, jobs):
            rows.append([what, d.name, f'{start:.2f}', f'{mib:.0f}', qos, len(shipped.held[d.name]),
                         len(shipped.shared_groups(d)), f'{d.mibps:.0f}', f'{fair:.0f}', f'{d.mibps / fair * 100:.1f} %',
                         f'{d.rate / fair * 100:.1f} %'])
        summary.append([what, f'{shipped.least * 100:.1f} %', f'{shipped.least_data * 100:.1f} %',
                        f'{shipped.total * 100:.1f} %', f'{shipped.alone.mibps:.0f}'])
        beside += [[what, name, f'{s.least * 100:.1f} %', f'{s.least_data * 100:.1f} %', f'{s.mean * 100:.1f} %',
                    f'{s.total * 100:.1f} %', max(len(g) for g in s.held.values())] for name, s in found.items()]
        rep.aim(f'{what}: the least share, of the max-min fair one', shipped.least, '>=', 0.95)
        rep.aim(f'{what}: the same of the data phase, without the commit', shipped.least_data, '>=', 0.95)
    rep.text('Admission "share". A dump\'s rate is its bytes over its time from admission to commit, and beside it over '
             'its data phase alone; the commit is a manifest and flushes of the whole device, of which every dump in '
             'the table does '
             'some while the others write. Fair is what it would have if at every moment all that run had their max-min '
             'fair shares of all groups\' bandwidth, nobody more than asked.')
    rep.text('A later dump takes its groups one here and one there, until it has its fair share and as long as others '
             'keep theirs; a group\'s writers get equal parts of it. The weights of those who were there first follow '
             'what their zones still take.')
    rep.table(['', 'least share', 'of the data phase', 'all together, of ideal', 'one alone, MiB/s'], summary)
    rep.table(['', 'dump', 'begins, s', 'MiB', 'asked, MiB/s', 'groups of it', 'of these shared', 'MiB/s', 'fair, MiB/s',
               'of fair', 'data phase, of fair'], rows)
    rep.heading('Beside plainer rules')
    rep.text('The same dumps with brokers that share by other rules (`plain_share.c`, Documentation/inside/sharing.md). A group\'s '
             'writers get equal parts of it under all of them; the rules choose the groups.')
    rep.table(['', 'rule', 'least share', 'of the data phase', 'mean of the data phases', 'all together, of ideal',
               'most groups of one'], beside)


# ---- again and again -----------------------------------------------------------------------------------

def periodic(args, rep):
    """One container checkpointed again and again, the last five kept."""
    rounds, keep, mib = (50 if args.full else 8), 5 if args.full else 2, 96 if args.full else 40
    for kind in (ZNS, CONTROL):
        ids, rate, zones, active, wasted = [], [], [], [], []
        with Stage(args, PROFILE[kind], ['--zones', '128', '--max-active', '24']) as st:
            for n in range(rounds):
                d = st.run([st.dump('service', mib, QOS, to=f'ck{n}', seed=n + 1)])[0]
                rate.append(d.mibps)
                ids = [c['id'] for c in sorted(st.ctl('ls')['checkpoints'], key=lambda c: c['created_ns'])]
                for old in ids[:-keep]:
                    st.ctl('rm', old)
                table = st.ctl('zones')['zones']
                zones.append(len({z for c in st.ctl('ls')['checkpoints'] for z in c['zones']}))
                active.append(sum(z['state'] in ('open', 'closed') for z in table))
                wasted.append(st.ctl('status')['bytes_wasted'] / MIB)
        first, last = rate[keep:keep + 5], rate[-5:]
        series = {'MiB/s / 10': list(enumerate(r / 10 for r in rate)), 'zones held': list(enumerate(zones)),
                  'zones active': list(enumerate(active))}
        svg.lines(rep.file(f'periodic-{kind}.svg'), f'checkpoint after checkpoint, {NAMES[kind]}', 'checkpoint', '',
                  series)
        rep.heading(NAMES[kind])
        rep.table(['checkpoints', 'MiB each', 'kept', 'MiB/s min / median / max', 'zones held max', 'zones active max',
                   'wasted MiB max / last'],
                  [[rounds, mib, keep, f'{min(rate):.0f} / {statistics.median(rate):.0f} / {max(rate):.0f}', max(zones),
                    max(active), f'{max(wasted):.0f} / {wasted[-1]:.0f}']])
        rep.plot(f'periodic-{kind}.svg')
        if kind == ZNS:
            rep.aim('periodic checkpoints: last five over the first five with full retention, MiB/s',
                    statistics.mean(last) / statistics.mean(first), '>=', 0.98)
            rep.aim('periodic checkpoints: zones held at the end over half way',
                    zones[-1] / max(1, zones[rounds // 2]), '<=', 1.25)


# ---- N zones -------------------------------------------------------------------------------------------

def scaling(args, rep):
    """N zones against N times one zone, in model time and, with the timing model off, in wall time."""
    rows, base, worst = [], 0, 1.0
    each = 64 if args.full else 32
    with Stage(args, 'paper-conf', ZONES) as st:
        for n in (1, 2, 5, 8, 16):
            d = st.run([st.dump(f'n{n}', each * n, 100 * n)])[0]
            held = next(c for c in st.ctl('ls')['checkpoints'] if c['container'] == f'n{n}')
            data = st.ctl('show', held['id'])['data_phase_us'] / 1e6
            rate = each * n / data
            base = base or rate
            worst = min(worst, rate / n / base)
            rows.append([n, len(held['groups']), f'{rate:.1f}', f'{100 * n}', f'{rate / n / base * 100:.2f} %',
                         f'{d.mibps:.1f}'])
    runs = 5 if args.full else 1
    with Stage(args, 'paper-conf', ['--zones', '160', '--timing', 'off'], wall=True) as st:
        limit = [disk_limit(st.dir / 'raw', 512) for _ in range(runs)]
        for row in rows:
            n, got = row[0], []
            for k in range(runs):
                st.run([st.dump(f'w{n}', each * n if n > 4 else 256, 100 * n, to=f'w{n}-{k}')])
                held = st.ctl('ls')['checkpoints'][-1]
                got.append(held['bytes'] / MIB / (st.ctl('show', held['id'])['data_phase_us'] / 1e6))
                st.ctl('rm', held['id'])
            row.append(f'{statistics.median(got):.0f}')
    rep.table(['zones', 'groups', 'model, MiB/s', 'ideal, MiB/s', 'of N x one', 'model, with admission and commit',
               'wall, timing off, MiB/s'], rows)
    rep.text(f'The machine\'s own limit: {statistics.median(limit):.0f} MiB/s for 1 MiB writes past the page cache, '
             'one after '
             f'another. Wall time: medians of {runs}.')
    rep.aim('N zones give N times one zone, the worst N of 1, 2, 5, 8, 16', worst, '>=', 0.97)


def disk_limit(path, mib):
    import mmap
    import os
    import time
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    block = mmap.mmap(-1, MIB)
    block.write(os.urandom(MIB))
    os.posix_fallocate(fd, 0, mib * MIB)
    start = time.monotonic()
    for i in range(mib):
        os.pwrite(fd, block, i * MIB)
    took = time.monotonic() - start
    os.close(fd)
    path.unlink()
    return mib / took
