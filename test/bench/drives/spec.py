# SPDX-License-Identifier: GPL-2.0-only
"""The drives, the cells that run on them, and the parts that cells belong to."""
from dataclasses import dataclass, field

KERNEL = '6.12'
SLOW = 100      # the one scale: rates of a real drive are divided by it, and latencies multiplied
SHRINK = 4      # the papers' sizes are divided by this
KEPT = 1000, 100    # weights of control groups: normal I/O, each dump
FLASH = {'channels': 8, 'ways': 4, 'die-write': 120, 'die-read': 400, 'channel': 800}   # MiB/s, of all drives
# Written over and over before, at random, with 20 % more flash than the host sees. It collects garbage while it is idle, three
# blocks of 1 MiB for each die ahead; what is written beyond that waits for it.
USED = {'filled': 'random', 'spare': 20, 'idle-blocks': 6}


def model(slow, **more):
    return ','.join(f'model.{k}={v}' for k, v in {**FLASH, 'slow': slow, **more}.items())


def zoned(name, slow=SLOW, size='2G', zone='16M', **flash):
    return f'dies:{name},size={size},zone={zone},{model(slow, **flash)}'


def conventional(name, slow=SLOW, size='2G', **more):
    return f'ftl:{name},size={size},{model(slow, **{**USED, **more})}'


@dataclass
class Cell:
    guest: str          # of cells.py
    params: dict
    devices: list
    limit_s: int = 1800


@dataclass
class Part:
    title: str
    cells: list = field(default_factory=list)
    # run only when this part is named: with these cells all parts together would take too long
    more: list = field(default_factory=list)

    def all(self):
        return self.cells + self.more


def scaling(slow, mib=24, groups=(1, 2, 4, 8), **flash):
    return Cell('scaling', {'slow': slow, 'shrink': SHRINK, 'mib': mib, 'rounds': 2, 'groups': list(groups)}, [zoned('zones', slow, **flash)])


def five(ways, devices, slow=SLOW, rounds=2, **more):
    return Cell('five', {'ways': ways, 'slow': slow, 'shrink': SHRINK, 'rounds': rounds, **more}, devices, 3600)


# fio writes 80 MiB/s to each of its zones. In zones of 16 MiB it would wait for its own reset every 0.2 s, 3 ms of a die, dump or no dump.
# In Docker the commands take longer, and so does fio.
ROOMY = {'size': '8G', 'zone': '128M'}
ROOMIER = {'size': '16G', 'zone': '256M'}


def beside(way, devices, slow=SLOW, **more):
    return Cell('beside', {'ways': [way], 'slow': slow, 'shrink': SHRINK, 'mib': 107, 'rate': 400, 'bs_kib': 64, 'alone_s': 25, 'dumps': 2,
                           **more}, devices, 3600)


def soft(way, device, slow=SLOW, settings=()):
    """All five dumps at once, while the model records each request."""
    return Cell('beside', {'ways': [way], 'slow': slow, 'shrink': SHRINK, 'rate': 400, 'bs_kib': 64, 'alone_s': 14,
                           **({'settings': list(settings), 'limit': 200} if settings else {})}, [device], 1800)


def soft_zones(slow=SLOW, apart=False):
    big = {'slow': slow, **ROOMY, 'requests': 1}
    cell = soft('zones', zoned('zones', **big), slow)
    if apart:
        cell.params['apart'] = 'apart'
        cell.devices.append(zoned('apart', **big))
    return cell


def docker(way, device):
    return Cell('docker', {'ways': [way], 'slow': SLOW, 'shrink': SHRINK, 'mib': 107, 'rate': 400, 'bs_kib': 64, 'alone_s': 25, 'dumps': 2},
                [device], 3600)


