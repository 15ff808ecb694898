#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
density: how many mostly idle containers fit beside a critical one, on a machine that has not DRAM for all.

  density.py run [--quick] [--minutes M] [--arms swap,ours] [--containers 1,5,9] [--rounds N] ...
  density.py report            tables and plots of the cells that there are
  density.py list              cells that are there, and those that are missing

A cell is one arm with N noise containers in one round. Cells are kept as files, and what is there is not run again. In a
ladder of one arm the containers stay, and more come. A round has all arms in random order. A ladder ends when it breaks.
"""
import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import arms as arms_of          # noqa: E402
import report                   # noqa: E402
from groups import Groups       # noqa: E402
from scene import Failed, Scene, Wrong, cpu_s       # noqa: E402

CONTAINERS = [1, 3, 5, 7, 9, 11, 13, 17, 21, 25, 33, 41, 49]
# in the first round only every so many-th number of containers, for all arms: that shows the result roughly
COARSE = 3
BROKEN_SHARE = 0.5              # as a share of the requests that were due
FILL_DEADLINE_S = 240


def plan(args):
    """[(round, arm, steps)], in the order in which they run."""
    order = []
    for number in range(args.rounds):
        names = list(args.arms)
        random.Random(args.seed * 1000 + number).shuffle(names)
        if not number and len(args.containers) > 2 * COARSE:
            order += [(number, name, args.containers[::COARSE]) for name in names]
        order += [(number, name, args.containers) for name in names]
    return order


def cell_path(args, number, arm, nr):
    return args.report / 'cells' / f'{arm}-{nr}-{number}.json'


def missing(args, number, arm, steps):
    """Steps of the ladder that were not run yet; none after the step that failed."""
    found = []
    for nr in steps:
        path = cell_path(args, number, arm, nr)
        if not path.exists():
            found.append(nr)
        elif json.loads(path.read_text())['broken']:
            break
    return found


def disk_of(path):
    """(bytes read, bytes written) so far of the disk that has this directory."""
    dev = os.stat(path).st_dev
    words = Path(f'/sys/dev/block/{os.major(dev)}:{os.minor(dev)}/stat').read_text().split()
    return int(words[2]) * 512, int(words[6]) * 512


class Ladder:
    def __init__(self, args, number, arm):
        self.args, self.number, self.name = args, number, arm
        self.groups = Groups()
        self.scene = Scene(args, args.place, self.groups)
        self.arm = arms_of.ARMS[arm](args, args.place, self.groups, self.scene)
        self.begun = False

    def counters(self):
        containers = [n.pid for n in self.scene.noise]
        read, written = disk_of(self.args.place)
        return {**self.arm.counters(), **self.groups.stat(), 'disk_read': read, 'disk_written': written,
                'critical_majfault': self.groups.stat('critical')['pgmajfault'],
                'critical_cpu_s': cpu_s(self.groups.pids('critical')), 'noise_cpu_s': cpu_s(containers)}

    def grow(self, nr):
        begin = time.monotonic()
        self.scene.end(self.scene.toucher)
        self.arm.prepare_for(nr)
        while len(self.scene.noise) < nr:
            self.scene.add_noise(self.arm.empty)
            self.scene.check()
            if time.monotonic() - begin > FILL_DEADLINE_S:
                raise Failed(f'{len(self.scene.noise)} containers are not filled within {FILL_DEADLINE_S} s')
        self.arm.filled()
        return time.monotonic() - begin

    def cell(self, nr):
        """The figures of a window of time."""
        args, scene = self.args, self.scene
        fill_s = self.grow(nr)
        scene.start_touch(args.seed + 100 * self.number + nr)
        time.sleep(args.settle_s)
        before, begin = self.counters(), time.monotonic_ns()
        time.sleep(args.window_s)
        end, after = time.monotonic_ns(), self.counters()
        time.sleep(0.5)         # until answers that are on their way have arrived
        scene.check()
        seconds = (end - begin) / 1e9
        found = {'arm': self.name, 'containers': nr, 'round': self.number, 'rate': args.rate, 'fill_s': fill_s, 'seconds': seconds,
                 'critical': scene.saw.window(begin, end), 'noise': scene.touched.window(begin, end), 'kills': self.groups.kills(),
                 'usage_bytes': self.groups.usage(), 'critical_bytes': self.groups.usage('critical'),
                 'budget_mib': getattr(self.arm, 'budget', 0)}
        found.update({key: after[key] - before[key] for key in after if not isinstance(after[key], dict)})
        found['contexts'] = {key: value - before['contexts'][key] for key, value in after.get('contexts', {}).items()}
        found['broken'] = found['critical']['per_s'] < BROKEN_SHARE * args.rate or found['kills'] > 0
        return found

    def begin(self):
        self.arm.begin()
        self.begun = True
        self.scene.start_critical()
        if not self.args.rate:
            self.args.rate = int(self.scene.most(3 if self.args.quick else 5, 1) * self.args.share)
        self.scene.start_load(self.args.rate, self.args.seed + self.number)

    def close(self):
        try:
            self.scene.close()
        finally:
            if self.begun:
                self.arm.end()
            self.groups.remove()


def climb(args, number, arm, steps, until):
    """Runs the missing steps of one ladder. False: the time is over."""
    steps = missing(args, number, arm, steps)
    if not steps:
        return True
    if until and time.monotonic() > until:
        return False
    ladder = Ladder(args, number, arm)
    try:
        ladder.begin()
        known_rate(args, save=True)
        for nr in steps:
            if until and time.monotonic() > until:
                return False
            try:
                found = ladder.cell(nr)
            except (Failed, OSError, ValueError) as reason:
                killed = ladder.groups.kills()
                found = {'arm': arm, 'containers': nr, 'round': number, 'rate': args.rate, 'broken': True, 'kills': killed,
                         'why': f'{killed} processes were ended for want of memory' if killed else str(reason)}
            cell_path(args, number, arm, nr).write_text(json.dumps(found, indent=1))
            print(report.line(found), flush=True)
            if found['broken']:
                break
    finally:
        ladder.close()
    return True


def known_rate(args, save=False):
    """All cells of a report have the rate and settings of its first run."""
    path = args.report / 'settings.json'
    names = ('rate', 'share', 'memory_mib', 'divide', 'clients', 'wait_ms', 'users', 'connections', 'fill_mibps', 'laps', 'max_active', 'window_s', 'settle_s')
    if path.exists():
        old = json.loads(path.read_text())
        wrong = [n for n in names if n != 'rate' and old.get(n) != getattr(args, n)]
        if wrong or args.rate not in (0, old['rate']):
            raise Failed(f'{path}: the cells there were run with another {", ".join(wrong) or "rate"}; use another --report, or remove them')
        args.rate = old['rate']
    elif save:
        path.write_text(json.dumps({**{n: getattr(args, n) for n in names}, 'cpus': os.cpu_count(), 'kernel': platform.release(),
                                    'page_cluster': int(Path('/proc/sys/vm/page-cluster').read_text()),
                                    'load_before': os.getloadavg()}, indent=1))


def clear(tmp):
    """Removes what a killed run has left."""
    for old in Path(tmp).glob('zns-density-*-*'):
        if not Path(f'/proc/{old.name.split("-")[2]}').exists():
            subprocess.run(['swapoff', old / 'swap'], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(old, ignore_errors=True)


def run(args):
    (args.report / 'cells').mkdir(parents=True, exist_ok=True)
    known_rate(args)
    until = time.monotonic() + 60 * args.minutes if args.minutes else 0
    clear(args.tmp)
    free = shutil.disk_usage(args.tmp).free >> 20
    if free < args.swap_mib + args.device_mib + 1024:
        raise Failed(f'{args.tmp} has {free} MiB free, and {args.swap_mib + args.device_mib + 1024} are needed: --tmp, or fewer --containers')
    args.place = Path(tempfile.mkdtemp(prefix=f'zns-density-{os.getpid()}-', dir=args.tmp))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        if not args.rate:       # no rate given: one that a machine with ample memory can serve
            ample = Ladder(args, 0, 'ample')
            try:
                ample.begin()
                known_rate(args, save=True)
            finally:
                ample.close()
        for number, arm, steps in plan(args):
            if not climb(args, number, arm, steps, until):
                print(f'the {args.minutes:g} minutes are over; run it again for the rest')
                break
    finally:
        shutil.rmtree(args.place, ignore_errors=True)
        report.write(args.report)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=('run', 'report', 'list'))
    parser.add_argument('--build', type=Path, default=Path('build'))
    parser.add_argument('--report', type=Path, default=Path('build/report/density'))
    parser.add_argument('--tmp', default='/var/tmp', help='on the disk that swap and zones are to share')
    parser.add_argument('--quick', action='store_true', help='a few minutes: a quarter of each container, three steps, one round')
    parser.add_argument('--minutes', type=float, default=0, help='no cell begins later than that')
    parser.add_argument('--arms', type=lambda text: text.split(','))
    parser.add_argument('--containers', type=lambda text: [int(n) for n in text.split(',')])
    parser.add_argument('--rounds', type=int)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--memory-mib', type=int, help='of the small machine')
    parser.add_argument('--divide', type=int, help='a container has 270 MiB divided by this')
    parser.add_argument('--clients', type=int, default=1, help="the noise's")
    parser.add_argument('--wait-ms', type=float, default=150)
    parser.add_argument('--rate', type=int, default=0, help='requests a second of the critical one; else a share of what it can do')
    parser.add_argument('--share', type=float, default=0.3)
    parser.add_argument('--users', type=int, default=30000)
    parser.add_argument('--connections', type=int, default=64)
    parser.add_argument('--window-s', type=float)
    parser.add_argument('--settle-s', type=float)
    parser.add_argument('--fill-mibps', type=int, default=300)
    parser.add_argument('--laps', type=int, default=0, help='so often a client asks a new container for all of its objects, in order')
    parser.add_argument('--max-active', type=int, default=0, help='zones of the drive that may be open or half full; 0: all')
    parser.add_argument('--zone-mib', type=int, default=16)
    args = parser.parse_args()
    quick = {'rounds': 1, 'containers': [1, 5, 13], 'memory_mib': 640, 'divide': 4, 'window_s': 5.0, 'settle_s': 2.0}
    full = {'rounds': 5, 'containers': CONTAINERS, 'memory_mib': 2048, 'divide': 1, 'window_s': 12.0, 'settle_s': 4.0}
    for name, value in (quick if args.quick else full).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.bin, args.znsctl = (args.build / 'bench/density').resolve(), (args.build / 'bin/znsctl').resolve()
    args.report = args.report.resolve()
    all_mib = max(args.containers) * 280 // args.divide
    args.swap_mib, args.device_mib = all_mib * 5 // 4 + 1024, all_mib * 7 // 4 + 1024        # zones hold some garbage
    known = [a for a in arms_of.ARMS if a != 'ours-unpredicted' or arms_of.has_prediction(args)]
    args.arms = args.arms or known
    if set(args.arms) - set(known):
        parser.error(f'--arms: {", ".join(known)}')
    if args.what == 'report':
        report.write(args.report)
    elif args.what == 'list':
        for number, arm, steps in plan(args):
            print(f'round {number}, {arm}: missing {", ".join(map(str, missing(args, number, arm, steps))) or "nothing"}')
    else:
        return run(args)
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except (Failed, Wrong) as failure:
        sys.exit(f'density: {failure}')
