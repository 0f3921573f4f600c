/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/pairing_open.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/adoption.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/birth.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/lookup.h"
#include "reflection/pairing/orphan.h"
#include "reflection/pairing/removal.h"
#include "reflection/recovery/homecoming.h"
#include "reflection/recovery/log_replay.h"
#include "reflection/recovery/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- taking the manifest ---- */

/* Opens the manifest, making it if need be, and takes the attach lock. Returns 1; 0 if it is gone, and wish->only_looks or an
 * orphan's; -1. */
static int take_manifest(struct pairing *pr, const struct pairing_wish *wish)
{
    for (;;) {
        pr->lock = folder_lock_manifest(&pr->folder, pr->names.manifest, pairing_access(wish),
                                        &pr->identity.trust);
        if (pr->lock >= 0)
            return 1;
        if (errno != ENOENT)
            return -1;
        if (wish->only_looks || pr->orphan)
            return 0;
        /* Not if there is another one by now: some file systems would replace it. */
        if (!folder_has(&pr->folder, pr->names.manifest) &&
            folder_make(pr->folder.fd, pr->names.manifest, &pr->identity.trust, false) < 0)
            return report_errno(errno, "cannot make the manifest %s/%s%s", pr->folder.path,
                                pr->names.manifest, folder_advice(errno));
    }
}

/* ---- what dead processes committed ---- */

/* Finishes what dead processes committed to the file, which no process has mapped. Returns 0; -1. */
static int recover_slots(struct pairing *pr)
{
    if (pr->record.state != MANIFEST_IN_USE)
        return 0;
    if (pr->record.format == LAYOUT_LOG)
        return log_recover_size(pr);
    if (area_are_lost(&pr->record) && fsops->ftruncate(pr->lock, MANIFEST_BYTES) < 0)
        return report_errno(errno, "cannot make the manifest of %s shorter", pr->path);
    if (area_next(pr->lock, 0) < AREA_END && replay_all(pr) < 0)
        return -1;
    folder_sweep(&pr->folder); /* the dead process may have been about to make one */
    return 0;
}

/* ---- the pairing that is found ---- */

/* What became of one try to open a pairing. */
enum outcome {
    FAILED = -1, /* as report_error() returns */
    AGAIN,       /* as removal.h's functions return: what is there now is to be looked at */
    DONE,
    NOT_YET = PAIRING_NOT_YET, /* the process that has the locks is not ready, or is dying */
    PLAIN,                     /* wish->only_looks: there is no pairing */
};

/* In domain disk a file has a log, and this one has a reflection, of another domain. */
static enum outcome make_plain(struct pairing *pr)
{
    /* The file is written to, so its times tell nothing from now on. Everything is durable (adopt()), as in the new domain. */
    pr->record.domain = pr->persist.domain;
    identity_boot(pr->record.boot_id);
    if (pairing_use(pr, pr->record.shm_generation) < 0 || homecoming_of_all(pr) < 0)
        return FAILED;
    return (enum outcome)pairing_remove(pr, true);
}

