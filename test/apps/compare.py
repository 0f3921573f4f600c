#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs commands by turns, and prints the medians of what they measure.

    compare.py ROUNDS NAME=COMMAND...

Each command, which the shell runs, prints lines of a label, a tab and a number. The table has a line for each label, a column for
each command, and how often each one's number is that of the first.
"""
import collections
import statistics
import subprocess
import sys


def main(rounds, *commands):
    commands = dict(command.split('=', 1) for command in commands)
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(int(rounds)):
        for name, command in commands.items():
            done = subprocess.run(command, shell=True, check=False, text=True, capture_output=True)
            if done.returncode or not done.stdout:
                sys.exit(f'{name}: {command}: exit status {done.returncode}\n{done.stdout}{done.stderr}')
            for line in done.stdout.splitlines():
                label, number = line.split('\t')
                found[label][name].append(float(number))
    first = next(iter(commands))
    width = max(map(len, found))
    print(f'{"":{width}}', *(f'{name:>18}' for name in commands))
    for label, numbers in found.items():
        medians = {name: statistics.median(numbers[name]) for name in commands}
        print(f'{label:{width}}', *(f'{number:10.0f} ({number / medians[first]:4.2f})' for number in medians.values()))


if __name__ == '__main__':
    main(*sys.argv[1:])
