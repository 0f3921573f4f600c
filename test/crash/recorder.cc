// SPDX-License-Identifier: BSD-3-Clause
#include "recorder.h"

#include "standins.h"
#include "violation.h"

extern "C" {
#include "reflection/media/fsops.h"
#include "reflection/media/persist.h"
}

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crash
{

namespace
{

Recorder *recorder;
thread_local int thread_number = 1;

} // namespace

// ---- the seams ----------------------------------------------------------------------------------

// What the functions of both tables share; the seams do not tell them of a recorder.
struct Seams {
    static bool dead()
    {
        return recorder->dead;
    }

    static Trace *trace()
    {
        return dead() ? nullptr : recorder->trace;
    }

    static void pause()
    {
        if (recorder->pause && !dead())
            recorder->pause();
    }

    static int inode_of(int fd)
    {
        return recorder->files.inode_of_open(fd);
    }

    static int add(ino_t number)
    {
        return recorder->files.add(number);
    }

    static std::set<std::string> &objects()
    {
        return recorder->objects;
    }

    // Named after the folder: the other workers' objects have other names.
    static std::string object_name(const char *name)
    {
        std::string own = recorder->files.path() + "-" + (name + 1);
        own.erase(0, own.find('/', 1) + 1); // /dev
        own.erase(0, own.find('/') + 1);    // shm
        std::replace(own.begin(), own.end(), '/', '-');
        return "/" + own;
    }

    static Event &tell(Kind kind, const char *site = "")
    {
        Event e;
        e.kind = kind;
        e.thread = thread_number;
        e.site = site;
        Trace *to = trace();
        to->push_back(std::move(e));
        return to->back();
    }

    // What the process does itself, which may be the last that it does.
    static Event &emit(Kind kind, const char *site = "")
    {
        Event &e = tell(kind, site);
        bool counts = recorder->events_to_live && kind == recorder->counted.value_or(kind);
        if (counts && --recorder->events_to_live == 0)
            recorder->dead = true;
        return e;
    }

    // What the kernel did to the times of the originals, unasked.
    static void see_times()
    {
        const auto &originals = recorder->files.originals();
        for (size_t i = 0; i < originals.size(); i++) {
            Time now = mtime_of(originals[i].fd);
            if (now == recorder->times[i])
                continue;
            recorder->times[i] = now;
            Event &e = tell(Kind::Times);
            e.inode = Files::inode_of(static_cast<int>(i));
            e.time = now;
        }
    }

    static const Region &region(const void *address)
    {
        const Region *r = standins::region(address);
        if (!r || recorder->files.inode_of_number(r->inode) < 0)
            throw Violation("a store to an address that belongs to no file of the media");
        return *r;
    }

    static void capture(Event &e, const void *address, size_t n)
    {
        const Region &r = region(address);
        int inode = recorder->files.inode_of_number(r.inode);
        uint64_t at = static_cast<uint64_t>(static_cast<const char *>(address) - r.begin) + r.at;
        for (size_t i = 0; i < n; i += 8) {
            uint64_t value;
            memcpy(&value, static_cast<const char *>(address) + i, 8);
            e.chunks.push_back({inode, at + i, value});
        }
    }

    static Kind kind_of(const struct persist *p)
    {
        return p->domain == PERSIST_PMEM || p->domain == PERSIST_EADR ? Kind::Stream : Kind::Store;
    }

    static void range(Event &e, const void *address, size_t n)
    {
        const Region &r = region(address);
        e.inode = recorder->files.inode_of_number(r.inode);
        e.at = static_cast<uint64_t>(static_cast<const char *>(address) - r.begin) + r.at;
        e.bytes = n;
    }

    static int flush(const struct persist *p, const void *address, size_t n, const char *site,
                     bool streamed)
    {
        if (dead())
            return 0;
        pause();
        if (trace() && p->domain == PERSIST_MSYNC) {
            see_times();
            range(emit(Kind::Sync, site), address, n);
        } else if (trace() && p->domain == PERSIST_PMEM && !streamed) {
            range(emit(Kind::Flush, site), address, n);
        }
        return 0;
    }
};

namespace
{

void p_scatter(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
               uint64_t mask, bool cold, const char *site)
{
    if (Seams::dead() || !mask)
        return;
    Seams::pause();
    persist_real.scatter(p, o, r, src, bitmap, mask, cold, site);
    if (!Seams::trace())
        return;
    Event &e = Seams::emit(Seams::kind_of(p), site);
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1)
            Seams::capture(e, (bitmap >> i & 1 ? o : r) + i * 64, 64);
}

void p_line(const struct persist *p, char *dst, const char *src, const char *site)
{
    if (Seams::dead())
        return;
    Seams::pause();
    persist_real.line(p, dst, src, site);
    if (Seams::trace())
        Seams::capture(Seams::emit(Seams::kind_of(p), site), dst, 64);
}

void p_home(const struct persist *p, char *o, const char *r, uint64_t mask, const char *site)
{
    if (Seams::dead() || !mask)
        return;
    Seams::pause();
    persist_real.home(p, o, r, mask, site);
    if (!Seams::trace())
        return;
    Event &e = Seams::emit(Seams::kind_of(p), site);
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1)
            Seams::capture(e, o + i * 64, 64);
}

