// SPDX-License-Identifier: BSD-3-Clause
//
// What do processes that have a file mapped see of one another, and of those that come and go? (What they recover of
// one that died: peers_dead_test.cc.)
#include "peers_lab.h"

#include <cerrno>
#include <fstream>
#include <functional>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "reflection/media/seam.h"
}

using namespace peers_lab;

namespace
{

// A process that mapped it with less room is told how long another one has made it.
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

// A process that mapped it when it was short uses what another one made it grow by, without another call.
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

// The last one makes it plain, whichever was first, and however the others went.
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

std::function<void()> *meanwhile;

// The last one brings everything home. Meanwhile another process comes, makes the file shorter and goes.
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
