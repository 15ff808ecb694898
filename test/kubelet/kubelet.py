#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
kubelet.py list | run NAME... | run -a [--keep]: a kubelet's checkpoints on zones. Kubelet and containerd are built from
their Go modules; they run static pods, without an API server, on two nodes with namespaces of their own. Needs root,
runc, skopeo and docker-registry. The last line sums up.
"""
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / 'zonetests'), str(HERE.parent / 'docker')]
from dkdaemon import BIN, REPO, Failed, sh, until, want  # noqa: E402
from node import REGISTRY, Lab  # noqa: E402
from oci import Layout  # noqa: E402

MIB = 24                # of memory that the program has, and reads all the time
CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def images(lab):
    """pause, and a program whose state is in its memory alone: made here, sent to the registry."""
    layout = Layout(lab.dir / 'layout')
    for name, args in (('pause', []), ('count', [f'-DBYTES={MIB << 20}'])):
        program = lab.dir / name
        sh('gcc', '-static', '-O2', '-Wall', '-Werror', *args, '-o', program, HERE / f'{name}.c')
        buf = io.BytesIO()
        with tarfile.open(fileobj=buf, mode='w') as t:
            t.add(program, name)
        layer = layout.put(buf.getvalue())
        config = layout.put(json.dumps({'architecture': 'amd64', 'os': 'linux', 'config': {'Entrypoint': [f'/{name}']},
                                        'rootfs': {'type': 'layers', 'diff_ids': [layer['digest']]}}).encode(), 'application/vnd.oci.image.config.v1+json')
        layout.tell([layer], name, config=config, mediaType='application/vnd.oci.image.manifest.v1+json')
        lab.wire.push(layout.path, name)


WORK = f'{REGISTRY}/count:1'


def device(node, path=None):
    node.z('create', f'emu:{path or node.dir / "zns.img"}', '--zones', '48', '--zone-size', '32M')


def base_image(node):
    """containerd restores only where the image is that the container was made of; it pulls that by HTTPS and its own settings alone."""
    pod = node.pod('base', WORK)
    node.last(pod)
    node.remove(pod)


def image_of(node, archive, name, *args):
    """What a pod names to be restored."""
    node.sh(REPO / 'scripts/cri-image', *args, archive, f'docker://{REGISTRY}/{name}', '--dest-tls-verify=false')
    return f'{REGISTRY}/{name}'


def checkpointed(node, pod):
    """Returns the archive, the program's last line before it, and the checkpoint's record."""
    time.sleep(1 - time.time() % 1)     # the kubelet's archives of one second have one name
    before, had = node.last(pod), {k['id'] for k in node.ls()}
    code, archive = node.checkpoint(pod)
    want('the call', code == 200, code, archive)
    record, = [k for k in node.ls() if k['id'] not in had]
    return archive, before, record


def restored(node, pod, archive, before):
    """The program is the same incarnation with the same memory, and counts on from the checkpoint; a new one would have other numbers."""
    with tarfile.open(archive) as t:        # the new pod's log begins with this one
        copied = t.extractfile('container.log').read().decode().split()
    logged = max([int(w) for w in copied[5::6]])
    now = node.last(pod, max(logged, before[2]) + 3)
    lines = node.said(pod)
    want('the same program', all(line[:2] == before[:2] for line in lines), lines[0], now, before)
    steps = [b[2] - a[2] for a, b in zip(lines, lines[1:])]
    want('it counts on', sum(step != 1 for step in steps) <= 1 and all(-9 < step < 2 for step in steps), steps)
    print(f'     {pod}: counted to {before[2]} before the checkpoint, to {now[2]} after the restore; incarnation {now[0]}', flush=True)


@case
def checkpoint(lab):
    """POST /checkpoint: pages into zones under the pod's name and rate, a handle in the archive; the container runs on."""
    a = lab.a
    pod = a.pod('web', WORK, {'zns.qos': '300'})
    archive, before, k = checkpointed(a, pod)
    want('record', (k['container'], k['origin']['kind'], k['qos_requested_mibps']) == (f'shop/{pod}/app', 'cri', 300), k)
    want('pages on the device', k['page_bytes'] > MIB << 20, k['page_bytes'])
    have = {m.name: m.size for m in tarfile.open(archive).getmembers()}
    want('a handle, no pages', 'checkpoint/zns-handle.img' in have and not any('pages-' in n for n in have), have)
    want('small', archive.stat().st_size < 1 << 20, archive.stat().st_size)
    want('for root alone', archive.stat().st_mode & 0o777 == 0o600, oct(archive.stat().st_mode))
    want('it runs on', a.last(pod, before[2] + 3)[:2] == before[:2])
    print(f'     {archive.name}: {archive.stat().st_size} bytes, {k["page_bytes"]} bytes of pages on zones', flush=True)
    a.remove(pod)


