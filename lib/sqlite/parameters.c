/* SPDX-License-Identifier: BSD-3-Clause */
#include "parameters.h"

#include "api.h"
#include "ato.h"
#include "fault.h"

#include <stdlib.h>
#include <string.h>

/* More than libato can map. */
#define MOST_BYTES (256ull << 40)

enum { USUAL_WAIT_MS = 5, MOST_WAIT_MS = 3600 * 1000 };

/* Ours; SQLite's own (<https://sqlite.org/uri.html>), those of its Unix VFS, and those of encryption. */
static const char *const known[] = {
    "lock_wait_ms", "max_size",  "prefer", "reflection_dir", "unmap",     "vfs",
    "mode",         "cache",     "psow",   "nolock",         "immutable", "modeof",
    "readonly_shm", "8_3_names", "key",    "hexkey",         "textkey"};
static const char *const sides[] = {"file", "reflection", NULL};
const char *const parameters_unmap[] = {"plain", "fast", NULL};

int parameters_find(const char *word, const char *const *words)
{
    int i = 0;
    while (words[i] && sqlite3_stricmp(word, words[i]) != 0)
        i++;
    return words[i] ? i : -1;
}

/* Sets *which to the index in `words` of the parameter's value; -1: it is missing. */
static int choose(const char *name, const char *parameter, const char *const *words, int *which)
{
    const char *value = sqlite3_uri_parameter(name, parameter);
    *which = value ? parameters_find(value, words) : -1;
    if (!value || *which >= 0)
        return SQLITE_OK;
    return fault(SQLITE_CANTOPEN, "%s: %s=%s is not possible: it must be %s or %s", name, parameter,
                 value, words[0], words[1]);
}

/* Returns false if the word is no number, or more than `most`. */
static bool read_number(const char *word, unsigned long long most, unsigned long long *number)
{
    char *end;
    *number = strtoull(word, &end, 10);
    return *word >= '0' && *word <= '9' && !*end && *number <= most;
}

bool parameters_read_wait(const char *word, unsigned *ms)
{
    unsigned long long number;
    const bool is_one = read_number(word, MOST_WAIT_MS, &number);
    if (is_one)
        *ms = (unsigned)number;
    return is_one;
}

int parameters_read(struct parameters *p, const char *name)
{
    const char *key;
    const char *size = sqlite3_uri_parameter(name, "max_size");
    const char *wait = sqlite3_uri_parameter(name, "lock_wait_ms");
    unsigned long long bytes = 0;
    int mode, side;
    *p = (struct parameters){.reflection_dir = sqlite3_uri_parameter(name, "reflection_dir"),
                             .lock_wait_ms = USUAL_WAIT_MS};
    for (int i = 0; (key = sqlite3_uri_key(name, i)) != NULL; i++) {
        size_t at = 0;
        while (at < sizeof(known) / sizeof(*known) && strcmp(key, known[at]) != 0)
            at++;
        if (at == sizeof(known) / sizeof(*known))
            (void)fault(SQLITE_WARNING,
                        "%s: the parameter %s is not known; this VFS has the parameters "
                        "lock_wait_ms=N, max_size=BYTES, prefer=file|reflection, "
                        "reflection_dir=FOLDER and unmap=plain|fast",
                        name, key);
    }
    if (size && !read_number(size, MOST_BYTES, &bytes))
        return fault(SQLITE_CANTOPEN, "%s: max_size=%s is not a number of bytes from 0 to 256 TiB",
                     name, size);
    if (wait && !parameters_read_wait(wait, &p->lock_wait_ms))
        return fault(SQLITE_CANTOPEN, "%s: lock_wait_ms=%s is not " PARAMETERS_WAIT, name, wait);
    if (choose(name, "unmap", parameters_unmap, &mode) != SQLITE_OK ||
        choose(name, "prefer", sides, &side) != SQLITE_OK)
        return SQLITE_CANTOPEN;
    p->max_size = (size_t)bytes;
    p->unmap_fast = mode == 1;
    p->prefer = side < 0 ? 0 : side ? ATO_PREFER_REFLECTION : ATO_PREFER_FILE;
    return SQLITE_OK;
}
