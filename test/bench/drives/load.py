# SPDX-License-Identifier: GPL-2.0-only
"""Runs in a guest: fio as normal I/O, on zones of its own or in files, and the kernel's schedulers and control groups that can protect it."""
import re
import signal
import subprocess
import time
from pathlib import Path

from scene import FIO, LIMIT_S, MIB, WORK, Failed, Group, run
from spec import KEPT


def jobs_on(device, zones, size):
    return [{'filename': device, 'zonemode': 'zbd', 'offset': z * size, 'size': size} for z in zones]


def on_zones(way, nr):
    """fio on one zone of each group that no dump gets; it resets the zone when that is full, and continues."""
    reserved = way.ctl('reserve', 'normal-io', '--groups', nr)['groups']
    status, table = way.ctl('status')['geometry'], {g['id']: g['zones'] for g in way.ctl('groups')['groups']}
    first = [[z for z in table[g] if z >= status['metadata_zones']][-1] for g in reserved]
    return jobs_on(way.device, first, status['zone_size'])


def on_another(device, nr):
    """The same on a drive that nothing else writes: the first zones are on dies of their own."""
    size = int(Path(f'/sys/class/block/{Path(device).name}/queue/chunk_sectors').read_text()) << 9
    return jobs_on(device, range(nr), size)


def in_files(way, nr, mib):
    """Files that have been written before, so that later writes overwrite them."""
    for i in range(nr):
        run('dd', 'if=/dev/urandom', f'of={way.at}/normal-io.{i}', 'bs=1M', f'count={mib}', 'oflag=direct')
    return [{'filename': way.at / f'normal-io.{i}'} for i in range(nr)]


def on_drive(places):
    """[(first, end)] of these files on the drive, in bytes. They are overwritten in place."""
    found = []
    for place in places:
        if 'offset' in place:
            found.append((place['offset'], place['offset'] + place['size']))
            continue
        for line in run('filefrag', '-v', '-b4096', place['filename']).splitlines():
            words = re.findall(r'[0-9]+', line)
            if re.match(r' *[0-9]+: ', line):
                found.append((int(words[3]) * 4096, (int(words[4]) + 1) * 4096))
    return found


class Fio:
    """One fio with several jobs that runs until it is stopped. Every I/O is recorded as (s of the monotonic clock at its end, s that it took)."""
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
        """I/Os of all jobs, in the order of their ends."""
        return sorted(io for job in self.stop_jobs() for io in job)

    def stop_jobs(self):
        """For each job."""
        self.proc.send_signal(signal.SIGINT)
        try:
            self.proc.wait(120)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise Failed('fio does not end') from None
        self.out.close()
        ahead, jobs = time.time() - time.monotonic(), []
        for log in Path(WORK).glob(f'{self.tag.name}_lat.*.log'):
            lines = [line.split(',') for line in log.read_text().splitlines()]
            jobs.append(sorted((int(words[0]) / 1e3 - ahead, int(words[1]) / 1e9) for words in lines))
            log.unlink()
        for log in Path(WORK).glob(f'{self.tag.name}_[cs]lat.*.log'):
            log.unlink()
        if not any(jobs):
            raise Failed(f'fio did nothing: {Path(f"{self.tag}.out").read_text()[-500:]}')
        return jobs


def not_filled(jobs, bs, place):
    """When a job has filled its zone it resets it, so a reset would be measured then."""
    if place.get('zonemode') and max(map(len, jobs)) * bs >= place['size']:
        raise Failed(f'a zone of {place["size"] >> 20} MiB was filled and reset')


# ---- what protects normal I/O --------------------------------------------------------------------------

def scheduler(way, name):
    Path(f'/sys/block/{Path(way.device).name}/queue/scheduler').write_text(name)


def coefficients(way):
    """The parameters of a drive that io.cost needs, measured by fio on a file, as its documentation says."""
    got = {}
    for key, rw, bs, depth in (('wbps', 'write', 1024, 4), ('wseqiops', 'write', 4, 32), ('wrandiops', 'randwrite', 4, 32),
                               ('rbps', 'read', 1024, 4), ('rseqiops', 'read', 4, 32), ('rrandiops', 'randread', 4, 32)):
        load = Fio([{'filename': way.at / 'normal-io.0'}], rw, bs, depth=depth)
        time.sleep(6)
        ios = load.stop()
        took = max(0.5, ios[-1][0] - ios[0][0] + ios[0][1])
        got[key] = max(1, round(len(ios) * (load.bs if key.endswith('bps') else 1) / took))
    return got


