/* SPDX-License-Identifier: BSD-3-Clause */
#include "recover.h"

#include "domain.h"
#include "fsops.h"
#include "identity.h"
#include "layout.h"
#include "locks.h"
#include "manifest.h"
#include "pool.h"
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_word(const struct journal_word *w, uint64_t bytes, const char *name)
{
    uint64_t offset = journal_word_offset(w);
    return layout_is_word(offset, bytes)
               ? 0
               : report_error(EUCLEAN,
                              "a journal names offset %" PRIu64 " of the reflection %s, which is "
                              "%" PRIu64 " bytes long and has no bitmap word there",
                              offset, name, bytes);
}

int recover_apply(const struct persist *p, const struct journal_view *v, unsigned file,
                  char *reflection, uint64_t bytes, const char *name)
{
    for (uint64_t i = 0; i < v->nwords; i++) {
        struct journal_word w = v->words[i];
        if (journal_word_file(&w) == file && check_word(&w, bytes, name) < 0)
            return -1;
    }
    /* persist-order R1 (writer: W1 in lib/flip.c): the bytes that these words make valid were
     * durable before the commit line existed, so that the words may be stored in any order. I1.
     * explorer: tear word survives: the lane is committed until it is retired, and whoever finds half
     * of a word stores it again. */
    for (uint64_t i = 0; i < v->nwords; i++) {
        /* A copy, and checked again: who may write to the journal may do so now. */
        struct journal_word w = *(const volatile struct journal_word *)&v->words[i];
        if (journal_word_file(&w) != file)
            continue;
        if (check_word(&w, bytes, name) < 0)
            return -1;
        uint64_t *word = (uint64_t *)(reflection + journal_word_offset(&w));
        persist_store_word(p, word, w.value);
        if (persist_flush_word(p, word) < 0)
            return report_errno(errno, "cannot make the replayed bitmap of %s durable", name);
    }
    persist_fence(p);
    return 0;
}

/* ---- the files that lanes name ---- */

struct named_file {
    struct journal_file who;
    struct named_file *next; /* of those that are held */
    int lock;                /* manifest, attach lock held */
    int reflection;
    char *map;
    uint64_t bytes;
    struct persist persist;
    char name[32];
};

/* By id, which is the order of locks; one that another file carries too is another file. */
static int by_id(const void *a, const void *b)
{
    const struct journal_file *x = &((const struct named_file *)a)->who;
    const struct journal_file *y = &((const struct named_file *)b)->who;
    int order = memcmp(x->id, y->id, sizeof(x->id));
    return order ? order : (x->inode > y->inode) - (x->inode < y->inode);
}

static void release_file(struct named_file *file)
{
    if (file->map)
        munmap(file->map, file->bytes);
    if (file->reflection >= 0)
        close(file->reflection);
    if (file->lock >= 0)
        close(file->lock);
    file->map = NULL;
    file->reflection = file->lock = -1;
}

/* A journal, as its folder has it. */
struct found {
    const struct folder *folder;
    const char *name;
    struct stat st;
};

/* Locks and maps a file's reflection. 1 done; 0 the pairing is gone, or the journal has no say in it:
 * nothing to replay; -1 error. */
