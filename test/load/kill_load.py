#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
kill_load: kill -9 of criu, zns-helper, znsd and znsctl at random moments, while real tasks are dumped and restored.

Tasks are threads in busy loops that check their own memory all the time. Several are dumped at once, most of them left
running, some restored; beside that znsctl verifies, compacts, removes and lists. One process after the other dies. Then:
what was committed is there and reads back, every handle has its checkpoint, nothing listed is half, all zones come back,
and the tasks run on: each thread counts, nobody traces it, its mappings are what they were.

A criu that dies in CRIU's own phases (with its parasite at work in the task) may leave what stock CRIU leaves: these kills
are counted apart, beside the same number of kills of a stock dump. In our phases (admission, reading of pages, commit)
nothing of that is allowed.

  kill_load.py [--kills N] [--seed N]
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rig import Rig, Wrong

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'zonetests'))
import ztlib  # noqa: E402

DEVICE = ['--channels', '8', '--ways', '2', '--zones', '240', '--zone-size', '8M', '--max-open', '14', '--max-active', '20',
          '--die-write-bw', '300', '--timing', 'off']
WORKERS = 3
THREADS = 3
MIB = (1, 2, 16)      # of the workers' tasks: small ones share zones, and leave them partly dead
KEEP = 4
KINDS = ('criu', 'zns-helper', 'znsd', 'znsctl')
MAYBE_LOST = ('znsd', 'broker', 'Connection', 'connection', 'EPIPE', 'Broken pipe')


def phase_of(log):
    """Where a dump stood when its criu died, by its log."""
    text = log.read_text(errors='replace') if log.exists() else ''
    if 'Seized task' not in text:
        return 'admission'
    if re.search(r'zns: checkpoint .* committed', text) or 'Unfreezing tasks' in text:
        return 'end'
    if 'Writing image inventory' in text:
        return 'commit'
    if text.rfind('Dumping pages') > text.rfind('Sent msg to daemon'):
        return 'pages'
    return 'criu'


OURS = ('admission', 'pages', 'commit')


def last_step(log):
    """The last phase in CRIU's log, for failures in CRIU's own phases that lose a task."""
    lines = log.read_text(errors='replace').splitlines() if log.exists() else ['']
    return re.sub(r'^\([0-9.]+\) *|0x[0-9a-f]+|[0-9]+', '', lines[-1] if lines else '').strip()[:60]


class Task:
    """A spinner, and whether it is well."""

    def __init__(self, spinner, where, mib):
        self.spinner, self.counters, self.mib, self.pid, self.maps = spinner, where, mib, 0, None

    def start(self):
        self.counters.write_bytes(bytes(4096))
        self.proc = subprocess.Popen([self.spinner, self.counters, str(THREADS), str(self.mib)], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.proc.pid
        if not self.counts(20):
            raise Wrong('a task does not start')
        self.maps = self.mappings()

    def mappings(self):
        """Without the stack, which grows by itself."""
        try:
            lines = Path(f'/proc/{self.pid}/maps').read_text().splitlines()
        except OSError:
            return None
        return [re.sub(r' +', ' ', l) for l in lines if '[stack]' not in l]

    def values(self):
        data = self.counters.read_bytes()[:8 * THREADS]
        return [int.from_bytes(data[i:i + 8], 'little') for i in range(0, len(data), 8)]

    def counts(self, seconds):
        """Checks that every thread continues to count."""
        before, end = self.values(), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)
            if all(b > a for a, b in zip(before, self.values())):
                return True
        return False

    def alive(self):
        try:
            return Path(f'/proc/{self.pid}/stat').read_text().rpartition(')')[2].split()[0] not in 'ZX'
        except OSError:
            return False

    def trouble(self):
        """None, or the reason why the task does not run."""
        if not self.alive():
            return 'it is gone'
        if self.counts(20):
            for tid in os.listdir(f'/proc/{self.pid}/task'):
                text = Path(f'/proc/{self.pid}/task/{tid}/status').read_text()
                if 'TracerPid:\t0' not in text:
                    return f'thread {tid} is traced'
            return None
        state = re.search(r'State:\t(.*)', Path(f'/proc/{self.pid}/status').read_text())
        return f'a thread stands still ({state.group(1) if state else "?"})'

    def end(self):
        end = time.monotonic() + 20
        while self.pid and Path(f'/proc/{self.pid}').exists():
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, os.WNOHANG)    # it is our child, or becomes one when its criu has exited
            except (ProcessLookupError, ChildProcessError):
                pass
            if time.monotonic() > end:
                raise Wrong(f'PID {self.pid} does not end')
            time.sleep(0.005)


