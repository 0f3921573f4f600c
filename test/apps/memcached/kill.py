#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills memcached -e FILE again and again, and checks what the next one finds.

    kill.py MEMCACHED ROUNDS [SEED]

One connection sets, appends to, increments and deletes keys in turn. The cache that comes back has to be as it was after one of
these steps: all keys, all values, all bytes. What was done up to LATE seconds before the kill may be missing. Meanwhile other
connections have sent values by half, or do not read the large ones they asked for, and the LRU crawler runs. Now and then all
keys are deleted: then no memory may be in use.
"""
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

INTERVAL = 0.05  # seconds between checkpoints
LATE = 1.0
KEYS = 400


class Wrong(Exception):
    pass


class Client:
    def __init__(self, path='socket'):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.file = self.socket.makefile('rb')

    def line(self):
        answer = self.file.readline()
        if not answer.endswith(b'\n'):
            raise ConnectionError
        return answer.rstrip()

    def ask(self, command):
        self.socket.sendall(command + b'\r\n')
        return self.line()

    def get(self, keys):
        """The keys that are there, and their values."""
        found = {}
        self.socket.sendall(b'get ' + b' '.join(keys) + b'\r\n')
        while (answer := self.line()) != b'END':
            _, key, _, size = answer.split()
            found[key] = self.file.read(int(size) + 2)[:-2]
        return found

    def lines(self, command):
        self.socket.sendall(command + b'\r\n')
        answers = []
        while (answer := self.line()) != b'END':
            answers.append(answer)
        return answers

    def stats(self, which=b''):
        return {name: int(value) for _, name, value in (line.split() for line in self.lines(b'stats ' + which)) if value.isdigit()}


class Server:
    def __init__(self, program):
        self.log = open('log', 'wb')
        self.process = subprocess.Popen(
            [program, '-u', 'root', '-s', 'socket', '-m', '128', '-t', '3', '-e', 'cache', '-I', '4m', '-v'],
            stdout=self.log, stderr=self.log, env=dict(os.environ, MEMCACHED_CHECKPOINT_MS=str(int(INTERVAL * 1000))))
        for _ in range(2000):
            try:
                Client().ask(b'version')
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.005)
        raise Wrong('it does not start: ' + self.text()[-500:])

    def text(self):
        with open('log', encoding='utf-8', errors='replace') as log:
            return log.read()

    def end(self, how):
        self.process.send_signal(how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Wrong('it does not end: ' + self.text()[-500:]) from None


def value(random_, step):
    """Different for each step, also in its last bytes."""
    size = random_.choice((10, 100, 100, 1000, 1000, 20000)) if random_.random() < 0.98 else random_.randrange(600000, 1500000)
    text = b'%d.' % step
    return text + bytes([33 + step % 90]) * (size - len(text)) + b'%d' % step


class Writer:
    """Its steps since the last kill, each with its time, and the state before them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.state, self.last = {}, {}
        self.steps = []
        self.number = 0

    def step(self, client):
        self.number += 1
        key = b'k%d' % self.random.randrange(KEYS)
        kind = self.random.random()
        now = self.last
        old = now.get(key)
        if kind < 0.2:
            command, new, answers = b'delete ' + key, None, (b'DELETED', b'NOT_FOUND')
        elif kind < 0.3 and old is not None and len(old) < 300000:
            more = b'+%02d' % (self.number % 100)
            command, new, answers = b'append %s 0 0 3\r\n%s' % (key, more), old + more, (b'STORED',)
        elif kind < 0.5:
            key = b'n'
            if key in now:
                new = b'%d' % (int(now[key]) + 1)
                command, answers = b'incr n 1', (new,)
            else:
                command, new, answers = b'set n 0 0 6\r\n100000', b'100000', (b'STORED',)
        else:
            new = value(self.random, self.number)
            command, answers = b'set %s %d 0 %d\r\n%s' % (key, self.number % 2, len(new), new), (b'STORED',)
        self.steps.append([key, new, None])
        answer = client.ask(command)
        if answer not in answers:
            raise Wrong(f'{command[:60]}: {answer}')
        self.steps[-1][2] = time.monotonic()
        apply(now, key, new)

    def begin(self):
        self.last = dict(self.state)
        self.steps = []

    def check(self, found, killed):
        """The cache is as it was after one of the steps. Returns how long before the kill the next one was made."""
        now = dict(self.state)
        different = {key for key in now.keys() | found.keys() if now.get(key) != found.get(key)}
        best = 0 if not different else None
        for at, (key, new, _) in enumerate(self.steps, 1):
            apply(now, key, new)
            if now.get(key) == found.get(key):
                different.discard(key)
            else:
                different.add(key)
            if not different:
                best = at
        if best is None:
            raise Wrong(f'the cache with {len(found)} keys is as it was at no moment')
        self.state = found
        missing = [when for _, _, when in self.steps[best:] if when]
        age = killed - missing[0] if missing else 0
        if age > LATE:
            raise Wrong(f'the cache is {age:.1f} s old')
        return age


