// SPDX-License-Identifier: BSD-3-Clause
#include "seams.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crash
{

// ---- stores, flushes and fences -----------------------------------------------------------------

namespace
{

void p_scatter(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
               uint64_t mask, bool cold)
{
    const char *const site = seam_site;
    if (Seams::dead() || !mask)
        return;
    Seams::pause();
    persist_real.scatter(p, o, r, src, bitmap, mask, cold);
    const Kind kind = Seams::kind_of(p);
    if (!Seams::trace() || Seams::is_memory(bitmap & mask ? o : r))
        return;
    Event &e = Seams::emit(kind, site);
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1)
            Seams::capture(e, (bitmap >> i & 1 ? o : r) + i * 64, 64);
}

void p_copy(const struct persist *p, void *dst, const void *src, size_t n)
{
    const char *const site = seam_site;
    if (Seams::dead() || !n)
        return;
    Seams::pause();
    persist_real.copy(p, dst, src, n);
    const Kind kind = Seams::kind_of(p);
    if (Seams::trace())
        Seams::capture(Seams::emit(kind, site), dst, n);
}

void p_store_word(const struct persist *p, uint64_t *word, uint64_t value)
{
    const char *const site = seam_site;
    if (Seams::dead())
        return;
    Seams::pause();
    persist_real.store_word(p, word, value);
    if (Seams::trace())
        Seams::capture(Seams::emit(Kind::Store, site), word, 8);
}

void p_store_pair(const struct persist *p, uint64_t *pair, const uint64_t values[2])
{
    const char *const site = seam_site;
    if (Seams::dead())
        return;
    Seams::pause();
    persist_real.store_pair(p, pair, values);
    if (Seams::trace())
        Seams::capture(Seams::emit(Kind::Store, site), pair, 16);
}

int p_flip_rtm(const struct persist *p, const struct persist_flip *flips, size_t n)
{
    const char *const site = seam_site;
    (void)p;
    if (Seams::dead())
        return 1;
    Seams::pause();
    for (size_t i = 0; i < n; i++)
        __atomic_store_n(flips[i].word, flips[i].value, __ATOMIC_RELEASE);
    if (!Seams::trace())
        return 1;
    Event &e = Seams::emit(Kind::Store, site);
    e.whole = true;
    for (size_t i = 0; i < n; i++)
        Seams::capture(e, flips[i].word, 8);
    return 1;
}

int p_flush_data(const struct persist *p, const void *addr, size_t n)
{
    const char *const site = seam_site;
    return Seams::flush(p, addr, n, site, true);
}

int p_flush_any(const struct persist *p, const void *addr, size_t n)
{
    const char *const site = seam_site;
    return Seams::flush(p, addr, n, site, false);
}

void p_fence(const struct persist *p)
{
    const char *const site = seam_site;
    if (Seams::dead())
        return;
    Seams::pause();
    (void)Seams::kind_of(p); // each map of a file has a fence
    if (Seams::trace())
        Seams::emit(Kind::Fence, site);
}

// One fence of each thread.
void p_fence_threads(const struct persist *p)
{
    const char *const site = seam_site;
    (void)p;
    if (Seams::dead())
        return;
    Seams::pause();
    if (!Seams::trace())
        return;
    std::set<int> threads; // a thread without stores has nothing to wait for
    for (const Event &e : *Seams::trace())
        threads.insert(e.thread);
    for (int thread : threads)
        Seams::emit(Kind::Fence, site).thread = thread;
}

const struct persist_ops persist_table = {p_scatter,    p_copy,     p_store_word,
                                          p_store_pair, p_flip_rtm, p_flush_data,
                                          p_flush_any,  p_fence,    p_fence_threads};

} // namespace

// ---- Recorder -----------------------------------------------------------------------------------

Recorder::Recorder(Files &f) : files(f)
{
    for (const Files::Original &o : files.originals())
        times.push_back(mtime_of(o.fd));
    Seams::recorder = this;
    persist_ops = &persist_table;
    fsops = &recorded_fsops;
}

Recorder::~Recorder()
{
    persist_ops = &persist_real;
    fsops = &fsops_real;
    Seams::recorder = nullptr;
    forget_objects();
}

