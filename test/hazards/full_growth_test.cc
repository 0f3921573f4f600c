// SPDX-License-Identifier: BSD-3-Clause
//
// What if a file in memory grows by several steps, or in the end does not, and then its file system is full?
// There even a load from a page without space is SIGBUS. What a growth takes away, or what is cut off when it
// came to nothing, is asked for again: ENOSPC, nothing changed, the next try works.
#include "hazards/lab.h"
#include "support/faults.h"

#include <cerrno>
#include <csignal>

#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 2 * PAGE;

class FullGrowth : public testing::Test
{
  protected:
    int play(const std::function<void()> &scene)
    {
        return in_child([&] {
            if (!alone() || !mount_memory(disk, "size=24m"))
                return NO_SCENE;
            write_file(file, content);
            ato_options o = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
            o.max_size = 1 << 20;
            Mapped mapped(file, o);
            m = &mapped;
            if (!mapped)
                return 1;
            scene();
            if (!HasFailure()) {
                EXPECT_EQ(mapped.unmap(ATO_UNMAP_SPATIAL), 0) << mapped.sentence;
                EXPECT_EQ(read_file(file), content);
            }
            return static_cast<int>(HasFailure());
        });
    }

    static ato_tx *begin()
    {
        return ato_tx_begin(0);
    }
    bool resize(ato_tx *t, size_t pages)
    {
        return ato_tx_ftruncate(t, m->base, static_cast<off_t>(pages * PAGE)) == 0;
    }
    bool put(ato_tx *t, size_t page, const Bytes &bytes)
    {
        return ato_tx_memcpy(t, m->base + page * PAGE, bytes.data(), bytes.size(), 0);
    }

    Bytes all()
    {
        return m->read(0, content.size());
    }

