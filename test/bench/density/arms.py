# SPDX-License-Identifier: GPL-2.0-only
"""What is done when memory does not suffice: one class for each arm. All have the same machine, disk and budget."""
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from scene import Failed, cpu_s, wait_until

MIB, UNIT = 1 << 20, 1 << 16


class Ample:
    """No limit: how the workload does if there is DRAM for everything."""
    limited = swaps = False

    def __init__(self, args, place, groups, scene):
        self.args, self.place, self.groups, self.scene = args, place, groups, scene

    def begin(self):
        if self.limited:
            self.groups.limit(self.args.memory_mib * MIB)
        if not self.swaps:
            self.groups.no_swap()

    def prepare_for(self, nr):
        """Called before @n containers are there."""

    def empty(self, container):
        pass

    def filled(self):
        """Called when they are there."""

    def counters(self):
        """Counters: bytes to and from the device for paging, CPU of the processes that page."""
        return {}

    def end(self):
        pass


class Swap(Ample):
    """The kernel's swap, on a file of the same disk, with the kernel's settings."""
    limited = swaps = True

    def begin(self):
        if len(Path('/proc/swaps').read_text().splitlines()) > 1:
            raise Failed('this machine swaps already: swapoff -a first')
        self.file = self.place / 'swap'
        if not self.file.exists():
            subprocess.run(['fallocate', '-l', str(self.args.swap_mib * MIB), self.file], check=True)
            self.file.chmod(0o600)
            subprocess.run(['mkswap', self.file], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(['swapon', self.file], check=True)
        super().begin()

    def counters(self):
        lines = dict(line.split() for line in Path('/proc/vmstat').read_text().splitlines())
        return {'in_bytes': int(lines['pswpin']) * 4096, 'out_bytes': int(lines['pswpout']) * 4096}

    def end(self):
        """Call it when no process has pages there any more."""
        subprocess.run(['swapoff', self.file], check=True)


class Reclaim(Swap):
    """Swap, with a process that reclaims memory from the noise containers before it runs out."""
    PERIOD_S, HIGH, LOW = 0.2, 0.92, 0.90       # seconds; shares of the machine's memory

    def begin(self):
        super().begin()
        self.ended, self.used_s = threading.Event(), 0.0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        memory = self.args.memory_mib * MIB
        while not self.ended.wait(self.PERIOD_S):
            usage = self.groups.usage()
            if usage < memory * self.HIGH:
                continue
            has = sorted(((self.groups.usage(n.group), n.group) for n in list(self.scene.noise)), reverse=True)
            want = usage - int(memory * self.LOW)
            mean = max(0, sum(size for size, _ in has) - want) // max(1, len(has))
            for size, group in has:             # a container with more than its share gives memory
                part = min(want, size - mean)
                if part < MIB:
                    break
                self.groups.reclaim(group, part)
                want -= part
            self.used_s = time.thread_time()

    def counters(self):
        return {**super().counters(), 'pager_cpu_s': self.used_s}

    def end(self):
        self.ended.set()
        self.thread.join()
        super().end()


class Ours(Ample):
    """znsctl memory attach: every noise container has a context; the machine has no swap."""
    limited = True
    options = ()
    COUNTED = ('read_units', 'evicted_units', 'clean_units', 'spare_units', 'prefetched', 'prefetch_used', 'prefetch_unused', 'write_faults',
               'cancelled', 'zero_faults', 'lost_units')
    SPARE = 0.05                # share of the machine's memory
    FILL_MIB, PAGER_MIB, TABLES_MIB = 64, 4, 1

    def begin(self):
        super().begin()
        self.device = f'emu:{self.place}/device'
        self.env = {**os.environ, 'ZNS_RUN': str(self.place / 'run'), 'ZNS_CONFIG': str(self.place / 'conf')}
        self.groups.make('pagers')
        if not (self.place / 'device').exists():
            for name in ('run', 'conf'):
                (self.place / name).mkdir(mode=0o700, exist_ok=True)
            self.ctl('create', self.device, '--zones', self.args.device_mib // self.args.zone_mib, '--zone-size', f'{self.args.zone_mib}M',
                     '--max-open', 0, '--max-active', self.args.max_active, '--timing', 'off')
        self.budget, self.attached = 0, []

    def ctl(self, *words, ok=True, group=None):
        done = subprocess.run([self.args.znsctl, *map(str, words)], env=self.env, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, preexec_fn=self.groups.joins(group, stays=True) if group else None)
        if ok and done.returncode:
            raise Failed(f'znsctl {" ".join(map(str, words))}: {done.stderr.strip()}')
        return done

    def divide(self, nr, pagers, spare):
        """Divides evenly what the critical workload does not use."""
        memory = self.args.memory_mib * MIB
        noise = sum(self.groups.usage(n.group) for n in self.scene.noise)
        others = max(self.groups.usage('critical'), self.groups.usage() - noise - self.groups.usage('pagers'))
        left = memory * (1 - self.SPARE) - others - pagers - spare - nr * self.TABLES_MIB * MIB
        self.budget = max(int(left) // nr // MIB, 2)
        for container in self.attached:
            self.ctl('memory', 'limit', container.group, '--dram', f'{self.budget}M')

    def prepare_for(self, nr):
        self.divide(nr, nr * self.PAGER_MIB * MIB, self.FILL_MIB * MIB)

    def filled(self):
        self.divide(len(self.attached), self.groups.usage('pagers'), 0)

    def empty(self, container):
        self.ctl('memory', 'attach', container.pid, '--name', container.group, '--dram', f'{self.budget}M', *self.options, group='pagers')
        self.attached.append(container)

    def pids(self):
        return self.groups.pids('pagers')

    def counters(self):
        found = {'in_bytes': 0, 'out_bytes': 0, 'contexts': {}}
        for one in json.loads(self.ctl('memory', 'status', '--json').stdout)['contexts']:
            one = {key: one.get(key) or 0 for key in self.COUNTED}
            found['in_bytes'] += (one['read_units'] - one['spare_units'] + one['prefetched']) * UNIT
            found['out_bytes'] += (one['evicted_units'] - one['clean_units']) * UNIT
            for key in self.COUNTED:
                found['contexts'][key] = found['contexts'].get(key, 0) + one[key]
        found['pager_cpu_s'] = cpu_s(self.pids())
        return found

    def end(self):
        """The containers have ended; waits until their contexts have, too."""
        try:
            wait_until(lambda: not self.pids(), 'the end of pagers, keeper and broker', 30)
        except Failed:
            for pid in self.pids():
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.place / 'run')
            (self.place / 'run').mkdir(mode=0o700)
            wait_until(lambda: not self.pids(), 'the end of what was killed')


class Unpredicted(Ours):
    """Our contexts, without prediction."""
    options = ('--no-predict',)


class Auto(Ours):
    """--dram auto: the contexts divide a part of the machine by the ages of their memory. It is set once, for the last step of the ladder."""

    def divide(self, nr, pagers, spare):
        if self.budget:
            return
        memory, most = self.args.memory_mib * MIB, max(self.args.containers)
        left = memory * (1 - self.SPARE) - self.groups.usage('critical') - most * (self.PAGER_MIB + self.TABLES_MIB) * MIB
        self.budget = max(int(left) // MIB, 16)
        conf = self.place / 'conf/zns.conf'
        old = [line for line in (conf.read_text().splitlines() if conf.exists() else []) if not line.startswith('memory-dram')]
        conf.write_text('\n'.join([*old, f'memory-dram = {self.budget}M', '']))

    def empty(self, container):
        self.ctl('memory', 'attach', container.pid, '--name', container.group, '--dram', 'auto', '--min', '2M', *self.options, group='pagers')
        self.attached.append(container)


ARMS = {'ample': Ample, 'swap': Swap, 'reclaim': Reclaim, 'ours': Ours, 'ours-unpredicted': Unpredicted, 'ours-auto': Auto}
TITLES = {'ample': 'ample DRAM', 'swap': 'swap', 'reclaim': 'swap, reclaimed early', 'ours': 'zones', 'ours-unpredicted': 'zones, no prediction',
          'ours-auto': 'zones, --dram auto'}


def has_prediction(args):
    """Does this build support --no-predict?"""
    done = subprocess.run([args.znsctl, 'memory', 'attach', '--help'], capture_output=True, text=True, check=False)
    return '--no-predict' in done.stdout + done.stderr
