// SPDX-License-Identifier: BSD-3-Clause
//
// Relaxed commits of several threads, and the thread that syncs them: how it begins, and ends.
#include "relaxed_lab.h"

#include <pthread.h>
#include <sys/syscall.h>

using namespace relaxed_lab;

// thread_start() calls it when there is the new thread: which may run first, for so long.
static std::atomic<unsigned> delay_us{0};

extern "C" int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) noexcept
{
    if (delay_us && set && !before)
        usleep(delay_us);
    return syscall(SYS_rt_sigprocmask, how, set, before, 8) < 0 ? errno : 0;
}

namespace
{

class RelaxedThreads : public RelaxedFile
{
  protected:
    void TearDown() override
    {
        delay_us = 0;
    }
};

// Whoever is quicker.
TEST_F(RelaxedThreads, AreSyncedByAThreadThatBeginsSoonerOrLater)
{
    for (const unsigned us : {0, 5000, 0, 300}) {
        SCOPED_TRACE(us);
        delay_us = us;
        Mapped m(file, opt(1));
        ASSERT_TRUE(m) << m.sentence;
        for (uint8_t i = 0; i < 3; i++) {
            ASSERT_TRUE(write(m, {PAGE, Bytes(500, i)})) << m.sentence;
            ASSERT_TRUE(soon([&] { return syncs.n() > 0; })) << int(i);
            ASSERT_EQ(ato_msync(m.base, 1, MS_SYNC), 0); // its sync is over
            syncs.take();
        }
    }
}

// All begin it together; and when it ends all is durable.
TEST_F(RelaxedThreads, BeginOneThreadTogetherWhichEndsWithTheMapping)
{
    constexpr unsigned N = 3;
    const long before = threads();
    for (unsigned round = 0; round < 30 && !HasFailure(); round++) {
        delay_us = round % 3 ? round % 3 * 100 : 0;
        Mapped m(file, opt(round % 2 ? HOUR : 1));
        ASSERT_TRUE(m) << m.sentence;
        std::atomic<unsigned> ready{0};
        std::vector<std::thread> writers;
        for (unsigned i = 0; i < N; i++)
            writers.emplace_back([&, i] {
                ready++;
                while (ready < N)
                    ;
                EXPECT_TRUE(m.write((i + 1) * PAGE - 20, pattern(50, round + i))) << m.sentence;
            });
        for (std::thread &writer : writers)
            writer.join();
        for (unsigned i = 0; i < N; i++)
            put(content, {{(i + 1) * PAGE - 20, pattern(50, round + i)}});
        EXPECT_TRUE(soon([&] { return threads() == before + 1; })) << threads();
        ASSERT_EQ(m.unmap(round % 4 == 3 ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST), 0) << m.sentence;
        EXPECT_EQ(threads(), before);
    }
    expect_after_all("at the end");
}

// Each commit is of two places, which always have the same number.
TEST_F(RelaxedThreads, AreWholeBesideAllThatOthersDo)
{
    constexpr unsigned N = 3;
    constexpr size_t FAR = 30 * PAGE;
    ato_options o = opt(1);
    o.log_bytes = 64 << 10;
    o.snapshot_bytes = 256 << 10;
    write_file(file, Bytes(SIZE));
    Mapped m(file, o), plain(file, opt(1, 0));
    ASSERT_TRUE(m && plain) << m.sentence << plain.sentence;
    std::atomic<bool> over{false};
    std::atomic<unsigned> whole{0};
    std::atomic<uint64_t> done[N] = {};
    std::vector<std::thread> all;
    for (unsigned i = 0; i < N; i++)
        all.emplace_back([&, i] {
            const size_t at = i * PAGE + PAGE / 2; // shared pages
            for (uint64_t n = 1; !over; n++) {
                const ato_iovec both[] = {{m.base + at, &n, 8}, {m.base + FAR + at, &n, 8}};
                EXPECT_EQ(ato_writev(both, 2, i ? ATO_RELAXED : 0), 0) << ato_errormsg();
                done[i] = n;
            }
        });
    all.emplace_back([&] {
        for (unsigned n = 0; !over; n++) {
            uint64_t least[N];
            std::copy(done, done + N, least);
            Snap snap(m.base);
            for (unsigned i = 0; i < N; i++) {
                const size_t at = i * PAGE + PAGE / 2;
                const Bytes near = snap.read(at, 8),
                            far = near.empty() ? near : snap.read(FAR + at, 8);
                if (snap.error == ESTALE)
                    break; // there was no more room for it
                uint64_t is = 0;
                ASSERT_TRUE(near == far && near.size() == 8) << snap.sentence;
                whole++;
                std::copy(near.begin(), near.end(), reinterpret_cast<unsigned char *>(&is));
                EXPECT_GE(is, least[i]);
            }
        }
    });
    const std::function<bool(unsigned)> deeds[] = {
        [&](unsigned) { return ato_msync(m.base, 1, MS_SYNC) == 0; },
        [&](unsigned n) { return plain.write(50 * PAGE, Bytes(700, uint8_t(n))); },
        [&](unsigned) { return ato_deploy(m.base, SIZE) == 0; },
        [&](unsigned n) { return ato_ftruncate(m.base, SIZE + n % 2 * PAGE) == 0; },
    };
    const auto enough = [&] {
        return whole > 60 &&
               std::all_of(done, done + N, [](const std::atomic<uint64_t> &n) { return n > 60; });
    };
    for (unsigned n = 0; (n < 120 || !enough()) && !HasFailure(); n++)
        EXPECT_TRUE(deeds[n % 4](n / 4)) << n << ato_errormsg();
    over = true;
    for (std::thread &thread : all)
        thread.join();
    for (unsigned i = 0; i < N; i++) {
        const uint64_t n = done[i];
        Bytes number(8);
        std::copy_n(reinterpret_cast<const unsigned char *>(&n), 8, number.begin());
        EXPECT_TRUE(m.read(i * PAGE + PAGE / 2, 8) == number);
    }
    content = m.read();
    ASSERT_EQ(plain.unmap(ATO_UNMAP_FAST), 0) << plain.sentence;
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    content.resize(size_of(file));
    EXPECT_TRUE(read_file(file) == content);
}

} // namespace
