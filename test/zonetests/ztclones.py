# SPDX-License-Identifier: GPL-2.0-only
"""Many restores of one checkpoint at once, each in its own namespaces, with its own name and address (clone.c)."""
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import ztlib
from ztlib import Failed, PROGS, wait_until


class Clone:
    """One of the restores, from its start to its end."""

    def __init__(self, number, directory, task, command, env):
        self.name, self.address = f'clone-{number}', f'10.77.{number // 250}.{number % 250 + 1}'
        self.own = directory / self.name
        shutil.copytree(task.state, self.own)
        self.task, self.command, self.env = task, command, env
        self.started_ns = self.process = None
        self.status = self.ended_ns = self.read = None

    def start(self):
        self.started_ns = time.monotonic_ns()
        with open(self.own / 'stderr', 'wb') as err:
            self.process = subprocess.Popen([PROGS / 'clone', self.name, self.address, self.task.state, self.own, *self.command],
                                            env=self.env, stdin=subprocess.DEVNULL, stdout=err, stderr=err, cwd='/')

    def _lines(self):
        path = self.own / 'outcome'
        return [line.split() for line in path.read_text().split('\n')[:-1]] if path.exists() else []

    def settled(self):
        return self.process.poll() is not None or len(self._lines()) == 2

    def outcome(self):
        """Reads the outcome; raises Failed if the clone has the name or address of another one."""
        lines = self._lines()
        if not lines:
            raise Failed(f'{self.name}: exit {self.process.poll()}: {(self.own / "stderr").read_text(errors="replace").strip()}')
        self.status, self.ended_ns = int(lines[0][1]), int(lines[0][2])
        if len(lines) == 2:
            self.read = int(lines[1][1])
            if lines[1][2:] != [self.name, self.address]:
                raise Failed(f'{self.name} at {self.address} is {" ".join(lines[1][2:])}')
        return self.status

    def init(self):
        return int(Path(f'/proc/{self.process.pid}/task/{self.process.pid}/children').read_text().split()[0])

    def ask(self):
        os.kill(self.init(), signal.SIGUSR1)

    def answer(self):
        out = self.own / 'out'
        return out.read_text().splitlines() if out.exists() else []

    def end(self):
        if self.process and self.process.poll() is None:
            ztlib.kill(self.init())
        if self.process:
            self.process.wait(120)


class Clones:
    """Starts @number clones; command(clone) is the command that restores one."""

    def __init__(self, number, directory, task, command, env, seconds=120):
        directory.mkdir()
        self.seconds, self.task = seconds, task
        self.all = [Clone(n, directory, task, None, env) for n in range(number)]
        for c in self.all:
            c.command = [str(word) for word in command(c)]

    def start(self):
        for c in self.all:
            c.start()

    def wait(self):
        """Waits until every restore has ended, successfully or not; returns the number of failures."""
        if not wait_until(lambda: all(c.settled() for c in self.all), self.seconds, 0.005):
            raise Failed(f'{sum(not c.settled() for c in self.all)} of {len(self.all)} restores did not end')
        return sum(c.outcome() != 0 for c in self.all)

    def all_end_well(self):
        failed = self.wait()
        if failed:
            bad = next(c for c in self.all if c.status)
            raise Failed(f'{failed} of {len(self.all)} restores failed: {ztlib.log_errors(bad.own / "criu.log")}')

    def verify(self):
        """Lets each clone read and check all of its memory."""
        asked = [c for c in self.all if c.status == 0]
        before = {c: len(c.answer()) for c in asked}
        for c in asked:
            c.ask()
        if not wait_until(lambda: all(len(c.answer()) > before[c] for c in asked), self.seconds):
            raise Failed(f'{sum(len(c.answer()) == before[c] for c in asked)} of {len(asked)} clones say nothing')
        for c in asked:
            if c.answer()[-1] != f'PASS {self.task.digest}':
                raise Failed(f'{c.name}: {c.answer()[-1]}, not PASS {self.task.digest}')
        return len(asked)

    def seconds_taken(self):
        """Time from the first start to the last end."""
        return (max(c.ended_ns for c in self.all) - min(c.started_ns for c in self.all)) / 1e9

    def each(self):
        return sorted((c.ended_ns - c.started_ns) / 1e9 for c in self.all)

    def bytes_read(self):
        return sum(c.read for c in self.all)

    def end(self):
        for c in self.all:
            c.end()
