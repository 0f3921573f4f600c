// SPDX-License-Identifier: BSD-3-Clause
//
// ATO_PLAIN: does it read a plain file as it is, and make nothing? Is it refused where it does not fit? Is it an error, and no
// SIGBUS, if another program makes the file shorter?
#include "support/child.h"
#include "support/mapped.h"

#include "ato_engine.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 5 * PAGE + 100;

ato_options plain(unsigned flags = 0)
{
    return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER, ATO_PLAIN | flags);
}

class Plain : public testing::Test
{
  protected:
    Plain()
    {
        write_file(path, content);
    }
    TempDir dir;
    const std::string path = dir / "file";
    const Bytes content = pattern(SIZE, 1);
};

TEST_F(Plain, ReadsWhatTheFileHasAndMakesNothing)
{
    Mapped m(path, plain());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(m.read(SIZE - 50, 50), Bytes(content.end() - 50, content.end()));
    EXPECT_EQ(ato_size(m.base), static_cast<off_t>(SIZE));
    EXPECT_FALSE(exists(dir / ".ato"));
    EXPECT_EQ(attribute_of(path), "");
    EXPECT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
}

TEST_F(Plain, ReadsAPartOfAFile)
{
    Mapped m(path, plain(), PAGE, 2 * PAGE);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(10, 100),
              Bytes(content.begin() + 2 * PAGE + 10, content.begin() + 2 * PAGE + 110));
}

TEST_F(Plain, IsRefusedForWriting)
{
    Mapped m(path, plain());
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_FALSE(m.write(0, pattern(100, 2)));
    EXPECT_EQ(m.error, EACCES) << m.sentence;
    EXPECT_EQ(ato_ftruncate(m.base, SIZE / 2), -1);
    EXPECT_EQ(errno, EACCES) << ato_errormsg();
    EXPECT_EQ(ato_set_read_policy(m.base, ATO_READ_LAZY), -1);
    EXPECT_EQ(read_file(path), content);
}

TEST_F(Plain, IsRefusedIfTheFileIsNotPlain)
{
    {
        Mapped writer(path);
        ASSERT_TRUE(writer.write(10, pattern(100, 2))) << writer.sentence;
        Mapped m(path, plain());
        EXPECT_EQ(m.error, EBUSY) << "this process has it mapped: " << m.sentence;
    }
    Mapped m(path, plain());
    EXPECT_FALSE(m);
    EXPECT_EQ(m.error, EAGAIN) << "it was unmapped fast: " << m.sentence;
    EXPECT_NE(m.sentence.find("is not plain"), std::string::npos) << m.sentence;
    Mapped again(path);
    ASSERT_TRUE(again) << again.sentence;
    ASSERT_EQ(again.unmap(ATO_UNMAP_SPATIAL), 0) << again.sentence;
    Mapped now(path, plain());
    EXPECT_TRUE(now) << now.sentence;
}

// In a child, which would die.
TEST_F(Plain, OfAFileThatIsCutFails)
{
    for (const off_t to : {off_t(0), off_t(PAGE), off_t(SIZE - PAGE)}) {
        write_file(path, content);
        EXPECT_EQ(in_child([&] {
                      Mapped m(path, plain());
                      if (!m || m.read() != content || truncate(path.c_str(), to) < 0)
                          return 1;
                      if (!m.read(0, SIZE).empty() || m.error != EIO)
                          return 2;
                      if (m.sentence.find("made " + path + " shorter") == std::string::npos)
                          return 3;
                      if (!m.read(0, 1).empty() || m.error != EIO) // every call from now on
                          return 4;
                      write_file(path, content);
                      if (m.unmap(ATO_UNMAP_FAST) < 0)
                          return 5;
                      Mapped anew(path, plain());
                      return anew && anew.read() == content ? 0 : 6;
                  }),
                  0)
            << to;
    }
}

TEST_F(Plain, OfAFileThatIsCutIsSigbusWithoutTheHandler)
{
    EXPECT_EQ(in_child([&] {
                  Mapped m(path, plain(ATO_NO_FAULT_HANDLER));
                  if (!m || truncate(path.c_str(), 0) < 0)
                      return 1;
                  signal(SIGBUS, SIG_DFL); // a sanitizer has its own
                  return m.read().empty() ? 2 : 3;
              }),
              256 + SIGBUS);
}

} // namespace
