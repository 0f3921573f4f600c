/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places of a sparse reflection: can two pages have one, or a crash give a page what another one stored? take(), hand_over(),
 * place_take_spare() and place_give() of place.c, take_new() of space.c, and place_build() after a crash; what a writer and
 * a reader do around them is in short.
 *
 * Page 1 has place 0 at first, and a slice there. Process 0 writes page 1. Process 1 writes page 2, which has no place. With CLAIMER
 * process 2 writes page 3, which has none either, or page 1. With READER process 3 reads page 1, and there is no crash. A write
 * goes to the home that the bitmap calls invalid, so of two writes to page 1 the first brings the slice home, and its place may be
 * noted as a spare one, which the others take; the next write needs a place again. Each page has one slice. Its content is the
 * number of the write. Place 1 was never used.
 *
 * With EXCHANGE page 2 has place 1, and no slice there; process 2 may write page 2, too. A write to R may find that the space of
 * its page's place was given back: then it exchanges the place for a spare one.
 *
 * The media: what is visible (`number`, `word`, `ref`, `home`) and what is durable (`d_...`). KILLS processes are killed,
 * each at any step. A page that a dead one holds is taken over (takeover.pml has that in its steps). When all are over
 * (the file is unmapped cleanly) or dead, or after a power cut at any step, which keeps any part of what is visible and not
 * durable, the places are found anew from the media, and a second life follows (LIVES), which may end in the same ways.
 *
 * In the code the spare places that a thread may take are noted by its own process. Here they are one list, in which a place may be
 * twice, as it may be in the lists of two processes. Page 0 is left out: entries that were never used look like its own
 * (`empty` in place_build()). Memory is sequentially consistent.
 *
 * What is checked:
 *   - no two bitmaps other than 0 of one page, after a crash            assert one
 *   - no store to a RefPage while a durable word names its slice        assert invalid (I2)
 *   - an entry that is noted for a page has its number                  assert number
 *   - after a crash, each page has what was written last, or what was
 *     being written                                                     assert content
 *   - a copy that counts is what the page had                           assert read
 *   - no deadlock
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_NO_E2        the number of the page is not durable before the stores to its RefPage
 *   MUTANT_NO_SETTLE    the words are not made durable before the places are found anew
 *   MUTANT_CLEAN_AFTER_DEATH  the last process unmaps, and makes nothing durable that a killed one has left
 *   MUTANT_NO_RESERVE   a place is taken from a page that is not held
 *   MUTANT_TAKE_BLIND   its bitmap is not looked at
 *   MUTANT_TAKE_TWICE   it is not looked at whether the page still has the place
 *   MUTANT_ANY_ENTRY    of two entries of a page the first counts, whichever has the bitmap
 *   MUTANT_PLACE_FIRST  a reader looks for the place before the version
 *   MUTANT_NO_HAND_E2   the number of the page that gets a place in exchange is not durable before that page may use it
 *   MUTANT_ENTRY_FIRST  in an exchange the entry gets its number before the page has lost the note of it
 */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LIVES
#define LIVES 2
#endif
#ifndef WRITES
#define WRITES 2 /* of page 1 in each life */
#endif
#ifndef CLAIMER
#define CLAIMER 0 /* 1: there is process 2 */
#endif
#ifndef READER
#define READER 0
#endif
#ifndef EXCHANGE
#define EXCHANGE 0
#endif

#define PAGES 4 /* 0 is none */

byte number[2], ref[2], home[PAGES], d_number[2], d_ref[2], d_home[PAGES];
bit word[2], d_word[2];

/* Shared memory: of a page, its place + 1, 0: none. */
byte index[PAGES], noted[PAGES], version[PAGES], holder[PAGES]; /* version 0: not loaded. holder: process + 1 */
bit bitmap[PAGES];
byte next, spare[2]; /* next_place; places + 1 */

bit dead[4], over[4];
byte shown[PAGES];               /* ghost: the content in memory's eyes */
byte done[PAGES], begun[PAGES];  /* ghost: content that is durable; that may be */
byte life, killed;

#define me (id + 1)

/* ---- a page ---- */

/* Of a dead process: note_bitmap() and what follows. */
inline take_over(p)
{
    if
    :: version[p] && noted[p] ->
        assert(number[noted[p] - 1] == p); /* assert number */
        d_word[noted[p] - 1] = word[noted[p] - 1];
        if
        :: bitmap[p] != word[noted[p] - 1] ->
            bitmap[p] = !bitmap[p];
            version[p]++;
            shown[p] = begun[p];
            done[p] = begun[p]
        :: else
        fi
    :: else
    fi;
    holder[p] = 0
}

