# SPDX-License-Identifier: GPL-2.0-only
"""Tables and plots of the finished cells: medians of the rounds."""
import json
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / 'papers'), str(Path(__file__).resolve().parents[1])]
import kept                     # noqa: E402
import svg                      # noqa: E402
from arms import ARMS, TITLES   # noqa: E402

MIB = 1 << 20
THROUGHPUT, P95 = 0.85, 1.2     # as a multiple of ample DRAM's figure: up to this a step counts as good
QUIET = 2                       # the ratio of the largest to the smallest p95 with ample DRAM may be at most this
LATENCIES = ('p50_ms', 'p90_ms', 'p95_ms', 'p99_ms', 'max_ms')


def line(cell):
    """One cell on one line."""
    head = f'{cell["arm"]:17} N {cell["containers"]:3}  round {cell["round"]}'
    if 'critical' not in cell:
        return f'{head}  broken: {cell["why"]}'
    c, n = cell['critical'], cell['noise']
    return (f'{head}  {c["per_s"]:6.0f}/s p50 {c["p50_ms"]:.2f} p95 {c["p95_ms"]:.2f} p99 {c["p99_ms"]:.2f} max {c["max_ms"]:.0f} ms;  '
            f'noise {n["per_s"]:.1f}/s p50 {n.get("p50_ms", 0):.1f} p95 {n.get("p95_ms", 0):.1f} ms;  in {cell.get("in_bytes", 0) / MIB / cell["seconds"]:.1f} '
            f'out {cell.get("out_bytes", 0) / MIB / cell["seconds"]:.1f} MiB/s  pager {cell.get("pager_cpu_s", 0) / cell["seconds"]:.2f} CPU'
            f'{"  BROKEN" if cell["broken"] else ""}')


def read(directory):
    """{arm: {containers: [cells]}}"""
    found = {}
    for path in sorted((directory / 'cells').glob('*.json')):
        cell = json.loads(path.read_text())
        found.setdefault(cell['arm'], {}).setdefault(cell['containers'], []).append(cell)
    return {arm: dict(sorted(found[arm].items())) for arm in ARMS if arm in found}


def median(cells, *path):
    """Median of a value over cells. None: some cells have no such value."""
    values = []
    for cell in cells:
        for key in path:
            cell = cell.get(key) if isinstance(cell, dict) else None
        if cell is not None:
            values.append(cell)
    return statistics.median(values) if len(values) == len(cells) and values else None


def rate_of(cells, key, scale=1.0):
    values = [c[key] / c['seconds'] / scale for c in cells if key in c]
    return statistics.median(values) if values else None


def good_until(cells, base):
    """The largest N up to which all steps are good, compared with the median of all cells of ample DRAM; 0: none."""
    ample, until = [c for some in base.values() for c in some if not c['broken']], 0
    for nr, some in cells.items():
        if not ample or any(c['broken'] for c in some):
            break
        if (median(some, 'critical', 'per_s') < THROUGHPUT * median(ample, 'critical', 'per_s')
                or median(some, 'critical', 'p95_ms') > P95 * median(ample, 'critical', 'p95_ms')):
            break
        until = nr
    return until


def shares(cells, base):
    """Each step compared with ample DRAM."""
    ample = [c for some in base.values() for c in some if not c['broken']]
    said = []
    for nr, some in cells.items():
        if not ample or any('critical' not in c for c in some):
            said.append(f'{nr}: broken')
            continue
        share, p95 = (median(some, 'critical', key) / median(ample, 'critical', key) for key in ('per_s', 'p95_ms'))
        said.append(f'{nr}: {100 * share:.0f} %, p95 x{p95:.2f}')
    return '; '.join(said)


def show(value, digits=1):
    return '' if value is None else f'{value:,.{digits}f}'


