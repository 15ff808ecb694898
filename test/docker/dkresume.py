# SPDX-License-Identifier: GPL-2.0-only
"""
`docker stop` suspends and `docker start` resumes: cases of docker.py.
"""
import concurrent.futures
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import dkdaemon
from dkcase import case, remove
from dkdaemon import BIN, want
from dknet import BOTH_ENDS

SUSPEND = ('--label', 'zns.suspend=yes')
# A secret in memory alone, told by a file that is written again whenever it is missing.
TELLS = """
import hashlib, os, time
secret = {secret}
while True:
    if not os.path.exists('/run/secret'):
        with open('/run/new', 'w') as f:
            f.write({told})
        os.rename('/run/new', '/run/secret')
    time.sleep(0.01)
"""
SECRET = TELLS.format(secret='os.urandom(16).hex()', told='secret')
LARGE = TELLS.format(secret='os.urandom({mib} << 20)', told='hashlib.sha256(secret).hexdigest()')


def directory(d, name):
    return d.root / 'containers' / d.id(name)


def note(d, name):
    return (directory(d, name) / 'zns-note').read_text().strip()


def secret(d, name):
    dkdaemon.until('an exec', lambda: not d.docker('exec', name, 'rm', '-f', '/run/secret', check=False).returncode)
    return dkdaemon.until('a secret', lambda: d.docker('exec', name, 'cat', '/run/secret', check=False).stdout)


def keeps_secret(d, name, *options, runtime='zns'):
    d.run(name, 'python3', '-c', SECRET, options=('--tmpfs', '/run', *options), runtime=runtime)
    return secret(d, name)


def nothing_left(d, name):
    """Checks that no restore waits, and that no file of one is left."""
    want('no file of a hold', not list((d.dir / 'run/docker').glob('*.hold*')), list((d.dir / 'run/docker').iterdir()))
    want('no process of a hold', not [p for p in Path('/proc').glob('[0-9]*') if waits(d, p)])


def waits(d, p):
    try:
        return b'ZNS_HOLD=' + str(d.dir).encode() in (p / 'environ').read_bytes() and not (p / 'cmdline').read_bytes().startswith(b'python')
    except OSError:
        return False


@case
def suspend(d):
    """Memory and an open connection survive stop and start. After a kill, or with files written since the stop, the
    start is cold."""
    was = keeps_secret(d, 'sus', *SUSPEND)
    d.docker('stop', 'sus')
    (c,) = d.checkpoints('sus')
    want('stopped with a checkpoint', note(d, 'sus').startswith('stopped with checkpoint zns-stop-'), note(d, 'sus'))
    want('marked as its end', c['origin']['ended'] is True and c['origin']['checkpoint_name'].startswith('zns-stop-'), c['origin'])
    d.docker('start', 'sus')
    want('resumed', note(d, 'sus').startswith('resumed from checkpoint zns-stop-'), note(d, 'sus'))
    want('its memory', secret(d, 'sus') == was)
    nothing_left(d, 'sus')
    d.docker('kill', 'sus')
    d.docker('start', 'sus')
    want('said', note(d, 'sus') == 'started cold: it did not end with a checkpoint', note(d, 'sus'))
    cold = secret(d, 'sus')
    want('never back in time', cold != was)
    d.docker('stop', 'sus')
    want('one directory stays', len(list((directory(d, 'sus') / 'checkpoints').iterdir())) == 1)
    want('and one checkpoint, another one', [x['id'] for x in d.checkpoints('sus')] not in ([c['id']], []) and len(d.checkpoints('sus')) == 1)
    (d.dir / 'written').write_text('x')
    d.docker('cp', d.dir / 'written', 'sus:/root/written')
    d.docker('start', 'sus')
    want('files were written since', 'started cold: ' in note(d, 'sus') and 'was written after its checkpoint' in note(d, 'sus'), note(d, 'sus'))
    want('cold', secret(d, 'sus') != cold)
    remove(d, 'sus')


@case
def suspend_connection(d):
    d.run('talks', 'python3', '-c', BOTH_ENDS, options=(*SUSPEND, '--label', 'zns.criu=tcp-established'))

    def turns():
        return int(d.docker('exec', 'talks', 'cat', '/data/turns', check=False).stdout or 0)
    dkdaemon.until('turns', lambda: turns() > 10)
    d.docker('stop', 'talks')
    d.docker('start', 'talks')
    want('resumed', note(d, 'talks').startswith('resumed from'), note(d, 'talks'))
    before = turns()
    want('counts on', before > 10, before)
    dkdaemon.until('turns go on', lambda: turns() > before)
    remove(d, 'talks')


# Holds both ends of a connection over an address that may vanish, and makes a new one when it is lost.
LOSABLE = """
import os, socket, time
def say(what, text):
    open('/data/new', 'w').write(text); os.rename('/data/new', '/data/' + what)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('', 7000)); s.listen()
to, lost, n = '10.99.0.1', 0, 0
while True:
    k = socket.create_connection((to, 7000)); a, _ = s.accept()
    try:
        while True:
            k.sendall(b'go')
            if a.recv(2) != b'go':
                raise OSError
            n += 1
            say('turns', str(n))
            time.sleep(0.01)
    except OSError:
        lost += 1
        to = '127.0.0.1'
        say('lost', str(lost))
"""


