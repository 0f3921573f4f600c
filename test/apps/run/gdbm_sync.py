#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gdbm, whose file is mapped, and gdbm_sync(). See generations.py."""
import dbm.gnu

from generations import only, main

KEYS = [b'key%d' % i for i in range(400)]


def read(db):
    return only((int(db[key].split()[0]) for key in db.keys()), len(KEYS))


def work(path):
    with dbm.gnu.open(path, 'c') as db:
        generation = read(db) if db.keys() else 0
        yield generation
        while True:
            generation += 1
            for i, key in enumerate(KEYS):  # lengths change, so that records move
                db[key] = b'%d ' % generation + b'x' * ((generation * 7 + i) % 300)
            db.sync()
            yield generation


def check(path):
    with dbm.gnu.open(path, 'r') as db:
        return read(db)


main(work, check)
