#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
Runs in a guest: one cell of bench-drives. cells.py NAME JSON; the result is written to /results/cell.json.

`slow` in the parameters is the drive's: rates of a real drive are divided by it here. Results are not scaled back.
"""
import json
import os
import struct
import sys
import time
import uuid
import zlib

import load
import scene
from scene import MIB, RESULTS, WORK, Failed, Files, Subject, Zones, run, watch

PAPER = [('Ubuntu', 63), ('Redis', 105), ('Nginx', 133), ('MongoDB', 303), ('MySQL', 447)]      # MB
ZONE, CAP = 100, 500    # MiB/s: the rate that a zone is said to have, that a dump asks for, and that caps it


def say(text):
    print(f'    {text}', flush=True)


def scaled(rate, p):
    """A rate in MiB/s for criu-zns, which takes whole numbers: one below 1/100 of the drive's is rounded up, and only
    decides the number of groups."""
    return max(1, round(rate / min(100, p['slow'])))


def drive(name):
    return os.environ[f'DRIVE_{name}']


# ---- destinations of dumps ----

def mount(kind, device, directory, *options):
    os.makedirs(directory, exist_ok=True)
    run('mount', '-t', kind, *options, device, directory)
    return directory


def zones(p, cap, spec=None):
    device = drive('zones')
    return Zones('zones', device, cap, scaled(ZONE, p), 'i % 32', spec)


def passthrough(p, cap):
    return zones(p, cap, drive('zones').replace('nvme', 'ng'))


def ext4(p, cap, name='ext4'):
    # Nothing is discarded, so the drive stays as full as it was, unless a new drive is wanted.
    discard = 'discard' if name == 'fresh' else 'nodiscard'
    run('mkfs.ext4', '-q', '-F', '-E', f'{discard},lazy_itable_init=0,lazy_journal_init=0', drive(name))
    return Files(name, drive(name), cap, mount('ext4', drive(name), f'/mnt/{name}'))


def fresh(p, cap):
    return ext4(p, cap, 'fresh')


def f2fs(p, cap):
    run('mkfs.f2fs', '-q', '-f', '-t', '0', drive('f2fs'))
    return Files('f2fs', drive('f2fs'), cap, mount('f2fs', drive('f2fs'), '/mnt/f2fs', '-o', 'nodiscard'))


def f2fs_zoned(p, cap):
    """F2FS keeps its metadata on a conventional drive; files go to the zones."""
    run('mkfs.f2fs', '-q', '-f', '-m', '-c', drive('zoned'), drive('meta'))
    return Files('f2fs-zoned', drive('zoned'), cap, mount('f2fs', drive('meta'), '/mnt/zoned'))


def zonefs(p, cap):
    """The first zone needs a superblock, and no package here can make one (linux, fs/zonefs/zonefs.h)."""
    def block(crc):
        return struct.pack('<II64s16sQIII', 0x5a4f4653, crc, b'zones', uuid.UUID(int=7).bytes, 0, 0, 0, 0o640).ljust(4096, b'\0')
    device = drive('zonefs')
    run('blkzone', 'reset', device)
    (WORK / 'super').write_bytes(block(zlib.crc32(block(0)) ^ 0xffffffff))
    run('dd', f'if={WORK}/super', f'of={device}', 'bs=4096', 'count=1', 'oflag=direct', 'conv=notrunc')
    at = mount('zonefs', device, '/mnt/zonefs', '-o', 'errors=repair')
    (WORK / 'map').write_text(' '.join(str((i + 1) % 32) for i in range(len(os.listdir(f'{at}/seq')))))
    return Zones('zonefs', device, cap, scaled(ZONE, p), WORK / 'map', f'zonefs:{at}')


WAYS = {'zones': zones, 'passthrough': passthrough, 'ext4': ext4, 'fresh': fresh, 'f2fs': f2fs, 'f2fs-zoned': f2fs_zoned,
        'zonefs': zonefs}


def ways_of(p, cap=CAP):
    """Dumps with a cap each: by the kernel, if criu's own cap would be no whole number."""
    if cap and p['slow'] > 100:
        scene.Way.io_max, cap = cap * MIB // p['slow'], None
    return {name: WAYS[name](p, scaled(cap, p) if cap else None) for name in p['ways']}


