# SPDX-License-Identifier: GPL-2.0-only
"""
kubelet and containerd from their Go modules, built once below build/docker. The module itself must have the hash
that is written here; go compares all that it needs with the checksum database.
"""
import json
import os
import shutil
import tempfile
from pathlib import Path

from fetch import CACHE, SYS_PATH, Unavailable, go, run

KUBERNETES = '1.33.13'
CONTAINERDS = {
    '2.1.9': 'h1:lOQQ3qVEtauZCHKh8S2Xph5fGXFX2uZxMHmaslOZtW0=',
    '2.2.9': 'h1:ddw9THGOXhcKnHORjkKoXtazPjwtcPwmqk8AVyRpfZw=',
    '2.3.7': 'h1:7PGbgAVKE4ieQjFPv7+kwAv7f9dCtRpExZwjExHD/Fk=',
    '2.4.2': 'h1:p6Qg+xbEz8lvwdhHDx0U469xENvp4LgGBx+E7djXkGw=',
}
CONTAINERD = os.environ.get('ZNS_TEST_CONTAINERD', '2.2.9')
K8S, VERSION = 'k8s.io/component-base/version', 'github.com/containerd/containerd/v2/version.Version'
MAJOR, MINOR, _ = KUBERNETES.split('.')

# Module, version, hash, packages, arguments of go build.
PROGRAMS = {
    'kubelet': ('k8s.io/kubernetes', f'v{KUBERNETES}', 'h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ=', ['./cmd/kubelet'],
                ['-ldflags', f'-s -w -X {K8S}.gitVersion=v{KUBERNETES} -X {K8S}.gitMajor={MAJOR} -X {K8S}.gitMinor={MINOR}']),
    'containerd': ('github.com/containerd/containerd/v2', f'v{CONTAINERD}', CONTAINERDS[CONTAINERD],
                   ['./cmd/containerd', './cmd/containerd-shim-runc-v2', './cmd/ctr'],
                   ['-tags', 'no_btrfs,no_devmapper,no_zfs', '-ldflags', f'-s -w -X {VERSION}={CONTAINERD}']),
}


def published(tool, env, src):
    """The module proxy leaves out the modules that lie in a module: those are taken as they were published on their own."""
    mod = json.loads(run(tool, 'mod', 'edit', '-json', env=env, cwd=src))
    inside = [r['Old']['Path'] for r in mod.get('Replace') or [] if r['New']['Path'].startswith('./staging/')]
    if inside:
        run(tool, 'mod', 'edit', *(f'-replace={m}={m}@v0.{MINOR}.{KUBERNETES.split(".")[2]}' for m in inside), env=env, cwd=src)


def built(name):
    """The directory with these programs; a quarter of an hour the first time."""
    module, version, pinned, packages, args = PROGRAMS[name]
    out = CACHE / f'{name}-{version}'
    if out.is_dir():
        return out
    CACHE.mkdir(parents=True, exist_ok=True)
    tool, more = go()
    work = Path(tempfile.mkdtemp(prefix=f'go-{name}-', dir=CACHE))
    try:
        env = {k: v for k, v in os.environ.items() if not k.startswith('GO') or k in ('GOPROXY', 'GOSUMDB')}
        # If the installed Go is too old, it downloads the version that the module names.
        env.update(more, PATH=f'{tool.parent}:{SYS_PATH}', GOPATH=str(work / 'path'), GOCACHE=str(work / 'cache'), HOME=str(work),
                   GOFLAGS='-mod=mod -modcacherw', CGO_ENABLED='0', GOTOOLCHAIN='auto', GOWORK='off')
        got = json.loads(run(tool, 'mod', 'download', '-json', f'{module}@{version}', env=env, cwd=work))
        if got['Sum'] != pinned:
            raise Unavailable(f'{module} {version} is {got["Sum"]}, not {pinned}: nothing is built of it')
        src = work / 'src'
        shutil.copytree(got['Dir'], src)        # modules in the cache are for reading
        shutil.rmtree(src / 'vendor', ignore_errors=True)
        published(tool, env, src)
        (work / 'out').mkdir()
        run(tool, 'build', '-p', str(len(os.sched_getaffinity(0))), '-trimpath', *args, '-o', f'{work}/out/', *packages, env=env, cwd=src,
            timeout=7200)       # of a machine that is busy with other things
        (work / 'out').rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return out
