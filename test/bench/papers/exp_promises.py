# SPDX-License-Identifier: GPL-2.0-only
"""Restores with a promise beside dumps with a promise, and others that want all they can get."""
from exp_isolation import ZONES
from stage import Failed, Stage

COUNT = 5               # numbers of each kind
READ_QOS, WRITE_QOS = 400, 500
DUMPED_TO = 7           # groups that the five dumps leave of 32; they read 2,800 MiB/s
GREEDY_S = 0.02         # s by which the others begin later
SETTLED_S = 0.2         # from then on rates are those of all


def prepare(st, mib):
    """Ten checkpoints on the groups that no promised dump will get: dumps with a promise take no group that is being read."""
    st.reserve('others', 32 - DUMPED_TO)
    for i in range(2 * COUNT):
        st.run([st.dump(f'kept-{i}', mib, 100 * DUMPED_TO, seed=i + 1, alloc='dynamic')])
    st.ctl('release', 'others')
    groups = {g for c in st.ctl('ls')['checkpoints'] for g in c['groups']}
    if len(groups) != DUMPED_TO:
        raise Failed(f'the checkpoints lie on {len(groups)} groups, not on {DUMPED_TO}')


def together(args, promised):
    """Over what was promised: rates of the five restores while all run, from admission to end, rates of the five dumps; those of the
    others, MiB/s."""
    mib = 256 if args.full else 128
    read = {'qos': READ_QOS, 'admission': 'reject'} if promised else {}
    write = {'admission': 'reject'} if promised else {}
    with Stage(args, 'paper-conf', ZONES) as st:
        prepare(st, mib)
        jobs = [st.dump(f'dump-{i}', mib * WRITE_QOS // READ_QOS, WRITE_QOS, seed=20 + i, **write) for i in range(COUNT)]
        jobs += [st.restore(f'kept-{i}', seed=i + 1, sample=10, **read) for i in range(COUNT)]
        jobs += [st.restore(f'kept-{i}', seed=i + 1, sample=10, start_s=GREEDY_S) for i in range(COUNT, 2 * COUNT)]
        jobs += [st.dump(f'greedy-{i}', mib // 2, WRITE_QOS, seed=30 + i, start_s=GREEDY_S) for i in range(COUNT)]
        done = st.run(jobs)
        listed = {c['container']: c['id'] for c in st.ctl('ls')['checkpoints']}

        def of_dump(d):
            return d.bytes / (1 << 20) / (st.ctl('show', listed[d.name])['data_phase_us'] / 1e6)

        dumps, restores, others = done[:COUNT], done[COUNT:2 * COUNT], done[2 * COUNT:]
        end = 0.97 * min(d.end for d in restores)
        if end < SETTLED_S + 0.1:
            raise Failed(f'the restores ended after {end:.2f} s, too early to be rated')
        return ([d.within(SETTLED_S, end) / READ_QOS for d in restores], [d.mibps / READ_QOS for d in restores],
                [of_dump(d) / WRITE_QOS for d in dumps], [d.mibps for d in others[:COUNT]], [of_dump(d) for d in others[COUNT:]])


def promises(args, rep):
    rows = []
    for promised in (True, False):
        read, whole, write, greedy, writers = together(args, promised)
        rows.append(['all of the ten' if promised else 'nobody',
                     *(' '.join(f'{r:.3f}' for r in sorted(v)) for v in (read, whole, write)),
                     *(' '.join(f'{r:.0f}' for r in sorted(v)) for v in (greedy, writers))])
        if promised:
            rep.aim(f'five restores promised {READ_QOS} MiB/s: rate over the promise, the least', min(read), '>=', 0.97)
            rep.aim('the same from admission to end', min(whole), '>=', 0.95)
            rep.aim(f'five dumps promised {WRITE_QOS} MiB/s beside them: rate over the promise, the least', min(write), '>=', 0.97)
        else:
            rep.control('the same restores, nothing promised: rate over 400 MiB/s, the least', min(read), '<', 0.8)
            rep.control('the same dumps, nothing promised: rate over 500 MiB/s, the least', min(write), '<', 0.9)
    rep.table(['promised', 'restores, of 400 MiB/s', 'the same, from admission to end', 'dumps, of 500 MiB/s', 'other restores, MiB/s',
               'other dumps, MiB/s'], rows)
    rep.text(f'All checkpoints that are restored lie on the {DUMPED_TO} groups that five dumps of {WRITE_QOS} MiB/s leave. {GREEDY_S} s after '
             f'the ten, five more restores from the same groups and five more dumps begin, to which nothing is promised. A restore\'s rate '
             f'is that of memory that arrived from {SETTLED_S} s on while all five ran; a dump\'s is that of its whole data phase.')
