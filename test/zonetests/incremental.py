#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
incremental: pre-dumps and chains of dumps with dirty tracking: by the helper from Linux 6.7 on, else by soft-dirty bits;
test/vm/60-incremental.test.sh runs them in a guest that has those. What needs no tracking is in chains.py.

  incremental.py list | run NAME... | run -a
  incremental.py bench [--size MB] [--steps N] [--qos MIBPS] [--format DEV]   zones beside stock's files, as a table
"""
import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import ztlib
import ztrpc
from ztchain import Chain, bytes_in, plain_images, stat_of
from ztlib import Failed, Skipped, drop_caches, wait_until
from ztscene import Scene, case_of, expect, suite_main

CASES = {}
case = case_of(CASES)
TRACK = ['--track-mem']
RUN_ON = [*TRACK, '--leave-running']
STEPS = 4
# programs whose memory changes by itself, in all the ways that a tracker could miss
PROGRAMS = ('busy', 'churn', 'cowtree', 'forkchain', 'threads', 'thp', 'manyvmas', 'filemap', 'sparse')


def room(zones):
    """Makes a device of that many zones, without timing."""
    return ['--channels', '4', '--ways', '1', '--die-write-bw', '200', '--zones', str(zones), '--zone-size', '16M',
            '--timing', 'off']


ROOM = room(48)
# A round of a program that writes all the time is as large as its memory, and on a fast machine there are more rounds.
WIDE = room(512)


def is_small(chain, ident, full):
    """Checks that the checkpoint's pages are a small part of the full dump's."""
    pages, whole = chain.record(ident)['page_bytes'], chain.record(full)['page_bytes']
    if pages > whole / 4:
        raise Failed(f'an incremental dump has {pages} bytes of pages, the full one {whole}')
    return pages


def left_to_parent(chain, n):
    """Checks what show prints: most of the full dump's pages are left to the parent, in numbers and in words."""
    record, whole = chain.record(chain.ids[n]), chain.record(chain.ids[0])['page_bytes']
    if not whole / 2 < record['parent_bytes'] <= whole - record['page_bytes'] / 2:
        raise Failed(f'{record["parent_bytes"]} bytes were left to the parent, {record["page_bytes"]} not, of {whole}')
    text = chain.scene.device.ctl('show', chain.ids[n]).stdout
    if not re.search(r'^parent .*, which has [0-9.]+ [KM]iB of its memory pages$', text, re.M):
        raise Failed('znsctl show does not say what the parent has')


def chain_of(scene, by_id, **args):
    """Makes a full dump and STEPS more; then the task ends."""
    chain = Chain(scene, **args)
    chain.dump(extra=RUN_ON)
    for n in range(1, STEPS + 1):
        chain.step()
        chain.dump(parent=chain.ids[-1] if by_id else n - 1, extra=RUN_ON if n < STEPS else TRACK)
        is_small(chain, chain.ids[n], chain.ids[0])
        left_to_parent(chain, n)
        expect('parent', chain.record(chain.ids[n])['parent'], chain.ids[n - 1])
        expect('pages beside the handle', plain_images(chain.images(n)), [])
    chain.gone()
    return chain


@case
def directories(scene):
    """a chain by --prev-images-dir: a restore needs no directory of a parent, and each checkpoint of the chain restores by itself."""
    chain = chain_of(scene(ROOM, 1), False)
    digest = chain.task.digest
    chain.restore(STEPS)
    chain.end_task()
    chain.forget_directories(*range(STEPS))
    chain.restore(STEPS)
    chain.end_task()
    chain.by_id(chain.ids[STEPS])
    chain.end_task()
    chain.task.digest = '0'         # an older checkpoint is complete in itself and gives another digest
    chain.by_id(chain.ids[1])
    if chain.task._out()[-1].split()[1] == digest:
        raise Failed('an older checkpoint has the newest memory')


