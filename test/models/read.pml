/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does every read return what the file held at one moment of its own time? Reading without a lock
 * (read.c, point 1 to 4) against writers and deployers (write.c, commit.c, deploy.c, page_set_reserve.c), first
 * touch (reservation.c).
 *
 * Two pages. Page 0 has slices 0 and 1, page 1 has slice 2; at birth slice 0 is valid in R, the others
 * in O, nothing is loaded, and the invalid homes hold garbage. WRITERS threads do OPS operations each,
 * any of KINDS; one thread reads once: a page or both, without a lock, and after PASSES passes reserved.
 * One read is enough, since it may begin at any moment and has to return what was, at some moment between
 * its begin and its end, the state after all operations begun to be shown: then no later read can
 * return an earlier state. An operation counts from the moment at which its first bitmap is visible.
 *
 * Memory is x86-TSO: each writer has a buffer of ordinary stores that drains in order (`fifo`), loads
 * of other addresses may be answered before; and non-temporal stores (`nt`), which drain in any order
 * and wait for nothing but a fence or a locked instruction of their thread. A reader loads in order.
 *
 * What is checked:
 *   - a read returns one state of its own time, wholly                             assert one_moment
 *   - and nothing of an operation that is not durable (I4)                         assert durable
 *   - no store reaches a home that the durable word calls valid (I2, I3)           assert i2
 *   - all threads finish: no deadlock, and a reader that reserves gets its pages
 * That words are found durable after a crash is the crash explorer's, kills are takeover.pml's.
 *
 * Not in it: the size (point 5; test/unit/tx_size_test.cc and test/threads have readers of what is being cut
 * off); transactions, which are writers that hold their pages for longer; the reader's own stores. Its first touch
 * is done step by step here, without a buffer. What it deployed or wrote itself it may see before others
 * do: a deploy changes no content; but of two threads that write a page each, and each read the other's
 * right after, both may get the old one, as with plain stores and loads on this CPU.
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_NO_CHECK         the reader does not look at the versions again
 *   MUTANT_NO_LAST_PASS     the read is over when what had moved is copied again
 *   MUTANT_KEEP_VERSION     a page that is copied again keeps the version of its first copy
 *   MUTANT_STEADY           the reader takes an even version for a steady one
 *   MUTANT_LATE_VERSION     the reader notes a version after its copy
 *   MUTANT_SET_FIRST        bitmaps change before the pages are marked
 *   MUTANT_UNMARK_EARLY     pages are unmarked before all bitmaps have changed
 *   MUTANT_MARK_ONE_BY_ONE  each page is marked, changed and unmarked by itself
 *   MUTANT_NO_W1            no fence between slices and flip
 *   MUTANT_SHOW_EARLY       shown before the word is durable
 *   MUTANT_RELEASE_EARLY    released before the word is durable (W2)
 *   MUTANT_NO_W3            no fence between showing and an eager write's own deploy
 *   MUTANT_NO_W4            an aborted write does not wait for its stores
 *   MUTANT_LOAD_OPEN        first touch without reservation
 *   MUTANT_VERSION_FIRST    first touch stores the version before the bitmap
 *   MUTANT_RESERVED_ONE     a reserved read of two pages holds one at a time
 *   MUTANT_SHORT_VERSION    versions that come round again: 1, 2, 1, ...
 */

/* What the writers may do: a bit each. */
#define ONE   1  /* write_page(): page 0, both slices */
#define PART  2  /* write_page(): page 0, slice 1 */
#define OTHER 4  /* write_page(): page 1 */
#define BOTH  8  /* writev_one(): both pages, all slices; committed by a lane or by RTM */
#define EAGER 16 /* the same with ATO_EAGER: bring_home() in tx.c deploys at once */
#define ABORT 32 /* one that fails after its copy */
#define HOME  64 /* deploy_range(), deploy_for_reader(): both pages */

#ifndef KINDS
#define KINDS (ONE | BOTH | EAGER | ABORT | HOME)
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef OPS_0 /* operations of writer 0, of writer 1 */
#define OPS_0 1
#endif
#ifndef OPS_1
#define OPS_1 1
#endif
#ifndef PASSES
#define PASSES 3
#endif

