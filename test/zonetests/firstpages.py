#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
firstpages: `criu lazy-pages --zns-record`, and what the next lazy restore does with the record
(Documentation/inside/migration.md, "First pages"). The daemon counts faults. Its reads are slow (--zns-qos-max), so
the background fetches hardly anything while Redis is asked for its keys.

  firstpages.py list | run NAME... | run -a
"""
import copy
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'hostile'))
import ztlib                        # noqa: E402
from chains import take_apart       # noqa: E402
from crypt import encrypted         # noqa: E402
from forge import FIRST, get, having, log, pack, unpack        # noqa: E402
from migration import lazy_daemon   # noqa: E402
from tools import stop_broker  # noqa: E402
from ztmedia import Media  # noqa: E402
from ztlib import Failed, alive, wait_until, kill     # noqa: E402
from ztredis import RedisTask       # noqa: E402
from ztscene import FAST, Outcome, case_of, expect, run_ctl, suite_main     # noqa: E402

CASES = {}
case = case_of(CASES)

KEYS = 120000               # about 45 MiB
ASKED = range(0, KEYS, 400)
# with a record at most this part of the faults that making it took: usually 34 of 1010; without the record some 170
FEW = 0.2
SLOW = ['--zns-qos-max', '64']
IGNORED = 'record of the pages touched first is ignored'


class Lazy:
    """A Redis in a checkpoint, and lazy restores of it."""

    def __init__(self, scene):
        self.scene, self.number = scene, 0
        self.images = scene.dir / 'images-redis'

    def redis(self, name):
        directory = self.scene.dir / name
        directory.mkdir()
        # In a PID namespace of its own no other process takes its threads' PIDs between two restores.
        self.task = RedisTask(directory, 'ns', keys=KEYS, varied=False, size=250)
        self.scene.tasks.append(self.task)
        self.task.start().wait_ready()

    def as_chain(self):
        """Makes a chain of four generations from a dump (chains.py); returns the newest one's id."""
        cfg, plain, parent = copy.copy(self.scene.cfg), self.scene.dir / f'plain-{self.number}', []
        cfg.stock = True
        (plain / 'levels').mkdir(parents=True)
        ztlib.dump(cfg, self.task, plain / 'images', plain / 'dump.log', 'plain')
        for level in reversed(take_apart(plain / 'images', plain / 'levels')):
            handle = [] if level.name[-1] != '0' else ['--handle', str(self.images)]
            made = self.scene.device.json('import', str(level), '--container', 'chain', *parent, *handle)
            parent = ['--parent', made['id']]
        return made['id']

    def dump(self, chain=False):
        """
        A checkpoint with lazy pages; its id. CRIU compares a thread's stack pointer with places in a page, not with
        pages: if one is at the beginning of a page it takes all pages for stack, and none is lazy.
        """
        for _ in range(5):
            self.number += 1
            self.redis(f'redis-{self.number}')
            shutil.rmtree(self.images, ignore_errors=True)
            self.images.mkdir()
            ident = self.as_chain() if chain else self.scene.good_dump(task=self.task, images=self.images)
            if self.restore('--zns-record=off').lines(r'Found [1-9]\d* pages to be handled'):
                return ident
            self.scene.device.remove(ident)
        raise Failed('no page of Redis is ever lazy')

    def ask(self):
        """Asks for a fixed set of keys, and for the same set again."""
        names = [f'key:{n}' for n in ASKED]
        got = self.task.cli('MGET', *names).split('\n')
        expect('values', [v.split('\0')[0] for v in got[:3]], [f'value:{n}' for n in list(ASKED)[:3]])

    def restore(self, *daemon_extra, whole=False):
        """Makes one lazy restore, after which the task answers, and returns the daemon's log. whole: waits until all pages are there."""
        daemon = lazy_daemon(self.scene, self.images, daemon_extra)
        try:
            done = self.scene.restore(images=self.images, task=self.task, extra=['--lazy-pages'])
            if done.code:
                raise Failed(f'restore: {" | ".join(done.errors()[-3:])}; daemon: '
                             f'{" | ".join(Outcome(0, daemon.log).errors()[-3:])}')
            self.ask()
            if whole:
                self.task.verify()
                ended = daemon.end()
            kill(self.task.pid)
            wait_until(lambda: not alive(self.task.pid), 5)
            if not whole:
                ended = daemon.end()
        finally:
            daemon.stop()
        expect('exit code of lazy-pages', ended.code, 0)
        self.scene.no_helpers()
        return ended

    def faults(self, *daemon_extra):
        ended = self.restore(*SLOW, *daemon_extra)
        return len(ended.lines('#PF at')), ended

    def record(self):
        """Makes a restore that records, and that its tasks end; returns the number of its faults."""
        count, ended = self.faults('--zns-record=600')
        if not ended.lines('first pages recorded'):
            raise Failed(f'nothing was recorded: {" | ".join(ended.lines("zns:")[-3:])}')
        return count

    def few(self, before, *daemon_extra):
        count, ended = self.faults(*daemon_extra)
        if not ended.lines(r'\d+ first pages in place') or count > FEW * before:
            raise Failed(f'{count} faults with a record, {before} before')
        return count

    def without(self, *daemon_extra):
        """Makes a lazy restore and checks that it uses no record; returns the daemon's outcome."""
        ended = self.restore(*daemon_extra)
        if ended.lines('first pages in place'):
            raise Failed('a record was used')
        return ended


