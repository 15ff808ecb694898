#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
cri.py [--keep] [NAME...]: the CRI's CheckpointContainer, the call that a kubelet makes: containerd 2.1 of our own (from
a later suite of Debian, unpacked), crictl, zns-runc as a runtime class, images made here. Needs root and runc. The last
line sums up.
"""
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from dkdaemon import BIN, REPO, SYS_PATH, Failed, rootfs, sh, want  # noqa: E402
from fetch import debs, go_program  # noqa: E402
from registry import Registry  # noqa: E402

# A client and a server of a UNIX socket in one container; the client asks all the time over its one connection.
SERVER = '''
import hashlib, os, socket, threading, time
m = bytearray(os.urandom(48 << 20)); s = socket.socket(socket.AF_UNIX); s.bind('/s'); s.listen(4)
def serve(c):
    while c.recv(1):
        c.sendall(hashlib.sha256(m).hexdigest().encode())
def client():
    c = socket.socket(socket.AF_UNIX); c.connect('/s'); n = 0
    while True:
        c.sendall(b'x'); got = b''
        while len(got) < 64:
            got += c.recv(64)
        n += 1; open('/new', 'w').write(got.decode() + ' ' + str(n)); os.rename('/new', '/told'); time.sleep(0.3)
threading.Thread(target=client).start()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
'''
BRIDGE = f'zns{os.getpid() % 100000}'
CASES = []


def case(fn):
    CASES.append(fn)
    return fn


def pause_layer(d):
    (d / 'pause.c').write_text('#include <unistd.h>\nint main(void) { for (;;) pause(); }\n')
    sh('gcc', '-static', '-Os', '-o', d / 'pause', d / 'pause.c')
    buf = io.BytesIO()
    with tarfile.open(fileobj=buf, mode='w') as t:
        t.add(d / 'pause', 'pause')
    return buf.getvalue()


class Node:
    """containerd with CRI, below one directory."""

    def __init__(self, keep):
        self.keep, self.proc = keep, None

    def __enter__(self):
        self.dir = Path(tempfile.mkdtemp(prefix='zns-cri-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        for d in ('conf', 'run', 'tmp', 'kubelet', 'logs'):
            (self.dir / d).mkdir()
        self.tools = debs('forky', 'containerd') / 'usr/bin'
        self.cni = debs('bookworm', 'containernetworking-plugins') / 'usr/lib/cni'
        (self.dir / 'cni').mkdir()
        # The bridge has no address on the node, so the node's network stays unchanged.
        (self.dir / 'cni/10-test.conflist').write_text(json.dumps({'cniVersion': '1.0.0', 'name': 'zns-test', 'plugins': [
            {'type': 'bridge', 'bridge': BRIDGE, 'ipam': {
                'type': 'host-local', 'dataDir': str(self.dir / 'ipam'), 'ranges': [[{'subnet': '10.213.77.0/24'}]]}}]}))
        self.crictl_bin = go_program('crictl')
        self.sock = self.dir / 'c.sock'
        self.registry = Registry()
        self.pause = self.registry.add('pause', pause_layer(self.dir), '/pause')
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(('ZNS', 'CRIU', 'CONTAINERD'))}
        self.env.update(PATH=f'{self.tools}:{BIN}:{SYS_PATH}', ZNS_CONFIG=str(self.dir / 'conf'), ZNS_RUN=str(self.dir / 'run'),
                        TMPDIR=str(self.dir / 'tmp'), XDG_RUNTIME_DIR=str(self.dir / 'tmp'), HOME='/root')
        try:
            self.z('create', f'emu:{self.dir}/zns.img', '--zones', '48', '--zone-size', '32M')
            # containerd's BinaryName takes no arguments, so a script passes them. On a node zns-runc's defaults do.
            rt = self.dir / 'zns-runc'
            rt.write_text(f'#!/bin/sh\nexec {BIN}/zns-runc --zns-config {self.dir}/conf --zns-run {self.dir}/run "$@"\n')
            rt.chmod(0o755)
            host = self.pause.partition('/')[0]
            (self.dir / 'hosts' / host).mkdir(parents=True)
            (self.dir / 'hosts' / host / 'hosts.toml').write_text(f'server = "http://{host}"\n')
            (self.dir / 'config.toml').write_text(self.config(rt))
            self.start()
            self.images()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def config(self, rt):
        d, cri = self.dir, 'io.containerd.cri.v1'
        return f'''version = 3
root = '{d}/root'
state = '{d}/state'
temp = '{d}/tmp'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.internal.v1.opt', 'io.containerd.tracing.processor.v1.otlp']
[grpc]
  address = '{self.sock}'
[ttrpc]
  address = '{self.sock}.ttrpc'
[plugins.'{cri}.images'.pinned_images]
  sandbox = '{self.pause}'
[plugins.'{cri}.images'.registry]
  config_path = '{d}/hosts'
[plugins.'{cri}.runtime']
  restrict_oom_score_adj = true     # without CAP_SYS_RESOURCE no process can lower its own
[plugins.'{cri}.runtime'.cni]
  bin_dirs = ['{self.cni}']
  conf_dir = '{d}/cni'
[plugins.'{cri}.runtime'.containerd.runtimes.zns]
  runtime_type = 'io.containerd.runc.v2'
  pod_annotations = ['zns.*']
  container_annotations = ['zns.*']
[plugins.'{cri}.runtime'.containerd.runtimes.zns.options]
  BinaryName = '{rt}'
'''

    def start(self):
        # No ZNS variables: the runtime's arguments must be enough, and our criu must come from the runtime's
        # directory.
        env = {k: v for k, v in self.env.items() if not k.startswith('ZNS')}
        log = open(self.dir / 'containerd.log', 'ab')
        self.proc = subprocess.Popen([self.tools / 'containerd', '-c', self.dir / 'config.toml'], env=env, stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 90
        while self.cri('version', check=False).returncode:
            if self.proc.poll() is not None or time.monotonic() > end:
                raise Failed(f'containerd did not start: {(self.dir / "containerd.log").read_text()[-800:]}')
            time.sleep(0.3)

    def images(self):
        tree = subprocess.run(['tar', 'c', '-C', str(rootfs()), '--exclude=./usr/sbin/mariadbd', '--exclude=./usr/bin/ferretdb*', '.'],
                              stdout=subprocess.PIPE, check=True).stdout
        self.work = self.registry.add('work', tree, '/bin/bash')
        self.tree = tree
        for image in (self.pause, self.work):
            self.cri('pull', image, timeout=300)

    def __exit__(self, *exc):
        if self.proc and self.proc.poll() is None:
            self.cri('rmp', '-a', '-f', check=False)
            self.proc.terminate()
            try:
                self.proc.wait(30)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        for p in Path('/proc').glob('[0-9]*'):      # shims that a failed case left, and znsd, which would leave later
            try:
                name, text = (p / 'comm').read_text().strip(), (p / 'environ').read_bytes() + (p / 'cmdline').read_bytes()
                if name in ('znsd', 'containerd-shim') and str(self.dir).encode() in text:
                    os.kill(int(p.name), 15)
            except OSError:
                pass
        self.registry.close()
        sh('ip', 'link', 'del', BRIDGE, check=False)
        if self.keep:
            print(f'kept: {self.dir}')
            return
        for m in sorted((l.split()[4] for l in open('/proc/self/mountinfo') if str(self.dir) in l.split()[4]), reverse=True):
            sh('umount', '-l', m, check=False)
        for _ in range(20):
            shutil.rmtree(self.dir, ignore_errors=True)
            if not self.dir.exists():
                break
            time.sleep(0.3)

    def cri(self, *args, **more):
        return sh(self.crictl_bin, '--runtime-endpoint', f'unix://{self.sock}', '--image-endpoint', f'unix://{self.sock}', '--timeout',
                  '60s', *args, env=self.env, **more)

    def z(self, *args, **more):
        return sh(BIN / 'znsctl', *args, env=self.env, **more)

    def ls(self):
        return json.loads(self.z('ls', '--json').stdout)['checkpoints']

    def pod_file(self, name, annotations=None, network=2):
        f = self.dir / f'pod-{name}.json'
        f.write_text(json.dumps({'metadata': {'name': name, 'namespace': 'shop', 'uid': f'uid-{name}', 'attempt': 1},
                                 'log_directory': str(self.dir / 'logs'), 'annotations': annotations or {},
                                 'hostname': '' if network else name, 'linux': {'security_context': {'namespace_options': {'network': network}}}}))
        return f

    def pod(self, name, annotations=None, network=2):
        """Starts a pod of runtime class zns; network 2 is the node's network, 0 one of its own."""
        f = self.pod_file(name, annotations, network)
        return self.cri('runp', '--runtime', 'zns', f).stdout.strip(), f

    def sandbox(self, pod):
        """PID of the pod's sandbox, which holds its namespaces."""
        return json.loads(self.cri('inspectp', pod[0]).stdout)['info']['pid']

    def address(self, pod):
        return json.loads(self.cri('inspectp', pod[0]).stdout)['status']['network']['ip']

    def create(self, pod, image=None):
        f = self.dir / 'ctr.json'
        f.write_text(json.dumps({'metadata': {'name': 'app'}, 'image': {'image': image or self.work},
                                 'command': ['python3', '-c', SERVER], 'log_path': 'app.log', 'linux': {}}))
        return self.cri('create', '--no-pull', pod[0], f, pod[1]).stdout.strip()

    def container(self, pod, image=None):
        """Starts a container with an archive as its image, so that it is restored from the archive."""
        c = self.create(pod, image)
        self.cri('start', c)
        return c

    def told(self, c, seconds=60):
        end = time.monotonic() + seconds
        while True:
            r = self.cri('exec', c, 'cat', '/told', check=False)
            if not r.returncode and ' ' in r.stdout:
                digest, n = r.stdout.split()
                return digest, int(n)
            if time.monotonic() > end:
                raise Failed(f'the container does not answer: {r.stderr.strip()[-200:]} {self.cri("ps", "-a").stdout}')
            time.sleep(0.2)

    def verify(self, c, before):
        end = time.monotonic() + 60
        while (now := self.told(c))[1] <= before[1]:
            if time.monotonic() > end:
                raise Failed(f'the connected client does nothing since {before}')
            time.sleep(0.2)
        want('memory', now[0] == before[0], now, before)


