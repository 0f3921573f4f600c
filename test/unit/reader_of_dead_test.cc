// SPDX-License-Identifier: BSD-3-Clause
//
// A process may only read a file; beside it another one may write, and does nothing. A third process is killed in the
// middle of showing something: before each page that it marks, changes or unmarks, of three pages, of two files, of a
// change of size; then the next one is killed, which frees them. What the first one reads is all of it or nothing, and
// never less than before.
//
// With an order of commit.c, takeover.c or visible.c broken these tests fail: six were tried.
#include "support/dying.h"
#include "support/faults.h"
#include "unit/watched.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <cerrno>
#include <string>
#include <thread>

using namespace watched;

namespace
{

// When somebody dies: when he comes to a point for the n-th time, from 0.
struct Moment {
    enum seam_point where;
    int n;
    bool shown; // is it the new bytes that are read then?
};

int die_at(const Moment &moment, const std::function<void()> &act)
{
    static enum seam_point point;
    static int left;
    point = moment.where;
    left = moment.n;
    return in_child([&] {
        seam_hook = [](enum seam_point here, const void *) {
            if (here == point && left-- == 0)
                _exit(CUT);
        };
        act();
        return 1;
    });
}

ato_options by_journal()
{
    return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
}

// In a call that writes, or before it, when it maps the file and frees what another one left.
int die_in_a_write(const std::string &path, size_t at, const Bytes &part, const Moment &moment)
{
    return die_at(moment, [&] {
        Mapped m(path, by_journal());
        m.write(at, part);
    });
}

// Beside somebody who may write to the file, and does nothing.
class ReaderOfTheDead : public Reader
{
  protected:
    ReaderOfTheDead() : idle(path, {[](Mapped &) { return true; }})
    {
        idle.act();
    }
    // Three pages.
    void somebody_dies(const Moment &moment)
    {
        const Bytes part = pattern(9000, ++seed);
        before = after = content;
        std::copy(part.begin(), part.end(), after.begin() + 3000);
        about = std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 3000, part, moment), CUT) << about;
    }
    // Who comes to free the pages.
    void another_dies(const Moment &moment)
    {
        about += ", then " + std::to_string(moment.where) + "/" + std::to_string(moment.n);
        ASSERT_EQ(die_in_a_write(path, 4096, Bytes(1), moment), CUT) << about;
    }
    void expect(Watched &r, bool shown)
    {
        const Bytes &now = shown ? after : before;
        EXPECT_EQ(r.read(), now) << about;
        for (size_t at = 0; at < SIZE; at += 4096) {
            const size_t n = std::min<size_t>(4096, SIZE - at);
            EXPECT_EQ(r.read(at, n), Bytes(now.begin() + at, now.begin() + at + n))
                << about << ", page " << at / 4096;
        }
    }
    // Who does.
    void recover()
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        EXPECT_TRUE(m.write(4096, Bytes(after.begin() + 4096, after.begin() + 4097))) << about;
        content = after;
    }

    Writer idle;
    int seed = 2;
    Bytes before, after;
    std::string about;
};

const std::vector<Moment> of_a_write = {{SEAM_DURABLE, 0, false}, {SEAM_FLIP, 1, false},
                                        {SEAM_FLIP, 3, false},    {SEAM_FLIPPING, 0, true},
                                        {SEAM_FLIPPING, 2, true}, {SEAM_FLIPPED, 0, true},
                                        {SEAM_FLIPPED, 2, true}};

TEST_F(ReaderOfTheDead, SeesAllOrNothingOfWhatOneWasShowing)
{
    Watched r(path);
    for (const Moment &moment : of_a_write) {
        somebody_dies(moment);
        expect(r, moment.shown);
        recover();
        expect(r, true);
    }
}

