// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log: what a commit costs, when it is durable, and how the ring is used.
#include "log_lab.h"
#include "support/child.h"
#include "support/dying.h"

extern "C" {
#include "reflection/format/log.h"
#include "reflection/media/fsops.h"
#include "reflection/media/seam.h"
#include "reflection/pairing/birth.h"
}

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace log_lab;

namespace
{

TEST(LogChecksum, IsCrc32c)
{
    ASSERT_TRUE(log_is_possible());
    EXPECT_EQ(log_checksum(0, "123456789", 9), 0xe3069283u); // the check value of its catalogues
    EXPECT_EQ(log_checksum(log_checksum(0, "1234", 4), "56789", 5), 0xe3069283u);
}

// Whatever else is asked for.
TEST_F(LogFile, IsThatOfEachFileInDomainDisk)
{
    for (const char *word : {"dense", "sparse", "log"})
        for (const int format : {ATO_FORMAT_DENSE, ATO_FORMAT_SPARSE}) {
            Environment e("ATO_FORMAT", word);
            ato_options o = logged();
            o.format = format;
            Mapped m(file, o);
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.stat().format, ATO_FORMAT_LOG);
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            EXPECT_FALSE(exists(reflection_of(file)));
        }
}

// What the calls cost in system calls that make something durable, which are nearly all of their time.
TEST_F(LogFile, ACommitIsOneSync)
{
    struct Syncs {
        long of_data, of_file, of_memory;
        bool operator==(const Syncs &other) const
        {
            return of_data == other.of_data && of_file == other.of_file &&
                   of_memory == other.of_memory;
        }
    };
    const Syncs none = {0, 0, 0}, one = {1, 0, 0};
    const Restored room(birth_ring_bytes, 1 << 20); // no checkpoint but those that are asked for
    ato_options o = logged();
    o.max_size = 2 * SIZE;
    Mapped m(file, o), other(dir / "other", options(ATO_DOMAIN_PROCESS));
    ASSERT_TRUE(m && other) << m.sentence << other.sentence;
    ASSERT_TRUE(write(m, 0, pattern(100, 2)));
    char *const at = m.base + 5 * PAGE + 10;
    const Bytes bytes = pattern(3 * PAGE, 3), record = pattern(1, 4);
    const auto syncs = [&](const std::function<bool()> &call) {
        FsFaults fs;
        PersistFaults stores;
        EXPECT_TRUE(call()) << ato_errormsg();
        return Syncs{fs.count("fdatasync"), fs.count("fsync"),
                     stores.counts.flush_any + stores.counts.flush_data};
    };
    const auto in_tx = [&](const std::function<bool(ato_tx * tx)> &calls) {
        return syncs([&] {
            ato_tx *tx = ato_tx_begin(0);
            return calls(tx) && ato_tx_commit(tx) == 0;
        });
    };
    for (const size_t n : {1ul, 64ul, 3000ul, 3 * PAGE}) {
        EXPECT_EQ(syncs([&] { return ato_memcpy(at, bytes.data(), n); }), one) << n;
        EXPECT_EQ(syncs([&] { return ato_memset(at, 7, n); }), one) << n;
    }
    EXPECT_EQ(in_tx([&](ato_tx *tx) {
                  for (size_t page = 0; page < 60; page += 9)
                      if (!ato_tx_memcpy(tx, m.base + page * PAGE, bytes.data(), 5000, 0))
                          return false;
                  return true;
              }),
              one);
    const ato_iovec ranges[] = {{m.base + 7, bytes.data(), 9}, {at, bytes.data(), PAGE}};
    EXPECT_EQ(syncs([&] { return ato_writev(ranges, 2, 0) == 0; }), one);
    Bytes now = m.read();
    EXPECT_EQ(syncs([&] { return m.read() == now; }), none);
    EXPECT_EQ(in_tx([&](ato_tx *tx) { return ato_tx_memcpy(tx, now.data(), at, 9, 0); }), none);
    EXPECT_EQ(syncs([&] { return ato_memcpy_opt(at, bytes.data(), PAGE, ATO_SKIP_EQUAL); }), none);

    // Also if it reads a file of another domain, in which nothing is synced.
    const ato_iovec from_other = {at, other.base, 100};
    EXPECT_EQ(syncs([&] { return ato_writev(&from_other, 1, 0) == 0; }), one);
    EXPECT_EQ(in_tx([&](ato_tx *tx) {
                  char byte;
                  return ato_tx_memcpy(tx, &byte, other.base, 1, 0) &&
                         ato_tx_memcpy(tx, at, record.data(), 1, 0);
              }),
              one);

    // A checkpoint makes the file durable, then the header; then a word is stored in place.
    const auto store_word = [&] {
        return syncs([&] { return ato_memcpy_opt(m.base, bytes.data(), 8, ATO_EAGER); });
    };
    EXPECT_EQ(store_word(), (Syncs{3, 0, 0}));

    // The growth word is in the manifest, and the file gets its length: both come before the commit.
    const auto resize = [&](off_t size) {
        return syncs([&] { return ato_ftruncate(m.base, size) == 0; });
    };
    EXPECT_EQ(resize(SIZE + 5 * PAGE), (Syncs{1, 1, 1}));
    EXPECT_EQ(resize(SIZE), (Syncs{1, 0, 1})) << "the shrink word";
    EXPECT_EQ(store_word(), (Syncs{4, 0, 0})) << "the size";
    EXPECT_EQ(syncs([&] { return ato_memcpy(at, bytes.data(), 9); }), one);
    EXPECT_EQ(store_word(), (Syncs{3, 0, 0}));
    now = m.read();
    EXPECT_EQ(read_at(file, 0, SIZE), now) << "the file itself has what is committed";
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), now);
    EXPECT_FALSE(exists(reflection_of(file)));

    // The file; `deployed`; what is removed from the file.
    Mapped again(file, o);
    ASSERT_TRUE(again && write(again, 0, bytes)) << again.sentence;
    EXPECT_EQ(syncs([&] { return again.unmap(ATO_UNMAP_SPATIAL) == 0; }), (Syncs{1, 1, 1}));
}

