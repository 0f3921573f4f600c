/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which pages of a private mapping of a file has its process stored to? Each of them is a copy of its own, which the kernel's tables
 * show: by an ioctl, PAGEMAP_SCAN, from Linux 6.7 on, else by eight bytes a page in /proc/PID/pagemap.
 */
#ifndef ATO_LIB_FILE_PRIVATE_PAGES_H
#define ATO_LIB_FILE_PRIVATE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/* Pages [first, end), counted from where the search begins. */
struct private_run {
    uint64_t first, end;
};

/* Looks at n pages of this process from `base` on. Sets *runs to memory for free(), with *count runs in ascending order. Returns 0; -1 with
 * ENOMEM; or, only the first time, with another error: /proc is not there. */
int private_pages_find(const void *base, uint64_t n, struct private_run **runs, uint64_t *count);

/* In a forked child. */
void private_pages_forget(void);

/* Opens what private_page_is() reads; `pid` 0: of this process. Returns -1 with errno. */
int private_pages_open(uint32_t pid);

/* Has the process a copy of the page at this address? Also true if that cannot be told. */
bool private_page_is(int pagemap, uint64_t address);

/* For tests: false: as with an older kernel. */
extern bool private_pages_scan;

#endif
