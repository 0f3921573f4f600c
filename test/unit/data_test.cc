// SPDX-License-Identifier: BSD-3-Clause
//
// Which copies are allowed, and what do they do? ato_memcpy() in its three directions,
// ato_memset(), ato_deploy(), ato_msync(): ranges, errors, and that a refused call changes nothing.
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 5 * 4096 + 300;

class Data : public testing::Test
{
  protected:
    Data() : path(dir / "file"), model(pattern(SIZE, 1))
    {
        write_file(path, model);
        m = std::make_unique<Mapped>(path);
        EXPECT_TRUE(*m) << m->sentence;
    }

    void expect_unchanged()
    {
        EXPECT_EQ(m->read(), model);
    }

    // The last call failed with `err` and a sentence with `words` in it; nothing changed.
    void expect_refused(bool failed, int err, const std::string &words)
    {
        int seen = errno;
        std::string sentence = ato_errormsg();
        EXPECT_TRUE(failed);
        EXPECT_EQ(seen, err) << sentence;
        EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
        expect_unchanged();
    }

    TempDir dir;
    std::string path;
    Bytes model;
    std::unique_ptr<Mapped> m;
};

TEST_F(Data, WritesAndReadsAnyRangeAndNothingBesideIt)
{
    for (size_t begin : {0, 1, 63, 64, 4000, 4095, 4096, 8191, 20479, 20779}) {
        for (size_t n : {1, 2, 63, 64, 65, 128, 4095, 4096, 4097, 12000}) {
            if (begin + n > SIZE)
                continue;
            Bytes bytes = pattern(n, static_cast<unsigned>(begin + n));
            ASSERT_TRUE(m->write(begin, bytes)) << m->sentence;
            std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<long>(begin));
            ASSERT_EQ(m->read(begin, n), bytes);
        }
    }
    expect_unchanged();
}

TEST_F(Data, UnalignedSourceAndDestinationBuffersAreFine)
{
    Bytes source = pattern(5000, 2);
    for (size_t shift : {0, 1, 7, 31}) {
        Bytes target(5100, 0xee);
        ASSERT_NE(ato_memcpy(m->base + 100, source.data() + shift, 4900), nullptr);
        ASSERT_EQ(ato_memcpy(target.data() + 50 + shift, m->base + 100, 4900),
                  target.data() + 50 + shift);
        EXPECT_EQ(memcmp(target.data() + 50 + shift, source.data() + shift, 4900), 0);
        EXPECT_EQ(target[49 + shift], 0xee);
        EXPECT_EQ(target[50 + shift + 4900], 0xee);
    }
}

TEST_F(Data, MemsetSetsItsRange)
{
    for (auto range : {std::pair<size_t, size_t>{0, 1}, {10, 100}, {4000, 9000}, {0, SIZE}}) {
        int c = static_cast<int>(range.second & 0xff);
        ASSERT_EQ(ato_memset(m->base + range.first, c + 256, range.second), m->base + range.first);
        memset(&model[range.first], c, range.second);
        expect_unchanged();
    }
}

TEST_F(Data, CopyFromMappingToMappingIsAMemmove)
{
    struct Case {
        size_t to, from, n;
    };
    for (Case c : {Case{0, 8192, 4096}, Case{8192, 0, 4096}, Case{100, 5000, 7000},
                   Case{5000, 100, 7000}, Case{4096, 4096, 4096}, Case{10, 11, 9000},
                   Case{11, 10, 9000}, Case{64, 0, 128}, Case{0, 64, 12000}, Case{1000, 5096, 3},
                   Case{300, 0, SIZE - 300}, Case{0, 300, SIZE - 300}}) {
        ASSERT_EQ(ato_memcpy(m->base + c.to, m->base + c.from, c.n), m->base + c.to)
            << ato_errormsg();
        memmove(&model[c.to], &model[c.from], c.n);
        expect_unchanged();
    }
}

