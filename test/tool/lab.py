# SPDX-License-Identifier: BSD-3-Clause
"""Makes files in each state for the tests of `ato`, and runs their cases.

<a test> <ato> <actor> [unittest's options]

The actor (actor.cc) brings files into their states. Cases are named as GoogleTest names its own, and run in
memory and on a disk.
"""
import atexit
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ATO, ACTOR = (os.path.abspath(p) for p in sys.argv[1:3])
CUT = 77
NOBODY = 65534
SIZE = 20000
STATES = {'plain': 'plain', 'fast': 'clean', 'write': 'recovery due', 'commit': 'recovery due',
          'large': 'recovery due', 'birth': 'born', 'death': 'deployed', 'growth': 'recovery due',
          'spatial': 'plain', 'guard': 'clean', 'unguard': 'deployed'}


def checksum(data):
    h = 0x61746F2D73756D31
    for (w,) in struct.iter_unpack('<Q', data):
        h = ((h ^ w) * 0x9FB21C651E98DF25) & 0xFFFFFFFFFFFFFFFF
        h ^= h >> 29
    return h


def is_open_to_all(path):
    """May any user reach this file or folder?"""
    while path != '/':
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


def tool_for_all():
    """Copies the tool to a place where other users may run it: they may not reach the build folder."""
    if is_open_to_all(ATO):
        return ATO
    folder = tempfile.mkdtemp(prefix='ato-test-tool-', dir='/dev/shm')
    atexit.register(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    return shutil.copy(ATO, folder)


def folders():
    """The folders for files: in memory, and on a disk if all users may reach one."""
    yield '/dev/shm'
    for folder in os.getcwd(), '/var/tmp':
        kind = subprocess.run(['stat', '-f', '-c', '%T', folder], capture_output=True, text=True,
                              check=True)
        if kind.stdout.strip() != 'tmpfs' and is_open_to_all(folder):
            yield folder
            return


TOOL = tool_for_all()


def of_reflections(test):
    """Marks a case that is not there for files on a disk: they have a log."""
    test.of_reflections = True
    return test


class Lab(unittest.TestCase):
    below = '/dev/shm'
    media = True  # its cases depend on the medium
    has_log = False

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='ato-test-', dir=self.below)
        os.chmod(self.dir, 0o755)
        self.file = os.path.join(self.dir, 'file')
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('ATO_')}
        self.ids = set()  # of the pairings made by this case

    def tearDown(self):
        shutil.rmtree(self.dir)
        for name in self.shared():
            os.unlink('/dev/shm/' + name)

    def shared(self):
        """The shared memory of these pairings; other processes may have objects, too."""
        return {n for n in os.listdir('/dev/shm') if n.startswith('ato-') and n[4:36] in self.ids}

    def remember(self, path):
        """The id is at byte 32 of each copy of the manifest."""
        if os.path.exists(self.manifest(path)):
            self.ids.add(self.peek(self.manifest(path), 32, 16).hex())

    def make(self, state='plain', name='file', size=SIZE, **env):
        path = os.path.join(self.dir, name)
        with open(path, 'wb') as f:
            f.write((bytes(i * 7 & 255 for i in range(256)) * (size // 256 + 1))[:size])
        if state != 'plain':
            done = subprocess.run([ACTOR, state, path], env={**self.env, **env}, check=False,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            lives = state in ('fast', 'spatial', 'deployed', 'empty', 'guard')
            self.assertEqual(done.returncode, 0 if lives else CUT, done)
            self.remember(path)
        return path

    def restore(self, place, *, attributes):
        """Restores a backup of the file and its reflection in a folder of its own; returns the path of the file there."""
        path = os.path.join(self.dir, place, 'file')
        os.mkdir(os.path.dirname(path))
        if attributes:
            shutil.copy2(self.file, path)
            shutil.copytree(self.dir + '/.ato', os.path.dirname(path) + '/.ato')
        else:
            shutil.copyfile(self.file, path)
            os.utime(path, ns=(os.stat(self.file).st_mtime_ns,) * 2)
            shutil.copytree(self.dir + '/.ato', os.path.dirname(path) + '/.ato', copy_function=shutil.copyfile)
            if 'user.ato.named' in os.listxattr(os.path.dirname(path) + '/.ato'):
                os.removexattr(os.path.dirname(path) + '/.ato', 'user.ato.named')
        return path

    def hold(self, path, what='hold', **env):
        """Starts a process that has the file mapped until it is told to end."""
        actor = subprocess.Popen([ACTOR, what, path], env={**self.env, **env}, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ready = actor.stdout.readline()
        self.assertEqual(ready, b'ready\n', ready or actor.stderr.read())
        self.remember(path)

        def end():
            actor.stdin.close()
            actor.stdout.close()
            actor.stderr.close()
            self.assertEqual(actor.wait(), 0)
        self.addCleanup(lambda: actor.poll() is None and end())
        actor.end = end
        return actor

    def ato(self, *words, status=0, user=None, **env):
        done = subprocess.run([TOOL, *words], env={**self.env, **env}, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False, user=user)
        self.assertEqual(done.returncode, status, done)
        return done

    def out(self, *words, **more):
        return os.fsdecode(self.ato(*words, **more).stdout)

    def err(self, *words, **more):
        done = self.ato(*words, **more)
        self.assertEqual(done.stdout, b'')
        return os.fsdecode(done.stderr)

    def on_terminal(self, *words):
        """What the command shows of its progress on a terminal."""
        terminal, other = os.openpty()
        subprocess.run([TOOL, *words], stderr=other, stdout=subprocess.DEVNULL, env=self.env, check=True)
        os.close(other)
        shown = b''
        try:
            while piece := os.read(terminal, 1000):
                shown += piece
        except OSError:  # EIO: the terminal has ended
            pass
        os.close(terminal)
        return shown

    def json(self, command, *words, status=0, **more):
        found = json.loads(self.ato(command, '--json', *words, status=status, **more).stdout)
        self.assertEqual(found['command'], command)
        self.assertEqual(found['status'], status)
        return found

    def info(self, path, **more):
        return self.json('info', path, **more)['files'][0]

    def check(self, *paths, status, words=''):
        """Runs a check that changes nothing and has `words` in a finding; returns the findings."""
        before = self.snapshot()
        found = self.json('check', *paths, status=status)['findings']
        text = self.out('check', *paths, status=status)
        self.assertEqual(self.snapshot(), before)
        self.assertEqual(len(text.splitlines()), len(found) + 1, text)
        self.assertTrue(any(words in f['what'] for f in found) or not words, found)
        return found

    def snapshot(self):
        """Everything below the folder: bytes, times, modes and attributes."""
        found = {}
        for folder, _, names in os.walk(self.dir):
            for path in [folder, *(os.path.join(folder, n) for n in names)]:
                st = os.lstat(path)
                content = b''
                if stat.S_ISREG(st.st_mode):
                    with open(path, 'rb') as f:
                        content = f.read()
                found[path] = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino,
                               content)
        return found, self.shared()

    # ---- paths ----

    def reflection(self, path=None):
        return os.path.join(self.dir, '.ato', str(os.stat(path or self.file).st_ino))

    def left(self):
        """What is in the reflection folder, but the note."""
        names = sorted(os.listdir(self.dir + '/.ato'))
        names.remove('README')
        return names

    def manifest(self, path=None):
        return self.reflection(path) + '.manifest'

    @staticmethod
    def patch(path, at, data):
        with open(path, 'r+b') as f:
            f.seek(at)
            f.write(data)

    @staticmethod
    def peek(path, at, n):
        with open(path, 'rb') as f:
            f.seek(at)
            return f.read(n)

    def set_fields(self, path, at, data):
        """Changes the record in both copies of a manifest, with valid checksums."""
        for copy in 0, 4096:
            record = bytearray(self.peek(path, copy, 504))
            record[at:at + len(data)] = data
            self.patch(path, copy, bytes(record) + struct.pack('<Q', checksum(bytes(record))))


class Result(unittest.TextTestResult):
    """Prints a line for each case, as GoogleTest does."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def say(self, word, test, why=''):
        ms = int(1000 * (time.monotonic() - self.began))
        name = f'{type(test).__name__}.{test.id().rsplit(".", 1)[1]}'
        self.stream.write(f'{why}[ {word:>8} ] {name} ({ms} ms)\n')
        self.stream.flush()

    def addSuccess(self, test):
        self.say('OK', test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say('FAILED', test)

    def addError(self, test, err):
        super().addError(test, err)
        self.say('FAILED', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say('SKIPPED', test, reason + '\n')

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.say('FAILED', test, f'{subtest}\n')


class Runner(unittest.TextTestRunner):
    resultclass = Result


def main(names):
    """Runs the cases of the calling test; those of a Lab also on a disk, if there is one."""
    places = list(folders())
    for name, kind in list(names.items()):
        if isinstance(kind, type) and issubclass(kind, Lab) and kind.media and len(places) > 1:
            none = {n: None for n in dir(kind) if hasattr(getattr(kind, n), 'of_reflections')}
            names[name + 'OnDisk'] = type(name + 'OnDisk', (kind,), {'below': places[1], 'has_log': True, **none})
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]],
                  testRunner=Runner(stream=sys.stdout, verbosity=0))
