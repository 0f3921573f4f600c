/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato doctor`: what a folder, the machine and the kernel offer, and which durability domain a
 * file would get there.
 *
 * Tries things on a file without a name, or, where there is no such thing, on one whose name is
 * gone before it is used: nothing is left behind.
 */
#include "json.h"
#include "text.h"
#include "tool.h"

#include "lib/file/shared.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"

#include "ato.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <libpmem.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

/* ---- what is found out ---- */

struct cpu {
    bool clwb, clflushopt, avx2, avx512, rtm, rtm_commits;
    const char *kernel; /* copies slices */
};

struct medium {
    char type[64]; /* "ext4" ... */
    int tried;     /* errno of making a file there; the trials below count if 0 */
    int map_sync;  /* of each trial: 0, or errno */
    int attributes, fallocate;
    bool has_space;
    uint64_t size, free, reserved; /* bytes; free to the caller, and kept for root */
    int domain;                    /* of a file there */
};

struct shm {
    int error;
    bool writable;
    uint64_t size, free;
};

struct diagnosis {
    const char *name;
    struct utsname kernel;
    bool membarrier, boot_id;
    int auto_flush; /* 1 eADR, 0 not, -1 not known */
    struct cpu cpu;
    struct medium medium;
    struct shm shm;
    const char *elsewhere; /* ATO_REFLECTION_DIR; NULL */
    char folder[600];      /* why reflections cannot be put where they would lie; "" */
    int elsewhere_domain;  /* of that folder; -1: no file can be made there */
    const char *wish;      /* ATO_DURABILITY; NULL */
    int offered;           /* by the media */
    int domain;            /* with the wish; -1: the wish is no domain */
};

static struct cpu look_at_cpu(void)
{
    struct cpu c = {0};
    struct persist p;
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        c.rtm = ebx & (1u << 11);
        c.clflushopt = ebx & (1u << 23);
        c.clwb = ebx & (1u << 24);
    }
    /* These the kernel has to allow too. */
    c.avx2 = __builtin_cpu_supports("avx2");
    c.avx512 = __builtin_cpu_supports("avx512f");
    c.rtm_commits = persist_rtm_works();
    persist_init(&p, PERSIST_PROCESS);
    c.kernel = p.kernel->name;
    return c;
}

static bool has_membarrier(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

/* A file in the folder that nobody else can see. */
static int make_file(const char *folder)
{
    char path[PATH_MAX];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    if (snprintf(path, sizeof(path), "%s/.ato-doctor-XXXXXX", folder) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static void try_file(struct medium *m, int fd)
{
    static const char value[] = "ato1";
    m->domain = domain_of(fd);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    m->map_sync = map == MAP_FAILED ? errno : 0;
    if (map != MAP_FAILED)
        munmap(map, 4096);
    m->attributes = fsetxattr(fd, "user.ato", value, sizeof(value), 0) < 0 ? errno : 0;
    m->fallocate = fallocate(fd, 0, 0, MANIFEST_BYTES) < 0 ? errno : 0;
}

/* The type as mount(8) knows it: by the number of the mount, in a line of
 * "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue". */
static bool find_type(const char *folder, char type[64])
{
    struct statx sx;
    unsigned long long id;
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    if (statx(AT_FDCWD, folder, 0, STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
        return false;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts)
        return false;
    while (!found && getline(&line, &room, mounts) > 0) {
        const char *at = strstr(line, " - ");
        if (sscanf(line, "%llu", &id) == 1 && id == sx.stx_mnt_id && at)
            found = sscanf(at + 3, "%63s", type) == 1;
    }
    free(line);
    fclose(mounts);
    return found;
}

static void name_type(const char *folder, char type[64])
{
    struct statfs fs;
    if (find_type(folder, type))
        return;
    if (statfs(folder, &fs) < 0)
        strcpy(type, "unknown");
    else
        snprintf(type, 64, "unknown (0x%lx)", (unsigned long)fs.f_type);
}

static int look_at_medium(struct medium *m, const char *folder)
{
    struct statvfs vfs;
    struct stat st;
    memset(m, 0, sizeof(*m));
    if (stat(folder, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return -1;
    }
    name_type(folder, m->type);
    if (statvfs(folder, &vfs) == 0) {
        m->has_space = true;
        m->size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
        m->free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
        m->reserved = (uint64_t)(vfs.f_bfree - vfs.f_bavail) * vfs.f_frsize;
    }
    int fd = make_file(folder);
    m->tried = fd < 0 ? errno : 0;
    if (fd >= 0) {
        try_file(m, fd);
        close(fd);
    }
    return 0;
}

static void look_at_shm(struct shm *s)
{
    struct statvfs vfs;
    memset(s, 0, sizeof(*s));
    if (statvfs("/dev/shm", &vfs) < 0) {
        s->error = errno;
        return;
    }
    s->size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    s->free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    s->writable = access("/dev/shm", W_OK | X_OK) == 0;
}

static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

/* Would the library take the folder that reflections would lie in, and could it make it? */
static void try_folder(struct diagnosis *d, const char *path)
{
    struct folder f;
    char above[PATH_MAX];
    if (folder_open(&f, path, false) == 0) {
        if (faccessat(f.fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
            snprintf(d->folder, sizeof(d->folder), "no permission to write to %.400s", path);
        folder_close(&f);
        return;
    }
    if (errno != ENOENT) {
        snprintf(d->folder, sizeof(d->folder), "%s", report_sentence());
        return;
    }
    snprintf(above, sizeof(above), "%s", path);
    if (faccessat(AT_FDCWD, dirname(above), W_OK | X_OK, AT_EACCESS) < 0) /* one level is made */
        snprintf(d->folder, sizeof(d->folder), "the folder %.400s cannot be made: %s", path,
                 strerror(errno));
}

/* Reflections in another folder: the weaker of the two media counts. */
static void look_elsewhere(struct diagnosis *d, const char *folder)
{
    char beside[PATH_MAX];
    snprintf(beside, sizeof(beside), "%s/" FOLDER_NAME, folder);
    d->elsewhere = variable("ATO_REFLECTION_DIR");
    try_folder(d, d->elsewhere ? d->elsewhere : beside);
    if (!d->elsewhere)
        return;
    int fd = make_file(d->elsewhere);
    d->elsewhere_domain = fd < 0 ? -1 : (int)domain_of(fd);
    if (fd >= 0)
        close(fd);
}

static int diagnose(struct diagnosis *d, const char *folder)
{
    memset(d, 0, sizeof(*d));
    d->name = folder;
    if (look_at_medium(&d->medium, folder) < 0)
        return -1;
    uname(&d->kernel);
    d->membarrier = has_membarrier();
    d->auto_flush = pmem_has_auto_flush();
    d->cpu = look_at_cpu();
    look_at_shm(&d->shm);
    look_elsewhere(d, folder);
    d->wish = variable("ATO_DURABILITY");
    d->domain = d->medium.domain;
    if (d->elsewhere && d->elsewhere_domain > 0)
        d->domain = (int)domain_weaker(d->domain, d->elsewhere_domain);
    d->offered = d->domain;
    if (d->wish)
        d->domain = domain_from_name(d->wish);
    return 0;
}

/* ---- what it means ---- */

static const char *domain_reason(const struct diagnosis *d)
{
    if (d->wish)
        return "ATO_DURABILITY says so";
    if (d->offered != d->medium.domain)
        return "the folder that ATO_REFLECTION_DIR names is on a medium that offers no more";
    switch (d->medium.domain) {
    case PERSIST_PMEM:
        return "a mapping with MAP_SYNC works: this is persistent memory, reached by DAX";
    case PERSIST_EADR:
        return "a mapping with MAP_SYNC works, and this machine writes its CPU caches back when "
               "the "
               "power fails (eADR)";
    case PERSIST_PROCESS:
        return "the file system is in memory (tmpfs or ramfs)";
    default:
        return "the file system is on a disk, or on something else that is reached through the "
               "page "
               "cache";
    }
}

static const char *domain_survival(int domain)
{
    switch (domain) {
    case PERSIST_PMEM:
    case PERSIST_EADR:
        return "When ato_memcpy() has returned, its bytes are there after a kill, a crash of the "
               "kernel and a power cut.";
    case PERSIST_MSYNC:
        return "When ato_memcpy() has returned, its bytes are there after a kill, a crash of the "
               "kernel and a power cut; each write waits for the disk.";
    default:
        return "When ato_memcpy() has returned, its bytes are there when the process is killed. "
               "They are not when the kernel crashes or the power fails.";
    }
}

/* What a file has to have before it can be mapped there. */
struct obstacles {
    unsigned n;
    char all[8][256];
};

static void __attribute__((format(printf, 2, 3)))
obstacle(struct obstacles *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(o->all[o->n++], sizeof(o->all[0]), format, args);
    va_end(args);
}

static struct obstacles find_obstacles(const struct diagnosis *d)
{
    const struct medium *m = &d->medium;
    struct obstacles o = {0};
    if (m->tried)
        obstacle(&o, "no file can be made there: %s", strerror(m->tried));
    else if (m->fallocate == EOPNOTSUPP)
        obstacle(&o, "the file system cannot allocate space before it is written to (fallocate)");
    else if (m->fallocate)
        obstacle(&o, "no space can be allocated there: %s", strerror(m->fallocate));
    if (!m->tried && d->folder[0])
        obstacle(&o, "reflections have no place: %s", d->folder);
    if (d->domain < 0)
        obstacle(&o, "ATO_DURABILITY is none of pmem, eadr, msync, process");
    if (d->shm.error)
        obstacle(&o, "there is no /dev/shm: %s", strerror(d->shm.error));
    else if (!d->shm.writable)
        obstacle(&o, "no permission to write to /dev/shm");
    else if (d->shm.free < 1 << 20)
        obstacle(&o, "/dev/shm is full: the states of a file's pages are kept there");
    return o;
}

/* What works all the same, but not as well. */
static struct obstacles find_remarks(const struct diagnosis *d)
{
    const struct medium *m = &d->medium;
    struct obstacles o = {0};
    if (!m->tried && m->attributes)
        obstacle(&o, "the file system has no user attributes: a fast unmap makes the file plain, "
                     "and files with several links are refused");
    if (strcmp(m->type, "btrfs") == 0)
        obstacle(&o, "btrfs takes new space for what is overwritten, which cannot be reserved: "
                     "a full disk may be SIGBUS");
    if (!d->membarrier)
        obstacle(&o, "the kernel has no membarrier: a thread that waits for a page may be woken "
                     "10 ms late");
    if (d->wish && d->domain > 0 && !m->tried &&
        domain_weaker(d->offered, d->domain) == (enum persist_domain)d->offered &&
        d->offered != d->domain)
        obstacle(&o, "ATO_DURABILITY promises %s, the medium offers only %s", d->wish,
                 domain_name(d->offered));
    if (d->elsewhere && d->elsewhere_domain < 0 && !d->folder[0])
        obstacle(&o, "no file can be made in the folder that ATO_REFLECTION_DIR names now");
    return o;
}

/* ---- for programs ---- */

static void write_trial(struct json *j, const char *key, const struct medium *m, int error)
{
    if (m->tried)
        json_null(j, key);
    else
        json_bool(j, key, error == 0);
}

static void write_list(struct json *j, const char *key, const struct obstacles *o)
{
    json_list(j, key);
    for (unsigned i = 0; i < o->n; i++)
        json_string(j, NULL, o->all[i]);
    json_end(j);
}

static void write_machine(struct json *j, const struct diagnosis *d)
{
    json_object(j, "cpu");
    json_bool(j, "clwb", d->cpu.clwb);
    json_bool(j, "clflushopt", d->cpu.clflushopt);
    json_bool(j, "avx2", d->cpu.avx2);
    json_bool(j, "avx512", d->cpu.avx512);
    json_bool(j, "rtm", d->cpu.rtm);
    json_bool(j, "rtm_commits", d->cpu.rtm_commits);
    json_string(j, "copy_kernel", d->cpu.kernel);
    json_end(j);
    json_object(j, "machine");
    json_string(j, "kernel", d->kernel.release);
    if (d->auto_flush < 0)
        json_null(j, "eadr");
    else
        json_bool(j, "eadr", d->auto_flush == 1);
    json_bool(j, "membarrier", d->membarrier);
    json_end(j);
    json_object(j, "shm");
    json_bool(j, "usable", !d->shm.error && d->shm.writable);
    json_number(j, "size", d->shm.size);
    json_number(j, "free", d->shm.free);
    json_end(j);
}

static void write_json(const struct diagnosis *d, const char *error, int status)
{
    struct json j;
    json_start(&j, "doctor");
    json_string(&j, "folder", d->name);
    json_string(&j, "error", error);
    if (!error) {
        const struct medium *m = &d->medium;
        struct obstacles o = find_obstacles(d), remarks = find_remarks(d);
        write_machine(&j, d);
        json_object(&j, "file_system");
        json_string(&j, "type", m->type);
        write_trial(&j, "map_sync", m, m->map_sync);
        write_trial(&j, "user_attributes", m, m->attributes);
        write_trial(&j, "fallocate", m, m->fallocate);
        if (m->has_space) {
            json_number(&j, "size", m->size);
            json_number(&j, "free", m->free);
            json_number(&j, "reserved", m->reserved);
        }
        json_end(&j);
        bool known = !m->tried && d->domain > 0;
        json_string(&j, "domain", known ? domain_name(d->domain) : NULL);
        json_string(&j, "reason", known ? domain_reason(d) : NULL);
        json_string(&j, "survives", known ? domain_survival(d->domain) : NULL);
        json_bool(&j, "can_map", o.n == 0);
        write_list(&j, "obstacles", &o);
        write_list(&j, "remarks", &remarks);
    }
    json_finish(&j, status);
}

/* ---- for people ---- */

static void line(const char *what, const char *value, const char *meaning)
{
    printf("  %-18s ", what);
    text_put(stdout, value);
    printf("%s%s\n", meaning ? "  " : "", meaning ? meaning : "");
}

static const char *yes(bool is)
{
    return is ? "yes" : "no ";
}

static void say_trial(const char *what, const struct medium *m, int error, const char *meaning)
{
    if (m->tried)
        line(what, "not tried", NULL);
    else
        line(what, yes(error == 0), meaning);
}

static void say_machine(const struct diagnosis *d)
{
    const struct cpu *c = &d->cpu;
    char text[64];
    puts("CPU");
    line("clwb", yes(c->clwb),
         "flushes a cache line and keeps it; persistent memory is written by it");
    line("clflushopt", yes(c->clflushopt), "what is used in its place");
    line("AVX2", yes(c->avx2), NULL);
    line("AVX-512", yes(c->avx512), NULL);
    line("copies with", c->kernel, NULL);
    line("RTM", yes(c->rtm), "hardware transactions, by what the CPU says");
    line("RTM trial", yes(c->rtm_commits),
         c->rtm_commits ? "they commit" : "the journal commits writes of several pages instead");
    puts("Machine");
    line("kernel", d->kernel.release, NULL);
    line("eADR",
         d->auto_flush == 1   ? "yes"
         : d->auto_flush == 0 ? "no "
                              : "not known",
         "CPU caches are written back when the power fails");
    line("membarrier", yes(d->membarrier), NULL);
    puts("Shared memory, /dev/shm (32 bytes for each page of a file that is touched)");
    if (d->shm.error) {
        line("usable", strerror(d->shm.error), NULL);
        return;
    }
    line("size", text_size(text, d->shm.size), NULL);
    line("free", text_size(text, d->shm.free),
         d->shm.writable ? NULL : "not for you: no permission");
}

static void say_medium(const struct diagnosis *d)
{
    const struct medium *m = &d->medium;
    char text[TEXT_SIZE];
    fputs("Folder ", stdout);
    text_put(stdout, d->name);
    putchar('\n');
    line("file system", m->type, NULL);
    say_trial("DAX (MAP_SYNC)", m, m->map_sync, "persistent memory can be mapped directly");
    say_trial("user attributes", m, m->attributes, "by which a file finds its reflection");
    say_trial("fallocate", m, m->fallocate, "space is taken before it is written to");
    if (m->has_space) {
        line("size", text_size(text, m->size), NULL);
        line("free", text_size(text, m->free), "a reflection takes up to the size of its file");
        line("kept for root", text_size(text, m->reserved), NULL);
    }
}

static void say(const struct diagnosis *d)
{
    struct obstacles o = find_obstacles(d), remarks = find_remarks(d);
    say_machine(d);
    say_medium(d);
    putchar('\n');
    for (unsigned i = 0; i < o.n; i++)
        printf("A file there cannot be mapped: %s.\n", o.all[i]);
    if (!d->medium.tried && d->domain > 0)
        printf("A file there gets the durability domain '%s': %s.\n%s\n", domain_name(d->domain),
               domain_reason(d), domain_survival(d->domain));
    for (unsigned i = 0; i < remarks.n; i++) {
        fputs("Note: ", stdout);
        text_put(stdout, remarks.all[i]);
        puts(".");
    }
}

static int run(const struct tool_request *request)
{
    struct diagnosis d;
    const char *error = NULL, *folder = request->count ? request->names[0] : ".";
    int status = TOOL_GOOD;
    if (diagnose(&d, folder) < 0) {
        error = strerror(errno);
        status = TOOL_BLIND;
    } else if (find_obstacles(&d).n) {
        status = TOOL_BAD;
    }
    if (request->json) {
        write_json(&d, error, status);
    } else if (error) {
        text_put(stderr, folder);
        fprintf(stderr, ": cannot look at it: %s\n", error);
    } else {
        say(&d);
    }
    return status;
}

const struct tool_command doctor_command = {
    .name = "doctor",
    .operands = "[FOLDER]",
    .what = "what machine and folder offer, and what a file there survives",
    .help =
        "Shows what the CPU, the kernel, /dev/shm and the file system of FOLDER (by default the\n"
        "working directory) offer to libato; the durability domain that a file there would get,\n"
        "and why; and the events that its bytes survive. It tests the file system with a file\n"
        "without a name, and leaves nothing behind.\n"
        "\n"
        "Domains:\n"
        "  pmem     persistent memory: survives a kill, a kernel crash, a power cut\n"
        "  eadr     the same, if CPU caches are written back when the power fails\n"
        "  msync    a disk: survives the same, and each write waits for the disk\n"
        "  process  memory: survives a kill only\n"
        "The first program that maps a file fixes its domain. ATO_DURABILITY chooses another one.\n"
        "\n"
        "Exit status: 0 a file there can be mapped; 1 it cannot, for the reason shown; 2 FOLDER\n"
        "could not be read.\n",
    .most = 1,
    .run = run,
};
