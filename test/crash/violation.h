// SPDX-License-Identifier: BSD-3-Clause
//
// The exception for a violation: the library broke a guarantee, or a system call failed.
#ifndef ATO_TEST_CRASH_VIOLATION_H
#define ATO_TEST_CRASH_VIOLATION_H

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace crash
{

// With the library's error if a call failed that must succeed; or with another broken guarantee.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// For a failed system call, with errno.
inline void check(bool ok, const char *what)
{
    if (!ok)
        throw Violation(std::string(what) + ": " + strerror(errno));
}

} // namespace crash

#endif
