/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways in which a process ends or becomes another program, but for exit(3), which needs no wrapper: what was stored is committed before.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include <alloca.h>
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

int call_execve(const char *path, char *const *words, char *const *environment)
{
    served_end();
    return REAL(execve)(path, words, environment);
}

int call_execvpe(const char *file, char *const *words, char *const *environment)
{
    served_end();
    return REAL(execvpe)(file, words, environment);
}

int call_fexecve(int fd, char *const *words, char *const *environment)
{
    served_end();
    return REAL(fexecve)(fd, words, environment);
}

int call_execveat(int folder, const char *path, char *const *words, char *const *environment,
                  int flags)
{
    served_end();
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
