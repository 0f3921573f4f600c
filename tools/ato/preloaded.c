/* SPDX-License-Identifier: BSD-3-Clause */
#include "preloaded.h"

#include "program.h"
#include "text.h"

#include "lib/preload/record.h"
#include "reflection/pairing/identity.h"

#include <elf.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- the program's file ---- */

/* Finds the file that execvp(3) runs. Returns false if there is none. */
static bool find_program(char found[PATH_MAX], const char *name)
{
    struct stat st;
    if (strchr(name, '/'))
        return snprintf(found, PATH_MAX, "%s", name) < PATH_MAX;
    for (const char *at = getenv("PATH"); at; at = *at ? at + 1 : NULL) {
        const int n = (int)strcspn(at, ":");
        if (snprintf(found, PATH_MAX, "%.*s%s%s", n, at, n ? "/" : "", name) < PATH_MAX &&
            stat(found, &st) == 0 && S_ISREG(st.st_mode) && access(found, X_OK) == 0)
            return true;
        at += n;
    }
    return false;
}

/* Returns what gives a program rights that this process does not have, NULL if nothing does: the dynamic linker ignores LD_PRELOAD
 * then. */
static const char *find_rights(const char *path)
{
    struct stat st;
    struct statvfs system;
    if (stat(path, &st) < 0 || statvfs(path, &system) < 0 || system.f_flag & ST_NOSUID ||
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return NULL;
    if (st.st_mode & S_ISUID && st.st_uid != getuid())
        return "set-user-ID";
    if (st.st_mode & S_ISGID && st.st_mode & S_IXGRP && st.st_gid != getgid())
        return "set-group-ID";
    return getuid() && getxattr(path, "security.capability", NULL, 0) > 0 ? "file capabilities"
                                                                          : NULL;
}

/* Returns whether it is a program, not a library. A dynamic linker is a library that can be run. */
static bool is_pie(int fd, const Elf64_Phdr *dynamic)
{
    Elf64_Dyn d;
    for (off_t at = (off_t)dynamic->p_offset;
         pread(fd, &d, sizeof(d), at) == sizeof(d) && d.d_tag != DT_NULL; at += sizeof(d))
        if (d.d_tag == DT_FLAGS_1)
            return d.d_un.d_val & DF_1_PIE;
    return false;
}

static bool is_static(int fd, const Elf64_Ehdr *e)
{
    Elf64_Phdr p, dynamic = {.p_type = PT_NULL};
    for (unsigned i = 0; i < e->e_phnum; i++) {
        if (pread(fd, &p, sizeof(p), (off_t)(e->e_phoff + i * sizeof(p))) != sizeof(p) ||
            p.p_type == PT_INTERP)
            return false;
        if (p.p_type == PT_DYNAMIC)
            dynamic = p;
    }
    return e->e_type == ET_EXEC || (dynamic.p_type == PT_DYNAMIC && is_pie(fd, &dynamic));
}

/* Says why no library can be loaded into the program of that name, or into the interpreter of a script. */
static void find_obstacle(struct preloaded_end *end, const char *name)
{
    enum { SCRIPTS = 5 }; /* as many as the kernel follows */
    char *path = end->file, subject[PATH_MAX + 16] = "it", *at;
    union {
        char text[256];
        Elf64_Ehdr elf;
    } head;
    const char *rights;
    int fd = -1;
    if (!find_program(path, name)) {
        *path = 0;
        return;
    }
    for (int scripts = 0;; scripts++) {
        memset(&head, 0, sizeof(head));
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || pread(fd, &head, sizeof(head) - 1, 0) < 2 ||
            memcmp(head.text, "#!", 2) != 0 || scripts == SCRIPTS)
            break; /* one that may be run and not read has rights, too */
        close(fd);
        at = head.text + 2 + strspn(head.text + 2, " \t");
        at[strcspn(at, " \t\n")] = 0;
        (void)snprintf(path, PATH_MAX, "%s", at);
        (void)snprintf(subject, sizeof(subject), "its interpreter %s", path);
    }
    const bool is_elf = memcmp(head.text, ELFMAG, SELFMAG) == 0;
    if ((rights = find_rights(path)))
        (void)snprintf(end->obstacle, sizeof(end->obstacle),
                       "%s gets rights that you do not have (%s), so the dynamic linker ignores "
                       "LD_PRELOAD",
                       subject, rights);
    else if (is_elf &&
             (head.elf.e_ident[EI_CLASS] != ELFCLASS64 || head.elf.e_machine != EM_X86_64))
        (void)snprintf(end->obstacle, sizeof(end->obstacle),
                       "%s is no program of 64 bits for x86-64, as libato is", subject);
    else if (is_elf && is_static(fd, &head.elf))
        (void)snprintf(end->obstacle, sizeof(end->obstacle),
                       "%s is a static program, into which no library can be loaded", subject);
    if (fd >= 0)
        close(fd);
}

/* ---- the environment ---- */

/* Finds the library: from the folder of this program, as both are installed, or in the folder of a build; or where it was to be
 * installed. */
