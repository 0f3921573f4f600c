// SPDX-License-Identifier: BSD-3-Clause
//
// A small file system for a test, on each medium, which the test can fill and make room on.
#ifndef ATO_TEST_HAZARDS_SPACE_H
#define ATO_TEST_HAZARDS_SPACE_H

#include "hazards/lab.h"

#include <cerrno>
#include <filesystem>
#include <string>

#include <sys/mount.h>
#include <unistd.h>

namespace hazards
{

constexpr size_t PAGE = 4096, PAGES = 64, SIZE = PAGES * PAGE;

inline ato_options gather(int domain = ATO_DOMAIN_AUTO, size_t max_size = 0)
{
    ato_options o = options(domain, ATO_READ_GATHER, ATO_NO_RTM);
    o.max_size = max_size;
    return o;
}

inline void make_sparse(const std::string &path, size_t n)
{
    write_file(path, Bytes());
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(n)), 0);
}

// A file system of its own, visible only to this program, and a /dev/shm that is removed with it.
class Space : public testing::TestWithParam<Medium>
{
  protected:
    void SetUp() override
    {
        std::error_code none;
        mounted = alone() && mount_medium(GetParam(), disk, GetParam().mkfs ? 32 : 24);
        std::filesystem::remove("/dev/shm/image", none); // the loop device keeps it open
        if (!mounted)
            GTEST_SKIP() << "no root, mount or loop device";
    }
    void TearDown() override
    {
        for (const char *place : {disk.c_str(), "/dev/shm"})
            if (mounted)
                umount2(place, MNT_DETACH);
    }

    void make_room()
    {
        ASSERT_EQ(unlink(ballast.c_str()), 0);
    }
    static void expect_no_space(const Mapped &m, const std::string &named)
    {
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        EXPECT_TRUE(has(m.sentence, named)) << m.sentence;
    }
    void expect_refused(Mapped &m, size_t at, const Bytes &bytes)
    {
        EXPECT_FALSE(m.write(at, bytes));
        expect_no_space(m, file);
    }
    void expect_plain(Mapped &m, const Bytes &expected)
    {
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
        EXPECT_EQ(read_file(file), expected);
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk", file = disk + "/file", twin = disk + "/twin",
                      ballast = disk + "/ballast";
    const Bytes content = pattern(SIZE, 1);
    bool mounted = false;
};

#define ON(suite, ...)                                                                             \
    INSTANTIATE_TEST_SUITE_P(                                                                      \
        On, suite, testing::Values(__VA_ARGS__),                                                   \
        [](const testing::TestParamInfo<Medium> &info) { return info.param.name; })

} // namespace hazards

#endif
