#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
run.py: the patches of criu/patches/upstream, each alone on a release of CRIU, and what it mends.

  run.py [NAME...]      all of them, or some; builds below build/upstream

Of each the test must fail with stock CRIU and pass with the patch. Zones have no part in it.
"""
import contextlib
import ctypes
import mmap
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / 'build' / 'upstream'
ZONETESTS = REPO / 'test' / 'zonetests'
AREA = 256 << 30            # its page map takes 512 MiB
MOST_RSS = 200 << 20
KILLS = 200
GROUPS = 8
START_S = 0.06              # criu tests the kernel's features in this time


def build(name):
    """Builds a criu with this patch only ('stock': without any); returns its path."""
    tree = BUILD / name
    criu = tree / 'criu' / 'criu'
    patch = REPO / 'criu' / 'patches' / 'upstream' / f'{name}.patch'
    if criu.exists() and (name == 'stock' or criu.stat().st_mtime > patch.stat().st_mtime):
        return criu
    BUILD.mkdir(parents=True, exist_ok=True)
    how = ['--plain'] if name == 'stock' else ['--only', f'upstream/{name}.patch']
    subprocess.run([REPO / 'scripts' / 'fetch-criu', *how, tree], check=True)
    with open(BUILD / f'{name}.log', 'wb') as log:
        subprocess.run(['make', '-C', tree, f'-j{os.cpu_count()}', 'criu'], stdout=log, stderr=log, check=True)
    return criu


def suite(script, *args):
    """Runs a case of another suite; True if it passed."""
    done = subprocess.run([sys.executable, ZONETESTS / script, 'run', *args], stdout=subprocess.PIPE, text=True)
    print('   ', '\n    '.join(line for line in done.stdout.splitlines() if line.startswith(('PASS', 'FAIL'))))
    return done.returncode == 0


def read_errors(criu):
    return suite('errors.py', 'short-plain-images', '--criu', criu, '--timeout', '10')


def shared_memory_numbers(criu):
    return suite('zonetests.py', 'shmclash', '-f', 'ns', '--stock', '--criu', criu)


def sleeper():
    """A child with a large area of addresses and hardly any memory; its pid."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        if os.read(ready, 1) != b'+':
            raise SystemExit('the area could not be mapped')
        os.close(ready)
        return pid
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    noreserve = 0x4000
    area = libc.mmap(None, ctypes.c_size_t(AREA), mmap.PROT_READ | mmap.PROT_WRITE,
                     mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve, -1, ctypes.c_long(0))
    if area != ctypes.c_void_p(-1).value:
        os.write(tell, b'+')
    null = os.open('/dev/null', os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 100)
    while True:
        signal.pause()


def window_of_pagemap(criu):
    """Fault 135 of criu: as on a kernel without PAGEMAP_SCAN."""
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        pid = sleeper()
        try:
            dump = subprocess.Popen([criu, 'dump', '-t', str(pid), '-D', directory, '-o', 'log', '--leave-running'],
                                    env=dict(os.environ, CRIU_FAULT='135'), stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(dump.pid, 0)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    code, rss = os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10
    print(f'    dump of {AREA >> 30} GiB of addresses: exit {code}, {rss >> 20} MiB of memory')
    return code == 0 and rss < MOST_RSS


def children_named_criu():
    """Processes called criu that their parent has left to init or to this one."""
    found = []
    for stat in (p / 'stat' for p in Path('/proc').glob('[0-9]*')):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if text[text.index('(') + 1:text.rindex(')')] == 'criu' and text[text.rindex(')') + 2] != 'Z':
            found.append(int(stat.parent.name))
    return found


def feature_test_children(criu):
    """criu is killed at any moment of its start; no process of it may stay."""
    before = set(children_named_criu())
    left = set()
    for _ in range(KILLS):
        check = subprocess.Popen([criu, 'check', '--no-default-config'], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0, START_S))
        check.kill()
        check.wait()
        time.sleep(0.05)        # what dies with it has died
        stay = set(children_named_criu()) - before
        left |= stay
        for pid in stay:
            os.kill(pid, signal.SIGKILL)
    print(f'    {len(left)} children left behind by {KILLS} that were killed')
    return not left


