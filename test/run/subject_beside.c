/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a subject with other processes, with threads, and with handlers of signals. */
#include "subject.h"

#include <fcntl.h>
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
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int wait_for(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
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

int step_beside_others(const char *word)
{
    char byte;
    pid_t child;
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
    if (strcmp(word, "threads") == 0)
        return store_beside();
    if (strcmp(word, "fault-handler") == 0)
        return set_fault_handler();
    if (strcmp(word, "fault") == 0)
        return fault();
    if (strcmp(word, "store-handler") == 0)
        return set_store_handler() && store_to_be_interrupted();
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
    if (strcmp(word, "wait") == 0) /* until it is told to go on */
        return write(STDOUT_FILENO, word, 1) == 1 && read(STDIN_FILENO, &byte, 1) == 0;
    if (strcmp(word, "readers") == 0)
        return read_beside();
    if (strcmp(word, "end-in-sync") == 0 || strcmp(word, "end-in-fork") == 0)
        return end_within(strcmp(word, "end-in-fork") == 0);
    if (strcmp(word, "jumps") == 0)
        return jump();
    if (strcmp(word, "store-on") == 0)
        return pthread_create(&(pthread_t){0}, NULL, store_on, NULL) == 0;
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
    fprintf(stderr, "no step %s\n", word);
    return 0;
}
