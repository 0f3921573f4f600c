// SPDX-License-Identifier: BSD-3-Clause
//
// What if the medium fails? The kernel reports a failed write-back once, to the sync that comes first.
// After that msync() and fdatasync() return 0, although the bytes are on no disk. The library trusts nothing of
// such a file any more: every call is EIO until the file is mapped anew. Then everything acknowledged is there, and
// the call that failed has happened wholly or not at all. First by a table: each operation, each of its syncs; then
// on a disk that fails. (Each msync() and fsync() of all other operations: test/fault/sweep_test.cc.)
#include "hazards/lab.h"
#include "support/faults.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t SIZE = 6 * 4096;
const Bytes OLD = pattern(SIZE, 1), NEWS = pattern(SIZE, 2);

ato_options wish()
{
    return options(ATO_DOMAIN_DISK, ATO_READ_GATHER, ATO_NO_RTM);
}

// Each call is EIO and names the file. Twice: the library repeats the error, the kernel does not.
void expect_poisoned(Mapped &m, const std::string &path)
{
    char buffer[64] = {0};
    const ato_iovec range = {m.base, buffer, 64};
    const std::function<bool()> calls[] = {
        [&] { return ato_memcpy(buffer, m.base, 64); },
        [&] { return ato_memcpy(m.base, buffer, 64); },
        [&] { return ato_memcpy(m.base, m.base + 5000, 64); },
        [&] { return ato_memcpy_opt(m.base, buffer, 64, ATO_SKIP_EQUAL); },
        [&] { return ato_memset(m.base, 0, 64); },
        [&] { return ato_writev(&range, 1, 0) == 0; },
        [&] { return ato_deploy(m.base, m.length) == 0; },
        [&] { return ato_msync(m.base, m.length, MS_SYNC) == 0; },
        [&] { return ato_ftruncate(m.base, static_cast<off_t>(m.length) + 5000) == 0; },
    };
    for (int turn = 0; turn < 2; turn++) {
        for (const auto &call : calls) {
            SCOPED_TRACE(&call - calls);
            EXPECT_FALSE(call());
            EXPECT_EQ(errno, EIO);
            EXPECT_TRUE(has(ato_errormsg(), path)) << ato_errormsg();
        }
        Mapped another(path, wish());
        EXPECT_FALSE(another);
        EXPECT_EQ(another.error, EIO) << another.sentence;
    }
}

// ---- each sync of an operation --------------------------------------------------------------------------------

// Counts the syncs, of words by msync() and of whole files, in their order; some of them fail.
class Syncs
{
  public:
    explicit Syncs(std::function<bool(size_t)> fails) : fails_(std::move(fails))
    {
        words_.before = [this](const PersistCall &c) { return c.n ? sync() : GO_ON; };
        files_.before = [this](const FsCall &c) {
            return c.op == std::string("fsync") || c.op == std::string("fdatasync") ? sync()
                                                                                    : GO_ON;
        };
    }
    size_t seen = 0;

  private:
    int sync()
    {
        return fails_(seen++) ? EIO : GO_ON;
    }
    std::function<bool(size_t)> fails_;
    PersistFaults words_;
    FsFaults files_;
};

// The result of a failed sync. All but DONE: the operation returns EIO.
enum Outcome : char {
    NOT_YET = 'o',  // the file is poisoned; mapped anew it has its old content
    IN_DOUBT = 'd', // the same; it has the new content, which is still in the page cache
    GONE = 'g',     // the file is unmapped and not yet plain; the next map completes the unmap
    DONE = 's', // the operation succeeds, because its write is durable, and the file is poisoned
    NO_SYNC = '\0', // the operation has fewer syncs, and succeeds
};

struct Operation {
    const char *name, *outcomes; // a letter for each sync
    Bytes before, after;
    std::function<bool(Mapped &)> act;

    bool may_be(Outcome one) const
    {
        return strchr(outcomes, one);
    }
};

void PrintTo(const Operation &operation, std::ostream *out)
{
    *out << operation.name;
}

Operation write(const char *name, const Bytes &before, long at, long n, unsigned flags,
                const char *outcomes)
{
    const Bytes piece = pattern(static_cast<size_t>(n), 5);
    return {name, outcomes, before, over(before, static_cast<size_t>(at), piece),
            [=](Mapped &m) { return m.write(static_cast<uint64_t>(at), piece, flags); }};
}

