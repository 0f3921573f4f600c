#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""memcached -e: its memory is a mapped file, which a graceful stop (SIGUSR1) syncs. See generations.py.

It keeps what it needs besides in FILE.meta, which a start removes. Here a copy is put back: so memcached starts with what the
last graceful stop left, if the file is as it was then. It refuses a stop of the same second, so that the copy says two seconds less.
Both files name addresses, and no sync is of both: so that one of a stop fits the other of the stop before, all are the same (setarch).
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from generations import Torn, only, main

KEYS = 500


def keep_meta(path):
    """What memcached wrote at a graceful stop, if it is complete, is kept until the next one."""
    meta, new = Path(path + '.meta'), Path(path + '.new')
    if meta.exists() and 'mmap_oldbase' in (text := meta.read_text()):
        new.write_text(re.sub(r'stop_time (\d+)', lambda found: f'stop_time {int(found[1]) - 2}', text))
        os.rename(new, Path(path).with_name('kept'))
        os.unlink(meta)


def start(path):
    keep_meta(path)
    if (kept := Path(path).with_name('kept')).exists():
        shutil.copy(kept, path + '.meta')
    name = path + '.socket'
    server = subprocess.Popen(['setarch', '-R', 'memcached', '-u', 'root', '-s', name, '-m', '64', '-t', '2', '-e', path], stderr=subprocess.PIPE)
    for _ in range(2000):
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(name)
            return server, client.makefile('rwb')
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.002)
    raise Torn(f'it does not start: {server.wait()} {server.stderr.read().decode()[-200:]}')


def ask(client, command):
    client.write(command + b'\r\n')
    client.flush()
    return client.readline().rstrip()


def generation_of(client):
    values = []
    for i in range(KEYS):
        if ask(client, b'get key%d' % i) != b'END':
            values.append(int(client.readline().split()[0]))
            client.readline()
    return only(values, KEYS) if values else 0


def work(path):
    said = False
    while True:
        server, client = start(path)
        generation = generation_of(client) + 1
        if not said:
            yield generation - 1
        said = True
        for i in range(KEYS):
            value = b'%d ' % generation + b'x' * ((generation * 70 + i) % 3000)
            ask(client, b'set key%d 0 0 %d\r\n%s' % (i, len(value), value))
        server.send_signal(signal.SIGUSR1)
        if server.wait():
            raise SystemExit(f'it does not stop: {server.stderr.read().decode()[-300:]}')
        keep_meta(path)
        yield generation


def check(path):
    server, client = start(path)
    try:
        return generation_of(client)
    finally:
        server.kill()
        server.wait()


main(work, check)
