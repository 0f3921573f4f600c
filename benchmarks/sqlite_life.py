#!/usr/bin/env python3
"""How long are an open, an update and a close of a database, beside SQLite's own VFS with journal_mode=TRUNCATE?

usage: benchmarks/sqlite_life.py [--read] EXTENSION FOLDER [N]

EXTENSION is libato_sqlite.so; FOLDER gets two databases; N lives of each, by turns (100). Both survive a power cut where
FOLDER is on a disk, and a kill where it is on tmpfs. --read: each life has a SELECT instead of the update. Prints medians, in
milliseconds, and their ratio.
"""
import os
import sqlite3
import statistics
import sys
import time


def make(path):
    for left in (path, path + "-journal"):
        if os.path.exists(left):
            os.unlink(left)
    db = sqlite3.connect(f"file:{path}?vfs=unix", uri=True)
    db.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
    db.executemany("INSERT INTO t VALUES(?, ?)", [(i, "x" * 100) for i in range(1000)])
    db.commit()
    db.close()


def live(path, vfs, value, reads):
    began = time.perf_counter()
    db = sqlite3.connect(f"file:{path}?vfs={vfs}", uri=True, isolation_level=None)
    if reads:
        db.execute("SELECT b FROM t WHERE a = 500").fetchall()
    else:
        if vfs == "unix":
            db.execute("PRAGMA journal_mode=TRUNCATE").fetchall()
        db.execute("UPDATE t SET b = ? WHERE a = 500", (value,))
    db.close()
    return (time.perf_counter() - began) * 1000


def main(reads, extension, folder, count="100"):
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(os.path.abspath(extension))
    paths = {vfs: os.path.join(os.path.abspath(folder), f"life-{vfs}.db") for vfs in ("ato", "unix")}
    for path in paths.values():
        make(path)
    took = {vfs: [] for vfs in paths}
    for i in range(int(count) + 5):
        for vfs, path in paths.items():
            took[vfs].append(live(path, vfs, f"{i:05}" * 20, reads))
    ato, stock = (statistics.median(took[vfs][5:]) for vfs in ("ato", "unix"))
    print(f"libato {ato:.3f} ms, SQLite's own VFS {stock:.3f} ms, ratio {ato / stock:.2f}")
    for path in paths.values():
        os.unlink(path)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--read"]
    if not 2 <= len(words) <= 3:
        sys.exit(__doc__)
    main("--read" in sys.argv, *words)
