/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/lanes.h"

#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "lib/file/page.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"

#include <errno.h>
#include <sys/single_threaded.h>

/* Between two looks for a free lane: a commit takes as long as its flushes. A process that is stopped keeps the long lane, so that others
 * wait for it 10 s at most. */
enum { NAP_NS = 50 * 1000 };
#define LONG_WAIT_NS (10 * 1000000000ull)

/* ---- the small ones ---- */

/* While there is one thread, no locked instruction is needed: it would wait for the non-temporal stores before it. */
static bool try_small(struct file *f, struct taken_lane *lane)
{
    uint32_t idle = __atomic_load_n(&f->idle_lanes, __ATOMIC_RELAXED);
    do {
        if (!idle)
            return false;
        if (__libc_single_threaded) {
            f->idle_lanes = idle & (idle - 1);
            break;
        }
    } while (!__atomic_compare_exchange_n(&f->idle_lanes, &idle, idle & (idle - 1), false,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    lane->of = f;
    lane->number = (unsigned)__builtin_ctz(idle);
    lane->lane = lane_small(f->area.at, lane->number);
    lane->retired = f->retired[lane->number];
    return true;
}

static int map_area(struct file *f)
{
    mutex_lock(MUTEX_LANES);
    int r = 0;
    if (!f->area.at &&
        (r = area_map(&f->pairing, f->pairing.slot, MANIFEST_AREA_BYTES, &f->area)) == 0) {
        for (unsigned i = 0; i < LANE_SMALL; i++) {
            const struct lane lane = lane_small(f->area.at, i);
            f->retired[i] = lane_retired(&lane);
        }
        __atomic_store_n(&f->idle_lanes, (1u << LANE_SMALL) - 1, __ATOMIC_RELEASE);
    }
    mutex_unlock(MUTEX_LANES);
    return r;
}

/* ---- the long one ---- */

static int take_long(struct file *f, uint64_t words, struct taken_lane *lane)
{
    const struct pairing *pr = &f->pairing;
    uint32_t *user = &f->shared.header->long_lane, is = 0;
    uint64_t until = 0;
    if (words > LANE_MAX_WORDS)
        return report_error(E2BIG, "a commit of %llu pages to %s, which can be of %llu at most",
                            (unsigned long long)words, pr->path,
                            (unsigned long long)LANE_MAX_WORDS);
    /* Acquire: what the process before has stored to the lane comes before what this one stores. */
    for (; !__atomic_compare_exchange_n(user, &is, f->holder, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED);
         is = 0) {
        if (file_check(f) < 0 || takeover(f, is) < 0)
            return -1;
        const uint64_t now = clock_ns();
        until = until ? until : now + LONG_WAIT_NS;
        if (now >= until)
            return report_error(ETIMEDOUT,
                                "other commits of more than %llu pages to %s have kept this one "
                                "waiting for 10 seconds",
                                (unsigned long long)LANE_SMALL_WORDS, pr->path);
        clock_nap(NAP_NS);
    }
    if (lane_bytes(words) > f->long_lane.bytes &&
        area_map(&f->pairing, MANIFEST_SLOTS, lane_bytes(words), &f->long_lane) < 0) {
        __atomic_store_n(user, 0, __ATOMIC_RELEASE);
        return -1;
    }
    *lane = (struct taken_lane){.of = f,
                                .lane = f->long_lane,
                                .number = LANE_SMALL,
                                .retired = lane_retired(&f->long_lane)};
    return 0;
}

/* ---- both ---- */

int lanes_take(struct file *f, uint64_t words, struct taken_lane *lane)
{
    if (words > LANE_SMALL_WORDS)
        return take_long(f, words, lane);
    for (unsigned i = 0; !try_small(f, lane); i++) {
        /* Lanes with a commit in doubt never become free. */
        if ((i ? file_check(f) : map_area(f)) < 0)
            return -1;
        if (i < PAGE_SPINS)
            page_pause(i);
        else
            clock_nap(NAP_NS);
    }
    return 0;
}

void lanes_give(const struct taken_lane *lane, bool in_doubt)
{
    struct file *f = lane->of;
    if (in_doubt)
        return;
    if (lane->number < LANE_SMALL)
        f->retired[lane->number] = lane->retired;
    if (lane->number == LANE_SMALL)
        __atomic_store_n(&f->shared.header->long_lane, 0, __ATOMIC_RELEASE);
    else if (__libc_single_threaded)
        f->idle_lanes |= 1u << lane->number;
    else
        __atomic_fetch_or(&f->idle_lanes, 1u << lane->number, __ATOMIC_RELEASE);
}

void lanes_detach(struct file *f)
{
    fault_unmap(f->area.at, f->area.bytes);
    fault_unmap(f->long_lane.at, f->long_lane.bytes);
    f->area = f->long_lane = (struct lane){0};
}
