/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of `ato check`. Each looks at one kind of thing and adds what it finds.
 */
#ifndef ATO_TOOLS_CHECK_H
#define ATO_TOOLS_CHECK_H

#include "findings.h"
#include "look.h"

/* A set of device and inode: what was looked at. A table that is probed from the hash on. */
struct seen {
    struct seen_one {
        uint64_t device, inode;
        bool used;
    } * all;
    size_t n, room; /* room: 0 or a power of two */
};

bool seen_has(const struct seen *s, uint64_t device, uint64_t inode);

/* Adds it; was it there already? */
bool seen_before(struct seen *s, uint64_t device, uint64_t inode);

struct check {
    struct findings findings;
    struct seen files, folders; /* originals; reflection folders, their journals */
    uint64_t plain, paired;     /* files looked at */
};

/* A manifest and the reflection that goes with it, by themselves; `name` is what findings are
 * about. */
void check_manifest(struct check *c, const char *name, const struct look_manifest *m);
void check_reflection(struct check *c, const char *name, int reflection, uint64_t length,
                      const struct look_manifest *m);

/* The journals of a folder; once a folder. */
void check_journals(struct check *c, const struct folder *f);

/* A file and all that belongs to it. Plain files are none of the findings. */
void check_look(struct check *c, const char *name, const struct look *l);

/* A folder of files, or a reflection folder. */
void check_folder(struct check *c, const char *name);

#endif
