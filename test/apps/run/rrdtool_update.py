#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""rrdtool update: each maps the file, stores, and unmaps it. See generations.py."""
import os
import re
import subprocess

from generations import Torn, main

BEGIN, SAMPLES, SOURCES = 1000000000, 200, 8


def rrdtool(*arguments):
    return subprocess.run(['rrdtool', *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def work(path):
    if not os.path.exists(path):
        rrdtool('create', path, '--start', BEGIN, '--step', 1, *(f'DS:s{i}:GAUGE:10:U:U' for i in range(SOURCES)),
                'RRA:AVERAGE:0.5:1:3000', 'RRA:MAX:0.5:10:3000')
    generation = check(path)
    with subprocess.Popen(['rrdtool', '-'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as shell:
        yield generation
        while True:
            generation += 1
            first = BEGIN + (generation - 1) * SAMPLES + 1
            samples = (f'{at}' + f':{at % 1000}' * SOURCES for at in range(first, first + SAMPLES))
            print('update', path, *samples, file=shell.stdin)
            if not (answer := shell.stdout.readline()).startswith('OK'):
                raise SystemExit(f'rrdtool: {answer}')
            yield generation


def check(path):
    """The last update is the last one of a generation, and its samples are the last ones of the archive."""
    last = int(rrdtool('last', path))
    rows = re.findall(r'^(\d+): (.*)$', rrdtool('fetch', path, 'AVERAGE', '--start', last - 2000, '--end', last - 1), re.M)
    for at, values in rows:
        wanted = float(int(at) % 1000)
        if BEGIN < int(at) and any(float(value) != wanted for value in values.split()):
            raise Torn(f'at {at} there are {values}')
    if (last - BEGIN) % SAMPLES:
        raise Torn(f'{(last - BEGIN) % SAMPLES} samples of generation {(last - BEGIN) // SAMPLES + 1}')
    return (last - BEGIN) // SAMPLES


main(work, check)
