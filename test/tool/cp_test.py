#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Is what `ato cp` makes a plain copy of one moment, and does it leave all else as it was? (SQLite's databases:
../sqlite/beside_test.py.)"""
import ctypes
import errno
import os
import resource
import signal
import sqlite3
import struct
import subprocess

import lab
from lab import ATO, NOBODY, SIZE, STATES, Lab

PATTERN = bytes(i * 7 & 255 for i in range(SIZE))


def content(path):
    with open(path, 'rb') as f:
        return f.read()


def without_unnamed_files():
    """Has the kernel answer the process as a file system without O_TMPFILE, such as NFS."""
    lines = [(0x20, 0, 0, 0), (0x15, 0, 3, 257), (0x20, 0, 0, 32),  # openat(2) on x86-64, its flags
             (0x45, 0, 1, 0x400000), (0x06, 0, 0, 0x50000 | errno.EOPNOTSUPP), (0x06, 0, 0, 0x7fff0000)]
    program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
    filter_ = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3) or libc.prctl(22, ctypes.c_ulong(2), filter_):
        raise OSError(ctypes.get_errno(), 'seccomp')


def with_little_space():
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))


class Copy(Lab):
    def setUp(self):
        super().setUp()
        self.copy = os.path.join(self.dir, 'copy')

    def names(self):
        return sorted(os.listdir(self.dir))

    def test_a_limit_on_the_size_of_files_is_told_as_such(self):
        self.make('plain', size=100000)
        done = subprocess.run(['sh', '-c', 'ulimit -f 40 && exec "$0" cp "$@"', lab.TOOL, self.file, self.dir + '/copy'],
                              env=self.env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("File too large (this process's limit, ulimit -f", done.stderr)
        self.assertFalse(os.path.exists(self.dir + '/copy'))

    def test_copies_a_file_in_each_state_and_leaves_it_in_it(self):
        for state, expected in STATES.items():
            with self.subTest(state):
                path = self.make(state, state)
                before = self.info(path)
                self.out('cp', path, self.copy)
                after = self.info(path)
                recovered = {'recovery due': 'clean', 'born': 'plain', 'deployed': 'plain'}.get(expected, expected)
                self.assertEqual(after['state'], recovered)
                if recovered == expected:
                    self.assertEqual(after, before)
                self.assertEqual(self.info(self.copy)['state'], 'plain')
                if state != 'guard':  # which has other bytes
                    self.out('deploy', path)
                    self.assertEqual(content(self.copy), content(path))

    def test_changes_nothing_of_a_plain_file(self):
        path = self.make('plain')
        before = self.snapshot()[0]
        self.out('cp', path, self.copy)
        after = self.snapshot()[0]
        for found in before, after:
            del found[self.dir]
        self.assertIn(self.copy, after)
        del after[self.copy]
        self.assertEqual(after, before)

    def test_has_no_transaction_in_part(self):
        actor = self.hold(self.make(), 'count')
        numbers = set()
        for _ in range(6):
            self.out('cp', self.file, self.copy)
            copy = content(self.copy)
            found = {copy[at:at + 8] for at in (0, 4100, 9000, 19000)}
            self.assertEqual(len(found), 1, found)
            self.assertEqual(copy[8:4100], PATTERN[8:4100])
            numbers |= found
        self.assertGreater(len(numbers), 1)
        actor.end()

    def test_the_file_becomes_plain_if_its_last_user_unmaps_it_meanwhile(self):
        for _ in range(4):
            actor = self.hold(self.make(), 'count')
            with subprocess.Popen([ATO, 'cp', '--quiet', self.file, self.copy]) as copier:
                actor.end()
            self.assertEqual(copier.returncode, 0)
            self.assertEqual(self.info(self.file)['state'], 'plain')

    def test_a_killed_copy_leaves_nothing_behind_and_keeps_nobody_out(self):
        actor = self.hold(self.make(), 'count')
        self.out('cp', self.file, self.copy)
        for _ in range(10):
            copier = subprocess.Popen([ATO, 'cp', '--quiet', self.file, self.copy])
            try:
                copier.wait(0.002)
            except subprocess.TimeoutExpired:
                copier.send_signal(signal.SIGKILL)
            copier.wait()
            copy = content(self.copy)
            self.assertEqual(len({copy[at:at + 8] for at in (0, 4100, 9000, 19000)}), 1)
            self.assertEqual(self.names(), ['.ato', 'copy', 'file'])
        self.out('cp', self.file, self.copy)
        actor.end()

    def test_replaces_a_file_when_it_is_complete_with_the_permissions_of_the_source(self):
        path = self.make('fast')
        os.chmod(path, 0o640)
        with open(self.copy, 'wb') as old:
            old.write(b'old')
        with open(self.copy, 'rb') as old:
            self.assertEqual(self.out('cp', '--quiet', path, self.copy), '')
            self.assertEqual(old.read(), b'old', 'it is another file')
        self.assertEqual(os.stat(self.copy).st_mode & 0o7777, 0o640)
        # By a symbolic link, from within its folder.
        os.symlink('copy', os.path.join(self.dir, 'link'))
        done = subprocess.run([ATO, 'cp', path, 'link'], cwd=self.dir, check=True, capture_output=True)
        self.assertIn(b'copied to link', done.stdout)
        self.assertTrue(os.path.islink(os.path.join(self.dir, 'link')))
        self.assertEqual(self.names(), ['.ato', 'copy', 'file', 'link'])

    def test_keeps_holes(self):
        path = self.make()
        os.truncate(path, 100 << 20)
        with open(path, 'ab') as f:
            f.write(b'end')
        self.out('cp', path, self.copy)
        self.assertEqual(content(self.copy), content(path))
        self.assertLess(os.stat(self.copy).st_blocks * 512, 1 << 20)

    def test_without_space_the_older_copy_stays(self):
        path = self.make()
        with open(self.copy, 'wb') as old:
            old.write(b'old')
        for also in lambda: None, without_unnamed_files:
            done = subprocess.run([ATO, 'cp', path, self.copy], check=False, capture_output=True, restore_signals=False,
                                  preexec_fn=lambda more=also: (with_little_space(), more()))
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b'cannot write the copy: File too large', done.stderr)
            self.assertEqual(content(self.copy), b'old')
            self.assertEqual(self.names(), ['copy', 'file'])

    def test_works_where_each_file_has_a_name(self):
        path = self.make('fast')
        subprocess.run([ATO, 'cp', path, self.copy], check=True, capture_output=True, preexec_fn=without_unnamed_files)
        self.assertEqual(self.names(), ['.ato', 'copy', 'file'])
        self.out('deploy', path)
        self.assertEqual(content(self.copy), content(path))

    def test_refuses_a_target_that_is_the_source_or_not_plain(self):
        path = self.make('fast')
        os.link(path, os.path.join(self.dir, 'same'))
        held = self.make('plain', 'held')
        actor = self.hold(held)
        kept = self.make('fast', 'kept')
        before = self.snapshot()
        for target, words in ((path, 'is the file that is to be copied'), ('same', 'that is to be copied'),
                              (held, 'is not plain: processes have it mapped'), (kept, 'is not plain: no process has it mapped'),
                              (self.dir, 'is a folder'), (self.manifest(), "libato's own files"), ('none/copy', 'cannot find the folder'),
                              ('/dev/null', 'is not a regular file')):
            self.assertIn(words, self.err('cp', path, os.path.join(self.dir, target), status=1))
        self.assertEqual(self.snapshot(), before)
        actor.end()

    def test_refuses_a_source_that_libato_does_not_map(self):
        path = self.make('fast')
        subprocess.run(['cp', '-a', path, path + '2'], check=True)
        self.assertIn('carries the attribute of', self.err('cp', path + '2', self.copy, status=1))
        self.patch(self.manifest(), 0, bytes(8192))
        self.err('cp', path, self.copy, status=1)
        self.assertIn('none', self.err('cp', os.path.join(self.dir, 'none'), self.copy, status=2))
        self.assertFalse(os.path.exists(self.copy))

    def test_a_user_that_may_only_read_copies_it_too(self):
        if os.geteuid() != 0:
            self.skipTest('only root may run it as another user')
        actor = self.hold(self.make('plain'))
        folder = os.path.join(self.dir, 'public')
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        copy = os.path.join(folder, 'copy')
        self.assertIn('has to be taken by a process that may write', self.err('cp', self.file, copy, user=NOBODY, status=1))
        self.out('cp', self.file, self.copy)
        self.out('cp', self.file, copy, user=NOBODY)
        actor.end()
        self.out('deploy', self.file)
        self.assertEqual(content(copy), content(self.file))
        os.chmod(self.file, 0o600)
        self.assertIn('Permission denied', self.err('cp', self.file, copy, user=NOBODY, status=2))

    def test_writes_json(self):
        path = self.make()
        found = self.json('cp', path, self.copy)
        self.assertEqual({k: found[k] for k in ('file', 'copy', 'error', 'database', 'bytes')},
                         {'file': path, 'copy': self.copy, 'error': None, 'database': False, 'bytes': SIZE})
        found = self.json('cp', path, path, status=1)
        self.assertIn('is the file', found['error'])
        self.assertEqual(found['bytes'], 0)


class Database(Lab):
    media = False

    def setUp(self):
        super().setUp()
        self.copy = os.path.join(self.dir, 'copy')
        self.db = sqlite3.connect(self.file, isolation_level=None)
        self.db.execute('CREATE TABLE t(a)')
        self.db.execute('INSERT INTO t VALUES(1)')

    def tearDown(self):
        self.db.close()
        super().tearDown()

    def test_is_recognised_and_copied_while_others_read_it(self):
        self.db.execute('BEGIN')
        self.db.execute('SELECT * FROM t').fetchall()
        self.assertTrue(self.json('cp', self.file, self.copy)['database'])
        self.assertEqual(sqlite3.connect(self.copy).execute('SELECT a FROM t').fetchall(), [(1,)])

    def test_in_wal_mode_is_copied_only_if_nobody_has_it_open(self):
        self.db.execute('PRAGMA journal_mode = WAL')
        self.db.execute('INSERT INTO t VALUES(2)')
        self.assertIn('is in WAL mode, and a program has it open', self.err('cp', self.file, self.copy, status=1))
        with open(self.file + '-wal', 'rb') as wal:
            log = wal.read()
        self.db.close()
        self.out('cp', self.file, self.copy)
        with open(self.file + '-wal', 'wb') as wal:
            wal.write(log)
        self.assertIn('wal_checkpoint', self.err('cp', self.file, self.copy, status=1))

    def test_is_refused_while_a_journal_belongs_to_it_or_would_belong_to_the_copy(self):
        with open(self.file + '-journal', 'wb') as journal:
            journal.write(b'x' * 600)
        self.assertIn('a program was killed', self.err('cp', self.file, self.copy, status=1))
        os.rename(self.file + '-journal', self.copy + '-journal')
        self.assertIn('part of the copy', self.err('cp', self.file, self.copy, status=1))
        os.unlink(self.copy + '-journal')
        self.out('cp', self.file, self.copy)


if __name__ == '__main__':
    lab.main(globals())