TEST_F(Data, CopiesBetweenTwoFiles)
{
    write_file(dir / "other", pattern(SIZE, 9));
    Mapped other(dir / "other");
    ASSERT_TRUE(other) << other.sentence;
    ASSERT_NE(ato_memcpy(m->base + 100, other.base + 3000, 6000), nullptr) << ato_errormsg();
    ASSERT_NE(ato_memcpy(other.base, m->base + 200, 5000), nullptr) << ato_errormsg();
    Bytes theirs = pattern(SIZE, 9);
    std::copy_n(theirs.begin() + 3000, 6000, model.begin() + 100);
    std::copy_n(model.begin() + 200, 5000, theirs.begin());
    expect_unchanged();
    EXPECT_EQ(other.read(), theirs);
}

TEST_F(Data, SkipEqualWritesOnlyDifferingSlices)
{
    Bytes bytes(model.begin() + 1000, model.begin() + 9000);
    bytes[5000] ^= 1;
    bytes[0] ^= 1;
    struct ato_stat before = m->stat();
    ASSERT_TRUE(m->write(1000, bytes, ATO_SKIP_EQUAL));
    std::copy(bytes.begin(), bytes.end(), model.begin() + 1000);
    expect_unchanged();
    EXPECT_LE(m->stat().bytes_to_media - before.bytes_to_media, 2u * 64 + 600);
}

TEST_F(Data, EagerWriteIsVisibleToPlainLoads)
{
    Bytes bytes = pattern(6000, 3);
    ASSERT_TRUE(m->write(500, bytes, ATO_EAGER));
    EXPECT_EQ(memcmp(m->base + 500, bytes.data(), 6000), 0);
}

// ---- no bytes -----------------------------------------------------------------------------------

TEST_F(Data, CopyOfNoBytesWithinAMappingSucceeds)
{
    char c = 0;
    EXPECT_EQ(ato_memcpy(m->base, &c, 0), m->base);
    EXPECT_EQ(ato_memcpy(&c, m->base, 0), &c);
    EXPECT_EQ(ato_memset(m->base, 0, 0), m->base);
    EXPECT_EQ(ato_deploy(m->base, 0), 0);
    EXPECT_EQ(ato_msync(m->base, 0, MS_SYNC), 0);
    expect_refused(ato_memcpy(&c, &c, 0) == nullptr, EINVAL, "lies in no mapping");
    expect_refused(ato_memset(&c, 0, 0) == nullptr, EINVAL, "mapping");
    expect_refused(ato_deploy(&c, 0) == -1, EINVAL, "mapping");
    // As a program has them that does not look at what ato_mmap() returns.
    expect_refused(ato_deploy(nullptr, 0) == -1, EINVAL, "NULL lies in no mapping");
    expect_refused(ato_size(MAP_FAILED) == -1, EINVAL, "MAP_FAILED does not lie in a mapping");
    expect_refused(ato_msync(nullptr, 1, MS_SYNC) == -1, ENOMEM, "[NULL, +1) does not");
    expect_refused(ato_munmap(MAP_FAILED, 1, ATO_UNMAP_FAST) == -1, EINVAL, "MAP_FAILED is not");
    expect_refused(ato_memcpy(nullptr, nullptr, 0) == nullptr, EINVAL, "NULL lies in no mapping");
}

// ---- refused ------------------------------------------------------------------------------------

TEST_F(Data, CopyWithNeitherSideInAMappingIsEinvalAndCopiesNothing)
{
    char a[100], b[100];
    memset(a, 1, sizeof(a));
    memset(b, 2, sizeof(b));
    expect_refused(ato_memcpy(a, b, sizeof(a)) == nullptr, EINVAL, "neither");
    EXPECT_EQ(a[0], 1);
    expect_refused(ato_memset(a, 3, sizeof(a)) == nullptr, EINVAL, "mapping");
    EXPECT_EQ(a[0], 1);
    expect_refused(ato_deploy(a, 10) == -1, EINVAL, "mapping");
}

