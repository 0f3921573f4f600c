// SPDX-License-Identifier: BSD-3-Clause
//
// Address space that a process lacks.
#ifndef ATO_TEST_SUPPORT_LIMITS_H
#define ATO_TEST_SUPPORT_LIMITS_H

#include <cstdint>
#include <cstdio>

#include <sys/resource.h>
#include <unistd.h>

extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace support
{

// A sanitizer has terabytes of its own.
inline bool limits_address_space()
{
    return !__asan_init && !__tsan_init;
}

// Lets this process, a child that is about to end, have so many bytes more than it has.
inline void leave_address_space(uint64_t more)
{
    unsigned long pages = 0;
    if (FILE *statm = fopen("/proc/self/statm", "re")) {
        if (fscanf(statm, "%lu", &pages) != 1)
            pages = 0;
        fclose(statm);
    }
    const rlim_t all = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
    const struct rlimit limit = {all, all};
    setrlimit(RLIMIT_AS, &limit);
}

} // namespace support

#endif
