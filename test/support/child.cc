// SPDX-License-Identifier: BSD-3-Clause
#include "child.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <sys/wait.h>
#include <unistd.h>

namespace support
{

// The leak check of a child that exits: what it inherited is its parent's to free. Asked by the
// sanitizer, where there is one.
static bool inherited;

extern "C" int __lsan_is_turned_off()
{
    return inherited;
}

static int run(const std::function<int()> &what, bool clean)
{
    fflush(nullptr);
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        int status = 99; // of an exception
        inherited = true;
        try {
            status = what();
        } catch (const std::exception &e) {
            fprintf(stderr, "child: %s\n", e.what());
        }
        if (clean)
            exit(status);
        _exit(status);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

int in_child(const std::function<int()> &what)
{
    return run(what, false);
}

int in_exiting_child(const std::function<int()> &what)
{
    return run(what, true);
}

Pipe::Pipe()
{
    if (pipe(ends_) < 0)
        abort();
}

Pipe::~Pipe()
{
    close(ends_[0]);
    close(ends_[1]);
}

bool Pipe::tell()
{
    return write(ends_[1], "x", 1) == 1;
}

bool Pipe::hear()
{
    char c;
    return read(ends_[0], &c, 1) == 1;
}

} // namespace support
