// SPDX-License-Identifier: BSD-3-Clause
//
// Record once, enumerate off line: every crash of a case in a domain that the bounds allow, each
// recovered by the library itself, some of them crashed again.
//
// Cuts: before every fence, msync and fsync, at every return of an operation, and at the end; in eadr
// before every store too, in process before every event. In between choices only grow. Kills in the other
// domains: before some of the events, at random.
//
// Each distinct image is read by a reader of its own (reader.h), then laid out as files, mapped and
// read by the library; then by turns made plain, unmapped and mapped again, or recovered once more.
// Where the files are a program's it looks too, every second time, before that.
// Of some images a second life is recorded, which is a recovery and the next operation on top, and
// cut in its turn: after a power cut (nothing is pending any more) or after a kill (everything that
// the dead process did not make durable still is).
#ifndef ATO_TEST_CRASH_EXPLORER_H
#define ATO_TEST_CRASH_EXPLORER_H

#include "cases.h"
#include "choices.h"
#include "standins.h"

#include <set>
#include <unordered_set>

namespace crash
{

struct Bounds {
    uint64_t apart = 1;        // of so many moments one, and each where a life begins
    uint64_t images = 45;      // a cut
    uint64_t whole = 0;        // a cut that has no more than these is looked at wholly
    uint64_t lives = 6;        // second ones, spread over the case
    uint64_t inner_lives = 2;  // of each life after that
    uint64_t life_images = 12; // a cut of them
    unsigned depth = 2;        // lives at most
};

// Where in a case: event of the trace and number of the choice, of each life. `life` for both: not a
// crash of that life, but what it does.
struct Place {
    std::string event, choice;
};

struct Failure {
    Place place;
    std::string what;
};

struct Result {
    std::unordered_set<uint64_t> images; // hashes
    uint64_t recoveries = 0;
    std::set<std::string> own_sites, sites; // that events of the first life, of all came from
    std::vector<Failure> failures;
};

class Explorer
{
  public:
    Explorer(const Case &what, int domain, uint64_t seed, const std::string &folder,
             const Bounds &bounds, const Mutation &mutation = {});

    // Told where it is, for whoever watches.
    std::function<void(const Place &)> progress;
    // True once the time is over: what is left is skipped. Not asked for a replay.
    std::function<bool()> is_over = [] { return false; };

    Result run();
    // That one crash again; tells what it is about.
    Result replay(const Place &place, std::string &story);

  private:
    const Case &what;
    const int domain;
    const uint64_t seed;
    const std::string folder;
    const Bounds bounds;
    const Mutation mutation;
    const Loss loss;
    Result result;
    World *world = nullptr;
    std::unordered_set<uint64_t> seen; // image and what is allowed
    Random luck;
    Demand demand;        // of what is cut
    bool came_by = false; // the place of the mutation is in a life before
    std::vector<std::string> wanted_events, wanted_choices; // of a replay
    std::string *story = nullptr;

    struct Life { // what is being cut
        Trace trace;
        Media start;
        unsigned depth;
        Place place; // of the crash before it
        uint64_t boot;
    };

    void go();
    void sweep(const Life &life);
    void cut(const Life &life, Media &media, size_t event, const std::vector<uint64_t> &allowed);
    void kill(const Life &life, Media &media, size_t event, const std::vector<uint64_t> &allowed);
    bool chance(const Life &life);
    void visit(const Life &life, Media &media, const Place &place, const Disk &image, After after,
               const std::vector<uint64_t> &allowed, bool live_on);
    bool before_mutation() const;
    bool concerns(const Trace &trace) const;
    Found look_at(const Disk &image, int file) const;
    std::vector<Found> read_raw(const Disk &image, const std::vector<uint64_t> &allowed);
    void recover(const Life &life, const Disk &image, After after, const std::vector<Found> &found,
                 uint64_t how);
    void live(const Life &before, const Media &media, const Place &place, const Disk &image,
              After after, const std::vector<uint64_t> &allowed);
    void work_on(Actor &actor, Mapping *m, int policy);
    void work_blindly(Actor &actor, Mapping *m);
    void honest(const Media &start, const Trace &trace);
    void tell(const Life &life, size_t event, const std::vector<Unit> &units,
              const std::vector<uint32_t> &choice);
    bool is_wanted(unsigned depth, const std::string &event, const std::string &choice) const;
};

} // namespace crash

#endif
