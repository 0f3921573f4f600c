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


def is_map(loss):
    return loss.cell.suite in ('unmap', 'recovery') and loss.cell.metric == 'map ms'


def is_first_read(loss):
    return loss.cell.suite in ('unmap', 'recovery') and loss.cell.metric in ('read ms', 'map and read ms')


def has_written(loss):
    """Was anything written before what the suite measures?"""
    return loss.cell.workload != 'none' and not loss.cell.workload.startswith('0 ')


# Beyond this the reason for reads, the check and the copy home, does not explain a loss; nor does the one for logs.
MOST = 4

# Known reasons: (condition on a loss and all cells; the reason). The first that fits counts. Only what is known stands here.
REASONS = [
    (lambda loss, _: is_map(loss),
     'A map opens, locks and checks the file, its reflection and its manifest, and joins what other processes share: some 80 system calls, '
     'whatever the size. Rivals map one or two files that they trust. On a disk a map after a kill also brings the log home, with its syncs.'),
    (lambda loss, _: is_first_read(loss) and not has_written(loss),
     'Nothing was written, so nothing is brought home: all policies of libato take the same time. Each read makes sure that it sees no '
     'half of another thread\'s write. `map and read ms` has the time of the map, too.'),
    (lambda loss, _: is_first_read(loss),
     'The first read after a fast unmap or a kill gathers the slices from two files, and brings them home: what lazy writes put off. '
     'Rivals did that before, in their unmap or in the background, or do it in their map. `ato-gather`, and `ato-spatial`, bring nothing home then. '
     'Where little was written, most of the time is the check that each read makes.'),
    (lambda loss, _: loss.behind > MOST and loss.cell.suite != 'amplification', UNEXPLAINED),
    (lambda loss, _: loss.cell.metric == 'stored MiB' and has_written(loss),
     'The reflection has a page for each page that was written, and a fast unmap keeps them.'),
    (lambda loss, _: is_read(loss) and loss.cell.metric not in TAILS,
     'A read of libato makes sure that it sees no half of another thread\'s write, and it brings home, once, what a write left elsewhere. '
     'No work of the evaluation needs the first, and an engine that writes in place has nothing to bring home.'),
    (is_decided_by_reads, 'Ahead at this size where all write, behind where all read: here the reads weigh more.'),
    (lambda loss, _: loss.rival.engine.startswith('fallback-pmemobj') and loss.cell.suite == 'amplification' and loss.cell.workload == '50/50',
     'Reads of `ato` bring home what they read, and that is counted; this engine, and `ato-gather`, bring nothing home.'),
    (lambda loss, _: loss.rival.engine.startswith('fallback-pmemobj') and loss.cell.suite in ('random', 'sync', 'threads', 'latency'),
     'It stores the same lines as libato, brings nothing home, and has no other processes to keep out.'),
    (lambda loss, _: loss.cell.suite == 'amplification' and loss.cell.size > 4096,
     'A write of several pages: the words go through a redo list (a lane), with lines and fences of its own.'),
    (lambda loss, _: loss.cell.suite == 'transactions' and loss.cell.workload.startswith(SMALL)
     and loss.rival.engine.startswith(('redo-cache', 'fallback-pmemobj')),
     'A transaction of libato takes and releases its pages, so that no other thread or process sees half of it: with few pages that weighs '
     'most. This engine has only threads of one process to think of.'),
    (lambda loss, _: loss.cell.suite in ('transactions', 'random', 'sync')
     and loss.rival.engine in ('redo-cache', 'hybrid-log', 'hybrid-redo') and loss.cell.metric not in COUNTED,
     'The rival appends to a log, which is copied to the file later, outside of its time. `amplification` has what it writes in all.'),
]
TAILS = ('p99.9 ns', 'p99.99 ns', 'p99.999 ns')
SMALL = '2 pages'  # the smallest transactions that are measured
COUNTED = ('media bytes/byte', 'lines/write', 'fences/write')


def is_counted(cell, engine, cells):
    """A suite that counts sees nothing of what an engine does by means that it does not know: then fewer bytes than were written."""
    row = cells.get(cell._replace(metric=COUNTED[0]), {}).get(engine)
    return row is None or row.value >= 0.99


def why(loss, cells):
    return next((reason for fits, reason in REASONS if fits(loss, cells)), UNEXPLAINED)


def find(rows):
    """The losses, the worst first within a suite and domain."""
    found, cells = [], results.cells(results.without_twins(rows))
    for cell, engines in cells.items():
        for ours, among in results.contests(engines):
            if cell.metric in COUNTED:
                among = {engine: row for engine, row in among.items() if is_counted(cell, engine, cells)}
            rival = results.best_rival(among, ours)
            gain = results.advantage(ours, rival) if rival else 1
            if gain < 1:
                loss = Loss(cell, ours, rival, 1 / gain, results.is_close(ours, rival), UNEXPLAINED)
                found.append(loss._replace(why=why(loss, cells)))
    order = list(dict.fromkeys((loss.cell.domain, loss.cell.suite) for loss in found))
    return sorted(found, key=lambda loss: (order.index((loss.cell.domain, loss.cell.suite)), -loss.behind))
