// SPDX-License-Identifier: BSD-3-Clause
//
// What stands in for things below and beside the library, by the linker's --wrap: so that runs are
// repeatable, quick, and known to the recorder.
//
//   mmap, munmap          the real ones; remembered, so that an address tells its file
//   identity_random       repeatable numbers
//   identity_process      the same: another process with each seed of them, and after each death
//   identity_boot         a boot that the test begins
//   persist_rtm_allowed   where the domain allows it: the recorder plays the hardware transaction
//   pmemobj_create, ...   a pool that is a mapped file of zeros with a root object. libpmemobj takes
//                         10 ms to make one, and recovery does not use it; what it does to a pool
//                         before the pool has its name cannot matter
//
// And faults of the code under test that no fault of the rules (media.h) can stand for.
#ifndef ATO_TEST_CRASH_STANDINS_H
#define ATO_TEST_CRASH_STANDINS_H

#include "disk.h"

#include <sys/types.h>

namespace crash
{

enum class CodeFault {
    None,
    AnyIdentity,    // every file is the one that the manifest means
    NoReplay,       // journals of the dead are removed, not replayed
    LeftToOthers,   // who takes pages over from a dead one does not replay its journals
    NoChecksum,     // a lane counts without its checksum
    NeverRetired,   // a lane stays committed
    AnyTime,        // a clean file is believed whatever its mtime and size
    FileByFile,     // of the VFS for SQLite: what is to be one commit is one of each database
    NeverDeleted,   // that a super-journal is deleted commits nothing
    NeverForgotten, // what is given up stays staged
    WrittenThrough, // what SQLite writes is committed at once
    NoMask,         // SQLite's own VFS is not kept out
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
void another_process();
uint64_t get_boot();
void set_boot(uint64_t boot);
void set_fault(CodeFault fault);
CodeFault fault();
// The shared file mapping that an address lies in; NULL.
const Region *region(const void *address);
} // namespace standins

} // namespace crash

#endif
