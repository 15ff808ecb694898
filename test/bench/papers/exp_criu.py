# SPDX-License-Identifier: GPL-2.0-only
"""criu itself, in wall time: the device is made slow enough for this machine to follow it."""
import os
import signal
import statistics
import subprocess
import time

from stage import MIB, Failed, Stage
from subject import Process

SCALE = 10
NAMES = {'zns': 'ZNS', 'conventional': 'one domain'}
# One domain of 32 x 3 MiB/s: a tenth of the control's rate, without its garbage collection.
DEVICE = {'zns': ('paper-conf', ['--die-write-bw', '10', '--die-read-bw', '40', '--channel-bw', '80']),
          'conventional': ('conventional', ['--die-write-bw', '3', '--die-read-bw', '3', '--channel-bw', '80'])}


class Subject(Process):
    failed = Failed

    def __init__(self, st, name, mib, seed):
        self.st = st
        super().__init__(st.bench / 'subject', st.dir, name, mib, seed)


def criu(st, action, images, *options):
    command = [st.criu, action, '--no-default-config', '-D', images, '-W', images, '-o', 'criu.log', *options]
    return subprocess.Popen([str(c) for c in command], env=st.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def finish(procs):
    """Seconds from now until each ended."""
    start, took = time.monotonic(), {}
    while len(took) < len(procs):
        for name, (p, images) in procs.items():
            if name not in took and p.poll() is not None:
                took[name] = time.monotonic() - start
                if p.returncode:
                    log = (images / 'criu.log').read_text(errors='replace')
                    errors = [line for line in log.splitlines() if 'Error' in line]
                    raise Failed(f'criu on {name}: exit {p.returncode}: {" | ".join(errors[-2:])}')
        time.sleep(0.002)
    return took


def dumps(st, subjects, tag):
    procs = {}
    for s in subjects:
        images = st.dir / f'{tag}-{s.name}'
        images.mkdir()
        procs[s.name] = criu(st, 'dump', images, '-t', s.pid, '--leave-running', '--zns-live=no', '--zns-qos', 500 // SCALE,
                             '--zns-container', s.name), images
    took = finish(procs)
    rate = {}
    for name in procs:      # a checkpoint's own record: bytes over its data phase
        newest = max((c for c in st.ctl('ls')['checkpoints'] if c['container'] == name), key=lambda c: c['created_ns'])
        rate[name] = newest['bytes'] / MIB / (st.ctl('show', newest['id'])['data_phase_us'] / 1e6)
    return took, rate


def restore_all(st, subjects, tag):
    for s in subjects:
        s.kill()
    procs = {s.name: (criu(st, 'restore', st.dir / f'{tag}-{s.name}', '-d', '--pidfile', st.dir / f'{s.name}.pid'),
                      st.dir / f'{tag}-{s.name}') for s in subjects}
    took = finish(procs)
    for s in subjects:
        os.kill(s.pid, signal.SIGUSR1)
        s.expect('same')
        os.kill(s.pid, signal.SIGKILL)
    return took


def one_kind(args, kind, mib, count, runs):
    profile, options = DEVICE[kind]
    seen = {'alone': [], 'together': [], 'alone rate': [], 'together rate': [], 'restore': []}
    with Stage(args, profile, ['--zones', '128', '--sparse', *options], wall=True) as st:
        subjects = []
        try:
            subjects = [Subject(st, f'c{i}', mib, i + 1) for i in range(count)]
            for r in range(runs):
                for s in subjects:
                    took, rate = dumps(st, [s], f'a{r}')
                    seen['alone'].append(took[s.name])
                    seen['alone rate'].append(rate[s.name])
                took, rate = dumps(st, subjects, f't{r}')
                seen['together'] += took.values()
                seen['together rate'] += rate.values()
                for c in sorted(st.ctl('ls')['checkpoints'], key=lambda c: c['created_ns'])[:-count]:
                    st.ctl('rm', c['id'])
            seen['restore'] = list(restore_all(st, subjects, f't{runs - 1}').values())
        finally:
            for s in subjects:
                s.kill()
    return {k: statistics.median(v) for k, v in seen.items()}


def wall(args, rep):
    """`criu dump --zns-qos` of real processes, one at a time and at once."""
    mib, count, runs = (96, 4, 3) if args.full else (24, 2, 1)
    rows = []
    for kind in DEVICE:
        got = one_kind(args, kind, mib, count, runs)
        ratio = got['together rate'] / got['alone rate']
        rows.append([NAMES[kind], f"{got['alone']:.2f}", f"{got['together']:.2f}", f"{got['alone rate']:.1f}",
                     f"{got['together rate']:.1f}", f'{ratio * 100:.1f} %', f"{got['restore']:.2f}"])
        if kind == 'zns':
            rep.aim('criu, wall time: bandwidth at once over alone (other work on this machine counts)', ratio,
                    '>=', 0.9)
        else:
            rep.control('criu, wall time, one domain: bandwidth at once over alone', ratio, '<', 0.8)
    rep.text(f'All bandwidths divided by {SCALE}: a zone writes {100 // SCALE} MiB/s, a dump asks for {500 // SCALE}. '
             f'{count} processes of {mib} MiB, dumped by `criu dump --leave-running --zns-live=no`, one after another and at once, '
             f'{runs} rounds, medians; then all restored at once and their memory checked. The data phase is what the '
             'checkpoint\'s record says.')
    rep.table(['', 'dump alone, s', 'at once, s', 'data phase alone, MiB/s', 'at once, MiB/s', 'of alone',
               'restores at once, s'],
              rows)
