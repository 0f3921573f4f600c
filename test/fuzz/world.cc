// SPDX-License-Identifier: BSD-3-Clause
#include "world.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace fuzz
{

void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("==== wrong: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static void must(bool good, const char *what)
{
    if (!good)
        wrong("the harness itself: %s: %s", what, strerror(errno));
}

// ---- images ----

void Image::write(uint64_t at, const void *bytes, size_t n)
{
    const auto *from = static_cast<const unsigned char *>(bytes);
    while (n) {
        uint64_t page = at / PAGE * PAGE, here = std::min<uint64_t>(n, page + PAGE - at);
        Bytes &to = pages[page];
        to.resize(PAGE);
        std::copy(from, from + here, to.begin() + static_cast<long>(at - page));
        at += here;
        from += here;
        n -= here;
    }
}

void Image::set_word(uint64_t at, uint64_t value)
{
    write(at, &value, 8);
}

unsigned char Image::byte(uint64_t at) const
{
    auto page = pages.find(at / PAGE * PAGE);
    return page == pages.end() ? 0 : page->second[at % PAGE];
}

Bytes Image::bytes(uint64_t at, size_t n) const
{
    Bytes b(n);
    for (size_t i = 0; i < n;) {
        size_t here = std::min<size_t>(n - i, PAGE - (at + i) % PAGE);
        auto page = pages.find((at + i) / PAGE * PAGE);
        if (page != pages.end())
            memcpy(&b[i], &page->second[(at + i) % PAGE], here);
        i += here;
    }
    return b;
}

uint64_t Image::word(uint64_t at) const
{
    return get(bytes(at, 8), 0, 8);
}

static bool is_zero(const Bytes &b)
{
    return std::all_of(b.begin(), b.end(), [](auto x) { return x == 0; });
}

bool operator==(const Image &a, const Image &b)
{
    auto half = [](const Image &one, const Image &two) {
        for (const auto &[at, bytes] : one.pages) {
            auto same = two.pages.find(at);
            if (same == two.pages.end() ? !is_zero(bytes) : same->second != bytes)
                return false;
        }
        return true;
    };
    return a.type == b.type && a.size == b.size && half(a, b) && half(b, a);
}

Image image_of(const Bytes &bytes)
{
    Image image;
    image.type = S_IFREG;
    image.size = bytes.size();
    if (!bytes.empty())
        image.write(0, bytes.data(), bytes.size());
    return image;
}

Image image_at(int folder, const std::string &name)
{
    Image image;
    struct stat st;
    if (fstatat(folder, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) < 0)
        return image;
    image.type = st.st_mode & S_IFMT;
    if (!S_ISREG(st.st_mode))
        return image;
    image.size = static_cast<uint64_t>(st.st_size);
    int fd = openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC);
    must(fd >= 0, name.c_str());
    for (off_t at = 0, end; (at = lseek(fd, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(fd, at, SEEK_HOLE);
        Bytes page(PAGE);
        for (off_t p = at / 4096 * 4096; p < end; p += 4096) {
            std::fill(page.begin(), page.end(), 0);
            must(pread(fd, page.data(), PAGE, p) >= 0, "pread");
            if (!is_zero(page))
                image.pages[static_cast<uint64_t>(p)] = page;
        }
    }
    close(fd);
    return image;
}

std::string attribute_of(const std::string &path)
{
    std::string value(65536, '\0');
    ssize_t n = getxattr(path.c_str(), "user.ato", value.data(), value.size());
    value.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return value;
}

Bytes read_all(const std::string &path)
{
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat st;
    must(fd >= 0 && fstat(fd, &st) == 0, path.c_str());
    must(st.st_size < 1 << 30, "too long a file");
    Bytes b(static_cast<size_t>(st.st_size));
    must(pread(fd, b.data(), b.size(), 0) == st.st_size, "pread");
    close(fd);
    return b;
}

std::vector<Entry> entries_in(const Image &reflection, Format format)
{
    const uint64_t each = entry_bytes(format);
    std::vector<Entry> found;
    if (format == LOG)
        return found;
    for (const auto &[at, bytes] : reflection.pages) {
        if (at % chunk_bytes(format) != 0 || at >= reflection.size)
            continue;
        const uint64_t there = std::min(PAGE, reflection.size - at) / each;
        for (uint64_t i = 0; i < there; i++) {
            const uint64_t place = at / chunk_bytes(format) * entries_of(format) + i,
                           page = format == DENSE ? place : get(bytes, i * each, 8),
                           word = get(bytes, (i + 1) * each - 8, 8);
            if (word)
                found.push_back({place, page, word});
        }
    }
    return found;
}

// ---- one file ----

static std::string hex(const Bytes &id)
{
    char text[33];
    for (size_t i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
    return text;
}

void Paired::repair(uint8_t repairs)
{
    manifest.resize(std::max(manifest.size(), MANIFEST));
    for (size_t copy : {size_t{0}, COPY_B}) {
        if (repairs & OWN) {
            std::copy(id.begin(), id.end(), manifest.begin() + static_cast<long>(copy + ID));
            put(manifest, copy + INODE, 8, inode);
            put(manifest, copy + BIRTH_SEC, 8, static_cast<uint64_t>(birth_sec));
            put(manifest, copy + BIRTH_NSEC, 4, birth_nsec);
            put(manifest, copy + GENERATION, 4, generation);
        }
        if (repairs & DOOR) {
            put(manifest, copy + MAGIC, 8, MANIFEST_MAGIC_WORD);
            put(manifest, copy + VERSION, 4, 3);
        }
        if (repairs & TIMES) {
            put(manifest, copy + CLEAN_SIZE, 8, content.size());
            put(manifest, copy + CLEAN_SEC, 8, static_cast<uint64_t>(mtime.tv_sec));
            put(manifest, copy + CLEAN_NSEC, 8, static_cast<uint64_t>(mtime.tv_nsec));
        }
        if (repairs & (copy ? SEAL_B : SEAL_A))
            seal(manifest, copy);
    }
    for (size_t at : {SIZE_WORD, GROWTH_WORD, SHRINK_WORD})
        if (repairs & SIZES)
            put(manifest, at, 8, size_word(get(manifest, at, 8)));
}

Bytes Paired::gathered(uint64_t size, Format how) const
{
    Bytes b = content;
    b.resize(size);
    for (const Entry &e : entries_in(reflection, how))
        for (uint64_t slice = 0; slice < 64; slice++) {
            const uint64_t in = slice * SLICE;
            if (e.page >= pages_of(size) || !(e.word >> slice & 1) || e.page * PAGE + in >= size)
                continue;
            Bytes r = reflection.bytes(ref_page(how, e.place) + in,
                                       std::min(SLICE, size - e.page * PAGE - in));
            std::copy(r.begin(), r.end(), b.begin() + static_cast<long>(e.page * PAGE + in));
        }
    return b;
}

void Paired::log(Image image)
{
    format = LOG;
    reflection = std::move(image);
    for (size_t copy : {size_t{0}, COPY_B})
        if (get(manifest, copy + MAGIC, 8)) {
            put(manifest, copy + FORMAT, 4, LOG);
            put(manifest, copy + DOMAIN, 4, 3);
            seal(manifest, copy);
        }
}

Image Paired::manifest_image() const
{
    Image image = image_of(manifest);
    image.pages.insert(long_lane.pages.begin(), long_lane.pages.end());
    image.size = std::max(image.size, long_lane.size);
    return image;
}

// Sparse: in two chunks, not in the order of the pages.
uint64_t Paired::place_of(uint64_t page) const
{
    return format == DENSE ? page : page % 2 * 256 + (page * 5 + 3) % 8;
}

// ---- the world ----

World::World()
{
    const char *wish = getenv("ATO_FUZZ_WORLD");
    if (wish && *wish) {
        root = std::string(wish) + "/" + std::to_string(getpid());
        must(mkdir(root.c_str(), 0700) == 0, root.c_str());
    } else {
        root = "/dev/shm/ato-fuzz-XXXXXX";
        must(mkdtemp(root.data()) != nullptr, root.c_str());
    }
    folder = root + "/.ato";
}

World::~World()
{
    std::error_code ignored;
    if (folder_fd >= 0)
        close(folder_fd);
    std::filesystem::remove_all(root, ignored);
}

void World::clear()
{
    std::error_code error;
    if (folder_fd >= 0)
        close(folder_fd);
    for (const auto &entry : std::filesystem::directory_iterator(root))
        std::filesystem::remove_all(entry.path(), error);
    must(mkdir(folder.c_str(), 0755) == 0, folder.c_str());
    folder_fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(folder_fd >= 0, folder.c_str());
}

// Bytes of neither home are ever 0, so that they differ from any zeros.
static unsigned char pattern(uint64_t at, unsigned seed)
{
    return static_cast<unsigned char>(1 + (at * 7 + at / 64 * 13 + seed * 31) % 255);
}

Paired World::make(const std::string &name, uint64_t size, bool holes, unsigned seed)
{
    Paired p;
    p.path = root + "/" + name;
    p.content.resize(size);
    int fd = open(p.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    must(fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) == 0, p.path.c_str());
    for (uint64_t page = 0; page * PAGE < size; page++) {
        if (holes && page > 3 && page < CHUNK_PAGES - 1)
            continue;
        uint64_t at = page * PAGE, n = std::min(PAGE, size - at);
        for (uint64_t i = 0; i < n; i++)
            p.content[at + i] = pattern(at + i, seed);
        must(pwrite(fd, &p.content[at], n, static_cast<off_t>(at)) == static_cast<ssize_t>(n),
             "pwrite");
    }
    struct statx sx;
    must(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &sx) == 0, "statx");
    p.inode = sx.stx_ino;
    p.has_birth = sx.stx_mask & STATX_BTIME;
    if (p.has_birth) {
        p.birth_sec = sx.stx_btime.tv_sec;
        p.birth_nsec = sx.stx_btime.tv_nsec;
    }
    p.mtime = {sx.stx_mtime.tv_sec, sx.stx_mtime.tv_nsec};
    long generation = 0;
    p.has_generation = ioctl(fd, FS_IOC_GETVERSION, &generation) == 0;
    p.generation = p.has_generation ? static_cast<uint32_t>(generation) : 0;
    close(fd);
    return p;
}

// Of the running kernel: in domain process, commits of an earlier boot do not count.
static Bytes boot_id()
{
    Bytes id(16);
    std::string text;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
    text.erase(std::remove(text.begin(), text.end(), '-'), text.end());
    must(text.size() == 32, "boot_id");
    for (size_t i = 0; i < 16; i++)
        id[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
    return id;
}

void World::pair(Paired &p, uint32_t state, uint8_t number, Format format)
{
    p.format = format;
    p.id = {'f', 'u', 'z', 'z', 0, 0, 0, 0, number, 1, 2, 3, 4, 5, 6, 7}; // like those of main.cc
    put(p.id, 4, 4, static_cast<uint64_t>(getpid()));
    p.attribute = "ato1 " + hex(p.id) + " " + p.name() + " .ato";
    p.manifest.assign(MANIFEST, 0);
    for (size_t copy : {size_t{0}, COPY_B}) {
        bool last = copy == COPY_B;
        put(p.manifest, copy + FORMAT, 4, format);
        put(p.manifest, copy + DOMAIN, 4, 4);
        put(p.manifest, copy + STATE, 4, last ? state : static_cast<uint32_t>(IN_USE));
        put(p.manifest, copy + SEQUENCE, 8, last ? 6 : 5);
        uint32_t known = KNOWS_ATTRIBUTE | (p.has_birth ? KNOWS_BIRTH : 0) |
                         (p.has_generation ? KNOWS_GENERATION : 0);
        put(p.manifest, copy + KNOWN, 4, known);
        put(p.manifest, copy + SLOTS, 4, 1024);
        put(p.manifest, copy + SHM_GENERATION, 8, 7);
        const Bytes boot = boot_id();
        std::copy(boot.begin(), boot.end(), p.manifest.begin() + static_cast<long>(copy + BOOT));
    }
    put(p.manifest, SIZE_WORD, 8, p.content.size());
    p.repair(SEAL_A | SEAL_B | OWN | DOOR | SIZES | TIMES);
    put(p.manifest, GROWTH_WORD, 8, 0);
    put(p.manifest, SHRINK_WORD, 8, 0);
    p.reflection.type = S_IFREG;
    p.reflection.size = reflection_bytes(format, p.content.size());
}

// What is where: bits of words.
static void scatter(Paired &p, unsigned seed)
{
    static const uint64_t words[] = {5, ~0ull, 0, 0xaaaaaaaaaaaaaaaaull, 1ull << 63, 0, 2};
    uint64_t pages = pages_of(p.content.size());
    for (uint64_t page = 0; page < pages; page++) {
        if (page >= 7 && page + 3 < pages)
            continue;
        const uint64_t last = p.content.size() % PAGE > SLICE ? 2 : 1; // not beyond the end
        uint64_t word = page + 1 == pages ? last : words[page % 7];
        Bytes r(PAGE);
        for (uint64_t i = 0; i < PAGE; i++)
            r[i] = pattern(page * PAGE + i, seed + 1);
        const uint64_t place = p.place_of(page), at = word_at(p.format, place);
        if (word)
            p.reflection.write(ref_page(p.format, place), r.data(), PAGE);
        p.reflection.set_word(at, word);
        if (p.format == SPARSE)
            p.reflection.set_word(at - 8, page);
    }
    // Entries that say nothing: of a page that has another one, and of none.
    if (p.format == SPARSE) {
        p.reflection.set_word(word_at(SPARSE, 20) - 8, 1);
        p.reflection.set_word(word_at(SPARSE, 21) - 8, 0xdeadbeefdeadbeefull);
    }
}

/*
 * The first two bytes of every input that has a world:
 *   bits 0-1   state: in use, clean, deployed, born
 *   bit 2      with bits 14 and 15 (it takes long): the file has 514 pages and holes, else 6; and some
 *              bytes more
 *   bit 3      it has a guard, at 18, whose mask is the complement, and in state `deployed` the mask lies in the file
 *   bit 4      a growth of it was cut: zeros up to the growth word
 *   bit 5      it has no attribute
 *   bit 6      no slice lies in the reflection
 *   bits 14-15 formats: 0 and 3 both files dense, 1 the file sparse, 2 both sparse
 *   bit 7      copy B is zeros, and copy A says `in use`
 *   bits 8-10  what lies in the place of the manifest: enum Kind
 *   bits 11-13 the same of the reflection
 */
void World::begin(Input &in)
{
    static const uint32_t states[] = {IN_USE, CLEAN, DEPLOYED, IN_USE};
    unsigned shape = in.u16();
    clear();
    bool two_chunks = (shape & TWO_CHUNKS) == TWO_CHUNKS;
    uint64_t size = (two_chunks ? 514 : 6) * PAGE + 100;
    file = make("file", size, two_chunks, 1);
    other = make("other", PAGE + 10, false, 5);
    const unsigned formats = shape >> 14;
    pair(other, CLEAN, 2, formats == 2 ? SPARSE : DENSE);
    scatter(other, 5);
    pair(file, states[shape & 3], 1, formats == 1 || formats == 2 ? SPARSE : DENSE);
    if (!(shape & 64))
        scatter(file, 1);
    if (shape & 8)
        for (size_t copy : {size_t{0}, COPY_B}) {
            put(file.manifest, copy + GUARD_OFFSET, 8, 18);
            put(file.manifest, copy + GUARD_BYTES, 4, 2);
            put(file.manifest, copy + GUARD_PLAIN, 2, 0x0100 | (file.content[18] ^ 0xff));
            put(file.manifest, copy + GUARDED, 2, get(file.content, 18, 2));
        }
    if (shape & 16) {
        put(file.manifest, GROWTH_WORD, 8, size_word(size + 5000));
        file.content.resize(size + 5000);
        must(truncate(file.path.c_str(), static_cast<off_t>(size + 5000)) == 0, "truncate");
    }
    if (shape & 32)
        file.attribute.clear();
    if (shape & 128) {
        std::fill(&file.manifest[COPY_B], &file.manifest[SIZE_WORD], 0);
        put(file.manifest, STATE, 4, IN_USE);
    }
    file.repair(SEAL_A | (shape & 128 ? 0 : SEAL_B));
    auto kinds = static_cast<unsigned>(Kind::KINDS);
    file.manifest_kind = static_cast<Kind>((shape >> 8 & 7) % kinds);
    file.reflection_kind = static_cast<Kind>((shape >> 11 & 7) % kinds);
}

void World::put_file(const Paired &p, const std::string &name, Kind kind, const Image &image)
{
    const char *n = name.c_str();
    int fd;
    switch (kind) {
    case Kind::NONE:
    case Kind::KINDS:
        return;
    case Kind::FOLDER:
        must(mkdirat(folder_fd, n, 0700) == 0, n);
        return;
    case Kind::PIPE:
        must(mkfifoat(folder_fd, n, 0600) == 0, n);
        return;
    case Kind::SYMLINK:
        must(symlinkat(p.path.c_str(), folder_fd, n) == 0, n);
        return;
    case Kind::HARDLINK: { // of what the other file has there
        std::string to = other.name() + (name.find('.') == std::string::npos ? "" : ".manifest");
        must(linkat(folder_fd, to.c_str(), folder_fd, n, 0) == 0, n);
        return;
    }
    case Kind::EMPTY:
    case Kind::FILE:
        fd = openat(folder_fd, n, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        must(fd >= 0, n);
        // Longer than the file system takes: as long as it takes.
        if (kind == Kind::FILE && ftruncate(fd, static_cast<off_t>(image.size)) < 0)
            must(ftruncate(fd, 1ll << 50) == 0, "ftruncate");
        for (const auto &[at, bytes] : image.pages)
            if (kind == Kind::FILE && at < image.size) {
                size_t here = std::min<uint64_t>(PAGE, image.size - at);
                must(pwrite(fd, bytes.data(), here, static_cast<off_t>(at)) ==
                         static_cast<ssize_t>(here),
                     "pwrite");
            }
        close(fd);
    }
}

void World::lay_out()
{
    put_file(other, other.name(), Kind::FILE, other.reflection);
    put_file(other, other.name() + ".manifest", Kind::FILE, image_of(other.manifest));
    put_file(file, file.name(), file.reflection_kind, file.reflection);
    put_file(file, file.name() + ".manifest", file.manifest_kind, file.manifest_image());
    for (const Paired *p : {&file, &other}) {
        if (!p->attribute.empty())
            must(setxattr(p->path.c_str(), "user.ato", p->attribute.data(), p->attribute.size(),
                          0) == 0,
                 "setxattr");
        timespec times[2] = {{0, UTIME_OMIT}, p->mtime};
        must(utimensat(AT_FDCWD, p->path.c_str(), times, 0) == 0, "utimensat");
    }
}

std::map<std::string, Image> World::names() const
{
    std::map<std::string, Image> found;
    DIR *dir = opendir(folder.c_str());
    if (!dir)
        return found;
    while (const dirent *entry = readdir(dir))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            found[entry->d_name] = image_at(folder_fd, entry->d_name);
    closedir(dir);
    return found;
}

} // namespace fuzz
