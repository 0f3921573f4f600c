/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ato: libato, by its public calls.
 *
 *   ato          its defaults: a read deploys the page (lazy)
 *   ato-gather   a read takes each slice from where it is, and deploys nothing
 *   ato-eager    a write deploys what it wrote
 *   ato-lanes    in domain process, where a commit of several pages is a hardware transaction if the CPU has them: without
 *   ato-rtm      in domain pmem, where it is not: with, on a machine that flushes its caches at a power cut (domain eadr)
 *
 * On a disk a commit goes through a log, and the policies and paths are all one: ato.
 *
 * A thread's unit of several writes is a transaction, which begins with its first write. Threads whose units write to the same page
 * wait for one another; if they wait in a circle, one of them fails.
 */
#include "engines.h"
#include "per_thread.h"

#include "../bench.h"

extern "C" {
#include "reflection/media/persist.h"
}

#include <ato.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr uint64_t WAIT_MS = 10000;

struct Variant {
    int read_policy = ATO_READ_LAZY;
    unsigned flags = 0;
    bool eadr = false;
};

class Ato final : public Base<Ato>
{
  public:
    Ato(const Options &options, const Variant &variant)
        : bytes_(options.bytes), each_(options.unit == Unit::write),
          unmap_(options.plain_at_end ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST)
    {
        const std::string path = options.folder + "/file";
        const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            bench::fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
        struct ato_options o = {};
        o.struct_size = sizeof(o);
        o.read_policy = variant.read_policy;
        o.flags = variant.flags;
        o.domain = options.domain == Domain::disk      ? ATO_DOMAIN_DISK
                   : options.domain == Domain::process ? ATO_DOMAIN_PROCESS
                   : variant.eadr                      ? ATO_DOMAIN_EADR
                                                       : ATO_DOMAIN_PMEM;
        if (options.domain == Domain::disk) {
            o.log_bytes = options.log_bytes;
            o.log_dir = options.log_folder.empty() ? nullptr : options.log_folder.c_str();
        }
        void *base = ato_mmap_opt(bytes_, fd, 0, &o);
        if (base == MAP_FAILED)
            bench::fail("ato_mmap_opt: %s", ato_errormsg());
        close(fd);
        base_ = static_cast<char *>(base);
        if (ato_size(base_) < static_cast<off_t>(bytes_) &&
            ato_ftruncate(base_, static_cast<off_t>(bytes_)) != 0)
            bench::fail("ato_ftruncate: %s", ato_errormsg());
    }

    ~Ato() override
    {
        if (ato_tx *open = open_.mine())
            ato_tx_abort(open);
        if (ato_munmap(base_, bytes_, unmap_) != 0)
            bench::fail("ato_munmap: %s", ato_errormsg());
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        if (!(each_ ? ato_memcpy(base_ + offset, src, n)
                    : ato_tx_memcpy(transaction(), base_ + offset, src, n, 0)))
            bench::fail("ato: %s", ato_errormsg());
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        ato_tx *open = each_ ? nullptr : open_.mine();
        if (!(open ? ato_tx_memcpy(open, dst, base_ + offset, n, 0)
                   : ato_memcpy(dst, base_ + offset, n)))
            bench::fail("ato: %s", ato_errormsg());
    }

    void sync() override
    {
        ato_tx *&open = open_.mine();
        if (open && ato_tx_commit(open) != 0)
            bench::fail("ato_tx_commit: %s", ato_errormsg());
        open = nullptr;
    }

  private:
    ato_tx *transaction()
    {
        ato_tx *&open = open_.mine();
        if (!open) {
            struct ato_tx_options o = {};
            o.struct_size = sizeof(o);
            o.flags = ATO_TX_READ_COMMITTED;
            o.wait_ms = WAIT_MS;
            open = ato_tx_begin_opt(&o);
            if (!open)
                bench::fail("ato_tx_begin_opt: %s", ato_errormsg());
        }
        return open;
    }

    char *base_;
    size_t bytes_;
    bool each_;
    int unmap_;
    PerThread<ato_tx *> open_;
};

template <int policy, unsigned flags = 0, bool eadr = false>
std::unique_ptr<Engine> map(const Options &options)
{
    return std::make_unique<Ato>(options, Variant{policy, flags, eadr});
}

bool always(const Options &)
{
    return true;
}

bool not_on_disk(const Options &options)
{
    return options.domain != Domain::disk;
}

Promise atomic(const Options &)
{
    return Promise::atomic;
}

} // namespace

const Kind ATO = {"ato", "libato with its defaults: reads deploy", always, atomic,
                  map<ATO_READ_LAZY>};

const Kind ATO_GATHER = {"ato-gather", "libato, reads deploy nothing", not_on_disk, atomic,
                         map<ATO_READ_GATHER>};

const Kind ATO_EAGERLY = {"ato-eager", "libato, each write deploys what it wrote", not_on_disk,
                          atomic, map<ATO_READ_EAGER>};

const Kind ATO_LANES = {
    "ato-lanes",
    "libato without hardware transactions, where ato has them",
    [](const Options &o) { return o.domain == Domain::process && persist_rtm_works(); },
    atomic,
    map<ATO_READ_LAZY, ATO_NO_RTM>,
};

const Kind ATO_RTM = {
    "ato-rtm",
    "libato with hardware transactions, for machines that flush their caches at a power cut (eADR)",
    [](const Options &o) { return o.domain == Domain::pmem && persist_rtm_works(); },
    atomic,
    map<ATO_READ_LAZY, 0, true>,
};

} // namespace engine
