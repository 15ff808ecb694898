# SPDX-License-Identifier: GPL-2.0-only
"""Shares by weight, of restores that meet on the same dies; and what a scattered checkpoint does to them."""
import statistics

from stage import Failed, Stage

# Four dies; one is read with 100 MiB/s, so a small checkpoint lasts long enough to be rated. Channels do not bound it.
DIES, READ = 4, 100
DEVICE = ['--zones', '256', '--channels', '2', '--ways', '2', '--timing', 'on', '--die-read-bw', str(READ)]
SETTLED = 0.2           # s after the last has begun: rates are those of all
SETTLED_8 = 1.2         # of eight: until then one on one die has less than its part
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


def together(st, names, weights, *moves, after=SETTLED):
    """Restores at the same time, with moves; returns MiB/s of each restore while all of them run, from some seconds after the last one has
    begun.
    """
    jobs = [st.restore(n, seed=i + 1, sample=SAMPLE, **({'weight': w} if w else {}))
            for i, (n, w) in enumerate(zip(names, weights))]
    done = st.run([*jobs, *moves])
    done, moved = done[:len(jobs)], done[len(jobs):]
    if not all(m['moved_bytes'] for m in moved):
        raise Failed(f'nothing was moved: {moved}')
    start = max([next(s for s, got in d.samples if got) for d in done] + [m['start_s'] for m in moved]) + after
    end = 0.97 * min([d.end for d in done] + [m['end_s'] for m in moved])
    if end < start + 0.2:
        raise Failed(f'too short to be rated: {start:.2f} to {end:.2f} s')
    return [d.within(start, end) for d in done]


def by_weight(rates, dearest, weights):
    """Time that each takes of its dearest die, over its part by weight: 1 for all is exact."""
    time = [r * d for r, d in zip(rates, dearest)]
    return [t / sum(time) * sum(weights) / w for t, w in zip(time, weights)]


def one(args, count, scattered, weights, *runs):
    """Of each run, (whether weights are said, after how many s it is rated): the rates, and by_weight of them."""
    with device(args) as st:
        names = [f'tenant-{i + 1}' for i in range(count)]
        all_mib = (640 if args.full else 320) * (2 if count > 4 else 1)
        for i, name in enumerate(names):        # by weight, so that they end at about the same time
            alone = scattered and i == 0
            mib = all_mib * weights[i] // sum(weights) // (DIES if alone else 1)
            st.run([st.dump(name, max(mib, 4), READ if alone else 400, seed=i + 1, stripe='256K' if mib > 64 else '64K')])
        where = parts(st)
        dearest = [max(where[n].values()) for n in names]
        for told, after in runs:
            rates = together(st, names, weights if told else [0] * count, after=after)
            yield rates, by_weight(rates, dearest, weights)


def idle(args):
    """One of two restores is limited by a cap of its own: the other gets the rest."""
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


# The neighbour's restores, one after another: the move has the pauses between them, or dies of its own.
PAUSE, TURNS = 0.3, 8   # s
APART = ['--zones', '259', '--zone-size', '16M', '--zone-capacity', '16M', '--channels', '4', '--ways', '2', '--timing', 'on',
         '--die-read-bw', str(READ)]


def two_tenants(args, options=tuple(AGED)):
    st = device(args, options)
    for i, name in enumerate(('one', 'two')):
        st.run([st.dump(name, MIB, 400, seed=i + 1, alloc='dynamic', stripe='256K')])
    return st


def scatter(st):
    age(st, ident_of(st, 'one'), zones_of(st, 'one'))


def while_moved(st, pause, count, *options):
    """
    The neighbour's restores in turn, without a move, then with one. Of those that begin before its end: the rate, from request to
    end, over the median of those without, all together and each; and what the move printed.
    """
    took = st.run([st.restore('two', seed=2)])[0].latency
    jobs = [st.restore('two', seed=2, start_s=i * (took + pause)) for i in range(count)]
    alone = statistics.median(d.latency for d in st.run(jobs[:3]))
    *done, moved = st.run([*jobs, st.compact('--defrag', '--of', 'one', *options, start_s=took / 2)])
    during = [d.latency for d in done if d.start < moved['end_s']]
    if not moved['moved_bytes'] or len(during) < 2 or moved['end_s'] > done[-1].end:
        raise Failed(f'the move was not among the restores: {[(d.start, d.end) for d in done]}, {moved}')
    return alone / statistics.mean(during), [alone / d for d in during], moved