@case
def checkpoint_and_restore(d):
    """A checkpoint goes to zones with container's name and rate, the container runs on; a new pod is restored from
    the archive, which has a handle and no pages."""
    pod = d.pod('web', {'zns.qos': '300'})
    c = d.container(pod)
    before = d.told(c)
    archive = d.dir / 'kubelet' / 'checkpoint-web_shop-app.tar'
    d.cri('checkpoint', '--export', archive, c)
    d.verify(c, before)
    (k,) = d.ls()
    want('record', (k['container'], k['container_id'], k['image'], k['origin']['kind'], k['qos_requested_mibps']) ==
         ('shop/web/app', c, d.work, 'cri', 300), k)
    want('pages on the device', k['page_bytes'] > 48 << 20, k)
    with tarfile.open(archive) as t:
        have = {m.name: m.size for m in t.getmembers()}
    want('a handle is in the archive', any('zns-handle' in n for n in have), have)
    want('no pages are', archive.stat().st_size < 2 << 20 and not any('pages-' in n for n in have), have)
    log = d.z('docker', 'logs', k['id'][:8]).stdout
    want('log', 'Dumping processes' in log, log[-200:])
    d.cri('rmp', '-f', pod[0])
    pod = d.pod('other')
    c2 = d.container(pod, image=str(archive))
    d.verify(c2, before)
    d.cri('rmp', '-f', pod[0])
    left = [str(p) for p in d.dir.joinpath('tmp').iterdir()]
    want('nothing left over', not left, left)
    d.z('rm', '--all')