void Recorder::record(Trace *to)
{
    trace = to;
    for (size_t i = 0; i < times.size(); i++)
        times[i] = mtime_of(files.originals()[i].fd);
}

uint64_t Recorder::syncs() const
{
    uint64_t n = 0;
    for (const Event &e : *trace)
        n += e.kind == Kind::Sync || e.kind == Kind::SyncFile;
    return n;
}

void Recorder::allow(std::vector<uint64_t> contents, const Demand &demand)
{
    if (!Seams::trace())
        return;
    Event &e = Seams::tell(Kind::Allow);
    e.allowed = std::move(contents);
    e.demand = demand;
}

void Recorder::cut_short(size_t events, std::optional<Kind> of)
{
    events_to_live = events;
    counted = of;
}

void Recorder::die(const std::function<void()> &last)
{
    dead = false;
    events_to_live = 0;
    if (trace)
        Seams::tell(Kind::Death);
    dead = true;
    last();
    dead = false;
}

void Recorder::forget_objects()
{
    for (const std::string &name : objects)
        shm_unlink(name.c_str());
    objects.clear();
}

void Recorder::write_outside(int original, uint64_t at, const Bytes &bytes, const Time &mtime)
{
    int fd = files.originals()[static_cast<size_t>(original)].fd;
    struct timespec t[2] = {{0, UTIME_OMIT}, {mtime.sec, mtime.nsec}};
    ssize_t n = static_cast<ssize_t>(bytes.size());
    check(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)) == n, "pwrite");
    check(futimens(fd, t) == 0, "futimens");
    if (!trace)
        return;
    Event &e = Seams::emit(Kind::Store);
    for (uint64_t i = at / 8 * 8; i < at + bytes.size(); i += 8) {
        uint64_t word = 0;
        check(pread(fd, &word, 8, static_cast<off_t>(i)) > 0, "pread");
        e.chunks.push_back({Files::inode_of(original), i, word});
    }
    Seams::see_times();
    Seams::emit(Kind::SyncFile).inode = Files::inode_of(original);
}

void Recorder::go_apart()
{
    apart.clear();
    trace = &apart; // the times of files continue
    set_thread_number(FIRST_PEER + peers);
    standins::set_random(mix(static_cast<uint64_t>(peers) + hash_bytes(&peers, sizeof(peers))));
}

std::string Recorder::tell_apart() const
{
    Pack p;
    p.number(apart.size());
    for (const Event &e : apart)
        pack(p, e);
    p.number(files.inodes().size());
    for (const auto &i : files.inodes()) {
        p.number(i.first);
        p.number(static_cast<uint64_t>(i.second));
    }
    p.number(static_cast<uint64_t>(files.next_inode()));
    p.number(objects.size());
    for (const std::string &name : objects)
        p.word(name);
    for (const Time &t : times)
        pack(p, t);
    return p.bytes;
}

std::vector<uint64_t> Recorder::hear_apart(Unpack &told, bool dies)
{
    std::vector<uint64_t> allowed;
    for (uint64_t n = told.number(); n; n--) {
        Event e = unpack_event(told);
        if (e.kind == Kind::Allow)
            allowed = e.allowed;
        if (trace)
            trace->push_back(std::move(e));
    }
    std::map<ino_t, int> inodes;
    for (uint64_t n = told.number(); n; n--) {
        ino_t number = told.number();
        inodes[number] = static_cast<int>(told.number());
    }
    files.learn(std::move(inodes), static_cast<int>(told.number()));
    objects.clear();
    for (uint64_t n = told.number(); n; n--)
        objects.insert(told.word());
    for (Time &t : times)
        t = unpack_time(told);
    if (trace && dies) {
        Event &e = Seams::tell(Kind::Death);
        e.thread = FIRST_PEER + peers;
        e.alone = true;
    }
    peers++;
    return allowed;
}

void Recorder::quietly(const std::function<void()> &what)
{
    persist_ops = &persist_real;
    what();
    persist_ops = &persist_table;
}

void set_thread_number(int number)
{
    Seams::thread_number = number;
}

int get_thread_number()
{
    return Seams::thread_number;
}

} // namespace crash
