#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which tests do these files concern? Builds and runs them, as many as fit into some seconds.

    affected.py BUILD SECONDS FILE...

The table of tests and sources is what the build knows: ninja's inputs of each program, and of each object the files that the
compiler read. The tests of a file are the suites of test sources that are that file, or include it or the header beside it
(lib/commit/commit.c: lib/commit/commit.h), or are given its path by a macro or on a command line. They are run first, the quickest before the
others; then whole programs that the file is an input of; both as long as they fit. How long each took is kept in
BUILD/affected.json. What does not build has failed, and what does not end in twice the time that it took before.
tools/check says what is printed.
"""
import concurrent.futures
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import count_tests

PATH = re.compile(r'-D\w+=[\\"\']*(/[^\\"\' ]+)')
# Tests of files that no other test covers.
COMMANDS = {r'test/models/': 'tools/check-models', r'test/crash/': 'tools/explore', r'test/sqlite/suite/': 'tools/sqlite-tests',
            r'test/fuzz/|test/data/corpus/': 'tools/fuzz', r'test/install/': 'tools/run-tests', r'test/apps/': 'tools/apps'}
NEVER_TESTED = re.compile(r'docs/|.*\.md$|.*meson\.build$|\.')  # tested only by style and build
SUITE = re.compile(r'^TEST(?:_[FP])?\(\s*(\w+),', re.M)
RANDOM_PERCENT = '20'  # how much of their rounds random tests do here
UNKNOWN = 2  # seconds that a program is taken to need before it has run once: few, so that it soon has
FOR_TESTS = 1 / 3  # of the time: what is built before them stops then
HANGS = 2  # times as long as before: longer than that, a test is said to hang


@dataclasses.dataclass
class Test:
    """A program as meson runs it, or some suites of one."""
    name: str
    program: str  # as ninja names it; a script by its path
    command: list
    environment: dict
    targets: list  # what ninja has to build for it
    files: set  # sources whose paths it is given
    is_near: bool = False  # it tests a changed file
    expected: float = UNKNOWN  # seconds


class DoesNotBuild(Exception):
    """Returns the text that ninja prints."""


class Build:
    """The knowledge of ninja and meson about a build folder."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()  # one ninja at a time
        self.make(['build.ninja'])
        self.outputs = {}  # of each target of meson's
        for target in self.read('meson-info/intro-targets.json'):
            self.outputs[target['id']] = [os.path.relpath(path, os.path.abspath(folder)) for path in target['filename']]
        self.tests = [self._test(test) for test in self.read('meson-info/intro-tests.json')]
        self.programs = {test.program for test in self.tests}
        self.objects = {}  # of each source, also of one that was not compiled yet
        self.given = {}  # to each source by macros: paths of files and folders
        for command in self.read('compile_commands.json'):
            source = self.from_top(command['file'])
            self.objects.setdefault(source, []).append(command['output'])
            paths = {os.path.relpath(path) for path in PATH.findall(command['command'])}
            self.given.setdefault(source, set()).update(paths - {'.'})
        needed = self.inputs([target for test in self.tests for target in test.targets])
        self.sources = self._dependencies()
        if any(target in needed and target not in self.sources for targets in self.objects.values() for target in targets):
            print('not all tests are built yet: building', flush=True)
            self.make([target for test in self.tests for target in test.targets])
            self.sources = self._dependencies()

    def read(self, file):
        with open(os.path.join(self.folder, file), encoding='utf-8') as text:
            return json.load(text)

    def ninja(self, *words, end=None):
        """Returns its output; None if it was stopped at the end of the time. Targets that it has built
        stay."""
        with self.lock, subprocess.Popen(['ninja', '-C', self.folder, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True) as program:
            try:
                printed, _ = program.communicate(timeout=None if end is None else max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                program.send_signal(signal.SIGINT)
                program.communicate()
                return None
        if program.returncode:
            raise DoesNotBuild(printed)
        return printed

    def make(self, targets, end=None):
        """Builds these targets (none: all); exits if they do not build. Returns whether there was time for
        it."""
        try:
            return self.ninja(*targets, end=end) is not None
        except DoesNotBuild as why:
            sys.exit(f'{why}\n0 passed, 1 failed, 0 skipped')

    def from_top(self, path):
        return os.path.normpath(os.path.relpath(os.path.join(self.folder, path)))

    def inputs(self, targets):
        """Returns everything that these are made of: objects as ninja names them, sources by their path from
        the top."""
        found = set(self.ninja('-t', 'inputs', *targets).split('\n')) if targets else set()
        return found | {self.from_top(path) for path in found}

    def _dependencies(self):
        """Returns for each object the files that it was made of."""
        found = {}
        for block in self.ninja('-t', 'deps').split('\n\n'):
            first, *files = block.splitlines() or ['']
            found[first.split(': #deps')[0]] = {self.from_top(file.strip()) for file in files}
        return found

    def _test(self, test):
        scripts = [os.path.relpath(word) for word in test['cmd'] if word.endswith('.py')]
        program = os.path.relpath(test['cmd'][0], os.path.abspath(self.folder))
        targets = [] if scripts else [program]
        for target in test['depends']:
            targets += self.outputs.get(target, [])
        files = {os.path.relpath(word) for word in test['cmd'] if os.path.isabs(word)}
        return Test(test['name'], scripts[0] if scripts else program, test['cmd'], test['env'], targets, files)


def owner(target):
    """Of test/unit/unit_lib.p/flip_test.cc.o: test/unit/unit_lib."""
    return target.split('.p/')[0]


def suites(source):
    if not os.path.exists(source):
        return []
    with open(source, encoding='utf-8') as file:
        return [f'*{name}.*' for name in dict.fromkeys(SUITE.findall(file.read()))]


def lie_in(files, paths):
    """Is one of the files in this list, or below one of its folders?"""
    return any(file == path or file.startswith(path + '/') for file in files for path in paths)


def imports(script):
    if not script.endswith('.py') or not os.path.exists(script):
        return set()
    with open(script, encoding='utf-8') as file:
        return set(re.findall(r'^(?:import|from) (\w+)', file.read(), re.M))


def suites_about(files, build):
    """Returns for each program with tests of the files their filters: an empty set stands for all tests."""
    headers = {os.path.splitext(file)[0] + '.h' for file in files}
    concerned = files | {header for header in headers if os.path.exists(header)}
    modules = {os.path.basename(file)[:-3] for file in files if file.endswith('.py')}
    found = {program: set() for program in build.programs if program in files or imports(program) & modules}
    found.update({test.program: set() for test in build.tests if lie_in(files, test.files)})
    for source, objects in build.objects.items():
        for target in objects:
            program = owner(target)
            made_of = build.sources.get(target, set()) | {source}
            if program not in build.programs or not (made_of & concerned or lie_in(files, build.given[source])):
                continue
            named = set(suites(source))
            if not named or found.get(program) == set():
                found[program] = set()  # sources of all suites of the program
            else:
                found.setdefault(program, set()).update(named)
    return found


def choose(files, changed, build):
    """Returns the tests that the files concern, and the number of all others. `changed`: the files, and
    objects of them."""
    about = suites_about(files, build)
    folders = [os.path.dirname(file) for file in files if os.path.basename(file) == 'meson.build']
    chosen, others = {}, 0
    for test in build.tests:
        filters = about.get(test.program)
        if filters:
            chosen.setdefault(test.program, dataclasses.replace(
                test, name=f'{test.program}: {" ".join(sorted(filters))}', is_near=True,
                command=[*test.command, '--gtest_filter=' + ':'.join(sorted(filters))],
                environment={name: value for name, value in test.environment.items() if not name.startswith('GTEST_')}))
        elif filters is not None or build.inputs(test.targets) & changed or \
                any(lie_in({test.program}, {folder}) or not folder for folder in folders):
            chosen[test.name] = dataclasses.replace(test, is_near=filters is not None)
        else:
            others += 1
    return list(chosen.values()), others


class Run:
    """Runs tests side by side until the time is over."""

    def __init__(self, build, end):
        self.build = build
        self.end = end
        self.count = count_tests.Count()
        self.left_out = []
        self.times = os.path.join(build.folder, 'affected.json')
        self.seconds = {}  # of each test
        self.lock = threading.Lock()  # for these, and for the output
        self.running = set()  # process groups
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.stop)
        try:
            with open(self.times, encoding='utf-8') as kept:
                self.seconds = json.load(kept)
        except (OSError, ValueError):
            pass  # missing or incomplete

    def stop(self, number, _frame):
        for group in list(self.running):
            os.killpg(group, signal.SIGKILL)
        print('FAILED: stopped by', signal.Signals(number).name, flush=True)
        os._exit(128 + number)

    def all(self, tests):
        for test in tests:
            test.expected = self.seconds.get(test.name, 0 if test.is_near else UNKNOWN)
        tests.sort(key=lambda test: (not test.is_near, test.expected))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.one, tests))
        with open(self.times + '.new', 'w', encoding='utf-8') as kept:
            json.dump(self.seconds, kept, indent=0)
        os.replace(self.times + '.new', self.times)

    def fits(self, test):
        return time.monotonic() + test.expected <= self.end

    def one(self, test):
        try:
            is_there = self.fits(test) and (not test.targets or self.build.ninja(*test.targets, end=self.end) is not None)
        except DoesNotBuild as why:
            self.fail(test, 'does not build', str(why))
            return
        if is_there and self.fits(test):
            self.start(test)
        else:
            with self.lock:
                self.left_out.append(test.name)

    def fail(self, test, why, printed):
        with self.lock:
            self.count.names['failed'].append(test.name)
            print(f'FAILED, {why}: {test.name}', *printed.splitlines()[-count_tests.LINES_SHOWN:], sep='\n', flush=True)

    def start(self, test):
        began = time.monotonic()
        limit = max(self.end - began, 1)
        program = subprocess.Popen(test.command, env={**os.environ, 'ATO_TEST_PERCENT': RANDOM_PERCENT, **test.environment},
                                   cwd=self.build.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors='replace', start_new_session=True)
        self.running.add(program.pid)
        try:
            printed, complained = program.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            printed, complained = program.communicate()
            self.running.discard(program.pid)
            if HANGS * self.seconds.get(test.name, limit) < limit:
                self.fail(test, f'not at its end after {limit:.0f} s', printed + complained)
            else:
                with self.lock:
                    self.seconds[test.name] = max(limit + 1, self.seconds.get(test.name, 0))
                    self.left_out.append(test.name + ' (not at its end)')
            return
        self.running.discard(program.pid)
        took = time.monotonic() - began
        result = {0: 'OK', 77: 'SKIP'}.get(program.returncode, 'FAIL')
        with self.lock:
            self.seconds[test.name] = took
            before = len(self.count.names['failed'])
            cases = self.count.add(test.name, result, printed, complained, took)
            failed = len(self.count.names['failed']) > before
            print(f'{"FAILED" if failed else "ok"}, {took:.1f} s: {test.name}', flush=True)
            for case in cases:
                print(f'---- {case} said:', count_tests.said(printed, case), sep='\n', flush=True)
            if failed:
                print(*(complained if cases else printed + complained).splitlines()[-count_tests.LINES_SHOWN:], sep='\n',
                      flush=True)


