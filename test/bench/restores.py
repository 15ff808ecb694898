#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
restores: many restores of one checkpoint at once (1, 5, 15, 45 of 100 MiB), beside stock CRIU with files.

Each restore has a PID, mount, network and UTS namespace of its own, with a name and an address of its own
(test/zonetests/clone.c). Arms, in changing order in each round:

  ours           restores share memory (zns.conf, restore-cache: its default)
  ours, alone    restore-cache = 0: each restore reads the device by itself
  stock, cold    stock CRIU from files that are not in the page cache when the first one starts
  stock, warm    the same files, in the page cache

and, on an emulated drive with the times of a real one (eight dies), `drive` and `drive, alone`: there the drive is the limit.
Stock and ours have checkpoints of the same process. Time is from the first start until the last restore has returned. Bytes
read are what the kernel counts for criu, its helper and the restored process. After each run every restored process looks at all of
its memory. It never judges times; it fails if a restore fails, memory is wrong, or shared restores read more than 1.2 times
what one reads.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import compare
from small import evict

import ztlib
from ztclones import Clones
from ztlib import Failed
from ztscene import FAST, Scene

DRIVE = ['--channels', '4', '--ways', '2', '--die-write-bw', '100', '--die-read-bw', '200', '--zones', '32', '--zone-size', '16M',
         '--timing', 'on']
ALLOWED = 1.2
SECONDS = 600       # limit of one run


class Arm:
    """A way to restore the checkpoint."""

    def __init__(self, title, scene, criu, images, cache=None, cold=False):
        self.title, self.scene, self.criu, self.images = title, scene, criu, images
        self.cache, self.cold = cache, cold
        self.ours = criu == scene.cfg.criu

    def prepare(self):
        """A new broker with this arm's configuration; files in or out of the page cache."""
        if self.ours:
            self.scene.end_broker(signal.SIGTERM)
            conf = Path(self.scene.device.env['ZNS_CONFIG']) / 'zns.conf'
            conf.write_text('' if self.cache is None else f'restore-cache = {self.cache}\n')
            self.scene.device.status()
        else:
            for entry in os.scandir(self.images):
                if self.cold:
                    evict(entry.path)
                else:
                    Path(entry.path).read_bytes()

    def command(self, clone):
        return [self.criu, 'restore', '--no-default-config', '-D', self.images, '-W', clone.own, '-o', 'criu.log', '-d']

    def run(self, number, directory):
        """{'seconds': of all, 'each': of each, 'read': bytes, 'right': how many}"""
        self.prepare()
        group = Clones(number, directory, self.scene.task, self.command, self.scene.device.env, SECONDS)
        try:
            group.start()
            group.all_end_well()
            right = group.verify()
            if right != number:
                raise Failed(f'{self.title}: {right} of {number} are right')
            return {'seconds': group.seconds_taken(), 'each': group.each(), 'read': group.bytes_read(), 'right': right}
        finally:
            group.end()
            shutil.rmtree(directory, ignore_errors=True)


def make_scene(cfg, directory, options, size):
    directory.mkdir()
    scene = Scene(cfg, directory, options, size)
    scene.device.env['ZNSD_IDLE_S'] = '600'
    return scene


def stock_dump(scene, criu):
    images = scene.dir / 'stock'
    images.mkdir()
    subprocess.run([criu, 'dump', '--no-default-config', '-t', str(scene.task.pid), '-D', images, '-W', scene.dir, '-o', 'stock.log',
                    '--leave-running'], check=True, stdin=subprocess.DEVNULL)
    return images


def make_arms(cfg, directory, args):
    stock = str(compare.stock_criu(args))
    plain = make_scene(cfg, directory / 'plain', FAST, args.size)
    files = stock_dump(plain, stock)
    plain.good_dump()
    arms = [Arm('ours', plain, cfg.criu, plain.images), Arm('ours, alone', plain, cfg.criu, plain.images, cache='0'),
            Arm('stock, cold', plain, stock, files, cold=True), Arm('stock, warm', plain, stock, files)]
    scenes = [plain]
    if not args.no_drive:
        drive = make_scene(cfg, directory / 'drive', DRIVE, args.size)
        drive.good_dump()
        arms += [Arm('drive', drive, cfg.criu, drive.images), Arm('drive, alone', drive, cfg.criu, drive.images, cache='0')]
        scenes.append(drive)
    return arms, scenes


