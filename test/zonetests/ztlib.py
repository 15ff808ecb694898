# SPDX-License-Identifier: GPL-2.0-only
"""What zonetests.py and the suites share: device, tasks, dump, restore, workers, reports."""
import ast
import ctypes
import fcntl
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from xml.sax.saxutils import quoteattr

import ztareas

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
PROGS = REPO / 'build' / 'zonetests'
HANDLE = 'zns-handle.img'
IMAGE_DIR_MAX = 1 << 20

libc = ctypes.CDLL(None, use_errno=True)
HUGEPAGES = Path('/proc/sys/vm/nr_hugepages')
HUGEPAGES_WANTED = 16


class Failed(Exception):
    """The test has failed; the text says why."""


class Skipped(Exception):
    """The test cannot run here; the text says why."""


# ---- the process and its surroundings ------------------------------------------------------------------

def _libc(call, *args):
    if getattr(libc, call)(*args) < 0:
        err = ctypes.get_errno()
        raise OSError(err, f'{call}: {os.strerror(err)}')


def mount(source, target, fstype, flags=0, data=''):
    _libc('mount', str(source).encode(), str(target).encode(), fstype.encode(), flags, data.encode())


def unmount(target):
    mnt_detach = 2
    _libc('umount2', str(target).encode(), mnt_detach)


def private_mounts():
    """Makes a mount namespace of our own: all mounts of the tests end with the runner."""
    clone_newns, ms_rec, ms_private = 0x20000, 0x4000, 1 << 18
    _libc('unshare', clone_newns)
    mount('none', '/', '', ms_rec | ms_private)


def become_subreaper():
    """Makes restored and orphaned tasks our children, so that we notice their end."""
    pr_set_child_subreaper = 36
    _libc('prctl', pr_set_child_subreaper, 1, 0, 0, 0)


def proc_stat(pid):
    """(state letter in /proc/PID/stat, parent's PID); ('', …) if there is no such process."""
    try:
        words = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        return words[0], int(words[1])
    except (OSError, IndexError):
        return '', 0


def proc_state(pid):
    return proc_stat(pid)[0]


def traced(pid):
    """Is the process traced, as by a dump?"""
    try:
        return 'TracerPid:\t0' not in Path(f'/proc/{pid}/status').read_text()
    except OSError:
        return False


