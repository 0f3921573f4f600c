// SPDX-License-Identifier: BSD-3-Clause
//
// A process may only read two files. A writer is killed in a commit to both, and then so is the
// process that finishes the commit: the reader sees the commit in both files or in neither, or gets
// EAGAIN until a process that may write has come by.
//
// If an order of commit.c or takeover.c is broken, these tests or the tests of
// reader_of_dead_test.cc fail.
#include "reader_of_dead_lab.h"

#include <cerrno>

using namespace reader_of_dead;

namespace
{

// Reads two files, each of which is mapped by an idle process that may write.
class ReaderOfTheDeadInTwoFiles : public ReaderOfTheDead
{
  protected:
    ReaderOfTheDeadInTwoFiles()
        : second(dir / "second"),
          other((write_file(second, content), second), {[](Mapped &) { return true; }})
    {
        other.act();
    }
    void writer_dies_in_both(const Moment &moment)
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
    // The first page of each file, and that there is nothing else.
    std::string shown(Watched &r, Watched &s) const
    {
        std::string all;
        for (Watched *w : {&r, &s}) {
            const Bytes got = w->read();
            all += got == before ? 'O' : got == after ? 'N' : got.empty() ? '-' : '?';
        }
        return all;
    }
    void expect_both(Watched &r, Watched &s, const std::string &pages) const
    {
        EXPECT_EQ(shown(r, s), pages) << about;
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

const std::vector<Moment> of_a_commit_to_two = {{SEAM_DURABLE, 0, "OO"}, {SEAM_FLIP, 1, "OO"},
                                                {SEAM_FLIP, 2, "-O"},    {SEAM_FLIPPING, 1, "--"},
                                                {SEAM_FLIPPED, 0, "--"}, {SEAM_FLIPPED, 1, "N-"}};

TEST_F(ReaderOfTheDeadInTwoFiles, SeesACommitInBothOrInNeither)
{
    Watched r(path), s(second);
    for (const Moment &moment : of_a_commit_to_two) {
        if (moment.where == SEAM_FLIPPED && moment.n == 0)
            continue; // as before it
        writer_dies_in_both(moment);
        expect_both(r, s, moment.pages);
        recover_both();
        expect_both(r, s, "NN");
    }
}

// A process that maps one of the files finishes the commit in both.
TEST_F(ReaderOfTheDeadInTwoFiles, SeesACommitInBothAfterAMapOfOneFinishesIt)
{
    Watched r(path), s(second);
    for (const std::string &one : {path, second})
        for (const Moment &moment : of_a_commit_to_two) {
            writer_dies_in_both(moment);
            {
                Mapped m(one, by_journal());
                EXPECT_EQ(m.read(0, SIZE), after) << about;
            }
            expect_both(r, s, "NN");
            recover_both();
        }
}

// The process that finishes the commit dies too, and the next one finishes it. Between the two, no file has the commit while
// the other one is as before.
TEST_F(ReaderOfTheDeadInTwoFiles, SeesACommitInBothAfterASecondCrash)
{
    reader_patience_ms = 20;
    Watched r(path), s(second);
    for (const Moment &moment : of_a_commit_to_two)
        for (const Moment &then : {Moment{SEAM_FLIP, 0, ""}, Moment{SEAM_FLIP, 1, ""},
                                   Moment{SEAM_FLIPPING, 0, ""}, Moment{SEAM_FLIPPING, 1, ""},
                                   Moment{SEAM_FLIPPED, 0, ""}, Moment{SEAM_FLIPPED, 1, ""}}) {
            writer_dies_in_both(moment);
            about += ", then " + std::to_string(then.where) + "/" + std::to_string(then.n);
            ASSERT_EQ(die_in_a_write(path, 0, Bytes(1), then), CUT) << about;
            const std::string between = shown(r, s);
            EXPECT_TRUE(between != "NO" && between != "ON" &&
                        between.find('?') == std::string::npos)
                << about << ": " << between;
            recover_both();
            expect_both(r, s, "NN");
        }
}

// Commits to three pages of each file, which may make the second file longer.
class ReaderOfACommit : public ReaderOfTheDeadInTwoFiles
{
  protected:
    static constexpr size_t LONG = SIZE + 3 * 4096;

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
    void writer_dies_in_both(const Moment &moment, bool grows)
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

// Between the first page and the last, a process that has only the first file mapped recovers both.
TEST_F(ReaderOfACommit, ReadIsNotTornByARecoveryThroughTheOtherFile)
{
    int copies = 0;
    Watched s(second, LONG);
    ASSERT_FALSE(s.read().empty());
    writer_dies_in_both({SEAM_DURABLE, 0, ""}, false);
    here = [&](enum seam_point point) {
        if (point == SEAM_VERSION && ++copies == 2) {
            EXPECT_EQ(finish_in_first(), 0);
        }
    };
    seam_hook = do_here;
    const std::string seen = kinds(s.read(0, PIECE), before, after);
    EXPECT_EQ(seen, "NNN");
    EXPECT_GE(copies, 3);
}

// The commit changes the size of the file.
TEST_F(ReaderOfACommit, SizeIsNotKnownUntilAWriterHasComeBy)
{
    Watched s(second, LONG);
    ASSERT_FALSE(s.read().empty());
    writer_dies_in_both({SEAM_FLIPPING, 0, ""}, true);
    EXPECT_EQ(size_of(s), 0);
    EXPECT_EQ(finish_in_first(), 0);
    EXPECT_EQ(size_of(s), LONG);
    EXPECT_EQ(s.read(0, LONG).size(), LONG) << ato_errormsg();
}

// Only readers have the second file mapped, and its shared memory cannot be opened: the commit must
// not be finished in the first file alone.
TEST_F(ReaderOfACommit, CommitIsNotFinishedInOneFileAlone)
{
    Watched r(path), s(second);
    ASSERT_FALSE(s.read().empty());
    ASSERT_FALSE(r.read().empty());
    writer_dies_in_both({SEAM_DURABLE, 0, ""}, false);
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

} // namespace
