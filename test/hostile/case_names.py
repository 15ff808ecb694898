# SPDX-License-Identifier: GPL-2.0-only
"""Names, settings and files that a container's creator chooses.

zns-runc runs as root and writes an option file for criu, which starts scripts that an option names.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from mallory import UID
from runtime import ID, OTHER, VICTIM, Engine, trap, with_user
from tally import tried
from ztlib import Failed, wait_until
from ztscene import TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)

# characters that end a word, a line or a quote, or that a terminal obeys
EVIL = ['x"\naction-script "/trap', 'x\naction-script /trap', 'x" libdir "/mine', 'x"', '\\', 'x\\', '\\"', 'a\rb', 'a\tb', 'a\x1b[2Jb',
        'a\x07', 'a\x7fb', 'a\x00b', '\n', '\r\n', 'a\u0085b', 'a\u2028b', 'a\u2029b', 'a\u009bb', "x'\n"]
# no control characters, but nothing that Docker or Kubernetes would allow
STRANGE = ['a b', 'a/b', '/a', '../a', '-a', '.a', '_a', 'a#b', 'a$b', 'a;b', 'a`b`', 'a*', 'a\u00e4', '\u202ea', '', ' ', 'a=b', '{}']

CRI = 'io.kubernetes.cri.'
CRIO = 'io.kubernetes.cri-o.'


def cri(ns='shop', pod='web', name='app'):
    return {CRI + 'container-type': 'container', CRI + 'sandbox-namespace': ns, CRI + 'sandbox-name': pod, CRI + 'container-name': name}


def crio(ns='shop', pod='web', name='app'):
    return {'io.container.manager': 'cri-o', CRIO + 'ContainerType': 'container', CRIO + 'Namespace': ns, CRIO + 'KubeName': pod,
            CRIO + 'ContainerName': name}


@case
def cri_annotations(scene):
    """containerd's CRI: a name that is not valid in Kubernetes is refused in one line, and nothing is started."""
    scene = scene(TINY, size=1)
    e = Engine(scene, 'state/k8s.io')
    e.spec['annotations'] = cri()
    e.named('good names', 'shop/web/app')
    for part in ('ns', 'pod', 'name'):
        for bad in EVIL + STRANGE:
            e.spec['annotations'] = cri(**{part: bad})
            if '\0' in bad:     # without a name the id is used
                e.named(bad, ID)
            else:
                e.refused(bad, says='is not a valid name in Kubernetes')
            tried(f'{part} {bad!r}')
    e.spec['annotations'] = cri(pod='x' * 300)
    e.named('too long', ID)
    tried('too long')
    for image in EVIL:
        e.spec['annotations'] = {**cri(), CRI + 'image-name': image}
        e.named(image, 'shop/web/app')
        if 'ZNS_ORIGIN_IMAGE=\n' not in (e.dir / 'env').read_text():
            raise Failed(f'image {image!r} reaches the catalogue')
        tried(f'image {image!r}')
    for value in ('yes', 'durable'):
        e.spec['annotations'] = {**cri(), 'zns.live': value}
        e.refused(value, says='not in Kubernetes')
        tried(f'live {value}')
    conf = scene.device.directory / 'etc/zns.conf'
    kept = conf.read_text() if conf.exists() else ''
    conf.write_text(kept + 'docker-live = yes\n')
    e.spec['annotations'] = cri()
    e.named('a default that is not for it', 'shop/web/app')
    conf.write_text(kept)


