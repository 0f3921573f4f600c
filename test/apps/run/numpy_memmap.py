#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""numpy.memmap and flush(): the example of docs/examples. See generations.py."""
import os
import runpy
import sys
from pathlib import Path

import numpy
from generations import only, main


def work(path):
    example = Path(__file__).resolve().parents[3] / 'docs/examples/numpy_memmap.py'
    yield check(path) if os.path.exists(path) else 0
    sys.argv = [str(example), path]
    runpy.run_path(str(example))


def check(path):
    return int(only(numpy.memmap(path, dtype='int64', mode='r+'), 1 << 18))


main(work, check)
