/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library does at fork() and exit(). */
#ifndef ATO_LIB_API_PROCESS_H
#define ATO_LIB_API_PROCESS_H

#include <stdbool.h>

/* False if the handlers of fork() could not be registered, which only a lack of memory prevents. */
extern bool process_is_set_up;

#endif
