// SPDX-License-Identifier: BSD-3-Clause
//
// What if all of a file lies in its reflection, and the disk has no room for it twice? What came home gives the space of
// its other copy to the next.
#include "hazards/full_disk.h"

extern "C" {
#include "reflection/locks.h"
}

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

using namespace hazards;

namespace
{

void eat(void *ballast, uint64_t, uint64_t)
{
    fill_quietly(*static_cast<const std::string *>(ballast));
}

class Scarce : public FullDisk
{
};

// All of it lies in the reflection, and there is no room for a second copy: what came home gives the first one's
// space back. Not in memory, where it cannot.
TEST_P(Scarce, FilesOfMoreThanHalfADiskAreMadePlain)
{
    if (in_memory())
        GTEST_SKIP() << "there nothing is given back";
    constexpr size_t LONG = 14 << 20, PAGES = LONG / 4096;
    EXPECT_PLAYED(play([&] {
        for (unsigned threads : {1, 3}) {
            for (size_t kept : {400, 1500}) {
                SCOPED_TRACE(std::to_string(threads) + " threads, " + std::to_string(kept) +
                             " pages are left");
                make_files(Bytes(), LONG);
                // In the second all of the reflection is dirty.
                const int domain = threads == 1 ? ATO_DOMAIN_MSYNC : ATO_DOMAIN_PROCESS;
                Mapped m(file, options(domain, ATO_READ_GATHER, ATO_NO_RTM));
                ASSERT_TRUE(m) << m.sentence;
                for (size_t i = 0; i < PAGES; i++)
                    ASSERT_TRUE(m.write(i * 4096, pattern(4096, i % 250))) << m.sentence;
                const uint64_t far = 4096 * (PAGES - 1);
                fill_but(ballast, kept);
                struct ato_unmap_options unmapping = {};
                unmapping.struct_size = sizeof(unmapping);
                unmapping.mode = ATO_UNMAP_SPATIAL;
                unmapping.threads = threads;
                const bool plain = ato_munmap_opt(m.base, LONG, &unmapping) == 0;
                if (!plain) {
                    EXPECT_EQ(errno, ENOSPC) << ato_errormsg();
                    EXPECT_TRUE(m.write(far, pattern(4096, 1))) << m.sentence;
                    EXPECT_EQ(m.read(0, 4096), pattern(4096, 0));
                    EXPECT_TRUE(m.write(far, pattern(4096, (PAGES - 1) % 250))) << m.sentence;
                    make_room();
                    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
                } else {
                    m.base = nullptr;
                    make_room();
                }
                EXPECT_EQ(plain, !in_memory()) << ato_errormsg();
                for (size_t i = 0; i < PAGES; i++)
                    ASSERT_EQ(read_at(file, i * 4096, 4096), pattern(4096, i % 250)) << i;
            }
        }
    }));
}

// Space that was given back beside pages that had theirs: they have it no more.
TEST_P(Scarce, UnmapThatFailsLeavesNoPageThatOnlySeemsToHaveSpace)
{
    if (in_memory())
        GTEST_SKIP() << "there nothing is given back";
    constexpr size_t LONG = 8 << 20, PAGES = LONG / 4096;
    EXPECT_PLAYED(play([&] {
        for (int domain : {ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS}) {
            SCOPED_TRACE(domain);
            make_files(Bytes(), LONG);
            Mapped m(file, options(domain, ATO_READ_GATHER, ATO_NO_RTM));
            ASSERT_TRUE(m) << m.sentence;
            for (size_t i = 0; i < PAGES; i += 512)
                ASSERT_TRUE(m.write(i * 4096, pattern(10, 1))) << m.sentence;
            for (size_t i = 0; i < PAGES; i++)
                ASSERT_TRUE(m.write(i * 4096, pattern(2048, 1))) << m.sentence;
            for (size_t i = 1; i < PAGES; i += 4)
                ASSERT_EQ(ato_deploy(m.base + i * 4096, 4096), 0) << ato_errormsg();
            // Stores that nothing is to be seen of, and that nobody made durable.
            ato_tx *tx = ato_tx_begin(0);
            for (size_t i = 0; i < PAGES; i++)
                ASSERT_TRUE(
                    ato_tx_memcpy(tx, m.base + i * 4096 + 2048, pattern(1024, 9).data(), 1024, 0))
                    << ato_errormsg();
            ato_tx_abort(tx);
            fill_quietly(ballast);
            struct ato_unmap_options unmapping = {};
            unmapping.struct_size = sizeof(unmapping);
            unmapping.mode = ATO_UNMAP_SPATIAL;
            unmapping.threads = 1;
            unmapping.progress = eat; // others take what is given back
            unmapping.progress_arg = const_cast<std::string *>(&ballast);
            ASSERT_EQ(ato_munmap_opt(m.base, LONG, &unmapping), -1);
            EXPECT_EQ(errno, ENOSPC) << ato_errormsg();
            for (size_t at : {2048, 3072, 2048}) {
                fill_quietly(ballast);
                for (size_t i = PAGES; i-- > 0;)
                    ASSERT_TRUE(m.write(i * 4096 + at, pattern(1024, 3)) || m.error == ENOSPC)
                        << m.sentence;
                clean(disk);
            }
            make_room();
            for (size_t i = 0; i < PAGES; i++)
                ASSERT_TRUE(m.write(i * 4096, pattern(4096, i % 250))) << m.sentence;
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            for (size_t i = 0; i < PAGES; i++)
                ASSERT_EQ(read_at(file, i * 4096, 4096), pattern(4096, i % 250)) << i;
        }
    }));
}

struct Slow {
    Peer *other;
    std::string was_there;
    unsigned calls;
};

void be_slow(void *arg, uint64_t, uint64_t)
{
    auto *slow = static_cast<Slow *>(arg);
    if (slow->calls++ == 0)
        slow->other->go_on();
    if (access(slow->was_there.c_str(), F_OK) != 0)
        usleep(600000); // longer than a turn (scarce.c)
}

// Space is given back while nobody else has the file mapped; who wants to has a turn now and then.
TEST_P(Scarce, OthersAreLetInWhileSpaceIsGivenBack)
{
    if (in_memory())
        GTEST_SKIP() << "there nothing is given back";
    constexpr size_t CHUNK = 2 << 20, CHUNKS = 16;
    EXPECT_PLAYED(play([&] {
        make_files(Bytes(), CHUNKS * CHUNK);
        const std::string was_there = dir / "was there";
        Peer other([&](const std::function<void()> &wait) {
            wait();
            locks_patience_ms = 5000;
            Mapped m(file);
            write_file(was_there, Bytes());
            // Who is the last to leave makes it plain.
            return m && m.read(CHUNK, 4096) == pattern(4096, 1) && m.unmap(ATO_UNMAP_SPATIAL) == 0
                       ? 0
                       : 1;
        });
        ASSERT_TRUE(other.is_ready());
        Mapped m(file, options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        for (size_t i = 0; i < CHUNKS; i++)
            ASSERT_TRUE(m.write(i * CHUNK, pattern(4096, i))) << m.sentence;
        fill_but(ballast, 1024);
        Slow slow = {&other, was_there, 0};
        struct ato_unmap_options unmapping = {};
        unmapping.struct_size = sizeof(unmapping);
        unmapping.mode = ATO_UNMAP_SPATIAL;
        unmapping.progress = be_slow;
        unmapping.progress_arg = &slow;
        ASSERT_EQ(ato_munmap_opt(m.base, CHUNKS * CHUNK, &unmapping), 0) << ato_errormsg();
        m.base = nullptr;
        EXPECT_EQ(other.end(), 0);
        EXPECT_GT(slow.calls, 0u);
        for (size_t i = 0; i < CHUNKS; i++)
            EXPECT_EQ(read_at(file, i * CHUNK, 4096), pattern(4096, i)) << i;
    }));
}

INSTANTIATE_TEST_SUITE_P(Media, Scarce, testing::ValuesIn(MEDIA), name_of);

} // namespace
