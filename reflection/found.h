/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Journals in a reflection folder, and pointers to journals of other folders: whose are they, may they be believed, and
 * where do they lead?
 *
 * They count for a file if their makers may write to that. Others may have made what is there under such a name, too:
 * that is neither waited for nor looked into. But where somebody of the file's group could write to it when he
 * had it mapped, and may not now, what he left is read, without storing or locking anything: to pass over his commit of
 * the file would leave half of it.
 */
#ifndef ATO_REFLECTION_FOUND_H
#define ATO_REFLECTION_FOUND_H

#include "linked.h"
#include "recover.h"
#include "report.h"

/* Answers beside a descriptor; -1 is an error, with a sentence. */
enum {
    FOUND_GONE = -2,
    FOUND_OTHERS = -3, /* its maker may not write to the file; `st` is filled */
    FOUND_FORBIDDEN = -4,
};

/* Opens the file of a journal, or a pointer, for reading and writing. */
int found_open(const struct folder *f, const char *name, struct stat *st, const struct trust *file);

/* Where a pointer leads. */
struct found_way {
    struct pointer pointer;
    struct folder folder;
    struct linked journal;
};

/* Follows the pointer `name` in `f`. The journal's descriptor, and to->folder is open; FOUND_OTHERS; FOUND_FORBIDDEN: the
 * pointer is, or, with to->folder open, the journal; FOUND_GONE: it leads nowhere, or to a journal that does not know
 * it, and errno says why. */
int found_follow(struct found_way *to, const struct folder *f, const char *name,
                 const struct trust *file);

/* Such a pointer: does it matter? 0; -1 with ESTALE, ...: a commit of the file may be lost. errno is found_follow()'s. */
int found_judge_gone(const struct found_way *to, const struct folder *f, const char *name,
                     const struct recover_file *file);

/* Does some lane of a journal hold a commit of the file? Or something that is none. Who unmapped the file
 * cleanly has seen all its commits retired. */
bool found_names_file(const struct journal *j, const struct recover_file *file);

/* Made for the file's group, which may not write to it now: perhaps it could when the file's user died. Nobody
 * else can make one that looks so in a folder where he may not write. */
bool found_was_of_group(const struct stat *found, const struct trust *file);

/* Before the file, or what a dead process held of it, is anybody's, what was committed has to be finished. But this
 * journal is such a one's. `naps`: how many ms to wait for an owner who is dying. 1: he is not dead yet, and the journal
 * holds a commit of the file, or is just being written to; 0: it holds none; -1 with EACCES, it does. */
int found_judge(const struct folder *f, const char *name, const struct recover_file *file,
                unsigned naps);

/* The same of the journal where a pointer of such a one leads. */
int found_judge_way(const struct folder *f, const char *name, const struct recover_file *file,
                    unsigned naps);

typedef int found_visit(const struct folder *f, const char *name, const void *arg);

struct found_visits {
    found_visit *journal, *pointer, *unfinished; /* the last one of both; may be NULL */
};

/* All of a folder, until a visit answers other than 0; with `failure`, which takes the first one: all of them. */
int found_each(const struct folder *f, const struct found_visits *v, const void *arg,
               struct report_kept *failure);

#endif