static int acquire_file(const struct found *journal, struct named_file *file)
{
    const struct folder *f = journal->folder;
    char manifest[40];
    struct manifest_record record;
    struct stat st;
    struct trust maker = trust_of(&journal->st), owner;
    int which;
    file->lock = file->reflection = -1;
    file->map = NULL;
    snprintf(file->name, sizeof(file->name), "%" PRIu64, file->who.inode);
    snprintf(manifest, sizeof(manifest), "%" PRIu64 ".manifest", file->who.inode);
    file->lock = openat(f->fd, manifest, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file->lock < 0 && errno == ENOENT)
        return 0;
    if (file->lock < 0 || fstat(file->lock, &st) < 0)
        return report_errno(errno, "cannot open %s/%s, which the journal %s needs", f->path,
                            manifest, journal->name);
    owner = trust_of(&st);
    if (!trust_maker(&owner, &journal->st)) {
        report_log(REPORT_WARNING,
                   "the journal %s/%s of user %u names a file of user %u (inode %" PRIu64
                   "), who gave him no permission to write to it: passed over",
                   f->path, journal->name, (unsigned)journal->st.st_uid, (unsigned)st.st_uid,
                   file->who.inode);
        return 0;
    }
    if (trust_check(&maker, file->lock, f->path, manifest) < 0)
        return -1;
    if (locks_wait(file->lock, 0, 1) < 0)
        return report_errno(errno, "cannot lock %s/%s", f->path, manifest);
    int named = folder_names(f, manifest, file->lock);
    if (named != 1)
        return named; /* 0: removed or set aside while we waited */
    /* Zeros, where a birth that was cut has left a shorter one. */
    char *bytes = calloc(1, MANIFEST_BYTES);
    if (!bytes)
        return report_error(ENOMEM, "no memory to read %s/%s", f->path, manifest);
    if (pread(file->lock, bytes, MANIFEST_BYTES, 0) < 0) {
        int r = report_errno(errno, "cannot read %s/%s, which the journal %s needs", f->path,
                             manifest, journal->name);
        free(bytes);
        return r;
    }
    enum manifest_finding found = manifest_read(bytes, &record, &which);
    free(bytes);
    if (found == MANIFEST_UNBORN)
        return 0;
    if (found != MANIFEST_VALID)
        return report_error(EUCLEAN, "the manifest %s/%s, which the journal %s needs, is damaged",
                            f->path, manifest, journal->name);
    if (memcmp(record.id, file->who.id, 16) != 0)
        return 0; /* another pairing has the inode now: the one that the lane names is gone */
    int fd = openat(f->fd, file->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    file->reflection = fd;
    if (fd < 0 || fstat(fd, &st) < 0)
        return report_errno(errno, "cannot open the reflection %s/%s, which the journal %s needs",
                            f->path, file->name, journal->name);
    if (trust_check(&owner, fd, f->path, file->name) < 0)
        return -1;
    persist_init(&file->persist, record.domain);
    file->bytes = (uint64_t)st.st_size;
    void *map = MAP_FAILED;
    if (file->bytes)
        map = domain_map(record.domain, NULL, file->bytes, PROT_READ | PROT_WRITE, fd, 0);
    if (!file->bytes)
        return report_error(EUCLEAN, "the reflection %s/%s is empty", f->path, file->name);
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map the reflection %s/%s", f->path, file->name);
    file->map = map;
    return 1;
}

/* ---- one journal ---- */

struct replay {
    struct named_file *files; /* sorted by id */
    size_t nfiles, room;
    struct named_file *held; /* those that there is something to replay to */
};

static int add_files(struct replay *r, const struct journal_view *v)
{
    for (unsigned i = 0; i < v->nfiles; i++) {
        if (r->nfiles == r->room) {
            size_t room = r->room ? 2 * r->room : 16;
            struct named_file *more = realloc(r->files, room * sizeof(*more));
            if (!more)
                return report_error(ENOMEM, "no memory to replay a journal");
            r->files = more;
            r->room = room;
        }
        r->files[r->nfiles++] =
            (struct named_file){.who = v->files[i], .lock = -1, .reflection = -1};
    }
    return 0;
}

/* Once each. A journal that others made may name a hundred thousand. */
static void sort_files(struct replay *r)
{
    size_t n = 0;
    if (r->nfiles)
        qsort(r->files, r->nfiles, sizeof(*r->files), by_id);
    for (size_t k = 0; k < r->nfiles; k++)
        if (n == 0 || by_id(&r->files[n - 1], &r->files[k]) != 0)
            r->files[n++] = r->files[k];
    r->nfiles = n;
}

static struct named_file *find_file(struct replay *r, const struct journal_file *who)
{
    struct named_file wanted = {.who = *who};
    return r->nfiles ? bsearch(&wanted, r->files, r->nfiles, sizeof(wanted), by_id) : NULL;
}

/* Acquires all files. A journal may name several pairings of one inode, of which all but one are gone:
 * these have no lock of their own, so that it is given back at once, and not waited for when it is
 * held. */
static int acquire_files(const struct found *journal, struct replay *r)
{
    for (size_t k = 0; k < r->nfiles; k++) {
        struct named_file *file = &r->files[k], *same = r->held;
        while (same && same->who.inode != file->who.inode)
            same = same->next;
        int got = same ? 0 : acquire_file(journal, file);
        if (got < 0)
            return -1;
        if (got == 1) {
            file->next = r->held;
            r->held = file;
            continue;
        }
        release_file(file);
        report_log(REPORT_WARNING,
                   "the journal %s/%s names a file (inode %" PRIu64
                   ") whose reflection is gone, or not its business",
                   journal->folder->path, journal->name, file->who.inode);
    }
    return 0;
}

/* Space under the words of the i-th file: who copied a reflection may have left out a meta page that is
 * zeros still. */
static int make_space(const struct folder *f, const struct named_file *file,
                      const struct journal_view *v, unsigned i)
{
    uint64_t last = UINT64_MAX;
    for (uint64_t k = 0; k < v->nwords; k++) {
        struct journal_word w = v->words[k];
        uint64_t page = journal_word_offset(&w) & ~4095ull;
        if (journal_word_file(&w) != i || page == last || page >= file->bytes)
            continue;
        last = page;
        if (lseek(file->reflection, (off_t)page, SEEK_HOLE) >= (off_t)page + 4096)
            continue;
        if (fsops->fallocate(file->reflection, FALLOC_FL_KEEP_SIZE, (off_t)page, 4096) < 0)
            return report_errno(errno, "no space for the bitmaps in %s/%s", f->path, file->name);
    }
    return 0;
}

static int replay_lane(const struct folder *f, struct replay *r, const struct persist *p,
                       const struct journal_view *v)
{
    for (unsigned i = 0; i < v->nfiles; i++) {
        const struct named_file *file = find_file(r, &v->files[i]);
        if (file && file->map && make_space(f, file, v, i) < 0)
            return -1;
    }
    for (unsigned i = 0; i < v->nfiles; i++) {
        struct named_file *file = find_file(r, &v->files[i]);
        char full[PATH_MAX + 40];
        if (!file) /* somebody changed the lane since it was looked at */
            return report_error(EUCLEAN, "a journal in %s is being written to", f->path);
        snprintf(full, sizeof(full), "%s/%s", f->path, file->name);
        if (file->map && recover_apply(&file->persist, v, i, file->map, file->bytes, full) < 0)
            return -1;
    }
    if (journal_retire_view(p, v) < 0)
        return report_errno(errno, "cannot make a replayed journal in %s durable", f->path);
    return 0;
}

/* Makes what a dead journal shows durable as it is. */
static int settle_lanes(const struct folder *f, const struct pool *pool)
{
    struct persist p;
    persist_init(&p, pool->journal.domain);
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++)
        if (journal_settle(&pool->journal, &p, lane) < 0)
            return report_errno(errno, "cannot make the journal %s/%s durable", f->path,
                                pool->name);
    return 0;
}

