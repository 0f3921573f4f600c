/* SPDX-License-Identifier: BSD-3-Clause */
#include "locks.h"

#include "lock_words.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static_assert(sizeof(((struct lock_words *)0)->facts) == LOCKS_FACTS * 4, "a word each");

/* How long the head of the queue lets others overtake it. For a patient one this is longer than a thousand transactions last, so
 * that fewer than one of a thousand has to wait. */
enum { TURN_NS = 1000 * 1000, LONG_TURN_NS = 10 * TURN_NS };

/* A turn ends if its owner has not taken RESERVED for so long: that process may be stopped. */
enum { UNUSED_NS = 5 * TURN_NS };

/* For how long a refusal keeps commits from being early. */
enum { REFUSED_NS = 5 * TURN_NS };

/* A writer that goes on takes RESERVED again sooner. */
enum { LEFT_NS = 10 * 1000 };

/* How long to sleep at most, and how long before the kernel is asked whether the other one lives. */
enum { NAP_NS = 1000 * 1000 };

/* Tries before the first sleep: some 100 us, longer than a commit or a read takes, and than a sleep and a wake cost. */
enum { SPINS = 1500 };

/* After so many commits beside readers a writer lets them have its CPU: each commit puts the caches of readers out of date, so
 * that on few CPUs they would get little done. */
enum { COMMITS = 32 };

#define LOAD(at)         __atomic_load_n(at, __ATOMIC_SEQ_CST)
#define STORE(at, value) __atomic_store_n(at, value, __ATOMIC_SEQ_CST)
#define NOTE(at, value)  __atomic_store_n(at, value, __ATOMIC_RELAXED) /* for those that look */
#define SWAP(at, value)  __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST)

/* Replaces `old`, if that is still there. */
#define REPLACE(at, old, value)                                                                    \
    __atomic_compare_exchange_n(at, &(__typeof__(*(at))){old}, value, false, __ATOMIC_SEQ_CST,     \
                                __ATOMIC_SEQ_CST)

static uint64_t word_of(const struct locks *l, int line)
{
    return l->owner | (uint64_t)line << 2;
}

/* The kernel's time of the last tick: it costs nothing. */
static uint64_t tick(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Stores the time that has passed since then, if that is the longest. */
static void note_longest(uint64_t *ofline, uint64_t *ofall, uint64_t since, uint64_t now)
{
    const uint64_t passed = now > since ? now - since : 0;
    uint64_t longest = LOAD(ofall);
    if (passed > *ofline)
        NOTE(ofline, passed);
    while (passed > longest && !REPLACE(ofall, longest, passed))
        longest = LOAD(ofall);
}

/* The line that a word names. Any word may be there. */
static struct line *line_of(const struct locks *l, uint64_t word)
{
    return &l->words->lines[(word & ~OWNER) >> 2 < LINES ? (word & ~OWNER) >> 2 : 0];
}

static unsigned used_lines(const struct locks *l)
{
    const unsigned used = LOAD(&l->words->used);
    return used < LINES ? used : LINES;
}

/* ---- doors ---- */

static bool lock_doors(int fd, short type, int first, int n)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = FIRST_DOOR + first, .l_len = n};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool locks_open_door(struct locks *l, int fd, bool *is_first)
{
    int door = 0;
    *is_first = lock_doors(fd, F_WRLCK, 0, DOORS);
    if (*is_first)
        (void)lock_doors(fd, F_UNLCK, 1, DOORS - 1);
    else
        while (!lock_doors(fd, F_WRLCK, door, 1))
            if (++door == DOORS)
                return false;
    *l = (struct locks){.fd = fd, .owner = (uint64_t)door << 16};
    return true;
}

bool locks_open_door_within(struct locks *l, int fd, bool *is_first)
{
    /* SQLite's lock is the process's, and excludes that of an open file description of the same process, too. Its PENDING lock stays:
     * no other process gets a door or SHARED meanwhile. */
    struct flock lock = {
        .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = FIRST_DOOR, .l_len = DOORS};
    return fcntl(fd, F_SETLK, &lock) == 0 && locks_open_door(l, fd, is_first);
}