@case
def cri_elsewhere(scene):
    """Annotations of a CRI that does not run here, or whose users can write annotations, are not taken for a name."""
    scene = scene(TINY, size=1)
    forged = [('moby', cri('kube-system')), ('default', cri('kube-system')), ('moby', crio('kube-system')),
              ('runc', crio('kube-system')), ('runc', {**crio('a'), **cri('kube-system')}), ('k8s.io', crio('kube-system')),
              ('default', {'io.container.manager': 'libpod', **cri()}), ('k8s.io', {'io.container.manager': 'libpod', **cri()}),
              ('k8s.iox', cri()), ('xk8s.io', cri()), ('k8s.io/x', cri())]
    for state, annotations in forged:
        e = Engine(scene, f'state/{state}')
        e.spec['annotations'] = annotations
        e.named((state, annotations), ID)
        tried(f'{state} {sorted(annotations)}')
    # the administrator may state that CRI-O does not let them through
    e = Engine(scene, 'state/runc')
    conf = scene.device.directory / 'etc/zns.conf'
    kept = conf.read_text() if conf.exists() else ''
    e.spec['annotations'] = crio()
    conf.write_text(kept + 'cri-o-names = yes\n')
    e.named('allowed', 'shop/web/app')
    for bad in EVIL[:8] + STRANGE[:8]:
        e.spec['annotations'] = crio(pod=bad)
        e.refused(bad, says='is not a valid name in Kubernetes')
        tried(f'CRI-O {bad!r}')
    conf.write_text(kept)


@case
def docker_mounts(scene):
    """A user's own volume that looks like Docker's data root: neither its name nor its labels count."""
    scene = scene(TINY, size=1)
    for name in (VICTIM, '/' + VICTIM, OTHER, 'x"\naction-script "/trap'):
        for source in ('{}/containers/{}/x', '{}/containers/{}/hosts', '{}/containers/{}', '{}/overlay2/{}/merged'):
            e = Engine(scene)
            mine = e.dir / 'mine'
            cid = OTHER if source.endswith('/x') else ID
            e.config(mine, ID, Name=name, Config={'Image': 'theirs', 'Labels': {'zns.qos': '9'}, 'Env': []})
            mount = source.format(mine, cid)
            e.spec['mounts'] = [{'source': 'proc'}, {'source': mount, 'destination': '/a'}]
            if 'overlay2' in mount:
                e.spec['mounts'], e.spec['root'] = [], {'path': mount}
            e.named((name, mount), ID)
            tried(f'{name!r} {source}')


@case
def script_by_a_mount(scene):
    """A user's volume as above, with a real criu: the dump is made under the container's id, and no script of the user runs."""
    scene = scene(TINY, size=1)
    e = Engine(scene)
    script, mark = trap(e.dir)
    for at in ('mount', 'annotation'):
        evil = f'x"\naction-script "{script}'
        e.spec['mounts'] = []
        if at == 'mount':
            e.config(e.dir / 'mine', ID, Name='/' + evil)
            e.spec['mounts'] = [{'source': f'{e.dir}/mine/containers/{ID}/x', 'destination': '/a'}]
        else:
            e.spec['annotations'] = cri(pod=evil)
        code, said, _ = e.dump()
        if mark.exists():
            raise Failed(f'{at}: a script of the user was run as root')
        if code:
            raise Failed(f'{at}: {said}')
        if scene.device.checkpoints()[-1]['container'] != ID:
            raise Failed(f'{at}: {scene.device.checkpoints()[-1]["container"]}')
        tried(at)


