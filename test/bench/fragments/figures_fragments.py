# SPDX-License-Identifier: GPL-2.0-only
"""Makes tables, plots, aims and controls from the cells of bench-fragmentation, scaled back to rates of a real drive."""
import svg
from spec_fragments import FLASH, SLOW, UNIT_KIB

MIB = 1 << 20
CONTROLS = {'bfq': 'BFQ', 'iocost': 'io.cost'}


def head(machine, there):
    load = ', '.join(f'{v["load_before"]:.1f}' for v in there)
    return f'''Machine: {machine}; {sum(v["wall_s"] for v in there) / 60:.0f} minutes of guests of one emulated processor, Linux
{", ".join(sorted({v["kernel"] for v in there}))}. Load of the machine before each guest: {load or "none run"}. Above 0.5 it was not quiet.

The drive is a model with a page-mapping FTL: {FLASH["channels"]} dies, each on a channel of its own; pages of 4 KiB go to the dies in order of
arrival, so the parallel unit is {UNIT_KIB} KiB. A die reads {FLASH["die-read"]} MiB/s and writes {FLASH["die-write"]} (files are laid out by writes; that is not rated). It
is new, so no garbage collection moves pages. Model time runs {SLOW} times as slow as the clock; rates here are those measured times that.
Fragments come from O_DIRECT appends to two files in turns, on F2FS; FIEMAP says that they lie as they should. CFQ is in no kernel
since 5.0, and has no part here.'''


def rates(cell):
    return {p['kib']: p['rate'] * SLOW for p in cell['points']}


def idle(found):
    return f'Processor idle in the guest, the least: {min(p["idle"] for p in found["points"]):.2f}.'


def part_a(rep, found):
    got = {name: rates(cell) for name, cell in found.items()}
    eight, seven = got.get('distance'), got.get('distance-seven')
    kib = sorted({k for r in got.values() for k in r})
    rep.table(['KiB apart', *got], [[k, *(f'{r[k]:.0f}' if k in r else '' for r in got.values())] for k in kib])
    for cell in found.values():
        rep.text(idle(cell))
    svg.lines(rep.file('distance.svg'), 'sequential reads of 128 KiB of 4 KiB fragments', 'KiB between beginnings', 'MiB/s',
              {{'distance': 'eight dies', 'distance-seven': 'seven dies'}[n]: sorted(r.items()) for n, r in got.items()})
    rep.plot('distance.svg')
    if eight:
        whole = eight[4]
        rep.aim('distance: drop at multiples of 32 KiB, the least', 1 - max(v for k, v in eight.items() if not k % UNIT_KIB) / whole, '>=', 0.6)
        rep.aim('distance: drop anywhere between, the most', 1 - min(v for k, v in eight.items() if k % UNIT_KIB) / whole, '<', 0.6)
    if seven:
        rep.control('seven dies: drop at 32 KiB', 1 - seven[32] / seven[4], '<', 0.6)
        rep.aim('seven dies: drop at 28 KiB', 1 - seven[28] / seven[4], '>=', 0.6)
        rep.aim('seven dies: drop at multiples of 28 KiB, the least', 1 - max(v for k, v in seven.items() if not k % 28) / seven[4], '>=', 0.6)
        rep.aim('seven dies: drop anywhere between, the most', 1 - min(v for k, v in seven.items() if k % 28) / seven[4], '<', 0.6)


