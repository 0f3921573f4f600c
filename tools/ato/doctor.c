/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato doctor`: shows what a folder, the machine and the kernel offer, and which durability domain a file would get there.
 *
 * It makes a file in a new folder there, maps it, and writes to it: what keeps that from working, the library says.
 */
#include "each.h"
#include "text.h"
#include "trial.h"

#include "reflection/media/domain.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

struct diagnosis {
    char obstacle[1024]; /* why no file can be mapped there; "" */
    unsigned remarks;    /* what works less well */
    char remark[8][512];
    int domain;           /* of a file there; 0: none */
    const char *reason;   /* of the domain: a clause */
    const char *survives; /* a sentence */
    /* Of the disk, as the kernel tells it. */
    bool has_disk, volatile_cache, fua;
    uint64_t atomic_bytes; /* that a write stores wholly or not; 0: not told */
    bool vanishes;         /* what this user has in /dev/shm goes when the user logs out */
};

static void __attribute__((format(printf, 2, 3)))
remark(struct diagnosis *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->remark[d->remarks++], sizeof(d->remark[0]), format, args);
    va_end(args);
}

/* ---- looking ---- */

/* Stores what the kernel tells of the device in `to`, without the end of the line. Returns false if it tells nothing. */
static bool ask_disk(dev_t device, const char *what, char to[64])
{
    static const char *const places[] = {"", "/.."}; /* a disk, a partition */
    for (unsigned i = 0; i < 2; i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u%s/queue/%s", major(device),
                       minor(device), places[i], what);
        FILE *f = fopen(path, "re");
        const bool found = f && fgets(to, 64, f);
        if (f)
            (void)fclose(f);
        to[found ? strcspn(to, "\n") : 0] = '\0';
        if (found)
            return true;
    }
    return false;
}

static void look_at_disk(struct diagnosis *d, dev_t device)
{
    char text[64];
    d->has_disk = ask_disk(device, "write_cache", text);
    d->volatile_cache = d->has_disk && strcmp(text, "write through") != 0;
    d->fua = ask_disk(device, "fua", text) && strcmp(text, "0") != 0;
    d->atomic_bytes =
        ask_disk(device, "atomic_write_unit_max_bytes", text) ? strtoull(text, NULL, 10) : 0;
}

/* systemd removes what users have in /dev/shm, other than those of the system, and those that linger. */
static bool is_removed_at_logout(void)
{
    enum { LAST_OF_SYSTEM = 999 };
    char path[256] = "";
    const struct passwd *p = getpwuid(geteuid());
    if (p)
        (void)snprintf(path, sizeof(path), "/var/lib/systemd/linger/%.200s", p->pw_name);
    return access("/run/systemd/system", F_OK) == 0 && geteuid() > LAST_OF_SYSTEM &&
           access(path, F_OK) < 0;
}

#define SURVIVES "When ato_memcpy() has returned, its bytes are there "
#define ALL      SURVIVES "after a kill, a crash of the kernel and a power cut"

static void explain_domain(struct diagnosis *d, int medium)
{
    static const struct {
        const char *reason, *survives;
    } domains[] = {
        [PERSIST_PMEM] = {"this is persistent memory, reached by DAX", ALL "."},
        [PERSIST_EADR] = {"this is persistent memory, and CPU caches are written back when the "
                          "power fails (eADR)",
                          ALL "."},
        [PERSIST_DISK] = {"the file system is on a disk, or reached through the page cache",
                          ALL "; each write waits for the disk."},
        [PERSIST_PROCESS] = {"the file system is in memory (tmpfs or ramfs)",
                             SURVIVES "when the process is killed. They are not when the kernel "
                                      "crashes or the power fails."}};
    const char *wish = secure_getenv("ATO_DURABILITY");
    d->survives = domains[d->domain].survives;
    d->reason = wish && *wish ? "ATO_DURABILITY says so"
                : d->domain != medium
                    ? "the folder that ATO_REFLECTION_DIR names is on a medium that offers no more"
                    : domains[d->domain].reason;
    if (wish && *wish && d->domain != medium && (int)domain_weaker(medium, d->domain) == medium)
        remark(d, "ATO_DURABILITY promises %s, the medium offers only %s", wish,
               domain_name(medium));
}

/* A file on a disk whose log is on persistent memory waits for no disk. */
static void explain_log(struct diagnosis *d, int fd)
{
    char path[PATH_MAX];
    const char *folder = secure_getenv("ATO_LOG_DIR");
    struct stat st;
    if (!folder || !*folder || fstat(fd, &st) < 0)
        return;
    (void)snprintf(path, sizeof(path), "%s/%ju", folder, (uintmax_t)st.st_ino);
    const int log CLOSING = open(path, O_RDWR | O_CLOEXEC);
    const enum persist_domain is = log < 0 ? PERSIST_DISK : domain_of(log);
    if (is == PERSIST_DISK)
        return;
    d->survives = ALL ". Its log is on persistent memory: no write waits for the disk.";
    if (is == PERSIST_PROCESS)
        remark(d,
               "%s, where ATO_LOG_DIR puts the log, is in memory and taken for persistent memory: "
               "after a power cut such a file is refused",
               folder);
}

/* Maps a file there. */
static void try_file(struct diagnosis *d, int fd)
{
    char bytes[64] = {0};
    struct ato_stat st = {.struct_size = sizeof(st)};
    const char *unsafe = domain_refused(fd), *any = secure_getenv("ATO_ANY_FILE_SYSTEM");
    if (unsafe && any && strcmp(any, "1") == 0)
        remark(d,
               "the file system is %s, on which locks and stores may not reach all programs that "
               "use a file; ATO_ANY_FILE_SYSTEM=1 takes it all the same",
               unsafe);
    if (fsetxattr(fd, "user.ato.doctor", "", 0, 0) < 0)
        remark(d, "the file system has no user attributes: a fast unmap makes the file plain, and "
                  "files with several links are refused");
    void *at = write(fd, bytes, sizeof(bytes)) < 0
                   ? MAP_FAILED
                   : ato_mmap(NULL, sizeof(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || !ato_memcpy(at, bytes, sizeof(bytes)) || ato_stat(at, &st) < 0)
        (void)snprintf(d->obstacle, sizeof(d->obstacle), "%s", ato_errormsg());
    else
        d->domain = st.domain;
    if (d->domain)
        explain_domain(d, domain_of(fd));
    if (d->domain == PERSIST_DISK)
        explain_log(d, fd);
    if (at != MAP_FAILED)
        (void)ato_munmap(at, sizeof(bytes), ATO_UNMAP_SPATIAL);
}

/* Returns 0; -1 with errno: the folder cannot be looked at. */
static int diagnose(struct diagnosis *d, const char *folder)
{
    char path[PATH_MAX];
    struct folder beside = {.fd = -1};
    struct stat st;
    *d = (struct diagnosis){0};
    struct statfs fs;
    if (stat(folder, &st) < 0 || statfs(folder, &fs) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return -1;
    }
    look_at_disk(d, st.st_dev);
    if (fs.f_type == BTRFS_SUPER_MAGIC)
        remark(d, "btrfs takes new space for what is overwritten, which cannot be reserved: a full "
                  "disk may be SIGBUS");
    if (is_removed_at_logout())
        remark(
            d,
            "unless logind.conf has RemoveIPC=no, systemd removes what this user has in /dev/shm "
            "when the user's last session ends: a process that goes on then keeps others from "
            "mapping its files. Run it as a service under a user of the system, or "
            "'loginctl enable-linger'");
    /* The reflection of the trial lies in a folder of its own, or where the user wants it. */
    const char *elsewhere = secure_getenv("ATO_REFLECTION_DIR"),
               *logs = secure_getenv("ATO_LOG_DIR");
    (void)snprintf(path, sizeof(path), "%s/" FOLDER_NAME, folder);
    if ((!elsewhere || !*elsewhere) && (!logs || !*logs) && folder_open(&beside, path, false) < 0 &&
        errno != ENOENT)
        (void)snprintf(d->obstacle, sizeof(d->obstacle), "%s", report_sentence());
    else if (beside.fd >= 0 && faccessat(beside.fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        (void)snprintf(d->obstacle, sizeof(d->obstacle), "no permission to write to %.900s", path);
    folder_close(&beside);
    if (d->obstacle[0])
        return 0;
    const int fd = trial_make(path, folder, "doctor") < 0 ? -1 : trial_file(path, "file");
    if (fd < 0) {
        (void)snprintf(d->obstacle, sizeof(d->obstacle), "no file can be made there: %s",
                       report_reason(errno));
        return 0;
    }
    try_file(d, fd);
    close(fd);
    (void)trial_remove(path);
    return 0;
}

/* ---- showing ---- */

/* Writes a fact of the machine. */
static void write_fact(struct json *j, const char *key, const char *what, const char *value)
{
    json_string(j, key, value);
    if (!j->out)
        text_item(what, "%s", value);
}

static void show_disk(struct json *j, const struct diagnosis *d)
{
    char size[TEXT_SIZE];
    if (!d->has_disk) {
        json_string(j, "disk", NULL);
        return;
    }
    json_object(j, "disk");
    json_bool(j, "volatile_cache", d->volatile_cache);
    json_bool(j, "fua", d->fua);
    json_number(j, "atomic_write_bytes", d->atomic_bytes);
    json_end(j);
    if (j->out)
        return;
    text_item("disk", "%s",
              !d->volatile_cache ? "has no volatile cache"
              : d->fua           ? "has a volatile cache, and can write through it (FUA)"
                                 : "has a volatile cache, which each sync flushes (no FUA)");
    if (d->atomic_bytes)
        text_item("", "writes of up to %s are atomic", text_size(size, d->atomic_bytes));
}

static void show(struct json *j, const struct diagnosis *d, const char *folder)
{
    struct utsname kernel;
    struct persist p;
    const int auto_flush = domain_has_auto_flush();
    uname(&kernel);
    persist_init(&p, PERSIST_PROCESS);
    if (!j->out)
        text_item("folder", "%s", folder);
    json_object(j, "machine");
    write_fact(j, "kernel", "kernel", kernel.release);
    write_fact(j, "copy_kernel", "copies with", p.kernel->name);
    write_fact(j, "hardware_transactions", "RTM", persist_rtm_works() ? "yes" : "no");
    write_fact(j, "eadr", "eADR", auto_flush == 1 ? "yes" : auto_flush == 0 ? "no" : "not known");
    json_end(j);
    show_disk(j, d);
    json_string(j, "domain", d->domain ? domain_name(d->domain) : NULL);
    json_string(j, "reason", d->reason);
    json_string(j, "survives", d->survives);
    json_bool(j, "can_map", !d->obstacle[0]);
    json_list(j, "obstacles");
    if (d->obstacle[0])
        json_string(j, NULL, d->obstacle);
    json_end(j);
    json_list(j, "remarks");
    for (unsigned i = 0; i < d->remarks; i++)
        json_string(j, NULL, d->remark[i]);
    json_end(j);
    if (j->out)
        return;
    fputs(d->obstacle[0] ? "A file there cannot be mapped: " : "", stdout);
    text_put(stdout, d->obstacle);
    if (d->domain)
        printf("A file there gets the durability domain '%s': %s.\n%s", domain_name(d->domain),
               d->reason, d->survives);
    for (unsigned i = 0; i < d->remarks; i++)
        printf("\nNote: %s.", d->remark[i]);
    putchar('\n');
}

static int run(const struct tool_request *request)
{
    static struct diagnosis d;
    struct json j;
    struct outcome o = {.name = request->count ? request->names[0] : ".", .result = DONE};
    if (diagnose(&d, o.name) < 0)
        outcome_set(&o, BLIND, "cannot look at it: %s", report_reason(errno));
    const int status = o.result == BLIND ? TOOL_BLIND : d.obstacle[0] ? TOOL_BAD : TOOL_GOOD;
    json_start(&j, "doctor", request->json);
    json_string(&j, "folder", o.name);
    json_string(&j, "error", o.result == BLIND ? o.why : NULL);
    if (o.result != BLIND)
        show(&j, &d, o.name);
    else if (!request->json)
        outcome_show(&o, request, &j, "%s", "");
    json_finish(&j, status);
    return status;
}

const struct tool_command doctor_command = {
    .name = "doctor",
    .operands = "[FOLDER]",
    .what = "what machine and folder offer, and what a file there survives",
    .help = "Shows what the machine, /dev/shm and the file system of FOLDER (by default the\n"
            "working directory) offer to libato; the durability domain that a file there would\n"
            "get, and why; and the events that its bytes survive: pmem and eadr a kill, a kernel\n"
            "crash and a power cut; disk the same, but each write waits for the disk; process a\n"
            "kill only. It maps a file in a new folder there, and removes both.\n",
    .most = 1,
    .options = HAS(JSON),
    .run = run,
};
