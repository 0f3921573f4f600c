/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a snapshot see the bytes of one moment, for as long as it is open, whoever commits meanwhile, and whoever is killed? The steps
 * are those of undo.c and undo.h (undo_begin(), undo_save(), choose(), find_free(), undo_find()), show.c (begin(), show_all(), end()),
 * takeover.c (recover()) and number.c (number_commits()) and snapshot.c (try_to_begin(), read_page()).
 *
 * Two pages, and an undo area of COPIES copies, with a list for each page. Processes 0 and 1 commit, one after the other, what
 * WORK_0, WORK_1 say: octal digits, the lowest first, each the pages of a commit (1, 2, or 3 for both), or FAILING: a call that reserves
 * page 0 and gives it back. Process 2 takes SNAPS_2 snapshots, and reads one page of each, once. That is enough: the read may
 * come at any moment, and what it has to return is fixed. Process 3 takes SNAPS_3, reads nothing, and may not write to the file. The first
 * snapshot switches numbers on (unless NUMBERED), perhaps while commits are under way. KILLS committers in all are killed, at any
 * step, also while one takes over another. Who waits for a dead process takes over what it held. FAILS takeovers fail, before they have
 * changed a page; a call that called for it fails too.
 *
 * The content of a page is the number of the last operation that stored to it. A dead process's words are on the media, or not, as
 * takeover.pml has it: here `committed` is one step.
 *
 * Memory is x86-TSO where a barrier is there for it (not with STRONG): what a process stores before it looks at what another one stores
 * (the note that a commit is under way, `begun`, an entry) waits in a buffer. Other stores are seen at once: they are in order, and so are
 * a reader's loads, so a store that is seen later is as one that came later. The stores of a process are seen in order: it stores
 * nothing else before what is in its buffer has left it.
 *
 * What is checked:
 *   - a read of a snapshot returns what the page held when the commit with the snapshot's number was shown  assert moment
 *   - that moment is whole: an operation on two pages is in both or in neither                              assert whole
 *   - and not earlier than what was shown when the snapshot was asked for                                   assert recent
 *   - a read is refused only if the snapshot was given up (its entry says so)                               assert lost
 *   - all processes come to an end: no page and no lock stays held, and no snapshot waits for a number that does not come
 *
 * Not modelled: the size of the file, which a snapshot notes when it begins; pages that are not loaded; the entries of dead
 * processes; several threads of a process, and deploys. Torn copies of pages are read.pml's.
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_ENTRY_LATE        a snapshot looks at `begun` before its entry can be seen
 *   MUTANT_LOOK_FIRST        a commit looks at the entries before it stores `begun`
 *   MUTANT_NO_BARRIER        and before that can be seen
 *   MUTANT_NO_WAIT           the first snapshot does not wait for commits that are under way without a number
 *   MUTANT_NO_MEMBARRIER     and does not see all notes of these
 *   MUTANT_SAVE_LATE         pages are saved after the flip
 *   MUTANT_SHOWN_EARLY       `shown` is stored before the last page is unmarked
 *   MUTANT_NOT_SHOWN         a snapshot does not wait until what has begun is shown
 *   MUTANT_NOT_ASKED         nor look whether it was given up meanwhile
 *   MUTANT_NO_VERSION        a read does not look at the version again
 *   MUTANT_UNCHECKED         nor at the copy, and whether the snapshot was given up
 *   MUTANT_NO_EDITION        nor whether the lists have changed, if it finds no copy
 *   MUTANT_REUSE             a copy is used anew that a snapshot needs
 *   MUTANT_TAKEOVER_UNSAVED  a takeover saves nothing
 *   MUTANT_SAVE_AGAIN        a takeover saves a page whose content changes already
 *   MUTANT_OWN_NAME          a takeover holds `showing` in its own name
 *   MUTANT_FAIL_RELEASES     a takeover that fails releases `showing`, though the dead process held it
 *   MUTANT_WAITS_ON          a snapshot waits for what a takeover that failed has begun
 */
#define FAILING 5

#ifndef WORK_0
#define WORK_0 3
#endif
#ifndef WORK_1
#define WORK_1 FAILING
#endif
#ifndef SNAPS_2
#define SNAPS_2 1
#endif
#ifndef SNAPS_3
#define SNAPS_3 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef COPIES
#define COPIES 2
#endif