static bool find_library(char found[PATH_MAX], const struct preloading *p)
{
    const char *const places[] = {LIBDIR_FROM_TOOL, p->built};
    char self[PATH_MAX], path[2 * PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n < 0 ? 0 : n] = 0;
    const char *folder = dirname(self);
    for (size_t i = 0; n > 0 && i < sizeof(places) / sizeof(*places); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, places[i], p->library);
        if (realpath(path, found))
            return true;
    }
    (void)snprintf(path, sizeof(path), LIBDIR "/%s", p->library);
    return realpath(path, found) != NULL;
}

/* Adds `item` to the list in the environment's `variable`, behind what is there. */
static void append(const char *variable, const char *item)
{
    const char *old = getenv(variable);
    char *all;
    if (asprintf(&all, "%s%s%s", old ? old : "", old && *old ? ":" : "", item) < 0 ||
        setenv(variable, all, 1) < 0)
        err(PRELOADED_CANNOT_PREPARE, "cannot set %s", variable);
    free(all);
}

/* Sets LD_PRELOAD, and the variable for --path to the paths of the options, if there are any. */
static void prepare(const struct preloading *p, char *const *paths)
{
    char path[PATH_MAX];
    if (*paths)
        unsetenv(p->paths);
    for (; *paths; paths++) {
        if (!**paths)
            errx(PRELOADED_CANNOT_PREPARE, "--path has no value");
        if (!text_resolve(path, *paths))
            err(PRELOADED_CANNOT_PREPARE, "--path %s", *paths);
        if (strchr(path, ':'))
            errx(PRELOADED_CANNOT_PREPARE,
                 "--path %s: a path must not contain ':', which separates paths in %s", path,
                 p->paths);
        append(p->paths, path);
    }
    if (!find_library(path, p))
        errx(PRELOADED_CANNOT_PREPARE,
             "there is no %s beside this program or in " LIBDIR ": install it (Debian: package %s)",
             p->library, p->package);
    if (strpbrk(path, ": "))
        errx(PRELOADED_CANNOT_PREPARE, "%s cannot be preloaded: its path contains a blank or ':'",
             path);
    append("LD_PRELOAD", path);
}

/* ---- the record ---- */

/* Makes the record, and names it in the environment. Returns its descriptor; -1 with errno. */
static int make_record(const char *variable, struct record **record)
{
    enum { FAR = 100 }; /* beyond the numbers that scripts use */
    char value[128], token[33];
    uint8_t random[16];
    const int made = memfd_create("ato-record", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = -1;
    if (made >= 0 && identity_random(random, sizeof(random)) == 0 &&
        ftruncate(made, RECORD_BYTES) == 0 &&
        fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 &&
        (fd = fcntl(made, F_DUPFD, FAR)) < 0)
        fd = fcntl(made, F_DUPFD, STDERR_FILENO + 1);
    *record =
        fd < 0 ? MAP_FAILED : mmap(NULL, RECORD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*record == MAP_FAILED)
        return -1;
    close(made);
    memcpy((*record)->token, random, sizeof(random));
    identity_hex(random, token);
    (void)snprintf(value, sizeof(value), "/proc/%d/fd/%d %s", (int)getpid(), fd, token);
    return setenv(variable, value, 1) == 0 ? fd : -1;
}

/* Notes the same in the record of a command that started this one. */
static void tell(struct record *outer, const struct record *r)
{
    outer->loaded |= r->loaded;
    outer->reached |= r->reached;
    outer->opened |= r->opened;
    outer->wanted |= r->wanted;
    outer->lost |= r->lost;
    for (const char *at = NULL; (at = record_next(r, at));)
        record_add(outer, at);
}

void preloaded_run(struct preloaded_end *end, const struct preloading *p,
                   const struct tool_request *request)
{
    const char *name = request->names[0];
    struct record *outer = record_open(getenv(p->record));
    memset(end, 0, sizeof(*end));
    prepare(p, request->paths);
    find_obstacle(end, name);
    if (*end->obstacle && request->require)
        errx(PRELOADED_CANNOT_PREPARE,
             "%s is not started, because of --require: %s; if it starts another program, put this "
             "command before that one",
             name, end->obstacle);
    const int fd = make_record(p->record, &end->record);
    if (fd < 0)
        err(PRELOADED_CANNOT_PREPARE,
            "cannot make the memory in which the program's processes note what they use");
    const struct program_end ended = program_run(request->names, fd);
    if (ended.error) {
        errno = ended.error;
        err(ended.error == ENOENT ? PRELOADED_NOT_FOUND : PRELOADED_CANNOT_START, "cannot start %s",
            name);
    }
    end->status = ended.status;
    if (outer)
        tell(outer, end->record);
}

int preloaded_end_status(const struct preloaded_end *end, const struct tool_request *request,
                         int trouble)
{
    const int status = program_end_alike(end->status);
    if (request->require && !end->record->opened)
        return PRELOADED_IN_VAIN;
    return status ? status : trouble;
}