# ---- cells ---------------------------------------------------------------------------------------------

def scaling(p):
    """One dump at a time over 1, 2, 4, 8 groups, without a cap, with the same bytes per group: the rate of each."""
    way, found = zones(p, None), []
    subjects = {n: Subject(f'of{n}', n * p['mib'], n) for n in p['groups']}
    for r in range(p['rounds']):
        for n in p['groups']:
            before = scene.processor()
            got = watch([way.start(subjects[n], n * scaled(ZONE, p), cap=False)])[0]
            if len(got['groups']) != n:
                raise Failed(f'{len(got["groups"])} groups instead of {n}')
            found.append({'round': r, 'n': n, 'rate': got['rate'], 'latency_s': got['latency_s'], 'groups': len(got['groups']),
                          'idle': scene.idle_since(before)})
            say(f'{n} groups: {got["rate"]:.2f} MiB/s, idle {found[-1]["idle"]:.2f}')
            way.clear()
    for s in subjects.values():
        s.kill()
    return {'dumps': found}


def make_five(p):
    return [Subject(name, max(1, round(mb * 1e6 / MIB / p['shrink'])), i + 1) for i, (name, mb) in enumerate(PAPER)]


def each_alone(way, subjects, qos):
    alone, idle = [], []
    for s in subjects:
        before = scene.processor()
        alone += watch([way.start(s, qos)])
        idle.append(scene.idle_since(before))
        say(f'{way.name}, {s.name} alone: {alone[-1]["rate"]:.2f} MiB/s, {alone[-1]["latency_s"]:.1f} s, idle {idle[-1]:.2f}')
    way.clear()
    return {'alone': alone, 'idle_alone': min(idle)}


def all_at_once(way, subjects, qos):
    before = scene.processor()
    together = watch([way.start(s, qos) for s in subjects])
    idle = scene.idle_since(before)
    for t in together:
        say(f'{way.name}, {t["name"]} at once: {t["rate"]:.2f} MiB/s, {t["latency_s"]:.1f} s, idle {idle:.2f}')
    way.clear()
    return {'together': together, 'idle_together': idle}


def five(p):
    """
    The papers' five dumps with a cap each, one at a time and at once. The ways take turns, and so does the order,
    after a first round that is not counted: a used drive changes while it is written.
    """
    ways, subjects = ways_of(p), make_five(p)
    rounds = {name: [] for name in ways}
    for way in ways.values():
        if p.get('warm'):
            all_at_once(way, subjects, scaled(CAP, p))
    before = {name: scene.drive_stats(p.get('drive', {}).get(name, name)) for name in ways}
    cpu = {name: 0.0 for name in ways}
    for r in range(p['rounds']):
        for name in list(ways)[::-1 if r % 2 else 1]:
            used = scene.processor()
            found = {}
            for step in (each_alone, all_at_once)[::-1 if r % 2 else 1]:
                found.update(step(ways[name], subjects, scaled(CAP, p)))
            rounds[name].append(found)
            idle, total = scene.processor()
            cpu[name] += ((total - idle) - (used[1] - used[0])) / os.sysconf('SC_CLK_TCK')
    after = {name: scene.drive_stats(p.get('drive', {}).get(name, name)) for name in ways}
    for s in subjects:
        s.kill()
    # last, since it leaves a drive on which nothing is erased
    most = {name: saturated(way, p) for name, way in ways.items() if p.get('saturate_s') and isinstance(way, scene.Files)}
    return {'ways': {name: {'rounds': rounds[name], 'cpu_s': cpu[name], 'before': before[name], 'after': after[name],
                            'saturated': most.get(name)} for name in ways}}


