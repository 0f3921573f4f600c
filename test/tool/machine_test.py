#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Is it right what `ato doctor` and `ato bench` say of a machine and a folder, and do they leave nothing there?"""
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time

import lab
from lab import NOBODY, Lab


class Doctor(Lab):
    def test_shows_the_features_of_machine_and_folder(self):
        found = self.json('doctor', self.dir)
        self.assertIn(found['machine']['hardware_transactions'], ('yes', 'no'))
        self.assertIn(found['machine']['copy_kernel'], ('avx512', 'avx2', 'sse2'))
        self.assertTrue(found['can_map'])
        self.assertEqual(found['obstacles'], [])

    def test_its_domain_is_that_of_a_new_file(self):
        self.assertEqual(self.json('doctor', self.dir)['domain'],
                         self.info(self.make('fast'))['domain'])

    def test_shows_what_a_domain_survives(self):
        for domain, words in ('process', 'They are not when the kernel crashes'), \
                             ('disk', 'each write waits for the disk'), ('pmem', 'a power cut'):
            text = self.out('doctor', self.dir, ATO_DURABILITY=domain)
            self.assertIn(f"gets the durability domain '{domain}'", text)
            self.assertIn(words, text)

    def test_shows_what_the_kernel_tells_of_the_disk(self):
        self.assertIsNone(self.json('doctor', '/dev/shm')['disk'])
        with tempfile.TemporaryDirectory(dir=os.path.dirname(lab.TOOL)) as folder:
            device = os.stat(folder).st_dev
            queue = f'/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/'
            if not os.path.exists(queue):
                self.skipTest('the build folder is on no whole block device')

            def ask(what):
                with open(queue + what, encoding='ascii') as f:
                    return f.read().strip()
            found = self.json('doctor', folder)['disk']
            self.assertEqual(found['volatile_cache'], ask('write_cache') == 'write back')
            self.assertEqual(found['fua'], ask('fua') == '1')
            self.assertIn('volatile cache', self.out('doctor', folder))

    def test_an_unknown_domain_is_an_obstacle(self):
        found = self.json('doctor', self.dir, status=1, ATO_DURABILITY='sometimes')
        self.assertFalse(found['can_map'])
        self.assertIn('cannot be mapped', self.out('doctor', self.dir, status=1,
                                                   ATO_DURABILITY='sometimes'))

    def test_the_weaker_medium_counts(self):
        found = self.json('doctor', self.dir, ATO_REFLECTION_DIR='/dev/shm')
        self.assertEqual(found['domain'], 'process')

    def test_a_log_in_memory_is_an_obstacle_unless_it_is_asked_for(self):
        with tempfile.TemporaryDirectory(dir='/tmp') as folder, tempfile.TemporaryDirectory(dir='/dev/shm') as logs:
            if os.statvfs(folder).f_fsid == os.statvfs(logs).f_fsid:
                self.skipTest('/tmp is in memory')
            found = self.json('doctor', folder, status=1, ATO_LOG_DIR=logs)
            self.assertIn(logs, found['obstacles'][0])
            found = self.json('doctor', folder, ATO_LOG_DIR=logs, ATO_DURABILITY='disk')
            self.assertIn('no write waits for the disk', found['survives'])
            self.assertIn(logs, found['remarks'][-1])
            self.assertEqual(os.listdir(logs), [])

    def test_leaves_nothing_behind(self):
        self.make('fast')
        before = sorted(os.walk(self.dir)), self.shared()
        self.out('doctor', self.dir)
        self.assertEqual((sorted(os.walk(self.dir)), self.shared()), before)

    def test_looks_at_the_working_directory_by_default(self):
        self.assertEqual(self.json('doctor')['folder'], '.')

    def test_a_folder_without_write_permission_is_an_obstacle(self):
        self.assertIn('no file can be made there', self.out('doctor', '/proc', status=1))
        if os.getuid() == 0:
            found = self.json('doctor', self.dir, status=1, user=NOBODY)
            self.assertIn('Permission denied', found['obstacles'][0])
            self.assertIsNone(found['domain'])

    def test_a_refused_reflection_folder_is_an_obstacle(self):
        for place in '/nonexistent/deep/x', '/etc/passwd':
            found = self.json('doctor', self.dir, status=1, ATO_REFLECTION_DIR=place)
            self.assertIn(place, found['obstacles'][0])
        own = self.dir + '/.ato'
        os.symlink('/', own)
        self.assertIn(own, self.json('doctor', self.dir, status=1)['obstacles'][0])
        os.unlink(own)
        os.mkdir(own, 0o700)
        os.chmod(self.dir, 0o777)
        self.assertTrue(self.json('doctor', self.dir)['can_map'])
        if os.getuid() == 0:
            self.assertIn(own, self.json('doctor', self.dir, status=1,
                                         user=NOBODY)['obstacles'][0])

    def test_names_that_are_not_folders_are_reported(self):
        for path in self.make(), self.dir + '/none':
            self.assertIn('cannot look at it', self.err('doctor', path, status=2))
            self.assertIsNotNone(self.json('doctor', path, status=2)['error'])


    def test_names_file_systems_that_are_refused(self):
        shim = self.dir + '/shim.so'
        source = """
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <stdlib.h>
            #include <sys/vfs.h>
            static int fake(int r, struct statfs *fs) { fs->f_type = strtoul(getenv("FAKE_TYPE"), 0, 16); return r; }
            int statfs(const char *p, struct statfs *fs)
            { return fake(((int (*)(const char *, struct statfs *))dlsym(RTLD_NEXT, "statfs"))(p, fs), fs); }
            int statfs64(const char *p, struct statfs64 *fs) { return statfs(p, (struct statfs *)fs); }
            int fstatfs(int fd, struct statfs *fs)
            { return fake(((int (*)(int, struct statfs *))dlsym(RTLD_NEXT, "fstatfs"))(fd, fs), fs); }
            int fstatfs64(int fd, struct statfs64 *fs) { return fstatfs(fd, (struct statfs *)fs); }"""
        if subprocess.run(['cc', '-xc', '-', '-shared', '-fPIC', '-o', shim, '-ldl'], input=source, text=True, check=False).returncode:
            self.skipTest('needs a compiler')
        for number, name in ('6969', 'NFS'), ('517b', 'SMB'), ('fe534d42', 'SMB'), ('ff534d42', 'SMB'), ('1021997', '9p'), \
                            ('65735546', 'FUSE'):
            more = {'LD_PRELOAD': shim, 'FAKE_TYPE': number}
            self.assertIn(f'is on {name}, where', self.json('doctor', self.dir, status=1, **more)['obstacles'][0])
            found = self.json('doctor', self.dir, ATO_ANY_FILE_SYSTEM='1', **more)
            self.assertIn(f'is {name}, on which locks', found['remarks'][0])
        self.assertTrue(self.json('doctor', self.dir, LD_PRELOAD=shim, FAKE_TYPE='ef53')['can_map'])

    def in_namespace(self, script, *words):
        """Runs a script with mounts of its own, which may mount a small /dev/shm; what it prints."""
        done = subprocess.run(['unshare', '-m', 'sh', '-ec', script, 'sh', lab.TOOL, *words], env=self.env, capture_output=True,
                              text=True, check=False)
        if 'unshare failed' in done.stderr or 'mount:' in done.stderr:
            self.skipTest('needs root, to mount a file system')
        return done.stdout

    def test_says_why_nothing_can_be_made_in_dev_shm(self):
        # The tool may lie in the /dev/shm that is hidden: it is opened before.
        mounted = 'exec 9<"$1"; mount -t tmpfs -o %s none /dev/shm; shift; "$@" /proc/self/fd/9 doctor / || true'
        full = self.in_namespace(mounted % 'size=64k', 'env')
        self.assertRegex(full, r'cannot be mapped: no shared memory .*/dev/shm/.*: No space left')
        self.assertNotIn('/dev/shm', self.in_namespace(mounted % 'size=0', 'env'))
        self.assertIn('Read-only file system', self.in_namespace(mounted % 'ro', 'env'))
        done = subprocess.run(['sh', '-c', 'ulimit -f 1000 && "$0" doctor "$1"', lab.TOOL, self.dir], env=self.env,
                              capture_output=True, text=True, check=False)
        self.assertIn("this process's limit on the size of files", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_says_if_systemd_removes_shared_memory_at_logout(self):
        def remarks(user):
            said = self.in_namespace(f"""mount -t tmpfs none /run; mkdir -p /run/systemd/system
                exec setpriv --reuid {user} --clear-groups "$1" doctor /dev/shm""")
            self.assertIn('folder', said)
            return 'RemoveIPC' in said
        self.assertTrue(remarks(NOBODY))
        self.assertFalse(remarks(0))


class Bench(Lab):
    media = False

    def setUp(self):
        if shutil.disk_usage(self.below).free < 200 << 20:
            self.skipTest('needs 200 MiB of /dev/shm')
        super().setUp()

    def test_measures_each_operation_in_each_domain_and_removes_its_files(self):
        names = None
        for domain in 'process', 'pmem', 'eadr', 'disk':
            found = self.json('bench', '--time', '1', self.dir, ATO_DURABILITY=domain)
            self.assertEqual((found['folder'], found['error']), (self.dir, None))
            self.assertEqual(found['domain'], domain)
            self.assertGreaterEqual(found['batches'], 1)
            for operation in found['operations']:
                for key in 'floor_ns', 'libato_ns', 'ratio':
                    self.assertGreater(operation.pop(key), 0, key)
                self.assertEqual(list(operation), ['operation'])
            names = [operation['operation'] for operation in found['operations']]
            self.assertEqual((len(names), len(set(names))), (7, 7))
            self.assertEqual(os.listdir(self.dir), [])
        text = self.out('bench', '--time', '1', self.dir, ATO_DURABILITY='pmem')
        self.assertIn("domain 'pmem'", text)
        for name in names:
            self.assertRegex(text, rf'(?m)^{name} +[0-9]+ +[0-9]+ +[0-9.]+$')

    def test_keeps_nothing_in_another_reflection_folder(self):
        os.mkdir(self.dir + '/files')
        os.mkdir(self.dir + '/reflections')
        self.out('bench', '--time', '1', self.dir + '/files', ATO_REFLECTION_DIR=self.dir + '/reflections')
        self.assertEqual([os.listdir(self.dir + name) for name in ('/files', '/reflections')], [[], []])

    def test_a_signal_ends_it_when_its_files_are_removed(self):
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            def heed(one=number):
                """nohup, and a shell in the background, ignore some for all that they start."""
                signal.signal(one, signal.SIG_DFL)
            with subprocess.Popen([lab.TOOL, 'bench', '--json', self.dir], env=self.env, preexec_fn=heed,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
                ids = []
                while not ids and bench.poll() is None:
                    time.sleep(0.01)
                    found = [self.peek(path, 32, 16) for path in glob.glob(self.dir + '/.ato-bench-*/.ato/*.manifest')]
                    ids = [one.hex() for one in found if any(one)]  # a manifest gets its name before its bytes
                bench.send_signal(number)
                self.assertEqual(bench.communicate(), (b'', b''))
                self.assertEqual(bench.returncode, -number)
            self.assertEqual(os.listdir(self.dir), [])
            self.assertEqual([glob.glob(f'/dev/shm/ato-{one}*') for one in ids], [[]] * len(ids))
            self.assertGreater(len(ids), 0)

    def test_refuses_to_run_without_space_and_makes_nothing(self):
        script = 'mount -t tmpfs -o size=100m none "$1" && ls -A "$1" && "$2" bench "$1"; status=$?; ls -A "$1"; exit $status'
        done = subprocess.run(['unshare', '-m', 'sh', '-c', script, 'sh', self.dir, lab.TOOL], env=self.env,
                              capture_output=True, check=False)
        if b'unshare failed' in done.stderr or b'mount:' in done.stderr:
            self.skipTest('needs root, to mount a small file system')
        self.assertEqual((done.returncode, done.stdout), (1, b''), done)
        self.assertIn(b'No space left', done.stderr)

    def test_names_that_are_not_folders_and_folders_without_permission_are_reported(self):
        for path in self.make(), self.dir + '/none':
            self.assertIn(path + ': cannot look at it', self.err('bench', path, status=2))
            self.assertIsNotNone(self.json('bench', path, status=2)['error'])
        self.assertIn('cannot be mapped', self.err('bench', '/proc', status=1))
        self.assertIn('cannot be mapped', self.json('bench', '/proc', status=1)['error'])
        self.assertIn('number', self.err('bench', '--time', '0', self.dir, status=64))
        self.assertIn('has no option --time', self.err('info', '--time', '1', self.file, status=64))


if __name__ == '__main__':
    lab.main(globals())
