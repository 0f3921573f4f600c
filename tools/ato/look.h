/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a file, its attribute, manifest and reflection, and the processes that have it mapped.
 *
 * Nothing is changed, locked or mapped: bytes are read by pread(), since a load from a mapping of a
 * file that another process truncates is SIGBUS, and locks are only queried. Everything is checked
 * before it is used (I5). What another process is changing is read again.
 */
#ifndef ATO_TOOLS_LOOK_H
#define ATO_TOOLS_LOOK_H

#include "text.h"

#include "reflection/pairing/orphan.h"

#include <sys/stat.h>

struct look_manifest {
    int fd;                     /* -1: there is none */
    uint64_t length;            /* of the file */
    char bytes[MANIFEST_BYTES]; /* zeros where the file is shorter */
    enum manifest_finding found;
    struct manifest_record record;
    int copy;      /* the one that counts */
    bool has_size; /* the size words are valid */
    uint64_t size, growth, shrunk;
};

struct look_holder {
    unsigned slot;
    uint32_t pid; /* 0: unknown */
    char command[32];
};

enum { LOOK_HOLDERS = MANIFEST_SLOTS };

struct look_holders {
    unsigned count; /* locked slots */
    struct look_holder first[LOOK_HOLDERS];
    bool readers;   /* at least one process that may only read has it mapped, too */
    bool attaching; /* a process maps, unmaps or recovers the file at this moment */
};

enum look_state {
    LOOK_PLAIN,        /* no reflection: an ordinary file */
    LOOK_BORN,         /* its reflection was being made; nothing was stored yet */
    LOOK_IN_USE,       /* mapped */
    LOOK_RECOVERY_DUE, /* its last user died */
    LOOK_CLEAN,        /* unmapped, the reflection kept */
    LOOK_DEPLOYED,     /* all content is in the file, the reflection is being removed */
    LOOK_COPIED,       /* with the attribute, or the header (lib/sqlite/mask.h), of another file */
    LOOK_LOST,         /* its attribute names a reflection that is not found */
    LOOK_APART,        /* it was restored, and its reflection is an orphan (orphan.h) */
    LOOK_DAMAGED,      /* ato_mmap() refuses it */
};

/* What helps a file that ato_mmap() refuses; any of them. */
enum look_way {
    WAY_FILE = 1,        /* `ato deploy --prefer=file` */
    WAY_REFLECTION = 2,  /* `ato deploy --prefer=reflection` */
    WAY_RESIZE = 4,      /* the length that the manifest says */
    WAY_BRING_BACK = 8,  /* what is missing or damaged */
    WAY_COPY_AGAIN = 16, /* from a source that is plain */
    WAY_UNSET = 32,      /* the attribute */
    WAY_RENUMBER = 128,  /* the file gets another inode number */
    WAY_MAP = 64,        /* ato_mmap() does not refuse it */
};

struct look {
    int fd;
    struct identity identity;
    uint64_t storage;    /* bytes that the file takes */
    char path[PATH_MAX]; /* absolute */
    enum attribute_finding has_attribute;
    struct attribute attribute;
    struct folder folder; /* where its manifest is; fd -1: there is none */
    struct look_manifest manifest;
    uint64_t number; /* in the names of manifest and reflection: the file's inode, or an orphan's */
    enum orphan_finding orphan;
    int reflection; /* -1: none, or it cannot be opened (errno: reflection_error) */
    int reflection_error;
    uint64_t reflection_length, reflection_storage;
    struct look_holders holders;
    unsigned commits; /* that dead processes made and did not finish */
    bool cut_shrink;  /* it was made shorter, but is not truncated yet */
    bool bad_words;   /* that is the problem */
    bool is_mixed;    /* restored, and then overwritten: its guard has no mask */
    bool cut_growth;  /* its growth was interrupted: it is longer than its logical size */
    enum look_state state;
    char problem[1024]; /* why ato_mmap() would fail, or another thing to report; "" */
    unsigned ways;      /* out of that: of enum look_way; 0: the problem says what to do */
};

