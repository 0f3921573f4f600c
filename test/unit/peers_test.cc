// SPDX-License-Identifier: BSD-3-Clause
//
// What do processes that have a file mapped see of one another, while processes map and unmap it?
// (The recovery after a dead process: peers_dead_test.cc.)
#include "peers_lab.h"

#include "model/rig.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "reflection/media/locks.h"
}

using namespace peers_lab;

namespace
{

constexpr size_t CHUNK = 512 * 4096;

// A process whose mapping has less room gets the size to which another process grows the file.
TEST_F(PeersOfAFile, ReportASizeBehindTheEndOfTheirMapping)
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

// All processes find no pairing, and make it at the same time.
TEST_F(PeersOfAFile, MapANewFileAtTheSameTime)
{
    constexpr int MAKERS = 6;
    for (unsigned round = 0; round < rig::rounds(60); round++) {
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
        EXPECT_EQ(names_in(folder + "/.ato"), std::vector<std::string>());
    }
}

// A process that mapped the file before another one grew it uses the new part without another call.
TEST_F(PeersOfAFile, SeeItGrowAndShrink)
{
    constexpr size_t LONG = 3 * SIZE + 700;
    Mapped m(path, opt(1 << 20));
    ASSERT_TRUE(m) << m.sentence;
    Peer other([&](const auto &wait) {
        Mapped own(path, opt(1 << 20));
        if (!own || ato_ftruncate(own.base, LONG) < 0 || !own.write(LONG - 500, pattern(500, 2)))
            return 1;
        wait();
        return ato_ftruncate(own.base, SIZE / 2) < 0 ? 2 : 0;
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

// A mapping has room up to its largest size.
TEST_F(PeersOfAFile, ReachAGrownFileUpToTheirOwnLargestSize)
{
    Mapped small(path, opt(2 * SIZE));
    ASSERT_TRUE(small) << small.sentence;
    Peer other([&](const auto &wait) {
        Mapped own(path, opt(1 << 20));
        if (!own || ato_ftruncate(own.base, 8 * SIZE) < 0 || !own.write(SIZE, pattern(SIZE, 2)))
            return 1;
        wait();
        return own.read(SIZE, SIZE) == pattern(SIZE, 3) ? 0 : 2;
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

// Without space for the largest file that the shared memory has room for.
TEST_F(PeersOfAFile, TakeOnlyTheAddressSpaceThatTheyNeed)
{
    const size_t before = address_space();
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    const size_t first = address_space() - before;
    Peer other([&](const auto &wait) {
        const size_t begin = address_space();
        Mapped own(path, opt());
        wait();
        return own && address_space() - begin < first + (1u << 30) ? 0 : 1;
    });
    ASSERT_TRUE(other.is_ready());
    EXPECT_EQ(other.end(), 0);
}

// The last process is killed: the next one recovers the file.
TEST_F(PeersOfAFile, LoseNoWriteIfAllAreKilled)
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

// The last process makes the file plain, though it was not the first and another was killed.
TEST_F(PeersOfAFile, LeaveAPlainFileWhenTheLastProcessUnmapsIt)
{
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    Peer killed([&](const auto &wait) {
        Mapped own(path, opt());
        if (!own.write(100, pattern(9000, 2)))
            return 1;
        wait();
        return 2;
    });
    Peer last([&](const auto &wait) {
        Mapped own(path, opt());
        if (!own)
            return 1;
        wait();
        if (!own.write(9000, pattern(100, 3)))
            return 2;
        return own.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 3;
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

// A file has so many slots. One process locks all that are free.
TEST_F(PeersOfAFile, AreAtMost1024)
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

// Ends the first turn (plain.c), when the other process has begun to wait for the lock.
struct Slow {
    Peer *other;
    std::atomic<bool> *waits; // in shared memory
};

void be_slow_once(void *of, uint64_t done, uint64_t)
{
    const auto *slow = static_cast<const Slow *>(of);
    if (done > CHUNK)
        return;
    slow->other->go_on();
    while (!*slow->waits)
        usleep(10000);
    usleep(600000);
}

// The last process makes the file plain. Between two turns another process maps it, writes to a chunk that is
// deployed already, truncates the file and unmaps it.
TEST_F(PeersOfAFile, MayMapAndUnmapWhileTheLastProcessMakesTheFilePlain)
{
    Bytes all(4 * CHUNK, 'x');
    write_file(path, all);
    Mapped m(path, opt());
    ASSERT_TRUE(m) << m.sentence;
    for (size_t at = 0; at < all.size(); at += CHUNK)
        ASSERT_TRUE(m.write(at, {'y'})) << m.sentence;
    auto *waits = new (mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<bool>(false);
    Peer other([&](const auto &wait) {
        wait();
        *waits = true;
        const int manifest = open(manifest_of(path).c_str(), O_RDWR | O_CLOEXEC);
        if (manifest < 0 || locks_wait(manifest, F_WRLCK, 0, 1) < 0)
            return 1;
        kill(getppid(), SIGSTOP); // else it could find this process there, and only detach
        close(manifest);
        Mapped own(path, opt());
        const bool good = own && own.write(0, {'z'}) && own.write(2 * CHUNK, {'z'}) &&
                          ato_ftruncate(own.base, 3 * CHUNK) == 0 && own.unmap(ATO_UNMAP_FAST) == 0;
        kill(getppid(), SIGCONT);
        return good ? 0 : 2;
    });
    ASSERT_TRUE(other.is_ready());
    Slow of = {&other, waits};
    const struct ato_unmap_options slow = {sizeof(slow), ATO_UNMAP_SPATIAL, 1, be_slow_once, &of,
                                           nullptr};
    EXPECT_EQ(ato_munmap_opt(m.base, m.length, &slow), 0) << ato_errormsg();
    m.base = nullptr;
    EXPECT_EQ(other.end(), 0);
    all.resize(3 * CHUNK);
    all[0] = all[2 * CHUNK] = 'z';
    all[CHUNK] = 'y';
    EXPECT_TRUE(read_file(path) == all);
    EXPECT_FALSE(exists(manifest_of(path)));
    munmap(waits, sizeof(*waits));
}

} // namespace