/* Does what the verdict says about a file that no other process has mapped. Returns DONE, AGAIN or FAILED. */
static enum outcome open_alone(struct pairing *pr, enum verdict verdict,
                               const struct pairing_wish *wish)
{
    switch (verdict) {
    case VERDICT_ADOPT:
        /* A log that was closed cleanly is empty. */
        if (recover_slots(pr) == 0 && adopt(pr, wish) == 0) {
            if (pr->persist.domain == PERSIST_DISK && pr->record.format != LAYOUT_LOG)
                return make_plain(pr);
            if (pr->record.format != LAYOUT_LOG || pr->settled || log_recover(pr) == 0)
                return DONE;
        }
        if (errno == ESTALE)
            return adopt_anew(pr, wish);
        return errno == EUCLEAN && wish->prefer_file ? removal_forget(pr) : -1;
    case VERDICT_SET_ASIDE:
        return removal_set_aside(pr, "belonged to another file that had this inode number before");
    case VERDICT_FORGET:
        return removal_forget(pr);
    case VERDICT_REUNITE:
        persist_init(&pr->persist, pr->record.domain);
        if (!identity_same_inode(&pr->identity, &pr->record)) {
            if (recover_slots(pr) < 0 || adopt(pr, wish) < 0 || orphan_adopt(pr) < 0)
                return -1;
        } else if (fsops_fsync(pr->lock) < 0) {
            /* Begun. persist-order R3 (writer: U2): the record may be visible and not durable. After a power cut the record before it
             * would miss a reflection that has the new name. */
            return folder_error(&pr->folder, pr->names.manifest, "cannot sync the manifest");
        }
        return orphan_rename(pr);
    case VERDICT_BEAR:
        if (birth_give(pr, wish) == 0)
            return DONE;
        removal_of_failed_birth(pr);
        return FAILED;
    default: /* VERDICT_START_OVER */
        return removal_start_over(pr);
    }
}

