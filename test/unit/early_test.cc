// SPDX-License-Identifier: BSD-3-Clause
//
// Early commits: who sees them before they are durable, and who after, whatever others do meanwhile.
#include "early_lab.h"
#include "support/faults.h"
#include "unit/watched.h"

#define _Thread_local __thread // C++ has no _Thread_local
extern "C" {
#include "lib/read/reader.h"
#include "reflection/media/seam.h"
}

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

using namespace early_lab;

namespace
{

TEST_F(EarlyFile, TheNextWriterGoesOnFromWhatIsNotDurable)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const Bytes before = content;
    FsFaults fs;
    for (uint8_t i = 2; i < 6; i++) {
        const Bytes there = newest(m, 2 * PAGE + 5, 100);
        Bytes next = there;
        for (unsigned char &byte : next)
            byte = static_cast<unsigned char>(byte * 3 + i);
        early(m, {{2 * PAGE + 5, next}, {PAGE - 7, pattern(PAGE + 20, i)}});
        EXPECT_TRUE(newest(m) == content);
        ASSERT_EQ(in_child([&] { // and another process
                      ato_promise own;
                      Mapped peer(file, opt());
                      if (!peer || newest(peer) != content)
                          return 1;
                      return commit_early(peer, {{9 * PAGE + 8 * i, Bytes(8, i)}}, own) &&
                                     own.number
                                 ? 0
                                 : 2;
                  }),
                  0);
        put(content, {{9 * PAGE + 8 * i, Bytes(8, i)}});
        EXPECT_TRUE(newest(m) == content);
        EXPECT_TRUE(Snap(m.base).copy() == before);
        EXPECT_TRUE(read_file(file) == before) << "what is not durable is in the file";
    }
    EXPECT_EQ(fs.count("fdatasync"), 0);
    EXPECT_EQ(ato_await(m.base, &promise), 0) << ato_errormsg();
    EXPECT_EQ(fs.count("fdatasync"), 1);
    Bytes awaited = content;
    std::copy_n(before.begin() + 9 * PAGE + 8 * 5, 8, awaited.begin() + 9 * PAGE + 8 * 5);
    EXPECT_TRUE(Snap(m.base).copy() == awaited);
    EXPECT_EQ(await_all(m), 0) << ato_errormsg();
    EXPECT_TRUE(Snap(m.base).copy() == content);
    EXPECT_TRUE(m.read() == content);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_TRUE(read_file(file) == content);
}

