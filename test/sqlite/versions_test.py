#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does the VFS keep its promises with the SQLite that is installed, and with the newest one?

    versions_test.py ATO EXTENSION installed WHEELS   by Python's own module, under `ato sqlite`
    versions_test.py ATO EXTENSION newest WHEELS      by apsw, which brings an SQLite of its own, and loads the extension.
                                                      WHEELS: the folder that has it (need_newest_sqlite in tools/setup.sh)

The same cases with both, in memory and on a disk. With the newest also what only it has; and processes of both write to one database.
Exit status 77: there is no apsw.
"""
import ctypes
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ATO, EXTENSION, WHICH, *MORE = sys.argv[1:]
WHEELS = MORE[0]
NEWEST = WHICH == 'newest'
ROWS = 40


class Database:
    """A connection through `ato`, of either SQLite: run() returns the rows, or raises Error."""

    def __init__(self, path, wait=0, options=''):
        uri = f'file:{path}?{options}'
        if NEWEST:
            self.db = apsw.Connection(uri, vfs='ato', flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE |
                                      apsw.SQLITE_OPEN_CREATE)
            self.db.set_busy_timeout(wait)
        else:
            self.db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=wait / 1000)
        self.close = self.db.close

    def run(self, *statements):
        rows = []
        for each in statements:
            rows = self.db.execute(each).fetchall()
        return rows

    def one(self, statement):
        return self.run(statement)[0][0]

    def copy_to(self, other):
        if NEWEST:
            with other.db.backup('main', self.db, 'main') as backup:
                while not backup.done:
                    backup.step(7)
        else:
            self.db.backup(other.db, pages=7)

    def read_blob(self, table, column, row, offset, length):
        with (self.db.blob_open('main', table, column, row, False) if NEWEST else
              self.db.blobopen(table, column, row, readonly=True)) as blob:
            blob.seek(offset)
            return blob.read(length)


if NEWEST:
    sys.path.insert(0, WHEELS)
    try:
        import apsw
    except ImportError as error:
        print(f'no newest SQLite: {error}')
        sys.exit(77)
    Error = apsw.Error
    one = apsw.Connection(':memory:')
    one.enable_load_extension(True)
    one.load_extension(EXTENSION)
    one.close()
else:
    import sqlite3
    Error = sqlite3.Error


def write_forever(path, pragmas):
    """A process: commits again and again, some pages before the commit, and prints the number of each commit."""
    db = Database(path, 20000)
    db.run(*filter(None, [pragmas]))
    while True:
        db.run('BEGIN IMMEDIATE')
        k = db.one('SELECT k FROM told') + 1
        db.run(f'UPDATE told SET k = {k}', f'UPDATE pile SET body = randomblob(3000 + 17 * id), n = {k}')
        if k % 3 == 0:
            db.run('SAVEPOINT s', 'DELETE FROM pile', 'ROLLBACK TO s', 'RELEASE s')
        db.run('COMMIT')
        print(k, flush=True)


if MORE[-3:-2] == ['--write']:
    write_forever(*MORE[-2:])


class Writer:
    """That process, of either SQLite."""

    def __init__(self, path, which=WHICH, pragmas=''):
        self.known = 0
        command = [sys.executable, __file__, ATO, EXTENSION, which, WHEELS, '--write', path, pragmas]
        if which == 'installed' and NEWEST:
            command = [ATO, 'sqlite', '--require', *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def await_commits(self, n):
        for _ in range(n):
            self.known = int(self.process.stdout.readline())

    def kill(self):
        """Kills it; known: its last commit that was acknowledged."""
        os.killpg(self.process.pid, signal.SIGKILL)
        for line in self.process.stdout:
            self.known = int(line)
        self.process.wait()
        self.process.stdout.close()


class Cases(unittest.TestCase):
    MEDIA = {'memory': '/dev/shm', 'disk': os.getcwd()}
    medium = 'memory'

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='libato-versions-', dir=self.MEDIA[self.medium])
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = f'{self.folder}/a.db'
        self.opened = []

    def tearDown(self):
        for each in self.opened:
            each.close()
        for path in glob.glob(f'{self.folder}/*.db'):  # for SQLite's own VFS, too
            self.assertEqual(self.stock(path, 'PRAGMA integrity_check'), 'ok\n', path)

    def open(self, path=None, wait=0, options=''):
        db = Database(path or self.path, wait, options)
        self.opened.append(db)
        return db

    def close(self, db):
        db.close()
        self.opened.remove(db)

    @staticmethod
    def stock(path, statement):
        """What the shell of the installed SQLite says, without `ato`."""
        environment = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
        done = subprocess.run(['sqlite3', '-batch', path, statement], env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.stdout

    def filled(self, *pragmas):
        db = self.open()
        db.run(*pragmas, 'CREATE TABLE t(id INTEGER PRIMARY KEY, a)', 'CREATE INDEX i ON t(a)')
        db.run(f'WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < {ROWS}) INSERT INTO t SELECT x, x FROM c')
        return db

    def assertRefused(self, db, statement, word='locked'):
        with self.assertRaisesRegex(Error, word):
            db.run(statement)

    # ---- with both ----

    def test_the_vfs_is_ours_and_keeps_others_out_until_the_close(self):
        db = self.filled()
        db.run('UPDATE t SET a = -a')  # on a disk, the second commit
        self.assertTrue(db.run('PRAGMA ato_lock_wait_ms'))
        self.assertIn('"domain"', db.one('PRAGMA ato_stat'))
        self.assertIn('locked', self.stock(self.path, 'SELECT count(*) FROM t'))
        self.close(db)
        self.assertEqual(self.stock(self.path, 'SELECT sum(a) FROM t'), f'{-ROWS * (ROWS + 1) // 2}\n')

    def test_commits_rollbacks_and_savepoints(self):
        db, other = self.filled(), self.open()
        total = db.one('SELECT sum(a) FROM t')
        for mode in ['delete', 'truncate', 'persist', 'memory', 'off', 'delete']:
            self.assertEqual(db.one(f'PRAGMA journal_mode = {mode}'), mode)
            db.run('BEGIN', 'UPDATE t SET a = a + 1')
            if mode != 'off':  # nothing can be undone then
                db.run('SAVEPOINT one', 'DELETE FROM t')
                self.assertEqual(other.one('SELECT sum(a) FROM t'), total)
                db.run('SAVEPOINT two', 'INSERT INTO t(a) VALUES(1)', 'ROLLBACK TO two', 'ROLLBACK TO one')
            db.run('COMMIT')
            total += ROWS
            if mode != 'off':
                db.run('BEGIN', 'DELETE FROM t', 'ROLLBACK')
            for each in [db, other]:
                self.assertEqual(each.one('SELECT sum(a) FROM t'), total)

    def test_a_transaction_larger_than_the_cache(self):
        db, other = self.filled('PRAGMA cache_size = 5'), self.open()
        for end, expected in [('ROLLBACK', ROWS), ('COMMIT', 400)]:
            db.run('BEGIN', 'WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < 400) '
                   'REPLACE INTO t SELECT x, randomblob(2000 + x) FROM c')
            self.assertEqual(other.one('SELECT count(*) FROM t'), ROWS)
            db.run(end)
            self.assertEqual(other.one('SELECT count(*) FROM t'), expected)
        self.assertEqual(other.one('PRAGMA integrity_check'), 'ok')

    def test_readers_see_whole_commits_beside_a_writer(self):
        db, reader = self.filled(), self.open()
        total = db.one('SELECT sum(a) FROM t')
        db.run('UPDATE t SET a = a')  # on a disk, the second commit
        reader.run('BEGIN', 'SELECT count(*) FROM t')
        for k in range(5):
            db.run('UPDATE t SET a = a + 1')
            self.assertEqual(reader.one('SELECT sum(a) FROM t'), total)
        self.assertRefused(reader, 'UPDATE t SET a = 0')  # its snapshot is old
        reader.run('COMMIT')
        self.assertEqual(reader.one('SELECT sum(a) FROM t'), total + 5 * ROWS)
        db.run('BEGIN IMMEDIATE')
        self.assertRefused(reader, 'BEGIN IMMEDIATE')
        db.run('COMMIT')
        reader.run('BEGIN IMMEDIATE', 'COMMIT')

    def test_write_ahead_log(self):
        db, other = self.filled(), self.open()
        self.assertEqual(db.one('PRAGMA journal_mode = wal'), 'wal')
        other.run('BEGIN', 'SELECT * FROM t')
        db.run('UPDATE t SET a = 7')
        self.assertGreater(os.stat(f'{self.path}-wal').st_size, 0)
        self.assertEqual(other.one('SELECT count(*) FROM t WHERE a = 7'), 1)
        other.run('COMMIT')
        self.assertEqual(db.run('PRAGMA wal_checkpoint(TRUNCATE)')[0][0], 0)
        self.close(other)
        self.assertEqual(db.one('PRAGMA journal_mode = delete'), 'delete')
        db.run('UPDATE t SET a = 8')
        self.assertEqual(db.one('SELECT sum(a) FROM t'), 8 * ROWS)

    def test_locking_modes(self):
        db, other = self.filled(), self.open()
        self.assertEqual(db.one('PRAGMA locking_mode = exclusive'), 'exclusive')
        db.run('UPDATE t SET a = 1', 'UPDATE t SET a = 2')
        self.assertRefused(other, 'SELECT * FROM t')
        db.run('PRAGMA locking_mode = normal', 'SELECT * FROM t LIMIT 1')
        self.assertEqual(other.one('SELECT sum(a) FROM t'), 2 * ROWS)
        other.run('UPDATE t SET a = 3')

    def test_vacuum(self):
        db = self.filled('PRAGMA auto_vacuum = incremental')
        db.run('UPDATE t SET a = randomblob(5000)')
        size = os.stat(self.path).st_size
        db.run('DELETE FROM t WHERE id > 3', 'PRAGMA incremental_vacuum(4)', 'PRAGMA page_size = 1024', 'VACUUM')
        self.assertEqual(db.one('PRAGMA page_size'), 1024)
        db.run(f"VACUUM INTO '{self.folder}/b.db'")
        copy = self.open(f'{self.folder}/b.db')
        self.assertEqual(copy.run('SELECT * FROM t'), db.run('SELECT * FROM t'))
        self.close(db)
        self.assertLess(os.stat(self.path).st_size, size)

    def test_attached_databases_change_together(self):
        db = self.filled()
        db.run(f"ATTACH '{self.folder}/b.db' AS b", 'CREATE TABLE b.u(a)')
        for end, expected in [('ROLLBACK', 0), ('COMMIT', 1)]:
            db.run('BEGIN', 'UPDATE t SET a = 5 WHERE id = 1', 'INSERT INTO u VALUES(5)', end)
            self.assertEqual(db.one('SELECT count(*) FROM u'), expected)
        other = self.open(f'{self.folder}/b.db')
        self.assertEqual(other.run('SELECT * FROM u'), [(5,)])

    def test_backup(self):
        db, copy = self.filled(), self.open(f'{self.folder}/b.db')
        db.run('UPDATE t SET a = randomblob(3000)')
        for source, target in [(db, copy), (copy, db)]:
            source.copy_to(target)
            self.assertEqual(copy.run('SELECT * FROM t'), db.run('SELECT * FROM t'))
            target.run('DELETE FROM t WHERE id = (SELECT max(id) FROM t)')
            source.run('DELETE FROM t WHERE id = (SELECT max(id) FROM t)')

    def test_parts_of_large_values(self):
        """They are read from overflow pages, of which the newest SQLite reads parts."""
        db, reader = self.filled(), self.open()
        text = bytes(range(256)) * 400
        db.run(f"INSERT INTO t VALUES(1000, x'{text.hex()}')", 'UPDATE t SET a = a WHERE id < 5')
        for at, n in [(0, 10), (4000, 9000), (102000, 400), (102399, 1)]:
            for each in [db, reader]:
                self.assertEqual(each.read_blob('t', 'a', 1000, at, n), text[at:at + n])
                self.assertEqual(each.one(f'SELECT substr(a, {at + 1}, {n}) FROM t WHERE id = 1000'), text[at:at + n])
        db.run('BEGIN', "UPDATE t SET a = zeroblob(102400) WHERE id = 1000")
        self.assertEqual(db.read_blob('t', 'a', 1000, 70000, 5), bytes(5))
        self.assertEqual(reader.read_blob('t', 'a', 1000, 70000, 5), text[70000:70005])
        db.run('ROLLBACK')

    def test_statements_that_write_temporary_tables_too(self):
        db, other = self.filled(), self.open()
        db.run('CREATE TABLE log(a)', 'CREATE TEMP TABLE q(a)',
               'CREATE TEMP TRIGGER tq AFTER INSERT ON q BEGIN UPDATE t SET a = new.a WHERE id = new.a; END',
               'CREATE TEMP TRIGGER tt AFTER UPDATE ON main.t BEGIN INSERT INTO log VALUES(new.a); INSERT INTO q2 VALUES(1); END',
               'CREATE TEMP TABLE q2(a)')
        for _ in range(3):
            db.run('INSERT INTO q VALUES(3)')
            other.run('INSERT INTO log VALUES(0)')
        self.assertEqual(other.run('SELECT a, count(*) FROM log GROUP BY a'), [(0, 3), (3, 3)])
        db.run('BEGIN', 'INSERT INTO q VALUES(4)', 'ROLLBACK')
        self.assertEqual([db.one(f'SELECT count(*) FROM {each}') for each in ['q', 'q2', 'log']], [3, 3, 6])
        other.run('BEGIN IMMEDIATE')
        self.assertRefused(db, 'INSERT INTO q VALUES(5)')
        other.run('COMMIT')
        db.run('INSERT INTO q VALUES(5)')
        self.assertEqual(other.one('SELECT max(a) FROM log'), 5)

    def test_kills(self):
        self.prepare_for_writers()
        for pragmas in ['', 'PRAGMA cache_size = 4', 'PRAGMA journal_mode = memory', 'PRAGMA journal_mode = persist']:
            writer = Writer(self.path, pragmas=pragmas)
            writer.await_commits(4)
            writer.kill()
            self.check_commits(writer)

    def prepare_for_writers(self):
        db = self.filled()
        db.run('CREATE TABLE told(k)', 'INSERT INTO told VALUES(0)', 'CREATE TABLE pile(id, n, body)',
               'INSERT INTO pile SELECT id, 0, NULL FROM t')
        self.close(db)

    def check_commits(self, *writers):
        db = self.open()
        k, known = db.one('SELECT k FROM told'), max(each.known for each in writers)
        self.assertTrue(known <= k <= known + len(writers), f'{known} told, {k} found')  # a commit may not have been told
        self.assertEqual(db.run('SELECT DISTINCT n FROM pile'), [(k,)])
        self.assertEqual(db.one('PRAGMA integrity_check'), 'ok')
        self.close(db)


class NewestCases(Cases):
    """What only the newest SQLite has, too."""

    def test_temporary_triggers_that_name_the_table_they_write(self):
        db, other = self.filled(), self.open()
        db.run('CREATE TABLE log(a)', 'CREATE TEMP TRIGGER r AFTER UPDATE ON main.t BEGIN INSERT INTO main.log VALUES(new.a); END')
        for k in range(4):
            db.run(f'UPDATE t SET a = {k} WHERE id = 1')
            other.run('DELETE FROM log WHERE a = 0')
        self.assertEqual(other.run('SELECT a FROM log'), [(1,), (2,), (3,)])
        db.run('BEGIN', 'UPDATE t SET a = 9', 'ROLLBACK')
        self.assertEqual(other.one('SELECT count(*) FROM log'), 3)

    def test_vacuum_into_with_reserved_bytes(self):
        db = self.filled()
        for name, more in [('b', ''), ('c', '&vfs=ato')]:
            path = f'{self.folder}/{name}.db'
            db.run(f"VACUUM INTO 'file:{path}?reserve=24{more}'")
            copy = self.open(path)
            for k in range(3):
                copy.run(f'UPDATE t SET a = {k}')
            self.assertEqual(copy.run('SELECT count(*), sum(a) FROM t'), [(ROWS, 2 * ROWS)])
            self.close(copy)
            with open(path, 'rb') as file:
                self.assertEqual(file.read(24)[20], 24)

    def test_sub_page_reads_are_offered_and_no_batches(self):
        db = self.filled()
        pointer = ctypes.c_void_p()
        db.db.file_control('main', apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(pointer))
        methods = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))[0]
        # iVersion, then 12 functions; the last of them is xDeviceCharacteristics
        function = ctypes.cast(methods, ctypes.POINTER(ctypes.c_void_p))[12]
        found = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)(pointer)
        self.assertTrue(found & apsw.SQLITE_IOCAP_SUBPAGE_READ)
        self.assertFalse(found & apsw.SQLITE_IOCAP_BATCH_ATOMIC)

    def test_no_wait_in_the_kernel_for_a_lock_that_others_keep(self):
        """SQLITE_SETLK_BLOCK_ON_CONNECT: a process that shares the database in memory keeps SQLite's own VFS out until it ends."""
        self.prepare_for_writers()
        writer = Writer(self.path)
        writer.await_commits(3)
        db = self.open(wait=20000)
        db.db.setlk_timeout(20000, apsw.SQLITE_SETLK_BLOCK_ON_CONNECT)
        self.assertGreaterEqual(db.one('SELECT k FROM told'), 3)
        db.run('UPDATE t SET a = 0')
        self.close(db)
        writer.kill()
        self.check_commits(writer)

    def test_file_controls(self):
        db, other = self.filled(), self.open()
        before = db.one('PRAGMA data_version')
        other.run('UPDATE t SET a = 1')
        self.assertNotEqual(db.one('PRAGMA data_version'), before)
        self.assertFalse(db.db.file_control('main', apsw.SQLITE_FCNTL_NULL_IO, 0))  # it would give all locks of the process up
        n = ctypes.c_int(16)
        self.assertTrue(db.db.file_control('main', apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(n)))
        db.run('VACUUM', 'UPDATE t SET a = 2')
        self.assertTrue(db.db.file_control('main', apsw.SQLITE_FCNTL_RESET_CACHE, 0))
        self.assertEqual(db.one('SELECT sum(a) FROM t'), 2 * ROWS)
        self.assertEqual(db.run('PRAGMA wal_checkpoint(noop)'), [(0, -1, -1)])
        self.assertEqual(db.one('PRAGMA journal_mode = wal'), 'wal')
        db.run('UPDATE t SET a = 3')
        self.assertGreater(db.run('PRAGMA wal_checkpoint(noop)')[0][1], 0)
        self.assertEqual(other.one('SELECT sum(a) FROM t'), 3 * ROWS)

    def test_rsync_of_a_database_that_is_written(self):
        rsync = f'{os.path.dirname(apsw.__file__)}/sqlite_extra_binaries/sqlite3_rsync'
        self.prepare_for_writers()
        writer = Writer(self.path)
        copy = f'{self.folder}/copy.db'
        last = 0
        for _ in range(3):
            writer.await_commits(2)
            subprocess.run([ATO, 'sqlite', '--require', rsync, self.path, copy], stdin=subprocess.DEVNULL, check=True)
            db = self.open(copy)
            k = db.one('SELECT k FROM told')
            self.assertGreaterEqual(k, max(writer.known, last))
            self.assertEqual(db.run('SELECT DISTINCT n FROM pile'), [(k,)])
            self.close(db)
            last = k
        writer.kill()
        self.check_commits(writer)

    def test_both_versions_write_and_are_killed(self):
        self.prepare_for_writers()
        for _ in range(2):
            writers = [Writer(self.path, which) for which in ['installed', 'newest']]
            for each in writers:
                each.await_commits(5)
            for each in writers:
                each.kill()
            self.check_commits(*writers)


class CasesOnDisk(NewestCases if NEWEST else Cases):
    medium = 'disk'


if __name__ == '__main__':
    if not NEWEST and 'LD_PRELOAD' not in os.environ:
        os.execv(ATO, [ATO, 'sqlite', '--require', sys.executable, os.path.abspath(__file__), *sys.argv[1:]])
    unittest.main(argv=[sys.argv[0], 'NewestCases' if NEWEST else 'Cases', 'CasesOnDisk'], verbosity=2)
