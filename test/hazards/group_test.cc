// SPDX-License-Identifier: BSD-3-Clause
//
// What if a group loses its right to write a file while one of its members is committing to it, and dies? His journal is
// not believed any more, and without it half of the commit is there.
#include "hazards/lab.h"
#include "support/faults.h"

#include <cerrno>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace hazards;

namespace
{

// One of a group that shares a file has committed, and dies before the words are all stored.
class Group : public testing::Test
{
  protected:
    static constexpr gid_t GROUP = 4242;
    static constexpr uid_t OWNER = 1111, MEMBER = 2222;

    void SetUp() override
    {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root, to become somebody else";
        write_file(file, old);
        share(file, 0660);
        share(dir.path(), 02775);
    }
    static std::function<int()> as(uid_t user, const std::function<int()> &what)
    {
        return [user, what] {
            if (setgroups(0, nullptr) < 0 || setgid(GROUP) < 0 || setuid(user) < 0)
                return 99;
            return what();
        };
    }
    int as_owner(const std::function<void(Mapped &)> &what)
    {
        Child owner(0, as(OWNER, [&] {
                        Mapped m(file, o);
                        what(m);
                        return static_cast<int>(HasFailure());
                    }));
        return owner.wait();
    }
    // `mapped`: when it has the file mapped.
    int die_in_commit(const std::function<void()> &mapped, const Mapped *second = nullptr)
    {
        Mapped m(file, o);
        PersistFaults faults;
        faults.die_at_flip(2);
        mapped();
        const Bytes committed = pattern(COMMITTED, 2);
        ato_tx *tx = ato_tx_begin(0);
        (void)ato_tx_memcpy(tx, m.base, committed.data(), COMMITTED, 0);
        if (second)
            (void)ato_tx_memcpy(tx, second->base, committed.data(), COMMITTED, 0);
        (void)ato_tx_commit(tx);
        return 1;
    }
    static void expect_refused(const Mapped &m)
    {
        EXPECT_EQ(m.error, EACCES) << m.sentence;
        EXPECT_TRUE(has(m.sentence, "journal-")) << m.sentence;
    }

    // The owner has it mapped, and does `what` when he is told; a member dies in a commit after the group lost its right to
    // write. Files beside the first are mapped, too.
    void lose_a_member(const std::vector<std::string> &more,
                       const std::function<void(Mapped &)> &what)
    {
        owner = std::make_unique<Child>(0, as(OWNER, [this, more, what] {
                                            Mapped m(file, o);
                                            std::vector<std::unique_ptr<Mapped>> others =
                                                map_all(more);
                                            mapped.tell();
                                            tried.hear();
                                            what(m);
                                            return static_cast<int>(HasFailure());
                                        }));
        ASSERT_TRUE(mapped.hear());
        Child member(0, as(MEMBER, [&] {
                         std::vector<std::unique_ptr<Mapped>> others = map_all(more);
                         return die_in_commit(
                             [&] {
                                 mapped.tell();
                                 changed.hear();
                             },
                             more.empty() ? nullptr : others[0].get());
                     }));
        ASSERT_TRUE(mapped.hear());
        ASSERT_EQ(chmod(file.c_str(), 0600), 0);
        for (const std::string &path : more)
            ASSERT_EQ(chmod(path.c_str(), 0600), 0);
        changed.tell();
        EXPECT_EQ(member.wait(), CUT);
    }
    // So that manifests are his own.
    void owner_was_there(const std::vector<std::string> &paths) const
    {
        Child first(0, as(OWNER, [&] {
                        for (const std::string &path : paths) {
                            Mapped m(path, o);
                            EXPECT_TRUE(m.write(3 * 4096, pattern(10, 3))) << m.sentence;
                            EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
                        }
                        return static_cast<int>(HasFailure());
                    }));
        EXPECT_EQ(first.wait(), 0);
    }
    // Another file, in a folder of its own.
    std::string file_elsewhere() const
    {
        const std::string folder = dir / "second", second = folder + "/file";
        EXPECT_EQ(mkdir(folder.c_str(), 0700), 0);
        share(folder, 02775);
        write_file(second, old);
        share(second, 0660);
        return second;
    }
    std::vector<std::unique_ptr<Mapped>> map_all(const std::vector<std::string> &paths) const
    {
        std::vector<std::unique_ptr<Mapped>> all;
        for (const std::string &path : paths)
            all.push_back(std::make_unique<Mapped>(path, o));
        return all;
    }
    void share(const std::string &path, mode_t mode) const
    {
        ASSERT_EQ(chown(path.c_str(), OWNER, GROUP), 0);
        ASSERT_EQ(chmod(path.c_str(), mode), 0);
    }

