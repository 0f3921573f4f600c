# SPDX-License-Identifier: BSD-3-Clause
"""`python -m ato COMMAND ...`: the command `ato` of this package. With `sqlite` and `run` it starts this Python with what follows:

python -m ato sqlite [--path PATH]... [--require] [--tidy] script.py [ARGUMENT...]
python -m ato run [--path PATH]... [--require] -m module [ARGUMENT...]
"""

import os
import sys


def command(*arguments: str) -> None:
    """Become the command `ato`, with these arguments or those of this process."""
    path = os.path.join(os.path.dirname(__file__), 'ato')
    os.execv(path, [path, *(arguments or sys.argv[1:])])


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] in (['sqlite'], ['run']):
        at = 1
        while at < len(arguments) and arguments[at].startswith('--'):
            at += 2 if arguments[at] == '--path' else 1
        if at < len(arguments):
            arguments.insert(at, sys.executable)
    command(*arguments)


if __name__ == '__main__':
    main()