class State:
    """What all threads know."""

    def __init__(self, rig, criu, seed):
        self.rig, self.criu, self.seed, self.lock = rig, criu, seed, threading.Lock()
        self.stop = threading.Event()
        self.failed = []
        self.committed, self.removed, self.maybe_removed = {}, set(), set()
        self.handles = []
        self.n = collections.Counter()
        self.phases, self.not_resumed, self.mapped, self.steps = (collections.Counter() for _ in range(4))
        self.resumed = 0

    def fail(self, what):
        with self.lock:
            self.failed.append(what)
        self.stop.set()


def handle_id(images):
    """The checkpoint that a handle names: a frame of 48 bytes, then device and checkpoint, 16 bytes each."""
    data = (images / 'zns-handle.img').read_bytes()
    if data[48:50] != b'\x0a\x10' or data[66:68] != b'\x12\x10':
        raise Wrong(f'{images}: the handle looks strange')
    h = data[68:84].hex()
    return '-'.join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))


class Worker(threading.Thread):
    def __init__(self, state, n):
        super().__init__(daemon=True)
        self.s, self.n, self.rng = state, n, random.Random(state.seed * 100 + n)
        self.dir = state.rig.dir / f'w{n}'
        self.dir.mkdir()
        self.task = Task(state.rig.dumper.with_name('spinner'), self.dir / 'counters', MIB[n])
        self.kept, self.round, self.job = [], 0, None

    def run(self):
        try:
            self.task.start()
            while not self.s.stop.is_set():
                self.round += 1
                self.cycle(self.rng.random() < 0.2)
        except Wrong as e:
            self.s.fail(f'worker {self.n}, round {self.round}: {e}')
        except Exception as e:      # a test that breaks is no test that passes
            self.s.fail(f'worker {self.n}, round {self.round}: {type(e).__name__}: {e}')
        finally:
            self.task.end()

    def run_criu(self, args, log):
        with open(str(log) + '.err', 'wb') as err:
            self.job = subprocess.Popen([self.s.criu, *map(str, args)], env=self.s.rig.env, stdin=subprocess.DEVNULL,
                                        stdout=err, stderr=err)
            try:
                return self.job.wait(180)
            except subprocess.TimeoutExpired:
                self.job.kill()
                self.job.wait()
                raise Wrong(f'criu {args[0]} does not end') from None

    def cycle(self, move):
        """Makes a dump; with `move` the task ends with it and is restored."""
        images = self.dir / f'images-{self.round}'
        images.mkdir()
        self.log = log = images / 'dump.log'
        args = ['dump', '-t', self.task.pid, '-D', images, '-o', 'dump.log', '-v4', '--zns-qos',
                self.rng.choice([100, 300, 600]), '--zns-container', f'w{self.n}']
        code = self.run_criu([*args, *([] if move else ['--leave-running'])], log)
        phase = phase_of(log)
        if code == -signal.SIGKILL:
            with self.s.lock:
                self.s.phases[phase] += 1
        # Criu was killed after its commit, while it ended the task: the checkpoint exists nevertheless.
        done = code == 0 or (code == -signal.SIGKILL and phase == 'end' and (images / 'zns-handle.img').exists())
        if done:
            ident = handle_id(images)
            with self.s.lock:
                self.s.committed[ident] = images
                self.s.n['dumps committed'] += 1
            self.kept.append((ident, images))
        elif (images / 'zns-handle.img').exists():
            with self.s.lock:
                self.s.handles.append(images)
        if code and code != -signal.SIGKILL:
            self.s.n['dumps failed'] += 1
        if move and done:
            self.restore(images)
        else:
            self.look(code, phase)
        self.trim()
        if code and (not self.kept or self.kept[-1][1] != images):
            shutil.rmtree(images, ignore_errors=True) if images not in self.s.handles else None

    def look(self, code, phase):
        """After a dump that left the task, or was to: it runs on."""
        killed = code == -signal.SIGKILL
        trouble = self.task.trouble()
        if trouble is None and self.task.mappings() != self.task.maps:
            if not killed or phase in ('admission', 'commit'):
                raise Wrong(f'mappings have changed after {"a kill in " + phase if killed else f"exit {code}"}: '
                            f'{set(self.task.mappings()) ^ set(self.task.maps)}')
            with self.s.lock:
                self.s.mapped[phase] += 1
            self.task.end()         # as stock leaves it; the next dump shall begin with a clean one
            self.task.start()
        elif trouble is None:
            with self.s.lock:
                self.s.resumed += 1
        else:
            # A dump without --leave-running that is killed behind its commit has ended the task.
            if not killed or phase in OURS:
                raise Wrong(f'the task does not go on after {"a kill in phase " + phase if killed else f"exit {code}"}: {trouble}; '
                            f'{self.log}: {self.log.read_text(errors="replace")[-1500:]}')
            with self.s.lock:
                self.s.not_resumed[phase] += 1
                self.s.steps[last_step(self.log)] += 1
            self.task.end()
            self.task.start()

    def restore(self, images):
        self.task.end()
        for n in range(40):
            log, pidfile = images / f'restore-{n}.log', images / 'pid'
            pidfile.unlink(missing_ok=True)
            code = self.run_criu(['restore', '-d', '-D', images, '-o', log.name, '-v4', '--pidfile', pidfile], log)
            if code == 0:
                with self.s.lock:
                    self.s.n['restores'] += 1
                if self.task.trouble():
                    raise Wrong(f'a restored task does not run: {self.task.trouble()}')
                self.task.maps = self.task.mappings()
                return
            with self.s.lock:
                self.s.n['restores failed'] += 1
                self.s.n['restores killed'] += code == -signal.SIGKILL
            self.task.end()     # what a killed restore left, as stock does
        raise Wrong(f'{images} cannot be restored: {(images / f"restore-{n}.log").read_text(errors="replace")[-300:]}')

    def trim(self):
        while len(self.kept) > KEEP:
            ident, images = self.kept.pop(self.rng.randrange(len(self.kept) - 1))
            with self.s.lock:
                self.s.maybe_removed.add(ident)
            done = self.s.rig.ctl('rm', ident, check=False)
            if done.returncode == 0:
                with self.s.lock:
                    self.s.removed.add(ident)
            shutil.rmtree(images, ignore_errors=True)


