/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Early and relaxed commits of a file with a log: is each shown to the next writer at once, and to readers when it is durable, or at once if it
 * is relaxed? Is none lost that a power cut may not take, and does nothing become invisible that readers have seen, whoever is killed?
 * The steps are those of early.c, log.c, undo.c, show.c, takeover.c (recover()), snapshot.c (try_to_begin(), read_page()), read.c
 * (read_pass()) and page_set_reserve.c (page_set_take_base()), and have their names.
 *
 * The newest content of a page is in the file (its bitmap is 0), or in an early copy in shared memory (~0): `until` is EARLY there. What
 * was the content before is in saved copies, for readers who may not see the newest. `moment` is the number up to which readers see the
 * commits. All of these are durable, but for relaxed ones and what came before those.
 *
 * Two pages. Processes 0, 1, 2 do what WORK_0, WORK_1, WORK_2 say, one after the other: two decimal digits each, the lowest first. They are
 * the pages of an early commit (1, 2, or 3 for both), or of an ordinary one (5, 6, 7: shown when it is durable), or of a relaxed one (9, 10, 11);
 * LATE alone (4) is a checkpoint, RELAXED alone (8) makes durable all that is visible. One snapshot (SNAPS; 2: of what is newest) reads a
 * page once. That is enough: the read may come at any moment, and what it has to return is fixed. So do one read of page 0 (PEEKS), as
 * any process does it, or (2: only) by a relaxed writer, which reads what is newest and commits nothing; and one of both pages at the
 * moment (VIEWS), as by a process that may only read.
 * The log is synced at any moment. FULLS early commits find no room for their copies, and become ordinary. KILLS times process 0 or 1
 * is killed, at any step; the second time it may also be the one that takes over, which then begins again. HEIR and HELD: only process 0 is
 * killed, in a commit (1), or when it has a page and is in none (2, HELD); with HEIR process 1 comes then. FAILS takeovers fail, before they
 * have changed a page. UNKNOWN: whether the dead process was in a commit is not known. Who takes over is a process of its own here: it
 * begins at any moment, as it would for a process that waits for a dead one, or has just mapped the file.
 *
 * Commits are bits, and each has a slice of its own: so the content of a page is the set of the commits that it has, and each record of the
 * log makes it larger. Memory is sequentially consistent.
 *
 * What is checked:
 *   - what a snapshot sees is durable when it begins, but for relaxed commits and what came before   assert durable
 *   - it has all that was acknowledged when it was asked for; so has what is read at the moment      assert recent
 *   - who reads at the moment after a read of a page sees what that has returned                     assert seen
 *   - each read returns what the page was at the snapshot's number                                   assert moment
 *   - and none is refused                                                                            assert lost
 *   - what is read at the moment is what the first commits have made, for some number of them        assert prefix
 *   - the next writer, and who reads what is newest, find all that was committed before              assert newest, somewhere
 *   - a commit that is not relaxed is durable when it is acknowledged, with all that has a lower
 *     number                                                                                         assert firm
 *   - when what is visible was made durable, all is that was acknowledged before                     assert settled
 *   - who waits for the moment to reach a page does not wait for ever                                assert raised
 *   - the file never has what is not durable                                                         assert written
 *   - and, whatever of it has reached the medium, has all that the log does not have any more. So a power cut leaves what a prefix of
 *     the log has made, with all that was acknowledged and is not relaxed                            assert home
 *   - no page has two early copies, and one that comes home is the newest content of its page        assert one
 *   - a takeover that fails leaves early copies as they are                                          assert early
 *   - all processes come to an end, and no page and no lock stays held                               assert over
 *
 * Numbers and records may have different orders where ordinary commits are under way beside relaxed ones: a power cut may then leave an
 * ordinary one that no reader has seen, and not a relaxed one whose record comes after it.
 *
 * Not modelled: torn records and how the ring is used anew (log.pml), torn copies of pages (read.pml), lists of copies and snapshots that
 * are given up (snapshot.pml), changes of size, a disk that fails. There is always room for one more copy, except with FULLS, and one that
 * may be used anew is garbage at once.
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_MOMENT_FIRST     an early commit raises the moment before it is durable, though it is not relaxed
 *   MUTANT_RAISED_FIRST     a relaxed one raises it before its pages are visible
 *   MUTANT_RAISED_ANYHOW    it also lowers it
 *   MUTANT_RELAXED_UNRAISED it is acknowledged without that
 *   MUTANT_AWAITS_MOMENT    an early commit that is not relaxed is acknowledged when a relaxed one has raised the moment
 *   MUTANT_NOTHING_RAISED   a relaxed writer that has read what is newest, and commits nothing, does not raise the moment
 *   MUTANT_NOTHING_AT_ONCE  it does not wait until that is shown
 *   MUTANT_SETTLES_MOMENT   who makes durable what is visible takes all up to the moment for durable
 *   MUTANT_SETTLES_LOG      it does not raise the moment if the log is durable
 *   MUTANT_SHOWN_UNSYNCED   an ordinary commit does not sync, though an early one with a lower number is not durable
 *   MUTANT_UNMARKED_FIRST   it raises the moment to its own number when its pages have no mark any more
 *   MUTANT_NUMBERS_APART    numbers of early commits have another order than their records
 *   MUTANT_OWN_SLICES       a commit on top of an early one stores only its own slices to the file
 *   MUTANT_TABLE_FIRST      who looks for a free copy loads the moment after the table of snapshots
 *   MUTANT_FROM_UNCHECKED   a snapshot does not look whether the copy still is of the same commit
 *   MUTANT_BASE_UNCHECKED   a writer does not look whether the version still is the one that it was
 *   MUTANT_NO_RENEW         a page that has come home keeps its version, and its copy is used anew
 *   MUTANT_NO_FORGET        a commit leaves the early copy of a page that has come home
 *   MUTANT_APPENDING_EARLY  a checkpoint gives `appending` back when it has the tail
 *   MUTANT_HOME_UNRAISED    it does not raise the moment before pages come home
 *   MUTANT_NO_COPY          a takeover drops the early copy, and the bitmap stays
 *   MUTANT_UNHELD           a takeover of a process that was in no commit does not take `showing`
 *   MUTANT_NOT_RAISED       a takeover does not raise the moment before pages come home; and who reads at the moment goes by the bitmap
 *   MUTANT_RELEASED_FIRST   a takeover raises it to its own number when the pages have no mark any more
 *   MUTANT_DEAD_UNSYNCED    a takeover with a number does not sync the log if the dead process has no page
 *   MUTANT_SYNC_FIRST       a takeover makes the log durable before it has its number
 *   MUTANT_CLOSED_FIRST     a takeover closes early copies before it has read the log
 *   MUTANT_SAME_VERSION     a takeover gives a page that has its number already the version that it had
 */
