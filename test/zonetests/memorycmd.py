# SPDX-License-Identifier: GPL-2.0-only
"""Cases of tools.py: `znsctl memory` on a real task, and what other commands say about a context."""
import ctypes
import json
import os
import signal
import socketserver
import struct
import subprocess
import threading
import time

from ztlib import Failed, alive, wait_until
from ztscene import FAST, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)
MIB = 1 << 20


def context(scene, *what):
    return json.loads(run_ctl(scene, 0, 'memory', 'status', *what, '--json'))


def says(scene, part, *args):
    said = run_ctl(scene, 1, 'memory', *args)
    if part not in said:
        raise Failed(f'znsctl memory {" ".join(args)}: no "{part}" in: {said.strip()}')


def of_memory(scene):
    return [z for z in scene.device.zones() if (z['owner'] or '').startswith('memory:')]


def daemon_that_knows(directory, containers):
    """Imitates a Docker daemon's socket for GET /containers/NAME/json; returns its path. @containers: name to PID, 0 if it does not run."""
    class Answer(socketserver.StreamRequestHandler):
        def handle(self):
            name = self.rfile.readline().decode().split()[1].split('/')[2]
            while self.rfile.readline().strip():
                pass
            if name in containers:
                pid = containers[name]
                code, body = '200 OK', {'Name': f'/{name}', 'State': {'Running': pid > 0, 'Pid': pid}}
            else:
                code, body = '404 Not Found', {'message': f'No such container: {name}'}
            self.wfile.write(f'HTTP/1.0 {code}\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}'.encode())

    path = directory / 'docker.sock'
    server = socketserver.ThreadingUnixStreamServer(str(path), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return path


USERFAULTFD, PIDFD_GETFD, MEMFD_SECRET, IOCTL = 323, 438, 447, 16      # x86-64
PAGEMAP_SCAN = 3 << 30 | 96 << 16 | ord('f') << 8 | 16


def without(calls, ioctls=()):
    """Returns a preexec_fn after which these system calls and ioctls fail with ENOSYS."""
    def op(code, yes, no, k):
        return struct.pack('HBBI', code, yes, no, k)
    load, equal, ret = 0x20, 0x15, 0x06
    refused, allowed = 0x50000 | 38, 0x7fff0000
    filters = op(load, 0, 0, 0)
    for n in calls:
        filters += op(equal, 0, 1, n) + op(ret, 0, 0, refused)
    for n in ioctls:    # 24: offset of the low half of the second argument, the ioctl's number
        filters += op(equal, 0, 3, IOCTL) + op(load, 0, 0, 24) + op(equal, 0, 1, n) + op(ret, 0, 0, refused) + op(load, 0, 0, 0)
    filters += op(ret, 0, 0, allowed)
    text = ctypes.create_string_buffer(filters, len(filters))
    prog = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(filters) // 8, ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)

    def install():
        text            # keeps the filter's text alive as long as this function
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, prog, 0, 0):
            raise OSError(ctypes.get_errno(), 'no filter of system calls')
    return install


def told_without(scene, calls, ioctls=()):
    """`znsctl memory status` under such a filter: (its JSON, its text)."""
    def run(*more):
        return subprocess.run([scene.device.cfg.znsctl, 'memory', 'status', *more], env=scene.device.env, stdin=subprocess.DEVNULL,
                              preexec_fn=without(calls, ioctls), check=True, capture_output=True, text=True).stdout
    return json.loads(run('--json'))['kernel'], run()


@case
def memory_of_kernels(scene):
    """All features that a kernel lacks are listed, not only the first, each with its substitute."""
    scene = scene(FAST, size=1)
    here = context(scene)['kernel']

    def look(calls, ioctls, wanted):
        kernel, text = told_without(scene, calls, ioctls)
        lacks = {one['what']: one for one in kernel['lacks']}
        if len(lacks) != len(kernel['lacks']) or not wanted <= set(lacks):
            raise Failed(f'{sorted(wanted)} are missing, and it tells of {sorted(lacks)}')
        for one in lacks.values():
            if f'{one["why"]}; instead: {one["instead"] or "nothing"}\n' not in text:
                raise Failed(f'no line for {one} in: {text}')
        return kernel, lacks, text

    kernel, lacks, _ = look([MEMFD_SECRET], [PAGEMAP_SCAN], {'PAGEMAP_SCAN', 'memfd_secret'})
    expect('what nothing goes without', kernel['missing'], here['missing'])
    expect('what drops pages', kernel['mechanism'], 'none' if here['missing'] else 'ptrace')
    expect('instead', [what for what, one in lacks.items() if not one['instead'] and not here['missing']], [])
    kernel, lacks, text = look([MEMFD_SECRET, USERFAULTFD, PIDFD_GETFD], [PAGEMAP_SCAN],
                               {'userfaultfd', 'pidfd_getfd', 'PAGEMAP_SCAN', 'memfd_secret'})
    expect('the first without which nothing goes', kernel['missing'], lacks['userfaultfd']['why'])
    expect('what drops pages', (kernel['mechanism'], text.splitlines()[0]), ('none', 'this kernel: nothing can be extended'))
    expect('instead of both', (lacks['userfaultfd']['instead'], lacks['pidfd_getfd']['instead']), (None, None))


