/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does SIGKILL leave right before each store, flush, fence and file operation? A process runs a story
 * and is killed at each of its events, one after the other. The interrupted operation is done wholly or not
 * at all, for the process that maps the files next, which may itself be killed while it recovers, and for one
 * that has them mapped meanwhile. These can go on and make the files plain, and no other file is left.
 */
#include "events.h"
#include "story.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <ostream>

#include <unistd.h>

extern "C" {
#include "reflection/media/persist.h"
}

using namespace support;

namespace kills
{

void PrintTo(const Story &s, std::ostream *out)
{
    *out << s.name;
}

namespace
{

constexpr size_t LONGER = 9 * PAGE + 700, LONG = 12 * PAGE;
constexpr Step MAP{Step::Map}, FAST{Step::Unmap, 0, 0, ATO_UNMAP_FAST},
    SPATIAL{Step::Unmap, 0, 0, ATO_UNMAP_SPATIAL}, BEGIN{Step::Begin}, COMMIT{Step::Commit};

Step write(unsigned file, size_t at, size_t n)
{
    return {Step::Write, file, at, n};
}

Step resize(unsigned file, size_t n)
{
    return {Step::Resize, file, 0, n};
}

const Step PAGES =
    write(A, 1000, 12000); /* by a lane; the first of these writes gives the lanes their space */
const Steps MAPPED = {MAP, PAGES};
const Steps TRANSACTION = {MAP,
                           BEGIN,
                           in_tx(write(A, 100, 5000)),
                           in_tx(write(A, 5 * PAGE, 100)),
                           in_tx(resize(A, SIZE + PAGE)),
                           in_tx(write(A, SIZE + 10, 200)),
                           COMMIT};

const Story stories[] = {
    {"Life", 1, {}, {MAP, write(A, 4000, 6000), FAST}},
    {"SpatialLife", 1, {}, {MAP, write(A, 4000, 6000), SPATIAL}},
    {"SecondLife", 1, {MAP, write(A, 0, SIZE), FAST}, {MAP, write(A, 4000, 6000), SPATIAL}},
    {"OnePage", 1, MAPPED, {write(A, 4100, 3000), write(A, 4100, 3000)}},
    {"OnePageEager", 1, MAPPED, {write(A, 4100, 3000)}, ATO_READ_EAGER},
    {"Pages", 1, MAPPED, {PAGES}},
    {"PagesEager", 1, MAPPED, {{Step::WriteEager, A, 1000, 7000}}},
    {"Rtm", 1, {MAP}, {PAGES}, ATO_READ_LAZY, 0},
    {"RtmEager", 1, {MAP}, {PAGES}, ATO_READ_EAGER, 0},
    {"Fill", 1, MAPPED, {{Step::Fill, A, 3000, 6000}}},
    {"CopyFromOtherFile", 2, MAPPED, {{Step::Copy, A, 200, 9000}}},
    {"Deploy", 1, MAPPED, {{Step::Deploy, A, 0, SIZE}}},
    {"UnmapFast", 2, {MAP, PAGES, write(B, 3000, 9000)}, {FAST}},
    {"UnmapSpatial", 2, {MAP, PAGES, write(B, 3000, 9000)}, {SPATIAL}},
    {"Transaction", 1, {}, TRANSACTION},
    {"TransactionBesideAnotherFile",
     2,
     {MAP, write(B, 100, 5000)},
     {BEGIN, in_tx(write(A, 50, 90)), in_tx(write(A, 4105, 8192)), COMMIT, FAST}},
    {"Grow", 1, {MAP, write(A, 100, 100)}, {resize(A, LONGER), FAST}},
    {"ShrinkInAPage", 1, {MAP, write(A, 0, SIZE)}, {resize(A, 100), FAST}},
    {"ShrinkToNothing", 1, {MAP, write(A, 0, SIZE)}, {resize(A, 0), resize(A, LONGER), FAST}},
    {"ShrinkTwice",
     1,
     {MAP, write(A, 0, SIZE)},
     {resize(A, 5000), resize(A, 300), resize(A, SIZE), FAST}},
    {"ShrinkAndGrow",
     1,
     {MAP, write(A, 0, SIZE)},
     {resize(A, 2 * PAGE), resize(A, 3 * PAGE + 10), resize(A, LONGER), resize(A, 7000), SPATIAL}},
    {"GrowAndWrite",
     1,
     {MAP},
     {BEGIN, in_tx(resize(A, LONGER)), in_tx(write(A, SIZE - 100, 5000)), COMMIT}},
    {"WriteAndShrink",
     1,
     {MAP},
     {BEGIN, in_tx(write(A, 4000, 3000)), in_tx(resize(A, 2 * PAGE + 300)), COMMIT}},
    {"Guard", 1, {MAP, write(A, 100, 9000), {Step::Guard, A, 18, 2}}, {SPATIAL}},
    {"GuardOnTwoPages", 1, {MAP, write(A, 100, 9000), {Step::Guard, A, PAGE - 7, 16}}, {SPATIAL}},
    {"GuardAtTheEnd", 1, {MAP, write(A, 100, 9000), {Step::Guard, A, SIZE - 5, 5}}, {SPATIAL}},
    {"Recovery", 1, {}, {MAP}, ATO_READ_GATHER, ATO_NO_RTM, {MAP, PAGES, write(A, 0, SIZE)}, 4},
    {"RecoveryOfATransaction", 1, {}, {MAP}, ATO_READ_GATHER, ATO_NO_RTM, TRANSACTION, 1},
    {"Reunion",
     1,
     {MAP, write(A, 0, SIZE), resize(A, 5 * PAGE), FAST, {Step::Restore, 0, 0, 1}},
     {MAP, write(A, 1000, 9000), SPATIAL},
     ATO_READ_GATHER,
     ATO_NO_RTM | ATO_PREFER_REFLECTION},
    {"ReunionAfterAKill",
     1,
     {{Step::Restore}},
     {MAP},
     ATO_READ_GATHER,
     ATO_NO_RTM | ATO_PREFER_REFLECTION,
     {MAP, PAGES, write(A, 0, SIZE)},
     4},
};

/* A test of the test: it finds these errors. */
TEST(Follower, RejectsAMixtureAndAStepBack)
{
    const std::vector<Contents> contents = {{{1, 1}, {1}}, {{2, 2}, {2}}, {{2, 2}, {3}}};
    Follower follower(contents, 0);
    EXPECT_FALSE(follower.see(A, {1, 2})) << "half of a write";
    EXPECT_FALSE(follower.see(A, {1})) << "shorter than ever";
    EXPECT_TRUE(follower.see(A, {1, 1}));
    EXPECT_TRUE(follower.see(B, {2}));
    EXPECT_FALSE(follower.see(A, {1, 1})) << "one file as it became, the other one as it was";
    EXPECT_TRUE(follower.see(A, {2, 2}));
    EXPECT_TRUE(follower.see(B, {3}));
    EXPECT_FALSE(follower.see(B, {2})) << "what had been seen is gone";
    EXPECT_EQ(follower.at(), 2u);
}

class Killed : public testing::TestWithParam<std::tuple<int, Story>>
{
  protected:
    Killed()
        : domain(std::get<0>(GetParam())), story(std::get<1>(GetParam())), old(begin_with(story))
    {
        for (const char *name : {"a", "b", "c"})
            if (paths.size() < story.files)
                paths.push_back(dir / name);
        put_back();
        Model model(old);
        model.after(story.dead);
        model.after(story.before);
        contents = model.after(story.steps);
        reached = model.reached;
    }
    void SetUp() override
    {
        if (!(story.flags & ATO_NO_RTM) && !(domain == ATO_DOMAIN_PROCESS && persist_rtm_works()))
            GTEST_SKIP() << "hardware transactions do not commit on this CPU";
    }
    ato_options wish() const
    {
        ato_options o = options(domain, story.policy, story.flags);
        o.max_size = 1 << 20;
        return o;
    }
    void put_back() const
    {
        for (unsigned file = 0; file < story.files; file++)
            write_file(paths[file], old[file]);
    }
    void hear(Process &p)
    {
        p.wait();
        for (const Note &n : p.notes)
            if (n.say == Say::Object)
                objects.push_back(n.text);
    }
    /* Runs the story's steps in a process that is killed before an event, from 1. Returns whether it was
     * killed. 0: no kill; then the events are recorded. `points`: as for arm(). */
    bool live(unsigned kill_at, bool points);