#define LATE    4
#define RELAXED 8

#ifndef WORK_0
#define WORK_0 3
#endif
#ifndef WORK_1
#define WORK_1 7
#endif
#ifndef WORK_2
#define WORK_2 0
#endif
#ifndef SNAPS
#define SNAPS 1
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef FULLS
#define FULLS 0
#endif
#ifndef PEEKS
#define PEEKS 0
#endif
#ifndef VIEWS
#define VIEWS 0
#endif
#ifndef SLOTS
#define SLOTS 4             /* copies, of each page */
#endif

#define APPENDING 2
#define SHOWING   3
#define CHECKING  4

#define MOST      5         /* records */
#define NUMBERS   9
#define EARLY     15        /* until */
#define BEGINNING 32        /* UNDO_BEGINNING */
#define NOWHERE   15
#define GARBAGE   128       /* bytes of a copy that is used anew */

/* ---- shared memory ---- */

byte holder[5];             /* of page 0, of page 1, of the locks; 0: free, else 1 + process */
byte content[2] = 1;        /* page_content() of the version */
byte renewed[2];            /* and the rest of the version, without the marks */
bit marked[2], changing[2];
bit elsewhere[2];           /* the bitmap is ~0 */
byte begun = 1, shown = 1, moment = 1;
byte entry;                 /* of the snapshot */
byte from[2 * SLOTS], until[2 * SLOTS], saved[2 * SLOTS] = GARBAGE;
byte tail, start;
byte last;                  /* undo.end: where the record of the newest early commit ends */
bit committed[3];           /* under_way.h */
byte record[3];             /* and for the checkpoint: where the record ends that is not shown */
bit taken[2];

/* ---- the kernel's ---- */

bit lives[3];

/* ---- the media: records in the log, and how many of them are durable; the file ---- */

byte written, durable;
byte file[2], least[2];     /* least: what is in each content that the file may have after a power cut */

/* ---- ghosts ---- */

byte made[2 * MOST];        /* by records, page: what the log makes of a page */
byte then[2 * NUMBERS];     /* by number, page: what a snapshot sees */
byte mask[3], op[3];
byte acknowledged;          /* commits */
byte exposed;               /* the moment was raised to this number, by relaxed commits, though it may not be durable */
bit ended[4];
byte kills, fails, fulls;
bit again;                  /* who takes over is killed */

