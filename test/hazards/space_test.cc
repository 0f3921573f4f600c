// SPDX-License-Identifier: BSD-3-Clause
//
// What if a file system is full, or has no room for a second copy of a file? A plain store to a hole is
// SIGBUS, in the middle of a record; in memory a load is, too; and where the kernel keeps many pages as one
// (a large folio), a store beside a hole is (large_file_test.cc). The library allocates before it stores or
// loads: ENOSPC, nothing changed, and the next try works. Each operation, on each medium, with room for a
// number of blocks, is in fault/disk_test.cc; here are other states of files and disks.
#include "hazards/cut_commit.h"
#include "hazards/space.h"
#include "support/faults.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

using namespace hazards;

namespace
{

int pretend(int, int, off_t, off_t)
{
    return 0;
}

// A library without the rule: it never allocates.
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

// Some byte of each page.
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

// ---- each medium --------------------------------------------------------------------------------

ON(Space, TMPFS, EXT4, EXT4_1K);

// Space from fallocate() is as good as that of a store. Every second page, for many extents.
TEST_P(Space, PlainStoresToHolesTearARecordAndAllocatedHomesTakeEveryStore)
{
    DENSE_ONLY("fills a disk but for what a dense reflection needs");
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
    Mapped other(twin); // a disk that is full has no space for its pairing
    ASSERT_TRUE(other) << other.sentence;
    fill(ballast);
    EXPECT_EQ(store_plainly(twin, 3000, record), died_of(SIGBUS));
    EXPECT_EQ(read_at(twin, 3000, PAGE - 3000),
              Bytes(record.begin(), record.begin() + PAGE - 3000));
    EXPECT_EQ(naive_library([&] {
                  m.base = other.base = nullptr; // not the child's mappings
                  Mapped(twin).write(PAGE, record);
              }),
              died_of(SIGBUS));
    for (unsigned round = 4; round < 8; round++)
        write(round);
    EXPECT_EQ(m.read(), model);
    expect_plain(m, model);
}

// A restored backup may have holes in place of zeros, in blocks smaller than a page. On a disk that takes domain process by force.
TEST_P(Space, MetaPageThatIsAHoleInPartIsEnospcWhenAWordInItIsStored)
{
    const bool small_blocks = GetParam().name == std::string(EXT4_1K.name);
    Bytes expected = over(content, PAGE, pattern(PAGE, 2));
    write_file(file, content);
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, gather(ATO_DOMAIN_PROCESS));
                  _exit(m && m.write(PAGE, pattern(PAGE, 2)) ? 0 : 1);
                  return 1;
              }),
              0);
    dig(reflection_of(file), 2048, 2048);
    fill(ballast);
    Mapped m(file, gather(ATO_DOMAIN_PROCESS));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), expected);
    if (small_blocks)
        expect_refused(m, PAGE, pattern(PAGE, 3));
    else
        EXPECT_TRUE(m.write(PAGE, pattern(PAGE, 3))) << m.sentence;
    make_room();
    EXPECT_TRUE(m.write(PAGE, pattern(PAGE, 3))) << m.sentence;
    expect_plain(m, over(content, PAGE, pattern(PAGE, 3)));
}

// Its ring was all zeros, which a backup omits. A commit is refused before it counts.
TEST_P(Space, CommitToALogWithHolesIsEnospcAndNothingIsCommitted)
{
    const Bytes record = pattern(20 * PAGE, 2);
    write_file(file, content);
    Mapped(file, gather(ATO_DOMAIN_DISK)); // has its log from now on
    const std::string log = reflection_of(file);
    dig(log, PAGE, size_of(log) - PAGE);
    {
        Mapped m(file, gather(ATO_DOMAIN_DISK));
        ASSERT_TRUE(m) << m.sentence;
        fill(ballast);
        expect_refused(m, 3000, record);
        EXPECT_EQ(m.read(), content);
        make_room();
        EXPECT_TRUE(m.write(PAGE, pattern(PAGE, 3))) << m.sentence;
        dig(log, 8 * PAGE, size_of(log) - 8 * PAGE);
        fill(ballast);
        expect_refused(m, 3000, record); // a part of this one is in the log
        m.base = nullptr;                // as after a kill
    }
    make_room();
    Mapped m(file, gather(ATO_DOMAIN_DISK));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), over(content, PAGE, pattern(PAGE, 3)));
    EXPECT_TRUE(m.write(3000, record)) << m.sentence;
    expect_plain(m, over(over(content, PAGE, pattern(PAGE, 3)), 3000, record));
}

