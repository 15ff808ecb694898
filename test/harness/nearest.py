# SPDX-License-Identifier: GPL-2.0-only
"""Which tests are nearest to a source file: unit programs that link its functions, then jobs of the gate."""
import re
import subprocess

MOST_UNITS = 6
# The longest beginning of a path counts. In order: what is quick, or sees most, first.
SUITES = {
    'criu': 'guard transfers errors livedump lazyfaults zonetests',
    'criu/adapter/guard/zns-hold.c': 'docker',
    'criu/adapter/lazy/zns-holder.c': 'lazyfaults',
    'criu/adapter/lazy/zns-lazy.c': 'lazyfaults migration',
    'criu/adapter/live/zns-send.c': 'migration rounds',
    'criu/adapter/net/zns-netlock.c': 'netlock',
    'criu/adapter/net/zns-netwatch.c': 'netlock',
    'criu/adapter/zns-extend.c': 'memoryrestore',
    'criu/adapter/zns-settings.c': 'zonetests',
    'zns/alloc': 'rates admission compact',
    'zns/base': 'tools options hostile',
    'zns/broker': 'admission errors crypt together',
    'zns/broker/policy/parents.c': 'chains',
    'zns/client': 'errors crypt',
    'zns/crypt': 'crypt',
    'zns/ctl': 'tools observe compact oci',
    'zns/ctl/cmd_resize.c': 'disk',
    'zns/defrag': 'compact',
    'zns/dev': 'conformance errors crash',
    'zns/docker': 'docker',
    'zns/helper': 'transfers errors livedump incremental migration lazyfaults',
    'zns/helper/restore': 'transfers errors lazyfaults memoryrestore',
    'zns/helper/restore/first.c': 'firstpages',
    'zns/memory': 'memory memcheckpoint memoryrestore',
    'zns/memory/ctl': 'memory observe',
    'zns/memory/keeper': 'memory memcheckpoint',
    'zns/memory/policy': 'memory memorypolicy',
    'zns/tools/probe': 'tools',
    'zns/tools/selftest': 'conformance tools',
    'zns/oci': 'oci crypt',
    'zns/report': 'observe tools',
    'zns/store': 'errors tools crash',
    'zns/store/rebuild.c': 'crypt errors tools crash',
    'zns/stripe': 'errors chains zonetests',
    'zns/transfer': 'tools disk crypt oci chains',
    'zns/track': 'livedump',
}


def suites(path):
    near = max((p for p in SUITES if path.startswith(p)), key=len, default=None)
    return SUITES[near].split() if near else ['errors']


def units(tree, build, path):
    """Names of unit programs: first those whose source calls most functions of the file, then those that only link them."""
    source = (tree / path).read_text()
    functions = set(re.findall(r'^(?!static)[\w *]*?\b(\w+)\([^;]*$', source, re.M))
    programs = sorted((tree / 'test' / 'unit').glob('test_*.c'))
    called = {p.stem: sum(bool(re.search(rf'\b{f}\b', p.read_text())) for f in functions) for p in programs}
    direct = sorted((n for n in called if called[n]), key=lambda n: -called[n])
    linked = [p.stem for p in programs if p.stem not in direct and _links(tree / build, p.stem, functions)]
    folder = path.split('/')[-2]
    linked.sort(key=lambda n: folder not in n)
    return (direct + _start_broker(programs, path) + linked)[:MOST_UNITS]


def _start_broker(programs, path):
    """For a file of znsd: programs that start znsd, first those whose source mentions the file's subject most."""
    if not path.startswith('zns/broker/'):
        return []
    word = path.split('/')[-1][:-2].rstrip('s')
    sources = {p.stem: p.read_text() for p in programs}
    return sorted((n for n in sources if 'broker_fixture.h"' in sources[n]), key=lambda n: (-sources[n].count(word), n != 'test_broker'))


def _links(build, name, functions):
    program = next((p for p in (build / 'test' / name, build / 'asan' / 'test' / name) if p.exists()), None)
    if not program:
        return False
    names = subprocess.run(['nm', '--defined-only', program], stdout=subprocess.PIPE, text=True).stdout
    return bool(functions & {line.split()[-1] for line in names.splitlines()})