void p_copy(const struct persist *p, void *dst, const void *src, size_t n, const char *site)
{
    if (Seams::dead() || !n)
        return;
    Seams::pause();
    persist_real.copy(p, dst, src, n, site);
    if (Seams::trace())
        Seams::capture(Seams::emit(Seams::kind_of(p), site), dst, n);
}

void p_store_word(const struct persist *p, uint64_t *word, uint64_t value, const char *site)
{
    if (Seams::dead())
        return;
    Seams::pause();
    persist_real.store_word(p, word, value, site);
    if (Seams::trace())
        Seams::capture(Seams::emit(Kind::Store, site), word, 8);
}

int p_flip_rtm(const struct persist *p, const struct persist_flip *flips, size_t n,
               const char *site)
{
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

int p_flush_data(const struct persist *p, const void *addr, size_t n, const char *site)
{
    return Seams::flush(p, addr, n, site, true);
}

int p_flush_word(const struct persist *p, const uint64_t *word, const char *site)
{
    return Seams::flush(p, word, 8, site, false);
}

int p_flush_any(const struct persist *p, const void *addr, size_t n, const char *site)
{
    return Seams::flush(p, addr, n, site, false);
}

void p_fence(const struct persist *p, const char *site)
{
    (void)p;
    if (Seams::dead())
        return;
    Seams::pause();
    if (Seams::trace())
        Seams::emit(Kind::Fence, site);
}

// One fence of each thread that there is.
void p_fence_threads(const struct persist *p, const char *site)
{
    (void)p;
    if (Seams::dead())
        return;
    Seams::pause();
    if (!Seams::trace())
        return;
    std::set<int> threads; // who did nothing has nothing to wait for
    for (const Event &e : *Seams::trace())
        threads.insert(e.thread);
    for (int thread : threads)
        Seams::emit(Kind::Fence, site).thread = thread;
}

const struct persist_ops persist_table = {p_scatter,    p_line,     p_home,         p_copy,
                                          p_store_word, p_flip_rtm, p_flush_data,   p_flush_word,
                                          p_flush_any,  p_fence,    p_fence_threads};

// ---- fsops ----

void made(int dir, const char *name, bool is_folder)
{
    struct stat st;
    check(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0, "a file that was just made");
    int folder = Seams::inode_of(dir), id = Seams::add(st.st_ino);
    if (!Seams::trace())
        return;
    Event &e = Seams::emit(Kind::Make);
    e.inode = folder;
    e.name = name;
    e.child = id;
    e.folder = is_folder;
}

int f_mkdirat(int dir, const char *name, mode_t mode)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    int r = fsops_real.mkdirat(dir, name, mode);
    if (r == 0)
        made(dir, name, true);
    return r;
}

int f_create(int dir, const char *name, int flags, mode_t mode)
{
    Seams::pause();
    bool there = faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    int fd = fsops_real.create(dir, name, flags, mode);
    if (fd >= 0 && !there)
        made(dir, name, false);
    return fd;
}

int f_renameat(int dir, const char *from, const char *to)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    int r = fsops_real.renameat(dir, from, to);
    if (r == 0 && Seams::trace()) {
        Event &e = Seams::emit(Kind::Rename);
        e.inode = Seams::inode_of(dir);
        e.name = from;
        e.to = to;
    }
    return r;
}

int f_unlinkat(int dir, const char *name, int flags)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    int r = fsops_real.unlinkat(dir, name, flags);
    if (r == 0 && Seams::trace()) {
        Event &e = Seams::emit(Kind::Remove);
        e.inode = Seams::inode_of(dir);
        e.name = name;
    }
    return r;
}

void resized(int fd, uint64_t bytes)
{
    int id = Seams::inode_of(fd);
    if (id < 0 || !Seams::trace())
        return;
    Event &e = Seams::emit(Kind::Resize);
    e.inode = id;
    e.bytes = bytes;
}

// What was stored behind the end in its page comes to light, as on kernels that do not clear it: the
// rules have it so, and so has the file, whatever the kernel does.
int lengthen(int fd, uint64_t from, uint64_t to)
{
    uint64_t page = from / PAGE * PAGE, end = std::min(page + PAGE, to);
    Bytes tail(end - from);
    if (from != page) {
        void *map = mmap(nullptr, PAGE, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(page));
        check(map != MAP_FAILED, "mmap");
        std::copy_n(static_cast<unsigned char *>(map) + (from - page), tail.size(), tail.begin());
        munmap(map, PAGE);
    }
    int r = fsops_real.ftruncate(fd, static_cast<off_t>(to));
    if (r == 0 && from != page)
        check(pwrite(fd, tail.data(), tail.size(), static_cast<off_t>(from)) ==
                  static_cast<ssize_t>(tail.size()),
              "pwrite");
    return r;
}

