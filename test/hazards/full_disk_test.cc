// SPDX-License-Identifier: BSD-3-Clause
//
// What if the disk is full? A plain store to a hole is SIGBUS, in the middle of a record. The
// library has its space before it stores: ENOSPC, nothing changed, the next try works.
#include "hazards/cut_commit.h"
#include "hazards/lab.h"
#include "support/faults.h"

extern "C" {
#include "reflection/locks.h"
}

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t PAGES = 64, SIZE = PAGES * 4096;

struct Medium {
    const char *name;
    const char *mkfs; // NULL: tmpfs
};

// The last one has no room for attributes in its inodes: they take a block.
const Medium MEDIA[] = {{"tmpfs", nullptr},
                        {"ext4", "-b 4096"},
                        {"ext4_blocks_of_1k", "-b 1024"},
                        {"ext4_small_inodes", "-b 1024 -I 128"}};

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

// As fill(), and what is dirty stays so.
void fill_quietly(const std::string &ballast)
{
    Fd fd(ballast, O_RDWR | O_CREAT);
    for (off_t n = 1 << 20; n >= 4096; n /= 2)
        while (fallocate(fd, 0, stat_of(ballast).st_size, n) == 0)
            ;
}

void eat(void *ballast, uint64_t, uint64_t)
{
    fill_quietly(*static_cast<const std::string *>(ballast));
}

class FullDisk : public testing::TestWithParam<Medium>
{
  protected:
    bool in_memory() const
    {
        return !GetParam().mkfs;
    }

    int play(const std::function<void()> &scene)
    {
        return in_child([&] {
            bool mounted =
                alone() && (in_memory() ? mount_memory(disk, "size=24m")
                                        : mount_disk("/dev/shm/image", disk, 32, GetParam().mkfs));
            if (!mounted)
                return NO_SCENE;
            scene();
            return static_cast<int>(HasFailure());
        });
    }

    // Two files alike: one for the library, one for the naive way.
    void make_files(const Bytes &content, size_t size)
    {
        for (const std::string &p : {file, twin}) {
            write_file(p, content);
            ASSERT_EQ(truncate(p.c_str(), static_cast<off_t>(size)), 0);
        }
    }

    void make_room()
    {
        ASSERT_EQ(unlink(ballast.c_str()), 0);
    }

    void expect_no_space(const Mapped &m, const std::string &what)
    {
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        EXPECT_TRUE(has(m.sentence, what)) << m.sentence;
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk";
    const std::string file = disk + "/file", twin = disk + "/twin", ballast = disk + "/ballast";
    const Bytes content = pattern(SIZE, 1);
};

TEST_P(FullDisk, ReflectionIsSigbusWhenSparseAndEnospcHere)
{
    EXPECT_PLAYED(play([&] {
        make_files(Bytes(), SIZE);
        write_file(file, content);
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        fill(ballast);
        // A second copy of the file as ftruncate() leaves it.
        EXPECT_EQ(naive([&] {
                      plain_map(twin, SIZE)[8192] = 'x';
                      return 0;
                  }),
                  died_of(SIGBUS));

        for (size_t n : {size_t(10), size_t(4096), SIZE}) {
            EXPECT_FALSE(m.write(0, pattern(n, 2)));
            expect_no_space(m, file);
            EXPECT_EQ(m.stat().slices_in_reflection, 0u);
            EXPECT_EQ(m.read(), content);
            EXPECT_EQ(read_file(file), content);
        }
        make_room();
        EXPECT_TRUE(m.write(0, pattern(SIZE, 2))) << m.sentence;
        EXPECT_EQ(m.read(), pattern(SIZE, 2));
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), pattern(SIZE, 2));
    }));
}

// A backup may leave holes where there are zeros, in blocks smaller than a page. After a kill the words
// of the dead are made durable before they are believed.
TEST_P(FullDisk, MetaPageThatIsAHoleInPartIsEnospcWhenItIsMappedAfterAKill)
{
    EXPECT_PLAYED(play([&] {
        make_files(content, SIZE);
        ato_options wish = options(ATO_DOMAIN_MSYNC, ATO_READ_GATHER, ATO_NO_RTM);
        EXPECT_EQ(in_child([&] {
                      Mapped m(file, wish);
                      _exit(m && m.write(4096, pattern(4096, 2)) ? 0 : 1);
                      return 1;
                  }),
                  0);
        Fd reflection(reflection_of(file));
        ASSERT_EQ(fallocate(reflection, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2048, 2048), 0);
        fill(ballast);
        Bytes expected = over(content, 4096, pattern(4096, 2));
        {
            Mapped m(file, wish);
            bool blocks_are_small =
                !in_memory() && std::string(GetParam().mkfs).find("1024") != std::string::npos;
            EXPECT_EQ(!m, blocks_are_small) << m.sentence;
            if (m)
                EXPECT_EQ(m.read(), expected);
            else
                expect_no_space(m, file);
        }
        make_room();
        Mapped m(file, wish);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), expected);
    }));
}

