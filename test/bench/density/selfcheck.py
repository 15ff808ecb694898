#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""selfcheck: tests the density benchmark itself, with known loads and delays."""
import argparse
import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import density                  # noqa: E402
import report                   # noqa: E402
from groups import Groups       # noqa: E402
from samples import Samples, percentiles        # noqa: E402
from scene import Failed, Scene, wait_until     # noqa: E402

MS = 1000000


class Skipped(Exception):
    pass


CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def expect(found, wanted, what):
    if found != wanted:
        raise Failed(f'{what}: {found}, not {wanted}')


def write_samples(path, start, step, pairs):
    path.write_bytes(struct.pack('4Q', len(pairs), start, step, 0) + b''.join(struct.pack('2Q', *p) for p in pairs))
    return Samples(path)


@check
def percentiles_are_exact(place, args):
    """Latencies from 1 to 1000 ms."""
    expect(percentiles(range(1000 * MS, 0, -MS)), {'p50_ms': 500, 'p90_ms': 900, 'p95_ms': 950, 'p99_ms': 990, 'max_ms': 1000}, 'of 1 to 1000 ms')
    expect(percentiles([7 * MS])['p99_ms'], 7, 'of one')


@check
def windows_count_what_waits(place, args):
    """A request that fell due in the window and has no answer has waited until now, sent or not; others are not counted."""
    now = time.monotonic_ns()
    start = now - 10000 * MS
    pairs = [(start + i * 100 * MS, start + i * 100 * MS + 5 * MS) for i in range(50)]
    pairs[40] = (pairs[40][0], 0)
    found = write_samples(place / 's', start, 100 * MS, pairs).window(start + 3000 * MS, start + 6000 * MS)
    expect((found['due'], found['answers'], found['unanswered']), (30, 19, 11), 'due, answers, unanswered')
    if found['max_ms'] < 6000 or found['p50_ms'] != 5:
        raise Failed(f'{found}')
    found = write_samples(place / 's', start, 0, pairs).window(start + 3000 * MS, start + 6000 * MS)
    expect((found['due'], found['unanswered']), (20, 1), 'without a rate: due, unanswered')


