#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Are the reports of `ato` right for files in each state, and does it change nothing? (`ato check`:
check_test.py, `ato deploy`: deploy_test.py.)"""
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import lab
from lab import ATO, NOBODY, SIZE, STATES, Lab


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
        self.assertEqual((found['state'], found['commits_to_finish']), ('recovery due', 1))

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


class Doctor(Lab):
    def test_shows_the_features_of_machine_and_folder(self):
        found = self.json('doctor', self.dir)
        self.assertIn(found['machine']['hardware_transactions'], ('yes', 'no'))
        self.assertIn(found['machine']['copy_kernel'], ('avx512', 'avx2', 'sse2'))
        self.assertTrue(found['can_map'])
        self.assertEqual(found['obstacles'], [])

    def test_its_domain_is_that_of_a_new_file(self):
        self.assertEqual(self.json('doctor', self.dir)['domain'],
                         self.info(self.make('fast'))['domain'])

    def test_shows_what_a_domain_survives(self):
        for domain, words in ('process', 'They are not when the kernel crashes'), \
                             ('msync', 'each write waits for the disk'), ('pmem', 'a power cut'):
            text = self.out('doctor', self.dir, ATO_DURABILITY=domain)
            self.assertIn(f"gets the durability domain '{domain}'", text)
            self.assertIn(words, text)

    def test_an_unknown_domain_is_an_obstacle(self):
        found = self.json('doctor', self.dir, status=1, ATO_DURABILITY='sometimes')
        self.assertFalse(found['can_map'])
        self.assertIn('cannot be mapped', self.out('doctor', self.dir, status=1,
                                                   ATO_DURABILITY='sometimes'))

    def test_the_weaker_medium_counts(self):
        found = self.json('doctor', self.dir, ATO_REFLECTION_DIR='/dev/shm')
        self.assertEqual(found['domain'], 'process')

    def test_leaves_nothing_behind(self):
        self.make('fast')
        before = sorted(os.walk(self.dir)), self.shared()
        self.out('doctor', self.dir)
        self.assertEqual((sorted(os.walk(self.dir)), self.shared()), before)

    def test_looks_at_the_working_directory_by_default(self):
        self.assertEqual(self.json('doctor')['folder'], '.')

    def test_a_folder_without_write_permission_is_an_obstacle(self):
        self.assertIn('no file can be made there', self.out('doctor', '/proc', status=1))
        if os.getuid() == 0:
            found = self.json('doctor', self.dir, status=1, user=NOBODY)
            self.assertIn('Permission denied', found['obstacles'][0])
            self.assertIsNone(found['domain'])

    def test_a_refused_reflection_folder_is_an_obstacle(self):
        for place in '/nonexistent/deep/x', '/etc/passwd':
            found = self.json('doctor', self.dir, status=1, ATO_REFLECTION_DIR=place)
            self.assertIn(place, found['obstacles'][0])
        own = self.dir + '/.ato'
        os.symlink('/', own)
        self.assertIn(own, self.json('doctor', self.dir, status=1)['obstacles'][0])
        os.unlink(own)
        os.mkdir(own, 0o700)
        os.chmod(self.dir, 0o777)
        self.assertTrue(self.json('doctor', self.dir)['can_map'])
        if os.getuid() == 0:
            self.assertIn(own, self.json('doctor', self.dir, status=1,
                                         user=NOBODY)['obstacles'][0])

    def test_names_that_are_not_folders_are_reported(self):
        for path in self.make(), self.dir + '/none':
            self.assertIn('cannot look at it', self.err('doctor', path, status=2))
            self.assertIsNotNone(self.json('doctor', path, status=2)['error'])


    def test_names_file_systems_that_are_refused(self):
        shim = self.dir + '/shim.so'
        source = """
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <stdlib.h>
            #include <sys/vfs.h>
            static int fake(int r, struct statfs *fs) { fs->f_type = strtoul(getenv("FAKE_TYPE"), 0, 16); return r; }
            int statfs(const char *p, struct statfs *fs)
            { return fake(((int (*)(const char *, struct statfs *))dlsym(RTLD_NEXT, "statfs"))(p, fs), fs); }
            int statfs64(const char *p, struct statfs64 *fs) { return statfs(p, (struct statfs *)fs); }
            int fstatfs(int fd, struct statfs *fs)
            { return fake(((int (*)(int, struct statfs *))dlsym(RTLD_NEXT, "fstatfs"))(fd, fs), fs); }
            int fstatfs64(int fd, struct statfs64 *fs) { return fstatfs(fd, (struct statfs *)fs); }"""
        if subprocess.run(['cc', '-xc', '-', '-shared', '-fPIC', '-o', shim, '-ldl'], input=source, text=True, check=False).returncode:
            self.skipTest('needs a compiler')
        for number, name in ('6969', 'NFS'), ('517b', 'SMB'), ('fe534d42', 'SMB'), ('ff534d42', 'SMB'), ('1021997', '9p'), \
                            ('65735546', 'FUSE'):
            more = {'LD_PRELOAD': shim, 'FAKE_TYPE': number}
            self.assertIn(f'is on {name}, where', self.json('doctor', self.dir, status=1, **more)['obstacles'][0])
            found = self.json('doctor', self.dir, ATO_ANY_FILE_SYSTEM='1', **more)
            self.assertIn(f'is {name}, on which locks', found['remarks'][0])
        self.assertTrue(self.json('doctor', self.dir, LD_PRELOAD=shim, FAKE_TYPE='ef53')['can_map'])

    def in_namespace(self, script, *words):
        """Runs a script with mounts of its own, which may mount a small /dev/shm; what it prints."""
        done = subprocess.run(['unshare', '-m', 'sh', '-ec', script, 'sh', lab.TOOL, *words], env=self.env, capture_output=True,
                              text=True, check=False)
        if 'unshare failed' in done.stderr or 'mount:' in done.stderr:
            self.skipTest('needs root, to mount a file system')
        return done.stdout

    def test_says_why_nothing_can_be_made_in_dev_shm(self):
        # The tool may lie in the /dev/shm that is hidden: it is opened before.
        mounted = 'exec 9<"$1"; mount -t tmpfs -o %s none /dev/shm; shift; "$@" /proc/self/fd/9 doctor / || true'
        full = self.in_namespace(mounted % 'size=64k', 'env')
        self.assertRegex(full, r'cannot be mapped: no shared memory .*/dev/shm/.*: No space left')
        self.assertNotIn('/dev/shm', self.in_namespace(mounted % 'size=0', 'env'))
        self.assertIn('Read-only file system', self.in_namespace(mounted % 'ro', 'env'))
        done = subprocess.run(['sh', '-c', 'ulimit -f 1000 && "$0" doctor "$1"', lab.TOOL, self.dir], env=self.env,
                              capture_output=True, text=True, check=False)
        self.assertIn("this process's limit on the size of files", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_says_if_systemd_removes_shared_memory_at_logout(self):
        def remarks(user):
            said = self.in_namespace(f"""mount -t tmpfs none /run; mkdir -p /run/systemd/system
                exec setpriv --reuid {user} --clear-groups "$1" doctor /dev/shm""")
            self.assertIn('folder', said)
            return 'RemoveIPC' in said
        self.assertTrue(remarks(NOBODY))
        self.assertFalse(remarks(0))


class Reclaim(Lab):
    def storage(self):
        return os.stat(self.reflection()).st_blocks * 512

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
        self.make('fast')
        with open(self.file, 'r+b') as f:
            f.truncate(4096)
        before = self.storage()
        self.assertIn(self.file, self.err('reclaim', self.file, status=1))
        self.assertEqual(self.storage(), before)


class Convert(Lab):
    def content(self):
        with open(self.make('fast', name='other'), 'rb') as other:
            self.ato('deploy', other.name)
            return other.read()

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
        self.assertEqual(self.out('convert', '--to=sparse', '--quiet', self.file), '')
        self.assertEqual(self.info(self.file)['format'], 'sparse')
        actor = self.hold(self.file)
        self.assertIn('is mapped by', self.err('convert', self.file, status=1))
        actor.end()

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


class Bench(Lab):
    media = False

    def setUp(self):
        if shutil.disk_usage(self.below).free < 200 << 20:
            self.skipTest('needs 200 MiB of /dev/shm')
        super().setUp()

    def test_measures_each_operation_in_each_domain_and_removes_its_files(self):
        names = None
        for domain in 'process', 'pmem', 'eadr', 'msync':
            found = self.json('bench', '--time', '1', self.dir, ATO_DURABILITY=domain)
            self.assertEqual((found['folder'], found['error']), (self.dir, None))
            self.assertEqual(found['domain'], domain)
            self.assertGreaterEqual(found['batches'], 1)
            for operation in found['operations']:
                for key in 'floor_ns', 'libato_ns', 'ratio':
                    self.assertGreater(operation.pop(key), 0, key)
                self.assertEqual(list(operation), ['operation'])
            names = [operation['operation'] for operation in found['operations']]
            self.assertEqual((len(names), len(set(names))), (7, 7))
            self.assertEqual(os.listdir(self.dir), [])
        text = self.out('bench', '--time', '1', self.dir, ATO_DURABILITY='pmem')
        self.assertIn("domain 'pmem'", text)
        for name in names:
            self.assertRegex(text, rf'(?m)^{name} +[0-9]+ +[0-9]+ +[0-9.]+$')

    def test_keeps_nothing_in_another_reflection_folder(self):
        os.mkdir(self.dir + '/files')
        os.mkdir(self.dir + '/reflections')
        self.out('bench', '--time', '1', self.dir + '/files', ATO_REFLECTION_DIR=self.dir + '/reflections')
        self.assertEqual([os.listdir(self.dir + name) for name in ('/files', '/reflections')], [[], []])

    def test_a_signal_ends_it_when_its_files_are_removed(self):
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            def heed(one=number):
                """nohup, and a shell in the background, ignore some for all that they start."""
                signal.signal(one, signal.SIG_DFL)
            with subprocess.Popen([lab.TOOL, 'bench', '--json', self.dir], env=self.env, preexec_fn=heed,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
                ids = []
                while not ids and bench.poll() is None:
                    time.sleep(0.01)
                    found = [self.peek(path, 32, 16) for path in glob.glob(self.dir + '/.ato-bench-*/.ato/*.manifest')]
                    ids = [one.hex() for one in found if any(one)]  # a manifest gets its name before its bytes
                bench.send_signal(number)
                self.assertEqual(bench.communicate(), (b'', b''))
                self.assertEqual(bench.returncode, -number)
            self.assertEqual(os.listdir(self.dir), [])
            self.assertEqual([glob.glob(f'/dev/shm/ato-{one}*') for one in ids], [[]] * len(ids))
            self.assertGreater(len(ids), 0)

    def test_refuses_to_run_without_space_and_makes_nothing(self):
        script = 'mount -t tmpfs -o size=100m none "$1" && ls -A "$1" && "$2" bench "$1"; status=$?; ls -A "$1"; exit $status'
        done = subprocess.run(['unshare', '-m', 'sh', '-c', script, 'sh', self.dir, lab.TOOL], env=self.env,
                              capture_output=True, check=False)
        if b'unshare failed' in done.stderr or b'mount:' in done.stderr:
            self.skipTest('needs root, to mount a small file system')
        self.assertEqual((done.returncode, done.stdout), (1, b''), done)
        self.assertIn(b'No space left', done.stderr)

    def test_names_that_are_not_folders_and_folders_without_permission_are_reported(self):
        for path in self.make(), self.dir + '/none':
            self.assertIn(path + ': cannot look at it', self.err('bench', path, status=2))
            self.assertIsNotNone(self.json('bench', path, status=2)['error'])
        self.assertIn('cannot be mapped', self.err('bench', '/proc', status=1))
        self.assertIn('cannot be mapped', self.json('bench', '/proc', status=1)['error'])
        self.assertIn('number', self.err('bench', '--time', '0', self.dir, status=64))
        self.assertIn('has no option --time', self.err('info', '--time', '1', self.file, status=64))


if __name__ == '__main__':
    lab.main(globals())
