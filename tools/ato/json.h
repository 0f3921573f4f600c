/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The JSON document of a command, written to standard output piece by piece. If none is wanted, the calls do nothing.
 *
 * Keys and values are written in the order of the calls, with commas and indentation. A file name
 * may not be UTF-8: a byte that is part of no character becomes the escape \udcXX, which Python's
 * os.fsencode() turns back into that byte.
 */
#ifndef ATO_TOOLS_JSON_H
#define ATO_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH = 16 };

struct json {
    FILE *out; /* NULL: no document is wanted */
    int depth;
    bool filled[JSON_DEPTH]; /* the object or list of that depth is not empty */
    char ends[JSON_DEPTH];
};

/* Begin and end the document: an object that begins with the command and the version of libato,
 * and ends with the exit status. The end closes all open objects and lists. */
void json_start(struct json *j, const char *command, bool wanted);
void json_finish(struct json *j, int status);

/* `key` is NULL for the elements of a list, here and below. */
void json_object(struct json *j, const char *key);
void json_list(struct json *j, const char *key);
void json_end(struct json *j);

void json_string(struct json *j, const char *key, const char *value); /* NULL: null */
void json_number(struct json *j, const char *key, uint64_t value);
void json_decimal(struct json *j, const char *key, double value); /* with three decimals */
void json_bool(struct json *j, const char *key, bool value);
void json_known(struct json *j, const char *key, bool known,
                uint64_t value); /* null if it is not known */

#endif
