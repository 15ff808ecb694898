# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py: every command that an error text suggests is run in the state that caused the error, and helps."""
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from ztlib import Failed
from ztscene import case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)


class State:
    """A scene, with the commands that its cases need."""

    def __init__(self, scene):
        self.scene, self.device = scene, scene.device
        self.dir, self.spec, self.env = scene.dir, scene.device.spec, scene.device.env
        self.fill = {}      # words of a suggested command that its reader has to replace

    def new_dir(self, name):
        path = self.dir / name
        path.mkdir()
        return path

    def ctl(self, *args):
        return self.device.ctl(*map(str, args))

    def good(self, *args):
        return run_ctl(self.scene, 0, *map(str, args))


def commands_in(text):
    """Every `znsctl …` command in a message, as a list of words."""
    found = [shlex.split(c) for c in re.findall(r'`(znsctl [^`]+)`', text)]
    return found or [shlex.split(c) for c in re.findall(r'(znsctl register --take-over \S+)', text)]


def helps(s, failing, which, *wanted):
    """
    failing() returns a message. The command number @which that the message suggests is run, with the words filled in
    that a reader must replace; after that failing() must succeed. The message must have every word of @wanted.
    """
    said, ok = failing()
    if ok:
        raise Failed('what should fail succeeds: there is nothing to remedy')
    if said.count('\n') > 1 or [w for w in wanted if w not in said]:
        raise Failed(f'it says: {said}')
    commands = commands_in(said)
    if len(commands) <= which:
        raise Failed(f'no command number {which} in: {said}')
    for command in commands if which < 0 else [commands[which]]:
        words = [w for word in command[1:] for w in (s.fill[word] if word in s.fill else [word])]
        left = [w for w in words if w.isupper() and len(w) > 1 and w not in s.fill.get('names', ())]
        if left:
            raise Failed(f'{" ".join(command)} does not say what {left} is')
        s.good(*words)
    said, ok = failing()
    if not ok:
        raise Failed(f'after {" ".join(commands[which])}: {said}')


def of(s, *args):
    """Makes a function of a znsctl command that fails now and succeeds later."""
    def failing():
        done = s.ctl(*args)
        return done.stderr, done.returncode == 0
    return failing


# ---- the states that cause errors, one function each -------------------------------------------------

def nothing_there(s):
    spec = f'emu:{s.dir}/new.emu'
    helps(s, of(s, 'status', spec), 0, 'nothing is there', 'znsctl create')
    s.good('unregister', spec)


def not_registered(s):
    s.good('unregister', s.spec)
    helps(s, of(s, 'status', s.spec), 0, 'is not registered')


def not_formatted(s):
    spec = f'emu:{s.dir}/empty.emu'
    s.good('create', spec, '--zones', '16', '--zone-size', '4M', '--no-format')
    helps(s, of(s, 'ls', spec), 0, 'holds no store')
    s.good('unregister', spec)


def not_registered_not_formatted(s):
    spec = f'emu:{s.dir}/empty2.emu'
    s.good('create', spec, '--zones', '16', '--zone-size', '4M', '--no-format')
    s.good('unregister', spec)
    helps(s, of(s, 'ls', spec), 1, 'or `znsctl format')
    s.good('unregister', spec)


def file_of_something_else(s):
    path = s.dir / 'text'
    path.write_text('no device\n')
    said = s.ctl('status', path).stderr
    expect('another spelling', f'file:{path}' in said and 'register' not in said, True)


def registering(s, spec):
    return of(s, 'register', spec)


def file_with_something_else(s):
    path = s.dir / 'letter'
    path.write_text('dear reader\n')
    helps(s, registering(s, f'emu:{path}'), 0, 'holds something else', '--force')
    s.good('unregister', f'emu:{path}')


def empty_file(s):
    path = s.dir / 'empty-file'
    path.touch()
    helps(s, registering(s, f'emu:{path}'), 0, 'is empty')
    s.good('unregister', f'emu:{path}')


