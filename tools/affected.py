#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which tests do these files concern? Builds and runs them, as many as fit into some seconds.

    affected.py BUILD SECONDS FILE...

The table of tests and sources is what the compiler wrote down: the dependencies of each object. The tests of a file are the
suites of test sources that are that file, or include it or the header beside it (lib/flip.c: lib/flip.h). They come first,
the quickest before the others; then whole programs that link what the file is compiled into. How long each took is kept in
BUILD/affected.json, and what would not fit is left out. tools/check says what is printed.
"""
import concurrent.futures
import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time

import count_tests

SUITE = re.compile(r'^TEST(?:_[FP])?\(\s*(\w+),', re.M)
RANDOM_PERCENT = '20'  # how much of their rounds random tests do here
UNKNOWN = 10  # seconds that a program is taken to need before it has run once
AT_LEAST = 20  # seconds for tests, however long the build took


@dataclasses.dataclass
class Test:
    """A program as meson runs it, or some suites of one."""
    name: str
    program: str  # as ninja names it; a script by its path
    command: list
    environment: dict
    is_near: bool = False  # it is about a file that changed
    expected: float = UNKNOWN  # seconds


class Build:
    """What ninja and meson know of a build folder."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()  # one ninja at a time
        if not self.ninja('-t', 'deps').stdout.strip():
            print('nothing is built yet: building all', flush=True)
            self.make_or_exit([])
        else:
            self.make_or_exit(['build.ninja'])
        self.sources = self._dependencies()
        self.objects = self._objects()

    def ninja(self, *words):
        with self.lock:
            return subprocess.run(['ninja', '-C', self.folder, *words], capture_output=True, text=True, check=False)

    def make_or_exit(self, targets):
        done = self.ninja(*targets)
        if done.returncode:
            sys.exit(done.stdout)

    def _from_top(self, path):
        return os.path.normpath(os.path.relpath(os.path.join(self.folder, path)))

    def _dependencies(self):
        """Of each object the files that it was made of."""
        found = {}
        for block in self.ninja('-t', 'deps').stdout.split('\n\n'):
            first, *files = block.splitlines() or ['']
            found[first.split(': #deps')[0]] = {self._from_top(file.strip()) for file in files}
        return found

    def _objects(self):
        """Of each source its objects: also of one that was not compiled yet."""
        found = {}
        with open(os.path.join(self.folder, 'compile_commands.json'), encoding='utf-8') as file:
            for command in json.load(file):
                found.setdefault(self._from_top(command['file']), []).append(command['output'])
        return found

    def inputs(self, program):
        return set(self.ninja('-t', 'query', program).stdout.split())

    def tests(self):
        with open(os.path.join(self.folder, 'meson-info', 'intro-tests.json'), encoding='utf-8') as file:
            listed = json.load(file)
        for test in listed:
            scripts = [os.path.relpath(word) for word in test['cmd'] if word.endswith('.py')]
            program = scripts[0] if scripts else os.path.relpath(test['cmd'][0], os.path.abspath(self.folder))
            yield Test(test['name'], program, test['cmd'], test['env'])


def owner(target):
    """Of test/unit/unit_lib.p/flip_test.cc.o: test/unit/unit_lib."""
    return target.split('.p/')[0]


def suites(source):
    with open(source, encoding='utf-8') as file:
        return [f'*{name}.*' for name in dict.fromkeys(SUITE.findall(file.read()))]


def suites_about(files, build, programs):
    """Of each program that has tests of the files their filters: an empty set is all that it has."""
    headers = {os.path.splitext(file)[0] + '.h' for file in files}
    concerned = files | {header for header in headers if os.path.exists(header)}
    found = {program: set() for program in files & programs}
    for source, objects in build.objects.items():
        for target in objects:
            program = owner(target)
            if program not in programs or not (build.sources.get(target, set()) | {source}) & concerned:
                continue
            named = set(suites(source))
            if not named or found.get(program) == set():
                found[program] = set()  # what all suites of the program share
            else:
                found.setdefault(program, set()).update(named)
    return found


