/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader.h"

#include "lib/file/attach.h"
#include "lib/file/page.h"
#include "lib/read/read.h"
#include "lib/recovery/peers.h"
#include "reflection/media/domain.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/lookup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum reader_state {
    PLAIN, /* there is no manifest: the file is plain */
    QUIET, /* unmapped cleanly, the reflection kept */
    /* A writer has it mapped. This state is final, since the reader's lock keeps the shared memory. */
    WATCHING,
};

struct reader {
    pthread_mutex_t lock; /* for all fields, except once WATCHING */
    enum reader_state state;
    struct manifest_record record; /* QUIET: the manifest's */
    struct timespec changed;       /* PLAIN: the file's ctime before the read */
    struct shared_header own;      /* the header until shared memory is mapped */
    char *name;                    /* the file's name, within pairing.path */
    struct pairing_wish wish;
    char folder[PATH_MAX]; /* of `wish` */
};

/* Held while a manifest may be opened, and around a fork: otherwise a child could inherit the descriptor of a
 * manifest that is not noted anywhere, and with it a lock. */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

void reader_lock_all(void)
{
    pthread_mutex_lock(&looking);
}

void reader_unlock_all(void)
{
    pthread_mutex_unlock(&looking);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* ---- finding out the state ---- */

static void close_manifest(struct pairing *pr)
{
    if (pr->lock >= 0)
        close(pr->lock);
    if (pr->reflection >= 0)
        close(pr->reflection);
    folder_close(&pr->folder);
    pr->lock = pr->reflection = -1;
}

static int open_in(const struct pairing *pr, const char *name)
{
    const struct trust trust = identity_trust(&pr->identity);
    int fd = openat(pr->folder.fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return report_errno(errno, "cannot open %s/%s for reading", pr->folder.path, name);
    if (ownership_check(&trust, fd, pr->folder.path, name) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int due(const struct pairing *pr)
{
    return report_error(EAGAIN,
                        "%s has to be recovered first, by a process that may write to it and maps "
                        "it: its last user died",
                        pr->path);
}

static int map_reflection(struct file *f)
{
    f->r_bytes = layout_reflection_bytes(f->max_size);
    if (f->r)
        munmap(f->r, f->r_bytes);
    void *r = domain_map(f->persist.domain, NULL, f->r_bytes, PROT_READ, f->pairing.reflection, 0);
    f->r = r == MAP_FAILED ? NULL : r;
    if (!f->r)
        return report_errno(errno, "cannot map the reflection of %s", f->pairing.path);
    madvise(f->r, f->r_bytes, MADV_DONTFORK);
    return 0;
}

/* Begins to watch: a writer has the file mapped, or had a moment ago. Returns 1; NOT_THERE, with a sentence: the
 * writer's shared memory is not here, because the writer is just ending or has another /dev/shm; -1. */
enum { NOT_THERE = 2 };

static int watch(struct file *f)
{
    struct pairing *pr = &f->pairing;
    const struct trust trust = identity_trust(&pr->identity);
    struct shared shared;
    uint8_t boot[16];
    identity_boot(boot);
    enum locks_answer writers = locks_ask(pr->lock, 1, MANIFEST_SLOTS);
    if (writers != LOCKS_TAKEN || memcmp(boot, pr->record.boot_id, sizeof(boot)) != 0)
        return writers == LOCKS_FAILED
                   ? report_errno(errno, "cannot ask for the locks of %s", pr->path)
                   : due(pr);
    if (locks_share(pr->lock, PAIRING_READERS, 1) != LOCKS_MINE)
        return report_errno(errno, "cannot lock the manifest of %s for reading", pr->path);
    int r = shared_watch(&shared, &pr->record, &trust, pr->path);
    if (r == 0 && f->max_size > shared.capacity * PAGE_BYTES)
        r = report_error(EFBIG, "%s is mapped by others with room for %llu bytes in all", pr->path,
                         (unsigned long long)shared.capacity * PAGE_BYTES);
    if (r == 0)
        r = map_reflection(f);
    if (r != 0) {
        int saved = errno;
        (void)locks_drop(pr->lock, PAIRING_READERS, 1);
        shared_close(&shared, false);
        errno = saved;
        return r < 0 ? -1 : NOT_THERE;
    }
    f->settled = shared.header->settled;
    f->shared.fd = shared.fd;
    f->shared.slots = shared.slots;
    f->shared.showings = shared.showings;
    f->shared.directory = shared.directory;
    f->shared.groups = shared.groups;
    f->shared.ready = shared.ready;
    f->shared.capacity = shared.capacity;
    f->shared.last_group = shared.last_group;
    f->shared.base = shared.base;
    f->shared.mapped = shared.mapped;
    memcpy(f->shared.name, shared.name, sizeof(shared.name));
    /* Release: a thread that sees the header sees the other fields. */
    __atomic_store_n(&f->shared.header, shared.header, __ATOMIC_RELEASE);
    __atomic_store_n(&f->reader->state, WATCHING, __ATOMIC_RELEASE);
    return 1;
}

static int read_manifest(const struct pairing *pr, struct manifest_record *record,
                         struct manifest_sizes *sizes)
{
    _Alignas(8) char bytes[MANIFEST_BYTES];
    int which;
    memset(bytes, 0, sizeof(bytes));
    if (pread(pr->lock, bytes, sizeof(bytes), 0) < 0)
        return report_errno(errno, "cannot read the manifest of %s", pr->path);
    if (manifest_read(bytes, record, &which) != MANIFEST_VALID || !manifest_sizes(bytes, sizes))
        return report_error(EUCLEAN, "the manifest of %s in %s is damaged", pr->path,
                            pr->folder.path);
    return 0;
}

/* Finds out the file's state. The caller holds the attach lock. Returns 1: known; 0: look again; NOT_THERE; -1. */
static int look_locked(struct file *f, const struct lookup_names *n)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    struct manifest_sizes sizes;
    int named = folder_names(&pr->folder, n->manifest, pr->lock);
    if (named != 1)
        return named;
    /* Read again now that the attach lock keeps processes from mapping and unmapping the file. */
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    if (read_manifest(pr, &pr->record, &sizes) < 0)
        return -1;
    if (pr->record.format != 0)
        return report_error(EUCLEAN, "the reflection of %s has format %u, this library reads 0",
                            pr->path, pr->record.format);
    /* Left by a birth, or by a removal, that was cut. */
    if (pr->record.state == MANIFEST_BORN || pr->record.state == MANIFEST_DEPLOYED)
        return due(pr);
    pr->reflection = open_in(pr, n->reflection);
    if (pr->reflection < 0)
        return -1;
    persist_init(&f->persist, pr->record.domain);
    if (pr->record.state == MANIFEST_IN_USE)
        return watch(f);
    if (!identity_unwritten(&pr->identity, &pr->record))
        return report_error(ESTALE,
                            "%s was written by other means since it was unmapped, while its "
                            "reflection may hold parts of it",
                            pr->path);
    f->settled = true;
    r->record = pr->record;
    r->own.size = sizes.size;
    r->state = QUIET;
    return 1;
}

static int look_once(struct file *f)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    const struct lookup_names n = lookup_names(pr->identity.inode);
    close_manifest(pr);
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    int there = lookup_find(pr, r->name, &r->wish);
    if (there < 0)
        return -1;
    if (there == 0 && !pr->has_attributes)
        return report_error(EAGAIN,
                            "%s has no reflection, and its file system no attributes by which one "
                            "would be noticed: somebody who may write to it has to map it first",
                            pr->path);
    if (there == 0) {
        r->own.size = pr->identity.size;
        r->state = PLAIN;
        return 1;
    }
    pr->lock = open_in(pr, n.manifest);
    if (pr->lock < 0)
        return errno == ENOENT ? 0 : -1;
    /* A process that maps or unmaps the file is done with it in a moment. */
    enum locks_answer locked = locks_share(pr->lock, 0, 1);
    if (locked != LOCKS_MINE)
        return locked == LOCKS_TAKEN
                   ? 0
                   : report_errno(errno, "cannot lock the manifest of %s", pr->path);
    int known = look_locked(f, &n);
    int saved = errno;
    (void)locks_drop(pr->lock, 0, 1);
    errno = saved;
    return known;
}

/* Finds out how the file is now. The caller holds the reader's lock. */
static int look(struct file *f)
{
    enum { PATIENCE_MS = 30000, OF_ONE_WHO_ENDS = 1000 };
    int known = 0;
    unsigned ends = 0;
    for (unsigned i = 0; i < PATIENCE_MS && (known == 0 || known == NOT_THERE); i++) {
        pthread_mutex_lock(&looking);
        known = look_once(f);
        pthread_mutex_unlock(&looking);
        if (known == NOT_THERE && ends++ == OF_ONE_WHO_ENDS)
            return -1;
        if (known == 0 || known == NOT_THERE)
            nap();
    }
    if (known == 0)
        report_error(EBUSY, "%s is being mapped or unmapped all the time", f->pairing.path);
    return known == 1 ? 0 : -1;
}

/* ---- from the media ---- */

static int read_exactly(const struct file *f, int fd, char *to, uint64_t n, uint64_t at)
{
    ssize_t got = pread(fd, to, n, (off_t)at);
    if (got < 0)
        return report_errno(errno, "cannot read %s", f->pairing.path);
    memset(to + got, 0, n - (uint64_t)got);
    return 0;
}

/* Copies bytes of a page by its word on the media. It uses pread(), so nothing can fault. */
static int copy_from_media(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    _Alignas(64) char o[PAGE_BYTES], r[PAGE_BYTES];
    const unsigned from = begin / SLICE_BYTES * SLICE_BYTES;
    const uint64_t bytes = (begin + n + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES - from;
    const int reflection = f->pairing.reflection;
    uint64_t word = 0;
    if (reflection >= 0 && read_exactly(f, reflection, (char *)&word, 8, layout_word(page)) < 0)
        return -1;
    /* R4. Flushing a line changes nothing on the media, so a reader may do it. In domain msync it would; but there
     * all words are settled (open.h). */
    if (word && !f->settled && f->persist.domain != PERSIST_MSYNC &&
        page_flush_words(f, file_word(f, page), 1) < 0)
        return -1;
    const uint64_t touched = word & bitmap_touched(begin, n);
    if (read_exactly(f, f->pairing.original, o + from, bytes, page * PAGE_BYTES + from) < 0 ||
        (touched && read_exactly(f, reflection, r + from, bytes,
                                 layout_reflected(page * PAGE_BYTES) + from) < 0))
        return -1;
    copy_gather_range(f->persist.kernel, dst, o, r, word, begin, n);
    return 0;
}

/* ---- does no process write? ---- */

static int64_t ns_between(struct timespec from, struct timespec to)
{
    return (int64_t)(to.tv_sec - from.tv_sec) * 1000000000 + (to.tv_nsec - from.tv_nsec);
}

/* Returns true if a change now might leave the ctime as it is: within the same tick of the clock by which the
 * kernel stamps files, or, on file systems that keep whole seconds, for two seconds. */
static bool is_young(struct timespec changed)
{
    struct timespec now, tick;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0 ||
        clock_getres(CLOCK_REALTIME_COARSE, &tick) < 0)
        return true;
    const int64_t age = ns_between(changed, now);
    return age >= 0 && age < (changed.tv_nsec ? tick.tv_nsec : 2000000000);
}

/* Notes the ctime and the size of a plain file, before the copy. Mapping a file sets an attribute, and making it
 * plain again removes that: both change the ctime. Returns false if the ctime is too recent to tell: try again a
 * moment later. */
static bool note_changed(struct file *f)
{
    struct reader *r = f->reader;
    struct stat st;
    if (fstat(f->pairing.original, &st) < 0)
        return false;
    r->changed = st.st_ctim;
    r->own.size = (uint64_t)st.st_size;
    return !is_young(r->changed);
}

static bool is_plain_still(const struct file *f)
{
    const struct pairing *pr = &f->pairing;
    struct attribute a;
    struct stat st;
    return attribute_read(pr->original, pr->path, &a) == ATTRIBUTE_NONE &&
           fstat(pr->original, &st) == 0 && ns_between(st.st_ctim, f->reader->changed) == 0;
}

/* Returns true if still no process writes to the file, in any way. Called after the copy. */
static bool is_quiet(const struct file *f)
{
    const struct pairing *pr = &f->pairing;
    const struct manifest_record *known = &f->reader->record;
    struct manifest_record record;
    struct manifest_sizes sizes;
    struct stat st;
    if (f->reader->state == PLAIN)
        return is_plain_still(f);
    if (fstat(pr->original, &st) < 0)
        return false;
    const struct identity now = {.size = (uint64_t)st.st_size,
                                 .mtime_sec = st.st_mtim.tv_sec,
                                 .mtime_nsec = (uint64_t)st.st_mtim.tv_nsec};
    const struct lookup_names n = lookup_names(pr->identity.inode);
    /* Checks the manifest's name too: a manifest that was set aside keeps its old content. */
    return read_manifest(pr, &record, &sizes) == 0 && record.sequence == known->sequence &&
           folder_names(&pr->folder, n.manifest, pr->lock) == 1 && identity_unwritten(&now, known);
}

/* ---- reading ---- */

static int beyond(const struct file *f, uint64_t end)
{
    return report_error(EFAULT, "up to byte %llu of %s, which is not that long by now",
                        (unsigned long long)end, f->pairing.path);
}

/* Returns 1; 0: a process has begun to write, or may just have done so; -1. */
static int try_quiet(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    if (f->reader->state == PLAIN && !note_changed(f))
        return 0;
    if (offset + n > f->reader->own.size)
        return is_quiet(f) ? beyond(f, offset + n) : 0;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        seam_point(SEAM_VERSION, f);
        if (copy_from_media(f, page, (unsigned)begin, (unsigned)bytes, dst) < 0)
            return -1;
        dst += bytes;
    }
    return is_quiet(f);
}

/* ---- beside a writer ---- */

/* The state of a page that a dead process has marked: as it was before the mark, as on the media, or unknown. Only
 * a process that recovers changes it. */
enum view { VIEW_BEFORE, VIEW_MEDIA, VIEW_UNTOLD };

static enum view view_of_marked(const struct file *f, const struct page_state *s)
{
    const struct shared *shared = &f->shared;
    const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE);
    const unsigned slot = shared_slot_of(holder),
                   owner = __atomic_load_n(&s->owner, __ATOMIC_ACQUIRE);
    if (slot >= MANIFEST_SLOTS ||
        shared_holder(slot, __atomic_load_n(&shared->slots[slot].generation, __ATOMIC_RELAXED)) !=
            holder)
        return VIEW_UNTOLD; /* freed already */
    if (__atomic_load_n(&shared->slots[slot].reloaded, __ATOMIC_ACQUIRE))
        return VIEW_MEDIA;
    if (owner > THREAD_SHARED)
        return owner == PAGE_TAKEN_OVER ? VIEW_BEFORE : VIEW_UNTOLD;
    const struct shared_showing *at = shared_showing_of(shared, slot, owner);
    const struct trust trust = identity_trust(&f->pairing.identity);
    enum shared_what what = __atomic_load_n(&at->what, __ATOMIC_ACQUIRE);
    if (what == SHOWING_ELSEWHERE)
        what = shared_ask_elsewhere(at, &trust);
    return what == SHOWING_MARKS ? VIEW_BEFORE : what == SHOWING_WORDS ? VIEW_MEDIA : VIEW_UNTOLD;
}

