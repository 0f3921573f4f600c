/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far is an atomic write from the fastest write that the medium allows?
 *
 *   write/DOMAIN/SIZE     at random offsets, aligned to the size, of a file whose bitmaps are at random
 *     64 ... 4K           one page
 *     8K                  two pages: committed by the journal in pmem, by a hardware transaction in
 *                         process
 *   rewrite/pmem/4K       whole pages, of which 128 bytes differ; few pages, which stay in the caches
 *   threads/pmem/SIZE     two threads on two halves of a file, against one on one half
 *
 * Sides of write:
 *
 *   floor        what durability alone costs: the ratio's 1
 *   libato       ato_memcpy()
 *   libpmemobj   a transaction (pmem only)
 *   memcpy       what programs do today; promises nothing
 *
 * Sides of rewrite: ato_memcpy() as it is, which the ratio is to, and with ATO_SKIP_EQUAL. Of threads:
 * floor and libato, each with one thread and with two; `scaling` is how much more two do in the same
 * time, `to_floor` how libato's compares with the floor's.
 *
 * `media` are the bytes that reach the media for a write, as ato_stat() counts them. At the end every
 * side must hold the same file. That libato's flushes and fences are there is not seen here: without
 * them it would only be faster.
 */
#include "libato.h"
#include "measure.h"
#include "plain.h"
#include "world.h"

