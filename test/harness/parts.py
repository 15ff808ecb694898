# SPDX-License-Identifier: GPL-2.0-only
"""The parts of the gate (`make test`) and of the soak (`make soak`): what each runs, and what it needs of the machine."""
import os
import shutil
from pathlib import Path

from jobs import Job

REPO = Path(__file__).resolve().parents[2]
MAKE = ['make', '--no-print-directory']
CPUS = os.cpu_count() or 1
# gold links a hundred programs in a third of the time that the other linker takes; not every release has it.
LINKER = ' -fuse-ld=gold' if shutil.which('ld.gold', path='/usr/bin') else ''
SAN = f'-fsanitize=address,undefined -fno-sanitize-recover=undefined{LINKER}'

# Of each suite of memory contexts the shortest way from end to end; the others: make memory, memory-checkpoint.
MEMORY = {'memory': 'budget both', 'memcheckpoint': 'volume refused', 'memoryrestore': 'pages guarded refusals'}
# The others wait until znsd gives memory back: make restores, make rounds.
RESTORES = 'at-once small-memory encrypted dead-helpers dead-broker next-checkpoint capped'.split()
# FerretDB takes as long to build as all of these run, so it is in the soak. Two daemons share the rest, since most
# cases wait.
DOCKER_WORK = ('cycles', 'schedule-cycles', 'five-at-once', 'work-shell', 'work-redis', 'work-nginx', 'work-mariadb', 'clone', 'clones-at-once',
               'own-addresses', 'host-crash', 'live', 'twice')
ROUNDS = 'dirty program-churn keeper-killed older-parent server-killed'.split()


# Programs whose memory changes in real time: some of their results depend on chance, so they are in the soak.
CHANCE_UNITS = tuple(f'test_mem{n}' for n in ('', '_death', '_direct', '_hiber', '_hold', '_late', '_many', '_moves', '_reach', '_refused', '_rules'))


def sanitized(build, *targets, jobs=1):
    """Tests are compiled without optimization: that takes a tenth of the time, and they run hardly slower."""
    return [*MAKE, f'-j{jobs}', f'B={build}/asan', f'SAN={SAN}', 'OPT=-O1 -g1', 'UNIT_OPT=-O0', *targets]


# They have objects of criu, which is built without; and soft-dirty bits are read page by page, also of terabytes of shadow memory.
NEVER_SANITIZED = ('test_adapter', 'test_adapter_holder', 'test_track_soft')
# Unit programs that the gate runs without sanitizers, with which they take four times as long, or evict the sanitizer's memory, or
# which run znsctl, which is not built with them. The soak has the other builds.
PLAIN_UNITS = ('test_composed', 'test_file_fill', 'test_file_reuse', 'test_mem_forked', 'test_mem_guest', 'test_mem_stop', 'test_probe', 'test_probe_judge', 'test_rates', 'test_store_crash',
               *NEVER_SANITIZED)


def units(build):
    """Each unit program is a job."""
    names = sorted({p.stem for p in (REPO / 'test' / 'unit').glob('test_*.c')} - set(CHANCE_UNITS))
    checked = [n for n in names if n not in PLAIN_UNITS]
    programs = [f'{build}/asan/{d}/{name}' for d in ('bin', 'test/bin') for name in ('znsd', 'zns-helper', 'zns-mem', 'zns-memkeep')]
    yield Job('unit-build', sanitized(build, *programs, *(f'{build}/asan/test/{n}' for n in checked), jobs=CPUS), seconds=1000,
              slots=CPUS, limit_s=1500, group='build')
    yield Job('unit-build-plain', [*MAKE, *(f'{build}/test/{n}' for n in PLAIN_UNITS)], seconds=900, group='build')
    for name in names:
        plain = name in PLAIN_UNITS
        yield Job(name, [f'{build}/test/{name}' if plain else f'{build}/asan/test/{name}'], seconds=UNIT_SECONDS.get(name, 2),
                  needs=('unit-build-plain' if plain else 'unit-build',), group='unit', limit_s=900,
                  env={'ZNS_LIBEXEC': str(REPO / build / ('bin' if plain else 'asan/bin'))})


# Programs that take longer than a few seconds.
UNIT_SECONDS = {'test_probe': 20, 'test_composed': 10, 'test_rates': 10, 'test_probe_noise': 8, 'test_store_crash': 8, 'test_writer_repair': 8}


def gate(build):
    report = f'{build}/report'

    def suite(name, seconds, *options, program=None, cases=('-a',), **more):
        command = ['python3', program or f'test/zonetests/{name}.py', 'run', *cases, '-j2', *options, '--report', f'{report}/{name}']
        return Job(name, command, seconds, **more)

    def memory(name, seconds):
        return Job(name, ['python3', f'test/zonetests/{name}.py', 'run', *MEMORY[name].split(), '--build', build], seconds)

    def docker(name, seconds, *cases):
        return Job(name, ['python3', 'test/docker/docker.py', 'run', '--no-ferretdb', *cases], seconds, limit_s=1200, group='docker')

    zonetests = 'test/zonetests/zonetests.py'
    return [
        Job('harness', ['python3', 'test/harness/selfcheck.py'], 5),
        Job('conformance', [*MAKE, 'conform'], 20),
        *units(build),
        Job('fuzz-replay', sanitized(build, 'fuzz-replay', jobs=CPUS), 60, needs=('unit-build',)),
        Job('crash', [*MAKE, 'CRASH_STATES=2000', 'CRASH_CUTS=6', 'crash'], 60),
        Job('selftest', ['python3', zonetests, 'selftest', '-j2'], 30),
        suite('zonetests', 120, '--ways', 'plain', 'live-by-id'),
        *(suite(name, 40) for name in 'rates errors admission chains composed guard incremental lazyfaults livedump migration tools oci compact '
          'together options crypt crit rpc netlock disk hostcalls transfers'.split()),
        suite('hostile', 60, program='test/hostile/hostile.py'),
        suite('observe', 60, program='test/observe/observe.py'),
        suite('rounds', 40, cases=ROUNDS),
        suite('restores', 40, cases=RESTORES),
        suite('firstpages', 40, cases=('second-restore', 'options')),
        *(memory(name, 30) for name in MEMORY),
        Job('zdtm', [*MAKE, 'zdtm-smoke'], 60),
        docker('docker', 200, '-a', f'--but={",".join(DOCKER_WORK)},work-ferretdb'),
        docker('docker-work', 200, *DOCKER_WORK),
    ]
