# SPDX-License-Identifier: BSD-3-Clause
"""What the papers measured, as their texts say it, and the same from our results.

A claim has the paper, its figure and section, what was measured, and what the text says. Where that is a number, `paper` is how many
times the first is better than the second; numbers that are only in a picture are not here. `here` takes a Table and returns the
same of our results, or None if it was not measured. `note` names what is known to differ; nothing else may be in it.
"""
from collections import namedtuple

from . import results

Claim = namedtuple('Claim', 'source figure what says paper here note')

ACUMEN = 'Acumen (Jiang, Jia, Wang)'
LIBNVMMIO = 'Libnvmmio (Choi, Hong, Kwon, Han, ATC 2020)'
VNVML = 'vNVML (Chou and others)'
KUCO = 'KucoFS (Chen and others)'
UPSTREAM = 'Libnvmmio as its authors published it, measured before'  # by us, on a machine like these
SHORT = {ACUMEN: 'Acumen', LIBNVMMIO: 'Libnvmmio', VNVML: 'vNVML', UPSTREAM: 'not a paper: Libnvmmio\'s published code, measured before:'}

# What is said once, of all of them.
STAND_INS = ('NOVA is here `replica`, an engine of its scheme in the process; there it is in the kernel, and a sync a system call. Libnvmmio is '
             '`hybrid-log`, an engine of its scheme that is called as a library; vNVML is `redo-cache`. Acumen and Libnvmmio\'s table 2 were '
             'measured on Optane, Libnvmmio\'s figure 10 on NVDIMM-N with 20 cores, vNVML on DRAM; we have DRAM.')

NOVA_HERE = 'Kinder to it than NOVA is: replicas in DRAM, changed pages known without page faults, no system call.'
JOURNAL = 'There with journal_mode=TRUNCATE; here the engine takes the place of the journal.'


class Table:
    """Looks up and compares what engines did in a cell."""

    def __init__(self, rows, domain='pmem'):
        self.cells = {cell: engines for cell, engines in results.cells(rows).items() if cell.domain == domain}

    def find(self, suite, metric, **more):
        """The cells of a suite and a metric in which all that is named is so; a function is asked."""
        def fits(cell):
            return all(wish(value) if callable(wish) else value == wish
                       for wish, value in ((wish, getattr(cell, name)) for name, wish in more.items()))

        return {cell: engines for cell, engines in self.cells.items()
                if cell.suite == suite and cell.metric == metric and fits(cell)}

    def rows(self, *where, **more):
        """The engines of the first of these cells; {} if there is none."""
        return next(iter(self.find(*where, **more).values()), {})

    def gain(self, ours, rival, *where, **more):
        """How many times better `ours` is than `rival`."""
        engines = self.rows(*where, **more)
        if ours not in engines or rival not in engines:
            return None
        return results.advantage(engines[ours], engines[rival])


def random(ours, rival, mix, size):
    return lambda table: table.gain(ours, rival, 'random', 'MB/s', workload=mix, size=size)


def threads(ours, rival, kind):
    def most(table):
        found = table.find('threads', 'MB/s', workload=lambda name: name.startswith(kind))
        count = max((cell.threads for cell in found), default=0)
        return table.gain(ours, rival, 'threads', 'MB/s', workload=lambda name: name.startswith(kind), threads=count)

    return most


def latency(ours, rival, work, metric):
    return lambda table: table.gain(ours, rival, 'latency', metric, workload=work)


def fastest_size(table):
    """The size at which libato's random writes have the highest rate."""
    rates = {cell.size: engines['ato'].value for cell, engines in table.find('random', 'MB/s', workload='0/100').items()
             if 'ato' in engines}
    return f'highest at {max(rates, key=rates.get):,} B' if rates else None


def sync_gain(engine):
    """What 1,000 writes of a unit bring beside one."""
    def gain(table):
        few, many = (table.rows('sync', 'MB/s', workload=f'sequential, {words} a unit').get(engine)
                     for words in ('1 write', '1000 writes'))
        return many.value / few.value if few and many else None

    return gain


def same(ours, rival, suite, metric, **more):
    return lambda table: table.gain(ours, rival, suite, metric, **more)


