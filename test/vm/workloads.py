#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
workloads.py DEV: PostgreSQL, MariaDB, Redis and nginx as Docker containers under uids of their own, checkpointed on the
zoned device DEV (which is formatted) with a client connected over TCP, and started again.

What cannot be dumped where CAP_SYS_RESOURCE is missing, so: for a guest. PostgreSQL uses the guest's network and its client
is a process of the guest, outside of the container; the others have a network namespace of their own with the client
in it. A client that lost its connection would end, and the server tells whether the connection is still the same.
The last line sums up.
"""
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'docker'))
import dkdaemon  # noqa: E402
from dkdaemon import Failed, sh  # noqa: E402
from dkwork import Maria, Nginx, Redis, Work  # noqa: E402

# On a device with six open zones and one kept for the catalogue, of 100 MiB/s each, by a vendor's map.
FORMAT = ['--map', 'i % 4', '--zone-write-bw', '100', '--zone-read-bw', '200']
LABELS = ['--label', 'zns.qos=100', '--label', 'zns.criu=tcp-established']
# The image has the directories, the guest's /etc, and nothing else: its programs are the guest's.
MOUNTS = ['-v', '/usr:/usr:ro']
LOG = Path(os.environ.get('RESULTS', '/results'))


class Guest(dkdaemon.Daemon):
    def make_image(self, name='work'):
        archive = self.dir / 'image.tar'
        with tarfile.open(archive, 'w') as tar:
            for path in ('bin', 'sbin', 'lib', 'lib64', 'etc'):
                tar.add(f'/{path}', path)
            for path in ('usr', 'tmp', 'data', 'run', 'proc', 'sys', 'dev', 'var', 'var/log', 'var/lib', 'var/lib/nginx', 'root'):
                entry = tarfile.TarInfo(path)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path in ('tmp', 'data', 'run') else 0o755
                tar.addfile(entry)
        self.docker('import', archive, name)


def uid_of(user):
    return int(sh('id', '-u', user).stdout)


class Tcp:
    """A workload whose processes have uid UID; SERVER is the server's program."""
    user, server = '', ''
    pause = 1       # processes are dear in an emulated machine

    def options(self):
        return [*LABELS, *MOUNTS, *(['--user', self.user] if self.user else [])]

    def connection(self):
        """What tells the client's connection from any other one."""
        raise NotImplementedError

    def write(self):
        """One more piece of data, and read it back."""
        raise NotImplementedError

    def uids(self):
        """{uid} of the server's processes."""
        found = set()
        for line in self.d.docker('top', self.container, '-eo', 'pid,uid,comm').stdout.splitlines()[1:]:
            _, uid, comm = line.split()[:3]
            if comm.startswith(self.server):
                found.add(int(uid))
        return found

    def end(self):
        pass


class TcpRedis(Tcp, Redis):
    user, server = 'redis', 'redis-server'
    sizes = {'keys': 20000}
    words = {'listen': '--bind 127.0.0.1 --port 6400', 'to': '-h 127.0.0.1 -p 6400'}

    def connection(self):
        clients = [dict(w.split('=', 1) for w in l.split()) for l in self.cli('client', 'list').splitlines()]
        return [(c['id'], c['addr']) for c in clients if c['cmd'] == 'incr']

    def write(self):
        value = f'v{time.monotonic_ns()}'
        self.cli('set', 'later', value)
        return self.cli('get', 'later') == value


class TcpNginx(Tcp, Nginx):
    """The master is root, its workers are www-data. The client asserts that its one connection answers."""
    server = 'nginx'
    words = {'user': 'www-data', 'listen': '127.0.0.1:8400', 'family': 'AF_INET', 'address': "('127.0.0.1', 8400)"}
    curl = 'http://127.0.0.1:8400'

    def connection(self):
        """The client's port, from the kernel's table: state 01 is ESTABLISHED, 20D0 is port 8400."""
        table = self.exec('cat', '/proc/net/tcp').stdout
        return [f[1] for f in (l.split() for l in table.splitlines()) if f[3] == '01' and f[2].endswith(':20D0')]

    def write(self):
        self.exec('bash', '-c', 'head -c 1000 /dev/zero > /data/www/later')
        return self.exec('bash', '-c', f'curl -sf {self.curl}/later | wc -c').stdout.strip() == '1000'


