#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Do the modelled drives have the speeds that they were given? Over NBD, without a guest.

A drive must never be faster than its model: that is asserted. It may be slower, since the machine
takes time too. For each request this measures how much longer it took than the model says; the drive
must not be slower by more than the sum of these. Bytes, counters and the FTL's map are asserted.

  selftest.py PLUGIN.so [--report FILE.json]
"""
import argparse
import collections
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import nbd

MIB = 1 << 20
KIB = 1 << 10
ZONE = 32 * MIB
WRITE, READ, CHANNEL = 10, 20, 100      # MiB/s: of a die, of a die, of a channel
CHANNELS, BUFFER = 8, 128 * KIB         # a zone's buffer: two program units of 64 KiB
RATES = {"channels": CHANNELS, "channel": CHANNEL, "die-write": WRITE, "die-read": READ, "zone-size": ZONE, "program-unit": 64 * KIB, "buffer-units": 2}


class Drive:
    """nbdkit with the plugin, and a connection to it."""

    def __init__(self, plugin, directory, **params):
        self.dir = tempfile.mkdtemp(dir=directory)
        sock, self.stats_file = f"{self.dir}/sock", f"{self.dir}/stats"
        params = {"size": 512 * MIB, **RATES, **{k.replace("_", "-"): v for k, v in params.items()}}
        words = [f"{k}={v}" for k, v in params.items()]
        self.proc = subprocess.Popen(["nbdkit", "-f", "-U", sock, "-t", "64", plugin, f"file={self.dir}/data",
                                      f"stats={self.stats_file}", *words])
        self.nbd, self.slow = nbd.NBD(), int(params.get("slow", 1))
        self.bytes = self.answered_s = 0
        for _ in range(200):
            if os.path.exists(sock):
                break
            time.sleep(0.05)
        self.nbd.connect_uri(f"nbd+unix:///?socket={sock}")

    def close(self):
        """Returns its statistics."""
        self.nbd.shutdown()
        self.proc.send_signal(signal.SIGTERM)
        if self.proc.wait(30) != 0:
            raise RuntimeError("nbdkit ended with an error")
        with open(self.stats_file, encoding="ascii") as f:
            return json.load(f)

    def answers_s(self):
        """How long all requests took in the model. The drive writes its statistics twice a second."""
        while True:
            if os.path.exists(self.stats_file):
                with open(self.stats_file, encoding="ascii") as f:
                    s = json.load(f)
                if s["host_written"] + s["host_read"] == self.bytes:
                    return s["answer_ns"] * self.slow / 1e9
            time.sleep(0.05)

    def run(self, op, offsets, size, depth=16):
        """Requests with @depth in flight."""
        todo, flying, took, begin = collections.deque(offsets), [], 0, time.monotonic()
        data = bytes(size)
        while todo or flying:
            while todo and len(flying) < depth:
                at, now = todo.popleft(), time.monotonic()
                flying.append((now, self.nbd.aio_pwrite(data, at) if op == "w" else self.nbd.aio_pread(nbd.Buffer(size), at)))
            self.nbd.poll(-1)
            done, now = [c for c in flying if self.nbd.aio_command_completed(c[1])], time.monotonic()
            took += sum(now - c[0] for c in done)
            flying = [c for c in flying if c not in done]
        seconds = time.monotonic() - begin
        self.bytes += len(offsets) * size
        before, self.answered_s = self.answered_s, self.answers_s()
        return Run(len(offsets) * size / MIB, seconds, took - (self.answered_s - before))


@dataclasses.dataclass
class Run:
    mib: float
    seconds: float
    machine_s: float    # how much longer than in the model all requests took, together


class Tally:
    def __init__(self):
        self.passed = self.failed = 0
        self.rows = []

    def check(self, what, ok, why=""):
        self.passed += bool(ok)
        self.failed += not ok
        print(f"{'PASS' if ok else 'FAIL'}  {what}{'' if ok or not why else ': ' + why}")

    def rate(self, what, asked, run, ahead=1.0, behind=0.9):
        """@ahead: how much faster a short run may seem, since a buffer takes its last data. @behind: how much slower,
        since dies wait at its beginning and end."""
        got, least = run.mib / run.seconds, run.mib / (run.mib / (asked * behind) + run.machine_s)
        self.rows.append({"what": what, "asked_mibps": asked, "got_mibps": round(got, 2),
                          "ratio": round(got / asked, 3), "least_mibps": round(least, 2)})
        said = f"{what}: {got:.1f} of {asked:.1f} MiB/s ({got / asked:.3f}; at least {least:.1f})"
        self.check(said, least <= got <= asked * ahead, "faster than the model" if got > least else "slower than model and machine")


def striped(zones, each, first=0, size=128 * KIB):
    return [(first + i % zones) * ZONE + i // zones * size for i in range(zones * each)]


def zoned(t, plugin, directory):
    d = Drive(plugin, directory, kind="zoned")
    each = 8 * MIB // (128 * KIB)
    for zones in (1, 2, 4, 8):
        t.rate(f"zoned, write, {zones} groups", zones * WRITE, d.run("w", striped(zones, each), 128 * KIB),
               1 + BUFFER / (8 * MIB) + 0.01)
        d.nbd.trim(CHANNELS * ZONE, 0)
        t.rate(f"zoned, read, {zones} groups", zones * READ, d.run("r", striped(zones, each), 128 * KIB))
    same = [i % 2 * CHANNELS * ZONE + i // 2 * 128 * KIB for i in range(2 * each)]
    t.rate("zoned, write, two zones of one die", WRITE, d.run("w", same, 128 * KIB), 1 + BUFFER / (8 * MIB) + 0.01)
    s = d.close()
    t.check("zoned: every reset of a written zone is counted", s["resets"] == 1 + 2 + 4 + 8, str(s["resets"]))
    t.check("zoned: what was written went to the dies", sum(x["written"] for x in s["dies"]) <= s["host_written"] and
            s["host_written"] == 17 * 8 * MIB, json.dumps(s))


def slow(t, plugin, directory):
    """With rates four times as high, and four times as slow, the result is the same."""
    d = Drive(plugin, directory, kind="zoned", slow=4, die_write=4 * WRITE, die_read=4 * READ, channel=4 * CHANNEL)
    t.rate("zoned, one group, 40 MiB/s a quarter as fast", WRITE, d.run("w", striped(1, 64), 128 * KIB), 1 + BUFFER / (8 * MIB) + 0.01)
    got = d.run("r", striped(1, 64), 128 * KIB)
    t.rate("zoned, read, one group, 80 MiB/s a quarter as fast", READ, got)
    d.close()


def conventional(t, plugin, directory):
    d = Drive(plugin, directory, kind="conventional")
    d.run("w", range(0, 4 * MIB, 4 * KIB), 4 * KIB)
    t.rate("conventional, sequential write", CHANNELS * WRITE,
           d.run("w", range(4 * MIB, 68 * MIB, 128 * KIB), 128 * KIB), 1.02)
    d.nbd.flush()
    t.rate("conventional, sequential read", CHANNELS * READ,
           d.run("r", range(4 * MIB, 68 * MIB, 128 * KIB), 128 * KIB))
    far = [4 * MIB + i * CHANNELS * 4 * KIB for i in range(1000)]
    t.rate("conventional, pages of one die", READ, d.run("r", far, 4 * KIB))
    s = d.close()
    t.check("conventional: sequential writes copy nothing", s["write_amplification"] == 1.0, json.dumps(s))


def collection(t, plugin, directory):
    rng = random.Random(7)
    for filled in ("sequential", "random"):
        d = Drive(plugin, directory, kind="conventional", size=64 * MIB, filled=filled, spare=10, block_pages=64,
                  die_write=400, die_read=800, channel=4000, erase_us=100)
        d.run("w", [rng.randrange(64 * MIB // (4 * KIB)) * 4 * KIB for _ in range(20000)], 4 * KIB)
        s = d.close()
        print(f"      conventional, filled {filled}: write amplification {s['write_amplification']:.2f}")
        t.check(f"conventional, filled {filled}, random writes: garbage is copied", s["write_amplification"] > 1.3)
    d = Drive(plugin, directory, kind="conventional", size=64 * MIB, filled="sequential", spare=10, block_pages=64,
              die_write=400, die_read=800, channel=4000, erase_us=100)
    d.nbd.trim(64 * MIB, 0)
    d.run("w", [rng.randrange(8 * MIB // (4 * KIB)) * 4 * KIB for _ in range(20000)], 4 * KIB)
    s = d.close()
    t.check("conventional, discarded: hardly anything is copied", s["write_amplification"] < 1.1,
            str(s["write_amplification"]))


def idle(t, plugin, directory):
    """Garbage collection in idle time delays no request."""
    waited = {}
    for blocks in (0, 8):
        rng = random.Random(7)
        d = Drive(plugin, directory, kind="conventional", size=64 * MIB, filled="random", spare=40, block_pages=64, die_write=400,
                  die_read=800, channel=4000, erase_us=100, idle_blocks=blocks)
        for _ in range(10):
            d.run("w", [rng.randrange(64 * MIB // (4 * KIB)) * 4 * KIB for _ in range(1000)], 4 * KIB)
            time.sleep(0.2)
        s = d.close()
        waited[blocks] = s["gc_busy_ns"]
        t.check(f"conventional, idle-blocks={blocks}: what is collected in idle time", (s["gc_idle_ns"] > 0) == (blocks > 0), json.dumps(s))
    t.check("conventional, idle-blocks=8: collecting keeps few requests waiting", waited[8] < 0.5 * waited[0], str(waited))


def flushes(t, plugin, directory):
    """A flush waits for the buffer's data; if the buffer survives a power cut it waits for nothing."""
    for kind, slow_by, unit in (("zoned", 64, 64 * KIB), ("conventional", 1024, 4 * KIB)):
        for what in ("medium", "buffer"):
            d = Drive(plugin, directory, kind=kind, slow=slow_by, flush=what)
            begin = time.monotonic()
            d.nbd.pwrite(bytes(4 * KIB), 0)
            d.nbd.flush()
            took, s = time.monotonic() - begin, d.close()
            t.check(f"{kind}, flush={what}: flushes are counted", s["flushes"] >= 1, json.dumps(s))
            if what == "buffer":
                t.check(f"{kind}, flush=buffer: none took any time", s["flush_ns"] == 0, json.dumps(s))
            else:
                t.check(f"{kind}, flush=medium: not before the die has it", took >= slow_by * unit / (WRITE * MIB), str(took))