CLAIMS = [
    Claim(ACUMEN, 'fig. 3a, V-A', 'random writes of 1 KiB, throughput beside NOVA', '18.9 ×', 18.9,
          random('ato', 'replica', '0/100', 1024), NOVA_HERE),
    Claim(ACUMEN, 'fig. 3a, V-A', 'the same beside Libnvmmio', '3.2 ×', 3.2,
          random('ato', 'hybrid-log', '0/100', 1024), 'The rival here is faster beside the floor than the published code (last rows).'),
    Claim(ACUMEN, 'fig. 3, V-A', 'random reads and writes 80/20 of 1 KiB, throughput beside NOVA', '2.5 ×', 2.5,
          random('ato', 'replica', '80/20', 1024), ''),
    Claim(ACUMEN, 'fig. 3, V-A', 'the same beside Libnvmmio', '1.2 ×', 1.2,
          random('ato', 'hybrid-log', '80/20', 1024), ''),
    Claim(ACUMEN, 'fig. 3a, V-A', 'the size at which random writes are fastest', '2 KB, not 4 KB', None,
          fastest_size, 'The paper explains it by how Optane takes non-temporal stores.'),
    Claim(ACUMEN, 'V-A', 'bytes written to the medium for writes of 1 KiB, of what NOVA writes', '20.2 %: 4.95 ×', 4.95,
          same('ato', 'replica', 'amplification', 'media bytes/byte', workload='0/100', size=1024), ''),
    Claim(ACUMEN, 'V-A', 'the same, of what Libnvmmio writes', '48.6 %: 2.06 ×', 2.06,
          same('ato', 'hybrid-log', 'amplification', 'media bytes/byte', workload='0/100', size=1024), ''),
    Claim(ACUMEN, 'fig. 4, V-B', 'YCSB A on SQLite, pages of 512 B, beside NOVA', '2.4 ×', 2.4,
          same('ato', 'replica', 'ycsb', 'MB/s', workload='A', size=512), JOURNAL),
    Claim(ACUMEN, 'fig. 4, V-B', 'the same beside Libnvmmio', '1.2 ×', 1.2,
          same('ato', 'hybrid-log', 'ycsb', 'MB/s', workload='A', size=512), JOURNAL),
    Claim(ACUMEN, 'fig. 4, V-B', 'YCSB C, which only reads, beside Libnvmmio', 'comparable', 1,
          same('ato', 'hybrid-log', 'ycsb', 'MB/s', workload='C', size=512), ''),
    Claim(ACUMEN, 'fig. 5, V-B', 'TPC-C on SQLite, four threads, pages of 2 KiB, beside NOVA', '124.1 % more', 2.241,
          same('ato', 'replica', 'tpcc', 'transactions/s', size=2048, threads=4), JOURNAL),
    Claim(ACUMEN, 'fig. 5, V-B', 'the same beside Libnvmmio', '29.3 % more', 1.293,
          same('ato', 'hybrid-log', 'tpcc', 'transactions/s', size=2048, threads=4), JOURNAL),

    Claim(LIBNVMMIO, 'fig. 6, 4.2.1', 'redo beside undo logging, where most accesses write (here: all, 4 KiB)', 'redo is better', None,
          random('hybrid-redo', 'hybrid-undo', '0/100', 4096), ''),
    Claim(LIBNVMMIO, 'fig. 6, 4.2.1', 'the same with 60 % reads', 'the same level', 1,
          random('hybrid-redo', 'hybrid-undo', '60/40', 4096), ''),
    Claim(LIBNVMMIO, 'fig. 6, 4.2.1', 'the same where most read (here: 80 %)', 'undo is better', None,
          random('hybrid-redo', 'hybrid-undo', '80/20', 4096), ''),
    Claim(LIBNVMMIO, 'fig. 7, 4.2.2', 'reads and writes, sequential and random, beside file systems (here: random writes of 4 KiB, beside `replica`)', '1.66 to 2.20 × (NVDIMM-N)', None,
          random('hybrid-log', 'replica', '0/100', 4096), 'The paper\'s other systems are file systems, each call a system call.'),
    Claim(LIBNVMMIO, 'fig. 9, 4.2.2', 'sequential writes, a sync after 1000 beside one after each', '"slightly increase"', None,
          sync_gain('hybrid-log'), ''),
    Claim(LIBNVMMIO, 'fig. 10, 4.2.3', 'shared file, 16 threads, beside NOVA (here: the most threads)', '13 ×', 13,
          threads('hybrid-log', 'replica', 'shared'),
          'NOVA locks the file in the kernel, `replica` does not; two CPUs, not 20 cores; each write ends a unit of the file.'),
    Claim(LIBNVMMIO, 'fig. 10, 4.2.3', 'a file for each thread, beside NOVA (here: the most threads)', '29 % more', 1.29,
          threads('hybrid-log', 'replica', 'private'), 'Two CPUs here, and each file has a thread in the background besides.'),
    Claim(LIBNVMMIO, 'table 2, 4.2.4', 'writes of 4 KiB, mean, beside NOVA', '4.14 and 4.43 µs: 1.07 ×', 1.07,
          latency('hybrid-log', 'replica', 'sequential writes', 'mean ns'), ''),
    Claim(LIBNVMMIO, 'table 2, 4.2.4', 'reads of 4 KiB, mean, beside NOVA', '1.12 and 1.73 µs: 1.54 ×', 1.54,
          latency('hybrid-log', 'replica', 'sequential reads', 'mean ns'), 'There NOVA reads by a system call.'),
    Claim(LIBNVMMIO, 'table 2, 4.2.4', 'writes of 4 KiB, p99.9, beside NOVA', '12 and 10 µs: 0.83 ×', 0.83,
          latency('hybrid-log', 'replica', 'sequential writes', 'p99.9 ns'), ''),
    Claim(LIBNVMMIO, 'table 2, 4.2.4', 'writes of 4 KiB, p99.999, beside NOVA', '76 and 5,216 µs: 69 ×', 69,
          latency('hybrid-log', 'replica', 'sequential writes', 'p99.999 ns'), ''),
    Claim(UPSTREAM, '', 'random writes of 1 KiB, each with a sync: time of the floor', '3.66 ×', 3.66,
          random('floor', 'hybrid-log', '0/100', 1024), ''),
    Claim(UPSTREAM, '', 'the same of 4 KiB', '3.01 ×', 3.01, random('floor', 'hybrid-log', '0/100', 4096), ''),

    Claim(VNVML, 'fig. 9a, V-C', 'transactions of 32 pages, 16 B in each, beside libpmemobj', 'only in the picture', None,
          same('redo-cache', 'pmemobj', 'transactions', 'commits/s', workload='32 pages in turn', size=16),
          'There the pages end on an SSD.'),
    Claim(VNVML, 'fig. 9a, V-C', 'the same with 512 B', '"performs better" the more is written', None,
          same('redo-cache', 'pmemobj', 'transactions', 'commits/s', workload='32 pages in turn', size=512),
          'There the pages end on an SSD.'),
]

