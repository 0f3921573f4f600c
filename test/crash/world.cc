// SPDX-License-Identifier: BSD-3-Clause
#include "world.h"

#include "reflection/pairing/birth.h"
#include "standins.h"
#include "use_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crash
{

World::World(const std::string &folder, const std::vector<uint64_t> &sizes, uint64_t seed,
             bool is_sparse)
    : sparse(is_sparse), files(folder, sizes, seed), recorder(files)
{
    setenv("ATO_FORMAT", sparse ? "sparse" : "dense", 1); // for SQLite's files too
    setenv("ATO_RELAXED_MS", "3600000", 1);               // no thread syncs meanwhile
    standins::set_random(seed);
    birth_ring_bytes = 4096; // so that logs are used up
}

World::~World()
{
    die();
}

void World::stage(const Disk &disk, After after)
{
    files.lay_out(disk);
    if (after == After::PowerCut) {
        recorder.forget_objects();
        standins::set_boot(standins::get_boot() + 1);
    }
}

void World::stage(const Disk &disk, After after, uint64_t boot)
{
    recorder.forget_objects();
    standins::set_boot(boot);
    stage(disk, after);
}

static void *map_original(const Files::Original &f, int fd, int domain, int policy, unsigned flags)
{
    struct ato_options o = {};
    o.struct_size = sizeof(o);
    o.domain = domain;
    o.read_policy = policy;
    o.flags = flags;
    o.max_size = 4 << 20; // independent of its length: a mapping grows with its file
    return ato_mmap_opt(f.length, fd, 0, &o);
}

Mapping *World::map(int file, int domain, int policy, unsigned flags)
{
    const Files::Original &f = files.originals()[static_cast<size_t>(file)];
    void *at = map_original(f, f.fd, domain, policy, flags | preferring);
    if (at == MAP_FAILED)
        throw Violation(std::string("ato_mmap: ") + ato_errormsg());
    mappings.push_back(new Mapping{file, static_cast<char *>(at), f.length, size_of(file),
                                   (flags & ATO_EPOCHS) != 0, (flags & ATO_PLAIN_STORES) != 0});
    return mappings.back();
}

Mapping *World::map_to_read(int file, int domain)
{
    const Files::Original &f = files.originals()[static_cast<size_t>(file)];
    int fd = open((files.path() + "/" + f.name).c_str(), O_RDONLY | O_CLOEXEC);
    void *at = map_original(f, fd, domain, ATO_READ_GATHER, 0);
    std::string sentence = at == MAP_FAILED ? ato_errormsg() : "";
    close(fd);
    if (at == MAP_FAILED)
        throw Violation("ato_mmap, to read: " + sentence);
    mappings.push_back(new Mapping{file, static_cast<char *>(at), f.length, size_of(file)});
    return mappings.back();
}

void World::unmap(Mapping *m, int mode)
{
    if (ato_munmap(m->base, m->length, mode) < 0)
        throw Violation(std::string("ato_munmap: ") + ato_errormsg());
    mappings.erase(std::find(mappings.begin(), mappings.end(), m));
    delete m;
}

void World::refuse(int file, int domain)
{
    const Files::Original &f = files.originals()[static_cast<size_t>(file)];
    void *at = map_original(f, f.fd, domain, ATO_READ_GATHER, ATO_NO_RTM);
    int error = errno;
    if (at != MAP_FAILED) {
        ato_munmap(at, f.length, ATO_UNMAP_FAST);
        throw Violation(
            "another program wrote to the file after the unmap, and a map was not refused");
    }
    if (error != ESTALE)
        throw Violation(std::string("ato_mmap: ") + ato_errormsg());
}

void World::forget()
{
    for (Mapping *m : mappings)
        delete m;
    mappings.clear();
    transactions.clear();
    for (auto &p : peers)
        (void)p.release(); // it belongs to the other process
    peers.clear();
}

World::Beside World::beside(const std::function<void()> &what,
                            const std::function<void(Pack &)> &last)
{
    Peer peer(
        recorder, false,
        [&] {
            forget();
            what();
        },
        last);
    return {std::move(peer.allowed), std::move(peer.words)};
}

void World::beside_for_good(const std::function<void()> &what)
{
    auto live = [&] {
        forget();
        what();
    };
    peers.push_back(std::make_unique<Peer>(recorder, true, live, [](Pack &) {}));
}

void World::die()
{
    peers.clear();
    recorder.die([this] {
        company = nullptr;
        for (ato_tx *tx : transactions)
            ato_tx_abort(tx);
        transactions.clear();
        for (Mapping *m : mappings) {
            if (m->epochs) // it ends with its mapping only if it can never be committed
                use_file_poison(m->base);
            ato_munmap(m->base, m->length, ATO_UNMAP_FAST | (m->stores ? ATO_UNMAP_DISCARD : 0));
            delete m;
        }
        mappings.clear();
    });
}

} // namespace crash
