/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A commit to two files, whose process is killed: can one of them be seen as it is, and then the other one as it was?
 * The steps of the commit are those of journals.c (use_for_all()) and commit.c (commit_words(), show_all()), those of
 * recover() takeover.c's (run()).
 *
 * Two files of a page each, both loaded. Process 0 commits to both. Processes 1 and 2 have one file each mapped, and want its
 * page. Process 3 has both mapped, and reads one and then the other. A process that finds a page of a dead holder
 * recovers. With RO process 3 may not (reader.c): its read fails. KILLS processes are killed, each at any step; the kernel
 * drops their locks.
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
 *   MUTANT_NAME_LATE      the manifests name the journal after the commit line
 *   MUTANT_UNNAME_FIRST   a recovery clears the names before the replay
 *   MUTANT_RETIRE_FIRST   the lane is retired before all is shown
 *   MUTANT_NO_MARK        a replay marks nothing before
 *   MUTANT_MARK_ONE       a replay marks the file alone that it is about
 *   MUTANT_FILE_BY_FILE   each file is marked, reloaded and shown by itself
 *   MUTANT_NO_REPLAY      pages are taken over without a replay
 */
#ifndef KILLS
#define KILLS 2
#endif

byte word[2], bitmap[2]; /* on the media, in memory */
bit flipping[2];
byte holder[2];          /* process + 1; 0: free */
bit named[2];            /* the journal word of process 0's slot in the manifest */
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
    flipping[k] = 1
}

inline unmark(k)
{
    flipping[k] = 0
}

inline mark_dead(k)
{
    d_step {
        if
        :: holder[k] == gone && !flipping[k] -> mark(k)
        :: else
        fi
    }
}

inline reload(k)
{
    d_step {
        if
        :: holder[k] == gone -> bitmap[k] = word[k]
        :: else
        fi
    }
}

inline reveal(k)
{
    d_step {
        if
        :: holder[k] == gone && flipping[k] -> unmark(k)
        :: else
        fi
    }
}

inline give_back(k)
{
    d_step {
        if
        :: holder[k] == gone -> holder[k] = 0
        :: else
        fi
    }
}

inline release(k)
{
    reveal(k);
    give_back(k)
}

#define is_of(k) (both || f == k)

#define each(step) if :: is_of(0) -> step(0) :: else fi; if :: is_of(1) -> step(1) :: else fi

inline unname(k)
{
    if :: gone == 1 -> named[k] = 0 :: else fi
}

inline replay()
{
    if
    :: both -> word[0] = 1; word[1] = 1; lane = 0
    :: else
    fi
}

inline take_attach(k)
{
    take(attach[k])
}

inline drop_attach(k)
{
    drop(attach[k])
}

/* takeover(), of file f: its page is held by the dead process `gone`. */
inline recover(f)
{
    both = 0;
    journaled = gone == 1 && named[f];
#ifndef MUTANT_NO_REPLAY
    if
    :: journaled -> take(journal); both = lane
    :: else
    fi;
#endif
    each(take_attach);
    if
    :: holder[f] == gone && (!journaled || named[f]) ->
#ifdef MUTANT_UNNAME_FIRST
        each(unname);
#endif
#ifdef MUTANT_FILE_BY_FILE
        mark_dead(f);
        replay();
        reload(f);
        reveal(f);
        mark_dead(1 - f);
        reload(1 - f);
        reveal(1 - f);
        each(give_back);
#else
#ifdef MUTANT_MARK_ONE
        mark_dead(f);
#elif !defined(MUTANT_NO_MARK)
        each(mark_dead);
#endif
        replay();
        each(reload);
        each(release);
#endif
        each(unname)
    :: else
    fi;
    each(drop_attach);
    if :: journal == me -> drop(journal) :: else fi
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

#define REFUSED 2

/* read_pass() in read.c */
inline read(f, got)
{
    do
    :: atomic { !flipping[f] -> got = bitmap[f] }; break
    :: atomic { flipping[f] && holder[f] && dead[holder[f] - 1] ->
#ifdef RO
        got = REFUSED
    };
        break
#else
        gone = holder[f]
    };
        recover(f)
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
#ifndef MUTANT_NAME_LATE
    named[0] = 1; /* N1 */
    named[1] = 1;
#endif
    lane = 1; /* J2 */
#ifdef MUTANT_NAME_LATE
    named[0] = 1;
    named[1] = 1;
#endif
    word[0] = 1;
    word[1] = 1;
#ifdef MUTANT_RETIRE_FIRST
    lane = 0;
#endif
    mark_both();
    bitmap[0] = 1;
    bitmap[1] = 1;
    d_step { unmark(0) };
    d_step { unmark(1) };
    lane = 0; /* J3 */
    holder[0] = 0;
    holder[1] = 0;
    named[0] = 0; /* N2 */
    named[1] = 0
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
    bit both, journaled;
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
            assert(second >= first || first == REFUSED) /* forward */
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
    bit both, journaled;
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
