// SPDX-License-Identifier: BSD-3-Clause
//
// What do processes that have a file mapped see of one another, and of those that come and go?
#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "reflection/media/locks.h"
#include "reflection/media/seam.h"
}

using namespace support;

namespace
{

constexpr size_t SIZE = 4 * 4096;

class PeersOfAFile : public testing::Test
{
  protected:
    PeersOfAFile()
    {
        write_file(path, old);
    }
    static ato_options opt(uint64_t max_size = 0)
    {
        ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER);
        o.max_size = max_size;
        return o;
    }

    TempDir dir;
    const std::string path = dir / "file";
    const Bytes old = pattern(SIZE, 1);
};

// Who mapped it with less room is told how long another has made it.
TEST_F(PeersOfAFile, TellASizeThatLiesBehindTheEndOfAMapping)
{
    support::Peer peer([&](const std::function<void()> &wait) {
        Mapped m(path, opt(64 * SIZE));
        wait();
        return m && ato_ftruncate(m.base, 50 * SIZE) == 0 ? 0 : 1;
    });
    ASSERT_TRUE(peer.is_ready());
    Mapped m(path, opt(8 * SIZE));
    ASSERT_TRUE(m) << m.sentence;
    peer.go_on();
    ASSERT_EQ(peer.end(), 0);
    EXPECT_EQ(ato_size(m.base), static_cast<off_t>(50 * SIZE));
    EXPECT_EQ(m.stat().size, 50 * SIZE);
    EXPECT_EQ(m.read(0, SIZE), old);
}

// All of them find nothing, and make what is missing at the same time.
TEST_F(PeersOfAFile, MapANewOneAtTheSameTime)
{
    constexpr int MAKERS = 6, ROUNDS = 60;
    for (int round = 0; round < ROUNDS; round++) {
        SCOPED_TRACE(round);
        const std::string folder = dir / ("new" + std::to_string(round));
        ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
        const std::string file = folder + "/file";
        write_file(file, old);
        int start[2];
        ASSERT_EQ(pipe(start), 0);
        pid_t pids[MAKERS];
        for (int i = 0; i < MAKERS; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                char c;
                close(start[1]);
                (void)!read(start[0], &c, 1);
                Mapped m(file, opt());
                if (!m) {
                    fprintf(stderr, "%s\n", m.sentence.c_str());
                    _exit(1);
                }
                _exit(m.write(static_cast<uint64_t>(i) * 2000, pattern(1000, 100 + i)) ? 0 : 2);
            }
        }
        close(start[0]);
        close(start[1]);
        for (int i = 0; i < MAKERS; i++) {
            int status = -1;
            ASSERT_EQ(waitpid(pids[i], &status, 0), pids[i]);
            EXPECT_EQ(status, 0);
        }
        Mapped m(file, opt());
        ASSERT_TRUE(m) << m.sentence;
        for (int i = 0; i < MAKERS; i++)
            EXPECT_EQ(m.read(static_cast<uint64_t>(i) * 2000, 1000), pattern(1000, 100 + i)) << i;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        DIR *left = opendir((folder + "/.ato").c_str());
        ASSERT_NE(left, nullptr);
        for (const dirent *e; (e = readdir(left));)
            EXPECT_EQ(e->d_name[0], '.') << e->d_name;
        closedir(left);
    }
}

// Who mapped it when it was short may use what another one made it grow by, and calls nothing for it.
TEST_F(PeersOfAFile, SeeItGrowAndShrink)
{
    constexpr size_t LONG = 3 * SIZE + 700;
    Mapped m(path, opt(1 << 20));
    ASSERT_TRUE(m) << m.sentence;
    Peer other([&](const auto &wait) {
        Mapped his(path, opt(1 << 20));
        if (!his || ato_ftruncate(his.base, LONG) < 0 || !his.write(LONG - 500, pattern(500, 2)))
            return 1;
        wait();
        return ato_ftruncate(his.base, SIZE / 2) < 0 ? 2 : 0;
    });
    ASSERT_TRUE(other.is_ready());
    EXPECT_EQ(m.read(LONG - 500, 500), pattern(500, 2)) << m.sentence;
    EXPECT_EQ(m.read(SIZE, LONG - 500 - SIZE), Bytes(LONG - 500 - SIZE));
    EXPECT_TRUE(m.write(SIZE - 100, pattern(9000, 3))) << m.sentence;
    EXPECT_EQ(m.stat().size, LONG);
    EXPECT_EQ(other.end(), 0);
    EXPECT_EQ(m.stat().size, SIZE / 2);
    EXPECT_TRUE(m.read(SIZE / 2, 1).empty());
    EXPECT_EQ(m.error, EFAULT) << m.sentence;
    EXPECT_EQ(m.read(0, SIZE / 2), Bytes(old.begin(), old.begin() + SIZE / 2));
}

