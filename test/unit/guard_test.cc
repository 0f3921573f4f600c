// SPDX-License-Identifier: BSD-3-Clause
//
// Do other programs see the mask in place of guarded bytes until the file is plain, and the guarded
// bytes after that? Also after a crash on the way to a plain file, and never over bytes that
// another program wrote.
#include "model/rig.h"
#include "support/child.h"
#include "support/dying.h"
#include "support/faults.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/format/manifest.h"

#include "ato_engine.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 5 * 4096 + 100;

struct Where {
    int domain;
    uint64_t at;
    size_t n;
};

class Guard : public testing::TestWithParam<Where>
{
  protected:
    Guard()
        : at(GetParam().at), n(GetParam().n), path(dir / "file"), content(pattern(SIZE, 1)),
          masked(content)
    {
        write_file(path, content);
        std::fill_n(masked.begin() + static_cast<long>(at), n, 0xee);
    }

    ato_options wish() const
    {
        return options(GetParam().domain, ATO_READ_GATHER, ATO_NO_RTM);
    }

    Bytes plain() const
    {
        return Bytes(content.begin() + static_cast<long>(at),
                     content.begin() + static_cast<long>(at + n));
    }

    bool guard(Mapped &m) const
    {
        return ato_set_guard(m.base, static_cast<off_t>(at), plain().data(), n) == 0 &&
               m.write(at, Bytes(n, 0xee), ATO_EAGER);
    }

    // A process sets a guard and a mask, and dies before the call `op` on the way to a plain file.
    // For unlinkat() it is the call that removes the reflection.
    int die_becoming_plain(const std::string &op) const
    {
        return in_child([&] {
            Mapped m(path, wish());
            if (!guard(m))
                return 1;
            FsFaults faults;
            faults.before = [&](const FsCall &c) {
                bool there = op != "unlinkat" || isdigit(c.name[0]);
                return c.op == op && there ? DIE : GO_ON;
            };
            return m.unmap(ATO_UNMAP_SPATIAL);
        });
    }

    // The bytes that other programs read at the place of the guard.
    Bytes seen() const
    {
        return read_at(path, at, n);
    }

    const uint64_t at;
    const size_t n;
    TempDir dir;
    std::string path;
    Bytes content, masked;
};

INSTANTIATE_TEST_SUITE_P(
    Places, Guard,
    testing::Values(Where{ATO_DOMAIN_PMEM, 18, 2}, Where{ATO_DOMAIN_EADR, 0, 16},
                    Where{ATO_DOMAIN_DISK, 4096 - 7, 16}, Where{ATO_DOMAIN_PROCESS, 5000, 1},
                    Where{ATO_DOMAIN_PMEM, SIZE - 5, 5}, Where{ATO_DOMAIN_DISK, SIZE - 16, 16}));

// Without a guard, a program that reads the file past libato gets bytes that are not its content.
TEST_P(Guard, OthersSeeTheMaskUntilTheFileIsPlain)
{
    {
        Mapped m(path, wish());
        ASSERT_TRUE(m.write(at, Bytes(n, 0x11)));
        if (GetParam().domain !=
            ATO_DOMAIN_DISK) { // there the file itself has all that is committed
            EXPECT_EQ(seen(), plain()) << "stale bytes that look valid";
        }
        ASSERT_TRUE(m.write(at, plain()));
    }
    Mapped m(path, wish());
    ASSERT_TRUE(guard(m)) << ato_errormsg();
    EXPECT_EQ(seen(), Bytes(n, 0xee));
    EXPECT_EQ(m.read(), masked);
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(seen(), Bytes(n, 0xee));
    {
        Mapped again(path, wish());
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), masked);
        ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
    }
    EXPECT_EQ(read_file(path), content);
    Mapped plain_again(path, wish()); // the guard went with the reflection
    ASSERT_TRUE(plain_again.write(at, Bytes(n, 0x22)));
    ASSERT_EQ(plain_again.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(seen(), Bytes(n, 0x22));
}

