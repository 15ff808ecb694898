# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py about what every program and command has in common: help, versions, ids, names, exit codes, tables, JSON."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ztlib import Failed, REPO, wait_until
from ztscene import TINY, case_of, expect, run_ctl, suite_main

CASES = {}
case = case_of(CASES)


def run(*command, code=0, env=None, cwd=None):
    """Runs a program that must end with this exit code; returns its output."""
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

def wide(text):
    """Returns the lines that are longer than 80 columns."""
    return [line for line in text.split('\n') if len(line) > 80]


@case
def helps(scene):
    """-h, --help and `help CMD` of every command print the same, on standard output, with exit code 0; so do the other programs."""
    scene = scene(TINY, size=1)
    usage = run_ctl(scene, 0, '--help')
    expect('--help: longer lines', wide(usage) + wide(run(scene.cfg.criu, '--help')), [])
    commands = commands_of(usage)
    if not {'ls', 'show', 'rm', 'docker', 'metrics'} <= set(commands):
        raise Failed(f'commands in the usage: {commands}')
    expect('groups of commands', len(re.findall(r'\n\n[A-Z][a-z ]+:\n  ', usage)), 6)
    subs = [[c, sub] for c in ('docker', 'memory') for sub in commands_of(run_ctl(scene, 0, c, '--help'))]
    for words in [[c] for c in commands] + subs:
        said = run_ctl(scene, 0, *words, '--help')
        expect(f'first word of {words} --help', said.split()[0], 'usage:')
        expect(f'{words} --help: longer lines', wide(said.split('\n', 1)[1]), [])
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
    for name in ('znsd', 'zns-helper', 'zns-mem', 'zns-memkeep', 'zns-runc'):
        said = run(program(scene, name), '--help', env=env)
        expect(f'{name} --help: longer lines', wide(said), [])
        if name not in said.split('\n')[0]:
            raise Failed(f'{name} --help: {said[:200]}')
        short = run(program(scene, name), '-h', env=env)
        expect(f'{name} -h', short.replace('runc -h', 'runc --help'), said)
    if 'this is runc --help' not in run(program(scene, 'zns-runc'), '--help', env=env):
        raise Failed('zns-runc --help is without that of runc')


@case
def versions(scene):
    """Every program prints of which sources it was built, and all print the same; Docker can still read runc's version from zns-runc."""
    scene = scene(TINY, size=1)
    fake = scene.dir / 'bin'
    fake.mkdir()
    (fake / 'runc').write_text('#!/bin/sh\necho runc version 9.9.9 "$@"\n')
    (fake / 'runc').chmod(0o755)
    env = dict(scene.device.env, PATH=f'{fake}:{os.environ["PATH"]}')
    said = {name: run(program(scene, name), flag, env=env) for name, flag in
            (('znsctl', '--version'), ('znsd', '--version'), ('zns-helper', '--version'), ('zns-mem', '--version'),
             ('zns-memkeep', '--version'), ('zns-runc', '--zns-version'))}
    criu = run(scene.cfg.criu, '--version').splitlines()
    said['znsctl'] = said['znsctl'].split('\n')[0] + '\n'     # the formats follow, which the next case checks
    # a package's upgrade script asks for this
    expect('memory contexts', bool(re.search(r'\nMemory contexts: \d+\n$', said['zns-mem'])), True)
    said['zns-mem'] = said['zns-mem'].split('\n')[0] + '\n'
    expect('first line of criu --version', bool(re.fullmatch(r'Version: [0-9.]+', criu[0])), True)
    builds = {name: re.fullmatch(rf'{name}: ZNS-CRIU ([\w.-]+)\n', text) for name, text in said.items()}
    expect('programs that name their build', [n for n, m in builds.items() if not m], [])
    builds = {m.group(1) for m in builds.values()} | {m.group(1) for line in criu[1:] for m in [re.match(r'ZNS-CRIU: (\S+)$', line)] if m}
    expect('builds', len(builds), 1)
    expect('zns-runc --version', run(program(scene, 'zns-runc'), '--version', env=env), 'runc version 9.9.9 --version\n')


