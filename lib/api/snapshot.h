/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ATO_LIB_API_SNAPSHOT_H
#define ATO_LIB_API_SNAPSHOT_H

enum { SNAPSHOT_PLACES = 1 << 12 };
extern struct snapshot *snapshot_places[SNAPSHOT_PLACES];

/* In a forked child: forgets all snapshots, which are the parent's. With MUTEX_SNAPSHOTS. */
void snapshot_forget_all(void);

#endif
