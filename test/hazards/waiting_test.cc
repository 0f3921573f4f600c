// SPDX-License-Identifier: BSD-3-Clause
//
// Two threads copy between two mappings, in both directions at once; one copies within a range that it copies
// from. A program that locks the destination first, and then the source, waits in a cycle for ever. The
// library reserves both sides in one order, the same for all threads. (Only
// transactions get EDEADLK.)
#include "naive.h"
#include "support/child.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <set>
#include <thread>

#include <unistd.h>

extern "C" {
#include "reflection/media/seam.h"
}

namespace
{

// ---- the naive way, with locks that are tried: a taken one would be waited for -------------------

struct Lock {
    bool taken = false;
    bool had()
    {
        bool free = !taken;
        taken = true;
        return free;
    }
};

// Two threads, each with the locks that it takes in its order. They move in turn. True if both finish; false
// if both wait.
bool both_end(const std::vector<Lock *> &one, const std::vector<Lock *> &two)
{
    const std::vector<Lock *> *all[2] = {&one, &two};
    size_t held[2] = {0, 0};
    bool moved = true;
    while (moved) {
        moved = false;
        for (int thread : {0, 1}) {
            if (held[thread] == all[thread]->size() || !(*all[thread])[held[thread]]->had())
                continue;
            moved = true;
            if (++held[thread] == all[thread]->size()) // finished: gives all of them back
                for (Lock *lock : *all[thread])
                    lock->taken = false;
        }
    }
    return held[0] == one.size() && held[1] == two.size();
}

TEST(WaitingInTheNaiveWay, DestinationFirstIsACycleAndOneOrderIsNot)
{
    Lock a, b;
    EXPECT_FALSE(both_end({&b, &a}, {&a, &b})) << "A to B and B to A, destinations first";
    a = b = {};
    EXPECT_TRUE(both_end({&a, &b}, {&a, &b}));
    // A cycle of one thread: source and destination are the same page.
    a = b = {};
    EXPECT_FALSE(both_end({&a, &a}, {}));
}

// ---- the library --------------------------------------------------------------------------------

class Waiting : public Hazard
{
  protected:
    Waiting()
    {
        write_file(second, theirs);
    }

