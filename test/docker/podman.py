#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
podman.py: podman container checkpoint and restore with runtime zns-runc, storage and configuration of our own.
Needs root, podman and runc. The last line sums up.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n] / d) for n, d in ((0, ''), (1, 'zonetests'))]
import ztlib  # noqa: E402
import dkdaemon  # noqa: E402
from dkdaemon import BIN, REPO, SYS_PATH, Failed, Skipped, rootfs, sh, want  # noqa: E402
from ztregistry import Registry  # noqa: E402

SHELL = '''secret=$(head -c 3000 /dev/urandom | sha256sum); n=0
trap 'n=$((n+1)); echo "$secret" > /data/new; mv /data/new /data/answer' USR1; touch /data/up
while :; do sleep 3600 & wait; done'''
UP = 'until [ -e /data/up ]; do sleep 0.1; done'
# Limits of our own: Podman's default asks for more than a machine without CAP_SYS_RESOURCE can give.
LIMITS = ('--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=1000:1000')


STOCK = REPO / 'build/zdtm/stock/criu'


def unmount(above):
    for m in sorted((m for line in open('/proc/self/mountinfo') if (m := line.split()[4]).startswith(f'{above}/')), reverse=True):
        sh('umount', '-l', m, check=False)


class Podman:
    bin, within = BIN, []

    def __enter__(self):
        self.dir = self.place = Path(tempfile.mkdtemp(prefix='zns-podman-', dir=os.environ.get('TMPDIR', '/var/tmp')))
        for d in ('conf', 'run', 'tmp'):
            (self.place / d).mkdir()
        self.move_in()
        self.env = dict(os.environ, PATH=f'{self.bin}:{SYS_PATH}', ZNS_CONFIG=str(self.dir / 'conf'), ZNS_RUN=str(self.dir / 'run'),
                        TMPDIR=str(self.dir / 'tmp'))
        rt = self.runtime()
        self.base = ['podman', '--root', self.dir / 'root', '--runroot', self.dir / 'rr', '--tmpdir', self.dir / 'tmp/libpod',
                     '--cgroup-manager', 'cgroupfs', '--events-backend', 'file', '--runtime', rt]
        self.get_work()
        return self

    def move_in(self):
        pass

    def get_work(self):
        tar = subprocess.Popen(['tar', 'c', '-C', str(rootfs()), '.'], stdout=subprocess.PIPE)
        subprocess.run([*map(str, self.base), 'import', '-', 'work'], stdin=tar.stdout, check=True, capture_output=True, env=self.env)
        tar.wait()

    def runtime(self):
        """Ours, with a device."""
        self.z('create', f'emu:{self.dir}/zns.img', '--zones', '32', '--zone-size', '32M')
        # Podman passes no arguments and no environment to a runtime, so a script has them.
        rt = self.dir / 'zns'
        rt.write_text(f'#!/bin/sh\nexec {BIN}/zns-runc --zns-config {self.dir}/conf --zns-run {self.dir}/run "$@"\n')
        rt.chmod(0o755)
        self.runtime_file = rt
        return rt

    def __exit__(self, *exc):
        self.p('rm', '-af', check=False)
        self.end_broker()
        unmount(self.dir)
        for _ in range(20):
            shutil.rmtree(self.dir, ignore_errors=True)
            if not self.dir.exists():
                break
            time.sleep(0.3)

    def end_broker(self):
        """It would leave by itself, later."""
        for p in Path('/proc').glob('[0-9]*'):
            try:
                if (p / 'comm').read_text().strip() == 'znsd' and f'ZNS_RUN={self.dir}/run'.encode() in (p / 'environ').read_bytes():
                    os.kill(int(p.name), 15)
            except OSError:
                pass

    def p(self, *args, **more):
        return sh(*self.within, *self.base, *args, env=self.env, **more)

    def z(self, *args, **more):
        return sh(BIN / 'znsctl', *args, env=self.env, **more)

    def ls(self):
        return json.loads(self.z('ls', '--json').stdout)['checkpoints']

    def run(self, name, *options, program=('bash', '-c', SHELL)):
        self.p('run', '-d', '--network', 'none', *LIMITS, '--name', name, *options, 'work', *program)
        self.exec(name, UP)

    def exec(self, name, script):
        return self.p('exec', name, 'bash', '-c', script).stdout.strip()

    def userdata(self, name):
        (found,) = (self.dir / 'root').glob(f'*-containers/{self.p("inspect", "-f", "{{.Id}}", name).stdout.strip()}/userdata')
        return found

    def note(self, name):
        return (self.userdata(name) / 'zns-note').read_text().strip()

    def lose_run_state(self):
        """What a reboot takes: Podman's run directories, and the broker's with the broker."""
        self.end_broker()
        until(None, "the end of Podman's processes", lambda: sh('pgrep', '-f', f'{self.dir}/rr', check=False).returncode)
        for state in ('rr', 'tmp/libpod', 'run'):
            unmount(self.dir / state)
            shutil.rmtree(self.dir / state)
        (self.dir / 'run').mkdir()

    def ask(self, name):
        self.exec(name, f'{UP}; rm -f /data/answer')
        self.p('kill', '-s', 'USR1', name)
        return self.exec(name, 'until [ -e /data/answer ]; do sleep 0.1; done; cat /data/answer')


