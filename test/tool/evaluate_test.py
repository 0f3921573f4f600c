#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Does the report of the evaluation say what the results say, also where something is missing?

import contextlib
import html.parser
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../benchmarks'))
sys.dont_write_bytecode = True

BENCHMARKS = sys.path[0]
from report import contents, document, figures, losses, machine, papers, plan, results

FLOOR, ATO, HYBRID, PMEMOBJ, MSYNC = 'durable, not atomic', *['atomic and durable'] * 3, 'durable, not atomic'
HEAD = 'suite,engine,guarantee,workload,size,threads,metric,value,spread,ratio_to_floor\n'


def lines(engines, suite='random', workload='0/100', size=1024, threads=1, metric='MB/s'):
    """CSV as the programs write it, of {engine: (guarantee, value, spread)}; the first is the floor."""
    floor = next(iter(engines.values()))[1]
    return [f'{suite},{engine},"{guarantee}","{workload}",{size},{threads},{metric},{value},{spread},{value / floor:.5g}\n'
            for engine, (guarantee, value, spread) in engines.items()]


def rows(*groups, charge='', domain='pmem'):
    return results.read([HEAD, *[line for group in groups for line in group]], domain=domain, medium='tmpfs', charge=charge)


USUAL = {'floor': (FLOOR, 1000, 10), 'ato': (ATO, 900, 9), 'hybrid-log': (HYBRID, 300, 3), 'pmemobj': (PMEMOBJ, 200, 2),
         'msync': (MSYNC, 2000, 20)}
ABOUT = {'date': '1 May 2026', 'full': False, 'machine': [('CPU', 'one')], 'media': [('pmem', 'tmpfs')], 'notes': [], 'failed': [],
         'suites': {'random': 'at random'}, 'engines': {'ato': 'libato'}}


def but(engine, guarantee, value, spread=0):
    return {**USUAL, engine: (guarantee, value, spread)}


class Results(unittest.TestCase):
    def test_rows_get_what_the_program_does_not_write(self):
        row = rows(lines(USUAL))[1]
        self.assertEqual((row.engine, row.value, row.ratio_to_floor, row.size, row.domain), ('ato', 900, 0.9, 1024, 'pmem'))

    def test_a_torn_line_is_named(self):
        with self.assertRaisesRegex(results.Unreadable, 'line 3.*random,ato'):
            results.read([HEAD, lines(USUAL)[0], 'random,ato,atomic'], domain='pmem', medium='', charge='')

    def test_a_file_is_read_as_it_was_written(self):
        before = rows(lines(USUAL), charge='20,100')
        with tempfile.TemporaryDirectory() as folder:
            results.write(folder + '/results.csv', before)
            with open(folder + '/results.csv', encoding='utf-8') as file:
                self.assertEqual(results.read(file), before)

    def test_a_time_is_better_if_it_is_less(self):
        ours, rival = rows(lines({'floor': (FLOOR, 100, 0), 'ato': (ATO, 250, 0)}, metric='mean ns'))
        self.assertEqual(results.advantage(ours, rival), 2.5)

    def test_drift_of_the_machine_is_not_in_what_is_compared(self):
        ours, rival = (row._replace(ratio_to_floor=ratio) for row, ratio in zip(rows(lines(USUAL))[1:3], (0.8, 0.4)))
        self.assertEqual(results.advantage(ours, rival), 2)

    def test_ratio_and_spread_are_shown(self):
        row = rows(lines(but('ato', ATO, 500, 50)))[1]
        self.assertEqual(contents.value_of(row), '0.50 ±10 %')

    def test_guarantees_of_domains_are_compared_by_what_they_promise(self):
        def equal(guarantee, ours, **more):
            row, other = (results.Row(**{**dict.fromkeys(results.COLUMNS), 'suite': 'sync', 'threads': 1, 'guarantee': name, **more})
                          for name in (guarantee, ours))
            return results.is_equal(row, other)

        self.assertTrue(equal('atomic, survives a kill', 'atomic, survives a kill'))
        self.assertFalse(equal('survives a kill, each page atomic', 'atomic, survives a kill'))
        self.assertFalse(equal('atomic, survives a kill', 'atomic and durable'))
        together = 'atomic for all threads together, and durable'
        self.assertTrue(equal(together, 'atomic and durable'))
        self.assertFalse(equal(together, 'atomic and durable', threads=2))
        self.assertTrue(equal(together, 'atomic and durable', threads=2, suite='tpcc'))

    def test_an_unknown_guarantee_is_an_error(self):
        with self.assertRaisesRegex(results.Unreadable, 'unknown guarantee: as good as any'):
            rows(lines({'floor': ('as good as any', 1, 0)}))


