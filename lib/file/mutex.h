/* SPDX-License-Identifier: BSD-3-Clause */
/* The mutexes that the process has one of each, in the order in which they are taken. All of them are held around
 * fork(), so that a child finds nothing half done. */
#ifndef ATO_LIB_FILE_MUTEX_H
#define ATO_LIB_FILE_MUTEX_H

#include <pthread.h>

enum mutex {
    MUTEX_FILES,     /* the list of files, and each change to the mappings of the process */
    MUTEX_LOOKING,   /* while a reader may open a manifest (reader.c) */
    MUTEX_LANES,     /* the area of a file's lanes */
    MUTEX_GUARD,     /* the manifest record of a file */
    MUTEX_HANDLES,   /* the table of transactions */
    MUTEX_SNAPSHOTS, /* the table of snapshots, and how a file's snapshots are mapped */
    MUTEX_PAGEMAP,   /* the descriptor of private_pages.c */
    MUTEXES,
};

extern pthread_mutex_t mutexes[MUTEXES];

static inline void mutex_lock(enum mutex which)
{
    pthread_mutex_lock(&mutexes[which]);
}

static inline void mutex_unlock(enum mutex which)
{
    pthread_mutex_unlock(&mutexes[which]);
}

#endif
