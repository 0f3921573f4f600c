/* SPDX-License-Identifier: BSD-3-Clause */
#include "stumble_kernel.h"

#include "lib/file/file.h"
#include "lib/file/table.h"

static void (*now)(void);

static void gather(char *dst, const char *o, const char *r, uint64_t bitmap, uint64_t mask)
{
    uint64_t lower = 0;
    for (int n = __builtin_popcountll(mask) / 2; n; n--)
        lower |= (mask & ~lower) & -(mask & ~lower);
    now();
    copy_best()->gather(dst, o, r, bitmap, lower);
    now();
    copy_best()->gather(dst, o, r, bitmap, mask & ~lower);
    now();
}

void stumble_in_kernel(const void *addr, void (*stumble)(void))
{
    static struct copy_kernel stumbling;
    stumbling = *copy_best();
    stumbling.name = "stumbling";
    stumbling.gather = gather;
    now = stumble;
    table_find(addr)->file->persist.kernel = &stumbling;
}