class Tools(threading.Thread):
    """znsctl at work: verify, compact, list, export, collect."""

    def __init__(self, state):
        super().__init__(daemon=True)
        self.s, self.rng = state, random.Random(state.seed * 100 + 99)

    def run(self):
        calls = (['verify', '--all', '--json'], ['compact', '--below', '90', '--json', '--no-wait'], ['compact', '--below', '90'],
                 ['ls'], ['gc', '--compact'], ['fsck'])
        while not self.s.stop.is_set():
            args = self.rng.choice(calls)
            done = self.s.rig.ctl(*args, check=False)
            name = f'znsctl {args[0]}'
            with self.s.lock:
                self.s.n[name + (' killed' if done.returncode == -9 else ' failed' if done.returncode else '')] += 1
            if 'checksum' in done.stderr or 'is damaged' in done.stderr or 'read back' in done.stderr:
                self.s.fail(f'{name}: {done.stderr.strip()[:400]}')
            if args[0] == 'compact' and done.returncode == 0 and '--json' in args:
                said = __import__('json').loads(done.stdout)
                with self.s.lock:
                    self.s.n['checkpoints moved'] += said['moved_checkpoints']
                    self.s.n['zones freed'] += said['freed_zones']


def ours(rig):
    """{kind: [PIDs]} of the programs that work on our device."""
    found, mark = {k: [] for k in KINDS}, f'ZNS_RUN={rig.env["ZNS_RUN"]}'.encode()
    for comm in (p / 'comm' for p in Path('/proc').glob('[0-9]*')):
        try:
            name = comm.read_text().strip()
            if name in found and mark in comm.with_name('environ').read_bytes().split(b'\0'):
                found[name].append(int(comm.parent.name))
        except OSError:
            continue
    return found


