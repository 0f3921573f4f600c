// SPDX-License-Identifier: BSD-3-Clause
//
// A log in another folder: on memory that is taken for persistent memory, with the file on a disk; found again without the option,
// missed with an error; and a log that has all its bytes from the start.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/format/log.h"
#include "reflection/pairing/birth.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 64 * PAGE;

class LogFolder : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (disk_folder().empty())
            GTEST_SKIP() << "no folder on a disk: set ATO_TEST_DISK";
        ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
        write_file(file, content);
    }
    ato_options here() const
    {
        ato_options o = options(ATO_DOMAIN_DISK);
        o.log_dir = folder.c_str();
        return o;
    }
    std::string log_of(const std::string &path) const
    {
        return folder + "/" + std::to_string(stat_of(path).st_ino);
    }
    bool write(Mapped &m, uint64_t at, const Bytes &bytes)
    {
        if (!m.write(at, bytes))
            return false;
        std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
        return true;
    }
    // A process writes to the file, and is killed.
    void write_and_die()
    {
        const Bytes bytes = pattern(3 * PAGE, 9);
        ASSERT_EQ(in_child([&] {
                      Mapped m(file, here());
                      if (!m.write(100, bytes))
                          return 1;
                      _exit(CUT);
                      return 0;
                  }),
                  CUT);
        std::copy(bytes.begin(), bytes.end(), content.begin() + 100);
        write_file(file, before); // as if the kernel had not written it back
    }
    TempDir dir{disk_folder().empty() ? "/dev/shm" : disk_folder()}, memory{"/dev/shm"};
    const std::string file = dir / "file", folder = memory / "logs";
    Bytes content = pattern(SIZE, 1);
    const Bytes before = content;
};

// As far as its length: without a sync, whatever it writes; and so after the ring was used up, or got longer.
TEST_F(LogFolder, ACommitToMemoryIsFencedAndNotSynced)
{
    Mapped m(file, here());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(m, 0, pattern(SIZE, 2))) << m.sentence; // the file has its space
    EXPECT_TRUE(exists(log_of(file)));
    EXPECT_FALSE(exists(dir / ".ato"));
    for (const size_t n : {1ul, 64ul, 3000ul, 3 * PAGE, 30 * PAGE}) {
        FsFaults fs;
        PersistFaults stores;
        EXPECT_TRUE(write(m, 5 * PAGE + 10, pattern(n, n))) << m.sentence;
        EXPECT_EQ(fs.calls, std::vector<std::string>()) << n;
        EXPECT_EQ(stores.counts.fence, 1) << n;
        EXPECT_EQ(stores.counts.flush_any + stores.counts.flush_data, 0) << n;
    }
    const off_t was = stat_of(log_of(file)).st_size;
    for (unsigned i = 0; i < 200; i++)
        ASSERT_TRUE(write(m, i % 60 * PAGE + i, pattern(2 * PAGE, i))) << m.sentence;
    EXPECT_GT(stat_of(log_of(file)).st_size, was);
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(file), content);
    EXPECT_FALSE(exists(log_of(file)));
}

// The process dies at each of its stores, fences and calls; one that maps the file now, and one that has it mapped, finish or find nothing.
TEST_F(LogFolder, WhatADeadProcessStoredCountsWhollyOrNot)
{
    bool saw[2][2] = {};
    for (long call = 0; call < 40; call++)
        for (const bool beside : {false, true}) {
            const auto fill = static_cast<uint8_t>(call + 10);
            std::unique_ptr<Mapped> m;
            if (beside) {
                m = std::make_unique<Mapped>(file, here());
                ASSERT_TRUE(*m) << m->sentence;
            }
            const int died = in_child([&] {
                Mapped own(file, here());
                long left = call;
                FsFaults fs;
                PersistFaults stores;
                fs.before = [&](const FsCall &) { return left-- == 0 ? DIE : GO_ON; };
                stores.before = [&](const PersistCall &) { return left-- == 0 ? DIE : GO_ON; };
                return own.write(PAGE - 100, Bytes(10 * PAGE, fill)) ? 0 : 1;
            });
            ASSERT_TRUE(died == CUT || died == 0) << died;
            if (!beside)
                m = std::make_unique<Mapped>(file, options());
            const bool done = m->read(PAGE, 1)[0] == fill;
            saw[beside][done] = true;
            if (done)
                std::fill_n(content.begin() + PAGE - 100, 10 * PAGE, fill);
            EXPECT_EQ(m->read(), content) << call << m->sentence;
        }
    EXPECT_TRUE(saw[0][0] && saw[0][1] && saw[1][0] && saw[1][1]);
}

TEST_F(LogFolder, ALaterMapFindsItWithoutTheOption)
{
    write_and_die();
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.stat().domain, ATO_DOMAIN_DISK);
    EXPECT_EQ(m.read(), content);
    EXPECT_TRUE(exists(log_of(file)));
    EXPECT_FALSE(exists(dir / ".ato"));
}