def measure(arms, args, directory):
    """{(number, title): [run, …]}"""
    found = {}
    for turn in range(args.n + 1):
        for number in args.counts:
            first = turn % len(arms)
            for arm in arms[first:] + arms[:first]:
                got = arm.run(number, directory / 'clones')
                if turn:            # the first round is not counted
                    found.setdefault((number, arm.title), []).append(got)
                print(f'round {turn} of {args.n}' + ('' if turn else ' (not counted)') + f': {number:2} {arm.title:12} '
                      f'{got["seconds"]:6.2f} s, {got["read"] >> 20} MiB read', file=sys.stderr, flush=True)
    return found


def of(found, number, title, what):
    return statistics.median(what(r) for r in found[number, title])


def table(found, arms, args):
    lines = ['| restores | | all, s | least, most | one of them, s | its worst | read, MiB | times that of one | of stock, cold |',
             '| --- | --- | --- | --- | --- | --- | --- | --- | --- |']
    over = []
    for number in args.counts:
        for arm in arms:
            runs = found[number, arm.title]
            wall, read = (of(found, number, arm.title, lambda r, k=k: r[k]) for k in ('seconds', 'read'))
            one = of(found, args.counts[0], arm.title, lambda r: r['read']) if args.counts[0] == 1 else 0
            times = f'{read / one:.2f}' if one > 1 << 20 else '-'
            stock = of(found, number, 'stock, cold', lambda r: r['seconds'])
            lines.append(
                f'| {number} | {arm.title} | {wall:.2f} | {min(r["seconds"] for r in runs):.2f}, {max(r["seconds"] for r in runs):.2f} | '
                f'{of(found, number, arm.title, lambda r: statistics.median(r["each"])):.2f} | '
                f'{of(found, number, arm.title, lambda r: r["each"][-1]):.2f} | {read / 2**20:.1f} | {times} | '
                + (f'{wall / stock:.2f} |' if not arm.title.startswith('drive') else '- |'))
            if arm.ours and arm.cache is None and one and read > ALLOWED * one:
                over.append(f'{number} restores of "{arm.title}" read {read / one:.2f} times what one reads')
    return lines, over


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('-n', type=int, default=5, metavar='N', help='rounds (default 5)')
    parser.add_argument('--size', type=int, default=100, metavar='MIB', help='memory of the process (default 100)')
    parser.add_argument('--counts', default='1,5,15,45', help='restores at once (default 1,5,15,45)')
    parser.add_argument('--no-drive', action='store_true', help='without the drive with times')
    parser.add_argument('--report', metavar='DIR', help='write the table and all figures there')
    parser.add_argument('--dir', metavar='DIR', default=compare.BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--stock', metavar='PATH', help='stock criu (default: built by scripts/zdtm-sample)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('restores.py: this needs root')
    args.counts = sorted(int(n) for n in args.counts.split(','))
    ztlib.private_mounts()
    ztlib.become_subreaper()
    ztlib.build_programs()
    Path(args.dir).mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(args.dir)
    cfg = ztlib.Config(argparse.Namespace(criu=None, keep=False, timeout=120))
    scenes = []
    facts = compare.machine_facts(args.dir)
    try:
        arms, scenes = make_arms(cfg, cfg.base, args)
        found = measure(arms, args, cfg.base)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        sys.exit(f'restores.py: {e}')
    finally:
        for scene in scenes:
            scene.close()
        cfg.close()
    lines, over = table(found, arms, args)
    text = '\n'.join([f'# Restores of a process of {args.size} MiB, many at once', '',
                      f'{facts["cores"]} cores ({facts["cpu"]}), {facts["memory_gib"]} GiB, kernel {facts["kernel"]}; load '
                      f'{facts["load_at_start"]:.2f} before, {os.getloadavg()[0]:.2f} at the end.', '', *lines, '',
                      f'Medians of {args.n} alternating rounds. Every restored process looked at all of its memory: all right.']) + '\n'
    print(text)
    if args.report:
        target = Path(args.report)
        target.mkdir(parents=True, exist_ok=True)
        (target / 'report.md').write_text(text)
        (target / 'report.json').write_text(json.dumps(
            {'machine': facts, 'size_mib': args.size,
             'runs': [dict(restores=n, arm=title, runs=runs) for (n, title), runs in found.items()]}, indent=1) + '\n')
    if over:
        sys.exit('restores.py: ' + '; '.join(over))
    return 0


if __name__ == '__main__':
    sys.exit(main())
