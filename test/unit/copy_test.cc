// SPDX-License-Identifier: BSD-3-Clause
//
// Does every copy kernel that this CPU can run move exactly the slices of the mask, between the
// homes the bitmap names? Against a model that moves one byte at a time; bytes outside are guarded.
extern "C" {
#include "reflection/media/bitmap.h"
#include "reflection/media/copy.h"
}

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include <xmmintrin.h>

namespace
{

struct alignas(4096) Page {
    unsigned char bytes[4096];
    char *at()
    {
        return reinterpret_cast<char *>(bytes);
    }
    bool operator==(const Page &other) const
    {
        return memcmp(bytes, other.bytes, 4096) == 0;
    }
};

TEST(CopyFew, CopiesEachLengthUpToASliceAndStoresNothingElse)
{
    char from[SLICE_BYTES + 2], to[SLICE_BYTES + 2];
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = static_cast<char>(i + 1);
    for (size_t n = 1; n <= SLICE_BYTES; n++) {
        char expected[sizeof(to)] = {};
        memset(to, 0, sizeof(to));
        memcpy(expected + 1, from + 1, n);
        copy_few(to + 1, from + 1, n);
        EXPECT_EQ(memcmp(to, expected, sizeof(to)), 0) << n << " bytes";
    }
}

class Copy : public testing::TestWithParam<const copy_kernel *>
{
  protected:
    Copy() : homes_(4), kernel_(GetParam())
    {
        fill(o());
        fill(r());
    }

    void SetUp() override
    {
        if (!kernel_->usable())
            GTEST_SKIP() << "this CPU cannot run " << kernel_->name;
    }

    Page &o()
    {
        return homes_[1];
    }
    Page &r()
    {
        return homes_[2];
    }

    void fill(Page &p)
    {
        for (size_t i = 0; i < 4096; i += 8) {
            uint64_t x = random_();
            memcpy(p.bytes + i, &x, 8);
        }
    }

    // Runs, single bits, alternations, random ones; empty and full.
    std::vector<uint64_t> masks()
    {
        std::vector<uint64_t> all = {
            0, 1, 1ull << 63, ~0ull, 0x5555555555555555ull, 0x8000000000000001ull};
        for (int i = 0; i < 40; i++) {
            unsigned a = random_() % 64, b = random_() % 64;
            all.push_back(bitmap_slices(std::min(a, b), std::max(a, b)));
            all.push_back(random_());
            all.push_back(random_() & random_() & random_());
        }
        return all;
    }