TEST_P(Guard, CanBeReplacedAndRemoved)
{
    Mapped m(path, wish());
    ASSERT_TRUE(guard(m));
    struct ato_stat st = m.stat();
    EXPECT_EQ(st.guard_offset, at);
    EXPECT_EQ(Bytes(st.guard_plain, st.guard_plain + st.guard_bytes), plain());
    ASSERT_TRUE(guard(m)); // the same once more
    // A caller that takes the masked bytes for the plain ones would lose the plain ones.
    EXPECT_EQ(ato_set_guard(m.base, static_cast<off_t>(at), Bytes(n, 0xee).data(), n), -1);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_NE(std::string(ato_errormsg()).find(path), std::string::npos) << ato_errormsg();
    EXPECT_EQ(ato_set_guard(m.base, 4090, "ABCDEF", 6), -1);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_EQ(m.stat().reads, 0u);
    // Other plain bytes at the same place are allowed.
    ASSERT_EQ(ato_set_guard(m.base, static_cast<off_t>(at), Bytes(n, 0x33).data(), n), 0);
    EXPECT_EQ(m.stat().guard_plain[0], 0x33);
    ASSERT_EQ(ato_set_guard(m.base, 0, nullptr, 0), 0);
    EXPECT_EQ(m.stat().guard_bytes, 0u);
    ASSERT_EQ(ato_set_guard(m.base, 4090, "ABCDEF", 6), 0);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    Bytes expected = masked;
    std::copy_n("ABCDEF", 6, expected.begin() + 4090);
    EXPECT_EQ(read_file(path), expected);
    write_file(path, content);
    Mapped again(path, wish());
    ASSERT_TRUE(guard(again));
    ASSERT_EQ(ato_set_guard(again.base, 0, nullptr, 0), 0);
    ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(path), masked);
}

TEST_P(Guard, ArgumentsAreChecked)
{
    Mapped m(path, wish());
    char here[17] = {};
    auto refused = [&](void *addr, off_t offset, size_t bytes, int error) {
        EXPECT_EQ(ato_set_guard(addr, offset, here, bytes), -1);
        EXPECT_EQ(errno, error) << ato_errormsg();
    };
    refused(here, 0, 1, EINVAL);
    refused(m.base, 0, 17, EINVAL);
    refused(m.base, -1, 1, EINVAL);
    refused(m.base, INT64_MAX, 4, EINVAL);
    Fd reading(path, O_RDONLY);
    void *view = ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, reading, 0);
    refused(view, 0, 1, EACCES);
    EXPECT_EQ(ato_munmap(view, SIZE, ATO_UNMAP_FAST), 0);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(path), content);
}

TEST_P(Guard, StaysAtItsOffsetWhenTheFileGrows)
{
    Mapped m(path, wish());
    ASSERT_TRUE(guard(m));
    ASSERT_EQ(ato_ftruncate(m.base, SIZE + 5000), 0) << ato_errormsg();
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    content.resize(SIZE + 5000);
    EXPECT_EQ(read_file(path), content);
}

TEST_P(Guard, GivenToTheMapIsThatOfAFileWithoutOne)
{
    const Bytes given = plain(), others(n, 0x44);
    ato_options o = wish();
    o.guard_offset = static_cast<off_t>(at);
    o.guard_plain = given.data();
    o.guard_bytes = 17;
    EXPECT_EQ(Mapped(path, o).error, EINVAL);
    o.guard_bytes = n;
    {
        Mapped m(path, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.stat().guard_offset, at);
        ASSERT_TRUE(m.write(at, Bytes(n, 0xee), ATO_EAGER)) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
    }
    o.guard_plain = others.data();
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.stat().guard_bytes, n);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
}

// Other programs may have written to them meanwhile.
TEST_P(Guard, BytesOfAFileWithoutAMaskStay)
{
    Mapped m(path, wish());
    ASSERT_EQ(ato_set_guard(m.base, static_cast<off_t>(at), plain().data(), n), 0);
    Bytes theirs = plain();
    for (size_t i = 1; i < n; i++)
        theirs[i] = static_cast<unsigned char>(~theirs[i]);
    write_at(path, at, theirs.data(), n);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(seen(), theirs);
}

TEST_P(Guard, PlainBytesGivenToTheUnmapReplaceThoseOfTheGuard)
{
    const Bytes others(n, 0x44);
    for (const bool guarded : {true, false}) {
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_TRUE(!guarded || guard(m)) << m.sentence;
        ato_unmap_options o = {};
        o.struct_size = sizeof(o);
        o.mode = ATO_UNMAP_SPATIAL;
        o.guard_plain = others.data();
        EXPECT_EQ(ato_munmap_opt(m.base, m.length, &o), 0) << ato_errormsg();
        m.base = nullptr;
        EXPECT_EQ(seen(), guarded ? others : plain());
    }
}

TEST_P(Guard, PlainBytesGivenToAFastUnmapAreIgnored)
{
    const Bytes others(n, 0x44);
    {
        Mapped m(path, wish());
        ASSERT_TRUE(guard(m)) << m.sentence;
        ato_unmap_options o = {};
        o.struct_size = sizeof(o);
        o.mode = ATO_UNMAP_FAST;
        o.guard_plain = others.data();
        EXPECT_EQ(ato_munmap_opt(m.base, m.length, &o), 0) << ato_errormsg();
        m.base = nullptr;
    }
    Mapped m(path, wish());
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(seen(), plain());
}

