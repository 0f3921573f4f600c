// SPDX-License-Identifier: BSD-3-Clause
//
// Can a forked child change its parent's locks and bytes? It can with classic locks, with inherited ones and
// with inherited mappings. With libato a child has no mapping, and can neither drop nor keep a lock.
#include "hazards/lab.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
#include "reflection/format/manifest.h"
}

using namespace hazards;

namespace
{

constexpr size_t SIZE = 4 * 4096;

class Forked : public testing::Test
{
  protected:
    Forked()
    {
        write_file(file, content);
        write_file(twin, content);
    }

    static bool lock(int fd, int command, short type = F_WRLCK)
    {
        struct flock l = {};
        l.l_type = type;
        l.l_whence = SEEK_SET;
        l.l_len = 1;
        return fcntl(fd, command, &l) == 0;
    }

    // Does another process hold a lock on the twin?
    bool is_locked(int command)
    {
        return in_child([&] { return lock(Fd(twin), command) ? 0 : 1; }) == 1;
    }

    // The file counts as mapped, and another process that maps it takes part.
    void expect_lives(const Bytes &reads)
    {
        struct flock l = {};
        l.l_type = F_WRLCK;
        l.l_whence = SEEK_SET;
        l.l_start = 1;
        l.l_len = MANIFEST_SLOTS;
        EXPECT_EQ(fcntl(Fd(manifest_of(file)), F_OFD_GETLK, &l), 0);
        EXPECT_EQ(l.l_type, F_WRLCK);
        EXPECT_EQ(in_child([&] {
                      Mapped m(file);
                      EXPECT_TRUE(m) << m.sentence;
                      EXPECT_EQ(m.read(), reads);
                      return static_cast<int>(HasFailure());
                  }),
                  0);
    }

    TempDir dir;
    const std::string file = dir / "file", twin = dir / "twin";
    const Bytes content = pattern(SIZE, 1), news = pattern(SIZE, 2);
};

TEST_F(Forked, ClosingAnyDescriptorDropsAClassicLockAndNotOurs)
{
    {
        Fd held(twin);
        ASSERT_TRUE(lock(held, F_SETLK));
        EXPECT_TRUE(is_locked(F_SETLK));
        Fd(twin, O_RDONLY); // another library opens and closes the file
        EXPECT_FALSE(is_locked(F_SETLK)) << "dropped silently";
    }
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    for (const std::string &path : {file, manifest_of(file), reflection_of(file)})
        Fd closed(path);
    expect_lives(content);
}

// A program that takes silence for death lets two processes use the file.
TEST_F(Forked, StoppedProcessIsNotTakenForDead)
{
    pid_t pid = fork();
    if (pid == 0) {
        Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        if (!m || !m.write(0, news))
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    expect_lives(news);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(m.read(), news);
}

TEST_F(Forked, ChildThatUnlocksDropsAnInheritedLockAndNotOurs)
{
    {
        Fd held(twin);
        ASSERT_TRUE(lock(held, F_OFD_SETLK));
        EXPECT_TRUE(is_locked(F_OFD_SETLK));
        EXPECT_EQ(in_child([&] { return lock(held, F_OFD_SETLK, F_UNLCK) ? 0 : 1; }), 0);
        EXPECT_FALSE(is_locked(F_OFD_SETLK)) << "the child dropped its parent's lock";
    }
    Mapped m(file);
    ASSERT_TRUE(m) << m.sentence;
    ASSERT_TRUE(m.write(0, news)) << m.sentence;
    auto leave = [&](bool tidy) {
        char *base = m.base;
        m.base = nullptr;
        if (tidy) { // without a mapping, the child cannot unmap
            EXPECT_EQ(ato_munmap(base, SIZE, ATO_UNMAP_SPATIAL), -1);
            EXPECT_EQ(errno, EINVAL);
            Mapped other(twin);
            EXPECT_TRUE(other) << other.sentence;
            EXPECT_EQ(other.unmap(ATO_UNMAP_SPATIAL), 0) << other.sentence;
        }
        return static_cast<int>(HasFailure());
    };
    EXPECT_EQ(in_child([&] { return leave(false); }), 0);
    expect_lives(news);
    EXPECT_EQ(in_exiting_child([&] { return leave(true); }), 0);
    expect_lives(news);
    EXPECT_EQ(m.read(), news);
    EXPECT_TRUE(m.write(0, content)) << m.sentence;
}

TEST_F(Forked, ChildThatLivesOnKeepsAnInheritedLockAndNotOurs)
{
    Pipe live, born;
    Child parent(0, [&]() -> int {
        Fd held(twin);
        Mapped m(file);
        EXPECT_TRUE(m && lock(held, F_OFD_SETLK) && m.write(0, news)) << m.sentence;
        pid_t child = fork();
        if (child == 0) {
            m.base = nullptr;
            born.tell();
            live.hear();
            _exit(0);
        }
        for (;;)
            pause();
    });
    ASSERT_TRUE(born.hear());
    expect_lives(news);
    parent.kill();
    EXPECT_TRUE(is_locked(F_OFD_SETLK)) << "the child of the dead process keeps it";
    {
        Mapped m(file);
        EXPECT_TRUE(m) << m.sentence;
        EXPECT_EQ(m.read(), news);
    }
    live.tell();
}

TEST_F(Forked, ChildsStoreLandsInAPlainMappingAndFaultsHere)
{
    char *plain = plain_map(twin, SIZE);
    EXPECT_EQ(naive([&] {
                  plain[100] = 'x'; // a stray pointer
                  return 0;
              }),
              0);
    EXPECT_EQ(plain[100], 'x');
    EXPECT_EQ(read_file(twin)[100], 'x') << "the child changed its parent's bytes";
    munmap(plain, SIZE);

    Mapped m(file, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    EXPECT_EQ(naive([&] {
                  *const_cast<volatile char *>(m.base + 100) = 'x';
                  return 0;
              }),
              died_of(SIGSEGV));
    EXPECT_EQ(in_child([&] {
                  EXPECT_EQ(ato_memcpy(m.base + 100, "x", 1), nullptr);
                  EXPECT_EQ(errno, EINVAL);
                  EXPECT_TRUE(has(ato_errormsg(), "mapping of this process")) << ato_errormsg();
                  EXPECT_EQ(ato_memset(m.base, 0, SIZE), nullptr);
                  m.base = nullptr;
                  return static_cast<int>(HasFailure());
              }),
              0);
    EXPECT_EQ(m.read(), content);
    EXPECT_EQ(read_file(file), content);
    EXPECT_TRUE(m.write(0, content)) << m.sentence;
}

} // namespace
