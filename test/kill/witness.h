/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the file of a history (ledger.h) through snapshots and plainly, and checks what it finds. history.h says what.
 */
#ifndef ATO_TEST_KILL_WITNESS_H
#define ATO_TEST_KILL_WITNESS_H

#include "history.h"

namespace histories
{

struct Process {
    Board &board;
    const Plan &plan;
    const std::string &path;
    const bool reads_only;
    rig::Map map = {}, epochs = {}; /* the second one with ATO_EPOCHS */
    std::atomic<bool> retires{false};

    bool is_over() const
    {
        return __atomic_load_n(&board.stopping, __ATOMIC_RELAXED) || retires;
    }
};

/* Ends the process. The board keeps the first failure of all processes. */
[[noreturn]] void fail(const Process &p, const std::string &what);

void raise_to(uint64_t &to, uint64_t n);
void count(const Process &p, Count what);

/* A snapshot, and what its first reading has found. */
struct Held {
    ato_snapshot *snapshot = nullptr;
    Bytes bytes;
};

class Witness
{
  public:
    Witness(const Process &process, uint64_t seed) : random(seed), p(process)
    {
    }

    /* Takes a snapshot and reads all of it, in pieces and in any order. Leaves it closed if it is given up, or if a writer has to free
     * pages first. */
    void take(Held &h);

    /* Reads pieces of it again. */
    void read_again(Held &h);

    void end(Held &h) const;

    /* Checks what a plain read finds. */
    void read_plainly() const;

    /* Something of that, with snapshots of its own. */
    void do_something();
    void end_all();

    rig::Random random;

  private:
    bool begin(Held &h) const;
    bool read_some(Held &h, size_t at, size_t n, void *to) const;
    void glance(unsigned actor) const;

    const Process &p;
    std::array<Held, 3> held = {};
};

} // namespace histories

#endif
