# SPDX-License-Identifier: GPL-2.0-only
"""Archives for znsctl import that other programs have made."""
import gzip
import hashlib
import io
import os
import shutil
import tarfile

import mallory
from case_links import IMAGE, INVENTORY, after_import, ctl, plain, refused, user_scene
from tally import tried
from ztlib import Failed
from ztscene import case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)
GOOD = [('inventory.img', INVENTORY), ('pstree.img', IMAGE + bytes(100)), ('core-1.img', IMAGE + bytes(3000)), ('pages-1.img', bytes(70000))]


def entry(name, data=b'', **fields):
    t = tarfile.TarInfo(name)
    t.size = len(data)
    for key, value in fields.items():
        setattr(t, key, value)
    return t, data


def pack(*entries, fmt=tarfile.PAX_FORMAT, **args):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=fmt, **args) as tar:
        for t, data in entries:
            tar.addfile(t, io.BytesIO(data) if t.isreg() else None)
    return out.getvalue()


def good(*more, first=(), without=()):
    return [*first, *(entry(n, d) for n, d in GOOD if n not in without), *more]


def link(name, to, kind=tarfile.SYMTYPE):
    return entry(name, type=kind, linkname=to)


def special(name, kind):
    return entry(name, type=kind, devmajor=1, devminor=5)


def header(name, **fields):
    """A raw header of a file with a right checksum; fields may be replaced: (offset, bytes)."""
    raw = bytearray(entry(name)[0].tobuf(tarfile.USTAR_FORMAT))
    for offset, data in fields.values():
        raw[offset:offset + len(data)] = data
    raw[148:156] = b' ' * 8
    raw[148:156] = b'%06o\0 ' % sum(raw)
    return bytes(raw)


def raw(*blocks):
    """The files of a good archive, followed by these blocks."""
    return b''.join(t.tobuf(tarfile.USTAR_FORMAT) + d + bytes(-len(d) % 512) for t, d in good()) + b''.join(blocks) + bytes(1024)


def pax(name, **headers):
    t, data = entry(name, b'x')
    t.pax_headers = headers
    return t, data


