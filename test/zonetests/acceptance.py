# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py: znsctl selftest on a sound drive, on a drive with checkpoints, and on drives that do not do what they say."""
import json
import os
import re
import subprocess
import time

from ztlib import TEST_BIN, Failed
from ztmedia import Media
from ztscene import DIES, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)

DRIVE = [*DIES, '--zones', '64', '--zone-size', '8M', '--zone-capacity', '6M', '--max-open', '10', '--max-active', '14', '--no-format']
MANY = 160          # number of zones; each is tried
# For each way in which a drive can lie: the fault, and the checks that must find it. On an honest drive they find
# nothing.
LIES = {'open': ['limit: too many active zones'], 'low': ['limit: too many open zones', 'limit: too many active zones'],
        'capacity': ['capacity: zones that differ'], 'pointer': ['each zone: written and reset'], 'append': ['three processes append to one zone']}
# Other load disturbs nearly all measurements.
NOISE = 'host-every-us=1000,host-us=1000,gc-every-us=2000,gc-us=1500,seed=3'


def drive(scene, *options, name='drive'):
    spec = f'emu:{scene.dir}/{name}'
    scene.device.json('create', spec, *DRIVE, *(options or ('--map', 'permuted:3', '--timing', 'on')))
    return spec


def lying(scene, spec, lie, *words, **more):
    """Runs selftest of the test build on a drive that lies, or is disturbed. Returns (exit code, {check: result})."""
    env = {**scene.device.env, 'ZNS_EMU_LIES': lie, 'ZNS_LIBEXEC': str(TEST_BIN), **more}
    done = subprocess.run([str(TEST_BIN / 'znsctl'), 'selftest', spec, *(words or ('--destroy', '--force')), '--json'], env=env,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scene.cfg.timeout, check=False)
    if str(scene.dir) in done.stdout:
        raise Failed(f'the report names the path: {done.stdout}')
    return done.returncode, {c['check']: c['result'] for c in json.loads(done.stdout)['checks']}


@case
def accept_sound(scene):
    """selftest --destroy of a sound drive runs all checks, none fails, and the report does not name the path."""
    scene = scene(size=1)
    spec = drive(scene)
    said = json.loads(run_ctl(scene, 0, 'selftest', spec, '--destroy', '--json'))
    expect('verdicts', (said['failed'], said['doubt'], said['destroy'], said['backend']), (0, 0, True, 'emu'))
    expect('where', [said[k] for k in ('kernel', 'machine', 'model', 'firmware', 'serial')], [os.uname().release, os.uname().machine, '', '', None])
    got = {c['check']: c['result'] for c in said['checks']}
    for check in ('sizes', 'zones', 'limits', 'rates', 'flush', 'format', 'probe', 'map',
                  *(f'conformance, {check}' for checks in LIES.values() for check in checks),
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
    """Without --destroy a selftest keeps the data of the device; with it, it refuses a device that holds checkpoints or other data."""
    scene = scene(size=1)
    scene.dump()
    kept = scene.device.checkpoints()
    said = run_ctl(scene, 0, 'selftest', scene.device.spec, '--serial').splitlines()
    if not re.fullmatch(rf'znsctl \S+, Linux {re.escape(os.uname().release)}, {os.uname().machine}', said[-2]):
        raise Failed(f'where it was run: {said[-2]}')       # an emulated device has neither a model nor a serial number
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


def failed(text):
    """Returns {check: its text} for the failed checks in a selftest's output."""
    return dict(line.split(None, 1)[1].split(': ', 1) for line in text.splitlines() if line.startswith('FAILED'))


@case.soak('how long a flush takes is measured beside other work')
def accept_flush(scene):
    """A drive whose flush does nothing is called doubtful."""
    scene = scene(size=1)
    _, said = lying(scene, drive(scene), 'flush')
    expect('a flush that lies', said['flush'], 'doubt')


@case
def accept_defects(scene):
    """selftest finds wrong limits, a zone of another size or with a wrong write pointer, and lost appends."""
    scene = scene(size=1)
    quick = drive(scene, '--timing', 'off', name='quick')
    for lie, checks in LIES.items():
        code, said = lying(scene, quick, lie)
        expect(f'what finds the lie "{lie}"', (code, [c for c in checks if said.get(f'conformance, {c}') == 'FAILED']), (1, checks))


def held(scene, spec, what, groups, says=None):
    """Runs selftest on a drive with @groups as its stored map: the map must be right, or found wrong in this way."""
    file = scene.dir / 'map'
    file.write_text(' '.join(map(str, groups)))
    run_ctl(scene, 0, 'format', spec, '--map', str(file), '--force')
    said = failed(run_ctl(scene, 1 if says else 0, 'selftest', spec))
    expect(f'{what}: what failed', list(said), ['map'] if says else [])
    if says and not re.search(says, said['map']):
        raise Failed(f'{what}: {said["map"]}')


@case
def accept_maps(scene):
    """A stored map that is wrong is found: all of it; one die taken for two groups; two dies taken for one. A right map passes."""
    scene = scene(size=1)
    spec = drive(scene, '--map', 'interleaved', '--timing', 'on')
    right = [zone % 8 for zone in range(64)]
    held(scene, spec, 'right', right)
    held(scene, spec, 'all of it', [zone % 16 for zone in range(64)], 'pairs of groups are on one die')
    held(scene, spec, 'two groups on one die', [8 if zone % 16 == 2 else g for zone, g in enumerate(right)], ', 1 pairs of groups are on one die')
    held(scene, spec, 'one group on two dies', [0 if g == 7 else g for g in right], r'^[1-9]\d* of \d+ zones tried are not')


@case.soak('on a busy machine more zones than one seem to be elsewhere')
def accept_one_of_many(scene):
    """A single zone of many that lies on another die than the map says is found, and named."""
    scene = scene(size=1)
    spec = drive(scene, '--map', 'interleaved', '--timing', 'on', '--zones', str(MANY), '--sparse', name='many')
    right = [zone % 8 for zone in range(MANY)]
    held(scene, spec, 'right, many zones', right)
    held(scene, spec, 'one zone of many', [*right[:101], 2, *right[102:]], r'^1 of \d+ zones tried are not .* \(zone 101\), 0 pairs of groups')


@case.soak('what a probe finds under noise is a matter of luck')
def accept_disturbed(scene):
    """If other load prevents a measurement, that is no fault of the drive: a doubt, and exit code 0."""
    scene = scene(size=1)
    spec = drive(scene)
    run_ctl(scene, 0, 'format', spec)
    code, said = lying(scene, spec, '', '--limit', '10m', ZNS_EMU_NOISE=NOISE)
    expect('a map that cannot be tried', (code, said['map'], [c for c, r in said.items() if r == 'FAILED']), (0, 'doubt', []))
    code, said = lying(scene, spec, '', ZNS_EMU_NOISE=NOISE)
    expect('a probe that refuses', said['probe'], 'doubt')


@case
def accept_hang(scene):
    """A drive that does not answer: the report ends all the same, whichever check had to wait. A limit that is no time is refused."""
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
