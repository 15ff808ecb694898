#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
drives: the papers' figures on modelled drives (test/drive) under a real kernel, with real criu, each beside its control.

    drives.py run [--parts a,b] [--cells NAME,…] [--again] [--quick] [--half] [--report DIR]
                                                            what is not there yet is run; then report.md, results.json, plots
    drives.py report [--report DIR]                         the report anew from what is there
    drives.py list

A part is one or more cells, a cell is one guest. A cell that has ended is kept (DIR/cells/NAME.json) and not run again
unless its parameters have changed, or --again is given: a run that was ended goes on. Exit code 0 whatever the figures are.
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'papers')]
import figures  # noqa: E402
import figures_soft  # noqa: E402
import papers  # noqa: E402
from spec import CELLS, KERNEL, PARTS, half, quick  # noqa: E402

REPO = HERE.parents[2]
HALF = '@half'
STAGED = ['build/bench/subject', 'build/zdtm/stock/criu/criu', 'build/fio-src/fio']


def key_of(cell):
    """What a stored result must have been made with to be valid."""
    return hashlib.sha256(json.dumps([cell.guest, cell.params, cell.devices], sort_keys=True).encode()).hexdigest()[:16]


def busy_of(before):
    """Seconds since then that processors of this machine were not idle, summed."""
    words = [int(n) for n in Path('/proc/stat').read_text().split('\n', 1)[0].split()[1:9]]
    now = (sum(words) - words[3] - words[4]) / os.sysconf('SC_CLK_TCK'), time.monotonic()
    return now if before is None else (now[0] - before[0]) / (now[1] - before[1]) / os.cpu_count()


def run_cell(name, cell, keep, kernel, cells='drives', staged=tuple(STAGED)):
    """Runs one guest; returns its result, and how busy the machine was. cells: the folder of test/bench whose cells.py is run."""
    results = keep / f'{name}.guest'
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    command = [REPO / 'scripts/vm/run', kernel, 'test/bench/drives/guest.sh', '--timeout', cell.limit_s, '--results', results,
               *[w for s in staged for w in ('--stage', s)], '--devices', *cell.devices, '--', cells, cell.guest, json.dumps(cell.params)]
    load, busy, begin = os.getloadavg()[0], busy_of(None), time.monotonic()
    # one processor, so that what is idle in the guest is what the emulation has left
    done = subprocess.run([str(c) for c in command], env={**os.environ, 'VM_SMP': '1', 'VM_NICE': '0'}, cwd=REPO,
                          stdin=subprocess.DEVNULL, check=False)
    found = results / 'cell.json'
    if done.returncode or not found.exists():
        print(f'  {name}: FAILED, exit {done.returncode}: {results}/serial.log', file=sys.stderr, flush=True)
        return None
    got = json.loads(found.read_text())
    got.update(key=key_of(cell), kernel=kernel, wall_s=round(time.monotonic() - begin, 1), load_before=load,
               machine_busy=round(busy_of(busy), 3), date=time.strftime('%Y-%m-%d'))
    part = keep / f'{name}.json.new'
    part.write_text(json.dumps(got) + '\n')
    part.rename(keep / f'{name}.json')
    shutil.rmtree(results, ignore_errors=True)      # a drive that ends may still write its counters there
    return got


def kept(name, cell, keep):
    try:
        found = json.loads((keep / f'{name}.json').read_text())
    except (OSError, ValueError):
        return None
    return found if found.get('key') == key_of(cell) else None


def part_of(part):
    """The function that makes the section of a part."""
    name = f'part_{part}'
    return getattr(figures, name, None) or getattr(figures_soft, name)


def halves(args, part):
    """Checks the cells of this part that were run at half the rate."""
    mine = {name: kept(name + HALF, CELLS[name + HALF], args.keep) for name in PARTS[part].all()}
    if not any(mine.values()):
        return []
    with tempfile.TemporaryDirectory() as at:
        rep = papers.Report(Path(at), full=True)
        rep.begin(part, '')
        part_of(part)(rep, mine)
        return rep.checks


