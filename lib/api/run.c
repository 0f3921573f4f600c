/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a function of the caller as a transaction, again while the transaction is refused.
 *
 * The function may also be left by an exception of C++. This file is compiled with -fexceptions, so that the transaction ends
 * then as well (ended()), before the exception is passed on. Nothing else here may need an end.
 */
#include "lib/api/options.h"
#include "lib/file/clock.h"
#include "lib/page/handle.h"
#include "lib/page/reservation.h"
#include "reflection/media/report.h"

#include <errno.h>

static struct tx *open_at(ato_tx *tx)
{
    return handle_at((uint64_t)(uintptr_t)tx);
}

/* Aborts the transaction, unless it is committed. */
static void ended(ato_tx *const *tx)
{
    KEEP_ERRNO();
    if (open_at(*tx))
        (void)ato_tx_abort(*tx);
}

int ato_tx_run(int (*fn)(ato_tx *tx, void *arg), void *arg, const struct ato_tx_options *opt)
{
    struct ato_tx_options o;
    const uint64_t began = clock_ns();
    if (!fn)
        return report_error(EINVAL, "no function to run");
    if (options_take(&o, sizeof(o), opt, "ato_tx_options") < 0)
        return -1;
    for (;;) {
        ato_tx *tx __attribute__((cleanup(ended))) = ato_tx_begin_opt(opt);
        int r = tx ? fn(tx, arg) : -1;
        if (tx && r == 0)
            r = ato_tx_commit(tx);
        const struct tx *t = open_at(tx);
        if (!t || !t->refused)
            return r;
        const uint64_t limit = o.run_ms ? o.run_ms : reservation_patience_ms();
        if (clock_ns() - began >= limit * 1000000)
            return report_error(EAGAIN,
                                "the transaction was refused for %llu ms (ato_tx_options.run_ms): "
                                "others change what it reads, or keep what it writes",
                                (unsigned long long)limit);
    }
}
