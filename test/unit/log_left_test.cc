// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log: what is left of it after failures, kills and damage.
#include "log_lab.h"
#include "support/child.h"
#include "support/dying.h"

extern "C" {
#include "lib/file/shared.h"
#include "reflection/format/log.h"
#include "reflection/media/fsops.h"
#include "reflection/pairing/birth.h"
}

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

using namespace log_lab;

namespace
{

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

// The file keeps no attribute then: it stays a plain file whose reflection can be brought back.
TEST_F(LogFile, ADamagedHeaderIsNoticedBeforeTheFileIsJoinedWithIt)
{
    {
        Mapped m(file, logged());
        ASSERT_TRUE(m && write(m, 0, pattern(PAGE, 2))) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }
    ASSERT_EQ(removexattr(file.c_str(), "user.ato"), 0);
    const std::string log = reflection_of(file);
    const Bytes before = read_file(log);
    Bytes damaged = before;
    std::fill_n(damaged.begin(), 2 * LOG_COPY_AT, 7);
    write_file(log, damaged);
    ato_options o = logged();
    o.flags |= ATO_PREFER_REFLECTION;
    Mapped refused(file, o);
    EXPECT_FALSE(refused);
    EXPECT_EQ(refused.error, EUCLEAN) << refused.sentence;
    EXPECT_EQ(attribute_of(file), "");
    write_file(log, before);
    Mapped again(file, o);
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), content);
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