@case
def suspend_address(d):
    """zns.tcp: a connection survives if its address exists. Otherwise auto closes it and keep starts cold; close
    always closes it."""
    d.run('net', 'sleep', '1000', runtime='runc')
    ip = ['nsenter', '-t', d.docker('inspect', '-f', '{{.State.Pid}}', 'net').stdout.strip(), '-n', 'ip']
    dkdaemon.sh(*ip, 'link', 'set', 'lo', 'up')

    def told(what):
        return int(d.docker('exec', 'moves', 'cat', f'/data/{what}', check=False).stdout or 0)
    for wish, goes, lost, cold in (('auto', False, 0, False), ('auto', True, 1, False), ('close', False, 1, False), ('keep', False, 0, False),
                                   ('keep', True, 0, True)):
        dkdaemon.sh(*ip, 'addr', 'add', '10.99.0.1/32', 'dev', 'lo')
        d.run('moves', 'python3', '-c', LOSABLE, options=('--restart', 'always', *SUSPEND, '--label', f'zns.tcp={wish}'), network='container:net')
        dkdaemon.until('turns', lambda: told('turns') > 10)
        d.docker('stop', 'moves')
        want(f'{wish}: stopped with a checkpoint', note(d, 'moves').startswith('stopped with checkpoint'), note(d, 'moves'))
        if goes:
            dkdaemon.sh(*ip, 'addr', 'del', '10.99.0.1/32', 'dev', 'lo')
        d.docker('start', 'moves')
        if cold:
            want(f'{wish}: not resumed', note(d, 'moves').startswith('not resumed: '), note(d, 'moves'))
        else:
            want(f'{wish}: resumed', note(d, 'moves').startswith('resumed from'), note(d, 'moves'))
            before = told('turns')
            want(f'{wish}: counts on', before > 10, before)
            dkdaemon.until(f'{wish}: turns go on', lambda: told('turns') > before)
            want(f'{wish}: lost', told('lost') == lost, told('lost'))
        remove(d, 'moves')
        dkdaemon.sh(*ip, 'addr', 'flush', 'dev', 'lo', 'to', '10.99.0.1/32', check=False)
    remove(d, 'net')


def stopped(d, name, *options):
    """A container that ended with a checkpoint: its secret, and the checkpoint's directory."""
    was = keeps_secret(d, name, *SUSPEND, *options)
    d.docker('stop', name)
    (made,) = (directory(d, name) / 'checkpoints').iterdir()
    return was, made


@case
def suspend_broken(d):
    """What cannot be restored: a cold start in the same call if that shows before the restore is held; otherwise one
    error line, and a cold start next time."""
    was, _ = stopped(d, 'broken')
    d.zctl('rm', '--container', 'broken')
    d.docker('start', 'broken')
    want('the reason', 'started cold: zns: checkpoint' in note(d, 'broken') and 'was deleted at' in note(d, 'broken'), note(d, 'broken'))
    want('cold', secret(d, 'broken') != was)
    nothing_left(d, 'broken')
    remove(d, 'broken')
    was, made = stopped(d, 'broken', '--label', 'zns.dev=none')
    os.truncate(made / 'pages-1.img', 4096)
    said = d.refused(d.docker, 'start', 'broken', line='the next start is a cold one')
    want('criu\'s reason in one line', 'criu: ' in said and len([l for l in said.splitlines() if l]) <= 2, said)
    nothing_left(d, 'broken')
    d.docker('start', 'broken')
    want('cold', secret(d, 'broken') != was)
    remove(d, 'broken')
    was, made = stopped(d, 'broken', '--label', 'zns.dev=none', '--restart', 'always')
    os.truncate(made / 'pages-1.img', 4096)
    d.docker('start', 'broken')
    want('cold, by its restart policy', secret(d, 'broken') not in ('', was))
    nothing_left(d, 'broken')
    remove(d, 'broken')


def programs(d, name, **scripts):
    """A directory with zns-runc and the programs that it calls, some of them behind a script. In a script $REAL is
    the program."""
    bin = d.dir / name
    bin.mkdir()
    for p in BIN.iterdir():
        if p.name in scripts:
            (bin / p.name).write_text(f'#!/bin/bash\nREAL={p}\n{scripts[p.name]}')
            (bin / p.name).chmod(0o755)
        elif p.name == 'zns-runc':       # the wrapper looks for the other programs in its own directory
            shutil.copy(p, bin / p.name)
        else:
            (bin / p.name).symlink_to(p)
    return bin / 'zns-runc'


def stop_by(d, runtime, name, *options):
    """Calls the runtime as containerd does for `docker stop`."""
    ident = d.id(name)
    (state,) = d.dir.glob(f'exec/runtime-*/*/{ident}')
    dkdaemon.sh(runtime, *options, '--zns-docker-root', d.root, '--root', state.parent, 'kill', ident, 'TERM', env=d.env)
    dkdaemon.until('it is stopped', lambda: not d.running(name))


@case
def suspend_written(d):
    """Another container writes to a shared volume while criu dumps: the memory is older than that file, so the start
    is cold."""
    shared = d.dir / 'shared'
    shared.mkdir()
    was = keeps_secret(d, 'shares', *SUSPEND, '-v', f'{shared}:/shared')
    stop_by(d, programs(d, 'writes', criu=f'"$REAL" "$@"; rc=$?; date > {shared}/new; exit $rc\n'), 'shares')
    want('stopped with a checkpoint', note(d, 'shares').startswith('stopped with checkpoint'), note(d, 'shares'))
    d.docker('start', 'shares')
    want('files were written since', 'new was written after its checkpoint' in note(d, 'shares'), note(d, 'shares'))
    want('cold', secret(d, 'shares') != was)
    remove(d, 'shares')


