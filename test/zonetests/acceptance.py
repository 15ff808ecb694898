# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py: znsctl selftest, on a sound drive, on one with checkpoints, and on drives that do not do what they say."""
import json
import subprocess
import time

from ztlib import TEST_BIN, Failed
from ztmedia import Media
from ztscene import DIES, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)

DRIVE = [*DIES, '--zones', '64', '--zone-size', '8M', '--zone-capacity', '6M', '--max-open', '10', '--max-active', '14', '--map', 'permuted:3',
         '--timing', 'on', '--no-format']


def drive(scene):
    spec = f'emu:{scene.dir}/drive'
    scene.device.json('create', spec, *DRIVE)
    return spec


def lying(scene, spec, lie, *words):
    """Exit code, and {check: result}, of a selftest of a drive that lies: by the build that can."""
    env = {**scene.device.env, 'ZNS_EMU_LIES': lie, 'ZNS_LIBEXEC': str(TEST_BIN)}
    done = subprocess.run([str(TEST_BIN / 'znsctl'), 'selftest', spec, *(words or ('--destroy', '--force')), '--json'], env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scene.cfg.timeout, check=False)
    if str(scene.dir) in done.stdout:
        raise Failed(f'the report names the path: {done.stdout}')
    return done.returncode, {c['check']: c['result'] for c in json.loads(done.stdout)['checks']}


@case
def accept_sound(scene):
    """selftest --destroy of a sound drive: all is run, nothing fails, and the report does not name the path."""
    scene = scene(size=1)
    spec = drive(scene)
    said = json.loads(run_ctl(scene, 0, 'selftest', spec, '--destroy', '--json'))
    expect('verdicts', (said['failed'], said['doubt'], said['destroy'], said['backend']), (0, 0, True, 'emu'))
    got = {c['check']: c['result'] for c in said['checks']}
    for check in ('sizes', 'zones', 'limits', 'rates', 'flush', 'format', 'probe', 'map', 'conformance, limit: too many active zones',
                  *(f'dump and restore, {kind}' for kind in ('encrypted', 'plain', 'chain', 'live'))):
        expect(check, got.get(check), 'ok')
    expect('not run', sorted(c for c, r in got.items() if r == 'not run'), ['conformance, two nodes of one device', 'reading'])
    if not 80 <= said['zone_write_mibps'] <= 120:
        raise Failed(f'a zone of 100 MiB/s is written at {said["zone_write_mibps"]}')
    if str(scene.dir) in json.dumps(said):
        raise Failed('the report names the path')
    expect('groups', len(json.loads(run_ctl(scene, 0, 'groups', spec, '--json'))['groups']), 8)


@case
def accept_keeps(scene):
    """Without --destroy a selftest keeps what is there; with it, checkpoints and other people's data are refused."""
    scene = scene(size=1)
    scene.dump()
    kept = scene.device.checkpoints()
    run_ctl(scene, 0, 'selftest', scene.device.spec)
    expect('checkpoints', scene.device.checkpoints(), kept)
    said = run_ctl(scene, 1, 'selftest', scene.device.spec, '--destroy')
    if '--force destroys it' not in said:
        raise Failed(f'a drive with a checkpoint: {said}')
    expect('checkpoints', scene.device.checkpoints(), kept)
    scene.restore()
    for words, code, says in ((['/dev/null'], 1, 'not a zoned device'), ([], 2, 'one device'), (['/dev/null', '--force'], 2, '--destroy')):
        said = run_ctl(scene, code, 'selftest', *words)
        if says not in said:
            raise Failed(f'selftest {words}: {said}')


@case
def accept_unreadable(scene):
    """A store that cannot be read may hold anything: without --force nothing is destroyed, and what needs a store is not run."""
    scene = scene(size=1)
    scene.dump()
    scene.end_broker()
    media = Media(scene)
    before = media.copy_of_metadata()
    for zone in range(3):
        for offset in range(4096, 1 << 20, 4096):       # the superblock is the first block
            if any(media.read(zone, offset, 4096)):
                media.flip(zone, offset + 99)
    torn = media.copy_of_metadata()
    said = run_ctl(scene, 1, 'selftest', scene.device.spec, '--destroy')
    if 'cannot be read; --force destroys it' not in said:
        raise Failed(f'--destroy of a store that cannot be read: {said}')
    done = scene.device.ctl('selftest', scene.device.spec, '--json')
    said = json.loads(done.stdout)
    got = {c['check']: c['result'] for c in said['checks']}
    expect('without a store', (done.returncode, got.get('store'), got.get('map, dumps and restores'), said['failed']), (1, 'FAILED', 'not run', 1))
    expect('as it was', media.copy_of_metadata(), torn)
    media.put_back(before)
    scene.restore()


@case
def accept_defects(scene):
    """A flush that does nothing is doubted, limits that do not hold and a map that is wrong are found."""
    scene = scene(size=1)
    spec = drive(scene)
    code, said = lying(scene, spec, 'flush')
    expect('a flush that lies: what failed', [c for c, r in said.items() if r == 'FAILED'], [])
    expect('a flush that lies', (code, said['flush']), (0, 'doubt'))
    code, said = lying(scene, spec, 'open')
    expect('limits that do not hold', (code, said['conformance, limit: too many active zones']), (1, 'FAILED'))
    run_ctl(scene, 0, 'format', spec, '--map', 'i % 16', '--force')
    said = run_ctl(scene, 1, 'selftest', spec)
    expect('a wrong map', [line.split()[:2] for line in said.splitlines() if line.startswith('FAILED')], [['FAILED', 'map:']])


@case
def accept_hang(scene):
    """A drive that does not answer: the report ends all the same, whoever it was that waited. A limit that is no time is refused."""
    scene = scene(size=1)
    spec = drive(scene)
    code, said = lying(scene, spec, 'hang', '--destroy', '--force', '--limit', '3')
    expect('in a case of its own', (code, said.get('time'), said.get('zones'), 'probe' in said), (1, 'FAILED', 'ok', False))
    run_ctl(scene, 0, 'format', spec, '--map', 'i % 8', '--force')
    code, said = lying(scene, spec, 'hang', '--limit', '3')
    expect('in a program that it called', (code, said.get('time'), said.get('conformance')), (1, 'FAILED', 'not run'))
    time.sleep(0.5)
    left = subprocess.run(['pgrep', '-fa', f'probe {spec}'], capture_output=True, text=True, check=False).stdout
    expect('what still waits', left, '')
    for wrong in ('0', '-1', 'soon', ''):
        run_ctl(scene, 2, 'selftest', spec, '--limit', wrong)
