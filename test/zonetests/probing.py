# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py about what znsctl measures: a drive's groups and a zone's rates."""
import json
import re
import signal
import subprocess
import sys

import ztlib
from ztlib import Failed
from ztscene import DIES, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)

PROBED = [*DIES, '--zones', '48', '--zone-size', '16M', '--max-active', '0', '--map', 'permuted:5', '--timing', 'on']


def groups_are(scene, dies, channels):
    """Checks that `groups` prints the map that `create` printed; the numbers of groups may differ."""
    said = scene.device.json('groups')
    zones = [z for g in said['groups'] for z in g['zones']]
    expect('zones in groups', sorted(zones), list(range(len(dies))))
    expect('dies of each group', [len({dies[z] for z in g['zones']}) for g in said['groups']], [1] * len(set(dies)))
    pairs = {(g['channel'], dies[g['zones'][0]] % channels) for g in said['groups']}
    expect('channels as (said, true)', len(pairs), channels)
    return said


def probe_interrupted(scene, sig=signal.SIGINT):
    """Sends a signal to a probe as soon as it has saved its state; False if the probe ended before."""
    kept = scene.dir / 'device' / 'run' / (scene.device.info['uuid'] + '.probe')
    kept.unlink(missing_ok=True)
    probe = subprocess.Popen([ztlib.znsctl_of(scene.cfg, scene.device.env), 'probe'], env=scene.device.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while probe.poll() is None and not kept.exists():
            pass
        probe.send_signal(sig)
        said = probe.communicate(timeout=scene.cfg.timeout)[1].decode()
    finally:
        probe.kill()
        probe.wait()
    if probe.returncode == 0:
        return False
    if sig == signal.SIGKILL:
        return True
    expect('exit of an interrupted probe', probe.returncode, 1)
    if '--resume' not in said or said.count('\n') != 1:
        raise Failed(f'an interrupted probe says: {said}')
    return True


@case
def probe(scene):
    """probe finds dies and channels of a permuted map while the device has a checkpoint, which stays; it is refused while a dump runs."""
    scene = scene(PROBED)
    scene.device.needs_emulator('needs a device whose map is known')
    dies = scene.device.info['zone_die']

    vendor = scene.device.json('groups')
    expect('found', scene.device.json('probe')['groups'], 8)
    said = scene.device.json('groups')
    expect('numbers of groups', [(g['id'], g['zones']) for g in said['groups']], [(g['id'], g['zones']) for g in vendor['groups']])
    run_ctl(scene, 0, 'format', scene.device.spec, '--map', 'i % 8')
    said = scene.device.json('groups')
    expect('a given map', (said['source'], [g['zones'] for g in said['groups']]),
           ('vendor', [list(range(g, 48, 8)) for g in range(8)]))
    said = run_ctl(scene, 1, 'probe', '--verify', '--json')
    drift = json.loads(said[said.index('{'):said.rindex('}') + 1])    # a line of progress may come before or after it
    expect('drift of a wrong map', (drift['drift'], drift['sets_wrong'] > 0), (True, True))

    started = scene.start_dump(stop_after=4)
    scene.at_barrier()
    said = run_ctl(scene, 1, 'probe')
    print(f'     says: {said.strip()}', flush=True)
    if 'dump' not in said:
        raise Failed(f'a probe beside a dump says: {said}')
    scene.go_on()
    expect('exit of the dump', scene.end_of(started).code, 0)

    used = {z['index'] for z in scene.device.zones() if z['wp']}
    for budget, grows in ((), True), (('--budget', '1G'), False):
        plan = scene.device.json('probe', '--dry-run', *budget)
        expect('a dry run', (plan['zones_to_write'], plan['zones_to_read'], plan['budget_grows']), (48 - len(used), len(used), grows))
        expect('a limit in words', 'at first' in run_ctl(scene, 0, 'probe', '--dry-run', *budget), grows)
    scene.device.env.update(ztlib.controls(ZNS_EMU_NOISE='jitter=5,stall-every=500,stall-us=3000,seed=7'))
    found = scene.device.json('probe')
    expect('found', (found['source'], found['groups'], found['channels'], found['unknown_zones']), ('probe', 8, 4, []))
    expect('within its budget', 0 < found['bytes_written'] <= found['budget'], True)
    said = groups_are(scene, dies, 4)
    expect('rates', (97 <= said['zone_write_mibps'] <= 103, 390 <= said['zone_read_mibps'] <= 410), (True, True))
    expect('zones with data', {z['index'] for z in scene.device.zones() if z['wp']}, used)
    run_ctl(scene, 0, 'verify', '--all')
    expect('drift', scene.device.json('probe', '--verify')['drift'], False)

    for _ in range(20):
        if probe_interrupted(scene):
            break
    else:
        raise Failed('no probe could be interrupted')
    expect('zones with data', {z['index'] for z in scene.device.zones() if z['wp']}, used)
    run_ctl(scene, 0, 'probe', '--resume')
    groups_are(scene, dies, 4)
    if probe_interrupted(scene, signal.SIGKILL):
        run_ctl(scene, 0, 'probe', '--resume')
        groups_are(scene, dies, 4)
    run_ctl(scene, 1, 'probe', '--resume')
    said = run_ctl(scene, 1, 'probe', '--budget', '1M', '--json')
    if '"refused":true' not in said.replace(' ', ''):
        raise Failed(f'a budget that ends says nothing against the device: {said}')
    run_ctl(scene, 2, 'probe', '--budget', 'much')
    run_ctl(scene, 2, 'probe', '--sample', '10')
    groups_are(scene, dies, 4)
    scene.good_restore()


@case
def slow_die(scene):
    """A die three times slower than the others does not count for promises, and does not lower those of the others."""
    scene = scene([*PROBED, '--odd-dies', '1', '--odd-time', '300'], size=32)
    scene.device.needs_emulator('needs a device whose dies are known')
    dies = scene.device.info['zone_die']
    run_ctl(scene, 0, 'probe')
    said = scene.device.json('groups')
    written = {z['index'] for z in scene.device.zones() if z['wp']}
    expect('dies of each group', sorted((sorted({dies[z] for z in g['zones']}) for g in said['groups'])), [[d] for d in range(8)])
    # zones with data can only be read, and reads of a slow die do not show which die it is
    expect('unknown zones with data', (set(said['unknown_zones']) <= written, len(said['unknown_zones']) <= 2), (True, True))
    slow = next(g['id'] for g in said['groups'] if dies[g['zones'][0]] == 0)
    rates = {g['id']: g['write_mibps'] for g in said['groups']}
    rate = said['promise_mibps']
    expect('rates', (said['promise_groups'], 97 <= rate <= 103, min(v for g, v in rates.items() if g != slow) >= rate,
                     30 <= rates[slow] <= 35, said['zone_write_mibps'] == rates[slow]), (7, True, True, True, True))
    expect('drift', scene.device.json('probe', '--verify')['drift'], False)
    for admission in ('share', 'reject'):
        scene.failed_dump(rf'at most {7 * rate} MiB/s \(7 groups x {rate} MiB/s\)', qos=str(7 * rate + 1), extra=['--zns-admission', admission])
    scene.good_dump(qos=str(7 * rate), extra=['--zns-admission', 'reject'])
    granted = scene.device.checkpoints()[-1]['groups']
    expect('groups of the dump (several, the slow one)', (len(granted) > 1, slow in granted), (True, False))
    scene.good_restore()


@case.soak('noise in real time: which of its checks finds it first is chance, test_probe_noise has model time')
def probe_disturbed(scene):
    """If load of the host disturbs all measurements, probe says so and the profile is unchanged; no data are left in a zone."""
    scene = scene(PROBED)
    scene.device.needs_emulator('needs a device that can be disturbed')
    before = scene.device.json('groups')
    for noise in ('host-every-us=1000,host-us=1000,gc-every-us=2000,gc-us=1500', 'jitter=60,stall-every=20,stall-us=3000,host-every-us=2000,host-us=1500'):
        scene.device.env.update(ztlib.controls(ZNS_EMU_NOISE=noise + ',seed=3'))
        said = run_ctl(scene, 1, 'probe')
        if 'nothing is stored' not in said:
            raise Failed(f'a disturbed probe says: {said}')
        print(f'     says: {said.strip()}', flush=True)
        expect('groups', scene.device.json('groups'), before)
        expect('zones with data', [z['index'] for z in scene.device.zones() if z['wp'] and z['owner'] != '(metadata)'], [])
    run_ctl(scene, 1, 'probe', '--resume')      # a doubtful result is not stored
    run_ctl(scene, 2, 'probe', '--verify', '--force')


@case
def probe_without_timing(scene):
    """A device on which nothing can be measured keeps its earlier profile."""
    scene = scene()
    scene.device.needs_emulator('needs a device without a timing model')
    before = scene.device.json('groups')
    if 'timing' not in run_ctl(scene, 1, 'probe'):
        raise Failed('a probe without a timing model does not say so')
    expect('groups', scene.device.json('groups'), before)


@case
def format_measures(scene):
    """format measures one empty zone if no rate is given; the zone is empty afterwards."""
    scene = scene([*DIES, '--die-read-bw', '200', '--zones', '32', '--zone-size', '16M', '--timing', 'on'])
    scene.device.needs_emulator('needs a device whose rates are known')
    said = run_ctl(scene, 0, 'format', scene.device.spec, '--zone-write-bw', 'measure')
    rates = re.search(r'measured: (\d+) MiB/s written, (\d+) MiB/s read', said)
    if not rates:
        raise Failed(f'format says: {said}')
    write, read = map(int, rates.groups())
    expect('rates near those of the die', (95 <= write <= 105, 185 <= read <= 205), (True, True))
    groups = scene.device.json('groups')
    expect('rates in the profile', (groups['zone_write_mibps'], groups['zone_read_mibps']), (write, read))
    expect('zones with data', [z['index'] for z in scene.device.zones() if z['wp'] and z['owner'] != '(metadata)'], [])
    run_ctl(scene, 2, 'format', scene.device.spec, '--zone-write-bw', 'fast')
    scene.good_dump()


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'tools', CASES))
