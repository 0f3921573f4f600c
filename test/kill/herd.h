/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How are processes that share files killed and replaced? One at a time or two at once, at random moments, half of
 * them within a call; now and then all at once, and then again while those that come
 * next recover. In between a process that is alone looks at everything.
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

    /* Lets the processes live and die for so long, and for up to 30 s more until some kills came within a
     * call that writes. "": none saw anything wrong, hung or failed. */
    std::string live(uint64_t ms);

    /* All end by themselves. Then one more of each user finds everything in order, the last one makes the files
     * plain, and nothing is left beside them. "" or what is wrong. */
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
