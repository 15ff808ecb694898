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
    ids = [c['id'] for c in ctl('ls')['checkpoints']]
    ctl('pin', ids[0])
    ctl('retain', 'c1', '--keep', '3')
    ctl('rm', ids[1])
    geometry = ctl('status')['geometry']
    os.kill(ctl('status')['broker_pid'], 15)
    stride = (geometry['zone_capacity'] + 4095) // 4096 * 4096
    data = Path(f'{base}/dev').read_bytes()[-geometry['zones'] * stride:]
    meta = geometry['metadata_zones'] * stride
    return data[:meta], data[meta:]


def main():
    build, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])

    def put(target, name, content):
        (out / target).mkdir(parents=True, exist_ok=True)
        (out / target / f'seed-{name}').write_bytes(content)

    with tempfile.TemporaryDirectory() as base:
        meta, _ = store(build, base, ['--zones', '8', '--zone-size', '128K'], ['3000', '5000', '70000'])
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
    with tempfile.TemporaryDirectory() as base:
        meta, data = store(build, base, ['--zones', '64', '--zone-size', '64M', '--zone-capacity', '48M'],
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
