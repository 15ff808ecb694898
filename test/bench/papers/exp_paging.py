# SPDX-License-Identifier: GPL-2.0-only
"""Dumps beside programs whose memory is on zones: what both were promised, and what they get."""
import os
import signal
import socket
import statistics
import struct
import subprocess
import time

from exp_dumps import rated
from exp_isolation import CONTROL, ZNS, ZONES
from stage import Failed, Job, Stage

QOS = 500
PROFILE = {ZNS: 'paper-conf', CONTROL: 'conventional'}
THREADS, WRITES_PCT, GAP_US = 6, 50, 30
LEAD_S = 0.3        # s of paging before the first dump


class Paged:
    """test/bench/papers/pageload.c under a budget of a quarter of its memory."""

    def __init__(self, st, name, mib, *options):
        self.st, self.name, self.mib = st, name, mib
        self.log = st.dir / f'{name}.log'
        self.proc = subprocess.Popen([st.bench / 'pageload', str(mib), str(THREADS), str(WRITES_PCT), str(GAP_US), self.log],
                                     env=st.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        st.programs.append(self)
        if self.proc.stdout.readline() != 'ready\n':
            raise Failed('pageload does not start')
        # not by `znsctl memory attach`, which starts it without our environment, and so without the virtual clock
        with open(st.dir / f'{name}.pager', 'w', encoding='ascii') as said:
            self.pager = subprocess.Popen([st.bin / 'zns-mem', '--name', name, '--dev', st.device, '--dram', str(mib << 18), '--no-predict',
                                           *options, str(self.proc.pid)], env=st.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        self.wait_for(lambda s: s['evicted'] >= mib << 19)

    def status(self):
        if self.pager.poll() is not None:
            raise Failed(f'its pager ended: {(self.st.dir / f"{self.name}.pager").read_text()}')
        return self.st.ctl('memory', 'status', self.name)

    def wait_for(self, what):
        end, socket_file = time.monotonic() + 120, self.st.dir / 'run' / 'memory' / f'{self.name}.sock'
        while not socket_file.exists() or not what(self.status()):
            if time.monotonic() > end:
                raise Failed(f'memory of {self.name} does not go out: {self.status()}')
            time.sleep(0.05)

    def ask(self, line):
        self.proc.stdin.write(line + '\n')
        self.proc.stdin.flush()

    def answer(self):
        words = self.proc.stdout.readline().split()
        if not words:
            raise Failed(f'{self.name} ended')
        return words[1:]

    def job(self, seconds):
        """Pages for this time, from the common beginning on."""
        job = Job(self.name, [])
        job.program, job.sleepers, self.seconds = self, THREADS, seconds
        return job

    def begin(self, at):
        self.before = self.status_bytes()
        self.ask(f'run {at} {round(self.seconds * 1000)}')
        return self.proc

    def end(self, begin):
        touches, _ = map(int, self.answer())
        return Paging(self, begin, touches, self.status_bytes())

    def status_bytes(self):
        """MiB that its pager wrote and read."""
        s = self.status()
        return [(s['evicted_units'] - s['clean_units']) / 16, s['read_units'] / 16]

    def check(self):
        """All of its memory back, and compared."""
        self.st.ctl('memory', 'detach', self.name)
        self.ask('check')
        if self.answer() != ['0']:
            raise Failed(f'pages of {self.name} are wrong')

    def close(self):
        self.proc.kill()
        self.proc.wait()
        try:
            self.pager.wait(20)         # the pager has no program left
        except subprocess.TimeoutExpired:
            self.pager.kill()
            self.pager.wait()
        run = self.st.dir / 'run' / 'memory'
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
            try:
                keeper.connect(str(run / 'keeper'))
                pid = struct.unpack('iII', keeper.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                os.kill(pid, signal.SIGTERM)
            except OSError:
                pass        # the process has exited


class Paging:
    """What a program waited for, from its log: times in s from the common beginning."""

    def __init__(self, paged, begin, touches, after):
        self.name, self.touches, self.seconds = paged.name, touches, paged.seconds
        self.written, self.read = [a - b for a, b in zip(after, paged.before)]
        self.waits = []
        for at, ns in struct.iter_unpack('QQ', paged.log.read_bytes()):
            self.waits.append(((at - begin) / 1e9, ns / 1e3))

    def faults(self, start, end):
        """Microseconds of each that began then."""
        return sorted(us for at, us in self.waits if start <= at < end)


def quantile(values, q):
    return values[min(len(values) - 1, int(len(values) * q))]


def dumps(st, sizes, tag, start_s=0.0):
    return [st.dump(f'c{i}', mib, QOS, to=f'{tag}-c{i}', start_s=start_s, seed=i + 1) for i, mib in enumerate(sizes)]


class Turn:
    """One turn: dumps alone, paging alone, both."""

    def __init__(self, st, paged, sizes, n):
        self.alone = rated(st, st.run(dumps(st, sizes, f'a{n}')))
        longest = max(d.end for d in self.alone)
        calm, = st.run([paged.job(LEAD_S + longest)])
        busy, *self.beside = st.run([paged.job(LEAD_S + 1.5 * longest), *dumps(st, sizes, f'b{n}', LEAD_S)])
        rated(st, self.beside)
        st.ctl('rm', *[c['id'] for c in st.ctl('ls')['checkpoints']])
        self.faults = {'alone': calm.faults(LEAD_S, LEAD_S + longest), 'beside': busy.faults(LEAD_S, max(d.end for d in self.beside))}
        self.paged = calm, busy

    def worst(self, which):
        return min(d.rate for d in getattr(self, which)) / QOS


def one(args, kind, sizes, turns, broker=None):
    """Medians over the turns."""
    with Stage(args, PROFILE[kind], ZONES, broker=broker) as st:
        paged = Paged(st, 'paged', 96)
        found = [Turn(st, paged, sizes, n) for n in range(turns)]
        paged.check()
    middle = statistics.median
    got = {'alone': middle(t.worst('alone') for t in found), 'beside': middle(t.worst('beside') for t in found),
           'error': middle(1 - min(1, t.worst('beside')) for t in found),
           'lost': middle(1 - min(b.rate / a.rate for a, b in zip(t.alone, t.beside)) for t in found)}
    for when in ('alone', 'beside'):
        got[f'faults {when}'] = [middle(quantile(t.faults[when], q) for t in found) for q in (0.5, 0.99)]
        got[f'number {when}'] = middle(len(t.faults[when]) for t in found)
    for n, when in enumerate(('alone', 'beside')):
        got[f'MiB/s {when}'] = [middle(getattr(t.paged[n], what) / t.paged[n].seconds for t in found)
                                for what in ('written', 'read')]
    return got


CASES = (('one dump', ZNS, 'one', None), ('five dumps at once', ZNS, 'five', None),
         ('one dump, no shaping', ZNS, 'one', 'share-memory'), ('five dumps, no shaping', ZNS, 'five', 'share-memory'),
         ('one dump, conventional', CONTROL, 'one', None))


def paging(args, rep):
    """Dumps with --zns-qos while a program's memory goes out and comes back at full speed, on one device."""
    sizes = {'one': [128], 'five': [60, 100, 127, 128, 128]} if args.full else {'one': [64]}
    turns = 3 if args.full else 1
    rows = []
    for title, kind, which, broker in CASES:
        if which not in sizes:
            continue
        g = one(args, kind, sizes[which], turns, broker)
        rows.append([title, f"{g['alone'] * QOS:.1f}", f"{g['beside'] * QOS:.1f}", f"{g['error'] * 100:.2f} %",
                     f"{g['lost'] * 100:.2f} %",
                     *[' / '.join(f'{us:.0f}' for us in g[f'faults {w}']) for w in ('alone', 'beside')],
                     *[' / '.join(f'{v:.0f}' for v in g[f'MiB/s {w}']) for w in ('alone', 'beside')]])
        print('   ', ' | '.join(rows[-1]), flush=True)
        if kind == ZNS and not broker:
            rep.aim(f'{title} beside paging: error of the promise', g['error'], '<=', 0.02)
        elif kind == ZNS:
            rep.control(f'{title}, beside paging: error of the promise', g['error'], '>', 0.05)
    rep.text(f'A program of {THREADS} threads touches its memory at random, {WRITES_PCT} % of it to write, each thread again {GAP_US} us after its '
             'last touch, with a quarter of the memory as its budget, so that its pager (zns-mem, on the same virtual clock) writes and '
             f'reads as fast as it can. Dumps ask for {QOS} MiB/s each. {turns} turns of dumps alone, paging alone and both; medians. The '
             'error is what the worst dump lacks of its promise, over its data phase. A fault is what a thread of the program waited. '
             '"No shaping" is a broker whose memory contexts give way to nobody, and whose groups dumps take as if they were idle. All pages '
             'are compared at each touch and at the end.')
    rep.table(['', 'worst dump alone, MiB/s', 'beside', 'error of its promise', 'lost to alone', 'faults alone, p50 / p99 us',
               'beside', 'paging alone, MiB/s out / back', 'beside'], rows)