def parent_in_use(s):
    """A parent cannot be removed; after a flatten of the checkpoints that are built on it, it can."""
    child = s.new_dir('incremental')
    for image in (s.dir / 'plain').iterdir():
        (child / image.name).write_bytes(image.read_bytes())
    (child / 'parent').symlink_to('../plain')
    parent = s.device.json('import', str(s.dir / 'plain'), '--container', 'parent')['id']
    built = s.device.json('import', str(child), '--container', 'child', '--parent', parent)['id']

    dry = s.ctl('rm', parent, '--dry-run')
    if not dry.returncode or 'is the parent of' not in dry.stderr:
        raise Failed(f'rm --dry-run of a parent: exit {dry.returncode}, {dry.stdout}{dry.stderr}')
    named = s.device.json('rm', parent, built, '--dry-run')['removed']
    if {(c['id'], c['container']) for c in named} != {(built, 'child'), (parent, 'parent')}:
        raise Failed(f'rm --dry-run does not name both: {named}')

    def rm():
        done = s.ctl('rm', parent)
        if done.returncode and built not in done.stderr:
            raise Failed(f'rm of a parent says: {done.stderr}')
        return re.sub('`znsctl flatten`', f'`znsctl flatten {built}`', done.stderr), done.returncode == 0
    helps(s, rm, 0, 'is the parent of')
    s.good('rm', built)


def a_name_for_a_device(s):
    """A name of a container is given for a device: no command helps, so the message must not suggest one, but say where to look."""
    ident = s.scene.ids()[0]
    for command in (['status'], ['zones'], ['gc'], ['groups'], ['compact'], ['fsck'], ['key', 'show']):
        said = s.ctl(*command, 'shop').stderr
        if 'is not a device' not in said and 'neither a device nor a KEYSPEC' not in said or re.search('znsctl (register|format|create)', said):
            raise Failed(f'{command} shop says: {said}')
    s.good('status', '--all')
    s.good('ls', 'errors')
    s.good('ls', ident)


def a_file_for_a_key(s):
    key = s.dir / 'key'
    s.good('key', 'create', key)
    said = s.ctl('key', 'show', key).stderr
    spec = re.search(r'file:\S+?(?=,)', said)
    if not spec:
        raise Failed(f'key show FILE says: {said}')
    s.good('key', 'show', spec.group(0))


def damaged_entry(s):
    entry = Path(s.env['ZNS_CONFIG']) / 'devices.d' / s.device.info['uuid']
    entry.write_bytes(b'\xff\0junk')
    s.fill = {'DEV': [s.spec]}
    helps(s, of(s, 'ls'), -1, 'unregister', 'register')


def several_devices(s):
    spec = f'emu:{s.dir}/other.emu'
    s.good('create', spec, '--zones', '16', '--zone-size', '4M')
    s.fill = {'DEV': [s.spec]}
    helps(s, of(s, 'status'), 0, s.spec, spec)
    s.good('unregister', spec)


def pinned(s):
    ident = s.device.json('import', str(s.dir / 'plain'), '--container', 'kept')['id']
    s.good('pin', ident)
    s.fill = {}

    def rm():
        done = s.ctl('rm', ident)
        return re.sub('`znsctl unpin`', f'`znsctl unpin {ident}`', done.stderr), done.returncode == 0
    helps(s, rm, 0, 'is pinned')


def zone_in_use(s):
    ident = s.device.json('import', str(s.dir / 'plain'), '--container', 'in-use')['id']
    zone = str(s.device.json('show', ident)['zones'][-1])

    def reset():
        done = s.ctl('reset', '--zone', zone)
        return re.sub('`znsctl rm`', f'`znsctl rm {ident}`', done.stderr), done.returncode == 0
    helps(s, reset, 0, 'holds live checkpoints')


def another_key(s):
    one, two = s.dir / 'key-1', s.dir / 'key-2'
    for key in (one, two):
        s.good('key', 'create', key)
    s.good('key', 'use', f'file:{one}')
    ident = s.device.json('import', str(s.dir / 'plain'), '--container', 'locked')['id']

    def use():
        done = s.ctl('key', 'use', f'file:{two}')
        return re.sub('`znsctl key rotate`', f'`znsctl key rotate file:{two}`', done.stderr), done.returncode == 0
    helps(s, use, 0, 'wrapped with key')
    s.good('rm', ident)
    s.good('key', 'off')


def no_key_here(s):
    key = s.dir / 'key-3'
    s.good('key', 'create', key)
    s.good('key', 'use', f'file:{key}')
    s.good('unregister', s.spec)
    s.good('register', s.spec)
    s.fill = {'KEYSPEC': [f'file:{key}'], 'DEV': [s.spec]}
    helps(s, of(s, 'import', s.dir / 'plain', '--container', 'locked-2'), 0, 'key use')
    s.good('rm', '--container', 'locked-2')
    s.good('key', 'off')


