# SPDX-License-Identifier: GPL-2.0-only
"""The jobs of the soak: each turn makes them anew, each with its own seed."""
import dataclasses
import os
from pathlib import Path

import parts
from jobs import Job

REPO = Path(__file__).resolve().parents[2]
# Suites of test/zonetests that have soak cases.
SUITES = ('disk', 'incremental', 'rates', 'rounds', 'tools', 'transfers')


@dataclasses.dataclass
class SoakJob:
    name: str
    what: str               # for --list
    command: list           # '{seed}' in it is replaced
    limit_s: int = 900
    env: dict = dataclasses.field(default_factory=dict)

    def job(self, build, seed):
        command = [word.format(seed=seed, build=build) for word in self.command]
        return Job(self.name, command, limit_s=self.limit_s, env={k: v.format(seed=seed) for k, v in self.env.items()})


def python(name, what, path, *args, **more):
    return SoakJob(name, what, ['python3', path, *args], **more)


def make(name, what, target, *variables, **more):
    return SoakJob(name, what, [*parts.MAKE, target, *variables], **more)


def unit_jobs(build):
    """Programs that test races, and the gate's programs in the build that the gate does not use."""
    libexec = {'ZNS_LIBEXEC': str(REPO / build / 'bin')}
    for source in sorted((REPO / 'test' / 'unit').glob('soak_*.c')):
        yield SoakJob(source.stem, 'races that cannot be forced', [f'{build}/test/{source.stem}'], env={**libexec, 'SOAK_SEED': '{seed}'})
    for name in parts.CHANCE_UNITS:
        yield SoakJob(name, 'memory that moves beside a running program', [f'{build}/test/{name}'], env=libexec)
    yield SoakJob('unread', 'an event that nobody reads for nine seconds, while a page is put back', [f'{build}/test/test_mem_stop', 'unread'], env=libexec)
    yield SoakJob('swapped', 'pages in swap, of which the machine gets a file', [f'{build}/test/test_mem_stop', 'swapped'], env=libexec)
    gate = sorted({p.stem for p in (REPO / 'test' / 'unit').glob('test_*.c')} - set(parts.CHANCE_UNITS))
    yield python('unit-plain', "the gate's unit programs without sanitizers", 'test/harness/units.py', *(f'{build}/test/{n}' for n in gate), env=libexec)
    yield SoakJob('unit-sanitized', 'unit programs that the gate runs without sanitizers',
                  ['bash', '-c', ' && '.join(f'{build}/asan/test/{name}' for name in parts.PLAIN_UNITS if name not in parts.NEVER_SANITIZED)],
                  env={'ZNS_LIBEXEC': str(REPO / build / 'asan' / 'bin')})


def soak(build):
    """All jobs, in the order of a turn."""
    return [
        *unit_jobs(build),
        *(python(f'{s}-soak', f'cases of {s}.py that hang on the machine', f'test/zonetests/{s}.py', 'run', '--soak', '--report',
                 f'{build}/report/soak/{s}-soak') for s in SUITES),
        python('livecontrols', 'a rule of live dumps switched off, until the comparison finds it', 'test/zonetests/livecontrols.py', 'run', '-a',
               '--report', f'{build}/report/soak/livecontrols'),
        python('lazysoak', 'lazy restores that lose what they need at a random moment', 'test/zonetests/lazysoak.py', '--runs', '100',
               '--seed', '{seed}'),
        python('walk', 'a random walk over all that one does with checkpoints, beside a model', 'test/zonetests/walk.py', 'run', '--soak',
               env={'SOAK_SEED': '{seed}', 'WALK_STEPS': '150'}),
        python('areas', 'areas of programs that people run, before a dump and after its restore', 'test/zonetests/areas.py', '--report',
               f'{build}/report/soak/areas', limit_s=1800),
        python('docker-ferretdb', 'containers with FerretDB, which has to be built', 'test/docker/docker.py', 'run', 'work-ferretdb', 'five-at-once'),
        python('docker-resume-kills', 'docker stop that suspends and docker start that resumes, with kill -9 of each process of it',
               'test/docker/resumekills.py', '--rounds', '40', '--seed', '{seed}', '--kinds', 'runc,supervisor,criu,zns-helper,shim',
               limit_s=1800),
        python('docker-host', 'twenty containers of 200 MiB over the end of their engine and of its run state', 'test/docker/docker.py', 'run',
               'suspend-host', limit_s=1800, env={'DOCKER_HOST_CONTAINERS': '20', 'DOCKER_HOST_MIB': '200', 'DOCKER_ZONES': '128', 'ZNS_TEST_SLOW': '4'}),
        python('livedump-soak', 'live dumps of programs that never stop to write', 'test/zonetests/livedump.py', 'soak', '--dumps', '30'),
        python('kill', 'kill -9 of holders of leases and of brokers', 'test/load/kill.py', '--build', '{build}', '--holders', '25',
               '--brokers', '8', '--seed', '{seed}'),
        python('kill-load', 'kill -9 of all programs under dumps, restores and compaction', 'test/load/kill_load.py', '--build', '{build}',
               '--kills', '60', '--seed', '{seed}'),
        SoakJob('crash-states', 'states that a power cut can leave, beyond the sample of the gate',
                ['{build}/test/crash', '--states', '20000', '--seed', '{seed}']),
        python('crash-cuts', 'power cuts under a real criu', 'test/crash/criu_cuts.py', '--cuts', '40', '--seed', '{seed}'),
        python('crash-flips', 'damaged bits, restored by a real criu', 'test/crash/criu_flips.py', '--flips', '60', '--seed', '{seed}'),
        python('memory-kills', 'pager, keeper and broker killed in each state of a unit', 'test/zonetests/memorykills.py', 'run', '-a',
               '--build', '{build}', limit_s=3600),
        python('memory-policy', 'programs whose memory comes back, with and without reading ahead', 'test/zonetests/memorypolicy.py', 'run', '-a',
               '--build', '{build}', limit_s=1800),
        python('memory', 'budgets, kills and programs beside them', 'test/zonetests/memory.py', 'run', '-a', '--build', '{build}', limit_s=3600),
        python('zonetests-restores', 'restores whose broker gives memory back', 'test/zonetests/restores.py', 'run', '-a', '-j2',
               '--report', f'{build}/report/soak/restores'),
        python('zonetests-rounds', 'live dumps on one another', 'test/zonetests/rounds.py', 'run', '-a', '-j2', '--report',
               f'{build}/report/soak/rounds'),
        make('bench-smoke', 'the small version of the papers\' experiments, with their controls', 'bench-smoke'),
        make('bench-density', 'the benchmark of density checks itself', 'bench-density-check'),
    ]
