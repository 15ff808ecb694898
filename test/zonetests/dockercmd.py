# SPDX-License-Identifier: GPL-2.0-only
"""`znsctl docker` against a dockerd of ours, which waits where a test wants to kill the command."""
import contextlib
import fcntl
import json
import os
import signal
import socketserver
import subprocess
import threading
from pathlib import Path

from ztlib import Failed, wait_until
from ztscene import TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)
ID = 'c' * 64


class Daemon:
    """The part of Docker's interface that `docker suspend` and `resume` use, with one container, `web`."""

    def __init__(self, scene):
        self.root, self.policy, self.running, self.calls = scene.dir / 'docker', {'Name': 'always', 'MaximumRetryCount': 0}, True, []
        self.dumping = threading.Event()
        self.own = self.root / 'containers' / ID
        (self.own / 'checkpoints').mkdir(parents=True)
        config = self.own / 'config.v2.json'
        config.write_text(json.dumps({'ID': ID, 'Name': '/web', 'Config': {'Image': 'nginx', 'Labels': {}, 'Env': []}}))
        config.chmod(0o600)
        daemon = self

        class Answer(socketserver.StreamRequestHandler):
            def handle(self):
                call, length = self.rfile.readline().decode().split()[:2], 0
                while line := self.rfile.readline().strip():
                    if line.lower().startswith(b'content-length:'):
                        length = int(line.split(b':')[1])
                body = daemon.answer(*call, json.loads(self.rfile.read(length) or 'null'))
                with contextlib.suppress(BrokenPipeError):     # the command was killed
                    self.wfile.write(f'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}'.encode())

        sock = scene.dir / 'docker.sock'
        self.server = socketserver.ThreadingUnixStreamServer(str(sock), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        scene.device.env['DOCKER_HOST'] = f'unix://{sock}'

    def answer(self, method, path, body):
        if path == '/info':
            return {'DockerRootDir': str(self.root), 'ServerVersion': '20.10', 'ExperimentalBuild': True, 'Runtimes': {'zns': {'path': '/x/zns-runc'}}}
        if path == '/containers/json':
            return []
        self.calls.append(path.split('/')[-1])
        if path.endswith('/update'):
            self.policy = body['RestartPolicy']
        elif path.endswith('/checkpoints'):
            self.dumping.wait(120)
        elif method == 'GET':
            return {'Id': ID, 'Name': '/web', 'Image': 'x', 'HostConfig': {'Runtime': 'zns', 'RestartPolicy': self.policy},
                    'State': {'Running': self.running, 'Pid': 0}}
        return {}


@contextlib.contextmanager
def opened(directory):
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def second_look(scene, daemon, suspend, note):
    """dockerd calls the runtime between the two looks. False: the lock came too late for the second one."""
    command = suspend()
    command.kill()
    command.wait(60)
    with opened(daemon.own / 'checkpoints') as lock:
        command = subprocess.Popen([scene.device.cfg.znsctl, 'docker', 'suspend', '--all'], env=scene.device.env, stdin=subprocess.DEVNULL)
        place = Path(f'/proc/{command.pid}/wchan')
        if not wait_until(lambda: 'nanosleep' in place.read_text()):
            raise Failed('the policy is set at the first look')
        fcntl.flock(lock, fcntl.LOCK_EX)
        in_time = 'nanosleep' in place.read_text()
        expect('exit of a suspend', command.wait(60), 0)
        if in_time:
            expect('the policy at the second look', (daemon.policy['Name'], note.exists()), ('no', True))
        return in_time


@case
def suspend_killed(scene):
    """A suspend that is killed while the container has no restart policy: the next suspend or resume sets it again, and none does before."""
    scene = scene(TINY, size=1)
    daemon = Daemon(scene)

    def suspend():
        daemon.calls.clear()
        command = subprocess.Popen([scene.device.cfg.znsctl, 'docker', 'suspend', 'web'], env=scene.device.env, stdin=subprocess.DEVNULL)
        if not wait_until(lambda: 'checkpoints' in daemon.calls):
            raise Failed(f'no checkpoint: {daemon.calls}')
        expect('the policy during the dump', daemon.policy, {'Name': 'no'})
        return command

    note = daemon.own / 'zns-restart'
    for following in (['suspend', '--all'], ['resume', 'web', 'one'], ['suspend', 'other']):
        command = suspend()
        try:
            if 'is being suspended by another command' not in run_ctl(scene, 1, 'docker', 'suspend', 'web'):
                raise Failed('a second suspend of the container is not refused')
            run_ctl(scene, 0, 'docker', 'suspend', '--all')
            expect('the policy while it is suspended', daemon.policy, {'Name': 'no'})
        finally:
            command.send_signal(signal.SIGKILL)
            command.wait(60)
        # dockerd goes on with the dump
        with opened(daemon.own / 'checkpoints') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run_ctl(scene, 0, 'docker', 'suspend', '--all')
            expect('the policy while dockerd dumps', (daemon.policy['Name'], note.exists()), ('no', True))
        daemon.running = False
        run_ctl(scene, 1 if 'other' in following else 0, 'docker', *following)
        expect(f'the policy after {following}', (daemon.policy['Name'], note.exists()), ('always', False))
        daemon.running = True
    if not any(second_look(scene, daemon, suspend, note) for _ in range(5)):
        raise Failed('never locked between the two looks')
    # not a policy that somebody has set meanwhile, and nothing of a note that was never written
    command = suspend()
    command.send_signal(signal.SIGKILL)
    command.wait(60)
    daemon.policy = {'Name': 'on-failure', 'MaximumRetryCount': 3}
    run_ctl(scene, 0, 'docker', 'suspend', '--all')
    expect('a policy set by hand', (daemon.policy['Name'], note.exists()), ('on-failure', False))
    daemon.policy = {'Name': 'no'}
    note.touch(mode=0o600)
    run_ctl(scene, 0, 'docker', 'suspend', '--all')
    expect('an empty note', (daemon.policy['Name'], note.exists()), ('no', False))
    daemon.dumping.set()
    daemon.policy = {'Name': 'always', 'MaximumRetryCount': 0}
    run_ctl(scene, 0, 'docker', 'suspend', 'web')
    expect('after a whole suspend', (daemon.policy['Name'], note.exists()), ('always', False))
