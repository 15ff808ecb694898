# SPDX-License-Identifier: GPL-2.0-only
"""Makes tables, plots, aims and controls from the cells' results, scaled back to rates and times of a real drive."""
import math
import re
import statistics

import svg
from spec import CELLS, FLASH, KEPT, LARGE, SHRINK, SLOW, USED

MIB = 1 << 20
NAMES = {'zones': 'zones', 'ext4': 'conventional, ext4', 'f2fs': 'conventional, F2FS', 'fresh': 'conventional and new, ext4'}


def listed(there, key):
    return ', '.join(f'{v[key]:.2f}' for v in there)


def when(machine, there):
    """The results of a part's guests."""
    return (f'{machine}. {", ".join(sorted({v["date"] for v in there}))}, Linux {", ".join(sorted({v["kernel"] for v in there}))}. Load of the machine before each guest: '
            f'{listed(there, "load_before")}; busy meanwhile, of all its processors: {listed(there, "machine_busy")}.')


def head():
    return f'''Guests of one emulated processor (QEMU, TCG). Each part says on what and when it was measured, under which kernel, and how busy the machine was.
Work at idle priority counts as load and as busy, too.

Drives are models behind NBD (`test/drive`), the rest is real: kernel, block layer, schedulers, file systems, criu, stock CRIU
4.2.1 of this tree, fio. All drives have the same flash: {FLASH["channels"]} channels x {FLASH["ways"]} dies, {FLASH["die-write"]} MiB/s written
and {FLASH["die-read"]} read by a die, {FLASH["channel"]} by a channel. A conventional one deals its pages to all dies, has {USED["spare"]} % more flash
than the host sees and has been written at random until garbage collection is steady, unless it is called new.

**Scale:** model time runs {SLOW} times as slow as the clock, unless a part says more, so that an emulated processor keeps up: rates here are those measured times
{SLOW}, latencies those measured over {SLOW}. The papers' sizes are divided by {SHRINK}, criu's stripe unit too. What the processor costs
is not scaled, so it looks {SLOW} times as short as it was. *idle* says what it had left; cells named *half* run at half the rate:
if they say the same, the processor was not what limits. `--zns-qos-max` and io.max hold each dump to 500 MiB/s.

A dump's rate is its bytes over the time from the first write until all is on the drive, on zones and for stock CRIU alike; stock CRIU's
first write is the sync of its files. *The middle 80 %* is the rate of these bytes on zones, as io.stat counts them, without what criu
does before and after. io.stat does not say so of F2FS. Parts a, c and s have that rate of zones. Latencies are those of the whole. Reproduce: `make bench-drives`; one part: `make bench-drives BENCH_DRIVES="--parts b"`.'''


# ---- a: N groups ---------------------------------------------------------------------------------------

def per_groups(result, slow):
    rates = {}
    for d in result['dumps']:
        rates.setdefault(d['n'], []).append(d['rate'] * slow)
    return {n: statistics.median(v) for n, v in sorted(rates.items())}


def part_a(rep, found):
    series = {}
    titles = {'scaling': 'One dump, no cap', 'scaling-half': 'At half the rate', 'scaling-one-die': 'A map that is wrong: all on one die'}
    for name, got in found.items():
        if not got:
            continue
        rate = per_groups(got, CELLS[name].params['slow'])
        rep.heading(titles[name])
        rep.table(['groups', 'MiB/s', 'of N times one', 'idle, the least'],
                  [[n, f'{v:.0f}', f'{v / n / rate[1]:.3f}', f'{min(d["idle"] for d in got["dumps"] if d["n"] == n):.2f}']
                   for n, v in rate.items()])
        series[titles[name]] = list(rate.items())
        worst = min(v / n / rate[1] for n, v in rate.items())
        if name == 'scaling-one-die':
            rep.control('eight groups by a map that is wrong, all on one die: of eight times one', worst, '<', 0.3)
        else:
            rep.aim('N groups, half the rate: of N times one, the worst' if name.endswith('half') else
                    'N groups: of N times one, the worst', worst, '>=', 0.9)
    series['N times one die'] = [(n, n * FLASH['die-write']) for n in (1, 2, 4, 8)]
    svg.lines(rep.file('groups.svg'), 'one dump over N groups', 'groups', 'MiB/s', series)
    rep.plot('groups.svg')


# ---- b: five dumps -------------------------------------------------------------------------------------

def over_time(dumps, slow, step_s):
    """{name: [(s, MiB/s)]} of dumps that ran at the same time."""
    begin, found = min(d['start'] for d in dumps), {}
    for d in dumps:
        points, last = [], (d['start'], 0)
        for t, done in d['series'] + [[d['end'], d['bytes']]]:
            if t - last[0] >= step_s:
                points.append(((t - begin) / slow * SHRINK, max(0, done - last[1]) / MIB / (t - last[0]) * slow))
                last = (t, done)
        if points:
            found[d['name']] = points
    return found