/* What mutants change inside of steps. */
#ifdef MUTANT_SHOWN_UNSYNCED
#define OPEN false
#else
#define OPEN last > durable
#endif
#ifdef MUTANT_FROM_UNCHECKED
#define FROM_IS true
#else
#define FROM_IS from[c] == f
#endif
#ifdef MUTANT_BASE_UNCHECKED
#define BASE_IS true
#else
#define BASE_IS content[p] == v && renewed[p] == r
#endif
#ifdef MUTANT_NO_FORGET
#define FORGETS false
#else
#define FORGETS true
#endif
#ifdef MUTANT_OWN_SLICES
#define WHOLE false
#else
#define WHOLE elsewhere[p]
#endif
#ifdef MUTANT_SAME_VERSION
#define SAME_NUMBER false
#else
#define SAME_NUMBER content[p] == n
#endif
#if SNAPS == 2
#define FIRST shown
#else
#define FIRST moment
#endif
#if defined(MUTANT_SETTLES_MOMENT)
#define UNSETTLED n > moment
#elif defined(MUTANT_SETTLES_LOG)
#define UNSETTLED last > durable
#else
#define UNSETTLED n > moment || last > durable
#endif
#ifdef MUTANT_RAISED_ANYHOW
#define RAISE_RELAXED expose(n); moment = n
#else
#define RAISE_RELAXED expose(n)
#endif
#ifdef MUTANT_AWAITS_MOMENT
#define AWAITED durable >= upper || moment >= n
#else
#define AWAITED durable >= upper
#endif
#ifdef MUTANT_NOT_RAISED
#define AT_MOMENT elsewhere[p]
#else
#define AT_MOMENT true
#endif
#ifdef MUTANT_DEAD_UNSYNCED
#define HAS_ANY (holder[0] == gone || holder[1] == gone || holder[APPENDING] == gone || holder[CHECKING] == gone)
#else
#define HAS_ANY (n || holder[0] == gone || holder[1] == gone || holder[APPENDING] == gone || holder[CHECKING] == gone)
#endif

#if HEIR == 1 /* process 0 is killed in a commit, the others come then */
#define DIES committed[0]
#elif HEIR    /* or when it has page 0 and is in no commit, and a snapshot sees what it did before */
#define DIES holder[0] == 1 && !committed[0] && entry == 2
#elif defined(HELD) /* the same, in the midst of the others */
#define DIES holder[0] == 1 && !committed[0] && shown == 2
#else
#define DIES true
#endif

#define is_dead(h) ((h) && !lives[(h) - 1])
#define after(k, p)     made[2 * (k) + (p)]
#define at_number(n, p) then[2 * (n) + (p)]

/* What is in a, and not in b. */
#define without(a, b)   ((a) & (255 - (b)))

/* undo_raise() */
inline raise_moment(number)
{
    moment = (moment < number -> number : moment)
}

/* For a relaxed commit. */
inline expose(number)
{
    raise_moment(number);
    exposed = (exposed < number -> number : exposed)
}

/* What snapshots with number n see: all that those with n - 1 see, and what process w has committed, if `is`. */
inline note_number(w, n, is)
{
    at_number(n, 0) = at_number(n - 1, 0);
    at_number(n, 1) = at_number(n - 1, 1);
    if
    :: is ->
        if :: mask[w] & 1 -> at_number(n, 0) = at_number(n, 0) | op[w] :: else fi;
        if :: mask[w] & 2 -> at_number(n, 1) = at_number(n, 1) | op[w] :: else fi
    :: else
    fi
}

/* ---- the file ---- */

inline store(p, value)
{
    file[p] = value;
    least[p] = least[p] & file[p];
    /* assert written */
    assert(!without(file[p], after(durable, p)));
    /* assert home */
    assert(!without(after(start, p), file[p]))
}

/* ---- copies ---- */

#define slot(p, i) (SLOTS * (p) + (i))

/* The copy c of a page with its newest content. NOWHERE: there is none. */
inline find_newest(p)
{
    c = slot(p, 0);
    do
    :: c == slot(p, SLOTS) -> c = NOWHERE; break
    :: c < slot(p, SLOTS) && until[c] > from[c] && from[c] == content[p] -> break
    :: else -> c++
    od
}

#define sees(e, f, u) ((e) && ((e) & 31) < (u) && (((e) & 31) >= (f) || ((e) & BEGINNING)))

inline free(c)
{
    until[c] = 0;
    from[c] = 0;
    saved[c] = GARBAGE
}

/* find_free(), for all that are free. The caller has `showing`, as for all that changes copies. The moment counts as it was before the look
 * at the table: an early commit has no other way to know of the snapshots that begin meanwhile. */
inline look_at_table()
{
    seen = entry
}

inline free_unneeded()
{
    c = 0;
    do
    :: c == 2 * SLOTS -> break
    :: c < 2 * SLOTS && until[c] && until[c] <= m && !sees(seen, from[c], until[c]) -> free(c); c++
    :: else -> c++
    od;
    c = 0;
    m = 0;
    seen = 0
}

inline find_and_free_unneeded()
{
#ifdef MUTANT_TABLE_FIRST
    look_at_table();
    d_step { m = moment; free_unneeded() }
#else
    m = moment;
    d_step { look_at_table(); free_unneeded() }
#endif
}

/* page_renew(): the same content, and who reads it reads again. */
inline renew(p)
{
    renewed[p]++
}

/* page_turn_mark(), which takes it off. */
inline turn_mark(p)
{
    marked[p] = 0;
    changing[p] = 0;
    renewed[p]++
}

/* undo_forget() */
inline forget_early(p)
{
    c = slot(p, 0);
    do
    :: c == slot(p, SLOTS) -> break
    :: c < slot(p, SLOTS) && until[c] == EARLY -> renew(p); free(c); c++
    :: else -> c++
    od;
    c = 0
}

/* undo_outdate() */
inline outdate(p)
{
    find_newest(p);
    if
    :: c != NOWHERE -> until[c] = n
    :: else
    fi;
    c = 0
}

