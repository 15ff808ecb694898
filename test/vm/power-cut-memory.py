#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
A process whose memory changes from one checkpoint to the next, and which knows its digest.

  power-cut-memory.py DIR MEGABYTES
  SIGUSR1  new contents; SIGUSR2  as they are: both write "GENERATION DIGEST" to DIR/answer, by rename
"""
import hashlib
import os
import signal
import sys

STRIPE = 1 << 16


def fill(memory):
    """Another random stripe each time, turned by one byte from stripe to stripe: no two pages are alike."""
    stripe = os.urandom(STRIPE)
    for i, at in enumerate(range(0, len(memory), STRIPE)):
        memory[at:at + STRIPE] = stripe[i:] + stripe[:i]


def answer(directory, generation, memory):
    with open(f'{directory}/answer.new', 'w', encoding='ascii') as f:
        f.write(f'{generation} {hashlib.sha256(memory).hexdigest()}\n')
    os.rename(f'{directory}/answer.new', f'{directory}/answer')


def main():
    directory, memory, generation = sys.argv[1], bytearray(int(sys.argv[2]) << 20), 0
    asked = {signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    answer(directory, generation, memory)
    while True:
        if signal.sigwait(asked) == signal.SIGUSR1:
            generation += 1
            fill(memory)
        answer(directory, generation, memory)


main()