/* Return the name of the state, as in JSON, and its meaning, for text output. */
const char *look_state_name(enum look_state state);
const char *look_state_meaning(enum look_state state);

/* Stores the next step of a user that wants the file plain, as a sentence without an end, in `to`; "" if there is none to tell.
 * Returns `to`. */
enum { LOOK_NEXT = 3 * TEXT_WORD + 512 };
const char *look_next(char to[LOOK_NEXT], const struct look *l, const char *name);

/* Stores the problem and the next step in `to`, which has room for n bytes. */
void look_why(char *to, size_t n, const struct look *l, const char *name);

/* Returns the name of a format, of enum layout_format. */
const char *look_format_name(int format);

/* What follows the least length of a reflection of this format. */
const char *look_or_more(uint32_t format);

/* Opens the regular file `name`. -1 with ENOENT, EACCES, EINVAL (not a regular file), ... */
int look_open(const char *name, int flags);

/* Reads the state of the file `name`. Returns 0; -1 with errno and report_sentence(). */
int look_at(struct look *l, const char *name);
void look_close(struct look *l);

/* judge.c. look_judge() finds state and problem by what was found; the caller has set LOOK_PLAIN and no problem. look_judge_as() sets the state,
 * the ways out, and the sentence that tells the problem. */
void look_judge(struct look *l);
void look_judge_as(struct look *l, enum look_state state, unsigned ways, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Opens a reflection folder for reading. Returns 1; 0 if there is none; -1 on error; -2 if it is
 * not trusted, or not a folder: the library refuses it too. */
int look_folder(struct folder *f, const char *path);

/* Reads the manifest of `inode`. Returns 1; 0 if there is none; -1 on error.
 * look_manifest_close() closes it. */
int look_manifest(const struct folder *f, uint64_t inode, struct look_manifest *m);
void look_manifest_close(struct look_manifest *m);

/* Returns true if the file begins with the header of an SQLite database that other programs refuse (lib/sqlite/mask.h). */
bool look_is_masked(int fd);

/* Returns true if a file that a call makes and finishes at once was not touched for a minute: no process is at work on
 * it any more. */
bool look_is_old(const struct stat *st);

/* Opens the shared memory that the manifest names for reading, and reads its header. -1: there is none, or
 * it cannot be read. */
struct shared_header;
int look_shared(const struct manifest_record *record, struct shared_header *h);

/* Finds the processes that have the slots of a manifest. */
int look_holders(const struct look_manifest *m, struct look_holders *h);

/* Sets pid and name, if it is known that this process has the file open that `opened` is of. */
void look_holder_find(struct look_holder *h, uint32_t pid, const struct stat *opened);

/* Stores "pid 12 (name)", or "a process that cannot be named", in `to`, and returns `to`. */
#define LOOK_NAME 80
const char *look_holder_name(char to[LOOK_NAME], const struct look_holder *h);

/* Write a process, and the list "mapped_by", to an object. */
struct json;
void look_holder_write(const struct look_holder *h, struct json *j);
void look_holders_write(const struct look_holders *h, struct json *j);

/* Counts of the bitmaps of a reflection, for an original of `size` bytes. */
struct look_words {
    uint64_t slices;                     /* valid in the reflection */
    uint64_t pages;                      /* that have such slices */
    uint64_t words_beyond, first_beyond; /* not 0, of pages beyond the end; the first such page */
    uint64_t slices_beyond;              /* in the last page, beyond the end */
    uint64_t words_twice,
        first_twice; /* sparse: further ones of a page that has one; the first such page */
};

int look_words(int reflection, uint64_t length, uint32_t format, uint64_t size,
               struct look_words *w);

/* A page with slices that are valid in the reflection: its word, and its place (layout.h). */
struct look_word {
    uint64_t page, word, place;
    bool again; /* damaged: the page has another one, which came before */
};

/* Calls `visit`, in order, for each such page. Returns 0; -1 with errno and report_sentence(). */
typedef void look_visit(void *arg, const struct look_word *w);
int look_each_word(int reflection, uint64_t length, uint32_t format, look_visit *visit, void *arg);

#endif
