// SPDX-License-Identifier: BSD-3-Clause
//
// What if a file system is full, or has no room for a file twice? A plain store to a hole is SIGBUS, in the middle of
// a record; in memory a load is, too; and where the kernel keeps many pages as one (a large folio), a store beside a
// hole is. The library has its space before it stores or loads: ENOSPC, nothing changed, the next try works. What has
// come home gives the space of its other copy to the next. Each operation, on each medium, with room for so many
// blocks, is in fault/disk_test.cc; here are the states of files and disks that those do not come to.
#include "hazards/cut_commit.h"
#include "hazards/lab.h"
#include "support/faults.h"

extern "C" {
#include "reflection/locks.h"
}

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t PAGE = 4096, PAGES = 64, SIZE = PAGES * PAGE;

ato_options gather(int domain = ATO_DOMAIN_AUTO, size_t max_size = 0)
{
    ato_options o = options(domain, ATO_READ_GATHER, ATO_NO_RTM);
    o.max_size = max_size;
    return o;
}

int pretend(int, int, off_t, off_t)
{
    return 0;
}

// The rule switched off: a library that asks for no space.
int naive_library(const std::function<void()> &what)
{
    return naive([&] {
        struct fsops none = fsops_real;
        none.fallocate = pretend;
        fsops = &none;
        what();
        return 0;
    });
}

int store_plainly(const std::string &path, size_t at, const Bytes &bytes)
{
    return naive([&] {
        volatile char *to = plain_map(path, at + bytes.size()) + at;
        for (unsigned char c : bytes)
            *to++ = static_cast<char>(c);
        return 0;
    });
}

// Of each page some byte.
int load_plainly(const std::string &path, size_t at, size_t n)
{
    return naive([&] {
        const volatile char *from = plain_map(path, at + n);
        int sum = 0;
        for (size_t i = at; i < at + n; i += PAGE)
            sum += from[i];
        return sum & 0;
    });
}

void dig(const std::string &path, size_t at, size_t n)
{
    ASSERT_EQ(fallocate(Fd(path), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(at), static_cast<off_t>(n)),
              0);
}

void make_sparse(const std::string &path, size_t n)
{
    write_file(path, Bytes());
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(n)), 0);
}

// Out of the page cache and into it again, as a backup reads: in as large pieces as the kernel likes.
void read_anew(const std::string &path)
{
    Fd fd(path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    for (char page[PAGE]; read(fd, page, PAGE) > 0;)
        ;
}

// What was ready for stores is so no more. Not sync(): other tests' disks may be about to fail.
void clean(const std::string &disk)
{
    EXPECT_EQ(syncfs(Fd(disk, O_RDONLY)), 0);
}

// A file system of its own, which this program alone sees, and a /dev/shm that goes away with it.
class Space : public testing::TestWithParam<Medium>
{
  protected:
    void SetUp() override
    {
        std::error_code none;
        mounted = alone() && mount_medium(GetParam(), disk, GetParam().mkfs ? 32 : 24);
        std::filesystem::remove("/dev/shm/image", none); // the loop device keeps it
        if (!mounted)
            GTEST_SKIP() << "no root, mount or loop device";
    }
    void TearDown() override
    {
        for (const char *place : {disk.c_str(), "/dev/shm"})
            if (mounted)
                umount2(place, MNT_DETACH);
    }

    void make_room()
    {
        ASSERT_EQ(unlink(ballast.c_str()), 0);
    }
    static void expect_no_space(const Mapped &m, const std::string &named)
    {
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        EXPECT_TRUE(has(m.sentence, named)) << m.sentence;
    }
    void expect_refused(Mapped &m, size_t at, const Bytes &bytes)
    {
        EXPECT_FALSE(m.write(at, bytes));
        expect_no_space(m, file);
    }
    void expect_plain(Mapped &m, const Bytes &expected)
    {
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), expected);
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk", file = disk + "/file", twin = disk + "/twin",
                      ballast = disk + "/ballast";
    const Bytes content = pattern(SIZE, 1);
    bool mounted = false;
};

#define ON(suite, ...)                                                                             \
    INSTANTIATE_TEST_SUITE_P(                                                                      \
        On, suite, testing::Values(__VA_ARGS__),                                                   \
        [](const testing::TestParamInfo<Medium> &info) { return info.param.name; })

// ---- each medium --------------------------------------------------------------------------------

ON(Space, TMPFS, EXT4, EXT4_1K);

