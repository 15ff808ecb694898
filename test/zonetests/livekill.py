#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
livekill: kill -9 of criu, of its helper and of the broker at every message of a live dump, before the message is sent,
after that, or when it has arrived. The tasks run on and their memory is right, no write protection is left, and there
is either no record or a complete one, which is restored.

  livekill.py list | run NAME... | run -a          LIVE_KILL_EVERY=3: only each third message
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import ztlib
from ztlib import Failed, HANDLE, REPO, alive, wait_until
from ztscene import Outcome, suite_main

CASES = {}
EVERY = int(os.environ.get('LIVE_KILL_EVERY', 1))
SOURCE, PRELOAD = REPO / 'test' / 'load' / 'killat.c', REPO / 'build' / 'zonetests' / 'killat.so'
PROGRAMS = {'criu': 'criu', 'helper': 'zns-helper', 'broker': 'znsd'}

class Kills:
    def __init__(self, scene, who, options):
        self.scene, self.who, self.options = scene, who, options
        self.count = scene.dir / 'count'
        self.task = None
        self.seen = {'no record': 0, 'a record, and the dump had not heard of it': 0, 'committed': 0}

    def broker(self, env):
        """Starts a broker that has had no message yet."""
        self.scene.end_broker()
        command = [ztlib.BIN / 'znsd', self.scene.device.spec, '--foreground', '--idle', '0']
        broker = subprocess.Popen(list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        if not wait_until(self.answers, 20) or broker.poll() is not None:
            raise Failed('the broker does not start')
        return broker

    def answers(self):
        """Does a broker answer on its socket?"""
        for path in Path(self.scene.device.env['ZNS_RUN']).glob('*.sock'):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                try:
                    s.connect(str(path))
                    return True
                except OSError:
                    continue
        return False

    def dump(self, n):
        """Makes a dump in which @who dies at its message @n. Returns the exit code, the outcome, how many messages @who had, and the images."""
        scene = self.scene
        self.count.write_bytes(b'')
        env = dict(scene.device.env, LD_PRELOAD=str(PRELOAD), KILL_AT=f'{PROGRAMS[self.who]}:{n}', KILL_COUNT=str(self.count))
        images = scene.dir / f'images-{n}'
        images.mkdir()
        broker = self.broker(env if self.who == 'broker' else scene.device.env)
        log = scene.log()
        command = scene.dump_command(log, self.options, images, self.task, None)
        with open(str(log) + '.stderr', 'ab') as err:
            criu = subprocess.Popen([scene.cfg.criu, *command], env=scene.device.env if self.who == 'broker' else env,
                                    stdin=subprocess.DEVNULL, stdout=err, stderr=err)
            code = criu.wait(scene.cfg.timeout)
        if not wait_until(lambda: not scene.helpers(), 30):
            raise Failed(f'message {n}: a zns-helper is left')
        broker.terminate()
        broker.wait()
        return code, Outcome(code, log), self.count.stat().st_size, images

    def tasks_run(self, n):
        for pid in ztlib.tree(self.task.pid):
            if not wait_until(lambda p=pid: ztlib.proc_state(p) in ('R', 'S', '') and not ztlib.traced(p), 10):
                raise Failed(f'message {n}: process {pid} does not run on: "{ztlib.proc_state(pid)}"')
            if not wait_until(lambda p=pid: not re.search(r'^VmFlags:.* u[wm]\b', ztlib.smaps(p), re.M), 10):
                raise Failed(f'message {n}: process {pid} still has write protection')
        pids = ztlib.tree(self.task.pid)
        self.task.verify(signal.SIGUSR1)    # ends the task
        for pid in pids:
            ztlib.kill(pid)
        if not wait_until(lambda: not any(map(alive, pids)), 10):
            raise Failed('a killed process does not end')

    def one(self, n):
        """Kills at message @n. False: there are not that many messages."""
        scene = self.scene
        self.task = scene.new_task(program='busy')
        code, done, messages, images = self.dump(n)
        killed = messages >= n
        self.tasks_run(n)
        new = set(scene.ids()) - set(scene.ids_before)
        if len(new) > 1:
            raise Failed(f'message {n}: {len(new)} new records')
        if code == 0 and not new:
            raise Failed(f'message {n}: the dump said it succeeded, and there is no record')
        if self.who != 'criu' and code < 0:
            raise Failed(f'message {n}: criu died of signal {-code}')
        if code > 0 and (images / HANDLE).exists():
            raise Failed(f'message {n}: a handle after a dump that failed')
        if not killed and code:
            raise Failed(f'message {n}: nobody was killed: {" | ".join(done.errors()[-3:])}')
        self.seen['committed' if code == 0 else 'a record, and the dump had not heard of it' if new else 'no record'] += 1
        for checkpoint in new:
            empty = scene.dir / f'by-id-{n}'
            empty.mkdir()
            scene.good_restore(task=self.task, images=empty, extra=['--zns-checkpoint', checkpoint])
            scene.device.remove(checkpoint)
        scene.store_as_before()
        shutil.rmtree(images)
        shutil.rmtree(self.task.dir)
        return killed

    def all(self):
        n = 1
        while self.one(n):
            n += EVERY
        print(f'     {self.who}: killed at {(n - 1) // EVERY} messages: ' + ', '.join(f'{k} times {v}' for v, k in self.seen.items()),
              flush=True)
        if n == 1 or not self.seen['no record']:
            raise Failed('no kill before the commit: it is not told of any message')


def kill_case(who, options):
    def run(scene):
        PRELOAD.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(['gcc', '-shared', '-fPIC', '-O2', '-o', PRELOAD, SOURCE, '-ldl'], check=True)
        scene = scene(size=8)
        scene.task.end()
        Kills(scene, who, options).all()
    run.__doc__ = f'the {who} ends at each of its messages, {" ".join(options)}.'
    return run


for who in PROGRAMS:
    CASES[who] = kill_case(who, ['--zns-live', '--leave-running'])
    CASES[f'{who}-durable'] = kill_case(who, ['--zns-live=durable', '--leave-running'])

if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'livekill', CASES))
