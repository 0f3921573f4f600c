/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does an atomic write cost with libato? See libato.h. Reads gather, so that looking at the
 * content deploys nothing and the bitmaps stay as the writes left them.
 */
#include "libato.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bench
{

namespace
{

class LibatoMapping final : public Libato
{
  public:
    LibatoMapping(Domain domain, size_t file_bytes) : domain_(domain), bytes_(file_bytes)
    {
        /* A folder of its own: what libato keeps beside the file goes with it. */
        folder_ = folder() + "/libato-" + domain_name(domain);
        std::string path = folder_ + "/file";
        if (mkdir(folder_.c_str(), 0700) != 0)
            fail("cannot make %s: %s", folder_.c_str(), std::strerror(errno));
        int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(file_bytes)) != 0)
            fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
        struct ato_options options = {};
        options.struct_size = sizeof(options);
        options.read_policy = ATO_READ_GATHER;
        options.domain = domain == Domain::pmem ? ATO_DOMAIN_PMEM : ATO_DOMAIN_PROCESS;
        void *base = ato_mmap_opt(file_bytes, fd, 0, &options);
        if (base == MAP_FAILED)
            fail("ato_mmap_opt: %s", ato_errormsg());
        base_ = static_cast<char *>(base);
        close(fd);
        if (stat().domain != options.domain)
            fail("the mapping is not in the %s domain", domain_name(domain));
    }

    ~LibatoMapping() override
    {
        if (ato_munmap(base_, bytes_, ATO_UNMAP_FAST) != 0)
            fail("ato_munmap: %s", ato_errormsg());
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    const char *name() const override
    {
        return "libato";
    }

    const char *guarantee() const override
    {
        return domain_ == Domain::pmem ? "atomic and durable" : "atomic; survives the process";
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++)
            if (!ato_memcpy(base_ + w->offset, source + w->source, w->bytes))
                fail("ato_memcpy: %s", ato_errormsg());
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        if (!ato_memcpy(dst, base_ + offset, n))
            fail("ato_memcpy: %s", ato_errormsg());
    }

    struct ato_stat stat() const override
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        if (ato_stat(base_, &st) != 0)
            fail("ato_stat: %s", ato_errormsg());
        return st;
    }

  private:
    Domain domain_;
    std::string folder_;
    size_t bytes_;
    char *base_;
};

} // namespace

std::unique_ptr<Libato> make_libato(Domain domain, size_t file_bytes)
{
    return std::make_unique<LibatoMapping>(domain, file_bytes);
}

} // namespace bench
