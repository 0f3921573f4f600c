#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs SQLite's own tests with libato's VFS as their default, and judges the results: each failure must also occur with
# SQLite's own VFS, or be in differences.txt. tools/sqlite-tests builds what this needs and calls it; its --help
# describes the arguments.
#
# usage: suite.py FOLDER [--all | SCRIPT...]
#
# FOLDER/source         SQLite's sources
# FOLDER/programs       the programs built of them; libato_suite.so, with the VFS
# FOLDER/stock.json     results with SQLite's own VFS, kept as long as the programs are the same
# FOLDER/failed         output of failed scripts

import collections
import concurrent.futures
import dataclasses
import fnmatch
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import world
from judge import ATO, STOCK, Judge, die, read_differences, say
from world import Result, Script

HERE = os.path.dirname(os.path.abspath(__file__))

# Tells the programs which VFS is their default.
WORDS = {
    STOCK: {'ATO_SUITE_VFS': 'stock'},
    ATO: {'ATO_SUITE_VFS': 'ato'},
}

# Not run: these scripts write to the file of an open database by other means than SQLite (hexio_write, channels of Tcl's), or
# read it by its absolute name, in another process or by SQLite's own VFS (nolock=1), to which shown.c does not show
# it. The file is not complete until the last close. pagerfault copies it within a transaction: as it closes it, the process loses
# SQLite's locks, and the transaction is refused.
RAW = set('''
    alter2 corrupt corrupt8 corruptB corruptC corruptD corruptL descidx2 incrblob3 incrcorrupt
    pager1 pager4 pagerfault pragma rdonly rowallock superlock tkt3457 unixexcl
'''.split())

# These expect that a commit waits for readers, and a reader for the commit. So they are run without snapshots (failing.c), which a VFS
# without memory for them does, too.
EXCLUDE = set('savepoint shared cacheflush exclusive attach lock3'.split())

# These find a VFS that is not atomic, that locks wrongly or that loses written bytes.
QUICK = '''
    writecrash crash crash[235] savepoint savepoint[27] diskfull ioerr ioerr4 quota attach attach2 journal1 jrnlmode jrnlmode2
    pager2 pageropt rollback2 wal wal2 walcrash2 walro walmode backup backup2 vacuum vacuum2 vacuum5 incrvacuum
    autovacuum shared lock lock2 lock3 exclusive trans trans2 avtrans nolock multiplex2 io sync sync2
    tempdb corrupt2 symlink uri thread001 cacheflush stmt fallocate
    mptester:crash01:delete mptester:multiwrite01:delete
'''.split()

# --all runs these beside SQLite's suite `veryquick`, which omits them because they take long; they are about files.
# Omitted here, because they take minutes each: backup_ioerr, thread003, walthread.
MORE = '''
    writecrash crash* savepoint* wal wal? walcrash* walfault* walslow walprotocol
    backup backup_malloc vacuum* incrvacuum_ioerr autovacuum_ioerr2 shared_err mmap* pagerfault* cffault
    trans2 attachmalloc rollbackfault ioerr* bigfile* corrupt* misc7 tempfault thread00[1245] recover*
    mptester:* threadtest3:*
'''.split()

THREAD_TESTS = ('walthread1', 'walthread2', 'walthread3', 'walthread4', 'walthread5', 'cgt_pager_1',
                'dynamic_triggers', 'checkpoint_starvation_1', 'checkpoint_starvation_2',
                'create_drop_index_1', 'lookaside1', 'vacuum1', 'stress1', 'stress2', 'shared1')

# ---- The scripts ----

