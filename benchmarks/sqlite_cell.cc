/* SPDX-License-Identifier: BSD-3-Clause */
#include "sqlite_cell.h"

#include "bench.h"

#include "ato_sqlite.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <sstream>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

namespace cell
{

using bench::fail;
using Clock = std::chrono::steady_clock;

/* ---- Reports ---- */

/* The class of a time is its five highest bits below the first: within 3 %. */
void Histogram::add(uint64_t ns, uint64_t count)
{
    const int drop = std::max(0, 58 - (ns ? __builtin_clzll(ns) : 63));
    counts_[ns >> drop << drop] += count;
}

double Histogram::quantile(double part) const
{
    uint64_t all = 0, seen = 0;
    for (const auto &[ns, count] : counts_)
        all += count;
    for (const auto &[ns, count] : counts_)
        if ((seen += count) >= std::ceil(part * static_cast<double>(all)))
            return static_cast<double>(ns);
    return NAN;
}

void Histogram::merge(const Histogram &other)
{
    for (const auto &[ns, count] : other.counts_)
        counts_[ns] += count;
}

void Histogram::put() const
{
    for (const auto &[ns, count] : counts_)
        std::printf(" %" PRIu64 " %" PRIu64, ns, count);
}

void Report::read(const std::string &text)
{
    std::istringstream lines(text);
    for (std::string line, word; std::getline(lines, line);) {
        std::istringstream words(line);
        int kind;
        double number;
        words >> word;
        if (word == "thread" && words >> kind) {
            Thread t = {static_cast<Work::Kind>(kind), 0, 0};
            words >> t.done >> t.busy;
            threads.push_back(t);
            for (uint64_t ns, count; words >> ns >> count;)
                times[t.kind].add(ns, count);
        } else if (word == "seconds" && words >> number) {
            seconds = std::max(seconds, number);
        } else if (word == "bytes" && words >> number) {
            bytes += number;
        }
    }
}

/* ---- Connections ---- */

namespace
{

constexpr int BUSY_TIMEOUT_MS = 10000;

[[noreturn]] void fail_of(sqlite3 *db, const char *what)
{
    fail("%s: %s (%d)", what, sqlite3_errmsg(db), sqlite3_extended_errcode(db));
}

sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK)
        fail_of(db, sql);
    return statement;
}

} // namespace

