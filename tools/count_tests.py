#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How many tests passed, failed and were skipped in a run of meson's?

    count_tests.py LOG [NOTE]

Reads meson's log, a line of JSON for each program, and counts GoogleTest's cases in what the programs printed. A program that is
none of GoogleTest's, that failed without naming a case, or that left in the midst of one, counts as one; one that passed
without a word has failed. Shows what each case
that failed printed; names those that failed or were skipped; its last line is 'N passed, N failed, N skipped'. Where the
environment's ATO_TIMES names a file, appends each test with NOTE behind its name, and its milliseconds, to that. Exit status:
0 when none failed.
"""
import json
import os
import re
import sys

BEGAN = re.compile(r'^\[=+\] Running (\d+) tests? from', re.M)
ENDED = re.compile(r'^\[=+\] \d+ tests? from .* ran\.', re.M)
CASE = re.compile(r'^\[ +(OK|SKIPPED|FAILED) +\] (.*) \((\d+) ms\)$', re.M)
KINDS = {'OK': 'passed', 'EXPECTEDFAIL': 'passed', 'SKIP': 'skipped', 'SKIPPED': 'skipped'}
LINES_SHOWN = 100  # of each case that failed


class Count:
    """Names of tests by how they ended, and how long they took."""

    def __init__(self):
        self.names = {'passed': [], 'failed': [], 'skipped': []}
        self.milliseconds = []  # (of a test, its name)

    def add(self, program, result, printed, complained, seconds):
        """A program that ended, in one of meson's words for results, and what it wrote to stdout and stderr. Returns the names of its cases that failed."""
        kind = KINDS.get(result, 'failed')
        failed = []
        cases = CASE.findall(printed)
        if kind == 'passed' and not (printed + complained).strip():
            kind, result = 'failed', 'left without a word'
        began = BEGAN.search(printed)
        if began and kind == 'passed' and (int(began[1]) == 0 or not ENDED.search(printed)):
            kind, result = 'failed', 'left before its end, or ran no test'
        for ended, name, milliseconds in cases:
            name = name.split(', where ')[0]
            self.names[KINDS.get(ended, 'failed')].append(name)
            self.milliseconds.append((int(milliseconds), name))
            if ended == 'FAILED':
                failed.append(name)
        if not cases or (kind == 'failed' and not failed) or (began and not ENDED.search(printed)):
            self.names[kind].append(f'{program} ({result})')
        if not cases:
            self.milliseconds.append((int(seconds * 1000), program))
        return failed

    def __str__(self):
        return ', '.join(f'{len(names)} {kind}' for kind, names in self.names.items())


def said(printed, case):
    """Returns the last lines of a case's output."""
    text = printed.split(f'[ RUN      ] {case}\n')[-1].split(f'[  FAILED  ] {case}')[0]
    return '\n'.join(text.splitlines()[-LINES_SHOWN:])


def main(log, note=''):
    count = Count()
    with open(log, encoding='utf-8', errors='replace') as lines:
        for program in map(json.loads, lines):
            printed = program.get('stdout') or ''
            complained = program.get('stderr') or ''
            for case in count.add(program['name'], program['result'], printed, complained, program['duration']):
                print(f'---- {case} said:', said(printed, case), sep='\n')
            if KINDS.get(program['result']) is None and complained:
                print(f'---- {program["name"]} said to stderr:', *complained.splitlines()[-LINES_SHOWN:], sep='\n')
    if os.environ.get('ATO_TIMES'):
        with open(os.environ['ATO_TIMES'], 'a', encoding='utf-8') as file:
            for milliseconds, name in count.milliseconds:
                print(milliseconds, f'{name}{note}', sep='\t', file=file)
    for kind in 'skipped', 'failed':
        for name in count.names[kind]:
            print(f'{kind}: {name}')
    print(count)
    return 1 if count.names['failed'] else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
