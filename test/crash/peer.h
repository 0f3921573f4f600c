// SPDX-License-Identifier: BSD-3-Clause
//
// Another process beside the one of the run: a real one, so that locks, shared memory and death are real. The
// run waits meanwhile; what is done to the media comes to its trace, as of another thread.
#ifndef ATO_TEST_CRASH_PEER_H
#define ATO_TEST_CRASH_PEER_H

#include "recorder.h"

#include <functional>

#include <sys/types.h>

namespace crash
{

class Peer
{
  public:
    // Forks, and does `what` there, with a library that has nothing mapped; its last words are `last`. When it is
    // through it is killed, or `stays`, until this object goes.
    Peer(Recorder &recorder, bool stays, const std::function<void()> &what,
         const std::function<void(Pack &)> &last);
    ~Peer();
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    // Within it: it is killed before so many moments have passed from here. A moment: something done to the media,
    // or a place where threads may be switched.
    static void die_within(uint64_t moments);

    // What the files may hold, as it said last; nothing: it said nothing.
    std::vector<uint64_t> allowed;
    std::string words;

  private:
    pid_t pid;
};

} // namespace crash

#endif
