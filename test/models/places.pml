/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places of a sparse reflection: can a crash give a page what another one stored? take_new() of space.c, place_give() of place.c,
 * and place_build() after a crash; what a writer and a reader do around them is in short.
 *
 * Page 1 has place 0 at first, and a slice there. Process 0 writes page 1. Process 1 writes page 2, which has no place. With CLAIMER
 * process 2 writes page 2 too, or page 3, which has none either. With READER process 3 reads page 2, and there is no crash. A
 * write goes to the home that the bitmap calls invalid, so of two writes to page 1 the first brings the slice home. Each page has
 * one slice. Its content is the number of the write. Places 1 and 2 were never used.
 *
 * The media: what is visible (`number`, `word`, `ref`, `home`) and what is durable (`d_...`). KILLS processes are killed,
 * each at any step. A page that a dead one holds is taken over (takeover.pml has that in its steps). When all are over
 * (the file is unmapped cleanly) or dead, or after a power cut at any step, which keeps any part of what is visible and not
 * durable, the places are found anew from the media, and a second life follows (LIVES), which may end in the same ways.
 *
 * Page 0 is left out: entries that were never used look like its own (`empty` in place_build()). Memory is sequentially consistent.
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
 *   MUTANT_NO_E2        the number of the page is not durable before its word
 *   MUTANT_NOTE_FIRST   the place is noted in memory before the number is durable
 *   MUTANT_NO_SETTLE    the words are not made durable before the places are found anew
 *   MUTANT_CLEAN_AFTER_DEATH  the last process unmaps, and makes nothing durable that a killed one has left
 *   MUTANT_ANY_ENTRY    of two entries of a page the first counts, whichever has the bitmap
 *   MUTANT_PLACE_FIRST  a reader looks for the place before the version
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

#define PAGES 4 /* 0 is none */

#define PLACES 3
#define NONE PLACES

byte number[PLACES], ref[PLACES], home[PAGES], d_number[PLACES], d_ref[PLACES], d_home[PAGES];
bit word[PLACES], d_word[PLACES];

/* Shared memory: of a page, its place + 1, 0: none. */
byte index[PAGES], noted[PAGES], version[PAGES], holder[PAGES]; /* version 0: not loaded. holder: process + 1 */
bit bitmap[PAGES];
byte next; /* next_place */

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

/* make_places() for one page without a place. q is its place then; NONE: there is none. */
inline make_place(p)
{
    d_step {
        q = NONE;
        if
        :: next < PLACES -> q = next; next++ /* take_new() */
        :: else
        fi
    };
    if
    :: q < NONE -> /* place_give() */
        number[q] = p;
#ifdef MUTANT_NOTE_FIRST
        noted[p] = q + 1;
#endif
#ifndef MUTANT_NO_E2
        d_number[q] = p; /* E2 */
#endif
        noted[p] = q + 1
    :: else
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
        :: else -> make_place(p)
        fi;
        if
        :: q < NONE ->
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
    byte q;
    {
        do
        :: writes ->
            write(p);
            writes--
        :: else -> break
        od
    } unless { dead[id] };
    over[id] = 1
}

/* Of page 2. */
proctype reader(byte id)
{
    byte v, q, got;
    bit b;
    {
#ifdef MUTANT_PLACE_FIRST
        q = noted[2];
#endif
        v = version[2];
        if
        :: v ->
            b = bitmap[2];
#ifndef MUTANT_PLACE_FIRST
            q = noted[2];
#endif
            if
            :: b && q -> got = ref[q - 1]
            :: else -> got = 32 + home[2]
            fi;
            d_step {
                if
                :: version[2] == v -> assert(got == 32 + shown[2]) /* assert read */
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
    keep(d_number[2], number[2]);
    keep(d_word[2], word[2]);
    keep(d_ref[2], ref[2]);
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
    d_word[2] = word[2];
    d_number[0] = number[0];
    d_number[1] = number[1];
    d_number[2] = number[2]
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
        add(0);
        add(1);
        add(2);
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
        d_ref[0] = 16
    };
    do
    :: life < LIVES ->
        place_build();
        atomic {
            run writer(0, 1, WRITES);
            run writer(1, 2, 1);
            if
            :: CLAIMER -> run writer(2, 2, 1)
            :: CLAIMER -> run writer(2, 3, 1)
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