    TempDir dir;
    const std::string file = dir / "file";
    static constexpr size_t SIZE = 4 * 4096;
    const Bytes old = pattern(SIZE, 1);
    Pipe mapped, changed, tried;
    std::unique_ptr<Child> owner;
    static constexpr size_t COMMITTED = 4096 + 2000;
    const ato_options o = options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
};

// Meanwhile the group lost its right to write: its journals are not believed. What the dead one held nobody can free, for
// to go on without the commit would leave half of it; until the right is given back, and somebody has mapped the file
// since, by whom its other files get the mode.
TEST_F(Group, ThatMayNotWriteAnyMoreLeavesWhatAMemberHeldUntilItMay)
{
    lose_a_member({}, [](Mapped &m) {
        EXPECT_TRUE(m.write(4096 + 3000, pattern(10, 4))) << m.sentence;
        EXPECT_EQ(m.read(0, COMMITTED), pattern(COMMITTED, 2));
    });
    EXPECT_EQ(as_owner([&](Mapped &m) {
                  EXPECT_TRUE(m) << m.sentence;
                  EXPECT_FALSE(m.write(4096 + 2000, Bytes(10)));
                  expect_refused(m);
                  EXPECT_TRUE(m.write(2 * 4096, pattern(10, 3))) << m.sentence;
              }),
              0);
    ASSERT_EQ(chmod(file.c_str(), 0660), 0);
    EXPECT_EQ(as_owner([](Mapped &m) { EXPECT_TRUE(m) << m.sentence; }), 0);
    tried.tell();
    EXPECT_EQ(owner->wait(), 0);
}

// The same when he was the last one, and lost it then.
TEST_F(Group, ThatMayNotWriteAnyMoreKeepsWhatAMemberDiedWithFromBeingMapped)
{
    owner_was_there({file});
    Child member(0, as(MEMBER, [&] { return die_in_commit([] {}); }));
    EXPECT_EQ(member.wait(), CUT);
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    EXPECT_EQ(as_owner([](Mapped &m) {
                  EXPECT_FALSE(m);
                  expect_refused(m);
              }),
              0);
    ASSERT_EQ(chmod(file.c_str(), 0660), 0);
    EXPECT_EQ(as_owner([](Mapped &m) {
                  ASSERT_TRUE(m) << m.sentence;
                  EXPECT_EQ(m.read(0, COMMITTED), pattern(COMMITTED, 2));
              }),
              0);
}

// And nobody has it mapped when it is given back: the manifest has the mode of the time between.
TEST_F(Group, ThatMayWriteAgainLetsTheFileBeMapped)
{
    lose_a_member({}, [](Mapped &) {});
    EXPECT_EQ(as_owner([&](Mapped &m) { EXPECT_TRUE(m) << m.sentence; }), 0);
    owner->kill();
    ASSERT_EQ(chmod(file.c_str(), 0660), 0);
    EXPECT_EQ(as_owner([](Mapped &m) {
                  ASSERT_TRUE(m) << m.sentence;
                  EXPECT_EQ(m.read(0, COMMITTED), pattern(COMMITTED, 2));
              }),
              0);
}

// A commit to two files in two folders, of which the second one has a pointer to the journal.
TEST_F(Group, ThatMayNotWriteAnyMoreLeavesWhatAMemberHeldWhereAPointerIs)
{
    const std::string second = file_elsewhere();
    lose_a_member({second}, [](Mapped &) {});
    EXPECT_EQ(as_owner([&](Mapped &a) {
                  Mapped b(second, o);
                  ASSERT_TRUE(a && b) << a.sentence << b.sentence;
                  for (Mapped *m : {&a, &b}) {
                      EXPECT_FALSE(m->write(200, Bytes(10)));
                      expect_refused(*m);
                  }
              }),
              0);
    tried.tell();
    EXPECT_EQ(owner->wait(), 0);
}

// And when nobody else has either file mapped: what the pointer leads to is read, not believed.
TEST_F(Group, ThatMayNotWriteAnyMoreKeepsWhatAMemberDiedWithFromBeingMappedWhereAPointerIs)
{
    const std::string second = file_elsewhere();
    owner_was_there({file, second});
    Child member(0, as(MEMBER, [&] {
                     std::vector<std::unique_ptr<Mapped>> others = map_all({second});
                     return die_in_commit([] {}, others[0].get());
                 }));
    EXPECT_EQ(member.wait(), CUT);
    for (const std::string &path : {file, second})
        ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    for (const std::string &path : {second, file}) {
        Child maps(0, as(OWNER, [&] {
                       Mapped m(path, o);
                       EXPECT_FALSE(m) << path;
                       expect_refused(m);
                       return static_cast<int>(HasFailure());
                   }));
        EXPECT_EQ(maps.wait(), 0);
    }
    for (const std::string &path : {file, second})
        ASSERT_EQ(chmod(path.c_str(), 0660), 0);
    Child maps(0, as(OWNER, [&] {
                   Mapped a(file, o), b(second, o);
                   EXPECT_TRUE(a && b) << a.sentence << b.sentence;
                   EXPECT_EQ(a.read(0, COMMITTED), pattern(COMMITTED, 2));
                   EXPECT_EQ(b.read(0, COMMITTED), pattern(COMMITTED, 2));
                   return static_cast<int>(HasFailure());
               }));
    EXPECT_EQ(maps.wait(), 0);
}

// Nor does a pointer of a colleague who lives keep it from that, who has not it but other files in use.
TEST_F(Group, IsNotStoppedByThePointerOfAColleagueWhoLives)
{
    const std::string second = file_elsewhere();
    owner_was_there({file, second});
    Child member(0, as(MEMBER, [&] {
                     Mapped a(file, o);
                     {
                         Mapped b(second, o);
                         ato_tx *tx = ato_tx_begin(0);
                         if (!ato_tx_memcpy(tx, a.base, old.data() + 1, 10, 0) ||
                             !ato_tx_memcpy(tx, b.base, old.data() + 1, 10, 0) ||
                             ato_tx_commit(tx) < 0)
                             return 1;
                     }
                     mapped.tell();
                     tried.hear();
                     return 0;
                 }));
    ASSERT_TRUE(mapped.hear());
    // Another one dies with the second.
    Child dies(0, as(OWNER, [&] {
                   Mapped b(second, o);
                   _exit(b && b.write(0, old) ? CUT : 1);
                   return 1;
               }));
    EXPECT_EQ(dies.wait(), CUT);
    ASSERT_EQ(chmod(second.c_str(), 0600), 0);
    Child maps(0, as(OWNER, [&] {
                   Mapped b(second, o);
                   EXPECT_TRUE(b) << b.sentence;
                   return static_cast<int>(HasFailure());
               }));
    EXPECT_EQ(maps.wait(), 0);
    tried.tell();
    EXPECT_EQ(member.wait(), 0);
}

// A stranger's journal that looks as if it were the dead one's.
TEST_F(Group, IsNotStoppedByAStrangersJournal)
{
    constexpr uid_t STRANGER = 3333;
    owner = std::make_unique<Child>(0, as(OWNER, [&] {
                                        Mapped m(file, o);
                                        mapped.tell();
                                        tried.hear();
                                        EXPECT_TRUE(m.write(4096 + 3000, pattern(10, 4)))
                                            << m.sentence;
                                        EXPECT_EQ(m.read(0, COMMITTED), pattern(COMMITTED, 2));
                                        return static_cast<int>(HasFailure());
                                    }));
    ASSERT_TRUE(mapped.hear());
    Child member(0, as(MEMBER, [&] { return die_in_commit([] {}); }));
    EXPECT_EQ(member.wait(), CUT);
    std::string journal;
    for (const auto &entry : std::filesystem::directory_iterator(dir / ".ato"))
        if (has(entry.path().filename(), "journal-"))
            journal = entry.path();
    ASSERT_FALSE(journal.empty());
    const std::string another = journal.substr(0, journal.size() - 16) + "0123456789abcdef";
    write_file(another, read_file(journal));
    ASSERT_EQ(chown(another.c_str(), STRANGER, STRANGER), 0);
    ASSERT_EQ(chmod(another.c_str(), 0666), 0);
    tried.tell();
    EXPECT_EQ(owner->wait(), 0);
}

} // namespace