def bad_key(s):
    path = s.dir / 'bad-key'
    path.write_text('nonsense')
    path.chmod(0o600)
    said = s.ctl('key', 'use', f'file:{path}').stderr
    (command,) = commands_in(said)
    good = str(s.dir / 'good-key')
    s.good(*[good if w == 'FILE' else w for w in command[1:]])
    s.good('key', 'show', f'file:{good}')


def lost_catalogue(s):
    geometry = s.device.status()['geometry']
    s.scene.end_broker()
    start = os.path.getsize(s.device.path) - geometry['zones'] * geometry['zone_capacity']
    with open(s.device.path, 'r+b') as dev:
        for zone in range(geometry['metadata_zones']):
            os.pwrite(dev.fileno(), os.urandom(geometry['zone_capacity']), start + zone * geometry['zone_capacity'])
    helps(s, of(s, 'ls'), 0, 'fsck --rebuild')


def damaged_catalogue(s):
    """ls suggests fsck, which changes nothing and suggests fsck --repair."""
    geometry = s.device.status()['geometry']
    s.scene.end_broker()
    start = os.path.getsize(s.device.path) - geometry['zones'] * geometry['zone_capacity']
    with open(s.device.path, 'r+b') as dev:
        for zone in range(geometry['metadata_zones']):
            at = start + zone * geometry['zone_capacity'] + geometry['block_size']     # the block behind the superblock
            head = os.pread(dev.fileno(), 64, at)
            if head[:8] == b'ZNSCRIU1':
                os.pwrite(dev.fileno(), head[:48] + bytes([head[48] ^ 1]), at)
    said = s.ctl('ls').stderr
    (command,) = commands_in(said)
    expect('command', command[1], 'fsck')
    done = s.ctl(*command[1:])
    expect('exit of fsck', done.returncode, 1)
    command = commands_in(done.stdout)[-1]
    expect('what fsck names', command[1:3], ['fsck', '--repair'])
    s.good(*command[1:])
    s.good('ls')


def full(s):
    """On a device that is full of garbage of a removed container, gc makes room; on one that is really full, rm does."""
    spec = f'emu:{s.dir}/small.emu'
    s.good('create', spec, '--zones', '6', '--zone-size', '4M', '--channels', '1', '--ways', '1')
    n = 0
    while True:
        done = s.ctl('import', s.dir / 'plain', '--dev', spec, '--container', f'c{n}')
        if done.returncode:
            break
        n += 1
        if n > 50:
            raise Failed('the device is never full')
    said = done.stderr
    if 'is full' not in said:
        raise Failed(f'a full device says: {said}')
    expect('commands', [c[1:] for c in commands_in(said)], [['gc', '--compact'], ['rm']])
    s.good('retain', '--dev', spec, 'c0', '--keep', '1')
    s.good('gc', '--compact', '--dev', spec)
    s.good('rm', '--dev', spec, '--pattern', '*')
    s.good('import', s.dir / 'plain', '--dev', spec, '--container', 'again')
    s.good('unregister', spec)


def removed(s):
    """For a damaged handle `znsctl ls` is suggested. For a handle whose checkpoint was removed nothing helps, so the message only says so."""
    images = s.new_dir('handled')
    ident = s.scene.good_dump(images=images, extra=['--leave-running'])
    s.good('rm', ident)
    for command in ('show', 'verify'):
        said = s.ctl(command, images).stderr
        if not re.search('was deleted at .* by znsctl rm', said):
            raise Failed(f'{command} of the directory of a removed checkpoint says: {said}')


def handle_damaged(s):
    images = s.new_dir('damaged')
    ident = s.scene.good_dump(images=images, extra=['--leave-running'])
    (images / ztlib.HANDLE).write_bytes(b'junk')
    log = s.dir / 'restore.log'
    done = subprocess.run([s.scene.cfg.criu, 'restore', '-d', '-D', str(images), '-o', str(log), '-W', str(s.dir)], env=s.env,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=s.scene.cfg.timeout)
    said = next(l for l in log.read_text().splitlines() if 'zns:' in l and 'Error' in l)
    expect('exit', done.returncode != 0, True)
    (command,) = commands_in(said)
    if ident[:8] not in s.good(*command[1:]):
        raise Failed(f'{" ".join(command)} does not show the checkpoint')
    if '--zns-checkpoint' not in said:
        raise Failed(f'a restore from a damaged handle says: {said}')
    s.good('rm', ident)


