// SPDX-License-Identifier: BSD-3-Clause
//
// A large file on a disk with less space than the file could take: its pages are in large folios, whose
// neighbours may be holes, and there is no room for a second copy. No store beside a hole is SIGBUS. A
// deployed slice gives the space of its other copy to the next page; space that is given back too early would
// lose bytes in a power cut.
#include "hazards/space.h"
#include "support/faults.h"

extern "C" {
#include "reflection/media/locks.h"
}

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

using namespace hazards;

namespace
{

// Drops the file from the page cache and reads it again, as a backup does: in folios as large as the kernel
// likes.
void read_anew(const std::string &path)
{
    Fd fd(path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    for (char page[PAGE]; read(fd, page, PAGE) > 0;)
        ;
}

// Cleans the pages that were ready for stores. Not sync(): disks of other tests may be about to fail.
void clean(const std::string &disk)
{
    EXPECT_EQ(syncfs(Fd(disk, O_RDONLY)), 0);
}

// Files of some chunks (512 pages), page after page.
class SpaceOfMany : public Space
{
  protected:
    // The first pages as write_all() leaves them; and one of them.
    static Bytes whole(size_t pages)
    {
        return pattern(pages * PAGE, 1);
    }
    static Bytes bytes_of(size_t page, size_t n = PAGE)
    {
        static const Bytes all = whole(3584);
        return {&all[page * PAGE], &all[page * PAGE] + n};
    }
    // Returns the first page without space.
    static size_t write_all(Mapped &m, size_t from, size_t to)
    {
        while (from < to && m.write(from * PAGE, bytes_of(from)))
            from++;
        return from;
    }
    // Writes a part of each page, the last first. `may_fail`: ENOSPC is allowed. Returns how many failed.
    static size_t write_parts(Mapped &m, size_t pages, size_t at, size_t n, bool may_fail)
    {
        size_t refused = 0;
        for (size_t i = pages; i-- > 0;) {
            const bool good = m.write(i * PAGE + at, pattern(n, 3));
            EXPECT_TRUE(good || (may_fail && m.error == ENOSPC)) << i << ": " << m.sentence;
            refused += !good;
        }
        return refused;
    }
    // Stores of an aborted transaction: neither visible nor durable.
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
        const struct ato_unmap_options o = {sizeof(o), ATO_UNMAP_SPATIAL, threads, progress, arg,
                                            nullptr};
        const int error = ato_munmap_opt(m.base, m.length, &o) == 0 ? 0 : errno;
        if (!error)
            m.base = nullptr;
        return error;
    }
};

ON(SpaceOfMany, EXT4, EXT4_1K);

TEST_P(SpaceOfMany, PagesBesideHolesAreEnospcAndNotSigbus)
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

// The last page is a hole, which no store to the pages before it may touch.
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

// A cut gives the space behind the new end back, and a growth adds a hole (with small blocks it begins within
// the last page); pages beside the end that have their space keep it, for any process.
TEST_P(SpaceOfMany, PagesBesideAnEndKeepTheSpaceThatTheyHave)
{
    constexpr size_t LONG = 800 * PAGE;
    struct Ends {
        int domain;
        std::vector<size_t> bytes;
    };
    for (const Ends &ends :
         {Ends{ATO_DOMAIN_PROCESS, {LONG, 3 * PAGE + 100, LONG, 3 * PAGE + 100}},
          Ends{ATO_DOMAIN_DISK, {LONG, 200 * PAGE + 100, LONG, 200 * PAGE + 100}},
          Ends{ATO_DOMAIN_PROCESS, {LONG, 700 * PAGE + 100, LONG, 700 * PAGE + 100}},
          Ends{ATO_DOMAIN_DISK, {303 * PAGE + 100, 308 * PAGE, LONG}},
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
            for (size_t left = 10; longer && left < 1000; left *= 5) { // as far as the space goes
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

// A commit that is finished after a kill, in pages that have lost their space (a backup omits zeros), beside others without.
TEST_P(SpaceOfMany, CommitIsFinishedAfterAKillOrEnospcAndNotSigbus)
{
    constexpr size_t MANY = 700, FAR = 600;
    make_sparse(file, MANY * PAGE);
    write_at(file, 0, whole(FAR).data(), FAR * PAGE);
    Bytes expected = whole(FAR);
    expected.resize(MANY * PAGE);
    const Bytes late = pattern(PAGE, 2);
    for (size_t i = FAR; i < FAR + 20; i += 2)
        expected = over(expected, i * PAGE, late);
    EXPECT_EQ(in_child([&] {
                  Mapped m(file, gather(ATO_DOMAIN_DISK));
                  PersistFaults faults;
                  faults.before = [&](const PersistCall &c) {
                      return has(c.site, "commit/show.") ? DIE : GO_ON; // the log has it
                  };
                  ato_tx *tx = ato_tx_begin(0);
                  for (size_t i = FAR; i < FAR + 20; i += 2)
                      ato_tx_memcpy(tx, m.base + i * PAGE, late.data(), PAGE, 0);
                  return ato_tx_commit(tx);
              }),
              CUT);
    EXPECT_EQ(read_at(file, FAR * PAGE, PAGE), Bytes(PAGE));
    ASSERT_EQ(truncate(file.c_str(), FAR * PAGE) + truncate(file.c_str(), MANY * PAGE), 0);
    read_anew(file);
    fill(ballast);
    {
        Mapped m(file, gather(ATO_DOMAIN_DISK));
        EXPECT_FALSE(m);
        expect_no_space(m, file);
    }
    make_room();
    Mapped m(file, gather(ATO_DOMAIN_DISK));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), expected);
    expect_plain(m, expected);
}

// Another process gave pages their space and is gone. Then the kernel keeps them as one with holes beside them. A store there, after
// the commit is durable, would be SIGBUS.
TEST_P(SpaceOfMany, PagesOfAnotherProcessThatCameBesideHolesAreEnospcAndNotSigbus)
{
    constexpr size_t MANY = 768;
    const auto write_some = [](Mapped &m, unsigned round) {
        size_t good = 0;
        for (size_t i = 300; i < 400; i += 4)
            good += m.write(i * PAGE, pattern(3000, round));
        return good;
    };
    make_sparse(file, MANY * PAGE);
    make_sparse(twin, MANY * PAGE);
    Peer other([&](const std::function<void()> &wait) {
        wait();
        Mapped m(file, gather(ATO_DOMAIN_DISK));
        return m && write_some(m, 1) == 25 && m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 1;
    });
    ASSERT_TRUE(other.is_ready());
    Mapped m(file, gather(ATO_DOMAIN_DISK));
    ASSERT_TRUE(m) << m.sentence;
    other.go_on();
    ASSERT_EQ(other.end(), 0);
    for (size_t i = 300; i < 400; i += 4)
        write_at(twin, i * PAGE, bytes_of(1).data(), PAGE);
    read_anew(file);
    read_anew(twin);
    fill(ballast);
    EXPECT_EQ(naive([&] {
                  char *at = plain_map(twin, MANY * PAGE);
                  for (size_t i = 300; i < 400; i += 4)
                      at[i * PAGE] = 1;
                  return 0;
              }),
              died_of(SIGBUS));
    const size_t good = write_some(m, 2);
    EXPECT_TRUE(good == 25 || m.error == ENOSPC) << m.sentence;
    for (size_t i = 300; i < 400; i += 4)
        EXPECT_TRUE(m.write(i * PAGE, Bytes(8, 'x'), ATO_EAGER) || m.error == ENOSPC) << m.sentence;
    make_room();
    EXPECT_EQ(write_some(m, 3), 25u) << m.sentence;
    Bytes expected(MANY * PAGE);
    for (size_t i = 300; i < 400; i += 4)
        std::copy_n(pattern(3000, 3).begin(), 3000, &expected[i * PAGE]);
    expect_plain(m, expected);
}

// There is no room for a second copy. With a log there is none: on a full disk it stays as long as it is.
TEST_P(SpaceOfMany, FileOfMoreThanHalfADiskIsWrittenWithALog)
{
    constexpr size_t MANY = 3584;
    write_file(file, {});
    ASSERT_EQ(posix_fallocate(Fd(file), 0, MANY * PAGE), 0);
    Mapped m(file, gather(ATO_DOMAIN_DISK));
    ASSERT_TRUE(m) << m.sentence;
    const size_t before = size_of(reflection_of(file));
    fill(ballast);
    ASSERT_EQ(write_all(m, 0, MANY), MANY) << m.sentence;
    EXPECT_EQ(size_of(reflection_of(file)), before);
    expect_plain(m, whole(MANY));
}

// The whole file is in its reflection, and there is no room for a second copy: deployed slices give the space
// of their first copy back. In memory, and in domain process on a disk, nothing is given back, and nothing is lost.
TEST_P(SpaceOfMany, FileOfMoreThanHalfADiskIsMadePlain)
{
    struct {
        size_t pages, kept;
        unsigned threads;
        int domain;
    } ways[] = {{1536, 600, 1, ATO_DOMAIN_PMEM},
                {3584, 400, 3, ATO_DOMAIN_PMEM},
                {1536, 600, 1, ATO_DOMAIN_PROCESS}};
    for (const auto &way : ways) {
        SCOPED_TRACE(way.pages + static_cast<size_t>(way.domain));
        make_sparse(file, way.pages * PAGE);
        Mapped m(file, gather(way.domain));
        ASSERT_EQ(write_all(m, 0, way.pages), way.pages) << m.sentence;
        fill_but(ballast, static_cast<off_t>(way.kept * PAGE));
        const bool gives_back = way.domain == ATO_DOMAIN_PMEM;
        EXPECT_EQ(unmap(m, way.threads), gives_back ? 0 : ENOSPC) << ato_errormsg();
        if (!gives_back) {
            EXPECT_EQ(m.read(), whole(way.pages));
        }
        make_room();
        if (!gives_back) {
            EXPECT_EQ(unmap(m, way.threads), 0) << ato_errormsg();
        }
        EXPECT_EQ(read_file(file), whole(way.pages));
    }
}

bool eaten; // from now on there is no space for anything else

void eat(void *ballast, uint64_t, uint64_t)
{
    fill_but(*static_cast<const std::string *>(ballast), 0);
    eaten = true;
}

int fallocate_until_eaten(int fd, int mode, off_t offset, off_t n)
{
    if (eaten && !(mode & FALLOC_FL_PUNCH_HOLE))
        return errno = ENOSPC, -1;
    return fsops_real.fallocate(fd, mode, offset, n);
}

TEST_P(SpaceOfMany, FailedUnmapLeavesNoPageMarkedAsHavingSpace)
{
    constexpr size_t MANY =
        1400; // space is given back chunk by chunk, and there are enough of them
    make_sparse(file, MANY * PAGE);
    Mapped m(file, gather(ATO_DOMAIN_PMEM));
    write_parts(m, MANY, 0, 2048, false);
    for (size_t i = 1; i < MANY; i += 4)
        ASSERT_EQ(ato_deploy(m.base + i * PAGE, PAGE), 0) << ato_errormsg();
    store_in_vain(m, MANY, 2048, 1024);
    fill_but(ballast, 0);
    // Another file takes the space that is given back.
    struct fsops until_eaten = fsops_real;
    until_eaten.fallocate = fallocate_until_eaten;
    eaten = false;
    fsops = &until_eaten;
    const int error = unmap(m, 1, eat, const_cast<std::string *>(&ballast));
    fsops = &fsops_real;
    ASSERT_EQ(error, ENOSPC);
    size_t refused = 0;
    for (size_t at : {2048, 3072, 2048}) {
        fill_but(ballast, 0);
        refused += write_parts(m, MANY, at, 1024, true);
        clean(disk);
    }
    EXPECT_GT(refused, 0u) << "no page has lost its space";
    make_room();
    ASSERT_EQ(write_all(m, 0, MANY), MANY) << m.sentence;
    expect_plain(m, whole(MANY));
}

// ---- giving space back -------------------------------------------------------------------------

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
        usleep(600000); // longer than a turn (plain.c)
}

struct SpaceGivenBack : SpaceOfMany {
};
ON(SpaceGivenBack, EXT4);

// Space is given back while no other process has the file mapped; a waiting process gets a turn now and then.
TEST_P(SpaceGivenBack, WaitingProcessesGetATurn)
{
    constexpr size_t CHUNK = 2 << 20, CHUNKS = 16;
    make_sparse(file, CHUNKS * CHUNK);
    const std::string was_there = dir / "was there";
    Peer other([&](const std::function<void()> &wait) {
        wait();
        locks_patience_ms = 5000;
        Mapped m(file);
        write_file(was_there, Bytes());
        // The last process to unmap makes the file plain.
        return m && m.read(CHUNK, PAGE) == bytes_of(1) && m.unmap(ATO_UNMAP_SPATIAL) == 0 ? 0 : 1;
    });
    ASSERT_TRUE(other.is_ready());
    Mapped m(file, gather(ATO_DOMAIN_PMEM));
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

int fallocate_seldom(int fd, int mode, off_t offset, off_t n)
{
    if (mode & FALLOC_FL_PUNCH_HOLE)
        EXPECT_TRUE(given_back = words_are_durable);
    else if (!std::exchange(said_full, true))
        return errno = ENOSPC, -1;
    return fsops_real.fallocate(fd, mode, offset, n);
}

// A word that only the memory of its dead writer has may be lost in a power cut; the slices that it makes
// invalid must still exist then.
TEST_P(SpaceGivenBack, WordsAreDurableBeforeSpaceIsGivenBack)
{
    DENSE_ONLY("fills a disk but for what a dense reflection needs");
    Bytes expected = over(whole(8), PAGE, pattern(PAGE, 3));
    expected.resize(9 * PAGE);
    write_file(file, whole(8));
    ASSERT_EQ(truncate(file.c_str(), 9 * PAGE), 0);
    const auto die = [](const PersistCall &c) {
        return std::string(c.op) == "flush_any" ? DIE : GO_ON;
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
    struct fsops seldom = fsops_real;
    seldom.fallocate = fallocate_seldom;
    PersistFaults faults;
    faults.before = [](const PersistCall &c) {
        words_are_durable |= std::string(c.op) == "flush_any" && has(c.site, "api/files.c");
        return GO_ON;
    };
    fsops = &seldom;
    expect_plain(m, over(expected, 8 * PAGE, pattern(10, 2)));
    fsops = &fsops_real;
    EXPECT_TRUE(given_back) << "the disk was never full";
}

// Dies before some calls for space, and sometimes there is no space.
TEST_P(SpaceGivenBack, KillsLoseNothing)
{
    const Bytes before = whole(1100), after = pattern(before.size(), 3);
    bool ended = false;
    for (long k : {1, 97, 98, 513, 1100, 1000000}) {
        SCOPED_TRACE("killed before call " + std::to_string(k));
        make_sparse(file, before.size());
        const int how = in_child([&] {
            Mapped m(file, gather(ATO_DOMAIN_PMEM));
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
