/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a snapshot that was given up stay silent, rather than show wrong bytes, when a commit was not saved for it, and its process
 * died while the commit became visible?
 */
#include "../model/rig.h"

#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>

extern "C" {
#include "reflection/media/seam.h"
}

namespace histories
{

constexpr size_t PAGES = 64, PAGE = 4096;

static rig::Map map_file(const std::string &path, int domain)
{
    ato_options o = rig::options(ATO_READ_GATHER, domain);
    o.snapshot_bytes = 64 << 10; /* 15 pages */
    return {path, PAGES * PAGE, o};
}

/* Is killed when the bitmap of the page, or the file itself, has changed. */
[[noreturn]] static void die_in_commit(const std::string &path, int domain)
{
    rig::Map map = map_file(path, domain);
    const uint64_t word = 2;
    seam_hook = [](enum seam_point point, const void *) {
        if (point == SEAM_FLIPPED)
            kill(getpid(), SIGKILL);
    };
    ato_memcpy(map.base + (PAGES - 1) * PAGE, &word, sizeof(word));
    _exit(1);
}

class GivenUp : public testing::TestWithParam<int>
{
};

TEST_P(GivenUp, SnapshotShowsNothingOfACommitThatATakeoverHasSaved)
{
    rig::Folder folder;
    const std::string path = folder / "file";
    ASSERT_TRUE(rig::write_file(path, std::vector<unsigned char>(PAGES * PAGE)));
    const rig::Map map = map_file(path, GetParam());
    ASSERT_TRUE(map.base) << ato_errormsg();
    uint64_t word = 1;
    ato_memcpy(map.base + (PAGES - 1) * PAGE, &word, sizeof(word));
    ato_snapshot *const lost = ato_snapshot_begin(map.base);
    ASSERT_TRUE(lost) << ato_errormsg();
    for (size_t page = 0; page < PAGES / 2; page++)
        ASSERT_TRUE(ato_memcpy(map.base + page * PAGE, &word, sizeof(word))) << ato_errormsg();
    ASSERT_EQ(ato_snapshot_read(lost, &word, (PAGES / 2 - 1) * PAGE, sizeof(word)), -1);
    ASSERT_EQ(errno, ESTALE) << "it is not given up";

    const int pid = fork();
    if (pid == 0)
        die_in_commit(path, GetParam());
    int status;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status));

    /* Waits for the dead process's commit, and takes it over: so the pages of that are saved for the new snapshot. */
    ato_snapshot *const later = ato_snapshot_begin(map.base);
    ASSERT_TRUE(later) << ato_errormsg();
    EXPECT_EQ(ato_snapshot_read(later, &word, (PAGES - 1) * PAGE, sizeof(word)), 8);
    EXPECT_EQ(word, 2u);
    EXPECT_EQ(ato_snapshot_read(lost, &word, (PAGES - 1) * PAGE, sizeof(word)), -1)
        << "it shows " << word << ", and should show 1 or nothing";
    EXPECT_EQ(errno, ESTALE);
    EXPECT_EQ(ato_snapshot_end(lost), 0);
    EXPECT_EQ(ato_snapshot_end(later), 0);
}

INSTANTIATE_TEST_SUITE_P(All, GivenUp,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS),
                         [](const auto &info) { return rig::domain_name(info.param); });

} // namespace histories
