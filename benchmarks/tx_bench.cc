/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of a transaction. All in domain pmem, in files with random bitmaps.
 *
 *   tx/SIZE            32 writes of SIZE bytes at the beginnings of 32 pages, page after page through the
 *                      file: the micro-benchmark of vNVML (Chou, Jung, Reddy, Gratz and Voigt)
 *   tx/256/random      the same somewhere in 32 pages at random
 *   empty              begin and abort, nothing between
 *   one/1K             one write within a page
 *   together/256       32 writes on 32 pages at random: ways to make them durable
 *   read/1K            reads of pages that an open transaction of the same thread has written to
 *   modify/SIZE        two of 64 records, each at the beginning of two pages, in random order: reads, writes, and both
 *
 * Sides of tx, of which an operation is a transaction:
 *
 *   libpmemobj   a transaction: add_range and memcpy for each write, commit. The ratio's 1; `speed` is the
 *                work of another side in the same time
 *   libato       ato_tx_begin(), an ato_tx_memcpy() for each, ato_tx_commit()
 *   bound        see bound.h; `to_bound` is libato's time, relative to it
 *   memcpy       promises nothing
 *
 * Sides of modify: transactions that read two records, that write two, and that read two and then write them. All records were
 * just written, past the caches. `of_parts` is the time of the third, relative to that of the first two together.
 *
 * Sides of one: ato_memcpy() and a transaction with nothing else. Of together: a transaction, one
 * ato_writev(), an epoch (32 times ato_memcpy(), then ato_msync()), and 32 times ato_memcpy(), each durable
 * by itself. Of read: without the transaction, and with it.
 *
 * `media` are the bytes that reach the media for a transaction, as ato_stat() counts them. At the end the
 * first, second and last sides of tx must hold the same file.
 */
#include "bound.h"
#include "libato.h"
#include "measure.h"
#include "modify.h"
#include "plain.h"
#include "world.h"

#include "reflection/format/layout.h"

