/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A commit to two files, whose process is killed: can one of them be seen as it is, and then the other one as it was?
 * The steps of the commit are those of commit.c (commit_journal()) and showing.c (showing_all()), those of the replay
 * replay.c's (replay_all(), with visible.c), those of recover() peers_recover() (peers.c) and
 * takeover() (takeover.c), both with finish.c.
 *
 * Two files of a page each, both loaded. Process 0 commits to both. Processes 1 and 2 have one file each mapped, and want its
 * page. Process 3 has both mapped, and reads one and then the other. A process that finds a page of a dead holder
 * recovers. With RO process 3 does not: it uses the notes in memory (view_of_marked() in reader_beside.c). KILLS processes
 * are killed, each at any step; the kernel drops their locks.
 *
 * Words count from 0 to 1. What a power cut leaves is takeover.pml's, which also has the death in a commit to one file; memory
 * is sequentially consistent, as there.
 *
 * What is checked:
 *   - after new bytes of one file no read gets old ones of the other                  assert forward
 *   - what is left when all is free is the commit in both files or in neither         assert both
 *   - no deadlock: no page stays held or marked for ever
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_RETIRE_FIRST   the lane is retired before all is shown
 *   MUTANT_NO_HIDE        a replay marks nothing
 *   MUTANT_HIDE_ONE       a replay marks the file alone that it is about
 *   MUTANT_NO_REPLAY      pages are taken over without a replay
 *   MUTANT_TELL_EACH      with RO: each file's memory tells by itself
 *   MUTANT_HIDE_UNMARKED  with RO: a replay hides what is not marked yet, and of the rest goes by what is told
 */
#ifndef KILLS
#define KILLS 2
#endif

byte word[2], bitmap[2]; /* on the media, in memory */
bit flipping[2];
byte moves[2];           /* page_state.version */
byte holder[2];          /* process + 1; 0: free */
bit is_hidden[2], taken[2]; /* page_state.owner: PAGE_HIDDEN, PAGE_TAKEN_OVER */
bit told[2];             /* the dead one's: SHOWING_WORDS */
bit reloaded[2];
bit dead[4], doomed[4];
bit lane;                /* committed, not retired */
byte attach[2], journal; /* locks: process + 1 */

#define me (id + 1)

inline take(lock)
{
    atomic { lock == 0 -> lock = me }
}

inline drop(lock)
{
    lock = 0
}

inline mark(k)
{
    flipping[k] = 1;
    moves[k]++
}

inline unmark(k)
{
    flipping[k] = 0;
    moves[k]++
}

/* takeover_hide() */
inline hide(k)
{
    d_step {
        if
#ifdef MUTANT_HIDE_UNMARKED
        :: holder[k] == gone && !flipping[k] -> mark(k); is_hidden[k] = 1; taken[k] = 0
#else
        :: holder[k] == gone && flipping[k] -> is_hidden[k] = 1; taken[k] = 0
        :: holder[k] == gone && !flipping[k] -> mark(k); is_hidden[k] = 1; taken[k] = 0
#endif
        :: else
        fi
    }
}

inline flip(k)
{
    d_step {
        if
        :: holder[k] == gone && is_hidden[k] && flipping[k] -> bitmap[k] = 1
        :: else
        fi
    }
}

inline reveal(k)
{
    d_step {
        if
        :: holder[k] == gone && is_hidden[k] && flipping[k] -> unmark(k)
        :: else
        fi
    }
}

/* replay_all(), then takeover(), of file f: its page is held by the dead process `gone`. */
inline recover(f)
{
#ifndef MUTANT_NO_REPLAY
    take(journal);
    if
    :: lane && gone == 1 ->
        take(attach[0]);
        take(attach[1]);
#ifdef MUTANT_HIDE_ONE
        hide(f);
#elif !defined(MUTANT_NO_HIDE)
        hide(0);
        hide(1);
#endif
        word[0] = 1;
        word[1] = 1;
        flip(0);
        flip(1);
        reveal(0);
        reveal(1);
        lane = 0;
        drop(attach[1]);
        drop(attach[0])
    :: else
    fi;
    drop(journal);
#endif
    take(attach[f]);
    if
    :: holder[f] == gone ->
        d_step {
            if
            :: !flipping[f] -> mark(f); taken[f] = 1; is_hidden[f] = 0
            :: else
            fi
        };
        reloaded[f] = 1;
        bitmap[f] = word[f];
        d_step { unmark(f) };
        d_step { holder[f] = 0; reloaded[f] = 0; taken[f] = 0; is_hidden[f] = 0 }
    :: else
    fi;
    drop(attach[f])
}

