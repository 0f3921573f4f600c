// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log: what a commit costs, when it is durable, and what is left of it after failures, kills and damage.
#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "lib/file/shared.h"
#include "reflection/format/log.h"
#include "reflection/media/fsops.h"
#include "reflection/media/seam.h"
#include "reflection/pairing/birth.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 64 * PAGE, RING = 64 << 10;

// Gives a variable another value for a while.
class Restored
{
  public:
    Restored(uint64_t &of, uint64_t value) : of_(of), was_(of)
    {
        of = value;
    }
    ~Restored()
    {
        of_ = was_;
    }
    Restored(const Restored &) = delete;
    Restored &operator=(const Restored &) = delete;

  private:
    uint64_t &of_;
    const uint64_t was_;
};

ato_options logged()
{
    return options(ATO_DOMAIN_DISK);
}

class LogFile : public testing::Test
{
  protected:
    void SetUp() override
    {
        write_file(file, content);
        write_file(dir / "other", content);
    }
    // As Mapped::write(), and notes it as the content.
    bool write(Mapped &m, uint64_t at, const Bytes &bytes, unsigned flags = 0)
    {
        if (!m.write(at, bytes, flags))
            return false;
        std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
        return true;
    }
    // Writes three pages, and dies before a call of either kind, counted from 0.
    static bool write_or_die(Mapped &m, uint8_t fill, long call)
    {
        FsFaults fs;
        PersistFaults stores;
        fs.before = [&](const FsCall &) { return call-- == 0 ? DIE : GO_ON; };
        stores.before = [&](const PersistCall &) { return call-- == 0 ? DIE : GO_ON; };
        return m.write(0, Bytes(3 * PAGE, fill));
    }
    TempDir dir{"/dev/shm"};
    const std::string file = dir / "file";
    Bytes content = pattern(SIZE, 1);
};

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

// After a sync that failed nothing is acknowledged any more.
TEST_F(LogFile, AFailedSyncPoisonsTheFile)
{
    {
        Mapped m(file, logged());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(write(m, 0, pattern(10, 2)));
        {
            FsFaults fs;
            fs.fail_op("fdatasync", EIO);
            EXPECT_FALSE(m.write(PAGE, Bytes(10, 7)));
            EXPECT_EQ(m.error, EIO);
            EXPECT_EQ(read_file(file), content);
        }
        EXPECT_FALSE(m.write(2 * PAGE, Bytes(10, 7)));
        EXPECT_EQ(m.error, EIO);
    }
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    const Bytes now = m.read();
    if (now[PAGE] == 7)
        std::fill_n(content.begin() + PAGE, 10, 7);
    EXPECT_EQ(now, content);
}

// A recovery tells a user that it goes on, if it takes longer than a second.
TEST_F(LogFile, ALongRecoverySaysHowFarItIs)
{
    std::vector<std::string> said;
    for (const bool slow : {false, true}) {
        ASSERT_EQ(in_child([&] {
                      Mapped m(file, logged());
                      for (unsigned page = 0; m && page < 12; page++)
                          if (!m.write(page * PAGE, Bytes(PAGE, 5)))
                              return 1;
                      _exit(CUT);
                      return 0;
                  }),
                  CUT);
        static bool sleeps;
        sleeps = slow;
        struct fsops table = fsops_real;
        table.pwrite = [](int fd, const void *from, size_t n, off_t at) {
            if (sleeps && n == PAGE)
                usleep(1100000);
            sleeps = false;
            return fsops_real.pwrite(fd, from, n, at);
        };
        said.clear();
        ato_set_log(
            [](void *arg, int, const char *sentence) {
                if (strstr(sentence, "recovering"))
                    static_cast<std::vector<std::string> *>(arg)->push_back(sentence);
            },
            &said);
        ::fsops = &table;
        Mapped m(file, logged());
        ::fsops = &fsops_real;
        ato_set_log(nullptr, nullptr);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(said.size(), slow ? 1u : 0u);
        EXPECT_EQ(m.read(0, 12 * PAGE), Bytes(12 * PAGE, 5));
    }
    EXPECT_NE(said[0].find("of at most 64"), std::string::npos) << said[0];
}

