/* SPDX-License-Identifier: BSD-3-Clause */
#include "write_lock.h"

#include "json.h"

#include "lib/api/shared.h"
#include "lib/file/clock.h"
#include "reflection/media/report.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Reads the memory that living processes share for the file. Returns whether there is such memory, of SQLite's locks. */
static bool read_words(const struct look *l, struct lock_words *words)
{
    struct shared_memory h;
    uint32_t user, random;
    if (shared_memory_find(l->fd, &user, &random) != 1)
        return false;
    const int fd CLOSING = shared_memory_open(&l->identity, user, random, O_RDONLY, &h);
    return fd >= 0 && h.bytes == SHARED_MEMORY_AT + sizeof(*words) &&
           pread(fd, words, sizeof(*words), SHARED_MEMORY_AT) == (ssize_t)sizeof(*words) &&
           words->kind == LOCK_WORDS;
}

static bool has_door(int fd, uint64_t word)
{
    const unsigned door = word >> 16 & 0xffff;
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FIRST_DOOR + (off_t)door, .l_len = 1};
    return door < DOORS && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

/* Returns the process of a line's word; NULL: it is dead. */
static struct lock_user *user_of(struct write_lock *w, uint64_t word, int fd)
{
    for (unsigned i = 0; i < w->count; i++)
        if (((w->users[i].owner ^ word) & OWNER) == 0)
            return &w->users[i];
    if (w->count == DOORS || !has_door(fd, word))
        return NULL;
    w->users[w->count].owner = word & OWNER;
    w->users[w->count].name.slot = word >> 16 & 0xffff;
    return &w->users[w->count++];
}

static void raise_to(uint64_t *most, uint64_t value)
{
    if (*most < value)
        *most = value;
}

static void add_line(struct lock_user *u, const struct line *line, uint64_t writer, uint64_t now)
{
    const uint64_t passed = line->since && line->since < now ? now - line->since : 0;
    u->holds_ended += line->holds;
    u->waits += line->waits;
    raise_to(&u->longest_hold, line->longest_hold);
    raise_to(&u->longest_wait, line->longest_wait);
    if (writer && ((writer ^ line->word) & ~(uint64_t)STATE) == 0) {
        u->holds = true;
        u->held = passed;
        raise_to(&u->longest_hold, passed);
    } else if (line->ticket) {
        u->waiting++;
        raise_to(&u->waited, passed);
        raise_to(&u->longest_wait, passed);
    }
}

void write_lock_look(struct write_lock *w, const struct look *l)
{
    static struct lock_words words;
    struct stat st;
    memset(w, 0, sizeof(*w));
    w->is_known = fstat(l->fd, &st) == 0 && read_words(l, &words);
    if (!w->is_known)
        return;
    w->holds = words.uses;
    w->waits = words.tickets;
    w->longest_hold = words.longest_hold;
    w->longest_wait = words.longest_wait;
    const uint64_t now = clock_ns();
    for (unsigned i = 0; i < LINES; i++) {
        const struct line *line = &words.lines[i];
        struct lock_user *u = line->word ? user_of(w, line->word, l->fd) : NULL;
        if (!u)
            continue;
        if (!u->name.pid)
            look_holder_find(&u->name, line->pid, &st);
        add_line(u, line, words.writer, now);
        raise_to(&w->longest_hold, u->longest_hold);
        raise_to(&w->longest_wait, u->longest_wait);
    }
}

static uint64_t ms(uint64_t ns)
{
    return ns / 1000000;
}

void write_lock_write(const struct write_lock *w, struct json *j)
{
    if (!w->is_known) {
        json_string(j, "write_lock", NULL);
        return;
    }
    json_object(j, "write_lock");
    json_number(j, "holds", w->holds);
    json_number(j, "waits", w->waits);
    json_number(j, "longest_hold_ms", ms(w->longest_hold));
    json_number(j, "longest_wait_ms", ms(w->longest_wait));
    json_list(j, "processes");
    for (unsigned i = 0; i < w->count; i++) {
        const struct lock_user *u = &w->users[i];
        json_object(j, NULL);
        json_known(j, "pid", u->name.pid, u->name.pid);
        json_string(j, "command", u->name.pid ? u->name.command : NULL);
        json_known(j, "held_ms", u->holds, ms(u->held));
        json_number(j, "waiting", u->waiting);
        json_known(j, "waited_ms", u->waiting, ms(u->waited));
        json_number(j, "holds", u->holds_ended);
        json_number(j, "waits", u->waits);
        json_number(j, "longest_hold_ms", ms(u->longest_hold));
        json_number(j, "longest_wait_ms", ms(u->longest_wait));
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

const char *write_lock_text(char to[WRITE_LOCK_TEXT], const struct lock_user *u)
{
    *to = '\0';
    if (u->holds)
        (void)snprintf(to, WRITE_LOCK_TEXT, "has it for %.3f s", (double)u->held / 1e9);
    if (u->waiting) {
        const size_t n = strlen(to);
        (void)snprintf(to + n, WRITE_LOCK_TEXT - n, "%swaits for %.3f s",
                       n ? ", and another connection " : "", (double)u->waited / 1e9);
    }
    return to;
}