def requests(t, plugin, directory):
    """Each read and write is logged, with the time that it took in the model."""
    d = Drive(plugin, directory, kind="zoned", requests=1)
    d.run("w", [i * 64 * KIB for i in range(16)], 64 * KIB, depth=1)
    d.nbd.pread(4 * KIB, 64 * KIB)
    s = d.close()
    with open(f"{d.stats_file}.requests", encoding="ascii") as f:
        lines = [line.split() for line in f]
    t.check("requests=1: a line for each", [w[:3] for w in lines] == [["w", str(i * 64 * KIB), str(64 * KIB)] for i in range(16)] +
            [["r", str(64 * KIB), str(4 * KIB)]], str(lines))
    t.check("requests=1: their times are the model's", sum(int(w[4]) - int(w[3]) for w in lines) == s["answer_ns"], json.dumps(s))


def content(t, plugin, directory):
    for kind in ("zoned", "conventional"):
        d = Drive(plugin, directory, kind=kind, size=64 * MIB, zone_size=8 * MIB, die_write=4000, die_read=8000, channel=8000)
        rng, model = random.Random(1), bytearray(64 * MIB)
        for _ in range(600):
            at = rng.randrange(64 * MIB // 512) * 512
            size = min(rng.randrange(1, 256) * 512, 64 * MIB - at)
            what = rng.random()
            if what < 0.6:
                data = rng.randbytes(size)
                d.nbd.pwrite(data, at)
                model[at:at + size] = data
            elif what < 0.7:
                d.nbd.trim(size, at)
                model[at:at + size] = bytes(size)
            elif d.nbd.pread(size, at) != model[at:at + size]:
                t.check(f"{kind}: bytes at {at}", False)
        t.check(f"{kind}: all bytes are what was written last", d.nbd.pread(32 * MIB, 0) == model[:32 * MIB] and
                d.nbd.pread(32 * MIB, 32 * MIB) == model[32 * MIB:])
        d.close()


def refusals(t, plugin, directory):
    for words in (["size=1G"], ["file=x"], ["file=x", "size=1G", "kind=tape"], ["file=x", "size=1000"],
                  ["file=x", "size=100M", "kind=zoned", "zone-size=64M"], ["file=x", "size=1G", "channels=0"],
                  ["file=x", "size=1G", "colour=red"],
                  ["file=x", "size=1G", "flush=never"]):
        r = subprocess.run(["nbdkit", "-f", "-U", f"{directory}/no", plugin, *words], cwd=directory, timeout=30,
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        t.check(f"refused: {' '.join(words)}", r.returncode != 0 and "error" in r.stderr, r.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("plugin")
    p.add_argument("--report")
    a = p.parse_args()
    t = Tally()
    with tempfile.TemporaryDirectory(prefix="zns-drive-") as directory:
        for part in (refusals, content, flushes, requests, zoned, slow, conventional, collection, idle):
            part(t, os.path.abspath(a.plugin), directory)
    if a.report:
        os.makedirs(os.path.dirname(a.report), exist_ok=True)
        with open(a.report, "w", encoding="ascii") as f:
            json.dump(t.rows, f, indent=1)
    print(f"{t.passed} passed, {t.failed} failed")
    return t.failed > 0


if __name__ == "__main__":
    sys.exit(main())
