// SPDX-License-Identifier: BSD-3-Clause
//
// What if two processes that map a file are in different containers? Other pids, another /dev/shm, another
// path. A program that relies on a pid, a name in memory or a path is misled. The library relies on the
// kernel's lock on the file: the two processes share it, and after the death of one the other gets its
// writes. Without common shared memory the map is EBUSY while the other process lives, and succeeds when it
// is dead.
#include "hazards/lab.h"
#include "support/dying.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace hazards;

namespace
{

constexpr size_t SIZE = 4 * 4096;

class Container : public testing::Test
{
  protected:
    Container()
    {
        fs::create_directory(dir / "a");
        write_file(file, old);
    }

    // Maps the file, leaves a write in the reflection, and stays until it is killed. Writes its pid, as it
    // sees it, to a file beside the file.
    int hold(int domain = ATO_DOMAIN_AUTO)
    {
        Mapped m(file, options(domain, ATO_READ_GATHER));
        if (!m || !m.write(3000, pattern(6000, 2))) {
            held.tell(); // the file is not mapped: the test fails
            return 1;
        }
        pid_t mine = getpid();
        write_at(lock, 0, &mine, sizeof(mine));
        held.tell();
        for (;;)
            pause();
    }

    void expect_busy(const std::string &path)
    {
        const std::string folder = path.substr(0, path.rfind('/'));
        Snapshot before = everything_in(folder);
        Log log;
        Mapped m(path);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EBUSY) << m.sentence;
        for (const char *words : {path.c_str(), "another process", "share one /dev/shm"})
            EXPECT_TRUE(has(m.sentence, words)) << m.sentence;
        EXPECT_EQ(log.lines.size(), 1u) << "tried for a second, and told once";
        Fd reading(path, O_RDONLY);
        EXPECT_EQ(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, reading, 0), MAP_FAILED);
        EXPECT_EQ(errno, EBUSY);
        EXPECT_EQ(log.lines.size(), 2u);
        EXPECT_EQ(everything_in(folder), before);
    }

    // Shares the file with the holder.
    void expect_shares(const std::string &path)
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        EXPECT_TRUE(m.write(2000, Bytes(&content[2000], &content[9000]))) << m.sentence;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_TRUE(fs::exists(manifest_of(path))) << "the file is still mapped";
    }

    void expect_maps(const std::string &path)
    {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
    }

    // A common check for the owner of a lock file.
    bool lives_naively()
    {
        pid_t owner;
        Bytes bytes = read_at(lock, 0, sizeof(owner));
        memcpy(&owner, bytes.data(), sizeof(owner));
        return ::kill(owner, 0) == 0;
    }

    TempDir dir{"/tmp"};
    const std::string file = dir / "a/file", lock = dir / "lock";
    const Bytes old = pattern(SIZE, 1), content = over(old, 3000, pattern(6000, 2));
    Pipe held, die, dead;
};

TEST_F(Container, WithOtherPidsMissesALivingHolderByKillAndSharesHere)
{
    Child probe(CLONE_NEWPID, [] { return 0; });
    if (probe.wait() != 0)
        GTEST_SKIP() << "no pid namespaces here";
    Child holder(0, [&] { return hold(); });
    ASSERT_TRUE(held.hear());
    Child other(CLONE_NEWPID, [&] {
        EXPECT_FALSE(lives_naively()) << "the holder lives, in another pid namespace";
        expect_shares(file);
        die.tell();
        dead.hear();
        expect_maps(file);
        return static_cast<int>(HasFailure());
    });
    ASSERT_TRUE(die.hear());
    holder.kill();
    dead.tell();
    EXPECT_EQ(other.wait(), 0);
}

// Both are the first process of their container: so the pid is in use again.
TEST_F(Container, WithOtherPidsSeesADeadHolderAliveByKillAndMapsHere)
{
    Child holder(CLONE_NEWPID, [&] { return hold(); });
    if (!holder.pid)
        GTEST_SKIP() << "no pid namespaces here";
    ASSERT_TRUE(held.hear());
    expect_shares(file);
    holder.kill();
    Child other(CLONE_NEWPID, [&] {
        EXPECT_TRUE(lives_naively()) << "the process sees itself";
        expect_maps(file);
        return static_cast<int>(HasFailure());
    });
    EXPECT_EQ(other.wait(), 0);
}