sqlite3 *open(const std::string &database, const char *vfs)
{
    sqlite3 *db;
    if (sqlite3_open_v2(database.c_str(), &db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        vfs) != SQLITE_OK)
        fail("%s: %s", database.c_str(), sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
    return db;
}

void execute(sqlite3 *db, const std::string &sql)
{
    if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
        fail_of(db, sql.c_str());
}

namespace
{

/* The first column of the first row. */
std::string answer(sqlite3 *db, const std::string &sql)
{
    sqlite3_stmt *statement = prepare(db, sql.c_str());
    if (sqlite3_step(statement) != SQLITE_ROW)
        fail_of(db, sql.c_str());
    const std::string text = reinterpret_cast<const char *>(sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    return text;
}

/* SQLite ignores a setting that it does not take. */
void set(sqlite3 *db, const Side &side)
{
    const std::string mode = answer(db, std::string("PRAGMA journal_mode = ") + side.journal_mode);
    execute(db, side.normal ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL");
    const std::string synchronous = answer(db, "PRAGMA synchronous");
    if (sqlite3_stricmp(mode.c_str(), side.journal_mode) != 0 ||
        synchronous != (side.normal ? "1" : "2"))
        fail("%s: a connection has journal mode %s and synchronous %s", side.name, mode.c_str(),
             synchronous.c_str());
}

/* ---- Bytes to the media ---- */

/* SQLite's own VFS, with one function replaced: it counts what is written to databases and journals of both kinds. */
struct Counted {
    const sqlite3_io_methods *real;
    sqlite3_io_methods counting;
};

std::atomic<uint64_t> bytes_counted;
std::deque<Counted> counted; /* SQLite's own VFS has one for each way of locking */

int counted_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 offset)
{
    bytes_counted += static_cast<uint64_t>(n);
    for (const Counted &c : counted)
        if (file->pMethods == &c.counting)
            return c.real->xWrite(file, bytes, n, offset);
    return SQLITE_IOERR_WRITE;
}

int counted_open(sqlite3_vfs *, const char *name, sqlite3_file *file, int flags, int *out)
{
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");
    const int r = unix_vfs->xOpen(unix_vfs, name, file, flags, out);
    if (r != SQLITE_OK || !file->pMethods)
        return r;
    auto known = std::find_if(counted.begin(), counted.end(),
                              [&](const Counted &c) { return c.real == file->pMethods; });
    if (known == counted.end()) {
        known = counted.insert(counted.end(), {file->pMethods, *file->pMethods});
        known->counting.xWrite = counted_write;
    }
    file->pMethods = &known->counting;
    return r;
}

/* The name of the VFS that counts. For one thread. */
const char *counting_vfs()
{
    static sqlite3_vfs vfs = *sqlite3_vfs_find("unix");
    vfs.zName = "counted";
    vfs.xOpen = counted_open;
    sqlite3_vfs_register(&vfs, 0);
    return vfs.zName;
}

/* What libato has stored, and what it will store at the close for the slices that are away: 64 bytes and at most a word. */
double ato_bytes(sqlite3 *db)
{
    const std::string json = answer(db, "PRAGMA ato_stat");
    auto number = [&](const std::string &name) {
        const size_t at = json.find("\"" + name + "\":");
        if (at == std::string::npos)
            fail("PRAGMA ato_stat has no %s", name.c_str());
        return std::stod(json.substr(at + name.size() + 3));
    };
    return number("bytes_to_media") + 72 * number("slices_in_reflection");
}

/* ---- Work ---- */

/* splitmix64: its state is one word, so that a transaction can be made again. */
struct Random {
    uint64_t state;

    uint64_t operator()()
    {
        uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
};

class Worker
{
  public:
    Worker(const Work &work, const Side &side, const char *vfs, const Orders &orders, unsigned nth)
        : work_(work), orders_(orders), random_{Random{orders.seed * 64 + nth}()}, ato_(side.domain)
    {
        db_ = open(orders.database, vfs);
        set(db_, side);
        begin_ = prepare(db_, "BEGIN IMMEDIATE");
        commit_ = prepare(db_, "COMMIT");
        statement_ = prepare(db_, work.sql);
        if (sqlite3_bind_parameter_count(statement_) > 1)
            sqlite3_bind_blob(statement_, 2, value_, sizeof(value_), SQLITE_STATIC);
    }

    /* Ends with the close. `counts`: `bytes` gets what libato stores. */
    void run(bool counts)
    {
        const auto begin = Clock::now();
        const auto end =
            begin + std::chrono::nanoseconds(static_cast<int64_t>(orders_.seconds * 1e9));
        if (work_.kind == Work::HOLD)
            hold(end);
        for (auto at = begin;
             work_.kind != Work::HOLD && (orders_.ops ? done_ < orders_.ops : at < end);) {
            if (transact())
                done_++;
            else
                busy_++;
            const auto now = Clock::now();
            times_.push_back(static_cast<uint64_t>((now - at).count()));
            at = now;
        }
        /* The counters begin with the first write, which maps the database. */
        if (ato_ && counts)
            bytes_ = ato_bytes(db_);
        for (sqlite3_stmt *statement : {begin_, commit_, statement_})
            sqlite3_finalize(statement);
        if (sqlite3_close(db_) != SQLITE_OK)
            fail_of(db_, "close");
        seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    }

    void report() const
    {
        Histogram histogram;
        for (uint64_t ns : times_)
            histogram.add(ns);
        std::printf("thread %d %" PRIu64 " %" PRIu64, work_.kind, done_, busy_);
        histogram.put();
        std::printf("\nseconds %.9f\nbytes %.0f\n", seconds_, bytes_);
    }

  private:
    /* False: SQLITE_BUSY; nothing has changed, and the next call makes the same transaction. */
    bool transact()
    {
        const Random before = random_;
        bool well = !work_.begin || step(begin_);
        for (unsigned i = 0; well && i < work_.times; i++) {
            sqlite3_bind_int64(statement_, 1,
                               static_cast<sqlite3_int64>(random_() % orders_.keys) + 1);
            const uint64_t word = random_();
            std::memcpy(value_, &word, sizeof(word));
            well = step(statement_);
        }
        well = well && (!work_.begin || step(commit_));
        if (!well && !sqlite3_get_autocommit(db_))
            sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
        if (!well)
            random_ = before;
        return well;
    }

    /* The first commit after the database was opened waits for readers: it is over by then. */
    void hold(Clock::time_point end)
    {
        enum { FIRST_MS = 50 };
        std::this_thread::sleep_for(std::chrono::milliseconds(FIRST_MS));
        sqlite3_stmt *sum = prepare(db_, "SELECT sum(n) FROM t");
        execute(db_, "BEGIN");
        bool well = sqlite3_step(sum) == SQLITE_ROW;
        const sqlite3_int64 before = sqlite3_column_int64(sum, 0);
        sqlite3_int64 seen = 0;
        well = sqlite3_reset(sum) == SQLITE_OK && well && sqlite3_step(statement_) == SQLITE_ROW;
        std::this_thread::sleep_until(end);
        int r = well ? SQLITE_ROW : sqlite3_reset(statement_);
        for (; r == SQLITE_ROW; r = sqlite3_step(statement_))
            seen += sqlite3_column_int64(statement_, 0);
        if (r == SQLITE_DONE && seen != before)
            fail("a cursor found the sum %lld, which was %lld when it began",
                 static_cast<long long>(seen), static_cast<long long>(before));
        if (r != SQLITE_DONE && (r & 0xff) != SQLITE_BUSY)
            fail_of(db_, work_.sql);
        (r == SQLITE_DONE ? done_ : busy_)++;
        sqlite3_reset(statement_);
        sqlite3_finalize(sum);
        execute(db_, "ROLLBACK");
    }

    bool step(sqlite3_stmt *statement)
    {
        int r;
        while ((r = sqlite3_step(statement)) == SQLITE_ROW)
            sqlite3_column_blob(statement, 1); /* of a read: the value */
        sqlite3_reset(statement);
        if (r != SQLITE_DONE && (r & 0xff) != SQLITE_BUSY)
            fail_of(db_, sqlite3_sql(statement));
        return r == SQLITE_DONE;
    }

    const Work &work_;
    const Orders &orders_;
    Random random_;
    bool ato_;
    sqlite3 *db_;
    sqlite3_stmt *begin_, *commit_, *statement_;
    char value_[100] = {};
    uint64_t done_ = 0, busy_ = 0;
    double seconds_ = 0, bytes_ = 0;
    std::vector<uint64_t> times_;
};

void wait_for_go()
{
    char c;
    std::puts("ready");
    std::fflush(stdout);
    while (read(0, &c, 1) > 0) {
    }
}

void work(const Row &row, const Side &side, const Process &process, const Orders &orders)
{
    std::deque<Worker> workers;
    std::vector<std::thread> threads;
    const char *vfs = row.counts && !side.domain ? counting_vfs() : side.vfs;
    for (const Work &w : process)
        for (unsigned i = 0; i < w.threads; i++)
            workers.emplace_back(w, side, vfs, orders, static_cast<unsigned>(workers.size()));
    wait_for_go();
    bytes_counted = 0;
    for (size_t i = 1; i < workers.size(); i++)
        threads.emplace_back([&, i] { workers[i].run(row.counts); });
    workers[0].run(row.counts);
    for (std::thread &thread : threads)
        thread.join();
    for (const Worker &worker : workers)
        worker.report();
    std::printf("bytes %" PRIu64 "\n", bytes_counted.load());
}

/* A function for sqlite3_auto_extension(). */
int set_normal(sqlite3 *db, char **, const void *)
{
    execute(db, "PRAGMA synchronous = NORMAL");
    return SQLITE_OK;
}

/* What tools/sqlite-tests builds: speedtest1 as a shared library, which uses this program's SQLite and its VFSs. */
void run_speedtest1(const Side &side, const Orders &orders)
{
    void *library = dlopen(orders.speedtest1.c_str(), RTLD_NOW);
    void *symbol = library ? dlsym(library, "main") : nullptr;
    if (!symbol)
        fail("%s", dlerror());
    int (*speedtest1)(int, char **);
    std::memcpy(&speedtest1, &symbol, sizeof(symbol));
    std::vector<std::string> words = {"speedtest1",      "--vfs",
                                      side.vfs,          "--journal",
                                      side.journal_mode, orders.database + ".speedtest1"};
    std::vector<char *> arguments;
    for (std::string &word : words)
        arguments.push_back(word.data());
    if (side.normal) /* it has no option for that */
        sqlite3_auto_extension(reinterpret_cast<void (*)()>(set_normal));
    wait_for_go();
    const int out = dup(1), null = ::open("/dev/null", O_WRONLY);
    dup2(null, 1); /* its own times, without the close */
    const auto begin = Clock::now();
    const int status = speedtest1(static_cast<int>(arguments.size()), arguments.data());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::fflush(stdout);
    dup2(out, 1);
    if (status != 0)
        fail("speedtest1 ended with %d", status);
    std::printf("seconds %.9f\n", seconds);
}

} // namespace

int run(const Row &row, const Side &side, size_t process, const Orders &orders)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sqlite3_config(SQLITE_CONFIG_URI, 1); /* for speedtest1 */
    if (ato_vfs_register(0) != SQLITE_OK)
        fail("the VFS ato cannot be registered");
    if (row.processes.empty())
        run_speedtest1(side, orders);
    else
        work(row, side, row.processes[process], orders);
    std::fflush(stdout);
    return 0;
}

} // namespace cell
