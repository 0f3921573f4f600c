# SPDX-License-Identifier: BSD-3-Clause
"""A document of headings, paragraphs, lists, tables and figures, as one HTML page that stands alone and as Markdown.

Text may hold `code` and **strong** words. A figure is the path of an SVG.
"""
import os
import re
from html import escape

STYLE = '''
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { line-height: 1.25; margin: 2rem 0 .6rem }
h2 { border-bottom: 2px solid #ddd }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 14px; margin: .6rem 0 }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .7rem .25rem 0; text-align: left; vertical-align: top }
th { border-bottom: 2px solid #888 }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
figure { margin: 1.2rem 0; overflow-x: auto } figure svg { max-width: 100%; height: auto }
figcaption { color: #444; font-size: 14px }
code { background: #f3f3f3; padding: 0 .2em }
nav li { display: inline-block; margin-right: 1em }
'''
NUMBER = re.compile(r'[-+\d.,× %±–]+')


class Document:
    def __init__(self, title):
        self.title = title
        self.blocks = []

    def heading(self, words, level=2):
        self.blocks.append(('heading', words, level))

    def text(self, words):
        self.blocks.append(('text', words))

    def items(self, lines):
        self.blocks.append(('items', list(lines)))

    def table(self, head, rows):
        self.blocks.append(('table', head, [[str(field) for field in row] for row in rows]))

    def figure(self, path, caption):
        self.blocks.append(('figure', path, caption))

    def html(self):
        chapters = [block[1] for block in self.blocks if block[0] == 'heading' and block[2] == 2]
        out = ['<!DOCTYPE html>', '<html lang="en"><head><meta charset="utf-8">',
               '<meta name="viewport" content="width=device-width, initial-scale=1">',
               f'<title>{escape(self.title)}</title><style>{STYLE}</style></head><body>', f'<h1>{marked(self.title)}</h1>',
               '<nav><ul>', *[f'<li><a href="#{anchor(words)}">{marked(words)}</a></li>' for words in chapters], '</ul></nav>']
        for kind, *what in self.blocks:
            out += HTML[kind](*what)
        return '\n'.join(out + ['</body></html>']) + '\n'

    def markdown(self, folder):
        """For a file in `folder`, from which figures are named."""
        out = [f'# {self.title}', '']
        for kind, *what in self.blocks:
            if kind == 'heading':
                out += ['#' * what[1] + ' ' + what[0], '']
            elif kind == 'text':
                out += [what[0], '']
            elif kind == 'items':
                out += [f'- {line}' for line in what[0]] + ['']
            elif kind == 'table':
                head, rows = what
                out += [line_of(head), '|' + '---|' * len(head), *map(line_of, rows), '']
            else:
                path, caption = what
                out += [f'![{caption}]({os.path.relpath(path, folder)})', '']
        return '\n'.join(out).rstrip() + '\n'


def marked(words):
    """HTML of a text."""
    words = re.sub(r'`([^`]*)`', r'<code>\1</code>', escape(words, quote=False))
    return re.sub(r'\*\*([^*]*)\*\*', r'<strong>\1</strong>', words)


def anchor(words):
    return re.sub(r'\W+', '-', words.lower()).strip('-')


def line_of(fields):
    return '| ' + ' | '.join(field.replace('|', '\\|') for field in fields) + ' |'


def inline_svg(path):
    """An SVG as part of a page: without what only a file of its own needs."""
    with open(path, encoding='utf-8') as file:
        svg = file.read()
    svg = re.sub(r'<metadata>.*?</metadata>', '', svg, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', '<g', svg)  # the same in each figure, and named nowhere
    return svg[svg.index('<svg'):].rstrip()


def html_table(head, rows):
    def cell(field):
        return f'<td{" class=number" if NUMBER.fullmatch(field) else ""}>{marked(field)}</td>'

    return ['<div class="wide"><table><thead><tr>', *[f'<th>{marked(field)}</th>' for field in head], '</tr></thead><tbody>',
            *['<tr>' + ''.join(map(cell, row)) + '</tr>' for row in rows], '</tbody></table></div>']


HTML = {
    'heading': lambda words, level: [f'<h{level} id="{anchor(words)}">{marked(words)}</h{level}>'],
    'text': lambda words: [f'<p>{marked(words)}</p>'],
    'items': lambda lines: ['<ul>', *[f'<li>{marked(line)}</li>' for line in lines], '</ul>'],
    'table': html_table,
    'figure': lambda path, caption: [f'<figure>{inline_svg(path)}<figcaption>{marked(caption)}</figcaption></figure>'],
}