@case
def same_node(lab):
    """Restored in another pod of the same node, next to the original container; and again when that is gone."""
    a = lab.a
    pod = a.pod('shop', WORK)
    archive, before, _ = checkpointed(a, pod)
    image = image_of(a, archive, 'again:1')
    one = a.pod('one', image)
    restored(a, one, archive, before)
    want('the first one runs', a.last(pod, before[2])[:2] == before[:2])
    want('two addresses', a.status(pod)['podIP'] != a.status(one)['podIP'])
    a.remove(pod, one)
    two = a.pod('two', image)
    restored(a, two, archive, before)
    a.remove(two)


@case
def registry_plain(lab):
    """A second node without any device of ours: the image has CRIU's own images, from znsctl export."""
    a, b = lab.a, lab.b
    pod = a.pod('plain', WORK)
    archive, before, k = checkpointed(a, pod)
    a.remove(pod)
    a.z('export', k['id'], a.dir / 'plain')
    image = image_of(a, archive, 'plain:1', '--images', a.dir / 'plain')
    other = b.pod('plain', image)
    restored(b, other, archive, before)
    b.remove(other)


@case
def registry_zones(lab):
    """A second node with a device of its own: znsctl push and pull, and an image with that device's handle."""
    a, b = lab.a, lab.b
    if not (b.dir / 'zns.img').exists():
        device(b)
    pod = a.pod('moved', WORK)
    archive, before, k = checkpointed(a, pod)
    a.remove(pod)
    where = f'docker://{REGISTRY}/moved-pages:1'
    a.z('push', k['id'], where, '--', '--dest-tls-verify=false')
    b.z('pull', where, '--container', k['container'], '--handle', b.dir / 'pulled', '--', '--src-tls-verify=false')
    image = image_of(b, archive, 'moved:1', '--images', b.dir / 'pulled')
    other = b.pod('moved', image)
    restored(b, other, archive, before)
    here, = b.ls()
    want('from its own device', here['origin']['kind'] == 'import' and here['id'] != k['id'], here)
    b.remove(other)
    b.z('rm', '--all')


@case
def retention(lab):
    """znsctl gc by the kubelet's own directory: what no archive there names goes, with the program that says so."""
    a = lab.a
    pod = a.pod('kept', WORK)
    a.z('rm', '--all')
    for old in a.checkpoints.iterdir():
        old.unlink()
    first, _, gone = checkpointed(a, pod)
    second, _, kept = checkpointed(a, pod)
    a.remove(pod)
    first.unlink()
    a.z('gc', '--grace', '0')
    want('doubt keeps', len(a.ls()) == 2)
    program = a.etc / 'zns-criu/gc.d/cri'
    program.write_bytes((REPO / 'scripts/gc-cri').read_bytes())
    program.chmod(0o755)
    try:
        (a.checkpoints / 'half.tar').write_bytes(second.read_bytes()[:700])
        a.z('gc', '--grace', '0')
        want('an archive that is half written, no judgement', len(a.ls()) == 2)
        (a.checkpoints / 'half.tar').unlink()
        a.z('gc', '--grace', '0')
        want('one is swept', [k['id'] for k in a.ls()] == [kept['id']], gone['id'], a.ls())
    finally:
        program.unlink()
    a.z('rm', '--all')