def reap():
    """Reaps every child that has ended. Only call it while no subprocess of ours is being waited for."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def alive(pid):
    """
    Does the process still have its PID? A zombie that is our child counts as alive, since a caller who waits for its
    end may be about to restore a process with that PID. (A process can become such a zombie after reap() and before
    this look.)
    """
    reap()
    state, parent = proc_stat(pid)
    return state not in ('', 'Z', 'X') or (state != '' and parent == os.getpid())


def huge_pages():
    """Raises the pool of huge pages. Returns '' or why that is not possible."""
    try:
        if int(HUGEPAGES.read_text()) < HUGEPAGES_WANTED:
            HUGEPAGES.write_text(str(HUGEPAGES_WANTED))
        have = int(HUGEPAGES.read_text())
    except OSError as e:
        return f'nr_hugepages cannot be raised: {e.strerror}'
    return '' if have >= HUGEPAGES_WANTED else f'nr_hugepages stays at {have}'


# how long a condition is waited for that must become true: so long that a busy machine is no failure
PATIENCE_S = 60


def wait_until(true, seconds=0, step=0.01):
    """Polls true() until it is true, for PATIENCE_S at least; returns its last value."""
    end = time.monotonic() + max(seconds, PATIENCE_S)
    while True:
        value = true()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)


def kill(pid, sig=signal.SIGKILL):
    """Sends a signal; True if there was such a process."""
    try:
        os.kill(pid, sig)
        return True
    except ProcessLookupError:
        return False


def children():
    """Our children, including adopted ones."""
    found = []
    for path in glob.glob('/proc/self/task/*/children'):
        found += map(int, Path(path).read_text().split())
    return found


def exe_of(pid):
    try:
        return os.readlink(f'/proc/{pid}/exe')
    except OSError:
        return ''


def drop_caches():
    """Drops the page cache, so that the next read comes from the disk. False if that is not allowed."""
    os.sync()
    try:
        Path('/proc/sys/vm/drop_caches').write_text('3\n')
    except OSError:
        return False
    return True


# ---- the programs ---------------------------------------------------------------------------------------

BIN = REPO / 'build' / 'bin'                    # the programs that users get: no test changes what they do
TEST_BIN = REPO / 'build' / 'test' / 'bin'      # helper, broker and znsctl with test/controls linked in


def controls(**words):
    """
    The environment of the test build: criu's helper and the broker that it starts are those of TEST_BIN, and @words
    are settings for the controls in them. Without it a test runs the programs that users get.
    """
    if not os.access(TEST_BIN / 'zns-helper', os.X_OK):
        raise Failed(f'{TEST_BIN}/zns-helper is missing: run make test-bin first')
    return dict(ZNS_LIBEXEC=str(TEST_BIN), **words)


def controlled(env, **words):
    return dict(env, **controls(**words))


def not_installed(env):
    """The environment of a program that is not beside the others, and starts a broker if the last one has left for want of work."""
    return {'ZNS_LIBEXEC': str(BIN), **env}


def nonces_once(path, least):
    """
    Reads what the programs of the test build encrypted (ZNS_NONCES), and checks that no key was used twice with the
    same nonce. Only a manifest may be encrypted twice, with the same text, since its tag is checked by making it
    again. Returns the keys.
    """
    texts = {}
    for line in Path(path).read_text().splitlines():
        key, nonce, text = line.split()
        if (key, nonce) in texts and not (nonce.startswith('ffffffff') and texts[key, nonce] == text):
            raise Failed(f'key {key} sealed twice with nonce {nonce}')
        texts[key, nonce] = text
    if len(texts) < least:
        raise Failed(f'{len(texts)} seals were noted: too few to compare')
    return {key for key, nonce in texts}


def znsctl_of(cfg, env):
    """The znsctl of the same build as the other programs in this environment."""
    return str(TEST_BIN / 'znsctl') if env.get('ZNS_LIBEXEC') == str(TEST_BIN) else cfg.znsctl


# ---- configuration and device --------------------------------------------------------------------------

class Config:
    """The options of the command line, and the base directory of this run."""

    def __init__(self, args):
        self.criu = str(Path(args.criu).resolve()) if args.criu else str(BIN / 'criu')
        self.znsctl = str(BIN / 'znsctl')
        self.stock = getattr(args, 'stock', False)
        self.qos = getattr(args, 'qos', '500')
        self.by_id = getattr(args, 'by_id', False)
        self.iterations = getattr(args, 'iterations', 1)
        self.ways = getattr(args, 'ways', ['plain'])
        # 'yes', or 'must': then a task that is not tracked fails the test
        self.live = getattr(args, 'live', None)
        self.prefix = []        # the command that runs criu, with its arguments
        self.keep = args.keep
        self.timeout = args.timeout
        self.given_device = getattr(args, 'device', None)
        self.real = getattr(args, 'format', None)
        self.device = None
        if self.real and self.given_device:
            sys.exit('--device or --format, not both')
        if self.real:
            args.jobs = 1       # one device for all tests
        for program in [self.criu] + ([] if self.stock else [self.znsctl]):
            if not os.access(program, os.X_OK):
                sys.exit(f'{program} is missing: run make first, or name a criu with --criu')
        self.base = Path(tempfile.mkdtemp(prefix='zonetests-'))

    def env(self):
        return self.device.env if self.device else dict(os.environ)

    def open_device(self):
        if self.stock:
            return
        if self.given_device:
            self.device = Device(self, spec=self.given_device)
        else:
            self.device = Device(self, directory=self.base / 'device', spec=self.real)
            self.device.create('--timing', 'off')

    def close(self):
        if self.device:
            self.device.close()
        if self.keep:
            print(f'logs are in {self.base}')
        else:
            shutil.rmtree(self.base, ignore_errors=True)


class Device:
    """A device, and znsctl for it. With @directory it has a configuration of its own."""

    def __init__(self, cfg, directory=None, spec=None):
        self.cfg = cfg
        self.directory = directory
        self.spec = spec or f'emu:{directory}/dev.emu'
        self.emulated = self.spec.startswith('emu:')
        self.private = directory is not None
        self.env = dict(os.environ)
        self.info = None
        if self.private:
            directory.mkdir(parents=True)
            self.env.update(ZNS_CONFIG=str(directory / 'etc'), ZNS_RUN=str(directory / 'run'))
            self.env.pop('ZNS_DEV', None)
        else:
            self.env['ZNS_DEV'] = spec

    @property
    def path(self):
        """The emulator's file."""
        self.needs_emulator('needs the file of the emulator')
        return Path(self.spec.partition(':')[2])

    def ctl(self, *args):
        """Runs znsctl; returns a CompletedProcess."""
        return subprocess.run([znsctl_of(self.cfg, self.env), *args], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=self.cfg.timeout)

    def json(self, *args):
        done = self.ctl(*args, '--json')
        if done.returncode:
            raise Failed(f'znsctl {" ".join(args)}: exit {done.returncode}: {done.stderr.strip()}')
        try:
            return json.loads(done.stdout)
        except ValueError as e:
            raise Failed(f'znsctl {" ".join(args)} --json: {e}')

    def create(self, *options):
        """Makes the emulated device, or formats the real one with as many groups as the emulated one has dies."""
        if self.emulated:
            self.info = self.json('create', self.spec, *options)
            return
        given = dict(zip(options[::2], options[1::2]))
        if given.get('--timing') == 'on':
            raise Skipped('needs the timing model of the emulator')
        dies = int(given.get('--channels', 8)) * int(given.get('--ways', 1))
        self.info = self.json('format', self.spec, '--force', '--map', f'i % {dies}',
                              '--zone-write-bw', given.get('--die-write-bw', '100'))

    def needs_emulator(self, why):
        if not self.emulated:
            raise Skipped(why)

    def checkpoints(self):
        return self.json('ls')['checkpoints']

    def checkpoint_of(self, container):
        found = [c['id'] for c in self.checkpoints() if c['container'] == container]
        if not found:
            raise Failed(f'znsctl ls has no checkpoint of container {container}')
        return found[-1]

    def status(self):
        return self.json('status')

    def zones(self):
        return self.json('zones')['zones']

    def granted(self, container):
        """The groups that a container's dump was granted; if pages come slowly the dump may not use all of them."""
        return next((r['groups'] for r in self.status()['reservations'] if r['container'] == container), [])

    def free_zones(self):
        return sum(z['state'] == 'empty' for z in self.zones())

    def remove(self, *ids):
        if ids:
            self.json('rm', *ids)

    def forget(self, container):
        self.remove(*[c['id'] for c in self.checkpoints() if c['container'] == container])

    def close(self):
        """Ends the broker of our private device, which would exit by itself, but later."""
        if not self.private or not Path(self.env['ZNS_RUN']).exists():
            return
        try:
            pid = self.status().get('broker_pid')
        except (Failed, OSError, subprocess.TimeoutExpired):
            return
        if pid:
            kill(pid, signal.SIGTERM)


