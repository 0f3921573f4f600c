// SPDX-License-Identifier: BSD-3-Clause
//
// Which state does one session leave for the next, beyond names and commits? Journals of processes
// that are ending, words that are visible and not durable, file times, damaged lanes, and
// commits of other users.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/format/manifest.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 8 * 4096;

class Aftermath : public testing::Test
{
  protected:
    Aftermath() : path(dir / "file"), old_(pattern(SIZE, 1)), new_(pattern(SIZE, 2))
    {
        write_file(path, old_);
    }

    static auto is_op(const char *op)
    {
        return [op](const std::string &call) { return call.rfind(op, 0) == 0; };
    }

    // The file system calls of a fast unmap before it stores the record `clean`.
    static std::vector<std::string> calls_before_clean(Mapped &m)
    {
        FsFaults names;
        PersistFaults faults;
        std::vector<std::string> before;
        faults.before = [&](const PersistCall &c) {
            if (is(c, "copy", "manifest.c"))
                before = names.calls;
            return GO_ON;
        };
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
        return before;
    }

    static bool is(const PersistCall &c, const char *op, const char *file)
    {
        return std::string(c.op) == op && std::string(c.site).find(file) != std::string::npos;
    }

    // A child dies right before its n-th call of `op` in commit.h or commit.c.
    void die(const char *op, int n, const Bytes &bytes)
    {
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM));
                      PersistFaults faults;
                      faults.before = [&](const PersistCall &c) {
                          return is(c, op, "commit/commit.") && --n == 0 ? DIE : GO_ON;
                      };
                      m.write(0, bytes);
                      return 0;
                  }),
                  CUT);
    }

    TempDir dir;
    std::string path;
    Bytes old_, new_;
};

// A killed process leaves mtime to the kernel, whose clock may be coarse. The next unmap sets
// mtime, though its process wrote nothing. In this test the clock does not advance: mtime is set
// back to its value before the first map.
TEST_F(Aftermath, WriteByAnotherProgramInTheClockTickOfAKillIsNoticed)
{
    struct timespec times[2] = {{0, UTIME_OMIT}, stat_of(path).st_mtim};
    die("store_word", 3, new_);
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }
    write_at(path, 10, "x", 1);
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, ESTALE) << m.sentence;
}

// The word of a killed writer is visible and not durable. A session that does not touch the page
// must not mark the file clean before the word is durable.
TEST_F(Aftermath, CleanUnmapMakesUntouchedWordsOfAKilledWriterDurable)
{
    DENSE_ONLY("words of a sparse reflection are settled when it is mapped");
    die("flush_any", 1, Bytes(new_.begin(), new_.begin() + 64));
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    PersistFaults faults;
    long flushed = -1, clean = -1;
    faults.before = [&](const PersistCall &c) {
        if (std::string(c.op) == "flush_any" && c.n >= 4096)
            flushed = c.index;
        if (is(c, "copy", "manifest.c"))
            clean = c.index;
        return GO_ON;
    };
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    EXPECT_GE(flushed, 0) << "no meta page was flushed";
    EXPECT_LT(flushed, clean) << "flushed after `clean` was written";
}

// The fence comes before the store of the record: a process that finds `clean` flushes no word,
// even if the writer of the record died right after the store.
TEST_F(Aftermath, WordsOfADeadProcessAreDurableBeforeCleanIsVisible)
{
    DENSE_ONLY("words of a sparse reflection are settled when it is mapped");
    die("fence", 2, new_);
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    PersistFaults faults;
    std::vector<std::string> calls;
    faults.before = [&](const PersistCall &c) {
        calls.push_back(c.op);
        return GO_ON;
    };
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    auto flushed = std::find(calls.begin(), calls.end(), "flush_any");
    auto record = std::find(calls.begin(), calls.end(), "copy");
    ASSERT_NE(record, calls.end());
    EXPECT_NE(std::find(flushed, record, "fence"), record);
}

TEST_F(Aftermath, SessionOfACleanFileFlushesNothingAtItsEnd)
{
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        ASSERT_TRUE(m && m.write(0, new_)) << m.sentence;
    }
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    PersistFaults faults;
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    EXPECT_EQ(faults.counts.flush_any, 0);
}