bool deploy(Mapped &m)
{
    m.error = ato_deploy(m.base, SIZE) < 0 ? errno : 0;
    m.sentence = ato_errormsg();
    return m.error == 0;
}

bool make_plain(Mapped &m)
{
    return m.unmap(ATO_UNMAP_SPATIAL) == 0;
}

// What comes before was written, and is in the log, if it is NEWS. A checkpoint syncs the file, the size word and the log.
const Operation operations[] = {
    // The log.
    write("Slice", OLD, 100, 64, 0, "d"),
    write("Pages", OLD, 3000, 6000, 0, "d"),
    // The same, followed by a checkpoint.
    write("EagerSlice", OLD, 100, 64, ATO_EAGER, "dsss"),
    write("EagerPages", OLD, 3000, 6000, ATO_EAGER, "dsss"),
    // Stored in place: the word. What is in the log is brought home before.
    write("EagerWord", OLD, 104, 8, ATO_EAGER, "d"),
    write("EagerWordAfterWrites", NEWS, 104, 8, ATO_EAGER, "oood"),
    {"Deploy", "ddd", NEWS, NEWS, deploy},
    {"Unmap", "dddgg", NEWS, NEWS, make_plain}, // the checkpoint, the manifest, the attribute
};

enum Leaving { FAST = ATO_UNMAP_FAST, SPATIAL = ATO_UNMAP_SPATIAL, EXIT, KILL };

class FailingMedium : public testing::TestWithParam<Operation>
{
  protected:
    // The n-th sync fails, and perhaps all after it. `busy`: another file.
    void fail(size_t n, bool all, Mapped *busy, Leaving how)
    {
        const char outcome = op.outcomes[n];
        Mapped m(file, wish());
        ASSERT_TRUE(m) << m.sentence;
        if (op.before != OLD) {
            ASSERT_TRUE(m.write(0, op.before)) << m.sentence;
        }
        std::unique_ptr<Mapped> part; // a spatial unmap has to be the last
        if (busy && !op.may_be(GONE))
            part = std::make_unique<Mapped>(file, wish(), 4096, 8192);
        size_t seen = 0;
        bool done;
        {
            Syncs syncs([=](size_t i) { return i == n || (all && i > n); });
            done = op.act(m);
            seen = syncs.seen;
        }
        EXPECT_EQ(seen > n, outcome != NO_SYNC) << "the operation has other syncs than the table";
        EXPECT_EQ(done, outcome == DONE || outcome == NO_SYNC) << m.sentence;
        if (!done) {
            EXPECT_EQ(m.error, EIO) << m.sentence;
            EXPECT_TRUE(has(m.sentence, file)) << m.sentence;
        }
        const bool poisoned = outcome == NOT_YET || outcome == IN_DOUBT || outcome == DONE;
        if (poisoned) {
            EXPECT_EQ(msync(m.base, SIZE, MS_SYNC), 0) << "the kernel reports the error once";
            expect_poisoned(m, file);
        }
        if (busy) { // it is not affected
            EXPECT_TRUE(busy->write(0, NEWS)) << busy->sentence;
            EXPECT_EQ(busy->read(), NEWS);
        }
        if (poisoned && how == SPATIAL) {
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
            EXPECT_EQ(m.error, EIO);
            EXPECT_TRUE(has(m.sentence, "not plain")) << m.sentence;
        }
        if (outcome == GONE || (poisoned && how == SPATIAL)) { // the mapping is gone all the same
            EXPECT_EQ(ato_munmap(m.base, SIZE, ATO_UNMAP_FAST), -1);
            EXPECT_EQ(errno, EINVAL);
            m.base = nullptr;
        } else if (m.base && (how == FAST || how == SPATIAL)) {
            EXPECT_EQ(m.unmap(how), 0) << m.sentence;
        }
        if (part) { // until the last mapping is gone
            EXPECT_EQ(part->read(0, 10).empty(), poisoned) << part->sentence;
            EXPECT_EQ(part->unmap(ATO_UNMAP_FAST), 0) << part->sentence;
        }
        m.base = nullptr; // an exit or a kill leaves it mapped
    }

