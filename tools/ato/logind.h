/* SPDX-License-Identifier: BSD-3-Clause */
/* Does systemd remove a user's shared memory when the user logs out (RemoveIPC in logind.conf(5))? */
#ifndef ATO_TOOLS_LOGIND_H
#define ATO_TOOLS_LOGIND_H

#include <stdbool.h>

/* Returns true if it does so for the user of this process: by its default, unless a file says otherwise, the user is one of the
 * system, or stays when its last session ends (loginctl enable-linger). */
bool logind_removes(void);

#endif
