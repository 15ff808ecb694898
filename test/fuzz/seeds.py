#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
Inputs for the fuzzer that no mutation finds soon: records, manifests and handles of a real store.

  seeds.py BUILD DIRECTORY     writes DIRECTORY/TARGET/seed-…
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MAGIC = b'ZNSCRIU1'
CHECKPOINT, SNAPSHOT_END, MANIFEST, MOVED = 3, 7, 8, 80


def frames(data):
    """(type, whole frame, payload) wherever a block begins with one."""
    for at in range(0, len(data) - 48, 4096):
        if data[at:at + 8] == MAGIC:
            kind, _, length = struct.unpack_from('<HHI', data, at + 8)
            yield kind, data[at:at + 48 + length], data[at + 48:at + 48 + length]


def store(build, base, options, dumps):
    """Metadata and data zones of a device with some dumps, a removal, a rule and a mark."""
    env = dict(os.environ, ZNS_CONFIG=f'{base}/etc', ZNS_RUN=f'{base}/run', ZNS_LIBEXEC=f'{build}/bin')

    def ctl(*args):
        done = subprocess.run([f'{build}/bin/znsctl', *args, '--json'], env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout) if done.stdout.strip() else {}

    ctl('create', f'emu:{base}/dev', '--channels', '2', '--ways', '1', '--timing', 'off', '--default', *options)
    for n, size in enumerate(dumps):
        subprocess.run([f'{build}/load/dumper', '--container', f'c{n % 2}', '--bytes', size, '--images', '3'], env=env,
                       check=True, stdout=subprocess.DEVNULL)
    plain = Path(base, 'plain')     # and one as a live dump writes it
    plain.mkdir()
    for task in (1, 2):
        (plain / f'pages-{task}.img').write_bytes(bytes(range(256)) * 16 * 3)
        (plain / f'pagemap-{task}.img').write_bytes(b'no pagemap')
    subprocess.run([f'{build}/load/composer', plain, '--container', 'live'], env=env, check=True, stdout=subprocess.DEVNULL)
    ids = [c['id'] for c in ctl('ls')['checkpoints']]
    ctl('pin', ids[0])
    ctl('retain', 'c1', '--keep', '3')
    ctl('rm', ids[1])
    streams = stream(build, base)
    geometry = ctl('status')['geometry']
    os.kill(ctl('status')['broker_pid'], 15)
    stride = (geometry['zone_capacity'] + 4095) // 4096 * 4096
    data = Path(f'{base}/dev').read_bytes()[-geometry['zones'] * stride:]
    meta = geometry['metadata_zones'] * stride
    return data[:meta], data[meta:], streams


# ---- a forged device: test/fuzz/forge.h ----------------------------------------------------------------

RECORD, UNRECORDED, COMMITTED, FRAME, FILL = range(5)
BLOCK, CAPACITY = 4096, 128 << 10


def piece(kind, zone, kind_of_frame, payload=b'', generation=0, seq=0):
    return struct.pack('<BBBQQH', kind, zone, kind_of_frame, generation, seq, len(payload)) + payload


def field(number, value):
    """One field of a message: a number, bytes, or 8 bytes as a float."""
    def varint(v):
        out = b''
        while v > 127:
            out, v = out + bytes([v & 127 | 128]), v >> 7
        return out + bytes([v])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | (2 if isinstance(value, bytes) else 1)) + \
        (varint(len(value)) + value if isinstance(value, bytes) else struct.pack('<d', value))


def use(zone, start, length):
    return field(7, field(1, zone) + field(2, start) + field(3, length))


def checkpoint(number, uses, more=b''):
    return field(1, bytes([number]) * 16) + field(2, b'web') + field(3, 2 * 1000000) + field(4, 0) + field(5, 0) + \
        field(6, 0) + uses + more


def profile(more):
    return field(1, b'probe') + field(2, 100) + field(3, 100) + field(4, 1.0) + field(5, field(1, 0)) + field(5, field(1, 1)) + \
        field(6, bytes([0, 1] * 4)) + more


def manifest(number, uses, more=b''):
    return field(1, b'forged device 1\0') + field(2, checkpoint(number, uses, more))


def place(zone, start, length=200):
    """Field 14 of a checkpoint: where its manifest is said to be."""
    return field(14, field(1, zone) + field(2, start) + field(3, length) + b'\x21' + bytes(8))


