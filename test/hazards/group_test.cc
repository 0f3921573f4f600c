// SPDX-License-Identifier: BSD-3-Clause
//
// What if a group loses its right to write a file while one of its members commits to it, and dies? The commit is in
// the file's manifest. If that is the owner's, the commit is finished. If it is the member's, it is not trusted any more, and
// without it half of the commit is there: the file cannot be used (EACCES) until the group has the right again.
#include "support/faults.h"
#include "users.h"

#include <memory>

using namespace hazards;

namespace
{

// A member of a group that shares a file has committed, and dies before all words are stored.
class Group : public Users
{
  protected:
    static constexpr gid_t GROUP = 4242;
    static constexpr uid_t OWNER = 1111, MEMBER = 2222;

    void SetUp() override
    {
        Users::SetUp();
        if (IsSkipped())
            return;
        give(dir.path(), OWNER, GROUP, 02775);
        write_file(file, old);
        give(file, OWNER, GROUP, 0660);
    }
    void set_mode(mode_t mode) const
    {
        ASSERT_EQ(chmod(file.c_str(), mode), 0);
    }

    // A process of the group that has the file mapped.
    std::unique_ptr<Child> start(uid_t user, const std::function<void(Mapped &)> &what) const
    {
        return std::make_unique<Child>(0, [&] {
            if (!become(user, {GROUP}))
                return 99;
            Mapped m(file, o);
            what(m);
            return static_cast<int>(HasFailure());
        });
    }
    void as_owner(const std::function<void(Mapped &)> &what) const
    {
        EXPECT_EQ(start(OWNER, what)->wait(), 0);
    }
    // `now`: called when the file is mapped.
    void lose_a_member(const std::function<void()> &now)
    {
        auto member = start(MEMBER, [&](Mapped &m) {
            PersistFaults faults;
            faults.die_at_flip(2);
            mapped.tell();
            changed.hear();
            (void)m.write(0, committed);
            ADD_FAILURE() << "the member still lives";
        });
        ASSERT_TRUE(mapped.hear());
        now();
        changed.tell();
        EXPECT_EQ(member->wait(), CUT);
    }
    // The owner maps the file, and runs `what` when told to.
    void start_owner(const std::function<void(Mapped &)> &what)
    {
        owner = start(OWNER, [&](Mapped &m) {
            mapped.tell();
            tried.hear();
            what(m);
        });
        ASSERT_TRUE(mapped.hear());
    }
    // So that the manifest belongs to the owner.
    void owner_was_there() const
    {
        as_owner([](Mapped &m) { EXPECT_TRUE(m.write(3 * 4096, pattern(10, 3))) << m.sentence; });
    }
    void expect_committed(const Mapped &m) const
    {
        Bytes seen(committed.size());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_NE(ato_memcpy(seen.data(), m.base, seen.size()), nullptr) << ato_errormsg();
        EXPECT_EQ(seen, committed);
    }

    Pipe mapped, changed, tried;
    std::unique_ptr<Child> owner;
    const Bytes committed = pattern(4096 + 2000, 2);
    const ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
};

TEST_F(Group, ThatMayNotWriteAnyMoreHindersNoTakeover)
{
    start_owner([&](Mapped &m) {
        EXPECT_TRUE(m.write(4096 + 3000, pattern(10, 4))) << m.sentence; // takes over
        expect_committed(m);
    });
    lose_a_member([&] { set_mode(0600); });
    tried.tell();
    EXPECT_EQ(owner->wait(), 0);
}

TEST_F(Group, ThatMayNotWriteAnyMoreHindersNoRecovery)
{
    owner_was_there();
    lose_a_member([] {});
    set_mode(0600);
    as_owner([&](Mapped &m) { expect_committed(m); });
}

// The member was the first to map the file.
TEST_F(Group, ThatMayNotWriteAnyMoreLeavesAManifestRefusedUntilItMayWrite)
{
    lose_a_member([] {});
    set_mode(0600);
    expect_error(OWNER, file, EACCES, std::to_string(MEMBER), {GROUP});
    set_mode(0660);
    as_owner([&](Mapped &m) { expect_committed(m); });
}

// The file is not mapped when the group gets the right back: the manifest still has the restricted mode.
TEST_F(Group, ThatMayWriteAgainCanMapTheFile)
{
    start_owner([](Mapped &) {});
    lose_a_member([&] { set_mode(0600); });
    as_owner([](Mapped &m) { EXPECT_TRUE(m) << m.sentence; });
    owner->kill();
    set_mode(0660);
    as_owner([&](Mapped &m) { expect_committed(m); });
}

} // namespace
