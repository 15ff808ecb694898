# SPDX-License-Identifier: GPL-2.0-only
"""Flat protobuf messages, and CRIU's images of them, without a library: test guests have no protobuf for Python."""
import struct

from ztlib import Failed


def _varint(raw, at):
    value = shift = 0
    while True:
        value |= (raw[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 128:
            return value, at


def _put_varint(value):
    out = b''
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(fields):
    """Serializes {number: int or bool, str, bytes, or a dict for a message} as protobuf does."""
    out = b''
    for field, value in fields.items():
        if isinstance(value, int):
            out += _put_varint(field << 3) + _put_varint(int(value))
        else:
            body = message(value) if isinstance(value, dict) else value if isinstance(value, bytes) else value.encode()
            out += _put_varint(field << 3 | 2) + _put_varint(len(body)) + body
    return out


def fields(raw):
    """Parses a message into {number: int or bytes}; of a repeated field only the last value."""
    at, found = 0, {}
    while at < len(raw):
        key, at = _varint(raw, at)
        value, at = _varint(raw, at)
        if key & 7 == 2:
            value, at = raw[at:at + value], at + value
        elif key & 7:
            raise Failed(f'field {key >> 3} is of wire type {key & 7}')
        found[key >> 3] = value
    return found


def image(raw):
    """The messages of an image, as fields() returns them. An image is two magic numbers, then each message behind its size."""
    at, found = 8, []
    while at < len(raw):
        size, = struct.unpack_from('<I', raw, at)
        found.append(fields(raw[at + 4:at + 4 + size]))
        at += 4 + size
    return found


def dump_stats(path):
    """Numbers of criu's stats-dump, {field of dump_stats_entry: number}: 2 is the microseconds frozen, 3 those of the memory's dump."""
    stats, = image(path.read_bytes())
    if 1 not in stats:
        raise Failed(f'{path} is not of a dump')
    return fields(stats[1])


def entry(message_fields):
    """A message with its size, as in an image."""
    body = message(message_fields)
    return struct.pack('<I', len(body)) + body
