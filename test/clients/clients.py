#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs suites of others with stock SQLite and with libato's VFS, and compares them test by test.

    clients.py FOLDER ATO EXTENSION [SUITE...]

FOLDER: what tools/clients has fetched and built. Each suite runs twice in memory and twice on the disk, each time in a new folder. Its
databases are files: files.c. What a run printed is kept in FOLDER/logs.

A test that ends in another way than with stock SQLite is a failure, unless differences.txt lists it; an entry there that no run needs is one,
too. A test that fails with both tests nothing here, and counts as skipped.
"""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDER = os.path.join(HERE, 'recorder.py')
LIMIT = 2400  # seconds for a run
MEDIA = ['memory', 'disk']

CPYTHON = [f'test.test_sqlite3.test_{name}' for name in '''
    backup dbapi dump factory hooks regression transactions types userfunctions'''.split()]
# On the disk only what is about transactions and files: the rest makes the same calls of SQLite.
DJANGO_DISK = '''backends bulk_create cache delete fixtures get_or_create indexes migrations multiple_database schema select_for_update
    test_runner transaction_hooks transactions update'''.split()
DJANGO = DJANGO_DISK + '''aggregation aggregation_regress annotations basic constraints custom_pk datatypes db_functions db_utils
    delete_regress expressions expressions_window fixtures_regress force_insert_update foreign_object generic_relations inspectdb
    introspection lookup many_to_many many_to_one migrate_signals migrations2 model_fields model_inheritance prefetch_related queries
    raw_query sessions_tests test_utils timezones update_only_fields'''.split()
SQLALCHEMY_DISK = [f'test/{name}' for name in '''
    engine/test_execute.py engine/test_pool.py engine/test_reconnect.py engine/test_transaction.py dialect/sqlite
    orm/test_cascade.py orm/test_session.py orm/test_transaction.py orm/test_unitofwork.py orm/test_versioning.py'''.split()]
SQLALCHEMY = [f'test/{name}' for name in ['engine', 'dialect/sqlite', 'dialect/test_suite.py', 'orm/dml']] + [
    f'test/sql/test_{name}.py' for name in '''
    computed cte defaults delete functions insert_exec query quote resultset returning sequences types update'''.split()] + [
        f'test/orm/test_{name}.py' for name in '''cascade cycles defaults dynamic expire lockmode manytomany merge naturalpks session
    sync transaction unitofwork unitofworkv2 versioning'''.split()]
PYTEST = ['python3', '-m', 'pytest', '--rootdir=.', '-p', 'recorder', '-p', 'no:cacheprovider', '-q']

# How tests that do not use recorder.py print what became of them.
PRINTED = {'ok': 'passed', 'FAILED': 'failed', 'ignored': 'skipped', 'PASS': 'passed', 'FAIL': 'failed', 'SKIP': 'skipped'}
GO = re.compile(r'^\s*--- (?P<outcome>PASS|FAIL|SKIP): (?P<test>\S+)', re.MULTILINE)
RUST = re.compile(r'^test (?P<test>\S+)(?: - should panic)? \.\.\. (?P<outcome>ok|FAILED|ignored)', re.MULTILINE)

# files: what is copied from FOLDER/src to the working folder; least: how many tests pass at least with both, in memory; parts: what the
# command is to run, disk: on the disk.
Suite = collections.namedtuple('Suite', 'files command least parts disk printed', defaults=[[], None, None])
SUITES = {
    'cpython': Suite(['test_sqlite3'], ['python3', RECORDER], 300, CPYTHON),
    'sqlalchemy': Suite(['sqlalchemy/.'], [*PYTEST, '--maxfail=100000', '--dburi', 'sqlite:///querytest.db'], 8000, SQLALCHEMY,
                        SQLALCHEMY_DISK),
    'django': Suite(['django/tests/.'], ['python3', 'runtests.py', '--settings=django_files', '--parallel=1'], 5000, DJANGO, DJANGO_DISK),
    'peewee': Suite(['peewee/.'], ['python3', RECORDER, 'tests'], 800),
    'sqlite-utils': Suite(['sqlite-utils/.'], [*PYTEST, 'tests'], 1400),
    'apsw': Suite(['testextension.sqlext.so'], ['python3', RECORDER, 'apsw.tests.__main__'], 220),
    # The one that is left out skips itself where its inserts take less than 100 ms.
    'go-sqlite3': Suite(['go-sqlite3/.'], ['./all.test', '-test.v', '-test.skip=^TestExecContextCancel$'], 100, printed=GO),
    'rusqlite': Suite(['rusqlite/.'], ['./all.test', '--test-threads=2'], 190, printed=RUST),
}
BUNDLED = ['apsw']  # they have an SQLite of their own
WORST = ['passed', 'skipped', 'failed']


class Run:
    """A run of a suite in a new folder: what became of each test, and by which VFSs."""

    def __init__(self, name, vfs, medium, top, ato, extension):
        self.outcomes, self.vfs = {}, set()
        suite, begin = SUITES[name], time.monotonic()
        log = f'{top}/logs/{name}-{vfs}-{medium}.log'
        folder = tempfile.mkdtemp(prefix='libato-clients-', dir='/dev/shm' if medium == 'memory' else top)
        try:
            for each in ['work', 'tmp', 'files']:
                os.mkdir(f'{folder}/{each}')
            for file in suite.files:
                subprocess.run(['cp', '-a', f'{top}/src/{file}', f'{folder}/work/'], check=True)
            command = suite.command + (suite.disk if medium == 'disk' and suite.disk else suite.parts)
            environment = {**os.environ, 'PATH': f'{top}/venv/bin:' + os.environ['PATH'], 'PYTHONPATH': HERE,
                           'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONHASHSEED': '0', 'TMPDIR': f'{folder}/tmp',
                           'ATO_CLIENTS_RESULTS': f'{folder}/results', 'ATO_CLIENTS_FILES': f'{folder}/files'}
            if name not in BUNDLED:
                environment['LD_PRELOAD'] = f'{top}/files.so'
                command = [ato, 'sqlite', '--require', *command] if vfs == 'ato' else command
            elif vfs == 'ato':
                environment['ATO_CLIENTS_EXTENSION'] = extension
            with open(log, 'wb') as out:
                try:
                    subprocess.run(command, cwd=f'{folder}/work', env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out, timeout=LIMIT, check=False)
                except subprocess.TimeoutExpired:
                    out.write(b'\nended after its time limit\n')
            self.read(suite, log, f'{folder}/results')
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.seconds = time.monotonic() - begin

    def read(self, suite, log, results):
        with open(log, encoding='utf-8', errors='replace') as text:
            found = [(each['test'], PRINTED[each['outcome']]) for each in suite.printed.finditer(text.read())] if suite.printed else []
        if os.path.exists(results):
            with open(results, encoding='utf-8', errors='replace') as lines:
                found += [line.rstrip('\n').rsplit('\t', 1) for line in lines if '\t' in line]
        for test, outcome in found:
            if test == 'the VFS':
                self.vfs.add(outcome)
            else:
                self.outcomes[test] = max(self.outcomes.get(test, 'passed'), outcome, key=WORST.index)


def read_differences():
    """Returns {(suite, medium): {test: 'stock, ato'}}."""
    found = collections.defaultdict(dict)
    with open(os.path.join(HERE, 'differences.txt'), encoding='utf-8') as lines:
        for line in lines:
            if line.strip() and not line.startswith('#'):
                suite, test, outcomes, reason = (part.strip() for part in line.split(' | '))
                suite, *media = suite.split()
                assert reason and suite in SUITES, line
                for medium in media or MEDIA:
                    found[suite, medium][test] = outcomes
    return found


def differences_of(stock, ours):
    """Returns {test: 'stock, ato'}."""
    return {test: f'{one}, {other}' for test in stock.outcomes.keys() | ours.outcomes.keys()
            if (one := stock.outcomes.get(test, 'missing')) != (other := ours.outcomes.get(test, 'missing'))}


def compare(name, medium, run, allowed):
    """Prints the failures, then a line of the table. Returns how many passed, failed and were skipped. allowed: {test: 'stock, ato'}."""
    failures = []
    stock, ours = run('stock'), run('ato')
    found = differences_of(stock, ours)
    if found != allowed:  # some tests depend on the time that they take: what differs has to do so twice
        again = differences_of(run('stock'), run('ato'))
        found = {test: outcomes for test, outcomes in found.items() if again.get(test) == outcomes or allowed.get(test) == outcomes}
    for each, vfs in [(stock, 'unix'), (ours, 'ato/unix')]:
        if each.vfs != {vfs}:
            failures.append(f'the databases are opened by {each.vfs}, not by {vfs}')
    both = sum(outcome == 'passed' == ours.outcomes.get(test) for test, outcome in stock.outcomes.items())
    if both < SUITES[name].least / (10 if medium == 'disk' and SUITES[name].disk else 1):
        failures.append(f'only {both} tests passed with both')
    for test in sorted(found.keys() | allowed.keys()):
        if found.get(test) != allowed.get(test):
            failures.append(f'{test}: {found.get(test, "no difference")}; in differences.txt: {allowed.get(test, "none")}')
    for each in failures:
        print(f'  FAILED {name}, {medium}: {each}')
    skipped = len(stock.outcomes) - both - len(found)
    print(f'{name:12} {medium:6}  {both:5} pass with both, {len(found.keys() & allowed.keys())} listed differences, {len(failures)} failures, '
          f'{skipped} skipped or failed with both; {stock.seconds:.0f} s, {ours.seconds:.0f} s', flush=True)
    return both + len(found.keys() & allowed.keys()), len(failures), skipped


def main(top, ato, extension, *names):
    os.makedirs(f'{top}/logs', exist_ok=True)
    differences, sums = read_differences(), [0, 0, 0]
    for name in names or SUITES:
        for medium in MEDIA:
            if not os.path.exists(f'{top}/src/{SUITES[name].files[0]}'):
                print(f'{name:12} {medium:6}  skipped: it was not built')
                sums[2] += 1
                continue
            counts = compare(name, medium, lambda vfs, name=name, medium=medium: Run(name, vfs, medium, top, ato, extension),
                             differences[name, medium])
            sums = [a + b for a, b in zip(sums, counts)]
    print('{} passed, {} failed, {} skipped'.format(*sums))
    return sums[1] > 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