# ---- dump and restore ----------------------------------------------------------------------------------

def log_errors(path, lines=4):
    """The last error lines of a criu log, to explain a failure."""
    try:
        text = Path(path).read_text(errors='replace').splitlines()
    except OSError:
        return 'no log'
    errors = [re.sub(r'^\(\d+\.\d+\)\s*', '', line) for line in text if 'Error' in line]
    return ' | '.join((errors or text)[-lines:]) or 'empty log'


def zns_options(cfg, container):
    options = ['--zns-qos', cfg.qos, '--zns-container', container]
    if not cfg.device.private:
        options += ['--zns-dev', cfg.device.spec]
    return options


def mapped_names(maps):
    """
    The names in /proc/PID/maps: files (also deleted ones), memfds, the kernel's own. Shared anonymous memory is called
    /dev/zero or /anon_hugepage there, and is restored as a memfd of that name.
    """
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    return sorted({re.sub('^/memfd:/', '/', words[5]) for words in lines if len(words) == 6})


def footprint(pid):
    """
    What a restore must not add to: [(pid in its namespace, its descriptors, names of its mappings)] of a process tree,
    sorted.
    """
    found, todo = [], [pid]
    while todo:
        p = Path('/proc') / str(todo.pop())
        try:
            inner = int(re.search(r'^NSpid:.*?(\d+)$', (p / 'status').read_text(), re.M).group(1))
            fds = sorted(int(fd) for fd in os.listdir(p / 'fd'))
            mapped = mapped_names((p / 'maps').read_text())
            todo += (p / 'task' / p.name / 'children').read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue    # a short-lived child has ended
        found.append((inner, fds, mapped))
    return sorted(found)


