#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which tests do these files concern? Builds and runs them, as many as fit into some seconds.

    affected.py BUILD SECONDS FILE...

The table of tests and sources is what the compiler wrote down: the dependencies of each test's object. First come the suites of
test sources that are among the files, or include one of them or the header beside it (lib/flip.c: lib/flip.h). Then, if a
source of the library is among them, whole programs that link it, the quickest first; how long they took is kept in
BUILD/affected.json. tools/check says what is printed.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time

BUILD, LIMIT, FILES = sys.argv[1], time.monotonic() + float(sys.argv[2]), set(sys.argv[3:])
TIMES = os.path.join(BUILD, 'affected.json')
UNKNOWN = 10  # seconds that a program is taken to need before it has run once
SUITE = re.compile(r'^TEST(?:_[FP])?\(\s*(\w+),', re.M)
CASE = re.compile(r'^\[ +(OK|SKIPPED|FAILED) +\] (.*) \(\d+ ms\)$', re.M)

lock = threading.Lock()  # of ninja, and of what is printed
counts = {'OK': 0, 'FAILED': 0, 'SKIPPED': 0}
left_out = []


def ninja(*words):
    return subprocess.run(['ninja', '-C', BUILD, *words], capture_output=True, text=True, check=False)


def dependencies():
    """Of each object the sources that it is made of, as paths from the top folder."""
    found, of = {}, None
    for line in ninja('-t', 'deps').stdout.splitlines():
        if line.startswith('    '):
            found[of].add(os.path.normpath(os.path.relpath(os.path.join(BUILD, line.strip()))))
        elif ': #deps' in line:
            of = line.split(': #deps')[0]
            found[of] = set()
    return found


def program_of(target):
    """test/unit/unit_lib.p/flip_test.cc.o is of test/unit/unit_lib."""
    return target.split('.p/')[0]


def tests():
    """Programs and their tests: of one that is run in several parts the first."""
    with open(os.path.join(BUILD, 'meson-info', 'intro-tests.json'), encoding='utf-8') as file:
        listed = json.load(file)
    found = {}
    for test in listed:
        name = os.path.relpath(test['cmd'][0], os.path.abspath(BUILD))
        scripts = [word for word in test['cmd'] if word.endswith('.py')]
        key = os.path.relpath(scripts[0]) if scripts else name
        found.setdefault(key, test)
    return found


def suites(source):
    with open(source, encoding='utf-8') as file:
        return [f'*{name}.*' for name in dict.fromkeys(SUITE.findall(file.read()))]


def choose(objects, programs):
    """Programs that the files concern, with filters for their cases (none: all); and those that only link them."""
    concerned = set(FILES)
    concerned.update(header for path in FILES for header in [os.path.splitext(path)[0] + '.h'] if os.path.exists(header))
    near, far = {}, set()
    for path in FILES & set(programs):
        near[path] = set()
    for target, sources in objects.items():
        program = program_of(target)
        if program not in programs or not sources & concerned:
            continue
        source = next((s for s in sources if target.endswith(os.path.basename(s) + '.o')), None)
        named = suites(source) if source else []
        if not named:
            near[program] = set()  # what all of its suites share
        elif near.get(program) != set():
            near.setdefault(program, set()).update(named)
    if any(path.startswith(('lib/', 'reflection/', 'include/')) for path in FILES):
        libraries = {program_of(target) for target, sources in objects.items() if sources & FILES and '/lib' in target}
        for program in programs:
            made_of = set(re.findall(r'\S+', ninja('-t', 'query', program).stdout)) if not program.endswith('.py') else set()
            if program not in near and made_of & libraries and 'kill' not in programs[program]['suite']:
                far.add(program)
    return near, far


def build(targets):
    wanted = [target for target in targets if not target.endswith('.py')]
    with lock:
        return ninja(*(wanted or ['all']))


def run(program, test, filters):
    command = list(test['cmd'])
    if filters:
        command.append('--gtest_filter=' + ':'.join(sorted(filters)))
    environment = {name: value for name, value in test['env'].items() if not name.startswith('GTEST_')}
    began = time.monotonic()
    try:
        done = subprocess.run(command, env={**os.environ, 'ATO_TEST_PERCENT': '20', **environment}, cwd=BUILD, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, errors='replace', check=False,
                              timeout=max(LIMIT - began, 1))
    except subprocess.TimeoutExpired:
        left_out.append(program + ' (not finished)')
        return
    cases = CASE.findall(done.stdout)
    failed = done.returncode not in (0, 77)
    with lock:
        for result, _ in cases:
            counts[result] += 1
        if not cases:
            counts['FAILED' if failed else 'OK'] += 1
        elif failed and all(result != 'FAILED' for result, _ in cases):
            counts['FAILED'] += 1
        print(f'{program}: {"FAILED" if failed else "ok"}, {len(cases) or 1} tests, {time.monotonic() - began:.1f} s', flush=True)
        if failed:
            print(*(done.stdout + done.stderr).splitlines()[-100:], sep='\n', flush=True)
        if not filters:
            times[program] = time.monotonic() - began


def run_if_it_fits(program):
    if time.monotonic() + times.get(program, UNKNOWN) > LIMIT:
        left_out.append(program)
        return
    made = build([program])
    if made.returncode == 0 and time.monotonic() < LIMIT:
        run(program, programs[program], set())
    else:
        left_out.append(program + (' (does not build)' if made.returncode else ''))


programs = tests()
times = {}
if os.path.exists(TIMES):
    with open(TIMES, encoding='utf-8') as kept:
        times = json.load(kept)
objects_now = dependencies()
if not objects_now:
    print('nothing is built yet: building all', flush=True)
    made_now = build([])
    if made_now.returncode:
        sys.exit(made_now.stdout)
    objects_now = dependencies()
concerns, links = choose(objects_now, programs)
print(f'{len(concerns)} programs have tests of what changed, {len(links)} more link it', flush=True)
if concerns:
    made_now = build(concerns)
    if made_now.returncode:
        sys.exit(made_now.stdout)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(lambda program: run(program, programs[program], concerns[program]), sorted(concerns)))
    list(pool.map(run_if_it_fits, sorted(links, key=lambda program: times.get(program, UNKNOWN))))
with open(TIMES, 'w', encoding='utf-8') as kept:
    json.dump(times, kept)
others = len(programs) - len(concerns) - len(links)
print(f'left out: {", ".join(sorted(left_out)) or "nothing that links what changed"}; and {others} other programs')
print(f'{counts["OK"]} passed, {counts["FAILED"]} failed, {counts["SKIPPED"]} skipped')
sys.exit(counts['FAILED'] > 0)
