#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
circles: which files of a folder call each other in a circle, read from the symbols of the built objects.

  circles.py [BUILD] [--show FOLDER] [--limits]

Prints for each folder under zns/ how many files it has and how many of them are in its largest circle (a strongly
connected component of "defines a symbol that the other one uses"). --show names the files of a folder's circles and
the symbols that close them. --limits fails where a circle is larger than LIMIT.
"""
import argparse
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# The largest circle that a folder may have: files in it must be read together.
LIMIT = 3


def symbols(obj):
    """(defined, used) external symbols of an object file."""
    defined, used = set(), set()
    for line in subprocess.run(['nm', '-g', obj], capture_output=True, text=True, check=True).stdout.splitlines():
        *_, kind, name = line.split()
        (used if kind in 'Uw' else defined).add(name)
    return defined, used


def graph(objects):
    """{file: {other file: symbols it uses of that}} among these objects."""
    table = {o.stem: symbols(o) for o in objects}
    where = {s: f for f, (defined, _) in table.items() for s in defined}
    edges = {f: defaultdict(list) for f in table}
    for f, (_, used) in table.items():
        for s in sorted(used):
            if where.get(s, f) != f:
                edges[f][where[s]].append(s)
    return edges


def reachable(edges, start):
    seen, todo = set(), [start]
    while todo:
        for g in edges[todo.pop()]:
            if g not in seen:
                seen.add(g)
                todo.append(g)
    return seen


def circles(edges):
    """Sets of more than one file that all reach each other, the largest first."""
    reach = {f: reachable(edges, f) for f in edges}
    found = {frozenset(g for g in reach[f] if f in reach[g]) | {f} for f in edges if f in reach[f]}
    return sorted((c for c in found if len(c) > 1), key=len, reverse=True)


def folders(build):
    """(name, objects) of each folder of zns, and of the adapter, which is one folder where criu is built."""
    for folder in sorted({p.parent for p in Path(build, 'zns').rglob('*.o')}):
        name = str(folder.relative_to(Path(build, 'zns')))
        yield name, [o for o in sorted(folder.glob('*.o')) if Path('zns', name, o.stem + '.c').exists()]
    ours = {p.stem for p in Path('criu/adapter').rglob('*.c')}
    built = [o for o in sorted(Path(build, 'criu/criu').glob('zns-*.o')) if o.stem in ours]
    if built:
        yield 'criu', built


def show(edges, folder):
    for number, circle in enumerate(circles(edges), 1):
        print(f'{folder}, circle {number}: {len(circle)} files')
        for f in sorted(circle):
            for g in sorted(circle & set(edges[f])):
                print(f'  {f} -> {g}: {", ".join(edges[f][g])}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default='build')
    parser.add_argument('--show', metavar='FOLDER')
    parser.add_argument('--limits', action='store_true')
    args = parser.parse_args()
    if not Path(args.build, 'zns').is_dir():
        sys.exit(f'no objects in {args.build}/zns: run make first')
    over = 0
    for name, sources in folders(args.build):
        edges = graph(sources)
        if args.show == name:
            show(edges, name)
        if args.show:
            continue
        largest = max(map(len, circles(edges)), default=1)
        said = ''
        if args.limits and largest > LIMIT:
            over += 1
            said = f'  over the limit of {LIMIT}'
        print(f'{name:18} {len(sources):3} files, largest circle {largest:2}{said}')
    return 1 if over else 0


if __name__ == '__main__':
    sys.exit(main())