TEST_F(ReaderOfTheDead, SeesAllOrNothingWhenTheNextOneDiesWhoFreesIt)
{
    Watched r(path);
    for (const Moment &moment : of_a_write)
        for (const Moment &then :
             {Moment{SEAM_FLIP, 0, false}, Moment{SEAM_FLIP, 1, false}, Moment{SEAM_FLIP, 2, false},
              Moment{SEAM_FLIPPING, 0, true}, Moment{SEAM_FLIPPING, 2, true},
              Moment{SEAM_FLIPPED, 0, true}, Moment{SEAM_FLIPPED, 2, true}}) {
            somebody_dies(moment);
            another_dies(then);
            expect(r, moment.shown || then.shown);
            recover();
            expect(r, true);
        }
}

// An eager write of a word changes the file itself: killed before the flush.
TEST_F(ReaderOfTheDead, DoesNotSeeAWordThatMayNotBeDurable)
{
    Watched r(path);
    const Bytes word = pattern(8, ++seed);
    ASSERT_EQ(in_child([&] {
                  Mapped m(path, by_journal());
                  PersistFaults faults;
                  faults.before = [](const PersistCall &call) {
                      return std::string(call.op) == "flush_word" ? DIE : GO_ON;
                  };
                  return ato_memcpy_opt(m.base, word.data(), word.size(), ATO_EAGER) ? 0 : 1;
              }),
              CUT);
    EXPECT_EQ(r.read(0, 8), Bytes());
    EXPECT_EQ(r.error, EAGAIN);
    Mapped m(path, by_journal());
    EXPECT_EQ(m.read(0, 8), word);
    EXPECT_EQ(r.read(0, 8), word);
}

// Of one thread nothing is shown yet of what is on the media, when another one is just showing something. Then one dies
// who has marked a part of both.
TEST_F(ReaderOfTheDead, SeesAllOrNothingOfWhatEachOfHisThreadsWrote)
{
    Watched r(path);
    const Bytes one = pattern(10, 3), two = pattern(10, 4);
    ASSERT_EQ(in_child([&] {
                  static thread_local bool stays;
                  static Pipe stored;
                  Mapped m(path, by_journal());
                  seam_hook = [](enum seam_point point, const void *) {
                      if (point == SEAM_DURABLE && stays) {
                          stored.tell();
                          for (;;)
                              pause();
                      }
                      if (point == SEAM_FLIPPING && !stays)
                          _exit(CUT);
                  };
                  m.read(0, 1); // this thread's number is the first
                  std::thread first([&] {
                      stays = true;
                      m.write(4090, one);
                  });
                  stored.hear();
                  m.write(3 * 4096 - 5, two);
                  return 1;
              }),
              CUT);
    ASSERT_EQ(die_in_a_write(path, 4096, Bytes(1), {SEAM_FLIP, 1, false}), CUT);
    std::copy(two.begin(), two.end(), content.begin() + 3 * 4096 - 5);
    EXPECT_EQ(r.read(), content);
    EXPECT_EQ(r.read(4000, 200), Bytes(content.begin() + 4000, content.begin() + 4200));
    Mapped m(path, by_journal());
    std::copy(one.begin(), one.end(), content.begin() + 4090);
    EXPECT_EQ(m.read(0, SIZE), content);
    EXPECT_EQ(r.read(), content);
}

// Of two files, each with somebody who may write to it, and does nothing.
class ReaderOfTheDeadInTwoFiles : public ReaderOfTheDead
{
  protected:
    ReaderOfTheDeadInTwoFiles()
        : second(dir / "second"),
          other((write_file(second, content), second), {[](Mapped &) { return true; }})
    {
        other.act();
    }
    void somebody_dies_in_both(const Moment &moment)
    {
        const Bytes part = pattern(100, ++seed);
        about = std::to_string(moment.where) + "/" + std::to_string(moment.n);
        before = after = content;
        std::copy(part.begin(), part.end(), after.begin());
        ASSERT_EQ(die_at(moment,
                         [&] {
                             Mapped a(path, by_journal()), b(second, by_journal());
                             ato_tx *tx = ato_tx_begin(0);
                             ato_tx_memcpy(tx, a.base, part.data(), part.size(), 0);
                             ato_tx_memcpy(tx, b.base, part.data(), part.size(), 0);
                             ato_tx_commit(tx);
                         }),
                  CUT)
            << about;
    }
    void expect_both(Watched &r, Watched &s, bool shown)
    {
        const Bytes &now = shown ? after : before;
        EXPECT_EQ(s.read(), now) << about;
        EXPECT_EQ(r.read(), now) << about;
        EXPECT_EQ(s.read(), now) << about;
    }
    void recover_both()
    {
        Mapped a(path, by_journal()), b(second, by_journal());
        EXPECT_EQ(b.read(0, SIZE), after) << about;
        EXPECT_TRUE(a.write(0, Bytes(1, after[0])) && b.write(0, Bytes(1, after[0]))) << about;
        content = after;
    }

