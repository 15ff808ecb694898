# SPDX-License-Identifier: GPL-2.0-only
"""
The workloads of the papers. Each has data and a client that stays connected, and each can tell whether its data are
complete. Everything runs as root in the container: without CAP_SYS_RESOURCE criu cannot dump processes of other users.
"""
import time

from dkdaemon import SLOW, Failed, want


class Work:
    name = ''
    script = ''
    sizes = {}          # {NAME} in the script: sizes
    words = {}          # {NAME} in the script: words, above all the address on which it listens
    network = 'none'
    pause = 0.1         # seconds between the client's requests; {pause} in the script

    def __init__(self, d, container, options=(), runtime='zns', sizes=None):
        self.d, self.container = d, container
        self.sizes = {**self.sizes, **(sizes or {})}
        script = self.script
        for name, value in {**self.sizes, **self.words, 'pause': self.pause}.items():
            script = script.replace(f'{{{name}}}', str(value))
        d.run(container, 'bash', '-c', script, options=options, runtime=runtime, network=self.network)
        self.ready()

    def exec(self, *cmd, **more):
        return self.d.docker('exec', self.container, *cmd, **more)

    def wait(self, test, what, seconds=90):
        end = time.monotonic() + seconds * SLOW
        while True:
            r = self.exec('bash', '-c', test, check=False)
            if r.returncode == 0:
                return r.stdout.strip()
            if time.monotonic() > end:
                log = self.d.docker('logs', '--tail', '5', self.container, check=False)
                raise Failed(f'{self.name}: no {what} in {seconds} s: {(log.stdout + log.stderr)[-300:]}')
            time.sleep(0.2)

    def ready(self):
        pass

    def digest(self):
        """A digest of its data, which must be the same after a restore."""
        raise NotImplementedError

    def ticks(self):
        """How many requests the connected client has made."""
        raise NotImplementedError

    def remember(self):
        self.before = self.digest()
        self.tick = self.ticks()

    def verify(self):
        now = self.digest()
        if now != self.before:
            raise Failed(f'{self.name}: {now[:80]!r} instead of {self.before[:80]!r}')
        end = time.monotonic() + 60 * SLOW
        while (tick := self.ticks()) <= self.tick:
            if time.monotonic() > end:
                raise Failed(f'{self.name}: the connected client does nothing since the restore ({tick}, {self.tick} before)')
            time.sleep(0.2)


class Shell(Work):
    """An idle Debian shell, which answers a signal."""
    name = 'shell'
    script = '''secret=$(head -c 3000 /dev/urandom | sha256sum); n=0
        trap 'n=$((n+1)); echo "$secret" > /data/answer.new; echo $n > /data/n; mv /data/answer.new /data/answer' USR1
        touch /data/up; while :; do sleep 3600 & wait; done'''

    def ready(self):
        self.wait('test -e /data/up', 'shell')

    def ask(self):
        self.exec('rm', '-f', '/data/answer')
        self.d.docker('kill', '-s', 'USR1', self.container)
        return self.wait('cat /data/answer', 'answer')

    def digest(self):
        return self.ask()

    def ticks(self):
        return int(self.wait('cat /data/n', 'count'))


class Redis(Work):
    name = 'redis'
    sizes = {'keys': 20000}
    words = {'listen': '--unixsocket /data/r.sock --port 0', 'to': '-s /data/r.sock'}
    script = '''redis-server --enable-debug-command yes {listen} --save "" --appendonly no --daemonize no &
        until redis-cli {to} ping; do sleep 0.1; done
        redis-cli {to} debug populate {keys} key 1000
        redis-cli {to} set marker present; touch /data/up
        # one connection that is used all the time
        while :; do echo incr ticks; sleep {pause}; done | redis-cli {to} > /dev/null & wait'''

    def cli(self, *cmd):
        said = self.exec('redis-cli', '-e', *self.words['to'].split(), *cmd).stdout.strip()
        if not said or 'ERR' in said:
            raise Failed(f'redis: {" ".join(cmd)[:60]} says {said[:80]!r}')
        return said

    def ready(self):
        self.wait('test -e /data/up', 'server')

    def digest(self):
        keys = [f'key:{i}' for i in range(0, self.sizes['keys'], 997)]
        return self.cli('debug', 'digest-value', 'marker', *keys)

    def ticks(self):
        return int(self.cli('incrby', 'ticks', '0'))