def cells_of(args, parts):
    """{part: names of the stored results} from which its tables and plots are made."""
    names = {part: [n + end for n in PARTS[part].all() for end in ('', HALF)] for part in parts}
    return {part: [n for n in mine if n in CELLS and kept(n, CELLS[n], args.keep)] for part, mine in names.items()}


def report(args, parts):
    found = {name: kept(name, CELLS[name], args.keep) for part in parts for name in PARTS[part].all()}
    rep = papers.Report(args.report, full=True)
    for part in parts:
        rep.begin(part, f'{part}. {PARTS[part].title}')
        mine = {name: found[name] for name in PARTS[part].all()}
        if any(v is None for v in mine.values()):
            missing = [n for n, v in mine.items() if v is None]
            rep.text(f'**Not there: {", ".join(missing)}.**')
        if any(mine.values()):
            before = len(rep.checks)
            part_of(part)(rep, mine)
            figures.compare(rep, rep.checks[before:], halves(args, part))
        rep.text(figures.when(papers.machine(), [v for v in mine.values() if v]))
        rep.end(sum(v['wall_s'] for v in mine.values() if v))
    rep.write(figures.head(), 'The papers\' figures on modelled drives, under a kernel')
    results = args.report / 'results.json'
    results.write_text(json.dumps({**json.loads(results.read_text()), 'cells': cells_of(args, parts)}, indent=1) + '\n')
    missed = [c for c in rep.checks if not c['met']]
    print(f'{len(rep.checks) - len(missed)} of {len(rep.checks)} aims and controls met; {args.report}/report.md')
    return 0


def run(args, parts):
    failed = False
    for part in parts:
        print(f'{part}: {PARTS[part].title}', flush=True)
        names = PARTS[part].all() if args.parts else PARTS[part].cells
        for name in names + ([n + HALF for n in names if not n.endswith('-half')] if args.half else []):
            cell = CELLS[name]
            if args.cells and name not in args.cells.split(','):
                continue
            if not args.again and kept(name, cell, args.keep):
                print(f'  {name}: kept', flush=True)
                continue
            print(f'  {name}', flush=True)
            failed |= run_cell(name, cell, args.keep, args.kernel) is None
    report(args, [p for p in PARTS if any(kept(n, CELLS[n], args.keep) for n in PARTS[p].all())])
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', choices=['run', 'report', 'list'])
    parser.add_argument('--parts', help='letters, with commas between; a part that is named has all its cells, else those of the 90 minutes')
    parser.add_argument('--cells', metavar='NAME,…', help='of these parts, only these cells')
    parser.add_argument('--quick', action='store_true', help='with little data: a check that all of it runs')
    parser.add_argument('--again', action='store_true', help='run what is there, too')
    parser.add_argument('--half', action='store_true', help='each cell at half the rate, too: twice its time more')
    parser.add_argument('--kernel', default=KERNEL)
    parser.add_argument('--report', type=Path, default=Path('build/report/drives'))
    args = parser.parse_args()
    parts = args.parts.split(',') if args.parts else list(PARTS)
    unknown = [p for p in parts if p not in PARTS]
    if unknown:
        print(f'drives: no part "{unknown[0]}"; there are {", ".join(PARTS)}', file=sys.stderr)
        return 2
    if args.quick:
        CELLS.update({name: quick(cell) for name, cell in CELLS.items()})
        args.report = args.report.with_name(args.report.name + '-quick')
    CELLS.update({name + HALF: half(cell) for name, cell in CELLS.items()})
    args.report = args.report.resolve()
    args.keep = args.report / 'cells'
    args.keep.mkdir(parents=True, exist_ok=True)
    if args.command == 'list':
        for p in parts:
            print(f'{p}  {PARTS[p].title}: {", ".join(PARTS[p].cells)}{"; if it is named: " * bool(PARTS[p].more)}{", ".join(PARTS[p].more)}')
        return 0
    return report(args, parts) if args.command == 'report' else run(args, parts)


if __name__ == '__main__':
    sys.exit(main())
