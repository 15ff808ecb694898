# SPDX-License-Identifier: GPL-2.0-only
"""Counts the inputs of a case. Cases run in processes of their own, so each leaves its list in a file."""
from pathlib import Path

_file = None


def begin(base, case):
    """From now on this process counts for @case."""
    global _file
    _file = Path(base) / f'{case}.inputs'
    _file.write_text('')


def tried(what):
    """One input was handled as it must be; @what tells it from the others of its case."""
    with open(_file, 'a', encoding='utf-8') as out:
        out.write(f'{what!r}\n')


def read(base):
    """{case: [inputs]}; one that was counted twice counts once."""
    return {p.stem: sorted(set(p.read_text(encoding='utf-8').splitlines())) for p in Path(base).glob('*.inputs')}
