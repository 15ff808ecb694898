# SPDX-License-Identifier: GPL-2.0-only
"""In a guest: fio as normal I/O, on zones of its own or in files, and what schedulers and control groups offer against others."""
import signal
import subprocess
import time
from pathlib import Path

from scene import FIO, LIMIT_S, MIB, WORK, Failed, Group, run

KEPT = 1000, 100    # weights: normal I/O, dumps


def on_zones(way, nr):
    """One zone each of groups that no dump gets; fio resets it when it is full and goes on."""
    reserved = way.ctl('reserve', 'normal-io', '--groups', nr)['groups']
    status, table = way.ctl('status')['geometry'], {g['id']: g['zones'] for g in way.ctl('groups')['groups']}
    first = [[z for z in table[g] if z >= status['metadata_zones']][-1] for g in reserved]
    size = status['zone_size']
    return [{'filename': way.device, 'zonemode': 'zbd', 'offset': z * size, 'size': size} for z in first]


def in_files(way, nr, mib):
    """Files that have been written before: what follows overwrites."""
    for i in range(nr):
        run('dd', 'if=/dev/urandom', f'of={way.at}/normal-io.{i}', 'bs=1M', f'count={mib}', 'oflag=direct')
    return [{'filename': way.at / f'normal-io.{i}'} for i in range(nr)]


class Fio:
    """One fio of several jobs that runs until it is stopped; every I/O as (s of the monotonic clock when it was done, s it took)."""
    serial = 0

    def __init__(self, places, rw, bs_kib, rate=None, depth=1):
        Fio.serial += 1
        self.tag, self.bs = WORK / f'fio{Fio.serial}', bs_kib << 10
        shared = {'ioengine': 'libaio', 'direct': 1, 'rw': rw, 'bs': f'{bs_kib}k', 'iodepth': depth, 'time_based': 1, 'runtime': LIMIT_S,
                  'overwrite': 0, 'randrepeat': 1, 'log_unix_epoch': 1, 'allow_mounted_write': 1, 'write_lat_log': self.tag,
                  **({'rate': rate} if rate else {})}
        words = [f'--{k}={v}' for k, v in shared.items()]
        for i, place in enumerate(places):
            words += [f'--name=job{i}', *(f'--{k}={v}' for k, v in place.items())]
        self.out = open(f'{self.tag}.out', 'wb')
        self.proc = self.launch([FIO, '--eta=never', *words])

    def launch(self, command):
        return Group('normal-io').popen(command, stdout=self.out, stderr=self.out, cwd=WORK)

    def stop(self):
        self.proc.send_signal(signal.SIGINT)
        try:
            self.proc.wait(120)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise Failed('fio does not end') from None
        self.out.close()
        ahead, ios = time.time() - time.monotonic(), []
        for log in Path(WORK).glob(f'{self.tag.name}_lat.*.log'):
            for line in log.read_text().splitlines():
                words = line.split(',')
                ios.append((int(words[0]) / 1e3 - ahead, int(words[1]) / 1e9))
            log.unlink()
        for log in Path(WORK).glob(f'{self.tag.name}_[cs]lat.*.log'):
            log.unlink()
        if not ios:
            raise Failed(f'fio did nothing: {Path(f"{self.tag}.out").read_text()[-500:]}')
        return sorted(ios)


# ---- what protects normal I/O --------------------------------------------------------------------------

def scheduler(way, name):
    Path(f'/sys/block/{Path(way.device).name}/queue/scheduler').write_text(name)


def coefficients(way):
    """What io.cost wants to know of a drive, measured as its documentation says: by fio, on a file."""
    got = {}
    for key, rw, bs, depth in (('wbps', 'write', 1024, 4), ('wseqiops', 'write', 4, 32), ('wrandiops', 'randwrite', 4, 32),
                               ('rbps', 'read', 1024, 4), ('rseqiops', 'read', 4, 32), ('rrandiops', 'randread', 4, 32)):
        load = Fio([{'filename': way.at / 'normal-io.0'}], rw, bs, depth=depth)
        time.sleep(6)
        ios = load.stop()
        took = max(0.5, ios[-1][0] - ios[0][0] + ios[0][1])
        got[key] = max(1, round(len(ios) * (load.bs if key.endswith('bps') else 1) / took))
    return got


def protect(way, setting, dumps, p):
    """Sets what is called so, and returns what was set. dumps: the groups of all dumps."""
    normal = Group('normal-io')
    scheduler(way, setting if setting in ('none', 'mq-deadline', 'bfq') else 'none')
    if setting == 'bfq':
        for group, weight in [(normal, KEPT[0])] + [(g, KEPT[1]) for g in dumps]:
            group.set('io.bfq.weight', f'{weight}')
    elif setting == 'io.max':
        for g in dumps:
            g.set('io.max', f'{way.number} wbps={p["limit"] * MIB // p["slow"]}')
    elif setting == 'io.cost':
        model = coefficients(way)
        root = Group('.')
        root.set('io.cost.model', f'{way.number} ctrl=user model=linear ' + ' '.join(f'{k}={v}' for k, v in model.items()))
        late = round(p['late_s'] * 1e6)
        root.set('io.cost.qos', f'{way.number} enable=1 ctrl=user rpct=95 rlat={late} wpct=95 wlat={late} min=25 max=100')
        for group, weight in [(normal, KEPT[0])] + [(g, KEPT[1]) for g in dumps]:
            group.set('io.weight', f'{weight}')
        return {**model, 'wlat_us': late}
    return {}


def unprotect(way, dumps):
    for g in [Group('normal-io'), *dumps]:
        for file, value in (('io.bfq.weight', '100'), ('io.weight', '100')):
            if (g.path / file).exists():
                g.set(file, value)
    for g in dumps:
        g.set('io.max', f'{way.number} wbps={way.cap * MIB if way.cap else "max"}')
    if (Group('.').path / 'io.cost.qos').exists():
        Group('.').set('io.cost.qos', f'{way.number} enable=0')
