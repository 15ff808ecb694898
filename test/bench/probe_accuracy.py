#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""How right is znsctl probe? Emulated devices with known maps and noise, probed through the device interface alone.

Each map is made without a profile, formatted as one domain, probed, and what `znsctl groups --json` then says is held
against the zone -> die map that `znsctl create --json` printed. Judged by conflicting pairs: of zones on one die, and of
zones on one channel but two dies. Prints a table, writes it and a JSON file to --report; exit code 1 if a map misses an aim.
Times: model is the device's own, wall is this machine's."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOISE = "jitter=5,stall-every=1000,stall-us=3000"
LOUD = "jitter=10,stall-every=200,stall-us=5000"
AIM = {"die_precision": 0.999, "die_recall": 0.999, "channel_precision": 0.99, "channel_recall": 0.99, "right": 0.999}

#       name, options of create, noise
SMALL = ["--zone-size", "8M", "--timing", "on"]
MAPS = [
    ("interleaved 8x4", SMALL + ["--zones", "2048"], NOISE),
    ("interleaved 8x4, 32 active", SMALL + ["--zones", "64", "--zone-size", "64M"], NOISE),
    ("interleaved 8x4, no noise", SMALL + ["--zones", "2048"], None),
    ("interleaved 9x2 (18)", ["--profile", "paper-draft-18", "--zones", "2000", "--zone-size", "8M"], NOISE),
    ("permuted 8x4, seed 1", SMALL + ["--zones", "2048", "--map", "permuted:1", "--max-active", "0"], NOISE),
    ("permuted 8x4, seed 2, 32 active", SMALL + ["--zones", "1000", "--map", "permuted:2"], NOISE),
    ("permuted 8x4, loud noise", SMALL + ["--zones", "1024", "--map", "permuted:3", "--max-active", "0"], LOUD),
    ("permuted 16x8 (128)", ["--profile", "small-zone", "--zones", "4096", "--zone-size", "8M", "--map", "permuted:4"], NOISE),
    ("permuted 4x1, one way", SMALL + ["--zones", "512", "--channels", "4", "--ways", "1", "--map", "permuted:5"], NOISE),
    ("permuted 1x8, one channel", SMALL + ["--zones", "512", "--channels", "1", "--ways", "8", "--map", "permuted:6",
                                           "--channel-bw", "500"], NOISE),
    ("permuted 3x5, fast channel", SMALL + ["--zones", "600", "--channels", "3", "--ways", "5", "--map", "permuted:7",
                                            "--channel-bw", "1600"], NOISE),
    ("interleaved 8x4, 14 active", SMALL + ["--zones", "512", "--max-open", "14", "--max-active", "14"], NOISE),
    ("interleaved 4x4, tiny zones, 512 B", SMALL + ["--zones", "256", "--zone-size", "2M", "--zone-capacity", "1500K",
                                                    "--block-size", "512", "--channels", "4"], NOISE),
    ("large-zone (one domain)", ["--profile", "large-zone"], NOISE),
    ("conventional (one domain)", ["--profile", "conventional"], NOISE),
    ("small-zone", ["--profile", "small-zone"], NOISE),
    ("paper-conf, 29172 zones", ["--profile", "paper-conf"], NOISE),
    ("paper-conf permuted", ["--profile", "paper-conf", "--map", "permuted:8"], NOISE),
]
LARGE = {"small-zone", "paper-conf, 29172 zones", "paper-conf permuted"}    # GBs of disk


def pairs(n):
    return n * (n - 1) // 2


def ratio(a, b):
    return a / b if b else 1.0