def answer_all(path):
    """A site that answers at once."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    ready = selectors.DefaultSelector()
    ready.register(server, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is server:
                ready.register(server.accept()[0], selectors.EVENT_READ)
                continue
            data = key.fileobj.recv(65536)
            if not data:
                ready.unregister(key.fileobj)
            for user in re.findall(rb'user=(\d+)', data):
                body = b'{"user":%s,"ok":1}' % user
                key.fileobj.send(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body))


def stalled(place, args, rate, connections):
    """Samples of a site that stopped for 0.8 of 4 s, and when it did."""
    path = place / 'site.sock'
    path.unlink(missing_ok=True)
    site = os.fork()
    if not site:
        answer_all(str(path))
    wait_until(path.exists, 'the site')
    time.sleep(0.1)
    saw = Samples(place / 'load')
    saw.path.unlink(missing_ok=True)
    load = subprocess.Popen([args.bin / 'load', saw.path, str(connections), str(rate), '1', '1000', path])
    try:
        wait_until(lambda: saw.path.exists() and saw.path.stat().st_size and saw.head()[0] > 20, 'the first answers')
        begin = time.monotonic_ns()
        time.sleep(1.5)
        os.kill(site, signal.SIGSTOP)
        stop = time.monotonic_ns() + 50 * MS
        time.sleep(0.85)
        go = time.monotonic_ns()
        os.kill(site, signal.SIGCONT)
        time.sleep(max(0, begin / 1e9 + 4 - time.monotonic()))
        end = begin + 4000 * MS
        time.sleep(0.5)
        expect(load.poll(), None, 'the load')
    finally:
        for pid in (site, load.pid):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(site, 0)
        load.wait()
    return saw, begin, stop, go, end


@check
def a_stall_is_in_all_that_had_to_wait(place, args):
    """If the site stops, all requests that become due meanwhile wait, with the load program of the benchmark."""
    saw, begin, stop, go, end = stalled(place, args, 500, 8)
    step = saw.head()[2]
    due, done = saw.read()
    waited = [(d, a) for d, a in zip(due, done) if stop <= d < go]
    if len(waited) < (go - stop) // step - 1 or any(a and a < go for _, a in waited):
        raise Failed(f'{len(waited)} waited of {(go - stop) // step}, {sum(1 for _, a in waited if a and a < go)} were answered meanwhile')
    found = saw.window(begin, end)
    stall_ms = (go - stop) / MS
    for percent in (90, 95, 99):        # of a stall of 4 s, this much was left for requests that came at that time
        least = stall_ms - 4000 * (100 - percent) / 100 - 2 * step / MS
        if found[f'p{percent}_ms'] < least:
            raise Failed(f'p{percent} is {found[f"p{percent}_ms"]:.0f} ms, must be {least:.0f} at least')


@check
def without_a_rate_a_stall_is_hardly_seen(place, args):
    """The control: if each request is sent only after the last answer, a stop shows in only as many latencies as there are connections."""
    saw, _, _, go, _ = stalled(place, args, 0, 8)
    waited = sum(1 for d, a in zip(*saw.read()) if d < go <= a)
    if waited > 8:
        raise Failed(f'{waited} requests waited')


def noise(place, args, number):
    sock = place / 'n.sock'
    server = subprocess.Popen([args.bin / 'noise', sock, str(number), '20', '4000'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for word in ('empty', 'ready'):
        expect(server.stdout.readline().strip(), word, 'noise')
        if word == 'empty':
            server.stdin.write('\n')
            server.stdin.flush()
    client = subprocess.Popen([args.bin / 'touch', place / 'touch', '2', '0.1', '1', '20', sock], stderr=subprocess.PIPE, text=True)
    saw = Samples(place / 'touch')
    try:
        wait_until(lambda: client.poll() is not None or (place / 'touch').exists() and (place / 'touch').stat().st_size and saw.head()[0] > 500, 'answers')
        return client.poll(), client.poll() and client.stderr.read()
    finally:
        for one in (server, client):
            one.kill()
            one.wait()
        (place / 'touch').unlink()


@check
def noise_is_verified(place, args):
    """Objects come back unchanged; objects of another container are found to be wrong."""
    expect(noise(place, args, 0)[0], None, 'the client')
    code, said = noise(place, args, 1)
    expect(code, 1, 'the client of a wrong container')
    if 'wrong at' not in said:
        raise Failed(said)


@check
def groups_limit_reclaim_and_count(place, args):
    """The small machine: memory in it is counted, can be reclaimed, and a process is killed when there is no room."""
    try:
        groups = Groups()
    except OSError as reason:
        raise Skipped(f'no control groups with memory: {reason}') from reason
    scene = Scene(args, place, groups)
    try:
        groups.no_swap()
        file = place / 'file'
        scene.start('a', 'dd', 'if=/dev/zero', f'of={file}', 'bs=1M', 'count=16', 'conv=fsync').wait()
        had = groups.usage('a')
        groups.reclaim('a', 12 << 20)
        left = groups.usage('a')
        if had < 16 << 20 or had - left < 8 << 20 or groups.usage() < left:
            raise Failed(f'{had} bytes in use, {left} after 12 MiB were reclaimed')
        groups.limit(24 << 20)
        args.divide, args.fill_mibps = 8, 4000
        try:
            scene.add_noise(lambda one: expect(groups.pids(one.group), [one.pid], 'processes of the group'))
            raise Failed('34 MiB fit into 24')
        except Failed as reason:
            if 'ended with -9' not in str(reason):
                raise
        expect(groups.kills(), 1, 'processes ended for want of memory')
    finally:
        scene.close()
        groups.remove()
    expect(groups.top.exists(), False, 'the group is still there')


def cell(place, arm, nr, per_s, p95, broken=False):
    cells = place / 'cells'
    cells.mkdir(exist_ok=True)
    (cells / f'{arm}-{nr}-0.json').write_text(json.dumps({'arm': arm, 'containers': nr, 'round': 0, 'broken': broken, 'seconds': 1,
                                                          'critical': {'per_s': per_s, 'p95_ms': p95}, 'noise': {}}))


@check
def the_verdict_and_what_is_missing(place, args):
    """A ladder is good up to its first bad step; a ladder that failed has no missing steps; one that was killed is continued."""
    for nr in (1, 5, 9, 17):
        cell(place, 'ample', nr, 100, 1.0)
        cell(place, 'ours', nr, 90, 1.1 if nr != 17 else 1.3)
    cell(place, 'swap', 1, 100, 1.0)
    cell(place, 'swap', 5, 84, 1.0)
    cell(place, 'swap', 9, 20, 90.0, broken=True)
    found = report.read(place)
    expect({arm: report.good_until(found[arm], found['ample']) for arm in ('swap', 'ours')}, {'swap': 1, 'ours': 9}, 'good until')
    args.report = place
    steps = [1, 5, 9, 17, 33]
    expect([density.missing(args, 0, arm, steps) for arm in ('ample', 'swap')], [[33], []], 'missing')
    expect(density.missing(args, 1, 'swap', steps), steps, 'missing in another round')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', type=Path, default=Path('build'))
    args = parser.parse_args()
    args.bin = (args.build / 'bench/density').resolve()
    failed = skipped = 0
    for one in CHECKS:
        with tempfile.TemporaryDirectory(prefix='zns-density-check-', dir='/var/tmp') as place:
            try:
                one(Path(place), args)
                print(f'PASS {one.__name__}', flush=True)
            except Skipped as reason:
                skipped += 1
                print(f'SKIP {one.__name__}: {reason}', flush=True)
            except Failed as reason:
                failed += 1
                print(f'FAIL {one.__name__}: {reason}', flush=True)
    print(f'{len(CHECKS) - failed - skipped} passed, {failed} failed, {skipped} skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
