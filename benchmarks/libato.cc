/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of an atomic write or a read with libato. See libato.h.
 */
#include "libato.h"

#include "measure.h"
#include "world.h"

#include "reflection/format/layout.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bench
{

AtoFile::AtoFile(size_t bytes, bool allocated) : bytes_(bytes)
{
    static unsigned number;
    folder_ = folder() + "/libato-" + std::to_string(number++);
    std::string path = folder_ + "/file";
    if (mkdir(folder_.c_str(), 0700) != 0)
        fail("cannot make %s: %s", folder_.c_str(), std::strerror(errno));
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    auto size = static_cast<off_t>(bytes);
    if (fd_ < 0 || ftruncate(fd_, size) != 0)
        fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
    if (int error = allocated ? posix_fallocate(fd_, 0, size) : 0)
        fail("no space for %s: %s", path.c_str(), std::strerror(error));
}

AtoFile::~AtoFile()
{
    close(fd_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void AtoFile::map(Domain domain, int read_policy)
{
    struct ato_options o = {};
    o.struct_size = sizeof(o);
    o.read_policy = read_policy;
    o.domain = domain == Domain::pmem ? ATO_DOMAIN_PMEM : ATO_DOMAIN_PROCESS;
    void *base = ato_mmap_opt(bytes_, fd_, 0, &o);
    if (base == MAP_FAILED)
        fail("ato_mmap_opt: %s", ato_errormsg());
    base_ = static_cast<char *>(base);
}

void AtoFile::map_to_read()
{
    const int fd = open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDONLY | O_CLOEXEC);
    void *base = fd < 0 ? MAP_FAILED : ato_mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        fail("cannot map a file to read it: %s", fd < 0 ? std::strerror(errno) : ato_errormsg());
    close(fd);
    base_ = static_cast<char *>(base);
}

void AtoFile::unmap(int mode, unsigned threads)
{
    struct ato_unmap_options o = {};
    o.struct_size = sizeof(o);
    o.mode = mode;
    o.threads = threads;
    if (ato_munmap_opt(base_, bytes_, &o) != 0)
        fail("ato_munmap_opt: %s", ato_errormsg());
}

void AtoFile::fill_at_random(World *world)
{
    const auto write = [&](uint64_t offset, uint64_t from, size_t n) {
        if (!ato_memcpy(at(offset), world->source() + from, n))
            fail("ato_memcpy: %s", ato_errormsg());
    };
    for (uint64_t page = 0; page < bytes_ / PAGE_BYTES; page++) {
        if (page % 4096 == 0)
            stop_if_asked();
        write(page * PAGE_BYTES, 0, PAGE_BYTES);
        const uint64_t mask = world->random()();
        for (uint64_t slice = 0; slice < PAGE_SLICES; slice++)
            if (mask >> slice & 1)
                write(page * PAGE_BYTES + slice * SLICE_BYTES, slice * SLICE_BYTES, SLICE_BYTES);
    }
}

struct ato_stat AtoFile::stat() const
{
    struct ato_stat st = {};
    st.struct_size = sizeof(st);
    if (ato_stat(base_, &st) != 0)
        fail("ato_stat: %s", ato_errormsg());
    return st;
}

bool AtoFile::has_reflection() const
{
    std::error_code none;
    for (const auto &entry : std::filesystem::directory_iterator(folder_ + "/.ato", none))
        if (entry.path().filename() != "README")
            return true;
    return false;
}

uint64_t AtoFile::reflection_bytes() const
{
    uint64_t blocks = 0;
    std::error_code none;
    for (const auto &entry : std::filesystem::directory_iterator(folder_ + "/.ato", none)) {
        struct stat st;
        if (::stat(entry.path().c_str(), &st) != 0)
            fail("cannot look at %s: %s", entry.path().c_str(), std::strerror(errno));
        blocks += static_cast<uint64_t>(st.st_blocks);
    }
    return blocks * 512;
}

namespace
{

class LibatoMapping final : public Libato
{
  public:
    LibatoMapping(const LibatoOptions &options, size_t file_bytes)
        : options_(options), file_(file_bytes, false)
    {
        file_.map(options.domain, options.read_policy);
    }

    ~LibatoMapping() override
    {
        file_.unmap(ATO_UNMAP_FAST);
    }

    const char *name() const override
    {
        return options_.name;
    }

    const char *guarantee() const override
    {
        return options_.domain == Domain::pmem ? "atomic and durable"
                                               : "atomic; survives the process";
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++)
            if (!ato_memcpy_opt(file_.at(w->offset), source + w->source, w->bytes,
                                options_.write_flags))
                fail("ato_memcpy_opt: %s", ato_errormsg());
    }

    void write_at_once(const char *source, const Write *writes, size_t count) override
    {
        ato_tx *tx = ato_tx_begin(0);
        if (!tx)
            fail("ato_tx_begin: %s", ato_errormsg());
        for (const Write *w = writes; w < writes + count; w++)
            if (!ato_tx_memcpy(tx, file_.at(w->offset), source + w->source, w->bytes,
                               options_.write_flags))
                fail("ato_tx_memcpy: %s", ato_errormsg());
        if (ato_tx_commit(tx) != 0)
            fail("ato_tx_commit: %s", ato_errormsg());
    }

    void fill(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++)
            if (!ato_memcpy(file_.at(w->offset), source + w->source, w->bytes))
                fail("ato_memcpy: %s", ato_errormsg());
    }

    void deploy() override
    {
        if (ato_deploy(file_.at(0), file_.bytes()) != 0)
            fail("ato_deploy: %s", ato_errormsg());
    }

    void map_in_child() override
    {
        file_.map(options_.domain, options_.read_policy);
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        if (!ato_memcpy(dst, file_.at(offset), n))
            fail("ato_memcpy: %s", ato_errormsg());
    }

    struct ato_stat stat() const override
    {
        return file_.stat();
    }

  private:
    LibatoOptions options_;
    AtoFile file_;
};

} // namespace

void Libato::check_bitmaps_at_random() const
{
    struct ato_stat st = stat();
    uint64_t slices = st.size / SLICE_BYTES, reflected = st.slices_in_reflection;
    if (reflected < slices * 2 / 5 || reflected > slices * 3 / 5)
        fail("the bitmaps are not at random: %" PRIu64 " of %" PRIu64 " slices reflected",
             reflected, slices);
}

std::unique_ptr<Libato> make_libato(const LibatoOptions &options, size_t file_bytes)
{
    return std::make_unique<LibatoMapping>(options, file_bytes);
}

} // namespace bench
