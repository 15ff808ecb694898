# SPDX-License-Identifier: GPL-2.0-only
"""Hostile peers of the broker. || One broker serves all peers: whatever one of them sends or leaves out, the others are served."""
import errno
import re
import resource
import select
import socket
import struct
import time
from pathlib import Path

from brokers import PATIENCE, started
from tally import tried
from ztlib import Failed, wait_until
from ztproto import fields, message
from ztscene import TINY, case_of

CASES = {}
case = case_of(CASES)

VERSION = 1
LARGEST = 8 << 20       # size of a request
ZERO = b'\0' * 16


class Peer:
    """A client that can send anything."""

    def __init__(self, scene):
        path = scene.device.env['ZNS_RUN'] + f'/{scene.device.info["uuid"]}.sock'
        self.sk = socket.socket(socket.AF_UNIX)
        self.sk.connect(path)       # waits while the broker's queue of connections is full
        self.sk.settimeout(PATIENCE)

    def send(self, raw):
        self.sk.sendall(raw)

    def frame(self, body):
        self.send(struct.pack('<I', len(body)) + body)

    def _exactly(self, n):
        got = b''
        while len(got) < n:
            more = self.sk.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def answer(self):
        """(code, text) of the next answer; None: the connection was closed."""
        try:
            body = self._exactly(struct.unpack('<I', self._exactly(4))[0])
        except (EOFError, ConnectionResetError):
            return None
        except TimeoutError:
            raise Failed(f'no answer in {PATIENCE} s')
        got = fields(body)
        code = got.get(1, 0)
        code = -((code >> 1) + 1) if code & 1 else code >> 1
        return code, got.get(2, b'').decode()

    def ask(self, request):
        """Sends a request given as fields; returns its answer."""
        self.frame(message({1: VERSION, **request}))
        return self.answer()

    def closed(self):
        """Reads whatever comes until the connection is closed, which must happen."""
        while self.answer() is not None:
            pass

    def close(self):
        self.sk.close()


def expect_error(peer, what, *codes):
    got = peer.answer()
    if got is None or not got[0] or not got[1] or '\n' in got[1]:
        raise Failed(f'{what}: the answer is {got}')
    if codes and -got[0] not in codes:
        raise Failed(f'{what}: the code is {got[0]}: {got[1]}')


def still_serves(scene, pid):
    if started(scene) != pid:
        raise Failed('it is another broker now')
    scene.ids()


def memory(pid):
    """The most memory that the process ever had, in MiB."""
    return int(re.search(r'VmHWM:\s+(\d+)', Path(f'/proc/{pid}/status').read_text()).group(1)) >> 10


# ---- messages ------------------------------------------------------------------------------------------

def pour(peers, data):
    """Sends to all peers as long as any of them accepts data; returns the bytes sent."""
    left = {p.sk: memoryview(data) for p in peers}
    total, quiet = 0, time.monotonic()
    for p in peers:
        p.sk.setblocking(False)
    while left and time.monotonic() < quiet + 1:
        for sk in select.select([], list(left), [], 0.1)[1]:
            try:
                n = sk.send(left[sk][:1 << 20])
            except BlockingIOError:
                continue
            except OSError:
                left.pop(sk)
                continue
            total, quiet = total + n, time.monotonic()
            left[sk] = left[sk][n:]
            if not left[sk]:
                left.pop(sk)
    for p in peers:
        p.sk.settimeout(PATIENCE)
    return total


@case
def unfinished_requests(scene):
    """200 peers each send all but the last byte of 8 MiB: the broker's memory stays small, others are served, and the peers are disconnected."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    before = memory(pid)
    kinds = {'8 MiB': (LARGEST, LARGEST - 1, 200), '64 KiB': (1 << 16, (1 << 16) - 1, 200),
             'a length alone': (LARGEST, 0, 300), 'half a length': (None, 0, 300)}
    peers = {}
    for what, (announced, sent, nr) in kinds.items():
        peers[what] = [Peer(scene) for _ in range(nr)]
        pour(peers[what], (struct.pack('<I', announced) if announced else b'\1\0') + b'\x0a' * sent)
        still_serves(scene, pid)
        if memory(pid) > before + 100:
            raise Failed(f'{nr} peers with {what} unfinished: the broker grew from {before} to {memory(pid)} MiB')
    for what, those in peers.items():
        for p in those[:3]:
            expect_error(p, what, errno.ETIMEDOUT)
            p.closed()
        for p in those:
            p.close()
        tried(f'{len(those)} times {what}')
    scene.good_dump()


@case
def drop_by_drop(scene):
    """A request that arrives byte by byte is answered if it is complete in time; otherwise the peer is disconnected."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    peer = Peer(scene)
    body = message({1: VERSION, 7: 1})
    for b in struct.pack('<I', len(body)) + body:
        peer.send(bytes([b]))
    if peer.answer() != (0, ''):
        raise Failed('a request in single bytes is refused')
    tried('byte by byte')
    slow, begin = Peer(scene), time.monotonic()
    slow.send(struct.pack('<I', 4096))
    slow.sk.settimeout(0.2)
    while time.monotonic() < begin + PATIENCE:
        try:
            slow.send(b'\x0a')
            if slow.sk.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        raise Failed('a request that never ends is still waited for')
    tried('one byte in 0.2 s')
    still_serves(scene, pid)