// Calls the real function; the header that comes after so many others is an error though it was written.
long headers_before;
ssize_t pwrite_and_fail(int fd, const void *from, size_t n, off_t at)
{
    const ssize_t done = fsops_real.pwrite(fd, from, n, at);
    if (n != sizeof(log_header) || headers_before-- != 0)
        return done;
    errno = EIO;
    return -1;
}

// A checkpoint fails to write its header (0), or that of a longer log (1). It may be there all the same: what is committed next counts.
TEST_F(LogFile, AHeaderMayBeWrittenInSpiteOfAnError)
{
    for (long header : {0, 1}) {
        ASSERT_EQ(in_child([&] {
                      Mapped m(file, logged());
                      if (!m || !m.write(0, pattern(PAGE, 2)))
                          return 1;
                      struct fsops table = fsops_real;
                      table.pwrite = pwrite_and_fail;
                      headers_before = header;
                      ::fsops = &table;
                      const bool done = m.write(0, pattern(SIZE, 3));
                      ::fsops = &fsops_real;
                      if (done || m.error != EIO || headers_before != -1)
                          return 2;
                      PersistFaults faults;
                      faults.before = [](const PersistCall &c) {
                          return strstr(c.site, "commit/show.") ? DIE : GO_ON;
                      };
                      m.write(PAGE, pattern(PAGE, 4));
                      return 3;
                  }),
                  CUT)
            << header;
        for (unsigned page : {0, 1}) {
            const Bytes bytes = pattern(PAGE, page ? 4 : 2);
            std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(page * PAGE));
        }
        Mapped m(file, logged());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content) << header;
        content = pattern(SIZE, 5);
        ASSERT_TRUE(m.write(0, content)) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

// A process dies at each call of a commit to several pages; another one finishes what it appended, or finds nothing.
TEST_F(LogFile, OthersFinishWhatADeadProcessAppended)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    bool saw[2] = {};
    for (long call = 0, died = CUT; died == CUT; call++) {
        const auto fill = static_cast<uint8_t>(call + 10);
        ASSERT_TRUE(write(m, PAGE, Bytes(PAGE, 1)));
        died = in_child([&] {
            Mapped own(file, logged());
            return own && write_or_die(own, fill, call) ? 0 : 1;
        });
        ASSERT_TRUE(died == CUT || died == 0) << died;
        const Bytes now = m.read(0, 3 * PAGE);
        ASSERT_EQ(now.size(), 3 * PAGE) << m.sentence;
        const bool done = now[0] == fill;
        saw[done] = true;
        if (done)
            std::fill_n(content.begin(), 3 * PAGE, fill);
        EXPECT_EQ(m.read(), content) << call;
    }
    EXPECT_TRUE(saw[0] && saw[1]);
}

// It dies when its record is whole, and the log does not say so yet: a recovery would find it, so it counts.
TEST_F(LogFile, ARecordThatIsWholeCounts)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(m, 0, pattern(PAGE, 2)));
    ASSERT_EQ(in_child([&] {
                  Mapped own(file, logged());
                  static struct fsops dies = *fsops;
                  dies.pwrite = [](int fd, const void *from, size_t n, off_t at) -> ssize_t {
                      if (pwrite(fd, from, n, at) > 0)
                          _exit(CUT);
                      return -1;
                  };
                  fsops = &dies;
                  return own.write(0, Bytes(PAGE, 9)) ? 1 : 2;
              }),
              CUT);
    ASSERT_TRUE(m.write(10, Bytes(1, 4))) << m.sentence;
    std::fill_n(content.begin(), PAGE, 9);
    content[10] = 4;
    EXPECT_EQ(m.read(), content);
}

// The last slice of a file may reach behind its end.
TEST_F(LogFile, AFileKeepsItsLengthInATakeover)
{
    content.resize(5000);
    write_file(file, content);
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(m, 0, pattern(10, 2)));
    ASSERT_EQ(in_child([&] {
                  Mapped own(file, logged());
                  FsFaults fs;
                  fs.before = [](const FsCall &c) {
                      return std::string(c.op) == "fdatasync" ? DIE : GO_ON;
                  };
                  return own.write(4990, Bytes(10, 9)) ? 1 : 2;
              }),
              CUT);
    ASSERT_TRUE(write(m, 4980, Bytes(5, 3))) << m.sentence;
    std::fill_n(content.begin() + 4990, 10, 9);
    EXPECT_EQ(size_of(file), 5000u);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
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

