#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does the operator of the service in docs/examples/service see what docs/operating.md says, before and after a crash?

    service_test.py ATO FOLDER    FOLDER: that of the unit and its program

Without systemd: the commands of the unit are run by the test.
"""
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

ATO, FOLDER = (os.path.abspath(word) for word in sys.argv[1:])
STOCK = ('sqlite3', '-batch')


def free_port():
    with socket.socket() as one:
        one.bind(('localhost', 0))
        return str(one.getsockname()[1])


class Service(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.database = os.path.join(self.folder, 'notes.db')
        self.port = free_port()
        with open(os.path.join(FOLDER, 'ato-notes.service'), encoding='ascii') as file:
            unit = file.read()
        for old, new in (('/usr/bin/ato', ATO), ('/usr/local/lib/ato-notes', FOLDER), ('8080', self.port)):
            self.assertIn(old, unit)
            unit = unit.replace(old, new)
        self.unit = os.path.join(self.folder, 'ato-notes.service')
        with open(self.unit, 'w', encoding='ascii') as file:
            file.write(unit)
        self.commands = dict(re.findall('^(Exec[A-Za-z]+)=(.*)$', unit.replace('${STATE_DIRECTORY}', self.folder), re.M))

    def start(self):
        self.service = subprocess.Popen(self.commands['ExecStart'].split(), start_new_session=True)
        self.addCleanup(self.end, signal.SIGKILL)
        for _ in range(300):
            try:
                return self.http()
            except OSError:
                time.sleep(0.1)
        return self.fail('the service does not answer')

    def end(self, how):
        if self.service.poll() is None:
            os.killpg(self.service.pid, how)
        status = self.service.wait()
        try:
            while os.waitpid(-self.service.pid, 0):  # as systemd does: none of the unit's processes is left
                pass
        except ChildProcessError:
            return status

    def http(self, note=None):
        with urllib.request.urlopen(f'http://localhost:{self.port}', note and note.encode(), timeout=30) as answer:
            return answer.read().decode()

    def run_it(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def stock(self, path=None):
        return self.run_it(*STOCK, path or self.database, 'SELECT count(*) FROM notes')[1]

    def ato(self, command, *words):
        status, said = self.run_it(ATO, command, *words)
        self.assertEqual(status, 0, said)
        return said

    def state(self):
        return json.loads(self.ato('info', '--json', self.database))['files'][0]['state']

    def processes(self):
        return json.loads(self.ato('top', '--json', '--every', '100', self.database))['sights'][0]['processes']

    def test_is_what_the_page_says(self):
        self.start()
        self.http('one'), self.http('two')
        self.assertEqual(self.state(), 'in use')
        self.assertIn('in order', self.ato('check', self.database))
        self.assertIn('database is locked', self.stock())
        copy = os.path.join(self.folder, 'copy.db')
        self.ato('cp', self.database, copy)
        self.assertEqual(self.stock(copy), '2\n')
        process, = self.processes()
        self.assertEqual(process['mappings'], 1)

        # All is killed, in the midst of commits.
        said = []

        def add():
            try:
                while True:
                    said.append(self.http('more'))
            except OSError:
                pass

        writer = threading.Thread(target=add)
        writer.start()
        while len(said) < 20:
            time.sleep(0.01)
        self.end(signal.SIGKILL)
        writer.join()
        self.assertEqual(self.state(), 'recovery due')
        self.assertIn('note: recovery due', self.ato('check', self.database))
        self.assertIn('file is not a database', self.stock())
        self.assertEqual(self.processes(), [])

        # The next start finds all that was acknowledged; an ordinary end leaves an ordinary database.
        notes = self.start().splitlines()
        self.assertIn(len(notes), (2 + len(said), 3 + len(said)))
        self.assertEqual(self.end(signal.SIGTERM), 0)
        self.assertEqual((self.state(), self.stock()), ('plain', f'{len(notes)}\n'))

    def test_is_plain_after_the_unit_has_stopped(self):
        self.start()
        self.http('one'), self.http('two')
        self.end(signal.SIGKILL)
        self.assertEqual(self.run_it(*self.commands['ExecStopPost'].split()), (0, ''))
        self.assertEqual((self.state(), self.stock()), ('plain', '2\n'))
        self.start()  # and only reads: nobody has the file mapped
        self.assertEqual((self.state(), self.stock(), self.processes()), ('plain', '2\n', []))

    def test_has_a_unit_that_systemd_understands(self):
        if not shutil.which('systemd-analyze'):
            self.skipTest('there is no systemd-analyze')
        self.assertEqual(self.run_it('systemd-analyze', 'verify', self.unit), (0, ''))


if __name__ == '__main__':
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what a killed `ato sqlite` leaves are this process's children
    unittest.main(argv=sys.argv[:1])
