/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways in which a process ends, becomes another program or starts one, but for exit(3) and fork(2), which need no wrapper: what was stored
 * is committed before.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include <alloca.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <unistd.h>

extern char **environ;

void call__exit(int status)
{
    served_end_all();
    REAL(_exit)(status);
    __builtin_unreachable();
}
CALL_ALIAS(_exit, _Exit);

/* A child does not see what is not committed, and another program in this process does not have it. */
#define STARTS(name, result, before, parameters, ...)                                              \
    result call_##name parameters                                                                  \
    {                                                                                              \
        before();                                                                                  \
        return REAL(name)(__VA_ARGS__);                                                            \
    }
STARTS(posix_spawn, int, served_end,
       (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
        const posix_spawnattr_t *attributes, char *const *words, char *const *environment),
       pid, path, actions, attributes, words, environment)
STARTS(posix_spawnp, int, served_end,
       (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
        const posix_spawnattr_t *attributes, char *const *words, char *const *environment),
       pid, path, actions, attributes, words, environment)
STARTS(system, int, served_end, (const char *command), command)
STARTS(popen, FILE *, served_end, (const char *command, const char *mode), command, mode)
STARTS(execve, int, served_end_here,
       (const char *path, char *const *words, char *const *environment), path, words, environment)
STARTS(execvpe, int, served_end_here,
       (const char *file, char *const *words, char *const *environment), file, words, environment)
STARTS(fexecve, int, served_end_here, (int fd, char *const *words, char *const *environment), fd,
       words, environment)
STARTS(execveat, int, served_end_here,
       (int folder, const char *path, char *const *words, char *const *environment, int flags),
       folder, path, words, environment, flags)

/* It returns twice to its caller, so libc's has to find the caller's return address where that put it. */
void *ends_before_vfork(void) __attribute__((used));
void *ends_before_vfork(void)
{
    served_end();
    return dlsym(RTLD_NEXT, "vfork");
}
__asm__(".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "    subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    call ends_before_vfork\n"
        "    addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n");

EXPORTED int call_execv(const char *path, char *const *words) __asm__("execv");
int call_execv(const char *path, char *const *words)
{
    return call_execve(path, words, environ);
}

EXPORTED int call_execvp(const char *file, char *const *words) __asm__("execvp");
int call_execvp(const char *file, char *const *words)
{
    return call_execvpe(file, words, environ);
}

/* execl() and the like: `words` become the arguments up to NULL, and `rest` stands behind it. */
#define LISTS(name, call, environment_)                                                            \
    EXPORTED int call_##name(const char *path, const char *first, ...) __asm__(#name);             \
    int call_##name(const char *path, const char *first, ...)                                      \
    {                                                                                              \
        size_t count = 1;                                                                          \
        va_list rest, counted;                                                                     \
        va_start(rest, first);                                                                     \
        va_copy(counted, rest);                                                                    \
        while (first && va_arg(counted, char *))                                                   \
            count++;                                                                               \
        va_end(counted);                                                                           \
        char **words = alloca((count + 1) * sizeof(*words));                                       \
        words[0] = (char *)(uintptr_t)first;                                                       \
        for (size_t i = 1; i <= count; i++)                                                        \
            words[i] = first ? va_arg(rest, char *) : NULL;                                        \
        char *const *environment = environment_;                                                   \
        va_end(rest);                                                                              \
        return call(path, words, environment);                                                     \
    }
LISTS(execl, call_execve, environ)
LISTS(execlp, call_execvpe, environ)
LISTS(execle, call_execve, va_arg(rest, char *const *))