def judge(die, channel, group, group_channel):
    """die, group: by zone; channel: of a die; group_channel: of a group, None where unknown. Unknown zones: group None."""
    cells, sizes, dies = {}, {}, {}
    for d, g in zip(die, group):
        if g is not None:
            cells[g, d] = cells.get((g, d), 0) + 1
            sizes[g] = sizes.get(g, 0) + 1
        dies[d] = dies.get(d, 0) + 1
    hit = sum(pairs(n) for n in cells.values())
    said, true = sum(pairs(n) for n in sizes.values()), sum(pairs(n) for n in dies.values())
    out = {"die_precision": ratio(hit, said), "die_recall": ratio(hit, true)}
    # a channel that is unknown conflicts with nobody
    chan = {g: ("c", group_channel[g]) if group_channel[g] is not None else ("g", g) for g in sizes}
    listed = list(cells.items())
    hit = said = 0
    for i, ((g, d), n) in enumerate(listed):
        for (h, e), m in listed[i + 1:]:
            if g != h and chan[g] == chan[h]:
                said += n * m
                hit += n * m if d != e and channel(d) == channel(e) else 0
    true = 0
    listed = list(dies.items())
    for i, (d, n) in enumerate(listed):
        for e, m in listed[i + 1:]:
            true += n * m if channel(d) == channel(e) else 0
    out.update(channel_precision=ratio(hit, said), channel_recall=ratio(hit, true))
    # each die is one group at most
    best = {}
    for (g, d), n in cells.items():
        best[d] = max(best.get(d, 0), n)
    out["right"] = sum(best.values()) / len(die)
    return out


