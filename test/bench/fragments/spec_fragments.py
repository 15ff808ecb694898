# SPDX-License-Identifier: GPL-2.0-only
"""The drives, the cells and the parts of bench-fragmentation that run in guests."""
from spec import Cell, Part

SLOW = 500
# Eight dies of one channel each and pages of 4 KiB, dealt in order of arrival: the parallel unit is 8 x 4 = 32 KiB. The drive is
# new, so nothing but arrival decides where a page lies. Writes are fast: files are laid out by them, and that is not rated.
FLASH = {'channels': 8, 'ways': 1, 'die-write': 1000, 'die-read': 400, 'channel': 800, 'filled': 'no'}
UNIT_KIB = 32


def drive(**more):
    return 'ftl:frag,size=1G,' + ','.join(f'model.{k}={v}' for k, v in {**FLASH, 'slow': SLOW, **more}.items())


def timeline(control, charged):
    # F2FS moves a file by reads of a page each, one at a time, behind those of both readers: about 0.4 s for 4 KiB
    return Cell('timeline', {'control': control, 'charged': charged, 'kib': 2048, 'seconds': 30, 'depth': 2, 'vrate': 90, 'slow': SLOW}, [drive()])


def sqlite(control, whose='sqlite'):
    """whose: the tenant whose file is fragmented, and then moved."""
    return Cell('sqlite', {'control': control, 'whose': whose, 'weights': [100, 200, 400, 800], 'kib': 4096, 'other_kib': 4096, 'seconds': 20, 'depth': 16,
                           'vrate': 90, 'slow': SLOW}, [drive()])


CELLS = {
    'distance': Cell('distance', {'distances': [4 * n for n in range(1, 19)], 'kib': 2048, 'seconds': 6, 'slow': SLOW}, [drive()]),
    # the drop comes from the drive, not from the distance: with seven dies it is at 28 and 56 KiB, and there is none
    # at 32
    'distance-seven': Cell('distance', {'distances': [4 * n for n in range(1, 19)], 'kib': 2048, 'seconds': 6, 'slow': SLOW},
                           [drive(channels=7)]),
    'sizes': Cell('sizes', {'sizes': [4, 16, 64, 128, 256], 'kib': 4096, 'seconds': 8, 'slow': SLOW}, [drive()]),
    **{f'{c}-{who}': timeline(c, who) for c in ('bfq', 'iocost') for who in ('owner', 'own')},
    **{f'sqlite-{c}': sqlite(c) for c in ('bfq', 'iocost')},
    **{f'neighbour-{c}': sqlite(c, 'fio') for c in ('bfq', 'iocost')},
    'move-f2fs': Cell('move', {'kind': 'f2fs', 'how': ['all', 'ranges'], 'kib': 8192, 'seconds': 8, 'slow': SLOW}, [drive()]),
    'move-btrfs': Cell('move', {'kind': 'btrfs', 'how': ['all', 'ranges'], 'kib': 8192, 'seconds': 8, 'slow': SLOW}, [drive()]),
    'move-ext4': Cell('move', {'kind': 'ext4', 'how': ['all'], 'kib': 8192, 'seconds': 8, 'slow': SLOW}, [drive()]),
}
PARTS = {
    'a': Part('Distance between fragments', ['distance', 'distance-seven']),
    'b': Part('Fragmented against whole, by I/O size', ['sizes']),
    'c': Part('P1 to P6 under BFQ, and defragmentation', ['bfq-owner', 'bfq-own']),
    'd': Part('P1 to P6 under io.cost, and defragmentation', ['iocost-owner', 'iocost-own']),
    'e': Part('File systems\' own tools: all of a file, or the ranges that collide', ['move-f2fs', 'move-btrfs', 'move-ext4']),
    'f': Part('SQLite beside fio, by weight, before and after defragmentation of its table', ['sqlite-bfq', 'sqlite-iocost']),
    'g': Part('The same with a whole table, before and after defragmentation of fio\'s file, as in the paper', ['neighbour-bfq', 'neighbour-iocost']),
}


def quick(cell):
    """The same with little data, to see whether it runs; the figures mean little."""
    p = dict(cell.params)
    p['kib'] = {'distance': 512, 'move': 2048}.get(cell.guest, 1024)
    p['seconds'] = {'timeline': 20, 'sqlite': 8}.get(cell.guest, 2)
    if 'weights' in p:
        p['weights'] = [100, 400]
    if 'distances' in p:
        p['distances'] = [4, 16, 28, 32, 36]
    if 'sizes' in p:
        p['sizes'] = [4, 128]
    return Cell(cell.guest, p, cell.devices, cell.limit_s)