#define READER  WRITERS
#define STATES  6   /* of the file, while one read lasts */
#define GARBAGE 15
#define BIRTH   14

#define page_of(slice) ((slice) >> 1)
#define slices(page)   (3 + (page))

/* ---- shared memory and media ---- */

byte holder[2];   /* page_state.holder: thread + 1; 0: free */
byte version[2];  /* page_state.version */
byte bitmap[2];   /* page_state.bitmap: bit s for slice s */
byte word[2];     /* on the media, as it is visible */
byte home[6];     /* slice s: O at s, R at s + 3. An operation's number */

/* ---- ghosts ---- */

byte durable[2];  /* words, as a power cut would find them after recovery */
byte sure;        /* operations that are durable, a bit each */
byte now[3];      /* what the file holds */
byte then[STATES * 3]; /* what it held since the read under way began */
byte moments;     /* how many of them; 0: no read */

#include "read_memory.pml"

/* ---- writers ---- */

/* reservation_take(): a locked instruction, which waits for the thread's own stores. P3. */
inline reserve(p)
{
    atomic { drained && !holder[p] -> holder[p] = me + 1 };
    d_step { b[p] = bitmap[p]; v[p] = version[p] }
}

/* load_page(). The word is durable: R4 is the crash explorer's. */
inline load(p)
{
    d_step {
        if
        :: v[p] == 0 ->
            b[p] = word[p];
            v[p] = 1;
#ifdef MUTANT_VERSION_FIRST
            fifo[me]!VERSION, p, 1;
            fifo[me]!BITMAP, p, b[p]
#else
            fifo[me]!BITMAP, p, b[p];
            fifo[me]!VERSION, p, 1
#endif
        :: else
        fi
    }
}

/* To the invalid home of each slice of `mask` (I2), past the caches. */
inline put(s)
{
    if
    :: mask & (1 << s) -> nt[3 * me + s] = 64 + number[me] + ((b[page_of(s)] >> s) & 1 -> 0 : 16)
    :: else
    fi
}

/* copy_home(): from R to O, what is valid in R. */
inline bring(s)
{
    if
    :: mask & (1 << s) -> nt[3 * me + s] = 64 + home[s + 3]
    :: else
    fi
}

#ifdef MUTANT_SHORT_VERSION
#define next_version(p) v[p] = (v[p] == 1 -> 2 : 1)
#else
#define next_version(p) v[p]++
#endif

#define mark(p)                                                                                    \
    if                                                                                             \
    :: mask & slices(p) -> next_version(p); fifo[me]!VERSION, p, v[p]                              \
    :: else                                                                                        \
    fi
#define set_bitmap(p)                                                                              \
    if                                                                                             \
    :: mask & slices(p) -> fifo[me]!FLIP, p, b[p]                                                  \
    :: else                                                                                        \
    fi

#define unmark(p) mark(p)

/* show() in show.c; commit_page() in commit.h for a page. Into the buffer in one step: no thread sees a store
 * before it leaves that. */
inline show_flips()
{
    d_step {
        b[0] = b[0] ^ (mask & 3);
        b[1] = b[1] ^ (mask & 4);
#if defined(MUTANT_SET_FIRST)
        set_bitmap(0); set_bitmap(1); mark(0); mark(1); unmark(0); unmark(1);
#elif defined(MUTANT_UNMARK_EARLY)
        mark(0); mark(1); set_bitmap(0); unmark(0); unmark(1); set_bitmap(1);
#elif defined(MUTANT_MARK_ONE_BY_ONE)
        mark(0); set_bitmap(0); unmark(0); mark(1); set_bitmap(1); unmark(1);
#else
        mark(0);
        mark(1);
        set_bitmap(0);
        set_bitmap(1);
        unmark(0);
        unmark(1);
#endif
    }
}

/* W1, the words, W2: commit_page(), commit_each_page(), and commit_words() or commit_rtm(), of which readers
 * cannot tell the lane: its commit line decides, and the commit is not acknowledged before all words are durable. */
