#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""judge-map.py DRIVE.json GROUPS.json: pairs of zones that share a die, as found and as they are. Exit 0: both 0.99."""
import itertools
import json
import sys


def pairs(groups):
    return {p for g in groups for p in itertools.combinations(sorted(g), 2)}


def main():
    with open(sys.argv[1], encoding='ascii') as f:
        die_of = json.load(f)['zone_die']
    with open(sys.argv[2], encoding='ascii') as f:
        found_groups = [g['zones'] for g in json.load(f)['groups']]
    true = pairs([[z for z, d in enumerate(die_of) if d == die] for die in set(die_of)])
    found = pairs(found_groups)
    precision = len(true & found) / len(found) if found else 1.0
    recall = len(true & found) / len(true) if true else 1.0
    print(f'{len(found_groups)} groups of {len(set(die_of))}: precision {precision:.4f}, recall {recall:.4f}')
    return precision < 0.99 or recall < 0.99


if __name__ == '__main__':
    sys.exit(main())