// After a power cut the time on the disk is compared with the time in the manifest.
TEST_F(Aftermath, TimeOfAWrittenFileIsDurableBeforeTheManifestHoldsIt)
{
    for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS}) {
        Mapped m(path, options(domain));
        ASSERT_TRUE(m && m.write(0, new_)) << m.sentence;
        std::vector<std::string> before = calls_before_clean(m);
        auto stamped = std::find_if(before.begin(), before.end(), is_op("futimens"));
        ASSERT_NE(stamped, before.end()) << domain;
        EXPECT_NE(std::find_if(stamped, before.end(), is_op("fsync")), before.end()) << domain;
    }
}

// A store by a call that failed, or through another mapping: the kernel changes mtime, though the
// library counts no write.
TEST_F(Aftermath, TimeThatTheKernelMovedIsDurableBeforeTheManifestHoldsIt)
{
    for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS}) {
        {
            Mapped m(path, options(domain));
            ASSERT_TRUE(m) << m.sentence;
        }
        Mapped m(path, options(domain));
        ASSERT_TRUE(m) << m.sentence;
        Fd fd(path, O_RDWR);
        void *plain = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ASSERT_NE(plain, MAP_FAILED);
        static_cast<char *>(plain)[100]++;
        munmap(plain, 4096);
        std::vector<std::string> before = calls_before_clean(m);
        EXPECT_NE(std::find_if(before.begin(), before.end(), is_op("fsync")), before.end())
            << domain;
    }
}

// Any byte of a dead process's lanes is changed: the map fails with an error, or each page has
// its old or its new content.
TEST_F(Aftermath, DamagedLanesCauseNeitherASignalNorWrongContent)
{
    die("store_word", 3, new_);
    Bytes manifest = read_file(manifest_of(path)), reflection = read_file(reflection_of(path));
    std::vector<size_t> lines;
    for (size_t at = manifest_area(0); at < manifest.size(); at += 64)
        if (std::any_of(&manifest[at], &manifest[at] + 64, [](unsigned char c) { return c != 0; }))
            lines.push_back(at);
    std::mt19937 random(11);
    for (int i = 0; i < 60; i++) {
        Bytes damaged = manifest;
        size_t at = lines[random() % lines.size()] + random() % 64;
        damaged[at] = static_cast<unsigned char>(damaged[at] ^ (1 + random() % 255));
        write_file(manifest_of(path), damaged);
        write_file(reflection_of(path), reflection);
        int status = in_child([&] {
            Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            if (!m)
                return m.sentence.empty() ? 2 : 0;
            Bytes now = m.read();
            for (size_t page = 0; page < SIZE; page += 4096)
                if (!std::equal(&now[page], &now[page] + 4096, &new_[page]) &&
                    !std::equal(&now[page], &now[page] + 4096, &old_[page]))
                    return 3;
            return 0;
        });
        ASSERT_EQ(status, 0) << "byte " << at;
    }
}

// Two users share a folder: the commit that a dead process of one user left does not stop the
// other.
TEST_F(Aftermath, DeadCommitOfAnotherUserDoesNotBlockAMap)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to change the owner of a file";
    std::string theirs = dir / "theirs";
    write_file(theirs, old_);
    ASSERT_EQ(chown(path.c_str(), 1000, 1000), 0);
    ASSERT_EQ(chown(theirs.c_str(), 1001, 1001), 0);
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    ASSERT_EQ(chmod(theirs.c_str(), 0600), 0);
    ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
    die("store_word", 3, new_); // as root, which may write to both
    EXPECT_EQ(in_child([&] {
                  if (setgid(1001) < 0 || setuid(1001) < 0)
                      return 1;
                  Mapped m(theirs);
                  return m && m.read() == old_ ? 0 : 2;
              }),
              0);
    // The owner of its file recovers it.
    EXPECT_EQ(in_child([&] {
                  if (setgid(1000) < 0 || setuid(1000) < 0)
                      return 1;
                  Mapped m(path, options(ATO_DOMAIN_PMEM));
                  return m && m.read() == new_ ? 0 : 2;
              }),
              0);
}

} // namespace
