# SPDX-License-Identifier: GPL-2.0-only
"""
Which tests may skip on which kind of machine: test/harness/expected-skips. A condition looks at the machine itself and
not at the test's message: a test that skips although it could run has failed, and so has a test that ran although it
was expected to skip.
"""
import contextlib
import ctypes
import fnmatch
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name('expected-skips')


# ---- conditions: True where the test cannot run ------------------------------------------------------------

def always():
    return True


def no_go_client():
    """`make rpc` builds it; `make test` runs without it."""
    return not (REPO / 'build' / 'clients' / 'go-client').exists()


def no_cpu_latency():
    """Does this root lack the device by which CPUs are kept awake?"""
    return not os.access('/dev/cpu_dma_latency', os.W_OK)


def no_keyring():
    sys_add_key, of_process = 248, -2
    libc = ctypes.CDLL(None, use_errno=True)
    return os.uname().machine != 'x86_64' or libc.syscall(sys_add_key, b'user', b'zns-harness', b'x', 1, of_process) < 0


def no_mounts():
    """May this process make mounts?"""
    pid = os.fork()
    if not pid:
        clone_newns = 0x20000
        os._exit(ctypes.CDLL(None).unshare(clone_newns) != 0)
    return os.waitpid(pid, 0)[1] != 0


def _mounted(kind, option=''):
    for line in Path('/proc/self/mountinfo').read_text().splitlines():
        fstype, _, options = line.partition(' - ')[2].split()[:3]
        if fstype == kind and (not option or option in options.split(',')):
            return True
    return False


def no_freezer_v1():
    return not _mounted('cgroup', 'freezer')


def no_freezer_v2():
    return not _mounted('cgroup2')


def no_loop():
    try:
        os.close(os.open('/dev/loop-control', os.O_RDWR))
    except OSError:
        return True
    return False


def _unmountable(kind):
    """Is there no way to make such a file system in a file and to mount it?"""
    if no_loop() or not shutil.which(f'mkfs.{kind}'):
        return True
    if kind in Path('/proc/filesystems').read_text().split():
        return False
    modprobe = shutil.which('modprobe')
    return not modprobe or subprocess.run([modprobe, '-q', '-n', kind]).returncode != 0


def no_ext4():
    return _unmountable('ext4')


def no_xfs():
    return _unmountable('xfs')


def no_btrfs():
    return _unmountable('btrfs')


def no_uffdio_poison():
    return tuple(map(int, re.findall(r'\d+', os.uname().release)[:2])) < (6, 6)


def no_guard_pages():
    """Of a range of no bytes, the kernel checks only whether it knows the advice."""
    guard_install = 102
    return ctypes.CDLL(None).madvise(None, 0, guard_install) != 0


HUGEPAGES, HUGEPAGES_WANTED = Path('/proc/sys/vm/nr_hugepages'), 16      # the same value as in ztlib


@contextlib.contextmanager
def huge_pages():
    """The pool that tests of huge pages need, which is the machine's: suites side by side find it, and put back what they found."""
    before = None
    try:
        before = int(HUGEPAGES.read_text())
        if before < HUGEPAGES_WANTED:
            HUGEPAGES.write_text(str(HUGEPAGES_WANTED))
    except OSError:
        pass        # no_hugepages() says so
    try:
        yield
    finally:
        if before is not None and before < HUGEPAGES_WANTED:
            HUGEPAGES.write_text(str(before))


def no_hugepages():
    with huge_pages():
        try:
            return int(HUGEPAGES.read_text()) < HUGEPAGES_WANTED
        except OSError:
            return True


CONDITIONS = {name.replace('_', '-'): functools.cache(func) for name, func in list(globals().items())
              if name == 'always' or name.startswith('no_')}


# ---- the list ----------------------------------------------------------------------------------------------

def read(path=LIST):
    """[(part, case, condition, reason)]; part is a pattern of a shell, reason a regular expression."""
    entries = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if not line.strip() or line.startswith('#'):
            continue
        words = [word.strip() for word in line.split(' | ')]
        if len(words) != 4 or words[2] not in CONDITIONS:
            raise SystemExit(f'{path}:{number}: PART | CASE | CONDITION | REASON, with a condition of {", ".join(CONDITIONS)}')
        entries.append(words)
        CONDITIONS[words[2]]()      # evaluated now, since tests change some of the things that conditions look at
    return entries


def judge(part, skips, entries):
    """Complaints about a part's skips: those that were not expected here, and expected ones that did not happen."""
    entries = [e for e in entries if fnmatch.fnmatch(part, e[0])]
    expected = [e for e in entries if CONDITIONS[e[2]]()]
    complaints = []
    for name, reason in skips:
        found = next((e for e in expected if e[1] == name and re.search(e[3], reason)), None)
        if found:
            expected.remove(found)
        elif any(e[1] == name for e in entries):
            complaints.append(f'FAIL {part}: {name} was skipped where it can run, or for another reason: {reason}')
        else:
            complaints.append(f'FAIL {part}: {name} was skipped, which nobody expects: {reason}')
    complaints += [f'FAIL {part}: {e[1]} ran, and was expected to be skipped ({e[2]})' for e in expected]
    return complaints
