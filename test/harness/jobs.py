# SPDX-License-Identifier: GPL-2.0-only
"""
Runs jobs side by side. Each is a command with a share of the machine, a time limit, and names of things that only one
job may use at a moment. A job that exceeds its limit is ended, and its log says where each of its threads is.
"""
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = 'TEST_JOB'           # environment variable of every process that a job starts, so that daemons which it leaves behind are found
RUN = uuid.uuid4().hex      # identifies this run: another run on this machine has jobs with the same names


@dataclasses.dataclass
class Job:
    name: str
    command: list
    seconds: float = 10         # seconds that it takes alone, roughly: long jobs begin first
    slots: int = 1              # its share of the machine; one processor has two slots, since most jobs wait half of the time
    limit_s: int = 600          # a job that takes longer is ended, and has failed
    holds: tuple = ()           # names of what no two jobs may use at once
    needs: tuple = ()           # names of jobs that must have ended well before
    group: str = ''             # the part under which it is counted; its own name if empty
    env: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Ended:
    """What is known of a job that has ended."""
    job: Job
    code: int
    seconds: float
    cpu_s: float                # CPU time of those of its processes that were waited for
    log: Path
    why: str = ''               # what the scheduler adds: the time limit, or a job that it needed

    @property
    def text(self):
        return self.log.read_text(errors='replace') if self.log.exists() else ''


def _mark(name):
    return f'{RUN}/{name}'


def _marked(name):
    """PIDs of all processes that a job has started, whoever is their parent now."""
    mark = f'{MARK}={_mark(name)}'.encode()
    for path in Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            if int(path.name) != os.getpid() and mark in (path / 'environ').read_bytes().split(b'\0'):
                yield int(path.name)


def where(name):
    """A line for each thread of a job: its name, its state, and what it waits for in the kernel."""
    lines = []
    for pid in sorted(_marked(name)):
        for task in sorted(Path(f'/proc/{pid}/task').glob('[0-9]*')):
            with contextlib.suppress(OSError, ValueError):
                comm, rest = (task / 'stat').read_text().split('(', 1)[1].rsplit(')', 1)
                calls = [line.split()[1].split('+')[0] for line in (task / 'stack').read_text().splitlines()]
                lines.append(f'hangs: {pid}/{task.name} {comm} {rest.split()[0]} {" < ".join(calls[:6])}\n')
    return ''.join(lines)


class Running:
    """A job whose command runs, with its log."""

    def __init__(self, job, directory, cwd):
        self.job, self.log, self.start = job, directory / f'{job.name}.log', time.monotonic()
        # TAP instead of cmocka's own text; other programs do not know the variable.
        env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT='TAP', **job.env)
        env[MARK] = _mark(job.name)
        with open(self.log, 'wb') as out:
            # A file, not a pipe: a process that the job leaves behind would keep a pipe open.
            self.child = subprocess.Popen(job.command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                          env=env, cwd=cwd, start_new_session=True)

    def overdue(self):
        return time.monotonic() - self.start > self.job.limit_s

    def hung(self):
        """Ends the job, and writes where its threads are into the log."""
        with open(self.log, 'a', encoding='utf-8') as out:
            out.write(f'\n{where(self.job.name)}FAIL {self.job.name} did not end within {self.job.limit_s} s\n')
        self.kill()

    def kill(self):
        for pid in [self.child.pid, *_marked(self.job.name)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ended(self, status, usage):
        self.child.returncode = os.waitstatus_to_exitcode(status)      # reaped here, not by the object
        self.kill()
        return Ended(self.job, self.child.returncode, time.monotonic() - self.start, usage.ru_utime + usage.ru_stime, self.log)


class Scheduler:
    """Runs jobs; on_end(Ended) is called for each in the order in which they end."""

    def __init__(self, jobs, directory, cwd, slots=None, on_end=lambda ended: None):
        self.waiting = sorted(jobs, key=lambda j: -j.seconds)
        self.directory, self.cwd, self.on_end = Path(directory), cwd, on_end
        self.slots = slots or 2 * (os.cpu_count() or 1)
        self.running, self.ok, self.bad = {}, set(), set()

    def _may_start(self, job):
        busy = sum(r.job.slots for r in self.running.values())
        held = {h for r in self.running.values() for h in r.job.holds}
        room = not self.running or busy + min(job.slots, self.slots) <= self.slots
        return room and not held & set(job.holds) and set(job.needs) <= self.ok

    def _start(self):
        for job in list(self.waiting):
            if failed := set(job.needs) & self.bad:
                self.waiting.remove(job)
                self._end(Ended(job, 1, 0, 0, self.directory / f'{job.name}.log', f'needs {failed.pop()}, which failed'))
            elif self._may_start(job):
                self.waiting.remove(job)
                started = Running(job, self.directory, self.cwd)
                self.running[started.child.pid] = started
            elif not any(r.job.slots > 1 for r in self.running.values()) and job.slots >= self.slots and set(job.needs) <= self.ok:
                return      # a job that needs the whole machine gets it: no other job begins before

    def _end(self, ended):
        (self.bad if ended.code else self.ok).add(ended.job.name)
        self.on_end(ended)

    def _collect(self):
        """Reaps one child that has exited; returns False if there is none."""
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid and pid in self.running:
            self._end(self.running.pop(pid).ended(status, usage))
        return pid != 0

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit('ended by SIGTERM'))      # running jobs are ended, too
        try:
            while self.waiting or self.running:
                self._start()
                if self.waiting and not self.running:
                    sys.exit(f'jobs that nothing can start: {", ".join(j.name for j in self.waiting)}')
                while self.running and self._collect():
                    pass
                for late in [r for r in self.running.values() if r.overdue()]:
                    late.hung()
                time.sleep(0.05)
        finally:
            for left in self.running.values():
                left.kill()
