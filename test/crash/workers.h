// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs in child processes, some at a time: what crashes or hangs in one is a finding, not the end.
#ifndef ATO_TEST_CRASH_WORKERS_H
#define ATO_TEST_CRASH_WORKERS_H

#include "pack.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <sys/types.h>

namespace crash
{

// Where a job is, in memory that outlives it.
class Whereabouts
{
  public:
    void tell(const std::string &place);

  private:
    friend class Workers;
    volatile uint64_t moves;
    char place[240];
};

class Workers
{
  public:
    // A job: leaves its outcome as bytes.
    using Job = std::function<std::string(Whereabouts &)>;

    struct Outcome {
        int job;
        std::string bytes;
        std::string death; // "": it ended well; else what it died of
        std::string place; // where it was last
    };

    explicit Workers(unsigned at_once);
    ~Workers();
    bool full() const
    {
        return running.size() >= limit;
    }
    bool idle() const
    {
        return running.empty();
    }
    void start(int job, const Job &work);
    Outcome wait(); // for the next one that ends

  private:
    struct Running {
        int job, pipe;
        Whereabouts *where;
        uint64_t moves;
        double since; // it last moved
        std::string bytes;
    };
    size_t limit;
    std::map<pid_t, Running> running;

    Outcome finish(pid_t pid, const std::string &reason);
};

// Seconds since some moment.
double now();

} // namespace crash

#endif