// Its own room ends where its largest size is.
TEST_F(PeersOfAFile, ReachWhatOthersMadeItGrowByUpToTheirOwnLargestSize)
{
    Mapped small(path, opt(2 * SIZE));
    ASSERT_TRUE(small) << small.sentence;
    Peer other([&](const auto &wait) {
        Mapped his(path, opt(1 << 20));
        if (!his || ato_ftruncate(his.base, 8 * SIZE) < 0 || !his.write(SIZE, pattern(SIZE, 2)))
            return 1;
        wait();
        return his.read(SIZE, SIZE) == pattern(SIZE, 3) ? 0 : 2;
    });
    ASSERT_TRUE(other.is_ready());
    EXPECT_EQ(small.read(SIZE, SIZE), pattern(SIZE, 2)) << small.sentence;
    EXPECT_TRUE(small.write(SIZE, pattern(SIZE, 3))) << small.sentence;
    EXPECT_EQ(other.end(), 0);
}

size_t address_space() // of this process, in bytes
{
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
}

// What is kept for the largest file that the shared memory has room for is not kept for this one.
TEST_F(PeersOfAFile, TakeTheAddressSpaceThatTheyNeed)
{
    const size_t before = address_space();
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    const size_t first = address_space() - before;
    Peer other([&](const auto &wait) {
        const size_t begin = address_space();
        Mapped his(path, opt());
        wait();
        return his && address_space() - begin < first + (1u << 30) ? 0 : 1;
    });
    ASSERT_TRUE(other.is_ready());
    EXPECT_EQ(other.end(), 0);
}

// The last one out is killed: the next one is the first.
TEST_F(PeersOfAFile, MayAllBeKilled)
{
    Bytes now = old;
    for (int round = 0; round < 5; round++) {
        const Bytes some = pattern(6000, 10 + round);
        const size_t at = static_cast<size_t>(round) * 1700;
        auto live = [&](const auto &wait) {
            Mapped m(path, opt());
            if (!m || m.read() != now)
                return 1;
            wait();
            if (!m.write(at, some))
                return 2;
            wait();
            return 3;
        };
        Peer a(live);
        ASSERT_TRUE(a.is_ready());
        Peer b(live);
        ASSERT_TRUE(b.is_ready());
        Peer *first = round % 2 ? &a : &b, *last = round % 2 ? &b : &a;
        first->die();
        last->go_on();
        ASSERT_TRUE(last->is_ready());
        last->die();
        std::copy(some.begin(), some.end(), now.begin() + static_cast<ptrdiff_t>(at));
    }
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), now);
}

// To make it plain is the last one's, whoever was first, and however the others went.
TEST_F(PeersOfAFile, LeaveItPlainWhenTheLastOneUnmapsIt)
{
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    Peer killed([&](const auto &wait) {
        Mapped his(path, opt());
        if (!his.write(100, pattern(9000, 2)))
            return 1;
        wait();
        return 2;
    });
    Peer last([&](const auto &wait) {
        Mapped his(path, opt());
        if (!his)
            return 1;
        wait();
        if (!his.write(9000, pattern(100, 3)))
            return 2;
        return his.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 3;
    });
    ASSERT_TRUE(killed.is_ready());
    ASSERT_TRUE(last.is_ready());
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence; // only detaches
    EXPECT_NE(read_file(path).size(), 0u);
    DIR *folder = opendir((dir / ".ato").c_str());
    ASSERT_NE(folder, nullptr);
    unsigned entries = 0;
    while (readdir(folder))
        entries++;
    closedir(folder);
    EXPECT_GE(entries, 4u);
    killed.die();
    EXPECT_EQ(last.end(), 0);
    Bytes now = old;
    const Bytes a = pattern(9000, 2), b = pattern(100, 3);
    std::copy(a.begin(), a.end(), now.begin() + 100);
    std::copy(b.begin(), b.end(), now.begin() + 9000);
    EXPECT_EQ(read_file(path), now);
}

