// SPDX-License-Identifier: BSD-3-Clause
//
// In which state is a file after a growth that failed, or that a crash cut before another program
// changed the file? (A crash at each step of a growth, without another program: events_test.cc.)
#include "growth_lab.h"

#include <cerrno>

#include <unistd.h>

using namespace growth_lab;

namespace
{

// The length of the file looks like that of a growth that a crash cut: without the growth word the
// library would truncate the file.
TEST_P(Growth, FileThatAnotherProgramChangedAfterACrashIsNotTruncated)
{
    bool returned;
    auto expect_kept = [&](uint64_t size) {
        Bytes before = read_file(path);
        Mapped m(path, wish());
        ASSERT_FALSE(m);
        EXPECT_EQ(m.error, ESTALE);
        EXPECT_NE(m.sentence.find("another program extended or replaced it"), std::string::npos)
            << m.sentence;
        EXPECT_EQ(size_of(path), size);
        EXPECT_EQ(read_file(path), before);
    };
    cut_growth<FsFaults>(path, wish(), content, LONGER, last_before_size(GetParam()), &returned);
    ASSERT_EQ(size_of(path), LONGER);
    ASSERT_FALSE(returned);
    write_at(path, LONGER - 1, "x", 1);
    expect_kept(LONGER);
    ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
    ASSERT_EQ(truncate(path.c_str(), LONGER + 1), 0);
    expect_kept(LONGER + 1);
    ASSERT_EQ(truncate(path.c_str(), SIZE), 0);
    ASSERT_EQ(truncate(path.c_str(), LONGER - 1), 0);
    write_at(path, LONGER - 2, "x", 1);
    expect_kept(LONGER - 1);
}

// Another program appends zeros, and a growth to the same length succeeds. If a crash cuts that
// growth, the file keeps the length, also if the program truncates it and appends the zeros again.
TEST_P(Growth, ZerosThatAnotherProgramAppendedAreNeverTruncated)
{
    const uint64_t before = 5 * 4096 + 128;
    content = pattern(before, 1);
    bool returned = false;
    auto grow_after_append = [&](long k) {
        write_file(path, content);
        return in_child([&] {
            Mapped m(path, wish());
            if (!m || !m.write(100, Bytes(content.begin() + 100, content.begin() + 200)) ||
                truncate(path.c_str(), LONGER) < 0)
                return 1;
            FsFaults faults;
            faults.cut_at(k);
            return ato_ftruncate(m.base, LONGER) == 0 ? 0 : 2;
        });
    };
    for (long k = 0; !returned && k < 100; k++) {
        SCOPED_TRACE(k);
        const int status = grow_after_append(k);
        ASSERT_NE(status, 1);
        ASSERT_NE(status, 2) << "the length that the file has is refused";
        returned = status == 0;
        if (!returned) {
            ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(before)), 0);
            ASSERT_EQ(truncate(path.c_str(), LONGER), 0);
            {
                Mapped m(path, wish());
            }
            ASSERT_EQ(size_of(path), LONGER);
            ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(before)), 0);
            Mapped m(path, wish());
            ASSERT_TRUE(m) << m.sentence;
            ASSERT_EQ(m.read(), content);
            ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        }
    }
    ASSERT_TRUE(returned);
    expect_in_order(grown(content, LONGER));
}

// Bytes that lie behind the end of the file before a growth are not its content after a crash.
TEST_P(Growth, GarbageBehindTheEndIsTruncatedAfterACrashOfAGrowth)
{
    for (bool in_r : {false, true}) {
        SCOPED_TRACE(in_r);
        write_file(path, content);
        int status = in_child([&] {
            Mapped m(path, wish());
            if (!m || (in_r && !m.write(SIZE - 5, Bytes(content.end() - 5, content.end()))))
                return 1;
            store_behind(path, SIZE, 3000);
            PersistFaults faults;
            faults.before = [&](const PersistCall &) {
                return size_of(path) == LONGER ? DIE : GO_ON;
            };
            return ato_ftruncate(m.base, LONGER);
        });
        ASSERT_EQ(status, CUT);
        Mapped m(path, wish_to_grow(), SIZE);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(path), content);
    }
}

// No call reads or writes beyond the old end before the new end is durable.
TEST_P(Growth, NewSizeIsNotSeenBeforeItIsDurable)
{
    DENSE_ONLY("counts calls of a dense reflection");
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    long stores = 0;
    {
        PersistFaults faults;
        faults.before = [&](const PersistCall &c) {
            stores += std::string(c.op) == "store_word";
            EXPECT_EQ(m.stat().size, SIZE) << c.op;
            return GO_ON;
        };
        ASSERT_EQ(ato_ftruncate(m.base, LONGER), 0) << ato_errormsg();
    }
    EXPECT_EQ(stores, 2); // growth word, size word
    EXPECT_EQ(m.stat().size, LONGER);
}

