# SPDX-License-Identifier: GPL-2.0-only
"""Runs in a guest: files whose fragments lie a given distance apart, where they really are, and readers that bypass the page cache."""
import fcntl
import mmap
import os
import struct
import time

KIB = 1 << 10
FIEMAP, EXTENTS = 0xC020660B, 512       # linux/fiemap.h
SYNC, LAST = 1, 1


def buffer(size):
    """A buffer that is aligned, as O_DIRECT needs it, and not zero."""
    memory = mmap.mmap(-1, size)
    memory.write(os.urandom(4096) * (size // 4096))
    return memory


def append(fd, data, at):
    if os.pwrite(fd, data, at) != len(data):
        raise OSError(f'a short write at {at}')


def interleave(path, other, size, fragment, distance, content=None):
    """
    @path gets @size bytes in fragments whose beginnings are @distance apart: O_DIRECT appends to it and to @other in turns.
    With distance == fragment nothing comes between: a whole file. @content: of the file; else any bytes.
    """
    mine, theirs = buffer(fragment), buffer(distance - fragment) if distance > fragment else None
    a = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_DIRECT, 0o600)
    b = os.open(other, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_DIRECT, 0o600) if theirs else None
    for i in range(size // fragment):
        if content:
            mine[:] = content[i * fragment:(i + 1) * fragment]
        append(a, mine, i * fragment)
        if theirs:
            append(b, theirs, i * len(theirs))
    for fd in (a, b):
        if fd is not None:
            os.fsync(fd)
            os.close(fd)


def extents(path):
    """Returns [(offset in the file, offset on the drive, length)], with adjacent extents merged."""
    found, at, fd = [], 0, os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        while at < size:
            ask = bytearray(struct.pack('<QQIIII', at, size - at, SYNC, 0, EXTENTS, 0) + bytes(56 * EXTENTS))
            fcntl.ioctl(fd, FIEMAP, ask)
            nr, flags = struct.unpack_from('<I', ask, 20)[0], 0
            for i in range(nr):
                logical, physical, length, _, _, flags = struct.unpack_from('<QQQQQI', ask, 32 + 56 * i)
                at = logical + length
                if found and sum(found[-1][::2]) == logical and found[-1][1] + found[-1][2] == physical:
                    found[-1] = (*found[-1][:2], found[-1][2] + length)
                else:
                    found.append((logical, physical, length))
            if not nr or flags & LAST:
                break
    finally:
        os.close(fd)
    return found


def described(path):
    """How many pieces a file has, and how often each distance between two beginnings occurs, the most frequent first."""
    found, apart = extents(path), {}
    for (_, a, _), (_, b, _) in zip(found, found[1:]):
        apart[b - a] = apart.get(b - a, 0) + 1
    return {'pieces': len(found), 'bytes': sum(e[2] for e in found), 'apart': sorted(apart.items(), key=lambda kv: -kv[1])[:4]}


def read_for(path, bs, seconds, order=None):
    """
    MiB/s of O_DIRECT reads of @bs, one at a time, around and around, in file order or by @order (a random.Random); and
    how many there were. The first does not count: it may find the drive still writing.
    """
    fd, memory = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, bs)
    places, nr, i = [k * bs for k in range(os.fstat(fd).st_size // bs)], 0, 0
    if order:
        order.shuffle(places)
    os.preadv(fd, [memory], places[-1])
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or nr < 4:
        os.preadv(fd, [memory], places[i])
        i = (i + 1) % len(places)
        nr += 1
    took = time.monotonic() - begin
    os.close(fd)
    return nr * bs / (1 << 20) / took, nr
