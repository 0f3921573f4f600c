// SPDX-License-Identifier: BSD-3-Clause
//
// Does any call take more than 16 KiB of stack? A thread may have a small one. Also calls that make a pairing, adopt it, recover it
// or refuse it, and those that fail and say so in a log.
#include "support/child.h"
#include "support/mapped.h"
#include "support/painted.h"

#include "ato_engine.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace support;

namespace
{

constexpr size_t MOST = 16384, PAGE = 4096, SIZE = 1200 * PAGE;

class Stack : public testing::TestWithParam<int>
{
  protected:
    Stack() : log("ATO_LOG", (dir / "log").c_str())
    {
        write_file(path, pattern(SIZE, 1));
    }

    void SetUp() override
    {
        if (!measures_stack())
            GTEST_SKIP() << "with a sanitizer frames are larger";
    }

    // Leaves the file as a process that was killed does, with a commit in each kind of lane.
    void kill_a_writer()
    {
        EXPECT_EQ(in_child([&] {
                      Mapped m(path, options(GetParam(), ATO_READ_GATHER));
                      m.write(100, pattern(3 * PAGE, 2));
                      m.write(0, pattern(300 * PAGE, 3)); // a journal
                      kill(getpid(), SIGKILL);
                      return 0;
                  }),
                  256 + SIGKILL);
    }

    TempDir dir;
    const std::string path = dir / "file";
    Environment log;
    PaintedStack stack;
};

#define EXPECT_LITTLE(call)                                                                        \
    do {                                                                                           \
        EXPECT_LE(stack.taken_by([&] { call; }), MOST) << #call << ": " << ato_errormsg();         \
    } while (0)

TEST_P(Stack, NoCallOnAMappingTakesMuch)
{
    ato_options o = options(GetParam(), ATO_READ_LAZY);
    o.max_size = 4 * SIZE;
    Mapped m(path, o);
    ASSERT_TRUE(m) << m.sentence;
    Bytes bytes = pattern(SIZE, 2);
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    char *p = m.base;
    const ato_iovec ranges[] = {{p, bytes.data(), 100}, {p + 600 * PAGE, bytes.data(), 9000}};
    EXPECT_LITTLE(ato_memcpy(bytes.data(), p, SIZE));
    EXPECT_LITTLE(ato_memcpy(p + 10, bytes.data(), 100));
    EXPECT_LITTLE(ato_memcpy(p + PAGE, bytes.data(), 2 * PAGE));
    EXPECT_LITTLE(ato_memcpy(p + PAGE, bytes.data(), 400 * PAGE)); // a journal
    EXPECT_LITTLE(ato_memcpy(bytes.data(), p, SIZE));
    EXPECT_LITTLE(ato_memcpy(p, p + 500 * PAGE, 10 * PAGE));
    EXPECT_LITTLE(ato_memcpy_opt(p, bytes.data(), 10 * PAGE, ATO_EAGER | ATO_SKIP_EQUAL));
    EXPECT_LITTLE(ato_memset(p, 7, 5 * PAGE));
    EXPECT_LITTLE(ato_writev(ranges, 2, 0));
    EXPECT_LITTLE(ato_deploy(p, SIZE));
    EXPECT_LITTLE(ato_reclaim(p, SIZE));
    EXPECT_LITTLE(ato_set_guard(p, 0, "plain", 5));
    EXPECT_LITTLE(ato_set_guard(p, 0, nullptr, 0));
    EXPECT_LITTLE(ato_stat(p, &st));
    EXPECT_LITTLE(ato_settle(p));
    EXPECT_LITTLE(ato_msync(p, SIZE, MS_SYNC));
    EXPECT_LITTLE(ato_ftruncate(p, 2 * SIZE));
    EXPECT_LITTLE(ato_ftruncate(p, SIZE / 2 + 5));
    EXPECT_LITTLE(ato_ftruncate(p, SIZE));
    ato_snapshot *s = nullptr;
    EXPECT_LITTLE(s = ato_snapshot_begin(p));
    EXPECT_LITTLE(ato_memcpy(p, bytes.data(), 20 * PAGE));
    EXPECT_LITTLE(ato_snapshot_read(s, bytes.data(), 0, SIZE));
    EXPECT_LITTLE(ato_snapshot_seek(s, 0, SEEK_DATA));
    EXPECT_LITTLE(ato_snapshot_end(s));
    ato_tx *tx = nullptr;
    EXPECT_LITTLE({
        tx = ato_tx_begin(0);
        for (size_t i = 0; i < 500; i++)
            ato_tx_memcpy(tx, p + i * PAGE, bytes.data(), 100, 0);
        ato_tx_memcpy(tx, bytes.data(), p + 10, 2 * PAGE, 0);
        ato_tx_ftruncate(tx, p, 2 * SIZE);
    });
    EXPECT_LITTLE(ato_tx_commit(tx));
    EXPECT_LITTLE(ato_memcpy(p + 3 * SIZE, bytes.data(), 100)); // behind the end
    EXPECT_LITTLE(ato_memcpy(bytes.data() + 1, bytes.data(), 100));
    ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0) << m.sentence;
}

