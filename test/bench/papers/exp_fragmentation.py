# SPDX-License-Identifier: GPL-2.0-only
"""Shares by weight, of restores that meet on the same dies; and what a scattered checkpoint does to them."""
from stage import Failed, Stage

# Four dies; one is read with 100 MiB/s, so a small checkpoint lasts long enough to be rated. Channels do not bound it.
DIES, READ = 4, 100
DEVICE = ['--zones', '256', '--channels', '2', '--ways', '2', '--timing', 'on', '--die-read-bw', str(READ)]
SETTLED = 0.2           # s after the last has begun: rates are those of all
SAMPLE = 20             # ms


def device(args, options=tuple(DEVICE)):
    return Stage(args, 'default', options)


def parts(st):
    """Of each container's only checkpoint: group -> the part of its pages there."""
    group = {z: g['id'] for g in st.ctl('groups')['groups'] for z in g['zones']}
    found = {}
    for c in st.ctl('ls')['checkpoints']:
        of = {}
        for image in st.ctl('show', c['id'])['images']:
            for s in image['segments']:
                turn = sum(e.get('weight') or 1 for e in s['extents'])
                for e in s['extents']:
                    of[group[e['zone']]] = of.get(group[e['zone']], 0) + s['len'] * (e.get('weight') or 1) / turn
        found[c['container']] = {g: v / sum(of.values()) for g, v in of.items()}
    return found


def together(st, names, weights):
    """Restores at once; MiB/s of each while all of them run."""
    jobs = [st.restore(n, seed=i + 1, sample=SAMPLE, **({'weight': w} if w else {}))
            for i, (n, w) in enumerate(zip(names, weights))]
    done = st.run(jobs)
    start = max(next(s for s, got in d.samples if got) for d in done) + SETTLED
    end = 0.97 * min(d.end for d in done)
    if end < start + 0.2:
        raise Failed(f'too short to be rated: {start:.2f} to {end:.2f} s')
    return [d.within(start, end) for d in done]


def by_weight(rates, dearest, weights):
    """Time that each takes of its dearest die, over its part by weight: 1 for all is exact."""
    time = [r * d for r, d in zip(rates, dearest)]
    return [t / sum(time) * sum(weights) / w for t, w in zip(time, weights)]


def one(args, count, scattered, weights, told):
    with device(args) as st:
        names = [f'tenant-{i + 1}' for i in range(count)]
        all_mib = (640 if args.full else 448) * (2 if count > 4 else 1)
        for i, name in enumerate(names):        # by weight, so that they end at about the same time
            alone = scattered and i == 0
            mib = all_mib * weights[i] // sum(weights) // (DIES if alone else 1)
            st.run([st.dump(name, max(mib, 4), READ if alone else 400, seed=i + 1, stripe='256K' if mib > 64 else '64K')])
        where = parts(st)
        dearest = [max(where[n].values()) for n in names]
        rates = together(st, names, weights if told else [0] * count)
        return rates, by_weight(rates, dearest, weights)


def idle(args):
    """One of two is held by a cap of its own: the other has what it leaves."""
    with device(args) as st:
        for i, name in enumerate(('busy', 'capped')):
            st.run([st.dump(name, 128, 400, seed=i + 1, stripe='256K')])
        jobs = [st.restore('busy', seed=1, sample=SAMPLE, weight=100),
                st.restore('capped', seed=2, sample=SAMPLE, weight=1000, **{'qos-max': 40})]
        done = st.run(jobs)
        start = max(next(s for s, got in d.samples if got) for d in done) + 0.4
        return [d.within(start, 0.97 * done[0].end) for d in done]


# Zones of 16 MiB: a checkpoint has several on each die, of which some can be moved.
AGED = ['--zones', '131', '--zone-size', '16M', '--zone-capacity', '16M', '--channels', '2', '--ways', '2', '--timing', 'on',
        '--die-read-bw', str(READ)]
MIB = 192               # of the scattered checkpoint: 12 zones of 16 MiB, a row of four after another


def age(st, ident, zones):
    """What lies on the last die goes to the first, as compaction does it where a die has no free zone."""
    order = sorted({g for _, g in zones})
    moves = [f'{z}:{order[0]}' for z, g in zones if g == order[-1]]
    st.program('scatter', st.device, ident, *moves)


def zones_of(st, name):
    found = {}
    group = {z: g['id'] for g in st.ctl('groups')['groups'] for z in g['zones']}
    for image in st.ctl('show', ident_of(st, name))['images']:
        for s in image['segments']:
            for e in s['extents']:
                if image['name'].startswith('pages'):
                    found[e['zone']] = group[e['zone']]
    return sorted(found.items())


def ident_of(st, name):
    return next(c['id'] for c in st.ctl('ls')['checkpoints'] if c['container'] == name)


def layout(st, name):
    return st.ctl('show', '--layout', ident_of(st, name))['checkpoints'][0]


def alone(st, name, seed):
    return st.run([st.restore(name, seed=seed)])[0].mibps


