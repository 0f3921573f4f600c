// SPDX-License-Identifier: BSD-3-Clause
#include "choices.h"
#include "reader.h"
#include "scenes.h"
#include "standins.h"

extern "C" {
#include "reflection/format/manifest.h"
}

#include <cstring>

namespace crash
{

namespace
{

// A process did this and died, or the power failed, at any moment of it.
template <typename F> void cut_in(Actor &a, F what)
{
    Disk start = a.world.look();
    Trace t;
    a.world.record(&t);
    what();
    a.world.record(nullptr);
    a.world.die();
    Loss loss = loss_of(a.domain);
    Media media(start, loss, a.domain != ATO_DOMAIN_DISK);
    size_t cut = a.random.below(t.size());
    for (size_t i = 0; i < cut; i++)
        media.feed(t[i]);
    Choices choices(media.units(&t[cut]), a.random.next());
    std::vector<uint64_t> numbers = choices.numbers(16);
    Disk image = media.image(choices.pick(numbers[a.random.below(numbers.size())]));
    a.world.stage(image, loss == Loss::Process ? After::Kill : After::PowerCut);
    for (int i = 0; i < 2; i++) {
        Found f = read_file(image, a.world.inode_of(i), a.world.number_of(i));
        if (!f.damage.empty())
            throw Violation("after a cut in a commit: " + f.damage);
        a.contents[static_cast<size_t>(i)] = f.content;
    }
}

void before_recovery(Actor &a)
{
    before_two(a);
    cut_in(a, [&] {
        a.write(the(a), 2 * PAGE - 70, 150);
        a.write(the(a, 1), 2 * PAGE - 70, 150);
    });
}

void recovery(Actor &a)
{
    int first = static_cast<int>(a.random.below(2));
    Mapping *m = a.map(first, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, 2 * PAGE - 40, 30);
    Mapping *n = a.map(1 - first, ATO_READ_LAZY, ATO_NO_RTM);
    a.check(n);
    a.write(n, 2 * PAGE - 60, 90);
}

// Changes the record of a manifest, whose inode in the disk is `id`.
template <typename Change> void change_record(Actor &a, Disk &disk, int id, Change change)
{
    Bytes bytes = disk.at(id).content();
    struct manifest_record record;
    struct persist p;
    persist_init(&p, PERSIST_PROCESS);
    int which;
    if (manifest_read(bytes.data(), &record, &which) != MANIFEST_VALID)
        throw Violation("no manifest of a file that was in use");
    change(record);
    a.world.quietly([&] { manifest_write(&p, bytes.data(), &record, &which); });
    for (uint64_t at = 0; at < bytes.size(); at += 8) {
        uint64_t w;
        memcpy(&w, &bytes[at], 8);
        disk.edit(id).set_word(at, w);
    }
}

// The inode number of an original belonged to another file, whose reflection still exists: it is
// set aside, never removed.
void give_number_on(Actor &a, Disk &disk, int file)
{
    int own = disk.find(Disk::ROOT, ".ato");
    std::string name = std::to_string(a.world.number_of(file));
    int id = disk.find(own, name + ".manifest");
    change_record(a, disk, id, [](manifest_record &r) { r.birth_nsec ^= 1; }); // another file's
    disk.edit(a.world.inode_of(file)).attribute.clear();
    disk.edit(a.world.inode_of(file)).mtime = {1ll << 32, 0}; // written after its birth
    a.demand.kept = {id, disk.find(own, name)};
}

void before_reuse(Actor &a)
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    if (a.random.one_in(2))
        a.world.die();
    else
        a.unmap(m, ATO_UNMAP_FAST);
    Disk disk = a.world.look();
    give_number_on(a, disk, 0);
    a.world.stage(disk, After::PowerCut);
    a.contents[0] = a.world.plain_content(0);
}

void reuse(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, 1000, 400);
    a.check(m);
}

// ---- a restored file ----

