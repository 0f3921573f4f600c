/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where tests observe and take control. Compiled in only with ATO_SEAM: the library that the tests link has
 * it, the installed one does not. There everything below is empty.
 *
 *   SEAM_AT(op, call)  calls, and tells the recorder file and line of this store, flush or fence. All sites are in the
 *                      linker's section `seam_sites`, so that a test can tell which it never reached
 *   seam_point()       a place where a test's scheduler may switch threads
 */
#ifndef ATO_REFLECTION_MEDIA_SEAM_H
#define ATO_REFLECTION_MEDIA_SEAM_H

enum seam_point {
    SEAM_RESERVE,  /* about to try to reserve a page */
    SEAM_RESERVED, /* just reserved a page */
    SEAM_RELEASE,  /* about to release a page */
    SEAM_WAIT, /* waiting for a page that another thread holds: may be called any number of times */
    SEAM_VERSION,  /* a reader has noted its versions and is about to copy */
    SEAM_CHECK,    /* a reader has copied and is about to check that no version changed */
    SEAM_FLIP,     /* about to mark pages as flipping in memory */
    SEAM_FLIPPING, /* pages are marked, their bitmaps change next */
    SEAM_FLIPPED,  /* bitmaps have changed, a mark is removed next */
    SEAM_DURABLE,  /* the flip is durable and not yet shown in memory */
    SEAM_SAVING,   /* a page is about to be saved for snapshots */
};

#ifdef ATO_SEAM

#define SEAM_STRING_(x) #x
#define SEAM_STRING(x)  SEAM_STRING_(x)

struct seam_site {
    const char *op;    /* the table's entry that is called */
    const char *where; /* file:line */
};

/* The site of the call that the thread is in. */
extern __thread const char *seam_site;

#define SEAM_AT(op, call)                                                                          \
    (__extension__({                                                                               \
        static const struct seam_site seam_site_                                                   \
            __attribute__((used, section("seam_sites"), aligned(sizeof(struct seam_site)))) = {    \
                op, __FILE__ ":" SEAM_STRING(__LINE__)};                                           \
        seam_site = seam_site_.where;                                                              \
        call;                                                                                      \
    }))

extern void (*seam_hook)(enum seam_point point, const void *about);

static inline void seam_point(enum seam_point point, const void *about)
{
    void (*hook)(enum seam_point, const void *) = __atomic_load_n(&seam_hook, __ATOMIC_ACQUIRE);
    if (hook)
        hook(point, about);
}

#else

#define SEAM_AT(op, call) (call)

static inline void seam_point(enum seam_point point, const void *about)
{
    (void)point;
    (void)about;
}

#endif
#endif