// Each of them makes it durable before it shows something of it, or says that it is done.
TEST_F(EarlyFile, OthersSeeItWhenItIsDurable)
{
    write_file(dir / "other", content);
    Mapped m(file, opt()), other(dir / "other", options(ATO_DOMAIN_PROCESS));
    ASSERT_TRUE(m && other && Snap(m.base)) << m.sentence;
    uint8_t fill = 1;
    Bytes to(20), now(20);
    const auto in_tx = [&](unsigned flags, const std::function<bool(ato_tx *)> &calls) {
        ato_tx *tx = ato_tx_begin(flags);
        return calls(tx) && ato_tx_abort(tx) == 0;
    };
    const struct {
        const char *name;
        std::function<bool()> act;
    } deeds[] = {
        {"a read", [&] { return ato_memcpy(to.data(), m.base + 3 * PAGE, 20); }},
        {"a read across pages",
         [&] {
             Bytes two(PAGE);
             const bool done = ato_memcpy(two.data(), m.base + 2 * PAGE + 20, PAGE);
             std::copy(two.end() - 20, two.end(), to.begin());
             return done;
         }},
        {"a read in a transaction",
         [&] {
             return in_tx(0, [&](ato_tx *tx) {
                 return ato_tx_memcpy(tx, to.data(), m.base + 3 * PAGE, 20, 0);
             });
         }},
        {"a read in a transaction that has written to the page",
         [&] {
             return in_tx(0, [&](ato_tx *tx) {
                 return ato_tx_memcpy(tx, m.base + 3 * PAGE + 900, "x", 1, 0) &&
                        ato_tx_memcpy(tx, to.data(), m.base + 3 * PAGE, 20, 0);
             });
         }},
        {"a read in a transaction that has written to the page, of committed bytes",
         [&] {
             return in_tx(ATO_TX_READ_COMMITTED, [&](ato_tx *tx) {
                 return ato_tx_memcpy(tx, m.base + 3 * PAGE + 900, "x", 1, 0) &&
                        ato_tx_memcpy(tx, to.data(), m.base + 3 * PAGE, 20, 0);
             });
         }},
        {"a copy to another file",
         [&] {
             return ato_memcpy(other.base, m.base + 3 * PAGE, 20) &&
                    ato_memcpy(to.data(), other.base, 20);
         }},
        {"a write of what is there",
         [&] { return ato_memcpy_opt(m.base + 3 * PAGE, to.data(), 20, ATO_SKIP_EQUAL); }},
        {"a transaction that writes what is there",
         [&] {
             ato_tx *tx = ato_tx_begin(0);
             return ato_tx_memcpy(tx, m.base + 3 * PAGE, to.data(), 20, ATO_SKIP_EQUAL) &&
                    ato_tx_commit(tx) == 0;
         }},
        {"an early one that writes what is there",
         [&] {
             ato_promise own;
             return commit_early(m, {{3 * PAGE, to, ATO_SKIP_EQUAL}}, own) &&
                    ato_await(m.base, &own) == 0;
         }},
        {"an early one that has read it",
         [&] {
             ato_promise own;
             ato_tx *tx = ato_tx_begin(EARLY);
             return ato_tx_memcpy(tx, to.data(), m.base + 3 * PAGE, 20, 0) &&
                    ato_tx_commit_early(tx, &own) == 0 && ato_await(m.base, &own) == 0;
         }},
        {"a write", [&] { return ato_memcpy(m.base + 3 * PAGE + 90, "x", 1); }},
        {"a write to another page", [&] { return ato_memcpy(m.base + 5 * PAGE, "x", 1); }},
        {"a word in place",
         [&] { return ato_memcpy_opt(m.base + 3 * PAGE + 96, "12345678", 8, ATO_EAGER); }},
        {"a deploy",
         [&] { return ato_deploy(m.base, SIZE) == 0 && read_at(file, 3 * PAGE, 20) == now; }},
        {"a settle", [&] { return await_all(m) == 0; }},
        {"a growth", [&] { return ato_ftruncate(m.base, SIZE + PAGE) == 0; }},
    };
    for (const auto &deed : deeds) {
        const Bytes before = newest(m, 3 * PAGE, 20);
        FsFaults fs;
        now = Bytes(20, fill++);
        early(m, {{3 * PAGE, now}});
        ASSERT_EQ(fs.count("fdatasync"), 0) << deed.name;
        to = now;
        EXPECT_TRUE(deed.act()) << deed.name << ": " << ato_errormsg();
        // What is old, or new and durable.
        EXPECT_TRUE(fs.count("fdatasync") > 0 || to == before) << deed.name;
        EXPECT_EQ(await_all(m), 0) << ato_errormsg();
        EXPECT_TRUE(Snap(m.base).read(3 * PAGE, 20) == now) << deed.name;
    }
}