def part_b(rep, found):
    cell = found['sizes']
    of = {(p['file'], p['order'], p['bs']): p['rate'] * SLOW for p in cell['points']}
    sizes = sorted({k[2] for k in of})
    kinds = [(f, o) for f in ('whole', 'fragmented') for o in ('sequential', 'random')]
    rep.table(['KiB', *(f'{f}, {o}' for f, o in kinds)], [[bs, *(f'{of[(*k, bs)]:.0f}' for k in kinds)] for bs in sizes])
    rep.text(idle(cell))
    svg.lines(rep.file('sizes.svg'), 'fragments of 4 KiB, 32 KiB apart, against a whole file', 'KiB a read', 'MiB/s',
              {f'{f}, {o}': [(bs, of[(f, o, bs)]) for bs in sizes] for f, o in kinds})
    rep.plot('sizes.svg')
    for order in ('sequential', 'random'):
        rep.aim(f'sizes: fragmented, {order}, 128 KiB: drop', 1 - of['fragmented', order, 128] / of['whole', order, 128], '>=', 0.6)
    rep.control('sizes: reads of one page: drop', 1 - of['fragmented', 'random', 4] / of['whole', 'random', 4], '<', 0.3)


def timeline(rep, name, cell):
    control, charged = name.split('-')
    of = {p['name']: [r * SLOW for r in p['rates'][:2]] for p in cell['phases']}     # the third one is the tenant whose data are moved
    title = f'{CONTROLS[control]}, the move charged to {"its owner" if charged == "owner" else "a group of its own"}'
    rep.heading(title)
    held = {p['name']: p['held_back_s'][:2] for p in cell['phases']} if control == 'iocost' else {}
    rep.table(['phase', 'grp1 MiB/s', 'grp2 MiB/s', 'grp1 : grp2', *(['io.cost held back grp1, s', 'grp2, s'] if held else [])],
              [[n, f'{r[0]:.0f}', f'{r[1]:.0f}', f'{r[0] / r[1]:.2f}' if r[1] else '', *(f'{s:.1f}' for s in held.get(n, []))]
               for n, r in of.items()])
    written = dict(zip(('grp1', 'grp2', 'mover'), cell['written']))
    rep.text(f'Set: {cell["said"]}. Pieces: {cell["before"]["pieces"]}, afterwards {cell["after"]["pieces"]}. Bytes written in the name of: {written}.')
    series, start = {'grp1': [], 'grp2': []}, 0
    for p in cell['phases']:
        for (t0, a), (t1, b) in zip(p['series'], p['series'][1:]):
            for i, g in enumerate(series):
                series[g].append((start + t1, (b[i] - a[i]) / MIB / (t1 - t0) * SLOW))
        start += p['series'][-1][0] + 1
    svg.lines(rep.file(f'{name}.svg'), f'P1 to P6, move, after: {title}', 's', 'MiB/s', series)
    rep.plot(f'{name}.svg')
    ratio = {n: r[0] / max(r[1], 1e-9) for n, r in of.items()}
    rep.aim(f'{title}: P2, from 1:1', abs(ratio['P2'] - 1), '<=', 0.2)
    rep.aim(f'{title}: P3, from 2:1', abs(ratio['P3'] / 2 - 1), '<=', 0.2)
    rep.aim(f'{title}: after the move, from 2:1', abs(ratio['after'] / 2 - 1), '<=', 0.2)
    size = cell['after']['bytes']
    rep.aim(f'{title}: bytes written in the payer\'s name, of the file\'s', written['grp1' if charged == 'owner' else 'mover'] / size, '>=', 0.9)
    # which of the two loses depends on the controller, so the worse one counts
    rep.control(f'{title}: P4 over P2, the group that keeps least', min(a / b for a, b in zip(of['P4'], of['P2'])), '<', 0.7)
    rep.control(f'{title}: P5 over P3, the group that keeps least', min(a / b for a, b in zip(of['P5'], of['P3'])), '<', 0.7)


def part_c(rep, found):
    for name, cell in found.items():
        timeline(rep, name, cell)


part_d = part_c


