// SPDX-License-Identifier: BSD-3-Clause
//
// A process may only read a file, which an idle process that may write has mapped too. A third
// process is killed while it shows a commit: before it marks, changes or unmarks each of three
// pages, or the size. Then the process is killed that takes over the pages. The reader gets EAGAIN
// for what is marked, until a process that may write has come by, and never less than before.
//
// If an order of commit.c or takeover.c is broken, these tests fail: six were tried.
#include "reader_of_dead_lab.h"

using namespace reader_of_dead;

namespace
{

TEST_F(ReaderOfTheDead, IsRefusedMarkedPagesUntilAWriterHasComeBy)
{
    Watched r(path);
    for (const Moment &moment :
         {Moment{SEAM_DURABLE, 0, "OOO"}, Moment{SEAM_FLIP, 1, "OOO"}, Moment{SEAM_FLIP, 3, "--O"},
          Moment{SEAM_FLIPPING, 0, "---"}, Moment{SEAM_FLIPPED, 2, "NN-"}}) {
        writer_dies(moment);
        expect(r, moment.pages);
        recover();
        expect(r, "NNN");
    }
}

TEST_F(ReaderOfTheDead, IsRefusedMarkedPagesIfTheRecoveringProcessDiesToo)
{
    Watched r(path);
    for (const Moment &then : {Moment{SEAM_FLIP, 0, "OOO"}, Moment{SEAM_FLIP, 2, "--O"},
                               Moment{SEAM_FLIPPING, 2, "---"}, Moment{SEAM_FLIPPED, 2, "NN-"}}) {
        writer_dies({SEAM_DURABLE, 0, "OOO"});
        another_dies(then);
        expect(r, then.pages);
        recover();
        expect(r, "NNN");
    }
}

// A read that finds marked pages waits for a moment. Meanwhile a process takes over the pages.
TEST_F(ReaderOfTheDead, WaitsForAWriterThatIsAboutToComeBy)
{
    bool waited = false;
    Watched r(path);
    writer_dies({SEAM_FLIPPING, 1, "---"});
    here = [&](enum seam_point point) {
        if (point != SEAM_WAIT || waited)
            return;
        waited = true;
        EXPECT_EQ(in_child([&] {
                      Mapped m(path, by_journal());
                      return m.write(0, Bytes(1, after[0])) ? 0 : 1;
                  }),
                  0);
    };
    seam_hook = do_here;
    const std::string seen = kinds(r.read(0, PIECE), before, after);
    seam_hook = nullptr;
    EXPECT_TRUE(waited);
    EXPECT_EQ(seen, "NNN") << ato_errormsg();
}

// Nor for ever for a living process.
TEST_F(ReaderOfTheDead, IsRefusedPagesThatAStoppedProcessHasMarked)
{
    Pipe marked;
    const Bytes part = pattern(PIECE, 9);
    Watched r(path);
    ASSERT_EQ(r.read(), content);
    const pid_t pid = fork();
    if (pid == 0) {
        Mapped m(path, by_journal());
        here = [&](enum seam_point point) {
            if (point == SEAM_FLIPPING) {
                marked.tell();
                pause();
            }
        };
        seam_hook = do_here;
        m.write(0, part);
        _exit(1);
    }
    ASSERT_TRUE(marked.hear());
    EXPECT_EQ(r.read(), Bytes());
    EXPECT_EQ(r.error, EAGAIN);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    Mapped m(path, by_journal());
    EXPECT_TRUE(m.write(SIZE - 1, Bytes(1)) && m.write(0, Bytes(1, part[0])));
    EXPECT_EQ(r.read(0, PIECE), part);
}

// An eager write of a word changes the file itself; its process is killed before the flush.
TEST_F(ReaderOfTheDead, DoesNotSeeAWordThatMayNotBeDurable)
{
    Watched r(path);
    const Bytes word = pattern(8, ++seed);
    ASSERT_EQ(in_child([&] {
                  Mapped m(path, by_journal());
                  PersistFaults faults;
                  faults.before = [](const PersistCall &call) {
                      return std::string(call.op) == "flush_any" ? DIE : GO_ON;
                  };
                  return ato_memcpy_opt(m.base, word.data(), word.size(), ATO_EAGER) ? 0 : 1;
              }),
              CUT);
    EXPECT_EQ(r.read(0, 8), Bytes());
    expect_refused(r);
    Mapped m(path, by_journal());
    EXPECT_EQ(m.read(0, 8), word);
    EXPECT_EQ(r.read(0, 8), word);
}

struct Resize {
    size_t to;
    Moment moment;
    bool knows_size;
};

class ReaderOfAResize : public ReaderOfTheDead
{
  protected:
    static constexpr size_t SHORT = 2 * 4096 + 100, LONG = SIZE + 3 * 4096;