// Also when nobody is left who could make the rest durable.
TEST_F(EarlyFile, AReaderSeesWhatIsDurable)
{
    const std::vector<Piece> first = {{PAGE, pattern(2 * PAGE, 2)}},
                             second = {{PAGE + 9, pattern(PAGE, 3)}, {9 * PAGE, Bytes(1, 3)}};
    Bytes one = content, two;
    put(one, first);
    two = one;
    put(two, second);
    Peer writer([&](const std::function<void()> &pause) {
        Mapped m(file, opt());
        if (!m || !Snap(m.base))
            return 1;
        pause();
        ato_promise own;
        if (!commit_early(m, first, own) || !own.number)
            return 2;
        pause();
        if (ato_await(m.base, &own) < 0)
            return 3;
        pause();
        if (!commit_early(m, second, own) || !own.number)
            return 4;
        pause();
        return 0;
    });
    ASSERT_TRUE(writer.is_ready());
    watched::Watched r(file, SIZE);
    ASSERT_TRUE(r.base) << r.sentence;
    unsigned step = 0;
    for (const Bytes *is : {&content, &content, &one, &one}) { // after each step
        EXPECT_TRUE(r.read(0, SIZE) == *is) << r.error;
        EXPECT_EQ(r.read(PAGE + 7, 30), Bytes(is->begin() + PAGE + 7, is->begin() + PAGE + 37));
        EXPECT_TRUE(Snap(r.base).copy() == *is);
        if (++step < 4) {
            writer.go_on();
            ASSERT_TRUE(writer.is_ready());
        }
    }
    writer.die();
    EXPECT_TRUE(r.read(0, SIZE) == one) << r.error;
    EXPECT_TRUE(Snap(r.base).copy() == one);
    ASSERT_EQ(in_child([&] {
                  Mapped m(file, opt());
                  return m && newest(m) == two && await_all(m) == 0 ? 0 : 1;
              }),
              0);
    EXPECT_TRUE(r.read(0, SIZE) == two) << r.error;
}

// And it is not held up for ever by one that was killed when its commit was visible in part.
TEST_F(EarlyFile, AReaderIsToldOfOneThatWasKilled)
{
    static int left;
    Mapped m(file, opt()); // so the shared memory stays
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const Bytes before = content, news = pattern(2 * PAGE, 9);
    Bytes after = content;
    put(after, {{PAGE, news}});
    for (const bool is_early : {false, true}) {
        ASSERT_EQ(in_child([&] {
                      Mapped own(file, opt());
                      ato_promise promise;
                      left = 1; // one page is marked still
                      seam_hook = [](enum seam_point here, const void *) {
                          if (here == SEAM_FLIPPED && left-- == 0)
                              _exit(CUT);
                      };
                      return is_early ? commit_early(own, {{PAGE, news}}, promise)
                                      : own.write(PAGE, news);
                  }),
                  CUT);
        ASSERT_EQ(in_child([&] { // in a process that may only read
                      alarm(20);
                      reader_patience_ms = 100;
                      watched::Watched r(file, SIZE);
                      const Bytes page = r.read(PAGE, 50);
                      if (page.empty() && r.error != EAGAIN)
                          return 1;
                      if (!page.empty() && !std::equal(page.begin(), page.end(), &before[PAGE]) &&
                          !std::equal(page.begin(), page.end(), &after[PAGE]))
                          return 2;
                      return r.read(5 * PAGE, 9) == Bytes(&before[5 * PAGE], &before[5 * PAGE + 9])
                                 ? 0
                                 : 3;
                  }),
                  0)
            << is_early;
        ASSERT_EQ(ato_settle(m.base), 0) << ato_errormsg();
        EXPECT_TRUE(m.read(0, SIZE) == after);
        ASSERT_TRUE(m.write(PAGE, Bytes(&before[PAGE], &before[3 * PAGE]))) << m.sentence;
    }
}