def check_footprint(before, after, forks=False):
    """
    Checks that the processes are the same as before and have nothing of criu's. (Fewer descriptors are fine: Redis
    closes a client's late.) forks: children come and go, so only processes that are there both times count. A child
    that was ending maps nothing any more, and another process may have its PID after the restore.
    """
    if forks:
        both = {b[0] for b in before if b[2]} & {a[0] for a in after}
        before, after = ([p for p in tree if p[0] in both] for tree in (before, after))
        if not both:
            raise Failed('nobody is left of the tree')
    if [a[0] for a in after] != [b[0] for b in before]:
        raise Failed(f'the tree has other processes: {before} before, {after} after')
    for (pid, had, mapped), (_, has, maps) in zip(before, after):
        more_fds, more_maps = sorted(set(has) - set(had)), sorted(set(maps) - set(mapped))
        if more_fds or more_maps:
            raise Failed(f'process {pid} came back with descriptors {more_fds} and mappings {more_maps} that it had not')


def helper_tracks():
    """Can the helper see which pages of a process are written, even if the kernel cannot do it for criu?"""
    return tuple(map(int, os.uname().release.split('.')[:2])) >= (6, 7)


def check_areas(args):
    """After a successful restore: checks that every process has the areas of its dump. A process that runs and allocates gets some time to settle."""
    def differs():
        found = ztareas.after_restore(args, tree)
        return found and ztareas.differences(*found)

    if not wait_until(lambda: not differs(), 10) and (said := differs()):
        raise Failed(said)


def run_criu(cfg, args, log, env=None):
    """Runs criu to its end; returns a CompletedProcess. stderr goes to a file beside the log. Checks the areas of what was restored."""
    args = [*map(str, args)]
    found = ztareas.before_dump(args, tree)
    with open(str(log) + '.stderr', 'ab') as err:
        try:
            done = subprocess.run([*cfg.prefix, cfg.criu, *args], env=env or cfg.env(), stdin=subprocess.DEVNULL,
                                  stdout=err, stderr=err, timeout=cfg.timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f'criu {args[0]} took more than {cfg.timeout} s')
    if not done.returncode and found:
        ztareas.keep(args, found)
    elif not done.returncode:
        check_areas(args)
    return done


def dump_args(cfg, task, images, log, container, extra=()):
    args = ['dump', '-t', task.pid, '-D', images, '-W', Path(log).parent, '-o', Path(log).name, '-v4', *task.dump_opts]
    if not cfg.stock:
        args += zns_options(cfg, container)
    return [*map(str, args), *extra]


