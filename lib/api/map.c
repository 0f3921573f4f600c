/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ato_mmap(), ato_munmap() and ato_set_read_policy(): check arguments, make and remove views.
 */
#include "lib/api/map.h"

#include "lib/api/files.h"
#include "lib/api/options.h"
#include "lib/api/stores.h"
#include "lib/file/calls.h"
#include "lib/file/mutex.h"
#include "lib/file/store_views.h"
#include "lib/file/table.h"
#include "lib/transaction/epoch.h"
#include "lib/transaction/tx.h"
#include "reflection/media/domain.h"
#include "reflection/media/fault.h"
#include "reflection/media/report.h"
#include "reflection/media/window.h"

#include "ato_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void release_mapping(struct mapping *m)
{
    if (m->epoch)
        tx_unmake(m->epoch);
    free(m);
}

/* Maps the caller's view: read-only, so that a stray store faults instead of corrupting the file silently. */
static int map_view(struct mapping *m, int fd, void *hint)
{
    uint64_t length = (m->reach + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    m->base = table_reserve(hint, length);
    if (!m->base)
        return window_no_room(errno, length, "a mapping of ", m->file->pairing.path);
    m->reserved = (length + TABLE_GRAIN - 1) & ~(TABLE_GRAIN - 1);
    if (mapping_has_stores(m) ? stores_map(m, length, fd) < 0
                              : domain_map(m->file->persist.domain, m->base, length, PROT_READ, fd,
                                           (off_t)m->offset) == MAP_FAILED) {
        report_errno(errno, "cannot map descriptor %d", fd);
        KEEP_ERRNO();
        window_give_back(m->base, m->reserved);
        return -1;
    }
    if (length < m->reserved)
        madvise((char *)m->base + length, m->reserved - length, MADV_DONTFORK);
    if (m->flags & ATO_PLAIN) /* reads of the library use it */
        fault_watch(m->base, length, &m->file->pairing.faults);
    return 0;
}

static void give_back(struct mapping *m)
{
    KEEP_ERRNO();
    table_put(m->base, m->reserved, NULL);
    window_give_back(m->base, m->reserved);
}

static struct mapping *new_mapping(const struct file_wish *w)
{
    struct mapping *m = process_is_set_up ? calloc(1, sizeof(*m)) : NULL;
    if (!m)
        return report_null(ENOMEM, "no memory to map a file");
    m->length = w->length;
    m->offset = w->end - w->length;
    m->writable = w->writable && !(w->options->flags & ATO_PLAIN_STORES);
    pthread_mutex_init(&m->stores_lock, NULL);
    /* A mapping of a read-only descriptor does not deploy. */
    m->reader = w->access != O_RDWR;
    m->policy = m->reader ? ATO_READ_GATHER : w->options->read_policy;
    m->flags = w->options->flags;
    if ((m->flags & ATO_EPOCHS) && m->writable && epoch_make(m) < 0) {
        release_mapping(m);
        return NULL;
    }
    return m;
}

static int access_of(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return report_errno(errno, "descriptor %d", fd);
    if (flags & O_PATH)
        return report_error(EBADF, "descriptor %d was opened with O_PATH", fd);
    if ((flags & O_ACCMODE) == O_WRONLY)
        return report_error(EACCES, "descriptor %d cannot be read", fd);
    return flags & O_ACCMODE;
}

static int check_flags(int prot, int flags)
{
    const int ignored = MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_LOCKED;
    int type = flags & MAP_TYPE, others = flags & ~(MAP_TYPE | ignored);
    if (type != MAP_SHARED && type != MAP_SHARED_VALIDATE)
        return report_error(EINVAL, "only MAP_SHARED mappings are atomic; flags are 0x%x",
                            (unsigned)flags);
    if (others)
        return report_error(EINVAL, "mapping flags 0x%x are not for atomic mappings",
                            (unsigned)others);
    if (!(prot & PROT_READ) || (prot & ~(PROT_READ | PROT_WRITE)))
        return report_error(EINVAL, "protection 0x%x is not PROT_READ, with or without PROT_WRITE",
                            (unsigned)prot);
    return 0;
}

/* ---- the calls ---- */

/* prot: PROT_NONE stands for what the descriptor allows. */
static void *map(void *hint, size_t length, int prot, int fd, off_t offset,
                 const struct ato_options *opt)
{
    struct ato_options o;
    const int access = access_of(fd);
    int refused = 0;
    if (access < 0)
        return MAP_FAILED;
    if (length == 0)
        refused = report_error(EINVAL, "the length of the mapping is 0");
    else if (offset < 0 || (uint64_t)offset % PAGE_BYTES)
        refused = report_error(EINVAL, "offset %lld is not a multiple of 4096", (long long)offset);
    else if (length > LAYOUT_MAX_BYTES || (uint64_t)offset > LAYOUT_MAX_BYTES - length)
        refused = report_error(EFBIG, "the end of the mapping is beyond 256 TiB");
    if (refused || options_complete(&o, opt, fd) < 0)
        return MAP_FAILED;
    const bool writes = access == O_RDWR && !(o.flags & ATO_PLAIN);
    if (((prot & PROT_WRITE) || (o.flags & ATO_PLAIN_STORES)) && !writes) {
        report_error(
            EACCES,
            "PROT_WRITE, as ATO_PLAIN_STORES, needs a descriptor that is open for writing, "
            "and no ATO_PLAIN; "
            "descriptor %d is read-only",
            fd);
        return MAP_FAILED;
    }
    const struct file_wish w = {.options = &o,
                                .access = writes ? O_RDWR : O_RDONLY,
                                .end = (uint64_t)offset + length,
                                .length = length,
                                .hint = hint,
                                .writable = prot ? prot & PROT_WRITE : writes};
    struct mapping *m = new_mapping(&w);
    if (!m)
        return MAP_FAILED;
    void *base = MAP_FAILED;
    mutex_lock(MUTEX_FILES);
    if (!(m->flags & ATO_NO_FAULT_HANDLER))
        fault_install(SIGBUS);
    m->file = files_open(fd, &w);
    if (m->file) {
        /* A mapping of a part of the file stays one. A mapping that reaches the end of the file, or was asked for with a
         * max_size, grows with the file. */
        const bool grows = o.max_size || w.end >= file_end(m->file);
        m->reach = grows ? m->file->max_size - m->offset : m->length;
        if (!m->epoch && !m->file->reader)
            mapping_read_quickly(m);
        if (map_view(m, fd, hint) == 0) {
            table_put(m->base, m->reserved, m);
            base = m->base;
        }
        if (base != MAP_FAILED && mapping_has_stores(m) && stores_open(m) < 0) {
            give_back(m);
            base = MAP_FAILED;
        }
        if (base == MAP_FAILED)
            files_undo(m->file);
    }
    if (base == MAP_FAILED)
        release_mapping(m);
    mutex_unlock(MUTEX_FILES);
    return base;
}

void *ato_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
    return check_flags(prot, flags) < 0 ? MAP_FAILED : map(addr, length, prot, fd, offset, NULL);
}

