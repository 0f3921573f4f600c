#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do programs that nobody can change commit through the VFS under `ato sqlite`, and only below the paths that it names?

    preload_test.py ATO EARLY PRELOAD EXTENSION ARCHIVE    EARLY: the program of early.c; ARCHIVE: libato_vfs.a
    preload_test.py ATO --go FOLDER                        only the program in Go, whose source is in FOLDER
"""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CREATE = 'CREATE TABLE t(a); INSERT INTO t VALUES(1); '
PYTHON = '''
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE t(a)")
db.execute("INSERT INTO t VALUES(1)")
db.commit()
print(db.execute("PRAGMA ato_stat").fetchall())
'''
UNREACHABLE = re.compile('dial tcp|no such host|timeout|connection refused|network is unreachable|GOPROXY=off')


class Lab(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix='ato-test-', dir='/dev/shm'))
        self.addCleanup(shutil.rmtree, self.dir)
        os.mkdir(self.path('in'))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ATO_')}

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def run_it(self, *command, status=0, **env):
        """Returns what the command prints. status: its exit status; None: any but 0."""
        done = subprocess.run(command, env={**self.env, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, cwd=self.dir)
        if status is None:
            self.assertNotEqual(done.returncode, 0, done)
        else:
            self.assertEqual(done.returncode, status, done)
        self.complaint = done.stderr
        return done.stdout

    def check(self, *program):
        """The program prints what PRAGMA ato_stat returns for the database that it makes."""
        for folder, is_ours in ('in', True), ('.', False):
            with self.subTest(program=program, folder=folder):
                path = self.path(folder, 'made.db')
                said = self.run_it(ATO, 'sqlite', '--path', 'in', *program, path)
                self.assertEqual('"domain":"process"' in said, is_ours, said)
                self.assertEqual(os.path.exists(self.path(folder, '.ato')), is_ours)
                self.assertEqual(self.run_it('sqlite3', path, 'SELECT a FROM t'), '1\n')
                os.remove(path)


class Preload(Lab):
    def shell(self, path, *words, **env):
        return self.run_it('sqlite3', '-batch', '-bail', path, *words, LD_PRELOAD=PRELOAD, **env)

    def test_the_shell_commits_through_the_vfs_below_the_path_only(self):
        words = [CREATE + 'PRAGMA ato_stat', '.vfsname']
        said = self.run_it(ATO, 'sqlite', '--path', 'in', 'sqlite3', 'in/a.db', *words)
        self.assertIn('"domain":"process"', said)
        self.assertIn('ato/unix\n', said)
        said = self.run_it(ATO, 'sqlite', '--path', 'in', 'sqlite3', 'b.db', *words)
        self.assertEqual(said, 'unix\n')
        # Other programs are refused while it is open, unless it is shared.
        look = '.shell env -u LD_PRELOAD sqlite3 in/c.db "SELECT a FROM t"'
        self.run_it(ATO, 'sqlite', 'sqlite3', 'in/c.db', CREATE, look)
        self.assertIn('database is locked', self.complaint)
        self.assertEqual(self.run_it(ATO, 'sqlite', 'sqlite3', 'in/c.db', 'UPDATE t SET a=2', look, ATO_SQLITE_SHARE='stock'), '2\n')

    def test_python_does(self):
        for python in {os.path.realpath(p) for p in (sys.executable, '/usr/bin/python3') if os.path.exists(p)}:
            self.check(python, '-c', PYTHON)

    def test_a_program_may_configure_sqlite_first_and_shut_it_down(self):
        said = self.run_it(ATO, 'sqlite', EARLY, self.path('a.db'))
        self.assertEqual(said.count('"domain":"process"'), 2, said)

    def test_programs_without_sqlite_start(self):
        self.assertEqual(self.run_it('/bin/sh', '-c', '/bin/true && echo well', LD_PRELOAD=PRELOAD, LD_BIND_NOW='1'), 'well\n')
        self.assertEqual(self.complaint, '')

    def test_the_extension_is_not_a_second_vfs(self):
        said = self.run_it(ATO, 'sqlite', 'sqlite3', 'a.db', f'.load {EXTENSION}', '.vfslist', '.open b.db', 'CREATE TABLE t(a)', '.vfsname')
        self.assertEqual(said.count('"ato"'), 1, said)
        self.assertTrue(said.endswith('\nato/unix\n'), said)

    def test_all_functions_that_the_vfs_calls_are_looked_up(self):
        called = set(re.findall(r' U (sqlite3_\w+)', self.run_it('nm', ARCHIVE))) - {'sqlite3_initialize'} # of ato_vfs_register()
        with open(PRELOAD, 'rb') as file:
            known = {name.decode() for name in re.findall(rb'\0(sqlite3_\w+)(?=\0)', file.read())}
        self.assertGreater(len(called), 5)
        self.assertEqual(called - known, set())

    def test_paths_are_whole_names_without_or_with_links(self):
        os.symlink('in', self.path('link'))
        os.mkdir(self.path('inner'))
        for paths, file, is_ours in (
                ('', 'a', True), (f'{self.dir}/in', 'in/a', True), (f'{self.dir}/in', 'inner/a', False),
                (f'/nowhere:{self.dir}/in//', 'in/a', True), (f'{self.dir}/link', 'in/a', True), (f'{self.dir}/in', 'link/a', True),
                (f'{self.dir}/a', 'a', True), (f'{self.dir}/a', 'ab', False), ('/', 'a', True), (':/nowhere', 'a', False), ('in', 'in/a', False)):
            with self.subTest(paths=paths, file=file):
                said = self.shell(file, 'CREATE TABLE IF NOT EXISTS t(a)', '.vfsname', ATO_SQLITE_PATH=paths, ATO_LOG='stderr')
                self.assertEqual(said, 'ato/unix\n' if is_ours else 'unix\n')
                self.assertEqual('ATO_SQLITE_PATH: in is ignored' in self.complaint, paths == 'in')

    def test_a_transaction_over_databases_elsewhere_has_its_super_journal_on_the_disk(self):
        libc = ctypes.CDLL(None)
        watch = libc.inotify_init()
        self.addCleanup(os.close, watch)
        libc.inotify_add_watch(watch, self.dir.encode(), 0x100) # IN_CREATE
        self.shell('a.db', CREATE, "ATTACH 'b.db' AS b; CREATE TABLE b.t(a)",
                   'BEGIN; INSERT INTO t VALUES(2); INSERT INTO b.t VALUES(2); COMMIT', ATO_SQLITE_PATH='/nowhere')
        self.assertIn(b'a.db-mj', os.read(watch, 65536))

    def test_no_transaction_is_over_databases_here_and_elsewhere(self):
        for main, other in ('in/a.db', 'b.db'), ('c.db', 'in/d.db'):
            with self.subTest(main=main):
                self.shell(main, CREATE, f"ATTACH '{other}' AS b; CREATE TABLE b.t(a)", ATO_SQLITE_PATH=self.path('in'))
                self.run_it('sqlite3', '-bail', main, f"ATTACH '{other}' AS b",
                            'BEGIN; INSERT INTO t VALUES(2); INSERT INTO b.t VALUES(2); COMMIT', LD_PRELOAD=PRELOAD,
                            ATO_SQLITE_PATH=self.path('in'), status=None)
                self.assertIn('disk I/O error', self.complaint)
                self.assertEqual(self.run_it('sqlite3', main, 'SELECT count(*) FROM t'), '1\n')
                self.assertEqual(self.run_it('sqlite3', other, 'SELECT count(*) FROM t'), '0\n')


class Tool(Lab):
    def test_keeps_what_is_preloaded_and_says_how_the_program_ended(self):
        said = self.run_it(ATO, 'sqlite', '--path', 'in', '--path', 'new', 'sh', '-c', 'echo $LD_PRELOAD $ATO_SQLITE_PATH; exit 7',
                           LD_PRELOAD=EXTENSION, status=7)
        self.assertEqual(said, f'{EXTENSION}:{PRELOAD} {self.path("in")}:{self.path("new")}\n')

    def test_fails_as_env_does(self):
        self.run_it(ATO, 'sqlite', './nothing', status=127)
        self.assertIn('cannot start ./nothing: No such file', self.complaint)
        self.run_it(ATO, 'sqlite', './in', status=126)
        self.run_it(ATO, 'sqlite', '--path', 'nowhere/a', 'true', status=125)
        self.assertIn('--path nowhere/a: No such file', self.complaint)
        os.mkdir(self.path('a:b'))
        self.run_it(ATO, 'sqlite', '--path', 'a:b', 'true', status=125)
        self.run_it(ATO, 'sqlite', status=64)
        self.run_it(ATO, 'sqlite', '--json', 'true', status=64)
        self.run_it(ATO, 'info', '--path', 'in', 'in', status=64)

    def test_needs_the_library(self):
        shutil.copy(ATO, self.path('ato'))
        if not self.run_it('./ato', '--version'):
            self.fail('it does not run')
        done = subprocess.run([self.path('ato'), 'sqlite', 'true'], env=self.env, capture_output=True, text=True, check=False)
        self.assertIn((done.returncode, 'there is no libato_sqlite_preload.so' in done.stderr), ((125, True), (0, False))) # it is installed


class Go(Lab):
    def test_go_does(self):
        go = {**self.env, 'GOFLAGS': '-mod=readonly -buildvcs=false', 'GOTOOLCHAIN': 'local', 'CGO_ENABLED': '1'}
        done = subprocess.run(['go', 'mod', 'download'], cwd=SOURCE, env=go, capture_output=True, text=True, check=False)
        if done.returncode and UNREACHABLE.search(done.stderr):
            self.skipTest(f'mattn/go-sqlite3 cannot be downloaded: {done.stderr}')
        self.assertEqual(done.returncode, 0, done)
        program = self.path('program')
        done = subprocess.run(['go', 'build', '-tags', 'libsqlite3', '-o', program, '.'], cwd=SOURCE, env=go, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        self.check(program)


if __name__ == '__main__':
    ATO, *REST = (word if word == '--go' else os.path.abspath(word) for word in sys.argv[1:])
    if REST[0] == '--go':
        SOURCE = REST[1]
        if not shutil.which('go'):
            print('skipped: there is no go on this machine')
            sys.exit(77)
        result = unittest.main(argv=sys.argv[:1], defaultTest=['Go'], verbosity=2, exit=False).result
        sys.exit(77 if result.skipped else not result.wasSuccessful())
    else:
        EARLY, PRELOAD, EXTENSION, ARCHIVE = REST
        unittest.main(argv=sys.argv[:1], defaultTest=['Preload', 'Tool'])
