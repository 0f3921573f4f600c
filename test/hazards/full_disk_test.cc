// SPDX-License-Identifier: BSD-3-Clause
//
// What if the disk is full? A plain store to a hole is SIGBUS, in the middle of a record. The
// library has its space before it stores: ENOSPC, nothing changed, the next try works.
#include "hazards/cut_commit.h"
#include "hazards/full_disk.h"
#include "support/faults.h"

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

const Bytes content = pattern(SIZE, 1);

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

INSTANTIATE_TEST_SUITE_P(Media, FullDisk, testing::ValuesIn(MEDIA), name_of);

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
