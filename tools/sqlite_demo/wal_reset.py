#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What does SQLite's WAL-reset fault (sqlite.org/wal.html#walresetbug; 3.7.0 to 3.51.2) do to a database?

usage: wal_reset.py [--wal] FOLDER

It takes two connections at a certain moment: one is about to copy the write-ahead log into the database, and the other one, which
finds that this was done just before, commits and begins the log anew. That is rare: so here the first one waits at that moment
until the other one has committed. Nothing else is changed: what it waits in is a call of the VFS, xUnfetch(), that comes there anyway.
With --wal the database is in WAL mode; else in the mode that SQLite, or its VFS, has by itself. Exit status: 1 if rows are lost.
"""
import ctypes
import os
import sqlite3
import sys

library = ctypes.CDLL('libsqlite3.so.0')
XUNFETCH, METHODS = 18, 19  # pointers of a sqlite3_io_methods, of its version 3
FCNTL_FILE_POINTER = 7
UNFETCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


class Checkpointer:
    """A connection by the C interface, which does something once just before its checkpoint looks how much there is to copy."""

    def __init__(self, path):
        self.handle = ctypes.c_void_p()
        assert library.sqlite3_open(os.fsencode(path), ctypes.byref(self.handle)) == 0
        self.run('SELECT count(*) FROM t')
        file = ctypes.POINTER(ctypes.c_void_p)()
        assert library.sqlite3_file_control(self.handle, b'main', FCNTL_FILE_POINTER, ctypes.byref(file)) == 0
        methods = ctypes.cast(file[0], ctypes.POINTER(ctypes.c_void_p))
        self.once = None
        if ctypes.cast(methods, ctypes.POINTER(ctypes.c_int))[0] < 3:
            return  # the VFS has no such call
        self.own = (ctypes.c_void_p * METHODS)(*methods[:METHODS])
        self.unfetch, self.wait = UNFETCH(methods[XUNFETCH]), UNFETCH(self.meanwhile)
        self.own[XUNFETCH] = ctypes.cast(self.wait, ctypes.c_void_p).value
        file[0] = ctypes.addressof(self.own)

    def meanwhile(self, file, offset, page):
        once, self.once = self.once, None
        if once:
            once()
        return self.unfetch(file, offset, page)

    def run(self, statement):
        assert library.sqlite3_exec(self.handle, statement.encode(), None, None, None) == 0, statement

    def checkpoint(self, once):
        self.once = once
        self.run('PRAGMA wal_checkpoint')
        if self.once:  # there was nothing to copy
            self.once = None
            once()


def ask(path, query):
    try:
        return sqlite3.connect(path).execute(query).fetchone()[0]
    except sqlite3.DatabaseError as error:
        return f'"{error}"'


def main(folder, wal):
    path = os.path.join(folder, 'reset.db')
    writer = sqlite3.connect(path, isolation_level=None)
    if wal:
        writer.execute('PRAGMA journal_mode = WAL')
    writer.execute('PRAGMA wal_autocheckpoint = 0')
    writer.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, v)')
    committed = 0

    def insert(rows):
        nonlocal committed
        for _ in range(rows):
            writer.execute('INSERT INTO t(v) VALUES(randomblob(3000))')
            committed += 1

    checkpointer = Checkpointer(path)
    insert(40)
    writer.execute('PRAGMA wal_checkpoint')
    checkpointer.checkpoint(lambda: insert(1))
    insert(60)
    writer.execute('PRAGMA wal_checkpoint')
    insert(1)
    writer.close()
    found = ask(path, 'SELECT count(*) FROM t WHERE length(v) = 3000')
    check = ask(path, 'PRAGMA integrity_check')
    print(f'{committed} rows committed; a count of them: {found}; integrity_check: {check}')
    return (found, check) != (committed, 'ok')


words = [word for word in sys.argv[1:] if word != '--wal']
if len(words) != 1 or not os.path.isdir(words[0]):
    sys.exit(__doc__)
sys.exit(main(words[0], '--wal' in sys.argv))