void *map_at(void *hint, size_t length, int fd, off_t offset, const struct ato_options *opt)
{
    return map(hint, length, PROT_NONE, fd, offset, opt);
}

void *ato_mmap_opt(size_t length, int fd, off_t offset, const struct ato_options *opt)
{
    return map_at(NULL, length, fd, offset, opt);
}

int ato_set_read_policy(void *addr, int policy)
{
    struct mapping *m = table_expect(addr);
    if (!m)
        return -1;
    CALL_ON(call, m);
    policy = options_choose_policy(policy);
    if (policy < 0)
        return -1;
    if (m->reader && policy != ATO_READ_GATHER)
        return report_error(EACCES,
                            "the mapping at %p has a read-only descriptor, through which nothing "
                            "can be deployed: its read policy is gather",
                            addr);
    __atomic_store_n(&m->policy, policy, __ATOMIC_RELAXED); /* read by policy_of() */
    return 0;
}

/* Drops an epoch that can never be committed, since its file is poisoned. Returns true if the mapping has no
 * open transaction after that. */
static bool gives_up(struct mapping *m)
{
    if (!m->epoch || !file_is_poisoned(m->file))
        return false;
    tx_empty(m->epoch); /* no thread is in a call on the mapping */
    return open_total(m) == 0;
}

/* What can never be committed, since its file is poisoned, is forgotten. */
static int end_stores(struct mapping *m, bool discards)
{
    if (!discards && !file_is_poisoned(m->file))
        return stores_commit(m, 0, m->reach, false);
    stores_forget_growth(m);
    return 0;
}

int ato_munmap_opt(void *addr, size_t length, const struct ato_unmap_options *opt)
{
    struct ato_unmap_options o;
    if (options_take(&o, sizeof(o), opt, "ato_unmap_options") < 0)
        return -1;
    if (o.mode & ~(ATO_UNMAP_SPATIAL | ATO_UNMAP_DISCARD))
        return report_error(EINVAL, "unmap mode %d is not known", o.mode);
    const bool discards = o.mode & ATO_UNMAP_DISCARD;
    o.mode &= ~ATO_UNMAP_DISCARD;
    mutex_lock(MUTEX_FILES);
    struct mapping *m = table_find(addr);
    int r = -1;
    if (!m || addr != m->base) {
        char name[TABLE_ADDRESS];
        report_error(EINVAL, "%s is not where a mapping begins", table_address(name, addr));
    } else if (length != m->length) {
        report_error(EINVAL,
                     "the mapping at %p has %llu bytes, not %zu: only the whole can be "
                     "unmapped",
                     addr, (unsigned long long)m->length, length);
    } else if (discards && !mapping_has_stores(m)) {
        report_error(EINVAL, "ATO_UNMAP_DISCARD is for mappings with ATO_PLAIN_STORES");
    } else if (mapping_has_stores(m) && end_stores(m, discards) < 0) {
        r = -1;
    } else if (open_total(m) && !gives_up(m)) {
        report_error(EBUSY,
                     "an open transaction, epoch or snapshot uses the mapping at %p: end it first",
                     addr);
    } else {
        bool kept;
        CALLS_NONE(m);
        if (mapping_has_stores(m) && m->file->mappings > 1)
            store_view_close(m->file, m->view);
        r = files_leave(m->file, &o, &kept);
        KEEP_ERRNO();
        if (!kept) {
            give_back(m);
            release_mapping(m);
        }
    }
    mutex_unlock(MUTEX_FILES);
    return r;
}

int ato_munmap(void *addr, size_t length, int mode)
{
    const struct ato_unmap_options o = {.struct_size = sizeof(o), .mode = mode};
    return ato_munmap_opt(addr, length, &o);
}