/* Anyone may be used anew: saved ones from the end. */
inline make_copy(p, f, u, bytes)
{
    c = ((u) == EARLY -> slot(p, 0) : slot(p, SLOTS - 1));
    do
    :: !until[c] -> break
    :: until[c] && (u) == EARLY -> c++
    :: until[c] && (u) != EARLY -> c--
    od;
    assert(c / SLOTS == p);
    from[c] = f;
    saved[c] = bytes;
    until[c] = u;
    c = 0
}

/* undo_save(). `always`: of an early commit, also if no snapshot needs it now; what is early is outdated when the new copy is there. */
inline save(p, always)
{
    d_step {
        if
        :: changing[p] || content[p] >= n
        :: !changing[p] && content[p] < n && elsewhere[p] ->
            if
            :: !always -> outdate(p)
            :: else
            fi
        :: else ->
            if
            :: FORGETS -> forget_early(p)
            :: else
            fi;
            c = slot(p, 0);
            do
            :: c == slot(p, SLOTS) -> break
            :: c < slot(p, SLOTS) && until[c] == n -> break /* saved: by the process that died, or one that found no room */
            :: else -> c++
            od;
            if
            :: c == slot(p, SLOTS) && (always || sees(entry, content[p], n)) -> make_copy(p, content[p], n, file[p])
            :: else
            fi
        fi;
        c = 0
    }
}

/* ---- commits ---- */

#define has(p) (mask[id] & ((p) + 1))

/* page_set_take_base(): what the writer stages its slices on. */
inline base(p)
{
    do
    :: true ->
        d_step { v = content[p]; r = renewed[p] };
        if
        :: !elsewhere[p] -> c = NOWHERE; got = file[p]
        :: elsewhere[p] ->
            d_step {
                find_newest(p);
                /* assert somewhere */
                assert(c != NOWHERE || !elsewhere[p])
            }
        fi;
        if
        :: d_step {
                BASE_IS ->
                /* assert newest */
                assert((c == NOWHERE -> got : saved[c]) == after(tail, p));
                c = 0; v = 0; r = 0; got = 0
            };
            break
        :: else -> d_step { c = 0; v = 0; r = 0; got = 0 }
        fi
    od
}

inline reserve(l)
{
    atomic { !holder[l] -> holder[l] = id + 1 }
}

inline append()
{
    atomic { !holder[APPENDING] -> holder[APPENDING] = id + 1; committed[id] = 1 };
    d_step {
        written++;
        record[id] = written;
        after(written, 0) = after(written - 1, 0) | (has(0) -> op[id] : 0);
        after(written, 1) = after(written - 1, 1) | (has(1) -> op[id] : 0)
    };
    d_step { tail = written; upper = tail }
}

inline take_showing()
{
    reserve(SHOWING)
}

inline mark_own()
{
    d_step {
        if :: has(0) -> marked[0] = 1; changing[0] = 1 :: else fi;
        if :: has(1) -> marked[1] = 1; changing[1] = 1 :: else fi
    }
}

/* page_unmark_changed() */
inline unmark(p, number)
{
    marked[p] = 0;
    changing[p] = 0;
    content[p] = number;
    renewed[p] = 0;
    c = slot(p, 0);
    do
    :: c == slot(p, SLOTS) -> break
    :: else ->
        /* assert one */
        assert(until[c] != EARLY || from[c] == number);
        c++
    od;
    c = 0
}

inline unmark_own()
{
    if :: has(0) -> d_step { unmark(0, n) } :: else fi;
    if :: has(1) -> d_step { unmark(1, n) } :: else fi
}

inline release_pages()
{
    d_step {
        if :: has(0) -> holder[0] = 0 :: else fi;
        if :: has(1) -> holder[1] = 0 :: else fi;
        committed[id] = 0;
        record[id] = 0
    }
}

/* prepare(): the content before is saved, and the early copy is what the next writer finds: the content before, and the own slices. */
inline prepare(p)
{
    save(p, true);
    d_step {
        find_newest(p);
        got = (c == NOWHERE || !elsewhere[p] -> file[p] : saved[c]) | op[id];
        make_copy(p, n, EARLY, got);
        got = 0
    }
}

inline put_back(p)
{
    c = slot(p, 0);
    do
    :: c == slot(p, SLOTS) -> break
    :: c < slot(p, SLOTS) && until[c] == EARLY && from[c] == n -> free(c); c++
    :: else -> c++
    od;
    c = 0
}

inline make_visible()
{
    if :: has(0) && elsewhere[0] -> d_step { outdate(0) } :: else fi;
    if :: has(1) && elsewhere[1] -> d_step { outdate(1) } :: else fi;
    mark_own();
    d_step {
        if :: has(0) -> elsewhere[0] = 1 :: else fi;
        if :: has(1) -> elsewhere[1] = 1 :: else fi
    };
    unmark_own()
}