def ask(place, variant, *words):
    """Runs a script of ours; returns the lines that it prints."""
    command = [os.path.join(place.bin, 'testfixture'), *words]
    with tempfile.TemporaryDirectory(dir=place.top) as folder:
        return subprocess.run(command, cwd=folder, env={**os.environ, **WORDS[variant]}, check=True,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.splitlines()


def words(variant, script):
    """Returns the environment of a script."""
    return {**WORDS[variant], 'ATO_TEST_NO_SNAPSHOTS': '1'} if script.name in EXCLUDE else WORDS[variant]


def check_default(place, variant):
    """Checks the default VFS: not all tests would notice a wrong one."""
    said = ask(place, variant, os.path.join(HERE, 'default.tcl'))
    if [line.split('/')[0] for line in said] != ['unix' if variant == STOCK else 'ato']:
        die(f'{variant}: the default VFS is {said}')


def of_sqlite(place):
    """Returns SQLite's scripts by name, and the names of its suite `veryquick`."""
    scripts, veryquick = {}, set()
    for line in ask(place, STOCK, os.path.join(HERE, 'scripts.tcl'), place.tests):
        suite, path = line.split(' ', 1)
        name = os.path.basename(path).removesuffix('.test')
        scripts[name] = Script(name, ['{bin}/testfixture', '{bin}/../script.tcl', path], 600)
        if suite == 'veryquick':
            veryquick.add(name)
    return scripts, veryquick


def of_programs():
    """Returns the tests of mptester, in each journal mode, and those of threadtest3."""
    scripts = {}
    for test in 'crash01', 'multiwrite01':
        for mode in 'delete', 'truncate', 'persist', 'wal':
            name = f'mptester:{test}:{mode}'
            scripts[name] = Script(name, [
                '{bin}/mptester', 'mptest.db', f'{{tests}}/../mptest/{test}.test', '--vfs', 'ato',
                '--journalmode', mode, '--repeat', '5'], 180)
    for test in THREAD_TESTS:
        name = f'threadtest3:{test}'
        scripts[name] = Script(name, ['{bin}/threadtest3', test], 180)
    return scripts


def matching(scripts, patterns):
    """Returns the names of scripts that match one of the patterns. A pattern without a match is an error."""
    found = {}
    for pattern in patterns:
        names = fnmatch.filter(scripts, pattern.removesuffix('.test'))
        if not names:
            die(f'there is no script {pattern}')
        found.update(dict.fromkeys(names))
    return list(found)


# ---- Running them ----

def keep_time(name, seconds):
    """Writes a line for the table of the longest tests (tools/setup.sh)."""
    if os.environ.get('ATO_TIMES'):
        with open(os.environ['ATO_TIMES'], 'a', encoding='utf-8') as file:
            print(round(seconds * 1000), name, sep='\t', file=file)


def run_all(place, variant, scripts, known, take):
    """Runs the scripts, the longest first, as many at once as there are CPUs; calls take(script, result) when one
    ends."""
    say(f'{variant}: {len(scripts)} scripts')
    scripts = sorted(scripts, key=lambda script: -known.get(script.name, Result(seconds=10)).seconds)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {pool.submit(place.run, script, words(variant, script)): script for script in scripts}
        said = time.monotonic()
        try:
            for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
                script, result = futures[future], future.result()
                keep_time(f'{script.name}, {variant}', result.seconds)
                take(script, result)
                if time.monotonic() > said + 10 or count == len(scripts):
                    said = time.monotonic()
                    say(f'{variant}: {count} of {len(scripts)}')
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            place.stop()
            raise


def digest(paths):
    whole = hashlib.sha256()
    for path in paths:
        with open(path, 'rb') as file:
            whole.update(file.read())
    return whole.hexdigest()


class Stock:
    """The results with SQLite's own VFS: kept in a file, because they are the same each time."""

    def __init__(self, folder):
        self.path, self.results = os.path.join(folder, 'stock.json'), {}
        self.programs = digest(os.path.join(folder, 'programs', program) for program in ('testfixture', 'sqlite3'))
        try:
            with open(self.path, encoding='utf-8') as kept:
                known = json.load(kept)
        except (OSError, ValueError):
            return  # the file is missing or incomplete
        if known['programs'] == self.programs:
            self.results = {name: Result(**fields) for name, fields in known['results'].items()}

    def complete(self, place, scripts):
        """Runs the scripts without a known result; runs those with errors twice: an error that occurs only once does
        not excuse anything."""
        missing = [script for script in scripts if script.name not in self.results]
        if missing:
            try:
                run_all(place, STOCK, missing, {}, self.take)
                again = [script for script in missing if self.results[script.name].errors]
                if again:
                    run_all(place, STOCK, again, {}, self.take_again)
            finally:
                self.keep()
        results = [self.results[script.name] for script in scripts]
        say(f'{STOCK}: {sum(len(result.errors) for result in results)} errors in '
            f'{sum(result.tests for result in results)} tests')

    def keep(self):
        results = {name: dataclasses.asdict(result) for name, result in self.results.items() if not result.trouble}
        with open(self.path + '.new', 'w', encoding='utf-8') as kept:
            json.dump({'programs': self.programs, 'results': results}, kept)
        os.replace(kept.name, self.path)

    def take(self, script, result):
        self.results[script.name] = dataclasses.replace(result, output='')
        if result.errors or result.trouble:
            say(f'{STOCK}: {script.name}: {result.trouble or " ".join(result.errors)}')

    def take_again(self, script, result):
        both = collections.Counter(self.results[script.name].errors) & collections.Counter(result.errors)
        self.take(script, dataclasses.replace(result, errors=sorted(both.elements())))


# ---- Choosing ----

def limited(script, stock):
    """Sets the time limit: a minute and forty times the time with stock. (Scripts that open a database for each of
    thousands of tests take fifteen times as long.)"""
    return dataclasses.replace(script, limit=60 + int(40 * stock.results[script.name].seconds))


def choose(arguments, scripts, veryquick):
    """Returns the names of the scripts to run."""
    if arguments == ['--all']:
        names = sorted(veryquick.union(matching(scripts, MORE)))
    else:
        names = matching(scripts, arguments or QUICK)
    omitted = [name for name in names if name in RAW]
    if omitted:
        say(f'not run, since they change or read the file by other means than SQLite: {" ".join(omitted)}')
    return [name for name in names if name not in RAW]


def main():
    folder, arguments = sys.argv[1], sys.argv[2:]
    stock = Stock(folder)
    place = world.World(folder)
    try:
        scripts, veryquick = of_sqlite(place)
        programs = of_programs()
        names = choose(arguments, {**scripts, **programs}, veryquick)
        for variant in STOCK, ATO:
            check_default(place, variant)
        stock.complete(place, [scripts[name] for name in names if name in scripts])
        judge = Judge(stock.results, read_differences(), folder)
        run_all(place, ATO, [limited(scripts[name], stock) if name in scripts else programs[name] for name in names],
                stock.results, judge.take)
        judge.sum_up()
    finally:
        left = place.end()
    if left:
        say(f'{left} objects of shared memory were left by processes that were killed, and are removed now')
    print(f'{judge.passed} passed, {judge.failed} failed, {judge.skipped} skipped')
    return 1 if judge.failed else 0


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
