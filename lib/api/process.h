/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library does at fork() and exit(). */
#ifndef ATO_LIB_API_PROCESS_H
#define ATO_LIB_API_PROCESS_H

/* Called before any lock of the library is taken; does its work once per process. Returns 0; -1 with ENOMEM. */
int process_set_up(void);

#endif
