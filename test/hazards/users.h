// SPDX-License-Identifier: BSD-3-Clause
//
// Tests with other users: a test runs something as one of them, in a child. Needs root.
#ifndef ATO_TEST_HAZARDS_USERS_H
#define ATO_TEST_HAZARDS_USERS_H

#include "hazards/lab.h"

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hazards
{

// With a group of the same number, and these groups. False if that is not possible.
inline bool become(uid_t user, const std::vector<gid_t> &groups = {})
{
    umask(0);
    return setgroups(groups.size(), groups.data()) == 0 && setgid(user) == 0 && setuid(user) == 0;
}

inline void give(const std::string &path, uid_t owner, gid_t group, mode_t mode)
{
    ASSERT_EQ(lchown(path.c_str(), owner, group), 0) << path;
    ASSERT_EQ(chmod(path.c_str(), mode), 0) << path;
}

class Users : public testing::Test
{
  protected:
    using Groups = std::vector<gid_t>;

    void SetUp() override
    {
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root, to become another user";
    }

    static void as(uid_t user, const std::function<void()> &what, const Groups &groups = {})
    {
        EXPECT_EQ(in_child([&] {
                      if (!become(user, groups))
                          return 99;
                      what();
                      return static_cast<int>(HasFailure());
                  }),
                  0)
            << "as " << user;
    }

    // The user cannot map it; the error names `word`.
    static void expect_error(uid_t user, const std::string &file, int err, const std::string &word,
                             const Groups &groups = {})
    {
        auto map = [&] {
            Mapped m(file);
            EXPECT_FALSE(m);
            EXPECT_EQ(m.error, err) << m.sentence;
            EXPECT_TRUE(has(m.sentence, word)) << word << " in: " << m.sentence;
        };
        as(user, map, groups);
    }

    // Nor is anything changed.
    void expect_refused(uid_t user, const std::string &file, int err, const std::string &word)
    {
        const auto before = everything_in(dir.path());
        const std::string attribute = attribute_of(file);
        expect_error(user, file, err, word);
        EXPECT_EQ(everything_in(dir.path()), before);
        EXPECT_EQ(attribute_of(file), attribute);
    }

    static void expect_content(uid_t user, const std::string &file, const Bytes &bytes,
                               const Groups &groups = {})
    {
        auto map = [&] {
            Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_TRUE(m.read() == bytes);
        };
        as(user, map, groups);
    }

    TempDir dir;
    const std::string file = dir / "file";
    static constexpr size_t SIZE = 4 * 4096;
    const Bytes old = pattern(SIZE, 1);
};

} // namespace hazards

#endif
