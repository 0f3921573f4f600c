/* SPDX-License-Identifier: BSD-3-Clause */
#include "seen.h"

#include "tool.h"

#include <err.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct key {
    uint64_t device, inode;
};

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct key));
}

void *seen_memory(size_t n)
{
    void *memory = calloc(1, n);
    if (!memory)
        err(TOOL_BLIND, NULL);
    return memory;
}

bool seen_has(const struct seen *s, uint64_t device, uint64_t inode)
{
    const struct key key = {device, inode};
    return tfind(&key, &s->tree, compare) != NULL;
}

bool seen_before(struct seen *s, uint64_t device, uint64_t inode)
{
    if (seen_has(s, device, inode))
        return true;
    struct key *key = seen_memory(sizeof(*key));
    *key = (struct key){device, inode};
    (void)tsearch(key, &s->tree, compare);
    return false;
}

void seen_free(struct seen *s)
{
    tdestroy(s->tree, free);
    s->tree = NULL;
}