inline flip()
{
#ifndef MUTANT_NO_W1
    drained; /* W1, J1 */
#endif
#ifdef MUTANT_SHOW_EARLY
    show_flips();
#endif
    d_step {
        word[0] = word[0] ^ (mask & 3);
        word[1] = word[1] ^ (mask & 4)
    };
#ifdef MUTANT_RELEASE_EARLY
    show_flips();
    release();
#endif
    d_step { /* W2, J4, J3: everything before is durable */
        durable[0] = durable[0] ^ (mask & 3);
        durable[1] = durable[1] ^ (mask & 4);
        sure = sure | (1 << number[me])
    };
#if !defined(MUTANT_SHOW_EARLY) && !defined(MUTANT_RELEASE_EARLY)
    show_flips()
#endif
}

inline release()
{
    d_step {
        if :: pages & 1 -> fifo[me]!FREE, 0, 0 :: else fi;
        if :: pages & 2 -> fifo[me]!FREE, 1, 0 :: else fi
    }
}

proctype writer(byte me; byte ops)
{
    byte op, kind, mask, pages, b[2], v[2];
    do
    :: ops == 0 -> break
    :: else ->
        ops--;
        if
        :: KINDS & ONE -> kind = ONE; pages = 1; mask = 3
        :: KINDS & PART -> kind = PART; pages = 1; mask = 2
        :: KINDS & OTHER -> kind = OTHER; pages = 2; mask = 4
        :: KINDS & BOTH -> kind = BOTH; pages = 3; mask = 7
        :: KINDS & EAGER -> kind = EAGER; pages = 3; mask = 7
        :: KINDS & ABORT -> kind = ABORT; pages = 3; mask = 7
        :: KINDS & HOME -> kind = HOME; pages = 3
        fi;
        /* page_set_reserve(): in ascending order. */
        if
        :: pages & 1 -> reserve(0); load(0)
        :: else
        fi;
        if
        :: pages & 2 -> reserve(1); load(1)
        :: else
        fi;
        if
        :: kind != HOME ->
            d_step {
                number[me] = 1 + me + 2 * ops;
                written[me] = (kind == ABORT -> 0 : mask);
                put(0);
                put(1);
                put(2)
            }
        :: else
        fi;
        if
        :: kind == ABORT ->
#ifndef MUTANT_NO_W4
            drained /* W4: page_set_release() */
#else
            skip
#endif
        :: kind != ABORT && kind != HOME -> flip()
        :: kind == HOME
        fi;
        if
        :: kind == EAGER || kind == HOME ->
#ifndef MUTANT_NO_W3
            if :: kind == EAGER -> drained :: else fi; /* W3: deploy_committed() */
#endif
            d_step { /* deploy_held() */
                mask = b[0] | b[1];
                number[me] = 0;
                bring(0);
                bring(1);
                bring(2)
            };
            if
            :: mask -> flip()
            :: else
            fi
        :: else
        fi;
#ifdef MUTANT_RELEASE_EARLY
        if :: kind == ABORT || (kind == HOME && !mask) -> release() :: else fi;
#else
        release();
#endif
        d_step { kind = 0; mask = 0; pages = 0; b[0] = 0; b[1] = 0; v[0] = 0; v[1] = 0 }
    od
}

/* ---- the reader ---- */

/* load_look(): loaded by the thread that gets the page; else its holder does it at once. */
inline look(p)
{
    do
    :: version[p] -> break
#ifdef MUTANT_LOAD_OPEN
    :: version[p] == 0 ->
#else
    :: atomic { version[p] == 0 && !holder[p] -> holder[p] = READER + 1 };
        if
        :: version[p]
        :: else ->
#endif
            bitmap[p] = word[p];
            version[p] = 1;
#ifndef MUTANT_LOAD_OPEN
        fi;
        holder[p] = 0
#endif
    od
}

#ifdef MUTANT_STEADY
#define steady(p) true
#else
#define steady(p) (version[p] & 1)
#endif

/* steady_version() */
inline note(p)
{
    atomic { steady(p) -> noted[p] = version[p] }
}

inline gather(s)
{
    got[s] = home[s + 3 * ((seen >> s) & 1)]
}