def tree(pid):
    """The PIDs of a process tree."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        for path in glob.glob(f'/proc/{found[-1]}/task/*/children'):
            try:
                todo += map(int, Path(path).read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue    # the process has just exited
    return found


def check_live(cfg, task, log):
    """After a live dump: checks that the tasks run on, that nothing of the tracking is left in them, and that all their pages were compared."""
    pids = task.pids()
    if not pids or not all(map(alive, pids)):
        raise Failed('a process has gone after a live dump that leaves them running')
    left = [pid for pid in pids if not wait_until(lambda: not re.search(r'^VmFlags:.* u[wm]\b', smaps(pid), re.M), 10)]
    if left:
        raise Failed(f'process {left[0]} still has write protection')
    text = Path(log).read_text(errors='replace')
    if 'all memory is copied in the freeze' in text:
        raise Skipped('this kernel tracks no written pages')
    if cfg.live == 'must' and not re.search(r'live: task \d+ has \d+ pages.* verified', text):
        raise Failed('nothing was tracked')
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)    # the tree is frozen, so that no process forks while it is listed
    pids = [p for pid in pids for p in tree(pid)]
    for pid in pids:
        kill(pid)
    if not wait_until(lambda: not any(map(alive, pids)), 10):
        raise Failed('a killed process does not end')


def smaps(pid):
    try:
        return Path(f'/proc/{pid}/smaps').read_text()
    except OSError:
        return ''


def dump(cfg, task, images, log, container):
    images.mkdir()
    env, extra = cfg.env(), []
    if cfg.live:
        # criu removes its links to deleted files when it leaves a task running, without zones too
        links = '--link-remap' in task.dump_opts
        env, extra = controlled(env, ZNS_LIVE_VERIFY='1'), ['--zns-live'] + ([] if links else ['--leave-running'])
    done = run_criu(cfg, dump_args(cfg, task, images, log, container, extra), log, env)
    if done.returncode:
        raise Failed(f'dump: exit {done.returncode}: {log_errors(log)}')
    if cfg.live and '--leave-running' in extra:
        check_live(cfg, task, log)
    if not wait_until(lambda: not any(map(alive, task.pids())), 5):
        raise Failed('the process is still there after a dump that said it succeeded')
    if not cfg.stock:
        check_image_dir(images)


def check_image_dir(images):
    names = os.listdir(images)
    size = sum((images / n).lstat().st_size for n in names)
    if HANDLE not in names:
        raise Failed(f'no {HANDLE} after the dump')
    if size >= IMAGE_DIR_MAX:
        raise Failed(f'the image directory has {size} bytes')
    pages = [n for n in names if re.match(r'pages-.*\.img', n)]
    if pages:
        raise Failed(f'{pages[0]} is in the image directory')


def restore_args(task, images, log):
    pidfile = Path(str(log) + '.pid')
    pidfile.unlink(missing_ok=True)
    return ['restore', '-D', images, '-W', Path(log).parent, '-o', Path(log).name, '-v4', '-d',
            '--pidfile', pidfile, *task.restore_opts]


def restore(cfg, task, images, log, extra=()):
    args = restore_args(task, images, log)
    done = run_criu(cfg, [*args, *extra], log)
    if done.returncode:
        raise Failed(f'restore: exit {done.returncode}: {log_errors(log)}')
    task.restored(int(Path(str(log) + '.pid').read_text()))
    if not alive(task.pid):
        raise Failed('the process is not there after a restore that said it succeeded')


# ---- tasks ---------------------------------------------------------------------------------------------

class Task:
    """A test program, plain (h) or as init of new namespaces (ns), and the files through which it answers."""

    def __init__(self, directory, program, flavour='h', args=(), opts=(), wait=60):
        self.dir, self.program, self.flavour = directory, program, flavour
        self.args, self.wait = list(args), wait
        self.dump_opts, self.restore_opts = list(opts), list(opts)
        source = HERE / f'{program}.c'
        desc = description(source) if source.exists() else None
        self.forks = bool(desc and desc.get('forks'))   # children come and go all the time
        self.pid, self.digest, self.verdicts = 0, None, 0
        self.state = directory

    def start(self):
        if self.flavour == 'ns':
            self._start_ns()
        else:
            self._start_plain()
        return self

    def _start_plain(self):
        command = [PROGS / self.program, '--dir', self.dir, *self.args]
        with open(self.dir / 'stdio', 'ab') as out:
            self.pid = subprocess.Popen(command, cwd='/', stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                        start_new_session=True).pid

    def make_root(self):
        """Mounts a tmpfs as root directory: the program, a few device nodes, and zt/ for the answers."""
        root = self.dir / 'root'
        root.mkdir()
        mount('zonetest', root, 'tmpfs')
        for name in ('zt', 'dev'):
            (root / name).mkdir()
        for name, minor in (('null', 3), ('zero', 5)):
            os.mknod(root / 'dev' / name, 0o20666, os.makedev(1, minor))
        os.symlink('pts/ptmx', root / 'dev' / 'ptmx')
        self.state = root / 'zt'
        self.restore_opts += ['--root', str(root)]
        return root

    def launch_in(self, root, command):
        done = subprocess.run([PROGS / 'nsinit', root, *command], capture_output=True, text=True, timeout=self.wait)
        if done.returncode:
            raise Failed(f'nsinit: {done.stderr.strip()}')
        self.pid = int(done.stdout)

    def _start_ns(self):
        root = self.make_root()
        shutil.copy(PROGS / self.program, root)
        self.launch_in(root, [f'/{self.program}', '--dir', '/zt', *self.args])

    def wait_ready(self):
        ready = self.state / 'ready'
        wait_until(lambda: ready.exists() or not alive(self.pid), self.wait)
        if not ready.exists():
            self._explain('no READY')
        self.digest = ready.read_text().split()[2]
        return self

    def _explain(self, what):
        for line in self._out():
            if line.startswith('SKIP: '):
                raise Skipped(line[6:])
        stdio = self.state / 'stdio'
        tail = stdio.read_text(errors='replace')[-300:] if stdio.exists() else ''
        raise Failed(f'{what}: {" | ".join(self._out())} {tail}'.strip())

    def _out(self):
        out = self.state / 'out'
        return out.read_text(errors='replace').splitlines() if out.exists() else []

    def pids(self):
        return [self.pid]

    def restored(self, pid):
        self.pid = pid

    def verify(self, sig=signal.SIGTERM):
        """Makes the program check itself; raises Failed with its reason. After SIGUSR1 it lives on."""
        os.kill(self.pid, sig)
        wait_until(lambda: len(self._out()) > self.verdicts or not alive(self.pid), self.wait)
        if sig == signal.SIGTERM:
            wait_until(lambda: not alive(self.pid), self.wait)
        news = self._out()[self.verdicts:]
        self.verdicts += len(news)
        bad = [line for line in news if not line.startswith('PASS ')]
        if bad:
            raise Failed(bad[0])
        if not news:
            self._explain('no verdict' + ('' if alive(self.pid) else ', the program is gone'))
        self._compare(news[-1].split()[1])

    def _compare(self, digest):
        if int(self.digest, 16) and digest != self.digest:
            raise Failed(f'digest is {digest}, was {self.digest}')

    def end(self):
        """Ends all of its processes that still run, and removes what it leaves outside its directory."""
        if self.pid:
            if self.pid in children():
                kill(self.pid)
            wait_until(lambda: not alive(self.pid), 5)
            wait_until(lambda: not any(map(kill, self._stray())), 5)
            reap()
            for path in glob.glob(f'/dev/shm/zonetest-{self.pid}-*'):
                os.unlink(path)
        if self.state != self.dir:
            for name in ('out', 'stdio'):
                if (self.state / name).exists():
                    shutil.copy(self.state / name, self.dir)
            unmount(self.dir / 'root')

    def _stray(self):
        """Children that became ours when their parent died, recognised by their program."""
        program = str(PROGS / self.program)
        return [pid for pid in children() if exe_of(pid) == program and proc_state(pid) != 'Z']


# ---- workers and reports -------------------------------------------------------------------------------

class Result:
    def __init__(self, name, flavour, verdict, reason, seconds):
        self.name, self.flavour, self.verdict = name, flavour, verdict
        self.reason, self.seconds = reason, seconds

    def line(self):
        reason = f': {self.reason}' if self.reason else ''
        return f'{self.verdict.upper():4} {self.name}/{self.flavour} ({self.seconds:.1f} s){reason}'


def one_line(reason):
    return ' '.join(str(reason).split())[:600]


def judge(func):
    """Runs func; returns (verdict, reason)."""
    try:
        func()
        return 'pass', ''
    except Skipped as e:
        return 'skip', one_line(e)
    except Failed as e:
        return 'fail', one_line(e)
    except Exception as e:  # a fault of the test itself is a failure too
        traceback.print_exc()
        return 'fail', f'{type(e).__name__}: {e}'


def in_worker(func, answer):
    """Forks a worker that runs func and writes the verdict into a file; returns its PID."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    start = time.monotonic()
    try:
        become_subreaper()
        verdict, reason = judge(func)
        answer.write_text(json.dumps([verdict, reason, time.monotonic() - start]))
    finally:
        os._exit(0)


