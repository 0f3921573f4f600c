// SPDX-License-Identifier: BSD-3-Clause
//
// A file that has a reflection is mapped in domain disk, where files have logs: the slices are brought home first, whatever fails meanwhile.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <ostream>

#include <fcntl.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 5 * PAGE + 1003;

struct Past {
    const char *name;
    int format;
    bool killed;
};

void PrintTo(const Past &p, std::ostream *out)
{
    *out << p.name;
}

struct Write {
    uint64_t at;
    size_t n;
};
constexpr Write writes[] = {{10, 300}, {2 * PAGE - 70, 150}, {SIZE - 30, 30}};

class Homecoming : public testing::TestWithParam<Past>
{
  protected:
    // The file gets a reflection.
    void SetUp() override
    {
        write_file(file, content);
        const int status = in_child([&] {
            ato_options o = options(ATO_DOMAIN_PROCESS);
            o.format = GetParam().format;
            Mapped m(file, o);
            for (const Write &w : writes)
                if (!m.write(w.at, pattern(w.n, 7)))
                    return 1;
            if (GetParam().killed)
                _exit(0);
            return m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 1;
        });
        ASSERT_EQ(status, 0);
        for (const Write &w : writes)
            put(w.at, pattern(w.n, 7));
    }
    // Maps the file in domain disk, writes, and makes it plain.
    void expect_log()
    {
        Mapped m(file, options(ATO_DOMAIN_DISK));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.stat().format, ATO_FORMAT_LOG);
        EXPECT_EQ(m.read(), content);
        ASSERT_TRUE(m.write(PAGE, pattern(PAGE, 9))) << m.sentence;
        put(PAGE, pattern(PAGE, 9));
        EXPECT_EQ(m.read(), content);
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), content);
    }
    void put(uint64_t at, const Bytes &bytes)
    {
        std::copy(bytes.begin(), bytes.end(), content.begin() + static_cast<long>(at));
    }
    TempDir dir{"/dev/shm"};
    const std::string file = dir / "file";
    Bytes content = pattern(SIZE, 1);
};

TEST_P(Homecoming, ComesBeforeTheLog)
{
    expect_log();
}

// Each call fails, or the process dies before it: then the file is as it was, for either domain.
TEST_P(Homecoming, LosesNothingWhereItIsCutOrFails)
{
    bool done = false;
    for (long k = 0; !done; k += 3) {
        SCOPED_TRACE("call " + std::to_string(k));
        const int status = in_child([&] {
            FsFaults faults;
            if (k % 2)
                faults.cut_at(k / 2);
            else
                faults.fail_at(k / 2, ENOSPC);
            Mapped m(file, options(ATO_DOMAIN_DISK));
            const bool is_over = static_cast<long>(faults.calls.size()) <= k / 2;
            const Bytes found = m ? m.read() : Bytes();
            if (!found.empty() && found != content)
                return 2;
            if (!m && m.sentence.empty())
                return 3;
            return is_over ? 1 : 0;
        });
        ASSERT_TRUE(status == 0 || status == 1 || status == CUT) << status;
        done = status == 1;
        if (done)
            break;
        const bool plain = read_file(file) == content;
        Mapped m(file, options(k % 3 ? ATO_DOMAIN_AUTO : ATO_DOMAIN_DISK));
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.read(), content);
        if (plain || m.stat().format == ATO_FORMAT_LOG) { // it was home: again from the beginning
            ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
            ASSERT_EQ(read_file(file), content);
            content = pattern(SIZE, 1);
            ASSERT_NO_FATAL_FAILURE(SetUp());
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Pasts, Homecoming,
                         testing::Values(Past{"Dense", ATO_FORMAT_DENSE, false},
                                         Past{"DenseKilled", ATO_FORMAT_DENSE, true},
                                         Past{"Sparse", ATO_FORMAT_SPARSE, false},
                                         Past{"SparseKilled", ATO_FORMAT_SPARSE, true}),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
