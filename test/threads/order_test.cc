/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is the result of concurrent calls that of some order of them? Transfers that keep a sum, copies in opposite
 * directions, fields of many threads in one slice, and counters of more threads than there are thread
 * numbers.
 */
#include "chaos.h"
#include "path.h"

#include <atomic>
#include <pthread.h>
#include <thread>

namespace threads
{

namespace
{

class Barrier
{
  public:
    explicit Barrier(unsigned n)
    {
        pthread_barrier_init(&at, nullptr, n);
    }
    ~Barrier()
    {
        pthread_barrier_destroy(&at);
    }
    Barrier(const Barrier &) = delete;
    Barrier &operator=(const Barrier &) = delete;
    void wait()
    {
        pthread_barrier_wait(&at);
    }

  private:
    pthread_barrier_t at;
};

} // namespace

class Order : public OnPath
{
  protected:
    void make(const std::vector<unsigned char> &bytes)
    {
        path = folder / "file";
        ASSERT_TRUE(rig::write_file(path, bytes));
        map_again(bytes.size());
    }
    void map_again(size_t n)
    {
        map = rig::Map(); /* the old one goes first */
        map = rig::Map(path, n, GetParam().options());
        ASSERT_TRUE(map.base) << ato_errormsg();
        Chaos::within(map);
    }