def five_rows(rounds, slow):
    """Medians over the rounds, by name."""
    rows = {}
    for i, first in enumerate(rounds[0]['alone']):
        pick = lambda when, what: statistics.median(r[when][i][what] for r in rounds)
        rate = lambda when: statistics.median(whole(r[when][i]) for r in rounds) / MIB * slow
        rows[first['name']] = {
            'mib': first['bytes'] / MIB, 'alone': rate('alone'), 'together': rate('together'),
            'latency alone': pick('alone', 'latency_s') / slow, 'latency together': pick('together', 'latency_s') / slow,
            'ratio': statistics.median(whole(r['together'][i]) / whole(r['alone'][i]) for r in rounds),
            'flow': 'groups' in first and statistics.median(r['together'][i]['rate'] / r['alone'][i]['rate'] for r in rounds)}
    return rows


def whole(dump):
    """Bytes/s from the first write to the end, with criu's own work in between, which is the same for every way.
    (Stock's data are written at the sync.)"""
    return dump['bytes'] / (dump['end'] - dump['first'])


def five_table(rep, title, way, slow):
    rows = five_rows(way['rounds'], slow)
    rep.heading(title)
    rep.table(['', 'MiB', 'alone, MiB/s', 'at once, MiB/s', 'of alone', 'of alone, the middle 80 %', 'alone, s', 'at once, s',
               'over alone'],
              [[n, f'{r["mib"]:.1f}', f'{r["alone"]:.0f}', f'{r["together"]:.0f}', f'{r["ratio"]:.3f}', f'{r["flow"]:.3f}' if r['flow'] else '-',
                f'{r["latency alone"]:.3f}', f'{r["latency together"]:.3f}', f'{r["latency together"] / r["latency alone"]:.2f}']
               for n, r in rows.items()])
    added = [(r['latency together'] - r['latency alone']) * slow for r in rows.values()]
    rep.text(f'At once each takes {min(added):.1f} to {max(added):.1f} s of the guest\'s clock longer than alone. What is of that size at the full and at '
             'half the rate is the emulated processor\'s, which five criu share; what doubles at half the rate is the drive\'s.')
    wrote = way['after']['host_written'] - way['before']['host_written']
    images = sum(d['bytes'] for r in way['rounds'] for d in r['alone'] + r['together'])
    flash = ''
    if 'programmed' in way['after']:
        grown = {k: way['after'][k] - way['before'][k] for k in ('programmed', 'copied')}
        flash = f'; the drive itself wrote {(grown["programmed"] + grown["copied"]) / max(1, grown["programmed"]):.2f} times that'
    rep.text(f'{len(way["rounds"])} rounds, medians. Idle: {min(r["idle_alone"] for r in way["rounds"]):.2f} alone at least, '
             f'{min(r["idle_together"] for r in way["rounds"]):.2f} at once. Written to the drive: {wrote / images:.3f} of the pages\' '
             f'bytes{flash}.')
    if way.get('saturated'):
        rep.text(f'fio that writes as fast as it can, four jobs of 1 MiB writes, four in flight each: {way["saturated"] * slow:.0f} MiB/s.')
    return rows


def latency_grew(rows):
    return max(r['latency together'] / r['latency alone'] for r in rows.values())