// The file was restored, with its reflection, which has the old number; with its attribute, or without it.
void restore(Actor &a, Disk &disk, int file)
{
    int own = disk.find(Disk::ROOT, ".ato");
    const uint64_t old = ORPHAN + a.world.number_of(file);
    const std::string name = std::to_string(a.world.number_of(file));
    auto &names = disk.edit(own).names;
    const int id = names.at(name + ".manifest"), reflection = names.at(name);
    names.erase(name + ".manifest");
    names.erase(name);
    names[std::to_string(old)] = reflection;
    if (a.random.one_in(2)) // the reflection of a birth that was cut
        names[name] = disk.add({});
    names[std::to_string(old) + ".manifest"] = id;
    change_record(a, disk, id, [old](manifest_record &r) {
        r.inode = old;
        r.birth_nsec ^= 1;
        r.own_inode = standins::OWN + 1; // a copy
    });
    std::string &attribute = disk.edit(a.world.inode_of(file)).attribute;
    if (a.random.one_in(2))
        attribute.clear();
    else
        attribute.replace(38, attribute.find(' ', 38) - 38, std::to_string(old));
}

// It was cleanly unmapped, after which a log holds nothing, or its process died. (In a commit: the table of kills.)
void before_reunion(Actor &a)
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    if (a.domain != ATO_DOMAIN_DISK && a.random.one_in(3))
        a.unmap(m, ATO_UNMAP_FAST);
    else
        a.world.die();
    Disk disk = a.world.look();
    restore(a, disk, 0);
    a.world.stage(disk, After::PowerCut);
    a.world.prefer_reflections();
}

void reunite(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, 1000, 400);
    a.unmap(m, a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

// ---- writes by other programs ----

// The state in the file's manifest.
uint32_t state_of(const Actor &a, const Disk &disk, int file)
{
    std::string name = std::to_string(a.world.number_of(file)) + ".manifest";
    Bytes bytes = disk.at(disk.find(disk.find(Disk::ROOT, ".ato"), name)).content();
    struct manifest_record record;
    int which;
    if (manifest_read(bytes.data(), &record, &which) != MANIFEST_VALID)
        throw Violation("no manifest of a file that was mapped");
    return record.state;
}

// Another program writes to a file that is not mapped, and the library notices it. Then the write
// is undone, including mtime, and the file has its old content. The clock of that program may show
// a time before the first map, as a coarse clock does.
void meddle(Actor &a, const Time &stood_still)
{
    Time was = a.world.time_of(0), then = was;
    then.nsec ^= 1;
    if (a.random.one_in(2))
        then = stood_still;
    uint64_t n = 1 + a.random.below(300), at = a.random.below(SIZE - n);
    Bytes all = a.world.plain_content(0);
    Bytes bytes(all.begin() + static_cast<long>(at), all.begin() + static_cast<long>(at + n));
    Bytes others = bytes;
    for (unsigned char &b : others)
        b = static_cast<unsigned char>(b + 1);
    a.world.write_outside(0, at, others, then);
    a.world.refuse(0, a.domain);
    a.world.write_outside(0, at, bytes, was);
}

// A process wrote to the file and unmapped it fast, or it died and the next process unmapped the
// file. At any moment of that the power may have failed; then another program wrote to the file. If
// the manifest says `clean`, the library must notice that. If not, it cannot: then nothing is
// tried.
void before_meddling(Actor &a)
{
    Time first = a.world.time_of(0);
    mapped(a, ATO_NO_RTM);
    if (a.random.one_in(2)) {
        a.world.die();
        a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    }
    Media media(a.world.look(), loss_of(a.domain), a.domain != ATO_DOMAIN_DISK);
    Trace t;
    a.world.record(&t);
    a.unmap(the(a), ATO_UNMAP_FAST);
    a.world.record(nullptr);
    std::vector<Disk> images;
    for (size_t i = 0; i <= t.size(); i++) {
        Choices choices(media.units(i < t.size() ? &t[i] : nullptr), a.random.next());
        for (uint64_t number : choices.numbers(4))
            images.push_back(media.image(choices.pick(number)));
        if (i < t.size())
            media.feed(t[i]);
    }
    for (const Disk &image : images) { // the last image is complete
        a.world.stage(image, loss_of(a.domain) == Loss::Process ? After::Kill : After::PowerCut);
        if (state_of(a, image, 0) == MANIFEST_CLEAN)
            meddle(a, first);
        a.check(a.map(0, ATO_READ_GATHER, ATO_NO_RTM));
        a.world.die();
    }
    a.world.stage(images.back(), After::PowerCut);
}

void meddling(Actor &a)
{
    Time now = a.world.time_of(0);
    a.allow({});
    meddle(a, {now.sec - 1, now.nsec});
    a.allow_this();
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, a.random.below(3000), 5000);
    a.unmap(m, ATO_UNMAP_FAST);
}

