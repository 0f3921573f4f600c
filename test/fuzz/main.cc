// SPDX-License-Identifier: BSD-3-Clause
//
// Starts a harness. Three functions differ from a real process, by --wrap:
//
//   nanosleep        does not sleep: there is no other process to wait for
//   locks_wait       a wait for a lock would be for the process itself, for ever
//   identity_random  not random, so that runs are alike; and all ids begin with `fuzz` and the pid, so
//                    that objects that a crash leaves in /dev/shm can be found and removed (tools/fuzz)
#include "world.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include <unistd.h>

extern "C" {
#include "reflection/media/locks.h"

int __wrap_nanosleep(const timespec *wanted, timespec *left);
int __wrap_locks_wait(int fd, short type, off_t start, off_t n);
int __wrap_identity_random(void *bytes, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int __wrap_nanosleep(const timespec * /*wanted*/, timespec * /*left*/)
{
    return 0;
}

int __wrap_locks_wait(int fd, short type, off_t start, off_t n)
{
    switch (locks_try(fd, type, start, n)) {
    case LOCKS_MINE:
        return 0;
    case LOCKS_TAKEN:
        fuzz::wrong("waits for ever for a lock that it holds itself");
    default:
        return -1;
    }
}

int __wrap_identity_random(void *bytes, size_t n)
{
    static uint64_t count;
    unsigned char id[16] = {'f', 'u', 'z', 'z'};
    pid_t pid = getpid();
    count++;
    memcpy(id + 4, &pid, 4);
    memcpy(id + 8, &count, 8);
    memcpy(bytes, n > 8 ? id : id + 8, n < 16 ? n : 16);
    return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (*argc == 3 && std::string((*argv)[1]) == "--write-seeds") {
        for (const fuzz::Seed &seed : fuzz::seeds()) {
            std::ofstream out(std::string((*argv)[2]) + "/" + seed.name, std::ios::binary);
            out.write(reinterpret_cast<const char *>(seed.bytes.data()),
                      static_cast<std::streamsize>(seed.bytes.size()));
        }
        _exit(0);
    }
    return 0;
}
}
