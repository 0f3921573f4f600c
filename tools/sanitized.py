#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Links the tests that one build folder has compiled with the library that another one has with sanitizers.

    sanitized.py BUILD SANITIZED SUITE...

BUILD's programs of tests are linked again: each archive of the library (lib/) is SANITIZED's, clang links, the program is in
SANITIZED/tests. Tests without the library inside their program, and those of the suites, are left out. Prints the names of the
others. With TEST_PROGRAM's path in BUILD, `sanitized.py --run BUILD SANITIZED TEST_PROGRAM ARGUMENT...` runs it.
"""
import json
import os
import re
import subprocess
import sys

LINKER = 'clang++ -fsanitize=address,undefined'
ARCHIVE = re.compile(r'(?<= )lib/\S+\.a(?= )')


def link_again(command, program, sanitized):
    """Returns a rule of ninja's for a program, from the command that linked it; None if the library is not in it."""
    if not ARCHIVE.search(command):
        return None
    command = ARCHIVE.sub(rf'{sanitized}/\g<0>', command)
    inputs = re.findall(r'(?<= )[^-\s]\S*\.(?:o|a)(?= )', command)
    output = f'{sanitized}/tests/{program}'
    command = re.sub(r'^.*? -o \S+', f'{LINKER} -o {output}', command)
    return f'build {output}: link {" ".join(inputs)}\n  link = {command}\n'


def main(build, sanitized, *left_out):
    away = os.path.relpath(sanitized, build)
    rules, names = {}, []
    with open(f'{build}/meson-info/intro-tests.json', encoding='utf-8') as file:
        tests = json.load(file)
    for test in tests:
        program = os.path.relpath(test['cmd'][0], os.path.abspath(build))
        if program.startswith('../') or any(suite.split(':')[-1] in left_out for suite in test['suite']):
            continue
        if program not in rules:
            command = subprocess.run(['ninja', '-C', build, '-t', 'commands', '-s', program], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout
            rules[program] = link_again(command.splitlines()[-1] + ' ', program, away)
        if rules[program]:
            names.append(test['name'])
    with open(f'{sanitized}/tests.ninja', 'w', encoding='utf-8') as file:
        file.write(f'builddir = {away}/tests\nrule link\n  command = $link\n  description = Linking $out\n')
        file.writelines(filter(None, rules.values()))
    return names


def run(build, sanitized, program, *arguments):
    program = os.path.join(sanitized, 'tests', os.path.relpath(program, build))
    os.execv(program, [program, *arguments])


if __name__ == '__main__':
    if sys.argv[1] == '--run':
        run(*sys.argv[2:])
    print('\n'.join(main(*sys.argv[1:])))
