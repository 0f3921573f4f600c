/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is what a transaction reads one moment, and can two transactions commit that each read what the other one
 * writes? Reading, notes and the check at the commit: notes_add(), notes_hold(), notes_hold_for_commit() (notes.c),
 * read_bytes() (read.c), page_unmark_changed(), page_turn_mark() (page.h), under_way_begin() (under_way.h).
 *
 * Pages 0 and 1. A plain writer writes the same value to both, in one commit; somebody deploys page 0. A transaction
 * reads both pages, twice, and what it reads must be equal. With SKEW two transactions read both pages, which
 * are 1, and set one of them to 0 if none is: afterwards one must still be 1. With SEEN a transaction writes page 1 if page 0 is
 * still 0, and a plain writer writes page 0; if a third transaction has seen that and not page 1, the first one may not commit: it
 * comes before the plain writer. With HELD two transactions add 1 to both pages, and hold all that they have read when they commit.
 *
 * A page's version is one word in the code: three variables here, which change and are read in one step.
 * That a reader copies from the right homes is in read.pml. Memory is sequentially consistent: a page is reserved by
 * a locked instruction, and stores of one thread become visible in their order.
 *
 * tools/check-models runs this, and the mutants, each of which has to be found:
 *   MUTANT_NO_HOLD         a read does not check what was read before
 *   MUTANT_SAME_CONTENT    a commit changes the version as a deploy does
 *   MUTANT_MOMENT_AFTER    the moment is taken after the notes were looked at
 *   MUTANT_NO_UNDER_WAY    a commit under way does not make the moment unknown
 *   MUTANT_BEGIN_LATE      a commit is counted as under way when it is visible
 *   MUTANT_NO_HOLDER       the check at the commit does not look who holds a page
 *   MUTANT_CONTENT_FIRST   that check looks at the content first, then at the holder
 *   MUTANT_CHECK_FIRST     a transaction reserves what it writes after that check
 *   MUTANT_NO_FLAG         its pages do not say that it commits
 *   MUTANT_FLAG_LATE       they say so after that check
 *   MUTANT_BEGIN_AT_COMMIT it counts as under way after that check
 *   MUTANT_HELD_UNCHECKED  a transaction that holds what it has read does not look whether that changed before
 */
#define UNKNOWN 255
#define NONE    255

byte value[2];
bit marked[2];     /* the version is even */
byte flips[2];     /* lower half of the version */
byte content[2];   /* upper half */
bit committing[2]; /* PAGE_SET_COMMITS */
byte holder[2];    /* page_state.holder: 1 + number of the thread; 0: none */
byte done;         /* ghost: skewers that are over */
byte commits[2];   /* shared_thread.commits of threads 0 and 1: twice those that are over, and 1: under way */

inline reserve(p) { atomic { !holder[p] -> holder[p] = me + 1 } }

inline mark(p) { marked[p] = 1 }

inline unmark_changed(p)
{
    d_step {
        marked[p] = 0;
        flips[p]++;
#ifndef MUTANT_SAME_CONTENT
        content[p]++
#endif
    }
}

/* ---- what others do ---- */

proctype writer(byte me)
{
    byte round;
    do
    :: round == 2 -> break
    :: else ->
        round++;
        reserve(0);
        reserve(1);
#ifndef MUTANT_BEGIN_LATE
        commits[me]++;
#endif
        mark(0);
        mark(1);
        value[0] = round;
        value[1] = round;
        unmark_changed(0);
        unmark_changed(1);
#ifdef MUTANT_BEGIN_LATE
        commits[me]++;
#endif
        commits[me]++;
        holder[0] = 0;
        holder[1] = 0
    od
}

proctype deployer(byte me)
{
    reserve(0);
    mark(0);
    d_step { marked[0] = 0; flips[0]++ };
    holder[0] = 0
}

/* ---- a transaction ---- */

/* read_bytes() of one page, and notes_add(). */
inline read_page(p)
{
    do
    :: atomic { !marked[p] -> seen_flips = flips[p]; seen = content[p] };
        got[p] = value[p];
        if
        :: d_step { !marked[p] && flips[p] == seen_flips -> skip }; break
        :: else
        fi
    od;
    if
    :: note[p] == NONE -> note[p] = seen
    :: note[p] == seen
    :: else -> refused = 1
    fi
}

inline moment_of()
{
    d_step { now = UNKNOWN; seen = commits[0] };
    d_step {
        seen_flips = commits[1];
        if
#ifdef MUTANT_NO_UNDER_WAY
        :: 1 -> now = seen * 16 + seen_flips
#else
        :: !(seen & 1) && !(seen_flips & 1) -> now = seen * 16 + seen_flips
        :: else
#endif
        fi
    }
}

inline hold_page(p)
{
    if
    :: note[p] == NONE
    :: else ->
        !committing[p]; /* or it is refused after a moment */
        if
        :: atomic { !marked[p] && content[p] == note[p] -> skip }
        :: atomic { !marked[p] && content[p] != note[p] -> refused = 1 }
        fi
    fi
}

inline notes_hold()
{
#ifndef MUTANT_MOMENT_AFTER
    moment_of();
#endif
    if
    :: now != UNKNOWN && now == moment
    :: else ->
        hold_page(0);
        hold_page(1);
#ifdef MUTANT_MOMENT_AFTER
        moment_of();
#endif
        moment = now
    fi
}

/* notes_mark_commit(true) */
inline notes_begin_commit(p)
{
#ifndef MUTANT_BEGIN_AT_COMMIT
    commits[me]++;
#endif
#if !defined(MUTANT_NO_FLAG) && !defined(MUTANT_FLAG_LATE)
    committing[p] = 1
#endif
}