    std::string second = dir / "second";
    const Bytes theirs = pattern(SIZE, 7);
};

// The states of the pages that a call reserves, in its order.
class Reservations
{
  public:
    Reservations()
    {
        seen.clear();
        seam_hook = [](enum seam_point point, const void *about) {
            if (point == SEAM_RESERVED)
                seen.push_back(about);
        };
    }
    ~Reservations()
    {
        seam_hook = nullptr;
    }
    static std::vector<const void *> seen;
};
std::vector<const void *> Reservations::seen;

TEST_F(Waiting, CopiesInBothDirectionsReserveTheSamePagesInTheSameOrder)
{
    Mapped a(path), b(second);
    ASSERT_TRUE(a && b);
    std::vector<const void *> order;
    for (int direction : {0, 1}) {
        Reservations reservations;
        char *to = direction ? a.base : b.base, *from = direction ? b.base : a.base;
        ASSERT_EQ(ato_memcpy(to + 100, from + 100, 9000), to + 100) << ato_errormsg();
        if (direction == 0)
            order = reservations.seen;
        EXPECT_EQ(order.size(), 6u);
        EXPECT_EQ(reservations.seen, order);
    }
}

// A page on both sides is reserved once: with a second reservation the thread would wait for itself.
TEST_F(Waiting, CopyWithinAFileReservesEachPageOnce)
{
    for (size_t to : {size_t(0), size_t(100), size_t(4096), size_t(6000)}) {
        int status = in_child([&] {
            Mapped a(path);
            Reservations reservations;
            seam_hook = [](enum seam_point point, const void *about) {
                if (point == SEAM_WAIT) // the only thread must not wait
                    _exit(CUT);
                if (point == SEAM_RESERVED)
                    Reservations::seen.push_back(about);
            };
            EXPECT_NE(ato_memcpy(a.base + to, a.base + 2000, 9000), nullptr) << ato_errormsg();
            std::set<const void *> once(Reservations::seen.begin(), Reservations::seen.end());
            EXPECT_EQ(once.size(), Reservations::seen.size());
            return static_cast<int>(HasFailure());
        });
        EXPECT_EQ(status, 0) << to << (status == CUT ? ": waits for itself" : "");
    }
}

// A copy in one direction would read bytes that it has just written.
TEST_F(Waiting, OverlappingCopyActsAsMemmove)
{
    for (int shift : {-5000, -4096, -64, -1, 1, 63, 64, 4096, 5000}) {
        SCOPED_TRACE(shift);
        const size_t from = 6000, n = 6000, to = from + static_cast<size_t>(shift);
        Mapped a(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(a) << a.sentence;
        Bytes naive = content;
        for (size_t i = 0; i < n; i++) // the wrong end first
            if (shift > 0)
                naive[to + i] = naive[from + i];
            else
                naive[to + n - 1 - i] = naive[from + n - 1 - i];
        memmove(&content[to], &content[from], n);
        EXPECT_NE(naive, content);
        ASSERT_NE(ato_memcpy(a.base + to, a.base + from, n), nullptr) << ato_errormsg();
        EXPECT_EQ(a.read(), content);
    }
}

// Threads that copy in opposite directions, and one within a file. SIGALRM ends a hang, in a child.
TEST_F(Waiting, CopiesInOppositeDirectionsAllFinish)
{
    int status = in_child([&] {
        alarm(60);
        Mapped a(path), b(second);
        if (!a || !b)
            return 1;
        std::atomic<int> bad{0};
        auto copies = [&](char *to, char *from, size_t n) {
            return std::thread([=, &bad] {
                for (int i = 0; i < 3000; i++)
                    bad += ato_memcpy(to, from, n) != to;
            });
        };
        std::thread all[] = {copies(b.base, a.base, 13000), copies(a.base, b.base, 13000),
                             copies(a.base + 1000, a.base, 13000),
                             copies(b.base + 100, a.base + 5000, 9000)};
        for (std::thread &one : all)
            one.join();
        EXPECT_EQ(bad, 0);
        EXPECT_EQ(a.stat().writes + b.stat().writes, 12000u);
        return static_cast<int>(HasFailure());
    });
    EXPECT_EQ(status, 0) << (status == 256 + SIGALRM ? "they wait for each other" : "");
}

// A copy that releases the source before the destination is committed copies bytes of another thread's write.
TEST_F(Waiting, CopyHoldsBothSidesUntilItHasCommitted)
{
    Mapped a(path), b(second);
    ASSERT_TRUE(a && b);
    static std::string moments; // R reserved, D durable, L released
    moments.clear();
    seam_hook = [](enum seam_point point, const void *) {
        if (point == SEAM_RESERVED)
            moments += 'R';
        else if (point == SEAM_DURABLE)
            moments += 'D';
        else if (point == SEAM_RELEASE)
            moments += 'L';
    };
    EXPECT_NE(ato_memcpy(b.base + 100, a.base + 100, 13000), nullptr) << ato_errormsg();
    seam_hook = nullptr;
    EXPECT_EQ(moments, "RRRRRRRRDLLLLLLLL");
}

// Each copy is atomic: both files end with the same content, although the copies were in opposite directions.
TEST_F(Waiting, CopiesInOppositeDirectionsLeaveNoMixture)
{
    Mapped a(path), b(second);
    ASSERT_TRUE(a && b);
    constexpr size_t N = 13000;
    Bytes one(content.begin(), content.begin() + N), two(theirs.begin(), theirs.begin() + N);
    for (int i = 0; i < 200; i++) {
        ASSERT_TRUE(a.write(0, one) && b.write(0, two));
        std::thread there([&] { ato_memcpy(b.base, a.base, N); });
        ato_memcpy(a.base, b.base, N);
        there.join();
        Bytes left = a.read(0, N), right = b.read(0, N);
        ASSERT_TRUE(left == one || left == two);
        ASSERT_EQ(left, right) << "the second copy found what the first one left";
    }
}

} // namespace
