/* SPDX-License-Identifier: BSD-3-Clause */
/* What the steps of a subject share. */
#ifndef ATO_TEST_RUN_SUBJECT_H
#define ATO_TEST_RUN_SUBJECT_H

#include <stddef.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };

/* The file, a descriptor of it, and `size` bytes of it that are mapped. */
extern const char *path;
extern int fd;
extern char *map;
extern size_t size;

/* Maps the first n bytes of the file; NULL: mmap() failed. */
char *map_it(size_t n, int prot, int flags);

/* Returns whether all n bytes are c. */
int holds(const char *at, size_t n, char c);

/* Returns the size of the file; -1 if the ways to ask for it tell different ones. */
long size_by_all(void);

/* Does a step that needs other processes, threads or handlers of signals. Returns 0 if it found something wrong, or there is none of
 * this name. */
int step_beside_others(const char *word);

#endif
