#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Do programs that do not use libato ever read wrong rows, lose a commit or find a broken database?

    beside_test.py EXTENSION ATO

Writers through the VFS `ato` (SQLite's shell with the extension) move money between accounts. They are killed, or they
close the database. Meanwhile stock SQLite (the shell, and Python) reads, writes, copies and checkpoints, and is killed
too. Each answer that stock SQLite gets is correct or a refusal: the sum of the accounts never changes, and each
writer's row is at least as new as the last commit acknowledged to that writer. While a writer has the database open,
each answer is a refusal; in WAL mode stock SQLite commits too. At the end `ato` or a close makes the file
plain, and stock SQLite reads it once more.

ATO_TEST_PERCENT=1000 takes ten times as long.
"""
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ACCOUNTS, EACH = 200, 1000
# The journal modes. delete: stock SQLite is kept out while a writer has the database open; wal: they share it.
MODES = ['delete', 'wal']
BUSY = 'database is locked', 'database table is locked'
REFUSED = 'file is not a database', *BUSY
NOT_COPIED = 'is locked by a program', 'is in WAL mode', 'PRAGMA wal_checkpoint', 'a program was killed that wrote'
SECONDS = 1.1 * int(os.environ.get('ATO_TEST_PERCENT', '100')) / 100  # for each mode on each medium
SEED = int(os.environ.get('ATO_TEST_SEED', time.time_ns() % 10**9))
STOCK_WRITER = 9


def transaction(dice, number, k):
    take, give = dice.sample(range(ACCOUNTS), 2)
    amount = dice.randrange(100)
    return ['BEGIN IMMEDIATE',
            f'UPDATE account SET n = n - {amount}, pad = randomblob({dice.randrange(700)}) WHERE id = {take}',
            f'UPDATE account SET n = n + {amount}, pad = randomblob({dice.randrange(700)}) WHERE id = {give}',
            f'UPDATE told SET k = {k} WHERE number = {number}', 'COMMIT']


def write_stock(path, seed):
    """Runs as a process of its own: commits through SQLite's own VFS as often as it can, and prints the number of each
    commit."""
    dice = random.Random(seed)
    k = 0
    while True:
        db = sqlite3.connect(path, isolation_level=None, timeout=5)
        try:
            k = db.execute(f'SELECT k FROM told WHERE number = {STOCK_WRITER}').fetchone()[0]
            db.execute('PRAGMA cache_size = 3')
            for _ in range(dice.randrange(1, 40)):
                begin, *rest = transaction(dice, STOCK_WRITER, k + 1)
                # Some transactions write most pages before the commit: if such a process is killed, it leaves a hot
                # journal.
                many = ['UPDATE account SET pad = randomblob(600)', 'UPDATE account SET n = n + 1',
                        'UPDATE account SET n = n - 1'] if dice.random() < 0.1 else []
                for statement in [begin, *many, *rest]:
                    db.execute(statement)
                k += 1
                print(k, flush=True)
                time.sleep(0.002)  # see feed()
        except sqlite3.Error as error:
            if str(error) not in REFUSED:
                sys.exit(f'a stock writer: {error}')
            time.sleep(0.005)
        db.close()


class Writer:
    """A writing process, and the number of its last acknowledged transaction."""

    def __init__(self, command, words, feed=None, known=0):
        self.told = self.known = known
        self.process = subprocess.Popen(command, env={**os.environ, **words}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        pipesize=4096)  # a small pipe, so that few transactions are queued when the
                                                        # writer has to end
        self.threads = [threading.Thread(target=self.hear)]
        if feed:
            self.threads.append(threading.Thread(target=self.feed, args=(feed,)))
        self.is_over = False
        for thread in self.threads:
            thread.start()

    def hear(self):
        for line in self.process.stdout:
            if line.strip().isdigit():  # skips the answers to PRAGMAs
                self.told = int(line)

    def feed(self, lines):
        try:
            for k, line in lines:
                if self.is_over:
                    break
                self.process.stdin.write(line)
                self.process.stdin.flush()
                while self.told < k and not self.is_over and self.process.poll() is None:
                    time.sleep(0.0005)
                time.sleep(0.002)  # a waiting process sleeps, and would never find the lock free
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # the process was killed

    def has_committed(self):
        return self.told > self.known

    def keeps_others_out(self):
        """Two commits, told as `known` + 2 and + 3: on a disk, the first of a process may go by SQLite's own VFS."""
        return self.told > self.known + 2

    def wait(self, seconds):
        """Waits for its first commit."""
        end = time.monotonic() + seconds
        while not self.has_committed() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)

    def end(self, by_kill):
        """Returns the process's error output."""
        self.is_over = True
        if by_kill:
            self.process.send_signal(signal.SIGKILL)
        said = self.process.stderr.read()
        self.process.wait()
        for thread in self.threads:
            thread.join()
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # not all input was written
        return said


