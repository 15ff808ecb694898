#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
kill: kill -9 of processes that hold leases, and of the broker, at random moments under load.

While dumps (sharing, waiting, rejecting; static and dynamic; small and large), reads and compactions run, victims die:
first those with leases, then the broker. All the time no promise may be given twice and no limit be exceeded; afterwards no lease,
no reservation and no zone may be left over, what was committed must be there and read back, nothing else be listed but
what its writer was killed before it could say so.
"""
import argparse
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from rig import Rig, Wrong

DEVICE = ['--channels', '8', '--ways', '2', '--zones', '160', '--zone-size', '4M', '--max-open', '16', '--max-active', '24',
          '--die-write-bw', '100', '--timing', 'off']
PARALLEL = 8
KEEP = 50           # checkpoints, before the older half is removed


class Load:
    def __init__(self, rig, rng, broker_dies):
        self.rig, self.rng, self.broker_dies = rig, rng, broker_dies
        self.running = []
        self.committed, self.removed, self.unknown = set(), set(), 0
        self.kills = {'dump': 0, 'restore': 0, 'compact': 0, 'broker': 0}
        self.count = {'committed': 0, 'not admitted': 0, 'broker died': 0, 'killed': 0, 'verified': 0, 'moved': 0, 'gained': 0}
        self.samples = self.promised = 0

    def start(self):
        r = self.rng
        if self.committed and r.random() < 0.15:
            job = subprocess.Popen([self.rig.bin / 'znsctl', 'verify', '--all', '--json'], env=self.rig.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.running.append(('restore', job))
            return
        if self.committed and r.random() < 0.12:
            job = subprocess.Popen([self.rig.bin / 'znsctl', 'compact', '--below', '90', '--no-wait', '--json'], env=self.rig.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.running.append(('compact', job))
            return
        args = ['--qos', r.choice([50, 100, 200, 400, 800]), '--pause-us', r.choice([0, 500, 2000, 5000]),
                '--mode', r.choice(['share', 'share', 'share', 'wait=3', 'reject']), '--images', r.randint(1, 6)]
        args += ['--unannounced'] * (r.random() < 0.5)
        args += ['--dynamic'] * (r.random() < 0.3) + ['--separate'] * (r.random() < 0.2)
        size = int(2 ** r.uniform(16, 23))
        self.running.append(('dump', self.rig.dump(f'c{r.randrange(24)}', size, *args)))

    def ended(self, kind, job):
        out = job.stdout.read()
        if job.returncode == -signal.SIGKILL:
            self.count['killed'] += 1
            self.unknown += kind == 'dump'      # perhaps between its commit and its word
            return
        if kind == 'restore':
            self.end_of_verify(job, out)
            return
        if kind == 'compact':
            self.end_of_compact(job, out)
            return
        r = json.loads(out)
        if r['committed']:
            self.committed.add(r['id'])
            self.count['committed'] += 1
            self.count['gained'] += r['gained']
        elif r['stage'] == 'admission' and -r['code'] in (errno.EBUSY, errno.ETIMEDOUT):
            self.count['not admitted'] += 1
        elif self.broker_dies and (r['stage'] in ('connect', 'admission') or -r['code'] == errno.EPIPE):
            self.count['broker died'] += 1
            self.unknown += r['stage'] == 'commit'
        else:
            raise Wrong(f'a dump failed at "{r["stage"]}" with {r["code"]}: {r["error"]}')

    def end_of_verify(self, job, out):
        """Verify may lose the broker, or find that a listed checkpoint is gone, but must never report damage."""
        said = job.stderr.read()
        report = json.loads(out) if job.returncode == 0 else {}
        if report.get('damaged') or 'checksum' in said or 'damaged' in said:
            raise Wrong(f'a checkpoint is damaged: {said.strip() or out[:300]}')
        self.count['verified'] += job.returncode == 0

    def end_of_compact(self, job, out):
        """Compaction may lose the broker or find no room, but must never report damage."""
        said = job.stderr.read()
        if 'checksum' in said or 'damaged' in said or 'read back' in said:
            raise Wrong(f'compaction finds damage: {said.strip()}')
        if job.returncode and not self.broker_dies and 'nothing was moved' not in said and 'no empty zone' not in said:
            raise Wrong(f'compaction fails: {said.strip()}')
        self.count['moved'] += json.loads(out)['moved_checkpoints'] if job.returncode == 0 else 0

    def step(self):
        for kind, job in [x for x in self.running if x[1].poll() is not None]:
            self.running.remove((kind, job))
            self.ended(kind, job)
        while len(self.running) < PARALLEL:
            self.start()

    def trim(self):
        ids = [c['id'] for c in self.rig.checkpoints()]
        if len(ids) <= KEEP:
            return
        old = ids[:len(ids) // 2]
        if self.rig.ctl('rm', *old, check=not self.broker_dies).returncode:
            return
        self.removed.update(old)

    def look(self):
        """A status of this moment, checked."""
        status = self.rig.status()
        self.rig.check_promises(status)
        self.samples += 1
        self.promised += sum(1 for l in status['leases'] if l['promised'])
        return status

    def kill_holder(self):
        """One process that holds a lease now dies at a random moment."""
        ours = {job.pid: (kind, job) for kind, job in self.running}
        holders = [ours[l['pid']] for l in self.look()['leases'] if l['pid'] in ours]
        if not holders:
            return
        kind, job = self.rng.choice(holders)
        time.sleep(self.rng.uniform(0, 0.08))
        if job.poll() is not None:
            return
        job.kill()
        job.wait()
        if job.returncode == -signal.SIGKILL:
            self.kills[kind] += 1

    def kill_broker(self):
        try:
            pid = self.look()['broker_pid']
        except Wrong as e:
            if 'znsctl' in str(e):      # another one had just been killed
                return
            raise
        time.sleep(self.rng.uniform(0, 0.25))
        try:
            os.kill(pid, signal.SIGKILL)
            self.kills['broker'] += 1
        except ProcessLookupError:
            pass
        while Path(f'/proc/{pid}').exists():
            time.sleep(0.001)

    def finish(self):
        end = time.monotonic() + 120
        while self.running:
            for kind, job in list(self.running):
                if job.poll() is not None:
                    self.running.remove((kind, job))
                    self.ended(kind, job)
                elif time.monotonic() > end:
                    raise Wrong(f'a {kind} (PID {job.pid}) does not end')
            time.sleep(0.02)

    def verdict(self):
        """Called after the last job has ended."""
        status = self.rig.settle()
        listed = {c['id'] for c in self.rig.checkpoints()}
        lost = self.committed - self.removed - listed
        if lost:
            raise Wrong(f'{len(lost)} committed checkpoints are not listed, {lost.pop()} for one')
        strange = listed - self.committed
        if len(strange) > self.unknown:
            raise Wrong(f'{len(strange)} checkpoints are listed that nobody committed, {self.unknown} may be')
        back = listed & self.removed
        if back:
            raise Wrong(f'removed checkpoints are listed again: {back}')
        intact = self.rig.intact()
        wasted = status['bytes_wasted']
        self.rig.empty()
        return intact, wasted

    def end(self):
        for _, job in self.running:
            job.kill()
            job.wait()


def phase(args, name, goal, broker_dies):
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    rig = Rig(args.build, DEVICE, args.keep)
    load = Load(rig, random.Random(seed), broker_dies)
    started, last = time.monotonic(), time.monotonic()
    try:
        while load.kills['broker'] < goal if broker_dies else load.kills['dump'] + load.kills['restore'] + load.kills['compact'] < goal:
            load.step()
            load.kill_broker() if broker_dies else load.kill_holder()
            if time.monotonic() - last > 1:
                load.trim()
                last = time.monotonic()
            if time.monotonic() - started > args.timeout:
                raise Wrong(f'not done after {args.timeout} s: {load.kills}')
        load.finish()
        intact, wasted = load.verdict()
        if goal >= 100 and not load.count['gained']:
            raise Wrong('no dump gained a zone: of that it proves nothing')
        print(f'PASS {name}: {load.kills["dump"]} dumps, {load.kills["restore"]} reads, '
              f'{load.kills["compact"]} compactions, {load.kills["broker"]} brokers killed; {load.count["moved"]} moved; '
              f'{load.count["committed"]} committed, with {load.count["gained"]} zones gained; {load.count["not admitted"]} not admitted, '
              f'{load.count["broker died"]} lost their broker; {load.samples} looks with {load.promised} promises; '
              f'{intact} checkpoints left, all read back; {wasted >> 10} KiB wasted before removing them, 0 after; '
              f'{time.monotonic() - started:.0f} s, seed {seed}', flush=True)
        return True
    except Wrong as e:
        print(f'FAIL {name}: {e} (seed {seed}; {load.kills})', flush=True)
        return False
    finally:
        load.end()
        rig.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default='build', metavar='DIR')
    parser.add_argument('--holders', type=int, default=100, metavar='N', help='kills of processes with leases (default 100)')
    parser.add_argument('--brokers', type=int, default=50, metavar='N', help='kills of the broker (default 50)')
    parser.add_argument('--seed', type=int)
    parser.add_argument('--timeout', type=int, default=600, metavar='S', help='for each of the two (default 600)')
    parser.add_argument('--keep', action='store_true', help='keep the device')
    args = parser.parse_args()
    results = []
    if args.holders:
        results.append(phase(args, 'holders of leases', args.holders, False))
    if args.brokers:
        results.append(phase(args, 'brokers', args.brokers, True))
    print(f'{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped')
    return 0 if all(results) and results else 1


if __name__ == '__main__':
    sys.exit(main())