# What the papers measured and we do not, with the reason.
NOT_HERE = [
    (LIBNVMMIO, 'fig. 8', 'sequential writes by their size', 'only as a picture; random writes of all sizes are in `random`'),
    (LIBNVMMIO, 'fig. 12', 'Mobibench beside WAL: inserts 60 % and updates 93 % more (NVDIMM-N), 162 and 120 % (Optane)',
     'YCSB and TPC-C take its place'),
    (LIBNVMMIO, 'fig. 13', 'TPC-C beside file systems with WAL: 16 to 27 % more (NVDIMM-N), 13 to 27 % (Optane)',
     'the file systems are not here; `tpcc` has WAL on tmpfs'),
    (LIBNVMMIO, 'fig. 14', 'MongoDB, beside its journal: 31 to 42 % more (YCSB A and F), 6 to 15 % (B, C, D, E)', 'no MongoDB'),
    (VNVML, 'fig. 7', 'four MongoDBs: over 90 % of the rate of MongoDB without its journal, if log and cache can handle the traffic', 'no MongoDB'),
    (VNVML, 'fig. 8', 'the same in containers: about the same rate', 'no MongoDB'),
    (KUCO, 'fig. 10b', 'reads beside writers: a read-write lock takes 7 % to 3.2 × longer than reads without locks',
     'a file system; `process_bench` and [read-policies.md](read-policies.md) have reads beside writers'),
]


LOGS = ('redo is better', 'undo is better')
SAME = 'Here they are the same, within 5 %.'


def compared(claim, here):
    """One sentence on two ratios; only what they show."""
    paper = claim.paper
    if isinstance(here, str):
        return ''
    if paper is None and claim.says in LOGS:
        ahead = 'Neither is ahead' if 0.95 <= here <= 1.05 else 'Redo is ahead' if here > 1 else 'Undo is ahead'
        return f'{ahead} here{", as there" if ahead.split()[0].lower() == claim.says.split()[0] else ", not as there"}.'
    if paper is None:
        return 'Here the first is ahead.' if here > 1.05 else 'Here the second is ahead.' if here < 0.95 else SAME
    if claim.source == UPSTREAM:
        return 'No slower beside its floor than that.' if here <= paper * 1.05 else f'{here / paper:.2f} times as slow beside its floor.'
    if paper == 1:
        return 'As in the paper, within a quarter.' if 0.8 <= here <= 1.25 else f'Not as in the paper: {here:.2f} ×.'
    if paper > 1.25 and 0.95 <= here <= 1.05:
        return SAME
    if here < 1 < paper:
        return f'Here it is the other way round: {1 / here:.2f} × behind.'
    if paper < 1 < here:
        return 'Behind there, ahead here.'
    if max(here / paper, paper / here) <= 1.25:
        return 'As in the paper, within a quarter.'
    if here > paper:
        return f'{here / paper:.2f} times what the paper has.' if paper >= 1 else 'Behind by less than there.'
    return 'Ahead here too, by less than there.' if paper >= 1 else 'Behind by more than there.'


def rows(table):
    """The claims as rows of a table: (source, figure, what, paper, here, sentences)."""
    found = []
    for claim in CLAIMS:
        here = claim.here(table)
        if here is None:
            found.append((claim.source, claim.figure, claim.what, claim.says, 'not measured',
                          'That many samples need `--full`.' if 'p99.999' in claim.what else 'The cell was left out of this run.'))
            continue
        shown = here if isinstance(here, str) else f'{here:.2f} ×'
        found.append((claim.source, claim.figure, claim.what, claim.says, shown, f'{compared(claim, here)} {claim.note}'.strip()))
    return found