def part_e(rep, found):
    moves = {(name.split('-')[1], m['how']): m for name, cell in found.items() for m in cell['moves']}
    rep.table(['', 'told', 'MiB written', 'of the file', 'MiB/s before', 'after', 'pieces before', 'after'],
              [[fs, how, f'{m["moved"] / MIB:.1f}', f'{m["moved"] / m["size"]:.2f}', f'{m["before"] * SLOW:.0f}', f'{m["after"] * SLOW:.0f}',
                m['layout']['pieces'], m['then']['pieces']] for (fs, how), m in moves.items()])
    for fs, name in (('f2fs', 'F2FS'), ('btrfs', 'Btrfs')):
        if (fs, 'ranges') not in moves:
            continue
        all_of, ranges = moves[fs, 'all'], moves[fs, 'ranges']
        rep.aim(f'{name}, told the ranges that collide: bytes written, of those of the whole file', ranges['moved'] / all_of['moved'], '<=', 0.5)
        rep.aim(f'{name}, told the ranges: rate, of that after all was moved', ranges['after'] / all_of['after'], '>=', 0.9)
        rep.control(f'{name}, before: rate, of that after all was moved', ranges['before'] / all_of['after'], '<', 0.7)


def of_weight(phase):
    """How much of its share by weight SQLite gets beside fio."""
    return phase['rates'][0] / max(phase['rates'][1], 1e-9) / (phase['weight'] / 100)


STATES = {'fragmented': 'fragmented', 'whole': 'whole', 'four': 'whole, four SELECTs at once', 'one': 'whole, fio with one read of 128 KiB in flight'}


def sqlite(rep, name, cell):
    title, neighbour = CONTROLS[name.split('-')[1]], name.startswith('neighbour')
    rep.heading(f'{title}: SELECT of a whole table, and random reads of 64 KiB' + (' of a file that is fragmented' if neighbour else ''))
    rows = []
    for p in cell['phases']:
        ours, other = (r * SLOW for r in p['rates'])
        took = sorted(p['selects_s'])
        rows.append([STATES[p['state']], *([p['weight'], f'{ours:.0f}', f'{other:.0f}', f'{ours / max(other, 1e-9):.2f}', f'{of_weight(p):.2f}']
                                           if p['weight'] else ['alone', f'{ours:.0f}', '', '', '']), *(f'{s:.1f}' for s in p['held_back_s']),
                     f'{took[len(took) // 2]:.2f}' if took else ''])
    rep.table(['fio\'s file' if neighbour else 'table', 'weight, beside 100', 'it has MiB/s', 'fio MiB/s', 'it : fio', 'of its weight', 'io.cost held back it, s', 'fio, s',
               'SELECT, median, s of the guest'], rows)
    rep.text(f'Set: {cell["said"]}. Pieces: {cell["before"]["pieces"]}, afterwards {cell["after"]["pieces"]}.')
    beside = [p for p in cell['phases'] if p['weight']]
    there = [s for s in STATES if any(p['state'] == s for p in beside)]
    svg.lines(rep.file(f'{name}.svg'), f'SQLite beside fio of weight 100: {title}', 'SQLite\'s weight', 'SQLite : fio',
              {**{STATES[s]: [(p['weight'], p['rates'][0] / max(p['rates'][1], 1e-9)) for p in beside if p['state'] == s] for s in there},
               'weights': [(p['weight'], p['weight'] / 100) for p in beside if p['state'] == 'whole']})
    rep.plot(f'{name}.svg')
    off = {s: max(abs(of_weight(p) - 1) for p in beside if p['state'] == s) for s in there}
    files = ' whose file was' if neighbour else ','
    rep.aim(f'{title}: SQLite beside fio{files} defragmented: from its weight, the most', off['whole'], '<=', 0.1)
    rep.control(f'{title}: SQLite beside fio{" whose file is" if neighbour else ","} fragmented: from its weight, the most', off['fragmented'], '>', 0.1)
    if 'four' in off:
        rep.aim(f'{title}: four SELECTs at once beside fio, defragmented: from their weight, the most', off['four'], '<=', 0.1)


def part_f(rep, found):
    for name, cell in found.items():
        sqlite(rep, name, cell)


part_g = part_f
