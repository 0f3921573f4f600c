/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reader of an epoch has found the epoch's note of a page, and is stopped before it reads the bytes there.
 * Meanwhile the call that had taken the page fails, and gives it back; the next call's page gets its place. A
 * reader that took the one page's note for the other's would return the other page's old bytes.
 *
 * Needs the library with the seam.
 */
#include "gate.h"
#include "path.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <cerrno>
#include <thread>

namespace threads
{

namespace
{

class GivenBack : public testing::TestWithParam<bool>
{
};

} // namespace

TEST_P(GivenBack, AReaderDoesNotUseTheNoteOfAnotherPage)
{
    constexpr size_t PAGE = 4096, PAGES = 8, SLICE = 64;
    const bool several = GetParam();
    rig::Folder folder;
    const std::string file = folder / "file";
    ASSERT_TRUE(rig::write_file(file, std::vector<unsigned char>(PAGES * PAGE, 'o')));
    rig::Map map(file, PAGES * PAGE, rig::options(ATO_READ_GATHER, ATO_DOMAIN_PROCESS));
    rig::Map epoch(file, PAGES * PAGE,
                   rig::options(ATO_READ_GATHER, ATO_DOMAIN_PROCESS, ATO_EPOCHS));
    ASSERT_TRUE(map.base && epoch.base) << ato_errormsg();
    /* Its first slice is in the reflection now, and the old bytes are still in the file. */
    const std::vector<unsigned char> news(SLICE, 'n');
    ASSERT_TRUE(ato_memcpy(map.base + 2 * PAGE, news.data(), SLICE)) << ato_errormsg();

    __atomic_store_n(
        &seam_hook, [](enum seam_point point, const void *) { Gate<enum seam_point>::pass(point); },
        __ATOMIC_RELEASE);
    Gate<enum seam_point> of_writer, of_reader;
    int error = 0;
    std::thread writer([&] {
        const std::vector<unsigned char> bytes(3 * PAGE, 'w');
        ato_tx *t = ato_tx_begin(0);
        EXPECT_TRUE(ato_tx_memcpy(t, map.base + 4 * PAGE, "t", 1, 0)) << ato_errormsg();
        /* Has two pages, and comes to the third, which a transaction of its own thread has. */
        of_writer.arm(SEAM_RESERVE, 3);
        ato_iovec v[2] = {{epoch.base + 2 * PAGE, bytes.data(), PAGE},
                          {epoch.base + 3 * PAGE, bytes.data(), 2 * PAGE}};
        bool written = several
                           ? ato_writev(v, 2, 0) == 0
                           : ato_memcpy(epoch.base + 2 * PAGE, bytes.data(), 3 * PAGE) != nullptr;
        error = written ? 0 : errno;
        EXPECT_EQ(ato_tx_abort(t), 0);
    });
    of_writer.wait_until_stopped();
    std::vector<unsigned char> seen(SLICE);
    std::thread reader([&] {
        of_reader.arm(SEAM_VERSION, 1);
        EXPECT_TRUE(ato_memcpy(seen.data(), epoch.base + 2 * PAGE, SLICE)) << ato_errormsg();
    });
    of_reader.wait_until_stopped();
    of_writer.let_go();
    writer.join();
    EXPECT_EQ(error, EDEADLK);
    EXPECT_TRUE(ato_memset(epoch.base + 5 * PAGE, 'e', SLICE)) << ato_errormsg();
    of_reader.let_go();
    reader.join();
    EXPECT_EQ(seen, news);
    EXPECT_EQ(ato_msync(epoch.base, PAGES * PAGE, MS_SYNC), 0) << ato_errormsg();
    __atomic_store_n(&seam_hook, nullptr, __ATOMIC_RELEASE);
}

INSTANTIATE_TEST_SUITE_P(Calls, GivenBack, testing::Bool(),
                         [](const auto &info) { return info.param ? "Ranges" : "One"; });

} // namespace threads
