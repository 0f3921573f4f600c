// SPDX-License-Identifier: BSD-3-Clause
//
// What if /dev/shm is full, as the 64 MiB of a container soon are? A sparse object is SIGBUS where
// it is first touched. The library asks for space before: ENOSPC, nothing changed, the next try
// works.
#include "hazards/lab.h"
#include "support/faults.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

using namespace hazards;

namespace
{

constexpr size_t FAR = 64 << 20; // a batch of the directory of page states

class FullShm : public testing::Test
{
  protected:
    // A small /dev/shm, and a file elsewhere.
    int play(const char *size, const std::function<void()> &scene)
    {
        return in_child([&] {
            if (!alone() || !mount_memory("/dev/shm", size) ||
                !mount_memory(dir / "disk", "size=64m"))
                return NO_SCENE;
            scene();
            return static_cast<int>(HasFailure());
        });
    }

    static bool resize(const char *size)
    {
        return mount("ato-test", "/dev/shm", "tmpfs", MS_REMOUNT, size) == 0;
    }

    // An object as shm_open() and ftruncate() make it, touched far apart.
    static int touch_sparse_object()
    {
        constexpr size_t n = 4 << 20;
        int fd = shm_open("/naive", O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, n) < 0)
            return 1;
        void *at = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            return 2;
        for (size_t i = 0; i < n; i += 4096)
            static_cast<volatile char *>(at)[i] = 'x';
        return 0;
    }

    TempDir dir{"/tmp"};
    const std::string file = dir / "disk/file", ballast = "/dev/shm/ballast";
};

TEST_F(FullShm, ObjectThatIsSparseIsSigbusAndMappingIsEnospc)
{
    EXPECT_PLAYED(play("size=1m", [&] {
        const Bytes content = pattern(10 * 4096, 1);
        write_file(file, content);
        EXPECT_EQ(naive(touch_sparse_object), died_of(SIGBUS));
        shm_unlink("/naive");

        fill(ballast);
        {
            Mapped m(file);
            EXPECT_FALSE(m);
            EXPECT_EQ(m.error, ENOSPC) << m.sentence;
            EXPECT_TRUE(has(m.sentence, "/dev/shm/ato-")) << m.sentence;
        }
        EXPECT_EQ(read_file(file), content);
        EXPECT_EQ(names_in("/dev/shm"), std::vector<std::string>{"ballast"});
        ASSERT_EQ(unlink(ballast.c_str()), 0);
        Mapped m(file);
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), content);
        EXPECT_TRUE(m.write(0, pattern(5000, 2))) << m.sentence;
        EXPECT_EQ(m.read(), over(content, 0, pattern(5000, 2)));
    }));
}

int pretend(int, int, off_t, off_t)
{
    return 0;
}

// Mapping takes little; each page far from the others takes a batch.
TEST_F(FullShm, FirstTouchFarApartIsEnospcForReadsAndWrites)
{
    EXPECT_PLAYED(play("size=132k", [&] {
        constexpr size_t batches = 16;
        write_file(file, Bytes());
        ASSERT_EQ(truncate(file.c_str(), batches * FAR), 0);
        // The rule switched off: nobody allocates.
        EXPECT_EQ(naive([&] {
                      struct fsops none = fsops_real;
                      none.fallocate = pretend;
                      fsops = &none;
                      Mapped m(file, options(ATO_DOMAIN_PROCESS));
                      for (size_t i = 0; m && i < batches; i++)
                          m.write(i * FAR, Bytes(1, 'x'));
                      return 0;
                  }),
                  died_of(SIGBUS));

        // (What that one left in /dev/shm goes now.)
        Mapped m(file, options(ATO_DOMAIN_PROCESS));
        ASSERT_TRUE(m) << m.sentence;
        std::vector<size_t> good, refused;
        for (size_t i = 0; i < batches; i++)
            if (m.write(i * FAR, Bytes(1, static_cast<unsigned char>('a' + i)))) {
                good.push_back(i);
            } else {
                EXPECT_EQ(m.error, ENOSPC) << m.sentence;
                EXPECT_TRUE(has(m.sentence, "/dev/shm/ato-")) << m.sentence;
                refused.push_back(i);
            }
        EXPECT_GE(good.size(), 1u);
        ASSERT_GE(refused.size(), 1u);
        for (size_t i : refused) {
            EXPECT_TRUE(m.read(i * FAR, 1).empty());
            EXPECT_EQ(m.error, ENOSPC) << m.sentence;
            EXPECT_EQ(ato_deploy(m.base + i * FAR, 1), -1);
            EXPECT_EQ(errno, ENOSPC);
        }
        for (size_t i : good) // go on as before
            EXPECT_TRUE(m.write(i * FAR + 1, Bytes(1, '!'))) << m.sentence;
        // Over all: not one byte of it.
        EXPECT_FALSE(
            m.write(good.back() * FAR, Bytes((refused.back() - good.back()) * FAR + 1, 'y')));
        EXPECT_EQ(m.error, ENOSPC) << m.sentence;

        ASSERT_TRUE(resize("size=8m"));
        for (size_t i = 0; i < batches; i++) {
            bool was_good = std::find(good.begin(), good.end(), i) != good.end();
            unsigned char letter = static_cast<unsigned char>('a' + i);
            EXPECT_EQ(m.read(i * FAR, 2), was_good ? Bytes({letter, '!'}) : Bytes(2)) << i;
            EXPECT_TRUE(m.write(i * FAR, Bytes(1, letter))) << m.sentence;
            EXPECT_EQ(m.read(i * FAR, 1), Bytes(1, letter));
        }
    }));
}

} // namespace