#define FIRST     4   /* UNDO_FIRST */
#define MOST      8   /* numbers */
#define FREE      0   /* enum undo_entry */
#define LOST      2
#define BEGINNING 64  /* UNDO_BEGINNING */
#define BEGUN     1
#define READY     2

/* What mutants change inside of steps. */
#ifdef MUTANT_SAVE_AGAIN
#define CHANGING false
#else
#define CHANGING changing[p]
#endif
#ifdef MUTANT_OWN_NAME
#define OWN_NAME (id + 1)
#else
#define OWN_NAME gone
#endif
#ifdef MUTANT_FAIL_RELEASES
#define RELEASES n
#else
#define RELEASES false
#endif
#ifdef MUTANT_UNCHECKED
#define ENTRY_GONE false
#else
#define ENTRY_GONE own_entry != number
#endif
#ifdef HEIR /* process 0 is killed in a commit (the latter half, with KILLS 2); process 1 comes then, and is killed while it takes over */
#define HEIR_TOO attach == 2
#if KILLS == 2
#define DIES showing == 1
#else
#define DIES committed[0]
#endif
#else
#define HEIR_TOO true
#define DIES true
#endif
#ifdef UNMAPPED /* process 0 cannot map the undo area */
#define MAPS (id != 0)
#define UNSAVED true
#else
#define MAPS true
#define UNSAVED false
#endif

/* ---- shared memory: pages ---- */

byte holder[2];       /* 0: free, else 1 + process */
byte content[2];      /* page_content() of the version */
bit marked[2];        /* the version is even */
bit changing[2];      /* PAGE_CHANGING */
byte bytes[2];        /* what a reader copies: an operation */

/* ---- and of snapshots ---- */

byte numbered;
byte begun = FIRST, shown = FIRST;
byte showing;         /* its holder, as of a page */
byte edition;
byte entry[2];        /* of the processes 2 and 3 */
byte head[2];         /* list of each page: a copy + 1 */
byte page_of[COPIES], from[COPIES], until[COPIES], next[COPIES], saved[COPIES];

/* ---- notes that commits are under way, slots, locks ---- */

byte note[2];         /* 1: in the process's buffer, 2: seen */
byte over[2];         /* commits that are over */
bit taken[2];         /* shared_slot.state */
bit lives[2];
byte attach;

/* ---- buffers ---- */

byte begun_soon[4];   /* of process i; 0: nothing */
byte entry_soon[2];

/* ---- ghosts ---- */

bit committed[2];     /* the words of the operation under way are on the media */
byte mask[2], op[2];  /* pages, number of that operation */
bit killed[2], ended[2];
byte kills, fails;
byte has[16];         /* page, operation: which ones that content contains, a bit each */
byte two_pages;       /* operations on both */
byte then[2 * MOST];  /* number - FIRST, page */

#define contains(page, value) has[8 * (page) + (value)]
#define own_entry             entry[id - 2]
#define is_dead(h)            ((h) == 1 && !lives[0] || (h) == 2 && !lives[1])

/* What a snapshot with that number sees. */
inline note_moment(number)
{
    /* assert whole */
    assert((contains(0, bytes[0]) & two_pages) == (contains(1, bytes[1]) & two_pages));
    then[2 * (number - FIRST)] = bytes[0];
    then[2 * (number - FIRST) + 1] = bytes[1]
}

/* What the processes have stored becomes visible. */
#ifdef STRONG
#define soon(place, buffer, value) place = value
#else
#define soon(place, buffer, value) buffer = value
#endif
/* under_way_begin(), under_way_end(). With NUMBERED nobody looks. */
#ifdef NUMBERED
#define under_way(w) skip
#define over_now(w)  skip
#else
#define under_way(w) note[w] = 1
#define over_now(w)  note[w] = 0; over[w]++
#endif
proctype memory()
{
end:
    do
    :: d_step { note[0] == 1 -> note[0] = 2 }
    :: d_step { note[1] == 1 -> note[1] = 2 }
    :: d_step { begun_soon[0] -> begun = begun_soon[0]; begun_soon[0] = 0 }
    :: d_step { begun_soon[1] -> begun = begun_soon[1]; begun_soon[1] = 0 }
    :: d_step { entry_soon[0] -> entry[0] = entry_soon[0]; entry_soon[0] = 0 }
    :: d_step { entry_soon[1] -> entry[1] = entry_soon[1]; entry_soon[1] = 0 }
    od
}

/* ---- undo.c ---- */

#define is_newer(i) (entry[i] >= FIRST && entry[i] > newest)