def part_b(rep, found):
    full, rows = found.get('five'), {}
    for name, way in (full['ways'] if full else {}).items():
        rows[name] = five_table(rep, NAMES[name], way, SLOW)
        worst = min(r['ratio'] for r in rows[name].values())
        if name == 'zones':
            rep.aim('five dumps at once on zones: rate of alone, the worst', worst, '>=', 0.95)
            rep.aim('five dumps at once on zones, the middle 80 %: rate of alone, the worst', min(r['flow'] for r in rows[name].values()), '>=', 0.95)
            for n, r in rows[name].items():
                rep.aim(f'five dumps at once on zones, {n}: latency over alone', r['latency together'] / r['latency alone'], '<=', 1.1)
        else:
            rep.control(f'five dumps at once, {NAMES[name]}: rate of alone, the worst', worst, '<', 0.6)
            rep.control(f'five dumps at once, {NAMES[name]}: latency over alone, the most', latency_grew(rows[name]), '>', 1.5)
        svg.lines(rep.file(f'five-{name}.svg'), f'five dumps at once, {NAMES[name]}', 's, as if sizes were not divided', 'MiB/s',
                  over_time(way['rounds'][0]['together'], SLOW, 1.0), y_max=620)
        rep.plot(f'five-{name}.svg')
    if 'zones' in rows and 'ext4' in rows:
        names = list(rows['zones'])
        svg.bars(rep.file('five-latency.svg'), 'latency of a checkpoint', 's', names, {
            'ext4, one alone': [rows['ext4'][n]['latency alone'] for n in names],
            'ext4, five at once': [rows['ext4'][n]['latency together'] for n in names],
            'zones, five at once': [rows['zones'][n]['latency together'] for n in names]})
        rep.plot('five-latency.svg')
        for other in ('ext4', 'f2fs'):
            if other in rows:
                gain = max(1 - rows['zones'][n]['latency together'] / rows[other][n]['latency together'] for n in names)
                rep.aim(f'five at once, latency on zones below that of {NAMES[other]}, the most', gain, '>=', 0.4)
        rep.aim('the largest dump of five at once on zones: latency over one alone on ext4',
                rows['zones'][names[-1]]['latency together'] / rows['ext4'][names[-1]]['latency alone'], '<=', 1.1)
    used = found.get('five-1000')
    if used:
        way = used['ways']['ext4']
        got = five_table(rep, 'conventional, ext4, of 24 dies', way, SLOW)
        rep.control('five dumps at once, conventional of 24 dies, ext4: rate of alone, the worst',
                    min(r['ratio'] for r in got.values()), '<', 0.6)
        rep.control('five dumps at once, conventional of 24 dies, ext4: latency over alone, the most', latency_grew(got), '>', 1.5)
        rep.text('24 of the 32 dies, and nothing collected ahead in idle time. The one above has the same flash as the zoned drive, and erased room for most of five such checkpoints.')
        if 'zones' in rows:
            gain = max(1 - rows['zones'][n]['latency together'] / r['latency together'] for n, r in got.items())
            rep.aim('five at once, latency on zones below that of a conventional drive of 24 dies, the most', gain, '>=', 0.4)
        svg.lines(rep.file('five-1000.svg'), 'five dumps at once, conventional of 24 dies', 's, as if sizes were not divided', 'MiB/s',
                  over_time(way['rounds'][0]['together'], SLOW, 1.0), y_max=620)
        rep.plot('five-1000.svg')
    half = found.get('five-half')
    if half:
        got = five_table(rep, 'Zones, at half the rate', half['ways']['zones'], 2 * SLOW)
        rep.aim('five dumps at once on zones, half the rate: rate of alone, the worst', min(r['ratio'] for r in got.values()), '>=', 0.95)
        rep.aim('five dumps at once on zones, half the rate: latency over alone, the most', latency_grew(got), '<=', 1.1)
        rep.aim('five dumps at once on zones, the middle 80 %, half the rate: rate of alone, the worst', min(r['flow'] for r in got.values()), '>=', 0.95)
    fresh = found.get('five-fresh')
    if fresh:
        got = five_table(rep, NAMES['fresh'], fresh['ways']['fresh'], SLOW)
        rep.text(f'On a new drive nothing is collected, and its dies together write {FLASH["channels"] * FLASH["ways"] * FLASH["die-write"]} '
                 f'MiB/s: the worst of five keeps {min(r["ratio"] for r in got.values()):.2f}. No aim; it says how much of the control is '
                 'garbage collection, and what file system and journal do.')


# ---- c: normal I/O beside a checkpoint -----------------------------------------------------------------

PERCENT = (50, 99, 99.9)


def at(sorted_values, percent):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * percent / 100))]


def split(one):
    """
    Alone and while a dump writes: latencies in s of the I/Os that were in flight then, and how many were completed per
    second; if none was, one counts.
    """
    ios = [(t + one['begin'], took) for t, took in one['ios']]
    spans = {'alone': [one['alone']], 'beside': [(d['first'], d['end']) for d in one['dumps']]}
    found = {}
    for name, parts in spans.items():
        flying = sorted(took for t, took in ios if any(t >= a and t - took < b for a, b in parts))
        # dumps may overlap
        done = sum(any(a <= t < b for a, b in parts) for t, _ in ios)
        found[name] = flying, max(1, done) / covered(parts)
    return found


def covered(parts):
    """Seconds that lie in any of the spans."""
    total, last = 0.0, -math.inf
    for a, b in sorted(parts):
        total += max(0.0, b - max(a, last))
        last = max(last, b)
    return total


def beside_row(one, slow):
    parts = split(one)
    if not all(p[0] for p in parts.values()):
        return None
    row = {'n': [len(parts[k][0]) for k in ('alone', 'beside')], 'kept': parts['beside'][1] / parts['alone'][1]}
    for k, (lat, per_s) in parts.items():
        row[k] = [at(lat, p) * 1e3 / slow for p in PERCENT]
        row[f'{k} MiB/s'] = per_s * one['bs'] / MIB * slow
    row['p99'] = row['beside'][1] / row['alone'][1]
    row['p99.9'] = row['beside'][2] / row['alone'][2]
    row['dump beside'] = statistics.median(d['rate'] for d in one['dumps']) * slow
    return row


