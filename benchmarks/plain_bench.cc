/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does an atomic msync() cost?
 *
 *   DOMAIN/words/K   a store of 8 bytes in each of K pages (half of a small file) at random places, then a sync
 *   DOMAIN/pages/K   the same with all 4096 bytes of each page
 *   DOMAIN/store, DOMAIN/load   8 bytes at random places of pages that are dirty already
 *   DOMAIN/rewrite/16   words/16, beside the rewrite of the whole file
 *
 * Sides, each with a file of its own:
 *
 *   mmap     mmap(), and msync(MS_SYNC): NOT atomic, a crash leaves some of the pages
 *   plain    a mapping with ATO_PLAIN_STORES, and ato_msync(MS_SYNC)
 *   writev   an ordinary mapping of libato, and one ato_writev() of all changes
 *   rewrite  the file is written to a new one, which is synced and takes its name
 *
 * `ns` is of the stores and the sync together, since the sync of one side leaves page faults to its next stores. `sync_us` is of the
 * sync alone. With --dir on a tmpfs the domains are process and pmem, elsewhere disk.
 */
#include "measure.h"

#include <algorithm>
#include <ato.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace
{

using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;

constexpr size_t PAGE = 4096, WORD = 8, DIRTY_PAGES = 4096, TOUCHES = 200000, MIB = 1 << 20;

std::mt19937_64 dice(60);

/* What one sync makes durable: the same bytes at each of these offsets. */
struct Change {
    std::vector<uint64_t> at, words;

    size_t bytes() const
    {
        return words.size() * WORD;
    }
};

Change random_change(size_t pages, size_t bytes)
{
    const uint64_t all = settings.file_bytes() / PAGE;
    std::vector<bool> taken(all);
    Change c;
    while (c.at.size() < std::min<size_t>(pages, all / 2)) {
        const uint64_t page = dice() % all;
        if (!taken[page])
            c.at.push_back(page * PAGE + dice() % ((PAGE - bytes) / WORD + 1) * WORD);
        taken[page] = true;
    }
    c.words.assign(bytes / WORD, dice());
    return c;
}

/* ---- the sides ---- */

void must(bool done, const char *what)
{
    if (!done)
        fail("%s: %s", what, std::strncmp(what, "ato_", 4) ? std::strerror(errno) : ato_errormsg());
}

class Side
{
  public:
    enum Kind { MMAP, PLAIN, WRITEV, REWRITE };

    Side(Kind kind, int domain) : kind_(kind), path_(bench::folder() + "/" + std::to_string(kind))
    {
        fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        const std::string zeros(MIB, '\0');
        write_all([&](uint64_t) { return zeros.data(); }, fd_);
        ato_options o{};
        o.struct_size = sizeof(o);
        o.domain = domain;
        o.flags = kind == PLAIN ? ATO_PLAIN_STORES : 0;
        const int flags = (kind == REWRITE ? MAP_PRIVATE : MAP_SHARED) | MAP_POPULATE;
        void *at = is_ato() ? ato_mmap_opt(size_, fd_, 0, &o)
                            : mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, fd_, 0);
        must(at != MAP_FAILED, is_ato() ? "ato_mmap_opt" : "mmap");
        base_ = static_cast<char *>(at);
        touch_all();
    }

    ~Side()
    {
        if (is_ato())
            must(ato_munmap(base_, size_, ATO_UNMAP_SPATIAL) == 0, "ato_munmap");
        else
            munmap(base_, size_);
        close(fd_);
    }

    Side(const Side &) = delete;

    uint64_t *word(uint64_t at) const
    {
        return reinterpret_cast<uint64_t *>(base_ + at);
    }

    void store(const Change &c) const
    {
        if (kind_ == WRITEV)
            return; /* all of it is in the sync */
        if (c.bytes() == WORD)
            for (uint64_t at : c.at)
                *word(at) = c.words[0];
        else
            for (uint64_t at : c.at)
                std::memcpy(base_ + at, c.words.data(), c.bytes());
    }

    void sync(const Change &c)
    {
        if (kind_ == MMAP)
            must(msync(base_, size_, MS_SYNC) == 0, "msync");
        if (kind_ == PLAIN)
            must(ato_msync(base_, size_, MS_SYNC) == 0, "ato_msync");
        if (kind_ == WRITEV) {
            std::vector<ato_iovec> parts;
            for (uint64_t at : c.at)
                parts.push_back({base_ + at, c.words.data(), c.bytes()});
            must(ato_writev(parts.data(), static_cast<int>(parts.size()), 0) == 0, "ato_writev");
        }
        if (kind_ == REWRITE)
            rewrite();
    }

    /* What the file holds by now. */
    void read(char *to, uint64_t at, size_t n) const
    {
        if (is_ato())
            must(ato_memcpy(to, base_ + at, n) != nullptr, "ato_memcpy");
        else
            must(pread(fd_, to, n, static_cast<off_t>(at)) == static_cast<ssize_t>(n), "pread");
    }

  private:
    bool is_ato() const
    {
        return kind_ == PLAIN || kind_ == WRITEV;
    }

    template <typename From> void write_all(const From &from, int fd) const
    {
        for (uint64_t at = 0; at < size_; at += MIB)
            must(pwrite(fd, from(at), MIB, static_cast<off_t>(at)) == MIB, "write");
        must(fsync(fd) == 0, "fsync");
    }

    /* Each page has all the memory and the space that it may take. */
    void touch_all()
    {
        constexpr uint64_t AT_ONCE = 16 * MIB;
        for (uint64_t round = 1; round <= 2; round++)
            for (uint64_t at = 0; at < size_;) {
                Change c = {{}, std::vector<uint64_t>(PAGE / WORD, round)};
                for (const uint64_t end = std::min(at + AT_ONCE, size_); at < end; at += PAGE)
                    c.at.push_back(at);
                store(c);
                if (kind_ != REWRITE)
                    sync(c);
            }
    }

    void rewrite()
    {
        const int folder = open(bench::folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int fd = open((path_ + ".new").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        write_all([&](uint64_t at) { return base_ + at; }, fd);
        must(rename((path_ + ".new").c_str(), path_.c_str()) == 0 && fsync(folder) == 0, "rename");
        close(folder);
        close(fd_); /* base_ is a private view of the old file: it has the same bytes */
        fd_ = fd;
    }

    const uint64_t size_ = settings.file_bytes();
    const Kind kind_;
    const std::string path_;
    int fd_;
    char *base_;
};

using Sides = std::vector<std::unique_ptr<Side>>;

/* The files of one kind of case at a time; those of the one before hold the same bytes. */
const Sides &sides_of(int domain, const std::vector<Side::Kind> &kinds)
{
    static Sides sides;
    static std::pair<int, std::vector<Side::Kind>> now;
    if (now == std::make_pair(domain, kinds))
        return sides;
    std::string first(MIB, '\0'), other(MIB, '\0');
    for (uint64_t at = 0; at < settings.file_bytes(); at += MIB)
        for (size_t i = 0; i < sides.size(); i++) {
            sides[i]->read(i ? other.data() : first.data(), at, MIB);
            if (i && first != other)
                fail("the files do not hold the same bytes");
        }
    sides.clear();
    for (Side::Kind kind : kinds)
        sides.push_back(std::make_unique<Side>(kind, domain));
    now = {domain, kinds};
    return sides;
}

/* ---- the cases ---- */

/* In each round all sides make the same changes, each with a sync. */
std::vector<Values> measure(const Sides &sides, uint64_t rounds, size_t syncs, size_t pages,
                            size_t bytes)
{
    bench::Medians medians;
    std::vector<Change> changes(syncs);
    const auto prepare = [&] {
        for (Change &c : changes)
            c = random_change(pages, bytes);
    };
    std::vector<Values> values = bench::interleave(sides.size(), rounds, prepare, [&](size_t side) {
        double ns = 0, sync_ns = 0;
        for (const Change &c : changes) {
            ns += bench::ns_of([&] { sides[side]->store(c); });
            sync_ns += bench::ns_of([&] { sides[side]->sync(c); });
        }
        medians.add(side, "sync_us", sync_ns / static_cast<double>(syncs) / 1e3);
        return (ns + sync_ns) / static_cast<double>(syncs);
    });
    std::vector<Values> more = medians.medians(sides.size());
    for (size_t i = 0; i < sides.size(); i++)
        values[i]["sync_us"] = more[i]["sync_us"];
    return values;
}

/* The same place again and again of pages that are dirty. */
std::vector<Values> touch(const Sides &sides, bool loads)
{
    const Change c = random_change(DIRTY_PAGES, WORD);
    std::vector<uint64_t> places(TOUCHES);
    for (uint64_t &at : places)
        at = c.at[dice() % c.at.size()];
    for (auto &side : sides)
        side->store(c);
    const auto touch_all = [&](size_t side) {
        uint64_t sum = 0;
        const double ns = bench::ns_of([&] {
            for (uint64_t at : places)
                loads ? sum += *sides[side]->word(at) : *sides[side]->word(at) = c.words[0];
        });
        if (loads && sum != c.words[0] * TOUCHES)
            fail("loads see other bytes than stores left");
        return ns / TOUCHES;
    };
    std::vector<Values> values = bench::interleave(
        2, settings.rounds(), [] {}, touch_all);
    for (auto &side : sides)
        side->sync(c);
    return values;
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    const auto add = [&](const std::string &name, const std::vector<std::string> &sides,
                         const std::vector<bench::Goal> &goals,
                         const std::function<std::vector<Values>()> &repeat) {
        all.push_back({name, sides, goals, repeat, [](const std::string &side) {
                           return std::string(side == "mmap" ? "NOT atomic" : "atomic");
                       }});
    };
    const auto add_domain = [&](const std::string &name, int domain) {
        const std::vector<Side::Kind> three = {Side::MMAP, Side::PLAIN, Side::WRITEV};
        for (size_t bytes : {WORD, PAGE})
            for (size_t pages : {1, 16, 256, 4096}) {
                std::vector<bench::Goal> goals;
                if (domain == ATO_DOMAIN_DISK)
                    goals = {{"plain", "ratio", pages == 1 ? 1 / 0.8 : 1.0}};
                if (domain == ATO_DOMAIN_PROCESS)
                    goals = {{"plain", "sync_us", 30 + 3 * static_cast<double>(pages)}};
                const uint64_t syncs = std::max<uint64_t>(settings.batch / pages, 1);
                add(name + (bytes == WORD ? "/words/" : "/pages/") + std::to_string(pages),
                    {"mmap", "plain", "writev"}, goals, [=] {
                        return measure(sides_of(domain, three), settings.rounds(), syncs, pages,
                                       bytes);
                    });
            }
        for (bool loads : {false, true})
            add(name + (loads ? "/load" : "/store"), {"mmap", "plain"}, {{"plain", "ratio", 1.0}},
                [=] { return touch(sides_of(domain, three), loads); });
        add(name + "/rewrite/16", {"plain", "rewrite"}, {}, [=] {
            return measure(sides_of(domain, {Side::PLAIN, Side::REWRITE}), 1, 1, 16, WORD);
        });
    };
    if (bench::medium_name().rfind("tmpfs", 0) != 0) {
        add_domain("disk", ATO_DOMAIN_DISK);
        return all;
    }
    add_domain("process", ATO_DOMAIN_PROCESS);
    add_domain("pmem", ATO_DOMAIN_PMEM);
    return all;
}

/* Of plain: what a page costs, and what a sync costs besides. */
void print_costs(const bench::Rows &rows)
{
    for (const char *name : {"process/words/", "process/pages/", "pmem/words/", "pmem/pages/",
                             "disk/words/", "disk/pages/"})
        for (const char *value : {"ns", "sync_us"}) {
            std::vector<double> us;
            for (const char *pages : {"1", "256", "4096"}) {
                auto row = rows.find(std::string(name) + pages + "/plain");
                if (row != rows.end())
                    us.push_back(row->second.at(value) / (*value == 'n' ? 1e3 : 1));
            }
            const double page = us.size() == 3 ? (us[2] - us[1]) / (4096 - 256) : 0;
            if (us.size() == 3)
                std::printf("%splain, %s: %.2f us a page, %.1f us besides\n", name,
                            *value == 'n' ? "with the stores" : "the sync alone", page,
                            us[0] - page);
        }
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(
        argc, argv,
        {"Stores to a mapped file, and a sync. Guarantees differ: mmap is NOT atomic.",
         {1024, 320, 32},
         [] { return settings.file_bytes() * 7 + (64ull << 20); },
         cases,
         [] { sides_of(ATO_DOMAIN_AUTO, {}); },
         print_costs});
}
