// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log, relaxed commits, and how many syncs all processes have made. By default the thread that syncs them sleeps for an
// hour: what is durable then, a call has made durable.
#ifndef ATO_TEST_UNIT_RELAXED_LAB_H
#define ATO_TEST_UNIT_RELAXED_LAB_H

#include "early_lab.h"

extern "C" {
#include "reflection/media/fsops.h"
}

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <new>
#include <thread>

#include <sys/mman.h>

namespace relaxed_lab
{

using namespace early_lab;

constexpr uint32_t HOUR = 3600000;

// Counts the syncs of this process and its children, of any thread, and lets them fail. One object at a time.
class Syncs
{
  public:
    Syncs() : table(fsops_real)
    {
        table.fdatasync = sync;
        fsops = &table;
    }
    ~Syncs()
    {
        fsops = &fsops_real;
        all().n = 0;
        all().error = 0;
    }
    Syncs(const Syncs &) = delete;
    Syncs &operator=(const Syncs &) = delete;

    static long take() // how many since the last take
    {
        return all().n.exchange(0);
    }
    static long n()
    {
        return all().n;
    }
    static void fail(int error)
    {
        all().error = error;
    }

  private:
    struct Shared {
        std::atomic<long> n{0};
        std::atomic<int> error{0};
    };
    static Shared &all()
    {
        static Shared *const shared =
            new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                Shared;
        return *shared;
    }
    static int sync(int fd)
    {
        all().n++;
        errno = all().error;
        return errno ? -1 : fsops_real.fdatasync(fd);
    }
    struct fsops table;
};

// Waits for what a thread does in its own time.
inline bool soon(const std::function<bool()> &is)
{
    for (int ms = 0; ms < 20000; ms++) {
        if (is())
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

inline long threads()
{
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
}

class RelaxedFile : public EarlyFile
{
  protected:
    static ato_options opt(uint32_t ms = HOUR, unsigned flags = ATO_RELAXED,
                           int domain = ATO_DOMAIN_DISK)
    {
        ato_options o = EarlyFile::opt(domain);
        o.flags = flags;
        o.relaxed_ms = ms;
        return o;
    }
    // Writes, and changes what all have to see.
    bool write(Mapped &m, const Piece &piece)
    {
        put(content, {piece});
        return m.write(piece.at, piece.bytes, piece.flags);
    }
    void expect_durable(const Mapped &m, const char *what)
    {
        syncs.take();
        EXPECT_EQ(ato_msync(m.base, 1, MS_SYNC), 0) << ato_errormsg();
        EXPECT_EQ(syncs.n(), 0) << what << ": it was not durable";
    }

    Syncs syncs;
};

} // namespace relaxed_lab

#endif
