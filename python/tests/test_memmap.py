# SPDX-License-Identifier: BSD-3-Clause
"""memmap, beside numpy's own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ato
import numpy
import pytest
from conftest import content

Fork = Callable[[Callable[[], None]], None]


@pytest.mark.parametrize(
    'arguments',
    [
        {},
        {'dtype': 'int32'},
        {'dtype': 'f8', 'shape': (3, 4)},
        {'dtype': [('a', 'i4'), ('b', 'f8')], 'offset': 4, 'shape': 7},
        {'dtype': 'complex128', 'offset': 16, 'shape': (2, 3, 4), 'order': 'F'},
        {'dtype': 'u2', 'mode': 'r', 'offset': 100},
        {'dtype': 'u1', 'shape': ()},
        {'dtype': 'i8', 'shape': (1000,)},  # longer than the file
        {'dtype': 'i8', 'mode': 'w+', 'shape': (10, 10)},
        {'dtype': numpy.dtype('datetime64[s]'), 'shape': (5,)},
    ],
)
def test_arguments_mean_what_they_mean_to_numpy(path: str, arguments: Any) -> None:
    before = numpy.arange(96, dtype='u1').tobytes() * 8
    for name in (path, path + '.numpy'):
        with open(name, 'wb') as f:
            f.write(before)
    theirs = numpy.memmap(path + '.numpy', **{'mode': 'r+', **arguments})
    ours = ato.memmap(path, **arguments)
    assert (ours.shape, ours.dtype, ours.strides) == (theirs.shape, theirs.dtype, theirs.strides)
    assert ours.flags.writeable == theirs.flags.writeable and ours.filename == path
    assert ours.tobytes() == theirs.tobytes()
    if ours.flags.writeable:
        ours[...] = theirs[...] = numpy.ones(ours.shape, 'u1').astype(ours.dtype)
        ours.flush()
        theirs.flush()
    del ours, theirs
    assert content(path) == content(path + '.numpy')


def test_wrong_arguments(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        ato.memmap(path)
    with open(path, 'wb') as f:
        f.write(bytes(10))
    wrong: list[dict[str, Any]] = [
        {'mode': 'c'},
        {'mode': 'copyonwrite'},
        {'mode': 'w+'},
        {'dtype': 'i8'},
        {'offset': 11},
        {'offset': -1},
        {'shape': (-1,)},
        {'dtype': object, 'shape': 1},
        {'mode': 'r', 'shape': 11},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError):
            ato.memmap(path, **arguments)
    with open(path, 'rb') as f, pytest.raises(TypeError, match='path'):
        ato.memmap(f)  # type: ignore[arg-type]
    assert content(path) == bytes(10)


def test_an_empty_array(path: str) -> None:
    a = ato.memmap(path, mode='w+', shape=(0, 3))
    a.flush()
    assert a.size == 0 and ato.memmap(path).shape == (0,)


def test_views_are_in_the_file_and_results_are_not(path: str) -> None:
    a = ato.memmap(path, dtype='i8', mode='w+', shape=(10, 10))
    view = a[3:5, ::2].T
    view += 1
    assert isinstance(view, ato.memmap) and view.filename == path
    view.flush()
    for result in (a + 1, a[[1, 2]], a[a > 0], numpy.sqrt(a)):
        assert type(result) is numpy.ndarray
    assert type(a.sum()) is numpy.int64 and type(a[0, 0]) is numpy.int64
    copy = a.copy()
    copy += 1
    copy.flush()
    copy.discard()
    del a  # the view keeps the file
    view[0] = 5
    view.flush()
    del view
    assert numpy.fromfile(path, 'i8').sum() == 5 + 5 + 8


def test_only_flush_commits(path: str) -> None:
    a = ato.memmap(path, dtype='i8', mode='w+', shape=(3, 1024))
    b = ato.memmap(path, dtype='i8', shape=(3, 1024))
    a[:] = 1
    assert b.sum() == 0
    a.flush()
    assert b.sum() == 3 * 1024
    a[:] = 2
    a.discard()
    assert a.sum() == b.sum() == 3 * 1024
    a[:] = 3
    del a
    assert b.sum() == 3 * 1024
    with ato.map(path) as m:
        b[0, 0] = 9
        m[8192:8200] = b[0, :1]
        assert m[8192] == 9 and m[0] == 1
    del b
    assert numpy.fromfile(path, 'i8').sum() == 3 * 1024 + 8


def test_an_array_outlives_all_that_may_be_deleted(path: str) -> None:
    a = ato.memmap(path, dtype='i8', mode='w+', shape=(1024,))
    with pytest.raises(BufferError):
        (a._map or pytest.fail()).close()
    row = numpy.asarray(a)[5:]
    view: Any = memoryview(row)  # type: ignore[arg-type]
    del a, row
    os.remove(path)
    view[0] = 7
    assert view[0] == 7


def test_no_array_is_left_without_its_map(path: str, child: Fork) -> None:
    m = ato.map(path, 10000, plain_stores=True)
    lender: Any = m
    with pytest.raises(BufferError, match='memoryview'):  # it would keep the address alone
        numpy.ndarray((10000,), 'u1', buffer=lender)
    arrays: list[Callable[[], Any]] = [
        lambda: numpy.ndarray((10000,), 'u1', buffer=memoryview(m)),
        lambda: numpy.frombuffer(lender, 'u1'),
        lambda: numpy.asarray(lender),
    ]
    for make in arrays:
        array = make()
        array[5] = 3
        with pytest.raises(BufferError):
            m.close()
        m.sync()
        child(lambda: None if array[5] == 3 else pytest.fail('it sees something else'))
        array = None
    m.close()
    assert content(path)[5] == 3


def test_stores_behind_an_end_that_moved_are_not_lost_silently(path: str) -> None:
    a = ato.memmap(path, dtype='i4', mode='w+', shape=[100, 10])
    a.flush()
    b = ato.memmap(filename=path, dtype='i4', mode='write', shape=10)
    a[0, 0] = a[50, 0] = 5
    for _ in range(2):
        with pytest.raises(ato.Stale, match='behind the end'):
            a.flush()
    assert b[0] == 0
    b[1] = 7
    b.flush()
    with pytest.raises(ato.Stale), ato.map(path, 10000, plain_stores=True) as m:
        with memoryview(m) as view:
            view[9999] = 1
        with ato.map(path) as other:
            other.resize(40)
    del a, b, m
    assert list(numpy.fromfile(path, 'i4')[:2]) == [0, 7]


def test_threads_store_while_another_flushes(path: str) -> None:
    a = ato.memmap(path, dtype='i8', mode='w+', shape=(64, 512))
    ends = threading.Event()

    def store(row: int) -> None:
        while not ends.is_set():
            a[row] += 1

    threads = [threading.Thread(target=store, args=(row,)) for row in range(0, 64, 16)]
    for t in threads:
        t.start()
    for _ in range(50):
        a.flush()
    ends.set()
    for t in threads:
        t.join()
    a.flush()
    with ato.map(path) as m:
        assert m[:] == a.tobytes()


def test_a_child_of_fork_has_pages_of_its_own(path: str, child: Fork) -> None:
    a = ato.memmap(path, dtype='i8', mode='w+', shape=(1024,))
    a[:] = 1
    a.flush()
    a[0] = 2

    def use() -> None:
        assert a.sum() == 1024  # what is committed
        a[:] = 5
        for call in (a.flush, a.discard):
            with pytest.raises(ValueError, match='forked'):
                call()
        own = ato.memmap(path, dtype='i8')
        own[1000] = 7
        own.flush()
        child(lambda: None if a.sum() == 5 * 1024 else pytest.fail('the grandchild sees something else'))

    child(use)
    assert a[0] == 2 and a[1] == 1
    a.flush()
    assert a[1000] == 7
    assert list(numpy.fromfile(path, 'i8')[[0, 1, 1000]]) == [2, 1, 7]


COUNTER = """
import sys, ato
a = ato.memmap(sys.argv[1], dtype='int64', mode='w+', shape=(1 << 16,))
a.flush()
print('begins', flush=True)
while True:
    a += 1
    a.flush()
"""


def test_a_kill_leaves_what_a_flush_left(path: str) -> None:
    for milliseconds in (1, 10, 30):
        p = subprocess.Popen([sys.executable, '-c', COUNTER, path], stdout=subprocess.PIPE)
        assert p.stdout and p.stdout.readline() == b'begins\n'
        time.sleep(milliseconds / 1000)
        p.kill()
        p.wait()
        a = ato.memmap(path, dtype='int64')
        assert a.shape == (1 << 16,) and (a == a[0]).all()
        del a


def test_the_package_needs_no_numpy() -> None:
    program = """
import sys
sys.modules['numpy'] = None
import ato
assert 'map' in dir(ato) and 'memmap' not in dir(ato)
try:
    ato.memmap
except ImportError as e:
    assert "extra 'numpy'" in str(e)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, '-c', program], check=True)
