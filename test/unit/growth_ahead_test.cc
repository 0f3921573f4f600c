// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log that transactions make longer again and again: its length stays ahead of its size. Then a growth needs no sync of its
// own. When is it cut back?
#include "growth_lab.h"

#include <sys/resource.h>
#include <unistd.h>

using namespace growth_lab;

namespace
{

class GrowthAhead : public testing::Test
{
  protected:
    static constexpr uint64_t STEP = 3000, MOST = 4 << 20;

    GrowthAhead() : path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    static ato_options wish()
    {
        ato_options o = options(ATO_DOMAIN_DISK);
        o.max_size = 1 << 26;
        return o;
    }

    // One transaction makes the file longer and writes to what is new.
    static bool append(const Mapped &m, uint64_t n = STEP)
    {
        const auto end = static_cast<uint64_t>(ato_size(m.base));
        const Bytes bytes = pattern(n, 5);
        ato_tx *tx = ato_tx_begin(0);
        if (tx && ato_tx_ftruncate(tx, m.base, static_cast<off_t>(end + n)) == 0 &&
            ato_tx_memcpy(tx, m.base + end, bytes.data(), n, 0))
            return ato_tx_commit(tx) == 0;
        (void)ato_tx_abort(tx);
        return false;
    }
    bool append(Mapped &m, unsigned times, uint64_t n)
    {
        for (unsigned i = 0; i < times; i++) {
            if (!append(m, n))
                return false;
            const Bytes bytes = pattern(n, 5);
            content.insert(content.end(), bytes.begin(), bytes.end());
        }
        return true;
    }
    bool is_ahead() const
    {
        return size_of(path) > content.size();
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

TEST_F(GrowthAhead, FromTheSecondTimeOnAGrowthNeedsNoSyncOfItsOwn)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
    EXPECT_EQ(size_of(path), content.size()) << "who makes it longer once gets just that";
    ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
    const uint64_t length = size_of(path);
    EXPECT_GE(length, content.size() + (256 << 10));
    FsFaults fs;
    PersistFaults stores;
    ASSERT_TRUE(append(m, 20, STEP)) << ato_errormsg();
    EXPECT_EQ(fs.count("fsync"), 0);
    EXPECT_EQ(fs.count("ftruncate"), 0);
    EXPECT_LE(fs.count("fdatasync"), 20 + 6) << "the log's, and those of a checkpoint";
    EXPECT_EQ(stores.counts.flush_data + stores.counts.flush_any, 0);
    EXPECT_EQ(size_of(path), length);
    EXPECT_EQ(static_cast<uint64_t>(ato_size(m.base)), content.size());
    EXPECT_EQ(m.read(0, content.size()), content);
    EXPECT_EQ(m.read(content.size(), 1), Bytes());
    EXPECT_EQ(m.error, EFAULT);
    // It goes on so, for an eighth of the size, at most 4 MiB.
    ASSERT_TRUE(append(m, 9, 5 << 20)) << ato_errormsg();
    EXPECT_LE(size_of(path), content.size() + MOST + 4096);
    EXPECT_LE(fs.count("fsync"), 9);
}

// Until then other programs see zeros behind its end.
TEST_F(GrowthAhead, IsCutBackWhenTheGrowthIsOver)
{
    struct Way {
        const char *name;
        void (*cut)(Mapped &m);
    };
    const Way ways[] = {
        {"a fast unmap", [](Mapped &m) { m.unmap(ATO_UNMAP_FAST); }},
        {"made plain", [](Mapped &m) { m.unmap(ATO_UNMAP_SPATIAL); }},
        {"this size", [](Mapped &m) { (void)ato_ftruncate(m.base, ato_size(m.base)); }},
        {"just a size", [](Mapped &m) { (void)ato_ftruncate(m.base, ato_size(m.base) + 100); }},
        {"an abort",
         [](Mapped &m) {
             ato_tx *tx = ato_tx_begin(0);
             (void)ato_tx_ftruncate(tx, m.base, ato_size(m.base) + 100);
             (void)ato_tx_abort(tx);
         }},
    };
    for (const Way &way : ways) {
        SCOPED_TRACE(way.name);
        write_file(path, content = pattern(SIZE, 1));
        Mapped m(path, wish());
        ASSERT_TRUE(append(m, 3, STEP)) << ato_errormsg();
        ASSERT_TRUE(is_ahead());
        Bytes seen = read_file(path);
        EXPECT_EQ(std::count(seen.begin() + static_cast<long>(content.size()), seen.end(), 0),
                  static_cast<long>(seen.size() - content.size()));
        way.cut(m);
        const uint64_t size = m.base ? static_cast<uint64_t>(ato_size(m.base)) : content.size();
        EXPECT_EQ(size_of(path), size);
        if (m.base) {
            ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
        content.resize(size);
        EXPECT_EQ(read_file(path), content);
    }
}

TEST_F(GrowthAhead, IsCutBackByTheNextMapAfterAKill)
{
    const int status = in_child([&] {
        Mapped m(path, wish());
        _exit(m && append(m, 3, STEP) ? CUT : 1);
        return 0;
    });
    ASSERT_EQ(status, CUT);
    content.resize(SIZE + 3 * STEP);
    for (int i = 0; i < 3; i++)
        std::copy_n(pattern(STEP, 5).begin(), STEP,
                    content.begin() + static_cast<long>(SIZE + static_cast<uint64_t>(i) * STEP));
    ASSERT_TRUE(is_ahead());
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(size_of(path), content.size());
    EXPECT_EQ(m.read(0, content.size()), content);
}

// The length of a process that was killed before its sync may not be durable.
TEST_F(GrowthAhead, LengthThatNobodyHasSyncedIsGivenAnew)
{
    Mapped m(path, wish());
    ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
    const int status = in_child([&] {
        Mapped other(path, wish());
        FsFaults fs;
        fs.before = [](const FsCall &c) { return std::string(c.op) == "fsync" ? DIE : GO_ON; };
        return other && append(other) ? 1 : 2;
    });
    ASSERT_EQ(status, CUT);
    ASSERT_TRUE(is_ahead());
    FsFaults fs;
    ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
    EXPECT_GE(fs.count("fsync"), 1);
    EXPECT_EQ(m.read(0, content.size()), content);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
}

TEST_F(GrowthAhead, OnAFullDiskTheFileGetsJustItsLength)
{
    for (int error : {ENOSPC, EFBIG, EDQUOT}) {
        SCOPED_TRACE(error);
        write_file(path, content = pattern(SIZE, 1));
        Mapped m(path, wish());
        ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
        FsFaults fs;
        int left = 1;
        fs.before = [&](const FsCall &c) {
            return std::string(c.op) == "ftruncate" && left-- > 0 ? error : GO_ON;
        };
        ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
        EXPECT_EQ(size_of(path), content.size());
        EXPECT_EQ(m.read(0, content.size()), content);
    }
}

// The kernel kills a process that makes a file longer than it may.
TEST_F(GrowthAhead, IsWithinTheLimitOfTheProcess)
{
    const int status = in_child([&] {
        Mapped m(path, wish());
        const rlimit limit = {1 << 20, 1 << 20}; // the log is shorter
        if (!m || ato_ftruncate(m.base, 900 << 10) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0)
            return 1;
        content.resize(900 << 10);
        return append(m, 2, STEP) && !is_ahead() ? 0 : 2;
    });
    EXPECT_EQ(status, 0);
}

// A power cut must not bring them back.
TEST_F(GrowthAhead, ZerosOverWhatAnotherProgramStoredBehindTheEndAreSynced)
{
    const TempDir disk("."); // on tmpfs that space is given back
    path = disk / "file";
    write_file(path, content);
    Mapped m(path, wish());
    ASSERT_TRUE(append(m, 3, STEP)) << ato_errormsg();
    store_behind(path, (content.size() + 63) / 64 * 64, 64);
    FsFaults fs;
    ASSERT_EQ(content.size() / 4096, (content.size() + 100) / 4096);
    ASSERT_TRUE(append(m, 1, 100)) << ato_errormsg();
    EXPECT_EQ(fs.count("fsync"), 1);
    ASSERT_TRUE(append(m, 1, STEP)) << ato_errormsg();
    EXPECT_EQ(fs.count("fsync"), 1);
    EXPECT_EQ(m.read(0, content.size()), content);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
}

// What another program has done to the length is noticed as without this.
TEST_F(GrowthAhead, FileThatAnotherProgramMadeLongerIsEstale)
{
    Mapped m(path, wish());
    ASSERT_TRUE(append(m, 3, STEP)) << ato_errormsg();
    const uint64_t length = size_of(path);
    write_at(path, length, "x", 1);
    EXPECT_FALSE(append(m, 1, STEP));
    EXPECT_EQ(errno, ESTALE) << ato_errormsg();
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(length)), 0);
    EXPECT_TRUE(append(m, 1, STEP)) << ato_errormsg();
    EXPECT_EQ(m.read(0, content.size()), content);
}

} // namespace
