#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills programs that know nothing of libato, and checks that the file is what one of their syncs left.

    kill.py [--rounds N] [--seed N] [--folder FOLDER] [--ato ATO | --control] [PROGRAM...]

With --ato they run under `ATO run`; with --control as they are, and then one of the kills has to tear the file. In each round the
program goes on with the file of the last one, and is killed at a random moment; in each fifth round while it starts. Then the file holds
the generation that was acknowledged last, or the one after it (generations.py). What looks is in turns the program's next start under
`ato run`, and the program as it is, at a copy that `ato run cp` made. In two of three rounds `ato run` is killed, too, as if the power failed.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Each driver: the longest time to a kill, in seconds; if it is in C++, what it is linked with.
PROGRAMS = {
    'numpy_memmap': (0.15, None),
    'lmdb_writemap': (0.15, None),
    'gdbm_sync': (0.15, None),
    'rrdtool_update': (0.15, None),
    'kyotocabinet_hash': (0.15, '-lkyotocabinet'),
    'boost_managed': (0.15, '-pthread'),
    'memcached_restart': (1.5, None),
}


class Wrong(Exception):
    pass


def command_of(program, folder):
    library = PROGRAMS[program][1]
    if not library:
        return ['/usr/bin/python3', str(HERE / f'{program}.py')]
    subprocess.run(['c++', '-std=c++17', '-O2', '-w', str(HERE / f'{program}.cc'), '-o', str(folder / program), library], check=True)
    return [str(folder / program)]


def members(group):
    """The processes of the group that have not ended, in the order of their numbers."""
    found = []
    for stat in Path('/proc').glob('[0-9]*/stat'):
        try:
            state, _, its_group = stat.read_text().rpartition(')')[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != 'Z':
            found.append(int(stat.parent.name))
    return sorted(found)


class Rounds:
    def __init__(self, options, command, longest, folder):
        self.random = random.Random(options.seed)
        self.command, self.longest = command, longest
        self.ato = options.ato
        self.path = folder / 'file'
        self.acknowledged = 0

    def under_ato(self):
        return [self.ato, 'run', '--path', str(self.path)] if self.ato else []

    def expect(self, found):
        if found not in (self.acknowledged, self.acknowledged + 1):
            raise Wrong(f'it holds generation {found}, and {self.acknowledged} was acknowledged')
        self.acknowledged = found

    def kill(self, process, with_ato):
        """All of it; or, if `ato run` is to make the file ordinary, the program only."""
        program = [pid for pid in members(process.pid) if pid != process.pid]
        if with_ato or not program:
            os.killpg(process.pid, signal.SIGKILL)
            return
        for pid in program:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def work(self, fresh, starting, with_ato):
        """Runs the program, and kills it. Its first line says what it found."""
        with subprocess.Popen([*self.under_ato(), *self.command, 'work', str(self.path)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, start_new_session=True, bufsize=0) as process:
            timer = threading.Timer(60, os.killpg, (process.pid, signal.SIGKILL))
            timer.start()
            lines = [process.stdout.readline() for _ in range(2 if fresh else 0 if starting else 1)]
            time.sleep(self.random.random() * (0.2 if starting else self.longest))
            self.kill(process, with_ato)
            rest, errors = process.communicate()
            timer.cancel()
        while members(process.pid):
            time.sleep(0.01)  # one may be in a call that waits for the disk
        if process.returncode not in (-signal.SIGKILL, 128 + signal.SIGKILL):
            raise Wrong(f'it ended by itself, {process.returncode}: {(b"".join(lines) + rest + errors).decode()[-300:].strip()}')
        numbers = [int(line) for line in (b''.join(lines) + rest).split(b'\n')[:-1]]
        if numbers:
            self.expect(numbers[0])
            self.acknowledged = numbers[-1]

    def look(self):
        """By the program as it is, at a copy."""
        copy = str(self.path.with_name('copy'))
        for command in [*self.under_ato(), 'cp', str(self.path), copy], [*self.command, 'check', copy]:
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
            except subprocess.TimeoutExpired:
                raise Wrong('the next one that opens it hangs') from None
            if done.returncode:
                raise Wrong(f'{command[-2]}: {(done.stdout + done.stderr)[-300:].strip()}')
        for path in self.path.parent.glob('copy*'):
            path.unlink()
        self.expect(int(done.stdout))

    def forget(self):
        self.acknowledged = 0
        for path in self.path.parent.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def run(options, program):
    """How many rounds were good, and how many were not."""
    good = bad = 0
    with tempfile.TemporaryDirectory(prefix='libato-run-', dir=options.folder) as top:
        os.mkdir(folder := Path(top) / 'files')
        rounds = Rounds(options, command_of(program, Path(top)), PROGRAMS[program][0], folder)
        fresh = True
        for number in range(options.rounds):
            try:
                rounds.work(fresh, number % 5 == 4, options.control or number % 3 > 0)
                if options.control or number % 2 or number == options.rounds - 1:
                    rounds.look()
                good, fresh = good + 1, False
            except Wrong as wrong:
                bad += 1
                print(f'{program}, kill {number + 1}: {wrong}', flush=True)
                if bad == (1 if options.control else 5):
                    break
                rounds.forget()
                fresh = True
    print(f'{program}: {good} kills left what a sync had left, the last one generation {rounds.acknowledged}; {bad} did not', flush=True)
    return good, bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--rounds', type=int, default=300)
    parser.add_argument('--seed', type=int, default=int(time.time()))
    parser.add_argument('--folder', default='/dev/shm')
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument('--ato')
    how.add_argument('--control', action='store_true')
    parser.add_argument('programs', nargs='*', metavar='PROGRAM', help=', '.join(PROGRAMS))
    options = parser.parse_args()
    passed = failed = 0
    for program in options.programs or PROGRAMS:
        good, bad = run(options, program)
        if options.control:
            good, bad = (1, 0) if bad else (0, 1)  # it has to tear
        passed, failed = passed + good, failed + bad
    print(f'seed {options.seed}\n{passed} passed, {failed} failed, 0 skipped')
    return failed != 0


if __name__ == '__main__':
    sys.exit(main())