class Stock(Podman):
    """Another host with nothing of ours: runc and stock CRIU. Podman's archives name Podman's directories, so those
    must have the same names on both hosts: this Podman runs in a mount namespace where its directory is mounted
    over the other one's."""
    bin = STOCK
    path = shutil.which('runc', path=SYS_PATH)

    def __init__(self, other):
        self.other = other

    def move_in(self):
        self.other.p('save', '-o', self.place / 'work.tar', 'work')
        self.hold = subprocess.Popen(['unshare', '--mount', '--propagation', 'private', 'sleep', 'infinity'], env=self.other.env)
        self.within = ['nsenter', '-t', self.hold.pid, '-m', '--']
        mine = os.stat('/proc/self/ns/mnt').st_ino
        until(None, 'a mount namespace', lambda: os.stat(f'/proc/{self.hold.pid}/ns/mnt').st_ino != mine)
        self.dir = self.other.dir
        sh(*self.within, 'mount', '--bind', self.place, self.dir)

    def __exit__(self, *exc):
        self.p('rm', '-af', check=False)
        self.hold.kill()
        self.hold.wait()
        for _ in range(20):
            shutil.rmtree(self.place, ignore_errors=True)
            if not self.place.exists():
                break
            time.sleep(0.3)

    def runtime(self):
        return self.path

    def get_work(self):
        self.p('load', '-i', self.dir / 'work.tar')     # the same image, by its id


def contexts(d):
    return {c['name']: c for c in json.loads(d.z('memory', 'status', '--json').stdout)['contexts']}


def until(d, what, true):
    end = time.monotonic() + 90
    while not true():
        want(what, time.monotonic() < end, d.z('memory', 'status').stdout if d else '')
        time.sleep(0.1)


def on_zones(d):
    """Annotation zns.memory: the container hibernates by itself and on request; its context is called podman+NAME and
    ends with it."""
    def state():
        return [c['state'] for n, c in contexts(d).items() if n == 'podman+idle']
    d.run('idle', '--annotation', 'zns.memory=hibernate:2s')
    before = d.ask('idle')
    until(d, 'it hibernates', lambda: state() == ['hibernated'])
    want('the same', d.ask('idle') == before)
    d.z('memory', 'wake', 'podman/idle')
    d.p('rm', '-f', '-t', '0', 'idle')
    until(d, 'the end of the context', lambda: not state())


PAGES = '''import hashlib, os, signal
m = bytearray(os.urandom(96 << 20))
def tell(*a):
    open('/data/new', 'w').write(hashlib.sha256(m).hexdigest()); os.rename('/data/new', '/data/answer')
signal.signal(signal.SIGUSR1, tell)
open('/data/up', 'w')
while True: signal.pause()'''


def on_zones_checkpoint(d):
    """With 90 % of its memory on zones, under a budget and hibernated, the checkpoint writes at most 15 %; the
    restored container is attached again, and complete."""
    mine, total = 'podman+full', 96 << 20
    for asked in ('9M', 'hibernate:2s'):
        d.run('full', '--annotation', f'zns.memory={asked}', program=('python3', '-c', PAGES))
        before = d.ask('full')
        for options in (['--leave-running'], []):
            until(d, 'on zones', lambda: contexts(d).get(mine, {}).get('evicted', 0) >= 0.9 * total)
            d.p('container', 'checkpoint', '--keep', *options, 'full')
            c = d.ls()[-1]
            wrote = c['bytes'] - c.get('memory_bytes', 0)
            print(f'    {asked}: {c["bytes"] >> 20} MiB, of which {wrote >> 20} written', flush=True)
            want('15 %', c['container'] == 'podman/full' and wrote <= 0.15 * total, c)
        until(d, 'the end of the context', lambda: mine not in contexts(d))
        d.p('container', 'restore', '--keep', 'full')
        until(d, 'extended again', lambda: mine in contexts(d))
        want('the same', d.ask('full') == before)
        until(d, 'on zones again', lambda: contexts(d)[mine]['evicted'] >= 0.8 * total)
        want('the same', d.ask('full') == before)
        d.p('rm', '-f', '-t', '0', 'full')
        until(d, 'the end of the context', lambda: mine not in contexts(d))
        d.z('rm', '--all')


