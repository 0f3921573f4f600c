// SPDX-License-Identifier: BSD-3-Clause
#include "files.h"

#include "violation.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

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

// Removes everything below a folder; the folder stays.
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

// Writes runs of pages in one call.
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

// Clears pages of an earlier lay-out that this one does not have.
void clear_holes(int fd, const Inode &inode)
{
    static const std::vector<char> zeros(PAGE);
    for (uint64_t at = 0; at < inode.size; at += PAGE) {
        if (inode.pages.count(at / PAGE))
            continue;
        size_t n = std::min(PAGE, inode.size - at);
        check(pwrite(fd, zeros.data(), n, static_cast<off_t>(at)) == static_cast<ssize_t>(n),
              "pwrite");
    }
}

// Bytes behind the end, in the last page, stay in memory after a kill, and the next life may read
// them.
void write_behind(int fd, const Inode &inode)
{
    uint64_t at = inode.size / PAGE, in = inode.size % PAGE;
    if (!in)
        return;
    void *map =
        mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(at * PAGE));
    check(map != MAP_FAILED, "mmap");
    auto page = inode.pages.find(at);
    char *to = static_cast<char *>(map) + in;
    if (page == inode.pages.end())
        memset(to, 0, PAGE - in);
    else
        memcpy(to, reinterpret_cast<const char *>(page->second->words.data()) + in, PAGE - in);
    munmap(map, PAGE);
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

Files::Files(const std::string &path, const std::vector<uint64_t> &sizes, uint64_t seed)
    : folder(path)
{
    remove_tree(folder);
    check(mkdir(folder.c_str(), 0700) == 0, "mkdir");
    struct stat st;
    check(stat(folder.c_str(), &st) == 0, "stat");
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
        o.length = size;
        ids[st.st_ino] = inode_of(static_cast<int>(files.size()));
        files.push_back(o);
    }
    next_id = inode_of(static_cast<int>(files.size()));
}

Files::~Files()
{
    for (const Original &o : files)
        close(o.fd);
    remove_tree(folder);
}

int Files::inode_of_number(ino_t number) const
{
    auto found = ids.find(number);
    return found == ids.end() ? -1 : found->second;
}

int Files::inode_of_open(int fd) const
{
    struct stat st;
    return fstat(fd, &st) < 0 ? -1 : inode_of_number(st.st_ino);
}

int Files::add(ino_t number)
{
    int id = next_id++;
    ids[number] = id;
    return id;
}

void Files::learn(std::map<ino_t, int> inodes, int next)
{
    ids = std::move(inodes);
    next_id = next;
}

static bool is_of_wal(const std::string &name)
{
    const std::string end = name.size() < 4 ? "" : name.substr(name.size() - 4);
    return end == "-wal" || end == "-shm";
}

void Files::read_folder(Disk &disk, int id, int at) const
{
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    check(dir != nullptr, "fdopendir");
    while (struct dirent *entry = readdir(dir)) {
        std::string name = entry->d_name;
        struct stat st;
        if (name == "." || name == ".." || is_of_wal(name))
            continue;
        int inner = openat(at, name.c_str(), O_RDONLY | O_CLOEXEC);
        check(inner >= 0 && fstat(inner, &st) == 0, "open");
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

Disk Files::look() const
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

void Files::lay_out_folder(const Disk &disk, int id, int at)
{
    for (const auto &name : disk.at(id).names) {
        const Inode &inode = disk.at(name.second);
        struct stat st;
        if (inode.folder) {
            check(mkdirat(at, name.first.c_str(), 0700) == 0, "mkdirat");
            int inner = openat(at, name.first.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            check(inner >= 0 && fstat(inner, &st) == 0, "open");
            ids[st.st_ino] = name.second;
            lay_out_folder(disk, name.second, inner);
            close(inner);
            continue;
        }
        if (id == Disk::ROOT)
            continue; // an original
        int fd = openat(at, name.first.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        check(fd >= 0 && ftruncate(fd, static_cast<off_t>(inode.size)) == 0 && fstat(fd, &st) == 0,
              "create");
        write_pages(fd, inode);
        ids[st.st_ino] = name.second;
        close(fd);
    }
}

void Files::lay_out(const Disk &disk)
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
    lay_out_folder(disk, Disk::ROOT, fd);
    close(fd);
    next_id = static_cast<int>(disk.count());
    for (size_t i = 0; i < files.size(); i++) {
        const Inode &inode = disk.at(inode_of(static_cast<int>(i)));
        int o = files[i].fd;
        check(ftruncate(o, static_cast<off_t>(inode.size)) == 0, "ftruncate");
        clear_holes(o, inode);
        write_pages(o, inode);
        write_behind(o, inode);
        int r = inode.attribute.empty()
                    ? fremovexattr(o, ATTRIBUTE)
                    : fsetxattr(o, ATTRIBUTE, inode.attribute.data(), inode.attribute.size(), 0);
        check(r == 0 || errno == ENODATA, "setting the attribute");
        struct timespec t[2] = {{0, UTIME_OMIT}, {inode.mtime.sec, inode.mtime.nsec}};
        check(futimens(o, t) == 0, "futimens");
    }
}

void Files::poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words)
{
    int fd = open((folder + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
    ssize_t n = static_cast<ssize_t>(words.size() * 8);
    check(fd >= 0 && pwrite(fd, words.data(), words.size() * 8, static_cast<off_t>(at)) == n,
          "poking");
    close(fd);
}

uint64_t Files::size_of(int original) const
{
    struct stat st;
    check(fstat(files[static_cast<size_t>(original)].fd, &st) == 0, "fstat");
    return static_cast<uint64_t>(st.st_size);
}

Bytes Files::plain_content(int original) const
{
    const Original &o = files[static_cast<size_t>(original)];
    Bytes bytes(size_of(original));
    check(pread(o.fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "pread");
    return bytes;
}

} // namespace crash
