// SPDX-License-Identifier: BSD-3-Clause
//
// What do options and the environment choose? Every field of ato_options, the rules of struct_size,
// and which of the two takes precedence.
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

using namespace support;

namespace
{

class Options : public testing::Test
{
  protected:
    Options() : path(dir / "file")
    {
        write_file(path, pattern(10000, 1));
    }

    void expect_refused(const ato_options &o, int err, const std::string &words)
    {
        Mapped m(path, o);
        EXPECT_FALSE(m);
        EXPECT_EQ(m.error, err) << m.sentence;
        EXPECT_NE(m.sentence.find(words), std::string::npos) << m.sentence;
        EXPECT_FALSE(exists(dir / ".ato"));
    }

    struct ato_stat stat_with(const ato_options &o)
    {
        Mapped m(path, o);
        EXPECT_TRUE(m) << m.sentence;
        struct ato_stat none = {};
        return m ? m.stat() : none;
    }

    TempDir dir;
    std::string path;
};

TEST_F(Options, InvalidStructSizeIsRefused)
{
    ato_options o = {};
    expect_refused(o, EINVAL, "struct_size");
    o.struct_size = 7;
    expect_refused(o, EINVAL, "struct_size");
    o.struct_size = 1 << 20;
    expect_refused(o, EINVAL, "struct_size");
}

TEST_F(Options, SmallerStructOfAnOlderCallerIsAcceptedAndNothingBehindItIsRead)
{
    ato_options o;
    memset(&o, 0xff, sizeof(o));
    o.struct_size = offsetof(ato_options, domain);
    o.read_policy = ATO_READ_GATHER;
    EXPECT_EQ(stat_with(o).read_policy, ATO_READ_GATHER);
    o.struct_size = sizeof(size_t); // only the field itself
    EXPECT_EQ(stat_with(o).read_policy, ATO_READ_LAZY);
}

TEST_F(Options, LargerStructOfANewerCallerIsAcceptedIfItsNewFieldsAreZero)
{
    struct {
        ato_options o;
        uint64_t news[4];
    } newer = {};
    newer.o.struct_size = sizeof(newer);
    newer.o.read_policy = ATO_READ_EAGER;
    Fd fd(path);
    void *at = ato_mmap_opt(10000, fd, 0, &newer.o);
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    EXPECT_EQ(ato_munmap(at, 10000, ATO_UNMAP_SPATIAL), 0);
    newer.news[3] = 1;
    EXPECT_EQ(ato_mmap_opt(10000, fd, 0, &newer.o), MAP_FAILED);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(std::string(ato_errormsg()).find("does not know"), std::string::npos);
}

TEST_F(Options, UnknownValuesAreRefused)
{
    ato_options o = options();
    o.read_policy = 4;
    expect_refused(o, EINVAL, "policy 4");
    o.read_policy = -1;
    expect_refused(o, EINVAL, "policy -1");
    o = options(5);
    expect_refused(o, EINVAL, "domain 5");
    o = options(-1);
    expect_refused(o, EINVAL, "domain -1");
    o = options();
    o.format = 5;
    expect_refused(o, EINVAL, "format 5");
    o.format = -1;
    expect_refused(o, EINVAL, "format -1");
    o = options(0, 0, 0x8000);
    expect_refused(o, EINVAL, "0x8000");
    o = options();
    for (uint64_t bytes : {1ull, 65535ull, (1ull << 40) + 1}) {
        o.snapshot_bytes = bytes;
        expect_refused(o, EINVAL, "snapshot_bytes is " + std::to_string(bytes));
    }
    o = options(0, 0, ATO_RELAXED);
    o.relaxed_ms = 3600001;
    expect_refused(o, EINVAL, "relaxed_ms is 3600001");
}

TEST_F(Options, EachDomainCanBeChosenAndIsReported)
{
    /* The last one's log keeps the file in its domain. */
    for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_PROCESS, ATO_DOMAIN_DISK})
        EXPECT_EQ(stat_with(options(domain)).domain, domain);
}