def series_of(one, slow, step_s=1.0):
    """fio's rate over time: [(s, MiB/s)]."""
    bins = {}
    for t, _ in one['ios']:
        if t >= 0:
            bins[int(t / step_s)] = bins.get(int(t / step_s), 0) + one['bs']
    return [((b + 0.5) * step_s / slow, size / MIB / step_s * slow) for b, size in sorted(bins.items())][:-1]


def latencies_of(one, slow, step_s=5.0):
    """fio's latency percentiles over time, {percentile: [(s, ms)]}: each point has the I/Os that ended within step_s of the guest's clock."""
    bins = {}
    for t, took in one['ios']:
        if t >= 0:
            bins.setdefault(int(t / step_s), []).append(took)
    found = {f'p{p}': [] for p in PERCENT}
    for b, took in sorted(bins.items())[:-1]:
        took.sort()
        for p in PERCENT:
            found[f'p{p}'].append(((b + 0.5) * step_s / slow, at(took, p) * 1e3 / slow))
    return found


def plot_latencies(rep, name, title, one, slow):
    svg.lines(rep.file(f'{name}.svg'), f'latency of fio, {title}', 's', 'ms', latencies_of(one, slow))
    rep.plot(f'{name}.svg')


def opponent(rows):
    """The setting that is best for normal I/O: the lowest p99 beside dumps, among those that keep 95 % of its bandwidth if there are any."""
    keep = {n: r for n, r in rows.items() if r['kept'] >= 0.95} or rows
    return min(keep, key=lambda n: keep[n]['beside'][1])


def part_c(rep, found):
    rows, kept = {}, {}
    for cell, got in found.items():
        for name, one in (got or {'settings': {}})['settings'].items():
            slow = CELLS[cell].params['slow']
            row = beside_row(one, slow)
            if row is None:
                rep.text(f'{name}: no I/O beside the dumps, or none alone.')
                continue
            label = name if cell != 'beside-half' else 'zones, half the rate'
            rows[label] = {**row, 'set': one['set'], 'idle': min(one['idle_alone'], one['idle_beside']),
                           'frozen': statistics.median(d['frozen_s'] for d in one['dumps']) * 1e3 / slow,
                           'dump alone': statistics.median(d['rate'] for d in one['dumps_alone']) * slow}
            kept[label] = one, slow
    if not rows:
        return
    triple = lambda v: ' / '.join(f'{x:.2f}' for x in v)
    plain = rows.get('none', {}).get('dump alone')
    rep.table(['', 'fio alone, MiB/s', 'beside', 'kept', 'ms alone p50 / p99 / p99.9', 'ms beside', 'p99 ratio', 'p99.9 ratio',
               'I/Os', 'dump beside, MiB/s', 'dump with nobody beside', 'frozen beside, ms', 'idle'],
              [[n, f'{r["alone MiB/s"]:.0f}', f'{r["beside MiB/s"]:.0f}', f'{r["kept"]:.3f}', triple(r['alone']), triple(r['beside']),
                f'{r["p99"]:.2f}', f'{r["p99.9"]:.2f}', f'{r["n"][0]}, {r["n"][1]}', f'{r["dump beside"]:.0f}', f'{r["dump alone"]:.0f}',
                f'{r["frozen"]:.1f}', f'{r["idle"]:.2f}'] for n, r in rows.items()])
    p = CELLS['beside'].params
    rep.text(f'fio: five jobs, {p["rate"]} MiB/s together, {p["bs_kib"]} KiB sequential, direct, one in flight each; on zones of five reserved '
             f'groups, or in five files. Dumps of {p["mib"]} MiB, held to 500 MiB/s. Settings: weights {KEPT[0]} for fio and {KEPT[1]} for dumps '
             f'(BFQ, io.cost); io.max {CELLS["beside-software"].params["limit"]} MiB/s for dumps; io.cost with coefficients that were '
             'measured first, and twice the p95 of fio alone as the latency that it keeps. io.latency is not built in this kernel.')
    for n, r in rows.items():
        if r['set']:
            rep.text(f'{n}: {", ".join(f"{k}={v}" for k, v in r["set"].items())}.')
    if 'zones' in rows:
        rep.aim('fio beside a checkpoint on zones: bandwidth kept', rows['zones']['kept'], '>=', 0.98)
        rep.aim('fio beside a checkpoint on zones: p99 over p99 alone', rows['zones']['p99'], '<=', 1.1)
    if 'zones, half the rate' in rows:
        rep.aim('fio beside a checkpoint on zones, half the rate: p99 over p99 alone', rows['zones, half the rate']['p99'], '<=', 1.1)
    software = {n: r for n, r in rows.items() if not n.startswith('zones')}
    if 'none' in software:
        rep.control('fio beside stock CRIU, conventional, no scheduler: p99 over p99 alone', software['none']['p99'], '>', 1.5)
    if software:
        best = opponent(software)
        rep.text(f'The best of the software is **{best}**: it keeps {software[best]["kept"]:.3f} of the bandwidth, p99 '
                 f'is {software[best]["beside"][1]:.2f} ms, {software[best]["p99"]:.2f} of alone. With nobody beside it, a dump then has '
                 f'{software[best]["dump alone"] / (plain or software[best]["dump alone"]):.2f} of what it has without: the rest is what it '
                 'costs in idle capacity.')
        if 'zones' in rows:
            rep.aim('p99 of fio beside a checkpoint on zones over that under the best software setting',
                    rows['zones']['beside'][1] / software[best]['beside'][1], '<=', 1.0)
        shown = [k for k in ('zones', 'none', best) if k in kept]
        svg.lines(rep.file('beside.svg'), f'fio beside dumps, {p["rate"]} MiB/s asked', 's', 'MiB/s',
                  {k: series_of(*kept[k]) for k in shown})
        rep.plot('beside.svg')
        for name in shown:
            plot_latencies(rep, f'beside-{name}', f'dumps beside it: {name}', *kept[name])