@case
def suspend_committed(d):
    """runc fails after its checkpoint was committed: the container has ended with that checkpoint, and resumes from
    it."""
    was = keeps_secret(d, 'late', *SUSPEND)
    failing = d.dir / 'failing-runc'
    failing.write_text('#!/bin/bash\nrunc "$@" || exit\n[[ " $* " != *" checkpoint "* ]]\n')
    failing.chmod(0o755)
    stop_by(d, BIN / 'zns-runc', 'late', '--zns-runc', failing)
    want('said', note(d, 'late').startswith('stopped with checkpoint zns-stop-') and 'then runc failed' in note(d, 'late'), note(d, 'late'))
    d.docker('start', 'late')
    want('its memory', secret(d, 'late') == was, note(d, 'late'))
    remove(d, 'late')


@case
def suspend_rights(d):
    """A container with other rights than the dump's is not restored from it, so it gets none of the dump's rights."""
    for how, cold in (('cold', True), ('fail', False)):
        was, made = stopped(d, 'rights', '--label', f'zns.resume-else={how}')
        shape = json.loads((made / 'zns-shape.json').read_text())
        want('no secrets of its environment', 'env' not in shape['process'], shape['process'])
        shape['process']['capabilities']['bounding'].append('CAP_SYS_ADMIN')
        (made / 'zns-shape.json').write_text(json.dumps(shape))
        line = 'differs from the one that was dumped in its bounding capabilities'
        d.refused(d.docker, 'start', '--checkpoint', made.name, 'rights', line=line)
        want('nothing of it stays', not d.leftovers(), d.leftovers())
        if cold:
            d.docker('start', 'rights')
            want('the reason', line in note(d, 'rights'), note(d, 'rights'))
            want('cold', secret(d, 'rights') != was)
        else:
            d.refused(d.docker, 'start', 'rights', line=line)
            want('it does not run', not d.running('rights'))
        nothing_left(d, 'rights')
        remove(d, 'rights')


@case
def resume_named(d):
    """zns.resume=NAME and zns.resume=latest, several times; also on the host's network."""
    was = {}
    for wish, network in (('one', 'none'), ('latest', 'host')):
        d.run('asked', 'python3', '-c', SECRET, options=('--tmpfs', '/run', '--label', f'zns.resume={wish}'), network=network)
        was['one'] = secret(d, 'asked')
        d.docker('checkpoint', 'create', '--leave-running', 'asked', 'one')
        for _ in range(2):
            d.docker('kill', 'asked')
            d.docker('start', 'asked')
            want('its memory', secret(d, 'asked') == was['one'], note(d, 'asked'))
            want('said', note(d, 'asked') == 'resumed from checkpoint one, older than its files may be', note(d, 'asked'))
        nothing_left(d, 'asked')
        remove(d, 'asked')
    d.run('asked', 'python3', '-c', SECRET, options=('--tmpfs', '/run', '--label', 'zns.resume=one', '--label', 'zns.resume-else=cold'))
    d.docker('kill', 'asked')
    d.docker('start', 'asked')
    want('there is none', note(d, 'asked') == 'started cold: checkpoint one: the container has no such checkpoint', note(d, 'asked'))
    remove(d, 'asked')


@case
def from_another(d):
    """Five new containers start at once from one container's memory, as a rule allows; each has its own rights.
    Without the rule all are refused."""
    was = keeps_secret(d, 'warm')
    d.docker('checkpoint', 'create', '--leave-running', 'warm', 'one')
    ident = d.checkpoints('warm')[0]['id']
    rules = d.dir / 'conf/docker.rules'
    rules.write_text('name=kid-* from-allow=none/*,warm/o*,bound/o*\n')

    def make(name, wish, *options, verb=('run', '-d'), image='work', program=SECRET):
        return d.docker(*verb, '--runtime', 'zns', '--network', 'none', '--name', name, '--hostname', name, '--tmpfs', '/run', '--label',
                        f'zns.from={wish}', *options, image, 'python3', '-c', program, check=False)

    def begin(name, wish):
        return make(name, wish)

    def refused(name, line, wish, *options, **more):
        r = make(name, wish, *options, **more)
        want('refused', r.returncode and line in r.stderr, r.stderr)
        want('it does not run', not d.running(name))
        nothing_left(d, name)
        remove(d, name)

    try:
        for wish in ('warm/one', ident):
            refused('other', 'no from-allow=PATTERN of docker.rules allows it', wish)
        refused('kid-0', 'there is no such checkpoint', 'warm/other')
        refused('kid-0', 'CONTAINER/CHECKPOINT, or a checkpoint\'s id', '/etc/x')
        refused('kid-0', 'zns.from-allow can be set only by the administrator', 'warm/one', '--label', 'zns.from-allow=*')
        refused('kid-0', 'differs from the one that was dumped in its user', 'warm/one', '--cap-drop', 'ALL', '--user', '1000')
        refused('kid-0', 'differs from the one that was dumped in its bounding capabilities', ident, '--cap-drop', 'ALL')
        d.docker('commit', 'warm', 'other')
        refused('kid-0', 'the container differs from warm in its image', 'warm/one', image='other')
        refused('kid-0', 'the container differs from warm in its program\'s arguments', ident, program=SECRET + '\n')
        make('kid-0', 'warm/one', verb=('create',))
        d.docker('cp', rules, 'kid-0:/usr/lib/x.so')
        d.refused(d.docker, 'start', 'kid-0', line="x.so is not a file of the container's image")
        rules.write_text(rules.read_text() + 'broken\n')
        d.refused(d.docker, 'start', 'kid-0', line='"broken" is not KEY=VALUE')
        rules.write_text(rules.read_text().replace('broken\n', ''))
        remove(d, 'kid-0')
        d.docker('rmi', 'other')
        shared = d.dir / 'bound'
        shared.mkdir()
        keeps_secret(d, 'bound', '-v', f'{shared}:/shared')
        d.docker('checkpoint', 'create', '--leave-running', 'bound', 'one')
        refused('kid-0', 'may be newer than that memory: mount it read-only', 'bound/one', '-v', f'{shared}:/shared')
        remove(d, 'bound')
        # a mount point that a failed first start left in the layer does not prevent another start
        mount, place = ('-v', f'{rules}:/opt/kept/rules:ro'), 'opt/kept/rules'
        bound = keeps_secret(d, 'bound', *mount)
        d.docker('checkpoint', 'create', '--leave-running', 'bound', 'one')
        for other in (place, 'opt/rules'):
            make('kid-0', 'bound/one', *mount, verb=('create',))
            for path in {place, other}:
                at = Path(d.docker('inspect', '-f', '{{.GraphDriver.Data.UpperDir}}', 'kid-0').stdout.strip()) / path
                at.parent.mkdir(parents=True, exist_ok=True)
                at.touch()
            if other == place:
                d.docker('start', 'kid-0')
                want('its memory', secret(d, 'kid-0') == bound, note(d, 'kid-0'))
            else:
                d.refused(d.docker, 'start', 'kid-0', line="rules is not a file of the container's image")
            remove(d, 'kid-0')
        remove(d, 'bound')
        kids = [f'kid-{i}' for i in range(5)]
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            for r in pool.map(begin, kids, ['warm/one', ident, 'warm/one', 'warm/one', 'warm/one']):
                want('runs', not r.returncode, r.stderr)
        for name in kids:
            want('its memory', secret(d, name) == was, note(d, name))
            want('said', note(d, name) == 'resumed from checkpoint warm/one, older than its files may be', note(d, name))
            want('its own name', d.docker('exec', name, 'cat', '/proc/sys/kernel/hostname').stdout.strip() == name)
            want('no leave stays', not (directory(d, name) / 'zns-clone').exists())
        d.docker('kill', kids[0])
        d.docker('start', kids[0])
        want('once, and then cold', secret(d, kids[0]) != was)
        for name in kids:
            nothing_left(d, name)
        remove(d, *kids)
    finally:
        rules.unlink()
    remove(d, 'warm')