@case
def ids(scene):
    """a chain by --zns-parent: the parents' directories are removed before the next dump."""
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    chain.dump(extra=RUN_ON)
    for n in range(1, STEPS + 1):
        chain.forget_directories(n - 1)
        chain.step()
        chain.dump(parent=chain.ids[-1], extra=RUN_ON if n < STEPS else TRACK)
        is_small(chain, chain.ids[n], chain.ids[0])
    chain.gone()
    chain.restore(STEPS)


def pre_dumped(scene, mode, program='dirty', flavour='h', rounds=3):
    scene = scene(WIDE, 1)
    chain = Chain(scene, program, flavour)
    for n in range(rounds):
        chain.dump('pre-dump', n - 1 if n else None, ['--pre-dump-mode', mode] if mode else [])
        if program == 'dirty':
            chain.step()
    chain.dump(parent=rounds - 1, extra=TRACK)
    chain.gone()
    expect('pre-dumps', [chain.record(i)['pre_dump'] for i in chain.ids], [True] * rounds + [False])
    chain.try_restore(0).must_fail('pre-dump')
    chain.restore(rounds)
    if program == 'dirty':
        is_small(chain, chain.ids[rounds], chain.ids[0])
    return chain


@case
def pre_dump_splice(scene):
    """three pre-dumps through pipes, then a dump."""
    pre_dumped(scene, 'splice')


@case
def pre_dump_read(scene):
    """three pre-dumps that read the memory of running tasks, then a dump."""
    pre_dumped(scene, 'read')


@case
def pre_dump_mixed(scene):
    """pre-dumps that read memory after some that splice it, and the other way round."""
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    for n, mode in enumerate(('read', 'splice', 'read')):
        chain.dump('pre-dump', n - 1 if n else None, ['--pre-dump-mode', mode])
        chain.step()
    chain.dump(parent=2, extra=TRACK)
    chain.gone()
    chain.restore(3)


@case
def pre_dump_busy(scene):
    """a program that writes while its pages are being sent."""
    pre_dumped(scene, 'splice', 'busy')


@case
def pre_dump_tree(scene):
    """forked processes that share memory by copy on write."""
    pre_dumped(scene, None, 'cowtree')


@case
def pre_dump_huge(scene):
    """huge pages: a pre-dump has none, the dump has all of them, beside memory that comes from the chain."""
    before = ztlib.HUGEPAGES.read_text()
    why = ztlib.huge_pages()
    if why:
        raise Skipped(why)
    try:
        pre_dumped(scene, None, 'hugetlb')
    finally:
        ztlib.HUGEPAGES.write_text(before)


@case
def pre_dump_namespaces(scene):
    """a task that is init of its own namespaces."""
    pre_dumped(scene, None, flavour='ns')


@case
def over_rpc(scene):
    """pre-dumps and dumps over RPC, the parent by its id in a field and by parent_img; restored from the chain."""
    scene = scene(ROOM, 1)
    chain = Chain(scene)

    def dump(kind, parent=None, zns=None, **more):
        images = chain.images(chain.nr)
        images.mkdir()
        opts = {ztrpc.PID: chain.task.pid, ztrpc.TRACK_MEM: True, ztrpc.LOG_LEVEL: 4, ztrpc.LOG_FILE: 'rpc.log',
                ztrpc.ZNS: {ztrpc.ZNS_CONTAINER: 'chain', **(zns or {})}}
        if parent is not None:
            opts[ztrpc.PARENT_IMG] = f'../{chain.images(parent).name}'
        if more.get('running'):
            opts[ztrpc.LEAVE_RUNNING] = True
        done, said = ztrpc.request(scene, kind, images, opts)
        expect(f'success of request {chain.nr} ({said.strip()})', done, True)
        chain.ids.append(chain.newest())
        chain.nr += 1
        chain.step() if more.get('step') else None

    dump(ztrpc.PRE_DUMP, step=True)
    dump(ztrpc.PRE_DUMP, zns={ztrpc.ZNS_PARENT: chain.ids[0]}, step=True)
    chain.forget_directories(0)
    dump(ztrpc.DUMP, zns={ztrpc.ZNS_PARENT: chain.ids[1]}, running=True, step=True)
    dump(ztrpc.DUMP, parent=2)
    chain.gone()
    expect('parents', [chain.record(i)['parent'] for i in chain.ids], [None, *chain.ids[:3]])
    expect('pre-dumps', [chain.record(i)['pre_dump'] for i in chain.ids], [True, True, False, False])
    for ident in chain.ids[1:]:
        is_small(chain, ident, chain.ids[0])
    chain.restore(3)
    chain.end_task()
    chain.by_id(chain.ids[3])