def keep(d):
    """A Podman checkpoint goes to zones, with name and origin; it is restored twice from the same directory; Podman's own statistics
    exist.
    """
    d.run('one', '--annotation', 'zns.qos=300')
    secret = d.ask('one')
    stats = json.loads(d.p('container', 'checkpoint', '--keep', '--print-stats', 'one').stdout)
    want('statistics', stats['container_statistics'][0]['criu_statistics']['pages_written'] > 0, stats)
    (c,) = d.ls()
    want('record', (c['container'], c['origin']['kind'], c['qos_requested_mibps']) == ('podman/one', 'podman', 300), c)
    for _ in range(2):
        d.p('container', 'restore', '--keep', 'one')
        want('memory', d.ask('one') == secret)
        d.p('kill', 'one')
        d.p('wait', 'one')
    d.p('rm', '-f', 'one')


def suspend(d):
    """`podman stop` suspends and `podman start` resumes, by annotation; with files written since the start is cold;
    gc sweeps what `podman rm` leaves."""
    d.z('rm', '--all')
    d.run('sus', '--annotation', 'zns.suspend=yes', '-v', f'{d.dir}/conf:/conf:ro')
    userdata = next((d.dir / 'root').glob('*-containers/*/userdata/config.json')).parent

    def note():
        return (userdata / 'zns-note').read_text().strip()
    secret, made = d.ask('sus'), []
    for _ in range(2):
        d.p('stop', '-t', '60', 'sus')
        (c,) = d.ls()       # the earlier checkpoint is gone
        want('another one', c['id'] not in made and c['container'] == 'podman/sus', c)
        want('stopped', note().startswith('stopped with checkpoint zns-stop-'), note())
        made.append(c['id'])
        d.p('start', 'sus')
        want('resumed', note().startswith('resumed from checkpoint zns-stop-'), note())
        want('memory', d.ask('sus') == secret)
        want('used up', not (userdata / 'zns-ended').exists())
    d.p('kill', 'sus')
    d.p('wait', 'sus')
    d.p('start', 'sus')
    want('said', note() == 'started cold: it did not end with a checkpoint', note())
    secret = d.ask('sus')
    d.p('container', 'checkpoint', '--leave-running', '--keep', 'sus')
    d.p('stop', '-t', '60', 'sus')
    (d.dir / 'conf/mine').write_text('x')
    d.p('cp', d.dir / 'conf/mine', 'sus:/data/mine')
    ended = userdata / 'zns-ended'
    sh('mount', '--bind', ended, ended)     # so that it cannot be removed
    for start in (('container', 'restore', '--keep'), ('start',)):
        r = d.p(*start, 'sus', check=False)
        want('it could come back twice', r.returncode and 'its memory could be restored a second time' in r.stderr and ended.exists(), start, r.stderr)
    sh('umount', ended)
    d.p('start', 'sus')
    want('files were written since', 'was written after its checkpoint' in note(), note())
    want('cold', d.ask('sus') != secret)
    d.p('stop', '-t', '60', 'sus')
    last = d.ls()[-1]['id']
    want('needed', gc(d)[last][0] == 'keep', gc(d))
    d.p('rm', '-f', 'sus')
    swept(d, last, 'was removed')
    started_without(d)
    d.run('tty', '-t', '--annotation', 'zns.suspend=yes')
    secret = d.ask('tty')
    d.p('stop', '-t', '60', 'tty')
    d.p('start', 'tty')
    want('memory', d.ask('tty') == secret)
    want('a terminal', d.exec('tty', 'readlink /proc/1/fd/1').startswith('/dev/pts/'))
    d.p('rm', '-f', 'tty')
    r = d.p('run', '-d', '--network', 'none', *LIMITS, '--annotation', 'zns.from=sus/one', 'work', 'true', check=False)
    want('zns.from is refused', r.returncode and 'zns.from is for containers of Docker and Kubernetes alone' in r.stderr, r.stderr)


