/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * YCSB on SQLite: the load and the core workloads A to F of Cooper et al., Benchmarking cloud serving systems with YCSB, at several
 * page sizes. The Acumen paper's figure 4.
 *
 * A record has a key of 24 characters and 10 fields of 100 bytes: 1 KiB. The tables are those of YCSB's binding for SQL. Each
 * operation is a transaction by itself; a read-modify-write is a read and an update, as there. An update writes one field.
 * Keys of new records are hashed, so that inserts go all over the table.
 *
 *   load   inserts                                       A   50 % reads, 50 % updates             zipfian
 *   B      95 % reads, 5 % updates            zipfian    C   reads                                zipfian
 *   D      95 % reads, 5 % inserts            latest     E   95 % scans of 1 to 100, 5 % inserts  zipfian
 *   F      50 % reads, 50 % read-modify-write zipfian
 *
 * They run in the order load A B C F D E on one database, by one thread: E, too, finds what D has inserted. MB/s counts 1000
 * bytes for each record that is read, and what is written: a record or a field.
 */
#include "../suites.h"
#include "random.h"
#include "sides.h"

#include "../../bench.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace sqlite
{

namespace
{

using suite::settings;

constexpr int FIELDS = 10, FIELD_BYTES = 100, RECORD_BYTES = FIELDS * FIELD_BYTES, MAX_SCAN = 100;
constexpr double SKEW = 0.99;
constexpr uint64_t SEED = 4242,
                   LEAST_WRITES =
                       5; /* of a side in a round: on a disk reads take no time beside them */

enum class Keys { zipfian, latest };

struct Workload {
    const char *name;
    int reads, updates, inserts, scans, modifies; /* percent */
    Keys keys;
};

const Workload WORKLOADS[] = {
    {"load", 0, 0, 100, 0, 0, Keys::zipfian}, {"A", 50, 50, 0, 0, 0, Keys::zipfian},
    {"B", 95, 5, 0, 0, 0, Keys::zipfian},     {"C", 100, 0, 0, 0, 0, Keys::zipfian},
    {"F", 50, 0, 0, 0, 50, Keys::zipfian},    {"D", 95, 0, 5, 0, 0, Keys::latest},
    {"E", 0, 0, 5, 95, 0, Keys::zipfian},
};

/*
 * Ranks from 0 with the probability 1/(rank + 1)^SKEW, by the approximation of Gray et al., Quickly generating billion-record
 * synthetic databases. The number of ranks may grow.
 */
class Zipfian
{
  public:
    uint64_t next(Random &random, uint64_t ranks)
    {
        for (; ranks_ < ranks; ranks_++)
            sum_ += 1 / std::pow(static_cast<double>(ranks_ + 1), SKEW);
        const double all = static_cast<double>(ranks), u = random.fraction(), at = u * sum_,
                     of_two = 1 + std::pow(0.5, SKEW);
        if (at < 1)
            return 0;
        if (at < of_two)
            return 1;
        const double eta = (1 - std::pow(2 / all, 1 - SKEW)) / (1 - of_two / sum_);
        return std::min(ranks - 1,
                        static_cast<uint64_t>(all * std::pow(eta * u - eta + 1, 1 / (1 - SKEW))));
    }

  private:
    uint64_t ranks_ = 0;
    double sum_ = 0;
};

std::string schema()
{
    std::string sql = "CREATE TABLE usertable(ycsb_key VARCHAR(255) PRIMARY KEY";
    for (int i = 0; i < FIELDS; i++)
        sql += ", field" + std::to_string(i) + " TEXT";
    return sql + ")";
}

std::string insert_sql()
{
    std::string sql = "INSERT INTO usertable VALUES(?1";
    for (int i = 0; i < FIELDS; i++)
        sql += ", ?" + std::to_string(i + 2);
    return sql + ")";
}

/* The program that has one side's database open. All sides' clients draw the same numbers. */
class Client
{
  public:
    explicit Client(Side &side)
        : random_(SEED), connection_(side.open()), insert_(*connection_, insert_sql()),
          read_(*connection_, "SELECT * FROM usertable WHERE ycsb_key = ?1"),
          scan_(*connection_,
                "SELECT * FROM usertable WHERE ycsb_key >= ?1 ORDER BY ycsb_key LIMIT ?2")
    {
        for (int i = 0; i < FIELDS; i++)
            updates_.push_back(std::make_unique<Statement>(
                *connection_,
                "UPDATE usertable SET field" + std::to_string(i) + " = ?2 WHERE ycsb_key = ?1"));
    }

    /* Returns the bytes of records that were read or written. */
    uint64_t run(const Workload &workload, uint64_t operations)
    {
        bytes_ = 0;
        for (uint64_t i = 0; i < operations; i++)
            one(workload);
        return bytes_;
    }

    uint64_t records() const
    {
        return records_;
    }

    /* Inserts up to so many, many in a transaction. */
    void load(uint64_t records)
    {
        constexpr uint64_t AT_ONCE = 256;
        while (records_ < records) {
            connection_->execute("BEGIN IMMEDIATE");
            for (uint64_t i = 0; i < AT_ONCE && records_ < records; i++)
                insert();
            connection_->execute("COMMIT");
        }
    }

  private:
    void one(const Workload &workload)
    {
        int64_t kind = random_.between(1, 100);
        if ((kind -= workload.reads) <= 0)
            read(choose(workload.keys));
        else if ((kind -= workload.updates) <= 0)
            update(choose(workload.keys));
        else if ((kind -= workload.inserts) <= 0)
            insert();
        else if (kind - workload.scans <= 0)
            scan(choose(workload.keys));
        else {
            const uint64_t record = choose(workload.keys);
            read(record);
            update(record);
        }
    }

    uint64_t choose(Keys keys)
    {
        const uint64_t rank = zipfian_.next(random_, records_);
        return keys == Keys::latest ? records_ - 1 - rank : mix(rank) % records_;
    }

    static std::string key_of(uint64_t record)
    {
        char key[32];
        std::snprintf(key, sizeof(key), "user%020" PRIu64, mix(record + 1));
        return key;
    }

    void read(uint64_t record)
    {
        if (read_.each([this] { take(read_); }, key_of(record)) != 1)
            bench::fail("a record is not found");
    }

    void scan(uint64_t record)
    {
        scan_.each([this] { take(scan_); }, key_of(record), random_.between(1, MAX_SCAN));
    }

    void take(const Statement &row)
    {
        for (int field = 1; field <= FIELDS; field++)
            bytes_ += row.text(field).size();
    }

    void update(uint64_t record)
    {
        const auto field = static_cast<size_t>(random_.between(0, FIELDS - 1));
        updates_[field]->run(key_of(record), random_.letters(FIELD_BYTES, FIELD_BYTES));
        bytes_ += FIELD_BYTES;
    }

    void insert()
    {
        const std::string all = random_.letters(RECORD_BYTES, RECORD_BYTES);
        const auto field = [&](size_t i) {
            return std::string_view(all).substr(i * FIELD_BYTES, FIELD_BYTES);
        };
        insert_.run(key_of(records_), field(0), field(1), field(2), field(3), field(4), field(5),
                    field(6), field(7), field(8), field(9));
        records_++;
        bytes_ += RECORD_BYTES;
    }

    Random random_;
    Zipfian zipfian_;
    uint64_t records_ = 0, bytes_ = 0;
    std::unique_ptr<Connection> connection_;
    Statement insert_, read_, scan_;
    std::vector<std::unique_ptr<Statement>> updates_;
};

void run_page_size(unsigned page, double seconds)
{
    const uint64_t room = settings.file_mib << 20, most_records = room / RECORD_BYTES / 4;
    const std::string empty = new_file("empty");
    {
        Connection connection(empty, "unix");
        connection.execute("PRAGMA page_size = " + std::to_string(page) + "; " + schema());
    }
    const Sides sides(empty, room);
    std::vector<std::unique_ptr<Client>> clients;
    for (size_t side = 0; side < sides.count(); side++)
        clients.push_back(std::make_unique<Client>(sides[side]));
    for (const Workload &workload : WORKLOADS) {
        const bool loads = workload.inserts == 100;
        const uint64_t limit = loads              ? most_records
                               : workload.inserts ? most_records / 2 * 100 / workload.inserts
                                                  : UINT64_MAX;
        const int writes = workload.updates + workload.inserts + workload.modifies;
        const Sides::Plan plan = {seconds / std::size(WORKLOADS),
                                  LEAST_WRITES * 100 / static_cast<uint64_t>(std::max(writes, 1)),
                                  limit};
        uint64_t bytes = 0, operations = 0;
        const Sides::Values rates = sides.measure(plan, [&](size_t side, uint64_t count) {
            const uint64_t some = clients[side]->run(workload, count);
            if (side == 0) {
                bytes += some;
                operations += count;
            }
        });
        suite::Cell cell;
        cell.workload = workload.name;
        cell.size = page;
        cell.unit = engine::Unit::sync;
        sides.report("ycsb", cell, "operations/s", rates);
        Sides::Values megabytes = rates;
        for (auto &rounds : megabytes)
            for (double &rate : rounds)
                rate *= static_cast<double>(bytes) / static_cast<double>(operations) / 1e6;
        sides.report("ycsb", cell, "MB/s", megabytes);
        if (loads)
            for (const auto &client : clients)
                client->load(most_records);
    }
    suite::say("ycsb, pages of %u bytes: %" PRIu64 " records at the end; comparing the contents",
               page, clients[0]->records());
    clients.clear();
    sides.compare();
}

void run()
{
    std::vector<unsigned> pages = {512, 4096};
    if (settings.full)
        pages = {512, 1024, 2048, 4096};
    else if (settings.domain == engine::Domain::disk)
        pages = {4096};               /* a sync takes as long for any of them */
    constexpr double MEASURED = 0.75; /* of the time: the rest goes into maps, loads, comparisons */
    for (size_t i = 0; i < pages.size(); i++)
        run_page_size(pages[i],
                      suite::seconds_left() * MEASURED / static_cast<double>(pages.size() - i));
}

} // namespace

} // namespace sqlite

namespace suite
{

const Suite YCSB = {"ycsb", "YCSB on SQLite: load, A to F", sqlite::run};

} // namespace suite
