// SPDX-License-Identifier: BSD-3-Clause
//
// A file system of the test's own that can be filled up.
#ifndef ATO_TEST_HAZARDS_FULL_DISK_H
#define ATO_TEST_HAZARDS_FULL_DISK_H

#include "hazards/lab.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace hazards
{

struct Medium {
    const char *name;
    const char *mkfs; // NULL: tmpfs
};

// The last one has no room for attributes in its inodes: they take a block.
inline const Medium MEDIA[] = {{"tmpfs", nullptr},
                               {"ext4", "-b 4096"},
                               {"ext4_blocks_of_1k", "-b 1024"},
                               {"ext4_small_inodes", "-b 1024 -I 128"}};

inline std::string name_of(const testing::TestParamInfo<Medium> &info)
{
    return info.param.name;
}

// As fill(), and what is dirty stays so.
inline void fill_quietly(const std::string &ballast)
{
    Fd fd(ballast, O_RDWR | O_CREAT);
    for (off_t n = 1 << 20; n >= 4096; n /= 2)
        while (fallocate(fd, 0, stat_of(ballast).st_size, n) == 0)
            ;
}

// What was ready for stores is so no more. Not sync(): other tests' disks may be about to fail.
inline void clean(const std::string &disk)
{
    Fd fd(disk, O_RDONLY);
    EXPECT_EQ(syncfs(fd), 0);
}

// As many pages are left.
inline void fill_but(const std::string &ballast, size_t pages)
{
    fill_quietly(ballast);
    ASSERT_EQ(truncate(ballast.c_str(), static_cast<off_t>(size_of(ballast) - pages * 4096)), 0);
}

class FullDisk : public testing::TestWithParam<Medium>
{
  protected:
    bool in_memory() const
    {
        return !GetParam().mkfs;
    }

    int play(const std::function<void()> &scene)
    {
        return in_child([&] {
            bool mounted =
                alone() && (in_memory() ? mount_memory(disk, "size=24m")
                                        : mount_disk("/dev/shm/image", disk, 32, GetParam().mkfs));
            if (!mounted)
                return NO_SCENE;
            scene();
            return static_cast<int>(HasFailure());
        });
    }

    // Two files alike: one for the library, one for the naive way.
    void make_files(const Bytes &content, size_t size)
    {
        for (const std::string &p : {file, twin}) {
            write_file(p, content);
            ASSERT_EQ(truncate(p.c_str(), static_cast<off_t>(size)), 0);
        }
    }

    void make_room()
    {
        ASSERT_EQ(unlink(ballast.c_str()), 0);
    }

    void expect_no_space(const Mapped &m, const std::string &what)
    {
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;
        EXPECT_TRUE(has(m.sentence, what)) << m.sentence;
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk";
    const std::string file = disk + "/file", twin = disk + "/twin", ballast = disk + "/ballast";
};

} // namespace hazards

#endif