/* Sets *size to the size that is visible, or that a dead process's commit has made current. It is valid if the
 * version of `sizing` is the same before and after the call. Returns false if the size is not known. */
static bool size_in_view(const struct file *f, uint64_t *size)
{
    const struct shared_header *h = f->shared.header;
    enum view view = VIEW_BEFORE;
    if (!(__atomic_load_n(&h->sizing.version, __ATOMIC_ACQUIRE) & 1))
        view = view_of_marked(f, &h->sizing);
    *size = file_size(f);
    if (view == VIEW_MEDIA) {
        const uint64_t coming = __atomic_load_n(&h->coming, __ATOMIC_ACQUIRE);
        *size = coming < f->max_size ? coming : f->max_size;
    }
    return view != VIEW_UNTOLD;
}

/* What a try relies on, as a number: the page's version, and, if a dead process has marked the page, the view of
 * it. For each page the number only grows, also when the view changes or the mark is removed. So the sum over all
 * pages is the same after the copy if and only if none of them moved. 0: not known. */
static uint64_t footing(const struct file *f, const struct page_state *s, uint64_t version)
{
    if (version & 1)
        return 2 * version;
    const enum view view = view_of_marked(f, s);
    return view == VIEW_UNTOLD ? 0 : 2 * version + view;
}

