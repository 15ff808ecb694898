#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
registry_rates: how fast a checkpoint goes to a registry on this machine and back, and how many bytes that takes there and in temporary
files, beside skopeo alone and a plain copy on the same disk, in alternating rounds. It reports; it fails if a command does.

  registry_rates.py --bin DIR --subject PROGRAM --report DIR [--size MIB] [--rounds N] [--dir DIR]
"""
import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'zonetests'))
from registry import Registry  # noqa: E402

MIB = 1 << 20
LOOK_S = 0.02


class Most:
    """The most that a directory had while this was open: bytes, by looks at it."""

    def __init__(self, path):
        self.path, self.bytes, self.over = path, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over.wait(LOOK_S):
            now = 0
            for where, _, names in os.walk(self.path):
                for name in names:
                    with contextlib.suppress(OSError):      # the process has its final name by now
                        now += os.lstat(os.path.join(where, name)).st_blocks * 512
            self.bytes = max(self.bytes, now)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Bench:
    def __init__(self, args, directory):
        self.args, self.dir = args, directory
        self.env = {**os.environ, 'ZNS_CONFIG': f'{directory}/etc', 'ZNS_RUN': f'{directory}/run', 'TMPDIR': str(directory / 'tmp')}
        (directory / 'tmp').mkdir()
        zones = 3 * args.size // 64 + 16
        self.ctl('create', f'emu:{directory}/dev', '--channels', '4', '--ways', '1', '--timing', 'off', '--zones', str(zones), '--zone-size', '64M',
                 '--default')

    def run(self, *command):
        """Seconds."""
        begin = time.monotonic()
        done = subprocess.run([str(c) for c in command], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f'{" ".join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()[-500:]}')
        self.out = done.stdout
        return time.monotonic() - begin

    def ctl(self, *args):
        self.run(f'{self.args.bin}/znsctl', *args, '--json')
        return json.loads(self.out) if self.out.strip() else {}

    def dump(self):
        answers = self.dir / 'answers'
        task = subprocess.Popen([self.args.subject, str(self.args.size), '1', str(answers)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, start_new_session=True)
        while not answers.exists():
            time.sleep(0.05)
        images = self.dir / 'images'
        images.mkdir()
        self.run(f'{self.args.bin}/criu', 'dump', '--no-default-config', '-D', images, '-W', images, '-t', task.pid, '--zns-qos', '400')
        task.wait()
        found, = self.ctl('ls')['checkpoints']
        return found

    def copied(self, path):
        """A plain copy on this disk, durable."""
        to = self.dir / 'copy'
        took = self.run('cp', '--reflink=never', path, to) + self.run('sync', to)
        to.unlink()
        return took

    def round(self, nr, ident, layout):
        """Seconds of each step, each with an empty registry; the order changes."""
        took, sent, room_of = {}, {}, {}
        big = max((layout / 'blobs/sha256').iterdir(), key=lambda p: p.stat().st_size)
        took['copy'] = self.copied(big)
        for who in ('skopeo', 'znsctl')[::-1 if nr % 2 else 1]:
            room = self.dir / f'registry-{who}-{nr}'
            room.mkdir()
            with Registry(room) as registry:
                image = registry.name('bench:x')
                if who == 'skopeo':
                    took['skopeo, there'] = self.run('skopeo', 'copy', '--preserve-digests', '--dest-tls-verify=false', f'oci:{layout}:x', image)
                    took['skopeo, back'] = self.run('skopeo', 'copy', '--src-tls-verify=false', image, f'oci:{room}/back:x')
                else:
                    with Most(self.dir / 'tmp') as most:
                        took['push'] = self.run(f'{self.args.bin}/znsctl', 'push', ident, image, '--', '--dest-tls-verify=false')
                    room_of['push'], sent = most.bytes, registry.bytes()
                    with Most(self.dir / 'tmp') as most:
                        took['pull'] = self.run(f'{self.args.bin}/znsctl', 'pull', image, '--container', f'pulled{nr}', '--', '--src-tls-verify=false')
                    room_of['pull'] = most.bytes
            shutil.rmtree(room)
        for c in self.ctl('ls')['checkpoints']:
            if c['container'].startswith('pulled'):
                self.ctl('rm', c['id'])
        self.ctl('gc')
        return took, sent, room_of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin', required=True)
    parser.add_argument('--subject', required=True)
    parser.add_argument('--report', type=Path, required=True)
    parser.add_argument('--size', type=int, default=1024, help='MiB')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--dir', default='/var/tmp')
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.dir) as directory:
        bench = Bench(args, Path(directory))
        checkpoint = bench.dump()
        layout = Path(directory) / 'layout'
        bench.ctl('export', '--oci', checkpoint['id'], f'{layout}:x')
        rounds = [bench.round(nr, checkpoint['id'], layout) for nr in range(args.rounds)]
    size = checkpoint['bytes']
    rate = {k: statistics.median(size / MIB / r[k] for r, *_ in rounds) for k in rounds[0][0]}
    ratio = {k: statistics.median(max(r['copy'], r[other]) / r[k] for r, *_ in rounds) for k, other in (('push', 'skopeo, there'), ('pull', 'skopeo, back'))}
    temporary = {k: max(r[2][k] for r in rounds) for k in rounds[0][2]}
    found = {'bytes': size, 'sent': rounds[0][1], 'temporary': temporary, 'mibps': rate, 'of_the_slower': ratio, 'load': load, 'rounds': [r for r, *_ in rounds]}
    args.report.mkdir(parents=True, exist_ok=True)
    (args.report / 'results.json').write_text(json.dumps(found, indent=1) + '\n')
    print(f'{size / MIB:.0f} MiB, {args.rounds} rounds, load of the machine before: {load:.1f}')
    print(f'bytes in the registry: {rounds[0][1] / size:.4f} of the checkpoint\'s')
    for k, v in temporary.items():
        print(f'temporary files of {k}: at most {v} bytes')
    for k, v in rate.items():
        more = f', {ratio[k]:.2f} of the slower of the copy and skopeo' if k in ratio else ''
        print(f'{k}: {v:.0f} MiB/s{more}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
