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
    struct seen files, journals; /* originals; journals that manifests name */
    uint64_t plain, paired;      /* files that were checked */
};

/* Checks a manifest, without the file; findings are about `name`. */
void check_manifest(struct check *c, const char *name, const struct look_manifest *m);

/* Checks the lanes of a file whose manifest is in `f`: those in the manifest, and in journals. `trust`: of the file;
 * NULL: not known. `length`: of its reflection; 0: there is none. Returns false if the next map refuses them. */
bool check_lanes(struct check *c, const char *name, const struct folder *f,
                 const struct look_manifest *m, const struct trust *trust, uint64_t length);

/* Checks whether a manifest of the folder names the journal `entry`. To be called after their lanes are checked. */
void check_leftover(struct check *c, const struct folder *f, const char *entry);

/* Checks a file and all that belongs to it. A plain file is not a finding. */
void check_look(struct check *c, const char *name, const struct look *l);

/* Checks a folder of files, or a reflection folder. */
void check_folder(struct check *c, const char *name);

#endif
