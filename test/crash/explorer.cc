// SPDX-License-Identifier: BSD-3-Clause
#include "explorer.h"

#include "demand.h"
#include "reader.h"

#include <algorithm>
#include <sstream>

namespace crash
{

namespace
{

// Can more be lost right before this event than at any later moment?
bool is_cut(const Event &e, Loss loss)
{
    bool orders = e.kind == Kind::Fence || e.kind == Kind::Sync || e.kind == Kind::SyncFile ||
                  e.kind == Kind::Allow;
    return orders || loss == Loss::Process || (loss == Loss::Cache && is_store(e));
}

// Takes the place of event and choice: the violation is in the life itself.
constexpr const char *ITSELF = "life";

std::string join(const std::string &a, const std::string &b)
{
    return a.empty() ? b : a + "." + b;
}

std::vector<std::string> split(const std::string &s)
{
    std::vector<std::string> parts;
    std::istringstream in(s);
    for (std::string part; std::getline(in, part, '.');)
        parts.push_back(part);
    return parts;
}

// The work after a crash depends only on its place.
uint64_t seed_of(uint64_t seed, const Place &place)
{
    return mix(seed ^ hash_bytes(place.event.data(), place.event.size())) ^
           hash_bytes(place.choice.data(), place.choice.size());
}

} // namespace

Explorer::Explorer(const Case &c, int d, bool is_sparse, uint64_t s, const std::string &f,
                   const Bounds &b, const Mutation &m)
    : what(c), domain(d), sparse(is_sparse), seed(s), folder(f), bounds(b), mutation(m),
      loss(loss_of(d)), luck(s)
{
}

Result Explorer::run()
{
    go();
    return std::move(result);
}

Result Explorer::replay(const Place &place, std::string &to)
{
    wanted_events = split(place.event);
    wanted_choices = split(place.choice);
    story = &to;
    go();
    return std::move(result);
}

bool Explorer::is_wanted(unsigned depth, const std::string &event, const std::string &choice) const
{
    return !story || (depth < wanted_events.size() && wanted_events[depth] == event &&
                      wanted_choices[depth] == choice);
}

// The recorded stores must give the real bytes; if not, a write went around the recorder.
void Explorer::honest(const Media &start, const Trace &trace)
{
    if (mutation.fault != Fault::None)
        return;
    Media media(start);
    for (const Event &e : trace)
        media.feed(e);
    Disk real = world->look();
    std::function<void(int, const std::string &)> compare = [&](int id, const std::string &path) {
        const Inode &r = real.at(id), &v = media.visible().at(id);
        if (r.names != v.names || r.size != v.size || r.attribute != v.attribute)
            throw Violation("the trace misses a change of " + path);
        for (const auto &name : r.names)
            if (name.first != "README") // its text is no content
                compare(name.second, path + "/" + name.first);
        if (!r.folder && r.size < (8u << 20) && r.content() != v.content())
            throw Violation("a store went past the recorder: the bytes of " + path +
                            " are not those of the trace");
        if (r.size >= (8u << 20)) // a large file is mostly holes: compared page by page
            for (uint64_t at = 0; at < r.size; at += PAGE) {
                auto a = r.pages.find(at / PAGE), b = v.pages.find(at / PAGE);
                uint64_t ha = a == r.pages.end() ? 0 : a->second->hash();
                uint64_t hb = b == v.pages.end() ? 0 : b->second->hash();
                if (ha != hb)
                    throw Violation("a store went past the recorder, to " + path);
            }
    };
    compare(Disk::ROOT, "");
}

void Explorer::go()
{
    World w(folder, what.sizes, seed, sparse);
    world = &w;
    standins::set_stored_log(what.stored);
    Place nowhere;
    if (progress)
        progress(nowhere);
    try {
        std::vector<Bytes> contents;
        for (size_t i = 0; i < w.originals(); i++)
            contents.push_back(w.plain_content(static_cast<int>(i)));
        Actor actor(w, domain, seed, std::move(contents));
        set_thread_number(1);
        if (what.before)
            what.before(actor);
        Life life{{},
                  Media(w.look(), loss, domain != ATO_DOMAIN_DISK, mutation),
                  0,
                  nowhere,
                  standins::get_boot()};
        w.record(&life.trace);
        actor.allow_this();
        what.run(actor);
        w.record(nullptr);
        honest(life.start, life.trace);
        w.die();
        sweep(life);
    } catch (const Failure &f) {
        result.failures.push_back(f);
    } catch (const std::exception &e) {
        result.failures.push_back({nowhere, e.what()});
    }
    w.record(nullptr);
    world = nullptr;
}

void Explorer::sweep(const Life &life)
{
    Media media(life.start);
    std::vector<uint64_t> allowed;
    uint64_t version = ~0ull;
    for (size_t i = 0; i <= life.trace.size(); i++) {
        bool last = i == life.trace.size();
        if (!last && *life.trace[i].site) {
            result.sites.insert(life.trace[i].site);
            if (life.depth == 0)
                result.own_sites.insert(life.trace[i].site);
        }
        bool nothing_new = media.version() == version && loss == Loss::Power;
        bool moment = last || is_cut(life.trace[i], loss) || media.tender();
        if (!allowed.empty() && moment && !nothing_new) {
            version = media.version();
            cut(life, media, i, allowed);
        }
        if (!allowed.empty())
            kill(life, media, i, allowed);
        if (last)
            break;
        came_by |= mutation.fault != Fault::None && mutation.site == life.trace[i].site;
        media.feed(life.trace[i]);
        if (life.trace[i].kind == Kind::Allow) {
            allowed = life.trace[i].allowed;
            demand = life.trace[i].demand;
            std::sort(allowed.begin(), allowed.end());
            version = ~0ull;
        }
        if (!media.mixed().empty())
            throw Failure{{join(life.place.event, std::to_string(i)), join(life.place.choice, "0")},
                          "a line with cached and non-temporal stores in flight: " + media.mixed()};
    }
}

void Explorer::tell(const Life &life, size_t event, const std::vector<Unit> &units,
                    const std::vector<uint32_t> &choice)
{
    std::ostringstream out;
    out << "life " << life.depth << ", what was done before the crash:\n";
    for (size_t i = 0; i <= event && i < life.trace.size(); i++)
        out << (i == event ? "  under way  " : "  ") << i << "  " << describe(life.trace[i])
            << "\n";
    out << "the crash decides " << units.size() << " things:";
    for (size_t i = 0; i < choice.size(); i++)
        out << " " << choice[i] << "/" << units[i].choices - 1;
    *story += out.str() + "\n";
}

void Explorer::cut(const Life &life, Media &media, size_t event,
                   const std::vector<uint64_t> &allowed)
{
    bool live_here = chance(life);
    if (!story && (is_over() || (!live_here && !luck.one_in(bounds.apart))))
        return;
    const Event *next = event < life.trace.size() ? &life.trace[event] : nullptr;
    std::string at = std::to_string(event);
    uint64_t limit = life.depth ? bounds.life_images : bounds.images;
    Choices choices(media.units(next), seed ^ mix(event + 1) ^ mix(life.depth));
    std::vector<uint64_t> numbers;
    if (!life.depth && choices.all() && choices.all() <= bounds.whole)
        limit = choices.all();
    if (!story)
        numbers = choices.numbers(limit);
    else if (life.depth < wanted_events.size() && wanted_events[life.depth] == at &&
             wanted_choices[life.depth] != "k")
        numbers = {std::stoull(wanted_choices[life.depth])};
    After after = loss == Loss::Process ? After::Kill : After::PowerCut;
    uint64_t chosen = luck.next();
    for (size_t i = 0; i < numbers.size(); i++) {
        Disk image = media.image(choices.pick(numbers[i]));
        Place place = {join(life.place.event, at),
                       join(life.place.choice, std::to_string(numbers[i]))};
        bool live_on = live_here && i == chosen % numbers.size();
        if (story)
            tell(life, event, media.units(next), choices.pick(numbers[i]));
        visit(life, media, place, image, after, allowed, live_on);
    }
}

// The process dies right before this event: visible stores stay, and are still pending.
void Explorer::kill(const Life &life, Media &media, size_t event,
                    const std::vector<uint64_t> &allowed)
{
    std::string at = std::to_string(event);
    bool live_on = chance(life);
    if (loss == Loss::Process ||
        !(story ? is_wanted(life.depth, at, "k")
                : !is_over() && (live_on || luck.one_in(4 * bounds.apart))))
        return;
    Place place = {join(life.place.event, at), join(life.place.choice, "k")};
    if (story)
        tell(life, event, {}, {});
    visit(life, media, place, media.visible(), After::Kill, allowed, live_on);
}

// Does a life begin at this moment? The bounds give the number for a trace, at random places.
bool Explorer::chance(const Life &life)
{
    uint64_t budget = life.depth ? bounds.inner_lives : bounds.lives;
    uint64_t moments = life.trace.size() + 1;
    if (before_mutation())
        budget *= 4; // only lives that reach the place are explored
    return luck.below(moments) < budget;
}

void Explorer::visit(const Life &life, Media &media, const Place &place, const Disk &image,
                     After after, const std::vector<uint64_t> &allowed, bool live_on)
{
    uint64_t hash = image.hash(), key = hash + demand.plain + 2 * (after == After::Kill);
    for (uint64_t a : allowed)
        key = mix(key ^ a);
    if (progress)
        progress(place);
    bool ends = !story || wanted_events.size() == life.depth + 1;
    bool is_new = seen.insert(key).second;
    result.images.insert(hash);
    Place at = place;
    try {
        if (is_new && ends && !before_mutation())
            recover(life, image, after, read_raw(image, allowed), seed_of(seed, place));
        if (life.depth + 1 < bounds.depth && (story ? !ends : live_on)) {
            at = {join(place.event, ITSELF), join(place.choice, ITSELF)};
            if (progress)
                progress(at);
            live(life, media, place, image, after, allowed);
        }
    } catch (const Violation &v) {
        world->record(nullptr);
        world->die();
        if (story && at.event != place.event)
            *story += "what is wrong is not the crash, but the life after it:\n";
        throw Failure{at, v.what()};
    }
}

Found Explorer::look_at(const Disk &image, int file) const
{
    return read_file(image, world->inode_of(file), world->number_of(file), world->prefers_files());
}

std::vector<Found> Explorer::read_raw(const Disk &image, const std::vector<uint64_t> &allowed)
{
    std::vector<Found> all;
    std::vector<Bytes> contents;
    for (int i = 0; i < static_cast<int>(world->originals()); i++) {
        Found f = look_at(image, i);
        if (!f.damage.empty())
            throw Violation("the media hold " + f.damage);
        contents.push_back(f.content);
        all.push_back(std::move(f));
    }
    if (!std::binary_search(allowed.begin(), allowed.end(), hash_of(contents)))
        throw Violation(allowed.size() == 1
                            ? "the media do not hold the one content that was acknowledged"
                            : "the media hold neither the content before the operation nor the one "
                              "after it");
    std::string broken = broken_demand(image, demand);
    if (!broken.empty())
        throw Violation(broken);
    for (size_t i = 0; what.use && i < contents.size(); i++) {
        const Bytes original = image.at(world->inode_of(static_cast<int>(i))).content();
        if (is_open_to_others(original) && unmasked(original) != unmasked(contents[i]))
            throw Violation("SQLite's own VFS would read a mixture of old and new pages");
    }
    return all;
}

void Explorer::recover(const Life &life, const Disk &image, After after,
                       const std::vector<Found> &found, uint64_t how)
{
    world->stage(image, after, life.boot);
    standins::set_random(how);
    Actor actor(*world, domain, how, found);
    int n = static_cast<int>(world->originals()), first = static_cast<int>(how >> 8 & 1);
    std::vector<Mapping *> mappings;
    auto map_all = [&](int policy) {
        mappings.clear();
        for (int i = 0; i < n; i++) {
            mappings.push_back(actor.map((i + first) % n, policy, ATO_NO_RTM));
            actor.check(mappings.back());
            result.recoveries++;
        }
    };
    if (what.use && how >> 10 & 1) {
        what.use->look(actor);
        for (int i = 0; i < n; i++)
            actor.know_guard(i, look_at(world->look(), i).guard);
        result.recoveries += static_cast<uint64_t>(n);
    }
    map_all(how >> 9 & 1 ? ATO_READ_GATHER : ATO_READ_LAZY);
    switch (how & 3) {
    case 0:
        for (Mapping *m : mappings)
            actor.unmap(m, ATO_UNMAP_SPATIAL);
        for (int i = 0; i < n; i++)
            if (unmasked(world->plain_content(i)) !=
                unmasked(actor.contents[static_cast<size_t>(i)]))
                throw Violation("made plain after the recovery, the file has another content");
        {
            Demand plain;
            plain.plain = plain.bare = true;
            if (!broken_demand(world->look(), plain).empty())
                throw Violation(
                    "made plain after the recovery, the file leaves other files behind");
        }
        break;
    case 1:
        for (Mapping *m : mappings)
            actor.unmap(m, ATO_UNMAP_FAST);
        map_all(ATO_READ_GATHER);
        break;
    case 2:
        world->die();
        map_all(ATO_READ_GATHER);
        break;
    }
    world->die();
}

// The mutation has not had an effect so far; it can only affect later events.
bool Explorer::before_mutation() const
{
    return mutation.fault != Fault::None && !came_by;
}

// Can the mutation show in this life? It can if this life or an earlier one reached its place.
bool Explorer::concerns(const Trace &trace) const
{
    return mutation.fault == Fault::None || came_by ||
           std::any_of(trace.begin(), trace.end(),
                       [&](const Event &e) { return mutation.site == e.site; });
}

// Reads everything, and does the next operation.
void Explorer::work_on(Actor &actor, Mapping *m, int policy)
{
    int n = static_cast<int>(world->originals());
    actor.check(m);
    // The content of one file does not decide that of the other files yet.
    if (n == 1)
        actor.allow_this();
    for (int i = 1; i < n; i++) {
        Mapping *other = actor.map((m->file + i) % n, policy, ATO_NO_RTM);
        actor.check(other);
    }
    actor.allow_this();
    if (m->bytes < PAGE + 64) // too small for the next operation
        actor.resize(m, m->bytes + PAGE + 64);
    uint64_t size = m->bytes, length;
    switch (actor.random.below(6)) {
    case 0: // the place of the interrupted operation, perhaps
    case 1:
        length = 1 + actor.random.below(300);
        actor.write(m, actor.random.below(size - length), length);
        length = 1 + actor.random.below(300);
        actor.write(m, actor.random.below(size - length), length);
        break;
    case 2:
        actor.write(m, PAGE - 64, 128);
        actor.write(m, 0, std::min<uint64_t>(size, 5 * PAGE));
        break;
    case 3:
        actor.deploy(m, 0, size);
        actor.write(m, actor.random.below(size - 100), 100);
        break;
    case 4:
        actor.write(m, 0, std::min<uint64_t>(size, 3 * PAGE));
        actor.unmap(m, ATO_UNMAP_FAST);
        break;
    case 5:
        actor.unmap(m, ATO_UNMAP_SPATIAL);
        break;
    }
}

// Does operations that change no content, without reading: so no read makes anything certain, and
// both outcomes of the interrupted operation stay right.
void Explorer::work_blindly(Actor &actor, Mapping *m)
{
    switch (actor.random.below(4)) {
    case 0:
        actor.deploy(m, 0, m->bytes);
        break;
    case 1: // a spatial unmap would change the content of a file with guarded bytes
        actor.unmap(m, actor.guards.count(m->file) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
        break;
    default:
        actor.unmap(m, ATO_UNMAP_FAST);
        break;
    }
}

// Another process maps the files, reads, and works; that life is cut in turn.
void Explorer::live(const Life &before, const Media &media, const Place &place, const Disk &image,
                    After after, const std::vector<uint64_t> &allowed)
{
    bool power = after == After::PowerCut || loss == Loss::Process;
    Life life{{},
              power ? Media(image, loss, domain != ATO_DOMAIN_DISK, mutation) : media,
              before.depth + 1,
              place,
              0};
    if (!power)
        life.start.process_died();
    // After a power cut the content is decided: it is the content that this process reads. The same
    // without a power cut in domain process.
    std::vector<Found> there;
    for (int i = 0; i < static_cast<int>(world->originals()); i++)
        there.push_back(look_at(image, i));
    world->stage(image, after, before.boot);
    life.boot = standins::get_boot();
    standins::set_random(seed_of(seed, place));
    set_thread_number(static_cast<int>(life.depth) + 1);
    Actor actor(*world, domain, seed_of(seed, place), there);
    world->record(&life.trace);
    actor.demand.kept = demand.kept;
    actor.allow(power ? std::vector<uint64_t>{hash_of(actor.contents)} : allowed);
    int file = static_cast<int>(actor.random.below(world->originals()));
    int policy = actor.random.one_in(2) ? ATO_READ_GATHER : ATO_READ_LAZY;
    const bool blindly = !power && actor.random.one_in(3);
    result.recoveries++;
    if (what.use && !blindly) {
        what.use->go_on(actor);
    } else {
        Mapping *m = actor.map(file, policy, ATO_NO_RTM);
        if (blindly)
            work_blindly(actor, m);
        else
            work_on(actor, m, policy);
    }
    world->record(nullptr);
    honest(life.start, life.trace);
    world->die();
    Demand outer = demand;
    bool came = came_by;
    if (concerns(life.trace))
        sweep(life);
    demand = outer;
    came_by = came;
    set_thread_number(static_cast<int>(before.depth) + 1);
}

} // namespace crash
