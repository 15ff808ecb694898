# SPDX-License-Identifier: GPL-2.0-only
"""Part s of the cells' results: normal I/O beside the five dumps, on zones and under each mechanism of the kernel."""
import re

import svg
from figures import MIB, PERCENT, at, beside_row, opponent, plot_latencies, series_of
from spec import CELLS, KEPT


def rate_together(dumps, slow):
    """MiB/s of dumps that ran at once."""
    return sum(d['bytes'] for d in dumps) / MIB / (max(d['end'] for d in dumps) - min(d['first'] for d in dumps)) * slow


def beside_table(rep, rows):
    triple = lambda v: ' / '.join(f'{x:.2f}' for x in v)
    rep.table(['', 'fio alone, MiB/s', 'beside', 'kept', 'ms alone p50 / p99 / p99.9', 'ms beside', 'p99 ratio', 'p99.9 ratio', 'I/Os',
               'five dumps beside, MiB/s together', 'with nobody beside', 'the last has ended after, s', 'with nobody beside', 'frozen beside, ms, the most',
               'in the drive alone p50 / p99 / p99.9', 'in the drive beside', 'idle'],
              [[n, f'{r["alone MiB/s"]:.0f}', f'{r["beside MiB/s"]:.0f}', f'{r["kept"]:.3f}', triple(r['alone']), triple(r['beside']),
                f'{r["p99"]:.2f}', f'{r["p99.9"]:.2f}', f'{r["n"][0]}, {r["n"][1]}', f'{r["dumps"]:.0f}', f'{r["dumps alone"]:.0f}', f'{r["took"]:.3f}',
                f'{r["took alone"]:.3f}', f'{r["frozen"]:.1f}', *(triple(v) if v else '-' for v in r['in the drive']), f'{r["idle"]:.2f}']
               for n, r in rows.items()])


def row_of(cell, name, one):
    """Name and cells of a setting's row; None: there was no I/O."""
    slow = CELLS[cell].params['slow']
    row = beside_row(one, slow)
    if row is None:
        return name, None
    label = {'soft-zones': 'zones', 'soft-zones-half': 'zones, half the rate',
             'soft-apart': 'fio on a drive of its own', 'soft-apart-half': 'fio on a drive of its own, half the rate', 'soft-f2fs': 'F2FS, none'}.get(cell, name)
    took = lambda dumps: (max(d['end'] for d in dumps) - min(d['start'] for d in dumps)) / slow
    return label, {**row, 'set': one['set'], 'idle': min(one['idle_alone'], one['idle_beside']), 'held back': one['held_back_s'],
                   'dumps': rate_together(one['dumps'], slow), 'dumps alone': rate_together(one['dumps_alone'], slow),
                   'in the drive': [v and [at(v, q) * 1e3 / slow for q in PERCENT] for v in one['in_drive'] or (None, None)],
                   'took': took(one['dumps']), 'took alone': took(one['dumps_alone']),
                   'frozen': max(d['frozen_s'] for d in one['dumps']) * 1e3 / slow}


def in_drive(row):
    """By what factor p99 grew in the drive; None: it was not recorded."""
    alone, beside = row['in the drive']
    return beside[1] / alone[1] if alone and beside else None


