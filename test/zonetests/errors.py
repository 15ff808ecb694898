#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
errors: what must be true when a dump or restore fails.

A failed dump: one clear line that says zns, an exit code that is not 0, the task running on with its memory as it was,
no new checkpoint, no handle, no helper left, and the zones free again. A failed restore: a clear line and no process.

  errors.py list | run NAME... | run -a | run -a --format DEV
"""
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ztlib
from ztfuse import SlowFile
from ztlib import Failed, HANDLE, Skipped, alive, wait_until
from ztscene import FOUR_DIES, SIX_OPEN, TINY, case_of, expect, run_ctl, suite_main

UUID = r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'
CASES = {}
case = case_of(CASES)


# ---- dumps that fail while they run --------------------------------------------------------------------

@case
def device_full(scene):
    """The device fills up in the middle of a dump; a smaller task fits afterwards."""
    scene = scene(TINY, size=96)
    scene.device.needs_emulator('needs a tiny device')
    scene.failed_dump('is full: 12 zones, 0 live checkpoints')
    scene.works(size=8)


@case
def write_error(scene):
    """From the middle of the dump on every write fails: more zones fail than a dump can replace."""
    scene = scene(size=64)
    scene.failed_dump('17 zones failed during this dump', fault='write-after=40x*')
    scene.works()


@case
def first_write_error(scene):
    """Every write fails, from the very first one on."""
    scene = scene()
    scene.failed_dump('17 zones failed during this dump', fault='write-after=0x*')
    scene.works()


@case
def no_controls(scene):
    """The installed programs ignore the test controls in the environment; those of the test build do not."""
    scene = scene(size=8)
    scene.device.needs_emulator('needs an emulator that could be made to fail')
    words = dict(ZNS_EMU_FAULT='write-after=0x*,read-after=0x*', ZNS_EMU_DATA='none', ZNS_EMU_CLOCK='none', ZNS_EMU_FLUSH='none',
                 ZNS_EMU_NOISE='none', ZNS_NVME_IOCTL='1', ZNSD_KEEP_ENV='SECRET', SECRET='hush')
    plain, scene.device.env = scene.device.env, dict(scene.device.env, **words)
    scene.end_broker()
    scene.good_dump()
    if 'SECRET' in Path(f'/proc/{scene.broker_pid()}/environ').read_text():
        raise Failed('the broker keeps what $ZNSD_KEEP_ENV names')
    done = scene.device.ctl('verify', '--all')
    if done.returncode:
        raise Failed(f'verify: {done.stderr.strip()}')
    scene.good_restore()
    scene.remember()

    scene.device.env = ztlib.controlled(plain, **words)
    scene.end_broker()
    if 'ZNS_EMU_FLUSH' not in scene.device.ctl('verify', '--all').stderr:
        raise Failed('znsctl of the test build does not read ZNS_EMU_FLUSH')
    for word in ('ZNS_EMU_CLOCK', 'ZNS_EMU_FLUSH', 'ZNS_EMU_NOISE', 'ZNS_EMU_DATA'):
        del scene.device.env[word]
    scene.device.status()
    if 'SECRET' not in Path(f'/proc/{scene.broker_pid()}/environ').read_text():
        raise Failed('the broker of the test build does not keep what $ZNSD_KEEP_ENV names')
    images = scene.dir / 'images-controlled'
    images.mkdir()
    scene.failed_dump('17 zones failed during this dump', images=images)
    scene.end_broker()
    scene.device.env = plain
    scene.works()


@case
def other_host(scene):
    """Another host reserves the drive in the middle of a dump: no zone is called bad for it."""
    scene = scene(size=64)
    scene.failed_dump('another host has reserved', fault='conflict-after=20x*')
    if any(z['suspect'] for z in scene.device.zones()):
        raise Failed('a zone is taken for one that fails')
    scene.works()


# ---- zones that fail: the dump survives them -----------------------------------------------------------

def survive(scene, fault, nr=1, extra=()):
    """A dump in which zones fail, after its task has ended; the state of such a zone now, and the checkpoint."""
    before = scene.ids()
    done = scene.dump(fault=fault, extra=extra)
    if done.code:
        raise Failed(f'{fault}: the dump fails: {" | ".join(done.lines("Error")[-3:])}')
    if '--leave-running' not in extra:
        wait_until(lambda: not alive(scene.task.pid), 5)
    said = done.lines(r'(zone \d+|\d+ zones) failed and w(as|ere) replaced')
    if len(said) != 1 or 'Warn' not in said[0]:
        raise Failed(f'{fault}: {len(said)} warnings of a failed zone: {" | ".join(said)}')
    count = re.search(r'(\d+) zones failed', said[0])
    if (int(count.group(1)) if count else 1) != nr:
        raise Failed(f'{fault}: {nr} zones were to fail: {said[0]}')
    bad = [z for z in scene.device.zones() if z['suspect'] or z['state'] in ('read-only', 'offline')]
    if len(bad) != nr:
        raise Failed(f'{fault}: znsctl zones shows {len(bad)} zones that failed, not {nr}')
    status = scene.device.status()
    if sum(status['zones_by_state'][s] for s in ('read-only', 'offline')) + status['suspect_zones'] != nr:
        raise Failed(f'{fault}: znsctl status does not show {nr} zones that failed')
    new = [c for c in scene.device.checkpoints() if c['id'] not in before]
    if len(new) != 1:
        raise Failed(f'{fault}: the dump added {len(new)} checkpoints')
    done = scene.device.ctl('verify', new[0]['id'])
    if done.returncode:
        raise Failed(f'{fault}: the checkpoint is damaged: {done.stderr.strip()}')
    return bad, new[0]


def left_out(scene, bad):
    """Checks that the container's next dump restores and does not use these zones."""
    images = scene.dir / f'images-next-{scene.calls}'
    images.mkdir()
    checkpoint = scene.good_dump(images=images)
    used = [c['zones'] for c in scene.device.checkpoints() if c['id'] == checkpoint][0]
    if set(used) & {z['index'] for z in bad}:
        raise Failed(f'the next dump uses zones {used}, of which one failed before')
    scene.good_restore(images=images)
    scene.device.remove(checkpoint)


