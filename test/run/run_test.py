#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Are the mapped files of programs that nobody can change as their last sync left them, under `ato run`?

    run_test.py ATO SUBJECT [STATIC]     SUBJECT: the program of subject.c; STATIC: the same without a dynamic linker
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SIZE = 16 * 4096
KILLED = -signal.SIGKILL
NO_FILE = 'mapped no file through libato'


class Run(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix='ato-test-', dir='/dev/shm'))
        self.addCleanup(shutil.rmtree, self.dir)
        self.file = os.path.join(self.dir, 'file')
        self.fill(b'a')

    def fill(self, byte):
        with open(self.file, 'wb') as file:
            file.write(byte * SIZE)

    def content(self):
        folder = os.path.join(self.dir, '.ato')
        self.assertIn(os.listdir(folder) if os.path.exists(folder) else [], ([], ['README'])) # it is plain
        with open(self.file, 'rb') as file:
            return file.read()

    def say(self, *words):
        done = subprocess.run(words, cwd=self.dir, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def run_it(self, *steps, options=(), status=0, said=''):
        """Runs the steps on a file of `a`, and returns what it holds then: for each page its first byte."""
        got, err = self.say(ATO, 'run', '--path', self.dir, *options, SUBJECT, self.file, *steps)
        self.assertEqual((got, err), (status, said), steps)
        return self.pages()

    def pages(self):
        content = self.content()
        for at in range(0, len(content), 4096):
            self.assertEqual(content[at:at + 4096], content[at:at + 1] * 4096)
        return content[::4096].decode()

    def test_without_libato_the_file_is_torn(self):
        self.assertEqual(self.say(SUBJECT, self.file, 'half', 'kill')[0], KILLED)
        self.assertEqual(self.pages(), 8 * 'b' + 8 * 'a')

    def test_a_kill_leaves_the_file_as_it_was(self):
        self.assertEqual(self.run_it('half', 'kill', status=KILLED), 16 * 'a')

    def test_a_kill_leaves_what_the_last_sync_made(self):
        for sync in 'msync', 'async', 'fsync', 'fdatasync', 'fork', 'unlock':
            with self.subTest(sync):
                self.fill(b'a')
                pages = self.run_it('b', sync, 'a', 'half', 'kill', status=KILLED)
                self.assertEqual(pages, 'c' + 15 * 'b' if sync == 'fork' else 16 * 'b')

    def test_an_unmapping_is_no_sync_but_the_close_after_it_is(self):
        self.assertEqual(self.run_it('b', 'munmap-part', 'map-again', 'kill', status=KILLED), 16 * 'a')
        self.assertEqual(self.run_it('b', 'munmap', 'kill', status=KILLED), 16 * 'a')
        for close in 'close', 'close-range', 'replace', 'freopen':
            self.fill(b'a')
            self.assertEqual(self.run_it('b', 'munmap', close, 'kill', status=KILLED), 16 * 'b')
        self.fill(b'a')
        self.assertEqual(self.run_it('b', 'close', 'munmap', 'kill', status=KILLED), 16 * 'b')

    def test_random_kills_leave_what_one_of_the_syncs_made(self):
        chance = random.Random(os.environ.get('ATO_TEST_SEED', '1'))
        for _ in range(10):
            self.fill(b'a')
            with subprocess.Popen([ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'count'], stdout=subprocess.PIPE) as program:
                told = program.stdout.read(1)
                time.sleep(chance.random() / 50)
                subprocess.run(['pkill', '-KILL', '-P', str(program.pid), '-x', 'subject'], check=True)
                told += program.stdout.read()
            self.assertEqual(program.returncode, KILLED)
            content = self.content()
            self.assertEqual(content, content[:1] * SIZE)
            self.assertIn(content[0], (told[-1], told[-1] % 100 + 1))

    def test_after_a_kill_of_the_command_the_next_one_recovers(self):
        with subprocess.Popen([ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'count'], stdout=subprocess.PIPE) as program:
            told = program.stdout.read(1)
            program.kill()
            told += program.stdout.read() # until its child has ended, too
        self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'return')
        content = self.content()
        self.assertEqual(content, content[:1] * SIZE)
        self.assertIn(content[0], (told[-1], told[-1] % 100 + 1))

    def leave_unrecovered(self):
        """What a power cut leaves of a file of `b` that is about to grow."""
        self.fill(b'a')
        command = [ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'b', 'msync', 'grow', 'a', 'kill-all']
        self.assertEqual(subprocess.run(command, start_new_session=True, check=False).returncode, KILLED)
        self.assertGreater(os.stat(self.file).st_size, SIZE)
        while b'recovery due' not in subprocess.run([ATO, 'info', self.file], capture_output=True, check=True).stdout:
            pass # until the killed process has ended

    def test_programs_find_the_last_sync_before_they_map(self):
        self.leave_unrecovered()
        self.assertEqual(self.run_it('recovered'), 16 * 'b')
        for program in ('cat file', 'cat < file', 'stat -c %s file >&2; cat file', 'test -s file; env -u LD_PRELOAD cat file',
                        'find . -maxdepth 1 -size 128 -exec env -u LD_PRELOAD cat {} +', 'cat < file > copy; cat copy'):
            with self.subTest(program):
                self.leave_unrecovered()
                done = subprocess.run([ATO, 'run', '--path', self.dir, 'sh', '-c', program], cwd=self.dir, capture_output=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (0, SIZE * b'b'))
                self.assertEqual('stat' in program, done.stderr.startswith(b'%d' % SIZE))
                self.assertEqual(self.pages(), 16 * 'b')
        self.leave_unrecovered()
        self.say(ATO, 'run', '--path', self.dir, 'sh', '-c', 'printf cc > file')
        self.assertEqual(self.content(), b'cc')

    def test_processes_that_start_together_find_the_last_sync(self):
        for _ in range(5):
            self.leave_unrecovered()
            script = ' & '.join(6 * [f'{SUBJECT} {self.file} recovered || echo wrong >&2']) + ' & wait'
            self.assertEqual(self.say(ATO, 'run', '--path', self.dir, 'sh', '-c', script), (0, ''))

    def test_a_file_that_cannot_be_recovered_is_told(self):
        self.leave_unrecovered()
        os.chmod(self.dir, 0o755)
        os.chmod(self.file, 0o644)
        command = [ATO, 'run', '--path', self.dir, 'setpriv', '--reuid=65534', '--clear-groups', 'cat', self.file]
        if self.say('setpriv', '--reuid=65534', '--clear-groups', 'true')[0]:
            self.skipTest('cannot become another user')
        self.assertIn(f'ato run: {self.file} is not as its last sync left it, and cannot be written to: ', self.say(*command)[1])
        self.assertEqual(self.run_it('recovered', 'cat'), 16 * 'b') # in use, it is as it should be

    def test_a_daemon_may_close_all_descriptors(self):
        self.assertEqual(self.run_it('close-all', 'b', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')

    def test_a_daemon_may_give_up_its_rights(self):
        if os.geteuid():
            self.skipTest('only root has rights to give up')
        self.assertEqual(self.run_it('drop-rights', 'b', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')
        self.fill(b'a')
        self.assertEqual(self.run_it('drop-rights', 'b'), 16 * 'b')

    def test_a_lock_that_becomes_a_shared_one_shows_what_was_stored(self):
        self.run_it('b', 'share', 'b')

    def test_programs_that_are_started_find_what_was_stored(self):
        self.assertEqual(self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'programs'), (0, ''))

    def test_programs_may_choose_descriptors_and_those_of_libato_are_not_replaced(self):
        self.assertEqual(self.run_it('replace-all', 'b', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')
        self.fill(b'a')
        got, err = self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'replace-high', 'b', 'msync', 'a', 'kill')
        self.assertEqual((got, self.pages()), (KILLED, 16 * 'b'))
        self.assertRegex(err, '^ato run: dup2\\(\\) onto descriptor [0-9]+ is refused: libato uses it\n$')

    def test_a_write_behind_the_last_offset_is_an_error(self):
        self.run_it('overflow')

    def test_an_end_commits(self):
        for end in 'return', '_exit', 'quick_exit', 'exec', 'exec-path', 'munmap':
            with self.subTest(end):
                self.fill(b'a')
                self.assertEqual(self.run_it('b', end), 16 * 'b')

    def test_says_what_an_end_could_not_commit(self):
        for end in 'return', '_exit', 'exec':
            with self.subTest(end):
                self.fill(b'a')
                got, err = self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'no-space', 'b', end)
                self.assertEqual((got, self.pages()), (121, 16 * 'a'))
                self.assertRegex(err, f'^ato: {self.file}: what was stored since its last sync is lost: [^\n]*\n$')
        self.assertEqual(self.run_it('no-space', 'b', 'space', 'return'), 16 * 'b')

    def test_after_an_end_other_programs_may_write(self):
        for end in 'return', '_exit':
            with self.subTest(end):
                self.fill(b'a')
                script = f'{SUBJECT} {self.file} b {end} && printf cc | dd of={self.file} conv=notrunc && {SUBJECT} {self.file} {end}'
                self.say(ATO, 'run', '--path', self.dir, 'sh', '-c', script)
                self.assertEqual(self.content()[:2], b'cc')

    def test_a_child_sees_what_was_stored(self):
        self.assertEqual(self.run_it('b', 'fork', 'spawn'), 'c' + 15 * 'b')

    def test_the_size_changes(self):
        self.assertEqual(self.run_it('b', 'grow', 'kill', status=KILLED), 16 * 'a')
        self.assertEqual(self.run_it('b', 'grow', 'msync', 'a', 'kill', status=KILLED), 32 * 'b')
        self.fill(b'a')
        self.assertEqual(self.run_it('b', 'shrink', 'msync', 'kill', status=KILLED), 8 * 'b')
        for how in 'open-anew', 'fopen-anew', 'freopen-anew':
            self.fill(b'a')
            self.assertEqual(self.run_it('b', how, 'b', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')
        self.fill(b'a')
        self.assertEqual(self.run_it('b', 'cut-and-grow', 'msync', 'a', 'kill', status=KILLED), 16 * chr(0))
        self.fill(b'a')
        self.assertEqual(self.run_it('b', 'msync', 'cut-grow-and-store', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')
        self.fill(b'a')
        self.assertEqual(self.run_it('allocate', 'map-again', 'b', 'msync', 'a', 'kill', status=KILLED), 32 * 'b')

    def test_reads_and_writes_agree_with_the_mapping(self):
        self.assertEqual(self.run_it('b', 'read', 'kill', status=KILLED), 16 * 'a')
        self.assertEqual(self.run_it('b', 'write', 'kill', status=KILLED), 16 * 'a')
        self.assertEqual(self.run_it('b', 'descriptors', 'msync'), 16 * 'b')
        self.fill(b'a')
        self.assertEqual(self.run_it('b', 'append', 'kill', status=KILLED), 16 * 'a')
        self.assertEqual(self.run_it('b', 'append', 'fsync', 'kill', status=KILLED), 32 * 'b')
        self.fill(b'a')
        self.run_it('b', 'dontneed', 'sendfile')

    def test_says_nothing_of_a_file_that_another_command_makes_plain(self):
        command = [ATO, 'run', '--path', self.dir, SUBJECT, self.file]
        with subprocess.Popen([*command, 'b', 'msync', 'wait'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.read(1)
            self.assertEqual(self.say(*command, 'return'), (0, ''))
        self.assertEqual(self.pages(), 16 * 'b')

    def run_together(self, step):
        command = [ATO, 'run', '--path', self.dir, SUBJECT, self.file, step]
        programs = [subprocess.Popen(command) for _ in range(3)]
        self.assertEqual([p.wait() for p in programs], 3 * [0])

    def test_processes_with_a_lock_see_each_others_stores(self):
        for step in 'add', 'add-and-close':
            with self.subTest(step):
                self.fill(bytes(1))
                self.run_together(step)
                self.assertEqual(int.from_bytes(self.content()[:8], 'little'), 600)

    def test_what_processes_append_at_the_same_time_is_all_there(self):
        self.run_together('append-together')
        self.assertEqual(self.content(), SIZE * b'a' + 180 * b'append-together\0')

    def test_threads_store_while_one_syncs(self):
        got, err = self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'threads')
        self.assertEqual((got, err), (0, ''))
        content = self.content()
        self.assertEqual({content[at:at + 8] for at in range(0, SIZE, 4096)}, {content[:8]})

    def test_a_handler_of_faults_gets_those_of_the_program_only(self):
        got, err = self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'fault-handler', 'store-handler', 'fault')
        self.assertEqual((got, err), (0, ''))

    def test_a_handler_that_blocks_all_signals_may_store_while_a_thread_syncs(self):
        self.assertEqual(self.run_it('store-handler'), 16 * 'b')

    def test_a_bad_pointer_is_an_error_of_reads_and_writes(self):
        self.assertEqual(self.run_it('bad-pointers', 'b', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')

    def test_threads_may_store_while_the_process_ends(self):
        for end in ['return'] + 9 * ['_exit']:
            self.assertEqual(self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'store-on', end), (0, ''))
            self.content()

    def test_threads_that_read_do_not_keep_a_fork_waiting(self):
        self.run_it('b', 'readers', 'fork')

    def test_a_handler_may_jump_out_of_a_sync(self):
        self.assertEqual(self.run_it('jumps', 'b', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')

    def test_a_handler_may_end_the_process_within_a_sync_or_a_fork(self):
        for word in 10 * ['end-in-sync', 'end-in-fork']:
            with self.subTest(word):
                self.fill(b'a')
                self.assertEqual(self.run_it(word), 16 * 'b')

    def test_all_mappings_of_the_process_agree(self):
        self.assertEqual(self.run_it('others-see', 'msync', 'a', 'kill', status=KILLED), 'b' + 15 * 'a')
        self.assertEqual(self.run_it('locked'), 'b' + 15 * 'a')

    def test_calls_at_random_see_what_they_see_without_libato(self):
        calls = [sys.executable, os.path.join(os.path.dirname(__file__), 'random_calls.py')]
        for seed in (4, 36, 42, 50, *random.sample(range(100, 10**6), 4)):
            with self.subTest(seed=seed):
                words = [*calls, self.file, str(seed), '500']
                stock, served = (subprocess.run([*command, *words], cwd=self.dir, capture_output=True, text=True, check=False)
                                 for command in ([], [ATO, 'run', '--path', self.dir]))
                self.assertEqual((served.stdout, served.stderr), (stock.stdout, ''), served)

    def test_addresses_that_the_program_had_may_be_chosen(self):
        self.assertEqual(self.run_it('b', 'fixed-again', 'msync', 'a', 'kill', status=KILLED), 16 * 'b')
        self.assertEqual(self.run_it('a', 'fixed-other', 'b', 'kill', status=KILLED), 16 * 'a')

    def test_says_what_is_refused(self):
        self.run_it('fixed', said='ato run: an mmap() with MAP_FIXED over a mapping of libato is refused\n')
        self.run_it('protect', said='ato run: mprotect() of a mapping of libato, which is readable and writable, is refused\n')

    def test_other_files_are_untouched(self):
        got, err = self.say(ATO, 'run', '--path', self.dir + '/other', SUBJECT, self.file, 'half', 'kill')
        self.assertEqual(got, KILLED)
        self.assertRegex(err, f'^ato: .*/subject {NO_FILE}: it mapped none that is at or below {self.dir}/other \\(--path\\)\n$')
        self.assertEqual(self.pages(), 8 * 'b' + 8 * 'a')
        self.fill(b'a')
        self.assertIn(f'{NO_FILE}: it mapped only files below /dev', self.say(ATO, 'run', SUBJECT, self.file, 'half')[1])

    def test_says_that_nothing_was_mapped(self):
        self.assertRegex(self.say(ATO, 'run', 'true')[1], f'^ato: true {NO_FILE}: it did not ask the C library .*\n$')
        self.assertEqual(self.say(ATO, 'run', '--require', 'true')[0], 123)

    def test_what_cannot_be_served_is_an_ordinary_mapping_or_an_error(self):
        os.setxattr(self.file, 'user.ato', b'no attribute of libato')
        done = self.say(ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'b')
        self.assertEqual((done[0], self.pages()), (0, 16 * 'b'))
        self.fill(b'a')
        self.assertIn(f'ato run: {self.file} is mapped without libato: ', done[1])
        done = self.say(ATO, 'run', '--path', self.dir, '--require', SUBJECT, self.file, 'b')
        self.assertEqual((done[0], self.pages()), (123, 16 * 'a'))
        self.assertIn(f'ato run: {self.file} is not mapped without libato: ', done[1])

    def test_half_of_the_descriptors_are_left_to_the_program(self):
        limit = 'ulimit -n 14 && exec 3< /dev/null 4<&3 5<&3 6<&3 7<&3 8<&3 9<&3 && exec "$@"'
        done = self.say('bash', '-c', limit, 'sh', ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'b')
        self.assertEqual((done[0], self.pages()), (0, 16 * 'b'))
        self.assertIn('half of the descriptors', done[1])
        done = self.say('bash', '-c', 'ulimit -n 64 && exec "$@"', 'sh', ATO, 'run', '--path', self.dir, SUBJECT, self.file, 'many-files', 'b')
        self.assertEqual((done[0], self.pages()), (0, 16 * 'b'))
        self.assertIn('half of the descriptors', done[1])

    def test_says_that_descriptors_ran_out(self):
        for option, status, how in ([], 0, 'mapped'), (['--require'], 123, 'not mapped'):
            got, err = self.say(ATO, 'run', '--path', self.dir, *option, SUBJECT, self.file, 'no-descriptors', 'b')
            self.assertEqual(got, status)
            self.assertIn(f'ato run: {self.file} is {how} without libato: it cannot be opened again: Too many open files', err)

    def test_a_static_program_is_not_started_if_it_is_required(self):
        if not STATIC:
            self.skipTest('no static program can be linked here')
        got, err = self.say(ATO, 'run', '--path', self.dir, STATIC, self.file, 'half')
        self.assertEqual((got, self.pages()), (0, 8 * 'b' + 8 * 'a'))
        self.assertIn('it is a static program', err)
        self.fill(b'a')
        got, err = self.say(ATO, 'run', '--path', self.dir, '--require', STATIC, self.file, 'half')
        self.assertEqual((got, self.pages()), (125, 16 * 'a'))
        self.assertIn('it is a static program', err)


if __name__ == '__main__':
    ATO, SUBJECT, STATIC = [*map(os.path.abspath, sys.argv[1:]), None][:3]
    unittest.main(argv=sys.argv[:1])
