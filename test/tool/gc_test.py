#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does `ato gc` find all that is left, and remove nothing that is needed?

It removes the shared memory of any file, so this program gives itself a /dev/shm of its own, in which no other test has any.
"""
import fcntl
import os
import shutil
import struct
import subprocess
import sys

if 'ATO_GC_TEST' not in os.environ:
    command = ['unshare', '--mount', *([] if os.geteuid() == 0 else ['--user', '--map-root-user'])]
    script = 'mount -t tmpfs tmpfs /dev/shm && chmod 1777 /dev/shm && exec "$@"'
    if subprocess.run([*command, 'sh', '-c', script, '-', 'true'], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        print('no permission for a /dev/shm of its own, which this test needs')
        sys.exit(77)
    os.environ['ATO_GC_TEST'] = '1'
    os.execvp(command[0], [*command, 'sh', '-c', script, '-', sys.executable, *sys.argv])

import lab  # pylint: disable=wrong-import-position
from lab import ACTOR, Lab, of_reflections  # pylint: disable=wrong-import-position


class Gc(Lab):
    def setUp(self):
        super().setUp()
        self.sub = os.path.join(self.dir, 'sub')
        os.mkdir(self.sub)

    def tearDown(self):
        for name in self.objects():
            os.unlink('/dev/shm/' + name)
        super().tearDown()

    @staticmethod
    def objects():
        return sorted(n for n in os.listdir('/dev/shm') if n.startswith('ato-') and len(n) > 36)

    def gc(self, *words, status=0, where=None, **more):
        """{name: (kind, result)} of what is found."""
        found = self.json('gc', *words, where or self.dir, status=status, **more)
        self.assertTrue(all(i['bytes'] or i['kind'] == 'unfinished' for i in found['items']), found)
        return {os.path.basename(i['path']): (i['kind'], i['result']) for i in found['items']}

    def settles(self, found, where=None):
        """A dry run finds this, and changes nothing; then --delete removes what is useless, and all is in order."""
        before = self.snapshot(), self.objects()
        self.assertEqual(self.gc(where=where), found)
        self.assertEqual((self.snapshot(), self.objects()), before)
        after = {n: (k, 'removed' if r == 'useless' else r) for n, (k, r) in found.items()}
        self.assertEqual(self.gc('--delete', where=where), after)
        left = {n: what for n, what in after.items() if what[1] != 'removed'}
        self.assertEqual(self.gc(where=where), left)

    def test_files_that_are_there_keep_all_they_have(self):
        for state in 'plain', 'fast', 'spatial', 'birth', 'death', 'growth', 'guard', 'unguard':
            self.make(state, 'sub/' + state)
        states = {n: self.info(os.path.join(self.sub, n))['state'] for n in os.listdir(self.sub)
                  if n != '.ato'}
        memory = {n: ('shared memory', 'removed') for n in self.objects()}
        self.assertTrue(memory)
        self.assertEqual(self.gc('--delete=all'), memory)
        self.assertEqual({n: self.info(os.path.join(self.sub, n))['state'] for n in states}, states)
        for name in states:
            self.ato('deploy', os.path.join(self.sub, name))

    def test_a_killed_writer_leaves_shared_memory_and_no_byte_is_lost_with_it(self):
        for state in 'write', 'commit', 'large':
            with self.subTest(state):
                self.make(state)
                self.settles({n: ('shared memory', 'useless') for n in self.objects()})
                self.assertEqual(self.info(self.file)['commits_to_finish'], state != 'write' and not self.has_log)
                self.ato('deploy', self.file)
                os.unlink(self.file)

    def test_nothing_of_a_mapped_file_is_removed(self):
        holder = self.hold(self.make('write'))
        one, = self.objects()
        self.assertEqual(self.gc(), {one: ('shared memory', 'kept')})
        self.assertEqual(self.gc('--delete=all'), {one: ('shared memory', 'kept')})
        # No manifest below this folder names it; the kernel knows that it is open.
        self.assertEqual(self.gc('--delete=all', where=self.sub), {})
        self.assertEqual(self.gc('--delete=all', where='/dev/shm'), {one: ('shared memory', 'kept')})
        # Its name may be gone.
        os.rename(self.file, self.dir + '-moved')
        self.assertEqual(self.gc('--delete=all'), {one: ('shared memory', 'kept')})
        os.rename(self.dir + '-moved', self.file)
        holder.end()
        self.assertEqual(self.info(self.file)['state'], 'clean')

    def test_memory_of_a_folder_that_is_gone(self):
        self.make('write', 'sub/file')
        one, = self.objects()
        shutil.rmtree(self.sub)
        os.mkdir(self.sub)
        self.settles({})
        self.settles({one: ('shared memory', 'useless')}, where='/dev/shm')
        self.assertEqual(self.objects(), [])

    def test_deals_only_with_the_folder_that_is_named(self):
        self.make('write', 'sub/file')
        os.mkdir(self.dir + '/other')
        os.unlink(self.make('empty', 'other/file'))
        self.make('write', 'other/second')
        before = self.snapshot(), self.objects()
        self.assertEqual(len(self.objects()), 2)
        mine = [n for n in self.objects() if n[4:36] == self.info(self.sub + '/file')['id']]
        self.assertEqual(self.gc('--delete=all', where=self.sub), {mine[0]: ('shared memory', 'removed')})
        self.assertEqual((self.snapshot()[0], self.objects()), (before[0][0], [n for n in before[1] if n not in mine]))

    def test_a_pairing_goes_with_its_shared_memory(self):
        self.make('mapped', 'sub/file')
        one, = self.objects()
        manifest = os.path.basename(self.manifest(self.sub + '/file'))
        os.unlink(self.sub + '/file')
        self.assertEqual(self.gc('--delete=all'), {manifest: ('reflection', 'removed'), one: ('shared memory', 'removed')})
        self.assertEqual(self.objects(), [])

    def test_a_map_that_replaces_a_reflection_removes_the_shared_memory_of_the_old_one(self):
        def kill():
            subprocess.run([ACTOR, 'mapped', self.make()], env=self.env, check=False,
                           stdin=subprocess.DEVNULL)
            self.assertEqual(len(self.objects()), 1)

        kill()
        with open(self.file, 'wb') as f:  # another length, and nothing is in the reflection
            f.write(bytes(30000))
        subprocess.run([ACTOR, 'fast', self.file], env=self.env, check=True)
        self.assertEqual(self.objects(), [])
        os.unlink(self.file)
        kill()
        os.removexattr(self.file, 'user.ato')
        self.change_birth()  # as if the inode number were another file's now
        subprocess.run([ACTOR, 'fast', self.file], env=self.env, check=True)
        self.assertEqual(self.objects(), [])

    def test_a_manifest_that_names_another_file_does_not_cost_that_its_shared_memory(self):
        other = self.make('write')
        one, = self.objects()
        inode, fields = os.stat(other).st_ino, self.peek(self.manifest(), 0, 504)
        os.rename(self.file, self.sub + '/other')
        self.make('fast')
        own = os.stat(self.file).st_ino
        self.assertNotEqual(own, inode)
        at = self.peek(self.manifest(), 0, 504).index(struct.pack('<Q', own))
        self.assertEqual(fields[at:at + 8], struct.pack('<Q', inode))
        self.set_fields(self.manifest(), at, struct.pack('<Q', inode))
        self.set_fields(self.manifest(), 32, fields[32:48])  # the id
        self.set_fields(self.manifest(), 128, fields[128:136])  # the generation of the shared memory
        os.removexattr(self.file, 'user.ato')
        subprocess.run([ACTOR, 'fast', self.file], env=self.env, check=True)
        self.assertTrue(any('.stale-' in n for n in self.left()))
        self.assertEqual(self.objects(), [one])

    def test_what_only_has_the_name_of_shared_memory_is_kept(self):
        name = f'ato-{"0123456789abcdef" * 2}-1'
        for other in name, name + 'x', 'ato-test', f'ato-{"0" * 32}-01':
            with open('/dev/shm/' + other, 'wb') as f:
                f.write(b'a file of a user' * 300)
            self.addCleanup(lambda n=other: os.path.exists('/dev/shm/' + n) and
                            os.unlink('/dev/shm/' + n))
        self.assertEqual(self.gc('--delete=all', where='/dev/shm'), {name: ('shared memory', 'kept')})

    def test_the_table_of_snapshots_goes_with_its_object_or_alone(self):
        holder = self.hold(self.make('write'))
        self.out('cp', self.file, self.file + '-copy')  # by a snapshot
        one, table = self.objects()
        self.assertEqual(table, one + '-s')
        self.assertEqual(self.gc('--delete=all', where='/dev/shm'), {one: ('shared memory', 'kept')})
        holder.kill()
        holder.wait()
        found = {i['path']: i['bytes'] for i in self.json('gc', self.dir)['items']}
        blocks = sum(os.stat('/dev/shm/' + n).st_blocks for n in (one, table))
        self.assertEqual(found, {'/dev/shm/' + one: blocks * 512})
        with open('/dev/shm/' + table, 'rb') as file:
            content = file.read()
        self.settles({one: ('shared memory', 'useless')})
        self.assertEqual(self.objects(), [])
        # A process was killed between the two.
        for where in self.dir, '/dev/shm':
            with open('/dev/shm/' + table, 'wb') as file:
                file.write(content[:100])
                file.flush()
                self.assertEqual(self.gc('--delete=all', where=where), {table: ('shared memory', 'kept')}, 'it is open')
            self.assertEqual(self.gc('--delete=all', where=where), {table: ('shared memory', 'kept')}, 'it is of a user')
            with open('/dev/shm/' + table, 'wb') as file:
                file.write(content)
            self.settles({table: ('shared memory', 'useless')}, where=where)
            self.assertEqual(self.objects(), [])
        self.ato('deploy', self.file)

    def test_memory_of_programs_with_locks_of_their_own(self):
        # ato_shared() of a file 7:9, by its root user, of one page.
        name, header = '/dev/shm/ato-7-9-0', struct.pack('<QIIQQQ', 0x4c52544f4d454d31, 5, 0, 7, 9, 8192)
        with open(name, 'wb') as file:
            file.write(header.ljust(8192, b'\0'))
            file.flush()
            self.assertEqual(self.gc('--delete', where='/dev/shm'), {'ato-7-9-0': ('shared memory', 'kept')})
        self.assertEqual(self.gc('--delete'), {}, 'it is of no folder')
        os.rename(name, '/dev/shm/ato-8-9-0')
        self.assertEqual(self.gc('--delete', where='/dev/shm'), {'ato-8-9-0': ('shared memory', 'kept')})
        os.rename('/dev/shm/ato-8-9-0', name)
        self.assertEqual(self.gc('--delete', where='/dev/shm'), {'ato-7-9-0': ('shared memory', 'removed')})
        self.assertFalse(os.path.exists(name))

    @of_reflections
    def test_a_reflection_whose_file_is_gone(self):
        self.make('fast')
        manifest = os.path.basename(self.manifest())
        self.assertTrue(self.info(self.file)['slices_in_reflection'])
        os.rename(self.file, self.dir + '-moved')
        self.addCleanup(lambda: os.path.exists(self.dir + '-moved') and os.unlink(self.dir + '-moved'))
        self.settles({manifest: ('reflection', 'unsure')})
        # A file that was moved is whole again when it is moved back.
        os.rename(self.dir + '-moved', self.file)
        self.assertEqual(self.gc('--delete=all'), {})
        self.assertEqual(self.info(self.file)['state'], 'clean')
        os.rename(self.file, self.sub + '/file')
        self.assertEqual(self.gc('--delete=all'), {})
        os.unlink(self.sub + '/file')
        self.assertEqual(self.gc('--delete=all'), {manifest: ('reflection', 'removed')})
        self.assertEqual(self.left(), [])

    def test_a_log_whose_file_is_gone(self):
        for state, fate in ('logged', 'unsure'), ('fast', 'useless'):
            self.make(state, ACTOR_DOMAIN='3')
            manifest = os.path.basename(self.manifest())
            self.gc('--delete')  # the shared memory
            os.unlink(self.file)
            self.settles({manifest: ('reflection', fate)})
            self.gc('--delete=all')
            self.assertEqual(self.left(), [])

    def test_a_reflection_that_holds_nothing_of_a_file_that_is_gone(self):
        self.make('empty')
        manifest = os.path.basename(self.manifest())
        os.unlink(self.file)
        self.settles({manifest: ('reflection', 'useless')})
        self.assertEqual(self.left(), [])

    def test_guarded_bytes_are_content(self):
        self.make('guard')
        manifest = os.path.basename(self.manifest())
        os.unlink(self.file)
        self.settles({manifest: ('reflection', 'unsure')})

    def test_another_file_has_the_inode_number(self):
        """The file may have been restored without its attribute, and have got its old number by chance."""
        for state, fate in ('fast', 'useless' if self.has_log else 'unsure'), ('empty', 'useless'):
            self.make(state)
            manifest = os.path.basename(self.manifest())
            os.removexattr(self.file, 'user.ato')
            self.change_birth()
            own = self.peek(self.manifest(), 184, 8)
            # The number in a restored manifest tells nothing.
            self.set_fields(self.manifest(), 184, struct.pack('<Q', 7))
            if fate == 'unsure':
                self.settles({manifest: ('reflection', 'unsure')})
            self.set_fields(self.manifest(), 184, own)
            self.settles({manifest: ('reflection', fate)})
            self.assertEqual(self.left(), [manifest, manifest.split('.')[0]][:2 if fate == 'unsure' else 0][::-1])
            shutil.rmtree(self.dir + '/.ato')

    def change_birth(self):
        """The record is of a file that was born at another time."""
        sec = int(subprocess.run(['stat', '-c', '%W', self.file], capture_output=True,
                                 check=True).stdout)
        if sec <= 0:
            self.skipTest('this file system knows no birth time')
        record = self.peek(self.manifest(), 0, 504)
        at = record.index(sec.to_bytes(8, 'little'))
        self.set_fields(self.manifest(), at, (sec - 99).to_bytes(8, 'little'))

    @of_reflections
    def test_what_was_set_aside(self):
        self.make('fast')
        inode = os.stat(self.file).st_ino
        self.patch(self.file, 0, b'other')
        self.ato('deploy', '--prefer=file', '--quiet', self.file)
        names = self.left()
        self.assertEqual([n.split('-')[0] for n in names], [f'{inode}.stale'] * 2)
        open(self.dir + '/.ato/7.stale-notours', 'wb').close()
        self.settles({n: ('set aside', 'unsure') for n in names})
        self.assertEqual(self.gc('--delete=all'), {n: ('set aside', 'removed') for n in names})
        self.assertEqual(self.left(), ['7.stale-notours'])


    def test_a_folder_that_the_user_named(self):
        folder = self.sub + '/reflections'
        os.mkdir(folder)
        subprocess.run([ACTOR, 'fast', self.make()], env={**self.env, 'ACTOR_FOLDER': folder},
                       check=True, stdin=subprocess.DEVNULL)
        self.assertEqual(self.gc(), {})
        manifest = f'{os.stat(self.file).st_ino}.manifest'
        self.assertEqual(self.gc(where=folder), {manifest: ('reflection', 'unsure')})
        self.assertEqual(self.gc('--delete', where=folder), {manifest: ('reflection', 'unsure')})

    def test_a_reflection_folder_stands_for_the_folder_around_it(self):
        self.make('fast')
        self.assertEqual(self.gc('--delete=all', where=self.dir + '/.ato'), {})

    def test_a_damaged_manifest_is_kept(self):
        self.make('fast')
        manifest = self.manifest()
        for copy in 0, 4096:
            self.patch(manifest, copy + 100, b'\xaa\xaa')
        os.unlink(self.file)
        self.assertEqual(self.gc('--delete=all'),
                         {os.path.basename(manifest): ('reflection', 'kept')})

    def test_a_mapped_file_without_a_name_keeps_its_reflection(self):
        holder = self.hold(self.make())
        name = self.manifest()
        os.unlink(self.file)
        self.assertEqual({r for _, r in self.gc('--delete=all').values()}, {'kept'})
        self.assertTrue(os.path.exists(name))
        holder.end()
        self.assertEqual(self.gc('--delete=all'), {os.path.basename(name): ('reflection', 'removed')})

    def test_a_locked_manifest_is_kept(self):
        """Each byte that a process may lock: it is mapping the file, has it mapped, or reads it."""
        self.make('empty')
        name = self.manifest()
        os.unlink(self.file)
        for byte in 0, 1, 1024, 1025:
            with open(name, 'r+b') as f:
                fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack('hhlli4x', fcntl.F_WRLCK, 0, byte, 1, 0))
                self.assertEqual(self.gc('--delete=all'), {}, byte)
        self.assertEqual(self.gc('--delete=all'), {os.path.basename(name): ('reflection', 'removed')})

    def test_a_user_without_permission_removes_nothing(self):
        with open('/proc/self/uid_map', encoding='ascii') as f:
            if int(f.read().split()[2]) <= lab.NOBODY:
                self.skipTest('only root may be another user')
        self.make('write')
        self.make('empty', 'other')
        os.unlink(self.dir + '/other')
        for path, _, names in os.walk(self.dir):
            for name in names:
                os.chmod(os.path.join(path, name), 0o644)
        before = self.snapshot(), self.objects()
        found = self.gc('--delete=all', status=1, user=lab.NOBODY)
        self.assertEqual(sorted(found.values()), [('reflection', 'failed'), ('shared memory', 'kept')])
        self.assertEqual((self.snapshot(), self.objects()), before)

    def test_output_and_wrong_use(self):
        self.assertEqual(self.out('gc', self.sub), 'nothing was left\n')
        self.make('empty')
        os.unlink(self.file)
        text = self.out('gc', self.dir)
        self.assertIn('.manifest: useless: reflection, ', text)
        self.assertIn("useless; 'ato gc --delete' removes it: 1, ", text)
        done = self.ato('gc', self.dir + '/none', status=2)
        self.assertIn(b'/none: not looked at: folder, cannot look at it: No such file', done.stderr)
        self.err('gc', '--delete=some', self.dir, status=64)
        self.err('info', '--delete', self.dir, status=64)
        self.err('gc', self.dir, self.dir, status=64)


if __name__ == '__main__':
    lab.main(globals())
