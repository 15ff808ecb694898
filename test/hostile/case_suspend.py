# SPDX-License-Identifier: GPL-2.0-only
"""Stops of a container with zns.suspend, and starts of it, in an unlucky order."""
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path

from case_names import CRI, cri
from runtime import ID, OTHER, RUNC, Engine
from tally import tried
from ztfds import descriptors
from ztlib import Failed, wait_until
from ztscene import TINY, case_of, expect

CASES = {}
case = case_of(CASES)

# A runc whose checkpoint begins, and ends with the exit code that comes through the gate.
GATED = '''#!/bin/sh
case " $* " in *" checkpoint "*)
    mkdir {dir}/begun || exit 1
    echo checkpoint >>{dir}/calls
    read code <{dir}/gate
    echo "ended $code" >>{dir}/calls
    rmdir {dir}/begun
    exit "$code";;
esac
echo "$*" >>{dir}/calls
'''


class Suspended(Engine):
    def __init__(self, scene):
        super().__init__(scene)
        self.init_pid = scene.task.pid
        self.labels({'zns.suspend': 'yes', 'zns.dev': 'none'})
        self.call('create')             # writes bundle and state
        self.fake.write_text(GATED.format(dir=self.dir))
        os.mkfifo(self.dir / 'gate')
        self.running, self.docker_root = [], self.root
        self.own = self.root / 'containers' / ID

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.running:          # what it has started ends with it
            p.kill()

    def begin(self, *command):
        self.running.append(subprocess.Popen([RUNC, '--zns-runc', self.fake, '--zns-docker-root', self.root, '--root', self.state, *command],
                                             env=self.scene.device.env, stdin=subprocess.DEVNULL))
        return self.running[-1]

    def calls(self):
        path = self.dir / 'calls'
        return path.read_text().splitlines() if path.exists() else []

    def stop_beside(self):
        """A stop that has met the checkpoint under way, and waits for its end; one that comes later begins a checkpoint of its own."""
        stop = self.begin('kill', ID, '15')
        if not wait_until(lambda: any('pidfd' in link for _, link in descriptors(stop.pid))):
            raise Failed('the stop does not wait for the checkpoint')
        return stop

    def end(self, code):
        (self.dir / 'gate').write_text(f'{code}\n')


@case
def stopped_twice(scene):
    """A second stop during the checkpoint of the first one sends no signal, which would be dumped with the frozen tasks, before that has failed."""
    with Suspended(scene(TINY, size=1)) as e:
        for code, kills in ((1, 2), (0, 0)):
            (e.dir / 'calls').unlink(missing_ok=True)
            first = e.begin('kill', ID, 'TERM')
            if not wait_until(lambda: e.calls() == ['checkpoint']):
                raise Failed(f'the stop is no checkpoint: {e.calls()}')
            second = e.stop_beside()
            if not code:
                os.kill(e.init_pid, 9)
            e.end(code)
            expect('exits of both stops', [p.wait(120) for p in (first, second)], [0, 0])
            expect('calls of runc', e.calls()[:2], ['checkpoint', f'ended {code}'])
            expect('signals of both stops', len(e.calls()[2:]), kills)
            expect('it ended with a checkpoint', (e.own / 'zns-ended').exists(), not code)
            tried(f'a second stop, and the checkpoint ends with {code}')
        (e.dir / 'calls').unlink()
        expect('exit of SIGKILL', e.begin('kill', ID, 'KILL').wait(120), 0)
        expect('SIGKILL', [c.split()[-1] for c in e.calls()], ['KILL'])
        tried('SIGKILL')