# I/O size in KiB, rate in MiB/s (None: as fast as it can), dumps at once; each list is a guest. The rates are those that the
# emulated processor can carry in such requests. The paper's containers at once are swept at 192 KiB; one of them stands above.
SIZES = [(4, 40, 1), (16, 120, 1), (64, 240, 1), (192, 240, 1), (1024, 240, 1)]
RATES = [(16, 40, 1), (16, 240, 1), (64, None, 1)]
MANY = [(192, 240, 2), (192, 240, 4), (192, 240, 8)]
SMALL = [SIZES[0], SIZES[1], SIZES[2], RATES[0]]


def random(way, device, points):
    return Cell('kcc', {'ways': [way], 'slow': SLOW, 'shrink': SHRINK, 'mib': 24, 'alone_s': 8, 'points': points}, [device], 1800)


LARGE = {'channels': 8, 'ways': 1, 'map': 'shared'}     # every zone on every die: any writer can have 960 MiB/s


# A write of fio's is a program unit of a die, so that no writer's rate depends on where in a unit a span begins. A zone has room
# for more than a writer writes: a reset takes a die 3 ms, and a writer that waits for its own is not held up by another.
def writers(way, device, cases, slow=SLOW, **more):
    return Cell('writers', {'ways': [way], 'slow': slow, 'gap_s': 12, 'bs_kib': 192, 'zone_mib': 128, 'cases': cases, **more}, [device])


RESTORES = {'shrink': SHRINK, 'mib': 40, 'others_mib': 120, 'rounds': 2}
CELLS = {
    'scaling': scaling(SLOW),
    'scaling-half': scaling(2 * SLOW, 12),
    # eight groups that share their dies: the map used for formatting is wrong
    'scaling-one-die': scaling(SLOW, 6, (1, 8), channels=1, ways=1),
    'five': five(['zones', 'ext4', 'f2fs'], [zoned('zones'), conventional('ext4'), conventional('f2fs')], warm=True, saturate_s=60),
    'five-half': five(['zones'], [zoned('zones', 2 * SLOW)], 2 * SLOW, 1),
    'five-fresh': five(['fresh'], [conventional('fresh', filled='no')], rounds=1),
    # a drive closer to the papers' used ones: 24 such dies without idle time. fio says how much it writes.
    'five-1000': five(['ext4'], [conventional('ext4', ways=3, **{'idle-blocks': 0})], rounds=2, warm=True, saturate_s=60),
    'beside': beside('zones', [zoned('zones', **ROOMY)]),
    'beside-half': beside('zones', [zoned('zones', 2 * SLOW, **ROOMY)], 2 * SLOW, dumps=1),
    'beside-software': beside('ext4', [conventional('ext4')], settings=['none', 'mq-deadline', 'bfq', 'io.max', 'io.cost'], limit=200),
    'soft-zones': soft_zones(),
    'soft-zones-half': soft_zones(2 * SLOW),
    # the control for what grows outside the drive: fio and the dumps use different drives
    'soft-apart': soft_zones(apart=True),
    'soft-apart-half': soft_zones(2 * SLOW, apart=True),
    'soft-f2fs': soft('f2fs', conventional('f2fs'), settings=['none']),
    'docker-zones': docker('zones', zoned('zones', **ROOMIER)),
    'docker-ext4': docker('ext4', conventional('ext4')),
    'docker-f2fs': docker('f2fs', conventional('f2fs')),
    'file-systems': five(['zones', 'zonefs', 'f2fs-zoned'], [zoned('zones'), zoned('zonefs'), zoned('zoned'),
                                                             f'ftl:meta,size=512M,{model(SLOW)}'], rounds=1, shrink=2 * SHRINK,
                         drive={'f2fs-zoned': 'zoned'}),
    'restores': Cell('restores', {**RESTORES, 'slow': SLOW, 'ways': ['zones', 'ext4'], 'idle': True,
                                  'cases': [('zones', 'static'), ('zones', 'dynamic'), ('ext4', '')]}, [zoned('zones'), conventional('ext4')], 3600),
    'restores-half': Cell('restores', {**RESTORES, 'slow': 2 * SLOW, 'ways': ['zones'], 'idle': False, 'cases': [('zones', 'static')]},
                          [zoned('zones', 2 * SLOW)], 3600),
}
# each die on a channel of its own, so that reserved groups are also reserved channels
OWN = {'channels': 32, 'ways': 1, 'requests': 1}
for part, points in (('', SIZES), ('-rates', RATES), ('-many', MANY)):
    CELLS[f'random-zones{part}'] = random('zones', zoned('zones', size='8G', zone='64M', **OWN), points)
    CELLS[f'random-ext4{part}'] = random('ext4', conventional('ext4', **OWN), points)