def started_without(d):
    """A container that changes no file: after a create without a start it resumes; after a start by runc alone it
    does not."""
    d.run('sus', '--annotation', 'zns.suspend=yes', '--tmpfs', '/data')
    userdata = next((d.dir / 'root').glob('*-containers/*/userdata/config.json')).parent
    secret = d.ask('sus')
    d.p('stop', '-t', '60', 'sus')
    d.p('init', 'sus')
    d.p('stop', 'sus')
    d.p('start', 'sus')
    want('memory', d.ask('sus') == secret, (userdata / 'zns-note').read_text())
    d.p('stop', '-t', '60', 'sus')
    ours = d.runtime_file.read_text()
    d.runtime_file.write_text(f'#!/bin/sh\nexec {Stock.path} "$@"\n')
    d.p('start', 'sus')
    d.p('kill', 'sus')
    d.p('wait', 'sus')
    d.runtime_file.write_text(ours)
    want('noted', (userdata / 'zns-ended').exists())
    d.p('start', 'sus')
    said = (userdata / 'zns-note').read_text().strip()
    want('cold', said == 'started cold: it did not end with a checkpoint' and d.ask('sus') != secret, said)
    d.p('rm', '-f', 'sus')


def init_containers(d):
    """A pod whose init container runs at each start: the other one is suspended by the pod's stop, and resumes; not if the init container has
    written what both have.
    """
    for shared in (False, True):
        volume = d.dir / f'shared-{shared}'
        volume.mkdir()
        d.p('pod', 'create', '--name', 'shop', '--infra=false')
        make = ('create', '--pod', 'shop', '--network', 'none', *LIMITS, '--annotation', 'zns.suspend=yes')
        d.p(*make, '--init-ctr', 'always', '--name', 'first', '-v', f'{volume}:/init', 'work', 'bash', '-c', 'echo >> /init/runs')
        d.p(*make, '--name', 'app', '--stop-timeout', '60', '--tmpfs', '/data', *(['-v', f'{volume}:/both'] if shared else []), 'work', 'bash',
            '-c', SHELL)
        d.p('pod', 'start', 'shop')
        secret = d.ask('app')
        for turn in (2, 3):
            d.p('pod', 'stop', 'shop')
            want('stopped', d.note('app').startswith('stopped with checkpoint zns-stop-'), d.note('app'))
            d.p('pod', 'start', 'shop')
            want('the init container has run', (volume / 'runs').read_text() == '\n' * turn, turn)
            want('memory', (d.ask('app') == secret) != shared, d.note('app'))
            want('said', ('was written after its checkpoint' if shared else 'resumed from') in d.note('app'), d.note('app'))
        d.p('pod', 'rm', '-f', '-t', '0', 'shop')
    d.z('rm', '--all')


def restart_unit(d):
    """podman-restart.service at a shutdown and after a boot: containers with a restart policy are suspended and resume. One whose checkpoint is
    gone starts cold; one whose restore fails in its start fails with a line, hinders no other one, and starts cold the next time.
    """
    unit = Path('/lib/systemd/system/podman-restart.service').read_text()

    def systemd(word):
        line = re.search(f'^{word}=(.*)$', unit, re.M)[1]
        return sh('sh', '-c', line.replace(' $LOGGING', '').replace('/usr/bin/podman', ' '.join(map(str, d.base))), env=d.env, check=False)
    secret = {}
    for name, where in (('zones', ()), ('plain', ('--annotation', 'zns.dev=none'))):
        d.run(name, '--restart', 'always', '--stop-timeout', '60', '--tmpfs', '/data', '--annotation', 'zns.suspend=yes', *where)
        secret[name] = d.ask(name)
    for broken in (False, True):
        r = systemd('ExecStop')
        want('stopped', not r.returncode and all(d.note(n).startswith('stopped with checkpoint zns-stop-') for n in secret), r.stderr)
        d.lose_run_state()
        if broken:
            d.z('rm', '--all')
            (pages,) = d.userdata('plain').glob('zns-stop-*/pages-1.img')
            os.truncate(pages, 4096)
        r = systemd('ExecStart')
        want('started', (r.returncode != 0) == broken and ('the next start is a cold one' in r.stderr) == broken, r.returncode, r.stderr)
        if broken:
            want('not resumed', d.note('plain').startswith('not resumed: '), d.note('plain'))
            r = systemd('ExecStart')
            want('started', not r.returncode, r.stderr)
        for name, was in secret.items():
            want('memory', (d.ask(name) == was) != broken, name, d.note(name))
    want('the reason', d.note('zones').startswith('started cold: '), d.note('zones'))
    d.p('rm', '-f', '-t', '0', *secret)
    d.z('rm', '--all')


