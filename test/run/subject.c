/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of libato: it stores to a mapped file and does what it is told, for run_test.py.
 *
 *     subject FILE WORD...     each WORD is a step; it ends with the number of the first step that found something wrong
 */
#include "subject.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

const char *path;
char *map;
int fd;
size_t size = SIZE;

char *map_it(size_t n, int prot, int flags)
{
    char *p = mmap(NULL, n, prot, flags, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int map_at(char *at, size_t n)
{
    return mmap(at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at - map) == at;
}

int holds(const char *at, size_t n, char c)
{
    return at[0] == c && memcmp(at, at + 1, n - 1) == 0;
}

long size_by_all(void)
{
    struct stat a, b;
    struct statx c;
    if (fstat(fd, &a) < 0 || stat(path, &b) < 0 || statx(AT_FDCWD, path, 0, STATX_SIZE, &c) < 0 ||
        a.st_size != b.st_size || (long)c.stx_size != a.st_size ||
        lseek(fd, 0, SEEK_END) != a.st_size)
        return -1;
    return a.st_size;
}

static int receive_descriptor(void)
{
    int ends[2], received = -1;
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) < 0 || sendmsg(ends[0], &message, 0) != 1 ||
        recvmsg(ends[1], &message, 0) != 1)
        return -1;
    memcpy(&received, CMSG_DATA(rights), sizeof(received));
    return received;
}

/* The i-th way to a descriptor of the file. */
static int get_descriptor(int i)
{
    switch (i) {
    case 0:
        return open(path, O_RDWR);
    case 1:
        return openat(AT_FDCWD, path, O_RDWR);
    case 2:
        return dup(fd);
    case 3:
        return dup2(fd, 100);
    case 4:
        return dup3(fd, 101, O_CLOEXEC);
    case 5:
        return fcntl(fd, F_DUPFD, 102);
    case 6:
        return fileno(fopen(path, "r+"));
    case 7:
        return fileno(freopen(path, "r+", stdin));
    case 8:
        return dup2(open("/dev/null", O_RDWR), 100); /* of another file from now on */
    default:
        return receive_descriptor();
    }
}

static char *volatile nowhere = (char *)1;