// What fallocate() gave a file is as good as what was stored to. Every second page, so that extents are many.
TEST_P(Space, PlainStoresToHolesTearARecordAndHomesThatHaveTheirSpaceTakeEveryStore)
{
    const Bytes record = pattern(3000, 2);
    make_sparse(file, SIZE);
    make_sparse(twin, SIZE);
    write_at(twin, 0, content.data(), PAGE);
    ASSERT_EQ(posix_fallocate(Fd(file), 0, SIZE), 0);
    Bytes model(SIZE);
    Mapped m(file, gather());
    ASSERT_TRUE(m) << m.sentence;
    auto write = [&](unsigned round) {
        for (size_t page = 0; page < PAGES; page += 2) {
            EXPECT_TRUE(m.write(page * PAGE + 5, pattern(4000, round))) << m.sentence;
            model = over(model, page * PAGE + 5, pattern(4000, round));
        }
    };
    write(3);
    fill(ballast);
    EXPECT_EQ(store_plainly(twin, 3000, record), died_of(SIGBUS));
    EXPECT_EQ(read_at(twin, 3000, PAGE - 3000),
              Bytes(record.begin(), record.begin() + PAGE - 3000));
    EXPECT_EQ(naive_library([&] {
                  m.base = nullptr; // not this child's
                  Mapped(twin).write(PAGE, record);
              }),
              died_of(SIGBUS));
    for (unsigned round = 4; round < 8; round++)
        write(round);
    EXPECT_EQ(m.read(), model);
    expect_plain(m, model);
}

// A backup may leave holes where there are zeros, in blocks smaller than a page. After a kill the words of the dead
// are made durable before they are believed.
TEST_P(Space, MetaPageThatIsAHoleInPartIsEnospcWhenItIsMappedAfterAKill)
{
    const Bytes expected = over(content, PAGE, pattern(PAGE, 2));
    write_file(file, content);
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, gather(ATO_DOMAIN_MSYNC));
                  _exit(m && m.write(PAGE, pattern(PAGE, 2)) ? 0 : 1);
                  return 1;
              }),
              0);
    dig(reflection_of(file), 2048, 2048);
    fill(ballast);
    for (bool full : {true, false}) {
        Mapped m(file, gather(ATO_DOMAIN_MSYNC));
        EXPECT_EQ(!m, full && GetParam().name == std::string(EXT4_1K.name)) << m.sentence;
        if (m)
            EXPECT_EQ(m.read(), expected);
        else
            expect_no_space(m, file);
        if (full)
            make_room();
    }
}

// ---- one medium ---------------------------------------------------------------------------------

struct SpaceInMemory : Space {
};
ON(SpaceInMemory, TMPFS);

// A reflection may have holes when it was copied: zeros are left out.
TEST_P(SpaceInMemory, ALoadFromAHoleIsSigbusAndAReadIsEnospc)
{
    for (bool original : {true, false}) {
        write_file(file, content);
        if (original)
            make_sparse(file, SIZE);
        else
            Mapped(file, gather()).write(0, Bytes(SIZE));
        const std::string &holed = original ? file : reflection_of(file);
        dig(holed, PAGE, SIZE - PAGE);
        Mapped m(file, gather());
        ASSERT_TRUE(m) << m.sentence;
        fill(ballast);
        EXPECT_EQ(load_plainly(holed, 2 * PAGE, 1), died_of(SIGBUS));
        EXPECT_TRUE(m.read(2 * PAGE, 10).empty());
        expect_no_space(m, file);
        expect_refused(m, 2 * PAGE, Bytes(10, 'x'));
        make_room();
        EXPECT_EQ(m.read(), Bytes(SIZE));
        expect_plain(m, Bytes(SIZE));
    }
}

// A dead process's reflection, then its journal too, copied so that what is zeros was left out.
TEST_P(SpaceInMemory, AReplayIntoAHoleIsEnospcAndTheNextTryFinishesIt)
{
    auto dig_zeros = [](const std::string &path, size_t n) {
        for (size_t at = 0; at < n; at += PAGE)
            if (read_at(path, at, PAGE) == Bytes(PAGE))
                dig(path, at, PAGE);
    };
    write_file(file, content);
    ASSERT_EQ(cut_commit::die_between_flips(file), CUT);
    const std::string journal = journals_of(file).at(0), reflection = reflection_of(file);
    write_at(reflection, 0, Bytes(PAGE).data(), PAGE); // as if cut before the first flip
    for (const std::string &path : {reflection, journal}) {
        dig_zeros(path, path == journal ? size_of(path) : PAGE);
        fill(ballast);
        EXPECT_EQ(load_plainly(path, 0, path == journal ? size_of(path) : 1), died_of(SIGBUS));
        Mapped m(file, options(ATO_DOMAIN_PMEM));
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        make_room();
    }
    Mapped m(file, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), over(content, cut_commit::AT, cut_commit::record()));
}

