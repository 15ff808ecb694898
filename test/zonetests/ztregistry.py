# SPDX-License-Identifier: GPL-2.0-only
"""Debian's docker-registry on this machine."""
import contextlib
import shutil
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

from ztlib import Failed, Skipped, wait_until


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Registry:
    """A registry on this machine, without TLS."""

    def __init__(self, directory):
        for program in ('skopeo', 'docker-registry'):
            if not shutil.which(program):
                raise Skipped(f'no {program} here: make registry installs it')
        self.store, self.port = Path(directory) / 'store', free_port()
        self.config = Path(directory) / 'registry.yml'
        self.config.write_text(f'version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.store}}}}}\n'
                               f'http: {{addr: "127.0.0.1:{self.port}"}}\n')
        self.log = open(Path(directory) / 'registry.log', 'wb')
        self.start()

    def start(self):
        """Starts the registry, also again after a kill."""
        self.proc = subprocess.Popen(['docker-registry', 'serve', self.config], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not wait_until(self.answers, 20):
            raise Failed('the registry does not answer')

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def answers(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(f'http://127.0.0.1:{self.port}/v2/', timeout=2) as got:
            return got.status == 200
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.log.close()

    def name(self, what):
        return f'docker://127.0.0.1:{self.port}/{what}'

    def layers(self, least):
        """{digest: bytes} of the complete blobs in the registry, of @least bytes or more."""
        at = self.store / 'docker/registry/v2/blobs/sha256'
        return {p.parent.name: p.stat().st_size for p in at.glob('*/*/data') if p.stat().st_size >= least}

    def bytes(self):
        return sum(p.stat().st_size for p in self.store.rglob('data') if p.is_file())


class Wire:
    """A proxy between a client and the registry that counts bytes to the registry (`up`) and from it (`down`). When
    one count reaches a number, an action is called once."""

    def __init__(self, registry):
        self.registry, self.lock, self.counts, self.when = registry, threading.Lock(), {'up': 0, 'down': 0}, None
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def name(self, what):
        return f'docker://127.0.0.1:{self.port}/{what}'

    def at(self, way, count, action):
        """Sets the action: call @action when @count bytes went @way. Resets the counts."""
        with self.lock:
            self.counts, self.when = {'up': 0, 'down': 0}, (way, count, action)

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                try:
                    server = socket.create_connection(('127.0.0.1', self.registry.port))
                except OSError:
                    client.close()
                    continue
                for way, source, to in (('up', client, server), ('down', server, client)):
                    threading.Thread(target=self.relay, args=(way, source, to), daemon=True).start()

    def relay(self, way, source, to):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                self.count(way, len(data))
                to.sendall(data)
        for s in (source, to):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def count(self, way, size):
        action = None
        with self.lock:
            self.counts[way] += size
            if self.when and way == self.when[0] and self.counts[way] >= self.when[1]:
                action, self.when = self.when[2], None
        if action:
            action()

    def close(self):
        # shutdown, since close would not wake the thread that waits for clients
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
