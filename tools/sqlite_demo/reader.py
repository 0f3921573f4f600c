#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How much space does a transaction cost that reads and never ends, while another one writes?

usage: reader.py [--wal] FOLDER

A connection begins to read. Another one updates rows of a table, each update a transaction. With --wal the database is in WAL mode.
Exit status: 1 if the reader does not see what it saw at first.
"""
import glob
import os
import sqlite3
import sys

ROWS, UPDATES, TURNS = 2000, 4000, 4


def space(paths):
    return sum(os.stat(path).st_blocks * 512 for path in paths if os.path.isfile(path))


def shared_memory():
    """The files there that this process has mapped."""
    with open('/proc/self/maps', encoding='ascii') as maps:
        return {line.split()[5] for line in maps if '/dev/shm/ato-' in line}


def main(folder, wal):
    path = os.path.join(folder, 'reader.db')
    writer = sqlite3.connect(path, isolation_level=None)
    if wal:
        writer.execute('PRAGMA journal_mode = WAL')
    writer.execute('PRAGMA synchronous = NORMAL')  # so that it takes no time on a disk
    writer.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, n, pad)')
    writer.execute('WITH c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < ?)'
                   'INSERT INTO t SELECT x, 0, hex(randomblob(100)) FROM c', (ROWS,))
    writer.execute('UPDATE t SET n = 0 WHERE id = 1')
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute('BEGIN')
    before = reader.execute('SELECT sum(n) FROM t').fetchone()
    print(f'KiB of space:   {"database":>10}  {"-wal":>10}  {".ato":>10}  {"/dev/shm":>10}')
    for turn in range(TURNS + 1):
        for i in range(UPDATES if turn else 0):
            writer.execute('UPDATE t SET n = n + 1 WHERE id = ?', (i * 7919 % ROWS + 1,))
        sizes = (space([path]), space([path + '-wal', path + '-shm']), space(glob.glob(os.path.join(folder, '.ato', '*'))),
                 space(shared_memory()))
        print(f'{turn * UPDATES:6} commits', *(f'{size // 1024:10}' for size in sizes), sep='  ')
    return reader.execute('SELECT sum(n) FROM t').fetchone() != before


words = [word for word in sys.argv[1:] if word != '--wal']
if len(words) != 1 or not os.path.isdir(words[0]):
    sys.exit(__doc__)
sys.exit(main(words[0], '--wal' in sys.argv))