@case
def stopped_frozen(scene):
    """A stop during Docker's own checkpoint that ends the container sends its signal if that fails; during one that lets it run at once."""
    with Suspended(scene(TINY, size=1)) as e:
        (e.own / 'checkpoints').mkdir(exist_ok=True)
        for options, code, signals in ((['--leave-running'], 0, ['kill', 'ended 0']), ([], 1, ['ended 1', 'kill']), ([], 0, ['ended 0'])):
            (e.dir / 'calls').unlink(missing_ok=True)
            dump = e.begin('checkpoint', *options, '--image-path', e.own / 'checkpoints/one', '--work-path', e.work, ID)
            if not wait_until(lambda: e.calls() == ['checkpoint']):
                raise Failed(f'no checkpoint: {e.calls()}')
            stop = e.begin('kill', ID, '15') if options else e.stop_beside()
            if options:
                expect('exit of the stop', stop.wait(120), 0)
            elif not code:
                os.kill(e.init_pid, 9)
            e.end(code)
            expect('exit of the checkpoint', dump.wait(120), code)
            expect('exit of the stop', stop.wait(120), 0)
            expect('signals of the stop', ['kill' if ' kill ' in f' {c} ' else c for c in e.calls() if c != 'checkpoint'], signals)
            tried(f'a stop in a checkpoint, {options}, which ends with {code}')


@case
def restored_by_name(scene):
    """docker start --checkpoint uses up what the container ended with; a restore that fails does not."""
    with Suspended(scene(TINY, size=1)) as e:
        note = e.own / 'zns-ended'
        note.write_text('one 1\n')
        note.chmod(0o600)
        for code, there in ((1, True), (0, False)):
            e.fake.write_text(f'#!/bin/sh\nexit {code}\n')
            words = ('restore', '--detach', '--bundle', e.bundle, '--image-path', e.images, '--work-path', e.work, ID)
            expect(f'exit of a restore, {code}', e.begin(*words).wait(120), code)
            expect('the note of its end', note.exists(), there)
            tried(f'a restore that ends with {code}')
        if json.loads((e.bundle / 'config.json').read_text()) != e.spec:
            raise Failed('the bundle is changed')


@case
def bad_rules(scene):
    """A line of docker.rules that is none hinders no start; a container that loses its memory by it says so."""
    with Suspended(scene(TINY, size=1)) as e:
        rules = Path(e.scene.device.env['ZNS_CONFIG']) / 'docker.rules'
        rules.write_text('name=* qso=5\n')
        note = e.own / 'zns-ended'
        for ended in (False, True):
            if ended:
                note.write_text('one 1\n')
                note.chmod(0o600)
            expect('exit of create', e.call('create')[0], 0)
            said = (e.own / 'zns-note').read_text() if (e.own / 'zns-note').exists() else ''
            if ('started cold: ' in said and '"qso" is not known' in said) != ended:
                raise Failed(f'ended {ended}: {said!r}')
            tried(f'a bad rule, ended with a checkpoint: {ended}')
        note.unlink()
        # what must not be a cold start is none
        for labels, exit in (({'zns.from': 'warm/one'}, 1), ({'zns.from': 'warm/one', 'zns.resume-else': 'cold'}, 0),
                             ({'zns.suspend': 'yes'}, 0)):
            e.labels(labels)
            expect(f'exit of create, {labels}', e.call('create')[0], exit)
            tried(f'a bad rule, {labels}')
        e.config(Config={'Image': 'nginx', 'Labels': {'zns.resume': 'latest'}, 'Env': []}, State={'StartedAt': '2020-01-01T00:00:00Z'})
        expect('exit of create, latest', e.call('create')[0], 1)
        tried('a bad rule, and latest')


# A runc whose restore waits as criu does, until it is given up; all of its calls are listed.
HOLDING = '''#!/bin/sh
echo "$*" >>{dir}/calls
case " $* " in *" restore "*) exec python3 -c "
import os, socket
hold = os.environ['ZNS_HOLD']
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
    s.connect('/proc/self/fd/%d/%s' % (os.open(os.path.dirname(hold), os.O_PATH), os.path.basename(hold)))
    s.send(b'h%d' % os.getpid())
    s.recv(100)
os._exit(1)
";; esac
'''