// A log with log_bytes has its space from the start: the map is refused that finds too little; and later nobody can take it.
TEST_P(Space, ALogHasItsBytesOrIsRefusedAtTheMap)
{
    write_file(file, content);
    write_file(twin, content);
    ato_options o = gather(ATO_DOMAIN_DISK);
    o.log_bytes = 64 << 20;
    {
        Mapped m(file, o);
        EXPECT_FALSE(m);
        expect_no_space(m, reflection_of(file));
        EXPECT_TRUE(has(m.sentence, std::to_string(o.log_bytes + PAGE) + " bytes")) << m.sentence;
        EXPECT_EQ(read_file(file), content);
    }
    o.log_bytes = 4 << 20;
    Mapped m(file, o);
    ASSERT_TRUE(m) << m.sentence;
    fill(ballast);
    Mapped other(twin, o);
    EXPECT_FALSE(other);
    EXPECT_EQ(other.error, ENOSPC) << other.sentence;
    Bytes bytes;
    for (unsigned i = 0; i < 40; i++) { // the log is used up, and used again
        bytes = pattern(SIZE, i);
        ASSERT_TRUE(m.write(0, bytes)) << m.sentence;
    }
    make_room();
    expect_plain(m, bytes);
}

// ---- one medium ---------------------------------------------------------------------------------

struct SpaceInMemory : Space {
};
ON(SpaceInMemory, TMPFS);

// A reflection may have holes after a copy that omits zeros.
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

// The reflection of a dead process, then also its manifest, copied without zeros.
TEST_P(SpaceInMemory, AReplayIntoAHoleIsEnospcAndTheNextTryFinishesIt)
{
    DENSE_ONLY("stores words of a dense reflection");
    auto dig_zeros = [](const std::string &path, size_t n) {
        for (size_t at = 0; at < n; at += PAGE)
            if (read_at(path, at, PAGE) == Bytes(PAGE))
                dig(path, at, PAGE);
    };
    write_file(file, content);
    ASSERT_EQ(cut_commit::die_between_flips(file), CUT);
    const std::string manifest = manifest_of(file), reflection = reflection_of(file);
    write_at(reflection, 0, Bytes(PAGE).data(), PAGE); // as before the first flip
    for (const std::string &path : {reflection, manifest}) {
        dig_zeros(path, path == manifest ? size_of(path) : PAGE);
        fill(ballast);
        EXPECT_EQ(load_plainly(path, 0, path == manifest ? size_of(path) : 1), died_of(SIGBUS));
        Mapped m(file, options(ATO_DOMAIN_PMEM));
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        make_room();
    }
    Mapped m(file, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), over(content, cut_commit::AT, cut_commit::record()));
}

// Twice its space and the bitmaps; commits of 32 pages need no more.
TEST_P(SpaceInMemory, AFileOf9MiBIsWrittenInAFileSystemOf20MiB)
{
    constexpr size_t N = 9 << 20, STEP = 32 * PAGE;
    const std::string folder = dir / "small", path = folder + "/file";
    std::filesystem::create_directory(folder);
    ASSERT_TRUE(mount_memory(folder, "size=20m"));
    write_file(path, pattern(N, 1));
    Mapped m(path, gather());
    ASSERT_TRUE(m) << m.sentence;
    const Bytes bytes = pattern(N, 2);
    for (size_t at = 0; at < N; at += STEP)
        ASSERT_TRUE(m.write(at, Bytes(bytes.begin() + at, bytes.begin() + at + STEP)))
            << m.sentence;
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), bytes);
    umount2(folder.c_str(), MNT_DETACH);
}

unsigned punches;

