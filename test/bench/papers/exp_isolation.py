# SPDX-License-Identifier: GPL-2.0-only
"""Writers side by side, a checkpoint beside normal I/O, and what stands on which die."""
import model
import svg
from stage import Stage

ZNS, CONTROL = 'zns', 'conventional'
ZONES = ['--zones', '512']
LATENCY = (50, 99, 99.9)
NAMES = {ZNS: 'ZNS, 32 groups', CONTROL: 'conventional'}


def conventional_map(zones=512, io_zones=128):
    """The control is one domain; its zones are split in two sets so that fio and znsd do not take the same ones."""
    return [0] * (zones - io_zones) + [1] * io_zones


def stage(args, kind, **more):
    if kind == CONTROL:
        return Stage(args, 'conventional', ZONES, vendor_map=conventional_map(), **more)
    return Stage(args, 'paper-conf', ZONES, **more)


def io_zones(st, kind, width, rows, what='groups'):
    """Zones kept for normal I/O by `znsctl reserve`: on width groups or channels, or out of the control's own set."""
    if kind == CONTROL:
        return st.zones_of(st.reserve('normal-io', 1), width * rows)
    return st.zones_of(st.reserve('normal-io', width if what == 'groups' else -(-width // 4), what)[:width], rows)


# ---- five writers, one after another -------------------------------------------------------------------

def writers(args, rep):
    """Papers, figures 2, 4 and 5."""
    gap, count = args.scale(3.0), 5
    end = gap * (count + 1)
    rows = []
    cases = [('one zone each, ZNS', 'paper-conf', 1, min(500, 100)),
             ('one zone each, conventional', 'conventional', 1, None),
             ('one zone each, large-zone drive', 'large-zone', 1, None),
             ('striped over 5 zones each, ZNS', 'paper-conf', 5, 500),
             ('striped, conventional', 'conventional', 5, None)]
    for title, profile, width, alone in cases:
        zones = 64 if profile == 'large-zone' else 512
        with Stage(args, profile, ['--zones', str(zones)]) as st:
            per = 4 if profile == 'large-zone' else 8 * width
            jobs = []
            for i in range(count):
                # 3 metadata zones; interleaved maps: neighbours are on different dies
                first = 4 + i * per if profile != 'paper-conf' else 0
                take = list(range(first, first + per)) if profile != 'paper-conf' else \
                    [32 + r * 32 + i * width + k for r in range(8) for k in range(width)]
                jobs.append(st.fio(f'writer {i + 1}', take, width=width, depth=8, rate=500, start_s=i * gap,
                                   seconds=end - i * gap))
            found = st.run(jobs)
            wall = st.last_wall_s
        svg.lines(rep.file(f'writers-{len(rows) + 1}.svg'), title, 'model time, s', 'MiB/s',
                  {f.name: f.series(gap / 12, end) for f in found}, y_max=560)
        first = found[0].mibps(gap * 0.2, gap)
        last = [f.mibps(end - gap, end - 0.1 * gap) for f in found]
        capacity = {'conventional': model.conventional_write(), 'large-zone': 1152}.get(profile)
        ideal = alone or min(500, capacity / count)
        rows.append([title, f'{first:.0f}', ' '.join(f'{v:.0f}' for v in last), f'{ideal:.0f}',
                     f'{(1 - sum(last) / count / first) * 100:.1f} %', f'{wall:.1f}'])
        if profile == 'paper-conf':
            rep.aim(f'{title}: five writers together lose at most 2 % each', min(last) / first, '>=', 0.98)
        elif profile == 'conventional':
            rep.control(f'{title}: the drop is visible', min(last) / first, '<', 0.7)
    rep.text(f'Each capped at 500 MiB/s by fio, started {gap:g} s after one another, 256 KiB sequential, depth 8.')
    rep.table(['', 'first alone, MiB/s', 'all five, MiB/s each', 'ideal of each', 'mean loss', 'wall s'], rows)
    for n in range(len(rows)):
        rep.plot(f'writers-{n + 1}.svg')


# ---- a checkpoint beside normal I/O --------------------------------------------------------------------

def beside_one(args, kind, bs, rate, containers, rw='write', what='groups', pages_mib=426):
    """fio with and without `containers` dumps of 500 MiB/s beginning at 0.5 s; same job, same time span."""
    mib = pages_mib if args.full else 128
    width = max(1, -(-rate // 80)) if rw == 'write' else 4
    results = {}
    for with_dumps in (True, False):
        with stage(args, kind) as st:
            zones = io_zones(st, kind, width, 6, what)
            if rw != 'write':
                st.run([st.fio('fill', zones, width=width, rw='write', bs='512k', depth=16, seconds=args.scale(1.2))])
                zones = zones[:width]
            span = results[True][1] if not with_dumps else None
            slow = 160 if kind == CONTROL else 400
            seconds = 1.0 + args.scale(containers * mib / slow) if with_dumps else span[1] + 0.3
            jobs = [st.fio('normal I/O', zones, width=width, rw=rw, bs=bs, rate=rate, seconds=max(seconds, 1.2))]
            if with_dumps:
                jobs += [st.dump(f'c{i}', mib, 500, start_s=0.5, seed=i + 1) for i in range(containers)]
            found = st.run(jobs)
            if with_dumps:
                span = 0.5, max(0.5 + 1e-3, min(min(d.end for d in found[1:]), max(seconds, 1.2)))
                rates = [d.mibps for d in found[1:]]
                results[True] = found[0], span, rates
            else:
                results[False] = found[0], span, []
    (fio, span, dumps), (alone, _, _) = results[True], results[False]
    got = {'with': fio.mibps(*span), 'alone': alone.mibps(*span), 'lat with': fio.latency_ms(*span, *LATENCY),
           'lat alone': alone.latency_ms(*span, *LATENCY), 'dumps': dumps, 'span': span, 'fio': (fio, alone)}
    return got


def beside(args, rep):
    """Papers, figures 4 to 6 and KCC 2022: sweeps of I/O size, rate, number of containers."""
    base = ('256k', 400, 1, 'write', 'groups')
    points = [base] if not args.full else \
        [base, *((bs, rate, n, 'write', 'groups') for bs, rate, n in (
            ('16k', 100, 1), ('64k', 400, 1), ('192k', 400, 1), ('1m', 400, 1), ('256k', 100, 1), ('256k', 700, 1),
            ('256k', 400, 3), ('256k', 400, 5))),
         ('256k', 320, 5, 'write', 'groups'), ('256k', 320, 5, 'write', 'channels'),
         ('64k', 200, 1, 'randread', 'groups'), ('64k', 200, 1, 'randread', 'channels')]
    rep.text('fio has `znsctl reserve`d what its rate needs at 80 % of a group\'s bandwidth; random reads have four '
             'groups, or a '
             'channel. It begins 0.5 s before the dumps. Both runs, with and without them, are compared over the time '
             'from the '
             'dumps\' beginning to the end of the first of them.')
    for kind in (ZNS, CONTROL):
        rows, worst_bw, worst_p99, reads, apart = [], 1.0, 0.0, 0.0, 0.0
        for bs, rate, containers, rw, what in points:
            if kind == CONTROL and what == 'channels':
                continue
            g = beside_one(args, kind, bs, rate, containers, rw, what)
            ratio, p99 = g['with'] / g['alone'], g['lat with'][1] / g['lat alone'][1]
            worst_bw = min(worst_bw, ratio)
            if rw == 'randread' and what == 'groups' and kind == ZNS:
                reads = p99     # a die of its own does not keep a read off the channel
            elif rw == 'write' and what == 'channels':
                apart = p99
            else:
                worst_p99 = max(worst_p99, p99)
            rows.append([f'{rw} {bs}' + (f', own {what}' if kind == ZNS else ''), rate, containers, f"{g['alone']:.1f}",
                         f"{g['with']:.1f}", f'{(1 - ratio) * 100:.2f} %', ' / '.join(f'{v:.3f}' for v in g['lat '
                                                                                                            'alone']),
                         ' / '.join(f'{v:.3f}' for v in g['lat with']), f'{p99:.2f}',
                         ' '.join(f'{v:.0f}' for v in g['dumps'])])
            if (bs, rate, containers, rw, what) == base:
                fio, alone = g['fio']
                end = g['span'][1] + 0.2
                svg.lines(rep.file(f'beside-{kind}.svg'), f'normal I/O, 400 MiB/s, {NAMES[kind]}', 'model time, s',
                          'MiB/s', {'beside a dump': fio.series(0.02, end), 'alone': alone.series(0.02, end)},
                          y_max=900)
        rep.heading(NAMES[kind])
        rep.table(['fio', 'rate, MiB/s', 'containers dumped', 'alone, MiB/s', 'beside, MiB/s', 'loss', 'ms alone p50 '
                                                                                                       '/ p99 / p99.9',
                   'ms beside', 'p99 ratio', 'dumps, MiB/s'], rows)
        rep.plot(f'beside-{kind}.svg')
        if kind == ZNS:
            rep.aim('normal I/O beside a checkpoint: bandwidth kept', worst_bw, '>=', 0.98)
            rep.aim('normal I/O beside a checkpoint: p99 over p99 alone', worst_p99, '<=', 1.1)
            if reads:
                rep.aim('random reads on groups of their own, but not channels: p99 over p99 alone', reads, '<=', 1.1)
            if apart:
                rep.aim('writes on channels of their own beside five dumps: p99 over p99 alone', apart, '<=', 1.1)
        else:
            rep.control('normal I/O beside a checkpoint, conventional: p99 over p99 alone', worst_p99, '>', 1.5)


# ---- same die, same channel, other channels ------------------------------------------------------------

def placement(args, rep):
    """KCC 2022: metadata images, page images and normal I/O on channels of their own, or not."""
    seconds = args.scale(2.0)
    places = {'alone': None, 'same die': (8, 8, 8), 'same channel': (8, 16, 24), 'other channels': (8, 9, 10)}
    for kind, profile in ((ZNS, 'paper-conf'), (CONTROL, 'conventional')):
        rows, base = [], {}
        for place, dies in places.items():
            if kind == CONTROL and place in ('same channel', 'same die'):
                continue
            pages, meta, normal = dies or (8, 9, 10)
            with Stage(args, profile, ['--zones', '512']) as st:
                at = lambda die, row: [die + 32 * (2 + 3 * row + k) for k in range(3)]
                jobs = [st.fio('pages', at(pages, 0), bs='192k', depth=2, seconds=seconds),
                        st.fio('metadata', at(meta, 1), bs='4k', depth=1, rate=2, seconds=seconds),
                        st.fio('normal I/O', at(normal, 2), bs='64k', depth=1, rate=25, seconds=seconds)]
                found = [st.run([j])[0] for j in jobs] if dies is None else st.run(jobs)
            row = [place]
            for f in found:
                bw, lat = f.mibps(0.1, seconds), f.latency_ms(0.1, seconds, 50, 99)
                base.setdefault(f.name, (bw, lat[1]))
                row.append(f'{bw:.1f} MiB/s, {lat[0]:.3f} / {lat[1]:.3f} ms')
                if kind == ZNS and place in ('same channel', 'other channels'):
                    rep.aim(f'{f.name}, {place}: bandwidth over alone', bw / base[f.name][0], '>=', 0.98)
                if kind == ZNS and place == 'other channels':
                    rep.aim(f'{f.name}, {place}: p99 over alone', lat[1] / base[f.name][1], '<=', 1.1)
            if kind == ZNS and place == 'same die':
                rep.control('normal I/O on the die of the pages: p99 over alone',
                            found[2].latency_ms(0.1, seconds, 99)[0] / base['normal I/O'][1], '>', 1.5)
            rows.append(row if kind == ZNS or place == 'alone' else ['together', *row[1:]])
        rep.heading(NAMES[kind])
        rep.table(['', 'pages: 192 KiB, depth 2', 'metadata: 4 KiB, 2 MiB/s', 'normal I/O: 64 KiB, 25 MiB/s'], rows)
    rep.text('Each cell: bandwidth, latency p50 / p99. A channel carries 800 MiB/s and its four dies 400 together.')