def forged():
    """{name: input}: faults that were found, each as small as it can be."""
    fill = piece(FILL, 3, 0)        # zone 3, one block
    found = {
        # Walked downwards from a place that is no block's end: 2^52 steps, and reads before the buffer.
        'unaligned-start': b'\1' + fill + piece(UNRECORDED, 0, 0, manifest(1, use(3, 1, BLOCK - 1))),
        'unaligned-length': b'\1' + fill + piece(UNRECORDED, 0, 0, manifest(1, use(3, 0, 100))),
        'unaligned-record': b'\0' + fill + piece(RECORD, 0, 3, checkpoint(1, use(3, 8, 1000), place(3, 8))),
        # Live bytes in zones that are empty: what a dump writes there could never be committed.
        'empty-zones': b'\0' + b''.join(piece(RECORD, 0, 3, checkpoint(z, use(z, 0, CAPACITY), place(z, 0)))
                                        for z in (3, 4, 5, 6)),
        'all-zones': b'\0' + b''.join(piece(RECORD, 0, 3, checkpoint(z, use(z, 0, CAPACITY), place(z, 0))) for z in range(3, 8)),
        'beyond-pointer': b'\0' + fill + piece(RECORD, 0, 3, checkpoint(1, use(3, 0, CAPACITY), place(3, 0))),
        'claimed-twice': b'\0' + fill + piece(RECORD, 0, 3, checkpoint(1, use(3, 0, BLOCK) + use(3, 0, BLOCK), place(3, 0))),
        # The next generation would be 0, and the store gone with it.
        'last-generation': b'\0' + piece(FRAME, 1, 3, b'', (1 << 64) - 1, 1) + piece(RECORD, 0, 6, b'\x0a\x03web'),
        'all-times': b'\1' + fill + piece(UNRECORDED, 0, 0, manifest(1, use(3, 0, BLOCK), field(82, (1 << 64) - 2))),
        'circle': b'\0' + b''.join(piece(RECORD, 0, 3, checkpoint(n, use(3, n * BLOCK, BLOCK), place(3, n * BLOCK) +
                                                                 field(16, bytes([3 - n]) * 16))) for n in (1, 2)),
        'own-parent': b'\0' + piece(RECORD, 0, 3, checkpoint(1, use(3, 0, BLOCK), place(3, 0) + field(16, b'\1' * 16))),
        'no-number': b'\0' + piece(RECORD, 0, 3, checkpoint(1, use(3, 0, BLOCK), place(3, 0) + field(10, float('nan')))),
        # Figures of a probe: one rate of reading for two groups, a load that is no number.
        'profile-reads': b'\0' + piece(RECORD, 0, 2, profile(field(62, bytes([100])))),
        'profile-load': b'\0' + piece(RECORD, 0, 2, profile(field(62, bytes([100, 90])) + field(63, float('nan')))),
        'profile': b'\0' + piece(RECORD, 0, 2, profile(field(62, bytes([100, 90])) + field(63, 1.2))),
        'says-where-it-is': b'\1' + fill + piece(UNRECORDED, 0, 0, manifest(1, use(3, 0, BLOCK), place(3, 0))),
    }
    return found


