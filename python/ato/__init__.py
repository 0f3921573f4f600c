# SPDX-License-Identifier: BSD-3-Clause
"""libato: writes to mapped files that happen wholly or not at all, whatever is killed or loses its power.

    map(path, size)              a file as bytes: m[a:b] reads and writes, transactions, snapshots
    memmap(path, dtype, shape)   a numpy array in a file, whose flush() is one atomic step
    load(connection)             a VFS for SQLite whose transactions need no journal
    python -m ato                the command `ato`; `python -m ato sqlite script.py` runs a script on that VFS,
                                 `python -m ato run script.py` one that maps files by numpy.memmap or mmap

Sizes and offsets are in bytes. A call that writes is durable when it returns, as far as the file's medium reaches: on a disk and in persistent
memory it survives a power cut, on a tmpfs a kill. A call that fails raises Error, an OSError, and has changed nothing (but see EIO in the
guide). Any thread may call on anything at any time; while a call waits, others run. A child of fork has none of its parent's maps: it maps
the file itself. Subinterpreters, and Pythons without a GIL, are not supported.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ._ato import Denied, Error, Map, Refused, Snapshot, Stale, Stat, TimedOut, Transaction, __version__, open_map

if TYPE_CHECKING:
    from ._memmap import memmap as memmap

__all__ = ['Denied', 'Error', 'Map', 'Refused', 'Snapshot', 'Stale', 'Stat', 'TimedOut', 'Transaction', '__version__']
__all__ += ['load', 'loadable_path', 'map', 'memmap']

_FOLDER = os.path.dirname(__file__)
# As in ato.h.
_RELAXED, _PLAIN_STORES = 0x200, 0x400
_PREFER = {None: 0, 'file': 0x2, 'reflection': 0x4}
_DOMAINS = {'auto': 0, 'pmem': 1, 'eadr': 2, 'disk': 3, 'process': 4}
_POLICIES = {'default': 0, 'lazy': 1, 'gather': 2, 'eager': 3}


def map(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    size: int | None = None,
    *,
    readonly: bool = False,
    relaxed: bool = False,
    plain_stores: bool = False,
    max_size: int = 0,
    domain: Literal['auto', 'pmem', 'eadr', 'disk', 'process'] = 'auto',
    read_policy: Literal['default', 'lazy', 'gather', 'eager'] = 'default',
    prefer: Literal['file', 'reflection'] | None = None,
) -> Map:
    """Map a file, for a with statement. After a crash this recovers it first.

    size          at least so many bytes: a file that is missing is made, one that is shorter gets longer, one that is longer stays. Without
                  a size a file that is missing is FileNotFoundError
    readonly      needs no permission to write; a file that is not an ordinary one has to be mapped by a writer then
    relaxed       on a disk, writes do not wait for it: a power cut may take the last 100 ms of them, from the last one backwards
    plain_stores  memoryview(m) is writable memory, and m.sync() commits what was stored there, as one atomic step; m[a:b] reads
                  what is committed, and cannot be assigned to. The end of the with block commits; an exception that leaves it forgets.
                  At the end each memoryview has to be released: with memoryview(m) as view
    max_size      bytes that the file may grow to; 0: 1 GiB, or its size if that is more
    domain        what 'durable' means; 'auto': what the medium can
    read_policy   'lazy', 'gather' or 'eager': when bytes go to the file itself
    prefer        if another program wrote to the file while it was not an ordinary one, which raises Stale: the bytes that are right

    >>> with map('/dev/shm/doc-example', 4096) as m:
    ...     m[0:5] = b'hello'  # all of it or nothing, durable here
    ...     m.writev([(0, b'J'), (100, b'and more')])  # both or none
    ...     m[0:5], m[100], len(m)
    (b'Jello', 97, 4096)
    >>> os.remove('/dev/shm/doc-example')
    """
    if readonly and (size is not None or plain_stores):
        raise ValueError('a read-only map has no size to set, and no plain stores')
    for name, number in (('size', 0 if size is None else size), ('max_size', max_size)):
        if not hasattr(number, '__index__'):
            raise TypeError(f'{name} is a number of bytes, not {number!r}')
        if number < 0:
            raise ValueError(f'{name} is negative: {number}')
    for name, value, known in (
        ('domain', domain, _DOMAINS),
        ('read_policy', read_policy, _POLICIES),
        ('prefer', prefer, _PREFER),
    ):
        if value not in known:
            raise ValueError(f'{name} is one of {", ".join(repr(k) for k in known)}, not {value!r}')
    flags = _RELAXED * relaxed | _PLAIN_STORES * plain_stores | _PREFER[prefer]
    how = os.O_RDONLY if readonly else os.O_RDWR if size is None else os.O_RDWR | os.O_CREAT
    m = _open(path, how, size or 0, max_size, flags, _DOMAINS[domain], _POLICIES[read_policy])
    try:
        if size is not None and len(m) < size:
            m.resize(size)
            m.sync()  # of plain stores, a growth belongs to a commit
    except BaseException:
        m.close(discard=True)
        raise
    return m


def _open(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    how: int,
    reach: int,
    max_size: int,
    flags: int,
    domain: int = 0,
    read_policy: int = 0,
    lends_readonly: bool = False,
) -> Map:
    """Map a file that may grow to `reach` at least."""
    fd = os.open(path, how | os.O_CLOEXEC, 0o666)
    try:
        return open_map(fd, os.fsdecode(path), reach, max_size, flags, domain, read_policy, lends_readonly)
    except BaseException:
        os.close(fd)
        raise


class _Connection(Protocol):
    """What load() needs of a connection: sqlite3's and apsw's have it."""

    def enable_load_extension(self, enable: bool, /) -> None: ...
    def load_extension(self, path: str, /) -> None: ...


def loadable_path() -> str:
    """Return the path of the SQLite extension that load() loads. RuntimeError: the package was built without it."""
    path = os.path.join(_FOLDER, 'libato_sqlite.so')
    if not os.path.exists(path):
        raise RuntimeError(
            "this package was built without SQLite's VFS, since SQLite's headers were missing: "
            'install them (Debian: libsqlite3-dev), and build it again'
        )
    return path


def load(connection: _Connection) -> None:
    """Load the VFS 'ato' into the SQLite of a connection, which may be any, for all connections of the process from now on.

    RuntimeError: this Python's sqlite3 was built without extensions. Errors of SQLite pass through.

    >>> import sqlite3
    >>> load(sqlite3.connect(':memory:'))
    >>> db = sqlite3.connect('file:/dev/shm/doc-example.db?vfs=ato', uri=True)
    >>> with db:
    ...     _ = db.execute('CREATE TABLE t AS SELECT 1 AS x')  # durable, without a journal
    >>> db.execute('PRAGMA ato_stat').fetchone() is not None  # on a disk only once the database was written to twice
    True
    >>> db.close(); os.remove('/dev/shm/doc-example.db')
    """
    path = loadable_path()
    if not hasattr(connection, 'enable_load_extension'):
        raise RuntimeError(
            "this Python's sqlite3 was built without enable_load_extension(): run the program by "
            "'python -m ato sqlite', or use the package apsw"
        )
    try:
        connection.load_extension(path)  # where the caller has allowed it, it stays so
        return
    except Exception:
        connection.enable_load_extension(True)
    try:
        connection.load_extension(path)
    finally:
        connection.enable_load_extension(False)


def __getattr__(name: str) -> Any:
    if name == 'memmap':  # numpy is imported only for it
        try:
            from ._memmap import memmap
        except ModuleNotFoundError as e:
            if e.name != 'numpy':
                raise
            raise ImportError("ato.memmap needs numpy: install it, or this package with its extra 'numpy'") from e
        globals()[name] = memmap
        return memmap
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return [name for name in __all__ if name != 'memmap' or importlib.util.find_spec('numpy')]
