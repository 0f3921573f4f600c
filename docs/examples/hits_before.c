/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts words in a table in a memory-mapped file, by plain stores: killed at the wrong moment, it leaves a total that is not the sum of
 * the counts. hits.c is the same program with libato.
 *
 *   hits_before FILE [WORD...]   counts the words; prints the table
 */
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

static void count(struct table *t, const char *word)
{
    struct entry *e = t->entries;
    while (e < t->entries + ENTRIES && e->count && strcmp(e->word, word) != 0)
        e++;
    if (e == t->entries + ENTRIES)
        errx(1, "the table is full");
    snprintf(e->word, sizeof(e->word), "%s", word);
    e->count++;
    t->total++;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        errx(1, "usage: %s FILE [WORD...]", argv[0]);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0666);
    if (fd < 0 || ftruncate(fd, sizeof(struct table)) < 0)
        err(1, "%s", argv[1]);
    struct table *t = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (t == MAP_FAILED)
        err(1, "%s", argv[1]);
    for (int i = 2; i < argc; i++)
        count(t, argv[i]);
    for (struct entry *e = t->entries; e < t->entries + ENTRIES && e->count; e++)
        printf("%llu %s\n", (unsigned long long)e->count, e->word);
    printf("%llu in all\n", (unsigned long long)t->total);
    munmap(t, sizeof(struct table));
    return 0;
}