static int step(const char *word)
{
    char bytes[PAGE];
    struct iovec two[] = {{bytes, 1}, {bytes + 1, PAGE - 1}};
    if (strcmp(word, "a") == 0 || strcmp(word, "b") == 0)
        return memset(map, *word, size) != NULL;
    if (strcmp(word, "half") == 0)
        return memset(map, 'b', size / 2) != NULL;
    if (strcmp(word, "count") == 0)
        for (char c = 1;; c = (char)(c % 100 + 1)) {
            memset(map, c, size);
            if (msync(map, size, MS_SYNC) < 0 || write(STDOUT_FILENO, &c, 1) != 1)
                return 0;
        }
    if (strcmp(word, "msync") == 0)
        return msync(map, size, MS_SYNC) == 0;
    if (strcmp(word, "async") == 0)
        return msync(map, size, MS_ASYNC) == 0;
    if (strcmp(word, "fsync") == 0)
        return fsync(fd) == 0;
    if (strcmp(word, "fdatasync") == 0)
        return fdatasync(fd) == 0;
    if (strcmp(word, "munmap") == 0)
        return munmap(map, size) == 0;
    if (strcmp(word, "munmap-part") == 0)
        return munmap(map + PAGE, PAGE) == 0;
    if (strcmp(word, "close") == 0)
        return close(fd) == 0;
    if (strcmp(word, "freopen") == 0) /* closes it */
        return freopen("/dev/null", "r", fdopen(fd, "r+")) != NULL;
    if (strcmp(word, "freopen-anew") == 0)
        return freopen(path, "w", stdin) && size_by_all() == 0 && ftruncate(fd, SIZE) == 0;
    if (strcmp(word, "close-range") == 0)
        return close_range((unsigned)fd, (unsigned)fd, 0) == 0;
    if (strcmp(word, "replace") == 0)
        return dup2(STDIN_FILENO, fd) == fd;
    if (strcmp(word, "kill") == 0)
        return raise(SIGKILL);
    if (strcmp(word, "kill-all") == 0) /* `ato run`, too, as when the power fails */
        return kill(0, SIGKILL);
    if (strcmp(word, "return") == 0)
        exit(0);
    if (strcmp(word, "_exit") == 0)
        _exit(0);
    if (strcmp(word, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(word, "exec") == 0)
        return execlp("true", "true", (char *)NULL);
    if (strcmp(word, "exec-path") == 0)
        return execl("/bin/true", "true", (char *)NULL);
    if (strcmp(word, "grow") == 0) {
        if (ftruncate(fd, 2 * SIZE) < 0 || size_by_all() != 2 * SIZE)
            return 0;
        char *more = mremap(map, size, 2 * SIZE, MREMAP_MAYMOVE);
        if (more == MAP_FAILED || more[SIZE] || !holds(more, SIZE, 'b'))
            return 0;
        map = more;
        size = 2 * SIZE;
        return memset(map + SIZE, 'b', SIZE) != NULL;
    }
    if (strcmp(word, "shrink") == 0) {
        size = SIZE / 2;
        return ftruncate(fd, SIZE / 2) == 0 && size_by_all() == SIZE / 2;
    }
    if (strcmp(word, "cut-and-grow") == 0)
        return ftruncate(fd, PAGE + 100) == 0 && ftruncate(fd, SIZE) == 0 &&
               map[PAGE + 99] == 'b' && holds(map + PAGE + 100, SIZE - PAGE - 100, 0) &&
               memset(map, 0, PAGE + 100);
    if (strcmp(word, "cut-grow-and-store") == 0) { /* what was there before */
        map[PAGE] = 'b';
        return ftruncate(fd, PAGE + 100) == 0 && ftruncate(fd, SIZE) == 0 && memset(map, 'b', SIZE);
    }
    if (strcmp(word, "open-anew") == 0) /* cuts it, and makes it as long as it was */
        return close(open(path, O_RDWR | O_TRUNC)) == 0 && size_by_all() == 0 &&
               ftruncate(fd, SIZE) == 0 && map[0] == 0 && map[SIZE - 1] == 0;
    if (strcmp(word, "fopen-anew") == 0) {
        FILE *file = fopen(path, "w");
        return file && size_by_all() == 0 && fclose(file) == 0 && ftruncate(fd, SIZE) == 0;
    }
    if (strcmp(word, "allocate") == 0) {
        size = 2 * SIZE;
        return posix_fallocate(fd, 0, 2 * SIZE) == 0 && size_by_all() == 2 * SIZE;
    }
    if (strcmp(word, "map-again") == 0) {
        munmap(map, size);
        return (map = map_it(size, PROT_READ | PROT_WRITE, MAP_SHARED)) != NULL;
    }
    if (strcmp(word, "others-see") == 0) { /* further mappings of the file */
        char *reader = map_it(size, PROT_READ, MAP_SHARED);
        char *writer = map_it(size, PROT_READ | PROT_WRITE, MAP_SHARED);
        char *copy = map_it(size, PROT_READ, MAP_PRIVATE);
        memset(map, 'b', PAGE);
        const int good =
            reader && writer && copy && holds(reader, PAGE, 'b') && holds(writer, PAGE, 'b');
        return good && munmap(writer, size) == 0 && munmap(reader, size) == 0 &&
               holds(map, PAGE, 'b');
    }
    if (strcmp(word, "read") == 0) /* sees what was stored and not committed */
        return pread(fd, bytes, PAGE, PAGE) == PAGE && holds(bytes, PAGE, 'b') &&
               lseek(fd, 0, SEEK_SET) == 0 && readv(fd, two, 2) == PAGE &&
               holds(bytes, PAGE, 'b') && lseek(fd, 0, SEEK_CUR) == PAGE &&
               pread(fd, bytes, PAGE, (off_t)size) == 0 && pread(fd, bytes, PAGE, -1) < 0;
    if (strcmp(word, "write") == 0) { /* is seen in the mapping, and is in the next commit */
        memset(bytes, 'w', PAGE);
        return lseek(fd, PAGE / 2, SEEK_SET) == PAGE / 2 && writev(fd, two, 2) == PAGE &&
               lseek(fd, 0, SEEK_CUR) == PAGE + PAGE / 2 && map[PAGE / 2 - 1] == 'b' &&
               holds(map + PAGE / 2, PAGE, 'w') && map[PAGE + PAGE / 2] == 'b';
    }
    if (strcmp(word, "descriptors") == 0) {
        for (int i = 0; i < 10; i++)
            if (pwrite(get_descriptor(i), "w", 1, i) != 1 || (map[i] == 'w') != (i != 8))
                return 0;
        return memset(map, 'b', PAGE) != NULL;
    }
    if (strcmp(word, "append") == 0) { /* makes the file longer at once */
        memset(bytes, 'b', PAGE);
        for (int i = 0; i < 16; i++)
            if (pwrite(fd, bytes, PAGE, (off_t)size + i * PAGE) != PAGE)
                return 0;
        return size_by_all() == 2 * SIZE;
    }
    if (strcmp(word, "sendfile") == 0) {
        const int to = open(path, O_RDWR);
        const int copy = memfd_create("copy", 0);
        return sendfile(copy, fd, &(off_t){0}, PAGE) == PAGE &&
               pread(copy, bytes, PAGE, 0) == PAGE && holds(bytes, PAGE, 'b') &&
               sendfile(to, copy, &(off_t){0}, PAGE) < 0;
    }
    if (strcmp(word, "bad-pointers") == 0)
        return write(fd, nowhere, PAGE) < 0 && errno == EFAULT && pread(fd, nowhere, PAGE, 0) < 0 &&
               errno == EFAULT && pwrite(fd, nowhere, 1, (off_t)size) < 0 && errno == EFAULT &&
               size_by_all() == (long)size && pread(fd, bytes, 1, 0) == 1;
    if (strcmp(word, "no-space") == 0)
        return signal(SIGXFSZ, SIG_IGN) != SIG_ERR &&
               setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY}) == 0;
    if (strcmp(word, "space") == 0)
        return setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0;
    if (strcmp(word, "drop-rights") == 0) /* as daemons do that are started by root */
        return setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0;
    if (strcmp(word, "many-files") == 0) {
        for (int i = 0; i < 20; i++) {
            char name[4096];
            (void)snprintf(name, sizeof(name), "%s.%d", path, i);
            const int other = open(name, O_RDWR | O_CREAT, 0600);
            if (other < 0 || ftruncate(other, PAGE) < 0 ||
                mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, other, 0) == MAP_FAILED)
                return 0;
        }
        return 1;
    }
    if (strcmp(word, "close-all") ==
        0) { /* as daemons do: none is left but what is not this program's */
        for (int i = 3; i < 100; i++)
            close(i);
        closefrom(3);
        return close_range(3, ~0u, 0) == 0 && open(path, O_RDONLY) == 3;
    }
    if (strcmp(word, "replace-all") == 0) {
        for (int i = 3; i < 100; i++)
            if (i != fd && dup2(STDIN_FILENO, i) < 0)
                return 0;
        return 1;
    }
    if (strcmp(word, "replace-high") == 0) {
        int refused = 0;
        for (int i = 100; i < 1024; i++)
            refused += dup2(STDIN_FILENO, i) < 0 && errno == EBUSY;
        return refused;
    }
    if (strcmp(word, "overflow") == 0)
        return pwrite(fd, "w", 1, LLONG_MAX) < 0 && (errno == EFBIG || errno == EINVAL);
    if (strcmp(word, "dontneed") == 0)
        return madvise(map, size, MADV_DONTNEED) == 0 && holds(map, size, 'b');
    if (strcmp(word, "protect") == 0) /* or else a sync must not crash */
        return mprotect(map, size, PROT_NONE) < 0 && errno == EACCES &&
               mprotect(map, size, PROT_READ | PROT_WRITE) == 0 && msync(map, size, MS_SYNC) == 0;
    if (strcmp(word, "fixed") == 0)
        return mmap(map + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
               MAP_FAILED;
    if (strcmp(word, "fixed-again") == 0) /* the same pages where they are, or were */
        return map_at(map + PAGE, PAGE) && munmap(map, size) == 0 && map_at(map, size);
    if (strcmp(word, "fixed-other") == 0) { /* where a file was */
        munmap(map, size);
        return mmap(map, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                    0) == map &&
               holds(map, size, 0);
    }
    if (strcmp(word, "no-descriptors") ==
        0) { /* there are none for libato; the mapping needs none */
        struct rlimit none = {16, 16};
        if (setrlimit(RLIMIT_NOFILE, &none) < 0)
            return 0;
        while (dup(fd) >= 0)
            ;
        errno = EDOM;
        map = map_it(size, PROT_READ | PROT_WRITE, MAP_SHARED);
        return errno == (map ? EDOM : EMFILE) && map;
    }
    if (strcmp(word, "recovered") == 0) { /* what a killed process left, before it is mapped */
        if (size_by_all() != SIZE || pread(fd, bytes, PAGE, 0) != PAGE || !holds(bytes, PAGE, 'b'))
            return 0;
        map = map_it(size, PROT_READ | PROT_WRITE, MAP_SHARED);
        return map && holds(map, SIZE, 'b');
    }
    return step_beside_others(word);
}

int main(int argc, char **argv)
{
    path = argv[1];
    fd = open(path, O_RDWR | (argc > 2 && strcmp(argv[2], "append-together") == 0 ? O_APPEND : 0));
    if (fd < 0)
        return 99;
    const int maps_later =
        argc > 2 && (strcmp(argv[2], "locked") == 0 || strcmp(argv[2], "recovered") == 0 ||
                     strcmp(argv[2], "no-descriptors") == 0);
    if (!maps_later)
        map = map_it(size, PROT_READ | PROT_WRITE, MAP_SHARED);
    if (!map && argc > 2 && !maps_later)
        return 98;
    for (int i = 2; i < argc; i++)
        if (!step(argv[i]))
            return i - 1;
    return 0;
}
