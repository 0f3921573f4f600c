/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does the log keep what was committed, whoever is killed, and whenever the power is cut? The steps are those of log.c
 * (append(), check(), log_commit()), sync.c (sync_wait(), sync_now()), show.c, takeover.c (recover(), replay_log()) and
 * log_replay.c (log_replay_last(), log_recover()).
 *
 * One file of two pages, with a log whose ring has room for two records. It begins with two, of page 0, that are shown and
 * not home: so the first append needs a checkpoint. Up to three processes do what OPS_0, OPS_1, OPS_2 say: commit to page 0 (1), to
 * page 1 (2), to both (3), or bring the log into the file (ASKS, as ato_deploy() does), each ROUNDS times. Each may be killed at any
 * step, KILLS of them in all, and what one has held then is dropped by the kernel in any order. A process that waits for a dead one
 * takes over what it held.
 *
 * A position counts records. The content of a page is the number of the last record that was copied to it, which is its position
 * and 1, and 0 is none: commits to a page have the order of the log. Each place that reaches the media has a value that is
 * visible and one that is durable; what a power cut leaves is either, and of a record also neither (torn).
 *
 * What is checked, at every moment (power()):
 *   - after a power cut and recovery the file has a prefix of the records,      assert prefix
 *   - with all that were acknowledged, and all that a read may have seen                assert kept
 *   - and with none that a takeover gave up: its process's pages were free again        assert decided
 *   - who sees both pages unmarked sees a commit of two pages on both or on neither     assert whole
 *   - a record that a takeover needs is valid                                           assert valid
 *   - no page or lock is given to two, and none stays held for ever (without POWER, which always can go on)
 *                                                                                       assert mine
 *
 * Not modelled: a log that becomes longer, changes of size, a disk that fails. Slots are takeover.pml's, reads read.pml's.
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_SHOW_FIRST      a commit is shown before it is durable (L2)
 *   MUTANT_TAIL_LATE       the tail is read after the sync that shall cover it
 *   MUTANT_RECORD_LATE     a commit is noted as under way when its record is appended already
 *   MUTANT_CHECK_NO_WAIT   a checkpoint does not wait for commits that are being shown
 *   MUTANT_CHECK_LATE      it takes the tail after that wait
 *   MUTANT_CHECK_UNSYNCED  it writes the header before the file is durable (L3)
 *   MUTANT_START_FIRST     it gives the space free before the header is durable (L3)
 *   MUTANT_UNSYNCED        a takeover copies records that are not durable (L2)
 *   MUTANT_NO_TAIL         a takeover does not look for a whole record behind the tail
 *   MUTANT_NO_REPLAY       a takeover copies nothing
 *   MUTANT_NO_AGAIN        a takeover does not look whether the log has moved under it
 *   MUTANT_IN_ORDER        a takeover copies one record after the other, not of each slice the last one
 *   MUTANT_NO_MARK         a takeover copies to pages that are not marked
 *   MUTANT_NO_ATTACH       takeovers take no lock
 *   MUTANT_NO_POSITION     recovery takes a record of an earlier round of the ring
 */
#define ASKS 4

#ifndef OPS_0
#define OPS_0 1
#endif
#ifndef OPS_1
#define OPS_1 1
#endif
#ifndef OPS_2
#define OPS_2 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef KILLS
#define KILLS 1
#endif

#define ROOM 2              /* records in the ring */
#define MOST (2 + 3 * ROUNDS)

/* ---- shared memory ---- */

#define APPENDING 2
#define SYNCING   3
#define CHECKING  4

byte holder[5];             /* of page 0, of page 1, of the three locks; 0: free, else 1 + process */
bit marked[2];
byte start, tail = 2, durable = 2;
bit under_way[3];           /* from append() to the end of show() */
byte over[3];
bit taken[3];

/* ---- the kernel's ---- */

bit lives[3];               /* lock of the slot's byte */
byte attach;

/* ---- the media ---- */

byte ring[ROOM], ring_durable[ROOM]; /* number of the record; 0: torn, or none */
byte header, header_durable;         /* its `start` */
byte file[2], file_durable[2];

