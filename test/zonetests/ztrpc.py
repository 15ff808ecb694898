# SPDX-License-Identifier: GPL-2.0-only
"""A client of CRIU's RPC without any library. Field numbers are rpc.proto's."""
import os
import socket
import subprocess

from ztlib import Failed
from ztproto import fields, message

DUMP, PRE_DUMP = 1, 13      # the latter is SINGLE_PRE_DUMP
# field numbers of criu_opts, and of criu_zns_opts in it
IMAGES_DIR_FD, PID, LEAVE_RUNNING, LOG_LEVEL, LOG_FILE, PARENT_IMG, TRACK_MEM, ZNS = 1, 2, 3, 9, 10, 14, 15, 1110
ZNS_CONTAINER, ZNS_PARENT, ZNS_LIVE, ZNS_LIVE_SLOW = 4, 190, 230, 231
CONFIG_FILE = 51
FEATURE_CHECK, FEATURES, MEM_TRACK = 9, 5, 1    # field numbers: the second of criu_req, the third of criu_features


def ask(scene, what, env=None):
    """Sends one request to criu swrk; returns the fields of its answer."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs, open(scene.dir / 'swrk.stderr', 'ab') as err:
            criu = subprocess.Popen([scene.cfg.criu, 'swrk', str(theirs.fileno())], env=env or scene.device.env, stdout=err,
                                    stdin=subprocess.DEVNULL, stderr=err, pass_fds=[theirs.fileno()])
        ours.settimeout(scene.cfg.timeout)
        ours.send(message(what))
        got = fields(ours.recv(65536))
    finally:
        ours.close()
    criu.wait(scene.cfg.timeout)
    said = (scene.dir / 'swrk.stderr').read_text(errors='replace')
    if 'checkpoint ' in said:
        raise Failed(f'a line for users who call criu by hand: {said}')
    return got


def request(scene, kind, images, opts):
    """Sends a request with options; returns (success, cr_errmsg)."""
    directory = os.open(images, os.O_DIRECTORY)
    try:
        got = ask(scene, {1: kind, 2: {IMAGES_DIR_FD: directory, **opts}})
    finally:
        os.close(directory)
    return bool(got.get(2)), got.get(9, b'').decode()


def has_mem_track(scene, env):
    """Does criu say that it has mem_track? runc asks this before a pre-dump."""
    got = ask(scene, {1: FEATURE_CHECK, FEATURES: {MEM_TRACK: 1}}, env)
    return bool(fields(got.get(8, b'')).get(MEM_TRACK))
