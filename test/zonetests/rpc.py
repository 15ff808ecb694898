#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
rpc: CRIU's clients and its service, with zones.

Stock clients (libcriu, pycriu, go-criu, built from the pinned tarball or as their authors release them) get zones by a
configuration file; the pycriu of our tree also has the fields of criu_zns_opts. An error reaches the client in one
line. `make rpc` builds the clients.

  rpc.py list | run NAME... | run -a
"""
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
import ztrpc
from ztlib import Failed, HANDLE, REPO, Skipped, alive, helper_tracks, wait_until
from ztscene import case_of, expect, suite_main

CLIENTS = REPO / 'build' / 'clients'
STOCK = REPO / 'build' / 'stock-lib'
OURS = REPO / 'build' / 'criu'
PYCLIENT = REPO / 'test' / 'clients' / 'pyclient.py'
CASES = {}
case = case_of(CASES)


def config(scene, *lines):
    path = scene.dir / 'client.conf'
    path.write_text('\n'.join(lines) + '\n')
    return path


def run(scene, command, code=0, env=None):
    done = subprocess.run([str(c) for c in command], env=env or scene.device.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=scene.cfg.timeout, cwd=scene.dir)
    if done.returncode != code:
        logs = [ztlib.log_errors(p) for p in scene.images.glob('*.log')]
        raise Failed(f'{Path(command[0]).name} {command[1]}: exit {done.returncode}: {done.stderr.strip()[-300:]} {logs}')
    return done


def pids_in(text):
    return [int(p) for p in re.findall(r'^pid (\d+)$', text, re.M)]


class Py:
    """pycriu, of the stock tree or of ours."""

    def __init__(self, scene, tree=STOCK, service=None):
        self.scene = scene
        self.env = dict(scene.device.env, PYTHONPATH=str(tree / 'lib'))
        self.to = ['--service', service] if service else ['--binary', scene.cfg.criu]

    def call(self, op, opts=None, code=0, extra=(), env=None):
        opts = dict({'log_level': 4, 'log_file': f'{op}.log'}, **opts or {}) if op in ('dump', 'restore') else opts or {}
        images = ['--images', self.scene.images] if op in ('dump', 'restore') else []
        done = run(self.scene, ['/usr/bin/python3', PYCLIENT, op, *self.to, *images, '--opts', json.dumps(opts), *extra],
                   code, dict(self.env, **env or {}))
        return json.loads(done.stdout)

    def restore(self, opts=None):
        answer = self.call('restore', opts)
        self.scene.task.restored(answer['restore']['pid'])
        self.scene.task.verify(signal.SIGUSR1)
        return answer


def dumped(scene, container):
    """Checks that the task is gone, the directory has a handle, and the catalogue one checkpoint of this container."""
    if not wait_until(lambda: not alive(scene.task.pid), 5):
        raise Failed('the process is still there after the dump')
    ztlib.check_image_dir(scene.images)
    scene.no_helpers()
    expect('containers', [c['container'] for c in scene.device.checkpoints()], [container])


class Service:
    """Starts criu service on a socket of the scene."""

    def __init__(self, scene, *options, env=None):
        self.socket = scene.dir / 'criu.sock'
        self.log = open(scene.dir / 'service.stderr', 'ab')
        self.process = subprocess.Popen(
            [scene.cfg.criu, 'service', '--address', self.socket, '-W', scene.dir, '-o', 'service.log', '-v4', *options],
            env=env or scene.device.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=scene.dir)
        if not wait_until(self.listens):
            raise Failed('the service does not listen')

    def listens(self):
        """The kernel marks a socket that listens by the flag 0x10000."""
        sockets = (line.split() for line in Path('/proc/net/unix').read_text().splitlines())
        return any(words[3] == '00010000' and words[-1] == str(self.socket) for words in sockets)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def alive(self):
        return self.process.poll() is None


# ---- clients that do not know zones ------------------------------------------------------------------

def libcriu(scene, how):
    conf = config(scene, 'zns-qos 500', 'zns-container c-client')
    client = [CLIENTS / 'libcriu']
    args = [*how, '--config', conf, '--images', scene.images]
    show = f'{scene.cfg.znsctl} show {scene.images} >{scene.dir}/shown'
    done = run(scene, [*client, 'dump', *args, '--pid', scene.task.pid, '--log', 'dump.log', '--notify', show])
    if 'notify post-dump' not in done.stdout:
        raise Failed(f'no notification: {done.stdout}')
    dumped(scene, 'c-client')
    if 'c-client' not in (scene.dir / 'shown').read_text():
        raise Failed('znsctl show did not know the checkpoint at post-dump')
    done = run(scene, [*client, 'restore', *args, '--log', 'restore.log'])
    scene.task.restored(pids_in(done.stdout)[0])
    scene.task.verify(signal.SIGUSR1)


@case
def libcriu_binary(scene):
    """C: libcriu of the stock tarball starts our criu, zones by its configuration file; post-dump sees the checkpoint."""
    scene = scene()
    libcriu(scene, ['--binary', scene.cfg.criu])


@case
def libcriu_service(scene):
    """C: libcriu over the socket of criu service."""
    scene = scene()
    with Service(scene) as service:
        libcriu(scene, ['--service', service.socket])
        expect('service lives', service.alive(), True)


@case
def pycriu_binary(scene):
    """Python: stock pycriu's class dumps and restores, zones by its configuration file."""
    scene = scene()
    py = Py(scene)
    conf = str(config(scene, 'zns-qos 500', 'zns-container py-client'))
    answer = py.call('dump', {'pid': scene.task.pid, 'config_file': conf}, extra=['--class'])
    expect('answer', answer, {'success': True, 'dump': {'restored': False}} if answer.get('dump') else {'success': True})
    dumped(scene, 'py-client')
    answer = py.call('restore', {'config_file': conf}, extra=['--class'])
    scene.task.restored(answer['restore']['pid'])
    scene.task.verify(signal.SIGUSR1)