struct SpaceOnDisk : Space {
};
ON(SpaceOnDisk, EXT4_1K);

TEST_P(SpaceOnDisk, HoleSmallerThanAPageIsEnospc)
{
    const size_t hole = PAGE + 2048;
    Bytes model = pattern(3 * PAGE + 700, 1);
    for (const std::string &p : {file, twin}) {
        write_file(p, model);
        fsync(Fd(p));
        dig(p, hole, 1024);
    }
    std::fill_n(model.begin() + hole, 1024, 0);
    Mapped m(file, gather());
    ASSERT_TRUE(m) << m.sentence;
    for (size_t page = 1; page < 4; page++) { // R has its space
        ASSERT_TRUE(m.write(page * PAGE, Bytes(700, 7))) << m.sentence;
        model = over(model, page * PAGE, Bytes(700, 7));
    }
    fill(ballast);
    EXPECT_EQ(store_plainly(twin, hole, {'x'}), died_of(SIGBUS));
    expect_refused(m, PAGE, Bytes(PAGE, 8)); // partly back to O
    EXPECT_EQ(m.read(), model);
    // The last page, of which one block is there, and none beyond is needed.
    EXPECT_TRUE(m.write(3 * PAGE, Bytes(700, 9)) || m.error == ENOSPC) << m.sentence;
    make_room();
    EXPECT_TRUE(m.write(3 * PAGE, Bytes(700, 9))) << m.sentence;
    EXPECT_TRUE(m.write(PAGE, Bytes(PAGE, 8))) << m.sentence;
    expect_plain(m, over(over(model, PAGE, Bytes(PAGE, 8)), 3 * PAGE, Bytes(700, 9)));
}

// In these inodes is no room for attributes: they take a block. In memory names run out before space does.
struct SpaceForNames : Space {
};
ON(SpaceForNames, TMPFS, (Medium{"ext4_small_inodes", "-b 1024 -I 128"}));

TEST_P(SpaceForNames, MappingIsRefusedUntilThereIsRoomAndTheFileIsLeftAlone)
{
    long names = 0, refused = 0;
    const auto name = [&](long i) { return disk + "/" + std::to_string(i); };
    write_file(file, content);
    if (GetParam().mkfs) {
        fill(ballast);
    } else {
        ASSERT_EQ(mount("", disk.c_str(), "", MS_REMOUNT, "nr_inodes=10"), 0);
        while (Fd(open(name(names).c_str(), O_CREAT, 0600)) >= 0)
            names++;
    }
    for (;; refused++) {
        Mapped m(file);
        if (m) {
            EXPECT_EQ(m.read(), content);
            expect_plain(m, content);
            break;
        }
        expect_no_space(m, disk);
        ASSERT_EQ(read_file(file), content);
        ASSERT_EQ(names ? unlink(name(--names).c_str())
                        : truncate(ballast.c_str(), stat_of(ballast).st_size - 1024),
                  0);
    }
    EXPECT_GE(refused, 3) << "folder, manifest, reflection, attribute";
    EXPECT_EQ(attribute_of(file), "");
    EXPECT_TRUE(names_in(folder_of(file)).empty());
}

// ---- growth in memory ---------------------------------------------------------------------------

// What a growth takes away, or what is cut off when it came to nothing, is asked for again.
struct SpaceGrowth : Space {
    // A file of two pages, which may grow.
    void SetUp() override
    {
        Space::SetUp();
        if (mounted)
            write_file(file, held);
    }
    ato_options growing = gather(ATO_DOMAIN_AUTO, 1 << 20);
    Bytes held = pattern(2 * PAGE, 1);
};
ON(SpaceGrowth, TMPFS);

int resize(Mapped &m, ato_tx *t, size_t pages)
{
    const off_t n = static_cast<off_t>(pages * PAGE);
    return t ? ato_tx_ftruncate(t, m.base, n) : ato_ftruncate(m.base, n);
}

bool put(Mapped &m, ato_tx *t, size_t page, const Bytes &bytes)
{
    return ato_tx_memcpy(t, m.base + page * PAGE, bytes.data(), bytes.size(), 0);
}

Bytes get(Mapped &m, ato_tx *t, size_t page)
{
    Bytes seen(PAGE);
    return ato_tx_memcpy(t, seen.data(), m.base + page * PAGE, PAGE, 0) ? seen : Bytes();
}

