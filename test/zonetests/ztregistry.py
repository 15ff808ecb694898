# SPDX-License-Identifier: GPL-2.0-only
"""Debian's docker-registry on this machine."""
import contextlib
import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

from ztlib import Failed, Skipped, wait_until


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Registry:
    """Of this machine, without TLS."""

    def __init__(self, directory):
        for program in ('skopeo', 'docker-registry'):
            if not shutil.which(program):
                raise Skipped(f'no {program} here: make registry installs it')
        self.store, self.port = Path(directory) / 'store', free_port()
        config = Path(directory) / 'registry.yml'
        config.write_text(f'version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.store}}}}}\n'
                          f'http: {{addr: "127.0.0.1:{self.port}"}}\n')
        self.log = open(Path(directory) / 'registry.log', 'wb')
        self.proc = subprocess.Popen(['docker-registry', 'serve', config], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not wait_until(self.answers, 20):
            raise Failed('the registry does not answer')

    def answers(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(f'http://127.0.0.1:{self.port}/v2/', timeout=2) as got:
            return got.status == 200
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.kill()
        self.proc.wait()
        self.log.close()

    def name(self, what):
        return f'docker://127.0.0.1:{self.port}/{what}'

    def bytes(self):
        return sum(p.stat().st_size for p in self.store.rglob('data') if p.is_file())
