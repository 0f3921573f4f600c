/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of the pages that a killed process held? The steps of the commit are those of commit.c
 * (commit_words(), commit_page(), show()) and page_set_reserve.c, those of the replay replay.c and lane.c, those of
 * recover() and take_over() takeover.c, but for the size of the file.
 *
 * One file of two pages, all loaded. Four processes; each may be killed at any step, KILLS of them
 * in all, and what one has held then is dropped by the kernel in any order (attach lock, slot's
 * lock). Process 0 and 1 write, each as MODE_0, MODE_1 say: both pages by a lane in
 * the manifest (LANE) or page 0 by its word alone (WORD). Process 2 is new: it attaches, in the slot of a dead
 * one if that is free, and writes page 0. Process 3 reads both pages, twice, without a lock. A
 * process that waits for a page looks at the slot of its holder, and recovers if the holder is dead (recover()). With RO
 * process 3 may not (reader.c): its read fails.
 *
 * Words are numbers of operations: `word` as it is visible, `durable` as a power cut would leave it at
 * most behind: it keeps either, for each line by itself. So with the lane's commit line and `retired`.
 *
 * What is checked:
 *   - a read sees an operation of two pages on both or on neither; the second read nothing less
 *     than the first                                                             assert whole, forward
 *   - a power cut at any moment, then a replay, leaves both or neither, and never takes back what
 *     memory shows, or was read (with POWER)                   assert whole, assert kept
 *   - what is reloaded has everything that memory showed: no replay undoes a newer flip  assert undone
 *   - no page is given to two, or freed while its holder lives                assert mine
 *   - a taken page has nothing of its former holder in it                     assert clean
 *   - no deadlock: no page stays held for ever (without POWER, which always can go on)
 *
 *
 * Memory is sequentially consistent here: how stores are seen is read.pml's. A dead process's stores
 * have drained when its locks are free: the kernel came between.
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_RELOAD_FIRST       words are reloaded before the lane is replayed
 *   MUTANT_NO_REPLAY          the lane is not replayed
 *   MUTANT_RETIRE_FIRST       a replay retires the lane before the words are durable
 *   MUTANT_COMMIT_NO_J4       a commit retires its lane before its words are durable
 *   MUTANT_COMMIT_NO_J3       and after it released its pages
 *   MUTANT_COMMIT_NO_J2       words are stored before the commit line is durable
 *   MUTANT_RELOAD_UNFLUSHED   words are reloaded as they are visible, not flushed
 *   MUTANT_NO_SETTLE          the lane is believed as it is visible, not flushed (R2)
 *   MUTANT_MARK_BLIND         a takeover counts versions up, and so takes the mark off a page that
 *                             its holder had marked
 *   MUTANT_NO_MARK            reloaded without marks
 *   MUTANT_ONE_BY_ONE         each page is marked, reloaded, unmarked and freed by itself
 *   MUTANT_KEEP_PENDING       the mask of the dead stays in the page's state
 *   MUTANT_NO_ATTACH          recoveries take no lock
 *   MUTANT_READER_WAITS       readers do not look at the holder of a page that is flipping
 *   MUTANT_NO_RECHECK         WITHOUT_RECHECK and WITHOUT_GENERATION
 *   MUTANT_NO_GENERATION      WITHOUT_GATE and WITHOUT_GENERATION
 * These hold too. The generation makes up for the other two, and they together for it:
 *   WITHOUT_RECHECK           the slot is not looked at again under the attach lock
 *   WITHOUT_GENERATION        reservations do not tell holders of one slot apart
 *   WITHOUT_GATE              a slot is given out before its former holder's pages are freed
 */
#define LANE 1
#define WORD 2

#ifndef KILLS
#define KILLS 2
#endif
#ifndef MODE_0
#define MODE_0 LANE
#endif
#ifndef MODE_1
#define MODE_1 WORD
#endif
#ifndef NEWCOMER
#define NEWCOMER 1
#endif
#ifndef READER /* how often process 3 reads: 0, 1, 2 */
#define READER 2
#endif

#ifdef MUTANT_NO_RECHECK
#define WITHOUT_RECHECK
#define WITHOUT_GENERATION
#endif
#ifdef MUTANT_NO_GENERATION
#define WITHOUT_GATE
#define WITHOUT_GENERATION
#endif
#ifdef WITHOUT_GENERATION
#define GENERATIONS 1
#else
#define GENERATIONS 2
#endif

/* ---- shared memory: pages ---- */

byte holder[2];   /* 0: free, else 1 + slot + 4 * generation */
byte version[2];
byte bitmap[2];   /* the last operation that is shown */
bit pending[2];