def main(folder, seconds, *files):
    end = time.monotonic() + float(seconds)
    built_by = end - FOR_TESTS * float(seconds)
    files = set(files)
    build = Build(folder)
    if not build.tests:
        sys.exit(f'{folder} has no tests: remove it, and it is made anew')
    objects = {target for target, sources in build.sources.items() if sources & files}
    objects.update(target for file in files for target in build.objects.get(file, []))
    tests, others = choose(files, files | objects, build)
    near = sum(test.is_near for test in tests)
    print(f'{near} tests are of what changed, {len(tests) - near} link it', flush=True)
    if any(os.path.basename(file) == 'meson.build' for file in files):
        build.make([], built_by)
    # A test's own objects are built with it.
    programs = {path for paths in build.outputs.values() for path in paths}
    targets = {owner(target) if owner(target) in programs else target for target in objects if owner(target) not in build.programs}
    targets.update(target for test in tests if test.is_near for target in test.targets)
    if targets and not build.make(sorted(targets), built_by):
        print('there was no time to build all that is made of what changed: the next run goes on', flush=True)
    run = Run(build, end)
    run.all(tests)
    known = set().union(*build.sources.values(), build.objects, build.inputs(['all']), build.programs)
    for file in sorted(files):
        is_tested = (file in known and not file.startswith('test/crash/')) or suites_about({file}, build)
        if not is_tested and os.path.exists(file) and not NEVER_TESTED.match(file):
            command = next((name for pattern, name in COMMANDS.items() if re.match(pattern, file)), 'no test here')
            print(f'not tested: {file}; {command} looks at it')
    print(f'left out: {", ".join(run.left_out) or "nothing that is made of what changed"}; and {others} other tests')
    print(run.count)
    return 1 if run.count.names['failed'] else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