def killed_task(criu):
    """A task with threads is killed before criu's Nth wait for it, some of which are for its main thread: no dump waits for ever."""
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        here = Path(directory)
        lib = here / 'killwait.so'
        subprocess.run(['gcc', '-shared', '-fPIC', '-o', lib, ZONETESTS / 'preload' / 'killwait.c', '-ldl'], check=True)
        for nth in range(1, 16):
            images = here / str(nth)
            images.mkdir()
            task = subprocess.Popen([ZONETESTS.parents[1] / 'build' / 'zonetests' / 'threads', '--dir', images], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            while not (images / 'ready').exists():
                time.sleep(0.01)
            try:
                subprocess.run([criu, 'dump', '-t', str(task.pid), '-D', images, '--leave-running'], stderr=subprocess.DEVNULL, timeout=20,
                               env=dict(os.environ, LD_PRELOAD=str(lib), KILL_WAIT=f'{nth} {task.pid}'))
            except subprocess.TimeoutExpired:
                print(f'    killed before wait {nth}: the dump does not end')
                return False
            finally:
                task.kill()
                task.wait()
    return True


def stopped_and_frozen(criu):
    """A stopped task in a freezer of cgroup v1 does not let a dump wait for ever."""
    group = Path('/sys/fs/cgroup/freezer') / f'upstream-{os.getpid()}'
    group.mkdir()
    state = group / 'freezer.state'
    tasks = [subprocess.Popen(['sleep', '1000'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) for _ in range(2)]
    for t in tasks:
        (group / 'cgroup.procs').write_text(str(t.pid))
    os.kill(tasks[1].pid, signal.SIGSTOP)
    os.waitid(os.P_PID, tasks[1].pid, os.WSTOPPED | os.WNOWAIT)
    with tempfile.TemporaryDirectory(prefix='upstream-') as images:
        dump = subprocess.Popen([criu, 'dump', '-t', str(tasks[0].pid), '-D', images, '--freeze-cgroup', group, '--leave-running'],
                                stderr=subprocess.DEVNULL)
        try:
            got = dump.wait(20) == 0
        except subprocess.TimeoutExpired:
            print(f'    the dump does not end, and the cgroup is {state.read_text().strip()}')
            got = False
        state.write_text('THAWED')      # or it cannot even be killed
        dump.kill()
        dump.wait()
    for t in tasks:
        t.kill()
        t.wait()
    group.rmdir()
    return got


def ended_threads(criu):
    """A task with threads is killed before the wait in which its restorer is unmapped: criu does not crash."""
    last = 46
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        here = Path(directory)
        lib = here / 'killwait.so'
        subprocess.run(['gcc', '-shared', '-fPIC', '-o', lib, ZONETESTS / 'preload' / 'killwait.c', '-ldl'], check=True)
        task = dumped(criu, 'threads', here)
        done = subprocess.run([criu, 'restore', '-D', here, '-d', '-o', 'restore.log'], stderr=subprocess.PIPE, text=True, timeout=60,
                              env=dict(os.environ, LD_PRELOAD=str(lib), KILL_WAIT=f'{last} {task}'))
        print(f'    {done.stderr.strip()}: exit {done.returncode}')
        return done.returncode == 1 and f'killed before wait {last}' in done.stderr


STOP = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-restore ] && kill -STOP %(pid)d && sleep 0.1 && kill -CONT %(pid)d && sleep 0.1
exit 0
"""


def dumped(criu, program, here):
    """The pid of this program, which was dumped into this directory."""
    task = subprocess.Popen([ZONETESTS.parents[1] / 'build' / 'zonetests' / program, '--dir', here], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (here / 'ready').exists():
        time.sleep(0.01)
    subprocess.run([criu, 'dump', '-t', str(task.pid), '-D', here, '-o', 'dump.log'], check=True, stderr=subprocess.DEVNULL)
    task.wait()
    return task.pid


def restored_lazily(criu, program, script='#!/bin/sh\n'):
    """Dumps this program and restores it lazily, with a script that can stop the daemon: returns the exit codes of both, and the restore's
    log.
    """
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        here = Path(directory)
        task = dumped(criu, program, here)
        daemon = subprocess.Popen([criu, 'lazy-pages', '-D', here, '-o', 'lazy.log'], stderr=subprocess.DEVNULL)
        while not (here / 'lazy-pages.socket').exists():
            time.sleep(0.01)
        action = here / 'action'
        action.write_text(script % {'pid': daemon.pid} if '%' in script else script)
        action.chmod(0o700)
        code = subprocess.run([criu, 'restore', '-D', here, '-d', '-o', 'restore.log', '-v4', '--lazy-pages', '--action-script', action],
                              stderr=subprocess.DEVNULL).returncode
        log = (here / 'restore.log').read_text(errors='replace')
        daemon.kill() if code else daemon.wait()
        if not code:
            os.kill(task, signal.SIGKILL)
    return code, daemon.wait(), log


def lazy_stack_page(criu):
    """A lazy restore of a task whose stack pointer is a multiple of the page size: its memory does not come before it is asked for."""
    code, _, log = restored_lazily(criu, 'stackedge')
    skipped = log.count('Lazy restore skips')
    print(f'    restore: exit {code}, {skipped} runs of pages left to the daemon')
    return code == 0 and skipped > 0


def interrupted_poll(criu):
    """A lazy-pages daemon is stopped and goes on, while it waits for the end of the restore."""
    code, daemon, _ = restored_lazily(criu, 'bigmem', STOP)
    print(f'    restore: exit {code}; the daemon: {daemon}')
    return code == 0 and daemon == 0


def limit_of_descriptors(criu):
    """A dump without -o and without CAP_SYS_RESOURCE prints nothing about the limit."""
    without = ['setpriv', '--bounding-set', '-sys_resource', '--inh-caps', '-sys_resource']
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        pid = sleeper()
        try:
            done = subprocess.run([*without, criu, 'dump', '-t', str(pid), '-D', directory, '--leave-running'], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    print(f'    dump: exit {done.returncode}, says: {done.stdout!r}')
    return done.returncode == 0 and not done.stdout


def in_namespaces(host):
    """A task in a UTS and an IPC namespace of its own, with this host name."""
    task = subprocess.Popen(['unshare', '-u', '-i', 'sh', '-c', f'hostname {host}; exec sleep infinity'], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while Path(f'/proc/{task.pid}/comm').read_text() != 'sleep\n':
        if task.poll() is not None:
            raise SystemExit('unshare cannot make a UTS and an IPC namespace')
        time.sleep(0.01)
    return task


def joined_namespaces(criu):
    """--join-ns: the owner of the namespace keeps its host name."""
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        task, owner = in_namespaces('dumped'), in_namespaces('owner')
        try:
            subprocess.run([criu, 'dump', '-t', str(task.pid), '-D', directory, '-o', 'dump.log'], check=True, stderr=subprocess.DEVNULL)
            task.wait()
            subprocess.run([criu, 'restore', '-d', '-D', directory, '-o', 'restore.log', '--join-ns', f'uts:/proc/{owner.pid}/ns/uts', '--join-ns',
                            f'ipc:/proc/{owner.pid}/ns/ipc'], check=True, stderr=subprocess.DEVNULL)
            host = subprocess.check_output(['nsenter', '-t', str(owner.pid), '-u', 'hostname'], text=True).strip()
        finally:
            owner.kill()
            owner.wait()
            with contextlib.suppress(ProcessLookupError):
                os.kill(task.pid, signal.SIGKILL)       # it, or what was restored of it
    print(f'    the host name of the owner is {host}')
    return host == 'owner'


def tree_in_groups(base):
    """A task with children, each in a control group of its own below @base; its pid."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        if os.read(ready, 1) != b'+':
            raise SystemExit('the tasks cannot be put into groups')
        os.close(ready)
        return pid
    os.setsid()
    null = os.open('/dev/null', os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for n in range(GROUPS):
        child = os.fork()
        if not child:
            os.closerange(3, 100)
            while True:
                signal.pause()
        group = base / str(n)
        group.mkdir()
        (group / 'cgroup.procs').write_text(str(child))
    os.write(tell, b'+')
    os.closerange(3, 100)
    while True:
        signal.pause()


def cgroups_walked_once(criu):
    """Tasks in groups of one hierarchy: of every other hierarchy the root is listed once."""
    found = [p for p in ('/sys/fs/cgroup/unified', '/sys/fs/cgroup/freezer') if os.path.exists(f'{p}/cgroup.procs')]
    if not found:
        raise SystemExit('needs hierarchies of cgroup v1 beside the one of the groups')
    base = Path(tempfile.mkdtemp(prefix='upstream-', dir=found[0]))
    with tempfile.TemporaryDirectory(prefix='upstream-') as directory:
        pid = tree_in_groups(base)
        kids = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
        done = subprocess.run([criu, 'dump', '-t', str(pid), '-D', directory, '-o', 'log', '-v4', '--leave-running'], stderr=subprocess.DEVNULL)
        log = (Path(directory) / 'log').read_text(errors='replace')
        for each in (*map(int, kids), pid):
            os.kill(each, signal.SIGKILL)
        os.waitpid(pid, 0)
        for group in [*filter(Path.is_dir, base.iterdir()), base]:
            while group.is_dir():
                try:
                    group.rmdir()
                except OSError:     # a task is about to leave
                    time.sleep(0.01)
    roots = len(re.findall(r'adding cgroup /proc/self/fd/\d+$', log, re.M))
    most = len(Path('/proc/self/cgroup').read_text().splitlines())
    print(f'    dump: exit {done.returncode}; {roots} roots of {most} hierarchies were listed for {GROUPS} groups')
    return done.returncode == 0 and roots <= most


TESTS = {'cgroups-walked-once': cgroups_walked_once, 'ended-threads': ended_threads, 'feature-test-children': feature_test_children,
         'interrupted-poll': interrupted_poll, 'joined-namespaces': joined_namespaces, 'killed-task': killed_task, 'lazy-stack-page': lazy_stack_page,
         'limit-of-descriptors': limit_of_descriptors, 'read-errors': read_errors, 'shared-memory-numbers': shared_memory_numbers,
         'stopped-and-frozen': stopped_and_frozen,
         'window-of-pagemap': window_of_pagemap}


def main():
    names = sys.argv[1:] or list(TESTS)
    unknown = set(names) - set(TESTS)
    if unknown:
        sys.exit(f'no such patch: {unknown.pop()}')
    there = {p.stem for p in (REPO / 'criu' / 'patches' / 'upstream').glob('*.patch')}
    if there != set(TESTS):
        sys.exit(f'patches and tests differ: {sorted(there ^ set(TESTS))}')
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stock, passed, failed = build('stock'), 0, 0
    for name in names:
        for criu, want in ((stock, False), (build(name), True)):
            start = time.monotonic()
            got = TESTS[name](criu)
            verdict = 'PASS' if got == want else 'FAIL'
            passed, failed = passed + (got == want), failed + (got != want)
            print(f'{verdict} {name}, {"patched" if want else "stock, which must fail"} ({time.monotonic() - start:.0f} s)',
                  flush=True)
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