def kill_one(rig, workers, kind, rng):
    """One of them dies at a random moment of its work; True if it did by our hand."""
    # Not what criu has forked: a restored task was criu until a moment ago.
    pids = [w.job.pid for w in workers if w.job and w.job.poll() is None] if kind == 'criu' else ours(rig)[kind]
    if not pids:
        return False
    try:
        fd = os.pidfd_open(rng.choice(pids))
    except OSError:
        return False
    try:
        time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.15)]))
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def load(args, seed):
    rig = Rig(args.build, DEVICE, args.keep)
    rng, state = random.Random(seed), State(rig, args.criu, seed)
    kills, started = collections.Counter(), time.monotonic()
    workers = [Worker(state, n) for n in range(WORKERS)]
    rules = subprocess.run(['nft', 'list', 'ruleset'], capture_output=True, text=True).stdout
    try:
        threads = [*workers, Tools(state)]
        for t in threads:
            t.start()
        while sum(kills.values()) < args.kills and not state.stop.is_set():
            least = min(KINDS, key=lambda k: kills[k])
            kind = rng.choice([k for k in KINDS if kills[k] <= kills[least] + 3])
            if kill_one(rig, workers, kind, rng):
                kills[kind] += 1
                time.sleep(rng.uniform(0, 0.25))
            else:
                time.sleep(0.002)
            if time.monotonic() - started > args.timeout:
                state.fail(f'not done after {args.timeout} s: {dict(kills)}')
        state.stop.set()
        for t in threads:
            t.join(300)
            if t.is_alive():
                raise Wrong('a thread of the load does not end')
        if state.failed:
            raise Wrong(state.failed[0])
        verdict(state)
        if subprocess.run(['nft', 'list', 'ruleset'], capture_output=True, text=True).stdout != rules:
            raise Wrong('a network lock is left: the rules of nftables differ')
        return state, kills, time.monotonic() - started
    finally:
        state.stop.set()
        for w in workers:
            if w.job and w.job.poll() is None:
                w.job.kill()
            w.join(30)
            w.task.end()
        rig.close()


def verdict(s):
    rig = s.rig
    listed = None
    status = rig.settle(40)
    listed = {c['id'] for c in rig.checkpoints()}
    lost = set(s.committed) - s.maybe_removed - listed
    if lost:
        raise Wrong(f'{len(lost)} committed checkpoints are gone: {sorted(lost)[:3]}')
    back = s.removed & listed
    if back:
        raise Wrong(f'removed checkpoints are listed: {sorted(back)[:3]}')
    for images in s.handles:
        if handle_id(images) not in listed:
            raise Wrong(f'{images} has a handle whose checkpoint is not there, of a dump that failed')
    s.n['not acknowledged, whole'] = len(listed - set(s.committed))
    s.n['left at the end'] = rig.intact()       # all that is listed reads back, the unacknowledged too
    s.n['bytes wasted at the end'] = status['bytes_wasted']
    rig.empty()