    /* The events of a run: first without a kill, then the first one, then each one, or every n-th if less than all work is to
     * be done. */
    static unsigned after_moment(unsigned k)
    {
        return k > 1 ? k + rig::stride() : k == 0 ? 1 : 2 + rig::first_step(rig::stride());
    }
    std::string about(unsigned k) const
    {
        return k == 0 ? "not killed"
                      : rig::replay() + ", killed before event " + std::to_string(k) + ", " +
                            (k <= events.size() ? events[k - 1] : "the end");
    }

    const int domain;
    const Story story;
    const Contents old;
    TempDir dir;
    std::vector<std::string> paths;
    std::vector<Contents> contents; /* that may be found */
    size_t acknowledged = 0;        /* the first of them that is still allowed */
    std::vector<std::string> events, objects;

  private:
    std::vector<size_t> reached;
};

bool Killed::live(unsigned kill_at, bool points)
{
    unsigned seed = 0;
    if (!story.dead.empty()) {
        Process p([&](const Teller &t) {
            watch_events(t);
            Hands hands(paths, wish());
            hands.act({story.dead.begin(), story.dead.end() - 1}, &seed);
            arm_word(story.words);
            hands.act({story.dead.back()}, &seed);
        });
        hear(p);
        EXPECT_TRUE(p.was_killed()) << p.end();
        seed = static_cast<unsigned>(story.dead.size());
    }
    Process p([&](const Teller &t) {
        watch_events(t);
        Hands hands(paths, wish());
        hands.act(story.before, &seed);
        t.tell_text(Say::Begin, "");
        arm(kill_at, points);
        hands.act(story.steps, &seed, [&] { t.tell_text(Say::Told, ""); });
        disarm();
    });
    hear(p);
    size_t told = 0, begun = 0;
    for (const Note &n : p.notes) {
        told += n.say == Say::Told;
        begun += n.say == Say::Begin;
        if (n.say == Say::Event)
            events.push_back(n.text);
    }
    acknowledged = reached[told];
    EXPECT_TRUE(begun && (p.was_killed() || p.ended_well())) << p.end();
    return p.was_killed();
}

/* ---- later processes ---- */

class KilledAlone : public Killed
{
  protected:
    /* A process that recovers, perhaps goes on, and is killed, too. */
    void recover_and_die(unsigned kill_at)
    {
        Process p([&](const Teller &t) {
            watch_events(t);
            arm(kill_at);
            Hands hands(paths, wish());
            hands.map(kill_at % 2);
            if (story.has(Step::Resize)) {
                const off_t longer = static_cast<off_t>(hands[A].stat().size + PAGE);
                if (ato_ftruncate(hands[A].base, longer) < 0)
                    leave(ato_errormsg());
            }
        });
        hear(p);
        EXPECT_TRUE(p.was_killed() || p.ended_well()) << p.end();
    }
    bool is_restored_after_a_kill() const
    {
        return story.has(Step::Restore) && !story.dead.empty();
    }
    /* Reads everything, goes on, and makes the files plain. Sends the contents that it found. */
    void look(unsigned turn, bool grown, const Teller &t)
    {
        watch_events(t);
        Follower follower(contents, acknowledged);
        ato_options o = options(
            turn % 4 == 3 ? ATO_DOMAIN_PROCESS : domain, turn % 2 ? ATO_READ_GATHER : ATO_READ_LAZY,
            (turn % 4 == 3 ? 0 : ATO_NO_RTM) | (story.flags & ATO_PREFER_REFLECTION));
        o.max_size = 1 << 20;
        Hands hands(paths, o);
        hands.map(turn % 2);
        for (unsigned file = 0; file < story.files; file++)
            if (!follower.see(file, content(hands[file]), grown && file == A))
                leave(paths[file] + " holds neither what it did before nor afterwards");
        for (unsigned file = 0; file < story.files; file++)
            if (!follower.see(file, content(hands[file]), grown && file == A))
                leave(paths[file] + " and the others are not of one moment");
        Note n{};
        n.say = Say::Verdict;
        n.value = static_cast<uint32_t>(follower.at());
        t.tell(n);
        Contents now = contents.back(); /* the guard gives these bytes back */
        for (unsigned file = 0; !story.has(Step::Guard) && file < story.files; file++) {
            Mapped &m = hands[file];
            now[file] = content(m);
            if (ato_ftruncate(m.base, LONG) < 0)
                leave(ato_errormsg());
            now[file].resize(LONG);
            if (content(m) != now[file])
                leave(paths[file] + " has something behind its end");
            now[file] = Bytes(LONG, static_cast<unsigned char>(1 + file + turn));
            if (!m.write(0, now[file]) || content(m) != now[file])
                leave("what was written after the recovery is not to be read: " + m.sentence);
            if (ato_ftruncate(m.base, 3 * PAGE + 10) < 0)
                leave(ato_errormsg());
            now[file].resize(3 * PAGE + 10);
        }
        hands.unmap(ATO_UNMAP_SPATIAL);
        for (unsigned file = 0; file < story.files; file++)
            if (read_file(paths[file]) != now[file])
                leave(paths[file] + " is not what it was when it was made plain");
    }
    void expect_nothing_left()
    {
        for (const std::string &path : paths) {
            EXPECT_EQ(names_in(folder_of(path)), std::vector<std::string>());
            EXPECT_EQ(attribute_of(path), "");
        }
        /* A restored file has a new id: the object of the old one may be that of a living source, and stays. */
        for (const std::string &object : objects)
            EXPECT_TRUE(is_restored_after_a_kill() ? unlink(object.c_str()) == 0 || errno == ENOENT
                                                   : !exists(object))
                << object;
        objects.clear();
    }
    /* A file without an attribute is plain for every process, unless it was restored without it. */
    void expect_plain_without_attribute() const
    {
        for (unsigned file = 0; !is_restored_after_a_kill() && file < story.files; file++)
            if (attribute_of(paths[file]).empty()) {
                Follower follower(contents,
                                  story.has(Step::Guard) ? contents.size() - 1 : acknowledged);
                EXPECT_TRUE(follower.see(file, read_file(paths[file]))) << paths[file];
            }
    }
};

TEST_P(KilledAlone, IsFoundWholeOrNotAtAll)
{
    bool killed = true;
    size_t found = 0;
    for (unsigned k = 0, turn = 0; killed; k = after_moment(k), turn++) {
        SCOPED_TRACE(about(k));
        put_back();
        killed = live(k, false) || k == 0;
        expect_plain_without_attribute();
        const bool second = turn % 3 == 1;
        if (second)
            recover_and_die(k * 7 % 41 + 1);
        Process p([&](const Teller &t) { look(turn, second, t); });
        hear(p);
        ASSERT_TRUE(p.ended_well()) << "the process after it: " << p.end();
        expect_nothing_left();
        for (const Note &n : p.notes)
            if (n.say == Say::Verdict && k) {
                EXPECT_TRUE(k > 1 || n.value == 0) << "nothing was done yet";
                EXPECT_GE(n.value, found) << "more was found of a process that did less";
                found = n.value;
            }
        ASSERT_FALSE(HasFailure());
        ASSERT_LT(k, events.size() + 100) << "it does not end";
    }
    std::printf("%zu moments\n", events.size());
}

/* ---- processes that have the files mapped meanwhile ---- */

class KilledBesideOthers : public Killed
{
  protected:
    void SetUp() override
    {
        for (const std::string &path : paths) {
            maps.push_back(std::make_unique<Mapped>(path, wish()));
            ASSERT_TRUE(*maps.back()) << maps.back()->sentence;
        }
    }
    /* All pages that the surviving process uses have to be free. */
    void put_back_by_hand()
    {
        for (unsigned file = 0; file < story.files; file++) {
            Mapped &m = *maps[file];
            ASSERT_EQ(ato_ftruncate(m.base, SIZE), 0) << ato_errormsg();
            ASSERT_TRUE(m.write(0, old[file])) << m.sentence;
            ASSERT_EQ(content(m), old[file]);
        }
    }
    /* Content that was read stays; once one file shows the operation, the others do, too. */
    void look(Follower &follower)
    {
        for (size_t at = SIZE_MAX; at != follower.at();) {
            at = follower.at();
            for (unsigned file = 0; file < story.files; file++)
                ASSERT_TRUE(follower.see(file, content(*maps[file]))) << paths[file];
        }
    }

