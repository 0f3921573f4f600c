/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What went wrong, in a sentence: errno for the program, text for the person.
 *
 * Every failing function of the library calls report_error() once, where it knows most; callers
 * pass the failure on. The sentence is per thread. Nothing is printed unless a log was asked for.
 */
#ifndef ATO_REFLECTION_REPORT_H
#define ATO_REFLECTION_REPORT_H

enum report_level { REPORT_ERROR = 0, REPORT_WARNING = 1, REPORT_INFO = 2 };

/* Sets errno to `err` and the thread's sentence; logs it at REPORT_ERROR. Returns -1, so that a
 * failing function may say `return report_error(...)`. */
int report_error(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As report_error() with ": <strerror(err)>" behind the sentence. */
int report_errno(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* News that no caller is told about otherwise. Keeps errno. */
void report_log(enum report_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The thread's last sentence, "" if none. */
const char *report_sentence(void);

/* A sentence that is put aside, while others are tried. */
#define REPORT_SENTENCE 768
struct report_kept {
    int error; /* 0: none */
    char sentence[REPORT_SENTENCE];
};

/* Keeps errno and the sentence, if there is none kept yet. */
void report_keep(struct report_kept *k);

/* Makes them errno and sentence again; logs nothing. Returns -1. */
int report_again(const struct report_kept *k);

/* NULL: back to what ATO_LOG says. */
void report_set_log(void (*log)(void *arg, int level, const char *sentence), void *arg);

/* Around fork(): a child must not inherit the sink's lock from a thread that it does not have. */
void report_before_fork(void);
void report_in_parent(void);
void report_in_child(void);

#endif