/* The second half of undo_begin() */
inline look()
{
    newest = 0;
    d_step { if :: is_newer(0) && MAPS -> newest = entry[0] :: else fi };
    d_step { if :: is_newer(1) && MAPS -> newest = entry[1] :: else fi }
}

/* is_needed() */
#define sees(e, f, u)   ((e) >= FIRST && ((e) & 63) < (u) && (((e) & 63) >= (f) || ((e) & BEGINNING)))
#ifdef MUTANT_REUSE
#define is_needed(c)    false
#else
#define is_needed(c)    (sees(entry[0], from[c], until[c]) || sees(entry[1], from[c], until[c]))
#endif
#define is_unneeded(c)  (!until[c] || !is_needed(c))
#define is_in_list(c, p) (head[p] == (c) + 1 || (COPIES > 1 && head[p] && next[head[p] - 1] == (c) + 1) || \
                          (COPIES > 2 && head[p] && next[head[p] - 1] && next[next[head[p] - 1] - 1] == (c) + 1))

#define NOWHERE 15

/* undo_save(), for page p. Lists and copies are the process's that holds `showing`. */
inline save(p)
{
    if
    :: content[p] > newest || content[p] >= n || !newest || CHANGING
    :: else ->
        d_step {
            edition = edition | 1;
            /* choose() */
            c = NOWHERE;
            i = head[p];
            do
            :: i && page_of[i - 1] == p && until[i - 1] == n -> c = NOWHERE - 1; break
            :: i && !(page_of[i - 1] == p && until[i - 1] == n) ->
                if
                :: page_of[i - 1] == p && is_unneeded(i - 1) && c == NOWHERE -> c = i - 1
                :: else
                fi;
                i = next[i - 1]
            :: !i -> break
            od;
            i = 0
        };
        if
        :: c == NOWHERE - 1
        :: else ->
            if
            :: c == NOWHERE -> /* find_free() */
                do
                :: d_step {
                    c = 0;
                    do
                    :: c == COPIES || is_unneeded(c) -> break
                    :: else -> c++
                    od
                    };
                    if
                    :: c < COPIES -> break
                    :: else -> /* give_up_oldest() */
                        d_step {
                            i = 255;
                            if :: entry[0] >= FIRST && entry[0] < i -> i = entry[0] :: else fi;
                            if :: entry[1] >= FIRST && entry[1] < i -> i = entry[1] :: else fi
                        };
                        if :: d_step { entry[0] == i -> entry[0] = LOST } :: else fi;
                        if :: d_step { entry[1] == i -> entry[1] = LOST } :: else fi;
                        i = 0
                    fi
                od;
                until[c] = 0;
                d_step { /* unlink_copy(): one store */
                    i = page_of[c];
                    if
                    :: head[i] == c + 1 -> head[i] = next[c]
                    :: head[i] && head[i] != c + 1 ->
                        i = head[i];
                        do
                        :: !next[i - 1] -> break
                        :: next[i - 1] == c + 1 -> next[i - 1] = next[c]; break
                        :: else -> i = next[i - 1]
                        od
                    :: else
                    fi;
                    i = 0
                };
                d_step { page_of[c] = p; next[c] = head[p] };
                head[p] = c + 1
            :: else -> until[c] = 0
            fi;
            d_step { saved[c] = bytes[p]; from[c] = content[p] };
            until[c] = n
        fi;
        c = 0
    fi
}

/* undo_saved() */
inline saved_all()
{
    d_step { if :: edition & 1 -> edition = (edition + 1) & 15 :: else fi }
}

/* ---- takeover ---- */

inline mark_dead(p)
{
    d_step {
        if
        :: holder[p] == gone ->
            showed[p] = marked[p];
            marked[p] = 1
        :: else
        fi
    }
}

#define unmark(p, number)                                                                          \
    marked[p] = 0;                                                                                 \
    changing[p] = 0;                                                                               \
    content[p] = (number -> number : content[p] + 1)

inline unmark_all()
{
    d_step { if :: holder[0] == gone && !showed[0] -> marked[0] = 0 :: else fi };
    d_step { if :: holder[1] == gone && !showed[1] -> marked[1] = 0 :: else fi }
}

/* One that was in no commit has changed no content. */
inline release_dead(p)
{
    if
    :: holder[p] == gone ->
        d_step {
            if
            :: committed[gone - 1] -> unmark(p, n)
            :: else -> marked[p] = 0; changing[p] = 0
            fi
        };
        holder[p] = 0
    :: else
    fi
}