@case
def go_criu(scene):
    """Go: the released go-criu, with zones by criu's configuration file."""
    client = CLIENTS / 'go-client'
    if not client.exists():
        raise Skipped('there is no Go client: make rpc-go')
    scene = scene()
    conf = config(scene, 'zns-qos 500', 'zns-container go-client')
    run(scene, [client, 'dump', scene.cfg.criu, conf, scene.images, scene.task.pid])
    dumped(scene, 'go-client')
    done = run(scene, [client, 'restore', scene.cfg.criu, conf, scene.images])
    scene.task.restored(pids_in(done.stdout)[0])
    scene.task.verify(signal.SIGUSR1)


@case
def no_zones(scene):
    """A stock client without any zns option: plain images, no handle, answers without a field that it does not know."""
    scene = scene()
    py = Py(scene)
    answer = py.call('dump', {'pid': scene.task.pid})
    expect('unknown fields', answer['unknown_fields'], False)
    expect('handle', (scene.images / HANDLE).exists(), False)
    expect('pages', (scene.images / 'pages-1.img').exists(), True)
    expect('checkpoints', scene.device.checkpoints(), [])
    wait_until(lambda: not alive(scene.task.pid), 5)
    expect('unknown fields', py.restore()['unknown_fields'], False)
    answer = py.call('feature', {'mem_track': True})
    expect('unknown fields of a feature check', answer['unknown_fields'], False)
    ours = Py(scene, OURS)
    expect('bytes of the same request', ours.call('version')['request_bytes'], py.call('version')['request_bytes'])


# ---- the fields of criu_zns_opts -----------------------------------------------------------------------

@case
def fields(scene):
    """dev, qos, container, stripe … as fields of the request; restore by the checkpoint's id into an empty directory."""
    scene = scene()
    ours = Py(scene, OURS)
    zns = {'dev': scene.device.spec, 'qos_mibps': 200, 'qos_max_mibps': 1000, 'container': 'field', 'weight': 300, 'cgroup': 'own', 'alloc': 'dynamic',
           'admission': 'wait=5', 'stripe_bytes': 131072, 'separate_metadata': True}
    ours.call('dump', {'pid': scene.task.pid, 'zns': zns})
    dumped(scene, 'field')
    made, = scene.device.checkpoints()
    shown = scene.device.json('show', made['id'])
    expect('QoS', made['qos_requested_mibps'], 200)
    expect('weight', made['weight'], 300)
    expect('unit', {i['unit'] for i in shown['images']}, {131072})
    # the error must be in the answer, not only in criu's log
    expect('files beside the images', [i['name'] for i in shown['images'] if i['beside']], [])
    expect('reservations', scene.device.status()['reservations'], [])
    scene.images = scene.dir / 'empty'
    scene.images.mkdir()
    ours.restore({'zns': {'checkpoint': made['id']}})