struct
try {
    uint64_t sum;
    uint32_t dead; /* dead holder of a marked page; 0: none known */
};

/* Adds the page to the sum. Waits while a living process flips the page or recovers it. Returns 1; 0: try again;
 * -1. */
static int note(struct file *f, const struct page_state *s, struct try *t)
{
    uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE), on;
    uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    if (!(version & 1) && (!t->dead || holder != t->dead) &&
        !(version = read_steady_version(f, s))) {
        if (errno != EAGAIN)
            return -1;
        version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
        holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (!(version & 1) && !attach_is_dead(f, holder))
            return 0;
        t->dead = holder;
    }
    on = footing(f, s, version);
    t->sum += on;
    return on ? 1 : peers_recover(f, holder);
}

/* Subtracts the page from the sum again, after the copy. Returns false if its number is not known. */
static bool is_as_noted(const struct file *f, const struct page_state *s, struct try *t)
{
    const uint64_t on = footing(f, s, __atomic_load_n(&s->version, __ATOMIC_RELAXED));
    t->sum -= on;
    return on;
}

/* Returns the page's state; NULL if it has none, or is not loaded. */
static const struct page_state *loaded_state(struct file *f, uint64_t page)
{
    const struct page_state *s = shared_look(&f->shared, page);
    return s && __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) ? s : NULL;
}

