#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does `ato check` find each damage, and report nothing else?"""
import binascii
import os
import shutil
import struct
import subprocess
import time

import lab
from lab import ACTOR, ATO, NOBODY, SIZE, Lab, of_reflections


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
        self.check(self.file, status=0, words='recovery due: its last user died')

    def test_an_owner_that_died_in_a_commit_makes_recovery_due(self):
        for state in 'commit', 'large':
            self.make(state)
            self.assertEqual(self.info(self.file)['commits_to_finish'], 0 if self.has_log else 1)
            found = self.check(self.dir, status=0, words='recovery due: ' + ('its last user died' if self.has_log else
                                                                           '1 commit of a dead process'))
            self.assertTrue(all(f['severity'] == 'note' for f in found), found)
            self.ato('deploy', self.file)

    def test_interrupted_births_and_removals_are_noted(self):
        self.make('birth')
        self.check(self.file, status=0, words='born: its reflection was being made')
        self.make('death', 'other')
        self.check(self.dir + '/other', status=0, words='its reflection is being removed')

    def test_an_interrupted_growth_is_noted(self):
        self.make('growth')
        self.check(self.file, status=0, words='its growth from 20000 bytes to 30000 was interrupted')
        with open(self.file, 'r+b') as f:
            f.seek(29000)
            f.write(b'x')
        self.check(self.file, status=1, words='it was cut, lengthened or replaced by other means')

    def test_a_size_that_only_the_log_has_is_noted(self):
        """The power failed before the kernel had written the size word back, and after it had written the file."""
        self.make('appended')
        if not self.has_log:
            return
        size = struct.pack('<Q', SIZE)[:6]
        self.patch(self.manifest(), 8192, size + struct.pack('<H', binascii.crc_hqx(size[::-1], 0xffff)))
        self.check(self.file, status=0, words='recovery due: its last user died')
        self.ato('deploy', self.file)

    def test_one_damaged_copy_of_the_manifest_is_a_warning(self):
        for copy in 0, 4096:
            path = self.make('fast', f'file{copy}')
            self.patch(self.manifest(path), copy + 100, b'\xaa\xaa')
            # The older copy may have another state, which counts then.
            found = self.json('check', path, status=0 if self.info(path)['state'] != 'damaged'
                              else 1)['findings']
            self.assertIn(f'copy {"AB"[copy // 4096]} of the manifest', found[0]['what'])

    def test_two_damaged_copies_of_the_manifest_are_an_error(self):
        self.make('fast')
        for copy in 0, 4096:
            self.patch(self.manifest(), copy + 100, b'\xaa\xaa')
        found = self.check(self.file, status=1, words='has a wrong checksum')
        self.assertEqual([f['severity'] for f in found], ['error'])
        self.assertEqual(self.info(self.file)['state'], 'damaged')

    def test_fields_that_make_no_sense_are_an_error(self):
        self.make('fast')
        self.set_fields(self.manifest(), 20, struct.pack('<I', 9))
        self.check(self.file, status=1, words='an invalid field')

    def test_another_version_is_an_error_with_advice(self):
        for state in 'fast', 'write':
            path = self.make(state, state)
            for version, advice in (7, 'a newer libato made it'), (1, 'an older libato made it'):
                self.set_fields(self.manifest(path), 8, struct.pack('<I', version))
                self.check(path, status=1, words=f'version {version} and')
                self.check(path, status=1, words=advice)
                found = self.info(path)
                self.assertEqual(found['state'], 'damaged')
                self.assertIn(advice, found['problem'])
                self.assertIn(advice, self.err('deploy', path, status=1))

    def test_a_damaged_size_word_is_an_error(self):
        self.make('fast')
        self.patch(self.manifest(), 8192, b'\x01')
        self.check(self.file, status=1, words='size words')

    def test_unknown_names_are_noted_and_do_not_prevent_a_deploy(self):
        self.make('fast')
        for name in 'journal-0123456789ab', 'journal-' + 32 * 'a' + '.bak', '12x':
            with open(f'{self.dir}/.ato/{name}', 'wb') as f:
                f.write(b'not ours')
        found = self.check(self.dir, status=0, words='not a name that libato uses')
        self.assertEqual([f['severity'] for f in found], 3 * ['note'])
        self.ato('deploy', self.file)

    def test_a_truncated_reflection_is_an_error(self):
        self.make('fast')
        for length in 5 * 4096, 100, 0:
            os.truncate(self.reflection(), length)
            found = self.check(self.file, status=1, words='the log has no valid header' if self.has_log else
                               f'{length} bytes long, it should be 24576')
            self.assertEqual(len(found), 1)
            self.assertEqual(self.info(self.file)['state'], 'damaged')

    @of_reflections
    def test_a_long_reflection_is_a_warning(self):
        self.make('fast')
        os.truncate(self.reflection(), 1 << 20)
        self.check(self.file, status=0, words='bytes long, it should be 24576')

    @of_reflections
    def test_a_sparse_reflection_of_parts_of_chunks_is_an_error(self):
        self.make('fast', ATO_FORMAT='sparse')
        for more in 1, 4096:
            with self.subTest(more=more):
                length = os.stat(self.reflection()).st_size
                os.truncate(self.reflection(), length + more)
                self.check(self.file, status=1, words='or more, in whole chunks')
                self.assertEqual(self.info(self.file)['state'], 'damaged')
                os.truncate(self.reflection(), length)
        self.check(self.file, status=0)

    @of_reflections
    def test_two_bitmaps_of_a_page_are_an_error(self):
        self.make('fast', ATO_FORMAT='sparse')
        slices = self.json('map', self.file)['slices']
        for place in range(16): # more than fit
            self.patch(self.reflection(), place * 16, struct.pack('<QQ', 0, 2**64 - 1))
        self.check(self.file, status=1, words='15 bitmap words are of pages that have another one, the first is of page 0')
        self.assertLessEqual(self.json('map', self.file)['slices_in_reflection'], slices)
        self.out('map', self.file)

    def test_a_truncated_manifest_is_an_error(self):
        self.make('fast')
        for length in 8192, 5000, 4096, 300, 1, 0:
            os.truncate(self.manifest(), length)
            self.check(self.dir, status=1, words='the manifest' if length else '.manifest is empty: neither of its copies is valid. Bring back')

    @of_reflections
    def test_words_beyond_the_end_are_errors(self):
        self.make('fast')
        self.patch(self.reflection(), 5 * 8, struct.pack('<Q', 1))
        self.patch(self.reflection(), 511 * 8, struct.pack('<Q', 1))
        self.check(self.file, status=1, words='2 bitmap words of pages beyond the end')

    @of_reflections
    def test_slices_beyond_the_end_are_errors(self):
        self.make('fast')
        self.patch(self.reflection(), 4 * 8 + 7, b'\xc0')
        self.check(self.file, status=1, words='names 2 slices beyond the end')

    @of_reflections
    def test_a_write_by_others_is_an_error(self):
        self.make('fast')
        self.patch(self.file, 0, b'x')
        self.check(self.file, status=1, words='was written by other means')
        os.truncate(self.file, 4096)
        self.check(self.file, status=1, words="Keep the bytes of the file by 'ato deploy --prefer=file")
        self.check(self.file, status=1, words="unless a backup was copied over it, give it its length again by 'truncate")

    def test_a_removed_attribute_is_an_error(self):
        self.make('fast')
        os.removexattr(self.file, 'user.ato')
        self.check(self.file, status=1, words='was taken away')

    def test_an_attribute_of_another_pairing_is_an_error(self):
        self.make('fast')
        value = os.getxattr(self.file, 'user.ato')
        os.setxattr(self.file, 'user.ato', value[:5] + bytes(b'0' * 32) + value[37:])
        self.check(self.file, status=1, words='no such reflection')

    def test_a_damaged_attribute_is_an_error(self):
        self.make('fast')
        for value in b'', b'ato1', b'ato1 ' + b'z' * 60, b'x' * 4000:
            os.setxattr(self.file, 'user.ato', value)
            self.check(self.file, status=1, words='user.ato is damaged')

    def test_an_attribute_without_its_reflection_is_an_error(self):
        self.make('fast')
        os.unlink(self.manifest())
        self.check(self.file, status=1, words='no such reflection')
        self.check(self.dir, status=1, words='a reflection without a manifest')

    def test_a_copy_with_its_attribute_is_a_warning(self):
        shutil.copy2(self.make('fast'), self.dir + '/copy')
        self.check(self.dir + '/copy', status=1, words='carries the attribute')
        self.assertEqual(self.info(self.dir + '/copy')['state'], 'copied')

    def test_a_restored_file_that_is_apart_from_its_reflection_is_an_error(self):
        self.make('write' if self.has_log else 'fast')  # a log that is unmapped holds nothing
        for attributes in True, False:
            path = self.restore(f'restored-{attributes}', attributes=attributes)
            self.check(path, status=1, words=f"/{os.stat(self.file).st_ino}, made for another inode number")
            found = self.check(os.path.dirname(path), status=1, words='was restored')
            self.assertEqual([(f['severity'], f['file']) for f in found], [('error', path)])
            self.assertEqual(self.info(path)['state'], 'apart')

    def test_a_manifest_without_its_reflection_is_an_error(self):
        self.make('fast')
        os.unlink(self.reflection())
        self.check(self.file, status=1, words='is missing')

    def test_orphans_are_noted(self):
        self.make('fast')
        manifest = self.manifest()
        os.unlink(self.file)
        self.check(self.dir, status=0, words='an orphan: no file of the folder')
        self.check(self.dir, status=0, words='removed or moved')
        self.set_fields(manifest, 184, struct.pack('<Q', 7))
        self.check(self.dir, status=0, words='it was restored, and no file is known to be its own')

    def test_a_reflection_without_manifest_is_noted(self):
        os.mkdir(self.dir + '/.ato')
        with open(self.dir + '/.ato/123', 'wb'):
            pass
        self.check(self.dir, status=0, words='a reflection without a manifest')

    def test_leftovers_are_noted(self):
        self.make('fast')
        self.assertEqual(self.check(self.dir, status=0), [])  # the note for users is none
        for name in '17.stale-01234567', '17.stale-01234567.manifest', 'notes':
            with open(f'{self.dir}/.ato/{name}', 'wb'):
                pass
        unfinished = [self.dir + '/.ato/17.manifest.0123456789abcdef.tmp', self.dir + '/.ato.0123456789abcdef.tmp']
        with open(unfinished[0], 'wb'):
            pass
        os.mkdir(unfinished[1])
        # The processes that make them may still be running.
        found = self.check(self.dir, status=0, words='set aside')
        self.assertEqual([f['severity'] for f in found], ['note'] * 3)
        for name in unfinished:
            os.utime(name, times=(time.time() - 120,) * 2)
        found = self.check(self.dir, status=0, words='made this reflection folder')
        self.assertEqual([f['severity'] for f in found], ['note'] * 5)

    def test_a_reused_inode_number_is_a_warning(self):
        self.make('fast')
        os.removexattr(self.file, 'user.ato')
        self.set_fields(self.manifest(), 64, struct.pack('<q', 1))
        self.set_fields(self.manifest(), 76, struct.pack('<I', 1))
        self.check(self.file, status=0, words='had this inode number before')
        found = self.info(self.file)
        self.assertEqual((found['state'], found['id']), ('plain', None))

    @of_reflections
    def test_a_damaged_lane_of_the_manifest_is_an_error(self):
        self.make('commit')
        self.patch(self.manifest(), 12288 + 4096, struct.pack('<Q', 99))
        self.check(self.file, status=1, words='lane 1 of slot 0 is damaged')
        self.assertEqual(self.info(self.file)['state'], 'damaged')

    @of_reflections
    def test_a_damaged_long_lane_is_an_error(self):
        at = 12288 + 1024 * 16384
        for name, damage in (('changed', lambda manifest: self.patch(manifest, at, struct.pack('<Q', 99))),
                             ('cut off', lambda manifest: os.truncate(manifest, at + 100))):
            path = self.make('large', name)
            damage(self.manifest(path))
            self.check(path, status=1, words='lane 0 of slot 1024 is damaged')
            self.assertEqual(self.info(path)['state'], 'damaged')


    @of_reflections
    def test_a_commit_that_names_no_word_is_an_error(self):
        for state in 'commit', 'large':
            path = self.make(state, state)
            os.truncate(self.reflection(path), 4096)
            self.check(path, status=1, words='has no bitmap word there')

    def test_a_symbolic_link_as_reflection_folder_is_an_error(self):
        os.rename(os.path.dirname(self.reflection(self.make('fast'))), self.dir + '/real')
        os.symlink('real', self.dir + '/.ato')
        self.check(self.file, status=1, words='is a symbolic link')
        self.check(self.dir, status=1, words='is a symbolic link')

    def test_side_files_of_a_user_without_write_permission_are_an_error(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to give files away')
        self.make('fast')
        os.chmod(self.file, 0o644)
        for planted in self.manifest, self.reflection:
            os.chown(planted(), NOBODY, NOBODY)
            self.check(self.file, status=1, words='belongs to user')
            os.chown(planted(), 0, 0)

    def test_names_that_are_no_regular_files_do_no_harm(self):
        self.make('fast')
        os.unlink(self.manifest())
        os.mkfifo(self.manifest())
        self.check(self.file, status=2)
        os.unlink(self.manifest())
        os.symlink('/etc/passwd', self.manifest())
        self.check(self.file, status=2)
        self.check(self.dir, status=2)

    def test_missing_files_and_pipes_are_status_2(self):
        os.mkfifo(self.dir + '/pipe')
        self.check(self.dir + '/none', status=2)
        self.check(self.dir + '/pipe', status=2)

    def test_missing_permission_is_status_2(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to be nobody')
        self.make('fast')
        os.chmod(self.dir + '/.ato', 0)
        found = self.json('check', self.file, status=2, user=NOBODY)['findings']
        self.assertIn('Permission denied', found[0]['what'])
        os.chmod(self.dir + '/.ato', 0o700)
        os.chmod(self.file, 0)
        self.json('check', self.file, status=2, user=NOBODY)

    def test_damage_takes_precedence_over_a_missing_file(self):
        self.make('fast')
        os.truncate(self.reflection(), 0)
        self.check(self.dir + '/none', self.file, status=1)

    def test_a_reflection_folder_is_checked_by_itself(self):
        os.unlink(self.make('fast'))
        self.assertEqual(self.check(self.dir + '/.ato', status=0), [])
        self.make('write', 'other')
        self.check(self.dir + '/.ato', status=0, words='recovery due')
        self.assertEqual(self.json('check', self.dir + '/.ato', status=0)['files_plain'], 0)

    def test_recursive_checks_the_folders_below(self):
        os.makedirs(self.dir + '/a/b')
        self.make('fast', 'a/b/cut')
        os.truncate(self.dir + '/a/b/.ato/' + str(os.stat(self.dir + '/a/b/cut').st_ino), 0)
        self.make('plain', 'a/plain')
        self.assertEqual(self.check(self.dir, status=0), [])
        before = self.snapshot()
        found = self.json('check', '--recursive', self.dir, status=1)
        self.assertEqual(self.snapshot(), before)
        self.assertEqual([f['file'] for f in found['findings']], [self.dir + '/a/b/cut'])
        self.assertEqual((found['files_plain'], found['files_with_reflection']), (1, 1))
        self.err('info', '--recursive', self.dir, status=64)

    def test_quiet_prints_only_findings(self):
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
            for _ in range(12):  # each round takes longer: there are more files
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
            path = self.make(('commit', 'large', 'fast')[round_ % 3], name)
            victims = [os.path.join(self.dir, '.ato', n) for n in self.left()]
            victim = dice.choice(victims)
            size = os.path.getsize(victim)
            for _ in range(dice.randrange(1, 6)):
                self.patch(victim, dice.randrange(min(size, 30000) or 1),
                           dice.randbytes(dice.randrange(1, 40)))
            if dice.random() < 0.3:
                os.truncate(victim, dice.randrange(size + 1))
            for words in ['check', self.dir], ['check', path], ['info', path]:
                done = subprocess.run([ATO, *words], capture_output=True, env=self.env, check=False)
                self.assertIn(done.returncode, (0, 1, 2, 3), done)
            shutil.rmtree(self.dir + '/.ato')
            os.unlink(path)


if __name__ == '__main__':
    lab.main(globals())