class Losses(unittest.TestCase):
    def test_a_cell_that_is_lost_is_listed_with_how_much(self):
        loss, = losses.find(rows(lines(USUAL), lines(but('pmemobj', PMEMOBJ, 1800), size=64)))
        self.assertEqual((loss.rival.engine, loss.cell.size, loss.behind, loss.is_close), ('pmemobj', 64, 2, False))
        self.assertIn(('64 B'), ' '.join(contents.loss_rows([loss])[0]))

    def test_a_loss_without_a_known_reason_says_so(self):
        loss, = losses.find(rows(lines(but('pmemobj', PMEMOBJ, 1800), suite='nothing known')))
        self.assertEqual(loss.why, losses.UNEXPLAINED)

    def test_a_reason_is_given_only_for_as_much_as_it_explains(self):
        slow, slower = (losses.find(rows(lines(but('pmemobj', PMEMOBJ, value), workload='100/0')))[0] for value in (1800, 9000))
        self.assertIn('A read of libato', slow.why)
        self.assertEqual(slower.why, losses.UNEXPLAINED)

    def test_where_nothing_was_written_nothing_is_brought_home(self):
        none, pages = (losses.find(rows(lines(but('pmemobj', PMEMOBJ, 900 / 2), suite='unmap', workload=work, metric='read ms')))[0]
                       for work in ('none', 'all pages'))
        self.assertIn('Nothing was written', none.why)
        self.assertIn('brings them home', pages.why)

    def test_who_writes_less_than_it_was_told_was_not_counted(self):
        few = {'floor': (FLOOR, 1, 0), 'ato': (ATO, 1.02, 0), 'fallback-pmemobj': (ATO, 0.01, 0), 'replica': (ATO, 1.01, 0)}
        loss, = losses.find(rows(lines(few, suite='amplification', size=65536, metric='media bytes/byte')))
        self.assertEqual(loss.rival.engine, 'replica')

    def test_a_weaker_guarantee_wins_nothing(self):
        self.assertEqual(losses.find(rows(lines(USUAL))), [])

    def test_a_loss_within_the_spread_is_marked(self):
        loss, = losses.find(rows(lines(but('pmemobj', PMEMOBJ, 905, 9))))
        self.assertIn('within the spread', contents.loss_rows([loss])[0][5])

    def test_a_policy_of_ours_is_no_rival(self):
        self.assertEqual(losses.find(rows(lines(but('ato-gather', ATO, 1800)))), [])

    def test_sqlite_on_its_own_files_is_compared_by_itself(self):
        engines = {**USUAL, 'wal': (ATO, 500, 0), 'ato-vfs': (ATO, 400, 0)}
        loss, = losses.find(rows(lines(engines, suite='tpcc', workload='TPC-C', metric='transactions/s')))
        self.assertEqual((loss.ours.engine, loss.rival.engine), ('ato-vfs', 'wal'))

    def test_a_rate_and_its_time_are_one_loss(self):
        slow = {'floor': (FLOOR, 1, 0), 'ato': (ATO, 2, 0), 'pmemobj': (PMEMOBJ, 1, 0)}
        self.assertEqual(len(losses.find(rows(lines(but('pmemobj', PMEMOBJ, 1800)), lines(slow, metric='ns')))), 1)

    def test_charged_cells_are_apart(self):
        both = rows(lines(USUAL)) + rows(lines(but('pmemobj', PMEMOBJ, 1800)), charge='20,100')
        loss, = losses.find(both)
        self.assertEqual(loss.cell.charge, '20,100')