// So many slots there are. One process has all that are left.
TEST_F(PeersOfAFile, AreAtMostAThousandAndTwentyFour)
{
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    Peer many([&](const auto &wait) {
        struct stat st;
        if (stat(path.c_str(), &st) < 0)
            return 1;
        const std::string manifest = dir / (".ato/" + std::to_string(st.st_ino) + ".manifest");
        int fd = open(manifest.c_str(), O_RDWR | O_CLOEXEC);
        struct flock all = {};
        all.l_type = F_WRLCK;
        all.l_whence = SEEK_SET;
        all.l_start = 2; // 0: attach lock, 1: of the parent
        all.l_len = 1023;
        if (fd < 0 || fcntl(fd, F_OFD_SETLK, &all) < 0)
            return 2;
        wait();
        return 0;
    });
    ASSERT_TRUE(many.is_ready());
    EXPECT_EQ(in_child([&] {
                  Mapped one_more(path, opt());
                  return !one_more && one_more.error == EAGAIN &&
                                 one_more.sentence.find("1024 processes") != std::string::npos
                             ? 0
                             : 1;
              }),
              0);
    EXPECT_EQ(many.end(), 0);
    EXPECT_EQ(in_child([&] { return Mapped(path, opt()) ? 0 : 1; }), 0);
}

bool is_of_recovery(const PersistCall &c)
{
    return std::string(c.site).find("replay.c") != std::string::npos;
}