class Nginx(Work):
    name = 'nginx'
    words = {'user': 'root', 'listen': 'unix:/data/n.sock', 'family': 'AF_UNIX', 'address': "'/data/n.sock'"}
    curl = '--unix-socket /data/n.sock http://x'
    script = '''mkdir -p /data/www /data/log; head -c 300000 /dev/urandom > /data/www/file
        cat > /data/nginx.conf <<END
user {user}; worker_processes 2; daemon off; pid /data/pid; error_log /data/log/error;
events { worker_connections 64; }
http { access_log off; keepalive_timeout 3600; keepalive_requests 1000000;
  client_body_temp_path /data/t1; proxy_temp_path /data/t2; fastcgi_temp_path /data/t3; uwsgi_temp_path /data/t4; scgi_temp_path /data/t5;
  server { listen {listen}; root /data/www; } }
END
        /usr/sbin/nginx -c /data/nginx.conf &
        until [ -s /data/pid ]; do sleep 0.1; done; touch /data/up
        # a client that keeps its one connection
        python3 - <<END &
import socket, time
s = socket.socket(socket.{family}); s.connect({address}); n = 0
while True:
    s.sendall(b'HEAD /file HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    a = b''
    while b'\\r\\n\\r\\n' not in a:
        got = s.recv(4096)
        assert got
        a += got
    assert b' 200 ' in a
    n += 1
    open('/data/ticks.new', 'w').write(str(n))
    import os; os.rename('/data/ticks.new', '/data/ticks')
    time.sleep({pause})
END
        wait'''

    def ready(self):
        self.wait('test -e /data/up && test -e /data/ticks', 'server')

    def digest(self):
        return self.exec('bash', '-c', f'curl -sf {self.curl}/file | sha256sum').stdout.strip()

    def ticks(self):
        return int(self.exec('cat', '/data/ticks').stdout)


class Maria(Work):
    """MariaDB, for MySQL."""
    name = 'mariadb'
    sizes = {'pool': 64, 'rows': 20000}     # MiB; rows
    words = {'listen': '--socket=/data/m.sock --skip-networking', 'as': '--user=root', 'to': '--socket=/data/m.sock'}
    script = '''mkdir -p /data/db /run/mysqld; cd /usr
        mariadb-install-db --no-defaults {as} --datadir=/data/db --auth-root-authentication-method=normal --skip-test-db \
            --basedir=/usr >/data/install.log 2>&1
        mariadbd --no-defaults {as} --datadir=/data/db {listen} --innodb-use-native-aio=0 \
            --innodb-buffer-pool-size={pool}M --pid-file=/data/m.pid --lc-messages-dir=/usr/share/mysql &
        m="mariadb --no-defaults {to} -u root"
        until $m -e 'select 1'; do sleep 0.3; done
        $m -e "create database shop; create table shop.t (id int primary key auto_increment, v varchar(200)) engine=innodb;
               create table shop.ticks (n int); insert into shop.ticks values (0)"
        $m shop -e "insert into t (v) select sha2(seq, 512) from seq_1_to_{rows}"
        touch /data/up
        while :; do echo 'update shop.ticks set n = n + 1;'; sleep {pause}; done | $m & wait'''

    def sql(self, text):
        return self.exec('mariadb', '--no-defaults', *self.words['to'].split(), '-u', 'root', '-N', '-e', text).stdout.strip()

    def ready(self):
        self.wait('test -e /data/up', 'server')

    def digest(self):
        return self.sql('checksum table shop.t; select count(*), sum(crc32(v)) from shop.t')

    def ticks(self):
        return int(self.sql('select n from shop.ticks'))


