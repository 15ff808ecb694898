# SPDX-License-Identifier: GPL-2.0-only
"""A dump while zones are compacted: what it was promised, and what it gets."""
from exp_dumps import rated
from stage import Failed, Stage

QOS = 500
OLD = 4             # containers with a little in many zones


def stage(args):
    """Partly filled zones of four containers on a die or two each; one of them dumps again."""
    st = Stage(args, 'paper-conf', ['--zones', '512', '--zone-size', '64M', '--zone-capacity', '64M'])
    for c in range(OLD):
        st.run([st.dump(f'old-{c}', 9, 100, to=f'old-{c}-{n}', seed=n + 1) for n in range(4)])
    return st


def beside(args, *options):
    with stage(args) as st:
        mib = 512 if args.full else 256      # must last as long as the compaction, or the control shows nothing
        alone = rated(st, st.run([st.dump('old-0', mib, QOS, to='alone', seed=5)]))[0]
        st.ctl('rm', *[c['id'] for c in st.ctl('ls')['checkpoints'] if c['bytes'] > 100 << 20])
        both = st.run([st.dump('old-0', mib, QOS, to='beside', seed=5, ), st.compact(*options)])
        rated(st, both[:1])
        bad = st.ctl('verify', '--all')['damaged']
        if bad or not both[1]['moved_checkpoints']:
            raise Failed(f'nothing was compacted, or something is damaged: {both[1]} {bad}')
        return alone, both[0], both[1]


def compaction(args, rep):
    """The dump's container has data to be moved too, on the very groups that it writes."""
    rows, ratio = [], {}
    for title, options in (('gives way', ()), ('does not: control', ('--no-wait',))):
        alone, dump, moved = beside(args, *options)
        ratio[title] = dump.rate / alone.rate
        rows.append([title, f'{alone.rate:.1f}', f'{dump.rate:.1f}', f'{ratio[title] * 100:.1f} %',
                     f'{dump.rate / QOS:.3f}', f'{dump.latency / alone.latency:.3f}', moved['freed_zones'],
                     f'{moved["moved_bytes"] / (1 << 20):.0f}', f'{moved["waited_s"]:.2f}'])
        if not options:
            rep.aim('a dump beside compaction: bandwidth of its QoS', dump.rate / QOS, '>=', 0.98)
            rep.aim('a dump beside compaction: bandwidth of alone', ratio[title], '>=', 0.98)
            rep.aim('compaction beside a dump: zones won', moved['freed_zones'], '>=', 1)
        else:
            rep.control('a dump beside compaction that does not wait: bandwidth of alone', ratio[title], '<', 0.95)
    rep.table(['compaction', 'dump alone, MiB/s', 'beside it, MiB/s', 'of alone', 'of its QoS', 'latency ratio', 'zones won',
               'MiB moved', 'waited, s'], rows)
    rep.text(f'A dump of {QOS} MiB/s, five groups, begins together with `znsctl compact` on a device with {OLD} containers '
             'that have little in each of their zones; one of them is the container that dumps.')
