# SPDX-License-Identifier: GPL-2.0-only
"""
A file system with one file (`data` by default) whose reads are not answered before release(). Meanwhile the kernel
holds the reader's pages, and later writes to them without their page tables. A thread serves it over /dev/fuse.
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
ROOT, DATA = 1, 2                           # inode numbers
DIRECT_IO, ASYNC_DIO = 1 << 0, 1 << 15      # flags: of an open file, of the connection
ENOENT, ENOSYS = -2, -38
HOUR = 3600                                 # seconds for which names and attributes stay valid
SIZE = 1 << 20                              # size of the file in bytes
REQUEST_MAX = 1 << 18                       # bytes of the longest request

# A program of 96 MiB that maps a page of the first file. On SIGUSR1 it maps the second file over its last page.
UNANSWERED = """
import ctypes, mmap, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
READ_WRITE, PRIVATE, FIXED, SIZE = 3, 2, 16, 96 << 20

def put(at, path, size):
    fd = os.open(path, os.O_RDONLY)
    got = libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(size), READ_WRITE, PRIVATE | (FIXED if at else 0), fd, ctypes.c_long(0))
    os.close(fd)
    if got == ctypes.c_void_p(-1).value:
        sys.exit('no mmap')
    return got

own = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
own.write(b'x' * SIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(own))
ctypes.memset(put(0, sys.argv[1], 1 << 20), 1, 1)
signal.signal(signal.SIGUSR1, lambda *_: (put(start + SIZE - 4096, sys.argv[2], 4096), print('put', flush=True)))
print('ready', flush=True)
while True:
    signal.pause()
"""


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
        """Answers the reads that wait, and from now on all others at once."""
        self.released.set()

    def close(self):
        """Call it when no process has the file open."""
        self.release()
        ztlib.unmount(self.directory)
        self.server.join(5)

    def _answer(self, unique, data=b'', error=0):
        try:
            os.write(self.fd, struct.pack('=IiQ', 16 + len(data), error, unique) + data)
        except OSError:
            pass        # the reader has closed the file

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
                    continue    # a request that was interrupted
                os.close(self.fd)
                return          # the file system was unmounted
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