def run_jobs(jobs, parallel, base):
    """jobs: (name, flavour, function). Each runs in a process of its own; results come in the order in which they end."""
    waiting, running, results = list(jobs), {}, []
    while waiting or running:
        while waiting and len(running) < parallel:
            name, flavour, func = waiting.pop(0)
            answer = base / f'{name}-{flavour}.result'
            running[in_worker(func, answer)] = (name, flavour, answer)
        pid = os.wait()[0]
        if pid not in running:
            continue
        name, flavour, answer = running.pop(pid)
        if answer.exists():
            result = Result(name, flavour, *json.loads(answer.read_text()))
        else:
            result = Result(name, flavour, 'fail', 'the worker died', 0.0)
        print(result.line(), flush=True)
        results.append(result)
    return results


def count(results, verdict):
    return sum(r.verdict == verdict for r in results)


def write_reports(directory, suite, results):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    rows = [vars(r) for r in results]
    totals = {v: count(results, v) for v in ('pass', 'fail', 'skip')}
    (directory / f'{suite}.json').write_text(json.dumps({'suite': suite, 'totals': totals, 'tests': rows}, indent=1))
    xml = ['<?xml version="1.0" encoding="UTF-8"?>',
           f'<testsuite name="{suite}" tests="{len(results)}" failures="{totals["fail"]}" skipped="{totals["skip"]}">']
    for r in results:
        case = f'<testcase classname="{suite}.{r.flavour}" name={quoteattr(r.name)} time="{r.seconds:.3f}"'
        inner = {'pass': '', 'fail': f'<failure message={quoteattr(r.reason)}/>',
                 'skip': f'<skipped message={quoteattr(r.reason)}/>'}[r.verdict]
        xml.append(f'{case}>{inner}</testcase>')
    (directory / f'{suite}.xml').write_text('\n'.join(xml + ['</testsuite>', '']))


