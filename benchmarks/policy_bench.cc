/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which read policy wins where?
 *
 *   mix/LOCALITY/SIZE/READS     reads and writes of one thread, in pmem
 *
 *   LOCALITY  uniform    over the whole file
 *             hot        90 % of the operations go to 5 % of the pages, which lie scattered
 *             recent     writes go anywhere, reads to what one of the last 32 writes wrote
 *   SIZE      256, 4K, 16K
 *                        of reads and writes, at multiples of it
 *             256-4K     writes of 256 bytes, reads of the whole page
 *   READS     0.25, 1, 4, 16, 64
 *                        reads for each write. They come in turns: 16 writes, then the reads for those.
 *                        That is short against the number of pages, so that a page meets nearly the
 *                        order that single draws would give it, and long against two looks at the clock.
 *
 * Sides: the three policies, lazy first, to which the ratio is. Each has its own file and gets the same
 * operations; `ns` is of an operation of the mix. Of each side:
 *
 *   write_ns, read_ns    of a write, of a read; what a policy deploys is in the one that deploys
 *   media                bytes that reach the media for an operation of the mix
 *   deployed             slices brought home for an operation of the mix
 *
 * Where a slice lies when it is written or read is what the policies differ in, so each mix begins on
 * files that it has been at work on for a while (settle()).
 */
#include "libato.h"
#include "measure.h"
#include "world.h"