@case
def docker_files(scene):
    """Docker's own files: a link, another's id, what others may write, or a name that Docker never gives is refused."""
    scene = scene(TINY, size=1)

    def engine():
        e = Engine(scene)
        e.docker_root = e.root
        # a runtime that guesses would find it, too
        e.spec['mounts'] = [{'source': f'{e.root}/containers/{ID}/hosts', 'destination': '/etc/hosts'}]
        return e

    e = engine()
    e.config(Config={'Image': 'nginx', 'Labels': {'zns.qos': '50'}, 'Env': []})
    e.named('good', 'web', qos='50')
    for name in ('/' + OTHER, '/' + 'x' * 201, '/', ''):
        e.config(Name=name)
        e.named(name, ID)
        tried(f'name {name[:20]!r}')
    for name in EVIL + [s for s in STRANGE if s.strip('/ ')]:
        e.config(Name='/' + name)
        if '\0' in name:
            e.named(name, ID)
        else:
            e.refused(name, says='not one that Docker allows')
        tried(f'name {name!r}')
    for cid in (OTHER, '', None, 5, ID[:-1], ID + 'a', ID.upper()):
        e.config(ID=cid)
        e.refused(cid, says='describes another container')
        tried(f'ID {cid!r}')
    for text in ('', '{', '[]', '{"ID": 3}', '{"ID": "' + ID + '"} x'):
        e.config().write_text(text)
        e.refused(text, 'checkpoint')
        tried(f'text {text[:20]!r}')

    def link(e, path):
        path.rename(e.dir / 'there')
        path.symlink_to(e.dir / 'there')

    def fifo(e, path):
        path.unlink()
        os.mkfifo(path)

    def directory(e, path):
        path.unlink()
        path.mkdir()

    def link_dir(e, path):
        link(e, path.parent)

    def link_all(e, path):
        link(e, path.parent.parent)

    spoil = {'a link': link, 'a link to its directory': link_dir, 'a link to all': link_all, 'a FIFO': fifo, 'a directory': directory,
             'a user\'s': lambda e, p: with_user(p), 'a user\'s directory': lambda e, p: with_user(p.parent),
             'a user\'s root': lambda e, p: with_user(e.root), 'all may write': lambda e, p: p.chmod(0o666),
             'a group may write': lambda e, p: p.chmod(0o660), 'all may write there': lambda e, p: p.parent.chmod(0o777),
             'all may write all': lambda e, p: p.parent.parent.chmod(0o777), 'all may write the root': lambda e, p: e.root.chmod(0o777)}
    for what, act in spoil.items():
        e = engine()
        act(e, e.config(Name='/' + VICTIM))
        e.refused(what, says='was not used')
        tried(what)


@case
def labels(scene):
    """Labels, annotations and variables: no value can end its line; an unknown key or a bad value is reported at create."""
    scene = scene(TINY, size=1)
    e = Engine(scene)
    e.docker_root = e.root
    e.spec['mounts'] = [{'source': f'{e.root}/containers/{ID}/hosts', 'destination': '/etc/hosts'}]
    for key in ('qos', 'admission', 'alloc', 'stripe', 'dev', 'live', 'criu'):
        for value in ['5\nzns-container victim', '5"', '5 #', '5\\', '5\x1b[2J', '', ' ', 'x' * 300, '5\r\naction-script /x', '$(id)', '-1', 'nan']:
            e.labels({f'zns.{key}': value})
            e.refused((key, value), says=f'label zns.{key}')
            tried(f'label {key} {value!r}'[:60])
    for value in ('3', '65K', '63K', '4097K', '8M', '0', '1T', '64k4'):
        e.labels({'zns.stripe': value})
        e.refused(value, says='no size of a stripe')
        tried(f'stripe {value}')
    for value in ('/dev/nosuch', 'emu:/nosuch', 'emu:rel', './x', '../x', '123e4567-e89b-12d3-a456-426614174000', 'rel'):
        e.labels({'zns.dev': value})
        e.refused(value, says='zns.dev')
        tried(f'dev {value}')
    for key in ('zns.qso', 'zns.', 'zns.container', 'zns.parent', 'zns.QOS', 'zns.qos ', 'zns.qos\nx', 'zns.checkpoint', 'zns.action-script'):
        e.labels({key: '5'})
        e.refused(key, 'create', says='is not known')
        e.labels({})
        e.spec['annotations'] = {key: '5'}
        e.refused(key, 'create', says='is not known')
        e.spec['annotations'] = {}
        tried(f'key {key!r}')
    for value in ('5\nzns-container victim', '5"', '\x1b[2J'):
        e.spec['process'] = {'env': [f'ZNS_QOS={value}']}
        e.refused(value, says='variable ZNS_QOS')
        tried(f'variable {value!r}')
    e.spec['process'] = {'env': ['ZNS_DEV=/dev/x', 'ZNS_LIVE=yes', 'ZNS_CONTAINER=victim', 'ZNS_PARENT=x', 'ZNS_ORIGIN_ID=x', 'CRIU_CONFIG_FILE=/x',
                                 'PATH=/of-a-hostile-container', 'ZNS_LIBEXEC=/of-a-hostile-container', 'LD_PRELOAD=/of-a-hostile-container/x.so']}
    e.named('variables of ours', 'web')
    if '/of-a-hostile-container' in (e.dir / 'env').read_text():
        raise Failed('a variable of the container reaches runc')
    tried('variables of ours')