def apply(state, key, new):
    if new is None:
        state.pop(key, None)
    else:
        state[key] = new


def disturb(random_):
    """Connections that hold items: values half sent, values not read, a crawl."""
    clients = []
    for _ in range(3):
        client = Client()
        size = random_.choice((1000, 100000, 2000000))
        client.socket.sendall(b'set half%d 0 0 %d\r\n' % (random_.randrange(9), size) + b'x' * (size // 2))
        clients.append(client)
    client = Client()
    client.socket.sendall(b'get ' + b' '.join(b'k%d' % random_.randrange(KEYS) for _ in range(20)) + b'\r\n')
    clients.append(client)
    clients.append(Client())
    clients[-1].socket.sendall(b'lru_crawler crawl all\r\n')
    return clients


def check_lists(client, wanted):
    """The LRU lists have all items. A crawl leaves out those that are in use: so it is repeated."""
    for _ in range(100):
        count = len(client.lines(b'lru_crawler metadump all'))
        if count == wanted:
            return
        time.sleep(0.05)
    raise Wrong(f'{wanted} keys, {count} in the LRU lists')


def work(program, writer, round_, acknowledged):
    """From a start to a kill. Returns how old the cache is that comes back, in seconds."""
    server = Server(program)
    writer.begin()
    killed = []

    def kill():
        killed.append(time.monotonic())
        server.process.send_signal(signal.SIGKILL)

    wait = writer.random.random() * 0.3
    timer = threading.Timer(wait if round_ % 10 else wait + 1.2 * LATE, kill)
    clients = []
    try:
        client = Client()
        clients = disturb(writer.random)
        timer.start()
        while True:
            writer.step(client)
    except OSError:
        if not killed:
            raise Wrong('it ended by itself: ' + server.text()[-500:]) from None
    finally:
        timer.cancel()
        server.end(signal.SIGKILL)
    acknowledged.append(sum(1 for step in writer.steps if step[2]))
    server = Server(program)
    try:
        client = Client()
        keys = [b'n'] + [b'k%d' % i for i in range(KEYS)]
        found = client.get(keys)
        age = writer.check(found, killed[0])
        if (count := client.stats()[b'curr_items']) != len(found):
            raise Wrong(f'{len(found)} keys, curr_items is {count}')
        if round_ % 4 == 0:
            check_lists(client, len(found))
        if writer.random.random() < 0.1:
            for key in found:
                client.ask(b'delete ' + key)
            used = {name: n for name, n in client.stats(b'slabs').items() if name.endswith(b':used_chunks') and n}
            if used:
                raise Wrong(f'all keys are deleted, but these are in use: {used}')
            writer.state = {}
            server.end(signal.SIGUSR1)
            if server.process.returncode:
                raise Wrong('a graceful exit fails: ' + server.text()[-500:])
    finally:
        server.end(signal.SIGKILL)
    return age


def main(program, rounds, seed=None):
    seed = int(seed) if seed else int(time.time())
    writer = Writer(seed)
    acknowledged, ages = [], []
    failed = done = 0
    for done in range(1, int(rounds) + 1):
        try:
            ages.append(work(program, writer, done, acknowledged))
        except (Wrong, OSError, ValueError) as wrong:  # the last two: an answer that is none
            print(f'round {done}: {wrong!r}', flush=True)
            failed += 1
            writer.state = {}
            if os.path.exists('cache'):
                os.unlink('cache')
            if failed == 5:
                print('stopped after 5 failed rounds')
                break
    print(f'seed {seed}, {sum(acknowledged)} acknowledged steps; the cache that came back was up to {max(ages, default=0):.2f} s old')
    print(f'{done - failed} passed, {failed} failed, {int(rounds) - done} skipped')
    return failed != 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
