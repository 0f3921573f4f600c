#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Does the judge of SQLite's tests find errors? The tests give it invented output of scripts, through the parser.

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'suite'))
sys.dont_write_bytecode = True

import judge
import world
from world import Result, Script

PASSED, FAILED, SKIPPED = (1, 0, 0), (0, 1, 0), (0, 0, 1)
LISTED = {'listed': [('listed-1', '[0]'), ('listed-2', 'Error: no "file"')],
          'waits': [(judge.UNFINISHED, judge.NO_TEST)], 'empty': [(judge.SKIPPED, judge.NO_TEST)]}
ONE = '! listed-1 expected: [1]\n! listed-1 got:      [0]\n'
TWO = 'listed-2...\nError: no "file14"\n'


def summary(tests, *failed):
    names = f'!Failures on these tests: {" ".join(failed)}\n' if failed else ''
    return f'{len(failed)} errors out of {tests} tests\n{names}'


def verdict(script, output, status=0, stock=Result(tests=100)):
    """Returns the counts for a script with this output and exit status (None: not finished in time)."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        one = judge.Judge({script: stock} if stock else {}, LISTED, folder)
        result = world.parse(output, status, 60)
        result.output = output
        one.take(Script(script, [], 60), result)
    return one.passed, one.failed, one.skipped


class JudgeTest(unittest.TestCase):
    def test_same_results_as_stock_pass(self):
        self.assertEqual(verdict('x', summary(100)), PASSED)
        self.assertEqual(verdict('x', summary(100, 'x-5'), 1, Result(['x-5'], 100)), PASSED)
        self.assertEqual(verdict('x', summary(1), stock=Result(tests=1)), SKIPPED)
        self.assertEqual(verdict('program:x', summary(1), stock=None), PASSED)

    def test_an_error_that_is_not_listed_fails(self):
        self.assertEqual(verdict('x', summary(100, 'x-1'), 1), FAILED)
        self.assertEqual(verdict('program:x', summary(9, 'x-1'), 1, None), FAILED)

    def test_a_listed_error_passes_once(self):
        self.assertEqual(verdict('listed', ONE + TWO + summary(100, 'listed-1', 'listed-2'), 1), PASSED)
        self.assertEqual(verdict('listed', ONE + TWO + ONE + summary(100, 'listed-1', 'listed-2', 'listed-1'), 1), FAILED)

    def test_a_listed_test_that_gets_something_else_fails(self):
        for one, two in (ONE.replace('[0]', '[malformed]'), TWO), (ONE, TWO.replace('no', 'malformed')), ('', TWO):
            self.assertEqual(verdict('listed', one + two + summary(100, 'listed-1', 'listed-2'), 1), FAILED)

    def test_a_listed_error_has_to_occur(self):
        self.assertEqual(verdict('listed', ONE + summary(100, 'listed-1'), 1), FAILED)

    def test_an_error_of_stock_excuses_one_error(self):
        stock = Result(['x-5'], 100)
        self.assertEqual(verdict('x', summary(100, 'x-5', 'x-5'), 1, stock), FAILED)
        nameless = '{} errors out of 100 tests\n'
        self.assertEqual(verdict('x', nameless.format(1), 1, Result(['nameless'], 100)), PASSED)
        self.assertEqual(verdict('x', nameless.format(50), 1, Result(['nameless'], 100)), FAILED)

    def test_a_script_listed_as_unfinished_may_not_give_up(self):
        self.assertEqual(verdict('waits', 'waits-1... Ok\n', None), SKIPPED)
        self.assertEqual(verdict('waits', 'waits-1...\nmalformed\n    while executing\n"x"\n', 1), FAILED)
        self.assertEqual(verdict('waits', 'waits-1...\n', -11), FAILED)
        self.assertEqual(verdict('waits', 'waits-1...\n! waits-1 expected: [a]\n! waits-1 got:      []\n', None), FAILED)
        self.assertEqual(verdict('waits', 'waits-1...\nError: malformed\nwaits-2... Ok\n', None), FAILED)
        self.assertEqual(verdict('x', 'x-1... Ok\n', None), FAILED)

    def test_trouble_with_stock_excuses_nothing(self):
        stock = Result(trouble='took longer than 600 s')
        self.assertEqual(verdict('x', 'malformed\n    while executing\n"x"\n', 1, stock), FAILED)
        self.assertEqual(verdict('x', summary(100), stock=stock), FAILED)

    def test_a_script_that_makes_few_tests_fails(self):
        self.assertEqual(verdict('x', summary(19)), FAILED)
        self.assertEqual(verdict('x', summary(1)), FAILED)
        self.assertEqual(verdict('x', ''), FAILED)
        self.assertEqual(verdict('x', summary(20)), PASSED)
        self.assertEqual(verdict('empty', summary(1)), SKIPPED)
        self.assertEqual(verdict('empty', summary(2)), FAILED)

    def test_a_program_without_tests_fails(self):
        self.assertEqual(verdict('program:x', '', stock=None), FAILED)
        self.assertEqual(verdict('program:x', summary(0), stock=None), FAILED)

    def test_a_status_without_an_error_fails(self):
        self.assertEqual(verdict('x', summary(100), 1), FAILED)

    def test_memory_and_files_that_are_left_fail(self):
        self.assertEqual(verdict('x', summary(100) + 'Unfreed memory: 8 bytes in 1 allocations\n'), FAILED)
        self.assertEqual(verdict('x', '2 files were left open\n' + summary(100)), FAILED)

    def test_the_list_names_single_tests(self):
        for line in ('x:x-* | [0] | all', 'x:fewer | - | few', 'x:gave-up | - | it does', 'x:x-1 | [0] |', 'x:x-1 | why',
                     'x:x-1 | - | why', 'x:skipped | [0] | why', 'stock | x:x-1 | [0] | why'):
            with tempfile.NamedTemporaryFile('w') as file:
                file.write(line + '\n')
                file.flush()
                with self.assertRaises(SystemExit, msg=line):
                    judge.read_differences(file.name)
        self.assertLessEqual(sum(map(len, judge.read_differences().values())), judge.MOST_DIFFERENCES)


if __name__ == '__main__':
    unittest.main()
