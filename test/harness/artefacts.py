# SPDX-License-Identifier: GPL-2.0-only
"""What is kept of a failed run: one file that can be attached to a report."""
import os
import platform
import subprocess
from pathlib import Path


def machine():
    """The machine and its load, for somebody who reads the file elsewhere."""
    facts = [f'{platform.platform()}, {os.cpu_count()} processors, load {" ".join(f"{x:.1f}" for x in os.getloadavg())}']
    head = subprocess.run(['git', 'log', '-1', '--format=%H %s'], capture_output=True, text=True, check=False)
    meminfo = Path('/proc/meminfo').read_text().splitlines()[:3]
    return '\n'.join([*facts, head.stdout.strip() or 'no git here', *meminfo]) + '\n'


def pack(report, failed):
    """Makes report/failed.tar.zst with the logs of failed jobs and files that their suites kept; returns its path."""
    (report / 'machine.txt').write_text(machine())
    names = ['machine.txt']
    for ended, part in failed:
        names += [n for n in (ended.log.name, part) if (report / n).exists()]
    target = report / 'failed.tar.zst'
    subprocess.run(['tar', '--zstd', '-cf', target, '-C', report, *dict.fromkeys(names)], check=True)
    return target