#include "reflection/format/layout.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace
{

using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;
using bench::Write;

/* ---- the mixes ---- */

constexpr unsigned BURST = 16;  /* writes in a row */
constexpr unsigned LATELY = 32; /* writes that reads of `recent` look back */

enum Locality { UNIFORM, HOT, RECENT };

struct Size {
    const char *name;
    uint32_t write, read;
};

struct Reads {
    const char *name;
    unsigned of_burst;
};

const char *const localities[] = {"uniform", "hot", "recent"};
const Size sizes[] = {
    {"256", 256, 256}, {"4K", 4096, 4096}, {"16K", 16384, 16384}, {"256-4K", 256, 4096}};
const Reads read_counts[] = {
    {"0.25", BURST / 4}, {"1", BURST}, {"4", BURST * 4}, {"16", BURST * 16}, {"64", BURST * 64}};

struct Mix {
    Locality locality;
    const Size *size;
    const Reads *reads;

    std::string name() const
    {
        return std::string("mix/") + localities[locality] + "/" + size->name + "/" + reads->name;
    }

    size_t cycle() const
    {
        return BURST + reads->of_burst;
    }

    /* The units that its operations are spread over: pages, or runs of pages if an operation has more. */
    uint64_t unit() const
    {
        return std::max<uint64_t>(PAGE_BYTES, size->read);
    }
};

/* The operations of a mix, a turn at a time. */
class Stream
{
  public:
    Stream(bench::World *world, const Mix &mix) : mix(mix), world_(world)
    {
    }

    const Mix mix;
    std::vector<Write> writes;   /* a burst after the other */
    std::vector<uint64_t> reads; /* offsets; those of the first burst, of the second, ... */

    size_t operations() const
    {
        return writes.size() + reads.size();
    }

    void next()
    {
        writes.clear();
        reads.clear();
        uint64_t cycles = std::max<uint64_t>(1, settings.batch / mix.cycle());
        for (uint64_t cycle = 0; cycle < cycles; cycle++) {
            for (unsigned i = 0; i < BURST; i++)
                add_write();
            for (unsigned i = 0; i < mix.reads->of_burst; i++)
                reads.push_back(mix.locality == RECENT ? place_of_late() : place(mix.size->read));
        }
    }

  private:
    uint64_t random(uint64_t below)
    {
        return world_->random()() % below;
    }

    void add_write()
    {
        uint64_t offset = place(mix.size->write);
        writes.push_back({offset, mix.size->write, world_->random_source()});
        late_[written_++ % LATELY] = offset;
    }

    uint64_t place_of_late()
    {
        uint64_t offset = late_[random(std::min<uint64_t>(written_, LATELY))];
        return offset / mix.size->read * mix.size->read;
    }

    /* Of each twenty units one is hot, now this, now that. */
    uint64_t hot_unit(uint64_t units)
    {
        uint64_t twenty = random(units / 20), hot = twenty % 20;
        return twenty * 20 + (random(10) ? hot : (hot + 1 + random(19)) % 20);
    }

    uint64_t place(uint32_t bytes)
    {
        uint64_t units = settings.file_bytes() / mix.unit();
        uint64_t unit = mix.locality == HOT ? hot_unit(units) : random(units);
        return unit * mix.unit() + random(mix.unit() / bytes) * bytes;
    }

    bench::World *world_;
    std::array<uint64_t, LATELY> late_{};
    uint64_t written_ = 0;
};

/* ---- the files ---- */

struct Policy {
    const char *name;
    int number;
};

const Policy policies[] = {
    {"lazy", ATO_READ_LAZY}, {"gather", ATO_READ_GATHER}, {"eager", ATO_READ_EAGER}};
constexpr size_t SIDES = std::size(policies);

struct Files {
    std::array<bench::Libato *, SIDES> sides;
    std::unique_ptr<bench::World> world;
    bool settled = false;
    Mix mix{}; /* if so, to which */
};

std::unique_ptr<Files> files;

Files &the_files()
{
    if (files)
        return *files;
    auto made = std::make_unique<Files>();
    std::vector<std::unique_ptr<bench::Backend>> sides;
    for (size_t i = 0; i < SIDES; i++) {
        bench::LibatoOptions options;
        options.read_policy = policies[i].number;
        options.name = policies[i].name;
        auto side = bench::make_libato(options, settings.file_bytes());
        made->sides[i] = side.get();
        sides.push_back(std::move(side));
    }
    made->world = std::make_unique<bench::World>(std::move(sides), settings.file_bytes());
    made->world->fill_at_random();
    files = std::move(made);
    return *files;
}

/* ---- the timed thing ---- */

struct Times {
    double writes = 0, reads = 0; /* ns of all of a turn */
};

Times run_turn(bench::Libato *side, const char *source, const Stream &stream)
{
    alignas(64) static char buffer[bench::MAX_WRITE];
    const Write *write = stream.writes.data();
    const uint64_t *read = stream.reads.data();
    Times times;
    while (write < stream.writes.data() + stream.writes.size()) {
        times.writes += bench::ns_of([&] { side->write(source, write, BURST); });
        write += BURST;
        times.reads += bench::ns_of([&] {
            for (unsigned i = 0; i < stream.mix.reads->of_burst; i++)
                side->read(buffer, *read++, stream.mix.size->read);
        });
    }
    return times;
}

void run_all(Files *f, const Stream &stream)
{
    for (bench::Libato *side : f->sides)
        run_turn(side, f->world->source(), stream);
}

/* ---- files that are used to a mix ---- */

/* Everything home, then half of the places that a write may have written, at random: bitmaps at random,
 * but no finer than the writes are. (Where nothing deploys, what finer writes left would stay.) */
void scatter(Files *f, uint32_t bytes)
{
    std::vector<Write> writes;
    for (uint64_t offset = 0; offset < settings.file_bytes(); offset += bytes)
        if (f->world->random()() & 1)
            writes.push_back({offset, bytes, f->world->random_source()});
    for (bench::Libato *side : f->sides) {
        bench::stop_if_asked();
        side->deploy();
        side->write(f->world->source(), writes.data(), writes.size());
    }
}

/* So many operations for each unit of the file. A page that is written in parts keeps its old state
 * longer. */
void work(Files *f, const Mix &mix)
{
    uint64_t each = mix.size->write < PAGE_BYTES ? 32 : 16;
    uint64_t operations = settings.file_bytes() / mix.unit() * each;
    Stream stream(f->world.get(), mix);
    for (uint64_t done = 0; done < operations; done += stream.operations()) {
        bench::stop_if_asked();
        stream.next();
        run_all(f, stream);
    }
}

/*
 * Brings the pages into the states that the mix leaves them in. To a page by itself hot and uniform are
 * the same mix, only faster or slower: so the uniform one settles both, where the hot one would take
 * long to reach most pages. For recent it is a beginning.
 */
void settle(Files *f, const Mix &mix)
{
    bool same = f->settled && f->mix.size == mix.size && f->mix.reads == mix.reads;
    if (same && (f->mix.locality == RECENT) == (mix.locality == RECENT))
        return;
    if (!same || mix.locality != RECENT) {
        scatter(f, mix.size->write);
        work(f, {UNIFORM, mix.size, mix.reads});
    }
    if (mix.locality == RECENT)
        work(f, mix);
    f->mix = mix;
    f->settled = true;
}

/* ---- what ato_stat() counts ---- */

using Counts = std::array<struct ato_stat, SIDES>;

Counts counts_of(const Files &f)
{
    Counts counts;
    for (size_t i = 0; i < SIDES; i++)
        counts[i] = f.sides[i]->stat();
    return counts;
}

/* Reports them among the values; counts that are not noise must match the policy. */
void add_counts(const Mix &mix, const Counts &before, const Counts &after,
                std::vector<Values> *values)
{
    for (size_t i = 0; i < SIDES; i++) {
        const struct ato_stat &b = before[i], &a = after[i];
        uint64_t writes = a.writes - b.writes, reads = a.reads - b.reads;
        uint64_t deployed = a.deployed_slices - b.deployed_slices;
        if (writes == 0 || writes * mix.reads->of_burst != reads * BURST)
            fail("%s: ato_stat() counts %" PRIu64 " writes and %" PRIu64 " reads",
                 mix.name().c_str(), writes, reads);
        uint64_t written = writes * mix.size->write / SLICE_BYTES;
        if ((policies[i].number == ATO_READ_GATHER && deployed != 0) ||
            (policies[i].number == ATO_READ_EAGER && deployed != written))
            fail("%s: %s deployed %" PRIu64 " of %" PRIu64 " slices written", mix.name().c_str(),
                 policies[i].name, deployed, written);
        auto of_all = [&](uint64_t n) {
            return static_cast<double>(n) / static_cast<double>(writes + reads);
        };
        (*values)[i]["media"] = of_all(a.bytes_to_media - b.bytes_to_media);
        (*values)[i]["deployed"] = of_all(deployed);
    }
}

/* ---- the cases ---- */

std::vector<Values> repeat(const Mix &mix)
{
    Files &f = the_files();
    settle(&f, mix);
    Stream stream(f.world.get(), mix);
    bench::Medians split;
    Counts before = counts_of(f);
    std::vector<Values> values = bench::interleave(
        SIDES, settings.rounds(), [&] { stream.next(); },
        [&](size_t side) {
            Times t = run_turn(f.sides[side], f.world->source(), stream);
            split.add(side, "write_ns", t.writes / static_cast<double>(stream.writes.size()));
            split.add(side, "read_ns", t.reads / static_cast<double>(stream.reads.size()));
            return (t.writes + t.reads) / static_cast<double>(stream.operations());
        });
    add_counts(mix, before, counts_of(f), &values);
    std::vector<Values> parts = split.medians(SIDES);
    for (size_t side = 0; side < SIDES; side++)
        values[side].insert(parts[side].begin(), parts[side].end());
    return values;
}

Case mix_case(const Mix &mix)
{
    Case c;
    c.name = mix.name();
    for (const Policy &policy : policies)
        c.sides.push_back(policy.name);
    c.repeat = [mix] { return repeat(mix); };
    c.promise = [](const std::string &) { return std::string("pmem: atomic and durable"); };
    return c;
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const Size &size : sizes)
        for (const Reads &reads : read_counts)
            for (Locality locality : {UNIFORM, HOT, RECENT})
                all.push_back(mix_case({locality, &size, &reads}));
    return all;
}