def saturated(way, p):
    """MiB/s of fio writing as fast as it can, in the second half: in the first half erased blocks may have absorbed it."""
    load.scheduler(way, 'none')
    fio = load.Fio(load.in_files(way, 4, 64), 'write', 1024, depth=4)
    pause(p['saturate_s'], p)
    ios = fio.stop()
    begin, end = ios[len(ios) // 2][0], ios[-1][0]
    rate = (len(ios) - 1 - len(ios) // 2) * fio.bs / MIB / max(1e-3, end - begin)
    say(f'{way.name}: fio writes {rate:.2f} MiB/s at most')
    return rate


def pause(s, p):
    time.sleep(s * p['slow'] / 100)


def together(way, subjects, qos):
    """Dumps at the same time; returns each result in the form of the report."""
    return [{k: d[k] for k in ('name', 'bytes', 'start', 'first', 'end', 'rate', 'latency_s', 'frozen_s')}
            for d in watch([way.start(s, qos) for s in subjects])]


LATE = 'io.latency', 'io.cost', 'io.cost at 90 %'


def p95_alone(way, places, rate, p):
    """p99 latency in s without a scheduler: the settings are told to keep twice that."""
    load.scheduler(way, 'none')
    fio = load.Fio(places, 'write', p['bs_kib'], rate)
    pause(p['alone_s'], p)
    took = sorted(took for _, took in fio.stop())
    return took[int(len(took) * 0.95)]


def beside(p):
    """
    fio without and with a dump beside it, one at a time or the five at once; in files under each of the settings. Then
    the same with nothing beside it. apart: fio has a drive of its own, so it shares only the emulated machine with the
    dumps.
    """
    way, qos = ways_of(p)[p['ways'][0]], scaled(CAP, p)
    subjects = [Subject('beside', p['mib'], 1)] if 'mib' in p else make_five(p)
    nr, rate, found, mine = 5, p['rate'] * MIB // 5 // p['slow'], {}, dict(p)
    plain = isinstance(way, scene.Files)
    apart = p.get('apart')
    places = load.on_another(drive(apart), nr) if apart else load.in_files(way, nr, 16) if plain else load.on_zones(way, nr)
    groups = [way.group(s.name) for s in subjects]
    # only of the five at once; F2FS writes to other places each time
    model = None if 'mib' in p or way.name == 'f2fs' else scene.Requests(apart or way.name, p['slow'])
    for setting in p.get('settings', ['']):
        if not load.built(setting):
            found[setting] = None
            continue
        if setting in LATE and 'late_s' not in mine:
            mine['late_s'] = 2 * p95_alone(way, places, rate, p)
        said = load.protect(way, setting, groups, mine) if setting else {}
        fio = load.Fio(places, 'write', p['bs_kib'], rate)
        pause(4, p)
        begin, before = time.monotonic(), scene.processor()
        pause(p['alone_s'], p)
        quiet, idle, held = time.monotonic(), scene.idle_since(before), load.held_back(way, groups)
        before, dumps = scene.processor(), [d for _ in range(p.get('dumps', 1)) for d in together(way, subjects, qos)]
        busy, held = scene.idle_since(before), [b - a for a, b in zip(held, load.held_back(way, groups))]
        jobs = fio.stop_jobs()
        load.not_filled(jobs, fio.bs, places[0])
        in_drive = model and [model.took(load.on_drive(places), parts) for parts in ([(begin, quiet)], [(d['first'], d['end']) for d in dumps])]
        way.clear()
        alone = together(way, subjects, qos)
        way.clear()
        if setting:
            load.unprotect(way, groups)
        ios = sorted(io for job in jobs for io in job)
        found[setting or way.name] = {
            'alone': [begin, quiet], 'dumps': dumps, 'dumps_alone': alone, 'in_drive': in_drive,
            'ios': [(round(at - begin, 3), round(took, 6)) for at, took in ios], 'begin': begin, 'held_back_s': held,
            'set': said, 'idle_alone': idle, 'idle_beside': busy, 'bs': fio.bs}
        say(f'{setting or way.name}: the largest dump {alone[-1]["rate"]:.2f} MiB/s with nobody beside, {dumps[-1]["rate"]:.2f} beside fio, '
            f'idle {idle:.2f} {busy:.2f}')
    for s in subjects:
        s.kill()
    return {'settings': found}


def kcc(p):
    """Random writes without and with dumps beside them: by size, by rate, by number of dumps. Each point uses fresh zones."""
    way = ways_of(p, None)[p['ways'][0]]
    plain = isinstance(way, scene.Files)
    places = load.in_files(way, 4, 24) if plain else load.on_zones(way, 4)
    if plain:
        load.scheduler(way, 'none')
    subjects = [Subject(f'kcc{i}', p['mib'], i + 1) for i in range(max(n for _, _, n in p['points']))]
    more, found, stats = [] if plain else ['--zns-separate-metadata'], [], scene.drive_stats(way.name)
    model = scene.Requests(way.name, p['slow'])
    for bs, rate, n in p['points']:
        for place in places if not plain else []:
            run('blkzone', 'reset', '-o', place['offset'] >> 9, '-c', 1, way.device)
        each = rate and rate * MIB // len(places) // p['slow']
        # large writes are seconds apart: of all jobs at once, they fell between two dumps
        apart_ms = (bs << 10) * 1000 // each // len(places) if bs > 512 else 0
        fio = load.Fio([{**place, **({'startdelay': f'{i * apart_ms}ms'} if apart_ms else {})} for i, place in enumerate(places)], 'randwrite', bs, each)
        pause(2, p)
        begin = time.monotonic()
        pause(p['alone_s'], p)
        quiet, before, dumps = time.monotonic(), scene.processor(), []
        # a large write is seldom, and a single dump is soon over
        for _ in range(max(1, (4 if bs > 512 else 2) // n)):
            dumps += watch([way.start(s, scaled(CAP, p), cap=False, more=more) for s in subjects[:n]])
        idle = scene.idle_since(before)
        jobs = fio.stop_jobs()
        load.not_filled(jobs, fio.bs, places[0])
        in_drive = [model.took(load.on_drive(places), parts) for parts in ([(begin, quiet)], [(d['first'], d['end']) for d in dumps])]
        way.clear()
        ios, last = sorted(io for job in jobs for io in job), stats
        stats = scene.drive_stats(way.name)
        found.append({'bs_kib': bs, 'rate': rate, 'n': n, 'alone': [begin, quiet], 'begin': begin, 'idle': idle,
                      'in_drive': in_drive,
                      'flushes': [stats['flushes'] - last['flushes'], stats['flush_ns'] - last['flush_ns']],
                      'dumps': [{k: d[k] for k in ('start', 'first', 'end', 'rate', 'latency_s')} for d in dumps],
                      'ios': [(round(at - begin, 3), round(took, 6)) for at, took in ios]})
        say(f'{way.name}, {bs} KiB, rate {rate}, {n} dumps: {len(ios)} I/Os, idle {idle:.2f}')
    for s in subjects:
        s.kill()
    return {'points': found, 'after': stats}


def flowing(dumps):
    """Returns when each of the dumps is writing, or has ended."""
    end = time.monotonic() + scene.LIMIT_S
    while not all(d.poll() or d.first for d in dumps):
        for d in dumps:
            if d.end is None:
                d.sample()
        if time.monotonic() > end:
            raise Failed('a dump does not write')
        time.sleep(scene.SAMPLE_S)


def restores(p):
    """One of the five is restored alone, and while the other four are dumped, which takes longer; its memory is checked each time."""
    ways, found = ways_of(p), []
    for r in range(p['rounds']):
        for name, alloc in p['cases'][::-1 if r % 2 else 1]:
            way = ways[name]
            mine, others = Subject('same0', p['mib'], 1), [Subject(f'same{i}', p['others_mib'], i + 1) for i in range(1, 5)]
            more = ['--zns-alloc', alloc] if name == 'zones' else []
            dump = way.start(mine, scaled(CAP, p), more=more)
            kept, took = watch([dump])[0], {}
            for step in ('alone', 'beside')[::-1 if r % 2 else 1]:
                mine.kill()
                beside, before = [], scene.processor()
                if step == 'beside':
                    beside = [way.start(s, scaled(CAP, p), more=more) for s in others]
                    flowing(beside)
                took[step] = scene.restore(dump)
                took[f'idle {step}'] = scene.idle_since(before)
                took[f'running {step}'] = sum(not d.poll() for d in beside)
                if beside:
                    watch(beside)
                mine.check()
            say(f'{name} {alloc}: restored in {took["alone"]:.1f} s alone, {took["beside"]:.1f} s beside dumps, '
                f'{took["running beside"]} of which still ran')
            found.append({'way': name, 'alloc': alloc, 'bytes': kept['bytes'], **took})
            for s in [mine, *others]:
                s.kill()
            way.clear()
    return {'restores': found, **({'idle_groups': idle_groups(ways['zones'], p)} if p['idle'] else {})}


def idle_groups(way, p):
    """
    Six containers have thirty of the groups, and nothing is written. Which groups a seventh container gets, static and
    dynamic, if the six have them by their dumps, and if they are reserved for normal I/O, which no dump may use.
    """
    keepers, late, found = [Subject(f'keeper{i}', 5, i + 10) for i in range(6)], Subject('late', p['mib'], 20), {}

    def seventh(case, alloc):
        before = scene.processor()
        got = watch([way.start(late, scaled(CAP, p), more=['--zns-alloc', alloc])])[0]
        found[case] = {**{k: got[k] for k in ('rate', 'latency_s', 'groups', 'bytes')}, 'idle': scene.idle_since(before)}
        say(f'six containers hold thirty groups; a seventh, {case}: {len(got["groups"])} groups, {got["rate"]:.2f} MiB/s')
        newest = max(way.ctl('ls')['checkpoints'], key=lambda c: c['created_ns'])
        way.ctl('rm', newest['id'])

    for s in keepers:
        watch([way.start(s, scaled(CAP, p), more=['--zns-alloc', 'static'])])
    for alloc in ('static', 'dynamic'):
        seventh(alloc, alloc)
    way.clear()
    for s in keepers:
        way.ctl('reserve', s.name, '--groups', 5)
    seventh('for normal I/O', 'dynamic')
    for s in keepers:
        way.ctl('release', s.name)
    for s in [*keepers, late]:
        s.kill()
    way.clear()
    return found


def writers(p):
    """
    Five writers start one after another, each with a cap: in zones of their own that none fills, or in parts of a
    conventional drive. Each must have enough to write until the end.
    """
    device, found = drive(p['ways'][0]), {}
    zoned, count = p['ways'][0] != 'ext4', 5
    size = (p['zone_mib'] if zoned else 256) * MIB
    for title, width in p['cases']:
        if zoned:
            run('blkzone', 'reset', device)
        running, begin, before = [], time.monotonic(), scene.processor()
        for i in range(count):
            places = [{'filename': device, 'offset': (i * width + k) * size, 'size': size, **({'zonemode': 'zbd'} if zoned else {})}
                      for k in range(width)]
            running.append(load.Fio(places, 'write', p['bs_kib'], CAP * MIB // width // p['slow']))
            pause(p['gap_s'], p)
        pause(p['gap_s'], p)
        end, idle = time.monotonic(), scene.idle_since(before)
        jobs = [f.stop_jobs() for f in running]
        load.not_filled([j for f in jobs for j in f], p['bs_kib'] << 10, places[0])
        found[title] = {'jobs': [[[round(at - begin, 3) for at, _ in j] for j in f] for f in jobs], 'end': end - begin,
                        'gap': (end - begin) / (count + 1), 'bs': p['bs_kib'] << 10, 'idle': idle}
        say(f'{title}: {[sum(map(len, f)) for f in jobs]} I/Os, idle {idle:.2f}')
    return {'cases': found}


def docker(p):
    import dock     # needs a guest that has Docker
    kind = p['ways'][0]
    daemon = dock.Zoned(drive('zones'), scaled(ZONE, p), scaled(CAP, p)) if kind == 'zones' else dock.Stock(ways_of(p)[kind])
    try:
        found = dock.beside(daemon, p, pause)
    except dock.dkdaemon.Failed as why:
        raise Failed(str(why)) from why
    say(f'{kind}: a checkpoint {found["dumps"][0]["latency_s"]:.1f} s beside fio, {found["latency_alone"]:.1f} s alone')
    return {'settings': {f'docker, {kind}': found}}


CELLS = {'docker': docker, 'writers': writers, 'scaling': scaling, 'five': five, 'beside': beside, 'kcc': kcc,
         'restores': restores}


def main():
    name, p = sys.argv[1], json.loads(sys.argv[2])
    WORK.mkdir(exist_ok=True)
    # The unit is scaled as the sizes are, else small dumps would share a zone (criu-zns(8)).
    Zones.stripe = f'{512 // p.get("shrink", 1)}K'
    begin = time.monotonic()
    try:
        found = CELLS[name](p)
    except Failed as why:
        print(f'FAILED {why}', flush=True)
        return 1
    found['seconds'] = round(time.monotonic() - begin, 1)
    (RESULTS / 'cell.json').write_text(json.dumps(found))
    return 0


if __name__ == '__main__':
    sys.exit(main())