/* recover(), for the process `gone` - 1. `may_fail`: the caller can go on then. */
inline recover()
{
    atomic { !attach -> attach = 1 + id };
    if
    :: !taken[gone - 1] || lives[gone - 1] /* another process was here before */
    :: else ->
        /* begin_number() */
        d_step {
            busy = 0;
            took = 0;
            n = 0;
            if
            :: numbered && committed[gone - 1] ->
                if
                :: !showing -> showing = OWN_NAME; took = 1
                :: showing == gone -> showing = OWN_NAME
                :: showing && showing != gone -> busy = showing
                fi;
                if :: !busy -> n = shown + 1; begun = n :: else fi
            :: else
            fi
        };
        if
        :: busy
        :: else ->
            /* find() */
            mark_dead(0);
            mark_dead(1);
            if
            :: n ->
                look();
#ifndef MUTANT_TAKEOVER_UNSAVED
                do
                :: at < 2 && holder[at] == gone -> save(at); at++
                :: at < 2 && holder[at] != gone -> at++
                :: at == 2 -> break
                od;
                at = 0;
#endif
                saved_all()
            :: else
            fi;
            if
            :: n && fails < FAILS && (id > 1 || !committed[id]) ->
                d_step { fails++; failed = 1 };
                unmark_all();
                if
                :: took || RELEASES ->
                    d_step { begun = (took -> shown : begun) };
                    showing = 0
                :: else
                fi
            :: true ->
                /* PAGE_CHANGING, before replay_log() and reload() */
                d_step { if :: holder[0] == gone -> changing[0] = 1 :: else fi };
                d_step { if :: holder[1] == gone -> changing[1] = 1 :: else fi };
                /* reload() */
                d_step { if :: holder[0] == gone && committed[gone - 1] && mask[gone - 1] & 1 -> bytes[0] = op[gone - 1] :: else fi };
                d_step { if :: holder[1] == gone && committed[gone - 1] && mask[gone - 1] & 2 -> bytes[1] = op[gone - 1] :: else fi };
                /* release() */
                release_dead(0);
                release_dead(1);
                if :: n -> d_step { note_moment(n); shown = n } :: else fi;
                d_step { if :: showing == OWN_NAME || showing == gone -> showing = 0 :: else fi }; /* end_number() */
                taken[gone - 1] = 0
            fi
        fi
    fi;
    d_step { attach = 0; gone = busy; busy = 0; took = 0; n = 0; newest = 0; showed[0] = 0; showed[1] = 0 }
}

/* takeover(), of `gone`. First that of the holder of `showing`, if that is dead. */
inline take_over()
{
    do
    :: !is_dead(gone) -> gone = 0; break
    :: is_dead(gone) -> recover()
    od
}

/* ---- commits ---- */

/* A locked instruction: waits until the process's own stores are seen. */
#define drained (note[id] != 1 && !begun_soon[id])

inline mark(p)
{
    d_step {
        if
        :: mask[id] & (p + 1) -> marked[p] = 1; changing[p] = 1
        :: else
        fi
    }
}

inline flip(p)
{
    d_step { if :: mask[id] & (p + 1) -> bytes[p] = op[id] :: else fi }
}

inline unmark_own(p)
{
    d_step { if :: mask[id] & (p + 1) -> unmark(p, n) :: else fi }
}

inline save_own()
{
    page = 0;
    do
    :: page < 2 && (mask[id] & (page + 1)) -> save(page); page++
    :: page < 2 && !(mask[id] & (page + 1)) -> page++
    :: page == 2 -> break
    od;
    page = 0;
    saved_all()
}

inline show_all()
{
    /* file_is_numbered() */
    if
    :: numbered ->
taking: /* reservation_take() */
        do
        :: atomic { !showing && drained -> showing = id + 1; break }
        :: d_step { is_dead(showing) -> gone = showing }; goto taking_over
        od;
        n = shown + 1;
#ifdef MUTANT_LOOK_FIRST
        look();
        begun = n;
#else
        soon(begun, begun_soon[id], n);
#ifndef MUTANT_NO_BARRIER
        drained;
#endif
        look();
#endif
        drained;
#ifndef MUTANT_SAVE_LATE
        save_own()
#endif
    :: else
    fi;
    drained;
    mark(0);
    mark(1);
    flip(0);
    flip(1);
#ifdef MUTANT_SAVE_LATE
    if :: n -> d_step { changing[0] = 0; changing[1] = 0 }; save_own() :: else fi;
#endif
    unmark_own(0);
#ifdef MUTANT_SHOWN_EARLY
    if :: n -> d_step { note_moment(n); shown = n } :: else fi;
#endif
    unmark_own(1);
    if
    :: n ->
#ifndef MUTANT_SHOWN_EARLY
        d_step { note_moment(n); shown = n };
#endif
        showing = 0
    :: else
    fi;
    n = 0;
    newest = 0
}