// What a file gets longer by is a hole; where blocks are small, it begins within the last page.
TEST_P(FullDisk, WhatAFileGrewByIsSigbusWhenStoredToAndEnospcHere)
{
    EXPECT_PLAYED(play([&] {
        const size_t before = 5 * 4096 + 100, after = 9 * 4096 + 700;
        make_files(pattern(before, 1), before);
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        for (unsigned turn = 2; turn < 6; turn++) // both homes of the last page were stored to
            ASSERT_TRUE(m.write(before - 60, pattern(60, turn))) << m.sentence;
        ASSERT_EQ(ato_ftruncate(m.base, after), 0) << ato_errormsg();
        ASSERT_EQ(truncate(twin.c_str(), after), 0);
        Bytes expected = over(pattern(before, 1), before - 60, pattern(60, 5));
        expected.resize(after);
        fill(ballast);
        EXPECT_EQ(naive([&] {
                      plain_map(twin, after)[after - 1] = 'x';
                      return 0;
                  }),
                  died_of(SIGBUS));

        for (size_t at = before - 60; at + 64 < after; at += 500)
            for (unsigned turn = 2; turn < 5; turn++) {
                if (m.write(at, pattern(64, turn)))
                    expected = over(expected, at, pattern(64, turn));
                else
                    expect_no_space(m, file);
            }
        EXPECT_FALSE(m.write(after - 700, pattern(700, 6)));
        EXPECT_EQ(ato_ftruncate(m.base, after), 0);
        for (size_t at = 0; at < after; at += 4096) { // in memory a load takes space too
            size_t n = std::min<size_t>(4096, after - at);
            Bytes seen = m.read(at, n);
            if (seen.empty())
                expect_no_space(m, file);
            else
                EXPECT_EQ(seen, Bytes(expected.begin() + static_cast<long>(at),
                                      expected.begin() + static_cast<long>(at + n)));
        }
        make_room();
        EXPECT_TRUE(m.write(after - 700, pattern(700, 6))) << m.sentence;
        expected = over(expected, after - 700, pattern(700, 6));
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), expected);
    }));
}

// Page 1 of the original is a hole; the record begins before it.
TEST_P(FullDisk, RecordThatEndsInAHoleIsTornByPlainStoresAndWholeHere)
{
    EXPECT_PLAYED(play([&] {
        const Bytes begin = pattern(4096, 1), record = pattern(3000, 2);
        const size_t at = 3000;
        make_files(begin, 2 * 4096);
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        if (!in_memory()) {
            // Both pages have their space in R, none yet for page 1 in O: the next turn's home.
            ASSERT_TRUE(m.write(at, record)) << m.sentence;
        }
        fill(ballast);
        EXPECT_EQ(naive([&] {
                      volatile char *to = plain_map(twin, 2 * 4096) + at;
                      for (unsigned char c : record)
                          *to++ = static_cast<char>(c);
                      return 0;
                  }),
                  died_of(SIGBUS));
        Bytes torn = read_at(twin, at, 4096 - at);
        EXPECT_TRUE(std::equal(torn.begin(), torn.end(), record.begin())) << "half of the record";

        Bytes before =
            in_memory() ? begin : over(begin, at, Bytes(record.begin(), record.begin() + 1096));
        EXPECT_FALSE(m.write(at, pattern(3000, 3)));
        expect_no_space(m, file);
        EXPECT_EQ(m.read(0, 4096), before);
        EXPECT_EQ(read_at(file, 0, 4096), begin);
        if (!in_memory()) {
            EXPECT_EQ(ato_deploy(m.base, 2 * 4096), -1);
            EXPECT_EQ(errno, ENOSPC);
            EXPECT_TRUE(has(ato_errormsg(), file)) << ato_errormsg();
            EXPECT_EQ(m.read(at, 3000), record);
        }
        make_room();
        EXPECT_TRUE(m.write(at, pattern(3000, 3))) << m.sentence;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_at(file, 0, 6000), over(over(Bytes(6000), 0, begin), at, pattern(3000, 3)));
    }));
}