@case
def formats(scene):
    """znsctl --version names the formats that are on a device just made, and format.md has them in the row of this release."""
    scene = scene(TINY, size=1)
    said = run_ctl(scene, 0, '--version')
    expect('znsctl -V', run_ctl(scene, 0, '-V'), said)
    told = json.loads(run_ctl(scene, 0, '--version', '--json'))
    expect('JSON and text: version', said.split('\n')[0], f'znsctl: ZNS-CRIU {told["version"]}')
    writes = {k: f['writes'] for k, f in told['formats'].items()}
    for way, line in (('writes', 'Writes on devices:'), ('reads', 'Reads:')):
        named = ', '.join(f'{name} {n}' for name, key in (('store', 'store'), ('frames', 'frame'), ('manifests', 'manifest'), ("emulator's file", 'emulator'))
                          for n in ([writes[key]] if way == 'writes' else told['formats'][key]['reads']))
        if f'{line} {named}' not in said.split('\n'):
            raise Failed(f'--version has no "{line} {named}": {said}')
    expect('what is written and not read', [k for k, f in told['formats'].items() if f['writes'] not in f['reads']], [])
    with open(scene.device.path, 'rb') as device:
        header = device.read(152)
        device.seek(int.from_bytes(header[128:136], 'little'))
        frame = device.read(48)
    expect('magic of the first frame', frame[:8], b'ZNSCRIU1')
    expect("the emulator's file", int.from_bytes(header[8:12], 'little'), writes['emulator'])
    expect('the first frame', int.from_bytes(frame[10:12], 'little'), writes['frame'])
    release = told['version'].split('-')[0]
    rows = [r for r in (REPO / 'Documentation' / 'inside' / 'format.md').read_text().split('\n') if r.startswith(f'| {release} |')]
    expect('row in format.md', [r.split(' | ')[:4] for r in rows],
           [[f'| {release}', *(str(writes[k]) for k in ('store', 'frame', 'emulator'))]])
    run_ctl(scene, 2, '--version', '--jsno')
    run_ctl(scene, 2, '--version', '--json', 'more')


@case
def version_of_sources(scene):
    """The id of a build: the commit in a checkout, also in an archive of it; without git a hash of the sources, which changes with them."""
    scene = scene(TINY, size=1)
    here = scene.dir / 'checkout'
    for name in ('VERSION', 'scripts/version', '.gitattributes', 'Makefile', 'zns/include/zns/err.h', 'criu/base', 'images/zns-record.proto'):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, here / name)

    release = (REPO / 'VERSION').read_text().strip()

    def version(directory):
        said = run(directory / 'scripts' / 'version').strip()
        expect('the release in front', said.startswith(f'{release}-'), True)
        return said[len(release) + 1:]

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
    unpacked = here / 'unpacked'        # inside a checkout of another repository
    unpacked.mkdir()
    git('archive', '-o', scene.dir / 'a.tar', 'HEAD')
    run('tar', 'xf', scene.dir / 'a.tar', '-C', unpacked)
    expect('of an archive', version(unpacked), commit)
    header = scene.dir / 'header.h'
    run(unpacked / 'scripts' / 'version', header)
    before = header.stat().st_mtime_ns, header.stat().st_ino
    run(unpacked / 'scripts' / 'version', header)
    expect('a header that says so already', (header.stat().st_mtime_ns, header.stat().st_ino), before)
    expect('the header', header.read_text(), f'#define ZNS_VERSION "{release}-{commit}"\n')


@case
def earlier_releases(scene):
    """Checkpoints that earlier releases wrote are read byte for byte; the control: with one hash spoiled the test fails."""
    scene = scene(TINY, size=1)
    bin_dir = Path(scene.cfg.znsctl).parent
    old = scene.dir / 'old'
    shutil.copytree(REPO / 'test' / 'old', old)
    releases = list(old.glob('*.tar.xz'))
    expect('releases', bool(releases), True)
    said = run(old / 'read', bin_dir)
    for release in releases:
        expect(f'cases of {release.name}', len(re.findall(rf'^PASS {re.escape(release.name[:-7])}: ', said, re.M)) >= 5, True)
    for release in releases:
        unpacked = scene.dir / release.name[:-7]
        unpacked.mkdir()
        run('tar', '-C', unpacked, '-xf', release)
        hashes = unpacked / 'second.sha256'
        text = hashes.read_text()
        hashes.write_text(('1' if text[0] == '0' else '0') + text[1:])
        run('tar', '-C', unpacked, '-cJf', release, '.')
    if 'second' not in run(old / 'read', bin_dir, code=1):
        raise Failed('a spoiled hash is not noticed')


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

    # As the parent of a dump: the checkpoint is found, even if the kernel cannot track pages.
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