inline reserve(p)
{
    do
    :: atomic { holder[p] == 0 -> holder[p] = me; break }
    :: d_step { holder[p] && holder[p] != me && over[holder[p] - 1] -> take_over(p) }
    od
}

inline release(p)
{
    holder[p] = 0
}

inline load(p)
{
    d_step {
        if
        :: version[p] == 0 ->
            noted[p] = index[p];
            if
            :: noted[p] ->
                assert(number[noted[p] - 1] == p); /* assert number */
                bitmap[p] = word[noted[p] - 1]
            :: else
            fi;
            version[p] = 1
        :: else
        fi
    }
}

/* ---- places ---- */

/* hand_over(): the place `own` of page p is to be that of the held page `other`. */
inline hand_over(p)
{
    if
    :: own ->
#ifdef MUTANT_ENTRY_FIRST
        number[own - 1] = other;
#endif
        noted[p] = 0;
        number[own - 1] = other;
#ifndef MUTANT_NO_HAND_E2
        d_number[own - 1] = other; /* E2 */
#endif
        noted[other] = own
    :: else
    fi
}

/* take(): q is taken from its page, for page p, or becomes 2: none. */
inline take(p)
{
    other = number[q];
#ifndef MUTANT_NO_RESERVE
    if
    :: atomic { holder[other] == 0 -> holder[other] = me }
#else
    if
    :: true
#endif
        ->
        d_step {
            if
#ifndef MUTANT_TAKE_TWICE
            :: noted[other] != q + 1 -> may = 0
#endif
#ifndef MUTANT_TAKE_BLIND
            :: noted[other] == q + 1 && (!version[other] || bitmap[other]) -> may = 0
#endif
            :: else -> may = 1
            fi
        };
        if
        :: may ->
            noted[other] = 0;
            hand_over(p)
        :: else
        fi;
#ifndef MUTANT_NO_RESERVE
        release(other);
#endif
        if
        :: !may -> q = 2
        :: else
        fi
    :: holder[other] -> q = 2
    fi;
    d_step { other = 0; may = 0 }
}

inline take_spare(i, p)
{
    if
    :: d_step { q == 2 && spare[i] -> q = spare[i] - 1; spare[i] = 0 };
        take(p)
    :: else
    fi
}

/* make_places() for one page. q is its place then; 2: there is none. */
inline make_place(p)
{
    q = 2;
    own = noted[p];
    take_spare(0, p);
    take_spare(1, p);
    atomic {
        if
        :: q == 2 && own -> q = own - 1 /* it gets space again */
        :: q == 2 && !own && next < 2 -> q = next; next++ /* take_new() */
        :: else
        fi;
        own = 0
    };
    if
    :: q < 2 ->
        number[q] = p;
#ifndef MUTANT_NO_E2
        d_number[q] = p; /* E2 */
#endif
        noted[p] = q + 1
    :: else
    fi
}

/* place_spare(): by one process or two, which have held the page. */
inline note_spare(i)
{
    if
    :: d_step { noted[p] && spare[i] == 0 -> spare[i] = noted[p] }
    :: true
    fi
}

/* ---- the processes ---- */

inline flip(p, to)
{
    word[q] = to;
    d_step { d_word[q] = to; done[p] = begun[p] }; /* W2 */
    d_step { bitmap[p] = to; version[p]++; shown[p] = begun[p] } /* I4 */
}

inline write(p)
{
    reserve(p);
    load(p);
    if
    :: bitmap[p] ->
        q = noted[p] - 1;
        d_step { begun[p] = shown[p] + 1; home[p] = begun[p] };
        d_home[p] = home[p]; /* W1 */
        flip(p, 0)
    :: else ->
        if
        :: noted[p] -> q = noted[p] - 1
        :: !noted[p] || EXCHANGE -> make_place(p)
        fi;
        if
        :: q < 2 ->
            d_step {
                assert(!d_word[q]); /* assert invalid */
                begun[p] = shown[p] + 1;
                ref[q] = 16 * p + begun[p]
            };
            d_ref[q] = ref[q]; /* W1 */
            flip(p, 1)
        :: else /* ENOSPC */
        fi
    fi;
    release(p);
    q = 0
}

proctype writer(byte id, p, writes)
{
    byte q, other, own;
    bit may;
    {
        do
        :: writes ->
            write(p);
            writes--;
            if
            :: p == 1 && !bitmap[p] ->
                note_spare(0);
                note_spare(1)
            :: else
            fi
        :: else -> break
        od
    } unless { dead[id] };
    over[id] = 1
}

