/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a file that may only be read is now: plain, quiet, or mapped by a writer; and finding that out. For reader.c
 * and its parts.
 */
#ifndef ATO_LIB_READ_READER_STATE_H
#define ATO_LIB_READ_READER_STATE_H

#include "lib/file/file.h"

#include <pthread.h>
#include <time.h>

enum reader_state {
    READER_PLAIN, /* there is no manifest: the file is plain */
    READER_QUIET, /* unmapped cleanly, the reflection kept */
    /* A writer has it mapped. This state is final, since the reader's lock keeps the shared memory. */
    READER_WATCHING,
};

struct reader {
    pthread_mutex_t lock; /* for all fields, except once READER_WATCHING */
    enum reader_state state;
    struct timespec changed;  /* READER_PLAIN: the file's ctime before the read */
    struct shared_header own; /* the header until shared memory is mapped */
    struct shared_thread threads[THREAD_SHARED + 1];
    char *name; /* the file's name, within pairing.path */
    struct pairing_wish wish;
    char folder[]; /* of `wish` */
};

/* Finds out how the file is now, and notes it in f->reader. The caller holds the reader's lock. Returns 0; -1: that cannot be
 * told; EAGAIN: recovery is necessary. */
int reader_state_find(struct file *f);

/* Returns true if the reader watches. Needs no lock. */
static inline bool reader_state_watches(const struct file *f)
{
    return __atomic_load_n(&f->reader->state, __ATOMIC_ACQUIRE) == READER_WATCHING;
}

#endif
