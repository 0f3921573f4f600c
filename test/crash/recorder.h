// SPDX-License-Identifier: BSD-3-Clause
//
// What does the library do to the media, and in which order? The recorder takes over both seams:
// `persist` (stores, flushes, fences) and `fsops` (names, sizes, attributes, times, syncs). What
// comes through them is done to the real files, as far as a process could tell, and told to a
// trace.
//
// A process can be dead without a process: what it does then reaches nothing, and is not told.
//
// Does not know what the library was asked to do, nor what of it a crash may leave (media.h). One
// at a time in a process; threads do their things one after the other (schedule.h).
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
    explicit Recorder(Files &files); // has the seams from here on
    ~Recorder();                     // until here
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;

    // Everything that is done to the media goes there, until record(nullptr).
    void record(Trace *trace);
    // From here on the files may hold these contents, says the trace.
    void allow(std::vector<uint64_t> contents, const Demand &demand);

    // The process will be dead after so many events more, of any kind or of one.
    void cut_short(size_t events, std::optional<Kind> of);
    // The process dies; what it does in `last` reaches nothing. Then there is another.
    void die(const std::function<void()> &last);
    // Shared memory is gone.
    void forget_objects();

    // Another program writes to an original, its clock says `mtime`, and syncs it. (Before that a
    // power cut may keep its bytes and take its mtime, which nobody can see.)
    void write_outside(int original, uint64_t at, const Bytes &bytes, const Time &mtime);

    // For another process, which was forked and comes with a recorder of its own: there from here on it has a
    // trace of its own, as of another thread; then it tells; and here that is heard.
    void go_apart();
    std::string tell_apart() const;
    // `dies`: right behind that. What the files may hold, as it said last.
    std::vector<uint64_t> hear_apart(Unpack &told, bool dies);

    // With `persist` as it is without a recorder.
    void quietly(const std::function<void()> &what);

    // Called by threads of the run before each thing that they do.
    std::function<void()> pause;

  private:
    Files &files;
    Trace *trace = nullptr;
    Trace apart;                   // its own, of such a process
    int peers = 0;                 // there were so many
    std::vector<Time> times;       // of the originals, as the trace knows them
    std::set<std::string> objects; // shared memory
    bool dead = false;             // what is done now reaches nothing
    size_t events_to_live = 0;     // 0: no end in sight
    std::optional<Kind> counted;   // of which kind; any

    friend struct Seams;
};

// Of the calling thread, in the trace: from 1.
void set_thread_number(int number);
int get_thread_number();

} // namespace crash

#endif
