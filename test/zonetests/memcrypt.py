#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memcrypt: encrypted memory on zones (Documentation/inside/memory.md), on emulated devices: what the device has, and
what comes back.

  memcrypt.py list | run NAME... | run -a     [--rounds N] [--kills N] [--build DIR]

Most cases are those of memory.py and memcheckpoint.py on a device whose checkpoints are encrypted.
"""
import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import struct
import sys
import time

import memcheckpoint
import memory
import memoryrestore
from memory import DEADLINE_S, Failed, resident, wait_until

CASES = memory.CASES
CASES.clear()
case = memory.case
PAGE, UNIT, ZONE = 4096, 65536, 4 << 20


class Clear(memcheckpoint.Scene):
    """The device does not require encryption, but there is a key."""
    def __init__(self, args, zones=256):
        super().__init__(args, zones=zones)
        self.key = f'file:{self.dir}/key'
        self.ctl('key', 'create', self.dir / 'key')

    def conf(self, text):
        with open(self.dir / 'conf/zns.conf', 'a', encoding='ascii') as f:
            f.write(text + '\n')

    def blocks(self):
        """(offset in the file, page) of everything that was ever written to the device's zones."""
        with open(self.dir / 'dev', 'rb') as f:
            head = f.read(PAGE)
            begin, end = struct.unpack_from('<QQ', head, 128)
            at = begin
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
                while at < end:
                    try:
                        at = os.lseek(f.fileno(), at, os.SEEK_DATA)
                    except OSError:
                        return
                    hole = min(os.lseek(f.fileno(), at, os.SEEK_HOLE), end)
                    for page in range(at // PAGE * PAGE, hole, PAGE):
                        yield page, m[page:page + PAGE]
                    at = hole

    def plain_pages(self, mib):
        """How many pages of an answerer are on the device."""
        known = {struct.pack('<4Q', *(((nr << 32 | 1) * 0x9E3779B97F4A7C15 + i) & (1 << 64) - 1 for i in range(4))) for nr in range(mib << 8)}
        return sum(page[:32] in known for _, page in self.blocks())

    def is_encrypted(self, pid):
        return self.status(pid)['encrypted']


class Encrypted(Clear):
    """A stage whose device asks for encrypted checkpoints."""
    def __init__(self, args, zones=256):
        super().__init__(args, zones=zones)
        self.ctl('key', 'use', self.key)


def same(function, name=None):
    """Runs a case of another suite on an encrypted device."""
    name = name or function.__name__
    CASES[name] = function
    return function


@case
def plaintext(_, args):
    """Whatever asks for encryption, no page of a program is on the device. The control: without encryption nearly all are."""
    def look(how):
        scene = Clear(args)
        try:
            if how == 'key use':
                scene.ctl('key', 'use', scene.key)
            elif how == 'zns.conf':
                scene.conf(f'encrypt-key = {scene.key}')
            elif how == 'devices.d':
                scene.ctl('key', 'use', scene.key)
                scene.ctl('key', 'off')
                entry = next((scene.dir / 'conf/devices.d').iterdir())
                entry.write_text(entry.read_text() + 'encrypted = only\n' if 'encrypted' not in entry.read_text() else entry.read_text())
            program = scene.answerer(32)
            scene.ctl('memory', 'attach', program.pid, '--dram', '4M', *(['--encrypt'] if how == '--encrypt' else []))
            wait_until(lambda: resident(program.pid) <= 8 << 20, 'the budget')
            if scene.is_encrypted(program.pid) != (how != 'nobody'):
                raise Failed(f'{how}: the status is wrong')
            found = scene.plain_pages(32)
            print(f'    {how}: {found} pages in clear, of {32 << 8}')
            if how == 'nobody' and found < 4000 or how != 'nobody' and found:
                raise Failed(f'{how}: {found} pages stand there')
            scene.ask(program.pid)
            scene.ctl('memory', 'detach', program.pid)
            scene.ask(program.pid)
            if how != 'nobody' and scene.plain_pages(32):
                raise Failed(f'{how}: after the detach')
        finally:
            scene.close()
    for how in ('nobody', 'key use', 'zns.conf', 'devices.d', '--encrypt'):
        look(how)


@case
def asked_later(scene, args):
    """Encryption is switched on while a program pages unencrypted: nothing more is written unencrypted; after a new
    attach everything is encrypted."""
    scene = Clear(args)
    try:
        program = scene.answerer(48, active=20)
        scene.attach(program.pid, '32M')
        wait_until(lambda: resident(program.pid) <= 33 << 20, 'the budget')
        scene.ctl('key', 'use', scene.key)
        scene.ctl('memory', 'limit', f'pid-{program.pid}', '--dram', '4M')
        wait_until(lambda: 'detach' in (scene.status(program.pid).get('warning') or ''), 'a warning')
        had = scene.plain_pages(48)
        scene.ask(program.pid)
        time.sleep(2)
        if scene.plain_pages(48) > had:
            raise Failed('pages went out in clear')
        done = scene.dump(program.pid, 'img', '--leave-running', ok=False)
        if not done.returncode or 'detach' not in scene.errors('img'):
            raise Failed(f'an encrypted checkpoint of memory in clear: {scene.errors("img")}')
        print(f'    {scene.errors("img").split(" | ")[0]}')
        scene.ask(program.pid)
        scene.ctl('memory', 'detach', program.pid)
        scene.attach(program.pid, '4M')
        wait_until(lambda: resident(program.pid) <= 8 << 20, 'the budget')
        scene.ask(program.pid)
        # an encrypted context, while checkpoints are not encrypted
        scene.ctl('key', 'off')
        (scene.dir / 'conf/zns.conf').write_text('')
        entry = next((scene.dir / 'conf/devices.d').iterdir())
        entry.write_text(''.join(line for line in entry.read_text().splitlines(True) if not line.startswith(('encrypted', 'key'))))
        done = scene.dump(program.pid, 'plain', '--leave-running', ok=False)
        print(f'    {scene.errors("plain").split(" | ")[0]}')
        if not done.returncode or 'detach' not in scene.errors('plain'):
            raise Failed('a checkpoint in clear names encrypted units')
        scene.ask(program.pid)
    finally:
        scene.close()


def spoil(scene, what):
    """Damages all units of the context on the device; returns how many."""
    zones = [z for z in json.loads(scene.ctl('zones', '--json').stdout)['zones'] if (z.get('owner') or '').startswith('memory:')]
    with open(scene.dir / 'dev', 'r+b') as f:
        begin, = struct.unpack_from('<Q', f.read(PAGE), 128)
        for zone in zones:
            at = begin + zone['index'] * ZONE
            if what == 'bits':
                for unit in range(0, zone['wp'], UNIT):
                    f.seek(at + unit + 4711)
                    had = f.read(1)
                    f.seek(at + unit + 4711)
                    f.write(bytes([had[0] ^ 1]))
            else:               # exchanges units: each gets its neighbour's bytes
                f.seek(at)
                old = f.read(zone['wp'])
                f.seek(at)
                f.write(old[UNIT:] + old[:UNIT])
    return sum(z['wp'] for z in zones) // UNIT


@case
def spoiled(_, args):
    """Bits flipped and units exchanged on the device: the program gets SIGBUS or is killed, and never sees a wrong byte."""
    for what in ('bits', 'neighbours'):
        scene = Encrypted(args)
        try:
            program = scene.pages(64)
            scene.attach(program.pid, '16M')
            scene.await_units(program, 300)
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(1)
            nr = spoil(scene, what)
            os.kill(program.pid, signal.SIGCONT)
            program.communicate(timeout=DEADLINE_S)
            said = (scene.dir / 'program.err').read_text()
            print(f'    {what}: {nr} units, exit {program.returncode}')
            if program.returncode not in (-signal.SIGBUS, -signal.SIGKILL) or ': page ' in said or not nr:
                raise Failed(f'{what}: exit {program.returncode}: {said}')
        finally:
            scene.close()


same(memory.soak)
same(memory.deaths, 'paging_deaths')
same(memory.read_errors)
same(memcheckpoint.volume)
same(memcheckpoint.threads)
same(memcheckpoint.tree)
same(memcheckpoint.deaths, 'dump_deaths')
same(memcheckpoint.tools)


class Restored(memoryrestore.Stage):
    def __init__(self, args, **kw):
        super().__init__(args, **kw)
        self.ctl('key', 'create', self.dir / 'key')
        self.ctl('key', 'use', f'file:{self.dir}/key')


def restored(function):
    """Runs a case of memoryrestore.py."""
    def run(_, args):
        made, libc = [], ctypes.CDLL(None)

        def stage(**kw):
            made.append(Restored(args, **kw))
            return made[-1]
        libc.prctl(36, 1, 0, 0, 0)      # PR_SET_CHILD_SUBREAPER
        try:
            function(stage, args)
        finally:
            libc.prctl(36, 0, 0, 0, 0)
            for one in made:
                one.close()
    run.__doc__ = function.__doc__
    CASES['restored_' + function.__name__] = run


for one in (memoryrestore.pages, memoryrestore.deaths, memoryrestore.kills, memoryrestore.tree, memoryrestore.chain, memoryrestore.redis):
    restored(one)


@case
def encrypted_origin(_, args):
    """New checkpoints are plain again, and an encrypted one is restored under a budget: pages that go out are
    encrypted. Without the key it is refused."""
    scene = Restored(args, zones=160)
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)
    try:
        r = memoryrestore.Restored(scene, [args.program, 48], memoryrestore.pages_ready)
        r.dump()
        scene.ctl('key', 'off')
        os.rename(scene.dir / 'key', scene.dir / 'away')
        done = r.restore('10M', ok=False)
        log = (r.images / 'work/restore.log').read_text()
        if not done.returncode or 'key' not in done.stderr + log or r.alive() or scene.contexts():
            raise Failed(f'restored without a key: {done.stderr} {log[-300:]}')
        os.rename(scene.dir / 'away', scene.dir / 'key')
        r.again()
        r.restore('10M')
        wait_until(lambda: memoryrestore.status(r)['evicted_units'] > 300, '300 units out')
        if not memoryrestore.status(r)['encrypted']:
            raise Failed('what goes out is in clear')
        print(f'    {memoryrestore.ended_well(r)}')
    finally:
        libc.prctl(36, 0, 0, 0, 0)
        scene.close()