TEST_P(FullDisk, JournalIsSigbusWhenSparseAndEnospcHere)
{
    EXPECT_PLAYED(play([&] {
        make_files(content, SIZE);
        const std::string log = disk + "/log";
        write_file(log, Bytes());
        ASSERT_EQ(truncate(log.c_str(), 1 << 20), 0);
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        for (size_t page = 0; page < 4; page++) // both homes of four pages have space; no journal
            ASSERT_TRUE(
                m.write(page * 4096, Bytes(content.begin() + static_cast<long>(page) * 4096,
                                           content.begin() + static_cast<long>(page + 1) * 4096)))
                << m.sentence;
        ASSERT_EQ(journals_of(file).size(), 0u);
        fill(ballast);
        EXPECT_EQ(naive([&] {
                      plain_map(log, 1 << 20)[0] = 'x';
                      return 0;
                  }),
                  died_of(SIGBUS));

        EXPECT_FALSE(m.write(100, pattern(3 * 4096, 2)));
        expect_no_space(m, folder_of(file) + "/journal-");
        EXPECT_EQ(journals_of(file).size(), 0u) << "half-made";
        EXPECT_EQ(m.read(), content);
        EXPECT_TRUE(m.write(50, pattern(10, 3))) << "one page needs none: " << m.sentence;
        EXPECT_EQ(m.read(), over(content, 50, pattern(10, 3)));
        make_room();
        EXPECT_TRUE(m.write(100, pattern(3 * 4096, 2))) << m.sentence;
        EXPECT_EQ(m.read(), over(over(content, 50, pattern(10, 3)), 100, pattern(3 * 4096, 2)));
        EXPECT_EQ(m.stat().commits_journal, 1u);
    }));
}

// Room for a block more each time, until the manifest and the names have what they need.
TEST_P(FullDisk, MappingIsRefusedUntilThereIsRoomAndTheFileIsLeftAlone)
{
    EXPECT_PLAYED(play([&] {
        make_files(Bytes(), SIZE);
        write_file(file, content);
        fill(ballast);
        EXPECT_EQ(naive([&] { // a manifest as ftruncate() leaves it
                      plain_map(twin, 4096)[0] = 'x';
                      return 0;
                  }),
                  died_of(SIGBUS));

        long refused = 0;
        for (off_t left = stat_of(ballast).st_size; left > 0; left -= 1024) {
            ASSERT_EQ(truncate(ballast.c_str(), left), 0);
            Mapped m(file);
            if (m) {
                EXPECT_EQ(m.read(), content);
                EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
                break;
            }
            expect_no_space(m, disk);
            EXPECT_EQ(read_file(file), content);
            ASSERT_FALSE(HasFailure());
            refused++;
        }
        EXPECT_GE(refused, 2);
        EXPECT_EQ(read_file(file), content);
        EXPECT_EQ(attribute_of(file), "");
        EXPECT_TRUE(names_in(folder_of(file)).empty());
    }));
}

int pretend(int, int, off_t, off_t)
{
    return 0;
}

// Of the original it has its space and was never stored to: what fallocate() gave is as good. Every
// second page, so that extents are many.
TEST_P(FullDisk, HomesThatHaveTheirSpaceTakeEveryStore)
{
    EXPECT_PLAYED(play([&] {
        make_files(Bytes(), SIZE);
        ASSERT_EQ(posix_fallocate(Fd(file), 0, SIZE), 0);
        Bytes model(SIZE);
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM));
        ASSERT_TRUE(m) << m.sentence;
        for (size_t page = 0; page < PAGES; page += 2) {
            ASSERT_TRUE(m.write(page * 4096 + 5, pattern(4000, 3))) << m.sentence;
            model = over(model, page * 4096 + 5, pattern(4000, 3));
        }
        fill(ballast);
        // The rule switched off: nobody allocates.
        EXPECT_EQ(naive([&] {
                      struct fsops none = fsops_real;
                      none.fallocate = pretend;
                      m.base = nullptr; // not this child's
                      fsops = &none;
                      Mapped mine(twin);
                      return mine.write(0, pattern(4096, 2)) ? 0 : 1;
                  }),
                  died_of(SIGBUS));

        for (unsigned round = 4; round < 8; round++)
            for (size_t page = 0; page < PAGES; page += 2) {
                EXPECT_TRUE(m.write(page * 4096 + 5, pattern(4000, round))) << m.sentence;
                model = over(model, page * 4096 + 5, pattern(4000, round));
            }
        EXPECT_EQ(m.read(), model);
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), model);
    }));
}

