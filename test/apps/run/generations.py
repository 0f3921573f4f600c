# SPDX-License-Identifier: BSD-3-Clause
"""What a driver of a program is: it makes generations of a file, and checks one.

    DRIVER work FILE    prints the number of the generation that FILE holds wholly, 0 if there is none yet; then makes the next ones,
                        and prints the number of each when its sync has returned
    DRIVER check FILE   prints the number of the generation that FILE holds wholly; or what is wrong, and exits 1

In generation g every record says g: so stores that no sync followed show.
"""
import sys


class Torn(Exception):
    pass


def only(values, count):
    """The one value that all of them are."""
    values = list(values)
    if len(values) != count:
        raise Torn(f'{len(values)} records, not {count}')
    if min(values) != max(values):
        raise Torn(f'records of generations {min(values)} to {max(values)}')
    return values[0]


def main(work, check):
    if sys.argv[1] == 'work':
        for generation in work(sys.argv[2]):
            print(generation, flush=True)
        return
    try:
        print(check(sys.argv[2]), flush=True)
    except Exception as wrong:  # pylint: disable=broad-except # the program's own errors as well
        print(f'{type(wrong).__name__}: {wrong}', flush=True)
        sys.exit(1)
