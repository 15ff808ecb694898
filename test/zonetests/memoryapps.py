#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
memoryapps: programs that people run, under a budget of DRAM. Each is asked for its data while most of its memory is on
zones, and again after the detach.

  memoryapps.py list | run NAME... | run -a     [--build DIR]
"""
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import memory
from memory import Failed, Skipped, asked, resident, wait_until

memory.CASES.clear()
case = memory.case
PG = next(iter(sorted(Path('/usr/lib/postgresql').glob('*/bin'), reverse=True)), None)
SUMS = '''select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)
 and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)
 and (select sum(bbalance) from pgbench_branches) = (select coalesce(sum(delta), 0) from pgbench_history)'''


@case
def postgresql(stage, args):
    """PostgreSQL, a tree of forked processes, with checksums, under pgbench; then an aggregate and a sort that need memory of their own."""
    if not PG:
        raise Skipped('no PostgreSQL')
    user = next((u for u in ('postgres', 'nobody') if u in {p.pw_name for p in pwd.getpwall()}), None)
    stage = stage()
    stage.dir.chmod(0o755)
    home = stage.dir / 'pg'
    home.mkdir()
    shutil.chown(home, user)
    env = {**os.environ, 'PGHOST': str(home), 'PGDATABASE': 'postgres', 'PGUSER': 'pg', 'LC_ALL': 'C'}

    def as_user(*words, **kw):
        return subprocess.run([str(w) for w in words], user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=(), env=env, cwd=home,
                              capture_output=True, text=True, check=True, timeout=300, **kw).stdout

    as_user(PG / 'initdb', '-k', '-U', 'pg', '-A', 'trust', home / 'db')
    server = stage.start(PG / 'postgres', '-D', home / 'db', '-k', home, '-h', '', '-c', 'shared_buffers=16MB', '-c', 'fsync=off', '-c',
                         'work_mem=64MB', user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=(), env=env)
    wait_until(lambda: not subprocess.run([PG / 'pg_isready', '-q'], env=env, check=False).returncode, 'the server')
    as_user(PG / 'pgbench', '-q', '-i', '-s', '4')
    stage.attach(server.pid, '24M')
    sums, said = 0, ''
    while not said or stage.there_and_back(server) < args.units:
        bench = subprocess.Popen([PG / 'pgbench', '-c', '6', '-j', '2', '-T', '20', '-b', 'tpcb-like'], env=env, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        while bench.poll() is None:
            if as_user(PG / 'psql', '-Atc', SUMS).strip() != 't':
                raise Failed('the balances differ')
            got = as_user(PG / 'psql', '-Atc', 'set jit=off; select count(distinct md5(i::text)) from generate_series(1, 60000) i;').split()
            if got[-1] != '60000':
                raise Failed(f'a sort gave {got}')
            sums += 1
        said = bench.stdout.read()
        if bench.returncode or 'number of failed transactions: 0' not in said:
            raise Failed(said[-300:])
    found = stage.status(server.pid)
    print(f'    {len(found["processes"])} processes; {found["evicted_units"]} units out, {found["read_units"]} back; {found["lost_units"]} lost; '
          f'the balances were right {sums} times; {[l for l in said.splitlines() if "processed" in l or l.startswith("tps")]}')
    if not found['evicted_units']:
        raise Failed('nothing was evicted')
    stage.ctl('memory', 'detach', server.pid)
    if as_user(PG / 'psql', '-Atc', SUMS).strip() != 't':
        raise Failed('the balances differ after the detach')
    as_user(PG / 'pg_ctl', '-D', home / 'db', '-m', 'fast', '-w', 'stop')
    as_user(PG / 'pg_checksums', '-D', home / 'db', '--check')


HEAP = '''import java.util.*; public class Heap { public static void main(String[] x) throws Exception {
  int[][] a = new int[4000][]; for (int i = 0; i < a.length; i++) a[i] = fill(i); Scanner in = new Scanner(System.in); int t = 0;
  while (in.hasNextLine()) { in.nextLine(); int bad = 0; t++; for (int i = 0; i < a.length; i++) if (!Arrays.equals(a[i], fill(i))) bad++;
  for (int i = t % 5; i < a.length; i += 5) a[i] = fill(i); System.out.println(bad == 0 ? "ok" : "bad " + bad); } }
  static int[] fill(int n) { int[] r = new int[4096]; for (int i = 0; i < r.length; i++) r[i] = n * 31 + i; return r; } }'''


def jvm(stage, collector, shared=False):
    if not shutil.which('java'):
        raise Skipped('no java')
    stage = stage()
    (stage.dir / 'Heap.java').write_text(HEAP)
    program = stage.start('java', '-Xmx256m', collector, stage.dir / 'Heap.java', stdin=subprocess.PIPE)
    asked(stage, program, '96M', units=100 if shared else 300)


@case
def java_g1(stage, args):
    """A JVM with the G1 collector."""
    jvm(stage, '-XX:+UseG1GC')


@case
def java_zgc(stage, args):
    """A JVM with ZGC, whose heap is a memfd that is mapped several times: that is shared memory, and is not evicted."""
    jvm(stage, '-XX:+UseZGC', shared=True)


def get(path, url):
    """The answer of a server on a socket of this path."""
    with socket.socket(socket.AF_UNIX) as sk:
        sk.settimeout(memory.DEADLINE_S)
        sk.connect(str(path))
        sk.sendall(f'GET {url} HTTP/1.0\r\n\r\n'.encode())
        with sk.makefile('rb') as answer:
            return answer.read().partition(b'\r\n\r\n')[2].decode()


@case
def nginx(stage, args):
    """nginx with several workers: its answers match its files, also when workers are replaced."""
    if not shutil.which('nginx'):
        raise Skipped('no nginx')
    stage = stage()
    for n in range(40):
        (stage.dir / f'f{n}').write_text(f'{n} ' * 5000)
    conf = stage.dir / 'nginx.conf'
    conf.write_text(f'''worker_processes 3; daemon off; pid {stage.dir}/pid; error_log {stage.dir}/err; events {{ }}
user root; http {{ access_log off; sendfile off; server {{ listen unix:{stage.dir}/s; root {stage.dir}; }} }}''')
    program = stage.start('nginx', '-c', conf, '-p', stage.dir)

    def ask():
        for n in range(40):
            if get(stage.dir / 's', f'/f{n}') != f'{n} ' * 5000:
                raise Failed(f'file {n} is wrong')
    wait_until((stage.dir / 's').exists, 'its socket')
    ask()
    stage.attach(program.pid, '2M')
    stage.await_units_asked(program, 20, ask)
    program.send_signal(1)       # replaces the workers
    time.sleep(1)
    ask()
    found = stage.status(program.pid)
    print(f'    {len(found["processes"])} processes; {found["evicted_units"]} units out, {found["read_units"]} back')
    stage.ctl('memory', 'detach', program.pid)
    ask()


@case
def debugged(stage, args):
    """gdb reads a variable of a program whose memory is on zones, and strace follows it."""
    if not shutil.which('gdb') or not shutil.which('strace'):
        raise Skipped('no gdb or strace')
    stage = stage()
    program = stage.pages(32)
    stage.attach(program.pid, '4M')
    stage.await_units(program, 100)
    said = subprocess.run(['gdb', '-p', str(program.pid), '-batch', '-ex', 'info proc mappings', '-ex', 'detach'], capture_output=True,
                          text=True, timeout=100, check=False, stdin=subprocess.DEVNULL)
    if 'Objfile' not in said.stdout and 'Start Addr' not in said.stdout:
        raise Failed(f'gdb says {said.stderr[-200:]}')
    trace = stage.start('strace', '-f', '-o', '/dev/null', '-p', str(program.pid))
    stage.await_units(program, 50)
    trace.terminate()
    trace.wait(20)
    stage.await_units(program, 50)
    print(f'    {resident(program.pid) >> 20} MiB; {stage.end_pages(program)}')


if __name__ == '__main__':
    sys.exit(memory.main())