/* early_show(). Snapshots do not wait for it: it does not store `begun`. */
inline show_early()
{
    take_showing();
    n = shown + 1;
    find_and_free_unneeded();
    if :: has(0) -> prepare(0) :: else fi;
    if :: has(1) -> prepare(1) :: else fi;
    if
    :: d_step { fulls < FULLS -> fulls++; put_back(0); put_back(1); n = 0; late = 1 }
    :: true ->
        d_step { note_number(id, n, true) };
#ifdef MUTANT_RAISED_FIRST
        if :: relaxed -> d_step { expose(n) } :: else fi;
#endif
        make_visible();
        d_step { last = upper; shown = n }
    fi;
    holder[SHOWING] = 0
}

/* All that is on top of the file goes to it. */
inline store_own(p)
{
    d_step {
        c = slot(p, 0);
        do
        :: c == slot(p, SLOTS) -> c = NOWHERE; break
        :: c < slot(p, SLOTS) && WHOLE && until[c] && from[c] == content[p] -> break
        :: else -> c++
        od;
        got = (c == NOWHERE -> file[p] : saved[c]) | op[id];
        store(p, got);
        elsewhere[p] = 0;
        got = 0;
        c = 0
    }
}

/* log_show_begin(), with show_number(); show(); show_end(). What is early is durable before the commit has its number. */
inline show_late()
{
    take_showing();
    d_step { upper = (OPEN -> tail : 0) };
    durable >= upper;
    d_step { raise_moment(shown) };
    d_step { n = shown + 1; begun = n; upper = 0 };
    find_and_free_unneeded();
    if :: has(0) -> save(0, false) :: else fi;
    if :: has(1) -> save(1, false) :: else fi;
    d_step { note_number(id, n, true) };
    mark_own();
    if :: has(0) -> store_own(0) :: else fi;
    if :: has(1) -> store_own(1) :: else fi;
#ifndef MUTANT_UNMARKED_FIRST
    d_step { raise_moment(n) };
#endif
    unmark_own();
    shown = n;
#ifdef MUTANT_UNMARKED_FIRST
    d_step { raise_moment(n) };
#endif
    holder[SHOWING] = 0
}

/* log_commit(), and log_await() of an early one that is not relaxed. */
inline commit()
{
    if :: has(0) -> reserve(0); base(0) :: else fi;
    if :: has(1) -> reserve(1); base(1) :: else fi;
    append();
    if
    :: !late ->
#ifdef MUTANT_NUMBERS_APART
        holder[APPENDING] = 0;
#endif
        show_early();
#ifndef MUTANT_RELAXED_UNRAISED
        if :: relaxed && n -> d_step { RAISE_RELAXED } :: else fi;
#endif
#ifndef MUTANT_NUMBERS_APART
        holder[APPENDING] = 0
#endif
    :: else ->
        holder[APPENDING] = 0
    fi;
    if
    :: late -> /* or there was no room */
        durable >= upper;
        show_late()
    :: else
    fi;
    release_pages();
#ifdef MUTANT_MOMENT_FIRST
    d_step { raise_moment(n) };
#endif
    if
    :: relaxed && !late -> d_step { acknowledged = acknowledged | op[id]; n = 0; upper = 0 }
    :: else ->
        AWAITED;
        d_step {
            raise_moment(n);
            acknowledged = acknowledged | op[id];
            /* assert firm */
            assert(!without(at_number(n, 0), after(durable, 0)) && !without(at_number(n, 1), after(durable, 1)));
            n = 0;
            upper = 0
        }
    fi
}

/* ---- checkpoint ---- */

/* early_bring_home() of a page. It may be another one's: its number stays. */
inline bring_home(p)
{
    do
    :: d_step {
            c = slot(p, 0);
            do
            :: c == slot(p, SLOTS) -> c = NOWHERE; break
            :: c < slot(p, SLOTS) && until[c] == EARLY -> break
            :: else -> c++
            od
        };
        if
        :: c == NOWHERE -> break
        :: c != NOWHERE && elsewhere[p] ->
            /* assert one */
            assert(from[c] == content[p]);
            d_step { store(p, saved[c]) };
            elsewhere[p] = 0
        :: else /* it was left by a process that was killed */
        fi;
#ifndef MUTANT_NO_RENEW
        d_step { renew(p) };
#endif
        d_step { free(c) }
    od;
    c = 0
}

inline checkpoint()
{
    reserve(CHECKING);
    atomic { !holder[APPENDING] -> holder[APPENDING] = id + 1; upto = tail };
#ifdef MUTANT_APPENDING_EARLY
    holder[APPENDING] = 0;
#endif
    (!record[0] || record[0] > upto) && (!record[1] || record[1] > upto); /* wait_for_records() */
    durable >= upto;
    take_showing();
#ifndef MUTANT_HOME_UNRAISED
    d_step { raise_moment(shown) };
#endif
    bring_home(0);
    bring_home(1);
    holder[SHOWING] = 0;
    d_step { least[0] = file[0]; least[1] = file[1] };
    d_step {
        /* assert home */
        assert(!without(after(upto, 0), least[0]) && !without(after(upto, 1), least[1]));
        start = upto;
#ifndef MUTANT_APPENDING_EARLY
        holder[APPENDING] = 0;
#endif
        holder[CHECKING] = 0;
        upto = 0
    }
}

