# SPDX-License-Identifier: BSD-3-Clause
"""What a write and a read cost in Python, over the same call in C: by turns, in one process, on one file.

usage: bench.py [FOLDER]        by default /dev/shm; compiles loop.c beside it, against the package's libato
"""

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time

import ato

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(ato.__file__)
SPREAD, TIMES, TURNS = 64, 500, 400


def compile_loop(folder: str) -> ctypes.CDLL:
    library = os.path.join(folder, 'loop.so')
    command = ['cc', '-O2', '-shared', '-fPIC', '-I', os.path.join(HERE, '../../include'), os.path.join(HERE, 'loop.c')]
    subprocess.run([*command, os.path.join(PACKAGE, 'libato.so.0'), '-o', library], check=True)
    loop = ctypes.CDLL(library)  # its libato is the one that the package has loaded
    loop.loop_map.restype = ctypes.c_void_p
    loop.loop_run.restype = ctypes.c_uint64
    return loop


def write(m: ato.Map, data: bytes) -> int:
    n = len(data)
    places = [i * 4096 for i in range(SPREAD)] * (TIMES // SPREAD + 1)
    began = time.perf_counter_ns()
    for at in places[:TIMES]:
        m[at : at + n] = data
    return time.perf_counter_ns() - began


def read(m: ato.Map, data: bytes) -> int:
    n = len(data)
    places = [i * 4096 for i in range(SPREAD)] * (TIMES // SPREAD + 1)
    began = time.perf_counter_ns()
    for at in places[:TIMES]:
        m[at : at + n]
    return time.perf_counter_ns() - began


def empty(_m: ato.Map, _data: bytes) -> int:
    places = [i * 4096 for i in range(SPREAD)] * (TIMES // SPREAD + 1)
    began = time.perf_counter_ns()
    for _at in places[:TIMES]:
        pass
    return time.perf_counter_ns() - began


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else '/dev/shm'
    with tempfile.TemporaryDirectory(dir=folder) as there, tempfile.TemporaryDirectory() as built:
        loop = compile_loop(built)
        path = os.path.join(there, 'data')
        with ato.map(path, SPREAD * 4096) as m:
            m[:] = bytes(len(m))
            with open(path, 'r+b') as f:
                at = ctypes.c_void_p(loop.loop_map(f.fileno(), ctypes.c_uint64(len(m))))
            print(f'{folder}, domain {m.stat().domain}: medians of {TURNS} turns of {TIMES} calls, ns a call')
            for name, call, n in [
                ('write', write, 64),
                ('write', write, 4096),
                ('read', read, 64),
                ('read', read, 4096),
            ]:
                data = bytes(n)
                python, c = [], []
                for _ in range(TURNS):
                    c.append(loop.loop_run(at, ctypes.c_uint64(n), TIMES, call is write) / TIMES)
                    python.append(call(m, data) / TIMES)
                over = statistics.median(p - q for p, q in zip(python, c, strict=True))
                print(
                    f'{name:5} {n:4} B   C {statistics.median(c):6.0f}   Python {statistics.median(python):6.0f}   '
                    f'over C {over:6.0f}'
                )
            loop_only = statistics.median(empty(m, b'') for _ in range(TURNS)) / TIMES
            print(f'of that the loop in Python itself {loop_only:.0f}')


if __name__ == '__main__':
    main()
