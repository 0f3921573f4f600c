// SPDX-License-Identifier: BSD-3-Clause
#include "faults.h"

#include "child.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <unistd.h>

namespace support
{

// ---- fsops --------------------------------------------------------------------------------------

static FsFaults *fs_faults;

static bool refused(const char *op, const char *name = "")
{
    FsCall call{op, name, static_cast<long>(fs_faults->calls.size())};
    fs_faults->calls.push_back(std::string(op) + (*name ? " " : "") + name);
    int answer = fs_faults->before ? fs_faults->before(call) : GO_ON;
    if (answer == DIE)
        _exit(CUT);
    if (answer == GO_ON)
        return false;
    errno = answer;
    return true;
}

static int fs_mkdirat(int dir, const char *name, mode_t mode)
{
    return refused("mkdirat", name) ? -1 : fsops_real.mkdirat(dir, name, mode);
}
static int fs_create(int dir, const char *name, int flags, mode_t mode)
{
    return refused("create", name) ? -1 : fsops_real.create(dir, name, flags, mode);
}
static int fs_renameat(int dir, const char *from, const char *to)
{
    return refused("renameat", from) ? -1 : fsops_real.renameat(dir, from, to);
}
static int fs_unlinkat(int dir, const char *name, int flags)
{
    return refused("unlinkat", name) ? -1 : fsops_real.unlinkat(dir, name, flags);
}
static int fs_ftruncate(int fd, off_t size)
{
    return refused("ftruncate") ? -1 : fsops_real.ftruncate(fd, size);
}
static int fs_fallocate(int fd, int mode, off_t offset, off_t n)
{
    return refused("fallocate") ? -1 : fsops_real.fallocate(fd, mode, offset, n);
}
static int fs_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags)
{
    return refused("fsetxattr", name) ? -1 : fsops_real.fsetxattr(fd, name, value, n, flags);
}
static int fs_fremovexattr(int fd, const char *name)
{
    return refused("fremovexattr", name) ? -1 : fsops_real.fremovexattr(fd, name);
}
static int fs_fchown(int fd, uid_t owner, gid_t group)
{
    return refused("fchown") ? -1 : fsops_real.fchown(fd, owner, group);
}
static int fs_fchmod(int fd, mode_t mode)
{
    return refused("fchmod") ? -1 : fsops_real.fchmod(fd, mode);
}
static int fs_futimens(int fd, const struct timespec times[2])
{
    return refused("futimens") ? -1 : fsops_real.futimens(fd, times);
}
static int fs_fsync(int fd)
{
    return refused("fsync") ? -1 : fsops_real.fsync(fd);
}
static int fs_fdatasync(int fd)
{
    return refused("fdatasync") ? -1 : fsops_real.fdatasync(fd);
}
static ssize_t fs_pwrite(int fd, const void *from, size_t n, off_t offset)
{
    return refused("pwrite") ? -1 : fsops_real.pwrite(fd, from, n, offset);
}
static int fs_shm_open(const char *name, int flags, mode_t mode)
{
    return refused("shm_open", name) ? -1 : fsops_real.shm_open(name, flags, mode);
}
static int fs_shm_unlink(const char *name)
{
    return refused("shm_unlink", name) ? -1 : fsops_real.shm_unlink(name);
}

static const struct fsops fs_table = {
    fs_mkdirat,   fs_create,       fs_renameat, fs_unlinkat,   fs_ftruncate, fs_fallocate,
    fs_fsetxattr, fs_fremovexattr, fs_fchown,   fs_fchmod,     fs_futimens,  fs_fsync,
    fs_fdatasync, fs_pwrite,       fs_shm_open, fs_shm_unlink,
};

FsFaults::FsFaults()
{
    if (fs_faults)
        abort();
    fs_faults = this;
    fsops = &fs_table;
}

FsFaults::~FsFaults()
{
    fsops = &fsops_real;
    fs_faults = nullptr;
}

void FsFaults::cut_at(long index)
{
    before = [index](const FsCall &c) { return c.index == index ? DIE : GO_ON; };
}

void FsFaults::fail_at(long index, int err)
{
    before = [index, err](const FsCall &c) { return c.index == index ? err : GO_ON; };
}

void FsFaults::fail_op(const std::string &op, int err)
{
    before = [op, err](const FsCall &c) { return op == c.op ? err : GO_ON; };
}

long FsFaults::count(const std::string &op) const
{
    return std::count_if(calls.begin(), calls.end(), [&op](const std::string &call) {
        return call.substr(0, call.find(' ')) == op;
    });
}

// ---- persist ------------------------------------------------------------------------------------

static PersistFaults *persist_faults;

