/* SPDX-License-Identifier: BSD-3-Clause */
#include "events.h"

extern "C" {
#include "reflection/media/fsops.h"
#include "reflection/media/persist.h"
}

#include <csignal>
#include <cstring>
#include <optional>

namespace kills
{

namespace
{

std::optional<Teller> teller;
bool armed;
unsigned deadline, seen, words_left;

void event(const char *name)
{
    if (!armed)
        return;
    if (++seen == deadline)
        raise(SIGKILL);
    if (deadline == 0)
        teller->tell_text(Say::Event, name);
}

/* Right before a page of a commit shows what was committed. */
void flip()
{
    if (words_left && --words_left == 0)
        raise(SIGKILL);
}

/* The lower and the upper half of the slices of a mask. */
uint64_t lower_half(uint64_t mask)
{
    uint64_t lower = 0;
    for (int n = __builtin_popcountll(mask) / 2; n; n--)
        lower |= (mask & ~lower) & -(mask & ~lower);
    return lower;
}

void scatter(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
             uint64_t mask, bool cold)
{
    uint64_t lower = lower_half(mask);
    if (std::strstr(seam_site, "lib/commit/show.")) /* from a log to the file */
        flip();
    event("scatter");
    persist_real.scatter(p, o, r, src, bitmap, lower, cold);
    event("scatter");
    persist_real.scatter(p, o, r, src, bitmap, mask & ~lower, cold);
}

void copy(const struct persist *p, void *dst, const void *src, size_t n)
{
    size_t half = n / 16 * 8;
    event("copy");
    persist_real.copy(p, dst, src, half);
    event("copy");
    persist_real.copy(p, static_cast<char *>(dst) + half, static_cast<const char *>(src) + half,
                      n - half);
}

void store_word(const struct persist *p, uint64_t *word, uint64_t value)
{
    if (std::strstr(seam_site, "lib/commit/commit."))
        flip();
    event("store_word");
    persist_real.store_word(p, word, value);
}

void store_pair(const struct persist *p, uint64_t *pair, const uint64_t values[2])
{
    event("store_pair");
    persist_real.store_pair(p, pair, values);
}

int flip_rtm(const struct persist *p, const struct persist_flip *flips, size_t n)
{
    event("flip_rtm");
    return persist_real.flip_rtm(p, flips, n);
}

int flush_data(const struct persist *p, const void *addr, size_t n)
{
    event("flush_data");
    return persist_real.flush_data(p, addr, n);
}

int flush_any(const struct persist *p, const void *addr, size_t n)
{
    event("flush_any");
    return persist_real.flush_any(p, addr, n);
}

void fence(const struct persist *p)
{
    event("fence");
    persist_real.fence(p);
}

void fence_threads(const struct persist *p)
{
    event("fence_threads");
    persist_real.fence_threads(p);
}

const struct persist_ops watched_persist = {
    scatter, copy, store_word, store_pair, flip_rtm, flush_data, flush_any, fence, fence_threads};

/* An entry of the table that counts, and calls the real function. */
#define WATCH(op)                                                                                  \
    table.op = [](auto... args) {                                                                  \
        event(#op);                                                                                \
        return fsops_real.op(args...);                                                             \
    }

const struct fsops &watched_fsops()
{
    static const struct fsops watched = [] {
        struct fsops table = fsops_real;
        WATCH(mkdirat);
        WATCH(create);
        WATCH(renameat);
        WATCH(unlinkat);
        WATCH(ftruncate);
        WATCH(fsetxattr);
        WATCH(fremovexattr);
        WATCH(fchown);
        WATCH(fchmod);
        WATCH(futimens);
        WATCH(fsync);
        WATCH(fdatasync);
        WATCH(shm_unlink);
        WATCH(fallocate);
        table.pwrite = [](int fd, const void *from, size_t n, off_t offset) {
            const size_t half = n / 16 * 8;
            event("pwrite");
            const ssize_t done = half ? fsops_real.pwrite(fd, from, half, offset) : 0;
            if (done != static_cast<ssize_t>(half))
                return done;
            event("pwrite");
            const ssize_t rest = fsops_real.pwrite(fd, static_cast<const char *>(from) + half,
                                                   n - half, offset + done);
            return rest < 0 ? rest : done + rest;
        };
        table.shm_open = [](const char *name, int flags, mode_t mode) {
            event("shm_open");
            teller->tell_text(Say::Object, std::string("/dev/shm") + name);
            return fsops_real.shm_open(name, flags, mode);
        };
        return table;
    }();
    return watched;
}

void point(enum seam_point, const void *)
{
    event("point");
}

} // namespace

void watch_events(const Teller &t)
{
    teller.emplace(t);
    fsops = &watched_fsops();
    persist_ops = &watched_persist;
}

void arm(unsigned kill_at, bool points)
{
    seen = 0;
    deadline = kill_at;
    armed = true;
    seam_hook = points ? point : nullptr;
}

void arm_word(unsigned n)
{
    words_left = n;
}

void disarm()
{
    armed = false;
    seam_hook = nullptr;
}

} // namespace kills
