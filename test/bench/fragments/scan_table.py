#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""
In a guest: scan_table.py DATABASE reads its table t, again and again until it is interrupted: a line of JSON for each SELECT.

The kernel forgets the file's pages before each of them, and SQLite keeps few: as if the table were larger than memory.
"""
import json
import os
import signal
import sqlite3
import sys
import time

CACHE_PAGES = 64


def main():
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    path = sys.argv[1]
    fd = os.open(path, os.O_RDONLY)
    db = sqlite3.connect(f'file:{path}?mode=ro&immutable=1', uri=True)
    db.execute(f'PRAGMA cache_size={CACHE_PAGES}')
    while True:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        begin = time.monotonic()
        rows, _ = db.execute('SELECT count(a), sum(length(a)) FROM t').fetchone()
        print(json.dumps({'rows': rows, 'took_s': round(time.monotonic() - begin, 4)}), flush=True)


if __name__ == '__main__':
    main()
