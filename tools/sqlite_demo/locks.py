#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does an open() and close() of the database file let another process write in the midst of a transaction?

usage: locks.py FOLDER

The locks of SQLite's own VFS are POSIX locks: a process loses all that it has on a file when it closes any descriptor of it, as
code does that copies its database, or takes a checksum, and knows nothing of SQLite. Here a process opens and closes the file between
BEGIN IMMEDIATE and the statement that adds to a counter; then another process tries to add to it.
Exit status: 1 if commits are lost that SQLite has acknowledged.
"""
import os
import sqlite3
import subprocess
import sys

ROUNDS = 10


def connect(path):
    return sqlite3.connect(path, isolation_level=None, timeout=0)


def add(connection, meanwhile=lambda: None):
    """Returns whether SQLite says that one more is committed."""
    try:
        connection.execute('BEGIN IMMEDIATE')
        meanwhile()
        connection.execute('UPDATE t SET n = n + 1')
        connection.execute('COMMIT')
        return True
    except sqlite3.OperationalError:
        if connection.in_transaction:
            connection.execute('ROLLBACK')
        return False


def main(folder):
    path = os.path.join(folder, 'locks.db')
    connection = connect(path)
    connection.executescript('CREATE TABLE t(n); INSERT INTO t VALUES(0)')
    others = 0

    def meanwhile():
        nonlocal others
        with open(path, 'rb') as file:
            file.read(100)
        others += subprocess.run([sys.executable, __file__, '--add', path]).returncode == 0

    own = sum(add(connection, meanwhile) for _ in range(ROUNDS))
    counter, = connect(path).execute('SELECT n FROM t').fetchone()
    print(f'{own} transactions committed, in the midst of them {others} of another process; the counter is {counter}: '
          f'{own + others - counter} lost')
    return counter != own + others


if sys.argv[1:2] == ['--add']:
    sys.exit(0 if add(connect(sys.argv[2])) else 1)
elif len(sys.argv) == 2 and os.path.isdir(sys.argv[1]):
    sys.exit(main(sys.argv[1]))
else:
    sys.exit(__doc__)
