# SPDX-License-Identifier: BSD-3-Clause
"""What the report says: chapters made from the rows, and the short form of them."""
import os

from . import document, figures, losses, papers, results

TPCC, THRICE = 1.3, 3  # aims
# The metric by which a cell that writes is won or lost.
HEADLINES = {'random': 'MB/s', 'sync': 'MB/s', 'threads': 'MB/s', 'latency': 'p50 ns', 'transactions': 'commits/s',
             'small_nvm': 'writes/s of two', 'ycsb': 'MB/s', 'tpcc': 'transactions/s'}
DOMAINS = {
    'pmem': 'in memory that is taken for persistent memory',
    'process': 'in memory, where only a kill is survived',
    'disk': 'on a disk',
}
MEANING = {
    'pmem': 'persistent memory: each flush and fence is issued, and on it kill, kernel crash and power cut would be survived',
    'process': 'memory: a kill is survived',
    'disk': 'a disk: kill, kernel crash and power cut are survived',
}
METHOD = [
    'All engines get the same operations in the same order, each in files of its own, in one process. In a round each of them takes '
    'the same batch, in random order. After the rounds all must hold the same bytes, or the run fails.',
    'A value is the median of the rounds; the spread is half of the distance between the quartiles. A ratio is the median of the '
    'ratios of the rounds to the floor\'s (SQLite: to the engine raw\'s).',
    'How much one engine is ahead of another one is the quotient of their ratios to the floor; where there are none, of their values.',
    'Only engines that promise at least as much are compared with libato. A weaker one is named in each table. In domain pmem what only '
    'survives a kill is weaker; a guarantee for all threads together is weaker where several threads write at a time.',
    'What an engine does in the background, after its turn, is waited for before the next engine has its turn, and is not in its time: the '
    'log of `hybrid-log` and `redo-cache` is copied to the file then. In `random` the metric settled MB/s has that time in it, too; '
    '`amplification` counts all of it.',
    'In `small_nvm` a log in memory stands for a small persistent memory, for libato as for its rivals. Where /dev/shm is none, such a log '
    'does not survive a power cut, whatever the guarantee of the engine says.',
]


def factor(value):
    return f'{value:.2f}' if value < 10 else f'{value:,.1f}' if value < 100 else f'{value:,.0f}'


def value_of(row):
    """The ratio to the floor, with the spread in per cent; the value itself where there is none."""
    shown = f'{row.value:,.4g}' if row.ratio_to_floor is None else factor(row.ratio_to_floor)
    if not row.spread or not row.value:
        return shown
    per_cent = 100 * row.spread / row.value
    return f'{shown} ±{per_cent:.0f} %' if per_cent >= 0.5 else shown


def charged(charge):
    """What is said of the cost that was added; empty if there was none."""
    if not charge:
        return ''
    line, fence = charge.split(',')
    return f'{line} ns added to each flushed line, {fence} ns to each fence'


def name_of(cell):
    parts = [cell.workload]
    if cell.size:
        parts.append(figures.length(cell.size))
    if cell.threads > 1:
        parts.append(f'{cell.threads} threads')
    return ', '.join(filter(None, parts))


def steadiness(rows):
    """A sentence on the spreads; empty if they are small."""
    wide = sum(1 for row in rows if row.spread and row.spread > abs(row.value) / 4)
    return f'Of {len(rows)} values {wide} have a spread of more than a quarter: these are unsure.' if wide else ''


# ---- Aims ----