// The kernel may keep many pages of a file as one (a large folio): a store to one page takes space for all of
// them, also for those that were not allocated.
TEST_P(FullDisk, PagesWhoseNeighboursAreHolesAreEnospcAndNotSigbus)
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

// All of it lies in the reflection, and there is no room for a second copy: what came home gives the first one's
// space back. Not in memory, where it cannot.
TEST_P(FullDisk, FilesOfMoreThanHalfADiskAreMadePlain)
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
                fill_quietly(ballast);
                ASSERT_EQ(
                    truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast) - kept * 4096)),
                    0);
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

// The last page is a hole, which no store to those before it may fall into.
TEST_P(FullDisk, HolesBehindTheLastPageWithSpaceAreEnospcAndNotSigbus)
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
TEST_P(FullDisk, PagesBesideACutKeepTheSpaceThatTheyHave)
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
                sync(); // what was ready for stores is so no more
            }
            // It may get as long again, and then be stored to as far as there is space.
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(LONG)), 0) << ato_errormsg();
            EXPECT_EQ(m.read(shorter, LONG - shorter), Bytes(LONG - shorter));
            for (size_t kept : {10, 100, 300}) {
                for (size_t i = PAGES; i-- > 0;)
                    EXPECT_TRUE(m.write(i * 4096, pattern(4096, kept)) || m.error == ENOSPC)
                        << m.sentence;
                sync();
                fill_quietly(ballast);
                ASSERT_EQ(
                    truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast) - kept * 4096)),
                    0);
            }
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(shorter)), 0) << ato_errormsg();
            make_room();
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            EXPECT_EQ(size_of(file), shorter);
        }
    }));
}

// What a file grows by is a hole, which no store to those before it may fall into.
TEST_P(FullDisk, PagesBesideAGrowthKeepTheSpaceThatTheyHave)
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
                    sync(); // what was ready for stores is so no more
                }
            }
            make_room();
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
    }));
}

// Space that was given back beside pages that had theirs: they have it no more.
TEST_P(FullDisk, UnmapThatFailsLeavesNoPageThatOnlySeemsToHaveSpace)
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
                sync(); // what was ready for stores is so no more
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
TEST_P(FullDisk, OthersAreLetInWhileSpaceIsGivenBack)
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
        fill_quietly(ballast);
        ASSERT_EQ(truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast) - (4 << 20))), 0);
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

// Words of a commit that is finished after a kill, beside pages that never had space.
TEST_P(FullDisk, CommitIsFinishedAfterAKillOrEnospcAndNotSigbus)
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

INSTANTIATE_TEST_SUITE_P(Media, FullDisk, testing::ValuesIn(MEDIA),
                         [](const testing::TestParamInfo<Medium> &info) {
                             return std::string(info.param.name);
                         });

// ---- peculiar ones ------------------------------------------------------------------------------