# ---- h: docker checkpoint beside an fio container ------------------------------------------------------

def part_h(rep, found):
    rows, series = {}, {}
    for cell, got in found.items():
        for name, one in (got or {'settings': {}})['settings'].items():
            slow, row = CELLS[cell].params['slow'], beside_row(one, CELLS[cell].params['slow'])
            if row is None:
                rep.text(f'{name}: no I/O beside the checkpoints, or none alone.')
                continue
            took = statistics.median(d['latency_s'] for d in one['dumps'])
            rows[name] = {**row, 'took': took, 'took alone': one['latency_alone'], 'idle': min(one['idle_alone'], one['idle_beside']),
                          'wrote': statistics.median(d['wrote'] for d in one['dumps']) / MIB}
            series[name] = series_of(one, slow)
            plot_latencies(rep, f'docker-{cell.removeprefix("docker-")}', f'{name} checkpoint beside it', one, slow)
    if not rows:
        return
    triple = lambda v: ' / '.join(f'{x:.2f}' for x in v)
    rep.table(['', 'fio alone, MiB/s', 'beside', 'kept', 'ms alone p50 / p99 / p99.9', 'ms beside', 'p99 ratio', 'I/Os', 'written, MiB',
               'command beside, s of the guest', 'with nobody beside', 'idle'],
              [[n, f'{r["alone MiB/s"]:.0f}', f'{r["beside MiB/s"]:.0f}', f'{r["kept"]:.3f}', triple(r['alone']), triple(r['beside']),
                f'{r["p99"]:.2f}', f'{r["n"][0]}, {r["n"][1]}', f'{r["wrote"]:.0f}', f'{r["took"]:.1f}', f'{r["took alone"]:.1f}', f'{r["idle"]:.2f}']
               for n, r in rows.items()])
    p = CELLS['docker-zones'].params
    rep.text(f'fio is in a container: five jobs, {p["rate"]} MiB/s together, {p["bs_kib"]} KiB sequential, direct; on zones of five reserved groups, or in '
             f'files. Another container of {p["mib"]} MiB is checkpointed by `docker checkpoint create`, held to 500 MiB/s: zones by `zns-qos-max`, stock Docker '
             '(runc, stock CRIU, all of Docker\'s data on the drive, no scheduler) by an io.max of the daemon and what it starts. *Beside* is while something of '
             'the checkpoint is written. The command\'s seconds are of the guest, not scaled: most of them are the emulated processor\'s.')
    zones = rows.get('docker, zones')
    if zones:
        rep.aim('fio in a container beside docker checkpoint on zones: bandwidth kept', zones['kept'], '>=', 0.98)
        rep.aim('fio in a container beside docker checkpoint on zones: p99 over p99 alone', zones['p99'], '<=', 1.1)
    for name, of in (('docker, ext4', 'conventional'), ('docker, f2fs', 'conventional, F2FS')):
        if name in rows:
            rep.control(f'fio in a container beside stock docker checkpoint, {of}: p99 over p99 alone', rows[name]['p99'], '>', 1.5)
    svg.lines(rep.file('docker-beside.svg'), f'fio beside docker checkpoint, {p["rate"]} MiB/s asked', 's', 'MiB/s', series)
    rep.plot('docker-beside.svg')


# ---- d: random writes (KCC 2022) -----------------------------------------------------------------------

