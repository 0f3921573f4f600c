// SPDX-License-Identifier: BSD-3-Clause
//
// A process dies that has a file mapped. Which of its peers wait while another peer recovers the
// file, and what does the recovery make durable?
#include "peers_lab.h"
#include "support/dying.h"
#include "support/faults.h"

extern "C" {
#include "reflection/media/locks.h"
}

#include <sys/wait.h>
#include <unistd.h>

using namespace peers_lab;

namespace
{

bool is_of_recovery(const PersistCall &c)
{
    return std::string(c.site).find("replay.c") != std::string::npos;
}

// A map of a file that another process recovers waits until the recovery is done.
TEST_F(PeersOfAFile, WaitForARecovery)
{
    ASSERT_EQ(die_in_commit(path), CUT);
    Peer slow([&](const auto &wait) {
        {
            PersistFaults recovery;
            bool told = false;
            recovery.before = [&](const PersistCall &c) {
                if (!told && is_of_recovery(c)) {
                    told = true;
                    wait();
                    usleep(100000); // the test's own map has begun to wait
                }
                return GO_ON;
            };
            Mapped m(path, opt());
            if (!m || !told)
                return 1;
        }
        return 0;
    });
    ASSERT_TRUE(slow.is_ready());
    slow.go_on();
    Mapped b(path, opt());
    ASSERT_TRUE(b) << b.sentence;
    EXPECT_EQ(b.read(4096, 100), pattern(100, 3));
    EXPECT_EQ(slow.end(), 0);
}

// Another program gave the file another length: what the dead process committed is not mixed with it.
TEST_F(PeersOfAFile, RefuseToRecoverAFileThatAnotherProgramResized)
{
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(in_child([&] {
                  Mapped dead(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
                  PersistFaults faults;
                  faults.die_at_flip(2);
                  dead.write(4000, pattern(5000, 2));
                  return 0;
              }),
              CUT);
    for (const size_t size : {SIZE + 5000, SIZE - 10}) {
        ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
        EXPECT_FALSE(m.write(4100, pattern(10, 4)));
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
    }
    ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
    EXPECT_TRUE(m.write(4000, pattern(10, 4))) << m.sentence;
    const Bytes committed = pattern(5000, 2);
    EXPECT_EQ(m.read(4010, 4990), Bytes(committed.begin() + 10, committed.end()));
}

// A recovery takes the attach lock, and gives it back at its end.
TEST_F(PeersOfAFile, AreNotBlockedByAChildThatIsForkedDuringARecovery)
{
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(die_in_commit(path), CUT);
    Pipe end;
    pid_t forked = -1;
    {
        PersistFaults recovery;
        recovery.before = [&](const PersistCall &c) {
            if (forked < 0 && is_of_recovery(c) &&
                (forked = fork()) == 0) { // as another thread might at this moment
                end.hear();
                _exit(0);
            }
            return GO_ON;
        };
        EXPECT_TRUE(m.write(0, pattern(10, 4))) << m.sentence;
    }
    ASSERT_GT(forked, 0);
    locks_patience_ms = 500;
    EXPECT_EQ(in_child([&] {
                  m.base = nullptr;
                  Mapped b(path, opt());
                  return b && b.read(4096, 100) == pattern(100, 3) ? 0 : 1;
              }),
              0);
    locks_patience_ms = 30000;
    end.tell();
    EXPECT_EQ(waitpid(forked, nullptr, 0), forked);
}

// The same, and the recovering process is killed after the fork.
TEST_F(PeersOfAFile, AreNotBlockedByAChildOfAProcessKilledDuringARecovery)
{
    Pipe end;
    Peer recovers([&](const auto &wait) {
        Mapped own(path, opt());
        wait();
        PersistFaults recovery;
        recovery.before = [&](const PersistCall &c) -> int {
            if (!is_of_recovery(c))
                return GO_ON;
            if (fork() == 0) { // as another thread might
                end.hear();
                _exit(0);
            }
            _exit(CUT);
        };
        own.write(0, pattern(10, 4));
        return 1;
    });
    ASSERT_TRUE(recovers.is_ready());
    ASSERT_EQ(die_in_commit(path), CUT);
    recovers.go_on();
    EXPECT_EQ(recovers.end(), CUT);
    locks_patience_ms = 500;
    Mapped a(path, opt());
    locks_patience_ms = 30000;
    end.tell();
    ASSERT_TRUE(a) << a.sentence;
    EXPECT_EQ(a.read(0, 100), pattern(100, 2));
    EXPECT_EQ(a.read(4096, 100), pattern(100, 3));
}

// A page whose state in memory equals its word on the media is durable already.
TEST_F(PeersOfAFile, DoNotFlushThePagesOfADeadTransaction)
{
    constexpr size_t LONG = 600 * 4096;
    const ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    write_file(path, pattern(LONG, 1));
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    Peer dead([&](const auto &wait) {
        Mapped own(path, o);
        if (!own.write(0, pattern(LONG, 2)))
            return 1;
        ato_tx *tx = ato_tx_begin(0);
        if (!ato_tx_memcpy(tx, own.base, pattern(LONG, 3).data(), LONG, 0))
            return 2;
        wait();
        return 3;
    });
    ASSERT_TRUE(dead.is_ready());
    dead.die();
    long flushes = 0;
    FsFaults files;
    {
        PersistFaults takeover;
        takeover.before = [&](const PersistCall &c) {
            flushes += std::string(c.op) == "flush_any" &&
                       std::string(c.site).find("takeover.c") != std::string::npos;
            return GO_ON;
        };
        EXPECT_TRUE(m.write(100, pattern(10, 4))) << m.sentence;
    }
    EXPECT_EQ(flushes, 0);
    EXPECT_EQ(files.count("fsync"), 0);
    EXPECT_EQ(m.read(4096, LONG - 4096), [&] {
        const Bytes all = pattern(LONG, 2);
        return Bytes(all.begin() + 4096, all.end());
    }());
}

// It may have stored the number of a page to an entry of a sparse reflection, and not flushed it. No page had that place yet.
TEST_F(PeersOfAFile, SettlePageNumbersOfADeadProcessBeforeTheFileIsClean)
{
    ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
    o.format = ATO_FORMAT_SPARSE;
    for (bool dies : {false, true}) {
        const std::string file = dir / (dies ? "one" : "none");
        write_file(file, old);
        Mapped m(file, o);
        ASSERT_TRUE(m.write(100, pattern(10, 4))) << m.sentence;
        if (dies) {
            ASSERT_EQ(in_child([&] {
                          Mapped own(file, o);
                          const bool written = own.write(5000, pattern(10, 5));
                          own.base = nullptr;
                          return written ? CUT : 1;
                      }),
                      CUT);
        }
        PersistFaults leaving;
        long flushes = 0;
        leaving.before = [&](const PersistCall &c) {
            flushes += std::string(c.op) == "flush_any" && c.n == 4096 &&
                       std::string(c.site).find("api/files.c") != std::string::npos;
            return GO_ON;
        };
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        EXPECT_EQ(flushes, dies) << "one meta page has words";
    }
}

} // namespace
