// SPDX-License-Identifier: BSD-3-Clause
//
// Records a run once, and explores its crashes off line: every crash of a case in a domain that the
// bounds allow. The library recovers each image; some recoveries are cut again.
//
// Cuts: before every fence, msync and fsync, at every return of an operation, and at the end; in
// eadr also before every store, in process before every event. Between two cuts the choices only
// grow. Kills in the other domains: before some of the events, at random.
//
// A separate reader (reader.h) reads each distinct image. Then the image is laid out as files, and
// the library maps and reads it; in turn the files are made plain, unmapped and mapped again, or
// recovered once more. If the files belong to a program, the program reads every second image
// before that. For some images a second life is recorded: a recovery and the next operation. It is
// cut in turn, either after a power cut (nothing is pending any more) or after a kill (everything
// that the dead process did not make durable is still pending).
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
    uint64_t apart = 1;        // cuts at one moment in so many, and at each start of a life
    uint64_t images = 45;      // for each cut
    uint64_t whole = 0;        // a cut with at most so many images is explored completely
    uint64_t lives = 6;        // second lives, spread over the case
    uint64_t inner_lives = 2;  // of each later life
    uint64_t life_images = 12; // for each cut of a later life
    unsigned depth = 2;        // the number of lives at most
};

// A place in a case: the event of the trace and the number of the choice, for each life. `life` in
// both: the violation is in the life itself, not in a crash of it.
struct Place {
    std::string event, choice;
};

struct Failure {
    Place place;
    std::string what;
};

struct Result {
    std::unordered_set<uint64_t> images; // their hashes
    uint64_t recoveries = 0;
    std::set<std::string> own_sites, sites; // places of the library in the first life; in all lives
    std::vector<Failure> failures;
};

class Explorer
{
  public:
    Explorer(const Case &what, int domain, bool sparse, uint64_t seed, const std::string &folder,
             const Bounds &bounds, const Mutation &mutation = {});

    // Told of each place, for progress and for a job that hangs.
    std::function<void(const Place &)> progress;
    // True once the time is over: the rest is skipped. Not used for a replay.
    std::function<bool()> is_over = [] { return false; };

    Result run();
    // Replays one crash; describes it in `story`.
    Result replay(const Place &place, std::string &story);

  private:
    const Case &what;
    const int domain;
    const bool sparse;
    const uint64_t seed;
    const std::string folder;
    const Bounds bounds;
    const Mutation mutation;
    const Loss loss;
    Result result;
    World *world = nullptr;
    std::unordered_set<uint64_t> seen; // images, with the contents allowed for them
    Random luck;
    Demand demand;        // of the current moment
    bool came_by = false; // an earlier life reached the place of the mutation
    std::vector<std::string> wanted_events, wanted_choices; // of a replay
    std::string *story = nullptr;

    struct Life { // the life that is cut
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
