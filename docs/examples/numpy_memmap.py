#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# A counter in each element of an array in a file. Kill it whenever you like: the file holds the same number everywhere.
#     ato run --path counters.data python3 numpy_memmap.py counters.data
import os
import sys

import numpy

mode = 'r+' if os.path.exists(sys.argv[1]) else 'w+'
counters = numpy.memmap(sys.argv[1], dtype='int64', mode=mode, shape=(1 << 18,))
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10**9):
    counters += 1  # plain stores, to every page of the file
    counters.flush()  # one atomic step: all of them or none
    print(counters[0], flush=True)