// Another process does something at each step of a read.
TEST_F(EarlyFile, ReadsAreOfOneMomentWhateverOthersDoMeanwhile)
{
    static int left;
    static std::function<void()> then;
    constexpr size_t AT = PAGE - 50, N = 3 * PAGE;
    unsigned seed = 1, met = 0;
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const auto part = [](const Bytes &all) { return Bytes(&all[AT], &all[AT + N]); };
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned deed = 0; deed < 4; deed++)
            for (int n = 0;; n++) {
                SCOPED_TRACE(testing::Message() << kind << ", " << deed << ", step " << n);
                early(m, {{2 * PAGE, pattern(PAGE + 9, ++seed)}});
                if (n % 2) {
                    ASSERT_EQ(await_all(m), 0) << ato_errormsg();
                    early(m, {{2 * PAGE - 9, pattern(30, ++seed)}});
                }
                Snap snap(m.base);
                const Bytes seen = snap.read(AT, N), before = part(content);
                const std::vector<Piece> one = {{PAGE, pattern(2 * PAGE, ++seed)}},
                                         two = {{2 * PAGE + 9, pattern(PAGE, ++seed)},
                                                {20 * PAGE, pattern(3 * PAGE, seed)}};
                bool done = false;
                then = [&] {
                    done = true;
                    EXPECT_EQ(in_child([&] {
                                  alarm(20);
                                  ato_promise own;
                                  Mapped other(file, opt());
                                  bool good = !!other;
                                  if (deed != 1)
                                      good = good && commit_early(other, one, own);
                                  if (deed > 0)
                                      good = good && ato_deploy(other.base, 9) == 0;
                                  if (deed > 1)
                                      good = good && commit_early(other, two, own);
                                  if (deed > 2)
                                      good = good && ato_deploy(other.base, 9) == 0 &&
                                             other.write(two[0].at, two[0].bytes);
                                  return good ? 0 : 1;
                              }),
                              0);
                };
                left = n;
                seam_hook = [](enum seam_point here, const void *) {
                    if ((here == SEAM_VERSION || here == SEAM_CHECK) && left-- == 0)
                        then();
                };
                const Bytes read = kind == 0   ? snap.read(AT, N)
                                   : kind == 1 ? newest(m, AT, N)
                                               : m.read(AT, N);
                seam_hook = nullptr;
                if (done && deed != 1)
                    put(content, one);
                if (done && deed > 1)
                    put(content, two);
                met += done;
                if (kind == 0) {
                    EXPECT_TRUE(read == seen) << snap.sentence;
                } else {
                    EXPECT_TRUE(read == before || read == part(content));
                }
                EXPECT_TRUE(snap.read(AT, N) == seen) << snap.sentence;
                EXPECT_TRUE(newest(m) == content);
                if (HasFailure())
                    return;
                if (!done)
                    break;
            }
    EXPECT_GT(met, 50u);
}

// Another process does something from each step of a change on, as far as it need not wait.
TEST_F(EarlyFile, ChangesAreWholeWhateverOthersDoMeanwhile)
{
    static int left;
    static std::function<void()> then;
    unsigned seed = 1, met = 0;
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    ato_promise own;
    std::vector<Piece> mine;
    const std::vector<std::function<bool()>> changes = {
        [&] { return commit_early(m, mine, own); },
        [&] { return m.write(mine[0].at, mine[0].bytes); },
        [&] { return m.write(mine[0].at, mine[0].bytes, ATO_EAGER); },
        [&] { return ato_deploy(m.base, 9) == 0; },
        [&] { return ato_ftruncate(m.base, ato_size(m.base) + 100) == 0; },
    };
    for (size_t kind = 0; kind < changes.size(); kind++)
        for (unsigned deed = 0; deed < 3; deed++)
            for (int n = static_cast<int>(kind + deed) % 5;; n += 5) {
                SCOPED_TRACE(testing::Message() << kind << ", " << deed << ", step " << n);
                early(m, {{2 * PAGE, pattern(PAGE + 9, ++seed)}});
                if (n % 2) {
                    ASSERT_EQ(await_all(m), 0) << ato_errormsg();
                }
                Snap snap(m.base);
                const Bytes seen = snap.copy();
                mine = {{2 * PAGE + 800, pattern(kind == 2 ? 8 : 300, ++seed)},
                        {5 * PAGE, pattern(20, seed)}};
                const std::vector<Piece> one = {{2 * PAGE - 80, pattern(300, ++seed)}},
                                         two = {{2 * PAGE, pattern(90, ++seed)},
                                                {3 * PAGE, Bytes(90, 7)}};
                pid_t pid = 0;
                int status = 0;
                then = [&] {
                    pid = fork();
                    if (pid == 0) {
                        seam_hook = nullptr;
                        alarm(20);
                        Mapped other(file, opt());
                        bool good = !!other;
                        if (deed > 0)
                            good = good && commit_early(other, one, own);
                        good = good && ato_deploy(other.base, 9) == 0;
                        if (deed > 1)
                            good = good && commit_early(other, two, own);
                        _exit(good ? 0 : 1);
                    }
                    for (int ms = 0; ms < 8 && waitpid(pid, &status, WNOHANG) == 0; ms++)
                        usleep(1000);
                };
                left = n;
                seam_hook = [](enum seam_point here, const void *) {
                    if (here != SEAM_WAIT && left-- == 0)
                        then();
                };
                EXPECT_TRUE(changes[kind]()) << ato_errormsg();
                seam_hook = nullptr;
                if (kind == 0)
                    put(content, mine);
                else if (kind < 3)
                    put(content, {mine[0]});
                content.resize(static_cast<size_t>(ato_size(m.base)));
                if (pid) {
                    (void)waitpid(pid, &status, 0); // unless it has ended before
                    EXPECT_EQ(status, 0);
                    met++;
                    if (deed > 0)
                        put(content, one);
                    if (deed > 1)
                        put(content, two);
                }
                EXPECT_TRUE(newest(m) == content);
                EXPECT_TRUE(snap.copy() == seen) << snap.sentence;
                ASSERT_EQ(await_all(m), 0) << ato_errormsg();
                EXPECT_TRUE(Snap(m.base).copy() == content);
                ASSERT_EQ(ato_deploy(m.base, 9), 0) << ato_errormsg();
                EXPECT_TRUE(read_at(file, 0, content.size()) == content);
                if (HasFailure())
                    return;
                if (!pid)
                    break;
            }
    EXPECT_GT(met, 45u);
}