@case
def memory_of_container(scene):
    """A container is found by its name; for one that does not run, or does not exist, the error says so."""
    scene = scene(FAST, size=32)
    sock = daemon_that_knows(scene.dir, {'shop': scene.task.pid, 'ended': 0})
    scene.device.env['DOCKER_HOST'] = f'unix://{sock}'
    says(scene, 'container ended does not run', 'attach', 'ended', '--dram', '8M')
    says(scene, 'no container other runs here', 'attach', 'other', '--dram', '8M')
    says(scene, 'cannot be a container\'s name', 'attach', 'a/../b', '--dram', '8M')
    run_ctl(scene, 0, 'memory', 'attach', 'shop', '--dram', '8M')
    try:
        begun, = context(scene)['contexts']
        expect('context', (begun['name'], [p['pid'] for p in begun['processes']]), ('shop', [scene.task.pid]))
        scene.task.verify(signal.SIGUSR1)
    finally:
        run_ctl(scene, 0, 'memory', 'detach', 'shop')
    scene.task.verify(signal.SIGUSR1)


def top(scene, name):
    """Output of `top` while the task reads all of its memory, and while it does nothing."""
    done = threading.Event()

    def use():
        while not done.is_set():
            scene.task.verify(signal.SIGUSR1)

    def busy():
        nonlocal row
        row, = json.loads(run_ctl(scene, 0, 'top', '--interval', '1', '--json'))['contexts']
        return row['name'] == name and row['faults_per_s'] and row['read_bytes_per_s'] and row['state'] in ('active', 'going down')

    row, user = None, threading.Thread(target=use)
    user.start()
    try:    # on a busy machine a thread may not stop for some seconds, so nothing is evicted and nothing comes back
        if not wait_until(busy, 60, 0.1):
            raise Failed(f'top: {row}')
    finally:
        done.set()
        user.join()
    told = run_ctl(scene, 0, 'top', '--once', '--interval', '1').splitlines()
    expect('top', (told[0].split(';')[0].split(', ')[1], [line.split()[0] for line in told[-2:]]), ('1 memory context', ['CONTEXT', name]))


@case
def memory(scene):
    """attach, status, limit and detach of a task: it stays under its budget, its memory is right, and all zones are freed."""
    scene = scene(FAST, size=96)
    pid = str(scene.task.pid)
    kernel = context(scene)['kernel']
    if kernel['missing']:
        says(scene, kernel['missing'], 'attach', pid, '--dram', '16M')
        return
    says(scene, 'is in no memory context', 'detach', pid)
    says(scene, 'neither Docker\'s nor Podman\'s', 'attach', 'no-such-container', '--dram', '16M')
    says(scene, 'No such process', 'attach', '4194303', '--dram', '16M')
    says(scene, 'a size of 1M at least', 'attach', pid, '--dram', '100')
    begun = json.loads(run_ctl(scene, 0, 'memory', 'attach', pid, '--dram', '40%', '--name', 'web', '--json'))
    try:
        expect('name', begun['name'], 'web')
        if not 30 * MIB < begun['dram'] < 60 * MIB:
            raise Failed(f'40 % of 96 MiB are {begun["dram"]} bytes')
        says(scene, 'kept already', 'attach', pid, '--dram', '16M', '--name', 'web')
        said = json.loads(run_ctl(scene, 0, 'memory', 'limit', pid, '--dram', '24M', '--json'))
        expect('new budget', said['dram'], 24 * MIB)
        if not wait_until(lambda: context(scene, 'web')['evicted'] > 48 * MIB, 60, 0.2):
            raise Failed(f'not evicted: {context(scene, "web")}')
        scene.task.verify(signal.SIGUSR1)
        top(scene, 'web')
        shown = context(scene)
        expect('contexts', [c['name'] for c in shown['contexts']], ['web'])
        lease, = [l for l in scene.device.status()['leases'] if l['kind'] == 'memory']
        expect('lease', (lease['container'], lease['pid'], lease['memory']['connected']), ('memory:web', begun['pid'], True))
        mine = of_memory(scene)
        if not mine:
            raise Failed('no zone is called memory:web')
        run_ctl(scene, 1, 'reset', '--zone', str(mine[0]['index']))
        run_ctl(scene, 0, 'reset', '--all-garbage')
        # Dumps use other zones, and a new broker leaves the context's zones alone.
        broker = scene.device.status()['broker_pid']
        os.kill(begun['pid'], signal.SIGSTOP)       # otherwise the pager would start the next broker
        os.kill(broker, signal.SIGKILL)
        wait_until(lambda: not alive(broker), 10)
        said = run_ctl(scene, 1, 'format', scene.device.spec, '--force')
        os.kill(begun['pid'], signal.SIGCONT)
        if 'holds memory of a running program (web)' not in said:
            raise Failed(f'format of a device with memory of a running program: {said}')
        time.sleep(0.5)
        expect('zones', bool(of_memory(scene)), True)
        said = run_ctl(scene, 0, 'memory', 'status', pid)
        if f'PID {pid}' not in said:
            raise Failed(f'status of a PID: {said}')
        run_ctl(scene, 0, 'memory', 'detach', 'web')
        expect('contexts', context(scene)['contexts'], [])
        scene.task.verify(signal.SIGUSR1)
        if not wait_until(lambda: not of_memory(scene) and scene.device.free_zones() == scene.free_before, 20, 0.1):
            raise Failed(f'zones after the end: {of_memory(scene)}')
    finally:
        if alive(begun['pid']):
            os.kill(begun['pid'], signal.SIGCONT)
        if context(scene)['contexts']:
            scene.device.ctl('memory', 'detach', 'web')