TEST_P(SpaceGrowth, ASecondStepTakesNothingFromTheFirst)
{
    Mapped m(file, growing);
    ato_tx *t = ato_tx_begin(0);
    ASSERT_TRUE(resize(m, t, 10) == 0 && put(m, t, 5, Bytes(10, 'x')) && !get(m, t, 7).empty());
    ASSERT_EQ(resize(m, t, 20), 0) << ato_errormsg();
    fill(ballast);
    EXPECT_EQ(get(m, t, 5), over(Bytes(PAGE), 0, Bytes(10, 'x')));
    EXPECT_EQ(get(m, t, 7), Bytes(PAGE));
    make_room(); // a commit may make a journal
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    held.resize(20 * PAGE);
    fill(ballast);
    for (unsigned char round = 0; round < 4; round++) { // both homes of the page have their space
        EXPECT_TRUE(m.write(5 * PAGE, Bytes(10, round))) << m.sentence;
        EXPECT_EQ(m.read(5 * PAGE, 10), Bytes(10, round)) << m.sentence;
    }
    make_room();
    expect_plain(m, over(held, 5 * PAGE, Bytes(10, 3)));
}

// It is aborted, ends with the file shorter again, or cannot have its space: for this page's state, for it, for the
// next one, ...
TEST_P(SpaceGrowth, WhatATransactionTookInVainIsAskedForAgain)
{
    enum { ABORTED = -2, SHORTER, FAILED };
    for (int how = ABORTED; how < FAILED + 6; how++) {
        SCOPED_TRACE(how);
        write_file(file, held);
        Mapped m(file, growing);
        FsFaults faults;
        int left = how;
        ato_tx *t = ato_tx_begin(0);
        ASSERT_EQ(resize(m, t, 10), 0) << ato_errormsg();
        if (how >= FAILED)
            faults.before = [&](const FsCall &call) {
                return std::string(call.op) == "fallocate" && !left-- ? ENOSPC : GO_ON;
            };
        EXPECT_EQ(put(m, t, 5, Bytes(how < FAILED ? 10 : 3 * PAGE, 'x')), how < FAILED);
        EXPECT_TRUE(how < FAILED || errno == ENOSPC) << ato_errormsg();
        faults.before = nullptr;
        ASSERT_EQ(how == SHORTER ? resize(m, t, 3) || ato_tx_commit(t) : ato_tx_abort(t), 0);
        EXPECT_EQ(m.read(0, held.size()), held);
        ASSERT_EQ(resize(m, nullptr, 10), 0) << ato_errormsg();
        fill(ballast);
        EXPECT_TRUE(m.read(5 * PAGE, 10).empty());
        expect_no_space(m, file);
        expect_refused(m, 5 * PAGE, Bytes(10, 'x'));
        make_room();
        Bytes expected = held;
        expected.resize(10 * PAGE);
        EXPECT_EQ(m.read(0, 10 * PAGE), expected);
        EXPECT_TRUE(m.write(5 * PAGE, Bytes(10, 'x'))) << m.sentence;
        expect_plain(m, over(expected, 5 * PAGE, Bytes(10, 'x')));
    }
}

// What was within the file since it was mapped keeps its space, and readers may be there.
TEST_P(SpaceGrowth, WhatWasWithinTheFileStaysReadable)
{
    Mapped m(file, growing);
    ASSERT_EQ(resize(m, nullptr, 10), 0) << ato_errormsg();
    ASSERT_TRUE(m.write(5 * PAGE, Bytes(10, 'x'))) << m.sentence;
    ASSERT_EQ(resize(m, nullptr, 2), 0) << ato_errormsg();
    for (int round = 0; round < 2; round++) {
        ato_tx *t = ato_tx_begin(0);
        ASSERT_TRUE(resize(m, t, 15) == 0 && put(m, t, 5, {'y'}) && put(m, t, 12, {'y'}));
        ASSERT_EQ(ato_tx_abort(t), 0);
    }
    ASSERT_EQ(resize(m, nullptr, 15), 0) << ato_errormsg();
    held.resize(15 * PAGE);
    fill(ballast);
    EXPECT_EQ(m.read(5 * PAGE, PAGE), Bytes(PAGE)) << m.sentence;
    EXPECT_TRUE(m.read(12 * PAGE, 10).empty());
    expect_no_space(m, file);
    make_room();
    expect_plain(m, held);
}

// ---- /dev/shm -----------------------------------------------------------------------------------

