/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of libato: it stores to a mapped file and does what it is told, for run_test.py.
 *
 *     subject FILE WORD...     each WORD is a step; it ends with the number of the first step that found something wrong
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };

static const char *path;
static char *map;
static int fd;
static size_t size = SIZE;

static char *map_it(size_t n, int prot, int flags)
{
    char *p = mmap(NULL, n, prot, flags, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int map_at(char *at, size_t n)
{
    return mmap(at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at - map) == at;
}

/* Returns whether all bytes of the mapping, from `from` on, are c. */
static int holds(const char *at, size_t n, char c)
{
    return at[0] == c && memcmp(at, at + 1, n - 1) == 0;
}

static int wait_for(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static long size_by_all(void)
{
    struct stat a, b;
    struct statx c;
    if (fstat(fd, &a) < 0 || stat(path, &b) < 0 || statx(AT_FDCWD, path, 0, STATX_SIZE, &c) < 0 ||
        a.st_size != b.st_size || (long)c.stx_size != a.st_size ||
        lseek(fd, 0, SEEK_END) != a.st_size)
        return -1;
    return a.st_size;
}

/* Returns whether the file itself holds a 'b' at `at`, by system calls that the preloaded library does not see. */
static int outside(long at)
{
    char byte = 0;
    const int own = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    const int good = own >= 0 && syscall(SYS_pread64, own, &byte, 1, at) == 1 && byte == 'b';
    syscall(SYS_close, own);
    return good;
}

/* Programs that are started find what was stored. */
static int start_programs(void)
{
    char command[512];
    char *words[] = {(char *)"sh", (char *)"-c", command, NULL};
    pid_t child;
    (void)snprintf(command, sizeof(command), "exec grep -q '^%c' '%s'", 'b', path);
    map[0] = 'b';
    if (system(command) != 0)
        return 0;
    map[0] = 'c';
    command[15] = 'c';
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) != 0 || !wait_for(child))
        return 0;
    map[0] = 'd';
    command[15] = 'd';
    FILE *program = popen(command, "r");
    if (!program || pclose(program) != 0)
        return 0;
    map[0] = 'e';
    command[15] = 'e';
    child = vfork();
    if (child == 0) {
        execv("/bin/sh", words);
        _exit(1);
    }
    return wait_for(child);
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
static volatile sig_atomic_t faults;
static sigjmp_buf place;

static void note_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    faults += info->si_addr == nowhere;
    siglongjmp(place, signal);
}

/* Sets a handler of SIGSEGV after the file was mapped. */
static int set_fault_handler(void)
{
    struct sigaction own = {.sa_sigaction = note_fault, .sa_flags = SA_SIGINFO}, found;
    return sigaction(SIGSEGV, &own, NULL) == 0 && sigaction(SIGSEGV, NULL, &found) == 0 &&
           found.sa_sigaction == note_fault && found.sa_flags & SA_SIGINFO;
}

/* Returns whether that handler gets a fault of the program, and an action that is set instead is found again. */
static int fault(void)
{
    if (sigsetjmp(place, 1) == 0)
        *nowhere = 0;
    return faults == 1 && signal(SIGSEGV, SIG_IGN) != SIG_ERR &&
           signal(SIGSEGV, SIG_DFL) == SIG_IGN;
}

static void store_handler(int signal)
{
    (void)signal;
    for (size_t at = 0; at < size; at += PAGE)
        ++*(volatile char *)(map + at + PAGE - 1);
}

/* Sets a handler that stores, and blocks all signals meanwhile. */
static int set_store_handler(void)
{
    struct itimerval often = {{0, 300}, {0, 300}};
    struct sigaction own = {.sa_handler = store_handler, .sa_flags = SA_RESTART};
    sigfillset(&own.sa_mask);
    return sigaction(SIGALRM, &own, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0;
}

/* Syncs again and again until *end is set. */
static void *sync_on(void *end)
{
    while (!__atomic_load_n((int *)end, __ATOMIC_RELAXED))
        if (msync(map, size, MS_SYNC) < 0)
            return end;
    return NULL;
}

/* Stores by instructions and by system calls while another thread syncs: nothing is lost, and no call fails. */
static int store_beside(void)
{
    pthread_t other;
    void *failed;
    int end = 0, good = 1;
    sigset_t all;
    sigfillset(&all); /* as many threads do */
    if (pthread_sigmask(SIG_BLOCK, &all, NULL))
        return 0;
    const int zeros = open("/dev/zero", O_RDONLY);
    if (pthread_create(&other, NULL, sync_on, &end))
        return 0;
    for (int i = 1; i <= 300 && good; i++) {
        for (size_t at = 0; at < size && good; at += PAGE) {
            good = read(zeros, map + at + PAGE / 2, 64) == 64;
            ++*(uint64_t *)(map + at);
        }
        good &= pread(fd, map + PAGE, 8, 0) == 8;
    }
    __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
    pthread_join(other, &failed);
    for (size_t at = 0; at < size; at += PAGE)
        good &= *(uint64_t *)(map + at) == *(uint64_t *)map;
    return good && !failed;
}

/* A thread syncs while the handler of this one stores. */
static int store_to_be_interrupted(void)
{
    static int end;
    pthread_t other;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_BLOCK, &all, &before) || pthread_create(&other, NULL, sync_on, &end) ||
        pthread_sigmask(SIG_SETMASK, &before, NULL))
        return 0;
    for (int i = 0; i < 1000; i++)
        pause();
    __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    return pthread_join(other, NULL) == 0 && memset(map, 'b', size) != NULL;
}

