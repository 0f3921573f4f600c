/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many processes on one file: each adds to a counter and notes how often, and one of them is killed.
 *
 *   processes FILE
 *
 * The counter is always the sum of the notes: two places that change in one step.
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, TIMES = 200 };

struct counters {
    uint64_t all;
    char space[4096 - sizeof(uint64_t)]; /* the notes are on a page of their own */
    uint64_t each[WORKERS];
};

static struct counters *map(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        err(1, "%s", name);
    struct counters *c = ato_mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c == MAP_FAILED)
        errx(1, "%s", ato_errormsg());
    return c;
}

struct place {
    struct counters *c; /* the mapping */
    int which;
};

/* Runs again if another process changes a counter that it has read. */
static int count(ato_tx *tx, void *arg)
{
    const struct place *p = arg;
    uint64_t all, own;
    if (!ato_tx_memcpy(tx, &all, &p->c->all, sizeof(all), 0) ||
        !ato_tx_memcpy(tx, &own, &p->c->each[p->which], sizeof(own), 0))
        return -1;
    all++;
    own++;
    if (!ato_tx_memcpy(tx, &p->c->all, &all, sizeof(all), 0) ||
        !ato_tx_memcpy(tx, &p->c->each[p->which], &own, sizeof(own), 0))
        return -1;
    return 0;
}

/* After a fork a process has no mappings of libato: it makes its own. */
static void work(const char *name, int which)
{
    struct place p = {map(name), which};
    for (int i = 0; i < TIMES; i++)
        if (ato_tx_run(count, &p, NULL) != 0)
            errx(1, "%s", ato_errormsg());
    exit(ato_munmap(p.c, sizeof(*p.c), ATO_UNMAP_FAST) < 0);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        errx(64, "usage: processes FILE");
    pid_t pids[WORKERS];
    struct counters *c = map(argv[1]);
    /* Zeros, also if a run that was killed has left something: neither O_TRUNC nor ftruncate(2), after which libato would refuse
     * the file. */
    if (ato_ftruncate(c, 0) < 0 || ato_ftruncate(c, sizeof(*c)) < 0)
        errx(1, "%s", ato_errormsg());
    for (int i = 0; i < WORKERS; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            err(1, "fork");
        if (pids[i] == 0)
            work(argv[1], i);
    }
    for (uint64_t own = 0; own < TIMES / 4;)
        if (!ato_memcpy(&own, &c->each[0], sizeof(own)))
            errx(1, "%s", ato_errormsg());
    kill(pids[0], SIGKILL); /* at any moment: the other processes take over its pages, and go on */
    for (int i = 0; i < WORKERS; i++)
        waitpid(pids[i], NULL, 0);

    struct counters now;
    uint64_t sum = 0;
    if (!ato_memcpy(&now, c, sizeof(now)))
        errx(1, "%s", ato_errormsg());
    for (int i = 0; i < WORKERS; i++)
        sum += now.each[i];
    printf("%" PRIu64 " = %" PRIu64 "\n", now.all, sum);
    if (ato_munmap(c, sizeof(*c), ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return now.all != sum || sum < (uint64_t)TIMES * (WORKERS - 1);
}