@case
def pre_dump_failing(scene):
    """a pre-dump that fails leaves the task running and no files; the chain continues from the previous checkpoint."""
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    chain.dump('pre-dump')
    before = scene.ids()
    failed = chain.try_dump('pre-dump', 0, ['--zns-qos-max', 'nonsense'])
    failed.must_fail('qos-max')
    expect('checkpoints', scene.ids(), before)
    shutil.rmtree(chain.images(1))
    chain.step()
    chain.dump(parent=0, extra=TRACK)
    chain.restore(1)


@case
def leaving(scene):
    """rm of a parent is refused and names the child; flatten makes the child self-contained; then the chain can go."""
    scene = scene(ROOM, 1)
    chain = chain_of(scene, True)
    top, full = chain.ids[STEPS], chain.ids[0]
    done = scene.device.ctl('rm', full)
    if done.returncode != 1 or chain.ids[1] not in done.stderr:
        raise Failed(f'rm of a parent: exit {done.returncode}: {done.stderr}')
    scene.device.json('flatten', top)
    expect('parent', chain.record(top)['parent'], None)
    chain.restore(STEPS)
    chain.end_task()
    scene.device.remove(*chain.ids[:STEPS])
    chain.restore(STEPS)


@case
def exported(scene):
    """the exported chain, and the flattened export, restored from plain files."""
    scene = scene(ROOM, 1)
    chain = chain_of(scene, False)
    for extra in ([], ['--flatten']):
        target = chain.dir / f'export{"".join(extra)}'
        scene.device.json('export', chain.ids[STEPS], str(target), *extra)
        expect('a parent link', (target / 'parent').is_symlink(), not extra)
        chain.restore(target)
        chain.end_task()


# ---- trackers between dumps (live.md, "Incremental dumps") ----------------------------------------------

def processes(env, *cmdline):
    """Processes of this runtime directory with this command line."""
    found, mark = [], f'ZNS_RUN={env["ZNS_RUN"]}'.encode()
    for p in Path('/proc').iterdir():
        try:
            if p.name.isdigit() and (p / 'cmdline').read_bytes().split(b'\0')[:len(cmdline)] == list(cmdline) and \
                    mark in (p / 'environ').read_bytes().split(b'\0'):
                found.append(int(p.name))
        except OSError:
            pass
    return found


def keepers(scene):
    """The processes that keep trackers for this scene's tasks."""
    return processes(scene.device.env, b'zns-helper', b'--keep')


def helpers_end(scene):
    """Waits until no helper runs except keepers. A helper that ends may be about to start a keeper, which then ends with it."""
    wait_until(lambda: not [p for p in processes(scene.device.env, b'zns-helper') if p not in keepers(scene)], 20)


def nobody_keeps(scene):
    if not wait_until(lambda: not keepers(scene), 20):
        raise Failed(f'keepers are left: {keepers(scene)}')
    expect('sockets', list(Path(scene.device.env['ZNS_RUN'], 'keep').glob('*')), [])


def is_full(chain, ident, full):
    pages, whole = chain.record(ident)['page_bytes'], chain.record(full)['page_bytes']
    if pages < whole * 0.9:
        raise Failed(f'{pages} bytes of pages in a dump that nothing was known for, {whole} in the full one')


def verified(chain, n):
    """Checks that every page of the dump, including those of its parents, was compared with the task's."""
    if 'in the parent, verified' not in (chain.dir / f'dump-{n}.log').read_text(errors='replace'):
        raise Failed(f'dump {n} verified nothing')


