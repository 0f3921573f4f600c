#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes what becomes of each test of a suite to the file that ATO_CLIENTS_RESULTS names: a line with the test's name, a tab, and
passed, failed or skipped. A test with subtests, or with a failure when it is set up or cleaned up, has several lines.

    recorder.py MODULE...    runs the tests of these modules of unittest
    pytest -p recorder ...   this module as a plugin
    Result                   for Django's test runner

apsw brings an SQLite of its own: if ATO_CLIENTS_EXTENSION names the extension, that is loaded, and `ato` is its default VFS.
"""
import os
import sys
import test
import unittest


def note(name, outcome):
    with open(os.environ['ATO_CLIENTS_RESULTS'], 'a', encoding='utf-8') as results:
        results.write(f'{name}\t{outcome}\n')


class Result(unittest.TextTestResult):
    def addSuccess(self, test):
        super().addSuccess(test)
        note(test.id(), 'passed')

    def addError(self, test, err):
        super().addError(test, err)
        note(test.id(), 'failed')

    def addFailure(self, test, err):
        super().addFailure(test, err)
        note(test.id(), 'failed')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        note(test.id(), 'skipped')

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        note(test.id(), 'passed')

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        note(test.id(), 'failed')

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            note(test.id(), 'failed')


def pytest_runtest_logreport(report):
    if report.when == 'call' or report.outcome != 'passed':
        expected = hasattr(report, 'wasxfail')
        note(report.nodeid, 'passed' if expected else report.outcome)


def pytest_configure(config):
    import hypothesis
    hypothesis.settings.register_profile('clients', deadline=None, derandomize=True)
    hypothesis.settings.load_profile('clients')


def prepare_apsw():
    import apsw
    extension = os.environ.get('ATO_CLIENTS_EXTENSION')
    one = apsw.Connection(':memory:')
    if extension:
        one.enable_load_extension(True)
        one.load_extension(extension)
        apsw.set_default_vfs('ato')
    one.close()
    one = apsw.Connection(os.path.join(os.environ['ATO_CLIENTS_FILES'], 'one.db'))
    note('the VFS', one.vfsname('main'))
    one.close()


if __name__ == '__main__':
    sys.path.insert(0, os.getcwd())
    test.__path__.append(os.getcwd())
    if sys.argv[1].startswith('apsw'):
        prepare_apsw()
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    unittest.TextTestRunner(resultclass=Result, verbosity=2).run(suite)
