/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

#include "../../bench.h"
#include "ato_sqlite.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

namespace sqlite
{

namespace
{

using engine::Domain;
using engine::Promise;
using suite::settings;

constexpr unsigned BUSY_TIMEOUT_MS = 10000;
constexpr size_t PAGE = 4096;

/* Of engines that are there, too: only with --full, or where they are named. */
const std::vector<std::string> VARIANTS = {
    "ato-gather",           "ato-eager", "ato-lanes", "ato-rtm", "hybrid-undo", "hybrid-redo",
    "fallback-pmemobj-redo"};

bool has(const std::vector<std::string> &names, const std::string &name)
{
    return std::find(names.begin(), names.end(), name) != names.end();
}

/* SQLite's own VFS calls fsync(), which on a file system in DRAM does nothing; there is no other one of persistent memory here.
 * So it is weaker there than what flushes all that such memory would need. */
const char *guarantee_of_journals()
{
    const bool is_in_memory = bench::medium_name().find("DRAM") != std::string::npos;
    return engine::name_of(Promise::atomic, is_in_memory ? Domain::process : Domain::disk);
}

/* ---- Sides ---- */

/* SQLite ignores a setting that it does not take. */
void set(Connection &connection, const std::string &mode)
{
    const std::string taken = connection.answer("PRAGMA journal_mode = " + mode);
    connection.execute("PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY");
    if (taken != mode || connection.answer("PRAGMA synchronous") != "2")
        bench::fail("a connection has the journal mode %s instead of %s", taken.c_str(),
                    mode.c_str());
}

class Files final : public Side
{
  public:
    Files(const std::string &name, const std::string &guarantee, const std::string &folder,
          uint64_t room, const char *vfs, const char *mode)
        : Side(name, guarantee), database_(folder + "/" + name + ".db"), room_(room), vfs_(vfs),
          mode_(mode)
    {
    }

    void fill(const std::string &file) override
    {
        std::filesystem::copy_file(file, database_);
    }

    std::unique_ptr<Connection> open() override
    {
        auto connection = std::make_unique<Connection>(database_, vfs_);
        sqlite3_busy_timeout(connection->handle(), BUSY_TIMEOUT_MS);
        set(*connection, mode_);
        connection->execute("PRAGMA mmap_size = " + std::to_string(room_));
        return connection;
    }

  private:
    std::string database_;
    uint64_t room_;
    const char *vfs_, *mode_;
};

class InEngine final : public Side
{
  public:
    InEngine(const engine::Kind &kind, const engine::Options &options)
        : Side(kind.name, engine::name_of(kind.promise(options), options.domain)),
          engine_(kind.map(options)), vfs_(*engine_, options.bytes, std::string("in-") + kind.name)
    {
    }

    void fill(const std::string &file) override
    {
        vfs_.fill(file);
    }

    std::unique_ptr<Connection> open() override
    {
        auto connection = std::make_unique<Connection>("/database", vfs_.name());
        EngineVfs::wait_when_busy(connection->handle(), BUSY_TIMEOUT_MS);
        set(*connection, "off");
        connection->execute("PRAGMA cache_spill = OFF");
        return connection;
    }