def words(process):
    """The command line of a process in /proc, as a list of bytes; empty: the process is gone."""
    try:
        return (process / 'cmdline').read_bytes().split(b'\0')
    except OSError:
        return []


def supervisors(ident):
    """PIDs of this container's create calls: the supervisor that parents the restore, and a create that has not
    returned."""
    return [int(p.name) for p in Path('/proc').glob('[0-9]*') if b'create' in (w := words(p)) and ident.encode() in w and
            any(x.endswith(b'zns-runc') for x in w[:2])]


def supervisor(ident):
    (pid,) = supervisors(ident)
    return pid


def children(pid):
    found = []
    for path in Path(f'/proc/{pid}/task').glob('*/children'):
        with contextlib.suppress(OSError):       # a thread that has just ended
            found += map(int, path.read_text().split())
    return found


def start_alone(d, ident, pid, start):
    """The supervisor is killed after it has told criu to go on, while criu waits for a stopped runc."""
    parent = supervisor(ident)
    ((runc,),) = [children(c) for c in children(parent)]
    (log,) = d.dir.glob(f'run/docker/{ident}.hold.work/restore.log')
    with concurrent.futures.ThreadPoolExecutor() as pool:
        os.kill(runc, signal.SIGSTOP)
        try:
            started = pool.submit(start)
            dkdaemon.until('it goes on', lambda: log.read_text().partition('waits for the start of its container\n')[2])
            os.kill(parent, 9)
        finally:
            os.kill(runc, signal.SIGCONT)
        started.result()
    want('its process', Path(f'/proc/{pid}').exists())


def killed_in_start(d, ident, pid, runc):
    """A start that does not get on can be ended by `docker kill`."""
    ((inner,),) = [children(c) for c in children(supervisor(ident))]
    (log,) = d.dir.glob(f'run/docker/{ident}.hold.work/restore.log')
    with concurrent.futures.ThreadPoolExecutor() as pool:
        os.kill(inner, signal.SIGSTOP)
        try:
            started = pool.submit(runc, 'start', ident, check=False)
            dkdaemon.until('it goes on', lambda: log.read_text().partition('waits for the start of its container\n')[2])
            runc('kill', ident, 'KILL')
            want('no start', started.result().returncode, started.result().stderr)
        finally:
            try:
                os.kill(inner, signal.SIGCONT)
            except ProcessLookupError:
                pass


