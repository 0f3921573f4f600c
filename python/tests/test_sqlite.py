# SPDX-License-Identifier: BSD-3-Clause
"""SQLite's VFS, and the command `ato`."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from typing import Any

import ato
import pytest
from conftest import content, has_extensions

SCRIPT = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
with db:
    db.execute('CREATE TABLE t AS SELECT 5 AS x')
print(db.execute('PRAGMA ato_stat').fetchone())
db.close()
"""


@pytest.mark.skipif(not has_extensions, reason='this Python loads no SQLite extensions')
def test_the_extension_is_the_vfs_ato(path: str) -> None:
    ato.load(sqlite3.connect(':memory:'))
    ato.load(sqlite3.connect(':memory:'))
    allowed = sqlite3.connect(':memory:')
    allowed.enable_load_extension(True)
    ato.load(allowed)
    allowed.load_extension(ato.loadable_path())  # as before
    db = sqlite3.connect(f'file:{path}?vfs=ato', uri=True)
    with db:
        db.execute('CREATE TABLE t AS SELECT 5 AS x')
    with pytest.raises(ZeroDivisionError), db:
        db.execute('UPDATE t SET x = 6')
        1 / 0
    assert db.execute('SELECT x FROM t').fetchall() == [(5,)]
    assert db.execute('PRAGMA ato_stat').fetchone()
    # One libato in the process: it knows that SQLite holds locks of the file, which a second descriptor would drop.
    with pytest.raises(ato.Error) as e:
        ato.map(path)
    assert e.value.errno == 16
    db.close()
    assert sqlite3.connect(path).execute('SELECT x FROM t').fetchall() == [(5,)]


def test_a_python_without_extensions_is_told() -> None:
    class Connection:
        pass

    with pytest.raises(RuntimeError, match='enable_load_extension'):
        ato.load(Connection())  # type: ignore[arg-type]
    assert os.path.isfile(ato.loadable_path())


def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, '-m', 'ato', *arguments], check=check, capture_output=True, text=True)


def test_a_script_runs_on_the_vfs(path: str) -> None:
    script = path + '.py'
    with open(script, 'w') as f:
        f.write(SCRIPT)
    folder = os.path.dirname(path)
    assert run('sqlite', '--require', '--path', folder, script, path).stdout.strip() not in ('', 'None')
    assert run('sqlite', '--path=/nowhere', script, path + '2').stdout.strip() == 'None'
    assert run('sqlite', '-c', 'import sys; print(sys.argv)', '--path', 'x').stdout.strip() == "['-c', '--path', 'x']"


def test_the_command_is_the_whole_one(path: str) -> None:
    assert ato.__version__ in run('--version').stdout
    m = ato.map(path, 100)
    m[0] = 1
    assert 'process' in run('info', path).stdout
    m.close(keep_reflection=True)
    run('deploy', path)
    assert run('check', '--quiet', path).stdout == ''
    failed: Any = run('info', path + '-none', check=False)
    assert failed.returncode != 0 and failed.stderr


def test_a_program_under_ato_run(path: str) -> None:
    program = f"""
import mmap, os
fd = os.open({path!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 8192)
m = mmap.mmap(fd, 8192)
m[0:5] = b'hello'
m.flush()
"""
    run('run', '--require', '--path', path, '-c', program)
    assert content(path)[:5] == b'hello'