@case
def huge_lengths(scene):
    """A length beyond the largest request is refused at once, whatever follows."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    for n in (LARGEST + 1, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 8, (1 << 32) - 4, (1 << 32) - 1):
        for more in (b'', b'x' * 4096):
            peer = Peer(scene)
            peer.send(struct.pack('<I', n) + more)
            expect_error(peer, f'length {n}', errno.EBADMSG)
            peer.closed()
            tried((n, len(more)))
    still_serves(scene, pid)


@case
def wrong_types(scene):
    """Malformed requests: every field with another type, cut anywhere, nested without end, several at once."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    asks = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 30, 40, 41, 70, 71, 80, 81, 82, 83]
    version = message({1: VERSION})
    bodies = {}
    for f in asks:
        for wire, value in ((0, b'\1'), (1, b'\0' * 8), (2, b'\3abc'), (2, b'\xff\xff\xff\xff\x0f'), (5, b'\0' * 4), (3, b''),
                            (7, b'')):
            key = f << 3 | wire
            bodies[f, wire, value[:2]] = version + (bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])) + value
    commit = message({4: {1: b'\1' * 16, 2: 'x', 3: 1}})
    for cut in range(1, len(commit), 3):
        bodies['commit', cut] = version + commit[:cut]
    deep = b''
    for _ in range(3000):
        deep = b'\x22' + bytes([len(deep) & 127 | 128, len(deep) >> 7 & 127 | 128, len(deep) >> 14]) + deep
    bodies['deep'] = version + deep
    bodies['no version'] = message({7: 1})
    bodies['another version'] = message({1: 77, 7: 1})
    bodies['two at once'] = version + message({7: 1, 9: 1})
    bodies['all at once'] = version + message({f: 1 for f in (5, 7, 9, 10, 11)})
    for what, body in bodies.items():
        if what[:2] in ((f, 0) for f in (5, 7, 8, 9, 10, 11)) or what[:2] in ((15, 0), (13, 2)):
            continue        # these forms are valid
        peer = Peer(scene)
        peer.frame(body)
        peer.sk.settimeout(PATIENCE)
        if peer.answer() is None:
            raise Failed(f'{what}: closed without an answer')
        peer.close()
        tried(what)
    still_serves(scene, pid)
    scene.good_dump()


@case
def out_of_order(scene):
    """Requests that need a dump, a restore or a compaction, without one; and requests that are possible only once, sent twice."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    record = {1: '\0' * 16, 2: 'web', 3: 1, 4: 0, 5: 0}
    for what, ask in (('zone', {3: {1: 0}}), ('commit', {4: record}), ('abort', {5: 1}), ('progress', {30: {1: 1}}),
                      ('compact zone', {81: {1: 0, 2: 4096}}), ('compact step', {82: {1: 0}}), ('compact commit', {83: record}),
                      ('restore of nothing', {6: {1: '\0' * 16}}), ('compaction of nothing', {80: {1: '\0' * 16}}),
                      ('zone of no group', {3: {1: 0xffffffff}}), ('an id of one byte', {6: {1: 'x'}}),
                      ('rm of no id', {12: {}}), ('a name with a newline', {2: {1: 'a\nb', 2: 0}}), ('no name', {2: {1: '', 2: 0}})):
        peer = Peer(scene)
        got = peer.ask(ask)
        if got is None or (not got[0] and what not in ('abort', 'progress')):
            raise Failed(f'{what}: the answer is {got}')
        peer.close()
        tried(what)
    peer = Peer(scene)
    if peer.ask({2: {1: 'web', 2: 0}})[0]:
        raise Failed('no admission for a first dump')
    if not peer.ask({2: {1: 'web', 2: 0}})[0]:
        raise Failed('two dumps of one connection')
    tried('two dumps')
    for zone in (0, 1, 0xffffffff):
        peer.ask({3: {1: 0, 2: zone}})
        peer.ask({3: {1: 0, 3: zone}})
        tried(f'zone {zone} given back')
    peer.close()
    still_serves(scene, pid)
    wait_until(lambda: not scene.device.status()['leases'], 10)
    scene.good_dump()


@case
def many_peers(scene):
    """More connections than the broker has places, all silent: later ones are served nevertheless."""
    scene = scene(TINY, size=1)
    pid = started(scene)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    peers = []
    for _ in range(4300):
        peers.append(Peer(scene))
    deadline = time.monotonic() + PATIENCE
    while True:
        done = scene.device.ctl('ls', '--json')
        if not done.returncode:
            break
        if time.monotonic() > deadline:
            raise Failed(f'nobody else is served: {done.stderr.strip()}')
        time.sleep(0.5)
    tried(f'{len(peers)} silent peers')
    still_serves(scene, pid)
    for p in peers:
        p.close()


@case
def never_reading(scene):
    """Peers that ask and never read the answers: memory stays small, others are served, and the peers are disconnected."""
    scene = scene([*TINY[:6], '--zones', '9000', '--zone-size', '4M', '--timing', 'off', '--sparse'], size=1)
    pid = started(scene)
    before = memory(pid)
    peers = [Peer(scene) for _ in range(300)]
    ask = message({1: VERSION, 10: 1})
    for p in peers:
        p.send((struct.pack('<I', len(ask)) + ask) * 50)
    still_serves(scene, pid)
    if memory(pid) > before + 200:
        raise Failed(f'the broker grew from {before} to {memory(pid)} MiB')

    def gone(p):
        """Has the broker closed it? Its end comes behind the data that are still in the socket."""
        poll = select.poll()
        poll.register(p.sk, select.POLLRDHUP)
        return bool(poll.poll(0))
    if not wait_until(lambda: all(map(gone, peers[:20])), PATIENCE):
        raise Failed('peers that do not read keep their places')
    tried('300 times 50 questions')
    still_serves(scene, pid)
