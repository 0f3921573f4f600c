/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do readers ever read a mixture of two writes, or a write that is lost, early or undone, while writers,
 * deployers, copiers and unmappers work? With every policy and commit path.
 */
#include "chaos.h"
#include "records.h"

namespace threads
{

TEST_P(OnPath, NoReaderSeesAMixOrAnOlderVersion)
{
    SCOPED_TRACE(rig::replay());
    Chaos chaos;
    Records records(GetParam());
    EXPECT_EQ(records.work(many(600), 3), "");
    EXPECT_EQ(records.end(), "");
}

TEST_P(OnPath, MappingAndUnmappingOtherFilesDisturbsNoReader)
{
    SCOPED_TRACE(rig::replay());
    Chaos chaos;
    Records records(GetParam());
    /* In the same folder, so that all share a journal. */
    std::string path = records.folder / "other";
    std::vector<unsigned char> bytes(20011, 'a');
    ASSERT_TRUE(rig::write_file(path, bytes));
    unsigned round = 0;
    std::string wrong = records.work(many(150), 2, rig::rounds(12), [&]() -> std::string {
        round++;
        rig::Map other(path, bytes.size(), GetParam().options());
        rig::Map again(path, 4096, GetParam().options(), 4096);
        if (!other.base || !again.base)
            return ato_errormsg();
        if (!ato_memset(other.base + 11, static_cast<int>(round), 16000))
            return ato_errormsg();
        std::memset(bytes.data() + 11, static_cast<int>(round), 16000);
        if (again.unmap(ATO_UNMAP_FAST) < 0 || other.unmap(static_cast<int>(round % 2)) < 0)
            return ato_errormsg();
        if (round % 2 == ATO_UNMAP_SPATIAL && rig::read_file(path) != bytes)
            return "the other file is not what was written";
        return "";
    });
    EXPECT_EQ(wrong, "");
    {
        rig::Map other(path, bytes.size(), GetParam().options());
        EXPECT_EQ(other.unmap(ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
    }
    EXPECT_EQ(records.end(), "");
}

INSTANTIATE_TEST_SUITE_P(Records, OnPath, testing::ValuesIn(all_paths()),
                         [](const auto &info) { return name_of(info.param); });

} // namespace threads