// Others may commit early between the sync of an ordinary commit and the moment at which it becomes visible.
TEST_F(EarlyFile, AnOrdinaryCommitShowsNothingOfOthersThatIsNotDurable)
{
    static std::function<void()> then;
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    for (const size_t at : {2 * PAGE, 9 * PAGE}) { // another page, and the same one
        const std::vector<Piece> late = {{9 * PAGE + 900, pattern(100, static_cast<unsigned>(at))}};
        FsFaults fs;
        long syncs = 0;
        then = [&] {
            if (syncs > 0 || (syncs = fs.count("fdatasync")) == 0)
                return;
            EXPECT_EQ(
                in_child([&] {
                    alarm(20);
                    ato_promise own;
                    Mapped other(file, opt());
                    if (at == 9 * PAGE) // the page is held
                        return other && commit_early(other, {{PAGE, Bytes(9, 1)}}, own) ? 0 : 1;
                    return other && commit_early(other, late, own) && own.number ? 0 : 1;
                }),
                0);
        };
        seam_hook = [](enum seam_point here, const void *) {
            if (here == SEAM_RELEASE) // the first one after the sync: others may sync
                then();
        };
        const bool done = m.write(at, Bytes(50, 4));
        seam_hook = nullptr;
        ASSERT_TRUE(done) << m.sentence;
        ASSERT_EQ(syncs, 1);
        put(content, {{at, Bytes(50, 4)}});
        const Bytes before = content;
        put(content, at == 9 * PAGE ? std::vector<Piece>{{PAGE, Bytes(9, 1)}} : late);
        EXPECT_TRUE(newest(m) == content);
        const Bytes seen = Snap(m.base).copy();
        EXPECT_TRUE(seen == before || (seen == content && fs.count("fdatasync") == 2));
    }
}

