#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Does a test make each call of the library fail? Each undefined symbol of the library's objects is either led
# through the injector, or in harmless.txt with a reason.
#
# usage: calls_test.py HARMLESS ARCHIVE WRAPPED...

import subprocess
import sys

# Symbols that builds with sanitizers, profiles and coverage add.
ADDED = ('__asan_', '__ubsan_', '__tsan_', '__lsan_', '__sanitizer_', '__gcov_', '__llvm_',
         'llvm_', '__odr_asan', '__gcc_personality', '_Unwind_', '__msan_', '__sancov_', '__start___sancov_',
         '__stop___sancov_')


def symbols(archive):
    """Returns the names that the archive's objects need, and the names that they define."""
    needed, has = set(), set()
    lines = subprocess.run(['nm', '--format=posix', archive], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    for line in lines:
        words = line.split()
        if len(words) < 2 or line.endswith(':'):
            continue
        (needed if words[1] in 'Uwv' else has).add(words[0])
    return needed - has


def reasons(path):
    """Returns names with their reasons; a name without a reason is an error."""
    found = {}
    for line in open(path, encoding='utf-8'):
        words = line.split(None, 1)
        if not words or words[0].startswith('#'):
            continue
        if len(words) < 2:
            sys.exit(f'{path}: {words[0]} has no reason')
        found[words[0]] = words[1]
    return found


def main():
    harmless, wrapped = reasons(sys.argv[1]), set(sys.argv[3:])
    needed = {n for n in symbols(sys.argv[2]) if not n.startswith(ADDED)}
    wrong = []
    if len(needed) < 50:
        wrong.append(f'only {len(needed)} undefined names: is this the library?')
    for name in sorted(needed - wrapped):
        if name not in harmless:
            wrong.append(f'{name}: neither led through test/support/injector.cc nor in harmless.txt')
    for name in sorted(wrapped - needed):
        wrong.append(f'{name}: led through the injector, but the library does not call it any more')
    for entry in sorted(harmless):
        if entry in wrapped and entry not in ('free', 'munmap'):
            wrong.append(f'{entry}: in both lists')
    print('\n'.join(wrong) or f'{len(needed)} names: {len(wrapped & needed)} through the injector, '
          f'{len(needed - wrapped)} harmless')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
