/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/locks.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static int apply(int fd, int command, short type, off_t start, off_t n)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = n};
    int r;
    do
        r = fcntl(fd, command, &l);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EINVAL)
        errno = ENOSYS; /* the kernel, or what stands for it, has no such locks */
    return r;
}

enum locks_answer locks_try(int fd, short type, off_t start, off_t n)
{
    if (apply(fd, F_OFD_SETLK, type, start, n) == 0)
        return LOCKS_MINE;
    return errno == EAGAIN || errno == EACCES ? LOCKS_TAKEN : LOCKS_FAILED;
}

enum locks_answer locks_ask(int fd, off_t start, off_t n)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = n};
    if (fcntl(fd, F_OFD_GETLK, &l) < 0)
        return LOCKS_FAILED;
    return l.l_type == F_UNLCK ? LOCKS_FREE : LOCKS_TAKEN;
}

/* No process of libato holds a lock that another one waits for as long as this. But a process that may
 * only read the file can hold a lock on it forever. */
unsigned locks_patience_ms = 30000;

int locks_wait(int fd, short type, off_t start, off_t n)
{
    for (unsigned waited = 0;; waited++) {
        int r = apply(fd, F_OFD_SETLK, type, start, n);
        if (r == 0 || (errno != EAGAIN && errno != EACCES))
            return r;
        if (waited >= locks_patience_ms) {
            errno = EBUSY;
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
}

/* The kernel may need memory to keep the rest of a range. So a failed call is tried once more: without
 * the lock no operation could go on. */
int locks_drop(int fd, off_t start, off_t n)
{
    int r = apply(fd, F_OFD_SETLK, F_UNLCK, start, n);
    return r == 0 ? 0 : apply(fd, F_OFD_SETLK, F_UNLCK, start, n);
}

/* Descriptors + 1; 0: free. When the table is full, further ones are not closed in a child. */
enum { KEPT = 4096 };
static int kept[KEPT];

static void replace_kept(int from, int to)
{
    for (unsigned i = 0; i < KEPT; i++) {
        int seen = from;
        if (__atomic_load_n(&kept[i], __ATOMIC_RELAXED) == from &&
            __atomic_compare_exchange_n(&kept[i], &seen, to, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
}

void locks_keep(int fd)
{
    replace_kept(0, fd + 1);
}

/* In the child. Only closes: unlocking would drop the parent's locks. */
void locks_forget(void)
{
    for (unsigned i = 0; i < KEPT; i++) {
        if (!kept[i]) /* else the child would get a copy of each page of the table */
            continue;
        close(kept[i] - 1);
        kept[i] = 0;
    }
}

void locks_close(int fd)
{
    int saved = errno;
    if (fd >= 0) {
        (void)locks_drop(fd, 0, 0);
        replace_kept(fd + 1, 0);
        close(fd);
    }
    errno = saved;
}