    std::vector<std::unique_ptr<Mapped>> maps;
};

TEST_P(KilledBesideOthers, IsSeenWholeOrNotAtAll)
{
    bool killed = true;
    unsigned before = 0, after = 0;
    for (unsigned k = 0; killed; k = after_moment(k)) {
        SCOPED_TRACE(about(k));
        ASSERT_NO_FATAL_FAILURE(put_back_by_hand());
        killed = live(k, true) || k == 0;
        /* Readers first: they meet marked pages. A part, then everything. */
        Bytes piece(3000);
        ASSERT_TRUE(ato_memcpy(piece.data(), maps[0]->base + 4100, piece.size()) || errno == EFAULT)
            << ato_errormsg();
        Follower follower(contents, acknowledged);
        ASSERT_NO_FATAL_FAILURE(look(follower));
        /* A process that takes pages decides the outcome of all others. */
        for (auto &m : maps)
            while (ato_deploy(m->base, m->stat().size) < 0) /* the file may have become shorter */
                ASSERT_EQ(errno, EFAULT) << ato_errormsg();
        ASSERT_NO_FATAL_FAILURE(look(follower));
        before += follower.at() == 0;
        after += follower.at() == contents.size() - 1;
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_GE(before, 1u);
    EXPECT_GE(after, 2u);
    ASSERT_NO_FATAL_FAILURE(put_back_by_hand());
    for (unsigned file = 0; file < story.files; file++) {
        EXPECT_EQ(maps[file]->unmap(ATO_UNMAP_SPATIAL), 0) << maps[file]->sentence;
        EXPECT_EQ(read_file(paths[file]), old[file]);
    }
    std::printf("%zu moments\n", events.size());
}

/* Of a file with a log that is restored: there is nothing to join it with. */
bool holds_nothing(const Story &s)
{
    return s.dead.empty() && s.has(Step::Restore);
}

using Parameters = std::vector<std::tuple<int, Story>>;

Parameters in(const std::vector<int> &all_domains, bool (*fits)(const Story &s))
{
    Parameters all;
    for (int domain : domains(all_domains))
        for (const Story &s : stories)
            if (fits(s) && ((s.flags & ATO_NO_RTM) || domain == ATO_DOMAIN_PROCESS) &&
                !(domain == ATO_DOMAIN_DISK && holds_nothing(s)))
                all.emplace_back(domain, s);
    return all;
}

std::string name_of(const testing::TestParamInfo<std::tuple<int, Story>> &info)
{
    return rig::domain_name(std::get<0>(info.param)) + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(In, KilledAlone,
                         testing::ValuesIn(in({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                               ATO_DOMAIN_PROCESS},
                                              [](const Story &) { return true; })),
                         name_of);
INSTANTIATE_TEST_SUITE_P(In, KilledBesideOthers,
                         testing::ValuesIn(in({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK},
                                              [](const Story &s) {
                                                  return s.dead.empty() && !s.has(Step::Guard) &&
                                                         !s.has(Step::Restore);
                                              })),
                         name_of);

} // namespace

} // namespace kills
