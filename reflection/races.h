/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ThreadSanitizer has to be told: which races are meant. In other builds nothing of this exists.
 *
 * It looks at accesses of up to 16 bytes and no further, hence RACES_WATCHED in copy.c: the kernel of
 * wider ones would hide all copies from it. And it knows no fence: what is ordered by one it takes for a
 * race, or, where it is told to look away, does not judge. test/threads/README.md says what is left to others.
 */
#ifndef ATO_REFLECTION_RACES_H
#define ATO_REFLECTION_RACES_H

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

/* Of the sanitizer's run time. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void __tsan_write_range(void *addr, unsigned long n);
int __tsan_mutex_pre_unlock(void *addr, unsigned flags);
void __tsan_mutex_post_unlock(void *addr, unsigned flags);

#ifdef __cplusplus
}
#endif

/* From here on the calling thread's loads may race with stores of others: it finds out by itself, and
 * takes back what it has read. */
#define RACES_MEANT_BEGIN() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)

/* To here. The sanitizer has looked away from stores too: those to dst[0, n) are as ordinary as any. */
#define RACES_MEANT_END(dst, n)                                                                    \
    do {                                                                                           \
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);                                                \
        __tsan_write_range(dst, n);                                                                \
    } while (0)

/* A mutex that the calling thread held is free again, though nobody unlocked it. */
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
