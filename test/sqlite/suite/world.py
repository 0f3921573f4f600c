# SPDX-License-Identifier: BSD-3-Clause
#
# Runs one script of SQLite's tests in a folder of its own, and returns its result. suite.py chooses the scripts;
# judge.py judges the results.

import dataclasses
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

NOBODY = 65534


@dataclasses.dataclass
class Script:
    """A script of SQLite's, or a test of one of its other programs."""
    name: str
    command: list  # words; {bin} and {tests} stand for the folders of the programs and the scripts
    limit: int     # seconds


@dataclasses.dataclass
class Result:
    errors: list = dataclasses.field(default_factory=list)  # names of failed tests
    tests: int = 0     # the number of tests made
    trouble: str = ''  # the reason if it did not come to its end
    crashed: bool = False
    late: bool = False # it did not end in time
    seconds: float = 0
    output: str = ''


SUMMARY = re.compile(r'^(?:Summary: )?(\d+) errors out of (\d+) tests', re.M)
NAMES = re.compile(r'^!Failures on these tests:(.*)$', re.M)
# A failed test prints this at once.
SAID = re.compile(r'^(?:! (\S+) (expected|got): *(.*)|(\S+)\.\.\.\s*\n(Error: .*))$', re.M)
LEFT = ((re.compile(r'^\d+ files were left open$', re.M), 'files-left-open'),
        (re.compile(r'^Unfreed memory: ', re.M), 'memory-not-freed'))


def parse(output, status, limit):
    """Returns the result of a script with this output and this exit status (None: it did not end in time)."""
    summaries = SUMMARY.findall(output)
    if status is None:
        trouble = f'took longer than {limit} s'
    elif status < 0:
        trouble = f'was killed by {signal.Signals(-status).name}'
    elif summaries:
        trouble = ''
    elif status == 0 and not output.strip():
        return Result() # it ended without a test
    else:
        trouble = f'ended with status {status} and without a summary'
    if trouble:
        return Result([test for test, value, _ in said(output) if value is not None],
                      trouble=f'{trouble}, after: {last_words(output)}',
                      crashed=status is not None and status < 0, late=status is None)
    failed, tests = map(int, summaries[-1])
    names = NAMES.findall(output)
    errors = names[-1].split() if names else []
    errors += ['nameless'] * (failed - len(errors))
    errors += [name for pattern, name in LEFT if pattern.search(output)]
    if status and not errors:
        return Result([], tests, f'ended with status {status}, having found nothing wrong')
    return Result(errors, tests)


def readable(line):
    return ''.join(c if c.isprintable() else '?' for c in line[:300])


# Tcl prints the reason, and then the place; clients of mptester print it between other lines.
WHY = re.compile(r'^(.*)\n    (?:while executing|invoked from within)$|^\d+\.\w+:(?:FATAL|ERROR): (.*)$', re.M)


def last_words(output):
    """Returns the reason if the script did not come to its end, or its last line."""
    why = WHY.search(output)
    return readable(why[1] or why[2] if why else (output.strip().splitlines() or ['nothing'])[-1])


def said(output):
    """Returns the output of failed tests: (name, result or None, the lines), ..."""
    for found in SAID.finditer(output):
        test, what, value, other, error = found.groups()
        yield test or other, None if what == 'expected' else value if test else error, found[0].splitlines()


def explain(output, error):
    """Returns the lines of the output about this error: expected, got."""
    return [readable(line) for test, _, lines in said(output) if test == error for line in lines]


def got(output, error):
    """Returns the result of the test of this name: `[...]`, or `Error: ...`."""
    values = [value for test, value, _ in said(output) if test == error and value is not None]
    return re.sub(r'\bfile\d+', 'file', values[0]) if values else ''


def remove(top):
    """Removes a folder with its content: scripts leave folders without write permission."""
    for folder, _, _ in os.walk(top):
        os.chmod(folder, 0o700)
    shutil.rmtree(top)


class World:
    """A folder in /dev/shm that the user of the scripts may read, with the programs, the scripts, and a folder for each
    running script; and the running processes."""

    def __init__(self, folder):
        self.as_root = os.geteuid() == 0
        self.running = set()
        self.objects = set(glob.glob('/dev/shm/ato-*'))
        self.top = tempfile.mkdtemp(prefix='suite-', dir='/dev/shm')
        os.chmod(self.top, 0o755)
        self.bin = os.path.join(self.top, 'bin')
        self.tests = os.path.join(self.top, 'source', 'test')
        shutil.copytree(os.path.join(folder, 'programs'), self.bin)
        shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'script.tcl'), self.top)
        for part in 'test', 'ext', 'mptest':
            shutil.copytree(os.path.join(folder, 'source', part), os.path.join(self.top, 'source', part))

    def run(self, script, words):
        """Runs the script in a folder of its own, with `words` and little else in its environment. Removes the files
        that it left, and kills the processes that it started."""
        place = tempfile.mkdtemp(prefix='run-', dir=self.top)
        for program in os.listdir(self.bin): # scripts look for the other programs in their working folder
            os.symlink(os.path.join(self.bin, program), os.path.join(place, program))
        user = {}
        if self.as_root:
            os.chown(place, NOBODY, NOBODY)
            user = {'user': NOBODY, 'group': NOBODY, 'extra_groups': []}
        environment = {'PATH': os.environ['PATH'], 'HOME': place, 'TMPDIR': place, 'LC_ALL': 'C.UTF-8', **words}
        command = [word.format(bin=self.bin, tests=self.tests) for word in script.command]
        begun = time.monotonic()
        with tempfile.TemporaryFile(dir=self.top) as output:
            child = subprocess.Popen(command, cwd=place, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **user)
            self.running.add(child.pid)
            try:
                status = child.wait(script.limit)
            except subprocess.TimeoutExpired:
                status = None
            self.kill(child.pid)
            child.wait()
            output.seek(0)
            text = output.read().decode(errors='replace')
        seconds = time.monotonic() - begun
        remove(place)
        result = parse(text, status, script.limit)
        result.seconds, result.output = round(seconds, 2), text
        return result

    def kill(self, group):
        """Kills the script and the processes that it started."""
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.running.discard(group)

    def stop(self):
        for group in list(self.running):
            self.kill(group)

    def end(self):
        """Returns the number of objects of shared memory that killed processes left, and whose files are gone."""
        self.stop()
        remove(self.top)
        return self.remove_objects()

    def remove_objects(self):
        mapped, removed = '', 0
        for maps in glob.glob('/proc/[0-9]*/maps'):
            try:
                with open(maps, encoding='utf-8', errors='replace') as lines:
                    mapped += lines.read()
            except OSError:
                pass # the process has ended, or belongs to another user
        owner = NOBODY if self.as_root else os.geteuid()
        for path in set(glob.glob('/dev/shm/ato-*')) - self.objects:
            try:
                if os.stat(path).st_uid == owner and path not in mapped:
                    os.unlink(path)
                    removed += 1
            except FileNotFoundError:
                pass # its last process has just ended
        return removed