// As container engines do it: with pids, mounts, /proc and /dev/shm of its own.
TEST_F(Container, WithItsOwnMemoryIsFirstByNameAndGetsEbusyHere)
{
    // A naive rule: the process that makes the object is the first.
    auto first_naively = [] {
        return shm_open("/ato-test-first", O_RDWR | O_CREAT | O_EXCL, 0600) >= 0;
    };
    auto enter = [] { return alone() && mount("proc", "/proc", "proc", 0, nullptr) == 0; };
    Pipe entered;
    Child holder(CLONE_NEWPID, [&] {
        bool good = enter() && first_naively();
        entered.tell();
        if (!good) {
            held.tell();
            return NO_SCENE;
        }
        return hold();
    });
    ASSERT_TRUE(holder.pid == 0 || held.hear());
    Child other(CLONE_NEWPID, [&] {
        if (!enter()) {
            die.tell();
            return NO_SCENE;
        }
        entered.hear();
        EXPECT_TRUE(first_naively()) << "two processes are first";
        expect_busy(file);
        die.tell();
        dead.hear();
        expect_maps(file);
        return static_cast<int>(HasFailure());
    });
    ASSERT_TRUE(other.pid == 0 || die.hear());
    holder.kill();
    dead.tell();
    EXPECT_PLAYED(other.wait());
}

TEST_F(Container, WithTheFolderElsewhereGetsASecondLockByPathAndEbusyHere)
{
    // A naive rule: the name of a file's lock is its path.
    auto lock_naively = [&](std::string path) {
        for (char &c : path)
            c = c == '/' ? '_' : c;
        return open((dir / path).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600) >= 0;
    };
    const std::string same = dir / "b/file";
    fs::create_directory(dir / "b");
    Child holder(0, [&] { return hold(); });
    ASSERT_TRUE(held.hear());
    EXPECT_TRUE(lock_naively(file));
    EXPECT_FALSE(lock_naively(file));
    Child other(0, [&] {
        // The file is there under another path; its first path leads nowhere here.
        if (!alone() ||
            mount((dir / "a").c_str(), (dir / "b").c_str(), nullptr, MS_BIND, nullptr) < 0 ||
            !mount_memory(dir / "a", "size=1m")) {
            die.tell();
            return NO_SCENE;
        }
        EXPECT_TRUE(lock_naively(same)) << "the same file";
        expect_busy(same);
        die.tell();
        dead.hear();
        expect_maps(same);
        return static_cast<int>(HasFailure());
    });
    ASSERT_TRUE(die.hear());
    holder.kill();
    dead.tell();
    EXPECT_PLAYED(other.wait());
    expect_maps(file);
}

// The reflection is not visible: the file alone must not be mapped. (With a log it would be stale after a power cut only.)
TEST_F(Container, WithTheFileAloneReadsStaleBytesByPlainReadAndGetsEstaleHere)
{
    const std::string same = dir / "b/file";
    fs::create_directory(dir / "b");
    write_file(same, Bytes());
    Child holder(0, [&] { return hold(ATO_DOMAIN_PROCESS); });
    ASSERT_TRUE(held.hear());
    auto expect_stale = [&] {
        Snapshot before = everything_in(dir.path());
        Mapped m(same);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE) << m.sentence;
        EXPECT_TRUE(has(m.sentence, same)) << m.sentence;
        EXPECT_EQ(everything_in(dir.path()), before);
    };
    Child other(0, [&] {
        if (!alone() || mount(file.c_str(), same.c_str(), nullptr, MS_BIND, nullptr) < 0 ||
            !mount_memory(dir / "a", "size=1m")) {
            die.tell();
            return NO_SCENE;
        }
        EXPECT_EQ(read_file(same), old) << "stale, without an error";
        expect_stale();
        die.tell();
        dead.hear();
        expect_stale();
        return static_cast<int>(HasFailure());
    });
    ASSERT_TRUE(die.hear());
    holder.kill();
    dead.tell();
    EXPECT_PLAYED(other.wait());
    expect_maps(file);
}

} // namespace
