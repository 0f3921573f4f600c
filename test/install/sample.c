/* SPDX-License-Identifier: BSD-3-Clause */
/* A user's program: makes a file, writes it atomically, reads it back. */
#define _POSIX_C_SOURCE 200809L

#include <ato.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static const char text[] = "wholly or not at all";
    char back[sizeof(text)];
    struct ato_stat st;
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0)
        return 1;
    char *at = ato_mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    memset(&st, 0, sizeof(st));
    st.struct_size = sizeof(st);
    if (at == MAP_FAILED || ato_ftruncate(at, 100000) < 0 || !ato_memset(at, 0, 100000) ||
        !ato_memcpy(at, text, sizeof(text)) || !ato_memcpy(back, at, sizeof(back)) ||
        memcmp(back, text, sizeof(text)) != 0 || ato_stat(at, &st) < 0 || st.writes != 2 ||
        ato_munmap(at, 100000, ATO_UNMAP_SPATIAL) < 0) {
        fprintf(stderr, "%s\n", ato_errormsg());
        return 1;
    }
    puts(ato_version());
    return 0;
}
