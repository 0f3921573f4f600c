/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/run/served.h"

#include "lib/api/map.h"
#include "lib/file/table.h"
#include "lib/preload/record.h"
#include "lib/run/calls.h"

#include "reflection/media/report.h"

#include "ato_engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

unsigned served_count;
bool served_is_required;

static struct served *all;
static struct refused {
    struct refused *next;
    dev_t device;
    ino_t inode;
} * refused;
/* As threads that always read would keep a fork waiting for ever. */
#define FAIR PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
static pthread_rwlock_t lock = FAIR;
static pid_t process; /* 0: this library is not set up yet */
static bool is_ending;
static __thread bool is_inside __attribute__((tls_model("initial-exec")));
static __thread int cancelling __attribute__((tls_model("initial-exec")));  /* as it was before */
static __thread sigset_t masked __attribute__((tls_model("initial-exec"))); /* the same */

/* ---- sentences ---- */

void served_say(enum served_said kind, const char *format, ...)
{
    static bool said[SAID_COUNT];
    char line[1024] = "ato run: ";
    const int error = errno, start = (int)strlen(line);
    va_list rest;
    if (__atomic_exchange_n(&said[kind], true, __ATOMIC_RELAXED))
        return;
    va_start(rest, format);
    int n = start + vsnprintf(line + start, sizeof(line) - (size_t)start - 1, format, rest);
    va_end(rest);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, (size_t)n + 1);
    (void)written;
    errno = error;
}

/* ---- the lock ---- */

/* Signals wait: a handler that ran with the lock held could not sync, nor end the process with a commit, and one that jumps would never give
 * the lock back. */
static void hold_signals(void)
{
    sigset_t held;
    sigfillset(&held);
    sigdelset(&held, SIGSEGV);
    sigdelset(&held, SIGBUS);
    sigdelset(&held, SIGFPE);
    sigdelset(&held, SIGILL);
    sigdelset(&held, SIGTRAP);
    pthread_sigmask(SIG_SETMASK, &held, &masked);
}

bool served_enter(enum served_how how)
{
    if (how == SERVED_TO_USE && !__atomic_load_n(&served_count, __ATOMIC_ACQUIRE))
        return false;
    if (is_inside || !process)
        return false;
    hold_signals();
    is_inside = true;
    if ((how == SERVED_TO_USE ? pthread_rwlock_rdlock : pthread_rwlock_wrlock)(&lock) == 0) {
        /* No thread may be cancelled in a call of libato. */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
        return true;
    }
    is_inside = false;
    pthread_sigmask(SIG_SETMASK, &masked, NULL);
    return false;
}

bool served_is_here(void)
{
    return getpid() == process;
}

void served_leave(void)
{
    pthread_rwlock_unlock(&lock);
    is_inside = false;
    pthread_setcancelstate(cancelling, &cancelling);
    pthread_sigmask(SIG_SETMASK, &masked, NULL);
}

/* ---- which file? ---- */

static uint64_t
    inodes; /* bit i: a file with a number of which the remainder is i is served, or was */

bool served_may_be(ino_t inode)
{
    return __atomic_load_n(&inodes, __ATOMIC_SEQ_CST) >> inode % 64 & 1;
}

struct served *served_file(dev_t device, ino_t inode)
{
    struct served *s = all;
    while (s && (s->inode != inode || s->device != device))
        s = s->next;
    return s;
}

struct served *served_of(int fd)
{
    struct statx sx;
    /* Not fstat(): reflection/media/fsops.h says why. */
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_TYPE, &sx) < 0 ||
        !S_ISREG(sx.stx_mode))
        return NULL;
    return served_file(makedev(sx.stx_dev_major, sx.stx_dev_minor), sx.stx_ino);
}

/* Of each descriptor, whether it may be of a file that is served. One that is not costs a call of statx(2) then. */
enum { NUMBERS = 1 << 16 };
static bool maybe[NUMBERS], is_any;

static bool may_be(int fd)
{
    return fd >= NUMBERS || __atomic_load_n(&is_any, __ATOMIC_RELAXED) ||
           (fd >= 0 && __atomic_load_n(&maybe[fd], __ATOMIC_RELAXED));
}

static void mark(int fd, bool is)
{
    if (fd < NUMBERS)
        __atomic_store_n(&maybe[fd], is, __ATOMIC_SEQ_CST);
}

