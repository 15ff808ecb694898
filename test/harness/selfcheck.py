#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
selfcheck: can what counts the tests be fooled? Outputs as parts give them, and what must be made of them; then scripts/test-all
itself with parts that fail, fail only once, skip or run nothing.

  selfcheck.py      the last line sums up
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import sys
import tempfile
from pathlib import Path

import skips
from counts import count

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

# Name, part, skips, and how many complaints there must be. There are no dragons here, and there is gravity.
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


def test_all(directory, script):
    """scripts/test-all with one part, a script of bash: (exit code, last line, all it says)."""
    loader = importlib.machinery.SourceFileLoader('test_all', str(REPO / 'scripts' / 'test-all'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('test_all', loader))
    loader.exec_module(module)
    out = io.StringIO()
    report = Path(tempfile.mkdtemp(dir=directory))
    with contextlib.redirect_stdout(out):
        code = module.summary([module.run_part('unit', ['bash', '-c', f'cd {report}; {script}'], report, [])])
    return code, out.getvalue().splitlines()[-1], out.getvalue()


def check_test_all(directory):
    good, bad = 'echo 2 passed, 0 failed, 0 skipped', 'echo FAIL x: broken; echo 1 passed, 1 failed, 0 skipped; exit 1'
    code, last, _ = test_all(directory, good)
    yield 'test-all: passes', (code, last), (0, '2 passed, 0 failed, 0 skipped')
    code, last, said = test_all(directory, bad)
    yield 'test-all: fails twice', (code, last, said.count('failed twice: unit')), (1, '1 passed, 1 failed, 0 skipped', 1)
    code, last, said = test_all(directory, f'if [ -e was ]; then {good}; else touch was; {bad}; fi')
    yield 'test-all: fails, then passes', (code, last), (1, '1 passed, 1 failed, 0 skipped')
    yield 'test-all: both runs are shown', ('run again' in said, said.count('FAIL x: broken') >= 2), (True, True)
    code, last, _ = test_all(directory, 'echo SKIP x: no reason; echo 2 passed, 0 failed, 1 skipped')
    yield 'test-all: an unexpected skip', (code, last), (1, '2 passed, 1 failed, 1 skipped')
    code, last, _ = test_all(directory, 'true')
    yield 'test-all: says nothing', (code, last), (1, '0 passed, 1 failed, 0 skipped')


def main():
    failed = passed = 0
    with tempfile.TemporaryDirectory() as directory:
        for checks in check_counts(), check_skips(directory), check_test_all(directory):
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
