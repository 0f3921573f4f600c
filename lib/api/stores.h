/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings with ATO_PLAIN_STORES: what the program has stored to its private view is committed by ato_msync(). store_views.h tells what the
 * copies of pages are compared with.
 */
#ifndef ATO_LIB_API_STORES_H
#define ATO_LIB_API_STORES_H

#include "lib/file/file.h"

/* Maps the view of a new mapping, which has its addresses: private and writable. Returns 0; -1 with errno. */
int stores_map(struct mapping *m, uint64_t length, int fd);

/* Lets all that commit to the file know of the view, and brings home what it shows. Returns 0; -1 with errno. */
int stores_open(struct mapping *m);

/* Commits what was stored to the pages of [from, from + n), from the beginning of the view; `relaxed`: without waiting until it is durable.
 * Returns 0; -1 with errno of ato_msync(). */
int stores_commit(struct mapping *m, uint64_t from, uint64_t n, bool relaxed);

/* Forgets what was stored there. Returns 0; -1 with errno. */
int stores_discard(struct mapping *m, uint64_t from, uint64_t n);

/* ato_ftruncate(): a growth belongs to the next commit of stores, a shrink is at once. What `size` is, when no other process can change
 * it any more: the new one; the least that it has to be; or by how much the file gets longer. *was: the size before. Returns 0; -1 with errno. */
enum stores_size { STORES_EXACTLY, STORES_AT_LEAST, STORES_MORE };
int stores_resize(struct mapping *m, off_t size, enum stores_size how, off_t *was);

/* Forgets a growth that is not committed, before the mapping goes away. */
void stores_forget_growth(struct mapping *m);

/* Returns the size of the file as the mapping has it. */
uint64_t stores_size(const struct mapping *m);

#endif
