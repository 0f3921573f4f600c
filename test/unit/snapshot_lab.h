// SPDX-License-Identifier: BSD-3-Clause
//
// A file of which snapshots are taken, in each domain, and a snapshot that ends by itself.
#ifndef ATO_TEST_UNIT_SNAPSHOT_LAB_H
#define ATO_TEST_UNIT_SNAPSHOT_LAB_H

#include "support/child.h"
#include "support/copied.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace snapshot_lab
{

using namespace support;

constexpr size_t PAGE = 4096, PAGES = 60, SIZE = PAGES * PAGE - 1000;

class Snap
{
  public:
    explicit Snap(const void *mapped) : s(ato_snapshot_begin(mapped))
    {
        note(s != nullptr);
    }
    ~Snap()
    {
        if (s) {
            EXPECT_EQ(ato_snapshot_end(s), 0) << ato_errormsg();
        }
    }
    Snap(const Snap &) = delete;
    Snap &operator=(const Snap &) = delete;
    explicit operator bool() const
    {
        return s != nullptr;
    }
    // Empty on failure.
    Bytes read(size_t at, size_t n)
    {
        Bytes to(n);
        const ssize_t got = ato_snapshot_read(s, to.data(), static_cast<off_t>(at), n);
        note(got >= 0);
        to.resize(got < 0 ? 0 : static_cast<size_t>(got));
        return to;
    }
    // All of it.
    Bytes copy()
    {
        Bytes to;
        const bool good = copy_snapshot(s, to) >= 0;
        note(good);
        return good ? to : Bytes();
    }

    ato_snapshot *s;
    int error = 0; // of the last call that failed
    std::string sentence;

  private:
    void note(bool good)
    {
        error = good ? 0 : errno;
        sentence = good ? "" : ato_errormsg();
    }
};

inline std::string name_of(int domain)
{
    static const char *const names[] = {"Auto", "Pmem", "Eadr", "Disk", "Process"};
    return names[domain];
}

// The domain, and where the file lies.
class OnAFile : public testing::TestWithParam<int>
{
  protected:
    void SetUp() override
    {
        if (GetParam() == ATO_DOMAIN_DISK && sparse())
            GTEST_SKIP() << "a file on a disk has no second format";
        write_file(file, content);
    }
    // With room for a growth.
    static ato_options opt(int policy = ATO_READ_GATHER, unsigned flags = 0)
    {
        ato_options o = options(GetParam(), policy, flags);
        o.max_size = 2 * SIZE;
        return o;
    }
    // Changes what the file has to be, too.
    bool put(Mapped &m, size_t at, const Bytes &news, unsigned flags = 0)
    {
        std::copy(news.begin(), news.end(), content.begin() + static_cast<long>(at));
        return m.write(at, news, flags);
    }

    TempDir dir{GetParam() == ATO_DOMAIN_DISK ? disk_folder() : "/dev/shm"};
    const std::string file = dir / "file";
    Bytes content = pattern(SIZE, 1);
};

#define IN_ALL_DOMAINS(suite)                                                                      \
    INSTANTIATE_TEST_SUITE_P(                                                                      \
        , suite,                                                                                   \
        testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS),    \
        [](const auto &info) { return snapshot_lab::name_of(info.param); })

} // namespace snapshot_lab

#endif