/* Copies bytes of a page. Returns 1; 0: try again; -1. */
static int copy_page(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    const struct page_state *s = loaded_state(f, page);
    enum view view = VIEW_MEDIA;
    if (s)
        view =
            __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) & 1 ? VIEW_BEFORE : view_of_marked(f, s);
    if (view == VIEW_UNTOLD)
        return 0;
    if (view == VIEW_MEDIA)
        return copy_from_media(f, page, begin, n, dst) < 0 ? -1 : 1;
    read_copy(f, s, page, begin, n, dst);
    return 1;
}

/* As try_many() in read.c. Nothing is noted of pages that are not loaded: a shrink may cut them off without a
 * change of their states, so the version of the size is noted too. */
static int try_watching(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    const struct page_state *sizing = &f->shared.header->sizing, *s;
    struct try t = {0};
    int r = note(f, sizing, &t);
    bool same;
    uint64_t size;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        if (r == 1 && (s = loaded_state(f, page)))
            r = note(f, s, &t);
        (void)begin;
    }
    if (r != 1)
        return r;
    if (!size_in_view(f, &size))
        return 0;
    if (offset + n > size)
        return beyond(f, offset + n);
    RACES_MEANT_BEGIN(); /* as in read_try() */
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        seam_point(SEAM_VERSION, f);
        if (r == 1)
            r = copy_page(f, page, (unsigned)begin, (unsigned)bytes, dst);
        dst += bytes;
    }
    RACES_MEANT_END(dst - n, n);
    if (r != 1)
        return r;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    same = is_as_noted(f, sizing, &t);
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        if (same && (s = loaded_state(f, page)))
            same = is_as_noted(f, s, &t);
        (void)begin;
    }
    /* After the versions: a takeover that fails poisons the file before it removes a mark. */
    if (file_check(f) < 0)
        return -1;
    return same && t.sum == 0;
}

