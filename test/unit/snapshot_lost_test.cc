// SPDX-License-Identifier: BSD-3-Clause
//
// A snapshot was given up by a commit whose process was killed. Does a read of it still return the right bytes or an error?
#include "unit/reader_of_dead_lab.h"

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, PAGES = 400;

// The process that takes over has a snapshot that begins, and saves pages for it. Those that the dead one has changed are not saved
// as if they were what they had been.
TEST(SnapshotThatIsGivenUp, ReadsNothingThatADeadProcessHasChanged)
{
    TempDir dir("/dev/shm");
    const Bytes before = pattern(PAGES * PAGE, 1), after = pattern(PAGES * PAGE, 2);
    write_file(dir / "file", before);
    ato_options o = options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_NO_RTM);
    o.snapshot_bytes = 1 << 20; // some 250 pages
    Mapped m(dir / "file", o);
    ASSERT_TRUE(m) << m.sentence;
    ato_snapshot *lost = ato_snapshot_begin(m.base);
    ASSERT_TRUE(lost) << ato_errormsg();
    ASSERT_EQ(reader_of_dead::die_at({SEAM_FLIPPED, 0, ""},
                                     [&] {
                                         Mapped own(dir / "file", o);
                                         own.write(0, after);
                                     }),
              CUT);
    ato_snapshot *next = ato_snapshot_begin(m.base);
    ASSERT_TRUE(next) << ato_errormsg();
    size_t refused = 0;
    for (size_t at = 0; at < PAGES * PAGE; at += PAGE) {
        Bytes got(PAGE);
        if (ato_snapshot_read(lost, got.data(), static_cast<off_t>(at), PAGE) < 0) {
            EXPECT_EQ(errno, ESTALE);
            refused++;
        } else {
            EXPECT_TRUE(std::equal(got.begin(), got.end(), before.begin() + static_cast<long>(at)))
                << "page " << at / PAGE;
        }
        EXPECT_EQ(ato_snapshot_read(next, got.data(), static_cast<off_t>(at), PAGE),
                  static_cast<ssize_t>(PAGE));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), after.begin() + static_cast<long>(at)));
    }
    EXPECT_GT(refused, 0u);
    EXPECT_EQ(ato_snapshot_end(lost), 0);
    EXPECT_EQ(ato_snapshot_end(next), 0);
}

} // namespace