    // The file has so many pages, of which the transaction that came to nothing had the fifth; nothing has
    // space any more.
    void expect_fifth_is_asked_for(size_t pages)
    {
        ASSERT_EQ(ato_ftruncate(m->base, static_cast<off_t>(pages * PAGE)), 0) << ato_errormsg();
        content.resize(pages * PAGE);
        fill(ballast);
        EXPECT_TRUE(m->read(5 * PAGE, 10).empty());
        EXPECT_EQ(m->error, ENOSPC) << m->sentence;
        EXPECT_FALSE(m->write(5 * PAGE, Bytes(10, 'x')));
        EXPECT_EQ(m->error, ENOSPC) << m->sentence;
        ASSERT_EQ(unlink(ballast.c_str()), 0);
        EXPECT_EQ(all(), content);
        EXPECT_TRUE(m->write(5 * PAGE, Bytes(10, 'x'))) << m->sentence;
        content = over(content, 5 * PAGE, Bytes(10, 'x'));
        EXPECT_EQ(all(), content);
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk", file = disk + "/file", ballast = disk + "/ballast";
    Bytes content = pattern(SIZE, 1);
    Mapped *m = nullptr;
};

TEST_F(FullGrowth, ASecondStepTakesNothingFromTheFirst)
{
    EXPECT_PLAYED(play([&] {
        ato_tx *t = begin();
        Bytes seen(PAGE);
        ASSERT_TRUE(resize(t, 10)) << ato_errormsg();
        ASSERT_TRUE(put(t, 5, Bytes(10, 'x'))) << ato_errormsg();
        ASSERT_TRUE(ato_tx_memcpy(t, seen.data(), m->base + 7 * PAGE, PAGE, 0)) << ato_errormsg();
        ASSERT_TRUE(resize(t, 20)) << ato_errormsg();
        fill(ballast);
        for (size_t page : {5, 7}) {
            ASSERT_TRUE(ato_tx_memcpy(t, seen.data(), m->base + page * PAGE, PAGE, 0))
                << ato_errormsg();
            EXPECT_EQ(seen, over(Bytes(PAGE), 0, Bytes(page == 5 ? 10 : 0, 'x')));
        }
        ASSERT_EQ(unlink(ballast.c_str()), 0); // a commit may make a journal
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        content.resize(20 * PAGE);
        fill(ballast);
        // Back and forth: both homes of the page have their space.
        for (unsigned char round = 0; round < 4; round++) {
            EXPECT_TRUE(m->write(5 * PAGE, Bytes(10, round))) << m->sentence;
            ASSERT_FALSE(m->read(5 * PAGE, PAGE).empty()) << m->sentence;
        }
        ASSERT_EQ(unlink(ballast.c_str()), 0);
        EXPECT_TRUE(m->write(5 * PAGE, Bytes(10, 'y'))) << m->sentence;
        content = over(content, 5 * PAGE, Bytes(10, 'y'));
        EXPECT_EQ(all(), content);
    }));
}

TEST_F(FullGrowth, WhatATransactionHadThatCameToNothingIsAskedForAgain)
{
    EXPECT_PLAYED(play([&] {
        ato_tx *t = begin();
        ASSERT_TRUE(resize(t, 10)) << ato_errormsg();
        ASSERT_TRUE(put(t, 5, Bytes(10, 'x'))) << ato_errormsg();
        ASSERT_EQ(ato_tx_abort(t), 0);
        EXPECT_EQ(all(), content);
        expect_fifth_is_asked_for(10);
    }));
}

// It comes to an end, but not so far.
TEST_F(FullGrowth, WhatATransactionHadBehindItsEndIsAskedForAgain)
{
    EXPECT_PLAYED(play([&] {
        ato_tx *t = begin();
        ASSERT_TRUE(resize(t, 10)) << ato_errormsg();
        ASSERT_TRUE(put(t, 5, Bytes(10, 'x'))) << ato_errormsg();
        ASSERT_TRUE(resize(t, 3)) << ato_errormsg();
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        content.resize(3 * PAGE);
        EXPECT_EQ(all(), content);
        expect_fifth_is_asked_for(10);
    }));
}

// A call took it, and failed for want of space: for this page's state, for it, for the next one, ...
TEST_F(FullGrowth, WhatACallOfTheTransactionGaveBackIsAskedForAgain)
{
    for (int succeed = 0; succeed < 6; succeed++)
        EXPECT_PLAYED(play([&] {
            FsFaults faults;
            ato_tx *t = begin();
            ASSERT_TRUE(resize(t, 10)) << ato_errormsg();
            int left = succeed;
            faults.before = [&](const FsCall &call) {
                return std::string(call.op) == "fallocate" && !left-- ? ENOSPC : GO_ON;
            };
            EXPECT_FALSE(put(t, 5, Bytes(3 * PAGE, 'x')));
            EXPECT_EQ(errno, ENOSPC);
            faults.before = nullptr;
            ASSERT_EQ(ato_tx_abort(t), 0);
            expect_fifth_is_asked_for(10);
        }));
}

// What was within the file since it was mapped keeps its space, and readers may be there.
TEST_F(FullGrowth, WhatWasWithinTheFileStaysReadable)
{
    EXPECT_PLAYED(play([&] {
        ASSERT_EQ(ato_ftruncate(m->base, 10 * PAGE), 0) << ato_errormsg();
        ASSERT_TRUE(m->write(5 * PAGE, Bytes(10, 'x'))) << m->sentence;
        ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
        for (int round = 0; round < 2; round++) {
            ato_tx *t = begin();
            ASSERT_TRUE(resize(t, 15)) << ato_errormsg();
            ASSERT_TRUE(put(t, 5, Bytes(10, 'y'))) << ato_errormsg();
            ASSERT_TRUE(put(t, 12, Bytes(10, 'y'))) << ato_errormsg();
            ASSERT_EQ(ato_tx_abort(t), 0);
        }
        ASSERT_EQ(ato_ftruncate(m->base, 15 * PAGE), 0) << ato_errormsg();
        content.resize(15 * PAGE);
        fill(ballast);
        EXPECT_EQ(m->read(5 * PAGE, PAGE), Bytes(PAGE)) << m->sentence;
        EXPECT_TRUE(m->read(12 * PAGE, 10).empty());
        EXPECT_EQ(m->error, ENOSPC) << m->sentence;
        ASSERT_EQ(unlink(ballast.c_str()), 0);
        EXPECT_EQ(all(), content);
    }));
}

} // namespace
