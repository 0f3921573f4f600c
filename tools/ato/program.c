/* SPDX-License-Identifier: BSD-3-Clause */
#include "program.h"

#include "lib/file/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long after this process the witness may get a signal that is sent to both, as systemd sends to one process after the other; and how
 * long before: this process may be busy, or have to wait for a processor. */
enum { LATE_MS = 50, EARLY_MS = 1000 };

enum { SIGNALS = _NSIG };

struct running {
    pid_t program, witness;
    /* For each signal, when the witness got it last; 0: that is accounted for. Atomic, shared with the witness. */
    uint64_t *heard;
    struct waiting {
        uint64_t since; /* 0: it does not */
        union sigval value;
    } waiting[SIGNALS];
};

/* All signals that somebody sends on purpose. Not those that a process causes itself, nor those of a terminal that stop
 * a background process: this one then stops too. */
static void set_of_passed(sigset_t *set)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGILL,  SIGFPE,  SIGTRAP, SIGSYS,
                              SIGABRT, SIGPIPE, SIGTTIN, SIGTTOU, SIGXCPU, SIGXFSZ};
    sigfillset(set);
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
        sigdelset(set, own[i]);
}

/* Gives up all descriptors but `keep` and standard error: else this process would keep pipes and locks from ending that the
 * program closes. */
static void give_up_descriptors(int keep)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
    }
    if (keep > STDERR_FILENO + 1)
        (void)close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    (void)close_range((unsigned)(keep > STDERR_FILENO ? keep : STDERR_FILENO) + 1, ~0u, 0);
}

/* Has the calling child killed when its parent ends. Else the program would run on after kill -9 of `ato`. */
static void end_with(pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
}

static _Noreturn void witness(const struct running *r, const sigset_t *passed, pid_t parent)
{
    sigset_t all;
    end_with(parent);
    (void)prctl(PR_SET_NAME, "ato-witness");
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    give_up_descriptors(-1);
    for (;;) {
        const int number = sigwaitinfo(passed, NULL);
        if (number > 0)
            __atomic_store_n(&r->heard[number], clock_ns(), __ATOMIC_RELAXED);
    }
}

/* systemd passes sockets, and asks for signs of life, by the pid of the process that it has started. */
static void take_over_pid(pid_t parent)
{
    static const char *const names[] = {"LISTEN_PID", "WATCHDOG_PID"};
    char is[16], becomes[16];
    (void)snprintf(is, sizeof(is), "%d", (int)parent);
    (void)snprintf(becomes, sizeof(becomes), "%d", (int)getpid());
    for (int i = 0; i < 2; i++)
        if (getenv(names[i]) && strcmp(getenv(names[i]), is) == 0)
            (void)setenv(names[i], becomes, 1);
}

/* Returns 0 when the program runs; its errno if it cannot be started. */
static int start(struct running *r, char *const *words, const sigset_t *mask)
{
    const pid_t parent = getpid();
    /* Where it is ignored, the kernel tells no status. The program ignores it all the same. */
    const sighandler_t on_child = signal(SIGCHLD, SIG_DFL);
    int ends[2], error = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    r->program = fork();
    if (r->program == 0) {
        end_with(parent);
        take_over_pid(parent);
        (void)signal(SIGCHLD, on_child);
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(words[0], words);
        error = errno;
        const ssize_t told = write(ends[1], &error, sizeof(error));
        _exit(told < 0);
    }
    if (r->program < 0)
        error = errno;
    close(ends[1]);
    if (r->program > 0 && read(ends[0], &error, sizeof(error)) == (ssize_t)sizeof(error))
        (void)waitpid(r->program, NULL, 0);
    close(ends[0]);
    return error;
}

/* Returns whether the witness has got a signal that it has not noted: on a busy machine that takes longer than LATE_MS. */
static bool is_on_its_way(pid_t witness, int number)
{
    char name[64], line[256];
    unsigned long long set = 0;
    (void)snprintf(name, sizeof(name), "/proc/%d/status", (int)witness);
    FILE *status = fopen(name, "re");
    while (status && fgets(line, sizeof(line), status) && sscanf(line, "ShdPnd: %llx", &set) != 1)
        ;
    if (status)
        fclose(status);
    return set >> (number - 1) & 1;
}

/* Passes on what has waited for the witness, unless it got the same. Returns true if some still wait. */
static bool pass_on(struct running *r)
{
    const uint64_t late = LATE_MS * 1000000ull, early = EARLY_MS * 1000000ull, now = clock_ns();
    bool wait = false;
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct waiting *w = &r->waiting[number];
        if (!w->since)
            continue;
        if (__atomic_load_n(&r->heard[number], __ATOMIC_RELAXED) + early > w->since)
            __atomic_store_n(&r->heard[number], 0, __ATOMIC_RELAXED);
        else if (w->since + late > now || is_on_its_way(r->witness, number)) {
            wait = true;
            continue;
        } else if (number >= SIGRTMIN)
            (void)sigqueue(r->program, number, w->value);
        else
            (void)kill(r->program, number);
        w->since = 0;
    }
    return wait;
}

/* Waits for a signal, and notes it. */
static void wait_for_signal(struct running *r, const sigset_t *passed)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    siginfo_t info;
    const int number = sigtimedwait(passed, &info, pass_on(r) ? &moment : NULL);
    if (number > 0 && number != SIGCHLD)
        r->waiting[number] = (struct waiting){clock_ns(), info.si_value};
}

/* Waits for children that changed their state: as process 1 of a container this process has some that it did not start. Returns
 * true when the program has ended. */
static bool has_ended(struct running *r, int *status)
{
    pid_t pid;
    while ((pid = waitpid(-1, status, WNOHANG | WUNTRACED)) > 0) {
        const int stop = pid == r->program && WIFSTOPPED(*status) ? WSTOPSIG(*status) : 0;
        if (stop == SIGTSTP || stop == SIGTTIN || stop == SIGTTOU) {
            r->waiting[SIGTSTP].since = 0; /* the program has got it */
            (void)kill(getpid(), SIGSTOP);
        }
        if (pid == r->program && !stop)
            return true;
    }
    return false;
}

struct program_end program_run(char *const *words, int keep)
{
    struct program_end end = {0};
    struct running r = {.heard = mmap(NULL, SIGNALS * sizeof(*r.heard), PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    const pid_t self = getpid();
    sigset_t passed, before;
    if (r.heard == MAP_FAILED) {
        end.error = errno;
        return end;
    }
    set_of_passed(&passed);
    (void)sigprocmask(SIG_BLOCK, &passed, &before);
    r.witness = fork();
    if (r.witness == 0)
        witness(&r, &passed, self);
    end.error = r.witness < 0 ? errno : start(&r, words, &before);
    if (!end.error) {
        give_up_descriptors(keep);
        while (!has_ended(&r, &end.status))
            wait_for_signal(&r, &passed);
    }
    if (r.witness > 0) {
        (void)kill(r.witness, SIGKILL);
        (void)waitpid(r.witness, NULL, 0);
    }
    return end;
}

int program_end_alike(int status)
{
    const struct rlimit none = {0};
    sigset_t only;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    (void)setrlimit(RLIMIT_CORE, &none); /* the program has left its own */
    sigemptyset(&only);
    sigaddset(&only, WTERMSIG(status));
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)raise(WTERMSIG(status));
    (void)sigprocmask(SIG_UNBLOCK, &only, NULL);
    return 128 + WTERMSIG(status); /* as process 1 of a container */
}