int served_note(int fd)
{
    const int error = errno;
    struct statx sx;
    /* The descriptor is there before these are read. served_make() sets them before it looks for descriptors. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (fd < 0 || !__atomic_load_n(&served_count, __ATOMIC_SEQ_CST))
        return fd;
    const bool known = statx(fd, "", AT_EMPTY_PATH, STATX_INO, &sx) == 0;
    errno = error;
    if (known && !may_be(fd) && !served_may_be(sx.stx_ino))
        return fd;
    mark(fd, true);
    /* With the lock, so that no file becomes served meanwhile. A child of vfork(2) has other descriptors, and this memory. */
    if (served_is_here() && served_enter(SERVED_TO_USE)) {
        if (!served_of(fd))
            mark(fd, false);
        served_leave();
    }
    errno = error;
    return fd;
}

void served_note_any(void)
{
    __atomic_store_n(&is_any, true, __ATOMIC_RELAXED);
}

struct served *served_enter_of(int fd)
{
    if (!may_be(fd) || !served_enter(SERVED_TO_USE))
        return NULL;
    struct served *s = served_of(fd);
    if (!s)
        served_leave();
    return s;
}

struct served *served_enter_path(int folder, const char *path)
{
    struct statx sx;
    if (!path || !served_enter(SERVED_TO_USE))
        return NULL;
    struct served *s = statx(folder, path, 0, STATX_INO, &sx) == 0
                           ? served_file(makedev(sx.stx_dev_major, sx.stx_dev_minor), sx.stx_ino)
                           : NULL;
    if (!s)
        served_leave();
    return s;
}

struct served *served_at(const void *at)
{
    struct served *s = all;
    while (s && ((const char *)at < s->base || (const char *)at >= s->base + s->reach))
        s = s->next;
    return s;
}

/* ---- views ---- */

/* The address space for a file: it may grow to so much. Where this is limited a file takes an eighth of it at most. */
static uint64_t most_room(uint64_t end)
{
    enum { SHARES = 8, GROWTH = 4 };
    struct rlimit limit;
    uint64_t n = 64ull << 30;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        while (n > 1ull << 30 && n > limit.rlim_cur / SHARES)
            n /= 4;
    return n > end * GROWTH ? n : end * GROWTH;
}

/* Maps the file at `at`, or, NULL, anywhere. Returns whether it is mapped. */
static bool map(struct served *s, void *at, uint64_t room)
{
    struct ato_options o = {.struct_size = sizeof(o),
                            /* Closing another one would drop the program's locks of fcntl(2). */
                            .flags = ATO_PLAIN_STORES | ATO_BORROW_FD,
                            .max_size = room};
    for (;; o.max_size /= 4) {
        s->base = map_at(at, s->length, s->fd, 0, &o);
        if (s->base != MAP_FAILED || (errno != EFBIG && errno != ENOMEM) ||
            o.max_size / 4 <= s->length)
            break;
    }
    s->reach = o.max_size;
    if (s->base != MAP_FAILED && at && s->base != at) {
        (void)ato_munmap(s->base, s->length, ATO_UNMAP_DISCARD);
        s->base = MAP_FAILED;
    }
    return s->base != MAP_FAILED;
}

/* Opens the file again: a duplicate would keep a lock of flock(2) after the program has closed its descriptor. */
static int open_again(int fd, bool may_be_locked)
{
    struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char name[32];
    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const int again = REAL(open)(name, O_RDWR | O_CLOEXEC);
    if (again < 0)
        return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    may_be_locked &= fcntl(again, F_OFD_GETLK, &any) < 0 || any.l_type != F_UNLCK;
    return may_be_locked ? calls_own_here(again) : calls_own(again);
}

struct served *served_make(int fd, dev_t device, ino_t inode, const char *path, uint64_t end)
{
    struct served *s = calloc(1, sizeof(*s) + strlen(path) + 1);
    struct rlimit limit;
    struct statx sx;
    if (!s)
        return report_null(ENOMEM, "no memory to map a file");
    /* Of descriptors, which libato needs for a file. Half of all are left to the program. */
    enum { EACH = 7 };
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        ((rlim_t)fd >= limit.rlim_cur / 2 || calls_own_count + EACH > limit.rlim_cur / 2)) {
        free(s);
        return report_null(
            EMFILE, "half of the descriptors that the process may have are in use (ulimit -n)");
    }
    strcpy(s->path, path);
    s->device = device;
    s->inode = inode;
    s->fd = open_again(fd, true);
    const bool known = s->fd >= 0 && statx(s->fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx) == 0;
    s->length = known && sx.stx_size > end ? sx.stx_size : end;
    if (!known)
        (void)report_errno(errno, "it cannot be opened again");
    pthread_mutex_init(&s->position, NULL);
    /* A descriptor of a file that is refused stays open: closing it would drop the program's locks of fcntl(2). */
    if (!known || !map(s, NULL, most_room(s->length))) {
        KEEP_ERRNO();
        free(s);
        return NULL;
    }
    s->next = all;
    all = s;
    __atomic_fetch_or(&inodes, 1ull << inode % 64, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&served_count, 1, __ATOMIC_SEQ_CST);
    (void)served_has_descriptor(device, inode, s->fd); /* which marks them */
    return s;
}