#include "reflection/format/layout.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace
{

using bench::Backend;
using bench::Case;
using bench::Domain;
using bench::fail;
using bench::settings;
using bench::Values;
using bench::Write;

enum Side { FLOOR, LIBATO, MEMCPY, LIBPMEMOBJ };

/* ---- the files ---- */

struct Files {
    Domain domain;
    bench::Libato *libato;
    std::unique_ptr<bench::World> world;
};

std::unique_ptr<Files> files; /* of one domain at a time: they take five times the file */

Files &files_of(Domain domain)
{
    if (files && files->domain == domain)
        return *files;
    bench::end_files(&files); /* first: there may be no space for two */
    std::vector<std::unique_ptr<Backend>> sides;
    bench::LibatoOptions options;
    options.domain = domain;
    auto libato = bench::make_libato(options, settings.file_bytes());
    auto made = std::make_unique<Files>(Files{domain, libato.get(), nullptr});
    sides.push_back(
        bench::make_engine("floor", domain, engine::Unit::write, settings.file_bytes()));
    sides.push_back(std::move(libato));
    sides.push_back(bench::make_plain(settings.file_bytes()));
    if (domain == Domain::pmem)
        sides.push_back(
            bench::make_engine("pmemobj", domain, engine::Unit::write, settings.file_bytes()));
    made->world = std::make_unique<bench::World>(std::move(sides), settings.file_bytes());
    made->world->fill_at_random();
    made->libato->check_bitmaps_at_random();
    files = std::move(made);
    return *files;
}

/* ---- what ato_stat() counts ---- */

struct Counted {
    uint64_t writes, media_bytes, by_rtm, by_journal;
};

Counted counted(const bench::Libato &libato)
{
    struct ato_stat st = libato.stat();
    return {st.writes, st.bytes_to_media, st.commits_rtm, st.commits_journal};
}

/* The size of the lane of a journaled commit of two pages: its commit line, words, retirement. */
constexpr uint64_t LANE_BYTES = 64 + 2 * 16 + 8;

/* Values without noise: the writes since `before`, how they were committed, and the bytes that each wrote to
 * the media, `data` of them data. Reports them among the values. */
void check_counts(const char *name, const bench::Libato &libato, const Counted &before,
                  uint64_t asked, uint64_t data, Values *values)
{
    Counted now = counted(libato);
    uint64_t writes = now.writes - before.writes, bytes = now.media_bytes - before.media_bytes;
    auto of_all = [writes](uint64_t n) {
        return static_cast<double>(n) / static_cast<double>(writes);
    };
    if (writes != asked)
        fail("%s: %" PRIu64 " writes, ato_stat() counts %" PRIu64, name, asked, writes);
    uint64_t pages = (data + PAGE_BYTES - 1) / PAGE_BYTES;
    uint64_t by_rtm = now.by_rtm - before.by_rtm, by_journal = now.by_journal - before.by_journal;
    if (pages > 1 && by_rtm + by_journal != asked)
        fail("%s: %" PRIu64 " writes, %" PRIu64 " went by RTM and %" PRIu64 " by a lane", name,
             asked, by_rtm, by_journal);
    if (bytes != asked * (data + 8 * pages) + by_journal * LANE_BYTES)
        fail("%s: %.1f bytes to the media a write, not %" PRIu64, name, of_all(bytes),
             data + 8 * pages);
    (*values)["media"] = of_all(bytes);
    if (pages > 1) {
        (*values)["by_rtm"] = of_all(by_rtm);
        (*values)["by_journal"] = of_all(by_journal);
    }
}

/* ---- writes of one thread ---- */

double ns_per_write(Backend *side, const char *source, const std::vector<Write> &writes)
{
    return bench::ns_of([&] { side->write(source, writes.data(), writes.size()); }) /
           static_cast<double>(writes.size());
}

std::vector<Values> repeat_writes(const std::string &name, Domain domain, uint32_t bytes,
                                  size_t sides)
{
    Files &f = files_of(domain);
    std::vector<Write> writes;
    Counted before = counted(*f.libato);
    std::vector<Values> values = bench::interleave(
        sides, settings.rounds(), [&] { writes = f.world->random_writes(bytes, settings.batch); },
        [&](size_t side) { return ns_per_write(f.world->side(side), f.world->source(), writes); });
    check_counts(name.c_str(), *f.libato, before, (settings.rounds() + 1) * settings.batch, bytes,
                 &values[LIBATO]);
    return values;
}

Case write_case(Domain domain, const char *size, uint32_t bytes,
                const std::vector<bench::Goal> &goals)
{
    Case c;
    c.name = std::string("write/") + engine::name_of(domain) + "/" + size;
    c.sides = {"floor", "libato", "memcpy"};
    if (domain == Domain::pmem)
        c.sides.push_back("libpmemobj");
    c.goals = goals;
    c.repeat = [name = c.name, domain, bytes, sides = c.sides.size()] {
        return repeat_writes(name, domain, bytes, sides);
    };
    c.promise = [domain, sides = c.sides](const std::string &side) {
        size_t i = 0;
        while (sides[i] != side)
            i++;
        return std::string(engine::name_of(domain)) + ": " +
               files_of(domain).world->side(i)->guarantee();
    };
    return c;
}

/* ---- pages of which little changed ---- */

/* A program's cache of some pages: each write changes two slices of an image and writes all of it. */
class Rewriter
{
  public:
    enum { PAGES = 32, CHANGED = 128 };

    Rewriter(const char *name, unsigned flags) : images_(PAGES * PAGE_BYTES)
    {
        bench::LibatoOptions options;
        options.name = name;
        options.write_flags = flags;
        libato_ = bench::make_libato(options, PAGES * PAGE_BYTES);
        for (uint32_t page = 0; page < PAGES; page++)
            write_page(page);
    }

    void write(const char *source, const std::vector<Write> &changes)
    {
        for (const Write &w : changes) {
            std::memcpy(&images_[w.offset], source + w.source, w.bytes);
            /* No change is none: each of its slices has a number. */
            for (size_t i = 0; i < w.bytes; i += SLICE_BYTES, number_++)
                std::memcpy(&images_[w.offset + i], &number_, 8);
            write_page(static_cast<uint32_t>(w.offset / PAGE_BYTES));
        }
    }

    const bench::Libato &libato() const
    {
        return *libato_;
    }

    void check_content()
    {
        std::vector<char> found(images_.size());
        libato_->read(found.data(), 0, found.size());
        if (found != images_)
            fail("rewrite: %s holds other bytes than were written", libato_->name());
    }

  private:
    void write_page(uint32_t page)
    {
        Write w = {page * PAGE_BYTES, PAGE_BYTES, static_cast<uint32_t>(page * PAGE_BYTES)};
        libato_->write(images_.data(), &w, 1);
    }

    std::vector<char> images_;
    uint64_t number_ = 1;
    std::unique_ptr<bench::Libato> libato_;
};

std::vector<Values> repeat_rewrites()
{
    bench::World stream({}, Rewriter::PAGES * PAGE_BYTES);
    Rewriter plain("plain", 0), skipping("skip equal", ATO_SKIP_EQUAL);
    std::vector<Write> changes;
    Counted before = counted(skipping.libato());
    std::vector<Values> values = bench::interleave(
        2, settings.rounds(),
        [&] { changes = stream.random_writes(Rewriter::CHANGED, settings.batch); },
        [&](size_t side) {
            Rewriter *r = side == 0 ? &plain : &skipping;
            return bench::ns_of([&] { r->write(stream.source(), changes); }) /
                   static_cast<double>(changes.size());
        });
    check_counts("rewrite", skipping.libato(), before, (settings.rounds() + 1) * settings.batch,
                 Rewriter::CHANGED, &values[1]);
    plain.check_content();
    skipping.check_content();
    return values;
}

Case rewrite_case()
{
    Case c;
    c.name = "rewrite/pmem/4K";
    c.sides = {"plain", "skip_equal"};
    c.goals = {{"skip_equal", "ratio", 1.2}, {"skip_equal", "media", Rewriter::CHANGED + 8}};
    c.repeat = repeat_rewrites;
    c.promise = [](const std::string &) { return std::string("pmem: atomic and durable"); };
    return c;
}

/* ---- two threads ---- */

/* Both begin at once; the time until the later one is done, of one write of each. */
double ns_of_two(Backend *side, const char *source, const std::vector<Write> (&writes)[2])
{
    std::atomic<int> ready{0}, go{0};
    std::thread other([&] {
        ready = 1;
        while (!go) {
        }
        side->write(source, writes[1].data(), writes[1].size());
    });
    while (!ready) {
    }
    double ns = bench::ns_of([&] {
        go = 1;
        side->write(source, writes[0].data(), writes[0].size());
        other.join();
    });
    return ns / static_cast<double>(writes[0].size());
}

/* Sides: floor and libato by one thread, then by two. */
std::vector<Values> repeat_threads(uint32_t bytes)
{
    constexpr uint64_t LONGER = 10; /* rounds, so that starting a thread does not count */
    Files &f = files_of(Domain::pmem);
    const char *source = f.world->source();
    uint64_t half = settings.file_bytes() / 2, writes_each = settings.batch * LONGER;
    bench::Medians medians;
    std::vector<size_t> order = {0, 1, 2, 3};
    for (uint64_t round = 0; round <= std::max<uint64_t>(1, settings.rounds() / LONGER); round++) {
        bench::stop_if_asked();
        std::vector<Write> alone = f.world->random_writes(bytes, writes_each, 0, half);
        std::vector<Write> both[2] = {f.world->random_writes(bytes, writes_each, 0, half),
                                      f.world->random_writes(bytes, writes_each, half, half)};
        double ns[4];
        std::shuffle(order.begin(), order.end(), f.world->random());
        for (size_t i : order) {
            Backend *side = f.world->side(i % 2);
            ns[i] = i < 2 ? ns_per_write(side, source, alone) : ns_of_two(side, source, both);
        }
        /* So that all sides hold the same, whatever the order was. */
        for (Side side : {FLOOR, LIBATO, MEMCPY, LIBPMEMOBJ})
            for (auto *list : {&alone, &both[0], &both[1]})
                f.world->side(side)->fill(source, list->data(), list->size());
        if (round == 0)
            continue;
        double scaling[2] = {2 * ns[0] / ns[2], 2 * ns[1] / ns[3]};
        for (size_t i = 0; i < 4; i++)
            medians.add(i, "ns", ns[i]);
        medians.add(2, "scaling", scaling[0]);
        medians.add(3, "scaling", scaling[1]);
        medians.add(3, "to_floor", scaling[1] / scaling[0]);
    }
    return medians.medians(4);
}

Case threads_case(const char *size, uint32_t bytes)
{
    Case c;
    c.name = std::string("threads/pmem/") + size;
    c.sides = {"floor_1", "libato_1", "floor_2", "libato_2"};
    c.goals = {{"libato_2", "to_floor", 0.95, true}};
    c.repeat = [bytes] { return repeat_threads(bytes); };
    c.promise = [](const std::string &side) {
        return side[0] == 'f' ? std::string("pmem: durable; a crash tears it")
                              : std::string("pmem: atomic and durable");
    };
    return c;
}

std::vector<Case> cases()
{
    const std::vector<bench::Goal> close = {{"libato", "ratio", 1.15}};
    std::vector<Case> all = {write_case(Domain::pmem, "64", 64, close),
                             write_case(Domain::pmem, "256", 256, close),
                             write_case(Domain::pmem, "1K", 1024, close),
                             write_case(Domain::pmem, "4K", 4096, close),
                             write_case(Domain::pmem, "8K", 8192, {{"libato", "over_ns", 1200}}),
                             rewrite_case(),
                             write_case(Domain::process, "64", 64, {}),
                             write_case(Domain::process, "1K", 1024, {}),
                             write_case(Domain::process, "4K", 4096, {}),
                             write_case(Domain::process, "8K", 8192, {{"libato", "ratio", 1.3}})};
    if (std::thread::hardware_concurrency() > 1) /* scaling on one CPU says nothing */
        all.insert(all.begin(),
                   {threads_case("64", 64), threads_case("1K", 1024), threads_case("4K", 4096)});
    return all;
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Random writes into a file. Guarantees differ: only libato and libpmemobj\n"
                       "promise the same, in pmem.",
                       {1024, 200000, 1000},
                       [] { return settings.file_bytes() * 26 / 5 + (64ull << 20); },
                       cases,
                       [] { bench::end_files(&files); }});
}
