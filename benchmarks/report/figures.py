# SPDX-License-Identifier: BSD-3-Clause
"""Draws the results of a suite: a panel for each workload, a line for each engine with its name at the end."""
import math
import re
from collections import namedtuple

from . import results

# Okabe and Ito's colours, which the colour-blind tell apart too; a marker each, since there are more engines than colours.
COLOURS = ['#D55E00', '#0072B2', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#6b5b00', '#882255', '#44AA99', '#332288']
MARKERS = 'soD^vP<X>*hp'
OURS, FLOOR = '#000000', '#8a8a8a'
WIDTH, HEIGHT, NAMES = 4.4, 3.3, 1.3  # of a panel and of the names beside it, in inches
COLUMNS = 3
MOST_PANELS = 9

# A panel has a title, the name of its x axis, how that runs ('log', or 'even' for names), {x: words}, and
# {engine: [(x, y, spread)]}.
Panel = namedtuple('Panel', 'title x kind ticks lines')
Plot = namedtuple('Plot', 'y panels')

# Words before the workload of a suite where that is only numbers.
MEANT = {'random': 'reads/writes '}
SIZE = {'ycsb': 'bytes of a page of the database', 'tpcc': 'bytes of a page of the database'}


def stem_of(metric):
    """Percentiles of the same thing are one metric, with the percentiles along the axis."""
    return results.PERCENTILE.sub('percentile', metric)


def length(size):
    """A number of bytes as people write it."""
    for unit, name in ((1 << 20, 'MiB'), (1 << 10, 'KiB')):
        if size >= unit and size % unit == 0:
            return f'{size // unit} {name}'
    return f'{size} B'


def shape_of(workload):
    """The words around a number: 'a sync every N writes'."""
    return re.sub(r'\bN (\w+?)s?\b', r'N \1s', re.sub(r'\d+', 'N', workload), count=1)


def numbered(rows):
    """The shapes of workloads that differ in one number alone, three or more of them."""
    found = {}
    for row in rows:
        numbers = re.findall(r'\d+', row.workload)
        if len(numbers) == 1:
            found.setdefault(shape_of(row.workload), set()).add((numbers[0], row.size, row.threads))
    return {shape for shape, several in found.items() if len({number for number, *_ in several}) == len(several) > 2}


def differ(rows, name):
    return len({getattr(row, name) for row in rows}) > 1


def axis_of(rows, is_numbered):
    """(name, kind, function of a row to x, function of a row to its words) of a panel's axis; None for a single point."""
    if is_numbered:
        def number(row):
            return int(re.search(r'\d+', row.workload)[0])
        return 'N', 'log' if all(map(number, rows)) else 'even', number, lambda row: str(number(row))
    if stem_of(rows[0].metric) != rows[0].metric:
        order = list(dict.fromkeys(row.metric for row in rows))
        return 'percentile', 'even', lambda row: order.index(row.metric), lambda row: results.PERCENTILE.match(row.metric)[1]
    if differ(rows, 'size'):
        return SIZE.get(rows[0].suite, 'bytes of an operation'), 'log', lambda row: row.size, lambda row: length(row.size)
    if differ(rows, 'threads'):
        return 'threads', 'log', lambda row: row.threads, lambda row: str(row.threads)
    return None


def panel_of(title, rows, axis, has_ratio):
    name, kind, x_of, words_of = axis
    lines = {}
    for row in rows:
        y, spread = row.value, row.spread or 0
        if has_ratio:
            if row.ratio_to_floor is None:
                continue
            y, spread = row.ratio_to_floor, (spread * row.ratio_to_floor / y if y else 0)
        lines.setdefault(row.engine, []).append((x_of(row), y, spread))
    ticks = dict(sorted({x_of(row): words_of(row) for row in rows}.items()))
    return Panel(title, name, kind, ticks, {engine: sorted(line) for engine, line in lines.items()})


def plot_of(rows):
    """The Plot of the rows of one suite, domain and charge, and of one stem of a metric: a panel for what differs in words, and
    along its axis what differs in a number. Workloads that are a single point are beside each other in a last panel."""
    has_ratio = any(row.ratio_to_floor for row in rows)
    shapes = numbered(rows)
    found = {}
    for row in rows:
        shape = shape_of(row.workload)
        title = shape if shape in shapes else MEANT.get(row.suite, '') + row.workload
        if shape not in shapes and differ(rows, 'threads') and differ([r for r in rows if r.workload == row.workload], 'size'):
            title += f', {row.threads} threads' if row.threads > 1 else ', 1 thread'
        found.setdefault((title, shape in shapes), []).append(row)
    axes = {key: axis_of(group, key[1]) for key, group in found.items()}
    is_mixed = not all(axes.values())
    panels, points = [], []
    for key, group in found.items():
        axis = axes[key]
        if axis and not (is_mixed and len(set(map(axis[2], group))) <= 2):
            panels.append(panel_of(key[0], group, axis, has_ratio))
        else:
            points += group
    if points:
        with_size = differ(points, 'size')
        def name(row):
            return f'{row.workload}, {length(row.size)}' if with_size and row.size else row.workload
        names = list(dict.fromkeys(map(name, points)))
        panels.append(panel_of('others' if panels else '', points, ('', 'even', lambda row: names.index(name(row)), name), has_ratio))
    more = results.is_more_better(rows[0].metric)
    better = '' if more is None else '\nmore is better' if more else '\nless is better'
    name = 'time' if rows[0].metric.endswith('ns') else rows[0].metric
    return Plot(f'{name}, relative to {rows[0].engine}{better}' if has_ratio else f'{rows[0].metric}{better}', panels)


def looks(engines):
    """{engine: (colour, marker, width, dash)}, the same in each figure of a report."""
    found, others = {}, 0
    for engine in engines:
        if engine == 'ato':
            found[engine] = (OURS, 'o', 2.4, '-')
        elif results.is_ours(engine):
            found[engine] = (OURS, MARKERS[(others + 3) % len(MARKERS)], 1.2, (0, (4, 2)))
            others += 1
        elif engine in ('floor', 'raw'):
            found[engine] = (FLOOR, '.', 1.2, '--' if engine == 'floor' else ':')
        else:
            found[engine] = (COLOURS[others % len(COLOURS)], MARKERS[others % len(MARKERS)], 1.4, '-')
            others += 1
    return found


def apart(places, gap, low, high):
    """The places, in their order, moved as little as may be so that neighbours are `gap` apart and all lie between the two."""
    groups = []  # (sum, count) of places that touch, each less the gaps before it
    for i, place in enumerate(places):
        total, count = place - i * gap, 1
        while groups and groups[-1][0] / groups[-1][1] > total / count:
            before = groups.pop()
            total, count = total + before[0], count + before[1]
        groups.append((total, count))
    moved = [total / count for total, count in groups for _ in range(count)]
    return [max(low, min(place, high - (len(places) - 1) * gap)) + i * gap for i, place in enumerate(moved)]


def draw(plot, title, look, path):
    """Writes PATH.svg and PATH.png."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use('Agg')
    from matplotlib import pyplot, ticker  # pylint: disable=import-outside-toplevel
    pyplot.rcParams.update({'svg.fonttype': 'none', 'svg.hashsalt': title, 'font.family': 'DejaVu Sans', 'font.size': 9,
                            'axes.spines.top': False, 'axes.spines.right': False, 'axes.grid': True, 'grid.color': '#e4e4e4',
                            'axes.axisbelow': True, 'axes.titlesize': 9.5, 'axes.titleweight': 'bold'})
    panels = plot.panels[:MOST_PANELS]
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure, axes = pyplot.subplots(lines, columns, squeeze=False, figsize=(max(columns * WIDTH, 7), lines * HEIGHT + 0.5))
    figure.suptitle(title, fontsize=11, x=0.01, ha='left')
    values = [y for panel in panels for line in panel.lines.values() for _, y, _ in line if y > 0]
    is_log = bool(values) and max(values) / min(values) > 4
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, panels):
        for engine, line in panel.lines.items():
            colour, marker, width, dash = look[engine]
            x, y, spread = zip(*line)
            axis.errorbar(x, y, yerr=spread, color=colour, marker=marker, markersize=4.5, linewidth=width, linestyle=dash,
                          elinewidth=0.7, zorder=3 if results.is_ours(engine) else 2)
        if panel.kind == 'log':
            axis.set_xscale('log', base=2)
        values = [y for line in panel.lines.values() for _, y, _ in line if y > 0]
        if is_log and values:
            axis.set_yscale('log')
            axis.set_ylim(min(values) / 1.3, max(values) * 1.3)
        elif values:
            axis.set_ylim(min(0.9 * min(values), 1.05 * min(values) - 0.05 * max(values)), 1.1 * max(values))
        if is_log:
            axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=12))
            axis.yaxis.set_minor_locator(ticker.NullLocator())
        axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.3g}' if value < 1e6 else f'{value:.0e}'))
        is_long = max(map(len, panel.ticks.values())) > 5
        axis.set_xticks(list(panel.ticks), list(panel.ticks.values()), rotation=30 if is_long else 0, ha='right' if is_long else 'center')
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.margins(x=0.08)
        axis.set_title(panel.title, loc='left')
        axis.set_xlabel(panel.x)
    for axis in axes[:, 0]:
        axis.set_ylabel(plot.y)
    figure.tight_layout(rect=(0, 0, 1 - NAMES / figure.get_figwidth(), 0.97), w_pad=NAMES * 72 / 9)
    figure.canvas.draw()
    for axis, panel in zip(axes.flat, panels):
        name_lines(axis, panel.lines, look)
    figure.savefig(f'{path}.svg', metadata={'Date': None, 'Creator': None})
    figure.savefig(f'{path}.png', dpi=110)
    pyplot.close(figure)


def name_lines(axis, engines, look):
    """Writes each engine's name beside the end of its line, in the line's colour, no two over each other."""
    ends = []
    for engine, line in engines.items():
        x, y, _ = line[-1]
        ends.append((axis.transData.transform((x, y))[1], engine, x, y))
    ends.sort()
    box = axis.get_window_extent()
    gap = 8.5 / 72 * axis.figure.dpi
    places = apart([end[0] for end in ends], gap, box.y0, box.y1)
    edge = axis.transData.inverted().transform((box.x1, box.y0))[0]
    for (_, engine, x, y), place in zip(ends, places):
        axis.annotate(engine, (x, y), xytext=(edge, axis.transData.inverted().transform((box.x0, place))[1]), fontsize=7.5,
                      color=look[engine][0] if look[engine][0] != FLOOR else '#555', va='center', annotation_clip=False,
                      arrowprops={'arrowstyle': '-', 'color': look[engine][0], 'linewidth': 0.5, 'shrinkA': 0, 'shrinkB': 3, 'relpos': (0, 0.5)})