@case
def retain(lab):
    """A rule by the pod's name holds the number down."""
    a = lab.a
    pod = a.pod('ruled', WORK)
    a.z('retain', f'shop/{pod}/app', '--keep', '2')
    made = [checkpointed(a, pod)[2]['id'] for _ in range(3)]
    a.z('gc')
    want('the two newest', sorted(k['id'] for k in a.ls() if k['container'] == f'shop/{pod}/app') == sorted(made[1:]), a.ls(), made)
    a.remove(pod)


@case
def ceilings(lab):
    """tenants.conf by the pod's name: the kubelet's caller is told, and the container runs on."""
    a = lab.a
    pod = a.pod('greedy', WORK, {'zns.qos': '500'})
    before = a.last(pod)
    rules = a.etc / 'zns-criu/tenants.conf'
    rules.write_text('name  shop/greedy-*  max-qos=100MiB/s\n')
    try:
        code, text = a.checkpoint(pod)
        want('refused, by name', code == 500 and 'the ceiling of 100 MiB/s that `name shop/greedy-*` has' in text, code, text)
        want('it runs on', a.last(pod, before[2] + 3)[:2] == before[:2])
        want('no archive', not list(a.checkpoints.glob('*greedy*')))
        rules.write_text('name  shop/other-*  max-qos=100MiB/s\n')
        want('another tenant', checkpointed(a, pod)[2]['qos_requested_mibps'] == 500)
    finally:
        rules.unlink()
    a.remove(pod)


@case
def annotations(lab):
    """A bad value, an unknown one and zns.live keep the pod from starting, with our line as the kubelet's reason; zns.dev none is plain."""
    a = lab.a
    bad = {a.pod(f'bad{n}', WORK, value): line for n, (value, line) in enumerate(
        (({'zns.qos': 'fast'}, 'is no bandwidth; write 500'), ({'zns.quality': '1'}, 'zns.quality'), ({'zns.live': 'yes'}, 'zns.live')))}
    for pod, line in bad.items():
        until(f'{line} in the log', lambda: any(pod in words and line in words for words in a.logged('kubelet').splitlines()))
        want('it does not run', not a.said(pod))
    a.remove(*bad)
    pod = a.pod('none', WORK, {'zns.dev': 'none'})
    a.last(pod)
    had = len(a.ls())
    code, archive = a.checkpoint(pod)
    want('the call', code == 200, archive)
    names = tarfile.open(archive).getnames()
    want('plain', len(a.ls()) == had and any('checkpoint/pages-' in n for n in names) and not any('zns-handle' in n for n in names), names)
    a.remove(pod)


@case
def metrics(lab):
    """znsctl metrics has the container by its pod; the kubelet's and containerd's words for the call are counted."""
    a = lab.a
    pod = a.pod('seen', WORK, {'zns.qos': '200'})
    _, _, k = checkpointed(a, pod)
    mine = [line for line in a.z('metrics').stdout.splitlines() if f'"shop/{pod}/app"' in line]
    want('ours', any(str(k['bytes']) in line for line in mine), mine)
    told = a.http('GET', ':10250/metrics')[1]
    counted = [line for line in told.splitlines() if 'checkpoint_container' in line and line.startswith('kubelet_runtime_operations_total')]
    want("the kubelet's", counted and float(counted[0].split()[-1]) > 0, counted)
    a.remove(pod)


@case
def runtime_class(lab):
    """Upstream's limit: a kubelet without an API server dies of a static pod with a runtime class. So zns is containerd's default here."""
    b = lab.b
    pod = b.pod('classy', WORK, runtimeClassName='zns')
    try:
        want('the kubelet ends', b.kubelet.wait(90))
        want('in its look-up', 'runtimeclass_manager.go' in b.logged('kubelet')[-20000:])
    finally:
        (b.manifests / 'classy.json').unlink()
        if b.kubelet.poll() is not None:
            b.start_kubelet()
    b.remove(pod)