inline commit(p, to)
{
#ifdef MUTANT_FLAG_LATE
    committing[p] = 1;
#endif
#ifdef MUTANT_BEGIN_AT_COMMIT
    commits[me]++;
#endif
    mark(p);
    value[p] = to;
    unmark_changed(p)
}

/* notes_mark_commit(false) */
inline notes_end_commit(p)
{
    committing[p] = 0;
    if :: commits[me] & 1 -> commits[me]++ :: else fi
}

inline check(p)
{
#ifdef MUTANT_CONTENT_FIRST
    if :: content[p] != note[p] -> refused = 1 :: else fi;
#endif
#ifndef MUTANT_NO_HOLDER
    if :: holder[p] && holder[p] != me + 1 -> refused = 1 :: else fi;
#endif
#ifndef MUTANT_CONTENT_FIRST
    if :: content[p] != note[p] -> refused = 1 :: else fi
#endif
}

/* Reads both pages twice. */
proctype reader()
{
    byte seen, seen_flips, now = UNKNOWN, moment = UNKNOWN, round;
    byte got[2], note[2];
    bit refused;
    note[0] = NONE;
    note[1] = NONE;
    do
    :: round == 2 || refused -> break
    :: else ->
        round++;
        read_page(0);
#ifndef MUTANT_NO_HOLD
        if :: !refused -> notes_hold() :: else fi;
#endif
        if :: !refused -> read_page(1) :: else fi;
#ifndef MUTANT_NO_HOLD
        if :: !refused -> notes_hold() :: else fi;
#endif
        assert(refused || got[0] == got[1])
    od
}

#define MINE (me)

/* Sets page `me` to 0 if both pages are 1. */
proctype skewer(byte me)
{
    byte seen, seen_flips, now = UNKNOWN, moment = UNKNOWN;
    byte got[2], note[2];
    bit refused;
    note[0] = NONE;
    note[1] = NONE;
    read_page(0);
    notes_hold();
    if :: !refused -> read_page(1); notes_hold() :: else fi;
    if
    :: refused || got[0] + got[1] < 2
    :: else ->
#ifndef MUTANT_CHECK_FIRST
        reserve(MINE);
#endif
        notes_begin_commit(MINE);
        check(0);
        check(1);
#ifdef MUTANT_CHECK_FIRST
        reserve(MINE);
#endif
        if
        :: refused
        :: else -> commit(MINE, 0)
        fi;
        notes_end_commit(MINE);
        if :: holder[MINE] == me + 1 -> holder[MINE] = 0 :: else fi
    fi;
    done++;
    assert(done < 2 || value[0] + value[1] >= 1)
}



/* ---- what a third one sees ---- */

bit saw; /* ghost: page 0 changed, page 1 not */

/* Thread 1: page 1 becomes 1 if page 0 is 0. */
proctype follower(byte me)
{
    byte seen, seen_flips, now = UNKNOWN, moment = UNKNOWN;
    byte got[2], note[2];
    bit refused;
    note[0] = NONE;
    note[1] = NONE;
    read_page(0);
    if
    :: got[0] == 0 ->
        reserve(1);
        notes_begin_commit(1);
        check(0);
        if
        :: refused
        :: else -> commit(1, 1)
        fi;
        notes_end_commit(1);
        holder[1] = 0
    :: else
    fi;
    done++;
    assert(!(saw && value[1] == 1))
}

proctype changer(byte me)
{
    reserve(0);
    commits[me]++;
    mark(0);
    value[0] = 1;
    unmark_changed(0);
    commits[me]++;
    holder[0] = 0
}

proctype watcher()
{
    byte seen, seen_flips, now = UNKNOWN, moment = UNKNOWN;
    byte got[2], note[2];
    bit refused;
    note[0] = NONE;
    note[1] = NONE;
    if
    :: read_page(0); notes_hold(); if :: !refused -> read_page(1); notes_hold() :: else fi
    :: read_page(1); notes_hold(); if :: !refused -> read_page(0); notes_hold() :: else fi
    fi;
    if :: !refused && got[0] == 1 && got[1] == 0 -> saw = 1 :: else fi;
    assert(!(saw && done && value[1] == 1))
}

/* ---- a transaction that holds what it has read ---- */

byte added; /* ghost */

/* notes_are_of_held(): it says nothing while it commits, and looks at no holder. */
proctype adder(byte me)
{
    byte seen, seen_flips, now = UNKNOWN, moment = UNKNOWN;
    byte got[2], note[2];
    bit refused;
    note[0] = NONE;
    note[1] = NONE;
    read_page(0);
    notes_hold();
    if :: !refused -> read_page(1); notes_hold() :: else fi;
    if
    :: refused
    :: else ->
        reserve(0);
        reserve(1);
#ifndef MUTANT_HELD_UNCHECKED
        if :: content[0] != note[0] -> refused = 1 :: else fi;
        if :: content[1] != note[1] -> refused = 1 :: else fi;
#endif
        if
        :: refused
        :: else ->
            commits[me]++;
            mark(0);
            mark(1);
            value[0] = got[0] + 1;
            value[1] = got[1] + 1;
            unmark_changed(0);
            unmark_changed(1);
            commits[me]++;
            added++
        fi;
        holder[0] = 0;
        holder[1] = 0
    fi;
    done++;
    assert(done < 2 || (value[0] == added && value[1] == added))
}

init
{
    atomic {
#ifdef SKEW
        value[0] = 1;
        value[1] = 1;
        run skewer(0);
        run skewer(1)
#elif defined(SEEN)
        run changer(0);
        run follower(1);
        run watcher()
#elif defined(HELD)
        run adder(0);
        run adder(1);
        run reader()
#else
        run writer(0);
        run deployer(2);
        run reader()
#endif
    }
}
