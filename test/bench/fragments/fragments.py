#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
fragments: the experiments of the HotStorage 2022 paper on file fragmentation, on a modelled conventional drive under a real kernel.

    fragments.py run [--parts a,b] [--again] [--quick] [--kernel 6.1] [--report DIR]    what is not there yet; then the report
    fragments.py report [--report DIR]                                                  the report anew from what is there
    fragments.py list

A cell is one guest. One that has ended is kept (DIR/cells/NAME.json) and not run again unless its parameters have changed.
"""
import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'drives'), str(HERE.parent / 'papers')]
import drives  # noqa: E402
import figures_fragments as figures  # noqa: E402
import papers  # noqa: E402
from spec import KERNEL  # noqa: E402
from spec_fragments import CELLS, PARTS, quick  # noqa: E402

STAGED = ['build/fio-src/fio']


def report(args):
    found = {name: drives.kept(name, cell, args.keep) for name, cell in CELLS.items()}
    rep = papers.Report(args.report, full=True)
    for letter, part in PARTS.items():
        mine = {name: found[name] for name in part.cells if found[name]}
        if not mine:
            continue
        rep.begin(letter, f'{letter}. {part.title}')
        missing = [n for n in part.cells if n not in mine]
        if missing:
            rep.text(f'**Not there: {", ".join(missing)}.**')
        getattr(figures, f'part_{letter}')(rep, mine)
        rep.end(sum(v['wall_s'] for v in mine.values()))
    rep.write(figures.head(papers.machine(), [v for v in found.values() if v]), 'File fragmentation and weights, under a kernel')
    results = args.report / 'results.json'
    cells = {letter: [n for n in part.cells if found[n]] for letter, part in PARTS.items()}
    results.write_text(json.dumps({**json.loads(results.read_text()), 'cells': cells}, indent=1) + '\n')
    print(f'{sum(c["met"] for c in rep.checks)} of {len(rep.checks)} aims and controls met; {args.report}/report.md')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', choices=['run', 'report', 'list'])
    parser.add_argument('--parts', default=','.join(PARTS), help='letters, with commas between')
    parser.add_argument('--quick', action='store_true', help='with little data: a check that all of it runs')
    parser.add_argument('--again', action='store_true', help='run what is there, too')
    parser.add_argument('--kernel', default=KERNEL)
    parser.add_argument('--report', type=Path, default=Path('build/report/fragments'))
    args = parser.parse_args()
    parts = args.parts.split(',')
    unknown = [p for p in parts if p not in PARTS]
    if unknown:
        print(f'fragments: no part "{unknown[0]}"; there are {", ".join(PARTS)}', file=sys.stderr)
        return 2
    if args.command == 'list':
        for p in parts:
            print(f'{p}  {PARTS[p].title}: {", ".join(PARTS[p].cells)}')
        return 0
    suffix = (f'-{args.kernel}' if args.kernel != KERNEL else '') + ('-quick' if args.quick else '')
    args.report = args.report.with_name(args.report.name + suffix).resolve()
    args.keep = args.report / 'cells'
    args.keep.mkdir(parents=True, exist_ok=True)
    if args.quick:
        CELLS.update({name: quick(cell) for name, cell in CELLS.items()})
    failed = False
    for name in [n for p in parts for n in PARTS[p].cells] if args.command == 'run' else []:
        if not args.again and drives.kept(name, CELLS[name], args.keep):
            print(f'  {name}: kept', flush=True)
            continue
        print(f'  {name}', flush=True)
        failed |= drives.run_cell(name, CELLS[name], args.keep, args.kernel, 'fragments', STAGED) is None
    report(args)
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())
