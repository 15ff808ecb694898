# SPDX-License-Identifier: GPL-2.0-only
"""Handles and image directories that a user can write.

The image directory belongs to somebody who is not root; criu and znsctl run as root.
"""
import os

from tally import tried
from ztlib import HANDLE
from ztscene import TINY, case_of

CASES = {}
case = case_of(CASES)


@case
def torn_handles(scene):
    """A handle that is cut anywhere, or has more bytes at its end, is refused in one line."""
    scene = scene(TINY, size=1)
    scene.good_dump()
    handle = scene.images / HANDLE
    good = handle.read_bytes()
    for size in (0, 1, 7, len(good) // 2, len(good) - 1):
        handle.write_bytes(good[:size])
        scene.restore_must_fail('handle')
        tried(f'{size} bytes of it')
    for extra in (b'\0', b'x' * 100, os.urandom(1 << 20)):
        handle.write_bytes(good + extra)
        scene.restore_must_fail('handle')
        tried(f'{len(extra)} bytes more')
    handle.write_bytes(good)
    scene.good_restore()
