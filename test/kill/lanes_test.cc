/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a commit finished that was cut among its flips while other threads went on committing? A thread is
 * stopped between two words of a journaled commit; others commit, and their commits are acknowledged, through
 * other lanes of the same journal; then the process dies. The commit was decided: it must be complete, and so
 * must the others.
 *
 * Random kills rarely meet this moment of some nanoseconds. Needs the library with the seam.
 */
#include "process.h"
#include "support/mapped.h"

#include <condition_variable>
#include <csignal>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

extern "C" {
#include "reflection/media/persist.h"
}

using namespace support;

namespace kills
{

namespace
{

/* Records of six pages and more, and as many of them in each of two files. */
constexpr size_t STEP = 8 * 4096, RECORD = 21001, RECORDS = 4;

thread_local int words_left;
std::mutex lock;
std::condition_variable changed;
bool stopped;

void stop_at_word(const struct persist *p, uint64_t *word, uint64_t value)
{
    if (words_left && --words_left == 0) {
        std::unique_lock<std::mutex> hold(lock);
        stopped = true;
        changed.notify_all();
        changed.wait(hold, [] { return false; }); /* for ever */
    }
    persist_real.store_word(p, word, value);
}

class Lanes : public testing::TestWithParam<int>
{
  protected:
    void write(Mapped &m, size_t record, const Bytes &bytes) const
    {
        if (!m.write(record * STEP + 100, bytes))
            leave(m.sentence);
    }
    /* Writes the first record of the first file and is stopped at a word; meanwhile all others are
     * written. */
    void live(int word) const
    {
        static struct persist_ops stopping = persist_real;
        stopping.store_word = stop_at_word;
        persist_ops = &stopping;
        Mapped files[] = {Mapped(paths[0], wish()), Mapped(paths[1], wish())};
        std::thread other([&] {
            write(files[0], 0, pattern(RECORD, 1)); /* makes the journal */
            words_left = word;
            write(files[0], 0, pattern(RECORD, 2));
        });
        {
            std::unique_lock<std::mutex> hold(lock);
            changed.wait(hold, [] { return stopped; });
        }
        for (unsigned version = 2; version < 8; version++)
            for (size_t record = 1; record < RECORDS; record++)
                for (Mapped &m : files)
                    write(m, record, pattern(RECORD, version));
        raise(SIGKILL);
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
    for (int word = 1; word <= 6; word++) {
        SCOPED_TRACE("stopped before word " + std::to_string(word));
        Bytes expected[2];
        for (size_t file : {0, 1}) {
            expected[file] = pattern(RECORDS * STEP, 9);
            write_file(paths[file], expected[file]);
            for (size_t record = file ? 1 : 0; record < RECORDS; record++) {
                const Bytes bytes = pattern(RECORD, record ? 7 : 2);
                std::copy(bytes.begin(), bytes.end(),
                          expected[file].begin() + static_cast<ptrdiff_t>(record * STEP + 100));
            }
        }
        Process p([&](const Teller &) { live(word); });
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
}

INSTANTIATE_TEST_SUITE_P(Domains, Lanes,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS),
                         [](const auto &info) { return rig::domain_name(info.param); });

} // namespace kills