static int replay_all(const struct found *journal, struct pool *pool)
{
    const struct folder *f = journal->folder;
    struct replay r = {0};
    struct persist p;
    struct journal_view v;
    int result = -1;
    uint64_t replayed = 0;
    persist_init(&p, pool->journal.domain);
    if (settle_lanes(f, pool) < 0)
        goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++) {
        enum journal_finding found = journal_look(&pool->journal, lane, &v);
        if (found == JOURNAL_DAMAGED) {
            report_error(EUCLEAN, "lane %u of the journal %s/%s is damaged", lane, f->path,
                         pool->name);
            goto out;
        }
        if (found == JOURNAL_COMMITTED && add_files(&r, &v) < 0)
            goto out;
    }
    sort_files(&r);
    if (acquire_files(journal, &r) < 0)
        goto out;
    for (unsigned lane = 0; lane < pool->journal.lanes; lane++) {
        if (journal_look(&pool->journal, lane, &v) != JOURNAL_COMMITTED)
            continue;
        if (replay_lane(f, &r, &p, &v) < 0)
            goto out;
        replayed++;
    }
    if (replayed)
        report_log(REPORT_INFO, "finished %" PRIu64 " commits of the dead journal %s/%s", replayed,
                   f->path, pool->name);
    result = 0;