bool locks_are_held(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* of any byte */
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid == getpid();
}

bool locks_are_last(const struct locks *l)
{
    return lock_doors(l->fd, F_WRLCK, 0, DOORS); /* until locks_close_door() */
}

void locks_close_door(struct locks *l, bool is_last)
{
    if (l->words)
        (void)ato_shared_end(l->fd, l->words, sizeof(*l->words), is_last);
    (void)lock_doors(l->fd, F_UNLCK, 0, DOORS);
    *l = (struct locks){.fd = -1};
}

/* A process at the same door is this one, or one that has died. */
static bool is_alive(const struct locks *l, uint64_t word)
{
    const int door = word >> 16 & 0xffff;
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FIRST_DOOR + door, .l_len = 1};
    if (door == (int)(l->owner >> 16 & 0xffff))
        return (word & OWNER) == l->owner;
    return door < DOORS && fcntl(l->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- sleep ---- */

static bool wake(uint32_t *futex, int n)
{
    const bool asleep = LOAD(futex) && SWAP(futex, 0);
    if (asleep)
        (void)syscall(SYS_futex, futex, FUTEX_WAKE, n, NULL, NULL, 0);
    return asleep;
}

/* After the writer's word is free. Returns whether readers slept. */
static bool wake_others(struct locks *l)
{
    const unsigned next = LOAD(&l->words->next);
    if (next && next <= LINES)
        (void)wake(&l->words->lines[next - 1].asleep, 1);
    return wake(&l->words->readers, INT32_MAX);
}

/* Frees what the owner of a word held, if it is dead. What it was committing is visible by then, or never will be. */
static enum locks_result bury(struct locks *l, uint64_t word)
{
    if (!word || is_alive(l, word))
        return LOCKS_OK;
    const uint64_t writer = LOAD(&l->words->writer);
    if (((writer ^ word) & OWNER) == 0) {
        const enum locks_result r = l->settle(l->of);
        if (r != LOCKS_OK)
            return r;
        (void)REPLACE(&l->words->writer, writer, 0);
    }
    for (unsigned i = 0; i < used_lines(l); i++) {
        struct line *line = &l->words->lines[i];
        const uint64_t left = LOAD(&line->word);
        if (!left || ((left ^ word) & OWNER) != 0)
            continue;
        STORE(&line->ticket, 0); /* a living one stores its ticket again */
        (void)REPLACE(&l->words->next, i + 1, 0);
        (void)REPLACE(&line->word, left, 0);
    }
    (void)wake_others(l);
    return LOCKS_OK;
}

struct wait {
    uint32_t *futex;
    uint64_t length, end; /* end: 0 until the first tries are over */
    uint64_t asked;       /* when the kernel was asked, or the wait began */
    int spins;
    bool sleeps; /* the caller sets the futex to 1, then looks again, before it calls rest() */
};

/* Rests, at most for `most`, before the caller looks again whether the owner of `holder` has ended what it does. */
static enum locks_result rest(struct locks *l, struct wait *w, uint64_t holder, uint64_t most)
{
    if (w->spins > 0) {
        w->spins--;
        __builtin_ia32_pause();
        return LOCKS_OK;
    }
    const uint64_t time = locks_clock();
    if (!w->sleeps) {
        w->sleeps = true;
        w->asked = time;
        if (!w->end)
            w->end = time + w->length;
        return w->length ? LOCKS_OK : bury(l, holder);
    }
    if (time - w->asked >= NAP_NS) {
        w->asked = time;
        return bury(l, holder);
    }
    if (time >= w->end)
        return LOCKS_BUSY;
    const uint64_t left = w->end - time, ns = left < most ? left : most;
    const struct timespec limit = {.tv_sec = 0, .tv_nsec = (long)ns};
    (void)syscall(SYS_futex, w->futex, FUTEX_WAIT, 1, &limit, NULL, 0);
    return LOCKS_OK;
}

/* ---- lines ---- */

enum locks_result locks_attach(struct locks *l, enum locks_result (*settle)(const void *of),
                               const void *of)
{
    l->words = ato_shared(l->fd, sizeof(struct lock_words));
    if (!l->words)
        return LOCKS_FAILED;
    NOTE(&l->words->kind, LOCK_WORDS);
    l->settle = settle;
    l->of = of;
    const uint64_t number = __atomic_add_fetch(&l->words->processes, 1, __ATOMIC_SEQ_CST);
    l->owner |= number << 32;
    return LOCKS_OK;
}

bool locks_are_lost(const struct locks *l)
{
    return ato_shared_check(l->words) < 0;
}

enum locks_result locks_succeed(struct locks *l)
{
    const uint64_t door = l->owner & 0xffff0000;
    uint64_t word = LOAD(&l->words->writer);
    enum locks_result r = LOCKS_OK;
    for (unsigned i = 0; i <= used_lines(l) && r == LOCKS_OK; i++) {
        if (word && (word & 0xffff0000) == door)
            r = bury(l, word);
        word = LOAD(&l->words->lines[i % LINES].word);
    }
    return r;
}

int locks_take_line(struct locks *l)
{
    int line = 0;
    while (line < LINES && !REPLACE(&l->words->lines[line].word, 0, word_of(l, line)))
        line++;
    if (line == LINES)
        return -1;
    struct line *mine = &l->words->lines[line];
    NOTE(&mine->pid, (uint32_t)getpid());
    NOTE(&mine->waits, 0);
    NOTE(&mine->since, 0);
    NOTE(&mine->holds, 0);
    NOTE(&mine->longest_hold, 0);
    NOTE(&mine->longest_wait, 0);
    uint32_t used = LOAD(&l->words->used);
    while (used < (uint32_t)line + 1 && !REPLACE(&l->words->used, used, (uint32_t)line + 1))
        used = LOAD(&l->words->used);
    return line;
}

void locks_drop_line(struct locks *l, int line)
{
    STORE(&l->words->lines[line].word, 0);
}

/* ---- readers ---- */

static bool is_mine(const struct locks *l, int line, uint64_t writer)
{
    return ((writer ^ word_of(l, line)) & ~(uint64_t)STATE) == 0;
}

void locks_unshare(struct locks *l, int line)
{
    /* order[lock-words]: before the look at the writer, who may have looked at the line before. */
    (void)SWAP(&l->words->lines[line].word, word_of(l, line));
    const uint64_t writer = LOAD(&l->words->writer);
    if ((writer & STATE) > RESERVED)
        (void)wake(&line_of(l, writer)->asleep, 1);
}

/* Does the writer keep a reader out? */
static bool keeps_out(uint64_t writer, bool sees)
{
    return (writer & STATE) > (sees ? FOR_COMMIT : RESERVED);
}

enum locks_result locks_share(struct locks *l, int line, bool sees, uint64_t wait)
{
    struct wait w = {.futex = &l->words->readers, .length = wait};
    enum locks_result r = LOCKS_OK;
    while (r == LOCKS_OK) {
        /* order[lock-words]: before the look at the writer. Pairs with the store of PENDING. */
        (void)SWAP(&l->words->lines[line].word, word_of(l, line) | (sees ? SEES : SHARES));
        uint64_t writer = LOAD(&l->words->writer);
        if (!keeps_out(writer, sees) || is_mine(l, line, writer))
            return LOCKS_OK;
        locks_unshare(l, line);
        w.spins = SPINS;
        w.sleeps = false;
        do {
            r = rest(l, &w, writer, NAP_NS);
            if (w.sleeps)
                STORE(w.futex, 1);
            writer = LOAD(&l->words->writer);
        } while (r == LOCKS_OK && keeps_out(writer, sees));
    }
    return r;
}

/* ---- the writer ---- */

/* Returns the line with the least ticket; LINES: none waits. */
static unsigned head(const struct locks *l)
{
    uint64_t least = UINT64_MAX;
    unsigned found = LINES;
    for (unsigned i = 0; i < used_lines(l); i++) {
        const uint64_t ticket = LOAD(&l->words->lines[i].ticket);
        if (ticket && ticket < least) {
            least = ticket;
            found = i;
        }
    }
    return found;
}

/* Whether RESERVED is free, and nobody else's turn. */
static bool is_free(const struct locks *l, int line)
{
    uint32_t next = LOAD(&l->words->next);
    if (LOAD(&l->words->writer))
        return false;
    if (next && next != (uint32_t)line + 1 && locks_clock() - LOAD(&l->words->since) >= UNUSED_NS) {
        (void)REPLACE(&l->words->next, next, 0);
        next = 0;
    }
    return !next || next == (uint32_t)line + 1;
}

/* Makes the line the writer, in that state, if there is none and it is nobody else's turn. */
static bool take(struct locks *l, int line, unsigned state)
{
    if (!is_free(l, line) || !REPLACE(&l->words->writer, 0, word_of(l, line) | state))
        return false;
    NOTE(&l->words->lines[line].since, tick());
    return true;
}

/* The same; what a dead writer has left is freed first. */
static enum locks_result take_over(struct locks *l, int line, unsigned state)
{
    const enum locks_result r = bury(l, LOAD(&l->words->writer));
    return take(l, line, state) ? LOCKS_OK : r == LOCKS_OK ? LOCKS_BUSY : r;
}

enum locks_result locks_try_reserve(struct locks *l, int line)
{
    return take_over(l, line, RESERVED);
}

/* Whether RESERVED is free, and stays so. */
static bool is_left(const struct locks *l)
{
    const uint64_t uses = LOAD(&l->words->uses), end = locks_clock() + LEFT_NS;
    while (!LOAD(&l->words->writer) && LOAD(&l->words->uses) == uses) {
        if (locks_clock() >= end)
            return true;
        __builtin_ia32_pause();
    }
    return false;
}

enum locks_result locks_reserve(struct locks *l, int line, struct locks_place *place, uint64_t wait)
{
    struct line *mine = &l->words->lines[line];
    struct wait w = {.futex = &mine->asleep, .length = wait};
    enum locks_result r = LOCKS_OK;
    unsigned first;
    if (!place->ticket) {
        if (take(l, line, RESERVED))
            return LOCKS_OK;
        place->ticket = __atomic_add_fetch(&l->words->tickets, 1, __ATOMIC_SEQ_CST);
        place->began = locks_clock();
        NOTE(&mine->waits, mine->waits + 1);
    }
    NOTE(&mine->since, place->began);
    while (r == LOCKS_OK) {
        STORE(&mine->ticket, place->ticket);
        if (w.sleeps)
            STORE(&mine->asleep, 1);
        const uint32_t next = LOAD(&l->words->next);
        if ((next == (uint32_t)line + 1 || is_left(l)) && take(l, line, RESERVED))
            break;
        first = head(l);
        if (first != (unsigned)line) {
            r = rest(l, &w, LOAD(&l->words->lines[first % LINES].word), 10 * NAP_NS);
            continue;
        }
        const uint64_t time = locks_clock();
        if (!place->head) {
            place->head = time;
            w.spins = SPINS;
        }
        const uint64_t turn = place->head + (place->is_patient ? LONG_TURN_NS : TURN_NS);
        const uint64_t nap = time < turn && turn - time < NAP_NS ? turn - time : NAP_NS;
        const bool is_turn = time >= turn && !next;
        if (is_turn)
            STORE(&l->words->since, time);
        if (is_turn && REPLACE(&l->words->next, 0, (uint32_t)line + 1))
            w.spins = SPINS; /* the writer may have given it back without a look at `next` */
        else
            r = rest(l, &w, LOAD(&l->words->writer), nap);
    }
    /* Leaves the queue. The next one may be asleep. */
    (void)REPLACE(&l->words->next, (uint32_t)line + 1, 0);
    STORE(&mine->ticket, 0);
    STORE(&mine->asleep, 0);
    note_longest(&mine->longest_wait, &l->words->longest_wait, place->began, locks_clock());
    first = head(l);
    if (first != LINES)
        (void)wake(&l->words->lines[first].asleep, 1);
    return r;
}

enum locks_result locks_exclude(struct locks *l, int line, bool all, uint64_t wait)
{
    const unsigned state = all ? FOR_ALL : FOR_COMMIT;
    struct wait w = {
        .futex = &l->words->lines[line].asleep, .length = wait, .spins = wait ? SPINS : 0};
    enum locks_result r =
        is_mine(l, line, LOAD(&l->words->writer)) ? LOCKS_OK : take_over(l, line, state);
    if (r != LOCKS_OK)
        return r;
    /* order[lock-words]: before the look at the lines. */
    (void)SWAP(&l->words->writer, word_of(l, line) | state);
    for (unsigned i = 0; i < used_lines(l); i++)
        for (;;) {
            if (w.sleeps)
                STORE(w.futex, 1);
            const uint64_t word = LOAD(&l->words->lines[i].word);
            if (i == (unsigned)line || (word & STATE) < (all ? SEES : SHARES))
                break;
            r = rest(l, &w, word, NAP_NS);
            if (r != LOCKS_OK)
                return r;
        }
    return LOCKS_OK;
}

static bool has_readers(const struct locks *l, int line)
{
    for (unsigned i = 0; i < used_lines(l); i++)
        if (i != (unsigned)line && LOAD(&l->words->lines[i].word) & STATE)
            return true;
    return false;
}

void locks_unreserve(struct locks *l, int line)
{
    if (!is_mine(l, line, LOAD(&l->words->writer)))
        return;
    struct line *mine = &l->words->lines[line];
    STORE(&l->words->uses, LOAD(&l->words->uses) + 1);
    NOTE(&mine->holds, mine->holds + 1);
    note_longest(&mine->longest_hold, &l->words->longest_hold, mine->since, tick());
    if (LOAD(&l->words->next))
        STORE(&l->words->since, locks_clock());
    /* order[lock-words]: before the look at those that wait, who look at the word once more before they sleep. */
    (void)SWAP(&l->words->writer, 0);
    if ((wake_others(l) || has_readers(l, line)) && ++mine->woke % COMMITS == 0)
        (void)sched_yield();
}

bool locks_are_contended(const struct locks *l, int line)
{
    return !is_free(l, line) && !is_mine(l, line, LOAD(&l->words->writer));
}

bool locks_may_hand_over(const struct locks *l, bool *was_refused)
{
    const uint64_t refused = LOAD(&l->words->refused);
    *was_refused = refused && locks_clock() - refused < REFUSED_NS;
    return !*was_refused && head(l) != LINES;
}

void locks_note_refusal(struct locks *l)
{
    STORE(&l->words->refused, locks_clock());
}

void locks_tell_use(const struct locks *l, struct locks_use *use)
{
    const struct lock_words *w = l->words;
    *use = (struct locks_use){0};
    if (!w)
        return;
    const uint64_t writer = LOAD(&w->writer), now = locks_clock();
    if (writer) {
        const uint64_t since = LOAD(&line_of(l, writer)->since);
        use->holder = LOAD(&line_of(l, writer)->pid);
        use->held = now > since ? now - since : 0;
    }
    for (unsigned i = 0; i < used_lines(l); i++)
        use->waiting += LOAD(&w->lines[i].ticket) != 0;
    use->holds = LOAD(&w->uses);
    use->waits = LOAD(&w->tickets);
    use->longest_hold = LOAD(&w->longest_hold);
    if (use->held > use->longest_hold)
        use->longest_hold = use->held;
    use->longest_wait = LOAD(&w->longest_wait);
}

bool locks_say(const struct locks *l, enum locks_fact fact)
{
    return LOAD(&l->words->facts[fact]);
}

void locks_set(struct locks *l, enum locks_fact fact, bool is_true)
{
    if (locks_say(l, fact) != is_true)
        STORE(&l->words->facts[fact], is_true);
}
