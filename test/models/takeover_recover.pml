/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of takeover.pml: what a process does with the pages and the lane of a dead one. */

/* ---- taking over ---- */

inline mark_dead(p)
{
    d_step {
        if
        :: holder[p] == gone ->
#ifdef MUTANT_MARK_BLIND
            version[p]++
#else
            if
            :: version[p] & 1 -> version[p]++
            :: else /* its holder has marked it */
            fi
#endif
        :: else
        fi
    }
}

/* note_bitmaps() */
inline settle(p)
{
#ifndef MUTANT_RELOAD_UNFLUSHED
    d_step {
        if
        :: holder[p] == gone && word[p] != bitmap[p] -> flush(p)
        :: else
        fi
    }
#else
    skip
#endif
}

inline reload(p)
{
    if
    :: holder[p] == gone ->
        d_step {
            /* assert undone */
            assert((contains(p, word[p]) & contains(p, bitmap[p])) == contains(p, bitmap[p]));
            bitmap[p] = word[p];
#ifndef MUTANT_KEEP_PENDING
            pending[p] = 0
#endif
        }
    :: else
    fi
}

inline unmark_dead(p)
{
    d_step {
        if
        :: holder[p] == gone -> version[p]++
        :: else
        fi
    }
}

inline free_dead(p)
{
    d_step {
        if
        :: holder[p] == gone ->
            /* assert mine */
            assert(ended[slot_of(gone)] || killed[slot_of(gone)] || holds(slot_of(gone)) != gone);
            holder[p] = 0
        :: else
        fi
    }
}

/* replay_slots() of replay.c: settle, apply, retire. Words are the dead one's: it holds the pages. */
inline replay(s)
{
#ifndef MUTANT_NO_REPLAY
    if
    :: s < 2 ->
#ifndef MUTANT_NO_SETTLE
        d_step { commit_durable[s] = commit[s]; retired_durable[s] = retired[s] }; /* R2 */
#endif
        if
        :: commit[s] && !retired[s] ->
            store(0, s + 1);
            store(1, s + 1);
#ifdef MUTANT_RETIRE_FIRST
            retired[s] = 1;
            retired_durable[s] = 1;
            flush(0);
            flush(1)
#else
            flush(0);
            flush(1); /* R1 */
            retired[s] = 1;
            retired_durable[s] = 1 /* J3 */
#endif
        :: else
        fi
    :: else
    fi
#else
    skip
#endif
}

inline take_over()
{
#if defined(MUTANT_ONE_BY_ONE)
    replay(slot_of(gone));
    mark_dead(0);
    settle(0);
    reload(0);
    unmark_dead(0);
    free_dead(0);
    mark_dead(1);
    settle(1);
    reload(1);
    unmark_dead(1);
    free_dead(1)
#else
#ifndef MUTANT_NO_MARK
    mark_dead(0);
    mark_dead(1);
#endif
#ifndef MUTANT_RELOAD_FIRST
    replay(slot_of(gone));
#endif
    settle(0);
    settle(1);
    reload(0);
    reload(1);
#ifdef MUTANT_RELOAD_FIRST
    replay(slot_of(gone));
#endif
#ifndef MUTANT_NO_MARK
    unmark_dead(0);
#endif
    free_dead(0);
#ifndef MUTANT_NO_MARK
    unmark_dead(1);
#endif
    free_dead(1)
#endif
}

/* Under the attach lock. No page is waited for. */
inline recover()
{
#ifndef MUTANT_NO_ATTACH
    atomic { !attach -> attach = id + 1 };
#endif
    if
#ifndef WITHOUT_RECHECK
    :: !is_dead(gone) || !taken[slot_of(gone)] /* another process was here before */
    :: else ->
#else
    :: true ->
#endif
        take_over();
        /* With pages of both generations about (WITHOUT_GATE) the slot stays as it is. */
        d_step { if :: !lives[slot_of(gone)] -> taken[slot_of(gone)] = 0 :: else fi }
    fi;
#ifndef MUTANT_NO_ATTACH
    attach = 0;
#endif
    gone = 0
}