static void *read_on(void *none)
{
    char byte;
    while (pread(fd, &byte, 1, 0) == 1)
        ;
    return none;
}

static int read_beside(void)
{
    pthread_t thread;
    for (int i = 0; i < 6; i++)
        if (pthread_create(&thread, NULL, read_on, NULL) != 0)
            return 0;
    return 1;
}

static void leave_handler(int signal)
{
    siglongjmp(place, signal);
}

/* Leaves syncs by a jump out of a handler. */
static int jump(void)
{
    static volatile int jumps;
    struct itimerval often = {{0, 1000}, {0, 1000}};
    signal(SIGALRM, leave_handler);
    setitimer(ITIMER_REAL, &often, NULL);
    sigsetjmp(place, 1);
    while (jumps++ < 100)
        for (;;) {
            map[0]++;
            msync(map, size, MS_SYNC);
        }
    signal(SIGALRM, SIG_IGN);
    return 1;
}

static void end_handler(int signal)
{
    (void)signal;
    memset(map, 'b', size);
    _exit(0);
}

/* Stores and ends in a handler, most likely within a sync, or within a fork. */
static int end_within(bool forks)
{
    struct itimerval soon = {{0, 0}, {0, 5000}};
    signal(SIGALRM, end_handler);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) {
        map[0]++;
        const pid_t child = forks ? fork() : 0;
        if (forks ? child == 0 : msync(map, size, MS_SYNC) < 0)
            _exit(1);
        if (forks)
            waitpid(child, NULL, 0);
    }
}

static void *store_on(void *unused)
{
    for (;;)
        for (size_t at = 0; at < size; at += PAGE)
            ++*(volatile uint64_t *)(map + at);
    return unused;
}