def selfcheck():
    """The judge must see through the two answers that look right by counting zones or pairs: all independent, and i mod N."""
    die = [(z * 7 + z // 32 * 5) % 32 for z in range(2048)]
    lone = judge(die, lambda d: d % 8, list(range(2048)), {g: None for g in range(2048)})
    naive = judge(die, lambda d: d % 8, [z % 32 for z in range(2048)], {g: g % 8 for g in range(32)})
    true = judge(die, lambda d: d % 8, [(d * 5 + 3) % 32 for d in die], {(d * 5 + 3) % 32: 7 - d % 8 for d in range(32)})
    return (lone["die_recall"] == lone["channel_recall"] == 0 and naive["die_recall"] < 0.2 and naive["die_precision"] < 0.2
            and lone["right"] < 0.2 and naive["right"] < 0.2 and all(true[k] == 1 for k in AIM))


class Bench:
    def __init__(self, where):
        self.dir = tempfile.mkdtemp(prefix="zns-probe-", dir=where)
        self.env = dict(os.environ, ZNS_CONFIG=os.path.join(self.dir, "config"), ZNS_RUN=os.path.join(self.dir, "run"))
        self.env.pop("ZNS_EMU_NOISE", None)
        self.env.pop("ZNS_EMU_CLOCK", None)

    def znsctl(self, *args, noise=None):
        env = dict(self.env, ZNS_EMU_NOISE=noise) if noise else self.env
        p = subprocess.run([os.path.join(ROOT, "build/test/bin/znsctl"), *args], env=env, capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(f"znsctl {' '.join(args[:2])}: {p.stderr.strip()}")
        return p.stdout

    def measure(self, name, options, noise, seed):
        dev = "emu:" + os.path.join(self.dir, "dev.img")
        made = json.loads(self.znsctl("create", dev, *options, "--sparse", "--no-format", "--force", "--json"))
        self.znsctl("format", dev, "--map", "i % 1", "--default")
        began = time.monotonic()
        took = json.loads(self.znsctl("probe", "--json", noise=noise and f"{noise},seed={seed}"))
        wall = time.monotonic() - began
        said = json.loads(self.znsctl("groups", "--json"))
        zones = json.loads(self.znsctl("zones", "--json"))["zones"]
        left = [z["index"] for z in zones if z["wp"] and z["owner"] != "(metadata)"]
        channels = made["channels"]
        group = [None] * made["zones"]
        for g in said["groups"]:
            for z in g["zones"]:
                group[z] = g["id"]
        if made["map"] == "shared":     # all dies as one: nothing to tell apart
            r = judge(made["zone_die"], lambda d: d, group, {g["id"]: None for g in said["groups"]})
        else:
            r = judge(made["zone_die"], lambda d: d % channels, group, {g["id"]: g["channel"] for g in said["groups"]})
        r.update(name=name, noise=noise, zones=made["zones"], dies=len(set(made["zone_die"])), source=said["source"],
                 groups=len(said["groups"]), channels=took["channels"], confidence=said["confidence"],
                 write_mibps=said["zone_write_mibps"], read_mibps=said["zone_read_mibps"],
                 unknown=len(took["unknown_zones"]),
                 failure=took["failure"], written=took["bytes_written"], capacity=made["zones"] * made["zone_capacity"], budget=took["budget"],
                 resets=took["resets"], reads=took["reads"], model_s=took["device_s"], wall_s=wall, left=left)
        want_source = "one-domain" if made["map"] == "shared" else "probe"
        r["ok"] = (all(r[k] >= v for k, v in AIM.items()) and r["source"] == want_source and not left
                   and r["written"] <= r["budget"])
        os.unlink(dev[4:])
        self.znsctl("unregister", dev)
        return r


HEAD = ("| map | zones | groups / dies | channels | die precision / recall | channel precision / recall | zones right | "
        "confidence | one zone W / R MiB/s | written (of capacity) | reads | model s | wall s | |\n" + "| --- " * 14 + "|")


def row(r):
    return (f"| {r['name']} | {r['zones']} | {r['groups']} / {r['dies']} | {r['channels'] or '-'} "
            f"| {r['die_precision']:.5f} / {r['die_recall']:.5f} | {r['channel_precision']:.5f} / {r['channel_recall']:.5f} "
            f"| {100 * r['right']:.3f} % | {r['confidence']:.5f} | {r['write_mibps']} / {r['read_mibps']} "
            f"| {r['written'] / 2**20:.0f} MiB ({100 * r['written'] / r['capacity']:.2f} %) | {r['reads']} "
            f"| {r['model_s']:.1f} | {r['wall_s']:.1f} | {'ok' if r['ok'] else 'MISSED'} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/var/tmp"), help="where the devices go (up to 9 GB)")
    p.add_argument("--report", help="directory for probe.md and probe.json")
    p.add_argument("--quick", action="store_true", help="leave out the maps that take GBs of disk")
    p.add_argument("--seed", type=int, default=1, help="of the noise")
    p.add_argument("--map", help="only maps whose name contains this")
    a = p.parse_args()
    if not selfcheck():
        print("probe_accuracy: the judge is wrong: no figure of it counts", file=sys.stderr)
        return 1
    b, results = Bench(a.dir), []
    print(HEAD)
    try:
        for name, options, noise in MAPS:
            if (a.quick and name in LARGE) or (a.map and a.map not in name):
                continue
            results.append(b.measure(name, options, noise, a.seed))
            print(row(results[-1]), flush=True)
            if results[-1]["unknown"]:
                print(f"{results[-1]['unknown']} zones unknown: {results[-1]['failure']}", flush=True)
    except RuntimeError as e:
        print(f"probe_accuracy: {name}: {e}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(b.dir, ignore_errors=True)
    missed = [r["name"] for r in results if not r["ok"]]
    if a.report:
        os.makedirs(a.report, exist_ok=True)
        with open(os.path.join(a.report, "probe.json"), "w") as f:
            json.dump({"noise": NOISE, "loud": LOUD, "seed": a.seed, "aims": AIM, "maps": results}, f, indent=1)
        with open(os.path.join(a.report, "probe.md"), "w") as f:
            f.write("# Accuracy of the probe\n\nNoise where not stated otherwise: `" + NOISE + "`; loud: `" + LOUD + "`.\n\n"
                    + HEAD + "\n" + "\n".join(map(row, results)) + "\n")
    print(f"\n{len(results) - len(missed)} of {len(results)} maps reach the aims" +
          (f"; missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
