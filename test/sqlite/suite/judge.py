# SPDX-License-Identifier: BSD-3-Clause
#
# Judges the results of a script of SQLite's. It may fail in the same tests as with SQLite's own VFS, and in the tests
# of differences.txt, where a line stands for one error. Tested by ../judge_test.py.

import collections
import os
import re
import shutil
import sys
import time

import world

HERE = os.path.dirname(os.path.abspath(__file__))
DIFFERENCES = os.path.join(HERE, 'differences.txt')
MOST_DIFFERENCES = 40
MOST_NAMED = 5 # errors of a script, and slow scripts

STOCK, ATO = 'stock', 'ato'

NOTHING = 1  # a script that tests nothing still makes one test: that all memory was freed

# In differences.txt instead of a test name: the script tests nothing with our VFS, or does not end in time.
SKIPPED, UNFINISHED = 'skipped', 'unfinished'
NO_TEST = '-' # stands for the result there
# Never in differences.txt: a script that gave up, or made less than 1/LEAST_PART of the tests that it makes with stock.
# (Scripts that make the n-th access fail, for each n, make a half or a third of them: there are fewer accesses.)
GAVE_UP, FEWER, LEAST_PART = 'gave-up', 'fewer', 5

started = time.monotonic() - int(os.environ.get('SECONDS', 0))


def say(text):
    print(f'[{time.monotonic() - started:3.0f} s] {text}', flush=True)


def die(text):
    sys.exit(f'sqlite-tests: {text}')


def read_differences(path=DIFFERENCES):
    """Reads the errors that are allowed with our VFS: {script: [(test, result), ...]}. Each line needs a reason."""
    found, count = collections.defaultdict(list), 0
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            if not line.strip() or line.startswith('#'):
                continue
            parts = re.fullmatch(r'(\S+):([^:\s*?]+) \| (\S.*?) \| (\S.*)\n', line)
            if not parts or parts[2] in (GAVE_UP, FEWER) or (parts[2] in (SKIPPED, UNFINISHED)) != (parts[3] == NO_TEST):
                die(f'{path}: not `script:testname | what it got | reason`: {line.rstrip()}')
            found[parts[1]].append((parts[2], parts[3]))
            count += 1
    if count > MOST_DIFFERENCES:
        die(f'{path}: {count} lines, and there may be {MOST_DIFFERENCES}')
    return found


class Judge:
    """Counts the scripts, reports their errors, and keeps their output."""

    def __init__(self, stock, differences, folder):
        self.stock, self.differences = stock, differences
        self.folder = os.path.join(folder, 'failed')
        self.passed = self.failed = self.skipped = self.tests = self.excused = 0
        self.fewer, self.later = [], []
        shutil.rmtree(self.folder, ignore_errors=True)

    def errors(self, result, stock):
        """Returns the errors that stock does not have: [(test, sentence), ...], with repetitions. `stock` is None if
        the script is not run with stock."""
        if stock and stock.trouble:
            return [(GAVE_UP, f'with stock: {stock.trouble}')]
        known = collections.Counter(stock.errors if stock else [])
        errors = [(test, '') for test in sorted((collections.Counter(result.errors) - known).elements())]
        if result.trouble:
            return errors + [(UNFINISHED if result.late else GAVE_UP, result.trouble)]
        if not stock:
            return errors + ([] if result.tests else [(SKIPPED, 'no test was made')])
        if result.tests <= NOTHING < stock.tests:
            errors.append((SKIPPED, f'{stock.tests} tests with stock'))
        elif result.tests * LEAST_PART < stock.tests:
            errors.append((FEWER, f'{result.tests} tests, {stock.tests} with stock'))
        return errors

    def wrong(self, script, result, stock):
        """Returns the errors that are not listed, and the listed ones that did not occur: [(test, sentence), ...]."""
        if result.crashed:
            return [('', result.trouble)]
        errors = self.errors(result, stock)
        allowed, rest = collections.Counter(self.differences.get(script.name, [])), []
        for test, sentence in errors: # a line allows one error
            line = (test, NO_TEST if test in (SKIPPED, UNFINISHED) else world.got(result.output, test))
            if allowed[line]:
                allowed[line] -= 1
                self.excused += 1
            else:
                rest.append((test, sentence))
        return rest + [(test, f'is in differences.txt with {value}, and does not get it')
                       for test, value in allowed.elements()]

    def take(self, script, result):
        stock = self.stock.get(script.name)
        wrong = self.wrong(script, result, stock)
        self.tests += result.tests
        if stock:
            text = f'{script.name} ({result.seconds} s, {stock.seconds} s)'
            self.later.append((result.seconds - stock.seconds, text))
        if wrong:
            self.failed += 1
            self.name(script, result, wrong)
        elif result.trouble or stock and result.tests <= NOTHING:
            self.skipped += 1
        else:
            self.passed += 1
            if stock and result.tests < stock.tests * 0.9:
                self.fewer.append(f'{script.name} ({result.tests} of {stock.tests})')

    def name(self, script, result, wrong):
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, script.name), 'w', encoding='utf-8') as kept:
            kept.write(result.output)
        for test, sentence in wrong[:MOST_NAMED]:
            say(f'{ATO}: FAILED: {" ".join(filter(None, (script.name, test, sentence)))}')
            for line in world.explain(result.output, test):
                print(f'        {line}')
        if len(wrong) > MOST_NAMED:
            print(f'        and {len(wrong) - MOST_NAMED} more of {script.name}')

    def sum_up(self):
        say(f'{ATO}: {self.tests} tests; {self.excused} errors are in differences.txt; scripts: '
            f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped')
        later = [text for seconds, text in sorted(self.later, reverse=True)[:MOST_NAMED] if seconds > 1]
        if later:
            say(f'{ATO}: these took longer than with stock: {", ".join(later)}')
        if self.failed:
            say(f'{ATO}: what those that failed printed is in {self.folder}')
        if self.fewer:
            say(f'{ATO}: these made fewer tests than with stock: {", ".join(self.fewer)}')
