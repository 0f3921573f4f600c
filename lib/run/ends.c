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

int call_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const *words,
                     char *const *environment)
{
    served_end();
    return REAL(posix_spawn)(pid, path, actions, attributes, words, environment);
}

int call_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const *words,
                      char *const *environment)
{
    served_end();
    return REAL(posix_spawnp)(pid, file, actions, attributes, words, environment);
}

int call_system(const char *command)
{
    served_end();
    return REAL(system)(command);
}

FILE *call_popen(const char *command, const char *mode)
{
    served_end();
    return REAL(popen)(command, mode);
}

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

int call_execve(const char *path, char *const *words, char *const *environment)
{
    served_end_here();
    return REAL(execve)(path, words, environment);
}

int call_execvpe(const char *file, char *const *words, char *const *environment)
{
    served_end_here();
    return REAL(execvpe)(file, words, environment);
}

int call_fexecve(int fd, char *const *words, char *const *environment)
{
    served_end_here();
    return REAL(fexecve)(fd, words, environment);
}

int call_execveat(int folder, const char *path, char *const *words, char *const *environment,
                  int flags)
{
    served_end_here();
    return REAL(execveat)(folder, path, words, environment, flags);
}

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
#define COLLECT(words, first, rest)                                                                \
    size_t count = 1;                                                                              \
    va_list counted;                                                                               \
    va_start(rest, first);                                                                         \
    va_copy(counted, rest);                                                                        \
    if (first)                                                                                     \
        while (va_arg(counted, char *))                                                            \
            count++;                                                                               \
    va_end(counted);                                                                               \
    char **words = alloca((count + 1) * sizeof(*words));                                           \
    words[0] = (char *)(uintptr_t)first;                                                           \
    for (size_t i = 1; i <= count; i++)                                                            \
    words[i] = first ? va_arg(rest, char *) : NULL

EXPORTED int call_execl(const char *path, const char *first, ...) __asm__("execl");
int call_execl(const char *path, const char *first, ...)
{
    va_list rest;
    COLLECT(words, first, rest);
    va_end(rest);
    return call_execve(path, words, environ);
}

EXPORTED int call_execlp(const char *file, const char *first, ...) __asm__("execlp");
int call_execlp(const char *file, const char *first, ...)
{
    va_list rest;
    COLLECT(words, first, rest);
    va_end(rest);
    return call_execvpe(file, words, environ);
}

EXPORTED int call_execle(const char *path, const char *first, ...) __asm__("execle");
int call_execle(const char *path, const char *first, ...)
{
    va_list rest;
    COLLECT(words, first, rest);
    char *const *environment = va_arg(rest, char *const *);
    va_end(rest);
    return call_execve(path, words, environment);
}
