#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""LMDB with MDB_WRITEMAP. See generations.py.

A kill does not damage LMDB's database by itself: it writes to pages that nothing refers to yet. So the bytes of the file are looked
at as well: they hold all records of the generation that comes next (its data is synced, its meta page is not) or none.
"""
import re

import lmdb
from generations import Torn, only, main

KEYS = [b'key%04d' % i for i in range(2000)]


def environment(path, **options):
    return lmdb.open(path, subdir=False, map_size=16 << 20, **options)


def read(env):
    with env.begin() as txn:
        values = [int(value[1:11]) for _, value in txn.cursor()]
        return only(values, len(KEYS)) if values else 0


def work(path):
    with environment(path, writemap=True) as env:
        generation = read(env)
        yield generation
        while True:
            generation += 1
            with env.begin(write=True) as txn:
                for key in KEYS:
                    txn.put(key, b'<%010d>' % generation + b'x' * 100)
            yield generation


def check(path):
    with environment(path, readonly=True) as env:
        generation = read(env)
    with open(path, 'rb') as file:
        newer = sum(int(found) > generation for found in re.findall(rb'<(\d{10})>', file.read()))
    if newer not in (0, len(KEYS)):
        raise Torn(f'{newer} records of a generation after {generation}, which no sync left')
    return generation


main(work, check)
