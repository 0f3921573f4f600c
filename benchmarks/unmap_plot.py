#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""usage: unmap_plot.py JSON SVG

Draws the medians of unmap_bench: four charts over the share of slices in the reflection, with a line for each mode of
ato_munmap() and each way in which these slices are spread, and one for a plain mapping. JSON is the file of --benchmark_out;
unmap_bench --plot=SVG runs this.
"""
import json
import math
import sys
from html import escape

SHARES = ['none', '1_64', '1_16', '1_4', '1_2', 'all']
# Value, title, unit, factor, is the axis logarithmic.
CHARTS = [('ns', 'unmap', 'ms', 1e-6, True), ('map_us', 'next map', 'ms', 1e-3, True),
          ('read_ms', 'first read of the whole file', 'ms', 1, False),
          ('space_mib', 'space kept by the reflection', 'MiB', 1, False)]
COLORS = {'fast': '#0b6fb8', 'spatial': '#c8501e', 'plain': '#7a7a7a'}
SPREADS = {'slices': ('a share of the slices of each page', ''), 'pages': ('all slices of a share of the pages', '6 4')}
WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y, LEGEND = 380, 240, 80, 70, 100, 80, 50


def fail(words):
    sys.exit(f'unmap_plot: {words}')


def read_medians(path):
    """(format, spread or None, share, side) -> the values of that row"""
    try:
        with open(path, encoding='utf-8') as file:
            document = json.load(file)
        rows = {}
        for row in document['benchmarks']:
            if row["aggregate_name"] != "median" if "aggregate_name" in row else row["repetitions"] > 1:
                continue
            kind, *spread, share, side = row['run_name'].split('/iterations')[0].split('/')
            rows[kind, spread[0] if spread else None, share, side] = row
        return document['context'], rows
    except (OSError, ValueError, KeyError) as why:
        fail(f'{path}: is not the JSON of unmap_bench: {why!r}')


def lines_of(rows, value, factor):
    """Yields format, spread, side, and the points (number of the share, value); `none` and `all` belong to both spreads."""
    for kind in sorted({key[0] for key in rows}):
        for side in COLORS:
            for spread in SPREADS:
                points = []
                for x, share in enumerate(SHARES):
                    row = rows.get((kind, spread, share, side)) or rows.get((kind, None, share, side))
                    if row and value in row:
                        points.append((x, row[value] * factor))
                if points:
                    yield kind, spread, side, points


def scale_of(values, is_log):
    """Returns the ticks of an axis for these values, and the function from a value to 0 (bottom) to 1 (top)."""
    high = max(values, default=0) or 1
    if is_log:
        low = math.floor(math.log10(min((v for v in values if v > 0), default=high)))
        top = max(math.ceil(math.log10(high)), low + 1)
        return [10.0 ** e for e in range(low, top + 1)], lambda v: (math.log10(max(v, 10.0 ** low)) - low) / (top - low)
    step = 10.0 ** math.floor(math.log10(high / 2))
    step *= next(m for m in (1, 2, 5, 10) if step * m * 5 >= high)
    top = math.ceil(high / step - 1e-9)
    return [step * i for i in range(top + 1)], lambda v: v / (step * top)


def text(x, y, words, more=''):
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{escape(words)}</text>'


def draw_chart(left, top, chart, rows):
    value, title, unit, factor, is_log = chart
    lines = list(lines_of(rows, value, factor))
    ticks, place = scale_of([v for *_, points in lines for _, v in points], is_log)
    out = [text(left, top - 12, f'{title}, {unit}' + (' (logarithmic)' if is_log else ''), 'font-weight="bold"')]

    def x_of(number):
        return left + 20 + number * (WIDTH - 40) / (len(SHARES) - 1)

    def y_of(v):
        return top + HEIGHT * (1 - place(v))

    for tick in ticks:
        out.append(f'<path d="M{left},{y_of(tick):.1f} h{WIDTH}" stroke="#ddd"/>')
        out.append(text(left - 8, y_of(tick) + 4, f'{tick:g}', 'text-anchor="end"'))
    for number, share in enumerate(SHARES):
        out.append(text(x_of(number), top + HEIGHT + 18, {'none': '0'}.get(share, share.replace('_', '/')),
                        'text-anchor="middle"'))
    out.append(text(left + WIDTH / 2, top + HEIGHT + 38, 'share of the slices that lie in the reflection', 'text-anchor="middle"'))
    out.append(f'<path d="M{left},{top} v{HEIGHT} h{WIDTH}" fill="none" stroke="#444"/>')
    for kind, spread, side, points in lines:
        places = [(x_of(number), y_of(v)) for number, v in points]
        way = ' '.join(f'{x:.1f},{y:.1f}' for x, y in places)
        out.append(f'<g stroke="{COLORS[side]}" fill="{COLORS[side]}"><title>{kind}, {side}, {spread}</title><polyline '
                   f'points="{way}" fill="none" stroke-width="2" stroke-dasharray="{SPREADS[spread][1]}"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
        out.append('</g>')
    return out


def draw_legend(top, rows):
    """A line of the sides, and one of the spreads."""
    kinds = ', '.join(sorted({key[0] for key in rows}))
    words = {'fast': f'fast ({kinds})', 'spatial': f'spatial ({kinds})', 'plain': 'plain mmap() and munmap()'}
    out = []
    for line, entries in enumerate([[(words[side], color, '') for side, color in COLORS.items()],
                                    [(name, '#000', dash) for name, dash in SPREADS.values()]]):
        for number, (name, color, dash) in enumerate(entries):
            x, y = LEFT + number * 290, top + line * 22
            out.append(f'<path d="M{x},{y - 4} h30" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
            out.append(text(x + 36, y, name))
    return out


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    context, rows = read_medians(arguments[0])
    if not rows:
        fail(f'{arguments[0]} has no row')
    width, height = LEFT + 2 * WIDTH + GAP_X + 30, TOP + 2 * (HEIGHT + GAP_Y) + LEGEND
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
           '<rect width="100%" height="100%" fill="#fff"/>',
           text(LEFT, 26, f'Unmapping a file of {context.get("file_mib")} MiB, and going on with it', 'font-size="17"'),
           text(LEFT, 44, f'{context.get("cpu")}, {context.get("medium")}, libato {context.get("libato")}', 'fill="#555"')]
    for number, chart in enumerate(CHARTS):
        out += draw_chart(LEFT + number % 2 * (WIDTH + GAP_X), TOP + 10 + number // 2 * (HEIGHT + GAP_Y), chart, rows)
    out += draw_legend(height - 36, rows) + ['</svg>']
    try:
        with open(arguments[1], 'w', encoding='utf-8') as file:
            file.write('\n'.join(out) + '\n')
    except OSError as why:
        fail(f'cannot write {arguments[1]}: {why.strerror}')
    return 0


sys.exit(main(sys.argv[1:]))
