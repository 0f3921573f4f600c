# SPDX-License-Identifier: BSD-3-Clause
"""What the numbers were measured on: the machine, the media, the versions. No names of hosts, users or folders."""
import os
import platform
import re
import shutil
import subprocess


def first_line(path):
    try:
        with open(path, encoding='utf-8') as file:
            return file.readline().strip()
    except OSError:
        return ''


def fields_of(path):
    """{name: value} of a file with lines such as 'model name : AMD EPYC'; the first of each name."""
    found = {}
    try:
        with open(path, encoding='utf-8') as file:
            for line in file:
                name, colon, value = line.partition(':')
                if colon:
                    found.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return found


def said(*command):
    """The first line that a command prints; empty if it cannot be had."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        return done.stdout.partition('\n')[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return ''


def cpus():
    """How many CPUs this process may use: the affinity, and the quota of its control group."""
    count = len(os.sched_getaffinity(0))
    quota, _, period = first_line('/sys/fs/cgroup/cpu.max').partition(' ')
    if quota.isdigit() and period.isdigit():
        count = min(count, max(1, int(quota) // int(period)))
    return count


def memory_mib():
    kib = fields_of('/proc/meminfo').get('MemAvailable', '0 kB').split()[0]
    mib = int(kib) // 1024
    limit = first_line('/sys/fs/cgroup/memory.max')
    return min(mib, int(limit) >> 20) if limit.isdigit() else mib


def free_mib(folder):
    return shutil.disk_usage(folder).free >> 20


def caches():
    found = []
    base = '/sys/devices/system/cpu/cpu0/cache'
    for index in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        if index.startswith('index'):
            level, kind, size = (first_line(f'{base}/{index}/{name}') for name in ('level', 'type', 'size'))
            if kind != 'Instruction' and size:
                found.append(f'L{level} {size}')
    return ', '.join(found)


def mount_of(folder):
    """(device as 'major:minor', type of the file system) of the mount that a folder is in."""
    folder = os.path.realpath(folder)
    best, found = -1, ('', 'unknown')
    with open('/proc/self/mountinfo', encoding='utf-8') as file:
        for line in file:
            fields, _, more = line.partition(' - ')
            where = re.sub(r'\\([0-7]{3})', lambda octal: chr(int(octal[1], 8)), fields.split()[4])
            if len(where) >= best and (folder + '/').startswith(where.rstrip('/') + '/'):
                best, found = len(where), (fields.split()[2], more.split()[0])
    return found


def medium_of(folder):
    """What lies under a folder, in a few words."""
    device, kind = mount_of(folder)
    if kind == 'tmpfs':
        return 'tmpfs in DRAM'
    queue = f'/sys/dev/block/{device}/queue'
    if not os.path.isdir(queue):
        queue = f'/sys/dev/block/{device}/../queue'  # a partition has that of its disk
    cache, fua = first_line(f'{queue}/write_cache'), first_line(f'{queue}/fua')
    words = [{'write back': 'volatile cache', 'write through': 'no volatile cache'}.get(cache, ''),
             {'0': 'no FUA', '1': 'FUA'}.get(fua, '')]
    return f'{kind} on a block device' + (f' ({", ".join(filter(None, words))})' if any(words) else '')


def describe(build):
    """[(what, value)]: the machine and the versions. `build`: the folder of the program that measured."""
    cpu = fields_of('/proc/cpuinfo')
    flags = cpu.get('flags', '').split()
    extensions = [word for name, word in (('avx512f', 'AVX-512'), ('avx2', 'AVX2'), ('clwb', 'CLWB'), ('clflushopt', 'CLFLUSHOPT'))
                  if name in flags]
    total = int(fields_of('/proc/meminfo').get('MemTotal', '0 kB').split()[0]) / 1024 / 1024
    kind = 'a virtual machine' if 'hypervisor' in flags else 'no virtual machine'
    git = ('git', '-c', 'safe.directory=*', '-C', os.path.dirname(os.path.abspath(__file__)))
    commit = said(*git, 'rev-parse', '--short=12', 'HEAD') or 'unknown'
    changed = ', and changes' if said(*git, 'status', '--porcelain', '--untracked-files=no') else ''
    compiler = said(compiler_of(build), '--version')
    return [('CPU', f'{cpu.get("model name", platform.machine())}, {cpus()} CPUs, {kind}'),
            ('extensions', ', '.join(extensions) or 'none of those that matter here'),
            ('hardware transactions (RTM)', 'yes' if 'rtm' in flags else 'no: writes of several pages use lanes'),
            ('caches', caches() or 'unknown'),
            ('memory', f'{total:.0f} GiB'),
            ('kernel', 'Linux ' + re.match(r'[\d.]*', platform.release())[0]),
            ('compiler', compiler or 'unknown'),
            ('libpmem', said('pkg-config', '--modversion', 'libpmem') or 'unknown'),
            ('SQLite', said('pkg-config', '--modversion', 'sqlite3') or 'unknown'),
            ('libato', f'commit {commit}{changed}')]


def compiler_of(build):
    """The C++ compiler that a build folder was configured with."""
    try:
        with open(f'{build}/build.ninja', encoding='utf-8') as file:
            rule = re.search(r'^rule cpp_COMPILER\n command = (\S+)', file.read(), re.M)
        return rule[1] if rule else 'c++'
    except OSError:
        return 'c++'
