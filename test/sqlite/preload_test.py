#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do programs that nobody can change commit through the VFS under `ato sqlite`, and only below the paths that it names?

    preload_test.py ATO EARLY PRELOAD EXTENSION ARCHIVE [BUNDLED]
                                     EARLY: the program of early.c; BUNDLED: with SQLite within; ARCHIVE: libato_vfs.a
    preload_test.py ATO --go FOLDER                        only the program in Go, whose source is in FOLDER
"""
import ctypes
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
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
LEAVE = '''
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE IF NOT EXISTS t(a)")
db.execute("INSERT INTO t VALUES(1)")
db.commit()
exec(sys.argv[2])
'''
# Counts its signals until it gets SIGTERM, and a moment longer.
COUNT = '''
import signal, sys, time
counts, end = {}, []
def note(number, frame):
    counts[number] = counts.get(number, 0) + 1
    if number == signal.SIGTERM:
        end.append(number)
for name in sys.argv[1:]:
    signal.signal(int(name), note)
print("ready", flush=True)
while not end:
    time.sleep(0.01)
for i in range(15):
    time.sleep(0.01)
print(sorted(counts.items()))
'''
# Runs early.c in a module that is found as the program says, and looks up functions in its own libraries first.
DEEP = '''
#include <dlfcn.h>
int main(int argc, char **argv)
{
    void *module = dlopen("deep.so", RTLD_NOW | RTLD_DEEPBIND);
    int (*run)(int, char **) = module ? (int (*)(int, char **))dlsym(module, "run") : 0;
    return run ? run(argc, argv) : 9;
}
'''
READ = '''
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
while not [n for n in os.listdir("/dev/shm") if n.startswith(sys.argv[2])]:
    for i in range(1000):
        db.execute("SELECT * FROM t").fetchall()
os.kill(os.getpid(), 9)
'''
NO_SQLITE = 'used no SQLite through libato'
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
        # Other programs are refused while it is open.
        look = '.shell env -u LD_PRELOAD sqlite3 in/c.db "SELECT a FROM t"'
        self.run_it(ATO, 'sqlite', 'sqlite3', 'in/c.db', CREATE, look)
        self.assertIn('database is locked', self.complaint)

    def test_a_database_that_cannot_be_mapped_is_reported_and_nothing_else_is(self):
        self.run_it('sqlite3', 'a.db', CREATE)
        self.run_it('sh', '-c', f'ulimit -n 6 && LD_PRELOAD={PRELOAD} exec sqlite3 a.db "INSERT INTO t VALUES(2)"', ATO_LOG='stderr',
                    status=None)
        self.assertIn('Too many open files (this process', self.complaint)
        self.assertNotIn('NULL', self.complaint)
        self.assertNotIn('names another folder', self.complaint)

    def test_python_does(self):
        for python in {os.path.realpath(p) for p in (sys.executable, '/usr/bin/python3') if os.path.exists(p)}:
            self.check(python, '-c', PYTHON)

    def test_a_program_may_configure_sqlite_first_and_shut_it_down(self):
        said = self.run_it(ATO, 'sqlite', EARLY, self.path('a.db'))
        self.assertEqual(said.count('"domain":"process"'), 2, said)

    def test_a_program_that_loads_modules_with_deepbind_commits_through_the_vfs(self):
        with open(self.path('deep.c'), 'w', encoding='ascii') as source:
            source.write(DEEP)
        early = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'early.c')
        self.run_it('cc', '-shared', '-fPIC', '-Dmain=run', '-o', 'in/deep.so', early, '-lsqlite3')
        self.run_it('cc', '-D_GNU_SOURCE', '-o', 'deep', 'deep.c', '-ldl', '-Wl,--enable-new-dtags,-rpath,$ORIGIN/in')
        said = self.run_it(ATO, 'sqlite', '--require', './deep', self.path('a.db'))
        self.assertEqual(said.count('"domain":"process"'), 2, said)
        self.assertEqual(self.complaint, '')

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

    def test_a_transaction_is_over_databases_here_and_elsewhere(self):
        for main, other in ('in/a.db', 'b.db'), ('c.db', 'in/d.db'):
            with self.subTest(main=main):
                self.shell(main, CREATE, f"ATTACH '{other}' AS b; CREATE TABLE b.t(a)", ATO_SQLITE_PATH=self.path('in'))
                self.shell(main, f"ATTACH '{other}' AS b", 'BEGIN; INSERT INTO t VALUES(2); INSERT INTO b.t VALUES(2); COMMIT',
                           ATO_SQLITE_PATH=self.path('in'))
                self.assertEqual(self.run_it('sqlite3', main, 'SELECT count(*) FROM t'), '2\n')
                self.assertEqual(self.run_it('sqlite3', other, 'SELECT count(*) FROM t'), '1\n')


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

    def test_says_if_the_programs_sqlite_was_not_reached(self):
        self.run_it(ATO, 'sqlite', 'true')
        self.assertIn(f'true {NO_SQLITE} before it ended: neither it nor its children loaded', self.complaint)
        self.assertEqual(self.complaint.count('\n'), 1)
        self.run_it(ATO, 'sqlite', '--require', 'true', status=123)
        self.run_it(ATO, 'sqlite', '--require', 'sh', '-c', 'exit 7', status=123)
        self.run_it(ATO, 'sqlite', '--require', 'sh', '-c', 'kill -HUP $$', status=-signal.SIGHUP)
        self.run_it(ATO, 'sqlite', '--require', 'sqlite3', 'a.db', CREATE)
        self.assertEqual(self.complaint, '')
        self.run_it(ATO, 'sqlite', '--require', 'sh', '-c', 'sqlite3 a.db "SELECT 1"; exit 7', status=7)
        self.assertEqual(self.complaint, '')
        self.run_it(ATO, 'sqlite', '--require', '--path', 'in', 'sqlite3', 'a.db', 'SELECT 1', status=123)
        self.assertIn(f'opened none at or below {self.path("in")} (--path)', self.complaint)
        self.run_it(ATO, 'sqlite', '--require', '--path', 'in', 'sqlite3', 'in/a.db', CREATE, 'ATTACH "a.db" AS other')
        self.assertEqual(self.complaint, '')
        self.run_it(ATO, 'sqlite', '--require', 'sqlite3', ':memory:', 'SELECT 1', status=123)
        self.assertIn('opened no file', self.complaint)
        self.run_it(ATO, 'sqlite', 'sqlite3', ':memory:', 'SELECT 1')
        self.assertRegex(self.complaint, '^ato: sqlite3 opened no database through libato: .*\n$')
        if BUNDLED:
            self.assertEqual(self.run_it(ATO, 'sqlite', '--require', BUNDLED, self.path('b.db'), status=123), '')
            self.assertIn(f'{NO_SQLITE}: it has an SQLite compiled in', self.complaint)

    def check_obstacle(self, why, *program, before=()):
        """No library can be loaded into the program, which makes a file."""
        made = self.path('in', 'made')
        self.run_it(*before, ATO, 'sqlite', *program, made)
        self.assertEqual(self.complaint, f'ato: {program[0]} {NO_SQLITE}: {why}\n')
        os.remove(made)
        self.run_it(*before, ATO, 'sqlite', '--require', *program, made, status=125)
        self.assertIn(f'{program[0]} is not started, because of --require: {why}; if it', self.complaint)
        self.assertFalse(os.path.exists(made))

    def compile(self, name, *options):
        with open(self.path('make.c'), 'w', encoding='ascii') as source:
            source.write('#include <fcntl.h>\n#include <unistd.h>\nint main(int n, char **words)\n'
                         '{ return n > 2 && *words[1] == \'/\' ? execv(words[1], words + 1) : creat(words[n - 1], 0600) < 0; }\n')
        self.run_it('cc', '-o', name, 'make.c', *options)

    def test_says_that_a_program_is_static_and_does_not_start_it_if_it_has_to_be_reached(self):
        static = 'is a static program, into which no library can be loaded'
        self.compile('static', '-static')
        self.compile('pie', '-static-pie')
        for name, line in ('script', '#!./static'), ('scripts', '#! \t./script word'):
            with open(self.path(name), 'w', encoding='ascii') as file:
                file.write(line + '\n')
            os.chmod(self.path(name), 0o755)
        self.check_obstacle(f'it {static}', './static')
        self.check_obstacle(f'it {static}', 'pie', before=['env', f'PATH=/nowhere::{os.environ["PATH"]}'])
        self.check_obstacle(f'its interpreter ./static {static}', './scripts')
        # A static program may start one that is reached; and the dynamic linker is no static program.
        for words in ['./static'], ['--require', '/lib64/ld-linux-x86-64.so.2']:
            self.run_it(ATO, 'sqlite', *words, shutil.which('sqlite3'), 'a.db', 'CREATE TABLE IF NOT EXISTS t(a)')
            self.assertEqual(self.complaint, '')

    def test_says_that_a_program_gets_other_rights(self):
        if os.getuid() or not all(os.stat(p).st_mode & 1 for p in self.parents(PRELOAD)):
            self.skipTest('not root, or others may not look into the folder of the build')
        os.chmod(self.path('in'), 0o777)
        home = tempfile.mkdtemp(dir='/var/tmp')
        self.addCleanup(shutil.rmtree, home)
        if os.statvfs(home).f_flag & os.ST_NOSUID:
            self.skipTest('/var/tmp is mounted with nosuid')
        os.chmod(home, 0o755)
        os.chmod(self.dir, 0o755)
        self.compile(f'{home}/set')
        rights = 'it gets rights that you do not have (%s), so the dynamic linker ignores LD_PRELOAD'
        other = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
        for mode, what in (0o4755, 'set-user-ID'), (0o2755, 'set-group-ID'):
            os.chmod(f'{home}/set', mode)
            self.check_obstacle(rights % what, f'{home}/set', before=other)
            self.run_it(*other, '--no-new-privs', ATO, 'sqlite', '--require', f'{home}/set', self.path('in', 'a'), status=123)
        os.chmod(f'{home}/set', 0o755)
        self.run_it(*other, ATO, 'sqlite', '--require', f'{home}/set', self.path('in', 'b'), status=123)
        os.setxattr(f'{home}/set', 'security.capability', struct.pack('<5I', 0x2000000, 1, 0, 0, 0)) # CAP_CHOWN, permitted
        self.check_obstacle(rights % 'file capabilities', f'{home}/set', before=other)

    def test_is_told_by_programs_that_close_descriptors_or_become_another_user_and_by_one_within(self):
        close = 'import os; os.closerange(3, 4096); '
        self.run_it(ATO, 'sqlite', '--require', sys.executable, '-c', f'{close} os.execvp("sqlite3", ["sqlite3", "a.db", "SELECT 1"])')
        self.run_it(ATO, 'sqlite', '--require', ATO, 'sqlite', 'sqlite3', 'a.db', 'SELECT 1')
        self.assertEqual(self.complaint, '')
        if os.getuid() == 0 and all(os.stat(p).st_mode & 1 for p in self.parents(PRELOAD)):
            os.chmod(self.dir, 0o777)
            self.run_it(ATO, 'sqlite', '--require', sys.executable, '-c',
                        'import os; os.setgid(65534); os.setuid(65534); os.execvp("sqlite3", ["sqlite3", "n.db", "CREATE TABLE t(a)"])')
            self.assertEqual(self.complaint, '')

    @staticmethod
    def parents(path):
        while path != '/':
            path = os.path.dirname(path)
            yield path

    def state(self, path):
        return re.search('state +(.*?):', self.run_it(ATO, 'info', path))[1]

    def first(self, path):
        """How the names of the shared memory of its locks begin."""
        st = os.stat(self.path(path))
        return f'ato-{st.st_dev:x}-{st.st_ino}-'

    def locks(self, path):
        return [n for n in os.listdir('/dev/shm') if n.startswith(self.first(path))]

    def test_makes_plain_what_the_program_left_however_it_ended(self):
        kill = 'os.kill(os.getpid(), 9)'
        self.run_it(ATO, 'sqlite', sys.executable, '-c', LEAVE, 'in/a.db', kill, status=-signal.SIGKILL)
        self.assertEqual(self.state('in/a.db'), 'recovery due')
        self.assertEqual(len(self.locks('in/a.db')), 1)
        for how, status in (kill, -signal.SIGKILL), ('os._exit(3)', 3), ('os.execvp("true", ["true"])', 0), (
                'os.fork() or os.setsid() or ' + kill + '; os.wait()', 0), ('os.chdir("/"); ' + kill, -signal.SIGKILL):
            with self.subTest(how):
                self.run_it(ATO, 'sqlite', '--tidy', sys.executable, '-c', LEAVE, 'in/a.db', how, status=status)
                self.assertEqual((self.complaint, self.state('in/a.db'), self.locks('in/a.db')), ('', 'plain', []))
        self.assertEqual(self.run_it('sqlite3', 'in/a.db', 'SELECT count(*) FROM t'), '6\n')
        self.run_it(ATO, 'sqlite', '--tidy', ATO, 'sqlite', sys.executable, '-c', LEAVE, 'in/a.db', kill, status=-signal.SIGKILL)
        self.assertEqual(self.state('in/a.db'), 'plain')
        self.run_it(ATO, 'sqlite', '--tidy', sys.executable, '-c', LEAVE, 'in/b.db', f'os.remove("in/b.db"); {kill}', status=-signal.SIGKILL)
        self.assertEqual(self.complaint, '')

    def test_removes_the_shared_locks_of_a_reader_that_was_killed(self):
        self.run_it('sqlite3', 'in/a.db', CREATE)
        self.run_it(ATO, 'sqlite', '--tidy', sys.executable, '-c', READ, 'in/a.db', self.first('in/a.db'), status=-signal.SIGKILL)
        self.assertEqual((self.complaint, self.locks('in/a.db')), ('', []))

    def test_makes_plain_what_the_program_renamed(self):
        self.run_it(ATO, 'sqlite', '--tidy', sys.executable, '-c', LEAVE, 'in/a.tmp', 'os.rename("in/a.tmp", "in/a.db"); os._exit(0)')
        self.assertEqual((self.complaint, self.state('in/a.db')), ('', 'plain'))

    def test_says_which_database_it_could_not_make_plain(self):
        how = 'os.removexattr("in/a.db", "user.ato"); os._exit(%d)'
        self.run_it(ATO, 'sqlite', '--tidy', sys.executable, '-c', LEAVE, 'in/a.db', how % 0, status=122)
        self.assertIn(f'{self.path("in/a.db")} is not plain: ', self.complaint)

    def test_leaves_a_database_to_a_process_that_has_it_open(self):
        with subprocess.Popen([ATO, 'sqlite', 'sqlite3', 'in/a.db'], cwd=self.dir, env=self.env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdin.write(CREATE + 'SELECT 5;\n')
            other.stdin.flush()
            self.assertEqual(other.stdout.readline(), '5\n')
            self.run_it(ATO, 'sqlite', '--tidy', sys.executable, '-c', LEAVE, 'in/a.db', 'os._exit(0)')
            self.assertRegex(self.complaint, r"^ato: \S+/in/a.db is still open in pid \d+ \(sqlite3\): when that has ended, run 'ato deploy \S+/in/a.db'\n$")
            other.stdin.close()
            other.stdout.read()
        self.assertEqual(self.state('in/a.db'), 'plain')

    def counting(self, numbers):
        program = subprocess.Popen([ATO, 'sqlite', sys.executable, '-c', COUNT, *map(str, map(int, numbers))], env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        self.assertEqual(program.stdout.readline(), 'ready\n')
        return program

    def test_each_signal_reaches_the_program_once(self):
        numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT,
                   signal.SIGWINCH, signal.SIGRTMIN + 1, signal.SIGTERM]
        for send in os.kill, os.killpg:
            with self.subTest(send):
                program = self.counting(numbers)
                for number in numbers:
                    send(program.pid, number)
                self.assertEqual(program.communicate()[0], f'{sorted((int(n), 1) for n in numbers)}\n')
                self.assertEqual(program.returncode, 0)

    def test_ends_by_the_signal_of_the_program_and_the_program_with_it(self):
        program = self.counting([signal.SIGTERM])
        child, = [pid for pid in self.children(program.pid) if self.name(pid) != 'ato-witness']
        os.kill(program.pid, signal.SIGUSR1)
        self.assertEqual(program.wait(), -signal.SIGUSR1)
        program.stdout.close()
        program = self.counting([signal.SIGTERM])
        children = self.children(program.pid)
        self.assertEqual(len(children), 2)
        program.kill()
        program.communicate() # until all have closed it
        for child in children:
            while os.path.exists(f'/proc/{child}') and self.name(child):
                time.sleep(0.01)

    @staticmethod
    def children(pid):
        with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
            return file.read().split()

    @staticmethod
    def name(pid):
        """Its name; '' if it has ended."""
        try:
            with open(f'/proc/{pid}/stat', encoding='ascii') as file:
                name, state = re.match(r'\d+ \((.*)\) (.)', file.read()).groups()
                return '' if state == 'Z' else name
        except FileNotFoundError:
            return ''

    def test_a_terminal_stops_continues_and_interrupts_both(self):
        leader, follower = os.openpty()
        shell = subprocess.Popen(['bash', '--norc', '-i'], env={**self.env, 'PS1': '', 'TERM': 'dumb'}, stdin=follower, stdout=follower,
                                 stderr=follower, start_new_session=True,
                                 preexec_fn=lambda: __import__('fcntl').ioctl(0, 0x540e, 0)) # TIOCSCTTY
        os.close(follower)
        said = b''

        def expect(words):
            nonlocal said
            while words not in said:
                if not select.select([leader], [], [], 30)[0]:
                    shell.kill()
                    self.fail(f'{words} is not said, but {said}')
                said += os.read(leader, 4096)
            said = said[said.index(words) + len(words):]

        numbers = ' '.join(str(int(n)) for n in (signal.SIGINT, signal.SIGCONT, signal.SIGTERM))
        with open(self.path('count.py'), 'w', encoding='ascii') as file:
            file.write(COUNT)
        os.write(leader, f'stty -echo; {ATO} sqlite {sys.executable} {self.path("count.py")} {numbers}\n'.encode())
        expect(b'ready')
        os.write(leader, b'\x1a')
        expect(b'Stopped')
        os.write(leader, b'jobs -l; fg >/dev/null; echo ended $?\n')
        expect(b'Stopped')
        time.sleep(0.2)
        os.write(leader, b'\x03')
        time.sleep(0.2)
        program, = [pid for pid in self.children(shell.pid) if self.name(pid) == 'ato']
        os.kill(int(program), signal.SIGTERM)
        expect(b'[(2, 1), (15, 1), (18, 1)]')
        expect(b'ended 0')
        os.close(leader)
        shell.wait()

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
        EARLY, PRELOAD, EXTENSION, ARCHIVE, BUNDLED = [*REST, None][:5]
        unittest.main(argv=sys.argv[:1], defaultTest=['Preload', 'Tool'])
