// SPDX-License-Identifier: BSD-3-Clause
//
// Snapshots of a process that may only read the file: plain, or in use by others, whose commits have numbers already or not.
#include "snapshot_lab.h"
#include "unit/watched.h"

#include <grp.h>
#include <sys/stat.h>

using namespace watched;
using snapshot_lab::Snap;

namespace
{

using SnapshotReader = Reader;

TEST_F(SnapshotReader, OfAPlainFileLastsUntilAnyProgramChangesIt)
{
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    Snap s(r.base);
    ASSERT_TRUE(s) << s.sentence;
    for (int times = 0; times < 2; times++)
        EXPECT_EQ(s.copy(), content) << s.sentence;
    EXPECT_EQ(s.read(SIZE - 5, 99), Bytes(content.end() - 5, content.end()));
    EXPECT_FALSE(fs::exists(dir / ".ato")) << "a reader makes no file";
    write_at(path, 3, "other", 5);
    EXPECT_TRUE(s.copy().empty());
    EXPECT_EQ(s.error, ESTALE) << s.sentence;
    fs::resize_file(path, (1ull << 30) + 1); // more than the default of max_size
    EXPECT_EQ(Snap(r.base).error, EFBIG) << ato_errormsg();
    fs::resize_file(path, SIZE);
    content = read_file(path);
    Snap again(r.base);
    EXPECT_EQ(again.copy(), content) << again.sentence;
    Writer w(path, {[](Mapped &) { return true; }, write(9, 3)});
    const Bytes before = read_file(path);
    w.act();
    EXPECT_TRUE(again.copy().empty());
    EXPECT_EQ(again.error, ESTALE) << again.sentence;
    Snap beside(r.base);
    w.act();
    EXPECT_EQ(beside.copy(), before) << beside.sentence;
    EXPECT_EQ(Snap(r.base).copy(), content);
    EXPECT_TRUE(s.copy().empty() && s.error == ESTALE) << s.sentence;
}

TEST_F(SnapshotReader, BesideAWriterNumbersItsCommitsIfItsUserMayWrite)
{
    std::vector<Writer::Deed> deeds = {write(100, 2), write(3000, 3), unmap(ATO_UNMAP_FAST)};
    Bytes both;
    std::swap(both, content);
    content = pattern(SIZE, 1);
    Writer w(path, deeds);
    w.act();
    Watched r(path);
    ASSERT_TRUE(r.base) << r.sentence;
    Snap s(r.base);
    ASSERT_TRUE(s) << s.sentence;
    const Bytes before = s.copy();
    EXPECT_EQ(Bytes(before.begin() + 100, before.begin() + 6100), pattern(6000, 2));
    EXPECT_EQ(Bytes(before.begin() + 6100, before.end()),
              Bytes(content.begin() + 6100, content.end()));
    w.act();
    EXPECT_EQ(s.copy(), before) << s.sentence;
    EXPECT_EQ(Snap(r.base).copy(), both);
    w.act();
    w.end();
    EXPECT_EQ(s.copy(), before) << "its writer has unmapped the file: " << s.sentence;
    EXPECT_EQ(Snap(r.base).copy(), both);
}

// One that may not write may take a snapshot as soon as another process has taken the first one.
TEST_F(SnapshotReader, OfAnotherUserNeedsThatCommitsHaveNumbers)
{
    constexpr uid_t NOBODY = 65534;
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, to become another user";
    ASSERT_EQ(chmod(dir.path().c_str(), 0755) + chmod(path.c_str(), 0644), 0);
    for (const int domain : domains({ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK})) {
        SCOPED_TRACE(domain);
        write_file(path, content = pattern(SIZE, 1));
        Mapped m(path, options(domain, ATO_READ_GATHER));
        ASSERT_TRUE(m && m.write(7, pattern(9000, 2))) << m.sentence;
        content = m.read();
        Peer reader([&](const std::function<void()> &pause) {
            if (setgroups(0, nullptr) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                return 99;
            Watched r(path);
            if (!r.base)
                return 1;
            Snap early(r.base);
            if (early || early.error != EACCES)
                return 2;
            pause();
            Snap s(r.base);
            const Bytes before = s.copy();
            pause();
            return before == content && s.copy() == content && r.read() != content ? 0 : 3;
        });
        ASSERT_TRUE(reader.is_ready());
        EXPECT_TRUE(Snap(m.base));
        reader.go_on();
        ASSERT_TRUE(reader.is_ready());
        EXPECT_TRUE(m.write(100, pattern(3000, 3)) && m.write(5 * 4096, pattern(300, 4)))
            << m.sentence;
        EXPECT_EQ(reader.end(), 0);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
}

} // namespace
