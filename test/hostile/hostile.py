#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
hostile: what a container's creator, a user's directory, a device or a peer can choose, chosen by an attacker.

  hostile.py list | run NAME... | run -a

Every file case_*.py beside this one holds the cases of one kind; its docstring's first line names the kind. A case
calls tried() once for each input that was handled well, and fails on the first that was not. The last lines are a
table of inputs by kind and the usual summary, which counts inputs.
"""
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'zonetests'))
sys.path.insert(0, str(HERE))

import ztlib                        # noqa: E402
from ztscene import parse_args, prepare, run_case        # noqa: E402
import tally                        # noqa: E402

SUITE = 'hostile'


def collect():
    """{case name: (kind, function)} of all case files."""
    found = {}
    for path in sorted(HERE.glob('case_*.py')):
        module = importlib.import_module(path.stem)
        kind = module.__doc__.strip().splitlines()[0].rstrip('.')
        for name, func in module.CASES.items():
            if name in found:
                sys.exit(f'{path.name}: there is another case {name}')
            found[name] = (kind, func)
    return found


def table(cases, results, fine):
    """Print inputs by kind; (inputs that were fine, failed cases, skipped cases)."""
    rows = {}
    for r in results:
        row = rows.setdefault(cases[r.name][0], dict(cases=0, inputs=0, fail=0, skip=0))
        row['cases'] += 1
        row['inputs'] += len(fine.get(r.name, ()))
        if r.verdict != 'pass':
            row[r.verdict] += 1
        elif not fine.get(r.name):      # a case that tries nothing proves nothing
            print(f'FAIL {r.name}/{SUITE}: it tried no input')
            row['fail'] += 1
    print(f'\n{"kind":60} {"cases":>5} {"inputs":>6} {"failed":>6} {"skipped":>7}')
    for kind, row in rows.items():
        print(f'{kind[:60]:60} {row["cases"]:5} {row["inputs"]:6} {row["fail"]:6} {row["skip"]:7}')
    return [sum(row[k] for row in rows.values()) for k in ('inputs', 'fail', 'skip')]


def main():
    args = parse_args(__doc__)
    cases = collect()
    if args.command == 'list':
        for name, (kind, func) in cases.items():
            print(f'{kind:40} {name:28} {func.__doc__}')
        return 0
    names = prepare(args, SUITE, cases)
    cfg = ztlib.Config(args)
    try:
        def job(name):
            def work():
                tally.begin(cfg.base, name)
                run_case(cfg, SUITE, name, cases[name][1])
            return name, SUITE, work
        results = ztlib.run_jobs([job(n) for n in names], args.jobs, cfg.base)
        fine = tally.read(cfg.base)
        ztlib.save_failed(args.report, cfg, results)
    finally:
        cfg.close()
    if args.report:
        ztlib.write_reports(args.report, SUITE, results)
    for r in results:
        if r.verdict == 'skip':
            print(f'skipped {r.name}: {r.reason}')
    passed, failed, skipped = table(cases, results, fine)
    print(f'{passed} passed, {failed} failed, {skipped} skipped', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