// As the 64 MiB of a container soon are. Mapping takes little; each page far from the others takes a batch of the
// directory of page states.
TEST_P(SpaceInMemory, FullShmIsEnospcForAMappingAndForAFirstTouchFarAway)
{
    constexpr size_t FAR = 64 << 20, BATCHES = 16;
    const std::string shm = "/dev/shm/ato-", there = "/dev/shm/ballast";
    ASSERT_TRUE(mount_memory("/dev/shm", "size=132k"));
    make_sparse(file, BATCHES * FAR);
    fill(there);
    {
        Mapped m(file);
        EXPECT_FALSE(m);
        expect_no_space(m, shm);
    }
    EXPECT_EQ(names_in("/dev/shm"), std::vector<std::string>{"ballast"});
    ASSERT_EQ(unlink(there.c_str()), 0);
    EXPECT_EQ(naive_library([&] {
                  Mapped m(file, options(ATO_DOMAIN_PROCESS));
                  for (size_t i = 0; m && i < BATCHES; i++)
                      m.write(i * FAR, Bytes(1, 'x'));
              }),
              died_of(SIGBUS));

    // What that one left in /dev/shm goes now.
    Mapped m(file, options(ATO_DOMAIN_PROCESS));
    ASSERT_TRUE(m) << m.sentence;
    size_t good = 0; // batches, from the first on
    while (m.write(good * FAR, Bytes(1, static_cast<unsigned char>('a' + good))))
        good++;
    expect_no_space(m, shm);
    ASSERT_TRUE(good > 0 && good < BATCHES);
    for (size_t i = good; i < BATCHES; i++) {
        EXPECT_FALSE(m.write(i * FAR, Bytes(1, 'x')));
        expect_no_space(m, shm);
        EXPECT_TRUE(m.read(i * FAR, 1).empty());
        expect_no_space(m, shm);
        EXPECT_EQ(ato_deploy(m.base + i * FAR, 1), -1);
        EXPECT_EQ(errno, ENOSPC);
    }
    for (size_t i = 0; i < good; i++) // go on as before
        EXPECT_TRUE(m.write(i * FAR + 1, Bytes(1, '!'))) << m.sentence;
    EXPECT_FALSE(m.write(good * FAR - 1, Bytes(2, 'y'))) << "not one byte of it";
    expect_no_space(m, shm);

    ASSERT_EQ(mount("", "/dev/shm", "", MS_REMOUNT, "size=8m"), 0);
    for (size_t i = 0; i < BATCHES; i++) {
        const unsigned char letter = static_cast<unsigned char>('a' + i);
        EXPECT_EQ(m.read(i * FAR, 2), i < good ? Bytes({letter, '!'}) : Bytes(2)) << i;
        EXPECT_TRUE(m.write(i * FAR, Bytes(1, letter))) << m.sentence;
        EXPECT_EQ(m.read(i * FAR, 1), Bytes(1, letter));
    }
    EXPECT_EQ(m.read(good * FAR - 1, 1), Bytes(1));
}

// ---- large folios, and scarce space -------------------------------------------------------------

// Files of some chunks (512 pages), page after page.
class SpaceOfMany : public Space
{
  protected:
    // The first pages, as write_all() leaves them; and one of them.
    static Bytes whole(size_t pages)
    {
        return pattern(pages * PAGE, 1);
    }
    static Bytes bytes_of(size_t page, size_t n = PAGE)
    {
        static const Bytes all = whole(3584);
        return {&all[page * PAGE], &all[page * PAGE] + n};
    }
    // The first that has no space.
    static size_t write_all(Mapped &m, size_t from, size_t to)
    {
        while (from < to && m.write(from * PAGE, bytes_of(from)))
            from++;
        return from;
    }
    // A part of each page, the last first. Is ENOSPC all right?
    static void write_parts(Mapped &m, size_t pages, size_t at, size_t n, bool may_fail)
    {
        for (size_t i = pages; i-- > 0;)
            EXPECT_TRUE(m.write(i * PAGE + at, pattern(n, 3)) || (may_fail && m.error == ENOSPC))
                << i << ": " << m.sentence;
    }
    // Stores that nothing is to be seen of, and that nobody made durable.
    static void store_in_vain(Mapped &m, size_t pages, size_t at, size_t n)
    {
        ato_tx *tx = ato_tx_begin(0);
        for (size_t i = 0; i < pages; i++)
            ASSERT_TRUE(ato_tx_memcpy(tx, m.base + i * PAGE + at, pattern(n, 9).data(), n, 0))
                << ato_errormsg();
        ato_tx_abort(tx);
    }
    static int unmap(Mapped &m, unsigned threads,
                     void (*progress)(void *, uint64_t, uint64_t) = nullptr, void *arg = nullptr)
    {
        const struct ato_unmap_options o = {sizeof(o), ATO_UNMAP_SPATIAL, threads, progress, arg};
        const int error = ato_munmap_opt(m.base, m.length, &o) == 0 ? 0 : errno;
        if (!error)
            m.base = nullptr;
        return error;
    }
};

ON(SpaceOfMany, EXT4, EXT4_1K);

