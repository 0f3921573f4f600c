// SPDX-License-Identifier: BSD-3-Clause
#include "cases.h"

#include "choices.h"
#include "reader.h"
#include "threads.h"

extern "C" {
#include "reflection/journal.h"
#include "reflection/manifest.h"
}

#include <algorithm>
#include <cstring>
#include <map>

namespace crash
{

namespace
{

constexpr unsigned ALL = 1u << ATO_DOMAIN_PMEM | 1u << ATO_DOMAIN_EADR | 1u << ATO_DOMAIN_MSYNC |
                         1u << ATO_DOMAIN_PROCESS;
constexpr unsigned DURABLE = ALL & ~(1u << ATO_DOMAIN_PROCESS);
// For what takes long, with large files or two of them: where most may be lost.
constexpr unsigned COSTLY = 1u << ATO_DOMAIN_PMEM | 1u << ATO_DOMAIN_MSYNC;
constexpr unsigned RTM = 1u << ATO_DOMAIN_EADR | 1u << ATO_DOMAIN_PROCESS;

// Six pages, the last one not whole and ending within a slice and a word.
constexpr uint64_t SIZE = 5 * PAGE + 1003;

// Pages that share a meta page; a file that needs two of them.
constexpr uint64_t CHUNK = 512 * PAGE;
constexpr uint64_t TWO_CHUNKS = CHUNK + 3 * PAGE + 1003;

std::vector<uint64_t> garbage(Actor &a, uint64_t bytes)
{
    std::vector<uint64_t> words(bytes / 8);
    for (uint64_t &w : words)
        w = a.random.next();
    return words;
}

// Garbage in every place that holds nothing: the second homes of a file that was just mapped for the
// first time, and what a journal's lanes have behind their first two lines.
void litter(Actor &a, int file)
{
    std::string own = ".ato/" + std::to_string(a.world.number_of(file));
    uint64_t bytes = (a.world.size_of(file) + PAGE - 1) / PAGE * PAGE;
    for (uint64_t at = 0; at < bytes; at += CHUNK) // behind each meta page
        a.world.poke(own, at + (at / CHUNK + 1) * PAGE, garbage(a, std::min(CHUNK, bytes - at)));
}

// By name, the inodes of those that are complete.
std::map<std::string, int> journals_in(const Disk &disk)
{
    std::map<std::string, int> found;
    for (const auto &name : disk.at(disk.find(Disk::ROOT, ".ato")).names)
        if (name.first.compare(0, 8, "journal-") == 0 &&
            name.first.find(".tmp") == std::string::npos)
            found.insert(name);
    return found;
}

// Of the first lane, in a journal's file.
uint64_t lanes_of(const Inode &journal)
{
    uint64_t at = 0;
    while (journal.word(at) != JOURNAL_MAGIC)
        at += PAGE;
    return at + PAGE;
}

void litter_journals(Actor &a)
{
    Disk disk = a.world.look();
    for (const auto &j : journals_in(disk))
        a.world.poke(".ato/" + j.first, lanes_of(disk.at(j.second)) + 128, garbage(a, PAGE - 128));
}

// What most cases begin with: a mapped file whose slices lie in both homes.
Mapping *mapped(Actor &a, unsigned flags, int policy = ATO_READ_GATHER)
{
    Mapping *m = a.map(0, policy, flags);
    litter(a, 0);
    a.scatter(m, 6);
    litter_journals(a);
    return m;
}

// The mapping that `before` made; the world has it.
Mapping *the(Actor &a, size_t n = 0)
{
    return a.world.mapping(n);
}

uint64_t a_page(Actor &a)
{
    return a.random.below(5) * PAGE;
}

void before_plain(Actor &a)
{
    mapped(a, ATO_NO_RTM);
}

// A journal whose sequence numbers are about to need their upper halves.
void before_old_journal(Actor &a)
{
    Mapping *m = mapped(a, ATO_NO_RTM);
    a.write(m, PAGE - 10, 20);
    Disk disk = a.world.look();
    for (const auto &j : journals_in(disk)) {
        uint64_t old = 0xffffffff, at = lanes_of(disk.at(j.second));
        a.world.poke(".ato/" + j.first, at, {old});      // sequence of the first lane
        a.world.poke(".ato/" + j.first, at + 64, {old}); // retired
    }
}

void before_rtm(Actor &a)
{
    mapped(a, ATO_RTM_ONLY);
}

void write_aligned(Actor &a)
{
    uint64_t page = a_page(a);
    for (int i = 0; i < 3; i++) {
        uint64_t first = a.random.below(40), n = 1 + a.random.below(i == 2 ? 24 : 4);
        a.write(the(a), page + first * LINE, n * LINE);
    }
}

void write_byte(Actor &a)
{
    uint64_t at = a.random.below(SIZE);
    for (int i = 0; i < 3; i++)
        a.write(the(a), i == 2 ? a.random.below(SIZE) : at, 1);
}

void write_across(Actor &a)
{
    uint64_t page = a_page(a), at = page + 1 + a.random.below(3000);
    for (int i = 0; i < 3; i++)
        a.write(the(a), at + a.random.below(60), 66 + a.random.below(300));
}

void write_ends(Actor &a)
{
    a.write(the(a), a_page(a) + PAGE - 1, 1);
    a.write(the(a), SIZE - 1, 1);
    a.write(the(a), SIZE - 1 - a.random.below(200), 1);
    a.write(the(a), a_page(a), PAGE);
}

void write_pages(Actor &a)
{
    for (int i = 0; i < 3; i++) {
        uint64_t n = PAGE + 2 + a.random.below(3 * PAGE);
        uint64_t at = a.random.below(SIZE - n);
        a.write(the(a), at, n);
        if (i == 0) // a newer flip of a page that the lane named
            a.write(the(a), at + n - 1 - a.random.below(900), 1);
    }
}

// Few slices of each page, so that every combination of words can be looked at.
void write_seam(Actor &a)
{
    uint64_t seam = PAGE * (1 + a.random.below(4));
    for (int i = 0; i < 3; i++) {
        uint64_t left = 1 + a.random.below(90);
        a.write(the(a), seam - left, left + 1 + a.random.below(90));
    }
    a.write(the(a), seam - 3, 3);
    a.write(the(a), seam - 20, 60);
}

void write_long(Actor &a)
{
    uint64_t n = 9 * PAGE + a.random.below(30 * PAGE);
    uint64_t at = a.random.below(the(a)->bytes - n);
    a.write(the(a), at, n);
    a.write(the(a), at + 3 * PAGE, 2 * PAGE);
}

// A lane's list that is longer than a page.
void write_longer(Actor &a)
{
    a.write_sparsely(the(a), 5 * PAGE, 270 * PAGE);
    a.write(the(a), 9 * PAGE, PAGE + 10);
}

void write_equal(Actor &a)
{
    uint64_t page = a_page(a);
    a.write_like(the(a), page, PAGE, ATO_SKIP_EQUAL);
    a.write_like(the(a), page + 5, 700, ATO_SKIP_EQUAL);
    a.write_like(the(a), PAGE / 2, 3 * PAGE, ATO_SKIP_EQUAL);
}

void fill(Actor &a)
{
    a.fill(the(a), a.random.below(3 * PAGE), 1 + a.random.below(200));
    a.fill(the(a), a.random.below(3 * PAGE), PAGE + a.random.below(PAGE));
}

void before_two(Actor &a)
{
    mapped(a, ATO_NO_RTM);
    Mapping *m = a.map(1, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 1);
    a.scatter(m, 6);
}

void copy(Actor &a)
{
    uint64_t at = a.random.below(2 * PAGE);
    a.copy(the(a), at + 300, the(a), at, PAGE + 500); // overlapping
    a.copy(the(a), at, the(a), at + 700, 900);
    a.copy(the(a, 1), a.random.below(PAGE), the(a), at, 2 * PAGE);
    a.copy(the(a), at, the(a, 1), at, 100);
}

void two_files(Actor &a)
{
    a.write(the(a), PAGE - 100, 200);
    a.write(the(a, 1), PAGE - 150, PAGE + 300);
    a.write(the(a), PAGE - 50, 70);
    a.write(the(a, 1), PAGE + 40, 1);
    a.write(the(a), 2 * PAGE - 50, 90);
}

void write_eager(Actor &a)
{
    uint64_t at = a.random.below(3000);
    a.write(the(a), at, 200, ATO_EAGER);
    a.write(the(a), at + 100, 90);
    a.write(the(a), PAGE - 90, 300, ATO_EAGER);
    a.write(the(a), PAGE - 30, 60);
}

void deploy(Actor &a)
{
    uint64_t page = a_page(a);
    a.deploy(the(a), page, 2 * PAGE < the(a)->bytes - page ? 2 * PAGE : PAGE);
    a.write(the(a), page + 100, 300);
    a.deploy(the(a), page, PAGE);
    a.write(the(a), page + 130, 200);
    a.deploy(the(a), 0, the(a)->bytes);
}

void before_lazy(Actor &a)
{
    mapped(a, ATO_NO_RTM, a.random.one_in(2) ? ATO_READ_LAZY : ATO_READ_ADAPTIVE);
}

void before_eager(Actor &a)
{
    mapped(a, ATO_NO_RTM, ATO_READ_EAGER);
}

void read_lazily(Actor &a)
{
    uint64_t page = a_page(a);
    for (int i = 0; i < 4; i++)
        a.read(the(a), page, PAGE);
    a.write(the(a), page + 100, 300);
    for (int i = 0; i < 4; i++)
        a.read(the(a), page + 64, 100);
    a.write(the(a), page + 200, 100);
    a.check(the(a));
}

void unmap_fast(Actor &a)
{
    a.unmap(the(a), ATO_UNMAP_FAST);
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.unmap(m, ATO_UNMAP_FAST); // nothing was written
    m = a.map(0, ATO_READ_LAZY, ATO_NO_RTM);
    a.write(m, 100, 5000);
    a.unmap(m, ATO_UNMAP_FAST);
    a.check(a.map(0));
}

void unmap_spatial(Actor &a)
{
    a.demand.orderly = true;
    a.allow_this();
    a.unmap(the(a), ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
    a.demand = Demand();
    a.allow_this();
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(m, a.random.below(4000), 70);
    a.unmap(m, ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

void first_map(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(m, a.random.below(4000), 90);
    a.check(m);
}

void before_no_journal(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    for (int i = 0; i < 4; i++)
        a.write(m, a_page(a) + a.random.below(3000), 300);
}

void journal(Actor &a)
{
    a.write(the(a), PAGE - 40, 90); // makes it
    a.write(the(a), PAGE - 30, 20);
    a.unmap(the(a), ATO_UNMAP_FAST); // removes it
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.write(m, PAGE - 60, 90);
    a.write(m, PAGE - 30, 20);
}

// Somebody wrote and died, or the power went: any moment of a commit to pages of two files.
void before_recovery(Actor &a)
{
    before_two(a);
    Disk start = a.world.look();
    std::vector<Bytes> kept = a.contents;
    Trace t;
    a.world.record(&t);
    a.write(the(a), 2 * PAGE - 70, 150);
    a.write(the(a, 1), 2 * PAGE - 70, 150);
    a.world.record(nullptr);
    a.world.die();
    Loss loss = loss_of(a.domain);
    Media media(start, loss, a.domain != ATO_DOMAIN_MSYNC);
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

// The inode number of an original belonged to another file, whose reflection is still there. That is
// set aside, never removed.
void give_number_on(Actor &a, Disk &disk, int file)
{
    int own = disk.find(Disk::ROOT, ".ato");
    std::string name = std::to_string(a.world.number_of(file));
    int id = disk.find(own, name + ".manifest");
    Bytes bytes = disk.at(id).content();
    struct manifest_record record;
    struct persist p = {PERSIST_PROCESS, nullptr};
    int which;
    if (manifest_read(bytes.data(), &record, &which) != MANIFEST_VALID)
        throw Violation("no manifest of a file that was in use");
    record.birth_nsec ^= 1; // another file's
    a.world.quietly([&] { manifest_write(&p, bytes.data(), &record, &which); });
    for (uint64_t at = 0; at < bytes.size(); at += 8) {
        uint64_t w;
        memcpy(&w, &bytes[at], 8);
        disk.edit(id).set_word(at, w);
    }
    disk.edit(a.world.inode_of(file)).attribute.clear();
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

// ---- a lane of a pairing that is gone ----

// Does some lane of a journal hold a commit of the file?
bool has_commit_of(const Actor &a, const Disk &disk, int file)
{
    int own = disk.find(Disk::ROOT, ".ato");
    const Inode &manifest =
        disk.at(disk.find(own, std::to_string(a.world.number_of(file)) + ".manifest"));
    for (const auto &name : journals_in(disk)) {
        const Inode &j = disk.at(name.second);
        uint64_t at = lanes_of(j);
        for (unsigned lane = 0; lane < JOURNAL_LANES; lane++, at += JOURNAL_LANE_BYTES)
            if (j.word(at) == j.word(at + 64) + 1 && j.word(at + 128) == manifest.word(32) &&
                j.word(at + 136) == manifest.word(40))
                return true;
    }
    return false;
}

// A process died while two threads of it were in commits to the two files: both lanes hold one.
Disk die_committed(Actor &a)
{
    before_two(a);
    Disk start = a.world.look();
    std::vector<Bytes> kept = a.contents;
    std::vector<Disk> both;
    for (int tries = 0; both.empty(); tries++) { // not in every order of the threads
        if (tries == 200)
            throw Violation("two threads are never in commits to two files at once");
        Media media(a.world.look(), Loss::Process, false);
        Trace t;
        a.world.record(&t);
        run_threads(
            a, {{{Step::Write, 2 * PAGE - 70, 150, 0}}, {{Step::Write, 2 * PAGE - 70, 150, 1}}});
        a.world.record(nullptr);
        a.world.die();
        for (const Event &e : t) {
            media.feed(e);
            if (has_commit_of(a, media.visible(), 0) && has_commit_of(a, media.visible(), 1))
                both.push_back(media.visible());
        }
        a.world.stage(start, After::Kill);
        a.contents = kept;
        for (int i = 0; i < 2 && both.empty(); i++)
            a.map(i, ATO_READ_GATHER, ATO_NO_RTM);
    }
    return both[a.random.below(both.size())];
}

// What is there instead of the second file's pairing.
enum : uint64_t { NOTHING, BIRTH, ANOTHER_FILE, PAIRING };

// The second file is paired anew, under the same names; its journal was not there meanwhile.
void pair_anew(Actor &a, Disk &disk)
{
    std::map<std::string, Inode> journals;
    int own = disk.find(Disk::ROOT, ".ato");
    for (const auto &j : journals_in(disk)) {
        journals[j.first] = disk.at(j.second);
        disk.edit(own).names.erase(j.first);
    }
    a.world.stage(disk, After::PowerCut);
    Mapping *m = a.map(1, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 1);
    a.scatter(m, 6);
    if (a.random.one_in(2))
        a.world.die();
    else
        a.unmap(m, ATO_UNMAP_FAST);
    disk = a.world.look();
    for (const auto &j : journals)
        disk.edit(own).names[j.first] = disk.add(j.second);
}

// A dead process's journal names a pairing that is not there any more.
void before_gone_for(Actor &a, uint64_t instead)
{
    Disk disk = die_committed(a);
    int own = disk.find(Disk::ROOT, ".ato"), second = a.world.inode_of(1);
    std::string name = std::to_string(a.world.number_of(1));
    Found first = read_file(disk, a.world.inode_of(0), a.world.number_of(0));
    if (!first.damage.empty())
        throw Violation("after a cut in a commit: " + first.damage);
    a.contents = {first.content, disk.at(second).content()};
    if (instead == ANOTHER_FILE) {
        give_number_on(a, disk, 1);
    } else {
        disk.edit(second).attribute.clear();
        disk.edit(own).names.erase(name);
        disk.edit(own).names.erase(name + ".manifest");
    }
    if (instead == BIRTH)
        disk.edit(own).names[name + ".manifest"] = disk.add({});
    else if (instead == PAIRING)
        pair_anew(a, disk);
    a.world.stage(disk, loss_of(a.domain) == Loss::Process ? After::Kill : After::PowerCut);
}

// Taken away by hand, perhaps with a birth in its place that was cut; or the file is another one.
void before_gone(Actor &a)
{
    before_gone_for(a, a.random.below(PAIRING));
}

void before_anew(Actor &a)
{
    before_gone_for(a, PAIRING);
}

// ---- writes by others ----

// The state of a file in its manifest.
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

// Another program writes to a file that is not mapped, and is noticed; what it did is undone, mtime
// and all, and the file is what it was. Its clock may stand still since before the first map, which
// is how a coarse one looks.
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

// The file was written and unmapped fast, or its user died and the next one unmapped it; at any
// moment of that the power may have gone, and then another program wrote. Where the manifest says
// `clean`, that has to be noticed. Where it does not, it cannot be: nothing is tried then.
void before_meddling(Actor &a)
{
    Time first = a.world.time_of(0);
    mapped(a, ATO_NO_RTM);
    if (a.random.one_in(2)) {
        a.world.die();
        a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    }
    Media media(a.world.look(), loss_of(a.domain), a.domain != ATO_DOMAIN_MSYNC);
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
    for (const Disk &image : images) { // the last one holds everything
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

// Mapped in domain process, which flushes nothing, by somebody who died or unmapped; then in another.
void change_domain(Actor &a, bool dies)
{
    a.allow({}); // a power cut in between may take anything: not looked at
    a.mute = true;
    Mapping *m = a.world.map(0, ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_NO_RTM);
    a.scatter(m, 4);
    a.deploy(m, 0, 2 * PAGE); // bytes in both files
    if (dies)
        a.world.die();
    else
        a.unmap(m, ATO_UNMAP_FAST);
    a.mute = false;
    set_thread_number(get_thread_number() + 50);
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

// Two died one after the other, at any moments: one that wrote a little, and one that unmapped
// what it had not looked at.
void die_twice(Actor &a, uint64_t at)
{
    set_thread_number(get_thread_number() + 50);
    a.allow({}); // either outcome is right, until somebody has seen one
    a.mute = true;
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    if (a.random.one_in(2))
        a.world.cut_short(1, Kind::Store); // the word can be seen
    else
        a.world.cut_short(3 + a.random.below(5));
    a.write(m, at, 1 + a.random.below(130));
    a.world.die();
    set_thread_number(get_thread_number() + 1);
    m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    bool streams = a.domain == ATO_DOMAIN_PMEM || a.domain == ATO_DOMAIN_EADR;
    if (a.random.one_in(2))
        a.world.cut_short(1, streams ? Kind::Stream : Kind::Store); // the record can be seen
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

void two_dead(Actor &a)
{
    die_twice(a, a_page(a) + a.random.below(3000));
}

void before_commit(Actor &a)
{
    a.write(mapped(a, ATO_NO_RTM), PAGE - 10, 20); // there is a journal
}

// One died at any moment of a commit; another recovers, and works where it was.
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

// The same in a deploy.
void dead_in_deploy(Actor &a)
{
    uint64_t page = a_page(a);
    set_thread_number(get_thread_number() + 50);
    if (a.random.one_in(2))
        a.world.cut_short(1, Kind::Store); // the word can be seen
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

// ---- two meta pages ----

// All that is done is done near the place where the chunks meet; the rest is as it was.
uint64_t near_seam(Actor &a, uint64_t bytes)
{
    return CHUNK - PAGE - bytes / 2 + a.random.below(2 * PAGE);
}

void before_chunks(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    for (int i = 0; i < 6; i++) {
        uint64_t n = 1 + a.random.below(a.random.one_in(3) ? 2 * PAGE : 700);
        a.write(m, near_seam(a, n), n);
    }
    litter_journals(a);
}

// Commits whose words lie in both meta pages.
void write_over_chunks(Actor &a)
{
    uint64_t left = 1 + a.random.below(90);
    a.write(the(a), CHUNK - left, left + 1 + a.random.below(90));
    a.write(the(a), CHUNK - PAGE - a.random.below(PAGE), 3 * PAGE);
    a.write(the(a), CHUNK + a.random.below(PAGE), 1 + a.random.below(2 * PAGE));
    a.write(the(a), CHUNK - 3, 3);
}

void deploy_over_chunks(Actor &a)
{
    a.deploy(the(a), CHUNK - PAGE, 2 * PAGE);
    a.write(the(a), CHUNK - 100, 300);
    a.deploy(the(a), 0, the(a)->bytes);
}

void unmap_chunks(Actor &a)
{
    a.unmap(the(a), ATO_UNMAP_FAST);
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, CHUNK - 30, 100);
    a.unmap(m, ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

void before_chunks_two_dead(Actor &a)
{
    before_chunks(a);
    a.unmap(the(a), ATO_UNMAP_FAST);
}

void chunks_two_dead(Actor &a)
{
    die_twice(a, CHUNK + a.random.below(3 * PAGE));
}

// ---- several threads ----

void before_threads(Actor &a)
{
    mapped(a, 0, a.random.one_in(2) ? ATO_READ_GATHER : ATO_READ_LAZY);
}

// Writes and reads of overlapping places in one page.
void threads_in_page(Actor &a)
{
    uint64_t at = a_page(a) + a.random.below(3000);
    std::vector<std::vector<Step>> threads(3);
    for (auto &steps : threads)
        for (int i = 0; i < 2; i++)
            steps.push_back({Step::Write, at + a.random.below(200), 1 + a.random.below(250)});
    threads[0].push_back({Step::Read, at, 400});
    threads[1].insert(threads[1].begin() + 1, {Step::Read, at, 400});
    run_threads(a, threads);
}

// Operations that share some of their pages.
void threads_across_pages(Actor &a)
{
    std::vector<std::vector<Step>> threads(3);
    for (auto &steps : threads)
        for (int i = 0; i < 2; i++) {
            uint64_t n = 1 + a.random.below(a.random.one_in(3) ? 100 : PAGE + 300);
            steps.push_back({Step::Write, PAGE / 2 + a.random.below(PAGE), n});
        }
    threads[a.random.below(3)].push_back({Step::Read, 0, 3 * PAGE});
    threads[0].insert(threads[0].begin(), {Step::Read, PAGE / 2, 2 * PAGE});
    run_threads(a, threads);
}

// Others look again and again at what one writes: what they saw stays.
void threads_looking(Actor &a)
{
    uint64_t at = a_page(a) + a.random.below(3900);
    std::vector<Step> looks(6, {Step::Read, at, 8});
    run_threads(
        a, {{{Step::Write, at, 8}, {Step::Write, at, 30}, {Step::Write, at, 8}}, looks, looks});
}

// One commits several pages and goes; the others work on them.
void threads_handing_over(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(100);
    run_threads(a, {{{Step::Write, at, 200}},
                    {{Step::Write, at + 10, 80}, {Step::Write, at - 20, 30}},
                    {{Step::Write, PAGE + 20, 50}, {Step::Write, at, 190}}});
}

// Commits that have nothing to do with one another, at the same time: several lanes.
void threads_apart(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(60);
    run_threads(a, {{{Step::Write, at, 100}, {Step::Write, at + 20, 100}},
                    {{Step::Write, 3 * PAGE - 50, 90}, {Step::Write, 3 * PAGE - 30, 90}}});
}

// Two files that share a journal; now and then nobody has made it yet.
void before_two_threads(Actor &a)
{
    before_two(a);
    if (a.random.one_in(2))
        return;
    for (int i = 0; i < 2; i++)
        a.unmap(the(a), ATO_UNMAP_FAST);
    for (int i = 0; i < 2; i++)
        a.map(i, ATO_READ_GATHER, ATO_NO_RTM);
}

// Commits of several pages to two files at once.
void threads_two_files(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(60);
    std::vector<std::vector<Step>> threads(2);
    for (size_t i = 0; i < 2; i++)
        for (uint64_t page = 0; page < 2; page++)
            threads[i].push_back({Step::Write, at + page * PAGE, 62 + a.random.below(300), i});
    threads[a.random.below(2)].push_back({Step::Read, 0, 3 * PAGE, a.random.below(2)});
    run_threads(a, threads);
}

// One unmaps its file and maps it again, while the other is in commits to its own.
void threads_mapping_anew(Actor &a)
{
    uint64_t at = PAGE - 1 - a.random.below(60);
    size_t stays = a.random.below(2), goes = 1 - stays;
    run_threads(a, {{{Step::Write, at, 100, stays},
                     {Step::Write, at + 20, 100, stays},
                     {Step::Write, at + PAGE, 100, stays},
                     {Step::Read, 0, 3 * PAGE, stays}},
                    {{Step::Write, at, 90, goes},
                     {Step::Remap, 0, 0, goes},
                     {Step::Write, at + 30, 90, goes}}});
}

// Readers that bring home, and deploys, beside writers.
void threads_deploying(Actor &a)
{
    uint64_t at = a.random.below(2 * PAGE);
    run_threads(a, {{{Step::Write, at, 300}, {Step::Write, at + 200, PAGE}},
                    {{Step::Deploy, 0, 3 * PAGE}, {Step::Write, at + 100, 200}},
                    {{Step::Read, at, 500}, {Step::Read, 0, 4 * PAGE}}});
}

} // namespace

const std::vector<Case> &all_cases()
{
    constexpr uint64_t ORDERS = 40;
    static const std::vector<Case> cases = {
        {"write, aligned slices", ALL, {SIZE}, before_plain, write_aligned},
        {"write, 1 byte", ALL, {SIZE}, before_plain, write_byte},
        {"write, across slices", ALL, {SIZE}, before_plain, write_across},
        {"write, page and file end", ALL, {SIZE}, before_plain, write_ends},
        {"write, pages, RTM", RTM, {SIZE}, before_rtm, write_pages},
        {"write, pages, journal", ALL, {SIZE}, before_plain, write_pages},
        {"write, two pages' seam", ALL, {SIZE}, before_old_journal, write_seam},
        {"write, many pages", ALL, {48 * PAGE}, before_plain, write_long},
        {"write, longer list", COSTLY, {280 * PAGE}, before_plain, write_longer},
        {"write, equal skipped", ALL, {SIZE}, before_plain, write_equal},
        {"fill", ALL, {SIZE}, before_plain, fill},
        {"copy between mappings", ALL, {SIZE, SIZE}, before_two, copy},
        {"writes to two files", ALL, {SIZE, SIZE}, before_two, two_files},
        {"eager write", ALL, {SIZE}, before_plain, write_eager},
        {"deploy", ALL, {SIZE}, before_plain, deploy},
        {"eager policy", ALL, {SIZE}, before_eager, write_eager},
        {"lazy read", ALL, {SIZE}, before_lazy, read_lazily},
        {"unmap fast, map again", ALL, {SIZE}, before_plain, unmap_fast},
        {"unmap spatial", ALL, {SIZE}, before_plain, unmap_spatial},
        {"first map", ALL, {SIZE}, nullptr, first_map},
        {"journal made, removed", ALL, {SIZE}, before_no_journal, journal},
        {"recovery", ALL, {SIZE, SIZE}, before_recovery, recovery},
        {"pairing gone", ALL, {SIZE, SIZE}, before_gone, recovery},
        {"paired anew", ALL, {SIZE, SIZE}, before_anew, recovery},
        {"written by others", ALL, {SIZE}, before_meddling, meddling},
        {"inode number reused", ALL, {SIZE}, before_reuse, reuse},
        {"domain changed, killed", DURABLE, {SIZE}, nullptr, change_domain_of_dead},
        {"domain changed, unmapped", DURABLE, {SIZE}, nullptr, change_domain_of_unmapped},
        {"two dead", ALL, {SIZE}, before_two_dead, two_dead},
        {"dead in a commit", ALL, {SIZE}, before_commit, dead_in_commit},
        {"dead in a deploy", ALL, {SIZE}, before_plain, dead_in_deploy},
        {"two chunks, writes", COSTLY, {TWO_CHUNKS}, before_chunks, write_over_chunks},
        {"two chunks, deploy", COSTLY, {TWO_CHUNKS}, before_chunks, deploy_over_chunks},
        {"two chunks, unmap", COSTLY, {TWO_CHUNKS}, before_chunks, unmap_chunks},
        {"two chunks, two dead", COSTLY, {TWO_CHUNKS}, before_chunks_two_dead, chunks_two_dead},
        {"threads, one page", ALL, {SIZE}, before_threads, threads_in_page, ORDERS},
        {"threads, looking", ALL, {SIZE}, before_threads, threads_looking, ORDERS},
        {"threads, several pages", ALL, {SIZE}, before_threads, threads_across_pages, ORDERS},
        {"threads, handing over", ALL, {SIZE}, before_threads, threads_handing_over, ORDERS},
        {"threads, apart", ALL, {SIZE}, before_threads, threads_apart, ORDERS},
        {"threads, two files", COSTLY, {SIZE, SIZE}, before_two_threads, threads_two_files, ORDERS},
        {"threads, mapping anew",
         COSTLY,
         {SIZE, SIZE},
         before_two_threads,
         threads_mapping_anew,
         ORDERS},
        {"threads, deploys", ALL, {SIZE}, before_threads, threads_deploying, ORDERS},
    };
    return cases;
}

} // namespace crash
