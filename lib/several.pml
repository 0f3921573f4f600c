/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A commit to two files, whose process is killed: can one of them be seen as it is, and then the other one as it was?
 * The steps of the commit are those of flip.c (commit_journal(), or with RTM commit_rtm(), and show()), those of the
 * replay recover.c's (replay_all(), with peers_hide()), those of recover() peers_recover() and takeover().
 *
 * Two files of a page each, both loaded. Process 0 commits to both. Processes 1 and 2 have one file each mapped, and want its
 * page. Process 3 has both mapped, and reads one and then the other. Whoever comes upon a page whose holder is dead
 * recovers. KILLS of them all are killed, each at any step; the kernel drops their locks.
 *
 * Words count from 0 to 1. What a power cut leaves is takeover.pml's, with whom a commit to one file dies, and memory
 * is sequentially consistent, as there.
 *
 * What is checked:
 *   - who read the new bytes of one file reads no old ones of the other               assert forward
 *   - what is left when all is free is the commit in both files or in neither         assert both
 *   - no deadlock: no page stays held or marked for ever
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_RETIRE_FIRST   the lane is retired before all is shown
 *   MUTANT_NO_HIDE        a replay marks nothing
 *   MUTANT_HIDE_ONE       a replay marks the file alone that it is about
 *   MUTANT_NO_REPLAY      pages are taken over without a replay
 *   MUTANT_WORDS_FIRST    with RTM: pages are marked when their words are stored
 */
#ifndef KILLS
#define KILLS 2
#endif

byte word[2], bitmap[2]; /* on the media, in memory */
bit flipping[2];
byte holder[2];          /* process + 1; 0: nobody */
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

/* replay_all(), then takeover(), of file f, whose page `gone` holds, who is dead. */
inline recover(f)
{
#ifndef MUTANT_NO_REPLAY
    take(journal);
    if
    :: lane && gone == 1 ->
        take(attach[0]);
        take(attach[1]);
#ifdef MUTANT_HIDE_ONE
        if
        :: holder[f] == gone -> flipping[f] = 1
        :: else
        fi;
#elif !defined(MUTANT_NO_HIDE)
        if
        :: holder[0] == gone -> flipping[0] = 1
        :: else
        fi;
        if
        :: holder[1] == gone -> flipping[1] = 1
        :: else
        fi;
#endif
        word[0] = 1;
        word[1] = 1;
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
        flipping[f] = 1;
        bitmap[f] = word[f];
        flipping[f] = 0;
        holder[f] = 0
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

inline read(f, got)
{
    do
    :: atomic { !flipping[f] -> got = bitmap[f] }; break
    :: atomic { flipping[f] && holder[f] && dead[holder[f] - 1] -> gone = holder[f] };
        recover(f)
    od
}

inline mark()
{
    flipping[0] = 1;
    flipping[1] = 1
}

inline commit()
{
    reserve(0);
    reserve(1);
#ifdef RTM
#ifndef MUTANT_WORDS_FIRST
    mark();
#endif
    atomic { word[0] = 1; word[1] = 1 };
#ifdef MUTANT_WORDS_FIRST
    mark();
#endif
#else
    lane = 1;
    word[0] = 1;
    word[1] = 1;
#ifdef MUTANT_RETIRE_FIRST
    lane = 0;
#endif
    mark();
#endif
    bitmap[0] = 1;
    bitmap[1] = 1;
    flipping[0] = 0;
    flipping[1] = 0;
#ifndef RTM
    lane = 0;
#endif
    holder[0] = 0;
    holder[1] = 0
}

/* The locks of the dead go, in any order; with the last one it is known to be dead. */
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

/* Kills, and when all are done takes both pages: what is left must be free, and whole. */
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
