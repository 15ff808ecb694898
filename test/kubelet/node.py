# SPDX-License-Identifier: GPL-2.0-only
"""
Nodes of a cluster without an API server: each has mount, network, PID, UTS and IPC namespaces of its own, in which a
kubelet and a containerd run with their usual paths. A bridge in one more network namespace joins them with a registry.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from dkdaemon import BIN, SYS_PATH, Failed, sh, until
from fetch import debs
from gobuild import built

NET = '10.213.90'
REGISTRY = f'{NET}.1:5000'
CGROUPS = Path('/sys/fs/cgroup')
# The kubelet sets these for the whole machine; on a node of ours it finds files in their place.
SYSCTLS = ['vm/overcommit_memory', 'vm/panic_on_oom', 'kernel/panic', 'kernel/panic_on_oops', 'kernel/keys/root_maxkeys',
           'kernel/keys/root_maxbytes']

# Directories that the tests write and read too; nothing may do that below a mounted overlay.
PLACES = ['/var/lib/containerd', '/var/lib/kubelet', '/etc/containerd', '/etc/cni', '/etc/kubernetes', '/etc/zns-criu']

# Process 1 of a node. What a node writes to /etc, /var/lib and /var/log is below its directory, and /run is its own.
INIT = r'''
set -e
mount -t proc proc /proc
for d in etc var/lib var/log; do
    mkdir -p "$N/over/$d/up" "$N/over/$d/work"
    mount -t overlay -o "lowerdir=/$d,upperdir=$N/over/$d/up,workdir=$N/over/$d/work" node "/$d"
done
mount -t tmpfs -o mode=755 node /run
for d in $PLACES; do
    mkdir -p "$N$d" "$d"
    mount --bind "$N$d" "$d"
done
mkdir -p "$N/sysctl"
for f in $SYSCTLS; do
    cat "/proc/sys/$f" >"$N/sysctl/${f##*/}"
    mount --bind "$N/sysctl/${f##*/}" "/proc/sys/$f"
done
mount --make-rshared /
hostname "$NAME"
ip link set lo up
cd /
touch "$N/up"
trap : TERM
while :; do sleep 3600 & wait; done
'''


def child_of(proc):
    return int(until('a namespace', lambda: Path(f'/proc/{proc.pid}/task/{proc.pid}/children').read_text().split())[0])


def die_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Wire:
    """The network between the nodes, with Debian's docker-registry on it, over plain HTTP."""

    def __init__(self, directory):
        self.dir = directory
        self.hold = subprocess.Popen(['unshare', '--net', '--fork', '--kill-child', 'sleep', 'infinity'], preexec_fn=die_with_us)
        self.pid = child_of(self.hold)
        self.enter = ['nsenter', '-t', str(self.pid), '-n']
        for words in (['link', 'set', 'lo', 'up'], ['link', 'add', 'br0', 'type', 'bridge'], ['addr', 'add', f'{NET}.1/24', 'dev', 'br0'],
                      ['link', 'set', 'br0', 'up']):
            sh(*self.enter, 'ip', *words)
        config = directory / 'registry.yml'
        config.write_text(f'version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {directory}/registry}}}}\n'
                          f'http: {{addr: "{REGISTRY}"}}\n')
        with open(directory / 'registry.log', 'wb') as log:
            self.registry = subprocess.Popen([*self.enter, 'docker-registry', 'serve', config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until('the registry', lambda: not sh(*self.enter, 'curl', '-sf', f'http://{REGISTRY}/v2/', check=False).returncode, 30)

    def join(self, node, n):
        sh(*self.enter, 'ip', 'link', 'add', f'v{n}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', str(node.pid))
        sh(*self.enter, 'ip', 'link', 'set', f'v{n}', 'master', 'br0', 'up')
        for words in (['addr', 'add', f'{NET}.{n + 10}/24', 'dev', 'eth0'], ['link', 'set', 'eth0', 'up'],
                      ['route', 'add', 'default', 'via', f'{NET}.1']):
            node.sh('ip', *words)

    def push(self, layout, name):
        sh(*self.enter, 'skopeo', 'copy', '--quiet', '--dest-tls-verify=false', f'oci:{layout}:{name}', f'docker://{REGISTRY}/{name}:1')

    def close(self):
        for proc in (self.registry, self.hold):
            proc.kill()
            proc.wait()


class Node:
    def __init__(self, lab, name, n):
        self.lab, self.name, self.n = lab, name, n
        self.dir = lab.dir / name
        self.dir.mkdir()
        self.cgroup = f'/zns-kubelet-{os.getpid()}/{name}'
        self.log = open(self.dir / 'log', 'ab')
        self.etc = self.dir / 'etc'
        self.manifests = self.etc / 'kubernetes/manifests'
        self.checkpoints = self.dir / 'var/lib/kubelet/checkpoints'
        self.proc = None

    def start(self):
        env = {'PATH': SYS_PATH, 'N': str(self.dir), 'NAME': self.name, 'SYSCTLS': ' '.join(SYSCTLS), 'PLACES': ' '.join(PLACES)}
        self.proc = subprocess.Popen(['unshare', '--mount', '--net', '--pid', '--uts', '--ipc', '--fork', '--kill-child', '--propagation', 'private',
                                      'bash', '-c', INIT], env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=die_with_us)
        self.pid = child_of(self.proc)
        until('the node', lambda: (self.dir / 'up').exists() or self.proc.poll() is not None, 30)
        if self.proc.poll() is not None:
            raise Failed(f'{self.name} did not start: {(self.dir / "log").read_text()[-400:]}')
        self.env = {'PATH': f'{built("containerd")}:{BIN}:{SYS_PATH}', 'HOME': '/root', 'TMPDIR': str(self.dir / 'tmp')}
        self.lab.wire.join(self, self.n)
        for c in CGROUPS.glob('*'):
            if c.is_dir() and not c.is_symlink():
                Path(f'{c}{self.cgroup}').mkdir(parents=True, exist_ok=True)
        self.configure()
        self.run('containerd', built('containerd') / 'containerd')
        until('containerd', lambda: not self.sh('ctr', 'version', check=False).returncode, 60)
        self.start_kubelet()

    def start_kubelet(self):
        self.run('kubelet', built('kubelet') / 'kubelet', '--config', '/etc/kubernetes/kubelet.json', '--hostname-override', self.name, '--v', '2')
        until('kubelet', lambda: self.http('GET', ':10248/healthz', 'http')[1] == 'ok', 90)

    def configure(self):
        (self.dir / 'tmp').mkdir(exist_ok=True)
        for d in (self.manifests, self.etc / 'cni/net.d', self.etc / f'containerd/certs.d/{REGISTRY}', self.etc / 'zns-criu/gc.d'):
            d.mkdir(parents=True, exist_ok=True)
        (self.etc / 'zns-criu/machine-id').write_text(os.urandom(16).hex() + '\n')
        (self.etc / 'cni/net.d/10-node.conflist').write_text(json.dumps({'cniVersion': '1.0.0', 'name': 'node', 'plugins': [
            {'type': 'bridge', 'bridge': 'cni0', 'ipam': {
                'type': 'host-local', 'dataDir': '/run/ipam', 'ranges': [[{'subnet': f'10.213.{91 + self.n}.0/24'}]]}}]}))
        (self.etc / f'containerd/certs.d/{REGISTRY}/hosts.toml').write_text(f'server = "http://{REGISTRY}"\n')
        cri = 'io.containerd.cri.v1'
        (self.etc / 'containerd/config.toml').write_text(f'''version = 3
temp = '{self.dir}/tmp'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.internal.v1.opt', 'io.containerd.tracing.processor.v1.otlp']
[plugins.'{cri}.images'.pinned_images]
  sandbox = '{REGISTRY}/pause:1'
[plugins.'{cri}.images'.registry]
  config_path = '/etc/containerd/certs.d'
[plugins.'{cri}.runtime']
  restrict_oom_score_adj = true     # without CAP_SYS_RESOURCE no process can lower its own
  enable_experimental_restore_via_create = true
[plugins.'{cri}.runtime'.cni]
  bin_dirs = ['{debs('bookworm', 'containernetworking-plugins')}/usr/lib/cni']
[plugins.'{cri}.runtime'.containerd]
  default_runtime_name = 'zns'      # without an API server no kubelet knows a runtime class
[plugins.'{cri}.runtime'.containerd.runtimes.zns]
  runtime_type = 'io.containerd.runc.v2'
  pod_annotations = ['zns.*']
[plugins.'{cri}.runtime'.containerd.runtimes.zns.options]
  BinaryName = '{BIN}/zns-runc'
''')
        (self.etc / 'kubernetes/kubelet.json').write_text(json.dumps({
            'apiVersion': 'kubelet.config.k8s.io/v1beta1', 'kind': 'KubeletConfiguration', 'staticPodPath': '/etc/kubernetes/manifests',
            'cgroupDriver': 'cgroupfs', 'cgroupRoot': self.cgroup, 'failSwapOn': False, 'address': '127.0.0.1', 'readOnlyPort': 0,
            'authentication': {'anonymous': {'enabled': True}, 'webhook': {'enabled': False}}, 'authorization': {'mode': 'AlwaysAllow'},
            'containerRuntimeEndpoint': 'unix:///run/containerd/containerd.sock', 'oomScoreAdj': 0, 'resolvConf': '',
            'makeIPTablesUtilChains': False, 'localStorageCapacityIsolation': False, 'imageGCHighThresholdPercent': 100,
            'evictionHard': {'memory.available': '1Mi', 'nodefs.available': '0%', 'imagefs.available': '0%', 'nodefs.inodesFree': '0%',
                             'imagefs.inodesFree': '0%'},
            'fileCheckFrequency': '1s', 'syncFrequency': '2s', 'volumePluginDir': '/var/lib/kubelet/volume-plugins'}))

    def run(self, name, *command):
        with open(self.dir / f'{name}.log', 'ab') as log:
            self.__dict__[name] = subprocess.Popen([*self.enter(), *map(str, command)], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def enter(self):
        return ['nsenter', '-t', str(self.pid), '-m', '-n', '-p', '-u', '-i', '--']

    def sh(self, *command, **more):
        return sh(*self.enter(), *command, env=getattr(self, 'env', None), **more)

    def z(self, *args, **more):
        return self.sh(BIN / 'znsctl', *args, **more)

    def ls(self):
        return json.loads(self.z('ls', '--json').stdout)['checkpoints']

    def logged(self, name):
        return (self.dir / f'{name}.log').read_text(errors='replace')

    def http(self, method, where, scheme='https'):
        """Status code and text of an answer; 0 if none came."""
        r = self.sh('curl', '-sk', '-X', method, '-w', '\n%{http_code}', f'{scheme}://127.0.0.1{where}', check=False, timeout=150)
        text, _, code = r.stdout.rpartition('\n')
        return int(code or 0), text

    def pod(self, name, image, annotations=None, namespace='shop', **spec):
        """A static pod; what the kubelet calls it."""
        container = spec.pop('container', {})
        new = self.etc / f'kubernetes/{name}.json'
        new.write_text(json.dumps({
            'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name, 'namespace': namespace, 'annotations': annotations or {}},
            'spec': {'restartPolicy': 'Never', 'terminationGracePeriodSeconds': 1, 'automountServiceAccountToken': False, 'enableServiceLinks': False,
                     'containers': [{'name': 'app', 'image': image, **container}], **spec}}))
        new.rename(self.manifests / f'{name}.json')
        return f'{name}-{self.name}'

    def status(self, pod):
        """Status of its container according to the kubelet; {} as long as there is none."""
        code, text = self.http('GET', ':10250/pods')
        for p in (json.loads(text)['items'] or []) if code == 200 else []:
            if p['metadata']['name'] == pod:
                return {**((p['status'].get('containerStatuses') or [{}])[0]), 'podIP': p['status'].get('podIP')}
        return {}

    def said(self, pod):
        """Lines of its container, from the kubelet: (incarnation, digest of its memory, count)."""
        code, text = self.http('GET', f':10250/containerLogs/shop/{pod}/app')
        words = [line.split() for line in text.splitlines()] if code == 200 else []
        return [(w[0], w[1], int(w[2])) for w in words if len(w) == 3 and w[2].isdigit()]

    def last(self, pod, beyond=-1, seconds=120):
        """The program's last line, once its count is higher than that."""
        def newest():
            said = self.said(pod)
            return said[-1] if said and said[-1][2] > beyond else None
        try:
            return until(f'{pod} counts beyond {beyond}', newest, seconds)
        except Failed as e:
            raise Failed(f'{e} {json.dumps(self.status(pod).get("state"))} {self.said(pod)[-1:]}') from None

    def remove(self, *pods):
        for pod in pods:
            (self.manifests / f'{pod.removesuffix("-" + self.name)}.json').unlink(missing_ok=True)
        until(f'{pods} gone', lambda: not any(self.status(p) for p in pods) and
              not any(p in self.sh('ctr', '-n', 'k8s.io', 'containers', 'ls', '-q', 'labels."io.kubernetes.pod.name"==' + p).stdout for p in pods))

    def checkpoint(self, pod):
        """The kubelet's call: its code, and the archive, or what it says."""
        code, text = self.http('POST', f':10250/checkpoint/shop/{pod}/app')
        if code != 200:
            return code, text
        path, = json.loads(text)['items']
        return code, self.checkpoints / Path(path).name

    def crash(self):
        """Everything on it is dead at once, as after a power cut."""
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        self.proc = None
        for name in ('kubelet', 'containerd'):
            if name in self.__dict__:
                self.__dict__[name].wait()

    def close(self):
        self.crash()
        self.log.close()
        for c in CGROUPS.glob('*'):
            top = Path(f'{c}{self.cgroup}')
            for d in sorted(top.rglob('*'), reverse=True) if top.is_dir() else []:
                if d.is_dir():
                    empty(d)
            for d in (top, top.parent):
                empty(d)


def empty(cgroup):
    """The last process may still be leaving it."""
    for _ in range(50):
        try:
            if cgroup.is_dir():
                cgroup.rmdir()
            return
        except OSError:
            if any(p.is_dir() for p in cgroup.iterdir()):
                return
            time.sleep(0.1)


class Lab:
    """with Lab() as lab: a registry with the images, and nodes; all of it is removed afterwards."""

    def __init__(self, directory, keep):
        self.dir, self.keep, self.nodes, self.wire = directory, keep, {}, None

    def __enter__(self):
        self.wire = Wire(self.dir)
        return self

    def node(self, name):
        if name not in self.nodes:
            self.nodes[name] = node = Node(self, name, len(self.nodes))
            node.start()
        return self.nodes[name]

    def __exit__(self, *exc):
        for node in self.nodes.values():
            node.close()
        if self.wire:
            self.wire.close()
        if self.keep:
            print(f'kept: {self.dir}')
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