/* ---- ghosts ---- */

bit killed[3], ended[3];
byte kills, acknowledged = 2;
byte pages_of[MOST];        /* by position */

#define is_dead(h) ((h) && !lives[(h) - 1])

/* A store that no sync has covered yet: what was there may have reached the medium before. */
inline store(place, stable, value)
{
    atomic {
        if
        :: place != stable -> stable = place
        :: true
        fi;
        place = value
    }
}

inline sync_file()
{
    d_step { file_durable[0] = file[0]; file_durable[1] = file[1] }
}

/* fdatasync() of the log */
inline sync_ring()
{
    d_step { ring_durable[0] = ring[0]; ring_durable[1] = ring[1]; header_durable = header }
}

/* ---- takeover ---- */

inline mark_dead(p)
{
#ifndef MUTANT_NO_MARK
    d_step { if :: holder[p] == gone -> marked[p] = 1 :: else fi }
#else
    skip
#endif
}

inline copy_dead(p)
{
    if
    :: holder[p] == gone && last[p] -> store(file[p], file_durable[p], last[p])
    :: else
    fi
}

inline free_dead(l)
{
    d_step {
        if
        :: holder[l] == gone ->
            /* assert mine */
            assert(killed[gone - 1]);
            holder[l] = 0
        :: else
        fi
    }
}

/* log_replay_last(): gathers, looks at the start again, copies. */
inline replay()
{
    do
    :: d_step { first = start; at = start; last[0] = 0; last[1] = 0 };
        do
        :: at == tail -> break
        :: at != tail ->
            d_step {
                if
                :: ring[at % ROOM] == at + 1 ->
                    last[0] = (pages_of[at] & 1 -> at + 1 : last[0]);
                    last[1] = (pages_of[at] & 2 -> at + 1 : last[1]);
                    at++
                :: else -> bad = 1
                fi
            };
            if :: bad -> break :: else fi;
#ifdef MUTANT_IN_ORDER
            copy_dead(0);
            copy_dead(1)
#endif
        od;
        if
#ifndef MUTANT_NO_AGAIN
        :: start != first -> bad = 0
#endif
        :: else -> break
        fi
    od;
    /* assert valid */
    assert(!bad);
    copy_dead(0);
    copy_dead(1);
    d_step { first = 0; at = 0; last[0] = 0; last[1] = 0 }
}

/* recover() of takeover.c, for the process `gone` - 1. The pages keep their marks until all is copied. */
inline recover()
{
#ifndef MUTANT_NO_ATTACH
    atomic { !attach -> attach = id + 1 };
#endif
    if
    :: !taken[gone - 1] /* another process was here before */
    :: else ->
        mark_dead(0);
        mark_dead(1);
#ifndef MUTANT_UNSYNCED
        sync_ring(); /* L2 */
#endif
        d_step { if :: holder[CHECKING] == gone -> start = header :: else fi };
#ifndef MUTANT_NO_TAIL
        /* note_tail() */
        d_step {
            if
            :: holder[APPENDING] == gone && tail < start + ROOM && ring[tail % ROOM] == tail + 1 -> tail++
            :: else
            fi
        };
#endif
#ifndef MUTANT_NO_REPLAY
        replay();
#endif
        d_step { if :: holder[0] == gone -> marked[0] = 0 :: else fi };
        free_dead(0);
        d_step { if :: holder[1] == gone -> marked[1] = 0 :: else fi };
        free_dead(1);
        free_dead(APPENDING);
        free_dead(SYNCING);
        free_dead(CHECKING);
        taken[gone - 1] = 0
    fi;
#ifndef MUTANT_NO_ATTACH
    attach = 0;
#endif
    gone = 0
}

/* ---- reservations, of pages and of the log's locks ---- */

inline look_after(l)
{
    d_step { gone = (is_dead(holder[l]) -> holder[l] : 0) };
    if :: gone -> recover() :: else fi
}

inline reserve(l)
{
    do
    :: atomic { !holder[l] -> holder[l] = id + 1; break }
    :: is_dead(holder[l]) -> look_after(l)
    od
}

