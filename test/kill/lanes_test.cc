/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of a commit that was cut among its flips while other threads went on committing? A
 * thread is stopped between two words of a journaled commit; others commit and are told so, through
 * other lanes of the same journal; then the process dies. The commit was decided: it must be found
 * done, and so must the others.
 *
 * Random kills meet this moment, some nanoseconds long, too seldom. Needs the library with the seam.
 */
#include "actors.h"

#include <condition_variable>
#include <csignal>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

extern "C" {
#include "reflection/persist.h"
}

namespace kills
{

namespace
{

constexpr unsigned CUT = 0, RECORDS = 12; /* neighbours of CUT share its pages; these do not: */
constexpr unsigned FREE[] = {4, 5, 7, 8, 10};

thread_local int words_left;
std::mutex lock;
std::condition_variable changed;
bool stopped;

void stop_for_ever()
{
    std::unique_lock<std::mutex> hold(lock);
    stopped = true;
    changed.notify_all();
    changed.wait(hold, [] { return false; });
}

void stop_at_word(const struct persist *p, uint64_t *word, uint64_t value, const char *site)
{
    if (words_left && --words_left == 0)
        stop_for_ever();
    persist_real.store_word(p, word, value, site);
}

void write(const Ledger &l, const Files &files, const Content &c, unsigned record)
{
    std::vector<unsigned char> bytes(l.record_bytes);
    render(c, bytes.data(), bytes.size());
    if (!ato_memcpy(files.at(l, record), bytes.data(), bytes.size()))
        leave(ato_errormsg());
}

Note begin(unsigned thread, unsigned record, uint64_t version)
{
    Note n{};
    n.say = Say::Begin;
    n.thread = thread;
    n.record = record;
    n.content = {Content::Stamped, record, version};
    return n;
}

void live(const Script &s, const Ledger &l, int word, const Teller &t)
{
    static struct persist_ops stopping = persist_real;
    stopping.store_word = stop_at_word;
    persist_ops = &stopping;
    Files files(s, l, false, t);
    Note cut = begin(1, CUT, 1);
    t.tell(cut);
    std::thread other([&] {
        write(l, files, {Content::Stamped, CUT, 1000}, CUT); /* so that the journal is made */
        words_left = word;
        write(l, files, cut.content, CUT);
    });
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [] { return stopped; });
    }
    for (uint64_t version = 2; version < 8; version++)
        for (unsigned record : FREE) {
            Note n = begin(0, record, version);
            t.tell(n);
            write(l, files, n.content, record);
            n.say = Say::Told;
            t.tell(n);
        }
    raise(SIGKILL);
}

class Lanes : public testing::TestWithParam<int>
{
};

} // namespace

TEST_P(Lanes, ACommitCutAmongItsFlipsIsFinishedWhateverOthersCommitMeanwhile)
{
    Script script{ATO_READ_LAZY, GetParam(), ATO_NO_RTM, false};
    for (int word = 1; word <= 6; word++) {
        SCOPED_TRACE("stopped before word " + std::to_string(word));
        rig::Folder folder;
        Ledger l(folder, RECORDS, 21001, false);
        ASSERT_TRUE(l.write_files());
        Process p([&](const Teller &t) { live(script, l, word, t); });
        p.wait();
        ASSERT_TRUE(p.was_killed()) << p.end();
        l.hear(p.notes);
        EXPECT_EQ(l.told, 6 * std::size(FREE));
        Process looker([&](const Teller &t) { check(script, l, 1, End::Spatial, t); });
        looker.wait();
        EXPECT_TRUE(looker.ended_well()) << looker.end();
        for (const Note &n : looker.notes)
            if (n.say == Say::Verdict) {
                EXPECT_EQ(n.value, static_cast<uint32_t>(n.record == CUT ? Found::New : Found::Old))
                    << "record " << n.record;
            }
        l.hear(looker.notes);
        EXPECT_EQ(l.leftovers(), "");
    }
}

INSTANTIATE_TEST_SUITE_P(Domains, Lanes,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS),
                         [](const auto &info) { return rig::domain_name(info.param); });

} // namespace kills
