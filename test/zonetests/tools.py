#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
tools: znsctl's commands on real checkpoints: verify, export, import, retention, gc, rm, fsck. Also what all commands
have in common (conventions.py), wrong words (misuse.py), `memory` (memorycmd.py), `docker` (dockercmd.py), commands
that messages suggest (remedies.py), probe (probing.py), and selftest (acceptance.py).

  tools.py list | run NAME... | run -a
"""
import contextlib
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import acceptance
import conventions
import dockercmd
import memorycmd
import misuse
import probing
import remedies
import ztlib
from ztlib import Failed, wait_until
from ztmedia import Media
from ztscene import TINY, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)


# ---- help ----------------------------------------------------------------------------------------------

def footer_of(media, manifest):
    """Offset of the footer's block behind a frame at (zone, offset)."""
    zone, offset = manifest
    length, = struct.unpack_from('<I', media.read(zone, offset, 48), 12)
    return offset + (48 + length + 4095) // 4096 * 4096


def manifest_of(scene, media, ident):
    """(zone, offset) of the checkpoint's frame of type 8, which is behind its last unit."""
    wanted = bytes.fromhex(ident.replace('-', ''))
    shown = scene.device.json('show', ident)
    for zone in shown['zones']:
        for offset in range(0, media.capacity, 4096):
            head = media.read(zone, offset, 4096)
            if head[:10] == b'ZNSCRIU1\x08\0' and wanted in head:
                return zone, offset
    raise Failed(f'no manifest of {ident} in its zones')


# ---- verify --------------------------------------------------------------------------------------------

def verdict(scene, code, *args):
    done = scene.device.ctl('verify', '--json', *args)
    expect(f'exit of verify {" ".join(args)} ({done.stderr.strip()})', done.returncode, code)
    return json.loads(done.stdout)


def known_damaged(scene, ids):
    """Checks that what verify found last is remembered, also by the next broker."""
    os.kill(scene.device.status()['broker_pid'], signal.SIGKILL)
    expect('damaged in ls', [c['id'] for c in scene.device.json('ls')['checkpoints'] if c['damaged']], ids)
    expect('damaged in status', scene.device.json('status')['damaged'], len(ids))
    expect('status says it', 'DAMAGED' in scene.device.ctl('status').stdout, bool(ids))