# the same, but its buffer survives a power cut, so a commit's flush costs nothing: is the flush the cause of the
# latency?
CELLS['random-zones-buffer'] = random('zones', zoned('zones', size='8G', zone='64M', flush='buffer', **OWN), SMALL)
# one guest for each, so that an interrupted run has some of them
SETTINGS = {'none': ['none', 'mq-deadline'], 'bfq': ['bfq'], 'limits': ['io.max', 'io.latency'], 'iocost': ['io.cost', 'io.cost at 90 %']}
for name, settings in SETTINGS.items():
    CELLS[f'soft-{name}'] = soft('ext4', conventional('ext4', requests=1), settings=settings)
CELLS.update({
    'writers': writers('zones', zoned('zones', size='4G', zone='128M'), [('one zone each', 1), ('striped over five zones each', 5)]),
    'writers-large': writers('zones', zoned('zones', size='4G', zone='512M', **LARGE), [('one large zone each', 1)], zone_mib=512),
    'writers-conventional': writers('ext4', conventional('ext4'), [('a part each', 1)]),
})
# In the order of importance, so that an interrupted run has the most important ones.
PARTS = {
    'b': Part('Five dumps of the papers\' sizes, alone and at once', ['five', 'five-1000', 'five-half', 'five-fresh']),
    'c': Part('Normal I/O beside a checkpoint: zones, and what schedulers and control groups offer',
              ['beside', 'beside-half', 'beside-software']),
    'h': Part('docker checkpoint create beside a container with fio', ['docker-zones', 'docker-ext4'], ['docker-f2fs']),
    'a': Part('N groups against one', ['scaling', 'scaling-half', 'scaling-one-die']),
    'e': Part('F2FS on zones, zonefs, raw zones', ['file-systems']),
    'd': Part('Random writes beside checkpoints, as in KCC 2022', ['random-ext4', 'random-zones', 'random-ext4-many', 'random-zones-many'], ['random-zones-buffer', 'random-ext4-rates', 'random-zones-rates']),
    'g': Part('Five writers, one after another', ['writers', 'writers-large', 'writers-conventional']),
    's': Part('Normal I/O beside five checkpoints at once: zones, and what schedulers and control groups offer',
              [], ['soft-zones', 'soft-apart', 'soft-zones-half', 'soft-apart-half', *(f'soft-{name}' for name in SETTINGS), 'soft-f2fs']),
    'f': Part('A restore beside dumps: static and dynamic allocation', ['restores', 'restores-half']),
}


def half(cell):
    """The same at half the rate: if the figures differ, the emulated processor was the bottleneck."""
    slow = cell.params['slow']
    return Cell(cell.guest, {**cell.params, 'slow': 2 * slow}, [d.replace(f'model.slow={slow}', f'model.slow={2 * slow}') for d in cell.devices],
                2 * cell.limit_s)


def quick(cell):
    """The same with little data, to see whether it runs; the figures mean nothing."""
    p, most = dict(cell.params), {'rounds': 1, 'alone_s': 6, 'dumps': 1, 'gap_s': 3, 'saturate_s': 12}
    p.update({k: min(v, p[k]) for k, v in most.items() if k in p})
    if 'mib' in p:
        p['mib'] = max(6, p['mib'] // 4)
    if cell.guest == 'five':
        p['shrink'] = 2 * SHRINK
    p.pop('warm', None)
    if 'points' in p:
        p['points'] = p['points'][1::4]
    return Cell(cell.guest, p, cell.devices, cell.limit_s)
