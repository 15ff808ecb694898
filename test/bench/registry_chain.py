#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
registry_chain: a chain of checkpoints of a process that writes 1 % of its pages before each, pushed to a registry on this machine one
by one, and the newest pulled: bytes in the registry beside live data. The original is removed then; what was pulled must restore, and
the process finds every page as it was.

  registry_chain.py [--size MB] [--levels N]
"""
import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'zonetests'))
import ztlib                            # noqa: E402
from incremental import bench_scene     # noqa: E402
from ztchain import Chain               # noqa: E402
from ztregistry import Registry         # noqa: E402

MIB = 1 << 20


def chain_of(scene, size, levels):
    chain = Chain(scene, size=size)
    for n in range(levels):
        if n:
            chain.step()
        chain.dump(parent=n - 1 if n else None, extra=['--track-mem', '--leave-running', '--zns-live=no'])
    chain.end_task()
    return chain


def ctl(scene, *args):
    done = subprocess.run([str(scene.cfg.znsctl), *map(str, args)], env=scene.device.env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f'znsctl {" ".join(map(str, args))}: {done.stderr.strip()[-400:]}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--size', type=int, default=1024, metavar='MB')
    parser.add_argument('--levels', type=int, default=5)
    parser.add_argument('--qos', default='500', metavar='MIBPS')
    ztlib.common_options(parser)
    args = parser.parse_args()
    scene = bench_scene(args)
    try:
        chain = chain_of(scene, args.size, args.levels)
        with Registry(scene.dir) as registry:
            live = sent = 0
            for n, ident in enumerate(chain.ids):
                before = registry.bytes()
                ctl(scene, 'push', ident, registry.name(f'lab/chain:v{n}'), '--', '--dest-tls-verify=false')
                got, have = registry.bytes() - before, chain.record(ident)['bytes']
                print(f'level {n}: {have / MIB:8.1f} MiB, sent {got / MIB:8.1f} MiB, {got / have:.4f}', flush=True)
                live, sent = live + have, sent + got
            print(f'all: {sent / live:.4f} of live data')
            handle = chain.dir / 'pulled'
            ctl(scene, 'pull', registry.name(f'lab/chain:v{args.levels - 1}'), '--container', 'pulled', '--handle', handle, '--',
                '--src-tls-verify=false')
        scene.device.remove(*reversed(chain.ids))
        chain.restore(handle)
        print('pulled and restored: every page is as it was')
        chain.end_task()
    finally:
        scene.close()
        scene.cfg.close()


if __name__ == '__main__':
    main()