/* The kernel drops the locks of a dead process in any order; what it has stored is seen. */
inline die()
{
    drained;
    if
    :: attach == id + 1 -> attach = 0; lives[id] = 0
    :: true -> lives[id] = 0; d_step { if :: attach == id + 1 -> attach = 0 :: else fi }
    fi
}

proctype committer(byte id; byte work)
{
    byte n, newest, c, i, gone, busy, round, page, at;
    bit took, failed, showed[2];
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
                mask[id] = work & 7;
                work = work >> 3;
                op[id] = 1 + id + 2 * round;
                round++
            };
reserving: /* page_set_reserve() */
            do
            :: atomic { page < 2 && (mask[id] & (page + 1)) && !holder[page] && drained -> holder[page] = id + 1; page++ }
            :: d_step { page < 2 && (mask[id] & (page + 1)) && is_dead(holder[page]) -> gone = holder[page] }; goto taking_over
            :: page < 2 && !(mask[id] & (page + 1)) -> page++
            :: page == 2 -> break
            od;
            page = 0;
            if
            :: mask[id] == FAILING
            :: mask[id] < 4 ->
                d_step {
                    if :: mask[id] & 1 -> contains(0, op[id]) = contains(0, bytes[0]) | (1 << op[id]) :: else fi;
                    if :: mask[id] & 2 -> contains(1, op[id]) = contains(1, bytes[1]) | (1 << op[id]) :: else fi;
                    if :: mask[id] == 3 -> two_pages = two_pages | (1 << op[id]) :: else fi;
                    committed[id] = 1;
                    under_way(id)
                };
                show_all();
                d_step { over_now(id); committed[id] = 0 }
            fi;
            if :: mask[id] & 1 -> holder[0] = 0 :: else fi;
            if :: mask[id] & 2 -> holder[1] = 0 :: else fi
        od;
        goto finish;
taking_over:
        take_over();
        if
        :: failed -> goto finish
        :: !failed && committed[id] -> goto taking
        :: !failed && !committed[id] -> goto reserving
        fi;
finish:
        ended[id] = 1
    } unless {
        killed[id] -> die()
    }
}

proctype killer()
{
end:
    do
    :: d_step { kills < KILLS && !ended[0] && !killed[0] && DIES -> killed[0] = 1; kills++ }
    :: d_step { kills < KILLS && !ended[1] && !killed[1] && HEIR_TOO -> killed[1] = 1; kills++ }
    od
}

/* ---- snapshots ---- */


inline number_commits()
{
    if
    :: numbered == READY
    :: else ->
        atomic { !attach -> attach = 1 + id };
        d_step { if :: !numbered -> numbered = BEGUN :: else fi };
        attach = 0;
#ifndef MUTANT_NO_MEMBARRIER
        d_step {
            if :: note[0] == 1 -> note[0] = 2 :: else fi;
            if :: note[1] == 1 -> note[1] = 2 :: else fi
        };
#endif
#ifndef MUTANT_NO_WAIT
        page = 0;
        do
        :: page == 2 -> break
        :: page < 2 ->
            round = over[page];
waiting: /* under_way_wait() */
            do
            :: note[page] != 2 || over[page] != round || !taken[page] -> break
            :: d_step { taken[page] && !lives[page] -> gone = page + 1 }; goto taking_over
            od;
            page++
        od;
        page = 0;
        round = 0;
#endif
        d_step {
            if :: begun == shown && numbered != READY -> note_moment(shown) :: else fi;
            numbered = READY
        }
    fi
}

