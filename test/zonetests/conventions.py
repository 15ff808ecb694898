# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py: what holds for every program and command alike: help, versions, ids, names, exit codes, tables, JSON."""
import os
import re
import shutil
import subprocess
from pathlib import Path

from ztlib import Failed, REPO
from ztscene import TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)


def run(*command, code=0, env=None, cwd=None):
    """A program that must end with this exit code; its output."""
    done = subprocess.run([str(c) for c in command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    if done.returncode != code:
        raise Failed(f'{command}: exit {done.returncode}, not {code}: {(done.stderr or done.stdout).strip()[:300]}')
    return done.stdout if code == 0 else done.stdout + done.stderr


def program(scene, name):
    return Path(scene.cfg.znsctl).with_name(name)


def commands_of(usage):
    return re.findall(r'^  ([a-z]+) +\S', usage, re.M)


# ---- help and versions ---------------------------------------------------------------------------------

@case
def helps(scene):
    """-h, --help and `help CMD` of every command say the same, on standard output, with exit code 0; the other programs' too."""
    scene = scene(TINY, size=1)
    usage = run_ctl(scene, 0, '--help')
    commands = commands_of(usage)
    if not {'ls', 'show', 'rm', 'docker', 'metrics'} <= set(commands):
        raise Failed(f'commands in the usage: {commands}')
    docker = commands_of(run_ctl(scene, 0, 'docker', '--help'))
    for words in [[c] for c in commands] + [['docker', c] for c in docker]:
        said = run_ctl(scene, 0, *words, '--help')
        expect(f'first word of {words} --help', said.split()[0], 'usage:')
        expect(f'{words} -h', run_ctl(scene, 0, *words, '-h'), said)
        expect(f'help {words}', run_ctl(scene, 0, 'help', *words), said)
    expect('-h', run_ctl(scene, 0, '-h'), usage)
    expect('help', run_ctl(scene, 0, 'help'), usage)
    if 'no command' not in run_ctl(scene, 2, 'help', 'nosuch'):
        raise Failed('help of a command that does not exist')
    fake = scene.dir / 'bin'
    fake.mkdir()
    (fake / 'runc').write_text('#!/bin/sh\necho this is runc "$@"\n')
    (fake / 'runc').chmod(0o755)
    env = dict(scene.device.env, PATH=f'{fake}:{os.environ["PATH"]}')
    for name in ('znsd', 'zns-helper', 'zns-runc'):
        said = run(program(scene, name), '--help', env=env)
        if name not in said.split('\n')[0]:
            raise Failed(f'{name} --help: {said[:200]}')
        short = run(program(scene, name), '-h', env=env)
        expect(f'{name} -h', short.replace('runc -h', 'runc --help'), said)
    if 'this is runc --help' not in run(program(scene, 'zns-runc'), '--help', env=env):
        raise Failed('zns-runc --help is without that of runc')


@case
def versions(scene):
    """Every program says of which sources it is built, and all say the same; Docker still reads runc's version from zns-runc."""
    scene = scene(TINY, size=1)
    fake = scene.dir / 'bin'
    fake.mkdir()
    (fake / 'runc').write_text('#!/bin/sh\necho runc version 9.9.9 "$@"\n')
    (fake / 'runc').chmod(0o755)
    env = dict(scene.device.env, PATH=f'{fake}:{os.environ["PATH"]}')
    said = {name: run(program(scene, name), flag, env=env) for name, flag in
            (('znsctl', '--version'), ('znsd', '--version'), ('zns-helper', '--version'), ('zns-runc', '--zns-version'))}
    criu = run(scene.cfg.criu, '--version').splitlines()
    expect('first line of criu --version', bool(re.fullmatch(r'Version: [0-9.]+', criu[0])), True)
    builds = {name: re.fullmatch(rf'{name}: ZNS-CRIU ([\w.-]+)\n', text) for name, text in said.items()}
    expect('programs that name their build', [n for n, m in builds.items() if not m], [])
    builds = {m.group(1) for m in builds.values()} | {m.group(1) for line in criu[1:] for m in [re.match(r'ZNS-CRIU: (\S+)$', line)] if m}
    expect('builds', len(builds), 1)
    expect('znsctl -V', run_ctl(scene, 0, '-V'), said['znsctl'])
    expect('zns-runc --version', run(program(scene, 'zns-runc'), '--version', env=env), 'runc version 9.9.9 --version\n')


@case
def version_of_sources(scene):
    """The id of a build: the commit in a checkout, also from an archive of it; of sources alone a hash that changes with them."""
    scene = scene(TINY, size=1)
    here = scene.dir / 'checkout'
    for name in ('scripts/version', '.gitattributes', 'Makefile', 'zns/include/zns/err.h', 'criu/base', 'images/zns-record.proto'):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, here / name)

    def version(directory):
        return run(directory / 'scripts' / 'version').strip()

    def git(*args):
        return run('git', '-C', here, '-c', 'user.name=t', '-c', 'user.email=t@t', '-c', 'core.hooksPath=/dev/null', *args).strip()

    bare = version(here)
    if not re.fullmatch('src-[0-9a-f]{12}', bare):
        raise Failed(f'the version of sources alone is {bare}')
    (here / 'Makefile').write_text('changed\n')
    expect('changed with the sources', version(here) != bare, True)
    git('init', '-q')
    git('add', '.')
    git('commit', '-q', '-m', 'one')
    commit = git('rev-parse', '--short', 'HEAD')
    expect('of a checkout', version(here), commit)
    os.chown(here, 12345, 12345)
    expect('of a checkout of somebody else', version(here), commit)
    os.chown(here, 0, 0)
    (here / 'Makefile').write_text('changed again\n')
    expect('of a changed checkout', version(here), f'{commit}-dirty')
    unpacked = here / 'unpacked'        # inside a checkout that is not its own
    unpacked.mkdir()
    git('archive', '-o', scene.dir / 'a.tar', 'HEAD')
    run('tar', 'xf', scene.dir / 'a.tar', '-C', unpacked)
    expect('of an archive', version(unpacked), commit)
    header = scene.dir / 'header.h'
    run(unpacked / 'scripts' / 'version', header)
    before = header.stat().st_mtime_ns, header.stat().st_ino
    run(unpacked / 'scripts' / 'version', header)
    expect('a header that says so already', (header.stat().st_mtime_ns, header.stat().st_ino), before)
    expect('the header', header.read_text(), f'#define ZNS_VERSION "{commit}"\n')


# ---- ids -----------------------------------------------------------------------------------------------

@case
def short_ids(scene):
    """The first digits of an id are enough for every command, for --zns-checkpoint, --zns-parent and import --parent; three are not."""
    scene = scene(size=1)
    ident = scene.good_dump(extra=['--leave-running'])
    brief = ident[:4]
    for args in (['show', brief], ['verify', brief], ['pin', brief], ['unpin', brief], ['flatten', brief], ['docker', 'live', brief],
                 ['export', brief, scene.dir / 'out'], ['rm', brief, '--dry-run'], ['show', ident.replace('-', '')[:12].upper()]):
        said = run_ctl(scene, 1 if args[0] == 'flatten' else 0, *map(str, args))
        if args[0] == 'flatten' and 'no parent' not in said and 'whole' not in said:
            raise Failed(f'flatten {brief} says: {said}')
    for args in (['show'], ['verify'], ['pin'], ['unpin'], ['flatten'], ['rm'], ['export']):
        said = run_ctl(scene, 1, *args, ident[:3], *([str(scene.dir / 'no')] if args[0] == 'export' else []))
        if '4 digits' not in said:
            raise Failed(f'{args[0]} {ident[:3]} says: {said}')

    # As the parent of a dump: it is found, whether the kernel tracks pages or not.
    done = scene.dump(images=new_dir(scene, 'child'), extra=['--leave-running', '--zns-parent', brief])
    expect('the parent is found', len(done.lines(f'on parent {ident}')), 1)
    wrong = next(w for w in ('feed', 'beef') if not ident.startswith(w))
    scene.dump(images=new_dir(scene, 'none'), extra=['--leave-running', '--zns-parent', wrong]).must_fail(f'--zns-parent.*no checkpoint {wrong}')
    out = scene.dir / 'out'
    (out / 'parent').symlink_to('.')
    imported = scene.device.json('import', str(out), '--parent', brief)['id']
    expect('parent of what is imported', scene.device.json('show', imported)['parent'], ident)
    if 'no checkpoint' not in run_ctl(scene, 1, 'import', str(out), '--parent', 'nosuch'):
        raise Failed('import --parent nosuch is refused with another reason')

    scene.task.end()
    empty = new_dir(scene, 'empty')
    scene.restore_must_fail('--zns-checkpoint.*4 digits', images=empty, extra=['--zns-checkpoint', ident[:3]])
    scene.restore_must_fail('--zns-checkpoint.*no checkpoint', images=empty, extra=['--zns-checkpoint', 'nosuch'])
    scene.good_restore(images=empty, extra=['--zns-checkpoint', brief])


def new_dir(scene, name):
    path = scene.dir / name
    path.mkdir()
    return path