    rig::Folder folder;
    std::string path;
    rig::Map map;
};

/* Accounts over many pages; each transfer is one call, from the lower account to the upper one. */
TEST_P(Order, ATransferIsSeenInBothAccountsOrInNone)
{
    SCOPED_TRACE(rig::replay());
    Chaos chaos;
    constexpr size_t ACCOUNTS = 6000, BEGIN = 29, EACH = 1000;
    std::vector<uint64_t> accounts(ACCOUNTS, EACH);
    std::vector<unsigned char> bytes(BEGIN + ACCOUNTS * 8 + 5);
    std::memcpy(bytes.data() + BEGIN, accounts.data(), ACCOUNTS * 8);
    make(bytes);
    if (HasFatalFailure())
        return;
    std::atomic<bool> over{false};
    std::atomic<unsigned> wrong{0}, failed{0}, reads{0};
    auto read = [&] {
        std::vector<uint64_t> seen(ACCOUNTS);
        do {
            if (!ato_memcpy(seen.data(), map.base + BEGIN, ACCOUNTS * 8))
                failed++;
            uint64_t sum = 0;
            for (uint64_t a : seen)
                sum += a;
            wrong += sum != EACH * ACCOUNTS;
            reads++;
        } while (!over);
    };
    auto deploy = [&] {
        while (!over) {
            failed += ato_deploy(map.base + BEGIN, ACCOUNTS * 8) < 0;
            std::this_thread::yield();
        }
    };
    std::thread first(read), second(read), third(deploy);
    rig::Random random(rig::seed());
    for (unsigned i = 0; i < many(500); i++) {
        size_t low = random.below(ACCOUNTS - 1);
        size_t high = low + 1 + random.below(std::min<size_t>(ACCOUNTS - low - 1, 2600));
        uint64_t amount = random.below(accounts[low] + 1);
        accounts[low] -= amount;
        accounts[high] += amount;
        if (!ato_memcpy_opt(map.base + BEGIN + low * 8, &accounts[low], (high - low + 1) * 8,
                            random.chance(50) ? ATO_SKIP_EQUAL : 0))
            failed++;
    }
    over = true;
    first.join();
    second.join();
    third.join();
    EXPECT_EQ(wrong, 0u) << "of " << reads << " reads";
    EXPECT_EQ(failed, 0u) << "the last one: " << ato_errormsg();
    std::vector<uint64_t> last(ACCOUNTS);
    ASSERT_TRUE(ato_memcpy(last.data(), map.base + BEGIN, ACCOUNTS * 8));
    EXPECT_EQ(last, accounts);
}

/* A long write shows hundreds of pages, one after the other; so a reader of a few bytes across the border of
 * two pages has time to look in between. */
TEST_P(Order, AShortReadAcrossPagesNeverSeesHalfOfALongWrite)
{
    SCOPED_TRACE(rig::replay());
    constexpr size_t PAGE = 4096, PAGES = 600, BEGIN = 40;
    make(std::vector<unsigned char>(PAGES * PAGE));
    if (HasFatalFailure())
        return;
    std::atomic<bool> over{false};
    std::atomic<unsigned> mixed{0}, failed{0};
    auto read = [&](uint64_t seed) {
        rig::Random random(seed);
        while (!over) {
            size_t border = random.within(1, PAGES - 2) * PAGE;
            unsigned char bytes[16];
            failed += !ato_memcpy(bytes, map.base + border - 8, 16);
            mixed += bytes[0] != bytes[15];
        }
    };
    std::thread first(read, rig::seed()), second(read, rig::seed() + 1);
    for (unsigned i = 1; i <= rig::rounds(250); i++)
        failed += !ato_memset(map.base + BEGIN, static_cast<int>(i), map.n - 2 * BEGIN);
    over = true;
    first.join();
    second.join();
    EXPECT_EQ(mixed, 0u);
    EXPECT_EQ(failed, 0u);
}

/* Two threads copy A to B and B to A at once: the result is that of one order or the other. */
TEST_P(Order, CopiesInOppositeDirectionsEndAsInSomeOrder)
{
    SCOPED_TRACE(rig::replay());
    Chaos chaos;
    constexpr size_t BYTES = 120013;
    make(std::vector<unsigned char>(BYTES));
    std::string other_path = folder / "other";
    ASSERT_TRUE(rig::write_file(other_path, std::vector<unsigned char>(BYTES)));
    rig::Map other(other_path, BYTES, GetParam().options());
    ASSERT_TRUE(other.base) << ato_errormsg();

    struct {
        unsigned char *a, *b;
        size_t n;
    } job = {};
    bool last = false;
    std::atomic<unsigned> failed{0};
    Barrier start(3), end(3);
    auto copy = [&](bool forth) {
        for (;;) {
            start.wait();
            if (last)
                return;
            if (!ato_memcpy(forth ? job.b : job.a, forth ? job.a : job.b, job.n))
                failed++;
            end.wait();
        }
    };
    std::thread forth(copy, true), back(copy, false);
    rig::Random random(rig::seed());
    std::vector<unsigned char> bytes[2], orders[2][2];
    for (unsigned i = 0; i < many(120) && !HasFailure(); i++) {
        unsigned char *bases[2] = {map.base, other.base};
        for (int f = 0; f < 2; f++) {
            bytes[f].resize(BYTES);
            random.fill(bytes[f].data(), BYTES);
            ASSERT_TRUE(ato_memcpy(bases[f], bytes[f].data(), BYTES)) << ato_errormsg();
        }
        size_t n = random.within(1, 30000), at_a = random.below(BYTES - n);
        size_t at_b = random.below(BYTES - n);
        int file_b = random.chance(50);
        if (!file_b && random.chance(70)) /* let them overlap */
            at_b = std::min(at_a + random.below(n), BYTES - n);
        job = {map.base + at_a, bases[file_b] + at_b, n};
        start.wait();
        end.wait();
        for (int first = 0; first < 2; first++) {
            auto &order = orders[first];
            order[0] = bytes[0];
            order[1] = bytes[1];
            unsigned char *a = order[0].data() + at_a, *b = order[file_b].data() + at_b;
            std::memmove(first ? a : b, first ? b : a, n);
            std::memmove(first ? b : a, first ? a : b, n);
        }
        for (int f = 0; f < 2; f++)
            ASSERT_TRUE(ato_memcpy(bytes[f].data(), bases[f], BYTES)) << ato_errormsg();
        bool some_order = false;
        for (auto &order : orders)
            some_order |= order[0] == bytes[0] && order[1] == bytes[1];
        EXPECT_TRUE(some_order) << n << " bytes from " << at_a << " to " << at_b << " of file "
                                << file_b;
    }
    last = true;
    start.wait();
    forth.join();
    back.join();
    EXPECT_EQ(failed, 0u);
}

/* Fields of a few bytes, dealt out to threads in turn: each page belongs to all threads. Mapped anew for each
 * round, so that the threads also race for the first touch of its state. */
TEST_P(Order, NoFieldIsLostToAWriterOfAdjacentFields)
{
    SCOPED_TRACE(rig::replay());
    Chaos chaos;
    constexpr size_t FIELD = 11, FIELDS = 3000, THREADS = 6;
    std::vector<unsigned char> bytes(FIELDS * FIELD + 3);
    make(bytes);
    for (unsigned round = 0; round < many(5) && !HasFailure(); round++) {
        map_again(bytes.size());
        Barrier start(THREADS);
        std::atomic<unsigned> failed{0};
        std::vector<std::thread> team;
        for (size_t t = 0; t < THREADS; t++)
            team.emplace_back([&, t] {
                rig::Random random(rig::seed() + round * THREADS + t);
                start.wait();
                for (unsigned i = 0; i < 700; i++) {
                    size_t field = random.below(FIELDS / THREADS) * THREADS + t;
                    unsigned char value[FIELD], seen[FIELD];
                    random.fill(value, FIELD);
                    unsigned char *at = map.base + field * FIELD;
                    failed += !ato_memcpy(at, value, FIELD) || !ato_memcpy(seen, at, FIELD) ||
                              std::memcmp(seen, value, FIELD) != 0;
                    std::memcpy(bytes.data() + field * FIELD, value, FIELD);
                }
            });
        for (std::thread &t : team)
            t.join();
        EXPECT_EQ(failed, 0u);
        std::vector<unsigned char> now(bytes.size());
        ASSERT_TRUE(ato_memcpy(now.data(), map.base, now.size())) << ato_errormsg();
        EXPECT_EQ(rig::first_difference(now.data(), bytes.data(), now.size()), -1);
    }
}

/* Thread numbers end at 64, journal lanes at 17: threads beyond that share them, and wait. */
TEST_P(Order, CountersOfMoreThreadsThanNumbersAddUpExactly)
{
    SCOPED_TRACE(rig::replay());
    constexpr size_t THREADS = 130, ROOM = 10000;
    const uint64_t each = rig::rounds(60);
    make(std::vector<unsigned char>(THREADS * ROOM));
    if (HasFatalFailure())
        return;
    Barrier start(THREADS);
    std::atomic<unsigned> failed{0};
    std::vector<std::thread> team;
    for (size_t t = 0; t < THREADS; t++)
        team.emplace_back([&, t] {
            std::vector<unsigned char> buffer(ROOM, static_cast<unsigned char>(t));
            unsigned char *at = map.base + t * ROOM;
            start.wait(); /* all threads live at once */
            for (uint64_t i = 0; i < each; i++) {
                size_t n = i % 2 ? 9000 : 40;
                failed += !ato_memcpy(at + i, buffer.data(), n);
                failed += !ato_memcpy(buffer.data(), at + i, n);
            }
        });
    for (std::thread &t : team)
        t.join();
    /* Their numbers are free again. */
    for (int i = 0; i < 70; i++)
        std::thread([&] { failed += !ato_memset(map.base, 1, 10); }).join();
    EXPECT_EQ(failed, 0u);
    struct ato_stat st = map.stat();
    uint64_t moved = THREADS * (each / 2 * 9000 + (each - each / 2) * 40);
    EXPECT_EQ(st.writes, THREADS * each + 70);
    EXPECT_EQ(st.bytes_written, moved + 700);
    EXPECT_EQ(st.reads, THREADS * each);
    EXPECT_EQ(st.bytes_read, moved);
    EXPECT_EQ(st.commits_single + st.commits_rtm + st.commits_journal, st.writes);
    for (size_t t = 0; t < THREADS; t++) {
        unsigned char byte;
        ASSERT_TRUE(ato_memcpy(&byte, map.base + t * ROOM + 30, 1));
        EXPECT_EQ(byte, static_cast<unsigned char>(t));
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, Order, testing::ValuesIn(some_paths()),
                         [](const auto &info) { return name_of(info.param); });

} // namespace threads
