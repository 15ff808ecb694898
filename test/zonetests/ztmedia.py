# SPDX-License-Identifier: GPL-2.0-only
"""The bytes of an emulated device, for tests that damage them."""
import contextlib
import os

CHUNK = 65536


class Media:
    """Reads and writes the bytes of an emulated device's file, by zone and offset."""

    def __init__(self, scene):
        self.path = scene.device.path
        geometry = scene.device.status()['geometry']
        self.zones, self.capacity = geometry['zones'], geometry['zone_capacity']
        self.stride = (self.capacity + 4095) // 4096 * 4096
        self.data = os.path.getsize(self.path) - self.zones * self.stride     # the zones are at the end of the file

    def at(self, zone, offset):
        return self.data + zone * self.stride + offset

    def read(self, zone, offset, n):
        with open(self.path, 'rb') as dev:
            dev.seek(self.at(zone, offset))
            return dev.read(n)

    def write(self, zone, offset, content):
        with open(self.path, 'r+b') as dev:
            os.pwrite(dev.fileno(), content, self.at(zone, offset))

    def flip(self, zone, offset, bit=1):
        self.write(zone, offset, bytes([self.read(zone, offset, 1)[0] ^ bit]))

    def copy_of_metadata(self):
        """Everything before the first data zone (zone tables and metadata zones): {offset: bytes}, without holes."""
        copy, at, end = {}, 0, self.at(3, 0)
        with open(self.path, 'rb') as dev:
            with contextlib.suppress(OSError):          # lseek fails if only a hole follows
                while (at := os.lseek(dev.fileno(), at, os.SEEK_DATA)) < end:
                    at -= at % CHUNK
                    copy[at] = os.pread(dev.fileno(), min(CHUNK, end - at), at)
                    at += CHUNK
        return copy

    def put_back(self, copy):
        """Restores @copy. Writes only what differs, since a test does this after each of a hundred records."""
        now = self.copy_of_metadata()
        with open(self.path, 'r+b') as dev:
            for at in now.keys() | copy.keys():
                was = copy.get(at) or bytes(len(now[at]))
                if now.get(at) != was:
                    os.pwrite(dev.fileno(), was, at)