TEST_F(Data, FlagsThatAreNotKnownAreEinval)
{
    expect_refused(ato_memcpy_opt(m->base, "x", 1, 0x80) == nullptr, EINVAL, "0x80");
}

TEST_F(Data, RangeAcrossTheEndOfTheFileIsEfault)
{
    Bytes buffer(SIZE + 8192, 7);
    for (size_t begin : {size_t(0), size_t(4096), SIZE - 1, SIZE, SIZE + 1, SIZE + 4096}) {
        size_t n = SIZE - begin + 1;
        if (begin >= SIZE)
            n = 1;
        void *at = m->base + begin;
        expect_refused(ato_memcpy(at, buffer.data(), n) == nullptr, EFAULT, "end");
        expect_refused(ato_memcpy(buffer.data(), at, n) == nullptr, EFAULT, "end");
        EXPECT_EQ(buffer[0], 7); // nothing was read either
        expect_refused(ato_memset(at, 1, n) == nullptr, EFAULT, "end");
        expect_refused(ato_deploy(at, n) == -1, EFAULT, "end");
    }
    EXPECT_EQ(size_of(path), SIZE);
}

TEST_F(Data, RangeAcrossTheEndOfTheFileIsEfaultEvenIfTheMappingIsLonger)
{
    Mapped longer(path, options(), SIZE + 10 * 4096);
    ASSERT_TRUE(longer) << longer.sentence;
    Bytes buffer(8192, 7);
    EXPECT_NE(ato_memcpy(buffer.data(), longer.base + SIZE - 100, 100), nullptr);
    for (size_t begin : {SIZE - 100, SIZE - 1, SIZE, SIZE + 4096}) {
        void *at = longer.base + begin;
        expect_refused(ato_memcpy(at, buffer.data(), 101) == nullptr, EFAULT, "end");
        expect_refused(ato_memcpy(buffer.data(), at, 101) == nullptr, EFAULT, "end");
        expect_refused(ato_memset(at, 1, 101) == nullptr, EFAULT, "end");
        expect_refused(ato_deploy(at, 101) == -1, EFAULT, "end");
    }
    EXPECT_EQ(size_of(path), SIZE);
}

TEST_F(Data, RangeBeforeAMappingOrThroughItIsEfault)
{
    Bytes buffer(8192);
    // Other memory may lie in the GiB before the mapping: the test uses only the address.
    char *before = m->base - 100;
    expect_refused(ato_memcpy(before, buffer.data(), 200) == nullptr, EFAULT, "partly");
    expect_refused(ato_memcpy(buffer.data(), before, 200) == nullptr, EFAULT, "partly");
    expect_refused(ato_deploy(before, 200) == -1, EFAULT, "partly");
    expect_refused(ato_memcpy(before, buffer.data(), size_t(1) << 31) == nullptr, EFAULT, "partly");
}

TEST_F(Data, RangeThatWrapsAroundTheAddressSpaceIsEfault)
{
    char c = 0;
    expect_refused(ato_memcpy(m->base, &c, SIZE_MAX) == nullptr, EFAULT, "");
    expect_refused(ato_memcpy(m->base + 100, &c, SIZE_MAX - 50) == nullptr, EFAULT, "");
    expect_refused(ato_memset(m->base + 100, 0, SIZE_MAX - 50) == nullptr, EFAULT, "");
    expect_refused(ato_deploy(m->base + 100, SIZE_MAX) == -1, EFAULT, "");
}

TEST_F(Data, RangeBeyondAPartialMappingIsEfaultEvenIfTheFileIsLonger)
{
    Mapped part(path, options(), 5000, 4096);
    ASSERT_TRUE(part) << part.sentence;
    Bytes buffer(5001);
    EXPECT_NE(ato_memcpy(buffer.data(), part.base, 5000), nullptr);
    expect_refused(ato_memcpy(buffer.data(), part.base, 5001) == nullptr, EFAULT, "partly");
    expect_refused(ato_memcpy(part.base + 4999, buffer.data(), 2) == nullptr, EFAULT, "partly");
    expect_refused(ato_memcpy(part.base + 5000, buffer.data(), 1) == nullptr, EFAULT, "partly");
}