@case
def pieces(scene, args):
    """No page is on the device after dumps that name units, and lazy pages come back."""
    scene = scene()
    program = scene.answerer(48, children=1)
    pid = program.pid
    scene.shrink(pid, 0.3)
    scene.dump(pid, 'img')
    found = scene.shown('img')
    if not found['encrypted'] or found['memory_bytes'] < 32 << 20:
        raise Failed(f'this is no such checkpoint: {found}')
    if scene.plain_pages(48):
        raise Failed('pages stand there in clear')
    scene.restore('img', pid)
    scene.ask(pid)
    scene.end(pid)
    copy = scene.dir / 'plain'
    scene.ctl('export', found['id'], copy)
    scene.ctl('rm', found['id'])
    said = json.loads(scene.ctl('import', copy, '--json').stdout)
    scene.ctl('verify', '--all')
    print(f'    {found["memory_bytes"] >> 20} MiB named; imported again: {said.get("id")}')
    if scene.plain_pages(48):
        raise Failed('pages stand there in clear after the import')


@case
def rotated(scene, args):
    """The master key is changed while the context lives: checkpoints from before and after are restored; without the key none is."""
    scene = scene()
    program = scene.answerer(48)
    pid = program.pid
    scene.shrink(pid, 0.3)
    scene.dump(pid, 'one', '--leave-running')
    scene.ctl('key', 'create', scene.dir / 'other')
    scene.ctl('key', 'rotate', f'file:{scene.dir}/other')
    os.unlink(scene.dir / 'key')
    scene.kill_one('zns-mem')       # a successor of the pager needs no master key
    scene.ask(pid)
    scene.await_pager(pid)
    scene.dump(pid, 'two', '--leave-running')
    scene.ask(pid)
    scene.end(pid)
    for name in ('one', 'two'):
        scene.restore(name, pid)
        scene.ask(pid)
        scene.end(pid)
    os.rename(scene.dir / 'other', scene.dir / 'away')
    done = scene.criu('restore', 'one', '-d', ok=False)
    if not done.returncode:
        raise Failed('restored without the key')
    os.rename(scene.dir / 'away', scene.dir / 'other')
    scene.ctl('verify', '--all')


