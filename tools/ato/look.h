/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is there: a file, its attribute, manifest and reflection, and who has it mapped. Read
 * only.
 *
 * Nothing is changed, locked or mapped: bytes come through pread() into buffers of their own,
 * because a mapping could be cut under our feet, and locks are only asked about. Nothing that is
 * read is believed before it was checked (I5). What others are just changing is looked at again.
 */
#ifndef ATO_TOOLS_LOOK_H
#define ATO_TOOLS_LOOK_H

#include "reflection/pairing/folder.h"
#include "reflection/pairing/identity.h"

#include <sys/stat.h>

struct look_manifest {
    int fd;                     /* -1: there is none */
    uint64_t length;            /* of the file */
    char bytes[MANIFEST_BYTES]; /* zeros where the file is shorter */
    enum manifest_finding found;
    struct manifest_record record;
    int copy;      /* that holds */
    bool has_size; /* the words of sizes are in order */
    uint64_t size, growth, shrunk;
};

struct look_holder {
    unsigned slot;
    uint32_t pid; /* 0: cannot be named */
    char command[32];
};

enum { LOOK_HOLDERS = MANIFEST_SLOTS };

struct look_holders {
    unsigned count; /* slots that are held */
    struct look_holder first[LOOK_HOLDERS];
    bool readers;   /* who may only read has it mapped, too: one or more */
    bool attaching; /* somebody maps, unmaps or recovers the file at this moment */
};

enum look_state {
    LOOK_PLAIN,        /* no reflection: an ordinary file */
    LOOK_BORN,         /* its reflection was being made; nothing was stored yet */
    LOOK_IN_USE,       /* mapped */
    LOOK_RECOVERY_DUE, /* its last user died, or a commit of it is in the journal of a dead one */
    LOOK_CLEAN,        /* unmapped, the reflection kept */
    LOOK_DEPLOYED,     /* everything is home, the reflection is being removed */
    LOOK_COPIED,  /* with an attribute, or a header (lib/sqlite/mask.h), that is of another file */
    LOOK_LOST,    /* its attribute names a reflection that is not to be found */
    LOOK_DAMAGED, /* ato_mmap() refuses it */
};

struct look {
    int fd;
    struct identity who;
    uint64_t storage;    /* bytes that the file takes */
    char path[PATH_MAX]; /* absolute */
    enum attribute_finding has_attribute;
    struct attribute attribute;
    struct folder folder; /* where its manifest is; fd -1: there is none */
    struct look_manifest manifest;
    int reflection; /* -1: none, or not to be opened: reflection_error is its errno */
    int reflection_error;
    uint64_t reflection_length, reflection_storage;
    struct look_holders holders;
    unsigned commits; /* lanes of dead processes' journals that name it */
    bool cut_shrink;  /* it was made shorter, and is not cut yet */
    bool cut_growth; /* it was to grow, and did not come to it: it is longer than it is taken for */
    enum look_state state;
    char problem[1024]; /* what stands in the way of ato_mmap(), or is to be known; "" */
};

/* "plain" ... as in JSON; a sentence for people. */
const char *look_state_name(enum look_state state);
const char *look_state_meaning(enum look_state state);

/* An open regular file that `name` leads to. ENOENT, EACCES, EINVAL (no regular file), ... */
int look_open(const char *name, int flags);

/* Looks at the file `name`. 0, or -1 with errno and report_sentence() when it cannot be looked
 * at. */
int look_at(struct look *l, const char *name);
void look_close(struct look *l);

/* A reflection folder, opened for looking. 1; 0 there is none; -1 error; -2 it is not to be
 * trusted, or no folder: the library refuses it too. */
int look_folder(struct folder *f, const char *path);

/* The manifest of `inode`. 1; 0 there is none; -1 error. To be closed by look_manifest_close(). */
int look_manifest(const struct folder *f, uint64_t inode, struct look_manifest *m);
void look_manifest_close(struct look_manifest *m);

/* Does it begin with the header of an SQLite database that other programs refuse (lib/sqlite/mask.h)? */
bool look_is_masked(int fd);

/* A regular file in a folder, opened for reading; nothing that could block is opened. -1 and errno;
 * EINVAL for what is no regular file. */
int look_into(const struct folder *f, const char *name, struct stat *st);

/* Something that a call makes and finishes at once was not touched for a minute: nobody is at it any more. */
bool look_is_old(const struct stat *st);

/* The shared memory of the processes that have a file mapped, open for reading, and its header: it is the one
 * that the manifest tells of. -1: there is none, or none that may be read. */
struct shared_header;
int look_shared(const struct manifest_record *record, struct shared_header *h);

/* Who has the slots of a manifest. */
int look_holders(const struct look_manifest *m, struct look_holders *h);

/* "pid 12 (name)", or "a process that cannot be named"; in `to`, which is returned. */
#define LOOK_NAME 80
const char *look_holder_name(char to[LOOK_NAME], const struct look_holder *h);

/* The list "mapped_by" of an object. */
struct json;
void look_holder_write(const struct look_holder *h, struct json *j);
void look_holders_write(const struct look_holders *h, struct json *j);

/* The bitmaps of a reflection, of which `size` bytes of the original count. */
struct look_words {
    uint64_t slices;                     /* valid in the reflection */
    uint64_t words_beyond, first_beyond; /* not 0, of pages beyond the end; the first such page */
    uint64_t slices_beyond;              /* in the last page, beyond the end */
};

int look_words(int reflection, uint64_t length, uint64_t size, struct look_words *w);

/* Calls `visit` for each page of which slices are valid in the reflection, in order, with the page's word. 0; -1 with errno
 * and report_sentence(). */
typedef void look_visit(void *arg, uint64_t page, uint64_t word);
int look_each_word(int reflection, uint64_t length, look_visit *visit, void *arg);

#endif