inline release(l)
{
    d_step {
        assert(holder[l] == id + 1); /* assert mine */
        holder[l] = 0
    }
}

/* ---- durable ---- */

inline sync_log()
{
#ifndef MUTANT_TAIL_LATE
    seen = tail;
    sync_ring();
#else
    sync_ring();
    seen = tail;
#endif
    d_step {
        durable = (durable < seen -> seen : durable);
        seen = 0
    }
}

/* Who waits may also sync by itself: the process that syncs may have been stopped. */
inline sync_wait(upper)
{
    do
    :: durable >= upper -> break
    :: atomic { durable < upper && !holder[SYNCING] -> holder[SYNCING] = id + 1 };
        if :: durable < upper -> sync_log() :: else fi;
        release(SYNCING)
    :: durable < upper && is_dead(holder[SYNCING]) -> look_after(SYNCING)
    :: durable < upper && holder[SYNCING] && !is_dead(holder[SYNCING]) -> sync_log()
    od
}

/* ---- checkpoint ---- */

/* wait_for_records() */
inline wait_for_records()
{
    other = 0;
    do
    :: other < 3 ->
        noted = over[other];
        do
        :: !under_way[other] || over[other] != noted || !taken[other] -> break
        :: under_way[other] && taken[other] && !lives[other] -> gone = other + 1; recover()
        od;
        other++
    :: else -> break
    od;
    other = 0;
    noted = 0
}

inline take_tail()
{
    reserve(APPENDING);
    upto = tail;
    release(APPENDING)
}

inline checkpoint()
{
    reserve(CHECKING);
    if
    :: tail == start || (ops != ASKS && tail + 1 - start <= ROOM) /* another process has just done it */
    :: else ->
#ifndef MUTANT_CHECK_LATE
        take_tail();
#endif
#ifndef MUTANT_CHECK_NO_WAIT
        wait_for_records();
#endif
#ifdef MUTANT_CHECK_LATE
        take_tail();
#endif
        sync_wait(upto);
#ifndef MUTANT_CHECK_UNSYNCED
        sync_file(); /* L3 */
#endif
        header = upto;
#ifdef MUTANT_START_FIRST
        start = upto;
#endif
        sync_ring(); /* L3 */
#ifdef MUTANT_CHECK_UNSYNCED
        sync_file();
#endif
        start = upto;
        upto = 0
    fi;
    release(CHECKING)
}

/* ---- a commit ---- */

inline show_pages()
{
    if :: ops & 1 -> marked[0] = 1 :: else fi;
    if :: ops & 2 -> marked[1] = 1 :: else fi;
    if :: ops & 1 -> store(file[0], file_durable[0], mine) :: else fi;
    if :: ops & 2 -> store(file[1], file_durable[1], mine) :: else fi;
    if :: ops & 1 -> marked[0] = 0 :: else fi;
    if :: ops & 2 -> marked[1] = 0 :: else fi
}

/* The caller has `appending`. */
inline append()
{
#ifndef MUTANT_RECORD_LATE
    under_way[id] = 1;
#endif
    store(ring[tail % ROOM], ring_durable[tail % ROOM], 0); /* a part of the record is there */
    atomic {
        store(ring[tail % ROOM], ring_durable[tail % ROOM], tail + 1);
        pages_of[tail] = ops;
        mine = tail + 1
    };
    tail = mine;
    release(APPENDING)
#ifdef MUTANT_RECORD_LATE
    ;
    under_way[id] = 1
#endif
}

inline commit()
{
    if :: ops & 1 -> reserve(0) :: else fi;
    if :: ops & 2 -> reserve(1) :: else fi;
    do
    :: reserve(APPENDING);
        if
        :: tail + 1 - start <= ROOM -> break
        :: else -> release(APPENDING); checkpoint()
        fi
    od;
    append();
#ifdef MUTANT_SHOW_FIRST
    show_pages();
#endif
    sync_wait(mine);
#ifndef MUTANT_SHOW_FIRST
    show_pages();
#endif
    atomic {
        acknowledged = (acknowledged < mine -> mine : acknowledged);
        under_way[id] = 0;
        over[id]++;
        mine = 0
    };
    if :: ops & 1 -> release(0) :: else fi;
    if :: ops & 2 -> release(1) :: else fi
}