TEST_F(Options, EnvironmentChoosesTheDomainUnlessAnOptionDoes)
{
    Environment e("ATO_DURABILITY", "disk");
    EXPECT_EQ(stat_with(options()).domain, ATO_DOMAIN_DISK);
    EXPECT_EQ(Mapped(path).unmap(ATO_UNMAP_SPATIAL),
              0); // a file that has a log stays in its domain
    EXPECT_EQ(stat_with(options(ATO_DOMAIN_PMEM)).domain, ATO_DOMAIN_PMEM);
}

TEST_F(Options, EmptyVariableCountsAsUnset)
{
    Environment d("ATO_DURABILITY", ""), r("ATO_REFLECTION_DIR", ""), p("ATO_READ_POLICY", "");
    struct ato_stat st = stat_with(options());
    EXPECT_EQ(st.domain, ATO_DOMAIN_PROCESS); // tmpfs
    EXPECT_EQ(st.read_policy, ATO_READ_LAZY);
    EXPECT_TRUE(exists(reflection_of(path)));
}

TEST_F(Options, UnknownWordInTheEnvironmentIsAnErrorThatListsTheKnownWords)
{
    const char *const wrong[][3] = {{"ATO_DURABILITY", "battery", "process"},
                                    {"ATO_DURABILITY", "dsik", "disk"},
                                    {"ATO_DURABILITY", " disk", "disk"},
                                    {"ATO_READ_POLICY", "never", "gather"},
                                    {"ATO_SNAPSHOT_BYTES", "65535", "65536"},
                                    {"ATO_SNAPSHOT_BYTES", "64k", "65536"},
                                    {"ATO_RELAXED_MS", "0", "from 1 to 3600000"},
                                    {"ATO_RELAXED_MS", "3600001", "from 1 to 3600000"},
                                    {"ATO_RELAXED_MS", "-1", "milliseconds"},
                                    {"ATO_RTM", "no", "neither 0 nor 1"},
                                    {"ATO_ANY_FILE_SYSTEM", "yes", "neither 0 nor 1"}};
    for (const auto &[name, word, known] : wrong) {
        Environment e(name, word);
        for (const std::string &part :
             {std::string(name), "'" + std::string(word), std::string(known)})
            expect_refused(options(), EINVAL, part);
    }
    Mapped m(path);
    EXPECT_TRUE(m) << m.sentence;
}

TEST_F(Options, EnvironmentChoosesTheReadPolicyUnlessAnOptionDoes)
{
    Environment e("ATO_READ_POLICY", "gather");
    EXPECT_EQ(stat_with(options()).read_policy, ATO_READ_GATHER);
    for (int policy : {ATO_READ_LAZY, ATO_READ_EAGER})
        EXPECT_EQ(stat_with(options(0, policy)).read_policy, policy);
    Mapped m(path, options(0, ATO_READ_EAGER));
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_EQ(ato_set_read_policy(m.base, ATO_READ_DEFAULT), 0) << ato_errormsg();
    EXPECT_EQ(m.stat().read_policy, ATO_READ_GATHER);
}

TEST_F(Options, EnvironmentChoosesTheFormatUnlessAnOptionDoes)
{
    const struct {
        const char *word;
        int option, format;
    } cases[] = {{"", ATO_FORMAT_DEFAULT, ATO_FORMAT_DENSE},
                 {"sparse", ATO_FORMAT_DEFAULT, ATO_FORMAT_SPARSE},
                 {"sparse", ATO_FORMAT_DENSE, ATO_FORMAT_DENSE},
                 {"dense", ATO_FORMAT_SPARSE, ATO_FORMAT_SPARSE}};
    for (const auto &c : cases) {
        Environment e("ATO_FORMAT", c.word);
        ato_options o = options();
        o.format = c.option;
        Mapped m(path, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.stat().format, c.format) << c.word << " " << c.option;
        EXPECT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
    }
}

TEST_F(Options, EnvironmentForbidsHardwareTransactions)
{
    Environment e("ATO_RTM", "0");
    Mapped m(path);
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(9000, 2)));
    EXPECT_EQ(m.stat().commits_journal, 1u);
    EXPECT_EQ(m.stat().commits_rtm, 0u);
}