class Beside(unittest.TestCase):
    def test_each_rival_has_its_ratio_and_a_weaker_one_is_in_brackets(self):
        rivals, (line,) = contents.beside_each(rows(lines(USUAL)))
        self.assertEqual(rivals, ['floor', 'hybrid-log', 'pmemobj', 'msync'])
        self.assertEqual(line, ['pmem', 'random, MB/s', '0/100, 1 KiB', '(0.90)', '3.00', '4.50', '(0.45)'])


class Aims(unittest.TestCase):
    def reached(self, found):
        return [reached for _, _, reached in contents.aims(found)]

    def test_what_is_measured_is_judged(self):
        self.assertEqual(self.reached(rows(lines(USUAL))), ['yes', 'yes', 'yes', 'not measured'])
        self.assertEqual(self.reached(rows(lines(but('hybrid-log', HYBRID, 301)))), ['no', 'yes', 'yes', 'not measured'])

    def test_a_missing_engine_is_not_measured(self):
        engines = {name: USUAL[name] for name in ('floor', 'ato')}
        self.assertEqual(self.reached(rows(lines(engines))), ['not measured'] * 4)

    def test_a_cell_that_only_reads_does_not_count_among_those_that_write(self):
        found = rows(lines(USUAL), lines(but('pmemobj', PMEMOBJ, 1800), workload='100/0'))
        self.assertEqual(contents.aims(found)[2][1:], ('1 of 1 cells', 'yes'))

    def test_one_cell_that_is_lost_is_enough(self):
        found = rows(lines(USUAL), lines(but('pmemobj', PMEMOBJ, 1800), size=64))
        self.assertEqual(contents.aims(found)[2][1:], ('1 of 2 cells', 'no'))


class Papers(unittest.TestCase):
    def row(self, found, what):
        return next(row for row in papers.rows(papers.Table(found)) if row[2].startswith(what))

    def test_a_number_is_beside_that_of_the_paper(self):
        row = self.row(rows(lines(USUAL)), 'random writes of 1 KiB, each')
        self.assertEqual(row[3:5], ('3.66 ×', '3.33 ×'))
        self.assertIn('No slower', row[5])

    def test_without_an_engine_nothing_is_said(self):
        self.assertEqual(self.row(rows(lines(USUAL)), 'random writes of 1 KiB, throughput beside NOVA')[4:], ('not measured', 'The cell was left out of this run.'))

    def test_the_sentence_follows_from_the_numbers(self):
        claim = papers.CLAIMS[0]._replace(paper=4)
        self.assertEqual(papers.compared(claim, 4.1), 'As in the paper, within a quarter.')
        self.assertEqual(papers.compared(claim, 2), 'Ahead here too, by less than there.')
        self.assertEqual(papers.compared(claim, 0.5), 'Here it is the other way round: 2.00 × behind.')
        self.assertEqual(papers.compared(claim, 8), '2.00 times what the paper has.')
        self.assertEqual(papers.compared(claim, 1.01), 'Here they are the same, within 5 %.')
        redo = claim._replace(paper=None, says='redo is better')
        self.assertEqual(papers.compared(redo, 2), 'Redo is ahead here, as there.')
        self.assertEqual(papers.compared(redo, 0.5), 'Undo is ahead here, not as there.')
        self.assertEqual(papers.compared(claim._replace(paper=0.5), 2), 'Behind there, ahead here.')


