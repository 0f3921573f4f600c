// SPDX-License-Identifier: BSD-3-Clause
//
// Is a journal's header accepted exactly when it is whole and valid? And an entry of its table of
// folders, which lanes name?
#include "journal_lab.h"
#include "support/faults.h"

extern "C" {
#include "reflection/format/checksum.h"
#include "reflection/media/report.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace
{

// ---- the header ---------------------------------------------------------------------------------

void expect_not_taken(void *bytes, size_t n, const std::string &words)
{
    journal j;
    EXPECT_EQ(journal_take(&j, bytes, n, "NAME"), -1);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(report_sentence()).find("NAME"), std::string::npos);
    EXPECT_NE(std::string(report_sentence()).find(words), std::string::npos) << report_sentence();
}

TEST(Journal, HeaderIsReadAsItWasWritten)
{
    JournalLab lab(PERSIST_MSYNC);
    journal j;
    ASSERT_EQ(journal_take(&j, lab.bytes, JOURNAL_BYTES, "NAME"), 0);
    EXPECT_EQ(j.lanes, lab.j.lanes);
    EXPECT_EQ(j.lane_bytes, JOURNAL_LANE_BYTES);
    EXPECT_EQ(j.large_bytes, JOURNAL_LARGE_BYTES);
    EXPECT_EQ(j.domain, PERSIST_MSYNC);
}

TEST(Journal, HeaderWithAnyByteChangedIsRefused)
{
    JournalLab lab;
    for (size_t i = 0; i < sizeof(journal_header); i++) {
        lab.bytes[i] ^= 0x20;
        expect_not_taken(lab.bytes, JOURNAL_BYTES, "header");
        lab.bytes[i] ^= 0x20;
    }
}

TEST(Journal, HeaderWithInvalidFieldsIsRefusedDespiteItsChecksum)
{
    using Change = void (*)(journal_header &);
    const std::pair<Change, const char *> changes[] = {
        {[](journal_header &h) { h.version = 1; }, "version 1"},
        {[](journal_header &h) { h.folders++; }, "invalid header"},
        {[](journal_header &h) { h.folders = UINT32_MAX; }, "invalid header"},
        {[](journal_header &h) { h.lanes = 0; }, "invalid header"},
        {[](journal_header &h) { h.lanes = UINT32_MAX; }, "invalid header"},
        {[](journal_header &h) { h.lanes = JOURNAL_LANES + 100; }, "invalid header"},
        {[](journal_header &h) { h.lane_bytes = 0; }, "invalid header"},
        {[](journal_header &h) { h.lane_bytes = ~0ull; }, "invalid header"},
        {[](journal_header &h) { h.lane_bytes += 8; }, "invalid header"},
        {[](journal_header &h) { h.large_bytes = 64; }, "invalid header"},
        {[](journal_header &h) { h.large_bytes += 8; }, "invalid header"},
        {[](journal_header &h) { h.large_bytes = ~7ull; }, "invalid header"},
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
        expect_not_taken(lab.bytes, JOURNAL_BYTES, change.second);
    }
}

TEST(Journal, RangeThatIsTooShortIsRefused)
{
    JournalLab lab;
    expect_not_taken(lab.bytes, 0, "shorter");
    expect_not_taken(lab.bytes, 4095, "shorter");
    expect_not_taken(lab.bytes, 4096, "invalid header");
    expect_not_taken(lab.bytes, JOURNAL_BYTES - 8, "invalid header");
}

// ---- the table of folders -----------------------------------------------------------------------

// Writes entry `k`, without a relative path.
int name_folder(JournalLab &lab, unsigned k, const std::string &path)
{
    route r = {};
    strcpy(r.absolute, path.c_str());
    return journal_name_folder(&lab.j, &lab.p, k, &r);
}

struct journal_folder *entry_of(JournalLab &lab, unsigned k)
{
    char *table = lab.j.bytes + 4096 + (lab.j.lanes - 1) * lab.j.lane_bytes + lab.j.large_bytes;
    return reinterpret_cast<struct journal_folder *>(table) + (k - 1);
}

TEST(Journal, FolderIsReadIfItsEntryIsWhole)
{
    JournalLab lab;
    const std::string longest = "/" + std::string(4086, 'x');
    for (unsigned k : {1u, 2u, JOURNAL_FOLDERS}) {
        route r;
        EXPECT_FALSE(journal_folder(&lab.j, k, &r));
        const std::string path = k == 2 ? longest : "/folder/" + std::to_string(k);
        ASSERT_EQ(name_folder(lab, k, path), 0);
        ASSERT_TRUE(journal_folder(&lab.j, k, &r));
        EXPECT_EQ(std::string(r.absolute), path);
        EXPECT_STREQ(r.relative, "");
    }
    EXPECT_FALSE(journal_folder(&lab.j, 0, nullptr));
    EXPECT_FALSE(journal_folder(&lab.j, JOURNAL_FOLDERS + 1, nullptr));
    EXPECT_EQ(name_folder(lab, 3, longest + "x"), -1);
    EXPECT_EQ(errno, ENAMETOOLONG);
    for (unsigned lane = 0; lane < lab.j.lanes; lane++)
        EXPECT_EQ(look(lab, lane), JOURNAL_IDLE);
    char *entry = entry_of(lab, 1)->where;
    for (size_t at : {0, 5, 4087, 4088, 4095}) {
        entry[at] ^= 1;
        EXPECT_FALSE(journal_folder(&lab.j, 1, nullptr)) << at;
        entry[at] ^= 1;
    }
    ASSERT_TRUE(journal_folder(&lab.j, 1, nullptr));
}

TEST(Journal, EntryHoldsTheRelativePathAndTheInodeIfTheyFit)
{
    JournalLab lab;
    for (size_t n : {1, 4, 2038, 2039, 2040}) {
        route r = {}, is;
        memset(r.absolute, '/', 2048);
        memset(r.relative, 'w', n);
        ASSERT_EQ(journal_name_folder(&lab.j, &lab.p, 1, &r), 0);
        ASSERT_TRUE(journal_folder(&lab.j, 1, &is));
        EXPECT_STREQ(is.absolute, r.absolute);
        EXPECT_STREQ(is.relative, n <= 2038 ? r.relative : "") << n;
        EXPECT_EQ(is.inode, 0u);
    }
    for (size_t n : {0, 4, 2032, 2033}) {
        route r = {}, is;
        memset(r.absolute, '/', 2048);
        memset(r.relative, 'w', n);
        r.inode = 12345;
        ASSERT_EQ(journal_name_folder(&lab.j, &lab.p, 1, &r), 0);
        ASSERT_TRUE(journal_folder(&lab.j, 1, &is));
        EXPECT_STREQ(is.relative, r.relative);
        EXPECT_EQ(is.inode, n <= 2032 ? r.inode : 0) << n;
    }
}

TEST(Journal, EntryWithARelativePathOrWithoutATerminatorIsInvalid)
{
    JournalLab lab;
    for (const char *path : {"", "x", "./x"}) {
        ASSERT_EQ(name_folder(lab, 1, path), 0);
        EXPECT_FALSE(journal_folder(&lab.j, 1, nullptr)) << path;
    }
    struct journal_folder *entry = entry_of(lab, 1);
    memset(entry->where, '/', sizeof(entry->where));
    entry->checksum = checksum(entry, sizeof(entry->where));
    EXPECT_FALSE(journal_folder(&lab.j, 1, nullptr));
}

TEST(Journal, LaneIsDamagedIfItsFolderEntryIsDamaged)
{
    JournalLab lab;
    std::vector<journal_file> files = {JournalLab::file(1, 10), JournalLab::file(2, 20),
                                       JournalLab::file(3, 30)};
    files[0].folder = files[2].folder = 5;
    ASSERT_EQ(name_folder(lab, 5, "/there"), 0);
    lab.write(0, files, {{8, 1}});
    EXPECT_EQ(look(lab, 0), JOURNAL_COMMITTED);
    entry_of(lab, 5)->where[1] = 'T';
    EXPECT_EQ(look(lab, 0), JOURNAL_DAMAGED);
}

TEST(Journal, EntryIsDurableWhenItIsWritten)
{
    JournalLab lab(PERSIST_PMEM);
    support::PersistFaults faults;
    std::vector<std::string> order;
    int answer = EIO;
    faults.before = [&](const support::PersistCall &c) {
        order.push_back(c.op);
        return std::string(c.op) == "flush_data" ? answer : support::GO_ON;
    };
    EXPECT_EQ(name_folder(lab, 1, "/x"), -1);
    EXPECT_EQ(errno, EIO);
    answer = support::GO_ON;
    order.clear();
    ASSERT_EQ(name_folder(lab, 1, "/x"), 0);
    EXPECT_EQ(order, (std::vector<std::string>{"copy", "flush_data", "fence"}));
}

} // namespace
