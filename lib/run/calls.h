/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of libc that this library takes the place of, and the way to libc's own.
 *
 * call_NAME() is the function that programs find by the NAME, and by NAME64, which is the same here. REAL(NAME) is the one that comes next:
 * libc's, or that of another preloaded library.
 *
 * The objects of libato in this library, and the sources here, call libc's functions by their names as ever: the linker sends these
 * calls past the wrappers (--wrap, in meson.build), except within the source that has the wrapper. There REAL() has to be used.
 */
#ifndef ATO_LIB_RUN_CALLS_H
#define ATO_LIB_RUN_CALLS_H

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#define CALLS(X)                                                                                   \
    X(mmap, void *, (void *at, size_t n, int prot, int flags, int fd, off_t offset))               \
    X(munmap, int, (void *at, size_t n))                                                           \
    X(mremap, void *, (void *at, size_t old, size_t n, int flags, ...))                            \
    X(msync, int, (void *at, size_t n, int flags))                                                 \
    X(madvise, int, (void *at, size_t n, int advice))                                              \
    X(mprotect, int, (void *at, size_t n, int prot))                                               \
    X(fsync, int, (int fd))                                                                        \
    X(fdatasync, int, (int fd))                                                                    \
    X(sync_file_range, int, (int fd, off_t offset, off_t n, unsigned flags))                       \
    X(syncfs, int, (int fd))                                                                       \
    X(sync, void, (void))                                                                          \
    X(ftruncate, int, (int fd, off_t size))                                                        \
    X(truncate, int, (const char *path, off_t size))                                               \
    X(fallocate, int, (int fd, int mode, off_t offset, off_t n))                                   \
    X(posix_fallocate, int, (int fd, off_t offset, off_t n))                                       \
    X(read, ssize_t, (int fd, void *to, size_t n))                                                 \
    X(pread, ssize_t, (int fd, void *to, size_t n, off_t offset))                                  \
    X(readv, ssize_t, (int fd, const struct iovec *v, int count))                                  \
    X(preadv, ssize_t, (int fd, const struct iovec *v, int count, off_t offset))                   \
    X(preadv2, ssize_t, (int fd, const struct iovec *v, int count, off_t offset, int flags))       \
    X(write, ssize_t, (int fd, const void *from, size_t n))                                        \
    X(pwrite, ssize_t, (int fd, const void *from, size_t n, off_t offset))                         \
    X(writev, ssize_t, (int fd, const struct iovec *v, int count))                                 \
    X(pwritev, ssize_t, (int fd, const struct iovec *v, int count, off_t offset))                  \
    X(pwritev2, ssize_t, (int fd, const struct iovec *v, int count, off_t offset, int flags))      \
    X(__read_chk, ssize_t, (int fd, void *to, size_t n, size_t room))                              \
    X(__pread_chk, ssize_t, (int fd, void *to, size_t n, off_t offset, size_t room))               \
    X(sendfile, ssize_t, (int to, int from, off_t *offset, size_t n))                              \
    X(copy_file_range, ssize_t,                                                                    \
      (int from, off_t *from_offset, int to, off_t *to_offset, size_t n, unsigned flags))          \
    X(splice, ssize_t,                                                                             \
      (int from, off_t *from_offset, int to, off_t *to_offset, size_t n, unsigned flags))          \
    X(open, int, (const char *path, int flags, ...))                                               \
    X(openat, int, (int folder, const char *path, int flags, ...))                                 \
    X(creat, int, (const char *path, mode_t mode))                                                 \
    X(fopen, FILE *, (const char *path, const char *mode))                                         \
    X(freopen, FILE *, (const char *path, const char *mode, FILE *stream))                         \
    X(shm_open, int, (const char *name, int flags, mode_t mode))                                   \
    X(dup, int, (int fd))                                                                          \
    X(dup2, int, (int fd, int as))                                                                 \
    X(dup3, int, (int fd, int as, int flags))                                                      \
    X(recvmsg, ssize_t, (int fd, struct msghdr *message, int flags))                               \
    X(close, int, (int fd))                                                                        \
    X(close_range, int, (unsigned from, unsigned to, int flags))                                   \
    X(fclose, int, (FILE * stream))                                                                \
    X(flock, int, (int fd, int operation))                                                         \
    X(fcntl, int, (int fd, int command, ...))                                                      \
    X(lockf, int, (int fd, int command, off_t n))                                                  \
    X(lseek, off_t, (int fd, off_t offset, int whence))                                            \
    X(fstat, int, (int fd, struct stat *st))                                                       \
    X(stat, int, (const char *path, struct stat *st))                                              \
    X(lstat, int, (const char *path, struct stat *st))                                             \
    X(fstatat, int, (int folder, const char *path, struct stat *st, int flags))                    \
    X(statx, int, (int folder, const char *path, int flags, unsigned mask, struct statx *st))      \
    X(__fxstat, int, (int version, int fd, struct stat *st))                                       \
    X(__xstat, int, (int version, const char *path, struct stat *st))                              \
    X(__lxstat, int, (int version, const char *path, struct stat *st))                             \
    X(__fxstatat, int, (int version, int folder, const char *path, struct stat *st, int flags))    \
    X(sigprocmask, int, (int how, const sigset_t *set, sigset_t *old))                             \
    X(pthread_sigmask, int, (int how, const sigset_t *set, sigset_t *old))                         \
    X(sigsuspend, int, (const sigset_t *set))                                                      \
    X(sigaction, int, (int signal, const struct sigaction *action, struct sigaction *old))         \
    X(signal, sighandler_t, (int signal, sighandler_t handler))                                    \
    X(__sysv_signal, sighandler_t, (int signal, sighandler_t handler))                             \
    X(_exit, void, (int status))                                                                   \
    X(posix_spawn, int,                                                                            \
      (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,                   \
       const posix_spawnattr_t *attributes, char *const *words, char *const *environment))         \
    X(posix_spawnp, int,                                                                           \
      (pid_t * pid, const char *file, const posix_spawn_file_actions_t *actions,                   \
       const posix_spawnattr_t *attributes, char *const *words, char *const *environment))         \
    X(system, int, (const char *command))                                                          \
    X(popen, FILE *, (const char *command, const char *mode))                                      \
    X(execve, int, (const char *path, char *const *words, char *const *environment))               \
    X(execvpe, int, (const char *file, char *const *words, char *const *environment))              \
    X(fexecve, int, (int fd, char *const *words, char *const *environment))                        \
    X(execveat, int,                                                                               \
      (int folder, const char *path, char *const *words, char *const *environment, int flags))