def hostile_suspend(d):
    """Handles in a container's /dev/shm are no checkpoints: they do not stop a sweep, and the stop sends the signal.
    The same with an overlay volume."""
    d.z('rm', '--all')
    said = SHELL.replace('touch', "trap 'exit 7' TERM; touch")

    def note(name):
        (f,) = (d.dir / 'root').glob(f'*-containers/{d.p("inspect", "-f", "{{.Id}}", name).stdout.strip()}/userdata/zns-note')
        return f.read_text().strip()

    def by_signal(name, why):
        d.p('stop', '-t', '60', name)
        code = d.p('inspect', '-f', '{{.State.ExitCode}}', name).stdout.strip()
        want('by its signal', code == '7' and note(name) == f'stopped without a checkpoint: Podman does not keep the files in {why}', note(name), code)
    d.run('shm', '--annotation', 'zns.stop=checkpoint', '--annotation', 'zns.resume=latest', program=('bash', '-c', said))
    d.run('gone')
    d.p('container', 'checkpoint', '--keep', 'gone')
    (c,) = d.ls()
    d.p('rm', '-f', 'gone')
    d.exec('shm', 'echo x | tee /dev/shm/inventory.img > /dev/shm/zns-handle.img')
    failed = []
    for part in (lambda: swept(d, c['id'], 'was removed'),
                 lambda: by_signal('shm', '/dev/shm'),
                 lambda: forged(d, 'shm'),
                 lambda: overlaid(d, said, by_signal)):
        try:
            part()
        except Exception as e:
            failed.append(str(e)[-300:])
            print(f'    {failed[-1]}', flush=True)
    want('all of them', not failed, len(failed))
    d.p('rm', '-f', '-t', '0', 'shm', 'over')


def forged(d, name):
    """Handles left in the place where Podman mounts /dev/shm at a start: zns.resume=latest does not use them."""
    ident = d.p('inspect', '-f', '{{.Id}}', name).stdout.strip()
    (shm,) = (d.dir / 'root').glob(f'*-containers/{ident}/userdata/shm')
    sh('mount', '-t', 'tmpfs', '-o', 'mode=1777', 'shm', shm)
    (shm / 'inventory.img').write_text('x')
    d.p('start', name)
    want('it runs', d.p('inspect', '-f', '{{.State.Running}}', name).stdout.strip() == 'true')
    d.p('kill', name)
    d.p('wait', name)


def overlaid(d, program, by_signal):
    lower = d.dir / 'lower'
    lower.mkdir()
    d.run('over', '--annotation', 'zns.suspend=yes', '-v', f'{lower}:/over:O', program=('bash', '-c', program))
    by_signal('over', '/over')


def mapped(d):
    """Podman gives userdata to the root of a user namespace: nothing there is trusted or removed, and the container
    starts."""
    d.z('rm', '--all')
    d.dir.chmod(0o711)
    for name, annotation in (('mapped', ()), ('mapped2', ('--annotation', 'zns.suspend=yes'))):
        d.run(name, '--uidmap', '0:100000:65536', *annotation)
        d.p('stop', '-t', '1', name)
        (userdata,) = (d.dir / 'root').glob(f'*-containers/{d.p("inspect", "-f", "{{.Id}}", name).stdout.strip()}/userdata')
        left = [f.name for f in userdata.glob('zns-*')]
        want('another owner, no note and no checkpoint', userdata.stat().st_uid == 100000 and not left, left)
        d.p('start', name)
        want('it runs', d.p('inspect', '-f', '{{.State.Running}}', name).stdout.strip() == 'true')
        d.p('container', 'checkpoint', '--keep', name)
        want('its own checkpoint is needed', [a for a, _ in gc(d).values()] == ['keep'], gc(d))
        d.z('rm', '--all')
        # fails while Podman's own cleanup has not unmounted the container's /dev/shm
        d.p('rm', '-f', '-t', '0', name, check=False)
    d.dir.chmod(0o700)


def leave_running(d):
    d.run('live')
    secret = d.ask('live')
    d.p('container', 'checkpoint', '--leave-running', '--keep', 'live')
    want('it runs on', d.ask('live') == secret)
    d.p('rm', '-f', 'live')