@case
def erased(scene, args):
    """rm --secure is refused while the context or another checkpoint has the same key; after it succeeds nothing can be decrypted any more."""
    scene = scene()
    program = scene.answerer(48)
    pid = program.pid
    scene.shrink(pid, 0.3)
    scene.dump(pid, 'one', '--leave-running')
    scene.dump(pid, 'two', '--leave-running')
    one, two = scene.shown('one')['id'], scene.shown('two')['id']
    shutil.copy(scene.dir / 'key', scene.dir / 'key.copy')

    def must_fail(why, *words):
        done = scene.ctl(*words, ok=False)
        print(f'    {done.stderr.strip()}')
        if not done.returncode or why not in done.stderr or len(done.stderr.strip().splitlines()) != 1:
            raise Failed(f'{words}: {done.stderr}')
    must_fail('detach', 'rm', '--secure', one)
    scene.end(pid)
    wait_until(lambda: not scene.ctl('memory', 'status', '--json').stdout.count('pid-'), 'the end of the context')
    wait_until(lambda: scene.ctl('rm', '--secure', one, ok=False).stderr.count('flatten'), 'the end of its lease', 30)
    must_fail('flatten', 'rm', '--secure', one)
    # the context's units are encrypted with another key than the checkpoint's own
    must_fail('flatten', 'export', '--oci', two, scene.dir / 'layout')
    scene.ctl('flatten', two)
    scene.ctl('export', '--oci', two, scene.dir / 'layout')
    scene.ctl('rm', '--secure', one)
    if not scene.criu('restore', 'one', '-d', ok=False).returncode:
        raise Failed('restored what was erased')
    scene.whole(1)
    scene.restore('two', pid)
    scene.ask(pid)
    scene.end(pid)


@case
def forged(scene, args):
    """Units of a checkpoint are changed on the device: verify and the restore refuse that checkpoint, and no other."""
    scene = scene()
    program = scene.answerer(48)
    pid = program.pid
    scene.shrink(pid, 0.3)
    scene.dump(pid, 'img', '--leave-running')
    spoil(scene, 'neighbours')
    scene.end(pid)
    done = scene.ctl('verify', '--all', ok=False)
    if not done.returncode:
        raise Failed('verify sees nothing')
    wait_until(lambda: not any(os.path.exists(f'/proc/{p}') for p in scene.pids), 'the end')
    done = scene.criu('restore', 'img', '-d', ok=False)
    said = scene.errors('img', 'restore')
    print(f'    {said.split(" | ")[0]}')
    if not done.returncode or not re.search('authentic|damaged|encrypted', said):
        raise Failed(f'restored: {said}')


if __name__ == '__main__':
    sys.exit(memory.main(Encrypted, ('answerer', 'tree')))
