# SPDX-License-Identifier: GPL-2.0-only
"""top, in pipes and on terminals."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import uuid

from case_broker import Peer
from case_terminal import clean
from forge import pack
from obs import HOSTILE, forged, top
from tools import Media, stop_broker
from ztlib import Failed
from ztscene import SLOW, TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)


@case
def top_of_a_dump(scene):
    """top while a dump writes: shows its line, and only the groups that it writes; nothing before it; also a device that is away."""
    scene = scene(SLOW, size=800)
    idle, = top(scene)['devices']
    expect('idle', (idle['leases'], {g['written_bytes_per_s'] for g in idle['groups']}), ([], {0.0}))
    started = scene.start_dump(qos='200', extra=['--leave-running'], stop_after='20,stop-after=1300')
    scene.until_writing()
    away = f'emu:{scene.dir}/away'
    scene.device.json('create', away, '--zones', '16', '--zone-size', '4M')
    (scene.dir / 'away').rename(scene.dir / 'elsewhere')
    scene.go_on()
    seen = {d['path']: d for d in top(scene)['devices']}
    expect('devices', {p: (d['up'], d['error'] is None) for p, d in seen.items()}, {scene.device.spec: (True, True), away: (False, False)})
    device = seen[scene.device.spec]
    lease, = device['leases']
    expect('the dump', (lease['kind'], lease['container'], lease['qos_mibps'], len(lease['groups'])), ('dump', 'errors', 200, 2))
    expect('asked', device['asked_bytes_per_s'], 200 << 20)
    rates = {g['group']: g['written_bytes_per_s'] for g in device['groups']}
    busy = {g for g, r in rates.items() if r > 0}
    if not busy or not busy <= set(lease['groups']):
        raise Failed(f'a dump on groups {lease["groups"]} writes: {rates}')
    for group in device['groups']:
        expect(f'dumps on group {group["group"]}', group['leases']['dump'], int(group['group'] in lease['groups']))
    scene.at_barrier()      # the second one, so that the dump does not end before the next look
    lines = run_ctl(scene, 0, 'top', '--interval', '1', '--once', scene.device.spec).splitlines()
    rows = [l.split() for l in lines]
    expect('the row', [(r[0], r[-len(lease['groups']) - 1]) for r in rows if r and r[0] == 'dump'], [('dump', 'errors')])
    expect('groups shown', {int(r[0]) for r in rows if r and r[0].isdigit() and len(r) == 10}, set(lease['groups']))
    scene.go_on()
    outcome = scene.end_of(started)
    expect('exit of the dump', outcome.code, 0)
    after = {d['path']: d for d in top(scene)['devices']}[scene.device.spec]
    expect('afterwards', (after['leases'], after['counters']['dumps'], after['checkpoints']), ([], 1, 1))


def on_terminal(scene, looks, rows, cols, *args):
    """The lines of some looks on a terminal of that size; any sequence but those of the screen is a failure."""
    pid, fd = pty.fork()
    if not pid:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))
        os.execve(scene.cfg.znsctl, ['znsctl', *args], scene.device.env)
    got = b''
    try:
        end = time.monotonic() + 60
        while got.count(b'\x1b[?7h') < looks and time.monotonic() < end:
            if select.select([fd], [], [], 0.2)[0]:
                got += os.read(fd, 1 << 16)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    begin, *sent = got.decode().split('\x1b[?7l\x1b[H')
    expect('before the first look', begin, '\x1b[2J')
    if len(sent) < looks:
        raise Failed(f'{len(sent)} looks: {got[-300:]!r}')
    for look in sent[:looks]:
        body, found, _ = look.partition('\x1b[J\x1b[?7h')
        lines = body.split('\x1b[K\r\n')
        expect('the end of a look', (bool(found), lines[-1]), (True, ''))
        clean('a terminal', ''.join(lines))
        yield lines[:-1]


@case
def top_on_a_terminal(scene):
    """top on small terminals: no line is too long, no look too high; a reader's hostile name is only text."""
    scene = scene(TINY, size=1)
    ident = scene.good_dump()
    media = Media(scene)
    stop_broker(scene)
    good = media.copy_of_metadata()
    for what in ('colour', 'new line', 'right to left', 'huge'):
        evil = HOSTILE[what]
        forged(scene, media, evil)
        scene.ids()
        reader = Peer(scene)
        expect('a reader', reader.ask({6: pack([(1, uuid.UUID(ident).bytes)])})[0], 0)
        (wide,) = on_terminal(scene, 1, 40, 3000, 'top', '--interval', '1')
        expect(f'lines of a reader with {what}', sum(l.startswith('restore') for l in wide), 1)
        clean(f'top, {what}', run_ctl(scene, 0, 'top', '--interval', '1', '--once'))
        lease, = top(scene)['devices'][0]['leases']
        expect('kind', lease['kind'], 'restore')
        for rows, cols in ((8, 40), (24, 80)) if what == 'huge' else ():
            for lines in on_terminal(scene, 2, rows, cols, 'top', '--interval', '1'):
                expect(f'too much for {rows} x {cols}', [l for l in lines if len(l) > cols] or lines[rows - 1:], [])
        reader.close()
        stop_broker(scene)
        media.put_back(good)
    done = subprocess.run(f'{scene.cfg.znsctl} top --interval 1 | head -n 1', shell=True, env=scene.device.env, capture_output=True,
                          text=True, timeout=scene.cfg.timeout, check=False)
    expect('a reader that left', (done.stdout.split(',')[0], done.stderr), ('1 device', ''))
