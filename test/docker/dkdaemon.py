# SPDX-License-Identifier: GPL-2.0-only
"""A Docker daemon, a device and a configuration of our own, and a clean machine afterwards."""
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from fetch import GO_PROGRAMS, Unavailable, debs, go_program, only_one

REPO = Path(__file__).resolve().parents[2]
BIN = REPO / 'build' / 'bin'
CACHE = REPO / 'build' / 'docker'
SYS_PATH = '/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin'
SLOW = float(os.environ.get('ZNS_TEST_SLOW', 1))     # factor for all time-outs, for an emulated machine
DOCKER = '/usr/bin/docker'
# the Debian release whose Docker is tried. runc stays the machine's, since that release's runc needs a newer libc.
SUITE = os.environ.get('DOCKER_SUITE')
if SUITE:
    NEWER = debs(SUITE, 'docker.io', 'docker-cli', 'containerd')
    SYS_PATH, DOCKER = f'{NEWER}/usr/sbin:{NEWER}/usr/bin:{SYS_PATH}', f'{NEWER}/usr/bin/docker'

# One root file system for all workloads, from packages; nothing is installed on the host.
PACKAGES = ['base-files', 'base-passwd', 'bash', 'coreutils', 'grep', 'sed', 'procps', 'curl', 'python3-minimal',
            'redis-server', 'nginx-light', 'mariadb-server-core', 'mariadb-client-core', 'python3-pymongo']


class Failed(Exception):
    """An expectation failed; the text says which."""


class Skipped(Exception):
    """The environment lacks what the case needs; the text says what."""


def until(what, true, seconds=90):
    """Waits until true() returns something, and returns that."""
    end = time.monotonic() + seconds * SLOW
    while not (got := true()):
        if time.monotonic() > end:
            raise Failed(f'{what}: never')
        time.sleep(0.1)
    return got


def want(what, cond, *saw):
    if not cond:
        raise Failed(f'{what}{": " if saw else ""}{" ".join(map(str, saw))[-600:]}')


def sh(*cmd, check=True, env=None, timeout=120, **more):
    r = subprocess.run([str(c) for c in cmd], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=timeout * SLOW, env=env, **more)
    return checked(cmd, r) if check else r


def checked(cmd, r):
    """Returns @r after checking that it ended well."""
    if r.returncode:
        raise Failed(f'{" ".join(map(str, cmd))}: exit {r.returncode}: {(r.stderr or r.stdout).strip()[-600:]}')
    return r


def rootfs():
    """Makes CACHE/rootfs once; returns its path."""
    with only_one('rootfs'):
        done = CACHE / 'rootfs.done'
        if not done.exists() or done.read_text() != ' '.join(PACKAGES):
            make_rootfs()
            done.write_text(' '.join(PACKAGES))
        if not ferretdb_missing:
            add_ferretdb(CACHE / 'rootfs')
    return CACHE / 'rootfs'


def make_rootfs():
    debs, root = CACHE / 'debs', CACHE / 'rootfs'
    shutil.rmtree(root, ignore_errors=True)
    (debs / 'partial').mkdir(parents=True, exist_ok=True)
    for old in debs.glob('*.deb'):
        old.unlink()
    (CACHE / 'status').write_text('')
    # With an empty status file apt takes everything for missing, and downloads all that the packages need.
    sh('apt-get', '-q', '-y', 'install', '--download-only', '--no-install-recommends', '-o', f'Dir::State::status={CACHE}/status',
       '-o', f'Dir::Cache::archives={debs}', '-o', 'APT::Sandbox::User=root', *PACKAGES, timeout=500,
       env=dict(os.environ, PATH=SYS_PATH, DEBIAN_FRONTEND='noninteractive', LC_ALL='C'))
    root.mkdir(parents=True)
    for deb in sorted(debs.glob('*.deb')):
        sh('dpkg', '-x', deb, root)
    for d in ('tmp', 'run', 'proc', 'sys', 'dev', 'var/log', 'var/lib', 'var/lib/nginx', 'root', 'data'):
        (root / d).mkdir(parents=True, exist_ok=True)
    (root / 'etc/passwd').write_text('root:x:0:0:root:/root:/bin/bash\n')
    (root / 'etc/group').write_text('root:x:0:\n')
    for extra in ('usr/share/doc', 'usr/share/man', 'usr/share/locale', 'var/cache'):
        shutil.rmtree(root / extra, ignore_errors=True)
    if not (root / 'bin/sh').exists():
        (root / 'bin/sh').symlink_to('bash')


