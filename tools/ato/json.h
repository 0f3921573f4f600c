/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The JSON document that a command writes to standard output, as it goes.
 *
 * Keys and values come in the order of the calls; commas and indentation are this file's business.
 * Names of files are bytes and may be no UTF-8: a byte that is part of no character becomes the
 * escape \udcXX, which Python's os.fsencode() turns back into that byte.
 */
#ifndef ATO_TOOLS_JSON_H
#define ATO_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH = 16 };

struct json {
    FILE *out;
    int depth;
    bool filled[JSON_DEPTH]; /* something is in the object or list of that depth */
    char ends[JSON_DEPTH];
};

/* The document: an object that begins with the command and the version of libato, and ends with the
 * exit status. What is open is closed. */
void json_start(struct json *j, const char *command);
void json_finish(struct json *j, int status);

/* `key` is NULL for the elements of a list, here and below. */
void json_object(struct json *j, const char *key);
void json_list(struct json *j, const char *key);
void json_end(struct json *j);

void json_string(struct json *j, const char *key, const char *value); /* NULL: null */
void json_number(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

#endif
