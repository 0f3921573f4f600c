#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do the demonstrations of tools/sqlite_demo show what they say: SQLite as it is loses commits, the same script under `ato sqlite` none?

    demo_test.py ATO FOLDER    FOLDER: that of the scripts
"""
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ATO, FOLDER = sys.argv[1:]
PYTHON = '/usr/bin/python3' # which loads SQLite as a library


def is_faulty(version):
    return version < (3, 51, 3) and not (3, 44, 6) <= version < (3, 45) and not (3, 50, 7) <= version < (3, 51)


class Demonstrations(unittest.TestCase):
    def run_script(self, script, *words, before=()):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*before, PYTHON, os.path.join(FOLDER, script), *words, folder], capture_output=True, text=True,
                                  check=False)
        self.assertIn(done.returncode, (0, 1), done)
        return done

    def check(self, script, *words, loses=True):
        """Returns what both have printed."""
        stock = self.run_script(script, *words)
        ours = self.run_script(script, before=(ATO, 'sqlite', '--require'))
        self.assertEqual((stock.returncode, ours.returncode), (int(loses), 0), (stock, ours))
        return stock.stdout, ours.stdout

    def test_an_open_and_a_close_drop_no_lock(self):
        self.check('locks.py')

    def test_the_default_mode_has_no_log_that_begins_anew(self):
        self.check('wal_reset.py', '--wal', loses=is_faulty(sqlite3.sqlite_version_info))

    def test_a_reader_that_never_ends_lets_no_file_grow_for_ever(self):
        def growth(said): # from a quarter of the commits to all
            rows = [[int(n) for n in row] for row in re.findall(r'commits +(\d+) +(\d+) +(\d+) +(\d+)', said)]
            return sum(rows[-1]) - sum(rows[1])
        stock, ours = self.check('reader.py', '--wal', loses=False)
        self.assertGreater(growth(stock), 10000)
        self.assertLess(growth(ours), 10000)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
