// SPDX-License-Identifier: BSD-3-Clause
//
// What of a run may be on the media after a crash: the rules, and nothing else.
//
// Loss::Power (domains pmem and msync). Lines of 64 bytes are independent of one another. In a line
// cached stores persist as a prefix of their order; the last of that prefix, a memcpy, may be there
// in any subset of its 8-byte chunks. Streamed (non-temporal) chunks persist in any subset until
// their thread's fence. A flush captures what its lines hold of cached stores, and of all stores
// of processes that are dead; only a fence of the thread that flushed makes that certain. Any line
// may also have left early, flushed or not. msync() makes the pages that it names certain. A line
// with cached and streamed stores in flight has no defined order: a bug (mixed()).
//
// Loss::Cache (domain eadr): what is visible is durable, in the order in which it became visible.
// Streamed chunks persist in any subset until their thread's fence, or until its process is dead:
// what another process can see has left the CPU's buffers.
//
// Loss::Process (domain process): what was done is there; of the store under way, any subset of its
// chunks. A kill in another domain leaves what is visible() between two events; what is not durable then
// may still be lost later.
//
// Names, sizes, attributes, times (Loss::Power and Loss::Cache). What concerns one file (size,
// attribute, times) persists as a prefix of its order, made certain by fsync() of the file. Its size
// alone is made certain by msync() of any page of it too, and, in pmem and eadr, by a store through
// the mapping (MAP_SYNC: the page fault does it). Names of a folder persist as a prefix of their
// order among those that have a name in common, independent of all others, made certain by fsync()
// of the folder alone. fsync() of a file does not make its name certain: more than any common file
// system may lose.
#ifndef ATO_TEST_CRASH_MEDIA_H
#define ATO_TEST_CRASH_MEDIA_H

#include "trace.h"

namespace crash
{

enum class Loss { Power, Cache, Process };

// By which of them a domain loses (an ato_domain).
Loss loss_of(int domain);

// A fault put into the rules: what if this line of the library were missing or misplaced? Applied to
// the events of one site, so that the code under test needs no second version.
enum class Fault {
    None,
    Drop,  // the flush, fence or fsync does nothing
    Delay, // the fence comes behind the next store
    Late,  // the store comes when the next operation has returned
    Tear,  // the 8-byte store is two of 4 bytes
};

struct Mutation {
    Fault fault = Fault::None;
    std::string site;
};

// Something about which a crash decides.
struct Unit {
    uint32_t choices; // 0: nothing of it is there; choices - 1: all
    uint64_t group;   // units of one line, or one file, go together
};

class Media
{
  public:
    // faults_sync: stores make the metadata of their file certain (MAP_SYNC).
    Media(Disk start, Loss loss, bool faults_sync, Mutation mutation = {});

    void feed(const Event &e);
    // The process that did all this is dead, or that one which was this thread; others go on.
    void process_died(int thread = EVERY);

    // All of it, as a process sees it.
    const Disk &visible() const
    {
        return seen;
    }

    // What a crash right now decides about; `next` is under way (NULL: nothing). Valid until the
    // next feed().
    const std::vector<Unit> &units(const Event *next);
    // The media after it decided so: a number below `choices` for each unit.
    Disk image(const std::vector<uint32_t> &choice) const;

    // Which line had both kinds of stores in flight; "": none.
    const std::string &mixed() const
    {
        return mixture;
    }
    // A mutation has just made a moment that deserves to be cut.
    bool tender() const
    {
        return due != 0;
    }
    // Moves when something is done that a crash may decide about, or no longer.
    uint64_t version() const
    {
        return changes;
    }

    static constexpr int EVERY = 0;

  private:
    using Key = std::pair<int, uint64_t>; // inode, offset / 64
    struct Put {
        std::array<uint64_t, 8> value;
        uint8_t mask; // chunks
        bool stream, torn;
        int thread;
        uint64_t serial;
        uint64_t needs;      // a change of size that it came behind: not there without that
        uint64_t until = 0;  // a change of size that cut it off: not there with that
        bool orphan = false; // its process is dead
    };
    using Line = std::vector<Put>;
    struct Named { // a pending change of a folder
        Event e;
        uint64_t chain; // those that have names in common
    };
    struct Subject { // what a unit is about
        enum { Versions, Prefix, Meta, Names } kind;
        Key key;               // Versions, Prefix; inode in `first`: Meta, Names
        int chunk;             // Versions
        std::vector<Put> puts; // Versions, Prefix
        uint64_t chain;        // Names
    };

    Disk sure, seen;
    Loss loss;
    bool faults_sync;
    Mutation mutation;
    std::map<Key, Line> lines;
    struct Meta {
        uint64_t serial, size_before;
        Event e;
    };
    std::map<int, std::vector<Meta>> metas;         // by inode
    std::map<int, std::vector<Named>> names;        // by folder
    std::map<int, std::map<Key, uint64_t>> flushed; // by thread: up to which serial
    std::vector<Unit> now;
    std::vector<Subject> about;
    uint64_t serial = 0, changes = 0;
    std::string mixture;
    std::vector<Event> held; // Delay, Late
    int allows = 0;
    int due = 0; // those of this thread come before the next event

    bool mutated(const Event &e, Fault f) const
    {
        return mutation.fault == f && mutation.site == e.site;
    }
    bool withhold(const Event &e);
    void take(const Event &e);
    std::map<Key, Put> puts_of(const Event &e) const;
    uint64_t needs_of(const Chunk &c) const;
    void store(const Event &e);
    void cut_off(const Event &e);
    void fence(int thread);
    void settle(const Key &key, Line &line, uint64_t upto, int streams_of);
    void settle_range(int inode, uint64_t first, uint64_t last);
    void settle_meta(int inode, bool size_only);
    void settle_names(int folder);
    void change_names(const Event &e);
    void add_units(const Key &key, const Line &line);
};

} // namespace crash

#endif