// Who maps a file that somebody else is just recovering waits until that is done.
TEST_F(PeersOfAFile, WaitForARecovery)
{
    const std::string second = dir / "second";
    write_file(second, old);
    ASSERT_EQ(die_in_commit(path, second), CUT);
    Peer slow([&](const auto &wait) {
        {
            PersistFaults recovery;
            bool told = false;
            recovery.before = [&](const PersistCall &c) {
                if (!told && is_of_recovery(c)) {
                    told = true;
                    wait();
                    usleep(100000); // the other one is waiting by now, or fails the test
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
    Mapped b(second, opt());
    ASSERT_TRUE(b) << b.sentence;
    EXPECT_EQ(b.read(0, 100), pattern(100, 3));
    EXPECT_EQ(slow.end(), 0);
}

// What a recovery locks, of files that its process does not even have mapped, is free when it is over.
TEST_F(PeersOfAFile, AreNotHinderedByAChildThatIsForkedWhileOneRecoversAnother)
{
    const std::string second = dir / "second";
    write_file(second, old);
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(die_in_commit(path, second), CUT);
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
    Mapped b(second, opt());
    locks_patience_ms = 30000;
    EXPECT_TRUE(b) << b.sentence;
    EXPECT_EQ(b.read(0, 100), pattern(100, 3));
    end.tell();
    EXPECT_EQ(waitpid(forked, nullptr, 0), forked);
}

// Nor by one whose parent is killed there.
TEST_F(PeersOfAFile, AreNotHinderedByAChildOfWhoWasKilledWhileItRecoveredAnother)
{
    const std::string second = dir / "second";
    write_file(second, old);
    Pipe end;
    Peer recovers([&](const auto &wait) {
        Mapped his(path, opt());
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
        his.write(0, pattern(10, 4));
        return 1;
    });
    ASSERT_TRUE(recovers.is_ready());
    ASSERT_EQ(die_in_commit(path, second), CUT);
    recovers.go_on();
    EXPECT_EQ(recovers.end(), CUT);
    locks_patience_ms = 500;
    Mapped a(path, opt()), b(second, opt());
    locks_patience_ms = 30000;
    end.tell();
    ASSERT_TRUE(a && b) << a.sentence << b.sentence;
    EXPECT_EQ(a.read(0, 100), pattern(100, 2));
    EXPECT_EQ(b.read(0, 100), pattern(100, 3));
}

// In msync that would take along what it had stored, and nobody will ever read: where memory says of a page what the
// media do, that is durable.
TEST_F(PeersOfAFile, DoNotMakeDurableWhatADeadOnesTransactionLeft)
{
    constexpr size_t LONG = 600 * 4096;
    const ato_options o = options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER);
    write_file(path, pattern(LONG, 1));
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    Peer dead([&](const auto &wait) {
        Mapped his(path, o);
        if (!his.write(0, pattern(LONG, 2)))
            return 1;
        ato_tx *tx = ato_tx_begin(0);
        if (!ato_tx_memcpy(tx, his.base, pattern(LONG, 3).data(), LONG, 0))
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
                       std::string(c.site).find("page.c") != std::string::npos;
            return GO_ON;
        };
        EXPECT_TRUE(m.write(100, pattern(10, 4))) << m.sentence;
    }
    EXPECT_EQ(flushes, 0);
    EXPECT_EQ(files.count("fsync"), 1); // of the folder, where his journal was
    EXPECT_EQ(m.read(4096, LONG - 4096), [&] {
        const Bytes all = pattern(LONG, 2);
        return Bytes(all.begin() + 4096, all.end());
    }());
}

// The same when it had committed, and a journal tells.
// Words in many pages of them: where each flush takes as long as one of the file.
TEST_F(PeersOfAFile, MakeTheScatteredWordsOfADeadOnesCommitDurableInOneGo)
{
    constexpr size_t PIECES = 20, STEP = 2 << 20;
    const ato_options o = options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM);
    write_file(path, Bytes());
    ASSERT_EQ(truncate(path.c_str(), PIECES * STEP), 0);
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(in_child([&] {
                  Mapped his(path, o);
                  ato_tx *tx = ato_tx_begin(0);
                  for (size_t i = 0; i < PIECES; i++)
                      if (!ato_tx_memcpy(tx, his.base + i * STEP, "piece", 5, 0))
                          return 2;
                  PersistFaults faults;
                  faults.die_at_flip(1);
                  ato_tx_commit(tx);
                  return 1;
              }),
              CUT);
    long stores = 0, flushes = 0;
    FsFaults files;
    {
        PersistFaults recovery;
        recovery.before = [&](const PersistCall &c) {
            stores += is_of_recovery(c) && std::string(c.op) == "store_word";
            flushes += is_of_recovery(c) && std::string(c.op).find("flush") == 0;
            return GO_ON;
        };
        EXPECT_TRUE(m.write(100, pattern(10, 4))) << m.sentence;
    }
    EXPECT_EQ(stores, static_cast<long>(PIECES));
    EXPECT_EQ(flushes, 0);
    EXPECT_EQ(files.count("fsync"), 3); // by the replay, by the takeover, and of the folder
    for (size_t i = 0; i < PIECES; i++)
        EXPECT_EQ(m.read(i * STEP, 5), Bytes({'p', 'i', 'e', 'c', 'e'})) << i;
}

TEST_F(PeersOfAFile, MakeTheWordsOfADeadOnesCommitDurableAPageOfThemAtATime)
{
    constexpr size_t LONG = 600 * 4096;
    const ato_options o = options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM);
    write_file(path, pattern(LONG, 1));
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(in_child([&] {
                  Mapped his(path, o);
                  PersistFaults faults;
                  faults.die_at_flip(1);
                  his.write(0, pattern(LONG, 2));
                  return 1;
              }),
              CUT);
    long stores = 0, flushes = 0;
    {
        PersistFaults recovery;
        recovery.before = [&](const PersistCall &c) {
            stores += is_of_recovery(c) && std::string(c.op) == "store_word";
            flushes += is_of_recovery(c) && std::string(c.op).find("flush") == 0;
            return GO_ON;
        };
        EXPECT_TRUE(m.write(100, pattern(10, 4))) << m.sentence;
    }
    EXPECT_EQ(stores, 600);
    EXPECT_EQ(flushes, 2); // 512 words a page
    EXPECT_EQ(m.read(4096, LONG - 4096), [&] {
        const Bytes all = pattern(LONG, 2);
        return Bytes(all.begin() + 4096, all.end());
    }());
}

std::function<void()> *meanwhile;

// The last one brings everything home. Somebody comes, makes the file shorter and goes.
TEST_F(PeersOfAFile, MayComeAndGoWhileTheLastOneMakesItPlain)
{
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, pattern(SIZE, 2))) << m.sentence;
    Peer other([&](const auto &wait) {
        wait();
        {
            Mapped his(path, opt());
            if (!his || ato_ftruncate(his.base, SIZE / 2) < 0)
                return 1;
        }
        wait();
        return 0;
    });
    ASSERT_TRUE(other.is_ready());
    std::function<void()> come = [&] {
        other.go_on();
        other.is_ready();
    };
    meanwhile = &come;
    seam_hook = [](enum seam_point point, const void *) {
        if (point != SEAM_RESERVE)
            return;
        seam_hook = nullptr;
        (*meanwhile)();
    };
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    seam_hook = nullptr;
    EXPECT_EQ(other.end(), 0);
    const Bytes all = pattern(SIZE, 2);
    EXPECT_EQ(read_file(path), Bytes(all.begin(), all.begin() + SIZE / 2));
    EXPECT_FALSE(exists(manifest_of(path)));
}

} // namespace
