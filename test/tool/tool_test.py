#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What does `ato` say of files in each state, and does it leave alone what it only looks at?

    tool_test.py <ato> <actor> [unittest's options]

The actor (actor.cc) brings files into their states. Cases are named as GoogleTest names its own.
"""
import atexit
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ATO, ACTOR = (os.path.abspath(p) for p in sys.argv[1:3])
CUT = 77
NOBODY = 65534
SIZE = 20000
STATES = {'plain': 'plain', 'fast': 'clean', 'write': 'recovery due', 'commit': 'recovery due',
          'birth': 'born', 'death': 'deployed', 'growth': 'recovery due', 'spatial': 'plain',
          'guard': 'clean', 'unguard': 'deployed'}


def checksum(data):
    h = 0x61746F2D73756D31
    for (w,) in struct.iter_unpack('<Q', data):
        h = ((h ^ w) * 0x9FB21C651E98DF25) & 0xFFFFFFFFFFFFFFFF
        h ^= h >> 29
    return h


def is_open_to_all(path):
    """May any user come to this file or folder?"""
    while path != '/':
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


def tool_for_all():
    """The tool, where other users may run it too: the build folder may be closed to them."""
    if is_open_to_all(ATO):
        return ATO
    folder = tempfile.mkdtemp(prefix='ato-test-tool-', dir='/dev/shm')
    atexit.register(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    return shutil.copy(ATO, folder)


def folders():
    """Where files are put: in memory, and on a disk where there is one that all may come to."""
    yield '/dev/shm'
    for folder in os.getcwd(), '/var/tmp':
        kind = subprocess.run(['stat', '-f', '-c', '%T', folder], capture_output=True, text=True,
                              check=True)
        if kind.stdout.strip() != 'tmpfs' and is_open_to_all(folder):
            yield folder
            return


TOOL = tool_for_all()


class Lab(unittest.TestCase):
    below = '/dev/shm'

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='ato-test-', dir=self.below)
        os.chmod(self.dir, 0o755)
        self.file = os.path.join(self.dir, 'file')
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ATO_')}
        self.ids = set()  # of the pairings that this case made

    def tearDown(self):
        shutil.rmtree(self.dir)
        for name in self.shared():
            os.unlink('/dev/shm/' + name)

    def shared(self):
        """Shared memory of these pairings; others may be at work beside us."""
        return {n for n in os.listdir('/dev/shm') if n.startswith('ato-') and n[4:36] in self.ids}

    def remember(self, path):
        """The id is at byte 32 of a manifest's copy."""
        if os.path.exists(self.manifest(path)):
            self.ids.add(self.peek(self.manifest(path), 32, 16).hex())

    def make(self, state='plain', name='file', **env):
        path = os.path.join(self.dir, name)
        with open(path, 'wb') as f:
            f.write(bytes(i * 7 & 255 for i in range(SIZE)))
        if state != 'plain':
            done = subprocess.run([ACTOR, state, path], env={**self.env, **env}, check=False,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            lives = state in ('fast', 'spatial', 'empty', 'guard')
            self.assertEqual(done.returncode, 0 if lives else CUT, done)
            self.remember(path)
        return path

    def hold(self, path):
        """A living process that has the file mapped."""
        actor = subprocess.Popen([ACTOR, 'hold', path], env=self.env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.assertEqual(actor.stdout.readline(), b'ready\n')
        self.remember(path)

        def end():
            actor.stdin.close()
            actor.stdout.close()
            self.assertEqual(actor.wait(), 0)
        self.addCleanup(lambda: actor.poll() is None and end())
        actor.end = end
        return actor

    def ato(self, *words, status=0, user=None, **env):
        done = subprocess.run([TOOL, *words], env={**self.env, **env}, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False, user=user)
        self.assertEqual(done.returncode, status, done)
        return done

    def out(self, *words, **more):
        return os.fsdecode(self.ato(*words, **more).stdout)

    def err(self, *words, **more):
        done = self.ato(*words, **more)
        self.assertEqual(done.stdout, b'')
        return os.fsdecode(done.stderr)

    def json(self, command, *words, status=0, **more):
        found = json.loads(self.ato(command, '--json', *words, status=status, **more).stdout)
        self.assertEqual(found['command'], command)
        self.assertEqual(found['status'], status)
        return found

    def info(self, path, **more):
        return self.json('info', path, **more)['files'][0]

    def check(self, *paths, status, words=''):
        """Checks, changes nothing, and names `words` in a finding; the findings."""
        before = self.snapshot()
        found = self.json('check', *paths, status=status)['findings']
        text = self.out('check', *paths, status=status)
        self.assertEqual(self.snapshot(), before)
        self.assertEqual(len(text.splitlines()), len(found) + 1, text)
        self.assertTrue(any(words in f['what'] for f in found) or not words, found)
        return found

    def snapshot(self):
        """Everything below the folder: bytes, times, modes and attributes."""
        found = {}
        for folder, _, names in os.walk(self.dir):
            for path in [folder, *(os.path.join(folder, n) for n in names)]:
                st = os.lstat(path)
                content = b''
                if stat.S_ISREG(st.st_mode):
                    with open(path, 'rb') as f:
                        content = f.read()
                found[path] = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino,
                               content)
        return found, self.shared()

    # ---- places ----

    def reflection(self, path=None):
        return os.path.join(self.dir, '.ato', str(os.stat(path or self.file).st_ino))

    def manifest(self, path=None):
        return self.reflection(path) + '.manifest'

    @staticmethod
    def patch(path, at, data):
        with open(path, 'r+b') as f:
            f.seek(at)
            f.write(data)

    @staticmethod
    def peek(path, at, n):
        with open(path, 'rb') as f:
            f.seek(at)
            return f.read(n)

    def set_fields(self, path, at, data):
        """Changes the record in both copies of a manifest, with checksums that fit."""
        for copy in 0, 4096:
            record = bytearray(self.peek(path, copy, 504))
            record[at:at + len(data)] = data
            self.patch(path, copy, bytes(record) + struct.pack('<Q', checksum(bytes(record))))

    def journal(self):
        return next(os.path.join(self.dir, '.ato', n) for n in os.listdir(self.dir + '/.ato')
                    if n.startswith('journal-'))


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

    def test_names_who_has_it_mapped(self):
        actor = self.hold(self.make())
        found = self.info(self.file)
        self.assertEqual(found['state'], 'in use')
        self.assertEqual(found['mapped_by'],
                         [{'slot': 0, 'pid': actor.pid, 'command': 'a"holder\n'}])
        self.assertIn(f'mapped by    pid {actor.pid} (a"holder\\x0a)', self.out('info', self.file))
        actor.end()
        self.assertEqual(self.info(self.file)['state'], 'clean')

    def test_does_not_name_whom_the_shared_memory_does_not_tell(self):
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

    def test_does_not_name_whom_it_cannot_see_the_descriptors_of(self):
        # The number might be another process's here, of another pid namespace.
        self.hold(self.make())
        os.chmod(self.file, 0o644)
        self.assertIn('a process that cannot be named',
                      self.out('info', self.file, status=0, user=NOBODY))

    def test_counts_commits_that_are_to_be_finished(self):
        found = self.info(self.make('commit'))
        self.assertEqual((found['state'], found['commits_to_finish']), ('recovery due', 1))

    def test_shows_the_guard(self):
        self.make('guard')
        self.assertEqual(self.info(self.file)['guard'], {'offset': 18, 'bytes': 2, 'plain': '7e85'})
        self.assertIn('guard        2 bytes at 18, plain they are 7e85',
                      self.out('info', self.file))

    def test_tells_of_a_growth_that_was_interrupted(self):
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

    def test_what_is_no_file_is_told(self):
        os.mkfifo(self.dir + '/pipe')
        for path in self.dir, self.dir + '/none', '/dev/null', self.dir + '/pipe':
            with self.subTest(path):
                self.assertIn(path, self.err('info', path, status=3))
                self.assertIsNotNone(self.info(path, status=3)['error'])

    def test_a_file_without_permission_is_told_and_the_others_are_shown(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to be nobody')
        other, mine = self.make('fast', 'other'), self.make('plain', 'mine')
        os.chmod(other, 0o600)
        files = self.json('info', other, mine, status=3, user=NOBODY)['files']
        self.assertIn('Permission denied', files[0]['error'])
        self.assertEqual(files[1]['state'], 'plain')

    def test_a_folder_elsewhere_is_found(self):
        os.mkdir(self.dir + '/elsewhere')
        found = self.info(self.make('fast', ACTOR_FOLDER=self.dir + '/elsewhere'))
        self.assertEqual((found['state'], found['folder']), ('clean', self.dir + '/elsewhere'))


class Usage(Lab):
    def test_help_is_on_stdout(self):
        self.assertIn('Commands:', self.out('--help'))
        self.assertRegex(self.out('--version'), r'^ato \d+\.\d+\.\d+\n$')
        for command in self.commands():
            self.assertIn(f'usage: ato {command}', self.out(command, '--help'))
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
                      ['doctor', 'x', 'y'], ['deploy']):
            with self.subTest(words):
                self.assertIn('usage: ato', self.err(*words, status=64))

    def test_output_that_cannot_be_written_is_an_error(self):
        with open('/dev/full', 'wb') as full:
            done = subprocess.run([ATO, 'info', '--json', '/dev/full'], stdout=full, check=False,
                                  stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 3)


class Check(Lab):
    def test_files_in_order_have_no_findings(self):
        for state in 'plain', 'fast', 'spatial':
            self.make(state, state)
        self.assertEqual(self.check(self.dir, status=0), [])
        self.assertEqual(self.check(self.dir + '/fast', status=0), [])

    def test_a_mapped_file_is_in_order(self):
        self.hold(self.make())
        self.assertEqual(self.check(self.file, status=0), [])
        self.assertEqual(self.check(self.dir, status=0), [])

    def test_an_owner_that_died_in_a_write_makes_recovery_due(self):
        self.make('write')
        self.check(self.file, status=1, words='recovery due: its last user died')

    def test_an_owner_that_died_in_a_commit_makes_recovery_due(self):
        self.make('commit')
        self.check(self.file, status=1, words='recovery due: 1 commit is in the journal')
        found = self.check(self.dir, status=1, words='holds a commit of')
        self.assertTrue(all(f['severity'] == 'note' for f in found), found)

    def test_interrupted_births_and_removals_are_noted(self):
        self.make('birth')
        self.check(self.file, status=1, words='the making of its reflection was interrupted')
        self.make('death', 'other')
        self.check(self.dir + '/other', status=1, words='the removal of its reflection')

    def test_an_interrupted_growth_is_noted(self):
        self.make('growth')
        self.check(self.file, status=1, words='it was to grow from 20000 bytes to 30000')
        with open(self.file, 'r+b') as f:
            f.seek(29000)
            f.write(b'x')
        self.check(self.file, status=2, words='it was cut or grew by other means')

    def test_one_damaged_copy_of_the_manifest_is_a_warning(self):
        for copy in 0, 4096:
            path = self.make('fast', f'file{copy}')
            self.patch(self.manifest(path), copy + 100, b'\xaa\xaa')
            # The older copy may be of another state; then that counts.
            found = self.json('check', path, status=1 if self.info(path)['state'] != 'damaged'
                              else 2)['findings']
            self.assertIn(f'copy {"AB"[copy // 4096]} of the manifest', found[0]['what'])

    def test_two_damaged_copies_of_the_manifest_are_an_error(self):
        self.make('fast')
        for copy in 0, 4096:
            self.patch(self.manifest(), copy + 100, b'\xaa\xaa')
        found = self.check(self.file, status=2, words='has a checksum that does not fit')
        self.assertEqual([f['severity'] for f in found], ['error'])
        self.assertEqual(self.info(self.file)['state'], 'damaged')

    def test_fields_that_make_no_sense_are_an_error(self):
        self.make('fast')
        self.set_fields(self.manifest(), 20, struct.pack('<I', 9))
        self.check(self.file, status=2, words='a field that makes no sense')

    def test_another_version_is_an_error(self):
        self.make('fast')
        self.set_fields(self.manifest(), 8, struct.pack('<I', 7))
        self.check(self.file, status=2, words='version 7')

    def test_a_damaged_size_word_is_an_error(self):
        self.make('fast')
        self.patch(self.manifest(), 8192, b'\x01')
        self.check(self.file, status=2, words='size words')

    def test_names_that_libato_does_not_give_are_noted_and_in_nobodys_way(self):
        self.make('fast')
        for name in 'journal-foo', 'journal-' + 32 * 'a' + '.bak', '12x':
            with open(f'{self.dir}/.ato/{name}', 'wb') as f:
                f.write(b'not ours')
        found = self.check(self.dir, status=1, words='not a name that libato gives')
        self.assertEqual([f['severity'] for f in found], 3 * ['note'])
        self.ato('deploy', self.file)

    def test_a_truncated_reflection_is_an_error(self):
        self.make('fast')
        for length in 5 * 4096, 100, 0:
            os.truncate(self.reflection(), length)
            found = self.check(self.file, status=2,
                               words=f'{length} bytes long, it should be 24576')
            self.assertEqual(len(found), 1)
            self.assertEqual(self.info(self.file)['state'], 'damaged')

    def test_a_long_reflection_is_a_warning(self):
        self.make('fast')
        os.truncate(self.reflection(), 1 << 20)
        self.check(self.file, status=1, words='bytes long, it should be 24576')

    def test_a_truncated_manifest_is_an_error(self):
        self.make('fast')
        for length in 8192, 5000, 4096, 300, 1, 0:
            os.truncate(self.manifest(), length)
            self.json('check', self.file, status=2)

    def test_words_beyond_the_end_are_errors(self):
        self.make('fast')
        self.patch(self.reflection(), 5 * 8, struct.pack('<Q', 1))
        self.patch(self.reflection(), 511 * 8, struct.pack('<Q', 1))
        self.check(self.file, status=2, words='2 bitmap words of pages beyond the end')

    def test_slices_beyond_the_end_are_errors(self):
        self.make('fast')
        self.patch(self.reflection(), 4 * 8 + 7, b'\xc0')
        self.check(self.file, status=2, words='names 2 slices beyond the end')

    def test_slices_left_in_state_deployed_are_an_error(self):
        self.make('death')
        self.patch(self.reflection(), 0, b'\x01')
        self.check(self.file, status=2, words='the state is deployed, and 1 slices')

    def test_a_write_by_others_is_an_error(self):
        self.make('fast')
        self.patch(self.file, 0, b'x')
        self.check(self.file, status=2, words='was written by other means')

    def test_an_attribute_that_was_taken_away_is_an_error(self):
        self.make('fast')
        os.removexattr(self.file, 'user.ato')
        self.check(self.file, status=2, words='was taken away')

    def test_an_attribute_of_another_pairing_is_an_error(self):
        self.make('fast')
        value = os.getxattr(self.file, 'user.ato')
        os.setxattr(self.file, 'user.ato', value[:5] + bytes(b'0' * 32) + value[37:])
        self.check(self.file, status=2, words='no such reflection')

    def test_a_damaged_attribute_is_an_error(self):
        self.make('fast')
        for value in b'', b'ato1', b'ato1 ' + b'z' * 60, b'x' * 4000:
            os.setxattr(self.file, 'user.ato', value)
            self.check(self.file, status=2, words='user.ato is damaged')

    def test_an_attribute_without_its_reflection_is_an_error(self):
        self.make('fast')
        os.unlink(self.manifest())
        self.check(self.file, status=2, words='no such reflection')
        self.check(self.dir, status=2, words='a reflection without manifest')

    def test_a_copy_with_its_attribute_is_a_warning(self):
        shutil.copy2(self.make('fast'), self.dir + '/copy')
        self.check(self.dir + '/copy', status=1, words='carries the attribute')
        self.assertEqual(self.info(self.dir + '/copy')['state'], 'copied')

    def test_a_manifest_without_its_reflection_is_an_error(self):
        self.make('fast')
        os.unlink(self.reflection())
        self.check(self.file, status=2, words='is missing')

    def test_orphans_are_noted(self):
        os.unlink(self.make('fast'))
        self.check(self.dir, status=1, words='an orphan: no file of the folder')

    def test_a_reflection_without_manifest_is_noted(self):
        os.mkdir(self.dir + '/.ato')
        with open(self.dir + '/.ato/123', 'wb'):
            pass
        self.check(self.dir, status=1, words='a reflection without manifest')

    def test_what_is_left_over_is_noted(self):
        self.make('fast')
        for name in ('journal-' + '0' * 32 + '.tmp', '17.stale-01234567',
                     '17.stale-01234567.manifest', 'notes'):
            with open(f'{self.dir}/.ato/{name}', 'wb'):
                pass
        os.mkdir(self.dir + '/.ato.0123456789abcdef.tmp')
        found = self.check(self.dir, status=1, words='whose making was interrupted')
        self.assertEqual(sorted(f['severity'] for f in found), ['note'] * 5)

    def test_a_reused_inode_number_is_a_warning(self):
        self.make('fast')
        os.removexattr(self.file, 'user.ato')
        self.set_fields(self.manifest(), 64, struct.pack('<q', 1))
        self.set_fields(self.manifest(), 76, struct.pack('<I', 1))
        self.check(self.file, status=1, words='had this inode number before')
        found = self.info(self.file)
        self.assertEqual((found['state'], found['id']), ('plain', None))

    def test_a_damaged_journal_is_an_error(self):
        self.make('commit')
        journal = self.journal()
        for at in range(0, os.path.getsize(journal), 4096):
            if self.peek(journal, at, 8) == b'AJOURNAL':
                break
        self.patch(journal, at + 4096 + 65536, struct.pack('<Q', 99))
        found = self.check(self.file, status=2, words='lane 1 is damaged')
        self.assertTrue(any(f['file'] == journal for f in found))
        self.patch(journal, at, b'x')
        self.check(self.file, status=2, words='no valid header')
        os.truncate(journal, 100)
        self.check(self.file, status=2, words='no valid header')

    def test_a_commit_that_names_no_word_is_an_error(self):
        self.make('commit')
        os.truncate(self.reflection(), 4096)
        self.check(self.file, status=2, words='has no bitmap word there')

    def test_a_symbolic_link_as_reflection_folder_is_an_error(self):
        os.rename(os.path.dirname(self.reflection(self.make('fast'))), self.dir + '/real')
        os.symlink('real', self.dir + '/.ato')
        self.check(self.file, status=2, words='is a symbolic link')
        self.check(self.dir, status=2, words='is a symbolic link')

    def test_files_made_by_somebody_who_may_not_write_to_the_file_are_an_error(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to give files away')
        self.make('fast')
        os.chmod(self.file, 0o644)
        for planted in self.manifest, self.reflection:
            os.chown(planted(), NOBODY, NOBODY)
            self.check(self.file, status=2, words='belongs to user')
            os.chown(planted(), 0, 0)

    def test_names_that_are_no_regular_files_do_no_harm(self):
        self.make('fast')
        os.unlink(self.manifest())
        os.mkfifo(self.manifest())
        self.check(self.file, status=3)
        os.unlink(self.manifest())
        os.symlink('/etc/passwd', self.manifest())
        self.check(self.file, status=3)
        self.check(self.dir, status=3)

    def test_what_cannot_be_looked_at_is_3(self):
        os.mkfifo(self.dir + '/pipe')
        self.check(self.dir + '/none', status=3)
        self.check(self.dir + '/pipe', status=3)

    def test_no_permission_is_3(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to be nobody')
        self.make('fast')
        os.chmod(self.dir + '/.ato', 0)
        found = self.json('check', self.file, status=3, user=NOBODY)['findings']
        self.assertIn('Permission denied', found[0]['what'])
        os.chmod(self.dir + '/.ato', 0o700)
        os.chmod(self.file, 0)
        self.json('check', self.file, status=3, user=NOBODY)

    def test_damage_goes_before_what_could_not_be_looked_at(self):
        self.make('fast')
        os.truncate(self.reflection(), 0)
        self.check(self.dir + '/none', self.file, status=2)

    def test_a_reflection_folder_is_checked_by_itself(self):
        os.unlink(self.make('fast'))
        self.assertEqual(self.check(self.dir + '/.ato', status=0), [])
        self.make('write', 'other')
        self.check(self.dir + '/.ato', status=1, words='recovery due')
        self.assertEqual(self.json('check', self.dir + '/.ato', status=1)['files_plain'], 0)

    def test_quiet_says_only_what_is_found(self):
        self.make('fast')
        self.assertEqual(self.out('check', '-q', self.file), '')

    def test_finds_nothing_wrong_with_a_file_that_is_mapped_and_unmapped_meanwhile(self):
        self.make()
        loop = 'for i in $(seq 40); do "$0" fast "$1"; "$0" spatial "$1"; done'
        with subprocess.Popen(['sh', '-c', loop, ACTOR, self.file], env=self.env) as busy:
            while busy.poll() is None:
                found = self.ato('check', self.dir)
                self.assertEqual(len(found.stdout.splitlines()), 1, found)

    def test_finds_nothing_wrong_with_a_file_that_grows_meanwhile(self):
        self.make()
        with subprocess.Popen([ACTOR, 'grow', self.file], env=self.env,
                              stdin=subprocess.PIPE) as busy:
            while not os.path.exists(self.manifest()):
                self.assertIsNone(busy.poll())
            for _ in range(150 if self.below == '/dev/shm' else 30):
                done = self.ato('check', self.file)
                self.assertEqual(len(done.stdout.splitlines()), 1, done)
            self.remember(self.file)
            busy.stdin.close()
            self.assertEqual(busy.wait(), 0)

    def test_random_damage_never_crashes_it(self):
        import random
        dice = random.Random(7)
        for round_ in range(60 if self.below == '/dev/shm' else 10):
            name = f'file{round_}'
            path = self.make('commit' if round_ % 3 == 0 else 'fast', name)
            victims = [os.path.join(self.dir, '.ato', n) for n in os.listdir(self.dir + '/.ato')]
            victim = dice.choice(victims)
            size = os.path.getsize(victim)
            for _ in range(dice.randrange(1, 6)):
                self.patch(victim, dice.randrange(min(size, 9000) or 1),
                           dice.randbytes(dice.randrange(1, 40)))
            if dice.random() < 0.3:
                os.truncate(victim, dice.randrange(size + 1))
            for words in ['check', self.dir], ['check', path], ['info', path]:
                done = subprocess.run([ATO, *words], capture_output=True, env=self.env, check=False)
                self.assertIn(done.returncode, (0, 1, 2, 3), done)
            shutil.rmtree(self.dir + '/.ato')
            os.unlink(path)


class Deploy(Lab):
    def content(self, path=None):
        with open(path or self.file, 'rb') as f:
            return f.read()

    def expect_plain(self, path=None):
        self.assertEqual(self.info(path or self.file)['state'], 'plain')
        with self.assertRaises(OSError):
            os.getxattr(path or self.file, 'user.ato')

    def test_makes_a_file_of_each_state_plain(self):
        for state in STATES:
            with self.subTest(state):
                path = self.make(state, state)
                result = self.json('deploy', path)['files'][0]
                self.assertEqual(result['result'],
                                 'plain already' if STATES[state] == 'plain' else 'deployed')
                self.expect_plain(path)
        self.assertEqual(os.listdir(self.dir + '/.ato'), [])
        self.assertEqual(self.shared(), set())

    def test_brings_home_what_was_written(self):
        self.make('spatial')
        expected = self.content()
        self.make('fast', 'other')
        self.assertNotEqual(self.content(self.dir + '/other'), expected)
        found = self.json('deploy', self.dir + '/other')['files'][0]
        self.assertEqual(found['slices_brought_home'], 8999 // 64 - 3000 // 64 + 1)
        self.assertEqual(self.content(self.dir + '/other'), expected)

    def test_puts_guarded_bytes_back_also_where_that_was_interrupted(self):
        for state in 'guard', 'unguard':
            path = self.make(state, state)
            self.assertEqual(self.content(path)[18:20], b'\xff\xff')
            self.ato('deploy', path)
            self.assertEqual(self.content(path)[18:20], bytes([18 * 7 & 255, 19 * 7 & 255]))

    def test_takes_an_interrupted_growth_back(self):
        self.make('growth')
        self.ato('deploy', self.file)
        self.assertEqual(len(self.content()), SIZE)

    def test_a_plain_file_is_no_error_and_stays_as_it_is(self):
        self.make()
        before = self.snapshot()
        self.assertEqual(self.out('deploy', self.file), self.file + ': is plain already\n')
        self.assertEqual(self.snapshot(), before)

    def test_refuses_a_mapped_file_and_says_who_has_it(self):
        actor = self.hold(self.make())
        text = self.err('deploy', self.file, status=1)
        self.assertEqual(text, f'{self.file}: is mapped by pid {actor.pid} (a"holder\\x0a)\n')
        found = self.json('deploy', self.file, status=1)['files'][0]
        self.assertEqual(found['result'], 'mapped')
        self.assertEqual(found['mapped_by'][0]['pid'], actor.pid)
        actor.end()
        self.json('deploy', self.file)
        self.expect_plain()

    def test_uses_the_domain_that_the_file_has(self):
        self.make('fast', ACTOR_DOMAIN='1')
        log = self.dir + '/log'
        # The medium is weaker; asked for that domain, the library says so.
        self.ato('deploy', self.file, ATO_LOG=log, ATO_DURABILITY='process')
        with open(log, encoding='utf-8') as f:
            self.assertIn('in domain pmem as asked', f.read())

    def test_leaves_what_is_damaged_as_it_is(self):
        self.make('fast')
        os.truncate(self.reflection(), 4096)
        shutil.copy2(self.make('fast', 'source'), self.dir + '/copy')
        lost = self.make('fast', 'lost')
        os.unlink(self.manifest(lost))
        before = self.snapshot()
        for path in self.file, self.dir + '/copy', lost:
            self.assertEqual(self.json('deploy', path, status=2)['files'][0]['result'], 'refused')
        self.assertEqual(self.snapshot(), before)

    def test_goes_on_after_a_file_that_it_cannot_deploy(self):
        path = self.make('fast')
        found = self.json('deploy', self.dir, self.dir + '/none', path, status=3)
        self.assertEqual([f['result'] for f in found['files']],
                         ['not looked at', 'not looked at', 'deployed'])

    def test_needs_permission(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to be nobody')
        self.make('fast')
        self.assertIn('Permission denied', self.err('deploy', self.file, status=3, user=NOBODY))

    def test_an_empty_file_is_made_plain(self):
        self.make('empty')
        self.assertEqual(self.info(self.file)['state'], 'clean')
        self.json('deploy', self.file)
        self.expect_plain()

    def test_a_bar_is_shown_on_a_terminal_only(self):
        self.make('fast')
        terminal, other = os.openpty()
        subprocess.run([ATO, 'deploy', self.file], stderr=other, stdout=subprocess.DEVNULL,
                       env=self.env, check=True)
        os.close(other)
        shown = b''
        try:
            while piece := os.read(terminal, 1000):
                shown += piece
        except OSError:  # EIO is its end
            pass
        os.close(terminal)
        self.assertIn(b'\r[##############################] 100 %  file', shown)
        self.assertEqual(self.ato('deploy', self.make('fast', 'other')).stderr, b'')

    def test_may_be_killed_and_done_again(self):
        self.make('spatial')
        expected = self.content()
        for round_ in range(20 if self.below == '/dev/shm' else 5):
            path = self.make('fast', f'file{round_}')
            with subprocess.Popen([ATO, 'deploy', path], env=self.env,
                                  stdout=subprocess.DEVNULL) as tool:
                time.sleep(round_ / 4000)
                tool.send_signal(signal.SIGKILL)
            self.ato('deploy', path)
            self.assertEqual(self.content(path), expected)
            self.expect_plain(path)


class Doctor(Lab):
    def test_says_what_the_machine_and_the_folder_offer(self):
        found = self.json('doctor', self.dir)
        with open('/proc/cpuinfo', encoding='ascii', errors='replace') as f:
            flags = next((line for line in f if line.startswith('flags')), '').split()
        for key, flag in ('avx2', 'avx2'), ('avx512', 'avx512f'), ('clwb', 'clwb'):
            self.assertEqual(found['cpu'][key], flag in flags, key)
        self.assertIsInstance(found['cpu']['rtm_commits'], bool)
        self.assertIn(found['cpu']['copy_kernel'], ('avx512', 'avx2', 'sse2'))
        self.assertTrue(found['can_map'])
        self.assertTrue(found['file_system']['fallocate'])
        self.assertGreater(found['file_system']['free'], 0)
        self.assertGreater(found['shm']['size'], 0)
        self.assertEqual(found['obstacles'], [])

    def test_its_domain_is_the_one_that_a_file_gets(self):
        self.assertEqual(self.json('doctor', self.dir)['domain'],
                         self.info(self.make('fast'))['domain'])

    def test_says_what_a_domain_survives(self):
        for domain, words in ('process', 'They are not when the kernel crashes'), \
                             ('msync', 'each write waits for the disk'), ('pmem', 'a power cut'):
            text = self.out('doctor', self.dir, ATO_DURABILITY=domain)
            self.assertIn(f"gets the durability domain '{domain}'", text)
            self.assertIn(words, text)

    def test_a_word_that_is_no_domain_is_an_obstacle(self):
        found = self.json('doctor', self.dir, status=1, ATO_DURABILITY='sometimes')
        self.assertFalse(found['can_map'])
        self.assertIn('cannot be mapped', self.out('doctor', self.dir, status=1,
                                                   ATO_DURABILITY='sometimes'))

    def test_the_weaker_medium_counts(self):
        found = self.json('doctor', self.dir, ATO_REFLECTION_DIR='/dev/shm')
        self.assertEqual(found['domain'], 'process')

    def test_leaves_nothing_behind(self):
        self.make('fast')
        before = self.snapshot()
        self.out('doctor', self.dir)
        self.assertEqual(self.snapshot(), before)

    def test_looks_at_the_working_directory_by_itself(self):
        self.assertEqual(self.json('doctor')['folder'], '.')

    def test_a_folder_in_which_no_file_can_be_made_is_an_obstacle(self):
        self.assertIn('no file can be made there', self.out('doctor', '/proc', status=1))
        if os.getuid() == 0:
            found = self.json('doctor', self.dir, status=1, user=NOBODY)
            self.assertIn('Permission denied', found['obstacles'][0])
            self.assertIsNone(found['domain'])

    def test_a_reflection_folder_that_is_not_taken_is_an_obstacle(self):
        for place in '/nonexistent/deep/x', '/etc/passwd':
            found = self.json('doctor', self.dir, status=1, ATO_REFLECTION_DIR=place)
            self.assertIn('reflections have no place', found['obstacles'][0])
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

    def test_what_is_no_folder_is_told(self):
        for path in self.make(), self.dir + '/none':
            self.assertIn('cannot look at it', self.err('doctor', path, status=3))
            self.assertIsNotNone(self.json('doctor', path, status=3)['error'])


class Result(unittest.TextTestResult):
    """A line a case, as GoogleTest's."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def say(self, word, test, why=''):
        ms = int(1000 * (time.monotonic() - self.began))
        name = f'{type(test).__name__}.{test.id().rsplit(".", 1)[1]}'
        self.stream.write(f'{why}[ {word:>8} ] {name} ({ms} ms)\n')
        self.stream.flush()

    def addSuccess(self, test):
        self.say('OK', test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say('FAILED', test)

    def addError(self, test, err):
        super().addError(test, err)
        self.say('FAILED', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say('SKIPPED', test, reason + '\n')

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.say('FAILED', test, f'{subtest}\n')


class Runner(unittest.TextTestRunner):
    resultclass = Result


def on_disk(kind):
    """The same cases on a disk."""
    return type(kind.__name__ + 'OnDisk', (kind,), {'below': list(folders())[1]})


if len(list(folders())) > 1:
    InfoOnDisk, CheckOnDisk, DeployOnDisk, DoctorOnDisk = (
        on_disk(kind) for kind in (Info, Check, Deploy, Doctor))

if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]],
                  testRunner=Runner(stream=sys.stdout, verbosity=0))
