/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a RefPage given back only if nothing needs it? A reclaimer, which deploys the page and gives its RefPage back
 * (deploy.c, reclaim.c, space.c), against a writer (write.c, store.c, commit.c),
 * a reader without a lock (read.c), first touch (reservation.c) and takeover (takeover.c).
 *
 * One page with two slices. At birth slice 0 is valid in R; or the last process died when it had deployed it and its word was
 * visible, and not durable. Nothing is loaded. The writer writes slice 0, slice 1 after it has completed it from its valid home, or
 * both. KILLS processes die between any two steps, and whoever wants the page that one of them holds takes it over.
 *
 * A hole reads as ZERO, and a store to it is SIGBUS. Memory is sequentially consistent: what stays in a buffer is read.pml's. The
 * fence W1 is there, and in the crash explorer. The file system does not make a hole later than what follows it. In a page cache,
 * where a hole may cost other pages their space, none is made (space_comes_back()).
 *
 * What is checked:
 *   - when the hole is made, no slice is valid in R, in memory, on the media, or after a power cut (I1, I2, W5)    assert unused
 *   - no store reaches a hole (P3)                                                                                 assert space
 *   - nobody who holds the page copies from a hole, nor a reader without noticing that the page has moved          assert bytes
 *   - a read returns one state of the page                                                                         assert content
 *   - all processes finish
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_NO_HOLD         gives back without a reservation
 *   MUTANT_LOOK_FIRST      looks at the bitmap before it has the reservation
 *   MUTANT_ANY_BITMAP      does not look at it at all: the page was deployed a moment ago
 *   MUTANT_KEEP_FLAG       the page still counts as one with space
 *   MUTANT_FLAG_LAST       that ends after the hole is made
 *   MUTANT_NO_W2           a deploy releases the page before its word is durable
 *   MUTANT_NO_R4           first touch takes the word as it is visible
 *   MUTANT_NO_RELOAD       takeover frees the page as it is in memory
 *   MUTANT_KEEP_VERSION    a deploy does not move the version
 *   MUTANT_NO_CHECK        the reader does not look at the version again
 */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef WRITES
#define WRITES 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

#define WRITER    0
#define RECLAIMER 1
#define READER    2
#define ZERO      0
#define BIRTH     7
#define GARBAGE   8
#define VERSIONS  24

/* ---- shared memory and media ---- */

byte holder;     /* page_state.holder: process + 1; 0: free */
byte version;    /* page_state.version */
byte bitmap;     /* page_state.bitmap: bit s for slice s */
bit allocated;   /* page_state.flags & PAGE_R_ALLOCATED */
byte word;       /* on the media, as it is visible */
bit space = 1;   /* R is no hole */
byte home[4];    /* slice s: O at s, R at s + 2 */

/* ---- ghosts ---- */

byte durable;    /* the word, as a power cut would leave it */
byte now[2];     /* what the file holds by the bitmap */
byte next[2];    /* and by the word */
byte content[2 * VERSIONS]; /* what it held in each version */
byte kills = KILLS;
bit dead[3];

#define at_r(s)    ((bitmap >> (s)) & 1)
#define valid(s)   ((s) + 2 * at_r(s))
#define invalid(s) ((s) + 2 - 2 * at_r(s))

/* A process may die here. */
#define may_die                                                                                    \
    if                                                                                             \
    :: true                                                                                        \
    :: atomic { kills -> kills--; dead[me] = 1; goto died }                                        \
    fi

/* Takes the mark off: the bitmap is that of the word. */
inline unmark()
{
    now[0] = next[0];
    now[1] = next[1];
    version++;
    assert(version < VERSIONS);
    content[2 * version] = now[0];
    content[2 * version + 1] = now[1]
}

/* reservation_take(); takeover_free(), reload(): flushes the word and reloads the bitmap, under a mark. */
inline reserve()
{
    do
    :: atomic { holder == 0 -> holder = me + 1; break }
    :: d_step {
        holder != 0 && dead[holder - 1] ->
#ifndef MUTANT_NO_RELOAD
        if
        :: version ->
            durable = word;
            version = version + (version & 1);
            bitmap = word;
            unmark()
        :: else
        fi;
#endif
        holder = 0
    }
    od
}

/* load_page(). */
inline load()
{
    d_step {
        if
        :: version == 0 ->
#ifndef MUTANT_NO_R4
            durable = word; /* R4 */
#endif
            bitmap = word;
            unmark()
        :: else
        fi
    }
}

/* show_one(). */
inline show_one(moves)
{
    version = version + moves;
    may_die;
    bitmap = word;
    d_step { if :: moves -> unmark() :: else -> now[0] = next[0]; now[1] = next[1] fi }
}

/* ---- the writer ---- */

