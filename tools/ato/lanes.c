/* SPDX-License-Identifier: BSD-3-Clause */
#include "lanes.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/recovery/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct visits {
    const struct folder *folder;
    const struct look_manifest *manifest;
    const struct trust *trust;
    lanes_visit *visit;
    void *arg;
};

struct range {
    uint64_t begin, bytes;
};

/* Returns the bytes in memory that the caller frees, with zeros for those behind the file's end; NULL. */
static char *read_range(int fd, const struct range *at)
{
    const size_t room = ((size_t)at->bytes + 4095) & ~(size_t)4095;
    char *bytes = aligned_alloc(4096, room);
    if (bytes)
        memset(bytes, 0, room);
    else
        report_error(ENOMEM, "no memory to read the lanes of a file");
    for (uint64_t got = 0; bytes && got < at->bytes;) {
        ssize_t more = pread(fd, bytes + got, at->bytes - got, (off_t)(at->begin + got));
        if (more <= 0)
            break;
        got += (uint64_t)more;
    }
    return bytes;
}

static int locate(const struct lanes *l, const struct visits *v, char *bytes, uint64_t n,
                  struct journal *j)
{
    if (!bytes)
        return -1;
    if (!l->number) {
        *j = journal_of_slot(bytes + MANIFEST_AREA_LANES, v->manifest->record.domain);
        return 0;
    }
    return pool_find(j, bytes, n, l->number, l->path);
}

static void visit_range(struct lanes *l, const struct visits *v, int fd, const struct range *at)
{
    char *first = read_range(fd, at), *second = NULL;
    int r = locate(l, v, first, at->bytes, &l->journal);
    if (r == 0 && l->changing) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        second = read_range(fd, at);
        r = locate(l, v, second, at->bytes, &l->again);
    }
    l->error = r < 0 ? errno : 0;
    v->visit(v->arg, l);
    free(first);
    free(second);
}

/* Finds the journal, with the checks of pool_open(). Returns 0; -1 with errno. */
static int find_journal(const struct visits *v, const char *name, const struct lanes *l, int fd,
                        struct range *at)
{
    if (fd < 0)
        return report_errno(errno, "cannot open the journal %s, which the manifest names", l->path);
    if (v->trust && ownership_check(v->trust, fd, v->folder->path, name) < 0) {
        errno = EUCLEAN;
        return -1;
    }
    const uint64_t length = (uint64_t)l->st.st_size;
    struct range first = {0, length < POOL_LEAST_BYTES ? length : POOL_LEAST_BYTES};
    struct journal j;
    char *head = read_range(fd, &first);
    int r = head ? pool_find(&j, head, length, l->number, l->path) : -1;
    if (r == 0)
        *at = (struct range){0, (uint64_t)(journal_end(&j) - head)};
    free(head);
    return r;
}

static void visit_journal(struct lanes *l, const struct visits *v)
{
    const struct look_manifest *m = v->manifest;
    char name[POOL_NAME_BYTES];
    struct range at;
    uint64_t now;
    pool_name(name, l->number);
    snprintf(l->path, sizeof(l->path), "%s/%s", v->folder->path, name);
    int fd = look_into(v->folder, name, &l->st);
    l->changing = l->alive || (fd >= 0 && locks_ask(fd, 0, 1) == LOCKS_TAKEN);
    if (find_journal(v, name, l, fd, &at) == 0) {
        visit_range(l, v, fd, &at);
    } else {
        l->error = errno;
        /* If it is no longer named, it may have been removed meanwhile. */
        if (area_journal(m->fd, l->slot, l->path, &now) == 0 && now == l->number)
            v->visit(v->arg, l);
    }
    if (fd >= 0)
        close(fd);
}

static void visit_slot(const struct visits *v, unsigned slot)
{
    const struct look_manifest *m = v->manifest;
    const struct range area = {manifest_area(slot), MANIFEST_AREA_BYTES};
    struct lanes l = {.slot = slot};
    uint64_t number;
    l.alive = l.changing = locks_ask(m->fd, 1 + (off_t)slot, 1) == LOCKS_TAKEN;
    snprintf(l.path, sizeof(l.path), "%s/%" PRIu64 ".manifest", v->folder->path, m->record.inode);
    visit_range(&l, v, m->fd, &area);
    if (area_journal(m->fd, slot, l.path, &number) < 0) {
        l.error = errno;
        v->visit(v->arg, &l);
    } else if (number) {
        l.number = number;
        visit_journal(&l, v);
    }
}

enum journal_finding lanes_look(const struct lanes *l, unsigned lane, struct journal_view *v)
{
    enum journal_finding found = journal_look(&l->journal, lane, v);
    if (found == JOURNAL_DAMAGED && l->changing)
        found = journal_look(&l->again, lane, v);
    return found;
}

void lanes_each(const struct folder *f, const struct look_manifest *m, const struct trust *trust,
                lanes_visit *visit, void *arg)
{
    const struct visits v = {f, m, trust, visit, arg};
    unsigned slot = 0;
    if (m->found == MANIFEST_VALID && area_are_lost(&m->record))
        return;
    while ((slot = area_next(m->fd, slot)) < MANIFEST_SLOTS)
        visit_slot(&v, slot++);
}

unsigned lanes_file(const struct journal_view *v, const uint8_t id[16])
{
    unsigned i = 0;
    while (i < v->nfiles && memcmp(v->files[i].id, id, 16) != 0)
        i++;
    return i;
}
