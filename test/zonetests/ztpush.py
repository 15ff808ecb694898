# SPDX-License-Identifier: GPL-2.0-only
"""What the cases of registry.py share."""
import subprocess

from chains import ROOM, Parts, plain_criu
from ztoci import Layout
from ztscene import case_of

CASES = {}
case = case_of(CASES)
PLAIN_PUSH, PLAIN_PULL = ['--', '--dest-tls-verify=false'], ['--', '--src-tls-verify=false']


def scene_with(scene):
    parts = Parts(scene(ROOM, 1))
    tmp = parts.chain.dir / 'tmp'
    tmp.mkdir()
    return parts, tmp, ['--tmp', str(tmp)]


def fetched(parts, tmp, registry, what):
    """Fetches an image with skopeo alone, unpacks it, and restores it with stock CRIU."""
    layout = Layout(parts.chain.dir / f'fetched-{what.replace(":", "-").replace("/", "-")}')
    subprocess.run(['skopeo', 'copy', '--quiet', '--src-tls-verify=false', registry.name(what), f'oci:{layout.path}:x'], check=True)
    parts.restore(layout.unpack('x', layout.path.with_suffix('.unpacked')), cfg=plain_criu(parts.chain.cfg))
