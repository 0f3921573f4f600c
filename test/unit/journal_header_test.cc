// SPDX-License-Identifier: BSD-3-Clause
//
// Is a journal's header accepted exactly when it is whole and valid?
#include "journal_lab.h"

extern "C" {
#include "reflection/format/checksum.h"
#include "reflection/media/report.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace
{

constexpr uint64_t NUMBER = 0x5a5a5a5a5a5a;

void expect_not_taken(void *bytes, size_t n, const std::string &words)
{
    journal j;
    EXPECT_EQ(journal_take(&j, bytes, n, NUMBER, "NAME"), -1);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(report_sentence()).find("NAME"), std::string::npos);
    EXPECT_NE(std::string(report_sentence()).find(words), std::string::npos) << report_sentence();
}

TEST(Journal, HeaderIsReadAsItWasWritten)
{
    JournalLab lab(PERSIST_MSYNC);
    journal j;
    ASSERT_EQ(journal_take(&j, lab.bytes, journal_bytes(0), NUMBER, "NAME"), 0);
    EXPECT_EQ(j.lanes, lab.j.lanes);
    EXPECT_EQ(j.lane_bytes, JOURNAL_LANE_BYTES);
    EXPECT_EQ(j.large_bytes, lab.j.large_bytes);
    EXPECT_EQ(journal_length(&j), journal_bytes(0));
    EXPECT_EQ(j.domain, PERSIST_MSYNC);
}

TEST(Journal, HeaderWithAnotherNumberIsRefused)
{
    JournalLab lab;
    journal j;
    EXPECT_EQ(journal_take(&j, lab.bytes, journal_bytes(0), NUMBER + 1, "NAME"), -1);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(report_sentence()).find("was renamed"), std::string::npos);
}

TEST(Journal, HeaderWithAnyByteChangedIsRefused)
{
    JournalLab lab;
    for (size_t i = 0; i < sizeof(journal_header); i++) {
        lab.bytes[i] ^= 0x20;
        expect_not_taken(lab.bytes, journal_bytes(0), "header");
        lab.bytes[i] ^= 0x20;
    }
}

TEST(Journal, HeaderWithInvalidFieldsIsRefusedDespiteItsChecksum)
{
    using Change = void (*)(journal_header &);
    const std::pair<Change, const char *> changes[] = {
        {[](journal_header &h) { h.version = 1; }, "version 1"},
        {[](journal_header &h) { h.version = JOURNAL_VERSION + 1; },
         "version 5, this library reads 4; a newer libato made it"},
        {[](journal_header &h) { h.lanes = 0; }, "invalid header"},
        {[](journal_header &h) { h.lanes = UINT32_MAX; }, "invalid header"},
        {[](journal_header &h) { h.lanes = JOURNAL_LANES + 100; }, "invalid header"},
        {[](journal_header &h) { h.lane_bytes = 0; }, "invalid header"},
        {[](journal_header &h) { h.lane_bytes = ~0ull; }, "invalid header"},
        {[](journal_header &h) { h.lane_bytes += 8; }, "invalid header"},
        {[](journal_header &h) { h.domain = 0; }, "invalid header"},
        {[](journal_header &h) { h.domain = 5; }, "invalid header"},
    };
    int n = 0;
    for (const auto &change : changes) {
        SCOPED_TRACE(n++);
        JournalLab lab;
        journal_header h;
        memcpy(&h, lab.bytes, sizeof(h));
        change.first(h);
        h.checksum = checksum(&h, offsetof(journal_header, checksum));
        memcpy(lab.bytes, &h, sizeof(h));
        expect_not_taken(lab.bytes, journal_bytes(0), change.second);
    }
}

// Version 3 was a pool of libpmemobj, and had its header elsewhere.
TEST(Journal, HeaderOfVersion3IsRefusedWithASentence)
{
    JournalLab lab;
    memcpy(lab.bytes, "PMEMOBJ", 8);
    expect_not_taken(
        lab.bytes, journal_bytes(0),
        "version 3, this library reads 4; an older libato made it: make the file plain with that");
}

TEST(Journal, LargeLaneEndsWithTheRange)
{
    JournalLab lab;
    journal j;
    for (uint64_t n :
         {journal_bytes(0) - 8, journal_bytes(1 << 20), uint64_t{JOURNAL_MAX_BYTES + 4096}}) {
        ASSERT_EQ(journal_take(&j, lab.bytes, n, NUMBER, "NAME"), 0) << n;
        EXPECT_EQ(journal_length(&j), std::min<uint64_t>(n, JOURNAL_MAX_BYTES));
    }
}

TEST(Journal, RangeThatIsTooShortIsRefused)
{
    JournalLab lab;
    const size_t small = 4096 + JOURNAL_LANES * JOURNAL_LANE_BYTES;
    expect_not_taken(lab.bytes, 0, "shorter");
    expect_not_taken(lab.bytes, 4095, "shorter");
    for (size_t n : {size_t{4096}, small, small + 4095})
        expect_not_taken(lab.bytes, n, "was cut off");
}

} // namespace
