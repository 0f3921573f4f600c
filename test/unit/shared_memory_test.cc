// SPDX-License-Identifier: BSD-3-Clause
//
// ato_shared(): do the processes that have a file mapped share its memory, which begins as zeros?
#include "support/faults.h"
#include "unit/watched.h"

#include <cerrno>

using namespace watched;

namespace
{

class SharedMemory : public testing::Test
{
  protected:
    SharedMemory()
    {
        write_file(path, pattern(SIZE, 1));
    }
    ato_options wish() const
    {
        return options(ATO_DOMAIN_AUTO, ATO_READ_GATHER);
    }
    // What another process finds there; it adds 1.
    int found_by_another() const
    {
        return in_child([&] {
            Mapped m(path, wish());
            auto *word = static_cast<int *>(ato_shared(m.base, sizeof(int)));
            return word ? (*word)++ : -1;
        });
    }
    TempDir dir;
    std::string path = dir / "file";
};

TEST_F(SharedMemory, IsTheSameInAllProcessesAndForAllAddresses)
{
    Mapped m(path, wish());
    auto *first = static_cast<int *>(ato_shared(m.base, sizeof(int)));
    ASSERT_TRUE(first) << ato_errormsg();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
    EXPECT_EQ(ato_shared(m.base + SIZE - 1, ATO_SHARED_MAX), first);
    for (size_t i = 0; i < ATO_SHARED_MAX / sizeof(int); i++)
        ASSERT_EQ(first[i], 0) << i;
    *first = 41;
    EXPECT_EQ(found_by_another(), 41);
    EXPECT_EQ(*first, 42);
    // The states of pages lie behind it.
    memset(first, 0xff, ATO_SHARED_MAX);
    EXPECT_TRUE(ato_memcpy(m.base + 5000, "new", 3)) << ato_errormsg();
    EXPECT_EQ(memcmp(m.base, pattern(SIZE, 1).data(), 5000), 0);
    EXPECT_EQ(found_by_another() & 0xff, 0xff);
}

TEST_F(SharedMemory, BeginsAsZerosAgain)
{
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(found_by_another(), 0); // it ends without a close
        Mapped m(path, wish());
        ASSERT_EQ(m.unmap(ATO_UNMAP_SPATIAL), 0) << m.sentence;
    }
    EXPECT_EQ(found_by_another(), 0);
    EXPECT_EQ(found_by_another(), 0) << "the one before has died";
}

TEST_F(SharedMemory, IsRefusedWithASentence)
{
    Mapped m(path, wish());
    const auto refused = [](const void *addr, size_t bytes, int error) {
        errno = 0;
        EXPECT_EQ(ato_shared(addr, bytes), nullptr);
        EXPECT_EQ(errno, error) << ato_errormsg();
    };
    refused(m.base, 0, EINVAL);
    refused(m.base, ATO_SHARED_MAX + 1, EINVAL);
    refused(m.base, SIZE_MAX, EINVAL);
    refused(&m, 1, EINVAL);
    // The process has no other mapping of the file.
    EXPECT_EQ(in_child([&] {
                  const Watched reader(path);
                  return reader.base && !ato_shared(reader.base, 1) ? errno : 0;
              }),
              EACCES);
    FsFaults faults;
    faults.before = [](const FsCall &call) {
        return std::string(call.op) == "fallocate" ? ENOSPC : GO_ON;
    };
    refused(m.base, 1, ENOSPC);
    faults.before = nullptr;
    EXPECT_TRUE(ato_shared(m.base, 1));
}

} // namespace
