// SPDX-License-Identifier: BSD-3-Clause
//
// Which side is right? What ATO_PREFER_FILE and ATO_PREFER_REFLECTION make of a file that was
// refused because it and its reflection do not belong together any more. Each test first sees it
// refused.
#include "pairing_lab.h"

#include "support/faults.h"

#include <sys/xattr.h>

namespace
{

class Prefer : public Pairing
{
  protected:
    ato_options prefer(unsigned flag) const
    {
        return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, flag);
    }

    // Mapped as it lies there; what the reflection held is still somewhere.
    void expect_file_wins(const std::string &p, bool aside = true)
    {
        Bytes plain = read_file(p);
        Log log;
        {
            Mapped m(p, prefer(ATO_PREFER_FILE));
            ASSERT_TRUE(m) << m.sentence;
            EXPECT_EQ(m.read(), plain);
            EXPECT_EQ(m.stat().slices_in_reflection, 0u);
            ASSERT_TRUE(m.write(5, pattern(300, 9))) << m.sentence;
            std::copy_n(pattern(300, 9).begin(), 300, plain.begin() + 5);
        }
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, "preferred"));
        Mapped again(p); // without the flag: they belong together
        ASSERT_TRUE(again) << again.sentence;
        EXPECT_EQ(again.read(), plain);
        EXPECT_EQ(is_aside(), aside);
    }

    bool is_aside() const
    {
        for (const auto &entry : fs::recursive_directory_iterator(dir.path()))
            if (entry.path().filename().string().find(".stale-") != std::string::npos)
                return true;
        return false;
    }

    void write_outside()
    {
        write_at(path, 3100, "others", 6);
        std::copy_n("others", 6, content.begin() + 3100);
    }
};

} // namespace

TEST_F(Prefer, FileThatOthersWrote)
{
    leave_slices();
    write_outside();
    expect_refused(path, ESTALE, "written by other means");
    expect_file_wins(path);
}

TEST_F(Prefer, ReflectionOfAFileThatOthersWrote)
{
    leave_slices();
    Bytes ours = content;
    write_at(path, 12000, "others", 6); // outside the record: a page whose slices are at home
    std::copy_n("others", 6, ours.begin() + 12000);
    expect_refused(path, ESTALE, "written by other means");
    Log log;
    {
        Mapped m(path, prefer(ATO_PREFER_REFLECTION));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), ours);
        EXPECT_GT(m.stat().slices_in_reflection, 0u);
    }
    EXPECT_TRUE(log.has(ATO_LOG_WARNING, "written by other means"));
    Mapped again(path);
    ASSERT_TRUE(again) << again.sentence;
    EXPECT_EQ(again.read(), ours);
}

TEST_F(Prefer, ReflectionCannotWinWhereTheSizeMoved)
{
    leave_slices();
    fs::resize_file(path, SIZE - 4096);
    Snapshot before = snapshot(dir.path());
    Mapped m(path, prefer(ATO_PREFER_REFLECTION));
    ASSERT_FALSE(m);
    EXPECT_EQ(m.error, ESTALE) << m.sentence;
    EXPECT_TRUE(before == snapshot(dir.path()));
    expect_file_wins(path);
}

TEST_F(Prefer, FileThatGrew)
{
    leave_slices();
    fs::resize_file(path, SIZE + 10000);
    expect_refused(path, ESTALE, "written by other means");
    expect_file_wins(path);
}

TEST_F(Prefer, FileWhoseReflectionIsMissing)
{
    leave_slices();
    fs::remove(reflection_of(path));
    expect_refused(path, ESTALE, "cannot open the reflection");
    expect_file_wins(path);
}

TEST_F(Prefer, FileWhoseFolderIsMissing)
{
    leave_slices();
    fs::remove_all(fs::path(path).parent_path() / ".ato");
    Mapped m(path);
    ASSERT_FALSE(m);
    ASSERT_EQ(m.error, ESTALE) << m.sentence;
    expect_file_wins(path, false);
}

TEST_F(Prefer, FileWhoseAttributeWasTakenAway)
{
    leave_slices();
    ASSERT_EQ(removexattr(path.c_str(), "user.ato"), 0);
    expect_refused(path, ESTALE, "taken away");
    expect_file_wins(path);
}

TEST_F(Prefer, FileWhoseManifestIsEmpty)
{
    leave_slices();
    write_file(manifest_of(path), Bytes(MANIFEST_BYTES));
    expect_refused(path, ESTALE, "missing");
    expect_file_wins(path);
}

// Bytes, not the record of damage: a manifest that cannot be read may be another file's.
TEST_F(Prefer, DamageIsNoQuestionOfPreference)
{
    leave_slices();
    write_file(manifest_of(path), pattern(MANIFEST_BYTES, 7));
    Snapshot before = snapshot(dir.path());
    for (unsigned flag : {ATO_PREFER_FILE, ATO_PREFER_REFLECTION}) {
        Mapped m(path, prefer(flag));
        ASSERT_FALSE(m);
        EXPECT_EQ(m.error, EUCLEAN) << m.sentence;
        EXPECT_TRUE(before == snapshot(dir.path()));
    }
}

TEST_F(Prefer, NeitherChangesAnythingWhereNothingIsWrong)
{
    leave_slices();
    for (unsigned flag : {ATO_PREFER_FILE, ATO_PREFER_REFLECTION}) {
        Mapped m(path, prefer(flag));
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        EXPECT_GT(m.stat().slices_in_reflection, 0u);
        EXPECT_FALSE(is_aside());
    }
}

TEST_F(Prefer, BothAtOnceIsRefused)
{
    Mapped m(path, prefer(ATO_PREFER_FILE | ATO_PREFER_REFLECTION));
    ASSERT_FALSE(m);
    EXPECT_EQ(m.error, EINVAL) << m.sentence;
}

// Forgetting is several changes of names. Whoever is cut between any two of them says it once more,
// and never gets the old slices.
TEST_F(Prefer, ForgettingMayFailAnywhere)
{
    for (int k = 1;; k++) {
        fs::remove_all(fs::path(path).parent_path() / ".ato");
        removexattr(path.c_str(), "user.ato");
        write_file(path, content);
        leave_slices();
        write_outside();
        Bytes plain = read_file(path);
        bool failed;
        {
            FsFaults faults;
            faults.fail_at(k, EIO);
            Mapped m(path, prefer(ATO_PREFER_FILE));
            failed = faults.calls.size() > static_cast<size_t>(k);
            faults.before = nullptr;
            if (m) {
                EXPECT_EQ(m.read(), plain) << k;
            } else {
                EXPECT_EQ(m.error, EIO) << k << ": " << m.sentence;
            }
        }
        {
            Mapped plainly(path); // refused, or as the file lies there: never the old slices
            if (plainly) {
                EXPECT_EQ(plainly.read(), plain) << k;
            } else {
                EXPECT_EQ(plainly.error, ESTALE) << k << ": " << plainly.sentence;
            }
        }
        Mapped m(path, prefer(ATO_PREFER_FILE));
        ASSERT_TRUE(m) << k << ": " << m.sentence;
        EXPECT_EQ(m.read(), plain) << k;
        if (!failed) {
            EXPECT_GT(k, 5);
            break;
        }
    }
}
