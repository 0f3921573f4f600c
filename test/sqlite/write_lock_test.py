#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who has a database's write lock, and who waits: do `ato info`, `ato top` and PRAGMA ato_stat tell?

    write_lock_test.py EXTENSION ATO
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SAMPLE = re.compile(r'(ato_\w+)\{file="((?:[^"\\\n]|\\[\\"n])*)"(?:,(?:slot|door)="\d+"(?:,pid="(\d+)",command="[^"]*")?)?\} (\S+)')


class Shell:
    """SQLite's shell with a database of the VFS `ato`."""

    def __init__(self, path):
        self.process = subprocess.Popen(['stdbuf', '-oL', 'sqlite3', '-batch'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.say(f'.load {EXTENSION}', f".open 'file:{path}?vfs=ato'", '.timeout 60000')

    def say(self, *lines):
        self.process.stdin.write(''.join(line + '\n' for line in lines))
        self.process.stdin.flush()

    def ask(self, *lines):
        """Returns the last line that these print."""
        self.say(*lines, '.print end')
        said = ''
        for line in iter(self.process.stdout.readline, ''):
            if line == 'end\n':
                return said
            said = line
        raise AssertionError(self.process.stderr.read())

    def end(self):
        self.process.kill()
        self.process.communicate()


class WriteLock(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='ato-test-', dir='/dev/shm')
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = self.dir + '/base'

    def shell(self):
        shell = Shell(self.path)
        self.addCleanup(shell.end)
        return shell

    def ato(self, *words, status=0):
        done = subprocess.run([ATO, *words], capture_output=True, text=True, check=False, encoding='utf-8', errors='surrogateescape')
        self.assertEqual(done.returncode, status, done)
        return done.stdout + done.stderr

    def lock(self):
        return json.loads(self.ato('info', '--json', self.path))['files'][0]['write_lock']

    def wait_for(self, holder, waiter):
        """Waits until these processes have the lock, and wait for it."""
        while True:
            lock = self.lock()
            processes = lock['processes'] if lock else []
            found = [[p['pid'] for p in processes if is_so(p)] for is_so in (lambda p: p['held_ms'] is not None, lambda p: p['waiting'])]
            if found == [[s.pid] if s else [] for s in (holder, waiter)]:
                return lock

    def contend(self):
        first, second = self.shell(), self.shell()
        first.ask('CREATE TABLE t(a);', 'BEGIN IMMEDIATE;')
        second.say('BEGIN IMMEDIATE;', 'INSERT INTO t VALUES(1);')
        self.wait_for(first, second)
        time.sleep(0.1)
        return first, second

    def test_tell_who_has_it_and_who_waits(self):
        first, second = self.contend()
        lock = self.wait_for(first, second)
        held, waited = ({p['pid']: p for p in lock['processes']}[shell.pid] for shell in (first, second))
        self.assertEqual((held['command'], held['waiting'], held['waited_ms']), ('sqlite3', 0, None))
        self.assertEqual((waited['waiting'], waited['waits'] > 0, waited['held_ms']), (1, True, None))
        self.assertGreaterEqual(min(held['held_ms'], waited['waited_ms']), 90)
        for text in self.ato('info', self.path), self.ato('top', '--count', '1', '--every', '1', self.path):
            self.assertRegex(text, rf'pid {first.pid} \(sqlite3\).* has it for \d+\.\d+ s\n')
            self.assertRegex(text, rf'pid {second.pid} \(sqlite3\).* waits for \d+\.\d+ s\n')
        told = json.loads(first.ask('PRAGMA ato_stat;'))['write_lock']
        self.assertEqual((told['holder'], told['waiting'], told['holds']), (first.pid, 1, lock['holds']))
        self.assertGreaterEqual(told['held_ms'], 90)
        first.ask('COMMIT;')
        lock = self.wait_for(second, None)
        self.assertGreaterEqual(min(lock['longest_hold_ms'], lock['longest_wait_ms']), 90)
        second.ask('COMMIT;')
        told = json.loads(second.ask('PRAGMA ato_stat;'))['write_lock']
        self.assertEqual((told['holder'], told['waiting'], told['holds'] >= 2), (None, 0, True))
        self.assertGreaterEqual(min(told['longest_hold_ms'], told['longest_wait_ms']), 90)

    def test_a_dead_process_has_nothing(self):
        first, second = self.contend()
        os.kill(second.pid, 19)  # so that it frees nothing
        first.end()
        self.wait_for(None, second)
        os.kill(second.pid, 18)
        self.wait_for(second, None)

    def test_nothing_is_known_of_what_is_not_shared(self):
        subprocess.run(['sqlite3', self.path, 'CREATE TABLE t(a)'], check=True)
        self.assertIsNone(self.lock())
        self.assertNotIn('write lock', self.ato('info', self.path))

    def test_metrics_are_what_prometheus_reads(self):
        names = [self.dir + name for name in ('/a "b\\\n', '/b', '/\udcff')]
        for name in names:
            with open(name, 'wb'):
                pass
        self.path = names[1]
        shell = self.shell()
        shell.ask('CREATE TABLE t(a);', 'BEGIN IMMEDIATE;')
        text = self.ato('top', '--metrics', *names)
        samples = {}
        for line in text.rstrip('\n').split('\n'):
            if not line.startswith('#'):
                name, file, pid, value = SAMPLE.fullmatch(line).groups()
                self.assertEqual(samples.setdefault(name, {}).get((file, pid)), None, line)
                samples[name][file, pid] = float(value)
        files = [name.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n').replace('\udcff', '\ufffd') for name in names]
        self.assertEqual(sorted(file for file, _ in samples['ato_file_bytes']), sorted(files))
        self.assertGreater(samples['ato_write_lock_held_seconds'][names[1], str(shell.pid)], 0)
        self.assertIn((names[1], None), samples['ato_write_lock_holds_total'])
        self.assertGreater(samples['ato_bytes_to_media_total'][names[1], str(shell.pid)], 0)
        heads = re.findall(r'^# (HELP|TYPE) (\w+)', text, re.M)
        self.assertEqual(len(heads), len(set(heads)))
        self.assertEqual({name for _, name in heads} >= set(samples), True)
        self.assertIn('no other option', self.ato('top', '--metrics', '--json', self.path, status=64))
        self.assertIn('No such file', self.ato('top', '--metrics', self.path, self.dir + '/none', status=2))


if __name__ == '__main__':
    EXTENSION, ATO = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