#define slot_of(h)   (((h) - 1) & 3)
#define holds(s)     (1 + (s) + 4 * (generation[s] % GENERATIONS))
/* The slot's lock is free, or belongs to another process by now. */
#define is_dead(h)   ((h) && (!lives[slot_of(h)] || (h) != holds(slot_of(h))))

/* ---- slots, locks ---- */

byte generation[4];
bit taken[4];      /* shared_slot.state: not free, its pages perhaps neither */
byte lives[4];     /* lock of the slot's byte in the manifest: 1 + process */
byte attach;       /* the manifest's byte 0: 1 + process */

/* ---- the media ---- */

byte word[2], durable[2];
bit commit[2], commit_durable[2];   /* lane of slot 0, of slot 1: its commit line */
bit retired[2], retired_durable[2];

/* ---- ghosts ---- */

bit killed[4], ended[4];
byte kills;
byte seen[2];      /* operations that were read, a bit each */
byte has[8];       /* page, value: which operations that value contains, a bit each */

#define contains(page, value) has[4 * (page) + (value)]
#define two_pages ((MODE_0 == LANE -> 2 : 0) | (MODE_1 == LANE -> 4 : 0))
#define whole(a, b) ((contains(0, a) & two_pages) == (contains(1, b) & two_pages))

/* A store to a line that is not durable yet: what it held may have left before. */
inline store(p, value)
{
    atomic {
        if
        :: durable[p] = word[p]
        :: word[p] != durable[p]
        fi;
        word[p] = value
    }
}

#define flush(p) durable[p] = word[p]

#include "takeover_recover.pml"

/* ---- reservations ---- */

/* reservation_take(), reservation_wait() */
inline reserve(p)
{
    do
    :: atomic {
        !holder[p] ->
        holder[p] = holds(me);
        assert(!pending[p]); /* assert clean */
        break
    }
    :: is_dead(holder[p]) ->
        d_step { gone = (is_dead(holder[p]) -> holder[p] : 0) };
        if :: gone -> recover() :: else fi
    od
}

/* page_release() */
inline release(p)
{
    d_step {
        assert(holder[p] == holds(me)); /* assert mine */
        holder[p] = 0
    }
}

/* ---- a write ---- */

inline copied(p)
{
    d_step {
        pending[p] = 1;
        contains(p, op) = contains(p, bitmap[p]) | (1 << op)
    }
}

inline mark(p)
{
    version[p]++
}

inline write_word()
{
    reserve(0);
    copied(0);
    store(0, op);
    flush(0); /* W2 */
    mark(0);
    bitmap[0] = op;
    pending[0] = 0;
    version[0]++;
    release(0)
}

inline write_lane()
{
    reserve(0);
    reserve(1);
    copied(0);
    copied(1);
    commit[me] = 1;
#ifndef MUTANT_COMMIT_NO_J2
    commit_durable[me] = 1; /* J2 */
#endif
    store(0, op);
    store(1, op);
#ifdef MUTANT_COMMIT_NO_J2
    commit_durable[me] = 1;
#endif
#ifdef MUTANT_COMMIT_NO_J4
    retired[me] = 1;
    retired_durable[me] = 1;
#endif
    flush(0);
    flush(1); /* J4 */
    mark(0);
    mark(1);
    bitmap[0] = op;
    bitmap[1] = op;
    pending[0] = 0;
    version[0]++;
    pending[1] = 0;
    version[1]++;
#ifndef MUTANT_COMMIT_NO_J3
    retired[me] = 1;
    retired_durable[me] = 1; /* J3 */
#endif
    release(0);
    release(1)
#ifdef MUTANT_COMMIT_NO_J3
    ;
    retired[me] = 1;
    retired_durable[me] = 1
#endif
}

/* The kernel drops the locks of a dead process in any order. */
inline die()
{
    do
    :: attach == id + 1 -> attach = 0
    :: d_step { lives[me] == id + 1 -> lives[me] = 0 }
    :: else -> break
    od
}

proctype writer(byte id; byte mode)
{
    byte me = id, op, gone;
    op = id + 1;
    {
        if
        :: mode == LANE -> write_lane()
        :: mode == WORD -> write_word()
        fi;
        ended[id] = 1
    } unless {
        killed[id] -> die()
    }
}

/* ato_mmap(): under the attach lock. The first slot that is free. */
inline attach_slot()
{
    atomic { !attach -> attach = id + 1 };
    d_step {
        if
#ifdef WITHOUT_GATE
        :: !lives[0] -> me = 0
#else
        :: !lives[0] && !taken[0] -> me = 0
#endif
        :: else -> me = 2
        fi;
        generation[me]++;
        taken[me] = 1;
        lives[me] = id + 1
    };
    attach = 0
}