ferretdb_missing = None        # the reason why FerretDB is missing


def add_ferretdb(root):
    """Builds FerretDB from the Go module proxy. If the proxy cannot be reached, cases that need FerretDB are skipped."""
    global ferretdb_missing
    to = root / f'usr/bin/ferretdb-{GO_PROGRAMS["ferretdb"][1]}'
    if to.exists():
        return
    try:
        shutil.copy(go_program('ferretdb'), to)
    except Unavailable as e:
        ferretdb_missing = f'FerretDB cannot be built: {e}'
        return
    link = root / 'usr/bin/ferretdb'
    link.unlink(missing_ok=True)
    link.symlink_to(to.name)


class Daemon:
    """with Daemon() as d: everything below d.dir, gone at the end (unless keep). DEVICE: a real one, to be formatted."""

    def __init__(self, device_args=('--zones', os.environ.get('DOCKER_ZONES', '64'), '--zone-size', '64M'), keep=False, runtimes=None, device=None):
        self.keep, self.device_args, self.runtimes, self.device = keep, device_args, runtimes or {}, device
        self.proc = self.log = None

    def __enter__(self):
        self.dir = Path(tempfile.mkdtemp(prefix='zns-docker-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        for d in ('tmp', 'conf', 'run'):
            (self.dir / d).mkdir(mode=0o700)
        self.tmp, self.root = self.dir / 'tmp', self.dir / 'root'
        self.socket = self.dir / 'd.sock'
        self.config = self.dir / 'daemon.json'
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(('ZNS', 'DOCKER', 'CRIU'))}
        # containerd's temporary directories go where XDG_RUNTIME_DIR says.
        self.env.update(PATH=SYS_PATH, ZNS_CONFIG=str(self.dir / 'conf'), ZNS_RUN=str(self.dir / 'run'),
                        DOCKER_HOST=f'unix://{self.socket}', XDG_RUNTIME_DIR=str(self.tmp), TMPDIR=str(self.tmp), HOME='/root')
        try:
            self.config.write_text(json.dumps({'log-level': 'warn', 'runtimes': self.runtimes}))
            self.install()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def install(self):
        if self.device:
            self.zctl('format', self.device, *self.device_args)
        else:
            self.zctl('create', f'emu:{self.dir}/zns.img', *self.device_args)
        # The daemon's command line says where its data are, so install must be told.
        self.zctl('docker', 'install', '--config', self.config, '--data-root', self.root)

    def start(self):
        # No ZNS variables in the environment: the runtime's arguments must be enough.
        env = {k: v for k, v in self.env.items() if not k.startswith('ZNS')}
        self.log = open(self.dir / 'dockerd.log', 'ab')
        self.proc = subprocess.Popen(
            ['dockerd', '--config-file', str(self.config), '--iptables=false', '--ip6tables=false', '--bridge=none',
             '--data-root', str(self.root), '--exec-root', str(self.dir / 'exec'), '--host', f'unix://{self.socket}',
             '--pidfile', str(self.dir / 'd.pid')],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env, start_new_session=True)
        end = time.monotonic() + 90 * SLOW
        while self.docker('version', check=False).returncode:
            if self.proc.poll() is not None or time.monotonic() > end:
                raise Failed(f'dockerd did not start: {(self.dir / "dockerd.log").read_text()[-600:]}')
            time.sleep(0.3)

    def stop(self, crash=False):
        if self.proc and self.proc.poll() is None:
            if crash:
                self.proc.kill()
            else:
                self.proc.terminate()
            try:
                self.proc.wait(60)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.proc = None
        if self.log:
            self.log.close()
            self.log = None

    def __exit__(self, *exc):
        if self.proc and self.proc.poll() is None:
            ids = self.docker('ps', '-aq', check=False).stdout.split()
            if ids:
                self.docker('rm', '-f', *ids, check=False)
        self.stop()
        if self.keep:
            print(f'kept: {self.dir}')
            return
        # znsd exits when it is idle; we ask it to exit now, so that no process of ours outlives the run.
        for pid in self.pids_of('znsd'):
            os.kill(pid, 15)
        for m in sorted((l.split()[4] for l in open('/proc/self/mountinfo') if str(self.dir) in l.split()[4]), reverse=True):
            sh('umount', '-l', m, check=False)
        for _ in range(20):
            shutil.rmtree(self.dir, ignore_errors=True)
            if not self.dir.exists():
                break
            time.sleep(0.3)

    def pids_of(self, name):
        """PIDs of our own processes of that name: their environment names our directory."""
        found = []
        for p in Path('/proc').glob('[0-9]*'):
            try:
                if (p / 'comm').read_text().strip() == name and f'ZNS_RUN={self.dir}/run'.encode() in (p / 'environ').read_bytes():
                    found.append(int(p.name))
            except OSError:
                pass
        return found

    def make_image(self, name='work'):
        tar = subprocess.Popen(['tar', 'c', '-C', str(rootfs()), '.'], stdout=subprocess.PIPE)
        r = subprocess.run([DOCKER, 'import', '-', name], stdin=tar.stdout, capture_output=True, text=True, env=self.env,
                           timeout=300)
        if tar.wait() or r.returncode:
            raise Failed(f'docker import: {r.stderr.strip()}')

    def docker(self, *args, check=True, **more):
        """
        Runs docker. A checkpoint is tried again, as a user would, if runc gave up freezing the container before it
        called criu: on cgroup v1 that happens if a task does not stop soon enough, as on a busy machine.
        """
        if SUITE:       # from 28 on a container that has a network namespace of its own is not restored (moby#50750)
            args = ['host' if before == '--network' and a == 'none' else a for before, a in zip(('', *args), args)]
        if args[:2] == ('checkpoint', 'create'):
            self.let_go()
        for _ in range(5):
            r = sh(DOCKER, *args, env=self.env, check=False, **more)
            if 'unable to freeze' not in r.stderr:
                break
            print('     runc could not freeze the container: once more', flush=True)
        return checked(args, r) if check else r

    def let_go(self):
        """Waits until containerd has released the container's configuration, which it holds for some time after a
        checkpoint: the next checkpoint would fail at its end (moby#42900)."""
        blobs = self.root / 'containerd/daemon/io.containerd.content.v1.content/blobs/sha256'
        until('containerd lets go of the last checkpoint', lambda: not blobs.is_dir() or not any(blobs.iterdir()))

    def zctl(self, *args, **more):
        return sh(BIN / 'znsctl', *args, env=self.env, **more)

    def zjson(self, *args):
        return json.loads(self.zctl(*args, '--json').stdout)

    def refused(self, run, *args, line):
        """The command fails with one line on standard error that has the text."""
        r = run(*args, check=False)
        err = r.stderr.strip()
        if not r.returncode:
            raise Failed(f'{" ".join(map(str, args))} succeeded')
        if line not in err:
            raise Failed(f'{" ".join(map(str, args))} says {err!r}, not {line!r}')
        return err

    def run(self, name, *args, image='work', runtime='zns', options=(), network='none'):
        self.docker('run', '-d', '--runtime', runtime, '--network', network, '--name', name, *options, image, *args)
        return name

    def id(self, name):
        return self.docker('inspect', '-f', '{{.Id}}', name).stdout.strip()

    def running(self, name):
        return self.docker('inspect', '-f', '{{.State.Running}}', name).stdout.strip() == 'true'

    def checkpoints(self, container=None):
        """The checkpoints on the device, in order of commit."""
        return [c for c in self.zjson('ls')['checkpoints'] if container in (None, c['container'])]

    def zones_used(self):
        """Zones other than metadata zones that hold something."""
        return sum(z['state'] != 'empty' for z in self.zjson('zones')['zones'] if z['owner'] != '(metadata)')

    def settle(self, want, what, seconds=30):
        """Waits until all zones are empty: resets happen in the background."""
        end = time.monotonic() + seconds
        while (have := what()) != want:
            if time.monotonic() > end:
                raise Failed(f'{have!r} instead of {want!r}')
            time.sleep(0.2)

    def leftovers(self):
        """Our files in temporary directories."""
        return sorted(str(p) for p in self.tmp.rglob('*') if p.name.startswith(('zns-', '.wh.zns')) or 'ctrd-checkpoint' in p.name
                      or 'ctd-checkpoint' in p.name)