def save_failed(report, cfg, results):
    """Copies the logs of failed tests to the report's directory."""
    if not report:
        return
    for r in results:
        target = Path(report) / 'logs' / f'{r.name}-{r.flavour}'
        shutil.rmtree(target, ignore_errors=True)
        if r.verdict != 'fail':
            continue
        target.mkdir(parents=True)
        for name in ('*.log', '*.stderr', 'out', 'stdio'):
            for log in (cfg.base / f'{r.name}-{r.flavour}').glob(name):
                shutil.copy(log, target)


def finish(results):
    """Prints the final line; returns the exit code."""
    for r in results:
        if r.verdict == 'skip':
            print(f'skipped {r.name}/{r.flavour}: {r.reason}')
    failed = count(results, 'fail')
    print(f'{count(results, "pass")} passed, {failed} failed, {count(results, "skip")} skipped', flush=True)
    return 1 if failed else 0


# ---- descriptions --------------------------------------------------------------------------------------

KNOWN_KEYS = {'flavour', 'opts', 'feature', 'forks'}


def description(source):
    """The dict after 'zonetest:' in the head of a C file; None if the word is not there."""
    head = source.read_text()[:2000]
    found = re.search(r'zonetest:\s*(\{.*?\})', head, re.S)
    if not found:
        if 'zonetest:' in head:     # otherwise a program without this line would be left out silently
            raise SystemExit(f'{source.name}: no description behind "zonetest:"')
        return None
    desc = ast.literal_eval(re.sub(r'\n\s*\*', '\n', found.group(1)))
    unknown = set(desc) - KNOWN_KEYS
    if unknown:
        raise SystemExit(f'{source.name}: unknown key {unknown.pop()} in its description')
    return desc


def build_programs():
    """Builds the test programs. Suites run side by side, and the first of them builds."""
    PROGS.parent.mkdir(exist_ok=True)
    with open(f'{PROGS}.lock', 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build_programs()


def _build_programs():
    done = subprocess.run(['make', '-C', HERE, '-s', '-j2'], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'the test programs do not build:\n{done.stdout}{done.stderr}')


def common_options(parser):
    parser.add_argument('--criu', metavar='PATH', help='criu binary (default: build/bin/criu)')
    parser.add_argument('--format', metavar='DEV', help='a real zoned device to run on; all its data are lost')
    parser.add_argument('-j', type=int, default=1, metavar='N', dest='jobs', help='run N tests at once')
    parser.add_argument('--report', metavar='DIR', help='write JUnit XML and JSON there')
    parser.add_argument('--keep', action='store_true', help='keep logs and images')
    parser.add_argument('--timeout', type=int, default=180, metavar='S', help='for each criu call (default 180)')
