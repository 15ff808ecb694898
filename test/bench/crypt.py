#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
crypt: what encryption costs. Dump and restore of the same process through the same device, plain and encrypted in
alternating runs; wall and CPU time as compare.py counts them, and libcrypto by itself on one core. It never judges times;
it fails if a command fails, a digest is wrong, or a checkpoint is not what it should be.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import compare
import kept
from compare import Bench, Failed, Use, Zones, collect_orphans

ROWS = [
    ('dump, wall, s', 'dump_wall_s', 1, 3),
    ('dump, MiB/s in the data phase', 'dump_mibps', 1, 0),
    ('time frozen, ms', 'frozen_s', 1000, 0),
    ('dump, CPU s per GiB, everything', 'dump_cpu_s', 'gib', 3),
    ('- zns-helper', 'dump_cpu_zns-helper_s', 'gib', 3),
    ('dump, peak memory of zns-helper, MiB', 'dump_peak_zns-helper_mib', 1, 1),
    ('restore, wall, s', 'restore_wall_s', 1, 3),
    ('restore, MiB/s of wall time', 'restore_mibps', 1, 0),
    ('restore, CPU s per GiB, everything', 'restore_cpu_s', 'gib', 3),
    ('- zns-helper', 'restore_cpu_zns-helper_s', 'gib', 3),
    ('restore, peak memory of zns-helper, MiB', 'restore_peak_zns-helper_mib', 1, 1),
]


class Mode(Zones):
    """One device for both; before each dump it is set to encrypt or not."""

    def __init__(self, bench, criu, encrypted, device=None):
        self.encrypted, self.name = encrypted, 'encrypted' if encrypted else 'plain'
        if device is None:
            super().__init__(bench, criu)
            self.key = f'file:{bench.dir / "key"}'
            self.ctl('key', 'create', str(bench.dir / 'key'))
        else:
            self.__dict__.update(device.__dict__, encrypted=encrypted, name=self.name)

    def prepare(self):
        self.ctl('key', 'use', self.key) if self.encrypted else self.ctl('key', 'off')
        collect_orphans(Use(), ())

    def checkpoint(self):
        found = super().checkpoint()
        if found['encrypted'] != self.encrypted:
            raise Failed(f'the checkpoint is not {self.name}')
        return found


class Crypt(Bench):
    def __init__(self, args, directory):
        self.dir, self.mib = directory, args.size
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ZNS') and k != 'CRIU_CONFIG_FILE'}
        self.env.update(ZNS_CONFIG=str(directory / 'etc'), ZNS_RUN=str(directory / 'run'))
        self.may_drop = False       # a restore from the page cache shows the CPU's part best
        plain = Mode(self, Path(args.bin).resolve() / 'criu', False)
        self.contestants = [plain, Mode(self, plain.criu, True, plain)]

    def round(self, number):
        found = {}
        for who in self.contestants if number % 2 else self.contestants[::-1]:
            who.prepare()
            one = found[who.name] = self.one(who, number)
            one['dump_mibps'] = self.mib / one['data_phase_s'] if one['data_phase_s'] else 0
            one['restore_mibps'] = self.mib / one['restore_wall_s']
        return found


def library_speed():
    """GB/s of AES-256-GCM on one core, units of 512 KiB, by OpenSSL's own program; None without it."""
    if not shutil.which('openssl'):
        return None
    said = subprocess.run(['openssl', 'speed', '-seconds', '2', '-bytes', '524288', '-evp', 'aes-256-gcm'],
                          capture_output=True, text=True).stdout
    found = re.search(r'^AES-256-GCM\s+([0-9.]+)k', said, re.M)
    return float(found.group(1)) / 1e6 if found else None


def table(rounds, mib):
    gib, lines = mib / 1024, ['| | plain | encrypted | ratio |', '| --- | --- | --- | --- |']
    summary = {}
    for title, key, factor, digits in ROWS:
        both = []
        for name in ('plain', 'encrypted'):
            values = [r[name].get(key, 0) * (1 / gib if factor == 'gib' else factor) for r in rounds]
            both.append(statistics.median(values))
        summary[key] = both
        ratio = f'{both[1] / both[0]:.2f}' if both[0] else '-'
        lines.append(f'| {title} | {both[0]:.{digits}f} | {both[1]:.{digits}f} | {ratio} |')
    return '\n'.join(lines) + '\n', summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('-n', type=int, default=9, metavar='N', help='rounds (default 9)')
    parser.add_argument('--size', type=int, default=447, metavar='MIB', help='memory of the process (default 447)')
    parser.add_argument('--report', metavar='DIR', help='write report.md, results.json and the values of all rounds there')
    parser.add_argument('--dir', metavar='DIR', default=compare.BUILD, help='where images and device go (default build/bench)')
    parser.add_argument('--bin', metavar='DIR', default=compare.REPO / 'build' / 'bin', help='our programs (default build/bin)')
    args = parser.parse_args()
    if os.geteuid():
        sys.exit('crypt.py: this needs root')
    compare.become_subreaper()
    compare.build_programs()
    directory = Path(tempfile.mkdtemp(prefix='crypt-', dir=args.dir))
    rounds = []
    try:
        bench = Crypt(args, directory)
        for number in range(args.n + 1):
            rounds.append(bench.round(number))
            plain, cipher = rounds[-1]['plain'], rounds[-1]['encrypted']
            print(f'round {number} of {args.n}' + ('' if number else ' (not counted)') +
                  f': dump {plain["dump_wall_s"]:.2f} s plain, {cipher["dump_wall_s"]:.2f} s encrypted; restore '
                  f'{plain["restore_wall_s"]:.2f} s, {cipher["restore_wall_s"]:.2f} s', file=sys.stderr, flush=True)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        sys.exit(f'crypt.py: {e}')
    finally:
        compare.end_children()
        shutil.rmtree(directory, ignore_errors=True)
    text, summary = table(rounds[1:], args.size)
    speed = library_speed()
    text = (f'Encryption: {args.size} MiB of private memory, medians of {args.n} alternating rounds, {os.cpu_count()} CPUs'
            + (f'; libcrypto alone: {speed:.1f} GB/s a core\n\n' if speed else '\n\n') + text)
    print(text)
    if args.report:
        kept.keep(Path(args.report), 'make bench-crypt', {kept.name_of(who, key): statistics.median(r[who].get(key, 0) for r in rounds[1:])
                                                          for who in ('plain', 'encrypted') for key in rounds[1][who]},
                  {'library_gbps': speed, 'summary': summary, 'rounds': rounds}, text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