  private:
    std::unique_ptr<engine::Engine> engine_;
    EngineVfs vfs_;
};

void hash_rows(size_t &hash, Statement &rows)
{
    rows.each([&] {
        for (int column = 0; column < rows.columns(); column++)
            hash = hash * 31 + std::hash<std::string_view>()(rows.text(column));
    });
}

} // namespace

size_t Side::hash()
{
    const auto connection = open();
    const std::string verdict = connection->answer("PRAGMA integrity_check");
    if (verdict != "ok")
        bench::fail("%s: integrity_check: %s", name.c_str(), verdict.c_str());
    std::vector<std::string> tables;
    Statement all(*connection, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
    all.each([&] { tables.emplace_back(all.text(0)); });
    size_t hash = 0;
    for (const std::string &table : tables) {
        Statement rows(*connection, "SELECT * FROM " + table);
        hash_rows(hash, rows);
    }
    return hash;
}

/* ---- All of them ---- */

std::string new_file(const std::string &name)
{
    static unsigned number;
    return bench::folder(settings.dir.c_str()) + "/" + name + "-" + std::to_string(number++);
}

Sides::Sides(const std::string &file, uint64_t room) : folder_(new_file("sqlite"))
{
    setenv("ATO_DURABILITY", engine::name_of(settings.domain), 1);
    if (ato_vfs_register(0) != SQLITE_OK)
        bench::fail("the VFS ato cannot be registered");
    engine::Options options;
    options.bytes = (room + PAGE - 1) / PAGE * PAGE;
    options.domain = settings.domain;
    options.unit = engine::Unit::sync;
    const std::vector<std::string> &only = settings.only;
    for (const engine::Kind &kind : engine::ENGINES) {
        const std::string name = kind.name;
        const bool is_raw = name == "raw", is_chosen = only.empty()
                                                           ? settings.full || !has(VARIANTS, name)
                                                           : has(only, name);
        if (!kind.takes_part(options) || (!is_raw && !is_chosen) ||
            kind.promise(options) == Promise::none)
            continue;
        bench::stop_if_asked();
        options.folder = folder_ + "/" + name;
        std::filesystem::create_directories(options.folder);
        const auto at = is_raw ? sides_.begin() : sides_.end();
        sides_.insert(at, std::make_unique<InEngine>(kind, options));
    }
    const char *journals = guarantee_of_journals();
    const char *ours = engine::name_of(Promise::atomic, settings.domain);
    const auto add = [&](const char *name, const char *guarantee, const char *vfs,
                         const char *mode) {
        sides_.push_back(
            std::make_unique<Files>(name, guarantee, folder_, options.bytes, vfs, mode));
    };
    add("truncate", journals, "unix", "truncate");
    add("wal", journals, "unix", "wal");
    add("ato-vfs", ours, "ato", "delete");
    add("ato-vfs-off", ours, "ato", "off");
    for (const auto &side : sides_)
        side->fill(file);
}

Sides::~Sides()
{
    sides_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void Sides::compare() const
{
    const size_t expected = sides_[0]->hash();
    for (const auto &side : sides_) {
        bench::stop_if_asked();
        if (side->hash() != expected)
            bench::fail("%s holds other rows than %s", side->name.c_str(), sides_[0]->name.c_str());
    }
}

Sides::Values
Sides::measure(const Plan &plan,
               const std::function<void(size_t side, uint64_t operations)> &work) const
{
    static std::mt19937_64 random_numbers(20261130);
    const unsigned rounds = (settings.full ? 21 : 11) / (plan.few ? 2 : 1), least_rounds = 3;
    const double each = std::max(plan.seconds, 0.0) * 1e9 / (rounds + 2); /* of a round, ns */
    std::vector<size_t> order;
    for (size_t side = 0; side < count(); side++)
        order.push_back(side);
    std::vector<double> took(count());
    uint64_t n = plan.least, done = 0;
    const auto round = [&] {
        bench::stop_if_asked();
        std::shuffle(order.begin(), order.end(), random_numbers);
        double all = 0;
        for (const size_t side : order)
            all += took[side] = suite::ns_of([&] { work(side, n); });
        done += n;
        return all;
    };
    double all = round();
    while (all < each / 4 && done + 2 * n * (rounds + 1) <= plan.limit) {
        n *= 2;
        all = round();
    }
    const uint64_t most = (plan.limit - std::min(plan.limit, done)) / (rounds + 1),
                   fitting = static_cast<uint64_t>(static_cast<double>(n) * each / all);
    const double ns_of_one = all / static_cast<double>(n);
    n = std::max(plan.least, std::min(fitting, most));
    const double all_rounds = plan.seconds * 1e9 / (ns_of_one * static_cast<double>(n));
    Values rates(count());
    for (unsigned i = 0; i < rounds && (i < least_rounds || i < all_rounds); i++) {
        round();
        for (size_t side = 0; side < count(); side++)
            rates[side].push_back(static_cast<double>(n) / took[side] * 1e9);
    }
    return rates;
}

void Sides::report(const char *suite, const suite::Cell &cell, const char *metric,
                   const Values &values) const
{
    for (size_t side = 0; side < count(); side++)
        suite::put_rounds(suite, sides_[side]->name, sides_[side]->guarantee, cell, metric,
                          values[side], values[0]);
}

} // namespace sqlite
