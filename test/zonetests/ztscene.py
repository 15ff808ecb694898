# SPDX-License-Identifier: GPL-2.0-only
"""The stage of a case: a private device, tasks, criu calls, what must hold after a failure; and a suite of cases."""
import argparse
import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import ztlib
from ztlib import Device, Failed, HANDLE, Task, alive, wait_until

DIES = ['--channels', '4', '--ways', '2', '--die-write-bw', '100']
FAST = [*DIES, '--zones', '32', '--zone-size', '16M', '--timing', 'off']
SLOW = [*DIES, '--zones', '64', '--zone-size', '64M', '--timing', 'on']
TINY = ['--channels', '2', '--ways', '2', '--die-write-bw', '200', '--zones', '12', '--zone-size', '4M', '--timing', 'off']
FOUR_DIES = ['--channels', '2', '--ways', '2', '--die-write-bw', '100', '--zones', '32', '--zone-size', '16M',
             '--timing', 'off']


SIX_OPEN = ['--channels', '4', '--ways', '2', '--die-write-bw', '50', '--zones', '32', '--zone-size', '16M',
            '--max-open', '6', '--max-active', '8', '--timing', 'off']


def case_of(cases):
    """
    Returns a decorator that adds a function to @cases, under its name. With .soak(WHY) it becomes a case of the soak:
    it is random, or its result depends on the machine's speed, so `run -a` leaves it out and `run --soak` runs it.
    """
    def enter(func):
        cases[func.__name__.replace('_', '-')] = func
        return func

    def soak(why):
        def mark(func):
            func.soak = why
            return enter(func)
        return mark

    enter.soak = soak
    return enter


def expect(what, got, want):
    if got != want:
        raise Failed(f'{what} is {got}, not {want}')


def run_ctl(scene, code, *args):
    """Runs znsctl, which must end with this exit code; returns its output."""
    done = scene.device.ctl(*args)
    said = (done.stderr.strip() or done.stdout.strip())[:300]
    if done.returncode != code:
        raise Failed(f'znsctl {" ".join(args)}: exit {done.returncode}, not {code}: {said}')
    if code and done.stderr.count('\n') > 1:
        raise Failed(f'znsctl {" ".join(args)}: more than one line: {said}')
    return done.stdout if code == 0 else done.stdout + done.stderr

BY_DEFAULT = object()       # options of a dump that say whether it is live


class Outcome:
    """What one criu call left: exit code, log and stderr."""

    shown = set()
    accepted = 0        # failures that came as they must; each case has a process of its own

    def __init__(self, code, log):
        self.code = code
        self.log, self.stderr = self._read(Path(log)), self._read(Path(str(log) + '.stderr'))

    @staticmethod
    def _read(path):
        return path.read_text(errors='replace').splitlines() if path.exists() else []

    def lines(self, pattern):
        return [l for l in self.log + self.stderr if re.search(pattern, l, re.I)]

    def errors(self):
        return [l for l in self.log if 'Error' in l] + self.stderr

    def must_fail(self, *patterns):
        """Checks that criu failed, was not killed, and printed an error line with zns and every pattern."""
        if self.code == 0:
            raise Failed('criu said it succeeded')
        if self.code < 0:
            raise Failed(f'criu died of signal {-self.code}')
        said = [l for l in self.errors() if 'zns' in l.lower()]
        if not said:
            raise Failed(f'no error line with zns; criu says: {" | ".join(self.errors()[-3:])}')
        for p in patterns:
            if not any(re.search(p, l, re.I) for l in said):
                raise Failed(f'no line says /{p}/; it says: {" | ".join(said[:3])}')
        # once for each process: siblings may meet the same damage before criu has ended them
        ours = [re.sub(r'^\([0-9.]+\) *|Error \([^)]*\): |;.*', '', l) for l in self.log if '): zns: ' in l and 'Error' in l]
        if len(set(ours)) != len(ours):
            raise Failed(f'an error is there more than once: {" | ".join(ours)}')
        Outcome.accepted += 1
        self._show(re.sub(r'^\([0-9.]+\) *', '', said[0]))

    def _show(self, line):
        """Shows the error line to the reader; lines that differ only in numbers are shown once per case."""
        kind = re.sub(r'\d+', '', line)
        if kind not in self.shown:
            self.shown.add(kind)
            print(f'     says: {line}', flush=True)