@case
def zone_write_error(scene):
    """One write fails, the first or one in the middle: the rest of its zone's data goes to another zone, and what the zone had stays."""
    scene = scene(size=64)
    for n, write in enumerate((40, 0, 100)):
        bad, checkpoint = survive(scene, f'write-after={write}')
        if bad[0]['state'] in ('read-only', 'offline'):
            raise Failed(f'zone {bad[0]["index"]} is {bad[0]["state"]}')
        scene.good_restore()
        scene.device.remove(checkpoint['id'])
        left_out(scene, bad)
        scene.store_as_before()
        scene.end_broker()          # a broker forgets failures, so the next failure is the only one again
    scene.works()


@case
def zone_read_only(scene):
    """A zone turns read-only in the middle: its data is read back, and stays there."""
    scene = scene(size=64)
    bad, checkpoint = survive(scene, 'read-only-after=60')
    scene.good_restore()
    left_out(scene, bad)
    scene.device.remove(checkpoint['id'])
    scene.free_before -= 1          # this zone is lost for good
    scene.store_as_before()
    scene.works()


@case
def zone_offline(scene):
    """A zone goes offline in the middle, with all its data: that is read again from the frozen task."""
    scene = scene(size=64)
    bad, checkpoint = survive(scene, 'offline-after=60')
    if bad[0]['state'] != 'offline':
        raise Failed(f'zone {bad[0]["index"]} is {bad[0]["state"]}: the fault did not hit')
    if bad[0]['index'] in checkpoint['zones']:
        raise Failed('the checkpoint names the zone that is offline')
    scene.good_restore()
    left_out(scene, bad)
    scene.device.remove(checkpoint['id'])
    scene.free_before -= 1
    scene.store_as_before()
    scene.works()


@case
def zones_fail(scene):
    """Several zones fail in one dump, in all ways, replacements too; the task runs on and is dumped once more."""
    scene = scene(size=128)
    bad, checkpoint = survive(scene, 'write-after=10,offline-after=45,read-only-after=70,write-after=71,offline-after=140', 5,
                              ['--leave-running'])
    scene.task.verify(signal.SIGUSR1)
    images = scene.dir / 'second'
    images.mkdir()
    second = scene.good_dump(images=images)
    scene.good_restore(images=images)
    scene.task.end()
    scene.good_restore()
    scene.device.remove(checkpoint['id'], second)
    scene.free_before -= sum(z['state'] in ('read-only', 'offline') for z in bad)
    scene.store_as_before()
    scene.works()


@case
def continued_zone_fails(scene):
    """A dump continues a zone that has an older checkpoint, and the zone turns read-only: both checkpoints restore."""
    scene = scene(size=8)
    first = scene.good_dump(extra=['--leave-running'])
    old = [c['zones'] for c in scene.device.checkpoints() if c['id'] == first][0]
    task, images = scene.task, scene.images
    scene.images = scene.dir / 'second'
    scene.images.mkdir()
    bad, second = survive(scene, 'read-only-after=0')
    if bad[0]['index'] not in old:
        raise Failed(f'zone {bad[0]["index"]} failed, the older checkpoint is on {old}: nothing was continued')
    scene.good_restore()
    task.end()
    scene.good_restore(images=images)