@case
def again(d):
    """Two checkpoints of one container; the older one restored twice, into pods that run side by side."""
    pod = d.pod('twice')
    c = d.container(pod)
    first = d.told(c)
    d.cri('checkpoint', '--export', d.dir / 'kubelet/one.tar', c)
    d.verify(c, first)
    later = d.told(c)
    d.cri('checkpoint', '--export', d.dir / 'kubelet/two.tar', c)
    want('two on the device', len(d.ls()) == 2)
    d.cri('rmp', '-f', pod[0])
    pods = []
    for i, archive in enumerate(('one', 'one', 'two')):
        pods.append(d.pod(f'copy{i}'))
        copy = d.container(pods[-1], image=str(d.dir / f'kubelet/{archive}.tar'))
        d.verify(copy, first if archive == 'one' else later)
    for p in pods:
        d.cri('rmp', '-f', p[0])
    d.z('rm', '--all')


@case
def own_network(d):
    """A pod with a network namespace and an address, as on a cluster; restored in a pod with another address."""
    pod = d.pod('net', network=0)
    c = d.container(pod)
    before = d.told(c)
    address = d.address(pod)
    d.cri('checkpoint', '--export', d.dir / 'kubelet/net.tar', c)
    d.verify(c, before)
    other = d.pod('net2', network=0)
    c2 = d.container(other, image=str(d.dir / 'kubelet/net.tar'))
    d.verify(c2, before)
    want('another address', address and d.address(other) not in ('', address), address)
    want('and the container sees it', d.address(other) in d.cri('exec', c2, 'cat', '/proc/net/fib_trie').stdout)
    for p in (pod, other):
        d.cri('rmp', '-f', p[0])
    d.z('rm', '--all')


