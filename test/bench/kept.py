# SPDX-License-Identifier: GPL-2.0-only
"""
The only way in which a bench's figures get into the documents: keep() writes what `scripts/check/papers --take DIR
NAME` reads. The pages name figures (Documentation/inside/papers/rows.json), and take their values, date and load from
there.
"""
import json
import os
import platform
import re
import time

LOAD = os.getloadavg()[0]       # load before the bench began


def name_of(*words):
    """The name of a figure: lower case, digits and underscores."""
    return re.sub('[^a-z0-9]+', '_', '_'.join(map(str, words)).lower()).strip('_')


def kernel():
    """The kernel's version without additions of a distribution or a host."""
    return platform.release().split('-')[0]


def keep(directory, command, figures, raw, text, load=None):
    """
    command: that runs it. figures: {name_of(…): number}. raw: all that was measured; None: the cells are there. text: the report. load: before
    the run, if this is not the program that ran it.
    """
    (directory / 'cells').mkdir(parents=True, exist_ok=True)
    if raw is not None:
        (directory / 'cells/all.json').write_text(json.dumps(raw, indent=1) + '\n')
    (directory / 'report.md').write_text(text)
    (directory / 'results.json').write_text(json.dumps({
        'checks': [], 'cells': {'all': sorted(p.stem for p in (directory / 'cells').glob('*.json'))}, 'command': command, 'date': time.strftime('%Y-%m-%d'), 'load': [LOAD if load is None else load, os.getloadavg()[0]],
        'machine': f'{os.cpu_count()} cores, Linux {kernel()}', 'figures': figures}, indent=1) + '\n')