SIZE, MODE, TYPE = 124, 100, 156
REFUSED = {
    'a name with ..': (pack(*good(entry('../x.img', b'x'))), 'leads out'),
    'a name with .. in the middle': (pack(*good(entry('a/../../x.img', b'x'))), 'leads out'),
    'a name that ends in ..': (pack(*good(entry('a/..', b'x'))), 'leads out'),
    'a name ..': (pack(*good(entry('..', b'x'))), 'leads out'),
    'a directory ..': (pack(*good(entry('../', type=tarfile.DIRTYPE))), 'leads out'),
    'an absolute name': (pack(*good(entry('/etc/x.img', b'x'))), 'no name in a directory'),
    'an absolute inventory': (pack(entry('/inventory.img', INVENTORY), *good(without=['inventory.img'])), 'no name in a directory'),
    'a name //': (pack(*good(entry('//x.img', b'x'))), 'no name in a directory'),
    'a name of 300 bytes': (pack(*good(entry('n' * 300 + '.img', b'x'))), 'too long'),
    'a name of 64 KiB': (pack(*good(entry('n' * 65536 + '.img', b'x'))), 'too long'),
    'an absolute name in a pax header': (pack(*good(pax('x.img', path='/etc/x.img'))), 'no name in a directory'),
    'a name with .. in a pax header': (pack(*good(pax('x.img', path='../../x.img'))), 'leads out'),
    'a name with .. in a GNU header': (pack(*good(entry('../' + 'n' * 120 + '.img', b'x')), fmt=tarfile.GNU_FORMAT), 'leads out'),
    'a name with a newline': (pack(*good(entry('a\nb.img', b'x'))), 'plain ASCII'),
    'a name with an escape': (pack(*good(entry('\x1b[2J.img', b'x'))), 'plain ASCII'),
    'a name that is no ASCII': (pack(*good(entry('é.img', b'x'))), ''),
    'a name that is no UTF-8': (pack(*good(entry('x\udcff.img', b'x')), fmt=tarfile.GNU_FORMAT, encoding='utf-8', errors='surrogateescape'), ''),
    'a link for an image': (pack(*good(link('x.img', '/etc/shadow'))), 'is a link'),
    'a link for the inventory': (pack(*good(link('inventory.img', '/etc/shadow'), without=['inventory.img'])), 'is a link'),
    'a link that is overwritten': (pack(link('x.img', '/etc/passwd'), *good(entry('x.img', b'x'))), 'is a link'),
    'a hard link to another image': (pack(*good(link('x.img', 'core-1.img', tarfile.LNKTYPE))), 'hard link'),
    'a hard link to /etc/shadow': (pack(*good(link('x.img', '/etc/shadow', tarfile.LNKTYPE))), 'hard link'),
    'a hard link for the inventory': (pack(*good(link('inventory.img', 'core-1.img', tarfile.LNKTYPE), without=['inventory.img'])), 'hard link'),
    'a link called parent': (pack(*good(link('parent', '..'))), 'incremental'),
    'a link called parent to /': (pack(*good(link('parent', '/'))), 'incremental'),
    'a FIFO': (pack(*good(special('x.img', tarfile.FIFOTYPE))), 'neither file'),
    'a character device': (pack(*good(special('x.img', tarfile.CHRTYPE))), 'neither file'),
    'a block device': (pack(*good(special('x.img', tarfile.BLKTYPE))), 'neither file'),
    'an image twice': (pack(*good(entry('core-1.img', b'another'))), 'twice'),
    'the inventory twice': (pack(*good(entry('inventory.img', INVENTORY))), 'twice'),
    'an image twice, as ./': (pack(*good(entry('./core-1.img', b'another'))), 'twice'),
    'an image twice, as .//./': (pack(*good(entry('.//./core-1.img', b'another'))), 'twice'),
    'a handle': (pack(*good(entry('zns-handle.img', b'x'))), 'on a device already'),
    'a handle that is a link': (pack(*good(link('zns-handle.img', '/etc/shadow'))), 'on a device already'),
    'no inventory': (pack(*good(without=['inventory.img'])), 'no inventory.img'),
    'the inventory in a directory': (pack(*(entry('d/' + n, d) for n, d in GOOD)), 'no inventory.img'),
    'an inventory of 2 bytes': (pack(entry('inventory.img', b'\x16\x31'), *good(without=['inventory.img'])), 'no CRIU image'),
    'an empty inventory': (pack(entry('inventory.img'), *good(without=['inventory.img'])), 'no CRIU image'),
    'an inventory of something else': (pack(entry('inventory.img', b'x' * 99), *good(without=['inventory.img'])), 'no CRIU image'),
    'nothing': (b'', 'damaged or no tar'),
    'zeros': (bytes(10240), ''),
    'noise': (bytes(hashlib.shake_256(b'noise').digest(20000)), 'damaged or no tar'),
    'a text': (b'hello\n' * 2000, 'damaged or no tar'),
    'an inventory and no archive': (INVENTORY * 100, 'damaged or no tar'),
    'cut in a header': (pack(*good())[:700], 'damaged or no tar'),
    'cut in a file': (pack(*good())[:5000], ''),
    'cut in the pages': (pack(*good())[:30000], ''),
    'a size of 8 GiB less one': (raw(header('x.img', size=(SIZE, b'77777777777\0'))), 'damaged or no tar'),
    'a size of 2^63 - 1': (raw(header('x.img', size=(SIZE, b'\x80\0\0\0' + b'\x7f' + b'\xff' * 7))), ''),
    'a size below zero': (raw(header('x.img', size=(SIZE, b'\xff' * 12))), ''),
    'a size of 2^88': (raw(header('x.img', size=(SIZE, b'\x80' + b'\xff' * 11))), ''),
    'a size that is no number': (raw(header('x.img', size=(SIZE, b'hello world\0')), b'x' * 512), ''),
    'sizes whose sum overflows': (raw(*(header(f'x{n}.img', size=(SIZE, b'\x80\0\0\0' + b'\x3f' + b'\xff' * 7)) for n in range(4))), ''),
    'a size of 2^62 in a pax header': (pack(*good(pax('x.img', size=str(1 << 62)))), ''),
    'a size below zero in a pax header': (pack(*good(pax('x.img', size='-1'))), ''),
    'a sparse file of 2^60': (pack(*good(pax('x.img', **{'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'y.img',
                                                         'GNU.sparse.realsize': str(1 << 60)}))), ''),
    'a pax header without an end': (raw(header('x', type=(TYPE, b'x'), size=(SIZE, b'00000000020\0')), b'999999 path=x\n'.ljust(512, b'\0')), ''),
    'a pax header of 1 GiB': (raw(header('x', type=(TYPE, b'x'), size=(SIZE, b'10000000000\0'))), 'damaged or no tar'),
    'a name of 1 GiB': (raw(header('x', type=(TYPE, b'L'), size=(SIZE, b'10000000000\0'))), 'damaged or no tar'),
    'a wrong checksum': (raw(header('x.img')[:148] + b'0000000\0' + header('x.img')[156:]), 'damaged or no tar'),
}


