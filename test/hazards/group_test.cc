// SPDX-License-Identifier: BSD-3-Clause
//
// What if a group loses its right to write a file while one of its members commits to it, and dies? The
// journal of that member is not trusted any more, and without it half of the commit is there. The pages, or
// the file, cannot be used (EACCES) until the group has the right again.
#include "support/faults.h"
#include "users.h"

#include <filesystem>
#include <memory>

using namespace hazards;

namespace
{

// A member of a group that shares a file has committed, and dies before all words are stored. The commit is
// to the file alone, or also to a second one.
class Group : public Users
{
  protected:
    static constexpr gid_t GROUP = 4242;
    static constexpr uid_t OWNER = 1111, MEMBER = 2222;
    using AllMapped = std::vector<std::unique_ptr<Mapped>>;

    void SetUp() override
    {
        Users::SetUp();
        if (IsSkipped())
            return;
        give(dir.path(), OWNER, GROUP, 02775);
        make(file);
    }
    void make(const std::string &path)
    {
        write_file(path, old);
        give(path, OWNER, GROUP, 0660);
        paths.push_back(path);
    }
    void make_second()
    {
        make(dir / "second");
    }
    void set_mode(mode_t mode) const
    {
        for (const std::string &path : paths)
            ASSERT_EQ(chmod(path.c_str(), mode), 0);
    }

    std::unique_ptr<Mapped> map(const std::string &path) const
    {
        return std::make_unique<Mapped>(path, o);
    }
    AllMapped map_all() const
    {
        AllMapped all;
        for (const std::string &path : paths)
            all.push_back(map(path));
        return all;
    }

    // A process of the group that has all files mapped.
    std::unique_ptr<Child> start(uid_t user, const std::function<void(AllMapped &)> &what) const
    {
        return std::make_unique<Child>(0, [&] {
            if (!become(user, {GROUP}))
                return 99;
            AllMapped all = map_all();
            what(all);
            return static_cast<int>(HasFailure());
        });
    }
    void as_owner(const std::function<void(AllMapped &)> &what) const
    {
        EXPECT_EQ(start(OWNER, what)->wait(), 0);
    }
    // `now`: called when the files are mapped.
    void lose_a_member(const std::function<void()> &now)
    {
        auto member = start(MEMBER, [&](AllMapped &all) {
            PersistFaults faults;
            faults.die_at_flip(2);
            mapped.tell();
            changed.hear();
            ato_tx *tx = ato_tx_begin(0);
            for (const auto &m : all)
                (void)ato_tx_memcpy(tx, m->base, committed.data(), committed.size(), 0);
            (void)ato_tx_commit(tx);
            ADD_FAILURE() << "the member still lives";
        });
        ASSERT_TRUE(mapped.hear());
        now();
        changed.tell();
        EXPECT_EQ(member->wait(), CUT);
    }
    // The owner maps all files, and runs `what` when told to.
    void start_owner(const std::function<void(AllMapped &)> &what)
    {
        owner = start(OWNER, [&](AllMapped &all) {
            mapped.tell();
            tried.hear();
            what(all);
        });
        ASSERT_TRUE(mapped.hear());
    }
    // So that the manifests belong to the owner.
    void owner_was_there() const
    {
        as_owner([](AllMapped &all) {
            for (const auto &m : all)
                EXPECT_TRUE(m->write(3 * 4096, pattern(10, 3))) << m->sentence;
        });
    }

    static void expect_no(const Mapped &m)
    {
        EXPECT_EQ(m.error, EACCES) << m.sentence;
        EXPECT_TRUE(has(m.sentence, "journal-")) << m.sentence;
    }
    void expect_committed(const Mapped &m) const
    {
        Bytes seen(committed.size());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_NE(ato_memcpy(seen.data(), m.base, seen.size()), nullptr) << ato_errormsg();
        EXPECT_EQ(seen, committed);
    }

    std::vector<std::string> paths;
    Pipe mapped, changed, tried;
    std::unique_ptr<Child> owner;
    const Bytes committed = pattern(4096 + 2000, 2);
    const ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
};

// The member's journal is not trusted any more, and without it half of the commit would be left. So its pages stay held
// until the group has the right again and a file is mapped again, which gives its side files the mode.
TEST_F(Group, ThatMayNotWriteAnyMoreLeavesPagesOfADeadMemberHeldUntilItMayWrite)
{
    make_second();
    start_owner([&](AllMapped &all) {
        EXPECT_TRUE(all[0]->write(4096 + 3000, pattern(10, 4))) << all[0]->sentence;
        expect_committed(*all[0]);
    });
    lose_a_member([&] { set_mode(0600); });
    as_owner([&](AllMapped &all) {
        for (const auto &m : all) {
            EXPECT_TRUE(*m) << m->sentence;
            EXPECT_FALSE(m->write(200, Bytes(10)));
            expect_no(*m);
            EXPECT_TRUE(m->write(2 * 4096, pattern(10, 3))) << m->sentence;
        }
    });
    set_mode(0660);
    as_owner([](AllMapped &all) { EXPECT_TRUE(*all[0]) << all[0]->sentence; });
    tried.tell();
    EXPECT_EQ(owner->wait(), 0);
}

// The same if the dead member was the last process.
TEST_F(Group, ThatMayNotWriteAnyMoreLeavesFilesOfADeadMemberRefusedUntilItMayWrite)
{
    make_second();
    owner_was_there();
    lose_a_member([] {});
    set_mode(0600);
    for (auto path = paths.rbegin(); path != paths.rend(); ++path)
        expect_error(OWNER, *path, EACCES, "journal-", {GROUP});
    set_mode(0660);
    as_owner([&](AllMapped &all) {
        for (const auto &m : all)
            expect_committed(*m);
    });
}

// A commit to one file lies in its manifest, which is the owner's.
TEST_F(Group, ThatMayNotWriteAnyMoreHindersNoCommitToOneFile)
{
    owner_was_there();
    lose_a_member([] {});
    set_mode(0600);
    as_owner([&](AllMapped &all) { expect_committed(*all[0]); });
}

// The file is not mapped when the group gets the right back: the manifest still has the restricted mode.
TEST_F(Group, ThatMayWriteAgainCanMapTheFile)
{
    make_second();
    start_owner([](AllMapped &) {});
    lose_a_member([&] { set_mode(0600); });
    as_owner([](AllMapped &all) { EXPECT_TRUE(*all[0]) << all[0]->sentence; });
    owner->kill();
    set_mode(0660);
    as_owner([&](AllMapped &all) { expect_committed(*all[0]); });
}

// A member lives and has another file mapped, but not this one any more. Its journal, which has served this file,
// does not prevent a map.
TEST_F(Group, IsNotStoppedByTheJournalOfALivingMember)
{
    make_second();
    owner_was_there();
    auto member = start(MEMBER, [&](AllMapped &all) {
        ato_tx *tx = ato_tx_begin(0);
        for (const auto &m : all)
            EXPECT_TRUE(ato_tx_memcpy(tx, m->base, old.data() + 1, 10, 0)) << ato_errormsg();
        EXPECT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
        all.pop_back();
        mapped.tell();
        tried.hear();
    });
    ASSERT_TRUE(mapped.hear());
    // Another process dies with the second file mapped.
    as(OWNER, [&] { _exit(map(paths[1])->write(0, old) ? 0 : 1); }, {GROUP});
    ASSERT_EQ(chmod(paths[1].c_str(), 0600), 0);
    expect_content(OWNER, paths[1], old, {GROUP});
    tried.tell();
    EXPECT_EQ(member->wait(), 0);
}

} // namespace
