/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a reader ever see a part of a step that consists of several calls? Writers of transactions and of
 * epochs stamp places on many pages with ever newer numbers; a reader sees the same number everywhere, never
 * an older one than before, no aborted one, and misses none.
 */
#include "chaos.h"
#include "path.h"

#include "../support/copied.h"

#include <atomic>
#include <cerrno>
#include <functional>
#include <mutex>
#include <thread>

namespace threads
{

namespace
{

constexpr size_t PAGE = 4096, PAGES = 9;
/* On five pages and over the ends of four: some places are on two pages. */
constexpr size_t PLACES[] = {100,           PAGE - 3,     2 * PAGE - 8,
                             4 * PAGE + 60, 5 * PAGE - 1, 7 * PAGE + 8};
constexpr uint64_t ABORTED = 1ull << 63;

uint64_t stamp_at(const unsigned char *bytes)
{
    uint64_t n;
    std::memcpy(&n, bytes, 8);
    return n;
}

} // namespace

class Whole : public OnPath
{
  protected:
    void make(unsigned flags_of_writer)
    {
        path = folder / "file";
        ASSERT_TRUE(rig::write_file(path, std::vector<unsigned char>(PAGES * PAGE, 0)));
        ato_options o = GetParam().options();
        others = rig::Map(path, PAGES * PAGE, o);
        o.flags |= flags_of_writer;
        writers = rig::Map(path, PAGES * PAGE, o);
        ASSERT_TRUE(writers.base && others.base) << ato_errormsg();
        Chaos::within(writers);
    }
    void fail(const std::string &what)
    {
        std::lock_guard<std::mutex> hold(lock);
        if (sentence.empty())
            sentence = what;
        over = true;
    }
    /* Fails with the error of the last call. */
    void fail_call(const std::string &what)
    {
        fail(what + ": " + ato_errormsg());
    }

    /* The number that a reader saw, after `last`; `oldest` was acknowledged before the read began. */
    void look(const std::vector<uint64_t> &stamps, uint64_t oldest, uint64_t &last)
    {
        for (uint64_t s : stamps)
            if (s != stamps[0])
                return fail("a reader sees " + std::to_string(stamps[0]) + " and " +
                            std::to_string(s));
        if (stamps[0] & ABORTED)
            return fail("a reader sees what was aborted");
        if (stamps[0] > begun)
            return fail("a reader sees " + std::to_string(stamps[0]) + " before it is begun");
        if (stamps[0] < oldest || stamps[0] < last)
            return fail("a reader sees " + std::to_string(stamps[0]) + " after a newer one");
        last = stamps[0];
        looks++;
    }

    /* Long enough for readers to look in between. */
    bool goes_on(uint64_t n, unsigned least) const
    {
        return !over && (n <= many(least) || looks < many(least));
    }

    /* All places by one call. */
    void read_at_once(const rig::Map &map)
    {
        std::vector<unsigned char> bytes(8 * PAGE);
        uint64_t last = 0;
        while (!over) {
            uint64_t oldest = told;
            if (!ato_memcpy(bytes.data(), map.base, bytes.size()))
                return fail_call("a read");
            std::vector<uint64_t> stamps;
            for (size_t at : PLACES)
                stamps.push_back(stamp_at(&bytes[at]));
            look(stamps, oldest, last);
        }
    }

    /* A copy of the whole file. */
    void read_by_snapshots(const rig::Map &map)
    {
        std::vector<unsigned char> bytes;
        uint64_t last = 0;
        while (!over) {
            uint64_t oldest = told;
            if (support::copy_now(map.base, bytes) != static_cast<off_t>(PAGES * PAGE))
                return fail_call("a snapshot");
            std::vector<uint64_t> stamps;
            for (size_t at : PLACES)
                stamps.push_back(stamp_at(&bytes[at]));
            look(stamps, oldest, last);
        }
    }

    /* Place by place, in a transaction. */
    void read_in_transactions(const rig::Map &map)
    {
        uint64_t last = 0;
        while (!over) {
            uint64_t oldest = told;
            ato_tx *tx = ato_tx_begin(0);
            std::vector<uint64_t> stamps;
            bool refused = !tx;
            for (size_t at : PLACES) {
                uint64_t stamp;
                if (!refused && !ato_tx_memcpy(tx, &stamp, map.base + at, 8, 0)) {
                    refused = true;
                    if (errno != EAGAIN)
                        return fail_call("a read in a transaction");
                }
                stamps.push_back(stamp);
            }
            if (refused) {
                ato_tx_abort(tx);
                continue;
            }
            if (ato_tx_commit(tx) < 0)
                return fail_call("a commit of reads");
            look(stamps, oldest, last);
            std::this_thread::yield();
        }
    }

    /* False: it is refused, or an error. */
    bool stamp(ato_tx *tx, uint64_t n, rig::Random &random)
    {
        for (uint64_t i = random.below(6), left = 6; left; left--, i = (i + 1) % 6) {
            uint64_t first = n | ABORTED;
            /* Some places twice. */
            if ((random.chance(30) && !ato_tx_memcpy(tx, writers.base + PLACES[i], &first, 8, 0)) ||
                !ato_tx_memcpy(tx, writers.base + PLACES[i], &n, 8, 0)) {
                if (errno != EAGAIN)
                    fail_call("a write in a transaction");
                return false;
            }
        }
        return true;
    }