    // Mapped anew, the file is complete, and works. Its content when `later` was written to it.
    Bytes mapped_anew(char outcome, const Bytes &later)
    {
        const Bytes &is = outcome == NOT_YET ? op.before : op.after;
        Mapped again(file, wish());
        EXPECT_TRUE(again && again.read() == is) << again.sentence;
        EXPECT_TRUE(again.write(0, later)) << again.sentence;
        EXPECT_EQ(again.read(), over(is, 0, later));
        return over(is, 0, later);
    }

    void expect_plain(const Bytes &is)
    {
        Mapped last(file, wish());
        ASSERT_TRUE(last) << last.sentence;
        EXPECT_EQ(last.read(), is) << "an old record was copied over a newer write";
        EXPECT_EQ(last.unmap(ATO_UNMAP_SPATIAL), 0) << last.sentence;
        EXPECT_EQ(read_file(file), is);
    }

    const Operation &op = GetParam();
    const size_t syncs = strlen(op.outcomes);
    std::string file;
};

TEST_P(FailingMedium, PoisonsTheFileUntilItIsMappedAgain)
{
    DENSE_ONLY("in domain disk there is no second format");
    for (Leaving how : {SPATIAL, EXIT, KILL})
        for (size_t n = 0; n <= syncs && !HasFailure(); n++) {
            SCOPED_TRACE("sync " + std::to_string(n) + ", left by " + std::to_string(how));
            TempDir dir;
            file = dir / "file";
            write_file(file, OLD);
            auto fails = [&] {
                fail(n, how == SPATIAL, nullptr, how);
                return static_cast<int>(HasFailure());
            };
            auto is_killed = [&] {
                const int failed = fails();
                return failed ? failed : raise(SIGKILL);
            };
            if (how == KILL)
                EXPECT_EQ(in_child(is_killed), died_of(SIGKILL));
            else
                EXPECT_EQ(how == EXIT ? in_exiting_child(fails) : fails(), 0);
            expect_plain(mapped_anew(op.outcomes[n], pattern(4096, 3)));
            EXPECT_TRUE(names_in(folder_of(file)).empty());
        }
}

// Several files are poisoned and mapped anew while another one is in use.
TEST_P(FailingMedium, DoesNotAffectOtherFiles)
{
    DENSE_ONLY("in domain disk there is no second format");
    TempDir dir;
    const std::string other = dir / "other";
    std::vector<Bytes> are;
    write_file(other, OLD);
    Mapped busy(other, wish());
    ASSERT_TRUE(busy) << busy.sentence;
    for (size_t n = 0; n <= syncs && !HasFailure(); n++) {
        SCOPED_TRACE("sync " + std::to_string(n));
        file = dir / std::to_string(n);
        write_file(file, OLD);
        ASSERT_TRUE(busy.write(0, OLD)) << busy.sentence;
        fail(n, false, &busy, FAST);
        are.push_back(mapped_anew(op.outcomes[n], pattern(SIZE, 3)));
    }
    EXPECT_EQ(busy.unmap(ATO_UNMAP_SPATIAL), 0) << busy.sentence;
    for (size_t n = 0; n < are.size(); n++) {
        file = dir / std::to_string(n);
        expect_plain(are[n]);
    }
    EXPECT_TRUE(names_in(dir / ".ato").empty());
}

INSTANTIATE_TEST_SUITE_P(Operations, FailingMedium, testing::ValuesIn(operations),
                         [](const auto &info) { return std::string(info.param.name); });

// ---- an eager transaction -----------------------------------------------------------------------

// False: it has no n-th sync.
bool fail_at_sync(size_t n)
{
    TempDir dir;
    const std::string file = dir / "file";
    const Bytes bytes = pattern(5000, 7), after = over(over(OLD, 100, bytes), 3 * 4096, bytes);
    size_t seen;
    bool done;
    write_file(file, OLD);
    {
        Mapped m(file, wish());
        ato_tx *tx = ato_tx_begin(0);
        for (size_t at : {100, 3 * 4096})
            EXPECT_TRUE(ato_tx_memcpy(tx, m.base + at, bytes.data(), bytes.size(), ATO_EAGER));
        Syncs syncs([=](size_t i) { return i == n; });
        done = ato_tx_commit(tx) == 0;
        seen = syncs.seen;
        EXPECT_TRUE(done || ato_tx_abort(tx) == 0) << ato_errormsg();
    }
    const Bytes is = Mapped(file, wish()).read();
    EXPECT_TRUE(is == after || (is == OLD && !done)) << "sync " << n;
    return seen > n;
}