def live(d):
    """Annotation zns.live: live dumps, with and without --leave-running."""
    d.run('rounds', '--annotation', 'zns.live=yes')
    secret, had = d.ask('rounds'), len(d.ls())
    d.p('container', 'checkpoint', '--leave-running', '--keep', 'rounds')
    want('it runs on', d.ask('rounds') == secret)
    d.p('container', 'checkpoint', '--keep', 'rounds')
    made = d.ls()[had:]
    want('live', len(made) == 2 and all(c.get('live') and c['live']['rounds'] for c in made), made)
    d.p('container', 'restore', '--keep', 'rounds')
    want('memory', d.ask('rounds') == secret)
    d.p('rm', '-f', 'rounds')


def export(d):
    """An exported checkpoint carries the data: it restores after the device has forgotten everything."""
    d.run('out')
    secret = d.ask('out')
    before = len(d.ls())
    f = d.dir / 'out.tar'
    d.p('container', 'checkpoint', '--export', f, '--compress', 'none', 'out')
    with tarfile.open(f) as t:
        have = [m.name for m in t.getmembers()]
    want('pages are in it', any('pages-' in n for n in have) and not any('zns-handle' in n for n in have), have)
    want('nothing on the device', len(d.ls()) == before)
    d.p('rm', '-f', 'out')
    d.z('rm', '--all')
    d.p('container', 'restore', '--import', f, '--name', 'other')
    want('memory', d.ask('other') == secret)
    d.p('rm', '-f', 'other')


def plain(d):
    """With zns.dev=none no zones are used."""
    d.run('plain', '--annotation', 'zns.dev=none')
    secret, before = d.ask('plain'), len(d.ls())
    d.p('container', 'checkpoint', 'plain')
    want('nothing on the device', len(d.ls()) == before)
    d.p('container', 'restore', 'plain')
    want('memory', d.ask('plain') == secret)
    d.p('rm', '-f', 'plain')


def errors(d):
    d.run('gone')
    d.p('container', 'checkpoint', '--keep', 'gone')
    d.z('rm', '--all')
    r = d.p('container', 'restore', 'gone', check=False)
    want('refused with the reason', r.returncode and 'of container podman/gone was deleted at' in r.stderr, r.stderr)
    d.p('rm', '-f', 'gone')
    r = d.p('run', '-d', '--network', 'none', *LIMITS, '--annotation', 'zns.qos=fast', 'work', 'true', check=False)
    want('a bad value', r.returncode and 'annotation zns.qos: "fast" is no bandwidth' in r.stderr, r.stderr)


def gc(d, *options):
    """The result of a sweep: {checkpoint: (action, why)}."""
    said = json.loads(d.z('gc', '--json', *(options or ('--grace', '0'))).stdout)
    return {c['id']: (c['action'], c['why']) for c in said['checkpoints']}


def swept(d, ident, why, *left):
    did = gc(d)
    want('swept', did[ident][0] == 'remove' and why in did[ident][1], did)
    want('left', [c['id'] for c in d.ls()] == list(left), d.ls())


def zones_used(d):
    zones = json.loads(d.z('zones', '--json').stdout)['zones']
    return sum(z['state'] != 'empty' for z in zones if z['owner'] != '(metadata)')


def new(d, had):
    (c,) = [c['id'] for c in d.ls() if c['id'] not in had]
    return c


def reclaim(d):
    """gc keeps checkpoints that Podman still has, sweeps those that Podman has dropped, and keeps all in doubt."""
    d.z('rm', '--all')
    d.z('gc')
    start = zones_used(d)
    d.run('gc1')
    secret = d.ask('gc1')
    d.p('container', 'checkpoint', '--keep', 'gc1')
    first = new(d, ())
    want('needed', gc(d)[first][0] == 'keep', gc(d))
    d.p('container', 'restore', '--keep', 'gc1')
    want('needed after a restore that keeps it', gc(d)[first][0] == 'keep', gc(d))
    d.p('container', 'checkpoint', '--keep', 'gc1')
    second = new(d, (first,))
    swept(d, first, 'has another checkpoint', second)
    # a copy in another container's directory counts as that container's
    d.run('gc2')
    userdata = next((d.dir / 'root').glob('*-containers/*/userdata/checkpoint/zns-handle.img')).parents[1]
    store = userdata.parents[1]
    other = d.p('inspect', '-f', '{{.Id}}', 'gc2').stdout.strip()
    copy = store / other / 'userdata/checkpoint'
    shutil.copytree(userdata / 'checkpoint', copy)
    d.p('container', 'restore', 'gc1')
    want('memory', d.ask('gc1') == secret)
    want('Podman dropped its directory', not (userdata / 'checkpoint').exists())
    want('the copy counts', gc(d)[second][0] == 'keep', gc(d))
    shutil.rmtree(copy)
    os.rename(d.dir / 'root', d.dir / 'away')
    want('no store, no judgement', gc(d)[second][0] == 'keep', gc(d))
    os.rename(d.dir / 'away', d.dir / 'root')
    want('missed only once', gc(d, '--grace', '1h')[second][0] == 'missed' and len(d.ls()) == 1)
    want('not long enough', gc(d, '--grace', '1h')[second][0] == 'keep')
    swept(d, second, 'or none')
    d.p('container', 'checkpoint', 'gc1')
    third = new(d, ())
    d.p('rm', '-f', 'gc1', 'gc2')
    swept(d, third, 'was removed')
    wait = time.monotonic() + 20
    while zones_used(d) != start and time.monotonic() < wait:
        time.sleep(0.2)
    want('zones', zones_used(d) == start, zones_used(d), start)


