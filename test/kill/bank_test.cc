/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does SIGKILL leave of transactions over many pages of three files? Threads that move money are
 * killed again and again; then a fresh process must find every transfer that was acknowledged, none by
 * half, and no money made or lost; and after the last one so must read(2), with nothing left behind.
 */
#include "bank.h"

#include <gtest/gtest.h>
#include <ostream>

namespace kills
{

static std::string name_of(const Branch &b)
{
    return rig::policy_name(b.policy) + rig::domain_name(b.domain) +
           (b.flags & ATO_NO_RTM ? "Journal" : "");
}

static void PrintTo(const Branch &b, std::ostream *out)
{
    *out << name_of(b);
}

class BankKills : public testing::TestWithParam<Branch>
{
  protected:
    void SetUp() override
    {
        ASSERT_TRUE(bank.write_files());
    }
    void kill_the_clerks()
    {
        uint64_t seed = random.next();
        Process p([&](const Teller &t) { transfer_until_killed(GetParam(), bank, seed, t); });
        bool working = random.chance(80);
        p.listen(random.below(working ? 5000000 : 10000000), working);
        p.kill();
        bank.hear(p.notes);
        ASSERT_TRUE(p.was_killed()) << "the clerks: " << p.end();
    }
    void look(int unmap_mode, bool abandon)
    {
        Process p([&](const Teller &t) { audit(GetParam(), bank, unmap_mode, abandon, t); });
        p.wait();
        ASSERT_TRUE(p.ended_well()) << "the audit: " << p.end();
        bank.hear(p.notes);
        uint64_t found[Bank::THREADS] = {};
        for (const Note &n : p.notes)
            if (n.say == Say::Verdict)
                found[n.thread] = n.content.version;
        for (unsigned t = 0; t < Bank::THREADS; t++)
            interrupted += bank.begun[t] > bank.told[t];
        bank.settle(found);
    }
    void look_plainly()
    {
        std::vector<std::vector<unsigned char>> files;
        for (unsigned i = 0; i < Bank::FILES; i++)
            files.push_back(rig::read_file(bank.path(i)));
        EXPECT_EQ(bank.judge(files), "");
        EXPECT_EQ(bank.leftovers(), "");
    }

    rig::Folder folder;
    Bank bank{folder};
    rig::Random random{rig::seed()};
    uint64_t interrupted = 0;
};

TEST_P(BankKills, LeaveEveryAcknowledgedTransferAndNoneByHalf)
{
    SCOPED_TRACE(rig::replay());
    unsigned kills = rig::rounds(25);
    for (unsigned i = 0; i < kills && !HasFailure(); i++) {
        SCOPED_TRACE("kill " + std::to_string(i));
        kill_the_clerks();
        bool spatial = random.chance(30);
        if (!HasFailure())
            look(spatial ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST, !spatial && random.chance(50));
        if (!HasFailure() && spatial)
            look_plainly();
    }
    if (!HasFailure())
        look(ATO_UNMAP_SPATIAL, false);
    if (HasFailure())
        return;
    look_plainly();
    EXPECT_GT(bank.acknowledged, 0u);
    EXPECT_GT(interrupted, 0u) << "no kill came within a transfer";
    std::printf("%u kills, %lu transfers acknowledged, %lu interrupted\n", kills,
                static_cast<unsigned long>(bank.acknowledged),
                static_cast<unsigned long>(interrupted));
}

INSTANTIATE_TEST_SUITE_P(All, BankKills,
                         testing::Values(Branch{ATO_READ_LAZY, ATO_DOMAIN_PMEM, 0},
                                         Branch{ATO_READ_EAGER, ATO_DOMAIN_MSYNC, 0},
                                         Branch{ATO_READ_ADAPTIVE, ATO_DOMAIN_EADR, ATO_NO_RTM},
                                         Branch{ATO_READ_GATHER, ATO_DOMAIN_PROCESS, 0}),
                         [](const auto &info) { return name_of(info.param); });

} // namespace kills
