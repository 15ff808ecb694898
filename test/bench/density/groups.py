# SPDX-License-Identifier: GPL-2.0-only
"""
The small machine: a control group with limited memory, and in it a group for each container. Uses the version of
cgroups that has the memory controller.
"""
import ctypes
import os
import signal
import time
from pathlib import Path

ROOT = Path('/sys/fs/cgroup')
PREFIX = 'zns-density-'
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def dies_with_us():
    """For preexec_fn."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Groups:
    def __init__(self):
        self.v1 = (ROOT / 'memory/memory.limit_in_bytes').exists()
        base = ROOT / 'memory' if self.v1 else ROOT
        if not self.v1 and 'memory' not in (base / 'cgroup.controllers').read_text().split():
            raise OSError('no memory controller')
        for old in base.glob(f'{PREFIX}*'):         # left by a run that was killed
            if not Path(f'/proc/{old.name.removeprefix(PREFIX)}').exists():
                self.remove(old)
        self.top = base / f'{PREFIX}{os.getpid()}'
        self.top.mkdir()
        if not self.v1:
            for group in (base, self.top):
                (group / 'cgroup.subtree_control').write_text('+memory')

    def _file(self, group, v1, v2):
        return self.top / group / (v1 if self.v1 else v2)

    def make(self, group):
        (self.top / group).mkdir(exist_ok=True)
        return group

    def joins(self, group, stays=False):
        """Makes a preexec_fn: the executed program is in the group, and ends when we do, unless it @stays."""
        path = str(self.top / group / 'cgroup.procs')

        def join():
            if not stays:
                dies_with_us()
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b'0')
            os.close(fd)
        return join

    def limit(self, size, group=''):
        self._file(group, 'memory.limit_in_bytes', 'memory.max').write_text(str(size or (-1 if self.v1 else 'max')))

    def no_swap(self):
        """Sets a value for all groups that are made later."""
        if self.v1:
            (self.top / 'memory.swappiness').write_text('0')
        elif (self.top / 'memory.swap.max').exists():
            (self.top / 'memory.swap.max').write_text('0')

    def usage(self, group=''):
        return int(self._file(group, 'memory.usage_in_bytes', 'memory.current').read_text())

    def reclaim(self, group, size):
        """Reclaims memory as memory.reclaim does. Version 1 has only a limit, and reclaims when it is lowered."""
        try:
            if self.v1:
                self.limit(max(self.usage(group) - size, 4096), group)
            else:
                self._file(group, '', 'memory.reclaim').write_text(str(size))
        except OSError:
            pass        # not all of it could be reclaimed
        if self.v1:
            self.limit(0, group)

    def stat(self, group=''):
        text = self._file(group, 'memory.stat', 'memory.stat').read_text()
        found = {k: int(v) for k, v in (line.split() for line in text.splitlines())}
        return {k: found.get(f'total_{k}', found.get(k, 0)) for k in ('pgfault', 'pgmajfault')}

    def kills(self):
        """Number of processes that were killed for lack of memory."""
        nr = 0
        below = (p for p in self.top.glob('*') if p.is_dir() and self.v1)      # version 2 counts them in the top one
        for path in (self.top, *below):
            text = (path / ('memory.oom_control' if self.v1 else 'memory.events')).read_text()
            nr += sum(int(line.split()[1]) for line in text.splitlines() if line.split()[0] == 'oom_kill')
        return nr

    def pids(self, group):
        return [int(pid) for pid in (self.top / group / 'cgroup.procs').read_text().split()]

    def remove(self, top=None):
        """Waits until all processes have ended, or kills them."""
        top = top or self.top
        for path in (*(p for p in top.glob('*') if p.is_dir()), top):
            for _ in range(200):
                try:
                    path.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                raise OSError(f'{path} has processes still')