// Other programs wrote to the file after the unmap, and their bytes count.
void before_preferring(Actor &a)
{
    a.unmap(mapped(a, ATO_NO_RTM), ATO_UNMAP_FAST);
    Time then = a.world.time_of(0);
    then.nsec ^= 1;
    a.world.write_outside(0, a.random.below(SIZE - 300), a.some(1 + a.random.below(300)), then);
    a.contents[0] = a.world.plain_content(0);
    a.world.prefer_files();
    Disk disk = a.world.look();
    int own = disk.find(Disk::ROOT, ".ato");
    std::string name = std::to_string(a.world.number_of(0));
    a.demand.kept = {disk.find(own, name), disk.find(own, name + ".manifest")};
}

// The reflection is discarded: set aside, and a new one is born.
void prefer_file(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, a.random.below(3000), 500);
    a.unmap(m, a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

// Mapped in domain process, which flushes nothing, by a process that died or unmapped; then in
// another domain, where the first processes may die at any moment of their maps.
void change_domain(Actor &a, bool dies)
{
    a.allow({}); // a power cut before this point may take anything: not explored
    a.mute = true;
    Mapping *m = a.world.map(0, ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_NO_RTM);
    a.scatter(m, 4);
    a.deploy(m, 0, 2 * PAGE); // bytes in both files
    if (dies)
        a.world.die();
    else
        a.unmap(m, ATO_UNMAP_FAST);
    set_thread_number(get_thread_number() + 50);
    for (uint64_t deaths = a.random.below(3); deaths; deaths--) {
        const uint64_t moments = a.random.below(60);
        a.world.beside(
            [&] {
                Peer::die_within(moments);
                a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
            },
            [](Pack &) {});
    }
    a.mute = false;
    m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.allow_this();
    a.write(m, 100, 5000);
}

void change_domain_of_dead(Actor &a)
{
    change_domain(a, true);
}

void change_domain_of_unmapped(Actor &a)
{
    change_domain(a, false);
}

// Slices in both homes of a file in domain pmem, whose size may have changed; all of it is durable.
void before_a_log(Actor &a)
{
    Mapping *m = a.world.map(0, ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_NO_RTM);
    a.scatter(m, 6);
    a.deploy(m, 0, 2 * PAGE);
    a.scatter(m, 2);
    if (a.random.one_in(2))
        a.resize(m, 3 * PAGE + a.random.below(4 * PAGE));
    if (a.random.one_in(2))
        a.world.die();
    else
        a.unmap(m, ATO_UNMAP_FAST);
}

void get_a_log(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, 100, 5000);
    a.check(m);
    a.unmap(m, a.random.one_in(2) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
}

} // namespace

void die_twice(Actor &a, uint64_t at)
{
    set_thread_number(get_thread_number() + 50);
    a.allow({}); // both outcomes are right until one has been read
    a.mute = true;
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    if (a.random.one_in(2))
        a.world.cut_short(1, Kind::Store); // the word is visible
    else
        a.world.cut_short(3 + a.random.below(5));
    a.write(m, at, 1 + a.random.below(130));
    a.world.die();
    set_thread_number(get_thread_number() + 1);
    m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    bool streams = a.domain == ATO_DOMAIN_PMEM || a.domain == ATO_DOMAIN_EADR;
    if (a.random.one_in(2))
        a.world.cut_short(1, streams ? Kind::Stream : Kind::Store); // the record is visible
    else
        a.world.cut_short(3 + a.random.below(4));
    a.unmap(m, a.random.one_in(4) ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST);
    a.world.die();
    a.mute = false;
    set_thread_number(get_thread_number() + 1);
    m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.contents[0] = a.read(m, 0, m->bytes);
    a.allow_this();
    a.write(m, at, 100);
    a.write(m, 100, 5000);
}

namespace
{

void two_dead(Actor &a)
{
    die_twice(a, a_page(a) + a.random.below(3000));
}

void before_commit(Actor &a)
{
    a.write(mapped(a, ATO_NO_RTM), PAGE - 10, 20); // gives the slot's area its space
}

// A process died at any moment of a commit; another process recovers, and writes to the same pages.
void dead_in_commit(Actor &a)
{
    uint64_t at = PAGE * (1 + a.random.below(4)) - 1 - a.random.below(60);
    set_thread_number(get_thread_number() + 50);
    a.world.cut_short(1 + a.random.below(14));
    a.write(the(a), at, 64 + a.random.below(60));
    a.world.die();
    set_thread_number(get_thread_number() + 1);
    Mapping *m = a.map(0, a.random.one_in(2) ? ATO_READ_GATHER : ATO_READ_LAZY, ATO_NO_RTM);
    a.contents[0] = a.read(m, 0, m->bytes);
    a.allow_this();
    a.write(m, at + 20, 60);
}

// A process died with a log that is nearly full: the next record overwrites those that a recovery has just brought into the file. Two of
// them have the same slice.
void before_full_log(Actor &a)
{
    a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(the(a), PAGE + 70, 10);
    a.write(the(a), PAGE + 75, 10);
    a.write(the(a), 2 * PAGE, 50 * 64);
    a.world.die();
}

void go_round(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, 3 * PAGE, 11 * 64);
}

