/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that grows while it is mapped: appends lines to it. Several processes may do that at once.
 *
 *   growth FILE LINE...
 *
 * A line and the new size of the file are one step: after a crash the file ends with a whole line. No line is lost: if another
 * process appends between the look at the size and the commit, the transaction is refused, and runs again.
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Address space that is kept for the file. It takes no memory. With it the mapping grows with the file, however long the file
 * is when it is mapped. */
#define MOST (16ull << 30)

struct line {
    char *base; /* the mapping */
    const char *text;
};

/* For ato_tx_run(): may run several times. */
static int append(ato_tx *tx, void *arg)
{
    const struct line *line = arg;
    const size_t n = strlen(line->text);
    /* Not ato_size(): the commit does not check what that returned. */
    const off_t end = ato_tx_size(tx, line->base);
    if (end < 0 || ato_tx_ftruncate(tx, line->base, end + (off_t)n + 1) < 0 ||
        !ato_tx_memcpy(tx, line->base + end, line->text, n, 0) ||
        !ato_tx_memcpy(tx, line->base + end + n, "\n", 1, 0))
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        errx(64, "usage: growth FILE LINE...");
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        err(1, "%s", argv[1]);
    const struct ato_options options = {.struct_size = sizeof(options), .max_size = MOST};
    char *base = ato_mmap_opt(4096, fd, 0, &options); /* also of an empty file */
    close(fd);
    if (base == MAP_FAILED)
        errx(1, "%s", ato_errormsg());

    for (int i = 2; i < argc; i++) {
        struct line line = {base, argv[i]};
        if (ato_tx_run(append, &line, NULL) < 0)
            errx(1, "%s", ato_errormsg());
    }
    printf("%lld bytes\n", (long long)ato_size(base));
    if (ato_munmap(base, 4096, ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return 0;
}