def table(cells):
    yield ('| N | rounds | critical, per second | ' + ' | '.join(f'{k[:-3]}, ms' for k in LATENCIES) + ' | noise, per second | p50, ms | p95, ms | max, ms '
           '| in, MiB/s | out, MiB/s | disk read, MiB/s | disk written, MiB/s | major faults/s | pager, CPUs | noise, CPUs | critical, CPUs |')
    yield '| ' + ' | '.join(['---'] * 21) + ' |'
    for nr, some in cells.items():
        if any('critical' not in c for c in some):
            yield f'| {nr} | {len(some)} | broken: {next(c["why"] for c in some if "why" in c)} |'
            continue
        row = [show(median(some, 'critical', 'per_s'), 0) + (' (broken)' if any(c['broken'] for c in some) else '')]
        row += [show(median(some, 'critical', k), 2) for k in LATENCIES]
        row += [show(median(some, 'noise', 'per_s'))] + [show(median(some, 'noise', k)) for k in ('p50_ms', 'p95_ms', 'max_ms')]
        row += [show(rate_of(some, k, MIB)) for k in ('in_bytes', 'out_bytes', 'disk_read', 'disk_written')]
        row += [show(rate_of(some, 'pgmajfault'), 0)] + [show(rate_of(some, k), 3) for k in ('pager_cpu_s', 'noise_cpu_s', 'critical_cpu_s')]
        yield f'| {nr} | {len(some)} | ' + ' | '.join(row) + ' |'


def plots(directory, found):
    for who, key, title, label in (('critical', 'per_s', 'The critical workload: answers', 'a second'),
                                   ('critical', 'p95_ms', 'The critical workload: p95', 'ms'),
                                   ('critical', 'p99_ms', 'The critical workload: p99', 'ms'),
                                   ('noise', 'p50_ms', "Noise: median", 'ms'), ('noise', 'p95_ms', 'Noise: p95', 'ms')):
        series, ample = {}, []
        for arm, cells in found.items():
            points = [(nr, value) for nr, some in cells.items() if (value := median(some, who, key)) is not None]
            if points:
                series[TITLES[arm]] = points
            if arm == 'ample':
                ample = [y for _, y in points]
        if not series:
            continue
        top = max(y for s in series.values() for _, y in s)
        if ample and key != 'per_s' and who == 'critical':
            top = min(top, 20 * max(ample))     # steps far too slow are left out of the plot
        svg.lines(directory / f'{who}-{key.removesuffix("_ms")}.svg', title, 'noise containers', label, series, 1.08 * top)


def write(directory):
    found = read(directory)
    if not found:
        return
    settings = json.loads((directory / 'settings.json').read_text())
    out = ['# Density', '', f'{settings["cpus"]} CPUs, Linux {settings["kernel"]}; {settings["memory_mib"]} MiB for all containers and pagers; each noise '
           f'container has {270 // settings["divide"]} MiB; {settings["clients"]} client(s) of the noise, which wait {settings["wait_ms"]:g} ms, after {settings["laps"]} laps; '
           f'{settings["rate"]} requests a second fall due; {settings["window_s"]:g} s each; load before: {settings["load_before"][0]:.1f}', '']
    base, until = found.get('ample', {}), {}
    if base:
        out += [f'Largest N up to which each step has {THROUGHPUT:g} of ample DRAM\'s throughput, and {P95:g} of its p95 at most:', '']
        for arm in found:
            if arm != 'ample':
                until[arm] = good_until(found[arm], base)
                out.append(f'- {TITLES[arm]}: {until[arm] or "none"}. By N: {shares(found[arm], base)}')
        out.append('')
    p95 = [c['critical']['p95_ms'] for some in base.values() for c in some if 'critical' in c]
    if p95 and max(p95) > QUIET * min(p95):
        out += [f'**The machine was not quiet**: with ample DRAM the p95 is between {min(p95):.2f} and {max(p95):.2f} ms. The verdict means little.', '']
    for arm, cells in found.items():
        out += [f'## {TITLES[arm]}', '', *table(cells), '']
    figures = {kept.name_of(arm, nr, key): median(some, *key.split()) for arm, cells in found.items() for nr, some in cells.items()
               for key in ('critical per_s', 'critical p95_ms', 'critical p99_ms', 'critical max_ms', 'noise per_s', 'noise p50_ms', 'noise max_ms')}
    kept.keep(directory, 'make bench-density', {**figures, **{kept.name_of(arm, 'until'): nr for arm, nr in until.items()}}, None, '\n'.join(out) + '\n',
              settings['load_before'][0])
    (directory / 'report.json').write_text(json.dumps({'settings': settings, 'good_until': until, 'cells': found}, indent=1))
    plots(directory, found)
    print('\n'.join(text for text in out[2:] if text and text[0] not in '|#'))
    print(f'{directory}/report.md')
