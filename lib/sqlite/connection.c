/* SPDX-License-Identifier: BSD-3-Clause */
#include "connection.h"

#include <string.h>

bool connection_writes(const struct connection *c)
{
    return __atomic_load_n(&c->lock, __ATOMIC_RELAXED) >= SQLITE_LOCK_RESERVED;
}

bool connection_has_journal(const struct connection *c, const char *journal)
{
    static const char ending[] = "-journal";
    const size_t n = strlen(c->name);
    return strncmp(c->name, journal, n) == 0 && strcmp(journal + n, ending) == 0;
}