# ---- which checkpoints ---------------------------------------------------------------------------------

COMMANDS = (['ls'], ['show'], ['verify'], ['rm', '--dry-run'])


@case
def same_words(scene):
    """ls, show, verify and rm accept and refuse the same ids, directories, names and options, with the same exit codes."""
    scene = scene(size=1)
    ident = scene.good_dump(extra=['--leave-running'])
    plain = new_dir(scene, 'plain')
    taken = [[ident], [ident[:4]], [str(scene.images)], ['errors'], ['--container', 'errors'], ['--pattern', 'err*'],
             ['--pattern', 'none*'], ['--all'], [scene.device.spec, ident], ['--dev', scene.device.spec, 'errors']]
    refused = [['nosuch'], [ident[:3]], [str(plain)], [str(scene.dir / 'nothing')], ['0' * 8 + ident[8:]], ['--container', 'nosuch'],
               [scene.device.spec, 'nosuch']]
    usage = [[''], [ident, '--all'], ['--container', 'errors', '--pattern', '*'], ['--nosuch']]
    for code, words in ((0, taken), (1, refused), (2, usage)):
        for word in words:
            for command in COMMANDS:
                said = run_ctl(scene, code, *command, *word)
                if code == 0 and '--pattern' not in word:
                    json.loads(run_ctl(scene, 0, *command, *word, '--json'))
                if code and re.search('znsctl (register|format|create)', said):
                    raise Failed(f'{command} {word} says: {said}')
    expect('still there', scene.ids(), [ident])
    # The work directory may have the name of a container.
    new_dir(scene, 'errors')
    for command in COMMANDS:
        run(scene.cfg.znsctl, *command, 'errors', env=scene.device.env, cwd=scene.dir)
    # Every command says when, and by which command, a checkpoint was removed; rm alone does not take that for an
    # error.
    run_ctl(scene, 0, 'rm', str(scene.images))
    expect('removed by its directory', scene.ids(), [])
    for word in (ident, str(scene.images)):
        for command in (['show'], ['verify'], ['export'], ['pin']):
            if command[0] == 'pin' and word != ident:
                continue
            said = run_ctl(scene, 1, *command, word, *([str(scene.dir / 'no')] if command[0] == 'export' else []))
            if command[0] != 'pin' and not re.search(r'of container errors was deleted at \S+ by znsctl rm', said):
                raise Failed(f'{command[0]} of a removed checkpoint says: {said}')
        run_ctl(scene, 0, 'rm', word)


@case
def tree(scene):
    """show of a container: its checkpoints, a sum of their images (-v: each image), and their zones."""
    scene = scene()
    first, second = scene.good_dump(extra=['--leave-running']), scene.good_dump(images=new_dir(scene, 'second'), extra=['--leave-running'])
    out = scene.dir / 'out'
    run_ctl(scene, 0, 'export', first, str(out))
    run_ctl(scene, 0, 'import', str(out), '--container', 'other')
    shown = {i: scene.device.json('show', i) for i in (first, second)}
    listed = scene.device.json('show', 'errors')['checkpoints']
    expect('as JSON', [(c['id'], c['images']) for c in listed], [(i, shown[i]['images']) for i in (first, second)])
    brief, full = (run_ctl(scene, 0, 'show', 'errors', *flags).splitlines() for flags in ((), ('-v',)))
    total = [c for c in scene.device.checkpoints() if c['container'] == 'errors']
    if not re.fullmatch(r'errors: 2 checkpoints, [0-9.]+ MiB', brief[0]):
        raise Failed(f'the first line is {brief[0]}')
    expect('checkpoints', [l.split()[0] for l in brief if re.match('  [0-9a-f]', l)], [c['id'][:8] for c in total])
    for ident in (first, second):
        zones = {kind: {e['zone'] for i in shown[ident]['images'] if i['name'].startswith('pages-') == kind for s in i['segments']
                        for e in s['extents']} for kind in (True, False)}
        at = [n for n, l in enumerate(brief) if l.startswith(f'  {ident[:8]}')][0]
        said = {}
        for line in brief[at + 1:]:
            if re.match('  [0-9a-f]', line):
                break
            if re.match(r'    \S', line):
                kind = 'memory' in line
                said[kind] = (int(line.split()[0]), set())
            else:
                said[kind][1].update(int(w) for w in line.split() if w.isdigit())
        for kind in (True, False):
            nr = sum(i['name'].startswith('pages-') == kind for i in shown[ident]['images'])
            expect(f'images and zones of {ident[:8]}, memory {kind}', said[kind], (nr, zones[kind]))
    names = [i['name'] for ident in (first, second) for i in shown[ident]['images']]
    expect('images with -v', [l.strip().rpartition(', ')[0] for l in full if re.match(r'    \S', l)], names)
    expect('containers', [l.split(':')[0] for l in run_ctl(scene, 0, 'show', '--all').splitlines() if not l.startswith(' ')], ['errors', 'other'])


