// SPDX-License-Identifier: BSD-3-Clause
//
// What if the disk has room for only a few blocks? Each budget stops an operation at another place, on real
// file systems: ENOSPC, no byte lost, and with space again the next try works. This is the table of operation
// x medium, with the scenes of sweep_test.cc. Other states of files and disks are in hazards/space_test.cc.
//
// ATO_TEST_PERCENT above 100 tries more budgets.
#include "life.h"

#include "hazards/lab.h"
#include "model/rig.h"
#include "support/mapped.h"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <set>

#include <unistd.h>

namespace fault
{

using hazards::Medium;

// In bytes: a small budget stops an operation at its first allocations, the size of a long lane at its last.
static std::vector<off_t> budgets(off_t block)
{
    const off_t lane = 1 << 20;
    std::set<off_t> all = {0, block, 4096, 2 * 4096, 9 * 4096, 3 * lane};
    if (rig::rounds(100) > 100) {
        for (off_t k = 2; k < 100; k += k < 10 ? 1 : 40)
            all.insert(k * block);
        for (off_t more = -(8 << 10); more < 1 << 20; more += 144 << 10)
            all.insert(lane + more);
    }
    return {all.begin(), all.end()};
}

class FullDisk : public testing::TestWithParam<Medium>
{
  protected:
    // Until the operation gets all space that it needs.
    void sweep(const Scene &scene, int domain)
    {
        const std::string ballast = disk + "/ballast";
        SCOPED_TRACE(scene.name);
        for (off_t left : budgets(support::stat_of(disk).st_blksize)) {
            SCOPED_TRACE(std::to_string(left) + " bytes are free");
            World w(disk, domain, scene.bytes);
            Scene full = scene;
            full.ready = [&](World &world) {
                bool ok = !scene.ready || scene.ready(world);
                hazards::fill_but(ballast, left);
                return ok;
            };
            Told told = play(full, w, nullptr, [&] { unlink(ballast.c_str()); });
            unlink(ballast.c_str());
            worlds++;
            EXPECT_EQ(told.wrong, "") << told.sentence;
            if (told.succeeded)
                return;
            refused++;
            EXPECT_EQ(told.error, ENOSPC) << told.sentence;
            EXPECT_TRUE(hazards::has(told.sentence, disk)) << told.sentence;
        }
        ADD_FAILURE() << "never succeeds";
    }

    bool is_logged() const
    {
        return GetParam().mkfs;
    }

    // Mounts the medium and plays; at least so many of the worlds must be refused, or none.
    int sweep_all(const std::vector<Scene> &scenes, long least)
    {
        return support::in_child([&] {
            const int domain = is_logged() ? ATO_DOMAIN_DISK : ATO_DOMAIN_PROCESS;
            if (!hazards::alone() || !hazards::mount_medium(GetParam(), disk, 24))
                return hazards::NO_SCENE;
            for (const Scene &scene : scenes)
                if (std::count(scene.domains.begin(), scene.domains.end(), domain))
                    sweep(scene, domain);
            std::cout << worlds << " worlds, " << refused << " of them refused" << std::endl;
            if (least)
                EXPECT_GE(refused, least) << "was it ever full?";
            else
                EXPECT_EQ(refused, 0);
            return static_cast<int>(HasFailure());
        });
    }

    support::TempDir dir{"/tmp"};
    const std::string disk = dir / "disk";
    long worlds = 0, refused = 0;
};

TEST_P(FullDisk, MapsAreRefusedUntilThereIsRoom)
{
    EXPECT_PLAYED(sweep_all(scenes_of_maps(), 10));
}

// Where there is a log they need space for holes of the file, and for a longer log.
TEST_P(FullDisk, CallsAreRefusedUntilThereIsRoom)
{
    EXPECT_PLAYED(sweep_all(scenes_of_moves(), is_logged() ? 5 : 25));
}

TEST_P(FullDisk, UnmapsNeedNoSpace)
{
    EXPECT_PLAYED(sweep_all(scenes_of_unmaps(), 0));
}

// On a disk there is a log, in either format.
static std::vector<Medium> media()
{
    if (support::sparse())
        return {hazards::TMPFS};
    return {hazards::TMPFS, hazards::EXT4, hazards::EXT4_1K};
}

INSTANTIATE_TEST_SUITE_P(Media, FullDisk, testing::ValuesIn(media()),
                         [](const testing::TestParamInfo<Medium> &info) {
                             return info.param.name;
                         });

} // namespace fault