@case
def memory(lab):
    """Annotation zns.memory: extended; a checkpoint is refused in one line, since containerd has paused it; made after a detach, restored extended."""
    a = lab.a
    limit = {'resources': {'limits': {'memory': '128Mi'}}}
    pod = a.pod('wide', WORK, {'zns.memory': '20M'}, container=limit)
    before, name = a.last(pod), f'shop+{pod}+app'
    until('extended', lambda: name in a.z('memory', 'status').stdout)
    code, text = a.checkpoint(pod)
    want('refused', code == 500 and f'of memory context {name} stands still' in text, code, text)
    want('it runs on', a.last(pod, before[2] + 3)[:2] == before[:2])
    a.z('memory', 'detach', name)
    archive, before, _ = checkpointed(a, pod)
    a.remove(pod)
    again = a.pod('wider', image_of(a, archive, 'wide:1'), {'zns.memory': '20M'}, container=limit)
    restored(a, again, archive, before)
    until('extended again', lambda: f'shop+{again}+' in a.z('memory', 'status').stdout)
    a.remove(again)


@case
def other_namespace(lab):
    """A handle of another namespace's checkpoint is refused, with our line."""
    a = lab.a
    pod = a.pod('mine', WORK)
    archive, _, k = checkpointed(a, pod)
    a.remove(pod)
    image = image_of(a, archive, 'mine:1')
    pod = a.pod('thief', image, namespace='evil')
    until('refused', lambda: f'of container {k["container"]}' in a.logged('kubelet'), 60)
    a.remove(pod)


@case
def device_taken_over(lab):
    """Node a dies at once, with pod, kubelet and broker. Node b takes its device over, and a pod there goes on from the same zones."""
    a, b = lab.a, lab.b
    pod = a.pod('last', WORK)
    archive, before, k = checkpointed(a, pod)
    image = image_of(a, archive, 'last:1')
    a.z('status')       # an idle broker has given the device back: then nobody need take it over
    a.crash()
    path = f'emu:{a.dir}/zns.img'
    b.z('register', path, '--default')
    r = b.z('ls', check=False)
    want('not without a word', r.returncode and '--take-over' in r.stderr, r.stderr)
    b.z('register', path, '--default', '--take-over')
    want('the catalogue', k['id'] in [c['id'] for c in b.ls()], b.ls())
    other = b.pod('last', image)
    restored(b, other, archive, before)
    archive, now, again = checkpointed(b, other)
    want('checkpointed there', again['container'].startswith(f'shop/{other}/') and again['id'] != k['id'], again)
    b.remove(other)


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in ('list', 'run'):
        sys.exit(__doc__)
    if sys.argv[1] == 'list':
        for name, fn in CASES.items():
            print(f'{name:24} {fn.__doc__}')
        return 0
    names = [w for w in sys.argv[2:] if not w.startswith('-')] or list(CASES)
    unknown = [n for n in names if n not in CASES]
    if unknown:
        sys.exit(f'kubelet.py: no case {" ".join(unknown)}; kubelet.py list')
    passed = failed = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('interrupted'))
    directory = Path(tempfile.mkdtemp(prefix='zns-kubelet-', dir=os.environ.get('TMPDIR', '/var/tmp')))
    with Lab(directory, '--keep' in sys.argv) as lab:
        images(lab)
        lab.a, lab.b = lab.node('a'), lab.node('b')
        device(lab.a)
        base_image(lab.b)
        for name in names:
            start = time.monotonic()
            try:
                CASES[name](lab)
                passed += 1
                print(f'PASS {name} ({time.monotonic() - start:.1f} s)', flush=True)
            except (Exception, subprocess.SubprocessError) as e:
                failed += 1
                print(f'FAIL {name}: {type(e).__name__ if not isinstance(e, Failed) else ""} {e}', flush=True)
    print(f'{passed} passed, {failed} failed, 0 skipped')
    return failed > 0 or not passed


if __name__ == '__main__':
    sys.exit(main())
