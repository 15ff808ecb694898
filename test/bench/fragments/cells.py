#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
In a guest: one cell of bench-fragmentation. cells.py NAME JSON; the result goes to /results/cell.json.

slow in the parameters is the drive's. What comes out is not scaled back.
"""
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'drives'))
import layout  # noqa: E402
import load  # noqa: E402
import scene  # noqa: E402
from layout import KIB  # noqa: E402
from scene import FIO, MIB, RESULTS, WORK, Failed, Group, run  # noqa: E402

DRIVE = os.environ.get('DRIVE_frag')
AT = Path('/mnt/frag')
PAGE = 4 * KIB


def say(text):
    print(f'    {text}', flush=True)


class Place:
    """The mounted file system, as load.coefficients() wants it. number: of the device, as io.stat has it."""
    at, device = AT, DRIVE

    def __init__(self, kind='f2fs'):
        make = {'f2fs': ['mkfs.f2fs', '-q', '-f', '-t', '0'], 'ext4': ['mkfs.ext4', '-q', '-F', '-E', 'nodiscard'],
                'btrfs': ['mkfs.btrfs', '-q', '-f', '-K', '-m', 'single', '-d', 'single']}[kind]
        run(*make, DRIVE)
        AT.mkdir(parents=True, exist_ok=True)
        WORK.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.mount()
        if kind == 'ext4':      # else it puts blocks aside for each file, and appends in turns would not lie in turns
            Path(f'/sys/fs/ext4/{Path(DRIVE).name}/mb_stream_req').write_text('1000000')
        self.number = Path(f'/sys/class/block/{Path(DRIVE).name}/dev').read_text().strip()

    def mount(self):
        run('mount', '-t', self.kind, '-o', 'nodiscard,noatime', DRIVE, AT)

    def forget(self):
        """The control group to which a file's writes are charged: the one that made it dirty first, as long as the kernel keeps the inode."""
        run('umount', AT)
        self.mount()


def checked(path, fragments, distance):
    """Checks by FIEMAP a file that must have this many fragments of one page, whose beginnings are this far apart."""
    found = layout.described(path)
    apart = dict(found['apart']).get(distance, 0)
    if distance != PAGE and min(found['pieces'], apart) < 0.9 * fragments:
        raise Failed(f'{path.name}: {found} instead of {fragments} pieces, {distance} apart')
    return found