TEST_F(Options, NoRtmMeansTheJournal)
{
    Mapped m(path, options(ATO_DOMAIN_PROCESS, ATO_READ_LAZY, ATO_NO_RTM));
    ASSERT_TRUE(m);
    ASSERT_TRUE(m.write(0, pattern(9000, 2)));
    EXPECT_EQ(m.stat().commits_journal, 1u);
    EXPECT_EQ(m.stat().commits_rtm, 0u);
}

TEST_F(Options, EagerPolicyLeavesThePlainFileCurrent)
{
    Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_EAGER));
    ASSERT_TRUE(m);
    Bytes news = pattern(10000, 2);
    ASSERT_TRUE(m.write(0, news));
    EXPECT_EQ(memcmp(m.base, news.data(), news.size()), 0);
    EXPECT_EQ(m.stat().slices_in_reflection, 0u);
}

TEST_F(Options, MaxSizeBoundsLaterMappings)
{
    ato_options o = options();
    o.max_size = 1; // at least the file
    {
        Mapped m(path, o);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), pattern(10000, 1));
        ato_options larger = options();
        larger.max_size = 1ull << 31;
        Mapped second(path, larger);
        EXPECT_FALSE(second);
        EXPECT_EQ(second.error, EFBIG);
        EXPECT_NE(second.sentence.find(path), std::string::npos) << second.sentence;
    }
    o.max_size = 1ull << 33;
    Mapped large(path, o);
    EXPECT_TRUE(large) << large.sentence;
    o.max_size = 1ull << 49;
    write_file(dir / "other", Bytes(100));
    Mapped beyond(dir / "other", o);
    EXPECT_FALSE(beyond);
    EXPECT_EQ(beyond.error, EFBIG) << beyond.sentence;
}

TEST_F(Options, LogGetsWarningsAndNothingIsPrintedOtherwise)
{
    testing::internal::CaptureStderr();
    {
        Log log;
        Mapped m(path, options(ATO_DOMAIN_PMEM)); // tmpfs cannot keep that promise
        EXPECT_TRUE(m);
        EXPECT_TRUE(log.has(ATO_LOG_WARNING, "medium offers only process"));
    }
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        EXPECT_TRUE(m);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    {
        Environment e("ATO_LOG", "stderr");
        testing::internal::CaptureStderr();
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        EXPECT_TRUE(m);
        EXPECT_NE(testing::internal::GetCapturedStderr().find("warning"), std::string::npos);
    }
    std::string file = dir / "log";
    Environment e("ATO_LOG", file.c_str());
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    Bytes text = read_file(file);
    EXPECT_NE(std::string(text.begin(), text.end()).find("offers only"), std::string::npos);
    EXPECT_EQ(stat_of(file).st_mode & 0777, 0600u);
}

TEST_F(Options, LogIsNotWrittenThroughALinkAndWaitsForNoReader)
{
    const std::string file = dir / "log", target = dir / "target";
    write_file(target, Bytes());
    ASSERT_EQ(symlink(target.c_str(), file.c_str()), 0);
    Environment e("ATO_LOG", file.c_str());
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM));
        EXPECT_TRUE(m);
    }
    EXPECT_EQ(size_of(target), 0u);
    ASSERT_EQ(unlink(file.c_str()), 0);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    Mapped m(path, options(ATO_DOMAIN_PMEM));
    EXPECT_TRUE(m);
}

TEST_F(Options, VersionMatchesTheHeader)
{
    std::string version = std::to_string(ATO_VERSION_MAJOR) + "." +
                          std::to_string(ATO_VERSION_MINOR) + "." +
                          std::to_string(ATO_VERSION_PATCH);
    EXPECT_EQ(ato_version(), version);
    unsigned major, minor, patch;
    ASSERT_EQ(sscanf(ato_version(), "%u.%u.%u", &major, &minor, &patch), 3);
    EXPECT_LT(minor | patch, 256u);
    EXPECT_EQ(major * 0x10000 + minor * 0x100 + patch, unsigned{ATO_VERSION});
}

} // namespace
