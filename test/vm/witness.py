# SPDX-License-Identifier: GPL-2.0-only
"""blkzone, a tool we did not write, as a witness of what zones hold."""
import re
import subprocess

from ztlib import Failed

STATES = {'em': 'empty', 'oi': 'open', 'oe': 'open', 'cl': 'closed', 'fu': 'full', 'ro': 'read-only', 'of': 'offline'}
LINE = re.compile(r'start: 0x(\w+), len 0x(\w+), cap 0x(\w+), wptr 0x(\w+) .*zcond: *\d+\((\w+)\)')
SECTOR = 512


def report(block):
    """[(state, write pointer, capacity)] in bytes; None as state: conventional."""
    done = subprocess.run(['blkzone', 'report', block], capture_output=True, text=True, check=True)
    zones = []
    for line in done.stdout.splitlines():
        found = LINE.search(line)
        if not found:
            raise Failed(f'blkzone says: {line}')
        wp, capacity = int(found[4], 16) * SECTOR, int(found[3], 16) * SECTOR
        zones.append((STATES.get(found[5]), capacity if found[5] == 'fu' else wp, capacity))
    return zones


def compare(block, ours):
    """Failed unless `znsctl zones` says of every zone what blkzone says; else what was compared."""
    theirs, count = report(block), {}
    if len(theirs) != len(ours):
        raise Failed(f'blkzone reports {len(theirs)} zones, znsctl {len(ours)}')
    for zone, (state, wp, capacity) in zip(ours, theirs):
        # A conventional zone has neither state nor write pointer, a worn-out one no write pointer.
        mine = (zone['state'], zone['wp'], zone['capacity'])
        if state is None:
            state = 'conventional'
            if zone['capacity'] != capacity or zone['owner'] not in (None, '(conventional)'):
                raise Failed(f'zone {zone["index"]} is conventional: {zone}')
        elif state in ('read-only', 'offline'):
            if (mine[0], mine[2]) != (state, capacity):
                raise Failed(f'zone {zone["index"]}: znsctl {mine}, blkzone {(state, wp, capacity)}')
        elif mine != (state, wp, capacity):
            raise Failed(f'zone {zone["index"]}: znsctl {mine}, blkzone {(state, wp, capacity)}')
        count[state] = count.get(state, 0) + 1
    return f'{len(ours)} zones agree: ' + ', '.join(f'{n} {state}' for state, n in sorted(count.items()))


def operate(what, block, zone):
    """open, close, finish or reset one zone; False if the device refuses."""
    with open(f'/sys/block/{block.rpartition("/")[2]}/queue/chunk_sectors', encoding='ascii') as f:
        size = int(f.read())
    return subprocess.run(['blkzone', what, '-o', str(zone * size), '-l', str(size), block],
                          capture_output=True).returncode == 0