int f_ftruncate(int fd, off_t size)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    struct stat st;
    check(fstat(fd, &st) == 0, "fstat");
    int r = Seams::inode_of(fd) < 0 || size <= st.st_size
                ? fsops_real.ftruncate(fd, size)
                : lengthen(fd, static_cast<uint64_t>(st.st_size), static_cast<uint64_t>(size));
    if (r == 0)
        resized(fd, static_cast<uint64_t>(size));
    return r;
}

int f_fallocate(int fd, int mode, off_t offset, off_t n)
{
    struct stat st;
    if (Seams::dead())
        return 0;
    Seams::pause();
    if (Seams::inode_of(fd) < 0)
        return fsops_real.fallocate(fd, mode, offset, n);
    check(fstat(fd, &st) == 0, "fstat");
    if (mode != 0 || st.st_size >= offset + n)
        return fsops_real.fallocate(fd, mode, offset, n);
    // Space that is not there yet reads as zeros, as a hole does; only the size is to be seen.
    int r = fsops_real.ftruncate(fd, offset + n);
    if (r == 0)
        resized(fd, static_cast<uint64_t>(offset + n));
    return r;
}

int attribute_changed(int fd, int r)
{
    if (r == 0 && Seams::trace()) {
        Event &e = Seams::emit(Kind::Attribute);
        e.inode = Seams::inode_of(fd);
        e.name = attribute_of(fd);
    }
    return r;
}

int f_fsetxattr(int fd, const char *name, const void *value, size_t n)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    return attribute_changed(fd, fsops_real.fsetxattr(fd, name, value, n));
}

int f_fremovexattr(int fd, const char *name)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    return attribute_changed(fd, fsops_real.fremovexattr(fd, name));
}

int f_fchown(int, uid_t, gid_t)
{
    return 0;
}

int f_fchmod(int, mode_t)
{
    return 0;
}

// No time is stamped twice, and all of a stamp is another one than before: how many words of a record a crash
// decides would else depend on when seconds begin.
int f_futimens(int fd, const struct timespec *)
{
    static std::atomic<time_t> stamps{1000000000};
    if (Seams::dead())
        return 0;
    Seams::pause();
    time_t stamp = ++stamps;
    struct timespec times[2] = {{0, UTIME_OMIT}, {stamp, stamp % 1000000000}};
    int r = fsops_real.futimens(fd, times);
    if (r == 0 && Seams::trace())
        Seams::see_times();
    return r;
}

int f_fsync(int fd, const char *site)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    if (Seams::trace()) {
        Seams::see_times();
        int id = Seams::inode_of(fd);
        Seams::emit(Kind::SyncFile, site).inode = id;
    }
    return 0;
}

int f_shm_open(const char *name, int flags, mode_t mode)
{
    std::string own = Seams::object_name(name);
    if (!Seams::dead())
        Seams::pause();
    int fd = fsops_real.shm_open(own.c_str(), flags, mode);
    if (fd >= 0)
        Seams::objects().insert(own);
    return fd;
}

int f_shm_unlink(const char *name)
{
    std::string own = Seams::object_name(name);
    if (Seams::dead())
        return 0;
    Seams::pause();
    Seams::objects().erase(own);
    return fsops_real.shm_unlink(own.c_str());
}

const struct fsops fs_table = {
    f_mkdirat,      f_create, f_renameat, f_unlinkat, f_ftruncate, f_fallocate, f_fsetxattr,
    f_fremovexattr, f_fchown, f_fchmod,   f_futimens, f_fsync,     f_shm_open,  f_shm_unlink,
};

} // namespace

// ---- Recorder -----------------------------------------------------------------------------------

Recorder::Recorder(Files &f) : files(f)
{
    for (const Files::Original &o : files.originals())
        times.push_back(mtime_of(o.fd));
    recorder = this;
    persist_ops = &persist_table;
    fsops = &fs_table;
}

Recorder::~Recorder()
{
    persist_ops = &persist_real;
    fsops = &fsops_real;
    recorder = nullptr;
    forget_objects();
}

void Recorder::record(Trace *to)
{
    trace = to;
    for (size_t i = 0; i < times.size(); i++)
        times[i] = mtime_of(files.originals()[i].fd);
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
    trace = &apart; // times of files go on as they were
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
    thread_number = number;
}

int get_thread_number()
{
    return thread_number;
}

} // namespace crash
