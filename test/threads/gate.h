/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stops one thread in the middle of a call, for as long as a test likes.
 */
#ifndef ATO_TEST_THREADS_GATE_H
#define ATO_TEST_THREADS_GATE_H

#include <condition_variable>
#include <mutex>

namespace threads
{

/* Stops the thread that called arm() until it is released. `Where` names the places. */
template <class Where> class Gate
{
  public:
    Gate() = default;
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;

    /* The calling thread will stop at `where` when it comes there for the `nth` time. */
    void arm(Where where, unsigned nth)
    {
        mine = {this, where, nth};
    }
    void wait_until_stopped()
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [this] { return stopped; });
    }
    void let_go()
    {
        std::lock_guard<std::mutex> hold(lock);
        open = true;
        changed.notify_all();
    }

    /* Called by a thread that has come to `where`. */
    static void pass(Where where)
    {
        if (!mine.gate || mine.where != where || --mine.left)
            return;
        Gate *gate = mine.gate;
        mine.gate = nullptr;
        std::unique_lock<std::mutex> hold(gate->lock);
        gate->stopped = true;
        gate->changed.notify_all();
        gate->changed.wait(hold, [gate] { return gate->open; });
    }

  private:
    struct Armed {
        Gate *gate;
        Where where;
        unsigned left;
    };
    static inline thread_local Armed mine = {};
    std::mutex lock;
    std::condition_variable changed;
    bool stopped = false, open = false;
};

} // namespace threads

#endif
