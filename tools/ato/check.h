/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of `ato check`. Each checks one kind of object and adds its findings.
 */
#ifndef ATO_TOOLS_CHECK_H
#define ATO_TOOLS_CHECK_H

#include "findings.h"
#include "look.h"
#include "seen.h"

struct check {
    struct findings findings;
    struct seen files;      /* originals */
    uint64_t plain, paired; /* files that were checked */
};

/* Checks a manifest, without the file; findings are about `name`. */
void check_manifest(struct check *c, const char *name, const struct look_manifest *m);

/* Checks the lanes of a file whose manifest is in `f`. `length`: of its reflection; 0: there is none. Returns false if the next map
 * refuses them. */
bool check_lanes(struct check *c, const char *name, const struct folder *f,
                 const struct look_manifest *m, uint64_t length);

/* Checks a file and all that belongs to it. A plain file is not a finding. */
void check_look(struct check *c, const char *name, const struct look *l);

/* Checks a folder of files, or a reflection folder. */
void check_folder(struct check *c, const char *name);

#endif
