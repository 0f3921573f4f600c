#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Can a program be built against the installed library, with nothing but pkg-config or CMake?

Installs the build into a folder of its own, compiles a C sample against the shared and the static
library and a C++ sample against the shared one, runs them, and looks at what the library exports.
One line a claim; exits 1 if one does not hold.

    install_test.py <source folder> <build folder> <cc> <c++>
"""
import fnmatch
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = (os.path.abspath(p) for p in sys.argv[1:3])
CC, CXX = (shlex.split(c) for c in sys.argv[3:5])
failures = 0


def claim(what, holds, why=''):
    global failures
    failures += not holds
    print(('ok      ' if holds else 'FAILED  ') + what + (f'\n{why}' if why and not holds else ''),
          flush=True)
    return holds


def run(command, **env):
    done = subprocess.run(command, env={**os.environ, **env}, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def sanitizers():
    """The flags of the samples if the library was built with sanitizers."""
    with open(os.path.join(BUILD, 'meson-info', 'intro-buildoptions.json'), encoding='utf-8') as f:
        found = re.search(r'"name": "b_sanitize", "value": "([^"]*)"', f.read())
    return [] if not found or found[1] == 'none' else ['-fsanitize=' + found[1]]


def exported(library):
    _, text = run(['nm', '-D', '--defined-only', library])
    return {line.split()[2].split('@')[0] for line in text.splitlines() if line.split()[1] in 'TDBRVWi'}


def declared():
    names = set()
    for header in ('ato.h', 'ato_engine.h'):
        with open(os.path.join(SOURCE, 'include', header), encoding='utf-8') as f:
            names.update(re.findall(r'\b(ato_\w+)\(', re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S)))
    return names


def try_sqlite(by_name, stage, data, pkg, place, strict, libraries):
    for name in ('ato_sqlite.h', 'libato_sqlite_preload.so', 'libato_vfs.a', 'libato-sqlite.pc', 'ato_sqlite.7', 'ato_vfs_register.3'):
        claim(f'{name} is installed', name in by_name)
    claim('the extension exports its entry and nothing else',
          exported(by_name['libato_sqlite.so']) == {'sqlite3_extension_init'})
    claim('the preload library exports the functions that it replaces and nothing else',
          exported(by_name['libato_sqlite_preload.so']) == {'dlopen', 'sqlite3_os_init'})
    status, text = run(['pkg-config', '--libs', 'libato-sqlite'], **pkg)
    claim('pkg-config --libs libato-sqlite', status == 0 and '-lato_vfs' in text, text)
    program = os.path.join(stage, 'sample_sqlite')
    here = os.path.dirname(os.path.abspath(__file__))
    status, text = run([*CC, '-std=c99', *strict, os.path.join(here, 'sample_sqlite.c'), *place,
                        *[flag for flag in shlex.split(text) if not flag.startswith(('-I', '-L'))],
                        '-o', program])
    if not claim('a sample with SQLite compiles', status == 0, text):
        return
    for what, words in (('linked', []), ('loaded', [by_name['libato_sqlite.so'][:-len('.so')]])):
        file = os.path.join(data, what + '.db')
        status, text = run([program, file, *words], **libraries)
        claim(f'it runs ({what})', status == 0 and text == 'wholly or\n', text)
        with open(file, 'rb') as f:
            claim(f'what it wrote is in the file ({what})', b'wholly or' in f.read())
    if 'ato' in by_name and not sanitizers():
        status, text = run([by_name['ato'], 'sqlite', program, os.path.join(data, 'preloaded.db')], **libraries)
        claim('it runs, though the VFS is linked and preloaded', status == 0 and text == 'wholly or\n', text)
        # Without LD_LIBRARY_PATH: what is preloaded finds libato beside itself.
        status, text = run([by_name['ato'], 'sqlite', 'sqlite3', os.path.join(data, 'shell.db'),
                            'CREATE TABLE t(a); PRAGMA ato_stat'])
        claim("SQLite's shell runs under ato sqlite", status == 0 and '"domain"' in text, text)


def try_cmake(by_name, stage, data, version, libraries):
    for name in ('libato-config.cmake', 'libato-config-version.cmake'):
        claim(f'{name} is installed', name in by_name)
    if not shutil.which('cmake'):
        print('skipped  a project of CMake: there is no cmake')
        return
    names = ['shared', 'static'] + ['sqlite'] * ('libato_vfs.a' in by_name)
    project, build = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'cmake'), os.path.join(stage, 'cmake-build')
    status, text = run(['cmake', '-G', 'Ninja', '-S', project, '-B', build, '-DWITH_SQLITE=' + ('ON' if 'sqlite' in names else 'OFF'),
                        '-DCMAKE_C_FLAGS=' + shlex.join(sanitizers()), '-Dlibato_DIR=' + os.path.dirname(by_name['libato-config.cmake'])],
                       CC=shlex.join(CC))
    if not claim('CMake finds the library', status == 0, text):
        return
    status, text = run(['cmake', '--build', build])
    if not claim('a project of CMake builds', status == 0, text):
        return
    for name in names:
        status, text = run([os.path.join(build, name), os.path.join(data, 'cmake-' + name)], **libraries if name != 'static' else {})
        claim(f'what it built runs ({name})', status == 0 and text in (version + '\n', 'wholly or\n'), text)


def try_debian(stage, found, names, version):
    """Are the Debian packages in step? They take minutes to build: tools/packages."""
    debian = os.path.join(SOURCE, 'debian')
    with open(os.path.join(debian, 'changelog'), encoding='utf-8') as f:
        claim(f'debian/changelog is of version {version}', f.readline().startswith(f'libato ({version}) '))
    with open(os.path.join(debian, 'libato0.symbols'), encoding='utf-8') as f:
        claim('debian/libato0.symbols names what the library exports', set(re.findall(r'^ (\w+)@', f.read(), re.M)) == names)
    patterns = {}
    for name in glob.glob(os.path.join(debian, '*.install')):
        with open(name, encoding='utf-8') as f:
            patterns.update({line.strip(): 0 for line in f})
    wrong = []
    for path in found:
        path = re.sub(r'^/?(usr/local|usr)?/', 'usr/', path[len(stage):])
        fit = [p for p in patterns if any(fnmatch.fnmatchcase(path, p + end) for end in ('', '/*'))]
        patterns.update({p: 1 for p in fit})
        wrong += [path] if len(fit) != 1 else []
    claim('each installed file is in one of the Debian packages', not wrong, '\n'.join(wrong))
    claim('the Debian packages name no file that is not installed', all(patterns.values()), str(patterns))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory(prefix='ato-install-') as stage, \
            tempfile.TemporaryDirectory(prefix='ato-test-', dir='/dev/shm') as data:
        status, text = run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet'],
                           DESTDIR=stage)
        if not claim('meson install works', status == 0, text):
            return
        found = [os.path.join(path, name) for path, _, names in os.walk(stage) for name in names]
        by_name = {os.path.basename(path): path for path in found if '/share/bash-completion/' not in path}
        for name in ('ato.h', 'ato_engine.h', 'libato.a', 'libato.so', 'libato.so.0', 'libato.pc', 'ato.5', 'ato.7'):
            claim(f'{name} is installed', name in by_name)
        if 'ato' in by_name:
            claim('the man page of ato is installed with it', 'ato.1' in by_name)
            for end in ('share/bash-completion/completions/ato', 'share/zsh/site-functions/_ato'):
                claim(f'{end} is installed', any(p.endswith(end) for p in found))
            status, text = run([by_name['ato'], '--version'])
            claim('ato runs', status == 0 and text.startswith('ato '), text)
            claim('what ato run preloads exports only functions of libc',
                  not [n for n in exported(by_name['libato_run_preload.so']) if re.match('ato|served|calls|record', n)])
            if not sanitizers():
                status, text = run([by_name['ato'], 'run', 'true'])
                claim('ato run finds it', status == 0 and 'did not ask the C library' in text, text)
        claim('nothing of the tests is installed',
              not [p for p in found if 'seam' in p or 'gtest' in p or 'unit_' in p], str(found))
        if failures:
            return

        names = exported(by_name['libato.so'])
        claim('the shared library exports what the headers declare, and nothing else',
              names - {'LIBATO_0.1'} == declared(), f'{sorted(names)}\n{sorted(declared())}')
        _, text = run(['readelf', '-d', by_name['libato.so']])
        claim('its soname is libato.so.0', '[libato.so.0]' in text, text)
        _, text = run(['readelf', '--version-info', '--wide', by_name['libato.so']])
        claim('its symbols carry the version LIBATO_0.1', 'LIBATO_0.1' in text)

        pkg = {'PKG_CONFIG_LIBDIR': os.path.dirname(by_name['libato.pc']) + ':'
               + run(['pkg-config', '--variable=pc_path', 'pkg-config'])[1].strip(),
               'PKG_CONFIG_SYSROOT_DIR': ''}

        def pkg_config(*words):
            status, text = run(['pkg-config', *words, 'libato'], **pkg)
            claim('pkg-config ' + ' '.join(words) + ' libato', status == 0, text)
            # The prefix, as it would be without DESTDIR.
            flags = shlex.split(text)
            return [re.sub(r'^(-[IL])(?=/)(?!.*' + re.escape(stage) + ')',
                           lambda m: m[1] + stage, flag)
                    if os.path.isdir(stage + re.sub('^-[IL]', '', flag)) else flag
                    for flag in flags]

        # pkg-config omits the default folders from the flags: they are named here.
        place = ['-I' + os.path.dirname(by_name['ato.h']),
                 '-L' + os.path.dirname(by_name['libato.so'])]
        version = run(['pkg-config', '--modversion', 'libato'], **pkg)[1].strip()
        strict = ['-Wall', '-Wextra', '-Wpedantic', '-Werror', *sanitizers()]
        libraries = {'LD_LIBRARY_PATH': os.path.dirname(by_name['libato.so'])}
        sample_c = os.path.join(here, 'sample.c')
        sample_cc = os.path.join(here, 'sample.cc')
        shared = pkg_config('--cflags', '--libs')
        static = pkg_config('--cflags', '--libs', '--static')
        static = [by_name['libato.a'] if flag == '-lato' else flag for flag in static]
        builds = [
            ('C, shared', [*CC, '-std=c99', *strict, sample_c, *place, *shared], libraries),
            ('C, static', [*CC, '-std=c99', *strict, sample_c, *place, *static], {}),
            ('C++, shared', [*CXX, '-std=c++11', *strict, sample_cc, *place, *shared], libraries),
        ]
        for compiler, sample, standards in ((CC, sample_c, ('c99', 'c11', 'c17')), (CXX, sample_cc, ('c++11', 'c++17', 'c++20'))):
            for standard in standards:
                status, text = run([*compiler, '-std=' + standard, *strict, '-Wconversion', '-fsyntax-only', sample, *place[:1]])
                claim(f'a sample is right in {standard}', status == 0, text)
                status, text = run([*compiler, '-std=' + standard, *strict, '-Wconversion', '-fsyntax-only', '-include', 'ato_engine.h',
                                    sample, *place[:1]])
                claim(f'ato_engine.h is right in {standard}', status == 0, text)
        for what, command, env in builds:
            program = os.path.join(stage, what.replace(', ', '-'))
            status, text = run([*command, '-o', program])
            if not claim(f'a sample compiles ({what})', status == 0, ' '.join(command) + '\n' + text):
                continue
            file = os.path.join(data, os.path.basename(program))
            status, text = run([program, file], **env)
            claim(f'it runs ({what})', status == 0, text)
            claim(f'it is of the version that pkg-config says ({what})',
                  text.strip() == version, text + version)
            with open(file, 'rb') as f:
                claim(f'what it wrote is in the file ({what})', f.read(9) == b'wholly or')
            _, text = run(['readelf', '-d', program])
            claim(f'it needs libato.so.0 only when shared ({what})',
                  ('libato.so.0' in text) == ('shared' in what), text)
        if 'libato_sqlite.so' in by_name:
            try_sqlite(by_name, stage, data, pkg, place, strict, libraries)
        if {'ato', 'libato_sqlite.so'} <= set(by_name) and 'x86_64-linux-gnu' in by_name['libato.so']:
            try_debian(stage, found, names, version)
        try_cmake(by_name, stage, data, version, libraries)
        claim('nothing is left in .ato but the note', os.listdir(os.path.join(data, '.ato')) == ['README'])


main()
sys.exit(1 if failures else 0)