long faults_so_far()
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

constexpr size_t LARGE_PAGES = 4096, LARGE = LARGE_PAGES * PAGE;

// Some of its pages, far from each other.
constexpr size_t page_of_large(size_t i)
{
    return i * 77 * 32 % LARGE_PAGES;
}
constexpr size_t STORES = LARGE_PAGES / 32;

// Faults of stores to a durable file of that size, of whose pages a view has mapped all or nothing.
long faults_of_stores(int fd, bool mapped)
{
    void *at = mmap(nullptr, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || fdatasync(fd) < 0)
        return -1;
    auto *bytes = static_cast<volatile char *>(at);
    for (size_t i = 0; mapped && i < LARGE_PAGES; i++)
        (void)bytes[i * PAGE];
    const long before = faults_so_far();
    for (size_t i = 0; i < STORES; i++)
        bytes[page_of_large(i) * PAGE] = 0;
    const long faults = faults_so_far() - before;
    munmap(at, LARGE);
    return faults;
}

// Such a fault takes some microseconds, and readers wait meanwhile.
TEST_F(LogFile, CommitsAfterACheckpointTakeOneFaultForALargePageOfTheCache)
{
    static long durable, shown;
    TempDir disk{disk_folder()};
    const std::string large = disk / "large";
    write_file(large, {});
    const int fd = open(large.c_str(), O_RDWR | O_CLOEXEC);
    for (size_t i = 0, piece = 1 << 20; i < LARGE; i += piece)
        ASSERT_EQ(pwrite(fd, Bytes(piece).data(), piece, static_cast<off_t>(i)),
                  static_cast<ssize_t>(piece));
    const long mapped = faults_of_stores(fd, true), fresh = faults_of_stores(fd, false);
    close(fd);
    if (fresh * 4 > mapped * 3)
        GTEST_SKIP() << "the page cache has no large pages here, or the kernel maps each part";
    Mapped m(large, logged());
    ASSERT_TRUE(m) << m.sentence;
    for (uint8_t round = 1; round < 4; round++) {
        long faults = 0;
        for (size_t i = 0; i < STORES; i++) {
            seam_hook = [](enum seam_point point, const void *) {
                (point == SEAM_DURABLE ? durable : shown) = faults_so_far();
            };
            const bool done = m.write(page_of_large(i) * PAGE, Bytes(300, round));
            seam_hook = nullptr;
            ASSERT_TRUE(done) << ato_errormsg();
            faults += shown - durable;
        }
        ASSERT_GT(durable, 0) << "the hook was not called";
        EXPECT_LT(faults * 8, mapped * 7) << round << ": with nothing mapped " << fresh;
        ASSERT_EQ(ato_deploy(m.base, LARGE), 0) << ato_errormsg();
    }
}

// Nothing of a commit is in the file before its record is durable.
TEST_F(LogFile, TheFileHasNothingThatIsNotDurable)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(m, 0, pattern(10, 2)));
    const Bytes before = content;
    FsFaults fs;
    bool looked = false;
    fs.before = [&](const FsCall &c) {
        if (std::string(c.op) == "fdatasync") {
            EXPECT_EQ(read_file(file), before);
            looked = true;
        }
        return GO_ON;
    };
    ASSERT_TRUE(write(m, PAGE, pattern(3 * PAGE, 4)));
    EXPECT_TRUE(looked);
    EXPECT_EQ(read_file(file), content);
}