def aims(rows):
    """[(aim, result, 'yes', 'no' or 'not measured')]"""
    table = papers.Table(rows)
    found = []
    for rival in ('hybrid-log', 'pmemobj'):
        gain = table.gain('ato', rival, 'random', 'MB/s', workload='0/100', size=1024)
        found.append((f'random writes of 1 KiB: at least {THRICE} × `{rival}`', gain and f'{gain:.2f} ×', gain and gain >= THRICE))
    writing = [cell for cell, engines in results.cells(rows).items() if losses.writes(cell) and cell.metric == HEADLINES.get(cell.suite)
               for ours, among in results.contests(engines) if results.best_rival(among, ours)]
    lost = [loss for loss in losses.find(rows) if loss.cell in writing]
    within = sum(loss.is_close for loss in lost)
    close = f'; of the others {within} by less than the spread' if within else ''
    found.append(('ahead of every engine of equal guarantee in each cell that writes',
                  writing and f'{len(writing) - len(lost)} of {len(writing)} cells' + close, bool(writing) and not lost))
    worst = None
    for ours, among in [contest for cell, engines in table.cells.items() if cell.suite == 'tpcc' for contest in results.contests(engines)]:
        rival = results.best_rival(among, ours)
        gain = results.advantage(ours, rival) if rival else None
        worst = gain if worst is None or gain and gain < worst else worst
    found.append((f'TPC-C: at least {TPCC} × the best rival of equal guarantee, in the worst cell', worst and f'{worst:.2f} ×',
                  worst and worst >= TPCC))
    return [(aim, result or '', 'not measured' if not result else 'yes' if met else 'no') for aim, result, met in found]


# ---- Chapters ----

def add_top(page, about, rows):
    page.text(f'{about["date"]}. Each number is a ratio to something that ran beside it in the same process. '
              f'{"A long run." if about["full"] else "A quick run: `--full` takes longer and has more cells."} {steadiness(rows)}')
    if about['failed']:
        page.heading('Failed')
        page.items(about['failed'])
    charge = next((row.charge for row in rows if row.charge), '')
    if charge:
        page.text(f'**With {charged(charge)}**, the same for all engines.')
    page.heading('What was aimed at')
    page.text('These are aims, not conditions: the report shows what came out.')
    page.table(['aim', 'result', 'reached'], aims(rows))
    page.heading('Measured on')
    page.table(['', ''], about['machine'])
    page.table(['domain', 'medium', 'what it stands for'], [(domain, medium, MEANING[domain]) for domain, medium in about['media']])
    if about['notes']:
        page.text('What was left out or made smaller:')
        page.items(about['notes'])


def add_engines(page, about, rows):
    page.heading('Engines')
    promised = {}
    for row in rows:
        promised.setdefault(row.engine, {}).setdefault(row.guarantee, set()).add(row.domain)
    what = about['engines']
    page.table(['engine', 'what it is', 'guarantee'],
               [(f'`{engine}`', what.get(engine, ''), '; '.join(
                   guarantee + ('' if len(guarantees) == 1 else f' ({", ".join(sorted(domains))})')
                   for guarantee, domains in guarantees.items())) for engine, guarantees in promised.items()])


def add_papers(page, rows):
    page.heading('Beside the papers')
    page.text('Numbers of the papers are those of their texts; where one is only in a picture, the table says so. A ratio is how many times '
              'the first is better than the second. ' + papers.STAND_INS)
    table = papers.Table(rows)
    found = papers.rows(table)
    for source in dict.fromkeys(row[0] for row in found):
        page.heading(source, 3)
        page.table(['figure', 'what', 'paper', 'here', 'difference'], [row[1:] for row in found if row[0] == source])
    page.heading('Not measured here', 3)
    page.table(['paper', 'figure', 'what', 'why not'], papers.NOT_HERE)


def loss_rows(found):
    return [(loss.cell.domain, loss.cell.suite, name_of(loss.cell), loss.cell.metric, f'`{loss.ours.engine}`, `{loss.rival.engine}`',
             f'{loss.behind:.2f} ×' + (' (within the spread)' if loss.is_close else ''), loss.why) for loss in found]


def add_losses(page, rows):
    page.heading('Where libato is behind')
    found = losses.find(rows)
    if not found:
        page.text('In no cell is an engine of equal guarantee ahead of libato.')
        return
    page.text('Each cell in which an engine that promises as much is ahead, by how much, and why.')
    page.table(['domain', 'suite', 'cell', 'metric', 'ours, rival', 'behind', 'why'], loss_rows(found))


def groups(rows):
    """{(suite, domain, charge, stem of the metric): rows}, suite by suite, in their order."""
    found, suites = {}, list(dict.fromkeys(row.suite for row in rows))
    for row in rows:
        found.setdefault((row.suite, row.domain, row.charge, figures.stem_of(row.metric)), []).append(row)
    return dict(sorted(found.items(), key=lambda item: suites.index(item[0][0])))