def with_handle(d, name, archive, *options):
    """Podman's own archive of a checkpoint on zones, made by Podman's service: the runtime is not told of the export."""
    socket, log = d.dir / 'podman.sock', open(d.dir / 'service.log', 'wb')
    socket.unlink(missing_ok=True)
    service = subprocess.Popen([*map(str, d.base), 'system', 'service', '--time', '0', f'unix://{socket}'], env=d.env,
                               stdout=log, stderr=log)
    try:
        end = time.monotonic() + 30
        while not socket.exists() and time.monotonic() < end:
            time.sleep(0.1)
        sh('podman', '--remote', '--url', f'unix://{socket}', 'container', 'checkpoint', *options, '--export', archive, name, env=d.env)
    finally:
        service.terminate()
        service.wait(30)
        log.close()
    have = sh('tar', '-tf', archive).stdout.split()
    want('it has a handle', any('zns-handle' in n for n in have), have)
    return have


def image(d, registry, tag, *args):
    """Pushes an image of cri-image to the registry; returns Podman's name for it."""
    sh(REPO / 'scripts/cri-image', *args, registry.name(tag), '--dest-tls-verify=false', env=d.env)
    return registry.name(tag).partition('//')[2]


def images(d):
    """cri-image's images through a registry: images with a handle work under our runtime, those with plain images
    also under stock runc and CRIU; each refuses the other kind."""
    d.run('ship')
    secret = d.ask('ship')
    d.exec('ship', 'echo kept > /data/file')
    have = with_handle(d, 'ship', d.dir / 'ship.tar.gz', '--compress', 'gzip')
    want('no pages in it', not any('/pages-' in n for n in have), have)
    ident = d.ls()[-1]['id']
    d.z('export', ident, d.dir / 'plain')
    with Registry(d.dir) as registry:
        handle = image(d, registry, 'ship:handle', d.dir / 'ship.tar.gz')
        plain = image(d, registry, 'ship:plain', '--images', d.dir / 'plain', '--runtime', Stock.path, d.dir / 'ship.tar.gz')
        d.p('rm', '-f', 'ship')
        for name, good in ((plain, False), (handle, True)):
            d.p('pull', '--tls-verify=false', name)
            r = d.p('container', 'restore', name, check=False)
            want(f'{name} under our runtime', (r.returncode == 0) == good and (good or 'runc' in r.stderr), r.stderr)
        want('memory', d.ask('ship') == secret)
        want('files', d.exec('ship', 'cat /data/file') == 'kept')
        d.p('rm', '-f', 'ship')
        d.z('rm', '--all')
        if not (STOCK / 'criu').exists():
            raise Skipped('no stock CRIU: scripts/zdtm-sample --stock-only')
        with Stock(d) as s:
            for name, good in ((handle, False), (plain, True)):
                s.p('pull', '--tls-verify=false', name)
                r = s.p('container', 'restore', name, check=False)
                want(f'{name} under stock runc', (r.returncode == 0) == good and (good or 'zns' in r.stderr), r.stderr)
            want('memory', s.ask('ship') == secret)
            want('files', s.exec('ship', 'cat /data/file') == 'kept')
            s.p('container', 'restore', '--name', 'second', plain)
            want('memory of a second one', s.ask('second') == secret)


