/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transaction over two files: moves money from one account file to another.
 *
 *   transfer FROM TO AMOUNT
 *
 * A file that does not exist yet is an account with 1000. Other processes may do the same at the same time: the sum of
 * all accounts never changes, for any reader and after any crash.
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 4096, TOO_LITTLE = 1 };

struct transfer {
    int64_t *from, *to; /* in mappings */
    int64_t amount;
};

/* Makes an empty file an account, in one step: of several processes one does it. */
static int make(ato_tx *tx, void *account)
{
    const int64_t first = 1000;
    const off_t size = ato_tx_size(tx, account);
    if (size < 0 || (size == 0 && (ato_tx_ftruncate(tx, account, BYTES) < 0 ||
                                   !ato_tx_memcpy(tx, account, &first, sizeof(first), 0))))
        return -1;
    return 0;
}

static int64_t *map(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        err(1, "%s", name);
    int64_t *account = ato_mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (account == MAP_FAILED || ato_tx_run(make, account, NULL) < 0)
        errx(1, "%s", ato_errormsg());
    return account;
}

/* Runs again if others change an account meanwhile: so it changes nothing but the accounts, through tx. */
static int move(ato_tx *tx, void *arg)
{
    const struct transfer *t = arg;
    int64_t a, b;
    if (!ato_tx_memcpy(tx, &a, t->from, sizeof(a), 0) ||
        !ato_tx_memcpy(tx, &b, t->to, sizeof(b), 0))
        return -1;
    if (a < t->amount)
        return TOO_LITTLE; /* ends the transaction without any effect */
    a -= t->amount;
    b += t->amount;
    if (!ato_tx_memcpy(tx, t->from, &a, sizeof(a), 0) ||
        !ato_tx_memcpy(tx, t->to, &b, sizeof(b), 0))
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        errx(64, "usage: transfer FROM TO AMOUNT");
    struct transfer t = {map(argv[1]), map(argv[2]), strtoll(argv[3], NULL, 10)};
    int64_t a, b;

    const int r = ato_tx_run(move, &t, NULL);
    if (r < 0)
        errx(1, "%s", ato_errormsg());
    if (r == TOO_LITTLE)
        printf("%s has less than %" PRId64 "\n", argv[1], t.amount);

    if (!ato_memcpy(&a, t.from, sizeof(a)) || !ato_memcpy(&b, t.to, sizeof(b)))
        errx(1, "%s", ato_errormsg());
    printf("%s: %" PRId64 "\n%s: %" PRId64 "\n", argv[1], a, argv[2], b);
    if (ato_munmap(t.from, BYTES, ATO_UNMAP_SPATIAL) < 0 ||
        ato_munmap(t.to, BYTES, ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return 0;
}