def plain_parent(s):
    """A plain directory as the parent of a checkpoint on zones: the message suggests import."""
    images = s.new_dir('child')
    done = s.scene.dump(images=images, extra=['--leave-running', '--prev-images-dir', '../plain'])
    said = done.lines('zns:.*plain image directory')[0]
    (command,) = commands_in(said)
    expect('command', command, ['znsctl', 'import'])
    parent = s.device.json('import', str(s.dir / 'plain'), '--container', 'parent')['id']
    child = s.new_dir('child-2')
    again = s.scene.dump(images=child, extra=['--leave-running', '--zns-parent', parent])
    expect('the parent is found', len(again.lines(f'on parent {parent}')), 1)
    s.good('rm', s.device.json('show', str(child))['id'], parent)


def zns_parent(s):
    """A checkpoint on zones as the parent of a plain dump: the message suggests export."""
    images = s.new_dir('on-zones')
    ident = s.scene.good_dump(images=images, extra=['--leave-running'])
    log = s.dir / 'plain-dump.log'
    args = ['dump', '-t', str(s.scene.task.pid), '-D', str(s.new_dir('plain-child')), '-W', str(s.dir), '-o', log.name, '-v4',
            '--leave-running', '--prev-images-dir']

    def run(parent):
        done = subprocess.run([s.scene.cfg.criu, *args, parent], env=s.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=s.scene.cfg.timeout)
        return done.stderr + (log.read_text() if log.exists() else '')

    said = next(l for l in run('../on-zones').splitlines() if 'is a checkpoint on zones' in l)
    (command,) = commands_in(said)
    s.good(*command[1:], ident, s.dir / 'exported')
    expect('still refused', 'is a checkpoint on zones' in run('../exported'), False)
    s.good('rm', ident)


def broker_of_another_build(s):
    """A broker that has run since before an upgrade is named by znsctl's requests and by a dump; it ends when asked,
    and the next command is served."""
    s.scene.end_broker()
    build = Path(s.scene.cfg.znsctl).resolve().parents[1]
    (other,) = [d for d in (build / 'next', build / 'test' / 'next') if (d / 'znsd').exists()]
    env = dict(s.env, ZNS_LIBEXEC=str(other), ZNSD_IDLE_S='0')

    def status(env=s.env):
        return subprocess.run([s.scene.cfg.znsctl, 'status', '--dev', s.spec], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
    said = status(env).stderr
    (pid,) = s.scene._ours('znsd')
    expect('program', Path(f'/proc/{pid}/exe').resolve(), (other / 'znsd').resolve())
    for said in (said, status().stderr, '\n'.join(s.scene.dump(images=s.new_dir('refused'), extra=['--leave-running']).lines('different builds'))):
        if f'(PID {pid}) speaks version 77, the client' not in said or f'`kill {pid}`' not in said:
            raise Failed(f'it says: {said}')
    expect('the task runs on', ztlib.alive(s.scene.task.pid), True)
    os.kill(pid, signal.SIGTERM)
    expect('it ends', ztlib.wait_until(lambda: not ztlib.alive(pid), 30), True)
    expect('exit of status', status().returncode, 0)
    s.good('ls')


STATES = (nothing_there, not_registered, not_formatted, not_registered_not_formatted, file_of_something_else, file_with_something_else, empty_file,
          parent_in_use, a_name_for_a_device,
          a_file_for_a_key, damaged_entry, several_devices, pinned, zone_in_use, another_key, no_key_here, bad_key, lost_catalogue, damaged_catalogue,
          full, removed, handle_damaged, plain_parent, zns_parent,
          broker_of_another_build)


@case
def remedies(scene):
    """Every command that an error text suggests is run in the state that caused the error, and helps; one function for each state."""
    scene = scene(size=1)
    s = State(scene)
    ident = scene.good_dump(extra=['--leave-running'])
    s.good('export', ident, s.dir / 'plain')
    wrong = []
    for state in STATES:
        s.fill = {}
        try:
            state(s)
        except Failed as e:
            wrong.append(f'{state.__name__}: {e}')
        except (StopIteration, IndexError, AttributeError, ValueError, subprocess.TimeoutExpired) as e:
            wrong.append(f'{state.__name__}: the message is another one ({type(e).__name__} {e})')
    if wrong:
        raise Failed(f'{len(wrong)} of {len(STATES)}: ' + ' | '.join(wrong))
    print(f'     {len(STATES)} states', flush=True)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'tools', CASES))
