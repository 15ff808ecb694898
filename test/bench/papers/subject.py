# SPDX-License-Identifier: GPL-2.0-only
"""A process with memory that does not compress (test/bench/subject.c): natively, and in guests."""
import os
import signal
import subprocess
import time

LIMIT_S = 900       # an emulated processor makes memory that does not compress


class Process:
    failed = RuntimeError       # exception for an unexpected answer

    def __init__(self, program, directory, name, mib, seed):
        self.name, self.answers = name, directory / f'{name}.answers'
        self.proc = subprocess.Popen([str(program), str(mib), str(seed), str(self.answers)], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.proc.pid
        self.expect('ready')

    def expect(self, word):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if self.answers.exists() and self.answers.read_text().endswith('\n'):
                found = self.answers.read_text().split()[0]
                self.answers.unlink()
                if found != word:
                    raise self.failed(f'{self.name} says "{found}" instead of "{word}"')
                return
            time.sleep(0.005)
        raise self.failed(f'{self.name} does not say "{word}"')

    def kill(self):
        """Dead, and its PID free again: a restore wants it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self.proc.returncode is None:
            self.proc.wait()
        end = time.monotonic() + 30
        while os.path.exists(f'/proc/{self.pid}') and time.monotonic() < end:
            time.sleep(0.01)

    def check(self):
        """After a restore: checks that all of its memory is unchanged."""
        os.kill(self.pid, signal.SIGUSR1)
        self.expect('same')
