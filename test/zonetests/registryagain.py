# SPDX-License-Identifier: GPL-2.0-only
"""
Pushes and pulls that are interrupted, and tried again: cases of registry.py.
"""
import contextlib
import subprocess
from pathlib import Path

from chains import LEVELS
from oci import depth
from ztlib import Failed, kill, wait_until
from ztpush import PLAIN_PULL, PLAIN_PUSH, case, fetched, scene_with
from ztregistry import Registry, Wire
from ztscene import expect

LAYER = 1 << 20     # bytes; a blob that is not larger is no layer


def end_skopeo(run):
    child, = Path(f'/proc/{run.pid}/task/{run.pid}/children').read_text().split()
    kill(int(child))


def killers(registry, run):
    return {'znsctl': lambda: kill(run().pid), 'skopeo': lambda: end_skopeo(run()), 'registry': registry.kill}


def interrupted(parts, wire, registry, who, way, count, *args):
    """Runs a command and kills @who when @count bytes went by. Returns the command's exit code."""
    run = None
    wire.at(way, count, killers(registry, lambda: run)[who])
    run = subprocess.Popen([parts.chain.cfg.znsctl, *args], env=parts.device.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = run.communicate(timeout=120)[1].strip()
    if wire.when:
        raise Failed(f'{who}: it ended before anybody was killed: {said}')
    if who != 'znsctl' and (run.returncode != 1 or '\n' in said or said.endswith(':') or 'damaged' in said):
        raise Failed(f'{who}: exit {run.returncode}, it says: {said}')
    print(f'     {who}, after {count} bytes: exit {run.returncode} {said[:120]}', flush=True)
    if who == 'registry':
        registry.start()
    return run.returncode


def nobody(what):
    """Does no process have this in its arguments?"""
    for p in Path('/proc').glob('[0-9]*/cmdline'):
        with contextlib.suppress(OSError):
            if what.encode() in p.read_bytes():
                return False
    return True


@contextlib.contextmanager
def wired(parts, name):
    directory = parts.chain.dir / name
    directory.mkdir()
    with Registry(directory) as registry, contextlib.closing(Wire(registry)) as wire:
        yield registry, wire


@case
def push_again(scene):
    """znsctl, skopeo or the registry is killed in the middle of a push: the next one sends only what is missing, and the image is complete."""
    parts, tmp, room = scene_with(scene)
    before = parts.left()
    with wired(parts, 'whole') as (registry, wire):
        parts.ctl(0, 'push', parts.ids[0], wire.name('web:x'), *room, *PLAIN_PUSH)
        total = sum(registry.layers(LAYER).values())
        expect('layers', len(registry.layers(LAYER)), LEVELS)
        if wire.counts['up'] < total:
            raise Failed(f'{wire.counts} counted for layers of {total} bytes')
    for who in ('znsctl', 'skopeo', 'registry'):
        with wired(parts, who) as (registry, wire):
            push = ['push', parts.ids[0], wire.name(f'web:{who}'), *room, *PLAIN_PUSH]
            interrupted(parts, wire, registry, who, 'up', total * 9 // 10, *push)
            # a skopeo whose znsctl is dead cannot read any more, so it ends too
            if not wait_until(lambda: nobody(wire.name(f'web:{who}')), 20):
                raise Failed(f'{who} was killed, and something of it lives on')
            left = sum(p.stat().st_size for p in tmp.rglob('*') if p.is_file() and not p.is_symlink())
            if (list(tmp.iterdir()) if who != 'znsctl' else left > 1 << 16) or str(tmp) in Path('/proc/self/mountinfo').read_text():
                raise Failed(f'{who}: {left} bytes are left on the way')
            subprocess.run(['rm', '-r', *tmp.iterdir()], check=False, stderr=subprocess.DEVNULL)
            have = sum(registry.layers(LAYER).values())
            wire.at('up', 1 << 60, None)
            parts.ctl(0, *push)
            print(f'     {total} bytes, of which {have} were there; {wire.counts["up"]} were sent then', flush=True)
            if not 0 < have < total or wire.counts['up'] > 1.02 * (total - have) + (64 << 10):
                raise Failed(f'{who}: {wire.counts["up"]} bytes were sent for {total - have}')
            fetched(parts, tmp, registry, f'web:{who}')
            expect('checkpoints', parts.left(), before)


@case
def pull_again(scene):
    """znsctl, skopeo or the registry is killed in the middle of a pull: layers that had arrived are not fetched
    again, one that was cut off leaves nothing; no zone is lost; the next pull of a chain fetches only what is new."""
    parts, tmp, room = scene_with(scene)
    before = parts.left()
    with wired(parts, 'all') as (registry, wire):
        for n in reversed(range(LEVELS)):
            parts.ctl(0, 'push', parts.ids[n], registry.name(f'web:v{LEVELS - n}'), *room, *PLAIN_PUSH)
        total = sum(registry.layers(LAYER).values())

        def pull(container, tag=f'v{LEVELS}', *more):
            return ['pull', wire.name(f'web:{tag}'), '--container', container, *more, *room, *PLAIN_PULL]

        def gone(container):
            for c in parts.device.checkpoints():
                if c['container'] == container:
                    parts.ctl(0, 'unpin', c['id'])
            parts.ctl(0, 'rm', '--container', container)

        def fetched_by(*args):
            wire.at('down', 1 << 60, None)
            parts.ctl(0, *args)
            return wire.counts['down']

        whole = fetched_by(*pull('control'))
        if whole < total:
            raise Failed(f'{whole} counted for layers of {total} bytes')
        gone('control')
        free = parts.device.free_zones()
        for who in ('skopeo', 'registry', 'znsctl'):
            interrupted(parts, wire, registry, who, 'down', total * 9 // 10, *pull(who))
            kept = [c for c in parts.device.checkpoints() if c['container'] == who]
            expect(f'{who}: checkpoints of before', sorted({*parts.left()} - {c['id'] for c in kept}), before)
            if who != 'znsctl':
                expect(f'{who}: checkpoints', kept, [])
                if not wait_until(lambda: parts.device.free_zones() == free, 20, 0.2):
                    raise Failed(f'{who}: {parts.device.free_zones()} free zones, {free} before')
                continue
            if not 0 < len(kept) < LEVELS:
                raise Failed(f'{len(kept)} checkpoints of {LEVELS} are there')
            for c in kept:
                parts.ctl(0, 'verify', c['id'])
            handle = parts.chain.dir / 'pulled'
            down = fetched_by(*pull(who, f'v{LEVELS}', '--handle', str(handle)))
            have = sum(sorted(registry.layers(LAYER).values(), reverse=True)[:len(kept)])
            print(f'     {total} bytes, {len(kept)} checkpoints of {have} were there; {down} were fetched then', flush=True)
            if down > 1.02 * (total - have) + (64 << 10):
                raise Failed(f'{down} bytes were fetched for {total - have}')
            again, = [c['id'] for c in parts.device.checkpoints() if c['container'] == who and not c['pre_dump']]
            expect('levels', depth(parts.device, again), LEVELS)
            expect('checkpoints', len(parts.left()), len(before) + LEVELS)
            parts.restore(handle)
            gone(who)
            if not wait_until(lambda: parts.device.free_zones() == free, 20, 0.2):
                raise Failed(f'{parts.device.free_zones()} free zones, {free} before')
        news = [fetched_by(*pull('other', f'v{n + 1}')) for n in range(LEVELS)]
        print(f'     a chain, pulled after each dump: {news} bytes', flush=True)
        if sum(news) > 1.02 * total + LEVELS * (64 << 10):
            raise Failed(f'{sum(news)} bytes were fetched for {total}')
        if fetched_by(*pull('third')) < total:
            raise Failed("another container's checkpoints were taken for its own")
