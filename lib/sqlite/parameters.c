/* SPDX-License-Identifier: BSD-3-Clause */
#include "parameters.h"

#include "api.h"
#include "ato.h"
#include "fault.h"

#include <stdlib.h>
#include <string.h>

/* More than libato can map. */
#define MOST_BYTES (256ull << 40)

/* Ours; SQLite's own (<https://sqlite.org/uri.html>), those of its Unix VFS, and those of encryption. */
static const char *const known[] = {
    "journal",      "max_size",  "prefer", "reflection_dir", "unmap",     "vfs",
    "mode",         "cache",     "psow",   "nolock",         "immutable", "modeof",
    "readonly_shm", "8_3_names", "key",    "hexkey",         "textkey"};
static const char *const journals[] = {"memory", "file", NULL};
static const char *const sides[] = {"file", "reflection", NULL};
const char *const parameters_unmap[] = {"plain", "fast", NULL};

int parameters_find(const char *word, const char *const *words)
{
    int i = 0;
    while (words[i] && sqlite3_stricmp(word, words[i]) != 0)
        i++;
    return words[i] ? i : -1;
}

/* Sets *which to the index in `words` of the parameter's value, or of that of the environment's `variable` (NULL: none) where it is
 * missing; -1: there is none. */
static int choose(const char *name, const char *parameter, const char *variable,
                  const char *const *words, int *which)
{
    const char *value = sqlite3_uri_parameter(name, parameter);
    const char *set = value || !variable ? NULL : secure_getenv(variable);
    if (set && *set) {
        parameter = variable;
        value = set;
    }
    *which = value ? parameters_find(value, words) : -1;
    if (!value || *which >= 0)
        return SQLITE_OK;
    return fault(SQLITE_CANTOPEN, "%s: %s=%s is not possible: it must be %s or %s", name, parameter,
                 value, words[0], words[1]);
}

static int read_max_size(const char *name, size_t *bytes)
{
    const char *word = sqlite3_uri_parameter(name, "max_size");
    char *end = NULL;
    if (!word)
        return SQLITE_OK;
    const unsigned long long most = strtoull(word, &end, 10);
    if (*word < '0' || *word > '9' || *end || most > MOST_BYTES)
        return fault(SQLITE_CANTOPEN, "%s: max_size=%s is not a number of bytes from 0 to 256 TiB",
                     name, word);
    *bytes = (size_t)most;
    return SQLITE_OK;
}

static void name_unknown(const char *name)
{
    const char *key;
    for (int i = 0; (key = sqlite3_uri_key(name, i)) != NULL; i++) {
        size_t at = 0;
        while (at < sizeof(known) / sizeof(*known) && strcmp(key, known[at]) != 0)
            at++;
        if (at == sizeof(known) / sizeof(*known))
            (void)fault(SQLITE_WARNING,
                        "%s: the parameter %s is not known; this VFS has the parameters "
                        "journal=memory|file, max_size=BYTES, prefer=file|reflection, "
                        "reflection_dir=FOLDER and unmap=plain|fast",
                        name, key);
    }
}

int parameters_read(struct parameters *p, const char *name)
{
    int journal, mode, side;
    *p = (struct parameters){.reflection_dir = sqlite3_uri_parameter(name, "reflection_dir")};
    name_unknown(name);
    if (read_max_size(name, &p->max_size) != SQLITE_OK ||
        choose(name, "journal", "ATO_SQLITE_JOURNAL", journals, &journal) != SQLITE_OK ||
        choose(name, "unmap", NULL, parameters_unmap, &mode) != SQLITE_OK ||
        choose(name, "prefer", NULL, sides, &side) != SQLITE_OK)
        return SQLITE_CANTOPEN;
    p->journal_file = journal == 1;
    p->unmap_fast = mode == 1;
    p->prefer = side < 0 ? 0 : side ? ATO_PREFER_REFLECTION : ATO_PREFER_FILE;
    return SQLITE_OK;
}
