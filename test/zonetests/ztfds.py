# SPDX-License-Identifier: GPL-2.0-only
"""Descriptors of other processes, which may close them at any time."""
import os


def descriptors(pid):
    """[(number, what it leads to)] of a process's descriptors; one that was closed meanwhile is left out."""
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            yield int(fd), os.readlink(f'/proc/{pid}/fd/{fd}')
        except FileNotFoundError:
            continue


def hot_bytes(broker_pid):
    """Bytes of the memory that znsd now shares with restores; None: it has none."""
    for fd, link in descriptors(broker_pid):
        if 'memfd:zns-hot' in link:
            try:
                return os.stat(f'/proc/{broker_pid}/fd/{fd}').st_blocks * 512
            except FileNotFoundError:
                continue
    return None