class Console(Suspended):
    """A container with a terminal that ended with checkpoint `one`."""

    def __init__(self, scene, **labels):
        super().__init__(scene)
        self.labels({'zns.suspend': 'yes', **labels})
        root, one = self.dir / 'rootfs', self.own / 'checkpoints/one'
        root.mkdir()
        one.mkdir(parents=True)
        self.spec['root']['path'] = str(root)
        (self.bundle / 'config.json').write_text(json.dumps(self.spec))
        (one / 'inventory.img').touch()
        (one / 'zns-shape.json').write_text(json.dumps({**self.spec, 'process': {}}))
        note = self.own / 'zns-ended'
        note.write_text(f'one {1 << 62} {1 << 62}\n')
        for f in (one / 'inventory.img', one / 'zns-shape.json', note):
            f.chmod(0o600)
        self.fake.write_text(HOLDING.format(dir=self.dir))

    def create(self, console):
        (self.dir / 'calls').unlink(missing_ok=True)
        return self.begin('create', '--bundle', self.bundle, '--console-socket', console, ID)

    def processes(self):
        """Of this container; its restore and the relay of its terminal have the same words."""
        found = []
        for p in Path('/proc').glob('[0-9]*'):
            try:
                if str(self.state).encode() in (p / 'cmdline').read_bytes():
                    found.append((p / 'comm').read_text().strip())
            except OSError:
                pass
        return found

    def nothing_left(self):
        if not wait_until(lambda: not self.processes()):
            raise Failed(f'still there: {self.processes()}')
        expect('files in the run directory', [p.name for p in Path(self.scene.device.env['ZNS_RUN']).glob('docker/*hold*')], [])


def sockets(directory):
    """Console sockets that take no terminal: where they are, and what is said of them."""
    dead = directory / 'dead'
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(dead))
        s.listen()
    (directory / 'file').touch()
    packets = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets.bind(str(directory / 'packets'))
    packets.listen()
    yield directory / 'nothing', 'No such file'
    yield dead, 'Connection refused'
    yield directory / 'file', 'Connection refused'
    yield directory / 'packets', 'wrong type'
    yield directory / ('x' * 120), 'the path is too long'
    packets.close()


@case
def console_refused(scene):
    """An engine's console socket that takes no terminal: the restore is given up, nothing of it is left, and its memory stays for the next start."""
    with Console(scene(TINY, size=1)) as e, tempfile.TemporaryDirectory(dir='/tmp') as short:
        for path, why in sockets(Path(short)):
            expect(f'exit of create, {path.name}', e.create(path).wait(120), 0)
            said = (e.own / 'zns-note').read_text()
            if not said.startswith('started cold: ') or why not in said:
                raise Failed(f'{path.name}: {said!r}')
            expect('calls of runc', [('restore' if ' restore ' in c else 'create') for c in e.calls()], ['restore', 'create'])
            expect('the note of its end', (e.own / 'zns-ended').exists(), True)
            e.nothing_left()
            tried(f'a console socket, {path.name[:9]}')
        e.labels({'zns.suspend': 'yes', 'zns.resume-else': 'fail'})
        expect('exit of create', e.create(Path(short) / 'nothing').wait(120), 1)
        expect('calls of runc', len(e.calls()), 1)
        e.nothing_left()
        tried('a console socket, and no cold start')
        # the control: one that takes it, and closes it before the start
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(f'{short}/good')
            s.listen()
            create = e.create(f'{short}/good')
            s.settimeout(120)
            peer, _ = s.accept()
            peer.settimeout(120)
            name, (master,), _, _ = socket.recv_fds(peer, 100, 1)
            peer.close()
            expect('exit of create', create.wait(120), 0)
            expect('what it is given', (name, os.isatty(master)), (b'/dev/ptmx\0', True))
            expect('a relay', wait_until(lambda: 'zns-terminal' in e.processes()), True)
            os.close(master)
            expect('the end of the relay', wait_until(lambda: 'zns-terminal' not in e.processes()), True)
            expect('exit of delete', e.begin('delete', '--force', ID).wait(120), 0)
        e.nothing_left()
        tried('a console socket that takes the terminal')


