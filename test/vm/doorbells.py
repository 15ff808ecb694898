#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
In a guest: rings the doorbells of all NVMe controllers, ten times a second.

QEMU 7.2 reads a queue's shadow doorbell without a barrier behind the mark that it leaves for the driver. So both may believe
that the other one acts, and all requests of the queue wait: the driver has passed the mark, and does not ring for the next ones
either. After 30 s Linux aborts them, then it resets the drive, and gives up passthrough commands. So this writes to the registers
themselves. What it writes does not matter, as QEMU then looks at the shadow. The kernel must run with iomem=relaxed.
"""
import ctypes
import mmap
import os
import sys
import time
from pathlib import Path

FIRST, STRIDE = 0x1000, 8      # of the registers; from one submission queue's to the next one's


def registers(controller):
    """The tail doorbells of its I/O submission queues."""
    queues = int((controller / 'queue_count').read_text())     # the admin queue counts, too
    fd = os.open(controller / 'device/resource0', os.O_RDWR | os.O_SYNC)
    memory = mmap.mmap(fd, os.fstat(fd).st_size)
    os.close(fd)
    return [ctypes.c_uint32.from_buffer(memory, FIRST + STRIDE * q) for q in range(1, queues)]


def main():
    found = [r for c in Path('/sys/class/nvme').glob('nvme*') if (c / 'device/resource0').exists() for r in registers(c)]
    while found:
        for r in found:
            r.value = 0
        time.sleep(0.1)


if __name__ == '__main__':
    sys.exit(main())