@case
def resume_held(d):
    """Commands between create and start, as an engine may call them: state, exec, kill, also with a helper that is
    killed; at last start."""
    was = keeps_secret(d, 'held', *SUSPEND)
    ident = d.id('held')
    (bundle,) = d.dir.glob(f'exec/**/{ident}/config.json')
    conf = json.loads(bundle.read_text())
    d.docker('stop', 'held')
    # as dockerd has its directory: the container's root must be a slave of a shared mount, as at the dump
    mine = d.dir / 'volume'
    (mine / 'root').mkdir(parents=True)
    dkdaemon.sh('mount', '--bind', mine, mine)
    dkdaemon.sh('mount', '--make-shared', mine)
    layers = json.loads(d.docker('inspect', '-f', '{{json .GraphDriver}}', 'held').stdout)
    if layers['Name'] != 'overlay2':
        raise dkdaemon.Skipped(f'the layers are of {layers["Name"]}')
    data = layers['Data']
    dkdaemon.sh('mount', '-t', 'overlay', '-o', f'lowerdir={data["LowerDir"]},upperdir={data["UpperDir"]},workdir={data["WorkDir"]}',
                'overlay', mine / 'root')
    conf['root']['path'] = str(mine / 'root')
    del conf['hooks']
    (mine / 'config.json').write_text(json.dumps(conf))
    # files that dockerd writes at each start, and that go when the container ends
    log = open(mine / 'log', 'w+')

    def runc(*args, check=True, program=BIN / 'zns-runc'):
        r = subprocess.run([program, '--root', mine / 'state', '--zns-docker-root', d.root, *args], env=d.env, stdin=subprocess.DEVNULL,
                           stdout=log if args[0] == 'create' else subprocess.PIPE, stderr=log if args[0] == 'create' else subprocess.PIPE, text=True,
                           timeout=120 * dkdaemon.SLOW)
        if r.stderr is None:
            r.stderr = (mine / 'log').read_text()
        return dkdaemon.checked(args, r) if check else r

    def create():
        runc('create', '--bundle', str(mine), '--pid-file', str(mine / 'pid'), ident)
        state = json.loads(runc('state', ident).stdout)
        want('held', note(d, 'held').startswith('resumed from'), note(d, 'held'))
        want('created', state['status'] == 'created' and state['pid'] == int((mine / 'pid').read_text()), state)
        return state['pid']

    def gone(pid):
        def ended():
            try:
                return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] == 'Z'
            except OSError:
                return True
        dkdaemon.until('the held process is gone', ended)

    def nothing_waits():
        dkdaemon.until('the restore is gone', lambda: not [p for p in Path('/proc').glob('[0-9]*') if waits(d, p)])

    try:
        pid = create()
        r = runc('exec', ident, 'true', check=False)
        want('no exec', r.returncode and 'exec is not possible before the container is started' in r.stderr, r.stderr)
        runc('kill', ident, 'KILL')
        gone(pid)
        pid = create()
        os.kill(supervisor(ident), 9)
        gone(pid)
        nothing_waits()
        runc('delete', '--force', ident)
        nothing_left(d, 'held')
        pid, parent = create(), supervisor(ident)
        ((inner,),) = [children(c) for c in children(parent)]
        os.kill(inner, 9)
        dkdaemon.until('the supervisor has seen the end of runc', lambda: not children(parent))
        r = runc('start', ident, check=False)
        want('no start', r.returncode, r.stderr)
        want('runc has forgotten it', not (mine / 'state' / ident).exists())
        gone(pid)
        nothing_waits()
        runc('delete', '--force', ident)
        pid, own = create(), directory(d, 'held')
        own.rename(own.with_name('elsewhere'))
        gone(pid)
        nothing_waits()
        own.with_name('elsewhere').rename(own)
        runc('delete', '--force', ident)
        # criu is stopped before the restore is held
        conf_file, ended = d.dir / 'conf/zns.conf', (directory(d, 'held') / 'zns-ended').read_bytes()
        before = conf_file.read_text() if conf_file.exists() else ''
        conf_file.write_text(before + 'deadline = 1\n')
        stuck = programs(d, 'stuck', criu='[ -n "$ZNS_HOLD" ] && exec sleep infinity\nexec "$REAL" "$@"\n')
        runc('create', '--bundle', str(mine), '--pid-file', str(mine / 'pid'), ident, program=stuck)
        conf_file.write_text(before)
        want('cold', note(d, 'held') == 'started cold: the restore stands still', note(d, 'held'))
        nothing_waits()
        runc('delete', '--force', ident)
        # deleted before the restore is held; and created again, after its shim was killed, while it is held
        with concurrent.futures.ThreadPoolExecutor() as pool:
            made = pool.submit(runc, 'create', '--bundle', str(mine), '--pid-file', str(mine / 'pid'), ident, program=stuck, check=False)
            dkdaemon.until('criu stands still', lambda: [p for p in Path('/proc').glob('[0-9]*') if waits(d, p) and words(p)[:1] == [b'sleep']])
            runc('delete', '--force', ident)
            want('no create', made.result().returncode and 'deleted meanwhile' in made.result().stderr, made.result().stderr)
        nothing_waits()
        pid = create()
        create()
        gone(pid)
        runc('delete', '--force', ident)
        nothing_waits()
        pid = create()
        killed_in_start(d, ident, pid, runc)
        gone(pid)
        nothing_waits()
        runc('delete', '--force', ident)
        (directory(d, 'held') / 'zns-ended').write_bytes(ended)
        start_alone(d, ident, create(), lambda: runc('start', ident))
        want('resumed', json.loads(runc('state', ident).stdout)['status'] == 'running')
        inside = mine / 'root'
        runc('exec', ident, 'rm', '-f', '/run/secret')
        want('its memory', dkdaemon.until('a secret', lambda: runc('exec', ident, 'cat', '/run/secret', check=False).stdout) == was)
        want('used up', not (directory(d, 'held') / 'zns-ended').exists(), inside)
        runc('delete', '--force', ident)
    finally:
        runc('delete', '--force', ident, check=False)
        dkdaemon.sh('umount', '-l', mine)
    nothing_left(d, 'held')
    remove(d, 'held')


def start_again(d):
    """Starts dockerd. It gives its containerd 15 s, which may be too little on a busy machine, or if containerd finds
    shims with calls under way."""
    for last in (False, False, True):
        try:
            return d.start()
        except dkdaemon.Failed:
            d.stop(crash=True)
            if last:
                raise


