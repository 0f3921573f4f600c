// SPDX-License-Identifier: BSD-3-Clause
//
// The recorder at the seam `fsops`: names, sizes, attributes, times and syncs of files, and shared
// memory. Calls of a dead process have no effect (recorder.h).
#include "seams.h"

#include <atomic>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crash
{

namespace
{

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

// Bytes stored behind the end, in the last page, become visible, as on kernels that do not clear
// them: the rules say so, and so the file must have them on any kernel.
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

// Zeros that are stored as slices are: each line may reach the media by itself, and at any time before the next fence or sync. Of
// an original only what is behind its end is punched.
void punched(int inode, off_t offset, off_t n)
{
    if (!Seams::trace() || Seams::is_original(inode))
        return;
    Event &e = Seams::emit(Seams::last_kind);
    for (off_t at = offset; at < offset + n; at += 8)
        e.chunks.push_back({inode, static_cast<uint64_t>(at), 0});
}

int f_fallocate(int fd, int mode, off_t offset, off_t n)
{
    struct stat st;
    // Shared memory: what a dead process goes on to touch has to be there.
    const bool is_memory = Seams::inode_of(fd) < 0;
    if (Seams::dead() && !is_memory)
        return 0;
    if (!Seams::dead())
        Seams::pause();
    if (is_memory)
        return fsops_real.fallocate(fd, mode, offset, n);
    check(fstat(fd, &st) == 0, "fstat");
    if (mode != 0 || st.st_size >= offset + n) {
        int r = fsops_real.fallocate(fd, mode, offset, n);
        if (r == 0 && (mode & FALLOC_FL_PUNCH_HOLE))
            punched(Seams::inode_of(fd), offset, n);
        return r;
    }
    // New space reads as zeros, as a hole does; only the size is visible.
    int r = fsops_real.ftruncate(fd, offset + n);
    if (r == 0)
        resized(fd, static_cast<uint64_t>(offset + n));
    return r;
}

// The attribute of a folder only says that a sync is not needed again: it is not laid out on the files of an image.
int attribute_changed(int fd, int r)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return r;
    if (r == 0 && Seams::trace()) {
        Event &e = Seams::emit(Kind::Attribute);
        e.inode = Seams::inode_of(fd);
        e.name = attribute_of(fd);
    }
    return r;
}

int f_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    return attribute_changed(fd, fsops_real.fsetxattr(fd, name, value, n, flags));
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

// Each stamp is new in all its bytes. Else the number of words of a record about which a crash
// decides would depend on the clock.
int f_futimens(int fd, const struct timespec *)
{
    static std::atomic<time_t> stamps{1ll << 32}; // each file is written after its birth
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

// Until `bytes` of the file are certain.
int synced(int fd, Kind kind, const char *site, uint64_t bytes)
{
    if (Seams::dead())
        return 0;
    Seams::pause();
    if (Seams::trace()) {
        Seams::see_times();
        const int id = Seams::inode_of(fd);
        Event &e = Seams::emit(kind, site);
        e.inode = id;
        e.bytes = bytes;
    }
    return 0;
}

int f_fsync(int fd)
{
    return synced(fd, Kind::SyncFile, seam_site, 0);
}

// As msync() of all pages: bytes and size, no times, attributes or names.
int f_fdatasync(int fd)
{
    return synced(fd, Kind::Sync, seam_site, 1ull << 50);
}

// As a store through the page cache; whole words of what the file has then.
ssize_t f_pwrite(int fd, const void *from, size_t n, off_t offset)
{
    if (Seams::dead())
        return static_cast<ssize_t>(n);
    Seams::pause();
    struct stat st;
    check(fstat(fd, &st) == 0, "fstat");
    const ssize_t done = fsops_real.pwrite(fd, from, n, offset);
    if (done < 0)
        return done;
    const uint64_t at = static_cast<uint64_t>(offset), end = at + n;
    if (end > static_cast<uint64_t>(st.st_size))
        resized(fd, end);
    const int id = Seams::inode_of(fd);
    if (id < 0 || !Seams::trace())
        return done;
    Event &e = Seams::emit(Kind::Store);
    for (uint64_t i = at / 8 * 8; i < end; i += 8) {
        uint64_t word = 0;
        check(pread(fd, &word, 8, static_cast<off_t>(i)) > 0, "pread");
        e.chunks.push_back({id, i, word});
    }
    return done;
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

} // namespace

const struct fsops recorded_fsops = {
    f_mkdirat,   f_create,       f_renameat, f_unlinkat,   f_ftruncate, f_fallocate,
    f_fsetxattr, f_fremovexattr, f_fchown,   f_fchmod,     f_futimens,  f_fsync,
    f_fdatasync, f_pwrite,       f_shm_open, f_shm_unlink,
};

} // namespace crash
