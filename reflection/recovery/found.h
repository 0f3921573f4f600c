/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The journals in a reflection folder: their makers, and whether these are trusted.
 *
 * Journals count for a file if their makers may write to that file. Files of other users under such names are
 * neither waited for nor read. One exception: a maker may have been a member of the file's group, with
 * permission to write, when the file was mapped, and not be any more. Such a journal is read, without a
 * store or a lock: if its commit of the file were skipped, half of it could be lost.
 */
#ifndef ATO_REFLECTION_RECOVERY_FOUND_H
#define ATO_REFLECTION_RECOVERY_FOUND_H

#include "reflection/media/report.h"
#include "reflection/pairing/ownership.h"
#include "reflection/recovery/pool.h"

#include <sys/stat.h>

/* A file that is about to be used, or that a dead process had mapped, to decide which journals
 * matter to it. */
struct recover_file {
    uint8_t id[16];
    int manifest; /* a descriptor of it */
    bool in_use;  /* by its manifest: mapped, or the last user died */
    struct trust trust;
};

/* Results beside a descriptor and -1 (an error, with a sentence). */
enum {
    FOUND_GONE = -2,
    FOUND_OTHERS = -3, /* the maker may not write to the file; `st` is filled */
    FOUND_FORBIDDEN = -4,
};

/* A journal that was found. */
struct found_journal {
    const struct folder *folder; /* the folder that it lies in */
    const char *name;
    struct stat st;
};

/* Opens the file of a journal for reading and writing. Returns its descriptor, or one of the
 * above. */
int found_open(const struct folder *f, const char *name, struct stat *st, const struct trust *file);

/* Returns true if a lane of the journal holds a commit of the file, or is damaged. False for a file that is
 * not in use: a process that unmapped a file cleanly has retired all its commits. */
bool found_names_file(const struct journal *j, const struct recover_file *file);

/* Returns true if `found` was made for the file's group, which may not write to the file now but may have
 * been allowed to when the file's user died. Other users cannot make such a file where they may not write to
 * the folder. */
bool found_was_of_group(const struct stat *found, const struct trust *file);

/* Checks such a journal: commits of the file must be finished before the file, or a page that a dead
 * process held, is used again. `naps`: how many ms to wait for an owner that is dying. Returns 0 if the
 * journal holds no commit of the file; if it holds one or is being written to, 1 while the owner is not
 * dead, -1 with EACCES when it is; -1 also on other errors. */
int found_judge(const struct folder *f, const char *name, const struct recover_file *file,
                unsigned naps);

typedef int found_visit(const struct folder *f, const char *name, const void *arg);

struct found_visits {
    found_visit *journal, *unfinished; /* may be NULL */
};

/* Visits all journals of a folder. Without `failure`, until a visit returns other than 0, which
 * is returned. With `failure`, which takes the first error, errors do not end it. */
int found_each(const struct folder *f, const struct found_visits *v, const void *arg,
               struct report_kept *failure);

#endif