class TcpMaria(Tcp, Maria):
    user, server = '27:27', 'mariadbd'
    sizes = {'pool': 32, 'rows': 10000}
    # It would reserve 8 TiB of addresses, whose pagemap criu reads as a whole on Linux before 6.7: minutes here.
    words = {'as': '', 'to': '-h 127.0.0.1 -P 3400 --protocol=tcp',
             'listen': '--socket=/data/m.sock --bind-address=127.0.0.1 --port=3400 --loose-innodb-buffer-pool-size-max=64M'}

    def ready(self):
        self.wait('test -e /data/up', 'server', 240)

    def connection(self):
        return self.sql("select id, host from information_schema.processlist where user = 'root' and id != connection_id()")

    def write(self):
        before = int(self.sql('select count(*) from shop.t'))
        self.sql("insert into shop.t (v) select sha2(seq, 256) from shop.seq_1_to_100")
        return int(self.sql('select count(*) from shop.t')) == before + 100


class Postgres(Tcp, Work):
    name = 'postgres'
    user, server = 'postgres', 'postgres'
    network = 'host'
    sizes = {'rows': 20000}
    to = ['-h', '127.0.0.1', '-p', '5400', '-U', 'postgres']
    script = '''export PATH=/usr/lib/postgresql/15/bin:$PATH LC_ALL=C
        initdb -A trust -U postgres -D /data/db >/data/initdb.log 2>&1 || { cat /data/initdb.log; exit 1; }
        postgres -D /data/db -k /data -h 127.0.0.1 -p 5400 -c shared_buffers=32MB &
        until psql -h 127.0.0.1 -p 5400 -U postgres -c 'select 1'; do sleep 0.5; done
        psql -h 127.0.0.1 -p 5400 -U postgres -c "create table t as select i, md5(i::text) v from generate_series(1, {rows}) i;
            create index on t (v); create table ticks as select 0 n"
        touch /data/up; wait'''
    client = None

    def ready(self):
        self.wait('test -e /data/up', 'server', 240)
        # psql ends when it loses its connection.
        feed = 'while :; do echo "update ticks set n = n + 1;"; sleep 1; done | exec psql -q -v ON_ERROR_STOP=1 "$@"'
        self.client = subprocess.Popen(['bash', '-c', feed, 'client', *self.to], env=dict(os.environ, PGAPPNAME='client'),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)

    def sql(self, text):
        return self.exec('psql', *self.to, '-Atc', text).stdout.strip()

    def digest(self):
        return self.sql("select count(*), sum(i), md5(string_agg(v, '' order by i)) from t")

    def ticks(self):
        return int(self.sql('select n from ticks'))

    def connection(self):
        return self.sql("select pid, client_port, backend_start from pg_stat_activity where application_name = 'client'")

    def write(self):
        before = self.sql('select count(*), sum(i) from t').split('|')
        self.sql("insert into t select -1, md5(i::text) from generate_series(1, 500) i; checkpoint")
        after = self.sql('select count(*), sum(i) from t').split('|')
        return int(after[0]) == int(before[0]) + 500 and int(after[1]) == int(before[1]) - 500

    def end(self):
        if self.client:
            os.killpg(self.client.pid, 15)
            self.client.wait()


WORKS = [Postgres, TcpMaria, TcpRedis, TcpNginx]
UIDS = {'postgres': lambda: {uid_of('postgres')}, 'redis': lambda: {uid_of('redis')}, 'mariadb': lambda: {27},
        'nginx': lambda: {0, uid_of('www-data')}}


