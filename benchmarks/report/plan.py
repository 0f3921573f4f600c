# SPDX-License-Identifier: BSD-3-Clause
"""What is run, where, and for how long: the parts of an evaluation, and each suite's share of the time."""
from collections import namedtuple

from . import machine

# A part: one medium, taken for one of libato's domains. `why` says of a part that is left out why it is.
Part = namedtuple('Part', 'domain folder medium why')
DOMAINS = ['pmem', 'process', 'disk']

# Seconds of each suite in each part, when it is quick. Files are filled and compared besides: BESIDES times as long, all in all.
SECONDS = {
    #                 pmem process disk
    'random':        (70, 25, 20),
    'amplification': (4, 0, 0),
    'sync':          (25, 0, 10),
    'threads':       (20, 8, 8),
    'latency':       (20, 0, 0),
    'transactions':  (22, 8, 8),
    'small_nvm':     (10, 0, 6),
    'unmap':         (10, 0, 0),
    'recovery':      (12, 0, 5),
    'ycsb':          (30, 0, 8),
    'tpcc':          (30, 0, 8),
}
BESIDES = 1.3
UNKNOWN = (10, 0, 0)  # a suite that is not in the table
FULL = 8  # times as long
ALL = 570  # seconds of a quick run, all in all
REST = 60  # of these go to the figures


LEAST_MEMORY_MIB = 512  # of memory, and of space on a medium: less is not enough for files of all engines


def parts(build, folder, charge):
    """The three parts. `folder`: where a disk is, as the user says; None: where the build folder lies. `charge`: of lines and fences to
    persistent memory, or None."""
    shm = '/dev/shm'
    tight = min(machine.memory_mib(), machine.free_mib(shm))
    why = '' if tight >= LEAST_MEMORY_MIB else f'there are {tight} MiB of memory for it, and {LEAST_MEMORY_MIB} are the least'
    found = [Part('pmem', shm, machine.medium_of(shm), why),
             Part('process', shm, machine.medium_of(shm), why)]
    disk = folder or build
    medium, why = machine.medium_of(disk), ''
    if machine.mount_of(disk)[1] == 'tmpfs':
        why = 'the build folder lies in memory: `--dir` names a folder on a disk' if not folder else \
            'the folder of `--dir` lies in memory, and is no disk'
    elif machine.free_mib(disk) < LEAST_MEMORY_MIB:
        why = f'there are {machine.free_mib(disk)} MiB free, and {LEAST_MEMORY_MIB} are the least'
    found.append(Part('disk', disk, medium, why))
    if charge:
        found[1:] = [part._replace(why='`--charge` is of what goes to persistent memory') for part in found[1:]]
    return found


def runs(parts_there, suites, asked, full):
    """[(part, suite, seconds)] in the order in which they are run; `asked`: only these suites."""
    found = []
    for part in parts_there:
        for suite in suites:
            seconds = SECONDS.get(suite, UNKNOWN)[DOMAINS.index(part.domain)] * (FULL if full else 1)
            if not part.why and seconds and (not asked or suite in asked):
                found.append((part, suite, seconds))
    return found


def fitted(seconds, planned, left):
    """The seconds of a run, when `planned` are still to come and `left` are there: never more than planned, and 0 if none are left."""
    return seconds * min(1, max(left, 0) / (planned * BESIDES))


SMALL_MIB = 16


def takes_small_files(domain, suite):
    """Has a quick run files of SMALL_MIB there? To fill larger ones on a disk, or for each value, takes long."""
    return domain == 'disk' and suite not in ('ycsb', 'tpcc') or suite in ('unmap', 'recovery')


def limit(seconds):
    """After so many seconds a run is ended: files are filled and compared besides, and on a disk a cell may take long."""
    return 2 * seconds + 30