def defrag(args, rep):
    """One of two tenants is scattered: alone, together by weight, beside the defragmentation, and after it."""
    rows, shares = [], []
    with device(args, AGED) as st:
        for i, name in enumerate(('one', 'two')):
            st.run([st.dump(name, MIB, 400, seed=i + 1, alloc='dynamic', stripe='256K')])
        whole, other = alone(st, 'one', 1), alone(st, 'two', 2)
        rows.append(['one, as it was dumped', f'{whole:.0f}', f'{layout(st, "one")["predicted_mibps"]:.0f}', '', ''])
        age(st, ident_of(st, 'one'), zones_of(st, 'one'))
        found = layout(st, 'one')
        scattered = alone(st, 'one', 1)
        rows.append(['one, scattered', f'{scattered:.0f}', f'{found["predicted_mibps"]:.0f}', f'{scattered / whole:.3f}', ''])
        rep.control('scattered: restore rate of the whole one\'s', scattered / whole, '<', 0.75)
        rep.aim('scattered: predicted of measured, off by', abs(found['predicted_mibps'] / scattered - 1), '<=', 0.05)

        def both(title, pair, told):
            rates = together(st, ('one', 'two'), pair if told else (0, 0))
            of = rates[0] / rates[1]
            want = pair[0] / pair[1]
            shares.append([title, f'{pair[0] // 100}:{pair[1] // 100}', 'by weight' if told else 'by nobody',
                           f'{rates[0]:.0f}', f'{rates[1]:.0f}', f'{of:.2f}', f'{want:.2f}', f'{rates[1] / other:.3f}'])
            return of / want, rates[1]

        if [s['container'] for s in st.ctl('status')['scattered']] != ['one']:
            raise Failed('status does not say that it is scattered')
        for told in (False, True):
            for pair in ((100, 100), (200, 100)):
                both('before', pair, told)
        # The neighbour restores while it is moved: charged to nobody, to its owner, or to a class of its own.
        for title, options, bound in (('gives way', (), 0.98), ('--weight owner', ('--weight', 'owner'), None),
                                      ('--weight 100', ('--weight', '100'), None),
                                      ('--no-wait: control', ('--no-wait',), None)):
            beside, moved = st.run([st.restore('two', seed=2), st.compact('--defrag', '--of', 'one', *options)])
            after, part = alone(st, 'one', 1), moved['checkpoints'][0]['move_bytes'] / (MIB << 20)
            rows.append([f'one, after --defrag ({title})', f'{after:.0f}', f'{layout(st, "one")["predicted_mibps"]:.0f}',
                         f'{after / whole:.3f}', f'{part * 100:.0f} %; the neighbour had {beside.mibps / other:.3f} of its rate'])
            if bound:
                rep.aim('after --defrag: restore rate of the whole one\'s', after / whole, '>=', 0.95)
                rep.aim('--defrag: part of its bytes that was moved', part, '<=', 0.30)
                rep.aim('--defrag: the neighbour\'s rate meanwhile, of alone', beside.mibps / other, '>=', bound)
                if st.ctl('verify', '--all')['damaged']:
                    raise Failed('something is damaged')
                for told in (False, True):
                    for pair in ((100, 100), (200, 100)):
                        off, _ = both('after', pair, told)
                        if not told and pair[0] > pair[1]:
                            rep.control('after --defrag, 2:1, and nobody says a weight: off by', abs(off - 1), '>', 0.2)
                        if told:
                            rep.aim(f'after --defrag, {pair[0] // 100}:{pair[1] // 100}: ratio of rates over that of weights, off by',
                                    abs(off - 1), '<=', 0.05)
                if not args.full:
                    break
            elif 'control' in title:
                rep.control('--defrag that does not wait: the neighbour\'s rate, of alone', beside.mibps / other, '<', 0.95)
            age(st, ident_of(st, 'one'), zones_of(st, 'one'))
    rep.table(['', 'MiB/s, alone', 'predicted', 'of the whole one', 'moved'], rows)
    rep.table(['together', 'weights', 'told', 'one, MiB/s', 'two, MiB/s', 'ratio', 'of weights', 'two, of alone'], shares)
    rep.text(f'Two checkpoints of {MIB} MiB on {DIES} dies of {READ} MiB/s. "Scattered": what "one" had on the fourth die '
             'was moved to the first, so that two of four lanes meet there.')


def weights(args, rep):
    cases = [(2, False, [100, 200]), (2, True, [100, 200]), (3, True, [200, 100, 400]),
             (4, False, [100, 200, 300, 400]), (8, True, [800 - 100 * i for i in range(8)])]
    if not args.full:
        cases = cases[1:2]
    rows = []
    for count, scattered, w in cases:
        rates, off = one(args, count, scattered, w, True)
        worst = max(abs(o - 1) for o in off)
        what = f'{count} tenants{", one on one die" if scattered else ""}'
        rows.append([what, ':'.join(str(x // 100) for x in w), ' '.join(f'{r:.0f}' for r in rates),
                     ' '.join(f'{o:.3f}' for o in off), f'{worst * 100:.1f} %'])
        rep.aim(f'{what}: time of the dearest die off its part by weight', worst, '<=', 0.05)
        if (count, scattered) in ((2, True), (4, False)):
            rates, off = one(args, count, scattered, w, False)
            rows.append([f'{what}, nobody says a weight: control', '', ' '.join(f'{r:.0f}' for r in rates),
                         ' '.join(f'{o:.3f}' for o in off), f'{max(abs(o - 1) for o in off) * 100:.0f} %'])
            rep.control(f'{what}, without weights: off by', max(abs(o - 1) for o in off), '>', 0.1)
    rep.table(['restores at once', 'weights', 'MiB/s', 'time of its dearest die / its part', 'worst'], rows)
    if not args.full:
        return
    busy, capped = idle(args)
    rep.aim('one of weight 10 uses 40 MiB/s; the other has the rest of the device', busy / (DIES * READ - 40), '>=', 0.9)
    rep.text(f'{DIES} dies, each read with {READ} MiB/s. Rates are those of memory that arrived while all restores ran. '
             f'Beside one of weight 1000 with a cap of 40 MiB/s (it had {capped:.0f}), one of weight 100 had {busy:.0f} MiB/s.')
