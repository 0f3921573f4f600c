#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does `ato deploy` make a file of each state plain, and leave files unchanged that it refuses?"""
import contextlib
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import time

import lab
from lab import ACTOR, ATO, CUT, NOBODY, SIZE, STATES, Lab, of_reflections


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
        self.assertEqual(self.left(), [])
        self.assertEqual(self.shared(), set())

    def test_recovers_an_empty_file_again(self):
        self.make('emptied')
        for _ in range(2):
            done = subprocess.run([ACTOR, 'mapped', self.file], env=self.env, check=False,
                                  stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, CUT, done)
            self.remember(self.file)
        self.check(self.file, status=0)
        self.ato('deploy', self.file)
        self.expect_plain()
        self.assertEqual(os.path.getsize(self.file), 0)

    @of_reflections
    def test_brings_written_bytes_home(self):
        self.make('spatial')
        expected = self.content()
        self.make('fast', 'other')
        self.assertNotEqual(self.content(self.dir + '/other'), expected)
        found = self.json('deploy', self.dir + '/other')['files'][0]
        self.assertEqual(found['slices_brought_home'], 8999 // 64 - 3000 // 64 + 1)
        self.assertEqual(self.content(self.dir + '/other'), expected)

    def test_puts_guarded_bytes_back_also_after_an_interruption(self):
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
        folder = os.path.dirname(self.file)
        self.assertEqual(self.out('deploy', self.file, folder),
                         f'{self.file}: is plain already\n{folder}: is a folder, and was skipped; --recursive goes through it\n')
        self.assertEqual(self.out('deploy', '--quiet', self.file, folder), '')
        self.assertEqual(self.snapshot(), before)

    def test_refuses_a_mapped_file_and_names_the_process(self):
        actor = self.hold(self.make())
        text = self.err('deploy', self.file, status=1)
        self.assertEqual(text, f'{self.file}: is mapped by pid {actor.pid} (a"holder\\x0a): '
                               'unmap the file there, or end the process, and try again\n')
        found = self.json('deploy', self.file, status=1)['files'][0]
        self.assertEqual(found['result'], 'mapped')
        self.assertEqual(found['mapped_by'][0]['pid'], actor.pid)
        actor.end()
        self.json('deploy', self.file)
        self.expect_plain()

    def test_uses_the_domain_that_the_file_has(self):
        self.make('fast', ACTOR_DOMAIN='1')
        log = self.dir + '/log'
        # The medium is weaker; if that domain is requested, the library reports it.
        self.ato('deploy', self.file, ATO_LOG=log, ATO_DURABILITY='process')
        with open(log, encoding='utf-8') as f:
            self.assertIn('in domain pmem, as asked', f.read())

    def test_does_not_change_damaged_files(self):
        self.make('fast')
        os.truncate(self.reflection(), 4096)
        shutil.copy2(self.make('fast', 'source'), self.dir + '/copy')
        lost = self.make('fast', 'lost')
        os.unlink(self.manifest(lost))
        before = self.snapshot()
        for path in self.file, self.dir + '/copy', lost:
            self.assertEqual(self.json('deploy', path, status=1)['files'][0]['result'], 'refused')
        self.assertEqual(self.snapshot(), before)

    @of_reflections
    def test_takes_the_chosen_side_and_shows_both_before(self):
        for side in 'file', 'reflection':
            with self.subTest(side):
                path = self.make('fast', side)
                with open(path, 'r+b') as file:
                    file.seek(SIZE - 1)
                    file.write(b'!')
                others = self.content(path)
                before = self.snapshot()
                said = self.err('deploy', path, status=1)
                self.assertRegex(said, r'--prefer=file +the file as it is: 20000 bytes .*written at 20')
                self.assertRegex(said, r'--prefer=reflection .*unmapped at 20(.|\n)*pages of 4096 bytes that differ: \d')
                self.assertEqual(self.snapshot(), before)
                self.assertIn('is plain', self.out('deploy', '--prefer=' + side, path))
                self.expect_plain(path)
                self.assertEqual(self.content(path)[-1:], b'!')
                self.assertEqual(self.content(path) == others, side == 'file')

    def test_joins_a_restored_file_with_its_reflection_or_sets_that_aside(self):
        self.make('write' if self.has_log else 'fast')  # a log that is unmapped holds nothing
        restored = [(side, self.restore(f'{side}-{attributes}', attributes=attributes))
                    for side in ('file', 'reflection') for attributes in (True, False)]
        self.ato('deploy', self.file)
        for side, path in restored:
            with self.subTest(path):
                others, before = self.content(path), self.snapshot()
                said = self.err('deploy', path, status=1)
                self.assertRegex(said, r'--prefer=file +the file as it is(.|\n)*--prefer=reflection +the file with the slices')
                self.assertRegex(said, r'pages of 4096 bytes that differ: \d')
                self.assertIn('without what only its reflection has: older and newer parts may be mixed\n', said)
                self.assertEqual(len(re.findall('saved together, while no program had the file open', said)), 2)
                self.assertEqual(self.snapshot(), before)
                self.assertIn('is plain', self.out('deploy', '--prefer=' + side, path))
                self.expect_plain(path)
                self.assertEqual(self.content(path), others if side == 'file' else self.content(self.file))
                self.assertEqual(len(os.listdir(os.path.dirname(path) + '/.ato')), 3 if side == 'file' else 1)  # with the note

    @of_reflections
    def test_a_restored_file_that_another_one_was_copied_over_is_told_as_a_mixture(self):
        plain = self.peek(self.make('plain'), 18, 2)
        self.make('guard')
        self.set_fields(self.manifest(), 148, struct.pack('<I', 1)) # the mask comes first
        path = self.restore('backup', attributes=True)
        self.patch(path, 18, bytes([plain[0] ^ 255])) # a mask as ATO_MASK_FIRST allows it
        self.assertNotIn('a mixture', self.err('deploy', path, status=1))
        self.patch(path, 18, plain)
        said = self.err('deploy', path, status=1)
        self.assertIn('a mixture, if another file was copied over this one', said)
        self.assertNotIn('saved together', said)

    def test_another_name_of_a_mapped_file_is_refused_too(self):
        for name in 'hard link', 'moved':
            with self.subTest(name):
                path, other = self.make(name=name), f'{self.dir}/elsewhere/{name}'
                os.makedirs(os.path.dirname(other), exist_ok=True)
                holder = self.hold(path)
                (os.link if name == 'hard link' else os.rename)(path, other)
                for side in [], ['--prefer=file'], ['--prefer=reflection']:
                    said = self.err('deploy', *side, other, status=1)
                    self.assertIn(f'pid {holder.pid}', said)
                self.assertEqual(self.info(other)['state'], 'in use')
                holder.end()

    def test_writes_of_others_to_a_database_without_a_mask_stay(self):
        path = self.dir + '/a.db'
        with contextlib.closing(sqlite3.connect(path)) as db, contextlib.closing(sqlite3.connect(path)) as other:
            db.executescript('CREATE TABLE t AS SELECT 7 a')
            subprocess.run([lab.ACTOR, 'guarded', path], env=self.env, check=True)
            self.assertEqual(db.execute('SELECT a FROM t').fetchall(), [(7,)])
            other.executescript('UPDATE t SET a=8')
            subprocess.run([ATO, 'deploy', path], env=self.env, check=True, capture_output=True)
            self.assertEqual(db.execute('SELECT a FROM t').fetchall(), [(8,)])
            subprocess.run([lab.ACTOR, 'guarded', path], env=self.env, check=True)
            other.executescript('CREATE TABLE u AS SELECT zeroblob(9999)')
            self.assertEqual(self.info(path)['state'], 'recovery due')
            subprocess.run([ATO, 'deploy', path], env=self.env, check=True, capture_output=True)
            self.assertEqual(db.execute('SELECT count(*) FROM u').fetchall(), [(1,)])
        self.expect_plain(path)

    def test_a_preferred_copy_of_a_database_is_open_to_other_programs(self):
        source = self.make('fast', 'source')
        for name in 'with', 'without':
            path = f'{self.dir}/{name}'
            with contextlib.closing(sqlite3.connect(path)) as db:
                db.execute('CREATE TABLE t AS SELECT 7')
            with open(path, 'r+b') as file: # the mask of lib/sqlite/mask.h
                content = bytearray(file.read())
                content[21], content[24] = 255 - 64, content[24] ^ 0x80
                file.seek(0)
                file.write(content)
            if name == 'with':
                os.setxattr(path, 'user.ato', os.getxattr(source, 'user.ato'))
            self.assertEqual(self.info(path)['state'], 'copied')
            self.check(path, status=1, words='cop')
            for side in [], ['--prefer=reflection']:
                said = self.err('deploy', *side, path, status=1)
                self.assertRegex(said, r'the only side is\n  --prefer=file +the file as it is: 8192 bytes')
                self.assertIn('PRAGMA integrity_check', said)
                self.assertNotIn('prefer=reflection', said)
            self.assertIn('is plain', self.out('deploy', '--prefer=file', path))
            self.expect_plain(path)
            with contextlib.closing(sqlite3.connect(path)) as db:
                self.assertEqual(db.execute('SELECT * FROM t').fetchall(), [(7,)])

    def test_goes_on_after_a_file_that_it_cannot_deploy(self):
        path = self.make('fast')
        found = self.json('deploy', self.dir, self.dir + '/none', path, status=2)
        self.assertEqual([f['result'] for f in found['files']],
                         ['folder', 'not looked at', 'deployed'])

    def test_recursive_goes_through_folders(self):
        os.makedirs(self.dir + '/a/b')
        paths = [self.make('fast', 'a/one'), self.make('commit', 'a/b/two'), self.make('plain', 'a/b/three')]
        outside = self.make('fast', 'outside')
        os.symlink(outside, self.dir + '/a/link')
        os.mkfifo(self.dir + '/a/pipe')
        text = self.out('deploy', '--recursive', self.dir + '/a')
        self.assertEqual(sorted(text.splitlines()), sorted([f'{paths[0]}: is plain', f'{paths[1]}: is plain', '2 made plain, 1 plain already']))
        for path in paths:
            self.expect_plain(path)
        self.assertEqual(self.info(outside)['state'], 'clean')
        damaged = self.make('fast', 'a/b/damaged')
        os.unlink(self.reflection(damaged).replace('/.ato/', '/a/b/.ato/'))
        found = self.json('deploy', '--recursive', outside, self.dir + '/a', status=1)
        self.assertEqual([(f['file'], f['result']) for f in found['files']], [(outside, 'deployed'), (damaged, 'refused')])
        self.assertEqual(found['plain_already'], 3)
        self.assertEqual(self.out('deploy', '--recursive', '--quiet', '--prefer=file', self.dir + '/a'), '')
        self.expect_plain(damaged)
        self.assertEqual(self.json('deploy', '--recursive', self.dir + '/none', status=2)['files'][0]['result'], 'not looked at')
        if os.getuid() == 0:
            os.chmod(paths[2], 0o600)
            self.assertIn('three: cannot', os.fsdecode(self.ato('deploy', '--recursive', self.dir + '/a', status=2, user=NOBODY).stderr))

    def test_needs_permission(self):
        if os.getuid() != 0:
            self.skipTest('needs root, to be nobody')
        self.make('fast')
        self.assertIn('Permission denied', self.err('deploy', self.file, status=2, user=NOBODY))

    def test_an_empty_file_is_made_plain(self):
        self.make('empty')
        self.assertEqual(self.info(self.file)['state'], 'clean')
        self.json('deploy', self.file)
        self.expect_plain()

    def test_the_progress_is_shown_on_a_terminal_only(self):
        self.make('fast')
        shown = self.on_terminal('deploy', self.file)
        self.assertIn(b'\r100 %', shown)
        self.assertEqual(self.ato('deploy', self.make('fast', 'other')).stderr, b'')

    def test_may_be_killed_and_run_again(self):
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


if __name__ == '__main__':
    lab.main(globals())
