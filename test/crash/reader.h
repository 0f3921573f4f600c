// SPDX-License-Identifier: BSD-3-Clause
//
// A reader of the format that shares no code with the library: reflection/FORMAT.md, read again.
#ifndef ATO_TEST_CRASH_READER_H
#define ATO_TEST_CRASH_READER_H

#include "disk.h"

namespace crash
{

// Bytes that the file has instead of others, for as long as it is not plain.
struct Guard {
    uint64_t at = 0;
    Bytes plain; // none: there is no guard
};

struct Found {
    Bytes content;
    std::string damage; // why there is no content; "": there is
    Guard guard = {};
};

// What the file holds that is inode `id` of the disk and has the kernel's inode number `number`, as
// a recovery has to find it; one that prefers the file to its reflection where others wrote it.
Found read_file(const Disk &disk, int id, uint64_t number, bool prefer_file = false);

// What the VFS for SQLite says that a database holds whose header is masked (lib/sqlite/mask.h); others as they are.
Bytes unmasked(Bytes content);

// Does SQLite's own VFS read a file that holds this itself, reflection or not, without looking at a WAL?
bool is_open_to_others(const Bytes &original);

} // namespace crash

#endif