/* try_to_begin() */
inline begin()
{
    do
    :: true ->
        s = BEGINNING | shown;
        soon(own_entry, entry_soon[id - 2], s);
#ifndef MUTANT_ENTRY_LATE
        !entry_soon[id - 2];
#endif
        number = begun;
beginning:
        do
#ifdef MUTANT_NOT_SHOWN
        :: true -> break
#endif
        :: shown >= number -> break
#ifndef MUTANT_WAITS_ON
        :: shown < number && !showing -> number = shown; break
#endif
        :: d_step { shown < number && is_dead(showing) -> gone = showing }; goto taking_over
        od;
        if
#ifdef MUTANT_NOT_ASKED
        :: atomic { !entry_soon[id - 2] -> own_entry = number }; break
#else
        :: atomic { !entry_soon[id - 2] && own_entry == s -> own_entry = number }; break
        :: atomic { !entry_soon[id - 2] && own_entry != s } /* given up */
#endif
        fi
    od;
    /* assert recent */
    assert(number >= (s & 63));
    s = 0
}

/* undo_find(). found: 1: in `got`; 2: none; 0: again */
inline find(p)
{
    ed = edition;
    at = head[p];
    do
    :: !at ->
#ifdef MUTANT_NO_EDITION
        found = 2;
#else
        if :: edition == ed && !(ed & 1) -> found = 2 :: else fi;
#endif
        break
    :: else ->
        u = until[at - 1];
        f = from[at - 1];
        c = at - 1;
        at = next[c];
        if
        :: page_of[c] != p || number < f || number >= u
        :: else ->
            got = saved[c];
#ifdef MUTANT_UNCHECKED
            found = 1;
#else
            if
            :: until[c] == u -> if :: page_of[c] == p -> found = 1 :: else fi
            :: else
            fi;
#endif
            break
        fi
    od;
    atomic { ed = 0; at = 0; u = 0; f = 0; c = 0 }
}

/* read_page() */
inline read(p)
{
    do
    :: true ->
        d_step { v = content[p]; even = marked[p] };
        if
        :: !even && v <= number ->
            got = bytes[p];
#ifdef MUTANT_NO_VERSION
            found = 1
#else
            d_step { if :: content[p] == v && !marked[p] -> found = 1 :: else fi }
#endif
        :: else ->
            find(p);
            d_step {
                if
                :: found == 1 && ENTRY_GONE -> found = 2 /* given up */
                :: found == 2 && (even || content[p] != v || marked[p]) -> found = 0
                :: else
                fi
            }
        fi;
        d_step { v = 0; even = 0 };
        if
        :: found -> break
        :: else
        fi;
reading:
        do /* pause_for() */
        :: !marked[p] && !(edition & 1) -> break
        :: d_step { is_dead(holder[p]) -> gone = holder[p] }; goto taking_over
        :: d_step { is_dead(showing) -> gone = showing }; goto taking_over
        od
    od
}

inline end()
{
    atomic {
        /* assert lost */
        assert(found == 1 || own_entry == LOST || UNSAVED);
        /* assert moment */
        assert(found != 1 || got == then[2 * (number - FIRST) + p]);
        own_entry = FREE;
        number = 0; got = 0; found = 0; p = 0
    }
}

proctype snapshotter(byte id; byte snaps)
{
    byte n, newest, c, i, gone, busy, round, page;
    bit took, failed, showed[2];
    byte s, number, ed, at, u, f, v, got, found, p;
    bit even;
    do
    :: !snaps -> break
    :: else ->
        snaps--;
        number_commits();
        begin();
        if
        :: id == 3 -> own_entry = FREE; number = 0
        :: else ->
            if :: p = 0 :: p = 1 fi;
            read(p);
            end()
        fi
    od;
    goto finish;
taking_over: /* look_after(), pause_for() */
    if
    :: id == 3 -> own_entry = FREE; goto finish /* it may only read the file, and its call fails */
    :: else -> take_over(); failed = 0
    fi;
    if
#ifndef MUTANT_NO_WAIT
    :: !number -> goto waiting
#endif
    :: number && s -> goto beginning
    :: number && !s -> goto reading
    fi;
finish:
    skip
}

init
{
    atomic {
        contains(0, 0) = 1;
        bytes[1] = 7;
        contains(1, 7) = 1;
        lives[0] = 1; taken[0] = 1;
        lives[1] = 1; taken[1] = 1;
#ifdef NUMBERED
        numbered = READY;
        note_moment(FIRST);
#endif
#ifndef STRONG
        run memory();
#endif
        run committer(0, WORK_0);
#if WORK_1
        run committer(1, WORK_1);
#else
        ended[1] = 1;
#endif
        run snapshotter(2, SNAPS_2);
#if SNAPS_3
        run snapshotter(3, SNAPS_3);
#endif
        run killer()
    }
}
