/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/number.h"

#include "lib/file/attach.h"
#include "lib/file/clock.h"
#include "lib/file/under_way.h"
#include "lib/page/reservation.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/report.h"

#include <errno.h>

static int look_after(struct file *f, uint32_t holder, uint64_t until)
{
    if (takeover(f, holder) < 0)
        return -1;
    return clock_ns() <= until
               ? 0
               : report_error(
                     ETIMEDOUT,
                     "a commit of a process that is stopped keeps %s from having its first "
                     "snapshot, or relaxed commit",
                     f->pairing.path);
}

int number_commits(struct file *f)
{
    if (attach_lock(f) < 0)
        return -1;
    const int made = undo_number(f, f->snapshot_bytes);
    if (attach_unlock(f) < 0 || made < 0)
        return -1;
    /* A commit notes that it is under way, and then looks whether it gets a number. After this barrier, either its note is seen
     * here, or it has seen that commits have numbers. */
    if (!persist_barrier())
        return report_error(ENOSYS, "the kernel has no membarrier(2), which snapshots need");
    if (under_way_wait_all(f, offsetof(struct shared_thread, commits), look_after,
                           clock_ns() + reservation_patience_ms() * 1000000) < 0)
        return -1;
    __atomic_store_n(&f->shared.header->numbered, UNDO_READY, __ATOMIC_RELEASE);
    return 0;
}
