/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of this process whose shared mappings are mappings of libato (ATO_PLAIN_STORES): which are they, and what do they hold?
 *
 * A file has one view, of all of it and with room to grow, however often the program maps it. The program gets addresses
 * within the view, so what it stores through one mapping is seen through all of them. A range is what one mmap() of the program has of it.
 * The view goes when there is no range any more, and the program has closed the file: munmap() is no sync, and programs map a file that
 * grows anew in the middle of a change.
 *
 * What the program writes by its descriptors of such a file is stored to the view, too, and what it reads comes from there: reads,
 * writes and mappings agree, and all that was written is in the next commit.
 *
 * Locks: the functions that take a struct served are called between served_enter() and served_leave().
 */
#ifndef ATO_LIB_RUN_SERVED_H
#define ATO_LIB_RUN_SERVED_H

#include "lib/api/stores.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct served {
    struct served *next;
    dev_t device;
    ino_t inode;
    int fd; /* a descriptor of its own, which libato uses */
    char *base;
    size_t length; /* as it was mapped */
    size_t reach;  /* what it may grow to */
    struct served_range {
        uint64_t from, to; /* offsets in the file */
    } * ranges;
    size_t count;
    pthread_mutex_t position; /* one write by a descriptor at a time, and one change of the size */
    char path[];
};

extern unsigned served_count;   /* of files; atomic */
extern bool served_is_required; /* --require */

enum served_how {
    SERVED_TO_USE,
    SERVED_TO_CHANGE /* no other thread is within, also none that uses a file */
};

/* Takes the lock. Returns false, and takes none, if the call that asks is to go on as ever: nothing is served (SERVED_TO_USE), or the
 * thread is in such a call already. */
bool served_enter(enum served_how how);
void served_leave(void);

/* Of a call on a descriptor: takes the lock, and returns the file, or NULL: it is not served, and no lock is taken. */
struct served *served_enter_of(int fd);
struct served *served_enter_path(int folder, const char *path);

/* After the name of what these return: calls served_leave() at the end of the block, unless it is NULL. */
#define LEAVING __attribute__((cleanup(served_leave_if)))
static inline void served_leave_if(struct served **s)
{
    if (*s)
        served_leave();
}

/* After the program has got a descriptor (below 0: it has got none): served_enter_of() answers at once for those that are not of a file
 * which is served. Descriptors that the program gets by raw system calls are not known. Returns fd; keeps errno. */
int served_note(int fd);
void served_note_any(void); /* it may have got any */

/* Returns false in a child of vfork(2), which has the memory of its parent. */
bool served_is_here(void);

/* Returns false if no file with this number is served: found without the lock, and without a system call. */
bool served_may_be(ino_t inode);

/* Returns the file; NULL: it is not served. */
struct served *served_of(int fd);
struct served *served_file(dev_t device, ino_t inode);
struct served *served_at(const void *at);

/* Makes the file served, for a mapping up to `end`. With SERVED_TO_CHANGE. Returns NULL with errno, and ato_errormsg() says why. */
struct served *served_make(int fd, dev_t device, ino_t inode, const char *path, uint64_t end);

/* A file with an ordinary mapping is not served later: its mappings would not agree. With SERVED_TO_CHANGE. */
void served_refuse(dev_t device, ino_t inode);
bool served_is_refused(dev_t device, ino_t inode);

/* Returns whether the files at this path, which is absolute, are to be served. */
bool served_is_wanted(const char *path);

/* Returns whether the process has a descriptor of the file, besides this one, or may have one. */
bool served_has_descriptor(dev_t device, ino_t inode, int besides);

/* Before a file is opened, or looked at: recovers what a killed process left, as `ato deploy` does. Nothing is done if a process has the
 * file mapped, or this one has it open. Keeps errno. Takes the lock. */
void served_recover(int folder, const char *name);

/* Adds a range. Returns false if there is no memory. */
bool served_add(struct served *s, uint64_t from, uint64_t to);

/* Takes [from, to) out of one range that has it, or of all. This commits nothing: what was stored is in the next commit. But if the
 * file has no range then, and the program has no descriptor of it, it is as served_drop(). With SERVED_TO_CHANGE. Returns 0; -1 with
 * errno: nothing has changed. */
int served_remove(struct served *s, uint64_t from, uint64_t to);

/* Commits, and unmaps the file: it is not served any more. With SERVED_TO_CHANGE. Returns as served_remove(). */
int served_drop(struct served *s);

/* Commit what was stored to [at, at + n), to the file, or to all files: `flags` as of msync(2), else durably (a relaxed commit is not seen
 * by others at once). Return 0; -1 with errno, and the stores are still there. */
int served_commit(struct served *s, void *at, size_t n, int flags);
int served_commit_file(struct served *s);
int served_commit_all(void);

/* The same as served_commit_file() where there is no lock: of the descriptor's file. Returns 1 if it is not served. */
int served_commit_of(int fd);

/* Commits all, for example before this process starts another program. Does nothing in a child of vfork(2). Takes the lock, as those below. */
void served_end(void);

/* The same before it becomes another program: what cannot be committed is lost, which the record tells. */
void served_end_here(void);

/* The same before it ends; and the files become plain, unless other processes have them mapped. Threads may still store: not to the files. */
void served_end_all(void);

/* Returns the size of the file; -1 with errno. */
off_t served_size(const struct served *s);

/* Makes the file so long: shorter at once, longer with the next commit. `how`, *was: as stores_resize(), which counts where other processes
 * make it longer at the same time. With its `position`. Returns 0; -1 with errno. */
int served_resize(struct served *s, off_t size, enum stores_size how, off_t *was);

/* Says a line on standard error; once for each `kind`, of the process. */
enum served_said {
    SAID_REFUSED,
    SAID_COMMIT,
    SAID_LOSS,
    SAID_FIXED,
    SAID_UNMAP,
    SAID_CHILD,
    SAID_RECOVERY,
    SAID_DESCRIPTOR,
    SAID_COUNT
};
void served_say(enum served_said kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