out:;
    int saved = errno;
    for (size_t k = 0; k < r.nfiles; k++)
        release_file(&r.files[k]);
    free(r.files);
    errno = saved;
    return result;
}

/* Opens a journal's file. The descriptor; GONE, or no matter for this file; FORBIDDEN; -1 error. */
enum { GONE = -2, FORBIDDEN = -3 };

static int open_journal(struct found *journal, const struct trust *file)
{
    const char *path = journal->folder->path, *name = journal->name;
    /* O_NONBLOCK: anybody may make a named pipe of that name. */
    int fd = openat(journal->folder->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int err = errno;
    if ((fd >= 0 ? fstat(fd, &journal->st)
                 : fstatat(journal->folder->fd, name, &journal->st, AT_SYMLINK_NOFOLLOW)) < 0) {
        if (errno == ENOENT)
            return GONE;
        report_errno(errno, "cannot look at the journal %s/%s", path, name);
    } else if (!trust_maker(file, &journal->st)) {
        report_log(REPORT_INFO, "the journal %s/%s of user %u is not for this file", path, name,
                   (unsigned)journal->st.st_uid);
        if (fd >= 0)
            close(fd);
        return GONE;
    } else if (fd < 0 && err == EACCES) {
        return FORBIDDEN;
    } else if (fd < 0) {
        report_errno(err, "cannot open the journal %s/%s to see whether it needs recovery", path,
                     name);
    } else if (trust_kind(&journal->st, path, name) == 0) {
        return fd;
    }
    err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return -1;
}

static int recover_journal(const struct folder *f, const char *name, const void *arg)
{
    struct found journal = {.folder = f, .name = name};
    int fd = open_journal(&journal, arg);
    if (fd < 0) /* one that may not be opened: needs_recovery() tells whether that matters */
        return fd == -1 ? -1 : 0;
    int result = 0, named = 0;
    if (locks_wait(fd, 1, 1) < 0)
        result = report_errno(errno, "cannot lock the journal %s/%s", f->path, name);
    else if ((named = folder_names(f, name, fd)) < 0)
        result = -1;
    if (named == 1) {
        enum locks_answer owner = locks_try(fd, 0, 1);
        struct pool pool;
        if (owner == LOCKS_FAILED) {
            result = report_errno(errno, "cannot lock the journal %s/%s", f->path, name);
        } else if (owner == LOCKS_MINE) { /* its owner is dead */
            result = pool_open(&pool, f, name, fd);
            if (result == 0) {
                result = replay_all(&journal, &pool);
                /* A colleague's, in a folder where everybody takes away only what is his own: it holds
                 * nothing any more, and may stay. */
                if (pool_close(&pool, f, result == 0) < 0 && errno != EPERM && errno != EACCES)
                    result = -1;
                return result; /* pool_close closed fd */
            }
        }
    }
    int saved = errno;
    close(fd);
    errno = saved;
    return result;
}

/* A journal that was never finished holds nothing. Its maker holds its lock, or is just about to take
 * it: then it finds that the name is gone, and begins anew. */
static int clear_unfinished(const struct folder *f, const char *name, const void *arg)
{
    struct found journal = {.folder = f, .name = name};
    int fd = open_journal(&journal, arg);
    if (fd < 0)
        return fd == -1 ? -1 : 0;
    if (locks_try(fd, 0, 1) == LOCKS_MINE && folder_names(f, name, fd) == 1 &&
        fsops->unlinkat(f->fd, name, 0) == 0)
        report_log(REPORT_INFO, "removed the unfinished journal %s/%s", f->path, name);
    close(fd);
    return 0;
}

/* Does some lane of a journal hold a commit of the file `id`? Or something that is none. */
static bool names_file(const struct journal *j, const uint8_t id[16])
{
    struct journal_view v;
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        enum journal_finding found = journal_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            return true;
        if (found != JOURNAL_COMMITTED)
            continue;
        for (unsigned i = 0; i < v.nfiles; i++)
            if (memcmp(v.files[i].id, id, 16) == 0)
                return true;
    }
    return false;
}