@case
def verify(scene):
    """verify finds a flipped bit in a unit, in the manifest or in the footer, says where it is, and reports nothing else."""
    scene = scene()
    first = scene.good_dump(extra=['--leave-running'])
    second = scene.good_dump(images=scene.images.with_name('images-2').mkdir() or scene.images.with_name('images-2'))
    media = Media(scene)
    good = verdict(scene, 0, '--all')
    expect('damaged', (good['damaged'], len(good['checkpoints'])), (0, 2))
    shown = scene.device.json('show', second)
    expect('bytes read', good['checkpoints'][1]['bytes'], sum(i['size'] for i in shown['images']))
    expect('units', good['checkpoints'][1]['units'], sum(-(-i['size'] // i['unit']) for i in shown['images']))
    run_ctl(scene, 0, 'verify', first[:8])
    run_ctl(scene, 0, 'verify', str(scene.images))
    run_ctl(scene, 0, 'verify', '--container', 'errors')

    image = max(shown['images'], key=lambda i: i['size'])
    extent = image['segments'][0]['extents'][-1]
    media.flip(extent['zone'], extent['start'] + 1234)
    bad = verdict(scene, 1, '--all')
    expect('damaged', bad['damaged'], 1)
    damage = [c for c in bad['checkpoints'] if not c['intact']][0]['damage']
    expect('damage', [(d['image'], d['zone'], d['offset'], d['units']) for d in damage],
           [(image['name'], extent['zone'], extent['start'], 1)])
    run_ctl(scene, 0, 'verify', first)
    known_damaged(scene, [second])
    line = scene.device.ctl('verify', second).stdout
    if f'zone {extent["zone"]}, offset {extent["start"]}' not in line or line.count('\n') != 1:
        raise Failed(f'verify says: {line}')
    media.flip(extent['zone'], extent['start'] + 1234)
    verdict(scene, 0, second)
    known_damaged(scene, [])

    zone, offset = manifest_of(scene, media, second)
    for at, what in ((offset + 60, 'manifest'), (footer_of(media, (zone, offset)) + 50, 'footer')):
        media.flip(zone, at)
        bad = verdict(scene, 1, second)
        if not any(what in d['error'] and d['zone'] == zone for d in bad['checkpoints'][0]['damage']):
            raise Failed(f'flipped {what}: {bad["checkpoints"][0]["damage"]}')
        media.flip(zone, at)
    verdict(scene, 0, '--all')
    run_ctl(scene, 1, 'verify', 'nosuch')
    run_ctl(scene, 2, 'verify')


# ---- export --------------------------------------------------------------------------------------------

def digests(directory):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}


@case
def export(scene):
    """export to a directory, a file and a pipe gives the same images; our criu restores them; files that exist are not overwritten."""
    scene = scene()
    ident = scene.good_dump()
    out, archive = scene.dir / 'out', scene.dir / 'out.tar'
    said = json.loads(run_ctl(scene, 0, 'export', str(scene.images), str(out), '--json'))
    images = {i['name']: i['size'] for i in scene.device.json('show', ident)['images']}
    expect('sizes', {p.name: p.stat().st_size for p in out.iterdir()}, images)
    expect('images', (said['id'], said['images'], said['bytes']), (ident, len(images), sum(images.values())))
    run_ctl(scene, 0, 'export', ident[:8], str(archive))
    piped = subprocess.run([scene.cfg.znsctl, 'export', ident, '-'], env=scene.device.env, capture_output=True, check=True)
    expect('the piped archive', hashlib.sha256(piped.stdout).digest(), hashlib.sha256(archive.read_bytes()).digest())
    with tarfile.open(archive) as tar:
        tar.extractall(scene.dir / 'untarred')
    expect('the archive', digests(scene.dir / 'untarred'), digests(out))
    for target in (out, archive):
        before = digests(out), archive.read_bytes()
        run_ctl(scene, 1, 'export', ident, str(target))
        expect('what was there', (digests(out), archive.read_bytes()) == before, True)
    run_ctl(scene, 1, 'export', 'nosuch', str(scene.dir / 'never'))
    expect('a target of a failed export', (scene.dir / 'never').exists(), False)

    media = Media(scene)
    biggest = max(scene.device.json('show', ident)['images'], key=lambda i: i['size'])
    extent = biggest['segments'][0]['extents'][0]
    media.flip(extent['zone'], extent['start'])
    for target in ('bad', 'bad.tar', 'bad.tgz'):
        if 'checksum' not in run_ctl(scene, 1, 'export', ident, str(scene.dir / target)):
            raise Failed('export of a damaged checkpoint does not say so')
        expect('damaged export', [p.name for p in scene.dir.iterdir() if p.name.startswith('bad')], [])
    piped = subprocess.run([scene.cfg.znsctl, 'export', ident, '-'], env=scene.device.env, capture_output=True)
    expect('a damaged export into a pipe', (piped.returncode, piped.stdout[-1024:] == bytes(1024)), (1, False))
    media.flip(extent['zone'], extent['start'])

    run_ctl(scene, 0, 'rm', ident)
    scene.good_restore(images=out)


# ---- import --------------------------------------------------------------------------------------------

def plain_dump(scene, name):
    """The scene's task, dumped without zones; it stays alive."""
    images = scene.dir / name
    images.mkdir()
    log = scene.log()
    done = ztlib.run_criu(scene.cfg, ['dump', '-t', scene.task.pid, '-D', images, '-W', log.parent, '-o', log.name, '-v4',
                                      '--leave-running'], log)
    expect(f'plain dump ({ztlib.log_errors(log)})', done.returncode, 0)
    return images


@case
def import_plain(scene):
    """import of a plain directory: the bytes are the same, it restores by handle and by id; an incomplete dump is refused."""
    scene = scene()
    plain, handle = plain_dump(scene, 'plain'), scene.dir / 'handle'
    said = json.loads(run_ctl(scene, 0, 'import', str(plain), '--handle', str(handle), '--qos', '200', '--json'))
    other = json.loads(run_ctl(scene, 0, 'import', str(plain), '--container', 'other', '--json'))
    images = {p.name: p.stat().st_size for p in plain.iterdir() if p.suffix == '.img'}
    expect('import', (said['container'], said['images'], said['bytes']), ('plain', len(images), sum(images.values())))
    shown = scene.device.json('show', said['id'])
    expect('origin', shown['origin']['kind'], 'import')
    expect('qos', shown['qos_requested_mibps'], 200)
    expect('containers', sorted(c['container'] for c in scene.device.checkpoints()), ['other', 'plain'])
    expect('handle', scene.device.json('show', str(handle))['handle']['differ'], 0)
    run_ctl(scene, 0, 'verify', '--all')
    run_ctl(scene, 0, 'export', other['id'], str(scene.dir / 'again'))
    expect('bytes', digests(scene.dir / 'again'), {n: d for n, d in digests(plain).items() if n in images})

    refused = (('handle', handle), ('incremental', plain), ('inventory', scene.dir / 'none'), ('no CRIU image', plain))
    (scene.dir / 'none').mkdir()
    free = scene.device.free_zones()
    for n, (what, directory) in enumerate(refused):
        if n == 1:
            os.symlink('.', plain / 'parent')
        if n == 3:
            os.unlink(plain / 'parent')
            good = (plain / 'inventory.img').read_bytes()
            (plain / 'inventory.img').write_bytes(b'x' + good[1:])
        if what not in run_ctl(scene, 1, 'import', str(directory), '--handle', str(scene.dir / 'never')):
            raise Failed(f'import of a directory with {what} is refused with another reason')
    (plain / 'inventory.img').write_bytes(good)
    expect('left behind', (scene.dir / 'never').exists(), False)
    expect('checkpoints', len(scene.device.checkpoints()), 2)
    expect('free zones', scene.device.free_zones(), free)

    scene.task.end()
    scene.good_restore(images=handle)
    ztlib.kill(scene.task.pid)
    wait_until(lambda: not ztlib.alive(scene.task.pid), 5)
    empty = scene.dir / 'empty'
    empty.mkdir()
    scene.good_restore(images=empty, extra=['--zns-checkpoint', other['id']])


@case
def import_full(scene):
    """import into a device without room leaves no data behind."""
    scene = scene(TINY, size=96)
    plain = plain_dump(scene, 'plain')
    if not re.search('full|space', run_ctl(scene, 1, 'import', str(plain))):
        raise Failed('import into a full device does not say so')
    expect('checkpoints', scene.device.checkpoints(), [])
    if not wait_until(lambda: scene.device.free_zones() == scene.free_before, 10, 0.1):
        raise Failed('zones of a failed import are not free again')


# ---- retention, pins, gc -------------------------------------------------------------------------------

def many_dumps(scene, n, container='errors', env=None):
    """Makes @n dumps of the scene's task, which stays alive; returns their ids."""
    ids = []
    for _ in range(n):
        images = scene.dir / f'many-{scene.calls}'
        images.mkdir()
        before = set(scene.ids())
        log = scene.log()
        args = ztlib.dump_args(scene.cfg, scene.task, images, log, container, ['--leave-running', '--zns-live=no'])
        done = ztlib.run_criu(scene.cfg, args, log, dict(scene.device.env, **(env or {})))
        expect(f'dump ({ztlib.log_errors(log)})', done.returncode, 0)
        wait_until(lambda: not scene.device.status()['leases'], 5)
        ids += sorted(set(scene.ids()) - before)
    return ids


def settled(scene, want):
    """Waits until the checkpoints are these: rules are applied just after the last dump's connection has ended."""
    wait_until(lambda: scene.ids() == sorted(want), 5, 0.05)
    expect('checkpoints', scene.ids(), sorted(want))


@case
def retention(scene):
    """keep-N is applied when a dump's connection ends; pinned ones stay and do not count; ttl and gc; --off."""
    scene = scene(size=1)
    ids = many_dumps(scene, 3)
    settled(scene, ids)
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '2')
    run_ctl(scene, 0, 'pin', ids[0][:8])
    settled(scene, ids)
    dry = json.loads(run_ctl(scene, 0, 'gc', '--dry-run', '--json'))
    expect('gc --dry-run', [(c['id'], c['action']) for c in dry['checkpoints']], [])
    ids += many_dumps(scene, 1)
    settled(scene, [ids[0], ids[2], ids[3]])
    if 'retention' not in run_ctl(scene, 1, 'show', ids[1]):
        raise Failed('the tombstone does not say who removed it')
    if 'pinned' not in run_ctl(scene, 1, 'rm', ids[0], ids[3]):
        raise Failed('rm removes a pinned checkpoint')
    said = json.loads(run_ctl(scene, 0, 'rm', '--all', '--dry-run', '--json'))
    expect('rm --all', ({r['id'] for r in said['removed']}, said['pinned']), ({ids[2], ids[3]}, 1))
    expect('pinned', [c['id'] for c in scene.device.checkpoints() if c['pinned']], [ids[0]])

    # After a broker's restart the result is the same. Then the rule by age is added, under which every checkpoint is
    # too old.
    scene.device.close()
    rules = json.loads(run_ctl(scene, 0, 'retain', '--json'))['retentions']
    expect('rules', [(r['container'], r['keep'], r['ttl_s']) for r in rules], [('errors', 2, None)])
    said = run_ctl(scene, 0, 'retain', 'errors', '--ttl', '1')
    # the rule by number stays, and the answer has both
    rules = json.loads(run_ctl(scene, 0, 'retain', '--json'))['retentions']
    expect('rules', [(r['container'], r['keep'], r['ttl_s']) for r in rules], [('errors', 2, 1)])
    if 'keep 2, ttl 1s;' not in said:
        raise Failed(f'the answer does not say what holds: {said}')
    time.sleep(1.1)
    dry = json.loads(run_ctl(scene, 0, 'gc', '--dry-run', '--json'))
    expect('gc --dry-run', [(c['id'], c['action'], c['done']) for c in dry['checkpoints']], [(ids[2], 'remove', False)])
    settled(scene, [ids[0], ids[2], ids[3]])
    run_ctl(scene, 0, 'gc')
    settled(scene, [ids[0], ids[3]])    # the newest stays whatever its age
    run_ctl(scene, 0, 'unpin', ids[0])
    run_ctl(scene, 0, 'gc')
    settled(scene, [ids[3]])
    run_ctl(scene, 0, 'retain', 'errors', '--off')
    expect('rules', json.loads(run_ctl(scene, 0, 'retain', '--json'))['retentions'], [])
    for wrong in (['retain', 'errors'], ['retain', 'x', '--keep', '0'], ['retain', 'x', '--off', '--keep', '1'],
                  ['retain', 'x', '--ttl', '5y'], ['pin']):
        run_ctl(scene, 2, *wrong)
    run_ctl(scene, 1, 'pin', 'nosuch')


@case
def gc_origins(scene):
    """gc removes checkpoints that a runtime has dropped, after the grace period, and no others."""
    scene = scene(size=1)
    root, etc = scene.dir / 'docker', Path(scene.device.env['ZNS_CONFIG'])
    ident = 'c0ffee00' * 8
    (root / 'containers' / ident / 'checkpoints').mkdir(parents=True)
    docker = {'ZNS_ORIGIN_KIND': 'docker', 'ZNS_ORIGIN_ID': ident, 'ZNS_ORIGIN_ROOT': str(root), 'ZNS_ORIGIN_CHECKPOINT': 'cp1'}
    lost, = many_dumps(scene, 1, 'of-docker', docker)
    kept, = many_dumps(scene, 1, 'of-docker', docker)
    shutil.copytree(scene.dir / f'many-{scene.calls - 1}', root / 'containers' / ident / 'checkpoints' / 'cp1')
    by_hand, = many_dumps(scene, 1, 'by-hand')
    podman, = many_dumps(scene, 1, 'of-podman', {'ZNS_ORIGIN_KIND': 'podman'})
    odd, = many_dumps(scene, 1, 'of-else', {'ZNS_ORIGIN_KIND': 'somebody'})
    all_of_them = [lost, kept, by_hand, podman, odd]

    def gc(*args):
        said = json.loads(run_ctl(scene, 0, 'gc', '--json', *args))
        return {c['id']: c['action'] for c in said['checkpoints']}

    expect('dry run', gc('--dry-run', '--grace', '0'), {lost: 'remove', kept: 'keep', podman: 'keep'})
    settled(scene, all_of_them)
    expect('first', gc('--grace', '1'), {lost: 'missed', kept: 'keep', podman: 'keep'})
    expect('too early', gc('--grace', '1h'), {lost: 'keep', kept: 'keep', podman: 'keep'})
    settled(scene, all_of_them)
    scene.device.close()    # when a checkpoint was first missed is remembered on the device
    # The directory is back for a moment: the grace period starts again.
    shutil.copytree(scene.dir / 'many-0', root / 'containers' / ident / 'checkpoints' / 'cp0')
    expect('back', gc('--grace', '1'), {lost: 'needed', kept: 'keep', podman: 'keep'})
    shutil.rmtree(root / 'containers' / ident / 'checkpoints' / 'cp0')
    expect('missed again', gc('--grace', '1'), {lost: 'missed', kept: 'keep', podman: 'keep'})
    time.sleep(1.1)
    os.rename(root, scene.dir / 'unmounted')
    expect('nothing known', gc('--grace', '1'), {lost: 'keep', kept: 'keep', podman: 'keep'})
    os.rename(scene.dir / 'unmounted', root)
    run_ctl(scene, 0, 'pin', lost)
    expect('pinned', gc('--grace', '1'), {kept: 'keep', podman: 'keep'})
    run_ctl(scene, 0, 'unpin', lost)
    expect('removed', gc('--grace', '1'), {lost: 'remove', kept: 'keep', podman: 'keep'})
    settled(scene, [kept, by_hand, podman, odd])

    program = etc / 'gc.d' / 'podman'
    program.parent.mkdir()
    for code, action in ((0, 'keep'), (2, 'keep'), (1, 'remove')):
        program.write_text(f'#!/bin/sh\n[ "$1" = {podman} ] && [ "$2" = of-podman ] && exit {code}\nexit 3\n')
        program.chmod(0o755)
        expect(f'exit {code}', gc('--grace', '0', '--dry-run')[podman], action)
    program.chmod(0o777)
    expect('writable by all', gc('--grace', '0')[podman], 'keep')
    program.chmod(0o755)
    gc('--grace', '0')
    settled(scene, [kept, by_hand, odd])
    shutil.rmtree(root / 'containers' / ident)
    gc('--grace', '0')
    settled(scene, [by_hand, odd])


@case
def gc_unit(scene):
    """The command of the timer's service sweeps and compacts every registered device; a device that is missing does not stop it."""
    unit = (ztlib.REPO / 'systemd' / 'zns-gc.service').read_text()
    line, = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", unit, re.M)
    scene = scene(size=1)
    etc = scene.device.env['ZNS_CONFIG']
    line = line.replace('$$', '$').replace('@BINDIR@', str(Path(scene.cfg.znsctl).parent)).replace('/etc/zns-criu', etc)

    def service(code):
        done = subprocess.run(['/bin/sh', '-c', line], env=scene.device.env, capture_output=True, text=True, timeout=120)
        expect(f'exit code ({done.stderr.strip()[:300]})', done.returncode, code)
        return done.stdout + done.stderr

    away = scene.dir / 'away.emu'
    scene.device.json('create', f'emu:{away}', '--zones', '16', '--zone-size', '4M')
    scene.device.env['ZNS_DEV'] = scene.device.spec
    ids = many_dumps(scene, 4)
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '3')
    settled(scene, ids)
    expect('both are looked at', service(0).count('checkpoint'), 4)     # one line of gc and one of compact for each
    settled(scene, ids[1:])
    away.rename(scene.dir / 'elsewhere.emu')
    ids = ids[1:] + many_dumps(scene, 1, 'other')
    run_ctl(scene, 0, 'retain', 'errors', '--keep', '1')
    if 'away.emu' not in service(1):
        raise Failed('the one that is away is not named')
    settled(scene, ids[2:])
    analyze = shutil.which('systemd-analyze')
    for source in (ztlib.REPO / 'systemd').iterdir():
        text = source.read_text()
        for where in ('@BINDIR@', '@LIBEXEC@'):
            text = text.replace(where, str(Path(scene.cfg.znsctl).parent))
        (scene.dir / source.name).write_text(text)
    for name, unit in (('zns-gc', 'zns-gc.timer'), ('zns-metrics', 'zns-metrics.timer'),
                       ('znsd@', 'znsd@6ba7b810.service'), ('zns-suspend', 'zns-suspend.service')) if analyze else ():
        done = subprocess.run([analyze, 'verify', '--man=no', f'{scene.dir}/{unit}'], capture_output=True, text=True,
                              timeout=60)
        said = [l for l in done.stderr.splitlines() if f'{name}.' in l]
        expect(f'systemd-analyze verify {name}', said, [])
    (scene.dir / 'elsewhere.emu').rename(away)


