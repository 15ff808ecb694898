#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
crowd: many containers, one small checkpoint each, many at once.

On the small-zone profile with 1,000 containers, and on the large-zone profile with its 14 active zones. Each also
without telling sizes (--control), which is what would happen without pack zones. All must be committed, no limit met,
everything read back, every zone come back. Reports zones used, bytes wasted, active zones over time, waiting, time; on a
timing model, the device's own time beside it.
"""
import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from rig import REPO, Rig, Wrong

# options, containers, at once, containers of the control: a zone each, and most of them padded
CASES = {
    'small-zone': (['--profile', 'small-zone', '--sparse'], 1000, 64, 300),
    'large-zone': (['--profile', 'large-zone', '--sparse'], 200, 40, 100),
}


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else 0


def crowd(args, name, announced):
    """Runs once and returns the measurements."""
    options, containers, parallel, control = CASES[name]
    containers = args.containers or (containers if announced else control)
    parallel = min(args.parallel or parallel, containers)
    rng = random.Random(args.seed)
    rig = Rig(args.build, options, args.keep)
    running, results, active, granted, waiting = [], [], [], [], []
    try:
        limit = rig.status()['limits']['max_active']
        sizes = [int(2 ** rng.uniform(17, 21.5)) for _ in range(containers)]
        todo = list(enumerate(sizes))
        started, looked = time.monotonic(), 0
        while todo or running:
            while todo and len(running) < parallel:
                n, size = todo.pop(0)
                extra = [] if announced else ['--unannounced']
                running.append(rig.dump(f'box{n}', size, '--qos', '100', *extra))
            for job in [j for j in running if j.poll() is not None]:
                running.remove(job)
                r = json.loads(job.stdout.read())
                if not r['committed']:
                    raise Wrong(f'{r["container"]} failed at "{r["stage"]}" with {r["code"]}: {r["error"]}')
                results.append(r)
            if time.monotonic() - looked > 0.2:
                looked = time.monotonic()
                status = rig.status()
                rig.check_promises(status)
                active.append(status['zones_by_state']['open'] + status['zones_by_state']['closed'])
                granted.append(status['zones_granted'])
                waiting.append(status['waiting'])
            time.sleep(0.005)
        seconds = time.monotonic() - started
        time.sleep(2)       # zones beyond the parking limit are finished in the background
        status = rig.settle(60)
        checkpoints = rig.checkpoints()
        used = {z for c in checkpoints for z in c['zones']}
        if len(checkpoints) != containers:
            raise Wrong(f'{len(checkpoints)} checkpoints of {containers} containers')
        measured = {
            'device': name, 'announced': announced, 'containers': containers, 'at_once': parallel,
            'bytes': sum(sizes), 'seconds': round(seconds, 1), 'dumps_per_s': round(containers / seconds, 1),
            'zones_used': len(used), 'packed': sum(r['packed'] for r in results),
            'wasted_bytes': status['bytes_wasted'], 'live_bytes': status['bytes_live'],
            'active_limit': limit, 'active_max': max(active), 'active_after': status['zones_by_state']['open'] +
            status['zones_by_state']['closed'], 'granted_max': max(granted), 'waiting_max': max(waiting),
            'waited_ms_p50': round(percentile([r['waited_ms'] for r in results], .5), 1),
            'waited_ms_p99': round(percentile([r['waited_ms'] for r in results], .99), 1),
            'dump_ms_p50': round(percentile([r['dump_ms'] for r in results], .5), 1),
            'reservations': len(status['reservations']),
        }
        measured['verified'] = rig.intact()
        rig.empty()
        return measured
    finally:
        for job in running:
            job.kill()
            job.wait()
        rig.close()


def show(m):
    kind = 'sizes told' if m['announced'] else 'control, sizes not told'
    print(f'  {m["device"]}, {kind}: {m["containers"]} containers, {m["at_once"]} at once, {m["bytes"] / 2**20:.0f} MiB in '
          f'{m["seconds"]} s ({m["dumps_per_s"]} dumps/s)')
    print(f'    zones used {m["zones_used"]}, wasted {m["wasted_bytes"] / 2**20:.1f} MiB beside {m["live_bytes"] / 2**20:.1f} MiB '
          f'live; active zones: at most {m["active_max"]} of {m["active_limit"]}, {m["active_after"]} afterwards')
    print(f'    granted at once: at most {m["granted_max"]}; waiting: at most {m["waiting_max"]}, p50 {m["waited_ms_p50"]} ms, '
          f'p99 {m["waited_ms_p99"]} ms; a dump p50 {m["dump_ms_p50"]} ms; {m["verified"]} verified', flush=True)


def criu_dumps(args, nr):
    """The same with a real criu and real tasks, a few of them: all in one pack zone or few, all restored."""
    sys.path.insert(0, str(REPO / 'test' / 'zonetests'))
    import ztlib
    program = ztlib.PROGS / 'bigmem'
    ztlib.build_programs()
    rig = Rig(args.build, CASES['small-zone'][0], args.keep)
    criu = Path(args.build).resolve() / 'bin' / 'criu'
    tasks = []
    try:
        for n in range(nr):
            where = rig.dir / f'task{n}'
            where.mkdir()
            with open(where / 'stdio', 'wb') as out:
                task = subprocess.Popen([program, '--dir', where, '--size', '1'], cwd='/', stdin=subprocess.DEVNULL, stdout=out,
                                        stderr=out, start_new_session=True)
            if not ztlib.wait_until((where / 'ready').exists, 30):
                raise Wrong('a task does not get ready')
            tasks.append((task, where))
        jobs = []
        for n, (task, where) in enumerate(tasks):
            (where / 'images').mkdir()
            jobs.append(subprocess.Popen([criu, 'dump', '-t', str(task.pid), '-D', where / 'images', '-o', 'dump.log', '-v3',
                                          '--zns-container', f'real{n}', '--zns-qos', '300'], env=rig.env,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        codes = [j.wait(timeout=300) for j in jobs]
        for task, _ in tasks:
            task.wait(timeout=30)
        if any(codes):
            raise Wrong(f'criu dump: exit codes {codes}')
        zones = {z for c in rig.checkpoints() for z in c['zones']}
        packed = sum(c['packed'] for c in rig.checkpoints())
        for n, (task, where) in enumerate(tasks):
            ztlib.wait_until(lambda: not Path(f'/proc/{task.pid}').exists(), 10)
            done = subprocess.run([criu, 'restore', '-d', '-D', where / 'images', '-o', 'restore.log', '-v3'], env=rig.env,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
            if done.returncode:
                raise Wrong(f'criu restore of real{n}: exit {done.returncode}')
            subprocess.run(['kill', '-TERM', str(task.pid)], check=True)
            if not ztlib.wait_until(lambda: (where / 'out').exists() and 'PASS' in (where / 'out').read_text(), 30):
                raise Wrong(f'real{n} does not find its memory as it was')
        print(f'  {nr} real criu dumps at once: {packed} packed, on {len(zones)} zones, all restored and checked by their tasks',
              flush=True)
        if packed != nr:
            raise Wrong(f'{packed} of {nr} are small')
    finally:
        for task, _ in tasks:
            subprocess.run(['kill', '-KILL', str(task.pid)], stderr=subprocess.DEVNULL)
        rig.close()


def judge(m):
    """What the design promises of small dumps."""
    if m['active_limit'] and m['active_max'] > m['active_limit']:
        raise Wrong('the active limit was exceeded')
    if not m['announced']:
        return
    if m['packed'] != m['containers'] or m['reservations']:
        raise Wrong(f'{m["packed"]} of {m["containers"]} were small, {m["reservations"]} reservations')
    if m['zones_used'] > m['at_once'] + m['bytes'] // (64 << 20) + 1:
        raise Wrong(f'{m["zones_used"]} zones for {m["containers"]} small checkpoints, {m["at_once"]} at once')
    if m['wasted_bytes'] > m['live_bytes'] // 10:
        raise Wrong(f'{m["wasted_bytes"]} bytes are wasted beside {m["live_bytes"]} live ones')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', metavar='CASE', help=f'{", ".join(CASES)} (default: all)')
    parser.add_argument('--build', default='build', metavar='DIR')
    parser.add_argument('--containers', type=int, metavar='N')
    parser.add_argument('--parallel', type=int, metavar='N', help='dumps at once')
    parser.add_argument('--control', action='store_true', help='each also without telling sizes')
    parser.add_argument('--criu', type=int, default=0, metavar='N', help='and N real criu dumps at once')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--report', metavar='FILE', help='the figures as JSON')
    parser.add_argument('--keep', action='store_true')
    args = parser.parse_args()
    for c in args.cases:
        if c not in CASES:
            sys.exit(f'no such case: {c}')
    passed = failed = 0
    figures = []
    for name in args.cases or CASES:
        for announced in (True, False) if args.control else (True,):
            try:
                m = crowd(args, name, announced)
                show(m)
                figures.append(m)
                judge(m)
                passed += 1
            except Wrong as e:
                print(f'FAIL {name}: {e}', flush=True)
                failed += 1
    if args.criu:
        try:
            criu_dumps(args, args.criu)
            passed += 1
        except Wrong as e:
            print(f'FAIL criu: {e}', flush=True)
            failed += 1
    if args.report:
        Path(args.report).parent.mkdir(parents=True, exist_ok=True)
        Path(args.report).write_text(json.dumps(figures, indent=1))
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
