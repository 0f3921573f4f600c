# SPDX-License-Identifier: BSD-3-Clause
"""numpy.memmap with a flush() that is atomic."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, Self

import numpy
import numpy.typing

from . import _PLAIN_STORES, _open
from ._ato import Map

_LONG_MODES: Final[dict[str, Literal['r', 'r+', 'w+']]] = {'readonly': 'r', 'readwrite': 'r+', 'write': 'w+'}


class memmap(numpy.ndarray[Any, Any]):
    """A numpy array in a file. Stores are plain ones, and flush() commits all of them as one atomic step.

    The arguments are numpy.memmap's, but for mode 'c' and open files:

    filename the file's path
    dtype    of an element; default: bytes
    mode     'r+': read and write a file, which gets longer if the array needs it; 'w+': make it, or empty it; 'r': only read, with
             permission to write the file. Or as numpy names them: 'readwrite', 'write', 'readonly'
    offset   bytes of the file before the array
    shape    a number, or a sequence of numbers; default: one dimension to the end of the file
    order    'C' or 'F'

    After a kill, and a power cut on a disk, the file holds what the last flush() left, or the one that was under way; never half of one.
    Only flush() commits. What was stored after the last one is forgotten when the program ends, or the last array of the file is
    deleted. (numpy.memmap would write it.)

    Each array made by this class sees commits of others, in pages in which it has no stores of its own. In a child of fork it has pages of
    its own: what is committed, and stores that nobody else ever sees; there flush() raises ValueError.

    Errors: ato.Error of libato, OSError of open(2), ValueError for arguments that do not fit. If the file got shorter than the array, flush()
    raises Stale. If another program cut it without libato, bytes behind the end are not there: an access is SIGBUS, which ends Python, as
    with numpy.memmap.

    >>> import os, ato
    >>> a = ato.memmap('/dev/shm/doc-example.data', dtype='int64', mode='w+', shape=(1000, 3))
    >>> a[:] += 1
    >>> a.flush()  # durable here: all or nothing
    >>> a[0] = 99
    >>> a.discard()
    >>> int(a.sum()), a.shape
    (3000, (1000, 3))
    >>> del a
    >>> os.path.getsize('/dev/shm/doc-example.data')
    24000
    >>> os.remove('/dev/shm/doc-example.data')
    """

    __array_priority__ = -100.0  # as numpy.memmap's

    filename: str | bytes | None
    mode: str | None
    offset: int | None
    _map: Map | None

    def __new__(
        cls,
        filename: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        dtype: numpy.typing.DTypeLike = numpy.uint8,
        mode: Literal['r', 'r+', 'w+', 'readonly', 'readwrite', 'write'] = 'r+',
        offset: int = 0,
        shape: int | Sequence[int] | None = None,
        order: Literal['C', 'F'] = 'C',
    ) -> Self:
        if hasattr(filename, 'read'):
            raise TypeError("memmap takes a file's path, not an open file")
        mode = _LONG_MODES.get(mode, mode)
        if mode not in ('r', 'r+', 'w+'):
            raise ValueError(f"mode is 'r', 'r+' or 'w+', not {mode!r}")
        if mode == 'w+' and shape is None:
            raise ValueError("mode 'w+' needs a shape")
        if offset < 0:
            raise ValueError('the offset is negative')
        each = numpy.dtype(dtype)
        if each.hasobject:
            raise ValueError(f'{each} has Python objects, which have no place in a file')
        lengths: tuple[int, ...] | None = None
        if shape is not None:
            lengths = tuple(operator.index(n) for n in (shape if isinstance(shape, Iterable) else (shape,)))
            if min(lengths, default=0) < 0:
                raise ValueError('a length of the shape is negative')
        end = offset + each.itemsize * math.prod(lengths or ())
        how = os.O_RDWR | os.O_CREAT if mode == 'w+' else os.O_RDWR
        m = _open(filename, how, end if lengths is not None else 0, 0, _PLAIN_STORES, lends_readonly=mode == 'r')
        try:
            if mode == 'w+':
                m.resize(0)
            if lengths is None:
                count, rest = divmod(len(m) - offset, each.itemsize or 1)
                if rest or count < 0:
                    raise ValueError(
                        f'the file has {len(m)} bytes: from {offset} on, they are no whole elements of {each}'
                    )
                lengths = (count,)
            elif len(m) < end:
                if mode == 'r':
                    raise ValueError(f'the file has {len(m)} bytes, and the array ends at {end}')
                m.resize(end)
                m.sync()  # a growth belongs to a commit
            # An array of a memoryview, which keeps the map open.
            self = super().__new__(cls, lengths, each, numpy.asarray(memoryview(m)), offset, None, order)
        except BaseException:
            m.close(discard=True)
            raise
        self._map = m
        self.filename = os.path.abspath(os.fspath(filename))
        self.mode = mode
        self.offset = offset
        return self

    def __array_finalize__(self, obj: Any) -> None:
        is_view = isinstance(obj, memmap) and numpy.may_share_memory(self, obj)
        self._map = obj._map if is_view else None
        self.filename = obj.filename if is_view else None
        self.mode = obj.mode if is_view else None
        self.offset = obj.offset if is_view else None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Results of calculations are not in the file: they are ordinary arrays, or scalars."""
        if array is self:
            return array
        return array[()] if return_scalar else array.view(numpy.ndarray)

    def __getitem__(self, index: Any) -> Any:
        """Copies by fancy indexing are ordinary arrays, too."""
        result = super().__getitem__(index)
        if type(result) is memmap and result._map is None:
            return result.view(numpy.ndarray)
        return result

    def flush(self) -> None:
        """Commit what was stored in the whole file, as one atomic step; durable on return.

        If it raises, nothing is committed and the stores are still there. Raises Stale if the file got
        shorter than the array. An array that is not in a file is left as it is.
        """
        if self._map is not None and self.mode != 'r':
            self._map.sync()

    def discard(self) -> None:
        """Forget what was stored in the whole file since the last flush()."""
        if self._map is not None:
            self._map.discard()
