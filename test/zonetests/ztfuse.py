# SPDX-License-Identifier: GPL-2.0-only
"""
A file system with one file, `data` if nothing else is said, whose reads last until release(): the kernel holds the reader's pages meanwhile, and
writes to them past its page tables. Spoken to over /dev/fuse, in a thread.
"""
import errno
import os
import stat
import struct
import threading

import ztlib
from ztlib import Skipped

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = \
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29, 36, 42
ROOT, DATA = 1, 2                           # inodes
DIRECT_IO, ASYNC_DIO = 1 << 0, 1 << 15      # flags of an open file, of the connection
ENOENT, ENOSYS = -2, -38
HOUR = 3600                                 # s: names and attributes do not change
SIZE = 1 << 20                              # of the file, bytes
REQUEST_MAX = 1 << 18                       # bytes


class SlowFile:
    def __init__(self, directory, content, name='data', size=SIZE):
        self.directory, self.content, self.name, self.size = directory, bytes([content]), name.encode(), size
        self.reading, self.released = threading.Event(), threading.Event()
        directory.mkdir()
        try:
            self.fd = os.open('/dev/fuse', os.O_RDWR)
        except OSError as e:
            raise Skipped(f'no FUSE here: {e}')
        ztlib.mount('slow', directory, 'fuse', 0, f'fd={self.fd},rootmode=40000,user_id=0,group_id=0')
        self.server = threading.Thread(target=self._serve, daemon=True)
        self.server.start()

    def release(self):
        """Reads that wait are answered, and later ones at once."""
        self.released.set()

    def close(self):
        """All who had it open are gone."""
        self.release()
        ztlib.unmount(self.directory)
        self.server.join(5)

    def _answer(self, unique, data=b'', error=0):
        try:
            os.write(self.fd, struct.pack('=IiQ', 16 + len(data), error, unique) + data)
        except OSError:
            pass        # its reader has gone

    def _attr(self, inode):
        mode, size = (stat.S_IFDIR | 0o755, 0) if inode == ROOT else (stat.S_IFREG | 0o644, self.size)
        return struct.pack('=QQQQQQIIIIIIIIII', inode, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _read(self, unique, offset, size):
        self.reading.set()
        self.released.wait()
        self._answer(unique, self.content * max(0, min(size, self.size - offset)))

    def _serve(self):
        while True:
            try:
                request = os.read(self.fd, REQUEST_MAX)
            except OSError as e:
                if e.errno != errno.ENODEV:
                    continue    # a request that was taken back
                os.close(self.fd)
                return          # unmounted
            _, op, unique, inode = struct.unpack_from('=IIQQ', request)
            body = request[40:]
            if op == INIT:
                major, minor, ahead, flags = struct.unpack_from('=IIII', body)
                self._answer(unique, struct.pack('=IIIIHHII', 7, 31, ahead, flags & ASYNC_DIO, 12, 10, 1 << 17, 1) + bytes(36))
            elif op == LOOKUP:
                found = body.split(b'\0')[0] == self.name
                self._answer(unique, struct.pack('=QQQQII', DATA, 0, HOUR, HOUR, 0, 0) + self._attr(DATA) if found else b'',
                             0 if found else ENOENT)
            elif op == GETATTR:
                self._answer(unique, struct.pack('=QII', HOUR, 0, 0) + self._attr(inode))
            elif op in (OPEN, OPENDIR):
                self._answer(unique, struct.pack('=QII', 0, DIRECT_IO if op == OPEN else 0, 0))
            elif op == READ:
                _, offset, size = struct.unpack_from('=QQI', body)
                threading.Thread(target=self._read, args=(unique, offset, size), daemon=True).start()
            elif op in (RELEASE, RELEASEDIR, FLUSH, READDIR):
                self._answer(unique)
            elif op == STATFS:
                self._answer(unique, struct.pack('=QQQQQIIII', 1, 0, 0, 1, 0, 4096, 255, 4096, 0) + bytes(24))
            elif op not in (FORGET, INTERRUPT, BATCH_FORGET):
                self._answer(unique, error=ENOSYS)
