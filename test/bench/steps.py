#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
steps: ten incremental dumps of a process that writes 1 % of its pages before each: bytes of pages, and how long it stood
still, by --track-mem alone and with --zns-live. Needs no soft-dirty bits (live.md, "Incremental dumps").

  steps.py [--size MB] [--steps N] [--verify]
"""
import argparse
import os
import statistics
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'test' / 'zonetests'))
import ztlib       # noqa: E402
from incremental import bench_scene     # noqa: E402
from ztchain import Chain       # noqa: E402

PAGE = 4096
WAYS = {'--track-mem': ['--track-mem', '--leave-running', '--zns-live=no'],
        '--track-mem --zns-live': ['--track-mem', '--leave-running', '--zns-live']}


def run(scene, size, steps, options):
    """[(bytes of pages, microseconds frozen)], the full dump first."""
    chain = Chain(scene, size=size)
    rows = []
    for n in range(steps + 1):
        chain.step() if n else None
        chain.dump(parent=n - 1 if n else None, extra=options)
        record = chain.record(chain.ids[n])
        rows.append((record['page_bytes'], record['frozen_us']))
    chain.end_task()
    chain.restore(steps)
    chain.end_task()
    scene.device.remove(*reversed(chain.ids))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--size', type=int, default=1024, metavar='MB')
    parser.add_argument('--steps', type=int, default=10)
    parser.add_argument('--verify', action='store_true', help='compare every page in the freeze; its times mean nothing then')
    parser.add_argument('--qos', default='500', metavar='MIBPS')
    ztlib.common_options(parser)
    args = parser.parse_args()
    if args.verify:
        os.environ.update(ztlib.controls(ZNS_LIVE_VERIFY='1'))
    scene = bench_scene(args)
    try:
        print(f'{args.size} MB, {args.steps} steps of 1 % of the pages, medians')
        for name, options in WAYS.items():
            rows = run(scene, args.size, args.steps, options)
            # every hundredth page; the list of what it wrote, four bytes a page, all over; in every second step 64 new pages
            dirty = rows[0][0] * (1 / 100 + 4 / PAGE) + 32 * PAGE
            print(f'{name:24} full {rows[0][0] / 2**20:8.1f} MiB {rows[0][1] / 1000:8.1f} ms frozen; a step '
                  f'{statistics.median(r[0] for r in rows[1:]) / 2**20:6.1f} MiB, '
                  f'{statistics.median(r[0] for r in rows[1:]) / dirty:.2f} x the {dirty / 2**20:.1f} MiB that were written, '
                  f'{statistics.median(r[1] for r in rows[1:]) / 1000:.1f} ms frozen '
                  f'({min(r[1] for r in rows[1:]) / 1000:.1f} to {max(r[1] for r in rows[1:]) / 1000:.1f})', flush=True)
    finally:
        scene.close()
        scene.cfg.close()


if __name__ == '__main__':
    main()
