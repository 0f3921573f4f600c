#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Is each failure of a test program counted, with any exit status?

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tools'))
sys.dont_write_bytecode = True

import count_tests

BEGIN = '[==========] Running 2 tests from 1 test suite.\n'
END = '[==========] 2 tests from 1 test suite ran. (0 ms total)\n'


def case(name, result='      OK'):
    return f'[ RUN      ] {name}\n{name} says so\n[ {result} ] {name} (7 ms)\n'


class Count(unittest.TestCase):
    def counted(self, result, *printed, complained=''):
        count = count_tests.Count()
        self.failed = count.add('program', result, ''.join(printed), complained, 1)
        return str(count)

    def test_counts_cases_by_their_results(self):
        self.assertEqual(self.counted('OK', BEGIN, case('A.b'), case('A.c', ' SKIPPED'), END), '1 passed, 0 failed, 1 skipped')

    def test_counts_a_program_of_another_kind_as_one(self):
        self.assertEqual(self.counted('OK', 'all is well\n'), '1 passed, 0 failed, 0 skipped')
        self.assertEqual(self.counted('SKIP'), '0 passed, 0 failed, 1 skipped')
        self.assertEqual(self.counted('TIMEOUT'), '0 passed, 1 failed, 0 skipped')

    def test_counts_a_program_without_output_as_failed(self):
        self.assertEqual(self.counted('OK', '\n'), '0 passed, 1 failed, 0 skipped')
        self.assertEqual(self.counted('OK', complained='Ran 14 tests\n'), '1 passed, 0 failed, 0 skipped')

    def test_prints_failed_cases_and_their_output(self):
        printed = BEGIN + case('A.b', ' FAILED ') + case('A.c') + END
        self.assertEqual(self.counted('FAIL', printed), '1 passed, 1 failed, 0 skipped')
        self.assertEqual(self.failed, ['A.b'])
        self.assertEqual(count_tests.said(printed, 'A.b'), 'A.b says so')

    def test_counts_a_crash_beside_the_cases(self):
        self.assertEqual(self.counted('FAIL', BEGIN, case('A.b'), '[ RUN      ] A.c\n'), '1 passed, 1 failed, 0 skipped')
        self.assertEqual(self.counted('FAIL', BEGIN, case('A.b', ' FAILED '), '[ RUN      ] A.c\n'),
                         '0 passed, 2 failed, 0 skipped')

    def test_counts_a_program_that_fails_after_its_cases(self):
        self.assertEqual(self.counted('FAIL', BEGIN, case('A.b'), END), '1 passed, 1 failed, 0 skipped')

    def test_counts_a_program_that_ended_early_as_failed(self):
        self.assertEqual(self.counted('OK', BEGIN, case('A.b'), '[ RUN      ] A.c\n'), '1 passed, 1 failed, 0 skipped')

    def test_counts_a_program_that_ran_nothing_as_failed(self):
        nothing = '0 tests from 0 test suites'
        self.assertEqual(self.counted('OK', f'[==========] Running {nothing}.\n[==========] {nothing} ran. (0 ms total)\n'),
                         '0 passed, 1 failed, 0 skipped')


if __name__ == '__main__':
    unittest.main()
