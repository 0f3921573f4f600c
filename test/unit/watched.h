// SPDX-License-Identifier: BSD-3-Clause
//
// A mapping of a read-only descriptor, a process that writes beside it, and their file.
#ifndef ATO_TEST_UNIT_WATCHED_H
#define ATO_TEST_UNIT_WATCHED_H

#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace watched
{

namespace fs = std::filesystem;
using namespace support;

inline constexpr size_t SIZE = 5 * 4096 + 700;

// A mapping of a read-only descriptor.
class Watched
{
  public:
    explicit Watched(const std::string &path, size_t length = SIZE) : n(length)
    {
        Fd fd(path, O_RDONLY);
        void *at = ato_mmap(nullptr, n, PROT_READ, MAP_SHARED, fd, 0);
        error = errno;
        sentence = ato_errormsg();
        base = at == MAP_FAILED ? nullptr : static_cast<char *>(at);
    }
    ~Watched()
    {
        if (base) {
            EXPECT_EQ(ato_munmap(base, n, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
        }
    }
    Bytes read(size_t at = 0, size_t bytes = SIZE)
    {
        Bytes seen(bytes);
        if (ato_memcpy(seen.data(), base + at, bytes))
            return seen;
        error = errno;
        return {};
    }

    size_t n;
    char *base;
    int error;
    std::string sentence;
};

// Another process, which has the file mapped for writing and does one deed at each act().
class Writer
{
  public:
    using Deed = std::function<bool(Mapped &)>;

    Writer(const std::string &path, std::vector<Deed> deeds)
    {
        pid = fork();
        if (pid == 0) {
            Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
            bool good = static_cast<bool>(m);
            for (const Deed &deed : deeds) {
                go.hear();
                good = good && deed(m);
                done.tell();
            }
            go.hear();
            _exit(good ? 0 : 1);
        }
    }
    ~Writer()
    {
        kill();
    }
    // Does the next deed.
    void act()
    {
        go.tell();
        done.hear();
    }
    void kill()
    {
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        pid = -1;
    }
    void end()
    {
        int status = -1;
        go.tell();
        waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0);
        pid = -1;
    }

  private:
    Pipe go, done;
    pid_t pid;
};

class Reader : public testing::Test
{
  protected:
    Reader() : content(pattern(SIZE, 1))
    {
        write_file(path, content);
    }
    Writer::Deed write(size_t at, int seed, size_t n = 6000)
    {
        const Bytes part = pattern(n, seed);
        std::copy(part.begin(), part.end(), content.begin() + static_cast<ptrdiff_t>(at));
        return [=](Mapped &m) { return m.write(at, part); };
    }
    static Writer::Deed unmap(int mode)
    {
        return [=](Mapped &m) { return m.unmap(mode) == 0; };
    }
    void leave_slices()
    {
        Writer w(path, {write(3000, 2), unmap(ATO_UNMAP_FAST)});
        w.act();
        w.act();
        w.end();
    }
    std::map<std::string, Bytes> everything() const
    {
        std::map<std::string, Bytes> all;
        for (const auto &entry : fs::recursive_directory_iterator(dir.path()))
            if (entry.is_regular_file())
                all[entry.path()] = read_file(entry.path());
        return all;
    }

    TempDir dir;
    const std::string path = dir / "file";
    Bytes content;
};

} // namespace watched

#endif
