/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tells ThreadSanitizer which races are intended. Empty in other builds.
 *
 * ThreadSanitizer checks accesses of up to 16 bytes only, hence RACES_WATCHED in copy.c: wider copy kernels
 * would hide all copies from it. It does not know fences: it reports accesses that a fence orders as races,
 * or, where they are declared as intended, ignores them. test/threads/README.md says which tests cover the
 * rest.
 */
#ifndef ATO_REFLECTION_MEDIA_RACES_H
#define ATO_REFLECTION_MEDIA_RACES_H

#if defined(__SANITIZE_THREAD__)
#define RACES_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_WATCHED 1
#endif
#endif

#ifdef RACES_WATCHED

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of the sanitizer's run time. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void __tsan_write_range(void *addr, unsigned long n);
int __tsan_mutex_pre_unlock(void *addr, unsigned flags);
void __tsan_mutex_post_unlock(void *addr, unsigned flags);

#ifdef __cplusplus
}
#endif

/* From here on loads of the calling thread may race with stores of others: the thread detects this itself and
 * discards what it has read. */
#define RACES_MEANT_BEGIN() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)

/* Ends that. The sanitizer has ignored the stores to dst[0, n) too, which are ordinary ones: they are
 * declared here. */
#define RACES_MEANT_END(dst, n)                                                                    \
    do {                                                                                           \
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);                                                \
        __tsan_write_range(dst, n);                                                                \
    } while (0)

/* A mutex that the calling thread held is free again, without having been unlocked. */
#define RACES_FREED(mutex)                                                                         \
    do {                                                                                           \
        (void)__tsan_mutex_pre_unlock(mutex, 0);                                                   \
        __tsan_mutex_post_unlock(mutex, 0);                                                        \
    } while (0)

#else

#define RACES_MEANT_BEGIN()     ((void)0)
#define RACES_MEANT_END(dst, n) ((void)0)
#define RACES_FREED(mutex)      ((void)0)

#endif
#endif
