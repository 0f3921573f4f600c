/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors: errno for the program, a sentence for the user.
 *
 * A failing function of the library calls report_error() once, where the most is known; its callers pass
 * the failure on. Each thread has its own sentence. Nothing is printed unless a log was asked for.
 */
#ifndef ATO_REFLECTION_MEDIA_REPORT_H
#define ATO_REFLECTION_MEDIA_REPORT_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

enum report_level { REPORT_ERROR = 0, REPORT_WARNING = 1, REPORT_INFO = 2 };

/* Sets errno to `err` and the thread's sentence, and logs it at REPORT_ERROR. Returns -1, so that a failing
 * function can `return report_error(...)`. */
#define report_error(err, ...) report_failure(err, 0, __VA_ARGS__)

/* The same for a function that returns a pointer: returns NULL. */
#define report_null(...) ((void)report_error(__VA_ARGS__), NULL)

/* Restores errno at the end of the block: for a function that cleans up after a failure. */
#define KEEP_ERRNO() int errno_kept_ __attribute__((cleanup(report_restore), unused)) = errno
static inline void report_restore(const int *kept)
{
    errno = *kept;
}

/* After the name of a descriptor, or -1: closes it at the end of the block. Keeps errno. */
#define CLOSING __attribute__((cleanup(report_close)))
static inline void report_close(const int *fd)
{
    KEEP_ERRNO();
    if (*fd >= 0)
        close(*fd);
}

/* Returns what strerror(3) says, and which limit or attribute may be the cause if that does not tell. It is the thread's, until its
 * next call. */
const char *report_reason(int err);

/* As report_error(), with ": <report_reason(err)>" appended to the sentence. */
#define report_errno(err, ...) report_failure(err, REPORT_EXPLAINED, __VA_ARGS__)

/* The same without the log: for a failure after which the caller tries again. When it gives up, report_aloud() logs the
 * sentence. Return -1; keep errno. */
#define report_quietly(err, ...) report_failure(err, REPORT_QUIET, __VA_ARGS__)
int report_aloud(void);

enum { REPORT_EXPLAINED = 1, REPORT_QUIET = 2 };
int report_failure(int err, int how, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Logs an event that no return value reports. Keeps errno and the thread's sentence. */
void report_log(enum report_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the thread's last sentence, "" if there is none. */
const char *report_sentence(void);

/* A failure that is kept while alternatives are tried. */
#define REPORT_SENTENCE 768
struct report_kept {
    int error; /* 0: none */
    char sentence[REPORT_SENTENCE];
};

/* Keeps errno and the sentence. */
void report_keep(struct report_kept *k);

/* Restores errno and the sentence; logs nothing. Returns -1. */
int report_again(const struct report_kept *k);

/* Keeps both, and puts them back at the end of the block: what fails in it is no failure of the call. */
#define KEEP_REPORT()                                                                              \
    struct report_kept report_kept_ __attribute__((cleanup(report_again)));                        \
    report_keep(&report_kept_)

/* Sets the function that gets log sentences. NULL: where ATO_LOG says. */
void report_set_log(void (*log)(void *arg, int level, const char *sentence), void *arg);

/* Held while the log is written to. For fork(): the child must not inherit it from a thread that it does not have. */
extern pthread_mutex_t report_lock;
#define REPORT_LOCK_FREE PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP

#endif