def packed(d):
    """Every way to pack the directory: the package has the data, or, where we cannot know of it, the checkpoint is
    never swept."""
    d.z('rm', '--all')
    d.run('pack')
    secret = d.ask('pack')
    d.p('container', 'checkpoint', '--leave-running', '-kc', 'none', '-Re', d.dir / 'a.tar', 'pack')
    d.p('container', 'checkpoint', '--leave-running', '--create-image', 'packed', 'pack')
    want('nothing on the device', not d.ls(), d.ls())
    with_handle(d, 'pack', d.dir / 'b.tar', '--compress', 'none')
    d.p('rm', '-f', 'pack')
    want('never swept', [w for a, w in gc(d).values() if a == 'keep' and 'exported' in w], gc(d))
    # another container's checkpoint, through a handle that is inside an archive
    r = d.p('container', 'restore', '--import', d.dir / 'b.tar', '--name', 'pack2', check=False)
    want('refused', r.returncode and 'is of container podman/pack' in r.stderr, r.stderr)
    d.p('rm', '-f', 'pack2', check=False)
    conf = d.dir / 'conf/zns.conf'
    kept = conf.read_text() if conf.exists() else ''
    conf.write_text(kept + 'restore-others = yes\n')
    d.p('container', 'restore', '--import', d.dir / 'b.tar', '--name', 'pack2')
    conf.write_text(kept)
    want('memory', d.ask('pack2') == secret)
    d.p('rm', '-f', 'pack2')
    d.p('rmi', 'packed')
    d.z('rm', '--all')


def checkpointctl(d):
    """checkpointctl reads the archive of a container whose checkpoint is on zones: unchanged, and with exported
    images."""
    tool = BIN.parent / 'clients' / 'checkpointctl'
    if not tool.exists():
        raise Skipped('there is no checkpointctl: make checkpointctl')
    d.run('ctl')
    pid = int(d.p('inspect', '-f', '{{.State.Pid}}', 'ctl').stdout)
    inner = sh('awk', '/^NSpid/ { print $NF }', f'/proc/{pid}/status').stdout.strip()
    # Podman writes the container's description only with an export, which is plain.
    d.p('container', 'checkpoint', '--leave-running', '--export', d.dir / 'plain.tar', '--compress', 'none', 'ctl')
    with tarfile.open(d.dir / 'plain.tar') as t:
        t.extractall(d.dir / 'plain')
    for f in (d.dir / 'root').glob('*-containers/*/userdata/checkpoint/*'):
        f.unlink()
    d.p('container', 'checkpoint', '--keep', 'ctl')
    userdata = next((d.dir / 'root').glob('*-containers/*/userdata/checkpoint/zns-handle.img')).parents[1]
    exported = d.dir / 'exported'
    d.z('export', userdata / 'checkpoint', exported)
    for name, images, pages in (('handle', userdata / 'checkpoint', False), ('export', exported, True)):
        archive = d.dir / f'{name}.tar'
        with tarfile.open(archive, 'w') as t:
            for f in ('config.dump', 'spec.dump', 'stats-dump'):
                if (d.dir / 'plain' / f).exists():
                    t.add(d.dir / 'plain' / f, f)
            t.add(images, 'checkpoint', recursive=False)
            for f in images.iterdir():
                t.add(f, f'checkpoint/{f.name}')
        shown = sh(tool, 'show', archive).stdout
        want(f'{name}: show', 'ctl' in shown, shown)
        tree = sh(tool, 'inspect', '--ps-tree', '--files', archive).stdout
        want(f'{name}: inspect', f'[{inner}]' in tree and 'bash' in tree, tree)
        memory = sh(tool, 'memparse', f'--pid={inner}', archive, check=False)
        want(f'{name}: memory', (memory.returncode == 0) == pages, memory.stdout, memory.stderr)
    d.p('rm', '-f', 'ctl')


def main():
    dkdaemon.ferretdb_missing = 'FerretDB is not needed'
    passed = failed = skipped = 0
    with Podman() as d:
        for fn in (on_zones, on_zones_checkpoint, keep, suspend, init_containers, restart_unit, hostile_suspend, mapped, leave_running, live, export, plain, errors, reclaim, packed, images, checkpointctl):
            if sys.argv[1:] and fn.__name__ not in sys.argv[1:]:
                continue
            start = time.monotonic()
            try:
                fn(d)
                passed += 1
                print(f'PASS {fn.__name__} ({time.monotonic() - start:.1f} s)', flush=True)
            except (Skipped, ztlib.Skipped) as e:
                skipped += 1
                print(f'SKIP {fn.__name__}: {e}', flush=True)
            except Exception as e:
                failed += 1
                print(f'FAIL {fn.__name__}: {e}', flush=True)
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
