/* SPDX-License-Identifier: BSD-3-Clause */
#include "leftovers.h"

#include "deploy.h"
#include "gc.h"
#include "text.h"

#include "lib/file/clock.h"
#include "lib/preload/record.h"

#include "ato.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the name that a file got in its folder: programs write to one name, and rename it. Returns false if it has none there. */
static bool find_renamed(char now[PATH_MAX], const char *path, uintmax_t device, uintmax_t inode)
{
    const int n = (int)(strrchr(path, '/') + 1 - path);
    struct stat st;
    bool found = false;
    (void)snprintf(now, PATH_MAX, "%.*s", n, path);
    DIR *folder = opendir(now);
    for (const struct dirent *e; folder && !found && (e = readdir(folder));)
        found = e->d_ino == inode &&
                snprintf(now, PATH_MAX, "%.*s%s", n, path, e->d_name) < PATH_MAX &&
                lstat(now, &st) == 0 && st.st_dev == device && st.st_ino == inode;
    if (folder)
        closedir(folder);
    return found;
}

/* Returns whether one of the processes is below another command that makes the file plain: its variable names the command. */
static bool has_other_command(const struct look_holders *h, const char *variable)
{
    const size_t n = strlen(variable);
    char name[64], *line = NULL;
    size_t room = 0;
    bool found = false;
    for (unsigned i = 0; i < h->count && !found; i++) {
        int command = 0;
        (void)snprintf(name, sizeof(name), "/proc/%u/environ", h->first[i].pid);
        FILE *all = fopen(name, "re");
        while (all && !found && getdelim(&line, &room, 0, all) > 0)
            found = strncmp(line, variable, n) == 0 &&
                    sscanf(line + n, "=/proc/%d/", &command) == 1 && command != getpid() &&
                    (kill(command, 0) == 0 || errno == EPERM);
        if (all)
            fclose(all);
    }
    free(line);
    return found;
}

/* Makes a file plain. Processes that died with the program may have it for a moment yet, of *left_ms milliseconds. Returns
 * false if it is left as it is, and no process has it mapped. Says why it is not plain. */
static bool tidy_one(const char *entry, unsigned *left_ms, const char *variable)
{
    static const struct tool_request quiet = {.quiet = true};
    struct deployed d;
    struct stat st;
    uintmax_t device, inode;
    int at = 0;
    if (sscanf(entry, "%ju:%ju:%n", &device, &inode, &at) != 2 || entry[at] != '/')
        return true;
    const char *path = entry + at;
    char now[PATH_MAX], name[LOOK_NAME], word[TEXT_WORD];
    if (stat(path, &st) < 0 || st.st_dev != device || st.st_ino != inode) {
        if (!find_renamed(now, path, device, inode))
            return true; /* it was removed, or moved to another folder */
        path = now;
    }
    for (;;) {
        deploy_file(&d, path, &quiet);
        if (d.o.result != MAPPED || !*left_ms)
            break;
        clock_nap(5000000);
        *left_ms -= *left_ms < 5 ? *left_ms : 5;
    }
    const int fd = d.o.result <= DONE ? look_open(path, O_RDWR) : -1;
    if (fd >= 0) {
        gc_shared_locks(fd);
        close(fd);
    }
    if (d.o.result < MAPPED ||
        (d.o.result == MAPPED && variable && has_other_command(&d.holders, variable)))
        return true;
    fputs("ato: ", stderr), text_put(stderr, path);
    if (d.o.result == MAPPED) {
        fprintf(stderr, " is still open in %s: when that has ended, run 'ato deploy %s'\n",
                d.holders.count ? look_holder_name(name, &d.holders.first[0]) : "a process",
                text_word(word, path));
        return true;
    }
    fputs(" is not plain: ", stderr), text_put(stderr, d.o.why), putc('\n', stderr);
    return false;
}

bool leftovers_make_plain(const struct record *shared, const char *files, const char *variable)
{
    unsigned left_ms = 200;
    static struct record r; /* children that still run may change the shared one */
    bool good = !shared->lost;
    memcpy(&r, shared, sizeof(r));
    ato_set_log(NULL, NULL); /* this uses the library: its log goes where ATO_LOG says */
    for (const char *at = NULL; (at = record_next(&r, at));)
        good &= tidy_one(at, &left_ms, variable);
    if (shared->lost)
        warnx("the program had more %s than can be noted: 'ato deploy' makes the rest plain",
              files);
    return good;
}