TEST_P(SpaceOfMany, PagesWhoseNeighboursAreHolesAreEnospcAndNotSigbus)
{
    constexpr size_t MANY = 768;
    for (size_t kept : {0, 20, 200}) {
        SCOPED_TRACE(std::to_string(kept) + " pages are left");
        make_sparse(file, MANY * PAGE);
        Mapped m(file, gather());
        ASSERT_EQ(write_all(m, 0, MANY / 2), MANY / 2) << m.sentence;
        fill(ballast);
        fill_but(ballast, static_cast<off_t>(kept * PAGE));
        const size_t written = write_all(m, MANY / 2, MANY);
        if (written < MANY)
            expect_no_space(m, file);
        EXPECT_TRUE(ato_deploy(m.base, MANY * PAGE) == 0 || errno == ENOSPC) << ato_errormsg();
        EXPECT_EQ(m.read(0, written * PAGE), whole(written));
        make_room();
        EXPECT_EQ(write_all(m, written, MANY), MANY) << m.sentence;
        expect_plain(m, whole(MANY));
    }
}

// The last page is a hole, which no store to those before it may fall into.
TEST_P(SpaceOfMany, HoleBehindTheLastPageWithSpaceIsEnospcAndNotSigbus)
{
    constexpr size_t FULL = 303, LONG = FULL * PAGE + 1000;
    write_file(file, whole(FULL));
    ASSERT_EQ(truncate(file.c_str(), LONG), 0);
    read_anew(file);
    Mapped m(file, gather());
    const Bytes late = pattern(20 * PAGE, 2);
    ASSERT_TRUE(m.write((FULL - 20) * PAGE, late)) << m.sentence;
    fill(ballast);
    EXPECT_TRUE(ato_deploy(m.base, LONG) == 0 || errno == ENOSPC) << ato_errormsg();
    make_room();
    Bytes expected = over(whole(FULL), (FULL - 20) * PAGE, late);
    expected.resize(LONG);
    EXPECT_EQ(m.read(), expected);
    expect_plain(m, expected);
}

// What is cut off gives its space back, and what a file grows by is a hole (where blocks are small, it begins within
// the last page): but not at the expense of the pages beside it that are known to have theirs, by any process.
TEST_P(SpaceOfMany, PagesBesideAnEndKeepTheSpaceThatTheyHave)
{
    constexpr size_t LONG = 800 * PAGE;
    struct Ends {
        int domain;
        std::vector<size_t> bytes;
    };
    for (const Ends &ends :
         {Ends{ATO_DOMAIN_PROCESS, {LONG, 3 * PAGE + 100, LONG, 3 * PAGE + 100}},
          Ends{ATO_DOMAIN_MSYNC, {LONG, 200 * PAGE + 100, LONG, 200 * PAGE + 100}},
          Ends{ATO_DOMAIN_PROCESS, {LONG, 700 * PAGE + 100, LONG, 700 * PAGE + 100}},
          Ends{ATO_DOMAIN_MSYNC, {303 * PAGE + 100, 308 * PAGE, LONG}},
          Ends{ATO_DOMAIN_PROCESS, {303 * PAGE + 100, 308 * PAGE, LONG}}}) {
        SCOPED_TRACE(ends.bytes[1] / PAGE);
        size_t end = ends.bytes[0], kept = end / PAGE;
        make_sparse(file, end);
        Mapped m(file, gather(ends.domain, LONG));
        for (size_t i = 0; i < kept; i += 512) // each chunk
            ASSERT_TRUE(m.write(i * PAGE, {1})) << m.sentence;
        read_anew(reflection_of(file));
        read_anew(file);
        for (size_t both_homes = 0; both_homes < 2; both_homes++)
            ASSERT_TRUE(write_all(m, 0, kept) == kept &&
                        m.write(end - 60, bytes_of(both_homes, 60)))
                << m.sentence;
        store_in_vain(m, kept, 0, 3000);
        for (size_t i = 1; i < ends.bytes.size(); i++) {
            const bool longer = ends.bytes[i] > end;
            if (longer)
                fill_but(ballast, 0);
            if (ato_ftruncate(m.base, static_cast<off_t>(ends.bytes[i])) < 0) {
                EXPECT_TRUE(longer && errno == ENOSPC) << ato_errormsg();
                break;
            }
            kept = std::min(kept, ends.bytes[i] / PAGE);
            EXPECT_TRUE(!longer || m.read(end, ends.bytes[i] - end) == Bytes(ends.bytes[i] - end));
            end = ends.bytes[i];
            for (size_t at : {0, 1000}) {
                fill_but(ballast, 0);
                write_parts(m, kept, at, 3000, false);
                clean(disk);
            }
            for (size_t left = 10; longer && left < 1000; left *= 5) { // as far as there is space
                write_parts(m, end / PAGE, 0, PAGE, true);
                clean(disk);
                fill_but(ballast, static_cast<off_t>(left * PAGE));
            }
        }
        make_room();
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(size_of(file), end);
    }
}