#define EXPORTED __attribute__((visibility("default")))

#define DECLARE(name, result, parameters) EXPORTED result call_##name parameters __asm__(#name);
CALLS(DECLARE)
#undef DECLARE

/* Another name of the function, which the same source defines. */
#define CALL_ALIAS(name, other)                                                                    \
    EXPORTED __typeof__(call_##name) call_##other __asm__(#other) __attribute__((alias(#name)))

/* Of open(2) and the like: declares the mode, which is the argument behind the flags. */
#define CALL_MODE(mode, flags)                                                                     \
    va_list rest;                                                                                  \
    va_start(rest, flags);                                                                         \
    const mode_t mode = (flags) & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;              \
    va_end(rest)

enum call {
#define NUMBER(name, result, parameters) CALL_##name,
    CALLS(NUMBER)
#undef NUMBER
        CALL_COUNT
};

extern void *calls_real[CALL_COUNT];

/* Looks up the function. Never NULL: it ends the process if there is none, which only a libc without it can cause. */
void *calls_find(enum call call);

/* Returns whether the descriptor was opened by a source within this library. Programs close all that they do not know. */
enum { CALLS_OWN_MOST = 1 << 16 }; /* from this number on none is known */
bool calls_is_own(int fd);
extern unsigned calls_own_count; /* how many there are; atomic */

/* The descriptor becomes one of these. calls_own() moves it to a number that programs do not choose, and closes fd; calls_own_here() does not: the
 * close() would drop the program's locks of fcntl(2). Return its number; -1 if fd is. Keep errno. */
int calls_own(int fd);
int calls_own_here(int fd);

/* From now on what libato unmaps becomes memory of the process: a thread that still stores there does not fault. */
extern bool calls_keep_addresses;

#define REAL(name)                                                                                 \
    ((__typeof__(call_##name) *)(__atomic_load_n(&calls_real[CALL_##name], __ATOMIC_RELAXED)       \
                                     ?: calls_find(CALL_##name)))

#endif
