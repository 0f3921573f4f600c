// SPDX-License-Identifier: BSD-3-Clause
//
// A file that grows, and a process that dies during the growth: for the tests of growth.
#ifndef ATO_TEST_UNIT_GROWTH_LAB_H
#define ATO_TEST_UNIT_GROWTH_LAB_H

#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include <sys/mman.h>

namespace growth_lab
{

using namespace support;

constexpr size_t SIZE = 5 * 4096 + 100;
constexpr uint64_t LONGER = 9 * 4096 + 700;
constexpr uint64_t CHUNK = 512 * 4096;

inline Bytes grown(Bytes content, uint64_t to)
{
    content.resize(to);
    return content;
}

// Stores behind the end of the file, as another program that maps it can.
inline void store_behind(const std::string &path, uint64_t at, size_t n)
{
    Fd fd(path);
    void *view = mmap(nullptr, at + n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(view, MAP_FAILED);
    std::fill_n(static_cast<char *>(view) + at, n, 'x');
    munmap(view, at + n);
}

// A log holds nothing when the file was unmapped: then another program may give the file any length.
inline bool has_log(int domain)
{
    return domain == ATO_DOMAIN_DISK;
}

class Growth : public testing::TestWithParam<int>
{
  protected:
    explicit Growth(const std::string &below = "/dev/shm")
        : dir(below), path(dir / "file"), content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }

    ato_options wish(int policy = ATO_READ_GATHER) const
    {
        return options(GetParam(), policy, ATO_NO_RTM);
    }
    // For a mapping that grows with the file.
    ato_options wish_to_grow() const
    {
        ato_options o = wish();
        o.max_size = 1 << 24;
        return o;
    }

    // The file has this content, and can be mapped, grown, written and made plain.
    void expect_in_order(const Bytes &expected)
    {
        ASSERT_EQ(size_of(path), expected.size());
        Mapped m(path, wish());
        ASSERT_TRUE(m) << m.sentence;
        ASSERT_EQ(m.read(), expected);
        ASSERT_EQ(ato_ftruncate(m.base, static_cast<off_t>(expected.size() + 5000)), 0)
            << ato_errormsg();
        ASSERT_TRUE(m.write(expected.size() + 1000, pattern(3000, 7))) << m.sentence;
        Bytes more = grown(expected, expected.size() + 5000);
        std::copy_n(pattern(3000, 7).begin(), 3000,
                    more.begin() + static_cast<long>(expected.size() + 1000));
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        ASSERT_EQ(read_file(path), more);
        ASSERT_EQ(names_in(folder_of(path)), std::vector<std::string>());
    }

    TempDir dir;
    std::string path;
    Bytes content;
};

// A process that grows a file dies before call `k` of the table that `Faults` replaces.
template <class Faults>
int cut_growth(const std::string &path, const ato_options &wish, const Bytes &content, uint64_t to,
               long k, bool *returned)
{
    int status = in_child([&] {
        Mapped m(path, wish);
        if (!m || !m.write(100, Bytes(content.begin() + 100, content.begin() + 200)))
            return 1;
        Faults faults;
        faults.cut_at(k);
        return ato_ftruncate(m.base, static_cast<off_t>(to)) == 0 ? 0 : 2;
    });
    *returned = status == 0;
    return status;
}

// The index of the file system call before which the files have their new length, and neither the size
// word nor a record of the log says it yet.
inline long last_before_size(int domain)
{
    TempDir dir;
    write_file(dir / "file", pattern(SIZE, 1));
    Mapped m(dir / "file", options(domain));
    m.write(100, Bytes(100));
    FsFaults faults;
    ato_ftruncate(m.base, LONGER);
    return static_cast<long>(faults.calls.size()) - (faults.count("pwrite") ? 2 : 1);
}

// The k-th sync fails, from 1: a flush of memory, or of a file.
class FailingSync
{
  public:
    explicit FailingSync(long k) : left(k)
    {
        stores.before = [this](const PersistCall &c) { return fails(c.op); };
        fs.before = [this](const FsCall &c) { return fails(c.op); };
    }

  private:
    int fails(const std::string &op)
    {
        const bool syncs = op.rfind("flush", 0) == 0 || op == "fsync" || op == "fdatasync";
        return syncs && --left == 0 ? EIO : GO_ON;
    }
    long left;
    PersistFaults stores;
    FsFaults fs;
};

} // namespace growth_lab

#endif
