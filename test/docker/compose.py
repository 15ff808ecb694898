#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
compose.py: docker-compose with a container that is suspended and resumes. Version 2 is of a later suite of Debian, unpacked; version 1
is the machine's, if it has that. A daemon of our own. The last line sums up.
"""
import json
import shutil
import sys

from dkdaemon import SYS_PATH, Daemon, Failed, sh, want
from dkresume import SECRET, secret
from fetch import debs

APP = {'image': 'work', 'container_name': 'app', 'runtime': 'zns', 'network_mode': 'none', 'stop_grace_period': '60s',
       'labels': {'zns.suspend': 'yes'}, 'tmpfs': '/run', 'command': ['python3', '-c', SECRET]}
# Ways to stop and start a service, and whether they keep its memory.
WAYS = (('stop', 'start'), True), (('restart',), True), (('stop', 'up -d'), True), (('kill', 'up -d'), False), \
    (('stop', 'up -d --force-recreate'), False), (('down', 'up -d'), False)


def run(d, compose):
    project = d.dir / 'project'
    project.mkdir(exist_ok=True)
    (project / 'docker-compose.yml').write_text(json.dumps({'version': '2.4', 'services': {'app': APP}}))

    def call(words):
        return sh(compose, '--project-directory', project, '-f', project / 'docker-compose.yml', *words.split(), env=d.env).stdout
    print(f'     {call("version").splitlines()[0]}', flush=True)
    call('up -d')
    for ways, keeps in WAYS:
        was = secret(d, 'app')
        for words in ways:
            call(words)
        want(f'{" and ".join(ways)}: keeps its memory {not keeps}', (secret(d, 'app') == was) == keeps)
    call('down')
    d.zctl('rm', '--all')


def main():
    results = []
    with Daemon() as d:
        d.make_image()
        for program in (debs('trixie', 'docker-compose') / 'usr/libexec/docker/cli-plugins/docker-compose', shutil.which('docker-compose', path=SYS_PATH)):
            if not program:
                continue
            try:
                run(d, program)
                results.append(True)
            except Failed as e:
                results.append(False)
                print(f'FAIL {program}: {e}', flush=True)
    print(f'{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped')
    return not all(results)


if __name__ == '__main__':
    sys.exit(main())