    std::mt19937_64 random_{42};
    std::vector<Page> homes_; // O and R with a guard page on either side
    const copy_kernel *kernel_;
};

TEST_P(Copy, ScatterWritesTheInvalidHomesOfItsSlicesAndNothingElse)
{
    for (bool streams : {false, true}) {
        for (uint64_t mask : masks()) {
            for (unsigned shift : {0u, 1u, 8u, 63u}) {
                uint64_t bitmap = random_();
                std::vector<unsigned char> source(4096 + 64);
                for (unsigned char &b : source)
                    b = static_cast<unsigned char>(random_());
                Page expected_o = o(), expected_r = r();
                for (unsigned i = 0; i < 64; i++)
                    if (mask >> i & 1)
                        memcpy((bitmap >> i & 1 ? expected_o : expected_r).bytes + i * 64,
                               source.data() + shift + i * 64, 64);
                auto scatter = streams ? kernel_->scatter_nt : kernel_->scatter;
                scatter(o().at(), r().at(), reinterpret_cast<char *>(source.data()) + shift, bitmap,
                        mask);
                _mm_sfence();
                ASSERT_TRUE(o() == expected_o && r() == expected_r)
                    << std::hex << "mask " << mask << " bitmap " << bitmap;
            }
        }
    }
    EXPECT_TRUE(homes_[0] == Page() && homes_[3] == Page()) << "beside the pages";
}

TEST_P(Copy, ScatterReadsOnlyItsSlices)
{
    // Source bytes outside the mask lie where nothing may be touched: an exact allocation.
    for (unsigned first : {0u, 5u, 63u}) {
        for (unsigned n : {1u, 2u, 40u}) {
            unsigned last = std::min(63u, first + n - 1);
            std::vector<char> source((last - first + 1) * 64, 'x');
            kernel_->scatter(o().at(), r().at(), source.data() - first * 64, 0,
                             bitmap_slices(first, last));
        }
    }
}

TEST_P(Copy, PlainCopiesTheSameBytesAsMemcpy)
{
    std::vector<size_t> sizes = {4096, 4095, 1024, 1000};
    for (size_t n = 1; n < 300; n++)
        sizes.push_back(n);
    for (size_t n : sizes) {
        for (size_t shift : {0u, 1u, 17u, 63u}) {
            // Both ends: nothing may be read or written behind the last byte, or before the first.
            std::vector<char> source(n), target(n + shift + 64, 0x11), expected = target;
            for (char &b : source)
                b = static_cast<char>(random_());
            memcpy(&expected[shift], source.data(), n);
            kernel_->plain(&target[shift], source.data(), n);
            ASSERT_EQ(target, expected) << n << " bytes, shift " << shift;
        }
    }
}

TEST_P(Copy, GatherReadsTheValidHomesOfItsSlicesAndNothingElse)
{
    for (uint64_t mask : masks()) {
        for (unsigned shift : {0u, 1u, 17u, 63u}) {
            uint64_t bitmap = random_();
            std::vector<unsigned char> target(4096 + 192, 0xee), expected = target;
            for (unsigned i = 0; i < 64; i++)
                if (mask >> i & 1)
                    memcpy(&expected[64 + shift + i * 64],
                           (bitmap >> i & 1 ? r() : o()).bytes + i * 64, 64);
            kernel_->gather(reinterpret_cast<char *>(target.data()) + 64 + shift, o().at(),
                            r().at(), bitmap, mask);
            ASSERT_EQ(target, expected) << std::hex << "mask " << mask << " bitmap " << bitmap;
        }
    }
}

TEST_P(Copy, DifferingFindsEverySliceWithAByteChangedAndNoOther)
{
    for (uint64_t mask : masks()) {
        uint64_t bitmap = random_(), changed = random_() & random_();
        std::vector<unsigned char> source(4096 + 3);
        unsigned char *at = source.data() + 3; // unaligned
        for (unsigned i = 0; i < 64; i++) {
            memcpy(at + i * 64, (bitmap >> i & 1 ? r() : o()).bytes + i * 64, 64);
            if (changed >> i & 1)
                at[i * 64 + random_() % 64] ^= static_cast<unsigned char>(1 << random_() % 8);
        }
        ASSERT_EQ(
            kernel_->differing(o().at(), r().at(), reinterpret_cast<char *>(at), bitmap, mask),
            mask & changed)
            << std::hex << "mask " << mask;
    }
}

TEST_P(Copy, DifferingSeesEachBitOfASlice)
{
    for (unsigned bit = 0; bit < 512; bit++) {
        std::vector<unsigned char> source(o().bytes, o().bytes + 4096);
        source[7 * 64 + bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
        ASSERT_EQ(kernel_->differing(o().at(), r().at(), reinterpret_cast<char *>(source.data()), 0,
                                     ~0ull),
                  1ull << 7)
            << "bit " << bit;
    }
}

TEST_P(Copy, GatherRangeCopiesTheValidBytesOfEveryRange)
{
    // The bytes of a page differ by home and place; both ends of each range are checked byte by
    // byte, the middle once.
    for (uint64_t bitmap : {0ull, ~0ull, 0xaaaaaaaaaaaaaaaaull, 0x00000000ffffffffull}) {
        Page valid;
        for (unsigned i = 0; i < 64; i++)
            memcpy(valid.bytes + i * 64, (bitmap >> i & 1 ? r() : o()).bytes + i * 64, 64);
        std::vector<char> target(4096 + 2);
        for (unsigned begin = 0; begin < 4096; begin += (begin % 64 == 1 ? 61 : 1)) {
            for (unsigned n = 1; begin + n <= 4096; n += (n > 200 && n % 64 > 2 ? 58 : 1)) {
                target[0] = target[n + 1] = 0x77;
                copy_gather_range(kernel_, target.data() + 1, o().at(), r().at(), bitmap, begin, n);
                ASSERT_EQ(memcmp(target.data() + 1, valid.bytes + begin, n), 0)
                    << n << " bytes from " << begin;
                ASSERT_TRUE(target[0] == 0x77 && target[n + 1] == 0x77)
                    << "beside " << n << " bytes from " << begin;
            }
        }
    }
}

TEST_P(Copy, GatherRangeCopiesTheValidBytesForRandomBitmaps)
{
    for (int round = 0; round < 3000; round++) {
        uint64_t bitmap = random_() & random_();
        unsigned begin = random_() % 4096, n = 1 + random_() % (4096 - begin);
        std::vector<char> target(n);
        copy_gather_range(kernel_, target.data(), o().at(), r().at(), bitmap, begin, n);
        for (unsigned i = 0; i < n; i++) {
            unsigned at = begin + i;
            unsigned char valid = (bitmap >> at / 64 & 1 ? r() : o()).bytes[at];
            ASSERT_EQ(static_cast<unsigned char>(target[i]), valid) << "byte " << at;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Copy, testing::Values(&copy_sse2, &copy_avx2, &copy_avx512),
                         [](const testing::TestParamInfo<const copy_kernel *> &info) {
                             return info.param->name;
                         });

TEST(CopyBest, IsTheFirstKernelThatTheCpuCanRun)
{
    const copy_kernel *const *k = copy_kernels;
    while (*k && !(*k)->usable())
        k++;
    ASSERT_NE(*k, nullptr);
    EXPECT_EQ(copy_best(), *k);
    EXPECT_TRUE(copy_sse2.usable());
}

} // namespace
