/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does SIGKILL leave right before each store, flush, fence and file operation of one call? For
 * every call and commit path all moments are tried, one after the other. Before the event that
 * commits, the old bytes are found; after it the new ones, always. Whoever finds them can go on:
 * writes the record once more, makes the files plain, and nothing is left over.
 */
#include "actors.h"
#include "events.h"

#include <gtest/gtest.h>
#include <ostream>

extern "C" {
#include "reflection/persist.h"
}

namespace kills
{

namespace
{

enum class Act {
    FirstMap,
    Write,
    WriteAndMakeJournal,
    Fill,
    CopyAcross, /* from the other file */
    Deploy,
    UnmapFast,
    UnmapSpatial,
    MapAgain,
    Recover, /* from a kill in the middle of a write's flips */
};

struct Story {
    const char *name;
    Act act;
    int policy, domain;
    unsigned flags;
    bool within_page = false;

    Script script() const
    {
        return {policy, domain, flags, within_page};
    }
};

void PrintTo(const Story &s, std::ostream *out)
{
    *out << s.name;
}

constexpr unsigned RECORDS = 4, RECORD = 2, OTHER = 1; /* in the first file, in the second */

class Events : public testing::TestWithParam<Story>
{
  protected:
    Events() : script(GetParam().script())
    {
    }
    /* By hardware transactions where they work: each journal takes as long as all the rest. */
    Script without_journal() const
    {
        return {script.policy, ATO_DOMAIN_PROCESS, 0, script.within_page};
    }
    /* Files whose records lie in both homes, unmapped fast. */
    void prepare(const Ledger &l, const Teller &t) const
    {
        Files files(without_journal(), l, false, t);
        std::vector<unsigned char> bytes(l.record_bytes);
        for (unsigned r = 0; r < RECORDS; r++) {
            render(l.contents[r], bytes.data(), bytes.size());
            if (!ato_memcpy(files.at(l, r), bytes.data(), bytes.size()))
                leave(ato_errormsg());
        }
        if (ato_deploy(files.at(l, RECORD) + l.record_bytes / 2, 1) < 0)
            leave(ato_errormsg());
        files.unmap(ATO_UNMAP_FAST);
    }
    static Content wanted(const Ledger &l)
    {
        switch (GetParam().act) {
        case Act::Fill:
            return {Content::Filled, 0, 0xc3};
        case Act::CopyAcross:
            return l.contents[OTHER];
        case Act::Write:
        case Act::WriteAndMakeJournal:
        case Act::Recover:
            return {Content::Stamped, RECORD, 77};
        default:
            return l.contents[RECORD]; /* nothing changes */
        }
    }
    void write(const Ledger &l, const Files &files, const Content &c) const
    {
        std::vector<unsigned char> bytes(l.record_bytes);
        unsigned char *at = files.at(l, RECORD);
        render(c, bytes.data(), bytes.size());
        void *done =
            GetParam().act == Act::Fill ? ato_memset(at, static_cast<int>(c.version), bytes.size())
            : GetParam().act == Act::CopyAcross ? ato_memcpy(at, files.at(l, OTHER), bytes.size())
                                                : ato_memcpy(at, bytes.data(), bytes.size());
        if (!done)
            leave(ato_errormsg());
    }
    void act(const Ledger &l, unsigned kill_at, const Teller &t) const
    {
        watch_events(t);
        Act what = GetParam().act;
        bool mapping = what == Act::FirstMap || what == Act::MapAgain || what == Act::Recover;
        if (mapping)
            arm(kill_at);
        Files files(script, l, false, t);
        if (mapping) {
            disarm();
            leave("");
        }
        if (what == Act::Deploy)
            write(l, files, wanted(l)); /* so that there is something to bring home */
        if (what != Act::WriteAndMakeJournal && !script.within_page)
            /* The same bytes: the journal is made. */
            if (!ato_memcpy(files.at(l, 3), files.at(l, 3), l.record_bytes))
                leave(ato_errormsg());
        arm(kill_at);
        switch (what) {
        case Act::Deploy:
            if (ato_deploy(files.at(l, RECORD), l.record_bytes) < 0)
                leave(ato_errormsg());
            break;
        case Act::UnmapFast:
            files.unmap(ATO_UNMAP_FAST);
            break;
        case Act::UnmapSpatial:
            files.unmap(ATO_UNMAP_SPATIAL);
            break;
        default:
            write(l, files, wanted(l));
        }
        disarm();
        leave("");
    }
    /* One more write through what was recovered, now and then by another journal. */
    void go_on(const Ledger &l, bool same_path, const Teller &t) const
    {
        Files files(same_path ? script : without_journal(), l, true, t);
        std::vector<unsigned char> bytes(l.record_bytes), seen(l.record_bytes);
        render({Content::Stamped, RECORD, 99}, bytes.data(), bytes.size());
        if (!ato_memcpy(files.at(l, RECORD), bytes.data(), bytes.size()) ||
            !ato_memcpy(seen.data(), files.at(l, RECORD), seen.size()))
            leave(ato_errormsg());
        if (seen != bytes)
            leave("the write after the recovery is not to be read");
        files.unmap(ATO_UNMAP_FAST);
    }
    void run(Ledger &l, const std::function<void(const Teller &)> &body, const char *who)
    {
        Process p(body);
        p.wait();
        l.hear(p.notes);
        EXPECT_TRUE(p.ended_well()) << who << ": " << p.end();
    }
    /* A write by this story's path is killed between its flips: a lane is left to replay. */
    void leave_a_commit(Ledger &l)
    {
        Process p([&](const Teller &t) {
            Files files(script, l, false, t);
            if (!ato_memcpy(files.at(l, 3), files.at(l, 3), l.record_bytes))
                leave(ato_errormsg());
            static struct persist_ops dying = persist_real;
            dying.store_word = [](const struct persist *q, uint64_t *word, uint64_t value,
                                  const char *site) {
                static int words;
                if (++words == 3)
                    raise(SIGKILL);
                persist_real.store_word(q, word, value, site);
            };
            persist_ops = &dying;
            write(l, files, wanted(l));
        });
        p.wait();
        ASSERT_TRUE(p.was_killed()) << p.end();
        l.contents[RECORD] = wanted(l);
    }
    /* One life, and what it left. Returns what became of the record; *ended: no kill came. */
    Found live(unsigned kill_at, bool *ended, std::vector<std::string> *names);