@case
def criu_config_annotation(scene):
    """org.criu.config names a file of the administrator's, or the container does not start."""
    scene = scene(TINY, size=1)
    e = Engine(scene)
    etc = scene.device.directory / 'etc'
    script, mark = trap(e.dir)
    mine = e.dir / 'volume'         # Docker's volumes are below its data root, all of which belongs to root
    mine.mkdir()
    text = f'action-script {script}\nzns-container {VICTIM}\n'
    (mine / 'a.conf').write_text(text)
    good = etc / 'web.conf'
    good.write_text('zns-qos 70\n')
    good.chmod(0o600)

    def asks(value):
        e.spec['annotations'] = {'org.criu.config': str(value)}

    asks(good)
    e.named('the administrator\'s', ID, qos='70')
    (etc / 'link.conf').symlink_to(mine / 'a.conf')
    (etc / 'open.conf').write_text(text)
    (etc / 'open.conf').chmod(0o666)
    with_user(etc / 'open.conf')
    os.mkfifo(etc / 'fifo.conf')
    (etc / 'dir.conf').mkdir()
    (etc / 'sub').mkdir()
    (etc / 'sub/a.conf').write_text(text)
    for value in (mine / 'a.conf', 'a.conf', './a.conf', f'{etc}/../{mine.name}/a.conf', f'{etc}/sub/a.conf', f'{etc}//a.conf', '/etc/criu/../passwd',
                  '/etc/passwd', '/etc/shadow', f'{etc}/link.conf', f'{etc}/open.conf', f'{etc}/fifo.conf', f'{etc}/dir.conf', f'{etc}/none.conf',
                  etc, f'{etc}/', '/etc/criu/nosuch.conf', '/proc/self/environ', f'{etc}/..', f'{etc}/.', 'x' * 5000):
        asks(value)
        e.refused(value, says='org.criu.config')
        tried(f'file {str(value)[-30:]}')
    conf = etc / 'zns.conf'
    kept = conf.read_text() if conf.exists() else ''
    conf.write_text(kept + f'criu-config-dir = {mine}\n')
    asks(mine / 'a.conf')
    with_user(mine)
    e.refused('a user\'s directory', says='org.criu.config')
    tried('a user\'s directory is the administrator\'s choice')
    os.chown(mine, 0, 0)
    (mine / 'a.conf').write_text('zns-qos 80\n')
    e.named('allowed', ID, qos='80')
    conf.write_text(kept)


