// SPDX-License-Identifier: BSD-3-Clause
//
// What if the disk is full, and the kernel keeps many pages of a file as one (a large folio)? A store to one of them
// takes space for all, also for those that are holes.
#include "hazards/full_disk.h"
#include "support/faults.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

using namespace hazards;

namespace
{

// Out of the page cache and into it again, as a backup reads: in as large pieces as the kernel likes.
void read_anew(const std::string &path)
{
    Fd fd(path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    char page[4096];
    while (read(fd, page, sizeof(page)) > 0)
        ;
}

class LargeFolio : public FullDisk
{
};

// The kernel may keep many pages of a file as one (a large folio): a store to one page takes space for all of
// them, also for those that were not allocated.
TEST_P(LargeFolio, PagesWhoseNeighboursAreHolesAreEnospcAndNotSigbus)
{
    constexpr size_t LONG = 10 << 20, PAGES = LONG / 4096;
    EXPECT_PLAYED(play([&] {
        for (size_t kept : {0, 20, 200}) {
            SCOPED_TRACE(std::to_string(kept) + " pages are left");
            make_files(Bytes(), LONG);
            Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
            ASSERT_TRUE(m) << m.sentence;
            size_t written = 0;
            auto write_on = [&](size_t end) {
                while (written < end && m.write(written * 4096, pattern(4096, written % 250)))
                    written++;
                return written == end;
            };
            EXPECT_TRUE(write_on(PAGES / 2)) << m.sentence;
            fill(ballast);
            ASSERT_EQ(truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast) - kept * 4096)),
                      0);
            if (!write_on(PAGES))
                expect_no_space(m, file);
            if (ato_deploy(m.base, LONG) < 0) {
                EXPECT_EQ(errno, ENOSPC) << ato_errormsg();
            }
            for (size_t i = 0; i < written; i++)
                ASSERT_EQ(m.read(i * 4096, 4096), pattern(4096, i % 250)) << i;
            make_room();
            EXPECT_TRUE(write_on(PAGES)) << m.sentence;
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            for (size_t i = 0; i < PAGES; i++)
                ASSERT_EQ(read_at(file, i * 4096, 4096), pattern(4096, i % 250)) << i;
        }
    }));
}

// The last page is a hole, which no store to those before it may fall into.
TEST_P(LargeFolio, HolesBehindTheLastPageWithSpaceAreEnospcAndNotSigbus)
{
    constexpr size_t FULL = 303, LONG = FULL * 4096 + 1000;
    EXPECT_PLAYED(play([&] {
        make_files(Bytes(), 0);
        write_file(file, pattern(FULL * 4096, 1));
        ASSERT_EQ(truncate(file.c_str(), LONG), 0);
        read_anew(file);
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        const Bytes late = pattern(20 * 4096, 2);
        ASSERT_TRUE(m.write((FULL - 20) * 4096, late)) << m.sentence;
        fill(ballast);
        if (ato_deploy(m.base, LONG) < 0) {
            EXPECT_EQ(errno, ENOSPC) << ato_errormsg();
        }
        const Bytes expected =
            over(over(Bytes(LONG), 0, pattern(FULL * 4096, 1)), (FULL - 20) * 4096, late);
        make_room();
        EXPECT_EQ(m.read(), expected);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), expected);
    }));
}

// What is cut off gives its space back, but not beside pages that are known to have theirs, by whomever.
TEST_P(LargeFolio, PagesBesideACutKeepTheSpaceThatTheyHave)
{
    if (in_memory())
        GTEST_SKIP() << "there each page has its own";
    constexpr size_t LONG = 8 << 20, PAGES = LONG / 4096;
    struct Cut {
        size_t pages;
        int domain;
    };
    EXPECT_PLAYED(play([&] {
        for (const Cut cut : {Cut{3, ATO_DOMAIN_PROCESS}, Cut{200, ATO_DOMAIN_MSYNC},
                              Cut{700, ATO_DOMAIN_PROCESS}}) {
            SCOPED_TRACE("cut to " + std::to_string(cut.pages) + " pages");
            const size_t shorter = cut.pages * 4096 + 100;
            make_files(Bytes(), LONG);
            Mapped m(file, options(cut.domain, ATO_READ_GATHER, ATO_NO_RTM));
            ASSERT_TRUE(m) << m.sentence;
            for (size_t i = 0; i < PAGES; i += 512)
                ASSERT_TRUE(m.write(i * 4096, pattern(10, 1))) << m.sentence;
            read_anew(reflection_of(file));
            read_anew(file);
            for (size_t i = 0; i < 2 * PAGES; i++)
                ASSERT_TRUE(m.write(i % PAGES * 4096, pattern(4096, i))) << m.sentence;
            ato_tx *tx = ato_tx_begin(0);
            for (size_t i = 0; i < PAGES; i++)
                ASSERT_TRUE(ato_tx_memcpy(tx, m.base + i * 4096, pattern(3000, 9).data(), 3000, 0))
                    << ato_errormsg();
            ato_tx_abort(tx);
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(shorter)), 0) << ato_errormsg();
            for (size_t at : {0, 1000}) {
                fill_quietly(ballast);
                for (size_t i = cut.pages; i-- > 0;)
                    EXPECT_TRUE(m.write(i * 4096 + at, pattern(3000, 3))) << m.sentence;
                clean(disk);
            }
            // It may get as long again, and then be stored to as far as there is space.
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(LONG)), 0) << ato_errormsg();
            EXPECT_EQ(m.read(shorter, LONG - shorter), Bytes(LONG - shorter));
            for (size_t kept : {10, 100, 300}) {
                for (size_t i = PAGES; i-- > 0;)
                    EXPECT_TRUE(m.write(i * 4096, pattern(4096, kept)) || m.error == ENOSPC)
                        << m.sentence;
                clean(disk);
                fill_but(ballast, kept);
            }
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(shorter)), 0) << ato_errormsg();
            make_room();
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            EXPECT_EQ(size_of(file), shorter);
        }
    }));
}

