// SPDX-License-Identifier: BSD-3-Clause
#include "world.h"

#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <stdexcept>

#include <sys/mman.h>

namespace fault
{

using namespace support;

World::World(const std::string &below, int domain, size_t bytes)
    : dir(below), file(dir / "file"), beside(dir / "beside"), options(), before(pattern(bytes, 1)),
      after(before), near(pattern(3 * 4096, 9))
{
    options.struct_size = sizeof(options);
    options.domain = domain;
    options.read_policy = ATO_READ_GATHER;
    options.flags = ATO_NO_RTM;
    write_file(file, before);
    write_file(beside, near);
    descriptor = std::make_unique<Fd>(file);
}

bool World::map()
{
    // Not by a call of this program's own: it might be the one that has to fail.
    length = mapped_bytes ? mapped_bytes : std::filesystem::file_size(file);
    void *at = ato_mmap_opt(length, *descriptor, 0, &options);
    base = at == MAP_FAILED ? nullptr : static_cast<char *>(at);
    return base;
}

bool World::map_beside()
{
    Fd fd(beside);
    void *at = ato_mmap_opt(near.size(), fd, 0, &options);
    other = at == MAP_FAILED ? nullptr : static_cast<char *>(at);
    return other;
}

bool World::write(size_t at, const Bytes &bytes, unsigned flags)
{
    return ato_memcpy_opt(base + at, bytes.data(), bytes.size(), flags);
}

bool World::unmap(int mode, unsigned threads)
{
    ato_unmap_options o = {};
    o.struct_size = sizeof(o);
    o.mode = mode;
    o.threads = threads;
    return ato_munmap_opt(base, length, &o) == 0;
}

bool World::is_mapped() const
{
    return base && ato_memcpy(base, base, 0) == base;
}

Bytes World::news(size_t at, size_t n, unsigned seed)
{
    Bytes bytes = pattern(n, seed);
    std::copy(bytes.begin(), bytes.end(), after.begin() + static_cast<long>(at));
    return bytes;
}

void another(const std::function<int()> &what, int status)
{
    int is = in_child(what);
    if (is != status)
        throw std::runtime_error("the past: status " + std::to_string(is));
}

void killed_in_a_write(World &w, size_t at, size_t bytes, int n)
{
    const Bytes all = w.news(at, bytes, 4);
    const bool logged = w.options.domain == ATO_DOMAIN_DISK;
    const char *op = logged ? "scatter" : "store_word",
               *site = logged ? "commit/show." : "commit/commit.";
    another(
        [&] {
            if (!w.map())
                return 1;
            PersistFaults faults;
            faults.before = [&](const PersistCall &c) {
                bool counts = !strcmp(c.op, op) && strstr(c.site, site);
                return counts && --n == 0 ? DIE : GO_ON;
            };
            w.write(at, all);
            return 2;
        },
        CUT);
    w.before = w.after;
}

void PrintTo(const Scene &scene, std::ostream *out)
{
    *out << scene.name;
}

} // namespace fault
