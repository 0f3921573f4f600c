// SPDX-License-Identifier: BSD-3-Clause
//
// Are errors reported as they should be? By errno, the sentence of the thread, and the log.
extern "C" {
#include "reflection/media/report.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

namespace
{

using Lines = std::vector<std::pair<int, std::string>>;

void keep(void *arg, int level, const char *sentence)
{
    static_cast<Lines *>(arg)->emplace_back(level, sentence);
    errno = 1; // a sink that changes errno
}

class Report : public testing::Test
{
  protected:
    Report()
    {
        report_set_log(keep, &lines);
    }
    ~Report() override
    {
        report_set_log(nullptr, nullptr);
    }
    Lines lines;
};

TEST_F(Report, ErrorSetsErrnoSentenceAndLog)
{
    EXPECT_EQ(report_error(EXDEV, "a %s of %d", "thing", 7), -1);
    EXPECT_EQ(errno, EXDEV);
    EXPECT_STREQ(report_sentence(), "a thing of 7");
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].first, REPORT_ERROR);
    EXPECT_EQ(lines[0].second, "a thing of 7");
}

TEST_F(Report, ErrnoAddsTheNameOfTheError)
{
    EXPECT_EQ(report_errno(ENOSPC, "no room"), -1);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_STREQ(report_sentence(), "no room: No space left on device");
}

TEST_F(Report, ErrnoOfALimitNamesTheLimit)
{
    report_errno(EMFILE, "a");
    EXPECT_STREQ(report_sentence(), "a: Too many open files (this process's limit, ulimit -n)");
    report_errno(EFBIG, "a");
    EXPECT_STREQ(report_sentence(),
                 "a: File too large (this process's limit, ulimit -f, or that of the file system)");
    report_errno(EPERM, "a");
    EXPECT_STREQ(report_sentence(), "a: Operation not permitted (immutable or append-only, see "
                                    "lsattr, or forbidden by a policy)");
}

TEST_F(Report, LogKeepsErrnoAndTheSentence)
{
    report_error(EIO, "first");
    errno = EAGAIN;
    report_log(REPORT_WARNING, "by the way");
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_STREQ(report_sentence(), "first");
    EXPECT_EQ(lines.back().first, REPORT_WARNING);
}

TEST_F(Report, SentenceBelongsToTheThread)
{
    report_error(EIO, "mine");
    std::thread([] {
        EXPECT_STREQ(report_sentence(), "");
        report_error(EIO, "yours");
    }).join();
    EXPECT_STREQ(report_sentence(), "mine");
}

TEST_F(Report, OtherThreadsReportAfterAFork)
{
    pthread_mutex_lock(&report_lock); // as around a fork
    pthread_mutex_unlock(&report_lock);
    std::thread([] { report_log(REPORT_WARNING, "after the fork"); }).join();
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back().second, "after the fork");
}

// A program that tries again and again would fill the disk.
TEST_F(Report, TheSameSentenceInALoopIsLoggedTenTimesASecond)
{
    for (int i = 0; i < 100000; i++) {
        report_error(EIO, "the same");
        report_error(EIO, "%s", i % 2 ? "this one" : "or that one");
    }
    EXPECT_STREQ(report_sentence(), "this one");
    EXPECT_LT(lines.size(), 1000u) << "each of three; and ten more in each second that this takes";
    report_error(EIO, "another one");
    EXPECT_EQ(lines.back().second, "another one");
}

// A path may contain a line that looks like a line of the log.
TEST_F(Report, ControlCharactersBecomeQuestionMarks)
{
    report_error(EINVAL, "a%s", "\nlibato[1] error: b\x7f\x1b[2J\xc3\xa4");
    EXPECT_STREQ(report_sentence(), "a?libato[1] error: b??[2J\xc3\xa4");
}

TEST_F(Report, LongSentenceIsTruncated)
{
    std::string text(5000, 'x');
    EXPECT_EQ(report_errno(EIO, "%s", text.c_str()), -1);
    size_t n = std::string(report_sentence()).size();
    EXPECT_GT(n, 500u);
    EXPECT_LT(n, 1000u);
    report_log(REPORT_INFO, "%s", text.c_str());
    EXPECT_EQ(lines.back().second.size(), n);
}

} // namespace