bool served_is_refused(dev_t device, ino_t inode)
{
    const struct refused *r = refused;
    while (r && (r->inode != inode || r->device != device))
        r = r->next;
    return r;
}

void served_refuse(dev_t device, ino_t inode)
{
    struct refused *r = malloc(sizeof(*r));
    if (!r)
        return;
    *r = (struct refused){refused, device, inode};
    refused = r;
}

/* Takes it out of the list, and frees it. */
static void forget(struct served *s)
{
    struct served **at = &all;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    __atomic_fetch_sub(&served_count, 1, __ATOMIC_RELEASE);
    close(s->fd);
    pthread_mutex_destroy(&s->position);
    free(s->ranges);
    free(s);
}

bool served_add(struct served *s, uint64_t from, uint64_t to)
{
    struct served_range *more = realloc(s->ranges, (s->count + 1) * sizeof(*more));
    if (!more)
        return false;
    s->ranges = more;
    s->ranges[s->count++] = (struct served_range){from, to};
    return true;
}

/* Takes [from, to) out of range i. Returns false if there is no memory for a second part. */
static bool cut(struct served *s, size_t i, uint64_t from, uint64_t to)
{
    struct served_range *r = &s->ranges[i];
    if (from > r->from && to < r->to) {
        if (!served_add(s, to, r->to))
            return false;
        s->ranges[i].to = from;
    } else if (from > r->from)
        r->to = from < r->to ? from : r->to;
    else if (to < r->to)
        r->from = to > r->from ? to : r->from;
    else
        *r = s->ranges[--s->count];
    return true;
}

bool served_has_descriptor(dev_t device, ino_t inode, int besides)
{
    struct stat st;
    DIR *descriptors = opendir("/proc/self/fd");
    bool found = !descriptors;
    if (!descriptors)
        served_note_any();
    for (const struct dirent *e; descriptors && (e = readdir(descriptors));) {
        const int n = atoi(e->d_name);
        if (n != besides && !calls_is_own(n) &&
            fstatat(dirfd(descriptors), e->d_name, &st, 0) == 0 && st.st_ino == inode &&
            st.st_dev == device) {
            mark(n, true);
            found = true;
        }
    }
    if (descriptors)
        closedir(descriptors);
    return found;
}

int served_drop(struct served *s)
{
    /* If it is unmapped and not plain, it becomes plain when the program has ended. */
    if (ato_munmap(s->base, s->length, ATO_UNMAP_SPATIAL) < 0 && table_find(s->base)) {
        served_say(SAID_UNMAP, "%s cannot be unmapped: %s", s->path, ato_errormsg());
        return -1;
    }
    forget(s);
    return 0;
}

/* Of several ranges that have the part one was meant: this one if there is one. Returns s->count: none has it. */
static size_t range_of(const struct served *s, uint64_t from, uint64_t to)
{
    size_t found = s->count;
    for (size_t i = s->count; i-- > 0;) {
        const struct served_range *r = &s->ranges[i];
        if (r->from == from && r->to == to)
            return i;
        if (r->from <= from && to <= r->to)
            found = i;
    }
    return found;
}

int served_remove(struct served *s, uint64_t from, uint64_t to)
{
    size_t i = range_of(s, from, to);
    if (s->count == 1 && i == 0 && from == s->ranges[0].from && to == s->ranges[0].to &&
        !served_has_descriptor(s->device, s->inode, s->fd))
        return served_drop(s);
    if (i < s->count)
        return cut(s, i, from, to) ? 0 : -1;
    for (i = s->count; i-- > 0;)
        if (s->ranges[i].from < to && from < s->ranges[i].to && !cut(s, i, from, to))
            return -1;
    return 0;
}

/* ---- commits ---- */

int served_commit(struct served *s, void *at, size_t n, int flags)
{
    /* So far as the library takes the mapping to reach; nothing behind the end of the file is committed. */
    const off_t size = ato_size(s->base);
    const size_t length = (size_t)size > s->length ? (size_t)size : s->length;
    const size_t end = (length + 4095) & ~4095ull, from = (size_t)((char *)at - s->base);
    if (size >= 0 && from >= end)
        return 0;
    const int r = size < 0 ? -1 : ato_msync(at, n < end - from ? n : end - from, flags);
    if (r < 0 && !is_ending)
        served_say(SAID_COMMIT, "%s: what was stored is not committed: %s", s->path,
                   ato_errormsg());
    return r;
}

