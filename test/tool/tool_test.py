#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Are the reports of `ato` right for files in each state, and does it change nothing? (`ato check`:
check_test.py, `ato deploy`: deploy_test.py, `ato doctor` and `ato bench`: machine_test.py.)"""
import os
import re
import subprocess
import time

import lab
from lab import ATO, NOBODY, SIZE, STATES, Lab, of_reflections


class Info(Lab):
    def test_says_the_state_of_a_file_in_each_state(self):
        for state, expected in STATES.items():
            with self.subTest(state):
                path = self.make(state, state)
                self.assertIn(f'state        {expected}', self.out('info', path))
                self.assertEqual(self.info(path)['state'], expected)

    def test_changes_nothing_in_any_state(self):
        paths = [self.make(state, state) for state in STATES]
        before = self.snapshot()
        self.out('info', *paths)
        self.assertEqual(self.snapshot(), before)

    @of_reflections
    def test_counts_the_slices_whose_valid_copy_is_in_the_reflection(self):
        found = self.info(self.make('fast'))
        # Bytes 3000 to 8999, and nothing before.
        self.assertEqual(found['slices_in_reflection'], 8999 // 64 - 3000 // 64 + 1)
        self.assertEqual(found['size'], SIZE)
        self.assertEqual(found['logical_size'], SIZE)
        self.assertEqual(found['reflection_size'], 6 * 4096)
        self.assertEqual(found['reflection_storage'],
                         os.stat(self.reflection()).st_blocks * 512)
        self.assertEqual(found['folder'], self.dir + '/.ato')
        self.assertEqual(found['format'], 'dense')
        self.assertRegex(found['id'], '^[0-9a-f]{32}$')
        self.assertIsNone(found['guard'])
        self.assertEqual(found['mapped_by'], [])

    def test_says_what_a_recovery_brings_into_a_file_with_a_log(self):
        path = self.make('logged', ACTOR_DOMAIN='3')
        found = self.info(path)
        self.assertEqual(found['format'], 'log')
        self.assertEqual(found['state'], 'recovery due')
        self.assertEqual(found['log_to_replay'] % 64, 0)
        self.assertGreater(found['log_to_replay'], 6000)
        self.assertGreaterEqual(found['log_room'], found['log_to_replay'])
        self.assertEqual(found['log_room'], os.stat(self.reflection()).st_size - 4096)
        self.check(path, status=0)
        self.ato('deploy', path)
        self.assertEqual(self.info(path)['state'], 'plain')

    def test_says_that_a_log_has_no_valid_header(self):
        path = self.make('logged', ACTOR_DOMAIN='3')
        self.patch(self.reflection(), 0, bytes(1024))
        self.assertIn('no valid header', self.info(path)['problem'])
        self.assertIn('no valid header', self.out('check', path, status=1))

    def test_says_the_domain_that_the_file_has(self):
        self.assertEqual(self.info(self.make('fast', ACTOR_DOMAIN='1'))['domain'], 'pmem')

    def test_names_the_process_that_has_the_file_mapped(self):
        actor = self.hold(self.make())
        found = self.info(self.file)
        self.assertEqual(found['state'], 'in use')
        self.assertEqual(found['mapped_by'],
                         [{'slot': 0, 'pid': actor.pid, 'command': 'a"holder\n'}])
        self.assertIn(f'mapped by    pid {actor.pid} (a"holder\\x0a)', self.out('info', self.file))
        actor.end()
        self.assertEqual(self.info(self.file)['state'], 'clean')

    def test_names_all_living_processes_that_have_the_file_mapped(self):
        first, dead, last = (self.hold(self.file if i else self.make()) for i in range(3))
        dead.kill()
        dead.wait()
        found = self.info(self.file)['mapped_by']
        self.assertEqual([(one['slot'], one['pid']) for one in found],
                         [(0, first.pid), (2, last.pid)])
        first.end()
        self.assertEqual([one['pid'] for one in self.info(self.file)['mapped_by']], [last.pid])
        # They take the lower slots; the kernel lists their locks after the older one.
        later = [self.hold(self.file) for _ in range(2)]
        self.assertEqual([(one['slot'], one['pid']) for one in self.info(self.file)['mapped_by']],
                         [(0, later[0].pid), (1, later[1].pid), (2, last.pid)])
        for one in later:
            one.end()
        last.end()
        self.assertEqual(self.info(self.file)['state'], 'clean')

    def test_does_not_name_a_process_without_its_shared_memory(self):
        self.hold(self.make())
        (name,) = self.shared()
        aside = f'/dev/shm/ato-test-aside-{os.getpid()}'
        os.rename('/dev/shm/' + name, aside)
        try:
            self.assertIn('a process that cannot be named', self.out('info', self.file))
            self.assertEqual(self.info(self.file)['mapped_by'],
                             [{'slot': 0, 'pid': None, 'command': None}])
            with open('/dev/shm/' + name, 'wb') as f:
                f.write(b'short')
            self.assertIn('a process that cannot be named', self.out('info', self.file))
        finally:
            os.rename(aside, '/dev/shm/' + name)

    def test_does_not_name_a_process_with_hidden_descriptors(self):
        # The pid might belong to another process here, in another pid namespace.
        self.hold(self.make())
        os.chmod(self.file, 0o644)
        self.assertIn('a process that cannot be named',
                      self.out('info', self.file, status=0, user=NOBODY))

    def test_counts_unfinished_commits(self):
        found = self.info(self.make('commit'))
        self.assertEqual((found['state'], found['commits_to_finish']), ('recovery due', 0 if self.has_log else 1))

    def test_shows_the_guard(self):
        self.make('guard')
        self.assertEqual(self.info(self.file)['guard'], {'offset': 18, 'bytes': 2, 'plain': '7e85'})
        self.assertIn('guard        2 bytes at 18, plain values 7e85',
                      self.out('info', self.file))

    def test_shows_an_interrupted_growth(self):
        found = self.info(self.make('growth'))
        self.assertEqual((found['size'], found['logical_size'], found['problem']),
                         (30000, SIZE, None))
        self.assertIn('its growth was interrupted', self.out('info', self.file))

    def test_names_are_escaped(self):
        name = b'a"b\\c\n\x1b[1m\xff\xc3\xa4\xed\xa0\x80'
        path = os.path.join(os.fsencode(self.dir), name)
        with open(path, 'wb'):
            pass
        self.assertEqual(os.fsencode(self.info(path)['file']), path)
        text = self.ato('info', path).stdout
        self.assertIn(b'a"b\\c\\x0a\\x1b[1m\\xff\xc3\xa4\\xed\\xa0\\x80\n', text)

    def test_names_in_commands_can_be_given_to_a_shell(self):
        for name in b"a b", b"it's", b'-x', b'$(x)`*"\\~', b'\n\x1b1\xff1\xc3\xa4':
            with self.subTest(name=name):
                os.rename(self.make('fast'), os.fsencode(self.dir) + b'/' + name)
                done = subprocess.run([lab.TOOL, 'info', '--', name], cwd=self.dir, capture_output=True, check=True)
                word = re.search(rb"next +'ato deploy (.*)' makes it plain\n", done.stdout)[1]
                told = subprocess.run(['bash', '-c', b'printf %s ' + word], cwd=self.dir, capture_output=True, check=True).stdout
                self.assertEqual(os.path.normpath(told), name)

    def test_names_that_are_not_files_are_reported(self):
        os.mkfifo(self.dir + '/pipe')
        for path in self.dir, self.dir + '/none', '/dev/null', self.dir + '/pipe':
            with self.subTest(path):
                self.assertIn(path, self.err('info', path, status=2))
                self.assertIsNotNone(self.info(path, status=2)['error'])

    def test_a_file_without_permission_is_reported_and_the_others_are_shown(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to be nobody')
        other, mine = self.make('fast', 'other'), self.make('plain', 'mine')
        os.chmod(other, 0o600)
        files = self.json('info', other, mine, status=2, user=NOBODY)['files']
        self.assertIn('Permission denied', files[0]['error'])
        self.assertEqual(files[1]['state'], 'plain')

    def test_a_limit_of_the_process_is_told_as_such(self):
        self.make('fast')
        for descriptors, command, words in (
                (4, 'info', 'Too many open files (this process'), (6, 'info', 'cannot open the reflection'),
                (6, 'check', 'not looked at: cannot open the reflection'), (7, 'deploy', 'writing: Too many open files (this process'),
                (7, 'reclaim', 'give space back: Too many open files'), (7, 'convert', 'writing: Too many open files')):
            if command == 'convert' and self.has_log:
                continue
            with self.subTest(command=command, descriptors=descriptors):
                done = subprocess.run(['sh', '-c', f'ulimit -n {descriptors} && exec "$@"', '-', ATO, command, self.file], env=self.env,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(words, done.stdout + done.stderr)
                self.assertNotIn('only a user that may write', done.stderr)

    def test_a_file_that_is_immutable_is_told_as_such(self):
        self.make('fast')
        if subprocess.run(['chattr', '+i', self.file], check=False, capture_output=True).returncode:
            self.skipTest('cannot make a file immutable here')
        try:
            self.assertIn('not permitted (immutable or append-only', self.err('deploy', self.file, status=2))
        finally:
            subprocess.run(['chattr', '-i', self.file], check=True)

    def test_a_folder_elsewhere_is_found(self):
        os.mkdir(self.dir + '/elsewhere')
        found = self.info(self.make('fast', ACTOR_FOLDER=self.dir + '/elsewhere'))
        self.assertEqual((found['state'], found['folder']), ('clean', self.dir + '/elsewhere'))


class Usage(Lab):
    media = False

    def test_help_is_on_stdout(self):
        self.assertIn('Commands:', self.out('--help'))
        self.assertRegex(self.out('--version'), r'^ato \d+\.\d+\.\d+\n$')
        self.assertEqual(self.out('help'), self.out('--help'))
        self.assertIn("'nothing'", self.err('nothing', status=64))
        for command in self.commands():
            self.assertIn(f'usage: ato {command}', self.out(command, '--help'))
            self.assertEqual(self.out('help', command), self.out(command, '--help'))
            self.assertIn('Exit status:', self.out(command, '--help'))

    def commands(self):
        lines = self.out('--help').split('Commands:\n')[1].split('\n\n')[0].splitlines()
        return [line.split()[0] for line in lines]

    def test_every_command_is_in_the_man_page(self):
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../docs/man/ato.1')
        with open(page, encoding='utf-8') as f:
            text = f.read()
        for command in self.commands():
            self.assertIn(f'.SS ato {command}', text)
        for word in STATES.values():
            self.assertIn(f'.B {word}\n', text)

    def test_a_wrong_use_is_64_and_says_how(self):
        for words in ([], ['nothing'], ['--nothing'], ['info'], ['info', '--nothing', 'x'],
                      ['info', '-q', 'x'], ['check'], ['check', '--json=3', 'x'],
                      ['doctor', 'x', 'y'], ['bench', 'x', 'y'], ['deploy'], ['deploy', '--prefer=both', 'x'],
                      ['info', '--prefer=file', 'x'], ['help', 'nothing']):
            with self.subTest(words):
                self.assertIn('usage: ato', self.err(*words, status=64))

    def test_output_that_cannot_be_written_is_an_error(self):
        with open('/dev/full', 'wb') as full:
            done = subprocess.run([ATO, 'info', '--json', '/dev/full'], stdout=full, check=False,
                                  stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2)


class Top(Lab):
    def test_shows_what_each_process_does(self):
        self.make()
        with subprocess.Popen([lab.ACTOR, 'grow', self.file], env=self.env,
                              stdin=subprocess.PIPE) as busy:
            idle = self.hold(self.file)
            while len(self.info(self.file)['mapped_by']) < 2:
                self.assertIsNone(busy.poll())
            found = self.json('top', '--every', '200', '--count', '2', self.file)['sights']
            text = self.out('top', '--every', '100', '--count', '1', self.file)
            busy.stdin.close()
        self.assertEqual(busy.returncode, 0)
        self.assertEqual(len(found), 2)
        for sight in found:
            self.assertGreaterEqual(sight['milliseconds'], 200)
            self.assertTrue(sight['counted'])
            by_pid = {process['pid']: process for process in sight['processes']}
            self.assertEqual(sorted(by_pid), sorted([busy.pid, idle.pid]))
            one, other = by_pid[busy.pid], by_pid[idle.pid]
            self.assertEqual((one['mappings'], other['mappings']), (1, 1))
            for key in 'writes', 'bytes_to_media', 'commits_single':
                self.assertGreater(one[key], 0, key)
                self.assertEqual(other[key], 0, key)
            self.assertEqual(other['reservations'], 0)
        self.assertIn('2 processes', text)
        self.assertIn(f'pid {idle.pid} (a"holder\\x0a)', text)
        self.assertNotIn('cannot be seen', text)

    def test_shows_what_is_held_read_deployed_and_committed(self):
        self.make()
        with subprocess.Popen([lab.ACTOR, 'busy', self.file], env=self.env,
                              stdin=subprocess.PIPE) as busy:
            while len(self.info(self.file)['mapped_by']) < 1:
                self.assertIsNone(busy.poll())
            seen = self.json('top', '--every', '300', '--count', '2', self.file)['sights'][1]
            busy.stdin.close()
        self.assertEqual(busy.returncode, 0)
        (process,) = seen['processes']
        self.assertGreaterEqual(process['reservations'], 1)
        for key in 'writes', 'reads', 'deployed_slices', 'bytes_to_media':
            if key != 'deployed_slices' or not self.has_log:
                self.assertGreater(process[key], 0, key)
        self.assertGreater(process['commits_journal'] + process['commits_rtm'], 0)

    def test_shows_no_process_for_an_unmapped_file(self):
        self.make('fast')
        (sight,) = self.json('top', '--every', '1', self.file)['sights']
        self.assertEqual(sight['processes'], [])
        self.assertIn('0 processes', self.out('top', '--every', '1', '--count', '1', self.file))

    def test_reports_missing_shared_memory(self):
        self.hold(self.make())
        (name,) = self.shared()
        aside = f'/dev/shm/ato-test-aside-{os.getpid()}'
        os.rename('/dev/shm/' + name, aside)
        try:
            self.assertIn('cannot be seen',
                          self.out('top', '--every', '1', '--count', '1', self.file))
            (sight,) = self.json('top', '--every', '1', self.file)['sights']
            self.assertFalse(sight['counted'])
        finally:
            os.rename(aside, '/dev/shm/' + name)

    def test_refuses_names_without_a_file_and_bad_numbers(self):
        self.assertIn('No such file', self.err('top', self.dir + '/none', status=2))
        found = self.json('top', self.dir + '/none', status=2)
        self.assertEqual((found['file'], found['sights']), (self.dir + '/none', []))
        self.assertIn('No such file', found['error'])
        self.make()
        for words in (['--every', '0'], ['--count', '-1'], ['--every', '1x'], ['--count', '']):
            self.assertIn('number', self.err('top', *words, self.file, status=64))
        self.assertIn('has no option --count', self.err('info', '--count', '1', self.file, status=64))
        self.err('top', self.file, self.file, status=64)


class Reclaim(Lab):
    def storage(self):
        return os.stat(self.reflection()).st_blocks * 512

    @of_reflections
    def test_gives_back_what_is_not_needed_and_nothing_else(self):
        with open(self.make('fast', name='other'), 'rb') as other:
            self.ato('deploy', other.name)
            content = other.read()
        self.make('fast')
        slices, needed = self.info(self.file)['slices_in_reflection'], self.storage()
        self.patch(self.reflection(), 4 * 4096, b'x' * 2 * 4096)  # of pages without slices
        taken = self.storage()
        self.assertGreater(taken, needed)
        self.assertEqual(self.info(self.file)['unused_storage'], taken - 3 * 4096)
        self.assertIn("which 'ato reclaim' gives back", self.out('info', self.file))
        found = self.json('reclaim', self.file)['files'][0]
        self.assertEqual(found, {'file': self.file, 'error': None, 'storage_before': taken, 'storage': self.storage()})
        self.assertLessEqual(self.storage(), needed)
        self.assertRegex(self.out('reclaim', self.file), 'its reflection took .*, and takes ')
        self.assertEqual(self.out('reclaim', '--quiet', self.file), '')
        self.assertEqual(self.info(self.file)['slices_in_reflection'], slices)
        self.ato('deploy', self.file)
        with open(self.file, 'rb') as f:
            self.assertEqual(f.read(), content)

    @of_reflections
    def test_du_shows_the_same_space_before_and_after(self):
        def du():
            shown = subprocess.run(['du', '--block-size=1', self.reflection()], check=True, capture_output=True)
            return int(shown.stdout.split()[0])
        self.make('deployed', size=4 << 20)
        before = du()
        found = self.json('reclaim', self.file)['files'][0]
        self.assertEqual((found['storage_before'], found['storage']), (before, du()))
        self.assertGreaterEqual(before, 4 << 20)
        self.assertLessEqual(du(), 8 * 4096, 'two meta pages, and what the file system needs for its lists')

    @of_reflections
    def test_a_mapped_file(self):
        self.make('fast')
        self.patch(self.reflection(), 4 * 4096, b'x' * 2 * 4096)
        taken = self.storage()
        actor = self.hold(self.file)
        self.out('reclaim', self.file)
        actor.end()
        self.assertLess(self.storage(), taken)

    def test_files_that_have_no_reflection_or_cannot_be_mapped(self):
        self.assertEqual(self.out('reclaim', self.make()), self.file + ': is plain\n')
        self.assertIn('none', self.err('reclaim', self.dir + '/none', status=2))
        self.make('write' if self.has_log else 'fast')  # a log that is unmapped holds nothing
        os.truncate(self.file, 4096)
        before = self.storage()
        self.assertIn(self.file, self.err('reclaim', self.file, status=1))
        self.assertEqual(self.storage(), before)


class Convert(Lab):
    def content(self):
        with open(self.make('fast', name='other'), 'rb') as other:
            self.ato('deploy', other.name)
            return other.read()

    @of_reflections
    def test_there_and_back(self):
        content = self.content()
        self.make('fast')
        slices = self.info(self.file)['slices_in_reflection']
        self.assertEqual(self.out('convert', self.file), self.file + ': its reflection is sparse\n')
        self.assertEqual(self.info(self.file)['format'], 'sparse')
        with open(self.file, 'rb') as f:
            self.assertEqual(f.read(), content)
        self.assertEqual(self.out('convert', '--to=sparse', self.file),
                         self.file + ': its reflection is sparse already\n')
        self.out('check', self.file)
        self.make('fast', ATO_FORMAT='sparse')
        self.assertEqual(self.info(self.file)['slices_in_reflection'], slices)
        self.out('check', self.file)
        self.assertEqual(self.json('map', self.file)['slices_in_reflection'], slices)
        found = self.json('convert', self.file)['files'][0]
        self.assertEqual((found['format'], found['changed'], found['slices_brought_home'], found['error']),
                         ('dense', True, slices, None))
        self.assertEqual(self.info(self.file)['format'], 'dense')
        with open(self.file, 'rb') as f:
            self.assertEqual(f.read(), content)

    @of_reflections
    def test_the_reflection_stays_in_its_folder(self):
        folder = self.dir + '/elsewhere'
        os.mkdir(folder)
        self.make('fast', ATO_REFLECTION_DIR=folder)
        self.assertEqual(self.info(self.file)['folder'], folder)
        self.out('convert', self.file)
        self.assertEqual((self.info(self.file)['folder'], self.info(self.file)['format']), (folder, 'sparse'))

    def test_what_it_refuses(self):
        self.make()
        self.assertIn('--to', self.err('convert', self.file, status=1))
        self.assertIn('none', self.err('convert', '--to=dense', self.dir + '/none', status=2))
        self.assertIn('is not dense|sparse', self.err('convert', '--to=auto', self.file, status=64))
        if self.has_log:
            self.assertIn('has a log', self.err('convert', '--to=sparse', self.file, status=1))
            self.assertEqual(self.info(self.file)['state'], 'plain')
            self.make('fast')
            before = self.snapshot()
            self.assertIn('has a log', self.err('convert', self.file, status=1))
            self.assertEqual(self.snapshot(), before)
            return
        self.assertEqual(self.out('convert', '--to=sparse', '--quiet', self.file), '')
        self.assertEqual(self.info(self.file)['format'], 'sparse')
        actor = self.hold(self.file)
        self.assertIn('is mapped by', self.err('convert', self.file, status=1))
        actor.end()

    @of_reflections
    def test_a_kill_at_any_time(self):
        content = self.content()
        for i in range(12):
            self.make('fast')
            with subprocess.Popen([ATO, 'convert', '--to=sparse', self.file], stdout=subprocess.DEVNULL) as convert:
                time.sleep(i * 0.0005)
                convert.kill()
            self.out('convert', '--to=sparse', self.file)
            self.assertEqual(self.info(self.file)['format'], 'sparse')
            with open(self.file, 'rb') as f:
                self.assertEqual(f.read(), content)
            self.ato('deploy', self.file)


if __name__ == '__main__':
    lab.main(globals())
