#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
papers: the experiments of the papers behind this project, on the emulator's timing model, each beside its control.

    papers.py run [NAME…] [--report DIR]    all of them, or some; writes report.md, plots and results.json
    papers.py smoke                         small ones; exit code 1 if an aim or a control is missed
    papers.py list

Aims are what a device with independent groups should give; controls what the conventional drive must show, or the
experiment proves nothing. A run ends with exit code 0 whatever the figures are; smoke does not.
"""
import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import exp_compact  # noqa: E402
import exp_criu  # noqa: E402
import exp_dumps  # noqa: E402
import exp_fragmentation  # noqa: E402
import exp_isolation  # noqa: E402
import exp_paging  # noqa: E402
import exp_promises  # noqa: E402
import stage  # noqa: E402

EXPERIMENTS = {
    'writers': ('Five writers, started one after another', exp_isolation.writers),
    'beside': ('A checkpoint beside normal I/O', exp_isolation.beside),
    'placement': ('Metadata, pages and normal I/O: same die, same channel, other channels', exp_isolation.placement),
    'five': ('Five dumps, alone and at once', exp_dumps.five),
    'restores': ('Five restores, alone, at once, beside dumps; static and dynamic allocation', exp_dumps.restores),
    'demand': ('More demand than groups', exp_dumps.demand),
    'periodic': ('Periodic checkpoints', exp_dumps.periodic),
    'scaling': ('N zones against one', exp_dumps.scaling),
    'compact': ('A dump beside compaction', exp_compact.compaction),
    'weights': ('Tenants of several weights restore together', exp_fragmentation.weights),
    'promises': ('Restores with a promise beside dumps with a promise', exp_promises.promises),
    'paging': ('Dumps beside a program whose memory is on zones', exp_paging.paging),
    'defrag': ('A scattered checkpoint, before and after --defrag, beside a neighbour', exp_fragmentation.defrag),
    'criu': ('The same with criu itself, in wall time, bandwidths scaled', exp_criu.wall),
}
SMOKE = ['writers', 'beside', 'five', 'compact', 'weights', 'defrag']
TESTS = {'>=': lambda a, b: a >= b, '<=': lambda a, b: a <= b, '>': lambda a, b: a > b, '<': lambda a, b: a < b}


class Report:
    def __init__(self, directory, full):
        self.dir, self.full = Path(directory), full
        self.dir.mkdir(parents=True, exist_ok=True)
        self.body, self.checks, self.current = [], [], None

    def begin(self, name, title):
        self.current = name
        self.body += [f'## {title}', '']

    def end(self, wall_s):
        self.body += [f'Wall time of this experiment: {wall_s:.0f} s.', '']

    def file(self, name):
        return self.dir / name

    def heading(self, text):
        self.body += [f'### {text}', '']

    def text(self, text):
        self.body += [text, '']

    def table(self, head, rows):
        self.body += ['| ' + ' | '.join(map(str, r)) + ' |' for r in [head, ['---'] * len(head), *rows]] + ['']

    def plot(self, name):
        self.body += [f'![{name}]({name})', '']

    def check(self, kind, what, value, relation, bound, smoke_bound=None):
        """smoke_bound: what a small run has to keep, where it is known to miss the aim."""
        if not self.full and smoke_bound is not None:
            bound = smoke_bound
        met = TESTS[relation](value, bound)
        self.checks.append({'experiment': self.current, 'kind': kind, 'what': what, 'value': round(value, 4),
                            'relation': relation, 'bound': bound, 'met': met})
        print(f'    {"met   " if met else "MISSED"} {kind}: {what}: {value:.3f} {relation} {bound}', flush=True)

    def aim(self, *check):
        self.check('aim', *check)

    def control(self, *check):
        self.check('control', *check)

    def write(self, head, title='The papers\' experiments'):
        rows = [[c['kind'], c['what'], f"{c['value']:.3f}", f"{c['relation']} {c['bound']}",
                 'yes' if c['met'] else '**no**']
                for c in self.checks]
        body, self.body = self.body, []
        self.text(head)
        self.body += ['## Aims and controls', '']
        self.table(['', 'what', 'measured', 'wanted', 'met'], rows)
        (self.dir / 'report.md').write_text('\n'.join([f'# {title}', '', *self.body, *body]) + '\n')
        (self.dir / 'results.json').write_text(json.dumps({'checks': self.checks}, indent=1) + '\n')


def machine():
    cpu = next((line.split(':')[1].strip() for line in Path('/proc/cpuinfo').read_text().splitlines()
                if line.startswith('model name')), 'unknown CPU')
    memory = int(Path('/proc/meminfo').read_text().split()[1]) // 1024
    return f'{os.cpu_count()} x {cpu}, {memory} MiB of memory, Linux {platform.release()}'


def head_text(args, wall_s):
    return f'''Machine: {machine()}. {time.strftime('%Y-%m-%d')}. Wall time of the whole run: {wall_s:.0f} s.

Unless an experiment says otherwise, its figures are in **model time**: fio, zns-helper and znsd run unchanged on one
virtual clock (`test/bench/vtime`), on which computing takes no time and the device takes what the emulator's timing
model says. So bandwidths are not scaled; they are the papers' own. Checkpoints are made by `ckptload`, which speaks to
zns-helper as criu does: admission, striping, commit and catalogue are the product's own, criu's own work is not in it.
fio's writes move zones and cost time, but store no bytes; those of checkpoints are stored, and every restore compares
every word.

| | ZNS: `paper-conf` | control: `conventional` |
| --- | --- | --- |
| dies | 8 channels x 4 ways, zone i on die i mod 32 | the same dies, every zone over all of them |
| a zone alone | 100 MiB/s written, 400 read; programs 192 KiB, buffers 2 of these | all the drive has |
| a channel | 800 MiB/s | |
| controller | no limit | one queue, 1,000 MiB/s; after every 1,024 MiB written it collects garbage for 100 ms |
| command | 10 us | 10 us |

The control's parameters are those of the profile as it is; none was changed for a result. It can write
{exp_isolation.model.conventional_write():.0f} MiB/s at most. A dump asks for {exp_dumps.QOS} MiB/s, five groups;
"ideal" and "fair" are computed from these parameters (`model.py`), not measured. Reproduce: `make bench-papers`, of
some with `RUN="{' '.join(args.names or EXPERIMENTS)}"`.'''


def run(args):
    names = args.names or list(EXPERIMENTS)
    unknown = [n for n in names if n not in EXPERIMENTS]
    if unknown:
        print(f'papers: no experiment "{unknown[0]}"; there are {", ".join(EXPERIMENTS)}', file=sys.stderr)
        return 2
    rep, start, failed = Report(args.report, args.full), time.monotonic(), False
    args.work = tempfile.mkdtemp(prefix='zns-papers-')
    try:
        for name in names:
            title, experiment = EXPERIMENTS[name]
            print(f'{name}: {title}', flush=True)
            began = time.monotonic()
            rep.begin(name, title)
            try:
                experiment(args, rep)
            except stage.Failed as why:
                failed = True
                rep.text(f'**Failed:** {why}')
                print(f'    FAILED: {why}', file=sys.stderr, flush=True)
            rep.end(time.monotonic() - began)
    finally:
        shutil.rmtree(args.work, ignore_errors=True)
    rep.write(head_text(args, time.monotonic() - start))
    missed = [c for c in rep.checks if not c['met']]
    print(f'{len(rep.checks) - len(missed)} of {len(rep.checks)} aims and controls met; '
          f'{time.monotonic() - start:.0f} s; '
          f'{args.report}/report.md')
    if not args.full:
        print(f'{len(rep.checks) - len(missed)} passed, {len(missed) + failed} failed')
    return 1 if failed or (not args.full and missed) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', choices=['run', 'smoke', 'list'])
    parser.add_argument('names', nargs='*', help='experiments')
    parser.add_argument('--build', default='build', help='where the programs are')
    parser.add_argument('--report', help='directory of the report (build/report/papers)')
    args = parser.parse_args()
    if args.command == 'list':
        for name, (title, _) in EXPERIMENTS.items():
            print(f'{name:10} {title}')
        return 0
    args.full = args.command == 'run'
    args.scale = lambda seconds: seconds if args.full else seconds / 4
    args.report = args.report or f'{args.build}/report/papers' + ('' if args.full else '-smoke')
    if not args.full and not args.names:
        args.names = SMOKE
    return run(args)


if __name__ == '__main__':
    sys.exit(main())