def beside(args, rep):
    """How much a move takes from a neighbour that restores at the same time."""
    rows = []

    def row(title, kept, rates, moved):
        rows.append([title, f'{moved["moved_bytes"] / (1 << 20):.0f}', f'{moved["start_s"]:.2f} to {moved["end_s"]:.2f}',
                     f'{moved["waited_s"]:.2f}', len(rates), f'{kept:.3f}', ' '.join(f'{r:.3f}' for r in rates)])

    with two_tenants(args) as st:
        scatter(st)
        found = while_moved(st, PAUSE, TURNS)
        row('same dies, pauses', *found)
        rep.aim('--defrag among a neighbour\'s restores on the same dies: its rate, of alone', found[0], '>=', 0.98, 0.96)
        if found[2]['waited_s'] <= 0:
            raise Failed('the move waited for nobody')
        if not args.full:
            return
        scatter(st)
        found = while_moved(st, PAUSE, TURNS, '--no-wait')
        row('same dies, pauses, `--no-wait`', *found)
        rep.control('the same, --no-wait: the neighbour\'s rate, of alone', found[0], '<', 0.95)
        if st.ctl('verify', '--all')['damaged']:
            raise Failed('something is damaged')
    with device(args, APART) as st:
        st.reserve('others', 2, 'channels')
        for i, name in enumerate(('one', 'two')):       # keeps its dies, which are not reserved when it comes
            st.run([st.dump(name, MIB, 400, seed=i + 1, stripe='256K')])
            if not i:
                st.ctl('release', 'others')
        scatter(st)
        channel = {g['id']: g['channel'] for g in st.ctl('groups')['groups']}
        on = [{channel[g] for g in parts(st)[n]} for n in ('one', 'two')]
        if on[0] & on[1]:
            raise Failed(f'they are not on channels of their own: {on}')
        found = while_moved(st, 0.02, TURNS)
        row('other dies and channels, hardly a pause', *found)
        rep.aim('--defrag beside a neighbour\'s restores on other channels: its rate, of alone', found[0], '>=', 0.98)
    rep.table(['the neighbour restores on', 'MiB moved', 'from, to, s', 'waited, s', 'restores begun before its end', 'their rate, of alone',
               'each'], rows)
    rep.text(f'`compact --defrag --of one` begins in the middle of the first of {TURNS} restores of "two". Between them are {PAUSE} s, or '
             '0.02 s. The move ended while they went on.')


def payer(args, rep):
    """Owner and neighbour restore while the owner's checkpoint is moved: out of whose part?"""
    rows = []
    with two_tenants(args) as st:
        scatter(st)
        for both in ((100, 100), (200, 100)):
            for title, options in (('no move', None), ('charged to its owner', ('--weight', 'owner')),
                                   ('a class of its own, 100', ('--weight', '100')),
                                   ('charged to nobody, --no-wait', ('--no-wait',))):
                dear = [max(parts(st)[n].values()) for n in ('one', 'two')]
                moves = [] if options is None else [st.compact('--defrag', '--of', 'one', *options)]
                rates = together(st, ('one', 'two'), both, *moves)
                time = [r * d / READ for r, d in zip(rates, dear)]
                want = [w / sum(both) for w in both]
                off = time[1] / want[1] - 1
                ratio = f'{both[0] // 100}:{both[1] // 100}'
                rows.append([title, ratio, *(f'{r:.0f}' for r in rates), *(f'{t:.3f}' for t in time), f'{want[1]:.3f}',
                             f'{off * 100:+.1f} %'])
                if title == 'charged to its owner':
                    rep.aim(f'{ratio}, the move charged to its owner: neighbour\'s time of the crowded die off its part by weight',
                            abs(off), '<=', 0.05)
                elif title.startswith('a class'):
                    rep.control(f'{ratio}, the move in a class of its own: neighbour\'s time off its part of two', -off, '>', 0.15)
                    part = both[1] / (sum(both) + 100)
                    rep.aim(f'{ratio}, the move in a class of its own: neighbour\'s time off its part of three', abs(time[1] / part - 1),
                            '<=', 0.05)
                if moves:
                    scatter(st)
        if st.ctl('verify', '--all')['damaged']:
            raise Failed('something is damaged')
    rep.table(['the move is', 'weights', 'one, MiB/s', 'two, MiB/s', 'one, of the crowded die', 'two, of the crowded die',
               'its part by weight', 'off'], rows)
    rep.text('Both restore while the scattered "one" is moved. Half of the bytes of "one" are on the crowded die, and a quarter of those of "two".')


