# SPDX-License-Identifier: GPL-2.0-only
"""Records for journald."""
import ctypes
import json
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import threading
import uuid
from pathlib import Path

from case_broker import Peer
from case_terminal import clean
from forge import pack
from obs import HOSTILE, forged, unpacked
from tools import Media, stop_broker
from ztlib import Failed, wait_until
from ztscene import FAST, TINY, case_of, expect

CASES = {}
case = case_of(CASES)


def records(data):
    """The fields of a datagram in the journal's native protocol, as bytes."""
    found = {}
    while data:
        head, newline, rest = data.partition(b'\n')
        name, equals, text = head.partition(b'=')
        if equals:
            data = rest
        else:
            size, = struct.unpack_from('<Q', rest)
            text, end, data = rest[8:8 + size], rest[8 + size:9 + size], rest[9 + size:]
            if len(text) != size or end != b'\n':
                raise Failed(f'a field that is cut: {name}')
        if not newline or not re.fullmatch(rb'[A-Z][A-Z0-9_]*', name) or name in found:
            raise Failed(f'no field: {head!r}')
        found[name.decode()] = text
    return found


def private_run():
    """A mount namespace of this case, with an empty /run."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace, propagation = 0x20000, 0x40000 | 0x4000        # CLONE_NEWNS; MS_PRIVATE | MS_REC
    if libc.unshare(namespace) or libc.mount(b'none', b'/', None, propagation, None) or libc.mount(b'none', b'/run', b'tmpfs', 0, None):
        raise Failed(f'no mount namespace: {os.strerror(ctypes.get_errno())}')
    os.makedirs('/run/systemd/journal')


class Journal:
    """A socket where journald has its own, in a mount namespace of this case."""

    def __init__(self):
        private_run()
        self.sk = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sk.bind('/run/systemd/journal/socket')
        self.got, self.deaf, self.lock = [], False, threading.Lock()
        self.ears = threading.Thread(target=self.listen, daemon=True)
        self.ears.start()

    def listen(self):
        """The queue holds some ten records only."""
        while not self.deaf:
            if select.select([self.sk], [], [], 0.1)[0]:
                self.hear()

    def hear(self):
        with self.lock:
            self.drain()

    def drain(self):
        while select.select([self.sk], [], [], 0)[0]:
            self.got.append(self.sk.recv(1 << 20))

    def take(self):
        """What came since the last time. Records are sent before criu and znsctl know of anything."""
        with self.lock:
            self.drain()
            taken, self.got = self.got, []
        return [records(d) for d in taken]

    def fill(self):
        """Sends until the socket takes no more, with no reader; returns how much it took."""
        self.deaf = True
        self.ears.join()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)
            for n in range(100_000):
                try:
                    s.sendto(b'MESSAGE=x\n', '/run/systemd/journal/socket')
                except BlockingIOError:
                    return n
        raise Failed('its queue has no end')


def only(records_, **fields):
    """The one record with these fields."""
    hits = [r for r in records_ if all(r.get(k) == v.encode() for k, v in fields.items())]
    if len(hits) != 1:
        raise Failed(f'{len(hits)} records with {fields}: {records_}')
    return hits[0]


@case
def journal(scene):
    """Each dump and restore, done, failed or refused, is a record with its figures; and what the broker says."""
    heard = Journal()
    scene = scene(FAST, size=24)
    device, path = scene.device.info['uuid'], scene.device.spec
    heard.take()
    ident = scene.good_dump(qos='300')
    got = heard.take()
    checkpoint, = scene.device.checkpoints()
    done = only(got, ZNS_OPERATION='dump', ZNS_RESULT='done')
    expect('the dump', {k: done[k].decode() for k in done if k not in ('MESSAGE', 'ZNS_DATA_USEC', 'ZNS_BYTES', 'ZNS_ACHIEVED_BPS', 'ZNS_PAGE_BYTES')},
           {'PRIORITY': '6', 'SYSLOG_IDENTIFIER': 'zns-helper', 'ZNS_OPERATION': 'dump', 'ZNS_RESULT': 'done', 'ZNS_CONTAINER': 'errors',
            'ZNS_DEVICE': device, 'ZNS_DEVICE_PATH': path, 'ZNS_CHECKPOINT': ident, 'ZNS_ASKED_BPS': str(300 << 20),
            'ZNS_FROZEN_USEC': str(checkpoint['frozen_us']), 'ZNS_GROUPS': str(len(checkpoint['groups'])),
            'ZNS_ZONES': str(len(checkpoint['zones'])), 'ZNS_SHARED_GROUPS': '0'})
    expect('its bytes', int(done['ZNS_BYTES']) >= checkpoint['page_bytes'], True)
    expect('its message', done['MESSAGE'].startswith(b'dump of errors done: '), True)
    scene.good_restore()
    got = heard.take()
    restored = only(got, SYSLOG_IDENTIFIER='zns-helper', ZNS_RESULT='done')
    expect('the restore', (restored['ZNS_OPERATION'], restored['ZNS_CHECKPOINT'].decode()), (b'restore', ident))
    told = only(got, SYSLOG_IDENTIFIER='znsd', ZNS_OPERATION='restore')
    expect('by the broker', (told['ZNS_CHECKPOINT'].decode(), told['ZNS_CONTAINER'], told['ZNS_DEVICE'].decode()), (ident, b'errors', device))
    for n, (args, words) in enumerate(((dict(fault='write-after=3x*'), 'zones failed'),
                                       (dict(qos='99999', extra=['--zns-admission', 'reject']), 'exceeds'))):
        images = scene.dir / f'failed-{n}'
        images.mkdir()
        scene.dump(images=images, **args).must_fail(words)
        if not wait_until(lambda: not scene.helpers(), 10):
            raise Failed('a helper stays')
        got = heard.take()
        failed = only(got, SYSLOG_IDENTIFIER='zns-helper', ZNS_RESULT='failed')
        expect(f'priority of {words}', (failed['PRIORITY'], words.encode() in failed['MESSAGE'], failed['ZNS_CONTAINER']), (b'3', True, b'errors'))
    stop_broker(scene)
    left = heard.take()
    expect('the end', only(left, MESSAGE=f'left {path}')['PRIORITY'], b'6')
    log_lines = Path(scene.device.env['ZNS_RUN'], f'{device}.log').read_text().splitlines()
    expect('in its log, too', log_lines[-1].endswith(f'left {path}'), True)


@case
def journal_hostile(scene):
    """Values with newlines keep their length and forge no field; a journal that does not read, or does not exist, delays no program."""
    heard = Journal()
    scene = scene(TINY, size=1)
    ident = scene.good_dump()
    media = Media(scene)
    stop_broker(scene)
    good = media.copy_of_metadata()
    log_file = Path(scene.device.env['ZNS_RUN'], f'{scene.device.info["uuid"]}.log')
    for what, evil in {**HOSTILE, 'field': b'a\nPRIORITY=0\nMESSAGE=forged', 'length': b'\n' + b'\xff' * 8}.items():
        forged(scene, media, evil)
        scene.ids()
        reader = Peer(scene)
        expect('a reader', reader.ask({6: pack([(1, uuid.UUID(ident).bytes)])})[0], 0)
        heard.take()
        before = log_file.read_bytes().count(b'\n')
        expect('its end', reader.ask({30: pack([(1, 4096), (4, 10), (5, 1)])})[0], 0)
        record, = heard.take()
        expect(f'{what} as a field', record['ZNS_CONTAINER'], evil)
        expect(f'priority with {what}', record['PRIORITY'], b'6')
        clean(f'a message with {what}', record['MESSAGE'].decode())
        clean(f'the log with {what}', log_file.read_text())
        expect(f'lines of the log with {what}', log_file.read_bytes().count(b'\n') - before, 1)
        reader.close()
        stop_broker(scene)
        media.put_back(good)
    heard.fill()
    scene.good_restore()
    deaf, none = scene.dir / 'deaf', scene.dir / 'none'
    deaf.mkdir()
    none.mkdir()
    scene.good_dump(images=deaf)
    heard.sk.close()
    scene.good_restore(images=deaf)
    os.unlink('/run/systemd/journal/socket')
    scene.good_dump(images=none)


@case
def journal_of_a_unit(scene):
    """Under systemd, where standard error is the journal, nothing is logged twice; without the journal's socket messages go to standard
    error.
    """
    heard = Journal()
    scene = scene(TINY, size=1)
    scene.end_broker()
    heard.take()

    def foreground():
        with open(scene.dir / 'stream', 'w+b') as stream:
            st = os.fstat(stream.fileno())
            env = {**scene.device.env, 'JOURNAL_STREAM': f'{st.st_dev}:{st.st_ino}', 'ZNSD_IDLE_S': '1'}
            subprocess.run([str(Path(scene.cfg.znsctl).with_name('znsd')), scene.device.info['uuid'], '--foreground'], env=env, stdin=subprocess.DEVNULL,
                           stderr=stream, timeout=scene.cfg.timeout, check=True)
            stream.seek(0)
            return stream.read().decode()

    expect('on standard error', foreground(), '')
    said = [r['MESSAGE'].decode().split()[0] for r in heard.take()]
    expect('in the journal', said, ['serving', 'left'])
    os.unlink('/run/systemd/journal/socket')
    expect('without a socket', [l.split(': ')[1].split()[0] for l in foreground().splitlines()], ['serving', 'left'])


@case
def journald(scene):
    """The real journald takes the records, and journalctl finds them by their fields."""
    private_run()
    os.makedirs('/run/log/journal')
    at = [p / 'systemd-journald' for p in (Path('/usr/lib/systemd'), Path('/lib/systemd'))]
    program, env = next((p for p in at if p.exists()), None), dict(os.environ)
    reader = shutil.which('journalctl')
    if not program or not reader:
        root = unpacked('systemd', 'libsystemd-shared', 'libsystemd0', 'libkmod2')
        program, reader = next(root.glob('**/systemd-journald')), next(root.glob('**/bin/journalctl'))
        env['LD_LIBRARY_PATH'] = ':'.join({str(p.parent) for p in root.glob('**/lib[ks]*.so*')})
    daemon = subprocess.Popen([str(program)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def find(*fields):
        done = subprocess.run([str(reader), '--directory=/run/log/journal', '-o', 'json', '--no-pager', *fields], env=env, capture_output=True,
                              text=True, check=False)
        return [json.loads(l) for l in done.stdout.splitlines()]

    try:
        if not wait_until(lambda: Path('/run/systemd/journal/socket').exists(), 20, 0.1):
            raise Failed('journald does not start')
        scene = scene(TINY, size=1)
        ident = scene.good_dump()
        scene.good_restore()
        if not wait_until(lambda: len(find(f'ZNS_CHECKPOINT={ident}')) >= 3, 20, 0.2):
            raise Failed(f'records: {find(f"ZNS_CHECKPOINT={ident}")}')
        expect('of the helper', [r['ZNS_OPERATION'] for r in find(f'ZNS_CHECKPOINT={ident}', 'SYSLOG_IDENTIFIER=zns-helper')], ['dump', 'restore'])
        broker, = find(f'ZNS_CHECKPOINT={ident}', 'SYSLOG_IDENTIFIER=znsd')
        expect('of the broker', (broker['ZNS_CONTAINER'], broker['_COMM'], broker['PRIORITY']), ('errors', 'znsd', '6'))
    finally:
        daemon.terminate()
        daemon.wait(20)
