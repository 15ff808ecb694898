#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
hibernate.py list | run NAME... | run -a [--keep]: containers of Docker whose memory is on zones (label zns.memory), as docker.py.
"""
import subprocess
import sys
from pathlib import Path

from dkcase import case, contexts, main, remove
from dkdaemon import until, want
from dkwork import Memory


def pager(d, name):
    for pid in d.pids_of('zns-mem'):
        if f'--name\0{name}\0'.encode() in Path(f'/proc/{pid}/cmdline').read_bytes():
            return pid
    return None


def gone(d, name):
    until('the end of the context', lambda: name not in contexts(d))
    # the broker resets them when it notices that the pager has ended, perhaps after we did
    until('no zone of it', lambda: not any(f'memory:{name}' in (z['owner'] or '') for z in d.zjson('zones')['zones']))


@case
def budget(d):
    """zns.memory=SIZE: the container stays below it, by a pager outside its cgroups; its memory is complete; the
    context ends with the container."""
    w = Memory(d, 'small', options=['--label', 'zns.memory=24M', '--label', 'zns.memory-predict=off', '-m', '256m'])
    until('the budget', lambda: contexts(d).get('small', {}).get('resident', 1 << 40) <= 24 << 20)
    groups = Path(f'/proc/{pager(d, "small")}/cgroup').read_text()
    want('no prediction', b'--no-predict' in Path(f'/proc/{pager(d, "small")}/cmdline').read_bytes())
    want('of no container', d.id('small') not in groups, groups)
    have = w.digest()
    want('the same again', have == w.digest())
    d.docker('restart', '-t', '0', 'small')
    until('extended anew', lambda: contexts(d).get('small'))
    d.docker('kill', 'small')
    gone(d, 'small')
    remove(d, 'small')


@case
def by_itself(d):
    """hibernate:2s: the container hibernates, a touch wakes it, and its memory is unchanged; also when a rule asks
    for it."""
    rules = d.dir / 'conf' / 'docker.rules'
    rules.write_text('name=ruled* memory=hibernate:2s\n')
    try:
        for name, options in (('sleeper', ['--label', 'zns.memory=hibernate:2s']), ('ruled', [])):
            w = Memory(d, name, options=options)
            before = w.digest()
            until('it hibernates', lambda n=name: contexts(d).get(n, {}).get('state') == 'hibernated')
            want('on zones', contexts(d)[name]['evicted'] > 60 << 20, contexts(d)[name])
            want('as it was', w.digest() == before)
            until('again', lambda n=name: contexts(d)[n]['wakes'] and contexts(d)[n]['state'] == 'hibernated')
            d.docker('stop', '-t', '0', name)
            gone(d, name)
            remove(d, name)
    finally:
        rules.unlink()


@case
def restored(d):
    """docker start --checkpoint: the container is attached to a pager again, and its memory is complete."""
    w = Memory(d, 'back', options=['--label', 'zns.memory=24M'])
    until('extended', lambda: contexts(d).get('back'))
    w.before = w.digest()
    for name, first in (('one', 'detach'), ('two', 'hibernate'), ('three', 'status')):
        d.zctl('memory', first, 'back')
        d.docker('checkpoint', 'create', 'back', name)
        d.docker('start', '--checkpoint', name, 'back')
        until('the budget', lambda: contexts(d).get('back', {}).get('resident', 1 << 40) <= 24 << 20)
        w.verify()
    remove(d, 'back')
    gone(d, 'back')


@case
def checkpointed(d):
    """With 90 % of its memory on zones, docker checkpoint writes at most 15 % of it, by the catalogue and by the
    write pointers; the restore has everything."""
    total = 512 << 20
    w = Memory(d, 'much', mib=total >> 20, options=['--label', 'zns.memory=44M', '--label', 'zns.memory-predict=off'])
    w.before = w.digest()
    until('nine tenths on zones', lambda: contexts(d)['much']['evicted'] >= 0.9 * total and contexts(d)['much']['resident'] <= 0.1 * total)
    for name, options in (('stays', ['--leave-running']), ('ends', [])):
        had = {z['index']: z['wp'] for z in d.zjson('zones')['zones']}
        d.docker('checkpoint', 'create', *options, 'much', name)
        c = d.checkpoints('much')[-1]
        wrote = c['bytes'] - c['memory_bytes']
        moved = sum(max(0, z['wp'] - had[z['index']]) for z in d.zjson('zones')['zones'])
        print(f'    {name}: {c["bytes"] >> 20} MiB, of which {wrote >> 20} written ({100 * wrote / total:.1f} %); the write pointers moved by '
              f'{moved >> 20}', flush=True)
        want('named, not written', c['memory_bytes'] >= 0.85 * total, c)
        want('15 %', wrote <= 0.15 * total and moved <= 0.15 * total, wrote, moved)
        until('out again', lambda: not options or contexts(d)['much']['resident'] <= 0.1 * total)
    d.docker('start', '--checkpoint', 'ends', 'much')
    w.verify()
    remove(d, 'much')
    gone(d, 'much')


@case
def divided(d):
    """zns.memory=auto: two containers divide memory-dram by their use, none gets less than its minimum; a minimum
    above the ceiling is refused."""
    conf, rules, tenants = (d.dir / 'conf' / name for name in ('zns.conf', 'docker.rules', 'tenants.conf'))
    old = conf.read_text() if conf.exists() else ''
    try:
        conf.write_text(old + 'memory-dram = 72M\n')
        rules.write_text('name=auto-* memory-min=20M\n')
        tenants.write_text('name auto-* max-memory-min=24M\n')
        r = d.docker('run', '-d', '--runtime', 'zns', '--network', 'none', '--label', 'zns.memory=auto', '--label', 'zns.memory-min=25M',
                     '--name', 'auto-much', 'work', 'true', check=False)
        d.docker('rm', '-f', 'auto-much')
        want('refused', r.returncode and 'the ceiling of `name auto-*` is 24 MiB' in r.stderr and len(r.stderr.strip().splitlines()) == 1, r.stderr)
        one = Memory(d, 'auto-one', options=['--label', 'zns.memory=auto', '--label', 'zns.memory-min=24M'])
        two = Memory(d, 'auto-two', options=['--label', 'zns.memory=auto'])
        digests = [w.digest() for w in (one, two)]
        both = until('both', lambda: len(now := contexts(d)) == 2 and now)
        want('minimum', [both[n]['auto_min'] >> 20 for n in ('auto-one', 'auto-two')] == [24, 20], both)
        until('the division', lambda: sum(c['resident'] for c in contexts(d).values()) <= 80 << 20)
        now = contexts(d)
        want('part of all', all(c['auto_total'] == 72 << 20 and c['dram'] >= c['auto_min'] for c in now.values()), now)
        want('as they were', [w.digest() for w in (one, two)] == digests)
    finally:
        conf.write_text(old)
        rules.unlink()
        tenants.unlink()
        remove(d, 'auto-one', 'auto-two')
    gone(d, 'auto-one')


@case
def refused(d):
    """Impossible settings are refused by docker run, in one line."""
    rules = d.dir / 'conf' / 'docker.rules'
    rules.write_text('name=never-* memory=never\n')
    long = '1' * 300
    try:
        for name, value, more, line in (
                ('bad', 'fast', [], 'label zns.memory: "fast" is not known: a size of 1M at least'), ('bad', '0%', [], 'is not known'),
                ('bad', '101%', [], 'is not known'), ('bad', '4K', [], 'is not known'), ('bad', 'hibernate:', [], 'is not known'),
                ('bad', 'hibernate:0', [], 'is not known'), ('bad', 'hibernate:10m,', [], 'is not known'),
                ('bad', '1M,2M', [], 'is not known'), ('bad', '-1M', [], 'is not known'), ('bad', '', [], 'a value of 1 to 255'),
                ('bad', long, [], 'a value of 1 to 255'), ('bad', '5M\nx', [], 'not allowed'),
                ('bad', '512M', ['-m', '128m'], 'above the container\'s memory limit'),
                ('never-1', '64M', [], 'docker.rules:1: this container may not have zns.memory'),
                ('never-2', 'hibernate:1s', [], 'docker.rules:1: this container may not')):
            r = d.docker('run', '-d', '--runtime', 'zns', '--network', 'none', '--label', f'zns.memory={value}', *more, '--name', name, 'work',
                         'true', check=False)
            d.docker('rm', '-f', name)
            want('refused', r.returncode and line in r.stderr and len(r.stderr.strip().splitlines()) == 1, value, r.stderr)
        d.run('never-3', 'sleep', '1000', options=['--label', 'zns.memory=no'])
        want('no context', 'never-3' not in contexts(d))
        remove(d, 'never-3')
        rules.write_text('name=x* memory=much\n')
        d.run('other', 'sleep', '1000', options=['--label', 'zns.qos=100'])
        remove(d, 'other')
    finally:
        rules.unlink()


@case
def without(d):
    """A container that cannot be attached runs without a pager; `znsctl memory status` says why, until the container
    is removed."""
    other = subprocess.Popen(['sleep', '1000'])
    try:
        d.zctl('memory', 'attach', other.pid, '--dram', '16M', '--name', 'double')
        d.run('double', 'sleep', '1000', options=['--label', 'zns.memory=16M'])
        note = until('a note', lambda: d.zjson('memory', 'status')['not_extended'])
        want('why', note[0]['name'] == 'double' and 'a memory context of this name is kept already' in note[0]['reason'], note)
        want('a line', 'not attached' in d.zctl('memory', 'status').stdout)
        want('it runs', d.running('double'))
        remove(d, 'double')
        want('no note', not d.zjson('memory', 'status')['not_extended'])
    finally:
        other.kill()
        other.wait()
    gone(d, 'double')


@case
def short(d):
    """Containers that exit at once: nothing waits for them, and no file or process is left."""
    for _ in range(5):
        d.docker('run', '--rm', '--runtime', 'zns', '--network', 'none', '--label', 'zns.memory=hibernate:1s', '--name', 'quick', 'work', 'true')
    gone(d, 'quick')
    until('no pager', lambda: not d.pids_of('zns-mem'))
    want('no note', not d.zjson('memory', 'status')['not_extended'], d.zjson('memory', 'status')['not_extended'])


if __name__ == '__main__':
    sys.exit(main(__doc__))