static bool flush_refused(const char *op, const char *site, const void *address, size_t n,
                          long &counter)
{
    // Other threads may be in a call too, while the hook keeps one of them waiting.
    long index = __atomic_fetch_add(&persist_faults->events, 1, __ATOMIC_RELAXED);
    PersistCall call{op, site, index, address, n};
    __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    int answer = persist_faults->before ? persist_faults->before(call) : GO_ON;
    if (answer == DIE)
        _exit(CUT);
    if (answer == GO_ON)
        return false;
    errno = answer;
    return true;
}

static void seen(const char *op, const char *site, const void *address, long &counter)
{
    flush_refused(op, site, address, 0, counter);
}

static void add(uint64_t &slices, uint64_t mask)
{
    __atomic_fetch_add(&slices, __builtin_popcountll(mask), __ATOMIC_RELAXED);
}

static void p_scatter(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
                      uint64_t mask, bool cold)
{
    if (!mask) // stores nothing
        return;
    seen("scatter", seam_site, r, persist_faults->counts.scatter);
    add(persist_faults->slices, mask);
    if (cold)
        add(persist_faults->cold_slices, mask);
    persist_real.scatter(p, o, r, src, bitmap, mask, cold);
}
static void p_copy(const struct persist *p, void *dst, const void *src, size_t n)
{
    if (!n)
        return;
    seen("copy", seam_site, dst, persist_faults->counts.copy);
    persist_real.copy(p, dst, src, n);
}
static void p_store_word(const struct persist *p, uint64_t *word, uint64_t value)
{
    seen("store_word", seam_site, word, persist_faults->counts.store_word);
    persist_real.store_word(p, word, value);
}
static void p_store_pair(const struct persist *p, uint64_t *pair, const uint64_t values[2])
{
    seen("store_pair", seam_site, pair, persist_faults->counts.store_word);
    persist_real.store_pair(p, pair, values);
}
static int p_flip_rtm(const struct persist *p, const struct persist_flip *flips, size_t n)
{
    seen("flip_rtm", seam_site, flips[0].word, persist_faults->counts.flip_rtm);
    if (persist_faults->rtm < 0)
        return persist_real.flip_rtm(p, flips, n);
    for (size_t i = 0; persist_faults->rtm && i < n; i++)
        *flips[i].word = flips[i].value;
    return persist_faults->rtm;
}
static int p_flush_data(const struct persist *p, const void *addr, size_t n)
{
    bool no = flush_refused("flush_data", seam_site, addr, n, persist_faults->counts.flush_data);
    return no ? -1 : persist_real.flush_data(p, addr, n);
}
static int p_flush_any(const struct persist *p, const void *addr, size_t n)
{
    bool no = flush_refused("flush_any", seam_site, addr, n, persist_faults->counts.flush_any);
    return no ? -1 : persist_real.flush_any(p, addr, n);
}
static void p_fence(const struct persist *p)
{
    seen("fence", seam_site, nullptr, persist_faults->counts.fence);
    persist_real.fence(p);
}

static void p_fence_threads(const struct persist *p)
{
    seen("fence_threads", seam_site, nullptr, persist_faults->counts.fence_threads);
    persist_real.fence_threads(p);
}

static const struct persist_ops persist_table = {
    p_scatter,    p_copy,      p_store_word, p_store_pair,    p_flip_rtm,
    p_flush_data, p_flush_any, p_fence,      p_fence_threads,
};

PersistFaults::PersistFaults()
{
    if (persist_faults)
        abort();
    persist_faults = this;
    persist_ops = &persist_table;
}

PersistFaults::~PersistFaults()
{
    persist_ops = &persist_real;
    persist_faults = nullptr;
}

void PersistFaults::cut_at(long index)
{
    before = [index](const PersistCall &c) { return c.index == index ? DIE : GO_ON; };
}

void PersistFaults::die_at_flip(long n)
{
    auto left = std::make_shared<long>(n);
    before = [left](const PersistCall &c) {
        bool flip = std::string(c.op) == "store_word" &&
                    std::string(c.site).find("commit/commit.") != std::string::npos;
        return flip && --*left == 0 ? DIE : GO_ON;
    };
}

PersistCounts PersistFaults::take()
{
    PersistCounts taken = counts;
    counts = PersistCounts();
    slices = 0;
    cold_slices = 0;
    return taken;
}

bool PersistCounts::operator==(const PersistCounts &o) const
{
    return scatter == o.scatter && copy == o.copy && store_word == o.store_word &&
           flip_rtm == o.flip_rtm && flush_data == o.flush_data && flush_any == o.flush_any &&
           fence == o.fence && fence_threads == o.fence_threads;
}

std::ostream &operator<<(std::ostream &out, const PersistCounts &c)
{
    return out << "scatter " << c.scatter << " copy " << c.copy << " store_word " << c.store_word
               << " flip_rtm " << c.flip_rtm << " flush_data " << c.flush_data << " flush_any "
               << c.flush_any << " fence " << c.fence << " fence_threads " << c.fence_threads;
}

} // namespace support
