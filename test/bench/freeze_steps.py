# SPDX-License-Identifier: GPL-2.0-only
"""Splits the time of a freeze into steps, by the time stamps in criu's log (-v4)."""
import re
import statistics

LINE = re.compile(r'\((\d+\.\d+)\) ?(.*)')
# name of the step, the log line with which it begins, the first line after it
STEPS = [
    ('freezer of the cgroup', r'freezing cgroup', r'freezing processes: \d'),
    ("network's lock", r'Running network-lock scripts', r'RPC NOTIFY query-ext|Obtaining task auvx|mnt:|Collecting'),
    ('a task, its memory', r'Dumping task \(pid', r'page-pipe: Killing'),
    ('cgroups', r'Dumping cgroups for thread', r'Dumping pstree|Dumping general|sending|Waiting for|Sent msg|pie:'),
    ('mounts, tmpfs', r'Dumping mountpoints', r"Dumping \d+\(\d+\)'s namespaces"),
    ('namespaces', r"Dumping \d+\(\d+\)'s namespaces", r'Namespaces dump complete'),
    ('inventory, commit', r'Writing image inventory', r'Running post-dump scripts'),
    ('post-dump notification', r'Running post-dump scripts', r'Unlock network'),
    ("network's unlock", r'Running network-unlock scripts', r'Unfreezing tasks'),
]
BEGIN, THAW = r'freezing cgroup|Seized task', r'Unfreezing tasks'


def after(lines, at, pattern):
    return next((i for i in range(at, len(lines)) if re.search(pattern, lines[i][1])), None)


def of_log(text):
    """{step: ms} of the steps in the log, and {'all': from the beginning of the freeze to the thaw}."""
    lines = [(float(m[1]) * 1000, m[2]) for m in map(LINE.match, text.splitlines()) if m]
    found, begin = {}, after(lines, 0, BEGIN)
    if begin is None:
        return found
    for name, first, end in [*STEPS, ('all', BEGIN, THAW)]:
        a = after(lines, begin, first)
        b = None if a is None else after(lines, a + 1, end)
        if b is not None:
            found[name] = lines[b][0] - lines[a][0]
    return found


def table(found, names):
    """Markdown lines: medians, and the shortest, of each step. found: {name: [{step: ms}]}"""
    yield '| step, ms | ' + ' | '.join(names) + ' |'
    yield '| --- |' + ' --- |' * len(names)
    for step in [s[0] for s in STEPS] + ['all']:
        values = {name: [f[step] for f in found[name] if step in f] for name in names}
        if any(values.values()):
            yield f'| {step} | ' + ' | '.join(f'{statistics.median(v):.1f} ({min(v):.1f})' if v else '-' for v in values.values()) + ' |'