TEST_P(Growth, FailureOfAnyCallIsReportedAndTheNextGrowthSucceeds)
{
    for (long k = 0;; k++) {
        SCOPED_TRACE("call " + std::to_string(k));
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.read(), content);
        int r;
        std::string failed;
        {
            FsFaults faults;
            faults.fail_at(k, ENOSPC);
            r = ato_ftruncate(m.base, LONGER);
            failed = r < 0 ? faults.calls.at(static_cast<size_t>(k)) : "";
        }
        if (r == 0) {
            EXPECT_GE(k, 4); // two lengths, two syncs
            break;
        }
        if (failed.find("sync") != std::string::npos) {
            EXPECT_EQ(errno, EIO);
            EXPECT_EQ(m.read(0, 10), Bytes());
            ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
            // The record of the growth is in the log, if it has one: the next map decides.
            ASSERT_TRUE(Mapped(path, wish_to_grow(), SIZE));
            EXPECT_EQ(size_of(path), failed.rfind("fdatasync", 0) == 0 ? LONGER : SIZE);
            ASSERT_NO_FATAL_FAILURE(expect_in_order(grown(content, size_of(path))));
            continue;
        }
        EXPECT_EQ(errno, ENOSPC);
        EXPECT_NE(std::string(ato_errormsg()).find(path), std::string::npos) << ato_errormsg();
        EXPECT_EQ(m.stat().size, SIZE);
        EXPECT_EQ(m.read(), content);
        ASSERT_EQ(ato_ftruncate(m.base, LONGER + 5000), 0) << ato_errormsg();
        EXPECT_EQ(m.read(0, LONGER + 5000), grown(content, LONGER + 5000));
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(path), grown(content, LONGER + 5000));
    }
}

// A growth first truncates the rest of a growth that failed, and syncs: that may fail, too.
TEST_P(Growth, SyncThatFailsAfterAGrowthThatFailedIsEio)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    {
        FsFaults faults;
        faults.before = [](const FsCall &c) {
            return std::string(c.op) == "ftruncate" ? ENOSPC : GO_ON;
        };
        ASSERT_EQ(ato_ftruncate(m.base, LONGER), -1);
        EXPECT_EQ(errno, ENOSPC);
    }
    {
        FsFaults faults;
        faults.fail_op("fsync", EDQUOT); // any error
        ASSERT_EQ(ato_ftruncate(m.base, LONGER), -1);
        EXPECT_EQ(errno, EIO);
    }
    EXPECT_EQ(m.read(0, 10), Bytes());
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    expect_in_order(content);
}

// All later calls but syncs fail too, including those that undo the growth.
TEST_P(Growth, FileKeepsItsLengthIfAFailedGrowthCannotBeUndone)
{
    for (int mode : {ATO_UNMAP_FAST, ATO_UNMAP_SPATIAL}) {
        for (long k = 0;; k++) {
            SCOPED_TRACE("from call " + std::to_string(k) + ", mode " + std::to_string(mode));
            write_file(path, content);
            Mapped m(path, wish());
            ASSERT_TRUE(m) << m.sentence;
            int r;
            {
                FsFaults faults;
                faults.before = [&](const FsCall &c) {
                    const bool syncs = std::string(c.op).find("sync") != std::string::npos;
                    return c.index >= k && !syncs ? ENOSPC : GO_ON;
                };
                r = ato_ftruncate(m.base, LONGER);
            }
            ASSERT_EQ(m.unmap(mode), 0) << m.sentence;
            EXPECT_EQ(size_of(path), r == 0 ? LONGER : SIZE);
            ASSERT_NO_FATAL_FAILURE(expect_in_order(grown(content, size_of(path))));
            if (r == 0)
                break;
        }
    }
}

// As after any failure of the medium: the file is poisoned, and the next map finds the old size or
// the new one.
TEST(GrowthOnDisk, FailureOfTheMediumPoisonsTheFile)
{
    const ato_options o = options(ATO_DOMAIN_DISK, ATO_READ_GATHER);
    ato_options to_grow = o;
    to_grow.max_size = 1 << 24;
    TempDir dir;
    const std::string path = dir / "file";
    for (const size_t length : {SIZE, size_t(5 * 4096)}) // nothing is cleared at a page's end
        for (long k = 1;; k++) {
            SCOPED_TRACE("sync " + std::to_string(k) + " of " + std::to_string(length));
            const Bytes content = pattern(length, 1);
            write_file(path, content);
            Mapped m(path, o);
            ASSERT_TRUE(m) << m.sentence;
            int r;
            {
                FailingSync fails(k);
                r = ato_ftruncate(m.base, LONGER);
            }
            if (r == 0) {
                EXPECT_EQ(k, 4); // growth word, length, record
                ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
                break;
            }
            EXPECT_EQ(errno, EIO);
            EXPECT_EQ(m.read(0, 10), Bytes());
            EXPECT_EQ(m.error, EIO);
            Bytes manifest = read_file(manifest_of(path)), log = read_file(reflection_of(path));
            EXPECT_EQ(ato_ftruncate(m.base, LONGER), -1);
            EXPECT_EQ(errno, EIO);
            EXPECT_EQ(read_file(manifest_of(path)), manifest)
                << "the manifest of a poisoned file was written";
            EXPECT_EQ(read_file(reflection_of(path)), log);
            EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
            Mapped again(path, to_grow, 1);
            ASSERT_TRUE(again) << again.sentence;
            uint64_t size = again.stat().size;
            EXPECT_TRUE(size == length || (k == 3 && size == LONGER)) << size;
            EXPECT_EQ(again.read(0, size), grown(content, size));
            EXPECT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
        }
}

} // namespace
