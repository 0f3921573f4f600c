// SPDX-License-Identifier: BSD-3-Clause
//
// What if the disk has room for k blocks more, for k = 0, 1, 2, ...? Each budget ends an operation at
// another place, on real file systems: ENOSPC, no byte lost, and when there is space again the next try
// works. The scenes are those of sweep_test.cc.
#include "life.h"

#include "hazards/lab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <iostream>

#include <fcntl.h>
#include <unistd.h>

namespace fault
{

using namespace support;

struct Medium {
    const char *name;
    const char *mkfs; // NULL: tmpfs
    off_t block;
    int domain;
};

void PrintTo(const Medium &m, std::ostream *out)
{
    *out << m.name;
}

// Takes all space below the folder of `ballast` and gives `blocks` back. No call waits for the disk.
static void leave_room(const std::string &ballast, off_t block, off_t blocks)
{
    Fd fd(ballast, O_RDWR | O_CREAT);
    off_t at = 0;
    for (off_t step = 8 << 20; step >= block; step /= 2)
        while (fallocate(fd, 0, at, step) == 0)
            at += step;
    if (ftruncate(fd, at - blocks * block) < 0)
        throw std::runtime_error("truncate the ballast");
}

// First block by block, for what is small; then around what a journal needs.
static std::vector<off_t> budgets(off_t block)
{
    std::vector<off_t> all;
    for (off_t k = 0; k < 10; k++)
        all.push_back(k);
    for (off_t k = 10; k < 100; k += 40)
        all.push_back(k);
    for (off_t bytes = (12 << 20) - (8 << 10); bytes < (12 << 20) + (1 << 20); bytes += 144 << 10)
        all.push_back(bytes / block);
    return all;
}

class FullDisk : public testing::TestWithParam<Medium>
{
  protected:
    // Until the operation has all that it needs.
    void sweep(const Scene &scene)
    {
        const std::string ballast = disk + "/ballast";
        const Medium &m = GetParam();
        SCOPED_TRACE(scene.name);
        for (off_t blocks : budgets(m.block)) {
            SCOPED_TRACE(std::to_string(blocks) + " blocks are free");
            World w(disk, m.domain, scene.bytes);
            Scene full = scene;
            full.ready = [&](World &world) {
                bool ok = !scene.ready || scene.ready(world);
                leave_room(ballast, m.block, blocks);
                return ok;
            };
            Told told = play(full, w, nullptr, [&] { unlink(ballast.c_str()); });
            unlink(ballast.c_str());
            worlds++;
            EXPECT_EQ(told.wrong, "") << told.sentence;
            if (told.succeeded) {
                succeeded++;
                return;
            }
            refused++;
            EXPECT_EQ(told.error, ENOSPC) << told.sentence;
        }
        ADD_FAILURE() << "never succeeds";
    }

    int mount_and_sweep(const std::vector<Scene> &scenes)
    {
        const char *mkfs = GetParam().mkfs;
        if (!hazards::alone() || !(mkfs ? hazards::mount_disk("/dev/shm/image", disk, 40, mkfs)
                                        : hazards::mount_memory(disk, "size=40m")))
            return hazards::NO_SCENE;
        for (const Scene &scene : scenes)
            if (std::find(scene.domains.begin(), scene.domains.end(), GetParam().domain) !=
                scene.domains.end())
                sweep(scene);
        std::cout << worlds << " worlds, " << refused << " of them refused" << std::endl;
        EXPECT_GT(refused, least_refused) << "nothing was ever full";
        return testing::Test::HasFailure();
    }

    TempDir dir{"/tmp"};
    const std::string disk = dir / "disk";
    long worlds = 0, refused = 0, succeeded = 0, least_refused = 0;
};

TEST_P(FullDisk, MapsAreRefusedUntilThereIsRoom)
{
    EXPECT_PLAYED(in_child([&] { return mount_and_sweep(scenes_of_maps()); }));
}

TEST_P(FullDisk, CallsAreRefusedUntilThereIsRoom)
{
    EXPECT_PLAYED(in_child([&] { return mount_and_sweep(scenes_of_moves()); }));
}

// Those of files without holes need none.
TEST_P(FullDisk, UnmapsGetAlongOrAreRefused)
{
    least_refused = -1;
    EXPECT_PLAYED(in_child([&] { return mount_and_sweep(scenes_of_unmaps()); }));
}

INSTANTIATE_TEST_SUITE_P(
    Media, FullDisk,
    testing::Values(Medium{"tmpfs", nullptr, 4096, ATO_DOMAIN_PROCESS},
                    Medium{"ext4", "-b 4096", 4096, ATO_DOMAIN_MSYNC},
                    Medium{"ext4_blocks_of_1k", "-b 1024", 1024, ATO_DOMAIN_MSYNC}),
    [](const testing::TestParamInfo<Medium> &info) { return std::string(info.param.name); });

} // namespace fault