def sealed():
    """{name: input}: records of encrypted checkpoints (zns/sealed.h): a full one, an incremental one, one that is composed."""
    def image(name, size, more=b'', unit=65536):
        units = -(-size // unit)
        return field(3, field(1, name) + field(2, size) + field(3, unit) + (field(5, bytes(8 * units)) + field(70, bytes(16 * units)) if units else b'') + more)

    def record(*images, more=b''):
        return field(1, b'') + field(2, field(1, b'0123456789abcdef') + field(2, b'') + field(3, 0) + field(4, 100) + field(5, 0) +
                                     field(6, len(images)) + field(17, 65536) + field(70, field(1, 1)) + more) + b''.join(images) + field(70, bytes(16))
    part = image(b'memory-1', 4 * 4096, field(170, 1))
    composed = field(3, field(1, b'pages-1.img') + field(2, 8192) + field(3, 65536) + field(171, field(1, bytes([0])) + field(2, bytes([2, 0, 0]))))
    return {
        'full': record(image(b'inventory.img', 100), image(b'pages-1.img', 200000), image(b'empty.img', 0)),
        'child': record(image(b'inventory.img', 100), more=field(16, b'fedcba9876543210') + field(90, 1)),
        'composed': record(part, composed),
        'former': record(image(b'a.img', 65536, field(100, 1 << 62).replace(b'\xa0\x06', b'\xa1\x06')[:2] + struct.pack('<Q', 1 << 62))) + field(71, bytes(32)),
    }


def stream(build, base):
    """{name: input}: what `znsctl send` writes of a small store, as it is and as payloads."""
    env = dict(os.environ, ZNS_CONFIG=f'{base}/etc', ZNS_RUN=f'{base}/run', ZNS_LIBEXEC=f'{build}/bin')
    whole = subprocess.run([f'{build}/bin/znsctl', 'send'], env=env, stdout=subprocess.PIPE, check=True).stdout
    at, payloads, found = 0, b'', {}
    while at < len(whole):
        kind, _, length = struct.unpack_from('<HHI', whole, at + 8)
        cut = whole[at + 48:at + 48 + length][:1000 if kind == 233 else 65535]     # of DATA some bytes are enough
        payloads += struct.pack('<BH', (kind - 230) % 8, len(cut)) + cut
        if kind == 234 and 'first' not in found:
            found['first'] = b'\1' + payloads
        at += 48 + length
    return {'whole': b'\0' + whole[:20000], 'frames': b'\1' + payloads, **found}


def main():
    build, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])

    def put(target, name, content):
        (out / target).mkdir(parents=True, exist_ok=True)
        (out / target / f'seed-{name}').write_bytes(content)

    with tempfile.TemporaryDirectory() as base:
        meta, data, streams = store(build, base, ['--zones', '8', '--zone-size', '128K'], ['3000', '5000', '70000'])
        for name, content in streams.items():
            put('fuzz_stream', name, content)
        put('fuzz_store', 'zone', b'\0' + meta[:65536].rstrip(b'\0'))
        log = [(k, p) for k, _, p in frames(meta)]
        after = log[1 + max(n for n, (k, _) in enumerate(log) if k == SNAPSHOT_END):]
        records = [struct.pack('<BH', k, len(p)) + p for k, p in after]
        for n in range(1, len(records) + 1):
            put('fuzz_store', f'records-{n}', b'\1' + b''.join(records[:n]))
        for n, (k, p) in enumerate(after):
            if k == CHECKPOINT:         # the same moved: fields 80 and 82
                moved = p + b'\x80\x05\x01' + b'\x90\x05\x07'
                put('fuzz_store', f'moved-{n}', b'\1' + b''.join(records[:n + 1]) + struct.pack('<BH', MOVED, len(moved)) + moved)
            if k == CHECKPOINT:
                put('fuzz_forge', f'record-{n}', b'\0' + piece(RECORD, 0, k, p))
        put('fuzz_forge', 'log', b'\0' + b''.join(piece(RECORD, 0, k, p) for k, p in after))
        whole = b''
        for zone in range(len(data) // CAPACITY):
            for at in range(0, CAPACITY, BLOCK):
                block = data[zone * CAPACITY + at:][:BLOCK]
                if not any(block):
                    break
                kind, _, length = struct.unpack_from('<HHI', block, 8)
                if block[:8] == MAGIC and kind == MANIFEST:
                    whole += piece(COMMITTED, zone, 0, data[zone * CAPACITY + at + 48:][:length])
                elif block[:8] != MAGIC:
                    whole += piece(FILL, 3 + zone, 0)
        put('fuzz_forge', 'whole', b'\0' + whole)
        put('fuzz_forge', 'whole-wiped', b'\1' + whole)
    for name, content in forged().items():
        put('fuzz_forge', name, content)
    for name, content in sealed().items():
        put('fuzz_sealed', name, content)
    with tempfile.TemporaryDirectory() as base:
        meta, data, _ = store(build, base, ['--zones', '64', '--zone-size', '64M', '--zone-capacity', '48M'],
                           ['3000', '900000', '20000000', '60000', '3000000'])
        for n, (kind, frame, payload) in enumerate(frames(data)):
            if kind == MANIFEST:
                put('fuzz_manifest', str(n), payload)
                put('fuzz_frame', str(n), frame)
        for n, (_, frame, _) in enumerate(frames(meta)):
            put('fuzz_frame', f'log-{n}', frame)
    # Device, checkpoint, container, time, sizes, images, one plain copy (images/zns-handle.proto).
    copy = b'\x0a\x0dinventory.img\x10\x20\x19' + bytes(range(8))
    put('fuzz_handle', '1', b'\x0a\x10' + bytes(range(16)) + b'\x12\x10' + bytes(range(16, 32)) + b'\x1a\x03web' +
        b'\x20\x80\x80\x01\x28\x80\x20\x30\x80\x10\x38\x03' + b'\x42' + bytes([len(copy)]) + copy)


if __name__ == '__main__':
    sys.exit(main())
