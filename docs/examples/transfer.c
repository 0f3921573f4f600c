/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transaction over two files: moves money from one account file to another.
 *
 *   transfer FROM TO AMOUNT
 *
 * A file that does not exist yet is an account with 1000. Other processes may do the same at the same time: the sum of all
 * accounts never changes, for any reader and after any crash.
 */
#include <ato.h>

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, TRIES = 100 };

static int64_t *map(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    const int64_t first = 1000;
    if (fd >= 0 && (ftruncate(fd, BYTES) < 0 || pwrite(fd, &first, sizeof(first), 0) < 0))
        err(1, "%s", name);
    if (fd < 0)
        fd = open(name, O_RDWR);
    if (fd < 0)
        err(1, "%s", name);
    int64_t *account = ato_mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (account == MAP_FAILED)
        errx(1, "%s", ato_errormsg());
    return account;
}

/* Tries once. Returns 0; or -1 with errno, and nothing has changed. */
static int transfer(int64_t *from, int64_t *to, int64_t amount)
{
    const struct ato_tx_options options = {.struct_size = sizeof(options), .wait_ms = 1000};
    int64_t a, b;
    ato_tx *tx = ato_tx_begin_opt(&options);
    if (!tx)
        return -1;
    /* No other transaction changes bytes that this one has read until it ends. */
    if (ato_tx_memcpy(tx, &a, from, sizeof(a), 0) && ato_tx_memcpy(tx, &b, to, sizeof(b), 0)) {
        a -= amount;
        b += amount;
        if (ato_tx_memcpy(tx, from, &a, sizeof(a), 0) && ato_tx_memcpy(tx, to, &b, sizeof(b), 0) &&
            ato_tx_commit(tx) == 0)
            return 0;
    }
    const int error = errno;
    ato_tx_abort(tx);
    errno = error;
    return -1;
}

/* Another transaction has one of the pages, perhaps waiting for one of ours: try again after a random time that grows. */
static void back_off(int i)
{
    const long most = 1000L * (1L << (i < 10 ? i : 10));
    nanosleep(&(struct timespec){.tv_nsec = random() % most}, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        errx(64, "usage: transfer FROM TO AMOUNT");
    int64_t *from = map(argv[1]), *to = map(argv[2]), a, b;
    srandom((unsigned)getpid());

    int i = 0, r;
    while ((r = transfer(from, to, strtoll(argv[3], NULL, 10))) < 0 && i++ < TRIES &&
           (errno == EDEADLK || errno == ETIMEDOUT))
        back_off(i);
    if (r < 0)
        errx(1, "%s", ato_errormsg());

    if (!ato_memcpy(&a, from, sizeof(a)) || !ato_memcpy(&b, to, sizeof(b)))
        errx(1, "%s", ato_errormsg());
    printf("%s: %" PRId64 "\n%s: %" PRId64 "\n", argv[1], a, argv[2], b);
    if (ato_munmap(from, BYTES, ATO_UNMAP_SPATIAL) < 0 ||
        ato_munmap(to, BYTES, ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return 0;
}