// The guard of a new file is set before the file has the guarded bytes.
TEST_P(Guard, BehindTheEndIsPutBackIfTheFileHasGrown)
{
    for (const size_t size : {SIZE, SIZE + 100}) {
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_EQ(ato_set_guard(m.base, SIZE, "plain", 5), 0) << ato_errormsg();
        if (size > SIZE) {
            ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(size)), 0) << ato_errormsg();
        }
        Log log;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        Bytes expected = content;
        if (size > SIZE) {
            expected.resize(size);
            std::copy_n("plain", 5, expected.begin() + SIZE);
        }
        EXPECT_EQ(read_file(path), expected);
        EXPECT_FALSE(log.has(ATO_LOG_WARNING, "guarded"));
    }
}

TEST_P(Guard, IsNamedInTheWarningWhenItIsDropped)
{
    {
        Mapped m(path, wish());
        ASSERT_TRUE(guard(m));
    }
    write_at(path, 10000, "x", 1);
    ato_options o = wish();
    o.flags |= ATO_PREFER_FILE;
    Log log;
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, std::to_string(n) + " at " + std::to_string(at)));
    EXPECT_EQ(m.read(at, n), Bytes(n, 0xee));
    EXPECT_EQ(m.stat().guard_bytes, 0u);
}

// A crash leaves a plain file that still has its attribute; another program writes to it.
TEST_P(Guard, BytesThatAnotherProgramWroteAfterACrashStay)
{
    ASSERT_EQ(die_becoming_plain("fremovexattr"), CUT);
    EXPECT_EQ(read_file(path), content);
    write_at(path, at + n - 1, "\x77", 1); // one of the guarded bytes
    Bytes theirs = seen();
    Log log;
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "another program wrote to the guarded bytes"));
    EXPECT_EQ(m.read(at, n), theirs);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(seen(), theirs);
}

// The same, and another program truncates the file: its guard does not make it longer.
TEST_P(Guard, FileThatAnotherProgramTruncatedAfterACrashStaysTruncated)
{
    ASSERT_EQ(die_becoming_plain("fremovexattr"), CUT);
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(at + n - 1)), 0);
    Bytes cut = read_file(path);
    {
        Mapped m(path, wish(), at + n > 1 ? 0 : 1);
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    }
    EXPECT_EQ(read_file(path), cut);
}

TEST_P(Guard, OfTwoThreadsAtOnceOneIsSetAndTheOtherIsEexist)
{
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    for (unsigned turn = 0; turn < rig::rounds(200); turn++) {
        std::atomic<int> ready{0};
        int results[2], errors[2];
        auto set = [&](int i) {
            for (ready++; ready < 2;)
                ;
            results[i] = ato_set_guard(m.base, 64 * i, "plain", 5);
            errors[i] = errno;
        };
        std::thread other(set, 1);
        set(0);
        other.join();
        ASSERT_EQ(results[0] + results[1], -1) << turn;
        ASSERT_EQ(errors[results[0] ? 0 : 1], EEXIST);
        ASSERT_EQ(ato_set_guard(m.base, 0, nullptr, 0), 0) << ato_errormsg();
    }
}

// A crash after the removal of the attribute: another program may have written the file, even bytes
// that equal the mask.
TEST_P(Guard, IsNotPutBackAgainInAFileWithoutItsAttribute)
{
    ASSERT_EQ(die_becoming_plain("unlinkat"), CUT);
    ASSERT_EQ(attribute_of(path), "");
    write_at(path, at, Bytes(n, 0xee).data(), n); // another program's bytes
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(at, n), Bytes(n, 0xee));
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(seen(), Bytes(n, 0xee));
}

// A power cut after the removal of the attribute may have lost the plain bytes.
TEST_P(Guard, IsPutBackAfterARestartAlthoughTheAttributeIsGone)
{
    ASSERT_EQ(die_becoming_plain("unlinkat"), CUT);
    ASSERT_EQ(attribute_of(path), "");
    write_at(path, at, Bytes(n, 0xee).data(), n); // what was lost
    edit_manifest(path, [](manifest_record &record) { record.boot_id[0]++; });
    Mapped m(path, wish());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(path), content);
}

// Another program removes the attribute while the file is mapped.
TEST_P(Guard, IsPutBackAlthoughTheAttributeWasRemoved)
{
    Mapped m(path, wish());
    ASSERT_TRUE(guard(m));
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    EXPECT_EQ(read_file(path), content);
}

TEST_P(Guard, IsPutBackByTheNextMapIfTheUnmapFails)
{
    for (const char *op : {"fallocate", "fremovexattr", "unlinkat"}) {
        SCOPED_TRACE(op);
        write_file(path, content);
        Mapped m(path, wish());
        ASSERT_TRUE(guard(m));
        {
            FsFaults faults;
            faults.fail_op(op, ENOSPC);
            EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), -1);
            EXPECT_EQ(m.error, ENOSPC);
        }
        m.base = nullptr; // unmapped, as ato.h says
        Mapped again(path, wish());
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), content);
        ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0);
        EXPECT_EQ(read_file(path), content);
    }
}

} // namespace