static int try_once(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    struct reader *r = f->reader;
    if (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == WATCHING)
        return file_check(f) < 0 ? -1 : try_watching(f, offset, dst, n);
    pthread_mutex_lock(&r->lock);
    int done = 0;
    if (r->state != WATCHING) {
        done = try_quiet(f, offset, dst, n);
        if (done == 0 && !is_quiet(f)) /* if it is quiet, it was only too early to tell */
            done = look(f) < 0 ? -1 : 0;
    }
    pthread_mutex_unlock(&r->lock);
    return done;
}

int reader_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    /* Writers reserve the pages after some tries; a reader can only try again. After EAGAIN too: the holder of a
     * page may have died just now, and another process may be about to recover it. */
    enum { TRIES = 20000, DEAD_TRIES = 1000 };
    unsigned dead = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        int done = try_once(m->file, offset, dst, n);
        if (done > 0) {
            if (!m->quick && __atomic_load_n(&m->file->reader->state, __ATOMIC_ACQUIRE) == WATCHING)
                __atomic_store_n(&m->quick, m->reach, __ATOMIC_RELEASE);
            if (i)
                count(m, COUNT_READ_RETRIES, i);
            return 0;
        }
        if (done < 0 && (errno != EAGAIN || dead++ == DEAD_TRIES))
            return -1;
        if (done < 0 || i > 100)
            nap();
    }
    return report_error(EAGAIN, "%s is written to all the time where it is read",
                        m->file->pairing.path);
}

int reader_refresh(struct file *f)
{
    struct reader *r = f->reader;
    int known = 0;
    pthread_mutex_lock(&r->lock);
    if (r->state == PLAIN)
        (void)note_changed(f);
    if (r->state != WATCHING && !is_quiet(f))
        known = look(f);
    pthread_mutex_unlock(&r->lock);
    return known;
}

