// SPDX-License-Identifier: BSD-3-Clause
//
// Replacements for functions below and beside the library, by the linker's --wrap: so runs are
// repeatable, fast, and recorded.
//
//   mmap, munmap          the real ones; remembered, so that an address gives its file
//   identity_random       repeatable numbers
//   identity_boot         a boot that the test begins
//   area_note_own         each manifest is the one that it was, although a lay-out makes it again, unless a case says that it is a
//   area_is_copy          copy
//   persist_rtm_allowed   where the domain allows it: the recorder replaces the hardware
//                         transaction
//
// Also faults of the code under test that no fault of the rules (media.h) can express.
#ifndef ATO_TEST_CRASH_STANDINS_H
#define ATO_TEST_CRASH_STANDINS_H

#include "disk.h"

#include <sys/types.h>

namespace crash
{

enum class CodeFault {
    None,
    AnyIdentity,    // every file matches the manifest
    NoReplay,       // lanes of dead processes are not replayed
    LeftToOthers,   // a process that takes over pages of a dead one does not replay its lanes
    NoChecksum,     // a lane is valid without its checksum
    NeverRetired,   // a lane stays committed
    AnyTime,        // a clean file is accepted with any mtime and size
    NeverForgotten, // given-up writes stay staged
    WrittenThrough, // SQLite's writes are committed at once
    NoMask,         // the header is not masked
};

struct Region {
    char *begin;
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    uint64_t at; // of `begin` in the file
};

namespace standins
{
void set_random(uint64_t seed);
uint64_t get_boot();
void set_boot(uint64_t boot);
// What a manifest that is no copy has in its record.
constexpr uint64_t OWN = 1;
// Logs are on persistent memory, and the originals on a disk; or all are on a disk.
void set_stored_log(bool stored);
void set_fault(CodeFault fault);
CodeFault fault();
// The shared file mapping that contains an address; NULL: none.
const Region *region(const void *address);
} // namespace standins

} // namespace crash

#endif
