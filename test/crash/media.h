// SPDX-License-Identifier: BSD-3-Clause
//
// The rules of loss: which parts of a run may be on the media after a crash.
//
// Loss::Power (domains pmem and disk). Lines of 64 bytes are independent of one another. In a line
// cached stores persist as a prefix of their order; the last of that prefix, a memcpy, may persist
// in any subset of its 8-byte chunks. Streamed (non-temporal) chunks persist in any subset until
// their thread's fence. A flush captures the cached stores to its lines, and all stores of dead
// processes; only a fence of the thread that flushed makes them certain. Any line may also have
// left early, flushed or not. msync() makes its pages certain. A line with cached and streamed
// stores in flight has no defined order: a bug (mixed()).
//
// Loss::Cache (domain eadr): visible stores are durable, in the order in which they became visible.
// Streamed chunks persist in any subset until their thread's fence, or until their process is dead:
// a store that another process can see has left the CPU's buffers.
//
// Loss::Process (domain process): finished stores persist; of the store under way, any subset of
// its chunks. A kill in another domain leaves everything that is visible() between two events;
// parts of it that are not durable may still be lost later.
//
// Names, sizes, attributes, times (Loss::Power and Loss::Cache). Changes of one file (size,
// attribute, times) persist as a prefix of their order; fsync() of the file makes them certain. Its
// size alone also becomes certain by msync() of any page of it and, in pmem and eadr, by a store
// through the mapping (MAP_SYNC: the page fault does it). Changes of names in a folder persist as a
// prefix of their order among those that have a name in common, independent of all others; only
// fsync() of the folder makes them certain. fsync() of a file does not make its name certain: this
// loses more than any common file system may.
#ifndef ATO_TEST_CRASH_MEDIA_H
#define ATO_TEST_CRASH_MEDIA_H

#include "trace.h"

namespace crash
{

enum class Loss { Power, Cache, Process };

// The kind of loss in a domain (an ato_domain).
Loss loss_of(int domain);

// A fault of the rules: the effect of a line of the library that is missing or misplaced. Applied
// to the events of one site, so that the code under test needs no second version.
enum class Fault {
    None,
    Drop,  // the flush, fence or fsync does nothing
    Delay, // the fence moves behind the next store
    Late,  // the store comes after the return of the next operation
    Tear,  // the 8-byte store becomes two of 4 bytes
};

struct Mutation {
    Fault fault = Fault::None;
    std::string site;
};

// A change about which a crash decides.
struct Unit {
    uint32_t choices; // 0: nothing of it persists; choices - 1: all
    uint64_t group;   // units of one line, or one file, have the same group
};

class Media
{
  public:
    // faults_sync: stores make the metadata of their file certain (MAP_SYNC).
    Media(Disk start, Loss loss, bool faults_sync, Mutation mutation = {});

    void feed(const Event &e);
    // The process of all events is dead, or the one that `thread` stands for; others go on.
    void process_died(int thread = EVERY);

    // The media as a process sees them.
    const Disk &visible() const
    {
        return seen;
    }

    // The units about which a crash right now decides; `next` is under way (NULL: nothing). Valid
    // until the next feed().
    const std::vector<Unit> &units(const Event *next);
    // The media after a crash with this choice: a number below `choices` for each unit.
    Disk image(const std::vector<uint32_t> &choice) const;

    // The line with both kinds of stores in flight; "": none.
    const std::string &mixed() const
    {
        return mixture;
    }
    // The mutation has just made a moment that has to be cut.
    bool tender() const
    {
        return due != 0;
    }
    // Changes when the choices of a crash change.
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
        uint64_t needs;      // a change of size before it: the store needs that
        uint64_t until = 0;  // a change of size that cut it off: the store is lost with that
        bool orphan = false; // its process is dead
    };
    using Line = std::vector<Put>;
    struct Named { // a pending change of a folder
        Event e;
        uint64_t chain; // the same for changes with names in common
    };
    struct Subject { // the subject of a unit
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
    std::map<int, std::map<Key, uint64_t>> flushed; // by thread: captured up to which serial
    std::vector<Unit> now;
    std::vector<Subject> about;
    uint64_t serial = 0, changes = 0;
    std::string mixture;
    std::vector<Event> held; // Delay, Late
    int allows = 0;
    int due = 0; // the held events of this thread come before the next event

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
