// SPDX-License-Identifier: BSD-3-Clause
//
// Several ranges in one step: where may they lie, which content do they get, and which calls are
// refused?
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 40 * PAGE + 17;

class Writev : public testing::TestWithParam<int>
{
  protected:
    Writev()
    {
        for (int i = 0; i < 2; i++) {
            model[i] = pattern(SIZE, static_cast<unsigned>(i));
            write_file(path(i), model[i]);
            m[i] =
                std::make_unique<Mapped>(path(i), options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM));
            EXPECT_TRUE(*m[i]) << m[i]->sentence;
        }
    }

    std::string path(int i) const
    {
        return dir / std::to_string(i);
    }

    ato_iovec range(int file, size_t at, const Bytes &bytes)
    {
        memcpy(&model[file][at], bytes.data(), bytes.size());
        return {m[file]->base + at, bytes.data(), bytes.size()};
    }

    void expect_model()
    {
        EXPECT_EQ(m[0]->read(), model[0]);
        EXPECT_EQ(m[1]->read(), model[1]);
    }

    TempDir dir;
    Bytes model[2];
    std::unique_ptr<Mapped> m[2];
};

TEST_P(Writev, RangesAreOneStep)
{
    Bytes a = pattern(10, 5), b = pattern(3 * PAGE, 6), c = pattern(100, 7);
    ato_iovec v[] = {range(0, SIZE - 10, a), range(0, 30 * PAGE + 9, b), range(0, 17, c),
                     range(0, 5 * PAGE - 50, c)};
    ASSERT_EQ(ato_writev(v, 4, 0), 0) << ato_errormsg();
    expect_model();
    EXPECT_EQ(m[0]->stat().commits_journal, 1u);
    EXPECT_EQ(m[0]->stat().writes, 4u);
    EXPECT_EQ(m[0]->stat().bytes_written, 210u + 3 * PAGE);
}

TEST_P(Writev, AdjacentAndOverlappingRangesFlipASliceOnce)
{
    Bytes a = pattern(20, 5), b = pattern(20, 6), c = pattern(200, 7);
    ato_iovec v[] = {range(0, 64, a), range(0, 84, b), range(0, 100, c), range(0, 90, a)};
    ASSERT_EQ(ato_writev(v, 4, 0), 0) << ato_errormsg();
    expect_model();
    EXPECT_EQ(m[0]->stat().commits_single, 1u);
    EXPECT_EQ(m[0]->stat().flips, 1u);
}

TEST_P(Writev, SourcesInMappingsHaveTheBytesOfEarlierRanges)
{
    Bytes a = pattern(PAGE, 5);
    ato_iovec v[4] = {range(0, 10, a)};
    v[1] = {m[0]->base + 9 * PAGE + 300, m[0]->base, 2 * PAGE};
    memcpy(&model[0][9 * PAGE + 300], model[0].data(), 2 * PAGE);
    v[2] = {m[0]->base + 9 * PAGE + 700, m[0]->base + 9 * PAGE + 300, 2 * PAGE}; // overlapping
    memmove(&model[0][9 * PAGE + 700], &model[0][9 * PAGE + 300], 2 * PAGE);
    v[3] = {m[0]->base + 20 * PAGE, m[1]->base + 5, 2 * PAGE};
    memcpy(&model[0][20 * PAGE], &model[1][5], 2 * PAGE);
    ASSERT_EQ(ato_writev(v, 4, ATO_SKIP_EQUAL), 0) << ato_errormsg();
    expect_model();
}

TEST_P(Writev, RefusedCallWritesNothing)
{
    Bytes a = pattern(100, 5), before = model[0];
    ato_iovec v[3] = {range(0, 10, a), range(0, 5 * PAGE - 20, a), {}};
    model[0] = before;
    auto refused = [&](int err) {
        EXPECT_EQ(ato_writev(v, 3, 0), -1);
        EXPECT_EQ(errno, err) << ato_errormsg();
        expect_model();
    };
    v[2] = {m[0]->base + SIZE - 10, a.data(), 11};
    refused(EFAULT);
    v[2] = {a.data(), a.data(), 11};
    refused(EINVAL);
    v[2] = {a.data(), a.data(), 0};
    refused(EINVAL);
    v[2] = {a.data(), m[0]->base, 5};
    refused(EINVAL);
    EXPECT_EQ(ato_writev(v, -1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_writev(v, 2, 0x40), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_writev(nullptr, 0, 0), 0);
    v[2] = {m[0]->base, nullptr, 0};
    model[0] = before;
    memcpy(&model[0][10], a.data(), 100);
    memcpy(&model[0][5 * PAGE - 20], a.data(), 100);
    ASSERT_EQ(ato_writev(v, 3, 0), 0) << ato_errormsg();
    expect_model();
    // No page is held: the mapping can be unmapped.
    EXPECT_EQ(m[0]->unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(path(0)), model[0]);
}

TEST_P(Writev, EagerDeploysItsRanges)
{
    Bytes a = pattern(3 * PAGE, 5);
    ato_iovec v[2] = {range(0, 10, a), range(0, 9 * PAGE + 20, a)};
    ASSERT_EQ(ato_writev(v, 2, ATO_EAGER), 0);
    EXPECT_EQ(m[0]->stat().slices_in_reflection, 0u);
    expect_model();
}

TEST_P(Writev, OfAnEpochArePartOfIt)
{
    Mapped e(path(0), options(GetParam(), ATO_READ_GATHER, ATO_EPOCHS));
    ASSERT_TRUE(e);
    Bytes a = pattern(3 * PAGE, 5), before = model[0];
    ato_iovec v[3] = {range(0, 10, a), range(0, 2 * PAGE, a), range(1, 5, a)};
    v[0].dst = e.base + 10;
    v[1].dst = e.base + 2 * PAGE;
    EXPECT_EQ(ato_writev(v, 3, 0), -1); // one range is outside the epoch
    EXPECT_EQ(errno, EINVAL);
    ASSERT_EQ(ato_writev(v, 2, 0), 0) << ato_errormsg();
    EXPECT_EQ(e.read(), model[0]);
    EXPECT_EQ(m[0]->read(), before);
    ASSERT_EQ(ato_msync(e.base, SIZE, 0), 0);
    EXPECT_EQ(m[0]->read(), model[0]);
}

TEST_P(Writev, TakeTheBytesOfAFileThatMayOnlyBeReadButNotInAnEpoch)
{
    const Bytes a = pattern(3 * PAGE, 5);
    const ato_iovec late = range(1, 10, a);
    ASSERT_TRUE(ato_memcpy(late.dst, late.src, late.n)) << ato_errormsg();
    ASSERT_EQ(m[1]->unmap(ATO_UNMAP_SPATIAL), 0) << m[1]->sentence;
    const Fd fd(path(1), O_RDONLY);
    auto *source = static_cast<char *>(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(source, MAP_FAILED) << ato_errormsg();
    ato_iovec v = {m[0]->base + 20, source + 10, a.size()};
    ASSERT_EQ(ato_writev(&v, 1, 0), 0) << ato_errormsg();
    EXPECT_EQ(m[0]->read(20, a.size()), a);
    const Bytes before = m[0]->read();
    Mapped e(path(0), options(GetParam(), ATO_READ_GATHER, ATO_EPOCHS));
    ASSERT_TRUE(e);
    v.dst = e.base;
    EXPECT_EQ(ato_writev(&v, 1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(e.read(), before);
    EXPECT_EQ(ato_munmap(source, SIZE, ATO_UNMAP_FAST), 0);
}

INSTANTIATE_TEST_SUITE_P(Domains, Writev,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})));

} // namespace