TEST(FailingMediumOfATransaction, LeavesAnEagerOneWhole)
{
    size_t n = 0;
    while (fail_at_sync(n) && !testing::Test::HasFailure())
        n++;
    EXPECT_EQ(n, 4u); // the log, and a checkpoint
}

// ---- a disk that fails --------------------------------------------------------------------------

// The disk is thin: an ext4 on a loop device whose file is on a tmpfs with less space than the disk has. It keeps no
// blocks of zeros. When that space is used up, the kernel's write-back to new blocks, and to blocks that had only zeros,
// fails with EIO (ENOSPC in newer kernels). With new space the medium works again. Blocks are as large as pages, as
// those of the tmpfs: a loop device takes a short write for a complete one. Device-mapper, nbd, a null block device and
// fault injection are missing in the kernels of many containers; a loop device needs only root.
struct ThinDisk {
    TempDir dir{"/tmp"};
    const std::string pool = dir / "pool", disk = dir / "disk";
    const std::string file = disk + "/file", twin = disk + "/twin", ballast = pool + "/ballast";

    bool mounted()
    {
        return alone() && mount_memory(pool, "size=40m") &&
               mount_disk(pool + "/image", disk, 128, "-b 4096 -O ^has_journal");
    }
    void leave(off_t pages)
    {
        syncfs(Fd(disk, O_RDONLY));
        ASSERT_TRUE(run_in(pool, "fallocate --dig-holes image"));
        fill(ballast);
        ASSERT_EQ(truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast)) - pages * 4096),
                  0);
    }
    // The kernel keeps an error that it has not reported for the next process that opens the file. It is
    // taken here, so that the next map gets only later errors.
    void heal()
    {
        ASSERT_EQ(unlink(ballast.c_str()), 0);
        for (auto &entry : std::filesystem::recursive_directory_iterator(disk))
            if (entry.is_regular_file())
                fsync(Fd(entry.path()));
    }
};

// The naive way.
void expect_lost_without_a_word(const ThinDisk &t)
{
    char *plain = plain_map(t.twin, SIZE);
    std::copy(NEWS.begin(), NEWS.end(), plain);
    EXPECT_EQ(msync(plain, SIZE, MS_SYNC), -1);
    EXPECT_EQ(msync(plain, SIZE, MS_SYNC), 0) << "the kernel reports no error";
    munmap(plain, SIZE);
    posix_fadvise(Fd(t.twin), 0, 0, POSIX_FADV_DONTNEED);
    EXPECT_NE(read_file(t.twin), NEWS);
}

// More than the log has room for at first, so that it gets longer. With `deploys` each fourth write is brought home.
// True: the medium failed, as it has to.
bool write_until_it_fails(Mapped &m, bool deploys, Bytes *acknowledged, Bytes *doubtful)
{
    static const size_t lengths[] = {64, 4096, 700, 9000};
    for (unsigned i = 0; i < 100; i++) {
        const size_t n = lengths[i % 4], at = i * 7919 * 64 % (m.length - n);
        *doubtful = over(*acknowledged, at, pattern(n, i + 10));
        if (!m.write(at, pattern(n, i + 10)))
            return true;
        *acknowledged = *doubtful;
        if (deploys && i % 4 == 3 && !deploy(m))
            return true;
    }
    return false;
}

// No block of it is on the disk.
void make_hole(const std::string &file, off_t length)
{
    write_file(file, Bytes());
    EXPECT_EQ(truncate(file.c_str(), length), 0);
}

// Fills the ring, but for a few blocks, so that the disk keeps its blocks.
void wear_log(Mapped &m, Bytes *acknowledged)
{
    for (unsigned i = 0; i < 27; i++)
        EXPECT_TRUE(m.write(0, pattern(9000, i))) << m.sentence;
    EXPECT_TRUE(deploy(m)) << m.sentence;
    *acknowledged = over(*acknowledged, 0, pattern(9000, 26));
}