/* log_settle(), by a call that makes all durable that is visible, or by who waits for the moment. */
inline settle()
{
    n = shown;
    upper = tail;
    if
    :: UNSETTLED ->
        durable >= upper;
        d_step { raise_moment(n) }
    :: else
    fi;
    d_step { n = 0; upper = 0 }
}

proctype worker(byte id; int work)
{
    byte n, m, c, v, r, got, seen, asked, upper, upto, round;
    bit late, relaxed;
    {
#ifdef HEIR
        skip;
end:
        if :: !id || !lives[0] fi;
#endif
        do
        :: !work -> break
        :: else ->
            d_step {
                mask[id] = work % 100 & 3;
                late = (work % 100 & LATE) != 0;
                relaxed = (work % 100 & RELAXED) != 0;
                op[id] = 1 << (3 * id + round);
                work = work / 100;
                round++
            };
            if
            :: mask[id] -> commit()
            :: !mask[id] && late -> checkpoint()
            :: !mask[id] && relaxed ->
                asked = acknowledged;
                settle();
                /* assert settled */
                assert(!without(asked, after(durable, 0) | after(durable, 1)));
                asked = 0
            fi
        od;
        ended[id] = 1
    } unless {
        !lives[id]
    }
}

#if KILLS
proctype killer()
{
end:
    do
    :: d_step { kills < KILLS && lives[0] && !ended[0] && DIES -> lives[0] = 0; kills++ }
#if !defined(HEIR) && !defined(HELD)
    :: d_step { kills < KILLS && lives[1] && !ended[1] -> lives[1] = 0; kills++ }
#endif
#if KILLS > 1
    :: d_step { kills && kills < KILLS && !again -> again = 1; kills++ }
#endif
    od
}
#endif

proctype disk()
{
end:
    do
    :: d_step { durable < written -> durable = written }
    od
}

/* ---- takeover ---- */

/* save_all(). Of a page with an early copy nobody reads the file: nothing is saved of it. */
inline save_dead(p)
{
    if
#ifdef MUTANT_CLOSED_FIRST
    :: n && holder[p] == gone -> save(p, false)
#else
    :: n && holder[p] == gone && !elsewhere[p] -> save(p, false)
#endif
    :: else
    fi
}

/* replay_log(), and reload(): then the file has the newest content. */
inline replay(p)
{
    if
    :: holder[p] == gone ->
        d_step { store(p, file[p] | without(after(tail, p), after(start, p))) };
        if
        :: elsewhere[p] ->
            d_step {
                if :: n -> outdate(p) :: else fi;
                forget_early(p)
            };
#ifndef MUTANT_NO_COPY
            elsewhere[p] = 0
#endif
        :: else
        fi
    :: else
    fi
}

/* release(). A page that has the number already gets no other, or its version would be what it was before. */
inline release_dead(p)
{
    if
    :: holder[p] == gone ->
        d_step {
            if
            :: n && !(SAME_NUMBER) -> unmark(p, n)
            :: else -> turn_mark(p)
            fi;
            holder[p] = 0
        }
    :: else
    fi
}

inline stays_early(p)
{
    find_newest(p);
    /* assert early */
    assert(!took || holder[p] != gone || !elsewhere[p] || until[c] == EARLY)
}

inline forget()
{
    gone = 0; n = 0; c = 0; took = 0; commits = 0; showed[0] = 0; showed[1] = 0
}

