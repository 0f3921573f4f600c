/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that grows while it is mapped: appends lines to it.
 *
 *   growth FILE LINE...
 *
 * A line and the new size of the file are one step: after a crash the file ends with a whole line.
 */
#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Address space that is kept for the file. It takes no memory. */
#define MOST (16ull << 30)

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
        char line[4096];
        const int n = snprintf(line, sizeof(line), "%s\n", argv[i]);
        if (n >= (int)sizeof(line))
            errx(1, "a line is too long");
        const off_t end = ato_size(base);
        ato_tx *tx = ato_tx_begin(0);
        if (!tx || ato_tx_ftruncate(tx, base, end + n) < 0 ||
            !ato_tx_memcpy(tx, base + end, line, (size_t)n, 0) || ato_tx_commit(tx) < 0)
            errx(
                1, "%s",
                ato_errormsg()); /* a transaction that is open at the end of its process leaves nothing */
    }
    printf("%lld bytes\n", (long long)ato_size(base));
    if (ato_munmap(base, 4096, ATO_UNMAP_SPATIAL) < 0)
        errx(1, "%s", ato_errormsg());
    return 0;
}
