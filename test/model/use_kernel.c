/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_kernel.h"

#include "lib/file/file.h"
#include "lib/file/table.h"

#include <stdlib.h>
#include <string.h>

static const struct copy_kernel *find(const char *name)
{
    for (const struct copy_kernel *const *k = copy_kernels; *k; k++)
        if (strcmp((*k)->name, name) == 0)
            return *k;
    abort();
}

const char *const *kernel_names(void)
{
    static const char *names[8];
    for (int i = 0; copy_kernels[i]; i++)
        names[i] = copy_kernels[i]->name;
    return names;
}

int kernel_usable(const char *name)
{
    return find(name)->usable() != 0;
}

void use_kernel(const void *addr, const char *name)
{
    table_find(addr)->file->persist.kernel = find(name);
}
