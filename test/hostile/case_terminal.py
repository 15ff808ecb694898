# SPDX-License-Identifier: GPL-2.0-only
"""What a catalogue or a user names, on its way to a terminal.

Names, hosts and paths of records may hold escape sequences: no table, message or log line passes them on.
"""
import json
import unicodedata

from forge import CHECKPOINT, RETENTION, Found, get, having, log, pack, put_manifest, unpack
from tally import tried
from tools import Media, manifest_of, stop_broker
from ztlib import Failed
from ztscene import TINY, case_of, run_ctl

CASES = {}
case = case_of(CASES)

EVIL = {
    'colour': b'\x1b[31mred', 'title': b'\x1b]0;owned\x07', 'new line': b'a\nb  intact', 'carriage return': b'ab\rcd',
    'backspace': b'ab\x08\x08xy', 'delete': b'ab\x7f', 'C1 in UTF-8': b'\xc2\x9b31mred', 'C1 alone': b'\x9b31mred',
    'right to left': 'abc\u202etxt.exe'.encode(), 'isolate': 'a\u2066b'.encode(), 'line separator': 'a\u2028b'.encode(),
    'no UTF-8': b'\xff\xfe\x80', 'cut character': b'abc\xe2\x82', 'overlong': b'\xc0\x9b\xe0\x80\x9b', 'surrogate': b'\xed\xa0\x80',
    'beyond Unicode': b'\xf4\x90\x80\x80', 'NUL-free C0': bytes(range(1, 32)),
}


def clean(what, said):
    """Nothing that a terminal obeys; the lines' ends and tabs are ours."""
    for c in said:
        if c not in '\n\t' and (unicodedata.category(c) in ('Cc', 'Cf', 'Zl', 'Zp', 'Cs') or c == '\ufffd'):
            raise Failed(f'{what} passes on {c!r}: {said[:200]!r}')


def output(scene, *args):
    """Both streams of a command as bytes that must be UTF-8."""
    import subprocess
    done = subprocess.run([scene.cfg.znsctl, *args], env=scene.device.env, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=scene.cfg.timeout, check=False)
    try:
        return done.stdout.decode(), done.stderr.decode()
    except UnicodeDecodeError as e:
        raise Failed(f'znsctl {" ".join(args)}: {e}') from e


@case
def names_of_records(scene):
    """Every text of a checkpoint's record and manifest, in tables, JSON and criu's log."""
    scene = scene(TINY, size=1)
    ident = scene.good_dump()
    run_ctl(scene, 0, 'retain', 'other', '--keep', '3')
    media = Media(scene)
    zone, offset = manifest_of(scene, media, ident)
    stop_broker(scene)
    before, good = media.copy_of_metadata(), media.read(zone, offset, 16384)
    for what, evil in EVIL.items():
        record = [f for f in log(media) if f.kind == CHECKPOINT][-1]
        rule = [f for f in log(media) if f.kind == RETENTION][-1]
        there = Found(media, zone, offset)
        inner = unpack(get(there.fields, 2))
        images = [unpack(v) for n, v in there.fields if n == 3]
        images[0] = having(images[0], 1, evil.replace(b'/', b''))
        ref = put_manifest(media, zone, offset, having(having(there.fields, 2, pack(having(inner, 2, evil))), 3, *map(pack, images)))
        origin = pack([(n, evil) for n in (1, 2, 3, 10, 11, 12, 13, 14)])
        record.put(having(having(having(record.fields, 2, evil), 14, pack(ref)), 15, origin))
        rule.put(having(rule.fields, 1, evil))
        for args in (['ls'], ['show', ident], ['verify', ident], ['retain'], ['status'], ['gc', '--dry-run'], ['fsck'],
                     ['export', ident, str(scene.dir / f'out-{len(what)}-{hash(what)}')]):
            out, err = output(scene, *args)
            clean(f'znsctl {args[0]}, {what}', out + err)
            if args[0] == 'ls' and out.count('\n') != 2:
                raise Failed(f'{what}: znsctl ls prints {out.count(chr(10))} lines: {out!r}')
            if args[0] in ('ls', 'show', 'verify', 'retain', 'status'):
                out, _ = output(scene, *args, '--json')
                clean(f'znsctl {args[0]} --json, {what}', out)
                text = json.dumps(json.loads(out), ensure_ascii=False)
                if args[0] == 'ls' and b'\xff' not in evil and what in ('colour', 'new line', 'C1 in UTF-8', 'right to left') and \
                        json.dumps(evil.decode(), ensure_ascii=False) not in text:
                    raise Failed(f'{what}: ls --json lost the name: {text[:300]}')
        empty = scene.dir / f'empty-{what.replace(" ", "-")}'
        empty.mkdir()
        done = scene.restore(images=empty, extra=['--zns-checkpoint', ident])
        for line in done.lines('zns'):
            clean(f'criu, {what}', line)
        scene.task.end()
        tried(what)
        stop_broker(scene)
        media.put_back(before)
        media.write(zone, offset, good)


@case
def words_of_users(scene):
    """Mistyped words come back in messages, with their escapes removed."""
    scene = scene(TINY, size=1)
    for what, evil in EVIL.items():
        word = evil.decode('utf-8', 'surrogateescape')
        for args in (['ls', word], ['show', word], ['verify', word], ['rm', word], ['retain', word, '--keep', word], ['key', word],
                     ['probe', word], ['create', word], ['export', word, word], [word]):
            out, err = output(scene, *args)
            clean(f'znsctl {args[0]!r} with {what}', out + err)
        tried(what)