// Also one that may only read, while an ordinary commit becomes visible.
TEST_F(EarlyFile, NoReaderSeesLessThanAnotherOneHasSeen)
{
    static int left;
    static std::function<void()> then;
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const Bytes news(2 * PAGE, 7), some(9, 7);
    bool met = false;
    then = [&] { // of the first of two pages
        met = true;
        EXPECT_EQ(in_child([&] {
                      alarm(20);
                      Mapped own(file, opt());
                      return own && own.read(PAGE, 9) == some ? 0 : 1;
                  }),
                  0);
        EXPECT_EQ(in_child([&] {
                      alarm(20);
                      watched::Watched own(file, SIZE);
                      return own.base && own.read(PAGE, 9) == some ? 0 : 1;
                  }),
                  0);
    };
    left = 1;
    seam_hook = [](enum seam_point here, const void *) {
        if (here == SEAM_FLIPPED && left-- == 0)
            then();
    };
    EXPECT_TRUE(m.write(PAGE, news)) << m.sentence;
    seam_hook = nullptr;
    EXPECT_TRUE(met);
}

// What is not durable stays away from the file, also if it is committed while durable pages are brought there.
TEST_F(EarlyFile, BringsNothingToTheFileThatIsNotDurable)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    early(m, {{2 * PAGE, pattern(PAGE, 2)}, {8 * PAGE, pattern(2 * PAGE, 2)}});
    const Bytes durable = content;
    const std::vector<Piece> late = {{2 * PAGE + 30, pattern(PAGE, 3)}, {9 * PAGE, Bytes(7, 3)}};
    {
        FsFaults fs;
        std::thread beside;
        std::atomic<bool> over{false};
        fs.before = [&](const FsCall &call) {
            if (std::string(call.op) == "fdatasync" && !beside.joinable()) {
                beside = std::thread([&] {
                    EXPECT_EQ(in_child([&] {
                                  alarm(20);
                                  ato_promise own;
                                  Mapped other(file, opt());
                                  return other && commit_early(other, late, own) && own.number ? 0
                                                                                               : 1;
                              }),
                              0);
                    over = true;
                });
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                EXPECT_FALSE(over) << "it has not waited for the checkpoint";
            }
            return GO_ON;
        };
        ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
        ASSERT_TRUE(beside.joinable());
        beside.join();
    }
    put(content, late);
    EXPECT_TRUE(read_at(file, 0, SIZE) == durable);
    EXPECT_TRUE(newest(m) == content);
    EXPECT_TRUE(Snap(m.base).copy() == durable);
    ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
    EXPECT_TRUE(read_at(file, 0, SIZE) == content);
    EXPECT_TRUE(newest(m) == content);
    EXPECT_TRUE(m.read(0, SIZE) == content);
}

TEST_F(EarlyFile, ASnapshotReadsTheSameAgain)
{
    Mapped m(file, opt());
    ASSERT_TRUE(m && Snap(m.base)) << m.sentence;
    const auto change = [&](uint8_t fill) {
        early(m, {{PAGE, pattern(50, fill)}, {7 * PAGE + 100, pattern(3 * PAGE, fill)}});
    };
    const Bytes first = content;
    change(2);
    Snap old(m.base);
    EXPECT_TRUE(old.copy() == first);
    EXPECT_EQ(ato_snapshot_is_newest(old.s), 0);
    change(3);
    ASSERT_EQ(await_all(m), 0) << ato_errormsg();
    const Bytes third = content;
    Snap durable(m.base);
    EXPECT_EQ(ato_snapshot_is_newest(durable.s), 1);
    change(4);
    ato_snapshot *at_fourth = ato_snapshot_newest(m.base);
    ASSERT_TRUE(at_fourth) << ato_errormsg();
    const Bytes fourth = content;
    change(5);
    for (int i = 0; i < 5; i++) {
        Bytes seen;
        EXPECT_TRUE(old.copy() == first) << i << old.sentence;
        EXPECT_TRUE(durable.copy() == third) << i << durable.sentence;
        EXPECT_TRUE(copy_snapshot(at_fourth, seen) >= 0 && seen == fourth) << i << ato_errormsg();
        if (i == 0)
            change(6);
        else if (i == 1)
            ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
        else if (i == 2)
            change(7);
        else
            ASSERT_TRUE(m.write(7 * PAGE, Bytes(2 * PAGE, 9))) << m.sentence;
    }
    EXPECT_EQ(ato_snapshot_end(at_fourth), 0);
}

} // namespace