@case
def begin_warm(d):
    """zns.from: a container begins with the memory of another pod's, in its own pod's namespaces, and changes nothing of these."""
    def is_pods(kid, c):
        box = d.sandbox(kid)
        pid = json.loads(d.cri('inspect', c).stdout)['info']['pid']
        for ns in ('net', 'uts', 'ipc'):
            want(f"the pod's {ns} namespace", len({os.readlink(f'/proc/{p}/ns/{ns}') for p in (pid, box)}) == 1)
        names = [sh('nsenter', '-t', box, '-u', '-i', 'cat', f'/proc/sys/kernel/{f}').stdout.strip() for f in ('hostname', 'msgmax')]
        want('host name and limits', names == ['kid', '8192'], names)
        want('the variable', d.cri('exec', c, 'sh', '-c', 'echo $HOSTNAME').stdout.strip() == 'kid')

    warm = d.pod('warm', network=0)
    sh('nsenter', '-t', d.sandbox(warm), '-i', 'sh', '-c', 'echo 7777 >/proc/sys/kernel/msgmax')
    c = d.container(warm)
    before = d.told(c)
    d.cri('checkpoint', '--export', d.dir / 'kubelet/warm.tar', c)
    ident, = [k['id'] for k in d.ls()]
    rules = d.dir / 'conf/docker.rules'
    for rule, wish, says in (('', 'shop/warm/app/latest', 'no from-allow'), ('from-allow=shop/warm/app/*', 'shop/warm/app/latest', None),
                             ('from-allow=shop/warm/app/*', ident, None)):
        rules.write_text(f'name=shop/kid/* {rule}\n')
        kid = d.pod('kid', {'zns.from': wish}, network=0)
        if says:
            r = d.cri('start', d.create(kid), check=False)
            want(f'refused: {says}', r.returncode and says in r.stderr, r.stderr)
        else:
            c = d.container(kid)
            d.verify(c, before)
            is_pods(kid, c)
        d.cri('rmp', '-f', kid[0])
    # the tag is pushed again, with one more file
    buf = io.BytesIO(d.tree)
    with tarfile.open(fileobj=buf, mode='a') as t:
        t.addfile(tarfile.TarInfo('more'))
    want('the same name', d.registry.add('work', buf.getvalue(), '/bin/bash') == d.work)
    d.cri('pull', d.work, timeout=300)
    for more in ('', 'from-image=name'):
        rules.write_text(f'name=shop/kid/* from-allow=shop/warm/app/* {more}\n')
        kid = d.pod('kid', {'zns.from': ident}, network=0)
        c = d.create(kid)
        r = d.cri('start', c, check=False)
        if more:
            d.verify(c, before)
        want('other layers', bool(more) or 'has not the layers that shop/warm/app/' in r.stderr, r.stderr)
        d.cri('rmp', '-f', kid[0])
    d.cri('rmp', '-f', warm[0])
    left = [p.name for p in (d.dir / 'run/docker').iterdir() if p.suffix != '.log']
    want('nothing left over', not left, left)
    rules.unlink()
    d.z('rm', '--all')


