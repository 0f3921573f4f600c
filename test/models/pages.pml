/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a wake-up ever missed? Reserving, sleeping and releasing of one page: page_try_reserve(),
 * reservation_wait(), page_sleep(), page_release(), page_wake() (page.h, page.c, reservation.c).
 *
 * The time limit of the sleep is left out: a wake-up that is missed is a deadlock here, in the code it
 * takes 10 ms. Two threads have a page at once: an assertion.
 *
 * Memory is x86-TSO, as far as it matters here: the store of page_release() stays in its thread's
 * buffer (`buffered`) for as long as it likes, while the load of `notes` behind it is answered. What a
 * locked instruction does waits until the thread's own buffer is empty. All threads are of one process:
 * their reservations look alike (`holder` is 0 or 1).
 *
 * tools/check-models runs this, and the mutants, each of which has to be found:
 *   MUTANT_NO_MEMBARRIER   no membarrier() makes up for the absent barrier of page_release()
 *   MUTANT_LOOK_FIRST      the sleeper looks at `holder` before its note
 *   MUTANT_WAKE_ONE        a release wakes one of the sleepers whose note it took away
 *   MUTANT_WAKE_FIRST      the note is taken away after the wake-up
 *   MUTANT_WAIT_ON_HOLDER  the futex is `holder`, which another thread of the process may have
 *                          reserved since: a note that was taken away meanwhile goes unnoticed
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

bit holder;             /* page_state.holder */
bit note;               /* page_state.notes & PAGE_SLEEPERS */
bit buffered[THREADS];  /* `holder = 0` is in the store buffer */
bit asleep[THREADS];    /* in futex(FUTEX_WAIT) */
byte inside;            /* ghost: how many hold the page */

#define drained (!buffered[me])

/* A store leaves its buffer: at any time. */
active proctype memory()
{
    byte i;
end:
    do
    :: d_step { buffered[0] -> buffered[0] = 0; holder = 0 }
    :: d_step { buffered[1] -> buffered[1] = 0; holder = 0 }
#if THREADS > 2
    :: d_step { buffered[2] -> buffered[2] = 0; holder = 0 }
#endif
    od
}

/* membarrier(): each CPU passes a full barrier, one after the other. */
inline barrier()
{
#ifndef MUTANT_NO_MEMBARRIER
    i = 0;
    do
    :: i < THREADS ->
        d_step { if :: buffered[i] -> buffered[i] = 0; holder = 0 :: else fi; i++ }
    :: else -> break
    od;
#endif
    i = 0
}

inline page_sleep()
{
#ifdef MUTANT_LOOK_FIRST
    seen = holder;
    atomic { drained -> note = 1 };
    barrier();
#else
    atomic { drained -> note = 1 }; /* fetch_or: locked */
    barrier();
    seen = holder;
#endif
    if
    :: !seen
    :: else ->
        /* FUTEX_WAIT: compares and sleeps in one step. The word that is compared holds `notes`; its
         * other bytes may have changed too, which only makes the sleep shorter. */
        d_step {
            if
#ifdef MUTANT_WAIT_ON_HOLDER
            :: holder == seen -> asleep[me] = 1
#else
            :: note -> asleep[me] = 1
#endif
            :: else
            fi
        };
        !asleep[me]
    fi;
    seen = 0
}

inline wake_all()
{
    d_step {
#ifdef MUTANT_WAKE_ONE
        if
        :: asleep[0] -> asleep[0] = 0
        :: else -> if :: asleep[1] -> asleep[1] = 0 :: else -> asleep[THREADS - 1] = 0 fi
        fi
#else
        asleep[0] = 0;
        asleep[1] = 0;
        asleep[THREADS - 1] = 0
#endif
    }
}

inline page_wake()
{
#ifdef MUTANT_WAKE_FIRST
    wake_all();
    atomic { drained -> note = 0 }
#else
    atomic { drained -> note = 0 }; /* fetch_and: locked */
    wake_all()
#endif
}

inline page_release()
{
    d_step { inside--; buffered[me] = 1 };
    if /* The load of `notes`: buffered[me] may still be set. */
    :: note -> page_wake()
    :: else
    fi
}

proctype thread(byte me)
{
    byte round, i;
    bit seen;
    do
    :: round == ROUNDS -> break
    :: else ->
        do
        :: atomic { drained && !holder -> holder = 1; inside++; assert(inside == 1); break }
        :: holder -> page_sleep() /* after SPINS looks */
        od;
        page_release();
        round++
    od
}

init
{
    atomic {
        run thread(0);
        run thread(1);
#if THREADS > 2
        run thread(2)
#endif
    }
}