// Words of a commit that is finished after a kill, beside pages that never had space.
TEST_P(SpaceOfMany, CommitIsFinishedAfterAKillOrEnospcAndNotSigbus)
{
    constexpr size_t MANY = 700, FAR = 600;
    write_file(file, whole(MANY));
    Bytes expected = whole(MANY);
    const Bytes late = pattern(PAGE, 2);
    for (size_t i = FAR; i < FAR + 20; i += 2)
        expected = over(expected, i * PAGE, late);
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, gather(ATO_DOMAIN_MSYNC));
                  PersistFaults faults;
                  faults.before = [&](const PersistCall &c) {
                      return std::string(c.op) == "flush_word" && has(c.site, "flip.c") ? DIE
                                                                                        : GO_ON;
                  };
                  ato_tx *tx = ato_tx_begin(0);
                  for (size_t i = FAR; i < FAR + 20; i += 2)
                      ato_tx_memcpy(tx, m.base + i * PAGE, late.data(), PAGE, 0);
                  return ato_tx_commit(tx);
              }),
              CUT);
    fill(ballast);
    read_anew(reflection_of(file));
    for (bool full : {true, false}) {
        Mapped m(file, gather(ATO_DOMAIN_MSYNC));
        EXPECT_TRUE(m || (full && m.error == ENOSPC)) << m.sentence;
        EXPECT_TRUE(!m || m.read() == expected);
        if (full)
            make_room();
    }
}

// All of a file lies in its reflection, and there is no room for a second copy: what came home gives the first one's
// space back. (In memory nothing is.)
TEST_P(SpaceOfMany, FileOfMoreThanHalfADiskIsMadePlain)
{
    struct {
        size_t pages, kept;
        unsigned threads;
        int domain; // in process all of the reflection is dirty
    } ways[] = {{1536, 600, 1, ATO_DOMAIN_MSYNC}, {3584, 400, 3, ATO_DOMAIN_PROCESS}};
    for (const auto &way : ways) {
        SCOPED_TRACE(way.threads);
        make_sparse(file, way.pages * PAGE);
        Mapped m(file, gather(way.domain));
        ASSERT_EQ(write_all(m, 0, way.pages), way.pages) << m.sentence;
        fill_but(ballast, static_cast<off_t>(way.kept * PAGE));
        EXPECT_EQ(unmap(m, way.threads), 0) << ato_errormsg();
        make_room();
        EXPECT_EQ(read_file(file), whole(way.pages));
    }
}

void eat(void *ballast, uint64_t, uint64_t)
{
    fill_but(*static_cast<const std::string *>(ballast), 0);
}

// Space that was given back beside pages that had theirs: they have it no more.
TEST_P(SpaceOfMany, UnmapThatFailsLeavesNoPageThatOnlySeemsToHaveSpace)
{
    constexpr size_t MANY =
        1400; // space is given back chunk by chunk, and there are enough of them
    for (int domain : {ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS}) {
        SCOPED_TRACE(domain);
        make_sparse(file, MANY * PAGE);
        Mapped m(file, gather(domain));
        for (size_t i = 0; i < MANY; i += 512) // each chunk
            ASSERT_TRUE(m.write(i * PAGE, {1})) << m.sentence;
        write_parts(m, MANY, 0, 2048, false);
        for (size_t i = 1; i < MANY; i += 4)
            ASSERT_EQ(ato_deploy(m.base + i * PAGE, PAGE), 0) << ato_errormsg();
        store_in_vain(m, MANY, 2048, 1024);
        fill_but(ballast, 0);
        // Others take what is given back.
        ASSERT_EQ(unmap(m, 1, eat, const_cast<std::string *>(&ballast)), ENOSPC);
        for (size_t at : {2048, 3072, 2048}) {
            fill_but(ballast, 0);
            write_parts(m, MANY, at, 1024, true);
            clean(disk);
        }
        make_room();
        ASSERT_EQ(write_all(m, 0, MANY), MANY) << m.sentence;
        expect_plain(m, whole(MANY));
    }
}

// ---- what is given back -------------------------------------------------------------------------

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
    if (!exists(slow->was_there))
        usleep(600000); // longer than a turn (scarce.c)
}

struct SpaceGivenBack : SpaceOfMany {
};
ON(SpaceGivenBack, EXT4);