@case
def short_plain_images(scene):
    """Without zones: images that end early make the restore fail. Stock 4.2.1 loops for ever or restores wrong memory."""
    scene = scene()
    for program, name in (('anon', 'pages-1.img'), ('cowtree', 'pages-1.img'), ('shmanon', None), ('memfd', None)):
        scene.short_plain(program, name)


@case
def kill_criu(scene):
    """kill -9 of criu in the middle."""
    scene = scene(size=64)
    started = scene.start_dump(qos='100', stop_after=20)
    scene.until_writing()
    started[0].kill()
    started[0].wait()
    scene.go_on()
    scene.unharmed()
    scene.works()


SLOWLY = ['--zns-qos-max', '1']     # MiB/s: so slow that a dump or restore takes minutes if nothing ends it


def writes_slowly(scene, more=()):
    """A dump that has begun to write and needs minutes more."""
    started = scene.start_dump(extra=[*SLOWLY, *more], qos='1')
    if not wait_until(lambda: scene.device.free_zones() < scene.free_before, 60):
        raise Failed('nothing was written')
    return started


@case
def interrupted(scene):
    """Ctrl-C in the middle of a dump: it ends at once, with one line of ours, and its task runs on."""
    scene = scene(size=256)
    for more in ([], ['--zns-live', '--leave-running']):
        started = writes_slowly(scene, more)
        started[0].send_signal(signal.SIGINT)
        scene.end_of(started).must_fail('interrupted by a signal')
        scene.unharmed()


@case
def slow_kill(scene):
    """kill -9 of criu while its helper is in a long write: the helper ends before it has written everything."""
    scene = scene(size=256)
    started = writes_slowly(scene)
    started[0].kill()
    started[0].wait()
    if not wait_until(lambda: not scene.helpers(), 60):
        raise Failed('the helper writes on for nobody')
    scene.unharmed()


