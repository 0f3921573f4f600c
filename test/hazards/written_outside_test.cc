// SPDX-License-Identifier: BSD-3-Clause
//
// Somebody wrote to a file that was not plain. Its bytes and those in the reflection are of
// different times then: who puts them together gets neither. Noticed by size and mtime, as far as
// they were kept.
#include "naive.h"
#include "support/child.h"

#include <functional>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

class WrittenOutside : public Hazard
{
  protected:
    // Killed with slices in the reflection: no times are kept.
    void die_with_slices()
    {
        ASSERT_EQ(in_child([&] {
                      Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                      if (!m || !m.write(4500, pattern(3000, 2)))
                          return 1;
                      m.base = nullptr;
                      return 0;
                  }),
                  0);
        std::copy_n(pattern(3000, 2).begin(), 3000, content.begin() + 4500);
    }

    // Theirs, with slices of before in it: which is what everybody gets.
    void expect_mix_unseen()
    {
        Bytes mix = by_number(path);
        EXPECT_NE(mix, theirs);
        expect_garbage(mix);
        Mapped m(path);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), mix);
    }

    const Bytes theirs = pattern(SIZE, 8);
};

TEST_F(WrittenOutside, WhileFastUnmappedIsAnErrorUnlessOneSideIsPreferred)
{
    for (unsigned flag : {ATO_PREFER_FILE, ATO_PREFER_REFLECTION}) {
        SCOPED_TRACE(flag);
        write_file(path, old);
        content = old;
        leave_slices();
        write_file(path, theirs); // in place
        Bytes mix = by_number(path);
        EXPECT_NE(mix, theirs) << "what they wrote is lost in part";
        expect_garbage(mix);
        for (int i = 0; i < 2; i++)
            expect_no(path, ESTALE, {path, "written by other means", reflection_of(path)});
        {
            Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), flag == ATO_PREFER_FILE ? theirs : mix) << "as it was asked for";
            ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
    }
}

// One byte, in a slice that is valid in the reflection: it would vanish without a trace.
TEST_F(WrittenOutside, ByteThatWouldVanishIsNoticed)
{
    leave_slices();
    Bytes before = by_number(path);
    unsigned char byte = static_cast<unsigned char>(read_at(path, 4000, 1)[0] ^ 0xff);
    write_at(path, 4000, &byte, 1);
    EXPECT_EQ(by_number(path), before) << "nobody would see it";
    expect_no(path, ESTALE, {path});
}

TEST_F(WrittenOutside, CutOrGrownWhileFastUnmappedIsAnErrorThatTellsBothSizes)
{
    for (size_t size : {size_t(5000), SIZE + 5000}) {
        SCOPED_TRACE(size);
        TempDir own;
        path = own / "file";
        write_file(path, old);
        content = old;
        leave_slices();
        fs::resize_file(path, size);
        EXPECT_NE(by_number(path), read_file(path)); // slices on what was cut, or zeros under bits
        expect_garbage(by_number(path));
        Everything before(own.path());
        for (unsigned flag : {0u, ATO_PREFER_REFLECTION}) {
            Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag));
            ASSERT_FALSE(m);
            EXPECT_EQ(m.error, ESTALE) << m.sentence;
            for (const std::string &word : {path, std::to_string(size), std::to_string(SIZE)})
                EXPECT_NE(m.sentence.find(word), std::string::npos) << m.sentence;
        }
        EXPECT_TRUE(before == Everything(own.path()));
    }
}

// mtime is what counts: a write whose size is the same has no other trace.
TEST_F(WrittenOutside, TimeThatMovedIsAnErrorAndPutBackItIsNone)
{
    leave_slices();
    struct timespec kept[2] = {{0, UTIME_OMIT}, stat_of(path).st_mtim};
    struct timespec moved[2] = {kept[0], {kept[1].tv_sec, kept[1].tv_nsec ^ 1}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), moved, 0), 0);
    expect_no(path, ESTALE, {path});
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), kept, 0), 0);
    expect_maps(path);
}

// Who looks at ctime sees a change in each of these, and refuses a file that nobody wrote to.
TEST_F(WrittenOutside, RenameLinkAndModeAreNoWrites)
{
    leave_slices();
    std::string twin = dir / "twin", other = dir / "other";
    auto ctime_of = [](const std::string &p) {
        struct timespec t = stat_of(p).st_ctim;
        return std::make_pair(t.tv_sec, t.tv_nsec);
    };
    const std::vector<std::function<void()>> changes = {
        [&] { ASSERT_EQ(chmod(path.c_str(), 0600), 0); }, [&] { fs::create_hard_link(path, twin); },
        [&] { fs::remove(twin); },
        [&] {
            fs::rename(path, other);
            path = other;
        },
        [&] { ASSERT_EQ(chown(path.c_str(), geteuid(), getegid()), 0); }};
    for (const auto &change : changes) {
        auto before = ctime_of(path);
        wait_for_clock(path, dir / "clock");
        change();
        EXPECT_GT(ctime_of(path), before);
        expect_stale(read_file(path));
        expect_maps(path);
    }
}

// ---- no times were kept -------------------------------------------------------------------------

TEST_F(WrittenOutside, AfterAKillACutFileIsAnError)
{
    die_with_slices();
    fs::resize_file(path, 5000);
    expect_garbage(by_number(path));
    expect_no(path, ESTALE, {path, "5000", std::to_string(SIZE), "cut by other means"});
    expect_no(path, ESTALE, {path},
              options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_PREFER_REFLECTION));
}

TEST_F(WrittenOutside, AfterAKillAGrownFileIsAnError)
{
    die_with_slices();
    fs::resize_file(path, SIZE + 1);
    expect_garbage(by_number(path));
    expect_no(path, ESTALE, {path, std::to_string(SIZE + 1), "grew by other means"});
    fs::resize_file(path, SIZE); // and back: nothing was lost
    expect_maps(path);
}

// The limit, written down in ato(7): the same size cannot be seen. Slices in the reflection win.
TEST_F(WrittenOutside, AfterAKillAWriteOfTheSameSizeIsNotSeen)
{
    die_with_slices();
    write_file(path, theirs);
    expect_mix_unseen();
}

// Nor are stores through somebody's own mapping, whatever times the kernel gave the file.
TEST_F(WrittenOutside, StoresThroughAnOwnMappingAfterAKillAreNotSeen)
{
    die_with_slices();
    {
        Fd fd(path);
        void *view = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ASSERT_NE(view, MAP_FAILED);
        std::copy(theirs.begin(), theirs.end(), static_cast<unsigned char *>(view));
        ASSERT_EQ(munmap(view, SIZE), 0);
    }
    EXPECT_EQ(read_file(path), theirs);
    expect_mix_unseen();
}

} // namespace
