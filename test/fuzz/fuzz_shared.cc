// SPDX-License-Identifier: BSD-3-Clause
//
// A process stores any values to the object of page states while a file is mapped. A process that may write
// the object may write the file: the bytes of that file may become anything. But the other file, mapped by
// the same process, and all other memory must not change. Each view of the library's has address space around
// it that no access may touch, so that an access that leaves its view by less than a TiB is a fault.
//
// Such a process may also make others wait, and kill them with SIGBUS by cutting the object: both are
// documented (lib/file/shared.h), and not fuzzed. Stores to a holder or a version are; a call that waits for
// such a page goes on here, by the hook of the wait. And the original and its reflection are as long as their
// views, and so is the object, so that a size in that range meets bytes.
//
// Input: u8 uses (bits 0-1 domain, 2-3 policy (% 3), 4 sparse), then steps, u8 what, and by what % 16:
//   0-5      u32 place, u64 value   stores 8 bytes: place % 8 tells where, the rest how far in
//   6, 7     the same, 4 bytes
//   8        u32 offset, u16 n      reads
//   9        u32 offset, u16 n, u8  writes
//   10       u32 offset, u16 n      deploys
//   11       u32 size               grows
//   12       u8                     unmaps, fast or spatially, and maps again
//   13       ato_stat, ato_msync, a guard
//   14       u32 offset, u16 n      copies from the file to the other one, which then has the bytes read
//   15       u32 offset, u16 n      and back
#include "world.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ato_engine.h"

extern "C" {
#include "lib/file/shared.h"
#include "reflection/media/seam.h"

void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset);
int __real_munmap(void *at, size_t n);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset);
int __wrap_munmap(void *at, size_t n);
}

