#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
Runs unit programs, several at a time, and shows each one's output when it has ended. Exit code 1 if any failed.

  units.py [-j N] PROGRAM...
"""
import argparse
import concurrent.futures
import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

# A program that hangs would take the rest of make test with it.
LIMIT_S = 900
# These programs stop and freeze processes, and wait for threads: they run one at a time, with nothing beside them.
ALONE = ('test_mem', 'test_track')


def where(session):
    """Threads of a session, and what each waits for in the kernel."""
    lines = []
    for task in sorted(glob.glob('/proc/[0-9]*/task/[0-9]*')):
        with contextlib.suppress(OSError, ValueError):
            with open(f'{task}/stat') as f:
                name, rest = f.read().split('(', 1)[1].rsplit(')', 1)
            if int(rest.split()[3]) != session:
                continue
            with open(f'{task}/stack') as f:
                calls = [line.split()[1].split('+')[0] for line in f]
            lines.append(f'hangs: {task[6:]} {name} {rest.split()[0]} {" < ".join(calls[:6])}\n')
    return ''.join(lines)


def run(program, lock):
    """Runs a program and shows its output; True if it passed."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        # A file and not a pipe: a process that a failed program left behind would keep a pipe open. It is killed, too.
        child = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            code = child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = f'none within {LIMIT_S} s'
            out.seek(0, os.SEEK_END)
            out.write(where(child.pid).encode())
            out.flush()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        out.seek(0)
        text = out.read()
    with lock:
        sys.stdout.buffer.write(text)
        if text and not text.endswith(b'\n'):
            sys.stdout.buffer.write(b'\n')
        if code:
            sys.stdout.buffer.write(f'not ok - {os.path.basename(program)}: exit code {code}\n'.encode())
        sys.stdout.flush()
        print(f'{os.path.basename(program)}: {time.monotonic() - start:.1f} s', file=sys.stderr, flush=True)
    return code == 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('-j', type=int, default=os.cpu_count() or 1, metavar='N', dest='jobs')
    p.add_argument('programs', nargs='+', metavar='PROGRAM')
    a = p.parse_args()
    lock = threading.Lock()
    alone = [p for p in a.programs if os.path.basename(p).startswith(ALONE)]
    together = [p for p in a.programs if p not in alone]
    passed = [run(program, lock) for program in alone]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        passed += pool.map(lambda program: run(program, lock), together)
    return not all(passed)


if __name__ == '__main__':
    sys.exit(main())
