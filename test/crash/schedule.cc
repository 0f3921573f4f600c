// SPDX-License-Identifier: BSD-3-Clause
#include "schedule.h"

extern "C" {
#include "reflection/media/copy.h"
#include "reflection/media/seam.h"

const struct copy_kernel *__real_copy_best(void);
const struct copy_kernel *__wrap_copy_best(void);
}

#include <algorithm>

#include <condition_variable>
#include <cstdarg>
#include <exception>
#include <mutex>
#include <thread>

#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>

#include <pthread.h>

namespace crash
{

namespace
{

class Scheduler
{
  public:
    // Half of the seeds switch anywhere. The others let one thread run as long as it can, and
    // change its rank now and then: so a whole operation fits between two steps of another thread.
    Scheduler(size_t threads, uint64_t seed)
        : random(seed), by_rank(random.one_in(2)), done(threads), ranks(threads)
    {
        for (uint64_t &r : ranks)
            r = 1 + random.below(1 << 20);
    }

    // The calling thread waits for its first turn.
    void enter(size_t me)
    {
        std::unique_lock<std::mutex> hold(lock);
        turn.wait(hold, [&] { return current == me; });
    }

    // `waits`: the thread cannot go on before another one has done something.
    void pause(size_t me, bool waits)
    {
        std::unique_lock<std::mutex> hold(lock);
        if (by_rank)
            rank(me, waits);
        pick();
        turn.notify_all();
        turn.wait(hold, [&] { return current == me; });
    }

    void leave(size_t me)
    {
        std::unique_lock<std::mutex> hold(lock);
        done[me] = true;
        pick();
        turn.notify_all();
    }

    void start()
    {
        std::unique_lock<std::mutex> hold(lock);
        pick();
        turn.notify_all();
    }

  private:
    std::mutex lock;
    std::condition_variable turn;
    Random random;
    bool by_rank;
    std::vector<bool> done;
    std::vector<uint64_t> ranks;
    size_t current = ~0ull;

    void rank(size_t me, bool waits)
    {
        uint64_t least = ~0ull;
        for (uint64_t r : ranks)
            least = std::min(least, r);
        if (waits)
            ranks[me] = least ? least - 1 : 0;
        else if (random.one_in(16))
            ranks[me] = 1 + random.below(1 << 20);
    }

    void pick()
    {
        std::vector<size_t> left;
        for (size_t i = 0; i < done.size(); i++)
            if (!done[i])
                left.push_back(i);
        if (left.empty())
            return;
        if (by_rank) {
            current = left[random.below(left.size())]; // among equals, any
            for (size_t i : left)
                if (ranks[i] > ranks[current])
                    current = i;
            return;
        }
        // Sometimes longer runs of one thread: not every pair of steps is separated.
        bool stay = current < done.size() && !done[current] && random.one_in(3);
        if (!stay)
            current = left[random.below(left.size())];
    }
};

Scheduler *scheduler;
thread_local size_t my_number;
thread_local bool scheduled; // this thread is one of the scheduler's, and in the library

// The time of the threads. How long they wait must depend on the seed only.
uint64_t now_ns;
constexpr uint64_t LOOK_NS = 1000, SLEEP_NS = 250 * 1000;

void hand_over(bool waits = false)
{
    if (!scheduled)
        return;
    scheduled = false; // the scheduler has locks of its own
    scheduler->pause(my_number, waits);
    scheduled = true;
}

// A reader may be overtaken between any two slices.
void gather(char *dst, const char *o, const char *r, uint64_t bitmap, uint64_t mask)
{
    static const struct copy_kernel *const real = __real_copy_best();
    if (!scheduled) {
        real->gather(dst, o, r, bitmap, mask);
        return;
    }
    hand_over();
    for (unsigned i = 0; i < 64; i += 16) {
        uint64_t some = mask & 0xffffull << i;
        if (!some)
            continue;
        real->gather(dst, o, r, bitmap, some);
        hand_over();
    }
}

} // namespace

void run_scheduled(World &world, const std::vector<std::function<void()>> &bodies, uint64_t seed)
{
    Scheduler s(bodies.size(), seed);
    scheduler = &s;
    now_ns = 0;
    world.set_pause([] { hand_over(); });
    seam_hook = [](enum seam_point point, const void *) { hand_over(point == SEAM_WAIT); };
    int base = get_thread_number();
    std::vector<std::exception_ptr> thrown(bodies.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < bodies.size(); i++)
        threads.emplace_back([&, i] {
            my_number = i;
            set_thread_number(base * 100 + static_cast<int>(i));
            s.enter(i);
            scheduled = true;
            try {
                bodies[i]();
            } catch (...) {
                thrown[i] = std::current_exception();
            }
            scheduled = false;
            s.leave(i);
        });
    s.start();
    for (std::thread &t : threads)
        t.join();
    seam_hook = nullptr;
    world.set_pause(nullptr);
    scheduler = nullptr;
    for (const std::exception_ptr &e : thrown)
        if (e)
            std::rethrow_exception(e);
}

} // namespace crash

// A thread that would sleep hands over instead: else the thread with the lock could not run.
extern "C" {

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    if (!crash::scheduled)
        return __real_pthread_mutex_lock(m);
    while (pthread_mutex_trylock(m) != 0)
        crash::hand_over(true);
    return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    if (!crash::scheduled)
        return __real_pthread_cond_wait(c, m);
    pthread_mutex_unlock(m); // a spurious wake-up, which is allowed
    crash::hand_over(true);
    return __wrap_pthread_mutex_lock(m);
}

// A sleep for a page: a hook of the same thread follows right after it.
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (long &each : a)
        each = va_arg(list, long);
    va_end(list);
    if (crash::scheduled && number == SYS_futex && a[1] == FUTEX_WAIT) {
        crash::now_ns += crash::SLEEP_NS;
        return 0;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// A nap: for a lane.
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    if (!crash::scheduled)
        return __real_nanosleep(t, left);
    crash::now_ns += static_cast<uint64_t>(t->tv_nsec);
    crash::hand_over(true);
    return 0;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    if (!crash::scheduled)
        return __real_clock_gettime(id, t);
    crash::now_ns += crash::LOOK_NS;
    *t = {static_cast<time_t>(crash::now_ns / 1000000000),
          static_cast<long>(crash::now_ns % 1000000000)};
    return 0;
}

const struct copy_kernel *__wrap_copy_best(void)
{
    static const struct copy_kernel stumbling = [] {
        struct copy_kernel k = *__real_copy_best();
        k.gather = crash::gather;
        return k;
    }();
    return &stumbling;
}

} // extern "C"
