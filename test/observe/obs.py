# SPDX-License-Identifier: GPL-2.0-only
"""What the cases of observe share: promtool, the metrics, top and report of a scene, names that an attacker wrote."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import fetch
from case_terminal import EVIL
from forge import CHECKPOINT, having, log, pack
from page import Page
from ztlib import Failed
from ztscene import expect, run_ctl

HOSTILE = {**EVIL, 'quote': b'a"b', 'backslash': b'a\\b', 'label': b'x",device="y"} 1', 'markup': b'<script>alert(1)</script>&amp;\'',
           'style end': b'</style></title><!-- ]]>', 'huge': b'n' * 254 + b'1', 'huge too': b'n' * 254 + b'2'}


def unpacked(*packages):
    """Debian's packages of this release, unpacked without an installation."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', Path('/etc/os-release').read_text(), re.M))
    return fetch.debs(release['VERSION_CODENAME'], *packages)


def of_prometheus(program):
    """The package would start a server. Debian 12 has promtool in it, Debian 13 in a package of its own."""
    if shutil.which(program):
        return shutil.which(program)
    at = unpacked('prometheus') / 'usr/bin' / program
    return str(at if at.exists() else unpacked(program) / 'usr/bin' / program)


def checked(text):
    done = subprocess.run([of_prometheus('promtool'), 'check', 'metrics'], input=text, capture_output=True, check=False)
    expect('promtool', (done.returncode, (done.stdout + done.stderr).decode()), (0, ''))


def scene_metrics(scene):
    return subprocess.run([scene.cfg.znsctl, 'metrics'], env=scene.device.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          timeout=scene.cfg.timeout, check=True).stdout


def metrics(scene):
    """[(name, {label: value}, number)] of an output that promtool has nothing to say about; types by name."""
    done = subprocess.run([scene.cfg.znsctl, 'metrics'], env=scene.device.env, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=scene.cfg.timeout, check=False)
    expect('exit of metrics', (done.returncode, done.stderr), (0, b''))
    checked(done.stdout)
    found, kinds = [], {}
    for line in done.stdout.decode().split('\n')[:-1]:
        comment = re.fullmatch(r'# (HELP|TYPE) (\w+) (.+)', line)
        if comment:
            if comment[1] == 'TYPE':
                kinds[comment[2]] = comment[3]
            continue
        m = re.fullmatch(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)', line)
        if not m or m[1] not in kinds:
            raise Failed(f'a line that is none: {line[:300]!r}')
        labels = {k: re.sub(r'\\(.)', lambda c: {'n': '\n'}.get(c[1], c[1]), v)
                  for k, v in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or '')}
        found.append((m[1], labels, float(m[3])))
    return found, kinds


def value(found, name, **labels):
    hits = [v for n, got, v in found if n == name and labels.items() <= got.items()]
    if len(hits) != 1:
        raise Failed(f'{name} {labels}: {len(hits)} series')
    return hits[0]


def total(found, name, **labels):
    return sum(v for n, got, v in found if n == name and labels.items() <= got.items())


def escaped(name):
    """The text as a terminal gets it; only text that is valid UTF-8 can be compared."""
    return ''.join('\\\\' if c == '\\' else c if c.isprintable() else ''.join(f'\\x{b:02x}' for b in c.encode()) for c in name)


def forged(scene, media, container):
    """The newest record under another name, in the container and in all that its engine said."""
    record = [f for f in log(media) if f.kind == CHECKPOINT][-1]
    origin = pack([(n, container[:100]) for n in (1, 2, 3, 10, 11, 12, 13, 14)])
    record.put(having(having(record.fields, 2, container), 15, origin))


def top(scene, *args):
    return json.loads(run_ctl(scene, 0, 'top', '--interval', '1', '--json', *args))


def report(scene, name='report.html'):
    at = scene.dir / name
    expect('what report prints', run_ctl(scene, 0, 'report', scene.device.spec, '--output', str(at)), '')
    text = at.read_text()
    if re.search(r'https?:|url\(|@import|<script', text):
        raise Failed('the page names something elsewhere')
    return Page(text)