    const std::string second;
    Writer other;
};

const std::vector<Moment> of_a_commit_to_two = {{SEAM_DURABLE, 0, false}, {SEAM_FLIP, 1, false},
                                                {SEAM_FLIP, 2, false},    {SEAM_FLIPPING, 0, true},
                                                {SEAM_FLIPPING, 1, true}, {SEAM_FLIPPED, 0, true},
                                                {SEAM_FLIPPED, 1, true}};

// Of both what one of them tells.
TEST_F(ReaderOfTheDeadInTwoFiles, SeesACommitInBothOrInNeither)
{
    Watched r(path), s(second);
    for (const Moment &moment : of_a_commit_to_two) {
        somebody_dies_in_both(moment);
        expect_both(r, s, moment.shown);
        recover_both();
        expect_both(r, s, true);
    }
}

// Who has one of them mapped finishes the commit in both.
TEST_F(ReaderOfTheDeadInTwoFiles, SeesItInBothWhenSomebodyFinishesItInOne)
{
    Watched r(path), s(second);
    for (const std::string &one : {path, second})
        for (const Moment &moment : of_a_commit_to_two) {
            somebody_dies_in_both(moment);
            {
                Mapped m(one, by_journal());
                EXPECT_EQ(m.read(0, SIZE), after) << about;
            }
            expect_both(r, s, true);
            recover_both();
        }
}

// He dies over it: then the next one does.
TEST_F(ReaderOfTheDeadInTwoFiles, SeesItInBothWhenTheSecondOneFinishesIt)
{
    Watched r(path), s(second);
    for (const Moment &moment : of_a_commit_to_two)
        for (const Moment &then : {Moment{SEAM_FLIP, 0, false}, Moment{SEAM_FLIP, 1, false},
                                   Moment{SEAM_FLIPPING, 0, true}, Moment{SEAM_FLIPPING, 1, true},
                                   Moment{SEAM_FLIPPED, 0, true}, Moment{SEAM_FLIPPED, 1, true}}) {
            somebody_dies_in_both(moment);
            about += ", then " + std::to_string(then.where) + "/" + std::to_string(then.n);
            ASSERT_EQ(die_in_a_write(path, 0, Bytes(1), then), CUT) << about;
            recover_both();
            expect_both(r, s, true);
        }
}

TEST_F(ReaderOfTheDead, SeesASizeWithThePagesItWasCommittedWith)
{
    constexpr size_t SHORT = 2 * 4096 + 100, LONG = SIZE + 3 * 4096;
    Watched r(path);
    int seeds = 10;
    for (size_t size : {SHORT, LONG})
        for (const Moment &moment :
             {Moment{SEAM_DURABLE, 0, false}, Moment{SEAM_FLIP, 1, false},
              Moment{SEAM_FLIPPING, 0, true}, Moment{SEAM_FLIPPED, 0, true}}) {
            const Bytes part = pattern(100, ++seeds);
            about = std::to_string(size) + ", " + std::to_string(moment.where) + "/" +
                    std::to_string(moment.n);
            ato_options o = by_journal();
            o.max_size = LONG;
            ASSERT_EQ(die_at(moment,
                             [&] {
                                 Mapped m(path, o);
                                 ato_tx *tx = ato_tx_begin(0);
                                 ato_tx_memcpy(tx, m.base, part.data(), part.size(), 0);
                                 ato_tx_ftruncate(tx, m.base, size);
                                 ato_tx_commit(tx);
                             }),
                      CUT);
            Bytes after = content;
            std::copy(part.begin(), part.end(), after.begin());
            after.resize(size);
            const Bytes &now = moment.shown ? after : content;
            struct ato_status st = {};
            st.struct_size = sizeof(st);
            EXPECT_EQ(ato_stat(r.base, &st), 0) << ato_errormsg();
            EXPECT_EQ(st.size, now.size()) << about;
            EXPECT_EQ(r.read(0, now.size()), now) << about << r.error << ato_errormsg();
            EXPECT_EQ(r.read(1, now.size()), Bytes()) << about;
            EXPECT_EQ(r.error, EFAULT) << about;
            Mapped m(path, o);
            EXPECT_EQ(ato_ftruncate(m.base, SIZE), 0) << about << ato_errormsg();
            after.resize(SIZE);
            content = after;
            EXPECT_EQ(r.read(), content) << about;
        }
}

