# SPDX-License-Identifier: GPL-2.0-only
"""
Forged records: messages taken apart and put together by field, frames with right checksums, written into the emulator's
file in place of what stands there (Documentation/inside/format.md). Nothing of the product is used for it.
"""
import ctypes
import struct

from ztlib import Failed

BLOCK, HEADER = 4096, 48
MAGIC = b'ZNSCRIU1'
SUPERBLOCK, PROFILE, CHECKPOINT, TOMBSTONE, RESERVATION, RELEASE, SNAPSHOT_END, MANIFEST, FOOTER, HANDLE = range(1, 11)
RETENTION, MARK, MOUNT, ENCRYPTION, KEY_LINE, MOVED, FIRST = 32, 33, 44, 70, 71, 80, 190

_xxh = ctypes.CDLL('libxxhash.so.0')
_xxh.XXH3_64bits.restype = ctypes.c_uint64
_xxh.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh3(data):
    return _xxh.XXH3_64bits(bytes(data), len(data))


# ---- messages: lists of (field number, value); a value is an int (varint), bytes, or Fixed ----

class Fixed(bytes):
    """4 or 8 bytes that stand as they are."""


def varint(value):
    value &= (1 << 64) - 1
    out = b''
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def zigzag(value):
    return (value << 1) ^ (value >> 63)


def double(value):
    return Fixed(struct.pack('<d', value))


def pack(fields):
    out = b''
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, Fixed):
            out += varint(number << 3 | (1 if len(value) == 8 else 5)) + value
        elif isinstance(value, list):
            inner = pack(value)
            out += varint(number << 3 | 2) + varint(len(inner)) + inner
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def unpack(data):
    fields, at = [], 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 128:
                return value
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            fields.append((tag >> 3, number()))
            continue
        length = {1: 8, 5: 4}.get(tag & 7) or number()
        content = data[at:at + length]
        fields.append((tag >> 3, content if tag & 7 == 2 else Fixed(content)))
        at += length
    return fields


def get(fields, number):
    return next((v for n, v in fields if n == number), None)


def having(fields, number, *values):
    """The message with these values of the field instead of its own; without values the field is left out."""
    kept = [(n, v) for n, v in fields if n != number]
    return kept + [(number, v) for v in values]


# ---- frames ----

def frame(kind, payload, generation=0, seq=0, version=1, length=None):
    head = MAGIC + struct.pack('<HHIQQ', kind, version, len(payload) if length is None else length, generation, seq)
    head += struct.pack('<Q', xxh3(head))
    return head + struct.pack('<Q', xxh3(head + bytes(8) + payload)) + payload


class Found:
    """A frame as it stands on the device."""

    def __init__(self, media, zone, offset):
        self.media, self.zone, self.offset = media, zone, offset
        head = media.read(zone, offset, HEADER)
        self.kind, self.version, self.length, self.generation, self.seq = struct.unpack_from('<HHIQQ', head, 8)
        self.payload = media.read(zone, offset + HEADER, self.length)
        self.fields = unpack(self.payload)
        self.room = -(-(HEADER + self.length) // BLOCK) * BLOCK

    def put(self, fields=None, payload=None, **header):
        """The forged one in its place: as many blocks, right checksums. Its frame."""
        payload = pack(fields) if payload is None else payload
        header = {'generation': self.generation, 'seq': self.seq, 'kind': self.kind, 'version': self.version, **header}
        made = frame(header.pop('kind'), payload, **header)
        if len(made) > self.room:
            raise Failed(f'a forged record of {len(made)} bytes does not fit into {self.room}')
        self.media.write(self.zone, self.offset, made + bytes(self.room - len(made)))
        return made


def records(media, zone):
    """All frames of a metadata zone, in order."""
    found, offset = [], 0
    while offset < media.capacity and media.read(zone, offset, 8) == MAGIC:
        found.append(Found(media, zone, offset))
        offset += found[-1].room
    return found


def log(media, zones=3):
    """The frames of the newest generation."""
    return max((r for r in (records(media, z) for z in range(zones)) if r), key=lambda r: r[0].generation)


def put_manifest(media, zone, offset, fields):
    """A forged manifest in place of the one there, and the footer behind it made to fit; its extent_ref as fields."""
    old = Found(media, zone, offset)
    made = old.put(fields)
    foot = Found(media, zone, offset + old.room)
    if foot.kind != FOOTER:
        raise Failed(f'no footer behind the manifest of zone {zone}')
    place = [(1, zone), (2, offset), (3, len(made)), (4, Fixed(struct.pack('<Q', xxh3(made))))]
    foot.put(having(having(foot.fields, 4, len(made)), 5, place[3][1]))
    return place