/* ---- the matrix below the table ---- */

/* The policy that is quickest in a mix, and its ratio to lazy; "-" if the mix was not run. */
std::string winner(const Mix &mix, const bench::Rows &rows)
{
    std::string name = "-";
    double best = 0;
    for (const Policy &policy : policies) {
        auto row = rows.find(mix.name() + "/" + policy.name);
        if (row == rows.end() || (name != "-" && row->second.at("ratio") >= best))
            continue;
        best = row->second.at("ratio");
        name = policy.name;
    }
    if (name == "-")
        return name;
    char text[32];
    std::snprintf(text, sizeof(text), "%s %.2f", name.c_str(), best);
    return text;
}

void print_winners(const bench::Rows &rows)
{
    std::printf("\nThe quickest policy and its ratio to lazy\n%-16s", "reads per write");
    for (const Reads &reads : read_counts)
        std::printf("  %-13s", reads.name);
    for (Locality locality : {UNIFORM, HOT, RECENT})
        for (const Size &size : sizes) {
            std::string row = std::string(localities[locality]) + "/" + size.name;
            std::printf("\n%-16s", row.c_str());
            for (const Reads &reads : read_counts)
                std::printf("  %-13s", winner({locality, &size, &reads}, rows).c_str());
        }
    std::printf("\n");
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Reads and writes of a file under each read policy; the ratio is to lazy.",
                       {256, 40000, 2080},
                       [] { return settings.file_bytes() * SIDES * 21 / 10 + (64ull << 20); },
                       cases,
                       [] { bench::end_files(&files); },
                       print_winners});
}
