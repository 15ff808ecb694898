# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py: znsctl with wrong arguments, with an output that cannot be written, and with files that were damaged."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from ztlib import Failed, wait_until
from ztscene import TINY, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)


def shell(scene, line, cwd=None):
    """Runs a line of shell with znsctl in PATH; returns a CompletedProcess."""
    env = dict(scene.device.env, PATH=f'{Path(scene.cfg.znsctl).parent}:{os.environ["PATH"]}')
    return subprocess.run(['bash', '-o', 'pipefail', '-c', line], env=env, cwd=cwd or scene.dir, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=scene.cfg.timeout)


def one_line(what, said, *words):
    if said.count('\n') != 1 or [w for w in words if w not in said]:
        raise Failed(f'{what} says: {said[:300]}')


@case
def arguments(scene):
    """An empty argument is not taken for a missing one, and an error about a name that is too long still shows its beginning."""
    scene = scene(TINY, size=1)
    before = scene.good_dump()
    for args in (['gc', ''], ['compact', ''], ['fsck', ''], ['status', '--dev', ''], ['ls', '--container', ''],
                 ['rm', '--container', ''], ['rm', '--pattern='], ['rm', ''], ['rm', before, ''], ['verify', ''], ['release', ''],
                 ['reset', '', '--all-garbage'], ['retain', '', '--off'], ['docker', 'checkpoint', '']):
        one_line(f'znsctl {args}', run_ctl(scene, 2, *args), 'empty')
    one_line('two devices', run_ctl(scene, 2, 'key', 'show', scene.device.spec, scene.device.spec), 'one argument too many')
    expect('no schedule', run_ctl(scene, 0, 'docker', 'unschedule', 'nobody'), 'container nobody has no schedule\n')
    expect('checkpoints', scene.ids(), [before])
    long = 'x' * 10000
    one_line('a long target', run_ctl(scene, 1, 'export', before, long), 'File name too long')
    one_line('a long directory', run_ctl(scene, 1, 'import', long), 'File name too long')
    for args in (['rm', long], ['verify', long], ['unpin', long]):
        one_line(f'znsctl {args[0]}', run_ctl(scene, 1, *args), 'no checkpoint')


COMMANDS = ('ls', 'status', 'zones', 'groups', 'fsck', 'gc --dry-run', 'compact --dry-run', 'retain', 'status --all', 'verify --all',
            'show {id}', 'reset --all-garbage --dry-run', 'rm {id} --dry-run')


@case
def output(scene):
    """A failed write to standard output is an error; a reader that closes early is not; all JSON output is valid."""
    scene = scene(TINY, size=1)
    ident = scene.good_dump()
    for command in (*COMMANDS, 'ls --json', 'show {id} --json', 'metrics', '--help', 'rm --help'):
        command = 'znsctl ' + command.format(id=ident)
        done = shell(scene, f'{command} > /dev/full')
        expect(f'exit of {command} on a full disk', done.returncode, 1)
        one_line(command, done.stderr, 'standard output')
        # No file that znsctl opens may become descriptor 1 or 2 if those were closed: output would go into it.
        done = shell(scene, f'{command} >&-')
        expect(f'exit of {command} without standard output', done.returncode, 1)
        one_line(command, done.stderr, 'standard output')
        done = shell(scene, f'{command} | true')
        expect(f'what {command} says to a reader that left', done.stderr, '')
    done = shell(scene, 'znsctl fsck <&- >&- 2>&-')
    expect('exit of fsck without descriptors', done.returncode, 1)
    scene.end_broker()
    done = shell(scene, f'ZNSD_IDLE_S=1 znsd {scene.device.info["uuid"]} --foreground <&- >&- 2>&-')
    expect('exit of znsd without descriptors', done.returncode, 0)
    run_ctl(scene, 0, 'verify', '--all')

    for command in COMMANDS:
        json.loads(run_ctl(scene, 0, *command.format(id=ident).split(), '--json'))
    series = [line.rpartition(' ')[0] for line in run_ctl(scene, 0, 'metrics').splitlines() if not line.startswith('#')]
    expect('series that metrics has twice', sorted(s for s in set(series) if series.count(s) > 1), [])
    states = {m.group(1) for s in series for m in [re.search(r'^zns_zones.*state="([a-z-]+)"', s)] if m}
    expect('states', states, set(scene.device.status()['zones_by_state']))


@case
def lost_catalogue(scene):
    """A store whose metadata zones are overwritten is not formatted without --force, and no message suggests to do so."""
    scene = scene(TINY, size=1)
    scene.device.needs_emulator('writes into the file of the emulator')
    ident = scene.good_dump()
    geometry = scene.device.status()['geometry']
    scene.end_broker()
    start = os.path.getsize(scene.device.path) - geometry['zones'] * geometry['zone_capacity']
    with open(scene.device.path, 'r+b') as dev:
        for zone in range(geometry['metadata_zones']):
            os.pwrite(dev.fileno(), os.urandom(1 << 16), start + zone * geometry['zone_capacity'])
    one_line('ls', run_ctl(scene, 1, 'ls'), 'fsck --rebuild')
    one_line('format', run_ctl(scene, 1, 'format', scene.device.spec), '--force')
    # a machine that has never seen the store cannot register it before it is rebuilt
    here, elsewhere = scene.device.env, scene.dir / 'elsewhere'
    elsewhere.mkdir()
    scene.device.env = dict(here, ZNS_CONFIG=str(elsewhere))
    one_line('register', run_ctl(scene, 1, 'register', scene.device.spec), 'fsck --rebuild')
    run_ctl(scene, 0, 'fsck', '--rebuild', scene.device.spec)
    expect('checkpoints elsewhere', scene.ids(), [ident])
    scene.end_broker()
    scene.device.env = here
    expect('checkpoints', scene.ids(), [ident])
    scene.good_restore()


@case
def interrupted_export(scene):
    """An export that gets SIGTERM leaves no file, and says so; after kill -9 the next export names the file that was left."""
    scene = scene(size=256)
    ident = scene.good_dump()
    for target in ('out', 'out.tar'):
        path, part = scene.dir / target, scene.dir / (target + '.part')
        export = subprocess.Popen([scene.cfg.znsctl, 'export', ident, str(path)], env=scene.device.env, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        if not wait_until(lambda: part.exists() or (path.is_dir() and any(p.stat().st_size for p in path.iterdir())), 10, 0.001):
            raise Failed(f'nothing of {target} within 10 s')
        export.terminate()
        said = export.communicate(timeout=scene.cfg.timeout)[1]
        expect('exit', export.returncode, 1)
        one_line('export', said, 'interrupted')
        expect('left', [p.name for p in (path, part) if p.exists()], [])
    part.touch()
    one_line('export', run_ctl(scene, 1, 'export', ident, str(path)), 'remove it')
    part.unlink()
    run_ctl(scene, 0, 'export', ident, str(path))


@case
def damaged_entry(scene):
    """For a registration file that cannot be read, the error says how to remove it, and that works."""
    scene = scene(TINY, size=1)
    entry = Path(scene.device.env['ZNS_CONFIG']) / 'devices.d' / scene.device.info['uuid']
    entry.write_bytes(b'\xff\0junk')
    said = run_ctl(scene, 1, 'ls')
    one_line('ls', said, 'znsctl unregister')
    run_ctl(scene, 0, *re.search(r'`znsctl (unregister [0-9a-f-]+)`', said).group(1).split())
    run_ctl(scene, 0, 'register', scene.device.spec)
    run_ctl(scene, 0, 'ls')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'tools', CASES))
