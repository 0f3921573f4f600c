#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does `ato map` show where the slices are, as text and JSON, and change nothing?"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unittest

import lab
from lab import ACTOR, TOOL, Lab


class Map(Lab):
    media = False

    def make_large(self, size, words):
        """A file of this size that is unmapped, with these bitmap words, {page: word}, and no others."""
        with open(self.file, 'wb') as f:
            f.truncate(size)
        subprocess.run([ACTOR, 'fast', self.file], env=self.env, check=True)
        self.remember(self.file)
        for page, word in {0: 0, 1: 0, 2: 0, **words}.items():
            self.patch(self.reflection(), page // 512 * 513 * 4096 + page % 512 * 8,
                       struct.pack('<Q', word))

    def map(self, *words, **more):
        return self.json('map', self.file, *words, **more)

    def on_terminal(self, columns):
        """What it shows on a terminal."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('HHHH', 30, columns, 0, 0))
        done = subprocess.Popen([TOOL, 'map', self.file], stdout=follower, stderr=subprocess.DEVNULL,
                                stdin=subprocess.DEVNULL, env=self.env)
        os.close(follower)
        text = b''
        try:
            while more := os.read(leader, 65536):
                text += more
        except OSError:
            pass
        os.close(leader)
        self.assertEqual(done.wait(), 0)
        return text.decode().replace('\r', '')

    def test_each_state_with_a_reflection_and_a_plain_file(self):
        for state, name in lab.STATES.items():
            self.make(state, name='file')
            before = self.snapshot()
            found = self.map()
            self.assertEqual(self.snapshot(), before)
            self.assertEqual(found['state'], name)
            self.assertEqual(found['slices_in_reflection'],
                             self.info(self.file)['slices_in_reflection'] or 0)
            self.assertEqual(sum(found['cells']), found['slices_in_reflection'])
            self.ato('deploy', '--quiet', self.file)

    def test_a_mapped_file(self):
        self.hold(self.make())
        found = self.map()
        self.assertEqual((found['state'], found['pages'], found['slices']), ('in use', 5, 313))
        self.assertEqual(found['cells'], [64 - 46, 64, 64 - 51, 0, 0])

    def test_cells_are_exact(self):
        words = {3: 1, 511: 3, 512: 2**64 - 1, 99999: 7, 262143: 2**63}
        self.make_large(1 << 30, words)
        found = self.map()
        self.assertEqual((found['pages'], found['slices_in_reflection']), (262144, 71))
        per = found['pages_per_cell']
        self.assertLessEqual(len(found['cells']), 1024)
        self.assertGreaterEqual(len(found['cells']) * per, 262144)
        expected = [0] * len(found['cells'])
        for page, word in words.items():
            expected[page // per] += word.bit_count()
        self.assertEqual(found['cells'], expected)

    def test_words_behind_the_end_do_not_count(self):
        self.make_large(4096 * 4 + 100, {4: 2**64 - 1, 5: 1, 1000: 1})
        found = self.map()
        self.assertEqual((found['cells'], found['slices']), ([0, 0, 0, 0, 2], 258))

    def test_text_has_a_line_for_each_part(self):
        self.make_large(2 << 20, {n: 2**64 - 1 for n in range(128)} | {200: 1})
        head, legend, *lines = self.out('map', self.file).splitlines()
        self.assertIn(': clean, 2097152 bytes (2.0 MiB): 8193 of 32768 slices are in the reflection '
                      '(25.0 %)', head)
        self.assertIn('. none', legend)
        signs = ''.join(re.fullmatch(r' +[0-9.]+ % (\S+) +[0-9.]+ %', line)[1] for line in lines)
        self.assertEqual(signs, '#' * 128 + '.' * 72 + '1' + '.' * 311)
        self.assertTrue(lines[0].startswith('    0.0 % ') and lines[0].endswith(' 100.0 %'), lines[0])
        self.assertTrue(lines[-1].endswith('   0.0 %'))

    def test_a_terminal_gets_lines_of_its_width(self):
        self.make_large(2 << 20, {n: 2**64 - 1 for n in range(128)} | {200: 1})
        for columns in 60, 132:
            text = self.on_terminal(columns).splitlines()[2:]
            self.assertEqual({len(line) for line in text}, {columns - 1})

    def test_files_that_cannot_be_shown(self):
        self.err('map', self.file, status=2)
        self.make('fast')
        os.unlink(self.reflection())
        self.assertIn('has no valid reflection', self.map(status=2)['error'])
        self.make('plain', 'copy')
        os.setxattr(self.dir + '/copy', 'user.ato', os.getxattr(self.file, 'user.ato'))
        self.assertIn('is copied', self.err('map', self.dir + '/copy', status=2))
        self.err('map', self.file, self.file, status=64)


if __name__ == '__main__':
    unittest.TestCase.maxDiff = None
    lab.main(globals())
