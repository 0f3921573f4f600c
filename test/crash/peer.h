// SPDX-License-Identifier: BSD-3-Clause
//
// Another process beside the one of the run: a real one, so that locks, shared memory and death are
// real. The run waits meanwhile; the other process's events on the media are added to its trace, as
// events of another thread.
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
    // Forks, and runs `what` in the child, with a library that has nothing mapped; then the child
    // sends `last`. After that it is killed, or it `stays` until this object is destroyed.
    Peer(Recorder &recorder, bool stays, const std::function<void()> &what,
         const std::function<void(Pack &)> &last);
    ~Peer();
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    // Called in the child: it is killed before the n-th moment from here. A moment is an event on
    // the media, or a place where threads may be switched.
    static void die_within(uint64_t moments);

    // The contents that the files may have, from its last message; empty: there was none.
    std::vector<uint64_t> allowed;
    std::string words;

  private:
    pid_t pid;
};

} // namespace crash

#endif