TEST_P(Stack, NoMapAndUnmapTakesMuch)
{
    const auto map = [&](unsigned flags = 0, int access = O_RDWR) {
        const ato_options o = options(GetParam(), ATO_READ_GATHER, flags);
        char *at = nullptr;
        EXPECT_LITTLE({
            const int fd = open(path.c_str(), access);
            void *p = ato_mmap_opt(SIZE, fd, 0, &o);
            close(fd);
            at = p == MAP_FAILED ? nullptr : static_cast<char *>(p);
        });
        return at;
    };
    const Bytes bytes = pattern(SIZE, 5);
    char *p = map(); // born
    ASSERT_NE(p, nullptr) << ato_errormsg();
    ASSERT_NE(ato_memcpy(p + 5, bytes.data(), 600 * PAGE), nullptr);
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_FAST));
    p = map(); // adopted
    ASSERT_NE(p, nullptr) << ato_errormsg();
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_SPATIAL));
    kill_a_writer();
    p = map(); // recovered
    ASSERT_NE(p, nullptr) << ato_errormsg();
    kill_a_writer(); // beside this process, which frees what it held
    EXPECT_LITTLE(ato_memcpy(p, bytes.data(), SIZE));
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_FAST));
    Peer writer([&](const std::function<void()> &wait) {
        Mapped m(path, options(GetParam()));
        wait();
        return m.unmap(ATO_UNMAP_FAST) == 0 ? 0 : 1;
    });
    ASSERT_TRUE(writer.is_ready());
    p = map(0, O_RDONLY);
    Bytes to(SIZE);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    EXPECT_LITTLE(ato_memcpy(to.data(), p, SIZE));
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_FAST));
    EXPECT_EQ(writer.end(), 0);
    // Refused: another program wrote to it; it is a copy with its attribute; its reflection is missing.
    write_at(path, 0, "x", 1);
    if (GetParam() != ATO_DOMAIN_DISK) { // a log holds nothing now
        EXPECT_EQ(map(), nullptr);
    }
    p = map(ATO_PREFER_FILE);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    ASSERT_NE(ato_memcpy(p + 5, bytes.data(), 600 * PAGE), nullptr);
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_FAST));
    const std::string attribute = attribute_of(path), own = path;
    fs::rename(path, dir / "other");
    write_file(path, pattern(SIZE, 1));
    set_attribute(path, attribute);
    EXPECT_EQ(map(), nullptr);
    p = map(ATO_PREFER_FILE);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    ASSERT_NE(ato_memcpy(p + 5, bytes.data(), 600 * PAGE), nullptr);
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_FAST));
    fs::remove(reflection_of(path));
    fs::remove(manifest_of(path));
    EXPECT_EQ(map(), nullptr);
    p = map(ATO_PREFER_FILE);
    ASSERT_NE(p, nullptr) << ato_errormsg();
    EXPECT_LITTLE(ato_munmap(p, SIZE, ATO_UNMAP_SPATIAL));
}

INSTANTIATE_TEST_SUITE_P(Domains, Stack,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK})));

} // namespace