int served_commit_file(struct served *s)
{
    return served_commit(s, s->base, s->reach, MS_SYNC);
}

int served_commit_all(void)
{
    int r = 0;
    for (struct served *s = all; s; s = s->next)
        /* Programs close descriptors that they do not know before they start another one. */
        if (served_of(s->fd) == s && served_commit_file(s) < 0)
            r = -1;
    return r;
}

int served_commit_of(int fd)
{
    struct served *s LEAVING = served_enter_of(fd);
    return s ? served_commit_file(s) : 1;
}

off_t served_size(const struct served *s)
{
    return ato_size(s->base);
}

int served_resize(struct served *s, off_t size, enum stores_size how, off_t *was)
{
    const off_t to = how == STORES_MORE ? served_size(s) + size : size;
    if (to > (off_t)s->reach) {
        served_say(SAID_COMMIT,
                   "%s cannot grow to %lld bytes while it is mapped: there is room for %zu",
                   s->path, (long long)to, s->reach);
        errno = EFBIG;
        return -1;
    }
    return stores_resize(table_find(s->base), size, how, was);
}

/* ---- fork and exit ---- */

/* A file that was forked is as it was when it was committed last: what the parent stored is to be seen by the child. */
static void before_fork(void)
{
    if (is_inside)
        return;
    hold_signals();
    pthread_rwlock_wrlock(&lock);
    (void)served_commit_all();
}

static void in_parent(void)
{
    if (is_inside)
        return;
    pthread_rwlock_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, &masked, NULL);
}

/* libato's views are not inherited: each file is mapped anew, where it was. */
static void in_child(void)
{
    process = getpid();
    lock = (pthread_rwlock_t)FAIR;
    for (struct served *s = all, *next; s; s = next) {
        next = s->next;
        void *const base = s->base;
        const int fd = open_again(s->fd, false);
        if (fd >= 0) {
            close(s->fd);
            s->fd = fd;
        }
        pthread_mutex_init(&s->position, NULL);
        if (map(s, base, s->reach))
            continue;
        served_say(SAID_CHILD,
                   "a child of fork() has no mapping of %s, and ends by SIGSEGV where it uses it: "
                   "%s",
                   s->path, ato_errormsg());
        forget(s);
    }
    if (!is_inside)
        pthread_sigmask(SIG_SETMASK, &masked, NULL);
}

void served_end(void)
{
    if (!served_is_here() || !served_enter(SERVED_TO_USE))
        return;
    (void)served_commit_all();
    served_leave();
}

/* Returns true if all that was stored to the file is committed; else it is lost. */
static bool commit_at_end(struct served *s)
{
    char entry[2 * PATH_MAX];
    const bool good = served_commit_file(s) == 0;
    (void)snprintf(entry, sizeof(entry),
                   RECORD_LOSS
                   "%s: what was stored since its last sync is lost: at the end of the process it "
                   "cannot be committed: %s",
                   s->path, ato_errormsg());
    if (!good && !record_entry(entry))
        served_say(SAID_LOSS, "%s", entry + strlen(RECORD_LOSS));
    return good;
}

void served_end_here(void)
{
    if (!served_is_here() || !served_enter(SERVED_TO_USE))
        return;
    is_ending = true;
    for (struct served *s = all; s; s = s->next)
        if (served_of(s->fd) == s)
            (void)commit_at_end(s);
    is_ending = false; /* exec() may fail */
    served_leave();
}

void served_end_all(void)
{
    if (!served_is_here() || !served_count || !served_enter(SERVED_TO_CHANGE))
        return;
    is_ending = calls_keep_addresses = true;
    for (struct served *s = all, *next; s; s = next) {
        next = s->next;
        if (served_of(s->fd) == s && commit_at_end(s))
            (void)served_drop(s);
    }
    served_leave();
}

/* The last handler of exit(3), after the destructors of all libraries. */
static void at_exit(int status, void *none)
{
    (void)status;
    (void)none;
    served_end_all();
}

static void __attribute__((constructor)) set_up(void)
{
    record_set(offsetof(struct record, loaded));
    served_is_required = secure_getenv("ATO_RUN_REQUIRE");
    if (pthread_atfork(before_fork, in_parent, in_child) != 0 || on_exit(at_exit, NULL) != 0 ||
        at_quick_exit(served_end_all) != 0)
        return;
    process = getpid();
}

/* Before libato's own. Destructors of other libraries may store later: at_exit(). */
static void __attribute__((destructor)) take_down(void)
{
    is_ending = true;
    served_end();
}