@case
def verify_beside_rm(scene):
    """A checkpoint that is removed while verify --all runs is not reported as damaged."""
    scene = scene(size=1)
    lib = scene.dir / 'atconnect.so'
    subprocess.run(['gcc', '-shared', '-fPIC', '-o', lib, Path(__file__).with_name('preload') / 'atconnect.c', '-ldl'], check=True)
    for nth in (2, 3):          # the first connection is for the list, each later one for one checkpoint
        ids = many_dumps(scene, 2)
        rm = f'{scene.cfg.znsctl} rm {ids[nth - 2]} >/dev/null'
        done = subprocess.run([scene.cfg.znsctl, 'verify', '--all', '--json'], capture_output=True, text=True,
                              env=dict(scene.device.env, LD_PRELOAD=str(lib), AT_CONNECT=f'{nth} {rm}'))
        expect(f'exit, message ({nth})', (done.returncode, done.stderr), (0, ''))
        expect('verified', [c['id'] for c in json.loads(done.stdout)['checkpoints']], [ids[3 - nth]])
        run_ctl(scene, 0, 'rm', ids[3 - nth])


@case
def package_missing(scene):
    """A command whose package is not installed: one line with the name of the missing program, or with where docker's is."""
    scene = scene(TINY, size=1)
    alone = scene.dir / 'znsctl'
    shutil.copy(scene.cfg.znsctl, alone)
    for command, option, wanted in (('memory', 'status', 'znsctl-memory is not installed'), ('export', 'status', 'znsctl-transfer is not installed'),
                                    ('compact', '--defrag', 'znsctl-defrag is not installed'),
                                    ('docker', 'status', 'znsctl-docker is not installed: .* is zns-criu-docker')):
        done = subprocess.run([alone, command, option], env=scene.device.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 1 or done.stderr.count('\n') != 1 or not re.search(wanted, done.stderr):
            raise Failed(f'{command}: exit {done.returncode}: {done.stderr}')


@case
def package_removed(scene):
    """The runtime's package cannot be removed while an engine has a container of it; otherwise it can, and can always be upgraded."""
    scene = scene(size=1)
    script = ztlib.REPO / 'debian' / 'zns-criu-docker.prerm'
    task = scene.dir / 'run/containerd/io.containerd.runtime.v2.task/moby' / ('ab' * 32)
    task.mkdir(parents=True)

    def prerm(word):
        return subprocess.run(['unshare', '-m', 'sh', '-c', f'mount --bind {scene.dir}/run /run && exec sh {script} {word}'],
                              capture_output=True, text=True)
    other, ours = scene.dir / 'runsc.ABC', scene.dir / 'zns.ABC'        # Docker's scripts for runtimes with arguments
    other.write_text('#!/bin/sh\n/usr/bin/runsc --debug $@\n')
    ours.write_text('#!/bin/sh\n/usr/libexec/zns-criu/zns-runc --zns-docker-root /var/lib/docker $@\n')
    for runtime, word, code in (('runc', 'remove', 0), (str(other), 'remove', 0), ('/usr/libexec/zns-criu/zns-runc', 'upgrade', 0),
                                ('/usr/libexec/zns-criu/zns-runc', 'remove', 1), (str(ours), 'remove', 1)):
        (task / 'options.json').write_text(json.dumps({'binary_name': runtime}))
        done = prerm(word)
        expect(f'{word} with {runtime}: exit', done.returncode, code)
    if 'abababababab' not in done.stderr or done.stderr.count('\n') != 1:
        raise Failed(f'it does not say which: {done.stderr}')


@case
def package_upgraded(scene):
    """The package cannot be upgraded while a pager runs whose context the new version could not take over; otherwise it can."""
    scene = scene(size=1)
    libexec = scene.dir / 'libexec'
    libexec.mkdir()
    pager = libexec / 'zns-mem'
    shutil.copy(shutil.which('sleep'), pager)
    script = scene.dir / 'preinst'
    text = (ztlib.REPO / 'debian' / 'zns-criu.preinst').read_text()
    expect('places of the version', text.count('@CONTEXT_VERSION@'), 1)
    script.write_text(text.replace('@CONTEXT_VERSION@', '12'))

    def preinst(running, installed):
        run = subprocess.Popen([pager, '600']) if running else None
        try:
            pager.unlink()
            pager.write_text(f'#!/bin/sh\necho "zns-mem: ZNS-CRIU 1.0"\n{installed}\n')
            pager.chmod(0o755)
            return subprocess.run(['sh', script, 'upgrade', '1.0'], env=dict(os.environ, ZNS_LIBEXEC=str(libexec)), capture_output=True, text=True)
        finally:
            if run:
                run.kill()
                run.wait()
            pager.unlink()
            shutil.copy(shutil.which('sleep'), pager)
    for running, installed, code in ((False, '', 0), (True, 'echo "Memory contexts: 12"', 0), (True, 'echo "Memory contexts: 11"', 1), (True, '', 1)):
        done = preinst(running, installed)
        expect(f'a pager runs: {running}, version by: {installed}: exit', done.returncode, code)
    if 'znsctl memory status' not in done.stderr or done.stderr.count('\n') != 1:
        raise Failed(f'it does not say what lists them: {done.stderr}')


def on_terminal(scene, answer, *args):
    """Runs znsctl with a terminal on all three descriptors, on which @answer is typed; returns its exit code and its output."""
    pid, fd = pty.fork()
    if not pid:
        os.execve(scene.cfg.znsctl, [str(scene.cfg.znsctl), *args], scene.device.env)
    os.write(fd, answer)
    shown = b''
    with contextlib.suppress(OSError):      # a closed terminal is reported as EIO
        while part := os.read(fd, 4096):
            shown += part
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


# an id like those that container engines make
ENGINE_ID = ''.join(f'{n * 2654435761 % 2**32:08x}' for n in range(1, 9))


@case
def lines_fit(scene):
    """On a terminal of 80 columns no line of a listing is longer; elsewhere lines are not cut. A group's number does not look like a count."""
    scene = scene(size=1)
    ident, other = many_dumps(scene, 1, 'a-container-of-usual-length') + many_dumps(scene, 1, ENGINE_ID)
    run_ctl(scene, 0, 'pin', other)
    run_ctl(scene, 0, 'retain', ENGINE_ID, '--keep', '3', '--ttl', '7d')
    run_ctl(scene, 0, 'reserve', ENGINE_ID[::-1], '--groups', '1')
    for command in ('ls', 'ls -v', 'status', 'zones', 'verify --all', 'groups', 'retain', 'gc --dry-run', f'show {other}', f'show {ENGINE_ID}',
                    'compact --dry-run', f'rm --dry-run {ident}', 'fsck', 'top --once --interval 1', 'memory status', 'key show',
                    'docker stats', 'compact --help', 'key --help', '--help'):
        code, shown = on_terminal(scene, b'', *command.split())
        expect(f'{command}: exit', code, 0)
        lines = [line.rstrip('\r').split('\r')[-1].replace('\x1b[K', '') for line in shown.split('\n')]
        expect(f'{command}: longer lines', [line for line in lines if len(line) > 80], [])
    expect('all of status', re.sub(r'\s+', ' ', on_terminal(scene, b'', 'status')[1]), re.sub(r'\s+', ' ', run_ctl(scene, 0, 'status')))
    shown = run_ctl(scene, 0, 'show', ident)
    if not re.search(r'^group +\d+ \(not shared\)|^groups +\d+(, \d+)+ \(not shared\)', shown, re.M):
        raise Failed(f'groups of show: {shown}')


@case
def docker_undone(scene):
    """docker uninstall undoes docker install completely, whether or not there was a daemon.json before."""
    scene = scene(size=1)
    for name, before in (('absent', None), ('empty', {}), ('other', {'debug': True}), ('experimental', {'experimental': True})):
        at = scene.dir / name / 'daemon.json'
        at.parent.mkdir()
        if before is not None:
            at.write_text(json.dumps(before))
        run_ctl(scene, 0, 'docker', 'install', '--config', str(at), '--data-root', str(scene.dir))
        made = json.loads(at.read_text())
        expect(f'{name}: installed', (list(made['runtimes']), made['experimental']), (['zns'], True))
        run_ctl(scene, 0, 'docker', 'uninstall', '--config', str(at))
        expect(f'{name}: uninstalled', json.loads(at.read_text()), before or {})


@case
def rm_asks(scene):
    """rm --all asks on a terminal, and removes nothing unless the answer is y; in a script or with --yes it does not ask."""
    scene = scene(size=1)
    ids = many_dumps(scene, 2)
    for answer in (b'\n', b'n\n'):
        code, shown = on_terminal(scene, answer, 'rm', '--all')
        expect(f'exit after {answer}: {shown}', (code, '[y/N]' in shown), (1, True))
        expect('left', set(scene.ids()), set(ids))
    expect('one by its id is not asked', on_terminal(scene, b'', 'rm', ids[0])[0], 0)
    expect('exit after y', on_terminal(scene, b'y\n', 'rm', '--all')[0], 0)
    settled(scene, [])
    many_dumps(scene, 1)
    expect('exit with --yes', on_terminal(scene, b'', 'rm', '--all', '--yes')[0], 0)
    settled(scene, [])
    many_dumps(scene, 1)
    run_ctl(scene, 0, 'rm', '--all')
    settled(scene, [])


@case
def completion(scene):
    """bash completes commands, words, options, checkpoints and containers, also for criu-zns; the programs print the lists."""
    scene = scene(size=1)
    ident, = many_dumps(scene, 1, 'web')
    script = ztlib.REPO / 'completion' / 'znsctl.bash'
    env = dict(scene.device.env, PATH=f'{scene.dir}/bin:{os.environ["PATH"]}')
    (scene.dir / 'bin').mkdir()
    for name, program in (('znsctl', scene.cfg.znsctl), ('criu-zns', scene.cfg.criu)):
        (scene.dir / 'bin' / name).symlink_to(Path(program).resolve())

    def offered(*words):
        function = {'znsctl': '_znsctl', 'criu-zns': '_criu_zns'}[words[0]]
        text = f'. {script}; COMP_WORDS=("$@"); COMP_CWORD={len(words) - 1}; {function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return subprocess.run(['bash', '-c', text, 'bash', *words], env=env, cwd=scene.dir / 'bin', check=True, capture_output=True, text=True).stdout.split('\n')
    for words, wanted in ((('znsctl', 'st'), ['status']), (('znsctl', 'key', 'ro'), ['rotate']),
                          (('znsctl', 'rm', ''), [ident, 'web']), (('znsctl', 'rm', ident[:4]), [ident]), (('znsctl', 'gc', '--gr'), ['--grace']),
                          (('znsctl', 'ls', '--container', ''), ['web']), (('criu-zns', 'res'), ['restore']), (('criu-zns', 'dump', '--zns-li'), ['--zns-live']),
                          (('criu-zns', 'restore', '--zns-checkpoint', ''), [ident])):
        got = offered(*words)
        expect(f'lacking after {words}', [w for w in wanted if w not in got], [])
    expect('after memory', sorted(filter(None, offered('znsctl', 'memory', ''))), ['attach', 'detach', 'hibernate', 'limit', 'status', 'wake'])
    commands = re.findall('^  ([a-z]+) ', run_ctl(scene, 0, '--help'), re.M)
    expect('commands not offered', set(commands) - set(offered('znsctl', '')), set())
    for command in commands:
        usage = run_ctl(scene, 0, command, '--help').split('\n')[0]
        if re.search(r'[ \[]ID', usage):
            expect(f'{command} offers the checkpoint', ident in offered('znsctl', command, ''), True)
    device = next((Path(env['ZNS_CONFIG']) / 'devices.d').iterdir()).name
    expect('copy offers devices for both words', [device in offered('znsctl', 'copy', *words) for words in (('',), (device, ''))], [True, True])
    expect('rm without a dash offers no --all', [w for w in offered('znsctl', 'rm', '') if w.startswith('-')], [])


@case
def rm_and_status(scene):
    """rm by pattern, and of a checkpoint that is removed already; status of all devices like df."""
    scene = scene(size=1)
    web = many_dumps(scene, 2, 'web-1') + many_dumps(scene, 1, 'web-2')
    other = many_dumps(scene, 1, 'db')
    said = json.loads(run_ctl(scene, 0, 'rm', '--pattern', 'web-*', '--dry-run', '--json'))
    expect('dry run', {r['id'] for r in said['removed']}, set(web))
    settled(scene, web + other)
    run_ctl(scene, 0, 'rm', '--pattern', 'web-?')
    settled(scene, other)
    run_ctl(scene, 0, 'rm', '--pattern', 'web-?')
    for _ in range(2):
        run_ctl(scene, 0, 'rm', other[0])
    settled(scene, [])
    wait_until(lambda: not scene.device.status()['bytes_wasted'], 5)
    scene.device.json('create', f'emu:{scene.dir}/second', '--zones', '16', '--zone-size', '4M')
    for command in ('status', 'ls'):
        if 'znsctl status --all shows' not in run_ctl(scene, 1, command):
            raise Failed(f'{command} with two devices does not say what shows both')
    devices = json.loads(run_ctl(scene, 0, 'status', '--all', '--json'))['devices']
    expect('sizes', sorted(d['bytes'] for d in devices), [13 * 4 << 20, 29 * 16 << 20])
    expect('df', [d['bytes_live'] + d['bytes_wasted'] + d['bytes_free'] - d['bytes'] for d in devices], [0, 0])
    lines = run_ctl(scene, 0, 'status', '--all').splitlines()
    expect('columns', lines[0].split(), ['size', 'used', 'reclaimable', 'free', 'use', 'count', 'device'])
    expect('lines', (len(lines), [line.split()[-1] for line in lines[1:]] == [d['path'] for d in devices]), (3, True))
    scene.device.json('unregister', f'emu:{scene.dir}/second')


# ---- fsck ----------------------------------------------------------------------------------------------

MAGIC = b'ZNSCRIU1'
MARK = 33       # frame type of a pin


def stop_broker(scene):
    pid = scene.device.status()['broker_pid']
    ztlib.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: not ztlib.alive(pid), 10):
        raise Failed('the broker does not leave')


