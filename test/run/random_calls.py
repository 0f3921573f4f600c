# SPDX-License-Identifier: BSD-3-Clause
"""Stores, reads, writes, cuts, maps, closes and forks of one file at random. Prints a sum of all that it saw, and of the file at the end.

    random_calls.py FILE SEED STEPS
"""
import mmap
import os
import random
import sys
import zlib

PAGE, MOST = 4096, 24 * 4096


class Calls:
    def __init__(self, path, seed):
        self.path, self.random, self.seen, self.maps = path, random.Random(seed), 0, []
        self.fds = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)]

    def note(self, *what):
        self.seen = zlib.crc32(repr(what).encode(), self.seen)

    def below(self, n):
        return self.random.randrange(n)

    def fd(self):
        return self.random.choice(self.fds)

    def size(self):
        return os.fstat(self.fds[0]).st_size

    def bytes(self, n):
        return bytes([self.random.choice(b'*#\0a')]) * n if self.below(5) else self.random.randbytes(n)

    def part(self):
        """A mapping, and where to begin and end in it, within the file. None: there is no mapping, or the file is empty."""
        end = min(self.size(), len(m)) if (m := self.random.choice(self.maps or [None])) else 0
        return (m, self.below(end), end) if end else None

    def store(self):
        if part := self.part():
            m, at, end = part
            n = min(end - at, self.random.choice([1, 8, 64, 100, 700, 5000]))
            m[at:at + n] = self.bytes(n)

    def load(self):
        if part := self.part():
            self.note(part[0][part[1]:part[2]])

    def write(self):
        at = self.below(self.size() + 1) if self.below(5) else min(self.size() + self.below(3 * PAGE), MOST - 1)
        os.pwrite(self.fd(), self.bytes(min(self.random.choice([1, 30, 64, 500, 6000]), MOST - at)), at)

    def read(self):
        self.note(os.pread(self.fd(), self.random.choice([10, 3000, 2 * MOST]), self.below(MOST)))

    def cut(self):
        os.ftruncate(self.fd(), self.below(MOST) if self.below(2) else max(0, self.size() - self.below(200)))

    def sync(self):
        if self.maps and self.below(2):
            self.random.choice(self.maps).flush()
        else:
            os.fsync(self.fd())

    def map(self):
        if len(self.maps) < 3 and self.size():
            self.maps.append(mmap.mmap(self.fds[0], self.size()))

    def unmap(self):
        if self.maps:
            self.maps.pop(self.below(len(self.maps))).close()

    def open(self):
        if len(self.fds) < 4:
            self.fds.append(os.open(self.path, os.O_RDWR))

    def close(self):
        if len(self.fds) > 1:
            os.close(self.fds.pop())

    def end(self):
        for m in self.maps:
            m.close()
        for fd in self.fds:
            os.close(fd)
        self.maps, self.fds = [], []

    def again(self):
        self.end()
        self.open()

    def ask(self):
        self.note(os.stat(self.path).st_size, os.lseek(self.fds[0], 0, os.SEEK_END))

    def fork(self):
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def lengthen(self):
        os.posix_fallocate(self.fd(), self.below(MOST - PAGE), 1 + self.below(PAGE - 1))


calls = Calls(sys.argv[1], int(sys.argv[2]))
often = {'store': 25, 'load': 10, 'write': 15, 'read': 14, 'cut': 10, 'sync': 7, 'map': 5, 'unmap': 4, 'open': 3, 'close': 3,
         'again': 1, 'ask': 2, 'fork': 1, 'lengthen': 1}
for step in calls.random.choices(list(often), often.values(), k=int(sys.argv[3])):
    getattr(calls, step)()
    calls.note(step, calls.size())
calls.end()
with open(calls.path, 'rb') as file:
    print(calls.seen, zlib.crc32(file.read()))