class Ferret(Work):
    """FerretDB with its SQLite back end, for MongoDB: the same protocol, and pymongo as its client."""
    name = 'ferretdb'
    sizes = {'docs': 5000}
    script = """mkdir -p /data/db
        ferretdb --handler=sqlite --sqlite-url=file:/data/db/ --listen-addr= --listen-unix=/data/f.sock --state-dir=/data \
            --telemetry=disable --debug-addr=- --log-level=error &
        until [ -S /data/f.sock ]; do sleep 0.1; done
        cat > /data/client.py <<END
import hashlib, os, time
from pymongo import MongoClient, monitoring
class Once(monitoring.ConnectionPoolListener):  # a lost connection ends this client, and its ticks
    made = 0
    def connection_created(self, event):
        Once.made += 1
        if Once.made > 1:
            os._exit(1)
    pool_created = pool_cleared = pool_closed = connection_ready = connection_closed = lambda self, event: None
    connection_check_out_started = connection_check_out_failed = lambda self, event: None
    connection_checked_out = connection_checked_in = lambda self, event: None
shop = MongoClient('mongodb://%2Fdata%2Ff.sock/', serverSelectionTimeoutMS=60000, event_listeners=[Once()]).shop
shop.t.insert_many([{'_id': i, 'v': hashlib.sha512(b'%d' % i).hexdigest()} for i in range({docs})])
shop.ticks.insert_one({'_id': 1, 'n': 0})
open('/data/up', 'w').close()
assert Once.made == 1
while True:
    assert shop.ticks.update_one({'_id': 1}, {'\\$inc': {'n': 1}}).modified_count == 1
    time.sleep(0.1)
END
        python3 /data/client.py & wait"""
    SHOP = "from pymongo import MongoClient; shop = MongoClient('mongodb://%2Fdata%2Ff.sock/').shop; "

    def python(self, text):
        return self.exec('python3', '-c', self.SHOP + text).stdout.strip()

    def ready(self):
        self.wait('test -e /data/up', 'server')

    def digest(self):
        return self.python("import hashlib; print(hashlib.sha256(repr([(d['_id'], d['v']) for d in shop.t.find().sort('_id', 1)])"
                           ".encode()).hexdigest(), shop.t.count_documents({}))")

    def ticks(self):
        return int(self.python("print(shop.ticks.find_one({'_id': 1})['n'])"))


# The papers' five workloads; MongoDB and MySQL are replaced by programs that speak their protocols.
WORKS = [Shell, Redis, Nginx, Ferret, Maria]


class Memory(Work):
    """A process with @size MiB of pages that are all different, which can be asked for their hash."""
    name = 'memory'

    def __init__(self, d, container, mib=64, options=(), runtime='zns'):
        self.d, self.container = d, container
        script = f'''
import hashlib, os, signal
m = bytearray(os.urandom({mib} << 20))
def tell(*a):
    open('/data/new', 'w').write(hashlib.sha256(m).hexdigest()); os.rename('/data/new', '/data/hash')
signal.signal(signal.SIGUSR1, tell)
open('/data/up', 'w')
while True: signal.pause()
'''
        d.run(container, 'python3', '-c', script, options=options, runtime=runtime)
        self.wait('test -e /data/up', 'process')

    def digest(self):
        self.exec('rm', '-f', '/data/hash')
        self.d.docker('kill', '-s', 'USR1', self.container)
        return self.wait('cat /data/hash', 'hash')

    def ticks(self):
        return 0

    def verify(self):
        want('memory differs after the restore', self.digest() == self.before)


class Written(Redis):
    """Redis with a client that writes without a pause, numbers its writes, and knows its longest wait for an answer."""
    name = 'written'
    sizes = {'keys': 60000}
    script = Redis.script.replace('# one connection', '''python3 - <<END &
import os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect('/data/r.sock'); f = s.makefile('rb')
n, gap, last = 0, 0.0, time.monotonic()
while True:
    n += 1
    s.sendall(b'SET w:%d %d\\r\\nSET last %d\\r\\n' % (n % 5000, n, n))
    assert f.readline() + f.readline() == b'+OK\\r\\n+OK\\r\\n'
    now = time.monotonic(); gap = max(gap, now - last); last = now
    if n % 100 == 0 and os.path.exists('/data/tell'):
        open('/data/new', 'w').write('%d %f' % (n, gap))
        os.rename('/data/new', '/data/told'); os.unlink('/data/tell')
        while not os.path.exists('/data/on'):
            time.sleep(0.01)
        os.unlink('/data/on'); gap, last = 0.0, time.monotonic()
END
        # one connection''')

    def told(self):
        """Returns (number of the last write, longest wait in s), after checking that server and client agree about
        all writes."""
        self.exec('bash', '-c', 'rm -f /data/told; touch /data/tell')
        n, gap = self.wait('cat /data/told', 'answer of the writer').split()
        n = int(n)
        want('the last write', self.cli('get', 'last') == str(n), n)
        keys = range(max(1, n - 4999), n + 1)
        have = self.cli('mget', *[f'w:{i % 5000}' for i in keys]).split()
        want('every write', have == [str(i) for i in keys], [(a, i) for a, i in zip(have, keys) if a != str(i)][:5])
        self.exec('touch', '/data/on')
        return n, float(gap)