// The same for a commit in the long lane.
void dead_in_long_commit(Actor &a)
{
    set_thread_number(get_thread_number() + 50);
    a.world.cut_short(1 + a.random.below(a.random.one_in(2) ? 600 : 1200));
    write_long(a);
    a.world.die();
    set_thread_number(get_thread_number() + 1);
    Mapping *m = a.map(0, a.random.one_in(2) ? ATO_READ_GATHER : ATO_READ_LAZY, ATO_NO_RTM);
    a.contents[0] = a.read(m, 0, m->bytes);
    a.allow_this();
    a.write(m, 9 * PAGE, PAGE + 10);
    write_long(a);
}

// A process died while it cut the long lane off: that is visible, and perhaps not durable, when the next commit makes it anew.
void dead_in_long_unmap(Actor &a)
{
    set_thread_number(get_thread_number() + 50);
    if (a.random.one_in(2))
        a.world.cut_short(1, Kind::Resize);
    else
        a.world.cut_short(1 + a.random.below(12));
    a.unmap(the(a), ATO_UNMAP_FAST);
    a.world.die();
    set_thread_number(get_thread_number() + 1);
    a.check(a.map(0, ATO_READ_GATHER, ATO_NO_RTM));
    write_long(a);
}

// A process died at any moment of a deploy.
void dead_in_deploy(Actor &a)
{
    uint64_t page = a_page(a);
    set_thread_number(get_thread_number() + 50);
    if (a.random.one_in(2))
        a.world.cut_short(1, Kind::Store); // the word is visible
    else
        a.world.cut_short(1 + a.random.below(6));
    a.deploy(the(a), page, PAGE);
    a.world.die();
    set_thread_number(get_thread_number() + 1);
    Mapping *m = a.map(0, a.random.one_in(2) ? ATO_READ_GATHER : ATO_READ_LAZY, ATO_NO_RTM);
    a.allow_this();
    a.write(m, page + a.random.below(500), 3000);
    a.check(m);
}

void before_two_dead(Actor &a)
{
    mapped(a, ATO_NO_RTM);
    a.unmap(the(a), ATO_UNMAP_FAST);
}

} // namespace

const std::vector<Case> &past_cases()
{
    static const std::vector<Case> cases = {
        {"recovery", ALL, {SIZE, SIZE}, before_recovery, recovery},
        // A log that was closed holds nothing.
        {"written by others", REFLECTED, {SIZE}, before_meddling, meddling},
        {"file preferred", REFLECTED, {SIZE}, before_preferring, prefer_file},
        {"inode number reused", ALL, {SIZE}, before_reuse, reuse},
        {"restored", ALL, {SIZE}, before_reunion, reunite},
        // In domain disk the file has had a reflection, dense or sparse, and gets a log.
        {"domain changed, killed",
         DURABLE,
         {SIZE},
         nullptr,
         change_domain_of_dead,
         0,
         nullptr,
         ~0u},
        {"domain changed, unmapped",
         DURABLE,
         {SIZE},
         nullptr,
         change_domain_of_unmapped,
         0,
         nullptr,
         ~0u},
        {"domain changed, durable", DISK, {SIZE}, before_a_log, get_a_log, 0, nullptr, ~0u},
        {"two dead", ALL, {SIZE}, before_two_dead, two_dead},
        {"dead in a commit", ALL, {SIZE}, before_commit, dead_in_commit},
        {"long lane, dead in a commit", PMEM, {LARGE}, before_long, dead_in_long_commit},
        {"long lane, dead in an unmap", PMEM, {LARGE}, before_long, dead_in_long_unmap},
        {"full log, dead", DISK, {SIZE}, before_full_log, go_round},
        {"dead in a deploy", ALL, {SIZE}, before_plain, dead_in_deploy},
    };
    return cases;
}

} // namespace crash
