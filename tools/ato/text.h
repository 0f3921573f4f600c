/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text for people: names that may hold anything, and sizes.
 */
#ifndef ATO_TOOLS_TEXT_H
#define ATO_TOOLS_TEXT_H

#include <stdint.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at `at`, a string that ends in NUL; 0 when there is none. */
unsigned text_character(const unsigned char *at);

/* Writes a string so that it cannot play tricks on a terminal: control characters and what is no
 * UTF-8 become \xNN. */
void text_put(FILE *out, const char *s);

/* "1234567 bytes (1.2 MiB)", in `to`, which is returned. */
#define TEXT_SIZE 64
const char *text_size(char to[TEXT_SIZE], uint64_t bytes);

#endif