// Another program cuts the file: its log is kept, and brings back what was committed when the file has its length again.
TEST_F(LogFile, TheLogIsKeptForAFileThatIsCut)
{
    {
        Mapped m(file, logged());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(write(m, SIZE / 2, pattern(SIZE / 2, 7)));
        ASSERT_EQ(truncate(file.c_str(), SIZE / 2), 0);
        EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }
    ASSERT_EQ(truncate(file.c_str(), SIZE), 0);
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

// All processes are killed at each call of a commit; then the map recovers.
TEST_F(LogFile, AMapFinishesWhatWasAppended)
{
    bool saw[2] = {};
    for (long call = 0, died = CUT; died == CUT; call++) {
        const auto fill = static_cast<uint8_t>(call + 10);
        died = in_child([&] {
            Mapped own(file, logged());
            if (!own || !own.write(PAGE, Bytes(PAGE, 1)))
                return 1;
            return write_or_die(own, fill, call) ? 0 : 1;
        });
        ASSERT_TRUE(died == CUT || died == 0) << died;
        std::fill_n(content.begin() + PAGE, PAGE, 1);
        Mapped m(file, logged());
        ASSERT_TRUE(m) << m.sentence;
        const bool done = m.read(0, 1)[0] == fill;
        saw[done] = true;
        if (done)
            std::fill_n(content.begin(), 3 * PAGE, fill);
        EXPECT_EQ(m.read(), content) << call;
    }
    EXPECT_TRUE(saw[0] && saw[1]);
}

// A torn record ends the log; and one behind it, which was whole, never counts again.
TEST_F(LogFile, WhatLiesBehindATornRecordNeverCounts)
{
    const auto kill_after = [&](int writes, uint8_t fill) {
        return in_child([&] {
            Mapped m(file, logged());
            for (int i = 0; m && i < writes; i++)
                if (!m.write(static_cast<uint64_t>(i) * PAGE, Bytes(PAGE, fill)))
                    return 1;
            _exit(m ? CUT : 2);
            return 0;
        });
    };
    ASSERT_EQ(kill_after(3, 7), CUT);
    // As a power cut may leave it: the file as before, and the second of three records torn.
    write_file(file, content);
    const std::string log = reflection_of(file);
    const uint64_t record = log_record_bytes(1, 64);
    Bytes bytes = read_file(log);
    bytes[LOG_RING_AT + record + 200] ^= 1;
    write_file(log, bytes);
    ASSERT_EQ(kill_after(1, 8), CUT); // recovers, then appends one of the same length
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    std::fill_n(content.begin(), PAGE, 8);
    EXPECT_EQ(m.read(), content);
}

TEST_F(LogFile, ADamagedHeaderIsAnErrorThatNamesTheFile)
{
    ASSERT_EQ(in_child([&] {
                  Mapped m(file, logged());
                  _exit(m && m.write(0, Bytes(10, 7)) ? CUT : 1);
                  return 0;
              }),
              CUT);
    const std::string log = reflection_of(file);
    Bytes bytes = read_file(log), damaged = bytes;
    for (const int copy : {0, static_cast<int>(LOG_COPY_AT)})
        damaged[static_cast<size_t>(copy) + 30] ^= 1;
    write_file(log, damaged);
    {
        Mapped m(file, logged());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EUCLEAN);
        EXPECT_NE(m.sentence.find(log), std::string::npos) << m.sentence;
    }
    write_file(log, bytes);
    Mapped m(file, logged());
    EXPECT_TRUE(m) << m.sentence;
}