inline reserve(f)
{
    do
    :: atomic { holder[f] == 0 -> holder[f] = me }; break
    :: atomic { holder[f] && dead[holder[f] - 1] -> gone = holder[f] }; recover(f)
    od
}

/* A call that changes nothing. */
inline want(f)
{
    reserve(f);
    holder[f] = 0
}

#ifdef MUTANT_TELL_EACH
#define speaker(f) f
#else
#define speaker(f) 0
#endif

#define UNTOLD 2

/* view_of_marked(): is it the word that holds, not the bitmap? */
inline view(f, is)
{
    d_step {
        if
        :: !flipping[f] -> is = 0
        :: else ->
            is = (reloaded[f] -> 1 : (is_hidden[f] -> UNTOLD : (taken[f] -> 0 : told[speaker(f)])))
        fi
    }
}

/* note(), copy_page() and is_as_noted() of reader_beside.c, or read.c */
inline read(f, got)
{
    do
#ifndef RO
    :: atomic { !flipping[f] -> got = bitmap[f] }; break
    :: atomic { flipping[f] && holder[f] && dead[holder[f] - 1] -> gone = holder[f] };
        recover(f)
#else
    :: atomic {
        !flipping[f] || (holder[f] && dead[holder[f] - 1]) -> noted = moves[f];
        view(f, before)
    };
        view(f, now);
        if
        :: now == 1 -> got = word[f]
        :: else -> got = bitmap[f]
        fi;
        view(f, after);
        if
        :: before != UNTOLD && now != UNTOLD && before == after && noted == moves[f] -> break
        :: else
        fi
#endif
    od
}

inline mark_both()
{
    d_step { mark(0) };
    d_step { mark(1) }
}

inline commit()
{
    reserve(0);
    reserve(1);
    lane = 1;
    word[0] = 1;
    word[1] = 1;
#ifdef MUTANT_RETIRE_FIRST
    lane = 0;
#endif
    mark_both();
    told[0] = 1;
#ifdef MUTANT_TELL_EACH
    told[1] = 1;
#endif
    bitmap[0] = 1;
    bitmap[1] = 1;
    d_step { unmark(0) };
    d_step { unmark(1) };
    lane = 0;
    holder[0] = 0;
    holder[1] = 0
}

/* The locks of a dead process go, in any order; with the last one its death is visible. */
inline die()
{
    do
    :: attach[0] == me -> attach[0] = 0
    :: attach[1] == me -> attach[1] = 0
    :: journal == me -> journal = 0
    :: attach[0] != me && attach[1] != me && journal != me -> break
    od;
    dead[id] = 1
}

proctype process(byte id)
{
    byte gone, first, second;
#ifdef RO
    byte noted, before, now, after;
#endif
    {
        if
        :: id == 0 -> commit()
        :: id == 1 -> want(0)
        :: id == 2 -> want(1)
        :: id == 3 ->
            if
            :: read(0, first); read(1, second)
            :: read(1, first); read(0, second)
            fi;
            assert(second >= first) /* forward */
        fi
    } unless { doomed[id] };
    if
    :: doomed[id] -> die()
    :: else
    fi
}

/* Kills, and takes both pages when all are done: the result must be free, and complete. */
init
{
    byte id = 4, gone, kills;
    atomic {
        run process(0);
        run process(1);
        run process(2);
        run process(3)
    };
    do
    :: kills < KILLS ->
        kills++;
        if
        :: doomed[0] = 1
        :: doomed[1] = 1
        :: doomed[2] = 1
        :: doomed[3] = 1
        fi
    :: _nr_pr == 1 -> break
    od;
    want(0);
    want(1);
    assert(bitmap[0] == bitmap[1] && word[0] == word[1] && bitmap[0] == word[0] && !lane) /* both */
}
