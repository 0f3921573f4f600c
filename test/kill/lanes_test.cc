/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a commit finished that was cut among its flips while other threads went on committing? A thread is
 * stopped between two words of a journaled commit; others commit, and their commits are acknowledged, through
 * other lanes; then the process dies. The commit was decided: it must be complete, and so
 * must the others.
 *
 * Random kills rarely meet this moment of some nanoseconds. Needs the library with the seam.
 */
#include "process.h"
#include "support/mapped.h"

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

extern "C" {
#include "reflection/media/persist.h"
#include "reflection/pairing/birth.h"
}

using namespace support;

namespace kills
{

namespace
{

/* Records of six pages and more, and as many of them in each of two files. */
constexpr size_t STEP = 8 * 4096, RECORD = 21001, RECORDS = 4;
/* Behind those of the first file: its commit needs the long lane. */
constexpr size_t LONG = 249 * 4096, ALL = RECORDS * STEP + LONG + 4096;

thread_local int words_left;
std::mutex lock;
std::condition_variable changed;
bool stopped;

void stop_at_word()
{
    if (words_left && --words_left == 0) {
        std::unique_lock<std::mutex> hold(lock);
        stopped = true;
        changed.notify_all();
        changed.wait(hold, [] { return false; }); /* for ever */
    }
}

void store_word(const struct persist *p, uint64_t *word, uint64_t value)
{
    stop_at_word();
    persist_real.store_word(p, word, value);
}

/* With a log, a page that is copied to the file takes the place of a word. */
void scatter(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
             uint64_t mask, bool cold)
{
    if (std::strstr(seam_site, "lib/commit/show."))
        stop_at_word();
    persist_real.scatter(p, o, r, src, bitmap, mask, cold);
}

class Lanes : public testing::TestWithParam<int>
{
  protected:
    static void write(Mapped &m, size_t at, const Bytes &bytes)
    {
        if (!m.write(at, bytes))
            leave(m.sentence);
    }
    static size_t place_of(size_t record)
    {
        return record * STEP + 100;
    }
    /* Writes the first record of the first file, or the long one, and is stopped at a word; meanwhile all others are
     * written. */
    void live(int word, size_t at, size_t n) const
    {
        static struct persist_ops stopping = persist_real;
        stopping.store_word = store_word;
        stopping.scatter = scatter;
        persist_ops = &stopping;
        birth_ring_bytes = 256 << 10;
        Mapped files[] = {Mapped(paths[0], wish()), Mapped(paths[1], wish())};
        std::thread other([&] {
            write(files[0], at, pattern(n, 1)); /* gives the lane its space */
            words_left = word;
            write(files[0], at, pattern(n, 2));
        });
        {
            std::unique_lock<std::mutex> hold(lock);
            changed.wait(hold, [] { return stopped; });
        }
        /* While a commit is not in the file, a log has only the room that it had: 256 KiB. */
        for (unsigned version = GetParam() == ATO_DOMAIN_DISK ? 6 : 2; version < 8; version++)
            for (size_t record = 1; record < RECORDS; record++)
                for (Mapped &m : files)
                    write(m, place_of(record), pattern(RECORD, version));
        raise(SIGKILL);
    }
    /* Dies at that word of a commit of n bytes, and looks. */
    void die_and_look(int word, size_t at, size_t n)
    {
        SCOPED_TRACE("stopped before word " + std::to_string(word));
        Bytes expected[2];
        for (size_t file : {0, 1}) {
            expected[file] = pattern(ALL, 9);
            write_file(paths[file], expected[file]);
            auto put = [&](size_t to, const Bytes &bytes) {
                std::copy(bytes.begin(), bytes.end(),
                          expected[file].begin() + static_cast<ptrdiff_t>(to));
            };
            for (size_t record = 1; record < RECORDS; record++)
                put(place_of(record), pattern(RECORD, 7));
            if (file == 0)
                put(at, pattern(n, 2));
        }
        Process p([&](const Teller &) { live(word, at, n); });
        p.wait();
        ASSERT_TRUE(p.was_killed()) << p.end();
        Process looker([&](const Teller &) {
            for (size_t file : {1, 0}) {
                Mapped m(paths[file], wish());
                if (!m || m.read() != expected[file] || m.unmap(ATO_UNMAP_SPATIAL) < 0)
                    leave(paths[file] + " is not what it must be: " + m.sentence);
            }
        });
        looker.wait();
        ASSERT_TRUE(looker.ended_well()) << looker.end();
        for (size_t file : {0, 1})
            EXPECT_EQ(read_file(paths[file]), expected[file]);
        EXPECT_EQ(names_in(folder_of(paths[0])), std::vector<std::string>());
    }
    ato_options wish() const
    {
        return options(GetParam(), ATO_READ_LAZY, ATO_NO_RTM);
    }

    TempDir dir;
    const std::string paths[2] = {dir / "first", dir / "second"};
};

} // namespace

TEST_P(Lanes, CommitCutAmongItsFlipsIsFinishedBesideOtherCommits)
{
    for (int word = 1; word <= 6; word++)
        die_and_look(word, place_of(0), RECORD);
}

TEST_P(Lanes, LongCommitCutAmongItsFlipsIsFinishedBesideOtherCommits)
{
    for (int word : {1, 2, 125, 249, 250})
        die_and_look(word, RECORDS * STEP + 100, LONG);
}

INSTANTIATE_TEST_SUITE_P(Domains, Lanes,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})),
                         [](const auto &info) { return rig::domain_name(info.param); });

} // namespace kills
