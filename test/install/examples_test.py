#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""May several processes run an example at once, on one file? None may fail, and none's work may be lost.

    examples_test.py <growth> <raii> <transfer>
"""
import os
import subprocess
import sys
import tempfile
import threading
import unittest

GROWTH, RAII, TRANSFER = (os.path.abspath(path) for path in sys.argv[1:4])
AT_ONCE, TIMES = 4, 10


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='ato-test-', dir='.')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_one(self, *command):
        return subprocess.run(command, cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)

    def run_at_once(self, command):
        """command(i): the command of process i."""
        failed = []

        def run(first):
            for i in range(first, first + TIMES):
                done = self.run_one(*command(i))
                if done.returncode:
                    failed.append(done.stdout)

        threads = [threading.Thread(target=run, args=(i * TIMES,)) for i in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def test_growth_loses_no_line(self):
        self.run_at_once(lambda i: (GROWTH, 'lines', f'line {i}', f'another {i}'))
        with open(os.path.join(self.folder, 'lines'), encoding='ascii') as f:
            self.assertEqual(sorted(f.read().splitlines()),
                             sorted(f'{what} {i}' for what in ('line', 'another') for i in range(AT_ONCE * TIMES)))

    def test_raii_loses_no_run(self):
        self.run_at_once(lambda i: (RAII, 'totals'))
        self.assertIn(f'{AT_ONCE * TIMES + 1} runs', self.run_one(RAII, 'totals').stdout)

    def test_transfer_keeps_the_sum(self):
        self.run_at_once(lambda i: (TRANSFER, 'accounts', *(('1', '2') if i % 2 else ('2', '1')), '3'))
        shown = self.run_one(TRANSFER, 'accounts', '1', '2', '0').stdout
        self.assertEqual(sum(int(line.split()[-1]) for line in shown.splitlines()), 2000, shown)


unittest.main(argv=sys.argv[:1])
