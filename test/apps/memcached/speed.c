/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What memcached -e does in a second, and the longest time that a client waits.
 *
 *     speed MEMCACHED MEGABYTES SECONDS
 *
 * Starts it in the working folder, with a cache of that many MiB, and fills three quarters of that with values
 * of 1,000 bytes. Two connections then set, and then get, random ones of them, each waiting for every answer.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1000, CLIENTS = 2, BATCH = 100 };

static pid_t server;

static void fail(const char *what)
{
    perror(what);
    if (server > 0)
        kill(server, SIGKILL);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void start(const char *program, const char *megabytes)
{
    unlink("socket");
    server = fork();
    if (server == 0) {
        execl(program, program, "-u", "root", "-s", "socket", "-e", "cache", "-t", "2", "-m",
              megabytes, (char *)NULL);
        _exit(127);
    }
}

static int connected(void)
{
    const struct sockaddr_un a = {AF_UNIX, "socket"};
    for (double end = now() + 20; now() < end; usleep(1000)) {
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(s, (const struct sockaddr *)&a, sizeof(a)) == 0)
            return s;
        close(s);
    }
    fail("connect");
    return -1;
}

static unsigned long long state = 88172645463325252u;

static unsigned long next_random(unsigned long n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

static size_t request(char *to, int set, unsigned long key)
{
    size_t n;
    if (!set)
        return (size_t)sprintf(to, "get key%lu\r\n", key);
    n = (size_t)sprintf(to, "set key%lu 0 0 %d\r\n", key, BYTES);
    memset(to + n, 'a' + (int)next_random(26), BYTES);
    memcpy(to + n + BYTES, "\r\n", 2);
    return n + BYTES + 2;
}

static void send_all(int s, const char *from, size_t n)
{
    for (ssize_t m; n > 0; n -= (size_t)m, from += m)
        if ((m = write(s, from, n)) <= 0)
            fail("write");
}

/* Until `lines` lines have come that end an answer. */
static void answers(int s, int set, int lines)
{
    static char buffer[1 << 20];
    const char *end = set ? "STORED\r\n" : "END\r\n";
    size_t n = 0;
    while (lines > 0) {
        ssize_t m = read(s, buffer + n, sizeof(buffer) - 1 - n);
        if (m <= 0)
            fail("read");
        buffer[n += (size_t)m] = 0;
        char *at = buffer, *found;
        for (; (found = strstr(at, end)); at = found + strlen(end))
            lines--;
        n -= (size_t)(at - buffer);
        memmove(buffer, at, n);
    }
}

static void fill(unsigned long keys)
{
    static char text[BATCH * (BYTES + 64)];
    int s = connected();
    for (unsigned long k = 0; k < keys; k += BATCH) {
        size_t n = 0;
        for (unsigned long i = k; i < k + BATCH; i++)
            n += request(text + n, 1, i);
        send_all(s, text, n);
        answers(s, 1, BATCH);
    }
    close(s);
}

struct result {
    double each, longest;
};

static void client(int set, unsigned long keys, double seconds, int out)
{
    char text[BYTES + 64];
    int s = connected();
    struct result r = {0, 0};
    const double begin = now();
    double before = begin, at = begin;
    while (before < begin + seconds) {
        send_all(s, text, request(text, set, next_random(keys)));
        answers(s, set, 1);
        at = now();
        r.each++;
        if (at - before > r.longest)
            r.longest = at - before;
        before = at;
    }
    r.each /= at - begin;
    if (write(out, &r, sizeof(r)) != sizeof(r))
        fail("write");
    _exit(0);
}

static void measure(int set, unsigned long keys, double seconds)
{
    int fd[2];
    struct result all = {0, 0}, r;
    if (pipe(fd) < 0)
        fail("pipe");
    for (int i = 0; i < CLIENTS; i++) {
        state += 7919;
        if (fork() == 0)
            client(set, keys, seconds, fd[1]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        if (read(fd[0], &r, sizeof(r)) != sizeof(r))
            fail("read");
        all.each += r.each;
        if (r.longest > all.longest)
            all.longest = r.longest;
    }
    printf("%ss a second\t%.0f\n", set ? "set" : "get", all.each);
    printf("longest %s, microseconds\t%.0f\n", set ? "set" : "get", all.longest * 1e6);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s MEMCACHED MEGABYTES SECONDS\n", argv[0]);
        return 2;
    }
    /* A value takes 1,184 bytes of the cache. */
    const unsigned long keys = strtoul(argv[2], NULL, 10) * 1048576 / 1184 * 3 / 4 / BATCH * BATCH;
    signal(SIGPIPE, SIG_IGN);
    start(argv[1], argv[2]);
    fill(keys);
    sleep(2);
    measure(1, keys, atof(argv[3]));
    measure(0, keys, atof(argv[3]));
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