#include <algorithm>
#include <cinttypes>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace
{

using bench::Backend;
using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;
using bench::Write;

constexpr size_t WRITES = bench::Bound::MOST; /* of a transaction */

/* The size of the lane of a commit of that many words: its commit line, words, retirement. */
constexpr uint64_t LANE_BYTES = 64 + WRITES * 16 + 8;

/* ---- places ---- */

/* 32 writes for each of `batch` transactions, whose pages differ. */
class Stream
{
  public:
    Stream(bench::World *world, uint32_t bytes, bool sequential)
        : world_(world), bytes_(bytes), sequential_(sequential)
    {
    }

    std::vector<Write> next()
    {
        std::vector<Write> writes;
        while (writes.size() < settings.batch * WRITES)
            writes.push_back({offset(writes), bytes_, world_->random_source()});
        return writes;
    }

  private:
    uint64_t offset(const std::vector<Write> &before)
    {
        uint64_t pages = settings.file_bytes() / PAGE_BYTES;
        if (sequential_)
            return next_++ % pages * PAGE_BYTES;
        auto is_taken = [&](uint64_t page) {
            auto begin = before.end() - static_cast<ptrdiff_t>(before.size() % WRITES);
            return std::any_of(begin, before.end(),
                               [&](const Write &w) { return w.offset / PAGE_BYTES == page; });
        };
        uint64_t page;
        do
            page = world_->random()() % pages;
        while (is_taken(page));
        return page * PAGE_BYTES + world_->random()() % (PAGE_BYTES / bytes_) * bytes_;
    }

    bench::World *world_;
    uint32_t bytes_;
    bool sequential_;
    uint64_t next_ = 0;
};

/* ---- transactions of 32 writes ---- */

enum Side { LIBPMEMOBJ, LIBATO, MEMCPY, BOUND };

struct Files {
    bench::Libato *libato;
    std::unique_ptr<bench::World> world;
    std::unique_ptr<bench::Bound> bound;
};

std::unique_ptr<Files> files;

Files &get_files()
{
    if (files)
        return *files;
    std::vector<std::unique_ptr<Backend>> sides;
    auto libato = bench::make_libato({}, settings.file_bytes());
    auto made = std::make_unique<Files>(Files{libato.get(), nullptr, nullptr});
    sides.push_back(bench::make_engine("pmemobj", bench::Domain::pmem, engine::Unit::sync,
                                       settings.file_bytes()));
    sides.push_back(std::move(libato));
    sides.push_back(bench::make_plain(settings.file_bytes()));
    made->world = std::make_unique<bench::World>(std::move(sides), settings.file_bytes());
    made->world->fill_at_random();
    made->libato->check_bitmaps_at_random();
    made->bound = std::make_unique<bench::Bound>(settings.file_bytes());
    files = std::move(made);
    return *files;
}

/* ns of a transaction. */
template <class Writer>
double ns_of_all(Writer *writer, const char *source, const std::vector<Write> &writes)
{
    double ns = bench::ns_of([&] {
        for (size_t i = 0; i < writes.size(); i += WRITES)
            writer->write_at_once(source, &writes[i], WRITES);
    });
    return ns * WRITES / static_cast<double>(writes.size());
}

/* Values without noise: how the transactions since `before` were committed, and the bytes that each wrote to
 * the media. */
void check_counts(const std::string &name, const struct ato_stat &before,
                  const struct ato_stat &now, uint64_t bytes, Values *values)
{
    uint64_t asked = (settings.rounds() + 1) * settings.batch;
    uint64_t slices = (bytes + SLICE_BYTES - 1) / SLICE_BYTES;
    uint64_t due = WRITES * (slices * SLICE_BYTES + 8) + LANE_BYTES;
    uint64_t media = now.bytes_to_media - before.bytes_to_media;
    if (now.commits_journal - before.commits_journal != asked)
        fail("%s: %" PRIu64 " transactions, %" PRIu64 " went by a lane", name.c_str(), asked,
             now.commits_journal - before.commits_journal);
    if (now.writes - before.writes != asked * WRITES)
        fail("%s: %" PRIu64 " writes, ato_stat() counts %" PRIu64, name.c_str(), asked * WRITES,
             now.writes - before.writes);
    if (media != asked * due)
        fail("%s: %.1f bytes to the media a transaction, not %" PRIu64, name.c_str(),
             static_cast<double>(media) / static_cast<double>(asked), due);
    (*values)["media"] = static_cast<double>(due);
}

std::vector<Values> repeat_tx(const std::string &name, uint32_t bytes, bool sequential)
{
    Files &f = get_files();
    Stream stream(f.world.get(), bytes, sequential);
    std::vector<Write> writes;
    struct ato_stat before = f.libato->stat();
    std::vector<Values> values = bench::interleave(
        4, settings.rounds(), [&] { writes = stream.next(); },
        [&](size_t side) {
            const char *source = f.world->source();
            return side == BOUND ? ns_of_all(f.bound.get(), source, writes)
                                 : ns_of_all(f.world->side(side), source, writes);
        });
    check_counts(name, before, f.libato->stat(), bytes, &values[LIBATO]);
    for (size_t side : {LIBATO, BOUND, MEMCPY})
        values[side]["speed"] = 1 / values[side]["ratio"];
    values[LIBATO]["to_bound"] = values[LIBATO]["ratio"] / values[BOUND]["ratio"];
    return values;
}

Case tx_case(const char *size, uint32_t bytes, bool sequential)
{
    Case c;
    c.name = std::string("tx/") + size;
    c.sides = {"libpmemobj", "libato", "memcpy", "bound"};
    if (sequential)
        c.goals = {{"libato", "speed", 3, true}};
    c.repeat = [name = c.name, bytes, sequential] { return repeat_tx(name, bytes, sequential); };
    c.promise = [](const std::string &side) {
        return std::string("pmem: ") +
               (side == "libato"       ? "atomic and durable; no reader sees a part of it"
                : side == "libpmemobj" ? "atomic and durable; other threads see it half done"
                : side == "bound"      ? "atomic and durable for one thread; whole slices only"
                                       : "promises nothing: not durable, a kill tears it");
    };
    return c;
}

/* ---- libato alone ---- */

/* Two mappings of one file, one of them with epochs, and the pages of a World. */
class Lab
{
  public:
    Lab() : file_(settings.file_bytes(), false)
    {
        file_.map(bench::Domain::pmem, ATO_READ_GATHER);
        struct ato_options o = {};
        o.struct_size = sizeof(o);
        o.read_policy = ATO_READ_GATHER;
        o.domain = ATO_DOMAIN_PMEM;
        o.flags = ATO_EPOCHS;
        void *base = ato_mmap_opt(file_.bytes(), file_.descriptor(), 0, &o);
        if (base == MAP_FAILED)
            fail("ato_mmap_opt: %s", ato_errormsg());
        epochs_ = static_cast<char *>(base);
        file_.fill_at_random(&stream_);
    }

    ~Lab()
    {
        if (ato_munmap(epochs_, file_.bytes(), ATO_UNMAP_FAST) != 0)
            fail("ato_munmap: %s", ato_errormsg());
        file_.unmap(ATO_UNMAP_FAST);
    }

    bench::World &stream()
    {
        return stream_;
    }

    /* ---- each of `count` writes, all durable in the end ---- */

    void one_by_one(const Write *writes, size_t count)
    {
        for (const Write *w = writes; w < writes + count; w++)
            copy(file_.at(w->offset), source(*w), w->bytes);
    }

    ato_tx *open_tx(const Write *writes, size_t count)
    {
        ato_tx *tx = ato_tx_begin(0);
        if (!tx)
            fail("ato_tx_begin: %s", ato_errormsg());
        for (const Write *w = writes; w < writes + count; w++)
            if (!ato_tx_memcpy(tx, file_.at(w->offset), source(*w), w->bytes, 0))
                fail("ato_tx_memcpy: %s", ato_errormsg());
        return tx;
    }

    void in_tx(const Write *writes, size_t count)
    {
        if (ato_tx_commit(open_tx(writes, count)) != 0)
            fail("ato_tx_commit: %s", ato_errormsg());
    }

    std::vector<Values> modify(uint32_t bytes)
    {
        return bench::Records(&file_, &stream_, 0, bytes).measure();
    }

    void in_writev(const Write *writes, size_t count)
    {
        struct ato_iovec ranges[WRITES];
        for (size_t i = 0; i < count; i++)
            ranges[i] = {file_.at(writes[i].offset), source(writes[i]), writes[i].bytes};
        if (ato_writev(ranges, static_cast<int>(count), 0) != 0)
            fail("ato_writev: %s", ato_errormsg());
    }

    void in_epoch(const Write *writes, size_t count)
    {
        for (const Write *w = writes; w < writes + count; w++)
            copy(epochs_ + w->offset, source(*w), w->bytes);
        if (ato_msync(epochs_, file_.bytes(), MS_SYNC) != 0)
            fail("ato_msync: %s", ato_errormsg());
    }

    void read_each(const Write *places, size_t count)
    {
        char bytes[bench::MAX_WRITE];
        for (const Write *w = places; w < places + count; w++)
            copy(bytes, file_.at(w->offset), w->bytes);
    }

  private:
    static void copy(void *dst, const void *src, size_t n)
    {
        if (!ato_memcpy(dst, src, n))
            fail("ato_memcpy: %s", ato_errormsg());
    }

    const char *source(const Write &w) const
    {
        return stream_.source() + w.source;
    }

    bench::AtoFile file_;
    char *epochs_;
    bench::World stream_{{}, settings.file_bytes()};
};

std::unique_ptr<Lab> lab;

Lab &get_lab()
{
    if (!lab) {
        bench::end_files(&files); /* there may be no space for both */
        lab = std::make_unique<Lab>();
    }
    return *lab;
}

std::string promise_one(const std::string &)
{
    return "pmem: atomic and durable";
}

std::vector<Values> repeat_empty()
{
    constexpr uint64_t MORE = 100; /* so that looking at the clock does not count */
    return bench::interleave(
        1, settings.rounds(), [] {},
        [&](size_t) {
            uint64_t n = settings.batch * MORE;
            return bench::ns_of([&] {
                       for (uint64_t i = 0; i < n; i++)
                           if (ato_tx_abort(ato_tx_begin(0)) != 0)
                               fail("ato_tx_abort: %s", ato_errormsg());
                   }) /
                   static_cast<double>(n);
        });
}

Case empty_case()
{
    Case c;
    c.name = "empty";
    c.sides = {"begin_abort"};
    c.goals = {{"begin_abort", "ns", 50}};
    c.repeat = repeat_empty;
    c.promise = [](const std::string &) { return std::string("nothing was written"); };
    return c;
}

/* Each side in other pages of the same file. */
std::vector<Values> repeat_lab(uint32_t bytes, size_t each,
                               const std::vector<void (Lab::*)(const Write *, size_t)> &ways)
{
    Lab &l = get_lab();
    Stream stream(&l.stream(), bytes, false);
    std::vector<std::vector<Write>> writes(ways.size());
    return bench::interleave(
        ways.size(), settings.rounds(),
        [&] {
            for (auto &list : writes)
                list = stream.next();
        },
        [&](size_t side) {
            const std::vector<Write> &list = writes[side];
            double ns = bench::ns_of([&] {
                for (size_t i = 0; i < list.size(); i += each)
                    (l.*ways[side])(&list[i], each);
            });
            return ns * static_cast<double>(each) / static_cast<double>(list.size());
        });
}

Case one_case()
{
    Case c;
    c.name = "one/1K";
    c.sides = {"memcpy", "tx"};
    c.goals = {{"tx", "ratio", 1.6}};
    c.repeat = [] { return repeat_lab(1024, 1, {&Lab::one_by_one, &Lab::in_tx}); };
    c.promise = promise_one;
    return c;
}

Case together_case()
{
    Case c;
    c.name = "together/256";
    c.sides = {"tx", "writev", "epoch", "one_by_one"};
    c.repeat = [] {
        return repeat_lab(256, WRITES,
                          {&Lab::in_tx, &Lab::in_writev, &Lab::in_epoch, &Lab::one_by_one});
    };
    c.promise = [](const std::string &side) {
        return std::string(side == "one_by_one" ? "pmem: each by itself atomic and durable"
                                                : "pmem: atomic and durable");
    };
    return c;
}

std::vector<Values> repeat_reads()
{
    Lab &l = get_lab();
    Stream stream(&l.stream(), 1024, false);
    std::vector<Write> places;
    return bench::interleave(
        2, settings.rounds(), [&] { places = stream.next(); },
        [&](size_t side) {
            /* Either way the pages were just touched by one. */
            ato_tx *tx = l.open_tx(places.data(), places.size());
            if (side == 0)
                ato_tx_abort(tx);
            double ns = bench::ns_of([&] { l.read_each(places.data(), places.size()); });
            if (side == 1)
                ato_tx_abort(tx);
            return ns / static_cast<double>(places.size());
        });
}

Case read_case()
{
    Case c;
    c.name = "read/1K";
    c.sides = {"free", "held"};
    c.goals = {{"held", "ratio", 1.05}};
    c.repeat = repeat_reads;
    c.promise = [](const std::string &) { return std::string("pmem: a consistent snapshot"); };
    return c;
}

Case modify_case(const char *size, uint32_t bytes)
{
    return bench::modify_case(std::string("modify/") + size,
                              [bytes] { return get_lab().modify(bytes); });
}

std::vector<Case> cases()
{
    return {tx_case("16", 16, true),
            tx_case("64", 64, true),
            tx_case("128", 128, true),
            tx_case("256", 256, true),
            tx_case("512", 512, true),
            tx_case("256/random", 256, false),
            empty_case(),
            one_case(),
            together_case(),
            read_case(),
            modify_case("64", 64),
            modify_case("1K", 1024),
            modify_case("5000", 5000)};
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Transactions. libato and libpmemobj promise the same for crashes.",
                       {1024, 20000, 100},
                       [] { return settings.file_bytes() * 31 / 5 + (64ull << 20); },
                       cases,
                       [] {
                           bench::end_files(&files);
                           lab.reset();
                       }});
}
