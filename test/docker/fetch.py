# SPDX-License-Identifier: GPL-2.0-only
"""Programs that Debian 12 does not have, built or unpacked below build/docker: nothing is installed on the machine."""
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CACHE = REPO / 'build' / 'docker'
SYS_PATH = '/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin'
KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'
GO_NEEDED = (1, 22)

# module, version, package, and files that the program's own build would have created
GO_PROGRAMS = {
    'ferretdb': ('github.com/FerretDB/FerretDB', 'v1.24.0', './cmd/ferretdb', {'build/version/version.txt': 'v1.24.0\n'}),
    'crictl': ('sigs.k8s.io/cri-tools', 'v1.30.0', './cmd/crictl', {}),
}


class Unavailable(Exception):
    """A program cannot be fetched or built; the text says why."""


def run(*cmd, timeout=560, **more):
    try:
        r = subprocess.run([str(c) for c in cmd], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **more)
    except subprocess.TimeoutExpired:
        raise Unavailable(f'{" ".join(map(str, cmd))[:200]}: not done after {timeout} s')
    if r.returncode:
        raise Unavailable(f'{" ".join(map(str, cmd))[:200]}: {(r.stderr or r.stdout).strip()[-400:]}')
    return r.stdout


def mirror():
    """The Debian mirror this machine already uses."""
    return run(REPO / 'scripts' / 'debian-mirror').strip()


@contextlib.contextmanager
def only_one(what):
    """A lock: cases that run at once, in threads or processes, make a thing one after the other, and the second finds
    it made."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f'{what}.lock', 'w') as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def debs(suite, *packages):
    """Directory with these packages of another suite (without what they depend on), unpacked once."""
    root = CACHE / f'{suite}-{"-".join(packages)}'
    with only_one(root.name):
        if not root.is_dir():
            unpack(root, suite, packages)
    return root


def unpack(root, suite, packages):
    with tempfile.TemporaryDirectory(dir=CACHE) as t:
        for d in ('lists/partial', 'archives/partial', 'debs', 'root'):
            (Path(t) / d).mkdir(parents=True)
        (Path(t) / 'sources.list').write_text(f'deb [signed-by={KEYRING}] {mirror()} {suite} main\n')
        apt = ['apt-get', '-q', '-o', f'Dir::Etc::sourcelist={t}/sources.list', '-o', 'Dir::Etc::sourceparts=/dev/null', '-o',
               f'Dir::State::lists={t}/lists', '-o', f'Dir::Cache={t}', '-o', 'APT::Sandbox::User=root', '-o',
               'Acquire::Check-Valid-Until=false', '-o', 'Acquire::Retries=3', '-o', 'Acquire::Languages=none']
        env = dict(os.environ, PATH=SYS_PATH, LC_ALL='C')
        run(*apt, 'update', env=env)
        run(*apt, 'download', *(f'{p}/{suite}' for p in packages), env=env, cwd=Path(t) / 'debs')
        for deb in sorted((Path(t) / 'debs').glob('*.deb')):
            run('dpkg', '-x', deb, Path(t) / 'root')
        (Path(t) / 'root').rename(root)


def go():
    """A Go that is new enough: the machine's, or Debian 13's, unpacked."""
    at = shutil.which('go', path=f'{SYS_PATH}:/usr/local/go/bin:/usr/lib/go/bin')
    if at:
        found = re.search(r'go(\d+)\.(\d+)', run(at, 'version', env=dict(os.environ, GOTOOLCHAIN='local')))
        if found and tuple(map(int, found.groups())) >= GO_NEEDED:
            return Path(at), {}
    root = debs('trixie', 'golang-1.24-go', 'golang-1.24-src')
    goroot = root / 'usr/lib/go-1.24'      # the suite's links to the other package are relative
    return goroot / 'bin' / 'go', {'GOROOT': str(goroot)}


def go_program(name):
    """A program of GO_PROGRAMS, built once from the Go module proxy, in one to three minutes."""
    out = CACHE / f'{name}-{GO_PROGRAMS[name][1]}'
    with only_one(out.name):
        if not out.exists():
            build(out, name)
    return out


def build(out, name):
    module, version, package, files = GO_PROGRAMS[name]
    tool, more = go()
    work = Path(tempfile.mkdtemp(prefix=f'go-{name}-', dir=CACHE))
    try:
        env = {k: v for k, v in os.environ.items() if not k.startswith('GO')}
        env.update(more, PATH=f'{tool.parent}:{SYS_PATH}', GOPATH=str(work / 'path'), GOCACHE=str(work / 'cache'), HOME=str(work),
                   GOFLAGS='-mod=mod -modcacherw', CGO_ENABLED='0', GOTOOLCHAIN='local', GO111MODULE='on')
        for k in ('GOPROXY', 'GOSUMDB'):
            if k in os.environ:
                env[k] = os.environ[k]
        got = run(tool, 'mod', 'download', '-json', f'{module}@{version}', env=env, cwd=work)
        # works on a copy, since modules in the cache are read-only
        shutil.copytree(json.loads(got)['Dir'], work / 'src')
        for f, text in files.items():
            (work / 'src' / f).write_text(text)
        run(tool, 'build', '-p', '2', '-trimpath', '-ldflags', '-s -w', '-o', work / 'out', package, env=env, cwd=work / 'src',
            timeout=2400)       # a time limit for a busy machine
        (work / 'out').rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