@case
def podman_names(scene):
    """A container's name is taken from conmon's arguments only if they are for this very container; a namespace for Podman."""
    scene = scene(TINY, size=1)
    e = Engine(scene, 'state/podman')
    e.spec['annotations'] = {'io.container.manager': 'libpod'}

    def told(*words):
        """Imitates a container's first process, whose parent has these arguments."""
        code = 'import subprocess,sys,time; p = subprocess.Popen(["sleep", "1000"]); print(p.pid, flush=True); time.sleep(1000)'
        boss = subprocess.Popen([sys.executable, '-c', code, *words], stdout=subprocess.PIPE, text=True)
        e.init_pid = int(boss.stdout.readline())
        return boss

    for words, name in ((['-c', ID, '-n', 'db'], 'podman/db'), (['-c', OTHER, '-n', 'db'], ID), (['-n', 'db', '-c', ID], ID),
                        (['-c', ID, '-n', 'a"b'], ID), (['-c', ID, '-n', 'a\nb'], ID), (['-c', ID, '-n', '../x'], ID),
                        (['-c', ID, '-n', 'shop/web/app'], ID), (['-c', ID, '-n', 'x' * 250], ID), (['-c', ID, '-n'], ID), ([], ID),
                        (['-c', ID, '-n', 'db', '--log-tag', '-n', VICTIM], 'podman/db')):
        boss = told(*words)
        try:
            e.named(words, name)
        finally:
            os.kill(e.init_pid, 9)
            boss.kill()
            boss.wait()
        tried(f'{words!r}'[-60:])


@case
def ids(scene):
    """An id with impossible characters is not used as a path."""
    scene = scene(TINY, size=1)
    for bad in ('../x', 'a/b', 'a b', 'a"b', 'a\nb', 'a\\b', 'a\x1bb', '..', '.', 'a$b', '\u00e4', 'x' * 200):
        e = Engine(scene)
        e.id = bad
        (e.state / bad).mkdir(parents=True, exist_ok=True)
        e.refused(bad, 'checkpoint', 'restore', says='impossible container id')
        tried(f'{bad!r}'[:40])


@case
def others_checkpoints(scene):
    """A handle of another container's checkpoint: only that other container may restore it, unless root allows more."""
    scene = scene(TINY, size=1)
    first = Engine(scene)
    code, said, _ = first.dump()
    if code:
        raise Failed(said)
    conf = scene.device.directory / 'etc/zns.conf'
    kept = conf.read_text() if conf.exists() else ''

    def other(state='state/moby', cid=OTHER, images=first.images):
        e = Engine(scene, state, cid)
        e.docker_root = e.root
        for f in images.iterdir():
            shutil.copy(f, e.images)
        return e

    e = other()
    e.denied('another id')
    tried('another id')
    e.config(ID=OTHER, Name='/' + ID)
    e.denied('a container called as the other')
    tried('a name like the id')
    e.config(ID=OTHER, Labels={'zns.clone': first.id}, Config={'Labels': {'zns-clone': first.id}, 'Env': [f'ZNS_RESTORE_ALLOW=any', 'ZNS_RESTORE_ID=' + ID]})
    e.spec['process'] = {'env': ['ZNS_RESTORE_ALLOW=any', 'ZNS_RESTORE_ID=' + ID]}
    e.spec['annotations'] = {'restore-others': 'yes', 'zns-clone': 'any'}
    e.denied('labels and variables')
    tried('labels and variables')
    e.spec['annotations'] = {}
    # the file that znsctl docker clone writes
    allow = e.root / 'containers' / OTHER / 'zns-clone'
    own = scene.device.checkpoints()[-1]['id']
    for text in ('', 'x', own[:-1], ID, 'any thing'):
        allow.write_text(text)
        e.denied(f'zns-clone {text!r}')
        tried(f'zns-clone {text!r}')
    allow.write_text(own)
    with_user(allow)
    e.denied('zns-clone of a user')
    os.chown(allow, 0, 0)
    allow.chmod(0o666)
    e.denied('zns-clone that all may write')
    allow.rename(e.dir / 'there')
    allow.symlink_to(e.dir / 'there')
    (e.dir / 'there').chmod(0o600)
    e.denied('zns-clone that is a link')
    tried('zns-clone of others')
    allow.unlink()
    shutil.copy(e.dir / 'there', allow)
    allow.chmod(0o600)
    e.restores('zns-clone')
    tried('zns-clone')
    # Podman and runc; Kubernetes uses another namespace
    for state, annotations in (('state/runc', {}), ('state/podman', {'io.container.manager': 'libpod'}), ('state/k8s.io', cri())):
        e = other(state)
        e.spec['annotations'] = annotations
        e.denied(state)
        tried(state)
    pod = Engine(scene, 'state/k8s.io')
    pod.spec['annotations'] = cri('shop')
    code, said, _ = pod.dump()
    if code:
        raise Failed(said)
    for ns, may in (('kube-system', False), ('sho', False), ('shopx', False), ('shop', True)):
        e = other('state/k8s.io', images=pod.images)
        e.spec['annotations'] = cri(ns, 'other', 'one')
        (e.restores if may else e.denied)(f'namespace {ns}')
        tried(f'namespace {ns}')
    for value, may in (('no', False), ('yes', True)):
        conf.write_text(kept + f'restore-others = {value}\n')
        (other().restores if may else other().denied)(f'restore-others = {value}')
        tried(f'restore-others = {value}')
    conf.write_text(kept)
    first.restores('its own')
    tried('its own')