// What this process does where it comes to a point itself.
std::function<void(enum seam_point)> here;

void do_here(enum seam_point point, const void *)
{
    here(point);
}

// What of three pages is as it was, and what as it became: "OOO", "NNN"; "none": it could not be read.
std::string kinds(const Bytes &got, const Bytes &before, const Bytes &after)
{
    std::string all;
    for (size_t at = 0; at < got.size(); at += 4096) {
        const auto is = [&](const Bytes &what) {
            return std::equal(got.begin() + at, got.begin() + at + 4096, what.begin() + at);
        };
        all += is(before) ? 'O' : is(after) ? 'N' : '?';
    }
    return got.empty() ? "none" : all;
}

// In a commit of three pages of each file, that may make the second one longer.
class ReaderOfACommit : public ReaderOfTheDeadInTwoFiles
{
  protected:
    static constexpr size_t PIECE = 3 * 4096, LONG = SIZE + 3 * 4096;

    void TearDown() override
    {
        seam_hook = nullptr;
    }
    static ato_options may_grow()
    {
        ato_options o = by_journal();
        o.max_size = LONG;
        return o;
    }
    void somebody_dies_in_both(const Moment &moment, bool grows)
    {
        const Bytes part = pattern(PIECE, ++seed);
        before = after = content;
        std::copy(part.begin(), part.end(), after.begin());
        ASSERT_EQ(die_at(moment,
                         [&] {
                             Mapped a(path, by_journal()), b(second, may_grow());
                             ato_tx *tx = ato_tx_begin(0);
                             ato_tx_memcpy(tx, a.base, part.data(), part.size(), 0);
                             ato_tx_memcpy(tx, b.base, part.data(), part.size(), 0);
                             if (grows)
                                 ato_tx_ftruncate(tx, b.base, LONG);
                             ato_tx_commit(tx);
                         }),
                  CUT);
    }
    int finish_in_first(const std::function<void()> &first = [] {})
    {
        return in_child([&] {
            seam_hook = nullptr;
            first();
            Mapped m(path, by_journal());
            return m && m.write(0, Bytes(1, after[0])) ? 0 : 1;
        });
    }
    static uint64_t size_of(const Watched &r)
    {
        struct ato_status st = {};
        st.struct_size = sizeof(st);
        return ato_stat(r.base, &st) == 0 ? st.size : 0;
    }
};

// What one file tells is read where the memory of the other one is opened, which may fail between two pages.
TEST_F(ReaderOfACommit, IsNotTornByAnOpenThatFails)
{
    Watched s(second);
    somebody_dies_in_both({SEAM_FLIPPING, 0, true}, false);
    EXPECT_EQ(kinds(s.read(0, PIECE), before, after), "NNN");
    for (long n = 0; n < 12; n++) {
        FsFaults faults;
        faults.fail_at(n, EMFILE);
        const std::string seen = kinds(s.read(0, PIECE), before, after);
        EXPECT_TRUE(seen == "NNN" || seen == "none") << n << ": " << seen;
    }
}