@case
def empty_message(scene):
    """An empty criu_zns_opts asks for zones with every default."""
    scene = scene()
    Py(scene, OURS).call('dump', {'pid': scene.task.pid, 'zns': {}})
    dumped(scene, 'images')
    Py(scene, OURS).restore()


@case
def config_wins(scene):
    """The client's configuration file wins over its fields, as for every other option."""
    scene = scene()
    conf = str(config(scene, 'zns-container from-file'))
    Py(scene, OURS).call('dump', {'pid': scene.task.pid, 'config_file': conf, 'zns': {'container': 'from-field'}})
    dumped(scene, 'from-file')


# ---- errors --------------------------------------------------------------------------------------------

def told(scene, answer, pattern):
    """Checks that the client got one error line of ours."""
    said = answer.get('cr_errmsg', '')
    if answer['success'] or 'zns: ' not in said or not re.search(pattern, said) or said.strip().count('\n'):
        raise Failed(f'the client was told "{said}", not /{pattern}/')
    print(f'     says: {said.strip()}', flush=True)


@case
def errors(scene):
    """Each kind of error reaches the client as cr_errmsg; after a failed dump the task runs on."""
    scene = scene(size=64)
    ours = Py(scene, OURS)
    pid = {'pid': scene.task.pid}

    def fails(pattern, zns, env=None):
        told(scene, ours.call('dump', dict(pid, zns=zns), 1, env=env), pattern)
        for log in scene.images.glob('*.log'):
            log.unlink()
        scene.unharmed()

    fails('exceeds what .* at most', {'qos_mibps': 99999})
    fails('not registered', {'dev': f'emu:{scene.dir}/none'})
    fails('--zns-container needs a value', {'container': ''})
    fails('is out of range', {'stripe_bytes': 1000})
    fails('admission "soon"', {'admission': 'soon'})
    fails('no checkpoint nonsense', {'parent': 'nonsense'})
    fails('no such parent', {'parent': '01234567-0123-4123-8123-0123456789ab'})
    fails('--zns-parent needs a value', {'parent': ''})
    fails('zones failed|media error', {'qos_mibps': 100}, ztlib.controls(ZNS_EMU_FAULT='write-after=40x*'))
    fails('zns-helper is not', {}, {'ZNS_LIBEXEC': str(scene.dir)})
    ours.call('dump', dict(pid, zns={}))
    wait_until(lambda: not alive(scene.task.pid), 5)
    told(scene, ours.call('restore', {}, 1, env=ztlib.controls(ZNS_EMU_FAULT='read-after=3')), 'read (of|from) zone|zone .* read')
    gone = scene.device.checkpoint_of('images')
    scene.device.remove(gone)
    told(scene, ours.call('restore', {}, 1), f'{gone} .*was deleted')


# ---- service, check ------------------------------------------------------------------------------------

@case
def service(scene):
    """criu service: dumps and restores one after another, failed ones in between; zones also by the service's options."""
    scene = scene()
    with Service(scene, '--zns-container', 'of-service') as service:
        py = Py(scene, service=str(service.socket))
        ours = Py(scene, OURS, str(service.socket))
        for n in range(3):
            scene.images = scene.dir / f'images-{n}'
            scene.images.mkdir()
            told(scene, ours.call('dump', {'pid': scene.task.pid, 'zns': {'qos_mibps': 99999}}, 1), 'exceeds what')
            py.call('dump', {'pid': scene.task.pid})
            wait_until(lambda: not alive(scene.task.pid), 5)
            ztlib.check_image_dir(scene.images)
            py.restore()
            expect('service lives', service.alive(), True)
        expect('containers', [c['container'] for c in scene.device.checkpoints()], ['of-service'] * 3)
        scene.no_helpers()