namespace fuzz
{

namespace
{

// ---- views and what is around them ----

constexpr size_t AROUND = 1ull << 40;

struct View {
    char *base;
    size_t n;
};
std::vector<View> views;

size_t whole(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

void *surrounded(size_t n, int prot, int flags, int fd, off64_t offset)
{
    void *raw = __real_mmap64(nullptr, whole(n) + 2 * AROUND, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        wrong("no address space");
    char *base = static_cast<char *>(raw) + AROUND;
    if (__real_mmap64(base, n, prot, flags | MAP_FIXED, fd, offset) == MAP_FAILED) {
        int saved = errno;
        __real_munmap(raw, whole(n) + 2 * AROUND);
        errno = saved;
        return MAP_FAILED;
    }
    views.push_back({base, n});
    return base;
}

// ---- waiting ----

// Called again and again by a thread that waits for a page: the page is released.
void let_through(enum seam_point point, const void *about)
{
    static unsigned long times;
    if (point != SEAM_WAIT || ++times % 16)
        return;
    auto *s = static_cast<page_state *>(const_cast<void *>(about));
    __atomic_store_n(&s->holder, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&s->version, s->version | 1, __ATOMIC_RELEASE);
}

// ---- the two files ----

constexpr uint64_t MOST = 64 * PAGE;
// The object's view: header, slots, batches, counters, the program's own memory, directory of 2^26 groups, groups;
// and if the file is sparse, places of their pages, and an index.
constexpr uint64_t GROUPS_AT = SHARED_DIRECTORY_AT + (4ull << 26),
                   DENSE_OBJECT = GROUPS_AT + (128ull << 26), PLACES_AT = DENSE_OBJECT,
                   INDEX_AT = PLACES_AT + (4ull << 28), SPARSE_OBJECT = INDEX_AT + 16 * PLACES;

ato_options options_of(unsigned uses)
{
    static const int domains[] = {ATO_DOMAIN_AUTO, ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS,
                                  ATO_DOMAIN_EADR};
    ato_options o = {};
    o.struct_size = sizeof(o);
    o.domain = domains[uses & 3];
    o.read_policy = ATO_READ_LAZY + static_cast<int>((uses >> 2 & 3) % 3);
    o.max_size = MOST;
    return o;
}

struct File {
    Paired paired;
    char *base = nullptr;
    size_t length = 0;
    std::string folder;

    bool map(const ato_options &o)
    {
        int fd = open(paired.path.c_str(), O_RDWR | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
            wrong("the harness itself: %s", paired.path.c_str());
        length = static_cast<size_t>(st.st_size);
        void *at = ato_mmap_opt(length, fd, 0, &o);
        close(fd);
        base = at == MAP_FAILED ? nullptr : static_cast<char *>(at);
        return base != nullptr;
    }
};

class Scene
{
  public:
    explicit Scene(Input &in)
    {
        static World w;
        uses_ = in.u8();
        sparse_ = uses_ & 16;
        const uint8_t shape[] = {0, static_cast<uint8_t>(sparse_ ? SPARSE_FILE >> 8 : 0)};
        Input plain(shape, sizeof(shape));
        w.begin(plain);
        w.lay_out();
        a_.paired = w.file;
        b_.paired = w.other;
        world_ = &w;
        if (!a_.map(options_of(uses_)) || !b_.map(options_of(uses_)))
            wrong("cannot be mapped: %s", ato_errormsg());
        content_ = b_.paired.gathered(b_.length, b_.paired.format);
        size_ = a_.length;
        attach();
    }
    ~Scene()
    {
        seam_hook = nullptr;
        check("at the end");
        detach();
        if (a_.base) {
            restore_size();
            unmap(ATO_UNMAP_FAST);
        }
        if (ato_munmap(b_.base, b_.length, ATO_UNMAP_SPATIAL) < 0)
            wrong("the other file cannot be unmapped: %s", ato_errormsg());
        if (read_all(b_.paired.path) != content_)
            wrong("the other file is plain, and not what it was");
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    void step(Input &in);
    bool there() const
    {
        return a_.base != nullptr;
    }

  private:
    void attach();
    void detach();
    void restore_size();
    void unmap(int mode);
    void poke(Input &in, unsigned width);
    void check(const char *when);
    void remap(int mode);
    void across(uint64_t offset, size_t n, bool back);
    uint64_t place(uint32_t told) const;

    World *world_;
    File a_, b_;
    Bytes content_; // of b
    unsigned uses_;
    bool sparse_;
    uint64_t size_;
    uint64_t object_bytes_ = 0;
    char *object_ = nullptr;
    int object_fd_ = -1;
};

// Opens the object by its name, as a process may that can write the file; and makes it and both files as long
// as their views.
void Scene::attach()
{
    Image manifest = image_at(world_->folder_fd, a_.paired.name() + ".manifest");
    Holding h = holding(manifest.bytes(0, MANIFEST));
    char name[80] = "/ato-";
    for (size_t i = 0; i < 16; i++)
        snprintf(name + 5 + 2 * i, 3, "%02x", h.record[ID + i]);
    snprintf(name + 37, 30, "-%llx", static_cast<unsigned long long>(h.field(SHM_GENERATION, 8)));
    object_bytes_ = sparse_ ? SPARSE_OBJECT : DENSE_OBJECT;
    object_fd_ = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (object_fd_ < 0)
        wrong("no object %s", name);
    object_ = static_cast<char *>(
        __real_mmap64(nullptr, object_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, object_fd_, 0));
    if (object_ == MAP_FAILED)
        wrong("the object cannot be mapped");
    std::string reflection = world_->folder + "/" + a_.paired.name();
    // Sparse: a chunk more than may be used.
    const uint64_t reflection_view = sparse_
                                         ? (PLACES / entries_of(SPARSE) + 1) * chunk_bytes(SPARSE)
                                         : reflection_bytes(DENSE, MOST);
    if (ftruncate(object_fd_, static_cast<off_t>(object_bytes_)) < 0 ||
        truncate(a_.paired.path.c_str(), MOST) < 0 ||
        truncate(reflection.c_str(), static_cast<off_t>(reflection_view)) < 0)
        wrong("the harness itself: truncate");
}

void Scene::detach()
{
    if (!object_)
        return;
    __real_munmap(object_, object_bytes_);
    close(object_fd_);
    object_ = nullptr;
}

// Restores the true size, in the object and of the file, so that it can be unmapped.
void Scene::restore_size()
{
    Image manifest = image_at(world_->folder_fd, a_.paired.name() + ".manifest");
    uint64_t size;
    if (!size_of(manifest.word(SIZE_WORD), &size))
        wrong("the size word was damaged");
    if (truncate(a_.paired.path.c_str(), static_cast<off_t>(size)) < 0)
        wrong("the harness itself: truncate");
}

// Into the header, the first slots, counters of the first, the directory, the first groups, or any
// existing place. Sparse: less often into header and directory, and into places and index.
uint64_t Scene::place(uint32_t told) const
{
    const uint64_t directory = SHARED_DIRECTORY_AT;
    uint64_t far = told >> 3;
    const uint64_t of_processes[] = {SHARED_SLOTS_AT, SHARED_READY_AT, SHARED_THREADS_AT};
    switch (told & 7) {
    case 1:
        if (sparse_)
            return PLACES_AT + far % 512;
        [[fallthrough]];
    case 0:
        return far % 256;
    case 2:
        return of_processes[far / 128 % 3] + far % 128;
    case 4:
        if (sparse_)
            return INDEX_AT + far % 8192;
        [[fallthrough]];
    case 3:
        return directory + far % 24 * 4;
    case 5:
    case 6:
        return GROUPS_AT + far % 512;
    default:
        return far % object_bytes_;
    }
}

void Scene::poke(Input &in, unsigned width)
{
    uint64_t at = place(in.u32()), value = in.u64();
    if (at + width > object_bytes_)
        return;
    memcpy(object_ + at, &value, width);
}

void Scene::check(const char *when)
{
    Bytes read(content_.size());
    if (!ato_memcpy(read.data(), b_.base, read.size()))
        wrong("%s: the other file cannot be read: %s", when, ato_errormsg());
    if (read != content_)
        wrong("%s: the other file reads as something else", when);
}

// The stores may prevent the file from becoming plain, and from being left in order; never from being
// unmapped.
void Scene::unmap(int mode)
{
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    bool gone = ato_munmap(a_.base, a_.length, mode) == 0;
    gone = gone || ato_munmap(a_.base, a_.length, ATO_UNMAP_FAST) == 0;
    if (!gone && (ato_stat(a_.base, &st) == 0 || errno != EINVAL))
        wrong("cannot be unmapped: %s", ato_errormsg());
    a_.base = nullptr;
}

void Scene::remap(int mode)
{
    detach();
    restore_size();
    unmap(mode);
    if (!a_.map(options_of(uses_))) {
        if (!*ato_errormsg())
            wrong("refused without a sentence");
        return;
    }
    attach();
}

// The destination gets the bytes that a read of the source returns.
void Scene::across(uint64_t offset, size_t n, bool back)
{
    n = std::min<size_t>(n, content_.size());
    if (n == 0)
        return;
    if (back) {
        (void)ato_memcpy(a_.base + offset, b_.base, n);
    } else if (ato_memcpy(b_.base, a_.base + offset, n)) {
        Bytes now(n);
        if (!ato_memcpy(now.data(), b_.base, n))
            wrong("the other file cannot be read: %s", ato_errormsg());
        std::copy(now.begin(), now.end(), content_.begin());
    }
}

void Scene::step(Input &in)
{
    unsigned what = in.u8() % 16;
    if (what < 8) {
        poke(in, what < 6 ? 8 : 4);
        return;
    }
    uint64_t offset = what == 12 || what == 13 ? 0 : in.u32() % MOST;
    size_t n = what == 12 || what == 13 || what == 11 ? 0 : in.u16();
    Bytes bytes(n);
    switch (what) {
    case 8:
        (void)ato_memcpy(bytes.data(), a_.base + offset, n);
        break;
    case 9:
        std::fill(bytes.begin(), bytes.end(), in.u8());
        (void)ato_memcpy(a_.base + offset, bytes.data(), n);
        break;
    case 10:
        (void)ato_deploy(a_.base + offset, n);
        break;
    case 11:
        restore_size(); // else another process has made it longer
        (void)ato_ftruncate(a_.base, static_cast<off_t>(offset));
        if (truncate(a_.paired.path.c_str(), MOST) < 0)
            wrong("the harness itself: truncate");
        break;
    case 12:
        remap(in.u8() & 1 ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST);
        break;
    case 13: {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        (void)ato_stat(a_.base, &st);
        (void)ato_msync(a_.base, PAGE, MS_SYNC);
        (void)ato_set_guard(a_.base, 18, "\1\1", 2);
        break;
    }
    default:
        across(offset, n, what == 15);
    }
    check("after a step");
}

Seed &poke(Seed &s, uint64_t region, uint64_t far, uint64_t value)
{
    return s.u8(0).u32(region | far << 3).u64(value);
}

Seed &use_all(Seed &s)
{
    s.u8(8).u32(0).u16(0x7fff).u8(9).u32(100).u16(20000).u8(0x77).u8(10).u32(0).u16(0x6000);
    return s.u8(14).u32(50).u16(5000).u8(15).u32(4000).u16(5000).u8(11).u32(40000).u8(13);
}

} // namespace

std::vector<Seed> seeds()
{
    std::vector<Seed> all;
    auto add = [&all](const std::string &name, uint64_t region, uint64_t far, uint64_t value) {
        for (unsigned uses : {0u, 6u}) {
            Seed s(name + (uses ? "-gather" : ""));
            s.u8(uses);
            use_all(s);
            poke(s, region, far, value);
            use_all(s).u8(12).u8(0);
            poke(s, region, far, value);
            all.push_back(use_all(s).u8(12).u8(1));
        }
    };
    auto sparse = [&all](const std::string &name, uint64_t region, uint64_t far, uint64_t value,
                         unsigned uses = 0x16) {
        Seed s("sparse-" + name);
        s.u8(uses);
        poke(s, region, far, value);
        use_all(s);
        poke(s, region, far, value);
        use_all(s).u8(12).u8(0);
        poke(s, region, far, value);
        all.push_back(use_all(s).u8(12).u8(1));
    };
    for (size_t at : {0, 8}) {
        const std::string n = std::to_string(at);
        sparse("places-" + n + "-none", 1, at, 0);
        sparse("places-" + n + "-most", 1, at, UINT64_MAX);
        sparse("places-" + n + "-last", 1, at, PLACES << 32 | PLACES);
        sparse("places-" + n + "-same", 1, at, 5ull << 32 | 5, 0x10);
        sparse("state-" + n + "-most", 5, at, UINT64_MAX);
    }
    for (size_t at : {offsetof(shared_header, next_place)}) {
        const std::string n = std::to_string(at);
        sparse("header-" + n + "-most", 0, at, UINT64_MAX);
        sparse("header-" + n + "-none", 0, at, 0, 0x10);
        sparse("header-" + n + "-last", 0, at, PLACES - 1);
    }
    sparse("index-most", 4, 0, UINT64_MAX);
    sparse("format", 0, offsetof(shared_header, format), 0);
    const size_t header[] = {
        offsetof(shared_header, capacity),   offsetof(shared_header, groups_at),
        offsetof(shared_header, next_group), offsetof(shared_header, groups_allocated),
        offsetof(shared_header, size),       offsetof(shared_header, poisoned)};
    for (size_t at : header) {
        add("header-" + std::to_string(at) + "-most", 0, at, UINT64_MAX);
        add("header-" + std::to_string(at) + "-none", 0, at, 0);
        add("header-" + std::to_string(at) + "-some", 0, at, 1 << 20);
    }
    add("size-past-a-word", 0, offsetof(shared_header, size), 1ull << 40);
    add("directory-far", 3, 0, 0x7fffffffffffffffull);
    add("directory-most", 3, 0, UINT64_MAX);
    add("directory-none", 3, 0, 0);
    add("directory-one-twice", 3, 0, 0x0000000100000001ull);
    for (size_t at = 0; at < 32; at += 8) {
        add("state-" + std::to_string(at), 5, at, 0x5555555555555555ull);
        add("state-" + std::to_string(at) + "-most", 5, at, UINT64_MAX);
    }
    return all;
}

} // namespace fuzz

void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
    if (at || fd < 0) // a place that is reserved already; reserving
        return __real_mmap64(at, n, prot, flags, fd, offset);
    return fuzz::surrounded(n, prot, flags, fd, offset);
}

int __wrap_munmap(void *at, size_t n)
{
    for (auto view = fuzz::views.begin(); view != fuzz::views.end(); ++view)
        if (view->base == at && view->n == n) {
            fuzz::views.erase(view);
            return __real_munmap(static_cast<char *>(at) - fuzz::AROUND,
                                 fuzz::whole(n) + 2 * fuzz::AROUND);
        }
    return __real_munmap(at, n);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    ato_set_log([](void *, int, const char *) {}, nullptr);
    Input in(bytes, n);
    Scene scene(in);
    seam_hook = let_through;
    for (int i = 0; in.more() && i < 64 && scene.there(); i++)
        scene.step(in);
    return 0;
}
