/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a folder, the machine and the kernel offer to a file there, and what that means for it.
 *
 * The file system is tested with a file without a name, or, where there is no such thing, with one whose name is gone
 * before it is used: nothing is left behind.
 */
#ifndef ATO_TOOLS_DIAGNOSIS_H
#define ATO_TOOLS_DIAGNOSIS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/utsname.h>

struct cpu {
    bool clwb, clflushopt, avx2, avx512, rtm, rtm_commits;
    const char *kernel; /* copies slices */
};

struct medium {
    char type[64]; /* "ext4" ... */
    int tried;     /* errno of making a file there; the trials below count if 0 */
    int map_sync;  /* of each trial: 0, or errno */
    int attributes, fallocate, locks;
    const char *unsafe; /* the name of a network's or unknown kind, which libato refuses; NULL */
    bool has_space;
    uint64_t size, free, reserved; /* bytes; free to the caller, and kept for root */
    int domain;                    /* of a file there */
};

struct shm {
    int error;     /* errno of looking at it */
    int tried;     /* of making a file of 1 MiB there */
    bool vanishes; /* what this user has there goes when the user logs out */
    uint64_t size, free;
};

struct diagnosis {
    const char *name;
    struct utsname kernel;
    bool membarrier;
    int auto_flush; /* 1 eADR, 0 not, -1 not known */
    struct cpu cpu;
    struct medium medium;
    struct shm shm;
    const char *elsewhere; /* ATO_REFLECTION_DIR; NULL */
    char folder[600];      /* why reflections cannot be put where they would lie; "" */
    const char *elsewhere_unsafe;
    int elsewhere_domain; /* of that folder; -1: no file can be made there */
    const char *wish;     /* ATO_DURABILITY; NULL */
    bool any;             /* ATO_ANY_FILE_SYSTEM */
    int offered;          /* by the media */
    int domain;           /* with the wish; -1: the wish is no domain */
};

/* What a file has to have before it can be mapped there. */
struct obstacles {
    unsigned n;
    char all[8][512];
};

/* Finds all of it out. Returns 0; -1 with errno: the folder cannot be looked at. */
int diagnosis_make(struct diagnosis *d, const char *folder);

/* Why a file there gets its durability domain: a clause. */
const char *diagnosis_reason(const struct diagnosis *d);

/* The events that the bytes of a file in this domain survive: sentences. */
const char *diagnosis_survival(int domain);

/* Why no file can be mapped there: clauses. */
struct obstacles diagnosis_obstacles(const struct diagnosis *d);

/* What does not keep a file from being mapped there, but works less well. */
struct obstacles diagnosis_remarks(const struct diagnosis *d);

#endif