class Scene:
    """A private device, one task, and the state of the store before the case begins."""

    def __init__(self, cfg, directory, options=FAST, size=32):
        self.cfg, self.dir = cfg, directory
        self.tasks, self.calls, self.barrier = [], 0, False
        self.device = Device(cfg, directory=directory / 'device', spec=cfg.real)
        self.device.create(*options)
        cfg.device = self.device
        self.task = self.new_task(size)
        self.images = directory / 'images'
        self.images.mkdir()
        self.remember()

    def new_task(self, size=32, program='bigmem', flavour='h'):
        directory = self.dir / f'task-{len(self.tasks)}'
        directory.mkdir()
        task = Task(directory, program, flavour, args=['--size', str(size)] * (program in ('bigmem', 'lazyfork', 'rewrite')), wait=max(60, self.cfg.timeout))
        self.tasks.append(task)
        return task.start().wait_ready()

    def remember(self):
        self.free_before = self.device.free_zones()
        self.ids_before = self.ids()

    def ids(self):
        return sorted(c['id'] for c in self.device.checkpoints())

    def log(self):
        self.calls += 1
        return self.dir / f'criu-{self.calls}.log'

    def faulty(self, env, fault):
        """The environment of the test build that makes the emulator fail in this way."""
        env = dict(env or self.device.env)
        if not fault:
            return env
        self.device.needs_emulator('needs faults of the emulator')
        return ztlib.controlled(env, ZNS_EMU_FAULT=fault)

    # -- dump --

    def dump_command(self, log, extra, images, task, qos):
        # a case that is not about live dumps makes plain ones
        plain = () if BY_DEFAULT in extra or any(str(e).startswith('--zns-live') for e in extra) else ('--zns-live=no',)
        args = ztlib.dump_args(self.cfg, task or self.task, images or self.images, log, 'errors',
                               [*plain, *(e for e in extra if e != BY_DEFAULT)])
        if qos is not None:
            args[args.index('--zns-qos') + 1] = qos
        return args

    def dump(self, extra=(), images=None, task=None, qos=None, fault=None, env=None):
        log = self.log()
        env = self.faulty(env, fault)
        done = ztlib.run_criu(self.cfg, self.dump_command(log, extra, images, task, qos), log, env)
        return Outcome(done.returncode, log)

    def start_dump(self, extra=(), images=None, task=None, qos=None, env=None, stop_after=None, patient=True):
        """
        Begins a dump in the background; returns (Popen, log). @stop_after: its helper stops at a barrier after that
        many writes, until go_on(); a real device has no such barrier. @patient: nothing kills the stopped helper.
        """
        log = self.log()
        self.barrier = stop_after is not None and self.device.emulated
        if self.barrier:
            env = self.faulty(env, f'stop-after={stop_after}')
            if patient:
                self.patient()
        with open(str(log) + '.stderr', 'ab') as err:
            command = [self.cfg.criu, *self.dump_command(log, extra, images, task, qos)]
            return subprocess.Popen(command, env=env or self.device.env, stdin=subprocess.DEVNULL, stdout=err, stderr=err), log

    def patient(self):
        """A process at a barrier shows no sign of life. With this setting nothing gives it up for that, unless the case sets a time of its own."""
        conf = Path(self.device.env['ZNS_CONFIG']) / 'zns.conf'
        text = conf.read_text() if conf.exists() else ''
        if 'deadline' not in text:
            conf.write_text(f'{text}deadline = 300\n')

    def end_of(self, started):
        criu, log = started
        try:
            return Outcome(criu.wait(self.cfg.timeout), log)
        except subprocess.TimeoutExpired:
            criu.kill()
            criu.wait()
            raise Failed(f'criu did not end within {self.cfg.timeout} s')

    def good_dump(self, **args):
        """Makes a dump that must succeed; the task is gone. Returns the checkpoint's id."""
        before = set(self.ids())
        task = args.get('task') or self.task
        done = self.dump(**args)
        if done.code:
            raise Failed(f'a plain dump fails: exit {done.code}: {" | ".join(done.lines("Error")[-3:])}')
        if '--leave-running' not in args.get('extra', ()):
            wait_until(lambda: not alive(task.pid), 5)
        new = set(self.ids()) - before
        if len(new) != 1:
            raise Failed(f'a dump added {len(new)} checkpoints')
        return new.pop()

    def stopped_helpers(self):
        return [pid for pid in self._ours('zns-helper') if ztlib.proc_state(pid) == 'T']

    def at_barrier(self):
        if not wait_until(self.stopped_helpers):
            raise Failed('the helper never came to its barrier')

    def until_writing(self):
        """Waits until the task is frozen and zones are being written: the moment for an accident. The helper is at its barrier then."""
        if self.barrier:
            self.at_barrier()
        elif not wait_until(lambda: self.device.free_zones() < self.free_before, 60):
            raise Failed('no zone was written to')
        if not ztlib.traced(self.task.pid):
            raise Failed('the task is not frozen while the dump writes')

    def go_on(self):
        """Lets the helper leave its barrier."""
        for pid in self.stopped_helpers():
            ztlib.kill(pid, signal.SIGCONT)

    # -- restore --

    def restore(self, extra=(), images=None, task=None, fault=None, env=None):
        log = self.log()
        task = task or self.task
        env = self.faulty(env, fault)
        args = [*ztlib.restore_args(task, images or self.images, log), *extra]
        done = Outcome(ztlib.run_criu(self.cfg, args, log, env).returncode, log)
        if done.code == 0:
            task.restored(int(Path(str(log) + '.pid').read_text()))
        return done

    def restore_must_fail(self, *patterns, **args):
        done = self.restore(**args)
        done.must_fail(*patterns)
        if not wait_until(lambda: not alive(self.task.pid), 3):
            raise Failed('a process is left of a restore that failed')
        self.no_helpers()

    def good_restore(self, **args):
        done = self.restore(**args)
        if done.code:
            raise Failed(f'a plain restore fails: exit {done.code}: {" | ".join(done.lines("Error")[-3:])}')
        (args.get('task') or self.task).verify(signal.SIGUSR1)
        return done

    def _ours(self, name):
        """PIDs of processes of that name that work for our device."""
        for comm in (p / 'comm' for p in Path('/proc').glob('[0-9]*')):
            try:
                if comm.read_text().strip() == name and f'ZNS_RUN={self.device.env["ZNS_RUN"]}'.encode() in \
                        comm.with_name('environ').read_bytes().split(b'\0'):
                    yield int(comm.parent.name)
            except OSError:
                continue

    def broker_pid(self):
        """The broker's PID. None: no broker runs."""
        return next(self._ours('znsd'), None)

    def end_broker(self, sig=signal.SIGKILL):
        """Ends every broker of our device, by a crash or as asked by a signal."""
        for pid in self._ours('znsd'):
            if ztlib.kill(pid, sig):
                wait_until(lambda p=pid: not alive(p), 5)
        self.no_helpers()

    # -- what must hold --

    def helpers(self):
        """PIDs of zns-helper processes of our device."""
        return [pid for pid in self._ours('zns-helper') if alive(pid)]

    def no_helpers(self):
        if not wait_until(lambda: not self.helpers(), 5):
            raise Failed('a zns-helper is left')

    def store_as_before(self):
        if self.ids() != self.ids_before:
            raise Failed('znsctl ls shows another list of checkpoints than before')
        if not wait_until(lambda: self.device.free_zones() >= self.free_before, 15, 0.2):
            raise Failed(f'{self.device.free_zones()} zones are free, {self.free_before} were')

    def unharmed(self, images=None):
        """Checks the state after a failed dump."""
        pid = self.task.pid
        if not wait_until(lambda: ztlib.proc_state(pid) in ('R', 'S') and not ztlib.traced(pid), 5):
            raise Failed(f'the task is not running: state "{ztlib.proc_state(pid)}"')
        self.task.verify(signal.SIGUSR1)
        if ((images or self.images) / HANDLE).exists():
            raise Failed('a handle is there after a failed dump')
        self.no_helpers()
        self.store_as_before()

    def works(self, size=None):
        """Checks that the next dump and restore on this device work."""
        task = self.new_task(size) if size else self.task
        images = self.dir / f'images-works-{self.calls}'
        images.mkdir()
        checkpoint = self.good_dump(images=images, task=task)
        self.good_restore(images=images, task=task)
        self.device.remove(checkpoint)
        self.store_as_before()

    def failed_dump(self, *patterns, **args):
        """A dump that must fail and leave everything as it was."""
        self.dump(**args).must_fail(*patterns)
        self.unharmed(args.get('images'))

    def short_plain(self, program, image):
        """Makes a dump without zones and cuts an image (None: the largest except pages-1) in half: its restore must fail, soon."""
        cfg = copy.copy(self.cfg)
        cfg.stock = True
        directory = self.dir / f'plain-{program}'
        directory.mkdir()
        task = Task(directory, program)
        self.tasks.append(task)
        task.start().wait_ready()
        images = directory / 'images'
        ztlib.dump(cfg, task, images, directory / 'dump.log', 'plain')
        if image is None:
            image = max((p for p in images.glob('pages-*.img') if p.name != 'pages-1.img'), key=lambda p: p.stat().st_size).name
        path = images / image
        if path.stat().st_size < 8192:
            raise Failed(f'{program}: {image} is too small for this test')
        os.truncate(path, path.stat().st_size // 8192 * 4096)
        done = Outcome(ztlib.run_criu(cfg, ztlib.restore_args(task, images, directory / 'restore.log'),
                                      directory / 'restore.log').returncode, directory / 'restore.log')
        if done.code == 0:
            raise Failed(f'{program}: a restore from half of {image} says it succeeded')
        if done.code < 0 or not done.lines("Can't read"):
            raise Failed(f'{program}: exit {done.code}, no line about the read: {" | ".join(done.errors()[-3:])}')
        if not wait_until(lambda: not any(map(alive, task.pids())), 3):
            raise Failed('a process is left of a restore that failed')

    def close(self):
        for task in self.tasks:
            task.end()
        self.device.close()


# ---- a suite of cases ----------------------------------------------------------------------------------

def run_case(cfg, suite, name, func):
    directory = cfg.base / f'{name}-{suite}'
    directory.mkdir()
    scenes = []

    def scene(options=FAST, size=32):
        scenes.append(Scene(cfg, directory, options, size))
        return scenes[-1]

    ok = False
    try:
        func(scene)
        ok = True
        if Outcome.accepted:
            print(f'     {name}: failed as it must {Outcome.accepted} times', flush=True)
    finally:
        for s in scenes:
            s.close()
        if not cfg.keep:
            shutil.rmtree(directory / 'device', ignore_errors=True)
        if ok and not cfg.keep:
            shutil.rmtree(directory, ignore_errors=True)


def parse_args(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest='command', required=True)
    sub.add_parser('list', help='names and what they are')
    run = sub.add_parser('run')
    run.add_argument('names', nargs='*', metavar='NAME')
    run.add_argument('-a', '--all', action='store_true', help='all cases of the gate')
    run.add_argument('--soak', action='store_true', help='all cases of the soak')
    ztlib.common_options(run)
    return parser.parse_args()


def prepare(args, suite, cases):
    """Checks that the user may run these cases and that their programs are installed; returns the names of those to run."""
    unknown = [n for n in args.names if n not in cases]
    if unknown:
        sys.exit(f'no such case: {unknown[0]}')
    if not args.names and not args.all and not args.soak:
        sys.exit('name some cases, -a for all of the gate, or --soak for those of the soak')
    if os.geteuid():
        sys.exit(f'{suite} must run as root')
    ztlib.private_mounts()
    ztlib.build_programs()
    return args.names or [n for n, func in cases.items() if (args.soak if hasattr(func, 'soak') else args.all)]


def suite_main(doc, suite, cases):
    """Runs the command line of a suite; @cases: {name: function of a scene maker}. Returns the exit code."""
    args = parse_args(doc)
    if args.command == 'list':
        for name, func in cases.items():
            print(f'{name:24} {func.__doc__}{" (soak)" if hasattr(func, "soak") else ""}')
        return 0
    names = prepare(args, suite, cases)
    # a job in the background ignores it, and then criu would, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cfg = ztlib.Config(args)
    try:
        jobs = [(n, suite, lambda n=n: run_case(cfg, suite, n, cases[n])) for n in names]
        results = ztlib.run_jobs(jobs, args.jobs, cfg.base)
        ztlib.save_failed(args.report, cfg, results)
    finally:
        cfg.close()
    if args.report:
        ztlib.write_reports(args.report, suite, results)
    return ztlib.finish(results)
