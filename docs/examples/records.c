/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records in a file, each written wholly or not at all.
 *
 *   records FILE
 *
 * Adds one record at each run and prints all of them. Kill it at any moment: no record is ever half written. The number
 * of records is stored in the same atomic step as the new record (ato_writev()).
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1000 };

struct record {
    int64_t when;
    char text[120];
};

struct records {
    uint64_t n;
    struct record each[MOST];
};

/* A new file is zeros: no records. */
static struct records *map(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        err(1, "%s", name);
    struct records *r = ato_mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd); /* the mapping does not need it */
    /* Only a new file, and when it is mapped: ftruncate(2) before each map would change a file of which parts are in its
     * reflection, because a run was killed, and libato would refuse it. */
    if (r == MAP_FAILED || (ato_size(r) == 0 && ato_ftruncate(r, sizeof(*r)) < 0))
        errx(1, "%s", ato_errormsg());
    return r;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        errx(64, "usage: records FILE");
    struct records *r = map(argv[1]);

    /* Read by ato_memcpy(), too: a plain load sees the file's own copy, which may be an older one. */
    uint64_t n;
    if (!ato_memcpy(&n, &r->n, sizeof(n)))
        errx(1, "%s", ato_errormsg());
    if (n == MOST)
        errx(1, "%s is full", argv[1]);

    struct record new = {.when = time(NULL)};
    snprintf(new.text, sizeof(new.text), "record %" PRIu64 " of process %d", n, (int)getpid());
    const uint64_t more = n + 1;
    const struct ato_iovec both[] = {{&r->each[n], &new, sizeof(new)},
                                     {&r->n, &more, sizeof(more)}};
    if (ato_writev(both, 2, 0) < 0)
        errx(1, "%s", ato_errormsg());

    for (uint64_t i = 0; i < more; i++) {
        struct record old;
        if (!ato_memcpy(&old, &r->each[i], sizeof(old)))
            errx(1, "%s", ato_errormsg());
        puts(old.text);
    }
    if (ato_munmap(r, sizeof(*r), ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return 0;
}