    static ato_options may_grow()
    {
        ato_options o = by_journal();
        o.max_size = LONG;
        return o;
    }
    static off_t size_of(const Watched &r)
    {
        return ato_size(r.base);
    }
};

TEST_F(ReaderOfAResize, IsRefusedASizeThatIsMarkedUntilAWriterHasComeBy)
{
    Watched r(path, LONG);
    for (const Resize &x :
         {Resize{SHORT, {SEAM_DURABLE, 0, "O"}, true},
          Resize{SHORT, {SEAM_FLIPPING, 0, "-"}, false}, Resize{LONG, {SEAM_FLIP, 1, "O"}, false},
          Resize{LONG, {SEAM_FLIPPED, 0, "-"}, true}}) {
        const Bytes part = pattern(100, ++seed);
        about = std::to_string(x.to) + ", " + std::to_string(x.moment.where);
        ASSERT_EQ(die_at(x.moment,
                         [&] {
                             Mapped m(path, may_grow());
                             ato_tx *tx = ato_tx_begin(0);
                             ato_tx_memcpy(tx, m.base, part.data(), part.size(), 0);
                             ato_tx_ftruncate(tx, m.base, x.to);
                             ato_tx_commit(tx);
                         }),
                  CUT);
        const bool is_old = x.moment.pages == "O";
        EXPECT_EQ(size_of(r), !x.knows_size ? -1 : static_cast<off_t>(is_old ? SIZE : x.to))
            << about << ato_errormsg();
        EXPECT_EQ(r.read(0, 4096), is_old ? page_of(content, 0) : Bytes()) << about;
        if (!is_old) {
            expect_refused(r);
        }
        std::copy(part.begin(), part.end(), content.begin());
        content.resize(x.to);
        Mapped m(path, may_grow());
        EXPECT_EQ(m.read(0, x.to), content) << about;
        EXPECT_TRUE(m.write(0, Bytes(1, content[0]))) << about;
        EXPECT_EQ(size_of(r), static_cast<off_t>(x.to)) << about << ato_errormsg();
        EXPECT_EQ(r.read(0, x.to), content) << about << ato_errormsg();
        EXPECT_EQ(r.read(1, x.to), Bytes()) << about;
        EXPECT_EQ(r.error, EFAULT) << about;
        EXPECT_EQ(ato_ftruncate(m.base, SIZE), 0) << about << ato_errormsg();
        content.resize(SIZE);
    }
}

// A takeover that fails with the medium removes the marks and leaves the pages as before. A read
// that began earlier has already checked whether the file is in doubt.
TEST_F(ReaderOfTheDead, ReadIsNotTornByAFailedTakeover)
{
    bool waited = false;
    Watched r(path);
    writer_dies({SEAM_FLIPPING, 0, "---"});
    here = [&](enum seam_point point) {
        if (point != SEAM_WAIT || waited)
            return;
        waited = true;
        EXPECT_EQ(die_at({SEAM_FLIPPED, 1, ""},
                         [&] {
                             PersistFaults faults;
                             faults.before = [](const PersistCall &c) {
                                 return std::string(c.op) == "flush_any" &&
                                                std::string(c.site).find("takeover.c") !=
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
    const std::string seen = kinds(r.read(0, PIECE), before, after);
    seam_hook = nullptr;
    EXPECT_TRUE(waited);
    EXPECT_EQ(seen, "none");
    EXPECT_EQ(r.error, EIO) << ato_errormsg();
}

} // namespace
