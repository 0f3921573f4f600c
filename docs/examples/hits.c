/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts words in a table in a memory-mapped file: a count and the total change together, whatever happens, and many processes may count
 * at once. hits_before.c is the same program without libato.
 *
 *   hits FILE [WORD...]   counts the words; prints the table
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENTRIES = 1000 };

struct entry {
    char word[56];
    uint64_t count; /* 0: the entry is free */
};

struct table {
    uint64_t total; /* the sum of the counts */
    struct entry entries[ENTRIES];
};

struct call {
    struct table *t;
    const char *word;
};

/* For ato_tx_run(): may run several times. */
static int count(ato_tx *tx, void *arg)
{
    struct table *t = ((struct call *)arg)->t;
    const char *word = ((struct call *)arg)->word;
    struct entry *e = t->entries, found;
    uint64_t total;
    for (;; e++) {
        if (e == t->entries + ENTRIES)
            errx(1, "the table is full");
        if (!ato_tx_memcpy(tx, &found, e, sizeof(found), 0))
            return -1;
        if (!found.count || strcmp(found.word, word) == 0)
            break;
    }
    snprintf(found.word, sizeof(found.word), "%s", word);
    found.count++;
    if (!ato_tx_memcpy(tx, e, &found, sizeof(found), 0) ||
        !ato_tx_memcpy(tx, &total, &t->total, sizeof(total), 0))
        return -1;
    total++;
    return ato_tx_memcpy(tx, &t->total, &total, sizeof(total), 0) ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        errx(1, "usage: %s FILE [WORD...]", argv[0]);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0666);
    if (fd < 0)
        err(1, "%s", argv[1]);
    struct ato_options o = {.struct_size = sizeof(o), .max_size = sizeof(struct table)};
    struct table *t = ato_mmap_opt(sizeof(struct table), fd, 0, &o), now;
    if (t == MAP_FAILED || ato_ftruncate(t, sizeof(struct table)) < 0)
        errx(1, "%s: %s", argv[1], ato_errormsg());
    for (int i = 2; i < argc; i++)
        if (ato_tx_run(count, &(struct call){t, argv[i]}, NULL) < 0)
            errx(1, "%s: %s", argv[1], ato_errormsg());
    if (!ato_memcpy(&now, t, sizeof(now)))
        errx(1, "%s: %s", argv[1], ato_errormsg());
    for (struct entry *e = now.entries; e < now.entries + ENTRIES && e->count; e++)
        printf("%llu %s\n", (unsigned long long)e->count, e->word);
    printf("%llu in all\n", (unsigned long long)now.total);
    return ato_munmap(t, sizeof(struct table), ATO_UNMAP_SPATIAL) < 0;
}