class Count:
    passed = failed = 0

    @classmethod
    def check(cls, what, test):
        """TEST() returns False or raises if it does not hold."""
        try:
            text = '' if test() is not False else 'it does not hold'
        except (Failed, subprocess.TimeoutExpired) as e:
            text = str(e)
        except Exception as e:  # a fault of the test is a failure too
            traceback.print_exc()
            text = f'{type(e).__name__}: {e}'
        cls.passed, cls.failed = cls.passed + (not text), cls.failed + bool(text)
        print(f'FAIL {what}: {" ".join(text.split())[:400]}' if text else f'PASS {what}', flush=True)
        return not text


check = Count.check


def same(now, was):
    if now != was:
        raise Failed(f'{now!r} instead of {was!r}')


def at_once(works, do):
    """do(work) for all at the same moment; {work: error}."""
    errors = {}

    def one(w):
        try:
            do(w)
        except Exception as e:
            errors[w] = e
    threads = [threading.Thread(target=one, args=(w,)) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors


def keep_logs(w, name):
    """criu's logs, which Docker deletes."""
    for kind, more in (('dump', []), ('restore', ['--restore'])):
        said = w.d.zctl('docker', 'logs', *more, w.container, check=False)
        (LOG / f'{w.name}-{name}-{kind}.log').write_text(said.stdout + said.stderr)


def cycle(d, works, name):
    """All end in a checkpoint at once; each is started from it, and has all it had."""
    for w in works:
        w.remember()
        w.was = w.connection()
        check(f'{w.name} {name}: one client over TCP', lambda w=w: bool(w.was))
    errors = at_once(works, lambda w: d.docker('checkpoint', 'create', w.container, name, timeout=200))
    for w in works:
        def created(w=w):
            if w in errors:
                raise errors[w]
            return not d.running(w.container)
        check(f'{w.name} {name}: checkpoint', created)
        check(f'{w.name} {name}: its pages are on the device', lambda w=w: d.checkpoints(w.container)[-1]['bytes'] > 4 << 20)
    for w in works:
        if not check(f'{w.name} {name}: start', lambda w=w: d.docker('start', '--checkpoint', name, w.container, timeout=200)):
            keep_logs(w, name)
            continue
        ok = [check(f'{w.name} {name}: the same data, the client goes on', w.verify),
              check(f'{w.name} {name}: over the same connection', lambda w=w: same(w.connection(), w.was)),
              check(f'{w.name} {name}: writes', w.write),
              check(f'{w.name} {name}: its uids', lambda w=w: same(w.uids(), UIDS[w.name]()))]
        keep_logs(w, name)
        if not all(ok):
            print(d.docker('logs', '--tail', '5', w.container, check=False).stderr.strip()[-600:], flush=True)
    print(json.dumps({c['container']: [c['bytes'], c['qos_achieved_mibps']] for c in d.checkpoints()}), flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    chosen = [w for w in WORKS if len(sys.argv) == 2 or w.name in sys.argv[2:]]
    with Guest(FORMAT, device=sys.argv[1]) as d:
        d.make_image()
        works = []

        def start(kind):
            w = kind(d, kind.name, kind.options(kind))
            works.append(w)
            return w
        for kind in chosen:
            begin = time.monotonic()
            if check(f'{kind.name}: it starts', lambda k=kind: start(k)):
                print(f'     {time.monotonic() - begin:.0f} s', flush=True)
                check(f'{kind.name}: its uids', lambda: same(works[-1].uids(), UIDS[kind.name]()))
        try:
            cycle(d, works, 'one')
        finally:
            for w in works:
                w.end()
            (LOG / 'dockerd.log').write_text((d.dir / 'dockerd.log').read_text())
    print(f'{Count.passed} passed, {Count.failed} failed, 0 skipped')
    return 1 if Count.failed or not Count.passed else 0


if __name__ == '__main__':
    sys.exit(main())