proctype newcomer(byte id)
{
    byte me = 2, op, gone;
    op = id + 1;
    {
        attach_slot();
        write_word();
        ended[id] = 1
    } unless {
        killed[id] -> die()
    }
}

/* ---- the reader ---- */

/* load_look(), read_steady_version(), or read_pass() in read.c */
inline note(p)
{
    do
    :: atomic { version[p] & 1 -> before = before + version[p]; break }
#ifdef RO
    :: !(version[p] & 1) && is_dead(holder[p]) -> refused = 1; break
#elif !defined(MUTANT_READER_WAITS)
    :: !(version[p] & 1) && is_dead(holder[p]) ->
        d_step { gone = (is_dead(holder[p]) -> holder[p] : 0) };
        if :: gone -> recover() :: else fi
#endif
    od
}

/* All is copied again if a version moved: read.pml has the passes. */
inline read()
{
    do
    :: d_step { before = 0; refused = 0 };
        note(0);
        note(1);
        got[0] = bitmap[0];
        got[1] = bitmap[1];
        before = before - version[0];
        before = before - version[1];
        if
        :: !before || refused -> break
        :: else
        fi
    od;
    if
    :: refused -> got[0] = 0; got[1] = 0
    :: else ->
        assert(whole(got[0], got[1])); /* assert whole */
        d_step { seen[0] = seen[0] | contains(0, got[0]); seen[1] = seen[1] | contains(1, got[1]) }
    fi
}

proctype reader(byte id)
{
    byte me = id, gone, got[2], first[2];
    short before;
    bit refused;
    {
        read();
        d_step { first[0] = got[0]; first[1] = got[1] };
#if READER > 1
        read();
#endif
        d_step {
            /* assert forward */
            assert(refused || (contains(0, got[0]) & contains(0, first[0])) == contains(0, first[0]));
            assert(refused || (contains(1, got[1]) & contains(1, first[1])) == contains(1, first[1]));
            got[0] = 0; got[1] = 0; first[0] = 0; first[1] = 0; refused = 0
        };
        ended[id] = 1
    } unless {
        killed[id] -> die()
    }
}

/* ---- death and the power ---- */

proctype killer()
{
end:
    do
    :: d_step { kills < KILLS && !ended[0] && !killed[0] -> killed[0] = 1; kills++ }
#if MODE_1
    :: d_step { kills < KILLS && !ended[1] && !killed[1] -> killed[1] = 1; kills++ }
#endif
#if NEWCOMER
    :: d_step { kills < KILLS && !ended[2] && !killed[2] -> killed[2] = 1; kills++ }
#endif
#if READER
    :: d_step { kills < KILLS && !ended[3] && !killed[3] -> killed[3] = 1; kills++ }
#endif
    od
}

#ifdef POWER
/* Everything that a power cut at this moment may leave, replayed. Changes nothing. */
proctype power()
{
    byte which, a, b;
end:
    do
    :: d_step {
        which = 0;
        do
        :: which == 64 -> break
        :: else ->
            a = (which & 1 -> word[0] : durable[0]);
            b = (which & 2 -> word[1] : durable[1]);
            if
            :: (which & 4 -> commit[0] : commit_durable[0]) &&
               !(which & 8 -> retired[0] : retired_durable[0]) -> a = 1; b = 1
            :: else
            fi;
            if
            :: (which & 16 -> commit[1] : commit_durable[1]) &&
               !(which & 32 -> retired[1] : retired_durable[1]) -> a = 2; b = 2
            :: else
            fi;
            assert(whole(a, b)); /* assert whole */
            /* assert kept */
            assert((contains(0, a) & contains(0, bitmap[0])) == contains(0, bitmap[0]));
            assert((contains(1, b) & contains(1, bitmap[1])) == contains(1, bitmap[1]));
            assert((contains(0, a) & seen[0]) == seen[0]);
            assert((contains(1, b) & seen[1]) == seen[1]);
            which++
        od;
        which = 0;
        a = 0;
        b = 0
    }
    od
}
#endif

init
{
    atomic {
        version[0] = 1;
        version[1] = 1;
        contains(0, 0) = 1;
        contains(1, 0) = 1;
        lives[0] = 1; taken[0] = 1;
        lives[1] = 2; taken[1] = 1;
        lives[3] = 4; taken[3] = 1;
        run writer(0, MODE_0);
#if MODE_1
        run writer(1, MODE_1);
#endif
#if NEWCOMER
        run newcomer(2);
#endif
#if READER
        run reader(3);
#endif
        run killer();
#ifdef POWER
        run power()
#endif
    }
}
