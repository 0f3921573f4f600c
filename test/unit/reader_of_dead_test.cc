// SPDX-License-Identifier: BSD-3-Clause
//
// A process may only read a file, which an idle process that may write has mapped too. A third
// process is killed while it shows a commit: before it marks, changes or unmarks each of three
// pages, or the size. Then the process is killed that takes over the pages. The reader sees the
// whole commit or nothing of it, and never less than before. (A commit to two files:
// reader_of_dead_commit_test.cc.)
//
// If an order of commit.c, takeover.c or visible.c is broken, these tests fail: six were tried.
#include "reader_of_dead_lab.h"

#include <cerrno>
#include <thread>

using namespace reader_of_dead;

namespace
{

const std::vector<Moment> of_a_write = {{SEAM_DURABLE, 0, false}, {SEAM_FLIP, 1, false},
                                        {SEAM_FLIP, 3, false},    {SEAM_FLIPPING, 0, true},
                                        {SEAM_FLIPPING, 2, true}, {SEAM_FLIPPED, 0, true},
                                        {SEAM_FLIPPED, 2, true}};

TEST_F(ReaderOfTheDead, SeesAllOrNothingOfAWriteThatACrashCut)
{
    Watched r(path);
    for (const Moment &moment : of_a_write) {
        writer_dies(moment);
        expect(r, moment.shown);
        recover();
        expect(r, true);
    }
}

TEST_F(ReaderOfTheDead, SeesAllOrNothingIfTheRecoveringProcessDiesToo)
{
    Watched r(path);
    for (const Moment &moment : of_a_write)
        for (const Moment &then :
             {Moment{SEAM_FLIP, 0, false}, Moment{SEAM_FLIP, 1, false}, Moment{SEAM_FLIP, 2, false},
              Moment{SEAM_FLIPPING, 0, true}, Moment{SEAM_FLIPPING, 2, true},
              Moment{SEAM_FLIPPED, 0, true}, Moment{SEAM_FLIPPED, 2, true}}) {
            writer_dies(moment);
            another_dies(then);
            expect(r, moment.shown || then.shown);
            recover();
            expect(r, true);
        }
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

// One thread has a commit on the media and shows nothing of it yet, while another thread shows its
// commit. Then a process dies that has marked a part of both.
TEST_F(ReaderOfTheDead, SeesAllOrNothingOfTheWriteOfEachThread)
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

// A takeover that fails with the medium removes the marks and leaves the pages as before. A read
// that began earlier has already checked whether the file is in doubt.
TEST_F(ReaderOfTheDead, ReadIsNotTornByAFailedTakeover)
{
    bool waited = false;
    Watched r(path);
    writer_dies({SEAM_FLIPPING, 0, true});
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
