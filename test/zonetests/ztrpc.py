# SPDX-License-Identifier: GPL-2.0-only
"""A client of CRIU's RPC without any library. Field numbers are rpc.proto's."""
import os
import socket
import subprocess

from ztproto import fields, message

DUMP, PRE_DUMP = 1, 13      # the latter: SINGLE_PRE_DUMP
# criu_opts, and in it criu_zns_opts
IMAGES_DIR_FD, PID, LEAVE_RUNNING, LOG_LEVEL, LOG_FILE, PARENT_IMG, TRACK_MEM, ZNS = 1, 2, 3, 9, 10, 14, 15, 1110
ZNS_CONTAINER, ZNS_PARENT = 4, 190


def request(scene, kind, images, opts):
    """One request to criu swrk; (success, cr_errmsg)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory = os.open(images, os.O_DIRECTORY)
    try:
        with theirs, open(scene.dir / 'swrk.stderr', 'ab') as err:
            criu = subprocess.Popen([scene.cfg.criu, 'swrk', str(theirs.fileno())], env=scene.device.env, stdout=err,
                                    stdin=subprocess.DEVNULL, stderr=err, pass_fds=[theirs.fileno()])
        ours.settimeout(scene.cfg.timeout)
        ours.send(message({1: kind, 2: {IMAGES_DIR_FD: directory, **opts}}))
        got = fields(ours.recv(65536))
    finally:
        ours.close()
        os.close(directory)
    criu.wait(scene.cfg.timeout)
    return bool(got.get(2)), got.get(9, b'').decode()
