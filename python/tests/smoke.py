# SPDX-License-Identifier: BSD-3-Clause
"""Does an installed wheel work where there is nothing else? Run by python/check."""

import importlib.metadata
import os
import sqlite3
import subprocess
import sys
import tempfile

import ato

with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
    path = os.path.join(folder, 'data')
    with ato.map(path, 10000) as m:
        m[4090:4100] = b'0123456789'
        m.run(lambda tx: tx.__setitem__(0, tx[4090]))
        with m.snapshot() as s:
            assert s[0] == ord('0') and s[4090:4100] == b'0123456789'
        try:
            m.resize(1 << 60)
        except ato.Error as e:
            assert e.errno and e.strerror
    with ato.map(path, plain_stores=True) as m, memoryview(m) as view:
        view[0] = 1
        m.sync()
        view.release()
    with open(path, 'rb') as f:
        assert f.read(1) == b'\1'
    database = os.path.join(folder, 'db')
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('CREATE TABLE t (x)')"
    subprocess.run([sys.executable, '-m', 'ato', 'sqlite', '--require', '-c', program, database], check=True)
    if hasattr(sqlite3.connect(':memory:'), 'enable_load_extension'):
        ato.load(sqlite3.connect(':memory:'))
        db = sqlite3.connect(f'file:{database}?vfs=ato', uri=True)
        with db:
            db.execute('INSERT INTO t VALUES (1)')
        assert db.execute('SELECT count(*) FROM t').fetchone() == (1,)
        db.close()
    subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), 'ato'), 'check', folder], check=True, stdout=subprocess.DEVNULL
    )
    assert 'numpy' not in sys.modules and importlib.metadata.version('libato') == ato.__version__
print('    it works')
