#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Is there a way out of each state that a file can be in, does each command name it, and does it work?

A table of states and commands. A command that refuses a file names the next steps as commands in quotes: each of them is done, and those
that are named then, until the file is plain.
"""
import os
import random
import re
import shlex
import shutil
import struct
import subprocess

import lab
from lab import SIZE, TOOL, Lab

COMMANDS = ('info', 'check', 'map', 'cp', 'reclaim', 'convert', 'deploy', 'deploy --prefer=reflection', 'deploy --prefer=file')
# A function of States that makes it, and the exit status of each command.
TABLE = {
    'plain': '000001000',
    'clean': '000000000',
    'recovery_due': '000000000',
    'growth_half_committed': '000000000',
    'born': '000000000',
    'deployed': '000000000',
    'mapped': '000001111',
    'touched': '010111100',
    'written': '010111100',
    'cut': '010111110',
    'longer': '010111110',
    'cut_in_use': '010111110',
    'longer_in_use': '010111110',
    'attribute_removed': '010111100',
    'attribute_removed_in_use': '010111100',
    'attribute_and_slices_removed': '012111110',
    'attribute_damaged': '012111111',
    'copied': '012111110',
    'copied_over_its_source': '010111100',
    'reflection_missing': '012111110',
    'reflection_cut': '010111110',
    'reflection_emptied': '010111110',
    'reflection_cut_in_use': '010111110',
    'page_twice': '010111110',
    'page_beyond_the_end': '010111110',
    'bitmaps_overwritten': '010111110',
    'bitmaps_overwritten_in_use': '010111110',
    'slices_beyond_the_end': '010111110',
    'manifest_missing': '012111110',
    'manifest_empty': '012111110',
    'manifest_of_zeros': '012111110',
    'manifest_cut': '012111110',
    'manifest_damaged': '012111110',
    'manifest_damaged_twice': '012111110',
    'manifest_of_a_newer_version': '012111111',
    'size_word_damaged': '012111110',
    'lane_damaged': '010111110',
    'long_lane_cut_off': '010111110',
    'overwritten': '010111100',
    'overwritten_without_its_attribute': '010111100',
    'longer_while_mapped': '010111111',
    'removed_while_mapped': '012111111',
    'replaced': '010111100',
    'restored': '010111100',
    'restored_in_use': '010111100',
    'restored_without_attributes': '010111100',
    'restored_several': '012111111',
    'restored_half': '010110000',
    'restored_half_reflection_cut': '010111110',
    'restored_reflection_cut': '010111110',
    'restored_page_twice': '010111110',
    'restored_longer': '010111110',
    'restored_overwritten': '010111100',
    'touched_reflection_cut': '010111110',
}
# The only step is something else than a command that this test could do.
BY_HAND = {'manifest_of_a_newer_version': 'a newer libato made it: use that one',
           'mapped': 'unmap ', 'restored_several': 'move the other files, and the other reflections',
           'longer_while_mapped': ', or end the', 'removed_while_mapped': 'lose it there'}


class States(Lab):
    media = False

    # ---- the states ----

    def plain(self):
        self.make('plain')

    def clean(self):
        self.make('fast')

    def growth_half_committed(self):
        self.make('longer')

    def recovery_due(self):
        self.make('commit')

    def born(self):
        self.make('birth')

    def deployed(self):
        self.make('death')

    def mapped(self):
        self.hold(self.make('plain'))

    def touched(self):
        os.utime(self.make('fast'))

    def written(self):
        self.patch(self.make('fast'), SIZE - 1, b'!')

    def cut(self):
        os.truncate(self.make('fast'), 4096)

    def longer(self):
        os.truncate(self.make('fast'), 2 * SIZE)

    def cut_in_use(self):
        os.truncate(self.make('commit'), 4096)

    def longer_in_use(self):
        os.truncate(self.make('commit'), 2 * SIZE)

    def attribute_removed(self):
        os.removexattr(self.make('fast'), 'user.ato')

    def attribute_removed_in_use(self):
        os.removexattr(self.make('commit'), 'user.ato')

    def attribute_and_slices_removed(self):
        os.removexattr(self.make('fast'), 'user.ato')
        os.unlink(self.reflection())

    def attribute_damaged(self):
        os.setxattr(self.make('fast'), 'user.ato', b'ato1')

    def copied(self):
        os.mkdir(self.dir + '/source')
        shutil.copy2(self.make('fast', 'source/file'), self.file)

    def copied_over_its_source(self):
        os.rename(shutil.copy2(self.make('fast'), self.dir + '/copy'), self.file)

    def reflection_missing(self):
        self.make('fast')
        os.unlink(self.reflection())

    def reflection_cut(self):
        self.make('fast')
        os.truncate(self.reflection(), 5 * 4096)

    def reflection_emptied(self):
        self.make('fast')
        os.truncate(self.reflection(), 0)

    def reflection_cut_in_use(self):
        self.make('commit')
        os.truncate(self.reflection(), 4096)

    def page_twice(self):
        self.make('fast', ATO_FORMAT='sparse')
        for place in range(16):
            self.patch(self.reflection(), place * 16, struct.pack('<QQ', 0, 2**64 - 1))

    def page_beyond_the_end(self):
        self.make('fast', ATO_FORMAT='sparse')
        self.patch(self.reflection(), 200 * 16, struct.pack('<QQ', 1 << 52, 1))

    def bitmaps_overwritten(self, state='fast'):
        self.make(state)
        self.patch(self.reflection(), 0, random.Random(1).randbytes(4096))

    def bitmaps_overwritten_in_use(self):
        self.bitmaps_overwritten('commit')

    def slices_beyond_the_end(self):
        """Of the last page."""
        self.make('fast', ATO_FORMAT='sparse')
        self.patch(self.reflection(), 200 * 16, struct.pack('<QQ', SIZE // 4096, 1 << 63))

    def manifest_missing(self):
        self.make('fast')
        os.unlink(self.manifest())

    def manifest_empty(self):
        self.make('fast')
        os.truncate(self.manifest(), 0)

    def manifest_cut(self):
        self.make('fast')
        os.truncate(self.manifest(), 5000)

    def manifest_of_zeros(self):
        """The only copy, since no other process has mapped the file."""
        self.make('fast')
        self.patch(self.manifest(), 0, b'\0')
        self.patch(self.manifest(), 4096, bytes(512))

    def manifest_damaged(self):
        self.make('fast')
        for copy in 0, 4096:
            self.patch(self.manifest(), copy + 100, b'\xaa\xaa')

    def manifest_damaged_twice(self):
        self.manifest_damaged()
        self.ato('deploy', '--quiet', '--prefer=file', self.file)
        with open(self.file, 'r+b') as f:  # the same inode
            subprocess.run([lab.ACTOR, 'fast', f.name], env=self.env, check=True)
        self.remember(self.file)
        for copy in 0, 4096:
            self.patch(self.manifest(), copy + 100, b'\xaa\xaa')

    def manifest_of_a_newer_version(self):
        self.make('fast')
        self.set_fields(self.manifest(), 8, struct.pack('<I', 7))

    def size_word_damaged(self):
        self.make('fast')
        self.patch(self.manifest(), 8192, b'\x01')

    def lane_damaged(self):
        self.make('commit')
        self.patch(self.manifest(), 12288 + 4096, struct.pack('<Q', 99))

    def long_lane_cut_off(self):
        self.make('large')
        os.truncate(self.manifest(), 12288 + 1024 * 16384 + 100)

    def overwritten(self):
        """After a death; the guard is one whose mask comes first."""
        plain = self.peek(self.make('plain'), 18, 2)
        self.make('guard')
        self.set_fields(self.manifest(), 20, struct.pack('<I', 2))
        self.set_fields(self.manifest(), 148, struct.pack('<I', 1))
        self.patch(self.file, 18, plain)

    def overwritten_without_its_attribute(self):
        self.overwritten()
        os.removexattr(self.file, 'user.ato')

    def longer_while_mapped(self):
        self.mapped()
        os.truncate(self.file, 2 * SIZE)
        self.addCleanup(os.truncate, self.file, SIZE) # before its process unmaps it

    def removed_while_mapped(self):
        self.mapped()
        os.rename(self.dir + '/.ato', self.dir + '/away')
        self.addCleanup(os.rename, self.dir + '/away', self.dir + '/.ato')

    def replaced(self):
        self.make('commit')
        self.set_fields(self.manifest(), 64, struct.pack('<q', 99))

    def restored(self, state='fast', *, attributes=True):
        if state:
            self.make(state)
        path = self.restore('backup', attributes=attributes)
        folder = os.path.dirname(path)
        shutil.rmtree(self.dir + '/.ato')
        os.rename(path, self.file)
        os.rename(folder + '/.ato', self.dir + '/.ato')
        os.rmdir(folder)

    def restored_in_use(self):
        self.restored('commit')

    def restored_without_attributes(self):
        self.restored(attributes=False)

    def restored_several(self):
        self.restored('commit', attributes=False)
        shutil.copyfile(self.file, self.dir + '/other')

    def restored_half(self):
        """The record names the file already."""
        self.restored()
        manifest = next(n for n in os.listdir(self.dir + '/.ato') if n.endswith('.manifest'))
        self.set_fields(f'{self.dir}/.ato/{manifest}', 48, struct.pack('<Q', os.stat(self.file).st_ino))
        self.set_fields(f'{self.dir}/.ato/{manifest}', 80, struct.pack('<I', 4))

    def cut_it(self):
        for name in os.listdir(self.dir + '/.ato'):
            if name.isdigit():
                os.truncate(f'{self.dir}/.ato/{name}', 4096)

    def restored_half_reflection_cut(self):
        self.restored_half()
        self.cut_it()

    def restored_reflection_cut(self):
        self.restored()
        self.cut_it()

    def restored_page_twice(self):
        """A sparse one, whose bitmaps name a page twice."""
        self.page_twice()
        self.restored(state=None)

    def restored_longer(self):
        self.restored('commit')
        os.truncate(self.file, 2 * SIZE)

    def restored_overwritten(self):
        self.overwritten()
        self.restored(state=None)

    def touched_reflection_cut(self):
        self.touched()
        os.truncate(self.reflection(), 4096)

    # ---- the table ----

    def setUp(self):
        super().setUp()
        self.top, self.rounds = self.dir, 0

    def begin(self, state):
        """Makes the state in a new folder; the last one's processes end."""
        self.doCleanups()
        self.rounds += 1
        self.dir = f"{self.top}/{self.rounds}'s $x" # each step is named so that a shell takes it
        self.file = self.dir + '/file'
        os.mkdir(self.dir)
        getattr(self, state)()

    def tearDown(self):
        self.dir = self.top
        super().tearDown()

    def content(self):
        with open(self.file, 'rb') as f:
            return f.read()

    def run_words(self, words):
        done = subprocess.run(words, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def steps(self, text):
        """The commands in quotes, of this file."""
        return {s for s in re.findall(r"'((?:ato|truncate|setfattr) (?:[^'\\]|\\.)*)'", text) if self.file in shlex.split(s)}

    def of_any(self, steps):
        """The same, of any file."""
        return {s.replace(re.sub(r'([^\w/.-])', r'\\\1', self.file), 'FILE') for s in steps}

    def follow(self, steps):
        """Does a step, and those that are named after it, to the end."""
        for step in steps:
            words = shlex.split(step)
            status, text = self.run_words([TOOL, *words[1:]] if words[0] == 'ato' else words)
            self.assertEqual(status, 0, (step, text))
        return self.info(self.file)

    def try_all(self, state, done, names):
        """Tries each of the named steps in a file of its own."""
        self.assertLess(len(done), 4, done)
        for name in sorted(names):
            with self.subTest(state=state, steps=[*done, name]):
                self.begin(state)
                steps = [step.replace('FILE', shlex.quote(self.file)) for step in [*done, name]]
                before = self.content()
                found = self.follow(steps)
                if found['state'] != 'plain':
                    self.try_all(state, [*done, name], self.of_any(self.steps(found['next'])))
                elif 'prefer=file' in name:
                    self.assertEqual(self.content()[:len(before)], before[:len(self.content())])
                elif 'prefer=reflection' in name:
                    self.assertNotEqual(self.content(), before)
                self.run_words([TOOL, 'gc', '--delete=all', self.dir])

    def test_each_command_in_each_state_names_a_step_and_the_step_helps(self):
        for state, statuses in TABLE.items():
            names = None
            for command, status in zip(COMMANDS, map(int, statuses)):
                with self.subTest(state=state, command=command):
                    self.begin(state)
                    words = [TOOL, *command.split(), self.file] + [self.dir + '/copied'] * (command == 'cp')
                    got, text = self.run_words(words)
                    self.assertEqual(got, status, text)
                    if command == 'info':
                        names = self.of_any(self.steps(text))
                    if status and state in BY_HAND:
                        self.assertIn(BY_HAND[state], text)
                    elif status and state == 'plain':
                        self.assertIn('--to', text)
                    elif status and '--prefer' in command:
                        self.assertTrue(self.steps(text) or "'ato deploy --prefer=file'" in text or 'setfattr -x' in text, text)
                    elif status:
                        self.assertEqual(self.of_any(self.steps(text)), names, text)
                        self.assertFalse('not possible' in text or 'differ: 0\n' in text, text)
                    elif 'deploy' in command:
                        self.assertEqual(self.info(self.file)['state'], 'plain')
            if state in BY_HAND or state == 'plain':
                continue
            self.assertTrue(names, state)
            self.try_all(state, [], names)


if __name__ == '__main__':
    lab.main(globals())