@case
def names_given(scene):
    """criu --zns-container, znsctl reserve and retain refuse the same names; the task runs on."""
    scene = scene(TINY, size=1)
    bad = [b for b in EVIL if '\0' not in b] + ['x' * 201, 'x' * 256]
    for name in bad:
        log = scene.log()
        args = scene.dump_command(log, (), None, None, None)
        args[args.index('--zns-container') + 1] = name
        done = ztlib.run_criu(scene.cfg, args, log, scene.device.env)
        if not done.returncode or not ztlib.alive(scene.task.pid) or scene.ids() != scene.ids_before:
            raise Failed(f'--zns-container {name!r}: exit {done.returncode}')
        for command in (['reserve', name, '--groups', '1'], ['retain', name, '--keep', '2']):
            said = run_ctl(scene, 1, *command)
            if any(ord(c) < 32 and c != '\n' or c in '\x7f\u0085\u009b\u2028\u2029' for c in said):
                raise Failed(f'{command}: a control character comes out: {said!r}')
        tried(f'{name!r}'[:40])
    scene.good_dump()


@case
def configuration(scene):
    """Values of zns.conf and docker.rules that would end a line are refused with file and line."""
    scene = scene(TINY, size=1)
    e = Engine(scene)
    etc = scene.device.directory / 'etc'
    conf, rules = etc / 'zns.conf', etc / 'docker.rules'
    kept = conf.read_text() if conf.exists() else ''
    for line in ('docker-qos = 5"', 'docker-qos = 5 #x', 'docker-qos = 5\\', 'docker-qos = \x1b[2J', 'docker-stripe = 3', 'docker-alloc = x',
                 'docker-admission = wait=', 'docker-criu = root', 'docker-live = 1', 'docker-dev = ./x', 'docker-qos', 'cri-o-names', '= 5'):
        conf.write_text(kept + line + '\n')
        e.refused(line, 'checkpoint')
        tried(f'zns.conf {line!r}')
    conf.write_text(kept)
    for line in ('name=* qos=5"', 'name=* qos=5\\', 'name=* container=victim', 'name=* parent=x', 'name=* dev=a"b', 'name=* live=now', 'qos=5', 'name=', 'name=* qos=\x1b[2J'):
        rules.write_text(line + '\n')
        e.refused(line, 'checkpoint', says='docker.rules:1')
        tried(f'docker.rules {line!r}')
    rules.unlink()
    e.named('neither', ID)


