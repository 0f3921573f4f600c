/* SPDX-License-Identifier: BSD-3-Clause */
#include "subject.h"
#include "record.h"

#include <ato.h>

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES    (16u << 20) /* more of the file would make it slow, not better */
#define STUCK_SECONDS 60          /* a child that takes longer hangs */

struct ack {
    uint64_t version;
    uint32_t record;
    uint32_t path; /* enum commit_path; told with the first write only */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t random64(void)
{
    uint64_t x;

    if (getrandom(&x, sizeof x, 0) != sizeof x)
        err(2, "getrandom");
    return x;
}

/* Which record a version is written to: writer and checker agree on it beforehand. */
static uint32_t record_of(const struct subject *s, uint64_t version)
{
    return (uint32_t)(mix(s->seed + version) % s->records);
}

static void *allocate(size_t n)
{
    /* Shared, so that a forked reader can fill it. */
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        err(2, "no memory for %zu bytes", n);
    return p;
}

static void read_whole(const char *path, void *out, size_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;

    if (fd < 0)
        err(2, "%s", path);
    while (done < n) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)done);

        if (got < 0)
            err(2, "%s", path);
        if (got == 0)
            errx(2, "%s is shorter than it was: %zu of %zu bytes", path, done, n);
        done += (size_t)got;
    }
    close(fd);
}

static void write_whole(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t done = 0;

    if (fd < 0)
        err(2, "%s", path);
    while (done < n) {
        ssize_t put = write(fd, (const char *)bytes + done, n - done);

        if (put < 0)
            err(2, "%s", path);
        done += (size_t)put;
    }
    if (close(fd) != 0)
        err(2, "%s", path);
}

/* ---- Children ---- */

/* A fork that dies with its parent, leaves Ctrl-C to it, and does not hang for ever. */
static pid_t fork_child(void)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        err(2, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        alarm(STUCK_SECONDS);
    }
    return pid;
}

static _Noreturn void write_until_killed(const struct subject *s, enum way way, int pipe)
{
    static _Alignas(64) unsigned char bytes[RECORD_SIZE];
    struct view v = view_open(way, s->path, s->size, ATO_READ_LAZY);
    uint64_t first = s->version + 1;

    for (uint64_t version = first;; version++) {
        struct ack ack = {.version = version, .record = record_of(s, version)};

        record_fill(bytes, ack.record, version);
        view_write(&v, (size_t)ack.record * RECORD_SIZE, bytes, RECORD_SIZE);
        if (version == first)
            ack.path = view_commit_path(&v);
        if (write(pipe, &ack, sizeof ack) != sizeof ack)
            err(2, "telling a write");
    }
}

static _Noreturn void read_and_exit(const struct subject *s, int policy, bool spatial)
{
    struct view v = view_open(WAY_ATO, s->path, s->size, policy);
    size_t offset = 0;

    for (; offset + RECORD_SIZE <= s->size; offset += RECORD_SIZE)
        view_read(&v, offset, s->now + offset, RECORD_SIZE);
    if (offset < s->size)
        view_read(&v, offset, s->now + offset, s->size - offset);
    view_close(&v, spatial);
    _exit(0);
}

/* Reports a child that ended in an unexpected way. */
static _Noreturn void blame(const char *who, int status)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        errx(1, "%s hung: killed after %d s", who, STUCK_SECONDS);
    if (WIFSIGNALED(status))
        errx(1, "%s died of signal %d (%s)", who, WTERMSIG(status), strsignal(WTERMSIG(status)));
    errx(1, "%s failed (status %d): see the line above", who, WEXITSTATUS(status));
}

