// SPDX-License-Identifier: BSD-3-Clause
//
// The events of a run on the media, in their order.
#ifndef ATO_TEST_CRASH_TRACE_H
#define ATO_TEST_CRASH_TRACE_H

#include "demand.h"
#include "pack.h"

namespace crash
{

// Eight bytes of a file, at a multiple of 8: the largest unit that the hardware stores atomically.
struct Chunk {
    int inode;
    uint64_t at, value;
};

enum class Kind {
    Store,  // cached: chunks of one group, which may persist in any order among themselves
    Stream, // the same, non-temporal
    Flush,  // lines of [at, at + bytes): certain after this thread's fence
    Fence,
    Sync,     // msync() of the pages of [at, at + bytes): certain when it returns
    SyncFile, // fsync() of a file or folder
    Make,     // name in folder, of the new inode `child`
    Rename,   // name to `to`
    Remove,   // name
    Resize,
    Attribute,
    Times,
    Death, // of the process of all events or, `alone`, of the one that this thread stands for
    Allow, // not an event: from here on the files may have exactly these contents (hashes)
};

const char *name_of(Kind kind);

struct Event {
    Kind kind;
    int thread = 1;
    const char *site = ""; // file:line
    std::vector<Chunk> chunks;
    bool whole = false; // all chunks at one moment: a hardware transaction
    bool alone = false;
    int inode = -1; // of a range, or the folder of a name
    uint64_t at = 0, bytes = 0;
    std::string name, to;
    int child = -1; // new inodes have consecutive numbers
    bool folder = false;
    Time time;
    std::vector<uint64_t> allowed;
    Demand demand;
};

using Trace = std::vector<Event>;

// Later threads of the trace are processes of their own.
constexpr int FIRST_PEER = 1000000;

// For another process of the same program file.
void pack(Pack &p, const Time &t);
void pack(Pack &p, const Event &e);
Time unpack_time(Unpack &u);
Event unpack_event(Unpack &u);

// Cached or non-temporal.
bool is_store(const Event &e);

// Describes an event.
std::string describe(const Event &e);

} // namespace crash

#endif
