/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transaction: moves money from one account to another. A commit is of one file, so all accounts are in one.
 *
 *   transfer FILE FROM TO AMOUNT
 *
 * FILE has the accounts 0 to 63; if it does not exist yet, each gets 1000. Other processes may do the same at the same time:
 * the sum of all accounts never changes, for any reader and after any crash.
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ACCOUNTS = 64, TOO_LITTLE = 1 };

struct account {
    int64_t balance;
    char reserved[56];
};

enum { BYTES = ACCOUNTS * sizeof(struct account) };

struct transfer {
    struct account *from, *to; /* in the mapping */
    int64_t amount;
};

/* Fills an empty file with accounts, in one step: of several processes one does it. */
static int make(ato_tx *tx, void *accounts)
{
    struct account all[ACCOUNTS] = {0};
    const off_t size = ato_tx_size(tx, accounts);
    if (size != 0)
        return size < 0 ? -1 : 0;
    for (int i = 0; i < ACCOUNTS; i++)
        all[i].balance = 1000;
    return ato_tx_ftruncate(tx, accounts, BYTES) < 0 || !ato_tx_memcpy(tx, accounts, all, BYTES, 0)
               ? -1
               : 0;
}

static struct account *map(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        err(1, "%s", name);
    struct account *accounts = ato_mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (accounts == MAP_FAILED || ato_tx_run(make, accounts, NULL) < 0)
        errx(1, "%s", ato_errormsg());
    return accounts;
}

static unsigned number(const char *text)
{
    const unsigned long n = strtoul(text, NULL, 10);
    if (n >= ACCOUNTS)
        errx(64, "%s: there are the accounts 0 to %d", text, ACCOUNTS - 1);
    return (unsigned)n;
}

/* Runs again if others change an account meanwhile: so it changes nothing but the accounts, through tx. */
static int move(ato_tx *tx, void *arg)
{
    const struct transfer *t = arg;
    int64_t a, b;
    if (t->from == t->to)
        return 0;
    if (!ato_tx_memcpy(tx, &a, &t->from->balance, sizeof(a), 0) ||
        !ato_tx_memcpy(tx, &b, &t->to->balance, sizeof(b), 0))
        return -1;
    if (a < t->amount)
        return TOO_LITTLE; /* ends the transaction without any effect */
    a -= t->amount;
    b += t->amount;
    if (!ato_tx_memcpy(tx, &t->from->balance, &a, sizeof(a), 0) ||
        !ato_tx_memcpy(tx, &t->to->balance, &b, sizeof(b), 0))
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        errx(64, "usage: transfer FILE FROM TO AMOUNT");
    const unsigned from = number(argv[2]), to = number(argv[3]);
    struct account *accounts = map(argv[1]);
    struct transfer t = {accounts + from, accounts + to, strtoll(argv[4], NULL, 10)};
    int64_t a, b;

    const int r = ato_tx_run(move, &t, NULL);
    if (r < 0)
        errx(1, "%s", ato_errormsg());
    if (r == TOO_LITTLE)
        printf("account %u has less than %" PRId64 "\n", from, t.amount);

    if (!ato_memcpy(&a, &t.from->balance, sizeof(a)) || !ato_memcpy(&b, &t.to->balance, sizeof(b)))
        errx(1, "%s", ato_errormsg());
    printf("account %u: %" PRId64 "\naccount %u: %" PRId64 "\n", from, a, to, b);
    if (ato_munmap(accounts, BYTES, ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return 0;
}