@case
def restore_interrupted(scene):
    """Ctrl-C in the middle of a restore: it ends at once, no process of the task is left, and the checkpoint stays."""
    scene = scene(size=256)
    scene.good_dump()
    log = scene.log()
    with open(str(log) + '.stderr', 'ab') as err:
        criu = subprocess.Popen([scene.cfg.criu, *ztlib.restore_args(scene.task, scene.images, log), *SLOWLY], env=scene.device.env,
                                stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    if not wait_until(lambda: alive(scene.task.pid), 60):
        raise Failed('no task is made')
    criu.send_signal(signal.SIGINT)
    scene.end_of((criu, log)).must_fail('Interrupted')
    if not wait_until(lambda: not alive(scene.task.pid), 60):
        raise Failed('a process is left of a restore that was interrupted')
    scene.no_helpers()
    scene.good_restore()


@case
def kill_task(scene):
    """kill -9 of a task with threads whenever criu waits for it, in a dump and in a restore: criu ends, and nothing is left."""
    scene = scene(size=1)
    lib = scene.dir / 'killwait.so'
    subprocess.run(['gcc', '-shared', '-fPIC', '-o', lib, Path(__file__).with_name('preload') / 'killwait.c', '-ldl'], check=True)

    def killed(nth, pid, args, log):
        env = dict(scene.device.env, LD_PRELOAD=str(lib), KILL_WAIT=f'{nth} {pid}')
        with open(f'{log}.stderr', 'ab') as err:
            criu = subprocess.Popen([scene.cfg.criu, *args], env=env, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        done = scene.end_of((criu, log))
        if not done.lines('killed before wait'):
            return False
        if done.code <= 0:
            raise Failed(f'wait {nth}: exit {done.code}')
        if pid and not wait_until(lambda: not alive(pid), 60):
            raise Failed(f'wait {nth}: the task is left')
        scene.no_helpers()
        if not wait_until(lambda: not scene.device.status().get('leases'), 60):
            raise Failed(f'wait {nth}: a lease is left')
        scene.store_as_before()
        return True

    # the kernel reports threads before their process, and the first process of a PID namespace after all others
    for flavour, program in (('h', 'threads'), ('ns', 'cowtree')):
        for nth in range(1, 16, 2):
            task, images, log = scene.new_task(program=program, flavour=flavour), scene.dir / f'images-{program}-{nth}', scene.log()
            images.mkdir()
            args = ztlib.dump_args(scene.cfg, task, images, log, 'errors', ('--zns-live=no', '--leave-running'))
            if not killed(nth, task.pid, args, log):
                raise Failed(f'a dump of {program} has no wait {nth}')
    scene.task = scene.new_task(program='threads')
    scene.good_dump()
    scene.remember()
    # for the main thread: when it is seized, when it is trapped, in its last system call; for any thread: when the
    # restorer is unmapped
    for nth in (3, 10, 29, 46):
        if not killed(nth, scene.task.pid, ztlib.restore_args(scene.task, scene.images, log := scene.log()), log):
            raise Failed(f'a restore has no wait {nth}')
    scene.task = scene.new_task(program='cowtree', flavour='ns')
    scene.good_dump()
    scene.remember()
    for nth in (3, 6):
        if not killed(nth, 0, ztlib.restore_args(scene.task, scene.images, log := scene.log()), log):
            raise Failed(f'a restore of a namespace has no wait {nth}')


@case
def kill_helper(scene):
    """The helper is killed (-9) while a dump writes: the dump fails, the task runs on."""
    scene = scene(size=64)
    started = scene.start_dump(qos='100', stop_after=20)
    scene.until_writing()
    helpers = scene.helpers()
    if not helpers:
        raise Failed('no zns-helper is there while a dump writes')
    for pid in helpers:
        ztlib.kill(pid)
    scene.end_of(started).must_fail('helper')
    scene.unharmed()
    scene.works()


@case
def kill_broker(scene):
    """kill -9 of the broker in the middle: the dump fails at once, a new broker takes over."""
    scene = scene(size=64)
    started = scene.start_dump(qos='100', stop_after=20)
    scene.until_writing()
    broker = scene.device.status()['broker_pid']
    ztlib.kill(broker)
    scene.go_on()
    # The first to notice is either the thread that shows progress, or the one that asks for a zone.
    scene.end_of(started).must_fail('znsd died during the dump|the broker .* died or closed the connection')
    scene.unharmed()
    if scene.device.status()['broker_pid'] in (0, broker):
        raise Failed('no new broker')
    scene.works(size=32)


@case
def read_only_image_dir(scene):
    """The image directory cannot be written to."""
    scene = scene()
    ms_rdonly, ms_remount, ms_bind = 1, 32, 4096
    ztlib.mount(str(scene.images), scene.images, '', ms_bind)
    ztlib.mount('none', scene.images, '', ms_bind | ms_remount | ms_rdonly)
    try:
        done = scene.dump()
        if done.code <= 0:
            raise Failed(f'criu ends with {done.code}')
        if not done.lines('read-only'):
            raise Failed('no line says that the directory is read-only')
        scene.unharmed()
    finally:
        ztlib.unmount(scene.images)
    scene.works()


def plain_chroot(scene):
    """A directory that is no mount point, with everything that the programs of this test need below it."""
    ms_bind, ms_rec = 4096, 1 << 14
    root = scene.dir / 'chroot'
    root.mkdir()
    for entry in Path('/').iterdir():
        at = root / entry.name
        if entry.is_symlink():
            at.symlink_to(os.readlink(entry))
        elif entry.is_dir():
            at.mkdir()
            ztlib.mount(entry, at, '', ms_bind | ms_rec)
    return root


@case
def plain_root(scene):
    """In a chroot whose root is no mount point, criu and the demo say so before any task is stopped."""
    scene = scene()
    root = plain_chroot(scene)
    try:
        scene.cfg.prefix = ['chroot', root]
        done = scene.dump()
        scene.cfg.prefix = []
        done.must_fail('/ is no mount point here, as in a plain chroot')
        if done.lines('Seized task') or done.lines('No parent found'):
            raise Failed('the task was stopped first')
        scene.unharmed()
        demo = subprocess.run(['chroot', root, ztlib.REPO / 'scripts' / 'demo'], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=scene.cfg.timeout)
        said = demo.stderr.strip().splitlines()
        if demo.returncode == 0 or len(said) != 1 or '/ is no mount point here' not in said[0]:
            raise Failed(f'the demo ends with {demo.returncode} and says: {" | ".join(said[-3:])}')
    finally:
        for entry in root.iterdir():
            if not entry.is_symlink():
                ztlib.unmount(entry)
    scene.works()


# ---- requests that are refused -------------------------------------------------------------------------

@case
def qos_too_large(scene):
    """More than the device can promise: refused, with the largest rate that is possible."""
    scene = scene(FOUR_DIES)
    for admission in ('share', 'wait=5', 'reject'):
        scene.failed_dump(r'\b400\b', qos='500', extra=['--zns-admission', admission])
    scene.good_dump(qos='400')
    scene.good_restore()


@case
def open_limit(scene):
    """A rate that needs more zones than the device may have open is refused, with the rate that would fit; that rate works."""
    scene = scene(SIX_OPEN, size=64)
    limit = scene.device.status()['limits']['max_open']
    if not 1 < limit <= 8:
        raise Skipped(f'the device may have {limit or "any number of"} open zones, the map has 8 groups')
    fits = limit - 1            # the catalogue has one open zone
    for admission in ('share', 'wait=5', 'reject'):
        scene.failed_dump(rf'at most {fits * 50} MiB/s \({fits} open zones x 50 MiB/s\)', qos=str(fits * 50 + 1),
                          extra=['--zns-admission', admission])
    scene.good_dump(qos=str(fits * 50))
    groups = scene.device.granted('errors')
    if len(groups) != fits:
        raise Failed(f'{len(groups)} groups were granted instead of {fits}')
    scene.good_restore()


def refused(scene, option, values, word):
    """Dumps that must be refused because of one option's value; all complaints together."""
    complaints = []
    for value in values:
        try:
            extra = {'qos': value} if option == '--zns-qos' else {'extra': [option, value]}
            scene.dump(**extra).must_fail(word)
        except Failed as e:
            complaints.append(f'{option} "{value}": {e}')
    return complaints


@case
def bad_qos(scene):
    """Strings that are not a bandwidth."""
    scene = scene()
    values = ['', '0', '-5', 'abc', '500MB', '500 MiB', '1e3', '0x10', '99999999999999999999', '500MiB/s/s']
    complaints = refused(scene, '--zns-qos', values, 'qos|bandwidth')
    if complaints:
        raise Failed('; '.join(complaints))
    scene.unharmed()


@case
def bad_values(scene):
    """Unknown words and impossible sizes for the other options."""
    scene = scene()
    complaints = refused(scene, '--zns-admission', ['maybe', 'wait=', 'wait=x', 'wait=-1', 'rejected', ''], 'admission')
    complaints += refused(scene, '--zns-alloc', ['both', 'Static ', ''], 'alloc')
    complaints += refused(scene, '--zns-stripe', ['3', '100G', 'x', '-64K', ''], 'stripe')
    if complaints:
        raise Failed('; '.join(complaints))
    scene.unharmed()


@case
def no_process(scene):
    """A PID that nobody has: one line."""
    scene = scene(size=1)
    gone = subprocess.Popen(['true'])
    gone.wait()
    done = subprocess.run([scene.cfg.criu, 'dump', '-t', str(gone.pid), '-D', scene.images, *ztlib.zns_options(scene.cfg, 'gone')],
                          env=scene.device.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 1 or done.stderr.count('\n') != 1 or f'no process {gone.pid}' not in done.stderr:
        raise Failed(f'exit {done.returncode}: {done.stderr}')
    scene.store_as_before()


@case
def auto_dedup(scene):
    """--auto-dedup punches holes in images: not with zones."""
    scene = scene()
    scene.failed_dump('auto-dedup', extra=['--auto-dedup'])
    scene.works()


@case
def stream(scene):
    """--stream has no directory: not with zones."""
    scene = scene()
    scene.failed_dump('stream', extra=['--stream'])
    scene.works()


@case
def no_device(scene):
    """No device is registered and none is given; then one is given that does not exist."""
    scene = scene()
    empty = dict(scene.device.env, ZNS_CONFIG=str(scene.dir / 'etc2'), ZNS_RUN=str(scene.dir / 'run2'))
    scene.failed_dump('device', env=empty)
    scene.failed_dump('no-such-device', extra=['--zns-dev', f'emu:{scene.dir}/no-such-device'])
    scene.works()


@case
def device_missing(scene):
    """The registered device's file is gone, at dump and at restore."""
    scene = scene()
    path, away = scene.device.path, scene.device.path.with_name('away')
    path.rename(away)
    done = scene.dump()
    away.rename(path)
    done.must_fail(re.escape(path.name))
    scene.unharmed()
    scene.good_dump()
    path.rename(away)
    try:
        scene.restore_must_fail(re.escape(path.name))
    finally:
        away.rename(path)
    scene.good_restore()


# ---- handles and checkpoints ---------------------------------------------------------------------------

def handle_of(scene):
    scene.good_dump()
    return (scene.images / HANDLE).read_bytes()


def restore_with_handle(scene, content, *patterns):
    (scene.images / HANDLE).write_bytes(content)
    scene.restore_must_fail(*patterns)


@case
def foreign_handle(scene):
    """Files that are no handles."""
    scene = scene()
    good = handle_of(scene)
    for other in (b'', b'\0' * 500, b'hello\n', bytes(range(256)) * 4, Path(ztlib.HERE / 'errors.py').read_bytes(),
                  b'\x7f' * (1 << 20)):
        restore_with_handle(scene, other, 'handle')
    (scene.images / HANDLE).write_bytes(good)
    scene.good_restore()


@case
def truncated_handle(scene):
    """A handle that is cut short, or has bytes behind its end."""
    scene = scene()
    good = handle_of(scene)
    for length in sorted({1, 8, 47, 48, 49, len(good) // 2, len(good) - 1}):
        restore_with_handle(scene, good[:length], 'handle')
    (scene.images / HANDLE).write_bytes(good)
    scene.good_restore()


@case
def flipped_handle(scene):
    """One wrong byte in the handle, at every 16th position."""
    scene = scene(size=8)
    good = handle_of(scene)
    for at in range(0, len(good), 16):
        bad = bytearray(good)
        bad[at] ^= 0x20
        try:
            restore_with_handle(scene, bytes(bad), 'handle')
        except Failed as e:
            raise Failed(f'byte {at} of {len(good)} flipped: {e}')
    (scene.images / HANDLE).write_bytes(good)
    scene.good_restore()


@case
def handle_hangs(scene):
    """a handle on a file system that does not answer: restore and show end in one line."""
    scene = scene()
    conf = Path(scene.device.env['ZNS_CONFIG']) / 'zns.conf'
    conf.write_text('deadline = 1\n')
    slow = SlowFile(scene.dir / 'slow', 0, HANDLE, 4096)
    try:
        said = run_ctl(scene, 1, 'show', str(slow.directory))
        if 'did not answer' not in said:
            raise Failed(f'show says: {said}')
        scene.restore(images=slow.directory).must_fail('did not answer')
        if not slow.reading.is_set():
            raise Failed('nobody has read the handle')
    finally:
        slow.close()
    conf.unlink()


@case
def new_on_a_parent(scene):
    """A process has shared memory that its parent checkpoint does not have: an incremental dump of it succeeds and logs no error."""
    scene = scene(size=1)
    if not ztlib.helper_tracks():
        raise Skipped('nobody tracks written pages here')
    grow, images = scene.dir / 'grow', [scene.dir / 'first', scene.dir / 'second']
    program = f'import mmap, time; m = mmap.mmap(-1, 1 << 20); m.write(b"x" * 9999); open("{grow}-ready", "w").close(); time.sleep(600)'
    loop = f"while [ ! -e {grow} ]; do sleep 0.1; done; {sys.executable} -c '{program}' & while :; do sleep 600; done"
    task = subprocess.Popen(['sh', '-c', loop], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for n, parent in enumerate(([], ['--prev-images-dir', '../first'])):
            images[n].mkdir()
            log = images[n] / 'dump.log'
            done = subprocess.run([scene.cfg.criu, 'dump', '-t', str(task.pid), '-D', images[n], '-o', log, '-v4', '--track-mem', '--leave-running', *parent,
                                   *ztlib.zns_options(scene.cfg, 'grows')], env=scene.device.env, stdin=subprocess.DEVNULL, check=False)
            if done.returncode or 'No parent image' in log.read_text():
                raise Failed(f'dump {n}: exit {done.returncode}: {log.read_text()[-300:]}')
            grow.touch()
            if not wait_until(Path(f'{grow}-ready').exists, 60):
                raise Failed('it makes no child')
    finally:
        for pid in reversed(ztlib.tree(task.pid)):
            ztlib.kill(pid)
        task.wait()
    scene.no_helpers()


@case
def unregistered_device(scene):
    """A handle of a device this machine's administrator never registered."""
    scene = scene()
    scene.good_dump()
    other = dict(scene.device.env, ZNS_CONFIG=str(scene.dir / 'etc2'), ZNS_RUN=str(scene.dir / 'run2'))
    scene.restore_must_fail('regist', UUID, env=other)
    scene.good_restore()


@case
def removed_checkpoint(scene):
    """The handle outlives its checkpoint: the error says that it was removed, when, and by which command."""
    scene = scene()
    scene.device.remove(scene.good_dump())
    scene.restore_must_fail(r'was deleted at \d{4}-\d\d-\d\dT[\d:]+Z by znsctl rm')


@case
def unknown_checkpoint(scene):
    """An id that never existed, and text that is no id."""
    scene = scene()
    scene.good_dump()
    empty = scene.dir / 'empty'
    empty.mkdir()
    never = '00000000-1111-4222-8333-444444444444'
    scene.restore_must_fail(never, images=empty, extra=['--zns-checkpoint', never])
    scene.restore_must_fail('nonsense', images=empty, extra=['--zns-checkpoint', 'nonsense'])
    scene.good_restore()


@case
def edited_copy(scene):
    """A plain copy in the directory was edited: a warning names it, the device's image is used."""
    scene = scene()
    scene.good_dump()
    copy = scene.images / 'inventory.img'
    if not copy.exists():
        raise Failed('no plain copy of inventory.img is beside the handle')
    data = bytearray(copy.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    done = scene.good_restore()
    if not [l for l in done.lines('warn') if 'inventory.img' in l]:
        raise Failed('no warning names inventory.img')


@case
def dump_twice(scene):
    """A dump into a directory that has a handle: replaced, the older checkpoint stays listed."""
    scene = scene()
    first = scene.good_dump(extra=['--leave-running'])
    handle = (scene.images / HANDLE).read_bytes()
    second = scene.good_dump()
    if (scene.images / HANDLE).read_bytes() == handle:
        raise Failed('the handle is still the old one')
    if sorted([first, second]) != scene.ids():
        raise Failed('znsctl ls does not show both checkpoints')
    scene.good_restore()
    scene.task.end()
    empty = scene.dir / 'empty'
    empty.mkdir()
    scene.good_restore(images=empty, extra=['--zns-checkpoint', first])


@case
def pid_taken(scene):
    """A restore whose PID is taken names the process that has it, and what to do."""
    scene = scene()
    scene.good_dump(extra=['--leave-running'])
    scene.restore().must_fail(f'PID {scene.task.pid} of the checkpoint is taken by bigmem: .*end that process')
    scene.task.verify(signal.SIGUSR1)


def memory_group(mib):
    """A cgroup with this limit of memory, of either version."""
    for base, limit in (('/sys/fs/cgroup/memory', 'memory.limit_in_bytes'), ('/sys/fs/cgroup', 'memory.max')):
        group = Path(base) / f'zns-errors-{os.getpid()}'
        if not (Path(base) / 'cgroup.procs').exists():
            continue
        try:
            group.mkdir()
            (group / limit).write_text(str(mib << 20))
            return group
        except OSError:
            if group.exists():
                group.rmdir()
    raise Skipped('no cgroup with a limit of memory can be made here')


@case
def memory_runs_out(scene):
    """A restore whose task the kernel kills for lack of memory says that, and what to do."""
    scene = scene(size=384)
    scene.good_dump()
    group, before = memory_group(256), scene.cfg.prefix
    try:
        scene.cfg.prefix = ['/bin/sh', '-c', f'echo $$ > {group}/cgroup.procs && exec "$@"', 'sh', *before]
        scene.restore_must_fail('Memory ran out: the kernel killed task .*limit')
        scene.cfg.prefix = before
        scene.good_restore()
    finally:
        scene.cfg.prefix = before
        wait_until(lambda: not (group / 'cgroup.procs').read_text(), 60)
        group.rmdir()


@case
def failed_dump_over_handle(scene):
    """A failed dump into a directory that has a handle: the old one still restores."""
    scene = scene()
    scene.good_dump(extra=['--leave-running'])
    handle = (scene.images / HANDLE).read_bytes()
    scene.remember()
    scene.dump(fault='write-after=3x*').must_fail('17 zones failed during this dump')
    scene.task.verify(signal.SIGUSR1)
    if not (scene.images / HANDLE).exists() or (scene.images / HANDLE).read_bytes() != handle:
        raise Failed('the old handle is gone or changed')
    scene.store_as_before()
    scene.task.end()
    scene.good_restore()


@case
def two_dumps_at_once(scene):
    """Two dumps on one device at the same time, both restored."""
    scene = scene(size=128)
    other = scene.new_task(128)
    images = scene.dir / 'images-other'
    images.mkdir()
    # a real device may not be able to open enough zones for two dumps
    limit = scene.device.status()['limits']['max_open']
    qos = str(100 * ((limit - 1) // 2)) if 1 < limit <= 10 else None
    started = [scene.start_dump(qos=qos), scene.start_dump(images=images, task=other, qos=qos)]
    for done in [scene.end_of(s) for s in started]:
        if done.code:
            raise Failed(f'one of two dumps fails: {" | ".join(done.lines("Error")[-3:])}')
    wait_until(lambda: not alive(scene.task.pid) and not alive(other.pid), 5)
    if len(scene.ids()) != 2:
        raise Failed(f'{len(scene.ids())} checkpoints are listed')
    scene.good_restore()
    scene.good_restore(images=images, task=other)


# ---- damaged data --------------------------------------------------------------------------------------

def spans_of_task(scene, kind='rw-p', pid=None):
    maps = Path(f'/proc/{pid or scene.task.pid}/maps').read_text().splitlines()
    return [[int(x, 16) for x in l.split()[0].split('-')] for l in maps if f' {kind} ' in l]


def largest(spans):
    return max(spans, key=lambda s: s[1] - s[0])


def page_of_task(scene):
    """256 bytes from the middle of the task's largest mapping, which a dump writes to the device."""
    return bytes_of_span(scene, *largest(spans_of_task(scene)))


def bytes_of_span(scene, start, end, pid=None):
    with open(f'/proc/{pid or scene.task.pid}/mem', 'rb') as mem:
        mem.seek(start + (end - start) // 2 // 4096 * 4096 + 1024)
        return mem.read(256)


def flip_on_device(scene, content):
    """Changes one byte of data in the emulator's file."""
    with open(scene.device.path, 'r+b') as dev:
        with mmap.mmap(dev.fileno(), 0, access=mmap.ACCESS_READ) as view:
            at = view.find(content)
        if at < 0:
            raise Failed("the task's memory is not on the device")
        os.pwrite(dev.fileno(), bytes([content[100] ^ 1]), at + 100)
        os.fsync(dev.fileno())
        return at + 100, content[100]


@case
def damaged_data(scene):
    """A byte of the task's memory changes on the device."""
    scene = scene()
    content = page_of_task(scene)
    scene.good_dump()
    at, byte = flip_on_device(scene, content)
    scene.restore_must_fail('checksum')
    with open(scene.device.path, 'r+b') as dev:
        os.pwrite(dev.fileno(), bytes([byte]), at)
        os.fsync(dev.fileno())
    scene.good_restore()


@case
def damaged_shared(scene):
    """A byte of memory that tasks share changes on the device: shared memory is restored in another way."""
    scene = scene()
    scene.task.end()
    scene.task = scene.new_task(program='shmanon')
    content = bytes_of_span(scene, *largest(spans_of_task(scene, 'rw-s')))
    scene.good_dump()
    flip_on_device(scene, content)
    scene.restore_must_fail('checksum')


@case
def damaged_child(scene):
    """A byte of a forked child's memory changes on the device."""
    scene = scene()
    scene.task.end()
    scene.task = scene.new_task(program='forkchain')
    pid = int(Path(f'/proc/{scene.task.pid}/task/{scene.task.pid}/children').read_text().split()[0])
    content = bytes_of_span(scene, *largest(spans_of_task(scene, pid=pid)), pid=pid)
    scene.good_dump()
    flip_on_device(scene, content)
    scene.restore_must_fail('checksum')


@case
def damaged_small_areas(scene):
    """Small areas, whose pages are restored by the restorer blob: a damaged page, and a read that fails."""
    scene = scene()
    scene.task.end()
    scene.task = scene.new_task(program='manyvmas')
    spans = spans_of_task(scene)
    if len(spans) < 900:
        raise Failed(f'the task has {len(spans)} areas that are written to: these are not many')
    content = bytes_of_span(scene, *spans[len(spans) // 2])
    scene.good_dump()
    at, byte = flip_on_device(scene, content)
    scene.restore_must_fail('checksum')
    with open(scene.device.path, 'r+b') as dev:
        os.pwrite(dev.fileno(), bytes([byte]), at)
        os.fsync(dev.fileno())
    for n in (0, 3, 10):
        scene.restore_must_fail('media error', fault=f'read-after={n}')
    scene.good_restore()


@case
def read_error(scene):
    """A read fails: the first, an early one, one in the middle."""
    scene = scene(size=64)
    scene.good_dump()
    for n in (0, 3, 10, 20):
        try:
            scene.restore_must_fail('media error', fault=f'read-after={n}')
        except Failed as e:
            raise Failed(f'read {n} fails: {e}')
    scene.good_restore()


@case
def two_hosts(scene):
    """A device that one host has claimed is refused to another one, by name; one that was released is not."""
    scene = scene()
    scene.device.needs_emulator('needs a device of its own')
    etc, other = Path(scene.device.env['ZNS_CONFIG']), scene.dir / 'other-host'
    (etc / 'machine-id').write_text('1' * 32 + '\n')
    scene.end_broker()
    shutil.copytree(etc, other)
    (other / 'machine-id').write_text('2' * 32 + '\n')
    mine = scene.device.env
    theirs = dict(mine, ZNS_CONFIG=str(other))
    first = scene.good_dump()
    scene.end_broker()                  # the host crashes
    scene.device.env = theirs
    scene.restore_must_fail('in use by host', 'take-over')
    done = scene.device.ctl('register', '--take-over', scene.device.spec)
    if done.returncode:
        raise Failed(f'register --take-over: {done.stderr.strip()}')
    if scene.ids() != [first]:
        raise Failed('the checkpoint is not there after the take-over')
    scene.good_restore()
    images = scene.dir / 'second'
    images.mkdir()
    second = scene.good_dump(images=images)
    scene.end_broker()
    scene.device.env = mine
    done = scene.device.ctl('ls')
    if done.returncode == 0 or 'in use by host' not in done.stderr:
        raise Failed(f'the first host gets in again: {done.stdout}{done.stderr}')
    done = scene.device.ctl('probe')    # probe writes, and does not need the broker
    if done.returncode == 0 or 'in use by host' not in done.stderr:
        raise Failed(f'the first host may probe: {done.stdout}{done.stderr}')
    scene.device.env = theirs
    scene.ids()
    scene.end_broker(signal.SIGTERM)    # the broker exits, and notes on the device that it did
    scene.device.env = mine
    if scene.ids() != sorted([first, second]):
        raise Failed('a released device is not taken over with all it has')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'errors', CASES))