def stock(args, kills, seed):
    """The same task under a dump without zones: what kills in CRIU's own phases leave. (kills, not resumed, mappings)"""
    rng = random.Random(seed)
    base = Path(args.scratch)
    base.mkdir()
    task, env = Task(Path(args.build).resolve() / 'load' / 'spinner', base / 'counters', MIB[1]), dict(os.environ)
    env.update(ZNS_CONFIG=str(base / 'none'), ZNS_RUN=str(base / 'none'))
    done = bad = mapped = n = 0
    steps = collections.Counter()
    span = 0.1
    try:
        task.start()
        while done < kills and n < 10 * kills:
            n += 1
            images = base / 'images'
            images.mkdir()
            begun = time.monotonic()
            job = subprocess.Popen([args.criu, 'dump', '-t', str(task.pid), '-D', images, '-o', 'dump.log', '-v4',
                                    '--leave-running'], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
            try:
                job.wait(rng.uniform(0, span))
                span = max(0.02, 0.9 * span + 0.1 * (time.monotonic() - begun))
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()
            own = job.returncode == -signal.SIGKILL and phase_of(images / 'dump.log') in ('criu', 'end')
            done += own
            step = last_step(images / 'dump.log')
            shutil.rmtree(images)
            trouble = task.trouble()
            if trouble or task.mappings() != task.maps:
                bad += own and trouble is not None
                steps[step] += own and trouble is not None
                mapped += trouble is None
                task.end()
                task.start()
    finally:
        task.end()
        shutil.rmtree(base, ignore_errors=True)
    return done, bad, mapped, steps


def table(s, kills, beside):
    lines = [('kill -9 of criu, helper, znsd, znsctl', ', '.join(str(kills[k]) for k in KINDS) + f'; {sum(kills.values())}'),
             ('dumps committed, failed', f'{s.n["dumps committed"]}, {s.n["dumps failed"]}'),
             ('restores, failed and repeated', f'{s.n["restores"]}, {s.n["restores failed"]}'),
             ('checkpoints moved by compaction (of runs that ended)', s.n['checkpoints moved']),
             ('committed lost', 0), ('half-visible', 0), ('leaked zones, leases, reservations', 0),
             ('committed, not acknowledged (whole)', s.n['not acknowledged, whole']),
             ('tasks that ran on after a dump, checked', s.resumed)]
    for p in OURS:
        lines.append((f'criu killed in our phase: {p}', f'{s.phases[p]}, not resumed {s.not_resumed[p]}'))
    criu = s.phases['criu'] + s.phases['end']
    lines.append(("criu killed in CRIU's own phases", f'{criu}, not resumed {s.not_resumed["criu"] + s.not_resumed["end"]}'))
    lines.append(("CRIU's parasite still mapped after kills", sum(s.mapped.values())))
    lines.append(("stock dump: criu killed in its own phases", f'{beside[0]}, not resumed {beside[1]}, parasite still mapped {beside[2]}'))
    width = max(len(a) for a, _ in lines)
    for a, b in lines:
        print(f'  {a:{width}}  {b}')
    for who, steps in (('these', s.steps), ('stock', beside[3])):
        print(f'  {who}, not resumed, by the last line of the log: {dict(steps)}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default='build', metavar='DIR')
    parser.add_argument('--kills', type=int, default=500, metavar='N')
    parser.add_argument('--stock', type=int, default=40, metavar='N', help='kills of a stock dump to compare with (default 40)')
    parser.add_argument('--seed', type=int)
    parser.add_argument('--timeout', type=int, default=3000, metavar='S')
    parser.add_argument('--keep', action='store_true', help='keep the device')
    args = parser.parse_args()
    args.criu = str(Path(args.build).resolve() / 'bin' / 'criu')
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    args.scratch = f'/var/tmp/zns-stock-{os.getpid()}'
    ztlib.become_subreaper()    # for tasks whose criu died
    print(f'seed {seed}', flush=True)
    try:
        state, kills, seconds = load(args, seed)
    except Wrong as e:
        print(f'FAIL: {e} (seed {seed})\n0 passed, 1 failed, 0 skipped')
        return 1
    beside = stock(args, args.stock, seed)
    table(state, kills, beside)
    print(f'  {dict(state.n)}')
    print(f'{seconds:.0f} s, seed {seed}\n1 passed, 0 failed, 0 skipped')
    return 0


if __name__ == '__main__':
    sys.exit(main())