class Bank:
    """A database, its writers, and the checks of its content."""

    def __init__(self, mode, folder, dice):
        self.mode, self.folder, self.dice = mode, folder, dice
        self.path, self.log = os.path.join(folder, 'bank.db'), os.path.join(folder, 'log')
        self.told = {}  # by writer: the last acknowledged transaction
        self.writers = {}
        self.copies = self.answers = self.refusals = self.kept_out = self.kills = self.mixtures = 0
        self.must_be_busy = False
        self.patience = 0.01 if mode == 'delete' else 0.2  # seconds that stock SQLite waits for a lock
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute(f'PRAGMA journal_mode = {mode}')
        db.execute('CREATE TABLE account(id INTEGER PRIMARY KEY, n INTEGER, pad BLOB)')
        db.execute('CREATE TABLE told(number INTEGER PRIMARY KEY, k INTEGER)')
        db.executemany('INSERT INTO account VALUES(?, ?, randomblob(300))', [(i, EACH) for i in range(ACCOUNTS)])
        db.executemany('INSERT INTO told VALUES(?, 0)', [(1,), (2,), (STOCK_WRITER,)])
        db.close()
        self.before = sqlite3.connect(self.path, isolation_level=None, timeout=self.patience)  # stays open
        self.look(self.before)

    def ato(self, number):
        dice = random.Random(self.dice.random())
        first = self.told.get(number, 0)

        def lines():
            yield 0, f'.bail on\n.load {EXTENSION}\n.open file:{self.path}?vfs=ato\n.timeout 20000\n'
            # If a transaction was interrupted in COMMIT, it may be committed or not: its number is not used again.
            for k in range(first + 2, first + 10**7):
                yield k, ';\n'.join(transaction(dice, number, k)) + f';\nSELECT {k};\n'

        words = {'ATO_LOG': self.log, 'ATO_READ_POLICY': dice.choice(['lazy', 'eager'])}
        return Writer(['stdbuf', '-oL', 'sqlite3', '-batch'], words, lines(), first)

    def start(self, number):
        if number == STOCK_WRITER:
            self.writers[number] = Writer([sys.executable, os.path.abspath(__file__), '--write', self.path, str(self.dice.random())],
                                       {}, known=self.told.get(number, 0))
        else:
            self.writers[number] = self.ato(number)

    def ours(self):
        return [writer for number, writer in self.writers.items() if number != STOCK_WRITER]

    def wait_for_stock(self):
        if STOCK_WRITER in self.writers:
            self.writers[STOCK_WRITER].wait(1)

    def stop(self, number, by_kill):
        writer = self.writers.pop(number)
        said = writer.end(by_kill or number == STOCK_WRITER)
        if said:
            with open(self.log, 'a+', encoding='utf-8', errors='replace') as log:
                log.seek(0)
                raise AssertionError(f'writer {number}: {said}\n{"".join(log.readlines()[-20:])}')
        self.kills += by_kill
        self.told[number] = writer.told

    def hear(self):
        return {**self.told, **{number: writer.told for number, writer in self.writers.items()}}

    def judge(self, rows, ok, at_least):
        total, told = rows[0], dict(rows[1])
        if total != ACCOUNTS * EACH or ok != 'ok' or any(told[number] < k for number, k in at_least.items()):
            raise AssertionError(f'the sum is {total}, not {ACCOUNTS * EACH}; {ok}; there is {told}, acknowledged was {at_least}')
        self.answer()

    def answer(self):
        if self.must_be_busy:
            raise AssertionError('an answer, although a writer has the database open')
        self.answers += 1

    def refuse(self, error):
        if not any(words in str(error) for words in (BUSY if self.must_be_busy else REFUSED)):
            raise AssertionError(f'neither an answer nor a refusal: {error}')
        self.refusals += 1
        self.kept_out += self.must_be_busy

    def look(self, db, at_least=None):
        """Reads through Python's connection `db`; returns False if SQLite refuses."""
        at_least = self.hear() if at_least is None else at_least
        try:
            db.execute('BEGIN')
            try:
                total = db.execute('SELECT sum(n) FROM account').fetchone()[0]
                told = db.execute('SELECT number, k FROM told').fetchall()
                ok = db.execute('PRAGMA integrity_check').fetchone()[0]
            finally:
                db.execute('ROLLBACK')
            self.judge((total, told), ok, at_least)
            return True
        except sqlite3.Error as error:
            self.refuse(error)
            return False

    def look_new(self, path=None, at_least=None):
        db = sqlite3.connect(path or self.path, isolation_level=None, timeout=self.patience)
        try:
            return self.look(db, at_least)
        finally:
            db.close()

    def shell(self, *commands):
        wait = f'.timeout {round(self.patience * 1000)}'
        return subprocess.run(['sqlite3', '-batch', self.path, wait, *commands], capture_output=True, text=True, check=False)

    def look_by_shell(self):
        at_least = self.hear()
        done = self.shell('BEGIN; SELECT sum(n) FROM account; SELECT number, k FROM told; PRAGMA integrity_check; ROLLBACK')
        if done.returncode:
            return self.refuse(done.stderr)
        total, *told, ok = done.stdout.split()
        return self.judge((int(total), [map(int, line.split('|')) for line in told]), ok, at_least)

    def copy(self, command):
        """.backup or VACUUM INTO: the copy is complete, or the command is refused."""
        copy = os.path.join(self.folder, 'copy.db')
        for ending in '', '-journal', '-wal', '-shm':
            if os.path.exists(copy + ending):
                os.remove(copy + ending)
        at_least = self.hear()
        done = self.shell(command.format(copy))
        if done.returncode or done.stderr:
            return self.refuse(done.stderr)
        self.answer()
        if not self.look_new(copy, at_least):
            raise AssertionError('the copy is refused')
        return None

    def copy_by_ato(self):
        """`ato cp`: the copy is complete whatever others do, or it is refused with a reason."""
        copy = os.path.join(self.folder, 'ato-copy.db')
        at_least = self.hear()
        done = subprocess.run([ATO, 'cp', '--quiet', self.path, copy], capture_output=True, text=True, check=False)
        if done.returncode:
            if done.returncode != 1 or not any(words in done.stderr for words in NOT_COPIED):
                raise AssertionError(f'ato cp: {done}')
            return
        busy, self.must_be_busy = self.must_be_busy, False
        if not self.look_new(copy, at_least):
            raise AssertionError('the copy by ato cp is refused')
        self.must_be_busy = busy
        self.copies += 1

    def change_by_shell(self, statement):
        done = self.shell(statement)
        if done.returncode:
            self.refuse(done.stderr)
        else:
            self.answer()

    def is_unmasked_a_mixture(self):
        """Would stock SQLite read a mixture of old and new pages if the header were not masked?"""
        # `cat` reads the file: if this process closed it, SQLite would lose its locks on it (fcntl(2)).
        content = bytearray(subprocess.run(['cat', self.path], capture_output=True, check=True).stdout)
        if content[21] != 255 - 64:
            return False
        line = subprocess.run([ATO, 'info', self.path], capture_output=True, text=True, check=True).stdout.split('\n')[0]
        if 'an SQLite database that only the VFS ato reads' not in line or f'ato deploy {self.path}' not in line:
            raise AssertionError(line)
        content[21], content[24] = 64, content[24] ^ 0x80
        path = os.path.join(self.folder, 'unmasked.db')
        with open(path, 'wb') as file:
            file.write(content)
        try:
            return not self.look_new(path)
        except AssertionError:
            return True

    def live(self):
        deeds = [lambda: self.look(self.before), self.look_new, self.look_by_shell, lambda: self.copy('.backup {}'),
                 lambda: self.copy("VACUUM INTO '{}'"), lambda: self.change_by_shell('PRAGMA wal_checkpoint(TRUNCATE)'),
                 lambda: self.change_by_shell('VACUUM'), self.copy_by_ato, self.copy_by_ato]
        self.start(1)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for number in 1, 2, STOCK_WRITER:
                if number not in self.writers and self.dice.random() < 0.7:
                    self.start(number)
            if self.dice.random() < 0.3 and (self.mode != 'delete' or not self.ours()):
                self.wait_for_stock()
            for _ in range(self.dice.randrange(5)):
                self.must_be_busy = self.mode == 'delete' and any(writer.keeps_others_out() for writer in self.ours())
                self.dice.choice(deeds)()
            self.must_be_busy = False
            for number in list(self.writers):
                if self.dice.random() < 0.5:
                    self.stop(number, self.dice.random() < 0.6)
            if not self.writers:
                self.mixtures += self.is_unmasked_a_mixture()
                self.look_new()
                if self.mode == 'delete' and self.dice.random() < 0.5:
                    self.make_plain()
                    self.start(STOCK_WRITER)
                    self.wait_for_stock()
        for number in list(self.writers):
            self.stop(number, True)
        self.mixtures += self.is_unmasked_a_mixture()

    def make_plain(self):
        if self.dice.random() < 0.5:
            subprocess.run([ATO, 'deploy', self.path], check=True, capture_output=True)
        else:
            done = subprocess.run(['sqlite3', '-batch', '-bail'], capture_output=True, text=True, check=False,
                                  input=f'.load {EXTENSION}\n.open file:{self.path}?vfs=ato\nSELECT count(*) FROM account;\n')
            if done.returncode or done.stderr:
                raise AssertionError(f'cannot be opened: {done.stderr}')

    def finish(self):
        self.make_plain()
        for look in lambda: self.look(self.before), self.look_new:
            if not look():
                raise AssertionError('refused, although the file is plain')
        self.before.close()
        copies = self.copies
        self.copy_by_ato()
        if self.copies == copies:
            raise AssertionError('no copy by ato cp, although nobody has the database open')


