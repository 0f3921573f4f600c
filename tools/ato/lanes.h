/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lanes in which commits to a file may be, read into memory: those of each slot of its manifest, and those of the
 * journals that its manifest names.
 */
#ifndef ATO_TOOLS_LANES_H
#define ATO_TOOLS_LANES_H

#include "look.h"

#include "reflection/format/journal.h"

struct lanes {
    unsigned slot;
    bool alive; /* the process in the slot */
    bool
        changing; /* the same, or the journal's owner lives: a lane may be in the middle of a commit */
    uint64_t number;                    /* of the journal; 0: the lanes are in the manifest */
    struct stat st;                     /* of the journal */
    char path[PATH_MAX + NAME_MAX + 2]; /* of the file that they lie in */
    /* 0; else they cannot be used, and report_sentence() says why. EACCES: this user may not read them. */
    int error;
    struct journal journal; /* in the module's own memory */
    struct journal again;   /* while they are changing, a second reading */
};

/* Returns what the lane holds. While lanes are changing, one is damaged only if both readings say so. */
enum journal_finding lanes_look(const struct lanes *l, unsigned lane, struct journal_view *v);

/* Calls `visit` for all lanes of the manifest, which lies in `f`. `trust`: of its file; NULL: not known. Not for those
 * that the next map drops. */
typedef void lanes_visit(void *arg, const struct lanes *l);
void lanes_each(const struct folder *f, const struct look_manifest *m, const struct trust *trust,
                lanes_visit *visit, void *arg);

/* Returns the index, among the files of a commit, of the pairing `id`; v->nfiles if it does not name it. */
unsigned lanes_file(const struct journal_view *v, const uint8_t id[16]);

#endif
