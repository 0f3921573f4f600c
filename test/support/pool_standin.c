/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A replacement of libpmemobj, for test programs that do not test it. Making a real pool takes longer than
 * everything else in most tests that commit by a journal. In a program that links this file these functions
 * replace libpmemobj's, also if the library is loaded as a shared one. reflection/recovery/pool.c is the only
 * caller; it asks for a pool in a file that has its full length and is zero, for the place of the root
 * object, and closes the pool.
 */
#include <libpmemobj.h>

static char pool; /* its address is the handle */

enum { ROOT_AT = 1 << 20 }; /* bytes into the file; at the begin of a page, unlike libpmemobj's */

PMEMobjpool *pmemobj_create(const char *path, const char *layout, size_t bytes, mode_t mode)
{
    (void)path, (void)layout, (void)bytes, (void)mode;
    return (PMEMobjpool *)&pool;
}

PMEMoid pmemobj_root(PMEMobjpool *pop, size_t bytes)
{
    (void)pop, (void)bytes;
    return (PMEMoid){1, ROOT_AT};
}

void pmemobj_close(PMEMobjpool *pop)
{
    (void)pop;
}