def choose(files, build):
    """The tests that the files concern, and the number of those that they do not."""
    tests = list(build.tests())
    programs = {test.program for test in tests}
    about = suites_about(files, build, programs)
    changed = {owner(target) for target, sources in build.sources.items() if sources & files}
    linking = {program for program in programs if not program.endswith('.py') and build.inputs(program) & changed}
    chosen, others = {}, 0
    for test in tests:
        filters = about.get(test.program)
        if filters:
            chosen.setdefault(test.program, dataclasses.replace(
                test, name=f'{test.program}: {" ".join(sorted(filters))}', is_near=True,
                command=[*test.command, '--gtest_filter=' + ':'.join(sorted(filters))],
                environment={name: value for name, value in test.environment.items() if not name.startswith('GTEST_')}))
        elif filters is not None or test.program in linking:
            chosen[test.name] = dataclasses.replace(test, is_near=filters is not None)
        else:
            others += 1
    return list(chosen.values()), others


class Run:
    """Tests, run side by side until the time is over."""

    def __init__(self, build, end):
        self.build = build
        self.end = end
        self.count = count_tests.Count()
        self.left_out = []
        self.times = os.path.join(build.folder, 'affected.json')
        self.seconds = {}  # that each took
        self.lock = threading.Lock()  # of these, and of what is printed
        if os.path.exists(self.times):
            with open(self.times, encoding='utf-8') as kept:
                self.seconds = json.load(kept)

    def all(self, tests):
        for test in tests:
            test.expected = self.seconds.get(test.name, 0 if test.is_near else UNKNOWN)
        tests.sort(key=lambda test: (not test.is_near, test.expected))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.one, tests))
        with open(self.times, 'w', encoding='utf-8') as kept:
            json.dump(self.seconds, kept, indent=0)

    def one(self, test):
        if time.monotonic() + test.expected > self.end:
            self.leave_out(test, '')
        elif not test.program.endswith('.py') and self.build.ninja(test.program).returncode:
            self.leave_out(test, ' (does not build)')
        elif time.monotonic() + test.expected > self.end:
            self.leave_out(test, '')
        else:
            self.start(test)

    def leave_out(self, test, why):
        with self.lock:
            self.left_out.append(test.name + why)

    def start(self, test):
        began = time.monotonic()
        try:
            done = subprocess.run(test.command, env={**os.environ, 'ATO_TEST_PERCENT': RANDOM_PERCENT, **test.environment},
                                  cwd=self.build.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors='replace', check=False, timeout=max(self.end - began, 1))
        except subprocess.TimeoutExpired:
            self.leave_out(test, ' (not finished)')
            with self.lock:
                self.seconds[test.name] = max(time.monotonic() - began + 1, self.seconds.get(test.name, 0))
            return
        took = time.monotonic() - began
        result = {0: 'OK', 77: 'SKIP'}.get(done.returncode, 'FAIL')
        with self.lock:
            self.seconds[test.name] = took
            failed = self.count.add(test.name, result, done.stdout, took)
            print(f'{"FAILED" if result == "FAIL" else "ok"}, {took:.1f} s: {test.name}', flush=True)
            for case in failed:
                print(f'---- {case} said:', count_tests.said(done.stdout, case), sep='\n', flush=True)
            if result == 'FAIL':
                print(*(done.stderr if failed else done.stdout + done.stderr).splitlines()[-count_tests.LINES_SHOWN:], sep='\n',
                      flush=True)


def main(folder, seconds, *files):
    end = time.monotonic() + float(seconds)
    files = set(files)
    build = Build(folder)
    tests, others = choose(files, build)
    own = [target for file in files for target in build.objects.get(file, [])]
    near = {test.program for test in tests if test.is_near and not test.program.endswith('.py')}
    print(f'{sum(test.is_near for test in tests)} tests are of what changed, {sum(not test.is_near for test in tests)} link it',
          flush=True)
    if own or near:
        build.make_or_exit([*own, *sorted(near)])
    run = Run(build, max(end, time.monotonic() + AT_LEAST))
    run.all(tests)
    print(f'left out: {", ".join(run.left_out) or "nothing that links what changed"}; and {others} other tests')
    print(run.count)
    return 1 if run.count.names['failed'] else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
