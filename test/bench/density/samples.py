# SPDX-License-Identifier: GPL-2.0-only
"""What clients saw: reads the file of samples.h while they run, and computes percentiles of a window of time."""
import array
import struct
import time

HEAD = 32


class Samples:
    def __init__(self, path):
        self.path = path

    def head(self):
        """Returns (requests sent, begin, time from one due request to the next, wrong answers)."""
        with open(self.path, 'rb') as f:
            return struct.unpack('4Q', f.read(HEAD))

    def read(self):
        nr = self.head()[0]
        words = array.array('Q')
        with open(self.path, 'rb') as f:
            f.seek(HEAD)
            words.frombytes(f.read(16 * nr))
        return words[::2], words[1::2]

    def window(self, begin_ns, end_ns):
        """Figures of the requests that were due in the window. An unanswered request has waited until now; at a constant rate a request
        that was not even sent has waited too.
        """
        _, start, step, wrong = self.head()
        due, done = self.read()
        now = time.monotonic_ns()
        if step:
            first = max(0, -((start - begin_ns) // step))
            falls = [(i, start + i * step) for i in range(first, max(first, -((start - end_ns) // step)))]
        else:
            falls = [(i, d) for i, d in enumerate(due) if d and begin_ns <= d < end_ns]
        waits, open_nr = [], 0
        for i, at in falls:
            answered = done[i] if i < len(done) else 0
            open_nr += not answered
            waits.append((answered or now) - at)
        answers = sum(1 for d in done if begin_ns <= d < end_ns)
        return {**percentiles(waits), 'due': len(falls), 'answers': answers, 'unanswered': open_nr, 'wrong': wrong,
                'per_s': answers / ((end_ns - begin_ns) / 1e9)}


def percentiles(waits_ns):
    """Percentiles in ms: pN is the time within which at least N % were answered."""
    waits = sorted(waits_ns)
    if not waits:
        return {}
    of = lambda percent: waits[max(0, -(-len(waits) * percent // 100) - 1)] / 1e6       # noqa: E731
    return {'p50_ms': of(50), 'p90_ms': of(90), 'p95_ms': of(95), 'p99_ms': of(99), 'max_ms': waits[-1] / 1e6}
