#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
docker_clones: 5, 15 and 45 containers of 100 MiB from one checkpoint at once, with runtime zns (znsctl docker clone) and with a
stock runtime (runc and criu without zones), in changing order under one daemon.

Docker has no command for a clone. With the stock runtime each clone is made as people do it: docker create, a copy of the
checkpoint's directory, docker start --checkpoint. Every container that started is asked for a hash of its memory. Stock may
fail, which is counted; ours may not. Time is from the first command until the last has ended, well or not.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'docker'))
from dkdaemon import BIN, DOCKER, Daemon, Failed  # noqa: E402
from docker import Memory, remove  # noqa: E402

STOCK = '''set -e
{docker} create --runtime stock --network none --tmpfs /data --name {name} work python3 -c "$SCRIPT" >/dev/null
id=$({docker} inspect -f '{{{{.Id}}}}' {name})
mkdir -p {root}/containers/$id/checkpoints
cp -a {source} {root}/containers/$id/checkpoints/base
exec {docker} start --checkpoint base {name}
'''


class Clones:
    """Figures of one container, under one runtime."""

    def __init__(self, d, runtime, mib):
        self.d, self.runtime, self.name = d, runtime, f'many-{runtime}'
        self.origin = Memory(d, self.name, mib, options=['--tmpfs', '/data'], runtime=runtime)
        self.origin.remember()
        self.script = json.loads(d.docker('inspect', '-f', '{{json .Args}}', self.name).stdout)[1]
        d.docker('checkpoint', 'create', self.name, 'base')

    def command(self, name):
        if self.runtime == 'zns':
            return [BIN / 'znsctl', 'docker', 'clone', self.name, 'base', name]
        root = self.d.root
        return ['sh', '-c', STOCK.format(docker=f'{DOCKER} --host unix://{self.d.socket}', name=name, root=root,
                                         source=root / 'containers' / self.d.id(self.name) / 'checkpoints/base')]

    def run(self, number):
        """Returns (seconds, number of right clones, output of the others)."""
        names = [f'{self.name}-{n}' for n in range(number)]
        commands = [self.command(name) for name in names]
        env = dict(self.d.env, SCRIPT=self.script)
        start = time.monotonic()
        started = [subprocess.Popen(c, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                   for c in commands]
        said = [p.communicate(timeout=600)[1].strip() for p in started]
        seconds, right = time.monotonic() - start, 0
        for name, p in zip(names, started):
            if p.returncode:
                continue
            c = Memory.__new__(Memory)
            c.d, c.container, c.before = self.d, name, self.origin.before
            c.verify()
            right += 1
        self.d.docker('rm', '-f', *names, check=False)
        wrong = [s.splitlines()[-1] for s, p in zip(said, started) if p.returncode and s]
        if wrong and self.runtime == 'zns':
            raise Failed(wrong[0])
        return {'seconds': seconds, 'right': right, 'said': sorted(set(wrong))[:3]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('-n', type=int, default=3, metavar='N', help='rounds (default 3)')
    parser.add_argument('--mib', type=int, default=100, metavar='MIB', help='memory of the process (default 100)')
    parser.add_argument('--counts', default='5,15,45', help='containers at once (default 5,15,45)')
    parser.add_argument('--report', metavar='DIR', help='write the table and all figures there')
    args = parser.parse_args()
    counts = [int(n) for n in args.counts.split(',')]
    found = {}
    load = os.getloadavg()[0]
    base = Path(tempfile.mkdtemp(prefix='zns-docker-clones-', dir=os.environ.get('TMPDIR', '/var/tmp')))
    try:
        runc = base / 'stock-runc'
        runc.write_text(f'#!/bin/sh\nPATH={BIN}:$PATH exec runc "$@"\n')
        runc.chmod(0o755)
        with Daemon(runtimes={'stock': {'path': str(runc)}}) as d:
            d.make_image()
            for turn in range(args.n):
                arms = [Clones(d, runtime, args.mib) for runtime in (('stock', 'zns'), ('zns', 'stock'))[turn % 2]]
                for number in counts:
                    for arm in arms:
                        got = arm.run(number)
                        found.setdefault((number, arm.runtime), []).append(got)
                        print(f'round {turn + 1} of {args.n}: {number:2} by {arm.runtime:5} {got["seconds"]:6.2f} s, {got["right"]} right'
                              + ''.join(f'\n    {s[:160]}' for s in got['said']), file=sys.stderr, flush=True)
                remove(d, *[arm.name for arm in arms])
    except Failed as e:
        sys.exit(f'docker_clones.py: {e}')
    finally:
        shutil.rmtree(base, ignore_errors=True)
    lines = [f'Containers of {args.mib} MiB from one checkpoint at once; medians of {args.n} alternating rounds, {os.cpu_count()} CPUs, '
             f'load {load:.1f} before', '', '| containers | | s | right |', '| --- | --- | --- | --- |']
    for number in counts:
        for runtime in ('zns', 'stock'):
            runs = found[number, runtime]
            lines.append(f'| {number} | {runtime} | {statistics.median(r["seconds"] for r in runs):.2f} | '
                         f'{min(r["right"] for r in runs)} to {max(r["right"] for r in runs)} |')
    text = '\n'.join(lines) + '\n'
    print(text)
    if args.report:
        target = Path(args.report)
        target.mkdir(parents=True, exist_ok=True)
        (target / 'report.md').write_text(text)
        (target / 'report.json').write_text(json.dumps([dict(containers=n, runtime=r, runs=runs) for (n, r), runs in found.items()],
                                                       indent=1) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