def weigh(file, dumps):
    for group, weight in [(Group('normal-io'), KEPT[0])] + [(g, KEPT[1]) for g in dumps]:
        group.set(file, f'{weight}')


def by_bfq(way, dumps, p):
    """
    With times of its own. They are those of a real drive, and this one is slower; but with times that are 20 or 100 times as long it
    idles so long after each request of fio's that five dumps had not ended after five and nine minutes.
    """
    said = {'low_latency': 0, 'max_budget': 2048, 'timeout_sync': 125, 'slice_idle': 8}
    for key, value in said.items():
        Path(f'/sys/block/{Path(way.device).name}/queue/iosched/{key}').write_text(f'{value}')
    weigh('io.bfq.weight', dumps)
    return said


def by_io_max(way, dumps, p):
    for g in dumps:
        g.set('io.max', f'{way.number} wbps={p["limit"] * MIB // p["slow"]}')
    return {}


def by_io_cost(way, dumps, p):
    """
    At 25 to 100 % of the model, as latency has it: twice the p95 of normal I/O alone is late. In the other setting pinned at 90 %,
    whatever latency is: then it holds back what the model does not allow.
    """
    model = p['model'] = p.get('model') or coefficients(way)
    root, late = Group('.'), round(p['late_s'] * 1e6)
    root.set('io.cost.model', f'{way.number} ctrl=user model=linear ' + ' '.join(f'{k}={v}' for k, v in model.items()))
    pinned = p['setting'] != 'io.cost'
    said = {'rpct': 0, 'rlat': 50000, 'wpct': 0, 'wlat': 50000, 'min': 90, 'max': 90} if pinned else \
        {'rpct': 95, 'rlat': late, 'wpct': 95, 'wlat': late, 'min': 25, 'max': 100}
    root.set('io.cost.qos', f'{way.number} enable=1 ctrl=user ' + ' '.join(f'{k}={v}' for k, v in said.items()))
    Path('/sys/module/blk_cgroup/parameters/blkcg_debug_stats').write_text('Y')     # cost.wait
    weigh('io.weight', dumps)
    return {**model, **said}


def by_io_latency(way, _dumps, p):
    Group('normal-io').set('io.latency', f'{way.number} target={round(p["late_s"] * 1e6)}')
    return {'target_us': round(p['late_s'] * 1e6)}


PROTECTIONS = {'bfq': by_bfq, 'io.max': by_io_max, 'io.cost': by_io_cost, 'io.cost at 90 %': by_io_cost, 'io.latency': by_io_latency}


def built(setting):
    return setting != 'io.latency' or (Group('normal-io').path / 'io.latency').exists()


def protect(way, setting, dumps, p):
    """Applies the setting of that name; returns what was set. dumps: the control groups of all dumps. p has the measurements for it."""
    scheduler(way, setting if setting in ('none', 'mq-deadline', 'bfq') else 'none')
    p['setting'] = setting
    return PROTECTIONS[setting](way, dumps, p) if setting in PROTECTIONS else {}


def held_back(way, dumps):
    """Seconds for which io.cost has delayed requests: of normal I/O, of all dumps."""
    return [sum(g.counted(way.number, 'cost.wait') for g in groups) / 1e6 for groups in ([Group('normal-io')], dumps)]


def unprotect(way, dumps):
    normal = Group('normal-io')
    for g in [normal, *dumps]:
        for file in ('io.bfq.weight', 'io.weight'):
            if (g.path / file).exists():
                g.set(file, '100')
    for g in dumps:
        g.set('io.max', f'{way.number} wbps={way.limit() or "max"}')
    if (normal.path / 'io.latency').exists():
        normal.set('io.latency', f'{way.number} target=0')
    if (Group('.').path / 'io.cost.qos').exists():
        Group('.').set('io.cost.qos', f'{way.number} enable=0')
