// SPDX-License-Identifier: BSD-3-Clause
//
// A whole file, as a snapshot has it.
#ifndef ATO_TEST_SUPPORT_COPIED_H
#define ATO_TEST_SUPPORT_COPIED_H

#include "ato.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include <unistd.h>

namespace support
{

// Copies it to `to`, holes as zeros. Returns its size; -1 with errno.
inline off_t copy_snapshot(ato_snapshot *s, std::vector<unsigned char> &to)
{
    constexpr size_t PART = 256 << 10;
    const off_t size = ato_snapshot_seek(s, 0, SEEK_END);
    if (size < 0)
        return -1;
    to.assign(static_cast<size_t>(size), 0);
    ssize_t n = 0;
    off_t at = 0;
    for (; (at = ato_snapshot_seek(s, at, SEEK_DATA)) >= 0; at += n) {
        n = ato_snapshot_read(s, to.data() + at, at,
                              std::min(to.size() - static_cast<size_t>(at), PART));
        if (n <= 0)
            return -1;
    }
    return errno == ENXIO ? size : -1;
}

// The same of a snapshot that begins now, of the file that is mapped there.
inline off_t copy_now(const void *mapped, std::vector<unsigned char> &to)
{
    ato_snapshot *s = ato_snapshot_begin(mapped);
    if (!s)
        return -1;
    const off_t size = copy_snapshot(s, to);
    const int error = errno;
    if (ato_snapshot_end(s) < 0)
        return -1;
    errno = error;
    return size;
}

} // namespace support

#endif
