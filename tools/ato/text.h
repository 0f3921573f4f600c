/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text output: names that may contain any bytes, sizes, and the progress.
 */
#ifndef ATO_TOOLS_TEXT_H
#define ATO_TOOLS_TEXT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Returns the bytes of the UTF-8 character at `at`, a string that ends in NUL; 0 if there is
 * none. */
unsigned text_character(const unsigned char *at);

/* Writes a string so that it has no effect on a terminal: control characters, and bytes that are
 * not UTF-8, become \xNN. */
void text_put(FILE *out, const char *s);

/* Stores a file's name in `to` as a shell takes it in a command, by backslashes, and returns `to`: the command may stand in quotes.
 * "FILE" if it is too long. */
#define TEXT_WORD (PATH_MAX + 256)
const char *text_word(char to[TEXT_WORD], const char *name);

/* Makes a path absolute and free of symbolic links. The file itself may be missing, but not its folder. Returns false with errno. */
bool text_resolve(char to[PATH_MAX], const char *path);

/* Stores "1234567 bytes (1.2 MiB)" in `to`, and returns `to`. */
#define TEXT_SIZE 64
const char *text_size(char to[TEXT_SIZE], uint64_t bytes);

/* Writes a line of a list: what it is, and the value, which may contain any bytes. */
void text_item(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* How far a file is done, on standard error if that is a terminal. text_progress() is for the library's callbacks; text_progress_end()
 * leaves an empty line. */
struct text_progress {
    bool shown;
    unsigned percent; /* on the screen */
};
void text_progress(void *progress, uint64_t done, uint64_t total);
void text_progress_end(const struct text_progress *p);

#endif
