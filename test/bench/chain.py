#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
chain: restore of an incremental checkpoint of which each generation but the first has 1 % of the pages: from the chain
on zones, after flatten, and by stock CRIU (or ours without zones) from the same chain in plain files. Needs no dirty
tracking: a full dump is taken apart (chains.py). Alternating runs; the ratios are what counts.

  chain.py [--size MB] [--levels N] [--rounds N] [--log-level N] [--cold]
"""
import argparse
import signal
import statistics
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'test' / 'zonetests'))
import chains      # noqa: E402
import ztlib       # noqa: E402
from ztlib import Failed, drop_caches       # noqa: E402
from incremental import bench_scene     # noqa: E402


def spread(levels):
    """The generation that wrote a page last: each newer one wrote every hundredth page."""
    def owner(vaddr):
        n = (vaddr // chains.PAGE * 2654435761 >> 7) % 100
        return n if n < levels - 1 else levels - 1
    return owner


class Side:
    def __init__(self, name, images, cfg):
        self.name, self.images, self.cfg, self.seconds = name, images, cfg, []

    def restore(self, chain, args):
        if args.cold:
            drop_caches()
        begin = time.monotonic()
        done = chain.try_restore(self.images, [f'-v{args.log_level}'], self.cfg)
        self.seconds.append(time.monotonic() - begin)
        if done.code:
            raise Failed(f'{self.name}: exit {done.code}: {" | ".join(done.lines("Error")[-3:])}')
        chain.task.verify(signal.SIGUSR1)
        chain.end_task()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--size', type=int, default=1024, metavar='MB')
    parser.add_argument('--levels', type=int, default=11)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--cold', action='store_true', help='with empty caches; slows down whatever else runs here')
    parser.add_argument('--log-level', type=int, default=4, help='of criu; 4 is what runc asks for')
    parser.add_argument('--qos', default='500', metavar='MIBPS')
    ztlib.common_options(parser)
    args = parser.parse_args()
    chains.LEVELS, chains.owner = args.levels, spread(args.levels)
    scene = bench_scene(args)
    cfg = scene.cfg
    try:
        parts = chains.Parts(scene, size=args.size)
        files = Side('files', parts.dirs[0], chains.plain_criu(cfg))
        zones = Side('zones', parts.handle, cfg)
        for _ in range(args.rounds):
            for side in (files, zones):
                side.restore(parts.chain, args)
        begin = time.monotonic()
        parts.device.json('flatten', parts.ids[0])
        flatten = time.monotonic() - begin
        flat = Side('flat', parts.handle, cfg)
        for _ in range(args.rounds):
            flat.restore(parts.chain, args)
        print(f'{args.size} MiB, {args.levels - 1} generations of 1 % on a full one, median of {args.rounds} alternating '
              f'restores{", cold" if args.cold else ""}, log level {args.log_level}')
        base = statistics.median(files.seconds)
        for side in (files, zones, flat):
            m = statistics.median(side.seconds)
            print(f'{side.name:6} {m:7.3f} s  {base / m:5.2f} times as fast as files '
                  f'({" ".join(f"{s:.2f}" for s in side.seconds)})')
        print(f'flatten itself {flatten:.3f} s; files restored with {files.cfg.criu}')
    finally:
        scene.close()
        cfg.close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