    void run(const std::vector<std::function<void()>> &bodies)
    {
        std::vector<std::thread> team;
        for (const auto &body : bodies)
            team.emplace_back(body);
        for (std::thread &t : team)
            t.join();
    }

    rig::Folder folder;
    std::string path;
    rig::Map writers, others;
    std::atomic<bool> over{false};
    std::atomic<uint64_t> begun{0}, told{0}, looks{0};
    std::mutex lock;
    std::string sentence;
};

TEST_P(Whole, ReadersSeeATransactionOfManyPagesWholeOrNotAtAll)
{
    SCOPED_TRACE(rig::replay());
    make(0);
    if (HasFatalFailure())
        return;
    Chaos chaos;
    auto write = [&] {
        rig::Random random(rig::seed());
        for (uint64_t n = 1; goes_on(n, 150);) {
            ato_tx *tx = ato_tx_begin(random.chance(50) ? ATO_TX_READ_COMMITTED : 0);
            bool aborts = random.chance(20);
            begun = n;
            if (!stamp(tx, aborts ? n | ABORTED : n, random) || aborts) {
                ato_tx_abort(tx);
                continue;
            }
            if (ato_tx_commit(tx) < 0)
                fail_call("a commit");
            told = n++;
        }
        over = true;
    };
    run({write, [&] { read_at_once(others); }, [&] { read_at_once(writers); },
         [&] { read_in_transactions(others); }, [&] { read_by_snapshots(others); }});
    EXPECT_EQ(sentence, "");
    uint64_t last;
    for (size_t at : PLACES) {
        ASSERT_TRUE(ato_memcpy(&last, others.base + at, 8));
        EXPECT_EQ(last, told);
    }
}

/* One record over three pages, again and again at the same place: stores to homes that readers look at. */
TEST_P(Whole, ReadersOfAnEpochSeeEachWriteWholeAndOthersEachCommit)
{
    SCOPED_TRACE(rig::replay());
    make(ATO_EPOCHS);
    if (HasFatalFailure())
        return;
    constexpr size_t BEGIN = PAGE - 77, WORDS = 1200;
    Chaos chaos;
    auto write = [&] {
        std::vector<uint64_t> words(WORDS);
        for (uint64_t n = 1; goes_on(n, 200); n++) {
            begun = n;
            std::fill(words.begin(), words.end(), n);
            if (!ato_memcpy(writers.base + BEGIN, words.data(), WORDS * 8))
                fail_call("a write in an epoch");
            told = n;
        }
        over = true;
    };
    auto sync = [&] {
        while (!over) {
            if (ato_msync(writers.base, PAGES * PAGE, MS_SYNC) < 0)
                fail_call("msync");
            std::this_thread::yield();
        }
    };
    auto read = [&](const rig::Map &map, bool own) {
        std::vector<uint64_t> words(WORDS);
        uint64_t last = 0;
        while (!over) {
            uint64_t oldest = own ? told.load() : 0;
            if (!ato_memcpy(words.data(), map.base + BEGIN, WORDS * 8))
                return fail_call("a read");
            look(words, oldest, last);
        }
    };
    run({write, sync, [&] { read(writers, true); }, [&] { read(writers, true); },
         [&] { read(others, false); }});
    EXPECT_EQ(sentence, "");
    ASSERT_EQ(ato_msync(writers.base, PAGES * PAGE, MS_SYNC), 0) << ato_errormsg();
    uint64_t last;
    ASSERT_TRUE(ato_memcpy(&last, others.base + BEGIN, 8));
    EXPECT_EQ(last, told);
}

TEST(EpochOfManyPages, AReaderMissesNoWriteWhileItIsCommitted)
{
    SCOPED_TRACE(rig::replay());
    constexpr size_t MANY = 800;
    rig::Folder folder;
    ASSERT_TRUE(rig::write_file(folder / "file", std::vector<unsigned char>(MANY * PAGE, 0)));
    rig::Map map(folder / "file", MANY * PAGE,
                 rig::options(ATO_READ_GATHER, ATO_DOMAIN_DISK, ATO_EPOCHS));
    ASSERT_TRUE(map.base) << ato_errormsg();
    std::atomic<uint64_t> told{0}, missed{0}, failed{0};
    std::atomic<bool> over{false};
    std::thread reader([&] {
        while (!over) {
            uint64_t oldest = told, seen = 0;
            failed += !ato_memcpy(&seen, map.base + MANY / 2 * PAGE, 8);
            missed += seen < oldest;
        }
    });
    for (uint64_t n = 1; n <= rig::rounds(200); n++) {
        for (size_t page = MANY; page--;)
            failed += !ato_memcpy(map.base + page * PAGE, &n, 8);
        told = n;
        failed += ato_msync(map.base, MANY * PAGE, MS_SYNC) < 0;
    }
    over = true;
    reader.join();
    EXPECT_EQ(missed, 0u);
    EXPECT_EQ(failed, 0u) << ato_errormsg();
}

INSTANTIATE_TEST_SUITE_P(Steps, Whole, testing::ValuesIn(all_paths()),
                         [](const auto &info) { return name_of(info.param); });

} // namespace threads
