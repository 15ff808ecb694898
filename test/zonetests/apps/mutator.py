# SPDX-License-Identifier: GPL-2.0-only
"""mutator.py DIR: threads that change lists, dictionaries and bytes all the time; each thread knows what its data must be."""
import hashlib
import os
import sys
import threading
import time

directory = sys.argv[1]


class Worker(threading.Thread):
    def __init__(self, number):
        super().__init__(daemon=True)
        self.number, self.steps, self.lock = number, 0, threading.Lock()
        self.known, self.blocks = {}, [self.block(n, 0) for n in range(64)]

    def block(self, n, step):
        return bytearray(hashlib.sha256(f'{self.number} {n} {step}'.encode()).digest() * 1024)

    def run(self):
        while True:
            with self.lock:
                n = self.steps % len(self.blocks)
                self.known[n] = self.steps
                self.blocks[n] = self.block(n, self.steps)
                self.steps += 1
            time.sleep(0.001)

    def wrong(self):
        with self.lock:
            return [n for n, step in self.known.items() if self.blocks[n] != self.block(n, step)]


workers = [Worker(n) for n in range(4)]
for worker in workers:
    worker.start()
open(f'{directory}/ready', 'w').close()
while True:
    if os.path.exists(f'{directory}/ask'):
        os.unlink(f'{directory}/ask')
        bad = [(w.number, w.wrong()) for w in workers if w.wrong()]
        with open(f'{directory}/verdict.new', 'w') as out:
            out.write(f'FAIL {bad}' if bad else f'PASS {sum(w.steps for w in workers)}')
        os.rename(f'{directory}/verdict.new', f'{directory}/verdict')
    time.sleep(0.02)