def record_of(scene):
    """The newest record in the log; the broker has ended."""
    media = Media(scene)
    stop_broker(scene)
    return [f for f in log(media) if f.kind == FIRST][-1]


@case
def second_restore(scene):
    """The second lazy restore has at most a fifth of the first one's faults; with --zns-record=off it has them again."""
    lazy = Lazy(scene())
    lazy.dump()
    before = lazy.record()
    with_it = lazy.few(before)
    # the same request without the record: the keys would have caused faults again
    again = len(lazy.without('--zns-qos-max', '8', '--zns-record=off').lines('#PF at'))
    if again < 2 * with_it:
        raise Failed(f'{again} faults without a record, {before} while it was made, {with_it} with it')
    lazy.restore(whole=True)
    print(f'     {before} faults while recording, {with_it} with the record, {again} without', flush=True)


@case
def lasting(scene):
    """The record stays when the broker exits, and is removed with its checkpoint; a copy of the checkpoint has none."""
    scene = scene()
    lazy = Lazy(scene)
    ident = lazy.dump()
    expect('first pages, none recorded', scene.device.json('show', ident)['first_pages'], None)
    before = lazy.record()
    stop_broker(scene)
    lazy.few(before)
    if not scene.device.json('show', ident)['first_pages']['recorded']:
        raise Failed('znsctl show does not tell of the record')
    scene.device.remove(ident)
    stop_broker(scene)      # the catalogue must be sound without it
    lazy.dump()
    lazy.without()


@case
def chain(scene):
    """First pages of an incremental checkpoint come from all its parents."""
    scene = scene()
    lazy = Lazy(scene)
    ident = lazy.dump(chain=True)
    if not scene.device.json('show', ident)['parent']:
        raise Failed('it has no parent')
    lazy.few(lazy.record(), '--zns-qos-max', '1000')     # whole units are read, which is many times as much
    # After flatten it is the same checkpoint without parents, and its record is still good.
    run_ctl(scene, 0, 'flatten', ident)
    ended = lazy.restore(whole=True)
    expect('first pages, flattened', len(ended.lines('first pages in place')), 1)


@case
def foreign(scene):
    """A record that is damaged, of another checkpoint, or impossible: one line, and a restore as without a record; a new record replaces it."""
    scene = scene()
    lazy = Lazy(scene)
    lazy.dump()
    lazy.record()
    record = record_of(scene)
    runs = get(record.fields, 3)
    packed = unpack(runs)
    other = {
        'no message': b'\xff' * len(runs),
        'cut': runs[:len(runs) // 2],
        'of another image': pack(having(packed, 1, b'\x4d') + [(2, get(packed, 2))])[:len(runs)],
        'beyond its image': pack([(1, get(packed, 1)), (2, b'\x01\x00' + b'\xfe\xff\xff\xff\x0f')]),
        'endless': pack([(1, get(packed, 1)), (2, b'\xff\xff\xff\xff\xff\xff\xff\x07\x00\x00')]),
    }
    for what, bad in other.items():
        record.put(having(record.fields, 3, bad))
        ended = lazy.without()
        expect(f'{what}: lines about it', len(ended.lines(IGNORED)), 1)
        stop_broker(scene)
    lazy.few(lazy.record())


@case
def sealed(scene):
    """First pages of an encrypted checkpoint: the record works and reveals nothing; a changed or unencrypted record is refused."""
    scene, *_ = encrypted(scene)
    lazy = Lazy(scene)
    lazy.dump()
    before = lazy.record()
    lazy.few(before)
    record = record_of(scene)
    runs = get(record.fields, 3)
    expect('sealed', (get(record.fields, 4), len(runs) % 4096), (1, 0))
    # of the same length, or the log would have a gap
    plain = pack([(1, b'\x01'), (2, b'\x01\x00\x02' * (len(runs) // 3 - 4))])
    for what, fields in (('one bit', having(record.fields, 3, bytes([*runs[:100], runs[100] ^ 1, *runs[101:]]))),
                         ('in plain', having(having(record.fields, 3, plain), 4, 0))):
        record.put(fields)
        ended = lazy.without()
        expect(f'{what}: lines about it', len(ended.lines(IGNORED)), 1)
        stop_broker(scene)


@case
def options(scene):
    """Which values --zns-record accepts, and which commands accept it."""
    scene = scene(size=1)
    scene.good_dump()
    for bad in ('0', '3601', 'yes', '-1', '1x', ''):
        daemon = lazy_daemon(scene, scene.images, [f'--zns-record={bad}'], refused=True)
        if daemon.end().code == 0 or not Outcome(1, daemon.log).lines('takes seconds'):
            raise Failed(f'--zns-record={bad} was taken')
    done = scene.restore(extra=['--zns-record'])
    expect('a restore that is not lazy', (done.code, len(done.lines('--zns-record is for criu lazy-pages'))), (0, 1))


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'firstpages', CASES))
