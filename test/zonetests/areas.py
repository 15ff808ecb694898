#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
areas: the list of areas of programs that people run, before a dump and after its restore, by every way; as a table.

  areas.py [--apps NAME…] [--ways WAY…] [--report DIR]

A program works for a moment, is stopped (SIGSTOP), dumped and restored stopped: so nothing but the restore can change its areas.
Then it goes on and checks its data. Neighbours that differ in nothing count as one, before and after (ztareas.joined).
Stock CRIU (scripts/zdtm-sample --stock-only builds it) is one of the ways.
"""
import argparse
import copy
import json
import os
import signal
import sys
from pathlib import Path

import ztapps
import ztareas
import ztlib
from liveapps import ROOM
from migration import lazy_daemon
from ztlib import Failed, REPO, Skipped, alive, wait_until
from ztscene import Outcome, expect, run_case

STOCK = REPO / 'build' / 'zdtm' / 'stock' / 'criu' / 'criu'
MEMORY = '64M'      # DRAM budget of each program that is restored into a memory context
LIVE, TRACK = '--zns-live', '--track-mem'
# For each way: the dumps, each on the one before; is the restore lazy; more options of the restore. memory is the
# last, since a program in a memory context stays there.
WAYS = {
    'stock': ([[]], False, []),
    'plain': ([[]], False, []),
    'live': ([[LIVE]], False, []),
    'chain': ([[TRACK], [TRACK], [TRACK]], False, []),
    'live chain': ([[LIVE, TRACK], [LIVE, TRACK]], False, []),
    'lazy': ([[]], True, []),
    'live, lazy': ([[LIVE]], True, []),
    'chain, lazy': ([[TRACK], [TRACK]], True, []),
    'memory': ([[]], False, ['--zns-memory', MEMORY]),
    'live, memory': ([[LIVE]], False, ['--zns-memory', MEMORY]),
}


class Tried:
    """Takes one program through all ways, one after the other."""

    def __init__(self, scene, kind):
        self.scene, self.kind, self.app, self.number, self.dumps = scene, kind, None, 0, 0

    def running(self):
        if not self.app or not alive(self.app.pid):
            self.number += 1
            directory = self.scene.dir / f'{self.kind.name}-{self.number}'
            directory.mkdir()
            self.app = self.kind(directory)
            self.scene.tasks.append(self.app)
            self.app.start()

    def signal(self, sig):
        for pid in ztlib.tree(self.app.pid):
            ztlib.kill(pid, sig)

    def stop(self):
        self.signal(signal.SIGSTOP)
        threads = [t for pid in ztlib.tree(self.app.pid) for t in Path(f'/proc/{pid}/task').iterdir()]
        if not wait_until(lambda: all(self.state(t) in 'TZ' for t in threads)):
            raise Failed('a thread does not stop')

    @staticmethod
    def state(thread):
        try:
            return (thread / 'stat').read_text().rpartition(')')[2].split()[0]
        except OSError:
            return 'Z'

    def work(self):
        self.signal(signal.SIGCONT)
        before = self.app.work()
        self.app.load()
        wait_until(lambda: self.app.work() > before)
        self.app.unload()

    def dumped(self, way, dumps):
        """Dumps the program; returns (directory of the last dump, areas before it)."""
        app, scene, parent = self.app, self.scene, []
        for n, options in enumerate(dumps):
            last = n + 1 == len(dumps)
            images = scene.dir / f'images-{self.dumps}'
            self.dumps += 1
            images.mkdir()
            self.stop()
            areas = ztareas.of_tree(ztlib.tree(app.pid), stopped=True)
            extra = [*options, *parent, *([] if last else ['--leave-running'])]
            if way == 'stock':
                self.stock('dump', images)
            else:
                parent = ['--zns-parent', scene.good_dump(images=images, task=app, extra=extra)]
            if not last:
                self.work()
        if not wait_until(lambda: not alive(app.pid)):
            raise Failed('the program is there after its dump')
        return images, areas

    def stock(self, word, images):
        cfg, log = copy.copy(self.scene.cfg), self.scene.log()
        cfg.stock, cfg.criu = True, str(STOCK)
        args = ztlib.dump_args(cfg, self.app, images, log, '') if word == 'dump' else ztlib.restore_args(self.app, images, log)
        done = ztlib.run_criu(cfg, args, log, dict(os.environ))
        if done.returncode:
            raise Failed(f'stock {word}: {ztlib.log_errors(log)}')
        if word == 'restore':
            self.app.restored(int(Path(str(log) + '.pid').read_text()))

    def restored(self, way, images, lazy, options):
        if way == 'stock':
            return self.stock('restore', images)
        daemon = lazy_daemon(self.scene, images) if lazy else None
        done = self.scene.restore(images=images, task=self.app, extra=[*options, *(['--lazy-pages'] if lazy else [])])
        said = f'{" | ".join(done.errors()[-3:])}; {" | ".join(Outcome(0, daemon.log).errors()[-3:]) if lazy else ""}'
        if daemon and done.code:
            daemon.stop()
        expect(f'exit code of the restore ({said})', done.code, 0)
        if daemon:
            expect('exit code of the daemon', daemon.end().code, 0)
        return None

    def one(self, way):
        """(areas before, areas after, what differs or '')"""
        dumps, lazy, options = WAYS[way]
        self.running()
        self.work()
        images, before = self.dumped(way, dumps)
        self.restored(way, images, lazy, options)
        pids = ztlib.tree(self.app.pid)
        after = ztareas.of_tree(pids, stopped=True)
        differs = ztareas.differences(before, after)
        if before.keys() != after.keys():
            differs = f'processes {sorted(before)} before, {sorted(after)} after'
        self.signal(signal.SIGCONT)
        self.app.check()
        if options:
            self.end()
        return sum(map(len, before.values())), sum(map(len, after.values())), differs

    def end(self):
        if self.app:
            self.app.end()
        self.app = None


def tried(scene, kind, ways):
    """Returns {way: what the table says}."""
    room, found = scene(ROOM, 1), {}
    tried = Tried(room, kind)
    for way in ways:
        try:
            if way == 'stock' and not STOCK.exists():
                raise Skipped('stock CRIU is not built')
            before, after, differs = tried.one(way)
            found[way] = {'before': before, 'after': after, 'differs': differs}
        except Skipped as reason:
            found[way] = {'skipped': str(reason)}
        except Failed as reason:
            found[way] = {'failed': ztlib.one_line(reason)}
            tried.end()
        print(f'    {kind.name}, {way}: {found[way]}', flush=True)
    tried.end()
    return found


def cell(found):
    if 'before' not in found:
        return 'failed' if 'failed' in found else '-'
    text = f'{found["before"]}' if found['before'] == found['after'] else f'{found["before"]} → {found["after"]}'
    return text if not found['differs'] else f'**{text}**'


def table(results, ways):
    yield f'| areas | {" | ".join(ways)} |'
    yield '| --- |' + ' --- |' * len(ways)
    for name, found in results.items():
        yield f'| {name} | ' + ' | '.join(cell(found.get(way, {})) for way in ways) + ' |'
    yield ''
    yield 'Of all processes, before the dump and, if they are others, after the restore. Bold: the lists differ.'


def main():
    kinds = {kind.name: kind for kind in ztapps.ALL}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--apps', nargs='+', choices=kinds, default=[*kinds], metavar='NAME', help=f'of {", ".join(kinds)}')
    parser.add_argument('--ways', nargs='+', choices=WAYS, default=[*WAYS], metavar='WAY', help=f'of {", ".join(WAYS)}')
    ztlib.common_options(parser)
    args = parser.parse_args()
    ztlib.private_mounts()
    ztlib.build_programs()
    cfg, results = ztlib.Config(args), {}
    try:
        for name in args.apps:
            answer = cfg.base / f'{name}.json'
            ztlib.run_jobs([(name, 'areas', lambda: run_case(cfg, 'areas', name, lambda scene: answer.write_text(
                json.dumps(tried(scene, kinds[name], args.ways)))))], 1, cfg.base)
            results[name] = json.loads(answer.read_text()) if answer.exists() else {}
    finally:
        cfg.close()
    text = '\n'.join(table(results, args.ways))
    print(text)
    if args.report:
        directory = Path(args.report)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / 'report.md').write_text(text + '\n')
        (directory / 'areas.json').write_text(json.dumps(results, indent=1) + '\n')
    return int(any(found.get('differs') or 'failed' in found for ways in results.values() for found in ways.values()))


if __name__ == '__main__':
    sys.exit(main())
