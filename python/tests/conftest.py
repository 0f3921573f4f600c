# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

has_extensions = hasattr(sqlite3.Connection, 'enable_load_extension')


@pytest.fixture
def path() -> Iterator[str]:
    """A file in memory that is not there yet."""
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        yield os.path.join(folder, 'data')


def content(path: str) -> bytes:
    with open(path, 'rb') as f:
        return f.read()


@pytest.fixture
def child() -> Callable[[Callable[[], None]], None]:
    """Runs a function in a child of fork. What it raises fails the test."""

    def run(fn: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                fn()
                status = 0
            except BaseException as e:
                sys.stderr.write(f'in the child: {e!r}\n')
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0

    return run
