// SPDX-License-Identifier: BSD-3-Clause
//
// How is a file identified? The kernel's numbers, the path of a descriptor, and the attribute:
// valid values and hostile ones.
#include "support/mapped.h"

extern "C" {
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>

#include <fcntl.h>
#include <unistd.h>

using namespace support;

namespace
{

const std::string ID = "00112233445566778899aabbccddeeff";

bool parse(const std::string &value, attribute *a)
{
    // Exactly n bytes: nothing behind them may be read.
    std::vector<char> exact(value.begin(), value.end());
    return attribute_parse(exact.data(), exact.size(), a);
}

TEST(Attribute, ParsesValidValues)
{
    attribute a;
    ASSERT_TRUE(parse("ato1 " + ID + " 42 .ato", &a));
    for (int i = 0; i < 16; i++)
        EXPECT_EQ(a.id[i], i * 0x11);
    EXPECT_EQ(a.inode, 42u);
    EXPECT_STREQ(a.folder, ".ato");
    ASSERT_TRUE(parse("ato1 " + ID + " 18446744073709551615 /a b/c", &a));
    EXPECT_EQ(a.inode, UINT64_MAX);
    EXPECT_STREQ(a.folder, "/a b/c");
    ASSERT_TRUE(parse("ato1 " + ID + " 0 " + std::string(PATH_MAX - 1, 'f'), &a));
    EXPECT_EQ(strlen(a.folder), PATH_MAX - 1u);
}

TEST(Attribute, RefusesInvalidValues)
{
    const std::string good = "ato1 " + ID + " 42 .ato";
    attribute a;
    for (size_t n = 0; n < good.size() - 4; n++)
        EXPECT_FALSE(parse(good.substr(0, n), &a)) << n << " bytes";
    const std::string head = "ato1 " + ID;
    std::vector<std::string> all_bad = {"ato2 " + ID + " 42 .ato",
                                        "ATO1 " + ID + " 42 .ato",
                                        "ato1  " + ID + " 42 .ato",
                                        "ato1 00112233445566778899AABBCCDDEEFF 42 .ato",
                                        "ato1 0011223344556677 8899aabbccddeef 42 .ato",
                                        "ato1 g0112233445566778899aabbccddeeff 42 .ato"};
    for (const char *tail :
         {"42 .ato", " .ato", "  .ato", " -1 .ato", " 0x10 .ato", " 42", " 42 ", " 42.ato",
          " 18446744073709551616 .ato", " 99999999999999999999999 .ato"})
        all_bad.push_back(head + tail);
    all_bad.push_back(head + " 42 " + std::string(PATH_MAX, 'f'));
    all_bad.push_back(head + " 42 " + std::string("a\0b", 3));
    for (const std::string &bad : all_bad)
        EXPECT_FALSE(parse(bad, &a)) << bad;
}

TEST(Attribute, EveryByteOfTheFixedPartCounts)
{
    const std::string good = "ato1 " + ID + " 42 .ato";
    for (size_t i = 0; i < 38; i++)
        for (char c : {'\0', '\x7f', 'G', '-'}) {
            std::string bad = good;
            bad[i] = c;
            attribute a;
            EXPECT_FALSE(parse(bad, &a)) << i;
        }
}

class AttributeOnAFile : public testing::Test
{
  protected:
    AttributeOnAFile() : path(dir / "file")
    {
        write_file(path, Bytes(10));
    }

    TempDir dir;
    std::string path;
};

TEST_F(AttributeOnAFile, IsReadAsItWasWritten)
{
    Fd fd(path);
    attribute a = {}, b;
    EXPECT_EQ(attribute_read(fd, "NAME", &b), ATTRIBUTE_NONE);
    ASSERT_EQ(identity_random(a.id, sizeof(a.id)), 0);
    a.inode = 123456789012345;
    for (const char *folder : {"/some where/else", "  begins with blanks", " "}) {
        strcpy(a.folder, folder);
        ASSERT_EQ(attribute_write(fd, "NAME", &a), 0);
        ASSERT_EQ(attribute_read(fd, "NAME", &b), ATTRIBUTE_FOUND) << folder;
        EXPECT_EQ(memcmp(a.id, b.id, 16), 0);
        EXPECT_EQ(a.inode, b.inode);
        EXPECT_STREQ(a.folder, b.folder);
    }
    ASSERT_EQ(attribute_remove(fd, "NAME"), 0);
    EXPECT_EQ(attribute_read(fd, "NAME", &b), ATTRIBUTE_NONE);
    EXPECT_EQ(attribute_remove(fd, "NAME"), 0) << "removing is idempotent";
}

TEST_F(AttributeOnAFile, WithAnInvalidOrTooLongValueIsBad)
{
    Fd fd(path);
    attribute a;
    for (const std::string &value : {std::string("nonsense"), std::string(6000, 'x')}) {
        set_attribute(path, value);
        EXPECT_EQ(attribute_read(fd, "NAME", &a), ATTRIBUTE_BAD);
        EXPECT_EQ(errno, EUCLEAN);
        EXPECT_NE(std::string(report_sentence()).find("NAME"), std::string::npos);
    }
}

TEST_F(AttributeOnAFile, IsUnsupportedWithoutExtendedAttributes)
{
    Fd fd("/proc/self/status", O_RDONLY);
    attribute a;
    EXPECT_EQ(attribute_read(fd, "NAME", &a), ATTRIBUTE_UNSUPPORTED);
}

// ---- the kernel's view --------------------------------------------------------------------------

using Identity = AttributeOnAFile;

TEST_F(Identity, HasTheValuesOfStat)
{
    Fd fd(path);
    identity found_identity;
    ASSERT_EQ(identity_of(fd, &found_identity), 0);
    struct stat st = stat_of(path);
    EXPECT_EQ(found_identity.inode, st.st_ino);
    EXPECT_EQ(found_identity.device, st.st_dev);
    EXPECT_EQ(found_identity.size, 10u);
    EXPECT_EQ(found_identity.links, 1u);
    EXPECT_EQ(found_identity.trust.mode, st.st_mode & 07777);
    EXPECT_EQ(found_identity.trust.owner, st.st_uid);
    EXPECT_EQ(found_identity.mtime_nsec, static_cast<uint32_t>(st.st_mtim.tv_nsec));
}

TEST_F(Identity, IsRefusedForAFolderAndForAnUnlinkedFile)
{
    Fd fd(path), folder(dir.path(), O_RDONLY);
    identity found_identity;
    EXPECT_EQ(identity_of(folder, &found_identity), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(identity_of(-1, &found_identity), -1);
    EXPECT_EQ(errno, EBADF);
    unlink(path.c_str());
    EXPECT_EQ(identity_of(fd, &found_identity), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Identity, SameInodeNeedsEqualNumberAndKnownBirthAndGeneration)
{
    Fd fd(path);
    identity found_identity;
    ASSERT_EQ(identity_of(fd, &found_identity), 0);
    found_identity.known = MANIFEST_KNOWS_BIRTH | MANIFEST_KNOWS_GENERATION;
    found_identity.birth_sec = 5;
    found_identity.birth_nsec = 6;
    found_identity.generation = 7;
    manifest_record r = {}, other;
    identity_to_record(&found_identity, &r);
    auto same_after = [&](const std::function<void()> &change) {
        other = r;
        change();
        return identity_same_inode(&found_identity, &other);
    };
    EXPECT_TRUE(same_after([] {}));
    EXPECT_FALSE(same_after([&] { other.inode++; }));
    EXPECT_FALSE(same_after([&] { other.birth_sec++; }));
    EXPECT_FALSE(same_after([&] { other.birth_nsec++; }));
    other.known &= ~MANIFEST_KNOWS_BIRTH;
    EXPECT_TRUE(identity_same_inode(&found_identity, &other)) << "not known: does not count";
    EXPECT_FALSE(same_after([&] { other.generation++; }));
    found_identity.known = MANIFEST_KNOWS_BIRTH;
    EXPECT_TRUE(identity_same_inode(&found_identity, &other));
    EXPECT_TRUE(same_after([&] { other.device++; })) << "devices change across boots";
}

TEST_F(Identity, PathFollowsARenameAndIsCheckedToNameTheFile)
{
    Fd fd(path);
    identity found_identity;
    char found[PATH_MAX];
    ASSERT_EQ(identity_of(fd, &found_identity), 0);
    ASSERT_EQ(identity_path(fd, &found_identity, found), 0);
    EXPECT_EQ(found, path);
    ASSERT_EQ(rename(path.c_str(), (dir / "new name").c_str()), 0);
    ASSERT_EQ(identity_path(fd, &found_identity, found), 0);
    EXPECT_EQ(found, dir / "new name");
    found_identity.inode++;
    EXPECT_EQ(identity_path(fd, &found_identity, found), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST(IdentityHelpers, RandomIdsDiffer)
{
    std::set<std::string> seen;
    for (int i = 0; i < 100; i++) {
        uint8_t id[16];
        char hex[33];
        ASSERT_EQ(identity_random(id, sizeof(id)), 0);
        identity_hex(id, hex);
        EXPECT_EQ(strspn(hex, "0123456789abcdef"), 32u);
        EXPECT_TRUE(seen.insert(hex).second);
    }
}

TEST(IdentityHelpers, BootIdIsTheKernels)
{
    uint8_t id[16];
    char hex[33];
    identity_boot(id);
    identity_hex(id, hex);
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text, digits;
    ASSERT_TRUE(std::getline(file, text));
    for (char c : text)
        if (c != '-')
            digits += c;
    EXPECT_EQ(hex, digits);
}

} // namespace