def part_s(rep, found):
    rows, kept = {}, {}
    for cell, got in found.items():
        for name, one in (got or {'settings': {}})['settings'].items():
            if one is None:
                rep.text(f'{name} is not built in this kernel.')
                continue
            label, row = row_of(cell, name, one)
            if row is None:
                rep.text(f'{name}: no I/O beside the dumps, or none alone.')
                continue
            rows[label], kept[label] = row, (one, CELLS[cell].params['slow'])
    if not rows:
        return
    beside_table(rep, rows)
    p = CELLS['soft-zones'].params
    rep.text(f'fio: five jobs, {p["rate"]} MiB/s together, {p["bs_kib"]} KiB sequential, direct, one in flight each; on a zone each of five reserved '
             'groups that it does not fill, or overwriting five files. So on zones it has five dies of 32, on the conventional drive it is dealt to all. '
             'Beside it all five dumps of the papers\' sizes at once, each held to 500 MiB/s, on zones by zns-qos-max and at half '
             f'the rate by io.max of its group. Settings: weights {KEPT[0]} for fio and {KEPT[1]} for each dump (BFQ, io.cost); io.max '
             f'{CELLS["soft-none"].params["limit"]} MiB/s for each dump. *In the drive* is what the model says that fio\'s writes took, without the emulated '
             'processor, on which fio and the dumps wait for each other as well. *With nobody beside* the setting is in effect, too: what the five lose there is what it costs.')
    for n, r in rows.items():
        if r['set']:
            rep.text(f'{n}: {", ".join(f"{k}={v}" for k, v in r["set"].items())}.'
                     + (f' cost.wait beside: fio {r["held back"][0]:.2f} s, dumps {r["held back"][1]:.2f} s of the clock.' if 'wbps' in r['set'] else ''))
    if 'zones' in rows:
        rep.aim('fio beside five checkpoints on zones: bandwidth kept', rows['zones']['kept'], '>=', 0.98)
        rep.aim('fio beside five checkpoints on zones: p99 over p99 alone', rows['zones']['p99'], '<=', 1.1)
        if in_drive(rows['zones']):
            rep.aim('fio beside five checkpoints on zones, in the drive: p99 over p99 alone', in_drive(rows['zones']), '<=', 1.1)
    if 'zones, half the rate' in rows:
        rep.aim('fio beside five checkpoints on zones, half the rate: p99 over p99 alone', rows['zones, half the rate']['p99'], '<=', 1.1)
    if 'F2FS, none' in rows:
        rep.control('fio beside five of stock CRIU, conventional, F2FS, no scheduler: p99 over p99 alone', rows['F2FS, none']['p99'], '>', 1.5)
    for half in ('', ', half the rate'):
        own, same = rows.get(f'fio on a drive of its own{half}'), rows.get(f'zones{half}')
        if own and same:
            rep.text(f'On a drive of its own{half}, fio\'s p99 beside the same five dumps is {own["p99"]:.2f} of alone ({own["alone"][1]:.2f} to {own["beside"][1]:.2f} ms), '
                     f'on their drive {same["p99"]:.2f} ({same["alone"][1]:.2f} to {same["beside"][1]:.2f} ms). No dump touches the former: what grows there is the emulated machine\'s.')
    software = {n: r for n, r in rows.items() if not n.startswith(('zones', 'F2FS', 'fio on'))}
    if 'none' in software:
        rep.control('fio beside five of stock CRIU, conventional, no scheduler: p99 over p99 alone', software['none']['p99'], '>', 1.5)
        if in_drive(software['none']):
            rep.control('fio beside five of stock CRIU, conventional, no scheduler, in the drive: p99 over p99 alone', in_drive(software['none']), '>', 1.5)
    if software:
        best, plain = opponent(software), rows.get('none', {}).get('dumps alone')
        rep.text(f'The best of the software is **{best}**: fio keeps {software[best]["kept"]:.3f} of its bandwidth, p99 is {software[best]["beside"][1]:.2f} ms, '
                 f'{software[best]["p99"]:.2f} of alone. The five dumps then have {software[best]["dumps alone"] / (plain or software[best]["dumps alone"]):.2f} of '
                 'what they have without a scheduler while nobody is beside them: the rest is what it costs in idle capacity.')
        if 'zones' in rows:
            rep.aim('p99 of fio beside five checkpoints on zones over that under the best software setting',
                    rows['zones']['beside'][1] / software[best]['beside'][1], '<=', 1.0)
            drive = {n: r['in the drive'][1][1] for n, r in software.items() if in_drive(r)}
            if drive and in_drive(rows['zones']):
                lowest = min(drive, key=drive.get)
                rep.text(f'In the drive the lowest p99 under software is that of {lowest}: {drive[lowest]:.2f} ms beside the dumps.')
                rep.aim('in the drive: p99 of fio beside five checkpoints on zones over the lowest of software', rows['zones']['in the drive'][1][1] / drive[lowest], '<=', 1.0)
        shown = [k for k in dict.fromkeys(('zones', 'none', best)) if k in kept]
        svg.lines(rep.file('soft.svg'), f'fio beside five dumps, {p["rate"]} MiB/s asked', 's', 'MiB/s',
                  {k: series_of(*kept[k]) for k in shown})
        rep.plot('soft.svg')
        for name in shown:
            file = re.sub('[^a-z.0-9]+', '-', name)
            plot_latencies(rep, f'soft-{file}', f'five dumps beside it: {name}', *kept[name])
