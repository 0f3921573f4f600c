/* SPDX-License-Identifier: BSD-3-Clause */
#include "story.h"

#include "ato_engine.h"

#include <algorithm>
#include <filesystem>

#include <fcntl.h>

namespace kills
{

static constexpr unsigned char MASK = 0xee;

static Bytes bytes_of(const Step &s, unsigned seed)
{
    return s.what == Step::Fill    ? Bytes(s.n, static_cast<unsigned char>(seed))
           : s.what == Step::Guard ? Bytes(s.n, MASK)
                                   : support::pattern(s.n, seed);
}

bool Story::has(Step::What what) const
{
    for (const Steps *list : {&dead, &before, &steps})
        for (const Step &s : *list)
            if (s.what == what)
                return true;
    return false;
}

Contents begin_with(const Story &s)
{
    Contents all;
    for (unsigned file = 0; file < s.files; file++)
        all.push_back(support::pattern(SIZE, 1000 + file));
    return all;
}

/* ---- contents ---- */

static Bytes part(const Bytes &of, size_t at, size_t n)
{
    auto begin = of.begin() + static_cast<ptrdiff_t>(at);
    return Bytes(begin, begin + static_cast<ptrdiff_t>(n));
}

static void put(Bytes &to, size_t at, const Bytes &bytes)
{
    std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<ptrdiff_t>(at));
}

std::vector<Contents> Model::after(const Steps &steps)
{
    std::vector<Contents> all = {now};
    reached = {0};
    for (const Step &s : steps) {
        const Contents was = now;
        seed++;
        Bytes &file = (s.tx && s.what != Step::Begin ? staged : now)[s.file];
        switch (s.what) {
        case Step::Write:
        case Step::WriteEager:
        case Step::Fill:
            put(file, s.at, bytes_of(s, seed));
            break;
        case Step::Copy:
            put(file, s.at, part(now[B], s.at, s.n));
            break;
        case Step::Resize:
            file.resize(s.n);
            break;
        case Step::Guard:
            guarded = s.at;
            plain = part(file, s.at, s.n);
            put(file, s.at, bytes_of(s, seed));
            break;
        case Step::Unmap:
            if (s.n == ATO_UNMAP_SPATIAL) {
                put(now[A], guarded, plain);
                plain.clear();
            }
            break;
        case Step::Begin:
            staged = now;
            break;
        case Step::Commit:
            now = staged;
            break;
        default:
            break;
        }
        if (now != was)
            all.push_back(now);
        reached.push_back(all.size() - 1);
    }
    return all;
}

bool Follower::see(unsigned file, const Bytes &bytes, bool grown)
{
    for (size_t i = is; i < all.size(); i++) {
        Bytes want = all[i][file];
        if (grown && bytes.size() == want.size() + PAGE)
            want.resize(bytes.size());
        if (bytes == want) {
            is = i;
            return true;
        }
    }
    return false;
}

/* ---- steps ---- */

void Hands::map(bool from_the_last)
{
    maps.resize(paths.size());
    for (size_t i = 0; i < paths.size(); i++) {
        size_t file = from_the_last ? paths.size() - 1 - i : i;
        maps[file] = std::make_unique<Mapped>(paths[file], options, 1);
        if (!*maps[file])
            leave("cannot map " + paths[file] + ": " + maps[file]->sentence);
    }
}

void Hands::unmap(int mode)
{
    for (auto &m : maps)
        if (m->unmap(mode) < 0)
            leave("cannot unmap: " + m->sentence);
    maps.clear();
}

/* As a backup that was made before: its times are older than its birth. */
static void restore(const std::string &path, bool attributes)
{
    const std::string copy = path + ".restored", attribute = support::attribute_of(path);
    const timespec times[2] = {{0, UTIME_OMIT}, {support::stat_of(path).st_mtim.tv_sec - 10, 0}};
    support::write_file(copy, support::read_file(path));
    if (attributes)
        support::set_attribute(copy, attribute);
    else
        utimensat(AT_FDCWD, copy.c_str(), times, 0);
    std::filesystem::rename(copy, path);
}

void Hands::act(const Step &s, unsigned seed)
{
    char *at = s.file < maps.size() ? maps[s.file]->base + s.at : nullptr;
    const Bytes bytes = bytes_of(s, seed);
    bool good = true;
    switch (s.what) {
    case Step::Map:
        map();
        break;
    case Step::Unmap:
        unmap(static_cast<int>(s.n));
        break;
    case Step::Write:
        good =
            s.tx ? ato_tx_memcpy(tx, at, bytes.data(), s.n, 0) : ato_memcpy(at, bytes.data(), s.n);
        break;
    case Step::WriteEager:
        good = ato_memcpy_opt(at, bytes.data(), s.n, ATO_EAGER);
        break;
    case Step::Fill:
        good = ato_memset(at, bytes[0], s.n);
        break;
    case Step::Copy:
        good = ato_memcpy(at, maps[B]->base + s.at, s.n);
        break;
    case Step::Deploy:
        good = ato_deploy(at, s.n) == 0;
        break;
    case Step::Resize:
        good = (s.tx ? ato_tx_ftruncate(tx, at, static_cast<off_t>(s.n))
                     : ato_ftruncate(at, static_cast<off_t>(s.n))) == 0;
        break;
    case Step::Guard: {
        const Bytes plain = maps[s.file]->read(s.at, s.n);
        good =
            ato_set_guard(maps[s.file]->base, static_cast<off_t>(s.at), plain.data(), s.n) == 0 &&
            ato_memcpy_opt(at, bytes.data(), s.n, ATO_EAGER);
        break;
    }
    case Step::Restore:
        for (const std::string &path : paths)
            restore(path, s.n);
        break;
    case Step::Begin:
        good = (tx = ato_tx_begin(0));
        break;
    case Step::Commit:
        good = ato_tx_commit(tx) == 0;
        break;
    }
    if (!good)
        leave("step of kind " + std::to_string(s.what) + ": " + ato_errormsg());
}

void Hands::act(const Steps &steps, unsigned *seed, const std::function<void()> &done)
{
    for (const Step &s : steps) {
        act(s, ++*seed);
        if (done)
            done();
    }
}

Bytes content(const Mapped &m)
{
    for (;;) {
        const uint64_t size = m.stat().size;
        Bytes seen(size);
        const bool read = ato_memcpy(seen.data(), m.base, size);
        if (m.stat().size == size)
            return read ? seen : Bytes();
    }
}

} // namespace kills