// Between the first page and the last somebody hides them, and the next one has reloaded them when he dies.
TEST_F(ReaderOfACommit, IsNotTornByWhoHidesAndWhoReloads)
{
    int copies = 0;
    Watched s(second, LONG);
    ASSERT_FALSE(s.read().empty());
    somebody_dies_in_both({SEAM_FLIPPING, 0, true}, true);
    here = [&](enum seam_point point) {
        if (point != SEAM_VERSION)
            return;
        copies++;
        if (copies == 2) {
            EXPECT_EQ(finish_in_first(), 0);
        }
        if (copies == 3) {
            EXPECT_EQ(die_at({SEAM_FLIPPING, 0, true},
                             [&] {
                                 Mapped m(second, may_grow());
                                 m.write(0, Bytes(1));
                             }),
                      CUT);
        }
    };
    seam_hook = do_here;
    const std::string seen = kinds(s.read(0, PIECE), before, after);
    EXPECT_TRUE(seen == "NNN" || seen == "none") << seen;
    EXPECT_GE(copies, 2);
}

// Of a file whose size changes with it, who finishes the commit elsewhere hides all: it is not said to be as it was.
TEST_F(ReaderOfACommit, IsNotToldTheOldSizeAfterTheNewOne)
{
    Watched s(second, LONG);
    ASSERT_FALSE(s.read().empty());
    somebody_dies_in_both({SEAM_FLIPPING, 0, true}, true);
    EXPECT_EQ(size_of(s), LONG);
    EXPECT_EQ(s.read(0, LONG).size(), LONG);
    EXPECT_EQ(finish_in_first(), 0);
    EXPECT_NE(size_of(s), SIZE);
    EXPECT_TRUE(s.read(0, LONG).size() == LONG || s.error == EAGAIN) << s.error;
}

// Where nobody but readers looks, and their memory is not to be had, the commit is not finished.
TEST_F(ReaderOfACommit, IsNotForgottenByWhoFinishesIt)
{
    Watched r(path), s(second);
    ASSERT_FALSE(s.read().empty());
    ASSERT_FALSE(r.read().empty());
    somebody_dies_in_both({SEAM_DURABLE, 0, false}, false);
    other.kill();
    EXPECT_EQ(kinds(s.read(0, PIECE), before, after), "OOO");
    const std::string memory = fs::path(memory_of(second)).filename();
    finish_in_first([&] {
        static FsFaults faults;
        faults.before = [&](const FsCall &c) {
            return std::string(c.op) == "shm_open" && c.name.find(memory) != std::string::npos
                       ? EMFILE
                       : GO_ON;
        };
    });
    const std::string first = kinds(r.read(0, PIECE), before, after),
                      then = kinds(s.read(0, PIECE), before, after);
    EXPECT_FALSE(first == "NNN" && then == "OOO") << first << ", then " << then;
}

// A takeover whose medium fails takes the marks off as the pages were before. Who had begun to read has asked before
// whether the file is in doubt.
TEST_F(ReaderOfTheDead, IsNotTornByATakeoverThatFails)
{
    bool waited = false;
    Watched r(path);
    somebody_dies({SEAM_FLIPPING, 0, true});
    EXPECT_EQ(kinds(r.read(0, 12288), before, after), "NNN");
    here = [&](enum seam_point point) {
        if (point != SEAM_WAIT || waited)
            return;
        waited = true;
        EXPECT_EQ(die_at({SEAM_FLIPPED, 1, false},
                         [&] {
                             PersistFaults faults;
                             faults.before = [](const PersistCall &c) {
                                 return std::string(c.op) == "flush_any" &&
                                                std::string(c.site).find("page.c") !=
                                                    std::string::npos
                                            ? EIO
                                            : GO_ON;
                             };
                             Mapped m(path, by_journal());
                             m.write(4096, Bytes(1));
                         }),
                  CUT);
    };
    seam_hook = do_here;
    const std::string seen = kinds(r.read(0, 12288), before, after);
    seam_hook = nullptr;
    EXPECT_TRUE(waited);
    EXPECT_TRUE(seen == "NNN" || seen == "none") << seen;
}

} // namespace
