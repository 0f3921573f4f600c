/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/pairing.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct pairing_names pairing_names(uint64_t inode)
{
    struct pairing_names n;
    snprintf(n.reflection, sizeof(n.reflection), "%" PRIu64, inode);
    snprintf(n.manifest, sizeof(n.manifest), "%" PRIu64 ".manifest", inode);
    return n;
}

uint64_t pairing_number(const char *name)
{
    char *end = NULL;
    errno = 0;
    const uint64_t number = name[0] >= '1' && name[0] <= '9' ? strtoull(name, &end, 10) : 0;
    return number && errno == 0 && strcmp(end, ".manifest") == 0 ? number : 0;
}

const char *pairing_way_out(const struct pairing *pr)
{
    struct stat st;
    return fstat(pr->reflection, &st) == 0 && !st.st_nlink
               ? "Its reflection was removed: copy what is needed out of the mapping, before that "
                 "is unmapped"
               : "Unmap the file in all processes, then map it again";
}

int pairing_refresh(struct pairing *pr)
{
    struct manifest_record now;
    if (manifest_read(pr->manifest, &now, &pr->copy) == MANIFEST_VALID) {
        /* What other processes change while the file is mapped. The rest does not change, and other threads
         * read it. */
        pr->record.sequence = now.sequence;
        pr->record.guard = now.guard;
        return 0;
    }
    return report_error(EUCLEAN, "the manifest of %s in %s was damaged while it was mapped",
                        pr->path, pr->folder.path);
}

int pairing_refresh_size(struct pairing *pr)
{
    struct manifest_sizes sizes;
    if (!manifest_sizes(pr->manifest, &sizes))
        return report_error(
            EUCLEAN,
            "the logical size in the manifest of %s, %s/%s, is damaged. " PAIRING_BRING_BACK,
            pr->path, pr->folder.path, pr->names.manifest);
    pr->size = sizes.size;
    return 0;
}

int pairing_others(struct pairing *pr)
{
    /* The lock of this process's own byte does not count: it was taken through this descriptor. */
    const enum locks_answer others = locks_ask(pr->lock, 1, PAIRING_LIVES);
    if (others == LOCKS_FAILED)
        return report_errno(errno, "cannot ask for the locks of the manifest of %s in %s", pr->path,
                            pr->folder.path);
    return others == LOCKS_TAKEN;
}

int pairing_unlock_attach(struct pairing *pr)
{
    if (locks_drop(pr->lock, 0, 1) < 0)
        return report_errno(errno, "cannot unlock the manifest of %s in %s", pr->path,
                            pr->folder.path);
    return 0;
}

/* ---- closing ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void pairing_let_go(struct pairing *pr)
{
    KEEP_ERRNO();
    fault_unmap(pr->manifest, MANIFEST_BYTES);
    pr->manifest = NULL;
    close_fd(&pr->reflection);
    locks_close(pr->lock); /* attach lock and slot */
    pr->lock = -1;
}

void pairing_close(struct pairing *pr)
{
    KEEP_ERRNO();
    pairing_let_go(pr);
    folder_close(&pr->folder);
    if (!pr->borrowed)
        close_fd(&pr->original);
}
