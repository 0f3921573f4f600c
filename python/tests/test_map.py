# SPDX-License-Identifier: BSD-3-Clause
"""Map, Transaction and Snapshot."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ato
import pytest
from conftest import content

Fork = Callable[[Callable[[], None]], None]


# ---- bytes ----


def test_slices_read_and_write_as_those_of_a_bytearray(path: str) -> None:
    model = bytearray(10000)
    with ato.map(path, len(model)) as m:
        writes: list[tuple[slice, bytes | bytearray | memoryview]] = [
            (slice(0, 5), b'hello'),
            (slice(4090, 4110), bytearray(range(20))),
            (slice(-3, None), memoryview(b'end')),
            (slice(7, 7), b''),
            (slice(9998, 20000), b'zz'),
        ]
        for key, value in writes:
            model[key] = value
            m[key] = value
        m[17], m[-1] = 3, 255
        model[17], model[-1] = 3, 255
        assert m[:] == model and len(m) == len(model) and m[17] == 3
        for key in [slice(3, 1), slice(None, 3), slice(9000, 99999), slice(-5, -2), slice(20000, None)]:
            assert m[key] == model[key]
    assert content(path) == model  # an ordinary file again


def test_wrong_arguments_change_nothing(path: str) -> None:
    with ato.map(path, 100) as m:
        wrong: list[tuple[type[Exception], Callable[[], object]]] = [
            (ValueError, lambda: m.__setitem__(slice(0, 5), b'1234')),
            (ValueError, lambda: m.__setitem__(slice(98, 102), b'1234')),
            (ValueError, lambda: m.__setitem__(slice(0, 8, 2), b'1234')),
            (ValueError, lambda: m[::2]),
            (ValueError, lambda: m.__setitem__(0, 256)),
            (IndexError, lambda: m[100]),
            (IndexError, lambda: m[1 << 80]),
            (IndexError, lambda: m.writev([(0, b'x'), (99, b'xx')])),
            (IndexError, lambda: m.writev([(-1, b'x')])),
            (IndexError, lambda: m.writev([(sys.maxsize, b'x')])),
            (TypeError, lambda: m.__setitem__(slice(0, 5), 'hello')),  # type: ignore[call-overload]
            (TypeError, lambda: m.__delitem__(0)),
            (TypeError, lambda: m.writev([b'x'])),  # type: ignore[list-item]
            (ValueError, lambda: m.read_into(bytearray(1), -1)),
            (BufferError, lambda: m.read_into(b'x')),
            (BufferError, lambda: memoryview(m)),
            (ato.Error, lambda: m.resize(-1)),
            (ato.Error, lambda: m.discard()),
            (ValueError, lambda: m.deploy(-1)),
            (ValueError, lambda: m.transaction(timeout=-1)),
            (ValueError, lambda: m.transaction(timeout=float('nan'))),
            (TypeError, lambda: ato.Map()),
        ]
        for number, (kind, call) in enumerate(wrong):
            with pytest.raises(kind if kind is not BufferError else (BufferError, TypeError)):
                call()
                print('not refused:', number)
        assert m[:] == bytes(100)
    for arguments in [{'size': -1}, {'max_size': -1}, {'readonly': True, 'size': 1}, {'domain': 'x'}, {'prefer': 'x'}]:
        with pytest.raises(ValueError):
            ato.map(path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ato.Error, match='/dev/null is not a regular file'):
        ato.map('/dev/null')
    with pytest.raises(TypeError, match='size is'):
        ato.map(path, 'a')  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="domain is one of 'auto', 'pmem'"):
        ato.map(path, domain='x')  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        ato.map(path + '-none')


def test_several_ranges_are_written_at_once(path: str) -> None:
    with ato.map(path, 10000) as m:
        m.writev([(0, b'a'), (5000, b'b'), (0, b'c')])
        m.writev(((i, b'x') for i in range(10, 12)), relaxed=True)
        m.writev([])
        assert (m[0:1], m[5000:5001], m[10:12]) == (b'c', b'b', b'xx')


def test_reads_go_into_a_buffer(path: str) -> None:
    with ato.map(path, 100) as m:
        m[90:100] = b'0123456789'
        buffer = bytearray(20)
        assert m.read_into(buffer, 90) == 10 and buffer[:10] == b'0123456789'
        assert m.read_into(memoryview(buffer)[:3], offset=95) == 3 and buffer[:3] == b'567'
        assert m.read_into(buffer, 1000) == 0


def test_a_file_gets_longer_and_shorter(path: str) -> None:
    with ato.map(path, 10, max_size=1 << 20) as m:
        m.resize(1 << 20)
        m[-1] = 1
        with pytest.raises(ato.Error) as e:
            m.resize((1 << 20) + 1)
        assert e.value.errno == errno.ENOSPC and 'max_size' in str(e.value.strerror)
        m.resize(5)
        assert m[:] == bytes(5)
    assert os.path.getsize(path) == 5


def test_what_one_map_writes_others_see(path: str) -> None:
    with ato.map(path, 100) as m, ato.map(path) as other, ato.map(path, readonly=True) as reader:
        m[0:3] = b'abc'
        assert other[0:3] == reader[0:3] == b'abc'
        with pytest.raises(ato.Denied) as e:
            reader[0] = 1
        assert isinstance(e.value, PermissionError) and e.value.errno == errno.EACCES
        assert e.value.strerror == path + ' is for reading only'
        with pytest.raises(ato.Denied):
            reader.run(lambda tx: tx.__setitem__(0, 1), read_committed=True)
        m.resize(200)
        assert len(other) == len(reader) == 200
    with ato.map(path, readonly=True) as reader, pytest.raises(ato.Error, match='with read_committed=True'):
        reader.run(lambda tx: tx[0])


def test_the_state_of_a_file(path: str) -> None:
    with ato.map(path, 5000, domain='process') as m:
        m[0:100] = bytes(100)
        m.deploy()
        m.sync()
        st = m.stat()
        assert (st.domain, st.size, st.writes, st.bytes_written) == ('process', 5000, 1, 100)
        assert st.slices_in_reflection == 0 and len(st) == 11


def test_a_file_that_another_program_wrote_is_stale(path: str) -> None:
    m = ato.map(path, 100)
    m[0] = 1
    m.close(keep_reflection=True)
    with open(path, 'r+b') as f:
        f.write(b'other')
    os.utime(path, (1, 1))
    try:
        ato.map(path).close()
        pytest.skip('no extended attributes here: a map keeps no reflection')
    except ato.Stale as e:
        assert e.errno == errno.ESTALE and os.path.basename(path) in str(e)
    with ato.map(path, prefer='file') as m:
        assert m[0:5] == b'other'


# ---- the end of a map ----


def calls(m: ato.Map) -> list[Callable[[], object]]:
    return [
        lambda: m[0],
        lambda: m[0:1],
        lambda: m.__setitem__(0, 1),
        lambda: m.__setitem__(slice(0, 1), b'x'),
        lambda: len(m),
        lambda: m.writev([(0, b'x')]),
        lambda: m.read_into(bytearray(1)),
        lambda: m.resize(1),
        m.sync,
        m.discard,
        m.deploy,
        m.stat,
        m.snapshot,
        m.transaction,
        lambda: m.run(lambda tx: None),
    ]


def test_a_closed_map_refuses_each_call(path: str) -> None:
    m = ato.map(path, 100)
    tx = m.transaction()
    m.close()
    m.close()
    assert m.closed and m.path == path and repr(m) == f'<ato.Map {path!r}, closed>'
    for call in calls(m):
        with pytest.raises(ValueError, match='closed'):
            call()
    over: list[Callable[[], object]] = [
        lambda: tx[0:1],
        lambda: tx.__setitem__(0, 1),
        lambda: len(tx),
        lambda: tx.resize(1),
        tx.abort,
    ]
    for call in over:
        with pytest.raises(ValueError, match='closed'):
            call()


def test_a_map_that_its_own_argument_closes(path: str) -> None:
    class Closes:
        def __index__(self) -> int:
            m.close()
            return 0

    m = ato.map(path, 100)
    uses: list[Callable[[], object]] = [
        lambda: m[Closes()],
        lambda: m[Closes() : 5],
        lambda: m.__setitem__(slice(Closes(), 1), b'x'),
        lambda: m.deploy(Closes()),  # type: ignore[arg-type]
        lambda: m.resize(Closes()),  # type: ignore[arg-type]
        lambda: m.writev([(Closes(), b'x')]),  # type: ignore[list-item]
        lambda: m.read_into(bytearray(1), Closes()),  # type: ignore[arg-type]
    ]
    for use in uses:
        m = ato.map(path, 100)
        with pytest.raises(ValueError, match='closed'):
            use()


def test_a_map_in_use_is_not_closed(path: str) -> None:
    m = ato.map(path, 5000, plain_stores=True)
    view = memoryview(m)
    with pytest.raises(BufferError):
        m.close()
    with pytest.raises(BufferError):
        m.resize(10)
    m.resize(6000)
    view[0] = 1
    view.release()
    snapshot = m.snapshot()
    with pytest.raises(ato.Error) as e:
        m.close()
    assert e.value.errno == errno.EBUSY and len(m) == 6000
    snapshot.close()
    m.close()
    assert os.path.getsize(path) == 6000


def test_close_while_another_thread_waits_in_a_call(path: str) -> None:
    with ato.map(path, 100) as m:
        tx = m.transaction()
        tx[0] = 1
        waits = threading.Thread(target=lambda: m.__setitem__(1, 2))
        waits.start()
        for _ in range(1000):  # this thread runs meanwhile
            try:
                m.close()
            except BufferError:
                break
            except ato.Error as e:
                assert e.errno == errno.EBUSY  # it is not in its call yet
            time.sleep(0.001)
        else:
            pytest.fail('the write did not wait')
        with tx:
            pass
        waits.join()
        assert m[0:2] == b'\1\2'


def test_maps_that_nobody_closes_are_closed(path: str) -> None:
    m = ato.map(path, 100)
    m[0:5] = b'hello'
    tx: Any = m.transaction()
    snapshot: Any = m.snapshot()
    with pytest.warns(ResourceWarning, match='data'):
        del m, tx, snapshot
    assert content(path)[:5] == b'hello'
    assert os.listdir(os.path.join(os.path.dirname(path), '.ato')) == ['README']  # no reflection


# ---- plain stores ----


def test_plain_stores_are_committed_by_sync(path: str) -> None:
    with ato.map(path, 10000, plain_stores=True) as m, ato.map(path) as other:
        view = memoryview(m)
        view[0:5] = b'hello'
        view[9000] = 7
        assert other[0:5] == bytes(5)
        m.sync()
        assert other[0:5] == b'hello' and other[9000] == 7
        view[0:5] = b'wrong'
        m.discard()
        assert bytes(view[0:5]) == b'hello'
        view[0:5] = b'other'
        other[20:25] = view[0:5]  # what is stored, not what is committed
        assert other[20:25] == b'other'
        with pytest.raises(ato.Error):
            m[0] = 1
        view.release()
    assert content(path)[:5] == b'other'  # the end of the block commits


def test_an_exception_forgets_plain_stores(path: str) -> None:
    with pytest.raises(ZeroDivisionError), ato.map(path, 100, plain_stores=True) as m:
        view = memoryview(m)
        view[0] = 1
        1 / 0
    assert view[0] == 0 and not m.closed
    view.release()
    m.close()
    assert content(path)[:1] in (b'', b'\0')


# ---- transactions ----


def test_a_transaction_is_one_step(path: str) -> None:
    with ato.map(path, 10000) as m:
        with m.transaction() as tx:
            tx[0:3] = b'abc'
            tx[5000:5003] = tx[0:3]
            tx.resize(20000)
            tx[-2:] = b'zz'
            buffer = bytearray(3)
            assert tx.read_into(buffer, 5000) == 3 and buffer == b'abc' and len(tx) == 20000
            assert m[0:3] == bytes(3) and len(m) == 10000
        assert m[0:3] == m[5000:5003] == b'abc' and m[19998:] == b'zz'
        with pytest.raises(ZeroDivisionError), m.transaction() as tx:
            tx[0:3] = b'xyz'
            1 / 0
        with m.transaction() as tx:
            tx[0:3] = b'xyz'
            tx.abort()
        assert m[0:3] == b'abc'
        over: list[Callable[[], object]] = [
            lambda: tx[0],
            lambda: tx.__setitem__(0, 1),
            lambda: len(tx),
            tx.abort,
            lambda: tx.resize(1),
        ]
        for call in over:
            with pytest.raises(ValueError, match='over'):
                call()
        with m.transaction() as tx:  # behind the end, as in a map
            assert tx[19990 : 1 << 29] == m[19990:] and tx[20000:20001] == b''
            with pytest.raises(ValueError):
                tx[20000:20003] = b'abc'
            tx.resize(10)
            assert tx[5:30] == m[5:10]
            for number in (10, 1 << 40):
                with pytest.raises(IndexError):
                    tx[number]
            tx.abort()


def test_only_bounds_from_the_end_read_the_size(path: str) -> None:
    with ato.map(path, 10000) as m:
        with m.transaction() as tx:
            tx[0:8] = tx[16:24]
            tx[5] = tx[6]
            m.resize(20000)
            tx[8:16] = tx[:8]
        for key in (slice(9000, None), slice(-5, -1), slice(None, -1)):
            with pytest.raises(ato.Refused), m.transaction() as tx:
                assert tx[key]
                m.resize(len(m) + 1)
                tx[0] = 1


def test_a_refused_transaction_runs_again(path: str) -> None:
    with ato.map(path, 10000) as m:
        with pytest.raises(ato.Refused) as e, m.transaction() as tx:
            m[0] = tx[0] + 1
            tx[5000] = 1
        assert isinstance(e.value, BlockingIOError) and m[5000] == 0
        runs = []

        def add(tx: ato.Transaction) -> str:
            runs.append(tx)
            tx[5000] = tx[0] + 1
            if len(runs) < 3:
                m[0] = 10 * len(runs)
            return 'done'

        assert m.run(add) == 'done'
        assert len(runs) == 3 and m[5000] == 21
        with pytest.raises(ValueError, match='over'):
            runs[-1][0] = 1


def test_run_ends_its_transaction_itself(path: str) -> None:
    def enters(tx: ato.Transaction) -> None:
        with tx:
            tx[0] = 5

    with ato.map(path, 100) as m:
        for fn in (enters, lambda tx: tx.abort(), lambda tx: tx.__exit__(None, None, None)):
            with pytest.raises(RuntimeError, match='run'):
                m.run(fn)
        assert m[0] == 0


def test_what_the_function_raises_ends_it(path: str) -> None:
    with ato.map(path, 10000) as m:
        for kind in (ZeroDivisionError, KeyboardInterrupt):

            def wrong(tx: ato.Transaction) -> None:
                tx[5000] = tx[0] + 1
                m[0] = 1  # it is refused, too
                try:
                    tx[100] = tx[0]
                except ato.Refused:
                    pass
                raise kind

            with pytest.raises(kind):
                m.run(wrong)
        holds = m.transaction()
        other = threading.Thread(target=lambda: holds.__setitem__(5000, 1))  # it is that thread's
        other.start()
        other.join()
        with pytest.raises(ato.Refused):
            m.run(lambda tx: tx.__setitem__(5001, 1), timeout=0.01)
        holds.abort()
        assert m[5000:5002] == bytes(2)


def test_threads_add_to_the_same_numbers(path: str) -> None:
    with ato.map(path, 10000) as m:

        def add(tx: ato.Transaction) -> None:
            for at in (0, 8000):
                tx[at : at + 8] = (int.from_bytes(tx[at : at + 8], 'little') + 1).to_bytes(8, 'little')

        def work() -> None:
            for _ in range(100):
                m.run(add)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            with m.snapshot() as s:
                assert s[0:8] == s[8000:8008]
        assert int.from_bytes(m[0:8], 'little') == int.from_bytes(m[8000:8008], 'little') == 400


def test_a_transaction_is_for_one_thread_at_a_time(path: str) -> None:
    with ato.map(path, 10000) as m, m.transaction() as holds:
        holds[0] = 1
        tx = m.transaction(timeout=0.5)
        waits = threading.Thread(target=lambda: pytest.raises(ato.Refused, tx.__setitem__, 0, 2))
        waits.start()
        refused = False
        while waits.is_alive() and not refused:
            try:
                tx[5000]
            except RuntimeError:
                refused = True
            except ato.Refused:
                break
        waits.join()
        assert refused


# ---- snapshots ----


def test_a_snapshot_stays_as_it_is(path: str) -> None:
    with ato.map(path, 10000) as m:
        m[0:3] = b'old'
        with m.snapshot() as s:
            m[0:3] = b'new'
            m.resize(20)
            buffer = bytearray(4)
            assert s[0:3] == b'old' and s[2] == ord('d') and len(s) == 10000 and s[-1] == 0
            assert s.read_into(buffer, 9998) == 2
        closed: list[Callable[[], object]] = [lambda: s[0], lambda: len(s), lambda: s.read_into(buffer)]
        for call in closed:
            with pytest.raises(ValueError, match='closed'):
                call()
        s.close()


# ---- fork, kills, interpreters ----


def test_a_child_of_fork_maps_the_file_itself(path: str, child: Fork) -> None:
    with ato.map(path, 10000) as m, m.transaction() as tx, m.snapshot() as s, ato.map(path, plain_stores=True) as p:
        view = memoryview(p)
        view[50] = 1
        tx[9999] = 5

        def use() -> None:
            others: list[Callable[[], object]] = [lambda: tx[0], lambda: s[0]]
            for call in calls(m) + calls(p) + others:
                with pytest.raises(ValueError, match='forked'):
                    call()
            assert view[0] == 0 and view[50] == 0  # what is committed
            view[0] = 9  # of the child alone
            with ato.map(path) as own:
                own[10:12] = b'hi'
            with pytest.raises(ValueError, match='forked'), tx:
                pass
            with pytest.raises(ZeroDivisionError), tx, s:
                1 / 0
            m.close()
            p.close()

        child(use)
        assert view[50] == 1 and m[0] == 0 and m[10:12] == b'hi'
        view.release()
    assert content(path)[9999] == 5


def test_a_map_that_is_closed_in_a_child_is_not_in_the_parent(path: str, child: Fork) -> None:
    maps = [ato.map(path, 100), ato.map(path, plain_stores=True)]
    child(maps.clear)
    maps[0][0] = 1
    maps[1].sync()


WRITER = """
import sys, ato
n = 0
with ato.map(sys.argv[1], 10000) as m:
    print('begins', flush=True)
    while True:
        n += 1
        m[4000:8100] = n.to_bytes(4, 'little') * 1025
        if sys.argv[2] == 'tx':
            with m.transaction() as tx:
                tx[0:8] = tx[9000:9008] = n.to_bytes(8, 'little')
"""


@pytest.mark.parametrize('kind', ['plain', 'tx'])
def test_a_kill_leaves_whole_writes(path: str, kind: str) -> None:
    for milliseconds in (1, 5, 20):
        p = subprocess.Popen([sys.executable, '-c', WRITER, path, kind], stdout=subprocess.PIPE)
        assert p.stdout and p.stdout.readline() == b'begins\n'
        time.sleep(milliseconds / 1000)
        p.kill()
        p.wait()
        with ato.map(path) as m:
            record = m[4000:8100]
            assert record == record[:4] * 1025
            assert m[0:8] == m[9000:9008]


def test_subinterpreters_are_refused() -> None:
    program = """
try:
    import _interpreters as i
except ImportError:
    import _xxsubinterpreters as i
try:
    failed = i.run_string(i.create(), 'import ato')
except i.RunFailedError as e:
    failed = e
assert 'subinterpreters' in str(failed), failed
"""
    subprocess.run([sys.executable, '-c', program], check=True)