#if KILLS
proctype rescuer()
{
    byte gone, n, m, c, seen;
    bit took, commits, showed[2];
end:
    do
    :: {
        d_step {
            if
            :: taken[0] && !lives[0] -> gone = 1
            :: taken[1] && !lives[1] -> gone = 2
            fi
        };
#ifdef MUTANT_SYNC_FIRST
        atomic { durable = written };
#endif
        /* begin_number(): with a log, `showing` in any case. */
        do
        :: atomic {
#ifdef MUTANT_UNHELD
                !committed[gone - 1] || !holder[SHOWING] || holder[SHOWING] == gone ->
                if
                :: committed[gone - 1] -> took = !holder[SHOWING]; holder[SHOWING] = gone
                :: else
                fi
#else
                !holder[SHOWING] || holder[SHOWING] == gone ->
                took = !holder[SHOWING];
                holder[SHOWING] = gone
#endif
            };
            break
        :: d_step { holder[SHOWING] != gone && is_dead(holder[SHOWING]) -> gone = holder[SHOWING] }
        od;
        if
        :: commits = committed[gone - 1]
#ifdef UNKNOWN
        :: commits = 1 /* another process has its slot */
#endif
        fi;
        if
        :: commits ->
            d_step { n = shown + 1; begun = n };
            d_step { m = moment; look_at_table(); free_unneeded() }
        :: else
        fi;
        /* find() */
        atomic {
            if :: holder[0] == gone -> showed[0] = marked[0]; marked[0] = 1 :: else fi;
            if :: holder[1] == gone -> showed[1] = marked[1]; marked[1] = 1 :: else fi
        };
        save_dead(0);
        save_dead(1);
        d_step {
            if :: n && holder[0] == gone -> changing[0] = 1 :: else fi;
            if :: n && holder[1] == gone -> changing[1] = 1 :: else fi
        };
        if
        :: d_step {
                HAS_ANY && fails < FAILS ->
                fails++;
                stays_early(0);
                stays_early(1);
                if :: holder[0] == gone && !showed[0] -> turn_mark(0) :: else fi;
                if :: holder[1] == gone && !showed[1] -> turn_mark(1) :: else fi;
                if :: took -> begun = shown; holder[SHOWING] = 0 :: else fi;
                forget()
            };
            goto end
        :: true
        fi;
        if
        :: HAS_ANY ->
            d_step {
#ifndef MUTANT_SYNC_FIRST
                durable = written;
#endif
                if :: holder[APPENDING] == gone -> tail = written :: else fi;
                if :: n -> note_number(gone - 1, n, record[gone - 1] && record[gone - 1] <= tail) :: else fi
            };
#ifndef MUTANT_NOT_RAISED
            d_step { raise_moment(shown) }
#endif
        :: else
        fi;
        replay(0);
        replay(1);
#ifndef MUTANT_RELEASED_FIRST
        if :: n -> d_step { raise_moment(n) } :: else fi;
#endif
        release_dead(0);
        release_dead(1);
        d_step {
            if :: holder[APPENDING] == gone -> holder[APPENDING] = 0 :: else fi;
            if :: holder[CHECKING] == gone -> holder[CHECKING] = 0 :: else fi
        };
        if
        :: n ->
            shown = n
#ifdef MUTANT_RELEASED_FIRST
            ; d_step { raise_moment(n) }
#endif
        :: else
        fi;
        d_step {
            if :: holder[SHOWING] == gone -> holder[SHOWING] = 0 :: else fi;
            committed[gone - 1] = 0;
            record[gone - 1] = 0;
            taken[gone - 1] = 0;
            forget()
        }
        } unless {
            atomic { again -> again = 0; forget(); m = 0; seen = 0 }
        }
    od
}
#endif

/* ---- a snapshot ---- */

/* try_to_begin(). The wait: a commit that has not seen the entry saves nothing for it. */
inline begin()
{
    d_step { asked = acknowledged; entry = BEGINNING | FIRST; number = begun };
    d_step {
        FIRST >= number || !holder[SHOWING];
        number = FIRST;
        entry = number;
#if SNAPS == 1
        /* assert durable */
        assert(!without(at_number(number, 0), after(durable, 0) | at_number(exposed, 0)) && !without(at_number(number, 1), after(durable, 1) | at_number(exposed, 1)));
#endif
        /* assert recent */
        assert(!without(asked, at_number(number, 0) | at_number(number, 1)));
        asked = 0
    }
}

/* read_page(). What is compared with what was noted before is the copy, too: until the look at it nothing of it counts. */
inline read(p)
{
    do
    :: true ->
        d_step { v = content[p]; r = renewed[p]; even = marked[p] };
        if
        :: !even && v <= number && !elsewhere[p] ->
            d_step {
                found = content[p] == v && renewed[p] == r && !marked[p];
                /* assert moment */
                assert(!found || file[p] == at_number(number, p))
            }
        :: !even && v <= number && elsewhere[p] ->
            /* undo_newest(). Another content of the page has another version. */
            d_step { find_newest(p); c = (content[p] == v -> c : NOWHERE) };
            d_step {
                found = content[p] == v && renewed[p] == r && !marked[p];
                /* assert moment */
                assert(!found || c != NOWHERE && saved[c] == at_number(number, p))
            }
        :: else ->
            /* undo_find() */
            d_step {
                c = slot(p, 0);
                do
                :: c == slot(p, SLOTS) -> c = NOWHERE; break
                :: c < slot(p, SLOTS) && until[c] && from[c] <= number && number < until[c] -> u = until[c]; f = from[c]; break
                :: else -> c++
                od
            };
            if
            :: c != NOWHERE ->
                d_step {
                    found = until[c] == u && FROM_IS;
                    /* assert moment */
                    assert(!found || saved[c] == at_number(number, p))
                }
            :: else ->
                /* assert lost */
                assert(even || content[p] != v || renewed[p] != r || marked[p])
            fi
        fi;
        d_step { v = 0; r = 0; even = 0; c = 0; u = 0; f = 0 };
        if
        :: found -> break
        :: else -> !marked[p]
        fi
    od
}

#if SNAPS
proctype snapshotter()
{
    byte number, asked, v, r, c, u, f, p;
    bit even, found;
    begin();
    if :: p = 0 :: p = 1 fi;
    read(p);
    atomic { entry = 0; number = 0; found = 0; p = 0 };
    ended[3] = 1
}
#endif