static enum outcome open_locked(struct pairing *pr, const struct pairing_wish *wish)
{
    /* The file as it is now: the last user may have unmapped it during the wait for the lock. */
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    const off_t length = fsops_length(pr->lock);
    const int found = area_read(pr->lock, &pr->record, NULL, &pr->copy);
    if (length < 0 || found < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot read the manifest");
    /* A manifest without a valid copy while others have locks is a birth or a removal of a process that is
     * dying. It gets PAIRING_NOT_YET below. */
    const enum verdict verdict =
        !pr->joined || pr->orphan || found == MANIFEST_VALID || found == MANIFEST_FOREIGN
            ? adoption_verdict(pr, found, wish)
            : VERDICT_BEAR;
    if (verdict == VERDICT_AGAIN)
        return AGAIN;
    if (verdict == VERDICT_REFUSE ||
        (verdict == VERDICT_FORGET && (pr->joined || !wish->prefer_file)))
        return -1;
    if (wish->only_looks && !pr->joined && verdict != VERDICT_ADOPT &&
        verdict != VERDICT_START_OVER)
        return PLAIN;
    if (wish->only_looks && !pr->joined)
        return report_error(
            EAGAIN,
            "%s is not plain, and no process has it mapped that may write to it: such a "
            "process has to map it first, or make it plain (ato deploy)",
            pr->path);
    if (verdict == VERDICT_ADOPT || verdict == VERDICT_REUNITE) {
        if (length < MANIFEST_BYTES) { /* a load would be SIGBUS */
            report_error(EUCLEAN,
                         "the manifest of %s is %lld bytes long, it must have at least "
                         "%d. " PAIRING_BRING_BACK,
                         pr->path, (long long)length, MANIFEST_BYTES);
            return wish->prefer_file && !pr->joined ? removal_forget(pr) : -1;
        }
        pr->manifest = folder_map(pr->lock, pairing_access(wish), MANIFEST_BYTES, 0);
        if (!pr->manifest)
            return report_errno(errno, "cannot map the manifest of %s", pr->path);
        fault_watch(pr->manifest, MANIFEST_BYTES, &pr->faults);
    }
    if (pr->joined) {
        const int r = adopt_joined(pr, wish);
        return r == 0 ? DONE : (enum outcome)r;
    }
    if (found == MANIFEST_VALID && !pr->orphan) {
        pr->before = pr->record;
        /* I5: the manifest of another file could name that file's shared memory. */
        pr->before.inode = pr->identity.inode;
        pr->before.device = pr->identity.device;
    }
    return open_alone(pr, verdict, wish);
}

/* ---- the beginning and the end ---- */

/* `what`: of the pairing, open as fd. Returns 0; -1 with ENOTSUP. */
static int check_file_system(int fd, const struct pairing_wish *wish, const char *what,
                             const char *path)
{
    const char *type = wish->any_file_system ? NULL : domain_refused(fd);
    return type ? report_error(
                      ENOTSUP,
                      "%s %s is on %s, where libato is not safe: other machines may use the "
                      "file, and do not share its locks and its memory. Put it on a local "
                      "file system; or set ATO_ANY_FILE_SYSTEM=1 if no other machine uses "
                      "it, and its file system has coherent mappings and locks",
                      what, path, type)
                : 0;
}

/* `known`: pr->identity has just been found out. It is found out again under the lock. */
static enum outcome try_to_find(struct pairing *pr, const struct pairing_wish *wish, bool known)
{
    folder_close(&pr->folder);
    if (!known && identity_of(pr->original, &pr->identity) < 0)
        return -1;
    /* A file that is plain can be read anywhere. */
    if (!wish->only_looks && check_file_system(pr->original, wish, "the file", pr->path) < 0)
        return -1;
    int r = lookup(pr, wish);
    if (r == 0 && wish->only_looks)
        return PLAIN;
    if (r < 0 ||
        (wish->only_looks && check_file_system(pr->original, wish, "the file", pr->path) < 0) ||
        check_file_system(pr->folder.fd, wish, "the reflection folder", pr->folder.path) < 0)
        return -1;
    if (!wish->only_looks)
        folder_follow(&pr->folder);
    if ((r = take_manifest(pr, wish)) <= 0)
        return r < 0 ? FAILED : AGAIN;
    /* All bytes but byte 0 can be had only if no process has the file mapped. Then only that of slot 0 is kept. A process that only looks
     * just asks. */
    const enum locks_answer all = wish->only_looks ? locks_ask(pr->lock, 1, MANIFEST_SLOTS)
                                                   : locks_try(pr->lock, F_WRLCK, 1, PAIRING_LIVES);
    pr->joined = all == LOCKS_TAKEN;
    if (all == LOCKS_FAILED ||
        (all == LOCKS_MINE && locks_drop(pr->lock, 2, PAIRING_LIVES - 1) < 0))
        return folder_error(&pr->folder, pr->names.manifest, "cannot lock a slot of the manifest");
    return open_locked(pr, wish);
}

/* A process that is dying, or a child that was just forked, keeps its descriptors for a moment: it is given
 * this many naps, one second. */
enum { NAPS = 500 };

static int find(struct pairing *pr, const struct pairing_wish *wish, bool known)
{
    pairing_let_go(pr);
    for (int naps = 0;; known = false) {
        const enum outcome r = try_to_find(pr, wish, known);
        if (r == DONE)
            return 0;
        pairing_let_go(pr);
        if (r == PLAIN || r == FAILED)
            return r == PLAIN ? 0 : -1;
        if (r == AGAIN && wish->only_looks) {
            report_quietly(EBUSY, "%s is being mapped or unmapped all the time", pr->path);
            return PAIRING_BUSY;
        }
        if (wish->only_looks)
            return PAIRING_NOT_YET;
        if (r == NOT_YET && naps++ == NAPS)
            return report_aloud();
        if (r == NOT_YET)
            nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
    }
}

int pairing_find(struct pairing *pr, const struct pairing_wish *wish)
{
    return find(pr, wish, false);
}

int pairing_open(struct pairing *pr, int fd, const struct identity *identity,
                 const struct pairing_wish *wish)
{
    memset(pr, 0, sizeof(*pr));
    pr->original = pr->reflection = pr->lock = pr->folder.fd = -1;
    pr->identity = *identity;
    if (identity->size > LAYOUT_MAX_BYTES)
        return report_error(EFBIG, "descriptor %d is a file larger than 256 TiB", fd);
    pr->borrowed = wish->borrow;
    /* Opened once more: the kernel reports a failed write-back once for each open file, and the caller's fsync() must not use up
     * the report that libato needs. If the user may not open the file any more, the descriptor is duplicated. */
    pr->original = wish->borrow ? fd : folder_reopen(fd, pairing_access(wish));
    const bool same = pr->original < 0 || pr->original == fd;
    if (same && (fcntl(fd, F_GETFL) & O_APPEND)) /* Linux ignores the offset of pwrite() then */
        return report_error(EINVAL, "descriptor %d has O_APPEND, and cannot be opened again", fd);
    if (pr->original < 0 && (pr->original = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return report_errno(errno, "cannot open descriptor %d again", fd);
    const int r = identity_path(fd, identity, pr->path) < 0 ? -1 : find(pr, wish, true);
    if (r < 0)
        pairing_close(pr);
    return r;
}

int pairing_use(struct pairing *pr, uint64_t shm_generation)
{
    pr->record.state = MANIFEST_IN_USE;
    pr->record.shm_generation = shm_generation;
    /* The attribute counts more than these, so they may have been other ones. */
    identity_to_record(&pr->identity, &pr->record);
    if (area_note_own(pr->lock, &pr->record) < 0)
        return folder_error(&pr->folder, pr->names.manifest, "cannot stat the manifest");
    if (!pr->newborn)
        return birth_write_record(pr);
    /* A marked folder is not searched for orphans. */
    return birth_finish(pr, folder_is_marked(&pr->folder) || !orphan_any(&pr->folder));
}

void pairing_stamp(struct pairing *pr)
{
    /* The kernel stamps writes with a coarse clock: a write by another program within the same tick would not change mtime. A
     * stamp of the fine clock cannot coincide by chance. */
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {0}};
    clock_gettime(CLOCK_REALTIME, &times[1]);
    /* Only the owner may choose a time. Others that may write can set the present one, for atime too. */
    if (fsops->futimens(pr->original, times) < 0 &&
        (errno != EPERM || fsops->futimens(pr->original, NULL) < 0))
        report_log(REPORT_INFO, "cannot set the mtime of %s", pr->path);
}

int pairing_clean(struct pairing *pr, bool written)
{
    struct stat st;
    /* If another program gave the file another length, or overwrote it, it stays `in use`: it can be mapped again when it has
     * its own length back, or a side is chosen. */
    if (growth_end(pr, 0) < 0 || guard_check(pr, &pr->record.guard, pr->size) < 0 ||
        shrink_finish(pr) < 0)
        return -1;
    /* All areas but the first, and the long lane: no lane holds a commit. */
    const off_t length = fsops_length(pr->lock);
    if (length < 0 ||
        (length > MANIFEST_BORN_BYTES && fsops->ftruncate(pr->lock, MANIFEST_BORN_BYTES) < 0))
        return report_errno(errno, "cannot make the manifest of %s shorter", pr->path);
    /* In domain process no byte is durable yet; nor is any lane in the manifest: that of an earlier commit must not come
     * back. */
    if (pr->persist.domain == PERSIST_PROCESS &&
        (fsops_fsync(pr->reflection) < 0 || fsops_fsync(pr->lock) < 0))
        return report_errno(errno, "cannot sync the reflection of %s", pr->path);
    /* The kernel may still change mtime when it writes pages back although nothing was written: after a store
     * of a call that failed, or through a writable view. So that this cannot happen later, the file is synced
     * before mtime is set and recorded.
     * explorer: drop fsync survives: no kernel of its rules moves mtime by itself. */
    if (fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot sync %s", pr->path);
    if (written)
        pairing_stamp(pr);
    if (fstat(pr->original, &st) < 0)
        return report_errno(errno, "cannot stat %s", pr->path);
    /* persist-order M2 (reader: check_not_written): the mtime is durable on the original before the record
     * that it will be compared with. Otherwise after a power cut an untouched file could look as if another
     * program had written to it. */
    if (written && fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot sync %s", pr->path);
    pr->record.state = MANIFEST_CLEAN;
    pr->record.clean_size = (uint64_t)st.st_size;
    pr->record.clean_mtime_sec = st.st_mtim.tv_sec;
    pr->record.clean_mtime_nsec = (uint64_t)st.st_mtim.tv_nsec;
    return birth_write_record(pr);
}
