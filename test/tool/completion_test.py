#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do bash and zsh complete all commands and options of `ato`, and what the options and operands stand for?"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import lab
from lab import ATO, Lab

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tools/ato/completion')


def said(*words):
    return subprocess.run([ATO, *words], capture_output=True, text=True, check=True).stdout


COMMANDS = re.findall(r'^  ([a-z]+) ', said('--help').split('Commands:\n')[1].split('\n\n')[0], re.M)
FORMS = {c: said('help', c).splitlines()[0] for c in COMMANDS}


class Completion(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='ato-test-')
        self.addCleanup(shutil.rmtree, self.dir)
        for name in 'a file', 'b':
            open(os.path.join(self.dir, name), 'wb').close()
        os.mkdir(os.path.join(self.dir, 'folder'))

    def run_shell(self, *command):
        done = subprocess.run(command, cwd=self.dir, capture_output=True, text=True, check=True,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.stderr, '')
        return done.stdout.splitlines()

    def bash(self, *words):
        """What bash offers for the last word. As in bash, `=` is a word of its own."""
        split = [p for w in words for p in re.split('(=)', w) if p or w == '']
        return self.run_shell(
            'bash', '--norc', '-c', 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            '_ato; ((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"', '-',
            SCRIPTS + '/ato.bash', ATO, *split)

    def zsh(self, *words):
        """What the zsh function gives to _describe and _arguments."""
        return self.run_shell(
            'zsh', '-f', '-c', 'script=$1; shift; words=("$@"); CURRENT=$#; '
            '_describe() { print -rl -- ${(P)2}; }; _arguments() { print -rl -- "$@[2,-1]"; }; source $script',
            '-', SCRIPTS + '/_ato', ATO, *words)

    def need_zsh(self):
        if not shutil.which('zsh'):
            self.skipTest('there is no zsh here')

    def test_bash_offers_all_commands(self):
        self.assertEqual(self.bash(''), [*COMMANDS, 'help', '--help', '--version'])
        self.assertEqual(self.bash('help', ''), COMMANDS)
        self.assertEqual(self.bash('dep'), ['deploy'])
        self.assertEqual(self.bash('no such', ''), [])

    def test_bash_offers_all_options_of_each_command(self):
        for command, form in FORMS.items():
            offered = self.bash(command, '-')
            named = re.findall('--[a-z-]+', form)
            self.assertEqual(len(named), len(set(named)), form)
            self.assertEqual({o.split('=')[0] for o in offered},
                             {*named, '--help'}, command)
            for option in offered:
                self.assertNotIn('has no option', subprocess.run(
                    [ATO, command, option, *['1'] * 9], capture_output=True, text=True,
                    check=False).stderr if option != '--help' else '')

    def test_bash_offers_values_files_and_folders(self):
        self.assertEqual(self.bash('deploy', '--prefer='), ['file', 'reflection'])
        self.assertEqual(self.bash('deploy', '--prefer=r'), ['reflection'])
        self.assertEqual(self.bash('convert', '--to', ''), ['dense', 'sparse'])
        self.assertEqual(self.bash('convert', '--to', 's'), ['sparse'])
        self.assertEqual(self.bash('gc', '--delete=a'), ['all'])
        self.assertEqual(self.bash('gc', '--delete', ''), ['folder'])
        self.assertEqual(self.bash('top', '--every', ''), [])
        self.assertEqual(sorted(self.bash('info', '')), ['a file', 'b', 'folder'])
        self.assertEqual(self.bash('info', '--json', 'a'), ['a file'])
        self.assertEqual(self.bash('gc', ''), ['folder'])
        self.assertEqual(self.bash('sqlite', '--path', 'f'), ['folder'])
        self.assertIn('cat', self.bash('sqlite', 'ca'))
        self.assertEqual(self.bash('sqlite', 'cat', 'b'), ['b'])

    def test_zsh_offers_all_commands(self):
        self.need_zsh()
        found = dict(line.split(':', 1) for line in self.zsh(''))
        self.assertEqual(list(found), [*COMMANDS, 'help', '--help', '--version'])
        self.assertEqual(found['info'], 'state, sizes and processes of a file')
        self.assertEqual(found['sqlite'].split(' ')[0], said('--help').split('[ARG...]')[1].split()[0])

    def test_zsh_offers_all_options_of_each_command(self):
        self.need_zsh()
        for command, form in FORMS.items():
            specs = self.zsh(command, '')
            self.assertEqual({re.sub('[=:].*', '', s.lstrip('*')) for s in specs if '--' in s},
                             {*re.findall('--[a-z-]+', form), '--help'}, command)
        self.assertIn('--prefer=:file or reflection:(file reflection)', self.zsh('deploy', ''))
        self.assertIn('--delete=-::value:(all)', self.zsh('gc', ''))
        self.assertIn('*:operand:_files -/', self.zsh('gc', ''))
        self.assertIn('*:operand:_files', self.zsh('info', ''))
        self.assertIn('*--path=:PATH:_files', self.zsh('sqlite', ''))


if __name__ == '__main__':
    lab.main({n: k for n, k in globals().items() if k is not Lab})
