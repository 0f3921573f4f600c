# SPDX-License-Identifier: BSD-3-Clause
"""What the documentation shows runs, and what can be called is documented."""

from __future__ import annotations

import doctest
import os
import re

import ato
import ato._memmap
import pytest
from conftest import content, has_extensions


@pytest.mark.parametrize('module', [ato, ato._memmap])
def test_the_examples_of_docstrings(module: object) -> None:
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(module):
        if has_extensions or example.name != 'ato.load':
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0 and runner.tries


def test_each_name_has_a_docstring() -> None:
    for name in ato.__all__:
        thing = getattr(ato, name)
        assert thing.__doc__, name
        for part in vars(thing) if isinstance(thing, type) else []:
            if not part.startswith('_') and callable(getattr(thing, part)) and name != 'Stat':
                assert getattr(thing, part).__doc__, (name, part)


@pytest.mark.parametrize('number', range(3))
def test_the_examples_of_the_readme(path: str, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    readme = content(os.path.join(os.path.dirname(__file__), '..', 'README.md')).decode()
    block = re.findall(r'```python\n(.*?)```', readme, re.DOTALL)[number]
    if 'ato.load' in block and not has_extensions:
        pytest.skip('this Python loads no SQLite extensions')
    monkeypatch.chdir(os.path.dirname(path))
    exec('import ato\n' + block, {})
