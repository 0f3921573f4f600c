// SPDX-License-Identifier: BSD-3-Clause
//
// Do the real stores write the right bytes, in each domain? When are hardware transactions allowed,
// and do they change all words or none?
extern "C" {
#include "reflection/media/persist.h"
}

#include "support/temp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace
{

class Persist : public testing::TestWithParam<int>
{
  protected:
    Persist()
    {
        persist_init(&p, static_cast<persist_domain>(GetParam()));
        o = page(1);
        r = page(2);
        src = page(3);
    }
    ~Persist() override
    {
        for (char *at : {o, r, src})
            free(at);
    }

    static char *page(unsigned seed)
    {
        char *at = static_cast<char *>(aligned_alloc(4096, 4096));
        memcpy(at, pattern(4096, seed).data(), 4096);
        return at;
    }

    struct persist p;
    char *o, *r, *src;
};

TEST_P(Persist, ScatterLineHomeCopyAndWordStoresWriteTheirTarget)
{
    uint64_t bitmap = 0xff00ff00ff00ff00ull, mask = 0x0ff00ff00ff00ff0ull;
    Bytes expected_o(o, o + 4096), expected_r(r, r + 4096);
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1)
            memcpy((bitmap >> i & 1 ? expected_o : expected_r).data() + i * 64, src + i * 64, 64);
    Bytes old_o(o, o + 4096), old_r(r, r + 4096);
    for (bool cold : {false, true}) {
        memcpy(o, old_o.data(), 4096);
        memcpy(r, old_r.data(), 4096);
        persist_scatter(&p, o, r, src, bitmap, mask, cold);
        persist_fence(&p);
        EXPECT_EQ(memcmp(o, expected_o.data(), 4096), 0);
        EXPECT_EQ(memcmp(r, expected_r.data(), 4096), 0);
    }

    persist_line(&p, o + 640, src + 1);
    persist_fence(&p);
    memcpy(&expected_o[640], src + 1, 64);
    EXPECT_EQ(memcmp(o, expected_o.data(), 4096), 0);

    persist_home(&p, o, r, 0x8000000000000101ull, false);
    persist_fence(&p);
    for (unsigned i : {0, 8, 63})
        memcpy(&expected_o[i * 64], r + i * 64, 64);
    EXPECT_EQ(memcmp(o, expected_o.data(), 4096), 0);
    EXPECT_EQ(memcmp(r, expected_r.data(), 4096), 0) << "R is only read";

    persist_copy(&p, r + 8, src + 3, 264);
    persist_fence(&p);
    memcpy(&expected_r[8], src + 3, 264);
    EXPECT_EQ(memcmp(r, expected_r.data(), 4096), 0);

    uint64_t *word = reinterpret_cast<uint64_t *>(r + 1024);
    persist_store_word(&p, word, 0x1122334455667788ull);
    const uint64_t value = 0x1122334455667788ull;
    memcpy(&expected_r[1024], &value, 8);
    EXPECT_EQ(memcmp(r, expected_r.data(), 4096), 0);

    const uint64_t pair[2] = {value, ~value};
    persist_store_pair(&p, word + 2, pair);
    memcpy(&expected_r[1040], pair, 16);
    EXPECT_EQ(memcmp(r, expected_r.data(), 4096), 0);
}

TEST_P(Persist, FlushesOfMappedMemorySucceed)
{
    EXPECT_EQ(persist_flush_data(&p, o, 4096), 0);
    EXPECT_EQ(persist_flush_word(&p, reinterpret_cast<uint64_t *>(o + 8)), 0);
    EXPECT_EQ(persist_flush_any(&p, o + 100, 300), 0);
    persist_fence(&p);
}

TEST_P(Persist, FlushOfAnUnmappedPageFailsOnlyOnADisk)
{
    char *gone = static_cast<char *>(
        mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(gone, MAP_FAILED);
    munmap(gone + 4096, 4096);
    int expected = GetParam() == PERSIST_DISK ? -1 : 0; // others have no call that could fail
    EXPECT_EQ(persist_flush_data(&p, gone, 8192), expected);
    munmap(gone, 4096);
}

TEST_P(Persist, HardwareTransactionsAreAllowedOnlyWhereVisibleIsDurable)
{
    bool may = GetParam() == PERSIST_EADR || GetParam() == PERSIST_PROCESS;
    EXPECT_EQ(persist_rtm_allowed(&p), may && persist_rtm_works());
}

INSTANTIATE_TEST_SUITE_P(Domains, Persist,
                         testing::Values(PERSIST_PMEM, PERSIST_EADR, PERSIST_DISK,
                                         PERSIST_PROCESS));

TEST(PersistRtm, ChangesAllWordsOrNone)
{
    if (!persist_rtm_works())
        GTEST_SKIP() << "no hardware transactions on this CPU";
    struct persist p;
    persist_init(&p, PERSIST_PROCESS);
    std::vector<uint64_t> words(300 * 64);
    long done = 0;
    for (size_t n : {1, 2, 17, 128, 300}) {
        for (uint64_t round = 1; round <= 200; round++) {
            std::vector<persist_flip> flips;
            for (size_t i = 0; i < n; i++)
                flips.push_back({&words[i * 64], round});
            std::vector<uint64_t> before = words;
            if (persist_flip_rtm(&p, flips.data(), n)) {
                done++;
                for (size_t i = 0; i < n; i++)
                    before[i * 64] = round;
            }
            ASSERT_EQ(words, before);
        }
    }
    EXPECT_GT(done, 500);
}

TEST(PersistRtm, TooManyLinesAbortAndChangeNothing)
{
    if (!persist_rtm_works())
        GTEST_SKIP() << "no hardware transactions on this CPU";
    struct persist p;
    persist_init(&p, PERSIST_PROCESS);
    constexpr size_t N = 20000; // more lines than any first-level cache has
    std::vector<uint64_t> words(N * 8);
    std::vector<persist_flip> flips;
    for (size_t i = 0; i < N; i++)
        flips.push_back({&words[i * 8], 1});
    EXPECT_EQ(persist_flip_rtm(&p, flips.data(), N), 0);
    EXPECT_TRUE(std::all_of(words.begin(), words.end(), [](uint64_t w) { return w == 0; }));
}

} // namespace
