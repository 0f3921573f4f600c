# SPDX-License-Identifier: BSD-3-Clause
"""The cells in which an engine that promises as much as libato is ahead of it, and why."""
from collections import namedtuple

from . import results

Loss = namedtuple('Loss', 'cell ours rival behind is_close why')
UNEXPLAINED = '**not explained**'


def reads_only(cell):
    """Has a cell no write?"""
    if cell.suite == 'random':
        return cell.workload == '100/0'
    return cell.suite == 'latency' and 'reads' in cell.workload or cell.suite == 'ycsb' and cell.workload.startswith('C')


def writes(cell):
    """Is it about writing? Not so the cells of reads, and what is done before and after writes."""
    return not reads_only(cell) and cell.suite not in ('unmap', 'recovery')


def is_decided_by_reads(loss, cells):
    """A mixture, at whose size libato is ahead where all write and behind where all read."""
    if loss.cell.suite != 'random' or reads_only(loss.cell):
        return False
    gains = []
    for mix in ('0/100', '100/0'):
        engines = cells.get(loss.cell._replace(workload=mix), {})
        if loss.ours.engine not in engines or loss.rival.engine not in engines:
            return False
        gains.append(results.advantage(engines[loss.ours.engine], engines[loss.rival.engine]))
    return gains[0] > 1 > gains[1]


def is_read(loss):
    return reads_only(loss.cell) or loss.cell.metric.startswith('read ')


# Known reasons: (condition on a loss and all cells; the reason). The first that fits counts. Only what is known stands here.
REASONS = [
    (lambda loss, _: is_read(loss) and loss.rival.engine in ('pmemobj', 'fallback-pmemobj'),
     'A read of libato never sees half of another thread\'s write, and brings home what a write left elsewhere, once; libpmemobj '
     'leaves the reader alone with the bytes.'),
    (is_decided_by_reads, 'Ahead at this size where all write, behind where all read: here the reads weigh more.'),
]


def why(loss, cells):
    return next((reason for fits, reason in REASONS if fits(loss, cells)), UNEXPLAINED)


def find(rows):
    """The losses, the worst first within a suite and domain."""
    found, cells = [], results.cells(results.without_twins(rows))
    for cell, engines in cells.items():
        ours = results.ours_of(cell, engines)
        rival = ours and results.best_rival(engines, ours)
        if not rival:
            continue
        gain = results.advantage(ours, rival)
        if gain < 1:
            loss = Loss(cell, ours, rival, 1 / gain, results.is_close(ours, rival), UNEXPLAINED)
            found.append(loss._replace(why=why(loss, cells)))
    order = list(dict.fromkeys((loss.cell.domain, loss.cell.suite) for loss in found))
    return sorted(found, key=lambda loss: (order.index((loss.cell.domain, loss.cell.suite)), -loss.behind))