@case
def suspend_daemon_create(d):
    """dockerd is killed during creates and a start. Later starts get past the shims that were left. One create ends
    only while the next containerd runs."""
    conf, own = json.loads(d.config.read_text()), {}
    barrier, reached = ({n: d.dir / f'{what}-{n}' for n in ('before', 'within', 'after')} for what in ('barrier', 'reached'))

    def wait(name, word):
        return f'[[ " $* " == *" {word} "* && -e {barrier[name]} ]] && {{ touch {reached[name]}; while [ -e {barrier[name]} ]; do sleep 0.1; done; }}\n'
    for name, text in (('before', f'{wait("before", "create")}exec {BIN}/zns-runc "$@"\n'), ('within', f'{wait("within", "restore")}exec /usr/sbin/runc "$@"\n'),
                       ('after', f'runc "$@"\nrc=$?\n{wait("after", "restore")}exit $rc\n')):
        script = d.dir / f'runtime-{name}'
        script.write_text(f'#!/bin/bash\n{text}')
        script.chmod(0o755)
        own = conf['runtimes']['zns']
        conf['runtimes'][name] = dict(own, path=str(script)) if name == 'before' else dict(own, runtimeArgs=['--zns-runc', str(script), *own['runtimeArgs']])
    d.config.write_text(json.dumps(conf))
    d.stop()
    d.start()
    was = {name: keeps_secret(d, name, *SUSPEND, runtime=name) for name in barrier}
    ids = {name: d.id(name) for name in was}
    d.docker('stop', *was)
    for name in was:
        barrier[name].touch()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        started = [pool.submit(d.docker, 'start', name, check=False) for name in was]
        dkdaemon.until('all are reached', lambda: all(r.exists() for r in reached.values()))
        d.stop(crash=True)
        for s in started:
            s.result()
    # this start goes on after dockerd died: the next dockerd takes the container for stopped although it runs
    for name in ('within', 'after'):
        barrier[name].unlink()
        dkdaemon.until('the shim is gone', lambda name=name: not shims(ids[name]))
    containerd = d.dir / 'exec/containerd/containerd.pid'
    before = containerd.read_text()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        again = pool.submit(start_again, d)
        dkdaemon.until('the next containerd', lambda: containerd.exists() and containerd.read_text() not in ('', before))
        barrier['before'].unlink()
        again.result()
    dkdaemon.until('the shim is gone', lambda: not shims(ids['before']))
    want('stopped as by a stop', note(d, 'after').startswith('stopped with checkpoint '), note(d, 'after'))
    for name in was:
        start_when_forgotten(d, name)
        want('its memory', secret(d, name) == was[name], name, note(d, name))
        nothing_left(d, name)
    start_of_dead_shim(d, was['after'], barrier['after'], reached['after'])
    remove(d, *was)
    barrier, reached = barrier['within'], reached['within']
    # here the supervisor is killed, not dockerd: its restore must not outlive it, since the cold start has the same id
    was = keeps_secret(d, 'alone', *SUSPEND, runtime='within')
    ident = d.id('alone')
    d.docker('stop', 'alone')
    reached.unlink()
    barrier.touch()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        started = pool.submit(d.docker, 'start', 'alone', check=False)
        dkdaemon.until('it is reached', reached.exists)
        (pid,) = [p for p in supervisors(ident) if os.getsid(p) == p]
        os.kill(pid, 9)
        want('it starts', not started.result().returncode, started.result().stderr)
    nothing_left(d, 'alone')
    barrier.unlink()
    want('cold', secret(d, 'alone') != was and note(d, 'alone') == 'started cold: the restore ended', note(d, 'alone'))
    remove(d, 'alone')


def start_when_forgotten(d, name):
    """Starts the container as soon as containerd has forgotten the dead shim; until then it refuses."""
    done = []

    def tried():
        done.append(d.docker('start', name, check=False))
        return 'already exists' not in done[-1].stderr
    dkdaemon.until('containerd has forgotten the task', tried)
    want('it starts', not done[-1].returncode, done[-1].stderr)


def start_of_dead_shim(d, was, barrier, reached):
    """A start whose shim was killed is stopped, and goes on after the next start: it must not touch the new
    container."""
    ident = d.id('after')
    d.docker('stop', 'after')
    reached.unlink()
    barrier.touch()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        started = pool.submit(d.docker, 'start', 'after', check=False)
        try:
            dkdaemon.until('it is reached', reached.exists)
            # below the shim are Docker's script and the start itself, whose watcher has the same command line
            (shim,) = shims(ident)
            ((pid,),) = [children(c) for c in children(int(shim)) if words(Path(f'/proc/{c}'))[:1] == [b'/bin/sh']]
            os.kill(pid, signal.SIGSTOP)
            os.kill(int(shim), 9)
            want('no start', started.result().returncode)
        finally:
            barrier.unlink()
    start_when_forgotten(d, 'after')
    cold = secret(d, 'after')
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
    dkdaemon.until('the first start has ended', lambda: not words(Path(f'/proc/{pid}')))
    want('cold', cold != was and note(d, 'after').startswith('started cold: '), note(d, 'after'))
    want('it runs on', d.running('after') and secret(d, 'after') == cold)
    nothing_left(d, 'after')


def shims(ident):
    """The PIDs of containerd and its shims above a container's processes."""
    return [p.name for p in Path('/proc').glob('[0-9]*') if (w := words(p)) and b'containerd-shim' in w[0] and ident.encode() in w]


