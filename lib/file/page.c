/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking are modelled in pages.pml. */
#include "lib/file/page.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sleep is limited so that a waiter notices when the holder has died. Without membarrier in the kernel, the limit
 * is also the delay after a missed wake-up. */
enum { SLEEP_NS = 10 * 1000 * 1000 };

/* `notes` is byte 2 of word_of_sleepers(). */
#define NOTE_IN_WORD ((uint32_t)PAGE_SLEEPERS << 16)
static_assert(offsetof(struct page_state, notes) == offsetof(struct page_state, unused) + 2 &&
                  offsetof(struct page_state, unused) % 4 == 0,
              "the word that sleepers sleep on");

/*
 * The word that sleepers sleep on: unused, written, notes and flags. Not `holder`: it may have the same value again
 * when another thread of the process has reserved the page, and the sleeper would miss that its note was removed by
 * the release in between. Other changes of this word by the holder only cut the sleep short.
 */
typedef uint32_t __attribute__((may_alias)) sleep_word;

static sleep_word *word_of_sleepers(struct page_state *s)
{
    return (sleep_word *)&s->unused;
}

void page_sleep(struct page_state *s, uint64_t ns)
{
    __atomic_fetch_or(&s->notes, PAGE_SLEEPERS, __ATOMIC_SEQ_CST);
    /* Replaces the barrier that page_release() does not have. Global: another process may hold
     * the page. */
    (void)persist_barrier();
    uint32_t seen = __atomic_load_n(word_of_sleepers(s), __ATOMIC_RELAXED) | NOTE_IN_WORD;
    if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return;
    /* While the note is set, the thread that releases the page wakes the sleepers. No FUTEX_PRIVATE_FLAG: the futex
     * is shared between processes. */
    struct timespec limit = {.tv_nsec = ns < SLEEP_NS ? (long)ns : SLEEP_NS};
    syscall(SYS_futex, word_of_sleepers(s), FUTEX_WAIT, seen, &limit, NULL, 0);
}

bool page_is_not_for(const struct file *f, const struct page_state *s,
                     const struct patience *patience)
{
    const uint64_t tx = __atomic_load_n(&s->tx, __ATOMIC_RELAXED);
    /* The same transaction number may be used in several processes. */
    return tx &&
           (patience->not_for_tx || (page_is_for_epoch(tx, patience) &&
                                     __atomic_load_n(&s->holder, __ATOMIC_RELAXED) == f->holder));
}

void page_pause(unsigned i)
{
    if (i < PAGE_SPINS)
        _mm_pause();
    else
        sched_yield(); /* the other thread may be waiting for this CPU */
}

void page_wake(struct page_state *s)
{
    /* Wakes all sleepers: those that do not get the page set the note again. */
    __atomic_fetch_and(&s->notes, (uint8_t)~PAGE_SLEEPERS, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word_of_sleepers(s), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int page_flush_word(const struct file *f, const uint64_t *word)
{
    /* persist-order R4 (writer: W2 in commit.h): after a kill the word may be visible and not durable.
     * It becomes durable before anything is built on it, and before it becomes visible in memory (I4): otherwise a
     * process could overwrite the home that the word made invalid (I3), or a power cut could take back what was
     * read. I1, I5. */
    if (persist_flush_word(&f->persist, word) < 0)
        return report_errno(errno, "cannot make a bitmap of %s durable", f->pairing.path);
    persist_fence(&f->persist);
    return 0;
}