// What a file grows by is a hole, which no store to those before it may fall into.
TEST_P(LargeFolio, PagesBesideAGrowthKeepTheSpaceThatTheyHave)
{
    if (in_memory())
        GTEST_SKIP() << "there each page has its own";
    constexpr size_t LONG = 8 << 20;
    EXPECT_PLAYED(play([&] {
        for (int domain : {ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS}) {
            SCOPED_TRACE(domain);
            constexpr size_t PAGES = 303, SHORT = PAGES * 4096 + 100;
            make_files(pattern(SHORT, 1), SHORT);
            ato_options growing = options(domain, ATO_READ_GATHER, ATO_NO_RTM);
            growing.max_size = LONG;
            Mapped m(file, growing);
            ASSERT_TRUE(m) << m.sentence;
            for (size_t i = 0; i < PAGES; i += 512)
                ASSERT_TRUE(m.write(i * 4096, pattern(10, 1))) << m.sentence;
            read_anew(reflection_of(file));
            read_anew(file);
            for (size_t i = 0; i < 2 * PAGES; i++)
                ASSERT_TRUE(m.write(i % PAGES * 4096, pattern(4096, i))) << m.sentence;
            fill_quietly(ballast);
            for (size_t longer : {SHORT + 20000, LONG}) {
                if (ato_ftruncate(m.base, static_cast<off_t>(longer)) < 0) {
                    EXPECT_EQ(errno, ENOSPC) << ato_errormsg();
                }
                for (size_t at : {0, 1000}) {
                    fill_quietly(ballast);
                    for (size_t i = PAGES; i-- > 0;)
                        EXPECT_TRUE(m.write(i * 4096 + at, pattern(3000, 3))) << m.sentence;
                    clean(disk);
                }
            }
            make_room();
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
    }));
}

// Words of a commit that is finished after a kill, beside pages that never had space.
TEST_P(LargeFolio, CommitIsFinishedAfterAKillOrEnospcAndNotSigbus)
{
    constexpr size_t LONG = 1024 * 4096, FAR = 600;
    EXPECT_PLAYED(play([&] {
        make_files(pattern(LONG, 1), LONG);
        const ato_options wish = options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM);
        const Bytes late = pattern(4096, 2);
        EXPECT_EQ(in_child([&] {
                      Mapped m(file, wish);
                      PersistFaults faults;
                      faults.before = [&](const PersistCall &c) {
                          return std::string(c.op) == "flush_word" &&
                                         std::string(c.site).find("flip.c") != std::string::npos
                                     ? DIE
                                     : GO_ON;
                      };
                      ato_tx *tx = ato_tx_begin(0);
                      for (size_t i = FAR; i < FAR + 20; i += 2)
                          ato_tx_memcpy(tx, m.base + i * 4096, late.data(), 4096, 0);
                      return ato_tx_commit(tx);
                  }),
                  CUT);
        fill(ballast);
        read_anew(reflection_of(file));
        for (bool full : {true, false}) {
            if (!full)
                make_room();
            Mapped m(file, wish);
            EXPECT_TRUE(m || full) << m.sentence;
            if (!m) {
                EXPECT_EQ(m.error, ENOSPC) << m.sentence;
                continue;
            }
            Bytes expected = pattern(LONG, 1);
            for (size_t i = FAR; i < FAR + 20; i += 2)
                expected = over(expected, i * 4096, late);
            EXPECT_EQ(m.read(), expected);
        }
    }));
}

INSTANTIATE_TEST_SUITE_P(Media, LargeFolio, testing::ValuesIn(MEDIA), name_of);

} // namespace