int count_punches(int fd, int mode, off_t offset, off_t n)
{
    punches += (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    return fsops_real.fallocate(fd, mode, offset, n);
}

// In memory a load from a hole may fail, so no space is given back while the file is mapped.
TEST_P(SpaceInMemory, NoSpaceIsGivenBackBeforeTheFileIsPlain)
{
    write_file(file, content);
    struct fsops counting = fsops_real;
    counting.fallocate = count_punches;
    Mapped m(file, gather());
    ASSERT_TRUE(m && m.write(0, pattern(content.size(), 3))) << m.sentence;
    fill(ballast);
    const struct fsops *before = fsops;
    fsops = &counting;
    punches = 0;
    EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    fsops = before;
    EXPECT_EQ(punches, 0u);
    EXPECT_EQ(read_file(file), pattern(content.size(), 3));
}

struct SpaceOnDisk : Space {
};
ON(SpaceOnDisk, EXT4_1K);

// Of the file: a store beside it needs its block.
TEST_P(SpaceOnDisk, HoleSmallerThanAPageIsEnospc)
{
    const size_t hole = PAGE + 2048;
    for (int domain : {ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS}) {
        SCOPED_TRACE(domain);
        Bytes model = pattern(3 * PAGE + 700, 1);
        for (const std::string &p : {file, twin}) {
            write_file(p, model);
            fsync(Fd(p));
            dig(p, hole, 1024);
        }
        std::fill_n(model.begin() + hole, 1024, 0);
        Mapped m(file, gather(domain));
        ASSERT_TRUE(m) << m.sentence;
        // With a log, what is written goes to the file at once. Else R gets its space.
        for (size_t page = domain == ATO_DOMAIN_DISK ? 2 : 1; page < 4; page++) {
            ASSERT_TRUE(m.write(page * PAGE, Bytes(700, 7))) << m.sentence;
            model = over(model, page * PAGE, Bytes(700, 7));
        }
        fill(ballast);
        EXPECT_EQ(store_plainly(twin, hole, {'x'}), died_of(SIGBUS));
        expect_refused(m, PAGE, Bytes(PAGE, 8)); // one slice goes to O
        EXPECT_EQ(m.read(), model);
        // The last page has one block, and needs no more.
        EXPECT_TRUE(m.write(3 * PAGE, Bytes(700, 9)) || m.error == ENOSPC) << m.sentence;
        make_room();
        EXPECT_TRUE(m.write(3 * PAGE, Bytes(700, 9))) << m.sentence;
        EXPECT_TRUE(m.write(PAGE, Bytes(PAGE, 8))) << m.sentence;
        expect_plain(m, over(over(model, PAGE, Bytes(PAGE, 8)), 3 * PAGE, Bytes(700, 9)));
    }
}

// These inodes have no room for attributes, which need a block. In memory names run out before space does.
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

// Space that a growth punches, or that is cut off after a failed growth, is allocated again.
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

TEST_P(SpaceGrowth, ASecondGrowthTakesNothingFromTheFirst)
{
    Mapped m(file, growing);
    ato_tx *t = ato_tx_begin(0);
    ASSERT_TRUE(resize(m, t, 10) == 0 && put(m, t, 5, Bytes(10, 'x')) && !get(m, t, 7).empty());
    ASSERT_EQ(resize(m, t, 20), 0) << ato_errormsg();
    fill(ballast);
    EXPECT_EQ(get(m, t, 5), over(Bytes(PAGE), 0, Bytes(10, 'x')));
    EXPECT_EQ(get(m, t, 7), Bytes(PAGE));
    make_room(); // a commit may give the lanes their space
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

// The transaction is aborted, ends with a shorter file, or gets no space: for the state of this page, for the
// page, for the next one, ...
TEST_P(SpaceGrowth, SpaceOfAnAbortedTransactionIsAllocatedAgain)
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

// Pages that were in the file when it was mapped keep their space, and can be read.
TEST_P(SpaceGrowth, PagesWithinTheOldSizeStayReadable)
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

// As in a container with 64 MiB. Mapping needs little; each page far from the others needs a batch of the
// directory of page states.
TEST_P(SpaceInMemory, FullShmIsEnospcForAMappingAndForAFirstTouchFarAway)
{
    constexpr size_t FAR = 16 << 20, BATCHES = 32;
    const std::string shm = "/dev/shm/ato-", there = "/dev/shm/ballast";
    ASSERT_TRUE(mount_memory("/dev/shm", "size=204k"));
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

    // Now the objects that this one left in /dev/shm are removed.
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
        EXPECT_EQ(ato_deploy(m.base + i * FAR, 1), 0) << "nothing to bring home";
    }
    for (size_t i = 0; i < good; i++) // go on as before
        EXPECT_TRUE(m.write(i * FAR + 1, Bytes(1, '!'))) << m.sentence;
    EXPECT_FALSE(m.write(good * FAR - 1, Bytes(2, 'y'))) << "a part was written";
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

} // namespace