STEMS = {'ns': 'time', 'mean ns': 'mean time', 'percentile ns': 'percentiles of the time'}


def title_of(key):
    suite, domain, charge, stem = key
    return ', '.join(filter(None, [suite, DOMAINS.get(domain, domain), STEMS.get(stem, stem), charged(charge)]))


def draw_figures(rows, folder):
    """{key of groups: path of an SVG}. Writes each as SVG and PNG."""
    look = figures.looks(dict.fromkeys(row.engine for row in rows))
    drawn = {}
    for key, group in groups(results.without_twins(rows)).items():
        path = os.path.join(folder, document.anchor('-'.join(key[:2] + (key[3],)).replace('/', ' per ')))
        figures.draw(figures.plot_of(group), title_of(key), look, path)
        drawn[key] = path + '.svg'
    return drawn


def add_suites(page, about, rows, drawn):
    last = None
    for key, group in groups(results.without_twins(rows)).items():
        suite, _, charge, _ = key
        if suite != last:
            page.heading(suite)
            page.text(about['suites'].get(suite, '') or 'This suite says nothing of itself.')
            last = suite
        page.heading(title_of(key), 3)
        if key in drawn:
            page.figure(drawn[key], title_of(key))
        add_cells(page, group, charge)


def add_cells(page, group, charge):
    cells = results.cells(group)
    engines = list(dict.fromkeys(row.engine for row in group))
    has_ratio = any(row.ratio_to_floor for row in group)
    stems = {cell.metric for cell in cells}
    more = results.is_more_better(group[0].metric)
    better = '' if more is None else ' More is better.' if more else ' Less is better.'
    what = f'Relative to `{group[0].engine}`, and the spread' if has_ratio else 'Values, and the spread'
    page.text(what + (f'; {charged(charge)}' if charge else '') + '.' + better)
    weaker = weaker_ones(group)
    page.table(['cell'] + [engine + weaker.get(engine, '') for engine in engines],
               [[name_of(cell) + (f', {cell.metric}' if len(stems) > 1 else '')] +
                [value_of(row[engine]) if engine in row else '' for engine in engines] for cell, row in cells.items()])


def weaker_ones(group):
    """{engine: its guarantee in brackets} for those that promise less than libato there."""
    ours = next((row for row in group if row.engine == 'ato'), None)
    return {row.engine: f' ({row.guarantee})' for row in group
            if (not results.is_equal(row, ours) if ours else results.strength(row) < len(results.GUARANTEES) - 1)}


def report(about, rows, drawn):
    page = document.Document('libato beside its rivals')
    add_top(page, about, rows)
    add_papers(page, rows)
    add_losses(page, rows)
    add_engines(page, about, rows)
    add_suites(page, about, rows, drawn)
    page.heading('How it is measured')
    page.items(METHOD)
    page.text('Every number is in `results.csv`.')
    return page


# ---- The short form ----

SHORT_FIGURES = [('random', 'pmem', '', 'MB/s'), ('transactions', 'pmem', '', 'commits/s')]
SHORT_LOSSES = 15
# Workloads of the short form: suite, metric, workload, sizes, threads.
SHORT_CELLS = [('random', 'MB/s', '0/100', (64, 1024, 4096, 65536), (1,)), ('random', 'settled MB/s', '0/100', (1024,), (1,)),
               ('random', 'MB/s', '60/40', (1024,), (1,)), ('sync', 'MB/s', 'random, 100 writes a unit', (4096,), (1,)),
               ('transactions', 'commits/s', '32 pages in turn', (64, 512), (1,)), ('ycsb', 'MB/s', 'A', (4096,), (1,)),
               ('tpcc', 'transactions/s', 'TPC-C', (4096,), (1, 4))]