def of_zip(data):
    import zipfile
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z:
        for n, d in GOOD:
            z.writestr(n, d)
    return out.getvalue()


def write(scene, name, data):
    at = scene.home / name
    at.write_bytes(data)
    os.chown(at, mallory.UID, mallory.UID)
    return at


@case
def archive_refused(scene):
    """Names that lead elsewhere, links, devices, huge lengths, files that appear twice, archives cut short: refused in one line."""
    scene = user_scene(scene)
    free = scene.device.free_zones()
    for what, (data, pattern) in REFUSED.items():
        refused(scene, what, pattern, 'import', write(scene, 'x.tar', data), '--handle', scene.home / 'out')
        tried(f'import of a tar: {what}')
    packed = gzip.compress(pack(*good()), 1)
    for what, data, pattern in (('cut', packed[:len(packed) // 2], ''), ('one byte', packed[:1], ''), ('of noise', gzip.compress(b'x' * 5000), 'damaged'),
                                ('a zip', of_zip(GOOD), 'damaged'), ('a wrong block', packed[:200] + bytes(40) + packed[240:], ''),
                                ('64 MiB in one name', gzip.compress(pack(*good(entry('n' * (64 << 20), b'x'))), 1), ''),
                                ('600 MiB of zeros', bomb(600), 'no space'), ('8 GiB of which 64 MiB are there', bomb(64), '')):
        refused(scene, what, pattern, 'import', write(scene, 'x.tgz', data))
        tried(f'import of a tgz: {what}')
    if (scene.home / 'out').exists() or scene.device.free_zones() < free:
        raise Failed('something stays of an archive that was refused')


def bomb(mib):
    """A file of zeros that is larger than the device; only @mib MiB of it are allocated."""
    size = b'%011o\0' % (600 << 20) if mib == 600 else b'77777777777\0'
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode='wb', compresslevel=1) as z:
        z.write(raw(header('x.img', size=(SIZE, size)))[:-1024])
        for _ in range(mib):
            z.write(bytes(1 << 20))
    return out.getvalue()


TAKEN = {
    'plain': pack(*good()),
    'ustar': pack(*good(), fmt=tarfile.USTAR_FORMAT),
    'GNU': pack(*good(), fmt=tarfile.GNU_FORMAT),
    'as tar -C DIR . makes it': pack(entry('./', type=tarfile.DIRTYPE, mode=0o755), *(entry('./' + n, d) for n, d in GOOD)),
    'with other files': pack(*good(entry('dump.log', b'x'), entry('d/', type=tarfile.DIRTYPE), entry('d/x.img', b'x'), link('log', '/etc/shadow'))),
    'with parents that are left out': pack(*good(entry('parents/1/x.img', b'x'), link('parents/1/parent', '../2'))),
    'with modes and owners of all kinds': pack(*(entry(n, d, mode=0o6777, uid=0, gid=0, uname='root') for n, d in GOOD)),
    'with rubbish behind its end': pack(*good()) + b'rubbish' * 1000,
    'with an image in another order': pack(*reversed(good())),
}


@case
def archive_taken(scene):
    """Archives in forms that export does not write: the images are the same, copies have mode 0600, and nothing is unpacked elsewhere."""
    scene = user_scene(scene)
    out, back = scene.home / 'out', scene.home / 'back'
    for what, data in TAKEN.items():
        for name, content in (('job.tar', data), ('job.tgz', gzip.compress(data, 1)), ('job.tar.gz', gzip.compress(data, 1))):
            before = sorted(p.name for p in scene.home.iterdir())
            said = scene.device.json('import', str(write(scene, name, content)), '--handle', str(out))
            expect(f'{what}: container and images', (said['container'], said['images']), ('job', len(GOOD)))
            run_ctl(scene, 0, 'export', said['id'], str(back))
            expect(what, sorted((p.name, p.read_bytes()) for p in back.iterdir()), sorted(GOOD))
            expect(f'{what}: differing copies', scene.device.json('show', str(out))['handle']['differ'], 0)
            shutil.rmtree(back)
            (scene.home / name).unlink()
            for p in out.iterdir():
                expect(f'{what}: mode of {p.name}', p.lstat().st_mode, 0o100600)
            shutil.rmtree(out)
            expect('files beside the archive', sorted(p.name for p in scene.home.iterdir()), before)
            scene.device.remove(said['id'])
            tried(f'import of {name}, {what}')


@case
def archive_files(scene):
    """The archive is a link, a FIFO, a hard link to root's file, leased, or changed while it is read."""
    scene = user_scene(scene)
    at = scene.home / 'x.tar'
    for kind, make, pattern in (('link', lambda: os.symlink(scene.vault.file, at), 'is a link'), ('FIFO', lambda: os.mkfifo(at), 'no regular file'),
                                ('socket', lambda: os.mknod(at, 0o140600), 'no regular file'), ('missing', lambda: None, 'No such file'),
                                ('/dev/zero', lambda: os.symlink('/dev/zero', at), 'is a link'), ('empty', lambda: at.write_bytes(b''), 'damaged or no tar')):
        mallory.does(make)
        refused(scene, kind, pattern, 'import', at)
        at.unlink(missing_ok=True)
        tried(f'import of an archive: {kind}')
    os.link(scene.vault.file, at)
    refused(scene, 'hard link', 'hard link', 'import', at)
    at.unlink()
    tried('import of an archive: hard link')
    write(scene, 'x.tar', pack(*good()))
    with mallory.holds(lambda: mallory.leased(at)):
        refused(scene, 'leased', 'lease', 'import', at)
    tried('import of an archive: leased')
    write(scene, 'other', pack(*good(entry('more.img', b'x' * 9999), without=['core-1.img'])))
    for n in range(8):
        def rewrite():
            with open(at, 'r+b') as f, open(scene.home / 'other', 'rb') as g:
                f.write(g.read())
            with open(at, 'r+b') as f:
                f.write(whole)
        whole = pack(*good())
        with mallory.keeps(rewrite):
            done = ctl(scene, 'import', at)
        after_import(scene, f'rewritten, round {n}', done, scene.home / 'none')
        tried(f'import of an archive: rewritten, round {n}')
    at.write_bytes(whole)
    mallory.does(lambda: os.symlink(scene.vault.file, scene.home / 'swap'))
    for nth in (1, 2, 3):
        env = mallory.worst(scene.dir, scene.device.env, 'x.tar', nth, at, scene.home / 'swap')
        after_import(scene, f'opening {nth}', ctl(scene, 'import', at, env=env), scene.home / 'none')
        if at.is_symlink():
            mallory.does(lambda: mallory.exchange(at, scene.home / 'swap'))
        tried(f'import of an archive, at the worst moment: opening {nth}')


@case
def archive_round(scene):
    """export to .tar, .tgz and .tar.gz: import reads what export writes, and tar unpacks it."""
    scene = user_scene(scene)
    ident = scene.device.json('import', str(plain(scene.home / 'more', big=3 << 20)))['id']
    want = {p.name: p.read_bytes() for p in (scene.home / 'more').iterdir()}
    for name in ('a.tar', 'a.tgz', 'a.tar.gz'):
        at = scene.home / name
        run_ctl(scene, 0, 'export', ident, str(at))
        expect('gzip', at.read_bytes()[:2] == b'\x1f\x8b', name != 'a.tar')
        expect('mode', at.lstat().st_mode, 0o100600)
        with tarfile.open(at) as tar:
            expect(name, {m.name: tar.extractfile(m).read() for m in tar.getmembers()}, want)
        again = scene.device.json('import', str(at))['id']
        run_ctl(scene, 0, 'export', again, str(scene.home / 'back'))
        expect(name, {p.name: p.read_bytes() for p in (scene.home / 'back').iterdir()}, want)
        shutil.rmtree(scene.home / 'back')
        tried(f'export to {name} and back')
    run_ctl(scene, 2, 'import', '--join', str(scene.home / 'a.tar'))
    tried('import --join of an archive')
