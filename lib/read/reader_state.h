/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a file that may only be read is now: plain, quiet, or mapped by a writer; and finding that out. For reader.c
 * and its parts.
 */
#ifndef ATO_LIB_READ_READER_STATE_H
#define ATO_LIB_READ_READER_STATE_H

#include "lib/file/file.h"

#include <pthread.h>

struct reader {
    pthread_mutex_t lock; /* for all fields of reader and pairing, until the reader watches */
    /* The file is plain or quiet, and its ctime, in pairing.identity, will tell if that changes. */
    bool sure;
    struct shared_header own; /* the header until shared memory is mapped */
    struct shared_thread threads[THREAD_SHARED + 1];
    struct pairing_wish wish;
    char folder[]; /* of `wish` */
};

/* Implements pairing_wish.join; arg: the struct file. */
int reader_state_watch(struct pairing *pr, void *arg);

/* Finds out how the file is now, and notes it in f->reader. The caller holds the reader's lock. Returns 0; -1: that cannot be
 * told; EAGAIN: recovery is necessary. */
int reader_state_find(struct file *f);

/* The end of that, after pairing_open() or pairing_find(): notes what was found, and gives up the attach lock. */
int reader_state_note(struct file *f);

/* Returns true if the reader watches. Needs no lock. */
static inline bool reader_state_watches(const struct file *f)
{
    return __atomic_load_n(&f->shared.header, __ATOMIC_ACQUIRE) != &f->reader->own;
}

#endif