@case
def suspend_daemon(d):
    """dockerd is killed while a restore is held, before it calls start: the restore is given up, and the next start
    resumes."""
    held, barrier = d.dir / 'is-held', d.dir / 'barrier'
    conf = json.loads(d.config.read_text())
    script = d.dir / 'runtime'
    script.write_text('#!/bin/bash\n'
                      f'if [[ " $* " == *" start "* && -e {barrier} ]]; then touch {held}; while [ -e {barrier} ]; do sleep 0.1; done; fi\n'
                      f'exec {BIN}/zns-runc "$@"\n')
    script.chmod(0o755)
    conf['runtimes']['barrier'] = dict(conf['runtimes']['zns'], path=str(script))
    d.config.write_text(json.dumps(conf))
    d.stop()
    d.start()
    d.run('orphan', 'python3', '-c', SECRET, options=('--tmpfs', '/run', *SUSPEND), runtime='barrier')
    was, ident = secret(d, 'orphan'), d.id('orphan')
    d.docker('stop', 'orphan')
    barrier.touch()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        started = pool.submit(d.docker, 'start', 'orphan', check=False)
        dkdaemon.until('it is held', held.exists)
        d.stop(crash=True)
        dkdaemon.until('the restore is gone', lambda: not [p for p in Path('/proc').glob('[0-9]*') if waits(d, p)])
        barrier.unlink()
        started.result()
    start_again(d)
    want('said', note(d, 'orphan') == 'not resumed: dockerd ended before it called start', note(d, 'orphan'))
    d.docker('start', 'orphan')
    want('its memory', secret(d, 'orphan') == was, note(d, 'orphan'))
    nothing_left(d, 'orphan')
    want('one supervisor less', not (d.dir / f'run/docker/{ident}.hold').exists())
    remove(d, 'orphan')


@case
def suspend_command(d):
    """znsctl docker suspend and resume, without labels: with a restart policy, with files written since the suspend,
    and by name."""
    was = keeps_secret(d, 'once', '--restart', 'always')
    d.refused(d.zctl, 'docker', 'resume', 'once', line='container once runs')
    said = d.zctl('docker', 'suspend', 'once').stderr
    want('it says what dockerd would do', 'with restart policy always and without zns.resume' in said, said)
    want('it stays down', not d.running('once'))
    want('its policy', d.docker('inspect', '-f', '{{.HostConfig.RestartPolicy.Name}}', 'once').stdout.strip() == 'always')
    name = d.zjson('docker', 'resume', 'once')['name']
    want('its memory', secret(d, 'once') == was and name.startswith('zns-stop-'), name)
    d.docker('stop', '-t', '0', 'once')
    d.refused(d.zctl, 'docker', 'resume', 'once', line='did not end with a checkpoint, or was started since')
    want('it does not run', not d.running('once'))
    d.zctl('docker', 'resume', 'once', name)
    want('its memory', secret(d, 'once') == was)
    first, before = d.checkpoints('once')[-1]['id'], secret(d, 'once')
    d.zctl('docker', 'suspend', 'once')
    want('only the newest stays', [c['id'] for c in d.checkpoints('once')] != [first] and len(d.checkpoints('once')) == 1)
    (d.dir / 'written').write_text('x')
    d.docker('cp', d.dir / 'written', 'once:/root/written')
    d.refused(d.zctl, 'docker', 'resume', 'once', line='was written after its checkpoint')
    d.docker('start', 'once')
    want('cold, as nobody asks any more', secret(d, 'once') != before)
    remove(d, 'once')


@case
def suspend_all(d):
    """Before a shutdown: containers for which there is no time are stopped by their signal, all others are suspended in order; unrelated
    containers are not touched.
    """
    was = {name: keeps_secret(d, name, *SUSPEND, '--label', f'zns.stop-order={order}', *options)
           for name, order, options in (('second', 2, ['-t']), ('first', 1, []))}
    d.run('plain', 'sleep', '1000')
    d.refused(d.zctl, 'docker', 'suspend', '--within', '5', line='--within works only with --all')
    d.refused(d.docker, 'run', '--runtime', 'zns', '--network', 'none', '--rm', '--label', 'zns.stop-order=x', 'work', 'true', line='is no number of 0 to')
    said = d.zjson('docker', 'suspend', '--all', '--within', '0')['containers']
    want('no time', [(c['container'], c['checkpoint']) for c in said] == [('first', ''), ('second', '')] and '0.0 s are left' in said[0]['why'], said)
    d.docker('stop', '-t', '1', 'first')
    want('by its signal', note(d, 'first').startswith('stopped without a checkpoint: znsctl docker suspend --all') and not d.checkpoints('first'),
         note(d, 'first'))
    d.docker('start', 'first')
    was['first'] = secret(d, 'first')
    said = d.zjson('docker', 'suspend', '--all', '--within', '10m')['containers']
    want('suspended', [c['container'] for c in said if c['checkpoint'].startswith('zns-stop-')] == ['first', 'second'], said)
    want('the others run on', d.running('plain'))
    for name in was:
        d.docker('start', name)
        want('its memory', secret(d, name) == was[name], note(d, name))
    remove(d, *was, 'plain')


def wipe_run_state(d):
    """What a reboot does away with: the broker, and the run directories of dockerd, containerd and the broker."""
    for pid in d.pids_of('znsd'):
        with contextlib.suppress(ProcessLookupError):       # it leaves by itself, too
            os.kill(pid, signal.SIGTERM)
    dkdaemon.until('no broker', lambda: not d.pids_of('znsd'))
    for state in (d.dir / 'exec', d.dir / 'run'):
        for mount in sorted((m for line in open('/proc/self/mountinfo') if (m := line.split()[4]).startswith(f'{state}/')), reverse=True):
            dkdaemon.sh('umount', '-l', mount, check=False)     # a shim that ends unmounts, too
        dkdaemon.until(f'{state} is gone', lambda state=state: shutil.rmtree(state, ignore_errors=True) or not state.exists())    # as its files
    (d.dir / 'run').mkdir(mode=0o700)