TEST_F(Data, RangeThatReachesIntoAnotherMappingIsEfault)
{
    constexpr size_t GIB = 1ull << 30;
    Fd fd(path);
    auto map = [&](char *hint, size_t n) {
        void *at = ato_mmap(hint, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT_NE(at, MAP_FAILED) << ato_errormsg();
        return static_cast<char *>(at);
    };
    // Where two neighbouring GiB are free.
    char *low = map(nullptr, GIB);
    ASSERT_EQ(ato_munmap(low, GIB, ATO_UNMAP_FAST), 0);
    char *high = map(low + GIB, SIZE);
    low = map(low, SIZE);
    if (high == low + GIB) {
        expect_refused(ato_memset(low, 0, GIB + 10) == nullptr, EFAULT, "partly");
        expect_refused(ato_memset(low + SIZE, 0, GIB) == nullptr, EFAULT, "partly");
    }
    EXPECT_EQ(ato_munmap(low, SIZE, ATO_UNMAP_FAST), 0);
    EXPECT_EQ(ato_munmap(high, SIZE, ATO_UNMAP_FAST), 0);
    if (high != low + GIB)
        GTEST_SKIP() << "no two neighbouring GiB were free";
}

TEST_F(Data, AddressIsRefusedAfterItsUnmap)
{
    char *was = m->base;
    ASSERT_EQ(m->unmap(ATO_UNMAP_FAST), 0);
    char c = 0;
    EXPECT_EQ(ato_memcpy(was, &c, 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_memcpy(&c, was, 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_deploy(was, 1), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_msync(was, 4096, MS_SYNC), -1);
    EXPECT_EQ(errno, ENOMEM);
}

// ---- ato_msync ----------------------------------------------------------------------------------

TEST_F(Data, MsyncChecksItsArgumentsAsMsyncDoes)
{
    EXPECT_EQ(ato_msync(m->base, SIZE, MS_SYNC), 0);
    EXPECT_EQ(ato_msync(m->base, SIZE, MS_ASYNC | MS_INVALIDATE), 0);
    EXPECT_EQ(ato_msync(m->base, SIZE, 0), 0);
    EXPECT_EQ(ato_msync(m->base + 4096, 4096, MS_SYNC), 0);
    EXPECT_EQ(ato_msync(m->base, 6 * 4096, MS_SYNC), 0) << "to the end of the last page";
    expect_refused(ato_msync(m->base, SIZE, MS_SYNC | MS_ASYNC) == -1, EINVAL, "flags");
    expect_refused(ato_msync(m->base, SIZE, 0x100) == -1, EINVAL, "0x100");
    expect_refused(ato_msync(m->base + 1, SIZE, MS_SYNC) == -1, EINVAL, "page");
    expect_refused(ato_msync(m->base, 7 * 4096, MS_SYNC) == -1, ENOMEM, "mapping");
    expect_refused(ato_msync(m->base + 4096, SIZE_MAX, MS_SYNC) == -1, ENOMEM, "mapping");
    expect_refused(ato_msync(m->base + 7 * 4096, 1, MS_SYNC) == -1, ENOMEM, "mapping");
    static char page[8192] __attribute__((aligned(4096)));
    expect_refused(ato_msync(page, 4096, MS_SYNC) == -1, ENOMEM, "mapping");
}

// ---- sentences ----------------------------------------------------------------------------------

TEST_F(Data, SentenceIsThatOfTheLastFailure)
{
    char c = 0;
    EXPECT_EQ(ato_memcpy(&c, &c, 1), nullptr);
    std::string neither = ato_errormsg();
    EXPECT_EQ(ato_memcpy(m->base + SIZE, &c, 1), nullptr);
    EXPECT_NE(neither, ato_errormsg());
}

} // namespace