class Beside(unittest.TestCase):
    def try_mode(self, mode, parent, dice):
        folder = tempfile.mkdtemp(prefix='ato-test-', dir=parent)
        bank = Bank(mode, folder, dice)
        try:
            bank.live()
            bank.finish()
        finally:
            for writer in bank.writers.values():
                writer.end(True)
            bank.before.close()
        shutil.rmtree(folder)
        print(f'{parent}, {mode}: {bank.answers} answers, {bank.refusals} refusals, {bank.kept_out} of them while a writer had it '
              f'open, {bank.mixtures} mixtures below the mask, {bank.kills} kills, {bank.copies} by ato cp, commits {bank.told}', flush=True)
        self.assertGreater(bank.answers, 0)
        self.assertGreater(bank.told.get(1, 0) + bank.told.get(2, 0), 0)
        return bank

    def test_stock_programs_are_right_or_refused(self):
        dice = random.Random(SEED)
        banks = []
        for parent in '/dev/shm', os.environ.get('TMPDIR', '/tmp'):
            for mode in MODES:
                with self.subTest(mode=mode, folder=parent, ATO_TEST_SEED=SEED):
                    banks.append(self.try_mode(mode, parent, dice))
        # What has to be seen at least once; that depends on when the processes are killed.
        goals = [('delete', 'a copy by ato cp', lambda bank: bank.copies),
                 ('delete', 'a refusal while a writer has it open', lambda bank: bank.kept_out),
                 ('delete', 'a mixture below the mask', lambda bank: bank.mixtures),
                 *((mode, 'a commit of stock SQLite', lambda bank: bank.told.get(STOCK_WRITER)) for mode in MODES)]
        for mode, what, saw in goals:
            for _ in range(50):
                if not any(saw(bank) for bank in banks if bank.mode == mode):
                    banks.append(self.try_mode(mode, '/dev/shm', dice))
            self.assertTrue(any(saw(bank) for bank in banks if bank.mode == mode), f'{mode}: {what} was not seen')

    def test_ato_cp_does_not_believe_a_masked_header_in_the_file(self):
        folder = tempfile.mkdtemp(prefix='ato-test-', dir='/dev/shm')
        path, copy = os.path.join(folder, 'bank.db'), os.path.join(folder, 'copy.db')
        subprocess.run(['sqlite3', path, 'PRAGMA journal_mode = wal; CREATE TABLE t(a); INSERT INTO t VALUES(7)'], check=True, capture_output=True)
        is_copied = threading.Event()

        def lines():
            yield 0, f'.bail on\n.load {EXTENSION}\n.open file:{path}?vfs=ato\n'
            yield 1, 'PRAGMA journal_mode = delete;\nSELECT 1;\n'
            is_copied.wait(60)

        writer = Writer(['stdbuf', '-oL', 'sqlite3', '-batch'], {}, lines())
        try:
            writer.wait(30)
            with open(path, 'rb') as file:
                header = file.read(23)
            self.assertEqual(header[22], 33, 'masked, and WAL')
            subprocess.run([ATO, 'cp', '--quiet', path, copy], check=True)
            self.assertEqual(sqlite3.connect(copy).execute('SELECT a FROM t').fetchall(), [(7,)])
        finally:
            is_copied.set()
            self.assertEqual(writer.end(False), '')
        shutil.rmtree(folder)


if __name__ == '__main__':
    if sys.argv[1] == '--write':
        write_stock(*sys.argv[2:])
    if not shutil.which('sqlite3'):
        sys.exit(77)
    EXTENSION, ATO = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