@case
def suspend_host(d):
    """A host goes down: all containers are suspended, the engine ends, and its run state is gone. By their restart policy all come back."""
    count, mib = (int(os.environ.get(f'DOCKER_HOST_{what}', default)) for what, default in (('CONTAINERS', 2), ('MIB', 8)))
    names = [f'host-{i}' for i in range(count)]
    for i, name in enumerate(names):
        d.run(name, 'python3', '-c', LARGE.format(mib=mib), options=('--tmpfs', '/run', '--restart', 'always', *SUSPEND, '--label',
                                                                       f'zns.stop-order={count - i}'))
    was = {name: secret(d, name) for name in names}
    times = [time.monotonic()]
    said = d.zjson('docker', 'suspend', '--all', '--within', '60m')['containers']
    times.append(time.monotonic())
    want('in order', [c['container'] for c in said if c['checkpoint'].startswith('zns-stop-')] == names[::-1], said)
    d.stop()
    try:
        wipe_run_state(d)
        times.append(time.monotonic())
    finally:
        d.start()
    for name in names:
        dkdaemon.until(f'{name} runs', lambda name=name: d.running(name), 600)
        want('its memory', secret(d, name) == was[name] and note(d, name).startswith('resumed from'), name, note(d, name))
    times.append(time.monotonic())
    print(f'     {count} containers of {mib} MiB: suspended in {times[1] - times[0]:.1f} s, back {times[3] - times[2]:.1f} s after dockerd began', flush=True)
    for name in names:
        nothing_left(d, name)
    remove(d, *names)


# Counts the lines that it is sent, and says how large its terminal is.
LINES = 'stty -echo; n=0; while read -r line; do n=$((n+1)); echo "$n $line $(stty size)"; done'


@contextlib.contextmanager
def attached(d, name, rows):
    """Attaches to the container on a terminal of @rows rows, and gives our end of that terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', rows, 90, 0, 0))
    client = subprocess.Popen([dkdaemon.DOCKER, 'attach', name], env=d.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        with open(ours, 'r+b', buffering=0) as f:
            yield f
    finally:
        client.kill()
        client.wait()


def answer(d, name, rows):
    """Waits for the first answer of LINES on a terminal of that many rows; returns the line's number."""
    with attached(d, name, rows) as f:
        os.set_blocking(f.fileno(), False)
        said = b''

        def answered():
            nonlocal said
            f.write(b'hello\n')
            said += f.read(65536) or b''
            return re.search(rf'(\d+) hello {rows} 90\r\n', said.decode())
        return int(dkdaemon.until('an answer', answered)[1])


def flood(d, name, number):
    """Types many lines without a pause; returns the numbers of those that LINES answered."""
    typed, said = (b'y' * 299 + b'\n') * number + b'end\n', b''
    with attached(d, name, 40) as f:
        os.set_blocking(f.fileno(), False)

        def ended():
            nonlocal typed, said
            while (sent := f.write(typed[:4096]) or 0) | len(got := f.read(65536) or b''):
                typed, said = typed[sent:], said + got
            return b' end ' in said
        dkdaemon.until('the end', ended)
    return [int(n) for n in re.findall(rb'(\d+) y{299} ', said)]


def relays():
    found = []
    for p in Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):       # it may end meanwhile
            if b'create' in words(p) and (p / 'comm').read_text() == 'zns-terminal\n':
                found.append(p.name)
    return found


@case
def suspend_terminal(d):
    """A terminal comes back: input and output of any amount pass, and its size; no process of ours outlives the
    container."""
    before = relays()
    d.run('tty', 'bash', '-c', LINES, options=('-t', '-i', *SUSPEND))
    count = answer(d, 'tty', 30)
    for rows in (31, 32):
        d.docker('stop', 'tty')
        want('stopped with a checkpoint', note(d, 'tty').startswith('stopped with checkpoint'), note(d, 'tty'))
        want('no relay', relays() == before)
        d.docker('start', 'tty')
        want('resumed', note(d, 'tty').startswith('resumed from'), note(d, 'tty'))
        last, count = count, answer(d, 'tty', rows)
        want('counts on', count > last, last, count)
        want('a relay', len(relays()) == len(before) + 1, relays())
    said = flood(d, 'tty', 100)
    want('each line once', said == list(range(said[0], said[0] + 100)), said)
    d.docker('stop', 'tty')
    d.zctl('rm', '--container', 'tty')
    d.docker('start', 'tty')
    want('cold', note(d, 'tty').startswith('started cold: '), note(d, 'tty'))
    want('counts anew', answer(d, 'tty', 33) < count)
    remove(d, 'tty')
    dkdaemon.until('no relay', lambda: relays() == before)


@case
def suspend_shapes(d):
    """A container with a mount whose source is a symbolic link is restored, also by Docker's own start. SIGKILL makes
    no checkpoint."""
    link = d.dir / 'link'
    (d.dir / 'target').write_text('the target\n')
    link.symlink_to('target')
    was = keeps_secret(d, 'linked', *SUSPEND, '-v', f'{link}:/etc/linked:ro')
    d.docker('stop', 'linked')
    d.docker('start', 'linked')
    want('resumed', secret(d, 'linked') == was, note(d, 'linked'))
    want('its mount', d.docker('exec', 'linked', 'cat', '/etc/linked').stdout == 'the target\n')
    d.docker('checkpoint', 'create', 'linked', 'one')
    d.docker('start', '--checkpoint', 'one', 'linked')
    want('its memory', secret(d, 'linked') == was)
    remove(d, 'linked')
    keeps_secret(d, 'kills', *SUSPEND, '--stop-signal', 'KILL')
    d.docker('kill', 'kills')
    want('SIGKILL is what it is', not d.checkpoints('kills'))
    d.docker('start', 'kills')
    want('said, also after its first life', note(d, 'kills') == 'started cold: it did not end with a checkpoint', note(d, 'kills'))
    remove(d, 'kills')