def defrag(args, rep):
    """One of two tenants is scattered: alone, together by weight, beside the defragmentation, and after it."""
    rows, shares = [], []
    with two_tenants(args) as st:
        whole, other = alone(st, 'one', 1), alone(st, 'two', 2)
        rows.append(['one, as it was dumped', f'{whole:.0f}', f'{layout(st, "one")["predicted_mibps"]:.0f}', '', ''])
        scatter(st)
        found = layout(st, 'one')
        scattered = alone(st, 'one', 1)
        rows.append(['one, scattered', f'{scattered:.0f}', f'{found["predicted_mibps"]:.0f}', f'{scattered / whole:.3f}', ''])
        rep.control('scattered: restore rate of the whole one\'s', scattered / whole, '<', 0.75)
        rep.aim('scattered: predicted of measured, off by', abs(found['predicted_mibps'] / scattered - 1), '<=', 0.05)

        def both(title, pair, told):
            """How far the ratio of rates is from that of weights, and how far that of times."""
            dear = [max(parts(st)[n].values()) for n in ('one', 'two')]
            rates = together(st, ('one', 'two'), pair if told else (0, 0))
            of, want = rates[0] / rates[1], pair[0] / pair[1]
            shares.append([title, f'{pair[0] // 100}:{pair[1] // 100}', 'by weight' if told else 'by nobody',
                           f'{rates[0]:.0f}', f'{rates[1]:.0f}', f'{of:.2f}', f'{want:.2f}', f'{of * dear[0] / dear[1]:.2f}',
                           f'{rates[1] / other:.3f}'])
            return abs(of / want - 1), abs(of * dear[0] / dear[1] / want - 1)

        def by_weights(title):
            for pair in ((100, 100), (200, 100)):
                off, time_off = both(title, pair, True)
                what = f'{title}, {pair[0] // 100}:{pair[1] // 100}'
                if title == 'scattered':        # bytes do not follow weights, but time does: the scattered one pays itself
                    rep.control(f'{what}: ratio of rates over that of weights, off by', off, '>', 0.2)
                else:
                    rep.aim(f'{what}: ratio of rates over that of weights, off by', off, '<=', 0.05)
                rep.aim(f'{what}: ratio of the dearest die\'s times over that of weights, off by', time_off, '<=', 0.05)

        if [s['container'] for s in st.ctl('status')['scattered']] != ['one']:
            raise Failed('status does not say that it is scattered')
        both('scattered', (100, 100), False)
        by_weights('scattered')
        moved = st.run([st.compact('--defrag', '--of', 'one')])[0]
        after, part = alone(st, 'one', 1), moved['moved_bytes'] / (MIB << 20)
        rows.append(['one, after --defrag', f'{after:.0f}', f'{layout(st, "one")["predicted_mibps"]:.0f}', f'{after / whole:.3f}',
                     f'{part * 100:.0f} %'])
        rep.aim('after --defrag: restore rate of the whole one\'s', after / whole, '>=', 0.95)
        rep.aim('--defrag: part of its bytes that was moved', part, '<=', 0.30)
        if st.ctl('verify', '--all')['damaged']:
            raise Failed('something is damaged')
        off, _ = both('after --defrag', (200, 100), False)
        rep.control('after --defrag, 2:1, and nobody says a weight: off by', off, '>', 0.2)
        by_weights('after --defrag')
    rep.table(['', 'MiB/s, alone', 'predicted', 'of the whole one', 'moved'], rows)
    rep.table(['together', 'weights', 'told', 'one, MiB/s', 'two, MiB/s', 'ratio', 'of weights', 'ratio of times', 'two, of alone'], shares)
    rep.text(f'Two checkpoints of {MIB} MiB on {DIES} dies of {READ} MiB/s. "Scattered": what "one" had on the fourth die '
             'was moved to the first, so that two of four lanes meet there.')
    beside(args, rep)
    if args.full:
        payer(args, rep)


def weights(args, rep):
    cases = [(2, False, [100, 200]), (2, True, [100, 200]), (3, True, [200, 100, 400]),
             (4, False, [100, 200, 300, 400]), (8, True, [800 - 100 * i for i in range(8)])]
    if not args.full:
        cases = [cases[1], cases[-1]]
    rows = []
    for count, scattered, w in cases:
        what = f'{count} tenants{", one on one die" if scattered else ""}'
        runs = [(f'{what}: time of the dearest die off its part by weight', True, SETTLED)]
        if count == 8 and args.full:
            runs.append((f'{what}: the same from {SETTLED_8:g} s after the beginning', True, SETTLED_8))
        if (count, scattered) in ((4, False), (8, True)) or (count, scattered) == (2, True) and args.full:
            runs.append((f'{what}, without weights: off by', False, SETTLED))
        for (rates, off), (title, told, _) in zip(one(args, count, scattered, w, *(r[1:] for r in runs)), runs):
            worst = max(abs(o - 1) for o in off)
            rows.append([title, ':'.join(str(x // 100) for x in w) if told else '', ' '.join(f'{r:.0f}' for r in rates),
                         ' '.join(f'{o:.3f}' for o in off), f'{worst * 100:.1f} %'])
            if told:        # a small run of eight ends before their parts have settled
                rep.aim(title, worst, '<=', 0.05, *([0.4] if count == 8 else []))
            else:
                rep.control(title, worst, '>', 0.1 if count < 8 else 0.5)
    rep.table(['', 'weights', 'MiB/s', 'time of its dearest die / its part', 'worst'], rows)
    if not args.full:
        return
    busy, capped = idle(args)
    rep.aim('one of weight 10 uses 40 MiB/s; the other has the rest of the device', busy / (DIES * READ - 40), '>=', 0.9)
    rep.text(f'{DIES} dies, each read with {READ} MiB/s. Rates are those of memory that arrived while all restores ran. '
             f'Beside one of weight 1000 with a cap of 40 MiB/s (it had {capped:.0f}), one of weight 100 had {busy:.0f} MiB/s.')
