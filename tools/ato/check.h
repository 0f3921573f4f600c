/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of `ato check`. Each checks one kind of object and adds its findings.
 */
#ifndef ATO_TOOLS_CHECK_H
#define ATO_TOOLS_CHECK_H

#include "findings.h"
#include "look.h"

/* The objects that were checked, by device and inode: a hash table with linear probing. */
struct seen {
    struct seen_one {
        uint64_t device, inode;
        bool used;
    } * all;
    size_t n, room; /* room: 0 or a power of two */
};

bool seen_has(const struct seen *s, uint64_t device, uint64_t inode);

/* Adds the object. Returns true if it was in the set already. */
bool seen_before(struct seen *s, uint64_t device, uint64_t inode);

struct check {
    struct findings findings;
    struct seen files;      /* originals */
    uint64_t plain, paired; /* files that were checked */
};

/* Check a manifest, and the reflection of that manifest, without the file; findings are about
 * `name`. busy: somebody has the file mapped. */
void check_manifest(struct check *c, const char *name, const struct look_manifest *m);
void check_reflection(struct check *c, const char *name, int reflection, uint64_t length,
                      const struct look_manifest *m, bool busy);

/* Checks the lanes of a file whose manifest is in `f`. `length`: of its reflection; 0: there is none. Returns false if the next map
 * refuses them. */
bool check_lanes(struct check *c, const char *name, const struct folder *f,
                 const struct look_manifest *m, uint64_t length);

/* Checks a file and all that belongs to it. A plain file is not a finding. */
void check_look(struct check *c, const char *name, const struct look *l);

/* Checks a folder of files, or a reflection folder. */
void check_folder(struct check *c, const char *name);

#endif