# ---- tables --------------------------------------------------------------------------------------------

@case
def tables(scene):
    """Tables fit 80 columns, and a name with blanks in it stays one field."""
    scene = scene()
    ident = scene.good_dump(extra=['--leave-running'])
    odd, out = 'my web app', scene.dir / 'out'
    run_ctl(scene, 0, 'export', ident, str(out))
    imported = scene.device.json('import', str(out), '--container', odd)['id']
    run_ctl(scene, 0, 'pin', ident)
    run_ctl(scene, 0, 'retain', odd, '--keep', '3', '--ttl', '7d')
    run_ctl(scene, 0, 'reserve', odd + '!', '--groups', '1')
    for command in (['ls'], ['zones'], ['groups'], ['retain'], ['verify', '--all'], ['gc', '--dry-run'], ['show', 'errors'],
                    ['show', 'errors', '-v'], ['show', ident], ['status', '--all'], ['rm', imported, '--dry-run']):
        said = run_ctl(scene, 0, *command)
        if command == ['status', '--all']:      # file names are not shortened
            said = said.replace(scene.device.spec, 'emu:/var/lib/zns0.img')
        # lines with a name or a path in them may be longer, unless they are in a table
        if command == ['show', ident]:
            said = ''.join(l + '\n' for l in said.splitlines() if not re.match('device|made by', l))
        long = [l for l in said.splitlines() if len(l) > 80]
        if long:
            raise Failed(f'{" ".join(command)} has lines of {len(long[0])} columns: {long[0]}')
    rows = {shlex.split(l)[0]: shlex.split(l) for l in run_ctl(scene, 0, 'ls').splitlines()}
    expect('columns of ls', {len(r) - (n != 'id') for n, r in rows.items()}, {6})     # "1.2 MiB" is two words
    expect('names in ls', [rows[i[:8]][-1] for i in (ident, imported)], ['errors', odd])
    expect('flags in ls', [rows[i[:8]][-2] for i in (ident, imported)], ['p', '-'])
    wide = [shlex.split(l) for l in run_ctl(scene, 0, 'ls', '-v').splitlines()]
    expect('ids in ls -v', [r[0] for r in wide[1:]], [ident, imported])
    expect('a name in ls -v', odd in wide[2], True)
    expect('owners in zones', odd in {w for l in run_ctl(scene, 0, 'zones').splitlines() for w in shlex.split(l)[-1:]}, True)
    expect('retain', shlex.split(run_ctl(scene, 0, 'retain'))[0], odd)
    expect('verify', [shlex.split(l)[1] for l in run_ctl(scene, 0, 'verify', '--all').splitlines()[:2]], ['errors', odd])


# ---- figures and words ---------------------------------------------------------------------------------

