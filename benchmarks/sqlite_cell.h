/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One process of a piece of sqlite_bench: what it does, and what it reports.
 *
 * A row is processes, each of them threads that repeat one transaction, a connection each. A side is how the database is
 * opened. A piece of a row and a side is short; each of its processes is a new one, which opens the database, says "ready"
 * on its standard output, begins when its standard input ends, closes the database, and reports. Connections are opened
 * before the clock starts, and closed before it stops.
 */
#ifndef ATO_BENCHMARKS_SQLITE_CELL_H
#define ATO_BENCHMARKS_SQLITE_CELL_H

#include <array>
#include <cstdint>
#include <map>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace cell
{

/* Threads that do the same. */
struct Work {
    /* WRITE: `sql` adds 1 to the sum of column n. HOLD: one transaction, which reads a row of `sql`, and the others when the time is
     * over. */
    enum Kind { READ, WRITE, HOLD } kind;
    const char *sql; /* ?1: a random key; ?2, if it is there: a new value */
    unsigned times;  /* so often in a transaction */
    bool begin;      /* BEGIN IMMEDIATE and COMMIT around it */
    unsigned threads;
};

using Process = std::vector<Work>;

struct Row {
    const char *name, *what;
    std::vector<Process> processes; /* none: speedtest1 */
    std::vector<const char *> figures;
    bool counts = false; /* bytes to the media: what SQLite's own VFS writes is counted */
};

struct Side {
    const char *name, *vfs, *journal_mode;
    const char *domain; /* for libato; nullptr: SQLite's own VFS */
    const char *guarantee;
    const char *log_dir = nullptr; /* in domain disk */
    bool normal = false;           /* synchronous is NORMAL instead of FULL */
};

/* What the program that starts the process tells it. */
struct Orders {
    std::string database, speedtest1;
    double seconds; /* how long to work, or ... */
    uint64_t ops;   /* ... how many transactions of each thread, if not 0 */
    uint64_t seed;  /* of this process */
    uint64_t keys;  /* 1 to this one */
};

/* How many took how long: 32 classes for each power of two. */
class Histogram
{
  public:
    void add(uint64_t ns, uint64_t count = 1);
    double quantile(double part) const; /* ns; 1: the longest */
    void merge(const Histogram &other);
    void put() const;

  private:
    std::map<uint64_t, uint64_t> counts_;
};

struct Thread {
    Work::Kind kind;
    uint64_t done, busy; /* transactions; those that ended with SQLITE_BUSY */
};

struct Report {
    std::vector<Thread> threads;
    std::array<Histogram, 3> times; /* of transactions, by kind */
    double seconds = 0;
    double bytes = 0;

    void read(const std::string &text); /* adds what a process has printed */
};

/* The process: the exit status of its main(). */
int run(const Row &row, const Side &side, size_t process, const Orders &orders);

/* A connection that reports every error by bench::fail(). */
sqlite3 *open(const std::string &database, const char *vfs);
void execute(sqlite3 *db, const std::string &sql);

} // namespace cell

#endif