def fragmented(name, size, distance, keep_other=True, content=None):
    """A file with fragments of one page. The data between them are kept, or the next file would fill the gaps."""
    path = AT / name
    layout.interleave(path, AT / f'{name}.between', size, PAGE, distance, content)
    found = checked(path, size // PAGE, distance)
    if not keep_other and distance != PAGE:
        os.unlink(AT / f'{name}.between')
    return path, found


# ---- what fragments cost -------------------------------------------------------------------------------

def distance(p):
    """Files with fragments of one page, one file for each distance: the rate of sequential reads of 128 KiB."""
    Place()
    found = []
    for kib in p['distances']:
        path, laid = fragmented(f'd{kib}', p['kib'] * KIB, kib * KIB)
        before = scene.processor()
        rate, nr = layout.read_for(path, 128 * KIB, p['seconds'])
        found.append({'kib': kib, 'rate': rate, 'reads': nr, 'layout': laid, 'idle': scene.idle_since(before)})
        say(f'{kib} KiB apart: {rate:.3f} MiB/s, {laid["pieces"]} pieces, idle {found[-1]["idle"]:.2f}')
        for f in AT.glob(f'd{kib}*'):
            f.unlink()
    return {'points': found}


def sizes(p):
    """A whole file and a fragmented one, sequential and random, by I/O size."""
    Place()
    files = {'whole': fragmented('whole', p['kib'] * KIB, PAGE), 'fragmented': fragmented('pieces', p['kib'] * KIB, 32 * KIB)}
    found = []
    for name, (path, _) in files.items():
        for order in ('sequential', 'random'):
            for bs in p['sizes']:
                before = scene.processor()
                rate, nr = layout.read_for(path, bs * KIB, p['seconds'], random.Random(bs) if order == 'random' else None)
                found.append({'file': name, 'order': order, 'bs': bs, 'rate': rate, 'reads': nr, 'idle': scene.idle_since(before)})
                say(f'{name}, {order}, {bs} KiB: {rate:.3f} MiB/s, idle {found[-1]["idle"]:.2f}')
    return {'points': found, 'layout': {name: laid for name, (_, laid) in files.items()}}


# ---- two control groups --------------------------------------------------------------------------------

class Beside:
    """A program in a group that reads a file until it is stopped."""

    def __init__(self, group, command):
        self.name, self.path = Path(command[0]).name, WORK / f'reader.{time.monotonic_ns()}'
        self.out = open(self.path, 'wb')
        self.proc = group.popen(command, stdout=self.out, stderr=self.out, cwd=WORK)

    def stop(self):
        """Returns its output."""
        self.proc.send_signal(signal.SIGINT)
        try:
            self.proc.wait(120)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise Failed(f'{self.name} does not end') from None
        self.out.close()
        return self.path.read_text()


def fio(group, path, depth, rw='read', bs='128k'):
    """O_DIRECT reads of one file."""
    return Beside(group, [FIO, '--eta=never', '--name=reader', f'--filename={path}', f'--rw={rw}', f'--bs={bs}', '--direct=1',
                          '--ioengine=libaio', f'--iodepth={depth}', '--time_based', '--runtime=3600'])


def select(group, path):
    """SQLite reads a whole table, again and again (scan_table.py)."""
    return Beside(group, [sys.executable, Path(__file__).with_name('scan_table.py'), path])


def of_group(group, number, what):
    for line in (group.path / 'io.stat').read_text().splitlines():
        words = line.split()
        if words and words[0] == number:
            return int(dict(w.split('=') for w in words[1:] if '=' in w).get(what, 0))
    return 0


def control(place, name, vrate):
    """BFQ's times are multiplied by some tens: the drive is slower by more. io.cost's model is measured."""
    load.scheduler(place, 'bfq' if name == 'bfq' else 'none')
    if name == 'bfq':
        at = Path(f'/sys/block/{Path(DRIVE).name}/queue/iosched')
        said = {'low_latency': 0, 'max_budget': 2048, 'timeout_sync': 5000, 'slice_idle': 200}
        for key, value in said.items():
            (at / key).write_text(str(value))
        return said
    run('dd', 'if=/dev/urandom', f'of={AT}/normal-io.0', 'bs=1M', 'count=16', 'oflag=direct')
    model = load.coefficients(place)
    root = Group('.')
    root.set('io.cost.model', f'{place.number} ctrl=user model=linear ' + ' '.join(f'{k}={v}' for k, v in model.items()))
    # A model above the drive holds nobody back: 20 % are enough for 1:1. So its rate is pinned somewhat below, whatever latencies
    # are. They are the period's length: of 0.1 s. What groups save up in a longer one takes seconds to be used up.
    root.set('io.cost.qos', f'{place.number} enable=1 ctrl=user rpct=0 rlat=50000 wpct=0 wlat=50000 min={vrate} max={vrate}')
    Path('/sys/module/blk_cgroup/parameters/blkcg_debug_stats').write_text('Y')     # cost.wait
    return {**model, 'vrate': vrate}


def phase(name, place, groups, readers, seconds, during=None):
    """Bytes of each group over time, once a second, while these readers run. The first quarter does not count for the rate."""
    running = [start(*args) for start, *args in readers]
    waited = [of_group(g, place.number, 'cost.wait') for g in groups]
    begin, series, began = time.monotonic(), [], None
    while time.monotonic() - begin < seconds or (during and began and began['proc'].poll() is None):
        now = time.monotonic() - begin
        series.append((round(now, 2), [of_group(g, place.number, 'rbytes') for g in groups]))
        if during and not began and now >= seconds / 3:
            began = {'at': now, 'proc': during()}
        if now > seconds + 600:
            os.killpg(began['proc'].pid, signal.SIGKILL)
            raise Failed(f'{name}: what ran beside does not end')
        time.sleep(1)
    said = [r.stop() for r in running]
    first = next(s for s in series if s[0] >= seconds / 4)
    took = series[-1][0] - first[0]
    rates = [(b - a) / MIB / took for a, b in zip(first[1], series[-1][1])]
    if began and began['proc'].returncode:
        raise Failed(f'{name}: what ran beside: exit {began["proc"].returncode}')
    waited = [(of_group(g, place.number, 'cost.wait') - w) / 1e6 for g, w in zip(groups, waited)]
    say(f'{name}: {", ".join(f"{r:.3f}" for r in rates)} MiB/s; held back {", ".join(f"{w:.1f}" for w in waited)} s')
    return {'name': name, 'series': series, 'rates': rates, 'held_back_s': waited, 'said': said, **({'began': began['at'], 'ended': series[-1][0]} if began else {})}


def timeline(p):
    """P1 to P6 of the paper; then P5 again, with a defragmentation that begins during it; then P5 once more."""
    place = Place()
    size = p['kib'] * KIB
    whole1, whole2 = (fragmented(n, size, PAGE)[0] for n in ('whole1', 'whole2'))
    pieces, before = fragmented('pieces', size, 32 * KIB)
    place.forget()
    said = control(place, p['control'], p['vrate'])
    weight = 'io.bfq.weight' if p['control'] == 'bfq' else 'io.weight'
    one, two, mover = groups = [Group('grp1'), Group('grp2'), Group('mover')]
    for g in groups:
        g.set(weight, '100')
    payer = {'owner': one, 'own': mover}[p['charged']]
    wrote = [of_group(g, place.number, 'wbytes') for g in groups]

    def reads(group, path):
        return fio, group, path, p['depth']

    def defragment():
        return payer.popen(['sh', '-c', f'f2fs_io defrag_file 0 {size} {pieces} && sync {pieces}'])

    found = []
    for name, first, double, second in (('P1', None, 0, 1), ('P2', whole1, 0, 1), ('P3', whole1, 1, 1), ('P4', pieces, 0, 1),
                                        ('P5', pieces, 1, 1), ('P6', pieces, 0, 0), ('move', pieces, 1, 1), ('after', pieces, 1, 1)):
        one.set(weight, '200' if double else '100')
        readers = ([reads(one, first)] if first else []) + ([reads(two, whole2)] if second else [])
        found.append(phase(name, place, groups, readers, p['seconds'], defragment if name == 'move' else None))
    after = layout.described(pieces)
    paid = [of_group(g, place.number, 'wbytes') - w for g, w in zip(groups, wrote)]
    return {'phases': found, 'said': said, 'before': before, 'after': after, 'written': paid}


# ---- a database beside fio --------------------------------------------------------------------------------

def table(kib):
    """Makes a database of about that size with one table of rows only; returns its bytes."""
    path = WORK / 'table.db'
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.execute(f'PRAGMA page_size={PAGE}')
    db.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, a BLOB)')
    db.executemany('INSERT INTO t VALUES(?, randomblob(900))', ((i,) for i in range(kib * KIB // PAGE * 4)))
    db.commit()
    db.close()
    return path.read_bytes()


def copied(path, nr):
    """A copy of the table, since a second SELECT would find what the first has read in memory."""
    to = path.with_name(f'{path.name}.{nr}')
    if not to.exists():
        run('dd', f'if={path}', f'of={to}', 'bs=1M', 'iflag=direct', 'oflag=direct')
    return to


def sqlite(p):
    """
    SQLite's SELECT of a table that is not in memory beside random reads of 64 KiB: by weight, before and after defragmentation of one of
    the two files. As in the paper it is fio's ('whose' is 'fio'), and the table is whole.
    """
    place = Place()
    content, fios = table(p['kib']), p['whose'] == 'fio'
    scanned, before = fragmented('table', len(content), PAGE if fios else 32 * KIB, content=content)
    read, other_before = fragmented('other', p['other_kib'] * KIB, 32 * KIB if fios else PAGE)
    moved, size = (read, p['other_kib'] * KIB) if fios else (scanned, len(content))
    before = other_before if fios else before
    place.forget()
    said = control(place, p['control'], p['vrate'])
    weight = 'io.bfq.weight' if p['control'] == 'bfq' else 'io.weight'
    groups = base, other = [Group('sqlite'), Group('fio')]
    other.set(weight, '100')
    found = []

    def beside(state, ours, n, nr_selects):
        """One phase: these readers of the table, the first so many of them by SELECT, and fio if there is a weight."""
        base.set(weight, str(n or 100))
        readers = ours + ([(fio, other, read, p['depth'], 'randread', '64k')] if n else [])
        got = phase(f'{state}, {n or "alone"}', place, groups, readers, p['seconds'])
        selects = [json.loads(line) for said in got['said'][:nr_selects] for line in said.splitlines()]
        del got['said']
        if any(s['rows'] != p['kib'] * KIB // PAGE * 4 for s in selects):
            raise Failed(f'SELECT counted {selects} rows')
        found.append({**got, 'state': state, 'weight': n, 'selects_s': [s['took_s'] for s in selects]})

    for state in ('fragmented', 'whole'):
        if state == 'whole':
            run('f2fs_io', 'defrag_file', 0, size, moved)
            run('sync', moved)
        for n in (None, *p['weights']):
            beside(state, [(select, base, scanned)], n, 1)
    # Is SQLite the cause, or that it has one read-ahead under way at a time? Tests several SQLites, and another program with the same
    # pattern.
    for n in () if fios else (None, *p['weights']):
        beside('four', [(select, base, copied(scanned, i)) for i in range(4)], n, 4)
        beside('one', [(fio, base, scanned, 1)], n, 0)
    return {'phases': found, 'said': said, 'before': before, 'after': layout.described(moved)}


# ---- moving a whole file, or only what is slow -----------------------------------------------------------

def mixed(name, size):
    """Three quarters of a file in one piece; of its last quarter, fragments that collide: its layout, and [(offset, length)] of these."""
    path, quarter = AT / name, size // 4
    layout.interleave(path, AT / f'{name}.between', quarter, PAGE, 32 * KIB)
    fd, data = os.open(path, os.O_WRONLY | os.O_DIRECT), layout.buffer(128 * KIB)
    for at in range(quarter, size, 128 * KIB):
        layout.append(fd, data, at)
    os.fsync(fd)
    os.close(fd)
    return path, checked(path, quarter // PAGE, 32 * KIB), [(0, quarter)]


def move(p):
    """How much the file system's own tool moves, and which rate that gives: for the whole file, and for the colliding ranges only."""
    Place(p['kind'])
    size, found = p['kib'] * KIB, []
    for how in p['how']:
        path, laid, ranges = mixed(how, size)
        before = layout.read_for(path, 128 * KIB, p['seconds'])[0]
        run('sync', '-f', AT)
        wrote, begin = scene.drive_stats('frag')['host_written'], time.monotonic()
        if p['kind'] == 'ext4':
            run('e4defrag', path)
        for at, length in [] if p['kind'] == 'ext4' else [(0, size)] if how == 'all' else ranges:
            if p['kind'] == 'btrfs':
                run('btrfs', 'filesystem', 'defragment', '-f', '-s', at, '-l', length, path)
            else:
                run('f2fs_io', 'defrag_file', at, length, path)
        run('sync', '-f', AT)
        took = time.monotonic() - begin
        moved = scene.drive_stats('frag')['host_written'] - wrote
        found.append({'how': how, 'size': size, 'moved': moved, 'took_s': took, 'before': before, 'layout': laid,
                      'after': layout.read_for(path, 128 * KIB, p['seconds'])[0], 'then': layout.described(path)})
        say(f'{p["kind"]}, {how}: {moved / MIB:.1f} of {size / MIB:.0f} MiB written, {before:.3f} to {found[-1]["after"]:.3f} MiB/s, '
            f'{laid["pieces"]} to {found[-1]["then"]["pieces"]} pieces')
    return {'moves': found}


CELLS = {'distance': distance, 'sizes': sizes, 'timeline': timeline, 'sqlite': sqlite, 'move': move}


def main():
    name, params = sys.argv[1], json.loads(sys.argv[2])
    begin = time.monotonic()
    try:
        found = CELLS[name](params)
    except Failed as why:
        print(f'FAILED: {why}', file=sys.stderr, flush=True)
        return 1
    (RESULTS / 'cell.json').write_text(json.dumps({**found, 'guest_s': round(time.monotonic() - begin, 1)}) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
