# SPDX-License-Identifier: GPL-2.0-only
"""
`docker stop` suspends and `docker start` resumes: cases of docker.py.
"""
import os
from pathlib import Path

import dkdaemon
from dkcase import case, remove
from dkdaemon import want
from dknet import BOTH_ENDS

SUSPEND = ('--label', 'zns.suspend=yes')
# A secret in memory alone, told by a file that is written again whenever it is missing.
SECRET = """
import os, time
secret = os.urandom(16).hex()
while True:
    if not os.path.exists('/run/secret'):
        with open('/run/new', 'w') as f:
            f.write(secret)
        os.rename('/run/new', '/run/secret')
    time.sleep(0.01)
"""


def directory(d, name):
    return d.root / 'containers' / d.id(name)


def note(d, name):
    return (directory(d, name) / 'zns-note').read_text().strip()


def secret(d, name):
    d.docker('exec', name, 'rm', '-f', '/run/secret')
    return dkdaemon.until('a secret', lambda: d.docker('exec', name, 'cat', '/run/secret', check=False).stdout)


def keeps_secret(d, name, *options):
    d.run(name, 'python3', '-c', SECRET, options=('--tmpfs', '/run', *options))
    return secret(d, name)


def nothing_left(d, name):
    """No restore waits, and no file of one is there."""
    want('no file of a hold', not list((d.dir / 'run/docker').glob('*.hold*')), list((d.dir / 'run/docker').iterdir()))
    want('no process of a hold', not [p for p in Path('/proc').glob('[0-9]*') if waits(d, p)])


def waits(d, p):
    try:
        return b'ZNS_HOLD=' + str(d.dir).encode() in (p / 'environ').read_bytes() and not (p / 'cmdline').read_bytes().startswith(b'python')
    except OSError:
        return False


@case
def suspend(d):
    """Memory and an open connection survive stop and start; after a kill, and with files written since, a start is cold."""
    was = keeps_secret(d, 'sus', *SUSPEND)
    d.docker('stop', 'sus')
    (c,) = d.checkpoints('sus')
    want('stopped with a checkpoint', note(d, 'sus').startswith('stopped with checkpoint zns-stop-'), note(d, 'sus'))
    want('marked as its end', c['origin']['ended'] is True and c['origin']['checkpoint_name'].startswith('zns-stop-'), c['origin'])
    d.docker('start', 'sus')
    want('resumed', note(d, 'sus').startswith('resumed from checkpoint zns-stop-'), note(d, 'sus'))
    want('its memory', secret(d, 'sus') == was)
    nothing_left(d, 'sus')
    d.docker('kill', 'sus')
    d.docker('start', 'sus')
    cold = secret(d, 'sus')
    want('never back in time', cold != was)
    d.docker('stop', 'sus')
    want('one directory stays', len(list((directory(d, 'sus') / 'checkpoints').iterdir())) == 1)
    (d.dir / 'written').write_text('x')
    d.docker('cp', d.dir / 'written', 'sus:/root/written')
    d.docker('start', 'sus')
    want('files were written since', 'started cold: ' in note(d, 'sus') and 'was written after its checkpoint' in note(d, 'sus'), note(d, 'sus'))
    want('cold', secret(d, 'sus') != cold)
    remove(d, 'sus')


@case
def suspend_connection(d):
    d.run('talks', 'python3', '-c', BOTH_ENDS, options=(*SUSPEND, '--label', 'zns.criu=tcp-established'))

    def turns():
        return int(d.docker('exec', 'talks', 'cat', '/data/turns', check=False).stdout or 0)
    dkdaemon.until('turns', lambda: turns() > 10)
    d.docker('stop', 'talks')
    d.docker('start', 'talks')
    want('resumed', note(d, 'talks').startswith('resumed from'), note(d, 'talks'))
    before = turns()
    want('counts on', before > 10, before)
    dkdaemon.until('turns go on', lambda: turns() > before)
    remove(d, 'talks')
