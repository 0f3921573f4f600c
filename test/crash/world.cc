// SPDX-License-Identifier: BSD-3-Clause
#include "world.h"

#include "standins.h"

extern "C" {
#include "reflection/fsops.h"
#include "reflection/persist.h"
}

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace crash
{

namespace
{

constexpr const char *ATTRIBUTE = "user.ato";

World *world;
bool dead;             // what is done now reaches nothing
size_t events_to_live; // 0: no end in sight

std::map<ino_t, int> ids;      // files of the media, by the kernel's inode number
int next_id;                   // of an inode that is made
std::set<std::string> objects; // shared memory
thread_local int thread_number = 1;

[[noreturn]] void broken(const std::string &what)
{
    throw Violation(what + ": " + strerror(errno));
}

void check(bool ok, const char *what)
{
    if (!ok)
        broken(what);
}

int id_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    auto found = ids.find(st.st_ino);
    return found == ids.end() ? -1 : found->second;
}

Time mtime_of(int fd)
{
    struct stat st = {};
    fstat(fd, &st);
    return {st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
}

std::string attribute_of(int fd)
{
    char value[8192];
    ssize_t n = fgetxattr(fd, ATTRIBUTE, value, sizeof(value));
    return n > 0 ? std::string(value, static_cast<size_t>(n)) : std::string();
}

// Named after the folder: the other workers' objects have other names.
std::string object_name(const char *name);

void forget_objects()
{
    for (const std::string &name : objects)
        shm_unlink(name.c_str());
    objects.clear();
}

} // namespace

namespace
{

std::string object_name(const char *name)
{
    std::string own = world->path() + "-" + (name + 1);
    own.erase(0, own.find('/', 1) + 1); // /dev
    own.erase(0, own.find('/') + 1);    // shm
    std::replace(own.begin(), own.end(), '/', '-');
    return "/" + own;
}

} // namespace

// ---- the seams ----------------------------------------------------------------------------------

struct Seams {
    static Trace *trace()
    {
        return dead ? nullptr : world->trace;
    }

    static void pause()
    {
        if (world->pause && !dead)
            world->pause();
    }

    static Event &emit(Kind kind, const char *site = "")
    {
        Event e;
        e.kind = kind;
        e.thread = thread_number;
        e.site = site;
        Trace *to = trace();
        to->push_back(std::move(e));
        if (events_to_live && --events_to_live == 0)
            dead = true;
        return to->back();
    }

    // What the kernel did to the times of the originals, unasked.
    static void see_times()
    {
        for (size_t i = 0; i < world->files.size(); i++) {
            Time now = mtime_of(world->files[i].fd);
            if (now == world->times[i])
                continue;
            world->times[i] = now;
            Event &e = emit(Kind::Times);
            e.inode = static_cast<int>(i) + 1;
            e.time = now;
        }
    }

    static const Region &region(const void *address)
    {
        const Region *r = standins::region(address);
        if (!r || !ids.count(r->inode))
            throw Violation("a store to an address that belongs to no file of the media");
        return *r;
    }

    static void capture(Event &e, const void *address, size_t n)
    {
        const Region &r = region(address);
        int inode = ids.at(r.inode);
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
        e.inode = ids.at(r.inode);
        e.at = static_cast<uint64_t>(static_cast<const char *>(address) - r.begin) + r.at;
        e.bytes = n;
    }

    static int flush(const struct persist *p, const void *address, size_t n, const char *site,
                     bool streamed)
    {
        if (dead)
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
               uint64_t mask, const char *site)
{
    if (dead || !mask)
        return;
    Seams::pause();
    persist_real.scatter(p, o, r, src, bitmap, mask, site);
    if (!Seams::trace())
        return;
    Event &e = Seams::emit(Seams::kind_of(p), site);
    for (unsigned i = 0; i < 64; i++)
        if (mask >> i & 1)
            Seams::capture(e, (bitmap >> i & 1 ? o : r) + i * 64, 64);
}

void p_line(const struct persist *p, char *dst, const char *src, const char *site)
{
    if (dead)
        return;
    Seams::pause();
    persist_real.line(p, dst, src, site);
    if (Seams::trace())
        Seams::capture(Seams::emit(Seams::kind_of(p), site), dst, 64);
}

void p_home(const struct persist *p, char *o, const char *r, uint64_t mask, const char *site)
{
    if (dead || !mask)
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
    if (dead || !n)
        return;
    Seams::pause();
    persist_real.copy(p, dst, src, n, site);
    if (Seams::trace())
        Seams::capture(Seams::emit(Seams::kind_of(p), site), dst, n);
}

void p_store_word(const struct persist *p, uint64_t *word, uint64_t value, const char *site)
{
    if (dead)
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
    if (dead)
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
    if (dead)
        return;
    Seams::pause();
    if (Seams::trace())
        Seams::emit(Kind::Fence, site);
}

const struct persist_ops persist_table = {p_scatter,    p_line,     p_home,       p_copy,
                                          p_store_word, p_flip_rtm, p_flush_data, p_flush_word,
                                          p_flush_any,  p_fence};

// ---- fsops ----

void made(int dir, const char *name, bool is_folder)
{
    struct stat st;
    check(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0, "a file that was just made");
    int folder = id_of(dir), id = next_id++;
    ids[st.st_ino] = id;
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
    if (dead)
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
    if (dead)
        return 0;
    Seams::pause();
    int r = fsops_real.renameat(dir, from, to);
    if (r == 0 && Seams::trace()) {
        Event &e = Seams::emit(Kind::Rename);
        e.inode = id_of(dir);
        e.name = from;
        e.to = to;
    }
    return r;
}

int f_unlinkat(int dir, const char *name, int flags)
{
    if (dead)
        return 0;
    Seams::pause();
    int r = fsops_real.unlinkat(dir, name, flags);
    if (r == 0 && Seams::trace()) {
        Event &e = Seams::emit(Kind::Remove);
        e.inode = id_of(dir);
        e.name = name;
    }
    return r;
}

void resized(int fd, uint64_t bytes)
{
    int id = id_of(fd);
    if (id < 0 || !Seams::trace())
        return;
    Event &e = Seams::emit(Kind::Resize);
    e.inode = id;
    e.bytes = bytes;
}

int f_ftruncate(int fd, off_t size)
{
    if (dead)
        return 0;
    Seams::pause();
    int r = fsops_real.ftruncate(fd, size);
    if (r == 0)
        resized(fd, static_cast<uint64_t>(size));
    return r;
}

int f_fallocate(int fd, int mode, off_t offset, off_t n)
{
    struct stat st;
    if (dead)
        return 0;
    Seams::pause();
    if (id_of(fd) < 0)
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
        e.inode = id_of(fd);
        e.name = attribute_of(fd);
    }
    return r;
}

int f_fsetxattr(int fd, const char *name, const void *value, size_t n)
{
    if (dead)
        return 0;
    Seams::pause();
    return attribute_changed(fd, fsops_real.fsetxattr(fd, name, value, n));
}

int f_fremovexattr(int fd, const char *name)
{
    if (dead)
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

int f_futimens(int fd, const struct timespec times[2])
{
    if (dead)
        return 0;
    Seams::pause();
    int r = fsops_real.futimens(fd, times);
    if (r == 0 && Seams::trace())
        Seams::see_times();
    return r;
}

int f_fsync(int fd, const char *site)
{
    if (dead)
        return 0;
    Seams::pause();
    if (Seams::trace()) {
        Seams::see_times();
        int id = id_of(fd);
        Seams::emit(Kind::SyncFile, site).inode = id;
    }
    return 0;
}

int f_shm_open(const char *name, int flags, mode_t mode)
{
    std::string own = object_name(name);
    if (!dead)
        Seams::pause();
    int fd = fsops_real.shm_open(own.c_str(), flags, mode);
    if (fd >= 0)
        objects.insert(own);
    return fd;
}

int f_shm_unlink(const char *name)
{
    std::string own = object_name(name);
    if (dead)
        return 0;
    Seams::pause();
    objects.erase(own);
    return fsops_real.shm_unlink(own.c_str());
}

const struct fsops fs_table = {
    f_mkdirat,      f_create, f_renameat, f_unlinkat, f_ftruncate, f_fallocate, f_fsetxattr,
    f_fremovexattr, f_fchown, f_fchmod,   f_futimens, f_fsync,     f_shm_open,  f_shm_unlink,
};

// ---- files ----

// Everything below a folder is removed, the folder stays.
void empty_folder(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    check(dir != nullptr, "fdopendir");
    while (struct dirent *entry = readdir(dir)) {
        std::string name = entry->d_name;
        if (name == "." || name == "..")
            continue;
        if (entry->d_type == DT_DIR) {
            int inner = openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            empty_folder(inner);
            close(inner);
        }
        check(unlinkat(folder, name.c_str(), entry->d_type == DT_DIR ? AT_REMOVEDIR : 0) == 0,
              "unlinkat");
    }
    closedir(dir);
}

// Runs of pages in one call.
void write_pages(int fd, const Inode &inode)
{
    static std::vector<char> buffer;
    for (auto page = inode.pages.begin(); page != inode.pages.end();) {
        uint64_t first = page->first, next = first;
        buffer.clear();
        for (; page != inode.pages.end() && page->first == next; ++page, next++) {
            const char *bytes = reinterpret_cast<const char *>(page->second->words.data());
            buffer.insert(buffer.end(), bytes, bytes + PAGE);
        }
        uint64_t at = first * PAGE;
        if (at >= inode.size)
            break;
        size_t n = std::min<uint64_t>(buffer.size(), inode.size - at);
        check(pwrite(fd, buffer.data(), n, static_cast<off_t>(at)) == static_cast<ssize_t>(n),
              "pwrite");
    }
}

void read_pages(int fd, Inode &inode)
{
    static std::vector<char> buffer;
    off_t at = 0, end = static_cast<off_t>(inode.size);
    while (at < end && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
        off_t hole = lseek(fd, at, SEEK_HOLE);
        buffer.assign(static_cast<size_t>(hole - at) + 8, 0);
        ssize_t got = pread(fd, buffer.data(), static_cast<size_t>(hole - at), at);
        check(got == hole - at, "pread");
        for (ssize_t i = 0; i < got; i += 8) {
            uint64_t w;
            memcpy(&w, buffer.data() + i, 8);
            if (w)
                inode.set_word(static_cast<uint64_t>(at + i), w);
        }
        at = hole;
    }
}

void lay_out(const Disk &disk, int id, int folder)
{
    for (const auto &name : disk.at(id).names) {
        const Inode &inode = disk.at(name.second);
        struct stat st;
        if (inode.folder) {
            check(mkdirat(folder, name.first.c_str(), 0700) == 0, "mkdirat");
            int inner = openat(folder, name.first.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            check(inner >= 0 && fstat(inner, &st) == 0, "open");
            ids[st.st_ino] = name.second;
            lay_out(disk, name.second, inner);
            close(inner);
            continue;
        }
        if (id == Disk::ROOT)
            continue; // an original
        int fd = openat(folder, name.first.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        check(fd >= 0 && ftruncate(fd, static_cast<off_t>(inode.size)) == 0 && fstat(fd, &st) == 0,
              "create");
        write_pages(fd, inode);
        ids[st.st_ino] = name.second;
        close(fd);
    }
}

void read_folder(Disk &disk, int id, int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    check(dir != nullptr, "fdopendir");
    while (struct dirent *entry = readdir(dir)) {
        std::string name = entry->d_name;
        struct stat st;
        if (name == "." || name == "..")
            continue;
        int inner = openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC);
        check(inner >= 0 && fstat(inner, &st) == 0, "open");
        // Numbered as the recorder numbers them, so that a look and a trace can be compared.
        int child = ids.at(st.st_ino);
        while (static_cast<int>(disk.count()) <= child)
            disk.add({});
        disk.edit(id).names[name] = child;
        Inode &inode = disk.edit(child);
        inode.folder = S_ISDIR(st.st_mode);
        if (inode.folder) {
            read_folder(disk, child, inner);
        } else {
            inode.size = static_cast<uint64_t>(st.st_size);
            read_pages(inner, inode);
            inode.attribute = attribute_of(inner);
        }
        close(inner);
    }
    closedir(dir);
}

void remove_tree(const std::string &path)
{
    int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    empty_folder(fd);
    close(fd);
    rmdir(path.c_str());
}

} // namespace

// ---- World --------------------------------------------------------------------------------------

World::World(const std::string &path, const std::vector<uint64_t> &sizes, uint64_t seed)
    : folder(path)
{
    remove_tree(folder);
    check(mkdir(folder.c_str(), 0700) == 0, "mkdir");
    struct stat st;
    check(stat(folder.c_str(), &st) == 0, "stat");
    ids.clear();
    ids[st.st_ino] = Disk::ROOT;
    Random r(seed);
    for (uint64_t size : sizes) {
        Original o;
        o.name = std::string(1, static_cast<char>('a' + files.size()));
        o.fd = open((folder + "/" + o.name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        Bytes bytes(size);
        for (unsigned char &b : bytes)
            b = static_cast<unsigned char>(r.next());
        check(o.fd >= 0 && pwrite(o.fd, bytes.data(), size, 0) == static_cast<ssize_t>(size) &&
                  fstat(o.fd, &st) == 0,
              "making an original");
        o.number = st.st_ino;
        o.size = size;
        ids[st.st_ino] = static_cast<int>(files.size()) + 1;
        files.push_back(o);
        times.push_back(mtime_of(o.fd));
    }
    next_id = static_cast<int>(files.size()) + 1;
    standins::set_random(seed);
    world = this;
    persist_ops = &persist_table;
    fsops = &fs_table;
}

World::~World()
{
    die();
    persist_ops = &persist_real;
    fsops = &fsops_real;
    world = nullptr;
    for (const Original &o : files)
        close(o.fd);
    forget_objects();
    remove_tree(folder);
}

void World::record(Trace *to)
{
    trace = to;
    for (size_t i = 0; i < files.size(); i++)
        times[i] = mtime_of(files[i].fd);
}

void World::allow(std::vector<uint64_t> contents, const Demand &demand)
{
    if (!trace)
        return;
    Event &e = Seams::emit(Kind::Allow);
    e.allowed = std::move(contents);
    e.demand = demand;
}

Disk World::look() const
{
    Disk disk;
    int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    read_folder(disk, Disk::ROOT, fd);
    close(fd);
    for (size_t i = 0; i < files.size(); i++)
        disk.edit(inode_of(static_cast<int>(i))).mtime = mtime_of(files[i].fd);
    while (static_cast<int>(disk.count()) < next_id)
        disk.add({});
    return disk;
}

void World::stage(const Disk &disk, After after)
{
    int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(dup(fd));
    std::vector<std::string> folders;
    while (struct dirent *entry = readdir(dir))
        if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0)
            folders.push_back(entry->d_name);
    closedir(dir);
    for (const std::string &name : folders) {
        int inner = openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        empty_folder(inner);
        close(inner);
        check(unlinkat(fd, name.c_str(), AT_REMOVEDIR) == 0, "rmdir");
    }
    std::map<ino_t, int> kept;
    for (const auto &known : ids)
        if (known.second <= static_cast<int>(files.size()))
            kept.insert(known);
    ids = std::move(kept);
    lay_out(disk, Disk::ROOT, fd);
    close(fd);
    next_id = static_cast<int>(disk.count());
    if (after == After::PowerCut) {
        forget_objects();
        standins::new_boot();
    }
    for (size_t i = 0; i < files.size(); i++) {
        const Inode &inode = disk.at(inode_of(static_cast<int>(i)));
        int o = files[i].fd;
        check(ftruncate(o, static_cast<off_t>(inode.size)) == 0, "ftruncate");
        write_pages(o, inode);
        int r = inode.attribute.empty()
                    ? fremovexattr(o, ATTRIBUTE)
                    : fsetxattr(o, ATTRIBUTE, inode.attribute.data(), inode.attribute.size(), 0);
        check(r == 0 || errno == ENODATA, "setting the attribute");
        struct timespec t[2] = {{0, UTIME_OMIT}, {inode.mtime.sec, inode.mtime.nsec}};
        check(futimens(o, t) == 0, "futimens");
    }
}

Mapping *World::map(int file, int domain, int policy, unsigned flags)
{
    struct ato_options o = {};
    o.struct_size = sizeof(o);
    o.domain = domain;
    o.read_policy = policy;
    o.flags = flags;
    o.max_size = 1 << 20;
    const Original &f = files[static_cast<size_t>(file)];
    void *at = ato_mmap_opt(f.size, f.fd, 0, &o);
    if (at == MAP_FAILED)
        throw Violation(std::string("ato_mmap: ") + ato_errormsg());
    mappings.push_back(new Mapping{file, static_cast<char *>(at), f.size});
    return mappings.back();
}

void World::unmap(Mapping *m, int mode)
{
    if (ato_munmap(m->base, m->bytes, mode) < 0)
        throw Violation(std::string("ato_munmap: ") + ato_errormsg());
    mappings.erase(std::find(mappings.begin(), mappings.end(), m));
    delete m;
}

void World::cut_short(size_t events)
{
    events_to_live = events;
}

void World::die()
{
    dead = false;
    events_to_live = 0;
    if (trace)
        Seams::emit(Kind::Death);
    dead = true;
    for (Mapping *m : mappings) {
        ato_munmap(m->base, m->bytes, ATO_UNMAP_FAST);
        delete m;
    }
    mappings.clear();
    dead = false;
}

void World::poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words)
{
    int fd = open((folder + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
    ssize_t n = static_cast<ssize_t>(words.size() * 8);
    check(fd >= 0 && pwrite(fd, words.data(), words.size() * 8, static_cast<off_t>(at)) == n,
          "poking");
    close(fd);
}

void World::quietly(const std::function<void()> &what)
{
    persist_ops = &persist_real;
    what();
    persist_ops = &persist_table;
}

Bytes World::plain_content(int file) const
{
    const Original &o = files[static_cast<size_t>(file)];
    Bytes bytes(o.size);
    check(pread(o.fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "pread");
    return bytes;
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
