# SPDX-License-Identifier: GPL-2.0-only
"""
The cases of a suite with a daemon of our own, and what runs them: one daemon serves all, and each case removes what it made.
"""
import sys
import time

import dkdaemon
from dkdaemon import Daemon, Failed, Skipped

CASES = {}


def case(fn):
    CASES[fn.__name__.replace('_', '-')] = fn
    return fn


def remove(d, *names):
    """Containers, and the device's checkpoints of them."""
    d.docker('rm', '-f', *names)
    for n in names:
        d.zctl('rm', '--container', n, check=False)     # the container may have no checkpoint


def contexts(d):
    """Programs whose memory is on zones, by name."""
    return {c['name']: c for c in d.zjson('memory', 'status')['contexts']}


def main(doc):
    """The command line of a suite whose cases are in CASES; its exit code."""
    args = [a for a in sys.argv[1:] if not a.startswith('-')]
    but = next((a[6:].split(',') for a in sys.argv if a.startswith('--but=')), [])
    if args[:1] == ['list']:
        print('\n'.join(CASES))
        return 0
    names = list(CASES) if '-a' in sys.argv else args[1:]
    if args[:1] != ['run'] or not names or any(n not in CASES for n in [*names, *but]):
        print(doc.strip(), file=sys.stderr)
        return 2
    names = [n for n in names if n not in but]
    if '--no-ferretdb' in sys.argv:
        dkdaemon.ferretdb_missing = 'FerretDB was left out'
    passed = failed = skipped = 0
    with Daemon(keep='--keep' in sys.argv) as d:
        d.make_image()
        for name in names:
            start = time.monotonic()
            try:
                CASES[name](d)
                passed += 1
                print(f'PASS {name} ({time.monotonic() - start:.1f} s)', flush=True)
            except Skipped as e:
                skipped += 1
                print(f'SKIP {name}: {e}', flush=True)
            except Exception as e:       # one case that fails must not hide the others
                failed += 1
                print(f'FAIL {name}: {type(e).__name__ if not isinstance(e, Failed) else ""} {e}', flush=True)
                try:
                    ids = d.docker('ps', '-aq', check=False).stdout.split()
                    if ids:
                        d.docker('rm', '-f', *ids, check=False)
                    d.zctl('release', 'normal-io', check=False)
                    d.zctl('rm', '--all', check=False)
                except Exception as worse:
                    print(f'     and cannot be cleaned up: {worse}', flush=True)
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return failed > 0
