// SPDX-License-Identifier: BSD-3-Clause
//
// How a run says that something is wrong: the library broke a promise, or the system failed it.
#ifndef ATO_TEST_CRASH_VIOLATION_H
#define ATO_TEST_CRASH_VIOLATION_H

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace crash
{

// What a call of the library said when it failed where it must not; or any other broken promise.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Of a call of the system, which sets errno.
inline void check(bool ok, const char *what)
{
    if (!ok)
        throw Violation(std::string(what) + ": " + strerror(errno));
}

} // namespace crash

#endif
