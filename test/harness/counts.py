# SPDX-License-Identifier: GPL-2.0-only
"""
Counts the results of a part of `make test` from its output: TAP, as cmocka writes it, or a last line "N passed, N
failed, N skipped" with a line "SKIP NAME: REASON" for each skip.
"""
import re
from dataclasses import dataclass, field

SUMMARY = re.compile(r'^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?')
SKIP = re.compile(r'^SKIP (?:(.+) \(\d+\.\d+ s\)|(.+?)): (.*)')
PLAN = re.compile(r'^1\.\.(\d+)$')
RESULT = re.compile(r'^(not )?ok \d+(?: -)?(?: # SKIP)? (.*)')
TELLING = re.compile(r'^FAIL|^not ok |^make.*\*\*\*|runtime error:|ERROR: AddressSanitizer|^DIFFERS ')


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skips: list = field(default_factory=list)       # (name, reason)
    why: list = field(default_factory=list)         # lines that say what has failed

    def fail(self, why):
        self.failed += 1
        self.why.append(why)

    def __str__(self):
        return f'{self.passed:6d} passed {self.failed:4d} failed {len(self.skips):4d} skipped'


def count_tap(lines, counts):
    """Each program begins with its plan; a program that ended before its last test has failed."""
    planned = seen = 0
    remark = ''         # what a test prints before it skips is the reason
    for line in [*lines, '1..0']:
        if plan := PLAN.match(line):
            if seen != planned:
                counts.fail(f'FAIL a program announced {planned} tests and ended after {seen}')
            planned, seen = int(plan[1]), 0
        elif result := RESULT.match(line):
            seen += 1
            if ' # SKIP' in line:
                counts.skips.append((result[2], remark))
            elif result[1]:
                counts.failed += 1
            else:
                counts.passed += 1
            remark = ''
        elif not line.startswith('#') and line.strip():
            remark = line.strip()


def count_summary(lines, counts):
    last = next(m for line in reversed(lines) if (m := SUMMARY.match(line)))
    counts.passed, counts.failed, skipped = int(last[1]), int(last[2]), int(last[3] or 0)
    counts.skips = [(m[1] or m[2], m[3]) for line in lines if (m := SKIP.match(line))]
    if len(counts.skips) != skipped:
        counts.fail(f'FAIL it says {skipped} skipped and names {len(counts.skips)}')


def count(output, code):
    """Counts a part's results. A part that fails without a failed test, or that ran nothing, has failed."""
    lines, counts = output.splitlines(), Counts()
    counts.why = [line[:600] for line in dict.fromkeys(l for l in lines if TELLING.search(l) and ' # SKIP' not in l)]
    if any(SUMMARY.match(line) for line in lines):
        count_summary(lines, counts)
    elif any(PLAN.match(line) for line in lines):
        count_tap(lines, counts)
    elif not code:
        counts.fail('FAIL it says nothing of what it did')
    if code and not counts.failed:
        counts.fail(f'FAIL it ends with {code}')
    if not code and not counts.passed and not counts.failed:
        counts.fail('FAIL nothing ran')
    if not code and counts.failed and not counts.why:
        counts.why.append('FAIL it counts failures and ends with 0')
    return counts