/* Reads the records in a process after the kill, into s->now. */
static void read_after_kill(struct subject *s, enum way way, unsigned round, bool spatial)
{
    /* In turn: leaves slices where they are, and deploys them; so writes go both ways. */
    int policy = round % 4 < 2 ? ATO_READ_GATHER : ATO_READ_LAZY;
    int status;
    pid_t pid;

    memset(s->now, 0, s->size);
    if (way == WAY_MMAP) {
        read_whole(s->path, s->now, s->size);
        return;
    }
    pid = fork_child();
    if (pid == 0)
        read_and_exit(s, policy, spatial);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            err(2, "waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        blame("the process that reads after a kill", status);
}

/* ---- One kill ---- */

static bool next_ack(int pipe, struct ack *a)
{
    ssize_t n;

    do
        n = read(pipe, a, sizeof *a);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        err(2, "reading acknowledgements");
    if (n != 0 && n != sizeof *a)
        errx(2, "half an acknowledgement: %zd bytes", n);
    return n != 0;
}

static void note_ack(struct subject *s, struct tally *t, const struct ack *a)
{
    if (a->version != s->version + 1 || a->record != record_of(s, a->version))
        errx(2, "acknowledgements out of order: version %" PRIu64 " after %" PRIu64, a->version,
             s->version);
    s->version = a->version;
    s->acked[a->record] = a->version;
    t->acked++;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Write until killed; s->version and s->acked tell what was acknowledged. */
static void kill_writer(struct subject *s, struct tally *t, enum way way)
{
    struct ack a;
    int fd[2], status;
    pid_t pid;

    if (pipe2(fd, O_CLOEXEC) != 0)
        err(2, "pipe");
    pid = fork_child();
    if (pid == 0)
        write_until_killed(s, way, fd[1]);
    close(fd[1]);

    memset(s->acked, 0, s->records * sizeof *s->acked);
    if (next_ack(fd[0], &a)) {
        note_ack(s, t, &a);
        t->rtm += a.path == COMMIT_RTM;
        t->journal += a.path == COMMIT_JOURNAL;
        sleep_ns(random64() % LONGEST_DELAY_NS);
        kill(pid, SIGKILL);
    }
    while (next_ack(fd[0], &a))
        note_ack(s, t, &a);
    close(fd[0]);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            err(2, "waitpid");
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        blame("the process that writes", status);
    t->kills++;
}

static void judge(const struct subject *s, struct tally *t)
{
    static _Alignas(64) unsigned char committed[RECORD_SIZE], pending[RECORD_SIZE];
    uint32_t in_doubt = record_of(s, s->version + 1);
    size_t tail = (size_t)s->records * RECORD_SIZE;
    unsigned torn = 0;

    record_fill(pending, in_doubt, s->version + 1);
    for (uint32_t r = 0; r < s->records; r++) {
        size_t offset = (size_t)r * RECORD_SIZE;
        struct record_history known = {
            .committed = s->before + offset,
            .pending = r == in_doubt ? pending : NULL,
            .before = s->before + offset,
            .original = s->original + offset,
        };

        if (s->acked[r]) {
            record_fill(committed, r, s->acked[r]);
            known.committed = committed;
        }
        switch (record_judge(s->now + offset, r, &known)) {
        case RECORD_OLD:
            t->ended_old += r == in_doubt;
            break;
        case RECORD_NEW:
            t->ended_new++;
            break;
        case RECORD_LOST:
            t->lost++;
            break;
        case RECORD_TORN:
            torn++;
            break;
        }
    }
    t->torn += torn;
    if (memcmp(s->now + tail, s->original + tail, s->size - tail) != 0)
        t->damaged++;
}

void subject_kill(struct subject *s, struct tally *t, enum way way, unsigned round)
{
    kill_writer(s, t, way);
    read_after_kill(s, way, round, false);
    judge(s, t);
    s->version++; /* the interrupted write may have happened: its version is spent */
    memcpy(s->before, s->now, s->size);
}

/* ---- The copy ---- */

struct subject subject_make(const char *folder, const char *name, const unsigned char *original,
                            size_t size)
{
    struct subject s = {.size = size, .original = original};
    int n = snprintf(s.path, sizeof s.path, "%s/%s", folder, name);

    if (n < 0 || (size_t)n >= sizeof s.path)
        errx(2, "the name of the folder is too long");
    s.records = (uint32_t)(size / RECORD_SIZE);
    s.seed = random64();
    s.before = allocate(size);
    s.now = allocate(size);
    s.acked = allocate(s.records * sizeof *s.acked);
    memcpy(s.before, original, size);
    write_whole(s.path, original, size);
    return s;
}

const unsigned char *subject_load(const char *path, size_t *size)
{
    struct stat st;
    void *bytes;

    if (stat(path, &st) != 0)
        err(2, "%s", path);
    if (!S_ISREG(st.st_mode))
        errx(2, "%s is not a regular file", path);
    if (st.st_size < (off_t)RECORD_SIZE)
        errx(2, "%s is too small: %jd bytes, and one record takes %u", path, (intmax_t)st.st_size,
             RECORD_SIZE);
    *size = st.st_size > (off_t)MOST_BYTES ? MOST_BYTES : (size_t)st.st_size;
    bytes = allocate(*size);
    read_whole(path, bytes, *size);
    return bytes;
}

bool subject_plain_again(struct subject *s)
{
    unsigned char *plain = allocate(s->size);
    bool as_before;

    read_after_kill(s, WAY_ATO, 0, true);
    as_before = memcmp(s->now, s->before, s->size) == 0;
    read_whole(s->path, plain, s->size);
    return as_before && memcmp(plain, s->now, s->size) == 0;
}