/* A journal has owner, group and mode of the reflections that it serves. */
static int judge_forbidden(const struct folder *f, const char *name,
                           const struct recover_file *file)
{
    struct stat journal, own;
    if (fstatat(f->fd, name, &journal, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 0
                   : report_errno(errno, "cannot look at the journal %s/%s", f->path, name);
    if (fstat(file->manifest, &own) < 0)
        return report_errno(errno, "cannot look at a manifest in %s", f->path);
    if (journal.st_uid != own.st_uid || journal.st_gid != own.st_gid ||
        (journal.st_mode & 0666) != trust_writers(own.st_mode & 0666))
        return 0;
    return report_error(EACCES, "no permission to open the journal %s/%s, which may name this file",
                        f->path, name);
}

static int needs_recovery(const struct folder *f, const char *name, const void *arg)
{
    const struct recover_file *file = arg;
    struct found found = {.folder = f, .name = name};
    struct journal journal;
    int fd = open_journal(&found, &file->trust);
    if (fd == FORBIDDEN)
        return judge_forbidden(f, name, file);
    if (fd < 0)
        return fd == GONE ? 0 : -1;
    enum locks_answer owner = locks_ask(fd, 0, 1);
    int due = owner == LOCKS_FREE ? folder_names(f, name, fd) : 0;
    if (due == 1) {
        struct pool pool;
        if (pool_open(&pool, f, name, fd) < 0) {
            due = 1; /* recover_folder() says what is wrong */
        } else {
            due = settle_lanes(f, &pool) < 0 ? -1 : names_file(&pool.journal, file->id);
            (void)pool_close(&pool, f, false);
            return due;
        }
    } else if (owner == LOCKS_FAILED) {
        due = report_errno(errno, "cannot ask for the lock of the journal %s/%s", f->path, name);
    } else if (owner == LOCKS_TAKEN) {
        void *map;
        due = pool_peek(fd, f, name, &journal, &map);
        if (due == 1)
            due = names_file(&journal, file->id);
        pool_peek_end(map);
    }
    close(fd);
    return due;
}

/* Calls `visit` for each finished journal and `unfinished` for the others, until one answers other
 * than 0. */
static int each_journal(
    const struct folder *f, int (*visit)(const struct folder *f, const char *name, const void *arg),
    int (*unfinished)(const struct folder *f, const char *name, const void *arg), const void *arg)
{
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int r = report_errno(errno, "cannot list the reflection folder %s", f->path);
        if (fd >= 0)
            close(fd);
        return r;
    }
    int result = 0;
    while (result == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            result = report_errno(errno, "cannot list the reflection folder %s", f->path);
        if (!entry)
            break;
        const char *name = entry->d_name;
        enum pool_name kind = pool_name_of(name);
        if (kind == POOL_NAME)
            result = visit(f, name, arg);
        else if (kind == POOL_NAME_UNFINISHED && unfinished)
            result = unfinished(f, name, arg);
    }
    int saved = errno;
    closedir(dir);
    errno = saved;
    return result;
}

int recover_folder(const struct folder *f, const struct trust *file)
{
    return each_journal(f, recover_journal, clear_unfinished, file);
}

int recover_is_due(const struct folder *f, const struct recover_file *file)
{
    return each_journal(f, needs_recovery, NULL, file);
}