@case
def errors(d):
    """A rate that no device has, a bad one, and a checkpoint that is gone: each is one readable line."""
    for name, rate, says in (('bad', '99999', 'is more than the device has'), ('worse', 'fast', 'is no bandwidth; write 500')):
        r = d.cri('runp', '--runtime', 'zns', d.pod_file(name, {'zns.qos': rate}), check=False)
        want(f'a rate of {rate}', r.returncode and says in r.stderr, r.stderr)
        d.cri('rmp', '-a', '-f')
    pod = d.pod('gone')
    c = d.container(pod)
    d.told(c)
    d.cri('checkpoint', '--export', d.dir / 'kubelet/gone.tar', c)
    d.cri('rmp', '-f', pod[0])
    d.z('rm', '--all')
    pod = d.pod('gone2')
    c = d.create(pod, image=str(d.dir / 'kubelet/gone.tar'))
    r = d.cri('start', c, check=False)
    want('gone', r.returncode and 'of container shop/gone/app was deleted at' in r.stderr, r.stderr)
    d.cri('rmp', '-f', pod[0])


@case
def reclaim(d):
    """gc sweeps nothing if it cannot know all runtimes; with a program that knows all archives it sweeps the
    checkpoints that are in none."""
    pod = d.pod('gc')
    c = d.container(pod)
    d.told(c)
    for name in ('kept', 'dropped'):
        d.cri('checkpoint', '--export', d.dir / f'kubelet/{name}.tar', c)
    kept, dropped = sorted(d.ls(), key=lambda k: k['created_ns'])
    d.cri('rmp', '-f', pod[0])
    (d.dir / 'kubelet/dropped.tar').unlink()
    d.z('gc', '--grace', '0')
    want('doubt keeps', len(d.ls()) == 2)
    program = d.dir / 'conf/gc.d/cri'
    program.parent.mkdir(exist_ok=True)
    shutil.copy(REPO / 'scripts/gc-cri', program)
    d.env['KUBELET_CHECKPOINTS'] = str(d.dir / 'away')
    d.z('gc', '--grace', '0')
    want('no directory, no judgement', len(d.ls()) == 2)
    d.env['KUBELET_CHECKPOINTS'] = str(d.dir / 'kubelet')
    (d.dir / 'kubelet/half.tar').write_bytes(b'x' * 700)
    d.z('gc', '--grace', '0')
    want('an archive that cannot be read, no judgement', len(d.ls()) == 2)
    (d.dir / 'kubelet/half.tar').unlink()
    d.z('gc', '--grace', '0')
    want('one is swept', [k['id'] for k in d.ls()] == [kept['id']], d.ls())
    d.z('rm', '--all')


def main():
    names = [a for a in sys.argv[1:] if not a.startswith('-')]
    passed = failed = 0
    with Node('--keep' in sys.argv) as d:
        for fn in CASES:
            if names and fn.__name__ not in names:
                continue
            start = time.monotonic()
            try:
                fn(d)
                passed += 1
                print(f'PASS {fn.__name__} ({time.monotonic() - start:.1f} s)', flush=True)
            except Exception as e:
                failed += 1
                print(f'FAIL {fn.__name__}: {type(e).__name__ if not isinstance(e, Failed) else ""} {e}', flush=True)
                d.cri('rmp', '-a', '-f', check=False)
                d.z('rm', '--all', check=False)
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return failed > 0 or not passed


if __name__ == '__main__':
    sys.exit(main())