@case
def check_feature(scene):
    """criu check --feature zns, also over RPC: yes if a device can be used, else no with one line."""
    scene = scene()

    def check(*extra, env=None):
        return subprocess.run([scene.cfg.criu, 'check', '--feature', 'zns', *extra], env=env or scene.device.env,
                              capture_output=True, text=True, timeout=scene.cfg.timeout, cwd=scene.dir)

    done = check()
    expect('check', (done.returncode, 'zns is supported' in done.stdout + done.stderr), (0, True))
    done = check('--zns-dev', scene.device.spec)
    expect('check with a device', done.returncode, 0)
    bad = dict(scene.device.env, ZNS_CONFIG=str(scene.dir / 'nothing'))
    for why, done in (('not registered', check('--zns-dev', f'emu:{scene.dir}/none')), ('no device is registered', check(env=bad)),
                      ('zns-helper is not', check(env=dict(scene.device.env, ZNS_LIBEXEC=str(scene.dir))))):
        said = [l for l in (done.stdout + done.stderr).splitlines() if 'zns: ' in l]
        if done.returncode == 0 or len(said) != 1 or why not in said[0]:
            raise Failed(f'check: exit {done.returncode}: {said}, not one line "{why}"')
        print(f'     says: {said[0]}', flush=True)
    ours = Py(scene, OURS)
    answer = ours.call('feature', {'zns': True})
    expect('feature over RPC', answer['features'].get('zns'), True)
    answer = ours.call('feature', {'zns': True}, env={'ZNS_CONFIG': str(scene.dir / 'nothing')})
    expect('feature over RPC without a device', answer['features'].get('zns'), False)
    expect('not asked', 'zns' in ours.call('feature', {'mem_track': True})['features'], False)
    scene.no_helpers()


@case
def mem_track(scene):
    """criu check --feature mem_dirty_track, and mem_track over RPC: with zones the answer is the helper's, else the kernel's."""
    scene = scene()

    def check(*options):
        done = subprocess.run([scene.cfg.criu, 'check', '--feature', 'mem_dirty_track', *options], env=scene.device.env,
                              capture_output=True, timeout=scene.cfg.timeout, cwd=scene.dir)
        return done.returncode == 0

    def ask(**env):
        return ztrpc.has_mem_track(scene, dict(scene.device.env, **env))

    soft_dirty = check()
    expect('mem_track without zones', ask(), soft_dirty)
    expect('mem_dirty_track with zones', check('--zns-dev', scene.device.spec), soft_dirty or helper_tracks())
    conf = config(scene, f'zns-dev {scene.device.spec}')
    expect('mem_track with zones', ask(CRIU_CONFIG_FILE=str(conf)), soft_dirty or helper_tracks())
    config(scene, f'zns-dev emu:{scene.dir}/none')
    expect('mem_track with zones that are not there', ask(CRIU_CONFIG_FILE=str(conf)), soft_dirty)
    scene.no_helpers()


@case
def live_dumps(scene):
    """Live dumps over RPC: by our field, and by a client's config_file."""
    scene = scene()
    conf = config(scene, 'zns-qos 500', 'zns-live')
    for opts in {ztrpc.ZNS: ztrpc.message({ztrpc.ZNS_LIVE: b'yes', ztrpc.ZNS_LIVE_SLOW: b'freeze'})}, \
            {ztrpc.CONFIG_FILE: str(conf).encode()}:
        success, says = ztrpc.request(scene, ztrpc.DUMP, scene.images,
                                      {ztrpc.PID: scene.task.pid, ztrpc.LEAVE_RUNNING: 1, **opts})
        if not success:
            raise Failed(f'the dump failed: {says}')
        shown = scene.device.json('show', str(scene.images))
        if not shown.get('live') or (helper_tracks() and not shown['live']['rounds']):
            raise Failed(f'the dump was not live: {shown.get("live")}')
        scene.task.verify(signal.SIGUSR1)
        scene.device.remove(shown['id'])
        (scene.images / HANDLE).unlink()
    bad = {ztrpc.PID: scene.task.pid, ztrpc.ZNS: ztrpc.message({ztrpc.ZNS_LIVE: b'soon'})}
    success, says = ztrpc.request(scene, ztrpc.DUMP, scene.images, bad)
    if success or 'it takes auto, yes, no or durable' not in says:
        raise Failed(f'the client is told: {says}')
    scene.unharmed()


def prepared():
    for path in (CLIENTS / 'libcriu', STOCK / 'lib' / 'pycriu' / 'rpc_pb2.py', OURS / 'lib' / 'pycriu' / 'rpc_pb2.py'):
        if not path.exists():
            sys.exit(f'{path} is missing: make rpc-clients')


if __name__ == '__main__':
    if 'list' not in sys.argv:
        prepared()
    sys.exit(suite_main(__doc__, 'rpc', CASES))