// Those who wait share a sync.
TEST_F(LogFile, CommitsOfThreadsShareSyncs)
{
    enum { THREADS = 8, WRITES = 20 };
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, Bytes(SIZE, 5)));
    static std::atomic<int> syncs;
    static const struct fsops *below = fsops;
    struct fsops slow = *fsops;
    slow.fdatasync = [](int fd) {
        syncs++;
        usleep(2000);
        return below->fdatasync(fd);
    };
    syncs = 0;
    fsops = &slow;
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (size_t t = 0; t < THREADS; t++)
        threads.emplace_back([&, t] {
            char byte = static_cast<char>(t);
            for (int i = 0; i < WRITES; i++)
                failed += !ato_memcpy(m.base + t * PAGE, &byte, 1);
        });
    for (std::thread &t : threads)
        t.join();
    fsops = below;
    EXPECT_EQ(failed, 0);
    EXPECT_LT(syncs, THREADS * WRITES / 2);
}

// The ring is used again from its start, and gets longer for a commit that does not fit.
TEST_F(LogFile, TheRingIsUsedAgainAndGetsLonger)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(file, logged());
                  for (unsigned i = 0; m && i < 200; i++)
                      if (!m.write(i % 60 * PAGE + i, pattern(2 * PAGE, i)))
                          return 1;
                  if (!m || stat_of(reflection_of(file)).st_size <= static_cast<off_t>(RING + PAGE))
                      return 2;
                  _exit(CUT);
                  return 0;
              }),
              CUT);
    for (unsigned i = 0; i < 200; i++) {
        const Bytes bytes = pattern(2 * PAGE, i);
        std::copy(bytes.begin(), bytes.end(),
                  content.begin() + static_cast<long>(i % 60 * PAGE + i));
    }
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    const std::string large = dir / "large";
    write_file(large, Bytes(40 << 20, 1));
    Mapped l(large, logged());
    ASSERT_TRUE(l) << l.sentence;
    ASSERT_TRUE(l.write(0, Bytes(40 << 20, 2))) << l.sentence;
    EXPECT_EQ(l.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(large), Bytes(40 << 20, 2));
}

// No space for a longer log: ENOSPC before the commit, nothing changed, and the next commit that fits succeeds.
TEST_F(LogFile, AFullDiskIsEnospcAndChangesNothing)
{
    const std::string large = dir / "large";
    write_file(large, Bytes(1 << 20, 1));
    Mapped m(large, logged());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, Bytes(PAGE, 3)));
    for (const char *op : {"fallocate", "pwrite"}) {
        FsFaults fs;
        fs.fail_op(op, ENOSPC);
        EXPECT_FALSE(m.write(0, Bytes(1 << 20, 2))) << op;
        EXPECT_EQ(m.error, ENOSPC) << op;
        EXPECT_EQ(read_file(large)[0], 3) << op;
    }
    EXPECT_TRUE(m.write(PAGE, Bytes(PAGE, 4))) << m.sentence;
    EXPECT_TRUE(m.write(0, Bytes(1 << 20, 2))) << m.sentence;
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(large), Bytes(1 << 20, 2));
}

// A ring that is full is used again if there is no space for a longer one.
TEST_F(LogFile, WritesGoOnWithAShortRingOnAFullDisk)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    for (size_t page = 0; page < SIZE; page += PAGE) // the pages have their space
        ASSERT_TRUE(write(m, page, Bytes(64, 5)));
    FsFaults fs;
    fs.fail_op("fallocate", ENOSPC);
    for (unsigned i = 0; i < 200; i++)
        ASSERT_TRUE(write(m, i % 60 * PAGE, pattern(PAGE, i))) << i << m.sentence;
    EXPECT_EQ(m.read(), content);
}

// The threads from the 65th on are counted together, and always one of them has a record under way.
TEST_F(LogFile, ManyThreadsDoNotKeepACheckpointFromItsEnd)
{
    const Restored room(birth_ring_bytes, 64 << 20);
    struct fsops slow = fsops_real;
    slow.fdatasync = [](int fd) {
        usleep(1000);
        return fsops_real.fdatasync(fd);
    };
    setenv("ATO_WAIT_MS", "300", 1);
    Mapped m(file, logged());
    unsetenv("ATO_WAIT_MS");
    ASSERT_TRUE(m) << m.sentence;
    ::fsops = &slow;
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 100; t++)
        threads.emplace_back([&, t] {
            for (unsigned i = 0; !stop; i++)
                ato_memset(m.base + t % 60 * PAGE + t * 64 % PAGE, static_cast<int>(i), 64);
        });
    for (unsigned i = 0; i < 3; i++) {
        usleep(50000);
        EXPECT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
    }
    stop = true;
    for (std::thread &t : threads)
        t.join();
    ::fsops = &fsops_real;
}

// A word that is stored in place (ATO_EAGER) is not overwritten by an older record of its slice.
TEST_F(LogFile, AnEagerWordOutlivesOlderRecords)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(file, logged());
                  if (!m || !m.write(0, Bytes(64, 7)) || !m.write(8, Bytes(8, 9), ATO_EAGER))
                      return 1;
                  _exit(CUT);
                  return 0;
              }),
              CUT);
    std::fill_n(content.begin(), 64, 7);
    std::fill_n(content.begin() + 8, 8, 9);
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

} // namespace
