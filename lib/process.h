/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of the process and its children: fork() and exit(). */
#ifndef ATO_LIB_PROCESS_H
#define ATO_LIB_PROCESS_H

/* Once for the process, before any lock of the library is taken. ENOMEM. */
int process_set_up(void);

#endif
