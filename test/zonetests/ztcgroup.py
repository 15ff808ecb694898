# SPDX-License-Identifier: GPL-2.0-only
"""A new cgroup, of either version, that can be frozen."""
import os
import signal
from pathlib import Path

from memory import Skipped, wait_until


class Cgroup:
    def __init__(self, base, file, on):
        self.file, self.on, self.dir = file, on, Path(base) / f'zns-hibernate-{os.getpid()}'
        self.dir.mkdir()
        if not (self.dir / file).exists():
            self.dir.rmdir()
            raise OSError(f'no {file}')

    @classmethod
    def make(cls):
        for base, file, on in (('/sys/fs/cgroup', 'cgroup.freeze', '1'), ('/sys/fs/cgroup/unified', 'cgroup.freeze', '1'),
                               ('/sys/fs/cgroup/freezer', 'freezer.state', 'FROZEN')):
            try:
                if (Path(base) / 'cgroup.procs').exists():
                    return cls(base, file, on)
            except OSError:
                pass
        raise Skipped('no cgroup can be made here')

    def add(self, pid):
        (self.dir / 'cgroup.procs').write_text(str(pid))

    def freeze(self, on):
        (self.dir / self.file).write_text(self.on if on else '0' if self.on == '1' else 'THAWED')

    def close(self):
        self.freeze(False)
        for pid in (self.dir / 'cgroup.procs').read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: not (self.dir / 'cgroup.procs').read_text(), 'the end of the cgroup')
        wait_until(self.removed, 'the end of the cgroup')

    def removed(self):
        """Tries to remove it: a process that has just ended may still be in it."""
        try:
            self.dir.rmdir()
        except OSError:
            return False
        return True
