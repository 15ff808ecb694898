# SPDX-License-Identifier: GPL-2.0-only
"""
Live dumps of containers (label zns.live): cases of docker.py.
"""
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import dkdaemon
from dkcase import case, remove
from dkdaemon import BIN, Failed, want
from dkwork import Shell, Written


LIVE = ('--label', 'zns.qos=500', '--label', 'zns.live=yes')


def cgroup(d, name):
    """The directory of its freezer cgroup, with either version."""
    pid = d.docker('inspect', '-f', '{{.State.Pid}}', name).stdout.strip()
    for line in Path(f'/proc/{pid}/cgroup').read_text().splitlines():
        _, controllers, where = line.split(':', 2)
        if controllers == 'freezer':
            return Path(f'/sys/fs/cgroup/freezer{where}')
        if not controllers and Path('/sys/fs/cgroup/cgroup.controllers').exists():
            return Path(f'/sys/fs/cgroup{where}')
    raise Failed(f'{name}: no cgroup')


def is_frozen(at):
    """Is the cgroup at this directory frozen, by the kernel's word?"""
    if (at / 'freezer.state').exists():
        return (at / 'freezer.state').read_text().strip() != 'THAWED'
    return 'frozen 1' in (at / 'cgroup.events').read_text()


def frozen(d, name):
    return is_frozen(cgroup(d, name))


def thaw(at):
    """Thaws a cgroup that a failed case left frozen, so that the case can end."""
    v1 = at / 'freezer.state'
    (v1 if v1.exists() else at / 'cgroup.freeze').write_text('THAWED' if v1.exists() else '0')


def goes_on(d, name):
    """Checks that the container runs, also by Docker's word, and that no mark of ours is left."""

    want('it runs', d.running(name) and not frozen(d, name))
    d.settle('false', lambda: d.docker('inspect', '-f', '{{.State.Paused}}', name).stdout.strip(), 10)
    want('no mark', not list((d.dir / 'run/docker').glob('*.live')))


@case
def live(d):
    """Redis under writes, dumped in rounds while it runs; every write is there after a start from it. Then without --leave-running."""
    w = Written(d, 'live', LIVE)
    w.remember()
    w.told()
    d.docker('checkpoint', 'create', '--leave-running', 'live', 'one')
    n, gap = w.told()
    goes_on(d, 'live')
    (c,) = d.checkpoints('live')
    want('in rounds', c['live'] and c['live']['tracker'] != 'none' and len(c['live']['rounds']) > 1, c['live'])
    copied = sum(r['bytes'] for r in c['live']['rounds'])
    # the container has a seccomp filter, which allows no userfaultfd
    want('tracked', copied > 60 << 20 and not any('seccomp' in r['why'] for r in c['live'].get('rests', ())), c['live'])
    print(f'     {copied >> 20} MiB in {len(c["live"]["rounds"])} rounds; criu froze it for {c["frozen_us"] / 1000:.0f} ms, the longest gap of a '
          f'client was {gap * 1000:.0f} ms', flush=True)
    want('stats', ' live' in d.zctl('docker', 'stats', 'live').stdout)
    d.docker('kill', 'live')
    d.docker('start', '--checkpoint', 'one', 'live')
    w.verify()
    want('from the checkpoint on', w.told()[0] > 0)
    d.docker('checkpoint', 'create', 'live', 'two')
    want('ended', not d.running('live'))
    want('live as well', d.checkpoints('live')[-1]['live'], d.checkpoints('live')[-1])
    d.docker('start', '--checkpoint', 'two', 'live')
    w.verify()
    w.told()
    # with --checkpoint-dir zns-runc cannot know that this pause belongs to a checkpoint, so the pause is done
    elsewhere = d.dir / 'elsewhere-live'
    elsewhere.mkdir()
    d.docker('checkpoint', 'create', '--leave-running', '--checkpoint-dir', elsewhere, 'live', 'three')
    want('a plain dump', not d.checkpoints('live')[-1].get('live'))
    goes_on(d, 'live')
    w.told()
    remove(d, 'live')


@case
def live_durable(d):
    """zns.live=durable; docker-live of zns.conf; and zns.live=no, which overrides that."""
    conf = d.dir / 'conf' / 'zns.conf'
    kept = conf.read_text() if conf.exists() else ''
    conf.write_text(kept + 'docker-live = yes\n')
    try:
        for label, is_live in (('durable', True), ('no', False), (None, True)):
            w = Shell(d, 'lasting', ['--label', f'zns.live={label}'] if label else [])
            w.remember()
            d.docker('checkpoint', 'create', '--leave-running', 'lasting', 'one')
            want(f'live: {label}', bool(d.checkpoints('lasting')[-1].get('live')) == is_live, d.checkpoints('lasting')[-1])
            goes_on(d, 'lasting')
            d.docker('kill', 'lasting')
            d.docker('start', '--checkpoint', 'one', 'lasting')
            w.verify()
            remove(d, 'lasting')
    finally:
        conf.write_text(kept)


