#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
criu_flips: one damaged bit at a time, under a real criu.

A bit of a committed checkpoint's zones, of the catalogue or of the handle is flipped; then criu restores. Either the
restore fails with a line of ours, or the process is restored and finds its memory unchanged (the bit was in padding,
or in data that nobody needs). There must never be wrong memory, or a checkpoint that vanished without a message.

  criu_flips.py [--flips N] [--seed N]
"""
import argparse
import os
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'zonetests'))
import ztlib  # noqa: E402
from ztlib import Failed, HANDLE, alive, wait_until  # noqa: E402
from ztscene import FAST, Scene  # noqa: E402

PLACES = ('data', 'manifest', 'catalogue', 'handle')
# bytes of a record that may be flipped: the records here are longer, the rest of their blocks is padding
RECORD = 160


class Flips:
    def __init__(self, scene, rng):
        self.scene, self.rng = scene, rng
        self.checkpoint = scene.good_dump()
        wait_until(lambda: not alive(scene.task.pid), 5)
        scene.end_broker()
        with open(scene.device.path, 'rb') as dev:
            head = dev.read(152)
        self.capacity, self.data_off = struct.unpack_from('<Q', head, 48)[0], struct.unpack_from('<Q', head, 128)[0]
        shown = scene.device.json('show', self.checkpoint)
        manifest = shown['manifest']
        self.ranges = {'data': [], 'manifest': [(manifest['zone'], manifest['start'], manifest['len'])], 'catalogue': []}
        for z in shown['zone_uses']:
            length = z['len']
            if z['zone'] == manifest['zone']:
                length = manifest['start'] - z['start']
            if length > 0:
                self.ranges['data'].append((z['zone'], z['start'], length))
        for z in scene.device.zones():
            if z['owner'] == '(metadata)' and z['wp']:
                self.ranges['catalogue'] += [(z['index'], off, RECORD) for off in range(0, z['wp'], 4096)]
        scene.end_broker()
        self.counts = {p: {'refused': 0, 'right': 0} for p in PLACES}

    def place(self, kind):
        """A file, and an offset in it."""
        if kind == 'handle':
            path = self.scene.images / HANDLE
            return path, self.rng.randrange(path.stat().st_size)
        ranges = self.ranges[kind]
        n = self.rng.randrange(sum(length for _, _, length in ranges))
        for zone, start, length in ranges:
            if n < length:
                stride = (self.capacity + 4095) // 4096 * 4096
                return self.scene.device.path, self.data_off + zone * stride + start + n
            n -= length
        raise AssertionError('no such byte')

    @staticmethod
    def flip(path, at, bit):
        with open(path, 'r+b') as f:
            byte = os.pread(f.fileno(), 1, at)[0]
            os.pwrite(f.fileno(), bytes([byte ^ 1 << bit]), at)
            os.fsync(f.fileno())

    def one(self):
        scene, kind = self.scene, self.rng.choice(PLACES)
        path, at = self.place(kind)
        bit = self.rng.randrange(8)
        self.flip(path, at, bit)
        try:
            done = scene.restore()
            if done.code == 0:
                scene.task.verify(ztlib.signal.SIGUSR1)     # the program checks its memory here
                ztlib.kill(scene.task.pid)
                wait_until(lambda: not alive(scene.task.pid), 5)
                self.counts[kind]['right'] += 1
                return
            if done.code < 0:
                raise Failed(f'criu died of signal {-done.code}')
            if not [line for line in done.errors() if 'zns' in line.lower()]:
                raise Failed(f'no line of ours says why: {" | ".join(done.errors()[-3:])}')
            if not wait_until(lambda: not alive(scene.task.pid), 3):
                raise Failed('a process is left of a restore that failed')
            self.counts[kind]['refused'] += 1
        except Failed as e:
            raise Failed(f'bit {bit} of byte {at} of {path} ({kind}): {e}')
        finally:
            scene.end_broker()      # the broker has read the damaged bytes
            self.flip(path, at, bit)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--flips', type=int, default=300)
    parser.add_argument('--seed', type=int, default=1)
    ztlib.common_options(parser)
    args = parser.parse_args()
    ztlib.build_programs()
    ztlib.private_mounts()
    ztlib.become_subreaper()
    cfg = ztlib.Config(args)
    passed, failed = 0, 0
    directory = cfg.base / 'scene'
    directory.mkdir()
    scene = Scene(cfg, directory, FAST, 4)
    try:
        flips = Flips(scene, random.Random(args.seed))
        while passed + failed < args.flips and failed < 5:
            try:
                flips.one()
                passed += 1
            except Failed as e:
                failed += 1
                print(f'FAIL {e}', flush=True)
        scene.good_restore()        # with the bit flipped back it still restores
        for kind, n in flips.counts.items():
            print(f'{kind:20} {n["refused"]:5} refused, {n["right"]:5} restored right')
        if not all(flips.counts[k]['refused'] for k in PLACES):
            print('FAIL some kind of damage was never noticed: too few flips, or they miss')
            failed += 1
    finally:
        scene.close()
        cfg.close()
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