static int step(const char *word)
{
    char bytes[PAGE];
    struct iovec two[] = {{bytes, 1}, {bytes + 1, PAGE - 1}};
    pid_t child;
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
    if (strcmp(word, "unlock") == 0) /* others see what was stored */
        return flock(fd, LOCK_EX) == 0 && !outside(0) && flock(fd, LOCK_UN) == 0 && outside(0);
    if (strcmp(word, "share") == 0) { /* a lock that others may have, too, from then on */
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, shared = lock;
        shared.l_type = F_RDLCK;
        if (outside(0) || fcntl(fd, F_SETLK, &lock) < 0 || fcntl(fd, F_SETLK, &shared) < 0)
            return 0;
        const int good = outside(0);
        map[PAGE] = 'a';
        return flock(fd, LOCK_EX) == 0 && outside(PAGE) && flock(fd, LOCK_SH) == 0 &&
               !outside(PAGE) && good;
    }
    if (strcmp(word, "programs") == 0)
        return start_programs();
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
    if (strcmp(word, "fork") == 0) {
        child = fork();
        if (child ==
            0) { /* it sees what was stored, at the same address; and its own stores are seen when they are committed */
            if (!holds(map, size, 'b'))
                _exit(1);
            memset(map, 'c', PAGE);
            _exit(msync(map, PAGE, MS_SYNC) < 0);
        }
        return wait_for(child) && holds(map, PAGE, 'c') && holds(map + PAGE, size - PAGE, 'b');
    }
    if (strcmp(word, "spawn") == 0)
        return system("true") == 0;
    if (strcmp(word, "cat") == 0) { /* as a user that may not write */
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        return system("setpriv --reuid=65534 --clear-groups cat file > /dev/null") == 0;
    }
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
    if (strcmp(word, "threads") == 0)
        return store_beside();
    if (strcmp(word, "fault-handler") == 0)
        return set_fault_handler();
    if (strcmp(word, "fault") == 0)
        return fault();
    if (strcmp(word, "store-handler") == 0)
        return set_store_handler() && store_to_be_interrupted();
    if (strcmp(word, "bad-pointers") == 0)
        return write(fd, nowhere, PAGE) < 0 && errno == EFAULT && pread(fd, nowhere, PAGE, 0) < 0 &&
               errno == EFAULT && pwrite(fd, nowhere, 1, (off_t)size) < 0 && errno == EFAULT &&
               size_by_all() == (long)size && pread(fd, bytes, 1, 0) == 1;
    if (strcmp(word, "add") == 0) { /* what several processes do, each while it has the lock */
        for (int i = 0; i < 200; i++)
            if (flock(fd, LOCK_EX) < 0 || !++*(uint64_t *)map || flock(fd, LOCK_UN) < 0)
                return 0;
        return 1;
    }
    if (strcmp(word, "add-and-close") == 0) { /* the same: the lock ends with its descriptor */
        for (int i = 0; i < 200; i++) {
            const int lock = open(path, O_RDWR);
            if (flock(lock, LOCK_EX) < 0 || !++*(uint64_t *)map || close(lock) < 0)
                return 0;
        }
        return 1;
    }
    if (strcmp(word, "append-together") ==
        0) { /* others do the same, and each syncs now and then */
        for (int i = 1; i <= 60; i++)
            if (write(fd, word, 16) != 16 || (i % 3 == 0 && fdatasync(fd) < 0))
                return 0;
        return 1;
    }
    if (strcmp(word, "no-space") == 0)
        return signal(SIGXFSZ, SIG_IGN) != SIG_ERR &&
               setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY}) == 0;
    if (strcmp(word, "space") == 0)
        return setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0;
    if (strcmp(word, "drop-rights") == 0) /* as daemons do that are started by root */
        return setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0;
    if (strcmp(word, "wait") == 0) /* until it is told to go on */
        return write(STDOUT_FILENO, word, 1) == 1 && read(STDIN_FILENO, bytes, 1) == 0;
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
    if (strcmp(word, "readers") == 0)
        return read_beside();
    if (strcmp(word, "end-in-sync") == 0 || strcmp(word, "end-in-fork") == 0)
        return end_within(strcmp(word, "end-in-fork") == 0);
    if (strcmp(word, "jumps") == 0)
        return jump();
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
    if (strcmp(word, "store-on") == 0)
        return pthread_create(&(pthread_t){0}, NULL, store_on, NULL) == 0;
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
    if (strcmp(word, "locked") ==
        0) { /* no descriptor of the file was closed: locks of fcntl(2) are held */
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_SETLK, &lock) < 0)
            return 0;
        map = map_it(size, PROT_READ | PROT_WRITE, MAP_SHARED);
        if (open(path, O_RDONLY) < 0 || size_by_all() != SIZE)
            return 0;
        child = fork();
        if (child == 0)
            _exit(fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK);
        return map && wait_for(child);
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
    fprintf(stderr, "no step %s\n", word);
    return 0;
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