/* read_copy() */
inline copy(p)
{
    seen = bitmap[p];
    if
    :: p == 0 -> gather(0); gather(1)
    :: else -> gather(2)
    fi;
    seen = 0
}

/* pass() in read.c, of one page; noted[p] is 0 if it was not copied yet. */
inline pass(p)
{
    look(p);
    if
    :: version[p] == noted[p]
    :: else ->
        done = false;
#ifdef MUTANT_LATE_VERSION
        copy(p);
        note(p)
#elif defined(MUTANT_KEEP_VERSION)
        if
        :: !noted[p] -> note(p); copy(p)
        :: else -> copy(p); done = true
        fi
#else
        note(p);
        copy(p)
#endif
    fi
}

#define was(i)                                                                                     \
    ((pages == 2 || (got[0] == then[3 * (i)] && got[1] == then[3 * (i) + 1])) &&                   \
     (pages == 1 || got[2] == then[3 * (i) + 2]))
#define known(x) ((x) == BIRTH || ((x) && (x) < 8 && (sure >> (x)) & 1))

proctype reader()
{
    byte pages, noted[2], seen, passes, got[3];
    bool done;
    if
    :: pages = 1
    :: pages = 2
    :: pages = 3
    fi;
    d_step { then[0] = now[0]; then[1] = now[1]; then[2] = now[2]; moments = 1 };
    do
    :: passes == PASSES || done -> break
    :: else -> /* read_bytes(); read_at_once() is two passes over one page, with one copy at most */
        d_step { passes++; done = true };
        if :: pages & 1 -> pass(0) :: else fi;
        if :: pages & 2 -> pass(1) :: else fi;
#if defined(MUTANT_NO_CHECK)
        done = true;
#elif defined(MUTANT_NO_LAST_PASS)
        done = done || passes == 2;
#endif
    od;
    if
    :: done
    :: else -> /* read_reserved() */
        if :: pages & 1 -> atomic { !holder[0] -> holder[0] = READER + 1 } :: else fi;
#ifdef MUTANT_RESERVED_ONE
        if :: pages & 1 -> pass(0); holder[0] = 0 :: else fi;
        if :: pages & 2 -> atomic { !holder[1] -> holder[1] = READER + 1 }; pass(1); holder[1] = 0 :: else fi
#else
        if :: pages & 2 -> atomic { !holder[1] -> holder[1] = READER + 1 } :: else fi;
        if :: pages & 1 -> pass(0) :: else fi;
        if :: pages & 2 -> pass(1) :: else fi;
        if :: pages & 1 -> holder[0] = 0 :: else fi;
        if :: pages & 2 -> holder[1] = 0 :: else fi
#endif
    fi;
    d_step {
        /* assert one_moment */
        assert(was(0) || (moments > 1 && was(1)) || (moments > 2 && was(2)) ||
               (moments > 3 && was(3)) || (moments > 4 && was(4)) || (moments > 5 && was(5)));
        /* assert durable */
        assert(pages == 2 || (known(got[0]) && known(got[1])));
        assert(pages == 1 || known(got[2]));
        moments = 0;
        then[0] = 0; then[1] = 0; then[2] = 0; then[3] = 0; then[4] = 0; then[5] = 0;
        then[6] = 0; then[7] = 0; then[8] = 0; then[9] = 0; then[10] = 0; then[11] = 0;
        then[12] = 0; then[13] = 0; then[14] = 0; then[15] = 0; then[16] = 0; then[17] = 0;
        pages = 0; got[0] = 0; got[1] = 0; got[2] = 0; noted[0] = 0; noted[1] = 0; passes = 0; done = false
    }
}

init
{
    atomic {
        word[0] = 1;
        durable[0] = 1;
        home[0] = GARBAGE;
        home[3] = BIRTH;
        home[1] = BIRTH;
        home[4] = GARBAGE;
        home[2] = BIRTH;
        home[5] = GARBAGE;
        now[0] = BIRTH;
        now[1] = BIRTH;
        now[2] = BIRTH;
        run memory(0);
        run writer(0, OPS_0);
#if WRITERS > 1
        run memory(1);
        run writer(1, OPS_1);
#endif
        run reader()
    }
}