class FullDiskOf : public testing::Test
{
  protected:
    int play(const std::function<bool()> &mounted, const std::function<void()> &scene)
    {
        return in_child([&] {
            if (!alone() || !mounted())
                return NO_SCENE;
            scene();
            return static_cast<int>(HasFailure());
        });
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk";
    const std::string file = disk + "/file", twin = disk + "/twin", ballast = disk + "/ballast";
};

// There even a load takes space.
TEST_F(FullDiskOf, MemoryMakesALoadFromAHoleSigbusAndAReadEnospc)
{
    EXPECT_PLAYED(play([&] { return mount_memory(disk, "size=4m"); },
                       [&] {
                           for (const std::string &p : {file, twin}) {
                               write_file(p, Bytes());
                               ASSERT_EQ(truncate(p.c_str(), SIZE), 0);
                           }
                           Mapped m(file);
                           ASSERT_TRUE(m) << m.sentence;
                           fill(ballast);
                           EXPECT_EQ(naive([&] {
                                         return *const_cast<volatile char *>(plain_map(twin, SIZE) +
                                                                             8192);
                                     }),
                                     died_of(SIGBUS));

                           EXPECT_TRUE(m.read(8192, 10).empty());
                           EXPECT_EQ(m.error, ENOSPC);
                           EXPECT_TRUE(has(m.sentence, file)) << m.sentence;
                           ASSERT_EQ(unlink(ballast.c_str()), 0);
                           EXPECT_EQ(m.read(), Bytes(SIZE));
                       }));
}

// A reflection that was copied: what is zeros may have been left out.
TEST_F(FullDiskOf, MemoryMakesALoadFromAHoleOfTheReflectionEnospcToo)
{
    EXPECT_PLAYED(
        play([&] { return mount_memory(disk, "size=24m"); },
             [&] {
                 const ato_options gather = options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_NO_RTM);
                 write_file(file, pattern(SIZE, 1));
                 {
                     Mapped m(file, gather);
                     ASSERT_TRUE(m.write(0, Bytes(SIZE))) << m.sentence;
                 }
                 Fd r(reflection_of(file));
                 ASSERT_EQ(fallocate(r, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, SIZE), 0);
                 Mapped m(file, gather);
                 ASSERT_TRUE(m) << m.sentence;
                 fill(ballast);
                 EXPECT_EQ(naive([&] {
                               return *const_cast<volatile char *>(
                                   plain_map(reflection_of(file), 2 * SIZE) + 8192);
                           }),
                           died_of(SIGBUS));
                 EXPECT_TRUE(m.read(8192, 10).empty());
                 EXPECT_EQ(m.error, ENOSPC);
                 EXPECT_TRUE(has(m.sentence, file)) << m.sentence;
                 EXPECT_FALSE(m.write(8192, Bytes(10, 'x')));
                 EXPECT_EQ(m.error, ENOSPC);
                 ASSERT_EQ(unlink(ballast.c_str()), 0);
                 EXPECT_EQ(m.read(), Bytes(SIZE));
                 EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
                 EXPECT_EQ(read_file(file), Bytes(SIZE));
             }));
}

// A dead process's journal and reflection, copied so that what is zeros was left out.
TEST_F(FullDiskOf, MemoryMakesAReplayIntoAHoleEnospcAndTheNextTryFinishesIt)
{
    EXPECT_PLAYED(play([&] { return mount_memory(disk, "size=32m"); },
                       [&] {
                           write_file(file, pattern(SIZE, 1));
                           const Bytes after =
                               over(pattern(SIZE, 1), cut_commit::AT, cut_commit::record());
                           ASSERT_EQ(cut_commit::die_between_flips(file), CUT);
                           const std::string journal = journals_of(file).at(0),
                                             reflection = reflection_of(file);
                           // As if cut before the first flip.
                           write_at(reflection, 0, Bytes(4096).data(), 4096);
                           auto dig = [](const std::string &path, size_t n) {
                               Fd fd(path);
                               for (size_t at = 0; at < n; at += 4096)
                                   if (read_at(path, at, 4096) == Bytes(4096))
                                       fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                 static_cast<off_t>(at), 4096);
                           };
                           dig(reflection, 4096);
                           fill(ballast);
                           EXPECT_EQ(naive([&] {
                                         plain_map(reflection, 4096)[8] = 1;
                                         return 0;
                                     }),
                                     died_of(SIGBUS));
                           auto expect_enospc = [&] {
                               Mapped m(file, options(ATO_DOMAIN_PMEM));
                               EXPECT_FALSE(m);
                               EXPECT_EQ(m.error, ENOSPC) << m.sentence;
                           };
                           expect_enospc();
                           dig(journal, size_of(journal));
                           unlink(ballast.c_str());
                           fill(ballast);
                           EXPECT_EQ(naive([&] {
                                         volatile char *at = plain_map(journal, 12 << 20);
                                         int sum = 0;
                                         for (size_t i = 0; i < 12 << 20; i += 4096)
                                             sum += at[i];
                                         return sum & 0;
                                     }),
                                     died_of(SIGBUS));
                           expect_enospc();
                           ASSERT_EQ(unlink(ballast.c_str()), 0);
                           Mapped m(file, options(ATO_DOMAIN_PMEM));
                           ASSERT_TRUE(m) << m.sentence;
                           EXPECT_EQ(m.read(), after);
                       }));
}

