// SPDX-License-Identifier: BSD-3-Clause
//
// Which files and objects does an unmap leave? Fast and spatial unmaps, their options and errors.
#include "reflection/media/races.h"
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 1300 * 4096 + 77; // three chunks

class Unmap : public testing::TestWithParam<int>
{
  protected:
    Unmap() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    // Writes here and there, so that every chunk has something in R.
    void scatter(Mapped &m)
    {
        for (size_t at = 100; at + 5000 < SIZE; at += 300 * 4096 + 1000) {
            Bytes bytes = pattern(5000, static_cast<unsigned>(at));
            ASSERT_TRUE(m.write(at, bytes)) << m.sentence;
            memcpy(&content[at], bytes.data(), bytes.size());
        }
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_P(Unmap, SpatialLeavesAPlainFileAndAnEmptyFolder)
{
    Mapped m(path, options(GetParam(), ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    scatter(m);
    std::string id = id_of(path);
    EXPECT_EQ(shared_objects(id), 1u);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
    EXPECT_EQ(attribute_of(path), "");
    EXPECT_EQ(names_in(folder_of(path)), std::vector<std::string>());
    EXPECT_EQ(shared_objects(id), 0u);
    EXPECT_EQ(size_of(path), SIZE);
}

TEST_P(Unmap, FastKeepsTheReflectionAndEverythingInIt)
{
    for (int round = 0; round < 3; round++) {
        Mapped m(path, options(GetParam(), ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content) << "round " << round;
        scatter(m);
        std::string id = id_of(path);
        EXPECT_EQ(shared_objects(id), 1u);
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        EXPECT_TRUE(exists(reflection_of(path)));
        EXPECT_TRUE(exists(manifest_of(path)));
        EXPECT_EQ(shared_objects(id), 0u);
    }
}

// By which make, rsync and others tell whether it has changed.
TEST_P(Unmap, SpatialMovesMtimeIfAndOnlyIfTheFileHasChanged)
{
    enum { READ, WRITTEN, READ_BETWEEN, WRITTEN_BEFORE_A_FAST_UNMAP, KILLED };
    for (const char *below : {"/dev/shm", "/tmp"})
        for (int how = READ; how <= KILLED; how++) {
            SCOPED_TRACE(std::string(below) + " " + std::to_string(how));
            TempDir place(below);
            const std::string name = place / "file";
            const auto session = [&](bool writes, int mode) {
                Mapped m(name, options(GetParam()));
                ASSERT_TRUE(m) << m.sentence;
                EXPECT_FALSE(m.read(0, 10).empty()) << m.sentence;
                if (writes) {
                    EXPECT_TRUE(m.write(5000, {'x'})) << m.sentence;
                }
                EXPECT_EQ(m.unmap(mode), 0) << m.sentence;
            };
            write_file(name, Bytes(20000, 'a'));
            const timespec old[2] = {{1000000000, 0}, {1000000000, 5}};
            ASSERT_EQ(utimensat(AT_FDCWD, name.c_str(), old, 0), 0);
            if (how == KILLED) {
                ASSERT_EQ(in_child([&] {
                              Mapped m(name, options(GetParam()));
                              _exit(m && m.write(5000, {'x'}) ? 0 : 1);
                              return 1;
                          }),
                          0);
            }
            timespec before;
            clock_gettime(CLOCK_REALTIME, &before);
            if (how == WRITTEN_BEFORE_A_FAST_UNMAP)
                session(true, ATO_UNMAP_FAST);
            if (how == READ_BETWEEN)
                session(false, ATO_UNMAP_FAST);
            if (GetParam() != ATO_DOMAIN_DISK) // there the file itself has what is committed
                clock_gettime(CLOCK_REALTIME, &before);
            session(how == WRITTEN, ATO_UNMAP_SPATIAL);
            const timespec mtime = stat_of(name).st_mtim;
            const bool moved = std::make_pair(mtime.tv_sec, mtime.tv_nsec) >=
                               std::make_pair(before.tv_sec, before.tv_nsec);
            EXPECT_EQ(moved, how != READ && how != READ_BETWEEN);
            EXPECT_TRUE(moved || mtime.tv_nsec == 5);
        }
}

INSTANTIATE_TEST_SUITE_P(Domains, Unmap,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR,
                                                    ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS})));

struct Progress {
    uint64_t last = 0, total = 0;
    int calls = 0;
    bool grows = true;
};

void note(void *arg, uint64_t done, uint64_t total)
{
    Progress *p = static_cast<Progress *>(arg);
    p->grows = p->grows && done > p->last && done <= total;
    p->last = done;
    p->total = total;
    p->calls++;
}

class UnmapOptions : public Unmap
{
};

TEST_F(UnmapOptions, ProgressGrowsToTheFilesSizeWithAnyNumberOfThreads)
{
    for (unsigned threads : {0u, 1u, 4u, 1000u}) {
        Mapped m(path, options(0, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        scatter(m);
        Progress progress;
        ato_unmap_options o = {};
        o.struct_size = sizeof(o);
        o.mode = ATO_UNMAP_SPATIAL;
        o.threads = threads;
        o.progress = note;
        o.progress_arg = &progress;
        ASSERT_EQ(ato_munmap_opt(m.base, SIZE, &o), 0) << ato_errormsg();
        m.base = nullptr;
        EXPECT_EQ(read_file(path), content);
        EXPECT_EQ(progress.last, SIZE);
        EXPECT_EQ(progress.total, SIZE);
        EXPECT_GE(progress.calls, 1); // of three chunks a later one may be done first
        EXPECT_LE(progress.calls, 3);
        EXPECT_TRUE(progress.grows);
    }
}

// A signal handler must not run on a thread that the program did not start.
TEST_F(UnmapOptions, ThreadsOfTheLibraryTakeNoSignals)
{
    struct Seen {
        pthread_t caller;
        std::atomic<int> elsewhere{0}, open{0};
    } seen;
    seen.caller = pthread_self();
    ato_unmap_options o = {};
    o.struct_size = sizeof(o);
    o.mode = ATO_UNMAP_SPATIAL;
    o.threads = 8;
    o.progress_arg = &seen;
    o.progress = [](void *arg, uint64_t, uint64_t) {
        auto s = static_cast<Seen *>(arg);
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        bool mine = pthread_equal(pthread_self(), s->caller);
        s->elsewhere += !mine;
        s->open += sigismember(&blocked, SIGUSR1) == mine;
        usleep(1000); // so that other threads call it too
    };
    for (int i = 0; i < 50 && !seen.elsewhere; i++) {
        write_file(path, Bytes(40 * 512 * 4096, 'x'));
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        for (uint64_t chunk = 0; chunk < 40; chunk++)
            ASSERT_TRUE(m.write(chunk * 512 * 4096, Bytes(100, 'y')));
        ASSERT_EQ(ato_munmap_opt(m.base, m.length, &o), 0) << ato_errormsg();
        m.base = nullptr;
    }
    EXPECT_GT(seen.elsewhere, 0);
    EXPECT_EQ(seen.open, 0);
}

// A file may be far larger than the data that was stored to it.
TEST_F(UnmapOptions, HolesOfTheReflectionAreSkipped)
{
    DENSE_ONLY("counts calls of a dense reflection");
#ifdef RACES_WATCHED
    GTEST_SKIP() << "ThreadSanitizer leaves no room for views of a TiB";
#endif
    std::string sparse = dir / "sparse";
    write_file(sparse, pattern(10000, 1));
    ato_options large = options(0, ATO_READ_GATHER);
    large.max_size = size_t(1) << 40;
    Mapped m(sparse, large, 4096);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(ato_ftruncate(m.base, off_t(1) << 40), 0) << ato_errormsg();
    ASSERT_TRUE(m.write((uint64_t(1) << 40) - 4096, pattern(4096, 2))) << m.sentence;
    Progress progress;
    ato_unmap_options o = {};
    o.struct_size = sizeof(o);
    o.mode = ATO_UNMAP_SPATIAL;
    o.progress = note;
    o.progress_arg = &progress;
    ASSERT_EQ(ato_munmap_opt(m.base, 4096, &o), 0) << ato_errormsg();
    m.base = nullptr;
    EXPECT_EQ(progress.calls, 1); // not half a million
    EXPECT_EQ(progress.last, uint64_t(1) << 40);
    EXPECT_EQ(read_at(sparse, (uint64_t(1) << 40) - 4096, 4096), pattern(4096, 2));
}

TEST_F(UnmapOptions, NullOptionsAreAFastUnmap)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    EXPECT_EQ(ato_munmap_opt(m.base, SIZE, nullptr), 0);
    m.base = nullptr;
    EXPECT_TRUE(exists(reflection_of(path)));
}

TEST_F(UnmapOptions, AreChecked)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    auto refused = [&](int r, const std::string &words) {
        EXPECT_EQ(r, -1);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_NE(std::string(ato_errormsg()).find(words), std::string::npos) << ato_errormsg();
    };
    ato_unmap_options o = {};
    refused(ato_munmap_opt(m.base, SIZE, &o), "struct_size");
    o.struct_size = sizeof(o);
    o.mode = 4;
    refused(ato_munmap_opt(m.base, SIZE, &o), "mode 4");
    refused(ato_munmap(m.base, SIZE, -1), "mode -1");
    EXPECT_EQ(m.read(0, 100), pattern(100, 1)); // still there
}

TEST_F(UnmapOptions, OnlyTheWholeMappingCanBeUnmapped)
{
    Mapped m(path);
    ASSERT_TRUE(m);
    char c = 0;
    for (auto range : {std::pair<void *, size_t>{m.base, SIZE - 1},
                       {m.base, SIZE + 1},
                       {m.base, 4096},
                       {m.base + 4096, SIZE - 4096},
                       {m.base, 0},
                       {&c, 1},
                       {nullptr, 4096},
                       {reinterpret_cast<void *>(~0ull), 1}}) {
        EXPECT_EQ(ato_munmap(range.first, range.second, ATO_UNMAP_FAST), -1);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_STRNE(ato_errormsg(), "");
    }
    EXPECT_EQ(m.read(0, 100), pattern(100, 1));
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(ato_munmap(m.base, SIZE, ATO_UNMAP_FAST), -1);
}

TEST_F(UnmapOptions, UntouchedFileIsUnchanged)
{
    struct stat before = stat_of(path);
    {
        Mapped m(path);
        ASSERT_TRUE(m);
        EXPECT_EQ(m.read(), content);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    }
    struct stat after = stat_of(path);
    EXPECT_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    EXPECT_EQ(read_file(path), content);
}

TEST_F(UnmapOptions, WorkForFilesOnADisk)
{
    std::string disk = disk_folder();
    if (disk.empty())
        GTEST_SKIP() << "no folder on a disk";
    TempDir there(disk);
    path = there / "file";
    write_file(path, content);
    for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL}) {
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        ASSERT_TRUE(m.write(100, pattern(5000, 100)));
        memcpy(&content[100], pattern(5000, 100).data(), 5000);
        ASSERT_EQ(m.unmap(mode), 0) << m.sentence;
    }
    EXPECT_EQ(read_file(path), content);
    EXPECT_EQ(names_in(folder_of(path)), std::vector<std::string>());
}

} // namespace
