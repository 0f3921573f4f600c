/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/sweep.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/recovery/redo.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct wanted {
    const struct folder *folder;
    uint64_t number;
};

/* Returns 1 if a slot of the manifest names the journal, or may do so, also after a power cut; 0 if not. */
static int is_named_in(void *arg, const char *name)
{
    const struct wanted *w = arg;
    uint64_t number = w->number;
    if (strcmp(name + strspn(name, "0123456789"), ".manifest") != 0)
        return 0;
    int fd = openat(w->folder->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    int slot = area_find_journal(fd, &number, name);
    /* persist-order N2 (writer: area_set_journal): a dead process may have cleared its journal word and not made that
     * durable. After a power cut the manifest would name a journal that is gone. */
    if (slot == MANIFEST_SLOTS && area_next(fd, 0) < MANIFEST_SLOTS && fsops_fsync(fd) < 0)
        slot = -1;
    close(fd);
    return slot < MANIFEST_SLOTS;
}

/* Of manifests: a living maker of an unfinished one finds that its file is gone, and starts again.
 * Of journals: a living process has the journal locked, or is about to lock it: then it finds that the name is gone, and starts
 * again. A dead process names no journal any more, so no lock is needed to look at the manifests. */
static int sweep(void *arg, const char *name)
{
    struct wanted w = {.folder = arg};
    if (folder_is_unfinished(name + strspn(name, "0123456789"), ".manifest"))
        (void)fsops->unlinkat(w.folder->fd, name, 0);
    if (!redo_name_of(name, &w.number))
        return 0;
    int fd = openat(w.folder->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    locks_keep(fd);
    if (locks_try(fd, F_WRLCK, 0, 1) == LOCKS_MINE && folder_names(w.folder, name, fd) == 1 &&
        folder_each_name(w.folder, is_named_in, &w) == 0 &&
        fsops->unlinkat(w.folder->fd, name, 0) == 0)
        report_log(REPORT_INFO, "removed the journal %s/%s, which no file needs", w.folder->path,
                   name);
    locks_close(fd);
    return 0;
}

void sweep_folder(const struct folder *f)
{
    (void)folder_each_name(f, sweep, (void *)(uintptr_t)f);
}
