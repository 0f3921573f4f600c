// SPDX-License-Identifier: BSD-3-Clause
//
// Records what the library does to the media, and in which order. The recorder takes over both
// seams: `persist` (stores, flushes, fences) and `fsops` (names, sizes, attributes, times, syncs).
// Each call is done on the real files, as far as a process can see it, and added to a trace.
//
// A process can be dead while this program lives on: its later calls have no effect, and are not
// recorded.
//
// Does not know the operations of the library, nor the rules of loss (media.h). One at a time in a
// process; threads make their calls one after the other (schedule.h).
#ifndef ATO_TEST_CRASH_RECORDER_H
#define ATO_TEST_CRASH_RECORDER_H

#include "files.h"
#include "trace.h"
#include "workers.h"

#include <functional>
#include <optional>
#include <set>

namespace crash
{

class Recorder
{
  public:
    explicit Recorder(Files &files); // takes over the seams
    ~Recorder();                     // gives them back
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;

    // Adds everything that is done to the media to `trace`, until record(nullptr).
    void record(Trace *trace);
    // How often that was a sync.
    uint64_t syncs() const;
    // Adds to the trace: from here on the files may have these contents.
    void allow(std::vector<uint64_t> contents, const Demand &demand);

    // The process dies after so many more events, of any kind or of one.
    void cut_short(size_t events, std::optional<Kind> of);
    // The process dies; its calls in `last` have no effect. Then there is another process.
    void die(const std::function<void()> &last);
    // Removes the shared memory.
    void forget_objects();

    // Another program writes to an original, with the time `mtime`, and syncs it. (Before the sync
    // a power cut may keep the bytes without the new mtime; then the write could not be noticed.)
    void write_outside(int original, uint64_t at, const Bytes &bytes, const Time &mtime);

    // For another process, forked, with a recorder of its own. go_apart() starts its own trace, as
    // of another thread; tell_apart() packs it; hear_apart() adds it to the trace here.
    void go_apart();
    std::string tell_apart() const;
    // `dies`: the process dies right after it. Returns the contents that the files may have, from
    // its last message.
    std::vector<uint64_t> hear_apart(Unpack &told, bool dies);

    // Runs `what` with the `persist` table that is used without a recorder.
    void quietly(const std::function<void()> &what);

    // Called by threads of the run before each of their events.
    std::function<void()> pause;

  private:
    Files &files;
    Trace *trace = nullptr;
    Trace apart;                   // the own trace of such a process
    int peers = 0;                 // the number of such processes so far
    std::vector<Time> times;       // of the originals, as in the trace
    std::set<std::string> objects; // shared memory
    bool dead = false;             // calls have no effect now
    size_t events_to_live = 0;     // 0: not limited
    std::optional<Kind> counted;   // the kind to count; any kind if empty

    friend struct Seams;
};

// The number of the calling thread in the trace, from 1.
void set_thread_number(int number);
int get_thread_number();

} // namespace crash

#endif