// The medium of the log is not there: the file is refused, whether or not the option is given, and loses nothing.
TEST_F(LogFolder, WithoutTheFolderTheFileIsRefused)
{
    write_and_die();
    const std::string away = memory / "away";
    ASSERT_EQ(rename(folder.c_str(), away.c_str()), 0);
    ASSERT_EQ(mkdir(folder.c_str(), 0700), 0); // the empty folder on which it is mounted
    for (const bool there : {true, false}) {
        if (!there) {
            ASSERT_EQ(rmdir(folder.c_str()), 0);
        }
        for (const ato_options &o : {options(), here(), options(ATO_DOMAIN_DISK)}) {
            Mapped m(file, o);
            EXPECT_FALSE(m);
            EXPECT_EQ(m.error, ESTALE) << m.sentence;
            EXPECT_NE(m.sentence.find(folder), std::string::npos) << m.sentence;
        }
        EXPECT_EQ(read_file(file), before);
    }
    ASSERT_EQ(rename(away.c_str(), folder.c_str()), 0);
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
}

TEST_F(LogFolder, InMemoryIsRefusedUnlessDomainDiskIsAskedFor)
{
    ato_options o = here();
    o.domain = ATO_DOMAIN_AUTO;
    {
        Mapped m(file, o);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ENOTSUP);
        EXPECT_NE(m.sentence.find(folder), std::string::npos) << m.sentence;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    Environment forced("ATO_DURABILITY", "disk");
    Mapped m(file, o);
    EXPECT_TRUE(m) << m.sentence;
    EXPECT_TRUE(exists(log_of(file)));
}

// Without it no later map would find the log, and the file would look plain.
TEST_F(LogFolder, IsRefusedIfTheFileTakesNoAttribute)
{
    FsFaults fs;
    fs.fail_op("fsetxattr", ENOTSUP);
    {
        Mapped m(file, here());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ENOTSUP);
        EXPECT_NE(m.sentence.find(folder), std::string::npos) << m.sentence;
    }
    EXPECT_FALSE(exists(log_of(file)));
    Mapped beside(file, options(ATO_DOMAIN_DISK));
    EXPECT_TRUE(beside) << beside.sentence;
}

// In the environment it is for files on a disk alone; and an option for all reflections comes before it.
TEST_F(LogFolder, TheEnvironmentNamesItForFilesWithALog)
{
    const std::string other = memory / "file", own = dir / "own";
    Environment e("ATO_LOG_DIR", folder.c_str());
    write_file(other, content);
    {
        Mapped m(other);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_TRUE(exists(reflection_of(other)));
        ato_options o = options(ATO_DOMAIN_DISK);
        o.reflection_dir = own.c_str();
        Mapped own_folder(file, o);
        ASSERT_TRUE(own_folder) << own_folder.sentence;
        EXPECT_TRUE(std::filesystem::is_empty(folder));
        EXPECT_EQ(own_folder.unmap(ATO_UNMAP_SPATIAL), 0);
    }
    Mapped m(file, options(ATO_DOMAIN_DISK));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(exists(log_of(file)));
}

// It has its bytes from the start, and no more: the commit that needs more is refused, and changes nothing.
TEST_F(LogFolder, BytesBoundTheLog)
{
    Environment e("ATO_LOG_BYTES", "100000");
    const off_t length = LOG_RING_AT + 25 * PAGE;
    const Bytes large = pattern(SIZE, 3);
    for (const bool again : {false, true}) { // the log keeps its bound
        ato_options o = here();
        o.log_bytes = again ? 1 << 20 : 0;
        Mapped m(file, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(stat_of(log_of(file)).st_size, length);
        EXPECT_GE(stat_of(log_of(file)).st_blocks * 512, length);
        for (unsigned i = 0; i < 200; i++)
            ASSERT_TRUE(write(m, i % 60 * PAGE + i, pattern(2 * PAGE, i))) << m.sentence;
        EXPECT_FALSE(m.write(0, large));
        EXPECT_EQ(m.error, ENOSPC);
        EXPECT_NE(m.sentence.find("log_bytes"), std::string::npos) << m.sentence;
        EXPECT_EQ(m.read(), content);
        EXPECT_EQ(stat_of(log_of(file)).st_size, length);
    }
    for (const char *wrong : {"100", "64k", "-1"}) {
        Environment w("ATO_LOG_BYTES", wrong);
        Mapped m(dir / "file", options());
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, EINVAL) << m.sentence;
        EXPECT_NE(m.sentence.find("ATO_LOG_BYTES"), std::string::npos) << m.sentence;
    }
}

// Another program cuts a log that is mapped: no later commit counts.
TEST_F(LogFolder, ALogThatIsCutIsNoticed)
{
    Mapped m(file, here());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(write(m, 0, pattern(10, 2)));
    for (const off_t length : {static_cast<off_t>(LOG_RING_AT + birth_ring_bytes - 1), off_t(0)}) {
        ASSERT_EQ(truncate(log_of(file).c_str(), length), 0);
        EXPECT_FALSE(m.write(PAGE, Bytes(10, 7)));
        EXPECT_EQ(m.error, EIO);
        EXPECT_NE(m.sentence.find("the log of"), std::string::npos) << m.sentence;
        EXPECT_EQ(read_file(file), content);
    }
}

} // namespace
