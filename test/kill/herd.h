/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kills and replaces processes that share files: one at a time or two at once, at random moments, half of
 * them within a call; sometimes all at once, and again while the next ones recover. In between a single
 * process checks everything.
 */
#ifndef ATO_TEST_KILL_HERD_H
#define ATO_TEST_KILL_HERD_H

#include "life.h"

namespace herds
{

class Herd
{
  public:
    explicit Herd(const Plan &plan);
    ~Herd();
    Herd(const Herd &) = delete;
    Herd &operator=(const Herd &) = delete;

    /* Runs the processes for this time, and for up to 30 s more until some kills came within a call that
     * writes. Returns "" if no process found an error, hung or failed. */
    std::string live(uint64_t ms);

    /* Lets all processes end by themselves. Then one more of each user checks everything, the last one makes
     * the files plain, and no other file is left. Returns "" or the error. */
    std::string end();

    uint64_t kills = 0, interrupted = 0, torn = 0;
    uint64_t operations(bool of_readers) const;

  private:
    void start(unsigned n);
    bool reap(unsigned n);
    void kill(const std::vector<unsigned> &victims);
    void kill_all();
    void aim_at(unsigned n);
    bool is_convincing() const;
    void look(unsigned user, End end);
    void look_for_hanging();
    std::string shared_memory() const;

    const Plan plan;
    rig::Folder folder;
    rig::Random random;
    Board *board;
    std::vector<int> pids;
    std::vector<uint64_t> progress, since;
    std::string wrong;
};

} // namespace herds

#endif
