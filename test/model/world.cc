/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <cerrno>
#include <sys/stat.h>
#include <sys/xattr.h>

namespace model
{

static constexpr size_t PAGE = 4096, LONGEST = 3u << 20, LARGEST = 9u << 20;

std::string name_of(const Setup &s)
{
    static const char *const commits[] = {"Single", "Rtm", "Journal"};
    return rig::policy_name(s.policy) + rig::domain_name(s.domain) +
           commits[static_cast<int>(s.commit)] + (s.medium == rig::Medium::Disk ? "OnDisk" : "");
}

static bool rtm_may_commit(const Setup &s)
{
    return s.domain == ATO_DOMAIN_EADR || s.domain == ATO_DOMAIN_PROCESS;
}

std::vector<Setup> setups()
{
    std::vector<Setup> all;
    for (int policy : {ATO_READ_LAZY, ATO_READ_GATHER, ATO_READ_EAGER})
        for (int domain : {ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS})
            for (Commit commit : {Commit::Single, Commit::Rtm, Commit::Journal}) {
                Setup s{policy, domain, commit};
                if (commit != Commit::Rtm || rtm_may_commit(s))
                    all.push_back(s);
            }
    /* A folder where msync has an effect. */
    for (int policy : {ATO_READ_LAZY, ATO_READ_EAGER})
        for (Commit commit : {Commit::Single, Commit::Journal})
            all.push_back({policy, ATO_DOMAIN_DISK, commit, rig::Medium::Disk});
    return all;
}

unsigned char *World::Place::address() const
{
    return map->base + (map == &file->part ? offset - file->part_begin : offset);
}

unsigned char *World::Place::model() const
{
    return file->bytes.data() + offset;
}

World::World(const Setup &s, rig::Random &r, size_t bytes) : setup(s), random(r), folder(s.medium)
{
    for (int i = 0; i < 2; i++) {
        File &f = files[i];
        f.path = folder / (i ? "second" : "first");
        f.bytes.resize(i ? bytes - bytes / 3 : bytes);
        random.fill(f.bytes.data(), f.bytes.size());
        EXPECT_TRUE(rig::write_file(f.path, f.bytes));
        map_both(f);
    }
    scratch.resize(LONGEST + 128);
}

/* ---- mappings ---- */

ato_options options_of(const Setup &s, int policy)
{
    const unsigned flags = s.commit == Commit::Journal ? ATO_NO_RTM : 0;
    ato_options o = rig::options(policy, s.domain, flags);
    o.format = s.commit == Commit::Journal ? ATO_FORMAT_SPARSE : ATO_FORMAT_DENSE;
    return o;
}

void World::map_whole(File &f)
{
    f.whole = rig::Map(f.path, f.bytes.size(), options_of(setup, setup.policy));
    ASSERT_TRUE(f.whole.base) << f.path << ": " << ato_errormsg();
    setup.prepare(f.whole.base);
}

/* From some page on, with some length; with any policy: it belongs to the mapping, not to the file. */
void World::map_part(File &f)
{
    size_t pages = (f.bytes.size() + PAGE - 1) / PAGE;
    f.part_begin = random.below(pages) * PAGE;
    size_t n = random.within(1, f.bytes.size() - f.part_begin);
    int policy =
        random.chance(50) ? setup.policy : ATO_READ_LAZY + static_cast<int>(random.below(3));
    f.part = rig::Map(f.path, n, options_of(setup, policy), static_cast<off_t>(f.part_begin));
    ASSERT_TRUE(f.part.base) << f.path << ": " << ato_errormsg();
    setup.prepare(f.part.base);
}

void World::map_both(File &f)
{
    if (random.chance(50)) {
        map_whole(f);
        map_part(f);
    } else {
        map_part(f);
        map_whole(f);
    }
}

void World::count(const rig::Map &m)
{
    struct ato_stat st = m.stat();
    tally.single += st.commits_single;
    tally.rtm += st.commits_rtm;
    tally.journal += st.commits_journal;
    tally.deployed += st.deployed_slices;
}

void World::unmap_part(File &f, int mode)
{
    count(f.part);
    EXPECT_EQ(f.part.unmap(mode), 0) << ato_errormsg();
}

void World::unmap_whole(File &f, int mode)
{
    count(f.whole);
    EXPECT_EQ(f.whole.unmap(mode), 0) << ato_errormsg();
}

/* ---- places ---- */

bool World::within_page(size_t offset, size_t n) const
{
    return offset % PAGE + n <= PAGE;
}

size_t World::length(const File &f)
{
    size_t most = setup.commit == Commit::Single ? PAGE : LONGEST;
    return random.log_uniform(std::min(most, f.bytes.size()));
}

/* An offset for n bytes within `room`: anywhere, or at a special place. */
size_t World::position(size_t room, size_t n)
{
    size_t last = room - n, at = random.within(0, last);
    switch (random.below(6)) {
    case 0:
        at = at / PAGE * PAGE;
        break;
    case 1:
        at = at / 64 * 64;
        break;
    case 2: /* ends with a page */
        at = (at + n) / PAGE * PAGE >= n ? (at + n) / PAGE * PAGE - n : at;
        break;
    case 3:
        at = last;
        break;
    default:
        break;
    }
    if (setup.commit != Commit::Single || within_page(at, n))
        return at;
    at = at / PAGE * PAGE;
    return at <= last ? at : last / PAGE * PAGE;
}

World::Place World::place(size_t n)
{
    File &f = files[random.below(2)];
    n = std::min(n, f.bytes.size());
    if (n <= f.part.n && random.chance(50))
        return {&f, &f.part, f.part_begin + position(f.part.n, n), n};
    return {&f, &f.whole, position(f.bytes.size(), n), n};
}

/* ---- comparing ---- */

void World::expect_read(const Place &p)
{
    unsigned char *to = scratch.data() + random.below(64);
    to[p.n] = 0xa5; /* nothing behind the bytes asked for is touched */
    ASSERT_EQ(ato_memcpy(to, p.address(), p.n), to) << ato_errormsg();
    long at = rig::first_difference(to, p.model(), p.n);
    EXPECT_EQ(at, -1) << p.file->path << " differs first at byte " << p.offset + at;
    EXPECT_EQ(to[p.n], 0xa5);
}

void World::expect_plain_loads(const Place &p, const char *when)
{
    long at = rig::first_difference(p.address(), p.model(), p.n);
    EXPECT_EQ(at, -1) << "plain loads " << when << ": " << p.file->path << " differs first at byte "
                      << p.offset + at;
}

void World::compare_all()
{
    std::vector<unsigned char> now;
    for (File &f : files) {
        now.resize(f.bytes.size());
        ASSERT_TRUE(ato_memcpy(now.data(), f.whole.base, now.size())) << ato_errormsg();
        long at = rig::first_difference(now.data(), f.bytes.data(), now.size());
        EXPECT_EQ(at, -1) << f.path << " differs first at byte " << at;
    }
}

bool World::accepted(const void *returned, const Place &p)
{
    if (returned) {
        EXPECT_EQ(returned, p.address());
        return true;
    }
    ADD_FAILURE() << ato_errormsg();
    return false;
}

/* ---- operations ---- */

void World::copy_in()
{
    Place p = place(length(files[random.below(2)]));
    unsigned flags = static_cast<unsigned>(random.below(4)); /* eager, skip-equal, both, none */
    unsigned char *from = scratch.data() + random.below(64);
    bool similar = random.chance(flags & ATO_SKIP_EQUAL ? 80 : 20);
    if (similar) {
        std::memcpy(from, p.model(), p.n);
        for (uint64_t changes = random.below(4); changes; changes--)
            from[random.below(p.n)] ^= static_cast<unsigned char>(random.within(1, 255));
    } else {
        random.fill(from, p.n);
    }
    if (!accepted(flags || random.chance(50) ? ato_memcpy_opt(p.address(), from, p.n, flags)
                                             : ato_memcpy(p.address(), from, p.n),
                  p))
        return;
    std::memcpy(p.model(), from, p.n);
    bool eager = (flags & ATO_EAGER) || p.map->stat().read_policy == ATO_READ_EAGER;
    if (eager && !(flags & ATO_SKIP_EQUAL))
        expect_plain_loads(p, "after an eager write");
}

void World::copy_out()
{
    Place p = place(length(files[random.below(2)]));
    expect_read(p);
    if (p.map->stat().read_policy == ATO_READ_LAZY)
        expect_plain_loads(p, "after a lazy read");
}

void World::fill()
{
    Place p = place(length(files[random.below(2)]));
    int byte = static_cast<int>(random.below(256));
    if (accepted(ato_memset(p.address(), byte, p.n), p))
        std::memset(p.model(), byte, p.n);
}

void World::copy_across()
{
    Place to = place(length(files[random.below(2)])), from = place(to.n);
    to.n = from.n; /* the second file is shorter */
    if (to.file == from.file && random.chance(60)) {
        /* Near enough to overlap, if both mappings have room for it. */
        size_t shift = random.within(0, std::min<size_t>(to.n, 3 * PAGE));
        Place near = to;
        near.offset =
            random.chance(50) ? to.offset + shift : to.offset - std::min(shift, to.offset);
        bool part = to.map == &to.file->part;
        size_t begin = part ? to.file->part_begin : 0;
        size_t reach = part ? begin + to.map->n : to.file->bytes.size();
        bool single_ok = setup.commit != Commit::Single || within_page(near.offset, near.n);
        if (near.offset >= begin && near.offset + near.n <= reach && single_ok)
            from = near;
    }
    unsigned flags = random.chance(30) ? static_cast<unsigned>(random.below(4)) : 0;
    doing += " from " + from.file->path + " at " + std::to_string(from.offset) + " to " +
             to.file->path + " at " + std::to_string(to.offset) + ", " + std::to_string(to.n);
    SCOPED_TRACE(doing);
    if (accepted(ato_memcpy_opt(to.address(), from.address(), to.n, flags), to))
        std::memmove(to.model(), from.model(), to.n);
    expect_read(to);
}

void World::reclaim()
{
    Place p = place(length(files[random.below(2)]));
    ASSERT_EQ(ato_reclaim(p.address(), p.n), 0) << ato_errormsg();
    expect_read(p);
}

void World::deploy()
{
    Place p = place(length(files[random.below(2)]));
    ASSERT_EQ(ato_deploy(p.address(), p.n), 0) << ato_errormsg();
    /* It deploys whole pages, as far as the mapping covers them. */
    size_t begin = p.offset / PAGE * PAGE, end = (p.offset + p.n + PAGE - 1) / PAGE * PAGE;
    bool part = p.map == &p.file->part;
    end = std::min(end, part ? p.file->part_begin + p.map->n : p.file->bytes.size());
    expect_plain_loads({p.file, p.map, begin, end - begin}, "after ato_deploy()");
    if (random.chance(20)) {
        ASSERT_EQ(ato_deploy(p.file->whole.base, p.file->bytes.size()), 0) << ato_errormsg();
        EXPECT_EQ(p.file->whole.stat().slices_in_reflection, 0u);
    }
}

void World::sync()
{
    Place p = place(length(files[random.below(2)]));
    auto in_page = reinterpret_cast<uintptr_t>(p.address()) % PAGE;
    EXPECT_EQ(ato_msync(p.address() - in_page, p.n + in_page, MS_SYNC), 0) << ato_errormsg();
}

/* By a little or by much, through either mapping; the whole mapping reaches the new part. Behind an end that
 * moved down there is nothing. */
void World::grow()
{
    File &f = files[random.below(2)];
    size_t by = random.log_uniform(random.chance(10) ? 3u << 20 : 3 * PAGE);
    size_t to = f.bytes.size() + by, least = f.part_begin + f.part.n;
    if (random.chance(40)) /* or shorter, as long as all of the part is in it */
        to = f.bytes.size() > least + by ? f.bytes.size() - by : least;
    if (to > LARGEST)
        return;
    const rig::Map &through = random.chance(50) ? f.whole : f.part;
    ASSERT_EQ(ato_ftruncate(through.base, static_cast<off_t>(to)), 0) << ato_errormsg();
    size_t from = f.bytes.size();
    f.bytes.resize(to);
    EXPECT_EQ(f.whole.stat().size, to);
    if (to <= from) {
        char none;
        EXPECT_EQ(ato_memcpy(&none, f.whole.base + to, 1), nullptr);
        return;
    }
    expect_read({&f, &f.whole, from, std::min(to - from, LONGEST)});
}

/* One or both mappings of a file, in either order; the reflection stays. */
void World::map_again()
{
    File &f = files[random.below(2)];
    int others_only_detach = random.chance(50) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL;
    switch (random.below(3)) {
    case 0:
        unmap_part(f, others_only_detach);
        map_part(f);
        break;
    case 1:
        unmap_whole(f, others_only_detach);
        map_whole(f);
        break;
    default:
        unmap_whole(f, others_only_detach);
        unmap_part(f, ATO_UNMAP_FAST);
        map_both(f);
    }
}

void World::make_plain(File &f)
{
    std::vector<std::string> before = rig::shared_objects();
    EXPECT_FALSE(before.empty()) << "the shared memory is not where it is looked for";
    if (random.chance(50)) {
        unmap_part(f, ATO_UNMAP_FAST);
        unmap_whole(f, ATO_UNMAP_SPATIAL);
    } else {
        unmap_whole(f, ATO_UNMAP_FAST);
        unmap_part(f, ATO_UNMAP_SPATIAL);
    }
    EXPECT_TRUE(rig::read_file(f.path) == f.bytes) << f.path << ": read(2) sees something else";
    EXPECT_LT(getxattr(f.path.c_str(), "user.ato", nullptr, 0), 0);
    struct stat st;
    ASSERT_EQ(stat(f.path.c_str(), &st), 0);
    std::string reflection = std::to_string(st.st_ino);
    for (const std::string &name : rig::names_in(folder / ".ato"))
        EXPECT_NE(name.rfind(reflection, 0), 0u) << name << " is still there";
    std::vector<std::string> still = rig::shared_objects();
    for (const std::string &name : before)
        if (std::find(still.begin(), still.end(), name) == still.end()) {
            EXPECT_FALSE(std::filesystem::exists(name)) << name << " is still there";
        }
}

void World::start_plain()
{
    File &f = files[random.below(2)];
    make_plain(f);
    map_both(f);
}

void World::step()
{
    static const struct {
        unsigned weight;
        const char *name;
        void (World::*run)();
    } operations[] = {
        {30, "copy in", &World::copy_in}, {25, "copy out", &World::copy_out},
        {8, "memset", &World::fill},      {20, "copy across", &World::copy_across},
        {8, "deploy", &World::deploy},    {3, "reclaim", &World::reclaim},
        {3, "msync", &World::sync},       {3, "map again", &World::map_again},
        {2, "grow", &World::grow},        {1, "make plain", &World::start_plain},
    };
    const auto &op = random.weighted(operations);
    doing = "step " + std::to_string(++steps) + ": " + op.name;
    SCOPED_TRACE(doing);
    (this->*op.run)();
}

void World::finish()
{
    for (File &f : files)
        make_plain(f);
    EXPECT_EQ(rig::names_in(folder / ".ato"), std::vector<std::string>{});
}

} // namespace model
