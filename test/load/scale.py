#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
scale: how the store's costs grow with what is in it.

The drive of the paper (29,172 zones of 72 MB), 1,000 containers, up to 10,000 checkpoints, made by real dumps through a
real broker. At each size: a broker's start (it opens the store and reports all zones), ls, a first dump's admission, rm,
gc, and the broker's memory. `scale.py --disk 12G --bytes 1048576` is the same for a store in a file. Times are wall clock, medians of several; what matters is how they grow.
"""
import argparse
import json
import os
import re
import resource
import statistics
import sys
import time
from pathlib import Path

from rig import Rig, Wrong

PROFILE = ['--profile', 'paper-conf', '--sparse', '--timing', 'off']
AT_ONCE = 8
TIMES = 7
SIZE = 65536        # bytes of a newcomer's checkpoint, and of each without --bytes


def timed(func, *args):
    begin = time.monotonic()
    func(*args)
    return (time.monotonic() - begin) * 1000


def cpu_ms(func, *args):
    """What the command itself used; on a busy machine that says more than how long it took."""
    def used():
        u = resource.getrusage(resource.RUSAGE_CHILDREN)
        return u.ru_utime + u.ru_stime
    begin = used()
    func(*args)
    return round((used() - begin) * 1000, 1)


def median(func, times=TIMES):
    return round(statistics.median(timed(func) for _ in range(times)), 1)


def end_broker(rig):
    pid = rig.status()['broker_pid']
    os.kill(pid, 9)
    while Path(f'/proc/{pid}').exists() and 'Z' not in Path(f'/proc/{pid}/stat').read_text().split()[2:3]:
        time.sleep(0.005)
    return pid


def memory_kib(rig, pid, what):
    try:
        text = Path(f'/proc/{pid}/status').read_text()
    except FileNotFoundError:
        said = [l for log in (rig.dir / 'run').glob('*.log') for l in log.read_text().splitlines()[-3:]]
        raise Wrong(f'broker {pid} is gone: {" | ".join(said)}')
    return int(re.search(rf'^{what}:\s*(\d+)', text, re.M).group(1))


def fill(rig, have, want, containers, size):
    """Makes more dumps, some at the same time; returns the rate."""
    running, n, begin = [], have, time.monotonic()
    while n < want or running:
        while n < want and len(running) < AT_ONCE:
            times = min(100, want - n)
            running.append(rig.dump(f'box{n // 100 % (containers // 100)}', size, '--qos', '100', '--images', '2',
                                    '--times', times))
            n += times
        for job in [j for j in running if j.poll() is not None]:
            running.remove(job)
            for r in map(json.loads, job.stdout.read().splitlines()):
                if not r['committed']:
                    raise Wrong(f'{r["container"]} failed at "{r["stage"]}": {r["error"]}')
        time.sleep(0.001)
    return (want - have) / (time.monotonic() - begin)


def admission_ms(rig):
    """For a container without checkpoints: the time from a dump's request to its grant; then the dump is dropped."""
    job = rig.dump('newcomer', SIZE, '--qos', '300', '--unannounced')
    r = json.loads(job.communicate(timeout=60)[0])
    if not r['committed']:
        raise Wrong(f'the newcomer failed: {r["error"]}')
    rig.ctl('rm', '--container', 'newcomer')
    return r['waited_ms']


def whole_dump(rig):
    """A client's process from its start to its end, with a small checkpoint; what it costs beside its bytes."""
    job = rig.dump('newcomer', SIZE, '--images', '2')
    r = json.loads(job.communicate(timeout=60)[0])
    if not r['committed']:
        raise Wrong(f'the newcomer failed: {r["error"]}')


def start_broker(rig):
    """From no broker to its first answer."""
    end_broker(rig)
    return timed(rig.ctl, 'status')


def measure(rig, nr, dumps_per_s):
    if len(rig.checkpoints()) != nr:
        raise Wrong(f'{len(rig.checkpoints())} checkpoints are listed, {nr} were made')
    begun = statistics.median(start_broker(rig) for _ in range(TIMES))
    pid = rig.status()['broker_pid']
    row = {'checkpoints': nr, 'dumps_per_s': round(dumps_per_s, 1), 'broker_start_ms': round(begun, 1)}
    row['ls_ms'] = median(lambda: rig.ctl('ls', '--json'))
    row['ls_text_ms'] = median(lambda: rig.ctl('ls'))
    row['ls_cpu_ms'], row['ls_text_cpu_ms'] = cpu_ms(rig.ctl, 'ls', '--json'), cpu_ms(rig.ctl, 'ls')
    row['status_ms'] = median(lambda: rig.ctl('status', '--json'))
    row['admission_ms'] = round(statistics.median(admission_ms(rig) for _ in range(TIMES)), 2)
    row['dump_ms'] = median(lambda: whole_dump(rig))
    rig.ctl('rm', '--container', 'newcomer')
    row['gc_dry_run_ms'] = median(lambda: rig.ctl('gc', '--dry-run', '--json'))
    victims = [c['id'] for c in rig.checkpoints()[:TIMES]]
    row['rm_ms'] = round(statistics.median(timed(rig.ctl, 'rm', i) for i in victims), 1)
    row['broker_rss_mib'] = round(memory_kib(rig, pid, 'VmRSS') / 1024, 1)
    row['broker_peak_mib'] = round(memory_kib(rig, pid, 'VmHWM') / 1024, 1)
    return row, len(victims)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--build', default='build')
    parser.add_argument('--disk', metavar='SIZE', help='a store on an ordinary disk, instead of the drive')
    parser.add_argument('--bytes', type=int, default=SIZE, help='of one checkpoint')
    parser.add_argument('--containers', type=int, default=1000, help='a multiple of 100')
    parser.add_argument('--sizes', default='10,1000,3000,10000', help='checkpoints at which to measure')
    parser.add_argument('--report', metavar='FILE')
    parser.add_argument('--keep', action='store_true')
    args = parser.parse_args()
    if args.disk:
        rig = Rig(args.build, ['--size', args.disk, '--rate', '1000'], args.keep, kind='file')
    else:
        rig = Rig(args.build, PROFILE, args.keep)
    # One broker from its start to the look at its memory: on a busy machine 10 s without a command do happen.
    rig.env['ZNSD_IDLE_S'] = '600'
    rows, have = [], 0
    try:
        zones = rig.status()['geometry']['zones'] if 'geometry' in rig.status() else None
        for nr in map(int, args.sizes.split(',')):
            rate = fill(rig, have, nr, args.containers, args.bytes)
            row, removed = measure(rig, nr, rate)
            have = nr - removed
            rows.append(row)
            print('  '.join(f'{k} {v}' for k, v in row.items()), flush=True)
        last = len(rig.checkpoints())
        seconds = timed(rig.ctl, 'rm', '--all') / 1000
        print(f'rm --all: {last} checkpoints in {seconds:.1f} s')
        rig.settle(120)
    except Wrong as e:
        print(f'FAIL {e}')
        return 1
    finally:
        rig.close()
    if args.report:
        Path(args.report).parent.mkdir(parents=True, exist_ok=True)
        Path(args.report).write_text(json.dumps({'zones': zones, 'rows': rows, 'rm_all_s': seconds}, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