@case
def metrics_json(scene):
    """metrics --json has what the text has; a device that is away is one that is not up."""
    scene = scene(size=1)
    ident = scene.good_dump()
    scene.device.json('create', f'emu:{scene.dir}/away', '--zones', '16', '--zone-size', '4M')
    (scene.dir / 'away').rename(scene.dir / 'elsewhere')
    done = scene.device.ctl('metrics', '--json')
    expect('exit', done.returncode, 0)
    devices = {d['path']: d for d in json.loads(done.stdout)['devices']}
    expect('up', {p: d['up'] for p, d in devices.items()}, {scene.device.spec: True, f'emu:{scene.dir}/away': False})
    device, status = devices[scene.device.spec], scene.device.json('status', scene.device.spec)
    for key in ('device', 'bytes_live', 'bytes_free', 'bytes_wasted', 'zones_by_state', 'checkpoints'):
        expect(key, device[key], status[key])
    (container,) = device['containers']
    expect('container', (container['container'], container['checkpoints'], container['last']['id']), ('errors', 1, ident))
    into = scene.dir / 'metrics.json'
    expect('into a file', run_ctl(scene, 0, 'metrics', '--json', '--output', str(into)), '')
    expect('in the file', json.loads(into.read_text())['devices'][0].keys(), device.keys())


@case
def broken_tenants(scene):
    """status says that tenants.conf has an error, in the same line with which a dump fails."""
    scene = scene(TINY, size=1)
    expect('without the file', scene.device.status()['tenants_error'], None)
    conf = Path(scene.device.env['ZNS_CONFIG']) / 'tenants.conf'
    conf.write_text('container=x max-qos=nonsense\n')
    error = scene.device.status()['tenants_error']
    if not error or 'tenants.conf:1' not in error:
        raise Failed(f'tenants_error is {error}')
    (line,) = [l for l in run_ctl(scene, 0, 'status').splitlines() if l.startswith('tenants')]
    expect('the line', (error in line, 'NO DUMP' in line), (True, True))
    scene.failed_dump(re.escape(error))
    conf.unlink()
    expect('mended', scene.device.status()['tenants_error'], None)
    scene.good_dump()


@case
def words(scene):
    """A figure that is unknown is not shown as 0, and a key that is not made of its name is not said to be."""
    scene = scene(TINY, size=1)
    run_ctl(scene, 0, 'retain', 'errors', '--ttl', '7d')
    said = run_ctl(scene, 0, 'retain')
    expect('a rule without a number', ('keep 0' in said, '7d' in said), (False, False) if '1w' in said else (False, True))
    key = scene.dir / 'k2'
    said = run_ctl(scene, 0, 'key', 'create', str(key))
    shown = scene.device.json('key', 'show', f'file:{key}')['key_id']
    expect('key create', said, f'made a new key in {key}: fingerprint {shown}\n')


@case
def gc_zones(scene):
    """gc reports how many zones it freed: those that its removals emptied, and those that were free already; --dry-run reports the same."""
    scene = scene(size=40)
    root = new_dir(scene, 'docker')
    (root / 'containers').mkdir()
    scene.good_dump(extra=['--leave-running'])
    origin = {'ZNS_ORIGIN_KIND': 'docker', 'ZNS_ORIGIN_ID': 'c0ffee00' * 8, 'ZNS_ORIGIN_ROOT': str(root), 'ZNS_ORIGIN_CHECKPOINT': 'cp1'}
    before = scene.device.free_zones()
    lost = scene.good_dump(images=new_dir(scene, 'lost'), env=dict(scene.device.env, **origin),
                           extra=['--leave-running', '--zns-container', 'of-docker'])
    wait_until(lambda: not scene.device.status()['leases'], 5)
    used = scene.device.free_zones()
    expect('zones that only it has', before - used > 1, True)
    dry = json.loads(run_ctl(scene, 0, 'gc', '--grace', '0', '--dry-run', '--json'))
    expect('to be removed', [c['id'] for c in dry['checkpoints'] if c['action'] == 'remove'], [lost])
    expect('zones of a dry run', len(dry['zones']), before - used)
    expect('nothing was done', scene.device.free_zones(), used)
    said = run_ctl(scene, 0, 'gc', '--grace', '0')
    expect('free again', scene.device.free_zones(), before)
    if not re.search(rf'; {before - used} zones reset\n', said):
        raise Failed(f'{before - used} zones came back, gc says: {said}')
    expect('a second time', '; 0 zones reset' in run_ctl(scene, 0, 'gc', '--grace', '0'), True)


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'tools', CASES))
