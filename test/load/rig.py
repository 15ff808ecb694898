# SPDX-License-Identifier: GPL-2.0-only
"""A private device with znsctl and dumpers on it, and what must hold of its store; for kill.py and crowd.py."""
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


class Wrong(Exception):
    """Something that must hold does not."""


class Rig:
    def __init__(self, build, options, keep=False, kind='emu'):
        build = Path(build).resolve()
        self.bin, self.dumper, self.keep = build / 'bin', build / 'load' / 'dumper', keep
        self.dir = Path(tempfile.mkdtemp(prefix='zns-load-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        self.env = dict(os.environ, ZNS_CONFIG=str(self.dir / 'etc'), ZNS_RUN=str(self.dir / 'run'),
                        ZNS_LIBEXEC=str(self.bin))
        self.env.pop('ZNS_DEV', None)
        self.info = self.json('create', f'{kind}:{self.dir}/dev', *options)

    def ctl(self, *args, check=True):
        done = subprocess.run([self.bin / 'znsctl', *args], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300)
        if check and done.returncode:
            raise Wrong(f'znsctl {" ".join(args)}: exit {done.returncode}: {done.stderr.strip()}')
        return done

    def json(self, *args):
        return json.loads(self.ctl(*args, '--json').stdout)

    def status(self):
        return self.json('status')

    def checkpoints(self):
        return self.json('ls')['checkpoints']

    def dump(self, container, size, *args):
        """A dumper in the background."""
        return subprocess.Popen([self.dumper, '--container', container, '--bytes', str(size), *map(str, args)], env=self.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def close(self):
        try:
            pid = self.status()['broker_pid']
            os.kill(pid, 15)
            for _ in range(500):
                if not Path(f'/proc/{pid}').exists():
                    break
                time.sleep(0.01)
        except (Wrong, OSError, ValueError):
            pass
        if self.keep:
            print(f'left in {self.dir}')
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    # -- what must hold --

    def check_promises(self, status):
        """A consistent snapshot: no bandwidth is promised twice, and not more than exists."""
        budget, granted = status['zones_budget'], status['zones_granted']
        if budget is not None and granted > budget:
            raise Wrong(f'{granted} zones are granted, {budget} may be open')
        dumps = [l for l in status['leases'] if l['kind'] == 'dump']
        for a in dumps:
            for b in dumps:
                both = set(a['groups']) & set(b['groups'])
                if a is not b and a['promised'] and both:
                    raise Wrong(f'groups {sorted(both)} were promised to {a["container"]}, and {b["container"]} has them')
        limit = status['limits']['max_active']
        states = status['zones_by_state']
        if limit and states['open'] + states['closed'] > limit:
            raise Wrong(f'{states["open"] + states["closed"]} zones are active, {limit} may be')

    def settle(self, seconds=20):
        """Waits until no lease and no waiter is left, and no zone without live data; returns the status."""
        end = time.monotonic() + seconds
        while True:
            status = self.status()
            busy = [f'{l["kind"]} of {l["container"]} (PID {l["pid"]})' for l in status['leases']]
            zones = self.json('zones')['zones']
            leaked = [z['index'] for z in zones if z['owner'] not in ('(metadata)', '(conventional)') and not z['live']
                      and z['state'] not in ('empty', 'read-only', 'offline')]
            if not busy and not leaked and not status['waiting']:
                break
            if time.monotonic() > end:
                raise Wrong(f'leases left: {busy}; waiting: {status["waiting"]}; zones without live data: {leaked}')
            time.sleep(0.1)
        status = self.status()
        if status['zones_granted']:
            raise Wrong(f'{status["zones_granted"]} zones are granted to nobody')
        held = {c['container'] for c in self.checkpoints()}
        for r in status['reservations']:
            if r['container'] not in held:
                raise Wrong(f'{r["container"]} has a reservation and no checkpoint')
        return status

    def intact(self):
        """Every checkpoint reads back; how many there are."""
        done = self.ctl('verify', '--all', '--json', check=False)
        report = json.loads(done.stdout) if done.stdout.strip() else {}
        if done.returncode or report.get('damaged'):
            raise Wrong(f'znsctl verify: {done.stderr.strip() or report.get("damaged")}')
        return len(report['checkpoints'])

    def empty(self):
        """Removes all checkpoints; every zone must become empty."""
        if self.checkpoints():
            self.ctl('rm', '--all')
        status = self.settle()
        if status['reservations'] or status['bytes_live'] or status['bytes_wasted']:
            raise Wrong(f'after removing everything: {status["bytes_live"]} bytes live, {status["bytes_wasted"]} wasted, '
                        f'{len(status["reservations"])} reservations')
        return status
