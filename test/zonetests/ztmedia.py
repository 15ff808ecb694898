# SPDX-License-Identifier: GPL-2.0-only
"""The bytes of an emulated device, for tests that damage them."""
import os


class Media:
    """The bytes behind the emulator, by zone and offset."""

    def __init__(self, scene):
        self.path = scene.device.path
        geometry = scene.device.status()['geometry']
        self.zones, self.capacity = geometry['zones'], geometry['zone_capacity']
        self.stride = (self.capacity + 4095) // 4096 * 4096
        self.data = os.path.getsize(self.path) - self.zones * self.stride     # the zones are the file's end

    def at(self, zone, offset):
        return self.data + zone * self.stride + offset

    def read(self, zone, offset, n):
        with open(self.path, 'rb') as dev:
            dev.seek(self.at(zone, offset))
            return dev.read(n)

    def write(self, zone, offset, content):
        with open(self.path, 'r+b') as dev:
            os.pwrite(dev.fileno(), content, self.at(zone, offset))
            os.fsync(dev.fileno())

    def flip(self, zone, offset, bit=1):
        self.write(zone, offset, bytes([self.read(zone, offset, 1)[0] ^ bit]))

    def copy_of_metadata(self):
        """The file up to the first data zone: zone tables and metadata zones."""
        with open(self.path, 'rb') as dev:
            return dev.read(self.at(3, 0))

    def put_back(self, copy):
        with open(self.path, 'r+b') as dev:
            dev.write(copy)
