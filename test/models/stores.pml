/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plain stores: is what a process has stored told apart from what others commit to the same page meanwhile? store_look_before(),
 * store_look_after() of store_views.c, around each change of the original (deploy.c, show.c, takeover.c), and stage(), give_back() of
 * stores.c.
 *
 * One page of three words, each a slice. Process 0 commits COMMITS times: its n-th commit makes words 0 and 2 n. Its change of the original
 * takes a step for each. Process 1 has a view. ROUNDS times it stores to word 1, and perhaps to word 2 something that it was before, and
 * commits. Its first store makes a copy, word by word. KILLS: process 0 may be killed at any
 * step of a change; process 2 goes on with its commits. It takes the page over then, or process 1 does when it needs it.
 *
 * What is checked, when process 1 commits:
 *   - its word 1 is there                                                             assert own
 *   - word 0, to which it does not store, has what process 0 has committed last       assert other
 *   - so has word 2, if it did not change it                                          assert same
 *   - if it has, it has what it stored, unless its copy was made while a change was
 *     under way: then perhaps it is as it was                                         assert later
 *   - no deadlock
 *
 * Nobody looks while a copy is being made. In truth the kernel shows it some instructions after it has read the page: a whole change in
 * between, with both looks, is not noticed (mutant SEEN_LATE; the manual says so).
 *
 * tools/check-models runs this, and with these, each of which has to be found:
 *   MUTANT_NOT_KEPT      nothing is kept: a copy is compared with the original
 *   MUTANT_NEWEST        it is compared with what was kept last
 *   MUTANT_SURE          all copies are taken for such as were made before the change
 *   MUTANT_DROPPED       what is kept is dropped at the next change
 *   MUTANT_NOT_DROPPED   what is kept stays for a view that has no copy when the change is over
 *   MUTANT_KEPT_AFTER    what is kept is not there while the change is under way
 *   MUTANT_LATE_BACK     a copy is given back when others may change the original
 *   MUTANT_SEEN_LATE     others look while a copy is being made, and do not see it
 */
#ifndef COMMITS
#define COMMITS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef KILLS
#define KILLS 0
#endif

#define W     3 /* words */
#define MOST  4 /* kept contents */
#define OWN   (10 + r)

byte o[W];                        /* the original */
byte holder;                      /* of the page; process + 1 */
byte target;                      /* what process 0 has committed: a takeover finds it on the media */
bit dead;

/* What is kept, for the one view there is: the oldest first. */
byte kept[MOST * W];
bit unsure[MOST];
byte n;

/* The copy of process 1. */
byte copy[W];
bit has, copying;

byte word2;                       /* ghost: what the last commit has made of it */
byte changes;                     /* ghost */

/* ---- a change of the original ---- */

#ifdef MUTANT_SEEN_LATE
#define LOOKS true
#else
#define LOOKS !copying
#endif

inline look_before()
{
    d_step {
        LOOKS ->
        before = has;
#ifdef MUTANT_DROPPED
        n = 0;
#endif
        if
        :: !before -> n = 0
        :: else
        fi;
        i = 0;
        found = 0;
        do
        :: i < n -> found = found || !unsure[i]; i++
        :: else -> break
        od;
#ifdef MUTANT_NOT_KEPT
        found = 1;
#endif
        if
        :: !found ->
            assert(n < MOST);
            kept[n * W] = o[0];
            kept[n * W + 1] = o[1];
            kept[n * W + 2] = o[2];
#ifdef MUTANT_SURE
            unsure[n] = 0;
#else
            unsure[n] = !before;
#endif
            n++
        :: else
        fi;
        i = 0;
        found = 0;
        before = 0
    }
}

inline look_after()
{
    d_step {
        LOOKS ->
#ifndef MUTANT_NOT_DROPPED
        if
        :: !has -> n = 0
        :: else
        fi
#else
        skip
#endif
    }
}

/* Process 0 may die between any two steps. */
#define MAY_DIE                                        \
    if                                                 \
    :: KILLS && me == 0 -> d_step { dead = 1; DIED }; goto end  \
    :: true                                            \
    fi
#ifdef MUTANT_KEPT_AFTER
#define DIED n = 0
#else
#define DIED skip
#endif

inline change()
{
    changes++;
    look_before();
    MAY_DIE;
    o[0] = target;
    MAY_DIE;
    o[2] = target;
    word2 = target;
    MAY_DIE;
    look_after();
    MAY_DIE
}

/* Holds the page. What a dead process held is taken over, with a change to the same content. */
inline hold()
{
    do
    :: atomic { holder == 0 -> holder = me + 1; break }
    :: atomic { holder == 1 && dead && me != 0 -> holder = me + 1; dead = 0 } ->
        change();
        break
    od
}

/* ---- the processes ---- */

inline commits()
{
    do
    :: target < COMMITS ->
        hold();
        skip;
        d_step { target++; word2 = target };
        change();
        holder = 0
    :: else -> break
    od
}

proctype committer()
{
    byte me = 0, i;
    bit before, found;
    commits();
end:
    skip
}

/* Goes on for process 0, if that dies. */
proctype heir()
{
    byte me = 2, i;
    bit before, found;
end_waits:
    dead;
    hold();
    holder = 0;
    commits();
end:
    skip
}

/* Words of `was` become those of what came then. */
inline follow(a, b)
{
    i = 0;
    do
    :: i < W ->
        if
        :: copy[i] == kept[a * W + i] -> copy[i] = (b < n -> kept[b * W + i] : o[i])
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

proctype storer()
{
    byte me = 1, r, i, k, was[W], at, seen, stored;
    bit before, found, mixed, changed;
    do
    :: r < ROUNDS ->
        r++;
        atomic {
            at = changes;
            mixed = holder != 0;
            copying = 1;
            copy[0] = o[0]
        };
        copy[1] = o[1];
        atomic {
            copy[2] = o[2];
            has = 1;
            copying = 0;
            mixed = mixed || holder || at != changes
        };
        atomic { copy[1] = OWN; seen = copy[2]; changed = 0 };
        if
        :: stored = 0; changed = stored != seen; copy[2] = stored
        :: target > 1 -> stored = target - 1; changed = stored != seen; copy[2] = stored
        :: true
        fi;
        hold();
        skip;
        d_step {
            /* stage() */
            k = 0;
#ifdef MUTANT_NEWEST
            k = (n -> n - 1 : 0);
#endif
            do
            :: k < n && unsure[k] -> follow(k, k + 1); k++
            :: else -> break
            od;
            i = 0;
            do
            :: i < W ->
                was[i] = (k < n -> kept[k * W + i] : o[i]);
                if
                :: copy[i] != was[i] -> o[i] = copy[i]
                :: else
                fi;
                i++
            :: else -> break
            od;
            i = 0;
            k = 0;
            assert(o[1] == OWN);      /* assert own */
            assert(o[0] == target);   /* assert other */
            if
            :: !changed -> assert(o[2] == word2) /* assert same */
            :: changed && !mixed -> assert(o[2] == stored) /* assert later */
            :: else -> assert(o[2] == stored || o[2] == word2)
            fi;
            word2 = o[2];
            n = 0;
#ifndef MUTANT_LATE_BACK
            has = 0
#endif
        };
        holder = 0;
        has = 0
    :: else -> break
    od;
end:
    skip
}

init
{
    atomic {
        run committer();
        run storer();
        if
        :: KILLS -> run heir()
        :: else
        fi
    }
}
