# SPDX-License-Identifier: BSD-3-Clause
"""The rows of an evaluation: what is in a results.csv, which cells they make, and how two engines of a cell compare."""
import csv
import math
import re
from collections import namedtuple

# The columns of the programs, then what tells equal rows of several parts apart: the domain, the medium, and the cost that was
# added to each line and fence ('LINE,FENCE' in ns, or empty).
COLUMNS = ['suite', 'engine', 'guarantee', 'workload', 'size', 'threads', 'metric', 'value', 'spread', 'ratio_to_floor',
           'domain', 'medium', 'charge']
Row = namedtuple('Row', COLUMNS)
Cell = namedtuple('Cell', 'domain charge suite workload size threads metric')

# From the weakest to the strongest, as engines/engines.cc names them. What survives only a kill is less than what survives all, and in
# the domain where there is nothing else, all survive a kill.
GUARANTEES = ['nothing', 'survives a kill, not atomic', 'durable, not atomic', 'survives a kill, each page atomic', 'durable, each page atomic',
              'atomic, survives a kill', 'atomic and durable']
# What a unit of all threads together is where one thread writes at a time.
ALONE = {'atomic for all threads together, survives a kill': 'atomic, survives a kill',
         'atomic for all threads together, and durable': 'atomic and durable'}
ONE_WRITER = ('ycsb', 'tpcc')  # SQLite has one

# Units of which less, and of which more is better. A metric with neither is shown, and not judged.
LESS = ('ns', 'us', 'ms', 'MiB', 'bytes/byte', 'lines/write', 'fences/write')
MORE = ('/s', '/min')
# What is said by another metric of the same cell.
TWINS = {'ns': 'MB/s', 'operations/s': 'MB/s', 'new orders/min': 'transactions/s'}
PERCENTILE = re.compile(r'^p(\d+(\.\d+)?)\b')


class Unreadable(Exception):
    """A file that is no results.csv; the text says where and why."""


def is_more_better(metric):
    """True or False; None for a metric that is not judged."""
    words = metric.split()
    return True if any(word.endswith(MORE) for word in words) else False if any(word in LESS for word in words) else None


def number(text):
    """None where the program had nothing to say, or nothing to divide by."""
    value = float(text) if text.strip() else math.nan
    return value if math.isfinite(value) else None


def read(lines, **more):
    """The rows in these lines of CSV; `more` has the columns that they lack. Raises Unreadable."""
    rows = []
    for line, fields in enumerate(csv.reader(lines), 1):
        if not fields or fields[0] == 'suite':
            continue
        values = dict(zip(COLUMNS, fields))
        values.update(more)
        try:
            for name in ('value', 'spread', 'ratio_to_floor'):
                values[name] = number(values[name])
            for name in ('size', 'threads'):
                values[name] = int(values[name] or 0)
            row = Row(**values)
            if row.guarantee not in GUARANTEES and row.guarantee not in ALONE:
                raise ValueError(f'an unknown guarantee: {row.guarantee}')
        except (KeyError, TypeError, ValueError) as why:
            raise Unreadable(f'line {line}: not a row of results: {",".join(fields)!r} ({why})') from None
        if row.value is not None:
            rows.append(row)
    return rows


def write(path, rows):
    with open(path, 'w', encoding='utf-8', newline='') as file:
        writer = csv.writer(file, lineterminator='\n')
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(['' if value is None else f'{value:.6g}' if isinstance(value, float) else value for value in row])


def cell_of(row):
    return Cell(row.domain, row.charge, row.suite, row.workload, row.size, row.threads, row.metric)


def cells(rows):
    """{cell: {engine: row}}, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(cell_of(row), {})[row.engine] = row
    return found


def without_twins(rows):
    """The rows but those that say the same as another of their cell."""
    there = {cell_of(row) for row in rows}
    return [row for row in rows if row.metric not in TWINS or cell_of(row)._replace(metric=TWINS[row.metric]) not in there]


def is_ours(engine):
    """libato under one of its policies: 'ato', 'ato eager', 'ato-lanes'."""
    return engine == 'ato' or engine.startswith(('ato ', 'ato-', 'ato_', 'ato/'))


def strength(row):
    """The place among GUARANTEES of what a row's engine promises there. One for all threads together is just less than one for each."""
    if row.guarantee in ALONE:
        together = GUARANTEES.index(ALONE[row.guarantee])
        return together if row.threads <= 1 or row.suite in ONE_WRITER else together - 0.5
    return GUARANTEES.index(row.guarantee)


def is_equal(row, ours):
    """Does the engine of a row promise at least as much as that of another one of its cell?"""
    return strength(row) >= strength(ours)


def advantage(ours, rival):
    """How many times better `ours` is; below 1 it is worse. None where the metric has no direction or a value is 0. By the ratios to the
    floor, which are of the same rounds, where there are any."""
    more = is_more_better(ours.metric)
    mine, other = (ours.ratio_to_floor, rival.ratio_to_floor) if ours.ratio_to_floor and rival.ratio_to_floor else (ours.value, rival.value)
    if more is None or not mine or not other:
        return None
    return mine / other if more else other / mine


def is_close(ours, rival):
    """Are two values less apart than their spreads?"""
    return abs(ours.value - rival.value) <= (ours.spread or 0) + (rival.spread or 0)


# Beside the engines, with one VFS for all of them, SQLite's suites have it with its own files, where it has all it needs for other
# processes: compared among one another.
STOCK = ('truncate', 'wal', 'ato-vfs', 'ato-vfs-off')


def contests(engines):
    """[(our row, {engine: row} of those that it is compared with)] of a cell: our engine is libato as it is without options, or, where
    a cell has only others of ours, the first of them."""
    found = []
    for default, names in (('ato', [engine for engine in engines if engine not in STOCK]),
                           ('ato-vfs', [engine for engine in engines if engine in STOCK])):
        among = {engine: engines[engine] for engine in names}
        ours = among.get(default) or next((row for engine, row in among.items() if is_ours(engine)), None)
        if ours:
            found.append((ours, among))
    return found


def best_rival(engines, ours):
    """The best row of another's engine with at least our guarantee; None if there is none."""
    rivals = [(advantage(ours, row), row) for engine, row in engines.items()
              if not is_ours(engine) and is_equal(row, ours)]
    rivals = [(gain, row) for gain, row in rivals if gain is not None]
    return min(rivals, key=lambda pair: pair[0])[1] if rivals else None