def frames(media, zone):
    """[(offset, type, generation, seq)] of a metadata zone."""
    found = []
    for offset in range(0, media.capacity, 4096):
        head = media.read(zone, offset, 48)
        if head[:8] == MAGIC:
            kind, = struct.unpack_from('<H', head, 8)
            found.append((offset, kind, *struct.unpack_from('<QQ', head, 16)))
    return found


def log_zone(media):
    """Returns (zone, frames) of the newest generation of the log."""
    logs = [(frames(media, z), z) for z in range(3)]
    best = max((f[-1][2], z, f) for f, z in logs if f)
    return best[1], best[2]


def catalogue(scene):
    """What ls prints, without values that depend on the broker's last start."""
    return [{k: c[k] for k in ('id', 'container', 'created', 'bytes', 'nr_images', 'zones', 'groups', 'qos_requested_mibps')}
            for c in scene.device.checkpoints()]


def several(scene):
    """Makes some checkpoints that share zones, and removes the oldest and one in the middle. Returns the ids, and the catalogue."""
    ids = many_dumps(scene, 3, 'a') + many_dumps(scene, 2, 'b')
    scene.device.remove(ids[0], ids[3])
    return [ids[1], ids[2], ids[4]], catalogue(scene)


def restores(scene, ident):
    empty = scene.dir / 'empty'
    empty.mkdir(exist_ok=True)
    scene.task.end()
    scene.good_restore(images=empty, extra=['--zns-checkpoint', ident])