@case
def start_of_another(scene):
    """zns.memory, when the PID of the container's first process belongs to another program by now: that program is left alone."""
    scene = scene(TINY, size=1)
    e = Engine(scene, 'state/podman')
    e.spec['annotations'] = {'zns.memory': '4M', 'io.container.manager': 'libpod'}
    began = int(Path(f'/proc/{scene.task.pid}/stat').read_text().rsplit(')', 1)[1].split()[19])
    e.init_pid, e.init_start = scene.task.pid, began - 1
    expect('exit of start', e.call('start')[0], 0)
    ours = f'ZNS_RUN={scene.device.env["ZNS_RUN"]}'.encode()

    def starting():
        for proc in Path('/proc').glob('[0-9]*'):
            try:
                if ours in (proc / 'environ').read_bytes().split(b'\0') and os.readlink(proc / 'exe').endswith('/zns-runc'):
                    return True
            except OSError:
                pass
        return False
    if not wait_until(lambda: not starting(), 60):
        raise Failed('zns-runc does not end')
    expect('contexts', json.loads(scene.device.ctl('memory', 'status', '--json').stdout)['contexts'], [])
    tried('start: the PID is another program\'s')
    pager = Path(scene.cfg.znsctl).with_name('zns-mem')
    done = subprocess.run([pager, '--name', 'x', '--dram', '4M', '--began', str(began - 1), str(scene.task.pid)],
                          env=scene.device.env, capture_output=True, text=True, timeout=60)
    if done.returncode != 1 or 'has ended' not in done.stderr:
        raise Failed(f'zns-mem of another process: exit {done.returncode}: {done.stderr}')
    scene.task.verify(signal.SIGUSR1)
    tried('zns-mem: the PID is another program\'s')


def cgroup_base():
    """Where a cgroup of our own can be made."""
    for base in ('/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/pids'):
        if (Path(base) / 'cgroup.procs').exists():
            return Path(base)
    raise Failed('no cgroup can be made here')


@case
def delegated_cgroup(scene):
    """A user who controls a cgroup makes a child named like another container's id: it is not taken for that container's cgroup."""
    scene = scene(TINY, size=1)
    at = cgroup_base() / f'zns-hostile-{os.getpid()}'
    at.mkdir()
    try:
        for owner, wanted in ((UID, False), (0, True)):
            child = at / OTHER
            os.chown(at, owner, owner)
            child.mkdir()
            os.chown(child, owner, owner)
            (child / 'cgroup.procs').write_text(str(scene.task.pid))
            images = scene.dir / f'of-{owner}'
            images.mkdir()
            done = subprocess.run([scene.cfg.criu, 'dump', '-t', str(scene.task.pid), '-D', images, '-o', 'log', '--leave-running',
                                   '--zns-qos', '100', *scene.task.dump_opts], env=scene.device.env, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=120)
            (at.parent / 'cgroup.procs').write_text(str(scene.task.pid))
            child.rmdir()
            expect('exit of the dump', done.returncode, 0)
            expect(f'named after a cgroup of {owner}', scene.device.checkpoints()[-1]['container'] == OTHER, wanted)
            tried(f'a cgroup of user {owner} with the name of a container')
    finally:
        (at.parent / 'cgroup.procs').write_text(str(scene.task.pid))
        for d in (at / OTHER, at):
            if d.exists():
                d.rmdir()


@case
def dev_tells_nothing(scene):
    """zns.dev with a path of a device, of another file, or of nothing: the same answer, so it does not reveal which files the host has."""
    scene = scene(TINY, size=1)
    e = Engine(scene)
    e.docker_root = e.root
    e.spec['mounts'] = [{'source': f'{e.root}/containers/{ID}/hosts', 'destination': '/etc/hosts'}]
    (scene.dir / 'secret').mkdir(mode=0o700)
    (scene.dir / 'secret' / 'file').touch()
    (scene.dir / 'secret' / 'link').symlink_to('/etc/shadow')
    said = set()
    for path in ('secret', 'secret/file', 'secret/link', 'secret/none', 'secret/file/none', 'none/file'):
        for value in (f'{scene.dir}/{path}', f'emu:{scene.dir}/{path}'):
            e.labels({'zns.dev': value})
            said.add(e.refused(value, says='zns.dev').replace(value, 'X'))
            tried(f'zns.dev: {path}')
    expect('answers', len(said), 1)