class Standalone(html.parser.HTMLParser):
    """Names what a page would fetch, and whether its tags match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.fetched = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ('src', 'href', 'xlink:href', 'data') and not value.startswith('#')]
        self.fetched += [tag] if tag in ('script', 'link', 'iframe', 'img', 'object') else []
        if tag not in ('meta', 'br'):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ('meta', 'br'):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Report(unittest.TestCase):
    def page(self, found, **about):
        return contents.report({**ABOUT, **about}, found, {})

    def test_the_page_fetches_nothing(self):
        page = document.Document('a < b')
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + '/f.svg', 'w', encoding='utf-8') as file:
                file.write('<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x" "http://www.w3.org/x.dtd"><svg xmlns="http://www.w3.org/2000/svg">'
                           '<metadata><a href="http://x"/></metadata><use xlink:href="#m"/></svg>')
            page.figure(folder + '/f.svg', 'one & two')
            parser = Standalone(page.html())
        self.assertEqual((parser.fetched, parser.open), ([], []))
        parser = Standalone(self.page(rows(lines(USUAL))).html())
        self.assertEqual((parser.fetched, parser.open), ([], []))

    def test_an_engine_that_is_not_in_a_cell_leaves_it_empty(self):
        few = {name: USUAL[name] for name in ('floor', 'ato')}
        text = self.page(rows(lines(USUAL), lines(few, size=64))).markdown('.')
        self.assertIn('| 0/100, 64 B | 1.00 ±1 % | 0.90 ±1 % |  |  |  |', text)

    def test_a_weaker_guarantee_is_named_in_the_table(self):
        self.assertIn(f'msync ({MSYNC})', self.page(rows(lines(USUAL))).markdown('.'))

    def test_charged_rows_are_named(self):
        text = self.page(rows(lines(USUAL), charge='20,100')).markdown('.')
        self.assertEqual(text.count('20 ns added to each flushed line, 100 ns to each fence'), 3)  # on top, the heading, the table
        self.assertNotIn('added to each', self.page(rows(lines(USUAL))).markdown('.'))

    def test_values_that_are_unsure_are_counted(self):
        text = self.page(rows(lines(but('pmemobj', PMEMOBJ, 100, 30)))).markdown('.')
        self.assertIn('Of 5 values 1 have a spread of more than a quarter', text)

    def test_a_suite_has_one_chapter(self):
        found = [row for domain in ('pmem', 'disk') for suite in ('random', 'sync') for row in rows(lines(USUAL, suite=suite), domain=domain)]
        self.assertEqual(self.page(found).markdown('.').count('\n## random\n'), 1)

    def test_what_failed_comes_first(self):
        text = self.page(rows(lines(USUAL)), failed=['sync, domain pmem: it broke']).markdown('.')
        self.assertLess(text.index('it broke'), text.index('What was aimed at'))

    def test_the_short_form_is_short(self):
        many = [lines(but('pmemobj', PMEMOBJ, 1800), size=64 << i, threads=j) for i in range(10) for j in range(1, 9)]
        text = contents.short(ABOUT, rows(*many), {}).markdown('.')
        self.assertLess(len(text.splitlines()), 150)
        self.assertIn('80 cells', text)


class Figures(unittest.TestCase):
    def test_sizes_are_along_the_axis_with_a_panel_for_each_workload(self):
        plot = figures.plot_of(rows(*[lines(USUAL, size=size, workload=mix) for size in (64, 1024) for mix in ('0/100', '20/80')]))
        self.assertEqual([panel.title for panel in plot.panels], ['reads/writes 0/100', 'reads/writes 20/80'])
        self.assertEqual(plot.panels[0].ticks, {64: '64 B', 1024: '1 KiB'})
        self.assertEqual(plot.panels[0].lines['ato'], [(64, 0.9, 0.009), (1024, 0.9, 0.009)])

    def test_a_number_in_the_workload_is_along_the_axis(self):
        plot = figures.plot_of(rows(*[lines(USUAL, workload=words) for words in ('1 write a unit', '10 writes a unit', '100 writes a unit')]))
        self.assertEqual([(panel.title, list(panel.ticks)) for panel in plot.panels], [('N writes a unit', [1, 10, 100])])

    def test_percentiles_are_along_the_axis(self):
        plot = figures.plot_of(rows(*[lines(USUAL, metric=metric) for metric in ('p50 ns', 'p99 ns', 'p99.9 ns')]))
        self.assertEqual(list(plot.panels[0].ticks.values()), ['50', '99', '99.9'])

    def test_names_do_not_cover_one_another(self):
        places = figures.apart([10, 10, 11, 300], 10, 0, 300)
        self.assertTrue(all(b - a >= 9.99 for a, b in zip(places, places[1:])) and 0 <= places[0] and places[-1] <= 300, places)
        self.assertEqual(figures.apart([50, 50], 10, 0, 300), [45, 55])

    def test_a_figure_is_drawn_as_svg_and_png(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest('no matplotlib')
        with tempfile.TemporaryDirectory() as folder:
            drawn = contents.draw_figures(rows(lines(USUAL), lines(USUAL, size=64), charge='1,2'), folder)
            self.assertEqual(sorted(os.listdir(folder)), ['random-pmem-mb-per-s.png', 'random-pmem-mb-per-s.svg'])
            page = contents.report(ABOUT, rows(lines(USUAL), lines(USUAL, size=64), charge='1,2'), drawn).html()
        self.assertEqual(Standalone(page).fetched, [])
        self.assertIn('hybrid-log</text>', page.replace('\n', ''))


class Plan(unittest.TestCase):
    PARTS = [plan.Part('pmem', '/dev/shm', 'm', ''), plan.Part('disk', '/', 'm', 'lies in memory')]

    def test_a_part_that_is_left_out_runs_nothing(self):
        self.assertEqual([(part.domain, suite) for part, suite, _ in plan.runs(self.PARTS, ['random', 'sync'], [], False)],
                         [('pmem', 'random'), ('pmem', 'sync')])

    def test_only_what_is_asked_for_is_run(self):
        self.assertEqual([suite for _, suite, _ in plan.runs(self.PARTS, ['random', 'sync', 'new'], ['new'], False)], ['new'])

    def test_late_suites_get_less(self):
        self.assertEqual(plan.fitted(30, 60, 120), 30)
        self.assertAlmostEqual(plan.fitted(30, 60, 20 * plan.BESIDES), 10)
        self.assertEqual(plan.fitted(30, 60, -1), 0)

    def test_a_quick_run_fits_into_ten_minutes(self):
        planned = sum(sum(seconds) for seconds in plan.SECONDS.values()) * plan.BESIDES
        self.assertLess(planned, plan.ALL - plan.REST)
        self.assertLess(plan.ALL, 600)

    def test_the_machine_is_described_without_names(self):
        described = ' '.join(map(' '.join, machine.describe('/nowhere')))
        self.assertNotIn(os.uname().nodename, described)


class Run(unittest.TestCase):
    """A program in the place of evaluate_bench."""

    def measured(self, script, limit=60):
        loader = importlib.machinery.SourceFileLoader('evaluate', os.path.join(BENCHMARKS, 'evaluate'))
        evaluate = importlib.util.module_from_spec(importlib.util.spec_from_loader('evaluate', loader))
        loader.exec_module(evaluate)
        found = evaluate.Measured()
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(plan, 'limit', lambda _: limit):
            program = folder + '/program'
            with open(program, 'w', encoding='utf-8') as file:
                file.write('#!/bin/bash\nwhile [ "$1" != --csv ]; do shift; done\n' + script)
            os.chmod(program, 0o700)
            with contextlib.redirect_stderr(io.StringIO()):
                found.run(program, plan.Part('pmem', folder, 'm', ''), 'sync', 1, types.SimpleNamespace(full=False, charge='1,2'))
        return found

    def test_rows_get_their_domain_and_charge(self):
        row, = self.measured('echo "sync,ato,atomic and durable,1,64,1,MB/s,5,1,1" >"$2"').rows
        self.assertEqual((row.domain, row.medium, row.charge), ('pmem', 'm', '1,2'))

    def test_a_suite_without_rows_has_failed(self):
        self.assertEqual(self.measured('true').failed, ['sync, domain pmem: no row of results'])

    def test_a_suite_that_failed_is_told_with_its_last_words(self):
        found = self.measured('echo "[ 1 s] it broke" >&2; exit 1')
        self.assertEqual(found.failed, ['sync, domain pmem: it broke (status 1)'])

    def test_without_space_a_suite_is_left_out(self):
        found = self.measured('echo "no space" >&2; exit 77')
        self.assertEqual((found.failed, found.notes), ([], ['pmem, sync: left out: no space']))

    def test_what_was_measured_before_the_time_ran_out_is_kept(self):
        found = self.measured('echo "sync,ato,atomic and durable,1,64,1,MB/s,5,1,1" >"$2"; echo going on >&2; exec sleep 60 2>&-', limit=1)
        self.assertEqual((len(found.rows), found.failed), (1, []))
        self.assertIn('want of time', found.notes[0])

    def test_smaller_files_are_told(self):
        found = self.measured('echo "files of 4 MiB instead of 64" >&2; exit 77')
        self.assertEqual(found.notes[0], 'pmem, sync: files of 4 MiB instead of 64')


if __name__ == '__main__':
    unittest.main()
