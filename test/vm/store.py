#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
The store on one real device: znsctl and a Redis that is dumped and restored, with blkzone as a witness.

  store.py NODE       /dev/nvmeXnY, /dev/ngXnY or another zoned block device; all its data are lost
"""
import argparse
import re
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'test' / 'zonetests'))

import ztlib                                                            # noqa: E402  (its place is not installed)
from ztlib import Failed, HANDLE, alive, wait_until                     # noqa: E402
from ztredis import RedisTask                                           # noqa: E402
from ztscene import Outcome                                             # noqa: E402
import witness                                                          # noqa: E402

GROUPS = 8
ZONE_BW = 50            # MiB/s, told to format


class Run:
    """One device, and the cases in their order: each goes on from where the one before left it."""

    def __init__(self, cfg, node):
        self.cfg, self.node = cfg, node
        self.block = Path(re.sub(r'^/dev/ng', '/dev/nvme', node))
        self.device = cfg.device = ztlib.Device(cfg, directory=cfg.base / 'device', spec=node)
        self.device.env['ZNSD_IDLE_S'] = '600'  # a new broker would close the zones that limit_taken opens
        self.first = self.second = None         # checkpoints
        self.tasks, self.calls = [], 0
        self.zones_of = {}

    # ---- tools ----

    def queue(self, name):
        return int((Path('/sys/block') / self.block.name / 'queue' / name).read_text())

    def log(self, what):
        self.calls += 1
        return self.cfg.base / f'{what}-{self.calls}.log'

    def refused(self, pattern, *args):
        """znsctl says no, in one line."""
        done = self.device.ctl(*args)
        if done.returncode != 1:
            raise Failed(f'znsctl {" ".join(args)} ends with {done.returncode}: {done.stdout} {done.stderr}')
        if len(done.stderr.splitlines()) != 1 or not re.search(pattern, done.stderr):
            raise Failed(f'znsctl {" ".join(args)} says: {done.stderr}')
        print(f'     says: {done.stderr.strip()}')

    def redis(self, keys, varied=False, size=100):
        directory = self.cfg.base / f'redis-{len(self.tasks)}'
        directory.mkdir()
        task = RedisTask(directory, keys=keys, varied=varied, size=size, wait=self.cfg.timeout)
        self.tasks.append(task)
        return task.start().wait_ready()

    def dump_command(self, task, images, log, qos, container):
        args = ztlib.dump_args(self.cfg, task, images, log, container)
        args[args.index('--zns-qos') + 1] = str(qos)
        return args

    def dump(self, task, qos, container):
        """The checkpoint as `ls` shows it."""
        images = task.dir / 'images'
        images.mkdir()
        log = self.log('dump')
        done = ztlib.run_criu(self.cfg, self.dump_command(task, images, log, qos, container), log)
        if done.returncode:
            raise Failed(f'dump: {ztlib.log_errors(log)}')
        wait_until(lambda: not alive(task.pid), 5)
        ztlib.check_image_dir(images)
        return next(c for c in self.device.checkpoints() if c['container'] == container)

    def restore(self, task):
        ztlib.restore(self.cfg, task, task.dir / 'images', self.log('restore'))
        task.verify()

    def agree(self):
        """Checks that every zone is as blkzone reports it."""
        print(f'     {witness.compare(str(self.block), self.device.zones())}')

    def open_width(self):
        """How many zones one dump may write at the same time."""
        limits, most = self.device.status()['limits'], GROUPS
        for limit in (limits['max_open'], limits['max_active']):
            if limit:
                most = min(most, limit - 1)     # the catalogue's
        return most

    # ---- cases ----

    def format(self):
        """format, and status tells the geometry and the limits that the kernel tells"""
        self.device.create('--channels', str(GROUPS), '--die-write-bw', str(ZONE_BW))
        status = self.device.status()
        kernel = {'zones': self.queue('nr_zones'), 'zone_size': self.queue('chunk_sectors') * 512,
                  'block_size': self.queue('logical_block_size')}
        for key, value in kernel.items():
            if status['geometry'][key] != value:
                raise Failed(f'{key} is {status["geometry"][key]}, the kernel says {value}')
        for key in ('max_open', 'max_active'):
            if status['limits'][key] != self.queue(f'{key}_zones'):
                raise Failed(f'{key} is {status["limits"][key]}, the kernel says {self.queue(key + "_zones")}')
        self.agree()

    def checkpoint(self):
        """Redis is dumped at the largest rate the device can promise, over as many zones as that takes"""
        width = self.open_width()
        # Less than 64 MiB would get fewer zones: a zone is not opened for a few units (criu-zns(8)).
        task = self.redis(70000, varied=True, size=1000)
        self.first = self.dump(task, width * ZONE_BW, 'first')
        granted = self.device.granted('first')
        if len(granted) != width or not set(self.first['groups']) <= set(granted):
            raise Failed(f'groups {granted} were granted instead of {width}, {self.first["groups"]} used')
        print(f'     {self.first["bytes"] >> 20} MiB in {len(self.first["zones"])} zones, {width} groups granted')

    def zones_agree(self):
        """blkzone and znsctl zones agree zone by zone while a checkpoint is there"""
        self.agree()
        owned = [z['index'] for z in self.device.zones() if z['owner'] == 'first']
        if sorted(owned) != sorted(self.first['zones']):
            raise Failed(f'zones {owned} are owned by the container, ls says {self.first["zones"]}')

    def restored(self):
        """the restored Redis has the digest it had"""
        self.restore(self.tasks[0])

    def too_much(self):
        """a larger rate is refused with the largest that is possible, the task unharmed"""
        width = self.open_width()
        task = self.redis(1000)
        images = task.dir / 'images'
        images.mkdir()
        log = self.log('dump')
        done = ztlib.run_criu(self.cfg, self.dump_command(task, images, log, width * ZONE_BW + 1, 'greedy'), log)
        Outcome(done.returncode, log).must_fail(rf'at most {width * ZONE_BW} MiB/s \({width} (open zones|groups) x {ZONE_BW} MiB/s\)')
        if (images / HANDLE).exists() or len(self.device.checkpoints()) != 1:
            raise Failed('a refused dump left something')
        task.verify()

    def second_checkpoint(self):
        """another container beside it; show and ls name both"""
        self.second = self.dump(self.redis(20000), ZONE_BW, 'second')
        if sorted(c['container'] for c in self.device.checkpoints()) != ['first', 'second']:
            raise Failed('ls does not show both')
        shown = self.device.json('show', self.second['id'])
        if not [i for i in shown['images'] if i['name'].startswith('pages')]:
            raise Failed('show has no image of pages')
        if set(self.first['zones']) & set(self.second['zones']):
            raise Failed('two containers share a zone')
        self.agree()

    def refusals(self):
        """format without --force, reset of a live or unknown zone, an unknown checkpoint: refused"""
        number = str(self.second['zones'][0])
        self.refused('force', 'format', self.node, '--map', 'i % 8', '--zone-write-bw', '50')
        self.refused(rf'zone {number}\b', 'reset', '--zone', number)
        self.refused(r'no zone', 'reset', '--zone', str(self.queue('nr_zones')))
        self.refused('checkpoint', 'show', '00000000-1111-4222-8333-444444444444')

    def removed(self):
        """rm of the first: its zones are reset, the second still restores"""
        self.device.remove(self.first['id'])
        self.device.json('reset', '--all-garbage')
        def gone():
            return all(z['state'] == 'empty' for z in self.device.zones() if z['index'] in self.first['zones'])
        if not wait_until(gone, 20, 0.5):
            raise Failed('zones of a removed checkpoint are not empty')
        self.agree()
        done = ztlib.run_criu(self.cfg, ztlib.restore_args(self.tasks[0], self.tasks[0].dir / 'images', self.log('restore')),
                              self.cfg.base / f'restore-{self.calls}.log')
        Outcome(done.returncode, self.cfg.base / f'restore-{self.calls}.log').must_fail('deleted')
        self.restore(self.tasks[-1])

    def limit_taken(self):
        """another program has every open zone: the dump says which limit, and works when they are given back"""
        limit = self.device.status()['limits']['max_open']
        if not limit or limit > 32:
            raise ztlib.Skipped(f'the limit of open zones is {limit or "none"}')
        task = self.redis(1000)
        images = task.dir / 'images'
        images.mkdir()
        # The broker must be there already, and stay: one that starts takes open zones without data for leftovers.
        free = [z['index'] for z in self.device.zones() if z['state'] == 'empty' and not z['owner']][-limit:]
        if len(free) < limit:
            raise ztlib.Skipped('not enough empty zones')
        opened = [z for z in free if witness.operate('open', str(self.block), z)]
        print(f'     {len(opened)} of {limit} zones were opened by blkzone')
        try:
            log = self.log('dump')
            done = ztlib.run_criu(self.cfg, self.dump_command(task, images, log, ZONE_BW, 'third'), log)
            if done.returncode:
                Outcome(done.returncode, log).must_fail(r'limit of \d+ (open|active) zones')
            elif all(z['state'] == 'open' for z in self.device.zones() if z['index'] in opened):
                raise Failed('criu said it succeeded, and every zone is still open')
            else:       # at the limit of active zones the broker takes back what holds no data
                print('     the broker reset zones that were open without data')
        finally:
            # Not what the broker took back and the dump has written since: that is its checkpoint.
            for z in self.device.zones():
                if z['index'] in opened and z['state'] != 'empty' and not z['wp']:
                    witness.operate('reset', str(self.block), z['index'])
        if done.returncode and (images / HANDLE).exists():
            raise Failed('a failed dump left a handle')
        if not done.returncode:
            wait_until(lambda: not alive(task.pid), 5)
            self.restore(task)      # and verify, which writes keys of its own: only once
        else:
            task.verify()
        again = self.redis(1000)
        self.dump(again, ZONE_BW, 'third')
        self.restore(again)

    def everything_gone(self):
        """rm of the last: nothing but the catalogue is left in the zones"""
        self.device.remove(*[c['id'] for c in self.device.checkpoints()])
        self.device.json('reset', '--all-garbage')
        if not wait_until(lambda: not [z for z in self.device.zones() if z['owner'] != '(metadata)' and z['wp'] and
                                       z['state'] not in ('read-only', 'offline')], 20, 0.5):
            raise Failed('zones are left that hold something')
        self.agree()

    CASES = [format, checkpoint, zones_agree, restored, too_much, second_checkpoint, refusals, removed,
             everything_gone, limit_taken, everything_gone]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ztlib.common_options(parser)
    parser.add_argument('node')
    args = parser.parse_args()
    ztlib.private_mounts()
    ztlib.become_subreaper()
    cfg = ztlib.Config(args)
    run, results = Run(cfg, args.node), []
    for case in Run.CASES:
        # What comes later builds on it.
        broken = any(r.verdict == 'fail' for r in results) and case is not Run.everything_gone
        begin = time.monotonic()
        verdict, reason = ('skip', 'an earlier case failed') if broken else ztlib.judge(lambda c=case: c(run))
        seconds = time.monotonic() - begin
        results.append(ztlib.Result(case.__name__, args.node.rpartition('/')[2], verdict, reason, seconds))
        print(f'{verdict.upper()} {case.__doc__} ({seconds:.1f} s)' + (f': {reason}' if reason else ''), flush=True)
    for task in run.tasks:
        task.end()
    run.device.close()
    cfg.close()
    return ztlib.finish(results)


if __name__ == '__main__':
    sys.exit(main())