@case
def untracked_parent(scene):
    """a parent that was dumped without --track-mem: a dump based on it contains all memory, and says so in one line."""
    chain = Chain(scene(ROOM, 1))
    chain.dump(extra=['--leave-running'])
    chain.step()
    chain.dump(parent=0)
    is_full(chain, chain.ids[1], chain.ids[0])
    expect('lines about it', (chain.dir / 'dump-1.log').read_text(errors='replace').count('dumped without --track-mem'), 1)
    chain.gone()
    chain.restore(1)


@case
def kept_on(scene):
    """there is one keeper from each dump to the next, and none after the last; every page is compared; live and plain dumps take turns."""
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    for env in (os.environ, scene.device.env):
        env.update(ztlib.controls(ZNS_LIVE_VERIFY='1'))
    chain = Chain(scene)
    chain.dump(extra=RUN_ON)
    for n in range(1, STEPS + 1):
        expect('keepers', len(keepers(scene)), 1)
        chain.step()
        chain.dump(parent=n - 1, extra=RUN_ON + (['--zns-live'] if n % 2 else []))
        is_small(chain, chain.ids[n], chain.ids[0])
        verified(chain, n)
    chain.end_task()
    nobody_keeps(scene)
    chain.restore(STEPS)


@case
def programs(scene):
    """programs that change their memory all the time, fork, map and unmap between dumps, plain and live; all pages are compared."""
    if not ztlib.helper_tracks():
        return
    scene = scene(WIDE, 1)
    scene.device.env.update(ztlib.controls(ZNS_LIVE_VERIFY='1'))
    for program in PROGRAMS:
        chain = Chain(scene, program)
        for n in range(STEPS + 1):
            chain.dump(parent=n - 1 if n else None, extra=[*RUN_ON, *(['--zns-live'] if n % 2 else [])])
        chain.dump(parent=STEPS, extra=TRACK)
        verified(chain, STEPS + 1)
        chain.gone()
        chain.restore(STEPS + 1)
        chain.end_task()
    nobody_keeps(scene)


@case
def keeper_killed(scene):
    """kill -9 of the keeper: the next dump is a full one, the one after it is not."""
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    chain.dump(extra=RUN_ON)
    for pid in keepers(scene):
        os.kill(pid, signal.SIGKILL)
    chain.step()
    chain.dump(parent=0, extra=RUN_ON)
    is_full(chain, chain.ids[1], chain.ids[0])
    chain.step()
    chain.dump(parent=1, extra=RUN_ON)
    is_small(chain, chain.ids[2], chain.ids[0])
    chain.end_task()
    chain.restore(2)


@case
def other_parent(scene):
    """dumps on an older parent and on one without a tracker are full; the tracker of the newer checkpoint ends."""
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    for parent in (None, 0, 0, None):
        chain.dump(parent=parent, extra=RUN_ON)
        expect('keepers', len(keepers(scene)), 1)
        chain.step()
    is_small(chain, chain.ids[1], chain.ids[0])
    is_full(chain, chain.ids[2], chain.ids[0])
    is_full(chain, chain.ids[3], chain.ids[0])
    chain.dump(parent=2, extra=TRACK)
    chain.gone()
    is_full(chain, chain.ids[4], chain.ids[0])
    nobody_keeps(scene)
    chain.restore(4)


def too_late(pid, log):
    """
    Stops criu. Has it begun to take its code out of the task? A kill at that time would leave the task with criu's
    registers and a breakpoint that nobody catches, with stock criu too (Documentation/inside/hooks.md).
    """
    ztlib.kill(pid, signal.SIGSTOP)
    wait_until(lambda: ztlib.proc_stat(pid)[0] in ('', 'T', 'Z', 'X'), 5)
    return b'to trap' in log.read_bytes().rpartition(b'live: task')[2]