def beside_each(rows):
    """(names of the rivals, rows of a table: in each cell how many times libato is ahead of each; in brackets where that one promises less)"""
    cells = results.cells(rows)
    rivals = [engine for engine in dict.fromkeys(row.engine for row in rows if row.suite == 'random') if not results.is_ours(engine)]
    lines = []
    for domain in dict.fromkeys(cell.domain for cell in cells):
        for suite, metric, workload, sizes, threads in SHORT_CELLS:
            for cell, engines in cells.items():
                if cell[:1] + cell[2:4] + cell[6:] != (domain, suite, workload, metric) or cell.size not in sizes or cell.threads not in threads:
                    continue
                ours, line = engines.get('ato'), [domain, f'{suite}, {metric}', name_of(cell)]
                for rival in rivals:
                    gain = results.advantage(ours, engines[rival]) if ours and rival in engines else None
                    shown = f'{gain:.2f}' if gain else ''
                    line.append(shown if not gain or results.is_equal(engines[rival], ours) else f'({shown})')
                lines.append(line)
    return rivals, lines


def together(losses_found):
    """The losses of a suite that have the reason in common, as a row; the worst first."""
    kinds = {}
    for loss in losses_found:
        kinds.setdefault((loss.cell.domain, loss.cell.suite, loss.why), []).append(loss)
    rows = []
    for (domain, suite, why), group in kinds.items():
        worst = max(group, key=lambda loss: loss.behind)
        metrics = list(dict.fromkeys(loss.cell.metric for loss in group))
        rows.append((worst.behind, (domain, suite, ', '.join(metrics), str(len(group)),
                                    f'{worst.behind:.2f} × (`{worst.rival.engine}`, {name_of(worst.cell)}, {worst.cell.metric})', why)))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def short(about, rows, pictures):
    """The page of the documents: what was aimed at, the papers, and where libato is behind."""
    page = document.Document('The evaluation')
    page.text('libato beside its rivals, on the work of the papers. Made by `benchmarks/evaluate --short`, on '
              f'{about["date"]}; the whole report, with a figure and a table for each suite, is what `benchmarks/evaluate` writes. '
              'All numbers are ratios to something that ran beside it in the same process. ' + steadiness(rows))
    page.table(['machine', ''], about['machine'] + [(f'medium, domain {domain}', medium) for domain, medium in about['media']])
    if about['failed'] or about['notes']:
        page.text('Failed, left out or made smaller: ' + '; '.join(about['failed'] + about['notes']) + '.')
    page.heading('What was aimed at')
    page.table(['aim', 'result', 'reached'], aims(rows))
    page.heading('Beside each engine')
    page.text('How many times libato (`ato`) is ahead of each engine; in brackets where that one promises less, empty where it does not take '
              'part. `floor` and `raw` are not atomic: what the medium allows.')
    rivals, lines = beside_each(rows)
    page.table(['domain', 'suite, metric', 'cell', *(f'`{rival}`' for rival in rivals)], lines)
    for key, path in pictures.items():
        page.figure(path, title_of(key))
    page.heading('Beside the papers')
    page.text('Numbers of the papers are those of their texts. A ratio is how many times the first is better than the second. ' +
              papers.STAND_INS)
    page.table(['paper', 'what', 'paper', 'here', 'difference'],
               [(papers.SHORT.get(row[0], row[0]) + ' ' + row[1], *row[2:]) for row in papers.rows(papers.Table(rows))])
    page.heading('Where libato is behind')
    found = losses.find(rows)
    if not found:
        page.text('In no cell is an engine of equal guarantee ahead of libato.')
    else:
        page.text(f'In {len(found)} cells, each metric counted by itself, an engine of equal guarantee is ahead. They are together where domain, suite and reason are the same: '
                  f'here are the {SHORT_LOSSES} kinds with the worst cells. The whole report lists each cell.')
        shown = together(found)[:SHORT_LOSSES]
        reasons = list(dict.fromkeys(row[-1] for row in shown if row[-1] != losses.UNEXPLAINED))
        page.table(['domain', 'suite', 'metrics', 'cells', 'behind in the worst', 'why'],
                   [(*row[:-1], str(reasons.index(row[-1]) + 1) if row[-1] in reasons else row[-1]) for row in shown])
        page.items([f'{number}: {reason}' for number, reason in enumerate(reasons, 1)])
    page.heading('How it is measured')
    page.items(METHOD)
    return page
