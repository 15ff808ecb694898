#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
selfcheck: can the programs that count test results be fooled? It gives them outputs like those of the parts, and
checks what they count; then it runs scripts/test-all with jobs that fail, hang, skip, run nothing, or may not run side
by side.

  selfcheck.py      the last line sums up
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import artefacts
import skips
from counts import count
from jobs import Ended, Job, Scheduler

REPO = Path(__file__).resolve().parents[2]

# Name, output, exit code, and what must come out: passed, failed, skipped.
OUTPUTS = [
    ('cmocka, all is well', '1..2\nok 1 - a\nok 2 - b\n# ok - t\n', 0, (2, 0, 0)),
    ('cmocka names a failure once', '1..2\nok 1 - a\nnot ok 2 - b\n# 1 != 2\n# t.c:7: error: Failure!\n# not ok - t\n', 1, (1, 1, 0)),
    ('two failures are two', '1..2\nnot ok 1 - a\nnot ok 2 - b\n', 2, (0, 2, 0)),
    ('a failure although the program ends with 0', '1..2\nnot ok 1 - a\nok 2 - b\n', 0, (1, 1, 0)),
    ('a skip is no failure and no success', '1..2\nok 1 - a\nno keyring here\nnot ok 2 # SKIP b\n', 0, (1, 0, 1)),
    ('a program that dies in its second test', '1..3\nok 1 - a\n', 139, (1, 1, 0)),
    ('a program that dies between two that do not', '1..1\nok 1 - a\n1..4\nok 1 - b\n1..1\nok 1 - c\n', 1, (3, 1, 0)),
    ('the setup of a group fails', '1..1\nnot ok 0 - t [  FAILED  ] GROUP SETUP\n# ok - t\n', 1, (0, 1, 0)),
    ('a summary', 'PASS a\n3 passed, 0 failed, 0 skipped\n', 0, (3, 0, 0)),
    ('the last summary counts', '9 passed, 0 failed, 0 skipped\n3 passed, 1 failed, 0 skipped\n', 1, (3, 1, 0)),
    ('a skip that is named', 'SKIP a/h (0.1 s): no x\n3 passed, 0 failed, 1 skipped\n', 0, (3, 0, 1)),
    ('a skip that is not named', '3 passed, 0 failed, 1 skipped\n', 0, (3, 1, 0)),
    ('skips that are not counted', 'SKIP a: no x\nSKIP b: no x\n3 passed, 0 failed, 1 skipped\n', 0, (3, 1, 2)),
    ('fails and counts none', '3 passed, 0 failed, 0 skipped\n', 2, (3, 1, 0)),
    ('nothing ran', '0 passed, 0 failed, 0 skipped\n', 0, (0, 1, 0)),
    ('says nothing', 'all is well\n', 0, (0, 1, 0)),
    ('does not even build', "make: *** [Makefile:7: x] Error 1\n", 2, (0, 1, 0)),
]

LIST = 'unit* | b | no-dragons | no (dragon|keyring)\nunit* | c | no-gravity | floats\n'

# Name, part, skips, and the number of complaints that must come. The conditions here always say that there are no
# dragons, and that there is gravity.
SKIPS = [
    ('an expected skip', 'unit', [('b', 'no dragon here')], 0),
    ('by pattern', 'unit-sanitized', [('b', 'no keyring here')], 0),
    ('one that did not come', 'unit', [], 1),
    ('for another reason, so the expected one did not come', 'unit', [('b', 'too lazy')], 2),
    ('twice', 'unit', [('b', 'no dragon here'), ('b', 'no dragon here')], 1),
    ('where it can run', 'unit', [('b', 'no dragon here'), ('c', 'it floats')], 1),
    ('nobody expects it', 'unit', [('b', 'no dragon here'), ('d', 'no dragon here')], 1),
    ('another part', 'docker', [('b', 'no dragon here')], 1),
]


def check_counts():
    for name, output, code, want in OUTPUTS:
        got = count(output, code)
        yield f'counts: {name}', (got.passed, got.failed, len(got.skips)), want
    got = count('SKIP a: b (0.1 s): no x: y\nSKIP c: no z\n3 passed, 0 failed, 2 skipped\n', 0)
    yield 'counts: names and reasons of skips', got.skips, [('a: b', 'no x: y'), ('c', 'no z')]
    got = count('1..1\nno keyring here: denied\nnot ok 1 # SKIP b\n1..1\nok 1 - a\n', 0)
    yield 'counts: why a test of cmocka was skipped', got.skips, [('b', 'no keyring here: denied')]


def check_skips(directory):
    skips.CONDITIONS.update({'no-dragons': lambda: True, 'no-gravity': lambda: False})
    path = Path(directory) / 'list'
    path.write_text(LIST)
    entries = skips.read(path)
    for name, part, found, want in SKIPS:
        yield f'skips: {name}', len(skips.judge(part, found, entries)), want
    yield 'skips: the list of this repository can be read', bool(skips.read()), True