    const Script script;
};

Found Events::live(unsigned kill_at, bool *ended, std::vector<std::string> *names)
{
    rig::Folder folder;
    Ledger l(folder, RECORDS, script.within_page ? 1500 : 21001, script.within_page);
    EXPECT_TRUE(l.write_files());
    Act what = GetParam().act;
    if (what != Act::FirstMap)
        run(
            l, [&](const Teller &t) { prepare(l, t); }, "who prepares");
    if (what == Act::Recover)
        leave_a_commit(l);
    Note in_doubt{};
    in_doubt.say = Say::Begin;
    in_doubt.record = RECORD;
    in_doubt.content = wanted(l);

    Process p([&](const Teller &t) { act(l, kill_at, t); });
    p.wait();
    *ended = !p.was_killed();
    if (*ended) {
        EXPECT_TRUE(p.ended_well()) << p.end();
    }
    for (const Note &n : p.notes)
        if (n.say == Say::Event)
            names->push_back(n.text);
    l.hear(p.notes);
    if (!(in_doubt.content == l.contents[RECORD]))
        l.hear({in_doubt});

    Process looker([&](const Teller &t) {
        watch_events(t);
        check(script, l, 1, End::Fast, t);
    });
    looker.wait();
    EXPECT_TRUE(looker.ended_well()) << "the checker: " << looker.end();
    Found found = Found::Torn;
    for (const Note &n : looker.notes)
        if (n.say == Say::Verdict) {
            EXPECT_LT(n.value, static_cast<uint32_t>(Found::Lost)) << "record " << n.record;
            if (n.record == RECORD)
                found = static_cast<Found>(n.value);
        }
    l.hear(looker.notes);
    l.settle(looker.notes);

    run(
        l, [&](const Teller &t) { go_on(l, kill_at % 4 == 0, t); }, "who goes on");
    l.contents[RECORD] = {Content::Stamped, RECORD, 99};
    run(
        l, [&](const Teller &t) { check(script, l, 2, End::Spatial, t); }, "the last checker");
    EXPECT_EQ(l.leftovers(), "");
    return found;
}

/* After which event (from 1) the new bytes count. The words are the commit, unless a journal made
 * it before the first of them changed: its commit line is the last line stored before that. */
size_t commit_event(const std::vector<std::string> &names)
{
    size_t line = 0;
    bool journal = false;
    for (size_t i = 0; i < names.size(); i++) {
        if (names[i] == "flip_rtm")
            return i + 1;
        if (names[i] == "copy")
            journal = true; /* the lane's list */
        if (names[i] == "line")
            line = i + 1;
        if (names[i] == "store_word")
            return journal ? line : i + 1;
    }
    return names.size();
}

} // namespace

TEST_P(Events, EachIsAMomentToDieAt)
{
    if ((GetParam().flags & ATO_RTM_ONLY) && !persist_rtm_works())
        GTEST_SKIP() << "hardware transactions do not commit on this CPU";
    std::vector<std::string> names;
    bool ended = false;
    live(0, &ended, &names);
    ASSERT_TRUE(ended);
    ASSERT_FALSE(HasFailure());
    ASSERT_GT(names.size(), 3u);
    size_t commit = commit_event(names);
    Act act = GetParam().act;
    bool writes = act == Act::Write || act == Act::WriteAndMakeJournal || act == Act::Fill ||
                  act == Act::CopyAcross;
    /* Goes on after a failure, to tell which moments are wrong: up to a dozen. */
    const testing::TestResult &result =
        *testing::UnitTest::GetInstance()->current_test_info()->result();
    unsigned k = 0;
    for (ended = false; !ended && result.total_part_count() < 12;) {
        k++;
        SCOPED_TRACE("killed before event " + std::to_string(k) + ", " +
                     (k <= names.size() ? names[k - 1] : "the end"));
        std::vector<std::string> ignored;
        Found found = live(k, &ended, &ignored);
        if (writes) {
            EXPECT_EQ(found, k <= commit ? Found::Old : Found::New)
                << "the commit is event " << commit;
        } else {
            EXPECT_EQ(found, Found::Old);
        }
        ASSERT_LT(k, names.size() + 20) << "it does not end";
    }
    if (!HasFailure()) {
        /* A hardware transaction may have been tried again. */
        EXPECT_GE(k, std::min<size_t>(names.size(), 4));
    }
    std::printf("%u moments\n", k);
}

static const Story stories[] = {
    {"FirstMap", Act::FirstMap, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, 0},
    {"OnePage", Act::Write, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, 0, true},
    {"OnePagePmem", Act::Write, ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0, true},
    {"OnePageEager", Act::Write, ATO_READ_EAGER, ATO_DOMAIN_PROCESS, 0, true},
    {"Rtm", Act::Write, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, ATO_RTM_ONLY},
    {"RtmEager", Act::Write, ATO_READ_EAGER, ATO_DOMAIN_PROCESS, ATO_RTM_ONLY},
    {"Journal", Act::Write, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, ATO_NO_RTM},
    {"JournalPmem", Act::Write, ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
    {"JournalMsync", Act::Write, ATO_READ_LAZY, ATO_DOMAIN_MSYNC, 0},
    {"JournalEager", Act::Write, ATO_READ_EAGER, ATO_DOMAIN_PMEM, 0},
    {"FirstJournal", Act::WriteAndMakeJournal, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, ATO_NO_RTM},
    {"FillByJournal", Act::Fill, ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
    {"CopyFromOtherFile", Act::CopyAcross, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, ATO_NO_RTM},
    {"Deploy", Act::Deploy, ATO_READ_GATHER, ATO_DOMAIN_PMEM, 0},
    {"UnmapFast", Act::UnmapFast, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, 0},
    {"UnmapSpatial", Act::UnmapSpatial, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, 0},
    {"UnmapSpatialWithJournal", Act::UnmapSpatial, ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
    {"MapAgain", Act::MapAgain, ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
    {"Recover", Act::Recover, ATO_READ_LAZY, ATO_DOMAIN_PROCESS, ATO_NO_RTM},
    {"RecoverPmem", Act::Recover, ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
};

INSTANTIATE_TEST_SUITE_P(Of, Events, testing::ValuesIn(stories),
                         [](const auto &info) { return info.param.name; });

} // namespace kills
