// SPDX-License-Identifier: BSD-3-Clause
//
// A reader of the format that shares no code with the library: a second implementation of
// reflection/FORMAT.md.
#ifndef ATO_TEST_CRASH_READER_H
#define ATO_TEST_CRASH_READER_H

#include "disk.h"

namespace crash
{

// Bytes that replace others in the file as long as it is not plain.
struct Guard {
    uint64_t at = 0;
    Bytes plain; // empty: there is no guard
};

struct Found {
    Bytes content;
    std::string damage; // the reason why there is no content; "": there is one
    Guard guard = {};
};

// The numbers of orphans are from here on: no file has them.
constexpr uint64_t ORPHAN = 1ull << 40;

// Reads the file that is inode `id` of the disk and has the kernel's inode number `number`, as a
// recovery has to find it; if other programs wrote to the file, it counts and not its reflection.
Found read_file(const Disk &disk, int id, uint64_t number, bool prefer_file = false);

// Unmasks a database with a masked header, as the VFS for SQLite does (lib/sqlite/mask.h), and cuts zeros behind its pages;
// returns others unchanged.
Bytes unmasked(Bytes content);

// Does SQLite's own VFS accept a file with this content, without its reflection and without a WAL?
bool is_open_to_others(const Bytes &original);

} // namespace crash

#endif
