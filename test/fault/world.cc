// SPDX-License-Identifier: BSD-3-Clause
#include "world.h"

#include "support/mapped.h"

#include <algorithm>
#include <filesystem>
#include <ostream>

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

void PrintTo(const Scene &scene, std::ostream *out)
{
    *out << scene.name;
}

} // namespace fault