// What is written to the end of the ring would make it as long as it was.
TEST_F(LogFile, OneThatWasCutTakesNoCommit)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    for (unsigned i = 0; i < 15; i++)
        ASSERT_TRUE(write(m, i * PAGE, pattern(PAGE, i))) << m.sentence;
    ASSERT_EQ(ato_deploy(m.base, SIZE), 0) << ato_errormsg();
    ASSERT_EQ(truncate(reflection_of(file).c_str(), 0), 0);
    EXPECT_FALSE(m.write(20 * PAGE, pattern(PAGE, 77)));
    EXPECT_EQ(m.error, EIO) << m.sentence;
    EXPECT_EQ(stat_of(reflection_of(file)).st_size, 0);
}

// Another process that may write to the file stores something to shared memory: that harms no other file and no other memory.
TEST_F(LogFile, SharedMemoryThatIsWrongLeadsNowhereElse)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m && write(m, SIZE - PAGE, pattern(PAGE, 2))) << m.sentence;
    const std::string name = memory_of(file);
    const size_t n = static_cast<size_t>(stat_of(name).st_size);
    Fd fd(name, O_RDWR);
    void *memory = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(memory, MAP_FAILED);
    char *const at = static_cast<char *>(memory);
    auto *header = reinterpret_cast<struct shared_header *>(at);
    const uint32_t *directory = reinterpret_cast<uint32_t *>(at + SHARED_DIRECTORY_AT);
    auto *groups = reinterpret_cast<struct page_group *>(at + header->groups_at);
    const uint64_t last = SIZE / PAGE - 1, was = header->log.capacity;
    groups[directory[last / GROUP_PAGES] - 1].pages[last % GROUP_PAGES].bitmap = ~0ull;
    EXPECT_EQ(m.read(last * PAGE, PAGE).size(), PAGE) << m.sentence; // any bytes of this file
    header->log.medium = PERSIST_PMEM;
    EXPECT_TRUE(m.write(0, pattern(64, 1))) << m.sentence;
    for (const uint64_t wrong : {0ull, 1ull << 60, -4096ull}) {
        header->log.capacity = wrong;
        header->log.origin = header->log.tail - (1ull << 40);
        EXPECT_FALSE(m.write(0, pattern(64, 1)));
        EXPECT_EQ(m.error, EUCLEAN) << m.sentence;
    }
    header->log.capacity = was;
    munmap(memory, n);
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

// A birth that was cut has only zeros behind a torn header; what was committed is not taken for that.
TEST_F(LogFile, WithoutAHeaderHoldsWhatItWasUsedFor)
{
    const std::string log = dir / "log";
    Bytes bytes(RING + PAGE);
    bytes[5] = 1;
    write_file(log, bytes);
    EXPECT_EQ(log_holds_records(Fd(log)), 0);
    bytes[RING / 2] = 1;
    write_file(log, bytes);
    EXPECT_EQ(log_holds_records(Fd(log)), 1);
}

TEST_F(LogFile, ALogThatIsCutIsNoticedBeforeTheNextCommitCounts)
{
    Mapped m(file, logged());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(m, 0, pattern(10, 2)));
    ASSERT_EQ(truncate(reflection_of(file).c_str(), 0), 0);
    EXPECT_FALSE(m.write(PAGE, Bytes(10, 7)));
    EXPECT_EQ(m.error, EIO);
    EXPECT_NE(m.sentence.find("the log of"), std::string::npos) << m.sentence;
    EXPECT_EQ(read_file(file), content);
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

// The size is part of the record.
TEST_F(LogFile, SizesAreRecoveredWithTheirBytes)
{
    for (const size_t size : {SIZE + 3 * PAGE + 5, SIZE / 2 + 7}) {
        ASSERT_EQ(in_child([&] {
                      Mapped m(file, logged());
                      ato_tx *tx = m ? ato_tx_begin(0) : nullptr;
                      if (!tx || ato_tx_ftruncate(tx, m.base, static_cast<off_t>(size)) < 0 ||
                          !ato_tx_memcpy(tx, m.base + size - 5, "hello", 5, 0) ||
                          ato_tx_commit(tx) < 0)
                          return 1;
                      _exit(CUT);
                      return 0;
                  }),
                  CUT);
        content.resize(size);
        memcpy(content.data() + size - 5, "hello", 5);
        ASSERT_TRUE(Mapped(file, logged())); // the file gets its length
        Mapped m(file, logged());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), content);
    }
}

} // namespace