bool reader_watches(const struct file *f)
{
    return __atomic_load_n(&f->reader->state, __ATOMIC_ACQUIRE) == WATCHING;
}

int reader_size(struct file *f, uint64_t *size)
{
    enum { TRIES = 1000 };
    bool told;
    *size = file_size(f);
    if (__atomic_load_n(&f->reader->state, __ATOMIC_ACQUIRE) != WATCHING)
        return 0;
    const struct page_state *sizing = &f->shared.header->sizing;
    for (unsigned i = 0; i < TRIES; i++) {
        const uint64_t before = __atomic_load_n(&sizing->version, __ATOMIC_ACQUIRE);
        told = size_in_view(f, size);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (told && before == __atomic_load_n(&sizing->version, __ATOMIC_RELAXED))
            return 0;
        if (i > 100)
            nap();
    }
    return report_error(EAGAIN, "how long %s is has to be found out by one that may write to it",
                        f->pairing.path);
}

bool reader_record(const struct file *f, struct manifest_record *record)
{
    struct manifest_sizes sizes;
    pthread_mutex_lock(&f->reader->lock);
    bool found = f->reader->state != PLAIN && read_manifest(&f->pairing, record, &sizes) == 0;
    pthread_mutex_unlock(&f->reader->lock);
    return found;
}

/* ---- open and close ---- */

int reader_open(struct file *f, int fd, const struct identity *who, const struct file_wish *wish)
{
    struct pairing *pr = &f->pairing;
    struct reader *r = calloc(1, sizeof(*r));
    const char *folder = wish->options->reflection_dir;
    if (!r)
        return report_error(ENOMEM, "no memory to map a file");
    if (!folder)
        folder = secure_getenv("ATO_REFLECTION_DIR");
    pthread_mutex_init(&r->lock, NULL);
    pr->original = pr->reflection = pr->lock = pr->folder.fd = f->shared.fd = -1;
    pr->slot = MANIFEST_SLOTS;
    pr->identity = *who;
    f->reader = r;
    f->shared.header = &r->own;
    r->own.cut = r->own.gone = r->own.lowest = UINT64_MAX;
    if (folder && *folder) {
        if (strlen(folder) >= sizeof(r->folder)) {
            report_error(ENAMETOOLONG, "the path of the reflection folder is too long");
            goto fail;
        }
        strcpy(r->folder, folder);
        r->wish.folder = r->folder;
    }
    pr->borrowed = wish->options->flags & ATO_BORROW_FD;
    pr->original = pr->borrowed ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (pr->original < 0) {
        report_errno(errno, "cannot duplicate descriptor %d", fd);
        goto fail;
    }
    persist_init(&f->persist, domain_of(pr->original));
    f->max_size = f->limit = file_limit(who->size, wish);
    f->max_size = (f->max_size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (identity_path(fd, who, pr->path, &r->name) < 0 || look(f) < 0)
        goto fail;
    if (wish->options->domain != ATO_DOMAIN_AUTO && r->state != PLAIN &&
        wish->options->domain != (int)f->persist.domain) {
        report_error(EXDEV, "%s is of domain %s; it cannot be mapped in domain %s", pr->path,
                     domain_name(f->persist.domain), domain_name(wish->options->domain));
        goto fail;
    }
    void *o = domain_map(f->persist.domain, NULL, f->max_size, PROT_READ, pr->original, 0);
    if (o == MAP_FAILED) {
        report_errno(errno, "cannot map %s for reading", pr->path);
        goto fail;
    }
    f->o = o;
    madvise(f->o, f->max_size, MADV_DONTFORK);
    return 0;
fail:;
    int saved = errno;
    reader_close(f);
    errno = saved;
    return -1;
}

void reader_forget(struct file *f)
{
    f->o = f->r = f->shared.base = NULL;
    reader_close(f);
}

void reader_close(struct file *f)
{
    struct reader *r = f->reader;
    if (f->o)
        munmap(f->o, f->max_size);
    if (f->r)
        munmap(f->r, f->r_bytes);
    if (r->state == WATCHING)
        shared_close(&f->shared, false);
    close_manifest(&f->pairing); /* drops the locks too */
    if (f->pairing.original >= 0 && !f->pairing.borrowed)
        close(f->pairing.original);
    free(r);
}
