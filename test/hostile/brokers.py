# SPDX-License-Identifier: GPL-2.0-only
"""What the cases about the broker share."""
from pathlib import Path

PATIENCE = 40           # seconds; the broker's own deadline is 10


def started(scene):
    """A broker that runs; its PID."""
    return scene.device.status()['broker_pid']


def proc(pid, name):
    return Path(f'/proc/{pid}/{name}').read_text()