/* The kernel drops the locks of a dead process in any order. */
inline die()
{
    do
    :: attach == id + 1 -> attach = 0
    :: lives[id] -> lives[id] = 0
    :: else -> break
    od
}

proctype writer(byte id; byte ops)
{
    byte gone, seen, other, noted, upto, mine, first, at, last[2];
    bit bad;
    {
        do
        :: over[id] < ROUNDS && ops != ASKS -> commit()
        :: over[id] < ROUNDS && ops == ASKS -> checkpoint(); over[id]++
        :: else -> break
        od;
        ended[id] = 1
    } unless {
        killed[id] -> die()
    }
}

proctype killer()
{
end:
    do
    :: d_step { kills < KILLS && !ended[0] && !killed[0] -> killed[0] = 1; kills++ }
#if OPS_1
    :: d_step { kills < KILLS && !ended[1] && !killed[1] -> killed[1] = 1; kills++ }
#endif
#if OPS_2
    :: d_step { kills < KILLS && !ended[2] && !killed[2] -> killed[2] = 1; kills++ }
#endif
    od
}

/* ---- the power ---- */

#define cut(choice, place, stable) ((choice) == 0 -> stable : ((choice) == 1 || place == stable -> place : 0))
#ifdef MUTANT_NO_POSITION
#define counts(is, at) ((is) && ((is) - 1) % ROOM == (at) % ROOM)
#else
#define counts(is, at) ((is) == (at) + 1)
#endif

#ifdef POWER
/* Everything that a power cut at this moment may leave, recovered as log_recover() does. Changes nothing. */
proctype power()
{
    byte which, n, k, is, limit, a, b, right_a, right_b;
end:
    do
    :: d_step {
        k = 0;
        do
        :: k == tail -> break
        :: else ->
            /* assert whole */
            assert(marked[0] || marked[1] || pages_of[k] != 3 || (file[0] > k) == (file[1] > k));
            k++
        od;
        which = 0;
        do
        :: which == 72 -> break
        :: else ->
            a = (which & 1 -> file[0] : file_durable[0]);
            b = (which & 2 -> file[1] : file_durable[1]);
            n = (which & 4 -> header : header_durable);
            limit = n + ROOM;
            do
            :: n == limit || n == MOST -> break
            :: else ->
                is = (n % ROOM == 0 -> cut(which / 8 % 3, ring[0], ring_durable[0])
                                     : cut(which / 24, ring[1], ring_durable[1]));
                if
                :: counts(is, n) ->
                    a = (pages_of[is - 1] & 1 -> is : a);
                    b = (pages_of[is - 1] & 2 -> is : b);
                    n++
                :: else -> break
                fi
            od;
            right_a = 0;
            right_b = 0;
            k = 0;
            do
            :: k == n -> break
            :: else ->
                right_a = (pages_of[k] & 1 -> k + 1 : right_a);
                right_b = (pages_of[k] & 2 -> k + 1 : right_b);
                k++
            od;
            assert(a == right_a && b == right_b); /* assert prefix */
            assert(n >= acknowledged && file[0] <= a && file[1] <= b); /* assert kept */
            assert(n <= tail + (holder[APPENDING] != 0)); /* assert decided */
            which++
        od;
        which = 0; n = 0; k = 0; is = 0; limit = 0; a = 0; b = 0; right_a = 0; right_b = 0
    }
    od
}
#endif

init
{
    atomic {
        ring[0] = 1; ring_durable[0] = 1; pages_of[0] = 1;
        ring[1] = 2; ring_durable[1] = 2; pages_of[1] = 1;
        file[0] = 2;
        lives[0] = 1; taken[0] = 1;
        run writer(0, OPS_0);
#if OPS_1
        lives[1] = 1; taken[1] = 1;
        run writer(1, OPS_1);
#endif
#if OPS_2
        lives[2] = 1; taken[2] = 1;
        run writer(2, OPS_2);
#endif
        run killer();
#ifdef POWER
        run power()
#endif
    }
}
