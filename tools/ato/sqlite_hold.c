/* SPDX-License-Identifier: BSD-3-Clause */
#include "sqlite_hold.h"

#include "lib/file/clock.h"
#include "lib/sqlite/mask.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* SQLite's bytes. */
enum { PENDING = 0x40000000, RESERVED = PENDING + 1, FIRST = PENDING + 2, COUNT = 510 };

/* How long to wait for a writer; and for a program that is just closing a database in WAL mode. */
enum { WAIT_MS = 5000, CLOSE_MS = 200 };

bool sqlite_is_header(const void *header)
{
    return memcmp(header, "SQLite format 3", 16) == 0;
}

static bool is_wal(const void *header)
{
    unsigned char h[MASK_HEADER];
    memcpy(h, header, sizeof(h));
    mask_uncover(h);
    return mask_is_wal(h);
}

/* ---- locks ---- */

static bool lock(const struct sqlite_hold *h, short type, off_t at, off_t n)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = n};
    return fcntl(h->fd, F_OFD_SETLK, &l) == 0;
}

/* The last door first: a door's number tells whether a process lives that had it, and few processes get so far. */
static bool take_door(const struct sqlite_hold *h)
{
    int i = COUNT;
    while (i > 0 && !lock(h, F_WRLCK, FIRST + i - 1, 1))
        i--;
    return i > 0;
}

/* One try. PENDING is held meanwhile, as others do. */
static bool take(struct sqlite_hold *h, bool is_plain, bool needs_all)
{
    const short type = h->writable ? F_WRLCK : F_RDLCK;
    bool taken = false;
    if (!lock(h, type, PENDING, 1))
        return false;
    /* Others may go on to read a plain file. */
    if (is_plain && !needs_all)
        taken = lock(h, F_RDLCK, FIRST, COUNT);
    else if (h->writable)
        taken = h->all = lock(h, F_WRLCK, FIRST, COUNT);
    if (!taken && !needs_all)
        taken = (h->writable && take_door(h)) || lock(h, F_RDLCK, FIRST, COUNT);
    (void)lock(h, F_UNLCK, PENDING, 1);
    return taken;
}

/* ---- files beside ---- */

/* Looks at a file beside the database. Returns its length, and its first byte; 0 if there is none; -1 with errno. */
static off_t look_beside(const char *path, const char *ending, char *first)
{
    char name[PATH_MAX];
    struct stat st;
    *first = 0;
    if (snprintf(name, sizeof(name), "%s%s", path, ending) >= PATH_MAX)
        return 0; /* nor has SQLite such a file */
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : report_errno(errno, "cannot look at %s", name);
    const bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, first, 1, 0) >= 0;
    const int error = errno;
    close(fd);
    return good ? st.st_size : report_errno(error, "cannot look at %s", name);
}

static int has_no_log(const char *path)
{
    char first;
    const off_t length = look_beside(path, "-wal", &first);
    if (length > 0)
        return report_error(ENOTSUP,
                            "a part of the database is in %s-wal: run PRAGMA "
                            "wal_checkpoint(TRUNCATE), or copy it with SQLite's .backup",
                            path);
    return length < 0 ? -1 : 0;
}

/* A journal is hot, and would be played back, unless a living writer has it, or it begins with 0. */
static int has_no_hot_journal(const struct sqlite_hold *h)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = RESERVED, .l_len = 1};
    char first;
    if (look_beside(h->path, "-journal", &first) < 0)
        return -1;
    if (!first || (fcntl(h->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK))
        return 0;
    return report_error(
        ENOTSUP,
        "a program was killed that wrote to the database, and left %s-journal: open "
        "it with SQLite, which rolls that transaction back",
        h->path);
}

int sqlite_has_no_parts(const char *path)
{
    static const char *const endings[] = {"-journal", "-wal"};
    for (int i = 0; i < 2; i++) {
        char first;
        const off_t length = look_beside(path, endings[i], &first);
        if (length > 0)
            return report_error(EEXIST,
                                "there is a %s%s, which SQLite would take for a part of the copy: "
                                "remove it, or choose another name",
                                path, endings[i]);
        if (length < 0)
            return -1;
    }
    return 0;
}

/* ---- both ---- */

static int refuse(const struct sqlite_hold *h, bool needs_all)
{
    if (!h->writable)
        return report_error(EBUSY,
                            "%s cannot be opened for writing, which is needed to lock a database "
                            "that others have open",
                            h->path);
    return report_error(EBUSY,
                        needs_all ? "%s is in WAL mode, and a program has it open: copy it with "
                                    "SQLite's .backup or VACUUM INTO"
                                  : "%s is locked by a program that writes to it",
                        h->path);
}

int sqlite_hold(struct sqlite_hold *h, const void *header, bool is_plain)
{
    if (h->held)
        return is_wal(header) && !h->all ? refuse(h, true) : 0;
    /* A masked header in the file may be older than the one that counts. */
    const bool needs_all = is_wal(header) && !mask_is_on(header);
    const uint64_t end = clock_ns() + (needs_all ? CLOSE_MS : WAIT_MS) * 1000000ull;
    h->all = false;
    while (!take(h, is_plain, needs_all)) {
        if (clock_ns() >= end)
            return refuse(h, needs_all);
        clock_nap(1000 * 1000);
    }
    h->held = true;
    return has_no_hot_journal(h) < 0 ? -1 : has_no_log(h->path);
}

int sqlite_was_held(const struct sqlite_hold *h, const void *header)
{
    if (!h->all && is_wal(header))
        return report_error(EBUSY, "%s has gone into WAL mode meanwhile; try again", h->path);
    return has_no_log(h->path);
}