@case
def fsck_healthy(scene):
    """fsck of a good device finds no problem; a forced rebuild gives the same catalogue."""
    scene = scene(size=8)
    ids, before = several(scene)
    said = json.loads(run_ctl(scene, 0, 'fsck', '--json'))
    expect('fsck', (said['readable'], said['checkpoints'], said['problems'], said['rebuilt']), (True, 3, [], False))
    run_ctl(scene, 1, 'fsck', '--rebuild')
    run_ctl(scene, 0, 'fsck', '--repair')
    expect('catalogue', catalogue(scene), before)
    said = json.loads(run_ctl(scene, 0, 'fsck', '--rebuild', '--force', '--json'))
    expect('rebuilt', (said['rebuilt'], said['checkpoints']), (True, 3))
    expect('catalogue', catalogue(scene), before)
    media = Media(scene)
    stop_broker(scene)
    zone, offset = manifest_of(scene, media, ids[1])
    stop_broker(scene)
    media.flip(zone, offset + 200)
    said = scene.device.ctl('fsck', '--json')
    expect('exit', said.returncode, 1)
    expect('problem', {(p['id'], p['zone']) for p in json.loads(said.stdout)['problems']}, {(ids[1], zone)})
    media.flip(zone, offset + 200)
    run_ctl(scene, 0, 'fsck')
    expect('catalogue', catalogue(scene), before)
    restores(scene, ids[0])