@case
def live_schedule(d):
    """A schedule's checkpoints are live ones."""
    w = Written(d, 'often', LIVE, sizes={'keys': 5000})
    w.remember()
    out = d.zctl('docker', 'schedule', 'often', '--every', '1s', '--keep', '2', '--loop', '--count', '3').stdout.split()
    want('three made', len(out) == 3, out)
    made = d.checkpoints('often')
    want('two kept, live', len(made) == 2 and all(c['live'] for c in made), made)
    goes_on(d, 'often')
    w.told()
    d.docker('kill', 'often')
    d.zctl('docker', 'recover', 'often')
    w.verify()
    w.told()
    remove(d, 'often')


@case
def live_paused(d):
    """A container that its user paused stays paused, whether the checkpoint succeeds or fails; unpause works."""
    w = Shell(d, 'still', LIVE)
    w.remember()
    d.docker('pause', 'still')
    want('paused', frozen(d, 'still'))
    r = d.docker('checkpoint', 'create', '--leave-running', 'still', 'one', check=False)
    print(f'     a checkpoint of a paused container: {r.stderr.strip()[-150:] or "is made"}', flush=True)
    want('still paused', frozen(d, 'still'))
    want('not live', not any(c.get('live') for c in d.checkpoints('still')))
    d.docker('unpause', 'still')
    goes_on(d, 'still')
    w.verify()
    d.docker('checkpoint', 'create', '--leave-running', 'still', 'two')
    want('live', d.checkpoints('still')[-1]['live'])
    goes_on(d, 'still')
    remove(d, 'still')


@case
def live_marks(d):
    """Forged marks and directories never turn a user's pause or resume into one that is left out."""
    Shell(d, 'marked', LIVE)
    cid, mark = d.id('marked'), d.dir / 'run/docker' / f'{d.id("marked")}.live'
    state = json.loads(next((d.dir / 'exec').rglob(f'{cid}/state.json')).read_text())
    right = f'{state["init_process_pid"]} {state["init_process_start"]}\n'
    mark.parent.mkdir(exist_ok=True)
    target = d.dir / 'forged'
    target.write_text(right)
    # a user's pause and resume are done, whatever text the mark has
    for text in (right, '', '1 1\n', 'x' * 5000):
        mark.write_text(text)
        d.docker('pause', 'marked')
        want('paused', frozen(d, 'marked'), text)
        mark.write_text(text)
        d.docker('unpause', 'marked')
        goes_on(d, 'marked')
    # a mark that others may write is ignored: the resume of a running container goes to runc, which refuses it
    runtime = [BIN / 'zns-runc', '--zns-config', d.dir / 'conf', '--zns-run', d.dir / 'run', '--zns-docker-root', d.root, '--root',
               next((d.dir / 'exec').rglob(f'{cid}/state.json')).parents[1]]
    for forge in (lambda: (mark.write_text(right), mark.chmod(0o666)), lambda: (mark.write_text(right), os.chown(mark, 1000, 0)),
                  lambda: mark.symlink_to(target), lambda: mark.write_text('1 1\n'), lambda: mark.write_text('')):
        forge()
        r = dkdaemon.sh(*runtime, 'resume', cid, env=d.env, check=False)
        want('refused by runc', r.returncode, r.stderr)
        want('gone', not os.path.lexists(mark))
    mark.write_text(right)
    mark.chmod(0o600)
    dkdaemon.sh(*runtime, 'resume', cid, env=d.env)
    # an empty directory of a crashed dockerd, or of somebody else, is not taken for a checkpoint that begins
    left = d.root / 'containers' / cid / 'checkpoints/left'
    for spoil in (lambda: os.utime(left, (1, 1)), lambda: os.chown(left, 1000, 1000), lambda: (left / 'file').write_text('')):
        left.mkdir(parents=True)
        spoil()
        d.docker('pause', 'marked')
        want('paused', frozen(d, 'marked'))
        d.docker('unpause', 'marked')
        shutil.rmtree(left)
    # if its own first process has exited, the mark belongs to an earlier run of the container
    mark.write_text(right)
    d.docker('kill', 'marked')
    want('gone with the container', not mark.exists())
    remove(d, 'marked')


