/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_file.h"

#include "lib/file/file.h"
#include "lib/file/table.h"

void use_file_poison(const void *base)
{
    file_poison(table_find(base)->file);
}