#if PEEKS
/* read_pass() of page 0: as any process does it that may write; or of what is newest, by a relaxed writer that commits nothing then. */
proctype peeker()
{
    byte v, r, c, n, upper, want;
    bit newest, found;
#if PEEKS == 2
    newest = 1;
#else
    if :: newest = 0 :: newest = 1 fi;
#endif
    do
    :: d_step { !marked[0] -> v = content[0]; r = renewed[0] };
        if
        :: elsewhere[0] && !newest && v > moment ->
            v <= shown || !elsewhere[0]; /* it waits for who has `showing`, and looks again */
            settle();
            /* assert raised */
            assert(v <= moment || !elsewhere[0])
        :: else
        fi;
        if
        :: !elsewhere[0] -> c = NOWHERE
        :: else -> d_step { find_newest(0); c = (content[0] == v -> c : 0) }
        fi;
        d_step {
            found = content[0] == v && renewed[0] == r && !marked[0];
            want = (c == NOWHERE -> file[0] : saved[c]);
            /* assert newest */
            assert(!found || want == at_number(v, 0));
            v = (found -> v : 0);
            r = 0; c = 0; want = 0
        };
        if
        :: found -> break
        :: else
        fi
    od;
    found = 0;
    if
    :: newest ->
#ifndef MUTANT_NOTHING_AT_ONCE
        !holder[SHOWING]; /* shown at least as much as was read */
#endif
#ifndef MUTANT_NOTHING_RAISED
        d_step { expose(shown) }
#endif
    :: else
    fi;
    /* assert seen */
    assert(v <= moment);
    v = 0
}
#endif

/* read_pass() of a process that may only read: of a page whose number is past the moment, wherever its content is, it sees what is
 * saved for the moment, without an entry in the table. In a pass it copies the pages that are not as it has noted, and ends if there are
 * none. */
inline look(p, v, r, at, bytes)
{
    d_step { nv = content[p]; nr = renewed[p]; is = marked[p] };
    d_step {
        if
        :: nv > moment && !is && AT_MOMENT -> nat = moment; nv = 0; nr = 0
        :: else -> nat = 0
        fi
    };
    if
    :: is -> same = 0
    :: !is && v == nv && r == nr && at == nat
    :: !is && (v != nv || r != nr || at != nat) ->
        d_step {
            same = 0;
            v = nv;
            r = nr;
            at = nat;
            if
            :: at ->
                c = slot(p, 0);
                do
                :: c == slot(p, SLOTS) -> c = NOWHERE; break
                :: c < slot(p, SLOTS) && until[c] && from[c] <= at && at < until[c] -> u = until[c]; f = from[c]; break
                :: else -> c++
                od
            :: !at && elsewhere[p] -> find_newest(p)
            :: else -> c = NOWHERE
            fi
        };
        d_step {
            bytes = (c == NOWHERE -> file[p] : saved[c]);
            if
            :: at && (c == NOWHERE || until[c] != u || from[c] != f) -> at = NOWHERE
            :: else
            fi
        }
    fi;
    d_step { nv = 0; nr = 0; nat = 0; is = 0; c = 0; u = 0; f = 0 }
}

#if VIEWS
proctype viewer()
{
    byte v0, r0, at0, bytes0, v1, r1, at1, bytes1, nv, nr, nat, c, u, f, asked;
    bit is, same;
    asked = acknowledged;
    do
    :: true ->
        same = 1;
        look(0, v0, r0, at0, bytes0);
        look(1, v1, r1, at1, bytes1);
        if
        :: same -> break
        :: else -> !marked[0] && !marked[1]
        fi
    od;
    same = 0;
    d_step {
        c = 1;
        do
        :: c == NUMBERS || at_number(c, 0) == bytes0 && at_number(c, 1) == bytes1 -> break
        :: else -> c++
        od;
        /* assert prefix */
        assert(c < NUMBERS);
        /* assert durable */
        assert(!without(bytes0, after(durable, 0) | at_number(exposed, 0)) && !without(bytes1, after(durable, 1) | at_number(exposed, 1)));
        /* assert recent */
        assert(!without(asked, bytes0 | bytes1));
        asked = 0;
        v0 = 0; r0 = 0; at0 = 0; bytes0 = 0; v1 = 0; r1 = 0; at1 = 0; bytes1 = 0; c = 0
    }
}
#endif

/* ---- at the end ---- */

#define over(w) (ended[w] || !lives[w] && !taken[w])

proctype auditor()
{
    byte p, c;
end:
    over(0) && over(1) && ended[2];
    d_step {
        do
        :: p == 2 -> break
        :: else ->
            find_newest(p);
            /* assert newest */
            assert((elsewhere[p] -> saved[c] : file[p]) == after(tail, p));
            /* assert over */
            assert(!holder[p] && !marked[p]);
            p++
        od;
        assert(!holder[APPENDING] && !holder[SHOWING] && !holder[CHECKING])
    }
}

init
{
    atomic {
        lives[0] = 1; taken[0] = 1;
        lives[1] = 1; taken[1] = 1;
        run worker(0, WORK_0);
        run worker(1, WORK_1);
#if WORK_2
        lives[2] = 1;
        run worker(2, WORK_2);
#else
        ended[2] = 1;
#endif
#if SNAPS
        run snapshotter();
#endif
#if PEEKS
        run peeker();
#endif
#if VIEWS
        run viewer();
#endif
        run disk();
#if KILLS
        run killer();
        run rescuer();
#endif
        run auditor()
    }
}