DIGEST = 'web@sha256:' + '0' * 64


class Pod(Engine):
    """A container of a pod whose root is an overlay, as containerd makes it."""

    def __init__(self, scene, pod, snapshots, cid=ID):
        super().__init__(scene, 'state/k8s.io', cid)
        self.spec.update(annotations={**cri('shop', pod), CRI + 'image-name': 'nginx'}, process={'args': ['nginx'], 'env': []},
                         mounts=[{'destination': '/etc/hosts', 'type': 'bind', 'source': '/etc/hosts', 'options': ['rw']}],
                         # one of another type is not the host's
                         linux={'namespaces': [{'type': 'network', 'path': '/proc/self/ns/uts'}]})
        self.snapshots, self.mine, self.rootfs = snapshots, snapshots / pod, self.bundle / 'rootfs'
        self.plain = json.dumps(self.spec)

    def __enter__(self):
        self.rootfs.mkdir()
        for d in ('fs', 'work'):
            (self.mine / d).mkdir(parents=True)
        self.mount(f'{self.snapshots}/2/fs:{self.snapshots}/1/fs')
        return self

    def mount(self, lower):
        """Paths of @lower that are not whole ones begin at the snapshots' directory: containerd shortens long lists so."""
        subprocess.run(['umount', self.rootfs], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(['mount', '-i', '-t', 'overlay', '-o', f'lowerdir={lower},upperdir={self.mine}/fs,workdir={self.mine}/work', 'root', self.rootfs],
                       cwd=self.snapshots, check=True)

    def __exit__(self, *_):
        subprocess.run(['umount', self.rootfs], check=True)

    def delete(self):
        expect('exit of delete', subprocess.run([RUNC, '--zns-runc', self.fake, '--root', self.state, 'delete', '--force', self.id], check=False,
                                                env=self.scene.device.env, timeout=120).returncode, 0)

    def create(self, wish, **spec):
        """(exit code, what it says, runc's calls). Its output goes to a file, since a restore that waits keeps it open."""
        self.spec = json.loads(self.plain)
        self.spec['annotations'] |= {**({'zns.from': wish} if wish else {}), **spec.pop('annotations', {})}
        self.spec |= spec
        (self.dir / 'calls').unlink(missing_ok=True)
        self.fake.write_text(HOLDING.format(dir=self.dir))
        (self.bundle / 'config.json').write_text(json.dumps(self.spec))
        with open(self.dir / 'said', 'w+') as said:
            code = subprocess.run([RUNC, '--zns-runc', self.fake, '--root', self.state, 'create', '--bundle', self.bundle, self.id], check=False,
                                  env=self.scene.device.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=120).returncode
            said.seek(0)
            return code, said.read(), (self.dir / 'calls').read_text().splitlines() if (self.dir / 'calls').exists() else []


@contextlib.contextmanager
def snapshots(scene):
    """A directory like containerd's, with the layers of three images."""
    at = scene.dir / 'snapshots'
    at.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', 'layers', at], check=True)
    try:
        for n in '123':
            (at / n / 'fs').mkdir(parents=True)
        yield at
    finally:
        subprocess.run(['umount', at], check=True)


@case
def from_in_pod(scene):
    """A pod names a checkpoint to begin with: a CRI must have made it here, a rule must allow it, and image, program and rights must be the same."""
    scene = scene(TINY, size=1)
    with snapshots(scene) as layers:
        shop, bare, pinned = Engine(scene), Pod(scene, 'bare', layers), Pod(scene, 'pinned', layers)
        pinned.spec['annotations'][CRI + 'image-name'] = DIGEST
        shop.config()
        shop.docker_root = shop.root
        with Pod(scene, 'warm', layers) as warm:
            for e in (warm, bare, pinned, shop):
                (e.images / 'descriptors.json').write_text('["/dev/null", "pipe:[1]", "pipe:[2]"]')
                expect('exit of a dump', e.dump()[0], 0)
        begin_from(scene, layers)


def begin_from(scene, layers):
    ids = {k['container']: k['id'] for k in scene.device.json('ls')['checkpoints']}
    good, rules = ids['shop/warm/app'], Path(scene.device.env['ZNS_CONFIG']) / 'docker.rules'
    with Pod(scene, 'kid', layers, OTHER) as kid:
        def refused(what, says, wish=good, allow='shop/warm/app/*', **spec):
            rules.write_text(f'name=shop/kid/* from-allow={allow}\n')
            code, said, calls = kid.create(wish, **spec)
            if not code or calls or says not in said or said.count('\n') != 1:
                raise Failed(f'{what}: {code} {said!r} {calls}')
            nothing_of(what)

        def nothing_of(what):
            expect(f'what {what} leaves', [p.name for p in Path(scene.device.env['ZNS_RUN']).glob(f'docker/{OTHER}*')], [])
            tried(what)

        none = 'there is no such checkpoint, or no from-allow'
        for pattern in ('shop/other/*', 'shop/*', '*', '*/*'):      # the last three are for containers of Docker
            refused(f'the pattern {pattern}', none, allow=pattern)
        for wish in (ids['web'], f'web/{ids["web"]}', f'shop/{good}', f'shop/kid/app/{good}', good.upper(), 'shop/warm/app/zns-handle.img'):
            refused(f'zns.from={wish}', none, wish, '*/*/*/*,*/*')
        for wish in ('shop/warm/app', f'../{good}', f'shop/warm/../{good}', f'/warm/app/{good}', f'shop/warm/app/{good}/', f'shop/warm/app/x/{good}'):
            refused(f'zns.from={wish}', 'is not known: CONTAINER/CHECKPOINT', wish, '*/*/*/*')
        refused('another image', 'in its image', annotations={CRI + 'image-name': 'redis'})
        refused('no image', 'in its image', annotations={CRI + 'image-name': ''})
        refused('another program', 'in its program', process={'args': ['sh'], 'env': []})
        refused('no program', 'in its program', process={'env': []})
        for process, what in (({'user': {'uid': 1000}}, 'user'), ({'capabilities': {'bounding': ['CAP_CHOWN']}}, 'bounding capabilities'),
                              ({'noNewPrivileges': True}, 'no_new_privs'), ({'apparmorProfile': 'x'}, 'AppArmor profile')):
            refused(what, f'dumped in its {what}', process={'args': ['nginx'], 'env': [], **process})
        refused('a mount', 'dumped in its mount /data', mounts=[*kid.spec['mounts'], {'destination': '/data', 'type': 'bind', 'source': '/tmp', 'options': []}])
        refused('the network of the host', 'dumped in its namespace network', linux={'namespaces': [{'type': 'network', 'path': '/proc/self/ns/net'}]})
        refused('no name', 'names no pod', annotations={CRI + 'sandbox-name': 'x' * 300}, allow='*/*/*/*')
        (kid.rootfs / 'lib').write_text('x')
        refused('a file of its own', 'lib is not a file of the container')
        (kid.rootfs / 'lib').unlink()
        layered = 'from-image=name of docker.rules allows it'
        first, second, third = (f'{layers}/{n}/fs' for n in '123')
        for lower in (third, first, f'{first}:{second}', f'{third}:{second}:{first}', '2/fs:3/fs', '1/fs:2/fs'):
            kid.mount(lower)
            refused(f'the layers {lower}', layered)
        kid.mount(f'{second}:{first}')
        refused('a bad word of the rule', 'same or name', allow='shop/warm/app/* from-image=any')
        refused('a checkpoint of no overlay', 'does not say on which layers its container ran', ids['shop/bare/app'], 'shop/bare/app/*')
        refused('the word of its creator', 'only by the administrator', annotations={'zns.from-image': 'name'})
        for annotations in ({CRI + 'container-type': 'sandbox'}, {CRI + 'container-name': 'side'}, {'zns.resume-else': 'cold', CRI + 'image-name': 'x'}):
            code, said, calls = kid.create(good, annotations=annotations)
            expect(f'a cold start, {annotations}', (code, ['create' in c.split() for c in calls]), (0, [True]))
            nothing_of(f'{annotations}')
        for other in ('web/latest', good):      # rules of Docker's containers
            rules.write_text(f'name=* from={other}\n')
            code, said, calls = kid.create(None)
            expect(f'a rule of others, {other}', (code, ['create' in c.split() for c in calls]), (0, [True]))
            nothing_of(f'a rule of others, {other}')
        for wish, lower, image in ((good, None, ''), (f'shop/warm/app/{good}', '2/fs:1/fs', ''), ('shop/warm/app/latest', None, ' from-image=same'),
                                   (good, third, ' from-image=name'), (None, None, '')):
            rules.write_text('name=shop/kid/* ' + ('from-allow=shop/warm/app/*' if wish else 'from=shop/warm/app/latest') + f'{image}\n')
            kid.mount(lower or f'{second}:{first}')
            code, said, calls = kid.create(wish)
            expect(f'zns.from={wish}{image}', (code, said, ['restore' in c.split() for c in calls]), (0, '', [True]))
            made = Path(calls[0].split('--image-path ')[1].split()[0])
            expect('its directory', (oct(made.stat().st_mode & 0o777), sorted(p.name for p in made.iterdir())),
                   ('0o700', ['descriptors.json', 'zns-handle.img', 'zns-shape.json']))
            kid.delete()
            nothing_of(f'zns.from={wish}')
        rules.write_text('name=shop/kid/* from-allow=shop/pinned/app/*\n')
        code, said, calls = kid.create('shop/pinned/app/latest', annotations={CRI + 'image-name': DIGEST})
        expect('a digest, and no layers known', (code, said, ['restore' in c.split() for c in calls]), (0, '', [True]))
        kid.delete()
        nothing_of('a digest')
        # a create that was killed before its restore began
        stale = Path(scene.device.env['ZNS_RUN']) / 'docker' / f'{OTHER}.from'
        stale.mkdir()
        (stale / 'zns-shape.json').write_text('{')
        kid.delete()
        nothing_of('a killed create')
        # the image was made anew at the same path
        rules.write_text('name=shop/kid/* from-allow=shop/warm/app/*\n')
        subprocess.run(['umount', kid.rootfs], check=True)
        Path(second).rmdir()
        Path(second).mkdir()
        kid.mount(f'{second}:{first}')
        refused('layers that were made anew', layered)
    rules.unlink()


@case
def runtime_files(scene):
    """A file of the runtime that somebody has put into the directory, or that is too large, is not stored, and the dump's log says so."""
    e = Engine(scene(TINY, size=1))
    e.config()
    known, e.docker_root, file = set(), e.root, e.images / 'descriptors.json'
    for what, change, says in (('nothing', lambda: None, None), ('another owner', lambda: os.chown(file, 1, 1), "another user's"),
                               ('a link', lambda: os.link(file, e.dir / 'link'), 'several links'),
                               ('its size', lambda: file.write_text('[' + ' ' * (256 << 10) + ']'), 'larger than 256 KiB')):
        for f in e.images.iterdir():
            f.unlink()
        file.write_text('[]')
        change()
        expect(f'exit of a dump, {what}', e.dump()[0], 0)
        (made,) = {k['id'] for k in e.scene.device.json('ls')['checkpoints']} - known
        known.add(made)
        stored = [i['name'] for i in e.scene.device.json('show', made)['images']]
        expect(f'stored, {what}', (file.name in stored, 'zns-shape.json' in stored), (not says, True))
        log = (e.work / 'dump.log').read_text()
        expect(f'said, {what}', [line for line in log.splitlines() if 'is left out' in line and (says or '') in line] != [], bool(says))
        tried(what)
