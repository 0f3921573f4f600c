// SPDX-License-Identifier: BSD-3-Clause
#include "peer.h"

#include "violation.h"
#include "workers.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crash
{

namespace
{

// State of the child process that this may be.
struct Life {
    Recorder *recorder;
    const std::function<void(Pack &)> *last;
    uint64_t moments;
    int pipe;
    bool stays;
} life;

void tell(const std::string &wrong)
{
    seam_hook = nullptr;
    Pack p, last;
    p.word(wrong);
    (*life.last)(last);
    p.word(last.bytes);
    if (!write_all(life.pipe, p.bytes + life.recorder->tell_apart()))
        _exit(2);
    close(life.pipe);
}

void pass_moment()
{
    if (life.moments-- > 0)
        return;
    tell("");
    _exit(0);
}

[[noreturn]] void live(const std::function<void()> &what)
{
    std::string wrong;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(50); // earlier than the run's own time limit
    life.recorder->go_apart();
    life.recorder->pause = pass_moment;
    seam_hook = [](enum seam_point, const void *) { pass_moment(); };
    try {
        what();
    } catch (const std::exception &e) {
        wrong = e.what();
    }
    tell(wrong);
    alarm(0);
    while (life.stays)
        pause();
    _exit(0);
}

std::string read_all(int pipe)
{
    std::string bytes;
    char buffer[1 << 16];
    for (ssize_t n; (n = read(pipe, buffer, sizeof(buffer))) > 0;)
        bytes.append(buffer, static_cast<size_t>(n));
    return bytes;
}

} // namespace

Peer::Peer(Recorder &recorder, bool stays, const std::function<void()> &what,
           const std::function<void(Pack &)> &last)
{
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
        close(ends[0]);
        life = {&recorder, &last, ~0ull, ends[1], stays};
        live(what);
    }
    close(ends[1]);
    std::string bytes = read_all(ends[0]);
    close(ends[0]);
    if (!stays || bytes.empty()) {
        int status = 0;
        waitpid(pid, &status, 0);
        pid = 0;
        if (bytes.empty() || status != 0)
            throw Violation("the process beside the run failed, status " + std::to_string(status));
    }
    Unpack u(bytes);
    std::string wrong = u.word();
    words = u.word();
    allowed = recorder.hear_apart(u, !stays);
    if (!wrong.empty())
        throw Violation("the process beside the run: " + wrong);
}

void Peer::die_within(uint64_t moments)
{
    life.moments = moments;
}

Peer::~Peer()
{
    if (!pid)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
}

} // namespace crash