@case
def fsck_repair(scene):
    """A flipped bit in any record of the log: a repair loses nothing, and brings back nothing that was removed."""
    scene = scene(size=8)
    ids, before = several(scene)
    scene.device.json('pin', ids[0])
    media = Media(scene)
    stop_broker(scene)
    zone, log = log_zone(media)
    broken = 0
    for offset, kind, _, _ in [log[-1], log[0], *log[1:-1]]:
        media.flip(zone, offset + 48)
        done = scene.device.ctl('fsck', '--json')
        said = json.loads(done.stdout)
        expect(f'fsck with record {kind} at {offset} damaged', (done.returncode, said['readable'], said['rebuilt']), (1, False, False))
        if 'znsctl fsck' not in scene.device.ctl('ls').stderr:
            raise Failed('ls of a damaged catalogue does not send to fsck')
        copy = media.copy_of_metadata()
        done = scene.device.ctl('fsck', '--repair', '--json')
        expect(f'repair with record {kind} damaged: {done.stdout} {done.stderr}', done.returncode, 0)
        expect(f'pinned after record {kind}', json.loads(done.stdout)['pinned'], [] if kind == MARK else ids[:1])
        expect(f'catalogue after record {kind} at {offset}', catalogue(scene), before)
        stop_broker(scene)
        media.put_back(copy)
        if kind == MARK:
            if 'may be among them' not in run_ctl(scene, 0, 'fsck', '--repair'):
                raise Failed('fsck --repair does not say that a pin may be lost')
            media.put_back(copy)
        media.flip(zone, offset + 48)
        broken += 1
    expect('records damaged', broken >= 10, True)
    run_ctl(scene, 0, 'fsck')
    run_ctl(scene, 0, 'verify', '--all')
    restores(scene, ids[2])