def init_of_exec(d, name):
    """Begins a `docker exec` and stops its `runc init` in the container's cgroup. Returns the exec and init's PID."""
    procs = cgroup(d, name) / 'cgroup.procs'
    end = time.monotonic() + 60 * dkdaemon.SLOW
    while time.monotonic() < end:
        e = subprocess.Popen([dkdaemon.DOCKER, 'exec', name, 'true'], env=d.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
        while e.poll() is None:
            for pid in procs.read_text().split():
                try:
                    if b'init' not in Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0'):
                        continue
                    os.kill(int(pid), signal.SIGSTOP)
                    # the process may have executed its program before it was stopped
                    dkdaemon.until('stopped', lambda: Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] == 'T')
                    if b'init' in Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0'):
                        return e, int(pid)
                    os.kill(int(pid), signal.SIGCONT)
                except (OSError, Failed):
                    pass        # the process has ended
        e.communicate()
    raise Failed('no `runc init` of an exec was ever seen')


@case
def execs(d):
    """A checkpoint while a `docker exec` has just begun, with its `runc init` in the container's cgroup: the
    checkpoint returns, and both go on."""
    for name, options in (('plain', ()), ('none', ('--label', 'zns.dev=none')), ('live', LIVE)):
        w = Shell(d, name, options)
        w.remember()
        at, mark = cgroup(d, name), d.dir / 'run/docker' / f'{d.id(name)}.live'
        e, init = init_of_exec(d, name)
        ck = subprocess.Popen([dkdaemon.DOCKER, 'checkpoint', 'create', '--leave-running', name, 'one'], env=d.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            # containerd has asked for the pause, and begins the checkpoint when the exec is over
            dkdaemon.until('paused, or left out', lambda: is_frozen(at) or mark.exists() or ck.poll() is not None)
            os.kill(init, signal.SIGCONT)
            print(f'     {name}: {ck.communicate(timeout=60 * dkdaemon.SLOW)[1].strip()[-150:] or "is made"}', flush=True)
            said = e.communicate(timeout=60 * dkdaemon.SLOW)[1]
        except subprocess.TimeoutExpired:
            how = 'frozen' if is_frozen(at) else 'not frozen'
            stand = [Path(f'/proc/{pid}/stat').read_text().split(') ')[0] + ' ' + Path(f'/proc/{pid}/wchan').read_text()
                     for pid in (at / 'cgroup.procs').read_text().split()]
            thaw(at)
            raise Failed(f'{name}: hangs; its cgroup is {how}, left out: {mark.exists()}, in it: {", ".join(stand)}')
        want('the exec ends well', not e.returncode, said)
        goes_on(d, name)
        w.verify()
        remove(d, name)


@case
def live_fails(d):
    """A live dump fails, because criu refuses in the freeze or dies in a round: the container runs, and is not
    paused."""
    listen = 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname()); '
    d.run('breaks', 'python3', '-c', listen + 'a = s.accept(); open("/data/up", "w"); import time; time.sleep(1000)', options=LIVE)
    d.docker('exec', 'breaks', 'bash', '-c', 'until [ -e /data/up ]; do sleep 0.1; done')
    d.refused(d.docker, 'checkpoint', 'create', '--leave-running', 'breaks', 'one', line='zns.criu=tcp-established')
    goes_on(d, 'breaks')
    remove(d, 'breaks')
    w = Written(d, 'breaks', LIVE, sizes={'keys': 200000})
    w.remember()
    for victim in ('criu', 'zns-helper', 'runc'):
        for attempt in range(20):
            killed = []
            done = threading.Event()

            def kill_it():
                end = time.monotonic() + 60
                while not killed and not done.is_set() and time.monotonic() < end:
                    for pid in d.pids_of(victim):
                        time.sleep(0.05)
                        try:
                            os.kill(pid, 9)
                            killed.append(pid)
                        except ProcessLookupError:
                            pass

            t = threading.Thread(target=kill_it)
            t.start()
            r = d.docker('checkpoint', 'create', '--leave-running', 'breaks', f'x-{victim}-{attempt}', check=False)
            done.set()
            t.join()
            if killed and r.returncode:
                break
        want(f'{victim} was killed and the checkpoint failed', killed and r.returncode)
        d.settle(False, lambda: frozen(d, 'breaks'), 20)
        goes_on(d, 'breaks')
        w.told()
    d.zctl('rm', '--container', 'breaks', check=False)
    d.docker('checkpoint', 'create', '--leave-running', 'breaks', 'good')
    d.docker('kill', 'breaks')
    d.docker('start', '--checkpoint', 'good', 'breaks')
    w.verify()
    w.told()
    remove(d, 'breaks')
