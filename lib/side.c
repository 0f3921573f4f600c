/* SPDX-License-Identifier: BSD-3-Clause */
#include "side.h"

int side_outside(const void *addr, size_t n)
{
    return report_error(EFAULT,
                        "[%p, +%zu) lies only partly in a mapping, or beyond the end of its "
                        "file",
                        addr, n);
}

int side_none(const void *a, const void *b)
{
    return report_error(EINVAL, "neither %p nor %p lies in a mapping of this process", a, b);
}
