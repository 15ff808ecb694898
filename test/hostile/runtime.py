# SPDX-License-Identifier: GPL-2.0-only
"""zns-runc itself, as an engine calls it, with bundle and state of our own; what it would start is a script of ours."""
import json
import os
import signal
import subprocess

from ztlib import REPO, Failed, alive, kill, wait_until

RUNC = REPO / 'build' / 'bin' / 'zns-runc'
ID = 'a' * 64
OTHER = 'b' * 64
VICTIM = 'victim'

# Stands for runc: stores its arguments, and calls criu as runc would if there is a process.
FAKE = '''#!/bin/sh
[ -n "$CRIU_CONFIG_FILE" ] && cp "$CRIU_CONFIG_FILE" {dir}/conf
env >{dir}/env; echo "$*" >{dir}/args
[ -s {dir}/pid ] || exit 0
case " $* " in
*" checkpoint "*) exec criu dump -t $(cat {dir}/pid) -D {dir}/images -W {dir}/work -o dump.log -v4 --leave-running;;
*" restore "*) rm -f {dir}/restored; exec criu restore -D {dir}/images -W {dir}/work -o restore.log -v4 -d --pidfile {dir}/restored;;
esac
'''


class Engine:
    """One container of a made-up engine. @state ends with what containerd calls its namespace."""

    def __init__(self, scene, state='state/moby', cid=ID):
        scene.engines = getattr(scene, 'engines', 0) + 1
        self.scene, self.id = scene, cid
        self.dir = scene.dir / f'engine-{scene.engines}'
        self.bundle, self.state, self.root = self.dir / 'bundle', self.dir / state, self.dir / 'docker'
        self.images, self.work = self.dir / 'images', self.dir / 'work'
        for d in (self.bundle, self.state / cid, self.root / 'containers' / cid, self.images, self.work):
            d.mkdir(parents=True)
        for d in (self.root, self.root / 'containers', self.root / 'containers' / cid):
            d.chmod(0o710)
        self.fake = self.dir / 'runc'
        self.fake.write_text(FAKE.format(dir=self.dir))
        self.fake.chmod(0o755)
        self.spec = {'annotations': {}, 'mounts': [], 'process': {'env': []}, 'root': {'path': 'rootfs'}}
        self.docker_root = None         # what `znsctl docker install` noted
        self.init_pid, self.init_start = 0, 0
        self.conf = self.dir / 'conf'

    def config(self, root=None, cid=None, **more):
        """config.v2.json as dockerd would write it; its path."""
        path = (root or self.root) / 'containers' / (cid or self.id) / 'config.v2.json'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({'ID': self.id, 'Name': '/web', 'Config': {'Image': 'nginx', 'Labels': {}, 'Env': []},
                                    **more}))
        path.chmod(0o600)
        return path

    def labels(self, labels):
        return self.config(Config={'Image': 'nginx', 'Labels': labels, 'Env': []})

    def call(self, command='checkpoint'):
        """(exit code, what it printed, what it wrote into the engine's log). A runtime of before has no --zns-docker-root."""
        (self.bundle / 'config.json').write_text(json.dumps(self.spec))
        (self.state / self.id / 'state.json').write_text(json.dumps(
            {'id': self.id, 'init_process_pid': self.init_pid, 'init_process_start': self.init_start,
             'config': {'labels': [f'bundle={self.bundle}']}}))
        for name in ('conf', 'env', 'args', 'log.json'):
            (self.dir / name).unlink(missing_ok=True)
        args = [RUNC, '--zns-runc', self.fake]
        if self.docker_root and b'zns-docker-root' in RUNC.read_bytes():
            args += ['--zns-docker-root', self.docker_root]
        args += ['--root', self.state, '--log', self.dir / 'log.json', '--log-format', 'json', command]
        if command == 'checkpoint':
            args += ['--image-path', self.images, '--work-path', self.work]
        else:
            args += ['--bundle', self.bundle]
            if command == 'restore':
                args += ['--detach', '--image-path', self.images, '--work-path', self.work]
        done = subprocess.run([*args, self.id], env=self.scene.device.env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60)
        log = self.dir / 'log.json'
        return done.returncode, done.stderr.decode(errors='replace'), log.read_text() if log.exists() else ''

    def started(self):
        return (self.dir / 'args').exists()

    def options(self):
        """criu's options as zns-runc wrote them: [(name, value)]; what criu would make of each line."""
        if not self.conf.exists():
            return []
        return [tuple(line.split(None, 1)) for line in self.conf.read_text().splitlines()]

    def refused(self, what, *commands, says=''):
        """Checks that none of the calls (create and checkpoint) reaches runc, and that each fails with one line that says why."""
        for command in commands or ('create', 'checkpoint'):
            code, said, log = self.call(command)
            if not code or self.started():
                raise Failed(f'{command} with {what!r} went on; options: {self.options()}')
            if says not in said or said.count('\n') != 1 or any(ord(c) < 32 and c != '\n' or ord(c) == 127 for c in said):
                raise Failed(f'{command} with {what!r} says {said!r}')
            if log.count('\n') != 1 or json.loads(log)['level'] != 'error':
                raise Failed(f'{command} with {what!r} writes {log!r} into the log')
        return said

    def named(self, what, name, **settings):
        """Checks that a checkpoint succeeds, with exactly this name and these settings as options."""
        code, said, _ = self.call()
        if code or not self.started():
            raise Failed(f'checkpoint with {what!r}: {said!r}')
        want = [('zns-container', f'"{name}"'), *((f'zns-{k}', v) for k, v in settings.items())]
        if self.options() != want:
            raise Failed(f'{what!r}: criu is told {self.options()}, not {want}')

    def denied(self, what):
        """A restore with a real criu is refused for whose checkpoint it is; one line, no process."""
        (self.dir / 'pid').write_text('0')
        code, _, log = self.call('restore')
        if not code or (self.dir / 'restored').exists():
            raise Failed(f'{what}: it was restored')
        if log.count('\n') != 1 or 'is of container' not in json.loads(log)['msg']:
            raise Failed(f'{what}: the log has {log!r}')

    def restores(self, what):
        """A restore in the place of the scene's task, which must be what it was."""
        task = self.scene.task
        kill(task.pid)
        wait_until(lambda: not alive(task.pid), 10)
        (self.dir / 'pid').write_text('0')
        code, said, log = self.call('restore')
        if code:
            raise Failed(f'{what}: {said!r} {log!r}')
        task.restored(int((self.dir / 'restored').read_text()))
        task.verify(signal.SIGUSR1)

    def dump(self):
        """A real criu dumps the scene's task, which runs on."""
        (self.dir / 'pid').write_text(str(self.scene.task.pid))
        return self.call()


def trap(directory):
    """(path of a script, the file that is there once it was run)."""
    script, mark = directory / 'trap', directory / 'sprung'
    script.write_text(f'#!/bin/sh\ntouch {mark}\n')
    script.chmod(0o755)
    return script, mark


def with_user(path, uid=1000):
    os.chown(path, uid, uid)
    return path
