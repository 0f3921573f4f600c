// SPDX-License-Identifier: BSD-3-Clause
//
// A mapped file, and its content in a transaction: for the tests of transactions.
#ifndef ATO_TEST_UNIT_TX_LAB_H
#define ATO_TEST_UNIT_TX_LAB_H

#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

namespace tx_lab
{

using namespace support;

constexpr size_t PAGE = 4096, SIZE = 100 * PAGE + 300;

// Did the last call fail with this error, and a sentence that has these words?
inline testing::AssertionResult refused(bool failed, int err, const std::string &words)
{
    int seen = errno;
    std::string sentence = ato_errormsg();
    if (failed && seen == err && sentence.find(words) != std::string::npos)
        return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << (failed ? "" : "no failure; ") << strerror(seen) << ": " << sentence;
}

class Tx : public testing::TestWithParam<int>
{
  protected:
    Tx() : path(dir / "file"), model(pattern(SIZE, 1))
    {
        write_file(path, model);
        map();
        // One of an earlier test may have been refused: the thread's next one pauses then, or goes first.
        EXPECT_EQ(ato_tx_commit(ato_tx_begin(0)), 0);
    }

    void map(int policy = ATO_READ_GATHER, unsigned flags = 0)
    {
        m.reset();
        m = std::make_unique<Mapped>(path, options(GetParam(), policy, flags));
        ASSERT_TRUE(*m) << m->sentence;
    }

    void put(ato_tx *t, size_t at, const Bytes &bytes, unsigned flags = 0)
    {
        ASSERT_NE(ato_tx_memcpy(t, m->base + at, bytes.data(), bytes.size(), flags), nullptr)
            << ato_errormsg();
        mine.resize(SIZE);
        std::copy(bytes.begin(), bytes.end(), mine.begin() + static_cast<long>(at));
    }

    Bytes seen_by(ato_tx *t, size_t at = 0, size_t n = SIZE)
    {
        Bytes bytes(n);
        if (!ato_tx_memcpy(t, bytes.data(), m->base + at, n, 0))
            bytes.clear();
        return bytes;
    }

    // By a thread that has no transaction.
    Bytes seen_by_others()
    {
        Bytes bytes;
        std::thread([&] { bytes = m->read(); }).join();
        return bytes;
    }

    ato_tx *begin(unsigned flags = 0)
    {
        mine = model;
        ato_tx *t = ato_tx_begin(flags);
        EXPECT_NE(t, nullptr) << ato_errormsg();
        return t;
    }

    TempDir dir;
    std::string path;
    Bytes model, mine;
    std::unique_ptr<Mapped> m;
};

} // namespace tx_lab

#endif
