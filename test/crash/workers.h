// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs in child processes, several at a time: a job that crashes or hangs is a result, and the run
// goes on.
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

// The place where a job is, in memory that outlives it.
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
    // A job: returns its outcome as bytes.
    using Job = std::function<std::string(Whereabouts &)>;

    struct Outcome {
        int job;
        std::string bytes;
        std::string death; // "": it ended well; else the cause of its death
        std::string place; // its last place
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
    Outcome wait();                                          // waits for the next job that ends
    void stop(const std::function<bool(int job)> &is_meant); // these have no outcome

  private:
    struct Running {
        int job, pipe;
        Whereabouts *where;
        uint64_t moves;
        double since; // the time of its last progress
        std::string bytes;
    };
    size_t limit;
    std::map<pid_t, Running> running;

    Outcome finish(pid_t pid, const std::string &reason);
};

// Seconds since a fixed moment.
double now();

} // namespace crash

#endif