def cdf(values, scale):
    """Distribution as (log10 of ms, percent)."""
    values = sorted(values)
    step = max(1, len(values) // 200)
    return [(math.log10(max(1e-3, v * 1e3 * scale)), 100 * (i + 1) / len(values)) for i, v in enumerate(values) if i % step == 0]


def point_row(point, slow):
    """How the mean latency grew, how bandwidth fell, how the latency in the drive grew; the latencies; a table row. (None, row): there was no I/O."""
    row = beside_row({**point, 'bs': point['bs_kib'] << 10}, slow)
    begin = [point['bs_kib'], point['rate'] or 'all it can', point['n']]
    if row is None or not all(point['in_drive']):
        return None, [*begin, *['no I/O'] * 13]
    parts = split(point)
    mean = [statistics.mean(parts[k][0]) for k in ('alone', 'beside')]
    drive = [statistics.mean(v) for v in point['in_drive']]
    grown, fell, inside = mean[1] / mean[0], 1 / row['kept'], drive[1] / max(drive[0], 1e-9)
    flushes, took_ns = point['flushes']
    return (grown, fell, inside, parts), [
        *begin, f'{row["alone MiB/s"]:.1f}', f'{row["beside MiB/s"]:.1f}', f'{fell:.2f}', *(f'{v * 1e3 / slow:.3f}' for v in mean), f'{grown:.2f}',
        *(f'{v * 1e3 / slow:.3f}' for v in drive), f'{row["p99"]:.2f}', f'{len(parts["alone"][0])}, {len(parts["beside"][0])}',
        f'{row["dump beside"]:.0f}', f'{flushes}, {took_ns / 1e6:.0f}', f'{point["idle"]:.2f}']


RANDOM = {'zones': 'Zones: pages, metadata and normal I/O on channels of their own', 'ext4': NAMES['ext4'],
          'zones-buffer': 'The same on a drive whose buffer survives a power cut: a flush takes no time'}


def part_d(rep, found):
    grew, inside, curves, base, rows = {}, {}, {}, {}, {}
    for cell, got in found.items():
        slow, name = CELLS[cell].params['slow'], re.sub('^random-|-rates|-many|@half', '', cell)
        for point in (got or {'points': []})['points']:
            values, row = point_row(point, slow)
            rows.setdefault(name, []).append(row)
            if values is None:
                continue
            key = point['bs_kib'], point['rate'], point['n']
            grew.setdefault(name, {})[key], inside.setdefault(name, {})[key] = values[0], [statistics.mean(v) * 1e3 / slow for v in point['in_drive']]
            base[name] = [max(a, b) for a, b in zip(base.get(name, (0, 0, 0)), values[:3])]
            if key[0] == 4 and key[2] == 1:
                curves[f'{name}, alone'], curves[f'{name}, beside'] = (cdf(values[3][k][0], 1 / slow) for k in ('alone', 'beside'))
    for name, mine in rows.items():
        rep.heading(RANDOM[name])
        rep.table(['KiB', 'rate, MiB/s', 'dumps', 'alone, MiB/s', 'beside', 'fell, times', 'mean ms alone', 'beside', 'grew, times', 'in the drive alone, ms',
                   'beside', 'p99 ratio', 'I/Os', 'a dump, MiB/s', 'flushes, and ms of the model', 'idle'], mine)
    if 'ext4' in base:
        rep.text(f'Paper: latency grew 50 times, bandwidth fell to a 40th. Here {base["ext4"][0]:.1f} and {base["ext4"][1]:.1f} at most.')
        rep.control('random writes beside stock CRIU, conventional: mean latency grew, times, the most', base['ext4'][0], '>', 2)
        rep.control('random writes beside stock CRIU, conventional: bandwidth fell, times, the most', base['ext4'][1], '>', 2)
        rep.control('random writes beside stock CRIU, conventional, in the drive: mean latency grew, times, the most', base['ext4'][2], '>', 2)
    if 'zones' in base:
        rep.aim('random writes on channels of their own: mean latency grew, times, the most', base['zones'][0], '<=', 1.1)
        rep.aim('random writes on channels of their own: bandwidth fell, times, the most', base['zones'][1], '<=', 1.02)
        rep.aim('random writes on channels of their own, in the drive: mean latency grew, times, the most', base['zones'][2], '<=', 1.1)
    both = sorted(set(grew.get('zones', ())) & set(grew.get('zones-buffer', ())), key=str)
    if both:
        rep.aim('random writes on channels of their own, in the drive, a flush takes no time: mean latency grew, times, the most', base['zones-buffer'][2], '<=', 1.1)
        rep.heading('What the flush has to do with it')
        pair = lambda name, key: ' / '.join(f'{v:.3f}' for v in inside[name][key])
        rep.table(['KiB', 'rate, MiB/s', 'dumps', 'a flush programs what the buffers have: grew, times', 'in the drive alone / beside, ms',
                   'a flush takes no time: grew, times', 'in the drive alone / beside, ms'],
                  [[*key, f'{grew["zones"][key]:.2f}', pair('zones', key), f'{grew["zones-buffer"][key]:.2f}', pair('zones-buffer', key)] for key in both])
    rep.text('*In the drive* is what the model says that they took, without the emulated processor. Direct writes of four jobs at random, in files that have been written before, or in fresh zones of four reserved groups, each with a channel of its own; '
             f'dumps of {CELLS["random-zones"].params["mib"]} MiB at once, without a cap, and again where one alone is soon over. On the conventional drive no scheduler. '
             'fio has one write in flight for each job.')
    if curves:
        svg.lines(rep.file('random-cdf.svg'), 'latency of 4 KiB writes, alone and beside a dump', 'log10 of ms', '% done', curves, y_max=100)
        rep.plot('random-cdf.svg')


# ---- e: file systems for zones -------------------------------------------------------------------------

def part_e(rep, found):
    got, rows, rates = found.get('file-systems'), [], {}
    if not got:
        return
    for name, way in got['ways'].items():
        table = five_table(rep, {'zones': 'Raw zones', 'zonefs': 'zonefs:DIR', 'f2fs-zoned': 'Stock CRIU on F2FS over zones'}[name], way, SLOW)
        largest = table['MySQL']
        images = sum(d['bytes'] for r in way['rounds'] for d in r['alone'] + r['together'])
        wrote = way['after']['host_written'] - way['before']['host_written']
        rates[name] = largest['alone'], min(r['ratio'] for r in table.values())
        rows.append([name, f'{largest["alone"]:.0f}', f'{largest["together"]:.0f}', f'{rates[name][1]:.3f}', f'{wrote / images:.3f}',
                     f'{way["cpu_s"] / (images / 2**30):.1f}'])
    rep.heading('Beside each other')
    rep.table(['', 'MySQL alone, MiB/s', 'at once', 'of alone, the worst', 'bytes written per byte of pages', 'guest CPU s per GiB'], rows)
    rep.text('The processor is an emulated one: compare CPU with CPU here. Bytes are those that reach the zoned drive; what F2FS writes to '
             'the conventional drive that it needs beside is not in them.')
    if 'zonefs' in rates and 'zones' in rates:
        rep.aim('zonefs:DIR: rate of the largest dump over raw zones', rates['zonefs'][0] / rates['zones'][0], '>=', 0.95)
        rep.aim('zonefs:DIR, five at once: rate of alone, the worst', rates['zonefs'][1], '>=', 0.95)
    if 'f2fs-zoned' in rates:
        rep.control('stock CRIU on F2FS over zones: rate of the largest dump over raw zones', rates['f2fs-zoned'][0] / rates['zones'][0], '<', 0.6)


# ---- f: restores ---------------------------------------------------------------------------------------

def part_f(rep, found):
    got = found.get('restores')
    if not got:
        return
    cases = {}
    for name, cell in found.items():
        for r in (cell or {'restores': []})['restores']:
            cases.setdefault((r['way'], r['alloc'], *(['half the rate'] if name.endswith('half') else [])), []).append(r)
    rows, ratio, beside = [], {}, {}
    for case, runs in cases.items():
        slow = 2 * SLOW if len(case) > 2 else SLOW
        ratio[case] = statistics.median(r['beside'] / r['alone'] for r in runs)
        beside[case] = statistics.median(r['beside'] for r in runs)
        rows.append([' '.join(case), f'{runs[0]["bytes"] / MIB:.0f}', f'{statistics.median(r["alone"] for r in runs) / slow:.3f}',
                     f'{beside[case] / slow:.3f}', f'{ratio[case]:.3f}', f'{min(r["idle beside"] for r in runs):.2f}',
                     min(r['running beside'] for r in runs)])
    rep.table(['', 'MiB', 'alone, s', 'beside four dumps, s', 'of alone', 'idle beside', 'dumps that outlasted it'], rows)
    rep.text('A restore, held to 500 MiB/s like the dumps, which all write when it begins and have three times as much to do; stock CRIU with an empty page cache. '
             'All of its memory is compared afterwards.')
    if ('zones', 'static') in ratio:
        rep.aim('a restore beside four dumps on zones, static: latency over alone', ratio['zones', 'static'], '<=', 1.1)
    if ('zones', 'static', 'half the rate') in ratio:
        rep.aim('a restore beside four dumps on zones, static, half the rate: latency over alone', ratio['zones', 'static', 'half the rate'], '<=', 1.1)
    if ('ext4', '') in ratio:
        rep.control('a restore beside four dumps, conventional, ext4: latency over alone', ratio['ext4', ''], '>', 1.3)
    if ('zones', 'dynamic') in ratio and ('zones', 'static') in ratio:
        rep.text(f'Dynamic allocation: beside dumps {beside["zones", "dynamic"] / beside["zones", "static"]:.2f} of the time of static.')
    gain = got.get('idle_groups')
    if gain:
        rep.heading('What dynamic gains: idle groups')
        rep.table(['a seventh container\'s dump, six have thirty groups', 'groups', 'MiB/s', 'latency, s', 'idle'],
                  [[case, len(one['groups']), f'{one["rate"] * SLOW:.0f}', f'{one["latency_s"] / SLOW:.3f}', f'{one["idle"]:.2f}'] for case, one in gain.items()])
        rep.text('Six containers have thirty of the 32 groups, and nobody writes: by dumps of their own, with static allocation; in the last row they are '
                 'reserved for normal I/O, which dumps never use. The seventh asks for 500 MiB/s.')
        part = {case: one['rate'] * SLOW / 500 for case, one in gain.items()}
        for alloc in ('static', 'dynamic'):
            rep.aim(f'a dump while groups of others\' checkpoints are idle, {alloc}: of the rate that it asks for', part[alloc], '>=', 0.95)
        rep.control('a dump while groups that are reserved for normal I/O are idle: of the rate that it asks for', part['for normal I/O'], '<', 0.7)


# ---- g: five writers -----------------------------------------------------------------------------------

def rate_of(jobs, begin, end, bs):
    """
    A writer's bytes per second, summed over its jobs, each between its first and its last I/O of that time. Jobs end
    together, so counting them as one would count one burst too many.
    """
    total = 0
    for job in jobs:
        mine = [t for t in job if begin <= t < end]
        total += (len(mine) - 1) * bs / (mine[-1] - mine[0]) if len(mine) > 2 else 0
    return total


BEGINS = 0.2    # of a phase: the newest writer begins, and fio makes up for what its start took


def part_g(rep, found):
    rows = []
    for cell, got in found.items():
        slow = CELLS[cell].params['slow']
        for title, one in (got or {'cases': {}})['cases'].items():
            gap, end, scale = one['gap'], one['end'], slow / MIB
            first = rate_of(one['jobs'][0], BEGINS * gap, gap, one['bs']) * scale
            last = [rate_of(jobs, end - (1 - BEGINS) * gap, end, one['bs']) * scale for jobs in one['jobs']]
            fair = FLASH['die-write'] * LARGE['channels'] / len(last)
            rows.append([f'{NAMES["ext4"].split(",")[0]}, {title}' if cell == 'writers-conventional' else title, f'{first:.0f}',
                         ' '.join(f'{v:.0f}' for v in last), f'{min(last) / max(1, first):.3f}', f'{one["idle"]:.2f}'])
            if cell == 'writers':
                rep.aim(f'five writers, {title}: rate of alone, the worst', min(last) / max(1, first), '>=', 0.98)
            elif cell == 'writers-large':
                rep.aim('five writers on a drive with large zones: of its fair share, the worst', min(last) / fair, '>=', 0.95)
                rep.aim('five writers on a drive with large zones: rate of alone, the worst', min(last) / max(1, first), '<', 0.7)
                rep.text(f'On the drive with large zones every zone is on every die: no zones of its own protect a writer. The fair share of five is '
                         f'{fair:.0f} MiB/s.')
            else:
                rep.control('five writers, conventional: rate of alone, the worst', min(last) / max(1, first), '<', 0.7)
            name = f'writers-{len(rows)}.svg'
            svg.lines(rep.file(name), f'five writers, {rows[-1][0]}', 's', 'MiB/s', {f'writer {i + 1}': [
                ((b + 0.5) * gap / 6 / slow, sum(b * gap / 6 <= t < (b + 1) * gap / 6 for job in jobs for t in job) * one['bs'] / (gap / 6) * scale)
                for b in range(int(end / gap * 6))] for i, jobs in enumerate(one['jobs'])}, y_max=620)
            rep.plot(name)
    rep.table(['', 'first alone, MiB/s', 'all five, MiB/s each', 'of alone, the worst', 'idle'], rows)
    rep.text('fio, direct and sequential, writes of 192 KiB (a program unit), one in flight for each zone; each writer is held to 500 MiB/s by fio and begins '
             'when the one before has run for a while; on zones of the drive itself, on dies of their own, none of which is filled or reset meanwhile. '
             'Rates are of the first phase and of the last, each without its first fifth.')


# ---- the same at half the rate -------------------------------------------------------------------------

def compare(rep, full, half):
    """Compares each figure with that at half the rate. They are ratios, so if they differ, the processor was the bottleneck."""
    there = {c['what']: c['value'] for c in half}
    rows = [[c['what'], f'{c["value"]:.3f}', f'{there[c["what"]]:.3f}', f'{there[c["what"]] / c["value"]:.2f}' if c['value'] else '-']
            for c in full if c['what'] in there]
    if rows:
        rep.heading('At half the rate')
        rep.table(['', 'full rate', 'half', 'half over full'], rows)