def script_of(name):
    """A program of scripts/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace('-', '_'), str(REPO / 'scripts' / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def run_gate(directory, *jobs, slots=None):
    """Runs scripts/test-all with these jobs: (exit code, last line, all output, jobs in the order of their ends)."""
    out, order, report = io.StringIO(), [], Path(tempfile.mkdtemp(dir=directory))
    gate = script_of('test-all').Gate(jobs)
    gate.entries = []

    def on_end(ended):
        order.append(ended.job.name)
        gate.on_end(ended)

    with contextlib.redirect_stdout(out):
        Scheduler(jobs, report, report, slots, on_end).run()
        code = gate.summary()
    return code, out.getvalue().splitlines()[-1], out.getvalue(), order


def shell(name, script, **more):
    return Job(name, ['bash', '-c', script], **more)


GOOD = 'echo 2 passed, 0 failed, 0 skipped'
BAD = 'echo FAIL x: broken; echo 1 passed, 1 failed, 0 skipped; exit 1'
# This job ends when the other one has begun. If they did not run side by side, its limit would end it.
MEET = 'touch {0}; until [ -e {1} ]; do sleep 0.01; done; ' + GOOD


def check_gate(directory):
    code, last, _, _ = run_gate(directory, shell('unit', GOOD))
    yield 'gate: passes', (code, last), (0, '2 passed, 0 failed, 0 skipped')
    code, last, said, _ = run_gate(directory, shell('unit', BAD), shell('docker', GOOD))
    yield 'gate: fails, and the other part runs', (code, last), (1, '3 passed, 1 failed, 0 skipped')
    yield 'gate: says why at once and at the end', said.count('FAIL x: broken') >= 2, True
    code, last, _, _ = run_gate(directory, shell('unit', f'if [ -e was ]; then {GOOD}; else touch was; {BAD}; fi'))
    yield 'gate: nothing is run again', (code, last), (1, '1 passed, 1 failed, 0 skipped')
    code, last, _, _ = run_gate(directory, shell('unit', 'echo SKIP x: no reason; echo 2 passed, 0 failed, 1 skipped'))
    yield 'gate: an unexpected skip', (code, last), (1, '2 passed, 1 failed, 1 skipped')
    code, last, _, _ = run_gate(directory, shell('unit', 'true'))
    yield 'gate: says nothing', (code, last), (1, '0 passed, 1 failed, 0 skipped')
    code, last, _, _ = run_gate(directory, shell('a', GOOD, group='unit'), shell('b', BAD, group='unit'))
    yield 'gate: jobs of one part', (code, last), (1, '3 passed, 1 failed, 0 skipped')
    code, last, said, _ = run_gate(directory, shell('build', 'exit 2', group='build'), shell('unit', GOOD, needs=('build',)))
    yield 'gate: what it needs has failed', (code, last, 'needs build, which failed' in said), (1, '0 passed, 2 failed, 0 skipped', True)
    code, last, said, _ = run_gate(directory, shell('unit', 'sleep 86417 & exec sleep 86418', limit_s=0.5), shell('docker', GOOD))
    yield 'gate: one that hangs', (code, last, 'hangs: ' in said, 'did not end within' in said), \
        (1, '2 passed, 1 failed, 0 skipped', True, True)
    # Docker's tests, which may run at the same time, have a sleep of 1000 s
    left = subprocess.run(['pgrep', '-f', '^sleep 8641[78]$'], capture_output=True, text=True, check=False).stdout
    yield 'gate: what hung is gone', left, ''


def check_jobs(directory):
    code, _, _, _ = run_gate(directory, shell('a', MEET.format('a', 'b'), limit_s=60), shell('b', MEET.format('b', 'a'), limit_s=60), slots=2)
    yield 'jobs: side by side', code, 0
    alone = '[ ! -e {0} ] && touch {0} && sleep 0.1 && rm {0} && ' + GOOD
    for what, slots, more in ('that hold the same', 4, {'holds': ('pool',)}), ('that want the whole machine', 2, {'slots': 2}):
        code, last, _, _ = run_gate(directory, *(shell(n, alone.format('here'), **more) for n in 'abc'), slots=slots)
        yield f'jobs: one at a time of those {what}', (code, last), (0, '6 passed, 0 failed, 0 skipped')
    _, _, _, order = run_gate(directory, shell('short', GOOD, seconds=1), shell('long', GOOD, seconds=9), slots=1)
    yield 'jobs: the longest first', order, ['long', 'short']
    _, _, _, order = run_gate(directory, shell('unit', GOOD, needs=('build',), seconds=9), shell('build', 'true', group='build', seconds=1))
    yield 'jobs: what is needed first', order, ['build', 'unit']
    # Runs this program as the gate does, beside its own part of that name.
    with subprocess.Popen(['sleep', '86419'], env=dict(os.environ, TEST_JOB='docker')) as other:
        run_gate(directory, shell('docker', GOOD))
        yield 'jobs: one of the same name in another run lives on', other.poll(), None
        other.kill()


def check_artefacts(directory):
    report = Path(tempfile.mkdtemp(dir=directory))
    (report / 'unit').mkdir()
    (report / 'unit' / 'core').write_text('x')
    (report / 'unit.log').write_text('FAIL\n')
    packed = artefacts.pack(report, [(Ended(shell('unit', BAD), 1, 0, 0, report / 'unit.log'), 'unit')])
    names = subprocess.run(['tar', '-tf', packed], capture_output=True, text=True, check=True).stdout.split()
    yield 'artefacts: of a part that failed', names, ['machine.txt', 'unit.log', 'unit/', 'unit/core']


def check_planted():
    """Each fault that was planted by hand must fit the present code."""
    repo = Path(__file__).resolve().parents[2]
    for fault in json.loads(Path(__file__).with_name('planted.json').read_text()):
        yield f'planted: {fault["what"]}', (repo / fault['file']).read_text().count(fault['old']), 1
    for fault in json.loads(Path(__file__).with_name('equivalent.json').read_text()):
        yield f'equivalent: {fault["file"]}: {fault["why"]}', fault['old'] in (repo / fault['file']).read_text(), True


def main():
    failed = passed = 0
    with tempfile.TemporaryDirectory() as directory:
        for checks in check_counts(), check_skips(directory), check_gate(directory), check_jobs(directory), check_artefacts(directory), \
                check_planted():
            for name, got, want in checks:
                if got == want:
                    passed += 1
                else:
                    failed += 1
                    print(f'FAIL {name}: {got}, not {want}')
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
