/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where tests may look in and take over. Compiled in only with ATO_SEAM, which the library that
 * the tests link has and the one that is installed has not: there every macro below is nothing.
 *
 *   SEAM_SITE(op)  file and line of a store, flush or fence, for the recorder. All of them are in the
 *                  linker's section `seam_sites`, so that a test can tell which it never came to
 *   seam_point()   a place where a test's scheduler may switch threads
 */
#ifndef ATO_REFLECTION_SEAM_H
#define ATO_REFLECTION_SEAM_H

enum seam_point {
    SEAM_RESERVE,  /* about to try to reserve a page */
    SEAM_RESERVED, /* just reserved one */
    SEAM_RELEASE,  /* about to release one */
    SEAM_WAIT,     /* waiting for a page that somebody else holds: may be called for ever */
    SEAM_VERSION,  /* a reader noted its versions, and is about to copy */
    SEAM_CHECK,    /* a reader copied, and is about to check that no version moved */
    SEAM_FLIP,     /* about to mark pages as flipping in memory */
    SEAM_FLIPPING, /* pages are marked, their bitmaps change next */
    SEAM_FLIPPED,  /* they have changed, and a mark goes next */
    SEAM_DURABLE,  /* the flip is durable, memory does not show it yet */
};

#ifdef ATO_SEAM

#define SEAM_STRING_(x) #x
#define SEAM_STRING(x)  SEAM_STRING_(x)

struct seam_site {
    const char *op;    /* entry of the table that is called */
    const char *where; /* file:line */
};

#define SEAM_SITE(op)                                                                              \
    (__extension__({                                                                               \
        static const struct seam_site seam_site_                                                   \
            __attribute__((used, section("seam_sites"), aligned(sizeof(struct seam_site)))) = {    \
                op, __FILE__ ":" SEAM_STRING(__LINE__)};                                           \
        seam_site_.where;                                                                          \
    }))

extern void (*seam_hook)(enum seam_point point, const void *about);

static inline void seam_point(enum seam_point point, const void *about)
{
    void (*hook)(enum seam_point, const void *) = __atomic_load_n(&seam_hook, __ATOMIC_ACQUIRE);
    if (hook)
        hook(point, about);
}

#else

#define SEAM_SITE(op) ((const char *)0)

static inline void seam_point(enum seam_point point, const void *about)
{
    (void)point;
    (void)about;
}

#endif
#endif
