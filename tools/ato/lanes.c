/* SPDX-License-Identifier: BSD-3-Clause */
#include "lanes.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/recovery/redo.h"

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

/* Reads bytes [begin, begin + n) of a file, with zeros for those behind its end. Returns memory that the caller frees, or NULL. */
static char *read_range(int fd, uint64_t begin, uint64_t n)
{
    const size_t room = ((size_t)n + 4095) & ~(size_t)4095;
    char *bytes = aligned_alloc(4096, room);
    if (bytes)
        memset(bytes, 0, room);
    else
        report_error(ENOMEM, "no memory to read the lanes of a file");
    for (uint64_t got = 0; bytes && got < n;) {
        ssize_t more = pread(fd, bytes + got, n - got, (off_t)(begin + got));
        if (more <= 0)
            break;
        got += (uint64_t)more;
    }
    return bytes;
}

/* Checks the open journal as redo_open() does. Returns its length; 0 with errno. */
static uint64_t check_journal(const struct lanes *l, const struct visits *v, int fd)
{
    char header[sizeof(struct journal_header)] = {0};
    struct stat st;
    struct journal j;
    int r = -1;
    if (fd < 0 && errno == ENOENT)
        report_error(ENOENT, "the journal %s, which the manifest names, is missing: put it back",
                     l->path);
    else if (fd < 0)
        report_errno(errno, "cannot open the journal %s, which the manifest names", l->path);
    else if (v->trust &&
             ownership_check(v->trust, fd, v->folder->path, strrchr(l->path, '/') + 1) < 0)
        errno = EUCLEAN;
    else if (fstat(fd, &st) < 0 || pread(fd, header, sizeof(header), 0) < 0)
        report_errno(errno, "cannot read the journal %s", l->path);
    else
        r = journal_take(&j, header, (uint64_t)st.st_size, l->number, l->path);
    return r < 0 ? 0 : journal_length(&j);
}

/* Reads all lanes. Returns the bytes, which the caller frees; NULL with errno. */
static char *read_lanes(const struct lanes *l, const struct visits *v, int fd, struct journal *j)
{
    char *bytes;
    if (!l->number) {
        bytes = read_range(fd, manifest_area(l->slot), MANIFEST_AREA_BYTES);
        if (bytes)
            *j = journal_of_slot(bytes + MANIFEST_AREA_LANES, v->manifest->record.domain);
        return bytes;
    }
    const uint64_t n = check_journal(l, v, fd);
    bytes = n ? read_range(fd, 0, n) : NULL;
    if (bytes && journal_take(j, bytes, n, l->number, l->path) == 0)
        return bytes;
    KEEP_ERRNO();
    free(bytes);
    return NULL;
}

static void visit_lanes(struct lanes *l, const struct visits *v, int fd)
{
    const struct look_manifest *m = v->manifest;
    char *first = read_lanes(l, v, fd, &l->journal), *second = NULL;
    bool read = first;
    uint64_t now;
    if (read && l->changing) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        second = read_lanes(l, v, fd, &l->again);
        read = second;
    }
    l->error = read ? 0 : errno;
    /* A journal that cannot be read may have been removed meanwhile, if it is no longer named. */
    if (read || !l->number ||
        (area_journal(m->fd, l->slot, l->path, &now) == 0 && now == l->number))
        v->visit(v->arg, l);
    free(first);
    free(second);
}

static void visit_journal(struct lanes *l, const struct visits *v)
{
    char name[REDO_NAME_BYTES];
    redo_name(name, l->number);
    snprintf(l->path, sizeof(l->path), "%s/%s", v->folder->path, name);
    int fd = look_into(v->folder, name, &l->st);
    l->changing = l->alive || (fd >= 0 && locks_ask(fd, 0, 1) == LOCKS_TAKEN);
    visit_lanes(l, v, fd);
    if (fd >= 0)
        close(fd);
}

static void visit_slot(const struct visits *v, unsigned slot)
{
    const struct look_manifest *m = v->manifest;
    struct lanes l = {.slot = slot};
    uint64_t number;
    l.alive = l.changing = locks_ask(m->fd, 1 + (off_t)slot, 1) == LOCKS_TAKEN;
    snprintf(l.path, sizeof(l.path), "%s/%" PRIu64 ".manifest", v->folder->path, m->record.inode);
    visit_lanes(&l, v, m->fd);
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
