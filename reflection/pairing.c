/* SPDX-License-Identifier: BSD-3-Clause */
#include "pairing.h"

#include "birth.h"
#include "domain.h"
#include "fsops.h"
#include "growth.h"
#include "guard.h"
#include "layout.h"
#include "locks.h"
#include "place.h"
#include "recover.h"
#include "report.h"
#include "shrink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- taking the manifest ---- */

/* Opens the manifest, making it if need be, and takes the attach lock. */
static int take_manifest(struct pairing *pr, const struct place_names *n)
{
    const struct trust trust = identity_trust(&pr->identity);
    for (;;) {
        pr->lock = openat(pr->folder.fd, n->manifest, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (pr->lock < 0 && errno == ENOENT)
            pr->lock = fsops->create(pr->folder.fd, n->manifest, O_RDWR, 0600);
        if (pr->lock < 0)
            return report_errno(errno, "cannot open the manifest %s/%s", pr->folder.path,
                                n->manifest);
        /* Before it is waited for: nobody's lock on what is not believed counts. */
        if (trust_check(&trust, pr->lock, pr->folder.path, n->manifest) < 0)
            return -1;
        if (locks_wait(pr->lock, 0, 1) < 0)
            return report_errno(errno, "cannot lock the manifest %s/%s", pr->folder.path,
                                n->manifest);
        int named = folder_names(&pr->folder, n->manifest, pr->lock);
        if (named != 0)
            return named < 0 ? -1 : 0;
        close(pr->lock); /* removed or set aside while we waited: its lock guards nothing now */
    }
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
}

/* Every slot byte can be had: nobody lives. Keeps slot 0's. */
static int take_slots(struct pairing *pr, const struct place_names *n)
{
    enum locks_answer answer = locks_try(pr->lock, 1, MANIFEST_SLOTS);
    /* A process that is just dying, or a child that it was just forking, has its descriptors for a
     * moment longer. */
    for (int i = 0; answer == LOCKS_TAKEN && i < 20; i++) {
        nap();
        answer = locks_try(pr->lock, 1, MANIFEST_SLOTS);
    }
    switch (answer) {
    case LOCKS_MINE:
        break;
    case LOCKS_TAKEN:
        return report_error(EBUSY,
                            "%s is mapped by another process; this version of libato lets one "
                            "process at a time map a file",
                            pr->path);
    default:
        return report_errno(errno, "cannot lock a slot of the manifest %s/%s", pr->folder.path,
                            n->manifest);
    }
    pr->slot = 0;
    if (locks_drop(pr->lock, 2, MANIFEST_SLOTS - 1) < 0)
        return report_errno(errno, "cannot give back slots of %s/%s", pr->folder.path, n->manifest);
    return 0;
}

/* ---- death ---- */

/* persist-order P2 (reader: decide): `deployed` is durable before the first removal, so that a
 * reflection is never missed by a file that still needs it; the manifest goes last, because it is
 * what tells how far the removal came. */
static int finish_removal(struct pairing *pr, const struct place_names *n)
{
    if (pr->has_attributes && attribute_remove(pr->original, pr->path) < 0)
        return -1;
    if (fsops->unlinkat(pr->folder.fd, n->reflection, 0) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot remove the reflection %s/%s", pr->folder.path,
                            n->reflection);
    if (folder_sync(&pr->folder) < 0)
        return -1;
    if (fsops->unlinkat(pr->folder.fd, n->manifest, 0) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot remove the manifest %s/%s", pr->folder.path,
                            n->manifest);
    return folder_sync(&pr->folder);
}

/* persist-order R3 (writer: M1): `born` or `deployed` may be visible and not durable, when its writer
 * was killed between its store and its fence. After a power cut the record before it, `in use`,
 * would miss what is removed now. */
static int start_over(struct pairing *pr, const struct place_names *n)
{
    if (fsops_fsync(pr->lock) < 0)
        return report_errno(errno, "cannot make the manifest %s/%s durable", pr->folder.path,
                            n->manifest);
    /* P4: when the attribute is gone that is done already, and the bytes may be anybody's. */
    struct attribute a;
    bool carried = pr->record.known & MANIFEST_KNOWS_ATTRIBUTE;
    if (pr->record.state == MANIFEST_DEPLOYED &&
        (!carried || attribute_read(pr->original, pr->path, &a) == ATTRIBUTE_FOUND) &&
        guard_put_back(pr) < 0)
        return -1;
    return finish_removal(pr, n);
}

int pairing_remove(struct pairing *pr)
{
    struct place_names n = place_names(pr->identity.inode);
    /* The length that others gave it while it was mapped stays. */
    int r = growth_settle(pr, growth_last(pr), shrink_from(pr));
    if (r < 0 && errno != ESTALE)
        return -1;
    if ((r < 0 ? shrink_wipe(pr) : shrink_finish(pr)) < 0)
        return -1;
    pr->record.state = MANIFEST_DEPLOYED;
    if (guard_note(pr) < 0 || birth_write_record(pr) < 0 || guard_put_back(pr) < 0)
        return -1;
    return finish_removal(pr, &n);
}

/* Names that nothing has yet: a setting aside of this very pairing may have been cut so that one of
 * its two renames lasted, and a birth have begun since. */
static void choose_stale_name(const struct pairing *pr, const struct place_names *n, char to[80])
{
    char id[33], manifest[96];
    bool reflection = folder_has(&pr->folder, n->reflection);
    identity_hex(pr->record.id, id);
    snprintf(to, 80, "%s.stale-%.8s", n->reflection, id);
    for (int i = 1;; i++) {
        strcpy(stpcpy(manifest, to), ".manifest");
        if (!folder_has(&pr->folder, manifest) && !(reflection && folder_has(&pr->folder, to)))
            return;
        snprintf(to, 80, "%s.stale-%.8s-%d", n->reflection, id, i);
    }
}

/* What lies under this inode number belonged to a file that is gone, or is not wanted: `why`. */
static int set_aside(struct pairing *pr, const struct place_names *n, const char *why)
{
    char to[96];
    choose_stale_name(pr, n, to);
    if (fsops->renameat(pr->folder.fd, n->reflection, to) < 0 && errno != ENOENT)
        return report_errno(errno, "cannot set the stale reflection %s/%s aside", pr->folder.path,
                            n->reflection);
    /* persist-order P3 (reader: decide): the manifest goes last, because without it a birth takes the
     * reflection for its own predecessor's and removes it. */
    if (folder_sync(&pr->folder) < 0)
        return -1;
    report_log(REPORT_WARNING, "the reflection %s/%s %s; set aside as %s", pr->folder.path,
               n->reflection, why, to);
    strcat(to, ".manifest");
    if (fsops->renameat(pr->folder.fd, n->manifest, to) < 0)
        return report_errno(errno, "cannot set the stale manifest %s/%s aside", pr->folder.path,
                            n->manifest);
    return 0; /* durable with the birth that follows (P1) */
}

/* The file as it lies there is right. Its attribute goes first: cut before the rest, it is one whose
 * attribute was taken away, and to be forgotten again. */
static int forget(struct pairing *pr, const struct place_names *n)
{
    const struct manifest_guard *g = &pr->record.guard;
    char plain[33];
    identity_hex(g->plain, plain);
    if (g->bytes)
        report_log(REPORT_WARNING,
                   "%s has guarded bytes, %u at %" PRIu64
                   ": they stay as they are in the file; plain "
                   "they were %.*s",
                   pr->path, g->bytes, g->offset, (int)g->bytes * 2, plain);
    if (pr->has_attributes && attribute_remove(pr->original, pr->path) < 0)
        return -1;
    return set_aside(pr, n, "is not wanted, since the file is preferred to it");
}

/* ---- what is there ---- */

enum decision { ADOPT, BEAR, START_OVER, FORGET, REFUSE };

/* ESTALE was said: file and reflection do not belong together as they are. */
static enum decision stale(const struct pairing_wish *wish)
{
    return wish->prefer_file ? FORGET : REFUSE;
}

static int check_not_written(const struct pairing *pr, const struct pairing_wish *wish)
{
    const struct manifest_record *r = &pr->record;
    const struct identity *who = &pr->identity;
    if (identity_unwritten(who, r))
        return 0;
    if (who->size == r->clean_size && wish->prefer_reflection) {
        report_log(REPORT_WARNING,
                   "%s was written by other means since it was unmapped; what its reflection holds "
                   "is taken all the same",
                   pr->path);
        return 0;
    }
    return report_error(ESTALE,
                        "%s was written by other means since it was unmapped (size %" PRIu64
                        ", then %" PRIu64 "), while its reflection %s/%" PRIu64
                        " may hold parts of it: which of the two is right cannot be known",
                        pr->path, who->size, r->clean_size, pr->folder.path, who->inode);
}

static int check_reflection(struct pairing *pr, const struct place_names *n, uint64_t size)
{
    const struct trust trust = identity_trust(&pr->identity);
    pr->reflection = openat(pr->folder.fd, n->reflection, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (pr->reflection < 0)
        return report_errno(errno == ENOENT ? ESTALE : errno,
                            "cannot open the reflection %s/%s of "
                            "%s",
                            pr->folder.path, n->reflection, pr->path);
    struct stat st;
    if (trust_check(&trust, pr->reflection, pr->folder.path, n->reflection) < 0)
        return -1;
    if (fstat(pr->reflection, &st) < 0)
        return report_errno(errno, "cannot look at %s/%s", pr->folder.path, n->reflection);
    /* Who may rename others' files may lay one of them here, which its owner would then open to all who
     * may open this file, and write to. What was made with the manifest is like it; or like the original,
     * after birth_follow() was cut. */
    const struct identity *who = &pr->identity;
    struct stat own;
    if (fstat(pr->lock, &own) < 0)
        return report_errno(errno, "cannot look at the manifest of %s", pr->path);
    if ((st.st_uid != own.st_uid || st.st_gid != own.st_gid || (st.st_mode ^ own.st_mode) & 0777) &&
        (st.st_uid != who->owner || st.st_gid != who->group ||
         (st.st_mode & 0777) != (who->mode & 0666)))
        return report_error(
            EACCES,
            "%s/%s has another owner, group or mode than its manifest: they were not "
            "made together",
            pr->folder.path, n->reflection);
    uint64_t need = layout_reflection_bytes(size);
    if ((uint64_t)st.st_size < need)
        return report_error(EUCLEAN,
                            "the reflection %s/%s is %lld bytes long, it should be %" PRIu64,
                            pr->folder.path, n->reflection, (long long)st.st_size, need);
    return 0;
}

/* A manifest that is in order and belongs to this file. */
static int adopt(struct pairing *pr, const struct place_names *n, const char *bytes,
                 const struct pairing_wish *wish)
{
    struct manifest_sizes sizes;
    uint8_t boot[16];
    if (!manifest_sizes(bytes, &sizes))
        return report_error(EUCLEAN, "the logical size in the manifest %s/%s is damaged",
                            pr->folder.path, n->manifest);
    if (pr->record.format != 0)
        return report_error(EUCLEAN, "the reflection %s/%s has format %u, this library reads 0",
                            pr->folder.path, n->reflection, pr->record.format);
    if (pr->record.state == MANIFEST_CLEAN && check_not_written(pr, wish) < 0)
        return -1;
    pr->size = sizes.size;
    if (growth_settle(pr, sizes.growth, sizes.shrunk) < 0)
        return -1;
    pr->identity.size = pr->size;
    if (check_reflection(pr, n, pr->size) < 0 || birth_choose_domain(pr, wish) < 0 ||
        birth_map_manifest(pr, n) < 0)
        return -1;
    birth_follow(pr, pr->reflection, n->reflection);
    birth_follow(pr, pr->lock, n->manifest);
    identity_boot(boot);
    if (pr->record.state == MANIFEST_IN_USE && pr->record.domain == PERSIST_PROCESS &&
        memcmp(boot, pr->record.boot_id, 16) != 0)
        report_log(REPORT_WARNING,
                   "the kernel went down while %s was mapped in domain process, which promises "
                   "nothing for that case",
                   pr->path);
    /* The dead flushed nothing: their bytes become durable before their words do (I1). */
    bool unflushed = pr->record.state != MANIFEST_CLEAN && pr->record.domain == PERSIST_PROCESS &&
                     pr->persist.domain != PERSIST_PROCESS;
    if (unflushed && fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot make %s durable", pr->path);
    if (unflushed && fsops_fsync(pr->reflection) < 0)
        return report_errno(errno, "cannot make the reflection of %s durable", pr->path);
    /* persist-order R3 (writer: P1): the attribute of a birth that was cut right after it, too. */
    if (pr->record.state == MANIFEST_BORN && fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot sync %s", pr->path);
    /* persist-order R3 (writer: M1): the record that we read may be visible and not durable, when
     * its writer was killed between its store and its fence. */
    if (persist_flush_any(&pr->persist, pr->manifest, MANIFEST_BYTES) < 0)
        return report_errno(errno, "cannot make the manifest %s/%s durable", pr->folder.path,
                            n->manifest);
    persist_fence(&pr->persist);
    /* persist-order S2 (writer: the size word of a shrink): with the record, the size word is durable
     * before what lies behind the end is thrown away. */
    if (shrink_finish(pr) < 0)
        return -1;
    pr->settled = pr->record.state == MANIFEST_CLEAN;
    pr->orphaned = pr->record.state == MANIFEST_IN_USE;
    return 0;
}

static enum decision decide(struct pairing *pr, const struct place_names *n,
                            enum manifest_finding found, const struct pairing_wish *wish)
{
    struct attribute a;
    enum attribute_finding attribute =
        pr->has_attributes ? attribute_read(pr->original, pr->path, &a) : ATTRIBUTE_UNSUPPORTED;
    if (attribute == ATTRIBUTE_BAD)
        return REFUSE;
    if (found == MANIFEST_DAMAGED) {
        report_error(EUCLEAN, "the manifest %s/%s is damaged: neither of its copies is valid",
                     pr->folder.path, n->manifest);
        return REFUSE;
    }
    if (found == MANIFEST_FOREIGN) {
        report_error(EUCLEAN, "the manifest %s/%s is of version %u, this library reads %d",
                     pr->folder.path, n->manifest, pr->record.version, MANIFEST_VERSION);
        return REFUSE;
    }
    if (found == MANIFEST_UNBORN) {
        /* What was a manifest may have been emptied by others. (Of a birth that was cut, the reflection
         * holds nothing.) */
        int holds = wish->prefer_file ? place_holds_slices(&pr->folder, pr->identity.inode) : 0;
        if (holds)
            return holds < 0 ? REFUSE : FORGET;
        if (attribute != ATTRIBUTE_FOUND)
            return BEAR;
        report_error(ESTALE,
                     "%s carries the attribute of a reflection, but the manifest %s/%s is "
                     "empty",
                     pr->path, pr->folder.path, n->manifest);
        return stale(wish);
    }
    bool same = identity_same_inode(&pr->identity, &pr->record);
    if (attribute == ATTRIBUTE_FOUND) {
        if (memcmp(a.id, pr->record.id, 16) == 0 && same) {
            pr->record.known |= MANIFEST_KNOWS_ATTRIBUTE; /* a cut birth may not have come to it */
            return pr->record.state == MANIFEST_DEPLOYED ? START_OVER : ADOPT;
        }
        report_error(ESTALE,
                     "the manifest %s/%s belongs to another file or pairing than the attribute of "
                     "%s says: was it copied together with its attribute?",
                     pr->folder.path, n->manifest, pr->path);
        /* In a folder that the attribute alone names it may be the pairing of somebody's file that is in
         * use there. */
        return place_is_own(pr, wish) ? stale(wish) : REFUSE;
    }
    if (same && (pr->record.state == MANIFEST_BORN || pr->record.state == MANIFEST_DEPLOYED))
        return START_OVER; /* nothing in it: a cut birth, or a cut removal */
    if (attribute == ATTRIBUTE_NONE && !(pr->record.known & MANIFEST_KNOWS_ATTRIBUTE)) {
        /* It never had one: a file system that answers for attributes and takes none. */
        attribute = ATTRIBUTE_UNSUPPORTED;
        pr->has_attributes = false;
    }
    if (same && attribute == ATTRIBUTE_UNSUPPORTED &&
        (pr->identity.has_birth || pr->identity.has_generation))
        return ADOPT;
    if (same && !(pr->identity.has_birth || pr->identity.has_generation)) {
        report_error(ESTALE,
                     "there is a reflection %s/%s, but neither attribute, birth time nor "
                     "generation tells whether it belongs to %s",
                     pr->folder.path, n->reflection, pr->path);
        return stale(wish);
    }
    if (same) {
        report_error(ESTALE, "%s has a reflection %s/%s, but its attribute user.ato was taken away",
                     pr->path, pr->folder.path, n->reflection);
        return stale(wish);
    }
    /* Another file's. In a folder of its own choosing files of several file systems meet, and one
     * inode number may be alive twice: never push a live one aside. */
    if (pr->record.device != pr->identity.device && wish->folder) {
        report_error(ESTALE,
                     "the reflection %s/%s belongs to a file of another file system with "
                     "the same inode number; choose another reflection folder for %s",
                     pr->folder.path, n->reflection, pr->path);
        return REFUSE;
    }
    if (set_aside(pr, n, "belonged to another file that had this inode number before") < 0)
        return REFUSE;
    return START_OVER;
}

/* A manifest gets its length before its bytes. Anything else is not one of ours: it may be somebody's file
 * that was renamed, and is not to be written over. */
static int may_be_unborn(const struct pairing *pr, const struct place_names *n, const char *bytes)
{
    static const char zeros[MANIFEST_BYTES];
    struct stat st;
    if (fstat(pr->lock, &st) < 0)
        return report_errno(errno, "cannot look at the manifest %s/%s", pr->folder.path,
                            n->manifest);
    return st.st_size == MANIFEST_BYTES ||
           (st.st_size < MANIFEST_BYTES && memcmp(bytes, zeros, MANIFEST_BYTES) == 0);
}

/* One try under the attach lock. 1 done, 0 again, DUE again, after a recovery; -1 error. */
enum { DUE = 2 };

static int open_locked(struct pairing *pr, const struct place_names *n, const char *name,
                       const struct pairing_wish *wish)
{
    /* As it is now that nobody else maps it: while we waited for the lock its last user may have
     * unmapped it. */
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    char *bytes = calloc(1, MANIFEST_BYTES);
    if (!bytes)
        return report_error(ENOMEM, "no memory to read the manifest %s/%s", pr->folder.path,
                            n->manifest);
    int result = -1;
    if (pread(pr->lock, bytes, MANIFEST_BYTES, 0) < 0) {
        report_errno(errno, "cannot read the manifest %s/%s", pr->folder.path, n->manifest);
        goto out;
    }
    enum manifest_finding found = manifest_read(bytes, &pr->record, &pr->copy);
    int unborn = found == MANIFEST_UNBORN ? may_be_unborn(pr, n, bytes) : 1;
    if (unborn < 0)
        goto out;
    if (!unborn)
        found = MANIFEST_DAMAGED;
    struct recover_file file = {.manifest = pr->lock,
                                .in_use =
                                    found == MANIFEST_VALID && pr->record.state == MANIFEST_IN_USE,
                                .trust = identity_trust(&pr->identity)};
    memcpy(file.id, pr->record.id, sizeof(file.id));
    int due = recover_is_due(&pr->folder, &file);
    if (due) {
        result = due < 0 ? -1 : DUE;
        goto out;
    }
    switch (decide(pr, n, found, wish)) {
    case ADOPT:
        result = adopt(pr, n, bytes, wish) < 0 ? -1 : 1;
        if (result < 0 && errno == ESTALE && pr->record.state == MANIFEST_BORN)
            result = start_over(pr, n); /* nothing was stored yet */
        if (result < 0 && errno == ESTALE && wish->prefer_file)
            result = forget(pr, n);
        break;
    case FORGET:
        result = forget(pr, n);
        break;
    case BEAR:
        result = birth_give(pr, n, name, wish) < 0 ? -1 : 1;
        break;
    case START_OVER:
        /* After set_aside() the name is free already; removing is idempotent. */
        result = folder_names(&pr->folder, n->manifest, pr->lock);
        if (result == 1)
            result = start_over(pr, n);
        break;
    case REFUSE:
        break;
    }
out:
    free(bytes);
    return result;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void let_go(struct pairing *pr)
{
    if (pr->manifest)
        munmap(pr->manifest, MANIFEST_BYTES);
    pr->manifest = NULL;
    close_fd(&pr->reflection);
    /* Attach lock and slot. Not by closing alone: a child that is just being forked has the
     * descriptor too. */
    if (pr->lock >= 0)
        (void)locks_drop(pr->lock, 0, 0);
    close_fd(&pr->lock);
}

/* An open file of our own: the kernel reports a failed write-back once an open file, and the caller's
 * fsync() must not get what is meant for us. Who may not open the file any more, but has it open,
 * shares. */
static int open_again(int fd)
{
    int own = folder_reopen(fd);
    return own >= 0 ? own : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int pairing_open(struct pairing *pr, int fd, const struct identity *who,
                 const struct pairing_wish *wish)
{
    char *name;
    memset(pr, 0, sizeof(*pr));
    pr->original = pr->reflection = pr->lock = pr->folder.fd = -1;
    pr->identity = *who;
    if (wish->domain == PERSIST_AUTO && domain_from_name(wish->domain_word) < 0)
        return -1; /* before anything is made */
    if (who->size > LAYOUT_MAX_BYTES)
        return report_error(EFBIG, "descriptor %d is a file larger than 256 TiB", fd);
    pr->original = open_again(fd);
    if (pr->original < 0)
        return report_errno(errno, "cannot open descriptor %d again", fd);
    struct place_names n = place_names(who->inode);
    if (identity_path(fd, who, pr->path, &name) < 0 || place_open(pr, name, wish) < 0)
        goto fail;
    for (int i = 0;; i++) {
        /* Journals before the attach lock: that is the order everywhere. A process that dies in
         * between leaves a journal that open_locked() notices. */
        const struct trust trust = identity_trust(&pr->identity);
        struct report_kept kept = {0};
        int recovered = recover_folder(&pr->folder, &trust);
        if (recovered == 1)
            report_keep(&kept);
        if (recovered < 0 || take_manifest(pr, &n) < 0 || take_slots(pr, &n) < 0)
            goto fail;
        int r = open_locked(pr, &n, name, wish);
        if (r == 1)
            return 0;
        if (r < 0)
            goto fail;
        let_go(pr);
        /* So long no owner takes to die: it cannot be recovered. What a medium said once it may not say
         * again, and have lost. */
        if (r == DUE && kept.error && (kept.error == EIO || i > 10)) {
            report_again(&kept);
            goto fail;
        }
        if (i == 5000) {
            report_error(EBUSY,
                         "a journal in %s holds a commit of %s, and its owner neither lives "
                         "nor dies",
                         pr->folder.path, pr->path);
            goto fail;
        }
        if (i > 2)
            nap();
    }
fail:;
    int saved = errno;
    pairing_close(pr);
    errno = saved;
    return -1;
}

int pairing_use(struct pairing *pr, uint64_t shm_generation)
{
    pr->record.state = MANIFEST_IN_USE;
    pr->record.domain = pr->persist.domain;
    pr->record.device = pr->identity.device;
    pr->record.shm_generation = shm_generation;
    identity_boot(pr->record.boot_id);
    /* P1: the first copy B of a manifest's life. */
    return birth_write_record(pr);
}

int pairing_clean(struct pairing *pr, bool written)
{
    struct stat st;
    /* Of another length by others' doing it stays `in use`: as soon as it has its own again, it can be
     * mapped. */
    if (growth_settle(pr, growth_last(pr), shrink_from(pr)) < 0 || shrink_finish(pr) < 0)
        return -1;
    /* In domain process nothing was made durable yet. */
    if (pr->persist.domain == PERSIST_PROCESS && fsops_fsync(pr->reflection) < 0)
        return report_errno(errno, "cannot sync the reflection of %s", pr->path);
    /* The kernel may have moved mtime although nothing was written: by a store of a call that failed,
     * through a writable view, when it wrote pages back. So it is durable before it is kept, and
     * before it is set, not after. Also S5.
     * explorer: drop fsync survives: no kernel of its rules moves mtime by itself. */
    if (fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot sync %s", pr->path);
    /* The kernel stamps writes with a coarse clock: an outside write within the same tick would not
     * move mtime. A stamp of the fine clock cannot be met by chance. Who died gave none to what it
     * wrote. */
    bool stamp = written || pr->orphaned;
    if (stamp) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {0}};
        clock_gettime(CLOCK_REALTIME, &times[1]);
        if (fsops->futimens(pr->original, times) < 0)
            report_log(REPORT_INFO, "cannot set the mtime of %s", pr->path);
    }
    if (fstat(pr->original, &st) < 0)
        return report_errno(errno, "cannot look at %s", pr->path);
    /* persist-order M2 (reader: check_not_written): the mtime is durable on the original before the
     * record that will be held against it; or after a power cut an untouched file would look as if
     * others had written to it. */
    if (stamp && fsops_fsync(pr->original) < 0)
        return report_errno(errno, "cannot sync %s", pr->path);
    pr->record.state = MANIFEST_CLEAN;
    pr->record.clean_size = (uint64_t)st.st_size;
    pr->record.clean_mtime_sec = st.st_mtim.tv_sec;
    pr->record.clean_mtime_nsec = (uint64_t)st.st_mtim.tv_nsec;
    return birth_write_record(pr);
}

int pairing_lock_attach(struct pairing *pr)
{
    if (locks_wait(pr->lock, 0, 1) < 0)
        return report_errno(errno, "cannot lock the manifest of %s in %s", pr->path,
                            pr->folder.path);
    return 0;
}

int pairing_unlock_attach(struct pairing *pr)
{
    if (locks_drop(pr->lock, 0, 1) < 0)
        return report_errno(errno, "cannot unlock the manifest of %s in %s", pr->path,
                            pr->folder.path);
    return 0;
}

void pairing_forget(struct pairing *pr)
{
    close_fd(&pr->lock);
    close_fd(&pr->reflection);
    close_fd(&pr->original);
    folder_close(&pr->folder);
    pr->manifest = NULL; /* was not inherited */
}

void pairing_close(struct pairing *pr)
{
    let_go(pr);
    folder_close(&pr->folder);
    close_fd(&pr->original);
}
