// SPDX-License-Identifier: BSD-3-Clause
//
// Makes a call below the library fail, or the process die right before it: tables for the two seams (fsops,
// persist) that count, fail and cut, and otherwise call the real functions. For programs that link
// libato_seam_dep only. One object of each kind at a time; single-threaded use.
#ifndef ATO_TEST_SUPPORT_FAULTS_H
#define ATO_TEST_SUPPORT_FAULTS_H

extern "C" {
#include "reflection/media/fsops.h"
#include "reflection/media/persist.h"
}

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace support
{

// Results of a hook: go on, leave the process by _exit(CUT), or fail with this errno.
constexpr int GO_ON = 0;
constexpr int DIE = -1;

struct FsCall {
    const char *op;   // the table's entry
    std::string name; // if it takes one
    long index;       // from 0, of all calls seen
};

class FsFaults
{
  public:
    FsFaults();
    ~FsFaults();
    FsFaults(const FsFaults &) = delete;
    FsFaults &operator=(const FsFaults &) = delete;

    std::function<int(const FsCall &)> before; // may be empty
    std::vector<std::string> calls;            // "op name", in order

    void cut_at(long index);                      // die before that call
    void fail_at(long index, int err);            // that call fails, the others do not
    void fail_op(const std::string &op, int err); // each such call fails
    long count(const std::string &op) const;
};

// Calls through the persist table. Stores of nothing (an empty mask, no bytes) do not count.
struct PersistCounts {
    long scatter = 0, copy = 0;
    long store_word = 0, flip_rtm = 0;
    long flush_data = 0, flush_any = 0;
    long fence = 0, fence_threads = 0;

    bool operator==(const PersistCounts &other) const;
};
std::ostream &operator<<(std::ostream &out, const PersistCounts &c);

struct PersistCall {
    const char *op;
    const char *site; // file and line
    long index;
    const void *address; // of the store or flush; NULL for fences
    size_t n;            // bytes flushed; 0 for the others
};

class PersistFaults
{
  public:
    PersistFaults();
    ~PersistFaults();
    PersistFaults(const PersistFaults &) = delete;
    PersistFaults &operator=(const PersistFaults &) = delete;

    std::function<int(const PersistCall &)> before; // an errno is for flush_... alone
    PersistCounts counts;
    long events = 0;
    uint64_t slices = 0;      // stored by scatter
    uint64_t cold_slices = 0; // of them by scatter, to lines thought to be out of the caches
    int rtm = -1;             // hardware transactions: -1 are tried, 0 abort, 1 succeed

    void cut_at(long index);
    void die_at_flip(long n); // right before the n-th store of a word in lib/commit/commit.c
    PersistCounts take();     // the counts, which begin again
};

} // namespace support

#endif