// It is while nobody else has the file mapped; others that want to have a turn now and then.
TEST_P(SpaceGivenBack, OthersAreLetInMeanwhile)
{
    constexpr size_t CHUNK = 2 << 20, CHUNKS = 16;
    make_sparse(file, CHUNKS * CHUNK);
    const std::string was_there = dir / "was there";
    Peer other([&](const std::function<void()> &wait) {
        wait();
        locks_patience_ms = 5000;
        Mapped m(file);
        write_file(was_there, Bytes());
        // The last to leave makes it plain.
        return m && m.read(CHUNK, PAGE) == bytes_of(1) && m.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 1;
    });
    ASSERT_TRUE(other.is_ready());
    Mapped m(file, gather(ATO_DOMAIN_MSYNC));
    for (size_t i = 0; i < CHUNKS; i++)
        ASSERT_TRUE(m.write(i * CHUNK, bytes_of(i))) << m.sentence;
    fill_but(ballast, 1024 * PAGE);
    Slow slow = {&other, was_there, 0};
    EXPECT_EQ(unmap(m, 0, be_slow, &slow), 0);
    EXPECT_EQ(other.end(), 0);
    EXPECT_GT(slow.calls, 0u);
    for (size_t i = 0; i < CHUNKS; i++)
        EXPECT_EQ(read_at(file, i * CHUNK, PAGE), bytes_of(i)) << i;
}

bool words_are_durable, said_full, given_back;

int scarce_fallocate(int fd, int mode, off_t offset, off_t n)
{
    if (mode & FALLOC_FL_PUNCH_HOLE)
        EXPECT_TRUE(given_back = words_are_durable);
    else if (!std::exchange(said_full, true))
        return errno = ENOSPC, -1;
    return fsops_real.fallocate(fd, mode, offset, n);
}

// A word that only its dead writer's memory has may be gone after a power cut; the slices that it makes invalid
// have to be there then.
TEST_P(SpaceGivenBack, WordsAreDurableBefore)
{
    Bytes expected = over(whole(8), PAGE, pattern(PAGE, 3));
    expected.resize(9 * PAGE);
    write_file(file, whole(8));
    ASSERT_EQ(truncate(file.c_str(), 9 * PAGE), 0);
    const auto die = [](const PersistCall &c) {
        return std::string(c.op) == "flush_word" ? DIE : GO_ON;
    };
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, gather(ATO_DOMAIN_PMEM));
                  PersistFaults faults;
                  if (!m.write(PAGE, pattern(PAGE, 2)) || !m.write(8 * PAGE, pattern(10, 2)))
                      return 1;
                  faults.before = die;
                  return m.write(PAGE, pattern(PAGE, 3)) ? 2 : 3;
              }),
              CUT);
    Mapped m(file, gather(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    struct fsops scarce = fsops_real;
    scarce.fallocate = scarce_fallocate;
    PersistFaults faults;
    faults.before = [](const PersistCall &c) {
        words_are_durable |= std::string(c.op) == "flush_any" && has(c.site, "file.c");
        return GO_ON;
    };
    fsops = &scarce;
    expect_plain(m, over(expected, 8 * PAGE, pattern(10, 2)));
    fsops = &fsops_real;
    EXPECT_TRUE(given_back) << "it never met a full disk";
}

// Killed before each of some calls for space, and told now and then that there is none.
TEST_P(SpaceGivenBack, KillsMeanwhileLoseNothing)
{
    const Bytes before = whole(1100), after = pattern(before.size(), 3);
    bool ended = false;
    for (long k : {1, 97, 98, 513, 1100, 1000000}) {
        SCOPED_TRACE("killed before call " + std::to_string(k));
        make_sparse(file, before.size());
        const int how = in_child([&] {
            Mapped m(file, gather(ATO_DOMAIN_MSYNC));
            if (!m || !m.write(0, before))
                return 1;
            FsFaults faults;
            long calls = 0;
            faults.before = [&](const FsCall &c) {
                if (std::string(c.op) != "fallocate")
                    return GO_ON;
                return calls++ == k ? DIE : calls % 97 == 1 ? ENOSPC : GO_ON;
            };
            if (m.unmap(ATO_UNMAP_SPATIAL) == 0)
                return 0;
            const bool alike = m.error == ENOSPC && m.read() == before;
            faults.before = nullptr;
            return alike && m.write(0, before) && m.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 3;
        });
        EXPECT_TRUE(how == 0 || how == CUT) << how;
        ended |= how == 0;
        Mapped m(file);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), before);
        EXPECT_TRUE(m.write(0, after)) << m.sentence;
        expect_plain(m, after);
    }
    EXPECT_TRUE(ended);
}

} // namespace