/* Of page 1. */
proctype reader(byte id)
{
    byte v, q, got;
    bit b;
    {
#ifdef MUTANT_PLACE_FIRST
        q = noted[1];
#endif
        v = version[1];
        if
        :: v ->
            b = bitmap[1];
#ifndef MUTANT_PLACE_FIRST
            q = noted[1];
#endif
            if
            :: b && q -> got = ref[q - 1]
            :: else -> got = 16 + home[1]
            fi;
            d_step {
                if
                :: version[1] == v -> assert(got == 16 + shown[1]) /* assert read */
                :: else
                fi
            }
        :: else /* it loads the page first */
        fi
    } unless { dead[id] };
    over[id] = 1
}

/* ---- between two lives ---- */

inline keep(durable, visible)
{
    if
    :: durable != visible ->
        if
        :: durable = visible
        :: visible = durable
        fi
    :: else
    fi
}

inline power_cut()
{
    keep(d_number[0], number[0]);
    keep(d_word[0], word[0]);
    keep(d_ref[0], ref[0]);
    keep(d_number[1], number[1]);
    keep(d_word[1], word[1]);
    keep(d_ref[1], ref[1]);
    keep(d_home[1], home[1]);
    keep(d_home[2], home[2]);
    keep(d_home[3], home[3])
}

/* flush_words(): numbers too. All else that is visible may become durable later, or not. */
inline settle()
{
#ifndef MUTANT_NO_SETTLE
    d_word[0] = word[0];
    d_word[1] = word[1];
    d_number[0] = number[0];
    d_number[1] = number[1]
#else
    skip
#endif
}

inline add(q)
{
    if
    :: number[q] ->
        assert(!(index[number[q]] && word[q] && word[index[number[q]] - 1])); /* assert one */
        if
#ifdef MUTANT_ANY_ENTRY
        :: !index[number[q]] -> index[number[q]] = q + 1
#else
        :: !index[number[q]] || word[q] -> index[number[q]] = q + 1
#endif
        :: else
        fi;
        next = q + 1
    :: else
    fi
}

inline check(p)
{
    if
    :: index[p] && word[index[p] - 1] -> got = ref[index[p] - 1]
    :: else -> got = 16 * p + home[p]
    fi;
    assert(got == 16 * p + done[p] || got == 16 * p + begun[p]); /* assert content */
    done[p] = got - 16 * p;
    begun[p] = done[p];
    shown[p] = done[p];
    noted[p] = 0;
    version[p] = 0;
    holder[p] = 0;
    bitmap[p] = 0
}

/* Lanes and manifests are others' matter. */
inline place_build()
{
    d_step {
        if
        :: !clean -> settle()
        :: else
        fi;
        index[1] = 0;
        index[2] = 0;
        index[3] = 0;
        next = 0;
        spare[0] = 0;
        spare[1] = 0;
        add(0);
        add(1);
        check(1);
        check(2);
        check(3);
        got = 0
    }
}

inline kill(k)
{
    d_step { !dead[k] && !over[k] && killed < KILLS -> dead[k] = 1; killed++ }
}

#define all_over (over[0] && over[1] && over[2] && over[3])

init
{
    byte got;
    bit clean;
    d_step {
        number[0] = 1;
        d_number[0] = 1;
        word[0] = 1;
        d_word[0] = 1;
        ref[0] = 16;
        d_ref[0] = 16;
        number[1] = 2 * EXCHANGE;
        d_number[1] = 2 * EXCHANGE
    };
    do
    :: life < LIVES ->
        place_build();
        atomic {
            run writer(0, 1, WRITES);
            run writer(1, 2, 1);
            if
            :: CLAIMER -> run writer(2, 3, 1)
            :: CLAIMER -> run writer(2, 1, 1)
            :: CLAIMER && EXCHANGE -> run writer(2, 2, 1)
            :: else -> over[2] = 1
            fi;
            if
            :: READER -> run reader(3)
            :: else -> over[3] = 1
            fi
        };
        do
        :: kill(0)
        :: kill(1)
        :: kill(2)
        :: all_over ->
            /* make_ready(): state clean */
            clean = 1;
#ifndef MUTANT_CLEAN_AFTER_DEATH
            d_step { if :: killed -> settle() :: else fi };
#endif
            break
#if !READER
        :: d_step { dead[0] = 1; dead[1] = 1; dead[2] = 1; dead[3] = 1 };
            all_over;
            clean = 0;
            if
            :: power_cut()
            :: true /* all are killed at once */
            fi;
            break
#endif
        od;
        life++;
        d_step {
            dead[0] = 0; dead[1] = 0; dead[2] = 0; dead[3] = 0;
            over[0] = 0; over[1] = 0; over[2] = 0; over[3] = 0
        }
    :: else -> break
    od;
    place_build()
}