/* store_page(), of one slice. */
inline store(s)
{
    assert(space || !at_r(s) || (mask & (1 << s)) == 0 || !part); /* assert bytes: completed from R */
    if
    :: mask & (1 << s) ->
        assert(space || at_r(s)); /* assert space */
        home[invalid(s)] = number;
        next_of[s] = number
    :: else -> next_of[s] = now[s]
    fi
}

proctype writer(byte me)
{
    byte writes, mask, number, next_of[2];
    bit part;
    do
    :: writes == WRITES -> break
    :: else ->
        writes++;
        number = writes;
        if
        :: mask = 1
        :: mask = 2; part = 1
        :: mask = 3
        fi;
        reserve();
        may_die;
        load();
        if
        :: !allocated -> /* space_make() */
            space = 1;
            may_die;
            allocated = 1
        :: else
        fi;
        d_step { store(0); store(1) };
        may_die;
        d_step { word = word ^ mask; next[0] = next_of[0]; next[1] = next_of[1] }; /* after W1 */
        may_die;
        durable = word; /* W2 */
        may_die;
        show_one(1);
        may_die;
        holder = 0;
        d_step { mask = 0; part = 0; number = 0; next_of[0] = 0; next_of[1] = 0 }
    od;
died:
    skip
}

/* ---- the reclaimer ---- */

/* deploy_held(): copies what is valid in R to O. */
inline deploy()
{
    d_step {
        assert(space || !bitmap); /* assert bytes */
        if :: at_r(0) -> home[0] = home[2] :: else fi;
        if :: at_r(1) -> home[1] = home[3] :: else fi
    };
    may_die;
    word = 0; /* after W1 */
    may_die;
#ifndef MUTANT_NO_W2
    durable = word; /* W2 */
    may_die;
#endif
#ifdef MUTANT_KEEP_VERSION
    show_one(0)
#else
    show_one(1)
#endif
}

/* space_give_back() */
inline punch()
{
#if !defined(MUTANT_KEEP_FLAG) && !defined(MUTANT_FLAG_LAST)
    allocated = 0;
    may_die;
#endif
    d_step {
        assert(!bitmap && !word && !durable); /* assert unused */
        space = 0;
        home[2] = ZERO;
        home[3] = ZERO
    };
    may_die;
#ifdef MUTANT_FLAG_LAST
    allocated = 0;
#endif
    skip
}

proctype reclaimer(byte me)
{
    byte rounds;
    bit sees;
    do
    :: rounds == ROUNDS -> break
    :: else ->
        rounds++;
        if
        :: reserve();
            may_die;
            load();
            if
            :: bitmap -> deploy()
            :: else
            fi;
            may_die;
            holder = 0
        :: true /* it was deployed before */
        fi;
        /* give_back() */
#if defined(MUTANT_NO_HOLD)
        sees = version && !bitmap;
        if :: sees -> punch() :: else fi;
#else
#if defined(MUTANT_LOOK_FIRST)
        sees = version && !bitmap;
#endif
        reserve();
        may_die;
        load();
#if defined(MUTANT_ANY_BITMAP)
        sees = 1;
#elif !defined(MUTANT_LOOK_FIRST)
        sees = !bitmap;
#endif
        if :: sees -> punch() :: else fi;
        may_die;
        holder = 0;
#endif
        sees = 0
    od;
died:
    skip
}

/* ---- the reader ---- */

/* read_copy(), of one slice; the bitmap was looked at before. */
inline gather(s)
{
    d_step {
        if
        :: (seen >> s) & 1 ->
            assert(space || version != noted); /* assert bytes */
            got[s] = home[s + 2]
        :: else -> got[s] = home[s]
        fi
    }
}

proctype reader(byte me)
{
    byte noted, seen, got[2];
    do
    :: version == 0 -> /* load_look() */
        reserve();
        load();
        holder = 0
    :: atomic { version & 1 -> noted = version };
        seen = bitmap;
        gather(0);
        gather(1);
#ifdef MUTANT_NO_CHECK
        break
#else
        if
        :: version == noted -> break
        :: else /* again */
        fi
#endif
    :: atomic { version != 0 && !(version & 1) && holder && dead[holder - 1] };
        reserve(); /* takes over what a dead process has marked */
        holder = 0
    od;
    assert(got[0] == content[2 * noted] && got[1] == content[2 * noted + 1]) /* assert content */
}

init
{
    atomic {
        durable = 1;
        now[0] = BIRTH;
        now[1] = BIRTH;
        next[0] = BIRTH;
        next[1] = BIRTH;
        home[1] = BIRTH;
        home[2] = BIRTH;
        home[3] = GARBAGE;
        if
        :: word = 1; home[0] = GARBAGE
        :: word = 0; home[0] = BIRTH /* killed in a deploy */
        fi;
        run writer(WRITER);
        run reclaimer(RECLAIMER);
        run reader(READER)
    }
}