// Only the log has to get blocks on the disk: a commit fails, or the step that makes the log longer. With `deploys` it is
// nearly only the file: a checkpoint fails. The file is a hole then, so that its pages are in the page cache one by one: a large
// folio would be written as a whole, which the loop device may do in part.
void fail_and_heal(ThinDisk &t, off_t pages, bool deploys)
{
    const off_t n = 160 * 4096;
    Bytes acknowledged = deploys ? Bytes(n) : pattern(n, 1), doubtful;
    if (deploys)
        make_hole(t.file, n);
    else
        write_file(t.file, acknowledged);
    EXPECT_EQ(fsync(Fd(t.file)), 0);
    make_hole(t.twin, SIZE);
    Mapped m(t.file, wish());
    ASSERT_TRUE(m) << m.sentence;
    if (deploys)
        wear_log(m, &acknowledged);
    t.leave(pages);
    if (pages == 0)
        expect_lost_without_a_word(t);
    ASSERT_TRUE(write_until_it_fails(m, deploys, &acknowledged, &doubtful))
        << "the medium does not fail here";
    EXPECT_EQ(m.error, EIO) << m.sentence;
    EXPECT_TRUE(has(m.sentence, t.disk)) << m.sentence;
    expect_poisoned(m, t.file);
    t.heal();
    expect_poisoned(m, t.file); // although the kernel has forgotten the error
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    Mapped again(t.file, wish());
    ASSERT_TRUE(again) << again.sentence;
    const Bytes now = again.read();
    EXPECT_TRUE(now == acknowledged || now == doubtful) << "lost or torn";
    EXPECT_TRUE(again.write(100, pattern(9000, 3))) << again.sentence;
    EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
    EXPECT_EQ(read_file(t.file), over(now, 100, pattern(9000, 3)));
    EXPECT_TRUE(names_in(folder_of(t.file)).empty());
}

// With more and more space the error comes later and later.
TEST(FailingDisk, LosesNoAcknowledgedWrite)
{
    for (bool deploys : {false, true})
        for (off_t pages : {0, 1, 2, 4, 16, 32, 64, 80}) {
            SCOPED_TRACE(std::to_string(pages) + " pages still fit on the disk, " +
                         (deploys ? "deployed" : "not deployed"));
            int status = in_child([&] { // a disk with only new blocks
                ThinDisk t;
                if (!t.mounted())
                    return NO_SCENE;
                fail_and_heal(t, pages, deploys);
                return static_cast<int>(testing::Test::HasFailure());
            });
            EXPECT_PLAYED(status);
        }
}

// What is read from the page cache may be on no disk, although a sync succeeds: it failed before. A power cut must not find the file
// changed, and the record gone.
void recover_what_no_disk_has(ThinDisk &t)
{
    write_file(t.file, OLD);
    EXPECT_EQ(fsync(Fd(t.file)), 0);
    Mapped m(t.file, wish());
    ASSERT_TRUE(m) << m.sentence;
    t.leave(0);
    ASSERT_FALSE(m.write(100, pattern(9000, 3))) << "the medium does not fail here";
    EXPECT_EQ(m.error, EIO) << m.sentence;
    t.heal();
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    const std::string log = reflection_of(t.file);
    bool synced = false, looked = false;
    FsFaults recovery;
    recovery.before = [&](const FsCall &c) {
        if (synced && !looked && c.op == std::string("pwrite")) { // the first one to the file
            looked = true;
            const Bytes cached = read_file(log);
            posix_fadvise(Fd(log), 0, 0, POSIX_FADV_DONTNEED);
            EXPECT_EQ(read_file(log), cached) << "the disk has something else";
        }
        synced = synced || c.op == std::string("fdatasync");
        return GO_ON;
    };
    Mapped again(t.file, wish());
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_TRUE(looked);
    EXPECT_EQ(again.read(), over(OLD, 100, pattern(9000, 3)));
}

TEST(FailingDisk, ARecordIsOnTheDiskBeforeItIsBroughtHome)
{
    EXPECT_PLAYED(in_child([] {
        ThinDisk t;
        if (!t.mounted())
            return NO_SCENE;
        recover_what_no_disk_has(t);
        return static_cast<int>(testing::Test::HasFailure());
    }));
}

} // namespace