// A hole smaller than a page.
TEST_F(FullDiskOf, SmallBlocksMakeAStoreToHalfAPageSigbusAndAWriteEnospc)
{
    EXPECT_PLAYED(play([&] { return mount_disk("/dev/shm/image", disk, 32, "-b 1024"); },
                       [&] {
                           Bytes content = pattern(3 * 4096 + 700, 1);
                           for (const std::string &p : {file, twin}) {
                               write_file(p, content);
                               Fd fd(p);
                               ASSERT_EQ(fsync(fd), 0);
                               ASSERT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                   4096 + 2048, 1024),
                                         0);
                           }
                           std::fill_n(content.begin() + 4096 + 2048, 1024, 0);
                           Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
                           ASSERT_TRUE(m) << m.sentence;
                           for (size_t page = 1; page < 4; page++) // R has its space
                               ASSERT_TRUE(m.write(page * 4096, Bytes(700, 7))) << m.sentence;
                           for (size_t page = 1; page < 4; page++)
                               content = over(content, page * 4096, Bytes(700, 7));
                           fill(ballast);
                           EXPECT_EQ(naive([&] {
                                         plain_map(twin, 8192)[4096 + 2048] = 'x';
                                         return 0;
                                     }),
                                     died_of(SIGBUS));

                           EXPECT_FALSE(m.write(4096, Bytes(4096, 8))); // partly back to O
                           EXPECT_EQ(m.error, ENOSPC);
                           EXPECT_TRUE(has(m.sentence, file)) << m.sentence;
                           EXPECT_EQ(m.read(), content);
                           // The last page, of which one block is there, and none beyond is needed.
                           EXPECT_TRUE(m.write(3 * 4096, Bytes(700, 9)) || m.error == ENOSPC)
                               << m.sentence;
                           ASSERT_EQ(unlink(ballast.c_str()), 0);
                           EXPECT_TRUE(m.write(3 * 4096, Bytes(700, 9))) << m.sentence;
                           EXPECT_TRUE(m.write(4096, Bytes(4096, 8))) << m.sentence;
                           EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
                           EXPECT_EQ(read_file(file), over(over(content, 4096, Bytes(4096, 8)),
                                                           3 * 4096, Bytes(700, 9)));
                       }));
}

// No block is missing, but a user's share of them.
TEST_F(FullDiskOf, QuotaIsSaidAsItIs)
{
    TempDir memory;
    const Bytes content = pattern(SIZE, 1);
    write_file(memory / "file", content);
    Mapped m(memory / "file", options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    FsFaults faults;
    faults.fail_op("fallocate", EDQUOT);
    EXPECT_FALSE(m.write(0, pattern(4096, 2)));
    EXPECT_EQ(m.error, EDQUOT) << m.sentence;
    EXPECT_TRUE(has(m.sentence, "/dev/shm")) << m.sentence;
    faults.before = nullptr;
    EXPECT_EQ(m.read(), content);
    EXPECT_TRUE(m.write(0, pattern(4096, 2))) << m.sentence;
}

// Names run out before blocks do.
TEST_F(FullDiskOf, InodesAreRefusedStepByStep)
{
    EXPECT_PLAYED(
        play([&] { return mount_memory(disk, "size=8m,nr_inodes=10"); },
             [&] {
                 const Bytes content = pattern(SIZE, 1);
                 write_file(file, content);
                 std::vector<std::string> names;
                 for (;;) {
                     int fd = open((ballast + std::to_string(names.size())).c_str(),
                                   O_CREAT | O_WRONLY, 0600);
                     if (fd < 0)
                         break;
                     close(fd);
                     names.push_back(ballast + std::to_string(names.size()));
                 }
                 ASSERT_EQ(errno, ENOSPC);
                 long refused = 0;
                 for (;; refused++) {
                     Mapped m(file);
                     if (m) {
                         EXPECT_EQ(m.read(), content);
                         break;
                     }
                     EXPECT_EQ(m.error, ENOSPC) << m.sentence;
                     EXPECT_TRUE(has(m.sentence, disk)) << m.sentence;
                     EXPECT_EQ(read_file(file), content);
                     ASSERT_FALSE(names.empty());
                     ASSERT_EQ(unlink(names.back().c_str()), 0);
                     names.pop_back();
                 }
                 EXPECT_GE(refused, 3)
                     << "folder, manifest, reflection; the attribute counts in newer kernels";
             }));
}

} // namespace