def cut_off(chain, victim, extra):
    """Begins a dump on checkpoint 0, and kills criu or its helper once the first task's pages are protected anew. The dump fails."""
    for _ in range(30):
        images, log = chain.images(chain.nr), chain.dir / 'cut.log'
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir()
        log.unlink(missing_ok=True)
        before = chain.scene.ids()
        args = [chain.cfg.criu, *chain.command('dump', images, log, 0, extra)]
        with subprocess.Popen(args, env=chain.scene.device.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as criu:
            victims = [criu.pid] if victim == 'criu' else []
            while criu.poll() is None and not (log.exists() and b'live: task' in log.read_bytes()):
                victims = victims or [p for p in processes(chain.scene.device.env, b'zns-helper') if p not in keepers(chain.scene)]
            if victim == 'criu' and criu.poll() is None and too_late(criu.pid, log):
                victims = []
                ztlib.kill(criu.pid, signal.SIGCONT)
            for pid in victims:
                ztlib.kill(pid)
            criu.wait()
        helpers_end(chain.scene)
        if chain.scene.ids() == before:
            shutil.rmtree(images)
            return
        chain.scene.device.remove(*set(chain.scene.ids()) - set(before))
    raise Failed('the dump was faster thirty times')


def broken_off(scene, victim, extra):
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    chain.dump(extra=RUN_ON)
    chain.step()
    cut_off(chain, victim, extra)
    if not wait_until(lambda: not keepers(scene), 20):
        raise Failed('a keeper goes on with pages that a failed dump protected')
    chain.step()
    chain.dump(parent=0, extra=TRACK)
    chain.gone()
    is_full(chain, chain.ids[1], chain.ids[0])
    chain.restore(1)


@case.soak('where criu stands when it is killed is chance; among its traps the task is lost, as with stock')
def criu_killed(scene):
    """kill -9 of criu after pages were protected anew: nothing of that dump is used later."""
    broken_off(scene, 'criu', RUN_ON)


@case.soak('where criu stands when it is killed is chance; among its traps the task is lost, as with stock')
def criu_killed_live(scene):
    """kill -9 of criu in a live dump, after pages were protected anew."""
    broken_off(scene, 'criu', [*RUN_ON, '--zns-live'])


@case
def helper_killed(scene):
    """kill -9 of the helper, after pages were protected anew."""
    broken_off(scene, 'helper', RUN_ON)


@case
def failing_early(scene):
    """a dump that fails before it protects pages leaves the tracker as it is. (Rounds of a live dump protect pages.)"""
    if not ztlib.helper_tracks():
        return
    scene = scene(ROOM, 1)
    chain = Chain(scene)
    chain.dump(extra=RUN_ON)
    chain.step()
    failed = chain.try_dump(parent=0, extra=[*RUN_ON, '--zns-live=no', '--freeze-cgroup', '/sys/fs/cgroup/no-such-group'])
    if failed.code == 0:
        raise Failed('a dump succeeded without the cgroup that it was to freeze')
    helpers_end(scene)
    # the dump's own keeper exits with its helper, a moment later
    wait_until(lambda: len(keepers(scene)) == 1, 20)
    expect('keepers', len(keepers(scene)), 1)
    shutil.rmtree(chain.images(1))
    chain.dump(parent=0, extra=TRACK)
    chain.gone()
    is_small(chain, chain.ids[1], chain.ids[0])
    chain.restore(1)


# ---- figures -------------------------------------------------------------------------------------------

def timed(func, *args, **kwargs):
    begin = time.monotonic()
    result = func(*args, **kwargs)
    return result, time.monotonic() - begin


class Figures:
    """One side of the comparison, zones or files: the same steps for each."""

    def __init__(self, scene, size, stock):
        self.chain = Chain(scene, size=size, stock=stock, name='files' if stock else 'zones')
        self.stock, self.rows, self.restores = stock, [], {}

    def dump(self, last):
        chain, n = self.chain, self.chain.nr
        plain = [] if self.stock or last else ['--zns-live=no']
        _, seconds = timed(chain.dump, parent=n - 1 if n else None, extra=[*(TRACK if last else RUN_ON), *plain])
        if self.stock:
            size = bytes_in(chain.images(n))
        else:
            size = sum(u['len'] for u in chain.scene.device.json('show', chain.ids[n])['zone_uses'])
        stats = stat_of(chain.dir)
        self.rows.append((size, seconds, stats['frozen'] / 1e6, stats['written'], stats.get('skipped', 0)))

    def restore(self, what):
        drop_caches()
        log, seconds = timed(self.chain.try_restore, self.chain.nr - 1)
        if log.code:
            raise Failed(f'restore {what}: exit {log.code}: {" | ".join(log.lines("Error")[-3:])}')
        self.chain.task.verify(signal.SIGUSR1)
        self.chain.end_task()
        self.restores.setdefault(what, []).append(seconds)


def bench_scene(args):
    """A scene with room for four times @args.size MiB and without timing. The caller closes it, and then its cfg."""
    os.environ['DIRTY_PRIVATE'] = '1'
    ztlib.private_mounts()
    ztlib.build_programs()
    cfg = ztlib.Config(args)
    directory = cfg.base / 'bench'
    directory.mkdir()
    ztlib.become_subreaper()
    return Scene(cfg, directory, room(args.size * 4 // 16 + 64), 1)


def bench(args):
    scene = bench_scene(args)
    try:
        for stock in (True, False):
            side = Figures(scene, args.size, stock)
            for n in range(args.steps + 1):
                if n:
                    side.chain.step()
                side.dump(n == args.steps)
            side.chain.gone()
            for _ in range(args.rounds):
                side.restore('chain')
            if not stock:
                _, side.flatten = timed(scene.device.json, 'flatten', side.chain.ids[-1])
                for _ in range(args.rounds):
                    side.restore('flat')
                scene.device.remove(*side.chain.ids[:-1])
                zoned = side
            else:
                files = side
                for n in range(args.steps + 1):
                    shutil.rmtree(side.chain.images(n))
        report(args, files, zoned)
    finally:
        scene.close()
        scene.cfg.close()
    return 0


def report(args, files, zoned):
    print(f'{args.size} MiB, {args.steps} incremental dumps, 1 % of the pages dirtied before each; pages of 4 KiB')
    print(f'{"":6}{"files":^34}{"zones":^34}{"pages":>18}')
    print(f'{"step":6}' + f'{"MiB":>10}{"dump s":>12}{"frozen s":>12}' * 2 + f'{"written":>10}{"in parent":>10}')
    for n, (f, z) in enumerate(zip(files.rows, zoned.rows)):
        print(f'{n:<6}' + ''.join(f'{r[0] / 2**20:10.2f}{r[1]:12.3f}{r[2]:12.3f}' for r in (f, z)) + f'{z[3]:10d}{z[4]:10d}')
    print(f'{"sum":6}' + ''.join(f'{sum(r[0] for r in s.rows) / 2**20:10.2f}{sum(r[1] for r in s.rows):12.3f}'
                                 f'{sum(r[2] for r in s.rows):12.3f}' for s in (files, zoned)))
    print(f'restore of the last one, cold, median of {args.rounds}: files {statistics.median(files.restores["chain"]):.3f} s, zones '
          f'{statistics.median(zoned.restores["chain"]):.3f} s, zones after flatten {statistics.median(zoned.restores["flat"]):.3f} s '
          f'(flatten itself {zoned.flatten:.3f} s)')


def bench_args():
    parser = argparse.ArgumentParser(description='Chains of dumps, in zones and in files.')
    parser.add_argument('command')
    parser.add_argument('--size', type=int, default=1024, metavar='MB')
    parser.add_argument('--steps', type=int, default=10)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--qos', default='500', metavar='MIBPS')
    ztlib.common_options(parser)
    return parser.parse_args()


def tracked():
    done = subprocess.run([ztlib.REPO / 'build' / 'bin' / 'criu', 'check', '--feature', 'mem_dirty_track'],
                          capture_output=True)
    return done.returncode == 0


if __name__ == '__main__':
    if sys.argv[1:2] != ['list'] and not tracked() and (not ztlib.helper_tracks() or sys.argv[1:2] == ['bench']):
        sys.exit('incremental: this kernel does not track dirty memory (CONFIG_MEM_SOFT_DIRTY); run it in a guest: '
                 'make test-vm')
    sys.exit(bench(bench_args()) if sys.argv[1:2] == ['bench'] else suite_main(__doc__, 'inc', CASES))