@case
def fsck_rebuild(scene):
    """The metadata zones are erased: the catalogue is rebuilt from the data zones, without removed checkpoints."""
    scene = scene(size=8)
    ids, before = several(scene)
    media = Media(scene)
    stop_broker(scene)
    for zone in range(3):
        media.write(zone, 0, bytes(1 << 20))
    run_ctl(scene, 1, 'ls')
    if '--rebuild' not in run_ctl(scene, 1, 'fsck', '--repair'):
        raise Failed('fsck --repair without a log does not point to --rebuild')
    dry = scene.device.ctl('fsck', '--rebuild', '--dry-run', '--json')
    expect('dry run', {f['id'] for f in json.loads(dry.stdout)['found'] if f['taken']}, set(ids))
    run_ctl(scene, 1, 'ls')
    said = json.loads(run_ctl(scene, 0, 'fsck', '--rebuild', '--json'))
    expect('rebuilt', (said['rebuilt'], said['checkpoints'], said['problems']), (True, 3, []))
    expect('catalogue', catalogue(scene), before)
    run_ctl(scene, 0, 'verify', '--all')
    again = many_dumps(scene, 1, 'a')
    restores(scene, ids[1])
    settled(scene, ids + again)
    run_ctl(scene, 0, 'rm', '--all')
    wait_until(lambda: scene.device.free_zones() == scene.free_before, 10, 0.1)
    expect('free zones', scene.device.free_zones(), scene.free_before)


CASES.update(acceptance.CASES)
CASES.update(conventions.CASES)
CASES.update(dockercmd.CASES)
CASES.update(memorycmd.CASES)
CASES.update(misuse.CASES)
CASES.update(probing.CASES)
CASES.update(remedies.CASES)

if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'tools', CASES))
